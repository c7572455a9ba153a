"""Reading and writing text tables: CSV and TSV."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.files.columns import (
    Unfit,
    choose,
    header_names,
    name_list,
    named_columns,
    table_signal,
    unfit_cell,
)
from kronfield.files.guard import decoding, guarded
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Progress, Signal

_WHAT = "a text table: CSV or TSV"
_MISSING = {"", "nan", "na", "n/a", "#n/a", "null", "none"}
# Rows converted at a time, to bound the memory.
_BATCH = 1 << 14
# The number of lines from which the delimiter is determined.
_FIRST = 20
_MARKS = {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}


def read_csv(path: Path, columns: Any, coordinates: Any, progress: Progress | None) -> Signal:
    """Read the rows of a table: points (P, D), and values (P,) or (P, C)."""
    with open(path, "rb") as file:
        table = _Table(path, file)
        values, places = (
            name_list("columns", columns, table.names),
            name_list("coordinates", coordinates, table.names),
        )
        wanted = table.names if values is None or places is None else places + values
        numbers, unfit = table.numbers(wanted, progress)
    choice = choose(path, table.names, unfit, places, values)
    rows = len(numbers[choice.values[0]])
    return table_signal(path, choice, numbers, rows * len(choice.coordinates + choice.values) * 8)


def read_csv_columns(path: Path, names: Sequence[str], progress: Progress | None) -> Array:
    """Read some columns, (P, len(names))."""
    with open(path, "rb") as file:
        table = _Table(path, file)
        wanted = named_columns(table.names, {}, names)
        numbers, unfit = table.numbers(wanted, progress)
    named_columns(table.names, unfit, wanted)
    return np.stack([numbers[name] for name in wanted], axis=1)


class _Table:
    """The cells of a file and the names of their columns."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        # keep a reference: the wrapper closes the file when it is deleted
        self._text = io.TextIOWrapper(file, _encoding(file), newline="")
        comments, start = _opening(guarded(self._text, path, _WHAT))
        if not start:
            raise problem("path", f"{path} with no rows", _WHAT, "Export it again.")
        self._skipped = len(comments)
        with decoding(path, _WHAT):
            self._delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(start)
            self._rows = self._reader(chain(start, self._text))
            first = self._cells(next(self._rows))
            above = self._cells(next(self._reader(comments[-1:]), []))
        headed = any(_number(cell) is None for cell in first)
        self._kept = [] if headed else [first]
        self.names = _header(first if headed else above, len(first))
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise problem(
                "path",
                f"{path} with several columns called {', '.join(sorted(twice))}",
                "names that differ",
                "Rename them.",
            )

    def numbers(
        self, wanted: Sequence[str], progress: Progress | None
    ) -> tuple[dict[str, Array], dict[str, Unfit]]:
        """Return the numeric columns, and the reasons why the others are not numeric."""
        places = {name: self.names.index(name) for name in wanted}
        parts: dict[str, list[Array]] = {name: [np.empty(0)] for name in wanted}
        unfit: dict[str, Unfit] = {}
        total = self._path.stat().st_size
        for lines, rows in guarded(self._batches(), self._path, _WHAT):
            cells = list(zip(*rows, strict=True))
            for name in list(parts):  # columns that were numeric so far
                found = _floats(cells[places[name]], lines)
                if isinstance(found, Unfit):
                    earlier = any(np.isfinite(part).any() for part in parts.pop(name))
                    unfit[name] = replace(found, mixed=found.mixed or earlier)
                else:
                    parts[name].append(found)
            if progress is not None:
                progress(min(self._file.tell(), total), total)
        return {name: np.concatenate(column) for name, column in parts.items()}, unfit

    def _batches(self) -> Iterator[tuple[list[int], list[list[str]]]]:
        """Yield line numbers and rows of equal length, some thousands at a time."""
        rows = self._lines()
        while batch := list(islice(rows, _BATCH)):
            yield [line for line, _ in batch], [row for _, row in batch]

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        width = len(self.names)
        for row in self._kept:
            yield self._skipped + self._rows.line_num, row
        for row in self._rows:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if len(row) != width:
                row = self._cells(row)
            if len(row) != width:
                line = self._skipped + self._rows.line_num
                raise problem(
                    "path",
                    f"{self._path} with {len(row)} cells in line {line}",
                    f"{width}, as in the first line",
                    "Correct that line.",
                )
            yield self._skipped + self._rows.line_num, row

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self._delimiter, skipinitialspace=True)

    def _cells(self, row: Sequence[str]) -> list[str]:
        """Return the cells of a row without blanks; blanks at the end of a row are not a cell."""
        cells = [cell.strip() for cell in row]
        return cells[:-1] if self._delimiter == " " and cells and not cells[-1] else cells


def _opening(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the comments before a table, without their marks, and its first lines."""
    comments: list[str] = []
    start: list[str] = []
    for line in lines:
        if not start and (not line.strip() or line.lstrip().startswith("#")):
            comments.append(line.lstrip("# \t"))
        else:
            start.append(line)
        if len(start) == _FIRST:
            break
    return comments, start


def _header(names: Sequence[str], width: int) -> list[str]:
    """Return the names of the columns; a column without a name is called by its number."""
    names = names if len(names) == width else [""] * width
    return [name or str(i) for i, name in enumerate(names)]


def _encoding(file: BinaryIO) -> str:
    """Return the encoding: by the byte order mark, or UTF-8 if the start is valid, or Latin-1."""
    start = file.read(1 << 16)
    file.seek(0)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that splits all first lines into the same number of cells, above one.

    Rare delimiters are tried first: a comma may be part of a number, and a blank of any text.
    """
    for delimiter in ("\t", ";", "|", ",", " "):
        rows = filter(
            None,
            csv.reader(
                (line.strip(" ") for line in lines), delimiter=delimiter, skipinitialspace=True
            ),
        )
        counts = {len(row) for row in rows}
        if len(counts) == 1 and counts != {1}:
            return delimiter
    return ","


def _number(cell: str) -> float | None:
    """Return a cell as a number: NaN if it is missing, None if it is other text."""
    text = cell.strip()
    if text.lower() in _MISSING:
        return np.nan
    try:
        return None if "_" in text else float(text)  # Python reads 2024_01_01 as a number
    except ValueError:
        return None


def _floats(cells: Sequence[str], lines: Sequence[int]) -> Array | Unfit:
    """Return cells as numbers, or the reason why they are not numbers."""
    if "_" not in "".join(cells):
        with contextlib.suppress(ValueError):
            return np.array(list(map(float, cells)))
    result = np.empty(len(cells))
    for i, cell in enumerate(cells):
        number = _number(cell)
        if number is None:
            numbers = any(_number(other) is not None and other.strip() for other in cells)
            return unfit_cell(cell, lines[i], mixed=numbers)
        result[i] = number
    return result


@contextlib.contextmanager
def open_csv(path: Path, layout: Layout) -> Iterator[Put]:
    """Write rows (P,) or (P, C) under a header; NaN becomes an empty cell.

    The columns have the names of the axes and channels in ``info``, or of its channels or axes
    alone, depending on their number.
    """
    count = layout.need(
        "a table", 1, range(1, 1 << 20), "Write points and values as rows (P, columns)."
    )
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(
            file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n"
        )
        table.writerow(header_names(count, layout.description))

        def put(block: Array) -> None:
            text = block.reshape(len(block), count).astype(str)
            text[text == "nan"] = ""
            table.writerows(text.tolist())

        yield put
