"""Shifted bases that are local: Impulse, Rectangle, Triangle, Gaussian, and any function of the user's."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kronfield._arrays import Array, Namespace, describe, only_keys, problem, real, to_numpy, whole
from kronfield.embedders._base import FINEST, Embedder
from kronfield.embedders._quadrature import autocorrelation, magnitude_spectrum, vector_integral


class LocalEmbedder(Embedder):
    """psi(t - x) at the centres t = (i - padding)/(size - 2 padding), i = 0 ... size-1."""

    padding: int | str

    @abstractmethod
    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        """Return the order-th derivative of psi at u = t - x."""

    @abstractmethod
    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a function whose derivative is psi, at u."""

    def _integral(self, low: float, high: float) -> np.ndarray[Any, Any]:
        # The integral of psi(t - x) over x from low to high is F(t - low) - F(t - high).
        return self._antiderivative(self.centres - low) - self._antiderivative(self.centres - high)

    @property
    def spacing(self) -> float:
        """The distance between neighbouring centres: 1/size, or 1/(size - 2 padding)."""
        return 1.0 / self._inside

    @property
    def centres(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Where the features sit, float64 of shape (size,)."""
        return np.asarray(self._centres(np, np.empty(0)))

    @property
    def _inside(self) -> int:
        assert isinstance(self.padding, int)
        return self.size - 2 * self.padding

    def _centres(self, xp: Namespace, like: Array) -> Array:
        whole_numbers = xp.arange(self.size, dtype=like.dtype, device=like.device)
        return (whole_numbers - self.padding) / self._inside

    def _features(self, xp: Namespace, x: Array, order: int, start: int = 0, stop: int | None = None) -> Array:
        """Return the features, or only those from ``start`` to ``stop``: what lies within reach is often a few."""
        u = self._centres(xp, x)[None, start:stop] - x[:, None]  # (N, K)
        values = self._psi(xp, u, order)
        return -values if order % 2 else values  # d/dx psi(t - x) = -psi'(t - x)

    def _check_layout(self) -> None:
        """Check size and padding; "auto" becomes the number that covers the ends out to `reach`."""
        size = whole("size", self.size, at_least=1)
        padding = self.padding
        if isinstance(padding, str):
            if padding != "auto":
                raise problem("padding", repr(padding), 'a whole number >= 0, or "auto"', "Pass an int.")
            # On the left p/M >= reach, on the right (p - 1)/M >= reach, with M = size - 2p centres inside.
            reach = self.reach()
            padding = math.ceil((reach * size + 1) / (1 + 2 * reach)) if math.isfinite(reach) else size
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
        return real("width", width, low=FINEST, high=1e12, remedy="Widths are in units of the domain, whose length is 1.")


@dataclass(frozen=True)
class Impulse(LocalEmbedder):
    """One-hot of the nearest centre: full rank, and no likeness between neighbours.

    A position half-way between two centres belongs to the right one; beyond the ends the outermost centre is nearest.
    Averaged over positions this is a `Rectangle` one spacing wide, and its similarity is that box's.

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
        How many of them lie past each end of the unit interval.
    """

    size: int
    padding: int | str = 0

    def __post_init__(self) -> None:
        self._check_layout()

    def _features(self, xp: Namespace, x: Array, order: int, start: int = 0, stop: int | None = None) -> Array:
        index = xp.floor(x * self._inside + 0.5) + self.padding
        index = xp.clip(index, 0, self.size - 1)
        features = xp.arange(self.size, dtype=x.dtype, device=x.device)[None, start:stop]
        return xp.astype(index[:, None] == features, x.dtype)

    def _integral(self, low: float, high: float) -> np.ndarray[Any, Any]:
        edges = np.concatenate([[-np.inf], (self.centres[1:] + self.centres[:-1]) / 2, [np.inf]])
        return np.diff(np.clip(edges, min(low, high), max(low, high))) * (1.0 if high >= low else -1.0)

    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raise NotImplementedError  # see _psi

    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        raise NotImplementedError  # not a function of t - x alone: the outermost centres reach further

    def _similarity(self, xp: Namespace, dx: Array) -> Array:
        return _box_overlap(xp, dx, self.spacing)

    @property
    def support(self) -> tuple[float, float]:
        """Half a spacing to either side; further out at the ends of the domain."""
        # padding="auto" asks before the spacing is known; half of 1/size is then what one centre more would give
        spacing = self.spacing if isinstance(self.padding, int) else 1.0 / self.size
        return (-spacing / 2, spacing / 2)

    def stable_rank(self, n: int) -> float:
        """Return the stable rank for ``n`` evenly spaced positions: n over the most that share one centre."""
        count = whole("n", n, at_least=1)
        index = np.floor(np.arange(count) / count * self._inside + 0.5) + self.padding
        index = np.clip(index, 0, self.size - 1).astype(np.int64)
        return count / int(np.bincount(index).max())


@dataclass(frozen=True)
class Rectangle(LocalEmbedder):
    """A box: 1 where -width/2 <= x - t < width/2, else 0. Nearest-neighbour regression.

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
        How many centres lie past each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        half = self.width / 2
        return xp.astype((u > -half) & (u <= half), u.dtype)  # u = t - x, so half-open on the other side

    def _similarity(self, xp: Namespace, dx: Array) -> Array:
        return _box_overlap(xp, dx, self.width)

    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
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
        """Return where the envelope 1/(pi w f) of |sinc(w f)| falls below ``tolerance``."""
        return 1.0 / (math.pi * self.width * _fraction(tolerance))


def _box_overlap(xp: Namespace, dx: Array, width: float) -> Array:
    overlap = width - xp.abs(dx)  # D(dx) = max(w - |dx|, 0)
    return xp.maximum(overlap, xp.zeros_like(overlap))


@dataclass(frozen=True)
class Triangle(LocalEmbedder):
    """A hat: max(1 - |t - x| / (width/2), 0). Linear interpolation where width = 2/size.

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
        How many centres lie past each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    smoothness: ClassVar[int] = 1
    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        half = self.width / 2
        height = 1 - xp.abs(u) / half
        if order == 0:
            return xp.maximum(height, xp.zeros_like(height))
        # Slope -sign(u)/half inside, 0 outside; half of it on the rim and 0 at the tip: the mean of both sides.
        return -xp.sign(u) * (1 + xp.sign(height)) / (2 * half)

    def _similarity(self, xp: Namespace, dx: Array) -> Array:
        # A hat convolved with itself is the cubic B-spline, v = |dx| / half width.
        half = self.width / 2
        v = xp.abs(dx) / half
        inner = 2 / 3 - v**2 + v**3 / 2
        tail = 2 - v
        outer = xp.maximum(tail, xp.zeros_like(tail)) ** 3 / 6
        return half * xp.where(v < 1, inner, outer)

    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
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
        """Return where the envelope 1/(pi w f / 2)^2 of sinc^2(w f / 2) falls below ``tolerance``."""
        return 2.0 / (math.pi * self.width * math.sqrt(_fraction(tolerance)))


@dataclass(frozen=True)
class Gaussian(LocalEmbedder):
    """A bell: exp(-(t - x)^2 / (2 width^2)).

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
        How many centres lie past each end of the unit interval.
    """

    size: int
    width: float
    padding: int | str = 0

    smoothness: ClassVar[int] = 2
    shape_parameter: ClassVar[str | None] = "width"

    def __post_init__(self) -> None:
        self._set(width=self._check_width(self.width))
        self._check_layout()

    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        z = u / self.width
        bell = xp.exp(-(z * z) / 2)
        if order == 0:
            return bell
        if order == 1:
            return -z * bell / self.width
        return (z * z - 1) * bell / self.width**2

    def _similarity(self, xp: Namespace, dx: Array) -> Array:
        # D(dx) = sqrt(pi) width exp(-dx^2 / (4 width^2))
        z = dx / self.width
        return math.sqrt(math.pi) * self.width * xp.exp(-(z * z) / 4)

    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        from scipy.special import erf

        return np.asarray(self.width * math.sqrt(math.pi / 2) * erf(u / (self.width * math.sqrt(2.0))))

    @property
    def rank_limit(self) -> float:
        """1/(2 sqrt(pi) width)."""
        return 1.0 / (2.0 * math.sqrt(math.pi) * self.width)

    def reach(self, tolerance: float = 1e-6) -> float:
        """Return the distance at which the bell has fallen to ``tolerance``."""
        return self.width * math.sqrt(-2.0 * math.log(_fraction(tolerance)))

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the frequency at which the spectrum exp(-2 (pi width f)^2) has fallen to ``tolerance``."""
        return math.sqrt(-math.log(_fraction(tolerance)) / 2.0) / (math.pi * self.width)


@dataclass(frozen=True)
class ShiftedBasis(LocalEmbedder):
    """Any continuous function psi(t - x): the paper's general case.

    Examples
    --------
    >>> import numpy as np
    >>> def lorentz(u):
    ...     return 1 / (1 + (u / 0.1) ** 2)
    >>> ShiftedBasis(4, lorentz)(np.array([0.25])).round(3)
    array([[0.138, 1.   , 0.138, 0.038]])

    Parameters
    ----------
    size : int
        The number K of features.
    function : callable
        psi, taking an array of t - x and returning one of the same shape, dtype and library.
    derivatives : tuple of callables
        psi' and psi'' as far as they are known.
    support : (float, float), optional
        An interval outside of which psi is taken to be zero; without it nothing is cut.
    padding : int or "auto"
        How many centres lie past each end of the unit interval; "auto" needs a support.
    name : str, optional
        The name under which `to_dict` knows the function; by default the function's own.
    """

    size: int
    function: Callable[[Array], Array]
    derivatives: tuple[Callable[[Array], Array], ...] = ()
    support: tuple[float, float] | None = None
    padding: int | str = 0
    name: str | None = None

    def __post_init__(self) -> None:
        for function in (self.function, *tuple(self.derivatives)):
            if not callable(function):
                raise problem("function", describe(function), "a function of t - x", "Pass a callable.", TypeError)
        if len(self.derivatives) > 2:
            raise problem("derivatives", f"{len(self.derivatives)} functions", "at most 2", "Pass (psi', psi'').")
        if self.support is not None:
            remedy = "Pass (low, high) in units of the domain, with low < high."
            try:
                low, high = self.support
            except (TypeError, ValueError) as error:
                raise problem("support", describe(self.support), "a pair", remedy, TypeError) from error
            low, high = (real("support", end, low=-1e12, high=1e12, remedy=remedy) for end in (low, high))
            if low >= high:
                raise problem("support", (low, high), "low < high", remedy)
            self._set(support=(low, high))
        name = self.name or getattr(self.function, "__name__", None)
        self._set(derivatives=tuple(self.derivatives), name=name, smoothness=len(self.derivatives))
        self._check_layout()

    def _psi(self, xp: Namespace, u: Array, order: int) -> Array:
        values = (self.function, *self.derivatives)[order](u)
        if tuple(getattr(values, "shape", ())) != tuple(u.shape) or values.dtype != u.dtype:
            raise problem(
                f"function {self.name}",
                f"{describe(values)} back for {describe(u)}",
                "the same shape and dtype",
                "Use operations that work element by element and keep the dtype.",
            )
        if self.support is None:
            return values
        low, high = self.support
        return xp.where((u >= low) & (u <= high), values, xp.zeros_like(values))

    @property
    def _interval(self) -> tuple[float, float]:
        return self.support or (-1.0, 1.0)  # all that t - x can be with both on the unit interval

    def _on_line(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(self._psi(np, np.asarray(u, dtype=np.float64), 0))

    def _similarity(self, xp: Namespace, dx: Array) -> Array:
        if getattr(dx, "requires_grad", False):
            raise problem("dx", "a tensor that requires a gradient", "one that does not", "Quadrature has none.")
        values = autocorrelation(self._on_line, self._interval, to_numpy(dx))
        return xp.asarray(values, dtype=dx.dtype, device=dx.device)

    def _integral(self, low: float, high: float) -> np.ndarray[Any, Any]:
        return vector_integral(lambda x: self._on_line(self.centres - x), low, high, self.spacing)

    def _antiderivative(self, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        raise NotImplementedError  # by quadrature: see _integral

    @functools.cached_property
    def _spectrum(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return magnitude_spectrum(self._on_line, self._interval)

    @property
    def rank_limit(self) -> float | None:
        """D(0) / max |spectrum|^2 where a support says that psi is local; else None."""
        if self.support is None:
            return None
        energy = float(autocorrelation(self._on_line, self._interval, np.zeros(1))[0])
        return energy / float(self._spectrum[1].max()) ** 2

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the last frequency at which the spectrum of psi is above ``tolerance`` of its peak."""
        frequencies, magnitude = self._spectrum
        above = np.flatnonzero(magnitude > _fraction(tolerance) * magnitude.max())
        return math.inf if above[-1] == len(magnitude) - 1 else float(frequencies[above[-1]])

    def to_dict(self) -> dict[str, Any]:
        """Return the embedder as plain data, with the function's name in place of the function."""
        if not self.name or self.name == "<lambda>":
            raise problem("name", describe(self.name), "a name for the function", "Pass name= to ShiftedBasis.")
        support = None if self.support is None else list(self.support)
        return {
            "kind": "ShiftedBasis",
            "size": self.size,
            "function": self.name,
            "derivatives": len(self.derivatives),
            "support": support,
            "padding": self.padding,
        }

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> ShiftedBasis:
        only_keys("ShiftedBasis", data, ["kind", "size", "function", "derivatives", "support", "padding"])
        name, support = data["function"], data["support"]
        # psi is found under its name, psi' and psi'' under the name with one and two primes
        wanted = [f"{name}{chr(39) * i}" for i in range(whole("derivatives", data["derivatives"], at_least=0) + 1)]
        missing = [one for one in wanted if one not in functions]
        if missing:
            raise problem(
                "functions",
                sorted(functions),
                f"also {missing}",
                'Pass functions={"name": psi, "name\'": its derivative, ...}: data holds names and never code.',
            )
        found = [functions[one] for one in wanted]
        pair = None if support is None else tuple(support)
        return cls(data["size"], found[0], tuple(found[1:]), pair, data["padding"], name)


def _fraction(tolerance: float) -> float:
    return real("tolerance", tolerance, low=0.0, high=1.0, open_low=True, remedy="Pass a fraction of the peak.")
