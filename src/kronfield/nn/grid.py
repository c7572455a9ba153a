"""A grid of input positions, given by its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronfield._core.arrays import describe, problem


class Grid:
    """All points of a grid, given by the positions on each axis.

    Examples
    --------
    >>> from kronfield.nn import Grid
    >>> grid = Grid.even((3, 4))  # the paper's positions i/N
    >>> grid.shape, grid.points().shape
    ((3, 4), torch.Size([3, 4, 2]))

    Parameters
    ----------
    *axes : tensors or arrays of shape (N_i,)
        The positions on each axis.
    """

    def __init__(self, *axes: Any) -> None:
        self.axes: list[Tensor] = []
        for i, axis in enumerate(axes):
            x = axis if isinstance(axis, Tensor) else torch.as_tensor(axis)
            if x.ndim != 1 or not x.is_floating_point() or len(x) < 1:
                raise problem(
                    f"axes[{i}]",
                    describe(x),
                    "floats of shape (N,)",
                    "Pass the positions on one axis.",
                )
            self.axes.append(x)
        if not self.axes:
            raise problem("axes", "none", "one per dimension", "For example: Grid(x, y).")

    @classmethod
    def even(cls, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Grid:
        """Return the grid of positions i/N on every axis."""
        return cls(*[torch.arange(n, dtype=dtype) / n for n in shape])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of positions on each axis."""
        return tuple(len(axis) for axis in self.axes)

    def to(self, *args: Any, **kwargs: Any) -> Grid:
        """Return the grid on another device or in another dtype."""
        return Grid(*[axis.to(*args, **kwargs) for axis in self.axes])

    def points(self) -> Tensor:
        """Return every point, (N_1, ..., N_D, D)."""
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), dim=-1)

    def __repr__(self) -> str:
        return f"Grid({' x '.join(map(str, self.shape))})"
