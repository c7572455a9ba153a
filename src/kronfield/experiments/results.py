"""Results on disk: one line of JSON per finished job, safe against a kill at any moment."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kronfield._core.atomic import replacing

Row: TypeAlias = dict[str, Any]

# The columns of a tidy table, in this order; what else a row has comes after them.
COLUMNS = (
    "spec", "size", "item", "method", "seed", "psnr", "ssim", "seconds", "evaluation_seconds", "parameters", "epochs",
    "side", "samples", "asked", "group", "encoder", "features", "setting", "depth", "hidden", "rate", "scaled", "error",
)  # fmt: skip


class Results:
    """The rows of one experiment in a file; a line that a kill cut short is dropped when it is opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = read_rows(path)

    def __contains__(self, fingerprint: str) -> bool:
        return any(row["fingerprint"] == fingerprint and not row.get("error") for row in self.rows)

    def add(self, row: Row) -> None:
        """Append a row and have it on disk before this returns; it replaces an earlier one with the same fingerprint."""
        self.rows = [old for old in self.rows if old["fingerprint"] != row["fingerprint"]] + [row]
        text = self.path.read_bytes() if self.path.exists() else b""
        if text and not text.endswith(b"\n"):  # what a kill left: write the file anew, without it
            write_text(self.path, "".join(_line(one) for one in self.rows))
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file, the last of each fingerprint; nothing if there is no file."""
    if not path.exists():
        return []
    rows = dict[str, Row]()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut short by a kill
        if isinstance(row, dict) and "fingerprint" in row:
            rows.pop(row["fingerprint"], None)
            rows[row["fingerprint"]] = row
    return list(rows.values())


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return a short name of settings: what differs in any of them has another."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> str:
    """Return rows as CSV: given columns, or those of a tidy table and then all others."""
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
    """Return the versions of what computes."""
    found = {"python": platform.python_version()}
    for name in ("kronfield", "numpy", "scipy", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def array_threads(cores: int) -> int:
    """Return on how many threads NumPy's products run, by what the environment says."""
    told = [
        os.environ.get(name, "")
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    ]
    return next((min(cores, int(one)) for one in told if one.isdigit() and int(one) > 0), cores)


def machine() -> dict[str, Any]:
    """Return the size of the machine: processors, memory in GiB, and its kind."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    size: dict[str, Any] = {"cores": cores, "processor": platform.machine()}
    with contextlib.suppress(AttributeError, ValueError, OSError):
        size["memory_gib"] = round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        )
    return size
