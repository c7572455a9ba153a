"""Reading and writing TIFF: one page is a picture, several pages of equal size are a volume."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.labels import AxisLabel
from kronfield.files.description import describe_signal
from kronfield.files.guard import check_file_memory, damaged, decoding, extra
from kronfield.files.images import image_signal, pillow_pixels, upright
from kronfield.files.layout import Layout, Put, quantised
from kronfield.files.signal import Signal, channel_names, number_values, pixel_values

_WHAT = "a TIFF file"
_NAMES = {"Y": "row", "X": "column", "Z": "slice", "T": "frame", "I": "page", "Q": "page"}
# Numbers of photometric interpretations in the standard.
_WHITE_IS_ZERO, _PALETTE, _SEPARATED, _LAB = 0, 3, 5, (8, 9, 10)
# The tag of GDAL for the value that means no data, and codes of the GeoTIFF standard.
_NODATA, _GEOGRAPHIC, _PIXEL_IS_POINT = 42113, 2, 2


def read_tiff(path: Path, *, raw: bool = False) -> Signal:
    """Read a TIFF: an upright picture (H, W[, C]), or a volume (pages, H, W[, C])."""
    with extra("volume"):
        import tifffile

    with decoding(path, _WHAT), tifffile.TiffFile(path) as tiff:
        _check_pages(path, tiff)
        stored, levels, axes = _pixels(path, tiff)
        pixels, axes = _ordered(path, stored, axes)
        if pixels.size == 0:
            raise damaged(path, "no pixels", _WHAT)
        orientation = int(tiff.pages.first.tags.valueof("Orientation", default=1))
        geo = None if raw else _map_axes(tiff, axes, pixels.shape)
        empty = tiff.pages.first.tags.valueof(_NODATA, default=None)
    if geo is not None:
        return _map_signal(path, pixels, axes, geo, empty)
    if axes.removesuffix("S") == "YX" and pixels.dtype.kind in "ubf":
        flat = upright(pixels, orientation)
        found = levels or number_values("path", flat[:1, :1])[1]
        flat = flat if flat.dtype != bool else flat.astype(np.uint8)
        return image_signal(path, flat, found, raw=raw)
    if levels:
        values, found = pixels if raw else pixel_values(pixels, levels), levels
    else:
        values, found = number_values("path", pixels, raw=raw)
    return _stack_signal(path, pixels, values, found, axes)


def _map_axes(
    tiff: Any, axes: str, shape: tuple[int, ...]
) -> tuple[tuple[AxisLabel, ...], tuple[Array, ...]] | None:
    """Return the labels and positions of the rows and columns of a GeoTIFF; else None.

    Column i is at x0 + (i - i0 + 1/2) sx, row j at y0 - (j - j0 + 1/2) sy; without the halves if
    the tie point (i0, j0) is the centre of a pixel. Rotated maps are read as pictures.
    """
    known = tiff.geotiff_metadata or {}
    scale, tie = known.get("ModelPixelScale"), known.get("ModelTiepoint")
    if axes.removesuffix("S") != "YX" or scale is None or tie is None or len(tie) != 6:
        return None
    if min(scale[:2]) <= 0:
        return None
    half = 0.0 if int(known.get("GTRasterTypeGeoKey", 1)) == _PIXEL_IS_POINT else 0.5
    column, row, _, x, y, _ = map(float, tie)
    places = (
        y - (np.arange(shape[0]) - row + half) * float(scale[1]),
        x + (np.arange(shape[1]) - column + half) * float(scale[0]),
    )
    if int(known.get("GTModelTypeGeoKey", 0)) == _GEOGRAPHIC:
        return (AxisLabel("lat", "degrees"), AxisLabel("lon", "degrees")), places
    return (AxisLabel("y"), AxisLabel("x")), places


def _map_signal(
    path: Path,
    pixels: Array,
    axes: str,
    geo: tuple[tuple[AxisLabel, ...], tuple[Array, ...]],
    empty: Any,
) -> Signal:
    """Return the signal of a GeoTIFF: numbers with coordinates, NaN where there are no data."""
    labels, places = geo
    wide = pixels.dtype.itemsize > (4 if pixels.dtype.kind == "f" else 2)
    values = pixels.astype(np.float64 if wide else np.float32)
    with contextlib.suppress(TypeError, ValueError):
        values[pixels == pixels.dtype.type(float(empty))] = np.nan
    channels = axes.endswith("S")
    described = describe_signal(
        "array",
        path.name,
        values,
        axes=[str(label.name) for label in labels],
        units=[label.unit for label in labels],
        channels=[f"band {i + 1}" for i in range(values.shape[-1])] if channels else None,
        levels=None,
        dtype=pixels.dtype.newbyteorder("="),
        raw_bytes=pixels.nbytes,
    )
    return Signal("array", values, channels, places, None, described, labels)


def _check_pages(path: Path, tiff: Any) -> None:
    """Raise an error if pages are missing, of several sizes, or too large for the memory."""
    if not len(tiff.pages) or not _chain_is_whole(tiff):
        raise damaged(path, "pages are missing", _WHAT)
    series = tiff.series
    if len(series) > 1:
        sizes = ", ".join(" x ".join(map(str, one.shape)) for one in series[:4])
        raise problem(
            "path",
            f"{path} with pages of {len(series)} sizes ({sizes})",
            "pages of equal size",
            "Split it into files.",
        )
    check_file_memory(path, series[0].size * (series[0].dtype.itemsize + 4), "Cut it into parts.")


def _stack_signal(
    path: Path,
    pixels: Array,
    values: Array,
    levels: int | None,
    axes: str,
) -> Signal:
    """Return the signal of a volume, or of a picture of signed integers.

    ``axes`` holds one letter per axis.
    """
    channels = axes.endswith("S")
    grid = axes.removesuffix("S")
    kind = "image" if grid == "YX" else "volume"
    described = describe_signal(
        kind,
        path.name,
        values,
        axes=[_NAMES.get(letter, letter.lower()) for letter in grid],
        units=["px" if letter in "YX" else "" for letter in grid],
        channels=channel_names(values.shape[-1]) if channels else None,
        levels=levels,
        dtype=pixels.dtype.newbyteorder("="),
        raw_bytes=pixels.nbytes,
    )
    return Signal(kind, values, channels, None, None, described)


def _chain_is_whole(tiff: Any) -> bool:
    """Return whether all pages were found: a truncated file points to a page beyond its end."""
    form, file = tiff.tiff, tiff.filehandle
    file.seek(tiff.pages[-1].offset)
    (count,) = struct.unpack(form.tagnoformat, file.read(form.tagnosize))
    file.seek(count * form.tagsize, 1)
    (following,) = struct.unpack(form.offsetformat, file.read(form.offsetsize))
    return following < file.size


def _pixels(path: Path, tiff: Any) -> tuple[Array, int | None, str]:
    """Return the samples of the series as grey or RGB, their levels, and the letters of the axes.

    The levels are None if the samples use all bits of their dtype.
    """
    series, key = tiff.series[0], tiff.pages.first
    try:
        pixels, axes = series.asarray(), series.axes
    except (ValueError, ImportError) as error:
        if isinstance(error, ValueError) and "imagecodecs" not in str(error):
            raise
        pixels, axes = _through_pillow(path, tiff)
        return pixels, None, axes
    bits = int(key.bitspersample)
    levels = (
        2**bits - 1 if pixels.dtype.kind == "u" and bits < 8 * pixels.dtype.itemsize <= 16 else None
    )
    if int(key.photometric) in _LAB:
        raise problem("path", f"{path} in Lab colours", "grey or RGB", "Convert it to RGB.")
    if int(key.photometric) == _PALETTE and key.colormap is not None:
        # the standard stores 16 bits; in practice all writers convert from 8 bits
        colours = (key.colormap >> 8).astype(np.uint8)
        return np.moveaxis(colours[:, pixels], 0, -1), None, axes + "S"
    return _bright(pixels, int(key.photometric), bits), levels, axes


def _bright(pixels: Array, photometric: int, bits: int) -> Array:
    """Return pixels that increase with brightness: invert grey if white is 0, convert inks to RGB.

    Inks (c, m, y, k) from 0 to 1 give the light (1 - c)(1 - k), (1 - m)(1 - k), (1 - y)(1 - k).
    """
    if photometric == _WHITE_IS_ZERO and pixels.dtype.kind in "ub":
        return ~pixels if pixels.dtype == bool else (2**bits - 1) - pixels
    if photometric == _SEPARATED and pixels.shape[-1] == 4:
        most = float(np.iinfo(pixels.dtype).max)
        light = 1 - pixels / most
        return np.rint(light[..., :3] * light[..., 3:] * most).astype(pixels.dtype)
    return pixels


def _through_pillow(path: Path, tiff: Any) -> tuple[Array, str]:
    """Return the pages, decoded by Pillow if tifffile would need a further library."""
    from PIL import Image, UnidentifiedImageError

    series, key = tiff.series[0], tiff.pages.first
    try:
        with Image.open(path, formats=("TIFF",)) as picture:
            pages = []
            for page in series.pages:
                picture.seek(page.index)
                pages.append(pillow_pixels(picture))
    except (UnidentifiedImageError, AttributeError) as error:
        name = getattr(key.compression, "name", key.compression)
        raise problem(
            "path",
            f"{path} in {name} compression",
            "a compression that can be decoded",
            "Install it with: pip install imagecodecs",
        ) from error
    lead = len(series.shape) - key.ndim
    stacked = np.stack(pages).reshape(*series.shape[:lead], *pages[0].shape)
    return stacked, series.axes[:lead] + ("YX" if pages[0].ndim == 2 else "YXS")


def _ordered(path: Path, pixels: Array, axes: str) -> tuple[Array, str]:
    """Return the pixels with channels (S) last, and without axes of length one.

    Rows and columns stay even if their length is one.
    """
    keep = [i for i, letter in enumerate(axes) if letter in "YX" or pixels.shape[i] > 1]
    pixels, axes = pixels.reshape([pixels.shape[i] for i in keep]), "".join(axes[i] for i in keep)
    found = [i for i, letter in enumerate(axes) if letter in "CS"]
    if len(found) > 1:
        raise problem(
            "path",
            f"{path} with several axes of channels ({axes})",
            "one axis of channels",
            "Split the channels into files.",
        )
    for i in found:
        pixels, axes = np.moveaxis(pixels, i, -1), axes[:i] + axes[i + 1 :] + "S"
    return pixels, axes


@contextlib.contextmanager
def open_tiff(path: Path, layout: Layout) -> Iterator[Put]:
    """Write an uncompressed picture or volume, with 8 or 16 bits or as floats, like the source."""
    with extra("volume"):
        import tifffile

    if len(layout.shape) < 2:
        raise problem(
            "shape", layout.shape, "for a TIFF file at least 2 axes", "Write a .npy or .csv file."
        )
    count = layout.channels or 1
    levels = layout.levels(65535) if layout.description.levels is not None else None
    dtype = (
        layout.float_dtype()
        if levels is None
        else np.dtype(np.uint8 if levels == 255 else np.uint16)
    )
    offset, _ = tifffile.imwrite(
        path,
        shape=(*layout.shape, count) if count > 1 else layout.shape,
        dtype=dtype,
        returnoffset=True,
        metadata={"axes": f"{_page_letters(len(layout.shape) - 2)}YX" + ("S" if count > 1 else "")},
        **_colour_tags(count),
    )
    # the samples are contiguous after the first header and are written block by block
    with open(path, "r+b") as file:
        file.seek(offset)

        def put(block: Array) -> None:
            values = block.astype(dtype, copy=False) if levels is None else quantised(block, levels)
            file.write(np.ascontiguousarray(values).data.cast("B"))

        yield put


def _page_letters(count: int) -> str:
    """Return the letters of the axes before rows and columns: Z, TZ, QTZ, QQTZ, ..."""
    return ("Q" * count + "TZ")[-count:] if count else ""


def _colour_tags(count: int) -> dict[str, Any]:
    """Return the tags that describe the channels: grey or RGB, with alpha if there are 2 or 4."""
    if count == 1:
        return {"photometric": "minisblack"}
    coloured = count in (3, 4)
    further = "unassalpha" if count in (2, 4) else "unspecified"
    return {
        "photometric": "rgb" if coloured else "minisblack",
        "planarconfig": "contig",
        "extrasamples": [further] * (count - (3 if coloured else 1)),
    }
