"""What can be wrong with a file, told in one line: missing, damaged, too large, or its library not installed."""

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
from kronfield._core.atomic import replacing

Item = TypeVar("Item")
# Libraries that report trouble in their own logs, which Python prints where nobody listens.
_LOGS = ("tifffile", "nibabel.global")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return 'Did you mean ...?', or nothing if no name is near."""
    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"Did you mean {lower[close[0]]}?" if close else ""


def check_source(path: Path) -> None:
    """Refuse a path that is no file, is empty, or may not be read."""
    if path.is_dir():
        raise problem("path", path, "a file", "It is a folder: name a file in it.")
    if not path.exists():
        others = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = nearest(path.name, others) or "Check the name and the folder."
        raise problem("path", path, "a file that exists", remedy)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise problem(
            "path", path, "a file that can be read", "Check what it is, and its permissions."
        )
    if path.stat().st_size == 0:
        raise problem(
            "path",
            f"{path}, which is empty",
            "a file with something in it",
            "Copy or download it again.",
        )


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Import an optional library in here: if it is missing, the error says how to install it."""
    try:
        yield
    except (ImportError, OSError) as error:  # OSError: a library of C that soundfile looks for
        missing = getattr(error, "name", None) or name
        raise problem(
            "path",
            f"a Python without {missing}",
            missing,
            f"Install it with: pip install 'kronfield[{name}]'",
        ) from error


@contextlib.contextmanager
def decoding(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever a decoder raises or warns about a file into one error of ours.

    Decoders meet bytes that nobody wrote on purpose, and raise nearly anything.
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
    except Exception as error:
        raise damaged(path, _reason(path, error), expected) from error
    finally:
        for logger in loud:
            logger.disabled = False


def guarded(items: Iterable[Item], path: Path, expected: str) -> Iterator[Item]:
    """Iterate over what a decoder yields; its errors become ours, those of the loop's body stay as they are."""
    iterator, end = iter(items), object()
    while True:
        with decoding(path, expected):
            item = next(iterator, end)
        if item is end:
            return
        yield item  # type: ignore[misc]


def damaged(path: Path, reason: str, expected: str) -> InputError:
    """Return the error for a file that cannot be read."""
    remedy = "Check that it is whole, and of the format that its name says."
    return problem("path", f"{path}, which cannot be read ({reason})", expected, remedy)


def check_memory(path: Path, needed: float, remedy: str) -> None:
    """Refuse what takes more bytes than the machine has."""
    there = memory_size()
    if there is not None and needed > there:
        raise problem(
            "path",
            f"{path}, which takes {needed / 1e9:.1f} GB once read",
            f"at most {there / 1e9:.1f} GB of memory",
            remedy,
        )


def memory_size() -> int | None:
    """Return the bytes of memory of this machine, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


@contextlib.contextmanager
def output(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` on success, like `replacing`; refuse places that cannot be written."""
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
    """Return the first line of what an error says, not too long."""
    told = getattr(error, "strerror", None) or str(error)
    text = (told.replace(str(path), path.name).strip().splitlines() or [""])[0]
    text = text if len(text) <= 120 else f"{text[:117]}..."
    return text or type(error).__name__
