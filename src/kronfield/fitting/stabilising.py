"""Noise that depends on the signal: find it, and transform values so that it no longer does.

The noise of a camera grows with brightness, that of many instruments with the reading. If the
variance of the noise is g(m) at a mean value m, then f(y) with f' = 1/sqrt(g) has noise of variance
1 to first order (Anscombe, 1948, for counts). The inverse maps the mean of f(y) back to m, without
the bias of the inverse function (Mäkitalo and Foi, 2011).
"""

from __future__ import annotations

import math

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
# Variances below this part of the largest are raised to it, so that the transform stays finite.
LEAST_VARIANCE = 1e-3
# Quantiles of brightness, spread over the range that is judged, at which variances are compared: a
# polynomial of degree 2 has its extremes at an end of the range or is smooth around them.
SEEN = 19
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
        A table of x, of f(x), and of the mean of f(x + noise).
    """

    knots: Array
    values: Array
    means: Array

    @classmethod
    def of(cls, variance: object, low: float, high: float) -> Stabiliser:
        """Return the transform for noise of variance g(m) at means from ``low`` to ``high``."""
        assert callable(variance)
        most = float(np.max(variance(np.linspace(low, high, KNOTS))))

        def sigma(x: Array) -> Array:
            inside = np.clip(x, low, high)
            return np.sqrt(np.maximum(variance(inside), LEAST_VARIANCE * most))

        ends = np.array([low, high])
        more = PAST_THE_RANGE * sigma(ends)
        knots = np.linspace(low - more[0], high + more[1], KNOTS)
        steps = np.diff(knots) * (1 / sigma(knots[1:]) + 1 / sigma(knots[:-1])) / 2
        values = np.concatenate([[0.0], np.cumsum(steps)])
        # E f(x + sigma z) by Gauss-Hermite quadrature
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        at = knots[:, None] + sigma(knots)[:, None] * nodes
        means = _table(at, knots, values) @ (weights / weights.sum())
        return cls(knots, values, np.maximum.accumulate(means))

    def __call__(self, x: Array) -> Array:
        """Return the transformed values."""
        return _table(x, self.knots, self.values)

    def inverse(self, f: Array) -> Array:
        """Return the mean value for which transformed values have the mean ``f``."""
        return _table(f, self.means, self.knots)

    def sigma(self, x: Array) -> Array:
        """Return the standard deviation of the noise around values."""
        slopes = np.diff(self.knots) / np.diff(self.values)
        middles = (self.knots[1:] + self.knots[:-1]) / 2
        return np.interp(x, middles, slopes)


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


def find_stabilisers(
    planes: Array, rotation: Array, unit: float = 1.0, settings: NoiseSettings = DEFAULT.noise
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
    """
    crop = planes[(slice(None), *centre(planes.shape[1:], settings.most_samples))]
    crop = np.asarray(crop, dtype=np.float64) / unit
    box, apart = settings.varies_box
    axes = [axis for axis in range(1, crop.ndim) if crop.shape[axis] >= 2 * (box + 2 * apart)]
    if not axes:
        return None
    every = crop.reshape(len(crop), -1)
    # the variance is a polynomial of brightness on this scale, which does not change the fit
    low, high = map(float, np.quantile(every, (0.01, 0.99)))
    if not high > low:
        return None
    squares, means, change = _measured(crop, axes, rotation[0], box, apart)
    t = (means - low) / (high - low)
    shares = rotation[0][:, None] ** 2
    design = np.stack([np.sum(shares * t**k, axis=0) for k in range(3)], axis=1)
    seen = np.quantile(t, np.linspace(*settings.varies_range, SEEN))
    # Noise varies alike wherever the signal is flat. Texture is less in the flattest parts.
    for part in settings.varies_flat:
        chosen = _flattest(means, change, part, settings.varies_classes)
        if chosen.size < settings.varies_fewest:
            return None
        theta = _fitted(design[chosen], squares[chosen], settings.varies_cut)
        variances = _variance(theta, seen)
        if variances.min() <= 0 or variances.max() < settings.varies**2 * variances.min():
            return None
    lowest, highest = float(planes.min()) / unit, float(planes.max()) / unit
    span = high - low
    return tuple(
        Stabiliser.of(
            lambda x: _variance(theta, np.clip((x - low) / span, seen[0], seen[-1])),
            lowest,
            highest,
        )
        for _ in range(len(planes))
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


def _variance(theta: Array, t: Array) -> Array:
    return theta[0] + t * (theta[1] + t * theta[2])


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


def _flattest(means: Array, change: Array, part: float, count: int) -> Array:
    """Return the indices of the flattest part of the samples of each class of brightness."""
    brightness = means.mean(axis=0)
    edges = np.quantile(brightness, np.linspace(0, 1, count + 1)[1:-1])
    classes = np.searchsorted(edges, brightness)
    found = []
    for one in range(count):
        inside = np.flatnonzero(classes == one)
        if inside.size:
            found.append(inside[change[inside] <= np.quantile(change[inside], part)])
    return np.concatenate(found)


def _fitted(design: Array, squares: Array, most: float) -> Array:
    """Return the coefficients of a variance by robust, iteratively reweighted least squares."""
    # E min(z², most) for normal z: larger squares count as the most
    cut = math.sqrt(most)
    tail = math.erfc(cut / math.sqrt(2))
    inside = 1 - tail - cut * math.sqrt(2 / math.pi) * math.exp(-most / 2)
    expected = inside + most * tail
    # to begin with, a constant: the median of z² of a normal variable z is 0.4549
    theta = np.array([float(np.median(squares)) / 0.4549, 0.0, 0.0])
    for _ in range(ITERATIONS):
        fitted = design @ theta
        fitted = np.maximum(fitted, LEAST_VARIANCE * fitted.max())
        values = np.minimum(squares, most * fitted) / expected
        weights = 1 / fitted**2
        normal = design.T @ (design * weights[:, None])
        normal[np.diag_indices(3)] *= 1 + 1e-9
        theta = np.linalg.solve(normal, design.T @ (values * weights))
    return theta
