"""`fit` of arrays of Dask and zarr: chosen from the middle, solved chunk by chunk when asked."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from kronfield._core.frames import Frame, centre, sample_frame
from kronfield._core.memory import check_memory
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field.places import GridPlaces
from kronfield.fitting.denoising import Removal
from kronfield.fitting.grid import GridFit, warn_of_rank
from kronfield.fitting.grid_choice import GridChoice, NoiseFound, choose
from kronfield.fitting.inputs import GridInput, GridLayout
from kronfield.fitting.labelled import labelled_grid
from kronfield.fitting.middle import Middle
from kronfield.fitting.options import GridOptions
from kronfield.fitting.report import Candidate, grid_residual
from kronfield.fitting.settings import Settings
from kronfield.fitting.splines import tension_encoding
from kronfield.lazy.chunks import (
    Tiling,
    joined,
    one_chunk,
    owners,
    starts,
    tiling,
    with_halo,
)
from kronfield.lazy.clean import ChunkClean, Cleaner, Penalising, Shrinking
from kronfield.lazy.field import LazyField
from kronfield.lazy.fill import ChunkFill, as_mask, filled
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
    roughness: Any,
    noise: Any,
    channels: bool | None,
    rcond: Any,
    periodic: Any,
    ends: Any,
    settings: Settings | None,
    mask: Any,
    others: Mapping[str, Any],
) -> LazyField:
    """Return the field of an array of Dask or zarr, as `fit` describes.

    Only the middle is read, to choose an encoding. ``others`` are arguments that are refused.
    """
    _refuse(others, ridge, roughness, noise, has_encoding=encoding is not None)
    given = labelled_grid(as_dask(values), axes, domain, None, channels)
    return _fitted(
        given,
        encoding,
        mask=mask,
        periodic=periodic,
        ends=ends,
        ridge=0.0 if encoding is not None else ridge,
        roughness=roughness,
        noise=noise,
        rcond=rcond,
        settings=settings,
    )


def denoise_lazy(
    values: Any,
    axes: Sequence[Any] | None,
    *,
    noise: Any,
    mask: Any,
    periodic: Any,
    channels: bool | None,
    thorough: bool,
    settings: Settings | None,
) -> LazyField:
    """Return the field of an array of Dask or zarr without its noise, as `denoise` describes."""
    _refuse({"mask": mask}, None, None, noise, has_encoding=False)
    given = labelled_grid(as_dask(values), axes, None, None, channels)
    return _fitted(
        given,
        None,
        periodic=periodic,
        ends=None,
        noise=noise,
        denoise=True,
        thorough=thorough,
        settings=settings,
    )


def _fitted(
    given: Any, encoding: Any, *, periodic: Any, ends: Any, mask: Any = None, **asked: Any
) -> LazyField:
    """Return the lazy field of labelled values with the options that were asked for."""
    started = time.perf_counter()
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
        **asked,
        has_encoding=grid.encoding is not None,
        channels=grid.channel_count,
        ends=grid.ends,
        only_middle=True,
    )
    missing = None if mask is None else _missing(mask, grid, options)
    choice, cleaner = _choice(grid, options, missing)
    rcond = choice.rcond if options.rcond is None else options.rcond
    fitted = GridFit(grid.layout, choice, rcond, options.settings.grid)
    if grid.encoding is not None:
        warn_of_rank(fitted.solver)
    again = LazyFit(fitted, options.settings, cleaner)
    field = again.field(grid, choice.chosen_by, choice.candidates, started, missing)
    field.with_labels(given.labels)
    return field


def _missing(mask: Any, grid: GridInput, options: GridOptions) -> Any:
    """Return a mask as an array of Dask; refuse what goes with none."""
    asked = not options.interpolates or options.asks_for_gcv or np.any(options.noise)
    wraps = any(frame.wraps for frame in grid.layout.frames)
    if asked or wraps or any(options.ends) or grid.encoding is not None:
        raise problem(
            "mask",
            "a mask beside noise, a penalty, ends, an encoding or periods, and an array of Dask",
            "a mask alone",
            "Fill the holes first: kf.fit(values, mask=mask).on_grid().",
        )
    return as_mask(mask, grid.layout)


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


def _refuse(
    others: Mapping[str, Any], ridge: Any, roughness: Any, noise: Any, *, has_encoding: bool
) -> None:
    """Raise an error for arguments that fits of lazy arrays do not have."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise problem(
            given[0],
            f"{given[0]} beside an array of Dask or zarr",
            "an interpolation of all samples",
            "Leave it out, or fit parts in memory: kf.fit(values[part].compute(), ...).",
        )
    if has_encoding and ridge is None and roughness is None:
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
    if has_encoding and (isinstance(roughness, str) or np.any(roughness)):
        raise problem(
            "roughness",
            f"{roughness} beside an encoding and an array of Dask or zarr",
            "no encoding, so that features lie at the samples",
            "Leave the encoding or the roughness out, or fit parts in memory.",
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


def _choice(
    grid: GridInput, options: GridOptions, missing: Any = None
) -> tuple[GridChoice, Cleaner | None]:
    """Return the settings given, or those chosen from the middle, and how noise is removed."""
    layout = grid.layout
    D = len(layout.shape)
    if grid.encoding is not None:
        return GridChoice(grid.encoding, (0,) * D, "given", []), None
    import dask

    if not options.interpolates:
        if any(frame.wraps for frame in layout.frames):
            raise _no_circles()
        given = choose(grid.values, grid.axes, layout.frames, options)  # reads nothing
        tension = options.settings.smoothing.tensions[int(not given.roughness[0])]
        channels = grid.channel_count * (2 if layout.is_complex else 1)
        roughness = (given.roughness,) * channels
        cleaner = _penalising(grid, np.eye(channels), roughness, (1.0,) * D, tension, options)
        return replace(given, roughness=(0.0, 0.0)), cleaner
    most = max(options.settings.grid.crop_samples, options.settings.noise.most_samples)
    part = centre(layout.shape, most)
    count = math.prod(one.stop - one.start for one in part)
    planes = planar(grid.values, layout)
    check_memory(
        "values",
        f"a choice from {count} samples of {len(planes)} real channels",
        8.0 * JUDGED * len(planes) * count,
        "Fit some of the channels after the others.",
    )
    low = [one.start for one in part]
    if missing is None:
        values = middle(planes, part)
    else:  # known samples are taken as they are, as in memory
        axes = [x[some] for x, some in zip(grid.axes, part, strict=True)]
        values, holes = dask.compute(planes[(slice(None), *part)], missing[part])
        values = values.astype(layout.dtype, copy=False)
        values = filled(values, holes, axes, options.settings, "in the middle")
        check_finite(values, low)
        options = replace(options, noise=np.zeros(()))
    if not options.denoise and not options.asks_for_gcv and not np.any(options.noise):
        read = Middle(values, low, layout.shape)
        try:
            return choose(read, grid.axes, layout.frames, options), None  # type: ignore[arg-type]
        except NoiseFound:
            pass
    return _cleaned_choice(grid, values, low, options)


def _no_circles() -> Exception:
    """Return the error for a penalty on axes that wrap."""
    return problem(
        "periodic",
        "an axis that wraps beside noise or a penalty, and an array of Dask or zarr",
        "no periods, or no noise",
        "Pass noise=0 to interpolate the samples as they are, or leave periodic out.",
    )


def _cleaned_choice(
    grid: GridInput, values: Array, low: Sequence[int], options: GridOptions
) -> tuple[GridChoice, Cleaner | None]:
    """Return how noise is removed, as chosen on the middle, and what follows between the samples.

    The middle is judged as a grid of its own.
    """
    layout, shape = grid.layout, values.shape[1:]
    axes = [x[a : a + n] for x, a, n in zip(grid.axes, low, shape, strict=True)]
    if any(frame.wraps for frame in layout.frames):
        raise _no_circles()
    frames = [sample_frame(x) for x in axes]
    found = choose(values, axes, frames, replace(options, only_middle=False))
    clean, removal = found.clean, found.removal
    plain = replace(options, noise=np.zeros(()), roughness=None)

    def between(clean: Array) -> GridChoice:
        read: Any = Middle(clean, low, layout.shape)
        chosen = choose(read, grid.axes, layout.frames, plain)
        return replace(
            chosen, chosen_by=found.chosen_by, candidates=found.candidates, noise=found.noise
        )

    if isinstance(removal, Removal):
        assert clean is not None
        return between(clean), Shrinking(removal, removal.level(values), layout.shape)
    smoothing = found.smoothing if removal is None else removal.smoothing
    if smoothing is None:  # there is no noise, or nothing is gained
        return between(values), None
    cleaner = _penalising(
        grid,
        smoothing.rotation,
        tuple(smoothing.roughness),
        smoothing.units,
        smoothing.tension,
        options,
    )
    if clean is not None:
        return between(clean), cleaner
    encoding = tension_encoding(grid.axes, layout.frames, smoothing.tension, thinned=True)
    smooth = (2,) * len(layout.shape)
    choice = GridChoice(encoding, smooth, found.chosen_by, found.candidates, noise=found.noise)
    return choice, cleaner


def _penalising(
    grid: GridInput,
    rotation: Array,
    roughness: tuple[tuple[float, float], ...],
    units: tuple[float, ...],
    tension: float,
    options: GridOptions,
) -> Penalising:
    """Return the penalised fit of a grid in parts."""
    layout, error = grid.layout, options.settings.lazy.tile_error
    axes = tuple(grid.axes)
    whole = tension_encoding(axes, layout.frames, tension, thinned=True)
    own = tension_encoding(axes, [sample_frame(x) for x in axes], tension, thinned=True)
    for i, (has, wanted) in enumerate(zip(whole.shape, own.shape, strict=True)):
        if has != wanted or wanted < len(axes[i]):
            problem_of = "domain" if has != wanted else "axes"
            raise problem(
                problem_of,
                f"axis {i}, with {has} features for {len(axes[i])} samples, beside a penalty",
                "samples that fill the domain, none of which nearly coincide",
                "Leave the penalty out (noise=0), or fit parts in memory.",
            )
    return Penalising(axes, tuple(layout.frames), rotation, roughness, units, tension, error)


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
            "Pass mask=~dask.array.isfinite(values) to fit the rest and fill the gaps; on the "
            "command line, fit to a .field instead of a .zarr.",
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
    cleaner: Cleaner | None = None

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
        self,
        grid: GridInput,
        chosen_by: str,
        candidates: list[Candidate],
        started: float,
        missing: Any = None,
    ) -> LazyField:
        """Return the field, whose weights are computed when they are asked for."""
        fitted, layout = self.fitted, self.fitted.layout
        planes = planar(grid.values, layout)
        if missing is not None:
            own = planes.chunks[1:]
            fill = ChunkFill.of(grid.axes, own, layout.dtype, self.settings)
            planes = fill(planes, missing)
            chosen_by += "; missing samples filled chunk by chunk"
        noisy = planes
        if self.cleaner is not None:
            clean = ChunkClean.of(self.cleaner, planes.chunks[1:], layout.dtype, self.settings)
            planes = clean(planes)
            chosen_by += f"; {self.cleaner.remark(clean.tilings)}"
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
        residual = MiddleResidual(field, noisy, part)
        report = fitted.report(grid, chosen_by, candidates, started, residual)
        if isinstance(self.cleaner, Penalising):
            report.roughness = max(self.cleaner.roughness)
            report.units = self.cleaner.units
            report.degrees_of_freedom = self.cleaner.freedom() * math.prod(layout.shape)
        field.report = report
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
