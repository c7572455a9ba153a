"""Solutions by factorisation, dense, banded or sparse, for systems of moderate size."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import scipy_linalg
from kronfield.solvers.points.dense import SINGULAR, DenseTerm, dense_solve
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import DataTerm, RowsTerm

# The most unknowns for which a factorisation is affordable: on at most two axes, and on more axes.
# On more axes the factors have more nonzero entries (fill-in).
LARGEST_PLANE, LARGEST_SPACE = 30_000, 4_500
# The same if at least MANY_SIDES right-hand sides share the factors, of features that reach as far
# as the differences of the penalty: two nodes. The factors of wider features grow with the square
# of their reach. 576 x 360 hats are factored in 3 s, and 64 right-hand sides solved in 3 s more, in
# 1.5 GB; conjugate gradients take 5 s for each if points leave gaps. 20,000 unknowns in space take
# 6 s.
MANY_SIDES, PENALTY_REACH = 16, 2
LARGEST_PLANE_FOR_MANY, LARGEST_SPACE_FOR_MANY = 220_000, 20_000
# A banded Cholesky factorisation, in LAPACK's blocks, takes about n b^2 multiplications for n
# unknowns and bandwidth b. Up to this number of multiplications it takes a half (hats) to a tenth
# (splines) of the time of a sparse factorisation, on squares of 40 to 144 nodes a side. All
# affordable planes that are nearly square need fewer.
BANDED_WORK = 4e9
# Bands with at most this many entries are cached, since the folds of a cross-validation share them.
KEPT_BAND = 1 << 20


def largest_affordable(shape: Sequence[int], right_sides: int = 1) -> int:
    """Return the most unknowns that are factored on a grid with the number of axes of ``shape``."""
    plane = sum(n > 1 for n in shape) <= 2
    if right_sides >= MANY_SIDES:
        return LARGEST_PLANE_FOR_MANY if plane else LARGEST_SPACE_FOR_MANY
    return LARGEST_PLANE if plane else LARGEST_SPACE


def affordable(shape: Sequence[int], right_sides: int = 1, taps: Sequence[int] = ()) -> bool:
    """Return whether a grid is small enough to be factored.

    ``taps`` are the features of a row on each axis; they count for many right-hand sides.
    """
    n = float(math.prod(shape))
    if right_sides >= MANY_SIDES:
        n *= (max([PENALTY_REACH, *(t - 1 for t in taps)]) / PENALTY_REACH) ** 2
    return n <= largest_affordable(shape, right_sides)


def direct_solve(
    term: DataTerm, penalty: DifferencePenalty, b: Array, band: Array | None = None
) -> Array | None:
    """Return the solution (C, K_1, ..., K_D), or None if the matrix is singular to rounding.

    ``band`` is `data_band` of the term, if it has been computed already.
    """
    if isinstance(term, DenseTerm):
        return dense_solve(term.matrix + sparse_penalty(penalty).toarray(), b)
    if band is None:
        band = data_band(term, penalty.shape)
    # a first axis that wraps has entries far from the diagonal
    if len(band) and not penalty.wraps[0]:
        return _banded_solve(band, penalty, b)
    return sparse_solve(term, penalty, b)


def data_band(term: DataTerm, shape: Sequence[int]) -> Array:
    """Return the lower diagonals of the data term, (bandwidth + 1, n); (0, n) if that is too wide.

    Neighbours on the first axis are prod(shape[1:]) unknowns apart. Second differences reach two
    neighbours: the bandwidth is twice that.
    """
    n, reach = math.prod(shape), 2 * math.prod(shape[1:])
    if isinstance(term, Stencil) and term.wraps[0]:
        return np.empty((0, n))
    # on a line the planes of a stencil are the diagonals
    if len(shape) == 1 and isinstance(term, Stencil):
        return np.stack(
            [term.planes[(offset,)] for offset in range(min(len(term.planes), n))]
        ).astype(np.float64)
    if n * reach**2 > BANDED_WORK or isinstance(term, DenseTerm):
        return np.empty((0, n))
    return lower_band(sparse_term(term, shape))


def lower_band(matrix: Any) -> Array:
    """Return the lower diagonals of a symmetric sparse matrix: band[i - j, j] = matrix[i, j]."""
    entries = _lower_entries(matrix)
    # LAPACK expects column-major order
    band = np.zeros((int(entries[0].max(initial=0)) + 1, matrix.shape[1]), order="F")
    np.add.at(band, entries[:2], entries[2])
    return band


def _lower_entries(matrix: Any) -> tuple[Array, Array, Array]:
    """Return (row - column, column, value) of the entries on and below the diagonal."""
    entries = matrix.tocoo()
    lower = entries.row >= entries.col
    offsets, columns = (entries.row - entries.col)[lower], entries.col[lower]
    return offsets, columns, entries.data[lower]


def factored_band(data: Array, penalty: DifferencePenalty) -> Array | None:
    """Return the Cholesky factor of a band plus a penalty, as a band; None if it is singular."""
    linalg = scipy_linalg()
    factor, failed = linalg.lapack.dpbtrf(_sum_band(data, penalty), lower=1, overwrite_ab=1)
    if failed:
        return None
    pivots = factor[0] ** 2
    return np.asarray(factor) if pivots.min() > SINGULAR * pivots.max() else None


def _banded_solve(data: Array, penalty: DifferencePenalty, b: Array) -> Array | None:
    factor = factored_band(data, penalty)
    if factor is None:
        return None
    flat = np.ascontiguousarray(b.reshape(len(b), -1).T, dtype=np.float64)
    solved, _ = scipy_linalg().lapack.dpbtrs(factor, flat, lower=1)
    return np.ascontiguousarray(solved.T).reshape(b.shape).astype(b.dtype)


def _sum_band(data: Array, penalty: DifferencePenalty) -> Array:
    """Return the sum of a band and a penalty, as a new band."""
    n = math.prod(penalty.shape)
    # second differences reach two neighbours on the first axis
    rows = max(len(data), min(2 * math.prod(penalty.shape[1:]) + 1, n))
    if len(penalty.shape) == 1 or rows * n <= KEPT_BAND:
        band = penalty_band(penalty, len(data)).copy("F")
        band[: len(data)] += data
        return band
    band = np.zeros((rows, n), order="F")
    band[: len(data)] = data
    offsets, columns, values = _lower_entries(sparse_penalty(penalty))
    np.add.at(band, (offsets, columns), values)
    return band


def penalty_band(penalty: DifferencePenalty, least: int) -> Array:
    """Return at least ``least`` lower diagonals of a penalty, cached: do not modify them."""
    own = penalty
    return _penalty_band(
        own.shape, own.spacings, own.first, own.second, own.ridge, least, own.wraps
    )


# The last two are cached: all folds of a cross-validation use the same penalty.
@functools.lru_cache(maxsize=2)
def _penalty_band(
    shape: tuple[int, ...],
    spacings: tuple[float, ...],
    first: float,
    second: float,
    ridge: float,
    least: int,
    wraps: tuple[bool, ...],
) -> Array:
    """Return the penalty as a band with at least ``least`` diagonals."""
    parts = [
        (weight, part)
        for weight, part in zip(
            (first, second), _penalty_bands(shape, spacings, wraps), strict=True
        )
        if weight
    ]
    band = np.zeros((max([least, *(len(part) for _, part in parts)]), math.prod(shape)), order="F")
    band[0] = ridge
    for weight, part in parts:
        band[: len(part)] += weight * part
    return band


@functools.lru_cache(maxsize=8)
def _penalty_bands(
    shape: tuple[int, ...], spacings: tuple[float, ...], wraps: tuple[bool, ...]
) -> tuple[Array, Array]:
    """Return the penalties on first and on second derivatives, each of weight 1, as bands."""
    first = DifferencePenalty(shape, spacings, first=1.0, wraps=wraps)
    second = DifferencePenalty(shape, spacings, second=1.0, wraps=wraps)
    if len(shape) == 1:
        return _line_band(first), _line_band(second)
    return lower_band(sparse_penalty(first)), lower_band(sparse_penalty(second))


def _line_band(penalty: DifferencePenalty) -> Array:
    """Return the penalty of a line as a band.

    The rows of a difference matrix D are shifted copies of one row, so that D'D is a sum of
    products of the entries of this row.
    """
    n = penalty.shape[0]
    band = np.zeros((min(n, 3), n))
    for weight, (order,) in penalty.factors():
        row = np.diff(np.eye(order + 1), n=order, axis=0)[0]  # 1; -1 1; 1 -2 1
        for j in range(order + 1):
            for i in range(order + 1 - j):
                band[j, i : n - order + i] += weight * row[i] * row[i + j]
    return band


def sparse_solve(term: DataTerm, penalty: DifferencePenalty, b: Array) -> Array | None:
    """Return the solution by a sparse LU factorisation; None if the matrix is singular.

    The unknowns are in an order of minimum degree (Liu, 1985), and the factorisation is SuperLU
    (Demmel et al., 1999).
    """
    import scipy.sparse.linalg

    matrix = (sparse_term(term, penalty.shape) + sparse_penalty(penalty)).tocsc()
    try:
        factor = scipy.sparse.linalg.splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # exactly singular
        return None
    pivots = np.abs(factor.U.diagonal())
    if not pivots.min() > SINGULAR * pivots.max():
        return None
    solved = factor.solve(np.ascontiguousarray(b.reshape(len(b), -1).T, dtype=np.float64))
    return np.ascontiguousarray(solved.T).reshape(b.shape).astype(b.dtype)


def sparse_penalty(penalty: DifferencePenalty) -> Any:
    """Return the penalty as a SciPy sparse array."""
    n = math.prod(penalty.shape)
    import scipy.sparse

    total = scipy.sparse.csr_array((n, n))
    for weight, orders in penalty.factors():
        total = total + weight * _squared_differences(penalty.shape, orders, penalty.wraps)
    return total


@functools.lru_cache(maxsize=32)
def _squared_differences(
    shape: tuple[int, ...], orders: tuple[int, ...], wraps: tuple[bool, ...]
) -> Any:
    """Return D'D of differences of ``orders``: the Kronecker product of one matrix per axis."""
    import scipy.sparse

    result = scipy.sparse.csr_array(np.ones((1, 1)))
    for n, order, wrap in zip(shape, orders, wraps, strict=True):
        row = np.diff(np.eye(order + 1), n=order, axis=0)[0]
        rows = n if wrap else n - order
        D = scipy.sparse.diags_array(row, offsets=np.arange(order + 1), shape=(rows, rows + order))
        if wrap and order:  # the last rows continue at the first columns
            wide = D.tocsr()
            ends = scipy.sparse.hstack([wide[:, n:], scipy.sparse.csr_array((n, n - order))])
            D = wide[:, :n] + ends
        result = scipy.sparse.kron(result, D.T @ D, format="csr")
    return result


def sparse_term(term: DataTerm, shape: Sequence[int]) -> Any:
    """Return the data term as a SciPy sparse array."""
    import scipy.sparse

    if isinstance(term, DenseTerm):
        return scipy.sparse.csr_array(term.matrix)
    if isinstance(term, RowsTerm):
        rows = term.rows.astype(np.float64)
        weighted = rows if term.weights is None else rows.multiply(term.weights[:, None]).tocsr()
        return rows.T @ weighted
    assert isinstance(term, Stencil)
    index = np.arange(math.prod(shape)).reshape(tuple(shape))
    total = scipy.sparse.csr_array((index.size, index.size))
    for offset in term.live:
        for here, there in term.pairs(offset):
            entries = (
                term.planes[offset][here].ravel().astype(np.float64),
                (index[here].ravel(), index[there].ravel()),
            )
            part = scipy.sparse.csr_array(entries, shape=total.shape)
            total = total + (part if not any(offset) else part + part.T)
    return total
