"""`fit` of arrays of Dask and zarr: chosen from the middle, solved chunk by chunk when asked."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import (
    Array,
    describe,
    fit_overflow,
    problem,
    split_complex,
    sum_is_finite,
)
from kronfield._core.frames import Frame, centre
from kronfield._core.memory import check_memory
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field.places import GridPlaces
from kronfield.fitting.grid import GridFit, warn_of_rank
from kronfield.fitting.grid_choice import GridChoice, choose
from kronfield.fitting.inputs import GridInput, GridLayout
from kronfield.fitting.labelled import labelled_grid
from kronfield.fitting.middle import Middle
from kronfield.fitting.options import GridOptions
from kronfield.fitting.report import Candidate, grid_residual
from kronfield.fitting.settings import Settings
from kronfield.lazy.chunks import (
    Tiling,
    joined,
    one_chunk,
    owners,
    starts,
    tiling,
    with_halo,
)
from kronfield.lazy.field import LazyField
from kronfield.lazy.solve import GridSolve, PieceSolve, Solve, axis_solve
from kronfield.solvers.grid.banded import block_rows

# Copies of the middle that are held while it is judged, in float64.
JUDGED = 3


def fit_lazy(
    values: Any,
    axes: Sequence[Any] | None,
    encoding: Kronecker | Embedder | None,
    *,
    domain: Any,
    ridge: Any,
    noise: Any,
    channels: bool | None,
    rcond: Any,
    periodic: Any,
    ends: Any,
    settings: Settings | None,
    others: Mapping[str, Any],
) -> LazyField:
    """Return the field of an array of Dask or zarr, as `fit` describes.

    Only the middle is read, to choose an encoding. ``others`` are arguments that are refused.
    """
    started = time.perf_counter()
    _refuse(others, ridge, noise, has_encoding=encoding is not None)
    given = labelled_grid(as_dask(values), axes, domain, None, channels)
    grid = GridInput(
        given.values,
        given.axes,
        encoding,
        given.domain,
        given.channels,
        periodic=periodic,
        ends=ends,
        labels=given.labels,
    )
    options = GridOptions.checked(
        ridge=0.0 if grid.encoding is not None else ridge,
        noise=noise,
        rcond=rcond,
        has_encoding=grid.encoding is not None,
        channels=grid.channel_count,
        settings=settings,
        ends=grid.ends,
        only_middle=True,
    )
    choice = _choice(grid, options)
    rcond = choice.rcond if options.rcond is None else options.rcond
    fitted = GridFit(grid.layout, choice, rcond, options.settings.grid)
    if grid.encoding is not None:
        warn_of_rank(fitted.solver)
    again = LazyFit(fitted, options.settings)
    field = again.field(grid, choice.chosen_by, choice.candidates, started)
    field.with_labels(given.labels)
    return field


def as_dask(values: Any) -> Any:
    """Return an array of zarr as one of Dask; other objects as they are."""
    import dask.array
    from dask.array.utils import meta_from_array

    kind = type(values)
    if kind.__module__.partition(".")[0] != "zarr":
        array = values.data if kind.__name__ == "DataArray" else values
        if not isinstance(array, dask.array.Array):
            remedy = "Pass an array of Dask: for a table, table.to_dask_array(lengths=True)."
            got = f"a {kind.__name__} of Dask"
            raise problem("values", got, "an array of numbers", remedy, TypeError)
        if isinstance(meta_from_array(array), np.ma.MaskedArray):
            raise problem(
                "values",
                "a masked array of Dask",
                "no missing values",
                "Fill it with dask.array.ma.filled, or fit parts in memory with a mask.",
            )
        return values
    if not hasattr(values, "shape"):
        raise problem(
            "values",
            describe(values),
            "an array",
            'Pass one of the group: group["name"].',
            TypeError,
        )
    return dask.array.from_zarr(values)


def _refuse(others: Mapping[str, Any], ridge: Any, noise: Any, *, has_encoding: bool) -> None:
    """Raise an error for arguments that fits of lazy arrays do not have."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise problem(
            given[0],
            f"{given[0]} beside an array of Dask or zarr",
            "an interpolation of all samples",
            "Leave it out, or fit parts in memory: kf.fit(values[part].compute(), ...).",
        )
    if has_encoding and ridge is None:
        raise problem(
            "ridge",
            "none beside an encoding and an array of Dask or zarr",
            "ridge=0, the fit without a penalty",
            "Cross-validation would read all samples; pass ridge=0.",
        )
    if np.any(ridge):
        raise problem(
            "ridge",
            f"{ridge} beside an array of Dask or zarr",
            "0",
            "Under a ridge every weight depends on all samples; pass ridge=0.",
        )
    if np.any(noise):
        raise problem(
            "noise",
            f"{noise} beside an array of Dask or zarr",
            "0",
            "Noise is removed in memory only: see kf.denoise of parts, with overlap.",
        )


def planar(values: Any, layout: GridLayout) -> Any:
    """Return a dask array in rising order as real planes (C, N_1, ..., N_D)."""
    import dask.array

    if layout.is_complex:
        values = values if layout.channels else values[..., None]
        chunks = (*values.chunks[:-1], tuple(2 * n for n in values.chunks[-1]))
        values = values.map_blocks(split_complex, dtype=layout.dtype, chunks=chunks)
    elif not layout.channels:
        return values[None]
    return dask.array.moveaxis(values, -1, 0)


def _choice(grid: GridInput, options: GridOptions) -> GridChoice:
    """Return the settings given, or else those chosen from the middle of the grid."""
    layout = grid.layout
    if grid.encoding is not None:
        return GridChoice(grid.encoding, (0,) * len(layout.shape), "given", [])
    most = max(options.settings.grid.crop_samples, options.settings.noise.most_samples)
    part = centre(layout.shape, most)
    count = math.prod(one.stop - one.start for one in part)
    planes = planar(grid.values, layout)
    check_memory(
        "values",
        f"a choice from {count} samples of {len(planes)} real channels",
        8.0 * JUDGED * len(planes) * count,
        "Fit a few channels at a time.",
    )
    values = middle(planes, part)
    read = Middle(values, [one.start for one in part], layout.shape)
    return choose(read, grid.axes, layout.frames, options)  # type: ignore[arg-type]


def middle(planes: Any, part: Sequence[slice]) -> Array:
    """Return a part of the planes, read into memory."""
    values = np.asarray(planes[(slice(None), *part)])
    check_finite(values, [one.start for one in part])
    return values


def check_finite(values: Array, low: Sequence[int]) -> None:
    """Raise an error if values (C, ...), which begin at samples ``low``, are not all finite."""
    if values.dtype.kind != "f" or sum_is_finite(values):
        return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        at = tuple(int(i) + first for i, first in zip(bad[0, 1:], low, strict=True))
        raise problem(
            "values",
            f"{len(bad)} NaN or inf in a chunk, the first at sample {at}",
            "finite numbers",
            "Fill them first, for example with values.map_blocks(numpy.nan_to_num), or fit parts "
            "in memory with a mask.",
        )


@record(eq=False)
class ChunkSolve:
    """The weights of a chunk from the samples in it and in its halo."""

    solve: Solve
    tilings: tuple[Tiling, ...]
    dtype: np.dtype[Any]
    weights_dtype: np.dtype[Any]

    @classmethod
    def of(cls, fitted: GridFit, chunks: Sequence[Sequence[int]], short: int) -> ChunkSolve:
        """Return the map for samples in chunks; raise an error if an axis must be one chunk.

        Axes of up to ``short`` samples become one chunk where they must.
        """
        layout, embedders, pieces = fitted.layout, fitted.encoding.embedders, fitted.pieces
        frames = layout.frames if fitted.finer is None else fitted.finer.frames
        operators: list[Any] = []
        if pieces is None:
            operators = [inverse.operator for inverse in fitted.solver.inverses]
        steps = [block_rows(one.shape[0]) for one in operators] or [1] * len(embedders)
        made = [
            functools.partial(_made, emb, frame, x, step)
            for emb, frame, x, step in zip(embedders, frames, layout.axes, steps, strict=True)
        ]
        bounds = [starts(joined(one, 1)) for one in chunks]  # chunks may be empty
        pairs = zip(made, bounds, strict=True)
        tilings = [Tiling(one, on(one), 0, 0) for on, one in pairs]
        while True:
            edges = [tile.made for tile in tilings]
            solve: Solve
            if pieces is not None:
                solve = PieceSolve(pieces)
            else:
                solves = map(axis_solve, operators, edges)
                solve = GridSolve(tuple(solves), layout.shape, fitted.finer)
            for axis, (tile, on) in enumerate(zip(tilings, made, strict=True)):
                lengths = tile.chunks
                if not solve.is_local(axis):
                    if len(lengths) > 1 and layout.shape[axis] > short:
                        emb = embedders[axis]
                        raise one_chunk(
                            "values", axis, f"each weight of {emb!r} depends on all samples"
                        )
                    lengths = (layout.shape[axis],)
                tilings[axis] = tiling(lengths, on, functools.partial(_needed, solve, axis))
            # joined chunks may end elsewhere, where the inverse must fall off too
            if all(set(tile.made) <= set(one) for tile, one in zip(tilings, edges, strict=True)):
                break
        dtype = operators[0].dtype if operators else layout.dtype
        return cls(solve, tuple(tilings), layout.dtype, np.dtype(dtype))

    def __call__(self, planes: Any) -> Any:
        """Return the weights, a dask array (C, K_1, ..., K_D), for one of samples."""
        from dask.delayed import delayed

        whole = with_halo(planes, self.tilings)
        return whole.map_blocks(
            _solved,
            one=delayed(self, pure=True, traverse=False),
            dtype=self.weights_dtype,
            chunks=(whole.chunks[0], *(tile.made_chunks for tile in self.tilings)),
            meta=np.empty((0,) * whole.ndim, dtype=self.weights_dtype),
        )

    @with_one_blas_thread
    def solved(self, planes: Array, chunk: Sequence[int]) -> Array:
        """Return the weights of a chunk from its samples with their halo."""
        box = [tile.side(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        if any(stop <= first for first, stop in box):  # fewer features than chunks
            shape = (len(planes), *(stop - first for first, stop in box))
            return np.empty(shape, dtype=self.weights_dtype)
        low = [tile.start(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        parts = [slice(None)]
        for axis, (side, first) in enumerate(zip(box, low, strict=True)):
            start, stop = self.solve.samples(axis, *side)
            parts.append(slice(start - first, stop - first))
        check_finite(planes, low)
        values = planes[tuple(parts)].astype(self.dtype, copy=False)
        with np.errstate(over="ignore", invalid="ignore"), one_thread():
            weights = self.solve(values, box).astype(self.weights_dtype, copy=False)
        if not sum_is_finite(weights) and not np.all(np.isfinite(weights)):
            raise fit_overflow()
        return np.ascontiguousarray(weights)


def _needed(solve: Solve, axis: int, first: int, stop: int) -> tuple[int, int] | None:
    """Return the range of the samples that weights depend on; None if there are no weights."""
    return solve.samples(axis, first, stop) if stop > first else None


def _solved(planes: Array, one: Any = None, block_id: tuple[int, ...] = ()) -> Array:
    """Return the weights of one block of a dask array."""
    return one.solved(planes, block_id[1:])


def _made(
    embedder: Embedder, frame: Frame, x: Array, step: int, given: Sequence[int]
) -> tuple[int, ...]:
    """Return where the weights of chunks begin: near the samples where the chunks begin.

    They begin at multiples of ``step`` if no chunk is left without weights: the blocks of a banded
    matrix are then multiplied whole, and chunks of equal length stay so.
    """
    K, inner = embedder.size, np.asarray(given[1:-1])
    if not len(inner):
        return 0, K
    at = owners(embedder, frame.unit(x[inner]))
    rounded = np.concatenate([[0], np.rint(at / step).astype(int) * step, [K]])
    if np.all(np.diff(rounded) > 0):
        return tuple(rounded.tolist())
    return 0, *at.tolist(), K


@record(eq=False)
class LazyFit:
    """The fit of lazy values on a grid, with every setting. Call it to fit other values there."""

    fitted: GridFit
    settings: Settings

    def without_samples(self) -> LazyFit:
        """Return the part of this that a pickled field keeps: all of it."""
        return self

    def __call__(self, values: Any) -> LazyField:
        """Return the field of other values on the same grid."""
        started = time.perf_counter()
        array = as_dask(values)
        if type(array).__name__ == "DataArray":
            array = array.data
        grid = GridInput.on(self.fitted.layout, array)
        return self.field(grid, "given, as in an earlier fit", [], started)

    def field(
        self, grid: GridInput, chosen_by: str, candidates: list[Candidate], started: float
    ) -> LazyField:
        """Return the field, whose weights are computed when they are asked for."""
        fitted, layout = self.fitted, self.fitted.layout
        planes = planar(grid.values, layout)
        weights = ChunkSolve.of(fitted, planes.chunks[1:], self.settings.lazy.short)(planes)
        field = LazyField(
            fitted.encoding,
            weights,
            layout.frames if fitted.finer is None else fitted.finer.frames,
            layout.shown_axes,
            channels=layout.channels,
            is_complex=layout.is_complex,
            dtype=layout.dtype,
            again=self,
        )
        part = centre(layout.shape, self.settings.grid.crop_samples)
        residual = MiddleResidual(field, planes, part)
        field.report = fitted.report(grid, chosen_by, candidates, started, residual)
        field.with_places(GridPlaces())
        return field


@record(eq=False)
class MiddleResidual:
    """The root mean square of value minus fit in the middle of a lazy grid, read when called."""

    field: LazyField
    planes: Any
    part: tuple[slice, ...]

    def __call__(self) -> float:
        """Return the residual, in the units of the values."""
        values = middle(self.planes, self.part)
        axes = [x[some] for x, some in zip(self.field.rising_axes, self.part, strict=True)]
        fit = np.asarray(self.field.planes_on(axes))
        return grid_residual(values, [(slice(None), fit)])
