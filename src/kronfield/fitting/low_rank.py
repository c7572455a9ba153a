"""Fits of low rank: samples as a tensor train (Oseledets, 2011), whose factors are fitted per axis.

A fit without a penalty is a matrix per axis. It maps the factors of the samples to those of the
weights, so that the full array of weights is never formed. The error at the samples is that of the
train.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem, real, whole
from kronfield._core.copies import NeedsSamples
from kronfield._core.records import record
from kronfield.encoding import Kronecker
from kronfield.field.low_rank import LowRankField, TensorTrain
from kronfield.fitting.inputs import GridInput, GridLayout
from kronfield.fitting.report import FitReport
from kronfield.solvers.grid.separable import GridSolver


@record
class RankLimit:
    """The limit of the caller: the largest rank, or the largest error at the samples."""

    most: int | None = None
    error: float = 0.0

    @classmethod
    def checked(cls, rank: Any, rank_error: Any) -> RankLimit:
        """Return the limit; an error if both are given."""
        if rank is not None and rank_error is not None:
            raise problem(
                "rank",
                "rank and rank_error",
                "only one of the two",
                "A rank limits the size, an error the loss; leave the other out.",
            )
        if rank is not None:
            return cls(most=whole("rank", rank, at_least=1))
        remedy = "It is a root mean square, in the units of the values."
        return cls(error=real("rank_error", rank_error, low=0.0, high=1e300, remedy=remedy))


@record(eq=False)
class LowRankFit:
    """The fit of a field of low rank, with every setting. Call it to fit other values.

    Attributes
    ----------
    layout : GridLayout
        The grid.
    encoding : Kronecker
        The features.
    solver : GridSolver
        The factored axes, without a penalty.
    limit : RankLimit
        The rank or error.
    cleaned : function or None
        Returns the planar samples of a fit with a penalty, to be factored instead of the values.
    report : function
        Returns the report, from the grid, a function for the residual, and a text.
    """

    layout: GridLayout
    encoding: Kronecker
    solver: GridSolver
    limit: RankLimit
    cleaned: Callable[[GridInput], Array] | None
    report: Callable[[GridInput, Callable[[], float], str], FitReport]

    def __call__(self, values: Any) -> LowRankField:
        """Return the field of other values on the same grid."""
        return self.field(GridInput.on(self.layout, values))

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples(
            "refit", "the field that fit returned", "Call fit with rank or rank_error again."
        )

    def field(self, grid: GridInput) -> LowRankField:
        """Return the field of values on the grid."""
        planes = grid.planar() if self.cleaned is None else self.cleaned(grid)
        train = TensorTrain.of(np.moveaxis(planes, 0, -1), self.limit.most, self.limit.error)
        weights = train.mapped([inverse.operator for inverse in self.solver.inverses])
        kinds = {inverse.operator.dtype for inverse in self.solver.inverses}
        dtype = np.float64 if np.float64 in kinds else self.layout.dtype
        weights = weights.astype(dtype)
        text = (
            f"tensor train of ranks {' x '.join(map(str, train.ranks))}, {weights.size} numbers, "
            f"error {train.error:.3g} rms at the samples"
        )
        field = LowRankField(
            self.encoding,
            weights,
            self.layout.frames,
            self.layout.shown_axes,
            channels=self.layout.channels,
            is_complex=self.layout.is_complex,
            dtype=self.layout.dtype,
            again=self,
        )
        field.report = self.report(grid, _Residual(field, grid), text)
        return field


@record(eq=False)
class _Residual:
    """The root mean square of value minus fit at the samples, computed when called."""

    field: LowRankField
    grid: GridInput

    def __call__(self) -> float:
        """Return the residual, in the units of the values."""
        fitted = GridInput.on(self.grid.layout, self.field.on_grid()).planar()
        values = self.grid.planar().astype(np.float64)
        return float(np.sqrt(np.mean((fitted - values) ** 2)))
