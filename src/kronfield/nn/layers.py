"""The first layers of coordinate networks: what an encoding is multiplied with, for points and for grids.

On a grid nothing of the size of all points times all features is ever formed. A layer splits its
work in two: what is shared by all points (`shared`, small, once a step) and what remains for some
of them (`part`), so that a large batch can go through a network in parts that fit the cache.
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

# Features that are kept from step to step, in numbers; more are computed anew, a part at a time.
CACHE_NUMBERS = 1 << 27


@dataclass
class Prepared:
    """Inputs with all that does not change from step to step.

    ``shape`` are the leading axes of the output, ``rows`` its parts can be cut at, each of
    ``per_row`` points.
    """

    shape: tuple[int, ...]
    rows: int
    per_row: int


class FirstLayer(nn.Module):
    """An encoding and a linear layer on it, ``width`` outputs."""

    encoding: Encoding
    place: Place
    axes: nn.ModuleList
    weight: nn.Parameter
    width: int
    extent: list[tuple[float, float]]  # where points may lie, in units, on each axis

    @property
    def learns(self) -> bool:
        """Whether features change while the network learns."""
        return any(True for _ in self.axes.parameters())

    @abstractmethod
    def prepare(self, inputs: Tensor | Grid, *, cache: bool = True) -> Prepared:
        """Return inputs with what does not change from step to step; its features too, with ``cache``."""

    @abstractmethod
    def shared(self, prepared: Any) -> list[Tensor]:
        """Return what all points need, with its gradient."""

    @abstractmethod
    def part(self, prepared: Any, shared: list[Tensor], start: int, stop: int) -> Tensor:
        """Return the outputs of rows [start, stop), (stop - start, ..., width)."""

    def forward(self, inputs: Tensor | Grid | Prepared) -> Tensor:
        """Return the outputs for points (..., D), a `Grid`, or what `prepare` made of them: (..., width)."""
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
                "One per axis of the encoding.",
            )
        return [self._narrowed(self.place.axis(x, i)) for i, x in enumerate(grid.axes)]

    def _point_units(self, points: Tensor) -> tuple[tuple[int, ...], Tensor]:
        """Return the leading axes of points (..., D), and the points in units as (P, D)."""
        units = self._narrowed(self.place(points))
        return tuple(units.shape[:-1]), units.reshape(-1, units.shape[-1])

    def _narrowed(self, units: Tensor) -> Tensor:
        """Return units in float32 unless the weights are in float64: digits matter before the domain is taken off."""
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
    """Points one by one: their positions in units, and their features unless these change."""

    units: Tensor
    features: Tensor | None  # (P, K), unless they change
