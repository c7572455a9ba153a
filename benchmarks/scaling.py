"""Growth of time and memory with samples, unknowns, dimensions and channels; and the limits.

The limits of the machine are measured in the same run: products of large matrices, copies of arrays
that are larger than the cache, sparse products.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

import kronfield as kf
from benchmarks.data import waves
from benchmarks.frame import OURS, Peak, Row, Settings, interleaved, peak, spread
from benchmarks.grid_peers import paper_fit
from kronfield.solvers.grid.inverse import forget

# The inverse of a local basis falls below the precision of float32 at this number of neighbours to
# either side.
REACH = 14


@dataclass(frozen=True)
class Limits:
    """The limits of the machine, per second.

    They are products and sums in float32, bytes moved, and entries of a sparse product.
    """

    flops: float
    bytes: float
    entries: float

    def seconds(self, *, flops: float = 0.0, moved: float = 0.0, entries: float = 0.0) -> float:
        """Return the least seconds for work of each kind, if nothing overlaps."""
        return flops / self.flops + moved / self.bytes + entries / self.entries


def measure_limits(settings: Settings) -> Limits:
    """Measure large products, copies and sparse products in turn; return medians."""
    n = settings.pick(128, 2048, 2048)
    rng = np.random.default_rng(0)
    A = rng.random((n, n), dtype=np.float32)
    block = rng.random(settings.pick(1 << 16, 1 << 25, 1 << 26), dtype=np.float32)
    target = np.empty_like(block)
    rows = settings.pick(1000, 10**6, 10**6)
    columns = (
        np.sort(rng.integers(0, rows, (rows, 4)), axis=1)
        if rows < 10**4
        else np.arange(rows)[:, None] + np.arange(4)
    )
    B = scipy.sparse.csr_array(
        (
            rng.random(4 * rows, dtype=np.float32),
            np.minimum(columns, rows - 1).ravel(),
            4 * np.arange(rows + 1),
        ),
        (rows, rows),
    )
    x = rng.random(rows, dtype=np.float32)
    times = interleaved(
        {
            "product": lambda: A @ A,
            "copy": lambda: np.copyto(target, block),
            "sparse": lambda: B @ x,
        },
        5,
    )
    medians = {name: sorted(one)[len(one) // 2] for name, one in times.items()}
    return Limits(
        2 * n**3 / medians["product"],
        2 * block.nbytes / medians["copy"],
        4 * rows / medians["sparse"],
    )


@dataclass(frozen=True)
class Growth:
    """A curve: the quantity ``over`` and its ``values``, and the call to time for each value.

    ``least`` returns the least seconds of a value on this machine.
    """

    case: str
    over: str
    values: Sequence[float]
    make: Callable[[Any], Callable[[], object]]
    least: Callable[[Any, Limits], float] | None
    note: str = ""


def _values(side: int, channels: int, dimensions: int = 2) -> np.ndarray:
    return waves((side,) * dimensions, channels)


def grid_fit(side: int, kind: str = "Gaussian", channels: int = 1) -> Callable[[], object]:
    """The paper's closed form, K = N, without stored factorisations."""
    values = _values(side, channels)

    def call() -> object:
        forget()
        return paper_fit(values, kind)

    return call


def chosen_fit(side: int, noise: float = 0.0) -> Callable[[], object]:
    """A fit with default settings."""
    values = waves((side, side), 1, noise=noise)
    return functools.partial(kf.fit, values, channels=True)


def noisy_fit(side: int) -> Callable[[], object]:
    """The same with noise, which is detected and smoothed."""
    return chosen_fit(side, 0.05)


def grid_values(side: int) -> Callable[[], object]:
    """Values of a fitted field at twice the resolution."""
    field = kf.fit(
        _values(side, 1),
        encoding=kf.TensionSpline(side + 4, 8.0, padding=2),
        ridge=0.0,
        channels=True,
    )
    return functools.partial(field.on_grid, (2 * side, 2 * side))


def fewer_unknowns(features: int, side: int = 1024) -> Callable[[], object]:
    """Least squares with fewer features than samples."""
    values = _values(side, 1)
    x, emb = kf.even_axis(side), kf.Triangle(features, 2 / features)

    def call() -> object:
        forget()
        return kf.fit(values, [x, x], emb, domain=[(0, 1)] * 2, ridge=0.0, channels=True)

    return call


def more_dimensions(dimensions: int, samples: int = 2**18) -> Callable[[], object]:
    """The same number of samples on grids of more dimensions; splines of a given tension."""
    side = round(samples ** (1 / dimensions))
    values = _values(side, 1, dimensions)
    emb = kf.TensionSpline(side + 4, 8.0, padding=2)
    encoding = kf.Kronecker(*[emb] * dimensions)

    def call() -> object:
        forget()
        return kf.fit(values, encoding=encoding, ridge=0.0, channels=True)

    return call


def more_channels(channels: int, side: int = 512) -> Callable[[], object]:
    """More channels on the same grid."""
    return grid_fit(side, "Gaussian", channels)


def _scattered(count: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).random((count, 2))
    return X, np.sin(20 * X[:, 0]) * np.cos(17 * X[:, 1])


def more_points(count: int) -> Callable[[], object]:
    """Scattered points, with as many unknowns as points and the same roughness per cell."""
    X, y = _scattered(count)
    K = round(math.sqrt(count))
    rough = (0.04 / K**2, 0.02 / K**4)
    return functools.partial(
        kf.fit_points, X, y, kf.Triangle(K, 2 / K), domain=[(0, 1)] * 2, roughness=rough
    )


def more_unknowns(features: int, count: int = 2**18) -> Callable[[], object]:
    """The same points on finer grids."""
    X, y = _scattered(count)
    rough = (0.04 / features**2, 0.02 / features**4)
    return functools.partial(
        kf.fit_points,
        X,
        y,
        kf.Triangle(features, 2 / features),
        domain=[(0, 1)] * 2,
        roughness=rough,
    )


def values_at_points(count: int) -> Callable[[], object]:
    """A field of 256 x 256 hats at scattered points."""
    field = kf.fit(
        _values(256, 1),
        encoding=kf.Triangle(256, 2 / 256),
        ridge=0.0,
        domain=[(0, 256)] * 2,
        channels=True,
    )
    at = 256 * np.random.default_rng(0).random((count, 2))
    return functools.partial(field, at, outside="extrapolate")


def curves(settings: Settings) -> list[Growth]:
    """Return all curves."""
    pick = settings.pick
    sides = pick((16, 32), (256, 512, 1024, 2048), (256, 512, 1024, 2048, 4096))
    side, half, count = pick(32, 1024, 1024), pick(16, 512, 512), pick(2**8, 2**18, 2**18)
    band = 2 * REACH + 1

    def banded(side: int, limits: Limits, channels: int = 1) -> float:
        # on each axis every value is read, multiplied by the band of the inverse, and written
        numbers = channels * side**2
        return limits.seconds(flops=2 * 2 * band * numbers, moved=2 * 2 * 4 * numbers)

    def copied(side: int, limits: Limits) -> float:
        return limits.seconds(moved=2 * 4 * side**2)

    return [
        Growth("fit on a grid, the paper's Gaussian", "samples", sides, grid_fit, banded),
        Growth("fit on a grid, the paper's Triangle", "samples", sides, _triangle_fit, copied),
        Growth(
            "fit on a grid, nothing chosen",
            "samples",
            pick((16, 32), (128, 256, 512, 1024), (128, 256, 512, 1024, 2048)),
            chosen_fit,
            None,
            "the choice is made on a crop, so it costs the same for large grids",
        ),
        Growth(
            "the same, noisy",
            "samples",
            pick((16, 32), (128, 256, 512, 1024), (128, 256, 512, 1024)),
            noisy_fit,
            None,
            "a penalty needs an eigenbasis of each axis: its side to the third power",
        ),
        Growth(
            "values at twice the resolution",
            "samples",
            sides,
            grid_values,
            lambda n, li: li.seconds(
                flops=2 * 4 * (2 + 4) * n**2, moved=4 * (2 * 2 + 2 * 4 + 4) * n**2
            ),
        ),
        Growth(
            "fit on 1024 x 1024 samples",
            "unknowns",
            pick((8, 16), (64, 128, 256, 512), (64, 128, 256, 512, 1024)),
            functools.partial(fewer_unknowns, side=side),
            lambda k, li: _fewer(k, side, li),
        ),
        Growth(
            "fit of 2^18 samples",
            "dimensions",
            pick((1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5)),
            functools.partial(more_dimensions, samples=count),
            lambda d, li: d * count * li.seconds(flops=2 * band, moved=2 * 4),
        ),
        Growth(
            "fit on 512 x 512 samples",
            "channels",
            pick((1, 2), (1, 4, 16, 64), (1, 4, 16, 64, 256)),
            functools.partial(more_channels, side=half),
            lambda c, li: banded(half, li, c),
        ),
        Growth(
            "fit of scattered points, as many unknowns",
            "points",
            pick((100, 400), (10**4, 10**5, 10**6), (10**4, 10**5, 10**6, 4 * 10**6)),
            more_points,
            _iterations,
        ),
        Growth(
            "fit of 2^18 scattered points",
            "unknowns",
            pick((8, 16), (128, 256, 512, 1024), (128, 256, 512, 1024, 2048)),
            functools.partial(more_unknowns, count=count),
            lambda k, li: _iterations(k * k, li, count),
        ),
        Growth(
            "values at scattered points",
            "points",
            pick((100, 400), (10**4, 10**5, 10**6), (10**4, 10**5, 10**6, 10**7)),
            values_at_points,
            lambda p, li: li.seconds(entries=4 * p, moved=(16 + 8) * p),
        ),
    ]


def _fewer(features: int, side: int, limits: Limits) -> float:
    # along the first axis, each of K rows of the inverse reaches 2 REACH centres, which are
    # side / K samples apart; along the second axis only K rows are left
    first = 2 * 2 * REACH * side**2
    return limits.seconds(
        flops=first * (1 + features / side), moved=4 * (side**2 + 3 * side * features)
    )


def _triangle_fit(side: int) -> Callable[[], object]:
    return grid_fit(side, "Triangle")


def _iterations(
    unknowns: float, limits: Limits, points: float | None = None, iterations: int = 24
) -> float:
    # an iteration multiplies by B and its transpose, 4 entries per point each, and reads or writes
    # the penalty and five vectors once
    count = unknowns if points is None else points
    return iterations * limits.seconds(entries=2 * 4 * count, moved=4 * 16 * unknowns)


def scaling(settings: Settings) -> list[Row]:
    """Measure every curve: medians of a few repetitions, the peak memory, and the limit."""
    limits = measure_limits(settings)
    settings.say(
        f"  limits of this machine: {limits.flops / 1e9:.0f} GFLOP/s, "
        f"{limits.bytes / 1e9:.1f} GB/s, {limits.entries / 1e9:.2f} G sparse entries/s"
    )
    rows = [
        Row("limits", "products of 2048 x 2048 matrices, float32", "GFLOP/s", x=limits.flops / 1e9),
        Row("limits", "copies of 128 MB, read and written", "GB/s", x=limits.bytes / 1e9),
        Row(
            "limits",
            "sparse products, four entries a row",
            "billion entries/s",
            x=limits.entries / 1e9,
        ),
    ]
    for curve in curves(settings):
        for value in curve.values:
            call = curve.make(value)
            call()
            seconds = interleaved({"": call}, settings.pick(1, 3, 7))[""]
            memory = None
            # of a quick run only at the ends, which the table shows
            ends = (curve.values[0], curve.values[-1])
            if settings.pick(False, value in ends, True):
                memory = peak(Peak("benchmarks.scaling:peak_call", (curve.case, curve.over, value)))
            least = None if curve.least is None else curve.least(value, limits)
            rows.append(
                Row(
                    "scaling",
                    f"{curve.case}; {curve.over}",
                    OURS,
                    *spread(seconds),
                    x=_amount(curve, value),
                    limit=least,
                    peak_mib=memory,
                    note=curve.note,
                )
            )
        settings.say(f"  scaling, {curve.case}; {curve.over}: done")
    return rows


def _amount(curve: Growth, value: float) -> float:
    """Return the abscissa of a point: samples and unknowns of a grid are those of both axes."""
    return float(value**2 if curve.over in ("samples", "unknowns") else value)


def peak_call(case: str, over: str, value: float) -> Callable[[], object]:
    """Return the call of one point of a curve, to measure its memory."""
    curve = next(one for one in curves(Settings("full")) if (one.case, one.over) == (case, over))
    return curve.make(value)
