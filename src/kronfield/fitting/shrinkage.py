"""Remove white noise by shrinking the weights of cosines in shifted blocks.

A block of b samples per axis is expanded in the Kronecker product of b cosines per axis: a local
encoding with as many weights as samples. A signal needs few large weights, and white noise spreads
evenly over all of them. So small weights are set to zero, or are shrunk, and the block is put
together again. Blocks at several shifts and of several sizes are averaged.

1. *Threshold*: weights below a multiple of the noise are set to zero (Donoho and Johnstone, 1994),
   in blocks at several shifts (Coifman and Donoho, 1995).
2. *Wiener*: every weight is multiplied by q / (q + 1), where q is the square of the weight of the
   first result, in units of the noise (Ghael, Sayeed and Baraniuk, 1997).

Blocks of which few weights were kept have less noise and weigh more in the average (Dabov, Foi,
Katkovnik and Egiazarian, 2007; Guleryuz, 2007). The second pass has larger blocks than the first:
the first result has errors at the edges of its blocks, which are not the edges of the second.

Values are planar, (C, N_1, ..., N_D), with noise of standard deviation 1.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.fitting.settings import DEFAULT, ShrinkageSettings

# The most samples of all planes in one slab: its arrays stay within the caches of a processor.
SLAB = 1 << 18
# Slabs are at least this multiple of the samples that are computed beyond their ends.
SHORTEST_SLAB = 2
# The most samples that are transformed together: they and their weights stay in the fastest caches.
STRIP = 1 << 16
# Shifts of a tiling advance by these steps along the axes, so that they do not coincide.
STEPS = (1, 3, 5, 7)


@functools.cache
def cosines(size: int) -> Array:
    """Return the orthonormal cosines of a block, one per row: (size, size), float32."""
    # c_k(i) = sqrt((2 - [k = 0]) / b) cos(pi k (i + 1/2) / b)
    k, i = np.arange(size)[:, None], np.arange(size)
    basis = np.sqrt(np.where(k == 0, 1, 2) / size) * np.cos(np.pi * k * (i + 0.5) / size)
    basis = basis.astype(np.float32)
    basis.flags.writeable = False
    return basis


@record
class Tiling:
    """Blocks whose lattice starts at ``shift``.

    Attributes
    ----------
    sizes : tuple of int
        The samples of a block along each axis.
    shift : tuple of int
        Blocks start at positions that are ``shift`` modulo the size.
    """

    sizes: tuple[int, ...]
    shift: tuple[int, ...]

    def blocks(self, padded: Array, origin: Sequence[int], shape: Sequence[int]) -> Array:
        """Return the blocks that cover the samples, as a view (C, n_1, b_1, n_2, b_2, ...).

        Sample 0 of an axis is at ``origin`` of the padded array; there are ``shape`` samples.
        """
        parts, split = [slice(None)], [len(padded)]
        for b, s, start, n in zip(self.sizes, self.shift, origin, shape, strict=True):
            before = (b - s) % b  # samples of the first block that precede sample 0
            count = -(-(n + before) // b)
            parts.append(slice(start - before, start - before + count * b))
            split += [count, b]
        return padded[tuple(parts)].reshape(split)


def weights_of(blocks: Array, sizes: Sequence[int]) -> Array:
    """Return the weights of the cosines of blocks (C, n_1, b_1, ...)."""
    return _along_blocks(blocks, [cosines(b) for b in sizes])


def samples_of(weights: Array, sizes: Sequence[int]) -> Array:
    """Return the samples of blocks from the weights of their cosines."""
    return _along_blocks(weights, [cosines(b).T for b in sizes])


def _along_blocks(x: Array, matrices: Sequence[Array]) -> Array:
    """Return x (C, n_1, b_1, n_2, b_2, ...), with every axis of a block times its matrix."""
    for axis in range(x.ndim - 1, 0, -2):
        matrix, shape = matrices[axis // 2 - 1], x.shape
        b, after = shape[axis], math.prod(shape[axis + 1 :])
        if b == 1:
            continue
        if after == 1:
            x = (x.reshape(-1, b) @ matrix.T).reshape(shape)
        else:
            x = np.matmul(matrix, x.reshape(-1, b, after)).reshape(shape)
    return x


def tilings(shape: Sequence[int], settings: ShrinkageSettings) -> tuple[list[Tiling], list[Tiling]]:
    """Return the tilings of a grid in either pass: every size of blocks at several shifts."""
    shifts = settings.shifts
    first, second = settings.sizes(len(shape))
    found = []
    for i, size in enumerate((*first, *second)):
        sizes = tuple(min(size, n) for n in shape)
        every = []
        for j in range(shifts):
            # blocks of other sizes start at other samples, so that their edges do not coincide
            shift = tuple(
                ((i + j * b // shifts) * step) % b if b < n else 0
                for b, n, step in zip(sizes, shape, itertools.cycle(STEPS))
            )
            every.append(Tiling(sizes, shift))
        found.append(every)
    parts = found[: len(first)], found[len(first) :]
    one, two = (list(dict.fromkeys(itertools.chain(*part))) for part in parts)
    return one, two


# A rule returns factors for the weights of blocks, from these and the blocks of a first result.
Rule = Callable[[Array, Array | None, Tiling], Array]


def shrink(planes: Array, settings: ShrinkageSettings = DEFAULT.shrinkage) -> Array:
    """Return planes (C, N_1, ..., N_D) of noise 1 without their noise, float32.

    The result does not depend on how the work is divided, but for rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.shrinkage import shrink
    >>> steps = np.kron(np.arange(16.0).reshape(1, 4, 4) % 5, np.full((16, 16), 9.0))
    >>> noisy = steps + np.random.default_rng(0).standard_normal(steps.shape)
    >>> bool(np.std(shrink(noisy) - steps) < 0.4)
    True
    """
    clean = np.empty(planes.shape, dtype=np.float32)

    def put(rows: slice, found: Array) -> None:
        clean[:, rows] = found

    shrink_rows(lambda rows: planes[:, rows], planes.shape, put, settings)
    return clean


def shrink_rows(
    planes: Callable[[slice], Array],
    shape: Sequence[int],
    put: Callable[[slice, Array], None],
    settings: ShrinkageSettings,
) -> None:
    """Shrink planes of ``shape`` (C, N_1, ..., N_D) that are read and written in rows of axis 1.

    If few rows fill a slab, as in volumes, they roll through windows, so that memory is bounded and
    nothing is computed twice. Otherwise a slab is computed from its rows and those around it.

    Parameters
    ----------
    planes : callable
        Returns the given rows (C, rows, N_2, ..., N_D); called from several threads.
    shape : sequence of int
        The shape of all planes.
    put : callable
        Takes rows and their planes without noise; called from several threads.
    settings : ShrinkageSettings
        Sizes, shifts and threshold.
    """
    reach = margin(shape[1:], settings)
    parts = slabs(shape, reach, SLAB)
    if len(parts) > 1 and SHORTEST_SLAB * reach * shape[0] * math.prod(shape[2:]) > SLAB:
        _roll(planes, shape, put, settings)
        return

    def work(slab: Slab) -> None:
        found = shrink_slab(planes(slab.needed), slab, shape[1:], settings)
        put(slab.rows, found[:, slab.inner])

    in_threads(work, parts)


def margin(shape: Sequence[int], settings: ShrinkageSettings) -> int:
    """Return how far along the first axis samples affect a result: two passes of blocks."""
    return sum(min(max(sizes), shape[0]) for sizes in settings.sizes(len(shape)))


@record
class Slab:
    """Rows of the first axis that are computed together.

    Attributes
    ----------
    rows : slice
        The rows that are computed.
    needed : slice
        The rows from which they are computed.
    """

    rows: slice
    needed: slice

    @property
    def inner(self) -> slice:
        """The rows that are computed, counted from the first one needed."""
        return slice(self.rows.start - self.needed.start, self.rows.stop - self.needed.start)


def slabs(
    shape: Sequence[int], reach: int, most: int = SLAB, shortest: int = SHORTEST_SLAB
) -> list[Slab]:
    """Return the slabs of planes (C, N_1, ..., N_D), of about ``most`` numbers each.

    Rows depend on other rows up to ``reach`` away; slabs have at least ``shortest`` times as many.
    """
    n, row = shape[1], shape[0] * math.prod(shape[2:])
    count = max(1, round(n / max(most // row, shortest * reach)))
    ends = [i * n // count for i in range(count + 1)]
    return [
        Slab(slice(low, high), slice(max(low - reach, 0), min(high + reach, n)))
        for low, high in itertools.pairwise(ends)
    ]


def shrink_slab(
    planes: Array, slab: Slab, shape: Sequence[int], settings: ShrinkageSettings
) -> Array:
    """Return the denoised rows that a slab needs; those near its ends are less accurate.

    Parameters
    ----------
    planes : array (C, rows, N_2, ..., N_D)
        The rows that the slab needs.
    slab : Slab
        Where they are.
    shape : sequence of int
        The whole grid, (N_1, ..., N_D).
    settings : ShrinkageSettings
        Sizes, shifts and threshold.
    """
    first, second = (
        [_shifted(one, slab.needed.start) for one in part] for part in tilings(shape, settings)
    )
    noisy = _Padded.of(planes, [*first, *second])
    pilot = noisy.average(first, None, _threshold(settings.threshold), settings.larger)
    return noisy.average(second, noisy.like(pilot), _wiener, settings.larger)


def _shifted(tiling: Tiling, start: int) -> Tiling:
    """Return the tiling, as seen from row ``start`` of the first axis."""
    first = (tiling.shift[0] - start) % tiling.sizes[0]
    return Tiling(tiling.sizes, (first, *tiling.shift[1:]))


def _threshold(least: float) -> Rule:
    """Return the rule that keeps weights above ``least``, and the mean of every block."""

    def keep(weights: Array, _: Array | None, tiling: Tiling) -> Array:
        factors = np.abs(weights)
        np.greater(factors, np.float32(least), out=factors)
        factors[_mean_of(tiling)] = 1.0
        return factors

    return keep


def _wiener(_: Array, pilot: Array | None, tiling: Tiling) -> Array:
    """Shrink weights by q / (q + 1), q from the blocks of a first result."""
    assert pilot is not None  # the second pass has one
    q = weights_of(pilot, tiling.sizes)
    np.square(q, out=q)
    q /= q + 1
    q[_mean_of(tiling)] = 1.0
    return q


def _mean_of(tiling: Tiling) -> tuple[slice | int, ...]:
    """Return the index of the constant cosine of every block."""
    return (slice(None), *(slice(None), 0) * len(tiling.sizes))


@record
class _Padded:
    """Planes with mirrored samples around them, so that blocks of any shift cover all samples."""

    values: Array
    origin: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, planes: Array, every: Sequence[Tiling]) -> _Padded:
        """Return the planes with room for blocks of all tilings."""
        shape = planes.shape[1:]
        most = [max(one.sizes[axis] for one in every) for axis in range(len(shape))]
        pads = [(0, 0), *((b, b) for b in most)]
        values = np.pad(planes.astype(np.float32, copy=False), pads, mode="symmetric")
        return cls(values, tuple(most), shape)

    def like(self, planes: Array) -> _Padded:
        """Return other planes with the same room."""
        pads = [(0, 0), *((b, b) for b in self.origin)]
        return _Padded(np.pad(planes, pads, mode="symmetric"), self.origin, self.shape)

    def blocks(self, tiling: Tiling, values: Array | None = None) -> Array:
        """Return the blocks of a tiling, as a view."""
        return tiling.blocks(self.values if values is None else values, self.origin, self.shape)

    def average(
        self, every: Sequence[Tiling], pilot: _Padded | None, rule: Rule, larger: float
    ) -> Array:
        """Return the average over tilings of the samples whose weights a rule has shrunk."""
        total, share = np.zeros_like(self.values), np.zeros_like(self.values)
        for tiling in every:
            noisy, sums, shares = (self.blocks(tiling, one) for one in (None, total, share))
            first = None if pilot is None else pilot.blocks(tiling)
            for part in _strips(noisy.shape):
                _add(part, tiling, (noisy, first, sums, shares), rule, larger)
        inside = (
            slice(None),
            *(slice(o, o + n) for o, n in zip(self.origin, self.shape, strict=True)),
        )
        return total[inside] / share[inside]


# The part of blocks (C, n_1, b_1, ...) that is computed at a time: an index.
Part = tuple[slice, ...]


def _strips(shape: Sequence[int]) -> Iterator[Part]:
    """Yield the rows of blocks (C, n_1, b_1, ...) that are computed together."""
    step = max(1, STRIP * shape[1] // math.prod(shape))
    return ((slice(None), slice(low, low + step)) for low in range(0, shape[1], step))


def _add(
    part: Part,
    tiling: Tiling,
    arrays: tuple[Array, Array | None, Array, Array],
    rule: Rule,
    larger: float,
) -> None:
    """Add some blocks, shrunk by a rule and weighted, to the sums; and the weights to the shares.

    ``arrays`` are the noisy blocks, those of a first result, the sums and the shares. Larger blocks
    weigh more, by the power ``larger`` of their number of samples.
    """
    noisy, first, sums, shares = arrays
    weights = weights_of(noisy[part], tiling.sizes)
    factors = rule(weights, None if first is None else first[part], tiling)
    weights *= factors
    # the noise of a block is the sum of its squared factors
    most = np.float32(math.prod(tiling.sizes) ** larger)
    trust = _along_lines(most / _sum_of_squares(factors), tiling.sizes[-1])
    samples = samples_of(weights, tiling.sizes).reshape(*weights.shape[:-2], -1)
    samples *= trust
    lines = sums[part].reshape(samples.shape)
    lines += samples
    lines = shares[part].reshape(samples.shape)
    lines += trust


def _roll(
    planes: Callable[[slice], Array],
    shape: Sequence[int],
    put: Callable[[slice, Array], None],
    settings: ShrinkageSettings,
) -> None:
    """Shrink planes of which few rows are in memory at a time; see `shrink_rows`.

    Both passes go along the first axis. Once a pass has added all blocks that start before row e,
    its rows before e are finished. The second pass is as far behind the first as its blocks reach.
    """
    N, (one, two) = shape[1], tilings(shape[1:], settings)
    first, second = (max(tiling.sizes[0] for tiling in part) for part in (one, two))
    pads = [max(t.sizes[axis] for t in (*one, *two)) for axis in range(1, len(shape) - 1)]
    keep, reach = _threshold(settings.threshold), max(first, second)
    # no block that covers a sample starts before row 1 - size
    noisy, pilot = (_Window(1 - size, pads) for size in (reach, second))
    passes = _Pass(one, keep, first, settings.larger), _Pass(two, _wiener, second, settings.larger)

    def append_noisy(stop: int) -> None:  # rows outside of the grid are mirrored
        wanted = np.arange(noisy.stop, stop)
        inside = np.where(wanted < 0, -1 - wanted, np.where(wanted < N, wanted, 2 * N - 1 - wanted))
        low = int(inside.min())
        noisy.append(planes(slice(low, int(inside.max()) + 1))[:, inside - low])

    for low in range(0, N, reach):
        end = min(low + reach, N)
        append_noisy(end + reach - 1)
        found = passes[0].advance(end, noisy, None)
        if low == 0:
            pilot.append(found[:, second - 2 :: -1] if second > 1 else found[:, :0])
        pilot.append(found)
        if end == N:
            pilot.append(pilot.last(second - 1)[:, ::-1])
        done = passes[1].start
        found = passes[1].advance(N if end == N else end - second + 1, noisy, pilot)
        if found.shape[1]:
            put(slice(max(done, 0), max(done, 0) + found.shape[1]), found)
        noisy.drop(passes[1].start)
        pilot.drop(passes[1].start)


class _Window:
    """Successive rows of planes, padded along the other axes by mirrored samples."""

    def __init__(self, start: int, pads: Sequence[int]) -> None:
        self.start, self.pads = start, tuple(pads)
        self.values: Array | None = None

    @property
    def stop(self) -> int:
        """The row after the last one."""
        return self.start + (0 if self.values is None else self.values.shape[1])

    def append(self, rows: Array) -> None:
        """Append rows (C, rows, N_2, ..., N_D)."""
        pads = [(0, 0), (0, 0), *((b, b) for b in self.pads)]
        found = np.pad(rows.astype(np.float32, copy=False), pads, mode="symmetric")
        whole = self.values
        self.values = found if whole is None else np.concatenate([whole, found], axis=1)

    def last(self, count: int) -> Array:
        """Return the last rows, without their padding."""
        assert self.values is not None  # rows were appended
        rows = slice(self.values.shape[1] - count, None)
        inside = (slice(b, n - b) for b, n in zip(self.pads, self.values.shape[2:], strict=True))
        return self.values[(slice(None), rows, *inside)]

    def drop(self, start: int) -> None:
        """Drop the rows before ``start``."""
        assert self.values is not None  # rows were appended
        self.values = self.values[:, start - self.start :].copy()
        self.start = start


class _Pass:
    """A pass over rows: the sums of its shrunk blocks, in rows that later blocks still reach.

    Attributes
    ----------
    start : int
        The first row that is not finished; blocks that start before it have been added.
    """

    def __init__(self, every: Sequence[Tiling], rule: Rule, size: int, larger: float) -> None:
        self.every, self.rule, self.size, self.larger = every, rule, size, larger
        self.start = 1 - size
        self._left: tuple[Array, Array] | None = None

    def advance(self, end: int, noisy: _Window, pilot: _Window | None) -> Array:
        """Add the blocks that start before row ``end``; return the rows >= 0 that this finishes."""
        assert noisy.values is not None  # rows were appended
        pads, shape = noisy.pads, list(noisy.values.shape)
        shape[1] = end - self.start + self.size - 1
        total, share = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        if self._left is not None:
            for now, before in zip((total, share), self._left, strict=True):
                now[:, : before.shape[1]] = before
        others = [n - 2 * b for n, b in zip(shape[2:], pads, strict=True)]
        for tiling in self.every:
            size = tiling.sizes[0]
            low = max(self.start, 1 - size)
            low += (tiling.shift[0] - low) % size  # the first block
            rows = max(-(-(end - low) // size), 0) * size
            if rows == 0:
                continue
            # of these rows
            own = Tiling(tiling.sizes, (0, *tiling.shift[1:]))
            sums, shares, blocks = (
                own.blocks(values, (low - start, *pads), (rows, *others))
                for values, start in (
                    (total, self.start),
                    (share, self.start),
                    (noisy.values, noisy.start),
                )
            )
            first = None
            if pilot is not None:
                assert pilot.values is not None  # rows were appended
                first = own.blocks(pilot.values, (low - pilot.start, *pads), (rows, *others))
            add = functools.partial(
                _add,
                tiling=tiling,
                arrays=(blocks, first, sums, shares),
                rule=self.rule,
                larger=self.larger,
            )
            in_threads(add, _pieces(sums.shape))
        done = end - self.start
        inside = tuple(slice(b, b + n) for b, n in zip(pads, others, strict=True))
        finished = (slice(None), slice(max(-self.start, 0), done), *inside)
        found = total[finished] / share[finished]
        self._left = total[:, done:].copy(), share[:, done:].copy()
        self.start = end
        return found


def _pieces(shape: Sequence[int]) -> list[Part]:
    """Return blocks (C, n_1, b_1, n_2, b_2, ...) in pieces of whole blocks along both axes."""
    if len(shape) < 4:
        return [(slice(None), slice(i, i + 1)) for i in range(shape[1])]
    size = math.prod(shape) // (shape[1] * shape[3])
    step = max(1, STRIP // size)
    return [
        (slice(None), slice(i, i + 1), slice(None), slice(low, low + step))
        for i in range(shape[1])
        for low in range(0, shape[3], step)
    ]


def _along_lines(each: Array, size: int) -> Array:
    """Return numbers (C, n_1, 1, ..., n_D, 1) of blocks at every sample of the last axis.

    Products with short last axes are slow.
    """
    return np.repeat(each, size, axis=-1).reshape(*each.shape[:-2], -1)


def _sum_of_squares(factors: Array) -> Array:
    """Return the sum of squares over each block, (C, n_1, 1, n_2, 1, ...)."""
    if factors.ndim == 3:
        return np.einsum("ijk,ijk->ij", factors, factors)[..., None]
    # the squares and their sum over the first axis of blocks in one step, along whole lines
    rows = factors.reshape(-1, factors.shape[2], math.prod(factors.shape[3:]))
    found = np.einsum("ijk,ijk->ik", rows, rows)
    found = found.reshape(*factors.shape[:2], 1, *factors.shape[3:])
    for axis in range(found.ndim - 1, 2, -2):
        if axis == found.ndim - 1:  # as a product: summing a short last axis is slow
            ones = np.ones((found.shape[axis], 1), dtype=np.float32)
            found = (found.reshape(-1, found.shape[axis]) @ ones).reshape(*found.shape[:axis], 1)
        else:
            found = found.sum(axis=axis, keepdims=True)
    return found
