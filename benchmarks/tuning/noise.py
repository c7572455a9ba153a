"""Count misses and false alarms of the search for noise, on data that did not set its thresholds.

    python -m benchmarks.tuning.noise                  # scikit-image's pictures, clips, functions
    python -m benchmarks.tuning.noise FOLDER           # and the photographs of a folder
    python -m benchmarks.tuning.noise FOLDER --page docs/noise.md
    python -m benchmarks.tuning.noise FOLDER --sweep   # other settings, on what set them

Photographs named kodim01 to kodim08 set the thresholds. They are left out of the table, and are the
only ones in the sweep.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.data import SURFACES, Array
from kronfield.experiments.data import items
from kronfield.fitting.noise import Noise, find_noise
from kronfield.fitting.settings import NoiseSettings

SIDE, CUBE, SEED = 256, 40, 0
TUNED_ON = {f"kodim{i:02d}" for i in range(1, 9)}
LEVELS = (0.02, 0.05, 0.1)
SENSOR = "8-bit sensor"
COMPRESSED = "noise 0.05, then JPEG 90"
MOSAIC = "noise 0.05, then demosaiced"
# Grey pictures and drawings of scikit-image, by the functions of skimage.data that return them.
GREY = ("camera", "coins", "moon", "clock", "cell", "microaneurysms")
TEXTURES = ("brick", "grass", "gravel")
DRAWINGS = ("checkerboard", "horse", "logo", "page", "shepp_logan_phantom", "colorwheel")
START, END = "<!-- table -->", "<!-- end -->"


@dataclass(frozen=True)
class Case:
    """Planar values of one kind of data; ``label`` names the noise, ``sigma`` is its strength."""

    kind: str
    label: str
    planes: Array
    sigma: float = 0.0


# Data


def planar(values: Array) -> Array:
    """Return values (N, ..., C) as float64 planes (C, N, ...)."""
    return np.moveaxis(np.asarray(values, dtype=np.float64), -1, 0)


def photographs(folder: Path | None, tuned: bool = False) -> list[Array]:
    """Return centre crops as planes in [0, 1]: of the folder, and of scikit-image."""
    found = [] if folder is None else items("image", folder, 1000)
    found = [item for item in found if (item.name in TUNED_ON) == tuned]
    shipped = [] if tuned else items("image", None, 100)
    return [planar(item.load(SIDE)) for item in [*found, *shipped]]


def shipped(names: tuple[str, ...]) -> list[Array]:
    """Return pictures of scikit-image as planes in [0, 1]."""
    from skimage import data

    found = []
    for name in names:
        values = np.asarray(getattr(data, name)(), dtype=np.float64)
        values = values / (255 if values.max() > 1 else 1)
        found.append(planar(values[..., :3]) if values.ndim == 3 else values[None])
    return found


def halved(planes: Array) -> Array:
    """Return means of 2 x 2 pixels."""
    C, H, W = planes.shape
    return planes[:, : H // 2 * 2, : W // 2 * 2].reshape(C, H // 2, 2, W // 2, 2).mean((2, 4))


def grey(planes: Array) -> Array:
    """Return the mean of the channels as one channel."""
    return planes.mean(axis=0, keepdims=True)


def compressed(planes: Array, quality: int) -> Array:
    """Return a picture after JPEG compression."""
    from PIL import Image

    file = io.BytesIO()
    pixels = np.round(255 * np.clip(np.moveaxis(planes, 0, -1), 0, 1)).astype(np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return planar(np.asarray(Image.open(file))) / 255


def demosaiced(planes: Array) -> Array:
    """Return a picture of which each pixel has one colour (Bayer), filled in linearly."""
    from scipy.ndimage import convolve

    given = np.zeros(planes.shape)
    given[0, ::2, ::2] = given[1, ::2, 1::2] = given[1, 1::2, ::2] = given[2, 1::2, 1::2] = 1
    weights = np.outer([1, 2, 1], [1, 2, 1]) / 4
    pairs = zip(planes * given, given, strict=True)
    return np.stack([convolve(x, weights) / convolve(m, weights) for x, m in pairs])


def on_grid(function: Callable[..., Array], n: int, dimensions: int) -> Array:
    """Return a function on an even grid of the unit cube, as one plane."""
    axes = np.meshgrid(*[np.linspace(0, 1, n)] * dimensions, indexing="ij")
    return np.asarray(function(*axes))[None]


def bumps(*x: Array) -> Array:
    """Return two smooth hills and a wave in any number of dimensions."""
    first = np.exp(-8 * sum((one - 0.4) ** 2 for one in x))
    return first - 0.5 * np.exp(-20 * sum((one - 0.7) ** 2 for one in x)) + np.sin(3 * sum(x)) / 4


def balls(*x: Array) -> Array:
    """Return nested balls of constant value on a background of zeros, as a phantom has."""
    r = np.sqrt(sum((one - 0.5) ** 2 for one in x))
    return 0.6 * (r < 0.4) + 0.4 * (r < 0.25) - 0.7 * (np.abs(r - 0.15) < 0.05)


LINES: dict[str, Callable[[Array], Array]] = {
    "sine": lambda x: np.sin(2 * np.pi * x),
    "three waves": lambda x: np.sin(6 * np.pi * x) / 2,
    "bump": lambda x: np.exp(-((x - 0.6) ** 2) * 60),
    "steps": lambda x: np.floor(4 * x) / 4 + x / 4,
    "decay": lambda x: np.exp(-4 * x) * np.cos(14 * np.pi * x),
}


def tones(n: int) -> list[Array]:
    """Return lines with fast waves: tones, chirps, square waves, decaying harmonics."""
    t = np.arange(n)
    pure = [np.sin(2 * np.pi * t / p + 0.3) for p in (2.3, 2.7, 3.15, 3.3, 4.2, 6.1, 9.7)]
    chirps = [np.sin(2 * np.pi * t**2 / (n * p)) for p in (7, 12, 25)]
    square = [np.sign(np.sin(2 * np.pi * t / p)) for p in (7.1, 23)]
    string = [sum(np.sin(2 * np.pi * k * t / p) / k**1.5 for k in range(1, 9)) for p in (40, 90)]
    return [np.asarray(line)[None] for line in (*pure, *chirps, *square, *string)]


def fields(rng: np.random.Generator, n: int, dimensions: int) -> list[Array]:
    """Return random fields with power-law spectra: 1/f^1.5, 1/f^2 and 1/f^3."""
    axes = np.meshgrid(*[np.fft.fftfreq(n)] * dimensions, indexing="ij")
    f = np.maximum(np.sqrt(sum(axis**2 for axis in axes)), 1 / n)
    waves = np.fft.fftn(rng.standard_normal((n,) * dimensions))
    return [np.fft.ifftn(waves / f ** (power / 2)).real[None] for power in (1.5, 2, 3)]


def volumes() -> list[Array]:
    """Return the anatomical and functional volumes of nibabel's tests, if they are installed."""
    if importlib.util.find_spec("nibabel") is None:
        return []
    import nibabel

    folder, found = Path(nibabel.__file__).parent / "tests" / "data", []
    for name in ("anatomical.nii", "example4d.nii.gz"):
        if (folder / name).exists():
            values = np.asarray(nibabel.load(folder / name).dataobj, dtype=np.float64)
            values = values[..., 0] if values.ndim == 4 else values
            found.append(values[None] / values.max())
    return found


# Cases


def noisy(kind: str, planes: Array, rng: np.random.Generator, sensor: bool) -> Iterator[Case]:
    """Yield values without noise, with noise of each level, and as an 8-bit sensor gives them."""
    yield Case(kind, "none", planes)
    for sigma in LEVELS:
        noise = sigma * rng.standard_normal(planes.shape)
        yield Case(kind, f"{sigma:g}", planes + noise, sigma)
    if sensor:  # variance of reading and of counting photons
        spread = np.sqrt(0.02**2 + 0.05**2 * np.clip(planes, 0, 1))
        pixels = np.round(255 * np.clip(planes + spread * rng.standard_normal(planes.shape), 0, 1))
        yield Case(kind, SENSOR, pixels.astype(np.uint8))


def cases(folder: Path | None) -> Iterator[Case]:
    """Yield all cases of the table."""
    rng = np.random.default_rng(SEED)
    pictures = photographs(folder)
    for planes in pictures:
        yield from noisy("photographs, colour", planes, rng, True)
        yield from noisy("photographs at half their size, colour", halved(planes), rng, True)
        yield from noisy("photographs, one channel", grey(planes), rng, True)
        yield from noisy(
            "photographs at half their size, one channel", grey(halved(planes)), rng, True
        )
        given = planes[:, ::2, ::2]
        yield from noisy("every second pixel of photographs, colour", given, rng, True)
        yield from noisy("every second pixel of photographs, one channel", grey(given), rng, True)
        for quality in (50, 75, 90):
            yield Case("photographs after JPEG", "none", compressed(planes, quality))
            yield Case("photographs after JPEG", "none", grey(compressed(planes, quality)))
        yield Case("photographs after demosaicing", "none", demosaiced(planes))
        yield Case("photographs after demosaicing", "none", grey(demosaiced(planes)))
        shot = planes + 0.05 * rng.standard_normal(planes.shape)
        yield Case(COMPRESSED, "0.05", compressed(shot, 90), 0.05)
        yield Case(MOSAIC, "0.05", demosaiced(shot), 0.05)
        for row in rng.integers(0, planes.shape[1], 4):
            yield from noisy("rows of photographs, colour", planes[:, row], rng, False)
            yield from noisy("rows of photographs, one channel", grey(planes[:, row]), rng, False)
    for planes in shipped(GREY):
        yield from noisy("grey pictures of scikit-image", planes, rng, True)
    for planes in shipped(TEXTURES):
        yield from noisy("textures of scikit-image", planes, rng, True)
    for planes in shipped(TEXTURES):
        for one in (planes, halved(planes), halved(halved(planes))):
            yield from noisy("every second pixel of textures", one[:, ::2, ::2], rng, True)
    for planes in shipped(DRAWINGS):
        yield from noisy("drawings", planes, rng, True)
    for dimensions, n in ((1, 300), (1, 5000), (2, 60), (2, 250), (3, 40)):
        for planes in (one for _ in range(4) for one in fields(rng, n, dimensions)):
            yield Case("random fields, power 1/f^1.5 to 1/f^3", "none", planes)
    for item in items("video", None, 3):
        clip = planar(item.load(CUBE))
        yield from noisy("video, colour", clip, rng, True)
        yield from noisy("video, one channel", grey(clip), rng, True)
    for planes in volumes():
        yield from noisy("volumes of magnetic resonance", planes, rng, False)
    for n in (20, 32, 48):
        for function in (bumps, balls):
            yield from noisy("functions on volumes", on_grid(function, n, 3), rng, False)
    for n in (12, 16):
        yield from noisy("functions in four dimensions", on_grid(bumps, n, 4), rng, False)
    for n in (24, 32, 64, 128):
        for function in SURFACES.values():
            yield from noisy("smooth surfaces", on_grid(function, n, 2), rng, False)
    for n in (50, 100, 200, 500, 1000, 100_000):
        kind = f"lines of {n:,} samples"
        for function in LINES.values():
            for _ in range(4 if n < 1000 else 1):
                yield from noisy(kind, on_grid(function, n, 1), rng, False)
    for n in (200, 2000, 50_000):
        for line in tones(n):
            yield Case("fast waves", "none", line)


# The table


@dataclass
class Count:
    """Cases of one kind with one noise: how many, how many wrong, and the errors of sigma."""

    cases: int = 0
    wrong: int = 0
    errors: list[float] | None = None

    def add(self, case: Case, noise: Noise) -> None:
        self.cases += 1
        self.wrong += noise.is_found != (case.label != "none")
        if noise.is_found and case.sigma:
            error = float(np.sqrt(np.mean(noise.sigma**2))) / case.sigma - 1
            self.errors = [*(self.errors or []), error]

    def __str__(self) -> str:
        return f"{self.wrong} of {self.cases}" if self.cases else ""


def counted(all_cases: Iterator[Case], settings: NoiseSettings) -> dict[str, dict[str, Count]]:
    """Return the counts by kind and noise; wrong cases without noise are printed."""
    found: dict[str, dict[str, Count]] = {}
    for case in all_cases:
        noise = find_noise(case.planes, settings)
        found.setdefault(case.kind, {}).setdefault(case.label, Count()).add(case, noise)
        if case.label == "none" and noise.is_found:
            print(f"false alarm, {case.kind} {case.planes.shape}: {noise.reason}")
    return found


def table(found: dict[str, dict[str, Count]]) -> str:
    """Return the counts as a table in Markdown."""
    labels = ["none", *(f"{sigma:g}" for sigma in LEVELS), SENSOR]
    lines = [
        "| data | false alarms without noise | misses, noise 0.02 | 0.05 | 0.1 | 8-bit sensor "
        "| error of sigma at 0.05, at 0.1 |",
        "|---|---|---|---|---|---|---|",
    ]
    total = {label: Count() for label in labels}
    for kind, row in found.items():
        cells = [str(row.get(label, "")) for label in labels]
        shown = [_errors(row[label]) for label in ("0.05", "0.1") if label in row]
        lines.append(f"| {kind} | {' | '.join(cells)} | {', '.join(filter(None, shown))} |")
        if kind not in (COMPRESSED, MOSAIC):
            for label in row:
                total[label].cases += row[label].cases
                total[label].wrong += row[label].wrong
    cells = [str(total[label]) for label in labels]
    lines.append(f"| all but the two with correlated noise | {' | '.join(cells)} | |")
    return "\n".join(lines)


def _errors(count: Count) -> str:
    return f"{np.mean(np.abs(count.errors)):.1%}" if count.errors else ""


def sweep(folder: Path) -> None:
    """Print false alarms and misses with other settings, on what set them."""
    rng, collected = np.random.default_rng(SEED), []
    for planes in photographs(folder, tuned=True):
        for one in (planes, halved(planes), grey(planes), grey(halved(planes))):
            kind = "colour" if len(one) == 3 else "one channel"
            collected += list(noisy(kind, one, rng, False))
        collected += noisy("rows", grey(planes[:, SIDE // 3]), rng, False)
    for n in (50, 100, 200):
        collected += [
            c
            for _ in range(20)
            for c in noisy(f"sine, {n}", on_grid(LINES["three waves"], n, 1), rng, False)
        ]
        walks = (np.cumsum(rng.standard_normal((1, n)), axis=1) for _ in range(50))
        collected += [Case(f"walk, {n}", "none", walk) for walk in walks]
    tried = {
        "ratio": (0.65, 0.7, 0.74, 0.77, 0.8, 0.85, 0.9),
        "confidence": (0.0, 1.0, 1.28, 1.645, 2.0, 3.0),
        "flat": (0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
        "kept": (0.5, 0.65, 0.8, 0.9, 0.97),
        "quiet": (0.2, 0.35, 0.5, 0.65),
        "growth": (2.0, 4.0, 9.0, 100.0),
        "growth_spread": (0.01, 0.4, 0.75, 1.5),
        "growth_change": (0.01, 0.25, 0.5, 1.0),
        "least_steps": (0.3, 0.75, 1.5, 3.0),
    }
    for name, values in tried.items():
        for value in values:
            found = counted(iter(collected), replace(NoiseSettings(), **{name: value}))
            rows = [
                f"{kind}: "
                + ", ".join(f"{label} {row[label]}" for label in row)
                + f", sigma {_errors(row['0.05']) if '0.05' in row else ''}"
                for kind, row in found.items()
            ]
            print(f"{name} {value}", *rows, sep="\n    ", flush=True)


def main() -> None:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="photographs")
    parser.add_argument("--page", type=Path, help="the page that has the table")
    parser.add_argument("--sweep", action="store_true", help="try other settings instead")
    given = parser.parse_args()
    if given.sweep:
        return sweep(given.folder)
    start = time.perf_counter()
    found = counted(cases(given.folder), NoiseSettings())
    count = sum(one.cases for row in found.values() for one in row.values())
    text = f"{table(found)}\n\n{count:,} cases, seed {SEED}."
    print(f"{text} {time.perf_counter() - start:.0f} s")
    if given.page:
        page = given.page.read_text(encoding="utf-8")
        before, _, rest = page.partition(START)
        after = rest.partition(END)[2]
        given.page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
