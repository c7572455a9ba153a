"""Find white noise in samples on a grid, and measure its standard deviation.

White noise is as strong at twice the spacing as at the given one; signals and textures are stronger
there. The test compares normalised differences of the samples with the same differences after
averaging pairs of samples along every axis (Donoho and Johnstone, 1994, estimate the noise of a
signal from its finest wavelet coefficients; here two further scales tell noise from texture).
Samples are used in the order of their indices: uneven axes are treated as if they were even.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from kronfield._core.arrays import Array, describe, problem


@dataclass(frozen=True)
class NoiseSettings:
    """The numbers that decide whether samples are noisy.

    All were set on centre crops of kodim01 to 08 (in colour, in grey, at a half and a quarter of
    their size, after JPEG compression, demosaicing and a gamma of 2.2, with and without noise) and
    on random fields with power-law spectra. ``benchmarks/tuning/noise.py`` measures them on other
    data.

    Attributes
    ----------
    ratio : float
        Noise is found if the differences at the given spacing are, with confidence, at least this
        times as strong as those at twice the spacing. White noise has 1, a random field with power
        1/f has 0.75, and 1/f² has 0.55. Lower confidence bounds reached 0.76 without noise; with
        noise of 0.02 they were 0.91 and more in colour, with 0.1 they were 0.79 and more in grey.
    confidence : float
        Standard errors between an estimated ratio and its confidence bound: 1.645 for 95 %.
    flat : float
        The part of the samples where the signal changes least, which is judged on its own. In a
        textured grey picture the noise is visible only there: with 0.1, ratios of noisy grey
        pictures rose from 0.58 to 0.75 and more, those of clean pictures stayed below 0.76.
    kept, quiet : float
        Strengths are root mean squares of the smallest ``kept`` part of the differences, which
        leaves out edges. Those of the ``quiet`` part must agree within ``ratio``: noise is
        everywhere, the lines of a drawing are not.
    growth : float
        The power of a signal at twice the spacing over that at the given spacing, which is used to
        subtract its share from the standard deviation of the noise. 4 belongs to power 1/f², and
        lowers the mean error on grey pictures from 5.7 % to 3.1 %.
    least_steps : float
        Noise below this many steps of quantised values is not looked for, because it cannot be told
        from rounding. Rounding has 0.29 steps, clean colour planes of 8-bit pictures had up to
        0.93, noise of 0.01 of the range has 2.6.
    least_part : float
        Noise below this part of the largest deviation from the mean is taken for rounding.
    shortest : int
        Axes with fewer samples take no part in the differences.
    most_samples : int
        Samples per channel in the central part that is examined.
    """

    ratio: float = 0.77
    confidence: float = 1.645
    flat: float = 0.1
    kept: float = 0.8
    quiet: float = 0.5
    growth: float = 4.0
    least_steps: float = 1.5
    least_part: float = 1e-5
    shortest: int = 8
    most_samples: int = 1 << 16


# Spacings at which differences are compared, as powers of two: 1, 2 and 4 samples.
LEVELS = 3
# The change of the signal around a sample is the difference between means of WINDOW samples whose
# centres lie REACH samples before and after it, along each axis.
WINDOW, REACH = 5, 3
# Values that deviate from their mean by less than this part are constant but for rounding.
CONSTANT = 1e-14
# More channels than this share the samples of this many.
MANY_CHANNELS = 4
TINY = float(np.finfo(np.float64).tiny)
# Constant parts are left out if more than this part of the finest differences is zero.
FEW_ZEROS = 0.05


@dataclass(frozen=True)
class Noise:
    """Whether samples are noisy, and how strong the noise is.

    Attributes
    ----------
    sigma : array (C,)
        Standard deviation of the noise in each channel, in the units of the values. If no noise
        was found: the strength of the finest differences, which noise cannot exceed by much.
    sigmas : array (C,)
        The same for the rotated planes ``rotation @ channels``.
    rotation : array (C, C)
        The rotation of `decorrelated`.
    ratio : float
        Strength of the differences at the given spacing, divided by that at twice the spacing, in
        the plane and in the part of the samples that decided.
    is_found : bool
        Whether the samples are noisy.
    reason : str
        The decision in words, with its numbers.
    """

    sigma: Array
    sigmas: Array
    rotation: Array
    ratio: float
    is_found: bool
    reason: str


DEFAULTS = NoiseSettings()


def decorrelated(planes: Array, settings: NoiseSettings = DEFAULTS) -> tuple[Array, Array]:
    """Return a rotation (C, C) of the channels, and the rotated planes.

    The rows of the rotation are the eigenvectors of the covariance of the channels' finest
    differences, the weakest first. Edges and textures are alike in the channels of a picture, so
    they gather in the last plane, and the first ones show the noise. The covariance of the values
    themselves separates less: in pictures with noise of 0.02, ratios of 0.94 and more became 0.84.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.noise import decorrelated
    >>> texture = np.random.default_rng(0).standard_normal((32, 32))
    >>> rotation, planes = decorrelated(np.stack([texture, texture, texture]))
    >>> np.round(np.abs(rotation[2]), 3)  # all channels are alike
    array([0.577, 0.577, 0.577])
    >>> bool(np.abs(planes[:2]).max() < 1e-12)
    True
    """
    planes = np.asarray(planes)
    crop, _ = _prepared(planes, settings)
    rotation = _rotation(_finest(crop, _axes(crop, settings)))
    return rotation, np.tensordot(rotation.astype(np.result_type(planes, np.float32)), planes, 1)


def find_noise(planes: Array, settings: NoiseSettings = DEFAULTS) -> Noise:
    """Return whether planar values (C, N_1, ..., N_D) are noisy, and how strong the noise is.

    Channels are rotated by `decorrelated`, and the weakest plane decides. It is examined as a
    whole, and in the part where its signal changes least. Noise is found if in either of them

    - the finest differences are as strong as those at twice (or four times) the spacing: a
      confidence bound from the number of samples must exceed ``settings.ratio`` for each doubling;
    - they are not clearly stronger, as waves of two or three samples would be;
    - they are everywhere, not only at some lines or edges;
    - they exceed rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.noise import find_noise
    >>> wave = np.sin(np.linspace(0, 9, 400))[None]
    >>> find_noise(wave).is_found
    False
    >>> noise = find_noise(wave + 0.1 * np.random.default_rng(0).standard_normal(wave.shape))
    >>> noise.is_found, noise.sigma.round(2)
    (True, array([0.1]))
    """
    planes = np.asarray(planes)
    C = len(planes)
    crop, unit = _prepared(planes, settings)
    axes = _axes(crop, settings)
    if unit == 0.0:
        return _nothing(C, "no noise: the values are constant")
    if not axes:
        return _nothing(C, f"no noise looked for: no axis has {settings.shortest} samples")
    bands = _Bands(crop, axes, settings)
    strengths = np.array([bands.strength(k) for k in range(C)])
    steps = np.sqrt(bands.rotation**2 @ np.array([_step(plane) for plane in crop]) ** 2)
    floors = np.maximum(settings.least_steps * steps, settings.least_part)
    # rounding to a step has a standard deviation of step / √12
    empty = np.maximum(steps / (settings.ratio * math.sqrt(12)), settings.least_part)
    judged = _weakest(strengths, strengths > empty, bands.count(1), settings)
    if judged:
        verdict = _verdict(bands, judged, float(floors[judged].max()), settings)
        sigmas = _sigmas(bands, strengths, floors, judged, verdict, settings)
    else:
        k = int(np.argmax(strengths / floors))
        verdict, sigmas = _judge(bands.whole([k]), float(floors[k]), settings), strengths
    sigmas = sigmas * unit
    sigma = np.sqrt(bands.rotation.T**2 @ sigmas**2)
    reason = verdict.reason(unit, settings)
    return Noise(sigma, sigmas, bands.rotation, verdict.part.ratio, verdict.is_found, reason)


def _nothing(C: int, reason: str) -> Noise:
    return Noise(np.zeros(C), np.zeros(C), np.eye(C), 0.0, False, reason)


def _weakest(strengths: Array, telling: Array, count: float, settings: NoiseSettings) -> list[int]:
    """Return the weakest plane, with the planes that differ from it only by chance.

    Only ``telling`` planes count: the others are rounding, as is the second of two equal channels.
    """
    found = [int(k) for k in np.flatnonzero(telling)]
    if not found:
        return []
    # eigenvalues of C channels of noise spread by (1 ± √(C/n))² (Marchenko and Pastur, 1967)
    spread = math.sqrt(len(strengths) / count) if count > 0 else math.inf
    if len(strengths) == 1 or spread >= 1:
        return found
    error = settings.confidence * math.sqrt(_trimmed(settings.kept)[1] / count)
    most = float(strengths[found].min()) * (1 + spread) / (1 - spread) * math.exp(error)
    return [k for k in found if strengths[k] <= most]


def _sigmas(
    bands: _Bands,
    strengths: Array,
    floors: Array,
    judged: list[int],
    verdict: _Verdict,
    settings: NoiseSettings,
) -> Array:
    """Return the standard deviation of the noise in each rotated plane.

    It is that of the judged planes, unless a plane has clearly more noise of its own.
    """
    if not verdict.is_found:
        return strengths
    sigma = verdict.part.sigma(settings)
    sigmas = np.minimum(strengths, sigma)
    sigmas[judged] = sigma
    for k in np.flatnonzero(settings.ratio * strengths > sigma):
        own = _judge(bands.whole([int(k)]), float(floors[k]), settings)
        if own.is_found and settings.ratio * own.part.sigma(settings) > sigma:
            sigmas[k] = own.part.sigma(settings)
    return sigmas


# Preparation


def _prepared(planes: Array, settings: NoiseSettings) -> tuple[Array, float]:
    """Return the central part of the planes with mean 0 and largest value 1, and its unit."""
    if planes.ndim < 2 or not len(planes) or planes.dtype.kind not in "fiu":
        raise problem(
            "planes",
            describe(planes),
            "real numbers of shape (C, N_1, ..., N_D) with at least one channel and one axis",
            "Put the channels first: values[None] for one channel.",
        )
    samples = settings.most_samples * MANY_CHANNELS // max(len(planes), MANY_CHANNELS)
    crop = planes[(slice(None), *_centre(planes.shape[1:], samples))]
    if not crop.size:
        return crop.astype(np.float32), 0.0
    crop = crop.astype(np.float64)
    size = float(max(crop.max(), -crop.min()))
    if not math.isfinite(size):
        raise problem("planes", "NaN or inf", "finite numbers", "Fill the gaps first.")
    if size == 0.0:
        return crop.astype(np.float32), 0.0
    crop /= size  # first of all, so that no sum overflows
    crop -= crop.mean(axis=tuple(range(1, crop.ndim)), keepdims=True)
    largest = float(max(crop.max(), -crop.min()))
    if largest <= CONSTANT:
        return np.zeros(crop.shape, dtype=np.float32), 0.0
    return (crop / largest).astype(np.float32), size * largest


def _centre(lengths: Sequence[int], most: int) -> tuple[slice, ...]:
    """Return slices of the central part with about ``most`` samples, as cubic as possible.

    The same number of samples is left out at both ends, so that a flipped grid has the same part.
    """
    side, budget = math.inf, float(most)
    for left, n in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        side = budget ** (1 / left)
        if n > side:
            break
        budget /= max(n, 1)
    cuts = [math.ceil((n - side) / 2) if n > side else 0 for n in lengths]
    return tuple(slice(cut, n - cut) for cut, n in zip(cuts, lengths, strict=True))


def _axes(crop: Array, settings: NoiseSettings) -> list[int]:
    """Return the axes that are long enough for differences at twice the spacing."""
    return [axis for axis in range(1, crop.ndim) if crop.shape[axis] >= settings.shortest]


def _finest(crop: Array, axes: list[int]) -> Array:
    return _differences(crop, axes, _order(axes), 1) if axes else np.zeros((len(crop), 1))


def _rotation(differences: Array) -> Array:
    """Return the eigenvectors of the covariance of channels (C, ...) as rows, the least first."""
    rows = differences.reshape(len(differences), -1).astype(np.float64)
    if len(rows) == 1 or not rows.any():
        return np.eye(len(rows))
    rotation = np.linalg.eigh(rows @ rows.T)[1].T
    # the sign of an eigenvector is arbitrary: make its largest component positive
    signs = np.sign(np.take_along_axis(rotation, np.abs(rotation).argmax(axis=1)[:, None], axis=1))
    return signs * rotation


def _step(plane: Array) -> float:
    """Return the step of quantised values, and next to nothing for others.

    Where most values occur more than once, it is the median gap between different values, else the
    least.
    """
    values = np.sort(plane, axis=None)
    gaps = np.diff(values)
    gaps = gaps[gaps > 0]
    if not gaps.size:
        return 0.0
    return float(np.median(gaps) if 2 * (gaps.size + 1) < values.size else gaps.min())


# Differences at several spacings


def _order(axes: Sequence[int]) -> int:
    """Return the order of the differences along each axis.

    Third differences remove the slow waves of a line. Along several axes second differences are
    enough, since a mixed difference removes more.
    """
    return 3 if len(axes) == 1 else 2


def _part(values: Array, axis: int, start: int, count: int) -> Array:
    return values[(slice(None),) * axis + (slice(start, start + count),)]


def _differences(planes: Array, axes: Sequence[int], order: int, level: int) -> Array:
    """Return differences along all ``axes`` at a spacing of 2^(level - 1) samples, at every offset.

    Samples are averaged over the spacing first. The scale is such that white noise keeps its
    standard deviation.
    """
    # along each axis: (1 - z^s)^m ∏_{k < level - 1} (1 + z^(2^k)) / √(s (2m choose m)), s = spacing
    spacing, scale = 2 ** (level - 1), 1.0
    for axis in axes:
        for k in range(level - 1):
            n = planes.shape[axis] - 2**k
            planes = _part(planes, axis, 0, n) + _part(planes, axis, 2**k, n)
        for _ in range(order):
            n = planes.shape[axis] - spacing
            planes = _part(planes, axis, spacing, n) - _part(planes, axis, 0, n)
        scale *= math.sqrt(spacing * math.comb(2 * order, order))
    return planes / planes.dtype.type(scale)


def _support(order: int, level: int) -> int:
    """Return the number of samples of an axis in one difference."""
    return (order + 1) * 2 ** (level - 1)


@functools.cache
def _repetition(order: int, level: int) -> float:
    """Return the number of overlapping differences that are worth one independent number.

    The mean square of n differences with autocorrelation r varies as that of n / sum(r²)
    independent ones.
    """
    impulse = np.zeros((1, 2 * _support(order, level) - 1))
    impulse[0, _support(order, level) - 1] = 1.0
    response = _differences(impulse, [1], order, level)[0]
    r = np.correlate(response, response, "full")
    return float(np.sum((r / r.max()) ** 2))


@functools.cache
def _trimmed(kept: float) -> tuple[float, float]:
    """Return the mean of the smallest part of squared normal numbers, and what trimming costs.

    The cost is the number of differences needed for the accuracy of one without trimming, for the
    logarithm of the standard deviation.
    """
    c = NormalDist().inv_cdf((1 + kept) / 2)
    density = NormalDist().pdf(c)
    # E[x²; |x| < c], E[x⁴; |x| < c], and the variance of min(x², c²)
    second = kept - 2 * c * density
    fourth = 3 * second - 2 * c**3 * density
    variance = fourth + (1 - kept) * c**4 - (second + (1 - kept) * c**2) ** 2
    return second / kept, variance / (2 * second**2)


def _strength(differences: Array, kept: float) -> float:
    """Return the standard deviation of normal differences, from the smallest part of them."""
    count = max(1, round(kept * differences.size))
    smallest = np.partition(np.square(differences), count - 1)[:count]
    return math.sqrt(float(smallest.mean(dtype=np.float64)) / _trimmed(kept)[0])


class _Bands:
    """The rotated planes, their differences at all spacings that fit, and where they change."""

    def __init__(self, crop: Array, axes: list[int], settings: NoiseSettings) -> None:
        self.axes, self.order, self.settings = axes, _order(axes), settings
        finest = _finest(crop, axes)
        self.rotation = _rotation(finest)
        self.planes, self.finest = self._rotated(crop), self._rotated(finest)
        shortest = min(crop.shape[axis] for axis in axes)
        self.levels = [n for n in range(1, LEVELS + 1) if shortest >= _support(self.order, n)]
        zeros = 1 - np.mean(finest.any(axis=0))
        self.changing = _changing(crop, axes) if zeros > FEW_ZEROS else None

    def _rotated(self, planes: Array) -> Array:
        if len(planes) == 1:
            return planes
        return np.tensordot(self.rotation.astype(np.float32), planes, 1)

    def count(self, level: int, size: int | None = None) -> float:
        """Return how many independent numbers the differences of one plane are worth."""
        size = self.finest[0].size if size is None else size
        return size / _repetition(self.order, level) ** len(self.axes)

    def strength(self, k: int) -> float:
        """Return the strength of the finest differences of one plane."""
        finest = self._selected(self.finest[k], 1, self.changing, 0)
        return _strength(finest, self.settings.kept) if finest.size else 0.0

    def whole(self, judged: Sequence[int]) -> _Part:
        """Return the strengths of some planes together, wherever they change."""
        return self._measured(
            [self._selected(self._differences(k, n), n, self.changing, 0) for k in judged]
            for n in self.levels
        )

    def flat(self, judged: Sequence[int]) -> _Part | None:
        """Return the strengths where each plane changes least, if there are enough samples."""
        masks = [self._flattest(k) for k in judged]
        found = [(k, mask) for k, mask in zip(judged, masks, strict=True) if mask is not None]
        if not found:
            return None
        return self._measured(
            [
                self._selected(self._differences(k, n), n, mask, WINDOW // 2 + REACH)
                for k, mask in found
            ]
            for n in self.levels
        )

    def _differences(self, k: int, level: int) -> Array:
        if level == 1:
            return self.finest[k]
        axes = [axis - 1 for axis in self.axes]
        return _differences(self.planes[k], axes, self.order, level)

    def _selected(self, values: Array, level: int, mask: Array | None, margin: int) -> Array:
        """Return the differences whose centre is in the mask.

        The mask lacks ``margin`` samples at each end of the axes.
        """
        if mask is None:
            return values.ravel()
        chosen = [slice(None)] * values.ndim
        support = _support(self.order, level)
        for axis in (axis - 1 for axis in self.axes):
            n = mask.shape[axis]
            if support % 2 == 0:  # the centre lies between two samples: both must be in the mask
                mask = _part(mask, axis, 0, n - 1) & _part(mask, axis, 1, n - 1)
            # index of the difference that is centred on the first sample of the mask
            first = margin - (support - 1) // 2
            outside = max(0, -first)
            mask = _part(mask, axis, outside, max(0, mask.shape[axis] - 2 * outside))
            chosen[axis] = slice(first + outside, first + outside + mask.shape[axis])
        return values[tuple(chosen)][mask]

    def _flattest(self, k: int) -> Array | None:
        """Return a mask of the part of the samples around which a plane changes least."""
        margin = WINDOW // 2 + REACH
        means, axes = self.planes[k], [axis - 1 for axis in self.axes]
        if min(means.shape[axis] for axis in axes) <= 2 * margin:
            return None
        for axis in axes:
            n = means.shape[axis] - WINDOW + 1
            means = sum(_part(means, axis, i, n) for i in range(WINDOW))
        change = 0.0
        for axis in axes:
            part = means
            for other in axes:
                n = part.shape[other] - 2 * REACH
                if other == axis:
                    part = _part(part, axis, 2 * REACH, n) - _part(part, axis, 0, n)
                else:
                    part = _part(part, other, REACH, n)
            change = change + np.square(part)
        inside = tuple(
            slice(margin, n - margin) if axis in axes else slice(None)
            for axis, n in enumerate(self.planes[k].shape)
        )
        changing = None if self.changing is None else self.changing[inside]
        candidates = change.ravel() if changing is None else change[changing]
        if not candidates.size:
            return None
        place = math.ceil(self.settings.flat * candidates.size) - 1
        mask = change <= np.partition(candidates, place)[place]
        return mask if changing is None else mask & changing

    def _measured(self, bands: Iterable[list[Array]]) -> _Part:
        strengths, counts, quiet = [], [], 0.0
        for level, arrays in zip(self.levels, bands, strict=True):
            values = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            if not values.size:
                break
            strengths.append(_strength(values, self.settings.kept))
            counts.append(self.count(level, values.size))
            if level == 1:
                quiet = _strength(values, self.settings.quiet)
        return _Part(tuple(strengths), tuple(counts), quiet)


def _changing(crop: Array, axes: Sequence[int]) -> Array:
    """Return a mask of samples that have a change of some channel within two samples."""
    found = np.zeros(crop.shape[1:], dtype=bool)
    for axis in (axis - 1 for axis in axes):
        n = found.shape[axis] - 1
        change = (_part(crop, axis + 1, 0, n) != _part(crop, axis + 1, 1, n)).any(axis=0)
        _part(found, axis, 0, n)[...] |= change
        _part(found, axis, 1, n)[...] |= change
    for axis in (axis - 1 for axis in axes):
        n, before = found.shape[axis] - 1, found.copy()
        _part(found, axis, 0, n)[...] |= _part(before, axis, 1, n)
        _part(found, axis, 1, n)[...] |= _part(before, axis, 0, n)
    return found


# The decision


@dataclass(frozen=True)
class _Part:
    """Strengths of the differences at rising spacings in a part of the samples.

    ``counts`` are the independent numbers behind them, ``quiet`` is the finest strength from the
    smallest differences only.
    """

    strengths: tuple[float, ...]
    counts: tuple[float, ...]
    quiet: float

    @property
    def ratio(self) -> float:
        """The strength at the given spacing over that at twice the spacing."""
        return self.strengths[0] / max(self.strengths[1], TINY) if len(self.strengths) > 1 else 0.0

    def bounds(self, settings: NoiseSettings) -> list[float]:
        """Return lower bounds of the finest strength over that at twice, four times the spacing."""
        # var log s = cost / 2n for a strength s from n independent numbers
        cost, found = _trimmed(settings.kept)[1] / 2, []
        for s, n in zip(self.strengths[1:], self.counts[1:], strict=True):
            error = settings.confidence * math.sqrt(cost * (1 / self.counts[0] + 1 / n))
            found.append(self.strengths[0] / max(s, TINY) * math.exp(-error))
        return found

    def sigma(self, settings: NoiseSettings) -> float:
        """Return the standard deviation of the noise, less the share of a signal."""
        # s_1² = σ² + v and s_2² = σ² + g v for a signal whose power grows by g
        if self.ratio == 0.0:
            return 0.0
        share = max(0.0, self.ratio**-2 - 1) / (settings.growth - 1)
        return self.strengths[0] * math.sqrt(max(0.0, 1 - share))


@dataclass(frozen=True)
class _Verdict:
    """The decision on a part of the samples, and what speaks against noise."""

    part: _Part
    objection: str
    where: str = ""

    @property
    def is_found(self) -> bool:
        """Whether nothing speaks against noise."""
        return not self.objection

    def reason(self, unit: float, settings: NoiseSettings) -> str:
        """Return the decision in words; ``unit`` is the value that a strength of 1 stands for."""
        if not self.is_found:
            return f"no noise: {self.objection}"
        return (
            f"noise of standard deviation {unit * self.part.sigma(settings):.3g}: {self.where}"
            f"the finest differences are {self.part.ratio:.2f} times as strong as those at twice "
            f"the spacing, of which {settings.ratio:g} are needed"
        )


def _verdict(
    bands: _Bands, judged: Sequence[int], floor: float, settings: NoiseSettings
) -> _Verdict:
    """Return the decision on some planes together, by all of their samples or by the flattest."""
    whole = _judge(bands.whole(judged), floor, settings)
    if whole.is_found:
        return whole
    part = bands.flat(judged)
    if part is None or not part.strengths:
        return whole
    where = f"in the {settings.flat:.0%} of the samples where the signal changes least, "
    flat = replace(_judge(part, floor, settings), where=where)
    everywhere = part.strengths[0] >= settings.ratio * whole.part.strengths[0]
    return flat if flat.is_found and everywhere else whole


def _judge(part: _Part, floor: float, settings: NoiseSettings) -> _Verdict:
    """Return the decision on one part of the samples."""
    bounds = part.bounds(settings)
    bound = max((low ** (1 / j) for j, low in enumerate(bounds, start=1)), default=0.0)
    times = (
        f"the finest differences are {part.ratio:.2f} times as strong as those at twice the spacing"
    )
    if not part.strengths or part.strengths[0] <= floor:
        objection = "the finest differences are no larger than rounding"
    elif not bounds:
        objection = "there are too few samples to compare two spacings"
    elif max(bounds) > 1 / settings.ratio:
        objection = "the finest differences are clearly stronger than those at larger spacings"
    elif part.quiet < settings.ratio * part.strengths[0]:
        objection = "the finest differences are large in some places only"
    elif part.ratio < settings.ratio:
        objection = f"{times}, and {settings.ratio:g} are needed"
    elif bound < settings.ratio:
        sure = NormalDist().cdf(settings.confidence)
        objection = f"{times}, but with {sure:.0%} confidence only {bound:.2f} for each doubling"
    else:
        objection = ""
    return _Verdict(part, objection)
