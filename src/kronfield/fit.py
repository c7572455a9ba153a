"""`fit`: values on a grid in, a field out; what is left open is chosen from the data."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kronfield._arrays import describe, float_array, problem, real
from kronfield.choice import best_ridge, choose, sample_frame
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.evaluation import grid_blocks
from kronfield.field import Field
from kronfield.report import Candidate, FitReport
from kronfield.solvers.banded import Matrix
from kronfield.solvers.separable import Frame, GridSolver

# A last axis this short, with all others longer, is taken for channels where nothing says otherwise.
MOST_CHANNELS = 4


class RankWarning(UserWarning):
    """An encoding cannot tell all samples apart; the fit is the one of least norm."""


def fit(
    values: Any,
    axes: Sequence[Any] | None = None,
    encoding: Kronecker | Embedder | None = None,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    ridge: float | None = None,
    roughness: tuple[float, float] | Literal["gcv"] | None = None,
    channels: bool | None = None,
    rcond: float = 1e-10,
) -> Field:
    """Return the field that fits values on a grid, in closed form.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> x, y = np.linspace(0, 2, 40), np.linspace(-1, 1, 50)
    >>> field = kf.fit(np.sin(3 * x)[:, None] * np.cos(2 * y), axes=[x, y])
    >>> field(np.array([[1.03, 0.21]])).round(3), round(np.sin(3.09) * np.cos(0.42), 3)
    (array([0.047]), np.float64(0.047))
    >>> paper = kf.Kronecker(kf.Gaussian(40, 0.016), kf.Gaussian(50, 0.0128))
    >>> kf.fit(np.ones((40, 50, 3)), encoding=paper, ridge=0.0).on_grid((80, 100)).shape
    (80, 100, 3)

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        Real, integer or complex; a memory map is read in parts. float32 stays float32; integers of up to 16 bits become
        float32, others float64.
    axes : sequence of D arrays, optional
        The positions of the samples on each axis, rising or falling, even or not, in any units. By default array indices,
        each sample in the middle of its cell: the domain of N samples is [-0.5, N - 0.5].
    encoding : Kronecker or Embedder, optional
        By default chosen from the data. One embedder stands for the same on each axis.
    domain : sequence of D pairs (low, high), optional
        With ``axes``: where the unit interval of the embedders lies. Without: the box of which the samples are cells.
    ridge : float, optional
        Weight of the sum of squared weights. By default 0 where the encoding is chosen, else chosen by generalised
        cross-validation; 0 is the paper's closed form.
    roughness : (float, float), optional
        What to add to the mean squared residual: these times the mean of |gradient|^2 and of |second derivatives|^2.
        By default 0, or chosen together with the encoding if the samples are clearly noisy; "gcv" has it chosen by
        generalised cross-validation whether they are or not.
    channels : bool, optional
        Whether the last axis holds channels. By default as ``axes`` or ``encoding`` say; else it does if it is no longer
        than 4 and all others are.
    rcond : float
        Singular values of an axis below this fraction of its largest count as zero.

    Returns
    -------
    Field
        With what was done in ``field.report``.
    """
    started = time.perf_counter()
    grid = _Grid(values, axes, encoding, domain, channels)
    if isinstance(roughness, str) and (roughness != "gcv" or encoding is not None or ridge):
        raise problem("roughness", repr(roughness), 'two numbers, or "gcv" with nothing else given', "Leave out the rest.")
    rcond = real("rcond", rcond, low=0.0, high=1.0, remedy="It is a fraction of the largest singular value.")
    kronecker = grid.encoding
    chosen_by, candidates = "given", list[Candidate]()
    smooth = 0
    if kronecker is None:
        forced = isinstance(roughness, str)
        open_penalty = ridge is None and (roughness is None or forced)
        choice = choose(grid.planes, grid.axes, grid.frames, smoothing=open_penalty, forced=forced)
        kronecker, smooth, chosen_by, candidates = choice.encoding, choice.smooth, choice.chosen_by, choice.candidates
        roughness = choice.roughness if open_penalty else roughness
        ridge = 0.0 if ridge is None else ridge
    elif ridge is None and roughness is None:
        ridge, candidates = _choose_ridge(kronecker, grid, rcond)
        chosen_by = "generalised cross-validation"
    solver = GridSolver(
        kronecker,
        grid.frames,
        grid.axes,
        dtype=grid.dtype,
        ridge=ridge or 0.0,
        roughness=_pair(roughness),
        smooth=smooth,
        rcond=rcond,
    )
    _warn_of_rank(solver, kronecker, grid)
    planes = (
        np.stack([solver.solve(plane[None])[0] for plane in grid.planes]) if grid.piecewise else solver.solve(grid.planes)
    )
    if np.shares_memory(planes, grid.planes):
        planes = planes.copy()  # weights are the field's own
    report = FitReport(
        samples=tuple(len(axis) for axis in grid.axes),
        channels=grid.planes.shape[0] // (2 if grid.is_complex else 1),
        embedders=kronecker.embedders,
        units=solver.units,
        methods=solver.methods,
        ranks=solver.ranks,
        ridge=solver.ridge,
        roughness=solver.roughness,
        chosen_by=chosen_by,
        candidates=candidates,
        degrees_of_freedom=solver.degrees_of_freedom,
        seconds=time.perf_counter() - started,
        measure_residual=lambda: _residual(kronecker, planes, solver.units, grid.planes),
    )
    return Field(
        kronecker,
        planes,
        grid.frames,
        grid.axes,
        channels=grid.channels,
        is_complex=grid.is_complex,
        dtype=grid.dtype,
        report=report,
    )


class _Grid:
    """Checked values and axes: planar values (C, N_1, ..., N_D), rising axes, and a frame per axis."""

    def __init__(self, values: Any, axes: Any, encoding: Any, domain: Any, channels: bool | None) -> None:
        array = _checked_values(values)
        self.is_complex = np.issubdtype(array.dtype, np.complexfloating)
        self.dtype = np.dtype(np.float32 if np.result_type(array.dtype, np.float16).itemsize <= 4 else np.float64)
        if self.is_complex:
            self.dtype = np.dtype(np.float32 if array.dtype == np.complex64 else np.float64)
        D, self.channels = _dimensions(array.shape, axes, encoding, channels)
        if 0 in array.shape:
            raise problem("values", describe(array), "at least one sample on each axis", "There is nothing to fit.")
        self.axes, flips = _checked_axes(axes, domain, array.shape[:D])
        self.frames = _frames(axes, domain, self.axes)
        self.encoding = _checked_encoding(encoding, D)
        # a memory map with channels is read one channel at a time, and so is never copied whole
        self.piecewise = isinstance(array, np.memmap) and self.channels
        self.planes = self._planar(array[tuple(slice(None, None, -1) if flip else slice(None) for flip in flips)], D)

    def _planar(self, array: Matrix, D: int) -> Matrix:
        if self.is_complex:  # a complex channel is two real ones
            parts = np.stack([array.real, array.imag], axis=-1)
            array = parts.reshape(*array.shape[:D], -1)
        elif not self.channels:
            return array[None]
        planar = np.moveaxis(array, -1, 0)
        return planar if self.piecewise else np.ascontiguousarray(planar)


def _checked_values(values: Any) -> Matrix:
    remedy = "fit needs every sample; fit_points takes values with gaps."
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise problem("values", f"a masked array, {int(np.ma.getmaskarray(values).sum())} masked", "no mask", remedy)
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise problem("values", describe(values), "an array", "Pass a NumPy array.", TypeError) from error
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or array.dtype.itemsize > 16:
        raise problem("values", describe(array), "numbers", "Convert them to float first.", TypeError)
    if array.ndim == 0:
        raise problem("values", describe(array), "an array of at least one axis", "Pass the samples as an array.")
    inexact = np.issubdtype(array.dtype, np.inexact)
    # a sum shows NaN and inf in one pass without a copy; only if it does, look which
    if inexact and array.size and not _sum_is_finite(array):
        bad = sum(int(np.sum(~np.isfinite(row))) for row in array)
        if bad:
            raise problem("values", f"{bad} NaN or inf in {describe(array)}", "finite numbers", remedy)
    return array


def _sum_is_finite(array: Matrix) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(array)))


def _dimensions(shape: tuple[int, ...], axes: Any, encoding: Any, channels: bool | None) -> tuple[int, bool]:
    """Return D, and whether the last axis of values holds channels."""
    if channels not in (None, True, False):
        raise problem("channels", describe(channels), "True, False or None", "Say whether the last axis is channels.")
    known = len(axes) if axes is not None else encoding.dimensions if isinstance(encoding, Kronecker) else None
    if known is None:
        if channels is None:
            channels = len(shape) > 1 and shape[-1] <= MOST_CHANNELS < min(shape[:-1])
        known = len(shape) - bool(channels)
    elif channels is None:
        channels = len(shape) == known + 1
    if known < 1 or len(shape) != known + bool(channels):
        raise problem(
            "values",
            f"shape {shape}",
            f"{known} axes{' and one of channels' if channels else ''}",
            "Axes and encoding say how many axes there are; channels come last.",
        )
    return known, bool(channels)


def _checked_axes(axes: Any, domain: Any, shape: tuple[int, ...]) -> tuple[list[Matrix], list[bool]]:
    """Return rising float64 positions per axis, and which axes of the values to turn round for that."""
    if axes is None:
        if domain is None:
            return [np.arange(n, dtype=np.float64) for n in shape], [False] * len(shape)
        pairs = _checked_domain(domain, len(shape))
        cells = zip(pairs, shape, strict=True)
        return [low + (high - low) * (np.arange(n) + 0.5) / n for (low, high), n in cells], [False] * len(shape)
    result, flips = [], []
    for i, (axis, n) in enumerate(zip(axes, shape, strict=True)):
        x = float_array(f"axes[{i}]", np.asarray(axis, dtype=np.float64))
        if x.shape != (n,):
            raise problem(f"axes[{i}]", describe(x), f"shape ({n},), as values have", "One position per sample.")
        falling = n > 1 and bool(x[0] > x[-1])
        x = x[::-1] if falling else x
        if np.any(np.diff(x) <= 0):
            raise problem(
                f"axes[{i}]",
                describe(x),
                "positions that rise or fall all the way",
                "Sort them; merge any that are equal.",
            )
        result.append(np.ascontiguousarray(x))
        flips.append(falling)
    return result, flips


def _checked_domain(domain: Any, D: int) -> list[tuple[float, float]]:
    remedy = "Pass one (low, high) per axis, low < high."
    try:
        pairs = [(float(low), float(high)) for low, high in domain]
    except (TypeError, ValueError) as error:
        raise problem("domain", describe(domain), f"{D} pairs", remedy) from error
    if len(pairs) != D or not all(math.isfinite(low + high) and low < high for low, high in pairs):
        raise problem("domain", describe(domain), f"{D} pairs with low < high", remedy)
    return pairs


def _frames(axes: Any, domain: Any, positions: list[Matrix]) -> list[Frame]:
    """Return where the embedders' unit interval lies on each axis; see the conventions page."""
    if domain is None:
        return [sample_frame(axis) for axis in positions]
    pairs = _checked_domain(domain, len(positions))
    if axes is None:  # cells of the domain: centres sit on samples, half a cell in
        return [Frame(float(x[0]), high - low, low, high) for x, (low, high) in zip(positions, pairs, strict=True)]
    for i, (x, (low, high)) in enumerate(zip(positions, pairs, strict=True)):
        if x[0] < low or x[-1] > high:
            raise problem("domain", (low, high), f"to hold axes[{i}], from {x[0]:g} to {x[-1]:g}", "Widen the domain.")
    return [Frame(low, high - low, low, high) for low, high in pairs]


def _checked_encoding(encoding: Any, D: int) -> Kronecker | None:
    if encoding is None:
        return None
    if isinstance(encoding, Embedder):
        encoding = Kronecker(*[encoding] * D)
    if not isinstance(encoding, Kronecker):
        raise problem("encoding", describe(encoding), "a Kronecker encoding or an embedder", "Or leave it out.", TypeError)
    if encoding.dimensions != D:
        raise problem("encoding", f"{encoding.dimensions} embedders", f"{D}, one per axis of values", "Add or drop some.")
    return encoding


def _choose_ridge(encoding: Kronecker, grid: _Grid, rcond: float) -> tuple[float, list[Candidate]]:
    solver = GridSolver(encoding, grid.frames, grid.axes, ridge=1.0, rcond=rcond)
    return best_ridge(solver, grid.planes)


def _pair(roughness: Any) -> tuple[float, float]:
    if roughness is None:
        return (0.0, 0.0)
    try:
        first, second = roughness
    except (TypeError, ValueError) as error:
        raise problem("roughness", describe(roughness), "a pair", "Pass (first, second), either may be 0.") from error
    return first, second


def _warn_of_rank(solver: GridSolver, encoding: Kronecker, grid: _Grid) -> None:
    for i, (rank, emb, axis) in enumerate(zip(solver.ranks, encoding.embedders, grid.axes, strict=True)):
        full = min(emb.size, len(axis))
        if rank < full and not solver.bases:
            warnings.warn(
                f"axis {i}: {emb!r} has effective rank {rank} of {full} on {len(axis)} samples at rcond={solver.rcond:g}; "
                "the fit is the one of least norm and does not meet all samples. Use a narrower width, another embedder, "
                "or a ridge.",
                RankWarning,
                stacklevel=3,
            )


def _residual(encoding: Kronecker, planes: Matrix, units: Sequence[Matrix], values: Matrix) -> float:
    total = 0.0
    for rows, block in grid_blocks(encoding, planes, units, [0] * len(units)):
        total += float(np.sum((block.astype(np.float64) - values[:, rows]) ** 2))
    return math.sqrt(total / values.size)
