"""The dual form: similarities, likelihood and systems against dense formulas."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad

import kronfield as kf
from effort import examples
from kronfield.solvers.dual.likelihood import Likelihood, orthonormal
from kronfield.solvers.dual.similarity import (
    SHAPES,
    AxisSimilarity,
    Pairs,
    Similarity,
    on_axes,
)
from kronfield.solvers.dual.systems import Direct, Inducing

RANGES = (1e-2, 1e3), (1e-10, 1e3)  # of widths and ridges


def case(n=25, D=3, C=2, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((n, D))
    values = np.stack([np.sin(3 * points[:, 0] + c) + points[:, -1] for c in range(C)])
    values += 0.1 * rng.standard_normal(values.shape)
    return points, values, rng.uniform(0.5, 2.0, n), np.stack([np.ones(n), points[:, 0]])


def dense(similarity, ridge, points, noise):
    """S = K + ridge / w, by the formula of each pair."""
    axes = on_axes(similarity, points)
    rows = [[math.prod(float(a(x[i : i + 1])[0, j]) for i, a in enumerate(axes))
             for j in range(len(points))] for x in points]  # fmt: skip
    return np.array(rows) + ridge * np.diag(noise)


def test_the_gaussian_similarity_is_that_of_the_embedder():
    # the similarity of Gaussians of width s is a Gaussian of width sqrt(2) s
    dx = np.linspace(-0.3, 0.3, 7)
    axis = AxisSimilarity("gaussian", 0.1 * math.sqrt(2), np.zeros(1))
    known = np.asarray(kf.Gaussian(64, 0.1).similarity(dx))
    np.testing.assert_allclose(axis(dx)[:, 0], known / known[3], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_pairs_and_axes_agree(shape):
    points, _, _, _ = case(D=4)
    similarity = Similarity(shape, (0.2, 0.5, 3.0, 100.0))
    K = similarity.between(points, points)
    np.testing.assert_allclose(K, dense(similarity, 0.0, points, np.ones(25)), rtol=1e-12)
    upper = np.triu_indices(25, 1)
    pairs = Pairs(points).similarities(shape, np.array(similarity.widths))
    np.testing.assert_allclose(pairs, K[upper], rtol=1e-12)
    rows = np.prod(
        [a(x) for a, x in zip(on_axes(similarity, points), points[:3].T, strict=True)], axis=0
    )
    np.testing.assert_allclose(rows, K[:3], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_and_integrals_of_an_axis(shape):
    axis = AxisSimilarity(shape, 0.3, np.array([0.0, 0.4, 1.3]))
    x, h = np.array([-0.7, 0.13, 0.9, 2.0]), 1e-5
    for order in range(1, min(axis.smoothness, 3) + 1):
        change = (axis.rows(x + h, order - 1) - axis.rows(x - h, order - 1)) / (2 * h)
        np.testing.assert_allclose(axis.rows(x, order), change, rtol=1e-6, atol=1e-6)
    for i, centre in enumerate(axis.centres):
        known = quad(lambda t, i=i: axis.rows(np.array([t]))[0, i], -0.5, 1.1, points=[centre])[0]
        assert axis.integral(-0.5, 1.1)[i] == pytest.approx(known, rel=1e-8)
    with pytest.raises(kf.InputError, match="derivative: got 17"):
        axis.rows(x, 17)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_likelihood_is_the_dense_one_and_its_gradient_that_of_differences(shape):
    points, values, noise, columns = case()
    X, _ = orthonormal(columns)
    likelihood = Likelihood(Pairs(points), values.T, noise, X, shape, *RANGES)
    at = np.log(np.array([0.4, 0.7, 1.5, 0.05]))
    found, gradient = likelihood(at)
    S = dense(Similarity(shape, tuple(np.exp(at[:-1]))), 0.05, points, noise)
    inverse = np.linalg.inv(S)
    G = X.T @ inverse @ X
    Q = inverse - inverse @ X @ np.linalg.inv(G) @ X.T @ inverse
    volume = np.linalg.slogdet(S)[1] + np.linalg.slogdet(G)[1]
    squares = [y @ Q @ y for y in values]
    assert found == pytest.approx(volume + 23 / 2 * np.sum(np.log(squares)), rel=1e-10)
    for i, step in enumerate(1e-5 * np.eye(4)):
        change = (likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(change, rel=1e-5, abs=1e-6)


def test_the_maximum_is_one():
    points, values, noise, columns = case(60)
    X, _ = orthonormal(columns)
    likelihood = Likelihood(Pairs(points), values.T, noise, X, "gaussian", *RANGES)
    start = Similarity("gaussian", (1.0, 1.0, 1.0))
    found, ridge, value = likelihood.maximum(start, 0.1, points.std(axis=0), 100)
    at = np.log([*found.widths, ridge])
    for step in 0.1 * np.vstack([np.eye(4), -np.eye(4)]):
        assert likelihood(at + step)[0] > value - 0.05  # flat where values do not depend on an axis
    assert found.widths[1] > 5 * found.widths[0]  # values do not depend on the second axis
    fixed = likelihood.maximum(start, 0.25, points.std(axis=0), 100, fixed=True)
    assert fixed[1] == pytest.approx(0.25)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(4, 40), st.integers(1, 6), st.sampled_from(SHAPES), st.integers(0, 99))
def test_the_direct_system_is_the_dense_one(n, D, shape, seed):
    points, values, noise, _ = case(n, D, 2, seed)
    columns = np.ones((1, n))
    similarity, ridge = Similarity(shape, tuple(np.linspace(0.3, 2.0, D))), 0.01
    system = Direct(similarity, ridge, points, noise, columns)
    solution = system.solve(values)
    S = dense(similarity, ridge, points, noise)
    inverse = np.linalg.inv(S)
    ones = np.ones(n)
    b = values @ inverse @ ones / (ones @ inverse @ ones)
    np.testing.assert_allclose(solution.trend[:, 0], b, rtol=1e-6, atol=1e-9)
    known = (values - b[:, None]) @ inverse
    np.testing.assert_allclose(solution.coefficients, known, rtol=1e-5, atol=1e-7)
    # universal kriging, at a point that is far from the others in one axis
    new = np.full((1, D), 0.4)
    k = similarity.between(new, points)[0]
    u = 1 - ones @ inverse @ k
    variance = 1 - k @ inverse @ k + u**2 / (ones @ inverse @ ones)
    assert system.variance(new, np.ones((1, 1)))[0] == pytest.approx(variance, rel=1e-5, abs=1e-8)


def test_leaving_one_out_is_leaving_it_out():
    points, values, noise, columns = case(30)
    similarity = Similarity("twice", (0.5, 1.0, 2.0))
    solution = Direct(similarity, 0.02, points, noise, columns).solve(values)
    for i in (0, 7, 29):
        kept = np.arange(30) != i
        other = Direct(similarity, 0.02, points[kept], noise[kept], columns[:, kept])
        one = other.solve(values[:, kept])
        predicted = one.coefficients @ similarity.between(points[kept], points[i : i + 1])[:, 0]
        predicted += one.trend @ columns[:, i]
        error = (values[:, i] - predicted) / math.sqrt(noise[i])
        np.testing.assert_allclose(solution.left_out[:, i], error, rtol=1e-8)


def test_all_points_as_inducing_points_are_the_direct_system():
    points, values, noise, columns = case(40)
    similarity, ridge = Similarity("once", (0.5, 1.0, 2.0)), 0.02
    direct = Direct(similarity, ridge, points, noise, columns)
    known = direct.solve(values)
    system, found = Inducing.fitted(similarity, ridge, points, points, values, noise, columns)
    new = np.random.default_rng(1).random((9, 3))
    at = np.stack([np.ones(9), new[:, 0]])
    left, right = (
        one.coefficients @ similarity.between(points, new) + one.trend @ at
        for one in (known, found)
    )
    np.testing.assert_allclose(right, left, atol=1e-5)
    np.testing.assert_allclose(found.variances, known.variances, rtol=1e-4)
    np.testing.assert_allclose(system.variance(new, at), direct.variance(new, at), atol=1e-5)
    assert system.freedom() == pytest.approx(direct.freedom(), abs=1e-3)
    again = Inducing.from_contents(similarity, ridge, system.contents())
    np.testing.assert_array_equal(again.variance(new, at), system.variance(new, at))


def test_dependent_columns_are_left_alone_once():
    columns = np.stack([np.ones(9), np.ones(9), np.arange(9.0)])
    X, way = orthonormal(columns)
    assert X.shape == (9, 2)
    np.testing.assert_allclose(columns.T @ way, X, atol=1e-12)


def test_singular_points_get_a_larger_ridge():
    points = np.zeros((30, 2))
    system = Direct(
        Similarity("gaussian", (1.0, 1.0)), 1e-17, points, np.ones(30), np.ones((1, 30))
    )
    solution = system.solve(np.ones((1, 30)))
    assert system.ridge > 1e-17
    assert solution.trend[0, 0] == pytest.approx(1.0)
