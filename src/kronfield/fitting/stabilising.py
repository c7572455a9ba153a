"""Noise that depends on the signal: find it, and transform values so that it no longer does.

The noise of a camera grows with brightness, that of many instruments with the reading. If the
variance of the noise is g(x) at a clean value x, then f(y) with f' = 1/sqrt(g) has noise of
variance 1 to first order (Anscombe, 1948, for counts). The inverse maps the mean of f(y) back to x,
without the bias of the inverse function (Mäkitalo and Foi, 2011).

Noise may also be cut off at the ends of a range: y = clip(x + noise, low, high). The mean of y is
then not x, and its variance is less near the ends (Foi, 2009). The same inverse corrects it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import centre
from kronfield._core.records import record
from kronfield.fitting.noise import Noise, find_noise
from kronfield.fitting.settings import DEFAULT, NoiseSettings

# The transform is tabulated at this many values, and continues as a straight line past the ends.
# Between them the variance, a polynomial of degree 2, hardly curves.
KNOTS = 512
# The table extends past the range of the values by this many standard deviations of the noise, so
# that the means of transformed values, by quadrature, are right up to the ends of the range.
PAST_THE_RANGE = 6.0
# Past an end at which noise is cut off, means of noisy values soon stay the same.
PAST_AN_END = 2.0
# Variances below this part of the largest are raised to it, so that the transform stays finite.
LEAST_VARIANCE = 1e-3
# Quantiles of brightness, spread over the range that is judged, at which variances are compared: a
# polynomial of degree 2 has its extremes at an end of the range or is smooth around them.
SEEN = 19
# Quantiles are those of every so many samples: all of them take as long as the rest of the search.
# A prime number is no period of blocks.
SEVERAL = 7
# Means over normal noise are sums over these values. The trapezoidal rule also suits functions with
# a kink, as of noise that is cut off.
NODES = np.linspace(-6.0, 6.0, 97)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.sum(np.exp(-(NODES**2) / 2))
# The median of z² of a normal variable z.
MEDIAN_SQUARE = NormalDist().inv_cdf(0.75) ** 2
# Iterations of the reweighted fit, after which its coefficients stand to several digits.
ITERATIONS = 12


@record(eq=False)
class Stabiliser:
    """A transform after which noise has standard deviation 1, whatever the signal.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.stabilising import Stabiliser
    >>> poisson = Stabiliser.of(lambda m: m, 1.0, 1000.0)  # the variance of counts is their mean
    >>> counts = np.random.default_rng(0).poisson(50.0, 10000)
    >>> found = poisson(counts)
    >>> round(float(found.std()), 1), round(float(poisson.inverse(found.mean())))
    (1.0, 50)

    Attributes
    ----------
    knots, values, means : array
        A table of clean x, of f(x), and of the mean of f(y) for noisy y.
    seen, spread : array
        The mean and the standard deviation of y for each knot.
    ends : (float, float)
        Where y is cut off; infinite if it is not.
    varies : bool
        Whether the noise depends on the signal within the range too.
    """

    knots: Array
    values: Array
    means: Array
    seen: Array
    spread: Array
    ends: tuple[float, float] = (-math.inf, math.inf)
    varies: bool = True

    @classmethod
    def of(
        cls,
        variance: Callable[[Array], Array],
        low: float,
        high: float,
        ends: tuple[float, float] = (-math.inf, math.inf),
        *,
        varies: bool = True,
    ) -> Stabiliser:
        """Return the transform for noise of variance g(x) at clean values from ``low`` to ``high``.

        Noisy values are cut off at the ``ends``.
        """
        most = float(np.max(variance(np.linspace(low, high, KNOTS))))

        def sigma(x: Array) -> Array:
            inside = np.clip(x, low, high)
            return np.sqrt(np.maximum(variance(inside), LEAST_VARIANCE * most))

        more = np.where(np.isfinite(ends), PAST_AN_END, PAST_THE_RANGE)
        more = more * sigma(np.array([low, high]))
        knots = np.linspace(low - more[0], high + more[1], KNOTS)
        steps = np.diff(knots) * (1 / sigma(knots[1:]) + 1 / sigma(knots[:-1])) / 2
        values = np.concatenate([[0.0], np.cumsum(steps)])
        noisy = np.clip(knots[:, None] + sigma(knots)[:, None] * NODES, *ends)
        means, seen = _table(noisy, knots, values) @ WEIGHTS, noisy @ WEIGHTS
        spread = np.sqrt((noisy - seen[:, None]) ** 2 @ WEIGHTS)
        return cls(knots, values, np.maximum.accumulate(means), seen, spread, ends, varies)

    def __call__(self, x: Array) -> Array:
        """Return the transformed values."""
        return _table(x, self.knots, self.values)

    def inverse(self, f: Array) -> Array:
        """Return the clean value for which transformed noisy values have the mean ``f``."""
        return np.clip(self.free_inverse(f), *self.ends)

    def free_inverse(self, f: Array) -> Array:
        """Return the same, also beyond ends at which noise is cut off: errors are then centred."""
        return _table(f, self.means, self.knots)

    def sigma(self, x: Array) -> Array:
        """Return the standard deviation of noisy values for clean ones."""
        return np.interp(x, self.knots, self.spread)

    def noisy_mean(self, x: Array) -> Array:
        """Return the mean of noisy values for clean ones: these themselves, unless cut off."""
        return _table(x, self.knots, self.seen) if self.is_cut_off else x

    def slope(self, x: Array) -> Array:
        """Return the derivative of `noisy_mean`, at the nearest values between the ends."""
        slopes = np.diff(self.seen) / np.diff(self.knots)
        middles = (self.knots[1:] + self.knots[:-1]) / 2
        return np.interp(np.clip(x, *self.ends), middles, slopes)

    @property
    def is_cut_off(self) -> bool:
        """Whether noise is cut off at an end."""
        return bool(np.isfinite(self.ends).any())


def _table(x: Array, knots: Array, values: Array) -> Array:
    """Return values interpolated linearly in a table, which continues straight past its ends."""
    found = np.interp(x, knots, values)
    low = (values[1] - values[0]) / (knots[1] - knots[0])
    high = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    return (
        found
        + low * np.minimum(np.asarray(x) - knots[0], 0)
        + high * np.maximum(np.asarray(x) - knots[-1], 0)
    )


def stabilisers_of(
    planes: Array, noise: Noise, unit: float, settings: NoiseSettings, *, may_vary: bool
) -> tuple[Stabiliser, ...] | None:
    """Return the transform of each channel if noise depends on the signal or is cut off.

    Parameters
    ----------
    planes : array (C, N_1, ..., N_D)
        Noisy values.
    noise : Noise
        Its strength, in units of ``unit``.
    unit : float
        Transforms are of planes divided by it.
    settings : NoiseSettings
        The decisions.
    may_vary : bool
        Whether noise may depend on the signal within the range of the values too.
    """
    ends = cut_off_ends(planes, noise.sigma, unit, settings)
    if may_vary:
        found = find_stabilisers(planes, noise.rotation, unit, settings, ends, noise.sigma)
        if found is not None:
            return found
    if not np.isfinite(ends).any():
        return None
    return tuple(
        Stabiliser.of(
            lambda x, own=sigma: np.full(np.shape(x), own**2),  # type: ignore[misc]
            float(plane.min()) / unit,
            float(plane.max()) / unit,
            own_ends,
            varies=False,
        )
        for plane, sigma, own_ends in zip(planes, noise.sigma, ends, strict=True)
    )


def cut_off_ends(
    planes: Array, sigma: Array, unit: float, settings: NoiseSettings
) -> list[tuple[float, float]]:
    """Return the ends of the range at which the noise of each channel is cut off, or infinity.

    Many samples are then exactly as large as the end. If their clean values are within the range,
    neighbours of these samples are further from the end, by σ/√(2π) or more in the mean. Around
    zeros of counts, and in areas that are saturated or masked, they are nearer.

    Parameters
    ----------
    planes : array (C, N_1, ..., N_D)
        Noisy values.
    sigma : array (C,)
        The standard deviation of their noise, in units of ``unit``.
    unit : float
        The ends are those of planes divided by it.
    settings : NoiseSettings
        The decisions.
    """
    if not np.all(sigma > 0):
        return [(-math.inf, math.inf)] * len(planes)
    part = centre(planes.shape[1:], settings.most_samples)
    found = []
    for plane, own in zip(planes, sigma * unit, strict=True):
        crop = np.asarray(plane[part], dtype=np.float64)
        low, high = float(plane.min()), float(plane.max())
        found.append(
            (
                low / unit if _is_cut_off(crop - low, float(own), settings) else -math.inf,
                high / unit if _is_cut_off(high - crop, float(own), settings) else math.inf,
            )
        )
    return found


def _is_cut_off(above: Array, sigma: float, settings: NoiseSettings) -> bool:
    """Tell whether values, their end subtracted, have noise that is cut off at 0."""
    on_it = above == 0
    count = int(np.count_nonzero(on_it))
    near = int(np.count_nonzero(above <= settings.cut_off_next * sigma)) - count
    if not near or count <= max(near, settings.cut_off * above.size):
        return False
    index, total, pairs = np.nonzero(on_it), 0.0, 0
    for axis, n in enumerate(above.shape):
        for step in (-1, 1):
            moved = index[axis] + step
            inside = (moved >= 0) & (moved < n)
            place = tuple((moved if i == axis else one)[inside] for i, one in enumerate(index))
            total += float(above[place].sum())
            pairs += int(np.count_nonzero(inside))
    least = settings.cut_off_mean * sigma / math.sqrt(2 * math.pi)
    return pairs > 0 and total > least * pairs


def find_stabilisers(
    planes: Array,
    rotation: Array,
    unit: float = 1.0,
    settings: NoiseSettings = DEFAULT.noise,
    ends: Sequence[tuple[float, float]] = (),
    sigma: Array | None = None,
) -> tuple[Stabiliser, ...] | None:
    """Return the transform of each channel if the noise in planes depends on the signal.

    The variance of the noise is fitted as a + b m + c m², the same for all channels. Squared second
    differences, of the mix of channels that shows least of the signal, are its samples; they are
    taken where the signal is flattest at each brightness. Noise depends on the signal if its
    standard deviation varies by more than ``settings.varies`` over the range of the values.

    Parameters
    ----------
    planes : array (C, N_1, ..., N_D)
        Noisy values.
    rotation : array (C, C)
        The decorrelating rotation, its first row the mix with least signal.
    unit : float
        Transforms are of planes divided by it.
    settings : NoiseSettings
        The decisions.
    ends : sequence of (float, float)
        Where noise is cut off in each channel, in units of ``unit``; () for nowhere.
    sigma : array (C,), optional
        About the strength of the noise, if it is cut off: the variance is not fitted near the ends.
    """
    crop, axes = _crop(planes, unit, settings)
    if not axes:
        return None
    every = crop.reshape(len(crop), -1)
    # the variance is a polynomial of brightness on this scale, which does not change the fit
    low, high = map(float, np.quantile(every[:, ::SEVERAL], (0.01, 0.99)))
    if not high > low:
        return None
    squares, means, change = _measured(crop, axes, rotation[0], *settings.varies_box)
    if sigma is not None and np.isfinite(ends).any():
        whole = _away(means, ends, settings.cut_off_away * sigma)
        squares, means, change = squares[whole], means[:, whole], change[whole]
        if not squares.size:
            return None
    t = (means - low) / (high - low)
    shares = rotation[0][:, None] ** 2
    design = np.stack([np.sum(shares * t**k, axis=0) for k in range(3)], axis=1)
    seen = np.quantile(t[:, ::SEVERAL], np.linspace(*settings.varies_range, SEEN))
    classes = _classes(means, settings.varies_classes)
    # Noise varies alike wherever the signal is flat. Texture is less in the flattest parts.
    for part in settings.varies_flat:
        chosen = _flattest(classes, change, part)
        if chosen.size < settings.varies_fewest:
            return None
        theta = _fitted(design[chosen], squares[chosen], settings.varies_cut)
        variances = _variance(theta, seen)
        if variances.min() <= 0 or variances.max() < settings.varies**2 * variances.min():
            return None
        if _normality(design[chosen] @ theta, squares[chosen]) < settings.varies_normal:
            return None
    lowest, highest = float(planes.min()) / unit, float(planes.max()) / unit
    span = high - low
    return tuple(
        Stabiliser.of(
            lambda x: _variance(theta, np.clip((x - low) / span, seen[0], seen[-1])),
            lowest,
            highest,
            own,
        )
        for own in (ends or [(-math.inf, math.inf)] * len(planes))
    )


def find_varying_noise(values: Array, noise: Noise, unit: float, settings: NoiseSettings) -> Noise:
    """Return noise that is found only after values are transformed, else ``noise`` itself.

    Strong noise in a small part of the values, as in the bright parts of a dark picture, does not
    have one strength at all spacings. After the transform it does, with a standard deviation of 1.
    In one channel it is not looked for: textures that grow with brightness look the same.
    """
    if len(values) == 1:
        return noise
    transforms = find_stabilisers(values, noise.rotation, unit, settings)
    if transforms is None:
        return noise
    crop = values[(slice(None), *centre(values.shape[1:], settings.most_samples))]
    crop = np.asarray(crop, dtype=np.float64) / unit
    pairs = list(zip(transforms, crop, strict=True))
    found = find_noise(np.stack([f(plane) for f, plane in pairs]), settings)
    if not found.is_found or not settings.ratio < float(found.sigma.mean()) < 1 / settings.ratio:
        return noise
    sigma = unit * np.array([math.sqrt(float(np.mean(f.sigma(p) ** 2))) for f, p in pairs])
    sigmas = np.sqrt(noise.rotation**2 @ sigma**2)
    reason = f"noise of standard deviation {float(sigma.mean()):.3g} that depends on the signal"
    return Noise(sigma, sigmas, noise.rotation, found.ratio, True, reason)


def whole_noise(values: Array, noise: Noise, settings: NoiseSettings) -> Noise:
    """Return noise as strong as it is away from the ends at which it is cut off.

    Its variance is measured as the mean over samples, and near the ends it is less: by how much,
    the means of neighbouring samples tell.
    """
    unit = float(noise.sigma.max())
    ends = cut_off_ends(values, noise.sigma / unit, unit, settings)
    if not np.isfinite(ends).any():
        return noise
    crop, axes = _crop(values, unit, settings)
    if not axes:
        return noise
    _, means, _ = _measured(crop, axes, noise.rotation[0], *settings.varies_box)
    # normal noise of variance 1 that is cut off at 0, for clean values from 0 on
    half = Stabiliser.of(np.ones_like, 0.0, PAST_THE_RANGE, (0.0, math.inf))
    found = sigma = noise.sigma / unit
    for _ in range(ITERATIONS):
        left = np.ones_like(means)
        for part, plane, own, (low, high) in zip(left, means, sigma, ends, strict=True):
            for distance in (plane - low, high - plane):
                if np.isfinite(distance[0]):
                    part *= np.interp(distance / own, half.seen, half.spread**2)
        # mixed as the channels are in the plane whose noise was measured
        kept = noise.rotation[0] ** 2 @ left.mean(axis=1)
        sigma = found / math.sqrt(kept)
    ratio = float(sigma[0] / found[0])
    return replace(noise, sigma=noise.sigma * ratio, sigmas=noise.sigmas * ratio)


def _away(means: Array, ends: Sequence[tuple[float, float]], far: Array) -> Array:
    """Return which means (C, n) are at least as ``far`` (C,) from the ends, in all channels."""
    lows, highs = np.transpose(ends)[..., None]
    least, most = lows + far[:, None], highs - far[:, None]
    return np.asarray(np.all((means > least) & (means < most), axis=0))


def _variance(theta: Array, t: Array) -> Array:
    return theta[0] + t * (theta[1] + t * theta[2])


def _crop(planes: Array, unit: float, settings: NoiseSettings) -> tuple[Array, list[int]]:
    """Return the middle of the planes in units of ``unit``, and its axes that are long enough."""
    crop = planes[(slice(None), *centre(planes.shape[1:], settings.most_samples))]
    box, apart = settings.varies_box
    axes = [axis for axis in range(1, crop.ndim) if crop.shape[axis] >= 2 * (box + 2 * apart)]
    return np.asarray(crop, dtype=np.float64) / unit, axes


def _cut(values: Array, axis: int, start: int, stop: int) -> Array:
    return values[(slice(None),) * axis + (slice(start, stop),)]


def _measured(
    crop: Array, axes: list[int], mix: Array, box: int, apart: int
) -> tuple[Array, Array, Array]:
    """Return squared differences (n,), means of the channels (C, n), and changes of means (n,).

    A box mean and a second difference at the same place are uncorrelated.
    """
    half = box // 2 + apart
    differences, means = np.tensordot(mix, crop, axes=1)[None], crop
    for axis in axes:
        n = crop.shape[axis]
        inner = _cut(differences, axis, half - 1, n - half + 1)
        m = inner.shape[axis]
        ends = _cut(inner, axis, 0, m - 2) + _cut(inner, axis, 2, m)
        differences = (ends - 2 * _cut(inner, axis, 1, m - 1)) / math.sqrt(6)  # variance 6
        total = np.cumsum(means, axis=axis)
        total = np.concatenate([np.zeros_like(_cut(means, axis, 0, 1)), total], axis=axis)
        means = (_cut(total, axis, box, n + 1) - _cut(total, axis, 0, n + 1 - box)) / box
    change = np.zeros(())
    for axis in axes:
        inner = means
        for other in axes:
            m = inner.shape[other]
            if other == axis:
                ahead = _cut(inner, axis, 2 * apart, m)
                inner = ahead - _cut(inner, axis, 0, m - 2 * apart)
            else:
                inner = _cut(inner, other, apart, m - apart)
        change = change + np.sum(inner**2, axis=0)
    for axis in axes:
        means = _cut(means, axis, apart, means.shape[axis] - apart)
    return differences.reshape(-1) ** 2, means.reshape(len(crop), -1), change.reshape(-1)


def _classes(means: Array, count: int) -> list[Array]:
    """Return the indices of the samples of each class of brightness."""
    brightness = means.mean(axis=0)
    n = len(brightness)
    ends = [i * n // count for i in range(1, count)]
    # partitioned at the ends of the classes: the order within a class does not matter
    order = np.argpartition(brightness, ends) if ends else np.arange(n)
    return np.split(order, ends)


def _flattest(classes: Sequence[Array], change: Array, part: float) -> Array:
    """Return the indices of the flattest part of the samples of each class of brightness."""
    found = []
    for inside in classes:
        if inside.size:
            most = int(part * (inside.size - 1))
            found.append(inside[np.argpartition(change[inside], most)[: most + 1]])
    return np.concatenate(found)


def _normality(fitted: Array, squares: Array) -> float:
    """Return the median of z² = squares / fitted where these are largest, over that of noise.

    Where lone bright samples raise the variance, most others have far less.
    """
    most = np.argpartition(fitted, -(len(fitted) // 4 + 1))[-(len(fitted) // 4 + 1) :]
    return float(np.median(squares[most] / fitted[most])) / MEDIAN_SQUARE


def _fitted(design: Array, squares: Array, most: float) -> Array:
    """Return the coefficients of a variance by robust, iteratively reweighted least squares."""
    # E min(z², most) for normal z: larger squares count as the most
    cut = math.sqrt(most)
    tail = math.erfc(cut / math.sqrt(2))
    inside = 1 - tail - cut * math.sqrt(2 / math.pi) * math.exp(-most / 2)
    expected = inside + most * tail
    # to begin with, a constant
    theta = np.array([float(np.median(squares)) / MEDIAN_SQUARE, 0.0, 0.0])
    for _ in range(ITERATIONS):
        fitted = design @ theta
        fitted = np.maximum(fitted, LEAST_VARIANCE * fitted.max())
        values = np.minimum(squares, most * fitted) / expected
        weights = 1 / fitted**2
        normal = design.T @ (design * weights[:, None])
        normal[np.diag_indices(3)] *= 1 + 1e-9
        theta = np.linalg.solve(normal, design.T @ (values * weights))
    return theta
