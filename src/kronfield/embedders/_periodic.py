"""Periodic shifted bases: the sine and the square wave."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from kronfield._core.arrays import AnyArray, Array, Namespace, fraction, real, whole
from kronfield._core.coordinates import even_axis, even_positions
from kronfield._core.records import record
from kronfield.embedders._base import FINEST, Embedder


class _Periodic(Embedder):
    """psi(frequency (t - x)) at the centres t = i/size."""

    frequency: float

    shape_parameter: ClassVar[str | None] = "frequency"

    def __post_init__(self) -> None:
        remedy = (
            "Frequencies are in cycles per domain; "
            "with 0.5 the similarity falls over the whole domain."
        )
        frequency = real(
            "frequency", self.frequency, low=0.0, high=1 / FINEST, open_low=True, remedy=remedy
        )
        self._set(size=whole("size", self.size, at_least=1), frequency=frequency)

    @property
    def centres(self) -> Array:
        """The centres of the features, float64 of shape (size,)."""
        return np.asarray(even_axis(self.size))

    @property
    def period(self) -> float | None:
        """1 if the frequency is a whole number."""
        return 1.0 if float(self.frequency).is_integer() else None

    def _turns(self, xp: Namespace, x: AnyArray) -> AnyArray:
        return self.frequency * (even_positions(xp, self.size, x)[None, :] - x[:, None])  # (N, K)


@record
class Sine(_Periodic):
    """A shifted sine, sin(2 pi frequency (t - x)): its embedding has rank 2 for any size.

    Examples
    --------
    >>> import numpy as np
    >>> Sine(4, frequency=1.0)(np.array([0.0])).round(2) + 0.0
    array([[ 0.,  1.,  0., -1.]])
    >>> Sine(256, frequency=1.0).stable_rank(1024)
    2.0

    Parameters
    ----------
    size : int
        The number K of features.
    frequency : float
        The frequency, in cycles per domain.
    """

    size: int
    frequency: float

    smoothness: ClassVar[int] = 2

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        angle = 2 * math.pi * self._turns(xp, x)
        rate = -2 * math.pi * self.frequency  # d angle / dx
        wave = (xp.sin, xp.cos, xp.sin)[order](angle)
        return (1.0, rate, -(rate**2))[order] * wave if order else wave

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # D(dx) = cos(2 pi f dx) / 2: exact on [0, 1] if 2f is an integer, else the mean over whole
        # periods.
        return xp.cos(2 * math.pi * self.frequency * dx) / 2

    def _integral(self, low: float, high: float) -> Array:
        rate = 2 * math.pi * self.frequency
        return (np.cos(rate * (self.centres - high)) - np.cos(rate * (self.centres - low))) / rate

    @property
    def rank_limit(self) -> float:
        """2: sin(a - b) = sin a cos b - cos a sin b, and the two singular values are equal."""
        return 2.0

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the frequency itself."""
        del tolerance
        return self.frequency


@record
class Square(_Periodic):
    """A shifted square wave, the sign of sin(2 pi frequency (t - x)).

    Its similarity falls linearly over half a period. This preserves distance perfectly, but the
    rank is hardly higher than that of the sine.

    Examples
    --------
    >>> import numpy as np
    >>> Square(4, frequency=1.0)(np.array([0.1]))
    array([[-1.,  1.,  1., -1.]])
    >>> Square(4, frequency=0.5).similarity(np.array([0.0, 0.5, 1.0]))
    array([ 1.,  0., -1.])

    Parameters
    ----------
    size : int
        The number K of features.
    frequency : float
        The frequency, in cycles per domain.
    """

    size: int
    frequency: float

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        turns = self._turns(xp, x)
        phase = turns - xp.floor(turns)  # in [0, 1)
        return xp.sign(phase) * xp.sign(0.5 - phase)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # A triangle wave: 1 - 4 f |dx| out to half a period.
        turns = self.frequency * dx
        return 1 - 4 * xp.abs(turns - xp.floor(turns + 0.5))

    def _integral(self, low: float, high: float) -> Array:
        # The integral of a square wave is a triangle wave: the distance to the nearest whole
        # period.
        def triangle_wave(u: Array) -> Array:
            turns = self.frequency * u
            return np.asarray(np.abs(turns - np.round(turns)) / self.frequency)

        return triangle_wave(self.centres - low) - triangle_wave(self.centres - high)

    @property
    def rank_limit(self) -> float:
        """pi^2/4, for any frequency."""
        # For whole periods the squares of the Fourier coefficients sum to 1 (Parseval), and the
        # largest square is (2/pi)^2. Any other frequency gives the same matrix, except for signs
        # and the order of rows and columns.
        return math.pi**2 / 4

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the frequency above which all harmonics are below ``tolerance``.

        The amplitude of the odd harmonic m is 1/m of the first.
        """
        return self.frequency / fraction("tolerance", tolerance)
