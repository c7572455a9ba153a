"""The base class of first layers: an encoding times weights, for points and for grids.

On a grid no matrix of all points times all features is formed. A layer computes in two stages:
`shared` is small, common to all points, and computed once per step; `part` returns the outputs of
some points. A large batch can then pass through a network in parts that fit the cache.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import problem
from kronfield.encoding import Encoding
from kronfield.nn.encode import Place
from kronfield.nn.grid import Grid
from kronfield.nn.state import Described

# The largest number of feature values cached between steps. Larger sets are computed in parts in
# every step.
CACHE_NUMBERS = 1 << 27


@dataclass
class Prepared:
    """Inputs with everything that does not change between steps.

    ``shape`` is that of the leading axes of the output. The inputs can be split between any of
    ``rows`` rows, each of ``per_row`` points.
    """

    shape: tuple[int, ...]
    rows: int
    per_row: int


class FirstLayer(Described):
    """A linear layer on an encoding, with ``width`` outputs."""

    encoding: Encoding
    place: Place
    axes: nn.ModuleList
    weight: nn.Parameter
    width: int
    extent: list[tuple[float, float]]  # where points may lie, in units, on each axis

    @property
    def learns(self) -> bool:
        """Whether the features have learned parameters."""
        return any(True for _ in self.axes.parameters())

    @abstractmethod
    def prepare(self, inputs: Tensor | Grid, *, cache: bool = True) -> Prepared:
        """Return inputs with everything that stays fixed; with ``cache`` also their features."""

    @abstractmethod
    def shared(self, prepared: Any) -> list[Tensor]:
        """Return the tensors that all points share, with their gradients."""

    @abstractmethod
    def part(self, prepared: Any, shared: list[Tensor], start: int, stop: int) -> Tensor:
        """Return the outputs of rows [start, stop), (stop - start, ..., width)."""

    def forward(self, inputs: Tensor | Grid | Prepared) -> Tensor:
        """Return the outputs (..., width) at points (..., D), a `Grid`, or prepared inputs."""
        prepared = inputs if isinstance(inputs, Prepared) else self.prepare(inputs, cache=False)
        return self.part(prepared, self.shared(prepared), 0, prepared.rows).reshape(
            *prepared.shape, self.width
        )

    def _grid_units(self, grid: Grid) -> list[Tensor]:
        if len(grid.axes) != self.place.dimensions:
            raise problem(
                "inputs",
                repr(grid),
                f"a grid of {self.place.dimensions} axes",
                "Pass one axis of positions per axis of the encoding.",
            )
        return [self._narrowed(self.place.axis(x, i)) for i, x in enumerate(grid.axes)]

    def _point_units(self, points: Tensor) -> tuple[tuple[int, ...], Tensor]:
        """Return the leading axes of points (..., D), and the points in units as (P, D)."""
        units = self._narrowed(self.place(points))
        return tuple(units.shape[:-1]), units.reshape(-1, units.shape[-1])

    def _narrowed(self, units: Tensor) -> Tensor:
        """Return units in float32 unless the weights are float64.

        Only the map from the domain to units needs the extra digits.
        """
        return (
            units.float()
            if units.dtype == torch.float64 and self.weight.dtype != torch.float64
            else units
        )

    def _encoded(self, axis: int, x: Tensor) -> Tensor:
        """Return the features of positions on one axis in the dtype of the weights."""
        return self.axes[axis](x).to(self.weight.dtype)


@dataclass
class Rows(Prepared):
    """Separate points: their positions in units, and their features if cached."""

    units: Tensor
    features: Tensor | None  # (P, K), or None
