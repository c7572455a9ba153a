"""Results on disk: one line of JSON per finished job. A kill loses at most the last line."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kronfield._core.atomic import replacing

Row: TypeAlias = dict[str, Any]

# The first columns of a tidy table, in this order; all others come after them.
COLUMNS = (
    "spec", "size", "item", "method", "seed",
    "psnr", "psnr_unclipped", "ssim", "seconds", "evaluation_seconds", "parameters", "epochs",
    "side", "samples", "asked",
    "group", "encoder", "features", "setting", "depth", "hidden", "rate", "scaled", "error",
)  # fmt: skip


class Results:
    """The rows of one experiment in a file; an incomplete last line is dropped on opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = read_rows(path)

    def __contains__(self, fingerprint: str) -> bool:
        return any(row["fingerprint"] == fingerprint and not row.get("error") for row in self.rows)

    def add(self, row: Row) -> None:
        """Append a row and flush it to disk; it replaces a row of the same fingerprint."""
        self.rows = [old for old in self.rows if old["fingerprint"] != row["fingerprint"]] + [row]
        text = self.path.read_bytes() if self.path.exists() else b""
        if text and not text.endswith(b"\n"):
            # A kill left an incomplete line: write the file again without it.
            write_text(self.path, "".join(_line(one) for one in self.rows))
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file, the last of each fingerprint; no rows if there is no file."""
    if not path.exists():
        return []
    rows = dict[str, Row]()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # incomplete, after a kill
        if isinstance(row, dict) and "fingerprint" in row:
            rows.pop(row["fingerprint"], None)
            rows[row["fingerprint"]] = row
    return list(rows.values())


def merge_rows(path: Path, others: Iterable[Path]) -> int:
    """Add the finished rows of other files to a file of results; return how many are new.

    A row replaces one with the same fingerprint, which has the same settings and data.
    """
    rows = {row["fingerprint"]: row for row in read_rows(path)}
    before = dict(rows)
    for row in (row for other in others for row in read_rows(other)):
        if not (row.get("error") and row["fingerprint"] in rows):
            rows[row["fingerprint"]] = row
    if rows != before:
        write_text(path, "".join(map(_line, rows.values())))
    done, now = (
        {key for key, row in some.items() if not row.get("error")} for some in (before, rows)
    )
    return len(now - done)


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return a hash that identifies settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def wrapped(text: str) -> str:
    """Return a paragraph of Markdown in lines of at most 100 characters."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> str:
    """Return rows as CSV, with the given columns, or with `COLUMNS` and then all others."""
    given = list(rows)
    names = list(columns) if columns is not None else [*COLUMNS]
    if columns is None:
        names += sorted({name for row in given for name in row} - set(names))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in given:
        writer.writerow({name: _cell(row.get(name)) for name in names})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return value


def versions() -> dict[str, str]:
    """Return the versions of Python and of the numerical packages."""
    found = {"python": platform.python_version()}
    for name in ("kronfield", "numpy", "scipy", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def array_threads(cores: int) -> int:
    """Return the number of threads of NumPy's matrix products, from the environment variables."""
    settings = [
        os.environ.get(name, "")
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    ]
    counts = (int(text) for text in settings if text.isdigit())
    return next((min(cores, count) for count in counts if count > 0), cores)


def machine() -> dict[str, Any]:
    """Return the number of cores, the kind of processor, and the memory in GiB."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not available on every system
        cores = os.cpu_count() or 1
    size: dict[str, Any] = {"cores": cores, "processor": platform.machine()}
    with contextlib.suppress(AttributeError, ValueError, OSError):
        size["memory_gib"] = round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        )
    return size
