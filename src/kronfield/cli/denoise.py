"""``kronfield denoise``: remove noise from a picture, video, volume, sound or array."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kronfield as kf
from kronfield._core.records import record
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
from kronfield.cli.parsing import Noise, Numbers
from kronfield.cli.sources import frames_option, grid_only, signal_line
from kronfield.fitting import settings as defaults

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.files import Description, Signal, VideoFrames
    from kronfield.fitting.report import Candidate, RemovedNoise

# The largest number of values converted at a time for writing, to bound memory.
PIECE = 1 << 22


@click.command(
    "denoise",
    short_help="Remove noise.",
    epilog="""\b
Examples:
  kronfield denoise noisy.png
  kronfield denoise noisy.png --thorough -o better.png
  kronfield denoise noisy.png --strength 1.5 -o smoother.png
  kronfield denoise noisy.png --noise 25 --report removed -o known.png
  kronfield denoise noisy.png --roughness 0.5,0 -o by-hand.png
  kronfield denoise clip.mp4 --noise 4
  kronfield denoise hiss.wav
""",
)
@click.argument("source", metavar="INPUT", type=SOURCE)
@click.option(
    "-o", "--output", type=PATH, help="The file to write. Default: INPUT's name with -denoised."
)
@click.option(
    "--noise",
    type=Noise(),
    metavar="SIGMA",
    help="The standard deviation of the noise, as this command prints it: in levels for files of 8 "
    "or 16 bit (0 to 255 or 65535), of a sound in parts of full scale or as -40dB, else in the "
    "units of the values. Default: measured.",
)
@click.option(
    "--strength",
    type=float,
    default=1.0,
    help="Factor on the noise: above 1 removes more, below 1 less.",
)
@click.option(
    "--thorough",
    is_flag=True,
    help="Use more groups of alike patches: better, two to five times slower.",
)
@click.option(
    "--roughness",
    type=Numbers("0.5,0", count=2),
    metavar="A,B",
    help="Smooth with this penalty instead: weights of squared first and second derivatives.",
)
@frames_option
@click.option(
    "--report",
    type=PATH,
    metavar="DIR",
    help="Write a page to this folder: before, after, what was taken away, and the figures.",
)
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    output: Path | None,
    noise: tuple[float, bool] | None,
    strength: float,
    thorough: bool,
    roughness: Any,
    frames: Any,
    report: Path | None,
    force: bool,
    out: Output,
) -> None:
    """Remove noise from a picture, video, volume, sound or array.

    White noise is measured and printed. Noise that is stronger where a picture is brighter is found
    too. Noise is removed by shrinking the weights of cosines in blocks, or by a penalised fit,
    whichever has the smaller error by Stein's unbiased estimate. The expected error is printed.

    Alpha stays as it is. Missing samples (NaN) are filled in. Large files are read and written in
    parts.
    """
    _check_options(noise, strength, thorough, roughness)
    target = _target(source, output)
    check_output(target, force=force)
    if report is not None:
        from kronfield.cli.picture_report import check_folder

        check_folder(report, force=force)
    started = time.perf_counter()
    job = _job(source, frames, out, by_hand=roughness is not None)
    if roughness is not None:
        done = _by_hand(job, roughness, target, out, force=force)
    else:
        asked = _Asked(_sigma(job, noise), strength, thorough, target, force)
        done = (_removed if job.missing is None else _with_gaps)(job, asked, out)
    seconds = time.perf_counter() - started
    for line in done.lines(job, seconds):
        out.say(line)
    out.say(f"Wrote {target}")
    if report is not None:
        _write_report(report, job, done, given_options(ctx), seconds, out, force=force)
    out.result(
        input=source,
        output=target,
        noise=None if done.sigma is None else done.sigma / job.unit,
        method=done.method or None,
        expected_error=done.error,
        unit=job.unit_name,
        depends_on_signal=done.varies,
        cut_off=done.cut_off,
        roughness=done.roughness,
        seconds=seconds,
        report_folder=report,
    )


def _check_options(noise: Any, strength: float, thorough: bool, roughness: Any) -> None:
    if not (strength > 0 and math.isfinite(strength)):
        raise Failure(
            f"--strength: got {strength:g}; expected a number above 0. 1 removes the noise measured"
        )
    beside = [
        name
        for name, given in (
            ("--noise", noise is not None),
            ("--strength", strength != 1),
            ("--thorough", thorough),
        )
        if given
    ]
    if roughness is not None and beside:
        raise Failure(
            f"--roughness: got it beside {beside[0]}; expected only one of the two. "
            f"Leave out {beside[0]}: a given penalty decides alone"
        )


def _target(source: str, output: Path | None) -> Path:
    from kronfield.files.kinds import split_member, suffix_of

    suffix = suffix_of(split_member(source)[0])
    return output or default_output(source, f"-denoised{'.png' if suffix == '.gif' else suffix}")


# Input
# ------------------------------------------------------------------------------------------


@record(eq=False)
class _Job:
    """The input: a signal or a video, and where samples are missing."""

    source: Signal | VideoFrames
    description: Description
    missing: Any

    @property
    def unit(self) -> int:
        """The number of stored units per unit of the values."""
        known = self.description
        return (known.levels or 1) if known.kind != "audio" else 1

    @property
    def unit_name(self) -> str:
        """The unit in which noise is printed."""
        if self.description.kind == "audio":
            return "full scale"
        return f"levels of {self.unit}" if self.description.levels else "values"

    def text(self, amount: float) -> str:
        """Return a noise or an error in stored units as text, with its unit."""
        if not (amount > 0 and math.isfinite(amount)):
            return "not known"
        if self.description.kind == "audio":
            return f"{20 * math.log10(amount):.1f} dB of full scale ({amount:.3g})"
        levels = self.description.levels
        number = f"{amount:.0f}" if amount >= 100 else f"{amount:.3g}"
        return f"{number} of {levels} levels" if levels else f"{amount:.4g}"

    def peak(self, error: float) -> str:
        """Return the signal-to-noise ratio of an error as text, for files with levels."""
        levels = self.description.levels
        if not levels or self.description.kind == "audio" or error <= 0:
            return ""
        return f", a PSNR of {20 * math.log10(levels / error):.1f} dB"


def _job(source: str, frames: Any, out: Output, *, by_hand: bool) -> _Job:
    """Read the samples: pixels as integers, and only the middle of a video."""
    from kronfield.cli.sources import signal_to_fit
    from kronfield.files import kind_of, video_frames
    from kronfield.files.kinds import split_member
    from kronfield.fitting import settings
    from kronfield.signals.denoise import check_finite

    if by_hand:
        signal = signal_to_fit(source, out, penalised=True, frames=frames)
    elif kind_of(source) == "video":
        path, _ = split_member(source)
        with out.bar(f"Reading {path.name}") as bar:
            film = video_frames(
                path,
                frames=frames,
                most=settings.DEFAULT.signals.denoised_part // 3,
                progress=lambda done, total: bar.update(done, total=total),
            )
        known = film.description
        count, height, width, _ = film.shape
        out.say(f"{known.source}: video, {count} frames of {width} x {height} pixels")
        return _Job(film, known, None)
    else:
        signal = read_signal(source, out, frames=frames, raw=True)
    grid_only(signal, "denoise")
    out.say(signal_line(signal))
    missing = check_finite(signal)
    if missing.all():
        raise Failure(
            f"{source}: all samples are missing (NaN); expected known ones. Check the file"
        )
    return _Job(signal, signal.description, missing if missing.any() else None)


# Result
# ------------------------------------------------------------------------------------------


@record(eq=False)
class _Done:
    """The result of denoising: noise, method and expected error, in stored units.

    ``sigma`` is the standard deviation of the noise, None if no noise was found or if it is
    unknown. ``before`` and ``after`` are the values that a report shows.
    """

    sigma: float | None
    method: str
    error: float | None
    middle: Any
    before: Any
    after: Any
    varies: bool = False
    roughness: Any = None
    strength: float = 1.0
    filled: int = 0
    given: bool = False
    holes: Any = None
    cut_off: float = 0.0
    corrected: bool = False
    chosen_by: str = ""
    candidates: tuple[Candidate, ...] = ()

    @classmethod
    def of(cls, noise: RemovedNoise | None, **known: Any) -> _Done:
        """Return the result for ``noise``, which is None if no noise was found."""
        if noise is None:
            return cls(None, "", None, **known)
        sigma = math.sqrt(sum(one**2 for one in noise.sigma) / len(noise.sigma))
        error = noise.expected_error if math.isfinite(noise.expected_error) else None
        return cls(
            sigma, noise.method, error, varies=noise.stabilised, corrected=noise.cut_off, **known
        )

    def lines(self, job: _Job, seconds: float) -> Iterator[str]:
        """Yield the lines to print."""
        if self.filled:
            yield f"{self.filled} missing samples filled in"
        if self.sigma is None and not self.method:
            if self.filled and not self.given:
                yield (
                    "No noise found among the known samples. If you see noise, give its standard "
                    f"deviation, for example: --noise {self._example(job)}"
                )
            elif self.given:
                yield "Nothing was removed: noise this weak cannot be distinguished from the signal"
            else:
                yield (
                    "No noise found: the values are unchanged. If you see noise, give its "
                    f"standard deviation, for example: --noise {self._example(job)}"
                )
            return
        if self.sigma is not None:
            varies = ", stronger or weaker with the brightness" if self.varies else ""
            yield f"Noise: {job.text(self.sigma)} (standard deviation){varies}"
        parts = [f"Removed by {self.method}"]
        if self.roughness is not None:
            first, second = self.roughness
            parts.append(f"roughness ({first:.3g}, {second:.3g})")
        if self.strength != 1:
            parts.append(f"{self.strength:g} times as strong")
        if self.error is not None:
            parts.append(f"expected error {job.text(self.error)} rms{job.peak(self.error)}")
        yield f"{'; '.join(parts)}; {seconds:.2f} s"
        if self.is_cut_off and self.error is not None:
            yield self.remark

    @property
    def is_cut_off(self) -> bool:
        """Whether many samples are black or white, or the result allows for those that are."""
        return self.corrected or self.cut_off > defaults.DEFAULT.signals.cut_off

    @property
    def remark(self) -> str:
        """A note on noise that is cut off at black or white."""
        share = f"{self.cut_off:.0%}" if self.cut_off >= 0.005 else "Some"
        return f"{share} of the samples are black or white: noise is cut off there, " + (
            "which was corrected" if self.corrected else "and the error is larger than expected"
        )

    @staticmethod
    def _example(job: _Job) -> str:
        if job.description.kind == "audio":
            return "-40dB"
        levels = job.description.levels
        return f"{max(1, round(levels / 50))}" if levels else "0.1"

    def facts(
        self, job: _Job, options: dict[str, Any], seconds: float
    ) -> Iterator[tuple[str, str]]:
        """Yield the names and values of a report."""
        given = " ".join(f"--{name} {value}" for name, value in options.items())
        yield "command", f"kronfield denoise {given}".strip()
        noise = "none found" if self.sigma is None else job.text(self.sigma)
        yield "noise", noise + (", given" if self.given else "")
        if self.varies:
            yield "", "it depends on the brightness"
        yield "removed by", self.method or "nothing: the values are unchanged"
        if self.roughness is not None:
            yield "roughness", ", ".join(f"{one:.3g}" for one in self.roughness)
        if self.strength != 1:
            yield "strength", f"{self.strength:g}"
        if self.error is not None:
            yield "expected error", f"{job.text(self.error)} rms{job.peak(self.error)}"
            if self.is_cut_off:
                yield "", self.remark
        if self.filled:
            yield "filled in", f"{self.filled} missing samples"
        if self.chosen_by:
            yield "chosen by", self.chosen_by
        yield "time", f"{seconds:.2f} s with kronfield {kf.__version__}"


def _sigma(job: _Job, noise: tuple[float, bool] | None) -> float | None:
    """Return the noise that was given, in stored units."""
    if noise is None:
        return None
    value, in_decibels = noise
    if not in_decibels:
        return value
    if job.description.kind != "audio":
        raise Failure(
            f"--noise: got {value:g}dB for a file that is no sound; expected a number in "
            f"{job.unit_name}. For example: --noise 5"
        )
    return float(10 ** (value / 20))


@record
class _Asked:
    """The options: the noise in stored units, None if it is to be measured, and the output."""

    sigma: float | None
    strength: float
    thorough: bool
    target: Path
    force: bool


def _removed(job: _Job, asked: _Asked, out: Output) -> _Done:
    """Remove noise part by part, and write the file."""
    from kronfield.files import Signal, writer
    from kronfield.signals.denoise import Denoising, positions, samples_of
    from kronfield.signals.report.changes import Middle

    samples = samples_of(job.source)
    axes = positions(job.source) if isinstance(job.source, Signal) else None
    sigma, strength = asked.sigma, asked.strength
    with out.working("Measuring noise" if sigma is None else "Denoising"):
        work = Denoising(samples, axes, noise=sigma, strength=strength, thorough=asked.thorough)
    before, after = (Middle(samples.shape, job.description) for _ in range(2))
    count = samples.part.shape[-1] if samples.channels else None
    info = job.description.to_dict()
    title = "Denoising" if work.is_found else "Writing"
    with (
        out.bar(title) as bar,
        writer(asked.target, samples.shape, count, info, overwrite=asked.force) as file,
    ):
        pairs = work.pairs(lambda done, total: bar.update(done, total=total))
        for old, new in pairs:
            before.add(old)
            after.add(new)
            for piece in _pieces(new):
                file.write(_values(piece, job))
    return _Done.of(
        work.noise,
        middle=before,
        before=_values(before.values, job),
        after=_values(after.values, job),
        roughness=work.roughness,
        strength=strength,
        given=sigma is not None,
        cut_off=work.cut_off(),
        chosen_by=work.choice.chosen_by,
        candidates=tuple(work.choice.candidates),
    )


def _pieces(block: Any) -> Iterator[Any]:
    step = max(1, PIECE * len(block) // max(1, block.size))
    return (block[i : i + step] for i in range(0, len(block), step))


def _values(stored: Any, job: _Job) -> Any:
    """Return stored numbers as values: integer levels are scaled to 0 to 1."""
    import numpy as np

    if stored.dtype.kind == "f":
        return stored
    return stored.astype(np.float32) / np.float32(job.unit)


def _with_gaps(job: _Job, asked: _Asked, out: Output) -> _Done:
    """Fill in missing samples and remove noise, in one piece."""
    from kronfield.files import Signal, write
    from kronfield.signals.denoise import denoised_with_gaps
    from kronfield.signals.report.changes import Middle

    signal = job.source
    assert isinstance(signal, Signal)
    sigma, strength = asked.sigma, asked.strength
    if strength != 1 and sigma is None:
        raise Failure(
            f"--strength: got {strength:g} with missing samples; expected --noise SIGMA. "
            "Give --noise too, or fill in the samples first: kronfield inpaint"
        )
    count = int(job.missing.sum())
    with out.working(f"Denoising and filling {count} of {job.missing.size} samples"):
        values, found = denoised_with_gaps(
            signal,
            job.missing,
            noise=None if sigma is None else sigma * strength,
            thorough=asked.thorough,
        )
    write(asked.target, values, signal.info, overwrite=asked.force)
    middle = Middle(job.missing.shape, job.description)
    done = _Done.of(found, middle=middle, before=None, after=None, strength=strength)
    if found is not None and strength != 1:  # ``error`` is for sigma * strength
        done = replace(done, sigma=sigma, error=None)
    return replace(
        done,
        before=middle.of(signal.values[middle.picks]),
        after=middle.of(values[middle.picks]),
        holes=middle.of(job.missing[middle.picks]),
        filled=count,
        given=sigma is not None,
    )


def _by_hand(job: _Job, roughness: Any, target: Path, out: Output, *, force: bool) -> _Done:
    """Smooth with a given penalty, in one piece, and write the file."""
    from kronfield.files import Signal, write
    from kronfield.signals.axes import described
    from kronfield.signals.fit import noise_level, straight_colours
    from kronfield.signals.report.changes import Middle

    signal = job.source
    assert isinstance(signal, Signal)
    if job.missing is not None:
        raise Failure(
            "--roughness: got a file in which samples are missing (NaN); expected none. "
            "Fill them in first: kronfield inpaint"
        )
    with out.working("Smoothing"):
        field = _smoothed(signal, roughness)
        found = field.on_grid()
        known = described(field)
        found = straight_colours(found) if known.multiplied else found
        left = found - signal.values if known.points is not None else None
        sigma = noise_level(field) if left is None else float(left.std())
    write(target, found, signal.info, overwrite=force)
    shape = signal.values.shape[:-1] if signal.channels else signal.values.shape
    middle = Middle(shape, job.description)
    return _Done(
        None if sigma is None else sigma * job.unit,
        "the given penalty",
        None,
        middle,
        middle.of(signal.values[middle.picks]),
        middle.of(found[middle.picks]),
        roughness=field.report.roughness,  # type: ignore[union-attr]
    )


def _smoothed(signal: Signal, roughness: Any) -> Field:
    """Return the field of a signal with a given penalty."""
    import numpy as np

    from kronfield.signals.fit import fit_signal, value_range

    shape = signal.values.shape[:-1] if signal.channels else signal.values.shape
    decided = defaults.DEFAULT.signals
    if len(shape) == 1 and shape[0] > decided.longest_line:
        points = (np.arange(shape[0], dtype=np.float64) if signal.axes is None else signal.axes[0])[
            :, None
        ]
        field = kf.fit_points(points, signal.values, roughness=roughness)
        field.with_axes([points[:, 0]])
        known = replace(signal.description, range=value_range(signal.values), points=shape[0])
        field.info = known.to_dict()
        return field
    if max(shape) > decided.longest_smoothed:
        raise Failure(
            f"--roughness: got an axis of {max(shape)} samples; expected at most "
            f"{decided.longest_smoothed}. Leave it out, or denoise in parts"
        )
    return fit_signal(signal, roughness=roughness)


def _write_report(
    folder: Path,
    job: _Job,
    done: _Done,
    options: dict[str, Any],
    seconds: float,
    out: Output,
    *,
    force: bool,
) -> None:
    from kronfield.signals.report.changes import changed, write_change_report

    rate: Any = job.description.rate
    with out.working("Drawing the report"):
        found = changed(done.middle, done.before, done.after, done.holes, float(rate or 1))
        written = write_change_report(
            folder,
            f"{job.description.source or 'Samples'}, without noise by kronfield",
            done.facts(job, options, seconds),
            found,
            done.candidates,
            overwrite=force,
        )
    out.say(f"Wrote {written[-1]} and {len(written) - 1} pictures beside it")
