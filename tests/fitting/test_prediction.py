"""Leave-one-out errors against refits without the sample."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.interpolate import Akima1DInterpolator, PchipInterpolator, make_interp_spline

import kronfield as kf
from effort import examples
from kronfield.fitting.prediction import (
    AxisErrors,
    SplineFamily,
    _spline_squares,
    families,
    leave_one_out,
    leave_one_out_of_all,
)
from kronfield.fitting.settings import DEFAULT

FAMILIES = families(DEFAULT.prediction)


def brute_force(x, y, predict):
    """The mean squared error of every inner sample, predicted from all others."""
    errors = []
    for i in range(1, len(x) - 1):
        known = np.arange(len(x)) != i
        errors.append(predict(x[known], y[known])(x[i]) - y[i])
    # samples of uneven axes count as their part of the axis
    return float(np.average(np.square(errors), weights=x[2:] - x[:-2]))


def fitted(family):
    """The fit of a family, as a function of positions."""
    if family.kind == "splines":
        return spline(family)

    def bells(x, y):
        step = np.diff(x).min()
        past = family.padding
        centres = x[0] + step * np.arange(-past, round((x[-1] - x[0]) / step) + past + 1)

        def rows(at):
            features = np.exp(
                -((np.atleast_1d(at)[:, None] - centres) ** 2) / (2 * (family.width * step) ** 2)
            )
            # of weights that are sums of their differences and a constant, which costs nothing
            sums = np.tri(len(centres))
            sums[:, 0] = 1e4
            return features @ sums

        differences = np.linalg.lstsq(rows(x), y, rcond=1e-14)[0]
        return lambda at: float((rows(at) @ differences)[0])

    return bells


def spline(family):
    ends = {"not-a-knot": None, "straight": "natural", "flat": "clamped"}[family.ends]
    return lambda x, y: make_interp_spline(x, y, family.degree, bc_type=ends)


@pytest.mark.parametrize("count", [5, 11, 12, 31])
@pytest.mark.parametrize("even", [True, False])
def test_splines_as_refitted(count, even):
    rng = np.random.default_rng(count)
    x = np.arange(count, dtype=float) if even else np.cumsum(rng.uniform(0.2, 1.0, count))
    y = rng.standard_normal((1, count))
    found = leave_one_out(y, 1, x)
    able = [one for one in FAMILIES if one.suits(count, even)]
    assert list(found.families) == able
    for family, square in zip(found.families, found.squares, strict=True):
        reference = brute_force(x, y[0], fitted(family))
        if family.kind == "splines":
            assert square == pytest.approx(reference, rel=1e-6)
        elif family.width < 2:  # wider ones amplify rounding
            assert square == pytest.approx(reference, rel=1e-2)


def test_a_long_axis_is_predicted_from_windows():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.standard_normal((1, 120)), axis=1)
    found = leave_one_out(y, 1, np.arange(120.0))
    for family, square in zip(found.families, found.squares, strict=True):
        if family.kind != "splines":
            continue
        reference = brute_force(np.arange(120.0), y[0], spline(family))
        assert square == pytest.approx(reference, rel=2e-2 if family.degree > 5 else 1e-4)


@pytest.mark.parametrize("count", [5, 6, 7, 8, 40])
def test_slopes_as_scipy(count):
    rng = np.random.default_rng(count)
    x, y = np.arange(float(count)), rng.standard_normal((1, count))

    def both(x, y):
        return lambda at: (
            (PchipInterpolator(x, y)(at) + Akima1DInterpolator(x, y, method="makima")(at)) / 2
        )

    inner = slice(3, count - 3)  # at the ends SciPy's PCHIP has a rule of its own
    errors, ours = [], []
    for i in range(count)[inner]:
        known = np.arange(count) != i
        errors.append(both(x[known], y[0, known])(x[i]) - y[0, i])
        ours.append(_slope_error(y, i))
    np.testing.assert_allclose(ours, errors, rtol=1e-9, atol=1e-12)
    assert np.isfinite(leave_one_out(y, 1, x).slopes)


def harmonic_slope(left, right, before, after):
    """Return the slope between differences ``left`` and ``right`` over gaps of these lengths.

    It is their weighted harmonic mean, and 0 where their signs differ (Fritsch and Butland, 1984).
    """
    first, second = 2 * after + before, after + 2 * before
    same = left * right > 0
    safe_left, safe_right = np.where(same, left, 1.0), np.where(same, right, 1.0)
    return np.where(same, (first + second) / (first / safe_left + second / safe_right), 0.0)


def akima_slope(beyond_left, left, right, beyond_right):
    """Return the slope between ``left`` and ``right``, weighted by the changes beyond.

    This is Akima's rule (1970), modified so that flat stretches stay flat.
    """
    to_left = np.abs(beyond_right - right) + np.abs(beyond_right + right) / 2
    to_right = np.abs(left - beyond_left) + np.abs(left + beyond_left) / 2
    total = to_left + to_right
    safe = np.where(total > 0, total, 1.0)
    return np.where(total > 0, (to_left * left + to_right * right) / safe, 0.0)


def _slope_error(y, i):
    d = np.diff(y[0])
    middle = (y[0, i + 1] - y[0, i - 1]) / 2
    args = (d[i - 3], d[i - 2], middle, d[i + 1], d[i + 2])
    before = harmonic_slope(args[1], middle, 1.0, 2.0) + akima_slope(*args[:4])
    after = harmonic_slope(middle, args[3], 2.0, 1.0) + akima_slope(*args[1:])
    return (y[0, i - 1] + y[0, i + 1]) / 2 + (before - after) / 8 - y[0, i]


def past_the_ends(d, i):
    """The two differences before and after the gap at sample i, and the one over it."""
    n = len(d) + 1
    middle = (d[i - 1] + d[i]) / 2
    left = d[i - 2] if i > 1 else None
    right = d[i + 1] if i < n - 2 else None
    left = 2 * middle - right if left is None else left
    right = 2 * middle - left if right is None else right
    first = d[i - 3] if i > 2 else 2 * left - middle
    final = d[i + 2] if i < n - 3 else 2 * right - middle
    return first, left, middle, right, final


@pytest.mark.parametrize("count", [5, 6, 7, 12, 70])
@pytest.mark.parametrize("seed", range(3))
def test_slopes_as_one_by_one(count, seed):
    rng = np.random.default_rng(seed)
    y = np.round(rng.standard_normal((1, count, 3)), seed)  # rounded: some differences are equal
    squares = []
    for line in y[0].T:
        for i in range(1, count - 1):
            first, left, middle, right, final = past_the_ends(np.diff(line), i)
            before = harmonic_slope(left, middle, 1.0, 2.0) + akima_slope(
                first, left, middle, right
            )
            after = harmonic_slope(middle, right, 2.0, 1.0) + akima_slope(
                left, middle, right, final
            )
            squares.append(((line[i - 1] + line[i + 1]) / 2 + (before - after) / 8 - line[i]) ** 2)
    found = leave_one_out(y, 1, np.arange(float(count))).slopes
    assert found == pytest.approx(float(np.mean(squares)), rel=1e-12)


@pytest.mark.parametrize("count", [12, 40, 64, 65])
def test_one_matrix_as_windows(count):
    """Short axes are predicted by one matrix for all families, others in windows."""
    y = np.random.default_rng(count).standard_normal((2, count, 4))
    found = leave_one_out(y, 1, np.arange(float(count)))
    splines = tuple(one for one in found.families if one.kind == "splines")
    lines = np.moveaxis(y, 1, 0).reshape(count, -1)
    samples = np.arange(1, count - 1)
    reference = _spline_squares(splines, lines, samples).mean(axis=1)
    np.testing.assert_allclose(found.squares, reference, rtol=1e-10)


def test_slopes_are_judged_at_all_inner_samples():
    rng = np.random.default_rng(3)
    y = rng.standard_normal((1, 30))
    inner = np.mean([_slope_error(y, i) ** 2 for i in range(3, 27)])
    whole = leave_one_out(y, 1, np.arange(30.0)).slopes
    assert whole != pytest.approx(inner, rel=1e-6)  # the ends take part
    assert whole == pytest.approx(inner, rel=0.5)


@pytest.mark.parametrize("degree", [1, 3, 5, 7, 9])
def test_polynomials_are_predicted_exactly(degree):
    x = np.linspace(-1, 1, 30)
    y = np.polynomial.legendre.legval(x, np.ones(degree + 1))[None]
    found = leave_one_out(y, 1, x)
    at = found.families.index(SplineFamily(degree))
    assert found.squares[at] < 1e-20
    pairs = zip(found.families, found.squares, strict=True)
    lower = [square for one, square in pairs if one.kind == "splines" and one.degree < degree]
    assert all(square > 1e-12 for square in lower)


@settings(deadline=None, max_examples=examples(30))
@given(
    st.integers(5, 40), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**31), st.booleans()
)
def test_flips_and_other_axes(count, channels, other, seed, even):
    rng = np.random.default_rng(seed)
    x = np.arange(float(count)) if even else np.cumsum(rng.uniform(0.2, 1.0, count))
    y = rng.standard_normal((channels, count, other))
    found = leave_one_out(y, 1, x)
    flipped = leave_one_out(y[:, ::-1, ::-1], 1, x[-1] - x[::-1])
    turned = leave_one_out(np.swapaxes(y, 1, 2), 2, x)
    for again in (flipped, turned):
        np.testing.assert_allclose(found.squares, again.squares, rtol=1e-3)  # wide bells: rounding
        np.testing.assert_allclose(found.slopes, again.slopes, rtol=1e-6)


def test_many_lines_are_sampled_symmetrically():
    rng = np.random.default_rng(5)
    y = rng.standard_normal((3, 300, 300))
    assert y.size > 4 * DEFAULT.prediction.most_judged
    found = leave_one_out(y, 1, np.arange(300.0))
    flipped = leave_one_out(y[:, ::-1, ::-1], 1, np.arange(300.0))
    np.testing.assert_allclose(found.squares, flipped.squares, rtol=1e-9)
    few = leave_one_out(y[:, :, :40], 1, np.arange(300.0))
    np.testing.assert_allclose(found.squares, few.squares, rtol=0.1)


@pytest.mark.parametrize("count", [1, 2])
def test_too_short(count):
    assert leave_one_out(np.ones((1, count)), 1, np.arange(float(count))) is None


def test_bells_are_chosen_for_waves():
    x = np.linspace(0, 1, 60)
    y = np.sin(31 * x)[None]
    found = leave_one_out(y, 1, x)
    best = found.families[int(np.argmin(found.squares))]
    assert best.kind == "Gaussians"
    fine = np.linspace(0, 1, 500)
    field = kf.fit(y[0], [x])
    assert field.report.chosen.kind == "Gaussians"
    error = np.abs(field.on_grid([fine]) - np.sin(31 * fine)).max()
    assert error < 1e-2 * np.abs(make_interp_spline(x, y[0], 5)(fine) - np.sin(31 * fine)).max()


@pytest.mark.parametrize("shape", [(9, 9), (30, 30, 30), (12, 5, 12), (4, 70, 70), (2, 6)])
def test_alike_axes_are_judged_as_each_alone(shape):
    y = np.random.default_rng(0).standard_normal((2, *shape)).cumsum(axis=1)
    axes = [np.arange(float(n)) for n in shape]
    axes[-1] = axes[-1] ** 1.1  # not even
    for i, (x, found) in enumerate(zip(axes, leave_one_out_of_all(y, axes), strict=True), start=1):
        alone = leave_one_out(y, i, x)
        if alone is None:
            assert found is None
            continue
        assert (found.families, found.count) == (alone.families, alone.count)
        np.testing.assert_allclose(found.squares, alone.squares, rtol=1e-12)
        np.testing.assert_allclose(found.slopes, alone.slopes, rtol=1e-12)


def test_errors_of_neighbouring_degrees_are_shared_on_uneven_axes():
    x = np.sort(np.random.default_rng(4).random(30))
    uneven, even = (leave_one_out(np.sin(9 * x)[None], 1, at) for at in (x, np.arange(30.0)))
    np.testing.assert_array_equal(even.expected, even.squares)
    part = min(0.5, np.log(uneven.chance))
    logs = {one: np.log(s) for one, s in zip(uneven.families, uneven.squares, strict=True)}
    at = {one: np.log(s) for one, s in zip(uneven.families, uneven.expected, strict=True)}
    one, three, five, seven, nine = (SplineFamily(k) for k in (1, 3, 5, 7, 9))
    ends = [SplineFamily(3, kind) for kind in ("straight", "flat")]
    changes = {
        family: part * (np.mean([logs[k] for k in near]) - logs[family])
        for family, near in (
            (one, [three]),
            (three, [one, five]),
            (five, [three, seven]),
            (seven, [five, nine]),
            (nine, [seven]),
            *((end, [one, five]) for end in ends),
        )
    }
    assert max(map(abs, changes.values())) > 0.5
    for family, change in changes.items():
        assert at[family] - logs[family] == pytest.approx(change)


def test_infinite_errors_stay_infinite():
    splines = tuple(SplineFamily(degree) for degree in (1, 3, 5, 7))
    squares = np.array([1.0, 2.0, np.inf, np.inf])
    expected = AxisErrors(splines, squares, np.nan, 50, True).expected
    assert np.array_equal(np.isinf(expected), np.isinf(squares))
    assert expected[0] > squares[0]  # towards the error of degree 3
    assert expected[1] < squares[1]  # towards that of degree 1


@pytest.mark.parametrize(("n", "degree"), [(9, 1), (30, 9), (150, 3), (150, 9)])
def test_spreads_are_squares_of_cardinal_splines(n, degree):
    x = np.sort(np.random.default_rng(n).random(n))
    cardinal = make_interp_spline(x, np.eye(n), degree)((x[:-1] + x[1:]) / 2)
    wanted = np.average(cardinal**2, axis=0, weights=np.diff(x))
    # long lines share right-hand sides
    close = 1e-6 if n < 64 else 1e-3
    np.testing.assert_allclose(SplineFamily(degree).spreads(x), wanted, rtol=close)


def test_shared_errors_choose_neither_by_chance_nor_against_rounding():
    """By chance degree 7 meets samples of the peak, but not by chance degree 5 a polynomial."""
    for seed, function in (
        (20, lambda x: 1 / (1 + 40 * (x - 0.5) ** 2)),
        (1, lambda x: x**5 - x**2),
    ):
        x = np.sort(np.random.default_rng(seed).random(20))
        field = kf.fit(function(x), [x], noise=0.0)
        assert field.report.chosen.parameters["degree"] == 5
