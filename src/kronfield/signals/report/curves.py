"""Scores of other settings of a fit: by the shape of the features, and by the penalty."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Split, mean_step
from kronfield._core.records import record
from kronfield.embedders import (
    BSpline,
    Embedder,
    LinearFourier,
    LogFourier,
    RandomFourier,
    TensionSpline,
)
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.fitting import settings as defaults
from kronfield.fitting.grid import RankWarning, fit
from kronfield.fitting.report import Candidate, FitReport
from kronfield.fitting.splines import PADDING

# The curves are drawn at these factors on the shape of the features, and at these weights of the
# penalty in units of a cell.
FACTORS = tuple(2.0 ** (k / 2) for k in range(-4, 5))
WEIGHTS = tuple(10.0 ** (k / 2) for k in range(-8, 5))
# Tensions from cubic to nearly linear splines, and the tension that is used in place of B-splines.
TENSIONS, LIKE_SPLINES = (0.05, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 24.0), 8.0


@record
class ScoreCurve:
    """A score against a setting; lower is better.

    Attributes
    ----------
    title, x_label, y_label : str
        The title and the labels of the plot.
    x, scores : arrays
        The settings and their scores.
    chosen : float or None
        The setting of the fit; None if it is not on the axis.
    instead : str
        The text to show if ``chosen`` is None.
    """

    title: str
    x_label: str
    y_label: str
    x: Array
    scores: Array
    chosen: float | None
    instead: str = "no penalty"


def choice_curves(values: Array, channels: bool, field: Field) -> list[ScoreCurve]:
    """Return the scores of other shapes and penalties on the central part of the samples.

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        The samples that were fitted.
    channels : bool
        Whether the last axis holds channels.
    field : Field
        The fit.
    """
    report = field.report
    if not isinstance(report, FitReport):
        return []
    part = Part.middle(values, channels, field, report)
    if (
        not np.isfinite(part.values).all()
        or min(map(len, part.axes)) < defaults.DEFAULT.signals.curve_fewest
    ):
        return []
    found = _shapes(part, report), _penalties(part, report)
    return [curve for curve in found if curve is not None]


@record
class Part:
    """The central part of the samples, on which settings are compared.

    ``density`` is the number of features per sample on each axis of the fit.
    """

    values: Array
    axes: list[Array]
    channels: bool
    density: list[float]

    @classmethod
    def middle(cls, values: Array, channels: bool, field: Field, report: FitReport) -> Part:
        """Return about `curve_samples` samples from the middle of the samples of a fit."""
        D, own = field.dimensions, defaults.DEFAULT.signals
        side = max(2 * own.curve_fewest, math.floor(own.curve_samples ** (1 / D)))
        side = min(own.curve_longest, side)
        starts = [max(0, (n - side) // 2) for n in values.shape[:D]]
        parts = tuple(slice(start, start + side) for start in starts)
        axes = [np.sort(x)[part] for x, part in zip(field.axes, parts, strict=True)]
        return cls(np.asarray(values[parts], dtype=np.float64), axes, channels, _density(report))

    @property
    def cell(self) -> float:
        """The length of a cell: the geometric mean over the axes."""
        volume = math.prod(map(mean_step, self.axes))
        return float(volume ** (1 / len(self.axes)))

    def known(self, split: Split) -> Part:
        """Return the samples of this part that are not held out."""
        values, axes = split.known(self.values), split.axes(self.axes)
        return dataclasses.replace(self, values=values, axes=axes)

    def encoding(self, embedders: list[Embedder], shape: float | None = None) -> Kronecker:
        """Return features as in the fit, with as many per sample and optionally another shape."""
        axes = zip(embedders, self.axes, self.density, strict=True)
        return Kronecker(*[_like(emb, len(x) * per_sample, shape) for emb, x, per_sample in axes])

    def fit(self, encoding: Kronecker, **penalty: Any) -> Field:
        """Fit this part; warnings about rank are ignored."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            return fit(self.values, self.axes, encoding, channels=self.channels, **penalty)


def _density(report: FitReport) -> list[float]:
    """Return the features per sample on each axis.

    It is 1 for B-splines and for a fit with slopes from the data.
    """
    if report.refined or any(isinstance(emb, BSpline) for emb in report.embedders):
        return [1.0] * len(report.samples)
    axes = zip(report.embedders, report.samples, strict=True)
    return [(emb.size - _padded(emb)) / n for emb, n in axes]


def _tried(candidates: list[Candidate], name: str) -> tuple[Array, Array] | None:
    """Return a parameter and the scores of the candidates that have it; None for fewer than 3."""
    pairs = [(one.parameters[name], one.score) for one in candidates if math.isfinite(one.score)]
    if len(pairs) < 3:
        return None
    x, scores = np.array(sorted(pairs), dtype=np.float64).T
    return x, scores


def _like(embedder: Embedder, samples: float, shape: float | None = None) -> Embedder:
    """Return an embedder of the same kind and padding for another number of samples.

    Its shape relative to the spacing of the features is that of ``embedder``, or ``shape``.
    """
    if isinstance(embedder, BSpline):  # a spline in tension has a penalty for any number of samples
        return TensionSpline(max(2, round(samples)) + 2 * PADDING, LIKE_SPLINES, padding=PADDING)
    extra = _padded(embedder)
    size = max(2, round(samples)) + extra
    size += size % 2 if isinstance(embedder, RandomFourier | LinearFourier | LogFourier) else 0
    name = embedder.shape_parameter
    settings: dict[str, Any] = {"size": size}
    if name is not None and not isinstance(embedder, TensionSpline):
        value = getattr(embedder, name) if shape is None else shape
        ratio = (embedder.size - extra) / max(size - extra, 1)
        if name == "exponent":
            settings[name] = max(0.0, value - math.log2(ratio))
        elif name in ("scale", "frequency"):
            settings[name] = value / ratio
        else:
            settings[name] = value * ratio
    elif name is not None and shape is not None:
        settings[name] = shape
    return dataclasses.replace(embedder, **settings)  # type: ignore[type-var]


def _padded(embedder: Embedder) -> int:
    padding: Any = getattr(embedder, "padding", 0)
    return 2 * padding if isinstance(padding, int) else 0


# Shapes -----------------------------------------------------------------------------------


def _shapes(part: Part, report: FitReport) -> ScoreCurve | None:
    """Return the held-out error against the shape of the features, reported or computed."""
    degrees = [
        one
        for one in report.candidates
        if one.kind == "splines"
        and one.parameters["axis"] == 0
        and one.parameters["ends"] == "not-a-knot"
    ]
    before = _tried(degrees, "degree")
    if before is not None:
        label = "mean squared error of samples left out\n(of values scaled to 1)"
        chosen = [one.parameters["degree"] for one in degrees if one.chosen]
        degree = float(chosen[0]) if chosen else None  # type: ignore[arg-type]
        title = "Error of samples left out, by degree"
        return ScoreCurve(title, "degree", label, *before, degree, "slopes from the data")
    first = report.embedders[0]
    name = first.shape_parameter
    if name is None:
        return None
    title, own = f"Held-out error against {name}", float(getattr(first, name))
    if any(type(emb) is not type(first) for emb in report.embedders):
        return None
    tried = _shapes_to_try(first, name, own)
    # A lattice twice as coarse has twice the tension per spacing.
    coarser = 2.0 if isinstance(first, TensionSpline) else 1.0
    scores = [_held_out_error(part, report.embedders, shape * coarser) for shape in tried]
    label = "error (rms) at samples held out"
    return ScoreCurve(title, name, label, np.array(tried), np.array(scores), own)


def _shapes_to_try(embedder: Embedder, name: str, own: float) -> list[float]:
    """Return shapes to compare with ``own``, the shape of the embedder."""
    if name == "exponent":
        return [own + step for step in (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0) if own + step > 0]
    if isinstance(embedder, TensionSpline):
        return sorted({*TENSIONS, own})
    return [own * factor for factor in FACTORS]


def _held_out_error(part: Part, embedders: list[Embedder], shape: float) -> float:
    """Fit every second sample with features of this shape; return the rms error at the others."""
    split = Split.of([len(x) for x in part.axes])
    known = part.known(split)
    fitted = known.fit(known.encoding(embedders, shape), ridge=0.0)
    error = (fitted.on_grid(part.axes, outside="clamp") - part.values)[split.held_out]
    return math.sqrt(float(np.mean(error**2)))


# Penalties --------------------------------------------------------------------------------


def _penalties(part: Part, report: FitReport) -> ScoreCurve | None:
    """Return generalised cross-validation against the penalty, reported or computed."""
    title, label = "Cross-validation against the penalty", "generalised cross-validation"
    ridges = _tried([one for one in report.candidates if one.kind == "ridge"], "ridge")
    if ridges is not None:
        return ScoreCurve(title, "ridge", label, *ridges, report.ridge or None)
    if report.ridge or any(emb.smoothness < 1 for emb in report.embedders):
        return None
    order = 2 if report.roughness[1] > report.roughness[0] else 1
    weights = np.array(WEIGHTS) * part.cell ** (2 * order)  # squared derivatives of this order
    encoding = part.encoding(report.embedders)
    scores = [_cross_validation(part, encoding, weight, order) for weight in weights.tolist()]
    which = "first" if order == 1 else "second"
    chosen = report.roughness[order - 1] or None
    setting = f"weight of squared {which} derivatives"
    return ScoreCurve(title, setting, label, weights, np.array(scores), chosen)


def _cross_validation(part: Part, encoding: Kronecker, weight: float, order: int) -> float:
    """Return the score of generalised cross-validation (Craven and Wahba, 1979).

    It is n^2 r^2 / (n - f)^2 for n samples, the rms residual r and f degrees of freedom, and NaN if
    f is nearly n.
    """
    pair = (weight, 0.0) if order == 1 else (0.0, weight)
    found = part.fit(encoding, roughness=pair).report
    assert isinstance(found, FitReport)
    n = math.prod(map(len, part.axes))
    left = n - found.degrees_of_freedom
    return n**2 * found.residual**2 / left**2 if left > 1e-6 * n else math.nan
