"""Reading video through PyAV: frames, and the times at which they are shown."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError, describe, problem, whole
from kronfield._core.frames import centre
from kronfield._core.records import record
from kronfield.files.description import Description, describe_signal
from kronfield.files.guard import check_file_memory, check_source, decoding, extra, guarded
from kronfield.files.signal import Progress, Signal, channel_names

_WHAT = "a video"


def read_video(path: Path, frames: Any, progress: Progress | None) -> Signal:
    """Read upright frames (T, H, W, 3) in [0, 1], with their times in seconds."""
    start, stop = _range(frames)
    with _decoded(path) as (container, stream):
        with decoding(path, _WHAT):
            rates, tick, announced = _clock(stream)
            expected = _expected(stream, container, start, stop)
            size = stream.width * stream.height * 3
        check_file_memory(
            path, (expected or 0) * size * 5.0, "Read a part of it: frames=(start, stop)."
        )
        coming = islice(guarded(_pictures(container, stream, start), path, _WHAT), stop)
        times, pictures = _collected(coming, expected, progress)
    if not pictures:
        raise _no_frame(path, start, len(times))
    values, levels, raw_bytes = _stacked(path, pictures)
    rate, seconds = _timing([time for time in times if time is not None], len(times), rates, tick)
    described = _described(path, values.shape, levels, raw_bytes, rate, seconds is None, announced)
    even = np.arange(len(times)) / float(rate)
    axes = (
        (even if seconds is None else seconds)[start:],
        *(np.arange(n, dtype=np.float64) for n in values.shape[1:3]),
    )
    return Signal("video", values, True, axes, None, described)


def _described(
    path: Path,
    shape: Sequence[int],
    levels: int,
    raw_bytes: int,
    rate: Fraction,
    even: bool,
    announced: int,
) -> Description:
    described = describe_signal(
        "video",
        path.name,
        np.broadcast_to(np.float32(0), tuple(shape)),
        axes=["time", "row", "column"],
        units=["s", "px", "px"],
        channels=channel_names(3),
        levels=levels,
        dtype=np.dtype(np.uint8 if levels == 255 else np.uint16),
        raw_bytes=raw_bytes,
    )
    return replace(
        described,
        fps=f"{rate.numerator}/{rate.denominator}",
        frames_per_second=float(rate),
        even=even,
        announced=announced or None,
        nulls=described.nulls | {"announced"},
    )


@record
class VideoFrames:
    """The frames of a video, decoded one after the other each time they are iterated over.

    Attributes
    ----------
    path : Path
        The file.
    start : int
        The first frame.
    shape : tuple of int
        (T, H, W, 3).
    dtype : dtype
        uint8 or uint16, from 0 to ``description.levels``.
    description : Description
        The same as from `read`.
    part : array
        The central part of the video, already decoded; see `video_frames`.
    """

    path: Path
    start: int
    shape: tuple[int, int, int, int]
    dtype: np.dtype[Any]
    description: Description
    part: Array

    def __iter__(self) -> Iterator[Array]:
        """Yield the frames (H, W, 3) as integers."""
        with _decoded(self.path) as (container, stream):
            coming = guarded(_pictures(container, stream, self.start), self.path, _WHAT)
            for _, picture in islice(coming, self.start + self.shape[0]):
                if picture is not None:
                    if picture.shape != self.shape[1:]:
                        raise _several_sizes(self.path)
                    yield picture


@contextlib.contextmanager
def _decoded(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open a video and yield its container and its first video stream."""
    with extra("video"):
        import av

    with contextlib.ExitStack() as stack:
        with decoding(path, _WHAT):
            # an absolute path, because FFmpeg reads text before a colon as a protocol
            container = stack.enter_context(av.open(str(path.resolve())))
            stream = _stream(path, container)
            stream.thread_type = "AUTO"
        yield container, stream


def video_frames(
    path: str | os.PathLike[str],
    *,
    frames: Any = None,
    most: int,
    progress: Progress | None = None,
) -> VideoFrames:
    """Return the frames of a video, to read one after the other in the memory of a few frames.

    Parameters
    ----------
    path : str or path
        The video.
    frames : pair, optional
        The first frame, and the frame before which to stop; either may be None.
    most : int
        About how many pixels the central part has that is decoded immediately, as
        `VideoFrames.part`. If the video has fewer, the part is the whole video.
    progress : callable, optional
        Called with the number of frames done and the total, which is None if it is unknown.
    """
    file = Path(path)
    check_source(file)
    start, stop = _range(frames)
    times: list[Fraction | None] = []
    kept: list[Array] = []
    first: Array | None = None
    with _decoded(file) as (container, stream):
        with decoding(file, _WHAT):
            rates, tick, announced = _clock(stream)
            expected = _expected(stream, container, start, stop)
            near = centre((expected or 10**9, stream.height, stream.width), most)
        # if the length is unknown, keep the first frames instead of the central ones
        wanted = near[0] if expected else slice(0, near[0].stop - near[0].start)
        coming = guarded(_chosen(container, stream, start, wanted), file, _WHAT)
        for time, picture in islice(coming, stop):
            times.append(time)
            if picture is None:
                continue
            first = picture if first is None else first
            if picture.shape != first.shape:
                raise _several_sizes(file)
            index = len(times) - 1 - start
            if wanted.start <= index < wanted.stop:
                sides = centre((wanted.stop - wanted.start, *picture.shape[:2]), most)[1:]
                kept.append(picture[sides].copy())
            if progress is not None:
                progress(len(times) - start, expected)
    count = len(times) - start
    if first is None or count < 1:
        raise _no_frame(file, start, len(times))
    rate, seconds = _timing([time for time in times if time is not None], len(times), rates, tick)
    levels, shape = int(np.iinfo(first.dtype).max), (count, *first.shape)
    described = _described(
        file, shape, levels, first.nbytes * count, rate, seconds is None, announced
    )
    part = np.stack(kept) if kept else first[None]
    return VideoFrames(file, start, shape, first.dtype, described, part)


def _clock(stream: Any) -> tuple[list[Fraction], Fraction | None, int]:
    """Return the rates that a stream states, the unit of its times, and its number of frames."""
    rates = [one for one in (stream.average_rate, stream.guessed_rate, stream.base_rate) if one]
    return rates, stream.time_base, stream.frames


def _chosen(
    container: Any, stream: Any, start: int, wanted: slice
) -> Iterator[tuple[Fraction | None, Array | None]]:
    """Yield the time of each frame, and the upright pixels of frame ``start`` and of those wanted.

    ``wanted`` counts from frame ``start``.
    """
    for index, frame in enumerate(container.decode(stream)):
        time = None if frame.pts is None else frame.pts * frame.time_base
        needed = index == start or wanted.start <= index - start < wanted.stop
        yield time, _pixels(frame) if needed else None


def _no_frame(path: Path, start: int, count: int) -> InputError:
    return problem(
        "path",
        f"{path}: no frame from {start} on; it has {count}",
        "at least one frame",
        "Choose other frames.",
    )


def _several_sizes(path: Path) -> InputError:
    return problem(
        "path",
        f"{path} with frames of several sizes",
        "frames of equal size",
        "Cut it where the size changes.",
    )


def _stream(path: Path, container: Any) -> Any:
    """Return the first video stream; raise an error if there is none."""
    if not container.streams.video:
        raise problem(
            "path",
            f"{path} without pictures",
            _WHAT,
            "If it is sound, convert it to .wav or .flac.",
        )
    return container.streams.video[0]


def _collected(
    coming: Iterable[tuple[Fraction | None, Array | None]],
    expected: int | None,
    progress: Progress | None,
) -> tuple[list[Fraction | None], list[Array]]:
    """Return the times of all frames, and the pictures of the requested frames."""
    times: list[Fraction | None] = []
    pictures: list[Array] = []
    for time, picture in coming:
        times.append(time)
        if picture is not None:
            pictures.append(picture)
            if progress is not None:
                progress(len(pictures), expected)
    return times, pictures


def video_shape(path: Path, frames: Any = None) -> tuple[int | None, int, int, int]:
    """Return the shape of a video without reading it; None for an unknown number of frames."""
    with extra("video"):
        import av

    start, stop = _range(frames)
    with decoding(path, _WHAT), av.open(str(path.resolve())) as container:
        stream = _stream(path, container)
        return _expected(stream, container, start, stop), stream.height, stream.width, 3


def exact_colours() -> int:
    """Return the flags for exact conversion of colours.

    FFmpeg's default is faster, but darkens by more than one level of 255.
    """
    from av.video.reformatter import Interpolation as Way

    return int(Way.BICUBIC | Way.ACCURATE_RND | Way.FULL_CHR_H_INT | Way.FULL_CHR_H_INP)


def _range(frames: Any) -> tuple[int, int | None]:
    """Return the first frame, and the frame before which to stop."""
    if frames is None:
        return 0, None
    remedy = "For example: frames=(0, 100)"
    if not isinstance(frames, Sequence) or len(frames) != 2:
        raise problem("frames", describe(frames), "a pair (start, stop)", remedy, TypeError)
    start = 0 if frames[0] is None else whole("frames[0]", frames[0], at_least=0)
    stop = None if frames[1] is None else whole("frames[1]", frames[1], at_least=1)
    if stop is not None and stop <= start:
        raise problem("frames", (start, stop), "a start before the stop", remedy)
    return start, stop


def _expected(stream: Any, container: Any, start: int, stop: int | None) -> int | None:
    """Return the expected number of frames; None if the file does not state it."""
    total = stream.frames
    if not total and container.duration and stream.average_rate:
        total = math.ceil(container.duration / 1e6 * stream.average_rate)
    if not total:
        return None if stop is None else stop - start
    return max(0, (total if stop is None else min(stop, total)) - start)


def _pictures(
    container: Any, stream: Any, start: int
) -> Iterator[tuple[Fraction | None, Array | None]]:
    """Yield the time of each frame, and from frame ``start`` on also its upright pixels."""
    for index, frame in enumerate(container.decode(stream)):
        time = None if frame.pts is None else frame.pts * frame.time_base
        if index < start:
            yield time, None
            continue
        yield time, _pixels(frame)


def _pixels(frame: Any) -> Array:
    """Return the upright pixels of a frame, as integers of 8 or 16 bits."""
    deep = any(component.bits > 8 for component in frame.format.components)
    pixels = frame.to_ndarray(format="rgb48le" if deep else "rgb24", interpolation=exact_colours())
    return np.rot90(pixels, round(frame.rotation / 90))


def _stacked(path: Path, pictures: list[Array]) -> tuple[Array, int, int]:
    """Return all frames as one array of floats, its levels, and the size of the frames in bytes.

    The list is emptied during the conversion, so that each frame can be freed early.
    """
    shape, levels = pictures[0].shape, int(np.iinfo(pictures[0].dtype).max)
    raw_bytes = pictures[0].nbytes * len(pictures)
    values = np.empty((len(pictures), *shape), np.float32)
    for i in reversed(range(len(pictures))):
        picture = pictures.pop()
        if picture.shape != shape:
            raise _several_sizes(path)
        np.divide(picture, np.float32(levels), out=values[i])
    return values, levels, raw_bytes


def _timing(
    times: list[Fraction], count: int, rates: Sequence[Fraction], tick: Fraction | None
) -> tuple[Fraction, Array | None]:
    """Return the frames per second, and the times if they increase but are not evenly spaced.

    Times are stored in ticks of the container, so evenly spaced times may be off by one tick.
    """
    if len(times) < count or count < 2:
        return (rates[0] if rates else Fraction(25)), None
    for rate in rates:
        if all(abs(time - times[0] - i / rate) <= (tick or 0) for i, time in enumerate(times)):
            return Fraction(rate), None
    seconds = np.array([float(time - times[0]) for time in times])
    span = times[-1] - times[0]
    mean = Fraction((count - 1) / span).limit_denominator(1001) if span > 0 else Fraction(25)
    return mean, seconds if bool(np.all(np.diff(seconds) > 0)) else None
