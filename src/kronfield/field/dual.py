"""Fields in the dual form: a sum of similarities to points, in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.copies import NeedsSamples, shared_copy
from kronfield._core.frames import Frame
from kronfield.field import storage
from kronfield.field.field import Field, Refit
from kronfield.field.products import AxisEncoding, ProductField, even_positions
from kronfield.field.trend import Trend, TrendBasis
from kronfield.solvers.dual.similarity import (
    SHAPES,
    AxisSimilarity,
    Similarity,
)
from kronfield.solvers.dual.systems import Direct, Inducing, System


class DualUncertainty:
    """The posterior of a field in the dual form, exact for given widths and ridge.

    Parameters
    ----------
    system : Direct or Inducing
        The system that was solved.
    variances : array (C,)
        The factor of the similarity in the covariance of each plane.
    frames, basis
        The frame of each axis, and the basis of the trend.
    exponent : int
        The variances are those of planes over 2^exponent, since those of huge values overflow.
    """

    def __init__(
        self,
        system: System,
        variances: Array,
        frames: Sequence[Frame],
        basis: TrendBasis,
        exponent: int = 0,
    ) -> None:
        self.system, self.variances, self.exponent = system, variances, exponent
        self.frames, self.basis = tuple(frames), basis

    def deviations(self, points: Array, noise: float | None, samples: int, seed: int) -> Array:
        """Return the standard errors (P, C) at points (P, D), by default for estimated noise."""
        del samples, seed  # nothing is random
        units = np.stack([f.unit(points[:, i]) for i, f in enumerate(self.frames)], axis=1)
        relative = np.sqrt(self.system.variance(units, self.basis.columns(points)))
        level = np.ldexp(np.sqrt(self.variances), self.exponent)
        if noise is not None:
            level = np.full(len(level), noise / math.sqrt(self.system.ridge))
        return relative[:, None] * level

    def without_samples(self) -> DualUncertainty:
        """Return itself: the points are part of the field."""
        return self


class DualField(ProductField):
    """A sum of similarities to points plus a polynomial, made by `fit_points` or read by `load`.

    The points are part of the field. It is saved and pickled with them, so that a copy has standard
    errors too.
    """

    _exponent: int = 0  # of fields that were pickled before there was one

    def __init__(
        self,
        system: System,
        coefficients: Array,
        frames: Sequence[Frame],
        *,
        trend: Trend,
        variances: Array,
        exponent: int = 0,
        channels: bool,
        is_complex: bool = False,
        dtype: Any = None,
        report: Any = None,
        again: Refit | NeedsSamples | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            None,  # type: ignore[arg-type]
            coefficients,  # (C, P)
            frames,
            even_positions(frames),
            channels=channels,
            is_complex=is_complex,
            dtype=dtype,
            report=report,
            again=again,
            uncertainty=DualUncertainty(  # type: ignore[arg-type]
                system, variances, frames, trend.basis, exponent
            ),
            info=info,
        )
        self._system, self._variances, self._exponent = system, variances, exponent
        self._similar = system.axes
        self.encoding = DualEncoding(self._similar)  # type: ignore[assignment]
        self.with_trend(trend)

    @staticmethod
    def axis_similarities(system: System) -> list[AxisSimilarity]:
        """Return the similarity to the centres of a system on each axis."""
        return system.axes

    @property
    def similarity(self) -> Similarity:
        """The similarity; widths are fractions of the domain."""
        return self._system.similarity

    @property
    def widths(self) -> tuple[float, ...]:
        """The width of the similarity on each axis, in the units of the points."""
        return tuple(w * f.length for w, f in zip(self.similarity.widths, self.frames, strict=True))

    @property
    def number_count(self) -> int:
        """The number of numbers from which the field computes its values."""
        assert self._trend is not None
        return self._system.centres.size + self._planes.size + self._trend.coefficients.size

    def __repr__(self) -> str:
        box = " x ".join(f"[{low:g}, {high:g}]" for low, high in self.domain)
        return f"DualField(on {box}, {len(self._system.centres)} points, {self.similarity!r})"

    def __getstate__(self) -> dict[str, Any]:
        again = self._again
        return {**self.__dict__, "_again": None if again is None else again.without_samples()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Field:
        return shared_copy(
            self, memo, shared=("_again", "_uncertainty", "_system", "_similar", "encoding")
        )

    def _contents(self) -> tuple[str, Array, dict[str, Array], dict[str, Any]]:
        assert self._trend is not None
        basis, system = self._trend.basis, self._system
        metadata = {
            "version": storage.DUAL_VERSION,
            "kind": "dual",
            "system": system.kind,
            "shape": system.similarity.shape,
            "widths": list(system.similarity.widths),
            "ridge": system.ridge,
            "exponent": self._exponent,
            "frames": [[f.origin, f.length, f.low, f.high] for f in self.frames],
            "trend": [basis.degree, list(basis.centre), list(basis.length)],
            "channels": self.has_channels,
            "complex": self.is_complex,
            "weights_dtype": str(self._planes.dtype),
            "values_dtype": str(self._real),
            "info": self.info,
        }
        arrays = {
            "trend": self._trend.coefficients,
            "variances": self._variances,
            **{f"system.{name}": array for name, array in system.contents().items()},
        }
        return "weights", self._planes, arrays, metadata

    def _coefficients(self) -> Array:
        return self._planes.astype(np.float64, copy=False)

    def _axis_rows(self, axis: int, x: Array, order: int) -> Array:
        return self._similar[axis].rows(x, order)

    def _axis_integral(self, axis: int, low: float, high: float) -> Array:
        return self._similar[axis].integral(low, high)

    def _axis_products(self, axis: int, low: float, high: float, part: slice) -> Array:
        return self._similar[axis].products(low, high, part)

    def _axis_kinks(self, axis: int) -> Array:
        return self._similar[axis].centres

    def _own_values(self, axis: int, x: Array) -> Array:
        return self._similar[axis].own(x)

    def _products_at(self, units: Sequence[Array], orders: Sequence[int]) -> Array:
        if any(orders):
            return super()._products_at(units, orders)
        return self.similarity.between(np.stack(units, axis=1), self._system.centres)


class DualEncoding(AxisEncoding):
    """The similarities to the centres of a field, in place of an encoding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of centres, as the only length: there is no grid."""
        return (self.embedders[0].size,)


def dual_from(path: Any, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> DualField:
    """Return the field that `DualField.save` wrote, from the contents of its file."""
    with storage.restoring(path):
        head = storage.Head.of(metadata)
        similarity = Similarity(metadata["shape"], tuple(float(w) for w in metadata["widths"]))
        inside = {
            name.removeprefix("system."): array.astype(np.float64)
            for name, array in arrays.items()
            if name.startswith("system.")
        }
        kinds: dict[str, type[Direct] | type[Inducing]] = {"direct": Direct, "inducing": Inducing}
        ridge = float(metadata["ridge"])
        system = kinds[metadata["system"]].from_contents(similarity, ridge, inside)
        basis = TrendBasis.saved(metadata["trend"])
        coefficients = arrays["weights"].astype(head.weights_dtype)
        trend, variances = arrays["trend"].astype(np.float64), arrays["variances"]
        C, P = coefficients.shape
        valid = (
            _is_valid_similarity(similarity, head.frames, basis)
            and system.centres.shape == (P, len(head.frames))
            and trend.shape == (C, len(basis.powers))
            and variances.shape == (C,)
            and head.fits(C, len(similarity.widths))
            and 0 < ridge < math.inf
            and all(np.all(np.isfinite(a)) for a in (coefficients, trend, *inside.values()))
        )
        field = DualField(
            system,
            coefficients,
            head.frames,
            trend=Trend(basis, trend),
            variances=variances.astype(np.float64),
            exponent=int(metadata.get("exponent", 0)),
            **head.about,
        )
    if not valid:
        raise storage.misfit(path)
    return field


def _is_valid_similarity(
    similarity: Similarity, frames: Sequence[Frame], basis: TrendBasis
) -> bool:
    """Return whether a similarity, frames and a trend are valid and have equally many axes."""
    return (
        similarity.shape in SHAPES
        and len(similarity.widths) == len(frames) == len(basis.centre) == len(basis.length)
        and 0 <= basis.degree <= 2
        and all(0 < w < math.inf for w in (*similarity.widths, *basis.length))
        and all(f.length > 0 and f.low < f.high for f in frames)
    )
