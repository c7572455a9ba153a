"""Alternating least squares for a sum of products of one function per axis.

    f(x) = sum over d of m_d(x_d) + sum over r of prod over d of g_rd(x_d)

Each function is a spline. With the functions of all other axes fixed, f is linear in m_d and all
g_rd of one axis: a system of K (R + 1) unknowns. A sweep solves it for one axis after the other
(Carroll and Chang, 1970; Beylkin, Garcke and Mohlenkamp, 2009). The penalty applies to g_rd times
the root mean square of the product of the other factors. It does not change if one factor is
multiplied by a number and another is divided by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.embedders import BSpline
from kronfield.solvers.factored.axes import Rows, bend

# A ridge relative to the mean of the diagonal. It makes the system definite: a constant can move
# from one main effect to another without changing the sum.
RIDGE = 1e-9


@record(eq=False)
class Factors:
    """The weights of all functions: an array (K_d, 1 + R) per axis, the main effect first."""

    weights: tuple[Array, ...]

    @property
    def rank(self) -> int:
        """The number R of products."""
        return int(self.weights[0].shape[1]) - 1

    @classmethod
    def zeros(cls, embedders: Sequence[BSpline]) -> Factors:
        """Return main effects of zero, and no products."""
        return cls(tuple(np.zeros((emb.size, 1)) for emb in embedders))

    def with_product(self, new: Sequence[Array]) -> Factors:
        """Return the factors with one more product, whose functions have weights (K_d,)."""
        pairs = zip(self.weights, new, strict=True)
        return Factors(tuple(np.column_stack([W, w]) for W, w in pairs))


class Sweeper:
    """Alternating least squares at given points.

    Parameters
    ----------
    rows : Rows
        The features at the points.
    values : array (P,)
        The values.
    weights : array (P,), optional
        The weights of the points.
    free : sequence of bool, optional
        Whether the functions of each axis are fitted; those of other axes keep their weights.
    slopes : float
        The weight of squared slopes in the penalty: see `bend`.
    """

    def __init__(
        self,
        rows: Rows,
        values: Array,
        weights: Array | None = None,
        free: Sequence[bool] | None = None,
        *,
        slopes: float,
    ) -> None:
        self.rows = rows
        self.values = np.asarray(values, dtype=rows.dtype)
        self.weights = None if weights is None else np.asarray(weights, dtype=rows.dtype)
        self.bends = [bend(emb, slopes) for emb in rows.embedders]
        self.axes = [d for d in range(len(rows.embedders)) if free is None or free[d]]
        self.functions: list[Array] = []

    @property
    def memory(self) -> int:
        """The bytes of the features and of the functions at the points."""
        return self.rows.memory + sum(F.nbytes for F in self.functions)

    def start(self, factors: Factors) -> None:
        """Evaluate the functions of all axes at the points."""
        self.functions = [self.rows.times(d, W) for d, W in enumerate(factors.weights)]

    def fitted(self) -> Array:
        """Return the sum at the points."""
        total = np.zeros(self.rows.count, dtype=self.rows.dtype)
        for part in self.rows.parts:
            product = self.functions[0][part, 1:].copy()
            main = self.functions[0][part, 0].copy()
            for F in self.functions[1:]:
                product *= F[part, 1:]
                main += F[part, 0]
            total[part] = main + product.sum(axis=1)
        return total

    def loss(self) -> float:
        """Return the weighted sum of squared residuals."""
        squares = (self.values - self.fitted()).astype(np.float64) ** 2
        return float(squares.sum() if self.weights is None else squares @ self.weights)

    def sweep(self, factors: Factors, penalty: float) -> Factors:
        """Return the factors after one least-squares solve per axis, in turn."""
        weights = list(factors.weights)
        for d in self.axes:
            weights[d] = self._solve(d, penalty)
            self.functions[d] = self.rows.times(d, weights[d])
            self._normalise(d, weights)
        return Factors(tuple(weights))

    def sweeps(
        self, factors: Factors, penalty: float, most: int, tolerance: float = 1e-4
    ) -> Factors:
        """Return the factors after at most ``most`` sweeps.

        They stop once a sweep lowers the loss by no more than the fraction ``tolerance``.
        """
        self.start(factors)
        before = self.loss()
        for _ in range(most):
            factors = self.sweep(factors, penalty)
            loss = self.loss()
            if before - loss <= tolerance * before:
                break
            before = loss
        return factors

    def _others(self, axis: int) -> Iterator[Array]:
        """Yield the products of the functions of all other axes, by part; 1 for main effects."""
        for part in self.rows.parts:
            G = np.ones((part.stop - part.start, self.functions[0].shape[1]), self.rows.dtype)
            for e, F in enumerate(self.functions):
                if e != axis:
                    G[:, 1:] *= F[part, 1:]
            yield G

    def _solve(self, axis: int, penalty: float) -> Array:
        """Return the weights (K, 1 + R) of one axis, given those of the others."""
        K, T = self.bends[axis].shape[0], self.functions[0].shape[1]
        target = self.values.copy()
        for e, F in enumerate(self.functions):
            if e != axis:
                target -= F[:, 0]
        gram, right = self.rows.normal(axis, self._others(axis), target, self.weights)
        # the mean square of the other factors, from a sum over features: splines sum to 1
        blocks = gram.reshape(K, T, K, T)
        sizes = np.einsum("itjt->t", blocks) / self._total
        scales = 1.0 / np.sqrt(np.maximum(sizes, 1e-30))
        scale = np.tile(scales, K)
        gram *= scale[:, None]
        gram *= scale
        gram += penalty * np.kron(self.bends[axis], np.eye(T))
        gram[np.diag_indices(K * T)] += RIDGE * self._total / K
        solved = scipy_linalg().solve(gram, right * scale, assume_a="pos", check_finite=False)
        return np.asarray((solved * scale).reshape(K, T))

    @property
    def _total(self) -> float:
        return float(self.rows.count if self.weights is None else self.weights.sum())

    def _normalise(self, axis: int, weights: list[Array]) -> None:
        """Scale the factors of the axis to root mean square 1, so that none grows without bound."""
        F = self.functions[axis]
        size = np.sqrt(np.mean(F[:, 1:].astype(np.float64) ** 2, axis=0))
        size = np.where(size > 1e-12, size, 1.0)
        if axis == self.axes[-1] or not len(size):
            return  # the factor of the last axis carries the scale of the product
        weights[axis] = weights[axis] / np.concatenate([[1.0], size])
        F[:, 1:] /= size.astype(F.dtype)


def bins_of(points: Array, count: int) -> Array:
    """Return the bin (P, D) of each position: one of ``count``, with about as many points each."""
    found = np.empty(points.shape, dtype=np.int64)
    for d, x in enumerate(points.T):
        edges = np.unique(np.quantile(x, np.arange(1, count) / count))
        found[:, d] = np.searchsorted(edges, x, side="right")
    return found


def new_product(
    embedders: Sequence[BSpline],
    points: Array,
    bins: Array,
    residual: Array,
    axes: Sequence[int],
    skip: int = 0,
) -> list[Array] | None:
    """Return the functions (K_d,) of a product of two axes that explains much of the residual.

    For each pair of axes, the means of the residual in pairs of bins are a matrix. The pair
    whose matrix explains the most variance is selected, after ``skip`` better pairs have been
    passed over (interaction detection; Lou et al., 2013). The leading singular vectors of its
    matrix are step functions on the two axes.
    """
    found: list[tuple[float, int, int, Array, Array]] = []
    n = 1 + int(bins.max(initial=0))
    for i, d in enumerate(axes):
        for e in axes[i + 1 :]:
            cell = bins[:, d] * n + bins[:, e]
            count = np.bincount(cell, minlength=n * n).reshape(n, n)
            total = np.bincount(cell, weights=residual, minlength=n * n).reshape(n, n)
            # means times the root of the number of points: their squares are explained variance
            table = total / np.sqrt(np.maximum(count, 1))
            found.append((float(np.sum(table**2)), d, e, table, count))
    found.sort(key=lambda one: -one[0])
    if skip >= len(found):
        return None
    _, d, e, table, count = found[skip]
    root = np.sqrt(np.maximum(count, 1))
    u, s, vt = np.linalg.svd(table / root * math.sqrt(float(count.mean())))
    if not s[0] > 0:
        return None
    new = [np.ones(emb.size) for emb in embedders]
    for axis, vector in ((d, u[:, 0]), (e, vt[0] * s[0])):
        # the vector at the mean position of each bin, at the centres of the splines
        at = [float(points[bins[:, axis] == b, axis].mean()) for b in np.unique(bins[:, axis])]
        kept = vector[np.unique(bins[:, axis])]
        new[axis] = np.interp(embedders[axis].centres, at, kept)
    return new


def values_at(embedders: Sequence[BSpline], factors: Factors, points: Array) -> Array:
    """Return the sum (P,) at points (P, D), in float64."""
    product = np.ones((len(points), factors.rank))
    main = np.zeros(len(points))
    for d, (emb, W) in enumerate(zip(embedders, factors.weights, strict=True)):
        F = emb(points[:, d]) @ W
        product *= F[:, 1:]
        main += F[:, 0]
    return np.asarray(main + product.sum(axis=1))
