"""Coverage of two-sigma bands at held-out points."""

import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting.calibration import Coverage
from kronfield.fitting.settings import DEFAULT


def normal(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((count, 2)), rng.standard_normal((count, 1))


def test_normal_errors_are_covered():
    points, z = normal(2000)
    found = Coverage.of(points, 3 * z, np.full_like(z, 3.0), DEFAULT.points)
    assert found.inside == pytest.approx(0.9545, abs=0.015)
    assert found.factor == pytest.approx(1, abs=0.05)
    assert found.failing is None
    assert found.half_width == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (lambda p, rng: 2.0, "expect smaller"),
        (lambda p, rng: 0.4, "expect larger"),
        (lambda p, rng: np.sqrt(3 / rng.chisquare(3, (2000, 1))) * 1.5, "heavier tails"),
        (lambda p, rng: np.where(p[:, :1] < 0.3, 4.0, 0.5), "not the same everywhere"),
    ],
)
def test_the_assumption_that_fails_is_named(factor, why):
    points, z = normal(2000)
    errors = z * factor(points, np.random.default_rng(1))
    found = Coverage.of(points, errors, np.ones_like(z), DEFAULT.points)
    assert why in found.failing
    assert why in str(found)
    assert found.calibrated == pytest.approx(0.9545, abs=0.015)  # the factor mends it


def test_a_report_states_the_coverage_once_it_is_measured():
    points, z = normal(600)
    field = kf.fit_points(points, np.sin(6 * points[:, 0]) + 0.1 * z[:, 0])
    assert "two-sigma" not in str(field.report)
    found = field.report.coverage
    assert 0.85 < found.inside <= 1
    assert "two-sigma bands hold" in str(field.report)
    assert field.report.to_dict()["coverage"]["held"] == found.held == 420
    assert pickle.loads(pickle.dumps(field.report)).coverage == found


def test_coverage_with_weights_and_units_of_values():
    points, z = normal(600)
    weights = np.random.default_rng(2).uniform(0.25, 4.0, 600)
    values = np.sin(6 * points[:, 0]) + 0.1 * z[:, 0] / np.sqrt(weights)
    one = kf.fit_points(points, values, weights=weights).report.coverage
    other = kf.fit_points(points, 1e6 * values, weights=weights).report.coverage
    assert one.inside == other.inside > 0.85
    assert other.half_width == pytest.approx(1e6 * one.half_width, rel=1e-4)


def test_too_few_points_for_coverage():
    field = kf.fit_points(np.linspace(0, 1, 12)[:, None], np.arange(12.0) % 3)
    with pytest.raises(kf.InputError, match="coverage"):
        _ = field.report.coverage


def test_coverage_is_saved_with_the_field(tmp_path):
    points, z = normal(600)
    field = kf.fit_points(points, np.sin(6 * points[:, 0]) + 0.1 * z[:, 0])
    field.save(tmp_path / "plain.field")
    assert "coverage" not in kf.load(tmp_path / "plain.field").info
    found = field.report.coverage
    field.save(tmp_path / "a.field")
    again = kf.load(tmp_path / "a.field")
    assert again.info["coverage"]["factor"] == found.factor
    assert again.info["coverage"]["failing"] == found.failing
    again.save(tmp_path / "b.field")  # it stays
    assert kf.load(tmp_path / "b.field").info["coverage"] == again.info["coverage"]


def test_a_line_through_its_values_has_true_bands():
    """Its degrees of freedom are as many as its points: those held out must not count."""
    rng = np.random.default_rng(0)
    x = np.arange(400.0)
    walk = np.cumsum(rng.standard_normal(400))
    field = kf.fit_points(x[:, None], walk)
    assert field.report.degrees_of_freedom > 360
    assert 0.85 <= field.report.coverage.inside <= 1.0  # 40 values


def test_points_of_weight_0_do_not_lower_the_noise():
    rng = np.random.default_rng(0)
    points, noise = rng.random((300, 2)), 0.1 * rng.standard_normal(300)
    values, weights = np.sin(4 * points[:, 0]) + noise, np.r_[np.ones(200), np.zeros(100)]
    options = {"roughness": (0.0, 1e-5), "domain": [(0, 1), (0, 1)]}
    hats = kf.Triangle(12, 2 / 12)
    all_of_them = kf.fit_points(points, values, hats, weights=weights, **options)
    some = kf.fit_points(points[:200], values[:200], hats, **options)
    at = rng.random((20, 2))
    np.testing.assert_allclose(all_of_them.standard_error(at), some.standard_error(at), rtol=1e-6)
