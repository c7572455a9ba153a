"""Choose how missing samples of a lattice are filled: by falling thresholds or by a linear fit.

Known samples are hidden in several windows and predicted by both.

Holes that are a small part of the lattice are judged at samples hidden in the shape of the holes:
they are moved and flipped onto known samples nearby. The linear fits are then the surfaces of least
roughness through the known samples, with some ratios of first to second differences: see
`least_roughness`. Filling starts from the best of them, and the result is a mixture of both: the
share of the filling is that with the least error at hidden samples, shrunk by its standard error.
If this share is 0, the fit is linear, and its penalty has the best ratio; in a large lattice the
surface itself fills the holes, so that the time depends on the holes alone. Holes in noisy
samples are not filled: thresholds keep the noise of the known samples.

If most samples are missing, some of the others are hidden at random, and the linear fit is the
penalised one that `point_choice` has chosen. Filling is chosen if it predicts better, by more than
the standard error over cells of windows. Noise is looked for where neighbours are known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import centre
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.fitting.filling import block_sizes, coarse_guess, decorrelating, fill
from kronfield.fitting.least_roughness import REACH, check_room, least_roughness
from kronfield.fitting.line_choice import LineSmoother
from kronfield.fitting.noise import Noise, find_noise
from kronfield.fitting.report import Candidate
from kronfield.fitting.settings import DEFAULT, FillingSettings, Settings

# The golden ratio: its multiples are spread evenly over the unit interval.
GOLDEN = (math.sqrt(5) - 1) / 2
# Primes whose square roots spread parts of windows evenly: one for each axis of a lattice.
PRIMES = (2, 3, 5, 7)
# If boxes around the holes are at most this fraction of the lattice, only the boxes are filled, to
# save time; else the whole lattice. The result is the same.
FEW = 0.5

# Decibels per unit of the natural logarithm of a ratio of squares.
DECIBEL = 10 / math.log(10)

KIND = "falling thresholds"


@record(eq=False)
class Filling:
    """The decision on filling a lattice, and its result.

    Attributes
    ----------
    candidates : list of Candidate
        The linear fits and the filling, with their errors at hidden samples.
    reason : str
        How it was decided.
    planes : array (C, N_1, ..., N_D) or None
        The complete lattice, if filling was chosen.
    error, uncertainty : float
        The expected root mean square error at a missing sample, and its standard error.
    linear : float
        The expected error of the linear fit, which is the unit of the thresholds.
    rounds, all_sizes : int, bool
        The number of rounds, and whether the largest blocks are used.
    ratio : float or None
        The ratio of first to second differences in the linear fit that is best in holes.
    weight : float
        The share of the filling; the rest is the linear fit.
    rotation : array (R, C) or None
        The combinations of channels that are filled in holes; others are linear.
    line : LineSmoother or None
        The linear fit of a line, whether it was chosen or starts the filling.
    """

    candidates: list[Candidate]
    reason: str
    planes: Array | None = None
    error: float = math.nan
    uncertainty: float = math.nan
    linear: float = math.nan
    rounds: int = 0
    all_sizes: bool = True
    ratio: float | None = None
    weight: float = 1.0
    rotation: Array | None = None
    line: LineSmoother | None = None

    def without_samples(self) -> Filling:
        """Return this without the lattice."""
        return replace(self, planes=None)


@record(eq=False)
class Hidden:
    """Windows of a lattice in which known samples are hidden.

    Attributes
    ----------
    windows : list of tuples of slices
        The windows; all have the same shape.
    hidden : array of bool (W, n_1, ..., n_D)
        Where known samples are hidden.
    """

    windows: list[tuple[slice, ...]]
    hidden: Array

    def different(self) -> Hidden:
        """Return the windows without repetitions: a short line is in all of them."""
        keys = [
            (*((p.start, p.stop) for p in w), h.tobytes())
            for w, h in zip(self.windows, self.hidden, strict=True)
        ]
        index = list({key: i for i, key in enumerate(keys)}.values())
        return Hidden([self.windows[i] for i in index], self.hidden[index])

    def widened(self, shape: Sequence[int], margin: int) -> Hidden:
        """Return the same hidden samples in windows with more known samples around them."""
        windows, hidden = [], []
        for window, held in zip(self.windows, self.hidden, strict=True):
            # windows at the border of the lattice are widened on the other side
            extent = [
                min(n, p.stop - p.start + 2 * margin) for p, n in zip(window, shape, strict=True)
            ]
            lows = [
                min(max(p.start - margin, 0), n - e)
                for p, n, e in zip(window, shape, extent, strict=True)
            ]
            wide = np.zeros(extent, dtype=bool)
            places = zip(window, lows, strict=True)
            wide[tuple(slice(p.start - low, p.stop - low) for p, low in places)] = held
            windows.append(tuple(slice(low, low + e) for low, e in zip(lows, extent, strict=True)))
            hidden.append(wide)
        return Hidden(windows, np.stack(hidden))

    def cropped(self, parts: Sequence[Array], most: int) -> tuple[Hidden, list[Array]]:
        """Return boxes inside the windows, with at most ``most`` samples together.

        ``parts`` hold numbers for each hidden sample, (..., n) in each window; those of the boxes
        are returned too. Boxes differ in their place in the window, since windows may be equal.
        """
        whole = self.hidden.shape[1:]
        extent = [part.stop - part.start for part in centre(whole, max(1, most // len(parts)))]
        windows, hidden, kept = [], [], []
        for k, (window, held, part) in enumerate(
            zip(self.windows, self.hidden, parts, strict=True)
        ):
            # additive sequences of irrational steps are even on every axis (Weyl, 1916)
            lows = [
                int((k + 0.5) * math.sqrt(prime) % 1 * (n - e + 1))
                for n, e, prime in zip(whole, extent, PRIMES, strict=False)
            ]
            box = tuple(slice(low, low + e) for low, e in zip(lows, extent, strict=True))
            inside = np.zeros(whole, dtype=bool)
            inside[box] = True
            starts = (own.start + low for own, low in zip(window, lows, strict=True))
            windows.append(tuple(slice(a, a + e) for a, e in zip(starts, extent, strict=True)))
            hidden.append(held[box])
            kept.append(part[..., inside[held]])
        return Hidden(windows, np.stack(hidden)), kept

    def by_cells(self, parts: Sequence[Array], cell: int) -> list[Array]:
        """Return numbers for hidden samples, (..., n) in each window, split by cells of it.

        Cells have a side of ``cell`` samples.
        """
        found = []
        for held, part in zip(self.hidden, parts, strict=True):
            if not part.shape[-1]:
                continue
            index = tuple(np.argwhere(held).T // cell)
            counts = [-(-n // cell) for n in held.shape]
            labels = np.ravel_multi_index(index, counts)
            order = np.argsort(labels, kind="stable")
            ends = np.flatnonzero(np.diff(labels[order])) + 1
            found += np.split(part[..., order], ends, axis=-1)
        return found

    def stack(self, lattice: Array) -> Array:
        """Return the windows of (..., N_1, ..., N_D) as (..., W, n_1, ..., n_D)."""
        D = self.hidden.ndim - 1
        before = (slice(None),) * (lattice.ndim - D)
        return np.stack([lattice[(*before, *window)] for window in self.windows], axis=-D - 1)


@record
class MeanError:
    """A mean squared error and its standard error, over windows (over samples if there is one)."""

    mean: float
    error: float

    @classmethod
    def of(cls, parts: Sequence[Array]) -> MeanError:
        """Return the mean of squared errors (n,) in each window.

        Errors within a window are correlated, so windows are the independent observations.
        """
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls(math.nan, math.nan)
        sums, counts = _sums(parts), np.array([len(part) for part in parts])
        count = int(counts.sum())
        mean = float(sums.sum()) / count
        if len(parts) == 1:
            return cls(mean, float(np.std(parts[0])) / math.sqrt(count))
        # of a ratio of sums over clusters (Cochran, 1977)
        off, W = sums - mean * counts, len(parts)
        return cls(mean, math.sqrt(W / (W - 1) * float(off @ off)) / count)

    @classmethod
    def elsewhere(
        cls,
        parts: Sequence[Array],
        known: Sequence[Array],
        there: Array,
        fewest: int = DEFAULT.filling.fewest_windows,
    ) -> MeanError:
        """Return the mean of squared errors at other places, by a ratio estimate.

        ``parts`` are squared errors and ``known`` a quantity about proportional to them, (n,) in
        each window; ``there`` (m,) is this quantity at the other places. The mean error is
        multiplied by the ratio of the means of the quantity (Cochran, 1977, chapter 6).
        """
        found = cls.of(parts)
        pairs = [(a, b) for a, b in zip(parts, known, strict=True) if len(a)]
        if len(pairs) < fewest:
            return found
        total = float(_sums([b for _, b in pairs]).sum())
        count, mean = sum(len(a) for a, _ in pairs), float(there.mean(dtype=np.float64))
        if not (total > 0 and mean > 0):
            return found
        slope = found.mean * count / total
        off = cls.of([a - slope * b for a, b in pairs])  # its mean is 0
        ratio = mean * count / total
        # few windows may look proportional by chance: keep at least the error without the ratio
        return cls(found.mean * ratio, max(off.error, found.error) * ratio)

    def of_few(self, hidden: int, missing: int) -> MeanError:
        """Add the variation of the mean over a finite number of missing samples."""
        return replace(self, error=self.error * math.sqrt(1 + hidden / max(missing, 1)))

    @property
    def root(self) -> tuple[float, float]:
        """The root mean square, and its standard error."""
        root = math.sqrt(max(self.mean, 0.0))
        return root, self.error / (2 * root) if root else 0.0


def consider_holes(
    planes: Array, missing: Array, settings: Settings, shares: Array | None = None
) -> Filling | None:
    """Return the filling of small holes, or why there is none; None if holes are not small.

    ``planes`` (C, N_1, ..., N_D) have any values where samples are ``missing`` (N_1, ..., N_D).
    Expected errors are those of channels that are multiplied by ``shares`` (C,).
    """
    own = settings.filling
    if missing.mean() > own.holes:
        return None
    if missing.ndim > 1:
        check_room(missing[None], len(planes))
    judged = hidden_like(missing, own)
    if judged is not None and missing.ndim == 1:
        judged = judged.different()
    if judged is None:
        return Filling([], f"fewer than {own.fewest} samples can be hidden in the shape of holes")
    gaps = judged.stack(missing) | judged.hidden
    windows = judged.stack(planes)
    scale = _scale(windows, ~gaps)
    if scale == 0.0:
        return Filling([], "the known samples are constant")
    noise = _noise_near(planes, missing, settings)
    if noise.is_found:
        return Filling([], f"not filled by thresholds, which keep noise; {noise.reason}")
    line = None
    if missing.ndim == 1:
        line = LineSmoother.best(planes, missing, settings.search)
        ratios: tuple[float, ...] = (line.first / line.second,)
        surfaces = {ratios[0]: line(windows, gaps)}
    else:
        ratios = settings.search.ratios[::2]
        unknown = _connected(judged.hidden, gaps)
        found = least_roughness(windows, unknown, ratios)
        surfaces = dict(zip(ratios, found, strict=True))
    errors = {ratio: _errors(found, windows, judged.hidden) for ratio, found in surfaces.items()}
    squares = {ratio: _mean_squares(parts) for ratio, parts in errors.items()}
    trust = window_weights(list(squares.values()))
    best = min(squares, key=lambda ratio: float(trust @ _sums(squares[ratio])))
    linear = MeanError.of(squares[best])
    candidates = [
        Candidate(
            "least roughness", {"first over second differences": ratio}, *_relative(parts, scale)
        )
        for ratio, parts in squares.items()
    ]
    rotation = telling_rows(
        decorrelating(planes, missing, own.covariance_samples), errors[best], own.least_share
    )
    wide = are_wide(missing, own)
    plan = Plan(own.rounds_of_holes, wide, own, best, 1.0, rotation, line)
    boxes, start = hole_boxes(missing, own), surfaces[best]
    guess = plan.guess(planes, missing, boxes)
    if line is None:  # missing samples that the hidden ones do not affect
        start = np.where(unknown, start, judged.stack(guess))
    filled, complete = in_threads(
        lambda work: work(linear.root[0]),
        [
            functools.partial(plan.fill_from, start, gaps),
            functools.partial(plan.fill_guess, guess, missing, boxes),
        ],
    )
    others = _errors(filled, windows, judged.hidden)
    if line is None:
        weight, deviation = best_share(errors[best], others, trust)
        is_clear = True
    else:
        weight, deviation = best_share(*alike(errors[best], others, gaps, judged.hidden))
        is_clear = weight > own.line_chance * deviation
    taken = certain_share(weight, deviation, own.share_caution) if is_clear else 0.0
    reason = (
        f"mean squared error at {int(judged.hidden.sum())} samples hidden in "
        f"{len(judged.windows)} windows, relative to the variance; the best share of the filling "
        f"is {weight:.2f} +- {deviation:.2f}"
    )
    parameters = {"rounds": plan.rounds, "share": 1.0}
    candidates.append(Candidate(KIND, parameters, *_relative(_mean_squares(others), scale)))
    if taken == 0.0:
        expected = MeanError.of(_mean_squares(errors[best], shares))
        expected = expected.of_few(int(judged.hidden.sum()), int(missing.sum()))
        if line is not None:
            return Filling(candidates, reason, None, *expected.root, line=line)
        at_hand = Filling(candidates, reason, None, *expected.root, linear.root[0], ratio=best)
        if missing.size <= own.whole_samples or boxes is None:
            return at_hand
        # computed near the holes alone, which is far less work than a fit of all samples
        at = list(squares).index(best)
        candidates[at] = replace(candidates[at], chosen=True)
        return replace(
            at_hand, planes=guess, rounds=plan.rounds, all_sizes=plan.all_sizes, weight=0.0
        )
    mixed = [(1 - taken) * a + taken * b for a, b in zip(errors[best], others, strict=True)]
    plan = replace(plan, weight=taken)
    if taken < 1.0:
        places = np.flatnonzero(missing)
        one, other = (planes.reshape(len(planes), -1) for planes in (guess, complete))
        first = one.take(places, axis=1)
        other[:, places] = first + planes.dtype.type(taken) * (other.take(places, axis=1) - first)
    apart = own.activity_distances
    there = activity(complete[:, None], missing[None], apart, own.activity_samples, shares)
    here = activity(start + taken * (filled - start), judged.hidden, apart, shares=shares)
    ends = np.cumsum([int(one.sum()) for one in judged.hidden])[:-1]
    squares_there = _mean_squares(mixed, shares)
    expected = MeanError.elsewhere(squares_there, np.split(here, ends), there, own.fewest_windows)
    expected = expected.of_few(int(judged.hidden.sum()), int(missing.sum()))
    score = _relative(_mean_squares(mixed), scale)
    chosen = Candidate(KIND, {**parameters, "share": taken}, *score, chosen=True)
    error, uncertainty = expected.root
    return Filling(
        candidates=[*candidates[: len(ratios)], chosen] if taken == 1.0 else [*candidates, chosen],
        reason=reason,
        planes=complete,
        error=error,
        uncertainty=uncertainty,
        linear=linear.root[0],
        rounds=plan.rounds,
        all_sizes=plan.all_sizes,
        ratio=best,
        weight=taken,
        rotation=rotation,
        line=line,
    )


def alike(
    errors: Sequence[Array], others: Sequence[Array], gaps: Array, hidden: Array
) -> tuple[list[Array], list[Array]]:
    """Return errors (C, n) of each hole of a line, scaled so that all have about one size.

    Errors grow with the distance from the nearest known sample. Those whose distances are within a
    factor of 2 are divided by the root mean square of ``errors`` among them, so that a few wide
    gaps do not decide for all narrow ones.
    """
    import scipy.ndimage

    far = [
        scipy.ndimage.distance_transform_edt(gap)[hid]
        for gap, hid in zip(gaps, hidden, strict=True)
    ]
    classes = [np.floor(np.log2(part)).astype(int) for part in far]
    squares, labels = np.concatenate(_mean_squares(errors)), np.concatenate(classes)
    counts = np.maximum(np.bincount(labels), 1)
    units = np.sqrt(np.bincount(labels, weights=squares) / counts)
    units[units == 0] = 1.0
    # runs of neighbours are the independent observations
    places = [np.flatnonzero(hid) for hid in hidden]
    ends = [np.flatnonzero(np.diff(place) > 1) + 1 for place in places]
    scaled = [
        [
            run
            for part, own, at in zip(one, classes, ends, strict=True)
            for run in np.split(part / units[own], at, axis=1)
        ]
        for one in (errors, others)
    ]
    return scaled[0], scaled[1]


def _noise_near(planes: Array, missing: Array, settings: Settings) -> Noise:
    """Return the noise of samples around a hole; of all samples if few of these are known."""
    places = np.flatnonzero(missing)
    extent = [p.stop - p.start for p in centre(missing.shape, settings.filling.noise_samples)]
    part = _around(int(places[len(places) // 2]), missing.shape, extent)
    if 2 * np.count_nonzero(missing[part]) > math.prod(extent):
        part = (slice(None),) * missing.ndim
    return find_noise(planes[(slice(None), *part)], settings.noise, ~missing[part])


def activity(
    stack: Array,
    places: Array,
    distances: Sequence[int],
    most: int | None = None,
    shares: Array | None = None,
) -> Array:
    """Return how much stacked planes (C, W, N_1, ..., N_D) change near some places, (n,).

    It is the sum of squared differences between samples on either side, at some ``distances``:
    squared errors of filled samples are about proportional to it. With ``most``, about this number
    of the places are used, spread evenly. Channels are multiplied by ``shares`` (C,).
    """
    weights = np.ones(len(stack)) if shares is None else np.square(shares)
    every, flat = np.flatnonzero(places), stack.reshape(len(stack), -1)
    if most is not None:
        every = every[:: max(1, len(every) // most)]
    index = np.unravel_index(every, places.shape)
    total = np.zeros(len(every))
    for axis in range(1, places.ndim):
        stride, i, last = math.prod(places.shape[axis + 1 :]), index[axis], places.shape[axis] - 1
        for distance in distances:
            low, high = (
                flat.take(every + stride * step, axis=1)
                for step in (-np.minimum(i, distance), np.minimum(last - i, distance))
            )
            high -= low
            total += weights @ np.square(high)
    return total


def telling_rows(rotation: Array, errors: Sequence[Array], least: float) -> Array:
    """Return the rows of a rotation that hold nearly all of the squared error.

    ``errors`` are those of the channels (C, n) in each window. Edges are similar in channels of a
    picture, so that most of the error is in one combination of them. The rows that are left out
    together hold at most the fraction ``least`` of it.
    """
    squares = np.sum(np.square(rotation @ np.concatenate(errors, axis=1)), axis=1)
    order = np.argsort(squares, kind="stable")
    weak = np.cumsum(squares[order]) <= least * squares.sum()
    weak[-1] = False
    return rotation[np.sort(order[~weak])]


def window_weights(squares: Sequence[Sequence[Array]]) -> Array:
    """Return the weights (W,) of windows from squared errors (n,) in each, of several fits.

    The weight is 1 / (mean squared error of the window + that of all windows). With equal weights,
    a few windows with large errors would decide; without the second term, those with small errors.
    """
    counts = np.array([max(len(part), 1) for part in squares[0]])
    sums = np.mean([_sums(parts) for parts in squares], axis=0)
    scales = sums / counts + sums.sum() / counts.sum()
    return 1 / np.where(scales > 0, scales, 1.0)


def best_share(
    errors: Sequence[Array], others: Sequence[Array], weights: Array | None = None
) -> tuple[float, float]:
    """Return the share of other predictions with which a mixture has the least squared error.

    ``errors`` and ``others`` are errors (C, n) in each window, and ``weights`` (W,) those of the
    windows, which are independent. The second result is the standard error of the share, a ratio of
    sums (Cochran, 1977).

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.filling_choice import best_share
    >>> one = [np.array([[1.0, -2.0]]), np.array([[3.0, 1.0]])]
    >>> best_share(one, [-part for part in one])  # half of each has no error at all
    (0.5, 0.0)
    """
    one, other = (np.concatenate(parts, axis=1, dtype=np.float64) for parts in (errors, others))
    ends = np.cumsum([part.shape[1] for part in errors])[:-1]
    gains, sizes = (
        _sums(np.split(np.einsum("cn,cn->n", a, one - other), ends)) for a in (one, one - other)
    )
    if weights is not None:
        gains, sizes = weights * gains, weights * sizes
    if not sizes.sum() > 0:
        return 0.0, 0.0
    share = float(gains.sum() / sizes.sum())
    W = len(gains)
    if W < 2:
        return share, math.inf
    off = gains - share * sizes
    return share, math.sqrt(W / (W - 1) * float(off @ off)) / float(sizes.sum())


def certain_share(
    share: float, deviation: float, caution: float = DEFAULT.filling.share_caution
) -> float:
    """Return a share, shrunk towards 0 by its standard error ``deviation``, and at most 1.

    It is w (1 - c (e/w)²) for a share w of standard error e, or 0 if this is negative, with
    ``caution`` c: for c = 1, the positive part of the estimate of James and Stein (1961).

    Examples
    --------
    >>> from kronfield.fitting.filling_choice import certain_share
    >>> [certain_share(0.5, error) for error in (0.0, 0.25, 0.5)]
    [0.5, 0.25, 0.0]
    """
    if not share > deviation:
        return 0.0
    return min(max(share * (1 - caution * (deviation / share) ** 2), 0.0), 1.0)


def consider_scattered(
    planes: Array,
    missing: Array,
    judged: Hidden,
    linear: Sequence[Array],
    settings: Settings,
    shares: Array | None = None,
) -> Filling:
    """Return the filling of a lattice of which most samples are missing.

    ``linear`` are the errors (C, n) of the linear fit at the hidden samples of each window.
    Expected errors are those of channels that are multiplied by ``shares`` (C,).
    """
    own = settings.filling
    scale = _scale(planes, ~missing)
    if scale == 0.0:
        return Filling([], "the known samples are constant")
    ratio = noise_ratio(planes, missing, settings)
    if ratio >= settings.noise.ratio:
        return Filling(
            [],
            "not filled by thresholds, which keep noise: differences between known neighbours are "
            f"{ratio:.2f} times as strong as at twice the spacing",
        )
    cell = max(own.sizes(missing.ndim))
    judged, linear = judged.cropped(linear, own.judged)
    if sum(part.shape[1] for part in linear) < own.fewest:
        return Filling([], f"fewer than {own.fewest} samples were hidden")
    # blocks that end near a hidden sample would be at a disadvantage
    judged = judged.widened(missing.shape, cell // 4)
    linear = judged.by_cells(linear, cell)  # cells are the independent observations
    score = _relative(_mean_squares(linear), scale)
    expected = Candidate("linear fit of all channels", {}, *score)
    plan = Plan(own.rounds, True, own)
    gaps = judged.stack(missing) | judged.hidden
    windows = judged.stack(planes)
    unit = MeanError.of(_mean_squares(linear)).root[0]
    found = plan.fill_from(plan.guess_stack(windows, gaps), gaps, unit)
    others = judged.by_cells(_errors(found, windows, judged.hidden), cell)
    squares = _mean_squares(others)
    taken, by = is_better(squares, _mean_squares(linear))
    candidates = [
        expected,
        Candidate(KIND, {"rounds": plan.rounds}, *_relative(squares, scale), chosen=taken),
    ]
    reason = (
        f"mean squared error at {int(judged.hidden.sum())} samples hidden in "
        f"{len(judged.windows)} windows, relative to the variance; filling is better {by}"
    )
    error = MeanError.of(_mean_squares(others if taken else linear, shares)).root
    if not taken:
        return Filling(candidates, reason, None, *error)
    complete = plan.fill_lattice(planes, missing, unit)
    return Filling(candidates, reason, complete, *error, unit, plan.rounds, plan.all_sizes)


def fill_again(planes: Array, missing: Array, filling: Filling, settings: Settings) -> Array:
    """Return other planes, filled in the same way."""
    plan = Plan(
        filling.rounds,
        filling.all_sizes,
        settings.filling,
        filling.ratio,
        filling.weight,
        filling.rotation,
        filling.line,
    )
    return plan.fill_lattice(planes, missing, filling.linear)


@record(eq=False)
class Plan:
    """How a lattice is filled.

    Attributes
    ----------
    rounds, all_sizes : int, bool
        The number of rounds, and whether the largest blocks are used.
    settings : FillingSettings
        The decisions.
    ratio : float or None
        The first guess is the surface of least roughness with this ratio of first to second
        differences; if None, it is a coarse one.
    weight : float
        The share of the filling in the result; the rest is the first guess.
    rotation : array (R, C) or None
        The combinations of channels that are filled; if None, all.
    line : LineSmoother or None
        Makes the first guess of a line.
    """

    rounds: int
    all_sizes: bool
    settings: FillingSettings
    ratio: float | None = None
    weight: float = 1.0
    rotation: Array | None = None
    line: LineSmoother | None = None

    def fill_lattice(self, planes: Array, missing: Array, error: float) -> Array:
        """Return the filled lattice; work is done in boxes around the holes if these are few."""
        boxes = hole_boxes(missing, self.settings)
        return self.fill_guess(self.guess(planes, missing, boxes), missing, boxes, error)

    def guess(self, planes: Array, missing: Array, boxes: Boxes | None) -> Array:
        """Return the lattice with the first guess of its missing samples."""
        return _in_boxes(planes, missing, boxes, self.guess_stack)

    def guess_stack(self, stack: Array, gaps: Array) -> Array:
        """Return stacked windows (C, W, N_1, ..., N_D) with the first guess of their gaps."""
        if self.line is not None:
            return self.line(stack, gaps)
        if self.ratio is None:
            return coarse_guess(stack, gaps, gaps.ndim - 1)
        return least_roughness(stack, gaps, (self.ratio,))[0]

    def fill_guess(self, guess: Array, missing: Array, boxes: Boxes | None, error: float) -> Array:
        """Return the filled lattice from its first guess."""
        if self.weight == 0.0:
            return guess
        rotation = self.rotation
        if rotation is None:
            rotation = decorrelating(guess, missing, self.settings.covariance_samples)
        plan = replace(self, rotation=rotation)
        return _in_boxes(
            guess, missing, boxes, lambda stack, gaps: plan.fill_from(stack, gaps, error)
        )

    def fill_from(self, guess: Array, gaps: Array, error: float) -> Array:
        """Return stacked windows with their gaps filled, starting from a first guess."""
        if self.weight == 0.0:
            return guess
        return fill(
            guess,
            gaps,
            error,
            rounds=self.rounds,
            sizes=block_sizes(gaps.shape, self.settings, stacked=True, all_sizes=self.all_sizes),
            settings=self.settings,
            of_holes=self.ratio is not None,
            rotation=self.rotation,
            share=self.weight,
        )


# Boxes of one shape in a lattice.
Boxes = list[tuple[slice, ...]]


def _in_boxes(
    planes: Array, missing: Array, boxes: Boxes | None, work: Callable[[Array, Array], Array]
) -> Array:
    """Return planes with the missing samples that ``work`` finds, in the whole lattice or boxes.

    ``work`` takes and returns stacked windows (C, W, N_1, ..., N_D).
    """
    if boxes is None:
        return work(planes[:, None], missing[None])[:, 0]
    gaps = np.stack([missing[box] for box in boxes])
    cut = np.stack([planes[(slice(None), *box)] for box in boxes], axis=1)
    found, complete = work(cut, gaps), planes.copy()
    for i, box in enumerate(boxes):
        np.copyto(complete[(slice(None), *box)], found[:, i], where=gaps[i])
    return complete


def hole_boxes(missing: Array, settings: FillingSettings) -> Boxes | None:
    """Return boxes of one shape around all holes, or None if they cover much of the lattice.

    Boxes start at multiples of the largest block, if the lattice permits, and have at least a block
    of known samples around the holes: filling a box is then the same as filling the lattice.
    """
    import scipy.ndimage

    D = missing.ndim
    cell = max(settings.sizes(D))
    holes = _missing_in_cells(missing, cell) > 0
    if holes.mean() > FEW:
        return None
    near = scipy.ndimage.binary_dilation(holes, np.ones([3] * D, dtype=bool))
    found = scipy.ndimage.find_objects(scipy.ndimage.label(near, np.ones([3] * D))[0])
    extent = [
        min(n, cell * max(box[axis].stop - box[axis].start for box in found))
        for axis, n in enumerate(missing.shape)
    ]
    if len(found) * math.prod(extent) > FEW * missing.size:
        return None
    corners = [
        tuple(
            min(cell * part.start, n - e)
            for part, n, e in zip(box, missing.shape, extent, strict=True)
        )
        for box in found
    ]
    return [
        tuple(slice(low, low + e) for low, e in zip(corner, extent, strict=True))
        for corner in dict.fromkeys(corners)
    ]


def are_wide(missing: Array, settings: FillingSettings) -> bool:
    """Tell whether holes are wide: a cell of part of the largest block has no known sample."""
    cell = max(1, round(settings.wide * max(settings.sizes(missing.ndim))))
    sides = [np.diff(np.append(np.arange(0, n, cell), n)) for n in missing.shape]
    volumes = functools.reduce(np.multiply.outer, sides)
    return bool(np.any(_missing_in_cells(missing, cell) == volumes))


def _missing_in_cells(missing: Array, cell: int) -> Array:
    """Return the number of missing samples in each cell of side ``cell``."""
    counts = [-(-n // cell) for n in missing.shape]
    places = np.unravel_index(np.flatnonzero(missing), missing.shape)
    number = np.ravel_multi_index([place // cell for place in places], counts)
    return np.bincount(number, minlength=math.prod(counts)).reshape(counts)


# Hidden samples
# ------------------------------------------------------------------------------------------


def hidden_like(missing: Array, settings: FillingSettings, seed: int = 0) -> Hidden | None:
    """Return windows with known samples hidden in the shape of the missing ones.

    The holes of a window are moved by a random shift and flipped, onto known samples nearby. Of
    several random moves, the one that hides most samples is used. Parts that would enlarge a hole
    are left out. Hiding stops when as many samples are hidden as are missing, in at least
    ``settings.fewest_windows`` windows. None if fewer than ``settings.fewest`` can be hidden.
    """
    rng = np.random.default_rng(seed)
    places, D = np.flatnonzero(missing), missing.ndim
    if not len(places):
        return None
    # blocks that end near a hidden sample would be at a disadvantage
    sizes = settings.sizes(D)
    margin = sizes[-1 if are_wide(missing, settings) else max(len(sizes) - 2, 0)] // 2
    side = settings.window_samples ** (1 / D)
    while True:
        extent = [min(n, max(1, round(side))) for n in missing.shape]
        samples = math.prod(
            min(n, e + 2 * margin) for n, e in zip(missing.shape, extent, strict=True)
        )
        count = min(settings.windows, max(settings.fewest_windows, settings.judged // samples))
        sources = [_around(place, missing.shape, extent) for place in _spread(places, count)]
        # places at equal distances may all be at the edge of a hole: others tell how wide it is
        turns = (np.arange(count) + 0.5) * GOLDEN % 1
        others = places[(turns * len(places)).astype(int)]
        around = [_around(place, missing.shape, extent) for place in others]
        share = np.mean([missing[window].mean() for window in around])
        if share <= settings.most_missing or tuple(extent) == missing.shape:
            break
        side *= 2  # holes are wider than the windows
    windows, hidden, total = [], [], 0
    # in an order whose first windows, however many, are spread over all
    draws = rng.random((count, settings.moves, 2, D))
    for k in np.argsort((np.arange(count) * GOLDEN) % 1, kind="stable"):
        reach = settings.move
        tries = [_moved(missing, sources[k], reach, *draw) for draw in draws[k].tolist()]
        target, held = max(tries, key=lambda one: np.count_nonzero(one[1]))
        held &= ~_near(missing, target, settings.near)
        number = int(np.count_nonzero(held))
        if 0 < 2 * number < np.count_nonzero(~missing[target]):
            windows.append(target)
            hidden.append(held)
            total += number
        if len(windows) >= settings.fewest_windows and total >= len(places):
            break  # so that judging takes no longer than filling
    if total < settings.fewest:
        return None
    return Hidden(windows, np.stack(hidden)).widened(missing.shape, margin)


def _spread(places: Array, count: int) -> Array:
    """Return ``count`` places, spread evenly over the list."""
    return places[((np.arange(count) + 0.5) / count * len(places)).astype(int)]


def _around(place: int, shape: Sequence[int], extent: Sequence[int]) -> tuple[slice, ...]:
    """Return a window of an extent around a place, moved inside the lattice."""
    index = np.unravel_index(place, shape)
    lows = (
        min(max(int(i) - e // 2, 0), n - e) for i, n, e in zip(index, shape, extent, strict=True)
    )
    return tuple(slice(low, low + e) for low, e in zip(lows, extent, strict=True))


def _moved(
    missing: Array,
    window: tuple[slice, ...],
    reach: int,
    moves: Sequence[float],
    flips: Sequence[float],
) -> tuple[tuple[slice, ...], Array]:
    """Return a window nearby, at random, and the holes of ``window``, flipped at random.

    The window is at most ``reach`` times its length away along each axis. ``moves`` and ``flips``
    are random numbers from 0 to 1, for each axis.
    """
    target, turns = [], []
    for part, n, move, flip in zip(window, missing.shape, moves, flips, strict=True):
        extent = part.stop - part.start
        low = part.start + int((2 * move - 1) * (reach * extent + 1))
        low = min(max(low, 0), n - extent)
        target.append(slice(low, low + extent))
        turns.append(slice(None, None, -1 if flip < 0.5 else 1))
    place = tuple(target)
    return place, missing[window][tuple(turns)] & ~missing[place]


def _near(missing: Array, window: Sequence[slice], most: int) -> Array:
    """Return where in a window samples are at most ``most`` steps along an axis from a missing one.

    Missing samples outside of the window count too.
    """
    wide = tuple(slice(max(part.start - most, 0), part.stop + most) for part in window)
    around = missing[wide]
    near = around.copy()
    for axis in range(missing.ndim):
        for step in range(1, most + 1):
            low, high = _shifted(axis, step)
            near[low] |= around[high]
            near[high] |= around[low]
    inner = zip(window, wide, strict=True)
    return near[tuple(slice(p.start - w.start, p.stop - w.start) for p, w in inner)]


def _connected(hidden: Array, gaps: Array) -> Array:
    """Return hidden samples of windows and those ``gaps`` that differences connect with them.

    Second differences reach two steps along axes, in turn.
    """
    found = hidden
    while True:
        grown = found
        for _ in range(REACH):
            before, grown = grown, grown.copy()
            for axis in range(1, hidden.ndim):
                low, high = _shifted(axis, 1)
                grown[low] |= before[high]
                grown[high] |= before[low]
        grown = found | (grown & gaps)
        if np.array_equal(grown, found):
            return found
        found = grown


def _shifted(axis: int, step: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    before = (slice(None),) * axis
    return (*before, slice(None, -step)), (*before, slice(step, None))


def noise_ratio(planes: Array, missing: Array, settings: Settings) -> float:
    """Return how strong second differences are, relative to those at twice the spacing.

    The ratio is 1 for white noise and less for signals: see `noise`. Differences are taken along
    every axis where three samples are known, in the weakest combination of channels. The ratio is 0
    if there are few differences, or if they are within rounding.
    """
    fine, coarse = (_known_differences(planes, ~missing, spacing) for spacing in (1, 2))
    if min(fine.shape[1], coarse.shape[1]) < settings.filling.fewest_differences:
        return 0.0
    weakest = np.linalg.eigh(fine @ fine.T)[1][:, 0]
    stronger = settings.filling.stronger
    strengths = [float(np.quantile(np.abs(weakest @ one), stronger)) for one in (fine, coarse)]
    most = settings.filling.step_samples
    steps = [_step(plane[~missing], most) for plane in planes]
    rounding = float(np.linalg.norm(weakest * steps))
    largest = float(np.linalg.norm(weakest * [np.abs(plane).max() for plane in planes]))
    # the quantile of normal numbers of standard deviation 1
    least = NormalDist().inv_cdf((1 + stronger) / 2) * settings.noise.least_steps * rounding
    if strengths[0] <= max(least, settings.noise.least_part * largest):
        return 0.0
    return strengths[0] / strengths[1] if strengths[1] else 0.0


def _known_differences(planes: Array, known: Array, spacing: int) -> Array:
    """Return the second differences (C, n) of known samples, scaled to keep white noise."""
    found = []
    for axis, n in enumerate(known.shape):
        ends = (slice(0, n - 2 * spacing), slice(spacing, n - spacing), slice(2 * spacing, n))
        if n <= 2 * spacing:
            continue
        a, b, c = ((*[slice(None)] * axis, end) for end in ends)
        use = known[a] & known[b] & known[c]
        lines = (planes[(slice(None), *part)][:, use].astype(np.float64) for part in (a, b, c))
        low, middle, high = lines
        found.append((low - 2 * middle + high) / math.sqrt(6))
    return np.concatenate(found, axis=1) if found else np.zeros((len(planes), 0))


def _step(values: Array, most: int) -> float:
    """Return the step of quantised values, of which most occur more than once; else 0.

    Of many values, about ``most`` are used.
    """
    some = values[:: max(1, len(values) // most)]
    different = np.unique(some)
    if len(different) < 2 or 2 * len(different) > len(some):
        return 0.0
    return float(np.median(np.diff(different)))


def _errors(found: Array, truth: Array, hidden: Array) -> list[Array]:
    """Return the errors (C, n) at the hidden samples of each window."""
    places = np.flatnonzero(hidden)
    one, other = (planes.reshape(len(planes), -1).take(places, axis=1) for planes in (found, truth))
    ends = np.cumsum(np.count_nonzero(hidden.reshape(len(hidden), -1), axis=1))
    return np.split(one - other, ends[:-1], axis=1)


def _mean_squares(errors: Sequence[Array], shares: Array | None = None) -> list[Array]:
    """Return the squared errors (n,) in each window, averaged over channels.

    Channels are multiplied by ``shares`` (C,).
    """
    every = np.concatenate(errors, axis=1, dtype=np.float64)
    if shares is not None:
        every *= shares[:, None]
    squares = np.einsum("cn,cn->n", every, every) / len(every)
    return np.split(squares, np.cumsum([part.shape[1] for part in errors])[:-1])


def _sums(parts: Sequence[Array]) -> Array:
    """Return the sum of each part, (W,)."""
    totals = np.append(0.0, np.cumsum(np.concatenate(parts), dtype=np.float64))
    ends = np.cumsum([len(part) for part in parts])
    return np.diff(totals[np.append(0, ends)])


def is_better(squares: Sequence[Array], others: Sequence[Array]) -> tuple[bool, str]:
    """Tell whether squared errors are clearly lower than others, and by how much.

    They are if two means over windows agree in sign, and one of them exceeds its standard error:
    the mean logarithm of the ratio, in which windows count equally, and the mean difference, in
    which windows with large errors count most.
    """
    ratio, deviation = mean_ratio(squares, others)
    less = np.array([float(b.sum()) - float(a.sum()) for a, b in zip(squares, others, strict=True)])
    spread = float(np.std(less, ddof=1)) / math.sqrt(len(less)) if len(less) > 1 else math.inf
    difference = float(less.mean())
    better = ratio < 0 < difference and (-ratio > deviation or difference > spread)
    about = f"{-DECIBEL * ratio:.2f} dB +- {DECIBEL * deviation:.2f} in the mean over windows"
    return better, f"by {about}"


def mean_ratio(squares: Sequence[Array], others: Sequence[Array]) -> tuple[float, float]:
    """Return the mean over windows of the logarithm of the ratio of mean squared errors.

    Every window counts equally, even if one of them has a much larger error than the others. The
    second result is the standard error of the mean; it is infinite for a single window.
    """
    least = 1e-12 * MeanError.of(others).mean  # rounding
    ratios = [
        math.log((float(a.mean()) + least) / (float(b.mean()) + least))
        for a, b in zip(squares, others, strict=True)
        if len(a)
    ]
    if len(ratios) < 2:
        return float(np.mean(ratios)), math.inf
    return float(np.mean(ratios)), float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))


def _relative(parts: Sequence[Array], scale: float) -> tuple[float, float]:
    """Return the mean squared error relative to the variance, and its standard error."""
    found = MeanError.of(parts)
    return found.mean / scale**2, found.error / scale**2


def _scale(planes: Array, known: Array) -> float:
    """Return the standard deviation of the known samples, the mean over channels."""
    return math.sqrt(float(np.mean([np.var(plane[known], dtype=np.float64) for plane in planes])))
