"""Units from directions, windows of scattered points, and starts from coarser grids."""

import functools

import numpy as np
import pytest

import kronfield as kf
from kronfield.field.evaluation import at_points
from kronfield.fitting import settings
from kronfield.fitting.nested import ChosenGrid, nested_start, prolonged
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_grids import counts_for, hat_axis, spline_axis
from kronfield.fitting.point_search import Trial, likely_error, scattered_windows
from kronfield.fitting.point_units import directional_units
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.normal import Penalty

BOX = [(0.0, 1.0), (0.0, 1.0)]
UNITS = {"gain": 2.0, "widest": 32.0, "neighbours": 8}


def random_field(points, power, ratio, seed):
    """A random field of a power spectrum, slower by ``ratio`` on the first axis, at points."""
    from scipy.ndimage import map_coordinates

    n = 256
    k0, k1 = np.fft.fftfreq(n)[:, None], np.fft.fftfreq(n)[None]
    k = np.sqrt(ratio * k0**2 + k1**2 / ratio)
    k[0, 0] = np.inf
    noise = np.fft.fft2(np.random.default_rng(seed).standard_normal((n, n)))
    field = np.fft.ifft2(noise * k ** (-power / 2)).real[:128, :128]
    return map_coordinates(field / field.std(), 127 * points.T, order=1)


@pytest.mark.parametrize("power", [2.5, 3.0, 4.0])
@pytest.mark.parametrize("ratio", [1.0, 4.0, 0.25])
def test_units_of_random_fields(power, ratio):
    points = np.random.default_rng(3).random((2000, 2))
    values = random_field(points, power, ratio, seed=1)
    first, second = directional_units(points, values, BOX, 2000, **UNITS)
    assert ratio / 1.8 < first / second < ratio * 1.8
    assert first * second == pytest.approx(1 / 2000)


def test_units_do_not_depend_on_the_scale_of_axes_and_values():
    points = np.random.default_rng(3).random((1000, 2))
    values = random_field(points, 3.0, 4.0, seed=2)
    plain = directional_units(points, values, BOX, 1000, **UNITS)
    box = [(0.0, 1e3), (0.0, 1e-3)]
    scaled = directional_units(points * [1e3, 1e-3], 7 * values, box, 1000, **UNITS)
    np.testing.assert_allclose(np.array(scaled) / [1e3, 1e-3], plain, rtol=1e-6)


def test_units_of_noise_and_of_equal_values_are_those_of_the_box():
    points = np.random.default_rng(4).random((500, 2))
    noise = np.random.default_rng(5).standard_normal(500)
    for values in (noise, np.ones(500)):
        found = directional_units(points, values, BOX, 500, **UNITS)
        assert found[0] == found[1] == pytest.approx(500**-0.5)


def test_a_fit_uses_them():
    """A rough field that is slower on one axis, and points that are equally dense on both."""
    rng = np.random.default_rng(6)
    points, at = rng.random((3000, 2)), rng.uniform(0.02, 0.98, (2000, 2))
    values, truth = (random_field(p, 3.0, 9.0, seed=3) for p in (points, at))
    field = kf.fit_points(points, values, domain=BOX)
    even = kf.fit_points(points, values, domain=BOX, units=(1.0, 1.0))
    error, other = (np.sqrt(np.mean((one(at) - truth) ** 2)) for one in (field, even))
    assert error < 0.95 * other


def test_windows_are_spread_like_the_points():
    rng = np.random.default_rng(7)
    points = np.concatenate([rng.random((6000, 2)), 0.05 * rng.random((6000, 2))])
    windows, inner = scattered_windows(points, 4000, 8, 2.0)
    assert [len(window) for window in windows] == [500] * 8
    middles = np.array([points[window].mean(axis=0) for window in windows])
    clustered = np.all(middles < 0.06, axis=1)
    assert 3 <= clustered.sum() <= 5  # half of the points are there
    assert np.ptp(middles, axis=0).min() > 0.5
    assert all(0.5 < inside.mean() <= 1 for inside in inner)


def test_points_near_the_ends_of_a_window_are_not_held_out():
    points = np.random.default_rng(7).random((12_000, 2))
    windows, inner = scattered_windows(points, 4000, 8, 2.0)
    for window, inside in zip(windows, inner, strict=True):
        low, high = points[window].min(axis=0), points[window].max(axis=0)
        cut = (low > 0.01) & (high < 0.99)  # the points go on there
        margin, held = (high - low) / np.sqrt(500), points[window][inside]
        assert np.all((held > low + margin)[:, cut] & (held < high - margin)[:, cut])


def test_penalties_of_windows_are_the_same_per_volume():
    rng = np.random.default_rng(8)
    points = np.concatenate([rng.random((6000, 2)), 0.05 * rng.random((6000, 2))])
    trial = Trial(points, points[:, :1].T, None, PointOptions())
    penalty = Penalty(roughness=(2.0, 3.0), units=(1.0, 1.0))
    whole = len(points) / np.prod(np.ptp(points, axis=0))
    for k, (held, fitted) in enumerate(zip(trial.folds, trial.fitted, strict=True)):
        own = trial.points[held | fitted]
        density = len(own) / np.prod(np.ptp(own, axis=0))
        scaled = trial.penalty(penalty, k).roughness
        np.testing.assert_allclose(np.array(scaled) * density, np.array([2.0, 3.0]) * whole)


def test_the_error_of_windows_is_a_geometric_mean():
    parts = [np.full(10, 4.0), np.full(30, 1.0)]
    assert likely_error(parts, 2.0)[0] == pytest.approx((4**0.25) / 2)
    rng = np.random.default_rng(9)
    found = [
        likely_error([3 * rng.standard_normal(50) ** 2, rng.standard_normal(80) ** 2], 1.0)
        for _ in range(400)
    ]
    scores, errors = np.array(found).T
    assert errors.mean() == pytest.approx(scores.std(), rel=0.15)


@pytest.mark.parametrize("kind", ["splines", "hats"])
def test_a_coarse_solution_is_read_on_the_finer_grid(kind):
    def make(low, high, count):
        if kind == "hats":
            return hat_axis(low, high, count)
        return spline_axis(low, high, count, tension=0.05)

    points = np.random.default_rng(0).random((9000, 2))
    values = (np.sin(5 * points[:, 0]) * points[:, 1])[None]
    fine = ChosenGrid(make, BOX, [80, 70])
    both = [
        assemble(RowRule.choose(*grid.features(), None), points, values, None)
        for grid in (fine.coarser(), fine)
    ]
    penalty = Penalty(roughness=(0.0, 1e-9))
    coarse = both[0].solve(penalty, tolerance=1e-6, limit=4000).weights

    def at(equations, weights):
        units = [frame.unit(points[:, i]) for i, frame in enumerate(equations.frames)]
        return at_points(equations.encoding, weights, units, [0, 0])

    before, after = at(both[0], coarse), at(both[1], prolonged(coarse, *both))
    assert np.sqrt(np.mean((after - before) ** 2)) < 1e-3
    start = nested_start(fine, both[1], penalty, points, values, None, tolerance=1e-6)
    assert start is None or np.sqrt(np.mean((at(both[1], start) - values) ** 2)) < 1e-3


def test_many_points_without_noise_take_few_iterations():
    rng = np.random.default_rng(0)
    points = rng.random((40_000, 2))
    values = np.sin(9 * points[:, 0])[None] * np.cos(7 * points[:, 1])
    grid = ChosenGrid(functools.partial(spline_axis, tension=0.05), BOX, [198, 198])
    own = assemble(RowRule.choose(*grid.features(), None), points, values, None)
    penalty = Penalty(roughness=(0.0, 3e-4), units=(1 / 200,) * 2)
    start = nested_start(grid, own, penalty, points, values, None, tolerance=1e-5)
    assert start is not None
    nested = own.solve(penalty, tolerance=1e-4, limit=300, start=start)
    plain = own.solve(penalty, tolerance=1e-4, limit=300)
    assert nested.convergence.iterations < 0.5 * plain.convergence.iterations
    assert own.residual_energy(nested, penalty)[0] / own.count < 1e-9


def test_few_sites_with_repeated_readings():
    sites = np.array([[0.0, 0.0], [1.0, 1.0], [3.14159, 3.14159]])
    field = kf.fit_points(np.repeat(sites, 6, axis=0), np.repeat([0.0, 1.0, 5.0], 6))
    assert np.all(np.isfinite(field(sites)))


def test_a_long_box_in_given_units_has_a_bounded_grid():
    assert counts_for([(0.0, 1e5), (0, 1), (0, 1)], 300, 4.0, 1 << 24, (1.0,) * 3) == [301, 3, 3]
    nodes = counts_for([(0.0, 1e9), (0, 1), (0, 1)], 10**6, 4.0, 1 << 22, (1.0,) * 3)
    assert np.prod([n - 1 for n in nodes]) <= 1 << 22


def test_windows_without_weight_do_not_decide():
    rng = np.random.default_rng(0)
    points = rng.random((9000, 2))
    values = np.sin(9 * points[:, 0]) * points[:, 1] + 0.1 * rng.standard_normal(9000)
    weights = (points[:, 0] > 0.5).astype(float)
    field = kf.fit_points(points, values, weights=weights)
    inner = points[(points[:, 0] > 0.55) & (points.max(axis=1) < 0.95)]
    truth = np.sin(9 * inner[:, 0]) * inner[:, 1]
    assert np.sqrt(np.mean((field(inner) - truth) ** 2)) < 0.02


def test_the_expected_error_of_windows_is_a_root_mean_square():
    rng = np.random.default_rng(0)
    points = rng.random((3000, 2))
    noise = np.where(points[:, 0] < 0.25, 1.0, 0.001) * rng.standard_normal(3000)
    fewer = settings.changed(settings.DEFAULT, "points", "judged", 2000)
    field = kf.fit_points(
        points, np.sin(5 * points[:, 1]) + noise, hold_out="points", settings=fewer
    )
    assert field.report.expected_error == pytest.approx(0.5, rel=0.3)


def test_rough_values_get_a_finer_grid():
    """Values as rough as a random walk at clustered places: as good as RBF with a linear kernel."""
    from scipy.interpolate import RBFInterpolator

    rng = np.random.default_rng(4)
    waves = rng.standard_normal((2000, 2)) / np.sqrt(rng.chisquare(1, 2000))[:, None] / 0.3
    points = rng.random((1500, 2)) ** 2
    values = np.cos(points @ waves.T + rng.uniform(0, 6.28, 2000)).sum(axis=1)
    field = kf.fit_points(points[:1200], values[:1200])
    kinds = [one.kind for one in field.report.candidates]
    assert "fine hats" in kinds
    peer = RBFInterpolator(points[:1200], values[:1200], kernel="linear", neighbors=50)
    truth = values[1200:]
    ours = np.sqrt(np.mean((field(points[1200:], outside="extrapolate") - truth) ** 2))
    theirs = np.sqrt(np.mean((peer(points[1200:]) - truth) ** 2))
    assert ours < 1.05 * theirs


def test_smooth_values_get_no_finer_grid():
    points = np.random.default_rng(0).random((1000, 2))
    field = kf.fit_points(points, np.sin(5 * points[:, 0]) * points[:, 1])
    assert "fine hats" not in [one.kind for one in field.report.candidates]
