"""The linear systems of scattered points, as conjugate gradients need them.

The data term B'WB has two sparse forms. A stencil on the grid of weights has a size that does not
depend on the number of points. The sparse rows B themselves are smaller if there are few points and
many features.

Systems are solved in one of two spaces. `LocalSystem` has the weights of local features as
unknowns, preconditioned by the system of a complete grid or by the diagonal. `BasisSystem` has the
coefficients in the eigenbasis of any encoding as unknowns, and its rows are blended.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import cell_centres
from kronfield._core.records import record
from kronfield._core.slabs import SEVERAL, SLAB, each_slab, multiplied
from kronfield._core.threads import in_threads, threads
from kronfield.embedders import BSpline, Embedder, LocalEmbedder, Wrapped
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.basis import AxisBasis
from kronfield.solvers.points.multilevel import Multilevel
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.rows import AxisRows
from kronfield.solvers.points.separable import CompleteGrid
from kronfield.solvers.points.stencil import Stencil

# The fast cosine transform is slow for lengths with a prime factor above SMOOTH. Such axes are
# transformed by a matrix product if their length is at most MATRIX_UP_TO.
SMOOTH, MATRIX_UP_TO = 13, 2048
# A penalty is weak if its mean diagonal is not more than WEAK times the mean diagonal of the data
# term, taken over the nodes that have data; WEAK_ON_NODES times if all points lie on nodes.
# Measured: below these ratios the diagonal preconditioner needs fewer or cheaper iterations.
WEAK, WEAK_ON_NODES = 5.0, 0.8
# If at most the part SPARSE of the nodes have data, the preconditioner of a weak penalty also has
# the corrections of coarser grids: see `multilevel`. If all points lie on nodes too, a penalty is
# weak up to WEAK_IF_SPARSE. Measured: lattices of two and three axes of which 1 to 25 % are known
# then need a tenth to once the time of either other preconditioner.
SPARSE, WEAK_IF_SPARSE = 0.4, 2.0


class DataTerm(Protocol):
    """B'WB as an operator on planes (C, K_1, ..., K_D)."""

    @property
    def diagonal(self) -> Array:
        """The diagonal of B'WB, of any shape."""

    def apply(self, tensor: Array, out: Array | None = None) -> Array:
        """Return the product, in a new array or in ``out``."""


class RowsTerm:
    """The operator B'WB from sparse rows B (P, n) and weights (P,); the matrix is never formed."""

    def __init__(self, rows: Any, weights: Array | None) -> None:
        self.rows, self.weights = rows, weights
        parts = [_Part.of(rows, i, j) for i, j in _shares(rows)]
        # If the points are sorted along the grid, a part shares columns only with its neighbours.
        # Then every second part can be computed at the same time.
        apart = all(
            first.stop <= third.start for first, third in zip(parts, parts[2:], strict=False)
        )
        self._parts = parts if apart else [_Part.of(rows, 0, rows.shape[0])]

    @property
    def diagonal(self) -> Array:
        """The diagonal of B'WB, (n,)."""
        squares = self.rows.copy()
        squares.data **= 2
        return np.asarray(
            squares.T @ (np.ones(self.rows.shape[0]) if self.weights is None else self.weights)
        )

    def apply(self, tensor: Array, out: Array | None = None) -> Array:
        """Return B' (w (B x)) for every plane."""
        out = np.empty_like(tensor) if out is None else out
        for plane, result in zip(tensor, out, strict=True):
            x, total = plane.reshape(-1), result.reshape(-1)
            if not np.shares_memory(total, result):
                raise ValueError("out must have contiguous planes")
            each_slab(functools.partial(_clear, total), len(total), 1)
            for some in (self._parts[0::2], self._parts[1::2]):
                in_threads(
                    functools.partial(_Part.add, x=x, weights=self.weights, total=total), some
                )
        return out


def _clear(array: Array, start: int, stop: int) -> None:
    array[start:stop] = 0


def _shares(rows: Any) -> list[tuple[int, int]]:
    """Return (first, end) of parts of the rows, each of which fits the cache."""
    count = max(1, math.ceil(rows.nnz / SLAB))
    return list(itertools.pairwise(np.linspace(0, rows.shape[0], count + 1).astype(int).tolist()))


@record
class _Part:
    """Rows ``first`` to ``end``, reduced to the columns ``start`` to ``stop`` that they use.

    ``turned`` is the transpose of the matrix, which shares its numbers.
    """

    first: int
    end: int
    start: int
    stop: int
    matrix: Any
    turned: Any

    @classmethod
    def of(cls, rows: Any, first: int, end: int) -> _Part:
        import scipy.sparse

        i, j = rows.indptr[first], rows.indptr[end]
        indices = rows.indices[i:j]
        start, stop = (int(indices.min()), int(indices.max()) + 1) if j > i else (0, 0)
        pieces = (
            rows.data[i:j],
            indices - indices.dtype.type(start),
            rows.indptr[first : end + 1] - i,
        )
        matrix = scipy.sparse.csr_array(pieces, (end - first, stop - start))
        return cls(first, end, start, stop, matrix, matrix.T)

    def add(self, x: Array, weights: Array | None, total: Array) -> None:
        """Add B' (w (B x)) of these rows to ``total``, while the rows are in the cache."""
        seen = self.matrix @ x[self.start : self.stop]
        if weights is not None:
            seen *= weights[self.first : self.end]
        # SciPy multiplies by the transpose of a CSR matrix without converting it
        total[self.start : self.stop] += self.turned @ seen


class LocalSystem:
    """The system of the weights of local, evenly spaced features, with a penalty on differences.

    The preconditioner is the same system on a complete grid, with equal points in every cell. The
    cosine transform makes it diagonal. If the penalty is weak relative to the data, the diagonal is
    the preconditioner instead: a complete grid is then a poor model of the nodes without points.
    Where few nodes have data, corrections from coarser grids are added (`Multilevel`). Data
    that are nearly a complete grid with uneven axes have one of their own (`CompleteGrid`).

    Parameters
    ----------
    term : DataTerm
        B'WB.
    penalty : DifferencePenalty
        The penalty that is added to it.
    gram : sequence of arrays
        For each axis, the mean over points of the products of a feature with itself and with its
        neighbours to one side: B'B of a complete grid, per point and cell.
    density : float
        The sum of the weights of the points per cell.
    diagonal : array
        The diagonal of B'WB.
    dtype : dtype
        float32 or float64.
    in_cosines : bool, optional
        Which preconditioner to use; by default the rule with `WEAK` decides.
    complete : CompleteGrid, optional
        The preconditioner to use in place of both.
    """

    def __init__(
        self,
        term: DataTerm,
        penalty: DifferencePenalty,
        gram: Sequence[Array],
        density: float,
        diagonal: Array,
        dtype: Any,
        in_cosines: bool | None = None,
        complete: CompleteGrid | None = None,
    ) -> None:
        self.term, self._penalty, self._complete = term, penalty, complete
        on_nodes = isinstance(term, Stencil) and term.live == [(0,) * len(penalty.shape)]
        # B'WB, if it is diagonal
        self._only = diagonal if on_nodes and diagonal.dtype == dtype else None
        symbol: Array = penalty.symbol
        self._symbol = symbol.astype(dtype)
        # the mean diagonal of the penalty, without the correction at the ends, and of the data term
        self.stiffness = stiffness = float(symbol.mean())
        filled = max(int(np.count_nonzero(diagonal)), 1)
        self.data_diagonal = float(np.sum(diagonal, dtype=np.float64)) / filled
        self._flat = all(len(row) == 1 or not np.any(row[1:]) for row in gram)
        self.weak_up_to = WEAK_ON_NODES if self._flat else WEAK
        is_sparse = filled <= SPARSE * diagonal.size and not any(penalty.wraps)
        if is_sparse and self._flat:
            self.weak_up_to = WEAK_IF_SPARSE
        self.in_cosines = self._is_strong if in_cosines is None else in_cosines
        if complete is not None:
            self.in_cosines = False
        if self.in_cosines:
            own = math.prod(float(row[0]) for row in gram)
            even: Any = density * (
                own if self._flat else _toeplitz(gram, penalty.shape, penalty.wraps)
            )
            self._constant = float(even) if self._flat else 0.0
            total = symbol + even
        else:
            total = np.asarray(diagonal, dtype=np.float64) + stiffness
        smallest = max(float(np.finfo(dtype).tiny) * 1e6, 1e-14 * float(total.max()))
        self._inverse = (1.0 / np.maximum(total, smallest)).astype(dtype)
        self._levels = None
        if is_sparse and not self.in_cosines and complete is None:
            self._levels = Multilevel.of(penalty, diagonal, stiffness, self._inverse)

    @property
    def _is_strong(self) -> bool:
        return self.stiffness > self.weak_up_to * self.data_diagonal

    @property
    def has_levels(self) -> bool:
        """Whether the preconditioner has corrections from coarser grids."""
        return self._levels is not None

    @property
    def on_complete(self) -> bool:
        """Whether the preconditioner is that of a complete grid with uneven axes."""
        return self._complete is not None

    @property
    def reason(self) -> str:
        """A sentence on what decides on the preconditioner."""
        if self.on_complete:
            return "the data are nearly a complete grid"
        ratio = self.stiffness / self.data_diagonal if self.data_diagonal else math.inf
        return (
            f"the penalty adds {ratio:.3g} times the diagonal of the data, "
            f"{'more' if self._is_strong else 'not more'} than {self.weak_up_to:g}"
        )

    def data(self, x: Array, out: Array | None = None) -> Array:
        """Return B'WB x plus the part of the penalty that `penalty` leaves out.

        That is the correction at the ends if the penalty is applied in cosines, else all of it.
        """
        if not self.in_cosines and self._only is not None:
            out = np.empty_like(x) if out is None else out
            self._penalty.add_to(out, x, self._only)
            return out
        out = self.term.apply(x, out)
        if self.in_cosines:
            self._penalty.subtract_ends(out, x)
        else:
            self._penalty.add_to(out, x)
        return out

    @property
    def inverse_diagonal(self) -> Array | None:
        """One over the diagonal, if that alone is the preconditioner."""
        several = self._levels is not None or self._complete is not None
        return None if self.in_cosines or several else self._inverse

    def penalty(self, x: Array) -> Array | None:
        """Return the penalty times x in cosines, without the correction at the ends, or None."""
        return self._back(self._symbol * self._cosines(x)) if self.in_cosines else None

    def precondition(self, r: Array, out: Array | None = None) -> tuple[Array, Array | None]:
        """Return z, and the penalty times z or None.

        In cosines z = (complete grid + penalty)^-1 r; else z is r over the diagonal, plus the
        corrections of coarser grids if there are any.
        """
        if self._complete is not None:
            return self._complete(r, out), None
        if self._levels is not None:
            return self._levels(r, out), None
        if not self.in_cosines:
            return multiplied(r, self._inverse, out), None
        hat = self._cosines(r)
        hat *= self._inverse
        if self._flat:  # the penalty of z is r minus a multiple of z: no transform is needed
            z = self._back(hat)
            penalty = z * r.dtype.type(-self._constant)
            penalty += r
            return z, penalty
        penalty = self._back(hat * self._symbol)
        return self._back(hat), penalty

    def _cosines(self, x: Array) -> Array:
        return cosines(x, inverse=False, wraps=self._penalty.wraps)

    def _back(self, hat: Array) -> Array:
        return np.ascontiguousarray(cosines(hat, inverse=True, wraps=self._penalty.wraps))


def cosines(x: Array, *, inverse: bool, wraps: Sequence[bool] = ()) -> Array:
    """Return the orthonormal cosine transform of planes (C, K_1, ..., K_D), or its inverse.

    On axes that wrap it is the transform of Hartley (1942), cosines plus sines of whole periods,
    which is its own inverse and makes symmetric circulant matrices diagonal.
    """
    import scipy.fft

    round_axes = [axis for axis, wrap in enumerate(wraps, start=1) if wrap]
    for axis in round_axes:
        hat = scipy.fft.fft(x, axis=axis, norm="ortho")
        x = hat.real - hat.imag
    awkward = [
        axis
        for axis in range(1, x.ndim)
        if axis not in round_axes
        and _largest_prime(x.shape[axis]) > SMOOTH
        and x.shape[axis] <= MATRIX_UP_TO
    ]
    easy = tuple(axis for axis in range(1, x.ndim) if axis not in [*awkward, *round_axes])
    if easy:
        transform = scipy.fft.idctn if inverse else scipy.fft.dctn
        workers = threads() if x.size >= SEVERAL else 1
        x = np.asarray(transform(x, axes=easy, norm="ortho", workers=workers))
    for axis in awkward:
        matrix = _cosine_matrix(x.shape[axis], x.dtype.str)
        x = apply(matrix.T if inverse else matrix, x, axis)
    return x


def fast_size(n: int) -> int:
    """Return the smallest length of at least n with a fast cosine transform."""
    import scipy.fft

    return int(scipy.fft.next_fast_len(n, real=True))


@functools.lru_cache(maxsize=8)
def _cosine_matrix(n: int, dtype: str) -> Array:
    import scipy.fft

    return np.asarray(scipy.fft.dct(np.eye(n), axis=0, norm="ortho")).astype(dtype)


@functools.lru_cache(maxsize=1024)
def _largest_prime(n: int) -> int:
    """Return the largest prime factor of n."""
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            largest, n = factor, n // factor
        factor += 1
    return max(largest, n)


class BasisSystem:
    """The system of any encoding in its eigenbasis on a virtual grid.

    Penalty and preconditioner are diagonal there. The unknowns z give the values U z on the virtual
    grid, from which the values at points are blended, and the weights back z.
    """

    def __init__(
        self,
        term: DataTerm,
        bases: Sequence[AxisBasis],
        penalty: Array,
        strength: Array,
        density: float,
    ) -> None:
        self.term, self.bases, self.symbol = term, bases, penalty
        self._strength = strength  # multiplies z before U: singular values for a ridge, else 1
        total = penalty + density * strength**2
        self.largest = density * float(np.max(strength)) ** 2
        self._inverse = 1.0 / np.maximum(total, 1e-14 * float(total.max()))

    def data(self, x: Array, out: Array | None = None) -> Array:
        """Return the data term in the eigenbasis."""
        del out
        return self.adjoint(self.term.apply(self.forward(x)))

    @property
    def inverse_diagonal(self) -> Array | None:
        """None: the preconditioner also returns the penalty."""
        return None

    def forward(self, x: Array) -> Array:
        """Return values on the virtual grid."""
        x = x * self._strength
        for axis, basis in enumerate(self.bases, start=1):
            x = apply(basis.U, x, axis)
        return x

    def adjoint(self, values: Array) -> Array:
        """Return the transpose of `forward` times values on the virtual grid."""
        for axis, basis in enumerate(self.bases, start=1):
            values = apply(basis.U.T, values, axis)
        return np.ascontiguousarray(values * self._strength)

    def weights(self, x: Array) -> Array:
        """Return the weights (C, K_1, ..., K_D) of the encoding."""
        for axis, basis in enumerate(self.bases, start=1):
            x = apply(basis.back, x, axis)
        return x

    def penalty(self, x: Array) -> Array:
        """Return the penalty of x."""
        return self.symbol * x

    def precondition(self, r: Array, out: Array | None = None) -> tuple[Array, Array]:
        """Return z = (complete grid + penalty)^-1 r, and the penalty of z."""
        del out
        z = self._inverse * r
        return z, self.symbol * z


def mean_gram(run: AxisRows, weights: Array | None) -> Array:
    """Return the sum over points of the products of a feature with its T - 1 next neighbours.

    The first of the T sums is over the squares of the feature itself.
    """
    values = run.values if weights is None else run.values * weights
    return np.array(
        [float(np.sum(values[: run.taps - j] * run.values[j:])) for j in range(run.taps)]
    )


def feature_sum(embedder: Embedder) -> float:
    """Return the sum of all features, averaged over positions: the value if all weights are 1."""
    if isinstance(embedder, Wrapped):
        embedder = embedder.embedder
    if isinstance(embedder, BSpline):
        return 1.0
    assert isinstance(embedder, LocalEmbedder)
    h = embedder.spacing
    count = math.ceil(embedder.reach(1e-10) / h) + 1
    phase = cell_centres(0.0, h, 64)
    return float(
        np.mean(
            np.sum(
                _psi(embedder, np.arange(-count, count + 1)[:, None] * h + phase[None, :]), axis=0
            )
        )
    )


def _psi(embedder: LocalEmbedder, u: Array) -> Array:
    from kronfield.embedders import Impulse

    # the feature of the nearest centre is 1: inside the domain it is a box one spacing wide
    if isinstance(embedder, Impulse):
        return ((u >= -embedder.spacing / 2) & (u < embedder.spacing / 2)).astype(np.float64)
    return np.asarray(embedder.on_line(u))


def _toeplitz(gram: Sequence[Array], shape: Sequence[int], wraps: Sequence[bool]) -> Array:
    """Return approximate eigenvalues of a Kronecker product of banded Toeplitz matrices.

    These are the products of their symbols at the angles of the cosine transform.
    """
    total: Any = 1.0
    for axis, (row, n) in enumerate(zip(gram, shape, strict=True)):
        angle = (2 * np.pi if wraps[axis] else np.pi) * np.arange(n) / n
        symbol = row[0] + 2.0 * sum(
            (row[j] * np.cos(j * angle) for j in range(1, len(row))), start=np.zeros(n)
        )
        total = total * np.maximum(symbol, 0.0).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
    return np.asarray(total)
