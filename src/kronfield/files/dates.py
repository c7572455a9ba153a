"""Dates in the cells of tables."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.labels import AxisLabel

# Year first, as in 2024-02-29, 2024/2/29 12:30, 2024-02-29T12:30:00.5Z or 2024-02.
_ISO = re.compile(
    r"(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?"
    r"(?:[T ]\s*(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(Z|[+-]\d{2}:?\d{2})?)?"
)
# A time of day after a date.
_CLOCK = r"(?:\s+(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?))?"
# Day first, with points: 29.2.2024.
_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})" + _CLOCK)
# With the month in English: 29 February 2024, 29-Feb-2024 12:30, Feb 29, 2024.
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTH = rf"({'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)}|sept)\.?"
_DAY_MONTH = re.compile(rf"(\d{{1,2}})[ -]{_MONTH}[ -](\d{{4}}){_CLOCK}", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"{_MONTH}\s+(\d{{1,2}}),?\s+(\d{{4}}){_CLOCK}", re.IGNORECASE)
# Anything that looks like a date or a time of day, also where day and month can be confused.
_LIKE = re.compile(
    r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2})"
)


def looks_like_date(cell: str) -> bool:
    """Return whether a cell looks like a date or a time, whether or not `parse_dates` reads it."""
    return bool(_LIKE.match(cell))


def parse_dates(cells: Sequence[str], missing: Sequence[bool]) -> Array | None:
    """Return cells as datetime64, NaT where they are ``missing``; None if one is not a date.

    Dates are written with the year first, as day.month.year, or with the month as an English word.
    Those with a time zone are converted to UTC.

    Examples
    --------
    >>> parse_dates(["2024-02-29", "1.3.2024 12:00", "Mar 2, 2024"], [False, False, False])
    array(['2024-02-29T00:00', '2024-03-01T12:00', '2024-03-02T00:00'],
          dtype='datetime64[m]')
    """
    plain = []
    for cell, empty in zip(cells, missing, strict=True):
        text = "NaT" if empty else _plain(cell.strip())
        if text is None:
            return None
        plain.append(text)
    try:
        return np.array(plain, dtype="M8")
    except ValueError:  # such as the 30th of February
        return None


def _plain(cell: str) -> str | None:
    """Return one date as NumPy reads it; None if it is not a date."""
    zone = None
    if match := _ISO.fullmatch(cell):
        year, month, day, clock, zone = match.groups()
    elif match := _POINTS.fullmatch(cell) or _DAY_MONTH.fullmatch(cell):
        day, month, year, clock = match.groups()
    elif match := _MONTH_DAY.fullmatch(cell):
        month, day, year, clock = match.groups()
    else:
        return None
    if not month.isdigit():
        month = [name[:3] for name in _MONTHS].index(month[:3].lower()) + 1
    text = f"{year}-{int(month):02d}" + ("" if day is None else f"-{int(day):02d}")
    if clock is None:
        return text
    text += f"T{clock if clock[1] != ':' else f'0{clock}'}"
    if zone in (None, "Z"):
        return text
    try:
        return str(datetime.datetime.fromisoformat(text + zone).astimezone(datetime.UTC))[:-6]
    except ValueError:
        return None


def short_dates(dates: Array) -> Array:
    """Return dates in the coarsest unit that holds them exactly, which has the shortest text."""
    for unit in ("D", "m", "s", "ms", "us"):
        short = dates.astype(f"M8[{unit}]")
        if np.array_equal(short[~np.isnat(short)], dates[~np.isnat(dates)]):
            return short
    return dates


def positions(label: AxisLabel, name: str, column: Array) -> Array:
    """Return a column of numbers or dates as positions on an axis; NaN where it is missing."""
    if column.dtype.kind not in "mM":
        return column.astype(np.float64)
    result = np.full(len(column), np.nan)
    there = ~np.isnat(column)
    if there.any():
        result[there] = label.numbers(name, column[there])
    return result
