"""`fit`: values on a grid in, a field out; what is left open is chosen from the data."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from kronfield._arrays import describe, problem, real
from kronfield.choice import best_ridge, choose
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.evaluation import grid_blocks
from kronfield.field import Field
from kronfield.fitting_points import TOLERANCE, checked_options, fit_checked
from kronfield.inputs import GridInput, split_mask, sum_is_finite
from kronfield.point_grids import even_lattice
from kronfield.point_inputs import PointInput
from kronfield.refinement import Refinement
from kronfield.report import Candidate, FitReport
from kronfield.solvers.banded import Matrix
from kronfield.solvers.separable import GridSolver


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
    rcond: float | None = None,
    mask: Any = None,
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
        By default chosen from the data: splines, or on a lattice twice as fine what slopes from the data fill in there. One
        embedder stands for the same on each axis.
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
    rcond : float, optional
        Singular values of an axis below this fraction of its largest count as zero; by default the square root of the
        rounding unit of the values, 1.5e-8 or for float32 3.5e-4. The fit is then the one of least norm, and a `RankWarning`
        says so.
    mask : array of bool, optional
        True where a sample is missing, of the shape of the grid or of values; a masked array needs it too, mask=values.mask.
        The rest is then fitted as `fit_points` would, and the roughness penalty decides what fills the gaps.

    Returns
    -------
    Field
        With what was done in ``field.report``.
    """
    started = time.perf_counter()
    values, missing = split_mask(values, mask)
    grid = GridInput(values, axes, encoding, domain, channels)
    if missing is not None:
        return _fit_the_rest(grid, missing, ridge, roughness, started)
    if isinstance(roughness, str) and (roughness != "gcv" or encoding is not None or ridge):
        raise problem(
            "roughness", repr(roughness), 'two numbers, or "gcv" with no encoding and ridge', "For example (0.0, 0.01)."
        )
    if rcond is None:
        rcond = math.sqrt(np.finfo(grid.dtype.type).eps)
    rcond = real("rcond", rcond, low=0.0, high=1.0, remedy="It is a fraction of the largest singular value.")
    kronecker = grid.encoding
    chosen_by, candidates = "given", list[Candidate]()
    smooth, finer = 0, None
    if kronecker is None:
        forced = isinstance(roughness, str)
        open_penalty = ridge is None and (roughness is None or forced)
        interpolating = not ridge and (open_penalty or not any(_pair(roughness)))
        choice = choose(
            grid.planar(), grid.axes, grid.frames, smoothing=open_penalty, forced=forced, interpolating=interpolating
        )
        kronecker, smooth, finer = choice.encoding, choice.smooth, choice.finer
        chosen_by, candidates = choice.chosen_by, choice.candidates
        roughness = choice.roughness if open_penalty else roughness
        ridge = 0.0 if ridge is None else ridge
    elif ridge is None and roughness is None:
        ridge, candidates = _choose_ridge(kronecker, grid, rcond)
        chosen_by = "generalised cross-validation"
    solver = GridSolver(
        kronecker,
        finer.frames if finer else grid.frames,
        finer.axes if finer else grid.axes,
        dtype=grid.dtype,
        ridge=ridge or 0.0,
        roughness=_pair(roughness),
        smooth=smooth,
        rcond=rcond,
    )
    _warn_of_rank(solver)

    def again(new_values: Any) -> Field:
        began = time.perf_counter()
        new = GridInput(new_values, axes, kronecker, domain, grid.channels)
        if new.shape != grid.shape or (new.dtype, new.is_complex) != (grid.dtype, grid.is_complex):
            raise problem("values", describe(new_values), f"the grid {grid.shape}, {grid.dtype}", "For others call kf.fit.")
        return _field(solver, finer, new, "given, as in an earlier fit", [], began, again)

    return _field(solver, finer, grid, chosen_by, candidates, started, again)


def _fit_the_rest(grid: GridInput, missing: Matrix, ridge: Any, roughness: Any, started: float) -> Field:
    """Fit the samples that are not missing, as points."""
    if missing.ndim > len(grid.shape):
        missing = np.asarray(missing.any(axis=-1))
    if missing.shape != grid.shape:
        raise problem("mask", f"shape {missing.shape}", f"{grid.shape}, the grid", "True where a sample is missing.")
    if isinstance(roughness, str):
        raise problem(
            "roughness", repr(roughness), "two numbers, where samples are missing", "Leave it out to have it chosen."
        )
    points, rest = grid.at(~missing)
    domain = [(frame.low, frame.high) for frame in grid.frames]
    given = PointInput(points, rest, None, domain, grid.encoding)
    given.dropped = int(missing.sum())
    lattice = None if grid.encoding is not None else even_lattice(grid.axes)
    options = checked_options(ridge, roughness, None, len(grid.shape))
    # what a solver that stops early has not done is seen in the gaps
    field = fit_checked(given, lattice, options, started, tuple(grid.frames), loosest=TOLERANCE)
    return field._with_axes(grid.given_axes)


def _field(
    solver: GridSolver,
    finer: Refinement | None,
    grid: GridInput,
    chosen_by: str,
    candidates: list[Candidate],
    started: float,
    again: Callable[[Any], Field],
) -> Field:
    """Solve, on the finer lattice if there is one, and wrap the weights up."""

    def at_nodes(values: Matrix) -> Matrix:
        return values if finer is None else finer(values)

    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        if grid.piecewise:
            weights = np.stack([solver.solve(at_nodes(plane[None]))[0] for plane in grid.planar()])
        else:
            weights = solver.solve(at_nodes(grid.planar()))  # no name for it here, so that it can go as soon as it is used
    if not sum_is_finite(weights) and not np.all(np.isfinite(weights)):
        raise problem("values", "numbers so large that their fit overflows", "smaller ones", "Divide them by their maximum.")
    if grid.shares(weights):
        weights = weights.copy()  # the field's own
    units = [frame.unit(axis) for frame, axis in zip(solver.frames, grid.axes, strict=True)]
    report = FitReport(
        samples=grid.shape,
        channels=grid.channel_count,
        embedders=solver.encoding.embedders,
        units=units,
        methods=solver.methods,
        ranks=solver.ranks,
        ridge=solver.ridge,
        roughness=solver.roughness,
        chosen_by=chosen_by,
        candidates=candidates,
        refined=finer is not None,
        # slopes from the data meet every sample
        degrees_of_freedom=solver.degrees_of_freedom if finer is None else float(math.prod(grid.shape)),
        seconds=time.perf_counter() - started,
        measure_residual=lambda: _residual(solver.encoding, weights, units, grid.planar()),
    )
    return Field(
        solver.encoding,
        weights,
        solver.frames,
        grid.given_axes,
        channels=grid.channels,
        is_complex=grid.is_complex,
        dtype=grid.dtype,
        report=report,
        again=again,
    )


def _choose_ridge(encoding: Kronecker, grid: GridInput, rcond: float) -> tuple[float, list[Candidate]]:
    solver = GridSolver(encoding, grid.frames, grid.axes, ridge=1.0, rcond=rcond)
    return best_ridge(solver, grid.planar())


def _pair(roughness: Any) -> tuple[float, float]:
    if roughness is None:
        return (0.0, 0.0)
    try:
        first, second = roughness
    except (TypeError, ValueError) as error:
        raise problem("roughness", describe(roughness), "a pair", "Pass (first, second), either may be 0.") from error
    return first, second


def _warn_of_rank(solver: GridSolver) -> None:
    for i, (rank, emb, axis) in enumerate(zip(solver.ranks, solver.encoding.embedders, solver.axes, strict=True)):
        full = min(emb.size, len(axis))
        if rank < full and not solver.bases and not solver.smooth:
            warnings.warn(
                f"axis {i}: {emb!r} has effective rank {rank} of {full} on {len(axis)} samples at rcond={solver.rcond:g}; "
                "the fit is the one of least norm and does not meet all samples. Use a narrower width (of Fourier features "
                "a larger scale or exponent), another embedder, or a ridge.",
                RankWarning,
                stacklevel=3,
            )


def _residual(encoding: Kronecker, planes: Matrix, units: Sequence[Matrix], values: Matrix) -> float:
    total, scale = 0.0, float(max(abs(float(values.max())), abs(float(values.min())))) or 1.0
    for rows, block in grid_blocks(encoding, planes, units, [0] * len(units)):
        total += float(np.sum(((block.astype(np.float64) - values[:, rows]) / scale) ** 2))
    return scale * math.sqrt(total / values.size)
