"""The description of a field: names and units of its axes, its time axis, its frame rate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.labels import drawn_order
from kronfield.field import Field
from kronfield.files import Description


def described(field: Field) -> Description:
    """Return the ``info`` of a field as a `Description`; unknown entries are None."""
    return Description.from_dict(field.info)


def axis_names(field: Field) -> list[str]:
    """Return the names of the axes."""
    names = described(field).axes or []
    if len(names) == field.dimensions:
        return names
    alone = field.dimensions == 1 and field.labels.axes[0].is_time
    return [
        label.name or ("date" if alone else f"axis {i}")
        for i, label in enumerate(field.labels.axes)
    ]


def channel_names(field: Field) -> list[str]:
    """Return the names of the channels: as in the file, as in the labels, else their numbers."""
    count = field.channel_count
    for names in (described(field).channels, field.labels.channels):
        if names and len(names) == count:
            return list(names)
    if count > 1:
        return [str(i) for i in range(count)]
    return [field.labels.name or "value"]


def derivative_names(
    field: Field, names: Sequence[str], orders: Sequence[int], per: str | None = None
) -> list[str]:
    """Return names of the derivatives of channels: "height by lon", "co2 by date in seconds".

    ``per`` is the unit of time, by default a second: "co2 by date per year".
    """
    axes = list(zip(axis_names(field), field.labels.axes, orders, strict=True))
    by = " ".join(name for name, _, order in axes for _ in range(order))
    unit = ""
    if any(label.is_time and order for _, label, order in axes):
        unit = " in seconds" if per is None else f" per {per}"
    return [f"{name} by {by}{unit}" for name in names]


def axis_units(field: Field) -> list[str]:
    """Return the units of the axes; '' where an axis has no unit."""
    units = described(field).units or []
    if len(units) == field.dimensions:
        return units
    return [label.unit for label in field.labels.axes]


def axis_named(field: Field, name: str) -> int:
    """Return the index of an axis, given its name, the start of its name, or its number."""
    return named_axis(axis_names(field), name)


def named_axis(axes: Sequence[str], name: str) -> int:
    """Return the index of one of ``axes``, given its name, the start of it, or its number."""
    names = [one.lower() for one in axes]
    text = name.strip().lower()
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < len(names):
        return int(text)
    found = [i for i, one in enumerate(names) if text and one.startswith(text)]
    if len(found) != 1:
        raise problem("axis", repr(name), f"one of {', '.join(axes)}", "Or its number, from 0.")
    return found[0]


def time_axis(field: Field) -> int | None:
    """Return the time axis of a video or a sound; None for other fields."""
    return 0 if described(field).kind in ("video", "audio") else None


def frame_rate(field: Field) -> Fraction | None:
    """Return the frames or samples per second of a video or a sound; None if unknown."""
    known = described(field)
    value: Any = {"video": known.fps, "audio": known.rate}.get(known.kind or "")
    if value is None:
        return None
    try:
        return Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None


def is_numbered(field: Field, axis: int) -> bool:
    """Return whether the samples of an axis are at 0, 1, 2, ..., in the middle of their cells."""
    x = field.axes[axis]
    return bool(np.array_equal(x, np.arange(len(x)))) and field.domain[axis] == (-0.5, len(x) - 0.5)


def drawn_positions(field: Field, axis: int, positions: Array) -> Array:
    """Return positions as Matplotlib draws them: dates as datetime64, numbers unchanged."""
    label = field.labels.axes[axis]
    return label.values(positions).astype("M8[us]") if label.is_date else positions


def map_order(field: Field, order: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes as (vertical, horizontal), and the axes to flip so that they grow upwards."""
    names = [axis_names(field)[i].split("[")[0].split("(")[0].strip().lower() for i in order]
    drawn, up = drawn_order(names, order, described(field).kind == "table")
    return drawn, (drawn[0],) if up else ()
