"""Labelled grids: `da.kronfield.interp` beside `da.interp` of xarray, every second sample given.

The grids are waves with a trend, a random field with a falling spectrum, and the middle of the
brain template MNI152 (nilearn) if it is installed. No decision was set on them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frame import OURS, Method, Row, Settings, contest


@dataclass(frozen=True)
class LabelledTask:
    """A DataArray of which every second sample along some dimensions is given."""

    whole: Any
    dims: tuple[str, ...]

    @property
    def given(self) -> Any:
        return self.whole.isel({dim: slice(None, None, 2) for dim in self.dims})

    @property
    def wanted(self) -> dict[str, Any]:
        return {dim: self.whole[dim].values for dim in self.dims}

    def decibels(self, found: Any) -> float:
        """Return the spread of the values over the rms error, in dB."""
        error = found.values - self.whole.values
        return 20 * math.log10(float(self.whole.std()) / math.sqrt(float(np.nanmean(error**2))))


def _grids(settings: Settings) -> dict[str, Any]:
    """Return DataArrays with dates, falling latitudes and an odd number of samples."""
    import xarray

    time, lat, lon = settings.pick((9, 9, 17), (41, 33, 73), (81, 65, 145))
    axes = {
        "time": np.datetime64("2024-01-01", "ns") + np.arange(time) * np.timedelta64(6, "h"),
        "lat": np.linspace(80, -80, lat),
        "lon": np.linspace(0, 360, lon),
    }
    t, a, o = np.meshgrid(
        np.arange(time), np.radians(axes["lat"]), np.radians(axes["lon"]), indexing="ij"
    )
    waves = 15 * np.cos(a) + 3 * np.sin(3 * o + t / 9) * np.cos(2 * a) + 2 * np.sin(t / 11)
    spectrum = np.fft.rfftn(np.random.default_rng(0).normal(size=t.shape))
    cycles = np.meshgrid(
        np.fft.fftfreq(time), np.fft.fftfreq(lat), np.fft.rfftfreq(lon), indexing="ij"
    )
    rough = np.fft.irfftn(spectrum / (np.sqrt(sum(f**2 for f in cycles)) + 0.01) ** 2.5, t.shape)
    dims = ("time", "lat", "lon")
    grids = {
        "waves": xarray.DataArray(waves, axes, dims),
        "random field": xarray.DataArray(rough, axes, dims),
    }
    if settings.size != "tiny" and importlib.util.find_spec("nilearn") is not None:
        grids["MNI152"] = _brain()
    return grids


def _brain() -> Any:
    import xarray
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=2)
    values = np.asarray(image.dataobj, dtype=np.float64)[10:81:1, 10:81, 10:71]
    axes = {name: 2.0 * np.arange(n) for name, n in zip("xyz", values.shape, strict=True)}
    return xarray.DataArray(values, axes, ("x", "y", "z"))


def labels(settings: Settings) -> list[Row]:
    """Interpolation along all dimensions and along one, the others being channels."""
    import kronfield.xarray  # noqa: F401

    grids = _grids(settings)
    methods = [
        Method(OURS, lambda task: task.given.kronfield.interp(task.wanted)),
        Method("xarray interp, cubic", _xarray("cubic")),
        Method("xarray interp, linear", _xarray("linear")),
    ]
    rows: list[Row] = []
    for case, count in (("all dimensions", 3), ("one dimension", 1)):
        items = {
            name: LabelledTask(one, tuple(map(str, one.dims))[-count:])
            for name, one in grids.items()
        }
        rows += contest(
            "labels",
            f"{len(items)} labelled grids, along {case}",
            items,
            methods,
            settings,
            score=lambda task, found: (task.decibels(found), None),
            warm=next(iter(items.values())),
            repetitions=settings.pick(1, 3, 5),
        )
    return rows


def _xarray(method: str) -> Callable[[LabelledTask], Any]:
    return lambda task: task.given.interp(task.wanted, method=method)
