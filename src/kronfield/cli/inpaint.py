"""``kronfield inpaint``: fill in the missing pixels of a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kronfield.cli.common import (
    PATH,
    SOURCE,
    Failure,
    Output,
    check_output,
    default_output,
    given_options,
    output_options,
    read_signal,
)
from kronfield.cli.parsing import Missing, Numbers
from kronfield.cli.sources import frames_option, grid_only, signal_line, signal_to_fit

if TYPE_CHECKING:
    from kronfield.files import Signal


@click.command(
    "inpaint",
    short_help="Fill in missing pixels.",
    epilog="""\b
Examples:
  kronfield inpaint scratched.png --mask mask.png
  kronfield inpaint scratched.png --missing 0 -o filled.png
  kronfield inpaint scratched.png --mask mask.png --smooth -o smooth.png
  kronfield inpaint scratched.png --mask mask.png --report filled -o seen.png
  kronfield inpaint gaps.tif --missing nan
""",
)
@click.argument("source", metavar="IMAGE", type=SOURCE)
@click.option(
    "--mask",
    "mask_path",
    type=SOURCE,
    help="A picture of the same size, white where pixels are missing.",
)
@click.option("--invert", is_flag=True, help="Pixels are missing where the mask is black.")
@click.option(
    "--missing",
    type=Missing(),
    metavar="VALUE",
    help="The value of missing pixels: a level (0), a colour (255,0,255), nan, or transparent.",
)
@click.option(
    "-o", "--output", type=PATH, help="The file to write. Default: IMAGE's name with -inpainted."
)
@click.option(
    "--smooth", is_flag=True, help="Write the field everywhere, not only where pixels were missing."
)
@click.option(
    "--roughness",
    type=Numbers("0,1e-5", count=2),
    metavar="A,B",
    help="Weights of squared first and second derivatives. Default: chosen.",
)
@frames_option
@click.option(
    "--report",
    type=PATH,
    metavar="DIR",
    help="Write a page to this folder: before with the holes marked, after, and the expected "
    "error, which takes a second fit.",
)
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    mask_path: str | None,
    invert: bool,
    missing: Any,
    output: Path | None,
    smooth: bool,
    roughness: Any,
    frames: Any,
    report: Path | None,
    force: bool,
    out: Output,
) -> None:
    """Fill in missing pixels of a picture, or samples of a video, volume, sound or array.

    Pixels that are not missing stay unchanged, unless --smooth is given. With --missing VALUE and
    --mask, pixels that either option marks are missing. NaN is always missing.
    """
    import numpy as np

    from kronfield.files import write
    from kronfield.files.kinds import split_member, suffix_of
    from kronfield.signals.axes import described
    from kronfield.signals.fit import fit_signal, straight_colours

    suffix = suffix_of(split_member(source)[0])
    target = output or default_output(source, f"-inpainted{'.png' if suffix == '.gif' else suffix}")
    check_output(target, force=force)
    if report is not None:
        from kronfield.cli.picture_report import check_folder

        check_folder(report, force=force)
    started = time.perf_counter()
    signal = signal_to_fit(source, out, penalised=True, frames=frames)
    grid_only(signal, "inpaint")
    holes = _holes(signal, mask_path, invert, missing, out)
    count = int(holes.sum())
    out.say(signal_line(signal))
    if count == 0 and mask_path is None and missing is None:
        raise Failure("inpaint: expected --mask MASK or --missing VALUE. For example: --missing 0")
    if count in (0, holes.size):
        which = "no sample is" if count == 0 else "all samples are"
        raise Failure(f"{source}: {which} missing; expected some. Check --mask and --missing")
    with out.working(f"Filling {count:,} of {holes.size:,} samples"):
        field = fit_signal(signal, roughness=roughness, missing=holes)
        found = field.on_grid()
        found = straight_colours(found) if described(field).multiplied else found
        wide = holes[..., None] if signal.channels else holes
        result = found if smooth else np.where(wide, found, signal.values)
    write(target, result, signal.info, overwrite=force)
    out.say(
        f"Wrote {target}: {count} of {holes.size} samples filled in"
        f"{', all smoothed' if smooth else ''}"
    )
    seconds, error = time.perf_counter() - started, None
    if report is not None:
        from kronfield.signals.fill import expected_error

        with out.working("Measuring the error"):
            error = expected_error(signal, holes, roughness=roughness)
        facts = _facts(signal, count, holes.size, error, given_options(ctx), seconds)
        _write_report(report, signal, holes, result, facts, out, force=force)
    out.result(
        input=source,
        output=target,
        filled=count,
        samples=holes.size,
        expected_error=error,
        seconds=seconds,
        report_folder=report,
    )


def _facts(
    signal: Signal,
    count: int,
    total: int,
    error: float | None,
    options: dict[str, Any],
    seconds: float,
) -> list[tuple[str, str]]:
    """Return the names and values of a report."""
    import kronfield as kf

    levels = signal.description.levels if signal.kind != "audio" else None
    if error is None:
        text = "not known: too few samples are there to leave some out"
    elif levels:
        text = f"{error * levels:.3g} of {levels} levels rms"
    else:
        text = f"{error:.4g} rms"
    given = " ".join(f"--{name.replace('_path', '')} {value}" for name, value in options.items())
    return [
        ("command", f"kronfield inpaint {given}"),
        ("filled in", f"{count:,} of {total:,} samples, {count / total:.1%}"),
        ("expected error", f"{text}, at known samples under the moved mask"),
        ("time", f"{seconds:.2f} s with kronfield {kf.__version__}"),
    ]


def _write_report(
    folder: Path,
    signal: Signal,
    holes: Any,
    result: Any,
    facts: list[tuple[str, str]],
    out: Output,
    *,
    force: bool,
) -> None:
    from kronfield.signals.report.changes import Middle, changed, write_change_report

    rate: Any = signal.description.rate
    middle = Middle(holes.shape, signal.description)
    with out.working("Drawing the report"):
        before, after, marked = (middle.of(x[middle.picks]) for x in (signal.values, result, holes))
        found = changed(middle, before, after, marked, float(rate or 1))
        title = f"{signal.description.source or 'Samples'}, filled in by kronfield"
        written = write_change_report(folder, title, facts, found, overwrite=force)
    out.say(f"Wrote {written[-1]} and {len(written) - 1} pictures beside it")


def _holes(signal: Signal, mask_path: str | None, invert: bool, missing: Any, out: Output) -> Any:
    """Return where samples are NaN, masked, or equal to the value of missing samples."""
    from kronfield.signals.fit import missing_samples

    known = missing_samples(signal)
    if missing not in (None, "nan"):  # NaN is included already
        known = known | _with_value(signal, missing)
    if mask_path is None:
        return known
    masked = _mask(read_signal(mask_path, out), mask_path, known.shape, invert)
    holes = known | masked
    count, other = int(holes.sum()), int((known | ~masked).sum())
    if 2 * count > holes.size and other < count and not out.quiet:
        remedy = "did you mean to leave out --invert?" if invert else "did you mean --invert?"
        click.echo(f"Warning: {count:,} of {holes.size:,} samples are missing; {remedy}", err=True)
    return holes


def _mask(mask: Signal, path: str, shape: tuple[int, ...], invert: bool) -> Any:
    """Return where a mask is white; a single picture applies to all frames of a video."""
    import numpy as np

    values = mask.values
    if mask.channels:
        colours = [i for i, name in enumerate(mask.description.channels or []) if name != "alpha"]
        values = values[..., colours].mean(axis=-1)
    if values.shape != shape and values.shape != shape[1:]:
        got, wanted = (" x ".join(map(str, one)) for one in (values.shape, shape))
        raise Failure(
            f"--mask: got {path} of {got} pixels; expected {wanted}, the size of the picture. "
            "Resize the mask"
        )
    if values.max() > 1:
        raise Failure(
            f"--mask: got {path} with values up to {values.max():g}; expected 0 to 1. "
            "Save it as 8 bit or as bool"
        )
    white = (values < 0.5) if invert else (values >= 0.5)
    return np.broadcast_to(white, shape)


def _with_value(signal: Signal, missing: Any) -> Any:
    """Return where samples have the value of missing samples: numbers, or transparent."""
    from kronfield.signals.fit import INVISIBLE

    if missing != "transparent":
        return _equal(signal, missing)
    if not signal.description.has_alpha:
        raise Failure(
            "--missing: got transparent for a picture without alpha; expected a value. "
            "For example: 0"
        )
    return signal.values[..., -1] <= INVISIBLE


def _equal(signal: Signal, missing: Sequence[float]) -> Any:
    """Return where samples are within half a level of a number, or of a number per channel.

    Alpha is compared only if a number is given for it too.
    """
    import numpy as np

    levels, values = signal.description.levels, signal.values
    wanted = np.array(missing, dtype=np.float64) / (levels or 1)
    near = 0.5 / levels if levels else 0.0
    if not signal.channels:
        if len(wanted) > 1:
            raise Failure(
                f"--missing: got {len(wanted)} numbers for one channel; expected a single number. "
                "For example: 0"
            )
        return np.abs(values - wanted[0]) <= near
    names = signal.description.channels or []
    colours = [i for i, name in enumerate(names) if name != "alpha" or len(wanted) == len(names)]
    if len(wanted) not in (1, len(colours)):
        raise Failure(
            f"--missing: got {len(wanted)} numbers; expected 1 or {len(colours)}. "
            "One per channel, or the same for all"
        )
    return np.all(np.abs(values[..., colours] - wanted) <= near, axis=-1)
