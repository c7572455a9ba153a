"""Noise on grids: it is found where it is, measured rightly, and nothing else is taken for it."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.fitting import denoised_gaps, settings as decisions
from kronfield.fitting.noise import (
    Noise,
    _axes_of_known,
    _Bands,
    _differences,
    _most_samples,
    _repetition,
    _SmoothLines,
    _Stencil,
    decorrelated,
    find_noise,
)
from kronfield.fitting.settings import NoiseSettings
from kronfield.fitting.splines import _thinned
from kronfield.fitting.stabilising import cut_off_ends, find_stabilisers

DEFAULT = decisions.DEFAULT.noise


def wave(*shape):
    """A smooth function on the unit cube, one plane with values in about [-1, 1]."""
    axes = np.meshgrid(*[np.linspace(0, 1, n) for n in shape], indexing="ij")
    return np.sin(3 * sum(axes) + 1)[None] * np.cos(2 * axes[0])


def white(sigma, *shape, seed=0):
    return sigma * np.random.default_rng([seed, 1]).standard_normal(shape)


def power_law(exponent, *shape, seed=0):
    """A random field with power 1 / frequency^exponent: one plane, standard deviation 1."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.fft.fftfreq(n) for n in shape], indexing="ij")
    f = np.maximum(np.sqrt(sum(axis**2 for axis in axes)), 1 / max(shape))
    field = np.fft.ifftn(np.fft.fftn(rng.standard_normal(shape)) / f ** (exponent / 2)).real
    return (field / field.std())[None]


def textured(side=256, seed=3):
    """A grey picture: texture nearly everywhere, and a fifth of it flat."""
    texture = power_law(3, side, side, seed=seed)
    texture[:, : side // 5] *= 0.05
    return texture


def somewhere():
    """Noise that is weak in 60 % of the samples."""
    return white(1.0, 1, 128, 128) * np.where(np.arange(128) < 77, 0.2, 1.0)


def detected(lines, used):
    return np.mean([find_noise(line, used).is_found for line in lines])


# --- what is found, and what is not ---------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300,), (5000,), (48, 64), (256, 256), (24, 30, 26), (16,) * 4])
@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_noise_on_smooth_functions_is_found_and_measured(shape, sigma):
    noise = find_noise(wave(*shape) + white(sigma, 1, *shape))
    assert noise.is_found, noise.reason
    assert noise.sigma == pytest.approx(sigma, rel=0.15 if len(shape) == 1 else 0.05)
    assert DEFAULT.ratio < noise.ratio < 1 / DEFAULT.ratio
    assert f"{noise.sigma[0]:.3g}" in noise.reason


@pytest.mark.parametrize(
    "shape", [(50,), (300,), (70_000,), (12, 12), (256, 256), (20,) * 3, (12,) * 4]
)
def test_smooth_functions_are_not_noisy(shape):
    for values in (wave(*shape), wave(*shape).astype(np.float32), np.float16(wave(*shape))):
        assert not find_noise(values).is_found


@pytest.mark.parametrize("levels", [2, 16, 255, 65_535])
@pytest.mark.parametrize("shape", [(400,), (128, 128), (30, 30, 30)])
def test_rounding_is_not_noise(levels, shape):
    values = np.round(levels * (wave(*shape) + 1) / 2)
    for scaled in (values, values.astype(np.int32), values / levels, np.float32(values / levels)):
        assert not find_noise(scaled).is_found
    assert not find_noise((values / levels) ** 2.2).is_found  # steps of many sizes


@pytest.mark.parametrize("exponent", [1.5, 2, 3, 4])
@pytest.mark.parametrize("shape", [(200,), (20_000,), (60, 60), (250, 250), (40, 40, 40)])
def test_random_fields_are_not_noisy(exponent, shape):
    found = [find_noise(power_law(exponent, *shape, seed=seed)) for seed in range(5)]
    assert not any(noise.is_found for noise in found)
    assert np.mean([noise.ratio for noise in found]) < 0.75


@pytest.mark.parametrize("period", [2.0, 2.2, 2.6, 3.0, 3.2, 3.4, 3.8, 4.0, 5.5, 9.0, 30.0])
@pytest.mark.parametrize("count", [120, 1000, 30_000])
def test_tones_are_not_noisy_but_noise_on_slow_ones_is_found(period, count):
    tone = np.sin(2 * np.pi * np.arange(count) / period + 0.4)[None]
    assert not find_noise(tone).is_found
    if period == 30.0 and count >= 1000:
        assert find_noise(tone + white(0.05, 1, count)).is_found


def test_drawings_are_not_noisy_but_noise_on_them_is_found():
    rng = np.random.default_rng(0)
    drawing = np.zeros((3, 200, 200))
    for _ in range(60):
        top, left, height, width = rng.integers(0, 150, 4)
        drawing[:, top : top + height, left : left + width] = rng.random((3, 1, 1))
    for values in (drawing, drawing[:1], drawing > 0.5):
        assert not find_noise(values * 1.0).is_found
    y, x = np.mgrid[:200, :200]
    for size in (1, 2, 3, 7):
        assert not find_noise(((x // size + y // size) % 2)[None]).is_found
    noise = find_noise(drawing + white(0.05, *drawing.shape))
    assert noise.is_found
    assert noise.sigma == pytest.approx(0.05, rel=0.03)


def test_noise_that_depends_on_the_signal_and_8_bits():
    values = (wave(200, 200) + 1) / 2
    counts = np.random.default_rng(0).poisson(200 * values) / 200.0
    assert find_noise(counts).is_found
    pixels = np.round(255 * np.clip(values + np.sqrt(values) * white(0.05, *values.shape), 0, 1))
    noise = find_noise(pixels.astype(np.uint8))
    assert noise.is_found
    assert 0.3 * 0.05 * 255 < noise.sigma[0] < 0.05 * 255


def test_a_constant_background_says_nothing():
    """As around the brain in a volume: noise inside is found all the same."""
    i = np.indices((60, 60, 60)) - 30
    inside = np.sum(i**2, axis=0) < 24**2
    volume = np.where(inside, 1 + 0.3 * np.sin(i[0] / 8), 0.0)[None]
    assert not find_noise(volume).is_found
    noise = find_noise(volume + inside * white(0.05, 1, 60, 60, 60))
    assert noise.is_found
    assert noise.sigma[0] == pytest.approx(0.05, rel=0.25)


def test_correlated_noise_is_not_found():
    noise = white(1.0, 1, 128, 128)
    assert find_noise(noise).is_found
    assert not find_noise(noise[:, 1:] + noise[:, :-1]).is_found


# --- channels -------------------------------------------------------------------------------------


def test_channels_show_noise_below_a_common_texture():
    texture = power_law(2, 200, 200)
    picture = texture * np.array([1.0, 0.9, 0.7])[:, None, None]
    assert not find_noise(picture).is_found
    noise = find_noise(picture + white(0.02, 3, 200, 200))
    assert noise.is_found
    assert noise.sigma == pytest.approx(0.02, rel=0.03)
    assert noise.sigmas == pytest.approx(0.02, rel=0.03)
    assert not find_noise(picture[:1] + white(0.02, 1, 200, 200)).is_found  # one channel hides it


def test_channels_of_unequal_noise():
    sigma = np.array([0.02, 0.05, 0.1])
    values = wave(150, 150) * np.ones((3, 1, 1))
    noise = find_noise(values + white(1.0, 3, 150, 150) * sigma[:, None, None])
    assert noise.is_found
    assert noise.sigma == pytest.approx(sigma, rel=0.05)


@pytest.mark.parametrize("copies", [2, 4])
def test_equal_and_constant_channels_say_nothing(copies):
    grey = textured() + white(0.1, 1, 256, 256)
    alone = find_noise(grey)
    assert alone.is_found
    repeated = find_noise(np.repeat(grey, copies, axis=0))
    assert repeated.is_found
    assert repeated.sigma == pytest.approx(alone.sigma[0], rel=1e-3)
    opaque = find_noise(np.concatenate([grey, np.ones_like(grey)]))
    assert opaque.is_found
    assert opaque.sigma == pytest.approx([alone.sigma[0], 0.0], rel=1e-3, abs=1e-6)


def test_clean_colour_is_evidence_against_noise():
    """Texture that looks like noise in one channel, while another is clean and above rounding."""
    clean = wave(200, 200)
    values = np.concatenate([white(1.0, 1, 200, 200), clean + 0.05 * power_law(2, 200, 200)])
    assert not find_noise(values).is_found


@pytest.mark.parametrize(("channels", "count"), [(3, 200), (20, 200), (150, 100), (40, 2000)])
def test_many_channels_and_few_samples(channels, count):
    values = wave(count) * np.linspace(0.2, 1, channels)[:, None]
    assert not find_noise(values).is_found
    noise = find_noise(values + white(0.1, channels, count))
    assert noise.is_found
    assert noise.sigma == pytest.approx(0.1, rel=0.3)
    assert noise.sigma.mean() == pytest.approx(0.1, rel=0.1)


def test_decorrelated_is_a_rotation_with_the_weakest_plane_first():
    texture = power_law(2, 100, 90)
    values = texture * np.array([1.0, -0.5, 2.0])[:, None, None] + white(0.01, 3, 100, 90)
    rotation, planes = decorrelated(values)
    assert rotation @ rotation.T == pytest.approx(np.eye(3), abs=1e-12)
    assert planes == pytest.approx(np.tensordot(rotation, values, 1))
    assert np.abs(rotation[2]) == pytest.approx(np.array([1, 0.5, 2]) / np.sqrt(5.25), abs=3e-2)
    spread = planes.std(axis=(1, 2))
    assert spread[:2].max() < 0.02 < spread[2]
    assert decorrelated(values.astype(np.float32))[1].dtype == np.float32
    assert find_noise(values).rotation == pytest.approx(rotation, abs=1e-4)


@pytest.mark.parametrize("values", [np.zeros((3, 20, 20)), np.ones((2, 5)), np.ones((1, 1))])
def test_decorrelated_without_differences_is_the_identity(values):
    rotation, planes = decorrelated(values)
    np.testing.assert_array_equal(rotation, np.eye(len(values)))
    np.testing.assert_array_equal(planes, values)


# --- the same decision in other units and orders --------------------------------------------------


def same(one: Noise, other: Noise, unit=1.0, order=None):
    assert one.is_found == other.is_found
    assert other.ratio == pytest.approx(one.ratio, rel=1e-3)
    expected = one.sigma if order is None else one.sigma[list(order)]
    assert other.sigma == pytest.approx(unit * expected, rel=1e-3, abs=1e-6 * unit)


cases = st.tuples(
    st.sampled_from(
        [(3, 33, 50), (1, 40, 61), (2, 301), (1, 64, 64), (2, 17, 18, 19), (3, 6, 40, 9)]
    ),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.integers(0, 1000),
)


def example(case):
    shape, sigma, seed = case
    texture = power_law(2, *shape[1:], seed=seed) * np.linspace(1, 0.4, shape[0]).reshape(
        -1, *[1] * (len(shape) - 1)
    )
    return texture + white(sigma, *shape, seed=seed)


@given(cases, st.sampled_from([1e-200, 1e-9, 0.3, 255.0, 1e12, 1e200]), st.booleans())
@hypothesis_settings(max_examples=examples(40), deadline=None)
def test_units_and_signs_change_nothing(case, unit, negative):
    values = example(case)
    same(find_noise(values), find_noise((-unit if negative else unit) * values), unit)


@given(cases, st.sampled_from([-1e3, 0.7, 50.0, 1e5]))
@hypothesis_settings(max_examples=examples(40), deadline=None)
def test_added_constants_change_nothing(case, constant):
    values = example(case)
    same(find_noise(values), find_noise(values + constant))


@given(cases, st.data())
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_flips_and_permutations_change_nothing(case, data):
    values = example(case)
    D = values.ndim - 1
    flips = data.draw(st.sets(st.integers(1, D)))
    axes = data.draw(st.permutations(range(1, D + 1)))
    channels = data.draw(st.permutations(range(len(values))))
    other = np.flip(values, tuple(flips)).transpose(0, *axes)[list(channels)]
    same(find_noise(values), find_noise(other), order=channels)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple),
    st.integers(1, 4),
    st.sampled_from(["float64", "float32", "float16", "uint8", "int8", "int32"]),
    st.integers(0, 100),
)
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_any_shape_and_dtype(shape, channels, dtype, seed):
    values = white(20.0, channels, *shape, seed=seed)
    if dtype == "uint8":
        values = np.abs(values)
    before = values.astype(dtype)
    values = before.copy()
    noise = find_noise(values)
    np.testing.assert_array_equal(values, before)
    assert noise.sigma.shape == noise.sigmas.shape == (channels,)
    assert noise.rotation.shape == (channels, channels)
    assert np.isfinite(noise.sigma).all()
    assert (noise.sigma >= 0).all()
    assert noise.reason
    if not any(n >= DEFAULT.shortest for n in shape):
        assert not noise.is_found
    if noise.is_found and np.prod(shape) > 1000 and dtype != "uint8":
        assert 0.8 < noise.sigma.max() / 20 < 1.2
    assert decorrelated(values)[1].shape == values.shape


@pytest.mark.parametrize("count", [1, 2, 7, 8, 12, 16, 20, 30, 50])
def test_few_samples_prove_nothing(count):
    walks = [np.cumsum(white(1.0, 1, count, seed=seed), axis=1) for seed in range(200)]
    assert detected(walks, DEFAULT) <= 0.02


def test_values_that_change_along_a_short_axis_only():
    values = np.broadcast_to(np.arange(5.0)[:, None], (2, 5, 40))
    noise = find_noise(values)
    assert not noise.is_found
    assert "rounding" in noise.reason


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (wave(100), "times as strong as those at twice the spacing, and 0.77 is needed"),
        (np.ones((1, 100)), "constant"),
        (np.ones((1, 4, 7)) * np.arange(7), "no axis has 8 samples"),
        (np.round(5 * wave(100, 100)), "within rounding, 1.5"),
        ((np.arange(100.0) % 2)[None] + 0.1 * wave(100), "as strong as those at a larger spacing"),
        (somewhere(), "not everywhere"),
        (white(1.0, 1, 20, seed=2), "not certain to 95%"),
        (white(1.0, 1, 300), "noise of standard deviation"),
    ],
)
def test_the_reason_is_given_in_words(values, words):
    assert re.search(words, find_noise(values).reason), find_noise(values).reason


def test_no_warnings_from_extremes():
    for values in ([[0.0, 0.0]], [[1e308, -1e308] * 20], [[5e-324, 0.0] * 20], [[3] * 40]):
        assert find_noise(np.array(values)).reason


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(5), "channels first"),
        (np.zeros((0, 5)), "channels first"),
        (np.zeros((1, 5), dtype=complex), "channels first"),
        (np.array([[1.0, np.nan, 2.0]]), "finite"),
        (np.array([[1.0, np.inf, 2.0]]), "finite"),
    ],
)
def test_what_cannot_be_used_is_refused(values, words):
    with pytest.raises(ValueError, match=words):
        find_noise(values)
    with pytest.raises(ValueError, match=words):
        decorrelated(values)


# --- the decisions, each with a test that fails on either side ------------------------------------


def ratio_decides(used):
    """Power 1/f is a signal; white noise with a texture below it is noise."""
    pink = [power_law(1.0, 128, 128, seed=seed) for seed in range(5)]
    noisy = [power_law(2, 128, 128, seed=seed) + white(1.0, 1, 128, 128) for seed in range(5)]
    return detected(pink, used) == 0 and detected(noisy, used) == 1


def confidence_decides(used):
    """Few of many random walks are taken for noise, and nearly all noisy sines are."""
    walks = [np.cumsum(white(1.0, 1, 50, seed=seed), axis=1) for seed in range(100)]
    sines = [wave(90) + white(0.2, 1, 90, seed=seed) for seed in range(100)]
    return detected(walks, used) <= 0.05 and detected(sines, used) >= 0.75


def flat_decides(used):
    """Noise below a texture shows where the picture is flat."""
    noisy = [textured(seed=seed) + white(0.1, 1, 256, 256, seed=seed) for seed in range(3)]
    return detected(noisy, used) == 1


def kept_decides(used):
    """Outliers do not change the strength, and noisy sines are found."""
    spikes = white(0.1, 1, 100, 100)
    spikes[:, ::40, ::40] += 5
    sines = [wave(200) + white(0.1, 1, 200, seed=seed) for seed in range(50)]
    noise = find_noise(spikes, used)
    return noise.is_found and abs(noise.sigma[0] / 0.1 - 1) < 0.2 and detected(sines, used) >= 0.9


def quiet_decides(used):
    """Noise in a part of the samples is not noise; noise everywhere is, on short lines too."""
    lines = [wave(200) + white(0.1, 1, 200, seed=seed) for seed in range(100)]
    return not find_noise(somewhere(), used).is_found and detected(lines, used) >= 0.9


def growth_decides(used):
    """The share of a texture is subtracted from the standard deviation."""
    seeds = range(5)
    noisy = [1.5 * power_law(2, 200, 200, seed=i) + white(1.0, 1, 200, 200, seed=i) for i in seeds]
    found = [find_noise(values, used).sigma[0] for values in noisy]
    return abs(np.mean(found) - 1) < 0.05


def near_decides(used):
    """Waves that are too fast for most samples are no noise; noise in pairs of samples is found."""
    waves, noisy = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.random(300))
        waves.append(find_noise(np.sin(1200 * x)[None], used, positions=[x]).is_found)
        half = rng.random(500)
        x = np.unique(np.concatenate([half, half + 1e-9]))
        values = np.sin(600 * x) + 0.1 * rng.standard_normal(len(x))
        noisy.append(find_noise(values[None], used, positions=[x]).is_found)
    return not any(waves) and all(noisy)


def least_steps_decides(used):
    """Noise of one step of quantised values is left alone, that of 2.5 steps is found."""
    ramp = 30 * wave(128, 128)
    weak = np.round(ramp + white(1.0, 1, 128, 128))
    strong = np.round(ramp + white(2.5, 1, 128, 128))
    return not find_noise(weak, used).is_found and find_noise(strong, used).is_found


def least_part_decides(used):
    weak, strong = (wave(128, 128) + white(sigma, 1, 128, 128) for sigma in (3e-6, 1e-4))
    return not find_noise(weak, used).is_found and find_noise(strong, used).is_found


def unlike_decides(used):
    """Alike channels show noise together, channels in other units apart."""
    texture = power_law(2, 200, 200) * np.array([1.0, 0.9])[:, None, None]
    unlike = np.concatenate([wave(40, 40) + white(0.1, 1, 40, 40), 1e6 * wave(40, 40) ** 2])
    together = find_noise(texture + white(0.02, 2, 200, 200), used).is_found
    return together and find_noise(unlike, used).is_found


def shortest_decides(used):
    few, enough = white(1.0, 1, 7, 7, 7, 7), white(1.0, 1, 24, 24)
    return "no axis" in find_noise(few, used).reason and find_noise(enough, used).is_found


def most_samples_decides(used):
    """Noise is found in the centre, and nothing else is looked at."""
    found = []
    for seed in range(5):
        values = wave(512, 512)
        values[:, 128:384, 128:384] += white(0.05, 1, 256, 256, seed=seed)
        found.append(find_noise(values, used).is_found)
    return all(found)


def many_known_decides(used):
    """Of 60 x 60 samples with a gap both axes are compared, of 40 x 40 one."""
    axes = []
    for n in (40, 60):
        known = np.ones((n, n), dtype=bool)
        known[n // 2, n // 2] = False
        axes.append(len(_axes_of_known(known, [1, 2], used)))
    return axes == [1, 2]


def whole_channels_decides(used):
    counts = [_most_samples(C, used) for C in (1, 4, 8)]
    return counts == [used.most_samples, used.most_samples, used.most_samples // 2]


def varies_decides(used):
    """Counts have noise that depends on the signal, and equal noise has not."""
    ramp = np.tile(np.linspace(0.2, 1, 128), (128, 1))[None]
    counts = np.random.default_rng(0).poisson(60 * ramp) / 60
    equal = ramp + white(0.1, 1, 128, 128)
    found = [find_stabilisers(one, np.eye(1), settings=used) for one in (counts, equal)]
    return found[0] is not None and found[1] is None


def counted(*shape, lowest=0.1):
    """Counts of a ramp along the last axis, whose noise depends on the signal."""
    ramp = np.broadcast_to(np.linspace(lowest, 1, shape[-1]), shape)
    return np.random.default_rng(0).poisson(60 * ramp)[None] / 60


def is_varying(values, used):
    """Tell whether the variance varies, whatever the distribution of the noise."""
    used = replace(used, varies_normal=0.0)
    return find_stabilisers(values, np.eye(1), settings=used) is not None


def varies_fewest_decides(used):
    """54² places, of which the flattest tenth is used, are too few; 118² are enough."""
    return not is_varying(counted(64, 64), used) and is_varying(counted(128, 128), used)


def grainy():
    """Equal noise on a ramp, with a texture that grows with brightness where shades change."""
    rows, ramp = np.arange(128)[:, None], np.linspace(0.2, 1, 128)
    texture = 0.4 * ramp**2 * np.sin(2.5 * np.arange(128)) * np.sin(2.5 * rows)
    shades = 0.4 * ramp * np.sin(rows / 6)
    return (ramp + (texture + shades) * (rows > 50))[None] + white(0.05, 1, 128, 128)


def varies_flat_decides(used):
    """A texture that is not everywhere is not taken for noise; the noise of counts is found."""
    return not is_varying(grainy(), used) and is_varying(counted(128, 128), used)


def varies_classes_decides(used):
    """A ramp that is steep where it is bright has flat places of every brightness, by classes."""
    x = np.linspace(0, 1, 160)
    steep = np.tile(0.1 + 0.3 * x + 6 * np.maximum(x - 0.8, 0), (160, 1))
    counts = np.random.default_rng(0).poisson(200 * steep)[None] / 200
    found = find_stabilisers(counts, np.eye(1), settings=used)
    if found is None:
        return False
    at = np.array([0.2, 0.8, 1.2])
    is_right = np.abs(found[0].sigma(at) / np.sqrt(at / 200) - 1).max() < 0.1
    return is_right and not is_varying(grainy(), used)


def varies_cut_decides(used):
    """Single bright samples are no noise, and the noise of counts is right to a few per cent."""
    values = wave(160, 160) + white(0.05, 1, 160, 160)
    spots = (np.random.default_rng(2).random(values.shape) < 0.005) & (values > 0)
    if is_varying(values + 2.0 * spots, used):
        return False
    found = find_stabilisers(counted(160, 160), np.eye(1), settings=used)
    ramp = np.linspace(0.1, 1, 160)
    return found is not None and abs(np.mean(found[0].sigma(ramp) / np.sqrt(ramp / 60)) - 1) < 0.05


def varies_box_decides(used):
    """Axes of 21 samples are too short, those of 22 are not."""
    few = replace(used, varies_fewest=100)
    short, long = counted(21, 21, 21, lowest=0.02), counted(22, 22, 22, lowest=0.02)
    return not is_varying(short, few) and is_varying(long, few)


def cut_off(values, used, sigma=0.1):
    return cut_off_ends(values, np.array([sigma]), 1.0, used)[0]


def dark(part):
    """A ramp that is black in a part of its rows, with noise that is cut off at black."""
    truth = np.where(np.arange(200)[:, None] < 200 * part, 0.0, np.linspace(0.6, 1, 200))[None]
    return np.maximum(truth + white(0.1, *truth.shape), 0)


def cut_off_decides(used):
    """Noise that is cut off at half of 5 % of the samples is noticed, of 0.3 % it is not."""
    dots = white(0.1, 1, 200, 200) + 0.7
    dots[0, ::20, ::17] = np.maximum(white(0.1, 10, 12), 0)  # 0.3 %, half of these are cut off
    ends = cut_off(dark(0.05), used), cut_off(dots, used)
    return ends == ((0.0, np.inf), (-np.inf, np.inf))


def cut_off_mean_decides(used):
    """Zeros of counts are no noise that is cut off, nor is a masked area."""
    few = np.random.default_rng(1).poisson(np.tile(np.linspace(0.2, 30, 200), (200, 1)))[None]
    masked = np.where(np.arange(200)[:, None] < 50, 0.0, 0.3 + white(0.1, 1, 200, 200))
    masked = np.maximum(masked, 0)
    ends = cut_off(dark(0.3), used)[0], cut_off(few, used, 4.0)[0], cut_off(masked, used)[0]
    return ends == (0.0, -np.inf, -np.inf)


def cut_off_next_decides(used):
    """A ramp from 0 is cut off there. Magnitudes, a few of which are 0, are not: many are small."""
    ramp = np.maximum(np.linspace(0, 1, 200)[:, None] + white(0.1, 1, 200, 200), 0)
    magnitudes = np.abs(white(0.1, 1, 200, 200))
    magnitudes[0, ::14, ::14] = 0.0  # 0.6 %
    ends = cut_off(ramp, used)[0], cut_off(magnitudes, used)[0]
    return ends == (0.0, -np.inf)


def cut_off_away_decides(used):
    """Constant noise seems to vary near an end; noise that varies is found away from it."""
    ramp = np.tile(np.linspace(-0.15, 0.85, 256), (256, 1))[None]
    even = ramp + white(0.1, *ramp.shape)
    grows = ramp + white(1.0, *ramp.shape) * (0.04 + 0.12 * ramp)
    end, sigma = [(0.0, np.inf)], np.array([0.1])
    found = [
        find_stabilisers(np.maximum(noisy, 0), np.eye(1), 1.0, used, end, sigma)
        for noisy in (even, grows)
    ]
    return found[0] is None and found[1] is not None


def stars(part, seed=30):
    """Noise of 0.02 and single bright samples of 0.1 to 0.4 in a part of all places."""
    rng = np.random.default_rng(seed)
    bright = (rng.random((128, 128)) < part) * rng.uniform(0.1, 0.4, (128, 128))
    return bright + 0.02 * rng.standard_normal((128, 128))


@pytest.mark.parametrize("seed", range(20, 40))
def test_many_stars_are_no_noise_in_any_draw(seed):
    values = stars(0.02, seed)
    assert kf.fit(values).report.noise is None


def varies_normal_decides(used):
    """Noise of counts varies; bright samples beside dark ones do not make it vary."""
    level = 10 * np.tile(np.linspace(0.1, 1, 200), (200, 1))
    counts = np.random.default_rng(0).poisson(level)[None].astype(float)
    dark = stars(0.02, 28)[None]
    found = [find_stabilisers(one, np.eye(1), settings=used) for one in (counts, dark)]
    return found[0] is not None and found[1] is None


def most_outliers_decides(used):
    """Stars on 1 of 50 samples are no noise, one on 1 of 1000 hides none."""
    many, few = (
        kf.fit(stars(part), settings=replace(decisions.DEFAULT, noise=used)).report.noise
        for part in (0.02, 0.001)
    )
    return many is None and few is not None


def faint(part):
    """Noise of 0.02 and single samples that are five to seven times as bright on some places."""
    rng = np.random.default_rng(30)
    bright = (rng.random((128, 128)) < part) * rng.uniform(0.1, 0.14, (128, 128))
    return bright + 0.02 * rng.standard_normal((128, 128))


def outlying_decides(used):
    """Faint stars on 1 of 50 samples are no noise, bright ones on 1 of 1000 hide none."""
    many, few = (
        kf.fit(values, settings=replace(decisions.DEFAULT, noise=used)).report.noise
        for values in (faint(0.02), stars(0.001))
    )
    return many is None and few is not None


def varies_range_decides(used):
    """Counts of a picture that is dark in more than half: their noise varies."""
    x = np.linspace(0, 1, 160)
    level = np.tile(np.where(x < 0.6, 0.1 + 0.03 * x, 0.12 + 2 * (x - 0.6)), (160, 1))
    return is_varying(np.random.default_rng(0).poisson(200 * level)[None] / 200, used)


def flat_box_decides(used):
    """Noise below a texture shows where the picture is flat."""
    noisy = [textured(seed=seed) + white(0.1, 1, 256, 256, seed=seed) for seed in range(3)]
    return detected(noisy, used) == 1


def bands_of(values, used):
    return _Bands(values[None], 1.0, list(range(1, 1 + values.ndim)), used)


def short_line_decides(used):
    """A line of 300 samples is smoothed, one of 600 is not."""
    short, long = (bands_of(white(1.0, n), used) for n in (300, 600))
    return short.is_short_line and not long.is_short_line


def few_zeros_decides(used):
    """A constant fiftieth of a picture is used as it is, a constant half is left out."""
    little, much = white(1.0, 128, 128), white(1.0, 128, 128)
    little[:18, :18], much[:64] = 0.0, 0.0
    return bands_of(little, used).changing is None and bands_of(much, used).changing is not None


def accuracy_decides(used):
    """An error far below the noise is not promised where the noise was measured."""
    field = kf.fit(
        np.add.outer(np.linspace(0, 1, 256), np.linspace(0, 2, 256)) + white(0.3, 256, 256),
        settings=replace(decisions.DEFAULT, noise=used),
    )
    risk = (field.report.noise.expected_error / field.report.noise.sigma[0]) ** 2
    measured = Noise(np.ones(1), np.ones(1), np.eye(1), 1.0, True, "")
    of_gaps = denoised_gaps._expected(np.ones(10**4), measured, used) ** 2  # just the noise
    given = denoised_gaps._expected(np.ones(10**4), replace(measured, is_given=True), used)
    return 0.01 < of_gaps <= risk < 0.05 and given == 0


@pytest.mark.parametrize("name", [one.name for one in fields(NoiseSettings)])
def test_decision_fails_on_either_side(name):
    check = globals()[f"{name}_decides"]
    assert check(DEFAULT)
    sides = next(one for one in fields(NoiseSettings) if one.name == name).metadata["sides"]
    assert len(sides) == 2
    assert sides[0] < getattr(DEFAULT, name) < sides[1]
    for value in sides:
        assert not check(replace(DEFAULT, **{name: value})), f"{name} = {value}"


# Short lines


def test_smooth_lines_as_dense_matrices():
    n, exponent = 40, 0.75
    lines = np.stack([wave(n)[0] + white(0.2, n, seed=1), np.cumsum(white(1.0, n, seed=2))])
    differences = np.diff(np.eye(n), 2, axis=0)
    penalty = differences.T @ differences
    # all that is not a straight line: the likelihood of the rest
    straight = np.stack([np.ones(n), np.arange(n)], axis=1)
    rest = np.linalg.svd(straight)[0][:, 2:]

    def likelihood(y, covariance):
        inside = rest.T @ covariance @ rest
        factor = (rest.T @ y) @ np.linalg.solve(inside, rest.T @ y) / (n - 2)
        return -0.5 * ((n - 2) * np.log(factor) + np.linalg.slogdet(inside)[1])

    values, vectors = np.linalg.eigh(penalty)
    gain, variances = 0.0, []
    for y in lines:
        noisy, rough, scores = [], [], []
        for weight in 10.0 ** np.arange(-2.0, 4 * np.log10(n / np.pi) + 0.25, 0.25):
            noisy.append(likelihood(y, np.eye(n) + np.linalg.pinv(weight * penalty)))
            hat = np.linalg.inv(np.eye(n) + weight * penalty)
            residual, left = np.sum((y - hat @ y) ** 2), n - np.trace(hat)
            scores.append((residual / left**2, residual / left))
        for a in np.arange(exponent, 4.25, 0.25):
            power = np.append(np.zeros(2), values[2:] ** (-a / 4))
            rough.append(likelihood(y, (vectors * power) @ vectors.T))
        gain += max(noisy) - max(rough)
        variances.append(min(scores)[1])
    found = _SmoothLines.of(lines, exponent)
    assert found.gain == pytest.approx(gain, rel=1e-6)
    assert found.sigma == pytest.approx(np.sqrt(np.mean(variances)), rel=1e-6)


@pytest.mark.parametrize(("n", "part", "spread"), [(90, 0.75, 0.1), (300, 1.0, 0.06)])
def test_noise_of_short_lines_is_found_and_measured(n, part, spread):
    found = [find_noise(wave(n) + white(0.2, 1, n, seed=seed)) for seed in range(60)]
    sigmas = np.array([one.sigma[0] for one in found if one.is_found]) / 0.2
    assert len(sigmas) >= part * 60
    assert abs(sigmas.mean() - 1) < 0.03
    assert sigmas.std() < spread


def test_outliers_do_not_enter_the_noise_of_a_short_line():
    line = wave(300) + white(0.05, 1, 300, seed=4)
    line[0, ::60] += 2.0
    found = find_noise(line)
    assert found.is_found
    assert found.sigma[0] == pytest.approx(0.05, rel=0.2)  # 0.26 are left of a smooth line


@pytest.mark.parametrize("n", [50, 90, 200])
def test_rough_lines_are_not_noise(n):
    walks = [np.cumsum(white(1.0, 1, n, seed=seed), axis=1) for seed in range(150)]
    assert detected(walks, DEFAULT) <= 0.02
    x = np.linspace(0, 1, n)
    for clean in (np.sin(9 * x), np.sqrt(x), np.abs(x - 0.4), x > 0.3, np.tanh(20 * x - 7)):
        assert not find_noise(np.asarray(clean, dtype=float)[None]).is_found


# --- uneven axes ----------------------------------------------------------------------------------


def uneven(kind, n, rng):
    """Rising positions in [0, 1]."""
    if kind == "clusters":
        x = rng.choice(rng.random(max(3, n // 12)), n) + 0.004 * rng.standard_normal(n)
    elif kind == "pairs":
        x = rng.random(n // 2)
        x = np.concatenate([x, x + 1e-11 * (1 + rng.random(n // 2))])
    elif kind == "logarithms":
        x = np.geomspace(1e-3, 1, n)
    else:
        x = rng.random(n)
    x = np.unique(x)
    return (x - x[0]) / (x[-1] - x[0])


POSITIONS = ("random", "clusters", "pairs", "logarithms")


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("n", [300, 600])
def test_noise_at_uneven_positions_is_found_and_removed(kind, n):
    rng = np.random.default_rng(21)
    x = uneven(kind, n, rng)
    truth = np.cos(8 * x)
    values = truth + 0.1 * rng.standard_normal(len(x))
    field = kf.fit(values, axes=[x])
    assert field.report.noise is not None
    assert abs(field.report.noise.sigma[0] / 0.1 - 1) < 0.2
    assert np.std(field.on_grid() - truth) < 0.03
    cleaned = kf.denoise(values, axes=[x])
    assert np.std(cleaned.on_grid() - truth) < 0.03


@pytest.mark.parametrize("kind", POSITIONS)
def test_units_and_flips_of_uneven_positions_change_nothing(kind):
    rng = np.random.default_rng(22)
    x = uneven(kind, 200, rng)
    values = np.cos(8 * x) + 0.1 * rng.standard_normal(len(x))
    given = kf.fit(values, axes=[x]).on_grid()
    other = kf.fit(values[::-1], axes=[3e4 * x[::-1]]).on_grid()[::-1]
    np.testing.assert_allclose(other, given, atol=1e-5)


@pytest.mark.parametrize("kind", POSITIONS)
def test_clean_lines_at_uneven_positions_are_not_noisy(kind):
    found = []
    for seed in range(5):
        rng = np.random.default_rng([23, seed])
        for n in (40, 300, 2000):
            x = uneven(kind, n, rng)
            walk = np.cumsum(np.append(0, np.sqrt(np.diff(x)) * rng.standard_normal(len(x) - 1)))
            fast = np.sin(2 * np.pi * n / rng.uniform(2.2, 8) * x)
            lines = (np.sin(9 * x), np.abs(x - 0.4), np.floor(3 * x), fast, walk, np.exp(-4 * x))
            found += [find_noise(line[None], positions=[x]).is_found for line in lines]
    assert not any(found)


@pytest.mark.parametrize("shape", [(40, 50), (20, 18, 22)])
def test_noise_on_grids_with_uneven_axes(shape):
    rng = np.random.default_rng(24)
    axes = [np.sort(rng.random(n)) for n in shape]
    truth = np.sin(5 * np.add.outer(axes[0], axes[1])).reshape(*shape[:2], *[1] * (len(shape) - 2))
    truth = np.broadcast_to(truth, shape)
    assert not find_noise(truth[None], positions=axes).is_found
    values = truth + 0.1 * rng.standard_normal(shape)
    field = kf.fit(values, axes=axes)
    assert field.report.noise is not None
    assert np.std(field.on_grid() - truth) < 0.04


def test_channels_and_integers_at_uneven_positions():
    rng = np.random.default_rng(25)
    x = np.sort(rng.random(300))
    truth = 1000 * np.stack([np.sin(9 * x), np.cos(5 * x), x], axis=1)
    values = truth + 100 * rng.standard_normal(truth.shape)
    for samples in (values, np.round(values).astype(np.int32), values.astype(np.float32)):
        field = kf.fit(samples, axes=[x])
        assert field.report.noise is not None
        assert np.std(field.on_grid() - truth) < 25
    rounded = kf.fit(np.round(truth).astype(np.int32), axes=[x])
    assert rounded.report.noise is None


def test_divided_differences_of_even_positions_are_differences():
    values = white(1.0, 2, 60)
    for level in (1, 2, 3):
        expected = _differences(values, [1], 3, level)
        stencil = _Stencil.of(np.arange(60.0), 3, level)
        np.testing.assert_allclose(_differences(values, [1], 3, level, [stencil]), expected)
        ends = _repetition(3, level)
        assert 0.6 * ends < stencil.repetition < ends


def test_knots_of_smoothed_lines():
    x = np.array([0.0, 1, 2, 2 + 1e-9, 3, 4, 5, 5.01, 5.02, 5.03, 5.04, 5.05, 5.06, 5.07, 5.08, 6])
    knots = _thinned(x)
    least = 0.05 * 6 / 15
    assert np.diff(knots).min() >= least * (1 - 1e-12)
    assert knots[0] == 0
    assert knots[-1] == 6
    np.testing.assert_allclose(6 - _thinned(6 - x[::-1])[::-1], knots)
    even = np.arange(9.0)
    assert _thinned(even) is even


# --- channels in different units -----------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e3, 1e9])
def test_the_unit_of_a_channel_does_not_hide_noise_of_another(unit):
    plain, bell = wave(40, 40), wave(40, 40) ** 2
    noisy = np.concatenate([plain + white(0.1, 1, 40, 40), unit * bell])
    for order in ([0, 1], [1, 0]):
        found = find_noise(noisy[order])
        assert found.is_found
        sigma = found.sigma[order]
        assert sigma[0] == pytest.approx(0.1, rel=0.1)
        assert sigma[1] < 1e-6 * unit  # the other has none
    field = kf.fit(np.moveaxis(noisy, 0, -1))
    left = np.moveaxis(field.on_grid(), -1, 0) - np.concatenate([plain, unit * bell])
    assert left[0].std() < 0.03
    assert np.abs(left[1]).max() < 3e-6 * unit  # cross-validation gives it nearly no penalty
    assert not find_noise(np.concatenate([plain, unit * bell])).is_found


def test_constant_channels_and_gaps_beside_channels_in_other_units():
    noisy = wave(60, 60) + white(0.1, 1, 60, 60)
    planes = np.concatenate([np.full((1, 60, 60), 7.0), noisy, 1e5 * wave(60, 60) ** 2])
    known = np.random.default_rng(0).random((60, 60)) < 0.97
    for found in (find_noise(planes), find_noise(np.where(known, planes, 0.0), known=known)):
        assert found.is_found
        assert found.sigma[1] == pytest.approx(0.1, rel=0.15)
        assert found.sigma[0] == 0
        np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(3), atol=1e-12)
