"""Values of which only the middle is in memory: all that the choice on a grid reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array


class Middle:
    """Planar values (C, N_1, ..., N_D), read in parts that lie in the middle of the grid.

    Examples
    --------
    >>> import numpy as np
    >>> whole = np.arange(20.0)[None]
    >>> middle = Middle(whole[:, 5:15], [5], (20,))
    >>> middle.shape, middle[:, 8:11]
    ((1, 20), array([[ 8.,  9., 10.]]))

    Parameters
    ----------
    values : array (C, n_1, ..., n_D)
        The middle.
    low : sequence of int
        The sample on each axis at which it begins.
    lengths : sequence of int
        The number of samples of each axis of the grid.
    """

    def __init__(self, values: Array, low: Sequence[int], lengths: Sequence[int]) -> None:
        self.values, self._low, self._lengths = values, tuple(low), tuple(lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all values."""
        return (len(self.values), *self._lengths)

    @property
    def ndim(self) -> int:
        """The number of axes, with that of the channels."""
        return len(self._lengths) + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def size(self) -> int:
        """The number of all values."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        """Return some of the channels, or an array: (channels, one slice for each axis)."""
        if not isinstance(key, tuple):
            return Middle(self.values[key], self._low, self._lengths)
        channels, *parts = key
        moved = [
            slice(p.start - low, p.stop - low) for p, low in zip(parts, self._low, strict=True)
        ]
        inside = zip(moved, self.values.shape[1:], strict=True)
        if not all(0 <= p.start <= p.stop <= n for p, n in inside):
            raise IndexError(f"{parts} are not all in the middle of {self._lengths}")
        return self.values[(channels, *moved)]

    def __array__(self, *args: Any, **options: Any) -> Array:
        raise TypeError("only the middle of these values is in memory")
