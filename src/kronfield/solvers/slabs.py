"""Large arrays, a slab of rows at a time: temporary results stay in the cache, and slabs are shared out among threads."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from kronfield.solvers.banded import Matrix

# Numbers in a slab, and in an array that is worth several threads.
SLAB, SEVERAL = 1 << 18, 1 << 20
# Planes that are so few that they are copied whole.
FEW_PLANES = 4
_PREFIX = "kronfield"

Result = TypeVar("Result")
Part = TypeVar("Part")


@functools.lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), thread_name_prefix=_PREFIX)


if hasattr(os, "register_at_fork"):  # the threads of a pool do not come along
    os.register_at_fork(after_in_child=_pool.cache_clear)


def threads() -> int:
    """Return how many threads there may be."""
    return os.cpu_count() or 1


def channel_pool(channels: int) -> ThreadPoolExecutor:
    """Return a pool of threads for channels; within it nothing is shared out any further."""
    return ThreadPoolExecutor(min(channels, threads()), thread_name_prefix=_PREFIX)


def in_turn_or_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return work(part) for every part, in order: by several threads, or in turn if this is one of them."""
    if threads() == 1 or threading.current_thread().name.startswith(_PREFIX):
        return [work(part) for part in parts]
    results: list[Any] = [None] * len(parts)
    left = iter(enumerate(parts))  # next() is atomic: each thread takes what is left, so there is one wait, not one a part

    def take() -> None:
        for i, part in left:
            results[i] = work(part)

    others = [_pool().submit(take) for _ in range(min(threads(), len(parts)) - 1)]
    take()
    for other in others:
        other.result()
    return results


def each_slab(work: Callable[[int, int], Result], rows: int, numbers_per_row: int) -> list[Result]:
    """Return work(start, stop) for every slab of rows, in order."""
    step = max(8, SLAB // max(numbers_per_row, 1))
    slabs = [(start, min(start + step, rows)) for start in range(0, rows, step)]
    if rows * numbers_per_row < SEVERAL:
        return [work(*slab) for slab in slabs]
    return in_turn_or_threads(lambda slab: work(*slab), slabs)


def first_axis_last(planes: Matrix, target: Matrix) -> None:
    """Copy planes (C, N, ...) to ``target`` (N, ..., C), plane by plane.

    Of many, slab by slab, so that every line of the cache that is fetched is used up, and by several threads. Of few that
    gains nothing, and threads would wait for those of matrix products, which go on waiting busily for a while.
    """

    def work(i: int, j: int) -> None:
        for channel, plane in enumerate(planes):
            target[i:j, ..., channel] = plane[i:j]

    if len(planes) <= FEW_PLANES:
        work(0, len(target))
    else:
        each_slab(work, len(target), math.prod(target.shape[1:]))


def last_axis_first(values: Matrix) -> Matrix:
    """Return values (N, ..., C) as contiguous planes (C, N, ...): a view where that is possible, else a copy."""
    moved = np.moveaxis(values, -1, 0)
    if len(moved) <= FEW_PLANES or moved.flags.c_contiguous:
        return np.ascontiguousarray(moved)
    planes = np.empty(moved.shape, dtype=values.dtype)

    def work(i: int, j: int) -> None:
        planes[:, i:j] = moved[:, i:j]

    each_slab(work, len(values), math.prod(values.shape[1:]))
    return planes


def multiplied(planes: Matrix, factor: Matrix, out: Matrix | None) -> Matrix:
    """Return planes (C, ...) times a factor (...), in a new array or in ``out``."""
    if out is None:
        out = np.empty(planes.shape, dtype=np.result_type(planes, factor))

    def work(plane: Matrix, result: Matrix, i: int, j: int) -> None:
        np.multiply(plane[i:j], factor[i:j], out=result[i:j])

    for plane, result in zip(planes, out, strict=True):
        each_slab(functools.partial(work, plane, result), len(plane), math.prod(plane.shape[1:]))
    return out
