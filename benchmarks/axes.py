"""Uneven and periodic lines: accuracy against SciPy's splines on the same positions.

The error is the rms at positions between samples, relative to the range of the function. No
decision of `fit` was set on these positions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import (
    Akima1DInterpolator,
    CubicSpline,
    PchipInterpolator,
    make_interp_spline,
)

import kronfield as kf
from benchmarks.data import Array
from benchmarks.frame import OURS, Method, Row, Settings, contest
from benchmarks.functions import FUNCTIONS

#: Positions of n samples on [0, 1], by their kind.
POSITIONS: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "jittered": lambda n, rng: (np.arange(n) + 0.5 + rng.uniform(-0.45, 0.45, n)) / n,
    "clustered": lambda n, rng: np.sort(
        np.concatenate([np.clip(rng.normal(0.4, 0.03, n // 3), 0, 1), rng.random(n - n // 3)])
    ),
    "logarithmic": lambda n, rng: np.logspace(-2.5, 0, n),
}
#: Functions of period 1, of x less whole periods.
WAVES: dict[str, Callable[[Array], Array]] = {
    "harmonics": lambda x: np.cos(2 * np.pi * x + 1) + 0.5 * np.sin(6 * np.pi * x),
    "bell": lambda x: np.exp(2 * np.cos(2 * np.pi * (x - 0.3))),
    "pole": lambda x: 1 / (1.2 + np.cos(2 * np.pi * x)),
    "narrow": lambda x: np.exp(12 * (np.cos(2 * np.pi * (x - 0.98)) - 1)),
    "rectified": lambda x: np.abs(np.sin(2 * np.pi * (x - 0.11))),
    "tide": lambda x: np.tanh(4 * np.sin(2 * np.pi * (x - 0.23))),
}
SIZES = (20, 60, 200)


@dataclass(frozen=True)
class Line:
    """A function at positions of one kind, and the positions where it is asked for."""

    function: Callable[[Array], Array]
    kind: str
    size: int
    periodic: bool

    @functools.cached_property
    def x(self) -> Array:
        rng = np.random.default_rng(self.size)
        if self.kind == "even":
            return np.arange(self.size) / self.size
        return POSITIONS[self.kind](self.size, rng)

    @functools.cached_property
    def y(self) -> Array:
        return self.function(self.x)

    @functools.cached_property
    def at(self) -> Array:
        """Between samples, a third and two thirds on; of a period also across the seam."""
        x = np.append(self.x, self.x[0] + 1) if self.periodic else self.x
        return np.sort(np.concatenate([x[:-1] + np.diff(x) / 3, x[:-1] + np.diff(x) * 2 / 3]))

    def rms(self, found: Array) -> float:
        """Return the error relative to the range; never below rounding."""
        truth = self.function(self.at % 1.0 if self.periodic else self.at)
        return max(math.sqrt(float(np.mean((found - truth) ** 2))) / float(np.ptp(truth)), 1e-15)

    def closed(self) -> tuple[Array, Array]:
        """Return samples with the first again at the end, as SciPy's periodic splines need."""
        return np.append(self.x, self.x[0] + 1), np.append(self.y, self.y[0])


def _ours(line: Line) -> Array:
    periodic = [1.0] if line.periodic else None
    return kf.fit(line.y, [line.x], periodic=periodic).on_grid([line.at])


def _akima(x: Array, y: Array) -> Any:
    return Akima1DInterpolator(x, y, method="makima")


UNEVEN = (
    Method("SciPy CubicSpline, not-a-knot", lambda t: CubicSpline(t.x, t.y)(t.at)),
    Method("SciPy make_interp_spline, k=5", lambda t: make_interp_spline(t.x, t.y, 5)(t.at)),
    Method("SciPy PchipInterpolator", lambda t: PchipInterpolator(t.x, t.y)(t.at)),
    Method("SciPy Akima1DInterpolator, makima", lambda t: _akima(t.x, t.y)(t.at)),
)
PERIODIC = (
    Method(
        "SciPy CubicSpline, periodic", lambda t: CubicSpline(*t.closed(), bc_type="periodic")(t.at)
    ),
    Method(
        "SciPy make_interp_spline, k=5, periodic",
        lambda t: make_interp_spline(*t.closed(), 5, bc_type="periodic")(t.at),
    ),
    Method("kronfield, the axis not said to be periodic", lambda t: _line(t)),
)


def _line(line: Line) -> Array:
    field = kf.fit(line.y, [line.x])
    return field.on_grid([line.at], outside="extrapolate")


def axes(settings: Settings) -> list[Row]:
    """Uneven lines, and periodic lines with even and with uneven samples."""
    sizes = settings.pick(SIZES[:1], SIZES, SIZES)
    rows: list[Row] = []
    cases: list[tuple[str, dict[str, Callable[[Array], Array]], bool]] = [
        *((kind, FUNCTIONS, False) for kind in POSITIONS),
        ("even", WAVES, True),
        ("jittered", WAVES, True),
    ]
    for kind, known, periodic in cases:
        items = {
            f"{name} {size}": Line(function, kind, size, periodic)
            for size in sizes
            for name, function in known.items()
        }
        for line in items.values():
            assert len(line.at) > len(line.y)  # made here, so that no method is timed with it
        what = f"{len(items)} {'periodic lines' if periodic else 'lines'}, {kind} samples"
        rows += contest(
            "axes",
            what,
            items,
            [Method(OURS, _ours), *(PERIODIC if periodic else UNEVEN)],
            settings,
            score=lambda line, found: (-20 * math.log10(line.rms(found)), None),
        )
    return rows
