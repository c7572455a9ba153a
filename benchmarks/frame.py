"""What every benchmark shares: interleaved repetitions, medians with spread, ratios, peak memory, and the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Threads of different libraries spin for a while after their work; each measurement starts when they have stopped.
SETTLE = 0.02


@dataclass(frozen=True)
class Timing:
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{1e3 * self.median:9.2f} ms ({1e3 * self.low:.2f} to {1e3 * self.high:.2f})"


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what ``call`` returns, and its seconds."""
    time.sleep(SETTLE)
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def interleaved(calls: dict[str, Callable[[], object]], repetitions: int) -> dict[str, Timing]:
    """Time every call in turn, again and again, so that a change of the machine's mood hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # warm up
    for _ in range(repetitions):
        for name, call in calls.items():
            times[name].append(timed(call)[1])
    return {name: Timing(statistics.median(one), min(one), max(one)) for name, one in times.items()}


def in_turn(calls: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, tuple[Any, Timing]]:
    """Time every call as `interleaved` does; return what each returned last, and its timing."""
    results: dict[str, Any] = {}
    timings = interleaved({n: lambda n=n, c=c: results.__setitem__(n, c()) for n, c in calls.items()}, repetitions)
    return {name: (results[name], timing) for name, timing in timings.items()}


def table(header: list[str], rows: list[list[str]]) -> None:
    """Print columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for first, *others in (header, *rows):
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        print("  " + "  ".join([f"{first:<{widths[0]}}", *cells]))


def peak_memory(call: Callable[[], object]) -> int:
    """Return the bytes that ``call`` holds at most through NumPy and Python, result included."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def machine(*more: str) -> str:
    """Say what this runs on, and with what, ``more`` packages included."""
    versions = []
    for name in ("kronfield", "numpy", "scipy", "torch", "csaps", "scikit-image", *more):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {', '.join(versions)}"


def photographs(folder: Path | None, side: int = 480) -> dict[str, np.ndarray]:
    """Return square centre crops, float32 in [0, 1]: of the images in ``folder``, else of scikit-image's own."""
    from PIL import Image

    if folder is not None:
        images = {path.stem: np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.glob("*.png"))}
        if not images:
            raise SystemExit(f"no PNG files in {folder}")
    else:
        from skimage import data

        images = {name: getattr(data, name)()[..., :3] for name in ("astronaut", "chelsea", "coffee", "rocket")}
    crops = {}
    for name, image in images.items():
        height, width = image.shape[:2]
        size = min(side, height // 2 * 2, width // 2 * 2)
        top, left = (height - size) // 2, (width - size) // 2
        crops[name] = image[top : top + size, left : left + size].astype(np.float32) / 255
    return crops
