"""``kronfield resize``: fit and render in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kronfield.cli.common import (
    PATH,
    SOURCE,
    Failure,
    Output,
    check_output,
    default_output,
    output_options,
)
from kronfield.cli.parsing import Numbers, Size
from kronfield.cli.sources import fit_line, frames_option, grid_only, signal_line, signal_to_fit


@click.command(
    "resize",
    short_help="Resize a picture, video or volume.",
    epilog="""\b
Examples:
  kronfield resize photo.png --scale 4
  kronfield resize photo.png --size 320x240 -o thumbnail.jpg
  kronfield resize clip.mp4 --scale 2 -o clip-large.mp4
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="The file to write. Default: INPUT's name with the size added.",
)
@click.option(
    "--scale",
    type=Numbers("4, or 2,3"),
    metavar="S[,S...]",
    help="Factor on the size; below 1 is smaller.",
)
@click.option(
    "--size",
    type=Size(),
    metavar="WxH|N[,N...]",
    help="A frame, width x height, into which the picture fits undistorted; or one number per "
    "axis; or the longest side.",
)
@click.option(
    "--stretch", is_flag=True, help="Fill WxH exactly, instead of fitting into it undistorted."
)
@frames_option
@output_options
def command(
    source: str,
    output: Path | None,
    scale: Any,
    size: Any,
    stretch: bool,
    frames: Any,
    force: bool,
    out: Output,
) -> None:
    """Resize a picture, video or volume: fit a field and render it.

    The number of frames of a video does not change; for other frame rates use `kronfield render`.
    Smaller pictures are averages over cells, so that edges are not jagged.
    """
    from kronfield.cli.render import write_view
    from kronfield.files.kinds import split_member, suffix_of
    from kronfield.signals.fit import fit_signal
    from kronfield.signals.view import view

    if (scale is None) == (size is None):
        raise Failure("resize: expected either --scale or --size. For example: --scale 2")
    for factor in scale or ():
        if factor <= 0:
            raise Failure(
                f"--scale: got {factor:g}; expected numbers above 0. 2 is twice as large, 0.5 half"
            )
    suffix = suffix_of(split_member(source)[0])
    target = output or default_output(
        source, f"-{_label(scale, size)}{'.png' if suffix == '.gif' else suffix}"
    )
    check_output(target, force=force)
    signal = signal_to_fit(source, out, frames=frames)
    grid_only(signal, "resize")
    out.say(signal_line(signal))
    with out.working("Fitting"):
        field = fit_signal(signal, ridge=0.0)  # keeps noise: use denoise to remove it
        text = fit_line(field)
    out.say(text)
    where = view(
        field,
        size=tuple(size) if stretch and isinstance(size, tuple) else size,
        scale=scale[0] if scale is not None and len(scale) == 1 else scale,
        upright=True,
    )
    write_view(field, where, target, out, force=force, input=source)


def _label(scale: Any, size: Any) -> str:
    if scale is not None:
        return "x".join(f"{factor:g}" for factor in scale) + ("x" if len(scale) == 1 else "")
    return (
        str(size)
        if isinstance(size, int)
        else "x".join(map(str, size[::-1] if len(size) == 2 else size))
    )
