"""Drawings of a field by its kind: a line, a map, a picture, or slices of a volume."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, InputError, describe, problem
from kronfield._core.frames import cell_centres
from kronfield._core.labels import DURATION, AxisLabel, drawn_order
from kronfield.files.description import Description
from kronfield.plots.base import COLOURS, DASHES, shown_figure, tidy

if TYPE_CHECKING:
    from kronfield.field import Field

# Positions on a line, and on the longer side of a map or slice.
LINE, SIDE = 800, 400
# Most dots of data on a map, and most marks below a line, so that a drawing stays readable.
DOTS, MARKS = 20_000, 200
# The dash and colour of each line of a field with several channels; more are not drawn.
STYLES = tuple(itertools.product(DASHES[:2], COLOURS))
# A map is drawn in its own proportions unless one side is more than this times the other.
LONGEST_SIDE = 6.0


def draw_field(
    field: Field,
    ax: Any = None,
    *,
    channel: int | str | None = None,
    data: Any = None,
    band: bool = True,
    size: int | None = None,
    beyond: float | None = None,
    figure: Any = None,
    ends: Array | None = None,
) -> Any:
    """Draw a field and return its axes; see `Field.plot`. ``ends`` are those of a line."""
    if field.is_complex:
        raise problem(
            "plot", "a field of complex values", "real values", "Fit the real part: values.real."
        )
    job = _Drawing(field, channel, data, band, size, beyond)
    if field.dimensions == 1:
        return job.line(_axes(ax, figure), 0, ends)
    if field.dimensions == 2:
        return job.map(_axes(ax, figure), (0, 1))
    if ax is not None and np.size(ax) != job.panels:
        raise problem(
            "ax",
            describe(ax),
            f"{job.panels} axes, for {field.dimensions} dimensions",
            "Leave it out, or pass those of plt.subplots(1, 3).",
        )
    places = np.ravel(ax) if ax is not None else job.row(figure)
    if field.dimensions == 3:
        for one, cut in zip(places, range(3), strict=True):
            shown = [i for i in range(3) if i != cut]
            job.map(one, (shown[0], shown[1]))
    else:
        for i, one in enumerate(places):
            job.line(one, i)
    return places


def _axes(ax: Any, figure: Any) -> Any:
    if ax is not None:
        return ax
    return (shown_figure() if figure is None else figure).subplots()


class _Drawing:
    """One channel of a field, with the names and units of its axes and values."""

    def __init__(
        self,
        field: Field,
        channel: Any,
        data: Any,
        band: bool,
        size: int | None,
        beyond: float | None,
    ) -> None:
        self.field, self.band, self.beyond = field, band, beyond
        self.line_size, self.side = size or LINE, size or SIDE
        self.about = Description.from_dict(field.info)
        names = self.about.channels or field.labels.channels or ()
        self.names = list(names) if len(names) == field.channel_count else []
        self.colours = channel is None and self._is_picture()
        self.all, self.channel = channel is None, self._chosen(channel)
        self.data = None if data is None else self._data(data)
        self.middle = [(low + high) / 2 for low, high in field.domain]

    def _is_picture(self) -> bool:
        """Return whether the channels are colours from 0 to 1."""
        kind, D = self.about.kind, self.field.dimensions
        count = self.field.channel_count
        if kind in ("image", "video"):
            return count in (1, 3, 4)
        unnamed = not self.names and self.field.labels.channels is None
        if D != 2 or count not in (3, 4) or not unnamed:
            return False
        some = self.field.on_grid((8, 8))
        return bool(some.min() > -0.2 and some.max() < 1.2)

    def _chosen(self, channel: Any) -> int:
        count = self.field.channel_count
        if channel is None:
            return 0
        if isinstance(channel, str) and channel in self.names:
            return self.names.index(channel)
        if isinstance(channel, int | np.integer) and -count <= channel < count:
            return int(channel) % count
        known = f"one of {', '.join(self.names)}" if self.names else f"0 to {count - 1}"
        raise problem("channel", repr(channel), known, "Channels are counted from 0.")

    @property
    def panels(self) -> int:
        """The number of panels of a field on three or more axes."""
        return 3 if self.field.dimensions == 3 else self.field.dimensions

    def row(self, figure: Any) -> list[Any]:
        """Return new axes for the panels, in rows of at most three."""
        wide = min(3, self.panels)
        deep = math.ceil(self.panels / wide)
        if figure is None:
            figure = shown_figure(4.2 * wide, 3.4 * deep)
        return [figure.add_subplot(deep, wide, i + 1) for i in range(self.panels)]

    # Names and positions ------------------------------------------------------------------

    def label(self, axis: int) -> AxisLabel:
        return self.field.labels.axes[axis]

    def axis_name(self, axis: int) -> str:
        """Return the name of an axis with its unit."""
        label, names = self.label(axis), self.about.axes or ()
        units = self.about.units or ()
        unnamed = "date" if label.is_date else f"axis {axis}"
        name = label.name or (names[axis] if axis < len(names) else unnamed)
        unit = label.unit or (units[axis] if axis < len(units) else "")
        if label.calendar:
            return f"{name} [s since {label.text(0.0)}]"
        return name if label.is_date or not unit or f"[{unit}]" in name else f"{name} [{unit}]"

    @property
    def value_name(self) -> str:
        """The name of the values, with their unit."""
        labels = self.field.labels
        name = self.names[self.channel] if self.names else labels.name or ""
        unit = labels.attrs.get("units")
        return f"{name} [{unit}]".strip() if unit else name

    def places(self, axis: int, positions: Any) -> Array:
        """Return positions as Matplotlib takes them: numbers, or dates."""
        label = self.label(axis)
        if not label.is_date:
            first = label.epoch if label.kind == DURATION else (0, 0)
            return np.asarray(positions, dtype=np.float64) + first[0] + first[1] / 1e18
        return label.values(positions).astype("M8[us]")

    def at(self, axes: Sequence[int], lines: Sequence[Array]) -> list[Array]:
        """Return positions on all axes: ``lines`` on some, the middle of the others."""
        where = [np.array([x]) for x in self.middle]
        for axis, line in zip(axes, lines, strict=True):
            where[axis] = line
        return where

    def values(self, where: Sequence[Array], *, colours: bool = False) -> Array:
        """Return the values of the drawn channel on a grid, without axes of length 1."""
        found = self.field.on_grid(list(where), outside="clamp", beyond=self.beyond)
        if colours and self.beyond is not None:
            found = np.nan_to_num(found, nan=1.0)  # white
        if self.field.has_channels and not colours:
            found = found[..., self.channel]
        kept = tuple(len(x) for x in where if len(x) > 1)
        return found.reshape(*kept, *(found.shape[self.field.dimensions :] if colours else ()))

    def _data(self, data: Any) -> tuple[Array, Array]:
        if not isinstance(data, list | tuple) or len(data) != 2:
            raise problem("data", describe(data), "(points, values)", "Pass both, as a pair.")
        points, values = data
        X, _ = self.field.located(points) if self.field.dimensions > 1 else self._on_line(points)
        y = np.asarray(values, dtype=np.float64)
        y = y[:, self.channel] if y.ndim == 2 else y
        if len(X) != len(y):
            raise problem(
                "data",
                f"{len(X)} points and {len(y)} values",
                "equal numbers of points and values",
                "Pass (points, values).",
            )
        return X, y

    def _on_line(self, points: Any) -> tuple[Array, None]:
        label = self.label(0)
        numbers = label.numbers("data", points) if np.ndim(points) == 1 else None
        return (self.field.located(points)[0] if numbers is None else numbers[:, None]), None

    # Lines --------------------------------------------------------------------------------

    def line(self, ax: Any, axis: int, ends: Array | None = None) -> Any:
        """Draw the field along one axis, through the middle of the others, or between two ends."""
        low, high = self.field.domain[axis] if ends is None else ends
        x = np.linspace(low, high, self.line_size)
        ticks = self.places(axis, x)
        several = self.all and self.field.dimensions == 1 and self.field.channel_count > 1
        count = self.field.channel_count if several else 1
        picked = range(min(len(STYLES), count)) if several else [self.channel]
        error = self._errors(axis, x) if self.band else None
        for (dash, colour), channel in zip(STYLES, picked, strict=False):
            self.channel = channel
            y = self.values(self.at([axis], [x]))
            name = self.names[channel] if self.names else f"channel {channel}"
            label = name if several else "field"
            ax.plot(ticks, y, color=colour, linestyle=dash, linewidth=1.4, label=label)
            if error is not None:
                spread = 2 * (error[:, channel] if error.ndim == 2 else error)
                words = None if several else "twice the standard error"
                ax.fill_between(
                    ticks, y - spread, y + spread, color=colour, alpha=0.2, linewidth=0, label=words
                )
        if self.field.dimensions == 1:
            self._line_data(ax)
            if ends is not None:
                ax.set_xlim(ticks[0], ticks[-1])
        ax.set(xlabel=self.axis_name(axis), ylabel="" if several else self.value_name)
        if several:
            more = f"{len(STYLES)} of {count}" if count > len(STYLES) else None
            ax.legend(
                frameon=False, fontsize=9, title=more, loc="center left", bbox_to_anchor=(1, 0.5)
            )
        elif error is not None or self.data is not None:
            ax.legend(frameon=False, fontsize=9)
        date_axis(ax.xaxis, self.label(axis), numbers=False)
        tidy(ax)
        return ax

    def _errors(self, axis: int, x: Array) -> Array | None:
        """Return standard errors along a line; None if the field has none."""
        points = np.repeat(np.array([self.middle]), len(x), axis=0)
        points[:, axis] = x
        try:
            return self.field.standard_error(points, outside="clamp")
        except InputError:
            return None

    def _line_data(self, ax: Any) -> None:
        """Draw the data that were given, or marks where there are samples."""
        if self.data is not None:
            x, y = self.data
            ax.plot(self.places(0, x[:, 0]), y, ".", color=COLOURS[7], markersize=3, label="data")
            return
        x = self._positions()[:, 0]
        if len(x) <= MARKS:
            low = ax.get_ylim()[0]
            ax.plot(self.places(0, x), np.full(len(x), low), "|", color=COLOURS[7], alpha=0.6)

    def _positions(self) -> Array:
        """Return the positions of the data; none if the field does not hold them."""
        places = self.field.places
        known = getattr(places, "positions", None)
        if known is not None:
            return np.asarray(known)
        return self.field.axes[0][:, None] if self.field.dimensions == 1 else np.empty((0, 2))

    # Maps ---------------------------------------------------------------------------------

    def map(self, ax: Any, shown: tuple[int, int]) -> Any:
        """Draw the field on two axes, through the middle of the others."""
        names = [self.axis_name(i).split("[")[0].split("(")[0].strip().lower() for i in shown]
        scattered = hasattr(self.field.places, "positions")
        is_cloud = scattered or self.about.kind == "table"
        (down, across), up = drawn_order(names, shown, is_cloud)
        ends = {axis: self.field.domain[axis] for axis in shown}
        lengths = {axis: high - low for axis, (low, high) in ends.items()}
        alike = max(lengths.values()) <= LONGEST_SIDE * min(lengths.values())
        counts = self._counts(shown, lengths, alike)
        first, second = sorted((down, across))
        lines = {axis: cell_centres(*ends[axis], counts[axis]) for axis in shown}
        values = self.values(
            self.at([first, second], [lines[first], lines[second]]), colours=self.colours
        )
        values = values.swapaxes(0, 1) if down > across else values
        values = values[::-1] if up else values
        image = draw_map(
            ax,
            values,
            (self.places(across, ends[across]), self.places(down, ends[down])),
            up=up,
            equal=alike and not self._dates(shown),
            colours=self.colours,
            name=self.value_name,
        )
        if self.field.dimensions == 2:
            self._map_data(ax, image, across, down)
        ax.set(xlabel=self.axis_name(across), ylabel=self.axis_name(down))
        cut = [i for i in range(self.field.dimensions) if i not in shown]
        if cut:
            where = ", ".join(
                f"{self.axis_name(i)} {self.label(i).text(self.middle[i])}" for i in cut
            )
            ax.set_title(where, fontsize=10)
        date_axis(ax.xaxis, self.label(across))
        date_axis(ax.yaxis, self.label(down))
        return ax

    def _dates(self, shown: Sequence[int]) -> bool:
        return any(self.label(i).is_time for i in shown)

    def _counts(
        self, shown: Sequence[int], lengths: dict[int, float], alike: bool
    ) -> dict[int, int]:
        """Return the number of positions on each axis."""
        if not alike or self._dates(shown):
            return dict.fromkeys(shown, self.side)
        longest = max(lengths.values())
        return {axis: max(2, round(self.side * lengths[axis] / longest)) for axis in shown}

    def _map_data(self, ax: Any, image: Any, across: int, down: int) -> None:
        """Draw the data that were given in the colours of the map, or dots where points are."""
        X, colour = (self._positions(), None) if self.data is None else self.data
        x, y = (self.places(axis, X[:, axis]) for axis in (across, down))
        if len(X):
            draw_dots(ax, x, y, colour, image)


def draw_dots(ax: Any, x: Array, y: Array, values: Array | None = None, image: Any = None) -> None:
    """Draw dots on a map: small black ones, or ``values`` in the colours of the ``image``."""
    step = math.ceil(len(x) / DOTS)
    style: dict[str, Any] = {"color": "black", "alpha": 0.5, "linewidths": 0}
    if values is not None:
        style = {"c": values[::step], "cmap": image.cmap, "norm": image.norm}
        style |= {"edgecolors": "black", "linewidths": 0.3}
    size = float(np.clip(3000 / len(x), 0.6, 12 if values is None else 40))
    limits = ax.get_xlim(), ax.get_ylim()
    ax.scatter(_numbers(x[::step]), _numbers(y[::step]), s=size, **style)
    ax.set(xlim=limits[0], ylim=limits[1])


def draw_map(
    ax: Any,
    values: Array,
    ends: tuple[Array, Array],
    *,
    up: bool,
    equal: bool,
    colours: bool = False,
    name: str = "",
    limits: tuple[float, float] | None = None,
) -> Any:
    """Draw values (rows, columns) with a colour bar, or colours (rows, columns, 3) without.

    ``ends`` are the ends of the horizontal and the vertical axis, numbers or dates. With ``up``,
    the first row is at the top, where the vertical axis ends.
    """
    left, right = _numbers(ends[0])
    low, high = _numbers(ends[1])
    least, most = (0.0, 1.0) if colours else (None, None) if limits is None else limits
    image = ax.imshow(
        np.clip(values.squeeze(), 0, 1) if colours else values,
        cmap="gray" if colours else "viridis",
        vmin=least,
        vmax=most,
        extent=(left, right, low, high) if up else (left, right, high, low),
        aspect="equal" if equal else "auto",
        interpolation="nearest",
    )
    if not colours:
        # as high as the map, and as wide beside a high map as beside a wide one
        part = max(1.0, abs((high - low) / (right - left))) if equal else 1.0
        ax.figure.colorbar(image, cax=ax.inset_axes([1 + 0.025 * part, 0, 0.03 * part, 1]))
        ax.child_axes[-1].set_ylabel(name)
    return image


def _numbers(places: Array) -> Array:
    """Return places as the numbers of Matplotlib: days since 1970 for dates."""
    if places.dtype.kind != "M":
        return places
    from matplotlib.dates import date2num

    return np.asarray(date2num(places))


def date_axis(axis: Any, label: AxisLabel, *, numbers: bool = True) -> None:
    """Label an axis with dates, if it has dates. ``numbers``: whether it was drawn with numbers."""
    if not label.is_date:
        return
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if numbers:
        axis.axis_date()
    locator: Any = AutoDateLocator()
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))
