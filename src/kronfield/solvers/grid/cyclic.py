"""The inverse of one periodic axis: by FFT if samples are evenly spaced, else as a cyclic band."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield.embedders import Dirichlet, Embedder, Wrapped
from kronfield.solvers.grid.banded_lu import BandedSolve
from kronfield.solvers.points.rows import axis_run, taps_in_reach

# Samples are evenly spaced if their gaps differ by less than this fraction. The error of the fit at
# the samples is then about this fraction of the change over a gap.
SAME = 1e-10
# The rounding error of a position on the unit interval.
ROUNDING = 4e-16
# Numbers that are transformed at a time, to bound the memory: 32 MB of complex numbers.
NUMBERS = 1 << 21
# The largest residual of a cyclic band, relative to its right-hand side.
AGREEMENT = 1e-9


@record(eq=False)
class CirculantSolve:
    """The pseudo-inverse of a circulant matrix: a division of Fourier coefficients.

    Attributes
    ----------
    gains : complex array of shape (N // 2 + 1,)
        The inverses of the eigenvalues; 0 for eigenvalues that count as zero.
    count : int
        The number N of samples.
    dtype : dtype
        float32 or float64.
    """

    gains: Array
    count: int
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return self.count, self.count

    @property
    def is_identity(self) -> bool:
        """Whether the matrix is the identity."""
        return bool(np.abs(self.gains - 1.0).max() < 1e-14)

    def astype(self, dtype: Any) -> CirculantSolve:
        """Return the operator in another dtype."""
        return replace(self, dtype=np.dtype(dtype))

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product along ``axis``."""
        from scipy import fft

        if tensor.shape[axis] != self.count:
            raise problem(
                "tensor",
                f"shape {tensor.shape}",
                f"length {self.count} on axis {axis}",
                "Check the axis.",
            )
        if self.is_identity:
            return tensor.astype(self.dtype, copy=False)
        before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
        flat = tensor.reshape(before, self.count, after)
        out = np.empty(flat.shape, dtype=self.dtype)
        rows = max(1, NUMBERS // max(self.count * after, 1))
        columns = max(1, NUMBERS // self.count)
        gains = self.gains.astype(np.result_type(self.dtype, np.complex64))[:, None]
        for i in range(0, before, rows):
            for j in range(0, after, columns):
                part = (slice(i, i + rows), slice(None), slice(j, j + columns))
                hat = fft.rfft(flat[part].astype(self.dtype, copy=False), axis=1)
                hat *= gains
                out[part] = fft.irfft(hat, n=self.count, axis=1)
        return out.reshape(tensor.shape)


@record(eq=False)
class CyclicSolve:
    """The inverse of a cyclic band: a band B plus corners, which are a low-rank change.

    For A = B + E G, with the unit columns E of the rows that have corner entries G,
    A^-1 = B^-1 - B^-1 E (1 + G B^-1 E)^-1 G B^-1 (Woodbury, 1950).

    Attributes
    ----------
    band : BandedSolve
        B^-1.
    shift : int
        The number of places by which the columns were rolled to centre the band on the diagonal.
    corners : array (r, N)
        G.
    back : array (N, r)
        B^-1 E (1 + G B^-1 E)^-1.
    """

    band: BandedSolve
    shift: int
    corners: Array
    back: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N)."""
        return self.band.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return self.band.dtype

    def astype(self, dtype: Any) -> CyclicSolve:
        """Return the operator in another dtype."""
        return replace(
            self,
            band=self.band.astype(dtype),
            corners=self.corners.astype(dtype),
            back=self.back.astype(dtype),
        )

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product along ``axis``."""
        solved = self.band.apply(tensor, axis)
        if len(self.corners):
            before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
            if not solved.flags.writeable or np.may_share_memory(solved, tensor):
                solved = solved.copy()
            lines = solved.reshape(before, -1, after)
            used = np.flatnonzero(np.any(self.corners != 0, axis=0))
            for line in lines:
                line -= self.back @ (self.corners[:, used] @ line[used])
        return np.roll(solved, self.shift, axis=axis) if self.shift else solved


def circulant_inverse(
    embedder: Embedder, x: Array, rcond: float
) -> tuple[CirculantSolve, int, float] | None:
    """Return the inverse, its rank and condition; None unless features and samples are even."""
    N = len(x)
    alike = isinstance(embedder, Dirichlet) or (isinstance(embedder, Wrapped) and embedder.is_even)
    if not alike or embedder.size != N:
        return None
    slack = max(SAME / N, ROUNDING * max(1.0, float(np.abs(x).max())))
    if np.abs(x - x[0] - np.arange(N) / N).max() > slack:
        return None
    # sample i has the features of sample 0, rolled by i: y = P w is a correlation with that row
    eigenvalues = np.conj(np.fft.rfft(np.asarray(embedder(x[:1]))[0]))
    sizes = np.abs(eigenvalues)
    kept = sizes > max(rcond, 1e-14) * sizes.max()
    gains = np.zeros_like(eigenvalues)
    gains[kept] = 1.0 / eigenvalues[kept]
    # each frequency stands for two eigenvalues, except the first and, if N is even, the last
    twice = np.full(len(sizes), 2)
    twice[0] = 1
    if N % 2 == 0:
        twice[-1] = 1
    condition = float(sizes.max() / sizes[kept].min())
    return CirculantSolve(gains, N, np.dtype(np.float64)), int(twice[kept].sum()), condition


def cyclic_inverse(embedder: Embedder, x: Array) -> CyclicSolve | None:
    """Return the inverse of as many local features as samples; None if that is not possible."""
    N, taps = len(x), taps_in_reach(embedder)
    if not isinstance(embedder, Wrapped) or embedder.size != N or taps is None or 4 * taps > N:
        return None
    run = axis_run(embedder, x)
    shift = int(np.median(run.first + np.argmax(run.values, axis=0) - np.arange(N)))
    rows = np.repeat(np.arange(N)[None, :], taps, axis=0)  # (T, N)
    columns = (run.first + np.arange(taps)[:, None] - shift) % N
    near = np.abs(columns - rows) <= N // 2
    first = np.clip(run.first - shift, 0, None)
    band = np.where(near, run.values, 0.0)
    # runs of the first and last rows are clipped to columns 0 to N - 1: move their entries
    if np.any(np.diff(x) <= 0):
        return None
    moved = np.zeros_like(band)
    at = columns - np.minimum(first, N - taps)[None, :]
    inside = near & (at >= 0) & (at < taps)
    if np.any(near & ~inside & (run.values != 0)):
        return None
    tap, row = np.nonzero(inside)
    moved[at[tap, row], row] = band[tap, row]
    solve = BandedSolve.of(np.minimum(first, N - taps), moved)
    if solve is None:
        return None
    cut = np.flatnonzero(np.any(~near & (run.values != 0), axis=0))
    corners = np.zeros((len(cut), N))
    for number, i in enumerate(cut.tolist()):
        far = ~near[:, i]
        corners[number, columns[far, i]] = run.values[far, i]
    unit = np.zeros((N, len(cut)))
    unit[cut, np.arange(len(cut))] = 1.0
    back = solve.apply(unit, 0) if len(cut) else unit
    small = np.eye(len(cut)) + corners @ back
    if len(cut) and np.linalg.cond(small) > 1e12:
        return None
    operator = CyclicSolve(solve, shift, corners, back @ np.linalg.inv(small))
    return operator if _solves(operator, run.values, run.first, N) else None


def _solves(operator: CyclicSolve, values: Array, first: Array, N: int) -> bool:
    """Return whether the inverse reproduces alternating samples, and samples of 1."""
    taps = np.arange(len(values))[:, None]
    for right in ((-1.0) ** np.arange(N), np.ones(N)):
        weights = operator.apply(right, 0)
        left = np.sum(values * weights[(first + taps) % N], axis=0)
        if not np.abs(left - right).max() < AGREEMENT:
            return False
    return True
