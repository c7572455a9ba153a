"""How far a fit to points may be off: the spread of fits that the data and the penalty leave possible.

With noise of variance sigma^2 per unit weight and the penalty as prior, weights are spread around
the fit with covariance sigma^2 A^-1, A = B'WB + penalty. Small systems are inverted; for large ones
random fits with that covariance are drawn, by solving A x = B'W^(1/2) e + penalty^(1/2) e' for
normal noise e and e'.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.threads import with_one_blas_thread
from kronfield.field.evaluation import at_points
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.normal import NormalEquations, Penalty, Solution
from kronfield.solvers.points.rows import sparse_rows

# Up to this many unknowns the covariance is computed exactly.
EXACT_UP_TO = 2048
# The tolerance to which random fits are solved.
TOLERANCE = 3e-3
# Query points whose exact variance is computed at a time.
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The covariance of a fit, in the two ways that are affordable.

    Attributes
    ----------
    equations, penalty
        The system that was solved.
    rule, points, weights
        The rows that went into it.
    solution, scale
        What came out, of values divided by ``scale``.
    limit : int
        The most iterations of a solve.
    free : array or None
        Weights (K_1, ..., K_D) of a function, a constant, that a ridge leaves alone.
    weight_exponent : int
        The weights given are ``weights`` times 2 to this.
    """

    equations: NormalEquations
    penalty: Penalty
    rule: RowRule
    points: Array
    weights: Array | None
    solution: Solution
    scale: float
    limit: int
    free: Array | None = None
    weight_exponent: int = 0
    known: dict[tuple[int, int], Solution] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether there are few enough unknowns to invert the matrix."""
        return (
            self.equations.nodes is None and math.prod(self.equations.encoding.shape) <= EXACT_UP_TO
        )

    @functools.cached_property
    def _inverse(self) -> Array:
        n = math.prod(self.equations.encoding.shape)
        unit = np.eye(n).reshape(n, *self.equations.encoding.shape)
        data = self.equations.term.apply(unit)
        matrix = (data + self.equations.differences(self.penalty).apply(unit)).reshape(n, n)
        if self.free is not None:
            # the least over c of ridge |W - c u|^2 is ridge W'(1 - uu'/u'u) W
            direction = self.free.ravel() / np.linalg.norm(self.free)
            matrix -= self.penalty.ridge * np.outer(direction, direction)
        return np.linalg.pinv((matrix + matrix.T) / 2, hermitian=True, rcond=1e-13)

    @functools.cached_property
    @with_one_blas_thread
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix."""
        if self.exact:
            n = len(self._inverse)
            data = self.equations.term.apply(
                np.eye(n).reshape(n, *self.equations.encoding.shape)
            ).reshape(n, n)
            return float(np.sum(self._inverse * data))
        return self.equations.degrees_of_freedom(self.penalty, self.limit)

    @property
    def noise(self) -> Array:
        """The standard deviation of the noise at unit weight, per channel: residuals over what freedom was left."""
        left = self.equations.count - self.degrees_of_freedom
        if left < 0.01 * self.equations.count or left < 1:
            raise problem(
                "standard_error", f"{self.degrees_of_freedom:.0f} degrees of freedom for {self.equations.count} points",
                "a fit that leaves residuals, from which to tell the noise",
                "Pass noise=, the standard deviation of the values, or use more roughness.",
            )  # fmt: skip
        energy = self.equations.residual_energy(self.solution, self.penalty)
        return np.asarray(self.scale * np.sqrt(energy / left) * 2.0 ** (self.weight_exponent / 2))

    def _draws(self, count: int, seed: int) -> Solution:
        """Return ``count`` random tensors of weights, (count, K_1, ..., K_D), of covariance A^-1."""
        if (count, seed) not in self.known:
            rng = np.random.default_rng(seed)
            rows = sparse_rows(self.rule.runs(self.points), self.rule.shape, np.float64)
            noise = rng.standard_normal((count, len(self.points)))
            if self.weights is not None:
                noise *= np.sqrt(self.weights)
            data = np.stack([(rows.T @ one).reshape(self.rule.shape) for one in noise])
            prior = self.equations.sample_penalty(self.penalty, rng, count)
            self.known.clear()
            self.known[count, seed] = self.equations.solve(
                self.penalty, tolerance=TOLERANCE, limit=self.limit, rhs=data, prior=prior
            )
        return self.known[count, seed]

    def freedom(self) -> float:
        """Return the degrees of freedom, for a report to ask for."""
        return self.degrees_of_freedom

    def without_samples(self) -> NeedsSamples:
        """Return what a pickled field keeps of this."""
        return NeedsSamples(
            "standard_error",
            "the field that fit_points returned",
            "Ask it before it is pickled, or fit the points again.",
        )

    def relative(self, points: Array, samples: int, seed: int) -> Array:
        """Return the standard error at ``points`` (P, D) for noise of unit standard deviation, (P,)."""
        return self._relative(points, samples, seed) * 2.0 ** (-self.weight_exponent / 2)

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
