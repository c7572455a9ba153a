"""The pseudo-inverse of one axis: banded if its entries fall off fast, else dense."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import is_even, mean_step
from kronfield._core.records import record
from kronfield.embedders import BSpline, Embedder, LocalEmbedder
from kronfield.solvers.grid.banded import Block, BlockBanded, block_rows
from kronfield.solvers.grid.banded_lu import BandedSolve, FactoredInverse, SolveWithEnds

if TYPE_CHECKING:
    from kronfield.solvers.grid.cyclic import CirculantSolve, CyclicSolve

# The numbers of extra weights on either side of a block, tried in this order. If the largest is not
# enough, the inverse is dense.
MARGINS = (16, 32, 64, 128)
# Local normal equations square the condition number. Above this condition number they lose too many
# digits, and the dense inverse is used instead.
LOCAL_CONDITION = 3e3
# With an `rcond` below this, a pseudo-inverse is stored as two factors: see `FactoredInverse`.
FACTORED_BELOW = 1e-12
# The largest matrix of one axis that is factored densely: 8192 x 8192, which takes minutes.
LARGEST_DENSE = 1 << 26
# Up to this condition number, B-splines through float32 samples have float32 weights: the error of
# values is then at most about 1e-5 of the largest value.
SINGLE_CONDITION = 50.0
# Above this condition number, the LU factors of B-splines at the samples have lost all digits.
SINGULAR = 1e16
# If the gaps between samples differ by less than this fraction, the blocks of an inverse are equal.
SAME = 1e-9
# The number of inverses of each kind that are cached. A banded inverse of 4096 samples takes 1 MB.
RECENT = 32
# The longest axis whose B-spline inverse is cached: it takes 1 MB.
KEPT_UP_TO = 4096
# The weight of the differences that select the smoothest of equally good fits. Their squares enter
# with a weight of 1e-12, which does not change the fit at the samples.
TIE = 1e-6


@record
class AxisInverse:
    """The map from samples to weights along one axis: W = A S.

    Attributes
    ----------
    operator : an object with ``apply``, or (K, N) array
        The pseudo-inverse A.
    method : str
        "banded" or "dense"; of a periodic axis "circulant" or "cyclic band".
    rank : int
        The effective rank. If it is below min(N, K), weights have the least norm.
    condition : float
        The ratio of the largest to the smallest singular value kept; for banded inverses a bound or
        an estimate.
    """

    operator: (
        BlockBanded
        | BandedSolve
        | SolveWithEnds
        | FactoredInverse
        | CirculantSolve
        | CyclicSolve
        | Array
    )
    method: str
    rank: int
    condition: float

    @property
    def shape(self) -> tuple[int, int]:
        """(K, N)."""
        return self.operator.shape


def invert_axis(
    embedder: Embedder, x: Array, *, dtype: Any, smooth: int = 0, rcond: float = 1e-10
) -> AxisInverse:
    """Return the pseudo-inverse of the embedding of sorted positions ``x``.

    Parameters
    ----------
    embedder : Embedder
        The embedder of the axis.
    x : float64 array of shape (N,)
        Sorted positions in the embedder's units.
    dtype : dtype
        float32 or float64, the dtype of the samples: it sets the precision of the inverse.
    smooth : int
        Which weights to use if several fit equally well: 0 selects those of least norm, 1 or 2
        those with the least first or second differences, which continue as flat or as straight as
        possible past the last sample.
    rcond : float
        Singular values below this fraction of the largest count as zero, in a dense inverse.
    """
    if isinstance(embedder, LocalEmbedder) and math.isfinite(embedder.reach()):
        # with a small rcond, small singular values are kept, and weights need float64
        kept = np.dtype(np.float64 if 0 < rcond < FACTORED_BELOW else dtype)
        operator = _recent_local_inverse(embedder, x.tobytes(), kept, smooth)
        if operator is not None:
            return AxisInverse(operator, "banded", min(len(x), embedder.size), LOCAL_CONDITION)
    if isinstance(embedder, BSpline):
        if len(x) <= KEPT_UP_TO:
            inverse = _recent_spline_inverse(embedder, x.tobytes(), np.dtype(dtype), smooth)
        else:
            inverse = _spline_inverse(embedder, x, dtype, smooth)
        if inverse is not None:
            return inverse
    if embedder.period is not None:
        on_circle = _circle_inverse(embedder, x, dtype, rcond)
        if on_circle is not None:
            return on_circle
        smooth = 0  # a circle has no positions past the last sample
    if rcond < FACTORED_BELOW and (not smooth or len(x) < embedder.size):
        return _factored_inverse(embedder, x.tobytes(), smooth, rcond)
    dense, rank, condition = dense_inverse(dense_embedding(embedder, x), smooth, rcond)
    # the weights of an ill-conditioned fit need float64
    return AxisInverse(
        dense if condition > LOCAL_CONDITION else dense.astype(dtype), "dense", rank, condition
    )


def _circle_inverse(embedder: Embedder, x: Array, dtype: Any, rcond: float) -> AxisInverse | None:
    """Return the inverse of a periodic axis, circulant or a cyclic band; None if it is neither."""
    from kronfield.solvers.grid.cyclic import circulant_inverse, cyclic_inverse

    found = circulant_inverse(embedder, x, rcond)
    if found is not None:
        circulant, rank, condition = found
        wide = np.float64 if condition > SINGLE_CONDITION else dtype
        return AxisInverse(circulant.astype(wide), "circulant", rank, condition)
    cyclic = cyclic_inverse(embedder, x)
    if cyclic is None:
        return None
    condition = float(np.abs(cyclic.apply((-1.0) ** np.arange(len(x)), 0)).max())
    if not condition < SINGULAR:
        return None
    wide = np.float64 if condition > SINGLE_CONDITION else dtype
    return AxisInverse(cyclic.astype(wide), "cyclic band", len(x), condition)


@functools.lru_cache(maxsize=RECENT)
def _factored_inverse(
    embedder: Embedder, positions: bytes, smooth: int, rcond: float
) -> AxisInverse:
    """Return the pseudo-inverse as two factors, for condition numbers up to about 1e16."""
    x = np.frombuffer(positions)
    found = Factors.of(dense_embedding(embedder, x), smooth, rcond)
    s = found.s
    rank = int(np.sum(s > rcond * s[0])) + found.plain.shape[1]
    condition = min(float(s[0] / max(s[-1], 1e-300)), 1 / rcond)
    return AxisInverse(found.inverse(), "dense", rank, condition)


@record(eq=False)
class Factors:
    """The map from samples to the weights with the least differences of an order, in factors.

    Weights are the repeated sums of their differences b plus a polynomial of lower degree than the
    order, whose differences are 0. The differences b of least norm fit the part of the samples that
    is orthogonal to all polynomials; the polynomial fits the remainder by least squares. With order
    0 there is no polynomial, and b are the weights.

    Attributes
    ----------
    U, s, V : arrays (N, r), (r,), (K, r)
        The singular value decomposition of the sums at the samples, orthogonal to polynomials. V
        holds the right singular vectors as weights.
    plain : (K, order) array
        The weights of the polynomials.
    projection : (order, N) array
        The map from samples to the least-squares coefficients of the polynomials.
    shift : (order, r) array
        The coefficients that `projection` gives for the values of V at the samples.
    ridge : float
        Singular values below this fraction of the largest fade out.
    """

    U: Array
    s: Array
    V: Array
    plain: Array
    projection: Array
    shift: Array
    ridge: float

    @classmethod
    def of(cls, P: Array, order: int, rcond: float) -> Factors:
        """Factor the embedding P (N, K), K > N if ``order`` is not 0."""
        N, K = P.shape
        order = min(order, N - 1)
        at = np.linspace(-1.0, 1.0, K)
        plain = np.linalg.qr(np.polynomial.legendre.legvander(at, order - 1))[0] if order else None
        if plain is None:
            U, s, Vt = np.linalg.svd(P, full_matrices=False)
            none = np.zeros((0, N))
            return cls(U, s, Vt.T, np.zeros((K, 0)), none, none[:, : len(s)], rcond)
        # columns: weights with unit differences, from repeated sums minus their polynomial part
        sums = np.tri(K)
        for _ in range(order - 1):
            sums = np.cumsum(sums, axis=0)
        sums = sums[:, order:]
        sums -= plain @ (plain.T @ sums)
        at_samples, rest = P @ plain, P @ sums
        complement = np.linalg.qr(at_samples, mode="complete")[0][:, order:]
        U, s, Vt = np.linalg.svd(complement.T @ rest, full_matrices=False)
        projection = np.linalg.pinv(at_samples)
        shift = projection @ (rest @ Vt.T)
        return cls(complement @ U, s, sums @ Vt.T, plain, projection, shift, rcond)

    @property
    def squares(self) -> Array:
        """The squared singular values plus the squared ridge, so that none is below rounding."""
        return self.s**2 + (self.ridge * self.s[0]) ** 2

    def inverse(self) -> FactoredInverse:
        """Return the map from samples to weights."""
        # s / (s^2 + (rcond s_1)^2): small singular values fade out instead of being cut off
        gain = self.s / self.squares
        back = np.concatenate([(self.V - self.plain @ self.shift) * gain, self.plain], axis=1)
        return FactoredInverse(back, np.concatenate([self.U.T, self.projection]))

    def left_out(self) -> Array:
        """Return the matrix (N, N) from samples to their leave-one-out errors.

        Let C be the inverse of U (s^2 + e) U' on the complement of the polynomials, where e is the
        squared ridge. The error at sample i is (C y)_i / C_ii (Wahba, 1990, section 4.2).
        """
        inverse = (self.U / self.squares) @ self.U.T
        return inverse / np.diag(inverse)[:, None]


def dense_embedding(embedder: Embedder, x: Array) -> Array:
    """Return the dense embedding matrix; raise an error if it is too large to be factored."""
    if len(x) * embedder.size > LARGEST_DENSE:
        raise problem(
            "values",
            f"an axis of {len(x)} samples for {embedder!r}, which must be factored densely",
            f"at most {LARGEST_DENSE} numbers in its matrix",
            "Use a local embedder whose width is close to the spacing and no penalty, or fewer "
            "samples or features.",
        )
    return np.asarray(embedder(x))


def dense_inverse(P: Array, smooth: int, rcond: float) -> tuple[Array, int, float]:
    """Return the pseudo-inverse of P at the tolerance ``rcond``, its rank and its condition."""
    U, s, Vt = np.linalg.svd(P, full_matrices=False)
    rank = int(np.sum(s > rcond * s[0])) if s[0] > 0 else 0
    condition = float(s[0] / s[rank - 1]) if rank else 1.0
    if smooth and P.shape[0] < P.shape[1]:
        return smoothest(P, smooth), rank, condition
    return (Vt[:rank].T / s[:rank]) @ U[:, :rank].T, rank, condition


@functools.lru_cache(maxsize=RECENT)
def _recent_spline_inverse(
    embedder: BSpline, positions: bytes, dtype: np.dtype[Any], smooth: int
) -> AxisInverse | None:
    """Return the inverse of B-splines, cached: lines of one length are factored once."""
    return _spline_inverse(embedder, np.frombuffer(positions), dtype, smooth)


def _spline_inverse(embedder: BSpline, x: Array, dtype: Any, smooth: int) -> AxisInverse | None:
    """Return the inverse of B-splines at the samples by banded LU; None if it does not exist.

    It exists for as many features as samples if feature i is positive at sample i (Schoenberg and
    Whitney 1953). With two more features there is a condition at either end: with ``smooth`` 1 the
    first derivative is 0 at the first and last sample, with 2 the second derivative. With
    ``smooth`` 3 and four more features, the first and third derivatives of cubic splines are 0 at
    the ends of the domain.
    """
    N = len(x)
    if x[0] < embedder.low or x[-1] > embedder.high:
        return None
    if embedder.size == N + 2 and smooth in (1, 2) and smooth < embedder.degree and N > 1:
        return _spline_inverse_with_ends(embedder, x, dtype, smooth)
    if embedder.size == N + 4 and smooth == 3 and embedder.degree == 3:
        return _spline_inverse_with_ends(embedder, x, dtype, 1, 3)
    if embedder.size != N:
        return None
    first, values = embedder.run(x)
    at = np.arange(N) - first
    if np.any(np.diff(x) <= 0) or np.any((at < 0) | (at >= len(values))):
        return None
    operator = BandedSolve.of(first, values) if np.all(values[at, np.arange(N)] > 0) else None
    if operator is None:
        return None
    # The matrix is totally positive (Karlin 1968), so the signs of its inverse alternate: samples
    # of alternating sign give the largest row sum of the inverse. The rows of the matrix sum to 1,
    # so this is the condition number in the maximum norm.
    condition = float(np.abs(operator.apply((-1.0) ** np.arange(N), 0)).max())
    if not condition < SINGULAR:
        return None
    return _banded(operator, N, condition, dtype)


def _banded(
    operator: BandedSolve | SolveWithEnds, rank: int, condition: float, dtype: Any
) -> AxisInverse:
    """Return the inverse in the dtype of the samples, or in float64 if ill-conditioned."""
    wide = condition > SINGLE_CONDITION
    return AxisInverse(operator.astype(np.float64 if wide else dtype), "banded", rank, condition)


def _spline_inverse_with_ends(
    embedder: BSpline, x: Array, dtype: Any, *orders: int
) -> AxisInverse | None:
    """Return the inverse of samples with derivatives of ``orders`` that are 0 at both ends.

    A single order applies at the first and the last sample, two orders at the ends of the domain.
    """
    rows, entries = embedder.run(x)
    at = x[[0, -1]] if len(orders) == 1 else np.array([embedder.low, embedder.high])
    for order in orders:
        ends, slopes = embedder.run(at, order)
        # derivatives are scaled to the size of the features
        slopes = slopes / np.maximum(np.abs(slopes).max(axis=0), np.finfo(float).tiny)
        # where a derivative jumps, an additional feature contributes
        more = [(0, max(0, len(slopes) - len(entries))), (0, 0)]
        entries = np.pad(entries, more)
        slopes = np.pad(slopes, [(0, len(entries) - len(slopes)), (0, 0)])
        rows = np.concatenate([ends[:1], rows, ends[1:]])
        entries = np.concatenate([slopes[:, :1], entries, slopes[:, 1:]], axis=1)
    operator = BandedSolve.of(rows, entries)
    if operator is None:
        return None
    signs = (-1.0) ** np.arange(len(rows))  # as without end conditions, but only an estimate
    condition = float(np.abs(operator.apply(signs, 0)).max())
    if not condition < SINGULAR:
        return None
    return _banded(SolveWithEnds(operator, len(orders)), len(x), condition, dtype)


@functools.lru_cache(maxsize=RECENT)
def _recent_local_inverse(
    embedder: LocalEmbedder, positions: bytes, dtype: np.dtype[Any], smooth: int
) -> BlockBanded | None:
    """Return the banded inverse, cached: images of one size are factored once."""
    tolerance = 3e-8 if dtype == np.float32 else 1e-13
    operator = _local_inverse(embedder, np.frombuffer(positions), smooth, tolerance)
    return None if operator is None else operator.astype(dtype)


def forget() -> None:
    """Clear the caches of inverses. Only benchmarks call this, to measure a first fit."""
    _recent_local_inverse.cache_clear()
    _recent_spline_inverse.cache_clear()
    _factored_inverse.cache_clear()


def smoothest(P: Array, order: int) -> Array:
    """Return the right inverse (K, N) of P, K > N, with the least differences of ``order``."""
    n, k = P.shape
    ties = TIE * np.diff(np.eye(k), min(order, n, k - 1), axis=0) * np.abs(P).max()
    Q, R = np.linalg.qr(np.vstack([P, ties]))
    return np.linalg.solve(R, Q[:n].T)


def _local_inverse(
    embedder: LocalEmbedder, x: Array, smooth: int, tolerance: float
) -> BlockBanded | None:
    """Return the pseudo-inverse by blocks, each from the samples near it.

    None if its entries do not fall off fast enough.
    """
    windows = _Windows(embedder, x, smooth, tolerance)
    K, rows = embedder.size, windows.rows
    for margin in MARGINS:
        if rows + 2 * margin >= K:
            break
        first_inner = math.ceil(margin / rows) * rows
        probe = windows.inverse(first_inner, first_inner + rows, margin)
        if probe is None:
            return None
        operator = windows.assemble(margin) if probe.has_fallen else None
        if operator is not None:
            return operator
    return None if 8 * rows < K else windows.whole()


@record
class _Window:
    """A block of the inverse, and whether it falls below the tolerance within its window."""

    block: Block
    has_fallen: bool


class _Windows:
    """Local least-squares problems along one axis."""

    def __init__(self, embedder: LocalEmbedder, x: Array, smooth: int, tolerance: float) -> None:
        self.embedder, self.x, self.smooth, self.tolerance = embedder, x, smooth, tolerance
        self.centres, self.spacing = embedder.centres, embedder.spacing
        self.rows = block_rows(embedder.size)
        self.known: dict[tuple[int, int, int], _Window | None] = {}

    def samples(self, first: Any, last: Any) -> tuple[Array, Array]:
        """Return the range of samples near weights ``first`` to ``last``: numbers or arrays.

        The first and last weights get all samples beyond them.
        """
        half = self.spacing / 2
        low = np.searchsorted(self.x, self.centres[first] - half)
        high = np.searchsorted(self.x, self.centres[np.asarray(last) - 1] + half)
        return np.where(np.equal(first, 0), 0, low), np.where(
            np.equal(last, self.embedder.size), len(self.x), high
        )

    def inverse(self, start: int, stop: int, margin: int) -> _Window | None:
        """Return rows ``start`` to ``stop`` of the inverse, with a ``margin`` on each side."""
        key = (start, stop, margin)
        if key not in self.known:
            self.known[key] = self._inverse(start, stop, margin)
        return self.known[key]

    def _inverse(self, start: int, stop: int, margin: int) -> _Window | None:
        first, last = max(0, start - margin), min(self.embedder.size, stop + margin)
        low, high = map(int, self.samples(first, last))
        if high <= low:
            return None
        P = self.embedder.features(np, self.x[low:high], 0, first, last)
        inverse = _window_inverse(P, self.smooth)
        if inverse is None or not _is_inverse(inverse, P, self.tolerance):
            return None
        whole = Block(start, low, inverse[start - first : stop - first])
        block = _trim(whole, self.tolerance)
        right = block.column + block.values.shape[1] < high or high == len(self.x)
        return _Window(block, right and (block.column > low or low == 0))

    def whole(self) -> BlockBanded | None:
        """Return the inverse from one window of all samples, without negligible entries."""
        window = self.inverse(0, self.embedder.size, 0)
        if window is None:
            return None
        column, values = window.block.column, window.block.values
        parts = range(0, len(values), self.rows)
        blocks = [
            _trim(Block(row, column, values[row : row + self.rows]), self.tolerance)
            for row in parts
        ]
        return BlockBanded((self.embedder.size, len(self.x)), tuple(blocks))

    def assemble(self, margin: int) -> BlockBanded | None:
        """Return the whole inverse; if positions are even, all inner blocks are equal."""
        K = self.embedder.size
        shift = self._even_shift()
        blocks: list[Block] = []
        inner: Block | None = None
        starts = np.arange(0, K, self.rows)
        lows, highs = self.samples(
            np.maximum(0, starts - margin),
            np.minimum(K, np.minimum(starts + self.rows, K) + margin),
        )
        for start, low, high in zip(starts.tolist(), lows.tolist(), highs.tolist(), strict=True):
            stop = min(start + self.rows, K)
            is_inner = start >= margin and stop + margin <= K and low > 0 and high < len(self.x)
            if is_inner and shift and inner is not None and stop - start == self.rows:
                steps = (start - inner.row) // self.rows
                column = inner.column + steps * shift
                if column + inner.values.shape[1] <= len(self.x):
                    blocks.append(Block(start, column, inner.values))
                    continue
            window = self.inverse(start, stop, margin)
            if window is None or not window.has_fallen:
                return None
            blocks.append(window.block)
            if is_inner and inner is None:
                inner = window.block
        return BlockBanded((K, len(self.x)), tuple(blocks))

    def _even_shift(self) -> int:
        """Return the number of samples between blocks; 0 if uneven or not a whole number."""
        if len(self.x) < 2 or not is_even(self.x, SAME):
            return 0
        shift = self.rows * self.spacing / mean_step(self.x)
        return round(shift) if abs(shift - round(shift)) < 1e-6 else 0


def _is_inverse(inverse: Array, P: Array, tolerance: float) -> bool:
    """Return whether A Psi = I or, with more features than samples, Psi A = I."""
    product = inverse @ P if P.shape[0] >= P.shape[1] else P @ inverse
    product[np.diag_indices(len(product))] -= 1.0
    return bool(np.abs(product).max() < max(1e2 * tolerance, 1e-10))


def _trim(block: Block, tolerance: float) -> Block:
    """Return the block without its negligible outer columns."""
    size = np.abs(block.values).max(axis=0)
    # a block of zeros, whose features have no samples within reach, keeps all columns
    used = np.flatnonzero(size >= tolerance * size.max())
    kept = np.ascontiguousarray(block.values[:, used[0] : used[-1] + 1])
    return Block(block.row, block.column + int(used[0]), kept)


def _window_inverse(P: Array, smooth: int) -> Array | None:
    """Return the pseudo-inverse of a small matrix, or None if it is not well conditioned.

    Only NumPy is used. NumPy and SciPy each have their own BLAS threads, which keep the cores busy
    while they wait and slow each other down.
    """
    n, k = P.shape
    try:
        if smooth and n < k:
            inverse = smoothest(P, smooth)
            return (
                inverse
                if np.abs(inverse).sum(axis=1).max() * np.abs(P).max() < LOCAL_CONDITION
                else None
            )
        if n == k:
            inverse = np.linalg.inv(P)
        elif n > k:
            inverse = np.linalg.solve(P.T @ P, P.T)
        else:
            inverse = np.linalg.solve(P @ P.T, P).T
    except np.linalg.LinAlgError:
        return None
    condition = np.abs(P).sum(axis=1).max() * np.abs(inverse).sum(axis=1).max()
    return inverse if np.isfinite(condition) and condition < LOCAL_CONDITION else None
