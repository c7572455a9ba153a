"""Local shifted bases: Impulse, Rectangle, Triangle, Gaussian."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    clip,
    fraction,
    problem,
    real,
    to_numpy,
    whole,
)
from kronfield._core.coordinates import even_axis
from kronfield._core.records import record
from kronfield.embedders._base import FINEST, Embedder
from kronfield.embedders._quadrature import autocorrelation


class LocalEmbedder(Embedder):
    """psi(t - x) at the centres t = (i - padding)/(size - 2 padding), i = 0 ... size-1."""

    padding: int | str

    @abstractmethod
    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        """Return the order-th derivative of psi at u = t - x."""

    @abstractmethod
    def _antiderivative(self, u: Array) -> Array:
        """Return an antiderivative of psi at u."""

    def _integral(self, low: float, high: float) -> Array:
        # The integral of psi(t - x) over x from low to high is F(t - low) - F(t - high).
        return self._antiderivative(self.centres - low) - self._antiderivative(self.centres - high)

    @property
    def spacing(self) -> float:
        """The distance between neighbouring centres: 1/size, or 1/(size - 2 padding)."""
        return 1.0 / self._inside

    @property
    def centres(self) -> Array:
        """The centres of the features, float64 of shape (size,)."""
        return np.asarray(self._centres(np, np.empty(0)))

    @property
    def _inside(self) -> int:
        assert isinstance(self.padding, int)
        return self.size - 2 * self.padding

    def _centres(
        self, xp: Namespace, like: AnyArray, start: int = 0, stop: int | None = None
    ) -> AnyArray:
        last = self.size if stop is None else stop
        whole_numbers = xp.arange(start, last, dtype=like.dtype, device=like.device)
        return (whole_numbers - self.padding) / self._inside

    def features(
        self, xp: Namespace, x: AnyArray, order: int, start: int = 0, stop: int | None = None
    ) -> AnyArray:
        """Return the features, or only those from ``start`` to ``stop``: often few are nonzero."""
        u = self._centres(xp, x, start, stop)[None, :] - x[:, None]  # (N, K)
        values = self.psi(xp, u, order)
        return -values if order % 2 else values  # d/dx psi(t - x) = -psi'(t - x)

    def window(self, tolerance: float, *, rim: bool) -> tuple[float, int] | None:
        """Return where the features near a position begin, and their number; None if unbounded.

        All other features are 0 there, or below ``tolerance`` of their peak. For a position x the
        first is floor(x/spacing + begin). Features whose rim lies at x are included if they may
        jump there, or with ``rim``, since they have a slope.
        """
        reach = self.reach(tolerance)
        low, high = self.support or (-reach, reach)
        if not math.isfinite(reach):
            return None
        begin, length = low * self._inside + self._padding, (high - low) * self._inside
        # a length of 2 spacings may be computed as 2 + eps
        inside = math.ceil(length * (1 - 8 * FINEST))
        if rim or not self._vanishes_at_rim:
            # half a spacing of room for rounding: floor(s + 1/2) + inside >= floor(s + length)
            return begin + 0.5, inside + 1
        return begin + 1, inside

    @property
    def _vanishes_at_rim(self) -> bool:
        """Whether psi is continuous where its support ends."""
        return False

    @property
    def _padding(self) -> int:
        assert isinstance(self.padding, int)
        return self.padding

    def nearby(
        self, xp: Namespace, x: AnyArray, begin: float, count: int
    ) -> tuple[AnyArray, AnyArray]:
        """Return the index of the first of ``count`` features near x (N,), and them (N, count).

        ``begin`` and ``count`` are those of `window`, and ``count`` is at most the size. Indices
        are whole floats; near the ends, and for NaN, they are moved to features that exist.
        """
        first = xp.floor(x * self._inside + begin)
        first = xp.where(xp.isnan(first), xp.zeros_like(first), first)
        first = clip(xp, first, 0, self.size - count)
        steps = xp.arange(count, dtype=x.dtype, device=x.device)
        centres = (first[:, None] + steps[None, :] - self._padding) / self._inside
        return first, self.psi(xp, centres - x[:, None], 0)

    def on_line(self, u: Array) -> Array:
        return np.asarray(self.psi(np, np.asarray(u, dtype=np.float64), 0))

    def _quadrature_similarity(
        self, xp: Namespace, dx: AnyArray, interval: tuple[float, float], *, compact: bool = True
    ) -> AnyArray:
        if getattr(dx, "requires_grad", False):
            raise problem(
                "dx",
                "a tensor that requires a gradient",
                "a tensor that requires none",
                "Quadrature has no gradient.",
            )
        values = autocorrelation(self.on_line, interval, to_numpy(dx), compact=compact)
        return xp.asarray(values, dtype=dx.dtype, device=dx.device)

    def _check_layout(self) -> None:
        """Check size and padding; replace "auto" by the padding that covers the ends to `reach`."""
        size = whole("size", self.size, at_least=1)
        padding = self.padding
        if isinstance(padding, str):
            if padding != "auto":
                raise problem(
                    "padding", repr(padding), 'a whole number >= 0, or "auto"', "Pass an int."
                )
            # With M = size - 2p centres inside: p/M >= reach on the left, (p - 1)/M >= reach on
            # the right.
            reach = self.reach()
            if not math.isfinite(reach):
                raise problem(
                    "padding",
                    '"auto"',
                    "a number, for features without a bounded support",
                    "Pass support= or a number.",
                )
            padding = math.ceil((reach * size + 1) / (1 + 2 * reach))
        padding = whole("padding", padding, at_least=0)
        if size - 2 * padding < 1:
            raise problem(
                "padding",
                f"{padding} on each side of {size} centres",
                "at least one centre left inside the unit interval",
                "Raise size, or lower padding or width.",
            )
        self._set(size=size, padding=padding)

    def _check_width(self, width: Any) -> float:
        return real(
            "width",
            width,
            low=FINEST,
            high=1e12,
            remedy="Widths are in units of the domain, whose length is 1.",
        )


@record
class Impulse(LocalEmbedder):
    """One-hot encoding of the nearest centre: full rank, and no similarity between neighbours.

    A position halfway between two centres belongs to the right centre. Beyond the ends the
    outermost centre is nearest. Averaged over positions, this is a `Rectangle` of one spacing and
    has the same similarity.

    Examples
    --------
    >>> import numpy as np
    >>> Impulse(4)(np.array([0.0, 0.3]))
    array([[1., 0., 0., 0.],
           [0., 1., 0., 0.]])

    Parameters
    ----------
    size : int
        The number K of features.
    padding : int or "auto"
        The number of centres beyond each end of the unit interval.
    """

    size: int
    padding: int | str = 0

    def __post_init__(self) -> None:
        self._check_layout()

    def features(
        self, xp: Namespace, x: AnyArray, order: int, start: int = 0, stop: int | None = None
    ) -> AnyArray:
        index = self.nearest(xp, x)
        last = self.size if stop is None else stop
        features = xp.arange(start, last, dtype=x.dtype, device=x.device)
        return xp.astype(index[:, None] == features[None, :], x.dtype)

    def _integral(self, low: float, high: float) -> Array:
        edges = np.concatenate([[-np.inf], (self.centres[1:] + self.centres[:-1]) / 2, [np.inf]])
        return np.diff(np.clip(edges, min(low, high), max(low, high))) * (
            1.0 if high >= low else -1.0
        )

    def _antiderivative(self, u: Array) -> Array:
        raise NotImplementedError  # see psi

    def window(self, tolerance: float, *, rim: bool) -> tuple[float, int] | None:
        return None  # see psi

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # not a function of t - x alone: the outermost centres reach further
        raise NotImplementedError

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        return _box_overlap(xp, dx, self.spacing)

    @property
    def support(self) -> tuple[float, float]:
        """Half a spacing to either side; further out at the ends of the domain."""
        # With padding="auto" the spacing is not known yet: assume 1/size.
        spacing = self.spacing if isinstance(self.padding, int) else 1.0 / self.size
        return (-spacing / 2, spacing / 2)

    def stable_rank(self, n: int) -> float:
        """Return ``n`` divided by the largest number of even positions that share a centre."""
        count = whole("n", n, at_least=1)
        index = np.asarray(self.nearest(np, even_axis(count)), dtype=np.int64)
        return count / int(np.bincount(index).max())

    def nearest(self, xp: Namespace, x: AnyArray) -> AnyArray:
        index = xp.floor(x * self._inside + 0.5 + _slack(xp, x, self._inside)) + self.padding
        return xp.clip(index, 0, self.size - 1)


@record
class Rectangle(LocalEmbedder):
    """A box: 1 where -width/2 <= x - t < width/2, else 0. It gives nearest-neighbour regression.

    Examples
    --------
    >>> import numpy as np
    >>> Rectangle(4, width=0.5)(np.array([0.3]))
    array([[0., 1., 1., 0.]])
    >>> Rectangle(1024, width=0.05).stable_rank(1024)
    20.0

    Parameters
    ----------
    size : int
        The number K of features.
    width : float
        The full width of the box, in units of the domain.
    padding : int or "auto"
        The number of centres beyond each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # -half <= x - t < half, in spacings. Positions within rounding error of an edge count as on
        # the edge.
        half = self.width / 2 * self._inside
        z = -u * self._inside + _slack(xp, u, self._inside)
        return xp.astype((z >= -half) & (z < half), u.dtype)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        return _box_overlap(xp, dx, self.width)

    def _antiderivative(self, u: Array) -> Array:
        return np.clip(u, -self.width / 2, self.width / 2)

    @property
    def rank_limit(self) -> float:
        """1/width."""
        return 1.0 / self.width

    @property
    def support(self) -> tuple[float, float]:
        """Half the width to either side."""
        return (-self.width / 2, self.width / 2)

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the f at which the envelope 1/(pi w f) of |sinc(w f)| equals ``tolerance``."""
        return 1.0 / (math.pi * self.width * fraction("tolerance", tolerance))


def _slack(xp: Namespace, like: AnyArray, per_unit: int) -> float:
    """Return the rounding error of a position on the unit interval, in spacings."""
    return 4 * per_unit * float(xp.finfo(like.dtype).eps)


def _box_overlap(xp: Namespace, dx: AnyArray, width: float) -> AnyArray:
    overlap = width - xp.abs(dx)  # D(dx) = max(w - |dx|, 0)
    return xp.maximum(overlap, xp.zeros_like(overlap))


@record
class Triangle(LocalEmbedder):
    """A hat: max(1 - |t - x| / (width/2), 0). It gives linear interpolation if width = 2/size.

    Examples
    --------
    >>> import numpy as np
    >>> Triangle(4, width=0.5)(np.array([0.3])).round(2)
    array([[0. , 0.8, 0.2, 0. ]])
    >>> round(Triangle(1024, width=0.05).stable_rank(1024), 2)
    26.67

    Parameters
    ----------
    size : int
        The number K of features.
    width : float
        The FULL width of the hat's support, in units of the domain.
    padding : int or "auto"
        The number of centres beyond each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    smoothness: ClassVar[int] = 1
    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    @property
    def _vanishes_at_rim(self) -> bool:
        return True

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        half = self.width / 2
        height = 1 - xp.abs(u) / half
        if order == 0:
            return xp.maximum(height, xp.zeros_like(height))
        # The slope is -sign(u)/half inside and 0 outside. On the rim and at the tip it is the mean
        # of both sides. Positions within rounding error of rim or tip count as on it.
        slack = 8 * float(xp.finfo(u.dtype).eps)
        tip, rim = (
            xp.where(xp.abs(z) > slack, xp.sign(z), xp.zeros_like(z)) for z in (u, height * half)
        )
        return -tip * (1 + rim) / (2 * half)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # A hat convolved with itself is the cubic B-spline of v = |dx| / half.
        half = self.width / 2
        v = xp.minimum(xp.abs(dx) / half, 2 * xp.ones_like(dx))
        inner = 2 / 3 - v**2 + v**3 / 2
        tail = 2 - v
        outer = xp.maximum(tail, xp.zeros_like(tail)) ** 3 / 6
        return half * xp.where(v < 1, inner, outer)

    def _antiderivative(self, u: Array) -> Array:
        v = np.clip(u / (self.width / 2), -1.0, 1.0)
        return self.width / 2 * (v - v * np.abs(v) / 2)

    @property
    def rank_limit(self) -> float:
        """4/(3 width)."""
        return 4.0 / (3.0 * self.width)

    @property
    def support(self) -> tuple[float, float]:
        """Half the width to either side."""
        return (-self.width / 2, self.width / 2)

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the f at which the envelope 1/(pi w f/2)^2 of sinc^2(w f/2) is ``tolerance``."""
        return 2.0 / (math.pi * self.width * math.sqrt(fraction("tolerance", tolerance)))


@record
class Gaussian(LocalEmbedder):
    """A Gaussian bell: exp(-(t - x)^2 / (2 width^2)).

    Examples
    --------
    >>> import numpy as np
    >>> Gaussian(4, width=0.1)(np.array([0.25])).round(3)
    array([[0.044, 1.   , 0.044, 0.   ]])
    >>> round(Gaussian(1024, width=0.01).stable_rank(1024), 2)
    28.21

    Parameters
    ----------
    size : int
        The number K of features.
    width : float
        The standard deviation, in units of the domain.
    padding : int or "auto"
        The number of centres beyond each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    smoothness: ClassVar[int] = 2
    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    @property
    def _vanishes_at_rim(self) -> bool:
        return True

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # beyond these limits the bell is 0; without them, inf times 0 would be NaN
        z = clip(xp, u / self.width, -1e4, 1e4)
        bell = xp.exp(-(z * z) / 2)
        if order == 0:
            return bell
        if order == 1:
            return -z * bell / self.width
        return (z * z - 1) * bell / self.width**2

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # D(dx) = sqrt(pi) width exp(-dx^2 / (4 width^2))
        z = dx / self.width
        return math.sqrt(math.pi) * self.width * xp.exp(-(z * z) / 4)

    def _antiderivative(self, u: Array) -> Array:
        from scipy.special import erf

        return np.asarray(
            self.width * math.sqrt(math.pi / 2) * erf(u / (self.width * math.sqrt(2.0)))
        )

    @property
    def rank_limit(self) -> float:
        """1/(2 sqrt(pi) width)."""
        return 1.0 / (2.0 * math.sqrt(math.pi) * self.width)

    def reach(self, tolerance: float = 1e-6) -> float:
        """Return the distance where the bell has fallen to ``tolerance``."""
        return self.width * math.sqrt(-2.0 * math.log(fraction("tolerance", tolerance)))

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the f at which the spectrum exp(-2 (pi width f)^2) equals ``tolerance``."""
        return math.sqrt(-math.log(fraction("tolerance", tolerance)) / 2.0) / (math.pi * self.width)
