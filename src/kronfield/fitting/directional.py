"""Middles between samples, interpolated along the directions in which the values change least.

Interpolation along the axes blurs and staggers edges that are oblique to them. Here every new node
is the weighted mean of interpolations along several directions. A direction weighs more the less
the values change along it nearby, so an edge is continued along itself. For pictures this is
directional cubic interpolation (Zhou, Shen and Dong, 2012) with the slopes of PCHIP (Fritsch and
Butland, 1984) and pooled changes; here it is written for any number of axes.

The samples and their middles form 2^D lattices. A lattice is named by its parity e: e_i = 1 if its
nodes are middles on axis i, so index j_i lies at j_i + e_i/2, in units of the sample spacing.
The lattices are filled level by level: middles of cells first (D odd parities), then of faces, last
of edges. Each lattice is an array of its own, so no step touches other nodes than its own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import in_threads


@dataclass(frozen=True)
class DirectionalSettings:
    """Constants of the directional fill, set on kodim01 to 08 by benchmarks/tuning/directional.py.

    A filter is written as the distances of a product of two-term sums: (1, 1) is the filter 1, 2, 1
    and (1, 1, 2) is the filter 1, 2, 2, 2, 1. It is applied along each finer axis in turn.

    Attributes
    ----------
    power : int
        How strongly the direction of least change is preferred: weights are (pooled change)^-power.
    floor : float
        The part of the sum of the changes along all directions that is added to each of them.
        It bounds the weights.
    cells : tuple of int
        The filter that pools changes for the middles of cells on two axes. Its sum is even.
    cells_of_volumes : tuple of int
        The same on three or more axes, where a short filter pools as many changes. Its sum is even.
        Not tuned: the shortest filter there is.
    same : tuple of int
        The filter for all other middles, along axes on which the pooled change and the node that
        is filled have the same parity. Its sum is even.
    other : tuple of int
        The same along axes on which they differ in parity. Its sum is odd.
    """

    power: int = 6
    floor: float = 0.01
    cells: tuple[int, ...] = (1, 1, 1, 1, 2)
    cells_of_volumes: tuple[int, ...] = (1, 1)
    same: tuple[int, ...] = (1, 1)
    other: tuple[int, ...] = (1,)


SETTINGS = DirectionalSettings()
# Numbers in one array of a tile: about ten arrays stay in the cache. Tiles of many channels have at
# least FEWEST_NODES nodes, because every tile computes the changes around it once more.
PART, FEWEST_NODES = 1 << 14, 1 << 11

Parity = tuple[int, ...]
Direction = tuple[int, ...]
# The first index and the one past the last, for each axis.
Box = tuple[tuple[int, int], ...]


def fill_middles(
    values: Array,
    finer: Sequence[bool],
    nodes: Array,
    settings: DirectionalSettings = SETTINGS,
) -> None:
    """Write samples, and the middles between them, into ``nodes``.

    Parameters
    ----------
    values : array of shape (C, N_1, ..., N_D)
        The samples, three or more on each finer axis.
    finer : sequence of D bool
        The axes that get middles, at least two. Positions on the other axes do not interact.
    nodes : array of shape (C, M_1, ..., M_D)
        The result, with M = 2 N - 1 on finer axes and M = N on the others. Its dtype is that of
        the arithmetic.
    settings : DirectionalSettings
        The constants.

    Examples
    --------
    A diagonal edge stays one: the middle of the cell that it crosses lies on it.

    >>> import numpy as np
    >>> edge = np.tri(6)[None]
    >>> nodes = np.empty((1, 11, 11))
    >>> fill_middles(edge, (True, True), nodes)
    >>> nodes[0, 4:7, 4:7].round(3)
    """
    _Fill(values, tuple(finer), nodes, settings)()


# Levels and directions
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Level:
    """Lattices that are filled together.

    Attributes
    ----------
    directions : dict
        For each lattice, the directions in which both neighbours of a node are known.
    measured : dict
        For each direction, all lattices not yet filled where both neighbours of a node are known.
        Changes are pooled over all of them: neighbours that were interpolated differ less than
        samples do, so the two kinds cannot be compared with each other alone.
    """

    directions: dict[Parity, tuple[Direction, ...]]
    measured: dict[Direction, tuple[Parity, ...]]


@functools.lru_cache(maxsize=32)
def _levels(finer: tuple[bool, ...]) -> tuple[_Level, ...]:
    """Return the levels: middles of cells first, middles of edges last."""
    parities = list(itertools.product(*((0, 1) if more else (0,) for more in finer)))
    levels = []
    for odd in range(sum(finer), 0, -1):
        directions = {e: tuple(_directions(e, finer)) for e in parities if sum(e) == odd}
        measured = {
            d: tuple(
                e
                for e in parities
                if 0 < sum(e) <= odd and (sum(_source(e, d)) > odd or not any(_source(e, d)))
            )
            for d in sorted(set(itertools.chain(*directions.values())))
        }
        levels.append(_Level(directions, measured))
    return tuple(levels)


def _directions(parity: Parity, finer: Sequence[bool]) -> Iterator[Direction]:
    """Yield the directions for a lattice: diagonals between samples, then its axes of parity 0."""
    odd = [i for i, e in enumerate(parity) if e]
    for signs in itertools.product((1, -1), repeat=len(odd) - 1):
        along = dict(zip(odd, (1, *signs), strict=True))
        yield tuple(along.get(i, 0) for i in range(len(parity)))
    for axis, (e, more) in enumerate(zip(parity, finer, strict=True)):
        if more and not e:
            yield tuple(int(i == axis) for i in range(len(parity)))


def _source(parity: Parity, direction: Direction) -> Parity:
    """Return the lattice of the two neighbours of a node, half a step of ``direction`` away."""
    return tuple(e ^ abs(d) for e, d in zip(parity, direction, strict=True))


def _neighbours(parity: Parity, direction: Direction) -> list[tuple[int, ...]]:
    """Return the shifts from the index of a node to those of its neighbours behind and ahead."""
    # j + e/2 -+ d/2 is index j + e + (-+d - 1)/2 of the source
    return [
        tuple(e + (sign * d - 1) // 2 if d else 0 for e, d in zip(parity, direction, strict=True))
        for sign in (-1, 1)
    ]


# Parts of lattices
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Values on a box of a lattice, with or without channels before; ``low`` is its first index."""

    values: Array
    low: tuple[int, ...]

    def at(self, box: Box, shift: Sequence[int] | None = None) -> Array:
        """Return a view of the values on a box, or on the box moved by ``shift``."""
        moved = (0,) * len(box) if shift is None else shift
        sides = zip(box, self.low, moved, strict=True)
        index = (slice(low - own + by, high - own + by) for (low, high), own, by in sides)
        return self.values[(..., *index)]


def _extend(piece: _Piece) -> None:
    """Continue a lattice past its ends: differences to the last node are repeated, mirrored."""
    # past the ends of later axes there is nothing yet
    filled = [slice(None), *(slice(-low, low or None) for low in piece.low)]
    for axis, low in enumerate(piece.low, start=1):
        filled[axis] = slice(None)
        lines = np.moveaxis(piece.values[tuple(filled)], axis, 0)
        first, last = -low, len(lines) - 1 + low
        for i in range(1, first + 1):
            # on short axes this reads nodes past the other end, which earlier turns have filled
            lines[first - i] = 2 * lines[first] - lines[first + i]
            lines[last + i] = 2 * lines[last] - lines[last - i]


def _tiles(shape: Sequence[int], channels: int) -> list[Box]:
    """Return boxes that together are the whole, and whose arrays stay in the cache."""
    most = max(PART // channels, FEWEST_NODES)
    sizes = list(shape)
    while math.prod(sizes) > most:
        # runs along the last axis are contiguous: they stay longer
        axis = max(range(len(sizes)), key=lambda i: sizes[i] * (1 if i + 1 < len(sizes) else 0.25))
        sizes[axis] = -(-sizes[axis] // 2)
    sides = [
        [(low, min(low + size, n)) for low in range(0, n, size)]
        for n, size in zip(shape, sizes, strict=True)
    ]
    return list(itertools.product(*sides))


def _scale(values: Array, dtype: np.dtype[np.floating]) -> np.floating:
    """Return the power of two that brings the largest values to about 1."""
    largest = max(abs(float(values.max())), abs(float(values.min())))
    exponent = math.frexp(largest)[1] if math.isfinite(largest) else 0
    bound = -np.finfo(dtype).minexp  # the scale and its inverse are normal numbers
    return dtype.type(2.0 ** -min(max(exponent, -bound), bound))


# The fill
# ------------------------------------------------------------------------------------------


class _Fill:
    """The lattices filled so far, and how the next are filled from them."""

    def __init__(
        self, values: Array, finer: tuple[bool, ...], nodes: Array, settings: DirectionalSettings
    ) -> None:
        self.values, self.finer, self.nodes, self.settings = values, finer, nodes, settings
        self.shape = values.shape[1:]
        self.levels = _levels(finer)
        self.cells = settings.cells if sum(finer) == 2 else settings.cells_of_volumes
        # changes are measured one node less far than lattices are extended
        self.pads = tuple((1 + max(map(self.reach, self.levels))) * more for more in finer)
        # products of scaled values neither overflow nor underflow, and the scaling is exact
        self.scale = _scale(values, nodes.dtype)
        self.lattices: dict[Parity, _Piece] = {}

    def __call__(self) -> None:
        """Fill level by level."""
        tiles = _tiles(self.shape, len(self.values))
        samples = (0,) * len(self.shape)
        self.lattices[samples] = self.empty(samples)
        in_threads(self.take_samples, tiles)
        _extend(self.lattices[samples])
        for level in self.levels:
            # nothing is interpolated from the last level, so it is not kept
            kept = level.directions if level is not self.levels[-1] else ()
            new = {parity: self.empty(parity) for parity in kept}
            in_threads(functools.partial(self.fill_tile, level, new), tiles)
            for lattice in new.values():
                _extend(lattice)
            self.lattices |= new

    def empty(self, parity: Parity) -> _Piece:
        """Return a lattice to be filled, with room past its ends."""
        sizes = (n - e + 2 * p for n, e, p in zip(self.shape, parity, self.pads, strict=True))
        values = np.empty((len(self.values), *sizes), dtype=self.nodes.dtype)
        return _Piece(values, tuple(-pad for pad in self.pads))

    def in_nodes(self, parity: Parity, box: Box) -> Array:
        """Return a view of the nodes of a lattice in the result."""
        return self.nodes[
            (
                slice(None),
                *(
                    slice(2 * low + e, 2 * high + e - 1, 2) if more else slice(low, high)
                    for (low, high), e, more in zip(box, parity, self.finer, strict=True)
                ),
            )
        ]

    def take_samples(self, tile: Box) -> None:
        """Copy the samples of a tile, scaled for the arithmetic and as they are for the result."""
        samples = (0,) * len(tile)
        part = self.values[(slice(None), *(slice(*side) for side in tile))]
        self.in_nodes(samples, tile)[...] = part
        np.multiply(part, self.scale, out=self.lattices[samples].at(tile))

    def filters(self, level: _Level) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the filters that pool changes, along axes of the same and of the other parity."""
        if level is self.levels[0]:
            return self.cells, ()
        return self.settings.same, self.settings.other

    def reach(self, level: _Level) -> int:
        """Return how many nodes away from a node changes are pooled for it."""
        same, other = self.filters(level)
        return max(sum(same) // 2, (sum(other) + 1) // 2, 1)

    def fill_tile(self, level: _Level, new: dict[Parity, _Piece], tile: Box) -> None:
        """Fill the nodes of a tile in all lattices of a level."""
        reach = self.reach(level)
        wide = tuple(
            (low - reach * more, high + reach * more)
            for (low, high), more in zip(tile, self.finer, strict=True)
        )
        changes = {
            d: {e: _change(self.lattices[_source(e, d)], e, d, wide) for e in parities}
            for d, parities in level.measured.items()
        }
        for parity, directions in level.directions.items():
            box = tuple(
                (low, min(high, n - e))
                for (low, high), n, e in zip(tile, self.shape, parity, strict=True)
            )
            if any(low >= high for low, high in box):
                continue
            pooled = [self.pooled(level, changes[d], d, parity, box) for d in directions]
            found = self.mean(parity, box, directions, _weights(pooled, self.settings))
            if new:
                new[parity].at(box)[...] = found
            np.divide(found, self.scale, out=self.in_nodes(parity, box))

    def mean(
        self, parity: Parity, box: Box, directions: Sequence[Direction], weights: Sequence[Array]
    ) -> Array:
        """Return the weighted mean of the interpolations along all directions."""
        total: Array | None = None
        for d, weight in zip(directions, weights, strict=True):
            found = _twice_middle(self.lattices[_source(parity, d)], parity, d, box)
            found *= weight
            total = found if total is None else np.add(total, found, out=total)
        assert total is not None
        return total

    def pooled(
        self, level: _Level, changes: dict[Parity, _Piece], d: Direction, parity: Parity, box: Box
    ) -> Array:
        """Return the mean change per length along a direction, around each node of a box."""
        total: Array | None = None
        filters = self.filters(level)
        for at, change in changes.items():
            found, factor = change.values, 1 / math.hypot(*d)
            for axis, more in enumerate(self.finer):
                steps = filters[at[axis] != parity[axis]] if more else ()
                # the first node of ``at`` that the filter reaches from the first one of the box
                low = box[axis][0] - (sum(steps) + at[axis] - parity[axis]) // 2
                start = low - change.low[axis]
                size = box[axis][1] - box[axis][0] + sum(steps)
                found = _filtered(found, axis, slice(start, start + size), steps)
                factor /= 2 ** len(steps)
            found = np.multiply(found, found.dtype.type(factor))
            total = found if total is None else np.add(total, found, out=total)
        assert total is not None
        return total


def _filtered(values: Array, axis: int, part: slice, steps: Sequence[int]) -> Array:
    """Return part of an array along an axis, with each step added to itself that many nodes on."""
    lead = (slice(None),) * axis
    values = values[(*lead, part)]
    for step in steps:
        values = values[(*lead, slice(None, -step))] + values[(*lead, slice(step, None))]
    return values


def _change(source: _Piece, parity: Parity, direction: Direction, box: Box) -> _Piece:
    """Return the norm over channels of the difference between the neighbours of each node."""
    behind, ahead = (source.at(box, shift) for shift in _neighbours(parity, direction))
    total = ahead[0] - behind[0]
    total *= total
    for a, b in zip(behind[1:], ahead[1:], strict=True):
        square = b - a
        square *= square
        total += square
    return _Piece(np.sqrt(total, out=total), tuple(low for low, _ in box))


def _weights(changes: Sequence[Array], settings: DirectionalSettings) -> list[Array]:
    """Return half of the weight of each direction at every node, from the changes along them."""
    # w_d = (c_d + floor c)^-power, c the sum of all c_d: the same for every unit of the values
    total = functools.reduce(np.add, changes)
    total += np.finfo(total.dtype).tiny
    floor = settings.floor * total
    weights = [_power(total / (change + floor), settings.power) for change in changes]
    norm = functools.reduce(np.add, weights)
    np.divide(0.5, norm, out=norm)
    for weight in weights:
        weight *= norm
    return weights


def _power(x: Array, power: int) -> Array:
    """Return x^power by multiplications."""
    if power == 1:
        return x
    half = _power(x * x, power // 2)
    return half * x if power % 2 else half


def _twice_middle(source: _Piece, parity: Parity, direction: Direction, box: Box) -> Array:
    """Return twice the middles of PCHIP's cubics between the neighbours of each node."""
    shifts = _neighbours(parity, direction)
    grown = tuple(
        (low - abs(d), high + abs(d)) for (low, high), d in zip(box, direction, strict=True)
    )
    behind, ahead = (source.at(grown, shift) for shift in shifts)
    link = _Piece(ahead - behind, tuple(low for low, _ in grown))
    # slope at the neighbour behind: harmonic mean 2 p q / (p + q) of the differences p before and q
    # after it, 0 where they differ in sign; for the nodes of the box and the next ones
    both = tuple(
        (low + min(d, 0), high + max(d, 0)) for (low, high), d in zip(box, direction, strict=True)
    )
    p, q = link.at(both, [-d for d in direction]), link.at(both)
    half = p * q
    np.maximum(half, 0, out=half)
    total = p + q
    total += np.copysign(np.finfo(total.dtype).tiny, total)  # 0 / 0 is 0
    half /= total
    slope = _Piece(half, tuple(low for low, _ in both))
    # twice the middle: y_0 + y_1 + (slope_0 - slope_1)/4
    found = slope.at(box) - slope.at(box, direction)
    found *= 0.5
    found += source.at(box, shifts[0])
    found += source.at(box, shifts[1])
    return found
