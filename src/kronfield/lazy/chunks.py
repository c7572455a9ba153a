"""Chunks: which weights belong to which samples, and how far a chunk must see past its ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield.embedders import Embedder
from kronfield.solvers.points.rows import axis_run


@record
class Tiling:
    """The chunks of one axis, of an array that is read and of one that is made from it.

    Attributes
    ----------
    given, made : tuple of int
        Where chunks begin, and the length of the axis. Both have the same number of chunks.
    before, after : int
        The halo: how many entries before and after its own a chunk reads, the most of all chunks.
    """

    given: tuple[int, ...]
    made: tuple[int, ...]
    before: int
    after: int

    @property
    def chunks(self) -> tuple[int, ...]:
        """The lengths of the chunks that are read."""
        return lengths(self.given)

    @property
    def made_chunks(self) -> tuple[int, ...]:
        """The lengths of the chunks that are made."""
        return lengths(self.made)

    def start(self, chunk: int) -> int:
        """Return the first entry of a chunk with its halo."""
        return self.given[chunk] - self.before if chunk else 0

    def side(self, chunk: int) -> tuple[int, int]:
        """Return the range of the entries that are made from a chunk."""
        return self.made[chunk], self.made[chunk + 1]


def starts(chunks: Sequence[int]) -> tuple[int, ...]:
    """Return where chunks begin, and the length of the axis.

    Examples
    --------
    >>> starts((4, 4, 2))
    (0, 4, 8, 10)
    """
    return tuple(itertools.accumulate(chunks, initial=0))


def lengths(bounds: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of chunks that begin at ``bounds``."""
    return tuple(stop - start for start, stop in itertools.pairwise(bounds))


def joined(chunks: Sequence[int], least: int) -> tuple[int, ...]:
    """Return chunks of which those shorter than ``least`` are joined to the next; the last, before.

    Examples
    --------
    >>> joined((3, 64, 64, 5), 10)
    (67, 69)
    >>> joined((6, 6, 6, 6, 6, 6), 10)
    (12, 12, 12)
    """
    found: list[int] = []
    for n in chunks:
        if found and found[-1] < least:
            found[-1] += n
        else:
            found.append(n)
    if len(found) > 1 and found[-1] < least:
        found[-2:] = [found[-2] + found[-1]]
    return tuple(found)


def owners(embedder: Embedder, u: Array) -> Array:
    """Return the weight in the middle of those that act at each position, in rising order."""
    run = axis_run(embedder, u)
    return np.asarray(run.first + run.taps // 2)


Needed = Callable[[int, int], tuple[int, int] | None]


def tiling(
    chunks: Sequence[int], made: Callable[[Sequence[int]], Sequence[int]], needed: Needed
) -> Tiling:
    """Return the chunks of one axis; those shorter than the halo are joined to others.

    Parameters
    ----------
    chunks : sequence of int
        The lengths of the chunks that are there.
    made : function
        Returns where the chunks that are made begin, for chunks that begin at given entries.
    needed : function
        Returns the range of the entries that a range of made ones depends on; None if it makes
        none.
    """
    least = 1
    while True:
        chunks = joined(chunks, least)
        given = starts(chunks)
        found = tiling_of(given, made(given), needed)
        least = max(found.before, found.after)
        if len(chunks) == 1 or min(chunks) >= least:
            return found


def tiling_of(given: Sequence[int], made: Sequence[int], needed: Needed) -> Tiling:
    """Return the chunks that begin at given entries, with the halo that they need."""
    before = after = 0
    for own, side in zip(itertools.pairwise(given), itertools.pairwise(made), strict=True):
        low, high = needed(*side) or own
        before, after = max(before, own[0] - low), max(after, high - own[1])
    return Tiling(tuple(given), tuple(map(int, made)), before, after)


def with_halo(planes: Any, tilings: Sequence[Tiling]) -> Any:
    """Return a dask array (C, ...) in the chunks of the tilings, each with its halo."""
    from dask.array.overlap import overlap

    chunks = {i: one.chunks for i, one in enumerate(tilings, start=1)}
    planes = planes.rechunk(chunks)
    depth: dict[int, Any] = {0: 0}
    depth |= {i: (one.before, one.after) for i, one in enumerate(tilings, start=1)}
    if not any(map(any, list(depth.values())[1:])):
        return planes
    return overlap(planes, depth=depth, boundary="none", allow_rechunk=False)


def one_chunk(argument: str, axis: int, reason: str) -> Exception:
    """Return the error for an axis that is solved as a whole, but has several chunks."""
    return problem(
        argument,
        f"several chunks on axis {axis}, where {reason}",
        "one chunk there",
        f"Use values.rechunk({{{axis}: -1}}), with smaller chunks on the other axes.",
    )
