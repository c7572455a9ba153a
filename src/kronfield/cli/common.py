"""Code that all commands share: the command group, one-line errors, output, common options."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kronfield._core.errors import KronfieldError, KronfieldWarning
from kronfield._core.progress import Bar, spinner

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.files import Signal

Function = TypeVar("Function", bound=Callable[..., Any])

# What people call options whose name is not similar, and their names.
_MEANINGS = {
    **dict.fromkeys(("--values", "--value", "--variable", "--variables", "--column"), "--columns"),
    **dict.fromkeys(("--positions", "--axes", "--coords", "--points"), "--coordinates"),
    **dict.fromkeys(("--max-distance", "--distance"), "--beyond"),
    **dict.fromkeys(("-f", "--overwrite", "-y"), "--force"),
    **dict.fromkeys(("--out", "--to"), "--output"),
}
# Remedies for errors of the operating system, by error number.
_REMEDIES = {
    errno.ENOSPC: "Free some space, or write to another disk.",
    errno.EDQUOT: "Free some space, or write to another disk.",
    errno.EFBIG: "Choose another disk, or a smaller size.",
    errno.EACCES: "Check the permissions, or choose another folder.",
    errno.EPERM: "Check the permissions, or choose another folder.",
    errno.EROFS: "Choose a folder that can be written.",
    errno.ENOENT: "Check the name and the folder.",
}
FIELD_SUFFIX = ".field"
# Key of the context under which a command stores its output path, for errors that name no file.
_TARGET = "kronfield.target"
# Key of the context for the temporary file whose content goes to standard output.
_TAKEN = "kronfield.standard-output"
# The name that stands for standard input or output.
STANDARD = "-"
# The first bytes of formats that are recognised on standard input; anything else is a CSV table.
_STARTS = (
    (b"\x89PNG", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"PAR1", ".parquet"),
    (b"\x93NUMPY", ".npy"),
    (b"RIFF", ".wav"),
    (b"fLaC", ".flac"),
    (b"\x89HDF", ".nc"),
    (b"CDF", ".nc"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
    (b"\x1f\x8b", ".nii.gz"),
)


class Failure(click.ClickException):
    """An error that the user can correct, printed as one line on standard error."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class Commands(click.Group):
    """A group that loads its commands on use and reports correctable errors in one line.

    The exit code of these errors is 2.
    """

    def __init__(self, *args: Any, names: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = tuple(names)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None if there is no such command."""
        if cmd_name not in self._names:
            return None
        command = importlib.import_module(f"kronfield.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn errors that the user can correct into a `Failure`."""
        with shown_warnings(), ended_by_signals():
            try:
                return super().invoke(ctx)
            except click.exceptions.NoArgsIsHelpError:
                raise
            except click.NoSuchOption as error:
                name = error.ctx.command_path if error.ctx else "kronfield"
                text = _unknown_option(error)
                raise Failure(f"{text} See: {name} --help") from error
            except click.UsageError as error:
                name = error.ctx.command_path if error.ctx else "kronfield"
                raise Failure(f"{error.format_message()} See: {name} --help") from error
            except KeyboardInterrupt:
                click.echo("Interrupted: no file is left half written.", err=True)
                ctx.exit(130)
            except BrokenPipeError:
                raise  # the reader of the output has closed the pipe: click exits silently
            except MemoryError as error:
                raise Failure(
                    f"Out of memory{_detail(error)}. Use a smaller size or a part of the input."
                ) from error
            except OSError as error:
                raise Failure(_os_message(error, ctx.meta.get(_TARGET))) from error
            except KronfieldError as error:
                raise Failure(str(error)) from error


def _unknown_option(error: click.NoSuchOption) -> str:
    """Return the message of an unknown option, with the one of that meaning if there is one."""
    meant = _MEANINGS.get(error.option_name)
    known = [] if error.ctx is None else [name for p in error.ctx.command.params for name in p.opts]
    if meant in known:
        return f"No such option '{error.option_name}'. Did you mean '{meant}'?"
    return error.format_message()


def _detail(error: MemoryError) -> str:
    return f" ({error})" if str(error) else ""


def _os_message(error: OSError, target: str | None) -> str:
    name = error.filename2 or error.filename
    if target is not None and (name is None or ".part" in os.path.basename(os.fspath(name))):
        name = target  # not the temporary file
    reason = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return (
        f"{f'{os.fspath(name)}: ' if isinstance(name, str | os.PathLike) else ''}{reason}. {remedy}"
    )


@contextlib.contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning of kronfield in one line; drop the warnings of other libraries."""

    def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        context = click.get_current_context(silent=True)
        quiet = context is not None and context.find_root().meta.get("quiet")
        if issubclass(category, KronfieldWarning) and not quiet:
            click.echo(f"Warning: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as an error does: temporary files are removed.

    Processes that are forked meanwhile end at once, as they do by default.
    """
    owner, before = os.getpid(), {}

    def end(number: int, _frame: Any) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Output:
    """The output of a command: text for people, one JSON object for scripts, or nothing."""

    def __init__(self, quiet: bool, as_json: bool) -> None:
        self.quiet, self.as_json = quiet, as_json
        context = click.get_current_context(silent=True)
        if context is not None:
            context.find_root().meta["quiet"] = quiet

    def say(self, text: str) -> None:
        """Print a line of text, unless --quiet or --json is given.

        If standard output takes the result, the text goes to standard error.
        """
        if not self.quiet and not self.as_json:
            context = click.get_current_context(silent=True)
            taken = None if context is None else context.find_root().meta.get(_TAKEN)
            click.echo(text.replace(taken, "standard output") if taken else text, err=bool(taken))

    def result(self, **data: Any) -> None:
        """Print the result as JSON if --json is given."""
        if self.as_json:
            from kronfield.signals.fit import plain

            click.echo(json.dumps(plain(data), indent=2))

    def bar(self, title: str, total: int | None = None) -> Bar:
        """Return a progress bar that appears if the work takes longer than half a second."""
        return Bar(title, total, shown=not self.quiet, after=0.5)

    def working(self, title: str) -> AbstractContextManager[None]:
        """Show a spinner during the work."""
        return spinner(title, shown=not self.quiet)


def output_options(command: Function) -> Function:
    """Add --force, --quiet and --json; the command gets ``force`` and its `Output` as ``out``."""
    return click.option("--force", is_flag=True, help="Overwrite existing files.")(
        speech_options(command)
    )


def speech_options(command: Function) -> Function:
    """Add --quiet and --json; the command gets its `Output` as ``out``."""

    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; no progress bar.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @functools.wraps(command)
    def wrapped(*args: Any, quiet: bool, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, out=Output(quiet, as_json), **kwargs)

    return wrapped  # type: ignore[return-value]


# Files
# ------------------------------------------------------------------------------------------

PATH = click.Path(path_type=Path)
# Not a path yet: the name may end in ":array", which selects an array of an .npz file.
SOURCE = click.Path()


def check_output(path: Path, *, force: bool, field: bool = False) -> None:
    """Refuse an unusable output path before any work is done.

    Refused are existing files unless ``force`` is true, folders that are missing or cannot be
    written, and names whose suffix is not that of a known format (for ``field``: of a field).
    """
    from kronfield._core.arrays import InputError, problem
    from kronfield._core.atomic import refuse_existing
    from kronfield.files import kind_of

    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().meta[_TARGET] = str(path)
    if field:
        with contextlib.suppress(InputError):
            kind = kind_of(path)
            raise Failure(
                f"-o: got {path}, a file of kind {kind}; expected a field. "
                f"Name it {path.stem}.field"
            )
    else:
        kind_of(path)
    refuse_existing(path, force)
    folder = path.parent
    if not folder.is_dir():
        raise problem("path", path, "a file in an existing folder", f"Create {folder} first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise problem(
            "path",
            path,
            "a folder that can be written",
            "Check its permissions, or choose another.",
        )


def received(source: str, *, field: bool = False) -> str:
    """Return the file to read: standard input, "-", is first copied to a temporary file."""
    if source != STANDARD:
        return source
    folder = _temporary_folder()
    stream = sys.stdin.buffer
    start = stream.read(16)
    if not start:
        raise Failure(
            "-: got nothing on standard input; expected a file. Pipe a file into the command"
        )
    ending = next((suffix for first, suffix in _STARTS if start.startswith(first)), ".csv")
    if start.startswith(b"PK"):
        ending = ".xlsx"
    path = folder / f"standard-input{FIELD_SUFFIX if field else ending}"
    with open(path, "wb") as file:
        file.write(start)
        shutil.copyfileobj(stream, file)
    return str(path)


def sent(output: Path, ending: str, out: Output) -> Path:
    """Return the file to write: for standard output, "-", a temporary file.

    It is copied to standard output when the command has ended, if it was written.
    """
    if str(output) != STANDARD:
        return output
    if out.as_json:
        raise Failure(
            "-o: got - with --json, which writes to standard output too; expected a file. Name it"
        )
    context = click.get_current_context()
    path = _temporary_folder() / f"standard-output{ending}"
    context.find_root().meta[_TAKEN] = str(path)

    def copy() -> None:
        if path.exists():
            sys.stdout.buffer.write(path.read_bytes())
            sys.stdout.buffer.flush()

    context.call_on_close(copy)
    return path


def _temporary_folder() -> Path:
    """Return a new folder that is removed when the command has ended."""
    context = click.get_current_context()
    folder = tempfile.mkdtemp(prefix="kronfield-")
    context.call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    return Path(folder)


def default_output(source: str, ending: str) -> Path:
    """Return the default output, in the current folder: the stem of the input plus ``ending``."""
    from kronfield.files.kinds import split_member, suffix_of

    path, member = split_member(source)
    stem = path.name[: -len(suffix_of(path))]
    return Path(f"{stem}-{member}{ending}" if member else f"{stem}{ending}")


def read_signal(source: str, out: Output, **options: Any) -> Signal:
    """Read a file, with a progress bar if it takes long."""
    from kronfield.files import read

    name = os.path.basename(source)
    with out.bar(f"Reading {name}") as bar:
        return read(
            source,
            progress=lambda done, total: bar.update(done, total=total),
            **{k: v for k, v in options.items() if v},
        )


def load_field(path: Path, out: Output) -> Field:
    """Load a field; if only ``path`` plus ".field" exists, suggest it."""
    import kronfield as kf

    if (
        not path.is_file()
        and path.suffix != FIELD_SUFFIX
        and path.with_name(path.name + FIELD_SUFFIX).is_file()
    ):
        raise Failure(f"{path}: there is no such file. Did you mean {path}{FIELD_SUFFIX}?")
    with out.working(f"Loading {path.name}"):
        return kf.load(path)


def given_options(ctx: click.Context) -> dict[str, Any]:
    """Return the options given on the command line, as plain data."""
    from click.core import ParameterSource

    silent = {
        "source",
        "force",
        "quiet",
        "as_json",
        "report",
        "output",
        "checkpoint",
        "resume",
        "places",
        "count",
        "memory",
        "scheduler",
    }
    return {
        name: value if isinstance(value, int | float | str | bool | list | tuple) else str(value)
        for name, value in ctx.params.items()
        if name not in silent and ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
    }


def size_text(count: float) -> str:
    """Return a number of bytes as text with a suitable unit."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count:.0f} bytes"
