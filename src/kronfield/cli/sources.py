"""Read the samples to fit, and describe samples and fits in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kronfield.cli.common import Failure, Function, Output, read_signal
from kronfield.cli.parsing import Frames, Names

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.files import Signal


def table_options(command: Function) -> Function:
    """Add --columns and --coordinates."""
    command = click.option(
        "--columns", type=Names(), metavar="A,B", help="For a table: the columns with values."
    )(command)
    return click.option(
        "--coordinates",
        type=Names(),
        metavar="X,Y",
        help="For a table: the columns with coordinates.",
    )(command)


frames_option = click.option(
    "--frames",
    type=Frames(),
    metavar="START:STOP",
    help="For a video: the first frame, and the frame before which to stop.",
)


def signal_to_fit(source: str, out: Output, *, penalised: bool = False, **options: Any) -> Signal:
    """Read a file; refuse it if its fit needs more memory than the machine has.

    A video is refused before it is read.
    """
    from kronfield.files import announced_shape
    from kronfield.signals.fit import check_fit_memory

    remedy = "Use a part of it: --frames 0:100, or cut the file."
    shape = announced_shape(source, frames=options.get("frames"))
    if shape is not None and shape[0] is not None:
        check_fit_memory([n or 1 for n in shape], 4, penalised=penalised, remedy=remedy)
    signal = read_signal(source, out, **options)
    if signal.points is None:
        remedy = remedy if signal.kind == "video" else "Fit a part of it, or fewer samples."
        check_fit_memory(
            signal.values.shape, signal.values.dtype.itemsize, penalised=penalised, remedy=remedy
        )
    return signal


def grid_only(signal: Signal, command: str) -> None:
    """Refuse tables where a grid is needed."""
    if signal.points is not None:
        raise Failure(
            f"{command}: got a table; expected a picture, video, volume, sound or array. "
            "Use: kronfield fit"
        )


def signal_line(signal: Signal) -> str:
    """Return a description of a signal in one line."""
    text = _table_text(signal) if signal.points is not None else _grid_text(signal)
    return f"{signal.description.source}: {signal.kind}, {text}"


def _table_text(signal: Signal) -> str:
    """Return the size and the columns of a table, and the number of missing values."""
    known, points = signal.description, signal.points
    text = f"{0 if points is None else len(points)} points in {', '.join(known.axes or [])}"
    text += f"; values {', '.join(known.channels or [])}"
    text += f"; {known.dropped} rows without coordinates" if known.dropped else ""
    text += f"; not used: {', '.join(known.unused)}" if known.unused else ""
    return text + (f"; {known.missing} missing values" if known.missing else "")


def _grid_text(signal: Signal) -> str:
    """Return the size of a grid, its channels and bits, and the spacing of its samples."""
    known = signal.description
    channels = ", ".join(known.channels or [])
    levels = known.levels or 0
    bits = f"{levels.bit_length()} bit" if levels > 1 else ""
    return ", ".join(filter(None, [_size_text(signal), channels, bits, *_spacing_texts(signal)]))


def _size_text(signal: Signal) -> str:
    """Return the number of pixels, frames or samples."""
    shape = signal.values.shape[:-1] if signal.channels else signal.values.shape
    if signal.kind == "image":
        return f"{shape[-1]} x {shape[-2]} pixels"
    if signal.kind == "video":
        return f"{shape[0]} frames of {shape[-1]} x {shape[-2]} pixels"
    return " x ".join(map(str, shape)) + " samples"


def _spacing_texts(signal: Signal) -> Iterator[str]:
    """Yield the distances between samples in time and space that are known."""
    known = signal.description
    if signal.kind == "video":
        spread = "" if known.even else " on average"
        yield f"{known.frames_per_second:.4g} frames per second{spread}"
    if signal.kind == "audio":
        yield f"{known.rate} per second"
    if known.spacing:
        steps = zip(known.spacing, known.units or [], strict=True)
        yield " x ".join(f"{step:.4g} {unit}" for step, unit in steps)


def fit_line(field: Field) -> str:
    """Return the settings of a fit and its residual in one line."""
    from kronfield.signals.axes import described

    report: Any = field.report
    known = described(field)
    first, second = report.roughness
    penalty = (
        f"ridge {report.ridge:.3g}" if report.ridge else f"roughness ({first:.3g}, {second:.3g})"
    )
    penalty = penalty if report.ridge or first or second else "no penalty"
    missing = None if known.kind == "table" else known.missing
    gaps = f"; {missing} missing samples filled in" if missing else ""
    features = describe_embedders(report.embedders)
    if getattr(report, "form", "grid") == "dual":
        first = report.embedders[0]
        features = f"{first.shape} similarities to {first.size} points in the dual form"
    if getattr(report, "refined", False):
        features += ", slopes from the data"
    residual = f"residual {report.residual:.2g} rms"
    return f"Fitted {features}, {penalty}; {residual}{gaps}; {report.seconds:.2f} s"


def describe_embedders(embedders: list[Any]) -> str:
    """Return the kind, the sizes and the shapes of features as text."""
    kinds = [type(emb).__name__ for emb in embedders]
    shapes = [
        (emb.shape_parameter, getattr(emb, emb.shape_parameter or "", None)) for emb in embedders
    ]
    if len(set(kinds)) > 1:
        return "; ".join(describe_embedders([emb]) for emb in embedders)
    text = f"{' x '.join(str(emb.size) for emb in embedders)} features, {kinds[0]}"
    name = shapes[0][0]
    if name is None:
        return text
    values = list(dict.fromkeys(f"{value:.3g}" for _, value in shapes))
    return f"{text} of {name} {' and '.join(values)}"
