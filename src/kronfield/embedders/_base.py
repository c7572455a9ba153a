"""The base class of all embedders: public methods, their checks, and general defaults."""

from __future__ import annotations

import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    at_least_float32,
    describe,
    float_array,
    namespace,
    only_keys,
    problem,
    real,
    vector,
    whole,
)
from kronfield._core.coordinates import even_axis
from kronfield._core.spectra import stable_rank

# The finest detail that a float64 coordinate on the unit interval can resolve. It is the smallest
# width, and its inverse is the highest frequency.
FINEST = 2.0**-52


class Embedder(ABC):
    """A map from positions on one axis to K features.

    Calling an embedder returns the embedding matrix Psi(x), with one row per position and one
    column per feature. A row depends only on its own position. The unit interval is [0, 1);
    positions outside it are embedded too. Half precision is computed in float32 and cast back.
    """

    size: int
    #: The number of coordinates of a position: 1, except for a `RandomFourier` of more dimensions.
    dimensions: int = 1
    #: The number of derivatives that exist.
    smoothness: ClassVar[int] = 0
    #: The argument that sets the scale, such as "width", "frequency" or "exponent"; or None.
    shape_parameter: ClassVar[str | None] = None
    #: Whether `similarity` integrates numerically, which is slow for many distances.
    similarity_by_quadrature: ClassVar[bool] = False
    #: Whether `similarity` is the inner product of two rows of features, and not an integral.
    similarity_is_inner_product: ClassVar[bool] = False

    _kinds: ClassVar[dict[str, type[Embedder]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a concrete embedder for `from_dict`."""
        super().__init_subclass__(**kwargs)
        if cls.__name__.startswith("_"):
            return
        known = Embedder._kinds.get(cls.__name__)
        if known is not None and (known.__module__, known.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise TypeError(
                f"an embedder named {cls.__name__} already exists in {known.__module__}; "
                "choose another name"
            )
        Embedder._kinds[cls.__name__] = cls

    # The formula, implemented by subclasses
    # -----------------------------------------------------------------------

    @abstractmethod
    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        """Return d^order Psi(x) / dx^order, (N, K), for checked x and order <= smoothness."""

    @abstractmethod
    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        """Return D(dx), for checked dx."""

    @abstractmethod
    def _integral(self, low: float, high: float) -> Array:
        """Return the integral of every feature from low to high, (K,)."""

    # Public methods
    # ------------------------------------------------------------------------------------------

    def __call__(self, x: Any) -> AnyArray:
        """Return the embedding matrix Psi(x), (N, size), in the library and dtype of ``x``."""
        return self._evaluate(self._positions(x), 0)

    def derivative(self, x: Any, order: int = 1) -> AnyArray:
        """Return the derivative of the embedding matrix with respect to position, (N, size).

        Parameters
        ----------
        x : array of shape (N,)
            Positions.
        order : int
            0, 1 or 2, if that derivative exists. At a kink it is the mean of both sides.
        """
        order = whole("order", order, at_least=0)
        if self.dimensions > 1:
            raise problem(
                "derivative",
                f"an embedder of {self.dimensions} dimensions",
                "an embedder of one axis",
                "Put one embedder per axis into a Concatenated or Kronecker encoding.",
            )
        if order > min(self.smoothness, 2):
            raise problem(
                "order",
                order,
                f"at most {min(self.smoothness, 2)} for {self!r}",
                self.smoothness_remedy(),
            )
        return self._evaluate(self._positions(x), order)

    def similarity(self, dx: Any) -> AnyArray:
        """Return the paper's D(x1, x2) as a function of ``dx = x1 - x2``, of the same shape.

        For shifted functions D is the integral of psi(t - x1) psi(t - x2) over t. For periodic
        functions it is the mean over whole periods. The sum over K features with spacing 1/K is K
        times this integral. For Fourier features D is the sum over the features itself.
        """
        dx = self._shifts(dx)
        wide = at_least_float32(dx)
        xp = namespace(dx)
        return xp.astype(self._similarity(xp, wide), dx.dtype, copy=False)

    def integral(self, low: float, high: float) -> Array:
        """Return the integral of every feature from ``low`` to ``high``, float64 (size,)."""
        remedy = "Positions are in units of the domain."
        low, high = (
            real("low, high", end, low=-1e12, high=1e12, remedy=remedy) for end in (low, high)
        )
        if self.dimensions > 1:
            raise problem(
                "integral",
                f"an embedder of {self.dimensions} dimensions",
                "an embedder of one axis",
                "Integrate each axis with an embedder of its own.",
            )
        return np.asarray(self._integral(low, high))

    @property
    def rank_limit(self) -> float | None:
        """The closed-form stable rank for many samples and features; None if there is none."""
        return None

    def stable_rank(self, n: int) -> float:
        """Return the stable rank of the embedding of ``n`` evenly spaced positions.

        If `rank_limit` has a value, the result follows from theory: min(n, size, rank_limit), but
        at least 1. Otherwise the rank is measured on the positions i/n. The theory holds for limits
        above about 3; below, the ends of the domain have too much influence.
        """
        count = whole("n", n, at_least=1)
        limit = self.rank_limit
        if limit is None:
            return stable_rank(self(even_axis(count)))
        return max(1.0, min(float(count), float(self.size), limit))

    @property
    def centres(self) -> Array | None:
        """The centres of the features, float64 (size,); None for Fourier features."""
        return None

    @property
    def period(self) -> float | None:
        """The period of all features, 1 in units of the domain; None if they have none."""
        return None

    @property
    def support(self) -> tuple[float, float] | None:
        """The interval of t - x outside which a feature is zero; None if it is unbounded."""
        return None

    def reach(self, tolerance: float = 1e-6) -> float:
        """Return the distance beyond which a feature is below ``tolerance`` of its peak."""
        del tolerance
        support = self.support
        return math.inf if support is None else max(abs(support[0]), abs(support[1]))

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the frequency above which the spectrum is below ``tolerance`` of its peak.

        The unit is cycles per unit interval.
        """
        del tolerance
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the embedder as plain data that JSON can represent."""
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {"kind": type(self).__name__, **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Self:
        """Return the embedder that `to_dict` described; every value is checked again.

        Parameters
        ----------
        data : dict
            The result of `to_dict`.
        functions : dict, optional
            The functions of each `ShiftedBasis`, by name. The data holds names and never code.
        """
        kind = data.get("kind") if isinstance(data, Mapping) else None
        kinds = {
            k: one
            for k, one in Embedder._kinds.items()
            if issubclass(one, cls) and not inspect.isabstract(one)
        }
        found = kinds.get(kind) if isinstance(kind, str) else None
        if found is None:
            known = sorted(kinds)
            raise problem(
                "kind", describe(kind), f"one of {known}", "Pass the result of to_dict() unchanged."
            )
        return found._from_fields(data, functions or {})  # type: ignore[return-value]

    @classmethod
    def _from_fields(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
    ) -> Embedder:
        del functions
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        only_keys(cls.__name__, data, ["kind", *names])
        return cls(**{name: data[name] for name in names})

    # Helpers
    # ------------------------------------------------------------------------------------------

    def _evaluate(self, x: AnyArray, order: int) -> AnyArray:
        xp, wide = namespace(x), at_least_float32(x)
        return xp.astype(self.features(xp, wide, order), x.dtype, copy=False)

    def _shifts(self, dx: Any) -> AnyArray:
        dx = float_array("dx", dx)
        if self.dimensions > 1 and (dx.ndim == 0 or dx.shape[-1] != self.dimensions):
            raise problem(
                "dx",
                describe(dx),
                f"shape (..., {self.dimensions})",
                "The last axis holds the coordinates.",
            )
        return dx

    def _positions(self, x: Any) -> AnyArray:
        return vector("x", x)

    def smoothness_remedy(self) -> str:
        if self.smoothness == 0:
            return (
                "Its features have jumps and therefore no derivative. "
                "Use Triangle (first derivative) or Gaussian (first and second)."
            )
        return (
            "Higher derivatives do not exist or are not implemented. "
            "Gaussian, Sine and Fourier have two."
        )

    def _set(self, **values: Any) -> None:
        """Set attributes of the frozen instance; for ``__post_init__`` only."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
