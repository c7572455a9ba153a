"""The speed of this checkout beside that of another, for example of an earlier version.

    git worktree add ../kronfield-0.1.0 v0.1.0
    python -m benchmarks.versions --other ../kronfield-0.1.0
    python -m benchmarks.versions --other ../kronfield-0.1.0 --jobs pixels,network --rounds 5

Every job runs in a fresh process that imports kronfield from the ``src`` of one of the checkouts.
The two take turns, round by round, so that a change of the speed of the machine affects both. A
process calls a job once without timing it, then repeatedly. The table has the median over the
rounds of the median of each process, and the median of the ratios of each round: below 1, this
checkout is faster. All data are generated from a seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
# A process calls a job this many times at most, and makes no further call after these seconds.
CALLS, SECONDS = 9, 4.0

Job = Callable[[], object]


# The jobs
# ------------------------------------------------------------------------------------------


def picture(side: int, channels: int = 3) -> np.ndarray:
    """Return a picture (side, side, C) in float32: a disc, stripes, and a little texture."""
    x, y = np.mgrid[0:side, 0:side] / side
    disc, stripes = np.hypot(x - 0.5, y - 0.4) < 0.3, np.sin(20 * y + 6 * x * x)
    texture = np.random.default_rng(0).random((side, side))
    planes = [0.4 * disc + 0.15 * (1 + c) * stripes + 0.05 * texture for c in range(channels)]
    return np.stack(planes, axis=-1).astype(np.float32)


def chosen(tiny: bool) -> Job:
    """A picture, nothing given, and twice as many pixels on each axis."""
    import kronfield as kf

    side = 32 if tiny else 480
    values = picture(side)
    return lambda: kf.fit(values).on_grid((2 * side, 2 * side))


def noisy(tiny: bool) -> Job:
    """A picture with noise, which is found and removed."""
    import kronfield as kf

    side = 32 if tiny else 480
    noise = np.random.default_rng(1).standard_normal((side, side, 3))
    values = (picture(side) + 0.1 * noise).astype(np.float32)
    return lambda: kf.fit(values).on_grid()


def video(tiny: bool) -> Job:
    """A clip of grey pictures, nothing given."""
    import kronfield as kf

    n = 16 if tiny else 96
    x = np.linspace(0, 6, n)
    waves = np.sin(x)[: n // 2, None, None] * np.cos(2 * x)[:, None] * np.sin(3 * x)
    spots = np.random.default_rng(0).random(waves.shape) > 0.9
    values = (waves + 0.2 * spots).astype(np.float32)
    return lambda: kf.fit(values).on_grid((n, n, n))


def _gaussians(side: int) -> Any:
    import kronfield as kf

    return kf.Kronecker(kf.Gaussian(side, 0.8 / side), kf.Gaussian(side, 0.8 / side))


def closed(tiny: bool) -> Job:
    """The paper's closed form on a picture, and twice as many pixels on each axis."""
    import kronfield as kf

    side = 32 if tiny else 480
    values, encoding = picture(side), _gaussians(side)
    return lambda: kf.fit(values, encoding=encoding, ridge=0.0).on_grid((2 * side, 2 * side))


def large(tiny: bool) -> Job:
    """The paper's closed form on a large plane, at the samples."""
    import kronfield as kf

    side = 64 if tiny else 2048
    values, encoding = picture(side, 1)[..., 0], _gaussians(side)
    return lambda: kf.fit(values, encoding=encoding, ridge=0.0).on_grid((side, side))


def values_at_points(tiny: bool) -> Job:
    """The values of a field at scattered points."""
    import kronfield as kf

    side, count = (32, 500) if tiny else (480, 200_000)
    field = kf.fit(picture(side), encoding=_gaussians(side), ridge=0.0)
    points = np.random.default_rng(0).random((count, 2)) * (side - 1)
    return lambda: field(points)


def pixels(tiny: bool) -> Job:
    """A quarter of the pixels of a picture, and all of them from these."""
    import kronfield as kf

    side = 32 if tiny else 480
    values = picture(side)
    mask = np.random.default_rng(0).random((side, side)) < 0.25
    points, domain = np.argwhere(mask).astype(float), [(-0.5, side - 0.5)] * 2
    return lambda: kf.fit_points(points, values[mask], domain=domain).on_grid((side, side))


def _smooth(count: int) -> Job:
    import kronfield as kf

    rng = np.random.default_rng(0)
    points, noise = rng.random((count, 2)), 0.05 * rng.standard_normal(count)
    values = np.sin(5 * points[:, 0]) * np.cos(3 * points[:, 1]) + noise
    return lambda: kf.fit_points(points, values, domain=[(0, 1)] * 2)(points)


def few_points(tiny: bool) -> Job:
    """A smooth function with noise at 200 points."""
    return _smooth(40 if tiny else 200)


def more_points(tiny: bool) -> Job:
    """A smooth function with noise at 5000 points."""
    return _smooth(60 if tiny else 5000)


def stream(tiny: bool) -> Job:
    """A million points added to a summary."""
    import kronfield as kf

    size, count = (16, 1000) if tiny else (256, 1_000_000)
    points = np.random.default_rng(0).random((count, 2))
    values, hats = np.sin(5 * points[:, 0]), kf.Triangle(size, 2 / size)

    def add() -> object:
        seen = kf.Statistics(kf.Kronecker(hats, hats), [(0, 1)] * 2)
        seen.add(points, values)
        return seen

    return add


def network(tiny: bool) -> Job:
    """Ten training steps of the paper's network on a simple encoding, a full batch each."""
    import torch

    import kronfield as kf
    from kronfield.nn import CoordinateMLP, train

    side, width = (16, 8) if tiny else (96, 128)
    torch.manual_seed(0)
    values, emb = picture(side), kf.Gaussian(side // 2, 1.2 / side)
    model = CoordinateMLP(kf.Concatenated(emb, emb), depth=2, width=width, out=3)
    return lambda: train(model, values, epochs=2 if tiny else 10)


def file(tiny: bool) -> Job:
    """A field, saved and loaded."""
    import kronfield as kf

    side = 32 if tiny else 1024
    field = kf.fit(picture(side), encoding=_gaussians(side), ridge=0.0)

    def both() -> object:
        with tempfile.TemporaryDirectory() as folder:
            field.save(Path(folder) / "a.field")
            return kf.load(Path(folder) / "a.field")

    return both


JOBS: dict[str, Callable[[bool], Job]] = {
    "chosen": chosen,
    "noisy": noisy,
    "video": video,
    "closed": closed,
    "large": large,
    "values-at-points": values_at_points,
    "pixels": pixels,
    "few-points": few_points,
    "more-points": more_points,
    "stream": stream,
    "network": network,
    "file": file,
}


# Measuring
# ------------------------------------------------------------------------------------------


def timed(job: Job) -> float:
    """Return the median seconds of a call, after one that is not timed."""
    job()
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(found) < CALLS and (not found or time.perf_counter() < end):
        started = time.perf_counter()
        job()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def serve(name: str, source: Path, *, tiny: bool) -> dict[str, Any]:
    """Return what the process of one job prints: its seconds, or why there are none."""
    import kronfield as kf

    place = Path(kf.__file__ or "").resolve()
    if source not in place.parents:
        return {"error": f"kronfield was imported from {place.parent}, not from {source}"}
    try:
        return {"seconds": timed(JOBS[name](tiny))}
    except (AttributeError, ImportError, TypeError, ValueError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}  # a version that cannot do it


def measure(name: str, checkout: Path, *, tiny: bool = False) -> float | str:
    """Return the seconds of a job of a checkout, in a process of its own, or why there are none."""
    source = (checkout / "src").resolve()
    command = [sys.executable, "-P", __file__, "--serve", name, "--source", str(source)]
    done = subprocess.run(
        [*command, *(["--tiny"] if tiny else [])],
        env={**os.environ, "PYTHONPATH": str(source)},
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    found = json.loads(done.stdout.splitlines()[-1])
    return float(found["seconds"]) if "seconds" in found else str(found["error"])


@dataclass(frozen=True)
class Compared:
    """A job in both checkouts.

    Attributes
    ----------
    name : str
        The job.
    this, other : float or None
        The median seconds over the rounds.
    ratio : float or None
        The median over the rounds of this divided by the other.
    note : str
        Why nothing was measured, if so.
    """

    name: str
    this: float | None = None
    other: float | None = None
    ratio: float | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.this is None or self.other is None:
            return f"{self.name:<18} not measured: {self.note}"
        return f"{self.name:<18} {1e3 * self.this:12.2f} {1e3 * self.other:12.2f} {self.ratio:8.2f}"


def compare(name: str, other: Path, *, rounds: int = 3, tiny: bool = False) -> Compared:
    """Return the times of a job in this checkout and in another, which take turns."""
    found: dict[str, list[float]] = {"this": [], "other": []}
    places = {"this": HERE, "other": other}
    for i in range(rounds):
        for side in sorted(places, reverse=i % 2 == 0):  # each goes first in every second round
            seconds = measure(name, places[side], tiny=tiny)
            if isinstance(seconds, str):
                return Compared(name, note=f"{side} checkout: {seconds}")
            found[side].append(seconds)
    ratios = [a / b for a, b in zip(found["this"], found["other"], strict=True)]
    this, that = (statistics.median(found[side]) for side in places)
    return Compared(name, this, that, statistics.median(ratios))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for every job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--jobs", default=",".join(JOBS), help=f"some of {', '.join(JOBS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="small data, to try the tool itself")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        print(json.dumps(serve(options.serve, options.source, tiny=options.tiny)))
        return
    if options.other is None or not (options.other / "src" / "kronfield").is_dir():
        parser.error(f"--other: got {options.other}; expected a folder with src/kronfield")
    names = options.jobs.split(",")
    unknown = [name for name in names if name not in JOBS]
    if unknown or options.rounds < 1:
        parser.error(f"--jobs, --rounds: expected 1 round or more of some of {', '.join(JOBS)}")
    print(f"{'':<18} {'this, ms':>12} {'other, ms':>12} {'ratio':>8}")
    for name in names:
        print(compare(name, options.other, rounds=options.rounds, tiny=options.tiny), flush=True)


if __name__ == "__main__":
    main()
