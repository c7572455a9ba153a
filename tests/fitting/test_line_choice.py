"""The penalty of values on a line, and what follows from it: filling and standard errors."""

import math
from dataclasses import replace

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting import settings
from kronfield.fitting.filling_choice import Hidden, alike
from kronfield.fitting.line_choice import LineFolds, LineSmoother, line_penalty
from kronfield.fitting.point_grids import grid_of, hat_axis
from kronfield.fitting.point_search import RoughnessLadder, Walk
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.normal import Penalty
from kronfield.solvers.points.penalty import DifferencePenalty

SEARCH = settings.DEFAULT.search

SEARCH = settings.DEFAULT.search


def hats(nodes):
    return RowRule.choose(*grid_of(hat_axis, [(0.0, nodes - 1.0)], [nodes]), "exact")


def held_out(points, values, weights, nodes, first, second):
    """Return the error of dense fits to all but one part, which is held out in turn."""
    size = grid_of(hat_axis, [(0.0, nodes - 1.0)], [nodes])[0].shape[0]
    label = np.random.default_rng(0).permutation(len(points)) % SEARCH.line_folds
    B = np.maximum(0.0, 1.0 - np.abs(points - np.arange(size)))
    one, two = (np.diff(np.eye(size), n=n, axis=0) for n in (1, 2))
    P = weights.sum() / (nodes - 1) * (first * one.T @ one + second * two.T @ two)
    y = (values - np.average(values, weights=weights)) / values.std()
    total = 0.0
    for k in range(SEARCH.line_folds):
        kept = label != k
        W = np.diag(weights[kept])
        x = np.linalg.solve(B[kept].T @ W @ B[kept] + P, B[kept].T @ W @ y[kept])
        total += np.sum(weights[~kept] * (y[~kept] - B[~kept] @ x) ** 2)
    return total / weights.sum()


@pytest.mark.parametrize("uneven", [False, True])
def test_the_error_is_that_of_dense_fits(uneven):
    rng = np.random.default_rng(0)
    points = np.sort(rng.uniform(0, 29, 25)) if uneven else np.delete(np.arange(30.0), [3, 11, 12])
    values, weights = np.cumsum(rng.standard_normal(len(points))), rng.uniform(0.5, 2, len(points))
    folds = LineFolds(hats(30), points[:, None], values[None], weights, SEARCH, 0)
    found = folds.error(Penalty(roughness=(0.3, 0.05), units=(1.0,)))
    assert found == pytest.approx(held_out(points[:, None], values, weights, 30, 0.3, 0.05))


@pytest.mark.parametrize(
    ("kind", "rough", "noisy"), [("walk", True, False), ("smooth", False, True)]
)
def test_walks_and_smooth_lines_with_noise(kind, rough, noisy):
    rng, x = np.random.default_rng(1), np.arange(400.0)
    values = np.cumsum(rng.standard_normal(400))
    if kind == "smooth":
        values = np.sin(x / 30) + 0.2 * rng.standard_normal(400)
    folds = LineFolds(hats(400), x[:, None], values[None], None, SEARCH, 0)
    first, second = line_penalty(folds, (1.0,), SEARCH).roughness
    assert (first > second) == rough
    assert (first + second > 10) == noisy


def test_fewer_parts_of_many_points_are_held_out():
    x = np.arange(1000.0)[:, None]
    assert (
        len(LineFolds(hats(1000), x, np.sin(x.T), None, replace(SEARCH, line_points=150), 0).parts)
        == 2
    )


def test_windows_are_smoothed_like_the_line():
    rng = np.random.default_rng(2)
    line = np.cumsum(rng.standard_normal((2, 60)), axis=1) + 50.0
    missing = np.zeros(60, dtype=bool)
    missing[[4, 20, 21, 40]] = True
    smoother = LineSmoother(0.4, 0.1)
    found = smoother(line[:, None], missing[None])[:, 0]
    one, two = (np.diff(np.eye(60), n=n, axis=0) for n in (1, 2))
    A = np.diag((~missing).astype(float)) + 0.4 * one.T @ one + 0.1 * two.T @ two
    dense = np.linalg.solve(A, np.where(missing, 0.0, line).T).T
    np.testing.assert_allclose(found[:, missing], dense[:, missing], rtol=1e-9)
    np.testing.assert_array_equal(found[:, ~missing], line[:, ~missing])


def test_the_penalty_of_a_smoother_is_the_same_for_any_units():
    smoother = LineSmoother(0.4, 0.1)
    penalty = smoother.penalty(80, (5.0, 203.0), 100, (3.5,))
    rule = RowRule.choose(*grid_of(hat_axis, [(5.0, 203.0)], [100]), "exact")
    points = 5.0 + 2.0 * np.arange(80.0)[:, None]
    own = LineFolds(rule, points, np.sin(points.T), None, SEARCH, 0).parts[0].equations
    own = own.differences(penalty)
    assert own.first / own.spacings[0] ** 2 == pytest.approx(0.4)
    assert own.second / own.spacings[0] ** 4 == pytest.approx(0.1)


def test_thresholds_fill_tones_but_not_walks():
    rng, x = np.random.default_rng(3), np.arange(500.0)
    held = rng.random(500) < 0.1
    held[[0, -1]] = False
    tone = np.sin(1.1 * x) + 0.7 * np.sin(0.37 * x + 1)
    walk = np.cumsum(rng.standard_normal(500))
    field = kf.fit_points(x[~held, None], tone[~held])
    assert "thresholds" in field.report.chosen_by.partition(";")[0] or any(
        one.kind == "falling thresholds" and one.chosen for one in field.report.candidates
    )
    error = np.sqrt(np.mean((field(x[held, None]) - tone[held]) ** 2))
    assert error < 0.5 * np.sqrt(np.mean((np.interp(x, x[~held], tone[~held]) - tone)[held] ** 2))
    field = kf.fit_points(x[~held, None], walk[~held])
    assert field.report.chosen.kind == "hats on the lattice"


def test_repeated_windows_count_once():
    hidden = np.zeros((3, 10), dtype=bool)
    hidden[:, 4] = True
    hidden[1, 6] = True
    windows = [(slice(0, 10),)] * 3
    assert len(Hidden(windows, hidden).different().windows) == 2


def test_errors_of_wide_and_narrow_gaps_have_the_same_unit():
    gaps = np.zeros((1, 40), dtype=bool)
    gaps[0, [3, 7]] = True
    gaps[0, 20:31] = True
    far = np.minimum(np.arange(20, 31) - 19, 31 - np.arange(20, 31))
    errors = [np.concatenate([[1.0, 1.0], 10.0 * far])[None]]
    ours, theirs = alike(errors, [2 * part for part in errors], gaps, gaps)
    assert [part.shape[1] for part in ours] == [1, 1, 11]
    assert np.abs(ours[2]).max() < 2
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b, 2 * a)


# Standard errors
# ------------------------------------------------------------------------------------------


def test_the_energy_of_a_penalty():
    tensor = np.random.default_rng(4).standard_normal((3, 7, 5))
    penalty = DifferencePenalty((7, 5), (0.5, 2.0), 0.3, 0.7, 0.1)
    product = np.sum((tensor * penalty.apply(tensor)).reshape(3, -1), axis=1)
    np.testing.assert_allclose(penalty.energy(tensor), product)


def test_an_interpolated_walk_has_the_errors_of_a_bridge():
    """Between two samples a walk of steps s has variance s^2 t (1 - t) over their distance."""
    rng, x = np.random.default_rng(5), np.arange(0.0, 400.0, 2.0)
    walk = np.cumsum(3.0 * rng.standard_normal(400))
    field = kf.fit_points(
        x[:, None], walk[::2], kf.Triangle(400, 2 / 400), domain=[(0, 400)], roughness=(1e-9, 0.0)
    )
    steps = np.sqrt(np.sum(np.diff(walk[::2]) ** 2) / 2 / 199)  # per unit of time
    middle = field.standard_error(x[10:20, None] + 1.0)
    np.testing.assert_allclose(middle, steps * math.sqrt(0.5), rtol=0.02)


def test_a_fit_that_interpolates_has_true_bands():
    rng, x = np.random.default_rng(6), np.arange(700.0)
    walk = np.cumsum(rng.standard_normal(700))
    held = rng.random(700) < 0.2
    held[[0, -1]] = False
    field = kf.fit_points(x[~held, None], walk[~held])
    z = (field(x[held, None]) - walk[held]) / field.standard_error(x[held, None])
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.25
    assert 0.9 < np.mean(np.abs(z) < 2) <= 1


# The search of penalties in more dimensions
# ------------------------------------------------------------------------------------------


def test_the_penalty_is_at_the_minimum_of_a_parabola():
    class Parabola(Walk):
        def _score(self, penalty, best):
            del best
            first, second = penalty.roughness
            return 1 + (math.log10(second) + 2.2) ** 2 + abs(first / second - 1)

    ladder = RoughnessLadder((1.0,), SEARCH)
    found = Parabola(ladder, "", 0.001).run()
    assert math.log10(found.penalty.roughness[1]) == pytest.approx(-2.2)
    assert found.best[0] == -2.0
