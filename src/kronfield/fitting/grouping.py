"""Remove white noise from groups of alike patches: slower than `shrinkage`, and more accurate.

A picture repeats itself. A first estimate, the pilot, shows which patches are alike: each patch of
a coarse lattice is grouped with the most similar patches around it. The mean and the covariance of
a group are a Gaussian model of its patches. Under it, the best linear estimate of a noisy patch is

    mean + (noisy - mean) S (S + I)^-1,    S = covariance of the pilot's patches, noise 1

(Lebrun, Buades and Morel, 2013: non-local Bayes). The estimates of all patches that cover a sample
are averaged. All channels of a patch are estimated together.

Values are planar, (C, N_1, ..., N_D), with noise of standard deviation 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kronfield._core.arrays import Array
from kronfield.fitting.settings import DEFAULT, GroupingSettings

# The references of a tile share one search window: about this many per tile make the products of
# matrices large enough, and the window not much larger than that of each reference.
REFERENCES = 36


def regroup(noisy: Array, pilot: Array, settings: GroupingSettings = DEFAULT.grouping) -> Array:
    """Return noisy planes (C, N_1, ..., N_D) without noise, from groups found in a pilot.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.grouping import regroup
    >>> from kronfield.fitting.shrinkage import shrink
    >>> stripes = 5 * np.sin(np.arange(48) ** 2 / 40) * np.ones((1, 48, 1))
    >>> noisy = stripes + np.random.default_rng(0).standard_normal(stripes.shape)
    >>> pilot = shrink(noisy)
    >>> bool(np.std(regroup(noisy, pilot) - stripes) < 0.8 * np.std(pilot - stripes))
    True

    Parameters
    ----------
    noisy : array of shape (C, N_1, ..., N_D)
        With white noise of standard deviation 1.
    pilot : array of the same shape
        A first estimate, as `shrinkage.shrink` gives it.
    settings : GroupingSettings
        The size of patches and of groups, and where they are searched.
    """
    noisy, pilot = (np.asarray(one, dtype=np.float32) for one in (noisy, pilot))
    D, channels = noisy.ndim - 1, len(noisy)
    b = tuple(min(settings.patch(D), n) for n in noisy.shape[1:])
    patches_of_noisy, patches = _patches(noisy, b), _patches(pilot, b)
    counts = patches.shape[:D]
    d = channels * math.prod(b)
    total, seen = np.zeros((*counts, d), dtype=np.float32), np.zeros(counts, dtype=np.float32)
    for refs, window in _tiles(counts, settings):
        near = np.ascontiguousarray(patches[window]).reshape(-1, d)
        own = np.ascontiguousarray(patches[np.ix_(*refs)]).reshape(-1, d)
        group = _alike(own, near, settings.group)
        models = near[group]  # (references, group, d)
        mean = models.mean(axis=1, keepdims=True)
        models -= mean
        values = np.ascontiguousarray(patches_of_noisy[window]).reshape(-1, d)[group]
        values -= mean
        values = _estimate(values, models) + mean
        sums, counted = _sums(group.ravel(), values.reshape(-1, d), len(near))
        part = total[window]
        part += sums.reshape(part.shape)
        seen[window] += counted.reshape(part.shape[:-1])
    return _overlapped(total, seen, counts, channels, b, pilot)


def margin(D: int, settings: GroupingSettings) -> int:
    """Return from how far along an axis samples affect a result."""
    return settings.reach(D) + settings.step(D) + settings.patch(D)


def _patches(planes: Array, b: Sequence[int]) -> Array:
    """Return all patches as a view (n_1, ..., n_D, C, b_1, ..., b_D)."""
    D = planes.ndim - 1
    view = sliding_window_view(planes, tuple(b), axis=tuple(range(1, D + 1)))
    return np.moveaxis(view, 0, D)


def _tiles(
    counts: Sequence[int], settings: GroupingSettings
) -> list[tuple[list[Array], tuple[slice, ...]]]:
    """Return the references of every tile on each axis, and the window where they search."""
    D = len(counts)
    step = settings.step(D)
    side, reach = max(1, round(REFERENCES ** (1 / D))), settings.reach(D)
    axes = []
    for n in counts:
        refs = np.unique(np.append(np.arange(0, n, step), n - 1))
        parts = [refs[i : i + side] for i in range(0, len(refs), side)]
        axes.append(
            [(part, slice(max(part[0] - reach, 0), part[-1] + reach + 1)) for part in parts]
        )
    return [
        ([part for part, _ in tile], tuple(window for _, window in tile))
        for tile in itertools.product(*axes)
    ]


def _alike(own: Array, near: Array, count: int) -> Array:
    """Return the indices (R, count) of the patches near that are most alike to each of ``own``."""
    # |a - b|^2 = |b|^2 - 2 a·b + |a|^2, of which the last does not matter for the order
    distances = np.einsum("ij,ij->i", near, near) - 2 * (own @ near.T)
    if count >= len(near):
        return np.broadcast_to(np.arange(len(near)), (len(own), len(near)))
    return np.argpartition(distances, count - 1, axis=1)[:, :count]


def _estimate(values: Array, models: Array) -> Array:
    """Return the best linear estimates of centred noisy patches (R, G, d) of Gaussian groups.

    S = Z'Z/G has at most the rank of the G patches Z, so that the system is solved in their span:
    Y S (S + I)^-1 = (Y Z'/G) (Z Z'/G + I)^-1 Z.
    """
    G = models.shape[1]
    across = np.swapaxes(models, 1, 2)
    gram = np.matmul(models, across) / np.float32(G)
    gram += np.eye(G, dtype=np.float32)
    # the Gram matrix is symmetric: (Y Z') K^-1 is the transpose of K^-1 (Z Y')
    mixed = np.linalg.solve(gram, np.matmul(models, np.swapaxes(values, 1, 2)) / np.float32(G))
    return np.matmul(np.swapaxes(mixed, 1, 2), models)


def _sums(group: Array, rows: Array, count: int) -> tuple[Array, Array]:
    """Return the sums (count, d) of rows (M, d) that belong together, and how many there are.

    ``group`` (M,) are the numbers of the sums.
    """
    from scipy.sparse import csc_matrix

    # each column of the matrix has a single 1
    ends = np.arange(len(group) + 1, dtype=np.int32)
    ones = np.ones(len(group), dtype=np.float32)
    matrix = csc_matrix((ones, group.astype(np.int32), ends), (count, len(group)))
    return matrix @ rows, np.bincount(group, minlength=count).astype(np.float32)


def _overlapped(
    total: Array,
    seen: Array,
    counts: Sequence[int],
    channels: int,
    b: Sequence[int],
    pilot: Array,
) -> Array:
    """Return the average of all estimates of a sample; the pilot where there is none."""
    sums, share = np.zeros(pilot.shape, dtype=np.float32), np.zeros(pilot.shape[1:], np.float32)
    total = total.reshape(*counts, channels, -1)
    for k, offset in enumerate(itertools.product(*(range(size) for size in b))):
        part = tuple(slice(o, o + n) for o, n in zip(offset, counts, strict=True))
        sums[(slice(None), *part)] += np.moveaxis(total[..., k], -1, 0)
        share[part] += seen
    return np.where(share > 0, sums / np.maximum(share, 1), pilot)
