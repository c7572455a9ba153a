"""A trend that no penalty holds back: dense references, every solver, and fields that carry it."""

import copy
import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.field import storage
from kronfield.field.trend import Trend, TrendBasis
from kronfield.solvers.points.normal import Penalty


def sloped(P, noise=0.05, seed=0, D=2):
    rng = np.random.default_rng(seed)
    points = rng.random((P, D)) * np.arange(1, D + 1)
    values = 3 * points[:, 0] - 2 * points[:, -1] + 5 + np.sin(7 * points[:, 0])
    return points, values + noise * rng.standard_normal(P)


def columns(points, box, degree):
    t = [(points[:, i] - (a + b) / 2) / ((b - a) / 2) for i, (a, b) in enumerate(box)]
    found = [np.ones(len(points)), *t] if degree else [np.ones(len(points))]
    if degree > 1:
        found += [t[i] * t[j] for i in range(len(t)) for j in range(i, len(t))]
    return np.stack(found, axis=1)


def dense(points, values, encoding, box, degree, penalty, equations, weights=None):
    """Return the joint fit of features and columns at the points, by a dense solve."""
    units = np.stack([(points[:, i] - a) / (b - a) for i, (a, b) in enumerate(box)], axis=1)
    B, T = encoding(units), columns(points, box, degree)
    n = B.shape[1]
    P = equations.differences(penalty).apply(np.eye(n).reshape(n, *encoding.shape)).reshape(n, n)
    both = np.concatenate([B, T], axis=1)
    w = np.ones(len(points)) if weights is None else weights
    matrix = both.T @ (w[:, None] * both)
    matrix[:n, :n] += P
    if n > 1000:  # the inverse would take seconds
        solved = np.linalg.solve(matrix, both.T @ (w * values))
        return both @ solved, both, None, solved[n:]
    inverse = np.linalg.pinv(matrix, rcond=1e-13, hermitian=True)
    solved = inverse @ both.T @ (w * values)
    return both @ solved, both, inverse, solved[n:]


PATHS = {
    "banded Cholesky": (1, kf.Triangle(30, 2 / 30), Penalty(roughness=(0.1, 1e-4))),
    "factorisation": (2, kf.Triangle(10, 2 / 10), Penalty(roughness=(1e-2, 1e-3))),
    "factorisation, wide": (2, kf.Gaussian(7, 0.25), Penalty(ridge=0.5)),
    "conjugate gradients": (2, kf.Triangle(51, 2 / 51), Penalty(roughness=(1e-1, 1e-2))),
}


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("path", PATHS)
def test_every_solver_gives_the_dense_joint_fit(path, degree):
    D, embedder, penalty = PATHS[path]
    if degree != 1 and path == "conjugate gradients":
        pytest.skip("the dense reference takes seconds")
    points, values = sloped(200, D=D)
    box = [(0.0, i + 1.0) for i in range(D)]
    weights = np.random.default_rng(1).uniform(0.5, 2, 200)
    options = {"ridge": penalty.ridge} if penalty.ridge else {"roughness": penalty.roughness}
    field = kf.fit_points(
        points,
        values,
        embedder,
        domain=box,
        trend=degree,
        weights=weights,
        tolerance=1e-10,
        **options,
    )
    assert path.split(",")[0] in field.report.method
    uncertainty = field._uncertainty
    expected, both, inverse, c = dense(
        points, values, field.encoding, box, degree, penalty, uncertainty.equations, weights
    )
    np.testing.assert_allclose(field(points), expected, atol=1e-6)
    np.testing.assert_allclose(field._trend.coefficients[0][0], c[0], atol=1e-4)
    # degrees of freedom and standard errors are those of the joint fit
    some = both[:20]
    if uncertainty.exact:
        deviation = np.sqrt(np.sum(some @ inverse * some, axis=1))
        found = field.standard_error(points[:20], noise=1.0)
        np.testing.assert_allclose(found, deviation, rtol=1e-4)
        freedom = np.sum(inverse * (both.T @ (weights[:, None] * both)))
        assert field.report.degrees_of_freedom == pytest.approx(freedom, rel=1e-4)
    residual = np.sqrt(np.average((values - expected) ** 2, weights=weights))
    assert field.report.residual == pytest.approx(residual, rel=1e-4)


def test_blended_rows_have_it_too():
    points, values = sloped(800, 0.0)
    values = 3 * points[:, 0] - 2 * points[:, 1] + 5
    options = {"domain": [(0, 1), (0, 2)], "ridge": 10.0, "rows": "linear", "tolerance": 1e-8}
    embedder = kf.RandomFourier(8, 0.5, seed=1)
    field = kf.fit_points(points, values, embedder, trend=1, **options)
    np.testing.assert_allclose(field(points), values, atol=1e-5)  # a plane costs no penalty
    assert np.abs(kf.fit_points(points, values, embedder, **options)(points) - values).max() > 1e-3


@pytest.mark.parametrize("penalty", [{"roughness": (10.0, 10.0)}, {"ridge": 100.0}, {}])
def test_polynomials_are_met_under_any_penalty(penalty):
    rng = np.random.default_rng(0)
    points = rng.random((300, 2))
    x, y = points.T
    values = np.stack([1 + 2 * x - y, x * y - 3 * y**2], axis=1)
    encoding = kf.Triangle(8, 2 / 8) if penalty else None
    field = kf.fit_points(points, values, encoding, domain=[(0, 1)] * 2, trend=2, **penalty)
    np.testing.assert_allclose(field(points), values, atol=1e-6)
    slopes = np.stack([[2, -1] * np.ones((300, 2)), np.stack([y, x - 6 * y], axis=1)], axis=2)
    np.testing.assert_allclose(field.gradient(points), slopes, atol=1e-4)
    np.testing.assert_allclose(field.integral(), [1.5, 0.25 - 1], atol=1e-6)
    np.testing.assert_allclose(field.integral([(0, 0.5), (0.5, 1)]), [0.1875, -0.390625], atol=1e-6)


def test_extrapolation_returns_to_the_trend():
    points = np.random.default_rng(0).random((500, 2)) * [1, 2]
    values = 3 * points[:, 0] - 2 * points[:, 1] + 5 + 0.1 * np.sin(30 * points[:, 0])
    outside = np.array([[2.5, 1.0], [0.5, -2.0]])
    plane = 3 * outside[:, 0] - 2 * outside[:, 1] + 5
    field = kf.fit_points(points, values, trend=1)
    np.testing.assert_allclose(field(outside, outside="extrapolate"), plane, atol=0.3)
    grid = field.on_grid([outside[:, 0], outside[:, 1][::-1]], outside="extrapolate")
    np.testing.assert_allclose(
        np.diagonal(grid[:, ::-1]), field(outside, outside="extrapolate"), rtol=1e-12
    )
    without = kf.fit_points(points, values, kf.Triangle(16, 2 / 16), roughness=(0.0, 1e-3))
    assert np.all(without(outside, outside="extrapolate") == 0)


def test_settings_are_chosen_for_what_the_trend_leaves():
    points, values = sloped(600, 0.1)
    field = kf.fit_points(points, values, trend=1)
    plain = kf.fit_points(points, values)
    truth = 3 * points[:, 0] - 2 * points[:, 1] + 5 + np.sin(7 * points[:, 0])
    errors = [np.sqrt(np.mean((f(points) - truth) ** 2)) for f in (field, plain)]
    assert errors[0] < 1.1 * errors[1]
    assert field.trend == 1
    assert plain.trend is None


def test_outliers_and_a_trend():
    points, values = sloped(600, 0.05)
    clean = kf.fit_points(points, values, trend=1)
    values[::50] += 30
    field = kf.fit_points(points, values, trend=1, loss="huber")
    assert field.report.robust.rejected == 12
    np.testing.assert_allclose(field(points), clean(points), atol=0.15)
    ratio = field.standard_error(points[:50]) / clean.standard_error(points[:50])
    assert 0.7 < np.median(ratio) < 1.4


def test_lattices_have_it_too():
    nodes = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1).reshape(-1, 2)
    nodes = nodes[np.random.default_rng(0).random(400) < 0.6]
    field = kf.fit_points(nodes, nodes[:, 0] + 2 * nodes[:, 1] + 1, trend=1)
    at = np.array([[3.3, 4.4], [40.0, 50.0]])
    found = field(at, outside="extrapolate")
    np.testing.assert_allclose(found, at[:, 0] + 2 * at[:, 1] + 1, rtol=1e-3)


def test_fields_carry_it(tmp_path):
    points, values = sloped(200)
    field = kf.fit_points(points, values + 1j * values, kf.Triangle(8, 0.25), ridge=1.0, trend=2)
    field.save(tmp_path / "a.field")
    for other in (
        kf.load(tmp_path / "a.field"),
        pickle.loads(pickle.dumps(field)),
        copy.deepcopy(field),
    ):
        np.testing.assert_array_equal(other(points), field(points))
        np.testing.assert_array_equal(other.on_grid((5, 6)), field.on_grid((5, 6)))
        assert other.integral() == field.integral()
        assert other.trend == 2
    again = field.refit(2 * (values + 1j * values))
    np.testing.assert_allclose(again(points), 2 * field(points), rtol=1e-9)
    # readers that know no trend must refuse the file
    arrays, metadata = storage.read(tmp_path / "a.field")
    assert metadata["version"] == 3
    arrays["trend"] = arrays["trend"][:, 1:]
    storage.write(tmp_path / "b.field", arrays, metadata)
    with pytest.raises(kf.InputError, match="trend"):
        kf.load(tmp_path / "b.field")


def test_derivatives_and_integrals_of_the_polynomial():
    trend = Trend(TrendBasis.of(2, [(0, 2), (-1, 3)]), np.random.default_rng(0).random((3, 6)))
    points = np.random.default_rng(1).random((9, 2))
    step = 1e-4
    for axis in range(2):
        ahead, behind = points.copy(), points.copy()
        ahead[:, axis] += step
        behind[:, axis] -= step
        order = [int(i == axis) for i in range(2)]
        slope = (trend.at(ahead) - trend.at(behind)) / (2 * step)
        np.testing.assert_allclose(trend.at(points, order), slope, atol=1e-8)
    axes = [np.linspace(0, 1, 4), np.linspace(1, 2, 3)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(trend.on_grid(axes, (1, 1)).reshape(3, -1), trend.at(grid, (1, 1)))
    x, w = np.polynomial.legendre.leggauss(4)
    square = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(
        trend.integral([(-1, 1), (-1, 1)]), trend.at(square) @ np.outer(w, w).ravel()
    )


def test_wrong_degrees_are_named():
    points, values = sloped(50)
    for trend in (3, -1, True, "linear"):
        with pytest.raises(kf.InputError, match="trend"):
            kf.fit_points(points, values, trend=trend)
