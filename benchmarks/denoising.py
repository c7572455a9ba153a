"""White noise removed from pictures, a clip, volumes and sound, against other packages.

kronfield is given noisy samples and nothing else; the peers are told the standard deviation of the
noise. Fields that are smooth are compared with our own penalised linear fit.

    python -m benchmarks.denoising RESULTS_JSON --page docs/denoising.md   # its table of figures
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import kronfield as kf
from benchmarks.data import TUNED, UNTUNED, Array, by_use, clip, franke, photographs, sides
from benchmarks.frame import OURS, Method, Row, Settings, contest, psnr
from kronfield.signals.measures import ssim

THOROUGH, LINEAR = f"{OURS}, thorough=True", f"{OURS}, penalised linear fit"
NLM, BM3D, BM4D = "scikit-image non-local means", "BM3D", "BM4D"
LEVELS = (0.02, 0.05, 0.1)
# Both over the noise. The weight of total variation is the best of five on kodim01 to 08 at 0.05,
# and within 0.4 dB of the best at 0.02 and 0.1. The strength of non-local means is that of
# scikit-image's example: on kodim01, 03, 05 and 08 within 0.05 dB of the best of five at 0.05 and
# 0.1, and within 0.25 dB at 0.02.
TV_WEIGHT, NLM_STRENGTH = 0.6, 0.6


@dataclass(frozen=True)
class NoisyTask:
    """A signal (N_1, ..., N_D, C) given with white noise; neither is clipped or rounded.

    ``low`` and ``high`` are the range to which results are clipped. The score is the PSNR relative
    to 1, or, with ``is_snr``, relative to the standard deviation of the signal.
    """

    truth: Array
    sigma: float
    seed: int
    low: float = -math.inf
    high: float = math.inf
    is_snr: bool = False

    def __post_init__(self) -> None:
        assert self.noisy.shape == self.truth.shape  # made now, so that it is not part of a timing

    @property
    def dimensions(self) -> int:
        return self.truth.ndim - 1

    @functools.cached_property
    def noisy(self) -> Array:
        noise = np.random.default_rng(self.seed).standard_normal(self.truth.shape)
        return (self.truth + self.sigma * noise).astype(np.float32)

    def score(self, found: Array) -> tuple[float, float | None]:
        found = np.clip(np.reshape(found, self.truth.shape), self.low, self.high)
        peak = float(np.std(self.truth)) if self.is_snr else 1.0
        alike = None
        if self.dimensions == 2:
            alike = ssim(found, self.truth, peak=1.0, channels=True)
        return psnr(found, self.truth, peak), alike


# Ours


class Ours:
    """`kf.denoise` of noisy samples; remembers of how many items the noise was found."""

    def __init__(self, thorough: bool = False) -> None:
        self.thorough = thorough
        self.found: dict[int, bool] = {}

    def __call__(self, task: NoisyTask) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kf.NoiseWarning)  # counted instead
            field = kf.denoise(task.noisy, channels=True, thorough=self.thorough)
        self.found[id(task)] = field.report.noise is not None
        return field.on_grid()

    def missed(self, items: Mapping[str, NoisyTask]) -> int:
        return sum(not self.found[id(task)] for task in items.values())


def linear(task: NoisyTask) -> Array:
    """Fit with the roughness penalty that cross-validation chooses."""
    return kf.fit(task.noisy, channels=True, roughness="gcv").on_grid()


# Peers


def _total_variation(task: NoisyTask) -> Array:
    from skimage.restoration import denoise_tv_chambolle

    return denoise_tv_chambolle(task.noisy, weight=TV_WEIGHT * task.sigma, channel_axis=-1)


def _non_local_means(task: NoisyTask) -> Array:
    from skimage.restoration import denoise_nl_means

    return denoise_nl_means(
        task.noisy,
        patch_size=5,
        patch_distance=6 if task.dimensions == 2 else 3,
        h=NLM_STRENGTH * task.sigma,
        sigma=task.sigma,
        fast_mode=True,
        channel_axis=-1,
    )


def _wavelets(task: NoisyTask, method: str) -> Array:
    from skimage.restoration import denoise_wavelet

    return denoise_wavelet(
        task.noisy,
        sigma=task.sigma,
        method=method,
        convert2ycbcr=task.noisy.shape[-1] == 3,
        rescale_sigma=True,
        channel_axis=-1,
    )


def _local_wiener(task: NoisyTask) -> Array:
    from scipy.signal import wiener

    planes = [wiener(task.noisy[..., c], 15, task.sigma**2) for c in range(task.noisy.shape[-1])]
    return np.stack(planes, axis=-1)


def _bm3d(task: NoisyTask) -> Array:
    import bm3d  # free for non-commercial use only

    if task.noisy.shape[-1] == 3:
        return bm3d.bm3d_rgb(task.noisy, task.sigma)
    return bm3d.bm3d(task.noisy[..., 0], task.sigma)[..., None]


def _bm4d(task: NoisyTask) -> Array:
    import bm4d  # free for non-commercial use only

    planes = [bm4d.bm4d(task.noisy[..., c], task.sigma) for c in range(task.noisy.shape[-1])]
    return np.stack(planes, axis=-1)


def peers(D: int, exhaustive: int = 0) -> list[Method]:
    """Return the peers for D dimensions; the slowest are run on ``exhaustive`` items."""
    wavelets = [
        Method(f"scikit-image wavelets, {name}", functools.partial(_wavelets, method=name), "pywt")
        for name in ("BayesShrink", "VisuShrink")
    ]
    found = [Method("scikit-image total variation", _total_variation, "skimage"), *wavelets]
    if D == 1:
        return [*found, Method("SciPy wiener", _local_wiener)]
    found.insert(0, Method(NLM, _non_local_means, "skimage"))
    name, call = (BM3D, _bm3d) if D == 2 else (BM4D, _bm4d)
    licence = "free for non-commercial use only"
    return [*found, Method(name, call, name.lower(), most=exhaustive, note=licence)]


# Data


def drawn(side: int, seed: int = 0) -> Array:
    """Return shaded ellipsoids in front of each other, (side, side, side, 1) in [0, 1]."""
    rng = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 3, indexing="ij"), axis=-1)
    values = 0.1 + 0.1 * x[..., 0]
    for _ in range(14):
        turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        at = (x - rng.uniform(0.15, 0.85, 3)) @ turned / rng.uniform(0.05, 0.3, 3)
        inside = np.clip((1 - np.linalg.norm(at, axis=-1)) * side / 8 + 0.5, 0, 1)
        shade = rng.uniform(0, 0.7) + 0.15 * np.sin(x @ rng.uniform(-9, 9, 3))
        values += inside * (shade - values)
    return np.clip(values, 0, 1)[..., None].astype(np.float32)


def scanned() -> Array | None:
    """Return a volume of magnetic resonance that nibabel ships, (33, 41, 25, 1) in [0, 1]."""
    try:
        import nibabel
    except ImportError:
        return None
    path = Path(nibabel.__file__).parent / "tests" / "data" / "anatomical.nii"
    if not path.exists():
        return None
    values = np.asarray(nibabel.load(path).dataobj, dtype=np.float32)
    return ((values - values.min()) / np.ptp(values))[..., None]


def voice(n: int, seed: int = 0) -> Array:
    """Return vowels: pulses of a varying pitch through resonances, n samples at 16 kHz."""
    from scipy.signal import lfilter

    rng, rate = np.random.default_rng(seed), 16000
    vowels = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))
    pitch = 120 * (1 + 0.2 * np.sin(2 * np.pi * np.arange(n) / 9000 + seed))
    pulses = np.diff(np.floor(np.cumsum(pitch / rate)), prepend=0.0)
    found, part = np.zeros(n), n // len(vowels) + 1
    for i, vowel in enumerate(rng.permutation(vowels)):
        line = pulses.copy()
        for frequency in vowel:
            radius = math.exp(-math.pi * 90 / rate)
            line = lfilter(
                [1.0], [1, -2 * radius * math.cos(2 * math.pi * frequency / rate), radius**2], line
            )
        window = np.clip(np.minimum(np.arange(n) - i * part, (i + 1) * part - np.arange(n)), 0, 800)
        found += line * window / 800
    return (0.5 * found / np.abs(found).max())[:, None]


def bells(n: int, seed: int = 1) -> Array:
    """Return bells: partials that are no harmonics, each of which decays; n samples."""
    rng, found = np.random.default_rng(seed), np.zeros(n)
    for start in range(0, n, n // 4):
        t, base = np.arange(n - start), rng.uniform(0.01, 0.03)
        for part in (0.5, 1.0, 1.19, 1.56, 2.0, 2.51, 2.66, 3.01, 4.1):
            decay = np.exp(-t * part / rng.uniform(2000, 6000)) * np.minimum(1, t / 30)
            found[start:] += decay * np.sin(2 * np.pi * base * part * t + rng.uniform(0, 6)) / part
    return (0.5 * found / np.abs(found).max())[:, None]


def random_field(side: int, seed: int = 0) -> Array:
    """Return a random field whose amplitudes fall as 1/f², within 0 to 1."""
    f = np.sqrt(np.add.outer(np.fft.fftfreq(2 * side) ** 2, np.fft.fftfreq(2 * side) ** 2))
    f[0, 0] = np.inf
    spectrum = np.fft.fft2(np.random.default_rng(seed).standard_normal(f.shape)) / f**2
    values = np.fft.ifft2(spectrum).real[:side, :side]  # a quarter: the whole is periodic
    return (values - values.min()) / np.ptp(values)


def smooth_fields(side: int) -> dict[str, Array]:
    x, y = np.meshgrid(*[np.linspace(0, 1, side)] * 2, indexing="ij")
    return {
        "Franke's function": franke(x, y)[..., None],
        "sine x cosine": (0.5 + np.sin(5 * x) * np.cos(7 * y) / 2)[..., None],
        "1/f² field": random_field(side)[..., None],
    }


# Contests


def _contest(
    case: str,
    truths: Mapping[str, Array],
    sigma: float,
    settings: Settings,
    others: Sequence[Method],
    *,
    is_picture: bool = True,
    is_snr: bool = False,
    repetitions: int = 1,
) -> list[Row]:
    """Run ours, by default and thorough, and the others on signals with noise."""
    bounds = (0.0, 1.0) if is_picture else (-math.inf, math.inf)
    items = {
        name: NoisyTask(truth, sigma, seed, *bounds, is_snr)
        for seed, (name, truth) in enumerate(truths.items())
    }
    ours, thorough = Ours(), Ours(thorough=True)
    some = next(iter(truths.values()))
    rows = contest(
        "denoising",
        f"{case}, noise {sigma:g}",
        items,
        [Method(OURS, ours), Method(THOROUGH, thorough), *others],
        settings,
        score=lambda task, found: task.score(found),
        warm=NoisyTask(some[(slice(0, 32),) * (some.ndim - 1)], sigma, 0, *bounds, is_snr),
        repetitions=repetitions,
    )
    missed = ours.missed(items)
    note = "noise not told" + (f", not found in {missed} of {len(items)}" if missed else "")
    return [replace(row, note=note) if row.method in (OURS, THOROUGH) else row for row in rows]


def _first(images: Mapping[str, Array], count: int) -> dict[str, Array]:
    return dict(itertools.islice(images.items(), count))


def _grey(image: Array) -> Array:
    return image.mean(axis=-1, keepdims=True)


def _pictures(settings: Settings) -> list[Row]:
    """Photographs in colour and in grey."""
    rows = list[Row]()
    found = photographs(settings.photographs, settings.pick(40, 384, 480), 16)
    for label, part in by_use(found, settings).items():
        colour = _first(part, settings.pick(1, 3 if label == UNTUNED else 2, 16))
        grey = {name: _grey(image) for name, image in colour.items()}
        levels = settings.pick((0.1,), LEVELS if label == UNTUNED else (0.05,), LEVELS)
        for sigma in levels:
            for kind, truths in (("in colour", colour), ("in grey", grey)):
                size = sides(truths).removesuffix(" x 3")
                case = f"{len(truths)} photographs {kind} of {size}; {label}"
                rows += _contest(case, truths, sigma, settings, peers(2))
    return rows


def _crops(settings: Settings) -> list[Row]:
    """Small crops of photographs, on which BM3D is run too: it takes 15 s of CPU time for each."""
    rows = list[Row]()
    found = photographs(settings.photographs, settings.pick(40, 256, 256), 16)
    part = by_use(found, settings)
    label = UNTUNED if UNTUNED in part else TUNED
    colour = _first(part[label], settings.pick(1, 2, 8))
    grey = {name: _grey(image) for name, image in colour.items()}
    for sigma in settings.pick((0.1,), (0.05, 0.1), LEVELS):
        for kind, truths in (("in colour", colour), ("in grey", grey)):
            if kind == "in grey" and settings.size == "quick" and sigma != 0.1:
                continue
            case = f"{len(truths)} crops {kind} of {sides(truths).removesuffix(' x 3')}; {label}"
            slow = settings.pick(0, 10**9, 10**9)
            rows += _contest(case, truths, sigma, settings, peers(2, slow))
    return rows


def _other(settings: Settings) -> list[Row]:
    """A clip, volumes and sounds."""
    rows = list[Row]()
    side, n = settings.pick(16, 48, 96), settings.pick(2000, 16000, 64000)
    volumes = {"drawn": drawn(settings.pick(16, 48, 96))}
    if (scan := scanned()) is not None:
        volumes["scanned"] = scan
    sounds = {"voice": voice(n), "bells": bells(n)}
    for sigma in settings.pick((0.1,), LEVELS, LEVELS):
        slow = settings.pick(0, 0, 1)
        clips = {"bikes": clip(side)}
        rows += _contest(f"a clip of {side}³ x 3", clips, sigma, settings, peers(3, slow))
        case = f"{len(volumes)} volumes, {' and '.join(volumes)}"
        rows += _contest(case, volumes, sigma, settings, peers(3, slow))
        case = f"{len(sounds)} sounds of {n:,} samples in ±0.5; SNR, not PSNR"
        rows += _contest(
            case,
            sounds,
            sigma,
            settings,
            peers(1),
            is_picture=False,
            is_snr=True,
            repetitions=settings.pick(1, 3, 3),
        )
    return rows


def _smooth(settings: Settings) -> list[Row]:
    """Smooth fields, where the penalised linear fit is right."""
    rows, side = list[Row](), settings.pick(32, 128, 256)
    fields = smooth_fields(side)
    for sigma in settings.pick((0.1,), LEVELS, LEVELS):
        case = f"{len(fields)} smooth fields of {side} x {side} ({', '.join(fields)})"
        linear_fit = Method(LINEAR, linear, note='roughness="gcv"')
        found = _contest(case, fields, sigma, settings, [linear_fit, *peers(2)], is_picture=False)
        worst = _worst_difference(fields, sigma)
        rows += [
            replace(row, note=f"{row.note}; {worst}") if row.method == OURS else row
            for row in found
        ]
    return rows


def _worst_difference(fields: Mapping[str, Array], sigma: float) -> str:
    """Return by how much ours is better than the penalised linear fit where it is least so."""
    gains = {}
    for seed, (name, truth) in enumerate(fields.items()):
        task = NoisyTask(truth, sigma, seed)
        gains[name] = task.score(Ours()(task))[0] - task.score(linear(task))[0]
    worst = min(gains, key=gains.__getitem__)
    return f"{gains[worst]:+.2f} dB on the linear fit at worst ({worst})"


def denoising(settings: Settings) -> list[Row]:
    """White noise on photographs, a clip, volumes, sounds and smooth fields."""
    parts = (_pictures, _crops, _other, _smooth)
    return [row for part in parts for row in part(settings)]


# The page


START, END = "<!-- denoising -->", "<!-- end of denoising -->"


def _gain(rows: Sequence[Row], method: str, over: str) -> float | None:
    """Return the mean quality of a method minus that of another, if both had the same items."""
    by = {row.method: row for row in rows}
    if method not in by or over not in by:
        return None
    a, b = by[method], by[over]
    if a.psnr is None or b.psnr is None or a.items != b.items:
        return None
    return a.psnr - b.psnr


def goals(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each goal and case, with what was reached."""
    found = []
    for case in dict.fromkeys(row.case for row in rows):
        some = [row for row in rows if row.case == case]
        by = {row.method: row for row in some}
        if case.endswith(("noise 0.05", "noise 0.1")) and "photographs" in case:
            least = 1.5 if case.endswith("0.05") else 0.9
            gain, nlm = _gain(some, OURS, NLM), by.get(NLM)
            if gain is not None and nlm is not None and nlm.ratio is not None:
                found.append(
                    f"{case}: {gain:+.2f} dB on non-local means (goal {least:+.1f}, "
                    f"{_met(gain >= least)}) in {1 / nlm.ratio:.2g} of its time (goal 1, "
                    f"{_met(nlm.ratio >= 1)})"
                )
        gain, exact = _gain(some, THOROUGH, BM3D), by.get(BM3D)
        if gain is not None and exact is not None and exact.ratio is not None:
            times = exact.ratio / (by[THOROUGH].ratio or 1.0)
            found.append(
                f"{case}: thorough {gain:+.2f} dB on BM3D (goal -0.3, {_met(gain >= -0.3)}), "
                f"which takes {times:.0f} times as long (goal 20, {_met(times >= 20)})"
            )
        gain = _gain(some, OURS, LINEAR)
        if gain is not None:
            found.append(f"{case}: {gain:+.2f} dB on the penalised linear fit; {by[OURS].note}")
    return found


def _met(reached: bool) -> str:
    return "met" if reached else "not met"


def figures(rows: Sequence[Row]) -> str:
    """Return a short table for the page on denoising: a line per case, a column per method."""
    named = {
        OURS: "default",
        THOROUGH: "thorough",
        LINEAR: "linear fit",
        NLM: "non-local means",
        "scikit-image wavelets, BayesShrink": "wavelets",
        "scikit-image total variation": "total variation",
        BM3D: "BM3D, BM4D",
    }
    some = [row for row in rows if row.section == "denoising" and TUNED not in row.case]
    lines = [f"| | {' | '.join(named.values())} |", "|---" * (len(named) + 1) + "|"]
    for case in dict.fromkeys(row.case for row in some):
        by = {row.method: row for row in some if row.case == case and row.psnr is not None}
        if BM4D in by:
            by[BM3D] = by[BM4D]
        most = max((row.items for row in by.values()), default=0)
        best = max((row.psnr or 0.0 for row in by.values() if row.items == most), default=None)
        cells = []
        for method in named:
            row = by.get(method)
            if row is None or row.psnr is None:
                cells.append("")
            elif row.items < most:  # of fewer items: beside the default on these
                cells.append(f"{row.psnr:.2f} (on {row.items}; default {row.ours_psnr:.2f})")
            else:
                mark = "**" if row.psnr == best else ""
                cells.append(f"{mark}{row.psnr:.2f}{mark}")
        lines.append(f"| {case.replace(f'; {UNTUNED}', '')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks import report

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="results.json of a run")
    parser.add_argument("--page", type=Path, help="a page in which to replace the table")
    options = parser.parse_args(arguments)
    _, every = report.load(options.results)
    rows = [row for row in every if row.section == "denoising"]
    if not rows:
        parser.error(f"{options.results} has no section denoising: run it first")
    for line in goals(rows):
        print(line)
    if options.page is not None:
        report.fill(options.page, figures(rows), START, END)


if __name__ == "__main__":
    main()
