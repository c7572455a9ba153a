"""Lazy fields: their weights are an array of Dask, and what they return is one too."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import (
    Array,
    describe,
    is_lazy,
    joined_complex,
    problem,
)
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.embedders import Embedder, Impulse, Wrapped
from kronfield.encoding import Kronecker
from kronfield.field import Field, evaluation
from kronfield.field.field import Saved, derivative_overflow
from kronfield.fitting import settings
from kronfield.lazy.chunks import Tiling, one_chunk, owners, starts, tiling, tiling_of, with_halo
from kronfield.lazy.points import values_at
from kronfield.lazy.stores import Progress
from kronfield.solvers.grid.banded import BlockBanded, apply
from kronfield.solvers.points.rows import axis_run, taps_in_reach


class LazyField(Field):
    """A field whose weights are an array of Dask, computed where and when they are needed.

    `fit` returns one for arrays of Dask and zarr. It is used as any other field, but `on_grid`,
    values at points and integrals are arrays of Dask: call ``compute()`` on them, ``persist()`` or
    ``to_zarr(...)``.

    Examples
    --------
    >>> import dask.array
    >>> import kronfield as kf
    >>> x = dask.array.arange(400.0, chunks=100)
    >>> field = kf.fit(x[:, None] + x, noise=0)
    >>> fine = field.on_grid((800, 800))
    >>> fine.shape, fine.numblocks
    ((800, 800), (4, 4))
    >>> fine[2:4, 0].compute().round(6)
    array([0.5, 1. ])
    """

    _planes: Any  # of Dask
    _is_lazy = True

    # Weights
    # ------------------------------------------------------------------------------------------

    def compute(self, **options: Any) -> Field:
        """Return the same field with its weights in memory.

        Options are those of ``dask.compute``, for example ``scheduler="synchronous"``.
        """
        import dask

        (planes,) = dask.compute(self._planes, **options)
        return self._in_memory(planes)

    def _in_memory(self, planes: Array) -> Field:
        """Return a field with these weights."""
        field = Field(
            self.encoding,
            planes,
            self.frames,
            self._axes,
            channels=self.has_channels,
            is_complex=self.is_complex,
            dtype=self._real,
            report=self.report,
            info=self.info,
        )
        return field.with_places(self._places).with_labels(self._labels)

    def persist(self, **options: Any) -> LazyField:
        """Return the same field with its weights computed, in the memory of the workers."""
        import dask

        (planes,) = dask.persist(self._planes, **options)
        new = self.with_weights(planes)
        assert isinstance(new, LazyField)
        return new

    @property
    def rising_axes(self) -> list[Array]:
        """The positions of the samples on each axis, in rising order."""
        return [x[::-1] if len(x) > 1 and x[0] > x[-1] else x for x in self._axes]

    def _unplanar(self, planes: Any) -> Any:
        """Return planes (C, ...) as (..., C), or as (...) for a field without channels."""
        import dask.array

        moved = dask.array.moveaxis(planes, 0, -1)
        if self.is_complex:
            halves = tuple(n // 2 for n in moved.chunks[-1])
            dtype = np.result_type(moved.dtype, np.complex64)
            moved = moved.map_blocks(
                joined_complex,
                dtype=dtype,
                chunks=(*moved.chunks[:-1], halves),
                meta=np.empty((0,) * moved.ndim, dtype=dtype),
            )
        return moved if self.has_channels else moved[..., 0]

    # Values
    # ------------------------------------------------------------------------------------------

    @with_one_blas_thread
    def on_grid(
        self,
        axes: Any = None,
        derivative: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        outside: str = "error",
        beyond: float | None = None,
        per: Any = None,
    ) -> Any:
        """Return the values on a grid, as an array of Dask.

        Arguments are those of `Field.on_grid`, without ``out`` and ``beyond``. Positions on an axis
        rise or fall. The chunks are those of the weights.
        """
        if out is not None or beyond is not None:
            raise problem(
                "out" if out is not None else "beyond",
                "an argument that lazy fields do not have",
                "none",
                "Store the result with to_zarr, or in an array with dask.array.store."
                if out is not None
                else "Evaluate without it, or from field.compute().",
            )
        given = self._grid(axes)
        flips = [len(x) > 1 and bool(x[0] > x[-1]) for x in given]
        positions = [x[::-1] if flip else x for x, flip in zip(given, flips, strict=True)]
        for i, x in enumerate(positions):
            if np.any(np.diff(x) < 0):
                raise problem(
                    f"axes[{i}]", describe(x), "positions that rise or fall", "Sort them first."
                )
        orders, lengths_ = self._orders(derivative), self._lengths(per)
        planes = self.planes_on(positions, orders, self._scale(orders, lengths_), outside)
        result = self._unplanar(planes)
        turned = tuple(slice(None, None, -1) if flip else slice(None) for flip in flips)
        return result[turned] if any(flips) else result

    def planes_on(
        self,
        positions: Sequence[Array],
        orders: tuple[int, ...] | None = None,
        scale: float = 1.0,
        outside: str = "error",
    ) -> Any:
        """Return planes (C, M_1, ..., M_D) at rising positions, as an array of Dask."""
        orders = orders or (0,) * self.dimensions
        placed = [self._place(f"axes[{i}]", x, i, outside) for i, x in enumerate(positions)]
        units = [frame.unit(x) for frame, (x, _) in zip(self.frames, placed, strict=True)]
        planes = divided(self.encoding, self._planes, [len(x) for x in positions])
        each = zip(self.encoding.embedders, units, orders, planes.chunks[1:], strict=True)
        job = GridJob(
            self.encoding,
            tuple(units),
            tuple(bad for _, bad in placed),
            orders,
            scale,
            self._real,
            tuple(positions_of(*one, axis) for axis, one in enumerate(each)),
        )
        return job(planes)

    def _scale(self, orders: tuple[int, ...], units: tuple[float, ...]) -> float:
        """Return the factor from derivatives in the embedders' units to those of positions."""
        pairs = zip(self.frames, orders, units, strict=True)
        try:
            return math.prod((frame.length / unit) ** -float(order) for frame, order, unit in pairs)
        except OverflowError:
            return math.inf

    def _contracted(self, rows: list[Array]) -> Any:
        """Return the sums (C,) of all weights times one row (K,) per axis: a dask array."""
        planes = self._planes
        bounds = tuple(starts(one) for one in planes.chunks[1:])
        parts = planes.map_blocks(
            _contracted,
            rows=rows,
            bounds=bounds,
            dtype=np.float64,
            chunks=(planes.chunks[0], *((1,) * n for n in planes.numblocks[1:])),
            meta=np.empty((0,) * planes.ndim),
        )
        return parts.sum(axis=tuple(range(1, planes.ndim)))

    def __call__(
        self,
        points: Any = None,
        derivative: Sequence[int] | Mapping[str, int] | None = None,
        *,
        outside: str = "error",
        beyond: float | None = None,
        per: Any = None,
        **coordinates: Any,
    ) -> Any:
        """Return the values at ``points`` (P, D), an array of Dask of shape (P,) or (P, C).

        Arguments are those of a call of `Field`, without ``beyond``. Points that are an array or a
        table of Dask may lie anywhere: the weights are then gathered, which is refused if they are
        large.
        """
        if beyond is not None:
            raise problem(
                "beyond", beyond, "None", "Lazy fields do not have it; use field.compute()."
            )
        if is_lazy(points):
            return self._at_lazy(points, derivative, {"outside": outside, "per": per})
        X, shape = self.located(points, coordinates)
        orders, units = self._orders(derivative), self._lengths(per)
        placed = [self._place("points", X[:, i], i, outside) for i in range(self.dimensions)]
        found = self._at(
            [frame.unit(x) for frame, (x, _) in zip(self.frames, placed, strict=True)],
            orders,
            self._scale(orders, units),
        )
        values = self._unplanar(found)
        bad = [one for _, one in placed if one is not None]
        if bad:
            import dask.array

            mask = dask.array.from_array(np.any(bad, axis=0), chunks=(values.chunks[0],))
            mask = mask[:, None] if self.has_channels else mask
            values = dask.array.where(mask, values.dtype.type(np.nan), values)
        return values if shape is None else values.reshape((*shape, *values.shape[1:]))

    def _at_lazy(self, points: Any, derivative: Any, options: dict[str, Any]) -> Any:
        """Return the values at points of Dask, for which the weights are gathered."""
        most = settings.DEFAULT.lazy.most_gathered
        if self._planes.nbytes > most:
            raise problem(
                "points",
                f"an array of Dask, beside weights of {self._planes.nbytes / 1e9:.2f} GB",
                f"points in memory, or weights of at most {most / 1e9:.2f} GB",
                "Compute some of the points at a time, or call field.compute()(points).",
            )
        none = np.zeros((len(self._planes), *[0] * self.dimensions), dtype=self._planes.dtype)
        nothing = self._in_memory(none)
        return values_at(nothing, points, derivative, options, self._planes)

    def _at(self, units: list[Array], orders: tuple[int, ...], scale: float) -> Any:
        """Return planes (C, P) at points, from the chunks of weights that they lie in.

        Each chunk evaluates its own points; their values are then put in the given order.
        """
        import dask.array
        from dask.delayed import delayed

        planes, order, sizes, parts = self._planes, [], [], []
        each = zip(self.encoding.embedders, units, orders, planes.chunks[1:], strict=True)
        sides = [_Side.of(*one, axis) for axis, one in enumerate(each)]
        numbers = planes.numblocks[1:]
        chunk = np.ravel_multi_index([side.chunk for side in sides], numbers)
        rank = np.argsort(chunk, kind="stable")
        firsts = np.flatnonzero(np.diff(chunk[rank], prepend=-1))
        for index in np.split(rank, firsts[1:]) if len(rank) else []:
            box = [side.box(index) for side in sides]
            job = PointsJob(
                self.encoding,
                tuple(u[index] for u in units),
                orders,
                tuple(low for low, _ in box),
                scale,
                self._real,
            )
            weights = planes[(slice(None), *(slice(*side) for side in box))]
            found = delayed(job.values, pure=True)(weights)
            shape = (len(planes), len(index))
            parts.append(dask.array.from_delayed(found, shape, dtype=self._real))
            order.append(index)
            sizes.append(len(index))
        if not parts:
            return dask.array.zeros((len(planes), 0), dtype=self._real)
        whole = dask.array.concatenate(parts, axis=1)
        if len(parts) == 1:
            return whole
        back = np.empty(len(rank), dtype=np.int64)
        back[np.concatenate(order)] = np.arange(len(rank))
        return whole.rechunk({1: -1})[:, back]

    def gradient(
        self, points: Any = None, *, outside: str = "error", per: Any = None, **coordinates: Any
    ) -> Any:
        """Return the first derivatives at ``points`` (P, D), as (P, D) or (P, D, C): a dask array.

        Arguments are those of `Field.gradient`.
        """
        import dask.array

        rows = map(tuple, np.eye(self.dimensions, dtype=int))
        parts = [self(points, row, outside=outside, per=per, **coordinates) for row in rows]
        return dask.array.stack(parts, axis=-2 if self.has_channels else -1)

    # Files and pictures
    # ------------------------------------------------------------------------------------------

    def save(
        self,
        path: Any,
        *,
        dtype: str | None = None,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> Saved:
        """Compute the weights into a zarr store, chunk by chunk; see `load`.

        Parameters
        ----------
        path : path
            A folder whose name ends in ".zarr", on a disk that all workers share. It appears when
            it is complete. A saved field of this name is replaced, but no other store.
        dtype : None
            Weights keep their dtype.
        resume : bool
            Keep the chunks that are written if the job ends early, in the folder ".NAME.part.zarr"
            beside ``path``. The same call later computes only the chunks that are not in it.
        progress : callable, optional
            Called with the number of chunks that are written, and their total.
        """
        from kronfield.lazy.storage import save

        if dtype is not None:
            raise problem("dtype", repr(dtype), "None", "Weights of lazy fields keep theirs.")
        return save(self, path, resume=resume, progress=progress)

    def contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the metadata of a saved field, and its arrays but for the weights."""
        _, _, arrays, metadata = self._contents()
        return self._with_context(metadata, arrays)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the field: see `Field.plot`. The weights are computed first."""
        return self.compute().plot(ax, **options)

    def __repr__(self) -> str:
        chunks = " x ".join(map(str, self._planes.numblocks[1:]))
        box = f"{self._values_text()}on {self._box_text()}"
        return f"LazyField({box}, {self.encoding!r}, {self.dtype}, {chunks} chunks)"

    def _repr_html_(self) -> str:
        """Return the text of the field, for notebooks: nothing is computed."""
        return f"<pre>{html.escape(repr(self))}</pre>"


# Positions and the chunks of weights that they need
# ------------------------------------------------------------------------------------------


def is_local(embedder: Embedder) -> bool:
    """Return whether a position needs only the weights near it."""
    return not isinstance(embedder, Wrapped | Impulse) and taps_in_reach(embedder) is not None


def divided(encoding: Kronecker, planes: Any, counts: Sequence[int]) -> Any:
    """Return weights in chunks that are small enough for the values at ``counts`` positions."""
    chunks = [list(one) for one in planes.chunks]
    local = [i for i, emb in enumerate(encoding.embedders, start=1) if is_local(emb)]
    most = settings.DEFAULT.lazy.most_made
    zooms = [n / size for n, size in zip(counts, planes.shape[1:], strict=True)]
    while local:
        largest = [max(one) for one in chunks]
        made = [n * max(1.0, zoom) for n, zoom in zip(largest[1:], zooms, strict=True)]
        axis = max(local, key=lambda i: largest[i])
        if largest[0] * math.prod(made) <= most or largest[axis] < 2:
            break
        chunks[axis] = [part for n in chunks[axis] for part in (n - n // 2, n // 2) if part]
    return planes.rechunk(tuple(map(tuple, chunks)))


def averaged(values: Any, taps: Sequence[int]) -> Any:
    """Return the means of groups of consecutive values along the first axes of a dask array.

    Examples
    --------
    >>> import dask.array
    >>> averaged(dask.array.arange(12, chunks=5), [3]).compute()
    array([ 1.,  4.,  7., 10.])
    """
    import dask.array

    groups = {axis: n for axis, n in enumerate(taps) if n > 1}
    if not groups:
        return values
    dtype = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float64)
    return dask.array.coarsen(np.mean, values, groups).astype(dtype)


def columns_used(embedder: Embedder, u: Array, order: int) -> tuple[int, int]:
    """Return the range of the features that act between the first and the last position."""
    matrix = evaluation.axis_matrix(embedder, u[[0, -1]], order, np.float64)
    if is_local(embedder) and isinstance(matrix, BlockBanded):
        return matrix.used_columns
    return 0, embedder.size


def positions_of(
    embedder: Embedder, u: Array, order: int, chunks: Sequence[int], axis: int
) -> Tiling:
    """Return which of the rising positions ``u`` each chunk of weights evaluates.

    Where possible all have the same number, except the last, so that zarr can store the values.
    """
    if len(chunks) > 1 and not is_local(embedder):
        raise one_chunk("weights", axis, f"each feature of {embedder!r} acts everywhere")
    # the weight in the middle of those that act, for each position
    middle = owners(embedder, u) if len(chunks) > 1 and len(u) else np.zeros(len(u))

    def made(given: Sequence[int]) -> tuple[int, ...]:
        return 0, *np.searchsorted(middle, given[1:-1]).tolist(), len(u)

    def needed(start: int, stop: int) -> tuple[int, int] | None:
        return columns_used(embedder, u[start:stop], order) if stop > start else None

    cut = tiling(chunks, made, needed)
    for even in _even_cuts(cut):
        regular = tiling_of(cut.given, even, needed)
        # chunks then read from further away: not if that is far
        far = max(regular.before, regular.after) - max(cut.before, cut.after)
        if 4 * far <= min(cut.chunks):
            return regular
    return cut


def _even_cuts(cut: Tiling) -> Iterator[tuple[int, ...]]:
    """Yield cuts at equal distances but for the last, near those of the tiling."""
    count, total = len(cut.made) - 1, cut.made[-1]
    if count < 2 or not all(cut.made_chunks):
        return
    sizes = [cut.made[-2] / (count - 1), total / count]
    if count > 2:  # inner chunks of weights show how many positions belong to one
        made, given = cut.made[-2] - cut.made[1], cut.given[-2] - cut.given[1]
        sizes.insert(0, cut.chunks[1] * made / given)
    for size in (*map(round, sizes), math.ceil(total / count)):
        if 0 < total - (count - 1) * size <= size:
            yield (*range(0, count * size, size), total)


@record(eq=False)
class GridJob:
    """The values at rising positions, chunk by chunk of the weights.

    Attributes
    ----------
    units : tuple of arrays
        The positions on each axis, in the embedders' units.
    bad : tuple of arrays of bool or None
        Where values become NaN on each axis.
    scale : float
        The factor of derivatives.
    tilings : tuple of Tiling
        The chunks of weights, and of positions.
    """

    encoding: Kronecker
    units: tuple[Array, ...]
    bad: tuple[Array | None, ...]
    orders: tuple[int, ...]
    scale: float
    dtype: np.dtype[Any]
    tilings: tuple[Tiling, ...]

    def __call__(self, planes: Any) -> Any:
        """Return values (C, M_1, ..., M_D) from weights (C, K_1, ..., K_D), both dask arrays."""
        from dask.delayed import delayed

        whole, chunks = with_halo(planes, self.tilings), [planes.chunks[0]]
        for axis, kept in enumerate(self.kept, start=1):  # weights that nothing needs are not read
            if len(kept) < whole.numblocks[axis]:
                whole = whole.blocks[(slice(None),) * axis + (list(kept),)]
            made = self.tilings[axis - 1].made_chunks
            chunks.append(tuple(made[i] for i in kept))
        return whole.map_blocks(
            _on_grid,
            job=delayed(self, pure=True, traverse=False),
            dtype=self.dtype,
            chunks=tuple(chunks),
            meta=np.empty((0,) * whole.ndim, dtype=self.dtype),
        )

    @property
    def kept(self) -> list[tuple[int, ...]]:
        """The chunks on each axis that have positions; the first if none has."""
        each = [np.flatnonzero(tile.made_chunks) for tile in self.tilings]
        return [tuple(one.tolist()) or (0,) for one in each]

    @with_one_blas_thread
    def values(self, planes: Array, block: Sequence[int]) -> Array:
        """Return the values of one block."""
        chunk = [kept[i] for kept, i in zip(self.kept, block, strict=True)]
        sides = [tile.side(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        if any(stop <= start for start, stop in sides):
            shape = (len(planes), *(stop - start for start, stop in sides))
            return np.empty(shape, dtype=self.dtype)
        each = zip(self.encoding.embedders, self.units, self.orders, strict=True)
        with one_thread():
            found = planes
            for axis, (emb, u, order) in enumerate(each):
                matrix = evaluation.axis_matrix(emb, u[slice(*sides[axis])], order, planes.dtype)
                if isinstance(matrix, BlockBanded):
                    low = self.tilings[axis].start(chunk[axis])
                    matrix = matrix.columns(low, low + planes.shape[axis + 1])
                found = apply(matrix, found, axis + 1)
            found = scaled(found, self.orders, self.scale, self.dtype)
        for axis, bad in enumerate(self.bad):
            if bad is not None:
                found[(slice(None),) * (axis + 1) + (bad[slice(*sides[axis])],)] = np.nan
        return found


def _on_grid(planes: Array, job: Any = None, block_id: tuple[int, ...] = ()) -> Array:
    """Return the values of one block of a dask array."""
    return job.values(planes, block_id[1:])


@record(eq=False)
class PointsJob:
    """The values at points, from a box of the weights that begins at feature ``start[i]``."""

    encoding: Kronecker
    units: tuple[Array, ...]
    orders: tuple[int, ...]
    start: tuple[int, ...]
    scale: float
    dtype: np.dtype[Any]

    @with_one_blas_thread
    def values(self, planes: Array) -> Array:
        """Return values (C, P)."""
        with one_thread():
            found = evaluation.at_points(self.encoding, planes, self.units, self.orders, self.start)
        return scaled(found, self.orders, self.scale, self.dtype)


def scaled(values: Array, orders: tuple[int, ...], scale: float, dtype: Any) -> Array:
    """Return values in their dtype, derivatives in the units of positions (chain rule)."""
    if not any(orders):
        return values.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        found = (values.astype(np.float64) * scale).astype(dtype)
    if not np.all(np.isfinite(found)):
        raise derivative_overflow(orders, dtype)
    return found


@record(eq=False)
class _Side:
    """Points on one axis: the chunk of weights of each, and the weights that they need.

    Attributes
    ----------
    chunk : array of int (P,)
        The chunk whose weights are nearest to the point.
    first, stop : arrays of int (P,)
        The range of the weights that act at the point.
    """

    chunk: Array
    first: Array
    stop: Array

    @classmethod
    def of(
        cls, embedder: Embedder, u: Array, order: int, chunks: Sequence[int], axis: int
    ) -> _Side:
        """Return where points lie among chunks of weights."""
        zeros = np.zeros(len(u), dtype=np.int64)
        if not is_local(embedder):
            if len(chunks) > 1:
                raise one_chunk("weights", axis, f"each feature of {embedder!r} acts everywhere")
            return cls(zeros, zeros, zeros + embedder.size)
        run = axis_run(embedder, u, order)
        bounds = starts(chunks)[1:-1]
        chunk = np.searchsorted(bounds, run.first + run.taps // 2, side="right")
        return cls(chunk, run.first, run.first + run.taps)

    def box(self, index: Array) -> tuple[int, int]:
        """Return the range of the weights that some points need."""
        return int(self.first[index].min()), int(self.stop[index].max())


def _contracted(
    planes: Array,
    rows: Sequence[Array] = (),
    bounds: Sequence[Sequence[int]] = (),
    block_id: tuple[int, ...] = (),
) -> Array:
    """Return the sums (C, 1, ..., 1) of one block of weights times one row for each axis."""
    each = zip(rows, bounds, block_id[1:], strict=True)
    parts = [row[ends[i] : ends[i + 1]] for row, ends, i in each]
    total = evaluation.contracted(planes, parts)
    return total.reshape(-1, *[1] * len(parts))
