"""Fourier features: cosines and sines at random, linear or log-linear frequencies."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    fraction,
    namespace,
    point_array,
    problem,
    real,
    whole,
)
from kronfield._core.records import record
from kronfield.embedders._base import FINEST, Embedder

Frequencies = Array

# Above 2^52 cycles, a float64 coordinate on the unit interval does not resolve the phase.
LARGEST_EXPONENT = 52


class FourierEmbedder(Embedder):
    """cos(2 pi b x) and sin(2 pi b x) for size/2 frequencies b."""

    smoothness: ClassVar[int] = 2
    similarity_is_inner_product: ClassVar[bool] = True
    #: Whether the order is cos, sin, cos, sin, ... or all cosines first, as in the paper.
    _interleaved: ClassVar[bool] = True

    @property
    def frequencies(self) -> Frequencies:
        """The size/2 frequencies, in cycles per domain."""
        b = self.frequency_vectors
        return (b[:, 0] if self.dimensions == 1 else b).copy()

    @property
    def frequency_vectors(self) -> Frequencies:
        """The frequencies as (size/2, dimensions)."""
        raise NotImplementedError

    @property
    def period(self) -> float | None:
        """1 if all frequencies are whole numbers."""
        b = self.frequency_vectors
        return 1.0 if self.dimensions == 1 and bool(np.all(b == np.floor(b))) else None

    def _check_size(self) -> int:
        size = whole("size", self.size, at_least=2)
        if size % 2:
            raise problem(
                "size",
                size,
                "an even number",
                "Every frequency gives two features, a cosine and a sine.",
            )
        return size

    def _turns(self, xp: Namespace, x: AnyArray) -> AnyArray:
        """Return b . x for every frequency, (..., size/2); ``x`` is (...), or (..., D) if D > 1."""
        b = xp.asarray(self.frequency_vectors, dtype=x.dtype, device=x.device)
        columns = [x] if self.dimensions == 1 else [x[..., a] for a in range(self.dimensions)]
        turns = columns[0][..., None] * b[:, 0]
        for a, column in enumerate(columns[1:], start=1):
            # Sum over axes: the rounding of a matrix product would depend on the size of the batch.
            turns = turns + column[..., None] * b[:, a]
        return turns

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        angle = 2 * math.pi * self._turns(xp, x)  # (N, K/2)
        cosine, sine = xp.cos(angle), xp.sin(angle)
        if order:
            rate = 2 * math.pi * xp.asarray(self.frequencies, dtype=x.dtype, device=x.device)
            pairs = {1: (-rate * sine, rate * cosine), 2: (-(rate**2) * cosine, -(rate**2) * sine)}
            cosine, sine = pairs[order]
        both = xp.stack([cosine, sine], axis=2 if self._interleaved else 1)
        return xp.reshape(both, (x.shape[0], self.size))

    def _integral(self, low: float, high: float) -> Array:
        # The mean of cos(2 pi b x) over an interval is its value at the midpoint times
        # sinc(b length).
        b, middle = self.frequencies, (low + high) / 2
        mean = (high - low) * np.sinc(b * (high - low))
        both = [mean * np.cos(2 * math.pi * b * middle), mean * np.sin(2 * math.pi * b * middle)]
        return np.stack(both, axis=1 if self._interleaved else 0).reshape(self.size)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # D(dx) = sum_j cos(2 pi b_j dx), exactly the inner product of the two rows of features.
        return xp.sum(xp.cos(2 * math.pi * self._turns(xp, dx)), axis=-1)


@record
class RandomFourier(FourierEmbedder):
    """Random Fourier features (Rahimi and Recht, 2007), with normally distributed frequencies.

    Examples
    --------
    >>> import numpy as np
    >>> rff = RandomFourier(8, scale=10.0, seed=0)
    >>> rff(np.array([0.0])) + 0.0
    array([[1., 1., 1., 1., 0., 0., 0., 0.]])
    >>> float(rff.similarity(0.0))
    4.0

    Parameters
    ----------
    size : int
        The number of features: twice the number of frequencies.
    scale : float
        The standard deviation of the frequencies, in cycles per domain.
    seed : int
        The seed of the frequencies; the same seed gives the same features.
    dimensions : int
        For D > 1 the frequencies are D-vectors and positions are (N, D), as in the paper's N-D RFF.

    References
    ----------
    A. Rahimi and B. Recht, Random features for large-scale kernel machines, NIPS 2007.
    """

    size: int
    scale: float
    seed: int = 0
    dimensions: int = 1

    shape_parameter: ClassVar[str | None] = "scale"
    _interleaved: ClassVar[bool] = False

    def __post_init__(self) -> None:
        remedy = "The scale is the spread of the frequencies, in cycles per domain."
        scale = real("scale", self.scale, low=0.0, high=1 / FINEST, open_low=True, remedy=remedy)
        seed = whole("seed", self.seed, at_least=0)
        self._set(size=self._check_size(), scale=scale, seed=seed)
        self._set(dimensions=whole("dimensions", self.dimensions, at_least=1))

    @functools.cached_property
    def frequency_vectors(self) -> Frequencies:
        shape = (self.size // 2, self.dimensions)
        return self.scale * np.random.default_rng(self.seed).standard_normal(shape)

    def _positions(self, x: Any) -> AnyArray:
        return (
            super()._positions(x) if self.dimensions == 1 else point_array("x", x, self.dimensions)
        )

    def expected_similarity(self, dx: Any) -> AnyArray:
        """Return the mean of `similarity` over all draws, (size/2) exp(-2 (pi scale |dx|)^2)."""
        dx = self._shifts(dx)
        xp = namespace(dx)
        squared = dx**2 if self.dimensions == 1 else xp.sum(dx**2, axis=-1)
        return self.size / 2 * xp.exp(-2 * (math.pi * self.scale) ** 2 * squared)

    @property
    def rank_limit(self) -> float:
        """(sqrt(2 pi) scale)^dimensions."""
        return (math.sqrt(2 * math.pi) * self.scale) ** self.dimensions

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the frequency f where the singular values have fallen to ``tolerance``.

        They fall as exp(-f^2 / (4 scale^2)).
        """
        return 2 * self.scale * math.sqrt(-math.log(fraction("tolerance", tolerance)))


class _Spread(FourierEmbedder):
    """Frequencies spread from 2^0 up to, but excluding, 2^exponent."""

    exponent: float

    shape_parameter: ClassVar[str | None] = "exponent"

    def __post_init__(self) -> None:
        remedy = "Frequencies run from 2^0 to 2^exponent cycles per domain."
        exponent = real("exponent", self.exponent, low=0.0, high=LARGEST_EXPONENT, remedy=remedy)
        self._set(size=self._check_size(), exponent=exponent)

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the upper end of the frequencies, 2^exponent."""
        del tolerance
        return float(2.0**self.exponent)


@record
class LinearFourier(_Spread):
    """Fourier features at linearly spaced frequencies.

    The frequencies are (1 - i/F) 2^0 + (i/F) 2^exponent for i = 0 ... F-1.

    Examples
    --------
    >>> LinearFourier(8, exponent=3.0).frequencies
    array([1.  , 2.75, 4.5 , 6.25])

    Parameters
    ----------
    size : int
        The number of features: twice the number F of frequencies.
    exponent : float
        The range of frequencies is from 1 to 2^exponent cycles per domain.
    """

    size: int
    exponent: float

    @functools.cached_property
    def frequency_vectors(self) -> Frequencies:
        part = np.arange(self.size // 2)[:, None] / (self.size // 2)
        return np.asarray((1 - part) + part * 2.0**self.exponent)

    @property
    def rank_limit(self) -> float | None:
        """2 (2^exponent - 1), the two-sided width of the flat spectrum; None if exponent < 3."""
        # On a domain of length 1 each frequency is blurred over one cycle, so the theory needs a
        # band of many cycles.
        return 2.0 * (2.0**self.exponent - 1) if self.exponent >= 3 else None


@record
class LogFourier(_Spread):
    """Fourier features at log-linearly spaced frequencies, 2^(exponent i/F) for i = 0 ... F-1.

    Examples
    --------
    >>> LogFourier(8, exponent=4.0).frequencies
    array([1., 2., 4., 8.])

    Parameters
    ----------
    size : int
        The number of features: twice the number F of frequencies.
    exponent : float
        The range of frequencies is from 1 to 2^exponent cycles per domain.
    """

    size: int
    exponent: float

    @functools.cached_property
    def frequency_vectors(self) -> Frequencies:
        part = np.arange(self.size // 2)[:, None] / (self.size // 2)
        return np.asarray(np.power(2.0, self.exponent * part), dtype=np.float64)
