"""Smooth and rough functions on grids of 1 to 4 dimensions: accuracy against SciPy's interpolators.

No decision of `fit` was set on these functions. Every method interpolates the same samples along
all axes; the error is the rms at positions between samples, relative to the range of the function.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.interpolate import Akima1DInterpolator, PchipInterpolator, make_interp_spline

import kronfield as kf
from benchmarks.data import Array
from benchmarks.frame import OURS, Method, Row, Settings, contest

#: Functions of one variable on [0, 1]; in more dimensions of a mix of the coordinates.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "sine": lambda x: np.sin(7 * x + 1.1),
    "Runge": lambda x: 1 / (1 + 20 * (2 * x - 0.9) ** 2),
    "cubic": lambda x: 2 * (x - 0.45) ** 3 - 0.7 * (x - 0.2) ** 2 + x / 3,
    "bump": lambda x: np.exp(-(((x - 0.55) / 0.13) ** 2)),
    "waves": lambda x: np.cos(17 * x) + 0.4 * np.sin(11 * x + 1),
    "exponential": lambda x: np.exp(-4 * x),
    "kink": lambda x: np.abs(x - 0.618),
    "steep": lambda x: np.tanh(30 * (x - 0.44)),
    "root": lambda x: np.sqrt(x + 2e-3),
    "logarithm": lambda x: np.log(x + 0.08),
    "chirp": lambda x: np.cos(12 * x**2 + x),
    "step": lambda x: np.where(x > 0.58, 1.0, 0.0) - 0.3 * x,
    "hyperbola": lambda x: 1 / (x + 0.15),
    "arctangent": lambda x: np.arctan(12 * (x - 0.37)),
}
#: Samples per axis, by the number of dimensions.
SIZES = {1: (15, 30, 60, 200), 2: (15, 30, 60), 3: (12, 20), 4: (10,)}


@dataclass(frozen=True)
class FunctionGrid:
    """A function sampled on an even grid, and the positions where it is asked for."""

    name: str
    dimensions: int
    size: int

    @property
    def axis(self) -> Array:
        return np.linspace(0.0, 1.0, self.size)

    @functools.cached_property
    def given(self) -> Array:
        return self.at(self.axis)

    @property
    def fine(self) -> Array:
        """Positions between samples, a third and two thirds on; in four dimensions the middles."""
        per_cell = 3 if self.dimensions < 4 else 1
        cells = np.arange(per_cell * (self.size - 1)) + 0.5
        return cells / (per_cell * (self.size - 1))

    @functools.cached_property
    def truth(self) -> Array:
        return self.at(self.fine)

    def at(self, x: Array) -> Array:
        """Return the function on a grid: of a mix of the coordinates, weights by a seed."""
        seed = list(FUNCTIONS).index(self.name) * 10 + self.dimensions
        mix = np.random.default_rng(seed).uniform(0.3, 1.0, self.dimensions)
        total = np.zeros(())
        for weight in mix / mix.sum():
            total = np.add.outer(total, weight * x)
        return FUNCTIONS[self.name](total)

    @functools.cached_property
    def slopes(self) -> Array:
        """The derivative of a line, by central differences."""
        return (self.at(self.fine + 1e-6) - self.at(self.fine - 1e-6)) / 2e-6

    def slope_rms(self, found: Array) -> float:
        """Return the error of derivatives relative to their range."""
        error = math.sqrt(float(np.mean((found - self.slopes) ** 2)))
        return max(error / float(np.ptp(self.slopes)), 1e-9)  # central differences are no better

    @functools.cached_property
    def areas(self) -> Array:
        """The integral of a line over each cell, by Gauss-Legendre panels much finer than cells."""
        nodes, weights = np.polynomial.legendre.leggauss(8)
        panels = 20 * (self.size - 1)
        x = (np.arange(panels)[:, None] + (nodes + 1) / 2) / panels
        parts = self.at(x.ravel()).reshape(x.shape) @ weights / (2 * panels)
        return parts.reshape(-1, 20).sum(axis=1)

    def area_rms(self, found: Array) -> float:
        """Return the error of the means over cells relative to the range.

        The integral over the whole line is one number, whose error may be near 0 by chance: that
        of a peak is exact to many digits by any rule that sums the samples.
        """
        error = math.sqrt(float(np.mean((found - self.areas) ** 2))) * (self.size - 1)
        return max(error / float(np.ptp(self.truth)), 1e-14)

    def rms(self, found: Array) -> float:
        """Return the error relative to the range; never below rounding."""
        error = math.sqrt(float(np.mean((found - self.truth) ** 2))) / float(np.ptp(self.truth))
        return max(error, 1e-15)


def ours(task: FunctionGrid) -> Array:
    """Nothing chosen by hand."""
    field = kf.fit(task.given, [task.axis] * task.dimensions)
    return field.on_grid([task.fine] * task.dimensions)


def along_axes(
    task: FunctionGrid, make: Callable[[Array, Array], Callable[[Array], Array]]
) -> Array:
    """Interpolate along every axis in turn."""
    values = task.given
    for axis in range(task.dimensions):
        lines = np.moveaxis(values, axis, 0)
        values = np.moveaxis(make(task.axis, lines)(task.fine), 0, axis)
    return values


def _csaps(task: FunctionGrid) -> Array:
    import csaps

    if task.dimensions == 1:
        return np.asarray(csaps.csaps(task.axis, task.given, task.fine, smooth=1.0))
    axes, fine = [task.axis] * task.dimensions, [task.fine] * task.dimensions
    return np.asarray(csaps.csaps(axes, task.given, fine, smooth=1.0))


def _spline(degree: int) -> Callable[[FunctionGrid], Array]:
    return lambda task: along_axes(task, lambda x, y: make_interp_spline(x, y, degree))


def _akima(x: Array, y: Array) -> Any:
    return Akima1DInterpolator(x, y, method="makima")


PEERS = (
    Method("SciPy cubic spline, not-a-knot", _spline(3)),
    Method("SciPy quintic spline, not-a-knot", _spline(5)),
    Method("SciPy PchipInterpolator", lambda task: along_axes(task, PchipInterpolator)),
    Method("SciPy Akima1DInterpolator, makima", lambda task: along_axes(task, _akima)),
    Method("csaps, cubic, no smoothing", _csaps, "csaps"),
)


def _derivative(make: Callable[[Array, Array], Any]) -> Callable[[FunctionGrid], Array]:
    return lambda task: make(task.axis, task.given).derivative()(task.fine)


def _integrals(make: Callable[[Array, Array], Any]) -> Callable[[FunctionGrid], Array]:
    return lambda task: np.diff(make(task.axis, task.given).antiderivative()(task.axis))


def _our_integrals(task: FunctionGrid) -> Array:
    field, x = kf.fit(task.given, [task.axis]), task.axis
    return np.array([field.integral([cell]) for cell in itertools.pairwise(x)])


def _calculus(settings: Settings) -> list[Row]:
    """Derivatives and integrals of lines."""
    items = {
        f"{name} {size}": FunctionGrid(name, 1, size)
        for size in settings.pick((15,), SIZES[1], SIZES[1])
        for name in FUNCTIONS
        if name not in ("kink", "step")  # which have no derivative everywhere
    }
    kinds: dict[str, Callable[[Array, Array], Any]] = {
        "SciPy cubic spline, not-a-knot": lambda x, y: make_interp_spline(x, y, 3),
        "SciPy quintic spline, not-a-knot": lambda x, y: make_interp_spline(x, y, 5),
        "SciPy PchipInterpolator": PchipInterpolator,
        "SciPy Akima1DInterpolator, makima": _akima,
    }
    slopes = [
        Method(OURS, lambda t: kf.fit(t.given, [t.axis]).on_grid([t.fine], derivative=1)),
        *(Method(name, _derivative(make)) for name, make in kinds.items()),
    ]
    areas = [
        Method(OURS, _our_integrals),
        *(Method(name, _integrals(make)) for name, make in kinds.items()),
    ]
    rows: list[Row] = []
    for what, methods, error in (
        ("derivatives", slopes, FunctionGrid.slope_rms),
        ("integrals over the cells", areas, FunctionGrid.area_rms),
    ):
        found = contest(
            "functions",
            f"{what} of {len(items)} functions on lines",
            items,
            methods,
            settings,
            score=lambda task, found, error=error: (-20 * math.log10(error(task, found)), None),
        )
        rows += _with_ratios(found, items, methods, error)
    return rows


def functions(settings: Settings) -> list[Row]:
    """Grids of smooth and rough functions, by dimension; derivatives and integrals of lines."""
    rows: list[Row] = _calculus(settings)
    for dimensions, sizes in SIZES.items():
        items = {
            f"{name} {size}": FunctionGrid(name, dimensions, size)
            for size in settings.pick(sizes[:1], sizes, sizes)
            for name in FUNCTIONS
        }
        for task in items.values():
            assert (
                task.given.ndim == task.truth.ndim
            )  # made here, so that no method is timed with it
        case = (
            f"{len(items)} functions in {dimensions} dimensions"
            if dimensions > 1
            else (f"{len(items)} functions on lines")
        )
        methods = [Method(OURS, ours), *PEERS]
        found = contest(
            "functions",
            case,
            items,
            methods,
            settings,
            score=lambda task, found: (-20 * math.log10(task.rms(found)), None),
            warm=next(iter(items.values())),
            repetitions=settings.pick(1, 3, 5),
        )
        rows += _with_ratios(found, items, methods)
    return rows


def _with_ratios(
    rows: list[Row],
    items: dict[str, FunctionGrid],
    methods: list[Method],
    error: Callable[[FunctionGrid, Any], float] = FunctionGrid.rms,
) -> list[Row]:
    """Return the rows with the error of ours over that of the best peer, in the note of ours."""
    ratios = {}
    for name, task in items.items():
        mine, *peers = (error(task, method.call(task)) for method in methods[:5])
        ratios[name] = mine / min(peers)
    mean = math.exp(float(np.mean(np.log(list(ratios.values())))))
    worst = max(ratios, key=ratios.__getitem__)
    note = f"error {mean:.2f} x the best peer's of each row, at worst {ratios[worst]:.2f} ({worst})"
    return [replace(row, note=note) if row.method == OURS else row for row in rows]
