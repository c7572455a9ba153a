"""Features on a circle: any local embedder or B-spline wrapped round the unit interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    describe,
    only_keys,
    problem,
    real_numbers,
    whole,
)
from kronfield._core.records import record
from kronfield.embedders._base import Embedder
from kronfield.embedders._bspline import BSpline
from kronfield.embedders._local import LocalEmbedder

# The copies of a feature are summed out to where it falls below this fraction of its peak.
NEGLIGIBLE = 1e-17
# The largest reach of a feature, in turns: wider features are constant up to rounding.
MOST_TURNS = 16
# The length of the interval of B-splines may differ from 1 by this much, because it is a difference
# of rounded positions.
ROUNDING = 1e-12


@record
class Wrapped(Embedder):
    """An embedder whose unit interval is closed to a circle: features have period 1.

    A feature is the sum of its copies at distances of whole periods. The K centres of a local
    embedder are those in the unit interval, i/K. B-splines that divide an interval of length 1 into
    K pieces become K periodic splines: values and derivatives agree where the two ends meet.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield import BSpline, Triangle
    >>> ring = Wrapped(Triangle(4, width=0.5))
    >>> ring(np.array([0.9, -0.1])).round(2)
    array([[0.6, 0. , 0. , 0.4],
           [0.6, 0. , 0. , 0.4]])
    >>> Wrapped(BSpline(8, degree=3)).size
    5

    Parameters
    ----------
    embedder : LocalEmbedder or BSpline
        The features on the line. ``padding`` beyond the unit interval is left out.
    """

    embedder: Embedder

    similarity_is_inner_product: ClassVar[bool] = False

    def __post_init__(self) -> None:
        emb = self.embedder
        if isinstance(emb, LocalEmbedder) and emb.reach(NEGLIGIBLE) < MOST_TURNS:
            size = round(1 / emb.spacing)
            if emb.padding:  # so that encodings with equal features are equal
                self._set(embedder=replace(emb, size=size, padding=0))  # type: ignore[type-var]
        elif isinstance(emb, BSpline) and abs(emb.high - emb.low - 1.0) <= ROUNDING * max(
            1.0, abs(emb.low)
        ):
            size = emb.inner_count + 1
        else:
            raise problem(
                "embedder",
                describe(emb),
                "a local embedder, or B-splines on an interval of length 1",
                "Fourier features and sines of whole frequencies are periodic as they are. "
                "A ShiftedBasis needs a support.",
            )
        self._set(size=size, smoothness=emb.smoothness)
        self._set(similarity_by_quadrature=emb.similarity_by_quadrature)

    @classmethod
    def through(cls, x: Any, degree: int = 3) -> Self:
        """Return periodic splines for interpolation at N sorted positions that span less than 1.

        The knots of an odd degree lie on the samples, those of an even degree half-way between.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.array([0.0, 0.1, 0.3, 0.4, 0.8])
        >>> ring = Wrapped.through(x)
        >>> weights = np.linalg.solve(ring(x), np.sin(2 * np.pi * x))
        >>> bool(np.ptp(ring(np.array([-1e-12, 1e-12])) @ weights) < 1e-10)
        True

        Parameters
        ----------
        x : array of shape (N,)
            Sample positions, rising.
        degree : int
            The degree of the polynomials, 0 to 11.
        """
        x = real_numbers("x", x)
        degree = whole("degree", degree, at_least=0)
        span = float(x[-1] - x[0]) if x.ndim == 1 and len(x) else 1.0
        if span >= 1.0 or not np.all(np.diff(x) > 0):
            raise problem(
                "x",
                describe(x),
                "rising positions (N,), the last less than 1 after the first",
                "Sort them, merge equal positions, and leave out a copy of the first at the end.",
            )
        sites = x if degree % 2 else (x + np.append(x[1:], x[0] + 1.0)) / 2
        # K pieces give K features; a basis of B-splines with clamped ends has `degree` more
        inner = sites[1:] if len(sites) > 1 else None
        low = float(sites[0])
        return cls(BSpline(len(sites) + degree, degree, low=low, high=low + 1.0, inner=inner))

    # The circle cut open: a longer embedder on the line
    # ------------------------------------------------------------------------------------------

    @cached_property
    def unrolled(self) -> LocalEmbedder | BSpline:
        """The embedder on the line, with `offset` more features before the unit interval."""
        emb = self.embedder
        if isinstance(emb, LocalEmbedder):
            p = self.offset
            return replace(emb, size=self.size + 2 * p, padding=p)  # type: ignore[type-var]
        assert isinstance(emb, BSpline)
        k, K = emb.degree, self.size
        index = np.arange(-k, K + k + 1)  # knots t_(j + K) = t_j + 1
        cycle = np.concatenate([[emb.low], emb.inner_knots])
        knots = cycle[index % K] + index // K
        inner = knots[1:-1] if len(knots) > 2 else None
        return BSpline(len(knots) - 1 + k, k, low=knots[0], high=knots[-1], inner=inner)

    @property
    def offset(self) -> int:
        """The index of the feature of `unrolled` that is feature 0 of the circle."""
        emb = self.embedder
        if isinstance(emb, BSpline):
            return emb.degree
        return math.ceil(emb.reach(NEGLIGIBLE) * self.size) + 1

    @property
    def start(self) -> float:
        """Where the circle is cut open."""
        return self.embedder.low if isinstance(self.embedder, BSpline) else 0.0

    @property
    def is_even(self) -> bool:
        """Whether all features are shifted copies of one."""
        if not isinstance(self.embedder, BSpline):
            return True
        unrolled = self.unrolled
        return isinstance(unrolled, BSpline) and unrolled.is_even

    @property
    def spacing(self) -> float:
        """The mean distance between neighbouring features, 1/size."""
        return 1.0 / self.size

    @property
    def knots(self) -> Array:
        """The knots of B-splines on the circle, float64 (size + 1,), the last 1 after the first."""
        assert isinstance(self.embedder, BSpline)
        return np.concatenate([[self.start], self.embedder.inner_knots, [self.start + 1.0]])

    def reduced(self, xp: Namespace, x: AnyArray) -> AnyArray:
        """Return positions shifted by whole periods into [start, start + 1)."""
        return x - xp.floor(x - self.start)

    def folded(self, xp: Namespace, wide: AnyArray) -> AnyArray:
        """Return features (P, size): sums of the columns of `unrolled` that are copies."""
        P, columns = wide.shape
        before = -self.offset % self.size  # so that column 0 is feature 0
        after = -(before + columns) % self.size
        like: dict[str, Any] = {"dtype": wide.dtype, "device": wide.device}
        parts = [xp.zeros((P, before), **like), wide, xp.zeros((P, after), **like)]
        filled = xp.concat([part for part in parts if part.shape[1]], axis=1)
        turns = filled.shape[1] // self.size
        return xp.sum(xp.reshape(filled, (P, turns, self.size)), axis=1)

    # The formulas
    # ------------------------------------------------------------------------------------------

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        # sum_m psi(t - x + m)
        return self.folded(xp, self.unrolled.features(xp, self.reduced(xp, x), order))

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # the integral over the circle: sum_m D(dx + m)
        if not self.is_even:
            return self.embedder.similarity(dx)  # raises an error with the reason
        nearest = dx - xp.floor(dx + 0.5)
        if isinstance(self.embedder, BSpline):
            turns = math.ceil((self.embedder.degree + 1) * self.spacing + 0.5)
            line: Embedder = self.unrolled
        else:
            turns, line = math.ceil(2 * self.embedder.reach(NEGLIGIBLE) + 0.5), self.embedder
        total = line.similarity(nearest)
        for m in range(1, turns + 1):
            total = total + line.similarity(nearest + m) + line.similarity(nearest - m)
        return total

    def _integral(self, low: float, high: float) -> Array:
        if high < low:
            return -self._integral(high, low)
        start, end = self.start, self.start + 1.0
        turns = math.floor(high - low)
        a = low - math.floor(low - start)
        b = a + (high - low - turns)
        pieces = [(a, min(b, end))] + ([(start, b - 1.0)] if b > end else [])
        if turns:
            whole_turn = self.unrolled.integral(start, end)
            total = turns * whole_turn
        else:
            total = np.zeros(self.unrolled.size)
        for piece in pieces:
            total = total + self.unrolled.integral(*piece)
        return np.asarray(self.folded(np, total[None, :])[0])

    @property
    def period(self) -> float | None:
        """The period, in units of the domain: 1."""
        return 1.0

    @property
    def centres(self) -> Array | None:
        """The centres of the features on the circle, float64 (size,), in [0, 1)."""
        if isinstance(self.embedder, LocalEmbedder):
            return self.embedder.centres
        centres = self.unrolled.centres
        assert centres is not None
        found = centres[self.offset : self.offset + self.size]
        return np.asarray(found - np.floor(found))

    def reach(self, tolerance: float = 1e-6) -> float:
        """Return the distance beyond which a feature is below ``tolerance`` of its peak."""
        return self.embedder.reach(tolerance)

    @property
    def rank_limit(self) -> float | None:
        """The limit of the embedder on the line; None if the features are uneven."""
        return self.embedder.rank_limit if self.is_even else None

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the bandwidth of the embedder on the line."""
        return self.embedder.bandwidth(tolerance)

    # Saving
    # ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the embedder as plain data that JSON can represent."""
        return {"kind": type(self).__name__, "embedder": self.embedder.to_dict()}

    @classmethod
    def _from_fields(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
    ) -> Embedder:
        only_keys(cls.__name__, data, ["kind", "embedder"])
        return cls(Embedder.from_dict(data["embedder"], functions))

    def __reduce__(self) -> Any:
        return type(self), (self.embedder,)

    def __repr__(self) -> str:
        return f"Wrapped({self.embedder!r})"


@record
class Dirichlet(Embedder):
    """Dirichlet's kernel: trigonometric interpolation of K even samples on a circle.

    The features are 1 at their own centre i/K and 0 at all others, so that weights are samples. A
    signal without frequencies above K/2 cycles per period is reproduced to rounding, and its
    derivatives and integrals too. For an even size, the highest frequency has only a cosine.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(8) / 8
    >>> wave = np.cos(2 * np.pi * (3 * x - 0.1))
    >>> (Dirichlet(8)(np.array([0.7])) @ wave).round(6), np.cos(2 * np.pi * 2).round(6)
    (array([1.]), np.float64(1.0))

    Parameters
    ----------
    size : int
        The number K of features.
    """

    size: int

    smoothness: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._set(size=whole("size", self.size, at_least=1))

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        # kernel(t_j - x) = 1/K sum_k exp(2 pi i k (j/K - x)): an inverse FFT of exp(-2 pi i k x)
        wide = xp.astype(x, xp.float64, copy=False)
        wide = wide - xp.floor(wide)
        k = xp.arange(self.size // 2 + 1, dtype=xp.float64, device=x.device)
        angle = 2 * math.pi * k[None, :] * wide[:, None]
        cosine, sine = xp.cos(angle), xp.sin(angle)
        rate = 2 * math.pi * k
        # exp(-i angle) and its derivatives with respect to x
        parts = {
            0: (cosine, -sine),
            1: (-rate * sine, -rate * cosine),
            2: (-(rate**2) * cosine, rate**2 * sine),
        }[order]
        spectrum = xp.astype(parts[0], xp.complex128) + 1j * xp.astype(parts[1], xp.complex128)
        rows = xp.fft.irfft(spectrum, n=self.size, axis=1)
        return xp.astype(rows, x.dtype, copy=False)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # The integral over the circle is kernel(dx)/K; for an even size, with half of the cosine of
        # frequency K/2.
        flat = xp.reshape(xp.astype(dx, xp.float64, copy=False), (-1,))
        total = self.features(xp, flat, 0)[:, 0] / self.size
        if self.size % 2 == 0:
            total = total - xp.cos(math.pi * self.size * flat) / (2 * self.size**2)
        return xp.astype(xp.reshape(total, dx.shape), dx.dtype, copy=False)

    def _integral(self, low: float, high: float) -> Array:
        # each frequency is integrated separately, as for Fourier features
        k, middle, length = np.arange(self.size // 2 + 1), (low + high) / 2, high - low
        spectrum = length * np.sinc(k * length) * np.exp(-2j * math.pi * k * middle)
        return np.fft.irfft(spectrum, n=self.size)

    @property
    def centres(self) -> Array:
        """The centres of the features, float64 of shape (size,)."""
        return np.arange(self.size) / self.size

    @property
    def period(self) -> float | None:
        """The period, in units of the domain: 1."""
        return 1.0

    @property
    def rank_limit(self) -> float:
        """The size; half less if it is even, since the cosine of the highest frequency is alone."""
        return float(self.size) if self.size % 2 else self.size - 0.5

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the highest frequency, size/2."""
        del tolerance
        return self.size / 2


def periodic_form(embedder: Embedder) -> Embedder:
    """Return an embedder of period 1 with the same features, or raise an error that says why not.

    Examples
    --------
    >>> from kronfield import Gaussian, Sine
    >>> periodic_form(Gaussian(8, 0.1))
    Wrapped(Gaussian(size=8, width=0.1, padding=0))
    >>> periodic_form(Sine(8, 2.0))
    Sine(size=8, frequency=2.0)
    """
    if embedder.period is not None:
        return embedder
    if isinstance(embedder, LocalEmbedder | BSpline):
        return Wrapped(embedder)
    raise problem(
        "encoding",
        repr(embedder),
        "features of period 1 on a periodic axis",
        "Use whole frequencies, a local embedder, or Dirichlet.",
    )
