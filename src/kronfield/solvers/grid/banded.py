"""Banded matrices, stored and multiplied in dense blocks of rows.

The product of a block of rows with the few columns that it uses is an ordinary matrix product, and
as fast as BLAS. Banded routines process one column at a time and are slower.
"""

from __future__ import annotations

import bisect
import functools
import math
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield._core.threads import in_threads, with_one_blas_thread
from kronfield.embedders import BSpline, LocalEmbedder, Wrapped

# Rows in a block: FEW_ROWS, or MANY_ROWS for matrices of at least MANY_FROM rows. With fewer rows,
# fewer zeros are multiplied and factorisations are cheaper. With more rows, BLAS is faster.
FEW_ROWS, MANY_ROWS, MANY_FROM = 32, 64, 512
# The fewest multiplications for which a separate thread saves time.
WORTH_A_THREAD = 1 << 23
# The fewest rows of a dense product per thread: BLAS is slow on fewer.
FEWEST_ROWS = 128
# Below this many trailing columns, products with a dense matrix are faster on a transposed copy.
FEW_COLUMNS = 16
# For up to FEW_LINES lines, equal blocks are multiplied together, at most WINDOWS at a time.
FEW_LINES, WINDOWS = 8, 1024


class Operator(Protocol):
    """A matrix that is not stored as a dense array: banded, factored, or circulant."""

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of a tensor."""


def block_rows(size: int) -> int:
    """Return the number of rows in a block of a matrix with ``size`` rows."""
    return FEW_ROWS if size < MANY_FROM else MANY_ROWS


@record
class Block:
    """Rows of a matrix: ``values`` starts at (row, column), and all other entries are zero."""

    row: int
    column: int
    values: Array


@record
class BlockBanded:
    """An (M, N) matrix in blocks of rows, top to bottom."""

    shape: tuple[int, int]
    blocks: tuple[Block, ...]

    @with_one_blas_thread
    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product: ``axis`` of ``tensor``, of length N, becomes one of length M.

        The result has the dtype of the matrix. A tensor of another dtype is converted by blocks.
        """
        M, N = self.shape
        if self.is_identity:
            return tensor.astype(self.dtype, copy=False)
        if tensor.shape[axis] != N:
            raise problem(
                "tensor", f"shape {tensor.shape}", f"length {N} on axis {axis}", "Check the axis."
            )
        before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
        flat = tensor.reshape(before, N, after)
        dtype = self.dtype
        out = np.empty((before, M, after), dtype=dtype)
        if after == 1 and before <= FEW_LINES:
            self._along_lines(flat[:, :, 0].astype(dtype, copy=False), out[:, :, 0])
        else:
            self._block_by_block(flat, out)
        return out.reshape(*tensor.shape[:axis], M, *tensor.shape[axis + 1 :])

    def _block_by_block(self, flat: Array, out: Array) -> None:
        """Write the product with ``flat`` (B, N, A) to ``out`` (B, M, A)."""

        def multiply(blocks: list[Block]) -> None:
            for block in blocks:
                values = block.values
                rows = slice(block.row, block.row + values.shape[0])
                part = flat[:, block.column : block.column + values.shape[1]].astype(
                    out.dtype, copy=False
                )
                if flat.shape[2] == 1:
                    np.matmul(part[:, :, 0], values.T, out=out[:, rows, 0])
                else:
                    np.matmul(values, part, out=out[:, rows])

        in_threads(multiply, self._shares(flat.shape[0] * flat.shape[2]))

    def _shares(self, lines: int) -> list[list[Block]]:
        """Return the blocks in groups, each with enough work for a thread, for ``lines`` lines."""
        shares: list[list[Block]] = []
        work = WORTH_A_THREAD
        for block in self.blocks:
            if work >= WORTH_A_THREAD:
                shares.append([])
                work = 0
            shares[-1].append(block)
            work += block.values.size * lines
        return shares

    def _along_lines(self, lines: Array, out: Array) -> None:
        """Write the product with a few lines (L, N) to ``out`` (L, M), equal blocks together."""
        for first, count, step in self._repeats:
            block = self.blocks[first]
            rows, width = block.values.shape
            if count == 1:
                part = lines[:, block.column : block.column + width]
                np.matmul(part, block.values.T, out=out[:, block.row : block.row + rows])
                continue
            for start in range(0, count, WINDOWS):
                some = min(WINDOWS, count - start)
                row, column = block.row + start * rows, block.column + start * step
                part = lines[:, column : column + (some - 1) * step + width]
                windows = np.lib.stride_tricks.sliding_window_view(part, width, axis=1)
                apart = np.ascontiguousarray(windows[:, :: max(step, 1)])  # (L, some, width)
                out[:, row : row + some * rows] = (apart @ block.values.T).reshape(len(lines), -1)

    @functools.cached_property
    def _repeats(self) -> list[tuple[int, int, int]]:
        """The runs (first, count, step) of equal blocks, each ``step`` columns after the last."""
        runs: list[tuple[int, int, int]] = []
        for i, block in enumerate(self.blocks):
            if runs:
                first, count, step = runs[-1]
                last = self.blocks[i - 1]
                ahead, down = block.column - last.column, block.row - last.row
                if (
                    block.values is last.values
                    and down == len(last.values)
                    and ahead > 0
                    and (count == 1 or ahead == step)
                ):
                    runs[-1] = (first, count + 1, ahead)
                    continue
            runs.append((i, 1, 0))
        return runs

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the blocks and of the result."""
        return self.blocks[0].values.dtype

    @functools.cached_property
    def is_identity(self) -> bool:
        """Whether this is the identity, as for hats two spacings wide, centred on samples."""
        if self.shape[0] != self.shape[1] or any(
            block.column != block.row for block in self.blocks
        ):
            return False
        different = {id(block.values): block.values for block in self.blocks}.values()
        return all(
            v.shape[0] == v.shape[1] and np.abs(v - np.eye(len(v))).max() < 1e-12 for v in different
        )

    def rows(self, start: int, stop: int) -> BlockBanded:
        """Return the matrix of rows ``start`` to ``stop``."""
        if start == 0 and stop == self.shape[0]:
            return self
        kept = []
        above = bisect.bisect_right(self.blocks, start, key=lambda block: block.row)
        for block in self.blocks[max(above - 1, 0) :]:
            if block.row >= stop:
                break
            first, last = max(start, block.row), min(stop, block.row + block.values.shape[0])
            if first < last:
                kept.append(
                    Block(
                        first - start,
                        block.column,
                        block.values[first - block.row : last - block.row],
                    )
                )
        return BlockBanded((stop - start, self.shape[1]), tuple(kept))

    @property
    def used_columns(self) -> tuple[int, int]:
        """The first column that a block uses, and the column after the last."""
        return (
            min(block.column for block in self.blocks),
            max(block.column + block.values.shape[1] for block in self.blocks),
        )

    def columns(self, start: int, stop: int) -> BlockBanded:
        """Return the matrix of columns ``start`` to ``stop``, which contain all used columns."""
        moved = (Block(block.row, block.column - start, block.values) for block in self.blocks)
        return BlockBanded((self.shape[0], stop - start), tuple(moved))

    def astype(self, dtype: Any) -> BlockBanded:
        """Return the matrix in another dtype; shared blocks stay shared."""
        own = {id(block.values): block.values for block in self.blocks}
        cast = {key: values.astype(dtype, copy=False) for key, values in own.items()}
        return BlockBanded(
            self.shape, tuple(Block(b.row, b.column, cast[id(b.values)]) for b in self.blocks)
        )

    def toarray(self) -> Array:
        """Return the dense matrix."""
        dense = np.zeros(self.shape)
        for block in self.blocks:
            rows, columns = block.values.shape
            dense[block.row : block.row + rows, block.column : block.column + columns] = (
                block.values
            )
        return dense


def apply(
    operator: Operator | Array,
    tensor: Array,
    axis: int,
) -> Array:
    """Return the mode product of ``tensor`` with a banded or dense matrix."""
    if isinstance(operator, np.ndarray):
        return dense_apply(operator, tensor, axis)
    return operator.apply(tensor, axis)


@with_one_blas_thread
def dense_apply(matrix: Array, tensor: Array, axis: int) -> Array:
    """Return the mode product with a dense matrix, like `mode_product`, in several threads.

    The result has the dtype of the matrix.
    """
    M, N = matrix.shape
    if tensor.shape[axis] != N:
        raise problem(
            "tensor", f"shape {tensor.shape}", f"length {N} on axis {axis}", "Check the axis."
        )
    before, after = math.prod(tensor.shape[:axis]), math.prod(tensor.shape[axis + 1 :])
    flat = tensor.reshape(before, N, after)
    out = np.empty((before, M, after), dtype=matrix.dtype)

    def on_lines(some: slice) -> None:  # (b, N, A) as rows (b A, N), times the transpose
        turned = flat[some].transpose(0, 2, 1).reshape(-1, N).astype(matrix.dtype, copy=False)
        if after == 1:
            np.matmul(turned, matrix.T, out=out[some, :, 0])
        else:
            out[some] = (turned @ matrix.T).reshape(-1, after, M).transpose(0, 2, 1)

    def on_slice(part: tuple[int, slice]) -> None:  # rows of the matrix times an (N, A) slice
        i, rows = part
        np.matmul(matrix[rows], flat[i].astype(matrix.dtype, copy=False), out=out[i, rows])

    if after < FEW_COLUMNS and before > 1:
        in_threads(on_lines, _slices(before, M * N * after))
    else:
        in_threads(on_slice, [(i, rows) for i in range(before) for rows in _slices(M, N * after)])
    return out.reshape(*tensor.shape[:axis], M, *tensor.shape[axis + 1 :])


def _slices(count: int, work: int) -> list[slice]:
    """Return slices of ``count`` items, a slice per thread; an item is ``work`` multiplications."""
    step = max(FEWEST_ROWS, WORTH_A_THREAD // max(work, 1))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def embedding_blocks(
    embedder: LocalEmbedder | BSpline | Wrapped,
    x: Array,
    order: int = 0,
    tolerance: float = 1e-17,
    rows: int = MANY_ROWS,
) -> BlockBanded:
    """Return the embedding matrix of positions ``x``, computed only within reach of the features.

    The positions should be sorted or nearly sorted: a block covers all columns within reach of any
    of its rows.
    """
    if isinstance(embedder, BSpline):
        return _blocks_of_runs(*embedder.run(x, order), embedder.size, rows)
    if isinstance(embedder, Wrapped):
        return _wrapped_blocks(embedder, x, order, tolerance, rows)
    blocks = []
    reach = embedder.reach(tolerance)
    per_unit, padding = round(1 / embedder.spacing), int(embedder.padding)
    for row in range(0, len(x), rows):
        part = x[row : row + rows]
        # centre j sits at (j - padding) / per_unit
        first = math.ceil((float(part.min()) - reach) * per_unit + padding - 1e-9)
        last = math.floor((float(part.max()) + reach) * per_unit + padding + 1e-9)
        first, last = min(max(first, 0), embedder.size - 1), min(max(last, 0), embedder.size - 1)
        blocks.append(Block(row, first, embedder.features(np, part, order, first, last + 1)))
    return BlockBanded((len(x), embedder.size), tuple(blocks))


def _wrapped_blocks(
    embedder: Wrapped, x: Array, order: int, tolerance: float, rows: int
) -> BlockBanded:
    """Return the embedding of positions on a circle: blocks that cross the seam have all columns.

    Positions of each turn are evaluated on a line, whose columns are then taken modulo K.
    """
    turn = np.floor(x - embedder.start)
    K, blocks = embedder.size, []
    for row in range(0, len(x), rows):
        part, turns = x[row : row + rows], turn[row : row + rows]
        found: list[tuple[Array, int, Array]] = []  # (rows, first column, values)
        for one in np.unique(turns):
            here = np.flatnonzero(turns == one)
            (inside,) = embedding_blocks(
                embedder.unrolled, part[here] - one, order, tolerance, len(here)
            ).blocks
            found.append((here, inside.column - embedder.offset, inside.values))
        low, width = found[0][1] % K, found[0][2].shape[1]
        if len(found) == 1 and low + width <= K:
            blocks.append(Block(row, low, found[0][2]))
            continue
        block = np.zeros((len(part), K))
        for here, column, values in found:
            for start in range(0, values.shape[1], K):  # += adds a repeated column once
                piece = values[:, start : start + K]
                columns = (column + start + np.arange(piece.shape[1])) % K
                block[here[:, None], columns] += piece
        blocks.append(Block(row, 0, block))
    return BlockBanded((len(x), K), tuple(blocks))


def _blocks_of_runs(first: Array, values: Array, size: int, rows: int) -> BlockBanded:
    """Return the matrix whose row i has ``values[:, i]`` from column ``first[i]`` on."""
    blocks = []
    taps = np.arange(len(values))
    for row in range(0, len(first), rows):
        part = first[row : row + rows]
        low, high = int(part.min()), int(part.max()) + len(values)
        block = np.zeros((len(part), high - low))
        block[np.arange(len(part))[:, None], (part - low)[:, None] + taps] = values[
            :, row : row + rows
        ].T
        blocks.append(Block(row, low, block))
    return BlockBanded((len(first), size), tuple(blocks))
