"""The basis of one axis in which a ridge or a roughness penalty is diagonal."""

from __future__ import annotations

import functools
import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.embedders import BSpline, Embedder, LocalEmbedder, Wrapped
from kronfield.solvers.grid.banded import embedding_blocks
from kronfield.solvers.grid.inverse import dense_embedding, dense_inverse, smoothest

# Integrals of squared derivatives use NODES Gauss-Legendre nodes per panel, and PANELS panels per
# spacing of the features.
NODES, PANELS = 4, 2
# The bases of axes up to this many samples or features are cached; larger ones take much memory.
KEPT_UP_TO = 1024


@record
class AxisBasis:
    """An orthonormal basis U of the fits on one axis, with the strength of each basis function.

    Attributes
    ----------
    U : (N, r) array
        Orthonormal columns: values at the samples.
    back : (K, r) array
        The weights that give these values: Psi back = U (for a ridge: back = V, and Psi V = U
        diag(strength)).
    strength : (r,) array
        The singular values for a ridge. For roughness, a measure of the roughness of each basis
        function that is proportional to its squared frequency.
    """

    U: Array
    back: Array
    strength: Array


def ridge_basis(embedder: Embedder, x: Array, rcond: float) -> AxisBasis:
    """Return the singular vectors of the embedding of ``x``.

    Singular values below ``rcond`` times the largest are dropped.
    """
    U, s, Vt = np.linalg.svd(dense_embedding(embedder, x), full_matrices=False)
    kept = s > rcond * s[0]
    return AxisBasis(U[:, kept], Vt[kept].T, s[kept])


def roughness_basis(
    embedder: Embedder, x: Array, low: float, high: float, *, rcond: float, smooth: int, order: int
) -> AxisBasis:
    """Return `compute_roughness_basis`, cached: penalties of all weights need the same basis."""
    if max(len(x), embedder.size) > KEPT_UP_TO:
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
        array.flags.writeable = False
    return basis


def compute_roughness_basis(
    embedder: Embedder, x: Array, low: float, high: float, *, rcond: float, smooth: int, order: int
) -> AxisBasis:
    """Return the basis with U'U = I and back' S back = diag(roughness) (Demmler and Reinsch, 1975).

    S is the integral from ``low`` to ``high`` of the products of derivatives of ``order`` 1 or 2.
    The strength is the roughness, or its root for the second derivative: both grow with the square
    of frequency. If there are more features than samples, many weights give the same values. Then
    the smoothest of them are used.
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
    # the first row of the Gram matrix, and with it all of them
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
        # once round the circle, from any position on
        knots = embedder.knots[:-1]
        inside = np.sort(low + (knots - low) % 1.0)
        edges = np.unique(np.concatenate([[low], np.clip(inside, low, high), [high]]))
        count = embedder.embedder.degree - order + 1
    else:
        if isinstance(embedder, LocalEmbedder | Wrapped):
            spacing = embedder.spacing
        else:  # at least a panel for every quarter of the shortest wave
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
