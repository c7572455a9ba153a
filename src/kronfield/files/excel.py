"""Reading and writing the sheets of Excel files through pandas and openpyxl."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.files.columns import (
    Unfit,
    choose,
    header_names,
    name_list,
    named_columns,
    table_signal,
)
from kronfield.files.guard import decoding, extra, nearest
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Signal

_WHAT = "a sheet of an Excel file, with names in its first row"
# The largest number of rows that a sheet holds, with the row of names.
MOST_ROWS = 1 << 20


def read_excel(path: Path, sheet: str | None, columns: Any, coordinates: Any) -> Signal:
    """Read the rows of a sheet, by default the first: points (P, D), values (P,) or (P, C)."""
    names, found, unfit = _columns(path, sheet)
    dates = [name for name, column in found.items() if column.dtype.kind == "M"]
    places = name_list("coordinates", coordinates, names)
    choice = choose(path, names, unfit, dates, places, name_list("columns", columns, names))
    taken = choice.coordinates + choice.values
    return table_signal(path, choice, found, len(found[taken[0]]) * len(taken) * 8, names)


def read_excel_columns(path: Path, sheet: str | None, names: Sequence[str]) -> dict[str, Array]:
    """Read some columns of numbers or dates, by the names in ``names``."""
    known, found, unfit = _columns(path, sheet)
    wanted = named_columns(known, unfit, names)
    return {name: found[one] for name, one in zip(names, wanted, strict=True)}


def _columns(path: Path, sheet: str | None) -> tuple[list[str], dict[str, Array], dict[str, Unfit]]:
    """Return all names, the columns of numbers or dates, and why others are neither."""
    with extra("excel"):
        import openpyxl  # noqa: F401
        import pandas
    with decoding(path, _WHAT), pandas.ExcelFile(path, engine="openpyxl") as book:
        if sheet is not None and sheet not in book.sheet_names:
            raise problem(
                "path",
                f"no sheet {sheet!r} in {path}",
                f"one of {', '.join(map(str, book.sheet_names))}",
                nearest(sheet, map(str, book.sheet_names)) or "Choose one of these names.",
            )
        table = book.parse(0 if sheet is None else sheet)
    table.columns = [str(name) for name in table.columns]
    found: dict[str, Array] = {}
    unfit: dict[str, Unfit] = {}
    for name in table.columns:
        column = table[name]
        if column.dtype.kind in "fiu":
            found[name] = column.to_numpy(dtype=np.float64)
        elif column.dtype.kind == "M":
            found[name] = column.to_numpy()
        else:
            unfit[name] = _reason(column)
    return list(table.columns), found, unfit


def _reason(column: Any) -> Unfit:
    """Return why a column of a sheet is neither numbers nor dates."""
    numeric = [isinstance(one, int | float) and one == one for one in column]
    other = [i for i, one in enumerate(column) if not isinstance(one, int | float)]
    if not other:
        return Unfit(f"type {column.dtype}")
    first = other[0]  # the header is in row 1
    return Unfit(
        f"{str(column.iloc[first])[:40]!r} in row {first + 2}", mixed=sum(numeric) >= len(other)
    )


@contextlib.contextmanager
def open_excel(path: Path, layout: Layout) -> Iterator[Put]:
    """Write rows (P,) or (P, C) to one sheet, with the same names as in a CSV file."""
    with extra("excel"):
        import openpyxl
    count = layout.need(
        "a table", 1, range(1, 1 << 14), "Write points and values as rows (P, columns)."
    )
    if layout.shape[0] >= MOST_ROWS:
        raise problem(
            "shape",
            f"{layout.shape[0]} rows",
            f"fewer than {MOST_ROWS}, which a sheet holds",
            "Write a .csv or .parquet file.",
        )
    labels = layout.column_labels(count)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("values")
    sheet.append(header_names(count, layout.description))

    def put(block: Array) -> None:
        rows = block.reshape(len(block), count)
        columns = [
            # Excel stores dates to a millisecond
            labels[i].dates(rows[:, i]).astype("M8[ms]").tolist()
            if i in labels
            else _cells(rows, i)
            for i in range(count)
        ]
        for row in zip(*columns, strict=True):
            sheet.append(row)

    yield put
    book.save(path)


def _cells(rows: Array, column: int) -> list[Any]:
    return [None if one != one else one for one in rows[:, column].tolist()]
