"""Penalised splines on a long uneven line, against dense matrices and the eigenbasis."""

import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield._core.frames import sample_frame
from kronfield.embedders import BSpline
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.grid.basis import derivative_gram
from kronfield.solvers.grid.inverse import dense_embedding
from kronfield.solvers.grid.long_line import LongLine


def uneven(count, seed=0):
    return np.cumsum(np.random.default_rng(seed).uniform(0.1, 2.0, count))


@pytest.mark.parametrize("roughness", [(3.0, 0.0), (0.0, 20.0), (0.5, 2.0)])
def test_the_band_is_the_dense_problem(roughness):
    x = uneven(150)
    frame = sample_frame(x)
    embedder = BSpline.through(frame.unit(x), 3, 0.0, 1.0)
    line = LongLine(embedder, x, frame)
    P = dense_embedding(embedder, frame.unit(x))
    matrix, per_sample = P.T @ P, (frame.high - frame.low) / len(x)
    low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
    for order, r in enumerate(roughness, start=1):
        gram = derivative_gram(embedder, low, high, order)
        matrix += r / (frame.length ** (2 * order - 1) * per_sample) * gram
    y = np.random.default_rng(1).standard_normal((150, 2))
    hat = P @ np.linalg.solve(matrix, P.T)
    np.testing.assert_allclose(line.values(line.weights(y, roughness)), hat @ y, atol=1e-8)
    assert line.freedom(roughness) == pytest.approx(np.trace(hat), rel=0.1)


def test_a_long_uneven_line_is_smoothed_as_in_the_eigenbasis():
    x = uneven(700)
    truth = np.sin(x / 40)
    noisy = truth + 0.2 * np.random.default_rng(2).standard_normal(700)
    fields = [
        kf.fit(noisy, [x], noise=0.2, settings=changed(DEFAULT, "grid", "longest_basis", most))
        for most in (300, 2000)
    ]
    band, exact = fields
    assert band.report.roughness == exact.report.roughness
    np.testing.assert_allclose(band.on_grid(), exact.on_grid(), atol=0.02 * 0.2)
    between = (x[1:] + x[:-1])[:, None] / 2
    np.testing.assert_allclose(band(between), exact(between), atol=0.02 * 0.2)
    assert band.report.degrees_of_freedom == pytest.approx(exact.report.degrees_of_freedom, rel=0.2)
    again = pickle.loads(pickle.dumps(band))
    np.testing.assert_array_equal(again.on_grid(), band.on_grid())


def test_lines_of_many_uneven_samples_take_little_time():
    x = uneven(20_000)
    truth = np.sin(x / 400)
    noisy = truth + 0.2 * np.random.default_rng(3).standard_normal(len(x))
    field = kf.denoise(noisy, [x])  # in an eigenbasis this would take hours
    assert np.std(field.on_grid() - truth) < 0.15 * 0.2
    assert field.report.noise.sigma[0] == pytest.approx(0.2, rel=0.05)


def test_a_penalty_that_removes_more_than_the_noise_is_lowered():
    x = uneven(400)
    frame = sample_frame(x)
    line = LongLine(BSpline.through(frame.unit(x), 3, 0.0, 1.0), x, frame)
    y = np.sin(x / 10)
    for most in (0.3, 0.01):
        found = line.values(line.smoothed(y, (0.0, 1e8), most, 12))
        assert np.sqrt(np.mean((found - y) ** 2)) <= most
