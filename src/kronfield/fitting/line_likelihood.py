"""The penalty of values on a line by restricted likelihood.

A penalty on the slopes and on the second derivatives of a line is a random process: a random walk,
an integrated one, or one between them. Values are y = f + noise of variance sigma^2 / w, and f has
the precision P / sigma^2, which leaves a constant alone. With A = B'WB + P, the constant and sigma
are eliminated (Patterson and Thompson, 1971): for n values of C channels,

    -2 log L = C (log|A| - log|P|+) + (n - 1) sum over c of log(|y_c - B x_c|^2_W + x_c'P x_c).

P = D'(first + second E'E) D with the first differences D, and E those of what D returns: the
product |P|+ of its nonzero eigenvalues is that of the matrix in the middle, up to a constant. All
matrices are bands, so that a penalty takes time in proportion to the unknowns, and every value
counts: held-out points tell much less of a penalty than the likelihood of all.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import scipy_linalg
from kronfield.fitting.point_grids import grid_of, hat_axis
from kronfield.fitting.settings import SearchSettings
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.direct import penalty_band
from kronfield.solvers.points.normal import NormalEquations, Penalty
from kronfield.solvers.points.penalty import DifferencePenalty, differences
from kronfield.solvers.points.rows import sparse_rows

# The steps of the search: of the decade of the penalty and of its ratio, each a power of ten.
STEPS = (1.0, 0.5, 0.25)
# The number of decades and of ratios that are tried first.
COARSE = 6
# Sums of squares below this part of those of the values are rounding.
ROUNDING = 1e-26

# The decades of the penalty and of the ratio of first to second derivatives.
Place = tuple[float, float]


@dataclass(frozen=True, eq=False)
class LineLikelihood:
    """The restricted likelihood of values at points on a line, under penalties of derivatives.

    Attributes
    ----------
    equations : NormalEquations
        B'WB and B'Wy, of values without their mean.
    rows : sparse matrix (P, K)
        B.
    values : array (C, P)
        The values without their mean.
    weights : array (P,) or None
        The weights of the points.
    """

    equations: NormalEquations
    rows: Any
    values: Array
    weights: Array | None

    @classmethod
    def of(
        cls, rule: RowRule, points: Array, values: Array, weights: Array | None
    ) -> LineLikelihood:
        """Return the likelihood of values (C, P) at points (P, 1), without constant channels."""
        wide = values.astype(np.float64)
        wide = wide - np.average(wide, axis=1, weights=weights)[:, None]
        wide = np.ascontiguousarray(wide[np.ptp(wide, axis=1) > 0])
        equations = assemble(rule, points, wide, weights)
        rows = sparse_rows(rule.runs(points), rule.shape, np.float64)
        return cls(equations, rows, wide, weights)

    def __call__(self, penalty: Penalty) -> float:
        """Return -log L; infinite if the matrix is singular to rounding."""
        linalg = scipy_linalg()
        data, own = self.equations.data_band, self.equations.differences(penalty)
        first, second = own.first / own.spacings[0] ** 2, own.second / own.spacings[0] ** 4
        band = penalty_band(own, len(data)).copy("F")
        band[: len(data)] += data
        middle = np.zeros((2, own.shape[0] - 1))
        middle[0] = first
        middle[0, 1:] += second
        middle[0, :-1] += second
        middle[1, :-1] = -second
        try:
            factor = linalg.cholesky_banded(band, lower=True, overwrite_ab=True, check_finite=False)
            inner = linalg.cholesky_banded(middle, lower=True, overwrite_ab=True)
        except np.linalg.LinAlgError:
            return math.inf
        x = linalg.cho_solve_banded(
            (factor, True), self.equations.rhs.reshape(len(self.values), -1).T, check_finite=False
        )
        away = (self.values.T - self.rows @ x) ** 2
        if self.weights is not None:
            away *= self.weights[:, None]
        rough = first * np.sum(differences(x.T, (1,)) ** 2, axis=1)
        rough += second * np.sum(differences(x.T, (2,)) ** 2, axis=1)
        energies = np.maximum(away.sum(axis=0) + rough, ROUNDING * self.equations.energy)
        C, n = self.values.shape
        volume = 2.0 * float(np.sum(np.log(factor[0])) - np.sum(np.log(inner[0])))
        return 0.5 * (C * volume + (n - 1) * float(np.sum(np.log(energies))))


def likeliest_penalty(
    likelihood: LineLikelihood, units: tuple[float, ...], settings: SearchSettings
) -> Penalty:
    """Return the likeliest penalty, by a pattern search (Hooke and Jeeves, 1961)."""
    (low, high), (smooth, rough) = settings.decades, settings.line_ratios
    known: dict[Place, float] = {}

    def penalty(at: Place) -> Penalty:
        total, ratio = 10.0 ** at[0], 10.0 ** at[1]
        return Penalty(roughness=(total * ratio / (1 + ratio), total / (1 + ratio)), units=units)

    def height(at: Place) -> float:
        if at not in known:
            known[at] = likelihood(penalty(at))
        return known[at]

    # The likelihood may have a maximum for a rough line without noise and one for a smooth line.
    sides = [np.linspace(*ends, COARSE) for ends in (settings.decades, settings.line_ratios)]
    best = min(itertools.product(*map(np.ndarray.tolist, sides)), key=height)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for along in itertools.product((0.0, -step, step), repeat=2):
                at = (best[0] + along[0], best[1] + along[1])
                inside = low <= at[0] <= high and smooth <= at[1] <= rough
                if inside and height(at) < height(best):
                    best, moved = at, True
    return penalty(best)


@dataclass(frozen=True)
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
    def likeliest(cls, planes: Array, missing: Array, settings: SearchSettings) -> LineSmoother:
        """Return the smoother of samples (C, N) of which some are ``missing`` (N,)."""
        N = len(missing)
        rule = RowRule.choose(*grid_of(hat_axis, [(0.0, N - 1.0)], [N]), "exact")
        points = np.flatnonzero(~missing)[:, None].astype(np.float64)
        line = LineLikelihood.of(rule, points, planes[:, ~missing], None)
        own = line.equations.differences(likeliest_penalty(line, (1.0,), settings))
        return cls(own.first, own.second)

    def __call__(self, stack: Array, gaps: Array) -> Array:
        """Return stacked lines (C, W, n) with the values of the fit to the others in ``gaps``."""
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
