"""``kronfield demo``: the common tasks, on a photograph of scikit-image."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from kronfield.cli.common import PATH


@click.command(
    "demo",
    short_help="Try the common tasks on a photograph.",
    epilog="""\b
Examples:
  kronfield demo --output pictures --scale 2
""",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    default=Path("demo"),
    show_default=True,
    help="The folder to write to.",
)
@click.option(
    "--scale",
    type=click.IntRange(1, 16),
    default=4,
    show_default=True,
    help="How many times larger to render.",
)
def command(output: Path, scale: int) -> None:
    """Fit, render, inpaint and denoise a photograph; each command is printed as it is run."""
    from kronfield.files import sample_photograph, write_image

    output.mkdir(parents=True, exist_ok=True)
    photograph = sample_photograph()
    holes, scratched, noisy = _spoiled(photograph)
    for name, picture in (
        ("photograph", photograph),
        ("mask", holes),
        ("scratched", scratched),
        ("noisy", noisy),
    ):
        write_image(output / f"{name}.png", picture)
    click.echo(f"Wrote photograph.png, mask.png, scratched.png and noisy.png to {output}")
    for line in (
        "fit {}/photograph.png -o {}/photograph.field --dtype float16 --report {}/report --force",
        f"render {{}}/photograph.field -o {{}}/photograph-{scale}x.png --scale {scale} --force",
        "render {}/photograph.field -o {}/detail.png --crop row=64:144,column=176:256 --scale 8"
        " --force",
        "render {}/photograph.field -o {}/slope.png --derivative 0,1 --force",
        "inpaint {}/scratched.png --mask {}/mask.png -o {}/inpainted.png --force",
        "denoise {}/noisy.png -o {}/denoised.png --report {}/denoised-report --force",
        "denoise {}/noisy.png -o {}/denoised-thorough.png --thorough --force",
        "info {}/photograph.field",
    ):
        _run([part.replace("{}", output.as_posix()) for part in line.split()])
        if "--thorough" in line:
            _say_psnr(output, photograph)
    click.echo(f"\nOpen {output / 'report' / 'index.html'} for a report on the fit,")
    click.echo(f"and {output / 'denoised-report' / 'index.html'} for what was taken away.")


def _say_psnr(output: Path, photograph: Any) -> None:
    """Print how near to the photograph the noisy and the denoised pictures are."""
    from kronfield.files import read
    from kronfield.signals.measures import psnr

    noisy, clean, thorough = (
        psnr(read(output / f"{name}.png").values, photograph)
        for name in ("noisy", "denoised", "denoised-thorough")
    )
    click.echo(f"PSNR {noisy:.1f} dB -> {clean:.1f} dB, thorough {thorough:.1f} dB")


def _run(arguments: list[str]) -> None:
    """Print a command and run it."""
    from kronfield.cli import main

    click.echo(f"\n$ {shlex.join(['kronfield', *arguments])}")
    main.main(arguments, prog_name="kronfield", standalone_mode=False)


def _spoiled(photograph: Any) -> tuple[Any, Any, Any]:
    """Return a mask of damaged pixels, the damaged photograph, and the noisy photograph."""
    import numpy as np

    rng = np.random.default_rng(0)
    height, width = photograph.shape[:2]
    rows, columns = np.mgrid[:height, :width]
    holes = rng.random((height, width)) < 0.1
    for _ in range(12):
        y, x, angle = rng.random() * height, rng.random() * width, rng.random() * np.pi
        holes |= np.abs((rows - y) * np.cos(angle) + (columns - x) * np.sin(angle)) < 2
    scratched = np.where(holes[..., None], 1.0, photograph)
    noisy = photograph + 0.1 * rng.standard_normal(photograph.shape)
    return holes.astype(np.float32), scratched, noisy
