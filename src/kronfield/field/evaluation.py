"""The values of a field on grids and at points, computed from its weights in bounded memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.threads import in_threads
from kronfield.embedders import (
    BSpline,
    Embedder,
    Gaussian,
    Impulse,
    LocalEmbedder,
    TensionSpline,
    Wrapped,
)
from kronfield.encoding import Kronecker
from kronfield.solvers.grid.banded import MANY_ROWS, BlockBanded, apply, embedding_blocks
from kronfield.solvers.points.rows import NEGLIGIBLE, axis_runs, corners, taps_in_reach

# The most numbers in a block of output, or of intermediate results at points: 32 MB of float64.
BLOCK_NUMBERS = 1 << 22
# If few features are within reach, points are evaluated in chunks of CACHED_NUMBERS numbers, which
# fit the cache, but of at least FEWEST_POINTS points. The chunks are distributed over threads.
CACHED_NUMBERS, FEWEST_POINTS = 1 << 15, 1 << 12
# A matrix product of up to ONE_THREAD multiplications fits the cache of one core. Points are split
# into products of that size if each of them has at least FEWEST_ALONE points.
ONE_THREAD, FEWEST_ALONE = 1 << 18, 256
# With up to this many features within reach on each axis, values at points are sums over these
# features; with more, they are matrix products.
FEW_FEATURES = 32
# Lines with at least this many positions are evaluated as points.
LONG_LINE = 1 << 10
# Embedding matrices of at most KEPT_UP_TO positions and KEPT_BYTES are cached for the RECENT last
# axes, 8 MB in all: on small grids a matrix takes much longer to compute than the values. KEPT are
# the embedders that `fit` chooses.
KEPT = (BSpline, Gaussian, TensionSpline, Wrapped)
KEPT_UP_TO, KEPT_BYTES, RECENT = 1 << 10, 1 << 19, 16


def axis_matrix(embedder: Embedder, x: Array, order: int, dtype: Any) -> BlockBanded | Array:
    """Return the embedding matrix of ``x``, in blocks if features are local."""
    if order > embedder.smoothness:
        embedder.derivative(np.zeros(1), order)  # raises an error with the reason
    line = embedder.unrolled if isinstance(embedder, Wrapped) else embedder
    if isinstance(line, BSpline) or (
        isinstance(line, LocalEmbedder)
        and math.isfinite(line.reach())
        and not isinstance(line, Impulse)
    ):
        rising = len(x) < 2 or bool(np.all(np.diff(x) >= 0))
        if rising:
            assert isinstance(embedder, LocalEmbedder | BSpline | Wrapped)
            return embedding_blocks(embedder, x, order, NEGLIGIBLE).astype(dtype)
    return np.asarray(embedder.derivative(x, order)).astype(dtype)


def axis_matrices(
    encoding: Kronecker, units: Sequence[Array], orders: Sequence[int], dtype: Any
) -> list[BlockBanded | Array]:
    """Return the embedding matrix of every axis, computed once for equal axes."""
    known: dict[Any, BlockBanded | Array] = {}
    keys = [
        (emb, order, x.tobytes(), np.dtype(dtype))
        for emb, order, x in zip(encoding.embedders, orders, units, strict=True)
    ]
    for key, emb, order, x in zip(keys, encoding.embedders, orders, units, strict=True):
        if key not in known:
            known[key] = _recent(*key) if _is_short(emb, x) else axis_matrix(emb, x, order, dtype)
    return [known[key] for key in keys]


@functools.lru_cache(maxsize=RECENT)
def _recent(embedder: Embedder, order: int, positions: bytes, dtype: Any) -> BlockBanded | Array:
    return axis_matrix(embedder, np.frombuffer(positions), order, dtype)


def _is_short(embedder: Embedder, x: Array) -> bool:
    """Return whether the matrix of an axis is cached: if it is small, of an embedder in KEPT."""
    if not isinstance(embedder, KEPT):
        return False
    taps = taps_in_reach(embedder)
    # a block of the matrix has the columns that its rows reach
    per_row = embedder.size if taps is None else min(embedder.size, taps + MANY_ROWS)
    return len(x) <= KEPT_UP_TO and 8 * len(x) * per_row <= KEPT_BYTES


def grid_blocks(
    encoding: Kronecker, planes: Array, units: Sequence[Array], orders: Sequence[int]
) -> Iterator[tuple[slice, Array]]:
    """Yield the grid in blocks (rows, values), with values of shape (C, rows, M_2, ..., M_D)."""
    taps = taps_in_reach(encoding.embedders[0])
    if len(units) == 1 and len(units[0]) >= LONG_LINE and taps is not None and taps <= FEW_FEATURES:
        # on a line a matrix saves nothing: the few features within reach are summed directly
        step = max(1, BLOCK_NUMBERS // planes.shape[0])
        for start in range(0, len(units[0]), step):
            some = slice(start, min(start + step, len(units[0])))
            yield some, at_points(encoding, planes, [units[0][some]], orders)
        return
    yield from products(axis_matrices(encoding, units, orders, planes.dtype), planes)


def products(
    matrices: Sequence[BlockBanded | Array], planes: Array
) -> Iterator[tuple[slice, Array]]:
    """Yield the products of planes (C, K_1, ..., K_D) with a matrix (M, K) for every axis.

    They come in blocks (rows, values), with values of shape (C, rows, M_2, ..., M_D).
    """
    first = matrices[0]
    rest = math.prod(matrix.shape[0] for matrix in matrices[1:]) * planes.shape[0]
    step = max(1, BLOCK_NUMBERS // max(rest, 1))
    for start in range(0, first.shape[0], step):
        stop = min(start + step, first.shape[0])
        part = first.rows(start, stop) if isinstance(first, BlockBanded) else first[start:stop]
        block = apply(part, planes, 1)
        for axis, matrix in enumerate(matrices[1:], start=2):
            block = apply(matrix, block, axis)
        yield slice(start, stop), block


def at_points(
    encoding: Kronecker,
    planes: Array,
    units: Sequence[Array],
    orders: Sequence[int],
    start: Sequence[int] | None = None,
) -> Array:
    """Return values (C, P) at points given as one array of unit positions per axis.

    With ``start``, ``planes`` holds only a box of the weights, which begins at feature ``start[i]``
    of axis i. It must contain all features within reach of the points.
    """
    P, C = len(units[0]), planes.shape[0]
    start = start or [0] * len(units)
    out = np.empty((C, P), dtype=planes.dtype)
    for emb, order in zip(encoding.embedders, orders, strict=True):
        if order > emb.smoothness:
            emb.derivative(np.zeros(1), order)  # raises an error with the reason
    counts = [taps_in_reach(emb) for emb in encoding.embedders]
    sparse = all(count is not None and count <= FEW_FEATURES for count in counts)
    # if most features are within reach, matrix products are faster
    sparse = sparse and 2 * math.prod(count or 1 for count in counts) < math.prod(encoding.shape)
    width = max(sum(encoding.shape), C * math.prod(encoding.shape[1:]))
    few = min(max(FEWEST_POINTS, CACHED_NUMBERS // C), max(1, BLOCK_NUMBERS // (8 * C)))
    # the number of points of a product that fits the cache
    alone = ONE_THREAD // max(C * math.prod(encoding.shape), 1)
    step = (
        few
        if sparse
        else alone
        if alone >= FEWEST_ALONE
        else max(1, BLOCK_NUMBERS // max(width, 1))
    )

    def fill(part: slice) -> None:
        xs = [x[part] for x in units]
        out[:, part] = (
            _sparse(encoding, planes, xs, orders, start)
            if sparse
            else _dense(encoding, planes, xs, orders, start)
        )

    parts = [slice(low, min(low + step, P)) for low in range(0, P, step)]
    in_threads(fill, parts)
    return out


def contracted(planes: Array, rows: Sequence[Array]) -> Array:
    """Return the sums (C,) of planes (C, K_1, ..., K_D) times one row (K,) per axis, float64."""
    total = planes.astype(np.float64)
    for row in rows:
        total = np.tensordot(total, row, axes=([1], [0]))  # the next axis becomes axis 1
    return total


def _sparse(
    encoding: Kronecker,
    planes: Array,
    xs: Sequence[Array],
    orders: Sequence[int],
    start: Sequence[int],
) -> Array:
    """Return values (C, P) as sums over the features within reach of each point."""
    flat = planes.reshape(planes.shape[0], -1)
    total = np.zeros((planes.shape[0], len(xs[0])))
    runs = axis_runs(encoding.embedders, xs, orders)
    if any(start):
        runs = [replace(run, first=run.first - k) for run, k in zip(runs, start, strict=True)]
    for _, index, value in corners(runs, planes.shape[1:]):
        total += np.take(flat, index, axis=1) * value
    with np.errstate(over="ignore"):  # the caller checks
        return total.astype(planes.dtype)


def _dense(
    encoding: Kronecker,
    planes: Array,
    xs: Sequence[Array],
    orders: Sequence[int],
    start: Sequence[int],
) -> Array:
    """Return values (C, P) by contracting the axes one after the other."""
    rows = [
        np.asarray(emb.derivative(x, order))[:, k : k + size].astype(planes.dtype)
        for emb, x, order, k, size in zip(
            encoding.embedders, xs, orders, start, planes.shape[1:], strict=True
        )
    ]
    C, P = planes.shape[0], len(xs[0])
    flat = np.moveaxis(planes, 0, -1).reshape(planes.shape[1], -1)
    values = (rows[0] @ flat).reshape(P, *planes.shape[2:], C)
    for row in rows[1:]:
        values = np.einsum("pk,pk...->p...", row, values)
    if values.shape != (P, C):
        expected = f"shape (C, *{encoding.shape}), that of the encoding"
        raise problem("weights", planes.shape, expected, "Pass weights fitted with this encoding.")
    return values.T
