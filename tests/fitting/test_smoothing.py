"""Penalties of long lines: judged by differences, against the eigenbasis and dense matrices."""

from dataclasses import replace

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting import smoothing
from kronfield.fitting.settings import DEFAULT


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("weight", [0.03, 1.0, 50.0, 1e4])
def test_differences_as_dense_matrices(order, weight):
    n, step = 60, 0.25
    lines = np.random.default_rng(order).standard_normal((3, n))
    D = np.diff(np.eye(n), order, axis=0) / step**order
    hat = np.linalg.inv(np.eye(n) + weight * D.T @ D)
    residual, trace = smoothing._ByDifferences(n, step, order).of(lines)(weight)
    assert residual == pytest.approx(np.sum((lines - lines @ hat) ** 2), rel=1e-9)
    assert trace == pytest.approx(np.trace(hat), abs=1e-8 if order == 1 else 0.5)


@pytest.mark.parametrize("waves", [1, 6])
def test_long_lines_as_in_the_eigenbasis(waves):
    clean = np.sin(2 * np.pi * waves * np.linspace(0, 1, 700))
    noisy = (clean + 0.2 * np.random.default_rng(waves).standard_normal(700))[None]
    args = (noisy, [np.arange(700.0)], np.eye(1), np.array([0.2]), 1.0)
    by_differences = smoothing.best_smoothing(*args)
    longer = replace(DEFAULT.smoothing, longest_basis=1000)
    in_basis = smoothing.best_smoothing(*args, longer)
    for one, other in zip(by_differences, in_basis, strict=True):
        assert one.score == pytest.approx(other.score, rel=0.1)
        assert one.weights[0] == pytest.approx(other.weights[0], rel=0.5)


# judged in windows of 400 samples, these lines had 16, 35 and 171 degrees of freedom
@pytest.mark.parametrize(("count", "most"), [(1000, 13), (4000, 20), (20_000, 60)])
def test_long_lines_are_smoothed_as_strongly_as_the_signal_allows(count, most):
    clean = np.sin(2 * np.pi * np.linspace(0, 1, count))
    noisy = clean + 0.2 * np.random.default_rng(count).standard_normal(count)
    field = kf.fit(noisy)
    assert field.report.degrees_of_freedom < most
    assert np.sqrt(np.mean((field.on_grid() - clean) ** 2)) < 0.2 * np.sqrt(most / count)


def test_waves_within_a_window_are_kept():
    x = np.arange(60_000)
    clean = np.sin(x / 4) * ((x > 1000) & (x < 9000))
    noisy = clean + 0.1 * np.random.default_rng(0).standard_normal(60_000)
    assert DEFAULT.smoothing.windows[0] > 9000
    found = kf.fit(noisy).on_grid()
    assert np.std((found - clean)[1000:9000]) < 0.1


@pytest.mark.parametrize("known", [True, False], ids=["noise is known", "cross-validation"])
@pytest.mark.parametrize("steps", [2, 40], ids=["a few steps", "many steps"])
def test_the_order_does_not_depend_on_the_unit_of_a_channel(known, steps):
    # steps are best smoothed by the first order, a wave by the second: the two have to agree
    rng = np.random.default_rng(steps)
    x, noise = np.arange(240.0), 0.1 * rng.standard_normal((2, 240))
    blocks = np.repeat(rng.random(steps), 240 // steps)
    values = np.stack([blocks, np.sin(x / 25)]) + noise

    def best(scales):
        tried = smoothing.best_smoothing(
            values * np.array(scales)[:, None],
            [x],
            np.eye(2),
            0.1 * np.array(scales) if known else None,
            1.0,
        )
        return min(tried, key=lambda one: one.score), tried

    plain, tried = best((1.0, 1.0))
    for scales in ((1.0, 1e3), (1e3, 1.0), (1.0, 1e-3)):
        scaled, others = best(scales)
        assert scaled.order == plain.order
        np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-6)
        ratios = [b.score / a.score for a, b in zip(tried, others, strict=True)]
        np.testing.assert_allclose(ratios[0], ratios[1], rtol=1e-9)
        assert (scaled.score < scaled.interpolation) == (plain.score < plain.interpolation)


def test_basis_functions_of_about_the_same_strength_are_judged_together(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.arange(70.0)
    truth = np.sin(np.add.outer(x, 2 * x) / 15)
    values = truth + 0.3 * rng.standard_normal((2, 70, 70))
    found = smoothing.best_smoothing(values, [x, x], np.eye(2), np.full(2, 0.3), 1.0)
    monkeypatch.setattr(smoothing, "PER_OCTAVE", 10**6)  # each is a class of its own
    exact = smoothing.best_smoothing(values, [x, x], np.eye(2), np.full(2, 0.3), 1.0)
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(np.log10(one.weights), np.log10(other.weights), atol=0.07)
        assert one.score == pytest.approx(other.score, rel=1e-3)
        assert one.interpolation == pytest.approx(other.interpolation, rel=1e-6)


@pytest.mark.parametrize("level", [0.0, 1e3])
def test_long_lattices_of_float32_are_smoothed_in_float32(level, monkeypatch):
    """Half of the memory, and no digits are lost to a constant."""
    from kronfield.solvers.points import lattice

    seen, smooth = [], lattice.smooth_lattice

    def watched(plane, *others):
        seen.append(plane.dtype)
        return smooth(plane, *others)

    monkeypatch.setattr(lattice, "smooth_lattice", watched)
    decisions = replace(DEFAULT, grid=replace(DEFAULT.grid, longest_basis=32, longest_halves=32))
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(90) / 9)[:, None] * np.cos(np.arange(40) / 7) + level
    values = (values + 0.1 * rng.standard_normal(values.shape)).astype(np.float32)
    single = kf.fit(values, noise=0.1, settings=decisions).on_grid()
    double = kf.fit(values.astype(np.float64), noise=0.1, settings=decisions).on_grid()
    assert seen == [np.float32, np.float64]
    np.testing.assert_allclose(single, double, atol=1e-3 if level else 1e-4)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.float16])
def test_long_lattices_of_other_numbers_are_smoothed_as_those_of_float32(dtype):
    decisions = replace(DEFAULT, grid=replace(DEFAULT.grid, longest_basis=32, longest_halves=32))
    rng = np.random.default_rng(0)
    values = 100 + 60 * np.sin(np.arange(90) / 9)[:, None] * np.cos(np.arange(40) / 7)
    values = (values + 5 * rng.standard_normal(values.shape)).astype(dtype)
    found = kf.fit(values, noise=5.0, settings=decisions).on_grid()
    single = kf.fit(values.astype(np.float32), noise=5.0, settings=decisions).on_grid()
    np.testing.assert_allclose(found, single, atol=1e-2)
