"""NumPy files: .npy and .npz."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from kronfield._core.arrays import Array, ends_in_channels, problem
from kronfield.files.description import describe_signal
from kronfield.files.guard import check_file_memory, decoding, nearest
from kronfield.files.layout import Layout, Put, quantised
from kronfield.files.signal import Signal, number_values

# Files of floats with more bytes than this stay on the disk and are read on demand.
MAPPED = 1 << 30


def read_array(path: Path, member: str | None, *, raw: bool = False) -> Signal:
    """Read a .npy file, or an array of a .npz file: its only array, or the array ``member``."""
    if path.suffix.lower() == ".npz":
        stored, name = _from_npz(path, member)
    else:
        stored, name = _from_npy(path), None
    if stored.ndim == 0 or stored.size == 0:
        raise problem(
            "path",
            f"{path} with an array of shape {stored.shape}",
            "at least one sample on each axis",
            "Save an array that is not empty.",
        )
    values, levels = number_values("path", stored, raw=raw)
    channels = ends_in_channels(stored.shape)
    dimensions = stored.ndim - channels
    described = describe_signal(
        "array",
        path.name,
        values,
        axes=[f"axis {i}" for i in range(dimensions)],
        units=[""] * dimensions,
        channels=[str(i) for i in range(stored.shape[-1])] if channels else None,
        levels=levels,
        dtype=stored.dtype.newbyteorder("="),
        raw_bytes=stored.nbytes,
    )
    described = replace(described, member=name)
    return Signal("array", values, channels, None, None, described)


def _from_npy(path: Path) -> Array:
    what = "an array written by numpy.save, without objects"
    with decoding(path, what):
        if path.stat().st_size > MAPPED:
            mapped = np.lib.format.open_memmap(path, mode="c")
            if mapped.dtype in (np.float32, np.float64):
                return mapped
            check_file_memory(
                path, mapped.size * (mapped.dtype.itemsize + 8), "Save it as float32."
            )
        with open(path, "rb") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _from_npz(path: Path, member: str | None) -> tuple[Array, str]:
    what = "arrays written by numpy.savez, without objects"
    with decoding(path, what), zipfile.ZipFile(path) as archive:
        entries = {
            entry.removesuffix(".npy"): entry
            for entry in archive.namelist()
            if entry.endswith(".npy")
        }
        names = ", ".join(entries) or "none"
        if member is None and len(entries) != 1:
            first = next(iter(entries), "name")
            raise problem(
                "path",
                f"{path} with {len(entries)} arrays ({names})",
                "one array",
                f"Name it: {path.name}:{first}",
            )
        if member is not None and member not in entries:
            raise problem(
                "path",
                f"no array {member!r} in {path}",
                f"one of {names}",
                nearest(member, entries) or "Choose one of these names.",
            )
        name = next(iter(entries)) if member is None else member
        check_file_memory(
            path, archive.getinfo(entries[name]).file_size * 2.0, "Save it as .npy, float32."
        )
        with archive.open(entries[name]) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False)), name


@contextlib.contextmanager
def open_npy(path: Path, layout: Layout) -> Iterator[Put]:
    """Write an array in blocks, as floats or with the integer type of the array that was read."""
    with open(path, "wb") as file:
        yield _start(file, layout)


@contextlib.contextmanager
def open_npz(path: Path, layout: Layout) -> Iterator[Put]:
    """Write a .npz file with a single array, in the same way as a .npy file."""
    name = layout.description.member or "values"
    with (
        zipfile.ZipFile(path, "w") as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as file,
    ):
        yield _start(file, layout)


def _start(file: IO[bytes], layout: Layout) -> Put:
    """Write the header and return the function that writes the rows."""
    dtype = _dtype(layout)
    header: dict[str, Any] = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": layout.full,
    }
    np.lib.format.write_array_header_1_0(file, header)

    def put(block: Array) -> None:
        if dtype.kind == "f":
            values = block.astype(dtype, copy=False)
        else:
            levels = 1 if dtype.kind == "b" else 2 ** (8 * dtype.itemsize) - 1
            values = quantised(block, levels).astype(dtype)
        file.write(np.ascontiguousarray(values).data.cast("B"))

    return put


def _dtype(layout: Layout) -> np.dtype[Any]:
    own = layout.description.dtype
    if layout.description.kind == "array" and own in ("uint8", "uint16", "bool"):
        return np.dtype(own)
    return layout.float_dtype()
