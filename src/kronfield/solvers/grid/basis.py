"""The basis of one axis in which a ridge or a roughness penalty is diagonal."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.embedders import BSpline, Embedder, LocalEmbedder, Wrapped
from kronfield.solvers.grid.banded import BlockBanded, embedding_blocks
from kronfield.solvers.grid.inverse import (
    LARGEST_DENSE,
    dense_embedding,
    dense_inverse,
    invert_axis,
    smoothest,
)
from kronfield.solvers.grid.mirrored import (
    Mirrored,
    fold,
    folded_embedding,
    is_mirrored,
)

# Integrals of squared derivatives use NODES Gauss-Legendre nodes per panel, and PANELS panels per
# spacing of the features.
NODES, PANELS = 4, 2
# The bases of axes with at most this many samples and features are cached. Larger bases take much
# memory. They are computed in halves if the axis is its own mirror image.
KEPT_UP_TO = 1024
# Singular values from the eigenvalues of P P' have relative errors proportional to the square of
# the condition number. Up to this condition number, ten digits are correct.
WELL_CONDITIONED = 1e3
# Columns of an inverse that are computed together.
COLUMNS = 256


@record
class AxisBasis:
    """An orthonormal basis U of the fits on one axis, with the strength of each basis function.

    Attributes
    ----------
    U : (N, r) array or Mirrored
        Orthonormal columns: values at the samples.
    back : (K, r) array, Mirrored or InverseOf
        The weights that give these values: Psi back = U (for a ridge: back = V, and Psi V = U
        diag(strength)).
    strength : (r,) array
        The singular values for a ridge. For roughness, a measure of the roughness of each basis
        function that is proportional to its squared frequency.
    """

    U: Array | Mirrored
    back: Array | Mirrored | InverseOf
    strength: Array


@record(eq=False)
class InverseOf:
    """The weights ``inverse`` U of functions U, which are not stored: the inverse is a band.

    Attributes
    ----------
    inverse : BlockBanded
        The right inverse of the features, (K, N).
    U : Mirrored
        The functions at the samples, (N, r).
    """

    inverse: BlockBanded
    U: Mirrored

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the matrix."""
        return self.inverse.shape[0], self.U.shape[1]

    @property
    def T(self) -> Mirrored:  # noqa: N802 - as that of arrays
        """The transpose, as a matrix in halves, computed at every call."""
        even, odd = (_folded_inverse(self.inverse, self.shape, parity) for parity in range(2))
        return Mirrored(even @ self.U.even, odd @ self.U.odd, transposed=True)

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of a tensor."""
        return self.inverse.apply(self.U.apply(tensor, axis), axis)


def ridge_basis(embedder: Embedder, x: Array, rcond: float) -> AxisBasis:
    """Return the singular vectors of the embedding of ``x``.

    Singular values below ``rcond`` times the largest are dropped.
    """
    if in_halves(embedder, x) and is_mirrored(embedder, x):
        return _mirrored_svd(embedder, x, rcond)
    U, s, Vt = np.linalg.svd(dense_embedding(embedder, x), full_matrices=False)
    kept = s > rcond * s[0]
    return AxisBasis(U[:, kept], Vt[kept].T, s[kept])


def roughness_basis(
    embedder: Embedder, x: Array, low: float, high: float, *, rcond: float, smooth: int, order: int
) -> AxisBasis:
    """Return `compute_roughness_basis`, cached: the basis does not depend on penalty weights."""
    if max(len(x), embedder.size) > KEPT_UP_TO:
        if in_halves(embedder, x) and is_mirrored(embedder, x, low, high):
            found = _mirrored_roughness(embedder, x, low, high, rcond, smooth, order)
            if found is not None:
                return found
        return compute_roughness_basis(
            embedder, x, low, high, rcond=rcond, smooth=smooth, order=order
        )
    return _kept(embedder, x.tobytes(), low, high, rcond, smooth, order)


@functools.lru_cache(maxsize=4)
def _kept(
    embedder: Embedder,
    positions: bytes,
    low: float,
    high: float,
    rcond: float,
    smooth: int,
    order: int,
) -> AxisBasis:
    x = np.frombuffer(positions, dtype=np.float64)
    basis = compute_roughness_basis(embedder, x, low, high, rcond=rcond, smooth=smooth, order=order)
    for array in (basis.U, basis.back, basis.strength):
        assert isinstance(array, np.ndarray)
        array.flags.writeable = False
    return basis


def in_halves(embedder: Embedder, x: Array) -> bool:
    """Return whether halves save time on this axis, and it is not too long to be factored."""
    return max(len(x), embedder.size) > KEPT_UP_TO and len(x) * embedder.size <= LARGEST_DENSE


def _mirrored_svd(embedder: Embedder, x: Array, rcond: float) -> AxisBasis:
    """Return the singular vectors of an axis that is its own mirror image, in halves."""
    halves = list(folded_embedding(embedder, x))
    found = [_svd(halves.pop(0)) for _ in range(2)]
    least = rcond * max(float(s.max()) for _, s, _ in found)
    kept = [s > least for _, s, _ in found]
    U, back = [], []
    for (left, _, right), some in zip(found, kept, strict=True):
        U.append(left if some.all() else left[:, some])
        back.append(right.T if some.all() else right[some].T)
    strength = np.concatenate([s[some] for (_, s, _), some in zip(found, kept, strict=True)])
    return AxisBasis(Mirrored(U[0], U[1]), Mirrored(back[0], back[1]), strength)


def _svd(P: Array) -> tuple[Array, Array, Array]:
    """Return the thin SVD of a half of the features, with singular values in any order.

    If P is wide and well conditioned, it is computed from P P' = U s^2 U', in less memory.
    """
    if P.shape[0] <= P.shape[1]:
        squares, U = _eigh(P @ P.T)
        if squares[0] > WELL_CONDITIONED**-2 * squares[-1]:
            s = np.sqrt(squares)
            V = U.T @ P
            V /= s[:, None]
            return U, s, V
    return np.linalg.svd(P, full_matrices=False)


def _mirrored_roughness(
    embedder: Embedder, x: Array, low: float, high: float, rcond: float, smooth: int, order: int
) -> AxisBasis | None:
    """Return the basis of an axis that is its own mirror image, in halves.

    None if there are more features than samples, but no banded inverse of full rank.
    """
    K = embedder.size
    operator, halves = None, []
    if len(x) >= K:
        halves = _halves_by_svd(embedder, x, rcond)
    else:
        operator = _banded_inverse(embedder, x, rcond, smooth)
        if operator is None:
            return None
    U, back, strength = [], [], []
    # one half at a time, and nothing is kept longer than it is needed: all are large
    for parity, gram in enumerate(_folded_gram(embedder, low, high, order)):
        Q = None  # the identity
        if operator is None:
            Q, E = halves.pop(0)
        else:
            E = _folded_inverse(operator, (K, len(x)), parity)
        product = gram @ E
        product = E.T @ product
        if operator is not None:
            del E
        roughness, V = _eigh(product)
        del product
        strength.append(np.maximum(roughness, 0.0))
        U.append(V if Q is None else Q @ V)
        if operator is None:
            back.append(E @ V)
    joined = np.concatenate(strength)
    at_samples = Mirrored(U[0], U[1])
    return AxisBasis(
        at_samples,
        Mirrored(back[0], back[1]) if operator is None else InverseOf(operator, at_samples),
        joined if order == 1 else np.sqrt(joined),
    )


def _eigh(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, which is overwritten."""
    from scipy.linalg import eigh

    # LAPACK can overwrite only matrices that are stored by columns, such as this transpose
    return eigh(matrix.T, overwrite_a=True, check_finite=False, driver="evd")


def _banded_inverse(embedder: Embedder, x: Array, rcond: float, smooth: int) -> BlockBanded | None:
    """Return the right inverse of the features, if it is banded and of full rank."""
    inverse = invert_axis(embedder, x, dtype=np.float64, smooth=smooth, rcond=rcond)
    operator = inverse.operator
    return operator if isinstance(operator, BlockBanded) and inverse.rank == len(x) else None


def _folded_inverse(operator: BlockBanded, shape: tuple[int, int], parity: int) -> Array:
    """Return the even (0) or the odd half (1) of an inverse (K, N) of the features."""
    K, N = shape
    E = np.empty(((K + 1 - parity) // 2, (N + 1 - parity) // 2))
    for start in range(0, E.shape[1], COLUMNS):
        stop = min(start + COLUMNS, E.shape[1])
        unit = np.zeros((N, stop - start))  # columns: the coordinates of `fold`
        i = np.arange(start, min(stop, N // 2))
        unit[i, i - start] = math.sqrt(0.5)
        unit[N - 1 - i, i - start] = (1 - 2 * parity) * math.sqrt(0.5)
        if N % 2 and stop > N // 2:
            unit[N // 2, N // 2 - start] = 1.0
        E[:, start:stop] = fold(operator.apply(unit, 0), 0)[parity]
    return E


def _halves_by_svd(embedder: Embedder, x: Array, rcond: float) -> list[tuple[Array, Array]]:
    """Return (Q, E) of either half: the range and the pseudo-inverse of the features."""
    basis = _mirrored_svd(embedder, x, rcond)
    assert isinstance(basis.U, Mirrored)
    assert isinstance(basis.back, Mirrored)
    even = basis.U.even.shape[1]
    return [
        (basis.U.even, basis.back.even / basis.strength[:even]),
        (basis.U.odd, basis.back.odd / basis.strength[even:]),
    ]


def _folded_gram(embedder: Embedder, low: float, high: float, order: int) -> tuple[Any, Any]:
    """Return the halves of `derivative_gram` of local features, as sparse matrices.

    Row i of the first half has the same products with even vectors as its mirror image, and
    opposite ones with odd vectors: in the coordinates of `fold`, both are sqrt(2) times these.
    """
    from scipy.sparse import coo_array, csc_array, diags_array, hstack

    assert isinstance(embedder, LocalEmbedder)  # `is_mirrored` refuses others
    x, w = derivative_nodes(embedder, low, high, order)
    K, places, numbers = embedder.size, [], []
    for block in embedding_blocks(embedder, x, order, rows=256).blocks:
        part = w[block.row : block.row + block.values.shape[0], None] * block.values
        columns = block.column + np.arange(part.shape[1])
        places.append(np.stack(np.meshgrid(columns, columns, indexing="ij")).reshape(2, -1))
        numbers.append((block.values.T @ part).ravel())
    i, j = np.concatenate(places, axis=1)
    gram = csc_array(coo_array((np.concatenate(numbers), (i, j)), shape=(K, K)))  # sums
    h = K // 2
    left, right = gram[:, :h], gram[:, np.arange(K - 1, K - 1 - h, -1)]
    middle = gram[: K - h, h : K - h]  # of odd K: one column
    scale = np.full(K - h, math.sqrt(2))
    scale[h:] = 1.0
    even = diags_array(scale) @ hstack([(left + right)[: K - h] * math.sqrt(0.5), middle])
    return even.tocsr(), (left - right)[:h].tocsr()


def compute_roughness_basis(
    embedder: Embedder, x: Array, low: float, high: float, *, rcond: float, smooth: int, order: int
) -> AxisBasis:
    """Return the basis with U'U = I and back' S back = diag(roughness) (Demmler and Reinsch, 1975).

    S is the integral from ``low`` to ``high`` of the products of derivatives of ``order`` 1 or 2.
    The strength is the roughness, or its root for the second derivative: both grow with the square
    of frequency. If there are more features than samples, many sets of weights give the same
    values, of which the smoothest is used.
    """
    circle = _circle_basis(embedder, x, low, high, order)
    if circle is not None:
        return circle
    P = dense_embedding(embedder, x)
    E = smoothest(P, smooth) if len(x) < embedder.size else None
    Q = None  # the identity, if Psi E = I
    if E is None or not _is_right_inverse(P, E):
        rank = dense_inverse(P, 0, rcond)[1]
        U, s, Vt = np.linalg.svd(P, full_matrices=False)
        Q, E = U[:, :rank], Vt[:rank].T / s[:rank]
    del P
    gram = derivative_gram(embedder, low, high, order) @ E
    gram = E.T @ gram
    roughness, V = np.linalg.eigh(gram)
    del gram
    roughness = np.maximum(roughness, 0.0)
    at_samples = V if Q is None else Q @ V
    return AxisBasis(at_samples, E @ V, roughness if order == 1 else np.sqrt(roughness))


def _is_right_inverse(P: Array, E: Array) -> bool:
    """Return whether P E is the identity."""
    product = P @ E
    product[np.diag_indices(len(product))] -= 1.0
    return bool(np.abs(product, out=product).max() < 1e-6)


def _circle_basis(
    embedder: Embedder, x: Array, low: float, high: float, order: int
) -> AxisBasis | None:
    """Return the basis of an even circle, in closed form; None for other axes.

    All its matrices are circulant. Cosines plus sines of whole periods (Hartley, 1942) make the
    symmetric ones among them diagonal.
    """
    from kronfield.solvers.grid.cyclic import circulant_inverse

    found = circulant_inverse(embedder, x, 1e-14)
    if found is None or found[1] < len(x):
        return None
    solve, N = found[0], len(x)
    nodes, weights = derivative_nodes(embedder, low, high, order)
    # the first row of the Gram matrix; the other rows are shifted copies
    rows = [
        np.asarray(embedder.derivative(part, order)) for part in np.array_split(nodes, N // 64 + 1)
    ]
    row = sum(
        (w * part[:, 0]) @ part
        for w, part in zip(np.array_split(weights, N // 64 + 1), rows, strict=True)
    )
    gram = np.fft.fft(row).real
    gains = np.abs(np.fft.fft(solve.apply(np.eye(1, N)[0], 0))) ** 2
    roughness = np.maximum(gram * gains, 0.0)
    turns = np.multiply.outer(np.arange(N), np.arange(N)) % N * (2 * np.pi / N)
    U = (np.cos(turns) + np.sin(turns)) / math.sqrt(N)
    back = solve.apply(U, 0)
    return AxisBasis(U, back, roughness if order == 1 else np.sqrt(roughness))


def derivative_nodes(
    embedder: Embedder, low: float, high: float, order: int
) -> tuple[Array, Array]:
    """Return nodes and weights of an integral of products of derivatives of ``order``.

    Each panel is integrated by Gauss-Legendre quadrature.
    """
    embedder.derivative(np.zeros(1), order)  # raises an error if it does not exist
    if isinstance(embedder, BSpline):
        # panels end at the knots, and the nodes are exact for squares of the polynomials between
        inside = embedder.inner_knots
        edges = np.unique(np.concatenate([[low], np.clip(inside, low, high), [high]]))
        count = embedder.degree - order + 1
    elif isinstance(embedder, Wrapped) and isinstance(embedder.embedder, BSpline):
        # panels end at the knots, once round the circle from ``low`` on
        knots = embedder.knots[:-1]
        inside = np.sort(low + (knots - low) % 1.0)
        edges = np.unique(np.concatenate([[low], np.clip(inside, low, high), [high]]))
        count = embedder.embedder.degree - order + 1
    else:
        if isinstance(embedder, LocalEmbedder | Wrapped):
            spacing = embedder.spacing
        else:  # at least four panels per shortest wavelength
            spacing = 1.0 / max(embedder.size, 8, 2 * embedder.bandwidth())
        # panels end at multiples of half a spacing, where features can have kinks
        step = spacing / PANELS
        edges = np.unique(
            np.clip(np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step, low, high)
        )
        count = NODES
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = np.diff(edges)[:, None] / 2
    x = ((edges[1:, None] + edges[:-1, None]) / 2 + half * nodes).ravel()
    return x, (half * weights).ravel()


def derivative_gram(embedder: Embedder, low: float, high: float, order: int) -> Array:
    """Return the integrals of the products of derivatives of ``order``, (K, K)."""
    x, w = derivative_nodes(embedder, low, high, order)
    if not isinstance(embedder, LocalEmbedder | BSpline | Wrapped):
        values = np.asarray(embedder.derivative(x, order))
        return values.T @ (w[:, None] * values)
    gram = np.zeros((embedder.size, embedder.size))
    for block in embedding_blocks(embedder, x, order, rows=256).blocks:
        columns = slice(block.column, block.column + block.values.shape[1])
        part = w[block.row : block.row + block.values.shape[0], None]
        gram[columns, columns] += block.values.T @ (part * block.values)
    return gram
