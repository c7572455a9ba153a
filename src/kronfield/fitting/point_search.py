"""The search for a penalty: ladders to walk on, and two ways to score a place, by points held out or by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield.encoding import Kronecker
from kronfield.field.evaluation import FEW_FEATURES, at_points
from kronfield.fitting.options import PointOptions
from kronfield.fitting.report import Candidate, Parameter
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import NormalEquations, Penalty, Solution
from kronfield.solvers.points.rows import axis_runs, sparse_rows, taps_in_reach
from kronfield.solvers.points.systems import BasisSystem

# Iterations of a trial, and its tolerance: a part of the relative error of the best candidate so
# far, within a range. Trials need not be solved to more digits than the comparison of errors needs.
TRIAL_LIMIT, TRIAL_TOLERANCE, TIGHTEST, LOOSEST = 400, 0.05, 1e-5, 2e-2
# Random probes for the trace of a hat matrix (Hutchinson 1990).
PROBES = 4

Place = tuple[float, int]


class Ladder(Protocol):
    """What the search walks on: places are (decade, rung), each a penalty."""

    @property
    def start(self) -> Place:
        """Where to start."""

    @property
    def decades(self) -> tuple[float, float]:
        """The first and last decade."""

    @property
    def rungs(self) -> int:
        """How many rungs there are."""

    @property
    def steps(self) -> Sequence[float]:
        """Steps along the decades, coarse to fine."""

    def penalty(self, at: Place) -> Penalty:
        """Return the penalty at a place."""


class RoughnessLadder:
    """Decades of the weight of second derivatives, rungs of that of first ones relative to it.

    Units of length are those of each axis: the mean distance of points if they were spread evenly.
    """

    ratios = (0.0, 0.1, 1.0, 4.0, 16.0, 64.0)
    decades, rungs, start, steps = (-6.0, 5.0), len(ratios), (-2.0, 3), (1.0, 0.5)

    def __init__(self, units: tuple[float, ...]) -> None:
        self.units = units

    def penalty(self, at: Place) -> Penalty:
        """Return the roughness at a place."""
        weight = 10.0 ** at[0]
        return Penalty(roughness=(self.ratios[at[1]] * weight, weight), units=self.units)


class RidgeLadder:
    """Decades of the ridge, relative to what the data say of the strongest mix of features."""

    decades, rungs, start, steps = (-12.0, 4.0), 1, (-6.0, 0), (2.0, 1.0, 0.5)

    def __init__(self, strongest: float) -> None:
        self.strongest = strongest

    def penalty(self, at: Place) -> Penalty:
        """Return the ridge at a place."""
        return Penalty(ridge=10.0 ** at[0] * self.strongest)


class FixedLadder:
    """One penalty: nothing to search."""

    decades, rungs, start, steps = (0.0, 0.0), 1, (0.0, 0), ()

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty

    def penalty(self, at: Place) -> Penalty:
        """Return it."""
        del at
        return self._penalty


def ladder_for(
    equations: NormalEquations, units: tuple[float, ...], penalty: Penalty | None
) -> Ladder:
    """Return the ladder that suits a system: roughness for local features, else a ridge; or none if one is given."""
    if penalty is not None:
        return FixedLadder(penalty)
    if equations.nodes is None:
        return RoughnessLadder(units)
    system = equations.system(Penalty(ridge=1.0))
    assert isinstance(system, BasisSystem)
    return RidgeLadder(system.largest)


class Walk:
    """A walk downhill on a ladder: along decades, then along rungs, then with finer steps.

    Subclasses supply `_score`, which may keep what it needs to start warm when told that a place is
    the best so far.
    """

    def __init__(self, ladder: Ladder, name: str, gain: float) -> None:
        self.ladder, self.name, self.gain = ladder, name, gain
        self.known: dict[Place, float] = {}
        self.best: Place = ladder.start

    def _score(self, penalty: Penalty, best: float) -> float:
        """Return the score of a penalty; the lowest so far is ``best``."""
        raise NotImplementedError

    def _keep(self) -> None:
        """Take note that what was scored last is the best so far."""

    def score(self, at: Place) -> float:
        """Return the score at a place; infinite where the solver does not get there."""
        if at not in self.known:
            best = min(self.known.values(), default=math.inf)
            try:
                self.known[at] = self._score(self.ladder.penalty(at), best)
            except ConvergenceError:
                self.known[at] = math.inf
            if self.known[at] < best:
                self.best = at
                self._keep()
        return self.known[at]

    def run(self, start: Place | None = None, worth: float = math.inf) -> Walk:
        """Walk from ``start``; with finer steps only if the first have led below ``worth``."""
        self.best = start or self.ladder.start
        self.score(self.best)
        for step in self.ladder.steps:
            if step != self.ladder.steps[0] and self.lowest >= worth:
                break
            self._along(step, 0)
            self._along(0.0, 1)
        return self

    def _along(self, decades: float, rungs: int) -> None:
        low, high = self.ladder.decades
        for sign in (-1, 1):
            while True:
                at = (self.best[0] + sign * decades, self.best[1] + sign * rungs)
                before = self.known[self.best]
                if at in self.known or not (
                    low <= at[0] <= high and 0 <= at[1] < self.ladder.rungs
                ):
                    break
                if not self.score(at) < (1 - self.gain) * before:
                    break

    @property
    def penalty(self) -> Penalty:
        """The best penalty found."""
        return self.ladder.penalty(self.best)

    @property
    def lowest(self) -> float:
        """Its score."""
        return self.known[self.best]

    def candidates(self) -> list[Candidate]:
        """Return all that was tried."""
        return [
            Candidate(self.name, penalty_parameters(self.ladder.penalty(at)), score)
            for at, score in self.known.items()
        ]


def penalty_parameters(penalty: Penalty) -> dict[str, Parameter]:
    """Return a penalty as the parameters of a candidate."""
    return {"ridge": penalty.ridge} if penalty.ridge else {"roughness": penalty.roughness}


class Trial:
    """Points to judge by, in folds: of each, some are held out and the rest fitted."""

    def __init__(
        self,
        points: Array,
        values: Array,
        weights: Array | None,
        options: PointOptions,
        *,
        cropped: bool = True,
    ) -> None:
        self.settings = options.settings.points
        rng = np.random.default_rng(options.seed)
        near = _nearest_to_the_middle(points, self.settings.judged if cropped else len(points))
        self.points, self.values = points[near], _main_channel(values[:, near])
        self.weights = None if weights is None else weights[near]
        count = len(self.points)
        folds = max(2, round(1 / self.settings.held_out))
        label = rng.permutation(count) % folds
        in_turn = folds if count <= self.settings.few_points else 1
        self.folds = [label == k for k in range(in_turn)]
        ends = zip(self.points.min(axis=0), self.points.max(axis=0), strict=True)
        self.box = [(float(low), float(high)) for low, high in ends]
        self.spread = float(np.var(self.values)) or 1.0

    @property
    def judged(self) -> int:
        """How many points are predicted."""
        return sum(int(held.sum()) for held in self.folds)

    def restrict(
        self, box: Sequence[tuple[float, float]], counts: Sequence[int]
    ) -> tuple[list[tuple[float, float]], list[int]]:
        """Return the part of a grid, given by its box and nodes per axis, that the points of the trial lie in."""
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

    def equations(
        self, encoding: Kronecker, frames: tuple[Frame, ...], rows: str | None
    ) -> list[NormalEquations]:
        """Return the normal equations of the points kept, for each fold."""
        rule = RowRule.choose(encoding, frames, rows, len(self.points))
        weights = [None if self.weights is None else self.weights[~held] for held in self.folds]
        return [
            assemble(rule, self.points[~held], np.ascontiguousarray(self.values[:, ~held]), w)
            for held, w in zip(self.folds, weights, strict=True)
        ]


class HeldOutWalk(Walk):
    """Scores by the mean squared error at the points held out, relative to the variance of all values."""

    def __init__(
        self, trial: Trial, equations: list[NormalEquations], ladder: Ladder, name: str
    ) -> None:
        super().__init__(ladder, name, trial.settings.gain)
        self.trial, self.equations = trial, equations
        self._rows: dict[int, tuple[list[Array], Any]] = {}
        self._starts: list[Array | None] = [None] * len(equations)
        self._last = self._starts

    def _score(self, penalty: Penalty, best: float) -> float:
        tolerance = min(max(TRIAL_TOLERANCE * math.sqrt(min(best, 1.0)), TIGHTEST), LOOSEST)
        trial = self.trial

        def fold(k: int) -> tuple[float, float, Array]:
            held, equations = trial.folds[k], self.equations[k]
            solution = equations.solve(
                penalty, tolerance=tolerance, limit=TRIAL_LIMIT, start=self._starts[k]
            )
            fitted = self._at_held(held, equations, solution.weights)
            squares = np.mean((fitted - trial.values[:, held]) ** 2, axis=0)
            w = np.ones(len(squares)) if trial.weights is None else trial.weights[held]
            return float(np.sum(w * squares)), float(w.sum()), solution.unknowns

        done = [fold(k) for k in range(len(self.equations))]
        self._last = [unknowns for _, _, unknowns in done]
        return (
            sum(total for total, _, _ in done)
            / (sum(weight for _, weight, _ in done) or 1.0)
            / trial.spread
        )

    def _at_held(self, held: Array, equations: NormalEquations, weights: Array) -> Array:
        """Return the values (C, P) at the points held out; of local features their rows are made once."""
        key = id(equations)
        if key not in self._rows:
            units = [
                frame.unit(self.trial.points[held, i]) for i, frame in enumerate(equations.frames)
            ]
            few = all(
                (taps_in_reach(emb) or FEW_FEATURES + 1) <= FEW_FEATURES
                for emb in equations.encoding.embedders
            )
            rows = (
                sparse_rows(
                    axis_runs(equations.encoding.embedders, units), equations.encoding.shape, float
                )
                if few
                else None
            )
            self._rows[key] = (units, rows)
        units, rows = self._rows[key]
        if rows is None:
            return at_points(equations.encoding, weights, units, [0] * len(units)).astype(
                np.float64
            )
        return np.asarray((rows @ weights.reshape(len(weights), -1).T).T, dtype=np.float64)

    def _keep(self) -> None:
        self._starts = self._last


class GcvWalk(Walk):
    """Scores by generalised cross-validation, n RSS / (n - dof)^2: for statistics, of which the points are gone.

    The trace of the hat matrix comes from a few random probes v, seeded: the mean of v' A^-1 B'WB
    v.
    """

    def __init__(
        self, equations: NormalEquations, units: tuple[float, ...], options: PointOptions
    ) -> None:
        gain = options.settings.points.gain
        super().__init__(ladder_for(equations, units, None), "as given", gain)
        self.equations = equations
        self._start: Array | None = None
        self._last: Array | None = None
        anything = Penalty(ridge=1.0)
        shape = equations.unknown_shape(anything)
        C, dtype = len(equations.rhs), equations.rhs.dtype
        self._probes = (
            np.random.default_rng(options.seed)
            .choice([-1.0, 1.0], size=(PROBES, *shape))
            .astype(dtype)
        )
        seen = equations.data_of(self._probes, anything)
        self._rhs = np.concatenate(
            [equations.rhs, np.zeros((PROBES, *equations.rhs.shape[1:]), dtype=dtype)]
        )
        self._prior = np.concatenate([np.zeros((C, *shape), dtype=dtype), seen])

    def _score(self, penalty: Penalty, best: float) -> float:
        del best
        C = len(self.equations.rhs)
        both = self.equations.solve(
            penalty,
            tolerance=1e-3,
            limit=TRIAL_LIMIT,
            start=self._start,
            rhs=self._rhs,
            prior=self._prior,
        )
        self._last = both.unknowns
        own = Solution(both.weights[:C], both.unknowns[:C], both.convergence, both.method)
        freedom = float(np.sum(self._probes * both.unknowns[C:], dtype=np.float64)) / PROBES
        n, left = self.equations.count, self.equations.count - freedom
        residual = float(np.mean(self.equations.residual_energy(own, penalty)))
        return n * residual / left**2 if left > 1e-3 * n else math.inf

    def _keep(self) -> None:
        self._start = self._last


def _nearest_to_the_middle(points: Array, count: int) -> Array:
    """Return the indices, rising, of the points nearest to the median, by the largest of the distances along the axes."""
    if len(points) <= count:
        return np.arange(len(points))
    spread = np.ptp(points, axis=0)
    scaled = (points - np.median(points, axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.sort(np.argpartition(np.abs(scaled).max(axis=1), count)[:count])


def _main_channel(values: Array) -> Array:
    """Return the mix of channels that varies most, (1, P): one is enough to choose by."""
    if len(values) == 1:
        return values
    centred = values.astype(np.float64) - values.mean(axis=1, dtype=np.float64, keepdims=True)
    direction = np.linalg.eigh(centred @ centred.T)[1][:, -1]
    return np.ascontiguousarray((direction[None, :] @ centred).astype(values.dtype))
