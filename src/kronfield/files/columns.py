"""Tables: the choice of coordinate columns and value columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.labels import AxisLabel
from kronfield._core.records import record
from kronfield.files.dates import looks_like_date, positions
from kronfield.files.description import Description, describe_signal
from kronfield.files.guard import nearest
from kronfield.files.signal import Signal

# Common names of coordinates, in lower case and without a unit in brackets.
_USUAL = {
    "x",
    "y",
    "z",
    "t",
    "time",
    "lat",
    "latitude",
    "lon",
    "lng",
    "long",
    "longitude",
    "easting",
    "northing",
}
_USUAL |= {"row", "column", "col", "date", "datetime", "timestamp", "year"}
_UNIT = re.compile(r"^(.*?)\s*[\[(]([^\])]*)[\])]\s*$")
# The largest number of coordinates that are guessed; more of them must be named.
MOST_GUESSED = 3


@record
class Unfit:
    """The reason why a column cannot be used.

    Attributes
    ----------
    what : str
        The entry that is not a number and its place, or the type of the column.
    date : bool
        Whether the entry is a date or time in a form that cannot be read.
    mixed : bool
        Whether the column seems to hold numbers, except for this entry and some others.
    remedy : str
        What the user can do.
    """

    what: str
    date: bool = False
    mixed: bool = False
    remedy: str = "Correct it, or name other columns."


@record
class ColumnChoice:
    """The coordinate columns and the value columns."""

    coordinates: list[str]
    values: list[str]


def unfit_cell(cell: str, line: int, *, mixed: bool) -> Unfit:
    """Return the reason why a cell of text is not a number."""
    if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell):
        return Unfit(
            f"{cell!r} in line {line}",
            mixed=True,
            remedy="Write numbers with a decimal point, and thousands without a comma.",
        )
    return Unfit(f"{cell[:40]!r} in line {line}", looks_like_date(cell), mixed)


def name_list(argument: str, names: Any, known: Sequence[str]) -> list[str] | None:
    """Check and return the names that a user gave; None if no names were given."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise problem(
            argument,
            describe(names),
            "names of columns",
            f"The columns are {', '.join(known)}.",
            TypeError,
        )
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in known:
            raise problem(
                argument,
                f"no column {name!r}",
                f"some of {', '.join(known)}",
                nearest(str(name), known) or "Choose other names.",
            )
    if not wanted or len(set(wanted)) < len(wanted):
        raise problem(
            argument,
            describe(names),
            "at least one column, each named once",
            f"The columns are {', '.join(known)}.",
        )
    return wanted


def named_columns(
    known: Sequence[str], unfit: Mapping[str, Unfit], names: Sequence[str]
) -> list[str]:
    """Return the columns to read for ``names``.

    If the table has none of these names but the same number of columns, return all its columns.
    """
    wanted = (
        list(known) if len(known) == len(names) and not set(known) & set(names) else list(names)
    )
    checked = name_list("columns", wanted, known) or []
    for name in checked:
        if name in unfit:
            raise _refusal("columns", name, unfit[name])
    return checked


def choose(
    path: Path,
    names: Sequence[str],
    unfit: Mapping[str, Unfit],
    dates: Collection[str],
    coordinates: list[str] | None,
    values: list[str] | None,
) -> ColumnChoice:
    """Return which columns to use.

    Columns that the user named are used. Otherwise the coordinates are the columns of numbers or
    dates with common names (x, y, lat, time, ...), except for the last column if all have common
    names. If no column has a common name, the coordinate is the column of ``dates``, or else the
    coordinates are all numeric columns except the last, if these are at most `MOST_GUESSED`. The
    values are all other numeric columns.
    """
    _check_named(unfit, dates, coordinates, values)
    numbers = _without(names, unfit, dates)
    usual = _with_usual_names(_without(names, unfit))
    _check_left_out(unfit, coordinates, values, usual)
    if coordinates is None:
        coordinates = _coordinates(names, numbers, dates, unfit, values)
    if values is None:
        values = _without(numbers, coordinates)
    if not coordinates or not values:
        raise problem(
            "path",
            f"{path} with the columns {', '.join(names)}, "
            f"of which numbers: {', '.join(numbers) or 'none'}",
            "at least one column of coordinates and one of values",
            _NAME_THEM,
        )
    return ColumnChoice(coordinates, values)


def _without(names: Iterable[str], *others: Collection[str]) -> list[str]:
    """Return the names that are in none of the others."""
    return [name for name in names if not any(name in other for other in others)]


_NAME_THEM = "Name them: coordinates (--coordinates A,B) and columns (--columns C)."


def _check_named(
    unfit: Mapping[str, Unfit],
    dates: Collection[str],
    coordinates: list[str] | None,
    values: list[str] | None,
) -> None:
    """Raise an error for named columns that cannot be used, or that are named twice."""
    for argument, named in (("coordinates", coordinates), ("columns", values)):
        for name in named or ():
            if name in unfit:
                raise _refusal(argument, name, unfit[name])
    for name in values or ():
        if name in dates:
            raise problem(
                "columns",
                f"dates in column {name}",
                "numbers as values",
                "Dates can be coordinates: coordinates (--coordinates).",
            )
    both = set(coordinates or ()) & set(values or ())
    if both:
        raise problem(
            "columns",
            f"{', '.join(sorted(both))} as coordinate and as value",
            "each column as either coordinate or value",
            "Name each column once.",
        )


def _check_left_out(
    unfit: Mapping[str, Unfit],
    coordinates: list[str] | None,
    values: list[str] | None,
    usual: list[str],
) -> None:
    """Raise an error for columns that cannot be used, but must not be ignored silently.

    Ignoring them would change the meaning of the other columns. They are:

    - columns of numbers with some other cells, if no values are named, or if no coordinates are
      named and the column has the common name of a coordinate;
    - columns of dates that cannot be read, if no coordinates are named, and if the column or no
      usable column has the common name of a coordinate.
    """
    for name, reason in unfit.items():
        named_usually = bool(_with_usual_names([name]))
        wanted = values is None or (coordinates is None and named_usually)
        unread = coordinates is None and (named_usually or not usual)
        if (reason.mixed and wanted) or (reason.date and unread):
            raise _refusal("columns" if coordinates else "coordinates", name, reason)


def _coordinates(
    names: Sequence[str],
    numbers: list[str],
    dates: Collection[str],
    unfit: Mapping[str, Unfit],
    values: list[str] | None,
) -> list[str]:
    """Return the coordinates if the user named none; leave one column for the values if needed."""
    free = _without(numbers, values or ())
    usual = _with_usual_names([name for name in names if name in free or name in dates])
    if not usual and dates:
        return _only_dates(names, dates)
    if usual and (values is not None or set(numbers) - set(usual)):
        return usual
    guessed = usual or free
    guessed = guessed if values is not None else guessed[:-1]
    # of columns x, y and a text, y would become the value
    if usual and len(usual) == 2 and names[-1] in unfit:
        raise _refusal("columns", names[-1], unfit[names[-1]])
    if not usual and len(guessed) > MOST_GUESSED:
        raise problem(
            "coordinates",
            f"{len(numbers)} columns of numbers: {', '.join(numbers)}",
            "the names of those that are coordinates",
            _NAME_THEM,
        )
    return guessed


def _only_dates(names: Sequence[str], dates: Collection[str]) -> list[str]:
    """Return the column of dates as the coordinate; raise an error if there are several."""
    if len(dates) > 1:
        several = ", ".join(name for name in names if name in dates)
        raise problem(
            "coordinates", f"dates in the columns {several}", "a single column of dates", _NAME_THEM
        )
    return list(dates)


def _with_usual_names(names: Iterable[str]) -> list[str]:
    """Return those names that are common for coordinates."""
    return [name for name in names if split_unit(name)[0].lower() in _USUAL]


def table_signal(
    path: Path,
    choice: ColumnChoice,
    columns: Mapping[str, Array],
    raw_bytes: int,
    names: Sequence[str] = (),
) -> Signal:
    """Return the signal of the rows that have all coordinates; ``names`` are all columns."""
    given = [columns[name] for name in choice.coordinates]
    values = np.stack([columns[name] for name in choice.values], axis=1)
    if not len(values):
        raise problem(
            "path", f"{path} with no rows", "at least one row of numbers", "Export it again."
        )
    labels = tuple(
        AxisLabel.of(
            column if column.dtype.kind != "M" else column[~np.isnat(column)], *split_unit(name)
        )
        for name, column in zip(choice.coordinates, given, strict=True)
    )
    points = np.stack(
        [
            positions(label, name, column)
            for label, name, column in zip(labels, choice.coordinates, given, strict=True)
        ],
        axis=1,
    )
    present = np.isfinite(points).all(axis=1)
    dropped = len(points) - int(present.sum())
    points, values = points[present], values[present]
    missing = int(np.isnan(values).sum())
    if missing == values.size:
        got = f"{path} with no row that has coordinates and a value"
        raise problem(
            "path",
            got,
            "at least one",
            f"Columns used: {', '.join([*choice.coordinates, *choice.values])}.",
        )
    channels = len(choice.values) > 1
    values = values if channels else values[:, 0]
    described = describe_signal(
        "table",
        path.name,
        values,
        axes=choice.coordinates,
        units=[label.unit for label in labels],
        channels=choice.values,
        levels=None,
        dtype=values.dtype,
        raw_bytes=raw_bytes,
    )
    unused = [one for one in names if one not in (*choice.coordinates, *choice.values)]
    described = replace(described, dropped=dropped, missing=missing, unused=unused or None)
    return Signal("table", values, channels, None, points, described, labels)


def header_names(count: int, described: Description) -> list[str]:
    """Return names for ``count`` columns to write: those of the source if their number matches."""
    axes, channels = described.axes or [], described.channels or []
    for names in (axes + channels, channels, axes):
        if len(names) == count and len(set(names)) == count:
            return names
    return [f"c{i}" for i in range(count)]


def split_unit(name: str) -> tuple[str, str]:
    """Split ``depth [m]`` or ``depth (m)`` into name and unit."""
    match = _UNIT.match(name)
    return (match[1].strip(), match[2].strip()) if match and match[1] else (name.strip(), "")


def _refusal(argument: str, name: str, reason: Unfit) -> Exception:
    if reason.date:
        remedy = "Write them with the year first, as 2024-02-29 12:30, or name other columns."
        return problem(
            argument,
            f"dates in column {name} that cannot be read ({reason.what})",
            "numbers, or dates with the year first",
            remedy,
        )
    return problem(
        argument, f"no number in column {name} ({reason.what})", "numbers", reason.remedy
    )
