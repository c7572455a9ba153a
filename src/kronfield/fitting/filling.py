"""Fill missing samples of a lattice by falling thresholds in shifted blocks of cosines.

The missing samples start from a coarse guess. In every round, shifted blocks are expanded in
cosines, weights below a threshold are set to zero, and the blocks are put together again. The
missing samples take the result, the known ones are kept. The threshold falls from round to round:
strong features are continued into the gaps first, details later (Guleryuz, 2006; Elad, Starck,
Querre and Donoho, 2005). Rounds use several sizes of blocks: in turn where samples are scattered,
the largest first in holes. The last round uses all of them.

A round is a projection, and projections in turn approach their limit slowly. So a round moves the
missing samples further than its result, by a step that falls from 2 to 1 (over-relaxation: Youla
and Webb, 1982). Steps above 1 also amplify the random error that each shift of the blocks adds,
so the last steps are short.

Only blocks with missing samples are expanded, so a small gap in a large lattice takes about as much
time as in a small one. Blocks at the border of the lattice are moved inside.

Values are planar, (C, N_1, ..., N_D). Several windows can be filled together: they are stacked
along the first axis of the lattice, and blocks have length 1 along it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.fitting.settings import DEFAULT, FillingSettings
from kronfield.fitting.shrinkage import cosines

# The most numbers of blocks that are transformed together: they stay within the caches.
CHUNK = 1 << 17


# The first guess
# ------------------------------------------------------------------------------------------


def coarse_guess(planes: Array, missing: Array, dimensions: int | None = None) -> Array:
    """Return planes whose missing samples are interpolated from coarser lattices.

    Known samples are averaged over cells of 2, 4, 8, ... samples per axis until every cell has one.
    Then the gaps of each lattice are filled linearly from the next coarser one (Gortler,
    Grzeszczuk, Szeliski and Cohen, 1996). Only the last ``dimensions`` axes are used, by default
    all but the channels.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.filling import coarse_guess
    >>> line = np.arange(8.0)[None]
    >>> found = coarse_guess(line, np.arange(8) % 4 == 2)
    >>> bool(np.abs(found - line).max() < 1)
    True
    """
    D, dtype = missing.ndim if dimensions is None else dimensions, planes.dtype
    sums, weight = np.where(missing, dtype.type(0), planes), (~missing).astype(dtype)
    levels = [(sums, weight)]
    while not weight.all() and max(weight.shape[-D:]) > 1:
        sums, counts = _halved(sums, D), _halved(weight, D)
        # several samples are replaced by their mean
        weight = np.minimum(counts, 1)
        sums = sums * (weight / np.where(counts > 0, counts, 1))
        levels.append((sums, weight))
    guess = levels[-1][0]
    for sums, weight in reversed(levels[:-1]):
        guess = sums + (1 - weight) * _doubled(guess, sums.shape, D)
    return guess


def _halved(values: Array, D: int) -> Array:
    """Return the sums of pairs along the last D axes."""
    for axis in range(values.ndim - D, values.ndim):
        n = values.shape[axis]
        if n > 1:
            pairs = values[_along(axis, slice(0, None, 2))].copy()
            pairs[_along(axis, slice(0, n // 2))] += values[_along(axis, slice(1, None, 2))]
            values = pairs
    return values


def _doubled(values: Array, shape: Sequence[int], D: int) -> Array:
    """Return values of cells, interpolated linearly at the cells of half the size."""
    for axis in range(values.ndim - D, values.ndim):
        n, m = shape[axis], values.shape[axis]
        if n > m:
            # the centre of cell i of the finer lattice is at i/2 - 1/4 of the coarser one
            before = np.clip((np.arange(n) - 1) // 2, 0, m - 1)
            after = np.clip((np.arange(n) + 1) // 2, 0, m - 1)
            share = np.where(np.arange(n) % 2, 0.25, 0.75).astype(values.dtype)
            share = share.reshape(n, *[1] * (values.ndim - axis - 1))
            low, high = values.take(before, axis), values.take(after, axis)
            values = low + share * (high - low)
    return values


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, part)


# Rounds
# ------------------------------------------------------------------------------------------


def block_sizes(
    shape: Sequence[int],
    settings: FillingSettings = DEFAULT.filling,
    *,
    stacked: bool = False,
    all_sizes: bool = True,
) -> list[tuple[int, ...]]:
    """Return the number of samples of a block along each axis, for every size.

    Parameters
    ----------
    shape : sequence of int
        The shape of the lattice.
    settings : FillingSettings
        The sizes.
    stacked : bool
        Whether the first axis of the lattice only holds several windows.
    all_sizes : bool
        Whether the largest size is used too.
    """
    sizes = settings.sizes(len(shape) - stacked)
    sizes = sizes if all_sizes or len(sizes) == 1 else sizes[:-1]
    found = [(*[1] * stacked, *(min(size, n) for n in shape[stacked:])) for size in sizes]
    return list(dict.fromkeys(found))


def fill(
    planes: Array,
    missing: Array,
    error: float,
    *,
    rounds: int,
    sizes: Sequence[tuple[int, ...]],
    settings: FillingSettings = DEFAULT.filling,
    of_holes: bool = False,
    rotation: Array | None = None,
    share: float = 1.0,
) -> Array:
    """Return planes (C, N_1, ..., N_D) with their missing samples filled; others are unchanged.

    Parameters
    ----------
    planes : array (C, N_1, ..., N_D)
        The samples; the values at missing ones are the first guess.
    missing : array of bool (N_1, ..., N_D)
        Where samples are missing.
    error : float
        The expected error of the first guess, which is the unit of the thresholds.
    rounds : int
        The number of rounds.
    sizes : sequence of tuples
        The samples of a block along each axis, for every size: see `block_sizes`.
    settings : FillingSettings
        The thresholds.
    of_holes : bool
        Whether missing samples are holes with a good first guess, rather than scattered.
    rotation : array (R, C), optional
        Orthonormal rows that decorrelate the channels; by default those of the known samples. If
        there are fewer than C, only these combinations of channels are filled; combinations
        orthogonal to them keep the first guess.
    share : float
        The share of the filling in the result; the rest is the first guess.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.filling import block_sizes, coarse_guess, fill
    >>> stripes = np.add.outer(np.arange(64), np.arange(64))[None] // 8 % 2 * 1.0
    >>> missing = np.random.default_rng(0).random((64, 64)) < 0.5
    >>> guess = coarse_guess(stripes, missing)
    >>> filled = fill(guess, missing, 0.3, rounds=30, sizes=block_sizes((64, 64)))
    >>> before, after = (np.std((one - stripes)[:, missing]) for one in (guess, filled))
    >>> bool(after < 0.8 * before)
    True
    """
    C = len(planes)
    filled = planes.copy()
    places = np.flatnonzero(missing)
    if not len(places) or not error > 0:
        return filled
    if rotation is None:
        rotation = decorrelating(planes, missing, settings.covariance_samples)
    # x: rotated channels about 0, in units of the error, so that float32 suffices
    some = planes.reshape(C, -1)[:, :: max(1, missing.size // settings.covariance_samples)]
    means = some.mean(axis=1, dtype=np.float64)
    x = np.zeros((len(rotation), *planes.shape[1:]), dtype=np.float32)
    for plane, row in zip(x, rotation, strict=True):
        for r, p, m in zip(row, planes, means, strict=True):
            # in two steps: values may be far from 0
            part = p - p.dtype.type(m)
            part *= p.dtype.type(r / error)
            plane += part
    start = x.reshape(len(x), -1).take(places, axis=1)
    plan = planned(rounds, sizes, settings, of_holes=of_holes)
    found = _filled(x, missing, places, plan, settings.shifts)
    change = (share * error) * (rotation.T @ (found - start))
    flat = filled.reshape(C, -1)
    flat[:, places] = flat.take(places, axis=1) + change
    return filled


def decorrelating(planes: Array, missing: Array, most: int) -> Array:
    """Return the eigenvectors of the covariance of channels at known samples, as rows (C, C).

    From many samples, about ``most`` are used, spread evenly.
    """
    C = len(planes)
    flat = planes.reshape(C, -1)
    known = np.flatnonzero(~missing)
    known = known[:: max(1, len(known) // most)]
    if C == 1 or len(known) < 2:
        return np.eye(C)
    return np.linalg.eigh(np.cov(flat.take(known, axis=1).astype(np.float64)))[1].T


@record
class Round:
    """A round of filling.

    Attributes
    ----------
    threshold : float
        The threshold of weights, relative to the expected error.
    sizes : tuple of tuples
        The sizes of blocks, over whose results the mean is taken.
    step : float
        How far missing samples move towards the result.
    """

    threshold: float
    sizes: tuple[tuple[int, ...], ...]
    step: float


def planned(
    count: int,
    sizes: Sequence[tuple[int, ...]],
    settings: FillingSettings = DEFAULT.filling,
    *,
    of_holes: bool = False,
) -> list[Round]:
    """Return the rounds: their thresholds and steps fall, and the last one has all sizes.

    Sizes take turns where samples are scattered. Holes are filled with the largest first: only
    those blocks have known samples on all sides of a hole.

    Examples
    --------
    >>> from kronfield.fitting.filling import planned
    >>> [one.sizes for one in planned(4, [(8, 8), (16, 16)], of_holes=True)]
    [((16, 16),), ((16, 16),), ((8, 8),), ((8, 8), (16, 16))]
    >>> [one.step for one in planned(4, [(8, 8)])]
    [1.75, 1.5, 1.25, 1.0]
    """
    first, last = settings.first, settings.last
    turns = [sizes[i % len(sizes)] for i in range(count - 1)]
    if of_holes:
        first, last = settings.first_of_holes, settings.last_of_holes
        turns = [sizes[-1 - i * len(sizes) // (count - 1)] for i in range(count - 1)]
    ratio = (last / first) ** (1 / max(count - 1, 1))
    every = [*((size,) for size in turns), tuple(sizes)]
    return [
        Round(first * ratio**i, used, 1 + (settings.step - 1) * (count - 1 - i) / count)
        for i, used in enumerate(every)
    ]


def _filled(x: Array, missing: Array, places: Array, rounds: Sequence[Round], shifts: int) -> Array:
    """Return the missing samples (C, M) after all rounds; x (C, N_1, ..., N_D) is changed.

    The blocks of one size have ``shifts`` different shifts. Those of each are located once.
    """
    along = np.nonzero(missing)

    @functools.cache
    def blocks_of(size: tuple[int, ...], turn: int) -> Blocks:
        return Blocks.of(along, missing.shape, size, even_shift(size, turn))

    turns = dict.fromkeys(rounds[-1].sizes, 0)
    samples = x.reshape(len(x), -1)
    held = samples.take(places, axis=1)
    for one in rounds:
        found = np.zeros((), dtype=np.float32)
        for size in one.sizes:
            found = found + blocks_of(size, turns[size] % shifts).shrunk(samples, one.threshold)
            turns[size] += 1
        # x <- (1 - step) x + step P(x)
        found *= np.float32(one.step / len(one.sizes))
        held *= np.float32(1 - one.step)
        held += found
        samples[:, places] = held
    return held


def even_shift(size: Sequence[int], turn: int) -> list[int]:
    """Return the shift of the blocks along each axis in one turn.

    The shifts of successive turns are spread evenly: they are multiples of powers of the
    generalised golden ratio g, g^(D + 1) = g + 1 (an additive sequence: Weyl, 1916).

    Examples
    --------
    >>> from kronfield.fitting.filling import even_shift
    >>> [even_shift((8, 8), turn) for turn in range(4)]
    [[3, 2], [1, 6], [7, 3], [5, 7]]
    """
    axes = [axis for axis, b in enumerate(size) if b > 1]
    ratio = _golden(len(axes))
    shift = [0] * len(size)
    for k, axis in enumerate(axes, start=1):
        shift[axis] = int((turn + 0.5) * ratio**-k % 1 * size[axis])
    return shift


@functools.cache
def _golden(D: int) -> float:
    """Return the generalised golden ratio g, g^(D + 1) = g + 1."""
    ratio = 2.0
    for _ in range(60):  # the fixed point, to rounding
        ratio = (1 + ratio) ** (1 / (D + 1))
    return ratio


@record(eq=False)
class Blocks:
    """All blocks of one size that have missing samples.

    Attributes
    ----------
    sizes : tuple of int
        The samples of a block along each axis.
    starts : array (B,)
        The first sample of each block.
    offsets : array (n,)
        The offset of each sample of a block from its first one.
    of_missing : array (M,)
        Where the missing samples are, among the samples (n, B) of all blocks.
    """

    sizes: tuple[int, ...]
    starts: Array
    offsets: Array
    of_missing: Array

    @classmethod
    def of(
        cls,
        places: Sequence[Array],
        shape: Sequence[int],
        sizes: tuple[int, ...],
        shift: Sequence[int],
    ) -> Blocks:
        """Return the blocks of a lattice of blocks that starts at ``shift``.

        Blocks that reach past the border of the lattice are moved inside. A missing sample belongs
        to the block that held it before the move.

        Examples
        --------
        >>> import numpy as np
        >>> from kronfield.fitting.filling import Blocks
        >>> blocks = Blocks.of([np.array([0, 7, 8, 19])], [20], (6,), [4])
        >>> blocks.starts  # of blocks at -2, 4, 10, 16
        array([ 0,  4, 14])
        >>> blocks.of_missing  # of (6, 3): sample 0 of block 0, 3 and 4 of block 1, 5 of block 2
        array([ 0, 10, 13, 17])
        """
        # the number of the block and, in the lowest bits, the place in it: a sum over axes
        bits = math.prod(sizes).bit_length()
        both = np.zeros(len(places[0]), dtype=np.intp)
        firsts, counts, blocks, inner = list[Array](), list[int](), 1, 1
        axes = zip(places[::-1], shape[::-1], sizes[::-1], shift[::-1], strict=True)
        for place, length, b, s in axes:
            before = (b - s) % b  # samples of the first block that precede sample 0
            count = (length - 1 + before) // b + 1
            first = np.arange(-before, count * b - before, b)
            first[0] = max(first[0], 0)
            first[-1] = min(first[-1], length - b)
            if length > 1:
                every = np.arange(length)
                owner = (every + before) // b
                table = ((owner * blocks) << bits) + (every - first.take(owner)) * inner
                both += table.take(place)
            firsts.append(first)
            counts.append(count)
            blocks, inner = blocks * count, inner * b
        number = both >> bits
        touched = np.zeros(blocks, dtype=bool)
        touched[number] = True
        used = np.flatnonzero(touched)
        if len(used) < blocks:  # renumber them
            number = (np.cumsum(touched) - 1).take(number)
        starts, offsets = np.zeros(len(used), dtype=np.intp), np.zeros(1, dtype=np.intp)
        each = zip(firsts[::-1], np.unravel_index(used, counts[::-1]), shape, sizes, strict=True)
        for first, i, length, b in each:
            starts = starts * length + first.take(i)
            offsets = (offsets[:, None] * length + np.arange(b)).ravel()
        both &= (1 << bits) - 1
        both *= len(used)
        both += number
        return cls(sizes, starts, offsets, both)

    def shrunk(self, samples: Array, threshold: float) -> Array:
        """Return the missing samples (C, M) after small weights of the blocks are set to zero.

        ``samples`` (C, N) are all samples of the lattice.
        """
        C, count, n = len(samples), len(self.starts), len(self.offsets)
        results = np.empty((C, n, count), dtype=np.float32)
        step = max(1, CHUNK // (C * n))

        def shrink(first: int) -> None:
            part = slice(first, first + step)
            cut = samples.take(self.offsets[:, None] + self.starts[part], axis=1)
            results[..., part] = _thresholded(cut, self.sizes, threshold)

        in_threads(shrink, range(0, count, step))
        return results.reshape(C, -1).take(self.of_missing, axis=1)


def _thresholded(blocks: Array, sizes: Sequence[int], threshold: float) -> Array:
    """Return blocks (C, n, B) without weights whose energy in all channels is small.

    Others are reduced by the factor 1 - threshold^2 / energy: large weights hardly change,
    and there is no jump at the threshold (the garrote of Breiman, 1995).
    """
    weights = _along_axes(blocks, [cosines(b) for b in sizes])
    least = np.float32(threshold**2)
    keep = weights[0] * weights[0]
    for plane in weights[1:]:
        keep += plane * plane
    np.maximum(keep, least, out=keep)
    np.divide(least, keep, out=keep)
    np.subtract(1, keep, out=keep)
    keep[0] = 1  # the mean of a block
    weights *= keep
    return _along_axes(weights, [cosines(b).T for b in sizes])


def _along_axes(blocks: Array, matrices: Sequence[Array]) -> Array:
    """Multiply every axis of blocks (C, n, B) by its matrix.

    The last axis counts the blocks, so that products of matrices have long rows.
    """
    found, before = blocks, len(blocks)
    for matrix in matrices:
        b = len(matrix)
        if b > 1:
            found = np.matmul(matrix, found.reshape(before, b, -1))
        before *= b
    return found.reshape(blocks.shape)
