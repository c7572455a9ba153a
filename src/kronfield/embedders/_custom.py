"""The paper's general case: features from any continuous function that users supply."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    Namespace,
    describe,
    fraction,
    only_keys,
    problem,
    real,
    whole,
)
from kronfield._core.records import record
from kronfield.embedders._local import LocalEmbedder
from kronfield.embedders._quadrature import (
    autocorrelation,
    last_frequency,
    magnitude_spectrum,
    vector_integral,
)


@record
class ShiftedBasis(LocalEmbedder):
    """Shifted copies of any continuous function, psi(t - x): the paper's general case.

    The similarity is computed by quadrature. With a support, the integral is over all t. Without,
    it is over t from 0 to 1, for two positions that are symmetric about the middle.

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
        psi: it takes an array of t - x and returns an array of equal shape, dtype and library.
    derivatives : tuple of callables
        psi' and psi'', if they are known.
    support : (float, float), optional
        An interval outside which psi counts as zero; by default psi is not truncated.
    padding : int or "auto"
        The number of centres beyond each end of the unit interval; "auto" needs a support.
    name : str, optional
        The name of the function in `to_dict`; by default the function's own name.
    """

    size: int
    function: Callable[[AnyArray], AnyArray]
    derivatives: tuple[Callable[[AnyArray], AnyArray], ...] = ()
    support: tuple[float, float] | None = None
    padding: int | str = 0
    name: str | None = None

    similarity_by_quadrature: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if callable(self.derivatives):
            raise problem(
                "derivatives",
                "one function",
                "a tuple of functions",
                "Pass (psi',) or (psi', psi'').",
                TypeError,
            )
        for function in (self.function, *tuple(self.derivatives)):
            if not callable(function):
                raise problem(
                    "function",
                    describe(function),
                    "a function of t - x",
                    "Pass a callable.",
                    TypeError,
                )
        if len(self.derivatives) > 2:
            raise problem(
                "derivatives",
                f"{len(self.derivatives)} functions",
                "at most 2",
                "Pass (psi', psi'').",
            )
        if self.support is not None:
            remedy = "Pass (low, high) in units of the domain, with low < high."
            try:
                low, high = self.support
            except (TypeError, ValueError) as error:
                raise problem(
                    "support", describe(self.support), "a pair", remedy, TypeError
                ) from error
            low, high = (
                real("support", end, low=-1e12, high=1e12, remedy=remedy) for end in (low, high)
            )
            if low >= high:
                raise problem("support", (low, high), "low < high", remedy)
            self._set(support=(low, high))
        name = self.name or getattr(self.function, "__name__", None)
        self._set(derivatives=tuple(self.derivatives), name=name, smoothness=len(self.derivatives))
        self._check_layout()

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        low, high = self.support or (-math.inf, math.inf)
        inside = (u >= low) & (u <= high)
        # never evaluate the function outside its support: it may have no value or slope there
        if self.support is not None:
            u = xp.where(inside, u, (low + high) / 2 + xp.zeros_like(u))
        values = (self.function, *self.derivatives)[order](u)
        if tuple(getattr(values, "shape", ())) != tuple(u.shape) or values.dtype != u.dtype:
            raise problem(
                f"function {self.name}",
                f"{describe(values)} returned for {describe(u)}",
                "the same shape and dtype",
                "Use elementwise operations that keep the dtype.",
            )
        return values if self.support is None else xp.where(inside, values, xp.zeros_like(values))

    @property
    def _interval(self) -> tuple[float, float]:
        return self.support or (-1.0, 1.0)  # the range of t - x with both on the unit interval

    def smoothness_remedy(self) -> str:
        return "Pass the derivatives of the function as derivatives=(psi', psi'')."

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        # Without a support, follow the paper: t from 0 to 1, positions symmetric about the middle.
        return self._quadrature_similarity(
            xp, dx, self.support or (-0.5, 0.5), compact=self.support is not None
        )

    def _integral(self, low: float, high: float) -> Array:
        return vector_integral(lambda x: self.on_line(self.centres - x), low, high, self.spacing)

    def _antiderivative(self, u: Array) -> Array:
        raise NotImplementedError  # by quadrature: see _integral

    @property
    def rank_limit(self) -> float | None:
        """D(0) / max |spectrum|^2 if psi has a support, else None."""
        if self.support is None:
            return None
        energy = float(autocorrelation(self.on_line, self._interval, np.zeros(1))[0])
        return energy / float(magnitude_spectrum(self.on_line, self._interval)[1].max()) ** 2

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the highest frequency where the spectrum exceeds ``tolerance`` of its peak."""
        return last_frequency(self.on_line, self._interval, fraction("tolerance", tolerance))

    def to_dict(self) -> dict[str, Any]:
        """Return the embedder as plain data, with the function's name in place of the function."""
        if not self.name or self.name == "<lambda>":
            raise problem(
                "name",
                describe(self.name),
                "a name for the function",
                "Pass name= to ShiftedBasis.",
            )
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
    def _from_fields(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
    ) -> ShiftedBasis:
        only_keys(
            "ShiftedBasis", data, ["kind", "size", "function", "derivatives", "support", "padding"]
        )
        name, support, count = (
            data["function"],
            data["support"],
            whole("derivatives", data["derivatives"], at_least=0),
        )
        if (
            count > 2
            or not isinstance(name, str)
            or not (support is None or isinstance(support, list | tuple))
        ):
            raise problem(
                "ShiftedBasis",
                describe(dict(data)),
                "the result of to_dict()",
                "Pass it unchanged.",
            )
        # psi is stored under its name, psi' and psi'' under that name with one and two primes
        wanted = [f"{name}{chr(39) * i}" for i in range(count + 1)]
        missing = [one for one in wanted if one not in functions]
        if missing:
            raise problem(
                "functions",
                sorted(functions),
                f"also {missing}",
                'Pass functions={"name": psi, "name\'": its derivative, ...}: '
                "data holds names and never code.",
            )
        found = [functions[one] for one in wanted]
        pair = None if support is None else tuple(support)
        return cls(data["size"], found[0], tuple(found[1:]), pair, data["padding"], name)
