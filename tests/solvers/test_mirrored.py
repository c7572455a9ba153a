"""Bases of axes that are their own mirror images, in halves, against the whole ones."""

import numpy as np
import pytest

from kronfield._core.frames import sample_frame
from kronfield.embedders import TensionSpline, Triangle
from kronfield.fitting.splines import tension_encoding
from kronfield.solvers.grid import basis
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.mirrored import Mirrored, fold, is_mirrored, unfold
from kronfield.solvers.grid.separable import GridSolver


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_folding_is_orthogonal(n):
    x = np.random.default_rng(n).standard_normal((3, n, 2))
    even, odd = fold(x, 1)
    assert np.sum(even**2) + np.sum(odd**2) == pytest.approx(np.sum(x**2))
    np.testing.assert_allclose(unfold(even, odd, 1), x, atol=1e-14)


@pytest.mark.parametrize("count", [60, 61])
@pytest.mark.parametrize(
    "penalty", [{"roughness": (3.0, 0.0)}, {"roughness": (0.0, 40.0)}, {"ridge": 0.3}]
)
def test_halves_give_the_weights_of_the_whole(monkeypatch, count, penalty):
    axes = [np.arange(n) + 0.5 for n in (count, 17)]
    frames = [sample_frame(x) for x in axes]
    encoding = tension_encoding(axes, frames, 1.0)
    values = np.random.default_rng(0).standard_normal((2, count, 17))
    whole = GridSolver(encoding, frames, axes, **penalty)
    monkeypatch.setattr(basis, "KEPT_UP_TO", 30)
    halves = GridSolver(encoding, frames, axes, **penalty)
    assert isinstance(halves.bases[0].U, Mirrored)
    assert not isinstance(halves.bases[1].U, Mirrored)
    expected = whole.solve(values)
    np.testing.assert_allclose(halves.solve(values), expected, atol=1e-7 * np.abs(expected).max())
    assert halves.degrees_of_freedom == pytest.approx(whole.degrees_of_freedom, rel=1e-7)
    single = halves.solve(values.astype(np.float32), dtype=np.float32)
    np.testing.assert_allclose(single, expected, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("order", [0, 1])
def test_halves_with_fewer_features_than_samples(monkeypatch, order):
    embedder = TensionSpline(40, 1.0, padding=2)  # centres at -2 / 36 to 37 / 36
    low, high = -0.02, 35 / 36 + 0.02
    x = np.linspace(low, high, 61)

    def smoother():
        if order == 0:
            found = basis.ridge_basis(embedder, x, 1e-14)
            gain = found.strength / (found.strength**2 + 0.1)
        else:
            found = basis.roughness_basis(
                embedder, x, low, high, rcond=1e-10, smooth=2, order=order
            )
            gain = 1 / (1 + 1e-3 * found.strength)
        return apply(found.back, gain[:, None] * apply(found.U.T, np.eye(61), 0), 0), found

    expected, whole = smoother()
    monkeypatch.setattr(basis, "KEPT_UP_TO", 30)
    result, halves = smoother()
    assert isinstance(halves.U, Mirrored)
    assert not isinstance(whole.U, Mirrored)
    np.testing.assert_allclose(result, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("count", [40, 41])
def test_weights_of_functions_are_computed_from_the_functions(monkeypatch, count):
    """A banded inverse needs no stored weights, in any number of columns at a time."""
    x = np.arange(count) + 0.5
    spline, frame = tension_encoding([x], [sample_frame(x)], 1.0).embedders[0], sample_frame(x)
    at, low, high = frame.unit(x), float(frame.unit(frame.low)), float(frame.unit(frame.high))
    monkeypatch.setattr(basis, "KEPT_UP_TO", 30)
    monkeypatch.setattr(basis, "COLUMNS", 7)
    found = basis.roughness_basis(spline, at, low, high, rcond=1e-10, smooth=2, order=2)
    assert isinstance(found.back, basis.InverseOf)
    assert found.back.shape == (spline.size, count)
    back = found.back.apply(np.eye(count), 0)
    np.testing.assert_allclose(
        np.asarray(spline(at)) @ back, found.U.apply(np.eye(count), 0), atol=1e-10
    )
    turned = found.back.T.apply(np.eye(spline.size), 0)
    np.testing.assert_allclose(turned, back.T, atol=1e-10 * np.abs(back).max())
    energy = back.T @ basis.derivative_gram(spline, low, high, 2) @ back
    expected = np.diag(found.strength**2)
    np.testing.assert_allclose(energy, expected, atol=1e-8 * expected.max())


def test_an_axis_with_features_to_one_side_is_not_mirrored():
    spline, x = TensionSpline(44, 1.0, padding=2), np.arange(40) / 40
    assert is_mirrored(spline, x)
    assert is_mirrored(spline, x, -0.5 / 40, 39.5 / 40)
    assert not is_mirrored(spline, x, 0.1, 1.0)
    assert not is_mirrored(spline, x + 0.01)
    assert not is_mirrored(spline, x**2)
    assert not is_mirrored(Triangle(30, 0.05), x)
