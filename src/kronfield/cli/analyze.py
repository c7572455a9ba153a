"""``kronfield analyze``: compare embedders before anything is fitted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield.cli.common import PATH, Output, output_options

if TYPE_CHECKING:
    from kronfield.embedders import Embedder

# Allowed numbers of samples and features: a dense matrix of the largest size fits into memory.
_COUNT = click.IntRange(1, 8192)


@click.command(
    "analyze",
    short_help="Compare embedders, in theory.",
    epilog="""\b
Examples:
  kronfield analyze
  kronfield analyze -e triangle:width=0.02 -e sine:frequency=2 --plot analysis.png
  kronfield analyze -e gaussian:width=0.01 -e rff:scale=11.25,seed=1 --samples 256
  kronfield analyze --samples 128 --size 128 --json
""",
)
@click.option(
    "-e",
    "--encoding",
    "--embedder",
    "specs",
    multiple=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="An embedder to analyze; repeat for more. Default: one of each kind.",
)
@click.option(
    "-n", "--samples", type=_COUNT, default=512, show_default=True, help="Evenly spaced samples N."
)
@click.option(
    "-k",
    "--size",
    type=_COUNT,
    default=512,
    show_default=True,
    help="Features K of embedders without a size.",
)
@click.option("--plot", type=PATH, help="Draw rank and similarity curves to this file.")
@output_options
def command(
    specs: tuple[str, ...], samples: int, size: int, plot: Path | None, force: bool, out: Output
) -> None:
    """Compare embedders: stable rank (memorisation) and distance preservation (generalisation)."""
    from kronfield.cli.parsing import parse_embedder

    embedders = [parse_embedder(spec, size) for spec in specs] or kf.standard_embedders(size)
    if plot is not None:
        from kronfield.plots import check_target

        check_target(plot, overwrite=force)
    rows: list[dict[str, Any]] = []
    with out.bar("Analyzing", len(embedders)) as bar:
        for embedder in embedders:
            rows += kf.compare([embedder], samples)
            bar.update(len(rows))
    if out.as_json:
        click.echo(json.dumps(rows, indent=2))
    elif not out.quiet:
        _print_comparison(rows)
    if plot is not None:
        _plot_comparison(plot, embedders, samples, force, out)
        if not out.quiet:
            click.echo(f"Wrote {plot}", err=out.as_json)


def _print_comparison(rows: list[dict[str, Any]]) -> None:
    from kronfield.cli.printing import print_table

    cells = []
    for row in rows:
        needed = row["features_needed"]
        cells.append(
            (
                row["embedder"],
                ", ".join(f"{key} {_short(value)}" for key, value in row["settings"].items()),
                _pair(row["stable_rank"], row["stable_rank_theory"], 1),
                str(row["rank"]),
                _pair(row["distance_preservation"], row["distance_preservation_theory"], 3),
                f"{row['range']:.3g}",
                "no limit" if needed is None else str(needed),
            )
        )
    headings = (
        "embedder",
        "settings",
        "stable rank",
        "rank",
        "distance\npreservation",
        "range\nD>=D(0)/1000",
        "features\nneeded",
    )
    title = f"{rows[0]['samples']} samples on the unit interval; in brackets: theory"
    print_table(title, headings, cells, left=2)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pair(measured: float, theory: float | None, digits: int) -> str:
    return (
        f"{measured:.{digits}f} (    -)"
        if theory is None
        else f"{measured:.{digits}f} ({theory:5.{digits}f})"
    )


def _plot_comparison(
    path: Path, embedders: list[Embedder], samples: int, force: bool, out: Output
) -> None:
    import numpy as np

    from kronfield.plots import save_comparison

    counts = sorted({2**i for i in range(2, math.floor(math.log2(samples)) + 1)} | {samples})
    path.parent.mkdir(parents=True, exist_ok=True)
    # denser at short distances, where the similarity of local embedders falls off
    distances = np.concatenate([np.linspace(0.0, 0.1, 101), np.linspace(0.105, 1.0, 180)])
    ranks: dict[str, kf.RankCurve] = {}
    similarities: dict[str, kf.SimilarityCurve] = {}
    with out.bar("Drawing", len(embedders)) as bar:
        for i, embedder in enumerate(embedders):
            parameter = embedder.shape_parameter
            label = type(embedder).__name__ + (
                f" {parameter} {getattr(embedder, parameter):.4g}" if parameter else ""
            )
            label += (
                f" ({sum(known.startswith(label) for known in ranks) + 1})"
                if label in ranks
                else ""
            )
            ranks[label] = kf.rank_curve(embedder, counts)
            similarities[label] = kf.similarity_curve(embedder, distances)
            bar.update(i + 1)
    save_comparison(path, ranks, similarities, overwrite=force)
