"""Writing PNG row by row, so that a picture of any size needs little memory."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kronfield._core.arrays import Array
from kronfield.files.layout import Layout, Put, quantised

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The PNG colour type for each number of channels: grey, grey and alpha, RGB, RGBA.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
# The number of compressed bytes from which a chunk is written.
_CHUNK = 1 << 16
# Row filter 2, "up": a row is stored as its difference from the row above.
_UP = 2


@contextlib.contextmanager
def open_png(path: Path, layout: Layout) -> Iterator[Put]:
    """Write a picture (H, W) or (H, W, C) of 1 to 4 channels, 8 or 16 bit."""
    count = layout.need(
        "a PNG picture", 2, COLOUR_TYPES, "Write a .npy or .tif file, or choose channels."
    )
    levels = layout.levels(65535)
    height, width = layout.shape
    with open(path, "wb") as file:
        file.write(SIGNATURE)
        depth = 8 if levels == 255 else 16
        _chunk(
            file,
            b"IHDR",
            struct.pack(">IIBBBBB", width, height, depth, COLOUR_TYPES[count], 0, 0, 0),
        )
        rows = _Rows(file, width * count * depth // 8)
        yield lambda block: rows.put(quantised(block, levels))
        rows.finish()
        _chunk(file, b"IEND", b"")


class _Rows:
    """The compressed rows of a PNG."""

    def __init__(self, file: BinaryIO, stride: int) -> None:
        self._file = file
        self._above = np.zeros((1, stride), np.uint8)
        self._compressor = zlib.compressobj()
        self._ready = bytearray()

    def put(self, pixels: Array) -> None:
        """Filter and compress the next rows."""
        rows = len(pixels)
        lines = (
            np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder(">"))
            .view(np.uint8)
            .reshape(rows, -1)
        )
        filtered = np.empty((rows, 1 + lines.shape[1]), np.uint8)
        filtered[:, 0] = _UP
        np.subtract(lines[:1], self._above, out=filtered[:1, 1:])
        np.subtract(lines[1:], lines[:-1], out=filtered[1:, 1:])
        self._above = lines[-1:].copy()
        self._ready += self._compressor.compress(filtered.data)
        self._flush(_CHUNK)

    def finish(self) -> None:
        """Write the remaining bytes."""
        self._ready += self._compressor.flush()
        self._flush(1)

    def _flush(self, least: int) -> None:
        if len(self._ready) >= least:
            _chunk(self._file, b"IDAT", bytes(self._ready))
            self._ready.clear()


def _chunk(file: BinaryIO, name: bytes, data: bytes) -> None:
    file.write(
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))
    )
