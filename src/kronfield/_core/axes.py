"""Positions on one axis in few bytes, so that a pickled field holds little beside its weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array


@dataclass(frozen=True, eq=False)
class EvenAxis:
    """Even positions: both ends, the count, and the rounding by which they differ from `linspace`.

    ``steps`` counts representable float64 numbers between each position and that of `linspace`.
    """

    first: float
    last: float
    count: int
    steps: np.ndarray[Any, np.dtype[np.int8]] | None


class SampleAxes(tuple[Array, ...]):
    """The positions on every axis of a grid, pickled in few bytes; objects that share them share the bytes too."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _unpack, (tuple(map(pack_axis, self)),)


def _unpack(packed: Iterable[EvenAxis | Array]) -> SampleAxes:
    return SampleAxes(map(unpack_axis, packed))


def pack_axis(x: Array) -> EvenAxis | Array:
    """Return even positions as an `EvenAxis`, from which they come back bit for bit; others as they are.

    Examples
    --------
    >>> import numpy as np
    >>> packed = pack_axis(np.linspace(2.0, 3.0, 1000))
    >>> bool(np.array_equal(unpack_axis(packed), np.linspace(2.0, 3.0, 1000)))
    True
    """
    if len(x) < 3 or x.dtype != np.float64:
        return x
    first, last = float(x[0]), float(x[-1])
    line = np.linspace(first, last, len(x))
    # neighbouring float64 numbers of one sign are neighbouring integers
    steps = np.ascontiguousarray(x).view(np.int64) - line.view(np.int64)
    if not steps.any():
        return EvenAxis(first, last, len(x), None)
    if np.abs(steps).max() <= np.iinfo(np.int8).max:
        return EvenAxis(first, last, len(x), steps.astype(np.int8))
    return x


def unpack_axis(packed: EvenAxis | Array) -> Array:
    """Return the positions that `pack_axis` packed."""
    if not isinstance(packed, EvenAxis):
        return packed
    line = np.linspace(packed.first, packed.last, packed.count)
    return line if packed.steps is None else (line.view(np.int64) + packed.steps).view(np.float64)
