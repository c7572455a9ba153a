"""Quality on the data that decisions are set on, with each decision at its default and either side.

    python -m benchmarks.tuning.sweep grid --photographs FOLDER
    python -m benchmarks.tuning.sweep smoothing points search gaussians

Photographs should be kodim01 to 08, on which nothing is published; without a folder they are
scikit-image's own. Functions are drawn by a seed. Quality is in dB, the mean over photographs and
the mean over functions (relative to their range), higher is better.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kronfield as kf
from benchmarks.data import SURFACES, GridTask, photographs
from benchmarks.frame import psnr
from kronfield.fitting.settings import DEFAULT, Settings, changed, decisions

SIDE = 128
Case = Callable[[Settings], float]


def _grid_photographs(folder: Path | None) -> list[Case]:
    tasks = [GridTask(image) for image in photographs(folder, 2 * SIDE, 8).values()]

    def case(task: GridTask) -> Case:
        def run(settings: Settings) -> float:
            field = kf.fit(task.given, channels=True, settings=settings)
            return task.score(field.on_grid(task.positions()))[0]

        return run

    return [case(task) for task in tasks]


def _grid_functions() -> list[Case]:
    x, fine = np.linspace(0, 1, 24), np.linspace(0, 1, 70)

    def case(function: Callable[..., np.ndarray]) -> Case:
        def run(settings: Settings) -> float:
            field = kf.fit(function(x[:, None], x[None, :]), [x, x], settings=settings)
            truth = function(fine[:, None], fine[None, :])
            return psnr(field.on_grid([fine, fine]), truth, float(np.ptp(truth)))

        return run

    return [case(function) for function in SURFACES.values()]


def _noisy_photographs(folder: Path | None) -> list[Case]:
    def case(image: np.ndarray, seed: int) -> Case:
        noisy = image + 0.05 * np.random.default_rng(seed).standard_normal(image.shape)

        def run(settings: Settings) -> float:
            # by default shrinkage is chosen, which these decisions do not change
            field = kf.fit(noisy, channels=True, roughness="gcv", settings=settings)
            return psnr(np.clip(field.on_grid(), 0, 1), image)

        return run

    found = photographs(folder, 2 * SIDE, 8).values()
    return [case(image, seed) for seed, image in enumerate(found)]


def _noisy_lines() -> list[Case]:
    def case(count: int, waves: int) -> Case:
        truth = np.sin(2 * np.pi * waves * np.linspace(0, 1, count))
        noisy = truth + 0.2 * np.random.default_rng(count).standard_normal(count)

        def run(settings: Settings) -> float:
            return psnr(kf.fit(noisy, settings=settings).on_grid(), truth, 2.0)

        return run

    return [case(count, waves) for count in (200, 1000, 5000, 30_000) for waves in (1, 4, 16)]


def _point_photographs(folder: Path | None) -> list[Case]:
    def case(image: np.ndarray, seed: int) -> Case:
        mask = np.random.default_rng(seed).random(image.shape[:2]) < 0.25
        points, everywhere = np.argwhere(mask), np.argwhere(~mask)
        jitter = np.random.default_rng(seed).uniform(-0.01, 0.01, points.shape)  # off the lattice

        def run(settings: Settings) -> float:
            field = kf.fit_points(points + jitter, image[mask], settings=settings)
            return psnr(np.clip(field(everywhere, outside="clamp"), 0, 1), image[~mask])

        return run

    found = photographs(folder, SIDE, 8).values()
    return [case(image, seed) for seed, image in enumerate(found)]


def _point_functions() -> list[Case]:
    def case(function: Callable[..., np.ndarray], count: int, noise: float) -> Case:
        rng = np.random.default_rng(count)
        points, at = rng.random((count, 2)), rng.random((2000, 2))
        values = function(*points.T) + noise * rng.standard_normal(count)
        truth = function(*at.T)

        def run(settings: Settings) -> float:
            field = kf.fit_points(points, values, domain=[(0, 1), (0, 1)], settings=settings)
            return psnr(field(at), truth, float(np.ptp(truth)))

        return run

    sizes = ((60, 0.0), (300, 0.0), (300, 0.05), (1500, 0.02))
    return [case(f, count, noise) for f in SURFACES.values() for count, noise in sizes]


def main() -> None:
    """Print a table for every group that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    groups = ["grid", "smoothing", "points", "search", "gaussians"]
    parser.add_argument("groups", nargs="*", default=groups)
    parser.add_argument("--photographs", type=Path)
    options = parser.parse_args()
    made = dict.fromkeys(("grid", "directional"), (_grid_photographs, _grid_functions))
    made["smoothing"] = (_noisy_photographs, _noisy_lines)
    known = (*made, "points", "search", "gaussians")
    if not set(options.groups) <= set(known):
        parser.error(f"groups: got {options.groups}; expected some of {', '.join(known)}")
    for group in options.groups:
        pictures, functions = made.get(group, (_point_photographs, _point_functions))
        sets = {"photographs": pictures(options.photographs), "functions": functions()}
        print(f"{group:<36} {'photographs':>12} {'functions':>12} {'s':>8}")
        for one in decisions():
            if one.group != group or one.script == "none":
                continue
            for value in (one.value, *one.sides):
                settings, started = changed(DEFAULT, group, one.name, value), time.perf_counter()
                means = [np.mean([case(settings) for case in cases]) for cases in sets.values()]
                spent = time.perf_counter() - started
                label = f"{one.name} {value}{' (default)' if value == one.value else ''}"
                print(f"{label:<36} {means[0]:12.3f} {means[1]:12.3f} {spent:8.1f}", flush=True)


if __name__ == "__main__":
    main()
