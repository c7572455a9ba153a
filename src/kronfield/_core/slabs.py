"""Process large arrays in slabs of rows, so that temporary results stay in the cache.

Slabs of large arrays are distributed over threads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import in_threads

# Numbers in a slab, and the smallest array, in numbers, that is processed by several threads.
SLAB, SEVERAL = 1 << 18, 1 << 20
# More planes than this are copied at once: a copy per plane would load each cache line of the
# target again for every plane.
MANY_PLANES = 256

Result = TypeVar("Result")


def each_slab(work: Callable[[int, int], Result], rows: int, numbers_per_row: int) -> list[Result]:
    """Return work(start, stop) for every slab of rows, in order."""
    step = max(8, SLAB // max(numbers_per_row, 1))
    slabs = [(start, min(start + step, rows)) for start in range(0, rows, step)]
    if rows * numbers_per_row < SEVERAL:
        return [work(*slab) for slab in slabs]
    return in_threads(lambda slab: work(*slab), slabs)


def first_axis_last(planes: Array, target: Array) -> None:
    """Copy planes (C, N, ...) to ``target`` (N, ..., C), in slabs that fit in the cache."""

    def work(i: int, j: int) -> None:
        if len(planes) > MANY_PLANES:
            target[i:j] = np.moveaxis(planes[:, i:j], 0, -1)
            return
        for channel, plane in enumerate(planes):
            target[i:j, ..., channel] = plane[i:j]

    each_slab(work, len(target), math.prod(target.shape[1:]))


def last_axis_first(values: Array) -> Array:
    """Return values (N, ..., C) as contiguous planes (C, N, ...), as a view if possible."""
    moved = np.moveaxis(values, -1, 0)
    if moved.flags.c_contiguous:
        return moved
    planes = np.empty(moved.shape, dtype=values.dtype)

    def work(i: int, j: int) -> None:
        planes[:, i:j] = moved[:, i:j]

    each_slab(work, len(values), math.prod(values.shape[1:]))
    return planes


def multiplied(planes: Array, factor: Array, out: Array | None) -> Array:
    """Return planes (C, ...) times a factor (...), in a new array or in ``out``."""
    if out is None:
        out = np.empty(planes.shape, dtype=np.result_type(planes, factor))

    def work(plane: Array, result: Array, i: int, j: int) -> None:
        np.multiply(plane[i:j], factor[i:j], out=result[i:j])

    for plane, result in zip(planes, out, strict=True):
        each_slab(functools.partial(work, plane, result), len(plane), math.prod(plane.shape[1:]))
    return out
