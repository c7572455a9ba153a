"""Checks of the input of `fit` and `fit_points`, and its conversion to a common form."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import (
    Array,
    describe,
    ends_in_channels,
    is_array,
    is_lazy,
    lazy_array,
    number_array,
    problem,
    real,
    real_numbers,
    split_complex,
    sum_is_finite,
)
from kronfield._core.axes import SampleAxes
from kronfield._core.frames import Frame, cell_centres, check_length, sample_frame, smallest_gap
from kronfield._core.labels import AxisLabel, Labels
from kronfield._core.records import record
from kronfield._core.slabs import last_axis_first
from kronfield.embedders import Embedder, LocalEmbedder
from kronfield.encoding import Kronecker
from kronfield.fitting.ends import checked_ends, periods_of
from kronfield.fitting.periods import (
    Seam,
    check_domain,
    check_span,
    checked_periods,
    closed_frame,
    closed_frames,
    periodic_encoding,
)


@record(eq=False)
class GridLayout:
    """The grid that samples lie on: all that a field keeps of its samples, except the values.

    Attributes
    ----------
    given_axes : SampleAxes
        The positions on each axis, in the order of the values.
    flips : tuple of bool
        Whether the positions on each axis decrease.
    frames : tuple of Frame
        The frame of each axis: where the unit interval of its embedder lies.
    channels, is_complex : bool
        Whether values have an axis of channels, and whether they are complex.
    dtype : dtype
        The dtype in which the fit is computed: float32 or float64.
    seam : Seam or None
        The periodic axes that were given with samples at both ends of a period, if any.
    """

    given_axes: SampleAxes
    flips: tuple[bool, ...]
    frames: tuple[Frame, ...]
    channels: bool
    is_complex: bool
    dtype: np.dtype[Any]
    seam: Seam | None = None

    @property
    def shown_axes(self) -> SampleAxes:
        """The positions as they were given, including those at both ends of a period."""
        return self.given_axes if self.seam is None else self.seam.given_axes

    @property
    def axes(self) -> list[Array]:
        """The positions on each axis, in increasing order."""
        return [x[::-1] if flip else x for x, flip in zip(self.given_axes, self.flips, strict=True)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples on each axis."""
        return tuple(len(x) for x in self.given_axes)


class GridInput:
    """Checked values on a `GridLayout`.

    The values are those of the user, not a copy. `planar` copies them only if it has to.
    """

    def __init__(
        self,
        values: Any,
        axes: Any,
        encoding: Any,
        domain: Any,
        channels: bool | None,
        *,
        periodic: Any = None,
        missing: Array | None = None,
        weights: Any = None,
        ends: Any = None,
        labels: Labels | None = None,
    ) -> None:
        array = _checked_values(values)
        if axes is not None:
            axes = _axis_list(axes, array.ndim)
        D, has_channels = _dimensions(array.shape, axes, encoding, channels)
        if 0 in array.shape:
            raise problem(
                "values",
                describe(array),
                "at least one sample on each axis",
                "There is nothing to fit.",
            )
        rising, flips = _checked_axes(axes, domain, array.shape[:D])
        #: The rule by which splines end on each axis; None where it is chosen.
        self.ends = checked_ends(ends, D, labels)
        periods = periods_of(self.ends, checked_periods(periodic, D, labels), rising)
        self.encoding = periodic_encoding(checked_encoding(encoding, D), periods)
        given = [x[::-1] if flip else x for x, flip in zip(rising, flips, strict=True)]
        kind = _working_dtype(array.dtype)
        #: The mask and the weights of the grid; without the last sample where the first is the
        #: same position.
        self.missing, self.weights = missing, _grid_weights(weights, array.shape[:D])
        if self.weights is not None and missing is not None:
            known = ~(missing if missing.ndim == D else missing.any(axis=-1))
            self.weights = np.where(known, self.weights, 0.0)
        for i, (x, period) in enumerate(zip(rising, periods, strict=True)):
            if period is not None:
                check_span(f"axes[{i}]", float(x[0]), float(x[-1]), period)
        seam = Seam.of(given, periods)
        if seam is not None and is_lazy(array):
            raise problem(
                "periodic",
                "samples at both ends of a period in an array of Dask or zarr",
                "each position once",
                "Leave the last sample of the period out: values[:-1].",
            )
        #: The mask as it was given, where two samples are joined.
        self.missing_of_two = None if seam is None or missing is None else missing.copy()
        if seam is not None:
            array, self.missing = seam.joined(array, missing, self.weights)
            self.weights = None if self.weights is None else seam.summed(self.weights)
            given = seam.axes(given)
            rising = [x[::-1] if flip else x for x, flip in zip(given, flips, strict=True)]
        layout = GridLayout(
            SampleAxes(given),
            tuple(flips),
            tuple(_frames(axes, domain, rising, periods)),
            has_channels,
            *kind,
            seam,
        )
        self._place(array, layout)

    @classmethod
    def on(cls, layout: GridLayout, values: Any) -> GridInput:
        """Return other values of the same kind on a known grid."""
        array = _checked_values(split_mask(values, None)[0])
        D, seam = len(layout.shape), layout.seam
        shape = layout.shape if seam is None else seam.shape
        alike = (
            array.shape[:D] == shape and array.ndim == D + layout.channels and 0 not in array.shape
        )
        if not alike or _working_dtype(array.dtype) != (layout.is_complex, layout.dtype):
            channels = " with channels" if layout.channels else ""
            kind = f"{'complex ' if layout.is_complex else ''}{layout.dtype}"
            raise problem(
                "values",
                describe(values),
                f"the grid {shape}{channels}, {kind}",
                "To fit other values, call kf.fit.",
            )
        if seam is not None:
            array = seam.joined(array, None)[0]
        new = cls.__new__(cls)
        new.encoding, new.missing, new.weights = None, None, None
        new.ends = (None,) * D
        new._place(array, layout)
        return new

    def without_noise(self, planes: Array) -> GridInput:
        """Return other real planes (C, N_1, ..., N_D) on the same grid, in rising order."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._planes, new.piecewise = planes, False
        return new

    def _place(self, array: Array, layout: GridLayout) -> None:
        self._planes: Array | None = None
        self.layout, self.axes = layout, layout.axes
        # A memory map with channels is read one channel at a time, to avoid a copy of all values.
        self.piecewise = isinstance(array, np.memmap) and layout.channels
        self.channel_count = array.shape[-1] if layout.channels else 1
        self._rising = tuple(
            slice(None, None, -1) if flip else slice(None) for flip in layout.flips
        )
        self._values = array[self._rising]

    @property
    def values(self) -> Any:
        """The values in rising order, with channels last."""
        return self._values

    def shares(self, array: Array) -> bool:
        """Return whether ``array`` may share memory with the values of the user."""
        if self._planes is not None:
            return False
        return bool(np.may_share_memory(array, self._values))

    def weights_at(self, present: Array) -> Array | None:
        """Return the weights (P,) of the samples where ``present``; None if there are none."""
        return None if self.weights is None else self.weights[self._rising][present[self._rising]]

    def at(self, present: Array) -> tuple[Array, Array]:
        """Return positions (P, D) and values (P,) or (P, C) of the samples where ``present``."""
        kept = present[self._rising]
        places = np.nonzero(kept)
        return np.stack(
            [axis[i] for axis, i in zip(self.axes, places, strict=True)], axis=1
        ), self._values[kept]

    def numbers(self, present: Array) -> Array:
        """Return the numbers (P,) in the given array of the samples that `at` returns."""
        seam = self.layout.seam
        shape = present.shape if seam is None else seam.shape
        every = np.arange(math.prod(shape)).reshape(shape)
        # a seam leaves out the last sample of an axis
        every = every[tuple(map(slice, present.shape))]
        return np.asarray(every[self._rising][present[self._rising]])

    def planar(self) -> Array:
        """Return the values as real (C, N_1, ..., N_D), as a view if possible, else as a copy."""
        if self._planes is not None:
            return self._planes
        array = self._values
        if self.layout.is_complex:  # a complex channel becomes two real channels
            array = split_complex(array if self.layout.channels else array[..., None])
        elif not self.layout.channels:
            return array[None]
        return np.moveaxis(array, -1, 0) if self.piecewise else last_axis_first(array)


def _working_dtype(dtype: np.dtype[Any]) -> tuple[bool, np.dtype[Any]]:
    """Return whether values are complex, and the real dtype in which the fit is computed."""
    if np.issubdtype(dtype, np.complexfloating):
        return True, np.dtype(np.float32 if dtype.itemsize <= 8 else np.float64)
    return False, np.dtype(
        np.float32 if np.result_type(dtype, np.float16).itemsize <= 4 else np.float64
    )


def split_mask(values: Any, mask: Any) -> tuple[Any, Array | None]:
    """Return values with 0 in place of missing samples, and the mask; None if none is missing."""
    if isinstance(values, np.ma.MaskedArray):
        own = np.ma.getmaskarray(values)
        values = np.ma.getdata(values)
        if mask is None:
            if own.any():
                got = f"a masked array with {int(own.sum())} of {own.size} values missing"
                remedy = (
                    "Pass mask=values.mask to fit the rest and fill the gaps, or use fit_points."
                )
                raise problem("values", got, "no missing values, or a mask", remedy)
        elif np.shape(mask) == own.shape:
            mask = own | np.asarray(mask)
        elif own.any():
            raise problem(
                "mask",
                f"shape {np.shape(mask)}",
                f"shape {own.shape}, as the masked array has",
                "Pass mask=values.mask, or a mask of that shape.",
            )
    if mask is None:
        return values, None
    missing = np.asarray(mask)
    array = number_array("values", values)
    if missing.dtype.kind in "US":
        raise problem(
            "mask",
            f"the text {str(mask)!r}",
            "an array of bool",
            "Of a file, pass what it holds: read it first.",
            TypeError,
        )
    if missing.dtype != bool or missing.shape not in (array.shape, array.shape[:-1]):
        expected = f"an array of bool of shape {array.shape}" + (
            f" or {array.shape[:-1]}" if array.ndim > 1 else ""
        )
        raise problem(
            "mask",
            describe(missing),
            expected,
            "True marks a missing sample; convert numbers with mask.astype(bool).",
        )
    if missing.size and missing.all():
        raise problem(
            "mask",
            f"True at all of {missing.size}",
            "at least one sample that is not missing",
            "True means missing; if your mask marks the samples to keep, pass ~mask.",
        )
    if not missing.any():
        return array, None
    filled = array.copy()
    filled[missing] = 0
    return filled, missing


def _grid_weights(weights: Any, shape: tuple[int, ...]) -> Array | None:
    """Return the weight of each sample of a grid, zero or positive."""
    if weights is None:
        return None
    w = real_numbers("weights", weights)
    if w.shape != shape:
        raise problem(
            "weights", describe(w), f"shape {shape}, that of the grid", "One weight per sample."
        )
    if np.any(w < 0) or not np.any(w > 0):
        raise problem(
            "weights",
            f"the lowest {float(w.min()):g}, the largest {float(w.max()):g}",
            "weights of zero or more, at least one positive",
            "Pass 1 over the variance of the noise of each sample.",
        )
    return w


def _checked_values(values: Any) -> Array:
    remedy = "Pass mask=~np.isfinite(values) to fit the rest and fill the gaps, or use fit_points."
    # the values of a lazy array are checked chunk by chunk when they are computed
    lazy = is_lazy(values)
    array = lazy_array("values", values) if lazy else number_array("values", values)
    if array.ndim == 0:
        raise problem(
            "values",
            describe(array),
            "an array with at least one axis",
            "Pass the samples as an array.",
        )
    inexact = array.dtype.kind in "fc" and not lazy
    # The sum detects NaN and inf in one pass without a copy. They are counted only if it is not
    # finite.
    if inexact and array.size and not sum_is_finite(array):
        bad = sum(int(np.sum(~np.isfinite(row))) for row in array)
        if bad:
            if bad == array.size:
                remedy = "There is nothing to fit: check where the values come from."
            raise problem(
                "values", f"{bad} NaN or inf in {describe(array)}", "finite numbers", remedy
            )
    return array


def _axis_list(axes: Any, ndim: int) -> list[Any]:
    """Return one entry per axis; for values on a line, ``axes`` may be a single array."""
    if ndim <= 2 and is_array(axes) and axes.ndim == 1:
        return [axes]
    if not isinstance(axes, list | tuple):
        raise problem(
            "axes",
            describe(axes),
            "a list of arrays",
            "Pass one array of positions per axis: axes=[x, y].",
        )
    return list(axes)


def _dimensions(
    shape: tuple[int, ...], axes: Any, encoding: Any, channels: bool | None
) -> tuple[int, bool]:
    """Return D, and whether the last axis of values holds channels."""
    if channels not in (None, True, False):
        raise problem(
            "channels",
            describe(channels),
            "True, False or None",
            "State whether the last axis holds channels.",
        )
    known = (
        len(axes)
        if axes is not None
        else encoding.dimensions
        if isinstance(encoding, Kronecker)
        else None
    )
    if known is None:
        if channels is None:
            channels = ends_in_channels(shape)
        known = len(shape) - bool(channels)
    elif channels is None:
        channels = len(shape) == known + 1
    if known < 1 or len(shape) != known + bool(channels):
        raise problem(
            "values",
            f"shape {shape}",
            f"{known} axes{' and one of channels' if channels else ''}",
            "The number of axes follows from axes or encoding; channels come last.",
        )
    return known, bool(channels)


def _checked_axes(axes: Any, domain: Any, shape: tuple[int, ...]) -> tuple[list[Array], list[bool]]:
    """Return increasing float64 positions per axis, and which axes of the values to reverse."""
    if axes is None:
        if domain is None:
            return [np.arange(n, dtype=np.float64) for n in shape], [False] * len(shape)
        pairs = checked_domain(domain, len(shape))
        cells = zip(pairs, shape, strict=True)
        return [cell_centres(low, high, n) for (low, high), n in cells], [False] * len(shape)
    result, flips = [], []
    for i, (axis, n) in enumerate(zip(axes, shape, strict=True)):
        x = real_numbers(f"axes[{i}]", axis)
        if x.shape != (n,):
            raise problem(
                f"axes[{i}]",
                describe(x),
                f"shape ({n},), as values have",
                "Pass one position per sample.",
            )
        falling = n > 1 and bool(x[0] > x[-1])
        x = x[::-1] if falling else x
        if n > 1 and not smallest_gap(x) > 0:
            raise problem(
                f"axes[{i}]",
                describe(x),
                "positions that strictly increase or decrease",
                "Sort the positions, and merge samples at equal positions.",
            )
        if n > 1:
            check_length(f"axes[{i}]", float(x[0]), float(x[-1]))
        result.append(_even_but_for_rounding(np.ascontiguousarray(x), axis))
        flips.append(falling)
    return result, flips


def _even_but_for_rounding(x: Array, given: Any) -> Array:
    """Return exactly even positions if those in low precision are even up to rounding.

    Positions in float64, and positions that are not even, are returned unchanged.
    """
    dtype = getattr(given, "dtype", None)
    if len(x) < 3 or not isinstance(dtype, np.dtype) or dtype.kind != "f" or dtype.itemsize >= 8:
        return x
    even = np.linspace(x[0], x[-1], len(x))
    rounding = 2 * float(np.finfo(dtype).eps) * float(np.abs(x).max())
    return even if float(np.abs(x - even).max()) <= rounding else x


def checked_domain(domain: Any, D: int) -> list[tuple[float, float]]:
    """Return the domain as D pairs (low, high) with low < high."""
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


def _frames(
    axes: Any, domain: Any, positions: list[Array], periods: Sequence[float | None]
) -> list[Frame]:
    """Return the frame of each axis: where the unit interval of its embedder lies."""
    pairs = None if domain is None else checked_domain(domain, len(positions))
    plain = _plain_frames(axes, pairs, positions)
    return [
        frame
        if period is None
        else closed_frame(x, period, None if pairs is None else pairs[i], cells=axes is None)
        for i, (frame, x, period) in enumerate(zip(plain, positions, periods, strict=True))
    ]


def _plain_frames(axes: Any, pairs: Any, positions: list[Array]) -> list[Frame]:
    """Return the frames of axes that do not wrap."""
    if pairs is None:
        return [sample_frame(axis) for axis in positions]
    # Samples are the centres of equal cells of the domain. The first lies half a cell inside.
    if axes is None:
        return [
            Frame(float(x[0]), high - low, low, high)
            for x, (low, high) in zip(positions, pairs, strict=True)
        ]
    for i, (x, (low, high)) in enumerate(zip(positions, pairs, strict=True)):
        if x[0] < low or x[-1] > high:
            raise problem(
                "domain",
                (low, high),
                f"a domain that contains axes[{i}], from {x[0]:g} to {x[-1]:g}",
                "Widen the domain.",
            )
    return [Frame(low, high - low, low, high) for low, high in pairs]


def checked_roughness(roughness: Any) -> tuple[float, float]:
    """Return the two weights of a roughness, zero or positive; (0, 0) if none is given."""
    if roughness is None:
        return (0.0, 0.0)
    try:
        first, second = roughness
    except (TypeError, ValueError) as error:
        raise problem(
            "roughness", describe(roughness), "a pair", "Pass (first, second); either may be 0."
        ) from error
    return checked_penalty("roughness", first), checked_penalty("roughness", second)


def checked_penalty(argument: str, weight: Any) -> float:
    """Return the weight of a penalty, zero or positive."""
    remedy = "Penalty weights are zero or positive; leave them out to have them chosen."
    return real(argument, weight, low=0.0, high=1e300, remedy=remedy)


def checked_encoding(encoding: Any, D: int) -> Kronecker | None:
    """Return a Kronecker encoding of D axes; a single embedder is used on every axis."""
    if encoding is None:
        return None
    if isinstance(encoding, Embedder):
        encoding = Kronecker(*[encoding] * D)
    if not isinstance(encoding, Kronecker):
        raise problem(
            "encoding",
            describe(encoding),
            "a Kronecker encoding or an embedder",
            "Pass for example kf.Triangle(32, 2 / 32).",
            TypeError,
        )
    if encoding.dimensions != D:
        raise problem(
            "encoding",
            f"{encoding.dimensions} embedders",
            f"{D}, one per axis of values",
            "Pass one embedder per axis.",
        )
    return encoding


# Weights and values outside of 2^-MODERATE to 2^MODERATE are scaled before they are used.
MODERATE = 40


class PointInput:
    """Checked points (P, D), planar values (C, P) and weights (P,) or None.

    Points with a missing value are dropped. The weights of the user are ``weights`` times
    2^``weight_exponent``.
    """

    def __init__(
        self,
        points: Any,
        values: Any,
        weights: Any,
        domain: Any,
        encoding: Any,
        *,
        periodic: Any = None,
        labels: Labels | None = None,
    ) -> None:
        X = _point_positions(points)
        y, missing = _point_values(values, len(X))
        w = _point_weights(weights, len(X))
        self.dropped = int(missing.sum())
        self.numbers: Array | None = None  # of the points among those that were given
        if self.dropped:
            self.numbers = np.flatnonzero(~missing)
            X, y, w = X[~missing], y[~missing], None if w is None else w[~missing]
        if not len(X) or (w is not None and not np.any(w)):
            got = f"{self.dropped} missing of {self.dropped + len(X)}" + (
                ", no weight above 0" if len(X) else ""
            )
            raise problem(
                "values",
                got,
                "at least one value with a positive weight",
                "NaN means missing; points of weight 0 are ignored.",
            )
        self.points, self.D = X, X.shape[1]
        self.weights, self.weight_exponent = scaled_weights(w)
        self.channels = y.ndim == 2
        self.is_complex, self.dtype = _working_dtype(y.dtype)
        columns = y if self.channels else y[:, None]
        self.values = np.ascontiguousarray(
            (split_complex(columns) if self.is_complex else columns).T, dtype=self.dtype
        )
        if not np.all(np.isfinite(self.values)):
            raise problem(
                "values",
                f"inf among {describe(y)}",
                "finite numbers, or NaN for missing values",
                "Remove these points, or replace inf by NaN.",
            )
        self.domain = None if domain is None else checked_domain(domain, self.D)
        self.periods = checked_periods(periodic, self.D, labels)
        if any(self.periods):
            self.points = X = self._reduced(X)
        self.box = bounding_box(X)
        for i, period in enumerate(self.periods):
            if period is not None:  # the box is one period long, wherever the points are
                low = self.box[i][0] if self.domain is None else self.domain[i][0]
                self.box[i] = (low, low + period)
        if self.domain is not None:
            check_inside(X, self.domain)
        else:
            for low, high in self.box:
                check_length("points", low, high)
        self.encoding = periodic_encoding(checked_encoding(encoding, self.D), self.periods)

    def numbers_of(self, some: Array) -> tuple[int, ...]:
        """Return the numbers of ``some`` of the points (P,), among all that were given."""
        found = np.flatnonzero(some)
        return tuple((found if self.numbers is None else self.numbers[found]).tolist())

    def with_weights(self, weights: Array) -> PointInput:
        """Return the same points and values with other weights, which are scaled already."""
        new = copy.copy(self)
        new.weights = weights
        return new

    def other_values(self, values: Any) -> Array:
        """Return other values at the same points as checked planes (C, P)."""
        new = PointInput(self.points, values, self.weights, None, None)
        if new.dropped or (new.dtype, new.is_complex, new.channels) != (
            self.dtype,
            self.is_complex,
            self.channels,
        ):
            raise problem(
                "values",
                describe(values),
                f"{len(self.points)} values with the same dtype and channels as before",
                "To fit other values, call fit_points.",
            )
        return new.values

    def _reduced(self, X: Array) -> Array:
        """Return points moved by whole periods into the domain, or to the period of the lowest."""
        X = X.copy()
        for i, period in enumerate(self.periods):
            if period is None:
                continue
            if self.domain is None:
                low = float(X[:, i].min())
            else:
                low, high = check_domain(self.domain[i], period)
                self.domain[i] = (low, high)
            X[:, i] -= period * np.floor((X[:, i] - low) / period)
            X[:, i] = np.maximum(X[:, i], low)  # despite rounding
        return X

    def frames(self) -> tuple[Frame, ...]:
        """Return the frames of the given encoding."""
        assert self.encoding is not None
        return closed_frames(
            frames_for(self.encoding, self.domain, self.box), self.box, self.periods
        )


def frames_for(
    encoding: Kronecker, domain: Any, box: list[tuple[float, float]]
) -> tuple[Frame, ...]:
    """Return the frames of an encoding on a domain.

    Without a domain, the first and last centre lie at the ends of the box.
    """
    if domain is not None:
        return tuple(Frame(low, high - low, low, high) for low, high in domain)
    return tuple(
        _frame(emb, low, high) for emb, (low, high) in zip(encoding.embedders, box, strict=True)
    )


def _frame(embedder: Embedder, low: float, high: float) -> Frame:
    if not isinstance(embedder, LocalEmbedder):
        return Frame(low, high - low, low, high)
    inside = round(1 / embedder.spacing)
    return Frame(low, (high - low) * inside / max(inside - 1, 1), low, high)


def bounding_box(points: Array) -> list[tuple[float, float]]:
    """Return (low, high) on each axis.

    If all points have the same position on an axis, to rounding, its box extends half a unit to
    either side.
    """
    box = []
    for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True):
        wide = (
            high > low
            and math.isfinite(high - low)
            and high - low > 1e-12 * max(abs(low), abs(high))
        )
        box.append((float(low), float(high)) if wide else (float(low) - 0.5, float(high) + 0.5))
    return box


def check_inside(points: Array, domain: list[tuple[float, float]]) -> None:
    """Raise an error if points lie outside of the domain."""
    for axis, (low, high) in enumerate(domain):
        x = points[:, axis]
        outside = int(np.sum((x < low) | (x > high)))
        if outside:
            text = functools.partial(AxisLabel().text, ends=(low, high))
            raise problem(
                "points",
                f"{outside} of {len(x)} outside on axis {axis}, from {text(x.min())} to "
                f"{text(x.max())}",
                f"all points in the domain, {text(low)} to {text(high)}",
                "Widen the domain, or remove these points.",
            )


def _point_positions(points: Any) -> Array:
    """Return positions (P, D) of at least one point."""
    X = real_numbers("points", points)
    if X.ndim != 2 or X.shape[1] < 1:
        raise problem(
            "points", describe(X), "shape (P, D)", "Pass one row per point: for a line, x[:, None]."
        )
    if not len(X):
        raise problem("points", describe(X), "at least one point", "Pass positions (P, D).")
    return X


def _point_values(values: Any, P: int) -> tuple[Array, Array]:
    """Return values (P,) or (P, C), and which rows have a missing value."""
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    y = number_array("values", np.ma.getdata(values) if masked is not None else values)
    if y.ndim not in (1, 2) or len(y) != P or 0 in y.shape[1:]:
        raise problem(
            "values",
            describe(y),
            f"shape ({P},) or ({P}, C), one row per point",
            "Points and values must have the same length.",
        )
    missing = np.zeros(y.shape, dtype=bool) if masked is None else masked.copy()
    if np.issubdtype(y.dtype, np.inexact):
        missing |= np.isnan(y)
    return y, np.asarray(missing if y.ndim == 1 else missing.any(axis=1))


def scaled_weights(weights: Array | None) -> tuple[Array | None, int]:
    """Return weights divided by a power of 2, and its exponent.

    The exponent is 0 unless products of the weights could overflow or underflow in float32.
    """
    if weights is None:
        return None, 0
    exponent = exponent_beyond(float(weights.max()))
    return (np.ldexp(weights, -exponent) if exponent else weights), exponent


def exponent_beyond(size: float) -> int:
    """Return the exponent of 2 that scales a positive size to about 1; 0 if it is moderate."""
    exponent = math.frexp(size)[1]
    return exponent if abs(exponent) > MODERATE else 0


def _point_weights(weights: Any, P: int) -> Array | None:
    if weights is None:
        return None
    w = real_numbers("weights", weights)
    if w.shape != (P,):
        raise problem("weights", describe(w), f"shape ({P},)", "Pass one weight per point.")
    if np.any(w < 0):
        got = f"{int(np.sum(w < 0))} below 0, the lowest {float(w.min()):g}"
        remedy = "Pass 1 over the variance of the noise of each point."
        raise problem("weights", got, "zero or positive weights", remedy)
    return w
