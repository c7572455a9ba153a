"""Fill missing samples of a lattice by falling thresholds in shifted blocks of cosines.

The missing samples start from a coarse guess. In every round, blocks at random shifts are expanded
in cosines, weights below a threshold are set to zero, and the blocks are put together again. The
missing samples take the result, the known ones are kept. The threshold falls from round to round:
strong features are continued into the gaps first, details later (Guleryuz, 2006; Elad, Starck,
Querre and Donoho, 2005). Rounds use several sizes of blocks in turn; the last ones are averaged.

Only blocks with missing samples are expanded, so a small gap in a large lattice takes about as much
time as in a small one. Blocks at the border of the lattice are moved inside.

Values are planar, (C, N_1, ..., N_D). Several windows can be filled together: they are stacked
along the first axis of the lattice, and blocks have one sample along it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kronfield._core.arrays import Array
from kronfield._core.threads import in_threads
from kronfield.fitting.settings import DEFAULT, FillingSettings
from kronfield.fitting.shrinkage import cosines, samples_of, weights_of

# The most numbers of blocks that are transformed together: they stay within the caches.
CHUNK = 1 << 16
# Blocks of up to this many samples are transformed by one product with a Kronecker matrix.
ONE_PRODUCT = 64
# Known samples that are enough for a covariance of channels.
ENOUGH = 1 << 14


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
        # several samples count as one, their mean
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
    """Return the samples of a block along each axis, for every size.

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
    sizes = sizes if all_sizes else sizes[:-1]
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
    rotation: Array | None = None,
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
    rotation : array (C, C), optional
        Decorrelates the channels; by default that of the known samples.

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
        rotation = decorrelating(planes, missing)
    # x: rotated channels with mean 0, in units of the error, so that float32 suffices
    means = planes.reshape(C, -1).mean(axis=1, dtype=np.float64)
    x = np.zeros(planes.shape, dtype=np.float32)
    for plane, row in zip(x, rotation, strict=True):
        for r, p, m in zip(row, planes, means, strict=True):
            plane += (p - p.dtype.type(m)) * p.dtype.type(r / error)
    found = _rounds(x, missing, places, rounds, sizes, settings)
    filled.reshape(C, -1)[:, places] = rotation.T @ found * error + means[:, None]
    return filled


def decorrelating(planes: Array, missing: Array) -> Array:
    """Return the eigenvectors of the covariance of known channels, one per row: (C, C).

    Of many samples, a part that is spread evenly is used.
    """
    C = len(planes)
    flat = planes.reshape(C, -1)
    known = np.flatnonzero(~missing)
    known = known[:: max(1, len(known) // ENOUGH)]
    if C == 1 or len(known) < 2:
        return np.eye(C)
    return np.linalg.eigh(np.cov(flat[:, known].astype(np.float64)))[1].T


def _rounds(
    x: Array,
    missing: Array,
    places: Array,
    rounds: int,
    sizes: Sequence[tuple[int, ...]],
    settings: FillingSettings,
) -> Array:
    """Return the missing samples (C, M), float64; x (C, N_1, ..., N_D) is changed.

    A round uses one size of blocks, the sizes in turn. The last rounds, which are averaged, use all
    sizes.
    """
    rng = np.random.default_rng(0)
    averaged = max(1, round(settings.averaged * rounds))
    along = np.nonzero(missing)
    samples, total = x.reshape(len(x), -1), np.zeros((len(x), len(places)))
    found = np.zeros_like(x)
    flat = found.reshape(len(x), -1)
    for i, threshold in enumerate(np.geomspace(settings.first, settings.last, rounds)):
        last = i >= rounds - averaged
        used = sizes if last else [sizes[i % len(sizes)]]
        mean = None
        for size in used:
            shift = [int(rng.integers(b)) for b in size]
            starts = block_starts(along, missing.shape, size, shift)
            shrink_blocks(x, starts, size, float(threshold), found)
            taken = flat.take(places, axis=1)
            mean = taken if mean is None else mean + taken
        assert mean is not None
        mean /= len(used)
        if last:
            total += mean
        samples[:, places] = mean
    return total / averaged


def shrink_blocks(
    x: Array, starts: Sequence[Array], sizes: tuple[int, ...], threshold: float, found: Array
) -> None:
    """Write blocks of x (C, N_1, ..., N_D) without small weights to ``found``.

    Other samples of ``found`` are not changed.
    """
    C, count = len(x), len(starts[0])
    blocks = sliding_window_view(x, (C, *sizes))[0]
    results = np.empty((count, C, *sizes), dtype=np.float32)
    step = max(1, CHUNK // (C * math.prod(sizes)))

    def shrink(first: int) -> None:
        part = slice(first, first + step)
        cut = blocks[tuple(start[part] for start in starts)]
        results[part] = _thresholded(cut, sizes, threshold).reshape(cut.shape)

    in_threads(shrink, range(0, count, step))
    # one after the other, since blocks that were moved inside overlap others
    sliding_window_view(found, (C, *sizes), writeable=True)[0][tuple(starts)] = results


def block_starts(
    places: Sequence[Array], shape: Sequence[int], sizes: Sequence[int], shift: Sequence[int]
) -> list[Array]:
    """Return the first samples, along each axis, of all blocks with missing samples.

    The lattice of blocks starts at ``shift``. Blocks that reach past the border of the lattice are
    moved inside.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.filling import block_starts
    >>> block_starts([np.array([0, 7, 8, 19])], [20], [6], [4])  # of blocks at -2, 4, 10, 16
    [array([ 0,  4, 14])]
    """
    firsts, number = [], np.zeros(len(places[0]), dtype=np.intp)
    for place, n, b, s in zip(places, shape, sizes, shift, strict=True):
        before = (b - s) % b  # samples of the first block that precede sample 0
        count = (n - 1 + before) // b + 1
        number *= count
        number += ((np.arange(n) + before) // b).take(place)
        firsts.append(np.clip(np.arange(count) * b - before, 0, n - b))
    counts = [len(first) for first in firsts]
    touched = np.zeros(math.prod(counts), dtype=bool)
    touched[number] = True
    index = np.unravel_index(np.flatnonzero(touched), counts)
    return [first[i] for first, i in zip(firsts, index, strict=True)]


def _thresholded(blocks: Array, sizes: tuple[int, ...], threshold: float) -> Array:
    """Return blocks (B, C, b_1, ..., b_D) without weights that are small in all channels."""
    B, C, n = len(blocks), blocks.shape[1], math.prod(sizes)
    product = n <= ONE_PRODUCT
    if product:
        weights = blocks.reshape(B * C, n) @ _joint(sizes).T
    else:
        weights = weights_of(blocks.reshape(B * C, *_alternating(sizes)), sizes)
    weights = weights.reshape(B, C, n)
    # a weight is kept in all channels if their energy is above that of errors in some of them
    least = np.float32(threshold**2 * (1 + (C - 1) / 4))
    energy = np.einsum("bcn,bcn->bn", weights, weights)
    keep = np.greater(energy, least, out=energy)  # 0 or 1
    keep[:, 0] = 1  # the mean of a block
    weights *= keep[:, None]
    if product:
        return weights.reshape(B * C, n) @ _joint(sizes)
    return samples_of(weights.reshape(B * C, *_alternating(sizes)), sizes)


def _alternating(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a single block as `shrinkage` has it: (1, b_1, 1, b_2, ...)."""
    return tuple(itertools.chain.from_iterable((1, b) for b in sizes))


@functools.cache
def _joint(sizes: tuple[int, ...]) -> Array:
    """Return the cosines of all axes together, the Kronecker product: (n, n)."""
    return functools.reduce(np.kron, [cosines(b) for b in sizes])
