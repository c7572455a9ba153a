"""Fits of low rank: error known beforehand, evaluation, derivatives and integrals on factors."""

import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.field.low_rank import TensorTrain

AXES = [np.linspace(0, 1, 14), np.linspace(-1, 1, 17), np.sort(np.random.default_rng(0).random(12))]


def volume(channels=0):
    x, y, z = np.meshgrid(*AXES, indexing="ij")
    values = np.sin(3 * x * y) + np.exp(z - x) * np.cos(4 * y)
    if channels:
        values = np.stack([values * (1 + i) + i * x for i in range(channels)], axis=-1)
    return values


@pytest.mark.parametrize("shape", [(7,), (9, 8), (5, 6, 4), (4, 3, 5, 2)])
@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_error_of_a_train_is_known(shape, most):
    array = np.random.default_rng(1).standard_normal(shape)
    train = TensorTrain.of(array, most=most)
    assert max(train.ranks, default=1) <= most
    away = np.sqrt(np.mean((train.toarray() - array) ** 2))
    assert away == pytest.approx(train.error, abs=1e-12)
    bounded = TensorTrain.of(array, error=0.3)
    assert np.sqrt(np.mean((bounded.toarray() - array) ** 2)) <= 0.3
    assert bounded.size <= TensorTrain.of(array, error=0.1).size


@pytest.mark.parametrize("channels", [0, 3])
def test_a_full_rank_is_the_fit_itself(channels):
    values = volume(channels)
    field = kf.fit(values, AXES, rank=500)
    plain = kf.fit(values, AXES, field.encoding, ridge=0.0)
    at = np.random.default_rng(2).uniform([0, -1, 0.1], [1, 1, 0.8], (60, 3))
    for order in ((0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 0, 2)):
        np.testing.assert_allclose(field(at, order), plain(at, order), atol=1e-6)
    axes = [np.linspace(0, 1, 5), np.linspace(1, -1, 6), np.linspace(0.2, 0.7, 4)]
    for order in ((0, 0, 0), (0, 1, 0)):
        np.testing.assert_allclose(
            field.on_grid(axes, order), plain.on_grid(axes, order), atol=1e-8
        )
    np.testing.assert_allclose(field.weights, plain.weights, atol=1e-5)
    box = [(0.1, 0.9), (-0.5, 0.7), (0.2, 0.6)]
    np.testing.assert_allclose(field.integral(box), plain.integral(box), atol=1e-10)


@pytest.mark.parametrize("limit", [{"rank": 3}, {"rank_error": 0.02}])
def test_the_error_at_the_samples_is_known_beforehand(limit, tmp_path):
    values = volume(2)
    field = kf.fit(values, AXES, **limit)
    away = np.sqrt(np.mean((field.on_grid() - values) ** 2))
    assert away == pytest.approx(field.train.error, rel=1e-6)
    assert field.report.residual == pytest.approx(away, rel=1e-6)
    assert away <= limit.get("rank_error", 1.0)
    assert field.number_count < values.size / 3
    assert str(field.train.ranks[0]) in field.report.chosen_by
    assert "tensor train" in repr(field)
    saved = field.save(tmp_path / "train.kf")
    assert saved.bytes < 8 * field.number_count + 4000
    at = np.random.default_rng(2).uniform([0, -1, 0.1], [1, 1, 0.8], (20, 3))
    for copy in (kf.load(tmp_path / "train.kf"), pickle.loads(pickle.dumps(field))):
        np.testing.assert_array_equal(copy(at), field(at))
        assert copy.train.error == field.train.error
    again = field.refit(2 * values)
    assert np.sqrt(np.mean((again.on_grid() - 2 * values) ** 2)) <= 2 * max(away, 0.02)
    field.save(tmp_path / "small.kf", dtype="float32")
    np.testing.assert_allclose(kf.load(tmp_path / "small.kf")(at), field(at), atol=1e-4)


def test_a_damaged_file_is_refused(tmp_path):
    field = kf.fit(volume(), AXES, rank=2)
    field.train = TensorTrain((field.train.cores[0][:, :-1], *field.train.cores[1:]))
    field.save(tmp_path / "bad.kf")
    with pytest.raises(kf.InputError, match="damaged"):
        kf.load(tmp_path / "bad.kf")


def test_noise_penalties_and_periods_come_first():
    noisy = volume() + 0.1 * np.random.default_rng(3).standard_normal(volume().shape)
    field = kf.fit(noisy, AXES, noise=0.1, rank=6)
    assert np.std(field.on_grid() - volume()) < 0.06
    rough = kf.fit(noisy, AXES, roughness=(0.0, 1e-4), rank=100)
    plain = kf.fit(noisy, AXES, roughness=(0.0, 1e-4))
    np.testing.assert_allclose(rough.on_grid(), plain.on_grid(), atol=1e-8)
    lon, lat = np.arange(0.0, 360.0, 15.0), np.linspace(-1, 1, 10)
    ring = kf.fit(
        np.outer(lat, np.sin(np.deg2rad(lon))), [lat, lon], rank=1, periodic=[None, 360.0]
    )
    assert ring.train.ranks == (1, 1)
    np.testing.assert_allclose(ring(np.array([[0.5, -30.0], [0.5, 690.0]])), -0.25, atol=1e-9)


def test_complex_lines_and_float32():
    line = kf.fit(np.exp(1j * AXES[0]), [AXES[0]], rank=2)
    assert line.dtype == np.complex128
    np.testing.assert_allclose(line.on_grid(), np.exp(1j * AXES[0]), atol=1e-10)
    single = kf.fit(volume().astype(np.float32), AXES, rank=4)
    assert single.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"rank_error": -1.0}, "rank_error"),
        ({"rank": 2, "rank_error": 0.1}, "only one of the two"),
        ({"rank": 2, "loss": "huber"}, "Huber"),
        ({"rank": 2, "mask": np.arange(14) == 2}, "mask"),
    ],
)
def test_wrong_ranks_are_refused(options, words):
    with pytest.raises(kf.InputError, match=words):
        kf.fit(np.sin(AXES[0]), [AXES[0]], **options)
