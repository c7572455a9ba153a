"""The splines of each axis, and their values at many points, in parts that fit the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.embedders import BSpline

# Points are processed in parts of this many.
PART = 1 << 15
# The features of more points than this are kept in float32. Sums over points are always float64.
SINGLE = 100_000
# Quantiles of the points are tabulated at this many even positions, many more than there are knots.
TABLE = 257


def spline_axis(x: Array, size: int, few: int, share: float) -> BSpline:
    """Return the splines of an axis whose positions ``x`` are between 0 and 1.

    An axis with up to ``few`` different positions has one hat for each of them, so that the
    function can have any value at each integer or category. Other axes have ``size`` cubic
    splines. Their knots are means of even positions and of quantiles of the points, in which the
    quantiles have the weight ``share``.
    """
    values = _distinct(x, few)
    if values is not None:
        if len(values) == 1:  # a single position does not determine a function
            return BSpline(2, 1)
        inner = values[1:-1] if len(values) > 2 else None
        return BSpline(len(values), 1, low=values[0], high=values[-1], inner=inner)
    even = np.linspace(0.0, 1.0, TABLE)
    quantiles = np.quantile(x, even)  # sorted, possibly with repetitions
    below = np.interp(even, *_strictly(quantiles, even))
    mixed = share * below + (1.0 - share) * even
    mixed[0], mixed[-1] = 0.0, 1.0  # also if many points are at one end
    inner = np.interp(np.arange(1, size - 3) / (size - 3), mixed, even)
    return BSpline(size, 3, inner=inner)


def _distinct(x: Array, few: int) -> Array | None:
    """Return the different positions if there are at most ``few``."""
    if len(np.unique(x[: 64 * few])) > few:
        return None
    values = np.unique(x)
    return values if len(values) <= few else None


def _strictly(x: Array, y: Array) -> tuple[Array, Array]:
    """Return (x, y) with each x once, and the mean of its y."""
    values, inverse = np.unique(x, return_inverse=True)
    return values, np.bincount(inverse, weights=y) / np.bincount(inverse)


def bend(embedder: BSpline, slopes: float) -> Array:
    """Return the penalty (K, K) of one function: about the integral of its squared curvature.

    Derivatives are divided differences of the weights (Eilers and Marx, 1996), as if the knots
    were even. Thus functions may bend more where there are many points. ``slopes`` times the
    squared first derivative is added, so that the function of an axis without effect is constant.
    """
    K = embedder.size
    x = BSpline(K, embedder.degree).centres  # a straight line has these weights
    steps = np.diff(x)
    first = np.diff(np.eye(K), axis=0) / steps[:, None]
    total = slopes * first.T @ (steps[:, None] * first)
    if K == 2:
        return np.asarray(total + first.T @ first)
    widths = (x[2:] - x[:-2]) / 2
    second = np.diff(first, axis=0) / widths[:, None]
    return np.asarray(total + second.T @ (widths[:, None] * second))


@record(eq=False)
class _Pieces:
    """The points of one part on one axis, sorted by the polynomial piece that contains them."""

    order: Array  # the points of the part, sorted by piece
    back: Array  # the place of each point of the part in this order
    first: Array  # the first feature of each point, in this order
    values: Array  # the features that are not zero, (n, taps), in this order
    runs: list[tuple[int, int, int]]  # (first feature, start, stop) of each piece


class Rows:
    """The features of points on all axes.

    Parameters
    ----------
    embedders : sequence of BSpline
        The splines of each axis.
    points : array (P, D)
        Positions between 0 and 1.
    """

    def __init__(self, embedders: Sequence[BSpline], points: Array) -> None:
        self.embedders, self.count = tuple(embedders), len(points)
        self.dtype = np.dtype(np.float32 if self.count > SINGLE else np.float64)
        self.parts = [slice(i, min(i + PART, self.count)) for i in range(0, self.count, PART)]
        self._pieces = [
            [self._piece(emb, points[part, d]) for part in self.parts]
            for d, emb in enumerate(self.embedders)
        ]

    def _piece(self, embedder: BSpline, x: Array) -> _Pieces:
        first, values = embedder.run(x)
        order = np.argsort(first, kind="stable").astype(np.int32)
        back = np.empty_like(order)
        back[order] = np.arange(len(order), dtype=np.int32)
        first = first[order].astype(np.int32)
        starts = np.flatnonzero(np.diff(first, prepend=-1))
        stops = [*starts[1:].tolist(), len(first)]
        runs = [
            (int(first[a]), int(a), int(b)) for a, b in zip(starts.tolist(), stops, strict=True)
        ]
        local = np.ascontiguousarray(values.T[order], dtype=self.dtype)
        return _Pieces(order, back, first, local, runs)

    @property
    def memory(self) -> int:
        """The bytes of the features."""
        taps = sum(emb.taps() for emb in self.embedders)
        return self.count * (taps * self.dtype.itemsize + 12 * len(self.embedders))

    def times(self, axis: int, weights: Array) -> Array:
        """Return the values (P, T) at the points of the functions with weights (K, T)."""
        W = np.asarray(weights, dtype=self.dtype)
        out = np.empty((self.count, W.shape[1]), dtype=self.dtype)
        taps = self.embedders[axis].taps()
        for part, pieces in zip(self.parts, self._pieces[axis], strict=True):
            sorted_ = np.empty((len(pieces.order), W.shape[1]), dtype=self.dtype)
            for first, start, stop in pieces.runs:
                np.matmul(
                    pieces.values[start:stop], W[first : first + taps], out=sorted_[start:stop]
                )
            out[part] = sorted_[pieces.back]
        return out

    def normal(
        self, axis: int, factors: Iterator[Array], targets: Array, weights: Array | None
    ) -> tuple[Array, Array]:
        """Return A'A (K T, K T) and A'y (K T,). Rows of A are products of features and factors.

        Parameters
        ----------
        axis : int
            The axis.
        factors : iterator of arrays (n, T)
            The factor of each function at the points, part by part.
        targets : array (P,)
            The values y.
        weights : array (P,), optional
            The weights of the points.
        """
        emb = self.embedders[axis]
        taps, gram, right = emb.taps(), np.zeros((0, 0)), np.zeros(0)
        for part, pieces, G in zip(self.parts, self._pieces[axis], factors, strict=True):
            T = G.shape[1]
            if not gram.size:
                gram = np.zeros((emb.size * T, emb.size * T))
                right = np.zeros(emb.size * T)
            y = targets[part]
            if weights is not None:
                G = G * np.sqrt(weights[part])[:, None]
                y = y * np.sqrt(weights[part])
            G, y = G[pieces.order], y[pieces.order]
            for first, start, stop in pieces.runs:
                # rows of one piece have the same features: (n, taps T)
                A = (pieces.values[start:stop, :, None] * G[start:stop, None, :]).reshape(
                    stop - start, taps * T
                )
                block = slice(first * T, (first + taps) * T)
                gram[block, block] += A.T @ A
                right[block] += A.T @ y[start:stop]
        return gram, right


def gram(embedder: BSpline, low: float, high: float) -> Array:
    """Return the integrals (K, K) of products of splines from low to high, exactly."""
    inside = embedder.inner_knots
    inside = inside[(inside > low) & (inside < high)]
    ends = [float(end) for end in (embedder.low, embedder.high) if low < end < high]
    breaks = np.unique(np.concatenate([[low, high], inside, ends]))
    x, w = np.polynomial.legendre.leggauss(embedder.degree + 1)  # exact for degree 2 k + 1
    half, middle = np.diff(breaks) / 2, (breaks[1:] + breaks[:-1]) / 2
    rows = np.asarray(embedder((middle[:, None] + half[:, None] * x).ravel()))
    weights = (half[:, None] * w).ravel()
    return np.asarray(rows.T @ (weights[:, None] * rows))
