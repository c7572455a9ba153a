"""Atomic files: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from kronfield._core.arrays import problem


def refuse_existing(target: Path, overwrite: bool) -> None:
    """Raise an error if ``target`` is a folder, or an existing file that may not be replaced.

    A zarr array is a folder. It is replaced only if it contains a metadata file of zarr.
    """
    arrays = target.suffix.lower() == ".zarr" and any(
        (target / name).is_file() for name in (".zgroup", ".zarray", "zarr.json")
    )
    if target.is_dir() and not arrays:
        raise problem("path", target, "a file", "It is a folder: add a file name.")
    if target.suffix.lower() == ".zarr" and target.is_file():
        raise problem("path", target, "a folder of zarr", "It is a file: choose another name.")
    if target.exists() and not overwrite:
        raise problem(
            "path",
            f"{target}, which exists",
            "a new file",
            "Allow overwriting (--force), or choose another name.",
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, else remove it.

    The temporary file keeps the suffix, because many writers choose the format by the suffix. A
    writer may put a folder in its place.
    """
    target = Path(path)
    refuse_existing(target, overwrite)
    if not target.parent.is_dir():
        raise problem(
            "path", target, "a file in a folder that exists", f"Create {target.parent} first."
        )
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(6)}.part{target.suffix}")
    try:
        temporary.touch()
        # the permissions of a new file under the user's umask; the writer may change them
        mode = temporary.stat().st_mode
        yield temporary
        if temporary.is_dir():
            if target.is_dir():
                _remove_folder(target)
        else:
            temporary.chmod(mode)
        os.replace(temporary, target)
    finally:
        if temporary.is_dir():
            _remove_folder(temporary)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def begun(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield the folder in which a store is begun, beside ``path``; on success, rename it to it.

    If the work ends early, the folder stays: the next call yields it again, so that the work can go
    on. Its name is that of the store with a dot before it and ".part" within.
    """
    target = Path(path)
    refuse_existing(target, overwrite)
    if not target.parent.is_dir():
        raise problem(
            "path", target, "a folder of zarr in a folder that exists", f"Create {target.parent}."
        )
    temporary = target.with_name(f".{target.stem}.part{target.suffix}")
    yield temporary
    if target.is_dir():
        _remove_folder(target)
    os.replace(temporary, target)


def _remove_folder(path: Path) -> None:
    import shutil  # imported here, because it loads all compression modules

    shutil.rmtree(path)
