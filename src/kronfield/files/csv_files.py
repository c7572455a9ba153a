"""Reading and writing text tables: CSV and TSV."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from kronfield.files.csv_arrow import Dialect, read_quickly
from kronfield.files.dates import parse_dates, short_dates
from kronfield.files.guard import decoding, guarded
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Progress, Signal

_WHAT = "a text table: CSV or TSV"
_MISSING = {"", "nan", "na", "n/a", "#n/a", "null", "none"}
# The name given to a first column without a name, in which pandas and R write the row index.
INDEX = "index"
# Rows converted at a time, to bound the memory.
_BATCH = 1 << 14
# A decimal number with a comma, as in tables whose cells are separated by another character.
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
# One that may as well be thousands.
_THOUSANDS = re.compile(r"[+-]?\d{1,3},\d{3}")
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
        given = (places or []) + (values or [])
        wanted = table.names if values is None or places is None else given
        found, unfit = table.columns(wanted, given, progress)
    if INDEX in found and INDEX not in given and _is_counted(found[INDEX]):
        del found[INDEX]
        unfit[INDEX] = Unfit("the numbers of the rows")
    choice = choose(path, table.names, unfit, _dated(found), places, values)
    taken = choice.coordinates + choice.values
    raw_bytes = len(found[choice.values[0]]) * len(taken) * 8
    return table_signal(path, choice, found, raw_bytes, table.names)


def _dated(columns: Mapping[str, Array]) -> list[str]:
    """Return the names of the columns of dates."""
    return [name for name, column in columns.items() if column.dtype.kind == "M"]


def read_csv_columns(
    path: Path, names: Sequence[str], progress: Progress | None
) -> dict[str, Array]:
    """Read some columns of numbers or dates, by the names in ``names``."""
    with open(path, "rb") as file:
        table = _Table(path, file)
        wanted = named_columns(table.names, {}, names)
        found, unfit = table.columns(wanted, wanted, progress)
    named_columns(table.names, unfit, wanted)
    return {name: found[one] for name, one in zip(names, wanted, strict=True)}


class _Table:
    """The cells of a file and the names of their columns."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        # keep a reference: the wrapper closes the file when it is deleted
        self._encoding = _encoding(file)
        self._text = io.TextIOWrapper(file, self._encoding, newline="")
        comments, start = _opening(guarded(self._text, path, _WHAT))
        if not start:
            raise problem("path", f"{path} with no rows", _WHAT, "Export it again.")
        self._skipped = len(comments)
        with decoding(path, _WHAT):
            self._delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(start)
            self._rows = self._reader(chain(start, self._text))
            self._comma = self._delimiter != "," and _has_commas(start, self._delimiter)
            first = self._cells(next(self._rows))
            above = self._cells(next(self._reader(comments[-1:]), []))
        headed = any(_number(cell) is None for cell in self._pointed(first))
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

    def columns(
        self, wanted: Sequence[str], named: Sequence[str], progress: Progress | None
    ) -> tuple[dict[str, Array], dict[str, Unfit]]:
        """Return the columns of numbers or dates, and the reasons why others are neither.

        pyarrow reads most files, more than ten times as fast. The slower reader is used where
        pyarrow reads a file differently. It is also used if a column may cause an error, because
        its errors give the right line; the columns that the user ``named`` must be usable.
        """
        total = self._path.stat().st_size
        if self._is_plain and (quick := read_quickly(self._path, self._dialect, wanted)):
            found, texts = quick
            found.update(_read_texts(texts, self._dialect.skipped + 1))
            unfit = {name: found.pop(name) for name in wanted if isinstance(found[name], Unfit)}
            refused = any(reason.mixed or reason.date for reason in unfit.values())
            if not refused and not set(unfit) & set(named):
                if progress is not None:
                    progress(total, total)
                return found, unfit
        return self._slowly(wanted, progress)

    @property
    def _is_plain(self) -> bool:
        """Whether pyarrow reads the file in the same way as the slower reader."""
        return self._encoding in ("utf-8", "utf-8-sig") and self._delimiter != " "

    @property
    def _dialect(self) -> Dialect:
        skipped = self._skipped + (not self._kept)
        return Dialect(self._delimiter, skipped, self.names, "," if self._comma else ".")

    def _pointed(self, cells: Sequence[str]) -> Sequence[str]:
        """Return cells in which numbers have a decimal point."""
        if not self._comma:
            return cells
        return [
            cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell.strip()) else cell
            for cell in cells
        ]

    def _slowly(
        self, wanted: Sequence[str], progress: Progress | None
    ) -> tuple[dict[str, Array], dict[str, Unfit]]:
        places = {name: self.names.index(name) for name in wanted}
        parts: dict[str, list[Array]] = {name: [] for name in wanted}
        unfit: dict[str, Unfit] = {}
        total = self._path.stat().st_size
        for lines, rows in guarded(self._batches(), self._path, _WHAT):
            cells = list(zip(*rows, strict=True))
            for name in list(parts):  # columns that could be used so far
                column = self._pointed(cells[places[name]])
                found = _numbers_or_dates(column, lines, parts[name])
                if isinstance(found, Unfit):
                    unfit[name] = found
                    del parts[name]
                else:
                    parts[name].append(found)
            if progress is not None:
                progress(min(self._file.tell(), total), total)
        return {name: _joined(column) for name, column in parts.items()}, unfit

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
        """Return the stripped cells of a row; blanks at the end of a row are not a cell."""
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
    """Return the names of the columns.

    A column without a name gets its number as name. If only the first has none, it gets `INDEX`.
    """
    names = names if len(names) == width else [""] * width
    if width > 1 and not names[0] and all(names[1:]) and INDEX not in names:
        return [INDEX, *names[1:]]
    return [name or str(i) for i, name in enumerate(names)]


def _is_counted(column: Array) -> bool:
    """Return whether a column numbers its rows: 0, 1, 2, ..."""
    return column.dtype.kind == "f" and np.array_equal(column, np.arange(len(column)))


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


def _has_commas(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether numbers have a decimal comma in the first lines, and none a decimal point.

    If all with a comma may as well be thousands, as 1,234, they are left as text, which is refused.
    """
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    cells = [cell.strip() for row in rows for cell in row]
    if any("." in cell and _number(cell) is not None for cell in cells):
        return False
    return any(_WITH_COMMA.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in cells)


def _number(cell: str) -> float | None:
    """Return a cell as a number: NaN if it is missing, None if it is other text."""
    text = cell.strip()
    if text.lower() in _MISSING:
        return np.nan
    try:
        return None if "_" in text else float(text)  # Python reads 2024_01_01 as a number
    except ValueError:
        return None


def _numbers_or_dates(
    cells: Sequence[str], lines: Sequence[int], before: Sequence[Array]
) -> Array | Unfit:
    """Return cells as numbers or dates, or the reason why they are neither.

    They must be of the same kind as the parts of the column ``before`` them.
    """
    kinds = _kinds(before)
    after_numbers, after_dates = "f" in kinds, "M" in kinds
    numbers = _plain_numbers(cells)
    if numbers is not None and (not after_dates or np.isnan(numbers).all()):
        return numbers
    found = [_number(cell) for cell in cells]
    if None not in found and not after_dates:
        return np.array(found, dtype=np.float64)
    dates = None if after_numbers else parse_dates(cells, list(map(_is_nan, found)))
    return dates if dates is not None else _unfit(cells, lines, found, after_numbers=after_numbers)


def _is_nan(number: float | None) -> bool:
    return number is not None and bool(np.isnan(number))


def _plain_numbers(cells: Sequence[str]) -> Array | None:
    """Return cells as numbers if Python's `float` reads all of them, which is fast; else None."""
    if "_" in "".join(cells):  # Python reads 2024_01_01 as a number
        return None
    with contextlib.suppress(ValueError):
        return np.array(list(map(float, cells)))
    return None


def _unfit(
    cells: Sequence[str],
    lines: Sequence[int],
    found: Sequence[float | None],
    *,
    after_numbers: bool,
) -> Unfit:
    """Return the reason: the first cell that is text, or else the first that is not empty."""
    other = found.count(None)
    first = found.index(None) if other else next(i for i, x in enumerate(cells) if x.strip())
    numeric = sum(x is not None and bool(np.isfinite(x)) for x in found)
    return unfit_cell(cells[first], lines[first], mixed=after_numbers or numeric >= other)


def _kinds(parts: Sequence[Array]) -> set[str]:
    """Return the kinds of the parts that have an entry: "f" for numbers, "M" for dates."""
    return {part.dtype.kind for part in parts if not _is_empty(part)}


def _is_empty(part: Array) -> bool:
    return bool((np.isnat(part) if part.dtype.kind == "M" else np.isnan(part)).all())


def _joined(parts: Sequence[Array]) -> Array:
    """Join the parts of a column; in a column of dates, parts without entries become NaT."""
    dates = [part for part in parts if part.dtype.kind == "M"]
    if not dates:
        return np.concatenate([np.empty(0), *parts])
    return np.concatenate(
        [part if part.dtype.kind == "M" else np.full(len(part), "NaT", "M8[s]") for part in parts]
    )


def _read_texts(texts: Mapping[str, Iterator[list[str]]], line: int) -> dict[str, Any]:
    """Return columns that pyarrow read as text as numbers or dates, or why they are neither.

    The first row is in ``line``; lines are counted as if each row took one line.
    """
    result: dict[str, Any] = {}
    for name, batches in texts.items():
        parts: list[Array] = []
        for cells in batches:
            first = line + sum(map(len, parts))
            found = _numbers_or_dates(cells, range(first, first + len(cells)), parts)
            if isinstance(found, Unfit):
                result[name] = found
                break
            parts.append(found)
        else:
            result[name] = _joined(parts)
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
    labels = layout.column_labels(count)
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(
            file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", lineterminator="\n"
        )
        table.writerow(header_names(count, layout.description))

        def put(block: Array) -> None:
            rows = block.reshape(len(block), count)
            if not labels:
                text = rows.astype(str)
                text[text == "nan"] = ""
                table.writerows(text.tolist())
                return
            columns = [
                (short_dates(labels[i].dates(rows[:, i])) if i in labels else rows[:, i]).astype(
                    str
                )
                for i in range(count)
            ]
            for column in columns:
                column[(column == "nan") | (column == "NaT")] = ""
            table.writerows(zip(*(column.tolist() for column in columns), strict=True))

        yield put
