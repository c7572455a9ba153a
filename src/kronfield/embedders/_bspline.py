"""B-splines on arbitrary knots: the basis of spline interpolation with not-a-knot ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from typing import Any, Self

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    describe,
    fraction,
    problem,
    real,
    real_numbers,
    whole,
)
from kronfield._core.axes import PackedAxis, pack_axis, unpack_axis
from kronfield._core.frames import Frame, mean_step, off_even
from kronfield._core.records import record
from kronfield.embedders._base import FINEST, Embedder

# The highest degree: beyond it the collocation matrix of even samples loses too many digits.
HIGHEST_DEGREE = 11
# Interior knots are stored as (first, last) if each is at its even position, within EVEN steps or
# within ROUNDING times the rounding error FINEST of a position.
EVEN, ROUNDING = 1e-12, 8
# The smallest gap between knots: second derivatives, which grow as 1/gap^2, stay finite.
SMALLEST_GAP = 1e-60


# The two knots of `of_pieces` lie this part of the shorter gap next to a position to either side of
# it. The function between them changes a field by the square of this part: less than rounding.
APART = 2.0**-25


@record(eq=False)
class BSpline(Embedder):
    """B-splines of any degree on even or uneven knots, clamped at both ends.

    They are positive and sum to 1 between ``low`` and ``high``. Outside, the polynomials of the
    first and the last piece continue. `through` places the knots for interpolation, as
    `scipy.interpolate.make_interp_spline` does: as many features as samples, and not-a-knot ends.

    Examples
    --------
    >>> import numpy as np
    >>> BSpline(5)(np.array([0.0, 0.25])).round(3)
    array([[1.   , 0.   , 0.   , 0.   , 0.   ],
           [0.125, 0.594, 0.25 , 0.031, 0.   ]])
    >>> x = np.array([0.0, 0.1, 0.3, 0.4, 0.8, 1.0])
    >>> spline = BSpline.through(x, degree=3)
    >>> spline
    BSpline(size=6, degree=3, low=0.0, high=1.0, inner=(0.3, 0.4))
    >>> weights = np.linalg.solve(spline(x), x**3)
    >>> (spline(np.array([0.5])) @ weights).round(6)
    array([0.125])

    Parameters
    ----------
    size : int
        The number K of features, at least degree + 1.
    degree : int
        The degree k of the polynomials, 0 to 11.
    low, high : float
        The ends of the domain, where all k + 1 end knots lie.
    inner : (float, float) or array of shape (K - k - 1,), optional
        The interior knots, rising, between low and high: the first and the last of even knots, or
        all of them. By default they divide the domain into K - k equal pieces. Even knots are
        stored as (first, last).

    References
    ----------
    C. de Boor, "On calculating with B-splines", Journal of Approximation Theory 6, 1972.
    """

    size: int
    degree: int = 3
    _: KW_ONLY
    low: float = 0.0
    high: float = 1.0
    inner: tuple[float, float] | Array | Sequence[float] | None = None

    def __post_init__(self) -> None:
        degree = whole("degree", self.degree, at_least=0)
        if degree > HIGHEST_DEGREE:
            raise problem(
                "degree", degree, f"at most {HIGHEST_DEGREE}", "Cubic splines have degree 3."
            )
        size = whole("size", self.size, at_least=1)
        if size <= degree:
            raise problem(
                "size",
                size,
                f"at least degree + 1 = {degree + 1}",
                "Lower the degree, or raise size.",
            )
        remedy = "Positions are in units of the domain."
        low, high = (
            real(name, end, low=-1e12, high=1e12, remedy=remedy)
            for name, end in (("low", self.low), ("high", self.high))
        )
        if not high - low > FINEST:
            raise problem("low, high", (low, high), "low < high", remedy)
        self._set(size=size, degree=degree, low=low, high=high, smoothness=min(degree, 2))
        self._set(inner=self._checked_inner(self.inner))

    @classmethod
    def through(
        cls, x: Any, degree: int = 3, low: float | None = None, high: float | None = None
    ) -> Self:
        """Return the basis for interpolation at sorted positions ``x``, with not-a-knot ends.

        With fewer than degree + 1 samples the degree is N - 1. The knots of an odd degree lie on
        samples, those of an even degree half-way between; (degree + 1) / 2 samples, or degree / 2
        midpoints, are left out at either end. Degree 0 is the nearest sample.

        Examples
        --------
        >>> import numpy as np
        >>> BSpline.through(np.arange(8) / 8, degree=3, low=-0.0625, high=0.9375)
        BSpline(size=8, degree=3, low=-0.0625, high=0.9375, inner=(0.25, 0.625))

        Parameters
        ----------
        x : array of shape (N,)
            Sample positions, rising.
        degree : int
            The degree of the polynomials, 0 to 11.
        low, high : float, optional
            The ends of the domain; by default the first and the last sample. They do not change
            the space of functions.
        """
        x = real_numbers("x", x)
        if x.ndim != 1 or not len(x) or not np.all(np.diff(x) > 0):
            raise problem(
                "x",
                describe(x),
                "a rising array of shape (N,)",
                "Sort it, and merge equal positions.",
            )
        degree = min(whole("degree", degree, at_least=0), len(x) - 1)
        margin = 0.5 if len(x) == 1 else 0.0
        low = x[0] - margin if low is None else low
        high = x[-1] + margin if high is None else high
        remedy = "The domain holds all samples."
        low = real("low", low, low=-1e12, high=float(x[0]), remedy=remedy)
        high = real("high", high, low=float(x[-1]), high=1e12, remedy=remedy)
        return cls(len(x), degree, low=low, high=high, inner=_knots_through(x, degree))

    @classmethod
    def of_pieces(cls, x: Any, low: float, high: float) -> Self:
        """Return the cubic basis with two knots at each of the rising positions ``x``.

        It contains the piecewise cubics of one continuous derivative between ``low``, the positions
        and ``high``, whatever their values and slopes there.

        Examples
        --------
        >>> import numpy as np
        >>> BSpline.of_pieces(np.array([0.25, 0.5]), 0.0, 1.0).size
        8
        """
        x = real_numbers("x", x)
        inner = _knots_of_pieces(x, low, high)
        return cls(2 * len(x) + 4, 3, low=low, high=high, inner=inner)

    def _checked_inner(self, given: Any) -> tuple[float, float] | Array | None:
        """Return the interior knots as stored: None, (first, last), or a read-only array."""
        count = self.inner_count
        if given is None:
            return None
        inner = real_numbers("inner", given).copy()
        if inner.ndim != 1 or len(inner) not in {count, 2 if count else 0}:
            raise problem(
                "inner",
                describe(np.asarray(given)),
                f"{count} knots (size - degree - 1), or (first, last)",
                "Leave it out for even knots.",
            )
        if count == 1 and len(inner) == 2 and inner[0] == inner[1]:
            inner = inner[:1]
        gaps = np.diff(np.concatenate([[self.low], inner, [self.high]]))
        if not np.all(gaps >= SMALLEST_GAP) or (count == 1 and len(inner) == 2):
            raise problem(
                "inner",
                describe(given),
                f"strictly rising knots between {self.low:g} and {self.high:g}",
                "Sort them, and merge equal knots.",
            )
        if not count:
            return None
        if len(inner) == 2 or _is_even(inner):
            return (float(inner[0]), float(inner[-1]))
        inner.flags.writeable = False
        return inner

    # The knots
    # ------------------------------------------------------------------------------------------

    @property
    def inner_count(self) -> int:
        """The number of interior knots, K - k - 1."""
        return self.size - self.degree - 1

    @property
    def is_even(self) -> bool:
        """Whether the interior knots are even, so that the inner features are shifted copies."""
        return not isinstance(self.inner, np.ndarray)

    @property
    def spacing(self) -> float:
        """The distance between neighbouring interior knots, where these are even."""
        if isinstance(self.inner, tuple) and self.inner_count > 1:
            return (self.inner[1] - self.inner[0]) / (self.inner_count - 1)
        if not self.is_even:
            raise problem(
                "spacing",
                repr(self),
                "even knots",
                "Uneven knots have no spacing: see inner_knots.",
            )
        return (self.high - self.low) / (self.inner_count + 1)

    @property
    def inner_knots(self) -> Array:
        """The interior knots, float64 of shape (K - k - 1,)."""
        if isinstance(self.inner, np.ndarray):
            return self.inner
        return self._first + self.spacing * np.arange(self.inner_count)

    @property
    def _first(self) -> float:
        return self.inner[0] if isinstance(self.inner, tuple) else self.low + self.spacing

    @property
    def knots(self) -> Array:
        """All knots, float64 of shape (K + k + 1,): each end k + 1 times."""
        ends = np.full(self.degree + 1, self.low), np.full(self.degree + 1, self.high)
        return np.concatenate([ends[0], self.inner_knots, ends[1]])

    @cached_property
    def _uneven_inner(self) -> Array:
        """The interior knots with both ends, of shape (K - k + 1,), cached."""
        return np.concatenate([[self.low], self.inner_knots, [self.high]])

    def _knot(self, index: Array) -> Array:
        """Return interior knots by index; those outside of 0 ... count - 1 are the ends."""
        count = self.inner_count
        if not self.is_even:
            return np.take(self._uneven_inner, np.clip(index + 1, 0, count + 1))
        inside = self._first + self.spacing * index
        return np.where(index < 0, self.low, np.where(index >= count, self.high, inside))

    def _near(self, piece: Array) -> list[Any]:
        """Return the ``degree`` knots to either side of each piece, (P,) each."""
        return list(self._knot(piece + np.arange(-self.degree, self.degree)[:, None]))

    def _piece(self, x: Array) -> Array:
        """Return the piece that ``x`` is in: the number of interior knots at or before it."""
        count = self.inner_count
        if isinstance(self.inner, np.ndarray):
            return np.searchsorted(self.inner, x, side="right")
        if count == 0:
            return np.zeros(len(x), dtype=np.int64)
        if count == 1:
            return (x >= self._first).astype(np.int64)
        steps = np.floor((x - self._first) / self.spacing)
        return (np.clip(np.nan_to_num(steps), -1, count - 1) + 1).astype(np.int64)

    # The features
    # ------------------------------------------------------------------------------------------

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        # Differences of close knots need float64, whatever the dtype of x.
        wide = xp.astype(x, xp.float64, copy=False)
        degree, size = self.degree, self.size
        knots = xp.asarray(self.knots, dtype=xp.float64, device=x.device)
        inner = knots[degree + 1 : size]
        column = xp.arange(size, dtype=xp.int64, device=x.device)
        sides = self._sides(order, float(xp.finfo(x.dtype).eps))
        total: Any = 0.0
        for side in sides:
            passed = (wide[:, None] + side) >= inner[None, :]
            piece = xp.sum(xp.astype(passed, xp.int64), axis=1)
            near = [xp.take(knots, piece + i) for i in range(1, 2 * degree + 1)]
            tap = column[None, :] - piece[:, None]  # (N, K)
            for i, value in enumerate(_recursion(xp, wide, near, degree, order)):
                column_of = value[:, None] / len(sides)
                total = total + xp.where(tap == i, column_of, xp.zeros_like(column_of))
        return xp.astype(total, x.dtype, copy=False)

    def _sides(self, order: int, eps: float) -> tuple[float, ...]:
        """Return shifts of positions before their piece is looked up: two to average both sides.

        A derivative of order ``degree`` jumps at knots, where it is the mean of both sides.
        Features of degree 0 jump too: a knot belongs to the piece on its right. A position within
        rounding error of a knot counts as on it.
        """
        if order < self.degree:
            return (0.0,)
        slack = ROUNDING * eps * max(1.0, abs(self.low), abs(self.high))
        return (-slack, slack) if order else (slack,)

    def taps(self, order: int = 0) -> int:
        """Return how many features, or their derivatives, are not zero at a position."""
        jumps = order == self.degree > 0
        return min(self.size, self.degree + 1 + jumps)

    def run(self, x: Array, order: int = 0) -> tuple[Array, Array]:
        """Return the features that are not zero: the index of the first (P,), and values (T, P).

        The same numbers as `features`, without the zeros: T is `taps`, degree + 1 in general.

        Examples
        --------
        >>> import numpy as np
        >>> first, values = BSpline(1_000_000, degree=1).run(np.array([0.0, 0.75]))
        >>> first.tolist(), values.round(6).tolist()
        ([0, 749999], [[1.0, 0.75], [0.0, 0.25]])

        Parameters
        ----------
        x : float64 array of shape (P,)
            Positions.
        order : int
            The order of the derivative, at most ``smoothness``.
        """
        x = np.asarray(x, dtype=np.float64)
        sides = self._sides(order, FINEST)
        pieces = [self._piece(x + side) for side in sides]
        if len(pieces) == 1:
            return pieces[0], self._local(x, pieces[0], order)
        pieces[0] = np.maximum(pieces[0], pieces[1] - 1)
        T = self.taps(order)
        first = np.minimum(pieces[0], self.size - T)
        values = np.zeros((T, len(x)))
        at, column = np.arange(self.degree + 1)[:, None], np.arange(len(x))
        for piece in pieces:
            values[at + (piece - first), column] += self._local(x, piece, order) / 2
        return first, values

    def _local(self, x: Array, piece: Array, order: int) -> Array:
        """Return the degree + 1 features of each position's piece, (degree + 1, P)."""
        degree = self.degree
        near: list[Any]
        if not self.is_even:
            near = self._near(piece)
            return np.stack(_recursion(np, x, near, degree, order))
        # Away from the ends, measure in spacings from the knot on the left of x, so that all knots
        # are whole numbers.
        at_ends = (piece < degree) | (piece > self.inner_count - degree)
        if at_ends.all():
            out = np.empty((degree + 1, len(x)))
        else:
            v = (x - self._first) / self.spacing - (piece - 1)
            near = [float(i) for i in range(1 - degree, degree + 1)]
            out = np.stack(_recursion(np, v, near, degree, order))
            out *= self.spacing**-order
        if at_ends.any():
            few = np.flatnonzero(at_ends)
            near = self._near(piece[few])
            out[:, few] = np.stack(_recursion(np, x[few], near, degree, order))
        return out

    def _integral(self, low: float, high: float) -> Array:
        # The integral of B_j from -inf to x is (t_(j+k+1) - t_j)/(k + 1) times the sum of the
        # B-splines of degree k + 1 from the j-th on (de Boor, A Practical Guide to Splines, X).
        degree, knots = self.degree, self.knots
        ends = np.array([low, high])
        piece = self._piece(ends)
        near = [self._knot(piece + i) for i in range(-degree - 1, degree + 1)]
        values = np.stack(_recursion(np, ends, near, degree + 1, 0))  # (k + 2, 2)
        after = np.cumsum(values[::-1], axis=0)[::-1]  # each with all that follow
        share = np.zeros((2, self.size))
        for end, first, sums in zip(share, piece, after.T, strict=True):
            end[:first] = 1.0
            end[first : first + degree + 1] = sums[1:]
        return (share[1] - share[0]) * (knots[degree + 1 :] - knots[: self.size]) / (degree + 1)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        if not self.is_even:
            raise problem(
                "similarity",
                repr(self),
                "even knots",
                "The features of uneven knots differ in shape, so that their similarity depends on "
                "both positions, not on their distance alone.",
            )
        # D(dx) = h B_(2k+1)(dx/h), the centred cardinal B-spline
        degree, h = 2 * self.degree + 1, self.spacing
        wide = xp.abs(xp.astype(dx, xp.float64, copy=False)) / h
        u = xp.clip(wide, 0.0, degree + 1.0) + (degree + 1) / 2
        cell = xp.floor(u)
        near = [float(i) for i in range(1 - degree, degree + 1)]
        total = xp.zeros_like(u)
        for i, value in enumerate(_recursion(xp, u - cell, near, degree, 0)):
            total = xp.where(cell == degree - i, value, total)
        return xp.astype(h * total, dx.dtype, copy=False)

    @property
    def centres(self) -> Array:
        """The Greville abscissae, float64 of shape (size,): the mean of k consecutive knots."""
        knots, width = self.knots, self.degree
        if width == 0:  # pieces: their middles
            return (knots[1:] + knots[:-1]) / 2
        windows = np.lib.stride_tricks.sliding_window_view(knots[1:-1], width)
        return np.asarray(windows.mean(axis=1))

    @property
    def rank_limit(self) -> float | None:
        """B_(2k+1)(0)/spacing for even knots: the features are positive and sum to 1."""
        if not self.is_even:
            return None
        return float(self._similarity(np, np.zeros(1))[0]) / self.spacing**2

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return where the envelope 1/(pi h f)^(k+1) of the spectrum falls below ``tolerance``.

        h is the spacing, or the smallest gap between knots.
        """
        h = self.spacing if self.is_even else float(np.diff(self._uneven_inner).min())
        return fraction("tolerance", tolerance) ** (-1 / (self.degree + 1)) / (math.pi * h)

    # Saving and equality
    # ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the embedder as plain data that JSON can hold: even knots as two numbers."""
        inner = None if self.inner is None else np.asarray(self.inner).tolist()
        return {**super().to_dict(), "inner": inner}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BSpline):
            return NotImplemented
        if self is other:
            return True
        return (
            hash(self) == hash(other)
            and self._settings == other._settings
            and np.array_equal(np.asarray(self.inner), np.asarray(other.inner))
        )

    def __hash__(self) -> int:
        return self._hash

    @property
    def _settings(self) -> tuple[int, int, float, float]:
        return self.size, self.degree, self.low, self.high

    @cached_property
    def _hash(self) -> int:
        inner = self.inner.tobytes() if isinstance(self.inner, np.ndarray) else self.inner
        return hash((type(self), self._settings, inner))

    def made_through(self, axis: Array, frame: Frame) -> None:
        """Record that the knots follow from samples at ``axis``, rising or falling, in ``frame``.

        A pickle then holds these positions instead of uneven knots: packed if they have few digits,
        otherwise once for all objects that hold the same array. Nothing is recorded if the knots
        differ from those of the samples.
        """
        sites = _Sites(axis, frame)
        if isinstance(self.inner, np.ndarray) and sites.give(self):
            self._set(_sites=sites)

    def __reduce__(self) -> Any:
        # Rebuild from the arguments: hashes differ between processes, and unpickled arrays are
        # writeable.
        sites: _Sites | None = self.__dict__.get("_sites")
        # checked again, because the array of positions may have changed in the meantime
        if sites is not None and sites.give(self):
            axis = pack_axis(sites.axis)
            return _rebuild_through, (type(self), *self._settings, axis, sites.frame)
        return _rebuild, (type(self), *self._settings, self.inner)

    def __repr__(self) -> str:
        inner: Any = self.inner
        if isinstance(inner, np.ndarray):
            inner = f"<{len(inner)} uneven knots from {inner[0]:.6g} to {inner[-1]:.6g}>"
        return (
            f"{type(self).__name__}(size={self.size}, degree={self.degree}, "
            f"low={self.low}, high={self.high}, inner={inner})"
        )


def _rebuild(
    kind: type[BSpline], size: int, degree: int, low: float, high: float, inner: Any
) -> BSpline:
    return kind(size, degree, low=low, high=high, inner=inner)


def _rebuild_through(
    kind: type[BSpline],
    size: int,
    degree: int,
    low: float,
    high: float,
    axis: PackedAxis,
    frame: Frame,
) -> BSpline:
    sites = _Sites(unpack_axis(axis), frame)
    inner = sites.knots(size, degree, low, high)
    return kind(size, degree, low=low, high=high, inner=inner)


@record(eq=False)
class _Sites:
    """The positions of samples, rising or falling, and the frame in which knots lie on them."""

    axis: Array
    frame: Frame

    def knots(self, size: int, degree: int, low: float, high: float) -> Array | None:
        """Return the interior knots of `BSpline.through` or `of_pieces`; None for other sizes."""
        n, x = len(self.axis), self.frame.unit(self.axis)
        x = x[::-1] if n and x[0] > x[-1] else x
        if size == n:
            return _knots_through(x, degree)
        pieces = size == 2 * n + 4 and degree == 3
        return _knots_of_pieces(x, low, high) if pieces else None

    def give(self, spline: BSpline) -> bool:
        """Return whether the interior knots of ``spline`` are these, bit for bit."""
        knots = self.knots(*spline._settings)
        return knots is not None and np.array_equal(knots, spline.inner_knots)


def _knots_through(x: Array, degree: int) -> Array:
    """Return the interior knots for interpolation at rising positions: see `BSpline.through`."""
    sites = x if degree % 2 else (x[1:] + x[:-1]) / 2
    out = (degree + 1) // 2
    return sites[out : len(sites) - out]


def _knots_of_pieces(x: Array, low: float, high: float) -> Array:
    """Return two interior knots at each position: see `BSpline.of_pieces`."""
    gaps = np.diff(np.concatenate([[low], x, [high]]))
    apart = APART * np.minimum(gaps[:-1], gaps[1:])
    return np.stack([x - apart, x + apart], axis=1).ravel()


def _is_even(inner: Array) -> bool:
    """Return whether interior knots are evenly spaced from the first to the last."""
    if len(inner) == 1:
        return True
    largest = max(abs(float(inner[0])), abs(float(inner[-1])))
    return off_even(inner) <= max(EVEN * mean_step(inner), ROUNDING * FINEST * largest)


def _recursion(
    xp: Namespace, x: AnyArray, near: Sequence[Any], degree: int, order: int
) -> list[AnyArray]:
    """Return the degree + 1 B-splines that are not zero in the piece of each x, differentiated.

    ``near`` are the 2 degree knots around that piece, arrays or numbers: degree of them up to its
    left end and degree from its right end on. The piece itself is not empty, so no divisor is
    zero.
    """
    # with part_j = B_(j,d-1) / (t_(j+d) - t_j):
    #   B_(j,d) = (x - t_j) part_j + (t_(j+d+1) - x) part_(j+1)   up to d = degree - order, then
    #   B'_(j,d) = d (part_j - part_(j+1))
    values = [xp.ones_like(x)]
    for d in range(1, degree + 1):
        differentiate = d > degree - order
        raised = []
        before: Any = 0.0
        for r, value in enumerate(values):
            left, right = near[degree - d + r], near[degree + r]
            part = value / (right - left)
            raised.append(d * (before - part) if differentiate else before + (right - x) * part)
            before = part if differentiate else (x - left) * part
        raised.append(d * before if differentiate else before)
        values = raised
    return values
