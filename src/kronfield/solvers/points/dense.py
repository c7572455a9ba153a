"""B'WB as a dense matrix, for a few wide features, most of which are within reach of each point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import scipy_linalg
from kronfield.solvers.points.rows import AxisRows

# A dense matrix is used for at most MOST_FEATURES features. Rows are computed in chunks of CHUNK
# numbers, to bound the memory.
MOST_FEATURES, CHUNK = 2500, 1 << 21
# A matrix is singular to rounding if a pivot is below this fraction of the largest.
SINGULAR = 1e-14


class DenseTerm:
    """B'WB (n, n), summed over points."""

    def __init__(self, n: int) -> None:
        self.matrix = np.zeros((n, n))

    @property
    def diagonal(self) -> Array:
        """The diagonal of B'WB, (n,)."""
        return np.diagonal(self.matrix)

    def apply(self, tensor: Array, out: Array | None = None) -> Array:
        """Return the product with ``tensor`` (C, K_1, ..., K_D), in a new array or in ``out``."""
        product = (
            (tensor.reshape(len(tensor), -1) @ self.matrix)
            .reshape(tensor.shape)
            .astype(tensor.dtype, copy=False)
        )
        if out is None:
            return product
        out[...] = product
        return out

    def add(
        self, runs: Sequence[AxisRows], shape: Sequence[int], weights: Array | None, values: Array
    ) -> Array:
        """Add the rows of points, times their weights; return B'Wy (C, n) of values (C, P)."""
        rhs = np.zeros((len(values), len(self.matrix)))
        P = len(runs[0].first)
        step = max(1, CHUNK // len(self.matrix))
        for start in range(0, P, step):
            part = slice(start, start + step)
            rows = dense_rows([run.part(part) for run in runs], shape)
            weighted = rows if weights is None else rows * weights[part, None]
            self.matrix += gram(rows, weighted)
            rhs += values[:, part] @ weighted
        return rhs


def gram(rows: Array, others: Array | None = None) -> Array:
    """Return the product rows' others; rows' rows if ``others`` is None."""
    return rows.T @ (rows if others is None else others)


def dense_rows(runs: Sequence[AxisRows], shape: Sequence[int]) -> Array:
    """Return the rows (P, K_1 ... K_D) of points from their features on each axis."""
    rows = np.ones((len(runs[0].first), 1))
    for run, size in zip(runs, shape, strict=True):
        axis = np.zeros((len(rows), size))
        columns = np.stack([run.index(i) for i in range(run.taps)], axis=1)
        np.put_along_axis(axis, columns, run.values.T, axis=1)
        rows = (rows[:, :, None] * axis[:, None, :]).reshape(len(rows), -1)
    return rows


def dense_solve(matrix: Array, b: Array) -> Array | None:
    """Return the solution (C, K_1, ..., K_D) by Cholesky; None if the matrix is singular."""
    linalg = scipy_linalg()

    try:
        factor: tuple[Any, bool] = linalg.cho_factor(matrix, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    pivots = np.diagonal(factor[0]) ** 2
    if not pivots.min() > SINGULAR * pivots.max():
        return None
    flat = np.ascontiguousarray(b.reshape(len(b), -1).T, dtype=np.float64)
    solved = linalg.cho_solve(factor, flat, check_finite=False)
    return np.ascontiguousarray(solved.T).reshape(b.shape).astype(b.dtype)


def fits(shape: Sequence[int], taps: Sequence[int]) -> bool:
    """Return whether a dense matrix is small enough, and no larger than a stencil."""
    n = math.prod(shape)
    return n <= min(MOST_FEATURES, math.prod(2 * t - 1 for t in taps))
