"""Scattered points: quality, time and memory on pixels of photographs and smooth functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.interpolate import RBFInterpolator

import kronfield as kf
from benchmarks.data import (
    SURFACES,
    Array,
    FunctionTask,
    PointTask,
    by_use,
    franke,
    photographs,
    sides,
    waves,
)
from benchmarks.frame import OURS, Method, Peak, Row, Settings, contest, peak
from benchmarks.point_peers import gaussian_process, peers, triangulated

SIDE = 480


def pixels(settings: Settings) -> list[Row]:
    """Photographs of which a quarter of the pixels is given, at random."""
    side = settings.pick(32, SIDE, SIDE)
    found = photographs(settings.photographs, side, settings.pick(1, 16, 16))

    def memory(name: str) -> Peak | None:
        # that of a Gaussian process takes half a minute
        if not settings.pick(False, "GPyTorch" not in name, True):
            return None
        return Peak("benchmarks.point_peers:peak_call", (side, name))

    rows = list[Row]()
    for label, part in by_use(found, settings).items():
        items = {name: PointTask(image, seed) for seed, (name, image) in enumerate(part.items())}
        case = f"{len(items)} photographs of {sides(part)}, a quarter of the pixels given; {label}"
        rows += contest(
            "pixels",
            case,
            items,
            peers(settings, label),
            settings,
            score=lambda task, values: task.score(values),
            warm=PointTask(waves((32, 32), 3), 0),
            memory=memory,
        )
    return rows


def smooth(settings: Settings) -> list[Row]:
    """Smooth functions at scattered points, with and without noise."""
    at = np.random.default_rng(1).uniform(0.02, 0.98, (4000, 2))
    rows, seeds = list[Row](), settings.pick(1, 3, 5)
    warm = FunctionTask(franke, 20, 0.0, 0, at)
    process = Method(
        "scikit-learn GaussianProcessRegressor",
        lambda t: gaussian_process(t.points, t.values, at),
        "sklearn",
    )
    methods = [
        Method(
            OURS,
            lambda t: kf.fit_points(t.points, t.values, domain=[(0, 1)] * 2)(at),
            note="nothing chosen by hand",
        ),
        Method(
            "SciPy RBFInterpolator",
            lambda t: _plates(t.points, t.values)(at),
            note="thin plates, not smoothed",
        ),
        Method(
            "SciPy LinearNDInterpolator", lambda t: triangulated("linear", t.points, t.values, at)
        ),
        Method(
            "SciPy CloughTocher2DInterpolator",
            lambda t: triangulated("cubic", t.points, t.values, at),
        ),
    ]
    for P, noise in itertools.product(
        settings.pick((50,), (50, 200, 1000, 5000), (50, 200, 1000, 5000)), (0.0, 0.05)
    ):
        items = {
            f"{name} {seed}": FunctionTask(function, P, noise, seed, at)
            for seed in range(seeds)
            for name, function in SURFACES.items()
        }
        functions = f"{len(SURFACES)} functions ({', '.join(SURFACES)})"
        case = f"{functions}, {seeds} draws of {P} points each, noise {noise:g}"
        able = (
            methods
            if P > 1000
            else [*methods, replace(process, most=len(items) if P < 1000 else len(SURFACES))]
        )
        rows += contest(
            "smooth",
            case,
            items,
            able,
            settings,
            score=lambda t, found: (t.score(found), None),
            warm=warm,
        )
    return rows


def _plates(X: Array, y: Array) -> RBFInterpolator:
    return RBFInterpolator(X, y, neighbors=None if len(X) <= 1000 else 30)


def stream(settings: Settings) -> list[Row]:
    """Points read once, into statistics whose size does not depend on their number."""
    count = settings.pick(10**4, 10**7, 10**8)
    case = f"{count:,} points into 256 x 256 hats".replace(",", " ")
    methods = [
        Method(OURS, _streamed, note="Statistics.add, 2^20 points at a time, with making them")
    ]
    rows = contest("stream", case, {"": count}, methods, settings)
    small, large = (Peak("benchmarks.points:stream_call", (n,)) for n in (min(count, 2**20), count))
    if settings.size == "tiny":
        return rows
    first, last = peak(small), peak(large)
    return [
        replace(
            rows[0], peak_mib=last, note=f"{rows[0].note}; after the first chunk {first:.0f} MiB"
        )
    ]


def stream_call(count: int) -> Callable[[], object]:
    """Return a call that streams points, to measure its memory."""
    return lambda: _streamed(count)


def _streamed(count: int) -> kf.Statistics:
    seen = kf.Statistics(kf.Triangle(256, 2 / 256), domain=[(0, 1)] * 2)
    rng = np.random.default_rng(0)
    while seen.count < count:
        points = rng.random((min(2**20, count - seen.count), 2))
        seen.add(points, np.sin(9 * points[:, 0]) * points[:, 1])
    return seen
