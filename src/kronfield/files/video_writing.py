"""Writing video through PyAV, frame by frame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield.files.guard import extra
from kronfield.files.layout import Layout, Put, quantised
from kronfield.files.video import exact_colours

_X264 = ("libx264", {"crf": "16", "preset": "medium"})
_VP9 = ("libvpx-vp9", {"crf": "18", "b": "0", "cpu-used": "4", "row-mt": "1"})
# The container, its codec and the settings of the codec. AVI needs the frames in display order.
_CONTAINERS: dict[str, tuple[str, tuple[str, dict[str, str]]]] = {
    ".mp4": ("mp4", _X264),
    ".mov": ("mov", _X264),
    ".mkv": ("matroska", _X264),
    ".avi": ("avi", ("libx264", {**_X264[1], "bf": "0"})),
    ".webm": ("webm", _VP9),
}


@contextlib.contextmanager
def open_video(path: Path, layout: Layout) -> Iterator[Put]:
    """Write frames (T, H, W[, C]) of 1 or 3 channels at ``info["fps"]``, which is kept exactly.

    Colours are stored at half the resolution (4:2:0), which every player supports. H.264 cannot do
    this with an odd height or width. Colours are then stored at full resolution (4:4:4), which
    keeps every pixel but is not supported by all browsers.
    """
    with extra("video"):
        import av
        from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

    count = layout.need("a video", 3, (1, 3), "Write a .tif or .npy file, or choose channels.")
    rate = _rate(layout.description.fps)
    _, height, width = layout.shape
    container_name, (codec, options) = _CONTAINERS[path.suffix.lower()]
    if codec == "libx264" and max(height, width) > 16384:
        raise problem(
            "shape",
            f"{height} x {width}",
            "at most 16384 pixels a side in a video",
            "Write a .tif or .npy file.",
        )
    odd = codec == "libx264" and (height % 2 or width % 2)
    flags = {"movflags": "faststart"} if container_name in ("mp4", "mov") else {}
    with av.open(str(path.resolve()), "w", format=container_name, options=flags) as container:
        stream = container.add_stream(codec, rate=rate, options=dict(options))
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv444p" if odd else "yuv420p"
        context = stream.codec_context
        context.time_base = 1 / rate
        # 1 means BT.709, as do the tags below
        context.colorspace, context.color_range = 1, int(ColorRange.MPEG)
        context.color_primaries, context.color_trc = int(ColorPrimaries.BT709), int(ColorTrc.BT709)
        done = 0

        def put(block: Array) -> None:
            nonlocal done
            pixels = quantised(block, 255).reshape(len(block), height, width, count)
            for picture in np.broadcast_to(pixels, (*pixels.shape[:3], 3)):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                frame = frame.reformat(
                    format=stream.pix_fmt,
                    dst_colorspace=Colorspace.ITU709,
                    dst_color_range=ColorRange.MPEG,
                    interpolation=exact_colours(),
                )
                frame.pts, frame.time_base = done, 1 / rate
                container.mux(stream.encode(frame))
                done += 1

        yield put
        container.mux(stream.encode(None))


def _rate(value: Any) -> Fraction:
    """Return frames per second, given as "30000/1001" or as a number."""
    expected, remedy = "frames per second", 'For example: {"fps": "25"} or {"fps": "30000/1001"}'
    if value is None:
        raise problem("info", "no fps", expected, remedy)
    try:
        rate = (
            Fraction(value)
            if isinstance(value, str | int | Fraction)
            else Fraction(float(value)).limit_denominator(1001)
        )
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise problem('info["fps"]', describe(value), expected, remedy) from error
    if not 0 < rate <= 100_000 or max(rate.numerator, rate.denominator) >= 2**31:
        raise problem('info["fps"]', describe(value), f"{expected}, above 0", remedy)
    return rate
