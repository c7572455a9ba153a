"""Atomic files: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path

from kronfield._core.arrays import InputError, problem

# Bytes of a name that file systems allow.
LONGEST_NAME = 255
# The names of temporary files: a tag of this machine, the process, a random number.
_PARTIAL = re.compile(r"\..*\.([0-9a-f]{8})-(\d+)-[0-9a-f]{12}\.part(\.[^/]*)?")


def check_name(target: Path) -> None:
    """Raise an error if the name of a file is longer than file systems allow."""
    size = len(os.fsencode(target.name))
    if size > LONGEST_NAME:
        raise problem(
            "path",
            f"a name of {size} bytes, {target.name[:40]}...",
            f"at most {LONGEST_NAME} bytes",
            "Choose a shorter name.",
        )


def refuse_existing(target: Path, overwrite: bool) -> None:
    """Raise an error if ``target`` is a folder, or an existing file that may not be replaced.

    A zarr array is a folder. It is replaced only if it contains a metadata file of zarr.
    """
    check_name(target)
    arrays = target.suffix.lower() == ".zarr" and any(
        (target / name).is_file() for name in (".zgroup", ".zarray", "zarr.json")
    )
    if target.is_dir() and not arrays:
        raise problem("path", target, "a file", "It is a folder: add a file name.")
    if target.suffix.lower() == ".zarr" and target.is_file():
        raise problem("path", target, "a folder of zarr", "It is a file: choose another name.")
    if target.exists() and not overwrite:
        raise _exists(target)


def _exists(target: Path) -> InputError:
    return problem(
        "path",
        f"{target}, which exists",
        "a new file",
        "Allow overwriting (--force), or choose another name.",
    )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` on success, else remove it.

    The temporary file keeps the suffix, because many writers choose the format by the suffix. A
    writer may put a folder in its place. A link stays, and what it leads to is replaced. Without
    ``overwrite``, a file that another process put there in the meantime stays too, and an error is
    raised. Temporary files of processes that were killed are removed from the folder.
    """
    target = Path(path)
    refuse_existing(target, overwrite)
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    if not target.parent.is_dir():
        raise problem(
            "path", target, "a file in a folder that exists", f"Create {target.parent} first."
        )
    _sweep(os.path.abspath(target.parent), os.getpid())
    temporary = target.with_name(_partial_name(target))
    try:
        temporary.touch()
        # the permissions of a new file under the user's umask; the writer may change them
        mode = temporary.stat().st_mode
        yield temporary
        if not temporary.is_dir():
            temporary.chmod(mode)
        if not overwrite:
            _put_new(temporary, target)
        else:
            if temporary.is_dir() and target.is_dir():
                _remove_folder(target)
            os.replace(temporary, target)
    finally:
        if temporary.is_dir():
            _remove_folder(temporary)
        temporary.unlink(missing_ok=True)


def _put_new(temporary: Path, target: Path) -> None:
    """Give a whole file or folder its name, unless the name is taken by now."""
    try:
        if temporary.is_dir():
            refuse_existing(target, overwrite=False)
            os.rename(temporary, target)  # fails if there is a folder with content by now
            return
        try:
            os.link(temporary, target)  # fails if there is a file by now
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.replace(temporary, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise _exists(target) from error
        raise


@functools.cache
def _machine() -> str:
    """Return a tag of the machine and the container, within which processes have numbers."""
    import platform

    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"


def _partial_name(target: Path) -> str:
    """Return the name of a new temporary file, which says whose it is."""
    rest = f".{_machine()}-{os.getpid()}-{secrets.token_hex(6)}.part{target.suffix}"
    stem = os.fsencode(target.stem)[: LONGEST_NAME - 1 - len(os.fsencode(rest))]
    return f".{stem.decode(errors='ignore')}{rest}"


@functools.cache
def _sweep(folder: str, _process: int) -> None:
    """Remove what killed processes of this machine left in a folder; once per process."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _PARTIAL.fullmatch(entry.name)
            if found is None or found[1] != _machine() or _is_alive(int(found[2])):
                continue
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    _remove_folder(Path(entry.path))
                else:
                    os.unlink(entry.path)


def _is_alive(process: int) -> bool:
    """Return whether a process exists; True if that cannot be told."""
    if os.name != "posix":
        return True  # a signal of 0 would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


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
