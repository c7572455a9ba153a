"""Gaussians with a ridge: the algebra against dense references, and the choice of `fit_points`."""

import math

import numpy as np
import pytest

import kronfield as kf
from kronfield.encoding import Kronecker
from kronfield.fitting.gaussians import (
    PADDING,
    GaussianFit,
    _Centred,
    _likeliest_ridge,
    gaussian_axis,
    likely_gaussians,
)
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_search import Trial
from kronfield.fitting.settings import GaussianSettings
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.dense import DenseTerm, dense_rows, dense_solve, gram
from kronfield.solvers.points.normal import Penalty
from kronfield.solvers.points.rows import axis_runs


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def features(D, width=0.3, padding=PADDING[0]):
    pairs = [gaussian_axis(0.0, 1.0, width, padding) for _ in range(D)]
    return Kronecker(*(emb for emb, _ in pairs)), tuple(frame for _, frame in pairs)


def hills(points):
    """Return a smooth function of any number of coordinates."""
    return np.sin(4 * points[:, 0]) + sum(np.cos(3 * x + 1) for x in points.T[1:])


# Dense systems
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_features_are_assembled_densely(D, weighted, dtype, rng):
    encoding, frames = features(D, 0.5)
    points, values = rng.random((40, D)), rng.standard_normal((2, 40)).astype(dtype)
    weights = rng.random(40) if weighted else None
    equations = assemble(RowRule.choose(encoding, frames, None, 40), points, values, weights)
    assert isinstance(equations.term, DenseTerm)
    B = encoding(np.stack([frame.unit(points[:, i]) for i, frame in enumerate(frames)], axis=1))
    W = np.ones(40) if weights is None else weights
    np.testing.assert_allclose(equations.term.matrix, B.T @ (B * W[:, None]), atol=1e-8)
    np.testing.assert_allclose(
        equations.rhs.reshape(2, -1), (values * W) @ B, atol=1e-8 if dtype == np.float64 else 1e-4
    )
    x, y = rng.standard_normal((2, 3, *encoding.shape))
    applied = equations.term.apply(x)
    assert np.sum(applied * y) == pytest.approx(np.sum(x * equations.term.apply(y)))
    np.testing.assert_array_equal(equations.term.apply(x, np.empty_like(x)), applied)
    np.testing.assert_allclose(equations.term.diagonal, np.diag(equations.term.matrix))
    solution = equations.solve(Penalty(ridge=0.1), tolerance=1e-6, limit=10)
    matrix = B.T @ (B * W[:, None]) + 0.1 * np.eye(B.shape[1])
    expected = np.linalg.solve(matrix, B.T @ (values * W).T).T
    np.testing.assert_allclose(
        solution.weights.reshape(2, -1), expected, atol=1e-7 if dtype == np.float64 else 1e-3
    )


def test_products_and_rows(rng):
    rows, others = rng.standard_normal((2, 9, 5))
    np.testing.assert_allclose(gram(rows, others), rows.T @ others)
    np.testing.assert_allclose(gram(rows), rows.T @ rows)
    encoding, frames = features(2)
    points = rng.random((7, 2))
    units = [frame.unit(points[:, i]) for i, frame in enumerate(frames)]
    rows = dense_rows(axis_runs(encoding.embedders, units), encoding.shape)
    np.testing.assert_allclose(rows, encoding(np.stack(units, axis=1)), atol=1e-15)


def test_a_singular_matrix_is_told():
    assert dense_solve(np.ones((3, 3)), np.ones((1, 3))) is None
    assert dense_solve(-np.eye(3), np.ones((1, 3))) is None


# The algebra
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("P", [12, 90])  # fewer and more than features
@pytest.mark.parametrize("weighted", [False, True])
def test_the_constant_is_free(P, weighted, rng):
    encoding, frames = features(2, 0.6)
    fit = GaussianFit(encoding, frames, 0.05, 0.0)
    points = rng.random((P, 2))
    y = hills(points) + 100
    w = rng.random(P) + 0.1 if weighted else np.ones(P)
    B = fit.rows(points)
    # least squares with a column of ones that is not penalised
    whole = np.column_stack([np.ones(P), B]) * np.sqrt(w)[:, None]
    ridge = math.sqrt(0.05) * np.eye(B.shape[1] + 1)[1:]
    expected = np.linalg.lstsq(
        np.vstack([whole, ridge]),
        np.concatenate([y * np.sqrt(w), np.zeros(B.shape[1])]),
        rcond=None,
    )[0]
    weights, constant = _Centred(B, w if weighted else None).solve(y, 0.05)
    assert constant == pytest.approx(expected[0])
    np.testing.assert_allclose(weights, expected[1:], atol=1e-8)
    assert fit.constant(fit.rows(points), w if weighted else None) @ y == pytest.approx(constant)


@pytest.mark.parametrize("P", [12, 90])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_likelihood_against_its_definition(P, weighted, rng):
    encoding, frames = features(2, 0.6)
    points = rng.random((P, 2))
    w = rng.random(P) + 0.1 if weighted else None
    values = (hills(points) + 0.1 * rng.standard_normal(P))[None]
    found = _likeliest_ridge(points, values[0], w, encoding, frames, (-12.0, 1.0))
    # The restricted likelihood is that of the values in an orthonormal basis of the complement of
    # the constant.
    root = np.ones(P) if w is None else np.sqrt(w)
    B = found.rows(points) * root[:, None]
    basis = np.linalg.qr(np.column_stack([root, np.eye(P)[:, 1:]]))[0][:, 1:]

    def likelihood(ridge):
        covariance = basis.T @ (B @ B.T + ridge * np.eye(P)) @ basis
        t = basis.T @ (values[0] * root)
        return -0.5 * (
            (P - 1) * math.log(t @ np.linalg.solve(covariance, t))
            + np.linalg.slogdet(covariance)[1]
        )

    assert found.likelihood == pytest.approx(likelihood(found.ridge), abs=1e-5)
    assert all(
        likelihood(found.ridge * factor) < found.likelihood + 1e-6
        for factor in (0.1, 0.5, 2.0, 10.0)
    )


def test_their_kernel_is_the_papers_similarity():
    width = 0.1
    encoding, frames = features(1, width)
    x = np.linspace(0, 1, 60)[:, None]
    B = GaussianFit(encoding, frames, 1.0, 0.0).rows(x)
    expected = math.sqrt(math.pi) * width * np.exp(-((x - x.T) ** 2) / (4 * width**2)) / (1 / 10)
    np.testing.assert_allclose(B @ B.T, expected, atol=2e-3 * expected.max())


@pytest.mark.parametrize("width", [0.05, 0.2, 1.0, 2.0])
def test_weights_of_a_constant(width):
    encoding, frames = features(1, width)
    (weights,), error = GaussianFit(encoding, frames, 1.0, 0.0).of_constant
    x = np.linspace(0, 1, 333)
    found = np.abs(np.asarray(encoding.embedders[0](frames[0].unit(x))) @ weights - 1).max()
    assert found < 1e-7
    assert found < 2 * error


def test_values_far_from_zero_are_left_to_what_is_exact(rng):
    points, at = rng.random((300, 2)), rng.random((200, 2)) * 0.9 + 0.05
    for offset in (0.0, 1e3, 1e6):
        error = (
            kf.fit_points(points, hills(points) + offset, domain=[(0, 1)] * 2)(at)
            - hills(at)
            - offset
        )
        assert np.abs(error).max() < 5e-3


def test_weights_that_leave_nothing_to_tell(rng):
    points = rng.random((60, 2))
    alone = np.zeros(60)
    alone[5] = 1.0
    assert np.isfinite(kf.fit_points(points, hills(points), weights=alone)(points)).all()
    points[:20] = points[0]  # all points with a weight are at one position
    place = (np.arange(60) < 20).astype(float)
    found = kf.fit_points(points, hills(points) + rng.standard_normal(60), weights=place)(points)
    assert np.abs(found).max() < 10
    # points of weight 0 are ignored
    some = np.where(np.arange(60) < 30, 1.0, 0.0)
    y = hills(rng.random((60, 2)))
    box = [(0.0, 1.0)] * 2
    points = rng.random((60, 2))
    one = likely_gaussians(Trial(points, y[None], some, PointOptions()), box, GaussianSettings())
    other = likely_gaussians(
        Trial(points[:30], y[None, :30], None, PointOptions()), box, GaussianSettings()
    )
    assert one.encoding == other.encoding
    assert one.ridge == pytest.approx(other.ridge)


def test_a_cluster_and_a_few_far_away(rng):
    for spread in (1e-2, 1e-5, 1e-7):
        points = np.concatenate([0.5 + spread * rng.random((60, 2)), [[0.0, 0.0], [1.0, 1.0]]])
        assert np.isfinite(kf.fit_points(points, rng.standard_normal(62))(points)).all()


def test_held_out_is_what_fits_without_those_points_say(rng):
    points = rng.random((40, 2))
    values = hills(points)[None]
    trial = Trial(points, values, None, PointOptions())
    fit = likely_gaussians(trial, [(0.0, 1.0)] * 2, GaussianSettings())
    total = 0.0
    for held in trial.folds:
        B = np.column_stack([np.ones(40), fit.rows(points)])
        ridge = math.sqrt(fit.ridge) * np.eye(B.shape[1])[1:]
        stacked = (
            np.vstack([B[~held], ridge]),
            np.concatenate([values[0, ~held], np.zeros(len(ridge))]),
        )
        total += np.sum((B[held] @ np.linalg.lstsq(*stacked, rcond=None)[0] - values[0, held]) ** 2)
    assert fit.held_out(trial) == pytest.approx(total / 40 / np.var(values), rel=1e-3)


# The choice of fit_points
# ---------------------------------------------------------------------------------


def is_gaussian(field):
    return all(isinstance(emb, kf.Gaussian) for emb in field.encoding.embedders)


@pytest.mark.parametrize(("D", "noise"), [(1, 0.0), (1, 0.1), (2, 0.0), (2, 0.1), (3, 0.0)])
def test_smooth_functions_get_gaussians(D, noise, rng):
    points, at = rng.random((150, D)), rng.random((500, D))
    field = kf.fit_points(
        points, hills(points) + noise * rng.standard_normal(150), domain=[(0, 1)] * D
    )
    assert is_gaussian(field)
    assert field.report.ridge > 0
    assert "likelihood" in field.report.chosen_by
    assert "* Gaussians" in str(field.report)
    error = math.sqrt(np.mean((field(at) - hills(at)) ** 2))
    assert error < (0.08 if noise else 2e-3)


def test_rough_values_do_not():
    fields = []
    for seed in range(4):
        points = np.random.default_rng(seed).random((300, 1))
        fields.append(kf.fit_points(points, np.floor(6 * points[:, 0]) % 2))
    assert sum(map(is_gaussian, fields)) <= 1  # a choice by held-out points can be wrong


def test_what_is_given_leaves_no_room_for_them(rng):
    points = rng.random((80, 2))
    assert not is_gaussian(kf.fit_points(points, hills(points), roughness=(0.0, 1e-4)))
    assert not is_gaussian(kf.fit_points(points, hills(points), rows="linear"))


def test_few_points_and_many(rng):
    points = rng.random((9, 2))
    assert not is_gaussian(kf.fit_points(points, hills(points)))
    many = rng.random((6001, 2))
    assert (
        likely_gaussians(
            Trial(many, hills(many)[None], None, PointOptions()),
            [(0.0, 1.0)] * 2,
            GaussianSettings(),
        )
        is None
    )
    wide = rng.random((20, 8))  # too many features in 8 dimensions
    assert (
        likely_gaussians(
            Trial(wide, hills(wide)[None], None, PointOptions()),
            [(0.0, 1.0)] * 8,
            GaussianSettings(),
        )
        is None
    )


def test_axes_that_matter_less_get_wider(rng):
    points = rng.random((200, 2))
    values = np.sin(9 * points[:, 0]) + 0.3 * points[:, 1] + 0.05 * rng.standard_normal(200)
    field = kf.fit_points(points, values)
    assert is_gaussian(field)
    first, second = (
        emb.width * frame.length
        for emb, frame in zip(field.encoding.embedders, field.frames, strict=True)
    )
    assert second > 1.9 * first


def test_units_of_axes_and_values_do_not_matter(rng):
    points = rng.random((100, 2))
    values = hills(points) + 0.1 * rng.standard_normal(100)
    plain = kf.fit_points(points, values)
    scaled = kf.fit_points(points * [1000, 0.01] + [5, 7], 1e6 * values + 1e8)
    assert is_gaussian(plain)
    assert is_gaussian(scaled)
    at = rng.random((50, 2)) * 0.8 + 0.1
    np.testing.assert_allclose(scaled(at * [1000, 0.01] + [5, 7]), 1e6 * plain(at) + 1e8, atol=2e3)


def test_channels_complex_values_weights_and_float32(rng):
    points = rng.random((90, 2))
    values = hills(points)
    both = np.stack([values, 2 * values + 5], axis=1)
    at = rng.random((30, 2)) * 0.9 + 0.05
    field = kf.fit_points(points, both)
    assert is_gaussian(field)
    np.testing.assert_allclose(field(at)[:, 1], 2 * field(at)[:, 0] + 5, atol=1e-6)
    turned = kf.fit_points(points, values + 1j * (2 * values + 5))
    np.testing.assert_allclose(turned(at), field(at) @ [1, 1j], atol=1e-6)
    small = kf.fit_points(points, values.astype(np.float32))
    assert small.dtype == np.float32
    np.testing.assert_allclose(small(at), hills(at), atol=0.02)
    # a point of weight 4 is equal to four points
    weights = np.where(np.arange(90) < 20, 4.0, 1.0)
    repeated = np.concatenate([np.arange(90), *[np.arange(20)] * 3])
    fit = GaussianFit(*features(2), 0.01, 0.0)
    heavy = fit.constant(fit.rows(points), weights) @ values
    assert heavy == pytest.approx(fit.constant(fit.rows(points[repeated]), None) @ values[repeated])


def test_refit_and_save(tmp_path, rng):
    points, at = rng.random((120, 2)), rng.random((400, 2)) * 0.9 + 0.05
    values = hills(points) + 0.1 * rng.standard_normal(120)
    field = kf.fit_points(points, values, domain=[(0, 1)] * 2)
    assert is_gaussian(field)
    np.testing.assert_allclose(field.refit(3 * values - 7)(at), 3 * field(at) - 7, atol=1e-6)
    field.save(tmp_path / "one.field")
    np.testing.assert_array_equal(kf.load(tmp_path / "one.field")(at), field(at))
    assert 5 < field.report.degrees_of_freedom < 60
    assert field.report.residual == pytest.approx(0.1, rel=0.3)


def test_standard_errors_hold_the_truth():
    inside = []
    for seed in range(8):
        own = np.random.default_rng(seed)
        points, at = own.random((100, 2)), own.random((300, 2)) * 0.9 + 0.05
        field = kf.fit_points(
            points, hills(points) + 0.1 * own.standard_normal(100), domain=[(0, 1)] * 2
        )
        assert is_gaussian(field)
        inside.append(np.mean(np.abs(field(at) - hills(at)) < 2 * field.standard_error(at)))
    assert 0.88 < np.mean(inside) < 0.99


def test_points_that_coincide(rng):
    points = np.repeat(rng.random((30, 2)), 2, axis=0)
    values = hills(points) + 0.1 * rng.standard_normal(60)
    field = kf.fit_points(points, values)
    assert is_gaussian(field)
    assert np.abs(field(points) - hills(points)).max() < 0.3


def test_the_constant_is_a_degree_of_freedom(rng):
    """A fit of pure noise is its mean, with the standard error sigma / sqrt(P)."""
    points = rng.random((40, 2))
    fields = [
        kf.fit_points(points, 5 + rng.standard_normal(40), domain=[(0, 1)] * 2) for _ in range(6)
    ]
    gaussian = list(filter(is_gaussian, fields))
    assert len(gaussian) > 2
    for field in gaussian:
        assert field.standard_error(points, noise=1.0).min() > 0.99 / math.sqrt(40)
    for field in gaussian[:1]:
        values = field(points)
        kept = field.refit(values)(points)
        changes = [field.refit(values + step)(points) - kept for step in np.eye(40)]
        assert field.report.degrees_of_freedom == pytest.approx(np.trace(changes), rel=0.02)


def test_the_same_values_give_the_same_field(rng):
    points = rng.random((100, 2))
    one, other = (kf.fit_points(points, hills(points)).weights for _ in range(2))
    np.testing.assert_array_equal(one, other)
