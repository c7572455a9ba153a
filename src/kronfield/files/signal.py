"""The content of a file as numbers, with the metadata for writing a similar file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.labels import AxisLabel
from kronfield._core.records import record
from kronfield.files.description import Description

# A function that is called with the amount done and the total, which is None if it is unknown.
Progress: TypeAlias = Callable[[int, int | None], None]

_CHANNEL_NAMES = {
    1: ["grey"],
    2: ["grey", "alpha"],
    3: ["red", "green", "blue"],
    4: ["red", "green", "blue", "alpha"],
}


@record
class Signal:
    """The result of `read`: the values of a file and their metadata.

    Attributes
    ----------
    kind : str
        "image", "video", "volume", "audio", "array" or "table".
    values : array
        A grid (N_1, ..., N_D) or (N_1, ..., N_D, C); for a table (P,) or (P, C). The dtype is
        float32, or float64 if the file holds more digits. Pixels are in [0, 1], sound is in
        [-1, 1); other numbers are unchanged. If the file was read ``raw``, unsigned integers of 8
        and 16 bits are unchanged too.
    channels : bool
        Whether the last axis of ``values`` holds channels.
    axes : tuple of arrays, or None
        The positions on each axis, in ``description.units``; None if they are sample numbers.
    points : array of shape (P, D), or None
        The coordinates of a table's rows, float64.
    description : Description
        Further metadata, such as names, units and levels.
    labels : tuple of AxisLabel, or None
        The name, unit and kind of each axis, if the file has them. Dates are positions in seconds
        since the first one.
    """

    kind: str
    values: Array
    channels: bool
    axes: tuple[Array, ...] | None
    points: Array | None
    description: Description
    labels: tuple[AxisLabel, ...] | None = None

    @property
    def info(self) -> dict[str, Any]:
        """The description as a new dictionary of plain data, which `write` and `writer` take."""
        return self.description.to_dict()


def channel_names(count: int) -> list[str]:
    """Return the names of the channels of a picture."""
    return _CHANNEL_NAMES.get(count, [str(i) for i in range(count)])


def is_raw(numbers: Array) -> bool:
    """Return whether a file that is read ``raw`` keeps these numbers: 8 or 16 bits, unsigned."""
    return numbers.dtype.kind == "u" and numbers.dtype.itemsize <= 2


def pixel_values(pixels: Array, levels: int | None) -> Array:
    """Return pixels as floats: integers from 0 to ``levels`` scaled to [0, 1], floats unchanged."""
    if pixels.dtype.kind == "f":
        return pixels.astype(np.float64 if pixels.dtype.itemsize > 4 else np.float32, copy=False)
    values = pixels.astype(np.float32)
    if levels is not None:
        values /= levels
    return values


def number_values(argument: str, numbers: Array, *, raw: bool = False) -> tuple[Array, int | None]:
    """Return any real array as floats, and its levels.

    Unsigned integers of 8 and 16 bits and booleans count as pixels and are scaled to [0, 1]. All
    other numbers keep their values; integers of 32 bits and more become float64 to keep their
    digits. ``raw`` pixels are returned as they are.
    """
    kind, size = numbers.dtype.kind, numbers.dtype.itemsize
    if kind == "b":
        return numbers.astype(np.float32), 1
    if kind == "u" and size <= 2:
        levels = 2 ** (8 * size) - 1
        return numbers if raw else pixel_values(numbers, levels), levels
    if kind in "iu":
        return numbers.astype(np.float32 if size <= 2 else np.float64), None
    if kind == "f":
        return pixel_values(numbers, None), None
    what = "complex numbers" if kind == "c" else "no numbers"
    remedy = (
        "Save the real and the imaginary part as two channels."
        if kind == "c"
        else "Convert them to float and save again."
    )
    raise problem(
        argument, f"{what}, an array of dtype {numbers.dtype}", "real numbers", remedy, TypeError
    )
