"""Compact positions on one axis, so that a pickled field is little larger than its weights."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array

# Pack positions only if the result is smaller than this fraction of their bytes.
WORTHWHILE = 0.25


@dataclass(frozen=True, eq=False)
class EvenAxis:
    """Even positions: both ends, the count, and the rounding differences from `linspace`.

    ``rounding`` holds, compressed, the difference between each position and that of `linspace`,
    counted in adjacent float64 numbers.
    """

    first: float
    last: float
    count: int
    rounding: bytes

    def positions(self) -> Array:
        """Return the positions; raise ValueError if ``rounding`` does not belong to them."""
        line = np.linspace(self.first, self.last, self.count)
        if not self.rounding:
            return line
        # never more than a position needs, whatever the bytes contain
        found = zlib.decompressobj().decompress(self.rounding, 8 * self.count + 1)
        planes = np.frombuffer(found, dtype=np.uint8).reshape(8, self.count)
        steps = np.ascontiguousarray(planes.T).view(np.int64)[:, 0]
        return (line.view(np.int64) + steps).view(np.float64)


class SampleAxes(tuple[Array, ...]):
    """The positions on every axis of a grid, pickled compactly.

    Objects that share these positions also share the bytes in a pickle.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _unpack, (tuple(map(pack_axis, self)),)


def _unpack(packed: Iterable[EvenAxis | Array]) -> SampleAxes:
    return SampleAxes(map(unpack_axis, packed))


def pack_axis(x: Array) -> EvenAxis | Array:
    """Return even positions as an `EvenAxis`, without loss; return other positions unchanged.

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
    # Adjacent float64 numbers have adjacent integers as bit patterns. If a difference wraps around,
    # so does the sum that restores the position.
    steps = np.ascontiguousarray(x).view(np.int64) - np.linspace(first, last, len(x)).view(np.int64)
    # group the bytes by significance for better compression: nearly all are zero
    planes = np.ascontiguousarray(steps.view(np.uint8).reshape(-1, 8).T)
    rounding = zlib.compress(planes.tobytes(), 1) if steps.any() else b""
    return EvenAxis(first, last, len(x), rounding) if len(rounding) < WORTHWHILE * x.nbytes else x


def unpack_axis(packed: EvenAxis | Array) -> Array:
    """Return the positions that `pack_axis` packed."""
    return packed.positions() if isinstance(packed, EvenAxis) else packed
