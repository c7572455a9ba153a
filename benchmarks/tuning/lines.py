"""Random functions on lines, with each decision on predictions at its default and either side.

    python -m benchmarks.tuning.lines --count 500 --seed 0
    python -m benchmarks.tuning.lines --count 500 --seed 0 --uneven

Functions of many kinds are drawn by a seed, on 10 to 60 samples, even or jittered, random or
logarithmic. Printed are the geometric mean of
the error over the least of SciPy's (cubic, quintic, PCHIP, makima), the part of the functions on
which it is more than 1.5 times as large, and the largest ratio.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import Akima1DInterpolator, PchipInterpolator, make_interp_spline

import kronfield as kf
from benchmarks.data import Array
from kronfield.fitting.settings import DEFAULT, Settings, changed, decisions


def drawn(rng: np.random.Generator) -> Callable[[Array], Array]:
    """Return a random function of one of several kinds on [0, 1]."""
    a, b, c = rng.random(3)

    def between(low: float, high: float, part: float) -> float:
        return low * (high / low) ** part

    many = rng.standard_normal((2, 60)) / np.arange(1, 61) ** rng.uniform(1.0, 3.5)
    kinds: tuple[Callable[[Array], Array], ...] = (
        lambda x: np.sin(between(3, 60, a) * x + 6 * b),
        lambda x: np.exp(-(((x - a) / between(0.04, 0.5, b)) ** 2)),
        lambda x: 1 / (1 + ((x - a) / between(0.03, 0.5, b)) ** 2),
        lambda x: np.tanh((x - a) / between(0.01, 0.5, b)),
        lambda x: np.exp(between(1, 10, a) * (x if b < 0.5 else -x)),
        lambda x: np.abs(x - a) ** (1 if b < 0.5 else 3) + 0.2 * x,
        lambda x: np.sqrt(x + between(1e-4, 0.3, a)),
        lambda x: np.log(x + between(1e-3, 0.3, a)),
        lambda x: np.cos(between(4, 40, a) * (x + b / 2) ** 2 + 6 * c),
        lambda x: (x > a) + b * np.sin(3 * x),
        lambda x: np.exp(-between(1, 10, a) * x) * np.cos(between(3, 60, b) * x + 6 * c),
        lambda x: sum(
            many[0, i] * np.cos(2.2 * (i + 1) * x) + many[1, i] * np.sin(2.2 * (i + 1) * x)
            for i in range(60)
        ),
    )
    return kinds[rng.integers(len(kinds))]


@dataclass(frozen=True, eq=False)
class Line:
    """A function at samples and between them, and the least error of SciPy's interpolators."""

    x: Array
    given: Array
    fine: Array
    truth: Array

    @classmethod
    def of(cls, function: Callable[[Array], Array], x: Array) -> Line:
        """Return samples at ``x``, and five positions in each cell."""
        fine = (x[:-1, None] + np.diff(x)[:, None] * (np.arange(5) + 0.5) / 5).ravel()
        return cls(x, function(x), fine, function(fine))

    def error(self, found: Array) -> float:
        """Return the rms relative to the range; never below rounding."""
        part = math.sqrt(float(np.mean((found - self.truth) ** 2))) / float(np.ptp(self.truth))
        return max(part, 1e-15)

    @property
    def least(self) -> float:
        """The least error of SciPy's interpolators."""
        peers = (
            make_interp_spline(self.x, self.given, 3),
            make_interp_spline(self.x, self.given, 5),
            PchipInterpolator(self.x, self.given),
            Akima1DInterpolator(self.x, self.given, method="makima"),
        )
        return min(self.error(peer(self.fine)) for peer in peers)

    def ours(self, settings: Settings) -> float:
        """Return the error of `fit`."""
        field = kf.fit(self.given, [self.x], noise=0.0, settings=settings)
        return self.error(field.on_grid([self.fine]))


def positions(count: int, rng: np.random.Generator) -> Array:
    """Return uneven positions from 0 to 1: jittered, random or logarithmic."""
    kinds: tuple[Callable[[], Array], ...] = (
        lambda: np.arange(count) + rng.uniform(-0.4, 0.4, count),
        lambda: np.cumsum(rng.exponential(size=count) + 0.05),
        lambda: np.logspace(-rng.uniform(0.5, 2.5), 0, count),
    )
    x = kinds[rng.integers(len(kinds))]()
    return (x - x[0]) / (x[-1] - x[0])


def lines(count: int, seed: int, uneven: bool = False) -> Iterator[Line]:
    """Yield lines of random functions."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        function, samples = drawn(rng), int(rng.integers(10, 61))
        x = positions(samples, rng) if uneven else np.linspace(0, 1, samples)
        yield Line.of(function, x)


def main() -> None:
    """Print a row for every decision and value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--uneven", action="store_true", help="uneven samples")
    options = parser.parse_args()
    tasks = list(lines(options.count, options.seed, options.uneven))
    least = np.array([task.least for task in tasks])
    print(f"{'prediction':<40} {'mean ratio':>10} {'above 1.5':>10} {'largest':>10}")
    for one in decisions():
        if one.group != "prediction":
            continue
        for value in (one.value, *one.sides):
            settings = changed(DEFAULT, one.group, one.name, value)
            ratios = np.array([task.ours(settings) for task in tasks]) / least
            mean, part = math.exp(np.mean(np.log(ratios))), np.mean(ratios > 1.5)
            label = f"{one.name} {value}{' (default)' if value == one.value else ''}"
            print(f"{label:<40} {mean:10.4f} {part:10.3f} {ratios.max():10.1f}", flush=True)


if __name__ == "__main__":
    main()
