"""Compact positions on one axis, so that a pickled field is little larger than its weights."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record

# Positions are packed only if the result is smaller than this fraction of their bytes: the first
# for even positions, the second for uneven ones.
WORTHWHILE, WORTHWHILE_UNEVEN = 0.25, 0.5
# The most digits after the decimal point that are tried.
MOST_DIGITS = 9


@record(eq=False)
class EvenAxis:
    """Even positions: both ends, the count, and the rounding differences from `linspace`.

    ``rounding`` holds, compressed, the difference between each position and that of `linspace`,
    counted in steps from one float64 number to the next.
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
        return (line.view(np.int64) + _decompressed(self.rounding, self.count)).view(np.float64)


@record(eq=False)
class DecimalAxis:
    """Uneven positions with few decimal digits, for example measured lengths, days or hours.

    Position n is the sum of the integer steps 0 ... n, divided by 10^digits. ``steps`` holds them
    compressed.
    """

    digits: int
    count: int
    steps: bytes

    def positions(self) -> Array:
        """Return the positions; raise ValueError if ``steps`` does not belong to them."""
        steps = _decompressed(self.steps, self.count)
        return np.asarray(np.cumsum(steps) / 10.0**self.digits)


def _compressed(integers: Array) -> bytes:
    """Return int64 numbers, compressed in planes of equal significance: high bytes are mostly 0."""
    planes = np.ascontiguousarray(integers.view(np.uint8).reshape(-1, 8).T)
    return zlib.compress(planes.tobytes(), 1)


def _decompressed(packed: bytes, count: int) -> Array:
    """Return the numbers that `_compressed` packed; raise ValueError if there are not ``count``."""
    # limit the output, whatever the bytes contain: one byte too many raises the error below
    found = zlib.decompressobj().decompress(packed, 8 * count + 1)
    planes = np.frombuffer(found, dtype=np.uint8).reshape(8, count)
    return np.ascontiguousarray(planes.T).view(np.int64)[:, 0]


class SampleAxes(tuple[Array, ...]):
    """The positions on every axis of a grid, pickled compactly.

    Objects that share these positions also share the bytes in a pickle.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _unpack, (tuple(map(pack_axis, self)),)


def _unpack(packed: Iterable[PackedAxis]) -> SampleAxes:
    return SampleAxes(map(unpack_axis, packed))


def pack_axis(x: Array) -> PackedAxis:
    """Return positions in fewer bytes, without loss; unchanged if packing saves too little.

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
    rounding = _compressed(steps) if steps.any() else b""
    if len(rounding) < WORTHWHILE * x.nbytes:
        return EvenAxis(first, last, len(x), rounding)
    return _decimal(x) or x


def _decimal(x: Array) -> DecimalAxis | None:
    """Return positions as decimal numbers; None if they have too many digits or bytes."""
    for digits in range(MOST_DIGITS + 1):
        scaled = np.round(x * 10.0**digits)
        if not np.all(np.abs(scaled) < 2.0**53):
            return None
        if np.array_equal(scaled / 10.0**digits, x):
            steps = _compressed(np.diff(scaled.astype(np.int64), prepend=0))
            packed = DecimalAxis(digits, len(x), steps)
            smaller = len(steps) < WORTHWHILE_UNEVEN * x.nbytes
            return packed if smaller and _same_bits(packed.positions(), x) else None
    return None


def _same_bits(a: Array, b: Array) -> bool:
    return np.array_equal(a.view(np.int64), np.ascontiguousarray(b).view(np.int64))


def unpack_axis(packed: PackedAxis) -> Array:
    """Return the positions that `pack_axis` packed."""
    return packed if isinstance(packed, np.ndarray) else packed.positions()


PackedAxis = EvenAxis | DecimalAxis | Array
