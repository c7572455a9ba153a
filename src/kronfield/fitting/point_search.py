"""The search for a penalty, by the error at held-out points or by generalised cross-validation.

A ladder is a table of penalties, and a walk is a coordinate search on it. Subclasses of the walk
supply the score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame, centre
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.encoding import Kronecker
from kronfield.field.evaluation import FEW_FEATURES, at_points
from kronfield.fitting.filling_choice import Hidden, MeanError
from kronfield.fitting.hold_out import fold_labels
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_grids import Axis, Lattice, grid_of, mean_distances
from kronfield.fitting.report import Candidate, Parameter
from kronfield.fitting.settings import PointSettings, SearchSettings
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.dense import dense_rows
from kronfield.solvers.points.direct import factored_band
from kronfield.solvers.points.normal import NormalEquations, Penalty
from kronfield.solvers.points.rows import axis_runs, sparse_rows, taps_in_reach
from kronfield.solvers.points.strategies import Factorisation
from kronfield.solvers.points.systems import BasisSystem

# The tolerance of a trial is TRIAL_TOLERANCE times the relative error of the best candidate so far,
# clipped to TIGHTEST and LOOSEST: more digits would not change the comparison of errors.
TRIAL_TOLERANCE, TIGHTEST, LOOSEST = 0.05, 1e-5, 2e-2
# The tolerance of solutions that are compared by generalised cross-validation, for the same reason.
GCV_TOLERANCE = 1e-3
# Mean squared errors below this part of the variance of the values are rounding.
ROUNDING_ERROR = 1e-16
# Up to this many points the errors of all folds come from one system; of more points, the leverages
# would take longer than the systems of the folds.
AT_ONCE = 200

Place = tuple[float, int]


class Ladder(Protocol):
    """A table of penalties for the search. A place on it is (decade, rung)."""

    @property
    def start(self) -> Place:
        """The place where the search starts."""

    @property
    def decades(self) -> tuple[float, float]:
        """The lowest and the highest decade."""

    @property
    def rungs(self) -> int:
        """The number of rungs."""

    @property
    def steps(self) -> Sequence[float]:
        """The steps along the decades, coarse to fine."""

    @property
    def others(self) -> Sequence[Place]:
        """Other places that are scored first: the search starts at the best of them."""

    def penalty(self, at: Place) -> Penalty:
        """Return the penalty at a place."""


class RoughnessLadder:
    """Penalties of derivatives.

    The decade is that of the weight of second derivatives. The rung is the ratio of the weight of
    first derivatives to it. The unit of length on each axis is usually the mean distance of points
    that are spread evenly.
    """

    def __init__(self, units: tuple[float, ...], settings: SearchSettings) -> None:
        self.units, self.ratios = units, settings.ratios
        self.decades, self.rungs, self.steps = settings.decades, len(self.ratios), settings.steps
        self.start: Place = (settings.start, self.rungs // 2)
        self.others: Sequence[Place] = [(decade, 0) for decade in settings.smooth_starts]

    def penalty(self, at: Place) -> Penalty:
        """Return the roughness at a place."""
        weight = 10.0 ** at[0]
        return Penalty(roughness=(self.ratios[at[1]] * weight, weight), units=self.units)


class RidgeLadder:
    """Ridges. The decade is relative to ``strongest``, the largest eigenvalue of the data term."""

    def __init__(self, strongest: float, settings: SearchSettings) -> None:
        self.strongest = strongest
        self.decades, self.rungs, self.steps = settings.ridge_decades, 1, settings.ridge_steps
        self.start: Place = (settings.ridge_start, 0)
        self.others: Sequence[Place] = ()

    def penalty(self, at: Place) -> Penalty:
        """Return the ridge at a place."""
        return Penalty(ridge=10.0 ** at[0] * self.strongest)


class FixedLadder:
    """A single penalty, if one is given: there is nothing to search."""

    decades, rungs, start, steps = (0.0, 0.0), 1, (0.0, 0), ()
    others: Sequence[Place] = ()

    def __init__(self, penalty: Penalty) -> None:
        self._penalty = penalty

    def penalty(self, at: Place) -> Penalty:
        """Return the given penalty."""
        del at
        return self._penalty


def ladder_for(
    equations: NormalEquations,
    units: tuple[float, ...],
    penalty: Penalty | None,
    settings: SearchSettings,
) -> Ladder:
    """Return the ladder for a system: roughness if rows are exact, otherwise ridges.

    A given ``penalty`` is the only place of its ladder.
    """
    if penalty is not None:
        return FixedLadder(penalty)
    if equations.nodes is None:
        return RoughnessLadder(units, settings)
    system = equations.system(Penalty(ridge=1.0))
    assert isinstance(system, BasisSystem)
    return RidgeLadder(system.largest, settings)


class Walk:
    """A coordinate search on a ladder: along decades, then along rungs, then with finer steps.

    Subclasses supply `_score`, and `_keep` if they reuse the solution of the best place as a start
    for the next.

    Parameters
    ----------
    ladder : Ladder
        The penalties to choose from.
    name : str
        The kind of the candidates.
    gain : float
        The search continues in one direction while a step lowers the score by this fraction.
    """

    def __init__(self, ladder: Ladder, name: str, gain: float) -> None:
        self.ladder, self.name, self.gain = ladder, name, gain
        self.known: dict[Place, float] = {}
        self.errors: dict[Place, float] = {}
        self._error = math.nan  # the standard error of the last score
        # the mean squared error of the last score and its standard error, in units of the values
        self._mean = math.nan, math.nan
        self.means: dict[Place, tuple[float, float]] = {}
        self.best: Place = ladder.start

    def _score(self, penalty: Penalty, best: float) -> float:
        """Return the score of a penalty; ``best`` is the lowest score so far."""
        raise NotImplementedError

    def _keep(self) -> None:
        """Record that the last score is the lowest so far."""

    def score(self, at: Place) -> float:
        """Return the score at a place; infinite if the solver does not converge."""
        if at not in self.known:
            best = min(self.known.values(), default=math.inf)
            try:
                self.known[at] = self._score(self.ladder.penalty(at), best)
                self.errors[at], self.means[at] = self._error, self._mean
            except ConvergenceError:
                self.known[at], self.errors[at] = math.inf, math.nan
            if self.known[at] < best:
                self.best = at
                self._keep()
        return self.known[at]

    def run(self, start: Place | None = None, worth: float = math.inf) -> Walk:
        """Search from ``start``.

        The diagonal and finer steps are searched only if the score along the axes is below
        ``worth``: they gain little.
        """
        self.best = start or self.ladder.start
        self.score(self.best)
        if start is None:
            # the score of noisy values can have two minima: of interpolation and of a smooth fit
            for other in self.ladder.others:
                self.score(other)
        for step in self.ladder.steps:
            while True:
                before = self.lowest
                self._along(step, 0)
                self._along(0.0, 1)
                if self.lowest >= worth:
                    return self
                if step != self.ladder.steps[0]:
                    break
                # smoother with less weight of first derivatives, or the reverse: errors are often
                # alike along this diagonal, and a search along the axes alone stops beside it
                self._along(step, -1)
                if not self.lowest < (1 - self.gain) * before:
                    break
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
        """The penalty with the lowest score, at the minimum of a parabola along the decades.

        The parabola goes through the best score and those of the finest step on either side.
        """
        if not self.ladder.steps:
            return self.ladder.penalty(self.best)
        decade, rung = self.best
        step = self.ladder.steps[-1]
        below, above = (self.known.get((decade + s * step, rung), math.inf) for s in (-1, 1))
        bend = below - 2 * self.lowest + above
        if not (math.isfinite(bend) and bend > 0):
            return self.ladder.penalty(self.best)
        # no further than half a step: both neighbours have a higher score
        return self.ladder.penalty((decade + step * (below - above) / (2 * bend), rung))

    @property
    def lowest(self) -> float:
        """The lowest score."""
        return self.known[self.best]

    def candidates(self) -> list[Candidate]:
        """Return all candidates that were scored."""
        return [
            Candidate(
                self.name, penalty_parameters(self.ladder.penalty(at)), score, self.errors[at]
            )
            for at, score in self.known.items()
        ]


def penalty_parameters(penalty: Penalty) -> dict[str, Parameter]:
    """Return the parameters of a candidate with this penalty."""
    return {"ridge": penalty.ridge} if penalty.ridge else {"roughness": penalty.roughness}


class Trial:
    """Points to compare candidates on, in folds: some points are held out, the others fitted.

    Unless ``cropped`` is false, of large sets only the points in windows are used. The windows are
    spread like the points, and every window is a fold: points near its ends are fitted, but not
    held out, unless the points end there too. If points are few, every fold is held out in turn.
    Otherwise a large set has one fold in each window, and a smaller one has one fold in all.
    Channels are reduced to their first principal component.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        weights: Array | None,
        options: PointOptions,
        *,
        cropped: bool = True,
    ) -> None:
        self.settings, self.search = options.settings.points, options.settings.search
        rng = np.random.default_rng(options.seed)
        folds = max(2, round(1 / self.settings.held_out))
        self.scales: list[float] | None = None
        windows = [np.arange(len(points))]
        if cropped and len(points) > self.settings.judged:
            # Blocks are held out of one window, in which they are as large as asked for. With many
            # axes, most of a small window is near its ends, and its factors are nearly dense.
            most_axes = self.settings.window_axes
            spread = options.blocks is None and points.shape[1] <= most_axes
            parts = self.settings.scattered_windows if spread else 1
            margin = self.settings.margin
            windows, inner = scattered_windows(points, self.settings.judged, parts, margin)
        index = np.concatenate(windows)
        self.points, self.values = points[index], _main_channel(values[:, index])
        self.weights = None if weights is None else weights[index]
        if len(windows) == 1:
            label = fold_labels(self.points, folds, options.blocks, rng, self.settings.occupied)
            in_turn = folds if len(index) <= self.settings.few_points else 1
            self.folds = [label == k for k in range(in_turn)]
            self.fitted = [~held for held in self.folds]
        else:
            owner = np.repeat(np.arange(len(windows)), [len(one) for one in windows])
            self.folds, self.fitted = [], []
            for k, inside in enumerate(inner):
                own = np.flatnonzero(owner == k)
                held = np.zeros(len(index), dtype=bool)
                some = own[inside]
                held[some[rng.permutation(len(some)) % folds == 0]] = True
                self.folds.append(held)
                self.fitted.append((owner == k) & ~held)
            least = mean_distances(least_box(points), len(points))
            whole = _density(points, least)
            self.scales = [whole / _density(points[w], least) for w in windows]
        pairs = zip(self.folds, self.fitted, strict=True)
        self.boxes = [least_box(self.points[held | fitted]) for held, fitted in pairs]
        self.spread = float(np.var(self.values)) or 1.0

    @property
    def judged(self) -> int:
        """The number of held-out points in all folds."""
        return sum(int(held.sum()) for held in self.folds)

    def penalty(self, penalty: Penalty, fold: int) -> Penalty:
        """Return the penalty for a fold that corresponds to a penalty for all points.

        A penalty is relative to the mean squared residual. In a window with denser points, the same
        penalty per volume is a smaller part of this mean.
        """
        if self.scales is None:
            return penalty
        first, second = penalty.roughness
        scale = self.scales[fold]
        return replace(penalty, roughness=(scale * first, scale * second))

    def restrict(
        self, box: Sequence[tuple[float, float]], counts: Sequence[int], fold: int
    ) -> tuple[list[tuple[float, float]], list[int]]:
        """Return the box and the nodes per axis of the part of a grid that a fold needs."""
        parts, sizes = [], []
        for (low, high), count, (first, last) in zip(box, counts, self.boxes[fold], strict=True):
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
        """Return the normal equations of the fitted points of each fold."""
        count, limits = len(self.points), self.settings.row_limits
        rule = RowRule.choose(encoding, frames, rows, count, limits)
        return [self._assembled(rule, k, self.values) for k in range(len(self.fitted))]

    def shared(
        self,
        make: Axis | Sequence[Axis],
        box: Sequence[tuple[float, float]],
        counts: Sequence[int],
        rows: str | None,
    ) -> SharedSystem | None:
        """Return the system of all points if it gives the errors of all folds, else None."""
        folds = zip(self.folds, self.fitted, strict=True)
        if not 1 < len(self.folds) < len(self.points) <= AT_ONCE:
            return None
        if not all(np.all(held | fitted) for held, fitted in folds):
            return None
        part = grid_of(make, *self.restrict(box, counts, 0))
        rule = RowRule.choose(*part, rows, len(self.points), self.settings.row_limits)
        if rule.blending is not None:
            return None
        equations = assemble(rule, self.points, self.values, self.weights)
        if not len(equations.data_band):
            return None
        return SharedSystem.of(equations, rule, self)

    def _assembled(self, rule: RowRule, fold: int, values: Array) -> NormalEquations:
        """Return the equations of the fitted points of a fold, with the penalty of all its points.

        A penalty is relative to the sum of the weights. It is a prior, which does not depend on how
        many points there are: the held-out points count as well.
        """
        fitted, both = self.fitted[fold], self.fitted[fold] | self.folds[fold]
        weights = None if self.weights is None else self.weights[fitted]
        total = float(both.sum() if self.weights is None else self.weights[both].sum())
        own = np.ascontiguousarray(values[:, fitted])
        return replace(assemble(rule, self.points[fitted], own, weights), total=total)

    def systems(
        self,
        make: Axis | Sequence[Axis],
        box: Sequence[tuple[float, float]],
        counts: Sequence[int],
        rows: str | None,
    ) -> list[NormalEquations]:
        """Return the normal equations of each fold, for one kind of features on a grid."""
        count, limits = len(self.points), self.settings.row_limits
        found = []
        for k in range(len(self.fitted)):
            part = grid_of(make, *self.restrict(box, counts, k))
            rule = RowRule.choose(*part, rows, count, limits)
            found.append(self._assembled(rule, k, self.values))
        return found


@record(eq=False)
class SharedSystem:
    """The errors of folds that are held out in turn, from one system of all points.

    Attributes
    ----------
    equations : NormalEquations
        The system of all points.
    rows : array (P, n)
        The rows of the points, times the roots of their weights.
    values : array (C, P)
        The values, times the same.
    folds : list of arrays (n,)
        The points of each fold.
    """

    equations: NormalEquations
    rows: Array
    values: Array
    folds: list[Array]

    @classmethod
    def of(cls, equations: NormalEquations, rule: RowRule, trial: Trial) -> SharedSystem:
        """Return the system of the points of a trial."""
        root = np.ones(len(trial.points)) if trial.weights is None else np.sqrt(trial.weights)
        rows = dense_rows(rule.runs(trial.points), rule.shape) * root[:, None]
        folds = [np.flatnonzero(held) for held in trial.folds]
        return cls(equations, rows, trial.values * root, folds)

    def squares(self, penalty: Penalty) -> list[Array] | None:
        """Return the weighted squared errors (n,) of each fold, mean over channels.

        None if the matrix is singular to rounding.
        """
        own = self.equations
        factor = factored_band(own.data_band, own.differences(penalty))
        if factor is None:
            return None
        half, _ = scipy_linalg().lapack.dtbtrs(factor, self.rows.T, uplo="L")
        left = -(half.T @ half)
        left[np.diag_indices(len(left))] += 1.0
        errors = left_out_in_turn(left, self.values.T, self.folds)
        return [np.mean(error**2, axis=1) for error in errors]


def left_out_in_turn(left: Array, values: Array, folds: Sequence[Array]) -> list[Array]:
    """Return the errors (n, C) of fits without each fold, from the matrix I - H (P, P).

    A penalty does not depend on which points are held out. For the hat matrix H and the residuals r
    of the fit to all points, the fit without the points of a fold misses them by (I - H)^-1 r, with
    the rows and columns of the fold.
    """
    residuals = left @ values
    found: list[Array] = [residuals[at] for at in folds]
    for size in {len(at) for at in folds}:  # folds of one size are solved together
        same = [k for k, at in enumerate(folds) if len(at) == size]
        at = np.stack([folds[k] for k in same])
        errors = np.linalg.solve(left[at[:, :, None], at[:, None, :]], residuals[at])
        for k, error in zip(same, errors, strict=True):
            found[k] = error
    return found


class LatticeTrial(Trial):
    """Points on a lattice to compare candidates on, from windows that are spread over all of it.

    Every window is a fold: some of its points are held out, and predicted from its other points.
    Points near the ends of a window are not held out, unless the lattice ends there too. A small
    lattice is one window, and if its points are few, every part of them is held out in turn.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        weights: Array | None,
        lattice: Sequence[Lattice],
        options: PointOptions,
    ) -> None:
        self.settings, self.search = options.settings.points, options.settings.search
        self.scales = None
        rng = np.random.default_rng(options.seed)
        shape = [axis.count for axis in lattice]
        nodes = np.stack(
            [np.rint((points[:, i] - axis.origin) / axis.step) for i, axis in enumerate(lattice)],
            axis=1,
        ).astype(int)
        density = min(1.0, len(points) / math.prod(shape))
        windows = _windows(shape, density, self.settings)
        chosen = [
            np.flatnonzero(
                np.all(
                    [(nodes[:, i] >= p.start) & (nodes[:, i] < p.stop) for i, p in enumerate(w)], 0
                )
            )
            for w in windows
        ]
        index = np.concatenate(chosen)
        owner = np.repeat(np.arange(len(windows)), [len(one) for one in chosen])
        self.points, self.channels, self.nodes = points[index], values[:, index], nodes[index]
        self.values = _main_channel(self.channels)
        self.weights = None if weights is None else weights[index]
        folds = max(2, round(1 / self.settings.held_out_of_lattice))
        in_turn = folds if len(windows) == 1 and len(index) <= self.settings.few_points else 1
        margin = self.settings.margin * density ** (-1 / len(shape))
        self.windows, self.folds, self.fitted = [], [], []
        for k, window in enumerate(windows):
            own = owner == k
            ends = [
                (p.start + margin * (p.start > 0), p.stop - 1 - margin * (p.stop < n))
                for p, n in zip(window, shape, strict=True)
            ]
            inner = own & _within(self.nodes, ends)
            label = np.full(len(index), -1)
            label[inner] = fold_labels(
                self.points[inner], folds, options.blocks, rng, self.settings.occupied
            )
            for part in range(in_turn):
                held = label == part
                if held.any() and np.count_nonzero(own & ~held) >= self.settings.fewest:
                    self.windows.append(window)
                    self.folds.append(held)
                    self.fitted.append(own & ~held)
        self.spread = float(np.var(self.values)) or 1.0

    def systems(
        self,
        make: Axis | Sequence[Axis],
        box: Sequence[tuple[float, float]],
        counts: Sequence[int],
        rows: str | None,
    ) -> list[NormalEquations]:
        """Return the normal equations of each fold, on the part of the grid in its window."""
        return self._systems(make, box, counts, rows, self.values)

    def _systems(
        self,
        make: Axis | Sequence[Axis],
        box: Sequence[tuple[float, float]],
        counts: Sequence[int],
        rows: str | None,
        values: Array,
    ) -> list[NormalEquations]:
        found = []
        for k, (window, fitted) in enumerate(zip(self.windows, self.fitted, strict=True)):
            steps = [
                (high - low) / (n - 1) if n > 1 else 1.0
                for (low, high), n in zip(box, counts, strict=True)
            ]
            ends = [
                (low + p.start * step, low + (p.stop - 1) * step) if n > 1 else (low, high)
                for (low, high), n, p, step in zip(box, counts, window, steps, strict=True)
            ]
            part = grid_of(make, ends, [p.stop - p.start for p in window])
            rule = RowRule.choose(*part, rows, int(fitted.sum()), self.settings.row_limits)
            found.append(self._assembled(rule, k, values))
        return found

    def shared(self, *place: Any) -> None:
        """Return None: windows and samples that are not held out have systems of their own."""
        del place

    @property
    def hidden(self) -> Hidden:
        """The windows of the lattice, and where their points are held out."""
        extent = [p.stop - p.start for p in self.windows[0]]
        hidden = np.zeros((len(self.folds), *extent), dtype=bool)
        for one, held, window in zip(hidden, self.folds, self.windows, strict=True):
            one[tuple((self.nodes[held] - [p.start for p in window]).T)] = True
        return Hidden(self.windows, hidden)

    def errors(
        self,
        make: Axis | Sequence[Axis],
        box: Sequence[tuple[float, float]],
        counts: Sequence[int],
        rows: str | None,
        penalty: Penalty,
        tolerance: float,
    ) -> list[Array]:
        """Return the errors (C, n) of each fold.

        They are in the order of the samples of `hidden`.
        """
        found = []
        limit = self.search.iterations
        for held, equations in zip(
            self.folds, self._systems(make, box, counts, rows, self.channels), strict=True
        ):
            try:
                weights = equations.solve(penalty, tolerance=tolerance, limit=limit).weights
            except ConvergenceError as error:
                # what is measured are the errors of an estimate, however far it has converged
                if error.unknowns is None:
                    raise
                weights = error.unknowns
            order = np.flatnonzero(held)
            order = order[np.lexsort(self.nodes[order].T[::-1])]
            units = [frame.unit(self.points[order, i]) for i, frame in enumerate(equations.frames)]
            fitted = at_points(equations.encoding, weights, units, [0] * len(units))
            found.append((fitted - self.channels[:, order]).astype(np.float64))
        return found


def _within(nodes: Array, ends: Sequence[tuple[float, float]]) -> Array:
    """Return which nodes (P, D) lie between the ends (first, last) of every axis."""
    lows, highs = np.array(ends).T
    return np.all((nodes >= lows) & (nodes <= highs), axis=1)


def _windows(
    shape: Sequence[int], density: float, settings: PointSettings
) -> list[tuple[slice, ...]]:
    """Return windows of one shape, spread evenly over a lattice, with ``judged`` points in all.

    If fewer than ``sparse`` of the nodes are known, there is one window in the middle.
    """
    points, counts = settings.judged, settings.windows_per_axis
    per_axis = counts[min(len(shape), len(counts)) - 1] if density >= settings.sparse else 1
    if math.prod(shape) * density <= points:
        return [tuple(slice(0, n) for n in shape)]
    samples = math.ceil(points / per_axis ** len(shape) / density)
    extent = [part.stop - part.start for part in centre(shape, samples)]
    starts = [
        # the middles of equal parts of the axis
        sorted(
            {min(max(round((i + 0.5) * n / per_axis - e / 2), 0), n - e) for i in range(per_axis)}
        )
        for n, e in zip(shape, extent, strict=True)
    ]
    return [
        tuple(slice(low, low + e) for low, e in zip(corner, extent, strict=True))
        for corner in itertools.product(*starts)
    ]


class HeldOutWalk(Walk):
    """A search by the mean squared error at held-out points, relative to the variance of values.

    The errors are those of one system for each fold, or of a system that they share.
    """

    def __init__(
        self,
        trial: Trial,
        equations: list[NormalEquations],
        ladder: Ladder,
        name: str,
        shared: SharedSystem | None = None,
    ) -> None:
        super().__init__(ladder, name, trial.settings.gain)
        self.trial, self.equations, self.shared = trial, equations, shared
        self._rows: dict[int, tuple[list[Array], Any]] = {}
        self._starts: Sequence[Array | None] = [None] * len(equations)
        self._last: Sequence[Array | None] = self._starts
        # whether conjugate gradients failed on a fold before: its matrix is then factored at once
        self._factored = [False] * len(equations)

    def _score(self, penalty: Penalty, best: float) -> float:
        trial = self.trial
        if self.shared is not None:
            together = self.shared.squares(penalty)
            if together is None:
                return math.inf
            found = together
        else:
            found = self._of_each_fold(penalty, best)
        if trial.weights is not None:
            weights = np.concatenate([trial.weights[held] for held in trial.folds])
            mean_weight = float(np.mean(weights)) or 1.0
            found = [squares / mean_weight for squares in found]
        mean = MeanError.of(found)
        self._mean = mean.mean, mean.error
        if trial.scales is not None:
            score, self._error = likely_error(found, trial.spread)
            return score
        self._error = mean.error / trial.spread
        return mean.mean / trial.spread

    def _of_each_fold(self, penalty: Penalty, best: float) -> list[Array]:
        """Return the weighted squared errors (n,) of each fold, from its own system."""
        tolerance = min(max(TRIAL_TOLERANCE * math.sqrt(min(best, 1.0)), TIGHTEST), LOOSEST)
        trial, parts, unknowns = self.trial, [], []
        for k, (held, equations) in enumerate(zip(trial.folds, self.equations, strict=True)):
            solution = equations.solve(
                trial.penalty(penalty, k),
                tolerance=tolerance,
                limit=trial.search.iterations,
                start=self._starts[k],
                at_once=self._factored[k],
            )
            self._factored[k] = solution.method == Factorisation.name
            fitted = self._at_held(held, equations, solution.weights)
            squares = np.mean((fitted - trial.values[:, held]) ** 2, axis=0)
            parts.append(squares if trial.weights is None else trial.weights[held] * squares)
            unknowns.append(solution.unknowns)
        self._last = unknowns
        return parts

    def _at_held(self, held: Array, equations: NormalEquations, weights: Array) -> Array:
        """Return the values (C, P) at the held-out points.

        The rows of local features are computed once and kept.
        """
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
    """A search by generalised cross-validation, n RSS / (n - dof)^2 (Craven and Wahba, 1979).

    It needs only the normal equations, not the points. dof is the trace of the hat matrix. It is
    estimated as the mean of v' A^-1 B'WB v over a few random probes v with entries 1 or -1
    (Hutchinson, 1990).
    """

    def __init__(
        self, equations: NormalEquations, units: tuple[float, ...], options: PointOptions
    ) -> None:
        gain, search = options.settings.points.gain, options.settings.search
        super().__init__(ladder_for(equations, units, None, search), "as given", gain)
        self.equations, self.search = equations, search
        self._start: Array | None = None
        self._last: Array | None = None
        anything = Penalty(ridge=1.0)
        shape = equations.unknown_shape(anything)
        C, dtype = len(equations.rhs), equations.rhs.dtype
        self._probes = (
            np.random.default_rng(options.seed)
            .choice([-1.0, 1.0], size=(search.probes, *shape))
            .astype(dtype)
        )
        seen = equations.data_of(self._probes, anything)
        self._rhs = np.concatenate(
            [equations.rhs, np.zeros((search.probes, *equations.rhs.shape[1:]), dtype=dtype)]
        )
        self._prior = np.concatenate([np.zeros((C, *shape), dtype=dtype), seen])

    def _score(self, penalty: Penalty, best: float) -> float:
        del best
        C = len(self.equations.rhs)
        both = self.equations.solve(
            penalty,
            tolerance=GCV_TOLERANCE,
            limit=self.search.iterations,
            start=self._start,
            rhs=self._rhs,
            prior=self._prior,
        )
        self._last = both.unknowns
        own = replace(both, weights=both.weights[:C], unknowns=both.unknowns[:C])
        freedom = float(np.sum(self._probes * both.unknowns[C:], dtype=np.float64))
        freedom /= len(self._probes)
        n, left = self.equations.count, self.equations.count - freedom
        # fewer are less than the error of the random probes
        residual = float(np.mean(self.equations.residual_energy(own, penalty)))
        return n * residual / left**2 if left > 1e-3 * n else math.inf

    def _keep(self) -> None:
        self._start = self._last


def likely_error(parts: Sequence[Array], spread: float) -> tuple[float, float]:
    """Return the geometric mean over windows of mean squares over ``spread``, and its error.

    It is lowest where the likelihood of normal errors, with a variance of their own in each window,
    is highest. The plain mean is mostly that of the roughest window, a few points of which then
    decide. ``parts`` are the squared errors (n,) in each window, whose weight is their number.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return math.inf, math.nan
    counts = np.array([len(part) for part in parts], dtype=np.float64)
    means = np.array([float(np.mean(part, dtype=np.float64)) for part in parts]) / spread
    # a window without any error, of equal values, says nothing about the others
    logs = np.log(np.maximum(means, ROUNDING_ERROR))
    level = float(np.average(logs, weights=counts))
    # the logarithm of a mean of n squares has about the variance var / (n mean^2)
    variances = np.array([float(np.var(part)) / spread**2 for part in parts])
    relative = variances / (counts * np.maximum(means, ROUNDING_ERROR) ** 2)
    error = math.sqrt(float(np.sum(counts**2 * relative))) / float(counts.sum())
    return math.exp(level), math.exp(level) * error


def least_box(points: Array) -> list[tuple[float, float]]:
    """Return the least and the greatest position (low, high) on each axis."""
    ends = zip(points.min(axis=0), points.max(axis=0), strict=True)
    return [(float(low), float(high)) for low, high in ends]


def _density(points: Array, least: Sequence[float]) -> float:
    """Return the number of points per volume of their box, whose sides are at least ``least``."""
    sides = zip(least_box(points), least, strict=True)
    return len(points) / math.prod(max(high - low, side) or 1.0 for (low, high), side in sides)


def scattered_windows(
    points: Array, count: int, number: int, margin: float
) -> tuple[list[Array], list[Array]]:
    """Return windows with ``count`` points in all, and which of their points are not near an end.

    Their middles are the medians of parts of the points, found by halving the longest side, as in a
    k-d tree (Bentley, 1975). A window has the points nearest to its middle, by the largest distance
    on any axis. Windows of one shape may overlap where points are sparse.

    Returns
    -------
    windows : list of arrays (n,)
        Increasing indices of points.
    inner : list of arrays (n,)
        True where a point is further than ``margin`` mean distances from the ends of its window, or
        where the points end there too; where this leaves less than half of a window, as in many
        dimensions, the half nearest to its middle.
    """
    spread = np.ptp(points, axis=0)
    scaled = (points - points.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    parts = [np.arange(len(points))]
    while len(parts) < number:
        parts = [half for part in parts for half in _halves(scaled, part)]
    each = count // number
    edge = margin / each ** (1 / points.shape[1])  # a part of the side of a window
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    windows, inner = [], []
    for part in parts:
        middle = np.median(scaled[part], axis=0)
        near = np.argpartition(np.abs(scaled - middle).max(axis=1), each)[:each]
        near = np.sort(near)
        away = scaled[near] - middle
        reach = float(np.abs(away).max())
        least = np.where(middle - reach > low, -reach * (1 - 2 * edge), -np.inf)
        most = np.where(middle + reach < high, reach * (1 - 2 * edge), np.inf)
        inside = np.all((away >= least) & (away <= most), axis=1)
        if 2 * np.count_nonzero(inside) < each:  # many dimensions: most points are near an end
            distance = np.abs(away).max(axis=1)
            inside = distance <= np.median(distance)
        windows.append(near)
        inner.append(inside)
    return windows, inner


def _halves(points: Array, part: Array) -> tuple[Array, Array]:
    """Return the two halves of a part of the points, divided on its longest side."""
    axis = int(np.argmax(np.ptp(points[part], axis=0)))
    order = np.argsort(points[part, axis], kind="stable")
    return part[order[: len(part) // 2]], part[order[len(part) // 2 :]]


def _main_channel(values: Array) -> Array:
    """Return the first principal component of the channels, (1, P): enough to compare errors.

    It is that of channels of equal size, so that it does not depend on their units, in units of
    their root mean square.
    """
    if len(values) == 1:
        return values
    centred = values.astype(np.float64) - values.mean(axis=1, dtype=np.float64, keepdims=True)
    sizes = np.sqrt(np.mean(np.square(centred), axis=1))
    centred /= np.where(sizes > 0, sizes, 1.0)[:, None]
    direction = np.linalg.eigh(centred @ centred.T)[1][:, -1]
    direction *= np.sqrt(np.mean(np.square(sizes)))
    return np.ascontiguousarray((direction[None, :] @ centred).astype(values.dtype))
