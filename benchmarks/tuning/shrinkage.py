"""Quality of denoising with each decision of shrinkage and grouping at its default and around it.

    python -m benchmarks.tuning.shrinkage FOLDER                        # all tables, 20 minutes
    python -m benchmarks.tuning.shrinkage FOLDER --decisions threshold,steps --kinds colour,volumes
    python -m benchmarks.tuning.shrinkage FOLDER --ablation             # what each part gains

The folder must hold kodim01 to 08; other photographs are left out. Volumes, sounds and data of four
dimensions are generated. Noise of 0.05 and 0.1 is given, so that only its removal is judged. A
table has a line per kind of data: the mean PSNR with the default, in brackets, and the differences
with other values. The last line is CPU time over that with the default.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.fft import dctn, idctn
from scipy.ndimage import map_coordinates

from benchmarks.data import SET_ON, Array, photographs
from benchmarks.frame import psnr
from benchmarks.tuning.directional import balls, steps
from kronfield.fitting import shrinkage
from kronfield.fitting.denoising import Removal
from kronfield.fitting.grouping import regroup
from kronfield.fitting.noise import Noise, decorrelated
from kronfield.fitting.settings import DEFAULT, Settings, ShrinkageSettings, changed
from kronfield.fitting.shrinkage import Tiling, shrink
from kronfield.fitting.stabilising import find_stabilisers

LEVELS = (0.05, 0.1)
# Sides of crops of photographs, of volumes, and of data of four dimensions.
SIDE, CUBE, FOUR = 128, 40, 18
# Frames of a clip and the side of each.
FRAMES, FRAME = 24, 48
# Samples of a sound.
SOUND = 1 << 14


# Data
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """Truth and noisy values (C, N_1, ..., N_D), and how noise of standard deviation 1 is made."""

    truth: Array
    noisy: Array
    removal: Removal

    @classmethod
    def of(cls, truth: Array, sigma: float, seed: int) -> Case:
        truth = truth.astype(np.float64)
        rng = np.random.default_rng([seed, round(1000 * sigma)])
        noisy = truth + sigma * rng.standard_normal(truth.shape)
        return cls(truth, noisy, Removal.of(noisy, white(noisy, sigma)))

    @functools.cached_property
    def level(self) -> Array:
        return self.removal.level(self.noisy)

    @functools.cached_property
    def planes(self) -> Array:
        """Decorrelated planes whose noise has standard deviation 1."""
        planes = np.tensordot(self.removal.whiten, self.noisy - self.level, axes=1)
        return planes.astype(np.float32)

    @functools.cached_property
    def pilot(self) -> Array:
        """The planes after shrinkage by default."""
        return shrink(self.planes)

    def score(self, planes: Array) -> float:
        """Return the PSNR of planes without noise."""
        found = np.tensordot(self.removal.restore, planes, axes=1) + self.level
        low, high = self.truth.min(), self.truth.max()
        return psnr(np.clip(found, min(low, 0), max(high, 1)), self.truth)


def white(planes: Array, sigma: float) -> Noise:
    """Return noise that is given: white, the same in all channels."""
    C = len(planes)
    return Noise(np.full(C, sigma), np.full(C, sigma), np.eye(C), 1.0, True, "given")


def pictures(folder: Path, side: int = SIDE) -> list[Array]:
    """Return centre crops of kodim01 to 08 as planes."""
    found = photographs(folder, side, 1000)
    missing = [name for name in SET_ON if name not in found]
    if missing:
        raise SystemExit(f"{folder} has no {', '.join(missing)}: decisions are set on these")
    return [np.moveaxis(found[name], -1, 0) for name in SET_ON]


def grey(planes: Array) -> Array:
    return planes.mean(axis=0, keepdims=True)


def sounds(count: int = 4) -> list[Array]:
    """Return plucked notes with decaying harmonics, and chirps, within -0.5 to 0.5."""
    found = []
    for seed in range(count):
        rng, line = np.random.default_rng(seed), np.zeros(SOUND)
        for _ in range(24):
            start, pitch = rng.integers(0, SOUND), rng.uniform(0.004, 0.04)
            t = np.arange(SOUND - start)
            bend = rng.uniform(-1, 1) * pitch / SOUND  # the pitch rises or falls a little
            phase = 2 * np.pi * (pitch * t + bend * t**2)
            decay = np.exp(-t / rng.uniform(500, 4000)) * np.minimum(1, t / 20)
            line[start:] += decay * sum(
                np.sin(k * phase + rng.uniform(0, 6)) / k**1.5 for k in range(1, 9)
            )
        found.append((line / np.abs(line).max() / 2)[None])
    return found


def pan(planes: Array, seed: int) -> Array:
    """Return a clip (C, FRAMES, FRAME, FRAME): a view that moves and turns over a picture."""
    rng = np.random.default_rng(seed)
    speed, turn, zoom = rng.uniform(-0.7, 0.7, 2), rng.uniform(-0.004, 0.004), rng.uniform(0, 0.004)
    x = np.stack(np.meshgrid(*[np.arange(FRAME) - FRAME / 2] * 2, indexing="ij"))
    frames = []
    for t in range(FRAMES):
        cosine, sine = np.cos(turn * t), np.sin(turn * t)
        at = np.tensordot([[cosine, -sine], [sine, cosine]], x, 1) * (1 + zoom * t)
        at = at + (np.array(planes.shape[1:]) / 2 + speed * t)[:, None, None]
        frames.append([map_coordinates(one, at, order=3, mode="mirror") for one in planes])
    return np.clip(np.moveaxis(np.array(frames), 0, 1), 0, 1)


def cloud(side: int, D: int, seed: int) -> Array:
    """Return a random field with power 1/f^3 on a cube, within 0 to 1."""
    rng = np.random.default_rng(seed)
    f = np.sqrt(sum(np.meshgrid(*[np.fft.fftfreq(side) ** 2] * D, indexing="ij")))
    f.flat[0] = np.inf
    field = np.fft.ifftn(np.fft.fftn(rng.standard_normal((side,) * D)) / f ** (1.5)).real
    return ((field - field.min()) / np.ptp(field))[None]


def moving_balls(side: int, seed: int) -> Array:
    """Return balls of several values that move through a cube, (1, side, side, side, side)."""
    rng = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(*[np.arange(side) / side] * 3, indexing="ij"))
    values = np.zeros((side,) * 4)
    for _ in range(6):
        start, speed = rng.random((3, 1, 1, 1)), rng.uniform(-0.5, 0.5, (3, 1, 1, 1))
        radius, value = rng.uniform(0.15, 0.35), rng.random()
        for t in range(side):
            distance = np.sqrt(((x - start - speed * t / side) ** 2).sum(0))
            values[t] += np.clip((radius - distance) * side + 0.5, 0, 1) * (value - values[t])
    return values[None]


def kinds(folder: Path) -> dict[str, Callable[[], list[Array]]]:
    """Return the kinds of data, each a function that makes it."""
    return {
        "rows": lambda: [
            planes[:, at] for planes in pictures(folder, 512) for at in range(64, 512, 128)
        ],
        "sounds": sounds,
        "colour": lambda: pictures(folder),
        "grey": lambda: [grey(planes) for planes in pictures(folder)],
        "clips": lambda: [pan(planes, i) for i, planes in enumerate(pictures(folder)[:6:2])],
        "volumes": lambda: [
            *(np.moveaxis(make(CUBE), -1, 0) for make in (balls, steps)),
            cloud(CUBE, 3, 0),
        ],
        "four": lambda: [moving_balls(FOUR, 0), cloud(FOUR, 4, 0)],
    }


def dimensions(kind: str) -> int:
    return {"rows": 1, "sounds": 1, "colour": 2, "grey": 2, "four": 4}.get(kind, 3)


# Decisions
# ------------------------------------------------------------------------------------------

# Values around the default. Those of decisions that depend on the dimensions are by dimension.
SHRINKAGE: dict[str, Any] = {
    "first_sizes": {
        1: [(8,), (16,), (32,), (8, 16), (8, 32), (16, 32), (16, 64)],
        2: [(4,), (6,), (8,), (12,), (16,), (4, 8), (8, 16)],
        3: [(2,), (3,), (4,), (6,), (8,), (4, 8)],
        4: [(2,), (3,), (4,), (2, 4)],
    },
    "second_sizes": {
        1: [(32,), (64,), (128,), (32, 64), (32, 128), (64, 256)],
        2: [(8,), (12,), (16,), (24,), (32,), (8, 16), (16, 32)],
        3: [(4,), (6,), (8,), (12,), (4, 6), (6, 8), (8, 12)],
        4: [(2,), (4,), (6,), (4, 6)],
    },
    "shifts": [1, 2, 4, 6, 8, 16],
    "threshold": [2.1, 2.4, 2.7, 3.0, 3.3],
}
GROUPING: dict[str, Any] = {
    "patches": {1: [4, 8, 16, 32], 2: [3, 4, 5, 6, 8], 3: [2, 3, 4], 4: [2, 3]},
    "group": [12, 16, 24, 32, 48, 64, 96],
    "steps": {
        1: [2, 3, 4, 6, 8, 10],
        2: [2, 3, 4, 6, 8, 10],
        3: [3, 4, 6, 8],  # smaller steps take too long in three and four dimensions
        4: [4, 6, 8],
    },
    "reaches": {
        1: [25, 50, 100, 200, 400],
        2: [5, 7, 10, 14, 20],
        3: [2, 3, 4, 6],
        4: [1, 2, 3, 4],
    },
    "patch_of_one": [4, 5, 6, 7, 8],
    "quick_groups": {D: [10, 12, 14, 16, 20, 24] for D in (1, 2, 3, 4)},
    "quick_step": [6, 7, 8, 9, 10],
    "quick_reach": [3, 4, 5, 7, 10],
    "leading": [0.5, 0.8, 0.9, 1.0],
    "slow": {
        1: [((16, 14, 6, 100), (16, 24, 6, 100), (16, 24, 6, 100)), ((32, 48, 6, 200),)],
        2: [
            ((5, 14, 8, 4), (5, 24, 6, 10), (5, 24, 6, 10)),
            ((5, 14, 8, 4), (7, 32, 8, 12), (5, 24, 6, 10)),
            ((5, 14, 8, 4), (7, 40, 8, 16), (5, 40, 6, 10)),
        ],
        3: [
            ((3, 14, 4, 4), (3, 24, 4, 4), (3, 24, 4, 4)),
            ((3, 14, 4, 4), (4, 32, 4, 4), (3, 24, 4, 4)),
        ],
        4: [((3, 14, 4, 3), (3, 24, 4, 3)), ((3, 14, 4, 3), (3, 24, 4, 3), (3, 24, 4, 3))],
    },
}


def tried(group: str, name: str, kind: str) -> list[tuple[str, Settings]]:
    """Return the values of a decision for a kind of data, with their settings."""
    D, found = dimensions(kind), []
    values = (SHRINKAGE if group == "shrinkage" else GROUPING)[name]
    if isinstance(values, dict):
        default = getattr(getattr(DEFAULT, group), name)
        for value in values[D]:
            by_dimension = (*default[: D - 1], value, *default[D:])
            found.append((str(value), changed(DEFAULT, group, name, by_dimension)))
        return found
    for value in values:
        found.append((str(value), changed(DEFAULT, group, name, value)))
    return found


def removed(case: Case, group: str, name: str, settings: Settings) -> Array:
    if group == "shrinkage":
        return shrink(case.planes, settings.shrinkage)
    own, D = settings.grouping, case.planes.ndim - 1
    if name == "slow":
        found = case.pilot
        for one in own.slower(D):
            found = regroup(case.planes, found, one)
        return found
    return regroup(case.planes, case.pilot, own.quick(D) if name.startswith("quick") else own)


def table(group: str, name: str, data: dict[str, list[Case]]) -> None:
    """Print a table of one decision."""
    print(f"\n{group}.{name}", flush=True)
    for kind, cases in data.items():
        every = tried(group, name, kind)
        scores, spent = [], []
        for case in cases:
            assert case.pilot is not None  # not part of the time
        for _, settings in every:
            started = time.process_time()
            found = [removed(case, group, name, settings) for case in cases]
            spent.append(time.process_time() - started)
            scores.append(
                np.mean([case.score(one) for case, one in zip(cases, found, strict=True)])
            )
        at = next(i for i, (_, settings) in enumerate(every) if settings == DEFAULT)
        head = [f"[{value}]" if i == at else value for i, (value, _) in enumerate(every)]
        body = [
            f"{score:.2f}" if i == at else f"{score - scores[at]:+.2f}"
            for i, score in enumerate(scores)
        ]
        cost = [f"{one / spent[at]:.2f}" for one in spent]
        widths = [max(map(len, column)) for column in zip(head, body, cost, strict=True)]
        for label, cells in ((kind, head), ("dB", body), ("time", cost)):
            line = "  ".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
            print(f"  {label:<8} {line}", flush=True)


# Noise that depends on the signal
# ------------------------------------------------------------------------------------------

# The standard deviation of noise by the signal.
DEPENDENCES: dict[str, Callable[[Array], Array]] = {
    "constant, 0.02": lambda x: np.full_like(x, 0.02),
    "constant, 0.05": lambda x: np.full_like(x, 0.05),
    "constant, 0.1": lambda x: np.full_like(x, 0.1),
    "Poisson, 400 counts": lambda x: np.sqrt(x / 400),
    "Poisson, 50 counts": lambda x: np.sqrt(x / 50),
    "sensor": lambda x: np.sqrt(0.02**2 + 0.05**2 * x),
    "multiplicative, 0.1": lambda x: 0.1 * x,
    "multiplicative, 0.3": lambda x: 0.3 * x,
}
VARIES = [1.0, 1.2, 1.4, 1.6, 2.0, 3.0, 10.0]


def dependence_table(folder: Path) -> None:
    """Print how often noise is taken to depend on the signal, and the PSNR."""
    print("\nnoise.varies: part of the pictures where noise is taken to depend on the signal, PSNR")
    head = "  ".join(f"{f'[{v}]' if v == DEFAULT.noise.varies else v:>12}" for v in VARIES)
    print(f"  {'':<28} {head}", flush=True)
    every = pictures(folder, 256)
    for channels, crops in (("colour", every), ("grey", [grey(planes) for planes in every])):
        for name, sigma in DEPENDENCES.items():
            found: list[list[bool]] = []
            scores: list[list[float]] = []
            for seed, truth in enumerate(crops):
                truth = truth.astype(np.float64)
                local = sigma(truth)
                noisy = truth + local * np.random.default_rng(seed).standard_normal(truth.shape)
                noise = white(truth, float(np.sqrt(np.mean(local**2))))
                rotation = decorrelated(noisy)[0]
                results: dict[bool, float] = {}
                is_found, score = [], []
                for value in VARIES:
                    varies = replace(DEFAULT.noise, varies=value)
                    stabilisers = find_stabilisers(noisy, rotation, 1.0, varies)
                    depends = stabilisers is not None
                    if depends not in results:
                        clean = Removal.of(noisy, noise, stabilisers)(noisy)
                        results[depends] = psnr(np.clip(clean, 0, 1), truth)
                    is_found.append(depends)
                    score.append(results[depends])
                found.append(is_found)
                scores.append(score)
            parts, means = np.mean(found, axis=0), np.mean(scores, axis=0)
            cells = [f"{part:.2f}, {mean:.2f}" for part, mean in zip(parts, means, strict=True)]
            line = "  ".join(f"{cell:>12}" for cell in cells)
            print(f"  {channels + ', ' + name:<28} {line}", flush=True)


# What each part gains
# ------------------------------------------------------------------------------------------


Estimate = Callable[[Array, Array], tuple[Array, float]]


def grouped(
    noisy: Array, pilot: Array, side: int, count: int, step: int, reach: int, estimate: Estimate
) -> Array:
    """Return planes from groups of alike patches, one reference after the other.

    ``estimate`` gets the noisy patches (count, C, side, side) of a group and those of the pilot. It
    returns patches without noise, and their weight in the average.
    """
    view = lambda planes: np.lib.stride_tricks.sliding_window_view(planes, (side, side), (1, 2))  # noqa: E731
    patches, guides = view(noisy), view(pilot)
    total, share = np.zeros(noisy.shape), np.zeros(noisy.shape[1:])
    lattice = [np.unique(np.append(np.arange(0, n, step), n - 1)) for n in guides.shape[1:3]]
    for i, j in itertools.product(*lattice):
        top, left = max(i - reach, 0), max(j - reach, 0)
        near = guides[:, top : i + reach + 1, left : j + reach + 1]
        own = guides[:, i, j][:, None, None]
        distances = ((near - own) ** 2).sum(axis=(0, 3, 4))
        best = np.argsort(distances, axis=None, kind="stable")[:count]
        rows, columns = np.unravel_index(best, distances.shape)
        rows, columns = rows + top, columns + left
        found, weight = estimate(
            np.moveaxis(patches[:, rows, columns], 0, 1),
            np.moveaxis(guides[:, rows, columns], 0, 1),
        )
        for r, c, patch in zip(rows, columns, found, strict=True):
            total[:, r : r + side, c : c + side] += weight * patch
            share[r : r + side, c : c + side] += weight
    return np.where(share > 0, total / np.maximum(share, 1e-12), pilot)


def transformed(values: Array, models: Array) -> tuple[Array, float]:
    """Shrink the cosines of a stack of patches (Dabov et al., 2007), each plane on its own."""
    axes = (0, 2, 3)
    q = dctn(models, axes=axes, norm="ortho") ** 2
    factors = q / (q + 1)
    clean = idctn(factors * dctn(values, axes=axes, norm="ortho"), axes=axes, norm="ortho")
    return clean, float(1 / np.sum(factors**2))


def gaussian(values: Array, models: Array) -> tuple[Array, float]:
    """Estimate patches under a Gaussian model of all planes (Lebrun, Buades and Morel, 2013)."""
    shape = values.shape
    values, models = (one.reshape(len(one), -1).astype(np.float64) for one in (values, models))
    mean = models.mean(axis=0)
    S = (models - mean).T @ (models - mean) / len(models)
    clean = mean + np.linalg.solve(S + np.eye(len(S)), S @ (values - mean).T).T
    return clean.reshape(shape), 1.0


def gaussian_planes(values: Array, models: Array) -> tuple[Array, float]:
    """Do the same with a model of each plane on its own."""
    every = [gaussian(values[:, k, None], models[:, k, None])[0] for k in range(values.shape[1])]
    return np.concatenate(every, axis=1), 1.0


def clustered(noisy: Array, pilot: Array, side: int = 5, clusters: int = 64) -> Array:
    """Return planes from all patches, with one Gaussian model per cluster of the whole picture."""
    from scipy.cluster.vq import kmeans2

    view = lambda planes: np.lib.stride_tricks.sliding_window_view(planes, (side, side), (1, 2))  # noqa: E731
    patches, guides = (np.moveaxis(view(one), 0, 2) for one in (noisy, pilot))
    counts, shape = patches.shape[:2], patches.shape
    values, models = (
        np.ascontiguousarray(one).reshape(-1, shape[2] * side**2) for one in (patches, guides)
    )
    flat = models - models.reshape(len(models), shape[2], -1).mean(2).repeat(side**2, axis=1)
    labels = kmeans2(flat, clusters, iter=8, minit="++", rng=np.random.default_rng(0))[1]
    clean = models.astype(np.float64)
    for label in range(clusters):
        inside = labels == label
        if inside.sum() > 1:
            clean[inside] = gaussian(values[inside], models[inside])[0]
    clean = clean.reshape(shape)
    total, share = np.zeros(noisy.shape), np.zeros(noisy.shape[1:])
    for i, j in itertools.product(range(side), repeat=2):
        part = (slice(i, i + counts[0]), slice(j, j + counts[1]))
        total[(slice(None), *part)] += np.moveaxis(clean[..., i, j], 2, 0)
        share[part] += 1
    return total / share


def scattered(
    shape: Sequence[int], settings: ShrinkageSettings
) -> tuple[list[Tiling], list[Tiling]]:
    """Return tilings of both passes at random shifts. Those of `shrinkage.tilings` lie on one line.

    So there blocks of 8 samples per axis have 8 shifts that differ, here they have 64 on two axes.
    """
    rng = np.random.default_rng(0)
    found: tuple[list[Tiling], list[Tiling]] = [], []
    for part, sizes in zip(found, settings.sizes(len(shape)), strict=True):
        for size in sizes:
            every = rng.permutation(size ** len(shape))[: settings.shifts]
            shifts = np.stack(np.unravel_index(every, (size,) * len(shape)), axis=1)
            part += [Tiling((size,) * len(shape), tuple(map(int, shift))) for shift in shifts]
    return found


def shrink_scattered(planes: Array, shifts: int) -> Array:
    """Return planes after shrinkage at random shifts."""
    with mock.patch.object(shrinkage, "tilings", scattered):
        return shrink(planes, replace(DEFAULT.shrinkage, shifts=shifts))


def slowly(case: Case) -> Array:
    """Return the planes after the rounds of groups of the slower setting."""
    return removed(case, "grouping", "slow", DEFAULT)


def parts() -> Iterator[tuple[str, Callable[[Case], Array]]]:
    """Yield what is compared: names, and functions from a case to planes without noise."""
    one = DEFAULT.grouping
    ours = one.patch(2), one.group, one.step(2), one.reach(2)
    yield "shrinkage, 4 shifts", lambda case: case.pilot
    for count in (8, 16):
        shifts = replace(DEFAULT.shrinkage, shifts=count)
        yield f"shrinkage, {count} shifts", lambda case, shifts=shifts: shrink(case.planes, shifts)
    yield "shrinkage, 64 shifts at random", lambda case: shrink_scattered(case.planes, 64)
    yield (
        "clusters of the whole picture, one Gaussian each",
        lambda case: clustered(case.planes, case.pilot),
    )
    yield (
        "groups of 32 patches of 8 x 8, cosines in three dimensions",
        lambda case: grouped(case.planes, case.pilot, 8, 32, 3, 12, transformed),
    )
    yield (
        "groups, a Gaussian of each plane",
        lambda case: grouped(case.planes, case.pilot, *ours, gaussian_planes),
    )
    yield (
        "groups, a Gaussian of all planes",
        lambda case: regroup(case.planes, case.pilot),
    )
    yield (
        "the same, one reference after the other",
        lambda case: grouped(case.planes, case.pilot, *ours, gaussian),
    )
    yield (
        "three rounds, each found in the result before (thorough=True)",
        lambda case: slowly(case),
    )


def ablation(folder: Path) -> None:
    """Print what each part gains over shrinkage, on photographs in colour and grey."""
    print("\nmean PSNR, and gain over shrinkage of 4 shifts")
    for kind in ("colour", "grey"):
        truths = kinds(folder)[kind]()
        base: dict[float, float] = {}
        for name, call in parts():
            cells = []
            for sigma in LEVELS:
                cases = [Case.of(truth, sigma, seed) for seed, truth in enumerate(truths)]
                mean = float(np.mean([case.score(call(case)) for case in cases]))
                base.setdefault(sigma, mean)
                cells.append(f"{sigma}: {mean:.2f} ({mean - base[sigma]:+.2f})")
            print(f"  {kind:<7} {name:<58} {'   '.join(cells)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SHRINKAGE, *GROUPING, "varies"]
    parser.add_argument("folder", type=Path, help="photographs, kodim01 to 08 among them")
    parser.add_argument("--decisions", default=",".join(names), help=f"any of {', '.join(names)}")
    parser.add_argument("--kinds", help="any kinds of data; default: all")
    parser.add_argument("--ablation", action="store_true", help="what each part gains")
    options = parser.parse_args(arguments)
    wanted = options.decisions.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"no decision {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    makers = kinds(options.folder)
    chosen = options.kinds.split(",") if options.kinds else list(makers)
    if unknown := set(chosen) - set(makers):
        parser.error(f"no kind {', '.join(sorted(unknown))}: there are {', '.join(makers)}")
    if options.ablation:
        ablation(options.folder)
        return
    data = {
        kind: [
            Case.of(truth, sigma, seed)
            for seed, truth in enumerate(makers[kind]())
            for sigma in LEVELS
        ]
        for kind in chosen
        if set(wanted) != {"varies"}
    }
    for name in wanted:
        if name == "varies":
            dependence_table(options.folder)
        else:
            table("shrinkage" if name in SHRINKAGE else "grouping", name, data)


if __name__ == "__main__":
    main()
