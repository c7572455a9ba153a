"""Boundary rules of splines that a caller asks for, against SciPy and mirrored data."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import kronfield as kf

UNEVEN = np.sort(np.random.default_rng(0).uniform(0, 10, 25))
AXES = {"even": np.linspace(0, 10, 25), "uneven": UNEVEN}


def signal(x):
    return np.sin(x) + 0.1 * x * x


@pytest.mark.parametrize("axis", list(AXES))
@pytest.mark.parametrize("rule", ["natural", "clamped", "not-a-knot"])
def test_ends_are_those_of_scipy(rule, axis):
    x = AXES[axis]
    y = np.sign(signal(x) - 3)  # of a rough signal, not-a-knot splines are cubic or linear
    field = kf.fit(y, [x], ends=rule)
    degree = field.encoding.embedders[0].degree
    at = np.linspace(x[0], x[-1], 200)
    if degree == 3:
        peer = CubicSpline(x, y, bc_type=rule)
        for order in (0, 1, 2):
            scale = np.abs(peer(at, order)).max()
            np.testing.assert_allclose(
                field(at[:, None], (order,)), peer(at, order), atol=1e-7 * scale
            )
    assert degree == 3 or rule == "not-a-knot"
    np.testing.assert_allclose(field.on_grid(), y, atol=1e-10)


@pytest.mark.parametrize("axis", list(AXES))
@pytest.mark.parametrize("n", [2, 3, 25])
def test_reflected_splines_are_those_of_mirrored_samples(axis, n):
    x = AXES[axis][:n]
    y = signal(x)
    field = kf.fit(y, [x], ends="reflect")
    low, high = field.domain[0]
    period = 2 * (high - low)
    both = np.concatenate([x, 2 * high - x[::-1]])
    ring = CubicSpline(
        np.append(both, both[0] + period),
        np.concatenate([y, y[::-1], y[:1]]),
        bc_type="periodic",
    )
    at = np.linspace(low, high, 100)
    round_at = both[0] + (at - both[0]) % period
    np.testing.assert_allclose(field(at[:, None]), ring(round_at), atol=1e-9)
    np.testing.assert_allclose(field(np.array([[low], [high]]), (1,)), 0.0, atol=1e-9)


def test_clamped_and_natural_splines_of_two_samples():
    x, y = np.array([0.0, 1.0]), np.array([1.0, 3.0])
    at = np.linspace(0, 1, 9)
    for rule in ("clamped", "natural"):
        field = kf.fit(y, [x], ends=rule)
        np.testing.assert_allclose(
            field(at[:, None]), CubicSpline(x, y, bc_type=rule)(at), atol=1e-12
        )
    assert kf.fit(np.array([2.0]), [np.array([3.0])], ends="natural").on_grid()[0] == 2.0


def test_each_axis_has_its_own_rule():
    x, y = np.linspace(0, 3, 20), UNEVEN
    values = np.cos(x)[:, None] * np.sin(y)[None, :]
    field = kf.fit(values, [x, y], ends=["clamped", "natural"])
    np.testing.assert_allclose(field.on_grid(), values, atol=1e-10)
    at = np.array([[0.0, 4.0], [3.0, 4.0]])
    np.testing.assert_allclose(field(at, (1, 0)), 0.0, atol=1e-9)
    np.testing.assert_allclose(field(np.array([[1.0, y[0]], [1.0, y[-1]]]), (0, 2)), 0.0, atol=1e-8)
    mixed = kf.fit(values, {"x": x, "y": y}, ends={"y": "natural"})
    chosen = [one.parameters for one in mixed.report.candidates if one.chosen]
    assert {"axis": 1, "degree": 3, "ends": "straight"} in chosen
    assert "natural" in mixed.report.chosen_by


def test_ends_that_are_periodic():
    x = np.linspace(0, 2 * np.pi, 33)
    field = kf.fit(np.sin(x), [x], ends="periodic")
    assert field.periods == (pytest.approx(2 * np.pi),)
    np.testing.assert_allclose(field(np.array([[-1.0], [9.0]])), np.sin([-1.0, 9.0]), atol=1e-9)
    given = kf.fit(np.sin(x[:-1]), [x[:-1]], ends="periodic", periodic=[2 * np.pi])
    np.testing.assert_allclose(given(np.array([[-1.0]])), np.sin([-1.0]), atol=1e-9)


def test_nothing_is_smoothed_and_refits_keep_their_ends():
    x = np.linspace(0, 1, 60)
    noisy = np.sin(6 * x) + 0.2 * np.random.default_rng(0).standard_normal(60)
    field = kf.fit(noisy, [x], ends="natural")
    np.testing.assert_allclose(field.on_grid(), noisy, atol=1e-10)
    np.testing.assert_allclose(field.refit(2 * noisy).on_grid(), 2 * noisy, atol=1e-10)
    single = kf.fit(noisy.astype(np.float32), [x], ends="reflect")
    assert single.dtype == single.weights.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ends": "free"}, "natural"),
        ({"ends": ["natural", "natural"]}, "1 rules"),
        ({"ends": 3}, "ends"),
        ({"ends": {"x": "natural"}}, "names"),
        ({"ends": "natural", "ridge": 0.1}, "ends"),
        ({"ends": "natural", "roughness": (0.0, 1.0)}, "ends"),
        ({"ends": "natural", "encoding": kf.Triangle(9, 2 / 9)}, "ends"),
        ({"ends": "natural", "loss": "huber"}, "ends"),
        ({"ends": "natural", "weights": np.arange(1.0, 26.0)}, "ends"),
        ({"ends": "natural", "mask": np.arange(25) == 3}, "ends"),
        ({"ends": "natural", "periodic": [20.0]}, "no ends"),
        ({"ends": "reflect", "domain": [(0.0, 10.0)]}, "clamped"),
    ],
)
def test_wrong_ends_are_refused(options, words):
    x = AXES["even"]
    with pytest.raises(kf.InputError, match=words):
        kf.fit(signal(x), [x], **options)
