"""Labels of xarray, pandas and dates: none is dropped, and dates are exact."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import kronfield as kf

pandas = pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")

DAYS = np.arange("2023-12-20", "2024-04-01", dtype="M8[D]")  # across a leap day
LATITUDES = np.linspace(80, -80, 33)  # falling


def wave(day, latitude):
    return np.sin(day / 20) * np.cos(latitude / 40)


@pytest.fixture(scope="module")
def air():
    values = wave(np.arange(len(DAYS))[:, None], LATITUDES)
    coords = {"time": DAYS, "lat": ("lat", LATITUDES, {"units": "degrees_north"})}
    attrs = {"units": "K", "scale": np.float32(0.5)}
    return xarray.DataArray(values, coords, ("time", "lat"), name="air", attrs=attrs)


@pytest.fixture(scope="module")
def field(air):
    return kf.fit(air)


def test_a_data_array_keeps_its_labels(field):
    time, lat = field.labels.axes
    assert (time.name, time.kind, lat.name, lat.unit) == ("time", "date", "lat", "degrees_north")
    assert (field.labels.name, field.labels.attrs) == ("air", {"units": "K", "scale": 0.5})
    assert np.array_equal(field.coordinates["time"], DAYS)
    assert np.array_equal(field.coordinates["lat"], LATITUDES)
    assert "air [K] on time: [2023-12-19T12:00, 2024-03-31T12:00] x lat:" in repr(field)
    assert "air [K] by time [dates], lat [degrees_north]" in str(field.report)


def test_dates_in_dates_out(field):
    noon = DAYS[60:75] + np.timedelta64(12, "h")
    expected = wave(np.arange(60, 75)[:, None] + 0.5, LATITUDES[2:5])
    assert np.allclose(field.on_grid([noon, LATITUDES[2:5]]), expected, atol=1e-9)
    named = field.on_grid({"lat": LATITUDES[2:5], "time": noon})
    assert np.allclose(named, expected, atol=1e-9)
    assert np.allclose(field.on_grid(), wave(np.arange(len(DAYS))[:, None], LATITUDES))


def test_points_by_name(field):
    noon = DAYS[60:75] + np.timedelta64(12, "h")
    expected = wave(np.arange(60, 75) + 0.5, 10.0)
    assert np.allclose(field(time=noon, lat=10.0), expected, atol=1e-9)
    assert field(time=noon[:, None], lat=np.zeros(3)).shape == (15, 3)
    assert field(time="2024-02-29", lat=0.0).shape == ()
    table = pandas.DataFrame({"lat": 10.0, "time": noon, "station": "a"})
    assert np.allclose(field(table), expected, atol=1e-9)
    mixed = np.array([[noon[0].astype(object), 10.0], [noon[1].astype(object), 10.0]], dtype=object)
    assert np.allclose(field(mixed), expected[:2], atol=1e-9)
    assert field.gradient({"time": noon, "lat": 10.0}, per="day").shape == (15, 2)


def test_derivatives_are_per_second_or_a_stated_unit(field):
    noon, x = DAYS[60:75] + np.timedelta64(12, "h"), np.arange(60, 75) + 0.5
    expected = np.cos(x / 20) / 20
    place = {"time": noon, "lat": 0.0}
    assert np.allclose(field(place, {"time": 1}) * 86400, expected, atol=1e-8)
    for per in ("day", "days", "D", np.timedelta64(24, "h"), pandas.Timedelta(days=1)):
        assert np.allclose(field(place, {"time": 1}, per=per), expected, atol=1e-8)
    twice = field(place, {"time": 2}, per="day")
    assert np.allclose(twice, -np.sin(x / 20) / 400, atol=1e-7)
    grid = field.on_grid([noon, [0.0]], derivative=(1, 0), per="h")
    assert np.allclose(grid[:, 0] * 24, expected, atol=1e-8)


def test_labels_are_saved_loaded_and_pickled(field, tmp_path):
    loaded = kf.load(field.save(tmp_path / "air.field").path)
    for other in (loaded, pickle.loads(pickle.dumps(field)), field.refit(2 * field.on_grid())):
        assert other.labels == field.labels
        assert repr(other) == repr(field)
        assert np.array_equal(other.coordinates["time"], DAYS)


def test_a_field_that_holds_samples_keeps_labels_too(tmp_path):
    blocks = np.kron(np.eye(4), np.ones((8, 8)))
    dates = np.arange("2024-01-01", "2024-02-02", dtype="M8[D]")
    field = kf.fit(blocks, axes={"day": dates, "x": np.arange(32.0)})
    loaded = kf.load(field.save(tmp_path / "blocks.field").path)
    assert type(loaded).__name__ == "RefinedField"
    assert loaded.labels.names == ("day", "x")
    assert "day: [2023-12-31T12:00, 2024-02-01T12:00]" in repr(loaded)


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "h"])
def test_steps_of_any_length_are_exact(unit):
    start = np.datetime64("2024-02-29T23:59:58.123456789", "ns").astype(f"M8[{unit}]")
    dates = start + np.arange(200) * np.timedelta64(1, unit)
    values = np.sin(np.arange(200) / 10)
    field = kf.fit(values, axes=[dates])
    assert np.array_equal(field.coordinates["axis 0"], dates)
    assert np.allclose(field(dates[50:60]), values[50:60], atol=1e-12)
    assert np.allclose(field.on_grid(dates), values, atol=1e-12)
    plain = kf.fit(values, axes=[np.arange(200.0)])
    assert np.allclose(field.on_grid((398,))[2:-2:2], plain.on_grid((398,))[2:-2:2], atol=1e-12)


def test_far_dates_do_not_overflow():
    dates = np.array([f"{year}-01-01" for year in range(-2000, 9000, 100)], dtype="M8[Y]")
    field = kf.fit(np.arange(110.0), axes=[dates])
    assert np.array_equal(field.coordinates["axis 0"], dates.astype("M8[D]"))
    assert np.allclose(field(dates[7:9]), [7, 8])


def test_durations_and_time_zones():
    steps = np.arange(50) * np.timedelta64(250, "ms")
    field = kf.fit(np.arange(50.0), axes=[steps])
    assert np.array_equal(field.coordinates["axis 0"], steps)
    assert np.allclose(field(steps[:2] + np.timedelta64(125, "ms")), [0.5, 1.5])
    with pytest.raises(TypeError, match="a duration"):
        field(DAYS[:2])
    zone = pandas.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Zurich")
    local = kf.fit(pandas.Series(np.arange(60.0), index=zone))
    assert np.allclose(local(zone[30:33]), [30, 31, 32])
    assert np.allclose(local(np.array(["2024-03-29T23:00"], dtype="M8[m]")), [0])


def test_a_series_is_fitted_on_its_index():
    values = np.sin(np.arange(len(DAYS)) / 9)
    series = pandas.Series(values, index=pandas.DatetimeIndex(DAYS, name="day"), name="co2")
    series.iloc[40:42] = np.nan
    field = kf.fit(series)
    assert (field.labels.names, field.labels.name, field.report.filled) == (("day",), "co2", 2)
    assert abs(field(series.index[40:42]) - values[40:42]).max() < 0.01
    uneven = pandas.Series([1.0, 2.0, 4.0], index=[0.0, 1.0, 3.0])
    assert np.allclose(kf.fit(uneven)(np.array([[2.0]])), 3.0)
    table = pandas.DataFrame({"a": values, "b": 2 * values}, index=series.index)
    both = kf.fit(table)
    assert both.labels.channels == ("a", "b")
    assert both(series.index[:3]).shape == (3, 2)


def test_the_columns_of_a_data_frame_may_be_an_axis():
    years, months = np.arange(1990, 2002), np.arange(1, 13)
    values = np.sin(years / 3)[:, None] + np.cos(months / 2)
    table = pandas.DataFrame(values, pandas.Index(years, name="year"), months)
    field = kf.fit(table.rename_axis(columns="month"), channels=False)
    assert field.labels.names == ("year", "month")
    assert abs(field(year=1995, month=7.0) - values[5, 6]) < 1e-6
    assert kf.fit(table, channels=np.False_).dimensions == 2
    with pytest.raises(kf.InputError, match="index"):
        kf.fit(table.rename(columns=str), channels=False)


def test_one_date_is_a_position():
    """Dates as text, of the standard library and of pandas; values have the shape of the dates."""
    series = pandas.Series(np.arange(48.0), index=pandas.date_range("2024-01-01", periods=48))
    field = kf.fit(series)
    day = pandas.Timestamp("2024-01-31")
    for one in ("2024-01-31", day, day.to_datetime64(), day.to_pydatetime(), day.date()):
        assert field(one).shape == ()
        assert abs(field(one) - 30) < 1e-9
    assert np.allclose(field(["2024-01-31", "2024-02-01"]), [30, 31])
    square = series.index.to_numpy()[:6].reshape(2, 3)
    assert np.allclose(field(square), np.arange(6.0).reshape(2, 3))
    assert np.allclose(field(square.reshape(6, 1)), np.arange(6.0))
    assert np.allclose(field.gradient("2024-01-31", per="year"), 365.25)
    with pytest.raises(kf.InputError, match=r"points.*dates"):
        field("soon")


def test_positions_by_name_everywhere():
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"lon": rng.random(60), "lat": rng.random(60)})
    field = kf.fit_points(table, pandas.Series(rng.random(60), name="height"))
    at = np.array([[0.5, 0.25], [0.5, 0.75]])
    for ask in (field.standard_error, field.gradient, field.laplacian, field.distance_to_data):
        assert np.array_equal(ask(lon=0.5, lat=[0.25, 0.75]), ask(at))


def test_a_data_frame_names_the_axes_of_points():
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"lon": 10 * rng.random(300), "lat": 5 * rng.random(300)})
    values = (table["lon"] + 2 * table["lat"]).rename("height")
    field = kf.fit_points(table, values.sample(frac=1, random_state=0))  # aligned by the index
    assert (field.labels.names, field.labels.name) == (("lon", "lat"), "height")
    assert np.allclose(field(lat=2.0, lon=np.array([3.0, 4.0])), [7, 8], atol=1e-6)
    assert np.allclose(field(table[["lat", "lon"]]), values, atol=1e-6)
    with pytest.raises(kf.InputError, match="expected lon, lat"):
        field(lon=1.0)
    with pytest.raises(kf.InputError, match="without lat"):
        field(table[["lon"]])
    with pytest.raises(kf.InputError, match="same index"):
        kf.fit_points(table, values.iloc[:100])
    with pytest.raises(kf.InputError, match="'name'"):
        kf.fit_points(table.assign(name="a"), values)


def test_points_in_time():
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.integers(0, 90 * 86400, 400))
    dates = np.datetime64("2024-01-01", "s") + seconds
    values = np.sin(seconds / 86400 / 5)
    field = kf.fit_points({"time": dates}, values)
    middle = np.array(["2024-01-31T12:00"], dtype="M8[m]")
    assert np.allclose(field(middle), np.sin(30.5 / 5), atol=0.01)
    assert np.allclose(kf.fit_points(dates, values)(middle), field(middle))
    wide = kf.fit_points(
        {"time": dates}, values, domain=[(np.datetime64("2024-01-01"), np.datetime64("2024-04-01"))]
    )
    assert "[2024-01-01, 2024-04-01]" in repr(wide)


def test_channels_and_missing_values_of_a_data_array(air):
    bands = xarray.concat([air, 2 * air], dim="band").assign_coords(band=["low", "high"])
    field = kf.fit(bands)  # the axis of words holds channels, wherever it is
    assert field.labels.names == ("time", "lat")
    assert field.labels.channels == ("low", "high")
    assert field.on_grid().shape == (*air.shape, 2)
    gaps = air.where(~((air.lat < 20) & (air.lat > 0) & (air.time == air.time[5])))
    filled = kf.fit(gaps)
    assert filled.report.filled == int(gaps.isnull().sum())
    assert abs(filled.on_grid() - air.values).max() < 0.1


def test_outliers_are_named_by_their_dates():
    values = np.sin(np.arange(40) / 6) + 0.05 * np.cos(9.0 * np.arange(40))
    values[25] += 20
    report = kf.fit(pandas.Series(values, DAYS[:40]), loss="huber").report
    assert f"at ({DAYS[25]}): " in str(report)
    assert f"at ({DAYS[25]}): " in dict(report.summary())["outliers"]
    assert f"at ({25 * 86400:.4g}): " in str(report.robust)  # alone, it knows no dates


def test_errors_name_the_remedy(air):
    with pytest.raises(TypeError, match=r"ds\["):
        kf.fit(air.to_dataset())
    twice = pandas.Series([1.0, 2.0, 3.0], index=pandas.to_datetime(["2024-01-01"] * 3))
    with pytest.raises(kf.InputError, match="groupby"):
        kf.fit(twice)
    with pytest.raises(kf.InputError, match="index of"):
        kf.fit(pandas.Series([1.0, 2.0], index=["a", "b"]))
    with pytest.raises(kf.InputError, match="NaT"):
        kf.fit(np.arange(3.0), axes=[np.array(["2024-01-01", "NaT", "2024-01-03"], dtype="M8[D]")])
    field = kf.fit(np.arange(5.0))
    with pytest.raises(TypeError, match="have no names"):
        field(x=1.0)
    with pytest.raises(kf.InputError, match="no axis has dates"):
        field(np.array([[1.0]]), per="day")
    with pytest.raises(TypeError, match="Convert them"):
        field(DAYS[:2, None])


def test_the_domain_and_errors_speak_of_dates(field):
    with pytest.raises(kf.InputError, match=r"2025-01-01 on axis 0, time, .*2024-03-31T12:00"):
        field(time="2025-01-01", lat=0.0)
    part = [(np.datetime64("2024-01-01"), np.datetime64("2024-01-11")), (-10, 10)]
    inner = field.integral(part)
    days = np.arange(12, 22, 0.01) + 0.005
    expected = 864 * wave(days, 0).sum() * 2 * 40 * np.sin(0.25)
    assert np.isclose(inner, expected, rtol=1e-5)


def test_fit_imports_neither_library():
    code = (
        "import sys, numpy as np, kronfield as kf\n"
        "days = np.arange(9).astype('M8[D]')\n"
        "kf.fit(np.arange(9.0), axes=[days])(days[:2])\n"
        "assert not {'xarray', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
