"""Uneven axes: few features, SciPy's accuracy or better, positions that nearly coincide."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline, RegularGridInterpolator

import kronfield as kf

RNG = np.random.default_rng(0)
POSITIONS = {
    "jittered": lambda n: (np.arange(n) + np.random.default_rng(1).uniform(-0.4, 0.4, n)) / n,
    "clustered": lambda n: np.sort(
        np.concatenate([RNG.normal(0.3, 0.02, n // 2), RNG.random(n - n // 2)])
    ),
    "logarithmic": lambda n: np.logspace(-2, 0, n),
}
FUNCTIONS = {
    "bell": lambda x: 1 / (1 + 25 * (2 * x - 1) ** 2),
    "wave": lambda x: np.sin(9 * x),
    "decay": lambda x: np.exp(-5 * x),
    "kink": lambda x: np.abs(x - 0.37),
}


@pytest.mark.parametrize("kind", list(POSITIONS))
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("n", [20, 60])
def test_errors_are_those_of_scipys_spline_or_less(kind, name, n):
    x, f = POSITIONS[kind](n), FUNCTIONS[name]
    field = kf.fit(f(x), [x])
    assert field.encoding.shape[0] <= 4 * n
    at = np.linspace(x[0], x[-1], 500)
    error = np.sqrt(np.mean((field(at[:, None]) - f(at)) ** 2))
    peer = np.sqrt(np.mean((CubicSpline(x, f(x))(at) - f(at)) ** 2))
    # at a kink all splines are alike, and chance decides
    assert error <= (2.0 if name == "kink" else 1.001) * peer + 1e-14


@pytest.mark.parametrize("n", [8, 20])
def test_volumes_have_as_many_features_as_samples(n):
    axes = [np.sort(np.random.default_rng(i).random(n)) for i in range(3)]

    def signal(p):
        return np.sin(3 * p[..., 0]) * np.cos(2 * p[..., 1]) * np.exp(p[..., 2])

    values = signal(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))
    noisy = values + 0.05 * np.random.default_rng(9).standard_normal(values.shape)
    for field in (
        kf.fit(values, axes),
        kf.fit(values, axes, roughness=(0.0, 1e-4)),
        kf.fit(noisy, axes, noise=0.05),
    ):
        assert np.prod(field.encoding.shape) <= values.size
    low, high = (np.array([x[i] for x in axes]) for i in (0, -1))
    at = np.random.default_rng(5).uniform(low, high, (50, 3))
    peer = RegularGridInterpolator(axes, values, method="cubic")
    error = np.abs(kf.fit(values, axes)(at) - signal(at)).max()
    assert error < np.abs(peer(at) - signal(at)).max()


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("differ", [0.0, 1e-3])
def test_positions_that_nearly_coincide(gap, differ):
    """33 samples; two that nearly coincide may also contradict each other a little."""
    x = np.linspace(0, 1, 32)
    x = np.sort(np.append(x, x[10] + gap))
    y = np.sin(7 * x)
    y[11] += differ * min(1.0, gap / 1e-3)
    field = kf.fit(y, [x])
    assert field.encoding.shape[0] <= 4 * len(x)
    at = np.linspace(0, 1, 400)
    assert np.abs(field(at[:, None]) - np.sin(7 * at)).max() < (1e-3 if not differ else 0.05)


def test_a_long_uneven_line_takes_memory_in_proportion():
    x = np.sort(np.random.default_rng(2).random(100_000))
    field = kf.fit(np.sin(40 * x), [x])
    assert field.encoding.shape == (100_000,)
    assert field.report.methods == ["banded"]
    at = np.random.default_rng(3).uniform(x[0], x[-1], 200)
    np.testing.assert_allclose(field(at[:, None]), np.sin(40 * at), atol=1e-10)
