"""Reading video through PyAV: frames, and the times at which they are shown."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem, whole
from kronfield.files.description import describe_signal
from kronfield.files.guard import check_memory, decoding, extra, guarded
from kronfield.files.signal import Progress, Signal, channel_names

_WHAT = "a video"


def read_video(path: Path, frames: Any, progress: Progress | None) -> Signal:
    """Read upright frames (T, H, W, 3) in [0, 1], with their times in seconds."""
    with extra("video"):
        import av

    start, stop = _range(frames)
    with contextlib.ExitStack() as stack:
        with decoding(path, _WHAT):
            # an absolute path, because FFmpeg reads text before a colon as a protocol
            container = stack.enter_context(av.open(str(path.resolve())))
            stream = _stream(path, container)
            stream.thread_type = "AUTO"
            rates = [
                rate
                for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate)
                if rate
            ]
            tick = stream.time_base
            expected = _expected(stream, container, start, stop)
            size, announced = stream.width * stream.height * 3, stream.frames
        check_memory(path, (expected or 0) * size * 5.0, "Read a part of it: frames=(start, stop).")
        coming = islice(guarded(_pictures(container, stream, start), path, _WHAT), stop)
        times, pictures = _collected(coming, expected, progress)
    if not pictures:
        raise problem(
            "path",
            f"{path}: no frame from {start} on; it has {len(times)}",
            "at least one frame",
            "Choose other frames.",
        )
    values, levels, raw_bytes = _stacked(path, pictures)
    rate, seconds = _timing([time for time in times if time is not None], len(times), rates, tick)
    described = describe_signal(
        "video",
        path.name,
        values,
        axes=["time", "row", "column"],
        units=["s", "px", "px"],
        channels=channel_names(3),
        levels=levels,
        dtype=np.dtype(np.uint8 if levels == 255 else np.uint16),
        raw_bytes=raw_bytes,
    )
    described = replace(
        described,
        fps=f"{rate.numerator}/{rate.denominator}",
        frames_per_second=float(rate),
        even=seconds is None,
        announced=announced or None,
        nulls=described.nulls | {"announced"},
    )
    even = np.arange(len(times)) / float(rate)
    axes = (
        (even if seconds is None else seconds)[start:],
        *(np.arange(n, dtype=np.float64) for n in values.shape[1:3]),
    )
    return Signal("video", values, True, axes, None, described)


def _stream(path: Path, container: Any) -> Any:
    """Return the first stream of pictures; raise an error if there is none."""
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
        deep = any(component.bits > 8 for component in frame.format.components)
        pixels = frame.to_ndarray(
            format="rgb48le" if deep else "rgb24", interpolation=exact_colours()
        )
        yield time, np.rot90(pixels, round(frame.rotation / 90))


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
            raise problem(
                "path",
                f"{path} with frames of several sizes",
                "frames of equal size",
                "Cut it where the size changes.",
            )
        np.divide(picture, np.float32(levels), out=values[i])
    return values, levels, raw_bytes


def _timing(
    times: list[Fraction], count: int, rates: Sequence[Fraction], tick: Fraction | None
) -> tuple[Fraction, Array | None]:
    """Return the frames per second, and the times if they are not even.

    Times are stored in ticks of the container, so even times may be off by one tick.
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
