"""Reading 16-bit PNG with several channels, which Pillow would read as 8-bit."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.files.png import COLOUR_TYPES, SIGNATURE

_CHANNELS = {colour: count for count, colour in COLOUR_TYPES.items()}
# Adam7 passes of an interlaced picture: first column, first row, column step, row step.
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
# The number of rows whose filters are undone together.
_BAND = 512


def is_deep(path: Path) -> bool:
    """Return whether a file is a 16-bit PNG with more than one channel."""
    with open(path, "rb") as file:
        start = file.read(26)
    return (
        start[:8] == SIGNATURE and len(start) == 26 and start[24] == 16 and start[25] in (2, 4, 6)
    )


def check_chunks(path: Path) -> None:
    """Raise ValueError or struct.error if a PNG ends early, or a part of its pixels was changed.

    Pillow does not compare the checksums of pixels. Chunks that pictures do without, such as
    comments, are not checked: their names begin with a small letter.
    """
    with open(path, "rb") as file:
        file.seek(len(SIGNATURE))
        name = b""
        while name != b"IEND":
            length, name = struct.unpack(">I4s", file.read(8))
            check, left = zlib.crc32(name), length
            while left and (part := file.read(min(left, 1 << 20))):
                check, left = zlib.crc32(part, check), left - len(part)
            (stored,) = struct.unpack(">I", file.read(4))
            if stored != check and name[:1].isupper():
                raise ValueError(f"checksum of {name!r} is wrong")


def read_png(path: Path) -> Array:
    """Return the stored pixels (H, W, C) of an 8-bit or 16-bit PNG without palette.

    A damaged file raises ValueError, struct.error or zlib.error.
    """
    chunks = _chunks(path.read_bytes())
    name, header = next(chunks)
    if name != b"IHDR":
        raise ValueError("no header")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    count, size = _CHANNELS[colour], depth // 8
    passes = _passes(width, height, _ADAM7 if interlaced else ((0, 0, 1, 1),))
    total = sum(one.height * (1 + one.width * count * size) for one in passes)
    compressed = b"".join(data for name, data in chunks if name == b"IDAT")
    # limit the output to the size in the header, because a stream can expand to any size
    stream = np.frombuffer(zlib.decompressobj().decompress(compressed, total), np.uint8)
    if len(stream) < total:
        raise ValueError(f"{len(stream)} bytes of pixels instead of {total}")
    pixels = np.empty((height, width, count), np.uint8 if size == 1 else np.uint16)
    start = 0
    for one in passes:
        stop = start + one.height * (1 + one.width * count * size)
        lines = _unfiltered(stream[start:stop].reshape(one.height, -1), count * size)
        part = lines.view(f">u{size}").reshape(one.height, one.width, count)
        pixels[one.rows, one.columns] = part
        start = stop
    return pixels


@record
class _Pass:
    """The rows and columns of a picture that are stored together, and their numbers."""

    rows: slice
    columns: slice
    height: int
    width: int


def _passes(width: int, height: int, grids: Sequence[tuple[int, int, int, int]]) -> list[_Pass]:
    """Return the passes that hold pixels, from their first columns, first rows and steps."""
    found = [
        _Pass(slice(y, None, dy), slice(x, None, dx), -(-(height - y) // dy), -(-(width - x) // dx))
        for x, y, dx, dy in grids
    ]
    return [one for one in found if one.height > 0 and one.width > 0]


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Check each chunk and yield its name and content."""
    at = len(SIGNATURE)
    name = b""
    while name != b"IEND":
        (length,) = struct.unpack_from(">I", data, at)
        name, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (check,) = struct.unpack_from(">I", data, at + 8 + length)
        if check != zlib.crc32(content, zlib.crc32(name)):
            raise ValueError(f"checksum of {name!r} is wrong")
        yield name, content
        at += 12 + length


def _unfiltered(lines: Array, step: int) -> Array:
    """Undo the row filters: (H, 1 + W step) with the filter first becomes (H, W step)."""
    if lines[:, 0].max() > 4:
        raise ValueError("unknown row filter")
    height, stride = len(lines), lines.shape[1] - 1
    result = np.empty((height, stride), np.uint8)
    above: Array = np.zeros(stride, np.uint8)
    for first in range(0, height, _BAND):
        band, out = lines[first : first + _BAND], result[first : first + _BAND]
        if band[:, 0].max() <= 2:
            _undo_rows(band, above, step, out)
        else:
            _undo_diagonals(band, above, step, out)
        above = out[-1]
    return result


def _undo_rows(band: Array, above: Array, step: int, out: Array) -> None:
    """Undo filters that use only the left neighbour (1) or the row above (2), row by row."""
    for line, row in zip(band, out, strict=True):
        if line[0] == 1:
            np.add.accumulate(
                line[1:].reshape(-1, step), axis=0, dtype=np.uint8, out=row.reshape(-1, step)
            )
        elif line[0] == 2:
            np.add(line[1:], above, out=row)
        else:
            row[:] = line[1:]
        above = row


def _undo_diagonals(band: Array, above: Array, step: int, out: Array) -> None:
    """Undo filters of all kinds.

    Each byte is stored as its difference from a prediction by its neighbours a (left), b (above)
    and c (above left). All pixels of a diagonal (equal row + column) depend only on earlier
    diagonals, so a diagonal is processed as one vector. In the flat padded band its pixels are W
    apart, and so are their neighbours.
    """
    rows, width = len(band), out.shape[1] // step
    padded = np.zeros((rows + 1, width + 1, step), np.uint8)
    padded[0, 1:] = above.reshape(width, step)
    padded[1:, 1:] = band[:, 1:].reshape(rows, width, step)
    flat = padded.reshape(-1, step)
    wanted = [np.repeat(band[:, :1] == kind, step, axis=1) for kind in range(5)]
    for diagonal in range(rows + width - 1):
        low, high = max(0, diagonal - width + 1), min(rows, diagonal + 1)
        corner = diagonal + low * width  # index of the neighbour above left of the first pixel
        end = corner + (high - low - 1) * width + 1
        c, b, a, here = (
            flat[corner + shift : end + shift : width].astype(np.int16)
            for shift in (0, 1, width + 1, width + 2)
        )
        part = [mask[low:high] for mask in wanted]
        # Filter 4 (Paeth, 1991) predicts a, b or c, whichever is nearest to a + b - c. The
        # differences are b - c to a, a - c to b, and their sum to c.
        to_a, to_b = b - c, a - c
        far_a, far_b, far_c = np.abs(to_a), np.abs(to_b), np.abs(to_a + to_b)
        guess = np.where((far_a <= far_b) & (far_a <= far_c), a, np.where(far_b <= far_c, b, c))
        for kind, other in ((0, 0), (1, a), (2, b), (3, (a + b) >> 1)):
            np.copyto(guess, other, where=part[kind])
        flat[corner + width + 2 : end + width + 2 : width] = here + guess  # modulo 256
    out[:] = padded[1:, 1:].reshape(rows, -1)
