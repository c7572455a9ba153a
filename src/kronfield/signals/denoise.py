"""Remove the noise of a file in bounded memory: choose a method on a part, then work tile by tile.

The method is chosen once, on the central part of the samples, as `kronfield.denoise` does. Then
tiles are read, denoised and yielded in order. A tile is computed together with the samples around
it that affect it, and blocks of cosines start at the same samples as in one large grid. So the
result is that of the whole grid, except for rounding, and for small differences where the samples
around a tile would be too many and are cut short (see the decision `denoised_around`, and
`Denoising._reach`).
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import centre, is_even, sample_frame
from kronfield._core.records import record
from kronfield._core.threads import in_threads, one_blas_thread
from kronfield.files import Description, Signal, VideoFrames
from kronfield.fitting import settings as defaults, shrinkage
from kronfield.fitting.denoising import Removal, smoother
from kronfield.fitting.grid import NoiseWarning, denoise
from kronfield.fitting.grid_choice import GridChoice, choose
from kronfield.fitting.lone import noise_bar
from kronfield.fitting.options import GridOptions
from kronfield.fitting.report import RemovedNoise
from kronfield.fitting.tiles import Span, samples_around, spans
from kronfield.signals.fit import INVISIBLE, check_fit_memory, missing_samples

# The length of a tile along each axis, without the samples around it, for 1, 2, 3 and 4 or more
# axes. Tiles are smaller for groups of alike patches, which take more memory.
TILES, SMALL_TILES = (1 << 16, 512, 96, 32), (1 << 14, 384, 64, 24)
# Rows of tiles are read and yielded together, up to about BAND numbers but at least one row. Of a
# video, about HELD bytes are held in memory.
BAND, HELD = 1 << 22, 1 << 29
# The effect of a penalty decays by a factor e over its length; after DECAY lengths it is neglected.
DECAY = 10
# Grids in memory of up to this many numbers are smoothed as a whole, which takes little memory.
SMOOTHED_AT_ONCE = 1 << 22

Progress = Callable[[int, int], Any]


# Samples
# ------------------------------------------------------------------------------------------


class Samples(Protocol):
    """Numbers on a grid that are read along the first axis, from the first row to the last."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    channels: bool
    description: Description

    @property
    def part(self) -> Array:
        """The central part of about `denoised_part` numbers; all samples if there are fewer."""

    def rows(self, low: int, high: int) -> Array:
        """Return rows low to high; from call to call, neither may decrease."""


class ArraySamples:
    """Samples in memory or in a memory map, as they are stored in the file."""

    def __init__(self, values: Array, channels: bool, description: Description) -> None:
        self.values, self.channels, self.description = values, channels, description
        self.shape = values.shape[:-1] if channels else values.shape
        self.dtype = values.dtype

    @property
    def part(self) -> Array:
        """The central part."""
        count = self.values.shape[-1] if self.channels else 1
        most = defaults.DEFAULT.signals.denoised_part // count
        return self.values[centre(self.shape, max(1, most))]

    def rows(self, low: int, high: int) -> Array:
        """Return rows low to high."""
        return self.values[low:high]


class VideoSamples:
    """Frames of a video, of which only those returned last are held in memory."""

    def __init__(self, frames: VideoFrames) -> None:
        self.description, self.dtype, self.channels = frames.description, frames.dtype, True
        self.shape: tuple[int, ...] = frames.shape[:-1]
        self.part = frames.part
        self._coming = iter(frames)
        self._held, self._first = np.empty((0, *frames.shape[1:]), frames.dtype), 0

    def rows(self, low: int, high: int) -> Array:
        """Return frames low to high."""
        last = self._first + len(self._held)
        found = np.empty((high - low, *self._held.shape[1:]), self.dtype)
        known = self._held[low - self._first :]
        found[: len(known)] = known
        for _ in range(max(0, low - last)):
            next(self._coming)
        for i in range(len(known), high - low):
            found[i] = next(self._coming)
        self._held, self._first = found, low
        return found


def samples_of(source: Signal | VideoFrames) -> Samples:
    """Return the samples of a signal that was read ``raw``, or of a video."""
    if isinstance(source, Signal):
        return ArraySamples(source.values, source.channels, source.description)
    if source.part.shape == source.shape:  # all of it was decoded
        return ArraySamples(source.part, True, source.description)
    return VideoSamples(source)


@record
class Planes:
    """How stored numbers (N_1, ..., N_D[, C]) become planes (C, N_1, ..., N_D), and back.

    Alpha is kept as it is. Before the removal of noise, invisible colours are replaced by the mean
    of the visible colours, which they would otherwise affect. Afterwards they are restored.

    Attributes
    ----------
    channels : bool
        Whether the last axis holds channels.
    dtype : dtype
        The dtype of the stored numbers.
    levels : int or None
        The largest stored integer.
    alpha : bool
        Whether the last channel is alpha.
    mean : tuple of float or None
        The mean of visible colours, if some are invisible.
    """

    channels: bool
    dtype: np.dtype[Any]
    levels: int | None
    alpha: bool = False
    mean: tuple[float, ...] | None = None

    @classmethod
    def of(cls, samples: Samples) -> Planes:
        """Return the planes of samples."""
        known = samples.description
        levels = known.levels if samples.dtype.kind == "u" else None
        if not (samples.channels and known.has_alpha and isinstance(samples, ArraySamples)):
            return cls(samples.channels, samples.dtype, levels)
        plain = cls(True, samples.dtype, levels, True)
        if not plain.hidden(samples.values).any():
            return plain
        part = samples.part
        seen = part[..., :-1][~plain.hidden(part)]
        mean = seen.mean(axis=0, dtype=np.float64) if len(seen) else np.zeros(part.shape[-1] - 1)
        return replace(plain, mean=tuple(map(float, mean)))

    def hidden(self, stored: Array) -> Array:
        """Return where stored colours are invisible."""
        return np.asarray(stored[..., -1] <= INVISIBLE * (self.levels or 1))

    def split(self, stored: Array) -> Array:
        """Return the planes of stored numbers, as floats."""
        values = stored.astype(np.result_type(self.dtype, np.float32))
        if not self.channels:
            return values[None]
        colours = values[..., :-1] if self.alpha else values
        if self.mean is not None:
            colours[self.hidden(stored)] = self.mean
        return np.ascontiguousarray(np.moveaxis(colours, -1, 0))

    def join(self, planes: Array, before: Array) -> Array:
        """Return planes as stored numbers; ``before`` are the numbers from which they were made."""
        values = np.moveaxis(planes, 0, -1) if self.channels else planes[0]
        if self.mean is not None:
            values = np.where(self.hidden(before)[..., None], before[..., :-1], values)
        if self.dtype.kind == "u":
            values = np.clip(np.rint(values), 0, self.levels)
        elif self.dtype.kind == "i":
            limits = np.iinfo(self.dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        values = values.astype(self.dtype)
        return np.concatenate([values, before[..., -1:]], axis=-1) if self.alpha else values


# Tiles
# ------------------------------------------------------------------------------------------


def _moved(span: slice, start: int) -> slice:
    """Return a slice counted from ``start``."""
    return slice(span.start - start, span.stop - start)


# The removal
# ------------------------------------------------------------------------------------------


class Denoising:
    """The removal of noise from samples: the chosen method, and the samples without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.files import Description
    >>> from kronfield.signals.denoise import ArraySamples, Denoising
    >>> steps = np.kron(np.random.default_rng(0).integers(60, 200, (8, 8)), np.ones((16, 16)))
    >>> noisy = np.rint(steps + 10 * np.random.default_rng(1).standard_normal(steps.shape))
    >>> samples = ArraySamples(noisy.astype(np.uint8), False, Description(levels=255))
    >>> job = Denoising(samples)
    >>> job.noise.method, round(job.noise.sigma[0])
    ('shrinkage', 10)
    >>> clean = np.concatenate(list(job.blocks()))
    >>> clean.dtype, bool(np.std(clean - steps) < 5)
    (dtype('uint8'), True)

    Parameters
    ----------
    samples : Samples
        The noisy samples; none may be missing.
    axes : sequence of arrays, optional
        The positions of the samples.
    noise : float, optional
        The standard deviation of the noise in the units of the stored numbers; by default measured.
    strength : float
        A factor on the noise: above 1 removes more.
    thorough : bool
        Whether to use more and larger groups of alike patches after shrinkage.
    """

    def __init__(
        self,
        samples: Samples,
        axes: Sequence[Array] | None = None,
        *,
        noise: float | None = None,
        strength: float = 1.0,
        thorough: bool = False,
    ) -> None:
        self.samples, self.planes = samples, Planes.of(samples)
        self.axes = [np.arange(n, dtype=np.float64) for n in samples.shape]
        if axes is not None:
            self.axes = [np.asarray(axis, dtype=np.float64) for axis in axes]
            # only distances matter here: make decreasing positions increase
            self.axes = [-x if len(x) > 1 and x[0] > x[-1] else x for x in self.axes]
        self._thorough, self._strength = thorough, strength
        given = None if noise is None else noise * strength
        #: The factor by which the noise in `choice` must still be multiplied.
        self._lacking = strength if noise is None else 1.0
        part = samples.part
        planes = self.planes.split(part)
        self._is_whole = planes.shape[1:] == samples.shape
        with one_blas_thread():
            self.choice = self._choice(planes, given)
            found = self.choice.noise
            if found is not None and self._lacking != 1 and self._removal is None:
                self.choice = self._choice(planes, [strength * one for one in found.sigma])
                found, self._lacking = self.choice.noise, 1.0
            if self._removal is not None:
                self._level = self._removal.level(planes)
        #: The noise of each colour and how it is removed; None if none was found.
        self.noise: RemovedNoise | None = found
        if found is not None and strength != 1:  # the estimated error is that of another noise
            sigma = tuple(one * self._lacking / strength for one in found.sigma)
            self.noise = replace(found, sigma=sigma, expected_error=math.nan)

    def _choice(self, planes: Array, noise: Any) -> GridChoice:
        """Return the method chosen on planes of the central part."""
        options = GridOptions.checked(
            ridge=None,
            roughness=None,
            noise=noise,
            rcond=None,
            has_encoding=False,
            channels=len(planes),
            denoise=True,
            thorough=self._thorough,
        )
        shape = planes.shape[1:]
        starts = [(n - k) // 2 for n, k in zip(self.samples.shape, shape, strict=True)]
        axes = [x[a : a + k] for x, a, k in zip(self.axes, starts, shape, strict=True)]
        return choose(planes, axes, [sample_frame(axis) for axis in axes], options)

    @property
    def _removal(self) -> Removal | None:
        """The shrinkage, if it was chosen."""
        removal = self.choice.removal
        assert removal is None or isinstance(removal, Removal)  # nothing is asked between samples
        return removal

    def cut_off(self) -> float:
        """Return the fraction of stored numbers at the ends of their range, 0 and ``levels``.

        Noise is cut off there, so its mean is not 0. Estimates of the error ignore this and are too
        small.
        """
        if self.planes.levels is None:
            return 0.0
        part = self.samples.part
        part = part[..., :-1] if self.planes.alpha else part
        if self.planes.mean is not None:
            part = part[~self.planes.hidden(self.samples.part)]
        ends = (part == 0) | (part == self.planes.levels)
        return float(ends.mean()) if ends.size else 0.0

    @property
    def is_found(self) -> bool:
        """Whether noise is removed at all."""
        return self.noise is not None

    @property
    def roughness(self) -> tuple[float, float] | None:
        """The penalty of a penalised fit, of the colour that varies most; None for shrinkage."""
        chosen = self.choice.smoothing
        return None if chosen is None or not self.is_found else chosen.roughness[chosen.leading]

    def blocks(self, progress: Progress | None = None) -> Iterator[Array]:
        """Yield the samples without noise in blocks of rows, in the type in which they are stored.

        Parameters
        ----------
        progress : callable, optional
            Called with the number of tiles done, and their total.
        """
        return (after for _, after in self.pairs(progress))

    def pairs(self, progress: Progress | None = None) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of rows as they were, and without noise; see `blocks`."""
        removal, samples = self._removal, self.samples
        if not self.is_found:
            step = max(1, BAND // max(1, math.prod(samples.part.shape[1:])))
            for low in range(0, samples.shape[0], step):
                rows = samples.rows(low, min(low + step, samples.shape[0]))
                yield rows, rows
        elif removal is None:
            yield from self._smoothed(progress)
        elif self._is_whole and self._lacking == 1 and self.choice.clean is not None:
            whole = samples.rows(0, samples.shape[0])
            yield whole, self.planes.join(self.choice.clean, whole)
        else:
            # in units of a stronger noise, shrinkage removes more
            count = math.prod(samples.shape) * len(removal.whiten)
            removal = replace(
                removal,
                bar=noise_bar(count, removal.settings.shrinkage.lone_chance),
                whiten=removal.whiten / self._lacking,
                restore=removal.restore * self._lacking,
            )
            D = len(samples.shape)
            first, second = removal.settings.shrinkage.sizes(D)
            reach = self._reach(D)

            def clean(planes: Array) -> Array:
                n = planes.shape[1]
                alone = shrinkage.Slab(slice(0, n), slice(0, n))
                return removal.slab(planes, alone, planes.shape[1:], self._level)

            tiles = SMALL_TILES if removal.groups else TILES
            # blocks and groups then start at the same samples as in the whole
            steps = (one.step(D) for one in removal.groups)
            multiple = math.lcm(*first, *second, *steps)
            yield from self._tiled(clean, tiles, [reach] * D, multiple, progress)

    def _reach(self, D: int) -> int:
        """Return how many samples around a tile affect it.

        With groups of alike patches on three and more axes, these would be more samples than in the
        tile itself. Fewer are used there, so the first estimate is less accurate at the seams.
        """
        removal = self._removal
        assert removal is not None
        if not removal.groups or D < 3:
            return removal.reach(self.samples.shape)
        found = max(removal.settings.shrinkage.sizes(D)[1])
        return found + max(one.reach(D) for one in removal.groups)

    def _smoothed(self, progress: Progress | None) -> Iterator[tuple[Array, Array]]:
        """Yield the blocks of the penalised fit.

        Samples in memory are smoothed as a whole if they are few, or if tiles would be inexact.
        """
        chosen = self.choice.smoothing
        assert chosen is not None
        assert self.noise is not None
        samples, D = self.samples, len(self.samples.shape)
        around = [
            samples_around(chosen, x / u, DECAY)
            for x, u in zip(self.axes, chosen.units, strict=True)
        ]
        is_large = math.prod(samples.shape) * len(chosen.rotation) > SMOOTHED_AT_ONCE
        most = defaults.DEFAULT.signals.denoised_around
        is_local = max(around) <= most and all(map(is_even, self.axes)) and D > 1
        if isinstance(samples, ArraySamples) and not (is_large and is_local):
            values = samples.values
            check_fit_memory(values.shape, 4, penalised=True, remedy="Denoise it in parts.")
            planes = self.planes.split(values)
            sigma = [self._strength * one for one in self.noise.sigma]
            field = denoise(np.moveaxis(planes, 0, -1), self.axes, noise=sigma, channels=True)
            yield values, self.planes.join(np.moveaxis(field.on_grid(), -1, 0), values)
            return

        @functools.lru_cache(maxsize=2)  # each is as large as some tiles
        def fitted(shape: tuple[int, ...]) -> Callable[[Array], Array]:
            return smoother(chosen, [x[:n] for x, n in zip(self.axes, shape, strict=True)])

        def clean(planes: Array) -> Array:
            return fitted(planes.shape[1:])(planes)

        reach = [min(one, most) for one in around]
        yield from self._tiled(clean, TILES, reach, 1, progress)

    def _tiled(
        self,
        clean: Callable[[Array], Array],
        tiles: Sequence[int],
        reach: Sequence[int],
        multiple: int,
        progress: Progress | None,
    ) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of rows as they were, and computed tile by tile."""
        samples, shape = self.samples, self.samples.shape
        length = tiles[min(len(shape), len(tiles)) - 1]
        row = math.prod(shape[1:]) * (samples.part.shape[-1] if samples.channels else 1)
        held = HELD // (row * samples.dtype.itemsize) - 2 * reach[0]
        first = (
            min(length, max(held, 2 * reach[0])) if isinstance(samples, VideoSamples) else length
        )
        down = spans(shape[0], first, reach[0], multiple)
        others = [spans(n, length, r, multiple) for n, r in zip(shape[1:], reach[1:], strict=True)]
        total, done, lock = len(down) * math.prod(map(len, others)), 0, threading.Lock()
        together = max(1, BAND // (row * max(1, shape[0] // len(down))))
        for i in range(0, len(down), together):
            group = down[i : i + together]
            start, top = group[0].needed.start, group[0].rows.start
            stored = samples.rows(start, group[-1].needed.stop)
            block = np.empty((group[-1].rows.stop - top, *stored.shape[1:]), samples.dtype)

            def work(
                tile: Sequence[Span],
                starts: tuple[int, ...] = (start, *(0,) * len(others)),
                tops: tuple[int, ...] = (top, *(0,) * len(others)),
                stored: Array = stored,
                block: Array = block,
            ) -> None:
                nonlocal done
                own = stored[tuple(_moved(s.needed, a) for s, a in zip(tile, starts, strict=True))]
                inner = tuple(_moved(span.rows, span.needed.start) for span in tile)
                found = clean(self.planes.split(own))[(slice(None), *inner)]
                target = tuple(_moved(s.rows, a) for s, a in zip(tile, tops, strict=True))
                block[target] = self.planes.join(found, own[inner])
                with lock:
                    done += 1
                    if progress is not None:
                        progress(done, total)

            with one_blas_thread():
                in_threads(work, list(itertools.product(group, *others)))
            yield stored[top - start : top - start + len(block)], block


# Missing samples
# ------------------------------------------------------------------------------------------


def check_finite(signal: Signal) -> Array:
    """Return where samples are missing (NaN); infinite ones are refused."""
    missing = missing_samples(signal)
    values = signal.values
    if values.dtype.kind == "f" and not np.isfinite(np.sum(values, dtype=np.float64)):
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise problem(
                "values",
                f"{infinite} samples that are infinite",
                "finite numbers",
                "Save them as NaN: they are then filled in.",
            )
    return missing


def denoised_with_gaps(
    signal: Signal, missing: Array, *, noise: Any = None, thorough: bool = False
) -> tuple[Array, RemovedNoise | None]:
    """Return samples without noise and without gaps, and the noise if it is known."""
    remedy = "Fill in a part of it."
    check_fit_memory(signal.values.shape, 4, penalised=True, remedy=remedy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        field = denoise(
            np.nan_to_num(signal.values),
            positions(signal),
            noise=noise,
            mask=missing,
            channels=signal.channels,
            thorough=thorough,
        )
    return np.asarray(field.on_grid()), getattr(field.report, "noise", None)


def positions(signal: Signal) -> tuple[Array, ...] | None:
    """Return the positions of samples for a penalty; None for a video, whose samples are counted.

    Seconds and pixels have no common scale, but a step of one frame compares to one pixel.
    """
    return None if signal.kind == "video" else signal.axes
