"""Huber's loss without a grid: the dual form and factored weights of values with outliers."""

import math
import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.dual.similarity import Similarity
from kronfield.solvers.dual.systems import Direct, Inducing

K = 1.345
NEW = np.random.default_rng(99).random((1000, 5))


def function(x):
    return np.sin(3 * x[:, 0] + x[:, 1]) * np.cos(2 * x[:, 2]) + x[:, 3] * x[:, 1]


def case(P, seed, part=0.02, noise=0.05):
    """Return points, clean values, values with gross outliers, and where these are."""
    rng = np.random.default_rng(seed)
    points = rng.random((P, 5))
    clean = function(points) + noise * rng.standard_normal(P)
    bad = rng.random(P) < part
    wrong = clean + rng.choice([-1, 1], P) * rng.uniform(1.5, 5, P)
    return points, clean, np.where(bad, wrong, clean), bad


def rms(field):
    return float(np.sqrt(np.mean((field(NEW, outside="clamp") - function(NEW)) ** 2)))


INDUCING = changed(DEFAULT, "dual", "direct_points", 200)
WAYS = {
    "dual": (300, {"form": "dual"}),
    "inducing points": (500, {"form": "dual", "settings": INDUCING}),
    "factored": (1500, {"form": "factored"}),
    "either": (500, {"settings": INDUCING}),
}


@pytest.mark.parametrize("way", WAYS)
def test_two_percent_of_gross_errors_hardly_change_the_fit(way):
    """Over draws, since a fit of clean values has the luck of its points too."""
    P, options = WAYS[way]
    ratios, untreated = [], []
    for seed in range(3):
        points, clean, values, bad = case(P, seed)
        expected = rms(kf.fit_points(points, clean, **options))
        field = kf.fit_points(points, values, loss="huber", **options)
        ratios.append(rms(field) / expected)
        untreated.append(rms(kf.fit_points(points, values, **options)) / expected)
        assert bad.sum() <= field.report.robust.rejected <= bad.sum() + 0.01 * P
    assert np.exp(np.mean(np.log(ratios))) < 1.25
    assert max(ratios) < 1.5
    assert min(untreated) > 1.5


def test_clean_values_lose_little():
    for seed in range(3):
        points, clean, _, _ = case(300, seed)
        field = kf.fit_points(points, clean, loss="huber")
        assert rms(field) < 1.15 * rms(kf.fit_points(points, clean))
        assert field.report.robust.rejected <= 1


def test_the_dual_form_minimises_hubers_loss():
    """At the minimum of sum rho(r / s) s^2 + ridge a'K a, ridge a is the influence of r."""
    points, _, values, _ = case(250, 0, part=0.0, noise=0.2)
    field = kf.fit_points(points, values, loss="huber", domain=[(0, 1)] * 5)
    robust = field.report.robust
    assert robust.rejected == 0
    assert robust.down_weighted > 20
    away, s = values - field(points), robust.scale[0]
    influence = np.clip(away, -K * s, K * s)
    # the errors' system has the ridge over the mean slope
    slope = np.mean(np.abs(away) <= K * s)
    ridge = field._system.ridge * slope
    np.testing.assert_allclose(ridge * field._planes[0], influence, atol=0.02 * s)
    assert abs(influence.mean()) < 0.02 * s  # the constant is left alone
    assert s == pytest.approx(0.2, rel=0.2)


@pytest.mark.parametrize("kind", ["direct", "inducing"])
def test_deviations_are_those_of_points_left_out(kind):
    rng = np.random.default_rng(0)
    points, noise = rng.random((60, 3)), rng.uniform(0.5, 2.0, 60)
    similarity, ridge, columns = Similarity("once", (0.5, 0.7, 2.0)), 0.05, np.ones((1, 60))
    values = np.sin(4 * points[:, 0]) + 0.1 * rng.standard_normal(60)
    if kind == "direct":
        system = Direct(similarity, ridge, points, noise, columns)
        solution = system.solve(values[None])
        residual = ridge * noise * solution.coefficients[0]
    else:  # all points are inducing points, so that nothing is left out
        system, solution = Inducing.fitted(
            similarity, ridge, points, points, values[None], noise, columns
        )
        fitted = solution.coefficients @ similarity.between(points, points)
        residual = values - fitted[0] - solution.trend[0, 0]
    found = residual / system.own_deviations(points, noise)
    for i in range(0, 60, 7):
        kept = np.arange(60) != i
        other = Direct(similarity, ridge, points[kept], noise[kept], columns[:, kept])
        rest = other.solve(values[None, kept])
        at = points[i : i + 1]
        predicted = rest.coefficients[0] @ similarity.between(points[kept], at)[:, 0]
        variance = other.variance(at, columns[:, :1])[0] + ridge * noise[i]
        expected = (values[i] - predicted - rest.trend[0, 0]) / math.sqrt(variance)
        # with inducing points, the leverage of the constant does not count
        assert found[i] == pytest.approx(expected, rel=1e-6 if kind == "direct" else 0.1)


@pytest.mark.parametrize("form", ["dual", "factored"])
def test_standard_errors_and_journeys(form):
    points, _, values, bad = case(800, 1, noise=0.1)
    field = kf.fit_points(points, values, form=form, loss="huber", domain=[(0, 1)] * 5)
    away = np.abs(field(NEW) - function(NEW))
    assert 0.85 < np.mean(away < 2 * field.standard_error(NEW)) <= 1
    clean = kf.fit_points(points[~bad], values[~bad], form=form, domain=[(0, 1)] * 5)
    ratio = np.median(field.standard_error(NEW) / clean.standard_error(NEW))
    assert 0.8 < ratio < 1.25
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(field))(NEW), field(NEW))
    about = field.report.robust
    assert "Huber's loss" in str(field.report)
    assert about.scale[0] == pytest.approx(0.1, rel=0.3)
    assert {one.weight for one in about.largest} == {0.0}
    assert "rejected" in str(dict(field.report.summary())["outliers"])


def test_refit_weighs_anew(tmp_path):
    points, clean, values, _ = case(300, 2)
    field = kf.fit_points(points, values, loss="huber")
    again = field.refit(clean)
    assert again.report.robust.rejected <= 1
    assert rms(again) < 1.1 * rms(field)
    again.save(tmp_path / "it.field")
    np.testing.assert_allclose(kf.load(tmp_path / "it.field")(points), again(points), atol=1e-9)


def test_weights_units_and_channels():
    points, clean, values, bad = case(250, 3)
    one = kf.fit_points(points, values, loss="huber")
    # a factor of all values or weights changes nothing
    many = kf.fit_points(points, 2.0**30 * values, weights=np.full(250, 4.0), loss="huber")
    np.testing.assert_allclose(many(points), 2.0**30 * one(points), atol=2e-3 * 2.0**30)
    ratio = many.report.robust.scale[0] / one.report.robust.scale[0]
    assert ratio == pytest.approx(2.0**31, rel=1e-2)
    # points of weight 0 are as good as left out
    weights = np.ones(250)
    weights[:20] = 0.0
    other = kf.fit_points(points, values, weights=weights, loss="huber")
    box = [(float(x.min()), float(x.max())) for x in points.T]
    rest = kf.fit_points(points[20:], values[20:], loss="huber", domain=box)
    np.testing.assert_allclose(other(points), rest(points), atol=2e-3)
    # an outlier of one channel is one of all
    both = kf.fit_points(points, np.stack([values, clean], axis=1), loss="huber")
    assert both.report.robust.rejected >= bad.sum()
    assert rms(kf.fit_points(points, clean)) * 1.5 > np.sqrt(
        np.mean((both(NEW, outside="clamp")[:, 0] - function(NEW)) ** 2)
    )


def test_a_trend_is_left_alone():
    points, _, values, bad = case(250, 4)
    plane = 100 * points[:, 0]
    field = kf.fit_points(points, values + plane, trend=1, loss="huber")
    assert bad.sum() <= field.report.robust.rejected <= bad.sum() + 3
    new = NEW[:200]
    away = field(new, outside="clamp") - 100 * new[:, 0] - function(new)
    inside = np.all((new > points.min(axis=0)) & (new < points.max(axis=0)), axis=1)
    assert np.sqrt(np.mean(away[inside] ** 2)) < 0.06


def test_the_report_of_squares_says_that_there_are_outliers():
    points, clean, values, _ = case(300, 5)
    for form in ("dual", "factored"):
        assert "loss='huber'" in str(kf.fit_points(points, values, form=form).report)
        assert "loss='huber'" not in str(kf.fit_points(points, clean, form=form).report)


INSIDE = 0.02 + 0.96 * NEW[:100]


@pytest.mark.parametrize("way", ["dual", "inducing points", "factored"])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_unit_of_the_weights_does_not_matter(way, loss):
    points, _, values, _ = case(250 if way == "dual" else 400, 0)
    weights = np.random.default_rng(3).uniform(0.2, 3.0, len(points))

    def fitted(factor):
        box = [(0, 1)] * 5
        kept = weights * factor
        return kf.fit_points(points, values, weights=kept, loss=loss, domain=box, **WAYS[way][1])

    one = fitted(1.0)
    for factor in (4.0, 1e-9, 1e-6, 1e9):
        other = fitted(factor)
        np.testing.assert_allclose(other(INSIDE), one(INSIDE), atol=1e-6)
        errors = one.standard_error(INSIDE)
        np.testing.assert_allclose(other.standard_error(INSIDE), errors, rtol=1e-6)
        if loss == "huber":
            scales = [field.report.robust.scale[0] for field in (other, one)]
            assert scales[0] / math.sqrt(factor) == pytest.approx(scales[1], rel=1e-6)
        elif way != "factored":
            ridges = [field.report.candidates[0].parameters["ridge"] for field in (other, one)]
            assert ridges[0] / factor == pytest.approx(ridges[1], rel=1e-6)
        if way != "factored":
            # the noise is that of a point of weight 1 of the user
            known = other.standard_error(INSIDE, noise=0.1 * math.sqrt(factor))
            np.testing.assert_allclose(known, one.standard_error(INSIDE, noise=0.1), rtol=1e-6)


@pytest.mark.parametrize("form", ["dual", "factored"])
def test_standard_errors_of_huber_are_those_of_equal_weights(form):
    """Weights of 4 for all points say nothing: neither do they change standard errors."""
    points, _, values, _ = case(400, 0)
    plain = kf.fit_points(points, values, loss="huber", form=form, domain=[(0, 1)] * 5)
    four = np.full(400, 4.0)
    equal = kf.fit_points(
        points, values, weights=four, loss="huber", form=form, domain=[(0, 1)] * 5
    )
    np.testing.assert_allclose(
        equal.standard_error(INSIDE), plain.standard_error(INSIDE), rtol=1e-6
    )


@pytest.mark.parametrize("way", ["dual", "inducing points", "factored"])
def test_the_size_of_the_values_does_not_matter(way):
    options = WAYS[way][1]
    points, _, values, _ = case(400, 0)
    one = kf.fit_points(points, values, loss="huber", domain=[(0, 1)] * 5, **options)
    assert one.report.robust.rejected >= 6
    for size in (1e-100, 1e-80, 1e80, 1e150):
        other = kf.fit_points(points, values * size, loss="huber", domain=[(0, 1)] * 5, **options)
        about, expected = other.report.robust, one.report.robust
        assert about.rejected == expected.rejected
        assert about.down_weighted == expected.down_weighted
        assert about.scale[0] / size == pytest.approx(expected.scale[0], rel=1e-9)
        for a, b in zip(about.largest, expected.largest, strict=True):
            assert a.position == b.position
            assert a.residual[0] / size == pytest.approx(b.residual[0], rel=1e-9)
        np.testing.assert_allclose(other(INSIDE) / size, one(INSIDE), atol=1e-9)
        errors = one.standard_error(INSIDE)
        np.testing.assert_allclose(other.standard_error(INSIDE) / size, errors, rtol=1e-8)
        assert other.report.expected_error / size == pytest.approx(one.report.expected_error)
    again = other.refit(values)  # of another size than the values before
    assert again.report.robust.rejected == one.report.robust.rejected
    np.testing.assert_allclose(again(INSIDE), one(INSIDE), atol=1e-2)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("size", [1e-160, 1e160])
def test_standard_errors_of_values_whose_squares_overflow(loss, size, tmp_path):
    points, _, values, _ = case(250, 0)
    box = [(0, 1)] * 5
    one = kf.fit_points(points, values, loss=loss, form="dual", domain=box)
    other = kf.fit_points(points, values * size, loss=loss, form="dual", domain=box)
    errors = one.standard_error(INSIDE)
    np.testing.assert_allclose(other.standard_error(INSIDE) / size, errors, rtol=1e-6)
    other.save(tmp_path / "it.field")
    for field in (kf.load(tmp_path / "it.field"), pickle.loads(pickle.dumps(other))):
        found = field.standard_error(INSIDE)
        np.testing.assert_allclose(found, other.standard_error(INSIDE), rtol=1e-9)


def test_rounding_of_exact_values_is_no_outlier():
    points = np.random.default_rng(0).random((200, 5))
    plane = 1.0 + points @ [1.0, 2.0, 3.0, -1.0, 0.5]
    for factor in (1.0, 1e-7):
        for weights in (None, np.full(200, 1e6)):
            field = kf.fit_points(
                points, factor * plane, weights=weights, trend=1, loss="huber", form="dual"
            )
            about = field.report.robust
            assert (about.rejected, about.down_weighted, about.settled) == (0, 0, True)


@pytest.mark.parametrize("form", ["dual", "factored"])
def test_outliers_of_any_size_do_not_matter(form):
    points, clean, _, _ = case(400, 0)
    options = {"loss": "huber", "form": form, "domain": [(0, 1)] * 5}
    fields = []
    for size in (1e3, 1e20, 1e60, 1e140):
        values = clean.copy()
        values[7] = size
        fields.append(kf.fit_points(points, values, **options))
        assert fields[-1].report.robust.largest[0].residual[0] == pytest.approx(size, rel=1e-2)
    for field in fields[1:]:
        np.testing.assert_allclose(field(INSIDE), fields[0](INSIDE), atol=1e-9)
        scale = fields[0].report.robust.scale[0]
        assert field.report.robust.scale[0] == pytest.approx(scale, rel=1e-9)
    # a value of weight 0 is as good as left out
    weights, values = np.ones(400), 1e-80 * clean
    weights[7], values[7] = 0.0, 1e250
    left = kf.fit_points(points, values, weights=weights, **options)
    np.testing.assert_allclose(left(INSIDE) * 1e80, fields[0](INSIDE), atol=0.02)
