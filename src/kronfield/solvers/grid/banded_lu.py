"""The inverse of a square banded matrix, as solves with its LU factors.

A few lines are solved by LAPACK, which processes one row at a time. Many lines are solved faster in
blocks of rows, by matrix products.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield._core.threads import in_threads, scipy_linalg, with_one_blas_thread

# Entries up to this are left out of the band. They are rounding: the rows of B-splines sum to 1.
NEGLIGIBLE = 1e-16
# A matrix is the identity if no entry differs from it by more than IDENTITY, or by ROUNDING per
# sample: rounding errors of positions are relative to the distance between samples.
IDENTITY, ROUNDING = 1e-12, 2e-15
# Up to this many lines are solved by LAPACK.
FEW_LINES = 8
# Rows in a block.
ROWS = 32
# Lines are copied until a product has this many columns: BLAS is slow on fewer.
FEW_COLUMNS = 64
# The number of multiplications for which a separate thread saves time.
WORTH_A_THREAD = 1 << 23
# The largest difference between the solutions by blocks and by LAPACK, relative to the solution.
AGREEMENT = 1e-9


@record
class _Rows:
    """Rows ``start`` to ``stop`` of the block LU factors.

    With A_i the diagonal block, L_i the one on its left and R_i the one on its right, ``inverse``
    is S_i^-1 for the Schur complement S_i = A_i - L_i S_(i-1)^-1 R_(i-1). ``left`` is the corner of
    L_i that is not zero, None for the first rows, and ``right`` the columns of S_i^-1 R_i.
    """

    start: int
    stop: int
    inverse: Array
    left: Array | None
    right: Array

    def astype(self, dtype: np.dtype[Any]) -> _Rows:
        """Return the rows in another dtype."""
        left = None if self.left is None else self.left.astype(dtype)
        return _Rows(
            self.start, self.stop, self.inverse.astype(dtype), left, self.right.astype(dtype)
        )


@record(eq=False)
class BandedSolve:
    """The inverse of an (N, N) matrix with a few diagonals.

    Attributes
    ----------
    band : float64 array of shape (lower + upper + 1, N)
        The matrix A: entry (i, j) is ``band[upper + i - j, j]``, as in LAPACK.
    factors : float64 array
        The LU factors of LAPACK's gbtrf.
    pivots : int array of shape (N,)
        Its row exchanges.
    lower, upper : int
        The number of diagonals below and above the main diagonal.
    dtype : dtype
        float32 or float64: that of the solves and of their results.
    is_identity : bool
        Whether the matrix is the identity.
    """

    band: Array
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
        N, row = len(first), np.arange(len(first))
        shift = first - row
        kept = [np.abs(value) > NEGLIGIBLE for value in values]
        offsets = [shift[some] + tap for tap, some in enumerate(kept)]  # column minus row
        lower = max(0, *(-int(offset.min(initial=0)) for offset in offsets))
        upper = max(0, *(int(offset.max(initial=0)) for offset in offsets))
        room = np.zeros((2 * lower + upper + 1, N), order="F")  # gbtrf fills in the first rows
        flat = room.reshape(-1, order="F")
        distance = 0.0  # to the identity
        for offset, value, some in zip(offsets, values, kept, strict=True):
            entries = value[some]
            flat[(row[some] + offset) * len(room) + (lower + upper - offset)] = entries
            distance = max(distance, float(np.abs(entries - (offset == 0)).max(initial=0.0)))
        is_identity = distance <= max(IDENTITY, ROUNDING * N)
        return cls._factored(room, lower, upper, np.dtype(dtype), is_identity)

    @classmethod
    def _factored(
        cls, room: Array, lower: int, upper: int, dtype: np.dtype[Any], is_identity: bool
    ) -> BandedSolve | None:
        """Factor a band that has room for the row exchanges; None if it is singular."""
        band = room[lower:].copy(order="F")
        gbtrf = scipy_linalg().lapack.dgbtrf
        factors, pivots, info = gbtrf(room, lower, upper, overwrite_ab=True)
        if info != 0:
            return None
        return cls(band, factors, pivots, lower, upper, dtype, is_identity)

    @with_one_blas_thread
    def window(self, low: int, high: int) -> BandedSolve | None:
        """Return the inverse of the rows and columns ``low`` to ``high`` of the matrix.

        None if it does not exist.
        """
        room = np.zeros((self.lower + len(self.band), high - low), order="F")
        room[self.lower :] = self.band[:, low:high]
        return self._factored(room, self.lower, self.upper, self.dtype, self.is_identity)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return len(self.pivots), len(self.pivots)

    def astype(self, dtype: Any) -> BandedSolve:
        """Return the same inverse with results of another dtype."""
        return replace(self, dtype=np.dtype(dtype))

    @with_one_blas_thread
    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product of the inverse with ``axis`` of ``tensor``, of length N.

        The result has the dtype of the operator.
        """
        N = len(self.pivots)
        if tensor.shape[axis] != N:
            raise problem(
                "tensor", f"shape {tensor.shape}", f"length {N} on axis {axis}", "Check the axis."
            )
        if self.is_identity:
            return tensor.astype(self.dtype, copy=False)
        before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
        flat = tensor.reshape(before, N, after)
        blocks = None if before * after <= FEW_LINES else self._blocks
        if blocks is None:
            lines = np.array(flat.transpose(0, 2, 1), dtype=self.dtype, order="C")
            self._by_lapack(lines.reshape(-1, N))
            return np.ascontiguousarray(lines.transpose(0, 2, 1)).reshape(tensor.shape)
        out = np.empty((before, N, after), dtype=self.dtype)
        step = max(FEW_COLUMNS, WORTH_A_THREAD // (N * (ROWS + self.lower + self.upper)))

        def on_columns(part: tuple[int, slice]) -> None:
            i, some = part
            _solve(blocks, flat[i, :, some], out[i, :, some])

        def on_copies(some: slice) -> None:  # (b, N, A) as columns (N, b A), and back
            columns = np.array(flat[some].transpose(1, 0, 2), dtype=self.dtype, order="C")
            solved = np.empty_like(columns)
            _solve(blocks, columns.reshape(N, -1), solved.reshape(N, -1))
            out[some] = solved.transpose(1, 0, 2)

        if after >= FEW_COLUMNS:
            parts = [(i, some) for i in range(before) for some in _slices(after, step)]
            in_threads(on_columns, parts)
        else:
            in_threads(on_copies, _slices(before, step // after))
        return out.reshape(tensor.shape)

    def _by_lapack(self, lines: Array) -> None:
        """Solve the lines (L, N), C-contiguous and of the dtype of the operator, in place."""
        lapack = scipy_linalg().lapack
        gbtrs = lapack.sgbtrs if self.dtype == np.float32 else lapack.dgbtrs
        factors = self.factors.astype(self.dtype, order="F", copy=False)
        solved, _ = gbtrs(factors, self.lower, self.upper, lines.T, self.pivots, overwrite_b=True)
        if not np.may_share_memory(solved, lines):
            lines[:] = solved.T

    @functools.cached_property
    def _blocks(self) -> list[_Rows] | None:
        """The block LU factors, of the dtype of the operator.

        Blocks are not exchanged, which is stable for totally positive matrices (de Boor and Pinkus
        1977). None if the solution of a test line differs from that of LAPACK.
        """
        N, lower, upper = len(self.pivots), self.lower, self.upper
        count = max(1, N // max(ROWS, lower, upper))
        edges = [N * i // count for i in range(count + 1)]
        blocks: list[_Rows] = []
        for start, stop in itertools.pairwise(edges):
            schur = self._entries(start, stop, start, stop)
            left = self._entries(start, start + lower, start - lower, start) if start else None
            if left is not None:
                last = blocks[-1].right
                schur[:lower, :upper] -= left @ last[len(last) - lower :]
            try:
                inverse = np.linalg.inv(schur)
            except np.linalg.LinAlgError:
                return None
            ends = self._entries(stop - upper, stop, stop, min(stop + upper, N))
            right = inverse[:, stop - start - upper :] @ ends
            blocks.append(_Rows(start, stop, inverse, left, right))
        line = (-1.0) ** np.arange(N)
        solved = np.empty((N, 1))
        _solve(blocks, line[:, None], solved)
        self.astype(np.float64)._by_lapack(line[None])
        if not np.abs(solved[:, 0] - line).max() <= AGREEMENT * np.abs(line).max():
            return None
        return [block.astype(self.dtype) for block in blocks]

    def _entries(self, top: int, bottom: int, left: int, right: int) -> Array:
        """Return the rows ``top`` to ``bottom`` of the columns ``left`` to ``right``, dense."""
        column = np.arange(left, right)
        diagonal = self.upper + np.arange(top, bottom)[:, None] - column
        inside = (diagonal >= 0) & (diagonal < len(self.band))
        return np.where(inside, self.band[np.where(inside, diagonal, 0), column], 0.0)


def _solve(blocks: list[_Rows], given: Array, out: Array) -> None:
    """Write the solution for the right-hand sides ``given`` (N, L) to ``out`` (N, L)."""
    # forwards z_i = S_i^-1 (r_i - L_i z_(i-1)), then backwards x_i = z_i - S_i^-1 R_i x_(i+1)
    for block in blocks:
        rows = slice(block.start, block.stop)
        some = given[rows].astype(out.dtype, copy=block.left is not None)
        if block.left is not None:
            lower = len(block.left)
            some[:lower] -= block.left @ out[block.start - lower : block.start]
        np.matmul(block.inverse, some, out=out[rows])
    for block in blocks[-2::-1]:
        out[block.start : block.stop] -= (
            block.right @ out[block.stop : block.stop + block.right.shape[1]]
        )


def _slices(count: int, step: int) -> list[slice]:
    """Return slices of ``count`` items, of about ``step`` items each and all of one size."""
    parts = max(1, round(count / max(step, 1)))
    return [slice(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


@record(eq=False)
class FactoredInverse:
    """A pseudo-inverse as two factors, for ill-conditioned fits.

    In the product (V / s) U' of an ill-conditioned fit all digits are lost to rounding. If U' and
    V / s are applied in turn, the fit is accurate at the samples.
    """

    back: Array  # (K, r): V / s
    coefficients: Array  # (r, N): U'

    @property
    def shape(self) -> tuple[int, int]:
        """(K, N)."""
        return self.back.shape[0], self.coefficients.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the results: float64."""
        return self.back.dtype

    def astype(self, dtype: Any) -> FactoredInverse:
        """Return the same inverse: its weights need float64."""
        del dtype
        return self

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of ``tensor``."""
        # imported here, since only this class needs it
        from kronfield.solvers.grid.banded import dense_apply

        return dense_apply(self.back, dense_apply(self.coefficients, tensor, axis), axis)


@record(eq=False)
class SolveWithEnds:
    """The inverse of samples with ``count`` conditions of right-hand side 0 at either end."""

    inner: BandedSolve
    count: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(N + 2 count, N)."""
        return self.inner.shape[0], self.inner.shape[0] - 2 * self.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the results."""
        return self.inner.dtype

    def astype(self, dtype: Any) -> SolveWithEnds:
        """Return the same inverse with results of another dtype."""
        return SolveWithEnds(self.inner.astype(dtype), self.count)

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of ``tensor``, which becomes longer."""
        N = self.shape[1]
        if tensor.shape[axis] != N:
            raise problem(
                "tensor", f"shape {tensor.shape}", f"length {N} on axis {axis}", "Check the axis."
            )
        more = (self.count, self.count)
        sides = [more if i == axis else (0, 0) for i in range(tensor.ndim)]
        return self.inner.apply(np.pad(tensor, sides), axis)
