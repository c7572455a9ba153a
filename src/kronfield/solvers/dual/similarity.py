"""Similarities of positions: products of one function of the distance per axis.

The similarity of two positions on an axis is a function D(dx) of their distance. It is a kernel:
with a ridge, the fit of P points is a sum of P similarities, in any number of dimensions. Besides
the Gaussian there are the functions of Matern (Rasmussen and Williams, 2006, section 4.2),
which suit rougher functions. With s = |dx| / width times 1, sqrt(3) or sqrt(5):

    gaussian  exp(-dx^2 / 2 width^2)      rough   exp(-s)
    once      (1 + s) exp(-s)             twice   (1 + s + s^2 / 3) exp(-s)
"""

from __future__ import annotations

import functools
import math
from typing import ClassVar

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record

SHAPES = ("gaussian", "twice", "once", "rough")
# The factor of |dx| / width in s.
_FACTOR = {"gaussian": 1.0, "twice": math.sqrt(5.0), "once": math.sqrt(3.0), "rough": 1.0}
# The polynomial in s before exp(-s).
_POLYNOMIALS = {"rough": (1.0,), "once": (1.0, 1.0), "twice": (1.0, 1.0, 1.0 / 3.0)}
# The highest order of derivatives of the fit that can be computed.
_SMOOTHNESS = {"gaussian": 16, "twice": 2, "once": 2, "rough": 0}
# Similarities are computed for about this many pairs at a time: 2 MB, which stay in the cache.
BLOCK = 1 << 18


@record
class Similarity:
    """The similarity of positions on all axes.

    Attributes
    ----------
    shape : str
        "gaussian", "twice", "once" or "rough". The name says how many times functions with this
        covariance are differentiable.
    widths : tuple of float
        The width on each axis.
    """

    shape: str
    widths: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Similarity({self.shape}, widths {', '.join(f'{w:.3g}' for w in self.widths)})"

    def between(self, left: Array, right: Array, quick: bool = False) -> Array:
        """Return the similarities (M, P) of points (M, D) and (P, D).

        With ``quick``, those of Gaussians use a matrix product, with errors of about 1e-12.
        """
        if quick and self.shape == "gaussian":
            # |a - b|^2 = |a|^2 + |b|^2 - 2 ab
            middle = right.mean(axis=0)
            a, b = ((x - middle) / np.asarray(self.widths) for x in (left, right))
            away = a @ (2.0 * b.T)
            away -= np.sum(a * a, axis=1)[:, None]
            away -= np.sum(b * b, axis=1)
            np.minimum(away, 0.0, out=away)
            away *= 0.5
            return np.asarray(np.exp(away, out=away))
        factor = _FACTOR[self.shape] / np.asarray(self.widths)
        a, b = left * factor, right * factor
        out = np.empty((len(a), len(b)))
        step = max(1, BLOCK // max(1, len(b)))
        for start in range(0, len(a), step):
            part = slice(start, start + step)
            _products(self.shape, a[part], b, out[part])
        return out


def _products(shape: str, a: Array, b: Array, out: Array) -> None:
    """Write the similarities of scaled points to ``out``, with one exponential for all axes."""
    exponent, away = np.zeros(out.shape), np.empty(out.shape)
    out[...] = 1.0
    for x, y in zip(a.T, b.T, strict=True):
        np.subtract.outer(x, y, out=away)
        if shape == "gaussian":
            away *= away
            exponent += away
            continue
        np.abs(away, out=away)
        exponent += away
        if shape == "once":
            out *= 1.0 + away
        elif shape == "twice":
            out *= 1.0 + away + away * away / 3.0
    exponent *= -0.5 if shape == "gaussian" else -1.0
    np.exp(exponent, out=exponent)
    out *= exponent


@record(eq=False)
class AxisSimilarity:
    """The similarities to P centres on an axis: P features of one coordinate.

    Attributes
    ----------
    shape, width
        As in `Similarity`.
    centres : array (P,)
        The positions of the centres.
    """

    shape: str
    width: float
    centres: Array

    #: The name of the shape parameter, as for embedders.
    shape_parameter: ClassVar[str] = "width"

    def __repr__(self) -> str:
        return f"{self.shape} similarity of width {self.width:.3g}"

    def __call__(self, x: Array) -> Array:
        """Return the similarities of positions (M,): (M, P)."""
        return self.rows(x)

    @property
    def size(self) -> int:
        """The number of centres."""
        return len(self.centres)

    @property
    def smoothness(self) -> int:
        """The highest order of derivatives that can be computed."""
        return _SMOOTHNESS[self.shape]

    def rows(self, x: Array, order: int = 0) -> Array:
        """Return the similarities, or their derivatives by x, of positions (M,): (M, P)."""
        if order > self.smoothness:
            raise problem(
                "derivative",
                order,
                f"at most order {self.smoothness} on an axis of a {self.shape} similarity",
                "Use central differences of the values.",
            )
        scale = _FACTOR[self.shape] / self.width
        t = (np.asarray(x, dtype=np.float64)[:, None] - self.centres) * scale
        return scale**order * _derivative(self.shape, t, order)

    def integral(self, low: float, high: float) -> Array:
        """Return the integral of each similarity from low to high, (P,)."""
        scale = _FACTOR[self.shape] / self.width
        ends = [_antiderivative(self.shape, (end - self.centres) * scale) for end in (low, high)]
        return np.asarray((ends[1] - ends[0]) / scale)

    def own(self, x: Array) -> Array:
        """Return the similarity (P,) of each centre to its own position (P,)."""
        return _derivative(self.shape, (x - self.centres) * _FACTOR[self.shape] / self.width, 0)

    def products(self, low: float, high: float, part: slice = slice(None)) -> Array:
        """Return the integrals (n, P) of products of similarities from low to high.

        Each is the product of a centre in ``part`` and any centre, in closed form.
        """
        scale = _FACTOR[self.shape] / self.width
        left, right = self.centres[part, None] * scale, self.centres * scale
        found = _product_integral(self.shape, left, right, low * scale, high * scale)
        return np.asarray(found / scale)


def _product_integral(shape: str, c: Array, e: Array, low: float, high: float) -> Array:
    """Return the integral of the product of similarities to c and e, in units of 1 / scale."""
    from scipy import special

    if shape == "gaussian":
        # exp(-(x - c)^2 / 2 - (x - e)^2 / 2) = exp(-(c - e)^2 / 4) exp(-(x - (c + e) / 2)^2)
        middle = (c + e) / 2.0
        ends = special.erf(high - middle) - special.erf(low - middle)
        return np.asarray(math.sqrt(math.pi) / 2.0 * np.exp(-((c - e) ** 2) / 4.0) * ends)
    u, v = np.minimum(c, e), np.maximum(c, e)
    gap = v - u
    p = _POLYNOMIALS[shape]
    # the second factor is a polynomial in t: p(gap + t) outside of c and e, p(gap - t) between them
    shifted = [
        sum(math.comb(k, n) * p[k] * gap ** (k - n) for k in range(n, len(p)))
        for n in range(len(p))
    ]
    outside = [np.zeros_like(gap) for _ in range(2 * len(p) - 1)]
    between = [np.zeros_like(gap) for _ in range(2 * len(p) - 1)]
    for k, factor in enumerate(p):
        for n, other in enumerate(shifted):
            outside[k + n] += factor * other
            between[k + n] += factor * (-1.0) ** n * other
    total = np.zeros_like(gap)
    for end, sign in ((u - low, 1.0), (u - high, -1.0), (high - v, 1.0), (low - v, -1.0)):
        away = _decaying(end)
        for q, a in zip(outside, away, strict=False):
            total += sign * q * a
    start, stop = np.clip(low - u, 0.0, gap), np.clip(high - u, 0.0, gap)
    for n, q in enumerate(between):
        total += q * (stop ** (n + 1) - start ** (n + 1)) / (n + 1)
    return np.asarray(total * np.exp(-gap))


def _decaying(T: Array) -> list[Array]:
    """Return the integrals of t^n exp(-2 t) from 0 to T, n = 0 to 4; 0 if T is not positive."""
    T = np.maximum(T, 0.0)
    e = np.exp(-2.0 * T)
    found, power = [(1.0 - e) / 2.0], np.ones_like(T)
    for n in range(1, 5):
        power = power * T
        found.append((n * found[-1] - power * e) / 2.0)
    return found


def _derivative(shape: str, t: Array, order: int) -> Array:
    """Return a derivative of the similarity as a function of the signed distance t."""
    if shape == "gaussian":
        # the n-th derivative of exp(-t^2/2) is (-1)^n He_n(t) exp(-t^2/2)
        earlier, hermite = np.zeros_like(t), np.ones_like(t)
        for n in range(order):
            earlier, hermite = hermite, t * hermite - n * earlier
        return (-1.0) ** order * hermite * np.exp(-t * t / 2.0)
    s = np.abs(t)
    e = np.exp(-s)
    if shape == "rough":
        return e
    if shape == "once":
        return ((1.0 + s) * e, -t * e, (s - 1.0) * e)[order]
    return (
        (1.0 + s + s * s / 3.0) * e,
        -t * (1.0 + s) / 3.0 * e,
        (s * s - s - 1.0) / 3.0 * e,
    )[order]


def _antiderivative(shape: str, t: Array) -> Array:
    """Return the integral of the similarity from 0 to t; odd in t."""
    from scipy import special

    if shape == "gaussian":
        return np.asarray(math.sqrt(math.pi / 2.0) * special.erf(t / math.sqrt(2.0)))
    s = np.abs(t)
    e = np.exp(-s)
    if shape == "rough":
        found = 1.0 - e
    elif shape == "once":
        found = 2.0 - (2.0 + s) * e
    else:
        found = (8.0 - (8.0 + 5.0 * s + s * s) * e) / 3.0
    return np.asarray(np.sign(t) * found)


class Pairs:
    """The distances between all pairs of n points, for similarities with many different widths.

    Parameters
    ----------
    points : array (n, D)
        The points.
    """

    def __init__(self, points: Array) -> None:
        self.count, self.dimensions = points.shape
        first, second = np.triu_indices(self.count, 1)
        self.away = np.abs(points[first] - points[second]).T.copy()  # (D, n (n - 1) / 2)

    @functools.cached_property
    def _squares(self) -> Array:
        return self.away**2

    def similarities(self, shape: str, widths: Array) -> Array:
        """Return the similarity of each pair."""
        if shape == "gaussian":
            return np.asarray(np.exp(-0.5 * (widths**-2.0 @ self._squares)))
        factors, total = _FACTOR[shape] / widths, np.zeros(self.away.shape[1])
        product = np.ones_like(total)
        for away, factor in zip(self.away, factors, strict=True):
            s = away * factor
            total += s
            if shape == "once":
                product *= 1.0 + s
            elif shape == "twice":
                product *= 1.0 + s + s * s / 3.0
        return np.asarray(product * np.exp(-total))

    def slopes(self, shape: str, widths: Array, weights: Array) -> Array:
        """Return the sums (D,) over pairs of ``weights`` d log(similarity) / d log(width)."""
        if shape == "gaussian":
            return np.asarray(self._squares @ weights / widths**2)
        if shape == "rough":
            return np.asarray(self.away @ weights / widths)
        found, factors = [], _FACTOR[shape] / widths
        for away, factor in zip(self.away, factors, strict=True):
            s = away * factor
            if shape == "once":  # s^2 / (1 + s)
                found.append(float(weights @ (s * s / (1.0 + s))))
            else:  # s^2 (1 + s) / (3 + 3 s + s^2)
                q = s * s
                found.append(float(weights @ (q * (1.0 + s) / (3.0 + 3.0 * s + q))))
        return np.array(found)


def on_axes(similarity: Similarity, centres: Array) -> list[AxisSimilarity]:
    """Return the similarity to centres (P, D) on each axis."""
    return [
        AxisSimilarity(similarity.shape, width, np.ascontiguousarray(centres[:, i]))
        for i, width in enumerate(similarity.widths)
    ]
