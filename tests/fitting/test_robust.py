"""Huber's loss in `fit_points` and `fit`: dense references, outliers, standard errors, reports."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

import kronfield as kf
from kronfield.fitting import points as points_module, robust_many
from kronfield.fitting.robust import _trimmed, huber_weights, remark, suspects
from kronfield.fitting.robust_many import RobustFit
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.points.normal import Penalty

K = 1.345


def wavy(points):
    return np.sin(6 * points[:, 0]) * np.cos(5 * points[:, -1]) + points[:, 0]


def spoiled(P, noise=0.02, part=0.02, seed=0, D=2):
    """Return points, clean and spoiled values, and where the outliers are."""
    rng = np.random.default_rng(seed)
    points = rng.random((P, D))
    clean = wavy(points) + noise * rng.standard_normal(P)
    bad = rng.random(P) < part
    return (
        points,
        clean,
        np.where(bad, clean + rng.choice([-1, 1], P) * rng.uniform(3, 9, P), clean),
        bad,
    )


def rms(field, seed=99, D=2):
    points = np.random.default_rng(seed).random((3000, D))
    return float(np.sqrt(np.mean((field(points, outside="clamp") - wavy(points)) ** 2)))


# References
# ------------------------------------------------------------------------------------------


def test_a_given_penalty_gives_the_minimum_of_hubers_loss():
    """Against a general minimiser of the loss, with the dense matrices of features and penalty."""
    points, _, values, _ = spoiled(150, 0.05, 0.05)
    encoding = kf.Kronecker(kf.Triangle(6, 2 / 6), kf.Triangle(5, 2 / 5))
    box = [(0, 1), (0, 1)]
    options = {"ridge": 0.1, "roughness": (1e-3, 1e-4), "tolerance": 1e-10}
    field = kf.fit_points(points, values, encoding, domain=box, loss="huber", **options)
    B = encoding(points)
    equations = field._uncertainty.equations
    assert equations.total == 150
    penalty = equations.differences(Penalty(0.1, (1e-3, 1e-4)))
    n = B.shape[1]
    matrix = penalty.apply(np.eye(n).reshape(n, *encoding.shape)).reshape(n, n)
    scale = field.report.robust.scale[0]
    # the scale belongs to the residuals of the fit
    away = values - field(points)
    assert scale == pytest.approx(np.median(np.abs(away)) / 0.6745, rel=1e-2)

    def loss(x):
        u = (values - B @ x) / scale
        rho = np.where(np.abs(u) < K, u**2 / 2, K * np.abs(u) - K**2 / 2)
        slope = B.T @ (np.clip(u, -K, K) * scale)
        return scale**2 * rho.sum() + x @ matrix @ x / 2, matrix @ x - slope

    found = minimize(loss, np.zeros(n), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(B @ found.x, field(points), atol=2e-3 * scale)


PATHS = {
    "banded Cholesky": (1, kf.Triangle(40, 2 / 40), {"roughness": (0.0, 1e-5)}),
    "factorisation": (2, kf.Triangle(12, 2 / 12), {"roughness": (1e-4, 1e-5)}),
    "factorisation, dense": (2, kf.Gaussian(8, 0.2), {"ridge": 1e-2}),
    "conjugate gradients": (2, kf.Triangle(60, 2 / 60), {"roughness": (1e-2, 1e-2)}),
    "in the eigenbasis": (2, kf.RandomFourier(8, 1.0, seed=1), {"ridge": 1.0}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_every_solver_reaches_the_fixed_point(path, weighted):
    """The fit is the weighted least squares fit with the weights of its own residuals."""
    D, encoding, penalty = PATHS[path]
    points, _, values, _ = spoiled(1500, 0.05, 0.05, D=D)
    own = np.random.default_rng(3).uniform(0.5, 2, 1500) if weighted else np.ones(1500)
    options = {"domain": [(0, 1)] * D, "tolerance": 1e-9}
    field = kf.fit_points(
        points,
        values,
        encoding,
        loss="huber",
        weights=own if weighted else None,
        **penalty,
        **options,
    )
    assert path.split(",")[0] in field.report.method
    sizes = np.abs(values - field(points)) * np.sqrt(own)
    weights = own * np.minimum(1, K * np.median(sizes) / 0.6745 / sizes)
    if "roughness" in penalty:  # it is relative to the sum of the weights
        share = own.sum() / weights.sum()
        penalty = {"roughness": tuple(share * one for one in penalty["roughness"])}
    again = kf.fit_points(points, values, encoding, weights=weights, **penalty, **options)
    np.testing.assert_allclose(field(points), again(points), atol=1e-3)
    assert field.report.robust.settled


# Outliers
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("P", "noise", "D"), [(1000, 0.02, 2), (700, 0.0, 2), (2000, 0.1, 2), (300, 0.02, 1)]
)
def test_two_percent_of_gross_errors_hardly_change_the_fit(P, noise, D):
    points, clean, values, bad = spoiled(P, noise, D=D)
    expected = rms(kf.fit_points(points, clean), D=D)
    field = kf.fit_points(points, values, loss="huber")
    assert rms(field, D=D) < 1.25 * expected
    assert rms(kf.fit_points(points, values), D=D) > 3 * expected
    about = field.report.robust
    assert bad.sum() <= about.rejected + about.down_weighted
    assert about.scale[0] < max(2 * noise, 1e-3)


def test_clean_data_cost_little():
    points, clean, _, _ = spoiled(1000)
    field = kf.fit_points(points, clean, loss="huber")
    assert rms(field) < 1.1 * rms(kf.fit_points(points, clean))
    assert field.report.robust.rejected == 0


def test_channels_share_the_weight_of_a_point():
    points, _, values, bad = spoiled(800)
    both = np.stack([values, wavy(points)], axis=1)
    field = kf.fit_points(points, both, loss="huber")
    assert field.report.robust.rejected == bad.sum()
    error = field(points) - wavy(points)[:, None]
    assert np.sqrt(np.mean(error**2)) < 0.05
    turned = kf.fit_points(points, values + 1j * wavy(points), loss="huber")
    np.testing.assert_allclose(turned(points).real, field(points)[:, 0], atol=0.02)


@pytest.mark.parametrize("masked", [False, True])
def test_grids_have_it_too(masked):
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(0, 1, 40), np.linspace(0, 1, 50), indexing="ij")
    truth = np.sin(6 * x) * np.cos(5 * y)
    values = truth + 0.02 * rng.standard_normal(truth.shape)
    bad = rng.random(truth.shape) < 0.02
    values[bad] += 5
    mask = rng.random(truth.shape) < 0.2 if masked else None
    field = kf.fit(values, mask=mask, loss="huber")
    assert np.sqrt(np.mean((field.on_grid() - truth) ** 2)) < 0.02
    assert field.report.robust.rejected >= (bad & ~mask if masked else bad).sum()
    with pytest.raises(kf.InputError, match="loss"):
        kf.fit(values, loss="huber", noise=0.1)


def test_points_beside_a_jump_are_not_suspected():
    points = np.random.default_rng(0).random((2000, 2))
    values = np.floor(3 * points[:, 0])[None]
    values[0, :5] += 10
    found = suspects(points, values, None, (1.0, 1.0), DEFAULT.robust)
    assert found[:5].all()
    assert found.sum() < 15


def test_refit_weighs_anew():
    points, clean, values, _ = spoiled(600)
    field = kf.fit_points(points, values, loss="huber")
    again = field.refit(clean)
    assert again.report.robust.rejected == 0
    np.testing.assert_allclose(again(points), field(points), atol=0.03)


def test_results_do_not_depend_on_the_units_of_values():
    points, _, values, _ = spoiled(500)
    one, other = (kf.fit_points(points, c * values, loss="huber") for c in (1.0, 2.0**40))
    np.testing.assert_allclose(other(points), 2.0**40 * one(points), rtol=1e-6, atol=1e6)


def test_few_points_and_equal_values():
    for values in (np.ones(3), np.ones(50), np.r_[np.zeros(49), 1.0]):
        points = np.random.default_rng(1).random((len(values), 2))
        assert np.isfinite(kf.fit_points(points, values, loss="huber")(points)).all()


# Standard errors and reports
# ------------------------------------------------------------------------------------------


def test_standard_errors_are_those_of_a_simulation():
    """Noise with 10 % of outliers: the spread of the fits over many draws is the standard error."""
    rng = np.random.default_rng(0)
    x, at = np.linspace(0, 1, 400)[:, None], np.linspace(0.05, 0.95, 40)[:, None]
    fits, errors, squared = [], [], []
    for _ in range(60):
        noise = rng.standard_normal(400) * np.where(rng.random(400) < 0.1, 8.0, 1.0)
        options = {"domain": [(0, 1)], "roughness": (0.0, 1e-9)}
        field = kf.fit_points(x, noise, kf.Triangle(10, 2 / 10), loss="huber", **options)
        fits.append(field(at))
        errors.append(field.standard_error(at))
        squared.append(kf.fit_points(x, noise, kf.Triangle(10, 2 / 10), **options)(at))
    true = np.sqrt(np.mean(np.square(fits)))
    assert np.mean(errors) == pytest.approx(true, rel=0.1)
    assert np.sqrt(np.mean(np.square(squared))) > 1.5 * true


def test_the_report_says_how_many_and_where():
    points, _, values, bad = spoiled(500)
    field = kf.fit_points(points, values, loss="huber")
    about = field.report.robust
    largest = about.largest[0]
    index = int(np.argmin(np.sum((points - largest.position) ** 2, axis=1)))
    assert bad[index]
    assert largest.residual[0] == pytest.approx(values[index] - field(points)[index])
    assert largest.weight == 0.0
    text = str(field.report)
    assert f"{about.rejected} rejected" in text
    known = json.loads(json.dumps(field.report.to_dict()))["robust"]
    assert known["rejected"] == about.rejected
    assert pickle.loads(pickle.dumps(field)).report.robust == about
    assert kf.fit_points(points, values).report.robust is None
    # the residual is that of the points that the fit counts
    assert field.report.residual < 0.03


def test_wrong_losses_are_named():
    points, _, values, _ = spoiled(50)
    with pytest.raises(kf.InputError, match=r"loss.*'tukey'.*huber"):
        kf.fit_points(points, values, loss="tukey")
    seen = kf.Statistics(kf.Triangle(8, 2 / 8), domain=[(0, 1), (0, 1)])
    seen.add(points, values)
    with pytest.raises(kf.InputError, match="second time"):
        seen.solve(loss="huber")


# Decisions
# ------------------------------------------------------------------------------------------


def robust(name):
    return getattr(DEFAULT.robust, name)


def test_robust_either_side_constant():
    assert huber_weights(np.array([1.0, 2.0]), robust("constant"))[0] == 1
    assert huber_weights(np.array([1.0, 2.0]), robust("constant"))[1] == pytest.approx(
        0.67, abs=0.05
    )


def test_robust_either_side_neighbours_and_suspected():
    points, clean, _, _ = spoiled(2000, 0.0)
    values = clean.copy()
    values[:40] += 1.5
    found = suspects(points, values[None], None, (1.0, 1.0), DEFAULT.robust)
    assert found[:40].sum() >= 38
    assert not found[40:].any()


def test_robust_either_side_rejected():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(400))[:, None]
    values = 0.1 * rng.standard_normal(400)
    values[200] = 3.0
    assert kf.fit_points(x, values, loss="huber").report.robust.rejected == 1
    values[200] = 0.55  # suspected, but not far enough
    assert kf.fit_points(x, values, loss="huber").report.robust.rejected == 0


def outliers_in_a_plane():
    rng = np.random.default_rng(0)
    points = rng.random((600, 2))
    truth = np.sin(6 * points[:, 0]) * np.cos(5 * points[:, 1])
    values = truth + 0.05 * rng.standard_normal(600)
    values[rng.random(600) < 0.1] += 1
    return points, values, truth


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_a_factor_of_all_weights_changes_nothing(factor):
    points, values, _ = outliers_in_a_plane()
    plain = kf.fit_points(points, values, loss="huber")
    other = kf.fit_points(points, values, weights=np.full(600, factor), loss="huber")
    assert plain.report.robust.rejected == other.report.robust.rejected > 40
    np.testing.assert_allclose(other(points), plain(points), atol=1e-6)


def test_outliers_from_a_steep_trend_are_found():
    points, values, truth = outliers_in_a_plane()
    slope = 100 * points[:, 0]
    field = kf.fit_points(points, values + slope, loss="huber", trend=1)
    assert field.report.robust.rejected > 40
    assert np.sqrt(np.mean((field(points) - truth - slope) ** 2)) < 0.03


def test_outliers_of_one_channel_are_found():
    points, values, truth = outliers_in_a_plane()
    field = kf.fit_points(points, np.stack([values, points[:, 0]], axis=1), loss="huber")
    assert field.report.robust.rejected > 40
    assert np.sqrt(np.mean((field(points)[:, 0] - truth) ** 2)) < 0.04  # with squares 0.14


def test_points_without_weight_are_as_good_as_left_out():
    points, values, _ = outliers_in_a_plane()
    weights = np.arange(600) % 2.0
    wrong = np.where(weights > 0, values, 50.0)
    given = kf.fit_points(points, wrong, weights=weights, loss="huber")
    kept = weights > 0
    alone = kf.fit_points(points[kept], values[kept], loss="huber", domain=given.domain)
    assert given.report.robust.rejected == alone.report.robust.rejected
    inner = points[(points.min(axis=1) > 0.05) & (points.max(axis=1) < 0.95)]
    np.testing.assert_allclose(given(inner), alone(inner), atol=0.02)


@pytest.mark.parametrize(
    "values",
    [np.exp(np.arange(200) / 20), np.sin(np.arange(60) / 5), np.sin(np.arange(200) / 9)],
    ids=["exponential", "wave", "slow wave"],
)
def test_clean_samples_are_not_rejected(values):
    field = kf.fit(values, loss="huber")
    assert field.report.robust.rejected == 0
    assert np.abs(field.on_grid() - values).max() < 1e-3 * np.ptp(values)


@pytest.mark.parametrize("function", [np.square, np.exp, lambda x: x**3, lambda x: np.sin(6 * x)])
@pytest.mark.parametrize("count", [20, 50, 100, 1000])
def test_clean_lines_keep_every_sample(function, count):
    x = np.linspace(0, 1, count)
    even = kf.fit_points(x[:, None], function(x), loss="huber").report.robust
    assert (even.down_weighted, even.rejected) == (0, 0)
    if count > 20:  # of 20 uneven samples, one may be far from all others
        x = np.sort(np.random.default_rng(count).random(count))
        uneven = kf.fit_points(x[:, None], function(x), loss="huber").report.robust
        assert (uneven.down_weighted, uneven.rejected) == (0, 0)


def test_an_outlier_at_the_end_of_a_parabola_is_rejected():
    x = np.linspace(0, 1, 100)
    values = x**2
    values[0] = 0.1
    robust = kf.fit_points(x[:, None], values, loss="huber").report.robust
    assert robust.rejected == 1


def suspected(points, values):
    return suspects(
        points, np.asarray(values)[None], None, (1.0,) * points.shape[1], DEFAULT.robust
    )


def test_robust_either_side_fewest_neighbours():
    """The fifth point has four neighbours; of four points each has three."""
    values = np.array([0.0, 0.1, 0.0, 0.1, 50.0])
    assert suspected(np.arange(5.0)[:, None], values).tolist() == [False] * 4 + [True]
    assert not suspected(np.arange(4.0)[:, None], values[1:]).any()


def row_beside_noise(values):
    """Return whether the first of nine points in a row, far from noisy points, is a suspect."""
    rng = np.random.default_rng(0)
    row = np.stack([np.arange(9.0), 0.1 * rng.random(9)], axis=1)
    points = np.concatenate([row, 1000 + 20 * rng.random((400, 2))])
    return suspected(points, np.concatenate([values, rng.standard_normal(400)]))[0]


def test_robust_either_side_agreeing():
    """Two neighbours that are nearly as high are enough, one is not."""
    assert row_beside_noise([9.0, 0, 0, 0, 0, 0, 0, 0, 4.8])
    assert not row_beside_noise([9.0, 0, 0, 0, 0, 0, 0, 4.8, 4.8])


def test_robust_either_side_several():
    rng = np.random.default_rng(0)
    points = rng.random((1000, 2))
    steep = np.tanh(100 * (points[:, 0] - 0.5)) + 0.001 * rng.standard_normal(1000)
    assert suspected(points, steep).sum() <= 3  # 8 if neighbours that are suspects are left out
    bad = rng.random(1000) < 0.2
    noisy = np.where(bad, 5, 0.1) * rng.standard_normal(1000)
    assert (suspected(points, noisy) & bad).sum() > 120  # 64 if all neighbours are used


def test_robust_either_side_spare():
    """Paraboloids have 3 coefficients on a line, which 8 neighbours tell, but 6 in a plane."""
    x = np.linspace(0, 1, 60)
    assert not suspected(x[:, None], x**2).any()  # its end would be one
    rng = np.random.default_rng(0)
    points = rng.random((1000, 2))
    bad = rng.random(1000) < 0.2
    noisy = np.where(bad, 5, 0.1) * rng.standard_normal(1000)
    assert (suspected(points, noisy) & bad).sum() > 120  # 99 with paraboloids


def test_robust_either_side_remarked():
    errors = np.random.default_rng(0).standard_normal((1, 1000))
    assert remark(errors, DEFAULT.robust) == ""
    errors[0, 0] = 9.0
    assert remark(errors, DEFAULT.robust).startswith("1 of 1000 values")
    errors[0, 0] = 7.0
    assert remark(errors, DEFAULT.robust) == ""


def crowded(trimmed=None, factor=None, noise=0.0):
    """Return how many outliers of a step on a lattice are missed, and how many alarms are false."""
    decisions = DEFAULT.robust
    for name, value in (("trimmed", trimmed), ("trimmed_factor", factor)):
        if value is not None:
            decisions = changed(DEFAULT, "robust", name, value).robust
    missed, false = 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        axes = np.meshgrid(np.linspace(0, 1, 40), np.linspace(0, 1, 50), indexing="ij")
        points = np.stack(axes, axis=-1).reshape(-1, 2)
        values = np.tanh(20 * (points[:, 0] - 0.5 + 0.2 * np.sin(4 * points[:, 1])))
        values += noise * rng.standard_normal(2000)
        bad = rng.random(2000) < 0.02
        values = np.where(bad, values + 5 * rng.choice([-1, 1], 2000), values)
        found = suspects(points, values[None], None, (1 / 40, 1 / 50), decisions)
        missed, false = missed + int(np.sum(bad & ~found)), false + int(np.sum(found & ~bad))
    return missed, false


def test_robust_either_side_trimmed():
    missed, false = crowded()
    assert missed == 0
    assert false < 0.02 * 6000
    assert crowded(trimmed=0)[0] > 3
    # of eight neighbours five are left for the plane
    rng = np.random.default_rng(0)
    rows, values = rng.standard_normal((1, 8, 3)), rng.standard_normal((1, 8, 1))
    used = _trimmed(rows, values, DEFAULT.robust)
    assert np.count_nonzero(used) == 5


def test_robust_either_side_trimmed_factor():
    assert crowded()[0] == 0
    assert crowded(factor=1.0)[1] > 2 * crowded()[1]
    assert crowded(factor=100.0)[0] > 0


def test_robust_either_side_trimming_steps(monkeypatch):
    """Each step fits a plane: they are counted."""
    seen, pinv = [], np.linalg.pinv
    monkeypatch.setattr(np.linalg, "pinv", lambda one: seen.append(one) or pinv(one))
    rng = np.random.default_rng(0)
    rows, values = rng.standard_normal((1, 8, 3)), rng.standard_normal((1, 8, 1))
    _trimmed(rows, values, DEFAULT.robust)
    assert len(seen) == 4


def test_robust_either_side_choices():
    """Each choice of settings uncovers one more outlier: five more choices are made."""
    fit, chosen = RobustFit.__new__(RobustFit), []
    fit.decisions, fit.known, fit.settled = DEFAULT.robust, np.ones(50, dtype=bool), None
    fit.given = SimpleNamespace(weights=None)
    fit._exponent = lambda _: 0
    fit._suspects = lambda _: np.zeros(50, dtype=bool)
    fit._sizes = lambda _, out: np.where(np.arange(50) <= out.sum(), 99.0, 0.0)
    fit._reweighted = lambda *_: None
    errors = SimpleNamespace(errors=lambda *_: None)
    fit._chosen = lambda _, out: chosen.append(int(out.sum())) or (errors, None)
    fit.field(np.zeros((1, 50)), 0.0)
    assert chosen == [0, 1, 2, 3, 4, 5]


def restless(monkeypatch, module, **options):
    """The report of a fit whose weights never settle."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(module, "huber_weights", lambda sizes, _: rng.random(len(sizes)))
    x = np.random.default_rng(1).random((30, 2))
    report = kf.fit_points(x, rng.standard_normal(30), loss="huber", **options).report.robust
    assert not report.settled
    return report


def test_robust_either_side_rounds(monkeypatch):
    hats = kf.Triangle(3, 1.0)
    report = restless(monkeypatch, points_module, encoding=hats, roughness=(0.1, 0.1))
    assert report.rounds == 50


def test_robust_either_side_rounds_without_grid(monkeypatch):
    assert restless(monkeypatch, robust_many, form="dual").rounds == 10


def test_robust_either_side_listed():
    x = np.linspace(0, 1, 60)
    values = np.where(np.arange(60) % 6 == 0, 5.0, x)
    report = kf.fit_points(x[:, None], values, roughness=(0.0, 1e-2), loss="huber").report
    assert len(report.robust.largest) == 5


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_masked_grids_hardly_change_either(noise):
    """Over functions and draws, against squares of the samples without outliers."""
    ratios = []
    x, y = np.meshgrid(np.linspace(0, 1, 40), np.linspace(0, 1, 50), indexing="ij")
    for truth in (np.sin(6 * x) * np.cos(5 * y) + x, np.exp(-8 * ((x - 0.4) ** 2 + y**2))):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            clean = truth + noise * rng.standard_normal(truth.shape)
            bad, mask = rng.random(truth.shape) < 0.02, rng.random(truth.shape) < 0.25
            wrong = np.where(bad, clean + rng.choice([-1, 1], truth.shape) * 5, clean)
            fields = (kf.fit(clean, mask=mask), kf.fit(wrong, mask=mask, loss="huber"))
            assert fields[1].report.robust.rejected >= np.sum(bad & ~mask)
            errors = [np.sqrt(np.mean((field.on_grid() - truth) ** 2)) for field in fields]
            ratios.append(errors[1] / errors[0])
    # a choice of a penalty by 150 held-out samples has its luck in both
    assert np.exp(np.mean(np.log(ratios))) < 1.25


def spoiled_grid(function, part, seed=0):
    """Exact values, the same with gross outliers, the mask, and where outliers are known."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 1, 48), np.linspace(0, 1, 40), indexing="ij")
    truth = function(x, y)
    bad, mask = rng.random(truth.shape) < 0.02, rng.random(truth.shape) < part
    return truth, np.where(bad, truth + rng.choice([-1, 1], truth.shape) * 5, truth), mask, bad


def test_gaps_of_exact_grids_with_outliers_are_filled_as_without():
    """Of edges, which thresholds continue, and of smooth functions."""
    functions = (
        lambda x, y: np.sin(6 * x) * np.cos(5 * y) + x,
        lambda x, y: np.sin(20 * x + 9 * y),
        lambda x, y: 1.0 * (x > y) + x,
    )
    ratios = []
    for function in functions:
        truth, wrong, mask, bad = spoiled_grid(function, 0.3)
        clean = kf.fit(truth, mask=mask)
        field = kf.fit(wrong, mask=mask, loss="huber")
        found = np.zeros(truth.shape, dtype=bool)
        found.ravel()[list(field.report.robust.outliers)] = True
        assert np.sum(found != (bad & ~mask)) <= 3
        assert "outliers were found" in field.report.chosen_by
        errors = [np.sqrt(np.mean((f.on_grid() - truth)[mask] ** 2)) for f in (field, clean)]
        ratios.append(errors[0] / errors[1])
    assert np.exp(np.mean(np.log(ratios))) < 1.25


@pytest.mark.parametrize("falls", [(True, False), (False, True), (True, True)])
def test_outliers_of_falling_axes_are_left_out(falls):
    truth, wrong, mask, _ = spoiled_grid(lambda x, y: np.sin(6 * x) * np.cos(5 * y) + x, 0.1)
    flip = tuple(slice(None, None, -1 if fall else 1) for fall in falls)
    axes = [np.linspace(0, 1, n)[part] for n, part in zip(truth.shape, flip, strict=True)]
    rising = kf.fit(wrong, [np.linspace(0, 1, n) for n in truth.shape], mask=mask, loss="huber")
    field = kf.fit(wrong[flip], axes, mask=mask[flip], loss="huber")
    np.testing.assert_allclose(field.on_grid(axes), rising.on_grid(axes), atol=1e-6)
    one, other = (np.zeros(truth.shape, dtype=bool) for _ in range(2))
    one.ravel()[list(rising.report.robust.outliers)] = True
    other.ravel()[list(field.report.robust.outliers)] = True
    np.testing.assert_array_equal(other, one[flip])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_outliers_cost_the_other_values_no_digits(dtype):
    points = np.random.default_rng(0).random((400, 2))
    truth = np.sin(5 * points[:, 0]) * np.cos(3 * points[:, 1])
    values = truth.astype(dtype)
    values[[5, 77, 200]] = 1e15
    field = kf.fit_points(points, values, loss="huber")
    np.testing.assert_allclose(field(points), truth, atol=1e-5)
    assert field.report.robust.outliers == (5, 77, 200)


@pytest.mark.parametrize("D", [2, 5])
def test_outliers_are_numbered_as_points_were_given(D):
    points = np.random.default_rng(0).random((200, D))
    values = np.sin(3 * points[:, 0]) + points[:, 1]
    values[100] += 50
    values[10:20] = np.nan
    assert kf.fit_points(points, values, loss="huber").report.robust.outliers == (100,)


def test_outliers_are_numbered_as_samples_of_both_ends_of_a_circle():
    angle, y = np.linspace(0, 360, 25), np.linspace(0, 1, 12)
    values = np.cos(np.radians(angle)) * np.cos(2 * y)[:, None]
    values[5, 7] = 40
    field = kf.fit(values, [y, angle], periodic=[None, 360.0], loss="huber")
    assert field.report.robust.outliers == (5 * 25 + 7,)


def test_such_a_field_finds_the_outliers_of_other_values():
    _, wrong, mask, _ = spoiled_grid(lambda x, y: np.sin(6 * x) * np.cos(5 * y) + x, 0.1)
    field = kf.fit(wrong, mask=mask, loss="huber")
    again = field.refit(np.where(mask, np.nan, wrong[::-1])[~mask])
    assert again.report.robust.rejected > 0
    back = pickle.loads(pickle.dumps(field))
    np.testing.assert_array_equal(back.on_grid(), field.on_grid())
    with pytest.raises(kf.KronfieldError, match="loss='huber'"):
        back.refit(wrong)
    assert field.report.robust.to_dict()["outliers"] == list(field.report.robust.outliers)


def test_noisy_grids_stay_with_hubers_loss():
    truth, wrong, mask, _ = spoiled_grid(lambda x, y: np.sin(6 * x) * np.cos(5 * y), 0.1)
    noisy = wrong + 0.1 * np.random.default_rng(1).standard_normal(truth.shape)
    report = kf.fit(noisy, mask=mask, loss="huber").report
    assert not report.robust.interpolates
    assert report.robust.down_weighted > 0
    assert "outliers were found" not in report.chosen_by
