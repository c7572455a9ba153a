"""Lines with gaps of their own: dense references, and the choice between smoothing and splines."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from kronfield.fitting import gappy_lines
from kronfield.fitting.gappy_lines import fill_lines

STEPS = np.random.default_rng(0).random(29) + 0.1
X = np.concatenate([[0.0], np.cumsum(STEPS)])


def scattered(count, seed, share=0.3):
    return np.random.default_rng(seed).random((count, len(X))) < share


def test_splines_of_all_lines_are_those_of_scipy():
    known = ~scattered(6, 1)
    known[2] = False
    known[2, [3, 5, 9, 20]] = True  # one cubic
    known[4, 3:] = False  # too few
    lines = np.where(known, np.random.default_rng(2).standard_normal(known.shape), 0.0)
    found, inside = gappy_lines._splines(lines, known, STEPS)
    assert np.isnan(found[4]).all()
    for i in (0, 1, 2, 3, 5):
        at = np.flatnonzero(known[i])
        expected = CubicSpline(X[at], lines[i, at])(X)
        np.testing.assert_allclose(found[i], expected, rtol=1e-8, atol=1e-8)
        assert np.array_equal(np.flatnonzero(inside[i]), np.arange(at[0], at[-1] + 1))


def test_smoothing_of_all_lines_is_the_dense_solution():
    known, n = ~scattered(4, 3), len(X)
    lines = np.where(known, np.random.default_rng(4).standard_normal(known.shape), 0.0)
    first, second = gappy_lines._difference_bands(STEPS)
    found = gappy_lines._smoothed(lines, known, 0.3 * first + 2.0 * second)
    slopes = np.diff(np.eye(n), axis=0) / STEPS[:, None]
    turns = np.diff(slopes, axis=0)
    means = (STEPS[:-1] + STEPS[1:]) / 2
    penalty = 0.3 * slopes.T * STEPS @ slopes + 2.0 * turns.T / means @ turns
    for one, mask, line in zip(found, known, lines, strict=True):
        np.testing.assert_allclose(one, np.linalg.solve(penalty + np.diag(mask), line), atol=1e-9)


@pytest.mark.parametrize("name", ["smooth", "noisy", "walk"])
def test_gaps_are_filled_as_suits_the_lines(name):
    rng, missing = np.random.default_rng(5), scattered(20, 6)
    truth = np.sin(X / 5 + 6 * rng.random((20, 1)))
    given = truth.copy()
    if name == "noisy":
        given += 0.3 * rng.standard_normal(given.shape)
    if name == "walk":
        truth = given = np.cumsum(rng.standard_normal(given.shape) * 0.3, axis=1)
    given = (1e6 + 1e3 * given).astype(np.float32 if name == "noisy" else np.float64)
    filled = fill_lines(np.where(missing, np.nan, given), missing, X)
    assert filled.dtype == given.dtype
    assert np.array_equal(filled[~missing], given[~missing])

    def error(lines):
        return np.sqrt(np.mean(((lines - 1e6) / 1e3 - truth)[missing] ** 2))

    cubic = np.stack(
        [CubicSpline(X[~m], line[~m])(X) for line, m in zip(given, missing, strict=True)]
    )
    straight = np.stack(
        [np.interp(X, X[~m], line[~m]) for line, m in zip(given, missing, strict=True)]
    )
    if name == "smooth":
        assert error(filled) < min(1.01 * error(cubic), 0.2 * error(straight))
    else:
        assert error(filled) < min(0.8 * error(cubic), 1.05 * error(straight))


def test_runs_are_not_judged_by_single_samples():
    """Cubics are best in single gaps of this rough field, and swing in wide ones."""
    rng, missing = np.random.default_rng(7), np.zeros((24, 60), dtype=bool)
    waves = np.fft.rfft(rng.standard_normal((24, 240)), axis=1)
    lines = np.fft.irfft(waves / (np.fft.rfftfreq(240) + 0.005) ** 1.5, axis=1)[:, :60]
    for row, start in zip(missing, rng.integers(1, 50, size=24), strict=True):
        row[start : start + 8] = True
    at = np.arange(60.0)
    filled = fill_lines(np.where(missing, np.nan, lines), missing, at)
    straight = [
        np.interp(at, at[~m], line[~m]) for line, m in zip(lines, missing, strict=True)
    ] - lines
    assert np.std((filled - lines)[missing]) < 1.1 * np.std(straight[missing])


def test_few_known_samples_and_complex_lines():
    lines = np.full((3, 8), np.nan + 0j)
    lines[0, 2] = 5 + 1j
    lines[1, :2] = 1 + 1j, 2 + 2j
    lines[2] = np.arange(8) * (1 - 1j)
    filled = fill_lines(lines, np.isnan(lines), np.arange(8.0))
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[0], 5 + 1j)
    assert np.array_equal(filled[2], lines[2])


def test_lines_without_gaps_stay_as_they_are():
    lines = np.arange(12.0).reshape(2, 6)
    assert np.array_equal(fill_lines(lines, np.zeros((2, 6), dtype=bool), np.arange(6.0)), lines)
    one = np.ones((1, 1))
    assert np.array_equal(fill_lines(one, np.zeros((1, 1), dtype=bool), np.zeros(1)), one)


@pytest.mark.parametrize("size", [2.0**-600, 2.0**600])
def test_squares_of_lines_do_not_overflow(size):
    missing = scattered(5, 3)
    lines = np.sin(X / 4) * np.arange(1.0, 6.0)[:, None]
    filled = fill_lines(lines, missing, X)
    assert np.abs(filled - lines)[:, 4:-4].max() < 0.1
    np.testing.assert_allclose(fill_lines(lines * size, missing, X) / size, filled, rtol=1e-9)
