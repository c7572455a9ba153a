"""Reading and writing NIfTI: volumes of scanners, with the distances between their samples."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield.files.description import describe_signal
from kronfield.files.guard import check_file_memory, decoding, extra
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Signal

_WHAT = "a NIfTI volume"
_NAMES = ("x", "y", "z", "t")
# The offset of the samples: a header of 348 bytes, and 4 bytes that declare no extension.
_OFFSET = 352


def read_nifti(path: Path) -> Signal:
    """Read a volume (X, Y, Z) or a series (X, Y, Z, T), with positions in physical units.

    The scale and offset in the header are applied to the values.
    """
    with extra("nifti"):
        import nibabel

    with decoding(path, _WHAT), contextlib.ExitStack() as opened:
        picture = nibabel.load(path)
        stream = None
        if path.suffix.lower() == ".gz":
            stream = opened.enter_context(gzip.open(path, "rb"))
            image = nibabel.FileHolder(path.name, stream)
            picture = type(picture).from_file_map({"image": image})
        header = picture.header
        stored = header.get_data_dtype()
        if stored.kind not in "iuf":
            raise problem(
                "path",
                f"{path} with samples of dtype {stored}",
                "real numbers",
                "Save the parts as volumes.",
            )
        check_file_memory(path, math.prod(picture.shape) * 8.0, "Cut it into parts.")
        single = stored.itemsize <= 2 or stored == np.float32
        values = np.asarray(picture.dataobj, dtype=np.float32 if single else np.float64)
        if stream is not None:
            _check_rest(stream)
        while values.ndim > 3 and values.shape[-1] == 1:
            values = values[..., 0]
        zooms = [_spacing(float(zoom)) for zoom in header.get_zooms()[: values.ndim]]
        space, time = header.get_xyzt_units()
        affine = np.asarray(picture.affine, dtype=np.float64).tolist()
    if values.ndim > 4 or values.size == 0:
        raise problem(
            "path",
            f"{path} of shape {values.shape}",
            "3 axes, or 4 with time",
            "Save one component as a volume.",
        )
    unit = {"micron": "um", "meter": "m"}.get(space, "mm")
    units = [unit] * min(values.ndim, 3) + [{"msec": "ms", "usec": "us"}.get(time, "s")] * (
        values.ndim - 3
    )
    described = describe_signal(
        "volume",
        path.name,
        values,
        axes=_NAMES[: values.ndim],
        units=units,
        channels=None,
        levels=None,
        dtype=values.dtype,
        raw_bytes=values.size * stored.itemsize,
    )
    described = replace(described, spacing=zooms, affine=affine)
    axes = tuple(zoom * np.arange(n) for zoom, n in zip(zooms, values.shape, strict=True))
    return Signal("volume", values, False, axes, None, described)


def _check_rest(stream: gzip.GzipFile) -> None:
    """Read a stream to its end, where gzip compares the checksum of all that was read.

    The samples end before the checksum, so reading only them would not notice changed bytes.
    """
    while stream.read(1 << 20):
        pass


def _spacing(zoom: float) -> float:
    """Return the distance between samples that a header states; 1 if it is not positive."""
    return zoom if math.isfinite(zoom) and zoom > 0 else 1.0


@contextlib.contextmanager
def open_nifti(path: Path, layout: Layout) -> Iterator[Put]:
    """Write a volume of floats.

    The affine map to the scanner's space is that of the source. If the shape differs, the same box
    is divided into cells of another size.
    """
    if layout.channels is not None or len(layout.shape) > 4:
        raise problem(
            "shape",
            f"{layout.full}",
            "for NIfTI up to 4 axes and no channels",
            "Write a .tif or .npy file.",
        )
    dtype = layout.float_dtype()
    header = _header(layout, dtype)
    packed = path.suffix.lower() == ".gz"
    plain = path.with_suffix(".unpacked") if packed else path
    try:
        with open(plain, "wb") as file:
            file.write(header)
            size = math.prod(layout.shape) * dtype.itemsize
            # a full disk raises an error here, and not a crash in the memory map
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, _OFFSET + size)
        samples = np.memmap(plain, dtype, "r+", _OFFSET, layout.shape, order="F")
        done = 0

        def put(block: Array) -> None:
            nonlocal done
            samples[done : done + len(block)] = block
            done += len(block)

        yield put
        samples.flush()
        if packed:
            with open(plain, "rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    finally:
        if packed:
            plain.unlink(missing_ok=True)


def _header(layout: Layout, dtype: np.dtype[Any]) -> bytes:
    """Return the header of the file."""
    with extra("nifti"):
        import nibabel

    if max(layout.shape) > 32767:
        raise problem(
            "shape",
            f"{layout.shape}",
            "at most 32767 samples on an axis of NIfTI",
            "Write a .npy file.",
        )
    spacing, affine = _placed(layout)
    header = nibabel.Nifti1Header(endianness="<")
    header.set_data_dtype(dtype)
    header.set_data_shape(layout.shape)
    header.set_sform(affine, code=1)
    header.set_zooms(tuple(spacing))
    units = layout.description.units or []
    space = {"um": "micron", "m": "meter"}.get(units[0] if units else "", "mm")
    header.set_xyzt_units(
        space, {"ms": "msec", "us": "usec"}.get(units[3], "sec") if len(units) > 3 else "sec"
    )
    header["vox_offset"], header["magic"] = _OFFSET, b"n+1"
    return bytes(header.binaryblock) + bytes(_OFFSET - len(header.binaryblock))


def _placed(layout: Layout) -> tuple[Array, Array]:
    """Return the distance between samples on each axis, and the 4 x 4 map from samples to space.

    Let the source have n samples on an axis where N are written. A cell is then f = n / N samples
    of the source long. Sample j lies at the centre of its cell, which is sample (j + 1/2) f - 1/2
    of the source; the affine of the source maps that to space.
    """
    known, dimensions = layout.description, len(layout.shape)
    before = list(known.shape or ())[:dimensions]
    before = before if len(before) == dimensions else list(layout.shape)
    steps = [1.0] * dimensions if known.spacing is None else known.spacing
    spacing = np.asarray(steps, dtype=np.float64)
    straight = np.diag([*spacing[:3], *[1.0] * (4 - len(spacing[:3]))])
    affine = np.asarray(straight if known.affine is None else known.affine, dtype=np.float64)
    if affine.shape != (4, 4) or spacing.shape != (dimensions,) or not np.isfinite(affine).all():
        raise problem(
            "info",
            describe(affine),
            'a 4 x 4 "affine", and a "spacing" per axis',
            "Use the info of the signal that was read.",
        )
    factors = np.array(before) / np.array(layout.shape)
    step = np.eye(4)
    for i, factor in enumerate(factors[:3]):
        step[i, i], step[i, 3] = factor, (factor - 1) / 2
    return spacing * factors, affine @ step
