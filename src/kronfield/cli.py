"""The command line; the only file that prints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
import numpy as np

import kronfield as kf
from kronfield._arrays import problem
from kronfield._atomic import replacing

# Samples and features that an analysis takes: a dense matrix of both fits into memory.
_COUNT = click.IntRange(1, 8192)

# Names as people type them, and as the paper shortens them.
_KINDS: dict[str, type[kf.Embedder]] = {
    "impulse": kf.Impulse,
    "rectangle": kf.Rectangle,
    "triangle": kf.Triangle,
    "tri": kf.Triangle,
    "gaussian": kf.Gaussian,
    "gau": kf.Gaussian,
    "sine": kf.Sine,
    "square": kf.Square,
    "randomfourier": kf.RandomFourier,
    "rff": kf.RandomFourier,
    "linearfourier": kf.LinearFourier,
    "linf": kf.LinearFourier,
    "logfourier": kf.LogFourier,
    "logf": kf.LogFourier,
}


class _InputFailure(click.ClickException):
    """What a user can put right: one line on standard error."""

    exit_code = 2


class _Commands(click.Group):
    """A group whose commands turn what a user can put right into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (kf.InputError, OSError) as error:
            raise _InputFailure(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kf.__version__, prog_name="kronfield")
def main() -> None:
    """Turn samples of a signal into a continuous field."""


@main.command(
    epilog="""\b
Examples:
  kronfield analyze
  kronfield analyze --plot analysis.png
  kronfield analyze -e gaussian:width=0.01 -e rff:scale=11.25,seed=1 --samples 256
  kronfield analyze --json
"""
)
@click.option(
    "-e",
    "--embedder",
    "specs",
    multiple=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="An embedder to analyze; repeat for more. Default: one of each kind.",
)
@click.option("-n", "--samples", type=_COUNT, default=512, show_default=True, help="Evenly spaced samples N.")
@click.option("-k", "--size", type=_COUNT, default=512, show_default=True, help="Features K, where not given.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw rank and similarity curves to this file.")
@click.option("--force", is_flag=True, help="Overwrite the plot if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def analyze(specs: tuple[str, ...], samples: int, size: int, plot: Path | None, force: bool, as_json: bool) -> None:
    """Compare embedders: stable rank (memorisation) and distance preservation (generalisation)."""
    embedders = [_parse_embedder(spec, size) for spec in specs] or kf.standard_embedders(size)
    if plot is not None:
        from kronfield.plots import check_target

        check_target(plot, overwrite=force)
    rows = [row for embedder in _progress(embedders, "Analyzing") for row in kf.compare([embedder], samples)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_comparison(rows)
    if plot is not None:
        _plot_comparison(plot, embedders, samples, force)
        click.echo(f"Wrote {plot}", err=as_json)


@main.command(
    epilog="""\b
Examples:
  kronfield demo
  kronfield demo --output pictures --scale 2
"""
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="A folder.")
@click.option("--scale", type=click.IntRange(1, 16), default=4, show_default=True, help="How many times larger to render.")
def demo(output: Path, scale: int) -> None:
    """Fit a photograph that ships with scikit-image, and render it larger: the pictures and a report."""
    from kronfield.files import sample_photograph, write_image

    photograph = sample_photograph()
    height, width = photograph.shape[:2]
    output.mkdir(parents=True, exist_ok=True)
    field = kf.fit(photograph)
    large = np.clip(field.on_grid((scale * height, scale * width)), 0, 1)
    # a detail, as pixels and as the field, side by side
    rows, columns, zoom = slice(64, 144), slice(176, 256), 8
    pixels = np.kron(photograph[rows, columns], np.ones((zoom, zoom, 1), np.float32))
    axes = [part.start - 0.5 + (np.arange(pixels.shape[i]) + 0.5) / zoom for i, part in enumerate((rows, columns))]
    gap = np.ones((pixels.shape[0], 2 * zoom, 3), np.float32)
    detail = np.concatenate([pixels, gap, np.clip(field.on_grid(axes), 0, 1)], axis=1)
    for name, image in (("photograph.png", photograph), (f"photograph-{scale}x.png", large), ("detail.png", detail)):
        write_image(output / name, image)
        click.echo(f"Wrote {output / name}, {image.shape[1]} x {image.shape[0]} pixels")
    saved = field.save(output / "photograph.field", dtype="float16")
    click.echo(f"Wrote {saved.path}, {saved.bytes / 1e6:.1f} MB; float16 costs {saved.largest_error:.1g} at most")
    with replacing(output / "report.txt") as temporary:
        temporary.write_text(f"{field.report}\n", encoding="utf-8")
    click.echo(f"Wrote {output / 'report.txt'}\n\n{field.report}")


def _parse_embedder(spec: str, size: int) -> kf.Embedder:
    """Return the embedder that ``NAME[:KEY=VALUE,...]`` says."""
    name, _, settings = spec.partition(":")
    kind = _KINDS.get(name.strip().lower())
    if kind is None:
        raise problem("--embedder", repr(name), f"one of {', '.join(_KINDS)}", "For example: gaussian:width=0.01")
    values: dict[str, Any] = {"size": size}
    for part in filter(None, settings.split(",")):
        key, equals, text = part.partition("=")
        values[key.strip()] = _number(text.strip())
        if not equals:
            raise problem("--embedder", repr(part), "KEY=VALUE", f"For example: {name}:width=0.01")
    try:
        return kind(**values)
    except TypeError as error:
        if isinstance(error, kf.InputError):
            raise
        needed = f"size and {kind.shape_parameter}" if kind.shape_parameter else "size"
        raise problem("--embedder", repr(spec), f"the settings of {kind.__name__}: {needed}", str(error)) from error


def _number(text: str) -> int | float | str:
    """Return an int or a float if ``text`` is one, else ``text``."""
    for kind in (int, float):
        try:
            return kind(text[:400])
        except ValueError:
            continue
    return text[:400]


def _print_comparison(rows: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    title = f"{rows[0]['samples']} samples on the unit interval; in brackets: theory"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("embedder", no_wrap=True)
    table.add_column("settings", overflow="fold")
    for heading in ("stable rank", "rank", "distance\npreservation", "range\nD>=D(0)/1000", "features\nneeded"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        needed = row["features_needed"]
        table.add_row(
            row["embedder"],
            ", ".join(f"{key} {_short(value)}" for key, value in row["settings"].items()),
            _pair(row["stable_rank"], row["stable_rank_theory"], 1),
            str(row["rank"]),
            _pair(row["distance_preservation"], row["distance_preservation_theory"], 3),
            f"{row['range']:.3g}",
            "no limit" if needed is None else str(needed),
        )
    console = Console()
    console.width = max(console.width, 110) if not console.is_terminal else console.width
    console.print(table)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pair(measured: float, theory: float | None, digits: int) -> str:
    return f"{measured:.{digits}f} (    -)" if theory is None else f"{measured:.{digits}f} ({theory:5.{digits}f})"


def _plot_comparison(path: Path, embedders: list[kf.Embedder], samples: int, force: bool) -> None:
    from kronfield.plots import save_comparison

    counts = sorted({2**i for i in range(2, math.floor(math.log2(samples)) + 1)} | {samples})
    path.parent.mkdir(parents=True, exist_ok=True)
    # finer where local embedders fall off
    distances = np.concatenate([np.linspace(0.0, 0.1, 101), np.linspace(0.105, 1.0, 180)])
    ranks: dict[str, kf.RankCurve] = {}
    similarities: dict[str, kf.SimilarityCurve] = {}
    for embedder in _progress(embedders, "Drawing"):
        parameter = embedder.shape_parameter
        label = type(embedder).__name__ + (f" {parameter} {getattr(embedder, parameter):.4g}" if parameter else "")
        label += f" ({sum(known.startswith(label) for known in ranks) + 1})" if label in ranks else ""
        ranks[label] = kf.rank_curve(embedder, counts)
        similarities[label] = kf.similarity_curve(embedder, distances)
    save_comparison(path, ranks, similarities, overwrite=force)


def _progress(items: list[Any], title: str) -> Any:
    """Iterate with a progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, title, console=console, transient=True, disable=not console.is_terminal)
