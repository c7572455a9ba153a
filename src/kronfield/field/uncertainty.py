"""Standard errors of a fit to points, with the penalty as a Bayesian prior (Wahba, 1983).

Let the noise have variance sigma^2 at unit weight, and let the penalty be the prior. The posterior
of the weights is centred on the fit and has covariance sigma^2 A^-1, with A = B'WB + penalty. Small
matrices are inverted. For large systems random fits with covariance A^-1 are drawn, by solving
A x = B'W^(1/2) e + penalty^(1/2) e' for standard normal noise e and e'.
"""

from __future__ import annotations

import functools
import math
from dataclasses import field
from typing import Protocol

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg, with_one_blas_thread
from kronfield.field.evaluation import at_points
from kronfield.field.trend import TrendBasis
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.normal import PROBES, NormalEquations, Penalty, Solution
from kronfield.solvers.points.rows import sparse_rows
from kronfield.solvers.points.trend import TrendTerm

# The tolerance of random fits is this fraction of the relative error 1 / sqrt(2 count) of a
# standard deviation that is estimated from ``count`` fits.
PART_OF_ERROR = 0.3
# Random probes for degrees of freedom are added until their relative standard error is below
# FREEDOM_ERROR, or there are MOST_PROBES of them.
FREEDOM_ERROR, MOST_PROBES = 0.02, 16
# Exact variances are computed for this many points at a time, to bound the memory.
BLOCK = 4096
# Eigenvalues below this fraction of the largest are rounding. A Cholesky factorisation is trusted
# if its pivots are well above that: the least eigenvalue may be smaller than any pivot.
SINGULAR, REGULAR = 1e-13, 1e-9


class RobustNoise(Protocol):
    """The noise of a robust fit."""

    @property
    def scale(self) -> Array:
        """The robust standard deviation at unit weight, (C,)."""

    def level(self, count: int, freedom: float) -> Array:
        """Return the factor (C,) of sqrt(b A^-1 b') in the standard error."""


@record(eq=False)
class Uncertainty:
    """The covariance of a fit: exact for small systems, from random fits for large systems.

    Attributes
    ----------
    equations, penalty
        The system that was solved.
    rule, points, weights
        The rule for rows, and the points and weights that gave the rows of the system.
    solution, scale
        The solution for the values divided by ``scale``.
    limit : int
        The most iterations of a solve.
    exact_up_to : int
        The most unknowns for which the matrix is inverted; beyond, random fits estimate the same.
    interpolating : float
        A fit interpolates if the residuals have less than this fraction of the degrees of freedom.
    free : array or None
        Weights (K_1, ..., K_D) of a constant function, which the ridge does not penalise.
    weight_exponent : int
        The weights that the user gave are ``weights`` times 2 to this power.
    robust : RobustNoise or None
        The noise of a fit with Huber's loss. ``weights`` are then those of its expected curvature.
    trend : (TrendBasis, TrendTerm) or None
        The polynomial that is not penalised, and its covariance.
    known : dict
        The random fits of the last (count, seed).
    known_probes : list of int
        How many random probes estimated the degrees of freedom.
    """

    equations: NormalEquations
    penalty: Penalty
    rule: RowRule
    points: Array
    weights: Array | None
    solution: Solution
    scale: float
    limit: int
    exact_up_to: int
    interpolating: float
    free: Array | None = None
    weight_exponent: int = 0
    robust: RobustNoise | None = None
    trend: tuple[TrendBasis, TrendTerm] | None = None
    known: dict[tuple[int, int], Solution] = field(default_factory=dict)
    known_probes: list[int] = field(default_factory=list)

    def deviations(self, points: Array, noise: float | None, samples: int, seed: int) -> Array:
        """Return the standard errors (P, C) at points (P, D), by default for estimated noise."""
        relative = self.relative(points, samples, seed)
        level = np.full(len(self.solution.weights), noise) if noise is not None else self.noise
        if noise is not None and self.robust is not None:
            level = level * self.noise / self.robust.scale
        return relative[:, None] * level

    @property
    def exact(self) -> bool:
        """Whether there are few enough unknowns to invert the matrix."""
        shape = self.equations.encoding.shape
        return self.equations.nodes is None and math.prod(shape) <= self.exact_up_to

    @functools.cached_property
    def _inverse(self) -> Array:
        n = math.prod(self.equations.encoding.shape)
        unit = np.eye(n).reshape(n, *self.equations.encoding.shape)
        data = self.equations.term.apply(unit)
        matrix = (data + self.equations.differences(self.penalty).apply(unit)).reshape(n, n)
        if self.free is not None:
            # the minimum over c of ridge |W - c u|^2 is ridge W'(1 - uu'/u'u) W
            direction = self.free.ravel() / np.linalg.norm(self.free)
            matrix -= self.penalty.ridge * np.outer(direction, direction)
        return _inverse((matrix + matrix.T) / 2)

    @functools.cached_property
    @with_one_blas_thread
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix."""
        freedom = self._features_freedom()
        if self.trend is not None:  # the sum over points of w times the variance of the trend
            own = self._trend_variance(self.points)
            freedom += float(np.sum(own if self.weights is None else own * self.weights))
        return freedom

    def _features_freedom(self) -> float:
        if self.exact:
            n = len(self._inverse)
            data = self.equations.term.apply(
                np.eye(n).reshape(n, *self.equations.encoding.shape)
            ).reshape(n, n)
            return float(np.sum(self._inverse * data))
        if self.equations.iterates:
            return self._estimated_freedom
        return self.equations.degrees_of_freedom(self.penalty, self.limit)

    @functools.cached_property
    def _estimated_freedom(self) -> float:
        """The trace of W^(1/2) B A^-1 B' W^(1/2), from random signs u at the points.

        It is the mean of b'A^-1 b over b = B'W^(1/2) u (Hutchinson, 1990). Its variance is at most
        2 f (1 - f / n) over the number of probes, for f degrees of freedom of n points.
        """
        rng = np.random.default_rng(0)
        rows = sparse_rows(self.rule.runs(self.points), self.rule.shape, np.float64)
        found = list[float]()
        while True:
            signs = rng.choice([-1.0, 1.0], size=len(self.points))
            if self.weights is not None:
                signs *= np.sqrt(self.weights)
            data = (rows.T @ signs).reshape(1, *self.rule.shape)
            found.append(float(self.equations.inverse_energy(data, self.penalty)[0]))
            mean = float(np.mean(found))
            enough = self._freedom_error(mean, len(found)) <= FREEDOM_ERROR * mean
            if enough or len(found) == MOST_PROBES:
                self.known_probes.append(len(found))
                return mean

    def _freedom_error(self, freedom: float, probes: int) -> float:
        left = max(1 - freedom / self.equations.count, 0.0)
        return math.sqrt(2 * max(freedom, 0.0) * left / probes)

    @property
    def freedom_error(self) -> float:
        """A bound of the standard error of the degrees of freedom; 0 if they are exact."""
        freedom = self.degrees_of_freedom
        if self.exact:
            return 0.0
        probes = self.known_probes[-1] if self.known_probes else PROBES
        return self._freedom_error(freedom, probes)

    @property
    def noise(self) -> Array:
        """The standard deviation of the noise at unit weight, (C,), from the residuals."""
        count, freedom = self.equations.count, self.degrees_of_freedom
        left = count - freedom
        resolved = left >= max(self.interpolating * count, 3 * self.freedom_error, 1.0)
        if self.robust is not None and resolved:
            return self.robust.level(count, freedom)
        energy = self.equations.residual_energy(self.solution, self.penalty)
        if not resolved:
            # The fit interpolates, so that residuals do not show the noise. The roughness of the
            # fit does: sigma^2 = (|y - Bx|^2 + x'Px) / (n - q) maximises the likelihood.
            energy = energy + self.equations.penalty_energy(self.solution, self.penalty)
            left = count - self._free_columns
            if left < 1 or not np.all(energy > 0) or self.robust is not None:
                raise problem(
                    "standard_error",
                    f"{freedom:.0f} degrees of freedom for {count} points",
                    "a fit whose residuals or roughness show how large errors are",
                    "Pass noise=, the standard deviation of the values, or use more points.",
                )
        return np.asarray(self.scale * np.sqrt(energy / left) * 2.0 ** (self.weight_exponent / 2))

    @property
    def _free_columns(self) -> int:
        """The number q of polynomials that are not penalised."""
        D = len(self.equations.encoding.shape)
        if self.trend is not None:
            return len(self.trend[0].powers)
        if self.penalty.ridge:
            return int(self.free is not None)
        return 1 if self.penalty.roughness[0] else D + 1

    def _draws(self, count: int, seed: int) -> Solution:
        """Return ``count`` random weights (count, K_1, ..., K_D) with covariance A^-1."""
        if (count, seed) not in self.known:
            rng = np.random.default_rng(seed)
            rows = sparse_rows(self.rule.runs(self.points), self.rule.shape, np.float64)
            noise = rng.standard_normal((count, len(self.points)))
            if self.weights is not None:
                noise *= np.sqrt(self.weights)
            data = np.stack([(rows.T @ draw).reshape(self.rule.shape) for draw in noise])
            prior = self.equations.sample_penalty(self.penalty, rng, count)
            self.known.clear()
            self.known[count, seed] = self.equations.solve(
                self.penalty,
                tolerance=PART_OF_ERROR / math.sqrt(2 * count),
                limit=self.limit,
                rhs=data,
                prior=prior,
            )
        return self.known[count, seed]

    def freedom(self) -> tuple[float, float]:
        """Return the degrees of freedom and their standard error, for reports."""
        return self.degrees_of_freedom, self.freedom_error

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples(
            "standard_error",
            "the field that fit_points returned",
            "Ask it before it is pickled, or fit the points again.",
        )

    def relative(self, points: Array, samples: int, seed: int) -> Array:
        """Return the standard error (P,) at ``points`` (P, D) for noise of standard deviation 1."""
        found = self._relative(points, samples, seed)
        if self.trend is not None:
            found = np.sqrt(found**2 + self._trend_variance(points))
        return found * 2.0 ** (-self.weight_exponent / 2)

    def _trend_variance(self, points: Array) -> Array:
        """Return the variance (P,) at unit noise that the coefficients of the trend add.

        It is g S^-1 g' for g = t - b X, the part of the columns t that features do not follow.
        """
        assert self.trend is not None
        basis, term = self.trend
        units = [frame.unit(points[:, i]) for i, frame in enumerate(self.equations.frames)]
        left = basis.columns(points) - at_points(
            self.equations.encoding, term.followers, units, [0] * len(units)
        ).astype(np.float64)
        return np.einsum("tp,ts,sp->p", left, term.inverse, left)

    def _relative(self, points: Array, samples: int, seed: int) -> Array:
        if self.exact:
            result = np.empty(len(points))
            for start in range(0, len(points), BLOCK):
                part = slice(start, start + BLOCK)
                rows = sparse_rows(self.rule.runs(points[part]), self.rule.shape, np.float64)
                variance = np.sum(rows.multiply(rows @ self._inverse), axis=1)
                result[part] = np.sqrt(np.maximum(np.asarray(variance).ravel(), 0.0))
            return result
        draws = self._draws(samples, seed).weights
        units = [frame.unit(points[:, i]) for i, frame in enumerate(self.equations.frames)]
        values = at_points(self.equations.encoding, draws, units, [0] * len(units)).astype(
            np.float64
        )
        return np.sqrt(np.mean(values**2, axis=0))


def _inverse(matrix: Array) -> Array:
    """Return the inverse of a symmetric matrix; the pseudo-inverse if it is nearly singular."""
    linalg = scipy_linalg()
    factor, failed = linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    pivots = np.diagonal(factor) ** 2
    if failed or not pivots.min() > REGULAR * pivots.max():
        return np.linalg.pinv(matrix, hermitian=True, rcond=SINGULAR)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return np.asarray(inverse + np.tril(inverse, -1).T)
