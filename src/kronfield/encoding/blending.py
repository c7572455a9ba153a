"""The paper's blending: features of a point, interpolated from the corners of its grid cell.

On one axis, with psi(x) the K features at x and x_0 <= x <= x_1 two nodes, there are three kinds of
weights.

- "least-squares": alpha minimises |psi(x) - [psi(x_0) psi(x_1)] alpha|^2 over the K features. This
  is the paper's definition.
- "similarity": the paper's closed form of it, with inner products replaced by the similarity D, an
  integral over t. For Fourier features both are the same. For shifted functions the sum over K
  features differs from the integral where the features are narrow, and at the ends of the domain,
  beyond which there are no features. The authors' code uses this kind.
- "linear": 1 - beta and beta.

In D dimensions the weights of the 2^D corners are the products of those of the axes. For least
squares this is the joint minimiser. Proof: let M_i = [psi(x_i0) psi(x_i1)], (K_i, 2), on axis i.
The features at the corners are the columns of M = M_1 x ... x M_D (Kronecker products), and those
of the point are v = v_1 x ... x v_D. The least-squares solution of least norm is pinv(M) v, and it
is the only solution if M has full column rank. pinv(M_1 x ... x M_D) = pinv(M_1) x ... x pinv(M_D),
since the right side meets the four conditions of Penrose (1955) factor by factor. So pinv(M) v is
the product of all pinv(M_i) v_i. No condition on the features is needed. It would not be so under
the constraint that weights add up to 1, which couples the axes. ``normalise`` does not solve that
constrained problem but divides by the sum, and a sum of products is the product of the sums.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    describe,
    namespace,
    point_array,
    problem,
    real,
    real_numbers,
    to_numpy,
    vector,
)
from kronfield._core.frames import is_even, mean_step
from kronfield.embedders import Embedder, Impulse, LocalEmbedder, Wrapped
from kronfield.encoding.encodings import Kronecker

WEIGHTS = ("least-squares", "similarity", "linear")
# D(0) + D(d) or D(0) - D(d) counts as zero if it is below this fraction of D(0). So does a singular
# value of the features at the two ends of a cell, relative to the larger of the two.
ALIKE = 1e-12
# A feature is left out where it is below this fraction of its peak: it changes no digit of float64.
NEGLIGIBLE = 1e-17
# Features of points, and pseudo-inverses of cells, are computed in parts of this many values.
PART = 1 << 20
# Pseudo-inverses of all cells are kept if they have at most this many values (32 MiB).
KEPT = 1 << 22
# Tolerances in spacings: how uneven a grid may be, and how far a point may lie beyond its ends.
SLACK = 1e-6
# Nodes of a virtual grid per period of the highest frequency, for features that are not local.
NODES_PER_WAVE = 12
# Entries in a table of similarities within one cell.
TABLE = 257


def blending_weights(
    embedder: Embedder,
    beta: Any,
    spacing: float,
    *,
    low: float | None = None,
    weights: str = "least-squares",
    normalise: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Return the weights (alpha_0, alpha_1) of the two ends of a cell.

    They minimise |psi(low + beta d) - alpha_0 psi(low) - alpha_1 psi(low + d)|^2, where psi(x) are
    the features at x and d is the spacing.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> beta = np.array([0.0, 0.25, 0.5, 1.0])
    >>> a0, a1 = kf.blending_weights(kf.Triangle(64, 2 / 64), beta, 1 / 64)
    >>> a0.round(3) + 0.0, a1.round(3) + 0.0
    (array([1.  , 0.75, 0.5 , 0.  ]), array([0.  , 0.25, 0.5 , 1.  ]))
    >>> a0, a1 = kf.blending_weights(kf.Triangle(64, 2 / 64), beta, 1 / 64, weights="similarity")
    >>> a0.round(3), a1.round(3)
    (array([1.   , 0.853, 0.575, 0.   ]), array([0.   , 0.259, 0.575, 1.   ]))

    Parameters
    ----------
    embedder : Embedder
        The embedder of one axis.
    beta : array of shape (P,)
        The relative position in the cell, from 0 to 1.
    spacing : float
        The width d of a cell.
    low : float, optional
        The lower end of the cell. By default it is in the middle of the domain, at the centre of a
        feature if features are local. Only weights by least squares depend on it.
    weights : "least-squares" or "similarity"
        Whether to minimise the sum of squares over the features, as the paper defines the weights,
        or the integral over t of (psi(t - x) - alpha_0 psi(t - x_0) - alpha_1 psi(t - x_1))^2, for
        which the paper has a closed form in the similarity D. For Fourier features they are equal.
    normalise : bool
        Whether to divide the weights by their sum, so that constants are reproduced exactly.
    """
    share = vector("beta", beta)
    d = real(
        "spacing",
        spacing,
        low=0.0,
        high=1e12,
        open_low=True,
        remedy="It is the width of a cell of the grid.",
    )
    _known_weights(weights, WEIGHTS[:2])
    if weights == "similarity" or embedder.similarity_is_inner_product:
        pair = _by_similarity(embedder, share, d)
    else:
        xp = namespace(share)
        start = (
            _middle(embedder)
            if low is None
            else real("low", low, low=-1e12, high=1e12, remedy="It is the lower end of the cell.")
        )
        cells = _Cells(embedder, start, d, 1)
        index = xp.zeros(share.shape, dtype=xp.int64, device=share.device)
        pair = cells.weights(start + share * d, index)
    return _normalised(pair) if normalise else pair


def _known_weights(weights: str, known: Sequence[str]) -> None:
    if weights not in known:
        names = ", ".join(f'"{name}"' for name in known)
        remedy = "Least squares is the paper's definition."
        raise problem("weights", repr(weights), f"one of {names}", remedy)


def _middle(embedder: Embedder) -> float:
    centres = embedder.centres if isinstance(embedder, LocalEmbedder) else None
    return 0.5 if centres is None else float(centres[np.argmin(np.abs(centres - 0.5))])


def _normalised(pair: tuple[AnyArray, AnyArray]) -> tuple[AnyArray, AnyArray]:
    """Return weights divided by their sum."""
    total = pair[0] + pair[1]
    xp = namespace(total)
    if not bool(xp.all(xp.abs(total) > ALIKE)):
        raise problem(
            "normalise",
            "weights of two nodes that sum to 0",
            "weights that can be divided by their sum",
            "Use a finer grid, so that neighbouring nodes have similar features.",
        )
    return pair[0] / total, pair[1] / total


# By least squares
# --------------------------------------------------------------------------------------------------


class _Cells:
    """Weights by least squares in the cells of an even grid on one axis.

    With M_c = [psi(x_c) psi(x_{c+1})] (T, 2) the weights of a point x in cell c are
    pinv(M_c) psi(x), linear in the features of the point. The pseudo-inverses depend on the cell
    only and are computed once, in float64. T is the number of features that can be nonzero in a
    cell: all K, or for local features those within reach.
    """

    def __init__(self, embedder: Embedder, low: float, spacing: float, count: int) -> None:
        self.embedder, self.low, self.spacing, self.count = embedder, low, spacing, count
        self.taps, self._first = _window(embedder, low, spacing)

    def weights(self, x: AnyArray, cell: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return the weights of positions (P,) in the dtype of ``x``; ``cell`` is their cell."""
        xp = namespace(x)
        # In float64: if the features at both ends of a cell are nearly equal, float32 has too few
        # digits.
        wide = xp.astype(x, xp.float64, copy=False)
        step, P = max(1, PART // self.taps), x.shape[0]
        pairs = [
            self._part(xp, wide[i : min(i + step, P)], cell[i : min(i + step, P)])
            for i in range(0, max(1, P), step)
        ]
        if len(pairs) == 1:
            both = pairs[0]
        else:
            both = tuple(xp.concat(sides) for sides in zip(*pairs, strict=True))
        return tuple(xp.astype(side, x.dtype, copy=False) for side in both)

    def _part(self, xp: Any, x: AnyArray, cell: AnyArray) -> tuple[AnyArray, ...]:
        values = self._features(xp, x, cell)  # (P, T)
        if 2 * self.count * self.taps <= KEPT:
            inverses = _kept_inverses(self.embedder, self.low, self.spacing, self.count)
        else:  # compute those of the cells that contain points
            found, place = np.unique(to_numpy(cell), return_inverse=True)
            inverses = self.inverses(found)
            cell = xp.asarray(place, dtype=cell.dtype, device=cell.device)
        tables = (xp.asarray(one, dtype=x.dtype, device=x.device) for one in inverses)
        return tuple(xp.sum(xp.take(table, cell, axis=0) * values, axis=1) for table in tables)

    def _features(self, xp: Any, x: AnyArray, cell: AnyArray) -> AnyArray:
        if self._first is None:
            return self.embedder(x)
        assert isinstance(self.embedder, LocalEmbedder)
        numbers = xp.asarray(self._first(to_numpy(cell)), dtype=cell.dtype, device=cell.device)
        centres = xp.asarray(self.embedder.centres, dtype=x.dtype, device=x.device)
        near = numbers[:, None] + xp.arange(self.taps, dtype=cell.dtype, device=cell.device)
        t = xp.reshape(xp.take(centres, xp.reshape(near, (-1,))), near.shape)
        return self.embedder.psi(xp, t - x[:, None], 0)

    def inverses(self, cells: Array) -> Array:
        """Return pinv([psi(x_c) psi(x_{c+1})]) of some cells as (2, cells, T)."""
        parts, step = [np.zeros((0, 2, self.taps))], max(1, PART // self.taps)
        for i in range(0, len(cells), step):
            some = cells[i : i + step]
            ends = [self._features(np, self.low + (some + e) * self.spacing, some) for e in (0, 1)]
            parts.append(np.linalg.pinv(np.stack(ends, axis=-1), rcond=ALIKE))  # (cells, 2, T)
        return np.ascontiguousarray(np.concatenate(parts).transpose(1, 0, 2))


@functools.lru_cache(maxsize=16)
def _kept_inverses(embedder: Embedder, low: float, spacing: float, count: int) -> Array:
    return _Cells(embedder, low, spacing, count).inverses(np.arange(count))


def _window(
    embedder: Embedder, low: float, spacing: float
) -> tuple[int, Callable[[Array], Array] | None]:
    """Return how many features can be nonzero in a cell, and the first of them in given cells.

    The function is None if all K features are used.
    """
    size = embedder.size
    if not isinstance(embedder, LocalEmbedder) or isinstance(embedder, Impulse):
        return size, None
    reach, per_unit = embedder.reach(NEGLIGIBLE), 1 / embedder.spacing
    if not math.isfinite(reach) or (spacing + 2 * reach) * per_unit + 3 >= size:
        return size, None
    # one more on either side, so that rounding leaves out no feature at the rim
    taps, padding = math.ceil((spacing + 2 * reach) * per_unit) + 3, int(embedder.padding)

    def first(cells: Array) -> Array:
        below = (low + cells * spacing - reach) * per_unit + padding
        return np.clip(np.floor(below) - 1, 0, size - taps).astype(np.int64)

    return taps, first


# By similarity
# --------------------------------------------------------------------------------------------------


def _by_similarity(embedder: Embedder, share: AnyArray, d: float) -> tuple[AnyArray, AnyArray]:
    # alpha = [D(0) D(d); D(d) D(0)]^-1 [D(beta d); D((1-beta) d)], by the eigenvectors (1, 1) and
    # (1, -1) of the matrix
    xp = namespace(share)
    at = embedder.similarity(xp.asarray([0.0, d], dtype=share.dtype, device=share.device))
    same, apart = float(at[0]), float(at[1])
    left, right = _similarity_within(embedder, share, d), _similarity_within(embedder, 1 - share, d)
    total = (left + right) / (same + apart) if same + apart > ALIKE * same else xp.zeros_like(left)
    difference = (
        (left - right) / (same - apart) if same - apart > ALIKE * same else xp.zeros_like(left)
    )
    return (total + difference) / 2, (total - difference) / 2


def _similarity_within(embedder: Embedder, share: AnyArray, d: float) -> AnyArray:
    """Return D(share d); replace many quadratures by a cubic spline through a table."""
    if not embedder.similarity_by_quadrature or share.shape[0] <= TABLE:
        return embedder.similarity(share * d)
    xp = namespace(share)
    return xp.asarray(_table(embedder, d)(to_numpy(share)), dtype=share.dtype, device=share.device)


@functools.lru_cache(maxsize=32)
def _table(embedder: Embedder, d: float) -> Any:
    from scipy.interpolate import CubicSpline

    nodes = np.linspace(0.0, 1.0, TABLE)
    return CubicSpline(nodes, embedder.similarity(nodes * d))


class Blending:
    """The 2^D corners of the grid cell of each point, and their weights.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> encoding = kf.Kronecker(kf.Gaussian(32, 0.05), kf.Gaussian(32, 0.05))
    >>> blending = kf.Blending(encoding, [np.arange(33) / 32] * 2)
    >>> indices, weights = blending.corners(np.array([[0.5, 0.51]]))
    >>> indices, weights.round(2) + 0.0
    (array([[544, 545, 577, 578]]), array([[0.69, 0.33, 0.  , 0.  ]]))
    >>> blending.matrix(np.array([[0.5, 0.51]])).shape
    (1, 1089)

    Parameters
    ----------
    encoding : Kronecker
        One embedder per axis.
    axes : sequence of arrays
        The nodes of the virtual grid on each axis, evenly spaced, in the units of the embedders.
    normalise : bool
        Whether to scale the weights of a point so that they sum to one.
    linear : bool
        The same as ``weights="linear"``.
    weights : "least-squares", "similarity" or "linear"
        How the weights of a cell are computed: by least squares over the features, which is the
        paper's definition and makes `error` as small as possible; by the similarity, the paper's
        closed form (see `blending_weights`); or as 1 - beta and beta, independent of the embedders,
        so that one blending serves all of them.
    """

    def __init__(
        self,
        encoding: Kronecker,
        axes: Sequence[Any],
        *,
        normalise: bool = False,
        linear: bool = False,
        weights: str = "least-squares",
    ) -> None:
        if not isinstance(encoding, Kronecker):
            raise problem(
                "encoding",
                describe(encoding),
                "a Kronecker encoding",
                "Wrap it in Kronecker.",
                TypeError,
            )
        if not isinstance(axes, list | tuple) or len(axes) != encoding.dimensions:
            raise problem(
                "axes",
                describe(axes),
                f"{encoding.dimensions} arrays",
                "One per axis of the encoding.",
            )
        _known_weights(weights, WEIGHTS)
        self.encoding, self.normalise = encoding, bool(normalise)
        self.weights = "linear" if linear else weights
        self.axes = [_even_nodes(f"axes[{i}]", axis) for i, axis in enumerate(axes)]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; in version 0.1.0, weights were by similarity or linear."""
        linear = state.pop("linear", False)
        self.__dict__.update({"weights": "linear" if linear else "similarity", **state})

    @property
    def linear(self) -> bool:
        """Whether the weights are 1 - beta and beta."""
        return self.weights == "linear"

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of nodes on each axis of the virtual grid."""
        return tuple(len(axis) for axis in self.axes)

    def corners(self, points: Any) -> tuple[AnyArray, AnyArray]:
        """Return (indices, weights), both (P, 2^D), of the corners of the cell of each point.

        The points are (P, D). Indices count the nodes of the virtual grid in C order. A point on
        the border of two cells belongs to the upper cell; a point on the last node belongs to the
        last cell.
        """
        X = point_array("points", points, self.encoding.dimensions)
        xp = namespace(X)
        sides = [self.on_axis(xp, X[:, i], i) for i in range(len(self.axes))]
        steps = [math.prod(self.shape[i + 1 :]) for i in range(len(self.axes))]
        indices, weights = [], []
        # in two dimensions: a0 b0, a0 b1, a1 b0, a1 b1
        for corner in itertools.product((0, 1), repeat=len(sides)):
            indices.append(
                sum(
                    (cell + side) * step
                    for (cell, _), side, step in zip(sides, corner, steps, strict=True)
                )
            )
            weights.append(
                math.prod(
                    (pair[side] for (_, pair), side in zip(sides, corner, strict=True)), start=1.0
                )
            )
        return xp.stack(indices, axis=1), xp.stack(weights, axis=1)

    def matrix(self, points: Any) -> Any:
        """Return the weights as a SciPy sparse array of shape (P, nodes of the grid)."""
        import scipy.sparse

        indices, weights = (to_numpy(part) for part in self.corners(points))
        starts = np.arange(len(indices) + 1) * indices.shape[1]
        return scipy.sparse.csr_array(
            (weights.ravel(), indices.ravel(), starts), (len(indices), math.prod(self.shape))
        )

    def error(self, points: Any) -> AnyArray:
        """Return the error of blended features relative to the norm of exact features, (P,)."""
        X = point_array("points", points, self.encoding.dimensions)
        xp = namespace(X)
        one, nothing = xp.ones_like(X[:, 0]), xp.zeros_like(X[:, 0])
        # |A - B|^2, <A - B, B>, |A|^2, |B|^2 of the products so far, with A exact and B blended.
        # One more axis with factors a and b: A a - B b = (A - B) a + B (a - b)
        apart, cross, exact, blended = nothing, nothing, one, one
        for i, emb in enumerate(self.encoding.embedders):
            nodes = xp.asarray(self.axes[i], dtype=X.dtype, device=X.device)
            cell, (w0, w1) = self.on_axis(xp, X[:, i], i)
            a = emb(X[:, i])
            b = w0[:, None] * emb(xp.take(nodes, cell)) + w1[:, None] * emb(
                xp.take(nodes, cell + 1)
            )
            aa, ab, bb = (xp.sum(u * v, axis=1) for u, v in ((a, a), (a, b), (b, b)))
            gap, gap_a, gap_b = (xp.sum((a - b) * v, axis=1) for v in (a - b, a, b))
            apart = apart * aa + blended * gap + 2 * cross * gap_a
            cross = cross * ab + blended * gap_b
            exact, blended = exact * aa, blended * bb
        return xp.sqrt(
            xp.maximum(apart, nothing)
            / xp.maximum(exact, nothing + float(xp.finfo(X.dtype).smallest_normal))
        )

    def on_axis(
        self, xp: Any, x: AnyArray, axis: int
    ) -> tuple[AnyArray, tuple[AnyArray, AnyArray]]:
        """Return the cell of each position, and the weights of its two ends."""
        nodes = self.axes[axis]
        spacing = mean_step(nodes)
        at = (x - float(nodes[0])) / spacing
        seen = to_numpy(at)
        low, high = float(seen.min(initial=0.0)), float(seen.max(initial=0.0))
        if low < -SLACK or high > len(nodes) - 1 + SLACK:
            got = f"positions from {to_numpy(x).min():g} to {to_numpy(x).max():g} on axis {axis}"
            raise problem(
                "points", got, f"within the grid, {nodes[0]:g} to {nodes[-1]:g}", "Widen the grid."
            )
        cell = xp.clip(xp.floor(at), 0.0, float(len(nodes) - 2))
        beta = xp.clip(at - cell, 0.0, 1.0)
        index, embedder = xp.astype(cell, xp.int64), self.encoding.embedders[axis]
        if self.linear:
            return index, (1 - beta, beta)
        if self.weights == "similarity" or embedder.similarity_is_inner_product:
            pair = _by_similarity(embedder, beta, spacing)
        else:
            cells = _Cells(embedder, float(nodes[0]), spacing, len(nodes) - 1)
            pair = cells.weights(xp.clip(x, float(nodes[0]), float(nodes[-1])), index)
        return index, _normalised(pair) if self.normalise else pair


def virtual_axis(embedder: Embedder, low: float, high: float) -> Array:
    """Return nodes from ``low`` to ``high`` that suit an embedder, in its units.

    For local features, the nodes have the spacing of the features. Otherwise there are at least as
    many nodes as features, and enough nodes for the highest frequency.
    """
    if isinstance(embedder, LocalEmbedder | Wrapped):
        step = embedder.spacing
    else:
        step = min((high - low) / embedder.size, 1 / (NODES_PER_WAVE * embedder.bandwidth(0.1)))
    return np.linspace(low, high, max(2, math.ceil((high - low) / step - 1e-9) + 1))


def _even_nodes(argument: str, axis: Any) -> Array:
    nodes = real_numbers(argument, axis)
    if nodes.ndim != 1 or len(nodes) < 2:
        raise problem(
            argument,
            describe(nodes),
            "at least two nodes",
            "Pass the positions of the nodes on this axis.",
        )
    if not nodes[-1] > nodes[0] or not is_even(nodes, SLACK):
        raise problem(
            argument,
            describe(nodes),
            "rising, evenly spaced nodes",
            "Blending needs cells of equal size.",
        )
    return nodes
