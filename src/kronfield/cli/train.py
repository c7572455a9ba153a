"""``kronfield train``: train a coordinate network on a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield.cli.common import (
    FIELD_SUFFIX,
    PATH,
    SOURCE,
    Failure,
    Output,
    check_output,
    default_output,
    given_options,
    output_options,
    size_text,
)
from kronfield.cli.sources import frames_option, signal_line, signal_to_fit, table_options

if TYPE_CHECKING:
    from kronfield.files import Signal
    from kronfield.signals.networks import SignalNetwork


@click.command(
    "train",
    short_help="Train a coordinate network on a file.",
    epilog="""\b
Examples:
  kronfield train photo.png --epochs 50
  kronfield train photo.png --combine simple --depth 2 --layer-width 32 --epochs 20 -o deep.field
  kronfield train photo.png -e gaussian:width=0.02 --epochs 40 --held-out 0.1 -o wide.field
  kronfield train photo.png --epochs 60 --checkpoint run.checkpoint --resume -o long.field
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="The field to write. Default: INPUT's name with -network.field.",
)
@click.option(
    "--combine",
    "encoding",
    type=click.Choice(["kronecker", "simple"]),
    default="kronecker",
    show_default=True,
    help="kronecker: all combinations of the features of the axes; simple: the features of axes "
    "and diagonals side by side.",
)
@click.option(
    "-e",
    "--encoding",
    "--embedder",
    "spec",
    metavar="NAME[:KEY=VALUE,...]",
    help="The features. Default: the paper's Gaussians, one per sample for kronecker, 128 of width "
    "0.006 for simple.",
)
@click.option(
    "--depth",
    type=click.IntRange(0, 64),
    help="Hidden layers. Default: 0 for kronecker, 4 for simple.",
)
@click.option(
    "--layer-width",
    "width",
    type=click.IntRange(1, 65536),
    default=256,
    show_default=True,
    help="Width of each hidden layer.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=2000,
    show_default=True,
    help="Number of passes over all samples.",
)
@click.option(
    "--rate",
    type=float,
    help="The learning rate. Default: 0.1 for one linear layer on kronecker, else 0.005.",
)
@click.option("--batch", type=click.IntRange(1), help="Samples per step. Default: all.")
@click.option(
    "--held-out",
    type=float,
    metavar="FRACTION",
    help="Fraction of the samples to hold out for validation, for example 0.1.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    help="Stop after this number of epochs without a lower held-out loss.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the initial weights, the batches and the held-out samples.",
)
@click.option(
    "--checkpoint",
    type=PATH,
    help="File for the state of the run. Default with --resume: beside the field.",
)
@click.option("--resume", is_flag=True, help="Continue from the checkpoint, if it exists.")
@table_options
@frames_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    output: Path | None,
    encoding: str,
    spec: str | None,
    depth: int | None,
    width: int,
    epochs: int,
    rate: float | None,
    batch: int | None,
    held_out: float | None,
    patience: int | None,
    seed: int,
    checkpoint: Path | None,
    resume: bool,
    columns: Any,
    coordinates: Any,
    frames: Any,
    force: bool,
    out: Output,
) -> None:
    """Train a coordinate network as the paper does: Adam, all samples at once.

    Ctrl-C ends the run and saves the best network so far, with exit code 130. For one linear layer,
    `kronfield fit` computes the solution in closed form, which is much faster.
    """
    target = output or default_output(source, f"-network{FIELD_SUFFIX}")
    kept = checkpoint or (target.with_suffix(".checkpoint") if resume else None)
    check_output(target, force=force or resume, field=True)
    _check_checkpoint(kept, allowed=resume or force)
    _need_torch()
    signal = signal_to_fit(source, out, columns=columns, coordinates=coordinates, frames=frames)
    _check_complete(signal)
    out.say(signal_line(signal))
    run = _network(signal, encoding, spec, depth, width, seed)
    model, scale = run.model, run.scale
    weights = model.parameter_count
    out.say(f"Training {weights} weights: {encoding} encoding, {model.depth} hidden layers")
    if kept is not None and not resume:
        kept.unlink(missing_ok=True)  # allowed by --force
    from kronfield.nn import train
    from kronfield.signals.fit import keep_made

    done = train(
        model,
        run.data,
        epochs=epochs,
        rate=rate,
        batch=batch,
        held_out=held_out,
        patience=patience,
        seed=seed,
        checkpoint=kept,
        resume=resume,
        progress=not out.quiet,
    )
    field, report = run.field(done), _report(done, scale, weights)
    made = {"command": "kronfield train", "options": given_options(ctx), "version": kf.__version__}
    keep_made(field, {**made, "report": report})
    saved = field.save(target)
    where = "at samples held out" if held_out else "at the samples"
    out.say(
        f"{done.epochs} epochs in {done.seconds:.1f} s, stopped by {done.stopped_by}; "
        f"best: epoch {done.best_epoch}, PSNR {done.psnr:.2f} dB {where}"
    )
    out.say(f"Wrote {target}, {size_text(saved.bytes)}")
    out.result(input=source, output=target, bytes=saved.bytes, checkpoint=kept, **report)
    if done.stopped_by == "interrupt":
        ctx.exit(130)


def _check_checkpoint(path: Path | None, *, allowed: bool) -> None:
    """Refuse an existing checkpoint, unless the run resumes from it or may overwrite it."""
    if path is not None and path.exists() and not allowed:
        remedy = "Continue with --resume, or overwrite it with --force"
        raise Failure(f"--checkpoint: got {path}, which exists. {remedy}")


def _check_complete(signal: Signal) -> None:
    """Refuse grids with missing samples."""
    from kronfield.signals.fit import missing_samples

    if signal.points is None and missing_samples(signal).any():
        raise Failure(
            "train: some samples are missing (NaN); expected none. "
            "Fill them in first: kronfield inpaint"
        )


def _network(
    signal: Signal,
    encoding: str,
    spec: str | None,
    depth: int | None,
    width: int,
    seed: int,
) -> SignalNetwork:
    """Return the network that the options describe; the defaults are those of the paper."""
    from kronfield.cli.parsing import parse_embedder
    from kronfield.signals.networks import SIMPLE_DEPTH, SignalNetwork, paper_encoding

    if depth is None:
        depth = 0 if encoding == "kronecker" else SIMPLE_DEPTH
    run = SignalNetwork(signal)
    embedders = (
        None if spec is None else [parse_embedder(spec, None, samples=n) for n in run.counts]
    )
    run.build(paper_encoding(encoding, run.counts, embedders), depth, width, seed=seed)
    return run


def _report(done: Any, scale: float, weights: int) -> dict[str, Any]:
    """Return the results of a run; ``scale`` converts its loss to the units of the values."""
    return {
        "epochs": done.epochs,
        "stopped_by": done.stopped_by,
        "best_epoch": done.best_epoch,
        "best_loss": done.best_loss * scale**2,
        "psnr": done.psnr,
        "seconds": done.seconds,
        "weights": weights,
    }


def _need_torch() -> None:
    try:
        import kronfield.nn  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Failure(
            "train: needs PyTorch. Install it with: pip install 'kronfield[torch]'"
        ) from error
