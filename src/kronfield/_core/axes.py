"""Positions on one axis in few bytes, so that a pickled field holds little beside its weights."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array

# Positions are packed if that takes less than this part of their bytes.
WORTHWHILE = 0.25


@dataclass(frozen=True, eq=False)
class EvenAxis:
    """Even positions: both ends, the count, and by how much rounding moved them from `linspace`.

    ``rounding`` holds, compressed, how many float64 numbers lie between each position and that of
    `linspace`.
    """

    first: float
    last: float
    count: int
    rounding: bytes


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
    # the bits of neighbouring float64 numbers are neighbouring integers; differences wrap around,
    # and so does the way back
    steps = np.ascontiguousarray(x).view(np.int64) - np.linspace(first, last, len(x)).view(np.int64)
    # bytes of a kind side by side: nearly all are zero
    planes = np.ascontiguousarray(steps.view(np.uint8).reshape(-1, 8).T)
    rounding = zlib.compress(planes.tobytes(), 1) if steps.any() else b""
    return EvenAxis(first, last, len(x), rounding) if len(rounding) < WORTHWHILE * x.nbytes else x


def unpack_axis(packed: EvenAxis | Array) -> Array:
    """Return the positions that `pack_axis` packed."""
    if not isinstance(packed, EvenAxis):
        return packed
    line = np.linspace(packed.first, packed.last, packed.count)
    if not packed.rounding:
        return line
    planes = np.frombuffer(zlib.decompress(packed.rounding), dtype=np.uint8).reshape(8, -1)
    steps = np.ascontiguousarray(planes.T).view(np.int64)[:, 0]
    return (line.view(np.int64) + steps).view(np.float64)
