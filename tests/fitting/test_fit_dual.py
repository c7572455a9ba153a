"""`fit_points` in many dimensions: the dual form."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.field.dual import DualField


def function(points):
    return np.sin(3 * points[:, 0]) * np.cos(2 * points[:, 1]) + points[:, 2] * points[:, 3]


def case(P=200, D=5, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((P, D)) * 2 - 1
    return points, function(points) + noise * rng.standard_normal(P)


@pytest.fixture(scope="module")
def field():
    points, values = case()
    return kf.fit_points(points, values, domain=[(-1, 1)] * 5)


def test_many_dimensions_are_the_dual_form(field):
    new = np.random.default_rng(1).random((300, 5)) * 2 - 1
    assert isinstance(field, DualField)
    assert field.report.form == "dual"
    assert "5 dimensions" in str(field.report)
    assert field.report.memory == 16 * 200**2
    assert np.std(field(new) - function(new)) < 0.02
    assert field.widths[4] > 5 * max(field.widths[:2])  # the last axis does not matter
    assert field.report.expected_error == pytest.approx(np.std(field(new) - function(new)), rel=1)
    assert field.report.to_dict()["form"] == "dual"


def test_ten_dimensions_with_noise_have_honest_errors():
    points, values = case(300, 10, noise=0.1)
    field = kf.fit_points(points, values, domain=[(-1, 1)] * 10)
    new = np.random.default_rng(1).random((500, 10)) * 2 - 1
    away = np.abs(field(new) - function(new))
    assert np.sqrt(np.mean(away**2)) < 0.08
    assert 0.85 < np.mean(away < 2 * field.standard_error(new)) <= 1
    np.testing.assert_allclose(
        field.standard_error(new[:5], noise=0.2), 2 * field.standard_error(new[:5], noise=0.1)
    )


def test_gradients_are_those_of_differences(field):
    new = np.random.default_rng(2).random((7, 5)) - 0.5
    h = 1e-4
    for axis, step in enumerate(h * np.eye(5)):
        change = (field(new + step) - field(new - step)) / (2 * h)
        np.testing.assert_allclose(field.gradient(new)[:, axis], change, rtol=1e-3, atol=1e-4)


def test_grids_are_values_at_points(field):
    axes = [np.linspace(-1, 1, n) for n in (3, 2, 4, 1, 2)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 5)
    for orders in ((0,) * 5, (1, 0, 0, 0, 1)):
        on_grid = field.on_grid(axes, orders)
        assert on_grid.shape == (3, 2, 4, 1, 2)
        at_points = field(places, orders)
        np.testing.assert_allclose(on_grid.ravel(), at_points, rtol=1e-6, atol=1e-9)
    assert field.on_grid().size <= 4096


@pytest.mark.parametrize("trend", [None, 1, 2])
def test_integrals_are_those_of_quadrature(trend):
    points, values = case(60, 4)
    field = kf.fit_points(points, values, domain=[(-1, 1)] * 4, trend=trend)
    x, w = np.polynomial.legendre.leggauss(12)
    box = [(-1, 1), (-0.5, 0.5), (0, 1), (-0.2, 0.3)]
    axes = [low + (high - low) * (x + 1) / 2 for low, high in box]
    total = field.on_grid(axes)
    for low, high in reversed(box):
        total = total @ w * (high - low) / 2
    assert field.integral(box) == pytest.approx(float(total), rel=1e-4)
    assert field.trend == (trend or 0)


def test_a_trend_is_left_alone():
    points, _ = case(80, 4)
    field = kf.fit_points(points, 3 + points @ np.arange(4.0), trend=1)
    far = np.full((1, 4), 50.0)
    assert field(far, outside="extrapolate")[0] == pytest.approx(3 + 50 * 6, rel=1e-4)


def test_primal_and_dual_agree():
    """Gaussians with a ridge are the dual form with their similarity, if they are dense enough."""
    rng = np.random.default_rng(0)
    points = rng.random((60, 2))
    values = np.sin(4 * points[:, 0]) + points[:, 1] ** 2
    field = kf.fit_points(points, values, form="dual", ridge=1e-3, domain=[(0, 1)] * 2)
    if field.similarity.shape != "gaussian":
        pytest.fail("a smooth function has a Gaussian similarity")
    # features exp(-(x - c)^2 / 2 s^2) have a sum of products proportional to a Gaussian similarity
    # of width sqrt(2) s; the constant is taken from the dual field, as no ridge holds it back
    rows = np.ones((60, 1))
    new = rng.random((20, 2))
    there = np.ones((20, 1))
    for axis, width in enumerate(field.similarity.widths):
        s = width / np.sqrt(2)
        step = s / 2
        centres = np.arange(-6 * s, 1 + 6 * s, step)
        norm = np.sqrt(step / (s * np.sqrt(np.pi)))

        def features(x, centres=centres, s=s, norm=norm):
            return norm * np.exp(-((x[:, None] - centres) ** 2) / (2 * s * s))

        rows = (rows[:, :, None] * features(points[:, axis])[:, None]).reshape(60, -1)
        there = (there[:, :, None] * features(new[:, axis])[:, None]).reshape(20, -1)
    constant = float(field.planes_at(np.full((1, 2), 1e3))[0, 0])
    gram = rows.T @ rows + field.report.ridge * np.eye(rows.shape[1])
    weights = np.linalg.solve(gram, rows.T @ (values - constant))
    np.testing.assert_allclose(there @ weights + constant, field(new), atol=1e-6)


def test_grid_and_dual_predict_alike():
    rng = np.random.default_rng(0)
    points = rng.random((300, 2))
    values = np.sin(5 * points[:, 0]) * points[:, 1] + 0.05 * rng.standard_normal(300)
    new = rng.random((200, 2)) * 0.9 + 0.05
    grid, dual = (kf.fit_points(points, values, form=one) for one in ("grid", "dual"))
    assert (grid.report.form, dual.report.form) == ("grid", "dual")
    assert np.std(grid(new) - dual(new)) < 0.03


def test_channels_weights_and_complex_values():
    points, values = case(120, 4)
    two = kf.fit_points(points, np.stack([values, 1e6 - 1e5 * values], axis=1))
    assert two(points[:3]).shape == (3, 2)
    assert two.standard_error(points[:3]).shape == (3, 2)
    np.testing.assert_allclose(two(points)[:, 1], 1e6 - 1e5 * two(points)[:, 0], rtol=1e-6)
    turned = kf.fit_points(points, values * (1 + 2j))
    assert turned(points[:2]).dtype == np.complex128
    np.testing.assert_allclose(turned(points), values * (1 + 2j), atol=0.05)
    wrong = values.copy()
    wrong[:20] += 5
    weights = np.where(np.arange(120) < 20, 0.0, 1e-30)
    left = kf.fit_points(points, wrong, weights=weights)
    np.testing.assert_allclose(left(points[:20]), values[:20], atol=0.3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_dtypes(dtype):
    points, values = case(60, 4)
    field = kf.fit_points(points, (100 * values).astype(dtype))
    expected = np.float32 if dtype == np.float32 else np.float64
    assert field.dtype == field(points).dtype == field.on_grid((2,) * 4).dtype == expected


@pytest.mark.parametrize("count", [80, 400])
def test_saved_pickled_and_copied(tmp_path, count):
    points, values = case(count, 4, noise=0.1)
    other = kf.fitting.settings.DEFAULT
    for name, value in (("direct_points", 100), ("inducing_points", 200)):
        other = kf.fitting.settings.changed(other, "dual", name, value)
    field = kf.fit_points(points, np.stack([values, values**2], axis=1), trend=1, settings=other)
    assert ("inducing" in field.report.method) == (count == 400)
    field.info["unit"] = "m"
    loaded = kf.load(field.save(tmp_path / "a.field").path)
    for one in (loaded, pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
        np.testing.assert_array_equal(one(points), field(points))
        np.testing.assert_allclose(one.standard_error(points), field.standard_error(points))
        assert one.info == {"unit": "m"}
        assert one.integral() == pytest.approx(field.integral())
        assert one.distance_to_data(points[:1])[0] < 1e-3
    with pytest.raises(kf.InputError, match="refit"):
        loaded.refit(values)
    small = kf.load(field.save(tmp_path / "b.field", dtype="float32").path)
    assert small(points).shape == field(points).shape


def test_a_damaged_file_is_refused(tmp_path, field):
    from kronfield.field import storage

    arrays, metadata = storage.read(field.save(tmp_path / "a.field").path)
    for change in ({"shape": "round"}, {"ridge": -1.0}, {"widths": [1.0]}, {"trend": [7, [], []]}):
        storage.write(tmp_path / "b.field", arrays, {**metadata, **change})
        with pytest.raises(kf.InputError, match="path"):
            kf.load(tmp_path / "b.field")


def test_other_values_are_refitted(field):
    points, values = case()
    again = field.refit(2 * values + 1)
    np.testing.assert_allclose(again(points), 2 * field(points) + 1, atol=1e-6)
    with pytest.raises(kf.InputError, match="values"):
        field.refit(values[:10])


def test_outside(field):
    far = np.full((1, 5), 3.0)
    with pytest.raises(kf.InputError, match="points"):
        field(far)
    assert np.isnan(field(far, outside="nan")[0])
    assert np.isfinite(field.standard_error(far, outside="extrapolate")[0])
    assert field.standard_error(far, outside="extrapolate") > field.standard_error(far / 10)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 12), st.integers(4, 14), st.integers(0, 99), st.sampled_from([0, 1, 2]))
def test_any_size_has_a_field(P, D, seed, trend):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3, (P, D)).astype(float)  # duplicates, and axes without extent
    field = kf.fit_points(points, rng.random(P), trend=trend, form="dual")
    assert np.all(np.isfinite(field(points)))
    assert np.all(np.isfinite(field.standard_error(points)))
    assert np.isfinite(field.integral())
    assert str(field.report)


def test_constant_values():
    points, _ = case(30, 6)
    field = kf.fit_points(points, np.full(30, 7.5))
    np.testing.assert_allclose(field(points), 7.5)


def test_the_same_call_gives_the_same_field():
    points, values = case(250, 4, noise=0.1)
    one, two = (kf.fit_points(points, values) for _ in range(2))
    np.testing.assert_array_equal(one(points), two(points))


def test_bad_input():
    points, values = case(30, 6)
    with pytest.raises(kf.InputError, match="form: got 'tree'"):
        kf.fit_points(points, values, form="tree")
    with pytest.raises(kf.InputError, match='form: got "dual" with an encoding'):
        kf.fit_points(points, values, kf.Triangle(2, 1.0), form="dual")
    for options in ({"roughness": (0.0, 1.0)}, {"hold_out": "blocks"}):
        with pytest.raises(kf.InputError, match="dual form"):
            kf.fit_points(points, values, **options)
        with pytest.raises(kf.InputError, match='form: got "dual"'):
            kf.fit_points(points, values, form="dual", **options)
    with pytest.raises(kf.InputError, match=r"form: got .* with 6 dimensions"):
        kf.fit_points(points, values, form="grid")
    with pytest.raises(kf.InputError, match=r"encoding: got 50 x 50 x .* features"):
        kf.fit_points(points, values, kf.Triangle(50, 2 / 50))


def test_categories_are_columns_of_an_impulse_embedder():
    rng = np.random.default_rng(0)
    points, kind = rng.random((200, 3)), rng.integers(0, 3, 200)
    columns = np.column_stack([points, kf.Impulse(3)(kind / 3)])
    np.testing.assert_array_equal(columns[:, 3:].argmax(axis=1), kind)
    values = np.sin(3 * points[:, 0]) + np.array([0.0, 5.0, -2.0])[kind]
    field = kf.fit_points(columns[:150], values[:150])
    held = field(columns[150:], outside="extrapolate")
    assert np.std(held - values[150:]) < 0.05
