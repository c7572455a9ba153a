"""``kronfield denoise``: remove noise from a picture, video, volume, sound or array."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield.cli.common import (
    PATH,
    SOURCE,
    Failure,
    Output,
    check_output,
    default_output,
    given_options,
    output_options,
)
from kronfield.cli.parsing import Numbers
from kronfield.cli.sources import frames_option, grid_only, signal_line, signal_to_fit
from kronfield.fitting import settings as defaults

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.files import Signal


@click.command(
    "denoise",
    short_help="Remove noise.",
    epilog="""\b
Examples:
  kronfield denoise noisy.png
  kronfield denoise noisy.png --strength 3 -o smoother.png
  kronfield denoise noisy.png --roughness 0.5,0 -o by-hand.png
  kronfield denoise hiss.wav
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-o", "--output", type=PATH, help="The file to write. Default: INPUT's name with -denoised."
)
@click.option(
    "--strength",
    type=float,
    default=1.0,
    help="Factor on the chosen penalty: above 1 is smoother.",
)
@click.option(
    "--roughness",
    type=Numbers("0.5,0", count=2),
    metavar="A,B",
    help="Weights of squared first and second derivatives. Default: chosen.",
)
@frames_option
@click.option(
    "--report",
    type=PATH,
    metavar="DIR",
    help="Write pictures and a page about the fit to this folder.",
)
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    output: Path | None,
    strength: float,
    roughness: Any,
    frames: Any,
    report: Path | None,
    force: bool,
    out: Output,
) -> None:
    """Remove noise from a picture, video, volume, sound or array.

    A penalty on slopes or on curvature smooths the signal. Which of them, and its weight, are
    chosen by generalised cross-validation; for sound and other long lines by the error at held-out
    samples. The estimated noise is printed.
    """
    from kronfield.files import write
    from kronfield.files.kinds import split_member, suffix_of
    from kronfield.signals.axes import described
    from kronfield.signals.fit import noise_level, remember, straight_colours

    if strength <= 0:
        raise Failure(
            f"--strength: got {strength:g}; expected a number above 0. 1 keeps the chosen penalty"
        )
    suffix = suffix_of(split_member(source)[0])
    target = output or default_output(source, f"-denoised{'.png' if suffix == '.gif' else suffix}")
    check_output(target, force=force)
    if report is not None:
        from kronfield.cli.picture_report import check_folder

        check_folder(report, force=force)
    signal = signal_to_fit(source, out, penalised=True, frames=frames)
    grid_only(signal, "denoise")
    out.say(signal_line(signal))
    with out.working("Denoising"):
        field = _smoothed(signal, strength, roughness)
        found = field.on_grid()
        known = described(field)
        found = straight_colours(found) if known.multiplied else found
        left = found - signal.values if known.points is not None else None
        noise = noise_level(field) if left is None else float(left.std())
    write(target, found, signal.info, overwrite=force)
    used: Any = field.report
    out.say(
        f"{_noise_text(signal, noise)}; "
        f"roughness ({used.roughness[0]:.3g}, {used.roughness[1]:.3g}), {used.seconds:.2f} s"
    )
    out.say(f"Wrote {target}")
    if report is not None:
        from kronfield.cli.picture_report import write_fit_report

        remember(field, "kronfield denoise", given_options(ctx), kf.__version__)
        write_fit_report(report, signal, field, out, force=force)
    out.result(
        input=source,
        output=target,
        noise=noise,
        roughness=used.roughness,
        seconds=used.seconds,
        report_folder=report,
    )


def _noise_text(signal: Signal, noise: float | None) -> str:
    if not noise:
        return "No noise found"
    levels = signal.description.levels
    if signal.kind == "audio":
        return f"Noise: {20 * math.log10(noise):.1f} dB of full scale"
    return (
        f"Noise: {noise * levels:.3g} of {levels} levels" if levels else f"Noise: {noise:.4g}"
    ) + " (standard deviation)"


def _smoothed(signal: Signal, strength: float, roughness: Any) -> Field:
    import numpy as np

    from kronfield.signals.fit import fit_signal, missing_samples, value_range

    shape = signal.values.shape[:-1] if signal.channels else signal.values.shape
    decided = defaults.DEFAULT.signals
    if len(shape) == 1 and shape[0] > decided.longest_line:
        points = (np.arange(shape[0], dtype=np.float64) if signal.axes is None else signal.axes[0])[
            :, None
        ]
        field = kf.fit_points(points, signal.values, roughness=roughness)
        used: Any = field.report
        if strength != 1:
            first, second = used.roughness
            field = kf.fit_points(
                points,
                signal.values,
                roughness=(first * strength, second * strength),
                units=used.units,
            )
        field.with_axes([points[:, 0]])
        known = replace(signal.description, range=value_range(signal.values), points=shape[0])
        field.info = known.to_dict()
        return field
    if max(shape) > decided.longest_smoothed:
        raise Failure(
            f"denoise: got an axis of {max(shape)} samples; expected at most "
            f"{decided.longest_smoothed}. Denoise it in parts"
        )
    if missing_samples(signal).any():
        raise Failure(
            "denoise: some samples are missing (NaN); expected none. "
            "Fill them in first: kronfield inpaint"
        )
    field = fit_signal(signal, roughness="gcv" if roughness is None else roughness)
    if strength != 1:
        first, second = field.report.roughness  # type: ignore[union-attr]
        field = fit_signal(signal, roughness=(first * strength, second * strength))
    return field
