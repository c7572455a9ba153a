"""Points at the same place in the dual form: the same fit as of all points, from fewer places."""

import math

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting import dual
from kronfield.fitting.repeats import Repeats
from kronfield.solvers.dual.likelihood import Likelihood, orthonormal
from kronfield.solvers.dual.similarity import Pairs


def repeated(D=2, weighted=True):
    rng = np.random.default_rng(0)
    places = rng.random((25, D))
    points = places[np.append(np.arange(25), rng.integers(0, 25, 45))]
    values = np.sin(4 * points.sum(axis=1)) + 0.3 * rng.standard_normal(70)
    weights = rng.uniform(0.5, 2.0, 70) if weighted else np.ones(70)
    return points, values, weights


def test_points_that_differ_have_no_repeats():
    points = np.random.default_rng(0).random((50, 3))
    assert Repeats.of(points, np.ones(50)) is None
    swapped = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert Repeats.of(swapped, np.ones(3)) is None


def test_means_and_sums_of_squares():
    points, values, weights = repeated()
    found = Repeats.of(points, weights)
    assert np.array_equal(points[found.first][found.place], points)
    means, squares = found.merged(np.stack([values, 1e6 + values]))
    for k in range(len(found.first)):
        own = found.place == k
        mean = np.average(values[own], weights=weights[own])
        assert means[0, k] == pytest.approx(mean, rel=1e-12)
        assert squares[0, k] == pytest.approx(weights[own] @ (values[own] - mean) ** 2, abs=1e-12)
        assert found.counts[k] == own.sum()
        assert found.sums[k] == pytest.approx(weights[own].sum())
    np.testing.assert_allclose(squares[1], squares[0], atol=1e-8)


@pytest.mark.parametrize("shape", ["gaussian", "rough"])
def test_the_likelihood_of_places_is_that_of_all_points(shape):
    points, values, weights = repeated()
    found = Repeats.of(points, weights)
    planes = np.stack([values, values**2])
    means, squares = found.merged(planes)
    X = orthonormal(np.ones((1, len(points))))[0]
    ranges = (1e-2, 1e3), (1e-10, 1e3)
    whole = Likelihood(Pairs(points), planes.T, 1 / weights, X, shape, *ranges)
    # coefficients of columns count alike if the columns are those of the points
    part = X[found.first]
    few = Likelihood(
        Pairs(points[found.first]),
        means.T,
        1 / found.sums,
        part,
        shape,
        *ranges,
        within=squares.sum(axis=1),
        repeats=len(points) - len(found.first),
    )
    one, other = np.log([0.3, 0.5, 0.1]), np.log([0.6, 0.2, 0.7])
    a, b = whole(one), whole(other)
    c, d = few(one), few(other)
    assert a[0] - b[0] == pytest.approx(c[0] - d[0], rel=1e-9)
    np.testing.assert_allclose(a[1], c[1], rtol=1e-7)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_field_is_that_of_all_points(monkeypatch, loss):
    points, values, weights = repeated(4)
    values[3] += 20 * (loss == "huber")
    at = np.random.default_rng(1).random((10, 4))
    options = {"weights": weights, "loss": loss, "domain": [(0, 1)] * 4}
    ours = kf.fit_points(points, values, **options)
    choice = dual.DualChoice(ours.similarity, ours._system.ridge, [], 9)
    monkeypatch.setattr(dual.DualFit, "_choose", lambda self, values: choice)
    again = kf.fit_points(points, values, **options)
    monkeypatch.setattr(dual.Repeats, "of", lambda *_: None)
    whole = kf.fit_points(points, values, **options)
    assert len(again._system.centres) == 25
    assert len(whole._system.centres) == 70 - (loss == "huber")
    np.testing.assert_allclose(again(at), whole(at), rtol=1e-6)
    np.testing.assert_allclose(again.standard_error(at), whole.standard_error(at), rtol=1e-5)
    one, other = again.report, whole.report
    assert one.degrees_of_freedom == pytest.approx(other.degrees_of_freedom, rel=1e-5)
    assert one.expected_error == pytest.approx(other.expected_error, rel=1e-5)
    if loss == "huber":
        assert one.robust.rejected == other.robust.rejected == 1
        assert one.robust.scale == pytest.approx(other.robust.scale, rel=1e-5)


def test_repeats_show_the_noise_and_what_belongs_to_a_place():
    """Values of 600 places that have nothing in common with their neighbours, 4 times each."""
    rng = np.random.default_rng(0)
    places = rng.random((600, 5))
    own = rng.standard_normal(600)
    points, own = np.repeat(places, 4, axis=0), np.repeat(own, 4)
    values = own + rng.standard_normal(2400)
    field = kf.fit_points(points, values)
    # the best prediction is the mean times 4 / (4 + 1): an error of sqrt(1 / 5)
    assert np.sqrt(np.mean((field(points) - own) ** 2)) < 1.1 * math.sqrt(0.2)
    assert "2400 points at 600 places" in field.report.reason
    assert field.report.expected_error == pytest.approx(math.sqrt(1 + 0.25), rel=0.1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_two_points_at_one_place_are_found_wherever_they_are(order):
    """Products of matrices round some rows otherwise."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        points = np.asarray(rng.random((rng.integers(3, 40), rng.integers(2, 12))), order=order)
        one, other = rng.choice(len(points), 2, replace=False)
        points[one] = points[other]
        found = Repeats.of(points, np.ones(len(points)))
        assert found is not None
        assert found.place[one] == found.place[other]
