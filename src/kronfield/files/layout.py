"""The layout of a file to write, and the conversion of its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from kronfield._core.arrays import Array, describe, problem, whole
from kronfield._core.labels import AxisLabel
from kronfield._core.records import record
from kronfield.files.description import Description

# The function that a format provides for writing the next rows.
Put: TypeAlias = Callable[[Array], None]
# Numbers converted at a time: a writer needs memory for these in addition to its block.
PIECE = 1 << 20
_LONG = {"float64", "float128", "longdouble", "int32", "int64", "uint32", "uint64"}


@record
class Layout:
    """The shape of the grid, the number of channels (None: no channel axis), and the metadata.

    ``axes`` are the positions on each axis, for formats that hold them.
    """

    shape: tuple[int, ...]
    channels: int | None
    description: Description
    axes: tuple[Array, ...] | None = None

    @classmethod
    def checked(cls, shape: Any, channels: Any, info: Any, axes: Any = None) -> Layout:
        """Check the arguments of a user and return their layout."""
        if not isinstance(info, Mapping):
            raise problem(
                "info",
                describe(info),
                "a dictionary",
                "Pass the info of a Signal, or {}.",
                TypeError,
            )
        try:
            lengths = tuple(shape)
        except TypeError as error:
            raise problem(
                "shape",
                describe(shape),
                "a tuple of whole numbers",
                "For example: (480, 640)",
                TypeError,
            ) from error
        if not lengths:
            raise problem("shape", "()", "at least one axis", "For example: (480, 640)")
        sizes = tuple(whole(f"shape[{i}]", n, at_least=1) for i, n in enumerate(lengths))
        count = None if channels is None else whole("channels", channels, at_least=1)
        if axes is not None and tuple(map(len, axes)) != sizes:
            raise problem(
                "axes",
                f"{[len(x) for x in axes]} positions",
                f"{list(sizes)}, as in the given shape",
                "Pass one array of positions per axis.",
            )
        positions = None if axes is None else tuple(np.asarray(x) for x in axes)
        return cls(sizes, count, Description.from_dict(info), positions)

    @property
    def full(self) -> tuple[int, ...]:
        """The shape of the whole array, including channels."""
        return self.shape if self.channels is None else (*self.shape, self.channels)

    @property
    def row(self) -> int:
        """The number of values in one step along the first axis."""
        return math.prod(self.full[1:])

    def need(self, what: str, axes: int, channels: Iterable[int], remedy: str) -> int:
        """Return the number of channels (1 without a channel axis), if ``what`` can hold the grid.

        Otherwise raise an error.
        """
        count = 1 if self.channels is None else self.channels
        wanted = sorted(channels)
        if len(self.shape) != axes or count not in wanted:
            names = " or ".join(map(str, wanted))
            raise problem(
                "shape",
                self._text(),
                f"for {what} {axes} ax{'is' if axes == 1 else 'es'} and {names} channels",
                remedy,
            )
        return count

    def column_labels(self, count: int) -> dict[int, AxisLabel]:
        """Return the labels of the columns of a table that hold dates, by column number."""
        given = self.description.labels or []
        if len(given) > count:
            return {}
        labels = [AxisLabel.from_dict(one) for one in given]
        return {i: label for i, label in enumerate(labels) if label.is_date}

    def levels(self, most: int) -> int:
        """Return the largest integer of a pixel: 255, or ``most`` if the source had over 8 bits."""
        return most if (self.description.levels or 0) > 255 else 255

    def float_dtype(self) -> np.dtype[Any]:
        """Return float64 if the source had more digits than float32, else float32."""
        return np.dtype(np.float64 if self.description.dtype in _LONG else np.float32)

    def _text(self) -> str:
        return f"{' x '.join(map(str, self.shape))} with " + (
            "no channels" if self.channels is None else f"{self.channels} channels"
        )


class Blocks:
    """The object that `writer` yields: it takes blocks along the first axis, in order."""

    def __init__(self, put: Put, layout: Layout) -> None:
        self._put, self._layout = put, layout
        self.written = 0

    def write(self, block: Any) -> None:
        """Write the next rows: an array (n, N_2, ..., N_D) or (n, N_2, ..., N_D, C) of floats."""
        array = np.asarray(block)
        full = self._layout.full
        if array.dtype.kind != "f":
            raise problem(
                "block",
                describe(array),
                "floats",
                "Integers are not accepted as pixels: scale them to [0, 1].",
                TypeError,
            )
        if array.shape[1:] != full[1:] or array.ndim != len(full):
            raise problem(
                "block",
                describe(array),
                f"shape {('n', *full[1:])}".replace("'", ""),
                "Blocks are parts along the first axis.",
            )
        if self.written + len(array) > full[0]:
            raise problem(
                "block",
                f"{self.written + len(array)} rows in all",
                f"{full[0]}, as in the given shape",
                "Write fewer rows.",
            )
        step = max(1, PIECE // max(self._layout.row, 1))
        for start in range(0, len(array), step):
            piece = array[start : start + step]
            self._put(
                piece.astype(np.float64 if piece.dtype.itemsize > 4 else np.float32, copy=False)
            )
        self.written += len(array)

    def finish(self) -> None:
        """Raise an error if rows are missing."""
        total = self._layout.shape[0]
        if self.written != total:
            raise problem(
                "block",
                f"{self.written} rows in all",
                f"{total}, as in the given shape",
                "Write every row before the end.",
            )


def quantised(values: Array, levels: int) -> Array:
    """Return values in [0, 1] as integers from 0 to ``levels``, rounded to nearest.

    Other values are clipped; NaN becomes 0.
    """
    scaled = np.nan_to_num(values * values.dtype.type(levels), nan=0.0, posinf=levels, neginf=0.0)
    return np.clip(np.rint(scaled), 0, levels).astype(np.uint8 if levels <= 255 else np.uint16)
