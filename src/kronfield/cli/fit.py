"""``kronfield fit``: fit a field to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield.cli.common import (
    FIELD_SUFFIX,
    PATH,
    SOURCE,
    STANDARD,
    Failure,
    Output,
    check_output,
    default_output,
    given_options,
    output_options,
    received,
    sent,
    size_text,
)
from kronfield.cli.large import Workers, is_store, workers_options
from kronfield.cli.parsing import Domain, Numbers, Periods, Roughness
from kronfield.cli.sources import fit_line, frames_option, signal_line, signal_to_fit, table_options
from kronfield.fitting import settings as defaults

# The fewest features on an axis by default: with fewer, no spline is cubic.
FEWEST_FEATURES = 4

if TYPE_CHECKING:
    from kronfield._core.arrays import Array
    from kronfield.encoding import Kronecker
    from kronfield.field import Field
    from kronfield.field.field import Saved
    from kronfield.files import Signal
    from kronfield.fitting.report import FitReport, PointReport


@click.command(
    "fit",
    short_help="Fit a field to a file.",
    epilog="""\b
Examples:
  kronfield fit photo.png
  kronfield fit photo.png -o photo16.field --dtype float16 --report report
  kronfield fit photo.png -e gaussian --ridge 0 -o paper.field
  kronfield fit photo.png -e triangle:width=0.05 -e gaussian:width=0.02 --size 40,60 -o small.field
  kronfield fit clip.mp4 --frames 0:10
  kronfield fit scan.nii.gz --json
  kronfield fit sound.wav --quiet
  kronfield fit stations.csv --coordinates lon,lat --columns temperature
  kronfield fit stations.csv --columns temperature --at places.csv --error -o forecast.csv
  kronfield fit stations.csv --loss huber --trend 1 --hold-out blocks -o robust.field
  kronfield fit stations.csv --at places.csv --beyond 2 -o near.csv
  kronfield fit series.csv --columns level
  kronfield fit air.nc:t2m
  kronfield fit large.zarr -o large-field.zarr --workers 2 --memory 1GB
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="The field to write. Default: INPUT's name with .field, in this folder.",
)
@click.option(
    "-e",
    "--encoding",
    "specs",
    multiple=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="An embedder for all axes; repeat for one per axis. Default: chosen from the data.",
)
@click.option(
    "--size",
    type=Numbers("64, or 40,60", whole=True),
    metavar="K[,K...]",
    help="Features on each axis. Default: one per sample.",
)
@click.option(
    "--width",
    type=float,
    help="Width of the features, in units of the domain. Default: about one sample.",
)
@click.option("--ridge", type=float, help="Weight of the sum of squared weights. Default: chosen.")
@click.option(
    "--roughness",
    type=Roughness(),
    metavar="A,B|gcv",
    help="Weights of squared first and second derivatives, or gcv to choose them by generalised "
    "cross-validation. Default: chosen if noise is found, else none.",
)
@click.option(
    "--loss",
    type=click.Choice(["squared", "huber"]),
    default="squared",
    show_default=True,
    help="huber: weight outliers down, and reject gross ones.",
)
@click.option(
    "--trend",
    type=click.IntRange(0, 2),
    metavar="DEGREE",
    help="For a table: also fit a polynomial of this degree, 0 to 2, that no penalty holds back.",
)
@click.option(
    "--hold-out",
    type=click.Choice(["points", "blocks"]),
    help="For a table: choose settings by the error at single held-out points, or at all points "
    "in blocks of space (for clusters), and print that error.",
)
@click.option(
    "--domain",
    type=Domain(),
    metavar="LOW:HIGH,...",
    help="The box that the samples fill, LOW:HIGH per axis; sets the units of pictures and arrays.",
)
@click.option(
    "--periodic",
    type=Periods(),
    metavar="AXIS=PERIOD,...",
    help="Axes that wrap, by name or number, with their period: lon=360.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float16", "float32", "float64"]),
    help="Data type of the stored weights.",
)
@table_options
@frames_option
@click.option(
    "--at",
    "places",
    type=SOURCE,
    metavar="POINTS",
    help="For a table: write values at these points instead of a field.",
)
@click.option("--error", is_flag=True, help="With --at: add the standard error of each value.")
@click.option(
    "--noise",
    type=float,
    help="With --error: the standard deviation of the noise. Default: from the fit.",
)
@click.option(
    "--beyond",
    type=float,
    metavar="DISTANCE",
    help="With --at: leave values empty further than this from the data.",
)
@click.option(
    "--report",
    type=PATH,
    metavar="DIR",
    help="Write pictures and a page about the fit to this folder.",
)
@workers_options
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    output: Path | None,
    specs: tuple[str, ...],
    size: Any,
    width: float | None,
    ridge: float | None,
    roughness: Any,
    loss: str,
    trend: int | None,
    hold_out: str | None,
    domain: Any,
    periodic: Any,
    dtype: str | None,
    columns: Any,
    coordinates: Any,
    frames: Any,
    places: str | None,
    error: bool,
    noise: float | None,
    beyond: float | None,
    report: Path | None,
    workers: Workers,
    force: bool,
    out: Output,
) -> None:
    """Fit a field to a picture, video, volume, sound, array or table of points.

    Only INPUT is required: settings that are not given are chosen from the data. Coordinates are
    pixel and sample numbers for pictures and arrays, seconds for video and sound, millimetres for
    NIfTI, and those of the file for tables, NetCDF and zarr. FILE:NAME selects an array, a variable
    or a sheet. With - as INPUT, POINTS or output, standard input and output are used.

    Samples larger than memory: an INPUT of zarr or NetCDF is fitted chunk by chunk on workers if
    the output is a zarr store, or with --workers. A command that was ended goes on where it was.
    """
    from kronfield.cli.parsing import parse_encoding
    from kronfield.signals.fit import fit_signal, remember

    if workers.is_given or (output is not None and is_store(output)):
        from kronfield.cli.large import fit_store

        others = {
            "--trend": trend,
            "--hold-out": hold_out,
            "--dtype": dtype,
            "--columns": columns,
            "--coordinates": coordinates,
            "--frames": frames,
            "--at": places,
            "--error": error or None,
            "--noise": noise,
            "--beyond": beyond,
            "--report": report,
        }
        _refuse_beside_workers(others, output)
        assert output is not None
        fit_store(
            source,
            output,
            (lambda counts: parse_encoding(specs, size, width, counts)) if specs else None,
            workers,
            out,
            force=force,
            made=given_options(ctx),
            domain=domain,
            ridge=ridge,
            roughness=roughness,
            loss=loss,
            periodic=periodic,
        )
        return
    error = error or noise is not None
    target = _target(source, output, places is not None, out)
    if places is not None:
        places = _existing(received(places))
    source = received(source)
    _check(target, places, error, beyond, report, dtype, force)
    penalised = roughness is not None or bool(ridge)
    signal = signal_to_fit(
        source, out, penalised=penalised, columns=columns, coordinates=coordinates, frames=frames
    )
    out.say(signal_line(signal))
    if signal.points is None:
        _refuse_options_of_tables(signal.kind, places, trend, hold_out)
    points = None if places is None else _places(places, signal, out)
    encoding = parse_encoding(specs, size, width, _sample_counts(signal))
    if not penalised and ridge is None:
        ridge = _no_ridge_if_long(signal, encoding, out)
    with out.working("Fitting"):
        field = fit_signal(
            signal,
            encoding,
            domain=domain,
            ridge=ridge,
            roughness=roughness,
            loss=loss,
            trend=trend,
            hold_out=hold_out,
            periodic=periodic,
        )
        remember(field, "kronfield fit", given_options(ctx), kf.__version__)
        lines = [fit_line(field), *_report_lines(field.report, hold_out)]
    for line in lines:
        out.say(line)
    if signal.points is not None and columns is None and field.channel_count > 1:
        first = (signal.description.channels or ["NAME"])[0]
        out.say(
            f"All {field.channel_count} columns share one choice of grid and penalty: --columns "
            f"{first} fits one alone"
        )
    if points is None:
        _write_field(field, source, target, dtype, signal, report, out, force=force)
    else:
        from kronfield.cli.points import write_values

        write_values(
            field, points, target, out, force=force, error=error, noise=noise, beyond=beyond
        )


def _refuse_beside_workers(others: Mapping[str, Any], output: Path | None) -> None:
    """Refuse options that fits on workers do not have."""
    for name, value in others.items():
        if value is not None:
            raise Failure(
                f"{name}: got it for a fit in chunks, which does not have it. Leave it out, or "
                "write a .field without --workers, --memory and --scheduler"
            )
    if output is None:
        raise Failure(
            "-o: got no name; expected a zarr store, which workers write. For example: -o out.zarr"
        )


def _places(places: str, signal: Signal, out: Output) -> Array:
    """Return the points of a table at which to write values, checked before the fit."""
    from kronfield.cli.points import read_places

    return read_places(places, signal.description.axes or [], signal.labels, out)


def _target(source: str, output: Path | None, values: bool, out: Output) -> Path:
    """Return the file to write: a field, or a table of ``values``."""
    if source == STANDARD and output is None:
        raise Failure(
            "-o: got no name, and standard input has none; expected a file, or - for a pipe"
        )
    target = output or default_output(source, "-values.csv" if values else FIELD_SUFFIX)
    return sent(target, ".csv" if values else FIELD_SUFFIX, out)


def _refuse_options_of_tables(
    kind: str, places: str | None, trend: int | None, hold_out: str | None
) -> None:
    """Refuse options that need scattered points, of an INPUT that is a grid."""
    if places is not None:
        raise Failure(
            f"--at: got {kind} as INPUT; expected a table of points. "
            "For grids: kronfield fit, then kronfield render --at"
        )
    for name, value in (("--trend", trend), ("--hold-out", hold_out)):
        if value is not None:
            raise Failure(f"{name}: got {kind} as INPUT; expected a table of points. Leave it out")


def _report_lines(report: FitReport | PointReport | None, hold_out: str | None) -> list[str]:
    """Return lines from the report: rejected outliers, and the error at held-out points."""
    if report is None:
        return []
    robust = [] if report.robust is None else [report.outliers_text]
    return robust if hold_out is None else [*robust, _held_out_line(report)]


def _write_field(
    field: Field,
    source: str,
    target: Path,
    dtype: str | None,
    signal: Signal,
    report: Path | None,
    out: Output,
    *,
    force: bool,
) -> None:
    """Save a field, write its pictures if asked for, and give the result of the command."""
    from kronfield.signals.axes import described

    saved = _save(field, target, dtype, signal, out)
    if report is not None:
        from kronfield.cli.picture_report import write_fit_report

        write_fit_report(report, signal, field, out, force=force)
    out.result(
        input=source,
        output=target,
        kind=signal.kind,
        shape=signal.description.shape,
        bytes=saved.bytes,
        raw_bytes=signal.description.raw_bytes,
        report_folder=report,
        **(described(field).made or {}),
    )


def _existing(places: str) -> str:
    """Refuse a table of points that is missing, before the fit."""
    from kronfield.files.guard import check_source
    from kronfield.files.kinds import split_member

    check_source(split_member(places)[0])
    return places


def _held_out_line(report: Any) -> str:
    """Return the error at held-out points as text."""
    if math.isnan(report.expected_error):
        return "No points were held out: the settings were given, or there are too few points"
    return f"Error at held-out {report.held_out}: {report.expected_text} rms"


def _save(field: Field, target: Path, dtype: str | None, signal: Signal, out: Output) -> Saved:
    """Save a field; print the size of the file and the error due to its dtype."""
    with out.working("Saving"):
        saved = field.save(target, dtype=dtype)
    cost = f"; error of {dtype}: at most {saved.largest_error:.1g}" if saved.largest_error else ""
    raw = signal.description.raw_bytes or 0
    out.say(f"Wrote {target}, {size_text(saved.bytes)} (the samples: {size_text(raw)}){cost}")
    return saved


def _no_ridge_if_long(signal: Signal, encoding: Kronecker | None, out: Output) -> float | None:
    """Return ridge 0 and say so if an axis of a grid is too long to choose a ridge; else None."""
    if encoding is None or signal.points is not None:
        return None
    longest = defaults.DEFAULT.signals.longest_ridge
    if max(*_sample_counts(signal), *encoding.shape) <= longest:
        return None
    out.say(f"No ridge: an axis is longer than {longest}, too long to choose it")
    return 0.0


def _check(
    target: Path,
    places: str | None,
    error: bool,
    beyond: float | None,
    report: Path | None,
    dtype: str | None,
    force: bool,
) -> None:
    """Refuse options that exclude each other, and unusable outputs, before any work is done."""
    if beyond is not None and places is None:
        raise Failure("--beyond: expected --at POINTS as well. For maps: kronfield render --beyond")
    if places is None:
        if error:
            raise Failure(
                "--error: expected --at POINTS as well. A saved field has no standard errors"
            )
        check_output(target, force=force, field=True)
    else:
        from kronfield.cli.points import check_table

        check_table(target, force=force)
        if report is not None or dtype is not None:
            raise Failure(
                "--at: got it beside --report or --dtype, which are for fields; expected only one "
                "of them. Leave out --at or the others"
            )
    if report is not None:
        from kronfield.cli.picture_report import check_folder

        check_folder(report, force=force)


def _sample_counts(signal: Any) -> list[int]:
    """Return the default number of features on each axis."""
    if signal.points is None:
        shape = signal.values.shape
        return list(shape[:-1] if signal.channels else shape)
    count, D = signal.points.shape
    most = defaults.DEFAULT.signals.point_features
    return [min(most, max(FEWEST_FEATURES, round(float(count) ** (1 / D))))] * int(D)
