"""Where others are ahead: nonlinear interpolation of lines, and exact Gaussian processes on few points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import kronfield as kf
from benchmarks.data import GridTask, franke, photographs, sides, waves
from benchmarks.frame import OURS, Method, Row, Settings, contest, psnr
from benchmarks.grid_peers import peers
from benchmarks.point_peers import gaussian_process


def others(settings: Settings) -> list[Row]:
    """Rows of photographs, and Franke's function at few points."""
    return [replace(row, section="others") for row in (*lines(settings), *few_points(settings))]


def lines(settings: Settings) -> list[Row]:
    """Rows of photographs, every second sample given."""
    side = settings.pick(32, 480, 480)
    found = photographs(settings.photographs, side, settings.pick(1, 16, 16))
    rng = np.random.default_rng(0)
    items = {f"{name} {at}": GridTask(image[at]) for name, image in found.items() for at in rng.integers(0, len(image), 2)}
    case = f"{len(items)} rows of photographs of {sides(found)}, every second pixel given"
    warm = GridTask(waves((32,), 3))
    return contest("others", case, items, peers(1), settings, score=lambda task, values: task.score(values), warm=warm)


def few_points(settings: Settings) -> list[Row]:
    """A Gaussian process knows that the function is smooth beyond all orders, and weighs every point against every other."""
    at = np.random.default_rng(1).uniform(0.02, 0.98, (4000, 2))
    truth, rows = franke(*at.T), list[Row]()
    methods = [
        Method(OURS, lambda given: kf.fit_points(*given, domain=[(0, 1)] * 2)(at), note="nothing chosen by hand"),
        Method("scikit-learn GaussianProcessRegressor", lambda given: gaussian_process(*given, at), "sklearn"),
    ]
    for P in settings.pick((50,), (50, 200, 1000), (50, 200, 1000)):
        for noise in (0.0, 0.05):
            rng = np.random.default_rng(0)
            X = rng.random((P, 2))
            given = (X, franke(*X.T) + noise * rng.standard_normal(P))
            case = f"Franke's function, {P} points, noise {noise:g}"
            score = lambda _, found: (psnr(found, truth, float(np.ptp(truth))), None)  # noqa: E731
            rows += contest("others", case, {"": given}, methods, settings, score=score, repetitions=settings.pick(1, 3, 3))
    return rows
