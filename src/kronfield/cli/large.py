"""Fit and render what does not fit into memory: chunk by chunk, on workers of Dask."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield._core.records import record
from kronfield.cli.common import Failure, Function, Output, size_text
from kronfield.cli.sources import fit_line

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.signals.view import View

# The ending of stores, and of the files of which only parts are read.
STORE = ".zarr"
SOURCES = (STORE, ".nc")


@record
class Workers:
    """What was asked for: worker processes and their memory, or a scheduler."""

    count: int | None
    memory: str | None
    scheduler: str | None

    @property
    def is_given(self) -> bool:
        """Whether any of them was given."""
        return (self.count, self.memory, self.scheduler) != (None, None, None)

    @contextlib.contextmanager
    def started(self, out: Output) -> Iterator[None]:
        """Start or join the workers, which compute all that is asked for meanwhile.

        If none were asked for, the threads of this process compute it.
        """
        if not self.is_given:
            yield
            return
        from kronfield.lazy.cluster import workers

        with contextlib.ExitStack() as stack:
            with out.working("Starting workers"):
                client = stack.enter_context(
                    workers(self.count, memory=self.memory, scheduler=self.scheduler)
                )
            there = client.scheduler_info(n_workers=-1)["workers"]
            each = [one["memory_limit"] for one in there.values() if one["memory_limit"]]
            memory = f" of {size_text(min(each))}" if each else ""
            out.say(f"{len(there)} worker{'s' * (len(there) != 1)}{memory}")
            yield


def workers_options(command: Function) -> Function:
    """Add --workers, --memory and --scheduler; the command gets `Workers` as ``workers``."""
    import functools

    @click.option(
        "--workers",
        "count",
        type=click.IntRange(min=1),
        metavar="N",
        help="For zarr: processes on this machine that share the work. Default: threads of this "
        "process; with --memory, one per processor.",
    )
    @click.option(
        "--memory", metavar="SIZE", help="For zarr: the memory of each of them, such as 2GB."
    )
    @click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="For zarr: use the workers of this scheduler of Dask, for example tcp://host:8786.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, count: int | None, memory: str | None, scheduler: str | None, **kwargs: Any
    ) -> Any:
        return command(*args, workers=Workers(count, memory, scheduler), **kwargs)

    return wrapped  # type: ignore[return-value]


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a name is that of a zarr store."""
    return Path(path).suffix.lower() == STORE


def check_store(target: Path, *, force: bool) -> None:
    """Refuse an unusable store to write, before any work is done."""
    from kronfield._core.atomic import refuse_existing

    if not is_store(target):
        raise Failure(
            f"-o: got {target}; expected a name that ends in {STORE}, for chunks that workers "
            f"write. Name it {target.stem}{STORE}, or leave out --workers, --memory, --scheduler"
        )
    if not target.parent.is_dir():
        raise Failure(
            f"-o: got {target}; expected a folder that exists. Create {target.parent} first"
        )
    refuse_existing(target, force)


@contextlib.contextmanager
def _writing(target: Path, out: Output) -> Iterator[Any]:
    """Yield a function that shows the progress of a store, and say that it can be continued."""
    told = False
    try:
        with out.bar(f"Writing {target.name}") as bar:

            def show(done: int, total: int) -> None:
                nonlocal told
                if done and not told:
                    out.say(f"{done} of {total} chunks are there already")
                told = True
                bar.update(done, total=total)

            yield show
    except KeyboardInterrupt:
        if told:
            click.echo("The chunks are kept: the same command goes on from here.", err=True)
        raise


def fit_store(
    source: str,
    target: Path,
    encoding: Any,
    workers: Workers,
    out: Output,
    *,
    force: bool,
    made: Mapping[str, Any],
    periodic: Mapping[str, float] | None = None,
    **options: Any,
) -> None:
    """Fit a variable of a zarr store or NetCDF file into a store, and give the result."""
    from kronfield.files.kinds import split_member
    from kronfield.signals.fit import lazy_signal, remember

    path, _ = split_member(source)
    if path.suffix.lower() not in SOURCES:
        raise Failure(
            f"INPUT: got {source}; expected a file of which parts can be read, "
            f"{' or '.join(SOURCES)}. For other files, write a .field without --workers"
        )
    check_store(target, force=force)
    with workers.started(out):
        values, known, periods = lazy_signal(source, periodic)
        sizes = " x ".join(map(str, known.shape or ()))
        out.say(f"{known.source}: {known.kind}, {sizes} samples, {size_text(known.raw_bytes or 0)}")
        if callable(encoding):
            encoding = encoding([int(n) for n in values.shape])
        with out.working("Choosing"):
            field = kf.fit(values, None, encoding, channels=False, periodic=periods, **options)
            field.info = known.to_dict()
            remember(field, "kronfield fit", made, kf.__version__)
        out.say(fit_line(field))
        with _writing(target, out) as progress:
            saved = field.save(target, resume=True, progress=progress)  # type: ignore[call-arg]
    out.say(
        f"Wrote {target}, {size_text(saved.bytes)} (the samples: {size_text(known.raw_bytes or 0)})"
    )
    out.result(
        input=source,
        output=target,
        kind=known.kind,
        shape=known.shape,
        bytes=saved.bytes,
        raw_bytes=known.raw_bytes,
        report_folder=None,
        **(field.info.get("made") or {}),
    )


def render_store(
    field: Field,
    where: View,
    target: Path,
    out: Output,
    *,
    force: bool,
    derivative: Any,
    channel: str | None,
) -> None:
    """Write a view of a lazy field to a zarr folder, and give the result."""
    from kronfield.cli.render import describe_export
    from kronfield.signals.export import export_lazily

    with _writing(target, out) as progress:
        done = export_lazily(
            field,  # type: ignore[arg-type]
            target,
            where,
            derivative=derivative,
            channel=channel,
            overwrite=force,
            progress=progress,
        )
    out.say(f"Wrote {target}, {describe_export(done)}")
    out.result(output=target, shape=done.shape, channels=done.channels, rate=None)
