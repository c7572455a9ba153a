"""Find white noise in samples on a grid, and measure its standard deviation.

White noise is as strong at twice the spacing as at the given spacing; signals and textures are
stronger there. So differences of the samples are compared with differences of their local means, at
twice and four times the spacing. Strengths are measured robustly, as Donoho and Johnstone (1994) do
with the finest wavelet coefficients. Along uneven axes, divided differences are used, each divided
by the norm of its own weights: white noise has the same strength in all of them, however far apart
samples are. A signal is weaker in differences of close samples than in those of distant ones.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.frames import centre, is_even, mean_step
from kronfield._core.records import record
from kronfield.fitting.settings import DEFAULT, NoiseSettings

# Spacings at which differences are compared, as powers of two: 1, 2 and 4 samples.
LEVELS = 3
# The step of the exponents of smoothing weights and power laws that are compared.
WEIGHT_STEP = 0.25
# Values whose deviation from their mean is at most this fraction of the largest are constant but
# for rounding.
CONSTANT = 1e-14
TINY = float(np.finfo(np.float64).tiny)
# Smoothing of uneven lines raises smaller gaps to this fraction of the mean gap: the eigenvalues of
# the roughness grow with the inverse cube of a gap, and the small ones must exceed rounding.
CLOSEST = 0.05
# At most this many rows of differences of an uneven axis are used to count independent numbers.
COUNTED = 4096


@record
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
    is_given : bool
        Whether the caller gave it: it is then independent in channels, not in rotated planes.
    """

    sigma: Array
    sigmas: Array
    rotation: Array
    ratio: float
    is_found: bool
    reason: str
    is_given: bool = False

    def correlation(self, units: Array) -> Array:
        """Return the covariance (C, C) of the noise in channels that are divided by ``units``."""
        if self.is_given:
            return np.diag((self.sigma / units) ** 2)
        mixed = self.sigmas[:, None] * (self.rotation / units)
        return mixed.T @ mixed


def decorrelated(planes: Array, settings: NoiseSettings = DEFAULT.noise) -> tuple[Array, Array]:
    """Return a rotation (C, C) of the channels, and the rotated planes.

    The rows of the rotation are the eigenvectors of the covariance of the channels' finest
    differences, the weakest first. Edges and textures are similar in the channels of a picture, so
    they gather in the last plane, and the first planes show the noise. The covariance of the values
    themselves separates less: in pictures with noise of 0.02, ratios of 0.94 and more became 0.84.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.noise import decorrelated
    >>> texture = np.random.default_rng(0).standard_normal((32, 32))
    >>> rotation, planes = decorrelated(np.stack([texture, texture, texture]))
    >>> np.round(np.abs(rotation[2]), 3)  # all channels are equal
    array([0.577, 0.577, 0.577])
    >>> bool(np.abs(planes[:2]).max() < 1e-12)
    True
    """
    planes = np.asarray(planes)
    crop, _ = _prepared(planes, settings)
    rotation = _rotation(_finest(crop, _axes(crop, settings)), _axes(crop, settings))
    return rotation, np.tensordot(rotation.astype(np.result_type(planes, np.float32)), planes, 1)


def find_noise(
    planes: Array,
    settings: NoiseSettings = DEFAULT.noise,
    known: Array | None = None,
    positions: Sequence[Array] | None = None,
) -> Noise:
    """Return whether planar values (C, N_1, ..., N_D) are noisy, and how strong the noise is.

    With ``known``, an array of bool (N_1, ..., N_D), only differences of known samples count.
    ``positions`` are the rising positions of the samples on each axis, even ones by default.

    Channels whose sizes differ by more than a factor of ``settings.unlike`` are in different units:
    they are examined separately. Others are rotated by `decorrelated`, and the weakest plane
    decides. It is examined as a whole, and in the part where its signal changes least. Noise is
    found if in either of them

    - the finest differences are as strong as those at twice (or four times) the spacing: a
      confidence bound from the number of samples must exceed ``settings.ratio`` for each doubling;
    - they are not clearly stronger, as waves of two or three samples would be;
    - they occur everywhere, not only at some lines or edges;
    - they exceed rounding.

    On uneven axes, differences of close samples are also compared with those of distant ones: see
    `_Near`. A short line has too few differences for a narrow bound. If the ratio exceeds its
    threshold without being certain, noise is also found if a smooth line with noise is clearly
    likelier than a rough line without: see `_SmoothLines`.

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
    if not hasattr(planes, "dtype"):  # others are read in parts
        planes = np.asarray(planes)
    C = len(planes)
    groups = _alike(planes, settings, known)
    if len(groups) > 1:
        found = [find_noise(planes[group], settings, known, positions) for group in groups]
        return _together(C, groups, found)
    crop, unit = _prepared(planes, settings, known)
    places = _uneven(planes, positions, settings)
    if known is not None:
        known = known[centre(known.shape, _most_samples(C, settings))]
    axes = _axes(crop, settings)
    if unit == 0.0:
        return no_noise(C, "no noise: the values are constant")
    if not axes:
        return no_noise(C, f"no noise looked for: no axis has {settings.shortest} samples")
    if known is not None:
        axes = _axes_of_known(known, axes, settings)
    bands = _Bands(crop, unit, axes, settings, known, places)
    strengths = np.array([bands.strength(k) for k in range(C)])
    steps = np.sqrt(bands.rotation**2 @ np.array([_step(plane) for plane in crop]) ** 2)
    floors = np.maximum(settings.least_steps * steps, settings.least_part)
    # rounding to a step has a standard deviation of step / √12
    empty = np.maximum(steps / (settings.ratio * math.sqrt(12)), settings.least_part)
    finest = bands.finest[0]
    count = bands.count(finest.size if known is None else int(np.isfinite(finest).sum()), 1)
    judged = _weakest(strengths, strengths > empty, count, settings)
    if judged:
        verdict = _verdict(bands, judged, float(floors[judged].max()))
        sigmas = _sigmas(bands, strengths, floors, judged, verdict)
    else:
        k = int(np.argmax(strengths / np.maximum(floors, TINY)))
        verdict, sigmas = _judge(bands, [k], bands.whole([k]), float(floors[k])), strengths
    sigma = np.sqrt(bands.rotation.T**2 @ sigmas**2)
    with np.errstate(over="ignore"):  # noise that exceeds the largest number is infinite
        sigma, sigmas = sigma * unit, sigmas * unit
    ratio, is_found = verdict.part.ratio, verdict.is_found
    return Noise(sigma, sigmas, bands.rotation, ratio, is_found, verdict.reason)


def no_noise(C: int, reason: str) -> Noise:
    """Return that C channels have no noise."""
    return Noise(np.zeros(C), np.zeros(C), np.eye(C), 0.0, False, reason)


def _alike(planes: Array, settings: NoiseSettings, known: Array | None = None) -> list[list[int]]:
    """Return the channels in groups of about the same largest deviation from the mean.

    Constant channels join the first group.
    """
    if planes.ndim < 2 or len(planes) < 2:
        return [list(range(len(planes)))]
    part = centre(planes.shape[1:], _most_samples(len(planes), settings))
    crop = planes[(slice(None), *part)].astype(np.float64).reshape(len(planes), -1)
    if known is not None:
        crop = crop.compress(known[part].ravel(), axis=1)
    if not crop.size:
        return [list(range(len(planes)))]
    # the halves of extremes do not overflow
    sizes = crop.max(axis=1) / 2 - crop.min(axis=1) / 2
    # a channel that varies by rounding alone is constant
    varies = sizes > CONSTANT * np.abs(crop).max(axis=1)
    order = sorted(np.flatnonzero(varies).tolist(), key=lambda k: float(sizes[k]))
    groups = [order[:1]]
    for last, k in itertools.pairwise(order):
        if sizes[k] / settings.unlike > sizes[last]:
            groups.append([])
        groups[-1].append(k)
    groups[0] += np.flatnonzero(~varies).tolist()
    return [sorted(group) for group in groups]


def _together(C: int, groups: Sequence[Sequence[int]], found: Sequence[Noise]) -> Noise:
    """Join the results of groups of channels. Beside noisy groups, others have no noise."""
    is_found = any(one.is_found for one in found)
    sigma, sigmas, rotation = np.zeros(C), np.zeros(C), np.zeros((C, C))
    for group, one in zip(groups, found, strict=True):
        kept = one.is_found or not is_found
        rotation[np.ix_(group, group)] = one.rotation
        sigma[group], sigmas[group] = (one.sigma, one.sigmas) if kept else (0.0, 0.0)
    first = next((one for one in found if one.is_found), found[0])
    return Noise(sigma, sigmas, rotation, first.ratio, is_found, first.reason)


def _weakest(strengths: Array, telling: Array, count: float, settings: NoiseSettings) -> list[int]:
    """Return the weakest plane, with the planes that differ from it only by chance.

    Only ``telling`` planes count: the others hold rounding errors, as does the difference of two
    equal channels.
    """
    found = [int(k) for k in np.flatnonzero(telling)]
    if not found:
        return []
    # eigenvalues of C channels of noise spread by (1 ± √(C/n))² (Marchenko and Pastur, 1967)
    spread = math.sqrt(len(strengths) / count) if count > 0 else math.inf
    if len(strengths) == 1 or spread >= 1:
        return found
    error = _log_variance(count / _trimmed(settings.kept)[1])
    error = settings.confidence * math.sqrt(2 * error)
    most = float(strengths[found].min()) * (1 + spread) / (1 - spread) * math.exp(error)
    return [k for k in found if strengths[k] <= most]


def _sigmas(
    bands: _Bands,
    strengths: Array,
    floors: Array,
    judged: list[int],
    verdict: _Verdict,
) -> Array:
    """Return the standard deviation of the noise in each rotated plane.

    It is that of the judged planes, unless a plane has clearly more noise of its own.
    """
    settings = bands.settings
    if not verdict.is_found:
        return strengths
    sigma = verdict.sigma
    # a plane within rounding has no noise
    sigmas = np.where(strengths > floors, np.minimum(strengths, sigma), 0.0)
    sigmas[judged] = sigma
    for k in np.flatnonzero(settings.ratio * strengths > sigma):
        own = _judge(bands, [int(k)], bands.whole([int(k)]), float(floors[k]))
        if own.is_found and settings.ratio * own.sigma > sigma:
            sigmas[k] = own.sigma
    return sigmas


# Preparation


def _most_samples(C: int, settings: NoiseSettings) -> int:
    return settings.most_samples * settings.whole_channels // max(C, settings.whole_channels)


def _prepared(
    planes: Array, settings: NoiseSettings, known: Array | None = None
) -> tuple[Array, float]:
    """Return the central part of the planes with mean 0 and largest value 1, and its unit.

    Samples that are not known become 0.
    """
    if planes.ndim < 2 or not len(planes) or planes.dtype.kind not in "fiub":
        raise problem(
            "planes",
            describe(planes),
            "real numbers of shape (C, N_1, ..., N_D) with at least one channel and one axis",
            "Put the channels first: values[None] for one channel.",
        )
    part = centre(planes.shape[1:], _most_samples(len(planes), settings))
    crop = planes[(slice(None), *part)]
    if not crop.size:
        return crop.astype(np.float32), 0.0
    crop = crop.astype(np.float64)
    if known is not None:
        seen = known[part]
        if not seen.any():
            return np.zeros(crop.shape, dtype=np.float32), 0.0
        # the mean of the known samples in place of the others changes neither mean nor extremes
        some = crop.reshape(len(crop), -1).compress(seen.ravel(), axis=1)
        means = some.mean(axis=1).reshape(-1, *[1] * (crop.ndim - 1))
        crop = np.where(seen, crop, means)
    size = float(max(crop.max(), -crop.min()))
    if not math.isfinite(size):
        raise problem("planes", "NaN or inf", "finite numbers", "Fill the gaps first.")
    if size == 0.0:
        return crop.astype(np.float32), 0.0
    crop /= size  # before anything else, so that no sum overflows
    crop -= crop.mean(axis=tuple(range(1, crop.ndim)), keepdims=True)
    largest = float(max(crop.max(), -crop.min()))
    if largest <= CONSTANT:
        return np.zeros(crop.shape, dtype=np.float32), 0.0
    return (crop / largest).astype(np.float32), size * largest


def _uneven(
    planes: Array, positions: Sequence[Array] | None, settings: NoiseSettings
) -> dict[int, Array]:
    """Return the positions of the central part on uneven axes, by the number of the axis."""
    if positions is None:
        return {}
    part = centre(planes.shape[1:], _most_samples(len(planes), settings))
    inside = [
        np.asarray(x, dtype=np.float64)[some] for x, some in zip(positions, part, strict=True)
    ]
    return {i: x for i, x in enumerate(inside, start=1) if len(x) > 1 and not is_even(x)}


def _axes(crop: Array, settings: NoiseSettings) -> list[int]:
    """Return the axes that are long enough for differences at twice the spacing."""
    return [axis for axis in range(1, crop.ndim) if crop.shape[axis] >= settings.shortest]


def _finest(
    crop: Array, axes: list[int], stencils: Sequence[_Stencil | None] | None = None
) -> Array:
    if not axes:
        return np.zeros((len(crop), 1))
    return _differences(crop, axes, _order(axes), 1, stencils)


def _rotation(differences: Array, axes: Sequence[int]) -> Array:
    """Return the eigenvectors of the covariance of channels (C, ...) as rows, the least first.

    With fewer independent differences than channels there is no rotation.
    """
    if len(differences) == 1:
        return np.eye(1)
    rows = differences.reshape(len(differences), -1).astype(np.float64)
    rows = rows[:, np.isfinite(rows[0])]
    if len(rows) >= _count(rows.shape[1], axes, 1) or not rows.any():
        return np.eye(len(rows))
    rotation = np.linalg.eigh(rows @ rows.T)[1].T
    # the sign of an eigenvector is arbitrary: make its largest component positive
    signs = np.sign(np.take_along_axis(rotation, np.abs(rotation).argmax(axis=1)[:, None], axis=1))
    return signs * rotation


def _step(plane: Array) -> float:
    """Return the step of quantised values; a very small number for others.

    Where most values occur more than once, it is the median gap between different values, else the
    smallest gap.
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


@record(eq=False)
class _Stencil:
    """Divided differences along an uneven axis at a spacing of ``spacing`` samples.

    Samples and positions are averaged over the spacing first.

    Attributes
    ----------
    rows : array (order + 1, n)
        The weights of every difference, with a sum of squares of 1.
    response : array (n,)
        The differences of x^order / order!, relative to the largest: the strength of a signal in
        them, relative to white noise.
    repetition : float
        The number of overlapping differences per independent number: see `_repetition`.
    """

    spacing: int
    rows: Array
    response: Array
    repetition: float

    @classmethod
    def of(cls, x: Array, order: int, level: int) -> _Stencil:
        spacing = 2 ** (level - 1)
        # without the minimum, gaps within rounding would cause divisions by zero
        gaps = np.diff(x) / (x[-1] - x[0])
        x = np.concatenate([[0.0], np.cumsum(np.maximum(gaps, np.finfo(np.float64).eps))])
        means = np.convolve(x, np.full(spacing, 1 / spacing), "valid")
        n = len(means) - order * spacing
        at = np.stack([means[j * spacing : j * spacing + n] for j in range(order + 1)])
        # f[x_0, ..., x_m] = sum_j f(x_j) / ∏_{k != j} (x_j - x_k)
        rows = np.ones_like(at)
        for j in range(order + 1):
            for k in range(order + 1):
                if k != j:
                    rows[j] /= at[j] - at[k]
        norms = np.sqrt(np.sum(rows**2, axis=0))
        rows /= norms
        return cls(spacing, rows, norms.min() / norms, _uneven_repetition(rows, spacing))

    def __call__(self, planes: Array, axis: int) -> Array:
        """Return the differences along an axis of samples that were summed over the spacing."""
        total, n = np.zeros(()), self.rows.shape[1]
        shape = [-1 if i == axis else 1 for i in range(planes.ndim)]
        for j, row in enumerate(self.rows):
            weights = row.astype(planes.dtype).reshape(shape)
            total = total + weights * _part(planes, axis, j * self.spacing, n)
        return total


def _uneven_repetition(rows: Array, spacing: int) -> float:
    """Return the sum of squared correlations of a difference with all others, in the mean."""
    rows = rows[:, centre([rows.shape[1]], COUNTED)[0]]
    full = np.repeat(rows, spacing, axis=0) / math.sqrt(spacing)  # (support, n)
    support, n = full.shape
    total = 1.0
    for lag in range(1, min(support, n)):
        products = np.einsum("st,st->t", full[lag:, : n - lag], full[: support - lag, lag:])
        total += 2 * float(products @ products) / n
    return total


def _differences(
    planes: Array,
    axes: Sequence[int],
    order: int,
    level: int,
    stencils: Sequence[_Stencil | None] | None = None,
) -> Array:
    """Return differences along all ``axes`` at a spacing of 2^(level - 1) samples, at every offset.

    Samples are averaged over the spacing first. The scale is such that white noise keeps its
    standard deviation. Uneven axes have a stencil.
    """
    # along each axis: (1 - z^s)^m ∏_{k < level - 1} (1 + z^(2^k)) / √(s (2m choose m)), s = spacing
    spacing, scale = 2 ** (level - 1), 1.0
    for axis, stencil in zip(axes, stencils or [None] * len(axes), strict=True):
        for k in range(level - 1):
            n = planes.shape[axis] - 2**k
            planes = _part(planes, axis, 0, n) + _part(planes, axis, 2**k, n)
        if stencil is not None:
            planes = stencil(planes, axis)
            scale *= math.sqrt(spacing)
            continue
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


def _count(size: int, axes: Sequence[int], level: int) -> float:
    """Return how many independent numbers overlapping differences are worth."""
    return size / _repetition(_order(axes), level) ** len(axes)


@functools.cache
def _trimmed(kept: float) -> tuple[float, float]:
    """Return the mean of the smallest part of squared normal numbers, and the cost of trimming.

    The cost is the number of differences that give the logarithm of the standard deviation as
    accurately as one difference without trimming.
    """
    from statistics import NormalDist  # here, since its import is slow

    c = NormalDist().inv_cdf((1 + kept) / 2)
    density = NormalDist().pdf(c)
    # E[x²; |x| < c], E[x⁴; |x| < c], and the variance of min(x², c²)
    second = kept - 2 * c * density
    fourth = 3 * second - 2 * c**3 * density
    variance = fourth + (1 - kept) * c**4 - (second + (1 - kept) * c**2) ** 2
    return second / kept, variance / (2 * second**2)


def _log_variance(count: float) -> float:
    """Return the variance of the logarithm of a standard deviation from independent numbers."""
    # ψ'(n / 2) / 4 for n normal numbers, with ψ'(x) ≈ 1/x + 1/2x² + 1/6x³
    x = count / 2
    return (1 / x + 1 / (2 * x**2) + 1 / (6 * x**3)) / 4


def _strength(differences: Array, kept: float) -> float:
    """Return the standard deviation of normal differences, from the smallest part of them."""
    return _strength_of_squares(np.square(differences), kept)


def _strength_of_squares(squares: Array, kept: float) -> float:
    """Return the same from the squares of the differences, which are sorted in part in place."""
    count = max(1, round(kept * squares.size))
    squares.partition(count - 1)
    mean = float(np.add.reduce(squares[:count], dtype=np.float64)) / count
    return math.sqrt(mean / _trimmed(kept)[0])


def _all_known(known: Array, axes: Sequence[int], level: int) -> Array:
    """Return for every difference along all ``axes`` whether it uses known samples only."""
    support = _support(_order(axes), level)
    for axis in (axis - 1 for axis in axes):
        n = known.shape[axis] - support + 1
        counts = np.cumsum(np.pad(known, _one_before(known.ndim, axis)), axis=axis)
        known = _part(counts, axis, support, n) - _part(counts, axis, 0, n) == support
    return known


def _axes_of_known(known: Array, axes: list[int], settings: NoiseSettings) -> list[int]:
    """Return the axes along which samples are compared: one, if gaps leave too few along all."""
    longest = max(axes, key=lambda axis: known.shape[axis - 1])
    shortest = min(known.shape[axis - 1] for axis in axes)
    if len(axes) == 1 or shortest < _support(_order(axes), 2):
        return [longest]
    enough = int(_all_known(known, axes, 2).sum()) >= settings.many_known
    return axes if enough else [longest]


def _one_before(ndim: int, axis: int) -> list[tuple[int, int]]:
    return [(1, 0) if i == axis else (0, 0) for i in range(ndim)]


class _Bands:
    """The rotated planes, their differences at all spacings that fit, and where they change."""

    def __init__(
        self,
        crop: Array,
        unit: float,
        axes: list[int],
        settings: NoiseSettings,
        known: Array | None = None,
        places: dict[int, Array] | None = None,
    ) -> None:
        self.unit, self.axes, self.order, self.settings = unit, axes, _order(axes), settings
        self.known, self.places = known, places or {}
        self._stencils: dict[int, list[_Stencil | None] | None] = {}
        self._kept: dict[tuple[int, int], Array] = {}
        finest = self._of_known(_finest(crop, axes, self.stencils(1)), 1)
        self.rotation = _rotation(finest, axes)
        self.planes, self.finest = self._rotated(crop), self._rotated(finest)
        shortest = min(crop.shape[axis] for axis in axes)
        self.levels = [n for n in range(1, LEVELS + 1) if shortest >= _support(self.order, n)]
        zeros = 1 - np.mean(finest.any(axis=0))
        self.changing = _changing(crop, axes) if zeros > settings.few_zeros else None

    def stencils(self, level: int) -> list[_Stencil | None] | None:
        """Return the divided differences of each axis, None for an even one."""
        if level not in self._stencils:
            found = [
                _Stencil.of(self.places[axis], self.order, level) if axis in self.places else None
                for axis in self.axes
            ]
            self._stencils[level] = found if any(found) else None
        return self._stencils[level]

    def count(self, size: int, level: int) -> float:
        """Return how many independent numbers overlapping differences are worth."""
        stencils = self.stencils(level)
        if stencils is None:
            return _count(size, self.axes, level)
        even = _repetition(self.order, level)
        return size / math.prod(even if one is None else one.repetition for one in stencils)

    def _of_known(self, differences: Array, level: int) -> Array:
        """Return the differences (..., N_1, ..., N_D), NaN where they use an unknown sample."""
        if self.known is None:
            return differences
        valid = _all_known(self.known, self.axes, level)
        return np.where(valid, differences, differences.dtype.type(np.nan))

    def _rotated(self, planes: Array) -> Array:
        if len(planes) == 1:
            return planes
        return np.tensordot(self.rotation.astype(np.float32), planes, 1)

    def strength(self, k: int) -> float:
        """Return the strength of the finest differences of one plane."""
        finest = self._selected(self.finest[k], 1, self.changing, 0)
        return _strength(finest, self.settings.kept) if finest.size else 0.0

    def whole(self, judged: Sequence[int]) -> _Part:
        """Return the strengths of some planes together, wherever they change."""
        return self._measured(
            (
                [self._selected(self._differences(k, n), n, self.changing, 0) for k in judged]
                for n in self.levels
            ),
            self._near(judged) if self.places else None,
        )

    def _near(self, judged: Sequence[int]) -> _Near | None:
        """Return how differences of close samples compare with the others."""
        stencils = self.stencils(1)
        if stencils is None:
            return None
        response = np.ones(())
        for stencil, n in zip(stencils, self._lengths(), strict=True):
            own = np.ones(n) if stencil is None else stencil.response
            response = np.multiply.outer(response, own)
        shape = [1] * (self.planes.ndim - 1)
        for axis, n in zip(self.axes, response.shape, strict=True):
            shape[axis - 1] = n
        response = np.broadcast_to(response.reshape(shape), self.finest.shape[1:])
        chosen = self._selected(response, 1, self.changing, 0)
        found = [self._selected(self.finest[k], 1, self.changing, 0) for k in judged]
        # all channels have gaps at the same places, so that one selection serves them all
        count = round(self.settings.near * chosen.size)
        if count < 2 or any(one.size != chosen.size for one in found):
            return None
        order = np.argsort(chosen, kind="stable")
        near, wide = (
            np.concatenate([one[part] for one in found]) for part in (order[:count], order[count:])
        )
        middle = [float(np.median(chosen[part])) for part in (order[:count], order[count:])]
        doublings = math.log2(max(middle[1], TINY) / max(middle[0], TINY)) / self.order
        kept = self.settings.kept
        strengths = _strength(near, kept), _strength(wide, kept)
        counts = self.count(near.size, 1), self.count(wide.size, 1)
        return _Near(strengths, counts, doublings)

    def _lengths(self) -> list[int]:
        return [self.finest.shape[axis] for axis in self.axes]

    def flat(self, judged: Sequence[int]) -> _Part | None:
        """Return the strengths where each plane changes least, if there are enough samples."""
        masks = [self._flattest(k) for k in judged]
        found = [(k, mask) for k, mask in zip(judged, masks, strict=True) if mask is not None]
        if not found:
            return None
        return self._measured(
            [self._selected(self._differences(k, n), n, mask, self._margin) for k, mask in found]
            for n in self.levels
        )

    @property
    def is_short_line(self) -> bool:
        """Whether the samples are lines that can be smoothed as a whole."""
        longest = self.settings.short_line
        return self.planes.ndim == 2 and self.planes.shape[1] <= longest and self.known is None

    def smooth_lines(self, judged: Sequence[int]) -> _SmoothLines:
        """Return the fits of smooth and of rough lines to some planes of a short line."""
        # power 1/f^a has a ratio of 2^(-a/2)
        exponent = -2 * math.log2(self.settings.ratio)
        lines = self.planes[list(judged)].astype(np.float64)
        return _SmoothLines.of(lines, exponent, self.places.get(1))

    def _differences(self, k: int, level: int) -> Array:
        if level == 1:
            return self.finest[k]
        if (k, level) not in self._kept:
            axes = [axis - 1 for axis in self.axes]
            found = _differences(self.planes[k], axes, self.order, level, self.stencils(level))
            self._kept[k, level] = self._of_known(found, level)
        return self._kept[k, level]

    def _selected(self, values: Array, level: int, mask: Array | None, margin: int) -> Array:
        """Return the differences whose centre is in the mask.

        The mask is shorter than the planes by ``margin`` samples at each end of the axes.
        """
        if mask is None:
            return self._seen(values.ravel())
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
        return self._seen(values[tuple(chosen)][mask])

    def _seen(self, values: Array) -> Array:
        return values if self.known is None else values[np.isfinite(values)]

    @property
    def _margin(self) -> int:
        """How far from the ends of an axis the change around a sample is known."""
        window, reach = self.settings.flat_box
        return window // 2 + reach

    def _flattest(self, k: int) -> Array | None:
        """Return a mask of the part of the samples around which a plane changes least."""
        margin, (window, reach) = self._margin, self.settings.flat_box
        plane, axes = self.planes[k], [axis - 1 for axis in self.axes]
        if min(plane.shape[axis] for axis in axes) <= 2 * margin:
            return None
        inside = tuple(
            slice(margin, n - margin) if axis in axes else slice(None)
            for axis, n in enumerate(plane.shape)
        )
        means, change = plane, np.zeros_like(plane[inside])
        for axis in axes:
            n = means.shape[axis] - window + 1
            means = sum(_part(means, axis, i, n) for i in range(window))
        for axis in axes:
            part = means
            for other in axes:
                n = part.shape[other] - 2 * reach
                if other == axis:
                    part = _part(part, axis, 2 * reach, n) - _part(part, axis, 0, n)
                else:
                    part = _part(part, other, reach, n)
            change += np.square(part)
        changing = None if self.changing is None else self.changing[inside]
        candidates = change.ravel() if changing is None else change[changing]
        if not candidates.size:
            return None
        place = math.ceil(self.settings.flat * candidates.size) - 1
        mask = change <= np.partition(candidates, place)[place]
        return mask if changing is None else mask & changing

    def _measured(self, bands: Iterable[list[Array]], near: _Near | None = None) -> _Part:
        """Return the strengths at rising spacings, as far as they are needed for a decision."""
        strengths, counts, quiet = [], [], 0.0
        for level, arrays in zip(self.levels, bands, strict=True):
            values = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
            if not values.size:
                break
            squares = np.square(values)
            strengths.append(_strength_of_squares(squares, self.settings.kept))
            counts.append(self.count(values.size, level))
            if level == 1:
                quiet = _strength_of_squares(squares, self.settings.quiet)
            part = _Part(tuple(strengths), tuple(counts), quiet, near)
            if level == 2 and not part.may_be_noise(self.settings):
                break
        return _Part(tuple(strengths), tuple(counts), quiet, near)


def _changing(crop: Array, axes: Sequence[int]) -> Array:
    """Return a mask of the samples within two samples of which some channel changes."""
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


# Smooth lines


@functools.lru_cache(maxsize=4)
def _line_basis(count: int) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of the squared second differences of a line."""
    differences = np.diff(np.eye(count), 2, axis=0)
    values, vectors = np.linalg.eigh(differences.T @ differences)
    return np.maximum(values, 0.0), vectors


def _uneven_basis(x: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of the roughness of natural splines (Reinsch, 1967).

    Positions are in units of the mean gap.
    """
    gaps = np.diff(x) / mean_step(x)
    gaps = np.maximum(gaps, CLOSEST)
    gaps /= gaps.mean()
    n = len(x)
    # ∫ f''² = y' Q R^-1 Q' y: second divided differences Q', the tridiagonal R of linear f''
    rows = np.arange(n - 2)
    Q = np.zeros((n - 2, n))
    Q[rows, rows], Q[rows, rows + 2] = 1 / gaps[:-1], 1 / gaps[1:]
    Q[rows, rows + 1] = -1 / gaps[:-1] - 1 / gaps[1:]
    R = np.diag((gaps[:-1] + gaps[1:]) / 3) + np.diag(gaps[1:-1] / 6, 1)
    R += np.triu(R, 1).T
    values, vectors = np.linalg.eigh(Q.T @ np.linalg.solve(R, Q))
    return np.maximum(values, 0.0), vectors


@record(eq=False)
class _SmoothLines:
    """Two models of short lines: smooth lines with white noise, and rough lines without noise.

    A smooth line has a penalty on second differences (Whittaker, 1923), or at uneven positions on
    the second derivative. Its weight has the greatest likelihood (Wahba, 1985). A rough line has a
    power spectrum 1/f^a.

    Attributes
    ----------
    sigma : float
        The standard deviation of the noise: the squared residual over the samples less the trace
        of the smoothing, with the weight of generalised cross-validation (Craven and Wahba, 1979).
        The estimate from third differences has 1.5 times the error.
    gain : float
        The logarithm of the likelihood of smooth lines with noise, less that of rough lines.
    """

    sigma: float
    gain: float

    @classmethod
    def of(cls, lines: Array, exponent: float, x: Array | None = None) -> _SmoothLines:
        """Fit both models to lines (L, N); spectra of rough ones fall at least as 1/f^exponent."""
        n = lines.shape[1]
        own = _line_basis(n) if x is None else _uneven_basis(x)
        strengths, basis = (part[..., 2:] for part in own)  # straight lines cost nothing
        squares = (lines @ basis) ** 2
        strongest = 4 * math.log10(n / math.pi)  # halves a wave of twice the length of the line
        # a weight of 0.01 leaves lines as they are
        weights = 10.0 ** np.arange(-2.0, strongest + WEIGHT_STEP, WEIGHT_STEP)
        inverse = weights[:, None] * strengths
        noisy = _likelihood(squares, 1 + 1 / inverse)
        # Eigenvalues of second differences go with f^4. Steeper spectra are those of smooth lines.
        exponents = np.arange(exponent, 4.0 + WEIGHT_STEP, WEIGHT_STEP)
        rough = _likelihood(squares, strengths ** (-exponents[:, None] / 4))
        gain = float(np.sum(noisy.max(axis=1) - rough.max(axis=1)))
        removed = inverse / (1 + inverse)
        residuals, left = squares @ (removed**2).T, removed.sum(axis=1)  # (L, W), (W,)
        best = np.argmin(residuals / left**2, axis=1)
        variances = np.take_along_axis(residuals, best[:, None], axis=1)[:, 0] / left[best]
        return cls(math.sqrt(float(np.mean(variances))), gain)


def _likelihood(squares: Array, shapes: Array) -> Array:
    """Return log-likelihoods (L, M) of squared normal coefficients (L, N).

    Their variances are one of M shapes (M, N) times a factor, for which the likeliest is taken.
    """
    count = shapes.shape[1]
    factors = np.maximum(squares @ (1 / shapes).T / count, TINY)
    return -0.5 * (count * np.log(factors) + np.log(shapes).sum(axis=1))


# The decision


@record
class _Near:
    """Strengths of the finest differences of close samples, and of the others, on uneven axes.

    The signal in a difference of order m grows as the m-th power of the length it spans.
    ``doublings`` is the logarithm to base 2 of the ratio of these lengths, others to close samples.
    """

    strengths: tuple[float, float]
    counts: tuple[float, float]
    doublings: float

    def bound(self, settings: NoiseSettings, errors: float) -> float:
        """Return a lower bound, ``errors`` standard errors down, of the ratio for each doubling."""
        if self.doublings < 1:  # too little to tell signals from noise
            return math.nan
        cost = _trimmed(settings.kept)[1]
        error = math.sqrt(sum(_log_variance(n / cost) for n in self.counts))
        ratio = self.strengths[0] / max(self.strengths[1], TINY) * math.exp(-errors * error)
        return float(ratio ** (1 / self.doublings))


@record
class _Part:
    """Strengths of the differences at rising spacings in a part of the samples.

    ``counts`` are the independent numbers behind them, ``quiet`` is the finest strength from the
    smallest differences only. On uneven axes, ``near`` compares those of close samples.
    """

    strengths: tuple[float, ...]
    counts: tuple[float, ...]
    quiet: float
    near: _Near | None = None

    @property
    def ratio(self) -> float:
        """The strength at the given spacing over that at twice the spacing."""
        return self.strengths[0] / max(self.strengths[1], TINY) if len(self.strengths) > 1 else 0.0

    def near_ratio(self, settings: NoiseSettings, errors: float = 0.0) -> float:
        """Return the ratio of close samples for each doubling; 0 where there is none."""
        found = 0.0 if self.near is None else self.near.bound(settings, errors)
        return 0.0 if math.isnan(found) else found

    def may_be_noise(self, settings: NoiseSettings) -> bool:
        """Return whether the finest differences are as strong as those of noise would be."""
        return max(self.ratio, self.near_ratio(settings)) >= settings.ratio

    def bounds(self, settings: NoiseSettings) -> list[float]:
        """Return lower bounds of the finest strength over that at twice, four times the spacing."""
        if not self.strengths:
            return []
        cost, found = _trimmed(settings.kept)[1], []
        first = _log_variance(self.counts[0] / cost)
        for s, n in zip(self.strengths[1:], self.counts[1:], strict=True):
            error = settings.confidence * math.sqrt(first + _log_variance(n / cost))
            found.append(self.strengths[0] / max(s, TINY) * math.exp(-error))
        return found

    def sigma(self, settings: NoiseSettings) -> float:
        """Return the standard deviation of the noise, without the share of a signal."""
        # s_1² = σ² + v and s_2² = σ² + g v for a signal whose power grows by g
        ratio = max(self.ratio, self.near_ratio(settings))
        if ratio == 0.0:
            return 0.0
        share = max(0.0, ratio**-2 - 1) / (settings.growth - 1)
        return self.strengths[0] * math.sqrt(max(0.0, 1 - share))


@record
class _Verdict:
    """The decision on a part of the samples, the noise that was found, and both in words."""

    part: _Part
    is_found: bool
    reason: str
    sigma: float = 0.0


def _verdict(bands: _Bands, judged: Sequence[int], floor: float) -> _Verdict:
    """Return the decision on some planes together, by all of their samples or by the flattest."""
    settings = bands.settings
    whole = _judge(bands, judged, bands.whole(judged), floor)
    # close samples that differ less show a signal, also in the parts where it is flat
    is_signal = 0 < whole.part.near_ratio(settings, -settings.confidence) < settings.ratio
    part = None if whole.is_found or is_signal else bands.flat(judged)
    if part is None or not part.strengths:
        return whole
    where = f"in the {settings.flat:.0%} of the samples where the signal changes least, "
    flat = _judge(bands, judged, part, floor, where)
    # few samples are left: by chance, their finest differences may be stronger than the wider ones
    is_white = part.ratio <= 1 / settings.ratio
    is_everywhere = part.strengths[0] >= settings.ratio * whole.part.strengths[0]
    return flat if flat.is_found and is_white and is_everywhere else whole


def _judge(
    bands: _Bands, judged: Sequence[int], part: _Part, floor: float, where: str = ""
) -> _Verdict:
    """Return the decision on one part of the samples of some planes.

    ``where`` names the part in words; it is empty for all samples.
    """
    settings = bands.settings
    times = (
        f"{where}the finest differences are {part.ratio:.2f} times as strong as those at twice the "
        f"spacing"
    )
    objection = _objection(bands, part, floor, where)
    if objection:
        return _Verdict(part, False, f"no noise: {objection}")
    doubt = _doubt(bands, part, times)
    sigma, more = part.sigma(settings), ""
    if bands.is_short_line and not where:
        lines = bands.smooth_lines(judged)
        # as for the mean of normal numbers, where c standard errors gain c² / 2 in log-likelihood
        if doubt and lines.gain > settings.confidence**2 / 2:
            doubt, more = "", ", and a smooth line with noise is likelier than a rough one"
        # The fit of lines has the more accurate sigma, unless there are edges or outliers: it then
        # differs from that of differences by far more than the error of the latter.
        error = math.sqrt(_log_variance(part.counts[0] / _trimmed(settings.kept)[1]))
        far = 2 * settings.confidence * error
        if lines.sigma and abs(math.log(lines.sigma / part.strengths[0])) <= far:
            sigma = lines.sigma
    if doubt:
        return _Verdict(part, False, f"no noise: {doubt}")
    reason = f"noise of standard deviation {bands.unit * sigma:.3g}: {times}{more}"
    return _Verdict(part, True, reason, sigma)


def _objection(bands: _Bands, part: _Part, floor: float, where: str) -> str:
    """Return why one part of the samples is certainly not noisy; empty if nothing shows it."""
    settings, unit, needed = bands.settings, bands.unit, bands.settings.ratio
    strength, bounds = max(part.strengths[:1], default=0.0), part.bounds(settings)
    finest = f"{where}the finest differences"
    if strength <= floor:
        return f"{finest}, {strength * unit:.2g}, are within rounding, {floor * unit:.2g}"
    if not bounds:
        return "there are too few samples to compare two spacings"
    if max(bounds) > 1 / needed:
        return f"{finest} are {max(bounds):.2g} times as strong as those at a larger spacing"
    if 0 < part.near_ratio(settings, -settings.confidence) < needed:
        return "close samples differ less than samples further apart"
    if not part.may_be_noise(settings):
        return (
            f"{finest} are {part.ratio:.2f} times as strong as those at twice the spacing, and "
            f"{needed:g} is needed"
        )
    share = part.quiet / max(strength, TINY)
    if share < needed:
        return f"{finest} are not everywhere: the smaller ones show {share:.2f} of the strength"
    return ""


def _doubt(bands: _Bands, part: _Part, times: str) -> str:
    """Return why differences alone do not prove the noise in one part; empty if they do."""
    settings, needed = bands.settings, bands.settings.ratio
    steps = enumerate(part.bounds(settings), start=1)
    bound = max((low ** (1 / j) for j, low in steps), default=0.0)
    if max(bound, part.near_ratio(settings, settings.confidence)) < needed:
        sure = (1 + math.erf(settings.confidence / math.sqrt(2))) / 2
        return f"{times}, but {needed:g} for each doubling is not certain to {sure:.0%}"
    # few close samples may differ as much as others by chance
    if part.ratio < needed and bands.is_short_line:
        return f"{times}, and {needed:g} is needed"
    return ""
