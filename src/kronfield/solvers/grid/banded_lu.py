"""The inverse of a square banded matrix, as solves with its LU factors."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.threads import in_threads, scipy_linalg, with_one_blas_thread

# Entries below this are left out of the band: the rows sum to 1, so they are rounding.
NEGLIGIBLE = 1e-16
# A matrix counts as the identity if no entry differs from it by more than this, or by the rounding
# of the positions, which grows with the number of samples.
IDENTITY = 1e-12
# Numbers in a part of the lines: it stays in the cache, and a thread of its own saves time.
PART = 1 << 16


@dataclass(frozen=True, eq=False)
class BandedSolve:
    """The inverse of an (N, N) matrix with a few diagonals, applied by LAPACK's gbtrs.

    Attributes
    ----------
    factors : float64 array
        The LU factors as LAPACK's gbtrf returns them.
    pivots : int array of shape (N,)
        The row exchanges.
    lower, upper : int
        The number of diagonals below and above the main diagonal.
    dtype : dtype
        float32 or float64: that of the solves and of their results.
    is_identity : bool
        Whether the matrix is the identity.
    """

    factors: Array
    pivots: Array
    lower: int
    upper: int
    dtype: np.dtype[Any]
    is_identity: bool = False

    @classmethod
    @with_one_blas_thread
    def of(cls, first: Array, values: Array, dtype: Any = np.float64) -> BandedSolve | None:
        """Factor the matrix whose row i has ``values[:, i]`` from column ``first[i]`` on.

        Return None if it is singular.
        """
        N = len(first)
        row = np.arange(N)
        offsets = first - row + np.arange(len(values))[:, None]  # column minus row, (T, N)
        kept = np.abs(values) > NEGLIGIBLE
        if not kept.any():
            return None
        lower = max(0, -int(offsets[kept].min()))
        upper = max(0, int(offsets[kept].max()))
        band = np.zeros((2 * lower + upper + 1, N), order="F")
        for offset, value, some in zip(offsets, values, kept, strict=True):
            band[lower + upper - offset[some], (row + offset)[some]] = value[some]
        slack = max(IDENTITY, 8 * N * np.finfo(np.float64).eps)
        away = np.where(offsets == 0, np.abs(values - 1.0), np.abs(values))
        is_identity = bool(away.max() < slack)
        lapack = scipy_linalg().lapack
        factors, pivots, info = lapack.dgbtrf(band, lower, upper, overwrite_ab=True)
        if info != 0:
            return None
        return cls(factors, pivots, lower, upper, np.dtype(dtype), is_identity)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return len(self.pivots), len(self.pivots)

    def astype(self, dtype: Any) -> BandedSolve:
        """Return the same inverse with results of another dtype."""
        return replace(self, dtype=np.dtype(dtype))

    @functools.cached_property
    def _solver(self) -> Any:
        """Return the routine that solves lines in place: (lines, N), C-contiguous, of the dtype."""
        lapack = scipy_linalg().lapack
        gbtrs = lapack.sgbtrs if self.dtype == np.float32 else lapack.dgbtrs
        factors = np.asfortranarray(self.factors.astype(self.dtype, copy=False))

        def solve(lines: Array) -> None:
            solved, _ = gbtrs(
                factors, self.lower, self.upper, lines.T, self.pivots, overwrite_b=True
            )
            if not np.shares_memory(solved, lines):
                lines[:] = solved.T

        return solve

    @with_one_blas_thread
    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with the inverse along ``axis`` of ``tensor``, of length N.

        The result has the dtype of the operator.
        """
        N = self.shape[0]
        if tensor.shape[axis] != N:
            raise problem(
                "tensor", f"shape {tensor.shape}", f"length {N} on axis {axis}", "Check the axis."
            )
        if self.is_identity:
            return tensor.astype(self.dtype, copy=False)
        before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
        flat = tensor.reshape(before, N, after)
        out = np.empty((before, N, after), dtype=self.dtype)
        solve = self._solver
        step = max(1, PART // N)

        def on_lines(some: slice) -> None:
            out[some] = flat[some]
            solve(out[some, :, 0])

        def on_columns(part: tuple[int, slice]) -> None:
            i, some = part
            lines = np.array(flat[i, :, some].T, dtype=self.dtype, order="C")
            solve(lines)
            out[i, :, some] = lines.T

        if after == 1:
            in_threads(on_lines, [slice(a, a + step) for a in range(0, before, step)])
        else:
            columns = [slice(a, a + step) for a in range(0, after, step)]
            in_threads(on_columns, [(i, some) for i in range(before) for some in columns])
        return out.reshape(tensor.shape)
