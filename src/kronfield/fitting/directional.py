"""Middles between samples, interpolated along the directions in which the values change least.

Interpolation along the axes blurs and staggers edges that are oblique to them. Here every new node
is the weighted mean of interpolations along several directions. A direction weighs more the less
the values change along it nearby, so an edge is continued along itself. For pictures this is
directional cubic interpolation (Zhou, Shen and Dong, 2012) with the slopes of PCHIP (Fritsch and
Butland, 1984) and pooled changes; here it is written for any number of axes.

The samples and their middles form 2^D lattices. A lattice is named by its parity e: e_i = 1 if its
nodes are middles on axis i, so index j_i lies at j_i + e_i/2, in units of the sample spacing.
The lattices are filled level by level: middles of cells first (e_i = 1 on all axes), then of faces,
last of edges. Each lattice is an array of its own, so no step touches other nodes than its own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.fitting.settings import DEFAULT, DirectionalSettings

SETTINGS = DEFAULT.directional
# Bytes in one array of a tile: about ten arrays stay in the cache. Tiles of many channels have at
# least FEWEST_NODES nodes, because every tile computes the changes around it once more.
PART, FEWEST_NODES = 1 << 19, 1 << 12

Parity = tuple[int, ...]
Direction = tuple[int, ...]
# For each axis, the axis on which boxes with index 1 have one sample less: see `fill_middles`.
Shorter = Sequence[int | None]
# The first index and the one past the last, for each axis.
Box = tuple[tuple[int, int], ...]


def fill_middles(
    values: Array,
    finer: Sequence[bool],
    nodes: Array,
    settings: DirectionalSettings = SETTINGS,
    shorter: Shorter = (),
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
    shorter : sequence of D int or None, optional
        Values may be boxes side by side, on axes of length 2 that are not finer. If an axis has the
        number of such an axis here, it has one sample less in the boxes with index 1: its last
        sample is ignored there, and the nodes next to it have no meaning.

    Examples
    --------
    A diagonal edge stays sharp: the middle of a cell on it has the value of its two corners there.

    >>> import numpy as np
    >>> edge = np.tri(6)[None]
    >>> nodes = np.empty((1, 11, 11))
    >>> fill_middles(edge, (True, True), nodes)
    >>> nodes[0, 4:7, 4:7].round(2)
    array([[1. , 0.5, 0. ],
           [1. , 1. , 0.5],
           [1. , 1. , 1. ]])
    """
    _Fill(values, tuple(finer), nodes, settings, tuple(shorter))()


# Levels and directions
# ------------------------------------------------------------------------------------------


@record
class _Level:
    """Lattices that are filled together.

    Attributes
    ----------
    directions : dict
        For each lattice, the directions in which both neighbours of a node are known.
    measured : dict
        For each direction, all lattices not yet filled where both neighbours of a node are known.
        Changes are pooled over all of them: interpolated neighbours differ less than samples do, so
        changes between interpolated nodes cannot be compared with changes between samples.
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


def _behind(parity: Parity, direction: Direction) -> tuple[int, ...]:
    """Return the shift from the index of a node to the index of its neighbour behind."""
    # j + e/2 - d/2 is index j + e - (d + 1)/2 of the source
    return tuple(e - (d + 1) // 2 if d else 0 for e, d in zip(parity, direction, strict=True))


# Tiles: boxes of a few thousand nodes
# ------------------------------------------------------------------------------------------


def _tiles(shape: Sequence[int], size: int) -> list[Box]:
    """Return boxes that make up the whole and stay in the cache, with ``size`` bytes a node."""
    most = max(PART // size, FEWEST_NODES)
    sizes = list(shape)
    while math.prod(sizes) > most:
        # runs along the last axis are contiguous: keep them longer
        axis = max(range(len(sizes)), key=lambda i: sizes[i] * (1 if i + 1 < len(sizes) else 0.25))
        sizes[axis] = -(-sizes[axis] // 2)
    sides = [
        [(low, min(low + size, n)) for low in range(0, n, size)]
        for n, size in zip(shape, sizes, strict=True)
    ]
    return list(itertools.product(*sides))


@record
class _Along:
    """Differences y[k + step] - y[k] of a source, from ``start`` to ``stop``.

    They lie between the neighbours of all nodes at which changes are measured. Differences for the
    nodes of the tile begin ``offset`` later.
    """

    source: Parity
    start: int
    stop: int
    step: int
    offset: int


@record
class _Pooling:
    """The part of the changes that is pooled around the nodes of a tile, and the filter."""

    measured: tuple[Direction, Parity]
    part: slice
    steps: tuple[int, ...]
    factor: float


@record
class _Plan:
    """The numbers that are read to fill a tile on one level.

    A tile is filled from copies of boxes of the source lattices that are larger by ``halo`` at both
    ends of each axis. In these boxes indices are flat: a shift in any direction is one distance
    in memory, and all arithmetic runs over contiguous memory. Nodes of the halo that lie between
    the rows of the tile are computed too and not used.

    Attributes
    ----------
    halo, shape : tuple of int
        The width of the halo and the shape of the box.
    nodes : slice
        From the first node of the tile to the last.
    sources : tuple of Parity
        The lattices that are read.
    along : dict
        The differences that are taken, by direction and lattice.
    pooling : dict
        For each lattice that is filled and each of its directions, the changes that are pooled.
    """

    halo: tuple[int, ...]
    shape: tuple[int, ...]
    nodes: slice
    sources: tuple[Parity, ...]
    along: dict[tuple[Direction, Parity], _Along]
    pooling: dict[Parity, dict[Direction, tuple[_Pooling, ...]]]


def _filters(
    level: int, finer: Sequence[bool], settings: DirectionalSettings
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the filters that pool changes, along axes of the same and of the other parity."""
    if level:
        return settings.same, settings.other
    return (settings.cells if sum(finer) == 2 else settings.cells_of_volumes), ()


def _reach(level: int, finer: Sequence[bool], settings: DirectionalSettings) -> int:
    """Return how many nodes beyond a tile changes are measured; cubics need one."""
    same, other = _filters(level, finer, settings)
    return max(sum(same) // 2, (sum(other) + 1) // 2, 1)


def reach_in_samples(finer: Sequence[bool], settings: DirectionalSettings = SETTINGS) -> int:
    """Return how many samples beyond its neighbours affect a middle, along each finer axis.

    Each level reads nodes of the levels before it, so the distances add up.
    """
    return sum(_reach(level, finer, settings) + 1 for level in range(sum(finer)))


@functools.lru_cache(maxsize=64)
def _plan(
    level: int, finer: tuple[bool, ...], sizes: tuple[int, ...], settings: DirectionalSettings
) -> _Plan:
    """Return the plan of a level for tiles of given sizes."""
    directions, measured = _levels(finer)[level].directions, _levels(finer)[level].measured
    filters, reach = _filters(level, finer, settings), _reach(level, finer, settings)
    halo = tuple((reach + 1) * more for more in finer)
    shape = tuple(n + 2 * h for n, h in zip(sizes, halo, strict=True))
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]

    def flat(shift: Iterable[int]) -> int:
        return sum(s * stride for s, stride in zip(shift, strides, strict=True))

    first, stop = flat(halo), flat(n + h - 1 for n, h in zip(sizes, halo, strict=True)) + 1
    wide = flat(reach * more for more in finer)

    def differences(d: Direction, e: Parity) -> _Along:
        behind = flat(_behind(e, d))
        return _Along(_source(e, d), first - wide + behind, stop + wide + behind, flat(d), wide)

    def pooling(d: Direction, e: Parity, target: Parity) -> _Pooling:
        steps = [filters[e[i] != target[i]] if more else () for i, more in enumerate(finer)]
        # around index j of the target, a filter of length s + 1 begins at j - (s + e - target)/2
        start = wide - flat((sum(s) + a - b) // 2 for s, a, b in zip(steps, e, target, strict=True))
        far = tuple(step * stride for s, stride in zip(steps, strides, strict=True) for step in s)
        factor = 0.5 ** len(far) / math.hypot(*d)  # mean change per length
        return _Pooling((d, e), slice(start, start + stop - first + sum(far)), far, factor)

    along = {(d, e): differences(d, e) for d, parities in measured.items() for e in parities}
    return _Plan(
        halo,
        shape,
        slice(first, stop),
        tuple({one.source: None for one in along.values()}),
        along,
        {
            target: {d: tuple(pooling(d, e, target) for e in measured[d]) for d in ways}
            for target, ways in directions.items()
        },
    )


# The fill
# ------------------------------------------------------------------------------------------


class _Fill:
    """The lattices filled so far, and how the next are filled from them.

    All lattices have the same shape, with ``pad`` nodes before index 0 and at least as many past
    the last one.
    """

    def __init__(
        self,
        values: Array,
        finer: tuple[bool, ...],
        nodes: Array,
        settings: DirectionalSettings,
        shorter: tuple[int | None, ...] = (),
    ) -> None:
        self.values, self.finer, self.nodes, self.settings = values, finer, nodes, settings
        self.shorter = shorter or (None,) * len(finer)
        self.shape = values.shape[1:]
        self.levels = range(sum(finer))
        widest = 1 + max(_reach(level, finer, settings) for level in self.levels)
        self.pad = tuple(widest * more for more in finer)
        # products of scaled values neither overflow nor underflow, and the scaling is exact
        self.scale = _scale(values, nodes.dtype)
        self.lattices: dict[Parity, Array] = {}

    def __call__(self) -> None:
        """Fill level by level."""
        tiles = _tiles(self.shape, len(self.values) * self.nodes.dtype.itemsize)
        samples = (0,) * len(self.shape)
        self.lattices[samples] = self.empty()
        in_threads(self.take_samples, tiles)
        self.extend(samples)
        for level in self.levels:
            # nothing is interpolated from the last level
            last = level == self.levels[-1]
            kept = () if last else tuple(_levels(self.finer)[level].directions)
            self.lattices |= {parity: self.empty() for parity in kept}
            in_threads(functools.partial(self.fill_tile, level), tiles)
            for parity in kept:
                self.extend(parity)

    def empty(self) -> Array:
        """Return a lattice to be filled."""
        sizes = (n + 2 * pad for n, pad in zip(self.shape, self.pad, strict=True))
        return np.empty((len(self.values), *sizes), dtype=self.nodes.dtype)

    def in_lattice(self, parity: Parity, box: Box, halo: Sequence[int]) -> Array:
        """Return a view of a lattice: a box and a halo around it."""
        sides = zip(box, self.pad, halo, strict=True)
        part = (slice(low + pad - h, high + pad + h) for (low, high), pad, h in sides)
        return self.lattices[parity][(slice(None), *part)]

    def in_nodes(self, parity: Parity, box: Box) -> Array:
        """Return a view of the result: a box of a lattice."""
        part = (
            slice(2 * low + e, max(2 * high + e - 1, 0), 2) if more else slice(low, high)
            for (low, high), e, more in zip(box, parity, self.finer, strict=True)
        )
        return self.nodes[(slice(None), *part)]

    def take_samples(self, tile: Box) -> None:
        """Copy the samples of a tile, scaled for the arithmetic and as they are for the result."""
        samples = (0,) * len(tile)
        part = self.values[(slice(None), *(slice(*side) for side in tile))]
        self.in_nodes(samples, tile)[...] = part
        np.multiply(part, self.scale, out=self.in_lattice(samples, tile, samples))

    def extend(self, parity: Parity) -> None:
        """Continue a lattice past its ends by point reflection about its outermost nodes."""
        sides = zip(self.shape, self.pad, parity, strict=True)
        inner = [slice(pad, pad + n - e) for n, pad, e in sides]
        filled = [slice(None), *inner]  # past the ends of later axes there is nothing yet
        for axis, (side, boxes) in enumerate(zip(inner, self.shorter, strict=True), start=1):
            filled[axis] = slice(None)
            if not self.finer[axis - 1]:
                continue
            lines = self.lattices[parity][tuple(filled)]
            if boxes is None:
                _extend(lines.swapaxes(0, axis), side.start, side.stop - 1)
                continue
            for i in (0, 1):
                some = lines[(slice(None),) * (boxes + 1) + (slice(i, i + 1),)]
                _extend(some.swapaxes(0, axis), side.start, side.stop - 1 - i)

    def fill_tile(self, level: int, tile: Box) -> None:
        """Fill the nodes of a tile in all lattices of a level."""
        C, sizes = len(self.values), tuple(high - low for low, high in tile)
        plan = _plan(level, self.finer, sizes, self.settings)
        sources = {
            parity: self.in_lattice(parity, tile, plan.halo).reshape(C, -1)
            for parity in plan.sources
        }
        differences = {key: _differences(sources, along) for key, along in plan.along.items()}
        changes = {key: _norm(difference) for key, difference in differences.items()}
        box = np.empty((C, *plan.shape), dtype=self.nodes.dtype)
        middles = box.reshape(C, -1)[:, plan.nodes]
        for parity, pooling in plan.pooling.items():
            weights = [_pooled(changes, parts) for parts in pooling.values()]
            _to_weights(weights, self.settings)
            for i, (d, weight) in enumerate(zip(pooling, weights, strict=True)):
                key = d, parity
                along = plan.along[key]
                found = _twice_middles(
                    sources[along.source], differences[key], along, weight.size, self.settings.slope
                )
                if i == 0:
                    np.multiply(found, weight, out=middles)
                else:
                    found *= weight
                    middles += found
            self.put(parity, tile, plan.halo, box)

    def put(self, parity: Parity, tile: Box, halo: Sequence[int], box: Array) -> None:
        """Copy middles to the result, and to their lattice if it is kept."""
        # there is one middle less than there are samples
        ends = [min(high, n - e) for (_, high), n, e in zip(tile, self.shape, parity, strict=True)]
        inside = tuple((low, max(low, end)) for (low, _), end in zip(tile, ends, strict=True))
        part = (slice(h, h + high - low) for (low, high), h in zip(inside, halo, strict=True))
        found = box[(slice(None), *part)]
        if parity in self.lattices:
            self.in_lattice(parity, inside, (0,) * len(tile))[...] = found
        np.divide(found, self.scale, out=self.in_nodes(parity, inside))


def _extend(lines: Array, first: int, last: int) -> None:
    """Continue lines (N, ...), known from index first to last, past both ends."""
    # on short axes this reads nodes past the other end, which earlier turns have filled
    for i in range(1, len(lines) - last):
        lines[last + i] = 2 * lines[last] - lines[last - i]
        if i <= first:
            lines[first - i] = 2 * lines[first] - lines[first + i]


def _scale(values: Array, dtype: np.dtype[np.floating]) -> np.floating:
    """Return the power of two that brings the largest values to about 1."""
    largest = max(abs(float(values.max())), abs(float(values.min())))
    exponent = math.frexp(largest)[1] if math.isfinite(largest) else 0
    bound = -np.finfo(dtype).minexp  # the scale and its inverse are normal numbers
    return dtype.type(2.0 ** -min(max(exponent, -bound), bound))


# Arithmetic on tiles, written with the operations that NumPy has vectorised
# ------------------------------------------------------------------------------------------


def _negligible(dtype: np.dtype[np.floating]) -> float:
    """Return a number to add to divisors that may be 0. Products with it are normal numbers."""
    return math.sqrt(np.finfo(dtype).tiny)


def _differences(sources: Mapping[Parity, Array], along: _Along) -> Array:
    source = sources[along.source]
    ahead = source[:, along.start + along.step : along.stop + along.step]
    return ahead - source[:, along.start : along.stop]


def _norm(differences: Array) -> Array:
    """Return the Euclidean norm over channels (C, ...)."""
    if len(differences) == 1:
        return np.abs(differences[0])
    total = np.add.reduce(differences * differences, axis=0)
    return np.sqrt(total, out=total)


def _pooled(changes: Mapping[tuple[Direction, Parity], Array], parts: Sequence[_Pooling]) -> Array:
    """Return the mean change per length around each node, from one or more lattices."""
    total: Array | None = None
    for one in parts:
        found = changes[one.measured][one.part]
        for step in one.steps:
            found = found[:-step] + found[step:]
        found = found * one.factor
        total = found if total is None else np.add(total, found, out=total)
    assert total is not None
    return total


def _to_weights(changes: Sequence[Array], settings: DirectionalSettings) -> None:
    """Turn the changes along all directions into half of the weights, in place."""
    # w_d = (c_d + floor c)^-power with c the sum of all c_d: unchanged by the unit of the values
    total = functools.reduce(np.add, changes)
    total += _negligible(total.dtype)
    floor = total * settings.floor
    for change in changes:
        change += floor
        np.divide(total, change, out=change)
        _to_power(change, settings.power)
    norm = functools.reduce(np.add, changes)
    np.divide(0.5, norm, out=norm)
    for weight in changes:
        weight *= norm


def _to_power(x: Array, power: int) -> None:
    """Raise x to a positive whole power, in place and by multiplications."""
    if power > 1:
        odd = x.copy() if power % 2 else None
        x *= x
        _to_power(x, power // 2)
        if odd is not None:
            x *= odd


def _twice_middles(source: Array, m: Array, along: _Along, size: int, slope: float) -> Array:
    """Return twice the middles of cubics with PCHIP's slopes, from values and differences m."""
    step, start = along.step, along.start + along.offset
    m = m[:, along.offset - step : along.offset + size + step]
    # PCHIP's slope at the neighbour behind each node, and behind the next node: the harmonic mean
    # of the differences p before and q after it, or 0 if they differ in sign. Both cases are
    # (p |q| + q |p|) / (|p| + |q|), without a branch
    absolute = np.abs(m)
    absolute += _negligible(m.dtype)
    slopes = m[:, :-step] * absolute[:, step:]
    slopes += m[:, step:] * absolute[:, :-step]
    slopes /= absolute[:, :-step] + absolute[:, step:]
    # twice the middle: y_0 + y_1 + (slope_0 - slope_1)/4
    found = slopes[:, :-step] - slopes[:, step:]
    found *= slope / 4
    found += source[:, start : start + size]
    found += source[:, start + step : start + step + size]
    return found
