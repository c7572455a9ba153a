"""Tables: which columns are coordinates, and which are values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield.files.description import Description, describe_signal
from kronfield.files.guard import nearest
from kronfield.files.signal import Signal

# Names that coordinates usually have; without capitals, and without a unit in brackets.
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
_USUAL |= {"row", "column", "col"}
_UNIT = re.compile(r"^(.*?)\s*[\[(]([^\])]*)[\])]\s*$")
_DATE = re.compile(
    r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2})"
)


@dataclass(frozen=True)
class Unfit:
    """Why a column cannot be used: what stands in it and where, whether that is a date, and whether else are numbers."""

    what: str
    date: bool = False
    mixed: bool = False
    remedy: str = "Correct it, or name other columns."


@dataclass(frozen=True)
class ColumnChoice:
    """The coordinate columns and the value columns."""

    coordinates: list[str]
    values: list[str]


def unfit_cell(cell: str, line: int, *, mixed: bool) -> Unfit:
    """Say why a cell of text is no number."""
    if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell):
        return Unfit(
            f"{cell!r} in line {line}", mixed=True, remedy="Write numbers with a decimal point."
        )
    return Unfit(f"{cell[:40]!r} in line {line}", bool(_DATE.match(cell)), mixed)


def name_list(argument: str, names: Any, known: Sequence[str]) -> list[str] | None:
    """Return the names that a user gave, checked; None if none were."""
    if names is None:
        return None
    if not isinstance(names, Iterable):
        raise problem(
            argument,
            describe(names),
            "names of columns",
            f"There are {', '.join(known)}.",
            TypeError,
        )
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in known:
            raise problem(
                argument,
                f"no column {name!r}",
                f"some of {', '.join(known)}",
                nearest(str(name), known) or "Name others.",
            )
    if not wanted or len(set(wanted)) < len(wanted):
        raise problem(
            argument,
            describe(names),
            "at least one column, and each once",
            f"There are {', '.join(known)}.",
        )
    return wanted


def named_columns(
    known: Sequence[str], unfit: Mapping[str, Unfit], names: Sequence[str]
) -> list[str]:
    """Return the columns to read for ``names``: those, or if none is there and the table has as many, all it has."""
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
    coordinates: list[str] | None,
    values: list[str] | None,
) -> ColumnChoice:
    """Return which columns to take.

    What the user named is taken. Else coordinates are the columns with usual names (x, y, lat,
    ...), but for the last if all have such; if none has, all numbers but the last column. Values
    are all other numbers.
    """
    _check_named(unfit, coordinates, values)
    if coordinates is None or values is None:
        _check_left_out(unfit, coordinates)
    numbers = [name for name in names if name not in unfit]
    if coordinates is None:
        coordinates = _coordinates(names, numbers, unfit, values)
    if values is None:
        values = [name for name in numbers if name not in coordinates]
    if not coordinates or not values:
        raise problem(
            "path",
            f"{path} with the columns {', '.join(names)}, of which numbers: {', '.join(numbers) or 'none'}",
            "at least one column of coordinates and one of values",
            "Name them: coordinates and columns.",
        )
    return ColumnChoice(coordinates, values)


def _check_named(
    unfit: Mapping[str, Unfit],
    coordinates: list[str] | None,
    values: list[str] | None,
) -> None:
    """Refuse named columns that are not numbers, or that are named twice."""
    for argument, named in (("coordinates", coordinates), ("columns", values)):
        for name in named or ():
            if name in unfit:
                raise _refusal(argument, name, unfit[name])
    both = set(coordinates or ()) & set(values or ())
    if both:
        raise problem(
            "columns",
            f"{', '.join(sorted(both))} as coordinate and as value",
            "either",
            "Name each once.",
        )


def _check_left_out(unfit: Mapping[str, Unfit], coordinates: list[str] | None) -> None:
    """Refuse columns that nobody named and that are not left out in silence.

    Without a column of dates, or with few cells that are not numbers, the other columns would mean
    something else.
    """
    for name, reason in unfit.items():
        if reason.mixed or (reason.date and coordinates is None):
            raise _refusal("columns" if coordinates else "coordinates", name, reason)


def _coordinates(
    names: Sequence[str], numbers: list[str], unfit: Mapping[str, Unfit], values: list[str] | None
) -> list[str]:
    """Return the coordinates if the user named none; one number is left for values, if need be."""
    if values is not None:
        free = [name for name in numbers if name not in values]
        return _with_usual_names(free) or free
    usual = _with_usual_names(numbers)
    if len(usual) < len(numbers):
        return usual or numbers[:-1]
    if len(usual) == 2 and names[-1] in unfit:  # y would be taken for the value, in place of text
        raise _refusal("columns", names[-1], unfit[names[-1]])
    return usual[:-1]


def _with_usual_names(names: Iterable[str]) -> list[str]:
    """Return the names that coordinates usually have."""
    return [name for name in names if split_unit(name)[0].lower() in _USUAL]


def table_signal(
    path: Path, choice: ColumnChoice, columns: Mapping[str, Array], raw_bytes: int
) -> Signal:
    """Return the rows that have all their coordinates."""
    points = np.stack([columns[name].astype(np.float64) for name in choice.coordinates], axis=1)
    values = np.stack([columns[name] for name in choice.values], axis=1)
    if not len(points):
        raise problem(
            "path", f"{path} with no rows", "at least one row of numbers", "Export it again."
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
            f"Taken: {', '.join([*choice.coordinates, *choice.values])}.",
        )
    channels = len(choice.values) > 1
    values = values if channels else values[:, 0]
    described = describe_signal(
        "table",
        path.name,
        values,
        axes=choice.coordinates,
        units=[split_unit(name)[1] for name in choice.coordinates],
        channels=choice.values,
        levels=None,
        dtype=values.dtype,
        raw_bytes=raw_bytes,
    )
    described = replace(described, dropped=dropped, missing=missing)
    return Signal("table", values, channels, None, points, described)


def header_names(count: int, described: Description) -> list[str]:
    """Return names for so many columns to be written: those of the table that was read, where they fit."""
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
        remedy = "Convert them to numbers first, such as seconds or days, or name other columns."
        return problem(argument, f"dates in column {name} ({reason.what})", "numbers", remedy)
    return problem(
        argument, f"no number in column {name} ({reason.what})", "numbers", reason.remedy
    )
