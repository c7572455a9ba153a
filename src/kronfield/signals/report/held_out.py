"""The error of a field between its samples, measured at samples that were held out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError
from kronfield._core.frames import Split
from kronfield._core.records import record
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.dual import DualField
from kronfield.files import Signal
from kronfield.fitting import settings as defaults
from kronfield.fitting.grid import fit
from kronfield.fitting.points import fit_points
from kronfield.fitting.report import FitReport, PointReport
from kronfield.signals.axes import drawn_positions
from kronfield.signals.peers import interpolate_grid, interpolate_points
from kronfield.signals.report.curves import Part
from kronfield.solvers.points.cg import ConvergenceError


@record
class HeldOut:
    """The error at samples that were held out, beside linear and cubic interpolation.

    Attributes
    ----------
    errors : dict of float
        The root mean square error over all channels, by method: "field", "linear" and "cubic". For
        scattered points, linear has up to three dimensions and cubic up to two.
    given : str
        Which samples were given to the methods, as text.
    error : array
        The errors of the field in the first channel, field minus sample: on a grid NaN at samples
        that were given, else (P,).
    axes : list of arrays
        The positions of the grid.
    points : array (P, D) or None
        The positions of scattered points.
    x : array, optional
        The positions of the errors along a line, as they are drawn: numbers or dates.
    """

    errors: dict[str, float]
    given: str
    error: Array
    axes: list[Array]
    points: Array | None = None
    x: Array | None = None

    def __str__(self) -> str:
        found = ", ".join(f"{name} {error:.3g}" for name, error in self.errors.items())
        return f"{found} rms, where {self.given}"


def held_out(signal: Signal, field: Field) -> HeldOut | None:
    """Return the error at held-out samples; None if there are too few, or gaps in a grid."""
    if signal.points is not None:
        return _of_points(signal.points, signal.values, field)
    return _of_grid(signal, field)


def _rms(error: Array) -> float:
    return math.sqrt(float(np.mean(np.square(error, dtype=np.float64))))


def _of_grid(signal: Signal, field: Field) -> HeldOut | None:
    """Predict the middle of a grid from every second sample of each axis."""
    report = field.report
    if not isinstance(report, FitReport):
        return None
    part = Part.middle(signal.values, signal.channels, field, report)
    fewest = defaults.DEFAULT.signals.curve_fewest
    if not np.isfinite(part.values).all() or min(map(len, part.axes)) < fewest:
        return None
    split = Split.of([len(x) for x in part.axes])
    known = part.known(split)
    chosen = report.chosen is not None or report.noise is not None
    with np.errstate(all="ignore"):
        fitted = (
            fit(known.values, known.axes, channels=known.channels)
            if chosen
            else known.fit(
                known.encoding(report.embedders), ridge=report.ridge, roughness=report.roughness
            )
        )
        found = {"field": fitted.on_grid(part.axes, outside="clamp")}
        for method in ("linear", "cubic"):
            found[method] = interpolate_grid(known.values, known.axes, part.axes, method)
    errors = {name: _rms((one - part.values)[split.held_out]) for name, one in found.items()}
    error = np.full(part.values.shape, np.nan)
    error[split.held_out] = (found["field"] - part.values)[split.held_out]
    error = error[..., 0] if signal.channels else error
    x = drawn_positions(field, 0, part.axes[0]) if field.dimensions == 1 else None
    return HeldOut(errors, "every second sample of each axis was given", error, part.axes, x=x)


def _of_points(points: Array, values: Array, field: Field) -> HeldOut | None:
    """Predict a random fifth of the points from the others, with the settings of the fit."""
    there = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
    points, values = points[there], values[there].astype(np.float64)
    # hold out equal points together: else the value of one would be known from the other
    _, place = np.unique(points, axis=0, return_inverse=True)
    count = int(place.max(initial=-1)) + 1
    decisions = defaults.DEFAULT.signals
    fewest, part = decisions.held_out_points, decisions.contest_part
    if count < fewest or not isinstance(field.report, PointReport | FitReport):
        return None
    out = (np.random.default_rng(0).random(count) < part)[place.ravel()]
    settings = _settings(field)
    try:
        fitted = fit_points(points[~out], values[~out], **settings)
    except (ConvergenceError, InputError):
        return None
    found = {"field": fitted(points[out], outside="clamp")}
    for method in ("linear", "cubic")[: 2 if field.dimensions <= 2 else 1]:
        if field.dimensions <= 3:
            found[method] = interpolate_points(points[~out], values[~out], points[out], method)
    errors = {name: _rms(one - values[out]) for name, one in found.items()}
    error = found["field"] - values[out]
    error = error[:, 0] if error.ndim == 2 else error
    given = f"{1 - part:.0%} of the points were given"
    x = drawn_positions(field, 0, points[out][:, 0]) if field.dimensions == 1 else None
    return HeldOut(errors, given, error, [], points[out], x)


def _settings(field: Field) -> dict[str, Any]:
    """Return the settings of a fit to points, to fit other points in the same way."""
    report = field.report
    if isinstance(field, DualField) or not isinstance(report, PointReport):
        return {}
    encoding = field.encoding
    assert isinstance(encoding, Kronecker)
    settings: dict[str, Any] = {"encoding": encoding, "domain": field.domain}
    settings |= {"ridge": report.ridge, "roughness": report.roughness, "trend": field.trend}
    return settings | ({} if report.units is None else {"units": report.units})
