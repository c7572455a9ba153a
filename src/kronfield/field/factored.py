"""Fields with factored weights: main effects, and a sum of products of one function per axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.copies import NeedsSamples, shared_copy
from kronfield._core.frames import Frame
from kronfield.embedders import BSpline, Embedder
from kronfield.field import storage
from kronfield.field.field import Field, Refit
from kronfield.field.products import AxisEncoding, ProductField, even_positions
from kronfield.field.trend import Trend, TrendBasis
from kronfield.solvers.factored.als import Factors
from kronfield.solvers.factored.axes import gram


class FactoredField(ProductField):
    """A constant, a function of each axis, and products of one function per axis.

    `fit_points` makes it from many points in many dimensions. The functions of an axis are splines.
    In a Kronecker encoding with these splines, the weights would be a sum of outer products.

    Parameters
    ----------
    embedders : sequence of BSpline
        The splines of each axis, on the unit interval of its frame.
    planes : array (C, K_1 + ... + K_D, 1 + R)
        The weights of the splines, axis after axis: the main effect, then R factors.
    frames, trend, channels, is_complex, dtype, report, again, uncertainty, info
        As for other fields; the trend is a constant.
    """

    def __init__(
        self,
        embedders: Sequence[BSpline],
        planes: Array,
        frames: Sequence[Frame],
        *,
        trend: Trend,
        channels: bool,
        is_complex: bool = False,
        dtype: Any = None,
        report: Any = None,
        again: Refit | NeedsSamples | None = None,
        uncertainty: Any = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            FactoredEncoding(embedders),  # type: ignore[arg-type]
            planes,
            frames,
            even_positions(frames),
            channels=channels,
            is_complex=is_complex,
            dtype=dtype,
            report=report,
            again=again,
            uncertainty=uncertainty,
            info=info,
        )
        self.with_trend(trend)

    @property
    def rank(self) -> int:
        """The number R of products."""
        return int(self._planes.shape[2]) - 1

    @property
    def embedders(self) -> tuple[BSpline, ...]:
        """The splines of each axis."""
        embedders: tuple[BSpline, ...] = self.encoding.embedders  # type: ignore[assignment]
        return embedders

    @property
    def factors(self) -> list[Factors]:
        """The weights of each plane, axis by axis (K_d, 1 + R)."""
        ends = np.cumsum([emb.size for emb in self.embedders])[:-1]
        return [Factors(tuple(np.split(plane, ends))) for plane in self._planes]

    @property
    def constants(self) -> Array:
        """The constant (C,) of each plane."""
        assert self._trend is not None
        return self._trend.coefficients[:, 0]

    @property
    def number_count(self) -> int:
        """The number of numbers from which the field computes its values."""
        assert self._trend is not None
        return self._planes.size + self._trend.coefficients.size

    def __repr__(self) -> str:
        sizes = ", ".join(str(emb.size) for emb in self.embedders)
        return (
            f"FactoredField({self._values_text()}on {self._box_text()}, {self.rank} products, "
            f"{sizes} splines)"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = {name: x for name, x in self.__dict__.items() if name != "_expanded"}
        again, uncertainty = self._again, self._uncertainty
        return {
            **state,
            "_again": None if again is None else again.without_samples(),
            "_uncertainty": None if uncertainty is None else uncertainty.without_samples(),
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Field:
        return shared_copy(self, memo, shared=("_again", "_uncertainty", "encoding"))

    def _contents(self) -> tuple[str, Array, dict[str, Array], dict[str, Any]]:
        assert self._trend is not None
        basis = self._trend.basis
        metadata = {
            "version": storage.FACTORED_VERSION,
            "kind": "factored",
            "embedders": [emb.to_dict() for emb in self.embedders],
            "frames": [[f.origin, f.length, f.low, f.high] for f in self.frames],
            "trend": [basis.degree, list(basis.centre), list(basis.length)],
            "channels": self.has_channels,
            "complex": self.is_complex,
            "weights_dtype": str(self._planes.dtype),
            "values_dtype": str(self._real),
            "info": self.info,
        }
        return "weights", self._planes, {"trend": self._trend.coefficients}, metadata

    # Products of each plane: D main effects, whose functions of other axes are 1, and R others
    # ------------------------------------------------------------------------------------------

    @functools.cached_property
    def _expanded(self) -> tuple[list[Array], Array]:
        """Return weights (K_d, N) of each axis, and the factors (C, N) of the products."""
        D, C, R = self.dimensions, len(self._planes), self.rank
        columns = [np.ones((emb.size, C, D + R)) for emb in self.embedders]  # splines sum to 1
        for c, factors in enumerate(self.factors):
            for d, W in enumerate(factors.weights):
                columns[d][:, c, d] = W[:, 0]
                columns[d][:, c, D:] = W[:, 1:]
        return (
            [x.reshape(len(x), C * (D + R)) for x in columns],
            np.kron(np.eye(C), np.ones(D + R)),
        )

    def _coefficients(self) -> Array:
        return self._expanded[1]

    def _axis_rows(self, axis: int, x: Array, order: int) -> Array:
        rows = self.embedders[axis].derivative(x, order) if order else self.embedders[axis](x)
        return np.asarray(rows @ self._expanded[0][axis])

    def _axis_integral(self, axis: int, low: float, high: float) -> Array:
        return np.asarray(self.embedders[axis].integral(low, high) @ self._expanded[0][axis])

    def _axis_products(self, axis: int, low: float, high: float, part: slice) -> Array:
        E = self._expanded[0][axis]
        return np.asarray(E[:, part].T @ gram(self.embedders[axis], low, high) @ E)

    def _contracted(self, rows: list[Array]) -> Array:
        pairs = zip(rows, self._expanded[0], strict=True)
        return super()._contracted([row @ E for row, E in pairs])


class FactoredEncoding(AxisEncoding):
    """The splines of each axis, in place of an encoding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of splines on each axis."""
        return tuple(emb.size for emb in self.embedders)


def factored_from(
    path: Any, arrays: Mapping[str, Array], metadata: Mapping[str, Any]
) -> FactoredField:
    """Return the field that `FactoredField.save` wrote, from the contents of its file."""
    with storage.restoring(path):
        head = storage.Head.of(metadata)
        embedders = [Embedder.from_dict(one) for one in metadata["embedders"]]
        basis = TrendBasis.saved(metadata["trend"])
        planes = arrays["weights"].astype(head.weights_dtype)
        trend = arrays["trend"].astype(np.float64)
        C, K, T = planes.shape
        splines = [emb for emb in embedders if isinstance(emb, BSpline)]
        valid = (
            len(splines) == len(embedders)
            and _are_valid_axes(splines, head.frames, basis)
            and sum(emb.size for emb in splines) == K
            and min(K, T) >= 1
            and trend.shape == (C, 1)
            and head.fits(C, len(splines))
            and all(np.all(np.isfinite(a)) for a in (planes, trend))
        )
    if not valid:
        raise storage.misfit(path)
    return FactoredField(splines, planes, head.frames, trend=Trend(basis, trend), **head.about)


def _are_valid_axes(splines: Sequence[BSpline], frames: Sequence[Frame], basis: TrendBasis) -> bool:
    """Return whether splines, frames and a constant trend are valid and fit together."""
    return (
        len(splines) == len(frames) == len(basis.centre) == len(basis.length)
        and basis.degree == 0
        and all(0 < x < math.inf for x in basis.length)
        and all(f.length > 0 and f.low < f.high for f in frames)
    )
