"""Remove white noise in groups of similar patches: slower than `shrinkage`, and more accurate.

A picture repeats itself. A first estimate, the pilot, shows which patches are similar: each patch
of a coarse lattice, a reference, is grouped with the most similar patches around it. The mean and
the covariance of a group are a Gaussian model of its patches. Under it, the best linear estimate of
a noisy patch is

    mean + (noisy - mean) S (S + I)^-1,    S = covariance of the pilot's patches, noise 1

(Lebrun, Buades and Morel, 2013: non-local Bayes). The estimates of all patches that cover a sample
are averaged. All channels of a patch are estimated together.

Values are planar, (C, N_1, ..., N_D), with noise of standard deviation 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.fitting.settings import DEFAULT, GroupingSettings

# The most numbers in groups that are estimated together, so that they stay in the caches.
TOGETHER = 1 << 17
# About the most samples of all planes whose references are treated in one go, to bound the memory.
SLAB = 1 << 18


def regroup(
    noisy: Array,
    pilot: Array,
    settings: GroupingSettings = DEFAULT.grouping,
    start: int = 0,
    compared: Sequence[int] | None = None,
) -> Array:
    """Return noisy planes (C, N_1, ..., N_D) without noise, from groups found in a pilot.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.grouping import regroup
    >>> from kronfield.fitting.shrinkage import shrink
    >>> stripes = 5 * np.sin(np.arange(48) ** 2 / 40) * np.ones((1, 48, 1))
    >>> noisy = stripes + np.random.default_rng(0).standard_normal(stripes.shape)
    >>> pilot = shrink(noisy)
    >>> bool(np.std(regroup(noisy, pilot) - stripes) < 0.9 * np.std(pilot - stripes))
    True

    Parameters
    ----------
    noisy : array of shape (C, N_1, ..., N_D)
        The planes, with white noise of standard deviation 1.
    pilot : array of the same shape
        A first estimate, as `shrinkage.shrink` gives it.
    settings : GroupingSettings
        The size of patches and of groups, and where they are searched.
    start : int
        The row of the whole grid at which the planes start. With it, references are at the same
        samples in every slab.
    compared : sequence of int, optional
        The planes by which patches are compared, by default those of `leading` in the pilot.
    """
    clean = np.empty(pilot.shape, dtype=np.float32)

    def put(rows: slice, found: Array) -> None:
        clean[:, rows] = found

    regroup_rows(lambda rows: noisy[:, rows], pilot, put, settings, start, compared)
    return clean


def regroup_rows(
    noisy: Callable[[slice], Array],
    pilot: Array,
    put: Callable[[slice, Array], None],
    settings: GroupingSettings,
    start: int = 0,
    compared: Sequence[int] | None = None,
) -> None:
    """Do the work of `regroup` in rows of the first axis, of which few are in memory at a time.

    Parameters
    ----------
    noisy : callable
        Returns the given rows of the noisy planes.
    pilot : array of shape (C, N_1, ..., N_D)
        A first estimate.
    put : callable
        Takes finished rows and their planes, in order.
    settings : GroupingSettings
        As in `regroup`.
    start : int
        As in `regroup`.
    compared : sequence of int, optional
        As in `regroup`.
    """
    if compared is None:
        compared = leading(pilot, settings.leading)
    D, (channels, N) = pilot.ndim - 1, pilot.shape[:2]
    patch = min(settings.patch(D, channels), N)
    count, reach = N - patch + 1, settings.reach(D)
    width = min(2 * reach + 1, count)
    references = references_of(count, settings.step(D), start)
    lows = np.clip(references - reach, 0, count - width)
    # in parts that share few rows with the next one
    least = width + patch
    together = max(SLAB // (pilot[:, 0].size or 1), 2 * least) - least
    parts = max(1, round(count / together))
    ends = np.searchsorted(references, [i * count // parts for i in range(1, parts)])
    ends = np.unique([0, *ends, len(references)])
    left: tuple[Array, Array] | None = None
    for first, end in itertools.pairwise(ends):
        # no later group has samples before row `done`
        low, done = int(lows[first]), int(lows[end]) if end < len(references) else N
        rows = slice(low, max(int(lows[end - 1]) + width - 1 + patch, done))
        # channels last, so that neighbouring samples of a patch are neighbours in memory
        models, values = (
            np.ascontiguousarray(np.moveaxis(one, 0, -1), dtype=np.float32)
            for one in (pilot[:, rows], noisy(rows))
        )
        search = Search.of(models, settings, references[first:end] - low, compared)
        total, share = _sums(values, models, search)
        del values
        if left is not None:
            for now, before in zip((total, share), left, strict=True):
                now[: len(before)] += before
        left = total[done - low :].copy(), share[done - low :].copy()
        clean, known = total[: done - low], share[: done - low]
        np.copyto(clean, models[: done - low], where=known == 0)
        clean /= np.maximum(known, 1, out=known)
        put(slice(low, done), np.moveaxis(clean, -1, 0))


def references_of(count: int, step: int, start: int) -> Array:
    """Return the places of references along an axis of ``count`` patches."""
    return np.unique(np.append(np.arange(-start % step, count, step), (0, count - 1)))


def _sums(noisy: Array, pilot: Array, search: Search) -> tuple[Array, Array]:
    """Return the sums of the estimates of all patches, and how many there are of each sample.

    Channels are last.
    """
    total = np.zeros(pilot.size, dtype=np.float32)
    seen = np.zeros(math.prod(search.counts), dtype=np.float32)
    inside = search.inside()
    evenly = np.full((1, search.group), 1 / search.group, dtype=np.float32)
    for firsts in search.groups():
        where = search.positions(firsts)[..., None] + inside
        models, values = pilot.ravel().take(where), noisy.ravel().take(where)
        mean = np.matmul(evenly, models)  # faster than a mean over this axis
        models -= mean
        values -= mean
        found = _estimate(values, models)
        found += mean
        _add(total, where, found)
        _add(seen, firsts)
    share = _covered(seen.reshape(search.counts), search.sizes)[..., None]
    return total.reshape(pilot.shape), share


def margin(D: int, settings: GroupingSettings, channels: int) -> int:
    """Return how far along an axis samples affect a result."""
    reach, patch = settings.reach(D), settings.patch(D, channels)
    return reach + max(reach, settings.step(D)) + patch


@record(eq=False)
class Search:
    """The search for similar patches in a pilot (N_1, ..., N_D, C).

    Attributes
    ----------
    shape : tuple of int
        The shape of the pilot.
    sizes : tuple of int
        The number of samples of a patch along each axis.
    counts : tuple of int
        The number of patches along each axis.
    group : int
        The number of patches in a group.
    widths : tuple of int
        The number of patches that are compared with a reference along each axis.
    references, lows : array (R, D)
        The places of the references, and of the first patches with which they are compared.
    soft : array (N_1, ..., N_D, planes)
        The planes that are compared, averaged over neighbours along every axis and scaled.
    offsets : list of tuple of int
        The samples of ``soft`` by which patches are compared, counted from the first of a patch.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    group: int
    widths: tuple[int, ...]
    references: Array
    lows: Array
    soft: Array
    offsets: list[tuple[int, ...]]

    @classmethod
    def of(
        cls, pilot: Array, settings: GroupingSettings, rows: Array, compared: Sequence[int]
    ) -> Search:
        """Return the search in some planes of a pilot, with references in ``rows`` of axis 1."""
        *lengths, channels = pilot.shape
        D = len(lengths)
        step, reach = settings.step(D), settings.reach(D)
        sizes = tuple(min(settings.patch(D, channels), n) for n in lengths)
        counts = tuple(n - b + 1 for n, b in zip(lengths, sizes, strict=True))
        widths = tuple(min(2 * reach + 1, n) for n in counts)
        axes = [rows, *(references_of(n, step, 0) for n in counts[1:])]
        references = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, D)
        lows = np.clip(references - reach, 0, np.subtract(counts, widths))
        soft, offsets = np.ascontiguousarray(pilot[..., list(compared)]), []
        for axis, b in enumerate(sizes):
            if b > 1:
                n = soft.shape[axis]
                soft = soft.take(range(n - 1), axis) + soft.take(range(1, n), axis)
            offsets.append(pairs(b))
        return cls(
            shape=pilot.shape,
            sizes=sizes,
            counts=counts,
            group=min(settings.group, math.prod(widths)),
            widths=widths,
            references=references,
            lows=lows,
            soft=soft,
            offsets=list(itertools.product(*offsets)),
        )

    def groups(self) -> Iterator[Array]:
        """Yield the numbers (R, group) of the patches of the groups that are estimated together."""
        near = max(1, TOGETHER // math.prod(self.widths))
        own = max(1, TOGETHER // (self.group * math.prod(self.sizes) * self.shape[-1]))
        for low in range(0, len(self.references), near):
            firsts = self.alike(slice(low, low + near))
            for start in range(0, len(firsts), own):
                yield firsts[start : start + own]

    def alike(self, some: slice) -> Array:
        """Return the numbers (R, group) of the patches that are most similar to some references."""
        lows, references = self.lows[some], self.references[some]
        distances = np.zeros((len(lows), *self.widths), dtype=np.float32)
        wide = (slice(None), *[None] * len(self.widths))
        for offset in self.offsets:
            part = tuple(slice(o, o + n) for o, n in zip(offset, self.counts, strict=True))
            for channel in range(self.soft.shape[-1]):
                plane = self.soft[..., channel][part]
                near = sliding_window_view(plane, self.widths)[tuple(lows.T)]
                near -= plane[tuple(references.T)][wide]
                near *= near
                distances += near
        flat = distances.reshape(len(lows), -1)
        if self.group < flat.shape[1]:
            best = np.argpartition(flat, self.group - 1, axis=1)[:, : self.group]
        else:
            best = np.broadcast_to(np.arange(self.group), (len(lows), self.group))
        moves = np.unravel_index(best, self.widths)
        places = [low[:, None] + move for low, move in zip(lows.T, moves, strict=True)]
        return np.asarray(np.ravel_multi_index(places, self.counts))

    def positions(self, firsts: Array) -> Array:
        """Return the index in the flat pilot at which the patches of these numbers begin."""
        places = np.unravel_index(firsts, self.counts)
        return np.asarray(np.ravel_multi_index(places, self.shape[:-1])) * self.shape[-1]

    def inside(self) -> Array:
        """Return the offsets of the samples of a patch in the flat pilot, from its first one."""
        places = np.indices((*self.sizes, self.shape[-1])).reshape(len(self.shape), -1)
        return np.asarray(np.ravel_multi_index(list(places), self.shape))


def leading(planes: Array, part: float) -> tuple[int, ...]:
    """Return those of planes (C, ...) that vary most, until they have a part of the variance."""
    variances = np.var(planes.reshape(len(planes), -1), axis=1, dtype=np.float64)
    falling = np.argsort(-variances, kind="stable")
    before = np.cumsum(variances[falling]) - variances[falling]
    return tuple(sorted(map(int, falling[before <= part * variances.sum()])))


def pairs(size: int) -> tuple[int, ...]:
    """Return the first sample of each pair of neighbours; the pairs cover a patch on an axis."""
    return tuple(sorted({*range(0, size - 1, 2), max(size - 2, 0)}))


def _estimate(values: Array, models: Array) -> Array:
    """Return the best linear estimates of centred noisy patches (R, G, d) of Gaussian groups.

    S = Z'Z/G has at most the rank of the G patches Z, so that the system is solved in their span:
    Y S (S + I)^-1 = (Y Z') (Z Z' + G I)^-1 Z.
    """
    G = models.shape[1]
    gram = np.matmul(models, np.swapaxes(models, 1, 2))
    gram.reshape(len(gram), -1)[:, :: G + 1] += G
    # the Gram matrix is symmetric: (Y Z') K^-1 is the transpose of K^-1 (Z Y')
    mixed = np.linalg.solve(gram, np.matmul(models, np.swapaxes(values, 1, 2)))
    return np.matmul(np.swapaxes(mixed, 1, 2), models)


def _add(sums: Array, where: Array, values: Array | None = None) -> None:
    """Add values, or ones, to the sums with the indices ``where``."""
    low = int(where.min())
    own = np.bincount(where.ravel() - low, None if values is None else values.ravel())
    part = sums[low : low + len(own)]
    np.add(part, own, out=part, casting="same_kind")


def _covered(seen: Array, sizes: Sequence[int]) -> Array:
    """Return how many patches cover each sample, from how often each patch was estimated."""
    for axis, b in enumerate(sizes):
        shape = list(seen.shape)
        n, shape[axis] = shape[axis], shape[axis] + b - 1
        total = np.zeros(shape, dtype=seen.dtype)
        before = (slice(None),) * axis
        for offset in range(b):
            total[(*before, slice(offset, offset + n))] += seen
        seen = total
    return seen
