"""Fields of numbers as drawings with axes and a colour bar, for files of pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield.field import Field
from kronfield.plots.base import new_figure, save_figure
from kronfield.plots.fields import date_axis, draw_dots, draw_field, draw_map
from kronfield.signals.axes import axis_names, axis_units, described, drawn_positions
from kronfield.signals.export import drawn_channel
from kronfield.signals.tones import Tones
from kronfield.signals.view import View

# Dots per inch of a drawing, and its width and height in pixels unless they are given.
DPI, WIDTH, HEIGHT = 100, 1000, 750


def is_drawn(field: Field, axes: int, suffix: str) -> bool:
    """Return whether a view with this number of ``axes`` is drawn with axes and labels.

    Values of a table and values with labelled axes are drawn, on one or two axes. Colours are not,
    nor are files of TIFF, which holds numbers unchanged, and GIF.
    """
    known = described(field)
    labelled = any(label.name or label.is_time for label in field.labels.axes)
    named = known.kind == "table" or labelled
    numbers = suffix in (".tif", ".tiff", ".gif")
    return named and known.levels is None and axes in (1, 2) and not numbers


def save_drawing(
    field: Field,
    path: str | os.PathLike[str],
    where: View,
    *,
    size: tuple[int, int] | None = None,
    derivative: Sequence[int] | None = None,
    tones: Tones | None = None,
    channel: str | None = None,
    overwrite: bool = False,
) -> tuple[int, int]:
    """Draw a view of a field with axes, and a colour bar for a map; return height and width."""
    height, width = size or (HEIGHT, WIDTH)
    figure = new_figure(width / DPI, height / DPI)
    if field.dimensions == 1 and derivative is None:
        one = None if channel is None else drawn_channel(field, derivative, channel)[0]
        draw_field(field, figure.subplots(), channel=one, ends=_ends(where, 0))
    else:
        number, name = drawn_channel(field, derivative, channel, where.per)
        _draw(field, figure.subplots(), where, derivative, tones, number, name)
    save_figure(figure, path, overwrite, dpi=DPI)
    return height, width


def _draw(
    field: Field,
    ax: Any,
    where: View,
    derivative: Sequence[int] | None,
    tones: Tones | None,
    number: int,
    name: str,
) -> None:
    values = np.concatenate(list(where.blocks(field, derivative)))
    values = values[..., number] if field.has_channels else values
    texts = [_name(field, axis) for axis in where.order]
    if len(where.order) == 1:
        axis = where.order[0]
        ax.plot(drawn_positions(field, axis, where.axes[axis]), values)
        ax.set(xlabel=texts[0], ylabel=name)
        date_axis(ax.xaxis, field.labels.axes[axis], numbers=False)
        return
    down, across = where.order
    rows = where.axes[down]
    up = bool(rows[0] > rows[-1])
    ends = (_ends(where, across), _ends(where, down))
    lengths = [abs(high - low) for low, high in ends]
    times = any(field.labels.axes[axis].is_time for axis in where.order)
    draw_map(
        ax,
        values,
        (drawn_positions(field, across, ends[0]), drawn_positions(field, down, ends[1])),
        up=up,
        equal=not times and max(lengths) <= 6 * min(lengths),
        name=name,
        limits=None if tones is None else (tones.black, tones.white),
    )
    places: Any = getattr(field.places, "positions", None)
    if places is not None and field.dimensions == 2 and len(places):
        draw_dots(ax, *(drawn_positions(field, i, places[:, i]) for i in (across, down)))
    ax.set(xlabel=texts[1], ylabel=texts[0])
    date_axis(ax.xaxis, field.labels.axes[across])
    date_axis(ax.yaxis, field.labels.axes[down])


def _ends(where: View, axis: int) -> Array:
    """Return the outer ends of the first and the last cell of an axis, in increasing order."""
    x, half = np.sort(where.axes[axis]), where.steps[axis] / 2
    return np.array([x[0] - half, x[-1] + half])


def _name(field: Field, axis: int) -> str:
    """Return the name of an axis with its unit."""
    name, unit = axis_names(field)[axis], axis_units(field)[axis]
    dated = field.labels.axes[axis].is_time
    return name if dated or not unit or "[" in name or "(" in name else f"{name} [{unit}]"
