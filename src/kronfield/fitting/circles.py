"""How well periodic splines and trigonometric polynomials predict a sample, on a periodic axis.

As in `prediction`, every sample is left out alone. The splines then have no knot there. On an even
circle one row serves all samples, so that their errors are a correlation, computed by FFT.

A trigonometric polynomial with N terms is not determined by all N samples but one. Of those that
pass through them, the polynomial whose highest frequencies have the least energy is used. The error
at sample i is then (C y)_i / C_ii, as of any kernel (Wahba, 1990, section 4.2), with the projection
C on these frequencies: it is 0 to rounding if the signal has none. The highest frequencies are an
eighth of all, since a single frequency may be missing by chance.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.embedders import Dirichlet, Embedder, Wrapped
from kronfield.fitting.periods import is_even_circle
from kronfield.fitting.prediction import (
    REACH,
    AnyFamily,
    AxisErrors,
    SplineFamily,
    some_lines,
    uneven_errors,
)
from kronfield.fitting.settings import PredictionSettings

# The largest circle on which the row of an even axis is computed: the influence of a sample 64
# steps away on a spline of degree 9, the widest, is 1e-14.
LARGEST_CIRCLE = 128
# Degrees in the order in which they are preferred, as of `prediction.families`.
DEGREES = (3, 5, 7, 9, 1)


@record
class CircleFamily:
    """Periodic splines of one degree, with knots at the samples."""

    degree: int

    kind = "periodic splines"
    smooth = 0

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters of a candidate."""
        return {"degree": self.degree}

    def embedder(self, axis: Array, frame: Frame) -> Embedder:
        """Return the features for samples at ``axis``."""
        return Wrapped.through(frame.unit(axis), self.degree)

    def fits(self, x: Array, frame: Frame) -> bool:
        """Tell whether an axis can have these splines: every one can."""
        del x, frame
        return True


@record
class TrigonometricFamily:
    """Trigonometric polynomials through even samples of one period.

    If their number is even, the highest cosine must be larger than ``seen`` at the samples.
    """

    seen: float

    kind = "trigonometric"
    smooth = 0

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters of a candidate: none."""
        return {}

    def embedder(self, axis: Array, frame: Frame) -> Embedder:
        """Return the features for samples at ``axis``."""
        del frame
        return Dirichlet(len(axis))

    def fits(self, x: Array, frame: Frame) -> bool:
        """Tell whether samples see the highest cosine of the features."""
        cosine = abs(math.cos(math.pi * len(x) * float(frame.unit(x[0]))))
        return len(x) % 2 == 1 or cosine > self.seen


CIRCLES = tuple(CircleFamily(degree) for degree in DEGREES)


def circle_errors(
    values: Array, axis: int, x: Array, frame: Frame, whole: bool, settings: PredictionSettings
) -> AxisErrors | None:
    """Return the errors along a periodic axis of planar values; None if it is short.

    ``whole`` states whether ``x`` are all samples of the axis, or a part of a longer one.
    """
    assert frame.period is not None
    n = len(x)
    if n < settings.fewest:
        return None
    if whole and is_even_circle(x, frame.period):
        lines = some_lines(values, axis, max(1, settings.most_judged // n))
        squares = [np.mean(_errors(family.degree, lines) ** 2) for family in CIRCLES]
        # in the order of preference: trigonometric polynomials come just before linear splines
        waves = TrigonometricFamily(settings.seen)
        both: tuple[AnyFamily, ...] = (*CIRCLES[:-1], waves, CIRCLES[-1])
        squares.insert(
            len(squares) - 1, np.mean(_trigonometric_errors(lines, settings.highest) ** 2)
        )
        return AxisErrors(both, np.array(squares), math.nan, lines.size)
    lines = some_lines(values, axis, max(1, settings.most_judged // min(n, settings.most_uneven)))
    if whole and n <= 2 * REACH + 2:
        unit = (x - x[0]) / frame.period
        rows = np.stack([[_circle_row(unit, i, one.degree) for i in range(n)] for one in CIRCLES])
        squares = np.mean((rows @ lines) ** 2, axis=(1, 2))
        return AxisErrors(CIRCLES, squares, math.nan, lines.size)
    if whole:  # go round at both ends, as far as samples matter
        steps = np.arange(-REACH, n + REACH)
        x, lines = x[steps % n] + frame.period * (steps // n), lines[steps % n]
    judged = [SplineFamily(one.degree) for one in CIRCLES]
    errors = uneven_errors(judged, x, lines, settings.most_uneven, shared=False)
    return AxisErrors(CIRCLES, errors.squares, math.nan, errors.count)


def _errors(degree: int, lines: Array) -> Array:
    """Return the errors (N, R) of an even circle of samples (N, R): a correlation with one row."""
    n = len(lines)
    small = _even_row(degree, min(n, LARGEST_CIRCLE))
    row = np.zeros(n)
    half = len(small) // 2
    row[: len(small) - half], row[n - half :] = (
        small[: len(small) - half],
        small[len(small) - half :],
    )
    hat = np.conj(np.fft.rfft(row))[:, None] * np.fft.rfft(lines, axis=0)
    return np.asarray(np.fft.irfft(hat, n=n, axis=0))


@functools.lru_cache(maxsize=256)
def _even_row(degree: int, n: int) -> Array:
    """Return the row (N,) from samples on an even circle to the error at sample 0."""
    return _circle_row(np.arange(n) / n, 0, degree)


def _circle_row(x: Array, at: int, degree: int) -> Array:
    """Return the row (N,) from samples on the unit circle to the error at one of them."""
    known = np.arange(len(x)) != at
    ring = Wrapped.through(x[known], degree)
    row = np.zeros(len(x))
    row[at] = 1.0
    # the least-norm solution: a few samples may leave the features undetermined
    row[known] = -np.linalg.lstsq(
        np.asarray(ring(x[known])).T, np.asarray(ring(x[at : at + 1]))[0], rcond=1e-12
    )[0]
    return row


def _trigonometric_errors(lines: Array, highest: float) -> Array:
    """Return the errors (N, R) of trigonometric polynomials at the samples of an even circle.

    The fraction ``highest`` of all frequencies, the highest ones, has the least energy.
    """
    n = len(lines)
    hat = np.fft.rfft(lines, axis=0)
    count = max(1, round(n / 2 * highest))
    hat[:-count] = 0.0
    # a frequency has two coefficients; the highest of an even number of samples has one
    share = (2 * count - (n % 2 == 0)) / n  # C_ii
    return np.asarray(np.fft.irfft(hat, n=n, axis=0)) / share
