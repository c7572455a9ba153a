"""Penalties chosen from the data: a roughness for noisy samples, a ridge for a given encoding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, is_even, mean_step, sample_frame
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.embedders import BSpline
from kronfield.fitting.report import Candidate
from kronfield.fitting.settings import DEFAULT, SmoothingSettings
from kronfield.fitting.splines import tension_encoding
from kronfield.solvers.grid.long_line import LongLine
from kronfield.solvers.grid.separable import GridSolver, gcv_score

# The random signs by which the trace of the smoother of a long uneven line is estimated
# (Hutchinson, 1990), and their seed.
PROBES, SEED = 16, 0
# Basis functions are sorted by strength into this many classes per octave and treated alike in a
# class: scores change by less than 1e-3 of themselves. Functions that are weaker than the strongest
# by more than OCTAVES octaves are hardly penalised, and are one class.
PER_OCTAVE, OCTAVES = 64, 60
# The strongest weight of differences, as an exponent of ten, whose equations keep four digits.
STRONGEST_BAND = 12.0
# The step between the ridges that are tried, as a power of ten: the resolution of the minimum.
RIDGE_STEP = 0.5
# Values that differ by less than this part of the largest one are constant, but for rounding; and
# residuals below it are rounding.
ROUNDING = 1e-14
TINY = float(np.finfo(np.float64).tiny)
# A long axis of N samples is solved in its eigenbasis if N^2 is at most this many times the number
# of samples: its two halved matrices then need less memory than the iterations.
ELONGATED = 4


@record(eq=False)
class Smoothing:
    """A roughness penalty for each of the decorrelated channels.

    Attributes
    ----------
    rotation : (C, C) array
        Orthogonal; decorrelated channels are its product with the channels.
    order : int
        The order of the derivatives that are penalised, 1 or 2.
    tension : float
        The tension of the splines that are smoothed.
    weights : tuple of float
        The weight of the penalty of each decorrelated channel.
    score : float
        The mean over channels of the estimated risk, each as a part of the variance of its noise;
        or the geometric mean of the cross-validation scores. So a channel in another unit counts
        as much as the others.
    interpolation : float
        The same without a penalty.
    leading : int
        The decorrelated channel that varies most.
    units : tuple of float
        The unit of length on each axis, in which the weights are: see `cell_units`.
    sigmas : tuple of float or None
        The noise of the decorrelated channels, in the units of the values, if it is known.
    """

    rotation: Array
    order: int
    tension: float
    weights: tuple[float, ...]
    score: float
    interpolation: float
    leading: int = 0
    units: tuple[float, ...] = ()
    sigmas: tuple[float, ...] | None = None

    @property
    def roughness(self) -> list[tuple[float, float]]:
        """The roughness of each decorrelated channel."""
        return [(w, 0.0) if self.order == 1 else (0.0, w) for w in self.weights]

    def candidate(self) -> Candidate:
        """Return the penalty as a candidate."""
        return Candidate("roughness", {"order": self.order, "weights": self.weights}, self.score)


def best_smoothing(
    values: Array,
    axes: Sequence[Array],
    rotation: Array,
    sigmas: Array | None,
    scale: float,
    settings: SmoothingSettings = DEFAULT.smoothing,
) -> list[Smoothing]:
    """Return the best penalty of either order for values (C, N_1, ..., N_D), scored by windows.

    Values are divided by ``scale``. With ``sigmas``, the noise of the decorrelated channels, the
    score is Stein's unbiased estimate of the risk (Stein, 1981); without, generalised
    cross-validation (Craven and Wahba, 1979).
    """
    even = all(map(is_even, axes))
    sides = settings.windows
    side = sides[min(len(axes), len(sides)) - 1]
    most = settings.uneven_line if len(axes) == 1 else settings.longest_basis
    places = windows([len(axis) for axis in axes], side if even else min(side, most))
    if not even:
        places = places[:1]  # other windows of an uneven axis have another basis
    parts = [
        np.asarray(values[(slice(None), *window)], dtype=np.float64) / scale for window in places
    ]
    planes = np.stack([np.tensordot(rotation, part, axes=1) for part in parts], axis=1)
    short = [axis[some] for axis, some in zip(axes, places[0], strict=True)]
    return in_threads(
        lambda order: _of_order(planes, short, rotation, sigmas, order, settings), (1, 2)
    )


def cell_units(axes: Sequence[Array]) -> tuple[float, ...]:
    """Return units of length in which samples are equally far apart on all axes.

    Axes may have different units, as metres and seconds: a chosen penalty must not depend on them.
    The geometric mean of the units is 1: all are 1 where samples are equally far apart.
    """
    steps = [mean_step(axis) if len(axis) > 1 else 0.0 for axis in axes]
    known = [step for step in steps if step > 0]
    mean = math.exp(sum(math.log(step) for step in known) / len(known)) if known else 1.0
    return tuple(
        1.0 if step == 0 or abs(step / mean - 1) <= EVEN else step / mean for step in steps
    )


def is_long(axes: Sequence[Array], longest: int, longest_halves: int) -> bool:
    """Tell whether an axis is too long for its eigenbasis, and can be solved without it.

    The bases of even axes are computed in halves, up to ``longest_halves`` samples, unless matrices
    of the longest axis are much larger than the samples.
    """
    even, n = all(map(is_even, axes)), max(map(len, axes))
    if even and len(axes) > 1 and n * n <= ELONGATED * math.prod(map(len, axes)):
        longest = max(longest, longest_halves)
    return n > longest and (even or len(axes) == 1)


def windows(lengths: Sequence[int], side: int) -> list[tuple[slice, ...]]:
    """Return the parts of a grid by which a penalty is judged: the middle, and corners.

    A penalty is chosen for all samples, so that it must suit the signal in all parts of the grid.
    """
    sizes = [min(n, side) for n in lengths]
    spare = [n - size for n, size in zip(lengths, sizes, strict=True)]
    places = [tuple(left // 2 for left in spare)]
    for corner in itertools.product((0, 1), repeat=min(len(lengths), 2)):
        # of more than two axes, the others follow the last
        ends = [*corner, *[corner[-1]] * (len(lengths) - len(corner))]
        places.append(tuple(left * end for left, end in zip(spare, ends, strict=True)))
    unique = list(dict.fromkeys(places))
    return [
        tuple(slice(a, a + size) for a, size in zip(place, sizes, strict=True)) for place in unique
    ]


class _InBasis:
    """Windows smoothed in the eigenbasis of the fit, by the strength of each basis function."""

    def __init__(self, axes: Sequence[Array], order: int, tension: float) -> None:
        frames = [sample_frame(axis) for axis in axes]
        self.unit = (1.0, 0.0) if order == 1 else (0.0, 1.0)
        encoding = tension_encoding(axes, frames, tension, thinned=True)
        self.solver = GridSolver(encoding, frames, axes, roughness=self.unit)
        strengths = self.solver.strengths()
        self.classes, self.strengths, self.counts = _classes(strengths.ravel())

    def of(self, plane: Array) -> Callable[[float], tuple[float, float]]:
        """Return the function from a weight to the squared residual and the trace, of one plane.

        The plane is (windows, N_1, ..., N_D); the trace is that of one window.
        """
        energy = np.sum(self.solver.coefficients(plane) ** 2, axis=0).ravel()
        rest = max(float(np.sum(plane**2)) - float(energy.sum()), 0.0)
        energy = np.bincount(self.classes, energy, len(self.counts))

        def measured(weight: float) -> tuple[float, float]:
            own = (self.unit[0] * weight, self.unit[1] * weight)
            kept = self.solver.filter_of(self.strengths, 0.0, own)
            return float(np.sum((1 - kept) ** 2 * energy)) + rest, float(kept @ self.counts)

        return measured


def _classes(strengths: Array) -> tuple[Array, Array, Array]:
    """Return the class of each strength (n,), and the mean and the number of those in each class.

    The effect of a penalty on a basis function depends on its strength alone, so that functions of
    about the same strength are judged together. If there are few, each is a class of its own.
    """
    top = float(strengths.max(initial=0.0))
    if len(strengths) <= PER_OCTAVE * OCTAVES or not top > 0:
        return np.arange(len(strengths)), strengths, np.ones(len(strengths))
    octaves = np.log2(np.maximum(strengths / top, 2.0**-OCTAVES)) + OCTAVES
    classes = np.rint(PER_OCTAVE * octaves).astype(np.intp)
    counts = np.bincount(classes).astype(np.float64)
    means = np.bincount(classes, strengths) / np.maximum(counts, 1)
    return classes, means, counts


class _ByDifferences:
    """Windows of a long line smoothed by differences (Whittaker, 1923), solved as a band."""

    def __init__(self, count: int, step: float, order: int) -> None:
        self.count, self.step, self.order = count, step, order
        stencil = np.array([-1.0, 1.0]) if order == 1 else np.array([1.0, -2.0, 1.0])
        # the upper bands of D'D, from the rows of D that reach a sample
        self.bands = np.zeros((order + 1, count))
        rows = count - order
        for i, a in enumerate(stencil):
            for j in range(i, order + 1):
                self.bands[order - (j - i), j : j + rows] += a * stencil[j]
        k = np.arange(count)
        self.strengths = (2 * np.sin(np.pi * k / (2 * count))) ** (2 * order)

    def of(self, plane: Array) -> Callable[[float], tuple[float, float]]:
        """Return the function from a weight to the squared residual and the trace, of one plane."""
        from scipy.linalg import solveh_banded

        lines = plane.T

        def measured(weight: float) -> tuple[float, float]:
            weight = weight / self.step ** (2 * self.order)
            bands = weight * self.bands
            bands[-1] += 1.0
            removed = lines - solveh_banded(bands, lines)
            # The trace of first differences is exact in cosines. Second differences leave straight
            # lines free instead of reflecting them, which adds at most a half.
            trace = float(np.sum(1 / (1 + weight * self.strengths)))
            return float(np.sum(removed * removed)), trace + 0.5 * (self.order - 1)

        return measured


class _OnLine:
    """A long uneven line smoothed by splines, solved as a band; the trace is by random signs."""

    def __init__(self, x: Array, order: int, tension: float) -> None:
        frame = sample_frame(x)
        (embedder,) = tension_encoding([x], [frame], tension, thinned=True).embedders
        assert isinstance(embedder, BSpline)
        self.line, self.order = LongLine(embedder, x, frame), order
        signs = np.random.default_rng(SEED).integers(0, 2, (len(x) // 2, PROBES)) * 2.0 - 1.0
        # symmetric, so that a flipped line has the same trace
        middle = np.ones((len(x) % 2, PROBES))
        self.signs = np.concatenate([signs, middle, signs[::-1]])

    def of(self, plane: Array) -> Callable[[float], tuple[float, float]]:
        """Return the function from a weight to the squared residual and the trace, of one plane."""
        columns = np.concatenate([plane.T, self.signs], axis=1)
        count = len(plane)

        def measured(weight: float) -> tuple[float, float]:
            own = (weight, 0.0) if self.order == 1 else (0.0, weight)
            try:
                kept = self.line.values(self.line.weights(columns, own))
            except np.linalg.LinAlgError:  # the penalty is too strong for float64
                return math.inf, float(len(columns))
            removed = columns[:, :count] - kept[:, :count]
            trace = float(np.sum(self.signs * kept[:, count:])) / PROBES
            return float(np.sum(removed * removed)), trace

        return measured


def _of_order(
    planes: Array,
    axes: Sequence[Array],
    rotation: Array,
    sigmas: Array | None,
    order: int,
    settings: SmoothingSettings,
) -> Smoothing:
    counts = planes.shape[2:]  # planes: (C, windows, N...)
    units = cell_units(axes)
    axes = [axis / unit for axis, unit in zip(axes, units, strict=True)]
    tension = settings.tensions[order - 1]
    frames = [sample_frame(axis) for axis in axes]
    cells = [(frame.high - frame.low) / len(axis) for frame, axis in zip(frames, axes, strict=True)]
    # weights are in units of the mean cell; cells of uneven axes may differ
    mean = math.prod(cell ** (1 / len(cells)) for cell in cells)
    scale = mean ** (2 * order)
    weakest = settings.weakest + 2 * order * math.log10(min(cells) / mean)
    # the strongest one halves a wave of twice the length of the longest axis
    strongest = 2 * order * math.log10(2 * max(counts) / math.pi * max(cells) / mean)
    judge: _InBasis | _ByDifferences | _OnLine
    if len(counts) == 1 and counts[0] > settings.longest_basis and not is_even(axes[0]):
        judge, strongest = _OnLine(axes[0], order, tension), min(strongest, STRONGEST_BAND)
    elif len(counts) == 1 and counts[0] > settings.longest_basis:
        judge, strongest = (
            _ByDifferences(counts[0], cells[0], order),
            min(strongest, STRONGEST_BAND),
        )
    else:
        judge = _InBasis(axes, order, tension)
    size, windows = math.prod(counts), planes.shape[1]
    weights, scores, plain = [], [], []
    for c, plane in enumerate(planes):
        measured = judge.of(plane)

        def score(
            exponent: float,
            measured: Callable[[float], tuple[float, float]] = measured,
            c: int = c,
        ) -> float:
            residual, trace = measured(scale * 10.0**exponent)
            if sigmas is None:
                left = size - trace
                return math.inf if left <= 1e-9 * size else size * residual / windows / left**2
            # E |u - truth|^2 / n = |y - u|^2 / n + 2 sigma^2 trace / n - sigma^2
            mean = residual / (size * windows)
            return mean + 2 * sigmas[c] ** 2 * trace / size - sigmas[c] ** 2

        best = minimise(score, weakest, strongest)
        weights.append(scale * 10.0**best)
        scores.append(score(best))
        plain.append(score(weakest))
    leading = int(np.argmax(np.var(planes.reshape(len(planes), -1), axis=1)))
    lowest, interpolation = (_joined(each, planes, sigmas) for each in (scores, plain))
    known = None if sigmas is None else tuple(map(float, sigmas))
    return Smoothing(
        rotation=rotation,
        order=order,
        tension=tension,
        weights=tuple(weights),
        score=lowest,
        interpolation=interpolation,
        leading=leading,
        units=units,
        sigmas=known,
    )


def _joined(scores: Sequence[float], planes: Array, sigmas: Array | None) -> float:
    """Return one score of all channels, which does not depend on the unit of a channel."""
    found = np.array(scores)
    if sigmas is None:
        flat = planes.reshape(len(planes), -1)
        largest = np.abs(flat).max(axis=1)
        logarithms = np.log(np.maximum(found, (ROUNDING * largest) ** 2 + TINY))
        # a constant channel says nothing: its scores are rounding
        varies = np.ptp(flat, axis=1) > ROUNDING * largest
        return math.exp(float(np.mean(logarithms[varies] if varies.any() else logarithms)))
    # a channel without noise is not smoothed by either order
    variances = sigmas**2
    return float(
        np.mean(np.divide(found, variances, out=np.zeros_like(found), where=variances > 0))
    )


def best_ridge(
    solver: GridSolver, values: Array, settings: SmoothingSettings
) -> tuple[float, list[Candidate]]:
    """Return the ridge that minimises generalised cross-validation, and every ridge tried.

    It is 0 if the score falls towards the weakest ridge.
    """
    values = np.asarray(values, dtype=np.float64)
    scaled = values / (float(np.abs(values).max()) or 1.0)
    energy = np.sum(solver.coefficients(scaled) ** 2, axis=0)
    total = float(np.sum(np.square(scaled)))
    strengths = solver.strengths()
    strongest = math.prod(float(basis.strength.max()) for basis in solver.bases) ** 2

    def score(exponent: float) -> float:
        kept = solver.filter_of(strengths, strongest * 10.0**exponent)
        return gcv_score(energy, total, kept, values)

    low, high = settings.ridge_decades
    exponents = np.arange(low, high + RIDGE_STEP / 2, RIDGE_STEP)
    scores = np.array(in_threads(score, exponents.tolist()))
    # Features that do not overlap at the samples give every ridge the same score: choose the least.
    best = int(np.argmax(scores <= scores.min() * (1 + EVEN)))
    candidates = [
        Candidate("ridge", {"ridge": strongest * 10.0**e}, float(one), chosen=i == best)
        for i, (e, one) in enumerate(zip(exponents.tolist(), scores, strict=True))
    ]
    return (0.0 if best == 0 else strongest * 10.0 ** float(exponents[best])), candidates


def minimise(score: Callable[[float], float], low: float, high: float) -> float:
    """Return the exponent with the least score, on a grid that is refined around the best."""
    step = 0.5
    grid = np.append(np.arange(low, high, step), high)
    best = float(grid[int(np.argmin(in_threads(score, grid.tolist())))])
    for _ in range(4):
        step /= 2
        around = (max(best - step, low), best, min(best + step, high))
        best = min(around, key=score)
    return best
