"""Errors of samples left out of splines on uneven axes, against splines without the sample."""

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting.left_out import BLOCK, SHARED_FROM, Windows, left_out, solved, spread
from kronfield.fitting.prediction import SplineFamily, error_rows

KINDS = [(k, "not-a-knot") for k in (1, 3, 5, 7, 9)] + [(3, "straight"), (3, "flat")]


def positions(kind, n):
    rng = np.random.default_rng(n)
    if kind == "random":
        return np.sort(rng.random(n))
    if kind == "pairs":  # gaps of 1 and of 1e-5
        return np.arange(n) // 2 + 1e-5 * (np.arange(n) % 2)
    return np.geomspace(0.01, 1, n)


def one_by_one(x, y, samples):
    families = [SplineFamily(*kind) for kind in KINDS]
    rows = np.stack([error_rows(families, x, i) for i in samples], axis=1)  # (F, J, N)
    return rows @ y


@pytest.mark.parametrize("kind", ["random", "pairs", "logarithms"])
@pytest.mark.parametrize("n", [11, 13, 30])
def test_short_lines_as_one_by_one(kind, n):
    x, y = positions(kind, n), np.random.default_rng(0).standard_normal((n, 2))
    found = left_out(x[None], y[None], KINDS)
    wanted = one_by_one(x, y, range(1, n - 1))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one[0], other, rtol=1e-6)


@pytest.mark.parametrize("kind", ["random", "logarithms"])
def test_samples_far_apart_share_a_side(kind):
    n = SHARED_FROM + 10
    x, y = positions(kind, n), np.random.default_rng(1).standard_normal((n, 1))
    found = left_out(x[None], y[None], KINDS)
    samples = [1, 2, 20, 25, n - 3, n - 2]
    for one, other in zip(found, one_by_one(x, y, samples), strict=True):
        np.testing.assert_allclose(one[0, np.array(samples) - 1], other, rtol=0.1)


@pytest.mark.parametrize("kind", ["random", "logarithms"])
@pytest.mark.parametrize("n", [11, 30, SHARED_FROM + 10])
def test_gains_are_the_norms_of_the_rows(kind, n):
    x, kinds = positions(kind, n), KINDS[:5]
    systems = solved(np.stack([x, x + 1.0]), np.zeros((2, n, 1)), kinds)
    found = [systems.gains(i) for i in range(5)]
    families = [SplineFamily(*one) for one in kinds]
    wanted = np.stack([error_rows(families, x, i) for i in range(1, n - 1)], axis=1)
    for one, rows in zip(found, wanted, strict=True):
        loose = 1e-5 if n < SHARED_FROM else 0.3
        np.testing.assert_allclose(one[0], np.linalg.norm(rows, axis=1), rtol=loose)
        np.testing.assert_allclose(one[1], one[0], rtol=1e-5)


def test_groups_do_not_touch():
    x = np.stack([positions("random", 20), positions("logarithms", 20)])
    y = np.random.default_rng(2).standard_normal((2, 20, 3))
    both = left_out(x, y, KINDS)
    for i in (0, 1):
        alone = left_out(x[i : i + 1], y[i : i + 1], KINDS)
        for one, other in zip(both, alone, strict=True):
            np.testing.assert_allclose(one[i], other[0], rtol=1e-8)


def test_all_samples_of_short_axes_are_judged():
    x, y = positions("random", 50), np.zeros((50, 1))
    windows = Windows.of(x, y, 48)
    assert windows.count == 48
    assert windows.weights.sum() == pytest.approx(1)
    assert np.array_equal(windows.x[0], x)
    x = positions("random", 512)  # as many as in windows for 256 of them
    assert Windows.of(x, np.zeros((512, 1)), 256).count == 510


def test_blocks_of_long_axes():
    """The step is among them, and stands for itself alone; the others stand for the rest."""
    x = positions("random", 2000)
    y = np.sin(5 * x) + (x > 0.3)
    windows = Windows.of(x, y[:, None], 256)
    assert 200 < windows.count <= 256
    assert windows.weights.sum() == pytest.approx(1)
    step = np.searchsorted(x, 0.3)
    at = np.flatnonzero((windows.x[:, 1:-1] == x[step]) & (windows.weights > 0))
    gap = x[step + 1] - x[step - 1]
    whole = np.sum(x[2:] - x[:-2])
    assert windows.weights.ravel()[at] == pytest.approx([gap / whole])
    assert windows.weights.max() > 10 * gap / whole
    assert np.count_nonzero(windows.weights, axis=1).max() <= BLOCK


@pytest.mark.parametrize("n", [513, 1000, 2001])
def test_a_line_turned_round_has_the_same_blocks(n):
    x, y = positions("random", n), np.random.default_rng(3).standard_normal((n, 1))
    one, other = Windows.of(x, y, 256), Windows.of(-x[::-1], y[::-1], 256)

    def judged(windows, sign):
        return np.unique(sign * windows.x[:, 1:-1][windows.weights > 0])

    np.testing.assert_array_equal(judged(one, 1), judged(other, -1))


def test_spread_is_symmetric():
    for count in (1, 2, 7, 40, 41):
        index = spread(count, 6)
        assert len(index) <= 6
        assert np.array_equal(index, count - 1 - index[::-1])


def test_a_step_among_many_uneven_samples_is_found():
    x = positions("random", 3000)
    truth = np.linspace(x[5], x[-5], 4001)
    field = kf.fit(np.sin(5 * x) + (x > 0.37), [x])
    assert field.report.chosen.kind == "slopes"
    found = field.on_grid([truth])
    assert found.max() < (np.sin(5 * truth) + (truth > 0.37)).max() + 1e-3


@pytest.mark.parametrize(("gap", "seed"), [(1e-6, 33), (1e-8, 3)])
def test_systems_that_are_singular_to_rounding_have_infinite_errors(gap, seed):
    gaps = np.where(np.random.default_rng(seed).random(19) < 0.4, gap, 1.0)
    x = np.concatenate([[0.0], np.cumsum(gaps)])
    found = left_out(x[None], np.sin(x)[None, :, None], KINDS)
    singular = ~np.isfinite(found).all(axis=(1, 2, 3))
    assert 0 < singular.sum() < len(KINDS)
    assert np.isposinf(found[singular]).all()
    windows = Windows(x[None], np.sin(x)[None, :, None], np.eye(18)[:1])
    assert np.array_equal(np.isposinf(windows.means(found)), singular)
    np.testing.assert_allclose(kf.fit(np.sin(x), [x])(x), np.sin(x), atol=1e-6)
