"""The accessors of xarray: DataArrays and Datasets in, the same with coordinates and attrs out."""

import numpy as np
import pytest

pytest.importorskip("xarray")

import xarray as xr

import kronfield as kf
import kronfield.xarray

DAYS = np.arange("2024-02-01", "2024-04-01", dtype="M8[D]")
LATITUDES, LONGITUDES = np.linspace(60, -60, 25), np.linspace(0, 90, 19)


def wave(day, lat, lon):
    return np.sin(day / 9) + np.cos(lat / 40) * np.sin(lon / 30)


@pytest.fixture(scope="module")
def air():
    day = np.arange(len(DAYS))[:, None, None]
    coords = {
        "time": DAYS,
        "lat": ("lat", LATITUDES, {"units": "degrees_north"}),
        "lon": LONGITUDES,
        "month": ("time", DAYS.astype("M8[M]").astype(int) % 12 + 1),
        "height": 2.0,
    }
    values = wave(day, LATITUDES[:, None], LONGITUDES)
    return xr.DataArray(values, coords, ("time", "lat", "lon"), name="air", attrs={"units": "K"})


def test_fit_along_some_dimensions(air):
    field = air.kronfield.fit(dims=("lat", "lon"))
    assert field.labels.names == ("lat", "lon")
    assert field.channel_count == len(DAYS)
    assert air.kronfield.fit().labels.names == ("time", "lat", "lon")
    with pytest.raises(kf.InputError, match="depth"):
        air.kronfield.fit(dims="depth")


def test_interp_is_as_accurate_as_cubic_and_keeps_labels(air):
    lat, lon = np.linspace(-55, 55, 37), np.linspace(3, 87, 31)
    found = air.kronfield.interp(lat=lat, lon=lon)
    assert found.dims == air.dims
    assert (found.name, found.attrs, found.lat.attrs) == ("air", air.attrs, air.lat.attrs)
    assert set(found.coords) == set(air.coords)
    expected = wave(np.arange(len(DAYS))[:, None, None], lat[:, None], lon)
    cubic = air.interp(lat=lat, lon=lon, method="cubic")
    error = abs(found.values - expected).max()
    assert error <= abs(cubic.values - expected).max()


def test_interp_at_dates_numbers_and_points(air):
    noon = DAYS[10:14] + np.timedelta64(12, "h")
    found = air.kronfield.interp(time=noon)
    assert np.array_equal(found.time.values, noon)
    expected = wave(np.arange(10, 14)[:, None, None] + 0.5, LATITUDES[:, None], LONGITUDES)
    assert np.allclose(found, expected, atol=1e-6)
    assert air.kronfield.interp(time="2024-02-29", lat=0.0).dims == ("lon",)
    lat = xr.DataArray([10.0, 20.0], dims="station", coords={"station": ["a", "b"]})
    lon = xr.DataArray([30.0, 40.0], dims="station")
    points = air.kronfield.interp(lat=lat, lon=lon)
    assert set(points.dims) == {"time", "station"}
    assert np.allclose(points.sel(station="b").values, wave(np.arange(60), 20, 40), atol=1e-3)
    assert bool(air.kronfield.interp(lat=[0.0, 89.0]).sel(lat=89.0).isnull().all())


def test_interp_like(air):
    other = xr.DataArray(np.zeros((5, 4)), {"lat": np.linspace(-9, 9, 5), "lon": [1, 2, 3, 4]})
    found = air.kronfield.interp_like(other)
    assert found.shape == (len(DAYS), 5, 4)
    assert np.array_equal(found.lat, other.lat)
    assert air.kronfield.interp_like(air).equals(air)


def test_lines_without_values_beside_complete_ones(air):
    empty = air.copy()
    empty[:, 3, 4] = np.nan
    noon = DAYS[10:50] + np.timedelta64(12, "h")
    found, expected = (one.kronfield.interp(time=noon) for one in (empty, air))
    assert bool(found[:, 3, 4].isnull().all())
    expected[:, 3, 4] = np.nan
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_gaps_that_differ_from_line_to_line_are_filled_together(air, monkeypatch):
    gaps = air.where(np.random.default_rng(0).random(air.shape) > 0.1)
    gaps[:, 3, 4] = np.nan  # a line without values
    gaps.attrs = air.attrs
    fits = []
    make = kf.fitting.grid.fit
    monkeypatch.setattr(
        "kronfield.fitting.grid.fit",
        lambda *a, **options: fits.append(options) or make(*a, **options),
    )
    noon = DAYS[10:50] + np.timedelta64(12, "h")
    found = gaps.kronfield.interp(time=noon)
    assert len(fits) == 1
    expected = wave(np.arange(10, 50)[:, None, None] + 0.5, LATITUDES[:, None], LONGITUDES)
    assert bool(found[:, 3, 4].isnull().all())
    assert abs(found.where(found.notnull(), expected) - expected).max() < 2e-3
    filled = gaps.kronfield.fill("time")
    assert filled.equals(gaps.where(gaps.notnull(), filled))
    assert abs(filled - air).max() < 1e-2
    assert (filled.dtype, filled.attrs) == (air.dtype, air.attrs)
    two = air.where(air.lon != LONGITUDES[5]).where(
        (air.lat != LATITUDES[7]) | (air.time < DAYS[9])
    )
    fits.clear()
    assert abs(two.kronfield.interp(lat=0.0, lon=40.0) - wave(np.arange(60), 0, 40)).max() < 1e-2
    assert len(fits) == 2  # one for each pattern of gaps


def test_fill_changes_only_what_is_missing(air):
    rng = np.random.default_rng(0)
    part = air.isel(time=slice(0, 3))
    gaps = part.where(rng.random(part.shape) > 0.1)  # others in each channel
    gaps[2] = np.nan  # a channel without values
    filled = gaps.kronfield.fill(dims=("lat", "lon"))
    assert bool((filled == gaps)[:2].where(gaps[:2].notnull(), True).all())
    assert abs(filled[:2] - part[:2]).max() < 0.1
    assert bool(filled[2].isnull().all())
    assert (filled.attrs, filled.name, filled.dims) == (air.attrs, "air", air.dims)
    assert air.kronfield.fill().equals(air)
    report = gaps[0].kronfield.fit().report
    assert report.filled == int(gaps[0].isnull().sum())


def test_denoise(air):
    one = air.isel(time=0, drop=True)
    clean = one.interp(lat=np.linspace(-60, 60, 64), lon=np.linspace(0, 90, 64))
    noisy = clean + 0.1 * np.random.default_rng(0).standard_normal(clean.shape)
    found = noisy.assign_attrs(air.attrs).kronfield.denoise()
    assert float(abs(found - clean).std()) < 0.04
    assert found.attrs == air.attrs
    assert found.lat.equals(noisy.lat)


def test_differentiate_and_integrate(air):
    slope = air.kronfield.differentiate("time", datetime_unit="day")
    expected = np.cos(np.arange(len(DAYS)) / 9) / 9
    assert slope.dims == air.dims
    assert "units" in air.attrs
    assert "units" not in slope.attrs  # it has another unit
    assert np.allclose(slope[:, 3, 4], expected, atol=1e-4)
    total = air.kronfield.integrate("lon")
    usual = air.kronfield.interp(lon=np.linspace(0, 90, 2001)).integrate("lon")
    assert total.dims == ("time", "lat")
    assert "units" not in total.attrs
    assert np.allclose(total, usual, rtol=1e-4, atol=1e-4)


def test_a_dataset_goes_variable_by_variable(air):
    ds = xr.Dataset(
        {"air": air[:4], "mask": ("lat", np.ones(25)), "station": ("time", list("abcd"))},
        attrs={"source": "test"},
    )
    found = ds.kronfield.interp(lat=[0.0, 10.0])
    assert found["air"].shape == (4, 2, 19)
    assert found["mask"].shape == (2,)
    assert found["station"].values.tolist() == list("abcd")
    assert found.attrs == ds.attrs
    assert set(ds.kronfield.fit(dims="lat")) == {"air", "mask"}
    assert ds.kronfield.fill()["air"].equals(ds["air"])
