"""Fields that are sums of products of one function per axis: dual form and factored weights.

    f(x) = trend + sum over n of a_n prod over d of phi_dn(x_d)

Values, derivatives, integrals and averages over a box are computed from one row per axis. Therefore
partial dependence and Sobol's indices have closed forms.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem, real_numbers
from kronfield._core.frames import Frame, cell_centres
from kronfield._core.records import record
from kronfield._core.threads import with_one_blas_thread
from kronfield.field.field import Field

# Values are computed from about this many products at a time: 16 MB.
BLOCK = 1 << 21
# The most positions of `on_grid` without axes: a grid of many dimensions is a mere preview.
MOST_POSITIONS = 4096
# The number of positions of a partial dependence, unless they are given: enough for a plot.
POSITIONS = 101
# The number of Gauss-Legendre nodes on either side of a kink, for products with a trend: the
# relative error is below 1e-10 for similarities at least as wide as 0.02 of the box.
NODES = 48


@record
class Sobol:
    """The shares of axes in the variance of a field over its domain (Sobol, 1993).

    Attributes
    ----------
    main : array (D,) or (D, C)
        The share of the variance that is due to each axis alone.
    total : array (D,) or (D, C)
        The share of the variance that is due to each axis, alone or jointly with others.
    variance : float or array (C,)
        The variance of the field, if positions are uniform on the domain.
    """

    main: Array
    total: Array
    variance: Any


class AxisEncoding:
    """The features of each axis, in place of an encoding: there is no grid of features."""

    def __init__(self, embedders: Sequence[Any]) -> None:
        self.embedders = tuple(embedders)

    @property
    def dimensions(self) -> int:
        """The number of axes."""
        return len(self.embedders)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.embedders))})"


class ProductField(Field):
    """A field that is a sum of N products of one function per axis, and a polynomial."""

    # Supplied by subclasses
    # ------------------------------------------------------------------------------------------

    @abstractmethod
    def _coefficients(self) -> Array:
        """Return the factors a (C, N) of the products, float64."""

    @abstractmethod
    def _axis_rows(self, axis: int, x: Array, order: int) -> Array:
        """Return the functions, or derivatives, (M, N) at positions in units of the frame."""

    @abstractmethod
    def _axis_integral(self, axis: int, low: float, high: float) -> Array:
        """Return the integral (N,) of each function."""

    @abstractmethod
    def _axis_products(self, axis: int, low: float, high: float, part: slice) -> Array:
        """Return the integrals (n, N) of the products of the functions in ``part`` with all."""

    def _axis_kinks(self, axis: int) -> Array:
        """Return where each function (N,) is not smooth; only for trends above a constant."""
        raise NotImplementedError

    def _own_values(self, axis: int, x: Array) -> Array:
        """Return function n at position ``x[n]``, (N,); only for trends above a constant."""
        raise NotImplementedError

    # Evaluation
    # ------------------------------------------------------------------------------------------

    def planes_at(self, points: Array) -> Array:
        """Return real planes (C, P) of the values at points (P, D), also outside of the domain."""
        assert self._trend is not None
        units = [f.unit(points[:, i]) for i, f in enumerate(self.frames)]
        return self._at_points(units, (0,) * self.dimensions) + self._trend.at(points)

    def _grid_blocks(
        self, units: list[Array], orders: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array]]:
        pairs = zip(units, orders, strict=True)
        rows = [self._axis_rows(axis, x, n) for axis, (x, n) in enumerate(pairs)]
        shape, a = tuple(len(x) for x in units), self._coefficients()
        C, N = a.shape
        inner = shape[1:-1] if len(shape) > 1 else ()
        last = rows[-1].T if len(shape) > 1 else None  # (N, M_D)
        each = max(1, BLOCK // (C * N))
        for i in range(shape[0]):
            # sums of products of functions; the last axis is a matrix product
            first = a * rows[0][i]  # (C, N)
            if last is None:
                yield slice(i, i + 1), first.sum(axis=1)[:, None]
                continue
            out = np.empty((C, math.prod(inner), shape[-1]))
            for start in range(0, out.shape[1], each):
                part = np.arange(start, min(start + each, out.shape[1]))
                product = np.ones((len(part), N))
                for axis, index in enumerate(np.unravel_index(part, inner) if inner else (), 1):
                    product *= rows[axis][index]
                out[:, part] = (first[:, None] * product) @ last
            yield slice(i, i + 1), out.reshape(C, 1, *shape[1:])

    def _products_at(self, units: Sequence[Array], orders: Sequence[int]) -> Array:
        """Return the products (M, N) at positions in units of the frames."""
        rows = self._axis_rows(0, units[0], orders[0])
        for axis in range(1, len(units)):
            rows *= self._axis_rows(axis, units[axis], orders[axis])
        return rows

    def _at_points(self, units: list[Array], orders: tuple[int, ...]) -> Array:
        a = self._coefficients()
        out = np.empty((len(a), len(units[0])))
        step = max(1, BLOCK // a.shape[1])
        for start in range(0, out.shape[1], step):
            part = slice(start, start + step)
            out[:, part] = a @ self._products_at([x[part] for x in units], orders).T
        return out

    @with_one_blas_thread
    def _contracted(self, rows: list[Array]) -> Array:
        return np.asarray(self._coefficients() @ np.prod(rows, axis=0))

    # Sensitivity
    # ------------------------------------------------------------------------------------------

    def _sides(self) -> list[tuple[float, float]]:
        """Return the ends of the domain in units of the frames."""
        ends = (f.unit(np.array([f.low, f.high])) for f in self.frames)
        return [(float(low), float(high)) for low, high in ends]

    def _means(self) -> list[Array]:
        """Return the mean (N,) of each function over the domain."""
        return [
            self._axis_integral(axis, low, high) / (high - low)
            for axis, (low, high) in enumerate(self._sides())
        ]

    def _axis_of(self, axis: Any) -> int:
        """Return the number of an axis that was given by number or name."""
        names = self.labels.names
        if isinstance(axis, str) and axis in names:
            return list(names).index(axis)
        whole = isinstance(axis, int | np.integer) and not isinstance(axis, bool)
        if not whole or not -self.dimensions <= axis < self.dimensions:
            known = "".join(f", or {name!r}" for name in names if name is not None)
            raise problem(
                "axis",
                repr(axis),
                f"a number from 0 to {self.dimensions - 1}{known}",
                "Axes are the columns of the points.",
            )
        return int(axis) % self.dimensions

    @with_one_blas_thread
    def partial_dependence(
        self, axis: int | str, positions: Any = None, *, over: Any = None
    ) -> tuple[Array, Array]:
        """Return positions on an axis, and the mean of the field over all other axes there.

        Parameters
        ----------
        axis : int or str
            The axis: its number, or its name if it has one.
        positions : array of shape (M,), optional
            The positions on this axis; by default the centres of 101 cells of the domain.
        over : array of shape (P, D), optional
            The mean is over the other coordinates of these points (Friedman, 2001). By default it
            is over the whole domain, in closed form.

        Returns
        -------
        positions, values : array of shape (M,), array of shape (M,) or (M, C)

        Examples
        --------
        >>> import numpy as np
        >>> import kronfield as kf
        >>> points = np.random.default_rng(0).random((200, 5))
        >>> field = kf.fit_points(points, 3 * points[:, 0] + points[:, 1], domain=[(0, 1)] * 5)
        >>> field.partial_dependence(0, [0.0, 1.0])[1].round(2)
        array([0.5, 3.5])
        """
        where = self._axis_of(axis)
        frame = self.frames[where]
        if positions is None:
            x = cell_centres(frame.low, frame.high, POSITIONS)
        else:
            x = self.labels.axes[where].numbers("positions", positions)
        if x.ndim != 1:
            raise problem("positions", describe(x), "shape (M,)", "Pass the positions on one axis.")
        self._place("positions", x, where, "error")
        rows = self._axis_rows(where, frame.unit(x), 0)
        others = [d for d in range(self.dimensions) if d != where]
        if over is None:
            means = self._means()
            product = math.prod((means[d] for d in others), start=np.ones(rows.shape[1]))
            trend = self._mean_trend(where, x)
        else:
            X = self._points(real_numbers("over", over))
            units = [f.unit(X[:, d]) for d, f in enumerate(self.frames)]
            product = np.zeros(rows.shape[1])
            step = max(1, BLOCK // rows.shape[1])
            for start in range(0, len(X), step):
                part = slice(start, start + step)
                some = np.ones((len(X[part]), rows.shape[1]))
                for d in others:
                    some *= self._axis_rows(d, units[d][part], 0)
                product += some.sum(axis=0) / len(X)
            trend = self._mean_trend(where, x, X)
        planes = self._coefficients() @ (rows * product).T + trend
        return x, self._unplanar(planes).astype(self.dtype, copy=False)

    def _mean_trend(self, axis: int, x: Array, points: Array | None = None) -> Array:
        """Return the mean (C, M) of the trend over all axes but one."""
        assert self._trend is not None
        basis, coefficients = self._trend.basis, self._trend.coefficients
        total = np.zeros((len(coefficients), len(x)))
        on = basis.on_axis(axis, x, 0)
        for c, powers in zip(coefficients.T, basis.powers, strict=True):
            rest = [(d, p) for d, p in enumerate(powers) if d != axis and p]
            if points is None:
                factor = math.prod(self._power_mean(d, p) for d, p in rest)
            else:
                columns = [basis.on_axis(d, points[:, d], 0)[p] for d, p in rest]
                factor = float(np.mean(np.prod(columns, axis=0))) if columns else 1.0
            total += c[:, None] * on[powers[axis]] * factor
        return total

    def _power_mean(self, axis: int, power: int) -> float:
        """Return the mean over the domain of a power of the trend's variable on this axis."""
        assert self._trend is not None
        basis, frame = self._trend.basis, self.frames[axis]
        low, high = (
            (end - basis.centre[axis]) / basis.length[axis] for end in (frame.low, frame.high)
        )
        n = power + 1
        return float((high**n - low**n) / (n * (high - low)))

    @with_one_blas_thread
    def sobol(self) -> Sobol:
        """Return the shares of axes in the variance of the field over its domain.

        They are in closed form: the mean of a product of functions of one coordinate each is the
        product of their means (Sobol, 1993). An axis whose total share is near 0 does not matter.

        Examples
        --------
        >>> import numpy as np
        >>> import kronfield as kf
        >>> points = np.random.default_rng(0).random((200, 5))
        >>> field = kf.fit_points(points, 3 * points[:, 0] + points[:, 1], domain=[(0, 1)] * 5)
        >>> field.sobol().main.round(2)
        array([0.9, 0.1, 0. , 0. , 0. ])
        """
        D = self.dimensions
        a, powers = self._with_trend_terms()
        means = []
        for d, mean in enumerate(self._means()):
            extra = [self._power_mean(d, p[d]) for p in powers]
            means.append(np.concatenate([mean, extra]))
        everything = np.prod(means, axis=0)
        level = a @ everything  # (C,)
        total, less, alone = self._mean_squares(a, powers, means)
        variance = np.maximum(total - level**2, 0.0)
        if self.is_complex:  # the parts of a complex value add up
            total, level2 = (x.reshape(-1, 2).sum(axis=-1) for x in (total, level**2))
            less, alone = (x.reshape(D, -1, 2).sum(axis=-1) for x in (less, alone))
            variance = np.maximum(total - level2, 0.0)
        else:
            level2 = level**2
        share = np.where(variance > 1e-12 * np.maximum(level2, 1e-300), variance, np.inf)
        main = np.clip((alone - level2) / share, 0.0, 1.0)
        whole = np.clip((variance - (less - level2)) / share, 0.0, 1.0)
        if not self.has_channels:
            return Sobol(main[:, 0], whole[:, 0], float(variance[0]))
        return Sobol(main, whole, variance)

    def _with_trend_terms(self) -> tuple[Array, list[tuple[int, ...]]]:
        """Return the factors (C, N + T) of all products, and the T powers of the trend last.

        The constant is left out: it has no variance.
        """
        a = self._coefficients()
        if self._trend is None:
            return a, []
        every = self._trend.basis.powers
        kept = [i for i, p in enumerate(every) if any(p)]
        if kept:
            a = np.concatenate([a, self._trend.coefficients[:, kept]], axis=1)
        return a, [every[i] for i in kept]

    def _mean_squares(
        self, a: Array, powers: Sequence[tuple[int, ...]], means: Sequence[Array]
    ) -> tuple[Array, Array, Array]:
        """Return the mean squares of the field (C,) and of its means over some axes (D, C), (D, C).

        The first (D, C) is for means over axis d alone, the second for means over all other axes.
        """
        D, N, sides = self.dimensions, a.shape[1] - len(powers), self._sides()
        crossed = [self._crossed(d, powers) for d in range(D)] if powers else None
        # sums over n, m of a_n a_m times products over axes of means of phi_n phi_m; less[d] has
        # the product of means instead on axis d, alone[d] on all others
        C = len(a)
        total, less, alone = np.zeros(C), np.zeros((D, C)), np.zeros((D, C))
        without = [np.prod([m for e, m in enumerate(means) if e != d], axis=0) for d in range(D)]
        step = max(1, BLOCK // max(1, a.shape[1] * D))
        for start in range(0, a.shape[1], step):
            rows = np.arange(start, min(start + step, a.shape[1]))
            grams = [self._gram(d, sides[d], rows, N, powers, crossed) for d in range(D)]
            after = [np.ones_like(grams[0])]
            for gram in reversed(grams[1:]):
                after.append(after[-1] * gram)
            before = np.ones_like(grams[0])
            for d in range(D):
                rest = before * after[D - 1 - d]
                less[d] += _quadratic(a, rows, rest * np.outer(means[d][rows], means[d]))
                alone[d] += _quadratic(a * without[d], rows, grams[d])
                if d == D - 1:
                    total += _quadratic(a, rows, rest * grams[d])
                before = before * grams[d]
        return total, less, alone

    def _gram(
        self,
        axis: int,
        side: tuple[float, float],
        rows: Array,
        N: int,
        powers: Sequence[tuple[int, ...]],
        crossed: list[Array] | None,
    ) -> Array:
        """Return the means (n, N + T) of products of functions ``rows`` with all, on one axis."""
        low, high = side
        functions = rows[rows < N]
        out = np.empty((len(rows), N + len(powers)))
        if len(functions):
            part = slice(int(functions[0]), int(functions[-1]) + 1)
            out[: len(functions), :N] = self._axis_products(axis, low, high, part) / (high - low)
        if crossed is not None:
            out[: len(functions), N:] = crossed[axis][functions]
            for i, row in enumerate(rows[len(functions) :], len(functions)):
                own = powers[int(row) - N][axis]
                out[i, :N] = crossed[axis][:, int(row) - N]
                out[i, N:] = [self._power_mean(axis, own + p[axis]) for p in powers]
        return out

    def _crossed(self, axis: int, powers: Sequence[tuple[int, ...]]) -> Array:
        """Return the means (N, T) of products of functions and powers of the trend.

        They are computed by Gauss-Legendre quadrature on either side of `_axis_kinks`.
        """
        assert self._trend is not None
        frame, (low, high) = self.frames[axis], self._sides()[axis]
        x, w = np.polynomial.legendre.leggauss(NODES)
        middle = np.clip(self._axis_kinks(axis), low, high)
        ends = np.full_like(middle, low), middle, np.full_like(middle, high)
        found = np.zeros((len(middle), len(powers)))
        for start, stop in itertools.pairwise(ends):
            half = (stop - start) / 2
            for node, weight in zip(x, w, strict=True):
                at = start + half * (1 + node)
                values = self._own_values(axis, at)
                columns = self._trend.basis.on_axis(axis, frame.origin + at * frame.length, 0)
                for t, p in enumerate(powers):
                    found[:, t] += weight * half * values * columns[p[axis]]
        return found / (high - low)


def even_positions(frames: Sequence[Frame]) -> list[Array]:
    """Return evenly spaced positions on each axis, for a grid of at most `MOST_POSITIONS`."""
    count = max(1, math.floor(MOST_POSITIONS ** (1 / len(frames)) + 1e-9))
    return [cell_centres(f.low, f.high, count) for f in frames]


def _quadratic(a: Array, rows: Array, matrix: Array) -> Array:
    """Return the sums (C,) over n in ``rows`` and all m of a_n matrix_nm a_m."""
    return np.asarray(np.sum(a[:, rows] * (a @ matrix.T), axis=1))
