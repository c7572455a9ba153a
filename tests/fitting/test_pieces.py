"""Cubic pieces with slopes from the data on uneven axes, against SciPy's interpolators."""

import pickle

import numpy as np
import pytest
from scipy.interpolate import Akima1DInterpolator, CubicHermiteSpline, PchipInterpolator

import kronfield as kf
from kronfield._core.frames import sample_frame
from kronfield.fitting.pieces import CubicPieces
from kronfield.fitting.prediction import leave_one_out
from kronfield.fitting.slopes import slopes


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def positions(rng, count):
    """Random positions: neighbouring gaps differ by factors of a hundred and more."""
    return np.sort(rng.random(count))


def chosen(field):
    return {one.kind for one in field.report.candidates if one.chosen}


def test_slopes_are_the_mean_of_two_interpolators(rng):
    x, y = positions(rng, 40), rng.standard_normal(40)
    pchip = PchipInterpolator(x, y).derivative()(x)
    akima = Akima1DInterpolator(x, y, method="makima").derivative()(x)
    found = slopes(y, np.diff(x))
    np.testing.assert_allclose(found[1:-1], (pchip + akima)[1:-1] / 2, rtol=1e-10)


def test_even_gaps_give_the_slopes_of_even_axes(rng):
    y = rng.standard_normal((20, 3))
    np.testing.assert_allclose(slopes(y, np.full(19, 0.5)), 2 * slopes(y), rtol=1e-12)


@pytest.mark.parametrize("count", [12, 60, 3000])
def test_the_field_is_the_piecewise_cubic(count, rng):
    x = positions(rng, count)
    y = np.cumsum(rng.standard_normal(count) * (rng.random(count) < 0.3))
    pieces = CubicPieces.of([x], [sample_frame(x)], [True])
    cubic, at = CubicHermiteSpline(x, y, slopes(y, np.diff(x))), rng.uniform(x[0], x[-1], 500)
    unit, weights = pieces.frames[0].unit, pieces(y[None])[0]
    features = pieces.encoding.embedders[0]
    size = np.abs(y).max()
    np.testing.assert_allclose(features(unit(at)) @ weights, cubic(at), atol=1e-11 * size)
    np.testing.assert_allclose(features(unit(x)) @ weights, y, atol=1e-11 * size)


def test_past_the_ends_the_field_is_straight(rng):
    x, y = positions(rng, 20), rng.standard_normal(20)
    pieces = CubicPieces.of([x], [sample_frame(x)], [True])
    frame, features = pieces.frames[0], pieces.encoding.embedders[0]
    at = np.linspace(frame.low, x[0], 4)
    found = features(frame.unit(at)) @ pieces(y[None])[0]
    np.testing.assert_allclose(found, y[0] + slopes(y, np.diff(x))[0] * (at - x[0]), atol=1e-9)


def test_steps_at_random_positions_do_not_ring(rng):
    x = positions(rng, 60)
    steps = np.where(x > 0.5, 1.0, 0.0)
    field = kf.fit(steps, [x])
    assert chosen(field) == {"slopes"}
    found = field.on_grid([np.linspace(x[0], x[-1], 1000)])
    assert -1e-9 < found.min() < found.max() < 1 + 1e-9
    np.testing.assert_allclose(field.on_grid([x]), steps, atol=1e-12)


def steps_on_grid(rng, *shape):
    """Steps along a diagonal, two channels of float32, on axes of which one is uneven."""
    axes = [np.arange(float(n)) for n in shape]
    axes[-1] = positions(rng, shape[-1]) * shape[-1]
    total = sum(np.meshgrid(*[x / x[-1] for x in axes], indexing="ij"))
    step = np.where(total > len(shape) / 2, 1.0, 0.0).astype(np.float32)
    return axes, np.stack([step, 2 - step], axis=-1)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (5, 30), (12, 13, 14)])
def test_grids_with_an_uneven_axis(shape, rng):
    axes, values = steps_on_grid(rng, *shape)
    field = kf.fit(values, axes, channels=True, noise=0)
    assert "slopes" in chosen(field)
    assert field.dtype == np.float32
    np.testing.assert_allclose(field.on_grid(axes), values, atol=1e-5)
    again = pickle.loads(pickle.dumps(field))
    np.testing.assert_array_equal(again.on_grid(axes), field.on_grid(axes))
    middles = [(x[1:] + x[:-1]) / 2 for x in axes]
    twice = field.refit(2 * values).on_grid(middles)
    np.testing.assert_allclose(twice, 2 * field.on_grid(middles), atol=1e-5)


def test_saved_and_read(tmp_path, rng):
    x = positions(rng, 50)
    field = kf.fit(np.where(x > 0.4, 1.0, 0.0), [x])
    field.save(tmp_path / "field.kf")
    at = [np.linspace(x[0], x[-1], 200)]
    np.testing.assert_array_equal(kf.load(tmp_path / "field.kf").on_grid(at), field.on_grid(at))


def test_where_there_are_no_pieces(rng):
    x = positions(rng, 20)
    frame = sample_frame(x)
    far = type(frame)(frame.origin, frame.length, frame.low - 1.0, frame.high)
    assert CubicPieces.of([x], [frame], [True]) is not None
    assert CubicPieces.of([x], [far], [True]) is None
    close = np.sort(np.append(x, np.nextafter(x[3], 1)))
    assert CubicPieces.of([close], [sample_frame(close)], [True]) is None


def test_errors_of_samples_left_out(rng):
    """The error of slopes is that of the cubics through the other samples."""
    x, y = positions(rng, 25), rng.standard_normal(25)
    squares = []
    for i in range(1, 24):
        rest = np.arange(25) != i
        cubic = CubicHermiteSpline(x[rest], y[rest], slopes(y[rest], np.diff(x[rest])))
        squares.append((cubic(x[i]) - y[i]) ** 2)
    shares = x[2:] - x[:-2]
    expected = np.sum(shares * squares) / shares.sum()
    np.testing.assert_allclose(leave_one_out(y[None], 1, x).slopes, expected, rtol=1e-10)
