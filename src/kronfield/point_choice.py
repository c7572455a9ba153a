"""Choosing what `fit_points` was not told: the grid, the features and the penalty, by points held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kronfield.embedders import TensionSpline, Triangle
from kronfield.encoding import Kronecker
from kronfield.evaluation import at_points
from kronfield.report import Candidate
from kronfield.solvers.assemble import RowRule, assemble
from kronfield.solvers.banded import Matrix
from kronfield.solvers.conjugate import ConvergenceError
from kronfield.solvers.normal import NormalEquations, Penalty, Solution
from kronfield.solvers.scattered import BasisSystem, fast_size
from kronfield.solvers.separable import Frame

# Points on which settings are judged, and the part of them held out.
JUDGED, HELD_OUT = 6000, 0.2
# Points lie on a lattice if there are no more than this many nodes for each, or so few in all.
SPARSEST, FEW_NODES = 64, 4096
# The most unknowns that are chosen unasked.
MOST_UNKNOWNS = 1 << 24
# Iterations of a trial, and its tolerance: this part of the relative error of the best so far, and between those two.
TRIAL_LIMIT, TRIAL_TOLERANCE, TIGHTEST, LOOSEST = 400, 0.05, 1e-5, 1e-2
# Where the search for a penalty starts and how far it goes: decades of the weight of second derivatives, with the mean
# distance of points as unit of length, and the weight of first derivatives relative to that.
DECADES, START = (-4.0, 5.0), -2.0
RATIOS, START_RATIO = (0.0, 0.1, 1.0, 4.0, 16.0, 64.0), 3
# Random probes for the trace of a hat matrix.
PROBES = 4
# Smooth data gets a spline (nearly without tension), rough data hats on a finer grid; cells per point of each.
SPLINE_TENSION, SPLINE_CELLS, HAT_CELLS = 0.05, 1.0, 4.0


@dataclass(frozen=True)
class Lattice:
    """Even positions on one axis: ``origin + i step``, i = 0 ... count - 1."""

    origin: float
    step: float
    count: int


@dataclass(frozen=True)
class PointChoice:
    """Features, where they lie, the penalty, the error that is expected relative to the spread of values, and why."""

    encoding: Kronecker
    frames: tuple[Frame, ...]
    penalty: Penalty
    relative_error: float
    chosen_by: str
    candidates: list[Candidate]


def find_lattice(points: Matrix) -> list[Lattice] | None:
    """Return the lattice that all points lie on, if there is one and points are not too few for it."""
    axes = []
    for x in points.T:
        unique = np.unique(x)
        if len(unique) == 1:
            axes.append(Lattice(float(unique[0]), 1.0, 1))
            continue
        step = float(np.diff(unique).min())
        places = (unique - unique[0]) / step
        count = round(float(places[-1])) + 1
        if not math.isfinite(step) or count > 64 * len(x) + FEW_NODES:
            return None
        if float(np.abs(places - np.round(places)).max()) > 1e-5:
            return None
        axes.append(Lattice(float(unique[0]), float(unique[-1] - unique[0]) / (count - 1), count))
    nodes = math.prod(axis.count for axis in axes)
    return axes if nodes <= max(SPARSEST * len(points), FEW_NODES) and nodes <= MOST_UNKNOWNS else None


def even_lattice(axes: Sequence[Matrix]) -> list[Lattice] | None:
    """Return the lattice of rising axes, if all are even."""
    lattice = []
    for x in axes:
        step = float(x[-1] - x[0]) / (len(x) - 1) if len(x) > 1 else 1.0
        if len(x) > 1 and float(np.abs(np.diff(x) - step).max()) > 1e-6 * step:
            return None
        lattice.append(Lattice(float(x[0]), step, len(x)))
    return lattice


def hat_axis(low: float, high: float, count: int) -> tuple[Triangle, Frame]:
    """Return hats with ``count`` nodes from low to high, and a few beyond where that is faster to transform."""
    size = fast_size(count) if count > 1 else 1
    step = (high - low) / (count - 1) if count > 1 else high - low
    return Triangle(size, 2.0 / size), Frame(low, step * size, low, high)


def spline_axis(low: float, high: float, count: int) -> tuple[TensionSpline, Frame]:
    """Return splines in tension with ``count`` nodes from low to high and one past each end at least."""
    size = fast_size(max(count, 2) + 2)
    step = (high - low) / (max(count, 2) - 1)
    inside = size - 2
    return TensionSpline(size, SPLINE_TENSION, padding=1), Frame(low, step * inside, low, high)


Axis = Callable[[float, float, int], tuple[Triangle | TensionSpline, Frame]]


def grid_of(make: Axis, box: Sequence[tuple[float, float]], counts: Sequence[int]) -> tuple[Kronecker, tuple[Frame, ...]]:
    """Return the encoding and frames of one kind of feature on every axis of a box."""
    pairs = [make(low, high, count) for (low, high), count in zip(box, counts, strict=True)]
    return Kronecker(*(emb for emb, _ in pairs)), tuple(frame for _, frame in pairs)


def counts_for(box: Sequence[tuple[float, float]], points: int, cells: float) -> list[int]:
    """Return nodes per axis: ``cells`` for each point, as many on every axis."""
    per_axis = max(2.0, (cells * points) ** (1 / len(box)))
    return [min(math.ceil(per_axis) + 1, MOST_UNKNOWNS) for _ in box]


class Trial:
    """Points kept and points held out, and the error at the latter of any features and penalty."""

    def __init__(self, points: Matrix, values: Matrix, weights: Matrix | None, seed: int, *, cropped: bool = True) -> None:
        rng = np.random.default_rng(seed)
        near = _nearest_to_the_middle(points, JUDGED if cropped else len(points))
        points, values = points[near], _main_channel(values[:, near])
        weights = None if weights is None else weights[near]
        held = rng.permutation(len(points)) < max(1, round(HELD_OUT * len(points)))
        self.points, self.values = points[~held], values[:, ~held]
        self.weights = None if weights is None else weights[~held]
        self.held, self.truth = points[held], values[:, held]
        self.held_weights = np.ones(int(held.sum())) if weights is None else weights[held]
        self.box = [(float(low), float(high)) for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True)]
        spread = float(np.var(values))
        self.spread = spread if spread > 0 else 1.0

    def restrict(
        self, box: Sequence[tuple[float, float]], counts: Sequence[int]
    ) -> tuple[list[tuple[float, float]], list[int]]:
        """Return the part of a grid that the points of the trial lie in."""
        parts, sizes = [], []
        for (low, high), count, (first, last) in zip(box, counts, self.box, strict=True):
            step = (high - low) / (count - 1) if count > 1 else 1.0
            a, b = math.floor((first - low) / step + 1e-9), math.ceil((last - low) / step - 1e-9)
            a, b = max(a, 0), max(min(b, count - 1), max(a, 0))
            if a == b and count > 1:
                a, b = max(a - 1, 0), min(b + 1, count - 1)
            parts.append((low + a * step, low + b * step) if count > 1 else (low, high))
            sizes.append(b - a + 1)
        return parts, sizes

    def equations(self, encoding: Kronecker, frames: tuple[Frame, ...], rows: str | None = None) -> NormalEquations:
        """Return the normal equations of the points kept."""
        return assemble(RowRule.choose(encoding, frames, rows, len(self.points)), self.points, self.values, self.weights)

    def error(self, equations: NormalEquations, weights: Matrix) -> float:
        """Return the mean squared error at the points held out, relative to the variance of the values."""
        units = [frame.unit(self.held[:, i]) for i, frame in enumerate(equations.frames)]
        fitted = at_points(equations.encoding, weights, units, [0] * len(units))
        errors = np.mean((fitted.astype(np.float64) - self.truth) ** 2, axis=0)
        return float(np.average(errors, weights=self.held_weights if self.held_weights.any() else None)) / self.spread


class PenaltySearch:
    """The best roughness for one set of features, found step by step and warm-started from the best so far."""

    decades = DECADES

    def __init__(self, trial: Trial, equations: NormalEquations, unit: float, name: str) -> None:
        self.trial, self.equations, self.unit, self.name = trial, equations, unit, name
        self.known: dict[tuple[float, int], float] = {}
        self.start: Matrix | None = None
        self.best: tuple[float, int] = (START, START_RATIO)

    def penalty(self, at: tuple[float, int]) -> Penalty:
        """Return the roughness at a place of the search."""
        second = 10.0 ** at[0] * self.unit**4
        return Penalty(roughness=(RATIOS[at[1]] * 10.0 ** at[0] * self.unit**2, second))

    def score(self, at: tuple[float, int]) -> float:
        """Return the error at a place; infinite where the solver does not get there."""
        if at not in self.known:
            best = math.sqrt(min(self.known.values(), default=1.0))
            tolerance = min(max(TRIAL_TOLERANCE * best, TIGHTEST), LOOSEST)
            try:
                solution = self.equations.solve(self.penalty(at), tolerance=tolerance, limit=TRIAL_LIMIT, start=self.start)
            except ConvergenceError:
                self.known[at] = math.inf
                return math.inf
            self.known[at] = self.trial.error(self.equations, solution.weights)
            if self.known[at] <= min(self.known.values()):
                self.best, self.start = at, solution.unknowns
        return self.known[at]

    def run(self, start: tuple[float, int] | None = None, steps: Sequence[float] = (1.0, 0.5)) -> None:
        """Walk downhill: along decades, then along ratios, then with finer steps."""
        self.score(start or self.best)
        for step in steps:
            self._walk(step, 0)
            self._walk(0.0, 1)

    def _walk(self, decades: float, ratios: int) -> None:
        for sign in (-1, 1):
            while True:
                at = (self.best[0] + sign * decades, self.best[1] + sign * ratios)
                inside = self.decades[0] <= at[0] <= self.decades[1] and 0 <= at[1] < len(RATIOS)
                before = self.known[self.best]
                if not inside or at in self.known or self.score(at) > before or self.known[at] > 0.999 * before:
                    break

    def candidates(self) -> list[Candidate]:
        """Return all that was tried."""
        return [Candidate(f"{self.name}, {self.penalty(at)}", score) for at, score in self.known.items()]


class Given(PenaltySearch):
    """No search: the penalty is given, and only features are compared."""

    def __init__(self, trial: Trial, equations: NormalEquations, penalty: Penalty, name: str) -> None:
        super().__init__(trial, equations, 1.0, name)
        self._given = penalty

    def penalty(self, at: tuple[float, int]) -> Penalty:
        """Return what was given."""
        del at
        return self._given

    def run(self, start: tuple[float, int] | None = None, steps: Sequence[float] = ()) -> None:
        """Score it."""
        self.score(self.best)


class RidgeSearch(PenaltySearch):
    """The best ridge for an encoding whose features are not local."""

    decades = (-12.0, 4.0)

    def penalty(self, at: tuple[float, int]) -> Penalty:
        """Return the ridge: relative to what the data say of the strongest mix of features."""
        return Penalty(ridge=10.0 ** at[0] * self._strongest)

    def run(self, start: tuple[float, int] | None = None, steps: Sequence[float] = (2.0, 1.0, 0.5)) -> None:
        """Walk downhill along decades."""
        system = self.equations.system(Penalty(ridge=1.0))
        assert isinstance(system, BasisSystem)
        self._strongest = float(system.largest)
        self.score(start or (-6.0, 0))
        for step in steps:
            self._walk(step, 0)


class GcvSearch(PenaltySearch):
    """The best penalty by generalised cross-validation, for statistics of which the points are gone.

    The trace of the hat matrix comes from a few random probes v, seeded: the mean of v' A^-1 B'WB v.
    """

    def __init__(self, equations: NormalEquations, unit: float, seed: int) -> None:
        self.equations, self.unit, self.name = equations, unit, "as given"
        self.known: dict[tuple[float, int], float] = {}
        self.start: Matrix | None = None
        self.best: tuple[float, int] = (START, START_RATIO)
        self._local = equations.nodes is None
        rng = np.random.default_rng(seed)
        anything = Penalty(ridge=1.0)
        shape = equations.unknown_shape(anything)
        C, dtype = len(equations.rhs), equations.rhs.dtype
        self._probes = rng.choice([-1.0, 1.0], size=(PROBES, *shape)).astype(dtype)
        seen = equations.data_of(self._probes, anything)
        self._rhs = np.concatenate([equations.rhs, np.zeros((PROBES, *equations.rhs.shape[1:]), dtype=dtype)])
        self._prior = np.concatenate([np.zeros((C, *shape), dtype=dtype), seen])
        if not self._local:
            system = equations.system(anything)
            assert isinstance(system, BasisSystem)
            self._strongest = system.largest
            self.best, self.decades = (-6.0, 0), RidgeSearch.decades

    def penalty(self, at: tuple[float, int]) -> Penalty:
        """Return the roughness, or where features are not local the ridge, at a place of the search."""
        return super().penalty(at) if self._local else Penalty(ridge=10.0 ** at[0] * self._strongest)

    def score(self, at: tuple[float, int]) -> float:
        """Return n RSS / (n - dof)^2, the mean over the channels."""
        if at not in self.known:
            penalty, C = self.penalty(at), len(self.equations.rhs)
            try:
                both = self.equations.solve(
                    penalty, tolerance=1e-3, limit=TRIAL_LIMIT, start=self.start, rhs=self._rhs, prior=self._prior
                )
            except ConvergenceError:
                self.known[at] = math.inf
                return math.inf
            own = Solution(both.weights[:C], both.unknowns[:C], both.convergence, both.method)
            freedom = float(np.sum(self._probes * both.unknowns[C:], dtype=np.float64)) / PROBES
            n, left = self.equations.count, self.equations.count - freedom
            residual = float(np.mean(self.equations.residual_energy(own, penalty)))
            self.known[at] = n * residual / left**2 if left > 1e-3 * n else math.inf
            if self.known[at] <= min(self.known.values()):
                self.best, self.start = at, both.unknowns
        return self.known[at]

    def run(self, start: tuple[float, int] | None = None, steps: Sequence[float] = (1.0, 0.5)) -> None:
        """Walk downhill."""
        self.score(start or self.best)
        for step in steps:
            self._walk(step, 0)
            if self._local:
                self._walk(0.0, 1)


def mean_distance(box: Sequence[tuple[float, float]], points: int) -> float:
    """Return the mean distance of neighbours if so many points were spread evenly over the box."""
    volume = math.prod(high - low for low, high in box)
    return float((volume / max(points, 1)) ** (1 / len(box)))


def choose_points(
    points: Matrix,
    values: Matrix,
    weights: Matrix | None,
    box: Sequence[tuple[float, float]],
    seed: int,
    lattice: list[Lattice] | None,
    penalty: Penalty | None,
    rows: str | None,
) -> PointChoice:
    """Return features, grid and, unless given, penalty for points (P, D) in ``box`` and planar values (C, P)."""
    unit = mean_distance(box, len(points))
    options: list[tuple[str, Axis, list[int]]]
    if lattice is not None:
        options = [("hats on the lattice", hat_axis, [axis.count for axis in lattice])]
    else:
        options = [
            ("splines", spline_axis, counts_for(box, len(points), SPLINE_CELLS)),
            ("hats", hat_axis, counts_for(box, len(points), HAT_CELLS)),
        ]
    if len(points) < 5 or not np.ptp(values) or (penalty is not None and lattice is not None):
        name, make, counts = options[0]
        encoding, frames = grid_of(make, box, counts)
        reason = "default: too little to choose by" if penalty is None else "given; the grid is the lattice of the points"
        default = Penalty(roughness=(1e-3 * unit**2, 1e-3 * unit**4))
        return PointChoice(encoding, frames, penalty or default, 1e-3, reason, [])
    trial = Trial(points, values, weights, seed)
    searches: list[PenaltySearch] = []
    for name, make, counts in options:
        part, sizes = trial.restrict(box, counts)
        equations = trial.equations(*grid_of(make, part, sizes), rows)
        search = PenaltySearch(trial, equations, unit, name) if penalty is None else Given(trial, equations, penalty, name)
        search.run(searches[0].best if searches else None)
        searches.append(search)
    best = min(range(len(options)), key=lambda i: searches[i].known[searches[i].best])
    encoding, frames = grid_of(options[best][1], box, options[best][2])
    winner = searches[best]
    error = math.sqrt(winner.known[winner.best])
    decided = f"mean squared error at {len(trial.held)} points held out, relative to the variance"
    tried = [one for search in searches for one in search.candidates()]
    return PointChoice(encoding, frames, winner.penalty(winner.best), error, decided, tried)


def _nearest_to_the_middle(points: Matrix, count: int) -> Matrix:
    """Return the indices, rising, of the points nearest to the median, by the largest of the distances along the axes."""
    if len(points) <= count:
        return np.arange(len(points))
    spread = np.ptp(points, axis=0)
    scaled = (points - np.median(points, axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.sort(np.argpartition(np.abs(scaled).max(axis=1), count)[:count])


def _main_channel(values: Matrix) -> Matrix:
    """Return the mix of channels that varies most, (1, P): one is enough to choose by."""
    if len(values) == 1:
        return values
    centred = values.astype(np.float64) - values.mean(axis=1, dtype=np.float64, keepdims=True)
    direction = np.linalg.eigh(centred @ centred.T)[1][:, -1]
    return np.ascontiguousarray((direction[None, :] @ centred).astype(values.dtype))
