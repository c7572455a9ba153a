"""The paper's blending: features of a point, interpolated from the corners of its grid cell."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
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
from kronfield._core.frames import is_even
from kronfield.embedders import Embedder, LocalEmbedder
from kronfield.encoding.encodings import Kronecker

# D(0) + D(d) or D(0) - D(d) counts as zero if it is below this fraction of D(0).
ALIKE = 1e-12
# Tolerances in spacings: how uneven a grid may be, and how far a point may lie beyond its ends.
SLACK = 1e-6
# Nodes of a virtual grid per period of the highest frequency, for features that are not local.
NODES_PER_WAVE = 12
# Entries in a table of similarities within one cell.
TABLE = 257


def blending_weights(
    embedder: Embedder, beta: Any, spacing: float, *, normalise: bool = False
) -> tuple[AnyArray, AnyArray]:
    """Return the weights (alpha_0, alpha_1) of the two ends of a cell.

    They minimise the integral over t of the square of
    psi(x_0 + beta d) - alpha_0 psi(x_0) - alpha_1 psi(x_0 + d).

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> a0, a1 = kf.blending_weights(kf.Gaussian(64, 0.02), np.array([0.0, 0.25, 0.5, 1.0]), 1 / 64)
    >>> a0.round(3), a1.round(3)
    (array([1.   , 0.77 , 0.518, 0.   ]), array([0.   , 0.256, 0.518, 1.   ]))

    Parameters
    ----------
    embedder : Embedder
        The embedder of one axis; its similarity D determines the weights.
    beta : array of shape (P,)
        The relative position in the cell, from 0 to 1.
    spacing : float
        The width d of a cell.
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
    xp = namespace(share)
    # alpha = [D(0) D(d); D(d) D(0)]^-1 [D(beta d); D((1-beta) d)], by the eigenvectors (1, 1) and
    # (1, -1) of the matrix
    at = embedder.similarity(xp.asarray([0.0, d], dtype=share.dtype, device=share.device))
    same, apart = float(at[0]), float(at[1])
    left, right = _similarity_within(embedder, share, d), _similarity_within(embedder, 1 - share, d)
    total = (left + right) / (same + apart) if same + apart > ALIKE * same else xp.zeros_like(left)
    difference = (
        (left - right) / (same - apart) if same - apart > ALIKE * same else xp.zeros_like(left)
    )
    if normalise:
        if not bool(xp.all(xp.abs(total) > ALIKE)):
            raise problem(
                "normalise",
                "weights that sum to 0",
                "features that agree within a cell",
                "Use a finer grid.",
            )
        difference, total = difference / total, xp.ones_like(total)
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
    >>> indices, weights.round(2)
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
        Whether to blend linearly with 1 - beta and beta, independent of the embedders. One such
        blending serves all embedders.
    """

    def __init__(
        self,
        encoding: Kronecker,
        axes: Sequence[Any],
        *,
        normalise: bool = False,
        linear: bool = False,
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
        self.encoding, self.normalise, self.linear = encoding, bool(normalise), bool(linear)
        self.axes = [_even_nodes(f"axes[{i}]", axis) for i, axis in enumerate(axes)]

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
        spacing = float(nodes[-1] - nodes[0]) / (len(nodes) - 1)
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
        if self.linear:
            return xp.astype(cell, xp.int64), (1 - beta, beta)
        pair = blending_weights(
            self.encoding.embedders[axis], beta, spacing, normalise=self.normalise
        )
        return xp.astype(cell, xp.int64), pair


def virtual_axis(embedder: Embedder, low: float, high: float) -> Array:
    """Return nodes from ``low`` to ``high`` that suit an embedder, in its units.

    For local features, the nodes have the spacing of the features. Otherwise there are at least as
    many nodes as features, and enough nodes for the highest frequency.
    """
    if isinstance(embedder, LocalEmbedder):
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
