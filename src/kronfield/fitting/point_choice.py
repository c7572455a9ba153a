"""The choice of grid, features and penalty in `fit_points`, by the error at held-out points.

This is cross-validation (Stone, 1974). The widths and the ridge of Gaussians are chosen by
likelihood.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.encoding import Kronecker
from kronfield.fitting.filling_choice import Hidden
from kronfield.fitting.gaussians import GaussianFit, likely_gaussians
from kronfield.fitting.line_choice import LineFolds, LineSmoother, line_penalty
from kronfield.fitting.nested import ChosenGrid
from kronfield.fitting.options import PointOptions
from kronfield.fitting.periods import Periods
from kronfield.fitting.point_grids import (
    Axis,
    Lattice,
    closed_axis,
    counts_for,
    grid_of,
    hat_axis,
    mean_distances,
    spline_axis,
    without_spare_nodes,
)
from kronfield.fitting.point_search import (
    LOOSEST,
    TIGHTEST,
    TRIAL_TOLERANCE,
    HeldOutWalk,
    LatticeTrial,
    Trial,
    Walk,
    ladder_for,
)
from kronfield.fitting.point_units import directional_units
from kronfield.fitting.report import Candidate, choose_lowest
from kronfield.fitting.settings import PointSettings
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.normal import Penalty

# The relative error where nothing could be held out to measure it. It changes no tolerance; it only
# keeps the scale above 0 by which outliers are judged.
UNKNOWN_ERROR = 1e-3


@record(eq=False)
class PointSamples:
    """Points (P, D), planar values (C, P) scaled to at most 1, and weights (P,) or None.

    ``level`` is the largest mean that was subtracted from a plane of the values.
    """

    points: Array
    values: Array
    weights: Array | None
    level: float = 0.0

    def without(self, left_out: Array) -> PointSamples:
        """Return the other points."""
        if not left_out.any():
            return self
        weights = None if self.weights is None else self.weights[~left_out]
        values = np.ascontiguousarray(self.values[:, ~left_out])
        return PointSamples(self.points[~left_out], values, weights, self.level)

    def too_few(self, fewest: int) -> bool:
        """Return whether there is too little data for a choice: few points, or equal values."""
        return len(self.points) < fewest or not np.ptp(self.values)


@record
class PointChoice:
    """The features and the penalty of a fit, and how they were chosen.

    Attributes
    ----------
    encoding, frames
        The features, and the frame of each axis.
    penalty : Penalty
        The penalty, as given or chosen.
    relative_error : float
        The predicted error, relative to the standard deviation of the values.
    chosen_by : str
        How the choice was made.
    candidates : list of Candidate
        The candidates, with their scores.
    gaussians : GaussianFit or None
        The Gaussians if they were chosen; they have a constant that is not penalised.
    held : HeldOut or None
        Of a lattice: the samples that were held out, and the errors there.
    expected : (float, float)
        The root mean square error at held-out points, of values scaled to 1, and its standard
        error; NaN if they are not known.
    grid : ChosenGrid or None
        The grid of the features if it was chosen and is no lattice.
    """

    encoding: Kronecker
    frames: tuple[Frame, ...]
    penalty: Penalty
    relative_error: float
    chosen_by: str
    candidates: list[Candidate]
    gaussians: GaussianFit | None = None
    held: HeldOut | None = None
    expected: tuple[float, float] = (math.nan, math.nan)
    grid: ChosenGrid | None = None


@record(eq=False)
class HeldOut:
    """The samples of a lattice that were held out, and the errors of the chosen fit there.

    ``errors`` are (C, n) for each window, of values scaled to 1.
    """

    hidden: Hidden
    errors: list[Array]


def choose_points(
    samples: PointSamples,
    box: Sequence[tuple[float, float]],
    lattice: list[Lattice] | None,
    options: PointOptions,
    periods: Periods = (),
    line: LineSmoother | None = None,
) -> PointChoice:
    """Return features, their grid and, unless it is given, the penalty for points in ``box``.

    The box is one period long on axes that wrap. ``line`` has the penalty of a lattice that is a
    line, if it was searched before.
    """
    count, settings = len(samples.points), options.settings
    units = options.units or _units(box, count, lattice)
    grids = _grids(box, count, lattice, settings.points, units, periods)
    known = options.penalty is not None and lattice is not None
    if known or samples.too_few(settings.points.fewest):
        return _unsearched(grids[0], box, known, options, units)
    return _searched(samples, box, lattice, options, periods, units, grids, line)


def _searched(
    samples: PointSamples,
    box: Sequence[tuple[float, float]],
    lattice: list[Lattice] | None,
    options: PointOptions,
    periods: Periods,
    units: tuple[float, ...],
    grids: list[_Grid],
    line: LineSmoother | None,
) -> PointChoice:
    """Return the features and the penalty that predict held-out points best."""
    count, settings = len(samples.points), options.settings
    trial, free = _trial(samples, lattice, options), lattice is None and not any(periods)
    if lattice is None and options.units is None:
        units = directional_units(
            trial.points,
            trial.values[0],
            box,
            count,
            gain=settings.points.units_gain,
            widest=settings.points.widest_units,
            neighbours=settings.points.unit_neighbours,
        )
        grids = _grids(box, count, lattice, settings.points, units, periods)
    gaussians = _gaussians(trial, box, options) if free else None
    score = math.inf if gaussians is None else gaussians.held_out(trial, samples.level)
    own = None
    if _is_line(samples, options, periods):
        own = functools.partial(
            _line_penalty, samples=samples, box=box, units=units, options=options, known=line
        )
    walks = _walks(trial, box, grids, units, options, score, own)
    # searches that cannot win are left out: there may be fewer walks than grids
    best, walk = min(zip(grids, walks, strict=False), key=lambda pair: pair[1].lowest)
    tried = list(chain.from_iterable(one.candidates() for one in walks))
    chance = 1 + settings.points.chance / math.sqrt(trial.judged)
    if gaussians is not None and score < chance * walk.lowest:
        return _of_gaussians(gaussians, score, trial, options, tried)
    others = [] if gaussians is None else [gaussians.candidate(score)]
    tried = [*choose_lowest(tried), *others]
    return _of_grid(best, box, walk, trial, options, tried, free)


def _unsearched(
    grid: _Grid,
    box: Sequence[tuple[float, float]],
    known: bool,
    options: PointOptions,
    units: tuple[float, ...] | None,
) -> PointChoice:
    """Return the choice of a grid if its penalty is given, or nothing can be held out."""
    encoding, frames = grid_of(grid.make, box, grid.counts)
    reason = (
        "given; the grid is the lattice of the points"
        if known
        else "default: too few different values to choose by"
    )
    default = Penalty(roughness=(options.settings.points.default_roughness,) * 2, units=units)
    return PointChoice(encoding, frames, options.penalty or default, UNKNOWN_ERROR, reason, [])


def _trial(samples: PointSamples, lattice: list[Lattice] | None, options: PointOptions) -> Trial:
    """Return the held-out points, in windows of the lattice if there is one."""
    if lattice is not None:
        trial = LatticeTrial(samples.points, samples.values, samples.weights, lattice, options)
        if trial.folds:  # a window may be too small to hold points out
            return trial
    return Trial(samples.points, samples.values, samples.weights, options)


def _gaussians(
    trial: Trial, box: Sequence[tuple[float, float]], options: PointOptions
) -> GaussianFit | None:
    """Return Gaussians of the likeliest width and ridge, if no option excludes them."""
    if options.penalty is not None or options.rows not in (None, "exact"):
        return None
    return likely_gaussians(trial, box, options.settings.gaussians)


def _of_grid(
    grid: _Grid,
    box: Sequence[tuple[float, float]],
    walk: Walk,
    trial: Trial,
    options: PointOptions,
    tried: list[Candidate],
    free: bool,
) -> PointChoice:
    """Return the choice of a grid with the best penalty of its walk.

    A ``free`` grid is neither a lattice nor wrapped.
    """
    encoding, frames = grid_of(grid.make, box, grid.counts)
    error, held = math.sqrt(walk.lowest), None
    if isinstance(trial, LatticeTrial):
        tolerance = min(max(TRIAL_TOLERANCE * error, TIGHTEST), LOOSEST)
        errors = trial.errors(grid.make, box, grid.counts, options.rows, walk.penalty, tolerance)
        held = HeldOut(trial.hidden, errors)
    return PointChoice(
        encoding,
        frames,
        walk.penalty,
        error,
        _decided(trial, options),
        tried,
        held=held,
        expected=_root(*walk.means[walk.best]),
        grid=ChosenGrid(grid.make, box, grid.counts) if free else None,
    )


def _of_gaussians(
    gaussians: GaussianFit,
    score: float,
    trial: Trial,
    options: PointOptions,
    tried: list[Candidate],
) -> PointChoice:
    """Return the choice of Gaussians, which predict held-out points as well as grids, or better."""
    return PointChoice(
        gaussians.encoding,
        gaussians.frames,
        Penalty(ridge=gaussians.ridge),
        math.sqrt(score),
        _decided(trial, options) + "; widths and ridge of Gaussians by likelihood",
        [*tried, replace(gaussians.candidate(score), chosen=True)],
        gaussians,
        expected=_root(score * trial.spread, math.nan),
    )


@record
class _Grid:
    """Features of one kind on a grid: name, function that makes an axis, and nodes per axis."""

    name: str
    make: Axis | Sequence[Axis]
    counts: list[int]


def _grids(
    box: Sequence[tuple[float, float]],
    points: int,
    lattice: list[Lattice] | None,
    settings: PointSettings,
    units: Sequence[float] | None = None,
    periods: Periods = (),
) -> list[_Grid]:
    """Return the candidate grids: the lattice of the points if it exists, or splines and hats.

    Hats on a finer grid are for rough values: a penalty on the gradient then acts between points
    as it would without a grid.
    """
    if lattice is not None:
        return [_Grid("hats on the lattice", hat_axis, [axis.count for axis in lattice])]
    few = points <= settings.few_points
    hats = settings.few_hat_cells if few else settings.hat_cells
    splines = functools.partial(spline_axis, tension=settings.spline_tension)
    most = settings.most_unknowns
    counts = counts_for(box, points, settings.spline_cells, most, units)
    grids = [
        _Grid("splines", splines, [without_spare_nodes(n) for n in counts]),
        _Grid("hats", hat_axis, counts_for(box, points, hats, most, units)),
    ]
    if settings.fine_hat_cells * points <= settings.most_fine_unknowns:
        fine = counts_for(box, points, settings.fine_hat_cells, most, units)
        grids.append(_Grid("fine hats", hat_axis, fine))
    if not any(periods):
        return grids
    return [replace(grid, make=_closing(grid.make, periods)) for grid in grids]


def _closing(make: Axis | Sequence[Axis], periods: Periods) -> list[Axis]:
    """Return a function to make each axis, wrapped where it has a period."""
    assert callable(make)
    return [
        make if period is None else functools.partial(closed_axis, make=make, period=period)
        for period in periods
    ]


def _units(
    box: Sequence[tuple[float, float]], points: int, lattice: list[Lattice] | None
) -> tuple[float, ...]:
    """Return the unit of length on each axis in which points are equally far apart on all axes."""
    units = mean_distances(box, points)
    if lattice is None:
        return units
    # The nodes of a lattice are one step apart on every axis: units are proportional to the steps.
    mean = math.prod(u / axis.step for u, axis in zip(units, lattice, strict=True)) ** (
        1 / len(units)
    )
    return tuple(mean * axis.step for axis in lattice)


def _walks(
    trial: Trial,
    box: Sequence[tuple[float, float]],
    grids: Sequence[_Grid],
    units: tuple[float, ...],
    options: PointOptions,
    score: float,
    penalty_of: Callable[[_Grid], Penalty] | None,
) -> list[Walk]:
    """Return the search for a penalty on each grid that may beat the ``score`` of Gaussians.

    On a line, ``penalty_of`` returns the penalty of a grid, chosen from all samples; the held-out
    points of the trial only measure its error.
    """
    walks: list[Walk] = []
    for grid in grids:
        # If Gaussians are better than splines, the values are too smooth for hats: skip them.
        if walks and score < walks[0].lowest:
            break
        # If splines are better than hats, a finer grid does not help either.
        if len(walks) > 1 and walks[0].lowest <= walks[-1].lowest:
            break
        place = grid.make, box, grid.counts, options.rows
        shared = trial.shared(*place)
        equations = trial.systems(*place) if shared is None else [shared.equations]
        search, penalty = options.settings.search, options.penalty
        if penalty_of is not None:
            penalty = penalty_of(grid)
        ladder = ladder_for(equations[0], units, penalty, search)
        walk = HeldOutWalk(trial, equations, ladder, grid.name, shared)
        # Finer steps gain little. Skip them if the coarse steps do not beat the other features.
        worth = min([score, *(one.lowest for one in walks)])
        walks.append(walk.run(walks[-1].best if walks else None, worth=worth))
    return walks


def _line_penalty(
    grid: _Grid,
    samples: PointSamples,
    box: Sequence[tuple[float, float]],
    units: tuple[float, ...],
    options: PointOptions,
    known: LineSmoother | None,
) -> Penalty:
    """Return the penalty of a line, from an earlier search if there was one."""
    if known is not None:
        return known.penalty(len(samples.points), box[0], grid.counts[0], units)
    search = options.settings.search
    rule = RowRule.choose(*grid_of(grid.make, box, grid.counts), "exact")
    own = samples.points, samples.values, samples.weights
    return line_penalty(LineFolds(rule, *own, search, options.seed), units, search)


def _is_line(samples: PointSamples, options: PointOptions, periods: Periods) -> bool:
    """Return whether the penalty is searched as on a line, by folds of all samples.

    Not on a circle, whose matrices are not banded, and not if blocks are held out.
    """
    return (
        samples.points.shape[1] == 1
        and not any(periods)
        and options.penalty is None
        and options.blocks is None
        and options.rows in (None, "exact")
    )


def choose_penalty(
    samples: PointSamples, encoding: Kronecker, frames: tuple[Frame, ...], options: PointOptions
) -> PointChoice:
    """Return the given encoding with a penalty, as given or chosen by held-out points."""
    if options.penalty is not None:
        return PointChoice(encoding, frames, options.penalty, 1.0, "given", [])
    if samples.too_few(options.settings.points.fewest):
        reason = "default: too few different values to choose by"
        default = Penalty(ridge=options.settings.points.default_ridge)
        return PointChoice(encoding, frames, default, UNKNOWN_ERROR, reason, [])
    box = [(frame.low, frame.high) for frame in frames]
    units = options.units or mean_distances(box, len(samples.points))
    trial = Trial(samples.points, samples.values, samples.weights, options, cropped=False)
    equations = trial.equations(encoding, frames, options.rows)
    ladder = ladder_for(equations[0], units, None, options.settings.search)
    walk = HeldOutWalk(trial, equations, ladder, "as given").run()
    error, tried = math.sqrt(walk.lowest), choose_lowest(walk.candidates())
    return PointChoice(
        encoding,
        frames,
        walk.penalty,
        error,
        _decided(trial, options),
        tried,
        expected=_root(*walk.means[walk.best]),
    )


def _root(mean: float, error: float) -> tuple[float, float]:
    """Return the root of a mean square and its standard error, from that of the mean square."""
    root = math.sqrt(mean)
    return root, error / (2 * root) if root else 0.0


def _decided(trial: Trial, options: PointOptions) -> str:
    blocks = " in blocks" if options.hold_out == "blocks" else ""
    turns = " in turn" if len(trial.folds) > 1 else ""
    if isinstance(trial, LatticeTrial) and trial.windows[0] != trial.windows[-1]:
        turns = f" in {len(trial.windows)} windows"
    elif trial.scales is not None:
        turns = f" in {len(trial.folds)} windows (geometric mean)"
    held = f"{trial.judged} points held out{blocks}{turns}"
    return f"mean squared error at {held}, relative to the variance"
