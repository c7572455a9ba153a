"""Errors of folds that are held out in turn, from one system of all points."""

import numpy as np
import pytest

from kronfield.fitting import gaussians
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_grids import hat_axis, mean_distances
from kronfield.fitting.point_search import HeldOutWalk, Trial, ladder_for, left_out_in_turn
from kronfield.fitting.settings import DEFAULT
from kronfield.solvers.points.normal import Penalty

BOX = [(0.0, 1.0), (0.0, 1.0)]


def trial(count=40, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((count, 2))
    values = np.sin(5 * points[:, :1].T) + 0.1 * rng.standard_normal((1, count))
    weights = rng.uniform(0.2, 3.0, count) if weighted else None
    return Trial(points, values, weights, PointOptions())


def test_the_identity_is_that_of_linear_regression():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((13, 4)), rng.standard_normal((13, 2))
    folds = [np.array([0, 5, 7]), np.array([1, 2]), np.array([3]), np.array([4, 6, 12])]
    found = left_out_in_turn(np.eye(13) - X @ np.linalg.pinv(X), y, folds)
    for at, errors in zip(folds, found, strict=True):
        kept = np.setdiff1d(np.arange(13), at)
        wanted = y[at] - X[at] @ np.linalg.lstsq(X[kept], y[kept], rcond=None)[0]
        np.testing.assert_allclose(errors, wanted, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at", [(-4.0, 0), (-2.0, 3), (1.0, 0), (0.0, 5)])
def test_scores_are_those_of_a_system_for_each_fold(weighted, at):
    held = trial(weighted=weighted)
    shared = held.shared(hat_axis, BOX, [9, 11], None)
    systems = held.systems(hat_axis, BOX, [9, 11], None)
    units = mean_distances(BOX, 40)
    ladder = ladder_for(systems[0], units, None, DEFAULT.search)
    one = HeldOutWalk(held, [shared.equations], ladder, "", shared)
    other = HeldOutWalk(held, systems, ladder, "")
    assert one.score(at) == pytest.approx(other.score(at), rel=1e-8)
    assert one.errors[at] == pytest.approx(other.errors[at], rel=1e-8)
    assert one.means[at] == pytest.approx(other.means[at], rel=1e-8)


def test_a_singular_system_is_no_candidate():
    held = trial()
    shared = held.shared(hat_axis, BOX, [9, 11], None)
    assert shared.squares(Penalty(roughness=(0.0, 0.0))) is None


def test_many_points_have_a_system_for_each_fold():
    assert trial(200).shared(hat_axis, BOX, [9, 11], None) is not None
    assert trial(201).shared(hat_axis, BOX, [9, 11], None) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_gaussians_are_held_out_in_turn(weighted):
    held = trial(weighted=weighted)
    found = gaussians.likely_gaussians(held, BOX, DEFAULT.gaussians)
    rows = found.rows(held.points)
    assert rows.shape[1] > len(rows)
    w = np.ones(40) if held.weights is None else held.weights
    y, total = held.values[0], 0.0
    for fold in held.folds:
        kept = gaussians._Centred(rows[~fold], w[~fold])
        weights, constant = kept.solve(y[~fold], found.ridge)
        total += float(w[fold] @ (rows[fold] @ weights + constant - y[fold]) ** 2)
    wanted = total / w.sum() / held.spread
    assert found.held_out(held) == pytest.approx(wanted, rel=1e-5)
