"""``kronfield compare``: embedders and standard interpolation on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kronfield.cli.common import PATH, SOURCE, Output, default_output, output_options
from kronfield.cli.sources import frames_option, signal_line, signal_to_fit, table_options

if TYPE_CHECKING:
    from kronfield.files import Signal
    from kronfield.signals.contest import Contestant, GridContest, PointContest


@click.command(
    "compare",
    short_help="Compare embedders and interpolation methods on a file.",
    epilog="""\b
Examples:
  kronfield compare photo.png
  kronfield compare photo.png -e gaussian -e triangle --picture two.png
  kronfield compare sound.wav -e gaussian --no-picture --json
  kronfield compare stations.csv --columns temperature -e gaussian
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-e",
    "--encoding",
    "names",
    multiple=True,
    metavar="NAME",
    help="An embedder to fit; repeat for more. Default: all.",
)
@click.option(
    "--picture",
    type=PATH,
    help="The picture of all results side by side. Default: INPUT's name with -compare.png.",
)
@click.option("--no-picture", is_flag=True, help="Draw nothing.")
@table_options
@frames_option
@output_options
def command(
    source: str,
    names: tuple[str, ...],
    picture: Path | None,
    no_picture: bool,
    columns: Any,
    coordinates: Any,
    frames: Any,
    force: bool,
    out: Output,
) -> None:
    """Compare how well embedders and standard interpolation predict held-out samples.

    Each embedder, and nearest, linear and cubic interpolation, predicts the held-out samples from
    the others. On grids, every second sample of each axis is kept and all others are held out. Of
    tables, a fifth of the points is held out. PSNR is measured at the held-out samples, SSIM on the
    whole grid. Parameters are the numbers that a method stores.
    """
    from kronfield.analysis.presets import kind_named
    from kronfield.signals.contest import EMBEDDERS

    for name in names:
        kind_named(name)
    target = None if no_picture else picture or default_output(source, "-compare.png")
    if target is not None:
        from kronfield.plots import check_target

        check_target(target, overwrite=force)
    signal = signal_to_fit(source, out, columns=columns, coordinates=coordinates, frames=frames)
    out.say(signal_line(signal))
    contest = _contest(signal)
    chosen = names or EMBEDDERS
    found: list[Contestant] = []
    with out.bar("Comparing", len(contest.names(chosen))) as bar:
        for one in contest.run(chosen):
            found.append(one)
            bar.update(len(found), one.name)
    if not out.quiet and not out.as_json:
        _print(found)
    if target is not None:
        with out.working("Drawing"):
            _draw(target, found, contest, signal, force)
        out.say(f"Wrote {target}")
    out.result(
        input=source,
        picture=target,
        results=[
            {
                "name": one.name,
                "settings": one.settings,
                "psnr": one.psnr,
                "ssim": one.ssim,
                "parameters": one.parameters,
                "seconds": one.seconds,
            }
            for one in found
        ],
    )


def _contest(signal: Signal) -> GridContest | PointContest:
    from kronfield.cli.common import Failure
    from kronfield.signals.contest import GridContest, PointContest
    from kronfield.signals.fit import missing_samples

    if signal.points is not None:
        return PointContest(signal.points, signal.values)
    if missing_samples(signal).any():
        raise Failure(
            "compare: some samples are missing (NaN); expected none. "
            "Fill them in first: kronfield inpaint"
        )
    return GridContest(signal.values, channels=signal.channels, axes=signal.axes)


def _print(found: list[Contestant]) -> None:
    from kronfield.cli.printing import print_table

    best = max(range(len(found)), key=lambda i: found[i].psnr)
    rows = [
        (
            one.name,
            one.settings,
            f"{one.psnr:.2f}",
            "-" if one.ssim is None else f"{one.ssim:.4f}",
            str(one.parameters),
            f"{one.seconds:.2f}",
        )
        for one in found
    ]
    headings = ("", "settings", "PSNR in dB", "SSIM", "parameters", "seconds")
    print_table("Prediction of held-out samples", headings, rows, left=2, bold=best)


def _draw(target: Path, found: list[Contestant], contest: Any, signal: Signal, force: bool) -> None:
    from kronfield._core.frames import cell_centres
    from kronfield.plots import save_contest
    from kronfield.signals.contest import SHOWN_MAP, PointContest

    axes, unit = signal.description.axes or [""], signal.description.units or [""]
    label = f"{axes[0]} [{unit[0]}]" if unit[0] else axes[0]
    channel = signal.description.first_channel
    if isinstance(contest, PointContest):
        line = None
        if len(contest.domain) == 1:
            line = cell_centres(*contest.domain[0], SHOWN_MAP)
        save_contest(
            target, found, line=line, picture=False, names=(label, channel), overwrite=force
        )
        return
    picture = signal.description.levels is not None and signal.kind != "audio"
    save_contest(
        target,
        found,
        truth=contest.truth,
        line=contest.line,
        picture=picture,
        names=(label, channel),
        overwrite=force,
    )
