"""Where samples lie: frames of axes, cells and their centres, even axes, and the samples that are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem

# Gaps of an axis that differ by less than this part of their mean are even.
EVEN = 1e-6
# Lengths of axes that squares and fourth powers of derivatives leave room for.
SHORTEST, LONGEST = 1e-60, 1e60


@dataclass(frozen=True)
class Frame:
    """Where one axis lies: a position x is embedded at (x - origin) / length; the field is valid from low to high."""

    origin: float
    length: float
    low: float
    high: float

    def unit(self, x: Any) -> Array:
        """Return positions in the embedder's units, float64."""
        return (np.asarray(x, dtype=np.float64) - self.origin) / self.length


def sample_frame(axis: Array) -> Frame:
    """Return the frame of an axis whose cells are centred on its samples: sample i is embedded at i/N."""
    if len(axis) == 1:
        return Frame(float(axis[0]), 1.0, float(axis[0]) - 0.5, float(axis[0]) + 0.5)
    spacing = float(axis[-1] - axis[0]) / (len(axis) - 1)
    low, high = (
        float(axis[0] - (axis[1] - axis[0]) / 2),
        float(axis[-1] + (axis[-1] - axis[-2]) / 2),
    )
    return Frame(float(axis[0]), spacing * len(axis), low, high)


def cell_centres(low: float, high: float, count: int) -> Array:
    """Return the centres of ``count`` cells of equal size from low to high.

    Examples
    --------
    >>> cell_centres(0.0, 1.0, 4)
    array([0.125, 0.375, 0.625, 0.875])
    """
    return low + (high - low) * (np.arange(count) + 0.5) / count


def mean_step(x: Array) -> float:
    """Return the mean gap between neighbours on an axis of two or more samples."""
    return float(x[-1] - x[0]) / (len(x) - 1)


def is_even(x: Array, tolerance: float = EVEN) -> bool:
    """Tell whether all gaps of an axis are the same, but for ``tolerance`` times their mean; one sample is even.

    Examples
    --------
    >>> import numpy as np
    >>> is_even(np.linspace(0, 1, 7)), is_even(np.array([0.0, 1.0, 3.0]))
    (True, False)
    """
    if len(x) < 3:
        return True
    step = mean_step(x)
    return bool(np.abs(np.diff(x) - step).max() <= tolerance * abs(step))


def check_length(argument: str, low: float, high: float) -> None:
    """Refuse an axis so short or long that derivatives by position would overflow."""
    if not SHORTEST <= high - low <= LONGEST:
        expected = f"a length from {SHORTEST:g} to {LONGEST:g}"
        raise problem(
            argument,
            f"{low:g} to {high:g}, a length of {high - low:g}",
            expected,
            "Use another unit of length.",
        )


@dataclass(frozen=True)
class Split:
    """Every second sample of each axis that is long enough, and the rest to predict.

    Examples
    --------
    >>> import numpy as np
    >>> split = Split.of((6, 3), fewest=4)
    >>> split.known(np.arange(18).reshape(6, 3)).shape, int(split.held_out.sum())
    ((3, 3), 9)

    Attributes
    ----------
    lattice : tuple of slice
        The samples that are known, on each axis.
    held_out : array of bool
        Of the shape of the grid: the samples that are not.
    """

    lattice: tuple[slice, ...]
    held_out: Array

    @classmethod
    def of(cls, shape: Sequence[int], fewest: int = 2) -> Split:
        """Return the split of a grid; axes of fewer samples than ``fewest`` are known whole."""
        lattice = tuple(slice(None, None, 2 if n >= fewest else 1) for n in shape)
        held_out = np.ones(tuple(shape), dtype=bool)
        held_out[lattice] = False
        return cls(lattice, held_out)

    @property
    def halved(self) -> list[bool]:
        """Which axes have samples held out."""
        return [part.step > 1 for part in self.lattice]

    def known(self, values: Array, *, planar: bool = False) -> Array:
        """Return the known samples of values (N_1, ..., N_D, ...), or of ``planar`` ones (C, N_1, ..., N_D)."""
        return np.ascontiguousarray(
            values[(slice(None), *self.lattice) if planar else self.lattice]
        )

    def axes(self, axes: Sequence[Array]) -> list[Array]:
        """Return the positions of the known samples on each axis."""
        return [axis[part] for axis, part in zip(axes, self.lattice, strict=True)]
