"""The penalty of values on a line, by the error of held-out values.

All matrices of a line are bands: a fit takes time in proportion to the unknowns. So parts of the
points are held out in turn, and the whole range of penalties is searched, from a random walk (first
derivatives) to an integrated one (second derivatives), with noise or without. Maximising the
likelihood would take a tenth of the time, but it assumes that the values are a random process of
this kind. Seasons and weather are not, and a fit is judged by the error of its predictions.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.fitting.point_grids import grid_of, hat_axis
from kronfield.fitting.settings import SearchSettings
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.direct import penalty_band
from kronfield.solvers.points.normal import NormalEquations, Penalty
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.rows import sparse_rows

# The decades of the penalty and of the ratio of first to second derivatives.
Place = tuple[float, float]


@record(eq=False)
class _Part:
    """A held-out part: the equations of the other points, and its rows, values (n, C), weights."""

    equations: NormalEquations
    rows: Any
    values: Array
    weights: Array


class LineFolds:
    """Points on a line, parts of which are held out in turn.

    Parameters
    ----------
    rule : RowRule
        The features, with exact rows.
    points, values, weights
        Points (P, 1), values (C, P), and weights (P,) or None.
    settings : SearchSettings
        The number of parts, and of points after which no further part is held out.
    seed : int
        The seed of the random parts.
    """

    def __init__(
        self,
        rule: RowRule,
        points: Array,
        values: Array,
        weights: Array | None,
        settings: SearchSettings,
        seed: int,
    ) -> None:
        wide = values.astype(np.float64)
        mean = np.average(wide, axis=1, weights=weights)
        spread = wide.std(axis=1)
        wide = (wide - mean[:, None]) / np.where(spread > 0, spread, 1.0)[:, None]
        P = len(points)
        parts = min(settings.line_folds, P)
        label = np.random.default_rng(seed).permutation(P) % parts
        turns = min(parts, max(1, math.ceil(parts * settings.line_points / P)))
        total = float(P if weights is None else weights.sum())
        self.parts = []
        for k in range(turns):
            held, kept = label == k, label != k
            own = None if weights is None else weights[kept]
            equations = assemble(rule, points[kept], np.ascontiguousarray(wide[:, kept]), own)
            # the penalty is weighted as in the fit of all points
            equations = replace(equations, total=total)
            rows = sparse_rows(rule.runs(points[held]), rule.shape, np.float64)
            w = np.ones(int(held.sum())) if weights is None else weights[held]
            self.parts.append(_Part(equations, rows, wide[:, held].T, w))

    def error(self, penalty: Penalty) -> float:
        """Return the weighted mean squared error at held-out points; infinite if singular."""
        linalg, total, weight = scipy_linalg(), 0.0, 0.0
        for part in self.parts:
            data = part.equations.data_band
            band = penalty_band(part.equations.differences(penalty), len(data)).copy("F")
            band[: len(data)] += data
            rhs = part.equations.rhs.reshape(len(part.equations.rhs), -1).T
            try:
                x = linalg.solveh_banded(
                    band, rhs, overwrite_ab=True, lower=True, check_finite=False
                )
            except np.linalg.LinAlgError:
                return math.inf
            total += float(part.weights @ np.sum((part.values - part.rows @ x) ** 2, axis=1))
            weight += float(part.weights.sum())
        return total / (weight or 1.0)


class Folds(Protocol):
    """Samples of lines, parts of which are held out."""

    def error(self, penalty: Penalty) -> float:
        """Return the mean squared error at held-out samples."""


def line_penalty(folds: Folds, units: tuple[float, ...], settings: SearchSettings) -> Penalty:
    """Return the penalty of the lowest error, by a pattern search (Hooke and Jeeves, 1961)."""
    (low, high), (smooth, rough) = settings.decades, settings.line_ratios
    known: dict[Place, float] = {}

    def penalty(at: Place) -> Penalty:
        total, ratio = 10.0 ** at[0], 10.0 ** at[1]
        return Penalty(roughness=(total * ratio / (1 + ratio), total / (1 + ratio)), units=units)

    def error(at: Place) -> float:
        if at not in known:
            known[at] = folds.error(penalty(at))
        return known[at]

    # There may be a minimum for a rough line without noise, and another for a smooth, noisy line.
    sides = [
        np.linspace(*ends, settings.line_starts)
        for ends in (settings.decades, settings.line_ratios)
    ]
    best = min(itertools.product(*map(np.ndarray.tolist, sides)), key=error)
    for step in settings.line_steps:
        moved = True
        while moved:
            moved = False
            for along in itertools.product((0.0, -step, step), repeat=2):
                at = (best[0] + along[0], best[1] + along[1])
                inside = low <= at[0] <= high and smooth <= at[1] <= rough
                if inside and error(at) < error(best):
                    best, moved = at, True
    return penalty(best)


@record
class LineSmoother:
    """Smooths samples of a line with gaps under one penalty, in windows of any length.

    Attributes
    ----------
    first, second : float
        The weights of the squared first and second differences of neighbouring samples.
    """

    first: float
    second: float

    @classmethod
    def best(cls, planes: Array, missing: Array, settings: SearchSettings) -> LineSmoother:
        """Return the smoother of samples (C, N) of which some are ``missing`` (N,)."""
        N = len(missing)
        rule = RowRule.choose(*grid_of(hat_axis, [(0.0, N - 1.0)], [N]), "exact")
        points = np.flatnonzero(~missing)[:, None].astype(np.float64)
        folds = LineFolds(rule, points, planes[:, ~missing], None, settings, 0)
        own = folds.parts[0].equations.differences(line_penalty(folds, (1.0,), settings))
        return cls(own.first, own.second)

    def penalty(
        self, points: int, box: tuple[float, float], nodes: int, units: tuple[float, ...]
    ) -> Penalty:
        """Return the same penalty for hats on ``nodes`` nodes of a box, relative to points."""
        density = points / (nodes - 1)
        square = ((box[1] - box[0]) / (nodes - 1) / units[0]) ** 2
        first, second = self.first * square / density, self.second * square**2 / density
        return Penalty(roughness=(first, second), units=units)

    def __call__(self, stack: Array, gaps: Array) -> Array:
        """Return stacked lines (C, W, n) whose ``gaps`` have the values of the fit to the rest."""
        found, linalg = stack.copy(), scipy_linalg()
        penalty = DifferencePenalty(gaps.shape[1:], (1.0,), self.first, self.second)
        for i, gap in enumerate(gaps):
            band = penalty_band(penalty, 1).copy("F")
            band[0] += ~gap
            known = np.where(gap, 0.0, stack[:, i]).astype(np.float64)
            level = known.sum(axis=1, keepdims=True) / max(1, np.count_nonzero(~gap))
            solved = linalg.solveh_banded(band, np.where(gap, 0.0, known - level).T, lower=True)
            found[:, i, gap] = (solved.T + level)[:, gap]
        return found
