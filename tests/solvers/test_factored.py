"""Alternating least squares for factored weights, against brute force."""

import numpy as np
import pytest
from scipy.integrate import quad

import kronfield as kf
from kronfield.solvers.factored import axes as axes_module
from kronfield.solvers.factored.als import Factors, Sweeper, bins_of, new_product, values_at
from kronfield.solvers.factored.axes import Rows, bend, gram, spline_axis

SLOPES = 0.03


def case(P=90, D=3, R=2, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((P, D))
    embedders = [spline_axis(x, 5 + d, 4, 0.5) for d, x in enumerate(points.T)]
    weights = tuple(rng.standard_normal((emb.size, 1 + R)) for emb in embedders)
    return points, embedders, Factors(weights), rng.standard_normal(P), rng.random(P) + 0.5


def plain(embedders, factors, points):
    """Return the sum of main effects and products, by loops."""
    out = np.zeros(len(points))
    for p, point in enumerate(points):
        rows = [emb(np.array([x]))[0] for emb, x in zip(embedders, point, strict=True)]
        functions = [row @ W for row, W in zip(rows, factors.weights, strict=True)]
        out[p] = sum(F[0] for F in functions) + sum(
            np.prod([F[r] for F in functions]) for r in range(1, 1 + factors.rank)
        )
    return out


def test_values_are_sums_of_products():
    points, embedders, factors, values, _ = case()
    expected = plain(embedders, factors, points)
    np.testing.assert_allclose(values_at(embedders, factors, points), expected)
    sweeper = Sweeper(Rows(embedders, points), values, slopes=SLOPES)
    sweeper.start(factors)
    np.testing.assert_allclose(sweeper.fitted(), expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("part", [20, 1 << 15])
def test_normal_equations_are_those_of_dense_rows(monkeypatch, weighted, part):
    monkeypatch.setattr(axes_module, "PART", part)
    points, embedders, _, values, weights = case()
    rows = Rows(embedders, points)
    G = np.random.default_rng(3).standard_normal((90, 3))
    w = weights if weighted else np.ones(90)
    for axis, emb in enumerate(embedders):
        factors = (G[i : i + part] for i in range(0, 90, part))
        found, right = rows.normal(axis, factors, values, weights if weighted else None)
        A = (emb(points[:, axis])[:, :, None] * G[:, None]).reshape(90, -1)
        np.testing.assert_allclose(found, A.T @ (w[:, None] * A), atol=1e-10)
        np.testing.assert_allclose(right, A.T @ (w * values), atol=1e-10)


def test_a_step_is_the_least_squares_of_one_axis():
    points, embedders, factors, values, weights = case()
    sweeper, penalty = Sweeper(Rows(embedders, points), values, weights, slopes=SLOPES), 0.3
    sweeper.start(factors)
    found = sweeper._solve(1, penalty)
    functions = [emb(x) @ W for emb, x, W in zip(embedders, points.T, factors.weights, strict=True)]
    G = np.column_stack([np.ones(90), functions[0][:, 1:] * functions[2][:, 1:]])
    target = values - functions[0][:, 0] - functions[2][:, 0]
    K = embedders[1].size
    A = (embedders[1](points[:, 1])[:, :, None] * G[:, None]).reshape(90, -1)
    # the penalty of a function times the mean square of the others of its product
    sizes = weights @ G**2 / weights.sum()
    H = A.T @ (weights[:, None] * A) + penalty * np.kron(bend(embedders[1], SLOPES), np.diag(sizes))
    expected = np.linalg.solve(H, A.T @ (weights * target)).reshape(K, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_sweeps_lower_the_loss_and_find_a_product():
    rng = np.random.default_rng(0)
    points = rng.random((800, 4))
    embedders = [spline_axis(x, 8, 4, 0.5) for x in points.T]
    values = np.sin(5 * points[:, 1]) * np.exp(points[:, 3])
    values -= values.mean()
    sweeper = Sweeper(Rows(embedders, points), values, slopes=SLOPES)
    factors = sweeper.sweeps(Factors.zeros(embedders), 1e-6, 5)
    additive = sweeper.loss()
    left = values - sweeper.fitted()
    new = new_product(embedders, points, bins_of(points, 5), left, [0, 1, 2, 3])
    varies = [np.ptp(w) > 0.1 for w in new]
    assert varies == [False, True, False, True]  # the pair of axes that interacts
    factors = sweeper.sweeps(factors.with_product(new), 1e-6, 12)
    assert sweeper.loss() < 1e-3 * additive
    fresh = rng.random((100, 4)) * 0.9 + 0.05
    expected = np.sin(5 * fresh[:, 1]) * np.exp(fresh[:, 3])
    found = values_at(embedders, factors, fresh)
    assert np.std(found - expected) < 0.02


def test_single_precision_of_many_points(monkeypatch):
    points, embedders, factors, values, _ = case(400)
    exact = Sweeper(Rows(embedders, points), values, slopes=SLOPES).sweeps(factors, 1e-2, 3)
    monkeypatch.setattr(axes_module, "SINGLE", 100)
    rows = Rows(embedders, points)
    assert rows.dtype == np.float32
    rough = Sweeper(rows, values, slopes=SLOPES).sweeps(factors, 1e-2, 3)
    a, b = (values_at(embedders, one, points) for one in (exact, rough))
    np.testing.assert_allclose(a, b, atol=1e-2)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.13, 0.77), (-0.2, 1.1)])
def test_gram_matrices_are_those_of_quadrature(low, high):
    for emb in (kf.BSpline(7), kf.BSpline(4, 1, low=0.1, high=0.9, inner=np.array([0.3, 0.5]))):
        found, knots = gram(emb, low, high), emb.knots
        for i, j in ((0, 0), (1, 2), (3, 3), (0, emb.size - 1)):

            def product(x, i=i, j=j, emb=emb):
                row = emb(np.array([x]))[0]
                return row[i] * row[j]

            inside = [k for k in np.unique(knots) if low < k < high]
            expected = quad(product, low, high, points=inside, limit=200)[0]
            assert found[i, j] == pytest.approx(expected, abs=1e-10)


def test_splines_of_an_axis():
    rng = np.random.default_rng(0)
    assert spline_axis(np.full(50, 0.5), 12, 12, 0.5).size == 2
    whole = spline_axis(rng.integers(0, 5, 300) / 4, 12, 12, 0.5)
    assert (whole.size, whole.degree) == (5, 1)
    np.testing.assert_allclose(whole(np.arange(5) / 4), np.eye(5), atol=1e-12)
    even = spline_axis(rng.random(5000), 12, 12, 0.5)
    skewed = spline_axis(rng.random(5000) ** 4, 12, 12, 0.5)
    assert even.size == skewed.size == 12
    np.testing.assert_allclose(even.inner_knots, np.arange(1, 9) / 9, atol=0.02)
    assert skewed.inner_knots[3] < 0.3  # half of the knots follow the points
    repeated = np.concatenate([np.zeros(4000), rng.random(1000)])  # most at one place
    assert np.all(np.diff(spline_axis(repeated, 12, 12, 0.5).inner_knots) > 0)


def test_a_penalty_does_not_depend_on_the_number_of_splines():
    for size in (12, 24, 48):
        emb = kf.BSpline(size)
        x = emb.centres
        w = np.linalg.solve(emb(x), x**2)
        # the integrals of 2^2 and, times 0.03, of (2 x)^2
        assert w @ bend(emb, SLOPES) @ w == pytest.approx(4.0 + 0.04, rel=0.15)
        assert x @ bend(emb, SLOPES) @ x == pytest.approx(0.03, rel=1e-6)  # a straight line
        assert np.ones(size) @ bend(emb, SLOPES) @ np.ones(size) == pytest.approx(0.0, abs=1e-6)
