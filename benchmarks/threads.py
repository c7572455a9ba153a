"""Default threads against one thread, on a quiet machine and beside busy loops.

python -m benchmarks.threads             # a table: seconds of each case, and ratios
python -m benchmarks.threads --busy 4    # beside 4 busy loops; by default one per core

One process uses the default threads, another one thread, which its environment sets for BLAS and
kronfield. The processes take turns in every case, so that a change of the speed of the machine
affects both.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

# Seconds between two measurements, in which threads of the first become idle.
SETTLE = 0.25
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def cases(side: int = 256) -> dict[str, Callable[[], object]]:
    """Return the calls to time, by name; ``side`` is the side of the pictures."""
    import kronfield as kf

    rng = np.random.default_rng(0)
    x, y = np.mgrid[0:side, 0:side] / side
    picture = ((np.hypot(x - 0.5, y - 0.4) < 0.3) + np.sin(20 * y))[..., None] * [1.0, 0.6, 0.3]
    picture = picture + 0.02 * rng.random(picture.shape)
    large = np.tile(picture, (4, 4, 1))
    gaussians = kf.Gaussian(4 * side, 0.64 / (4 * side))
    waves = kf.RandomFourier(2 * side, side / 6, seed=0)
    field = kf.fit(large, encoding=gaussians, ridge=0.0)
    points = rng.random((400, 2))
    many = rng.random((20 * side, 2))
    mask = rng.random((side, side)) < 0.7
    twice = large[: 2 * side, : 2 * side]
    return {
        "fit, a colour picture, all chosen": lambda: kf.fit(picture),
        "fit, noise to be smoothed": lambda: kf.fit(twice[..., 0], roughness="gcv"),
        "fit, Gaussians given, 16 times the size": lambda: kf.fit(
            large, encoding=gaussians, ridge=0.0
        ),
        "fit, dense features given": lambda: kf.fit(twice, encoding=waves, ridge=0.0),
        "fit, 70 % of pixels missing": lambda: kf.fit(picture, mask=mask),
        "on_grid, twice the size": lambda: field.on_grid((8 * side, 8 * side)),
        "fit_points, 400 points": lambda: kf.fit_points(
            points, np.sin(9 * points[:, 0]) * points[:, 1]
        ),
        "fit_points, many points": lambda: kf.fit_points(
            many, np.sin(9 * many[:, 0]), roughness=(0.0, 1e-4)
        ),
    }


def serve(side: int) -> None:
    """Run the cases whose names arrive on standard input, and print the seconds of each."""
    warnings.simplefilter("ignore")
    known = cases(side)
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        known[line.strip()]()
        print(time.perf_counter() - started, flush=True)


class Worker:
    """A process that runs cases on request."""

    def __init__(self, side: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.threads", "--serve", "--side", str(side)]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, case: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self._answer())


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run ``count`` endless loops in processes of their own."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(side: int, busy: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Return the median seconds of every case.

    Each has four: with one thread and by default, on a quiet machine and beside busy loops.
    """
    workers = {"one": Worker(side, ONE_THREAD), "default": Worker(side, {})}
    found: dict[str, dict[str, float]] = {}
    try:
        for case in cases(side):
            for worker in workers.values():
                worker.seconds(case)  # not counted: fills caches
            found[case] = {}
            for place, loops in (("quiet", 0), ("busy", busy)):
                times: dict[str, list[float]] = {name: [] for name in workers}
                with busy_loops(loops):
                    for _ in range(repetitions):
                        for name, worker in workers.items():
                            time.sleep(SETTLE)
                            times[name].append(worker.seconds(case))
                found[case] |= {
                    f"{name}, {place}": statistics.median(some) for name, some in times.items()
                }
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.communicate()
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Return a Markdown table: milliseconds, and the ratio of default to one thread."""
    lines = [
        "| | one thread, quiet | default, quiet | ratio "
        "| one thread, busy | default, busy | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, times in found.items():
        cells = []
        for place in ("quiet", "busy"):
            one, default = times[f"one, {place}"], times[f"default, {place}"]
            cells += [f"{1e3 * one:.1f} ms", f"{1e3 * default:.1f} ms", f"{default / one:.2f}"]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=256, help="side of the pictures")
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count() or 1, help="number of busy loops"
    )
    parser.add_argument(
        "--repetitions", type=int, default=9, help="repetitions, of which the median is shown"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.side)
    else:
        print(table(measure(options.side, options.busy, options.repetitions)))


if __name__ == "__main__":
    main()
