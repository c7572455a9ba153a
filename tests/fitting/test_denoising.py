"""`denoise`: what is taken, the error it expects, and noise that depends on the signal."""

import copy
import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from skimage import data

import kronfield as kf
from effort import examples
from kronfield._core.threads import one_blas_thread
from kronfield.fitting import grid_choice
from kronfield.fitting.denoising import Removal, Risk, groups_after, smoother
from kronfield.fitting.noise import Noise, find_noise
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.fitting.shrinkage import slabs
from kronfield.fitting.smoothing import best_smoothing
from kronfield.fitting.stabilising import Stabiliser, find_stabilisers


def white(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def photograph(side=160):
    return data.astronaut()[20 : 20 + side, 150 : 150 + side].astype(np.float64) / 255


def surface(n=80):
    x, y = np.linspace(0, 1, n), np.linspace(0, 1, n + 7)
    return np.sin(5 * x)[:, None] * np.cos(4 * y)


def error(found, truth):
    return float(np.sqrt(np.mean(np.abs(found - truth) ** 2)))


# What is taken


def test_photographs_are_shrunk_and_surfaces_are_smoothed():
    truth = photograph()
    field = kf.denoise(truth + 0.1 * white(*truth.shape))
    assert field.report.noise.method == "shrinkage"
    assert error(field.on_grid(), truth) < 0.04
    truth = surface()
    field = kf.denoise(truth + 0.1 * white(*truth.shape))
    assert field.report.noise.method == "a penalised fit"
    assert error(field.on_grid(), truth) < 0.015


def test_wider_windows_decide_where_neither_is_clearly_better():
    """The corners are smooth, and detail in the middle hardly reaches the first windows."""
    x = np.linspace(0, 1, 160)
    truth = np.sin(3 * x)[:, None] * np.cos(2 * x)
    detail = 0.4 * np.kron(np.random.default_rng(4).random((20, 20)), np.ones((8, 8)))
    truth[63:97, 63:97] += detail[63:97, 63:97]
    field = kf.denoise(truth + 0.1 * white(160, 160), noise=0.1)
    assert field.report.noise.method == "shrinkage"


def test_groups_are_better_than_blocks():
    truth = photograph(96)
    noisy = truth + 0.1 * white(*truth.shape)
    quick, thorough = kf.denoise(noisy), kf.denoise(noisy, thorough=True)
    assert thorough.report.noise.method == "groups of alike patches"
    assert error(thorough.on_grid(), truth) < 0.97 * error(quick.on_grid(), truth)


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("sigma", [0.05, 0.1])
def test_the_expected_error_is_the_true_one(sigma, thorough):
    truth = photograph(128)
    field = kf.denoise(truth + sigma * white(*truth.shape), thorough=thorough)
    found = error(field.on_grid(), truth)
    # that of groups is estimated before them
    assert field.report.noise.expected_error == pytest.approx(found, rel=0.2 if thorough else 0.15)
    assert field.report.noise.sigma == pytest.approx([sigma] * 3, rel=0.05)
    assert field.report.residual == pytest.approx(sigma, rel=0.15)


def test_fit_takes_what_denoise_takes():
    noisy = photograph(128) + 0.1 * white(128, 128, 3)
    fitted, cleaned = kf.fit(noisy), kf.denoise(noisy)
    np.testing.assert_array_equal(fitted.on_grid(), cleaned.on_grid())
    assert fitted.report.noise == cleaned.report.noise
    given = kf.fit(noisy, roughness=(0.0, 0.01))
    assert given.report.noise is None


def test_nothing_is_removed_without_noise():
    clean = photograph(128)
    with pytest.warns(kf.NoiseWarning, match=r"nothing was removed.*noise="):
        field = kf.denoise(clean)
    np.testing.assert_allclose(field.on_grid(), clean, atol=1e-6)
    assert field.report.noise is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kf.denoise(clean, noise=0.01)
        assert kf.denoise(clean, noise=0.0).report.noise is None


@pytest.mark.parametrize(
    "shape", [(400,), (400, 2), (60, 50), (60, 50, 2), (24, 20, 22), (12, 10, 11, 12)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_any_number_of_dimensions_and_channels(shape, dtype):
    truth = np.cumsum(white(*shape), axis=0)
    truth = np.sign(truth - np.median(truth)).astype(dtype)
    noisy = (truth + 0.1 * white(*shape, seed=1)).astype(dtype)
    field = kf.denoise(noisy, noise=0.1, channels=shape[-1] == 2)
    found = field.on_grid()
    assert found.shape == noisy.shape
    assert found.dtype == dtype
    assert error(found, truth) < error(noisy, truth)


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1), (2, 2), (1, 1, 1), (5, 1, 4)])
def test_few_samples(shape):
    values = white(*shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kf.NoiseWarning)
        np.testing.assert_allclose(kf.denoise(values, channels=False).on_grid(), values, atol=1e-6)
    found = kf.denoise(values, noise=0.5, channels=False).on_grid()
    assert np.all(np.isfinite(found))


@settings(deadline=None, max_examples=examples(10))
@given(st.floats(-290, 290), st.floats(-3, 3))
def test_units_and_constants(exponent, constant):
    truth = photograph(64)[..., 0]
    noisy = truth + 0.1 * white(64, 64)
    plain = kf.denoise(noisy, noise=0.1)
    unit = 10.0**exponent
    moved = kf.denoise(unit * (noisy + constant), noise=0.1 * unit)
    assert moved.report.noise.method == plain.report.noise.method
    np.testing.assert_allclose(moved.on_grid() / unit - constant, plain.on_grid(), atol=1e-4)


def test_units_of_axes():
    truth = surface()
    noisy = truth + 0.1 * white(*truth.shape)
    plain = kf.denoise(noisy)
    axes = [1e-5 * np.arange(80), 3e4 * np.arange(87)]
    moved = kf.denoise(noisy, axes)
    np.testing.assert_allclose(moved.on_grid(), plain.on_grid(), atol=1e-7)
    assert plain.report.units is None
    assert np.prod(moved.report.units) == pytest.approx(1)


def test_channels_without_noise_stay():
    truth = photograph(96)
    noisy = truth.copy()
    noisy[..., 1] += 0.1 * white(96, 96)
    found = kf.denoise(noisy, noise=[0.0, 0.1, 0.0]).on_grid()
    np.testing.assert_allclose(found[..., [0, 2]], truth[..., [0, 2]], atol=1e-3)
    assert error(found[..., 1], truth[..., 1]) < 0.05


@pytest.mark.parametrize("thorough", [False, True])
def test_many_threads_or_one_give_the_same_bits(thorough):
    noisy = (data.astronaut()[:, :256] / 255 + 0.1 * white(512, 256, 3)).astype(np.float32)
    removal = Removal.of(noisy.transpose(2, 0, 1), known_noise(0.1, 3))
    removal = replace(removal, groups=groups_after(2, 3, thorough, DEFAULT))
    assert len(slabs((3, 512, 256), removal.reach((512, 256)))) > 1
    first = removal(noisy.transpose(2, 0, 1))
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        np.testing.assert_array_equal(removal(noisy.transpose(2, 0, 1)), first)


def test_channels_in_different_units():
    """A channel is denoised as well beside one in larger units, with gaps or without."""
    squares = np.kron(np.random.default_rng(0).random((8, 8)), np.ones((12, 12)))
    truth = np.stack([squares, squares.T], axis=-1)
    noisy = truth + 0.1 * white(*truth.shape)
    units = np.array([1.0, 1e6])
    for options in ({}, {"mask": gaps((96, 96), 0.1)}):
        found = kf.denoise(noisy * units, noise=0.1 * units, **options).on_grid() / units
        assert error(found[..., 0], truth[..., 0]) < 0.05
        assert error(found[..., 1], truth[..., 1]) < 0.05


def test_a_small_grid_has_an_expected_error():
    truth = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((8, 8)))
    field = kf.denoise(truth + 0.05 * white(16, 16), noise=0.05)
    assert np.isfinite(field.report.noise.expected_error)
    json.dumps(field.report.to_dict(), allow_nan=False)
    with pytest.raises(kf.InputError, match=r"thorough: got 'no'.*True or False"):
        kf.denoise(truth, thorough="no")


def test_a_large_constant_does_not_lose_digits():
    truth = photograph(64)[..., 0]
    noisy = truth + 0.1 * white(64, 64)
    far = kf.denoise(noisy + 1e7, noise=0.1).on_grid() - 1e7
    np.testing.assert_allclose(far, kf.denoise(noisy, noise=0.1).on_grid(), atol=1e-5)


# The field


def test_other_values_are_denoised_alike():
    truth = photograph(96)
    field = kf.denoise(truth + 0.1 * white(*truth.shape))
    other = truth[::-1] + 0.1 * white(*truth.shape, seed=5)
    again = field.refit(other)
    assert error(again.on_grid(), truth[::-1]) < 0.05
    assert again.report.noise.method == "shrinkage"


def test_copies_pickles_and_files(tmp_path):
    truth = photograph(96).astype(np.float32)
    noisy = truth + np.float32(0.1) * white(*truth.shape).astype(np.float32)
    field = kf.denoise(noisy)
    values = field.on_grid((50, 70))
    text = pickle.dumps(field)
    assert len(text) < 1.3 * noisy.nbytes + 20_000
    again = pickle.loads(text)
    for other in (again, copy.deepcopy(field)):
        np.testing.assert_array_equal(other.on_grid((50, 70)), values)
        assert other.report.noise == field.report.noise
    np.testing.assert_array_equal(again.refit(noisy).on_grid(), field.on_grid())
    field.save(tmp_path / "clean.kf")
    np.testing.assert_allclose(kf.load(tmp_path / "clean.kf").on_grid((50, 70)), values, atol=1e-6)
    assert field.report.to_dict()["noise"]["method"] == "shrinkage"
    assert "removed by shrinkage" in str(field.report)


# Risk


def known_noise(sigma, channels=1):
    return Noise(
        np.full(channels, sigma), np.full(channels, sigma), np.eye(channels), 1.0, True, ""
    )


def test_the_risk_of_a_smoother_is_that_of_its_trace():
    values = (surface(40) + 0.1 * white(40, 47))[None]
    axes = [np.arange(40.0), np.arange(47.0)]
    smoothing = best_smoothing(values, axes, np.eye(1), np.array([0.1]), 1.0)[1]
    clean = smoother(smoothing, axes)
    impulses = np.eye(40 * 47).reshape(-1, 1, 40, 47)
    trace = sum(clean(one).ravel()[i] for i, one in enumerate(impulses))
    exact = np.mean((clean(values) - values) ** 2) / 0.01 - 1 + 2 * trace / values.size
    found = [
        np.mean(Risk.of(values, known_noise(0.1), seed=seed).terms(clean)) for seed in range(20)
    ]
    assert np.mean(found) == pytest.approx(exact, abs=3 * np.std(found) / np.sqrt(20))
    assert smoothing.score == pytest.approx(exact, rel=1e-6)


def test_the_risk_of_shrinkage_is_unbiased():
    truth = photograph(64).transpose(2, 0, 1)
    estimated, true = [], []
    for seed in range(12):
        values = truth + 0.1 * white(3, 64, 64, seed=seed)
        noise = known_noise(0.1, 3)
        removal = Removal.of(values, noise)
        estimated.append(np.mean(Risk.of(values, noise, seed=seed).terms(removal)))
        true.append(np.mean((removal(values) - truth) ** 2) / 0.01)
    assert np.mean(estimated) == pytest.approx(np.mean(true), rel=0.05)


def test_slabs_of_a_removal_are_those_of_the_whole():
    values = (photograph(160) + 0.1 * white(160, 160, 3)).transpose(2, 0, 1)
    removal = Removal.of(values, known_noise(0.1, 3))
    whole, level = removal(values), removal.level(values)
    with one_blas_thread():
        for slab in slabs(values.shape, removal.reach(values.shape[1:]), most=1):
            part = removal.slab(values[:, slab.needed], slab, values.shape[1:], level)
            np.testing.assert_allclose(part[:, slab.inner], whole[:, slab.rows], atol=1e-5)


# Noise that depends on the signal


def variances(m):
    return 0.0004 + 0.02 * m


def test_the_transform_stabilises_and_its_inverse_is_unbiased():
    transform = Stabiliser.of(variances, 0.0, 1.0)
    for m in (0.05, 0.3, 0.9):
        noisy = m + np.sqrt(variances(m)) * white(200_000)
        # to first order only: at 0.05 the noise is as large as the mean
        assert np.std(transform(noisy)) == pytest.approx(1, abs=0.15 if m == 0.05 else 0.05)
        assert transform.inverse(np.mean(transform(noisy))) == pytest.approx(m, abs=2e-3)
        assert transform.sigma(np.array([m])) == pytest.approx(np.sqrt(variances(m)), rel=0.03)
    x = np.linspace(-3, 4, 2000)
    assert np.all(np.diff(transform(x)) > 0)
    assert np.all(np.diff(transform.inverse(transform(x))) > 0)


@pytest.mark.parametrize("kind", ["counts", "proportional"])
def test_noise_that_depends_on_the_signal_is_found(kind):
    truth = photograph(192)
    rng = np.random.default_rng(3)
    if kind == "counts":
        noisy, sigma = rng.poisson(30 * truth) / 30, lambda m: np.sqrt(m / 30)
    else:
        noisy, sigma = truth * (1 + 0.2 * white(*truth.shape)), lambda m: 0.2 * m
    planes = noisy.transpose(2, 0, 1)
    transforms = find_stabilisers(planes, find_noise(planes).rotation)
    at = np.array([0.4, 0.6])
    np.testing.assert_allclose(transforms[0].sigma(at), sigma(at), rtol=0.2)
    field = kf.denoise(noisy)
    assert field.report.noise.stabilised
    plain = Removal.of(planes, find_noise(planes))(planes).transpose(1, 2, 0)
    assert error(field.on_grid(), truth) < 0.9 * error(plain, truth)


@pytest.mark.parametrize("sigma", [0.03, 0.1])
def test_equal_noise_is_not_taken_for_noise_that_depends_on_the_signal(sigma):
    for picture in (data.astronaut(), data.coffee(), data.chelsea(), data.rocket()):
        truth = picture[60:252, 60:252] / 255
        noisy = (truth + sigma * white(*truth.shape)).transpose(2, 0, 1)
        assert find_stabilisers(noisy, find_noise(noisy).rotation) is None


# Noise that is cut off


def cut_off(truth, sigma, seed=0):
    return np.clip(truth + sigma * white(*truth.shape, seed=seed), 0, 1)


def contrasty(side=160):
    """A photograph with black shadows and white lights."""
    return np.clip(1.5 * photograph(side) - 0.3, 0, 1)


def test_the_inverse_knows_the_mean_of_noise_that_is_cut_off():
    transform = Stabiliser.of(lambda x: np.full(np.shape(x), 0.01), 0.0, 1.0, (0.0, 1.0))
    for x in (0.0, 0.05, 0.5, 1.0):
        noisy = np.clip(x + 0.1 * white(200_000), 0, 1)
        assert transform.noisy_mean(np.array([x])) == pytest.approx(noisy.mean(), abs=1e-3)
        assert transform.sigma(np.array([x])) == pytest.approx(noisy.std(), rel=0.01)
        assert transform.inverse(np.mean(transform(noisy))) == pytest.approx(x, abs=2e-3)
    slope = transform.slope(np.array([0.0, 0.5]))
    assert slope == pytest.approx([0.5, 1.0], abs=0.03)
    free = Stabiliser.of(lambda x: np.full(np.shape(x), 0.01), 0.0, 1.0)
    assert free.inverse(free(np.array([0.0]))) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("sigma", [0.1, 0.2])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_error_where_noise_is_cut_off(sigma, channels):
    """The mean of the noise is corrected, and the expected error is not too small."""
    truth = contrasty()[..., :channels]
    noisy = cut_off(truth, sigma)
    field = kf.denoise(noisy, channels=True)
    found = error(field.on_grid(), truth)
    assert field.report.noise.cut_off
    assert not field.report.noise.stabilised
    assert "cut off" in str(field.report)
    assert 0.85 < field.report.noise.expected_error / found < 1.5
    planes = noisy.transpose(2, 0, 1)
    plain = Removal.of(planes, find_noise(planes))(planes).transpose(1, 2, 0)
    assert found < 0.95 * error(plain, truth)


def test_noise_that_is_not_cut_off():
    """Rounded values, counts and saturated areas keep their mean."""
    truth = photograph()
    levels = np.round(255 * (0.2 + 0.5 * truth) + 12 * white(*truth.shape))
    assert not kf.denoise(levels).report.noise.cut_off
    counts = np.random.default_rng(0).poisson(4 * truth)
    assert not kf.denoise(counts, noise=1.4).report.noise.cut_off
    bright = np.where(truth > 0.7, 1.0, np.minimum(truth + 0.1 * white(*truth.shape), 1))
    field = kf.denoise(bright, noise=0.1)
    assert not field.report.noise.cut_off


# Gaps


def gaps(shape, share, seed=9):
    return np.random.default_rng(seed).random(shape) < share


@pytest.mark.parametrize(("share", "sigma"), [(0.1, None), (0.5, 0.1)])
def test_gaps_are_filled_and_noise_is_removed(share, sigma):
    truth = photograph(128)
    missing = gaps((128, 128), share)
    noisy = truth + 0.1 * white(*truth.shape)
    noisy[missing] = np.nan
    field = kf.denoise(noisy, mask=missing, noise=sigma)
    linear = kf.fit(noisy, mask=missing)
    assert field.report.noise.method == "shrinkage"
    assert field.report.noise.sigma == pytest.approx([0.1] * 3, rel=0.05)
    assert field.report.filled == missing.sum()
    assert error(field.on_grid(), truth) < 0.8 * error(linear.on_grid(), truth)
    again = field.refit(noisy)
    np.testing.assert_allclose(again.on_grid(), field.on_grid(), atol=1e-6)
    copied = pickle.loads(pickle.dumps(field))
    np.testing.assert_array_equal(copied.on_grid(), field.on_grid())


def test_smooth_data_with_gaps_are_smoothed():
    truth = surface()
    for seed in range(2):
        missing = gaps(truth.shape, 0.3, seed)
        noisy = truth + 0.1 * white(*truth.shape, seed=seed)
        field = kf.denoise(noisy, mask=missing)
        assert field.report.noise.method == "a penalised fit"
        assert "not clearly better" in field.report.chosen_by
        assert error(field.on_grid(), truth) < 0.03


def test_gaps_without_noise():
    truth = photograph(96)
    missing = gaps((96, 96), 0.2)
    with pytest.warns(kf.NoiseWarning, match="nothing was removed"):
        field = kf.denoise(truth, mask=missing)
    np.testing.assert_allclose(field.on_grid()[~missing], truth[~missing], atol=1e-4)


def test_gaps_in_any_units():
    truth = np.kron(np.random.default_rng(0).random((6, 6)), np.ones((16, 16)))
    missing = gaps(truth.shape, 0.2)
    noisy = truth + 0.1 * white(*truth.shape)
    plain = kf.denoise(noisy, mask=missing, noise=0.1)
    expected = plain.report.noise.expected_error
    # hidden samples are predicted, which is harder than denoising known ones
    assert 1 < expected / error(plain.on_grid(), truth) < 2.5
    for unit in (1e-300, 1e150):
        found = kf.denoise(unit * noisy, mask=missing, noise=0.1 * unit)
        assert found.report.noise.method == plain.report.noise.method == "shrinkage"
        np.testing.assert_allclose(found.on_grid() / unit, plain.on_grid(), atol=1e-4)
        assert found.report.noise.expected_error / unit == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("shape", [(17,) * 4, (8,) * 5, (8,), (2, 3), (3,)])
def test_gaps_in_small_or_deep_grids(shape):
    values = white(*shape)
    missing = gaps(shape, 0.2)
    missing.flat[0] = True
    missing.flat[1] = False
    assert np.all(np.isfinite(kf.fit(values, mask=missing, channels=False).on_grid()))
    assert np.all(
        np.isfinite(kf.denoise(values, noise=1.0, mask=missing, channels=False).on_grid())
    )


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 0.5])
def test_noise_is_found_from_known_samples_only(share):
    truth = photograph(256).transpose(2, 0, 1)
    known = ~gaps((256, 256), share)
    for sigma in (0.0, 0.1):
        values = np.where(known, truth + sigma * white(*truth.shape), 1e6)  # not looked at
        found = find_noise(values, known=known)
        assert found.is_found == (sigma > 0)
        if sigma:
            assert found.sigma == pytest.approx([sigma] * 3, rel=0.05)


# Standard errors


def test_standard_errors_of_a_penalised_fit():
    x, y = np.linspace(0, 1, 24), np.linspace(0, 2, 21)
    truth = np.stack([np.sin(5 * x)[:, None] * np.cos(2 * y), np.exp(x)[:, None] * y], axis=-1)
    points = np.random.default_rng(4).uniform([0, 0], [1, 2], (300, 2))
    exact = np.stack(
        [
            np.sin(5 * points[:, 0]) * np.cos(2 * points[:, 1]),
            np.exp(points[:, 0]) * points[:, 1],
        ],
        axis=1,
    )
    inside = []
    for seed in range(8):
        field = kf.denoise(truth + 0.1 * white(*truth.shape, seed=seed), [x, y], noise=0.1)
        assert field.report.noise.method == "a penalised fit"
        errors = field.standard_error(points)
        assert errors.shape == (300, 2)
        inside.append(np.mean(np.abs(field(points) - exact) < 2 * errors))
    assert 0.88 < np.mean(inside) <= 1.0
    np.testing.assert_allclose(field.standard_error(points, noise=0.2), 2 * errors, rtol=1e-6)
    again = pickle.loads(pickle.dumps(field))
    np.testing.assert_allclose(again.standard_error(points), errors)


def test_standard_errors_at_the_samples_are_those_of_the_hat_matrix():
    values = np.sin(np.arange(40) / 6) + 0.1 * white(40)
    field = kf.denoise(values, noise=0.1)
    assert field.report.noise.method == "a penalised fit"
    hat = np.stack([field.refit(one).on_grid() for one in np.eye(40)], axis=1)
    found = field.standard_error(np.arange(40.0)[:, None])
    np.testing.assert_allclose(found, 0.1 * np.sqrt(np.diag(hat)), rtol=1e-6)


def test_shrinkage_has_no_standard_error():
    field = kf.denoise(photograph(96) + 0.1 * white(96, 96, 3))
    with pytest.raises(kf.InputError, match=r"not linear.*expected_error"):
        field.standard_error([[1.0, 2.0]])


def test_slopes_along_edges_follow_a_penalised_fit(monkeypatch):
    """Of noise that a penalised fit removes from the samples, little is left between them."""

    def rings(i, j):
        return np.tanh(4 * np.sin(np.hypot(i - 20, j - 13) * 2 * np.pi / 10))

    i, fine = np.arange(64.0), np.arange(126) / 2 + 0.25
    noisy = rings(i[:, None], i) + 0.1 * np.random.default_rng(0).standard_normal((64, 64))
    # shrinkage must be better by very many standard errors
    other = changed(DEFAULT, "noise", "confidence", 1e9)

    def fitted():
        return kf.fit(noisy, [i, i], noise=0.1, settings=other)

    field = fitted()
    assert field.report.noise.method == "a penalised fit"
    assert field.report.refined
    assert "between the samples: mean squared" in field.report.chosen_by
    assert field.report.chosen_by.count("noise was given") == 1  # not that 0 was, in between
    with pytest.raises(kf.InputError, match="slopes along edges, which are not linear"):
        field.standard_error([[3.0, 3.0]])
    again = pickle.loads(pickle.dumps(field)).refit(noisy)
    np.testing.assert_array_equal(again.on_grid([fine, fine]), field.on_grid([fine, fine]))
    asked = kf.denoise(noisy, [i, i], noise=0.1, settings=other)
    assert not asked.report.refined
    np.testing.assert_allclose(asked.on_grid(), field.on_grid(), atol=1e-6)
    monkeypatch.setattr(grid_choice, "_is_along_edges", lambda choice: False)
    linear = fitted()
    assert not linear.report.refined
    error, before = (
        np.sqrt(np.mean((one.on_grid([fine, fine]) - rings(fine[:, None], fine)) ** 2))
        for one in (field, linear)
    )
    assert error < 0.97 * before
