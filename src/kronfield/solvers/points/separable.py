"""A preconditioner from a complete grid whose axes may be uneven, for data that are nearly one.

On a complete grid of samples, with weights that are products of one factor per axis, B'WB is a
Kronecker product of one matrix G per axis. Where that holds only nearly (weights that differ by a
small factor, a few missing samples), the product of the marginals of B'WB is close to it.
`disproportion` measures how close.

On each axis, the generalised eigenvectors of G and of the roughness make both matrices diagonal.
The products of these vectors make the data term of the complete grid diagonal, and the penalty,
which is a sum of several Kronecker products, nearly so: the preconditioner keeps its diagonal. An
axis on which there are more features than samples has vectors that the data do not see; the
penalty alone decides there, and its diagonal is exact for each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.points.penalty import DifferencePenalty

# The roughness of an axis is that of first differences, plus this multiple of their mean diagonal:
# without it constants would have none. Measured: with 0.01 or 1 iterations change by up to twice.
LEVEL = 0.1


@record(eq=False)
class AxisVectors:
    """The generalised eigenvectors of one axis, which no penalty changes.

    Attributes
    ----------
    vectors : array (K, K)
        The vectors in columns, of norm 1.
    data : array (K,)
        The data term of each vector, for data whose sum is 1.
    energies : sequence of arrays (K,)
        The squares of each vector and of its first and second differences.
    """

    vectors: Array
    data: Array
    energies: Sequence[Array]

    @classmethod
    def of(cls, gram: Array) -> AxisVectors:
        """Return the vectors for a marginal of B'WB (`marginals`)."""
        import scipy.linalg

        n, share = len(gram), gram / (float(gram.sum()) or 1.0)
        orders = [np.diff(np.eye(n), n=order, axis=0) for order in (0, 1, 2)]
        rough = orders[1].T @ orders[1]
        rough += LEVEL * float(np.trace(rough)) / n * np.eye(n)
        _, vectors = scipy.linalg.eigh(share, rough)
        vectors /= np.sqrt(np.sum(vectors**2, axis=0))
        data = np.sum(vectors * (share @ vectors), axis=0).clip(0.0)
        return cls(vectors, data, [np.sum((order @ vectors) ** 2, axis=0) for order in orders])


@record(eq=False)
class CompleteGrid:
    """The product with the preconditioner: V (diagonal of V'AV)^-1 V', V a Kronecker product.

    Attributes
    ----------
    vectors : sequence of arrays (K, K)
        The generalised eigenvectors of each axis, in columns.
    inverse : array (K_1, ..., K_D)
        One over the diagonal of the system in these vectors.
    """

    vectors: Sequence[Array]
    inverse: Array

    @classmethod
    def of(
        cls, axes: Sequence[AxisVectors], total: float, penalty: DifferencePenalty, dtype: Any
    ) -> CompleteGrid:
        """Return the preconditioner for ``total``, the sum of all of B'WB, and a penalty."""
        diagonal: Array = total * functools.reduce(np.multiply.outer, [axis.data for axis in axes])
        for weight, orders in penalty.factors():
            parts = [axis.energies[order] for axis, order in zip(axes, orders, strict=True)]
            diagonal += weight * functools.reduce(np.multiply.outer, parts)
        smallest = max(float(np.finfo(dtype).tiny) * 1e6, 1e-14 * float(diagonal.max()))
        inverse = (1.0 / np.maximum(diagonal, smallest)).astype(dtype)
        return cls([axis.vectors.astype(dtype) for axis in axes], inverse)

    def __call__(self, r: Array, out: Array | None = None) -> Array:
        """Return the preconditioned residual of planes (C, K_1, ..., K_D)."""
        z = r
        for axis, V in enumerate(self.vectors, start=1):
            z = apply(V.T, z, axis)
        z = z * self.inverse
        for axis, V in enumerate(self.vectors, start=1):
            z = apply(V, z, axis)
        if out is None:
            return np.ascontiguousarray(z)
        out[...] = z
        return out


def marginals(term: Any, shape: Sequence[int], taps: Sequence[int], dtype: Any) -> list[Array]:
    """Return, for each axis, B'WB summed over the rows and columns of all other axes, (K, K).

    Features on an axis overlap if they are less than ``taps`` apart. The columns that are
    2 taps - 1 apart are therefore found in one product.
    """
    found = []
    for axis, (n, T) in enumerate(zip(shape, taps, strict=True)):
        apart = min(2 * T - 1, n)
        others = tuple(i for i in range(len(shape)) if i != axis)
        gram = np.zeros((n, n))
        for first in range(apart):
            comb = np.zeros((1, *shape), dtype=dtype)
            comb[(slice(None),) * (axis + 1) + (slice(first, None, apart),)] = 1.0
            sums = term.apply(comb)[0].sum(axis=others, dtype=np.float64)
            for j in range(first, n, apart):
                near = slice(max(j - T + 1, 0), j + T)
                gram[near, j] = sums[near]
        found.append((gram + gram.T) / 2)
    return found


def disproportion(mass: Array, stiffness: float) -> float:
    """Return how far data are from a complete grid: 1 if they are, and more if they are not.

    It is the largest over the smallest ratio of the weight at a node to the weight that the
    complete grid has there, with the mean diagonal ``stiffness`` of the penalty added to both. The
    number of iterations grows with its square root.

    Parameters
    ----------
    mass : array (K_1, ..., K_D)
        The sum of each row of B'WB.
    stiffness : float
        The mean diagonal of the penalty.
    """
    total = float(mass.sum(dtype=np.float64))
    if not total > 0 or not stiffness > 0:
        return float("inf")
    axes = range(mass.ndim)
    sums = [
        mass.sum(axis=tuple(i for i in axes if i != axis), dtype=np.float64) / total
        for axis in axes
    ]
    complete = total * functools.reduce(np.multiply.outer, sums)
    ratio = (mass + stiffness) / (complete + stiffness)
    return float(ratio.max() / ratio.min())
