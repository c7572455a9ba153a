"""``kronfield render``: write a field to a file, at any size."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kronfield.cli.common import (
    PATH,
    SOURCE,
    Failure,
    Output,
    check_output,
    load_field,
    output_options,
    received,
    sent,
)
from kronfield.cli.large import Workers, check_store, render_store, workers_options
from kronfield.cli.parsing import Crop, Numbers, Range, Rate, Size, Slice

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.signals.export import Exported
    from kronfield.signals.view import View


@click.command(
    "render",
    short_help="Render a field at any size to a file.",
    epilog="""\b
Examples:
  kronfield render photo.field -o large.png --scale 4
  kronfield render photo.field -o wide.jpg --size 320x240
  kronfield render photo.field -o detail.png --crop row=10:30,column=20:50 --scale 8
  kronfield render photo.field -o slope.png --derivative 1,0
  kronfield render photo.field -o slope.tif --derivative 0,1
  kronfield render series.field -o slope.csv --derivative 1 --per year
  kronfield render clip.field -o smooth.mp4 --fps 50
  kronfield render clip.field -o slow.mp4 --slow 4 --crop time=0:0.2
  kronfield render clip.field -o still.png --slice time=0.1
  kronfield render scan.field -o slice.png --slice z=12.5 --scale 4
  kronfield render sound.field -o sound48.wav --rate 48000
  kronfield render stations.field -o map.png --size 400x300
  kronfield render stations.field -o grid.csv --size 20,30
  kronfield render stations.field -o near.png --size 400x300 --beyond 2
  kronfield render stations.field --at places.csv -o values.csv
  kronfield render large-field.zarr -o fine.zarr --scale 2
""",
)
@click.argument("path", metavar="FIELD", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="The file to write; its suffix sets the format.",
)
@click.option(
    "--size",
    type=Size(),
    metavar="WxH|N[,N...]",
    help="A frame, width x height, into which a picture fits undistorted; or one number per axis "
    "of the output; or the longest side.",
)
@click.option(
    "--stretch", is_flag=True, help="Fill WxH exactly, instead of fitting into it undistorted."
)
@click.option(
    "--scale",
    type=Numbers("4, or 1,2,2"),
    metavar="S[,S...]",
    help="Factor on the number of samples. A single factor leaves the time of a video unchanged.",
)
@click.option(
    "--crop",
    "crops",
    type=Crop(),
    multiple=True,
    metavar="AXIS=LOW:HIGH,...",
    help="A region. Pixels and samples are counted as in slices: 10:30 are the 20 from 10 on. "
    "Other axes use their units.",
)
@click.option(
    "--slice",
    "cuts",
    type=Slice(),
    multiple=True,
    metavar="AXIS=POSITION",
    help="Cut through an axis at any position, in its units; repeat for more axes.",
)
@click.option(
    "--fps",
    "--rate",
    "rate",
    type=Rate(),
    help="Frames of a video, or samples of sound, per second.",
)
@click.option(
    "--slow",
    type=float,
    default=1.0,
    help="Slow motion by this factor: more frames at the same frame rate.",
)
@click.option(
    "--derivative",
    type=Numbers("1,0", whole=True),
    metavar="N[,N...]",
    help="Order of the derivative along each axis, per unit of the axis.",
)
@click.option(
    "--per",
    metavar="UNIT",
    help="With --derivative: the unit of time along dates: year (of 365.25 days), day, h, ... "
    "Default: second.",
)
@click.option(
    "--range",
    "tone_range",
    type=Range(),
    metavar="LOW:HIGH",
    help="The values to draw black and white, or in the first and last colour of a map.",
)
@click.option(
    "--beyond",
    type=float,
    metavar="DISTANCE",
    help="No values further than this from the data: NaN, empty in tables, black in pictures.",
)
@click.option("--channel", help="The name or number of a single channel to write.")
@click.option(
    "--plain", is_flag=True, help="For a map: grey pixels alone, without axes and colour bar."
)
@click.option(
    "--at",
    "places",
    type=SOURCE,
    metavar="POINTS",
    help="Write a table of values at the points of this table.",
)
@workers_options
@output_options
def command(
    path: Path,
    output: Path,
    size: Any,
    stretch: bool,
    scale: Any,
    crops: Any,
    cuts: Any,
    rate: Fraction | None,
    slow: float,
    derivative: Any,
    per: str | None,
    tone_range: Any,
    beyond: float | None,
    channel: str | None,
    plain: bool,
    places: str | None,
    workers: Workers,
    force: bool,
    out: Output,
) -> None:
    """Render a field, or a region of it, at any size or rate.

    The output is a picture, video, volume, sound, array or table. It is written block by block, so
    that memory is bounded at any size. Smaller outputs are averages over cells. Values that are not
    colours, and derivatives, are written unchanged to TIFF, NumPy, NetCDF, zarr, NIfTI and tables.
    In other pictures, fields of tables and NetCDF files are drawn as a map or a line with axes, and
    other values become grey levels, from the smallest to the largest value.

    A field in a zarr store is rendered chunk by chunk on workers, to a zarr folder. A command that
    was ended goes on where it was.
    """
    from dataclasses import replace

    from kronfield.files import kind_of
    from kronfield.fitting import settings

    path, output = Path(received(str(path), field=True)), sent(output, ".csv", out)
    if path.is_dir() and places is None:
        _refuse_of_stores({"--fps": rate, "--range": tone_range, "--beyond": beyond})
        check_store(output, force=force)
        with workers.started(out):
            field = load_field(path, out)
            orders = _orders(field, derivative, per)
            size = tuple(size) if stretch and isinstance(size, tuple) else size
            where = _view(field, size, scale, crops, cuts, None, slow, upright=False)
            where = replace(where, per=per)
            render_store(field, where, output, out, force=force, derivative=orders, channel=channel)
        return
    if workers.is_given:
        raise Failure(
            f"--workers: got it for {path}; expected a field in a zarr store, which kronfield fit "
            "-o NAME.zarr writes. Leave out --workers, --memory and --scheduler"
        )
    if places is not None:
        places = received(places)
        for_grids = (size, scale, crops, cuts, rate, tone_range, channel)
        if any(for_grids):
            raise Failure(
                "--at: got it beside options for grids; expected only the table of positions. "
                "Leave out sizes, regions, rates, ranges and channels"
            )
        _write_at(
            path, places, output, out, force=force, derivative=derivative, per=per, beyond=beyond
        )
        return
    check_output(output, force=force)
    field = load_field(path, out)
    target = kind_of(output)
    # a TIFF file can hold frames as pages
    if rate is not None and target == "image" and output.suffix.lower() not in (".tif", ".tiff"):
        raise Failure(
            f"--fps: got a picture to write, {output}; expected a video or a sound. Leave it out"
        )
    size = tuple(size) if stretch and isinstance(size, tuple) else size
    orders, free = _orders(field, derivative, per), field.dimensions - len(cuts)
    _check_flat(field, output, target, free)
    drawn = target == "image" and not plain and _is_drawn(field, free, output)
    shown = size
    if drawn and free == 1:  # the size is that of the drawing, not of the samples
        shown = None
    elif drawn and size is None and scale is None:
        shown = settings.DEFAULT.signals.drawn_side
    where = _view(field, shown, scale, crops, cuts, rate, slow, upright=target == "image")
    where = replace(where, beyond=beyond, per=per)
    if drawn:
        sides = size if isinstance(size, tuple) and len(size) == 2 else None
        if isinstance(size, int):
            sides = (max(150, round(0.75 * size)), size)
        _draw(
            field,
            where,
            output,
            out,
            size=sides,
            derivative=orders,
            tones=tone_range,
            channel=channel,
            overwrite=force,
        )
        return
    write_view(
        field,
        where,
        output,
        out,
        force=force,
        derivative=orders,
        tones=tone_range,
        channel=channel,
    )


def _refuse_of_stores(options: Mapping[str, Any]) -> None:
    """Refuse options that fields in zarr stores do not have."""
    for name, value in options.items():
        if value is not None:
            raise Failure(
                f"{name}: got it for a field in a zarr store, which is rendered to numbers. "
                "Leave it out"
            )


def _check_flat(field: Field, output: Path, target: str, axes: int) -> None:
    """Refuse a picture of more than two axes, and say how to cut it."""
    if target != "image" or axes <= 2 or output.suffix.lower() in (".tif", ".tiff"):
        return
    from kronfield.signals.axes import axis_names

    names = axis_names(field)
    low, high = field.domain[-1]
    middle = field.labels.axes[-1].text(round((low + high) / 2, 3))
    raise Failure(
        f"-o: got {output}, a picture of two axes, for {', '.join(names)}; expected to cut "
        f"{axes - 2} of them. For example: --slice {names[-1]}={middle}"
    )


def _is_drawn(field: Field, axes: int, output: Path) -> bool:
    from kronfield.files.kinds import suffix_of
    from kronfield.signals.drawing import is_drawn

    return is_drawn(field, axes, suffix_of(output))


def _draw(
    field: Field, where: View, output: Path, out: Output, *, tones: Any, **options: Any
) -> None:
    """Draw a map or a line with axes, and print what was written."""
    from kronfield.signals.drawing import save_drawing
    from kronfield.signals.tones import Tones

    known = None if tones is None else Tones(*tones)
    with out.working(f"Drawing {output.name}"):
        height, width = save_drawing(field, output, where, tones=known, **options)
    out.say(f"Wrote {output}, {width} x {height} pixels")
    out.result(output=output, shape=[height, width], drawn=True)


def _write_at(
    path: Path,
    places: str,
    output: Path,
    out: Output,
    *,
    force: bool,
    derivative: Any,
    per: str | None,
    beyond: float | None,
) -> None:
    """Write values at the points of a table."""
    from kronfield.cli.points import check_table, read_places, write_values
    from kronfield.signals.axes import axis_names

    check_table(output, force=force)
    field = load_field(path, out)
    orders = _orders(field, derivative, per)
    points = read_places(places, axis_names(field), field.labels.axes, out)
    write_values(field, points, output, out, force=force, derivative=orders, beyond=beyond, per=per)


def _orders(field: Field, derivative: Any, per: str | None) -> tuple[int, ...] | None:
    """Return the checked orders of a derivative, whose unit of time is `per`."""
    if per is not None:
        _check_unit(field, derivative, per)
    if derivative is None:
        return None
    if len(derivative) != field.dimensions or min(derivative) < 0:
        from kronfield.signals.axes import axis_names

        names = ", ".join(axis_names(field))
        given = ",".join(map(str, derivative))
        raise Failure(
            f"--derivative: got {given}; expected {field.dimensions} orders, one per axis. "
            f"The axes are: {names}"
        )
    return tuple(derivative)


def _check_unit(field: Field, derivative: Any, per: str) -> None:
    """Refuse a unit of time that is unknown, or that no derivative has."""
    from kronfield._core.labels import seconds_of

    if derivative is None:
        raise Failure("--per: expected --derivative as well. Values have no unit of time")
    if not any(label.is_time for label in field.labels.axes):
        raise Failure(f"--per: got {per}, but no axis has dates. Leave it out")
    seconds_of(per)


def _view(
    field: Field,
    size: Any,
    scale: Any,
    crops: Any,
    cuts: Any,
    rate: Any,
    slow: float,
    *,
    upright: bool,
) -> View:
    from kronfield.signals.axes import axis_named, frame_rate
    from kronfield.signals.view import view

    cropped: dict[int, Any] = {}
    for name, span in (part for crop in crops for part in crop):
        axis = axis_named(field, name)
        cropped[axis] = tuple(_placed(field, "--crop", axis, end) for end in span)
    cut: dict[int, Any] = {}
    for name, position in cuts:
        axis = axis_named(field, name)
        cut[axis] = _placed(field, "--slice", axis, position)
    if slow != 1 and frame_rate(field) is None:
        raise Failure("--slow: got a field without time; expected a video or a sound. Leave it out")
    factor = scale[0] if scale is not None and len(scale) == 1 else scale
    return view(
        field, size=size, scale=factor, crop=cropped, cut=cut, rate=rate, slow=slow, upright=upright
    )


def _placed(field: Field, option: str, axis: int, position: float | str | None) -> float | None:
    """Return a position on an axis as a number; dates only where the axis has dates."""
    if not isinstance(position, str):
        return position
    label = field.labels.axes[axis]
    if not label.is_time:
        raise Failure(f"{option}: got {position}; expected a number. This axis has no dates")
    from kronfield.files.dates import parse_dates

    return float(label.numbers(option, parse_dates([position], [False]))[0])


def write_view(
    field: Field,
    where: View,
    output: Path,
    out: Output,
    *,
    force: bool,
    derivative: Any = None,
    tones: Any = None,
    channel: str | None = None,
    **more: Any,
) -> None:
    """Write a view of a field with a progress bar, and print what was written."""
    from dataclasses import replace

    from kronfield.files import kind_of
    from kronfield.signals.export import export
    from kronfield.signals.tones import Tones

    if kind_of(output) == "video" and where.rate is None:
        from kronfield.signals.export import usual_rate

        where = replace(where, rate=usual_rate())
    with out.bar(f"Writing {output.name}", where.shape[0]) as bar:
        done = export(
            field,
            output,
            where,
            derivative=derivative,
            tones=None if tones is None else Tones(*tones),
            channel=channel,
            overwrite=force,
            progress=lambda n, total: bar.update(n),
        )
    out.say(f"Wrote {output}, {describe_export(done)}")
    if done.tones is not None:
        middle = (done.tones.black + done.tones.white) / 2
        out.say(
            f"Black is {done.tones.black:.4g}, middle grey {middle:.4g}, "
            f"white {done.tones.white:.4g}"
        )
    out.result(
        output=output,
        shape=done.shape,
        channels=done.channels,
        rate=None if done.rate is None else float(done.rate),
        black=done.tones and done.tones.black,
        white=done.tones and done.tones.white,
        **more,
    )


def describe_export(done: Exported) -> str:
    """Return the size and the rate of a written file as text."""
    from kronfield.files import kind_of

    kind, shape = kind_of(done.path), done.shape
    if kind in ("image", "video") and len(shape) in (2, 3):
        size = f"{shape[-1]} x {shape[-2]} pixels"
        frames = (
            f"{shape[0]} {'frames' if kind == 'video' else 'pages'} of " if len(shape) == 3 else ""
        )
        return (
            frames
            + size
            + (f", {float(done.rate):.4g} per second" if kind == "video" and done.rate else "")
        )
    if kind == "audio" and done.rate:
        return f"{shape[0]} samples, {float(done.rate):g} per second"
    return " x ".join(map(str, shape)) + " samples"
