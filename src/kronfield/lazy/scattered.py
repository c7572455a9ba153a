"""Points of Dask: `Statistics` of each partition, added up, and `fit_points` from their sum.

1. One pass finds the box of all points, and draws some of them at random.
2. Features are chosen on these, as in memory; their grid is then refined to the number of all
   points.
3. A second pass summarises each partition by `Statistics`, whose sums are exact. A tenth of the
   points, at most those that were drawn, is subtracted from the sum: their error chooses the
   penalty. The equations are solved in one process.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, is_lazy, lazy_array, problem, real_numbers
from kronfield._core.labels import AxisLabel, Labels
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.fitting.forms import check_features
from kronfield.fitting.inputs import PointInput, bounding_box, frames_for
from kronfield.fitting.options import PointOptions, checked_settings
from kronfield.fitting.periods import closed_frames
from kronfield.fitting.point_choice import (
    PointChoice,
    PointSamples,
    choose_penalty,
    choose_points,
)
from kronfield.fitting.point_grids import grid_of, without_spare_nodes
from kronfield.fitting.points import fit_points
from kronfield.fitting.report import Candidate, choose_lowest
from kronfield.fitting.settings import Settings, changed
from kronfield.fitting.streaming import Statistics
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import Penalty

# A task adds up this many summaries, to bound its memory.
JOINED = 4


@record(eq=False)
class Partition:
    """Points, values and weights of one partition, as objects of Dask that are not computed."""

    points: Any
    values: Any
    weights: Any


def partitions(points: Any, values: Any, weights: Any = None) -> list[Partition]:
    """Return the partitions of points (P, D), values (P,) or (P, C), and weights (P,) if any.

    Values and weights are divided as the points are.
    """
    X = _array("points", points, 2)
    X = X.rechunk({1: -1})
    parts = []
    for name, one in (("values", values), ("weights", weights)):
        parts.append(None if one is None else _divided(name, one, X))
    y, w = parts
    rows = _blocks(X)
    weighted = [None] * len(rows) if w is None else _blocks(w)
    return [Partition(*each) for each in zip(rows, _blocks(y), weighted, strict=True)]


def _array(name: str, given: Any, ndim: int) -> Any:
    """Return an array of Dask, from a table or an array, which may be in memory."""
    import dask.array

    if hasattr(given, "to_dask_array"):
        given = given.to_dask_array()
    if not is_lazy(given):
        given = dask.array.from_array(real_numbers(name, given))
    given = lazy_array(name, given, known=False)
    if given.ndim != ndim:
        raise problem(name, describe(given), f"{ndim} axes", "Pass one row per point.")
    return given


def _divided(name: str, given: Any, points: Any) -> Any:
    """Return values or weights in the partitions of the points."""
    import dask.array

    if is_lazy(given):
        ndim = 2 if len(getattr(given, "shape", (0,))) == 2 else 1
        array = _array(name, given, ndim)
    else:
        array = dask.array.from_array(np.asarray(given))
    rows, own = points.chunks[0], array.chunks[0]
    known = not any(math.isnan(n) for n in (*rows, *own))
    if known and sum(rows) != sum(own):
        raise problem(name, f"{sum(own)} rows", f"{sum(rows)}, one per point", "Check the input.")
    if not known and len(rows) != len(own):
        raise problem(
            name,
            f"{len(own)} partitions of unknown lengths",
            f"{len(rows)} partitions, as the points have",
            "Divide both alike, or call to_dask_array(lengths=True).",
        )
    chunks: dict[int, Any] = {0: rows} if known else {}
    if array.ndim > 1:
        chunks[1] = -1
    return array.rechunk(chunks)


def _blocks(array: Any) -> list[Any]:
    return list(array.to_delayed().ravel())


def tree(parts: Sequence[Any], join: Callable[[list[Any]], Any]) -> Any:
    """Return delayed results joined to one, a few at a time."""
    from dask.delayed import delayed

    parts = list(parts)
    while len(parts) > 1:
        groups = [parts[i : i + JOINED] for i in range(0, len(parts), JOINED)]
        parts = [delayed(join, pure=True)(one) if len(one) > 1 else one[0] for one in groups]
    return parts[0]


# Summaries
# ------------------------------------------------------------------------------------------


def statistics_of(
    parts: Sequence[Partition], empty: Statistics, seed: int = 0, held: float = -1.0
) -> Statistics:
    """Return the statistics of all partitions: those of ``empty``, which has no points, plus all.

    Points whose random number is at most ``held`` are left out. Sums are exact whatever the
    partitions; each summary covers the whole grid, so that partitions should not be much smaller
    than a summary.
    """
    from dask.delayed import delayed

    grid = delayed(empty, pure=True, traverse=False)
    leaves = [
        delayed(_summary, pure=True)(grid, one.points, one.values, one.weights, [seed, i], held)
        for i, one in enumerate(parts)
    ]
    found: Statistics = tree(leaves, _total).compute()
    return found


@with_one_blas_thread
def _summary(
    empty: Statistics, points: Any, values: Any, weights: Any, seed: list[int], held: float
) -> Statistics:
    """Return the statistics of one partition."""
    X, y = np.asarray(points), np.asarray(values)
    w = None if weights is None else np.asarray(weights)
    if held >= 0:
        kept = _keys(len(X), seed) > held
        X, y, w = X[kept], y[kept], None if w is None else w[kept]
    return _with(empty, X, y, w)


def _with(empty: Statistics, points: Array, values: Array, weights: Array | None) -> Statistics:
    """Return a copy of statistics with some points, all of which may be missing or of weight 0."""
    found = empty.copy()
    isnan = np.isnan(values) if values.dtype.kind in "fc" else np.zeros(values.shape)
    missing = isnan.any(axis=tuple(range(1, values.ndim)))
    if missing.all() or (weights is not None and not np.any(weights[~missing])):
        found.dropped += int(missing.sum())
        found.count += int((~missing).sum())
        return found
    with one_thread():
        found.add(points, values, weights)
    return found


def _keys(count: int, seed: Sequence[int]) -> Array:
    """Return the random number of each point of a partition, which ``seed`` names."""
    return np.random.default_rng(list(seed)).random(count)


def _total(parts: list[Statistics]) -> Statistics:
    return functools.reduce(lambda a, b: a + b, parts)


# The first pass
# ------------------------------------------------------------------------------------------


@record(eq=False)
class Seen:
    """The box of points (2, D), how many there are, and some of them drawn at random.

    Every point has a random number; those with the smallest numbers are drawn.

    Attributes
    ----------
    keys : array (S,)
        The random numbers of those that are drawn.
    places : int array (S, 2)
        Their partition, and their place in it.
    points, values, weights : arrays
        Themselves; weights may be None.
    """

    box: Array
    count: int
    keys: Array
    places: Array
    points: Array
    values: Array
    weights: Array | None

    @classmethod
    def of(cls, points: Any, values: Any, weights: Any, most: int, seed: int, part: int) -> Seen:
        """Return what is seen of one partition."""
        X, y = real_numbers("points", points), np.asarray(values)
        n = len(X)
        for name, one in (("values", y), ("weights", weights)):
            if one is not None and len(one) != n:
                raise problem(
                    name,
                    f"{len(one)} rows in partition {part}",
                    f"{n}, one per point",
                    "Divide all of them alike.",
                )
        low_high = np.stack([X.min(axis=0), X.max(axis=0)]) if n else _nowhere(X.shape[1])
        keys = _keys(n, [seed, part])
        drawn = _smallest(keys, most)
        w = None if weights is None else np.asarray(weights)[drawn]
        places = np.stack([np.full(len(drawn), part), drawn], axis=1)
        return cls(low_high, n, keys[drawn], places, X[drawn], y[drawn], w)

    @classmethod
    def joined(cls, parts: Sequence[Seen], most: int) -> Seen:
        """Return what is seen of several partitions."""
        drawn = _smallest(np.concatenate([one.keys for one in parts]), most)

        def all_of(name: str) -> Any:
            each = [getattr(one, name) for one in parts]
            return None if each[0] is None else np.concatenate(each)[drawn]

        low = np.min([one.box[0] for one in parts], axis=0)
        high = np.max([one.box[1] for one in parts], axis=0)
        names = ("keys", "places", "points", "values", "weights")
        count = sum(one.count for one in parts)
        return cls(np.stack([low, high]), count, *map(all_of, names))

    def in_order(self) -> Seen:
        """Return the same with the points that are drawn in their given order."""
        order = np.lexsort(self.places.T[::-1])
        w = None if self.weights is None else self.weights[order]
        return replace(
            self,
            keys=self.keys[order],
            places=self.places[order],
            points=self.points[order],
            values=self.values[order],
            weights=w,
        )

    def held_out(self, most: int) -> Seen:
        """Return the ``most`` points with the smallest numbers."""
        order = np.argsort(self.keys)[:most]
        w = None if self.weights is None else self.weights[order]
        keys, places = self.keys[order], self.places[order]
        return Seen(self.box, len(order), keys, places, self.points[order], self.values[order], w)


def _nowhere(D: int) -> Array:
    return np.array([[math.inf] * D, [-math.inf] * D])


def _smallest(keys: Array, most: int) -> Array:
    """Return which ``most`` numbers are the smallest, in the order in which they are given."""
    if len(keys) <= most:
        return np.arange(len(keys))
    return np.sort(np.argpartition(keys, most - 1)[:most])


def seen_of(parts: Sequence[Partition], seed: int, most: int) -> Seen:
    """Return the box and the number of all points, and at most ``most`` of them."""
    from dask.delayed import delayed

    leaves = [
        delayed(Seen.of, pure=True)(one.points, one.values, one.weights, most, seed, i)
        for i, one in enumerate(parts)
    ]
    found: Seen = tree(leaves, functools.partial(Seen.joined, most=most)).compute()
    return found.in_order()


# The fit
# ------------------------------------------------------------------------------------------


def fit_points_lazy(
    points: Any,
    values: Any,
    encoding: Kronecker | Embedder | None,
    *,
    domain: Any,
    weights: Any,
    seed: int,
    periodic: Any,
    form: str | None,
    options: Mapping[str, Any],
) -> Field:
    """Return the field of points that are an array or a table of Dask; see `fit_points`.

    ``options`` are its other arguments.
    """
    started = time.perf_counter()
    names = _names(points)
    parts = partitions(points, values, weights)
    decisions = checked_settings(options["settings"]).lazy
    seen = seen_of(parts, seed, decisions.drawn)
    labels = None if names is None else Labels(tuple(AxisLabel(name) for name in names))
    if seen.count <= decisions.drawn:
        field = fit_points(
            seen.points,
            seen.values,
            encoding,
            domain=domain,
            weights=seen.weights,
            seed=seed,
            periodic=periodic,
            form=form,
            **options,
        )
        return field.with_labels(labels)
    D = seen.points.shape[1]
    _refuse(options, form, D, decisions.drawn, has_encoding=encoding is not None)
    checked = PointOptions.checked(D, seed=seed, **options)
    box = bounding_box(seen.box)
    # the drawn points are checked as all are, and periods are brought in order
    given = PointInput(
        seen.points, seen.values, seen.weights, domain, encoding, periodic=periodic, labels=labels
    )
    if any(given.periods) and domain is None:
        starts = (one[0] for one in box)
        pairs = zip(starts, box, given.periods, strict=True)
        box = [pair if period is None else (low, low + period) for low, pair, period in pairs]
    if domain is not None:
        box = [(float(low), float(high)) for low, high in given.domain or box]
    if given.encoding is None:
        choice = _choice(given, box, seen.count, checked)
    else:
        check_features(given.encoding.shape, checked)
        frames = closed_frames(
            frames_for(given.encoding, None if domain is None else box, box), box, given.periods
        )
        choice = choose_penalty(_samples(given), given.encoding, frames, checked)
    empty = Statistics.on_frames(
        choice.encoding, choice.frames, checked.rows, given.periods, checked.settings
    )
    penalty, candidates = choice.penalty, choice.candidates
    chosen_by = choice.chosen_by
    solve = Solves(choice, checked)
    if checked.penalty is not None or not any(penalty.roughness):
        total = statistics_of(parts, empty)
    else:
        held = seen.held_out(max(1, int(decisions.held_out * seen.count)))
        rest = statistics_of(parts, empty, seed, float(held.keys.max()))
        total = rest + _with(empty, held.points, held.values, held.weights)
        penalty, tried = solve.walk(rest, held)
        candidates = [*(replace(one, chosen=False) for one in candidates), *tried]
        chosen_by = f"{chosen_by}; penalty by the error at {len(held.points)} held-out points"
    field = solve.field(total, penalty)
    report = field.report
    assert report is not None
    report.seconds = time.perf_counter() - started
    report.candidates = candidates
    report.chosen_by = (
        f"{len(seen.points)} of {seen.count} points, drawn at random: {chosen_by}"
        if choice.candidates
        else chosen_by
    )
    return field.with_labels(labels)


@record(eq=False)
class Solves:
    """The fields of a summary under several penalties.

    Attributes
    ----------
    choice : PointChoice
        The features, and the penalty that some of the points asked for.
    options : PointOptions
        The options of the caller.
    """

    choice: PointChoice
    options: PointOptions

    def field(self, statistics: Statistics, penalty: Penalty) -> Field:
        """Return the field of a summary under a penalty."""
        options, settings = self.options, self.options.settings.points
        tolerance = options.tolerance
        if tolerance is None and self.choice.candidates:
            tolerance = settings.part_of_error * self.choice.relative_error
            tolerance = max(tolerance, options.settings.lazy.tightest)
            tolerance = min(tolerance, settings.loosest)
        return statistics.solve(
            ridge=penalty.ridge,
            roughness=penalty.roughness,
            units=penalty.units,
            tolerance=tolerance,
            iterations=options.iterations,
            seed=options.seed,
            progress=options.progress,
            settings=options.settings,
        )

    def walk(self, rest: Statistics, held: Seen) -> tuple[Penalty, list[Candidate]]:
        """Return the penalty with the least error at points that are held out, and all tried.

        ``rest`` summarises the others. The penalty is multiplied or divided by `step` while that
        lowers the error.
        """
        start, settings = self.choice.penalty, self.options.settings.lazy
        known: dict[int, float] = {}

        def at(step: int) -> Penalty:
            first, second = start.roughness
            factor = settings.step**step
            return replace(start, roughness=(first * factor, second * factor))

        def error(step: int) -> float:
            if step not in known:
                try:
                    known[step] = self._error(self.field(rest, at(step)), held)
                except ConvergenceError:
                    known[step] = math.inf
            return known[step]

        best = settings.first_step
        for direction in (-1, 1):
            while abs(best) < settings.most_steps and error(best + direction) < error(best):
                best += direction
            if best != settings.first_step:
                break
        tried = [
            Candidate(
                "roughness", dict(zip(("first", "second"), at(step).roughness, strict=True)), e
            )
            for step, e in sorted(known.items())
        ]
        return at(best), choose_lowest(tried)

    @staticmethod
    def _error(field: Field, held: Seen) -> float:
        """Return the mean squared error at held-out points, of all channels."""
        squares = np.abs(field(held.points) - held.values) ** 2
        each = squares.reshape(len(squares), -1).mean(axis=1)
        known = ~np.isnan(each)
        weights = None if held.weights is None else held.weights[known]
        return float(np.average(each[known], weights=weights))


def _names(points: Any) -> list[str] | None:
    """Return the names of the columns of a table; None for an array."""
    return [str(name) for name in points.columns] if hasattr(points, "columns") else None


def _refuse(
    options: Mapping[str, Any], form: Any, D: int, most: int, *, has_encoding: bool
) -> None:
    """Raise an error for what a sum of summaries cannot do."""
    remedy = "Leave it out, or fit some of the points in memory."
    if options["loss"] != "squared" or form not in (None, "grid"):
        name, value = ("form", form) if form not in (None, "grid") else ("loss", options["loss"])
        raise problem(
            name, f"{value!r} beside more than {most} points of Dask", "the default", remedy
        )
    for name in ("trend", "hold_out"):
        if options[name] is not None:
            raise problem(name, f"{name} beside points of Dask", "none", remedy)
    if D > 3 and not has_encoding:
        raise problem(
            "points",
            f"points of Dask in {D} dimensions, without an encoding",
            "at most 3 dimensions, or an encoding",
            "Pass encoding=, or fit some of the points in memory.",
        )


def _samples(given: PointInput) -> PointSamples:
    """Return the points that settings are chosen on, with values of at most 1."""
    scale = float(np.abs(given.values).max()) or 1.0
    samples = PointSamples(given.points, given.values / given.dtype.type(scale), given.weights)
    return samples if given.weights is None else samples.without(given.weights == 0)


def _choice(
    given: PointInput, box: Sequence[tuple[float, float]], count: int, options: PointOptions
) -> PointChoice:
    """Return the features chosen on some points, on a grid for ``count`` points."""
    # Gaussians have a constant beside the features, and are for fewer points
    judged = min(options.settings.points.judged, len(given.points))
    settings = changed(options.settings, "points", "judged", judged)
    options = replace(options, settings=settings)
    choice = choose_points(_samples(given), box, None, options, given.periods)
    if choice.grid is None:
        return choice
    # as many nodes for a point as on the grid that was chosen, if a summary can hold them
    grid, D = choice.grid, len(box)
    nodes = math.prod(grid.counts)
    limits = options.settings.points.row_limits
    rule = RowRule.choose(choice.encoding, choice.frames, options.rows, limits=limits)
    offsets = (math.prod(2 * t - 1 for t in rule.taps) + 1) // 2
    held = options.settings.lazy.summary_bytes / (8 * offsets)
    most = min(held, options.settings.points.most_unknowns)
    finer = min(count / len(given.points), most / nodes) ** (1 / D)
    counts = [without_spare_nodes(max(n, round(n * finer))) for n in grid.counts]
    encoding, frames = grid_of(grid.make, box, counts)
    return replace(choice, encoding=encoding, frames=frames)


def statistics_from(
    points: Any,
    values: Any,
    encoding: Kronecker | Embedder,
    domain: Sequence[Sequence[float]],
    *,
    weights: Any,
    rows: str | None,
    periodic: Any,
    settings: Settings | None,
) -> Statistics:
    """Return the statistics of points of Dask; see `Statistics.from_dask`."""
    empty = Statistics(encoding, domain, rows=rows, periodic=periodic, settings=settings)
    return statistics_of(partitions(points, values, weights), empty)
