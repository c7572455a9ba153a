"""One-line errors about files: missing, damaged, too large, or without an installed library."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from kronfield._core.arrays import InputError, problem
from kronfield._core.atomic import check_name, replacing
from kronfield._core.memory import memory_size

Item = TypeVar("Item")
# Libraries that report problems in their own logs, which Python prints if no handler is set.
_LOGS = ("tifffile", "nibabel.global")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return 'Did you mean ...?', or an empty text if no name is similar."""
    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"Did you mean {lower[close[0]]}?" if close else ""


def check_source(path: Path) -> None:
    """Raise an error if a path is not a file, is empty, or must not be read.

    Folders are accepted only as zarr arrays.
    """
    check_name(path)
    if path.is_dir() and path.suffix.lower() == ".zarr":
        return
    if path.is_dir():
        raise problem("path", path, "a file", "It is a folder: name a file in it.")
    if not path.exists():
        others = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = nearest(path.name, others) or "Check the name and the folder."
        raise problem("path", path, "a file that exists", remedy)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise problem("path", path, "a file that can be read", "Check its type and permissions.")
    if path.stat().st_size == 0:
        raise problem(
            "path",
            f"{path}, which is empty",
            "a file with content",
            "Copy or download it again.",
        )


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Import an optional library in this context: the error says how to install a missing one."""
    try:
        yield
    except (ImportError, OSError) as error:  # OSError: the C library of soundfile is missing
        missing = getattr(error, "name", None) or name
        raise problem(
            "path",
            f"a Python without {missing}",
            missing,
            f"Install it with: pip install 'kronfield[{name}]'",
        ) from error


@contextlib.contextmanager
def decoding(path: Path, expected: str) -> Iterator[None]:
    """Convert any exception of a decoder into an `InputError`; silence its warnings and logs.

    Decoders raise nearly any exception on damaged files. Lack of memory is no damage.
    """
    loud = [logger for logger in map(logging.getLogger, _LOGS) if not logger.disabled]
    for logger in loud:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except MemoryError as error:
        raise problem(
            "path",
            f"{path}, which needs more memory than is left",
            "a file that fits",
            "Free some memory, raise its limit, or cut the file into parts.",
        ) from error
    except Exception as error:
        raise damaged(path, _reason(path, error), expected) from error
    finally:
        for logger in loud:
            logger.disabled = False


def guarded(items: Iterable[Item], path: Path, expected: str) -> Iterator[Item]:
    """Iterate over a decoder and convert its errors; errors of the loop body stay unchanged."""
    iterator, end = iter(items), object()
    while True:
        with decoding(path, expected):
            item = next(iterator, end)
        if item is end:
            return
        yield item  # type: ignore[misc]


def damaged(path: Path, reason: str, expected: str) -> InputError:
    """Return the error for a file that cannot be read."""
    remedy = "Check that it is whole, and that its name matches its format."
    return problem("path", f"{path}, which cannot be read ({reason})", expected, remedy)


def check_file_memory(path: Path, needed: float, remedy: str) -> None:
    """Raise an error if a file needs more bytes than the machine has."""
    there = memory_size()
    if there is not None and needed > there:
        raise problem(
            "path",
            f"{path}, which needs {needed / 1e9:.1f} GB once read",
            f"at most {there / 1e9:.1f} GB of memory",
            remedy,
        )


@contextlib.contextmanager
def output(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` on success, as `replacing` does.

    Raise an error if the place cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(replacing(path, overwrite=overwrite))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise problem(
                "path",
                f"{os.fspath(path)} ({reason})",
                "a place that can be written",
                "Choose another folder or name.",
            ) from error
        yield temporary


def _reason(path: Path, error: Exception) -> str:
    """Return the first line of the message of an error, shortened if it is long."""
    message = getattr(error, "strerror", None) or str(error)
    text = (message.replace(str(path), path.name).strip().splitlines() or [""])[0]
    text = text if len(text) <= 120 else f"{text[:117]}..."
    return text or type(error).__name__
