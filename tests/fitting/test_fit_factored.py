"""`fit_points` with factored weights, and what fields without a grid tell about their axes."""

import copy
import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.field.factored import FactoredField
from kronfield.fitting.settings import DEFAULT, changed


def function(x):
    return np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1]) + 2 * x[:, 2] + np.exp(x[:, 3])


def case(P=800, D=6, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((P, D)) * 2 - 1
    return points, function(points) + noise * rng.standard_normal(P)


BOX = [(-1.0, 1.0)] * 6
NEW = np.random.default_rng(1).random((500, 6)) * 2 - 1


@pytest.fixture(scope="module")
def field():
    points, values = case(noise=0.1)
    return kf.fit_points(points, values, domain=BOX, form="factored")


def test_factored_weights_recognise_axes_and_have_honest_errors(field):
    assert isinstance(field, FactoredField)
    away = field(NEW) - function(NEW)
    assert np.sqrt(np.mean(away**2)) < 0.04
    assert field.report.expected_error == pytest.approx(0.1, rel=0.2)  # that of a new value
    assert 0.85 < np.mean(np.abs(away) < 2 * field.standard_error(NEW)) <= 1
    np.testing.assert_allclose(
        field.standard_error(NEW[:5], noise=0.2), 2 * field.standard_error(NEW[:5], noise=0.1)
    )
    assert "axes without effect: 4, 5" in str(field.report)
    assert field.report.form == "factored"
    assert 10 < field.report.degrees_of_freedom < 200
    assert 1 <= field.rank <= 4
    assert np.ptp(field.partial_dependence(5)[1]) < 1e-9


def test_gradients_are_those_of_differences(field):
    new, h = NEW[:7] * 0.9, 1e-5
    for axis, step in enumerate(h * np.eye(6)):
        change = (field(new + step) - field(new - step)) / (2 * h)
        np.testing.assert_allclose(field.gradient(new)[:, axis], change, rtol=1e-4, atol=1e-5)


def test_grids_are_values_at_points(field):
    axes = [np.linspace(-1, 1, n) for n in (3, 2, 4, 1, 2, 1)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 6)
    for orders in ((0,) * 6, (1, 1, 0, 0, 0, 0)):
        found = field.on_grid(axes, orders)
        np.testing.assert_allclose(found.ravel(), field(places, orders), atol=1e-9)


def test_integrals_are_those_of_quadrature(field):
    box = [(-1, 1), (-0.5, 0.5), (0, 1), (-0.2, 0.3), (0, 0.1), (-1, 0)]
    x, w = np.polynomial.legendre.leggauss(7)
    # two axes at a time would be exact per piece; the functions are smooth enough for this
    axes = [low + (high - low) * (x + 1) / 2 for low, high in box]
    total = field.on_grid(axes)
    for low, high in reversed(box):
        total = total @ w * (high - low) / 2
    assert field.integral(box) == pytest.approx(float(total), rel=1e-3)


def test_saved_pickled_and_copied(tmp_path, field):
    loaded = kf.load(field.save(tmp_path / "a.field").path)
    for one in (loaded, pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
        np.testing.assert_array_equal(one(NEW), field(NEW))
        assert one.integral() == field.integral()
        np.testing.assert_array_equal(one.sobol().total, field.sobol().total)
        assert one.rank == field.rank
    for one in (loaded, pickle.loads(pickle.dumps(field))):
        with pytest.raises(kf.InputError, match="standard_error"):
            one.standard_error(NEW)
        with pytest.raises(kf.InputError, match="refit"):
            one.refit(np.zeros(800))
    size = (tmp_path / "a.field").stat().st_size
    assert size < 8 * field.number_count + 4 * 800 * 6 + 10_000  # weights, and where the data are


def test_a_damaged_file_is_refused(tmp_path, field):
    from kronfield.field import storage

    arrays, metadata = storage.read(field.save(tmp_path / "a.field").path)
    for change in ({"embedders": []}, {"trend": [1, [], []]}, {"frames": [[0, 1, 0, 1]]}):
        storage.write(tmp_path / "b.field", arrays, {**metadata, **change})
        with pytest.raises(kf.InputError, match="path"):
            kf.load(tmp_path / "b.field")


def test_other_values_are_refitted(field):
    _points, values = case(noise=0.1)
    again = field.refit(2 * values + 1)
    np.testing.assert_allclose(again(NEW), 2 * field(NEW) + 1, atol=0.02)
    with pytest.raises(kf.InputError, match="values"):
        field.refit(values[:10])


def test_the_same_call_gives_the_same_field():
    points, values = case(150, noise=0.1)
    one, two = (kf.fit_points(points, values, form="factored") for _ in range(2))
    np.testing.assert_array_equal(one(points), two(points))


def test_channels_weights_and_complex_values():
    points, values = case(300)
    few = small(most_products=2, most_splines=12)
    two = kf.fit_points(
        points, np.stack([values, 1e6 - 1e5 * values], 1), form="factored", settings=few
    )
    assert two(points[:3]).shape == (3, 2)
    assert two.standard_error(points[:3]).shape == (3, 2)
    assert two.sobol().main.shape == (6, 2)
    np.testing.assert_allclose(two(points)[:, 1], 1e6 - 1e5 * two(points)[:, 0], rtol=1e-3)
    turned = kf.fit_points(points, values * (1 + 2j), form="factored", settings=few)
    assert turned(points[:2]).dtype == np.complex128
    np.testing.assert_allclose(turned(points), values * (1 + 2j), atol=0.3)
    assert turned.sobol().main.shape == (6,)
    wrong = values.copy()
    wrong[:100] += 5
    weights = np.where(np.arange(300) < 100, 0.0, 1e-30)
    left = kf.fit_points(points, wrong, weights=weights, form="factored", settings=few)
    assert np.std(left(points[:100]) - values[:100]) < 0.4
    single = kf.fit_points(points, values.astype(np.float32), form="factored", settings=few)
    assert single(points).dtype == np.float32


@pytest.mark.parametrize("P", [1, 2, 3, 9, 40])
def test_few_points_and_odd_columns(P):
    rng = np.random.default_rng(P)
    points = np.column_stack(
        [
            rng.integers(0, 3, (P, 2)),
            np.full(P, 1e9),
            1e12 + 1e3 * rng.random(P),
            rng.random((P, 1)),
        ]
    )
    field = kf.fit_points(points, rng.random(P), form="factored")
    assert np.all(np.isfinite(field(points)))
    assert np.all(np.isfinite(field.standard_error(points)))
    assert np.all(np.isfinite(field.gradient(points)))
    assert np.isfinite(field.integral())
    assert str(field.report)
    constant = kf.fit_points(points, np.full(P, 7.5), form="factored")
    np.testing.assert_allclose(constant(points), 7.5)


def test_integer_columns_may_have_any_values():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 5, 300)
    points = np.column_stack([kind, rng.random((300, 4))])
    values = np.array([0.0, 5.0, -2.0, 8.0, 1.0])[kind] + points[:, 1]
    field = kf.fit_points(points, values, form="factored")
    assert np.std(field(points) - values) < 0.02


# Which form
# ------------------------------------------------------------------------------------------


def small(**values):
    """Return settings in which few points count as many."""
    settings = changed(DEFAULT, "dual", "direct_points", 100)
    for name, value in (("inducing_points", 40), ("shape_points", 80), ("width_points", 80)):
        settings = changed(settings, "dual", name, value)
    for name, value in values.items():
        settings = changed(settings, "factored", name, value)
    return settings


def test_held_out_points_decide():
    points, values = case(400)
    field = kf.fit_points(points, values, settings=small(most_products=2, most_splines=12))
    assert field.report.form == "factored"  # 40 inducing points are too few
    assert "against" in field.report.rows
    kinds = [one.kind for one in field.report.candidates]
    assert kinds[:2] == ["form", "form"]
    angle = np.cumsum(points[:, :4] * 3, axis=1)
    hard = np.hypot(np.cos(angle).sum(1), np.sin(angle).sum(1))  # products do not suit it
    other = kf.fit_points(points, hard, settings=small(most_products=1, most_splines=12))
    assert other.report.form == "dual"
    assert "against" in other.report.rows


def test_more_points_than_are_judged():
    points, values = case(600, noise=0.05)
    field = kf.fit_points(
        points, values, settings=small(judged_points=300, most_products=2, most_splines=12)
    )
    assert field.report.points == 600
    assert np.std(field(NEW, outside="clamp") - function(np.clip(NEW, -1, 1))) < 0.15
    weights = np.where(np.arange(600) % 2, 1.0, 0.0)
    kf.fit_points(
        points,
        values,
        weights=weights,
        settings=small(judged_points=250, most_products=1, most_splines=12),
    )


def test_costs_are_known_beforehand():
    grid, direct, either = (kf.select_form(D, P) for D, P in ((2, 100), (10, 300), (6, 10**6)))
    assert (grid.name, direct.name, either.name) == ("grid", "dual", "either")
    assert direct.seconds < 2
    assert either.seconds < 120
    assert kf.select_form(10, 20_000).seconds < 10
    assert either.memory < 4e9
    assert kf.select_form(4, 300, "factored").name == "factored"
    assert kf.select_form(200, 5000).memory < 1e9
    assert kf.select_form(3, 10**5, "dual").seconds < kf.select_form(6, 10**6, "dual").seconds


def test_bad_input():
    points, values = case(50)
    for options in ({"trend": 1}, {"ridge": 1.0}, {"roughness": (0.0, 1.0)}):
        with pytest.raises(kf.InputError, match='form: got "factored"'):
            kf.fit_points(points, values, form="factored", **options)
    field = kf.fit_points(points, values, form="dual")
    for axis in (6, -7, "x", 1.5, True):
        with pytest.raises(kf.InputError, match="axis: got"):
            field.partial_dependence(axis)
    with pytest.raises(kf.InputError, match="positions"):
        field.partial_dependence(0, [5.0])
    with pytest.raises(kf.InputError, match="positions"):
        field.partial_dependence(0, [[0.0]])
    with pytest.raises(kf.InputError, match="points: got"):
        field.partial_dependence(0, over=points[:, :2])


# Sensitivity
# ------------------------------------------------------------------------------------------


def monte_carlo(field, D, seed=0, count=200_000):
    """Return main and total shares and the variance, from pairs of points (Saltelli, 2010)."""
    rng = np.random.default_rng(seed)
    low, high = np.array(field.domain).T
    A, B = (low + (high - low) * rng.random((count, D)) for _ in range(2))
    fa, fb = field(A), field(B)
    variance = np.var(np.concatenate([fa, fb]))
    main, total = [], []
    for d in range(D):
        mixed = A.copy()
        mixed[:, d] = B[:, d]
        fm = field(mixed)
        main.append(np.mean(fb * (fm - fa)) / variance)
        total.append(np.mean((fa - fm) ** 2) / 2 / variance)
    return np.array(main), np.array(total), variance


SHAPES = ("gaussian", "twice", "once", "rough")


def dual_field(shape, trend):
    """Return a field in the dual form with a similarity of a given shape."""
    from kronfield.field.dual import DualField
    from kronfield.fitting.dual import DualChoice, DualFit
    from kronfield.fitting.forms import Form
    from kronfield.fitting.inputs import PointInput
    from kronfield.fitting.options import PointOptions
    from kronfield.solvers.dual.similarity import Similarity

    points, _ = case(60, 4)
    values = np.sin(3 * points[:, 0]) * points[:, 1] + points[:, 2] ** 2 + points[:, 3]
    given = PointInput(points, values, None, [(-1.0, 1.0)] * 4, None)
    fit = DualFit(given, PointOptions(trend=trend), Form("dual", "asked for"))
    fit.choice = DualChoice(Similarity(shape, (0.3, 0.5, 0.7, 1.5)), 1e-3, [], 60)
    field = fit.field(given.values, 0.0)
    assert isinstance(field, DualField)
    return field


@pytest.mark.parametrize(
    ("shape", "trend"), [(shape, None) for shape in SHAPES] + [("gaussian", 2), ("once", 1)]
)
def test_sobol_of_the_dual_form_is_that_of_monte_carlo(shape, trend):
    field = dual_field(shape, trend)
    found = field.sobol()
    main, total, variance = monte_carlo(field, 4, count=50_000)
    np.testing.assert_allclose(found.main, main, atol=0.02)
    np.testing.assert_allclose(found.total, total, atol=0.02)
    assert found.variance == pytest.approx(variance, rel=0.02)


def test_sobol_of_factored_weights_is_that_of_monte_carlo(field):
    found = field.sobol()
    main, total, variance = monte_carlo(field, 6, count=20_000)
    np.testing.assert_allclose(found.main, main, atol=0.03)
    np.testing.assert_allclose(found.total, total, atol=0.03)
    assert found.variance == pytest.approx(variance, rel=0.03)
    assert np.all(found.total >= found.main - 1e-9)
    np.testing.assert_allclose(found.total[4:], 0, atol=1e-9)


def test_sobol_of_a_constant_is_zero():
    points, _ = case(40)
    for form in ("dual", "factored"):
        found = kf.fit_points(points, np.full(40, 3.0), form=form).sobol()
        assert found.variance == pytest.approx(0, abs=1e-12)
        np.testing.assert_array_equal(found.main, 0)
        np.testing.assert_array_equal(found.total, 0)


@pytest.mark.parametrize("kind", ["factored", "dual", "trend"])
def test_partial_dependence_is_a_mean(field, kind):
    one = {"factored": field, "dual": None, "trend": None}[kind]
    one = one or dual_field("twice", 2 if kind == "trend" else None)
    D = one.dimensions
    rng = np.random.default_rng(0)
    over = rng.random((20_000, D)) * 2 - 1
    x = np.array([-0.9, 0.1, 0.8])
    at, found = one.partial_dependence(0, x)
    np.testing.assert_array_equal(at, x)
    means, exact = [], one.partial_dependence(0, x, over=over)[1]
    for position in x:
        moved = over.copy()
        moved[:, 0] = position
        means.append(one(moved).mean())
    np.testing.assert_allclose(exact, means, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found, means, atol=0.03)
    assert one.partial_dependence(1)[1].shape == (101,)
    # the mean over the last axis too is the mean of the field
    low, high = one.domain[0]
    x, w = np.polynomial.legendre.leggauss(60)
    values = one.partial_dependence(0, low + (high - low) * (x + 1) / 2)[1]
    volume = np.prod([b - a for a, b in one.domain])
    assert values @ w / 2 == pytest.approx(one.integral() / volume, rel=1e-3, abs=1e-4)


def test_axes_by_name():
    pandas = pytest.importorskip("pandas")
    points, values = case(100, 4)
    table = pandas.DataFrame(points, columns=list("abcd"))
    field = kf.fit_points(table, values, form="dual")
    np.testing.assert_array_equal(field.partial_dependence("c")[1], field.partial_dependence(2)[1])
