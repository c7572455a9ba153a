"""How settings of a fit compare: held-out error against the shape of the features, cross-validation against the penalty."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Split
from kronfield.embedders import Embedder, LinearFourier, LogFourier, RandomFourier, TensionSpline
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.fitting.grid import RankWarning, fit
from kronfield.fitting.grid_choice import COARSER, TENSIONS
from kronfield.fitting.report import Candidate, FitReport

# Samples of the part on which settings are judged, and the fewest and the most on an axis of it.
JUDGED, FEWEST, LONGEST = 1 << 16, 12, 400
# Factors on the shape of the features, and powers of ten of the penalty in units of a cell.
FACTORS = tuple(2.0 ** (k / 2) for k in range(-4, 5))
WEIGHTS = tuple(10.0 ** (k / 2) for k in range(-8, 5))
_RIDGE = re.compile(r"^ridge (\S+)$")
_TENSION = re.compile(r"^tension (\S+), straight past the ends$")


@dataclass(frozen=True)
class ScoreCurve:
    """A score against a setting; lower is better.

    Attributes
    ----------
    title, x_label, y_label : str
        What it shows.
    x, scores : arrays
        The settings tried, and what they scored.
    chosen : float or None
        The setting of the fit; None if it is not on the axis.
    instead : str
        Where ``chosen`` is None: what the fit has in place of a setting on the axis.
    """

    title: str
    x_label: str
    y_label: str
    x: Array
    scores: Array
    chosen: float | None
    instead: str = "no penalty"


def choice_curves(values: Array, channels: bool, field: Field) -> list[ScoreCurve]:
    """Return how other shapes and penalties would have done on the central part of the samples.

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        What the field was fitted to.
    channels : bool
        Whether the last axis holds channels.
    field : Field
        The fit.
    """
    report = field.report
    if not isinstance(report, FitReport):
        return []
    D = field.dimensions
    part, axes = _middle(values, [np.sort(x) for x in field.axes], D)
    if not np.isfinite(part).all() or min(part.shape[:D]) < FEWEST:
        return []
    # slopes from the data are no setting of the features: what is drawn are the splines that they stand beside
    density = (
        [1.0] * D
        if report.refined
        else [(emb.size - _padded(emb)) / n for emb, n in zip(report.embedders, report.samples, strict=True)]
    )
    shapes = _shapes(part, axes, channels, report.embedders, density, report.candidates, report.refined)
    penalties = _penalties(part, axes, channels, report, density)
    return [curve for curve in (shapes, penalties) if curve is not None]


def _tried(candidates: list[Candidate], pattern: re.Pattern[str]) -> tuple[Array, Array] | None:
    """Return settings and scores of those candidates of a fit that have a number."""
    pairs = [(float(match[1]), one.score) for one in candidates if (match := pattern.match(one.setting))]
    pairs = [pair for pair in pairs if math.isfinite(pair[1])]
    if len(pairs) < 3:
        return None
    x, scores = np.array(pairs).T
    return x, scores


def _middle(values: Array, axes: list[Array], D: int) -> tuple[Array, list[Array]]:
    side = min(LONGEST, max(2 * FEWEST, math.floor(JUDGED ** (1 / D))))
    parts = [slice(max(0, (n - side) // 2), max(0, (n - side) // 2) + side) for n in values.shape[:D]]
    part = np.asarray(values[tuple(parts)], dtype=np.float64)
    return part, [axis[one] for axis, one in zip(axes, parts, strict=True)]


def _like(embedder: Embedder, samples: float, shape: float | None = None) -> Embedder:
    """Return an embedder of the same kind with so many features and its padding; its shape is the same per feature.

    ``shape`` stands in for that of ``embedder``.
    """
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


def _quiet_fit(*args: Any, **kwargs: Any) -> Field:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return fit(*args, **kwargs)


def _shapes(
    part: Array,
    axes: list[Array],
    channels: bool,
    embedders: list[Embedder],
    density: list[float],
    candidates: list[Candidate],
    refined: bool,
) -> ScoreCurve | None:
    """Predict the rest from every second sample, with features of many shapes."""
    first = embedders[0]
    name = first.shape_parameter
    tried_before = _tried(candidates, _TENSION)
    if tried_before is not None and name is not None:
        label = "mean squared error at samples held out\n(of values scaled to 1)"
        own = None if refined else float(getattr(first, name))
        return ScoreCurve(f"Held-out error against {name}", name, label, *tried_before, own, "slopes from the data")
    if name is None or any(type(emb) is not type(first) for emb in embedders):
        return None
    D = len(axes)
    split = Split.of(part.shape[:D])
    known, known_axes, rest = split.known(part), split.axes(axes), split.held_out
    own = float(getattr(first, name))
    tension = isinstance(first, TensionSpline)
    if name == "exponent":
        tried = [own + step for step in (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0) if own + step > 0]
    else:
        tried = sorted({*TENSIONS, own}) if tension else [own * factor for factor in FACTORS]
    scores = []
    for shape in tried:
        like = [
            _like(emb, len(axis) * per_sample, shape * COARSER if tension else shape)
            for emb, axis, per_sample in zip(embedders, known_axes, density, strict=True)
        ]
        fitted = _quiet_fit(known, known_axes, Kronecker(*like), ridge=0.0, channels=channels)
        error = (fitted.on_grid(axes, outside="clamp") - part)[rest]
        scores.append(math.sqrt(float(np.mean(error**2))))
    return ScoreCurve(
        f"Held-out error against {name}", name, "error (rms) at samples held out", np.array(tried), np.array(scores), own
    )


def _penalties(part: Array, axes: list[Array], channels: bool, report: FitReport, density: list[float]) -> ScoreCurve | None:
    """Return generalised cross-validation against the weight of the penalty: what the fit tried, or tried anew."""
    title, label = "Cross-validation against the penalty", "generalised cross-validation"
    ridges = _tried(report.candidates, _RIDGE)
    if ridges is not None:
        return ScoreCurve(title, "ridge", label, *ridges, report.ridge or None)
    if report.ridge or any(emb.smoothness < 1 for emb in report.embedders):
        return None
    order = 2 if report.roughness[1] > report.roughness[0] else 1
    cell = math.prod((axis[-1] - axis[0]) / (len(axis) - 1) for axis in axes) ** (2 * order / len(axes))
    like = [_like(emb, len(x) * per_sample) for emb, x, per_sample in zip(report.embedders, axes, density, strict=True)]
    encoding = Kronecker(*like)
    n = math.prod(len(axis) for axis in axes)
    scores = []
    for weight in WEIGHTS:
        pair = (weight * cell, 0.0) if order == 1 else (0.0, weight * cell)
        found = _quiet_fit(part, axes, encoding, roughness=pair, channels=channels).report
        assert isinstance(found, FitReport)
        left = n - found.degrees_of_freedom
        scores.append(n**2 * found.residual**2 / left**2 if left > 1e-6 * n else math.nan)
    which = "first" if order == 1 else "second"
    chosen = report.roughness[order - 1] or None
    return ScoreCurve(
        title, f"weight of squared {which} derivatives", label, np.array(WEIGHTS) * cell, np.array(scores), chosen
    )
