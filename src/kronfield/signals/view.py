"""Evaluation of a field for rendering, block by block: any size, region, slice or rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field as dataclass_field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from kronfield._core.arrays import Array, describe, problem, real, whole
from kronfield._core.frames import cell_centres
from kronfield._core.records import record
from kronfield.field import Field
from kronfield.fitting import settings as defaults
from kronfield.signals.axes import (
    axis_names,
    axis_units,
    described,
    frame_rate,
    is_numbered,
    map_order,
    time_axis,
)

if TYPE_CHECKING:
    from kronfield.lazy.field import LazyField

# Values evaluated at a time: 16 MB of float32.
BLOCK_NUMBERS = 1 << 22
# The largest number of samples of a view: on a line, on one of several axes, and in total. Larger
# numbers are assumed to be typing errors.
MOST_ON_LINE, MOST_ON_AXIS, MOST_IN_ALL = 10**9, 10**7, 10**12


class Within(tuple[int, ...]):
    """The height and width of a frame into which a picture must fit, in its own proportions."""

    __slots__ = ()


@record
class View:
    """The positions at which a field is evaluated, and the layout of the result.

    Attributes
    ----------
    axes : tuple of arrays
        The positions on each axis of the field; a single position where the field is cut.
    steps : tuple of float
        The length of a cell on each axis.
    taps : tuple of int
        The number of parts of a cell on each axis; values are averaged over the parts.
    order : tuple of int
        The axes of the result, by their numbers in the field.
    rate : Fraction or None
        Frames or samples per second, if the field has time or a rate was given.
    beyond : float or None
        The distance from the data beyond which values are NaN.
    per : str or None
        The unit of time of derivatives along dates, such as "year"; None for seconds.
    """

    axes: tuple[Array, ...]
    steps: tuple[float, ...]
    taps: tuple[int, ...]
    order: tuple[int, ...]
    rate: Fraction | None = None
    beyond: float | None = None
    per: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, without channels."""
        return tuple(len(self.axes[i]) for i in self.order)

    @property
    def positions(self) -> tuple[Array, ...]:
        """The positions along each axis of the result."""
        return tuple(self.axes[i] for i in self.order)

    def blocks(self, field: Field, derivative: Sequence[int] | None = None) -> Iterator[Array]:
        """Yield the values in blocks along the first axis of the result, about 16 MB each."""
        lead, plain = self.order[0], self._of(derivative)
        rest = math.prod(
            len(x) * n
            for i, (x, n) in enumerate(zip(plain.axes, plain.taps, strict=True))
            if i != lead
        )
        rows = max(1, BLOCK_NUMBERS // (rest * plain.taps[lead] * field.channel_count))
        for start in range(0, len(self.axes[lead]), rows):
            axes = list(plain.axes)
            axes[lead] = axes[lead][start : start + rows]
            yield plain._values(field, axes, derivative)

    def lazily(self, field: LazyField, derivative: Sequence[int] | None = None) -> Any:
        """Return the values of a lazy field, as an array of Dask."""
        from kronfield.lazy.field import averaged

        plain = self._of(derivative)
        values = averaged(plain._fine(field, plain.axes, derivative), plain.taps)
        return plain._arranged(values)

    def _of(self, derivative: Sequence[int] | None) -> View:
        """Return the view for a derivative, which is not averaged over cells."""
        if derivative is None or not any(derivative):
            return self
        return replace(self, taps=(1,) * len(self.axes))

    def _values(
        self, field: Field, axes: Sequence[Array], derivative: Sequence[int] | None
    ) -> Array:
        """Evaluate a block at the parts of its cells, average the parts, and order the axes."""
        values = self._fine(field, axes, derivative)
        for axis, n in enumerate(self.taps):
            values = _averaged(values, axis, n)
        return np.ascontiguousarray(self._arranged(values))

    def _fine(self, field: Field, axes: Sequence[Array], derivative: Sequence[int] | None) -> Any:
        """Return the values at the parts of cells."""
        cells = zip(axes, self.steps, self.taps, strict=True)
        fine = [_parts(x, step, n) for x, step, n in cells]
        # clamp: positions may be outside the domain by rounding
        return field.on_grid(fine, derivative, outside="clamp", beyond=self.beyond, per=self.per)

    def _arranged(self, values: Any) -> Any:
        """Return values on all axes of the field with the axes of the result, in its order."""
        kept = sorted(self.order)
        values = values.squeeze(tuple(i for i in range(len(self.axes)) if i not in kept))
        channels = [len(kept)] if values.ndim > len(kept) else []
        return values.transpose([kept.index(i) for i in self.order] + channels)

    def coarse(self, most: int = 1 << 16) -> View:
        """Return a view with about ``most`` of the positions, to estimate the range of values."""
        step = max(
            1, math.ceil((math.prod(len(x) for x in self.axes) / most) ** (1 / len(self.order)))
        )
        return replace(
            self,
            axes=tuple(x[(len(x) - 1) % step // 2 :: step] for x in self.axes),
            taps=(1,) * len(self.axes),
            beyond=None,
        )


def view(
    field: Field,
    *,
    size: int | Sequence[int] | None = None,
    scale: float | Sequence[float] | None = None,
    crop: Mapping[int, tuple[float | None, float | None]] | None = None,
    cut: Mapping[int, float] | None = None,
    rate: Fraction | None = None,
    slow: float = 1.0,
    upright: bool = False,
) -> View:
    """Return the positions at which to evaluate a field.

    If cells are larger than those of the samples, values are averaged over them, so that smaller
    pictures are not jagged. The frames of a video are not averaged over time.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.signals.view import view
    >>> field = kf.fit(np.add.outer(np.arange(20.0), np.arange(30.0)))
    >>> part = view(field, scale=4, crop={0: (5, 10)})
    >>> part.shape, part.axes[0][:2]
    ((20, 120), array([4.625, 4.875]))
    >>> sum(len(block) for block in part.blocks(field))
    20

    Parameters
    ----------
    field : Field
        Its ``info`` may hold the kind of the signal and the names of the axes.
    size : int, one per axis, or Within, optional
        The longest side (other than the time of a video), or the number of positions on each axis
        of the result, or a frame into which it must fit in its own proportions. A table has no
        proportions and fills the frame.
    scale : float or one per axis, optional
        Factor on the number of samples. A single factor leaves the time of a video unchanged.
    crop : dict, optional
        (low, high) of some axes, by axis number; None for an end of the domain. Samples that are
        numbered are counted as in slices: (5, 10) are the five cells from 5 on. Other axes use
        their units.
    cut : dict, optional
        Positions at which to cut some axes, by axis number. The result does not have these axes.
    rate : Fraction, optional
        Frames or samples per second, of videos and sound; by default as in the field.
    slow : float
        Factor by which time is slowed down.
    upright : bool
        Whether to draw two axes that have directions (x, y, lon, ...) as on maps: to the right and
        upwards.
    """
    cuts, crops = dict(cut or {}), dict(crop or {})
    free = _uncut(field, cuts, crops)
    order, turned = _order(field, tuple(free), upright)
    wanted = _wanted(field, list(order), _fitted(field, order, crops, size), scale)
    real("slow", slow, low=0.0, high=1e6, open_low=True, remedy="2 is half the speed.")
    request = _Request(field, cuts, crops, wanted, rate, slow)
    lines = [request.line(i) for i in range(field.dimensions)]
    axes = [line.positions for line in lines]
    _check_total(axes)
    return View(
        axes=tuple(np.sort(x)[::-1] if i in turned else x for i, x in enumerate(axes)),
        steps=tuple(line.step for line in lines),
        taps=tuple(request.taps(i, line.step) for i, line in enumerate(lines)),
        order=order,
        rate=_played(lines, rate),
    )


def _played(lines: Sequence[_Line], rate: Fraction | None) -> Fraction | None:
    """Return the rate of the time axis, or else the requested rate."""
    return next((line.rate for line in lines if line.rate is not None), rate)


# One axis ---------------------------------------------------------------------------------


@record
class _Wanted:
    """The requested number of positions, or the factor on the samples, by axis number."""

    counts: dict[int, int] = dataclass_field(default_factory=dict)
    factors: dict[int, float] = dataclass_field(default_factory=dict)

    def count(self, axis: int) -> int | None:
        """Return the number of positions of an axis; None if it is not given."""
        return self.counts.get(axis)

    def factor(self, axis: int) -> float:
        """Return the factor on the samples of an axis."""
        return self.factors.get(axis, 1.0)

    def is_unchanged(self, axis: int) -> bool:
        """Return whether an axis keeps its number of samples."""
        return self.count(axis) is None and self.factor(axis) == 1


@record
class _Line:
    """The positions on an axis, the length of a cell, and the rate at which frames are played."""

    positions: Array
    step: float
    rate: Fraction | None = None


@record
class _Request:
    """The arguments of `view`; `line` computes the positions on one axis."""

    field: Field
    cuts: dict[int, float]
    crops: dict[int, tuple[float | None, float | None]]
    wanted: _Wanted
    rate: Fraction | None
    slow: float

    @property
    def kind(self) -> str | None:
        """The kind of signal that was fitted."""
        return described(self.field).kind

    def line(self, axis: int) -> _Line:
        """Return the positions on an axis: a cut, times, the samples, or centres of new cells."""
        ends = _ends(self.field, axis, self.crops.get(axis, (None, None)))
        if axis in self.cuts:
            return _Line(np.array([float(self.cuts[axis])]), 0.0)
        if axis == time_axis(self.field) and (own := frame_rate(self.field)) is not None:
            return self._instants(axis, own)
        sampled = axis not in self.crops and self.wanted.is_unchanged(axis)
        if sampled and self.kind != "table":
            return _Line(self.field.axes[axis], self._spacing(axis))
        return self._cells(axis, *ends)

    def taps(self, axis: int, step: float) -> int:
        """Return the number of parts of a cell; each is at most as long as a cell of the samples.

        The frames of a video are not averaged, nor are scattered points, which have no cells.
        """
        film = self.kind == "video" and axis == time_axis(self.field)
        spacing = self._spacing(axis)
        averaged = step > defaults.DEFAULT.signals.averaged_above * spacing
        if film or self.kind == "table" or not averaged:
            return 1
        return math.ceil(step / spacing)

    def _spacing(self, axis: int) -> float:
        """Return the mean length of a cell of the samples."""
        low, high = self.field.domain[axis]
        return (high - low) / len(self.field.axes[axis])

    def _cells(self, axis: int, low: float, high: float) -> _Line:
        """Return the centres of equal cells from low to high, in the direction of the samples."""
        spacing = self._spacing(axis)
        natural = (high - low) / spacing * self.wanted.factor(axis)
        n = self.wanted.count(axis) or max(1, round(natural))
        alone = self.field.dimensions - len(self.cuts) == 1
        most = MOST_ON_LINE if alone else MOST_ON_AXIS
        if n > most:
            _too_large(f"{n} samples on axis {axis_names(self.field)[axis]}", f"{most:,}")
        x, samples = cell_centres(low, high, n), self.field.axes[axis]
        return _Line(x[::-1] if samples[0] > samples[-1] else x, (high - low) / n)

    def _instants(self, axis: int, own: Fraction) -> _Line:
        """Return the times of frames or samples, and the rate at which they are played.

        Consecutive times differ by 1 / (rate slow) seconds in the field. A scale multiplies the
        rate. A given number of frames sets the time between them, and the rate if none is given.
        """
        count, factor = self.wanted.count(axis), self.wanted.factor(axis)
        play = self.rate or own
        if count is None and factor != 1:
            play *= Fraction(factor).limit_denominator(10**6)
        step = 1 / float(play * Fraction(self.slow).limit_denominator(10**6))
        x, step = _instants(self.field, axis, self.crops.get(axis, (None, None)), count, step)
        if count is not None and self.rate is None:
            play = Fraction(1 / (step * self.slow)).limit_denominator(1001)
        return _Line(x, step, play)


def _parts(x: Array, step: float, n: int) -> Array:
    """Return the centres of the n parts of each cell of length ``step`` around x."""
    return x if n == 1 else (x[:, None] + cell_centres(-step / 2, step / 2, n)).reshape(-1)


def _averaged(values: Array, axis: int, n: int) -> Array:
    """Return the means of n consecutive values along an axis."""
    if n == 1:
        return values
    apart = values.reshape(*values.shape[:axis], -1, n, *values.shape[axis + 1 :])
    return apart.mean(axis=axis + 1)


# Checks and sizes -------------------------------------------------------------------------


def _too_large(got: str, most: str) -> NoReturn:
    raise problem("size", got, f"at most {most}", "Choose a smaller size or scale, or crop.")


def _check_total(axes: Sequence[Array]) -> None:
    """Refuse a view of more than `MOST_IN_ALL` samples."""
    if math.prod(map(len, axes)) > MOST_IN_ALL:
        _too_large(" x ".join(str(len(x)) for x in axes), f"{MOST_IN_ALL:,} samples in all")


def _uncut(field: Field, cuts: Mapping[int, float], crops: Mapping[int, Any]) -> list[int]:
    """Return the axes that are not cut; refuse cuts outside the field and crops of cut axes."""
    free = [i for i in range(field.dimensions) if i not in cuts]
    for i in cuts:
        _check_inside(field, "slice", i, cuts[i])
    if not free:
        raise problem(
            "slice",
            f"all {field.dimensions} axes",
            "at least one axis that is not sliced",
            "Slice fewer.",
        )
    for i in crops:
        if i not in free:
            raise problem(
                "crop",
                f"axis {axis_names(field)[i]}, which is cut",
                "another axis",
                "Crop or slice it, not both.",
            )
    return free


def _order(
    field: Field,
    free: tuple[int, ...],
    upright: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of the result in order, and the axes to flip so that they grow upwards."""
    return map_order(field, free) if upright and len(free) == 2 else (free, ())


def _wanted(field: Field, free: list[int], size: Any, scale: Any) -> _Wanted:
    """Return the requested number of positions on each axis, or the factor on its samples."""
    if size is not None and scale is not None:
        raise problem(
            "size",
            f"{describe(size)} and scale {describe(scale)}",
            "only one of the two",
            "Leave out the other.",
        )
    kind, sides = described(field).kind, _sides(field, free)
    if size is not None:
        return _Wanted(counts=_counts(field, free, sides, size))
    if scale is not None:
        return _Wanted(factors=_factors(field, free, sides, scale))
    if kind == "table" and len(free) <= 2:
        drawn = max(defaults.DEFAULT.signals.points_side, *(len(field.axes[i]) for i in sides))
        return _Wanted(counts=_counts(field, free, sides, drawn))
    return _Wanted()


def _sides(field: Field, axes: Sequence[int]) -> list[int]:
    """Return the axes of space: all but the time of a video."""
    film = time_axis(field) if described(field).kind == "video" else None
    return [i for i in axes if i != film]


def _fitted(
    field: Field,
    order: Sequence[int],
    crops: Mapping[int, tuple[float | None, float | None]],
    size: Any,
) -> Any:
    """Return the size of a picture in its own proportions inside a frame; other sizes as given."""
    sides = _sides(field, order)
    if not isinstance(size, Within) or described(field).kind == "table" or len(sides) != 2:
        return size
    own = []
    for axis in sides:
        low, high = _ends(field, axis, crops.get(axis, (None, None)))
        whole_low, whole_high = field.domain[axis]
        own.append(len(field.axes[axis]) * (high - low) / (whole_high - whole_low))
    factor = min(most / n for most, n in zip(size, own, strict=True))
    return tuple(max(1, round(n * factor)) for n in own)


def _counts(field: Field, free: list[int], sides: list[int], size: Any) -> dict[int, int]:
    """Return the number of positions, given the longest side, each side, or each axis."""
    if isinstance(size, int):
        longest = max((len(field.axes[i]) for i in sides), default=1)
        n = whole("size", size, at_least=1)
        return {i: max(1, round(len(field.axes[i]) * n / longest)) for i in sides}
    sizes = [whole("size", n, at_least=1) for n in size]
    if len(sizes) == len(sides) < len(free):  # rows and columns of a video
        return dict(zip(sides, sizes, strict=True))
    if len(sizes) != len(free):
        raise problem(
            "size", " x ".join(map(str, sizes)), f"{len(free)} numbers", _per_axis(field, free)
        )
    return dict(zip(free, sizes, strict=True))


def _factors(field: Field, free: list[int], sides: list[int], scale: Any) -> dict[int, float]:
    """Return the factor on the samples of each axis, given one for all sides or one for each."""
    factors = [scale] if isinstance(scale, int | float) else list(scale)
    for factor in factors:
        real("scale", factor, low=0.0, high=1e6, open_low=True, remedy="2 is twice as large.")
    if len(factors) not in (1, len(sides), len(free)):
        raise problem(
            "scale",
            ", ".join(f"{f:g}" for f in factors),
            f"1 or {len(free)} numbers",
            _per_axis(field, free),
        )
    where = free if len(factors) == len(free) else sides
    return dict(zip(where, factors * len(where) if len(factors) == 1 else factors, strict=False))


def _per_axis(field: Field, free: list[int]) -> str:
    return f"One per axis: {', '.join(axis_names(field)[i] for i in free)}."


def _ends(field: Field, axis: int, crop: tuple[float | None, float | None]) -> tuple[float, float]:
    """Return the ends of the rendered part of an axis, in its coordinates."""
    low, high = field.domain[axis]
    shift = 0.5 if is_numbered(field, axis) else 0.0
    ends = (
        low if crop[0] is None else crop[0] - shift,
        high if crop[1] is None else crop[1] - shift,
    )
    for end, given in zip(ends, crop, strict=True):
        if given is not None:
            _check_inside(field, "crop", axis, end, shift)
    if ends[0] >= ends[1]:
        raise problem(
            "crop",
            f"{axis_names(field)[axis]} from {ends[0] + shift:g} to {ends[1] + shift:g}",
            "a start before the end",
            "Exchange them.",
        )
    return ends


def _check_inside(field: Field, what: str, axis: int, position: float, shift: float = 0.0) -> None:
    low, high = field.domain[axis]
    slack = 1e-9 * (high - low)
    if not low - slack <= position <= high + slack:
        unit = axis_units(field)[axis]
        raise problem(
            what,
            f"{axis_names(field)[axis]} {position + shift:g}",
            f"positions from {low + shift:g} to {high + shift:g}{f' {unit}' if unit else ''}",
            "The field ends there.",
        )


def _instants(
    field: Field, axis: int, crop: tuple[float | None, float | None], count: int | None, step: float
) -> tuple[Array, float]:
    """Return ``count`` times from the first sample to the last, or times ``step`` apart."""
    x = field.axes[axis]
    low, high = field.domain[axis]
    start = float(x[0]) if crop[0] is None else max(crop[0], low)
    last = float(x[-1]) if crop[1] is None else min(crop[1], high)
    if count is not None:
        length = (last - start) + (step if crop[1] is None else 0.0)
        step = length / count
        return np.minimum(start + step * np.arange(count), high), step
    steps = (last - start) / step
    n = math.floor(steps + 1e-6) + 1 if crop[1] is None else math.ceil(steps - 1e-6)
    return np.minimum(start + step * np.arange(max(n, 1)), high), step
