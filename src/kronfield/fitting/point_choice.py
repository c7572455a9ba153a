"""Choosing what `fit_points` was not told: the grid, the features and the penalty, by points held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield.encoding import Kronecker
from kronfield.fitting.gaussians import GaussianFit, likely_gaussians
from kronfield.fitting.point_grids import (
    Axis,
    Lattice,
    counts_for,
    grid_of,
    hat_axis,
    mean_distances,
    spline_axis,
)
from kronfield.fitting.point_search import FEW_POINTS, HeldOutWalk, Trial, Walk, ladder_for
from kronfield.fitting.report import Candidate
from kronfield.solvers.points.normal import Penalty

# Smooth data gets a spline, rough data hats on a finer grid; cells per point of each. Of few
# points, which are judged in folds, fewer hats do as well and take less time; of many, a
# photograph's say, they lose a tenth of a decibel.
SPLINE_CELLS, HAT_CELLS, FEW_HAT_CELLS = 1.0, 4.0, 3.0
# Gaussians are taken unless others predict better by this over the root of the number of points
# held out: theirs is one score, that of the others the best of many, and so it is low by chance.
CHANCE = 2.0
# Fewer points than this leave nothing to choose by.
FEWEST = 5


@dataclass(frozen=True)
class PointChoice:
    """Features, where they lie, the penalty, the error that is expected relative to the spread of values, and why.

    ``gaussians`` has the constant that the penalty leaves alone, where there is one.
    """

    encoding: Kronecker
    frames: tuple[Frame, ...]
    penalty: Penalty
    relative_error: float
    chosen_by: str
    candidates: list[Candidate]
    gaussians: GaussianFit | None = None


def choose_points(
    points: Array,
    values: Array,
    weights: Array | None,
    box: Sequence[tuple[float, float]],
    seed: int,
    lattice: list[Lattice] | None,
    penalty: Penalty | None,
    rows: str | None,
    units: tuple[float, ...] | None,
) -> PointChoice:
    """Return features, grid and, unless given, penalty for points (P, D) in ``box`` and planar values (C, P)."""
    units = units or _units(box, len(points), lattice)
    options = _grids(box, len(points), lattice)
    known = penalty is not None and lattice is not None
    if known or len(points) < FEWEST or not np.ptp(values):
        encoding, frames = grid_of(options[0].make, box, options[0].counts)
        reason = (
            "given; the grid is the lattice of the points"
            if known
            else "default: too little to choose by"
        )
        default = Penalty(roughness=(1e-3, 1e-3), units=units)
        return PointChoice(encoding, frames, penalty or default, 1e-3, reason, [])
    trial = Trial(points, values, weights, seed)
    gaussians = (
        likely_gaussians(trial, box)
        if lattice is None and penalty is None and rows in (None, "exact")
        else None
    )
    score = math.inf if gaussians is None else gaussians.held_out(trial)
    walks = _walks(trial, box, options, units, penalty, rows, score)
    best = min(range(len(walks)), key=lambda i: walks[i].lowest)
    tried = [one for walk in walks for one in walk.candidates()]
    if gaussians is not None:
        taken = score < (1 + CHANCE / math.sqrt(trial.judged)) * walks[best].lowest
        tried.append(gaussians.candidate(score, taken))
        if taken:
            ridge = Penalty(ridge=gaussians.ridge)
            decided = (
                _decided(trial) + "; of Gaussians, widths and ridge by the likelihood of the values"
            )
            return PointChoice(
                gaussians.encoding,
                gaussians.frames,
                ridge,
                math.sqrt(score),
                decided,
                tried,
                gaussians,
            )
    encoding, frames = grid_of(options[best].make, box, options[best].counts)
    return PointChoice(
        encoding, frames, walks[best].penalty, math.sqrt(walks[best].lowest), _decided(trial), tried
    )


@dataclass(frozen=True)
class _Grid:
    """One kind of features on a grid: their name, how an axis of them is made, and the nodes on each axis."""

    name: str
    make: Axis
    counts: list[int]


def _grids(
    box: Sequence[tuple[float, float]], points: int, lattice: list[Lattice] | None
) -> list[_Grid]:
    """Return the grids to choose among: the lattice of the points if they lie on one, else splines and hats."""
    if lattice is not None:
        return [_Grid("hats on the lattice", hat_axis, [axis.count for axis in lattice])]
    hats = FEW_HAT_CELLS if points <= FEW_POINTS else HAT_CELLS
    return [
        _Grid("splines", spline_axis, counts_for(box, points, SPLINE_CELLS)),
        _Grid("hats", hat_axis, counts_for(box, points, hats)),
    ]


def _units(
    box: Sequence[tuple[float, float]], points: int, lattice: list[Lattice] | None
) -> tuple[float, ...]:
    """Return the length on each axis that counts as 1: that at which points lie equally far apart on all of them."""
    units = mean_distances(box, points)
    if lattice is None:
        return units
    # nodes of a lattice are as far apart on every axis
    mean = math.prod(u / axis.step for u, axis in zip(units, lattice, strict=True)) ** (
        1 / len(units)
    )
    return tuple(mean * axis.step for axis in lattice)


def _walks(
    trial: Trial,
    box: Sequence[tuple[float, float]],
    options: Sequence[_Grid],
    units: tuple[float, ...],
    penalty: Penalty | None,
    rows: str | None,
    score: float,
) -> list[Walk]:
    """Return the search for a penalty on each grid, as far as it may beat the ``score`` of Gaussians."""
    walks: list[Walk] = []
    for grid in options:
        # what is so smooth that Gaussians are ahead of splines is nothing for hats
        if walks and score < walks[0].lowest:
            break
        equations = trial.equations(*grid_of(grid.make, *trial.restrict(box, grid.counts)), rows)
        walk = HeldOutWalk(trial, equations, ladder_for(equations[0], units, penalty), grid.name)
        # finer steps gain little: what is behind Gaussians after the first will not get ahead of
        # them
        walks.append(walk.run(walks[0].best if walks else None, worth=score))
    return walks


def choose_penalty(
    points: Array,
    values: Array,
    weights: Array | None,
    encoding: Kronecker,
    frames: tuple[Frame, ...],
    seed: int,
    penalty: Penalty | None,
    rows: str | None,
    units: tuple[float, ...] | None,
) -> PointChoice:
    """Return the given encoding with the penalty given, or else chosen by points held out."""
    if penalty is not None:
        return PointChoice(encoding, frames, penalty, 1.0, "given", [])
    if len(points) < FEWEST or not np.ptp(values):
        return PointChoice(
            encoding, frames, Penalty(ridge=1e-6), 1e-3, "default: too little to choose by", []
        )
    units = units or mean_distances([(frame.low, frame.high) for frame in frames], len(points))
    trial = Trial(points, values, weights, seed, cropped=False)
    equations = trial.equations(encoding, frames, rows)
    walk = HeldOutWalk(trial, equations, ladder_for(equations[0], units, None), "as given").run()
    return PointChoice(
        encoding, frames, walk.penalty, math.sqrt(walk.lowest), _decided(trial), walk.candidates()
    )


def _decided(trial: Trial) -> str:
    turns = " in turn" if len(trial.folds) > 1 else ""
    return f"mean squared error at {trial.judged} points held out{turns}, relative to the variance"
