"""Missing samples of lattices, filled by falling thresholds: see `filling` and `filling_choice`."""

import copy
import dataclasses
import math
import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import kronfield as kf
from effort import examples
from kronfield.fitting import filled, filling, filling_choice, settings
from kronfield.fitting.filling import (
    Blocks,
    block_sizes,
    coarse_guess,
    even_shift,
    fill,
    planned,
)
from kronfield.fitting.filling_choice import (
    Hidden,
    MeanError,
    activity,
    are_wide,
    best_share,
    certain_share,
    hidden_like,
    hole_boxes,
    is_better,
    mean_ratio,
    noise_ratio,
    telling_rows,
    window_weights,
)
from kronfield.fitting.least_roughness import least_roughness
from kronfield.fitting.options import PointOptions
from kronfield.fitting.periods import Opening
from kronfield.fitting.settings import DEFAULT
from kronfield.fitting.shrinkage import cosines

OWN = DEFAULT.filling
# The errors of what is filled, relative to a first guess, by the number of axes or the case.
LIMITS = {1: 0.65, 2: 0.26, 3: 0.23, "three": 0.83}
SHAPES = {1: (400,), 2: (48, 70), 3: (20, 24, 22), 4: (10, 9, 12, 8)}
SMALL = {1: (120,), 2: (24, 35), 3: (9, 12, 7), 4: (5, 4, 6, 5)}


def stripes(shape, channels=1, dtype=np.float64):
    """Slanted stripes with sharp edges, planar: thresholds suit them, linear fits do not."""
    slant = sum(np.ix_(*[np.arange(n) * (k + 1.0) for k, n in enumerate(shape)]))
    planes = np.stack([(slant + 2 * c) // 6 % 2 + 0.3 * c for c in range(channels)])
    return planes.astype(dtype)


def scattered(shape, share=0.5, seed=0):
    return np.random.default_rng(seed).random(shape) < share


def rms(found, truth, where):
    return math.sqrt(float(np.mean((found - truth)[..., where] ** 2)))


# Blocks
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", SHAPES)
def test_blocks_with_gaps_cover_all_missing_samples(D):
    shape, rng = SHAPES[D], np.random.default_rng(D)
    for sizes in block_sizes(shape):
        missing = scattered(shape, 0.02, D)
        shift = [int(rng.integers(b)) for b in sizes]
        blocks = Blocks.of(np.nonzero(missing), shape, sizes, shift)
        covered = np.zeros(shape, dtype=bool)
        for start in zip(*np.unravel_index(blocks.starts, shape), strict=True):
            block = tuple(slice(s, s + b) for s, b in zip(start, sizes, strict=True))
            assert all(p.start >= 0 and p.stop <= n for p, n in zip(block, shape, strict=True))
            assert missing[block].any()
            covered[block] = True
        assert covered[missing].all()
        # the samples of all blocks, of which the missing ones are picked
        places = (blocks.offsets[:, None] + blocks.starts).ravel()
        assert np.array_equal(places[blocks.of_missing], np.flatnonzero(missing))


@pytest.mark.parametrize("size", [(8,), (8, 8), (4, 8, 16), (1, 16, 16)])
def test_shifts_are_spread_evenly(size):
    shifts = np.array([even_shift(size, turn) for turn in range(64)])
    for axis, b in enumerate(size):
        assert shifts[:, axis].min() == 0
        assert shifts[:, axis].max() == b - 1
        if b > 1:  # quarters of the block have a quarter of the shifts each; random ones 16 +- 3.5
            counts = np.bincount(shifts[:, axis] * 4 // b, minlength=4)
            assert np.abs(counts - 16).max() <= 3


def slow_fill(planes, missing, error, rounds):
    """The same rounds as `fill` for one channel, block by block, in float64."""
    x = (planes[0] - planes[0].mean()) / error
    turns = dict.fromkeys(rounds[-1].sizes, 0)
    for one in rounds:
        threshold, used = one.threshold, one.sizes
        mean = np.zeros(missing.shape)
        for size in used:
            shift = even_shift(size, turns[size] % DEFAULT.filling.shifts)
            turns[size] += 1
            found = np.zeros(missing.shape)
            for place in np.argwhere(missing):
                # the block of the lattice of blocks that has this sample, moved inside
                starts = [(p - s) // b * b + s for p, s, b in zip(place, shift, size, strict=True)]
                starts = np.clip(starts, 0, np.array(x.shape) - size)
                block = tuple(slice(s, s + b) for s, b in zip(starts, size, strict=True))
                weights = x[block]
                for axis, b in enumerate(size):
                    weights = np.moveaxis(np.tensordot(cosines(b), weights, (1, axis)), 0, axis)
                keep = 1 - threshold**2 / np.maximum(weights**2, threshold**2)
                keep.flat[0] = 1
                weights = weights * keep
                for axis, b in enumerate(size):
                    weights = np.moveaxis(np.tensordot(cosines(b).T, weights, (1, axis)), 0, axis)
                found[tuple(place)] = weights[tuple(place - starts)]
            mean += found / len(used)
        x = np.where(missing, x + one.step * (mean - x), x)
    return np.where(missing, x * error + planes[0].mean(), planes[0])


@pytest.mark.parametrize("D", SHAPES)
@pytest.mark.parametrize("of_holes", [False, True])
def test_fill_is_what_its_rounds_say(D, of_holes):
    shape = SMALL[D]
    truth, missing = stripes(shape), scattered(shape, 0.3)
    guess, sizes = coarse_guess(truth, missing), block_sizes(shape)
    found = fill(guess, missing, 0.5, rounds=7, sizes=sizes, of_holes=of_holes)
    slow = slow_fill(guess, missing, 0.5, planned(7, sizes, of_holes=of_holes))
    np.testing.assert_allclose(found[0], slow, atol=1e-4)
    half = fill(guess, missing, 0.5, rounds=7, sizes=sizes, of_holes=of_holes, share=0.5)
    np.testing.assert_allclose(half, (guess + found) / 2, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("of_holes", [False, True])
def test_rounds_fall_and_end_with_all_sizes(count, of_holes):
    sizes = [(8, 8), (16, 16), (32, 32)]
    rounds = planned(count, sizes, of_holes=of_holes)
    assert len(rounds) == count
    assert rounds[-1].sizes == tuple(sizes)
    assert rounds[-1].step == 1.0
    for key in ("threshold", "step"):
        falling = [getattr(one, key) for one in rounds]
        assert falling == sorted(falling, reverse=True)
    sides = [one.sizes[0][0] for one in rounds[:-1]]
    assert not of_holes or sides == sorted(sides, reverse=True)
    if count == 7:
        assert set(sides) == {8, 16, 32}


@pytest.mark.parametrize("D", SHAPES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_samples_stay_and_missing_ones_improve(D, channels, dtype):
    shape = SHAPES[D]
    truth, missing = stripes(shape, channels, dtype), scattered(shape, 0.3)
    guess = coarse_guess(np.where(missing, 0, truth), missing)
    found = fill(guess, missing, 0.3, rounds=24, sizes=block_sizes(shape))
    assert found.dtype == dtype
    assert np.array_equal(found[:, ~missing], truth[:, ~missing])
    if D < 4:  # the blocks of four dimensions are too short for these stripes
        assert rms(found, truth, missing) < 0.9 * rms(guess, truth, missing)


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 2), (1, 40), (5, 1, 7)])
def test_tiny_lattices(shape):
    missing = np.zeros(shape, dtype=bool)
    truth = np.arange(float(missing.size)).reshape(1, *shape)
    assert np.array_equal(fill(truth, missing, 1.0, rounds=3, sizes=block_sizes(shape)), truth)
    if missing.size > 1:
        missing.flat[1:] = True
        found = fill(coarse_guess(truth, missing), missing, 1.0, rounds=3, sizes=block_sizes(shape))
        assert np.all(np.isfinite(found))
        assert found.flat[0] == truth.flat[0]


# The guess
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", SHAPES)
def test_the_guess_keeps_known_samples_and_constants(D):
    shape = SHAPES[D]
    missing, rng = scattered(shape, 0.9), np.random.default_rng(1)
    values = rng.random((2, *shape))
    found = coarse_guess(values, missing)
    assert np.array_equal(found[:, ~missing], values[:, ~missing])
    assert found.min() >= values[:, ~missing].min() - 1e-12
    assert found.max() <= values[:, ~missing].max() + 1e-12
    np.testing.assert_allclose(coarse_guess(np.full((1, *shape), 3.0), missing), 3.0)


def test_stacked_windows_are_guessed_and_filled_on_their_own():
    truth, missing = stripes((2, 40, 44), 2), scattered((2, 40, 44))
    together = coarse_guess(truth, missing, 2)
    sizes = block_sizes(missing.shape, stacked=True)
    filled = fill(together, missing, 0.3, rounds=6, sizes=sizes, rotation=np.eye(2))
    for k in range(2):
        alone = coarse_guess(truth[:, k], missing[k])
        np.testing.assert_allclose(together[:, k], alone)
    other = together.copy()
    other[:, 0] = 0
    again = fill(other, missing, 0.3, rounds=6, sizes=sizes, rotation=np.eye(2))
    # the mean that is subtracted first is common, so rounding differs
    assert np.quantile(np.abs(again - filled)[:, 1], 0.95) < 1e-3


# Linear rivals, hidden samples, boxes
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("by", ["a band", "gradients"])
def test_least_roughness_is_least(D, by, monkeypatch):
    if by == "gradients":
        monkeypatch.setattr("kronfield.fitting.least_roughness.MOST_WORK", 0)
    shape = (2, *[7, 6, 5][:D])
    rng = np.random.default_rng(D)
    values, missing = rng.random((2, *shape)), scattered(shape, 0.3, 5)
    for ratio, found in zip((0.0, 4.0), least_roughness(values, missing, (0.0, 4.0)), strict=True):
        assert np.array_equal(found[:, ~missing], values[:, ~missing])

        def roughness(u, ratio=ratio):
            total = 0.0
            for a in range(1, u.ndim):
                total += np.sum(np.diff(u, 2, axis=a) ** 2) + ratio * np.sum(
                    np.diff(u, axis=a) ** 2
                )
                for b in range(a + 1, u.ndim):
                    total += 2 * np.sum(np.diff(np.diff(u, axis=a), axis=b) ** 2)
            return total

        least = roughness(found[0])
        for _ in range(5):
            step = 1e-3 * rng.standard_normal(shape) * missing
            assert roughness(found[0] + step) > least


def test_hidden_samples_are_known_and_have_the_shape_of_holes():
    missing = np.zeros((300, 300), dtype=bool)
    for place in np.random.default_rng(0).integers(0, 280, (20, 2)):
        missing[place[0] : place[0] + 12, place[1] : place[1] + 12] = True
    judged = hidden_like(missing, OWN)
    gaps = judged.stack(missing)
    assert 0 < len(judged.windows) <= OWN.windows
    assert not (judged.hidden & gaps).any()
    # compact: most hidden samples have hidden or missing neighbours on all sides
    both = judged.hidden | gaps
    inner = both[:, :-2, 1:-1] & both[:, 2:, 1:-1] & both[:, 1:-1, :-2] & both[:, 1:-1, 2:]
    assert inner[judged.hidden[:, 1:-1, 1:-1]].mean() > 0.6


def test_widened_windows_hide_the_same_samples():
    rng = np.random.default_rng(0)
    values = rng.random((50, 60))
    windows = [(slice(0, 20), slice(40, 60)), (slice(15, 35), slice(10, 30))]
    hidden = rng.random((2, 20, 20)) < 0.1
    before = Hidden(windows, hidden)
    after = before.widened(values.shape, 7)
    old, new = before.stack(values), after.stack(values)
    for k in range(2):
        assert np.array_equal(old[k][hidden[k]], new[k][after.hidden[k]])
    assert after.hidden.shape == (2, 34, 34)


@pytest.mark.parametrize("side", [32, 48, 64])
def test_most_of_a_hole_of_any_width_is_hidden(side):
    """Also if the windows are at equal distances in whole rows of the hole."""
    missing = np.zeros((256, 256), dtype=bool)
    missing[90 : 90 + side, 100 : 100 + side] = True
    judged = hidden_like(missing, OWN)
    assert judged.hidden.sum(axis=(1, 2)).max() > 0.5 * side**2
    i, j = np.indices(missing.shape) / 255
    smooth = np.sin(5 * i) * np.cos(4 * j) + j
    field = kf.fit(np.where(missing, np.nan, smooth), mask=missing)
    true = rms(field.on_grid()[None], smooth[None], missing)
    assert 1 / 4 < field.report.expected_error / true < 4


@pytest.mark.parametrize("shape", [(70,), (45, 33), (17, 9, 12)])
def test_wide_holes_fill_a_cell(shape):
    cell = max(OWN.sizes(len(shape))) // 4
    assert not are_wide(np.zeros(shape, dtype=bool), OWN)
    assert not are_wide(scattered(shape, 0.2), OWN)
    wide = np.zeros(shape, dtype=bool)
    wide[tuple(slice(cell, 2 * cell) for _ in shape)] = True
    assert are_wide(wide, OWN)
    wide[(cell,) * len(shape)] = False
    assert not are_wide(wide, OWN)
    last = np.zeros(shape, dtype=bool)
    last[tuple(slice((n - 1) // cell * cell, n) for n in shape)] = True  # a smaller cell at the end
    assert are_wide(last, OWN)


def test_boxes_give_what_the_whole_lattice_gives():
    truth = stripes((512, 640), 2, np.float32)
    missing = np.zeros((512, 640), dtype=bool)
    missing[200:210, 220:228] = missing[0:4, 0:5] = missing[506:, 500:503] = True
    boxes = hole_boxes(missing, OWN)
    assert boxes is not None
    assert sum(missing[box].sum() for box in boxes) >= missing.sum()
    plan = filling_choice.Plan(12, True, OWN)
    found = plan.fill_lattice(truth, missing, 0.3)
    guess, rotation = coarse_guess(truth, missing), np.linalg.eigh(np.cov(truth[:, ~missing]))[1].T
    whole = fill(
        guess, missing, 0.3, rounds=12, sizes=block_sizes(missing.shape), rotation=rotation
    )
    inner = np.zeros_like(missing)
    inner[200:210, 220:228] = True
    # the mean that is subtracted differs, so that rounding may differ at a threshold
    assert np.quantile(np.abs(found - whole)[:, inner], 0.9) < 0.02
    assert rms(found, truth, missing) < 1.1 * rms(whole, truth, missing)
    assert np.array_equal(found[:, ~missing], truth[:, ~missing])
    assert hole_boxes(scattered((512, 640), 0.1), OWN) is None


def test_the_error_of_a_mean_is_that_of_its_windows():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        levels = rng.random(9)
        found.append(MeanError.of([level * np.ones(20 + 5 * k) for k, level in enumerate(levels)]))
    spread = np.std([one.mean for one in found])
    assert np.mean([one.error for one in found]) == pytest.approx(spread, rel=0.15)
    assert MeanError.of([np.array([1.0, 3.0])]).mean == 2.0
    assert MeanError(4.0, 0.4).root == (2.0, 0.1)


def test_filling_must_be_better_than_by_chance():
    """Of two that are alike, one is clearly better in about a fifth of trials."""
    rng = np.random.default_rng(0)
    taken = 0
    for _ in range(600):
        ours, others = ([rng.random() * np.ones(5) for _ in range(12)] for _ in range(2))
        taken += is_better(ours, others)[0]
    assert 0.1 < taken / 600 < 0.25
    others = [np.ones(3), np.full(9, 4.0), np.full(2, 9.0)]
    ours = [one / 2 for one in others]
    ratio, deviation = mean_ratio(ours, others)
    assert ratio == pytest.approx(-math.log(2))
    assert deviation == pytest.approx(0, abs=1e-9)
    assert mean_ratio(others[:1], others[:1]) == (0.0, math.inf)
    assert is_better(ours, others)[0]
    assert not is_better(others, ours)[0]
    assert not is_better(others, others)[0]
    assert not is_better(ours[:1], others[:1])[0]  # there is no standard error
    # better in most windows, but much worse in one
    assert not is_better([*ours, np.array([99.0])], [*others, np.array([50.0])])[0]
    # the same in most windows, and clearly better where errors are large
    alike = [np.array([level]) for level in (0.01, 0.02, 0.01, 0.02)]
    large = [np.array([level]) for level in (9.0, 8.0, 9.0, 10.0)]
    swapped = [alike[1], alike[0], alike[3], alike[2]]
    assert is_better([*alike, *[0.8 * one for one in large]], [*swapped, *large])[0]


def test_cells_of_windows_have_the_hidden_samples_of_their_part():
    rng = np.random.default_rng(0)
    hidden = rng.random((3, 20, 26)) < 0.2
    hidden[1] = False
    values = rng.random((3, 20, 26))
    parts = [one[held] for one, held in zip(values, hidden, strict=True)]
    judged = Hidden([(slice(0, 20), slice(0, 26))] * 3, hidden)
    found = judged.by_cells(parts, 8)
    slow = [
        values[k, a : a + 8, b : b + 8][hidden[k, a : a + 8, b : b + 8]]
        for k in (0, 2)
        for a in range(0, 20, 8)
        for b in range(0, 26, 8)
    ]
    assert len(found) == len(slow)
    for one, other in zip(found, slow, strict=True):
        assert np.array_equal(one, other)


def test_cropped_windows_keep_what_is_known_of_their_samples():
    rng = np.random.default_rng(0)
    lattice = rng.random((40, 50))
    windows = [(slice(a, a + 30), slice(b, b + 36)) for a, b in ((0, 0), (10, 14), (5, 3), (5, 3))]
    hidden = rng.random((4, 30, 36)) < 0.2
    judged = Hidden(windows, hidden)
    parts = [one[held] for one, held in zip(judged.stack(lattice), hidden, strict=True)]
    crops, kept = judged.cropped(parts, 4 * 100)
    assert crops.hidden.size <= 400
    assert crops.windows[2] != crops.windows[3]
    for one, held, part in zip(crops.stack(lattice), crops.hidden, kept, strict=True):
        assert np.array_equal(one[held], part)
    for crop, window in zip(crops.windows, windows, strict=True):
        assert all(w.start <= c.start < c.stop <= w.stop for c, w in zip(crop, window, strict=True))
    same, all_of_it = judged.cropped(parts, 10**9)
    assert same.windows == windows
    assert all(np.array_equal(a, b) for a, b in zip(all_of_it, parts, strict=True))


# Fits
# ------------------------------------------------------------------------------------------


def picture(side=128, channels=3, dtype=np.float32):
    from skimage import data

    return data.astronaut()[100 : 100 + side, 150 : 150 + side, :channels].astype(dtype) / 255


def written(shape):
    """Thin strokes, as of text."""
    y, x = np.indices(shape)
    return ((x + 2 * y) % 23 < 2) & (y % 16 < 9)


@pytest.mark.parametrize("holes", ["strokes", "scattered"])
def test_pictures_are_filled_better_than_linearly(holes):
    image = picture()
    missing = written(image.shape[:2]) if holes == "strokes" else scattered(image.shape[:2], 0.5)
    field = kf.fit(image, mask=missing)
    report, filled = field.report, field.on_grid()
    assert report.chosen.kind == "falling thresholds"
    assert report.filled == missing.sum()
    assert filled.dtype == np.float32
    np.testing.assert_allclose(filled[~missing], image[~missing], atol=1e-5)
    linear = kf.fit(image, mask=missing, roughness=(1e-3, 1e-4)).on_grid()
    error = np.sqrt(np.mean((filled - image)[missing] ** 2))
    assert error < 0.95 * np.sqrt(np.mean((linear - image)[missing] ** 2))
    assert error == pytest.approx(report.expected_error, rel=0.4)
    assert 0 < report.expected_error_uncertainty < report.expected_error
    data = report.to_dict()
    assert data["filled"] == missing.sum()
    assert data["expected_error"] == report.expected_error
    assert any(one["standard_error"] for one in data["candidates"])
    assert "missing samples were filled, expected error" in str(report)


def test_points_on_a_lattice_are_filled_like_a_mask():
    image = picture(96)
    missing = scattered(image.shape[:2], 0.4)
    missing[0, 0] = missing[-1, -1] = False
    by_mask = kf.fit(image, mask=missing)
    by_points = kf.fit_points(np.argwhere(~missing).astype(float), image[~missing])
    assert by_points.report.chosen.kind == "falling thresholds"
    assert by_points.report.points == (~missing).sum()
    axes = [np.arange(96.0)] * 2
    np.testing.assert_allclose(by_points.on_grid(axes), by_mask.on_grid(), atol=1e-5)


@pytest.mark.parametrize("flip", [False, True])
def test_complex_values_and_falling_axes(flip):
    image = picture(96)
    values = (image[..., 0] + 1j * image[..., 1]).astype(np.complex64)
    missing = scattered((96, 96), 0.4)
    axes = [np.arange(96.0)[::-1] if flip else np.arange(96.0), np.arange(96.0)]
    field = kf.fit(values, axes=axes, mask=missing)
    found = field.on_grid()
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found[~missing], values[~missing], atol=1e-5)
    assert np.std((found - values)[missing]) < 0.2 * np.std(values)


def smooth_functions():
    x, y = np.meshgrid(*[np.linspace(0, 1, 80)] * 2, indexing="ij")
    yield np.sin(5 * x) * np.cos(4 * y) + y
    yield 1 / (1 + 30 * ((x - 0.5) ** 2 + (y - 0.4) ** 2))
    yield np.sin(40 * x * y) + np.cos(13 * y)
    x, y, z = np.meshgrid(*[np.linspace(0, 1, 24)] * 3, indexing="ij")
    yield np.sin(4 * x + y) * np.cos(3 * z) + y * z


def square_holes(shape, side, count=5):
    missing = np.zeros(shape, dtype=bool)
    for corner in np.random.default_rng(0).integers(0, np.array(shape) - side, (count, len(shape))):
        missing[tuple(slice(a, a + side) for a in corner)] = True
    return missing


def linear_error(values, missing):
    """The error of the best surface of least roughness, known afterwards."""
    found = least_roughness(values[None, None], missing[None], (0.0, 1.0, 16.0))
    return min(rms(one[0, 0], values, missing) for one in found)


@pytest.mark.parametrize("holes", ["strokes", "squares", "single"])
def test_smooth_functions_are_no_worse_than_linear(holes):
    """Than the linear fit, by more than 0.2 dB; single samples are 1 to 22 dB better."""
    for smooth in smooth_functions():
        shape = smooth.shape
        if holes == "strokes":
            missing = written(shape[-2:]) & np.ones(shape, dtype=bool)
        elif holes == "squares":
            missing = square_holes(shape, 14 if smooth.ndim == 2 else 5)
        else:
            missing = scattered(shape, 0.2)
        found = kf.fit(smooth, mask=missing, channels=False).on_grid()
        error, before = rms(found, smooth, missing), linear_error(smooth, missing)
        assert 20 * math.log10(error / before) < 0.2
        if holes == "single":
            assert error < before


def test_smooth_functions_of_which_most_is_missing_are_fitted_linearly():
    smooth, missing = next(smooth_functions()), scattered((80, 80), 0.6)
    field = kf.fit(smooth, mask=missing)
    assert field.report.chosen.kind == "hats on the lattice"
    assert any(one.kind == "falling thresholds" for one in field.report.candidates)
    assert np.abs(field.on_grid() - smooth).max() < 0.01


def rough_field(side, slope):
    """A random field of amplitude k^-slope, in which there is nothing to be continued."""
    k = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side)] * 2))
    k[0, 0] = np.inf
    white = np.random.default_rng(2).standard_normal((side, side))
    return np.fft.ifft2(np.fft.fft2(white) * k**-slope).real


@pytest.mark.parametrize("slope", [1.5, 2.0])
def test_rough_fields_are_no_worse_than_linear(slope):
    rough = rough_field(128, slope)
    for missing in (
        written((128, 128)),
        square_holes((128, 128), 12, 8),
        scattered((128, 128), 0.25),
    ):
        error = rms(kf.fit(rough, mask=missing).on_grid(), rough, missing)
        assert 20 * math.log10(error / linear_error(rough, missing)) < 0.2


def test_the_best_share_of_a_mixture():
    """Against a search, and its standard error against repetitions."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        counts = rng.integers(3, 9, 12)
        linear = [rng.standard_normal((2, n)) * (1 + rng.random()) for n in counts]
        others = [0.5 * one + 0.6 * rng.standard_normal(one.shape) for one in linear]
        found.append(best_share(linear, others))
    shares = np.linspace(-1, 2, 3001)
    totals = [
        sum(np.sum(((1 - w) * a + w * b) ** 2) for a, b in zip(linear, others, strict=True))
        for w in shares
    ]
    assert found[-1][0] == pytest.approx(shares[np.argmin(totals)], abs=1e-3)
    assert np.mean([one[1] for one in found]) == pytest.approx(
        np.std([one[0] for one in found]), rel=0.2
    )
    assert best_share(linear, linear) == (0.0, 0.0)
    assert best_share(linear[:1], others[:1])[1] == math.inf


def test_windows_with_large_errors_do_not_decide_alone():
    rng = np.random.default_rng(0)
    linear = [rng.standard_normal((1, 50)) for _ in range(9)]
    linear.append(100 * rng.standard_normal((1, 50)))
    others = [0.1 * one for one in linear[:-1]] + [1.5 * linear[-1]]  # worse in one window of ten
    squares = [[np.mean(one**2, axis=0) for one in linear]]
    weights = window_weights(squares)
    assert weights.max() < 20_000 * weights.min()
    assert np.all(np.diff(weights[np.argsort([float(one.mean()) for one in squares[0]])]) <= 0)
    assert best_share(linear, others)[0] < -1
    plain, weighed = (best_share(linear, others, w)[0] for w in (None, weights))
    assert weighed > plain
    assert np.allclose(window_weights([[np.zeros(3), np.zeros(2)]]), 1.0)


def test_a_share_is_shrunk_by_its_standard_error():
    assert certain_share(0.8, 0.0) == 0.8
    assert certain_share(1.3, 0.1) == 1.0
    assert certain_share(0.1, 0.1) == certain_share(-0.5, 0.0) == certain_share(0.9, math.inf) == 0
    shares = [certain_share(0.5, error) for error in np.linspace(0, 0.6, 7)]
    assert shares == sorted(shares, reverse=True)


def test_activity_of_some_places_has_the_mean_of_all():
    stack, places = stripes((64, 64))[:, None], scattered((64, 64), 0.5)[None]
    every, some = activity(stack, places, (2, 4)), activity(stack, places, (2, 4), 500)
    assert len(every) == places.sum()
    assert 500 <= len(some) <= 1000
    assert some.mean() == pytest.approx(every.mean(), rel=0.1)


def test_only_telling_combinations_of_channels_are_filled():
    image = np.moveaxis(picture(64, dtype=np.float64), -1, 0)
    missing = written((64, 64))
    guess = least_roughness(image[:, None], missing[None], (0.0,))[0][:, 0]
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    errors = [(guess - image)[:, missing]]
    rows = telling_rows(rotation, errors, 0.3)
    parts = np.sum((rotation @ errors[0]) ** 2, axis=1)
    weak = [k for k in range(3) if parts[parts <= parts[k]].sum() <= 0.3 * parts.sum()]
    assert 0 < len(weak) < 3
    assert np.array_equal(rows, np.delete(rotation, weak, axis=0))
    assert telling_rows(rotation, errors, 0.0).shape == (3, 3)
    # many alike channels are all filled, and one is always
    assert len(telling_rows(np.eye(40), [np.ones((40, 5))], 0.05)) == 38
    assert len(telling_rows(np.eye(2), [np.zeros((2, 5))], 0.05)) == 1
    sizes = block_sizes((64, 64))
    found = fill(guess, missing, 0.1, rounds=6, sizes=sizes, rotation=rotation[1:])
    np.testing.assert_allclose(
        np.tensordot(rotation[0], found, 1), np.tensordot(rotation[0], guess, 1), atol=1e-12
    )
    both = np.tensordot(rotation[1:], guess, 1)
    alone = fill(both, missing, 0.1, rounds=6, sizes=sizes, rotation=np.eye(2))
    np.testing.assert_allclose(np.tensordot(rotation[1:], found, 1), alone, atol=1e-5)


def test_the_penalty_of_a_linear_fit_suits_the_holes():
    """A rough random field: wide holes are flat inside, other than gaps of single samples."""
    rng, side = np.random.default_rng(1), 128
    k = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side)] * 2))
    k[0, 0] = np.inf
    field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((side, side))) * k**-1.2).real
    missing = np.zeros((side, side), dtype=bool)
    for a, b in rng.integers(0, side - 16, (6, 2)):
        missing[a : a + 16, b : b + 16] = True
    fitted = kf.fit(field, mask=missing)
    tried = [one for one in fitted.report.candidates if one.kind == "least roughness"]
    scores = {one.parameters["first over second differences"]: one.score for one in tried}
    assert min(scores, key=scores.get) > 0
    first, second = fitted.report.roughness
    best = min(scores, key=lambda ratio: abs(ratio - first / second))
    assert best == pytest.approx(first / second)
    assert best > 0
    assert scores[best] < 1.05 * min(scores.values())  # windows with large errors weigh less
    smooth = kf.fit(field, mask=missing, roughness=(0.0, second)).on_grid()
    error, other = (rms(one, field, missing) for one in (fitted.on_grid(), smooth))
    assert error < 0.95 * other
    report = fitted.report
    assert abs(report.expected_error - error) < 4 * report.expected_error_uncertainty


@pytest.mark.parametrize("holes", ["strokes", "scattered"])
def test_noisy_samples_are_fitted_with_a_penalty(holes):
    image = picture()
    noisy = image + 0.1 * np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
    missing = written(image.shape[:2]) if holes == "strokes" else scattered(image.shape[:2], 0.5)
    report = kf.fit(noisy, mask=missing).report
    assert report.chosen.kind == "hats on the lattice"
    assert report.roughness != (0.0, 0.0)
    assert report.filled == missing.sum()
    assert report.expected_error > 0.05


@pytest.mark.parametrize("channels", [1, 3])
def test_noise_shows_between_known_neighbours(channels):
    planes = np.moveaxis(picture(200, channels), -1, 0)
    missing = scattered((200, 200), 0.7)
    assert noise_ratio(planes, missing, DEFAULT) < DEFAULT.noise.ratio
    noise = 0.1 * np.random.default_rng(0).standard_normal(planes.shape)
    assert noise_ratio(planes + noise, missing, DEFAULT) > DEFAULT.noise.ratio
    assert noise_ratio(1e6 * (planes + noise) + 3, missing, DEFAULT) > DEFAULT.noise.ratio
    assert noise_ratio(noise[:, :9, :9], missing[:9, :9], DEFAULT) == 0.0  # too few to tell


def test_uneven_axes_and_penalties_are_as_before():
    image, missing = picture(48)[..., 0], scattered((48, 48), 0.3)
    uneven = np.arange(48.0) ** 1.2
    for options in ({"axes": [uneven, np.arange(48.0)]}, {"roughness": (0.0, 1e-3)}):
        report = kf.fit(image, mask=missing, **options).report
        assert all(one.kind != "falling thresholds" for one in report.candidates)


def test_refit_pickle_and_standard_error():
    image = picture(96)
    missing = scattered((96, 96), 0.4)
    field = kf.fit(image, mask=missing)
    assert field.report.chosen.kind == "falling thresholds"
    same = field.refit(image[~missing])  # values of the known samples, as of other masked fits
    np.testing.assert_array_equal(same.on_grid(), field.on_grid())
    whole = np.where(missing[..., None], np.float32(np.nan), image)
    for one in (field, pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
        np.testing.assert_array_equal(one.refit(whole).on_grid(), field.on_grid())
        with pytest.raises(kf.InputError, match=r"standard_error: .*filled.*roughness="):
            one.standard_error(np.array([[3.0, 4.0]]))
    with pytest.raises(kf.InputError, match=r"values: .*known sample"):
        field.refit(image[:-1])


def test_the_result_does_not_depend_on_the_number_of_threads():
    image, missing = picture(96), scattered((96, 96), 0.5)
    found = []
    for count in (1, 2, 3):
        with threadpool_limits(count):
            found.append(kf.fit(image, mask=missing).on_grid())
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("shape", [(40,), (12, 9), (6, 5, 4)])
def test_few_samples_and_all_but_one_missing(shape):
    rng = np.random.default_rng(0)
    values = rng.random(shape)
    missing = np.ones(shape, dtype=bool)
    missing.flat[3] = False
    np.testing.assert_allclose(
        kf.fit(values, mask=missing, channels=False).on_grid(), values.flat[3]
    )
    missing = rng.random(shape) < 0.3
    found = kf.fit(values, mask=missing, channels=False).on_grid()
    assert np.all(np.isfinite(found))
    none = kf.fit(values, mask=np.zeros(shape, dtype=bool), channels=False)
    assert none.report.filled == 0


def test_holes_at_borders_and_corners():
    image = picture()
    missing = np.zeros((128, 128), dtype=bool)
    missing[:9, :9] = missing[-6:, 40:60] = missing[70:80, -5:] = missing[60:63, 20:90] = True
    found = kf.fit(image, mask=missing).on_grid()
    np.testing.assert_allclose(found[~missing], image[~missing], atol=0.01)
    assert np.sqrt(np.mean((found - image)[missing] ** 2)) < 0.2


def test_held_out_errors_are_of_everywhere():
    """The middle is smooth and the rest is rough: the error is that of all."""
    rng = np.random.default_rng(0)
    values = rng.random((300, 300))
    x = np.linspace(0, 3, 140)
    values[80:220, 80:220] = np.sin(x)[:, None] * np.cos(x)
    missing = scattered((300, 300), 0.5, seed=1)
    field = kf.fit(values, mask=missing)
    true = np.sqrt(np.mean((field.on_grid() - values)[missing] ** 2))
    report = field.report
    assert abs(report.expected_error - true) < 4 * report.expected_error_uncertainty + 0.15 * true


def test_few_known_nodes_are_judged_in_one_window():
    from kronfield.fitting.point_search import _windows

    for density, count in ((0.25, 9), (0.16, 9), (0.14, 1), (0.05, 1)):
        windows = _windows((480, 480), density, DEFAULT.points)
        assert len(windows) == count
        nodes = sum(math.prod(part.stop - part.start for part in one) for one in windows)
        assert nodes * density == pytest.approx(6000, rel=0.1)


def test_the_error_elsewhere_is_in_proportion_to_what_is_known():
    rng = np.random.default_rng(0)
    levels = rng.random(20)
    known = [level * (0.5 + rng.random(30)) for level in levels]
    parts = [0.3 * one * (0.5 + rng.random(30)) for one in known]
    there = 4 * rng.random(500)
    found = MeanError.elsewhere(parts, known, there)
    assert found.mean == pytest.approx(0.3 * there.mean(), rel=0.05)
    assert MeanError.elsewhere(parts, known, np.zeros(3)) == MeanError.of(parts)
    assert MeanError.elsewhere(parts[:3], known[:3], there) == MeanError.of(parts[:3])
    assert MeanError(4.0, 0.4).of_few(30, 10).error == pytest.approx(0.8)


def test_expected_errors_cover_the_true_ones():
    """Of a picture with holes at random: half are within about a standard error."""
    image, within, factors = picture(192), [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        missing = np.zeros((192, 192), dtype=bool)
        if seed % 2:
            for a, b in rng.integers(0, 180, (12, 2)):
                missing[a : a + 10, b : b + 10] = True
        else:
            for row in rng.integers(0, 180, 6):
                slant = row + (np.arange(192) * rng.random() / 8).astype(int)
                for k in range(3):
                    missing[np.minimum(slant + k, 191), np.arange(192)] = True
        field = kf.fit(image, mask=missing)
        true = math.sqrt(float(np.mean((field.on_grid() - image)[missing] ** 2)))
        report = field.report
        factors.append(report.expected_error / true)
        within.append(abs(report.expected_error - true) / report.expected_error_uncertainty)
    assert max(factors) < 2
    assert min(factors) > 1 / 2
    assert abs(math.log(np.median(factors))) < math.log(1.25)
    assert np.median(within) < 1.2
    assert np.mean(np.array(within) < 2.5) >= 0.75


# Periodic axes
# ------------------------------------------------------------------------------------------


def ring(shape=(96, 80)):
    """Slanted stripes with sharp edges and a wave that close round both axes."""
    i, j = np.indices(shape)
    turns = 3 * i / shape[0] + 2 * j / shape[1]
    return np.sign(np.sin(2 * np.pi * turns)) + np.cos(2 * np.pi * i / shape[0])


def holes_at_the_seam(shape, side=8):
    missing = np.zeros(shape, dtype=bool)
    for row in (4, 30, 60):
        missing[np.ix_(np.arange(row, row + side), np.arange(-side // 2, side // 2))] = True
    return missing


def test_a_hole_at_the_seam_is_filled_as_in_the_middle():
    truth = ring()
    missing = holes_at_the_seam(truth.shape)
    periods = [96.0, 80.0]
    field = kf.fit(np.where(missing, np.nan, truth), mask=missing, periodic=periods)
    assert field.report.chosen.kind == "falling thresholds"
    found = field.on_grid()
    rolled, gaps = (np.roll(one, (40, 40), (0, 1)) for one in (truth, missing))
    middle = kf.fit(np.where(gaps, np.nan, rolled), mask=gaps, periodic=periods)
    np.testing.assert_allclose(np.roll(found, (40, 40), (0, 1)), middle.on_grid(), atol=1e-12)
    assert field.report.expected_error == middle.report.expected_error
    cut = kf.fit(np.where(missing, np.nan, truth), mask=missing).on_grid()
    assert rms(found, truth, missing) < 0.9 * rms(cut, truth, missing)
    # value and slope close at the seam
    edge = np.array([[31.3, -0.5], [31.3, 79.5]])
    assert np.ptp(field(edge)) < 1e-10
    np.testing.assert_allclose(*field.gradient(edge), atol=1e-8)
    for one in (field, pickle.loads(pickle.dumps(field))):
        again = one.refit(np.where(missing, np.nan, 2 * truth))
        assert rms(again.on_grid(), 2 * truth, missing) < 2.2 * rms(found, truth, missing)
        np.testing.assert_allclose(again.on_grid()[~missing], 2 * truth[~missing], atol=1e-12)


def test_gaps_in_samples_at_both_ends_of_the_period():
    truth = ring()
    whole = np.concatenate([truth, truth[:, :1]], axis=1)
    missing = holes_at_the_seam(truth.shape)
    gaps = np.concatenate([missing, missing[:, :1]], axis=1)
    axes, periods = [np.arange(96.0), np.arange(81.0)], [96.0, 80.0]
    plain = kf.fit(np.where(missing, np.nan, truth), mask=missing, periodic=periods)
    field = kf.fit(np.where(gaps, np.nan, whole), axes=axes, mask=gaps, periodic=periods)
    assert field.report.chosen.kind == "falling thresholds"
    np.testing.assert_allclose(field.on_grid()[:, :-1], plain.on_grid(), atol=1e-12)
    again = field.refit(np.where(gaps, np.nan, whole))
    np.testing.assert_allclose(again.on_grid(), field.on_grid(), atol=1e-12)
    # of two samples of the seam one may be missing, whatever stands there
    gaps[:, -1] |= np.arange(len(gaps)) % 2 == 0
    given = np.where(gaps, 9.0, whole)
    field = kf.fit(given, axes=axes, mask=gaps, periodic=periods)
    assert field.report.chosen.kind == "falling thresholds"
    for one in (field, pickle.loads(pickle.dumps(field))):
        np.testing.assert_allclose(one.refit(given).on_grid(), field.on_grid(), atol=1e-12)


def test_axes_that_are_uneven_across_the_seam_stay_linear():
    truth = ring()
    missing = holes_at_the_seam(truth.shape)
    report = kf.fit(np.where(missing, np.nan, truth), mask=missing, periodic=[96.0, 90.0]).report
    assert all(one.kind != "falling thresholds" for one in report.candidates)


@pytest.mark.parametrize("seed", range(6))
def test_a_lattice_is_cut_open_and_closed_again(seed):
    rng = np.random.default_rng(seed)
    shape, circles = tuple(rng.integers(1, 30, 3)), [bool(rng.integers(2)) for _ in range(3)]
    missing = rng.random(shape) < rng.choice([0.0, 0.01, 0.2, 1.0])
    opening = Opening.of(missing, circles, reach=5)
    values = rng.random((2, *shape))
    opened = opening.opened(values)
    np.testing.assert_array_equal(opening.closed(opened), values)
    np.testing.assert_array_equal(opening.closed(opening.opened(missing)), missing)
    gaps = opening.opened(missing)
    for axis, (wraps, n) in enumerate(zip(circles, shape, strict=True)):
        if not wraps:
            assert opened.shape[1 + axis] == n
        elif n > 10:  # what is missing is five samples from either end, or these were added
            known = np.moveaxis(gaps, axis, 0)
            pad = opening.pads[axis]
            assert pad == 5 or not (known[:5].any() or known[-5:].any())


# Units of channels
# ------------------------------------------------------------------------------------------


def unlike_channels(case):
    """A photograph, a rough, a smooth and a constant channel, or smooth ones, which stay linear."""
    image = picture(64, dtype=np.float64)
    if case == "rough":
        rng = np.random.default_rng(5)
        x = np.linspace(0, 3, 64)
        image[..., 0] = np.cumsum(rng.standard_normal((64, 64)), axis=0)
        image[..., 1] = np.sin(x)[:, None] * np.cos(x)
        image[..., 2] = 0.1
    if case == "smooth":
        x, y = np.meshgrid(*[np.linspace(0, 1, 48)] * 2, indexing="ij")
        bump = 1 / (1 + 9 * ((x - 0.5) ** 2 + (y - 0.4) ** 2))
        image = np.stack([np.sin(5 * x) * np.cos(4 * y) + y, bump, np.sin(9 * x * y)], axis=-1)
    shape = image.shape[:2]
    missing = scattered(shape, 0.6) if case in ("scattered", "smooth") else written(shape)
    return image, missing


UNITS = {case: unlike_channels(case) for case in ("strokes", "scattered", "rough", "smooth")}
FITTED = {case: kf.fit(image, mask=gaps) for case, (image, gaps) in UNITS.items()}


@pytest.mark.parametrize("case", UNITS)
@hypothesis.settings(deadline=None, max_examples=examples(9))
@hypothesis.given(exponents=st.tuples(*[st.floats(-8, 8)] * 3))
def test_a_channel_is_filled_alike_in_any_units_of_the_others(case, exponents):
    (image, missing), plain = UNITS[case], FITTED[case]
    units = 10.0 ** np.array(exponents)
    field = kf.fit(units * image, mask=missing)
    assert field.report.chosen.kind == plain.report.chosen.kind
    expected = plain.on_grid()
    spread = np.std(expected, axis=(0, 1)) + 1e-9
    assert np.abs((field.on_grid() / units - expected) / spread).max() < 1e-3
    if np.ptp(exponents) < 1e-9:
        ratio = field.report.expected_error / plain.report.expected_error
        assert ratio == pytest.approx(units[0], rel=1e-3)


def test_the_expected_error_is_that_of_all_channels():
    """In their own units: a channel of large values decides."""
    image, missing = UNITS["strokes"]
    units = np.array([1.0, 1e3, 1e-2])
    field = kf.fit(units * image, mask=missing)
    true = rms(np.moveaxis(field.on_grid(), -1, 0), np.moveaxis(units * image, -1, 0), missing)
    assert 0.5 < field.report.expected_error / true < 2


# Decisions: a test on either side, of what they do and not of their values
# ------------------------------------------------------------------------------------------


class Counted:
    """The samples of all blocks that are transformed, and the rounds, while it is in use."""

    def __init__(self, monkeypatch):
        self.samples = self.passes = 0
        self.shapes = []
        shrunk, rounds = Blocks.shrunk, filling_choice.fill

        def count(blocks, samples, threshold):
            self.samples += len(samples) * len(blocks.starts) * len(blocks.offsets)
            self.passes += 1
            return shrunk(blocks, samples, threshold)

        def shape(planes, missing, *others, **options):
            self.shapes.append(missing.shape)
            return rounds(planes, missing, *others, **options)

        monkeypatch.setattr(Blocks, "shrunk", count)
        monkeypatch.setattr(filling_choice, "fill", shape)


def fitted_error(image, missing):
    """The error of a fit, relative to the best surface of least roughness."""
    found = kf.fit(image, mask=missing).on_grid()
    planes = np.moveaxis(image, -1, 0)
    linear = least_roughness(planes[:, None], missing[None], (0.0, 1.0, 16.0))
    least = min(rms(one[:, 0], planes, missing) for one in linear)
    return rms(np.moveaxis(found, -1, 0), planes, missing) / least


def plain_fill(own, missing, rounds):
    """The error of stripes, filled from a coarse guess, relative to that of the guess."""
    truth = stripes(missing.shape)
    guess = coarse_guess(truth, missing)
    sizes = block_sizes(missing.shape, own)
    found = fill(guess, missing, 0.3, rounds=rounds, sizes=sizes, settings=own)
    return rms(found, truth, missing) / rms(guess, truth, missing)


def test_either_side_of_sizes_by_dimension():
    """Blocks of 4 are too short for stripes of 6, blocks of 64 and more too long for a picture."""
    own = settings.DEFAULT.filling
    for shape in ((400,), (64, 64), (24, 24, 24)):
        assert plain_fill(own, scattered(shape, 0.5), 24) < LIMITS[len(shape)]
    planes = np.moveaxis(picture(), -1, 0)
    missing = scattered((128, 128), 0.5)
    sizes = block_sizes((128, 128), own)
    guess = coarse_guess(planes, missing)
    found = fill(guess, missing, 0.05, rounds=24, sizes=sizes, settings=own)
    assert rms(found, planes, missing) < 0.68 * rms(guess, planes, missing)


def test_either_side_of_first_and_last():
    own = settings.DEFAULT.filling
    for shape in ((400,), (64, 64)):
        assert plain_fill(own, scattered(shape, 0.5), 24) < LIMITS[len(shape)]


def test_either_side_of_first_of_holes_and_last_of_holes():
    assert fitted_error(picture(), square_holes((128, 128), 12, 8)) < 0.92


def test_either_side_of_step():
    """Short steps do not arrive, and long ones keep what a shift of blocks has added by chance."""
    assert plain_fill(settings.DEFAULT.filling, scattered((64, 64), 0.5), 24) < 0.249


def test_either_side_of_crop_samples(monkeypatch):
    """The fit between samples is chosen on a small part of a photograph."""
    seen, choose = [], filled.choose

    def watched(planes, axes, frames, options):
        seen.append(options.settings.grid)
        return choose(planes, axes, frames, options)

    monkeypatch.setattr(filled, "choose", watched)
    assert kf.fit(picture(), mask=written((128, 128))).report.chosen.kind == filling_choice.KIND
    for own in seen:
        assert min(own.crop_samples, own.direction_samples) > 1000
        assert max(own.crop_samples, own.direction_samples) < 128**2


def test_either_side_of_rounds(monkeypatch):
    counted = Counted(monkeypatch)
    image, missing = picture(), scattered((128, 128), 0.5)
    found = kf.fit(image, mask=missing).on_grid()
    error = np.sqrt(np.mean((found - image)[missing] ** 2))
    assert error < 0.0315
    assert counted.passes <= 100  # in windows and in the lattice


def test_either_side_of_rounds_of_holes(monkeypatch):
    counted = Counted(monkeypatch)
    assert fitted_error(picture(), written((128, 128))) < 0.87
    assert counted.passes <= 60


def test_either_side_of_least_share(monkeypatch):
    """A picture has most of its errors in one plane; three independent planes are all filled."""
    image, missing = picture(), written((128, 128))
    counted = Counted(monkeypatch)
    kf.fit(image, mask=missing)
    colours = counted.samples
    counted.samples = 0
    kf.fit(image.mean(axis=-1), mask=missing)
    assert colours < 2.5 * counted.samples  # of three
    grey = picture(360).mean(axis=-1)
    three = np.stack([grey[:128, :128], grey[110:238, 100:228], grey[232:, 200:328]], axis=-1)
    alone, counted.samples = counted.samples, 0
    assert fitted_error(three, missing) < LIMITS["three"]
    assert counted.samples > 2.5 * alone


def test_either_side_of_line_chance(monkeypatch):
    """The share of thresholds on a line must be more than two of its standard errors."""
    x = np.arange(300.0)
    missing = scattered((300,), 0.1)
    for share, is_filled in ((0.5, True), (0.3, False)):
        monkeypatch.setattr(filling_choice, "best_share", lambda *_, one=share: (one, 0.2))
        report = kf.fit(np.sin(x) + 0.2 * np.sin(0.1 * x), mask=missing).report
        assert (
            any(one.kind == "falling thresholds" and one.chosen for one in report.candidates)
            is is_filled
        )


def test_either_side_of_wide():
    """Holes of 16 pixels need blocks of 32, narrow ones do not."""
    for side, found in ((16, True), (7, False)):
        missing = np.zeros((64, 64), dtype=bool)
        missing[16 : 16 + side, 16 : 16 + side] = True
        assert are_wide(missing, settings.DEFAULT.filling) == found


def test_either_side_of_holes():
    truth = stripes((64, 64))
    for share, small in ((0.3, True), (0.42, False)):
        report = kf.fit(truth[0], mask=scattered((64, 64), share)).report
        kinds = {one.kind for one in report.candidates}
        # of holes the rivals are surfaces of least roughness
        assert ("least roughness" in kinds) == small
        # a mask that leaves few samples known cannot be moved onto them: nothing would be judged
        assert "falling thresholds" in kinds


def judged_samples(missing):
    judged = hidden_like(missing, settings.DEFAULT.filling)
    return judged, judged.hidden.size


def test_either_side_of_windows_and_window_samples():
    """Windows are enough for a standard error, and together far less than the lattice."""
    missing = scattered((500, 500), 0.05)
    judged, size = judged_samples(missing)
    assert 12 <= len(judged.windows) <= 40
    assert size < missing.size / 4
    middles = np.array([[part.start + part.stop for part in one] for one in judged.windows]) / 1000
    assert middles.min(axis=0).max() < 0.3  # spread over the lattice
    assert middles.max(axis=0).min() > 0.7
    assert 500 < judged.hidden.sum() < 3000


def test_either_side_of_whole_samples(monkeypatch):
    """A hole that stays linear is filled locally if the lattice is large, else by a whole fit."""
    monkeypatch.setattr(filling_choice, "certain_share", lambda *_: 0.0)
    rng, found = np.random.default_rng(0), []
    for shape in ((512, 512), (520, 512)):
        i, j = np.ogrid[: shape[0], : shape[1]]
        truth = np.sin(i / 60) * np.cos(j / 70) + np.where(rng.random(shape) < 1e-3, 1.0, 0.0)
        missing = np.zeros(shape, dtype=bool)
        missing[100:116, 200:216] = True
        planes = np.where(missing, 0.0, truth)[None]
        found.append(filling_choice.consider_holes(planes, missing, DEFAULT))
    whole, local = found
    assert whole.planes is None
    assert local.weight == 0.0
    surface = least_roughness(planes[:, None], missing[None], (local.ratio,))[0][:, 0]
    np.testing.assert_allclose(local.planes, surface, atol=1e-8)
    again = filling_choice.fill_again(planes, missing, local, DEFAULT)
    np.testing.assert_array_equal(again, local.planes)


def test_either_side_of_judged(monkeypatch):
    """Of large windows there are fewer, and what is judged is a bounded part of the work."""
    missing = square_holes((600, 600), 40, 12)
    judged, size = judged_samples(missing)
    assert len(judged.windows) >= 8
    assert size < 100_000
    missing = square_holes((600, 600), 14, 40)
    assert judged_samples(missing)[1] < missing.size / 4
    counted = Counted(monkeypatch)
    report = kf.fit(picture(360), mask=scattered((360, 360), 0.5)).report
    windows = counted.shapes[0]
    assert 20_000 < math.prod(windows) < 120_000
    assert report.expected_error_uncertainty < 0.25 * report.expected_error


def test_either_side_of_noise_samples(monkeypatch):
    """Noise is found from a few ten thousand samples around the holes, not from all."""
    seen = []
    find = filling_choice.find_noise

    def watched(planes, *others):
        seen.append(planes[0].size)
        return find(planes, *others)

    monkeypatch.setattr(filling_choice, "find_noise", watched)
    image = picture(360)
    missing = np.zeros((360, 360), dtype=bool)
    missing[150:154, 40:300] = True
    kf.fit(image, mask=missing)
    assert max(seen) < missing.size / 3
    weak = image + 0.02 * np.random.default_rng(0).standard_normal(image.shape).astype(np.float32)
    report = kf.fit(weak, mask=missing).report
    assert report.chosen.kind == "hats on the lattice"
    assert seen[-1] > 10_000


def test_either_side_of_fewest():
    for count, enough in ((4, False), (40, True)):
        missing = np.zeros((40, 40), dtype=bool)
        missing.flat[np.arange(count) * 39] = True
        judged = hidden_like(missing, settings.DEFAULT.filling)
        assert (judged is not None) == enough


def test_either_side_of_most_axes():
    for D, filled_so in ((4, True), (5, False)):
        options = PointOptions(settings=DEFAULT)
        assert filled._is_open(options, D) == filled_so


def test_either_side_of_near():
    """Hidden samples are two steps from missing ones, and no more than needed are left out."""
    missing = square_holes((300, 300), 6, 200)
    judged = hidden_like(missing, settings.DEFAULT.filling)
    least = 100
    for hidden, gaps in zip(judged.hidden, judged.stack(missing), strict=True):
        for axis in (0, 1):
            for step in range(1, 12):
                a, b = np.roll(hidden, step, axis), np.roll(hidden, -step, axis)
                if ((a | b) & gaps)[12:-12, 12:-12].any():
                    least = min(least, step)
    assert least == 3


def test_either_side_of_fewest_windows(monkeypatch):
    """Of windows so large that the bound of samples allows two, eight are looked at."""
    counts, spread = [], filling_choice._spread
    monkeypatch.setattr(
        filling_choice, "_spread", lambda p, count: counts.append(count) or spread(p, count)
    )
    hidden_like(square_holes((900, 900), 100, 3), settings.DEFAULT.filling)
    assert counts[-1] == 8


def test_either_side_of_most_missing():
    """Windows of 32 are enlarged for holes of 30, of which they have more than half, not for 20."""
    own = settings.DEFAULT.filling
    sides = []
    for hole in (16, 30):
        missing = square_holes((900, 900), hole, 10)
        sides.append(hidden_like(missing, own).hidden.shape[1])
    assert sides[0] <= 64 < sides[1]


def test_either_side_of_fewest_differences():
    noise = np.random.default_rng(0).standard_normal((1, 40, 40))
    known = np.zeros((40, 40), dtype=bool)
    for side, found in ((9, False), (25, True)):
        missing = ~known
        missing[:side, :side] = False
        assert (noise_ratio(noise, missing, DEFAULT) > 0) == found


def test_either_side_of_stronger():
    """A constant part of a picture does not hide noise, and rare spots are not noise."""
    rng = np.random.default_rng(0)
    missing = scattered((200, 200), 0.3)
    noise = rng.standard_normal((1, 200, 200))
    noise[:, :80] = 0.0
    assert 0.8 < noise_ratio(noise, missing, DEFAULT) < 1.2
    i, j = np.ogrid[:200, :200]
    wave = (np.sin(i / 9) * np.cos(j / 8))[None]
    spots = wave + (rng.random(wave.shape) < 0.01)
    assert noise_ratio(spots, missing, DEFAULT) < 0.5


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        OWN.rounds = 3


@pytest.mark.parametrize("factor", [1e155, 1e300, 1e-155, 1e-300])
def test_gaps_of_very_large_and_small_values(factor):
    """Known samples are met, and missing ones filled as in other units, also by `refit`."""
    values = np.add.outer(np.sin(np.arange(20) / 3), np.cos(np.arange(24) / 4))
    gaps = np.random.default_rng(0).random(values.shape) < 0.3
    expected = kf.fit(np.where(gaps, np.nan, values), mask=gaps)
    field = kf.fit(np.where(gaps, np.nan, values * factor), mask=gaps)
    np.testing.assert_allclose(field.on_grid() / factor, expected.on_grid(), atol=1e-9)
    np.testing.assert_allclose(field.on_grid()[~gaps] / factor, values[~gaps], atol=1e-12)
    ratio = field.report.expected_error / factor / expected.report.expected_error
    assert ratio == pytest.approx(1, rel=1e-6)
    again = field.refit(np.where(gaps, 0.0, values * factor))
    np.testing.assert_allclose(again.on_grid() / factor, expected.on_grid(), atol=1e-9)


def test_either_side_of_shifts(monkeypatch):
    seen, shift = [], filling.even_shift
    monkeypatch.setattr(filling, "even_shift", lambda s, turn: seen.append(turn) or shift(s, turn))
    missing = scattered((32, 32), 0.5)
    fill(coarse_guess(stripes((32, 32)), missing), missing, 0.3, rounds=20, sizes=[(8, 8)])
    assert sorted(seen) == list(range(8))


def test_either_side_of_covariance_samples(monkeypatch):
    seen, cov = [], np.cov
    monkeypatch.setattr(np, "cov", lambda rows: seen.append(rows.shape[1]) or cov(rows))
    planes = np.random.default_rng(0).random((2, 200, 200))
    fill(planes, square_holes((200, 200), 4, 2), 0.3, rounds=2, sizes=[(8, 8)])
    assert 10_000 < seen[0] < 30_000


def test_either_side_of_moves_and_move(monkeypatch):
    """Each window is moved four times, up to twice its length."""
    seen, moved = [], filling_choice._moved

    def watched(missing, window, *others):
        target, holes = moved(missing, window, *others)
        at = (target[0].start - window[0].start) / (window[0].stop - window[0].start)
        seen.append((str(window), at))
        return target, holes

    monkeypatch.setattr(filling_choice, "_moved", watched)
    hidden_like(square_holes((600, 600), 6, 200), settings.DEFAULT.filling)
    windows = {window for window, _ in seen}
    assert len(seen) == 4 * len(windows)
    assert 1.2 < max(abs(at) for _, at in seen) < 2.5


def test_either_side_of_activity_distances_and_activity_samples(monkeypatch):
    seen, plain = [], filling_choice.activity

    def watched(stack, places, distances, most=None, shares=None):
        found = plain(stack, places, distances, most, shares)
        seen.append((distances, most, len(found)))
        return found

    monkeypatch.setattr(filling_choice, "activity", watched)
    planes = np.moveaxis(picture(), -1, 0)
    assert filling_choice.consider_holes(planes, written((128, 128)), DEFAULT) is not None
    assert {distances for distances, _, _ in seen} == {(2, 4, 8)}
    assert seen[0][1] == 4096


def test_either_side_of_step_samples(monkeypatch):
    """The step of values that have 1000 levels is known from thousands of them, not from all."""
    seen, unique = [], np.unique
    monkeypatch.setattr(np, "unique", lambda some: seen.append(len(some)) or unique(some))
    values = np.random.default_rng(0).integers(0, 1000, 200_000).astype(float)
    assert filling_choice._step(values, DEFAULT.filling.step_samples) == 1.0
    assert seen[0] < 20_000


def test_either_side_of_share_caution():
    """Of a share of two standard errors about a half is taken, of one of 1.2 nothing."""
    caution = DEFAULT.filling.share_caution
    assert 0.4 < certain_share(0.6, 0.3, caution) / 0.6 < 0.6
    assert certain_share(0.6, 0.5, caution) == 0
