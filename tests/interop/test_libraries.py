"""Arrays of PyTorch and of the array API standard, and dates of cftime."""

import datetime

import array_api_strict
import cftime
import numpy as np
import pytest
import torch
import xarray

import kronfield as kf
import kronfield.xarray

X = np.arange(20.0)
LIBRARIES = {"torch": torch.asarray, "strict": array_api_strict.asarray}


@pytest.mark.parametrize("make", LIBRARIES.values(), ids=LIBRARIES)
def test_arrays_of_other_libraries_are_taken_and_values_are_numpy(make):
    field = kf.fit(np.sin(X / 3))
    same = kf.fit(make(np.sin(X / 3)), axes=[make(X)], mask=make(np.zeros(20, dtype=bool)))
    at = np.array([[1.5], [7.25]])
    for values in (same(make(at)), field(make(at)), field.on_grid([make(at[:, 0])])):
        assert type(values) is np.ndarray
        np.testing.assert_allclose(values, np.sin(at[:, 0] / 3), atol=1e-4)
    points = np.random.default_rng(0).random((40, 2))
    given = {"ridge": 1e-3, "weights": make(np.ones(40))}
    found = kf.fit_points(make(points), make(points[:, 0]), kf.Gaussian(6, 0.2), **given)
    assert np.abs(found(points) - points[:, 0]).max() < 0.1


def test_gradients_are_not_dropped_in_silence():
    values = torch.sin(torch.arange(20.0)).requires_grad_()
    with pytest.raises(TypeError, match=r"detach\(\)"):
        kf.fit(values)
    with pytest.raises(TypeError, match=r"detach\(\)"):
        kf.fit(np.sin(X))(torch.ones(3, 1, requires_grad=True))
    with pytest.raises(TypeError, match=r"detach\(\)"):
        kf.fit_points(torch.rand(9, 1).requires_grad_(), torch.rand(9))


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian"])
def test_dates_of_other_calendars(calendar, tmp_path):
    time = xarray.date_range("2000-02-27", periods=10, calendar=calendar, use_cftime=True)
    values = np.sin(np.arange(10) / 3)
    air = xarray.DataArray(values, {"time": time}, ("time",), name="air")
    field = kf.fit(air)
    assert field.labels.axes[0].calendar == calendar
    np.testing.assert_allclose(field(time=time), values, atol=1e-9)
    np.testing.assert_allclose(field(time=time[3]), values[3], atol=1e-9)
    assert "2000-02-26 12:00:00" in repr(field)
    assert field.coordinates["time"].tolist() == list(time)
    field.save(tmp_path / "air.field")
    loaded = kf.load(tmp_path / "air.field")
    assert loaded.coordinates["time"].tolist() == list(time)
    later = time[:9] + datetime.timedelta(hours=12)
    found = air.kronfield.interp(time=later)
    assert found.time.values.tolist() == list(later)
    np.testing.assert_allclose(found, np.sin((np.arange(9) + 0.5) / 3), atol=1e-3)
    np.testing.assert_allclose(
        field(time=time[2:8], derivative={"time": 1}, per="day"),
        np.cos(np.arange(2, 8) / 3) / 3,
        atol=1e-3,
    )
    with pytest.raises(TypeError, match=f"of the calendar {calendar}"):
        field(time=np.datetime64("2000-03-01"))
    with pytest.raises(TypeError, match="dates of the calendar standard"):
        field(time=cftime.datetime(2000, 3, 1, calendar="standard"))
