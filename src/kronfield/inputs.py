"""What `fit` is given, checked and put in order: planar values, rising axes, frames."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._arrays import describe, is_array, problem, real_numbers
from kronfield._core.axes import SampleAxes
from kronfield.choice import sample_frame
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.solvers.banded import Matrix
from kronfield.solvers.separable import Frame
from kronfield.solvers.slabs import last_axis_first

# Lengths of axes that squares and fourth powers of derivatives leave room for.
SHORTEST, LONGEST = 1e-60, 1e60
# A last axis this short, with all others longer, is taken for channels where nothing says otherwise.
MOST_CHANNELS = 4


@dataclass(frozen=True, eq=False)
class GridLayout:
    """How samples lie: all that a field knows of the grid it was fitted to, without the values.

    Attributes
    ----------
    given_axes : SampleAxes
        The positions on each axis in the order of the values.
    flips : tuple of bool
        Which of them fall.
    frames : tuple of Frame
        Where the embedders' unit interval lies.
    channels, is_complex : bool
        Whether values have an axis of channels, and whether they are complex.
    dtype : dtype
        float32 or float64, in which the fit is done.
    """

    given_axes: SampleAxes
    flips: tuple[bool, ...]
    frames: tuple[Frame, ...]
    channels: bool
    is_complex: bool
    dtype: np.dtype[Any]

    @property
    def axes(self) -> list[Matrix]:
        """The positions on each axis, rising."""
        return [x[::-1] if flip else x for x, flip in zip(self.given_axes, self.flips, strict=True)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples on each axis."""
        return tuple(len(x) for x in self.given_axes)


class GridInput:
    """Checked values on a `GridLayout`. They are the user's own, not a copy; `planar` makes one where it must."""

    def __init__(self, values: Any, axes: Any, encoding: Any, domain: Any, channels: bool | None) -> None:
        array = _checked_values(values)
        if axes is not None:
            axes = _axis_list(axes, array.ndim)
        D, has_channels = _dimensions(array.shape, axes, encoding, channels)
        if 0 in array.shape:
            raise problem("values", describe(array), "at least one sample on each axis", "There is nothing to fit.")
        rising, flips = _checked_axes(axes, domain, array.shape[:D])
        self.encoding = checked_encoding(encoding, D)
        layout = GridLayout(
            SampleAxes(x[::-1] if flip else x for x, flip in zip(rising, flips, strict=True)),
            tuple(flips),
            tuple(_frames(axes, domain, rising)),
            has_channels,
            *_working_dtype(array.dtype),
        )
        self._place(array, layout)

    @classmethod
    def on(cls, layout: GridLayout, values: Any) -> GridInput:
        """Return other values on a known grid, of the same kind."""
        array = _checked_values(values)
        D = len(layout.shape)
        alike = array.shape[:D] == layout.shape and array.ndim == D + layout.channels and 0 not in array.shape
        if not alike or _working_dtype(array.dtype) != (layout.is_complex, layout.dtype):
            channels = " with channels" if layout.channels else ""
            kind = f"{'complex ' if layout.is_complex else ''}{layout.dtype}"
            raise problem(
                "values", describe(values), f"the grid {layout.shape}{channels}, {kind}", "For others call kf.fit."
            )
        new = cls.__new__(cls)
        new.encoding = None
        new._place(array, layout)
        return new

    def _place(self, array: Matrix, layout: GridLayout) -> None:
        self.layout, self.axes = layout, layout.axes
        # a memory map with channels is read one channel at a time, and so is never copied whole
        self.piecewise = isinstance(array, np.memmap) and layout.channels
        self.channel_count = array.shape[-1] if layout.channels else 1
        self._rising = tuple(slice(None, None, -1) if flip else slice(None) for flip in layout.flips)
        self._values = array[self._rising]

    def shares(self, array: Matrix) -> bool:
        """Tell whether ``array`` may be the user's own memory."""
        return bool(np.may_share_memory(array, self._values))

    def at(self, present: Matrix) -> tuple[Matrix, Matrix]:
        """Return the positions (P, D) and values (P,) or (P, C) of the samples at which ``present`` is true."""
        kept = present[self._rising]
        places = np.nonzero(kept)
        return np.stack([axis[i] for axis, i in zip(self.axes, places, strict=True)], axis=1), self._values[kept]

    def planar(self) -> Matrix:
        """Return the values as real (C, N_1, ..., N_D): a view where that is possible, else a copy of its own."""
        array = self._values
        if self.layout.is_complex:  # a complex channel is two real ones
            parts = np.stack([array.real, array.imag], axis=-1)
            array = parts.reshape(*self.layout.shape, -1)
        elif not self.layout.channels:
            return array[None]
        return np.moveaxis(array, -1, 0) if self.piecewise else last_axis_first(array)


def _working_dtype(dtype: np.dtype[Any]) -> tuple[bool, np.dtype[Any]]:
    """Return whether values are complex, and the real dtype in which they are fitted."""
    if np.issubdtype(dtype, np.complexfloating):
        return True, np.dtype(np.float32 if dtype.itemsize <= 8 else np.float64)
    return False, np.dtype(np.float32 if np.result_type(dtype, np.float16).itemsize <= 4 else np.float64)


def split_mask(values: Any, mask: Any) -> tuple[Any, Matrix | None]:
    """Return values with 0 where one is missing, and which are; None if all are there."""
    if isinstance(values, np.ma.MaskedArray):
        own = np.ma.getmaskarray(values)
        values = np.ma.getdata(values)
        if mask is None:
            if own.any():
                got = f"a masked array with {int(own.sum())} of {own.size} values missing"
                remedy = "Pass mask=values.mask to fit the rest and fill the gaps, or use fit_points."
                raise problem("values", got, "values that are all there, or a mask", remedy)
        elif np.shape(mask) == own.shape:
            mask = own | np.asarray(mask)
        elif own.any():
            raise problem("mask", f"shape {np.shape(mask)}", f"{own.shape}, that of the masked values", "Pass one of them.")
    if mask is None:
        return values, None
    missing = np.asarray(mask)
    array = number_array("values", values)
    if missing.dtype != bool or missing.shape not in (array.shape, array.shape[:-1]):
        expected = f"an array of bool of shape {array.shape}" + (f" or {array.shape[:-1]}" if array.ndim > 1 else "")
        raise problem(
            "mask", describe(missing), expected, "True where a sample is missing; of numbers pass mask.astype(bool)."
        )
    if missing.size and missing.all():
        raise problem(
            "mask",
            f"True at all of {missing.size}",
            "a sample that is there",
            "True means missing: is it ~mask that is meant?",
        )
    if not missing.any():
        return array, None
    wide = missing if missing.ndim == array.ndim else missing[..., None]
    return np.where(wide, array.dtype.type(0), array), missing


def _checked_values(values: Any) -> Matrix:
    remedy = "Pass mask=~np.isfinite(values) to fit the rest and fill the gaps, or use fit_points."
    array = number_array("values", values)
    if array.ndim == 0:
        raise problem("values", describe(array), "an array of at least one axis", "Pass the samples as an array.")
    inexact = np.issubdtype(array.dtype, np.inexact)
    # a sum shows NaN and inf in one pass without a copy; only if it does, look which
    if inexact and array.size and not sum_is_finite(array):
        bad = sum(int(np.sum(~np.isfinite(row))) for row in array)
        if bad:
            raise problem("values", f"{bad} NaN or inf in {describe(array)}", "finite numbers", remedy)
    return array


def number_array(argument: str, values: Any) -> Matrix:
    """Return real or complex numbers as a NumPy array, without a copy where that can be."""
    try:
        plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        array = values if plain else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise problem(
            argument, describe(values), "an array that NumPy can read",
            "Of a list, make all rows as long; of a tensor, pass values.detach().cpu().", TypeError,
        ) from error  # fmt: skip
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or array.dtype.itemsize > 16:
        raise problem(argument, describe(array), "numbers", "Convert them to float first.", TypeError)
    return array


def sum_is_finite(array: Matrix) -> bool:
    """Tell in one pass and without a copy whether all is finite: if so, surely; if not, the sum may have overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(array)))


def _axis_list(axes: Any, ndim: int) -> list[Any]:
    """Return one entry per axis; for a line of values its positions may stand alone."""
    if ndim <= 2 and is_array(axes) and axes.ndim == 1:
        return [axes]
    if not isinstance(axes, list | tuple):
        raise problem("axes", describe(axes), "a list of arrays", "Pass one array of positions per axis: axes=[x, y].")
    return list(axes)


def _dimensions(shape: tuple[int, ...], axes: Any, encoding: Any, channels: bool | None) -> tuple[int, bool]:
    """Return D, and whether the last axis of values holds channels."""
    if channels not in (None, True, False):
        raise problem("channels", describe(channels), "True, False or None", "Say whether the last axis is channels.")
    known = len(axes) if axes is not None else encoding.dimensions if isinstance(encoding, Kronecker) else None
    if known is None:
        if channels is None:
            channels = len(shape) > 1 and shape[-1] <= MOST_CHANNELS < min(shape[:-1])
        known = len(shape) - bool(channels)
    elif channels is None:
        channels = len(shape) == known + 1
    if known < 1 or len(shape) != known + bool(channels):
        raise problem(
            "values",
            f"shape {shape}",
            f"{known} axes{' and one of channels' if channels else ''}",
            "Axes and encoding say how many axes there are; channels come last.",
        )
    return known, bool(channels)


def _checked_axes(axes: Any, domain: Any, shape: tuple[int, ...]) -> tuple[list[Matrix], list[bool]]:
    """Return rising float64 positions per axis, and which axes of the values to turn round for that."""
    if axes is None:
        if domain is None:
            return [np.arange(n, dtype=np.float64) for n in shape], [False] * len(shape)
        pairs = checked_domain(domain, len(shape))
        cells = zip(pairs, shape, strict=True)
        return [low + (high - low) * (np.arange(n) + 0.5) / n for (low, high), n in cells], [False] * len(shape)
    result, flips = [], []
    for i, (axis, n) in enumerate(zip(axes, shape, strict=True)):
        x = real_numbers(f"axes[{i}]", axis)
        if x.shape != (n,):
            raise problem(f"axes[{i}]", describe(x), f"shape ({n},), as values have", "One position per sample.")
        falling = n > 1 and bool(x[0] > x[-1])
        x = x[::-1] if falling else x
        if np.any(np.diff(x) <= 0):
            raise problem(
                f"axes[{i}]",
                describe(x),
                "positions that rise or fall all the way",
                "Sort them; merge any that are equal.",
            )
        if n > 1:
            check_length(f"axes[{i}]", float(x[0]), float(x[-1]))
        result.append(_even_but_for_rounding(np.ascontiguousarray(x), axis))
        flips.append(falling)
    return result, flips


def _even_but_for_rounding(x: Matrix, given: Any) -> Matrix:
    """Return positions that came in few digits and are even within them as exactly even; others as they are."""
    dtype = getattr(given, "dtype", None)
    if len(x) < 3 or not isinstance(dtype, np.dtype) or dtype.kind != "f" or dtype.itemsize >= 8:
        return x
    even = np.linspace(x[0], x[-1], len(x))
    rounding = 2 * float(np.finfo(dtype).eps) * float(np.abs(x).max())
    return even if float(np.abs(x - even).max()) <= rounding else x


def checked_domain(domain: Any, D: int) -> list[tuple[float, float]]:
    """Return D pairs low < high."""
    remedy = "Pass one (low, high) per axis, low < high."
    try:
        pairs = [(float(low), float(high)) for low, high in domain]
    except (TypeError, ValueError) as error:
        raise problem("domain", describe(domain), f"{D} pairs", remedy) from error
    if len(pairs) != D or not all(math.isfinite(low + high) and low < high for low, high in pairs):
        raise problem("domain", describe(domain), f"{D} pairs with low < high", remedy)
    for low, high in pairs:
        check_length("domain", low, high)
    return pairs


def check_length(argument: str, low: float, high: float) -> None:
    """Refuse an axis so short or long that derivatives by position would overflow."""
    if not SHORTEST <= high - low <= LONGEST:
        expected = f"a length from {SHORTEST:g} to {LONGEST:g}"
        raise problem(argument, f"{low:g} to {high:g}, a length of {high - low:g}", expected, "Use another unit of length.")


def _frames(axes: Any, domain: Any, positions: list[Matrix]) -> list[Frame]:
    """Return where the embedders' unit interval lies on each axis; see the conventions page."""
    if domain is None:
        return [sample_frame(axis) for axis in positions]
    pairs = checked_domain(domain, len(positions))
    if axes is None:  # cells of the domain: centres sit on samples, half a cell in
        return [Frame(float(x[0]), high - low, low, high) for x, (low, high) in zip(positions, pairs, strict=True)]
    for i, (x, (low, high)) in enumerate(zip(positions, pairs, strict=True)):
        if x[0] < low or x[-1] > high:
            raise problem("domain", (low, high), f"to hold axes[{i}], from {x[0]:g} to {x[-1]:g}", "Widen the domain.")
    return [Frame(low, high - low, low, high) for low, high in pairs]


def checked_encoding(encoding: Any, D: int) -> Kronecker | None:
    """Return a Kronecker encoding of D axes; one embedder stands for the same on each."""
    if encoding is None:
        return None
    if isinstance(encoding, Embedder):
        encoding = Kronecker(*[encoding] * D)
    if not isinstance(encoding, Kronecker):
        raise problem("encoding", describe(encoding), "a Kronecker encoding or an embedder", "Or leave it out.", TypeError)
    if encoding.dimensions != D:
        raise problem("encoding", f"{encoding.dimensions} embedders", f"{D}, one per axis of values", "Add or drop some.")
    return encoding
