"""Reading and writing pictures through Pillow."""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError, describe, problem
from kronfield._core.atomic import replacing
from kronfield._core.memory import check_memory
from kronfield.files.description import describe_signal
from kronfield.files.guard import decoding
from kronfield.files.layout import Layout, Put, quantised
from kronfield.files.png_reading import check_chunks, is_deep, read_png
from kronfield.files.signal import Signal, channel_names, is_raw, pixel_values

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
# The EXIF tag of the orientation.
_ORIENTATION = 0x0112
# Bytes that Pillow takes for a pixel beside the result, measured; 8 for other formats.
_DECODER = {"WEBP": 16, "PNG": 4, "JPEG": 4, "BMP": 4}
# Pixels that are copied from Pillow at a time.
_BAND = 1 << 22
# The mode to which Pillow converts each mode, without and with transparency; others are kept.
_CONVERT = {
    "1": ("L", "L"),
    "L": ("L", "LA"),
    "La": ("LA", "LA"),
    "P": ("RGB", "RGBA"),
    "PA": ("RGBA", "RGBA"),
    "RGB": ("RGB", "RGBA"),
    "RGBa": ("RGBA", "RGBA"),
    **dict.fromkeys(("CMYK", "YCbCr", "LAB", "HSV", "RGBX"), ("RGB", "RGB")),
}
# For each format: the possible numbers of channels, the longest side, and options for saving.
_SAVE: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {
    "JPEG": ((1, 3), 65500, {"quality": 95, "subsampling": 0}),
    "WEBP": ((1, 3, 4), 16383, {"quality": 95}),
    "BMP": ((1, 3), 32767, {}),
}


def read_image(path: Path, *, raw: bool = False) -> Signal:
    """Read a picture with a single frame, and turn it upright."""
    from PIL import Image

    with decoding(path, "a PNG, JPEG, WebP, BMP or GIF picture"):
        try:
            with Image.open(path, formats=_FORMATS) as picture:
                frames = getattr(picture, "n_frames", 1)
                # MPO: a photograph that is followed by another view
                if frames > 1 and picture.format != "MPO":
                    raise problem(
                        "path",
                        f"{path} with {frames} frames",
                        "a single picture",
                        "Convert it to a video: .mp4",
                    )
                deep = is_deep(path)
                _check_picture_memory(path, picture, deep=deep, raw=raw)
                if picture.format == "PNG" and not deep:
                    check_chunks(path)
                pixels = read_png(path) if deep else pillow_pixels(picture)
                pixels = upright(pixels, _orientation(picture))
        except Image.DecompressionBombError as error:
            raise _too_many_pixels(path, error) from error
    return image_signal(path, pixels, _levels(pixels), raw=raw)


def _check_picture_memory(path: Path, picture: Any, *, deep: bool, raw: bool) -> None:
    """Raise an error if a picture needs more memory than there is, before it is decoded.

    A few kilobytes may stand for 10^8 pixels.
    """
    channels = max(3, len(picture.getbands()))
    stored = 2 if deep or picture.mode.startswith("I") else 1
    # 16 bits: the bytes of the pixels with and without filters beside the pixels
    decoder = 2 * stored * channels if deep else _DECODER.get(picture.format, 8)
    each = decoder + stored * channels + (0 if raw else 4 * channels)
    width, height = picture.size
    check_memory(
        "path",
        f"{path}, a picture of {width} x {height} pixels",
        float(width) * height * each,
        "Cut it into parts, or make it smaller.",
    )


def picture_size(path: Path) -> tuple[int, int]:
    """Return the width and height of a picture, without decoding it."""
    from PIL import Image

    with decoding(path, "a PNG, JPEG, WebP, BMP or GIF picture"):
        try:
            with Image.open(path, formats=_FORMATS) as picture:
                return picture.size
        except Image.DecompressionBombError as error:
            raise _too_many_pixels(path, error) from error


def image_signal(path: Path, pixels: Array, levels: int | None, *, raw: bool = False) -> Signal:
    """Return the signal of one upright picture (H, W) or (H, W, C)."""
    values = pixels if raw and is_raw(pixels) else pixel_values(pixels, levels)
    channels = pixels.ndim == 3
    described = describe_signal(
        "image",
        path.name,
        values,
        axes=["row", "column"],
        units=["px", "px"],
        channels=channel_names(pixels.shape[2]) if channels else None,
        levels=levels,
        dtype=pixels.dtype.newbyteorder("="),
        raw_bytes=pixels.nbytes,
    )
    return Signal("image", values, channels, None, None, described)


def pillow_pixels(picture: Any) -> Array:
    """Return the pixels of a picture, integers or floats: grey or RGB, with or without alpha."""
    plain, transparent = _CONVERT.get(picture.mode, (picture.mode, picture.mode))
    mode = transparent if "transparency" in picture.info else plain
    picture = picture if mode == picture.mode else picture.convert(mode)
    step = max(1, _BAND // max(picture.width, 1))
    if picture.height <= step:
        return np.array(picture)
    # band by band: Pillow would need memory for two more copies of the whole picture
    tops = range(0, picture.height, step)
    boxes = [(0, top, picture.width, min(top + step, picture.height)) for top in tops]
    first = np.asarray(picture.crop(boxes[0]))
    pixels = np.empty((picture.height, *first.shape[1:]), first.dtype)
    for box in boxes:
        pixels[box[1] : box[3]] = np.asarray(picture.crop(box))
    return pixels


def upright(pixels: Array, orientation: int) -> Array:
    """Return (H, W, ...) rotated and mirrored according to an EXIF or TIFF orientation."""
    turned = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
        8: lambda a: np.rot90(a),
    }.get(orientation)
    return pixels if turned is None else np.ascontiguousarray(turned(pixels))


def _too_many_pixels(path: Path, error: Exception) -> InputError:
    from PIL import Image

    return problem(
        "path",
        f"{path} ({error})".replace("\n", " "),
        f"at most {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels",
        "If you trust it, save it as .tif or .npy, or raise PIL.Image.MAX_IMAGE_PIXELS.",
    )


def _orientation(picture: Any) -> int:
    """Return the EXIF orientation; 1, which means upright, if none can be read."""
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    # the pixels are valid even if the metadata is not
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, struct.error):
        return 1


def _levels(pixels: Array) -> int | None:
    return 2 ** (8 * pixels.dtype.itemsize) - 1 if pixels.dtype.kind == "u" else None


@contextlib.contextmanager
def open_pillow(path: Path, layout: Layout) -> Iterator[Put]:
    """Write JPEG, WebP or BMP with 8 bits.

    These encoders need the whole picture, so it is held in memory once, with 8 bits.
    """
    from PIL import Image

    name = Image.registered_extensions()[path.suffix.lower()]
    if name not in _SAVE:
        raise problem(
            "path", f"a {name} file", "a format that keeps the colours", "Write a .png file."
        )
    channels, longest, options = _SAVE[name]
    count = layout.need(f"a {name} picture", 2, channels, "Write a .png file, or choose channels.")
    if max(layout.shape) > longest:
        size = " x ".join(map(str, layout.shape))
        raise problem(
            "shape",
            size,
            f"at most {longest} a side in a {name} file",
            "Write a .png or .tif file.",
        )
    pixels = np.empty((*layout.shape, count) if count > 1 else layout.shape, np.uint8)
    done = 0

    def put(block: Array) -> None:
        nonlocal done
        pixels[done : done + len(block)] = quantised(block, 255).reshape(
            len(block), *pixels.shape[1:]
        )
        done += len(block)

    yield put
    _save(pixels, path, name, **options)


class _File(io.BufferedRandom):
    """A file that Pillow writes through Python: when it writes directly, it ignores a full disk."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def _save(pixels: Array, path: Path, name: str, **options: Any) -> None:
    from PIL import Image

    with _File(io.FileIO(path, "w+b")) as file:
        Image.fromarray(pixels).save(file, format=name, **options)


def to_bytes(values: Array) -> Array:
    """Return values in [0, 1] as 8-bit integers, rounded to nearest; other values are clipped."""
    return np.clip(np.rint(np.asarray(values, dtype=np.float32) * 255), 0, 255).astype(np.uint8)


def png_of(pixels: Array) -> bytes:
    """Return pixels (H, W, 3) of 8 bits as a PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def write_image(path: str | os.PathLike[str], values: Array, *, overwrite: bool = True) -> None:
    """Write values in [0, 1], (H, W) or (H, W, 1, 3 or 4), as an 8-bit image, atomically."""
    from PIL import Image

    if (
        values.ndim not in (2, 3)
        or (values.ndim == 3 and values.shape[2] not in (1, 3, 4))
        or 0 in values.shape
    ):
        raise problem(
            "values",
            describe(values),
            "shape (H, W), or (H, W, C) with 1, 3 or 4 channels",
            "Choose channels.",
        )
    name = Image.registered_extensions().get(Path(path).suffix.lower())
    if name is None:
        raise problem(
            "path", os.fspath(path), "the name of an image file", "For example: picture.png"
        )
    pixels = to_bytes(values)
    with replacing(path, overwrite=overwrite) as temporary:
        _save(
            pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels, temporary, name
        )
