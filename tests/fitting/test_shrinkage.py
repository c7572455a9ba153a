"""Shrinkage in blocks of cosines, groups of alike patches, and their decisions."""

import itertools
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.fft import dctn

import kronfield as kf
from effort import examples
from kronfield.fitting import denoised_gaps, denoising, grouping, shrinkage
from kronfield.fitting.denoised_gaps import GapsDenoiser
from kronfield.fitting.denoising import judged_parts, judged_windows
from kronfield.fitting.inputs import GridInput
from kronfield.fitting.lone import lone, noise_bar
from kronfield.fitting.noise import Noise
from kronfield.fitting.settings import DEFAULT, GroupingSettings, ShrinkageSettings
from kronfield.fitting.shrinkage import (
    Tiling,
    samples_of,
    shrink,
    slabs,
    tilings,
    weights_of,
)

SHAPES = st.sampled_from([(70,), (33,), (20, 31), (5, 40), (1, 9), (9, 10, 11), (5, 6, 4, 7)])


def white(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def squares(side=64, cell=16, height=6.0, seed=1):
    """Squares of random brightness, in units of the noise."""
    levels = np.random.default_rng(seed).random((side // cell, side // cell))
    return height * np.kron(levels, np.ones((cell, cell)))[None]


def error(found, truth):
    return float(np.sqrt(np.mean((found - truth) ** 2)))


# Blocks


@pytest.mark.parametrize("D", [1, 2, 3])
def test_weights_are_those_of_the_cosine_transform(D):
    blocks = white(2, *(n for _ in range(D) for n in (1, 8))).astype(np.float32)
    found = weights_of(blocks, (8,) * D)
    axes = tuple(range(2, 2 + 2 * D, 2))
    np.testing.assert_allclose(found, dctn(blocks, axes=axes, norm="ortho"), atol=1e-5)


@settings(deadline=None, max_examples=examples(30))
@given(SHAPES, st.integers(2, 9), st.integers(0, 8))
def test_blocks_cover_every_sample_once_and_come_back(shape, size, shift):
    sizes = tuple(min(size, n) for n in shape)
    tiling = Tiling(sizes, tuple(shift % b for b in sizes))
    values = white(2, *shape).astype(np.float32)
    padded = np.pad(values, [(0, 0), *((b, b) for b in sizes)])
    blocks = tiling.blocks(padded, sizes, shape)
    again = samples_of(weights_of(blocks, sizes), sizes)
    joined = np.zeros_like(padded)
    tiling.blocks(joined, sizes, shape)[...] += again
    inside = (slice(None), *(slice(b, b + n) for b, n in zip(sizes, shape, strict=True)))
    np.testing.assert_allclose(joined[inside], values, atol=1e-4)


def slow(planes, used):
    """Shrinkage by loops over blocks and SciPy's transform."""
    planes = planes.astype(np.float64)
    shape, first = planes.shape[1:], None
    for part in tilings(shape, used):
        total, share = np.zeros(planes.shape), np.zeros(planes.shape)
        for tiling in part:
            _add_tiling(planes, first, tiling, used, total, share)
        first = total / share
    return first


def _add_tiling(planes, pilot, tiling, used, total, share):
    shape = planes.shape[1:]
    starts = [
        range(s - b if s else 0, n, b)
        for s, b, n in zip(tiling.shift, tiling.sizes, shape, strict=True)
    ]
    for corner in np.stack(np.meshgrid(*starts, indexing="ij"), -1).reshape(-1, len(shape)):
        index = [np.arange(c, c + b) for c, b in zip(corner, tiling.sizes, strict=True)]
        # samples past an end are mirrored
        mirrored = [mirror(i, n) for i, n in zip(index, shape, strict=True)]
        inside = [(i >= 0) & (i < n) for i, n in zip(index, shape, strict=True)]
        for c in range(len(planes)):
            block = dctn(planes[c][np.ix_(*mirrored)], norm="ortho")
            if pilot is None:
                factors = (np.abs(block) > used.threshold) * 1.0
            else:
                q = dctn(pilot[c][np.ix_(*mirrored)], norm="ortho") ** 2
                factors = q / (q + 1)
            factors.flat[0] = 1.0
            trust = factors.size**used.larger / np.sum(factors**2)
            back = dctn(factors * block, norm="ortho", type=3)
            to = np.ix_(*(i[ok] for i, ok in zip(index, inside, strict=True)))
            total[c][to] += trust * back[np.ix_(*inside)]
            share[c][to] += trust


def mirror(i, n):
    i = i % (2 * n)
    return np.where(i < n, i, 2 * n - 1 - i)


@pytest.mark.parametrize("shape", [(50,), (19, 26), (9, 7, 11), (4, 5, 6, 5)])
def test_shrinkage_is_that_of_the_slow_way(shape):
    sizes = ((8,), (4, 8), (4,), (2,)), ((8, 6), (6, 8), (3,), (4,))
    used = replace(DEFAULT.shrinkage, first_sizes=sizes[0], second_sizes=sizes[1], shifts=2)
    values = 3 * white(2, *shape)
    np.testing.assert_allclose(shrink(values, used), slow(values, used), atol=2e-4)


@settings(deadline=None, max_examples=examples(12))
@given(st.sampled_from([(300, 40), (1000,), (90, 12, 10)]), st.integers(1, 3))
def test_the_result_does_not_depend_on_the_slabs(shape, channels):
    values = 2 * white(channels, *shape)
    whole = shrink(values)
    reach = shrinkage.margin(shape, DEFAULT.shrinkage)
    found = np.empty_like(whole)
    parts = slabs(values.shape, reach, most=1)
    for slab in parts:
        some = shrinkage.shrink_slab(values[:, slab.needed], slab, shape, DEFAULT.shrinkage)
        found[:, slab.rows] = some[:, slab.inner]
    assert len(parts) > 1
    np.testing.assert_allclose(found, whole, atol=1e-5)


@settings(deadline=None, max_examples=examples(12))
@given(
    st.sampled_from(
        [(40, 20, 9), (8, 8, 8), (7, 6, 9), (9, 5, 6, 7), (41, 37), (17, 3, 20), (500,)]
    ),
    st.integers(1, 2),
)
def test_rows_that_roll_through_windows_are_those_of_the_whole(shape, channels):
    values = 2 * white(channels, *shape) + 4 * (np.arange(shape[-1]) % 5)
    whole = shrinkage.Slab(slice(0, shape[0]), slice(0, shape[0]))
    expected = shrinkage.shrink_slab(values, whole, shape, DEFAULT.shrinkage)
    found, order = np.full_like(expected, np.nan), []

    def put(rows, part):
        order.append(rows.start)
        found[:, rows] = part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shrinkage, "STRIP", 200)  # several pieces in each tiling
        shrinkage._roll(lambda rows: values[:, rows], values.shape, put, DEFAULT.shrinkage)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert order == sorted(set(order))


def test_rows_of_volumes_are_read_a_few_at_a_time(monkeypatch):
    values, most = white(1, 60, 24, 24), []

    def rows(part):
        most.append(part.stop - part.start)
        return values[:, part]

    expected = shrink(values)
    assert len(most) == 0
    monkeypatch.setattr(shrinkage, "SLAB", 1 << 12)
    found = np.empty_like(expected)
    shrinkage.shrink_rows(
        rows,
        values.shape,
        lambda at, part: found.__setitem__((slice(None), at), part),
        DEFAULT.shrinkage,
    )
    assert max(most) <= 24
    np.testing.assert_allclose(found, expected, atol=1e-5)


@settings(deadline=None, max_examples=examples(20))
@given(SHAPES, st.integers(1, 3), st.sampled_from([np.float32, np.float64]))
def test_any_shape_is_shrunk(shape, channels, dtype):
    values = (5 + 0.1 * white(channels, *shape)).astype(dtype)
    found = shrink(values)
    assert found.shape == values.shape
    assert found.dtype == np.float32
    assert error(found, 5.0) <= error(values, 5.0) + 1e-6


def test_noise_is_removed_and_edges_stay():
    truth = squares()
    noisy = truth + white(*truth.shape)
    assert error(shrink(noisy), truth) < 0.45


@pytest.mark.parametrize("seed", range(20))
def test_samples_that_noise_cannot_explain_are_kept_in_every_draw(seed):
    rng = np.random.default_rng(seed)
    stars = (rng.random((64, 64)) < 0.002) * rng.uniform(10, 40, (64, 64))
    stars[rng.integers(64), rng.integers(64)] = 10.0
    noisy = stars + rng.standard_normal(stars.shape)
    for thorough in (False, True):
        found = kf.denoise(noisy, noise=1.0, thorough=thorough).on_grid()
        assert np.all(found[stars > 0] > 0.3 * stars[stars > 0])
        assert np.mean((found - stars)[stars == 0] ** 2) < 0.08


@pytest.mark.parametrize("shape", [(200,), (24, 30), (12, 11, 13), (7, 8, 7, 6)])
def test_lone_samples_are_those_of_the_slow_way(shape):
    noisy = 3 * white(2, *shape)
    noisy[0].flat[::50] += 25
    D, settings = len(shape), replace(DEFAULT.shrinkage, lone_reaches=(4, 3, 2, 1))
    reach, expected = settings.lone_reach(D), np.zeros(noisy.shape, dtype=bool)
    for place in np.argwhere(np.abs(noisy) > 5):
        near = [
            np.clip(np.arange(i - reach, i + reach + 1), 0, n - 1)
            for i, n in zip(place[1:], shape, strict=True)
        ]
        scale = np.median(np.abs(noisy[place[0]][np.ix_(*near)])) / 0.67449
        expected[tuple(place)] = np.abs(noisy[tuple(place)]) > 5 * max(scale, 1)
    np.testing.assert_array_equal(lone(noisy, 5.0, settings), expected)
    assert lone(0 * noisy, 5.0, settings) is None
    assert lone(noisy, np.inf, settings) is None


def test_the_largest_of_many_normal_numbers_reaches_the_bar_by_its_chance():
    largest = np.abs(white(2000, 500)).max(axis=1)
    assert np.mean(largest > noise_bar(500, 0.1)) == pytest.approx(0.1, abs=0.02)


# Groups


def slow_groups(noisy, pilot, used):
    """Groups by loops, with the covariance of the patches instead of their Gram matrix."""
    D, shape = noisy.ndim - 1, noisy.shape[1:]
    b = tuple(min(used.patch(D, len(noisy)), n) for n in shape)
    counts = [n - size + 1 for n, size in zip(shape, b, strict=True)]
    total, share = np.zeros(noisy.shape), np.zeros(shape)

    def patch(planes, place):
        part = tuple(slice(p, p + size) for p, size in zip(place, b, strict=True))
        return planes[(slice(None), *part)]

    def apart(place, ref):
        """Compare means of neighbours, in pairs that cover the patches."""
        total = 0.0
        for offset in itertools.product(*map(grouping.pairs, b)):
            a, c = (
                pilot[(slice(None), *(slice(i, i + 2) for i in np.add(offset, at)))]
                for at in (place, ref)
            )
            axes = tuple(range(1, D + 1))
            total += np.sum((a.mean(axis=axes) - c.mean(axis=axes)) ** 2)
        return total

    step, reach = used.step(D), used.reach(D)
    every = [sorted({*range(0, n, step), n - 1}) for n in counts]
    for ref in itertools.product(*every):
        near = []
        for r, n in zip(ref, counts, strict=True):
            low = min(max(r - reach, 0), max(n - (2 * reach + 1), 0))
            near.append(range(low, min(low + 2 * reach + 1, n)))
        places = np.array(list(itertools.product(*near)))
        distances = [apart(p, ref) for p in places]
        best = places[np.argsort(distances, kind="stable")[: used.group]]
        model = np.stack([patch(pilot, p).ravel() for p in best]).astype(np.float64)
        mean = model.mean(axis=0)
        S = (model - mean).T @ (model - mean) / len(best)
        gain = S @ np.linalg.inv(S + np.eye(len(S)))
        for p in best:
            found = mean + (patch(noisy, p).ravel() - mean) @ gain
            part = tuple(slice(i, i + size) for i, size in zip(p, b, strict=True))
            total[(slice(None), *part)] += found.reshape(len(noisy), *b)
            share[part] += 1
    return np.where(share > 0, total / np.maximum(share, 1), pilot)


@pytest.mark.parametrize("shape", [(60,), (21, 18), (8, 9, 7)])
def test_groups_are_those_of_the_slow_way(shape):
    used = GroupingSettings(patches=(6, 3, 2), group=7, steps=(4, 4, 4), reaches=(9, 5, 2))
    pilot = 3 * white(2, *shape)
    noisy = pilot + white(2, *shape, seed=1)
    found = grouping.regroup(noisy, pilot, used, compared=(0, 1))
    np.testing.assert_allclose(found, slow_groups(noisy, pilot, used), atol=1e-3)


@pytest.mark.parametrize("shape", [(200,), (60, 20), (40, 9, 8), (11, 12, 7)])
@pytest.mark.parametrize("step", [2, 4, 30])
def test_groups_do_not_depend_on_the_parts(shape, step, monkeypatch):
    used = GroupingSettings(
        patches=(6, 3, 2), group=7, steps=(step,) * 3, reaches=(9, 5, 2), unasked=(1e9,) * 3
    )
    pilot = 3 * white(2, *shape)
    noisy = pilot + white(2, *shape, seed=1)
    whole = grouping.regroup(noisy, pilot, used, start=3)
    monkeypatch.setattr(grouping, "SLAB", 1)
    rows = []
    found = np.full_like(whole, np.nan)

    def put(part, values):
        rows.append((part.start, part.stop))
        found[:, part] = values

    grouping.regroup_rows(lambda part: noisy[:, part], pilot, put, used, start=3)
    np.testing.assert_allclose(found, whole, atol=1e-4)
    assert [low for low, _ in rows] == [0, *(high for _, high in rows[:-1])]
    if shape[0] >= 40 and step < 30:
        assert len(rows) > 1


@settings(deadline=None, max_examples=examples(20))
@given(SHAPES, st.integers(1, 3))
def test_any_shape_is_regrouped(shape, channels):
    values = 5 + white(channels, *shape)
    found = grouping.regroup(values, shrink(values))
    assert found.shape == values.shape
    assert np.all(np.isfinite(found))


def test_groups_are_better_than_blocks_where_patterns_repeat():
    x = np.arange(72)
    truth = 6 * np.sin(np.add.outer(x, 2 * x) ** 2 / 300)[None]
    noisy = truth + white(*truth.shape)
    pilot = shrink(noisy)
    assert error(grouping.regroup(noisy, pilot), truth) < 0.9 * error(pilot, truth)


# Decisions: each is right as it is, and wrong on either side


def texture(side=64):
    """Fine detail beside large flat areas, in units of the noise."""
    x = np.arange(side)
    fine = 3 * np.sin(1.9 * x) * np.sin(1.3 * x)[:, None] * (x > side // 2)
    return (squares(side) + fine)[None, 0]


def mean_error(used, truth, thorough=None, seeds=3):
    errors = []
    for seed in range(seeds):
        noisy = truth + white(*truth.shape, seed=seed)
        found = shrink(noisy, used)
        if thorough is not None:
            found = grouping.regroup(noisy, found, thorough)
        errors.append(error(found, truth))
    return float(np.mean(errors))


def specks(side=96):
    """Small bright squares, far apart."""
    truth = np.zeros((1, side, side))
    for row, column in np.random.default_rng(3).integers(0, side - 4, (side // 4, 2)):
        truth[0, row : row + 4, column : column + 4] = 6.0
    return truth


def first_sizes_decides(used):
    """Small blocks are best for small things, large ones for textures."""
    return all(
        mean_error(used, truth) < 1.05 * mean_error(DEFAULT.shrinkage, truth)
        for truth in (texture(), specks())
    )


second_sizes_decides = first_sizes_decides


def threshold_decides(used):
    return mean_error(used, texture()) < 1.05 * mean_error(DEFAULT.shrinkage, texture())


def larger_decides(used):
    """Small blocks weigh more at small things, large ones where little changes."""
    tone = (3 * np.sin(np.arange(2000) / 5))[None]
    return all(
        mean_error(used, truth) < 1.03 * mean_error(DEFAULT.shrinkage, truth)
        for truth in (tone, squares(), specks())
    )


def starry(seed, side=96):
    """Lone bright samples, and a patch whose noise is twice as strong."""
    truth = np.zeros((1, side, side))
    truth[0][tuple(np.random.default_rng(seed).integers(3, (44, side - 3), (12, 2)).T)] = 10.0
    noise = white(1, side, side, seed=seed)
    noise[0, 48:88, 24:64] *= 2
    return truth, truth + noise


def lone_reaches_decides(used):
    """Lone samples are kept where noise is as measured; where it is stronger, it is removed."""
    kept, left = [], 0
    for seed in range(5):
        truth, noisy = starry(seed)
        found = lone(noisy, 4.8, used)
        kept.append(np.mean(found[truth > 0]))
        left += np.count_nonzero(found[0, 52:84, 28:60])
    return np.mean(kept) > 0.9 and left == 0


def lone_chance_decides(used):
    """Noise alone is removed, and lone samples that are ten times as far out are kept."""
    bar, kept, left = noise_bar(96**2, used.lone_chance), [], 0
    for seed in range(5):
        truth, noisy = starry(seed)
        far = lone(noisy - shrink(noisy), bar, used)
        kept.append(0.0 if far is None else np.mean(far[truth > 0]))
        flat = white(1, 96, 96, seed=seed)
        left += lone(flat - shrink(flat), bar, used) is not None
    return np.mean(kept) > 0.8 and left == 0


def shifts_decides(used):
    """More shifts are better; half as many again gain little for the time."""
    shape, both = (512, 512), np.repeat(texture(), 2, axis=0)
    is_good = mean_error(used, both) < 1.05 * mean_error(DEFAULT.shrinkage, both)
    counts = [sum(map(len, tilings(shape, one))) for one in (used, DEFAULT.shrinkage)]
    return is_good and counts[0] <= 1.5 * counts[1]


def judged_decides(used):
    """Enough samples for a sure decision, and few beside those of a picture of 480 x 480."""
    parts = judged_windows((480, 480), used)
    count = sum(np.prod([one.stop - one.start for one in part]) for part in parts)
    return 0.1 < count / 480**2 < 0.3


def judged_margin_decides(used):
    """What is judged is denoised as well as in the whole, and is not a small part."""
    x = np.arange(192)
    truth = (6 * np.sin(np.add.outer(x / 9, x / 14)))[None]
    whole, part = [], []
    parts = judged_windows((192, 192), used)
    inner = judged_parts(parts, (192, 192), used)
    sizes = [np.prod([max(one.stop - one.start, 0) for one in some]) for some in inner]
    if np.mean(sizes) < 0.4 * 64**2:
        return False
    for seed in range(3):
        noisy = truth + white(*truth.shape, seed=seed)
        clean = shrink(noisy)
        for window, some in zip(parts, inner, strict=True):
            place = (slice(None), *window)
            own = (slice(None), *some)
            part.append(np.mean((shrink(noisy[place]) - truth[place])[own] ** 2))
            whole.append(np.mean((clean - truth)[place][own] ** 2))
    return np.mean(part) < 1.03 * np.mean(whole)


def picture_windows_decides(used):
    """A picture with detail in some places is judged in these and others, not everywhere."""
    places = np.add.outer(np.arange(480) // 160, np.arange(480) // 160) % 2 == 1
    parts = judged_windows((480, 480), used)
    busy = [bool(places[part].any()) for part in parts]
    count = sum(places[part].size for part in parts)
    is_bounded = len(judged_windows((5000, 5000), used)) < 50
    return 0.2 < np.mean(busy) < 0.8 and count < 0.5 * 480**2 and is_bounded


def line_windows_decides(used):
    """A line that rests most of the time is judged where it does not, in bounded time."""
    i = np.arange(60_000)
    truth = 6.0 * (np.sin(i / 9) > 0) * (i // 3000 % 3 == 1)
    parts = judged_windows(truth.shape, used)
    busy = [np.ptp(truth[part]) > 0 for part in parts]
    return 0.2 < np.mean(busy) < 0.5 and len(parts) < 100


def lag_decides(used):
    """Detail in the difference of two channels is found, beside noise and shading of their sum."""
    x = np.arange(32)
    detail = 0.7 * np.sin(np.add.outer(x, 0.5 * x) * 2 * np.pi / 16)
    shading = 3 * x[:, None] / 32 + np.zeros(32)
    truth, cosines = np.stack([shading + detail, 0.3 * shading - detail]), []
    for seed in range(8):
        rotation = denoising._decorrelating(truth + white(2, 32, 32, seed=seed), used.lag)
        cosines.append(np.abs(rotation @ [1, -1]).max() / np.sqrt(2))
    return np.mean(cosines) > 0.95


def error_block_decides(used):
    """The error of the mean of correlated terms, right in the mean and about the same each time."""
    found, means = [], []
    for seed in range(40):
        terms = white(264, 264, seed=seed)
        for axis in (0, 1):
            total = np.cumsum(terms, axis=axis)
            terms = (total.take(range(8, 264), axis) - total.take(range(256), axis)) / 8
        found.append(denoising._standard_error([terms], used.error_block))
        means.append(terms.mean())
    return 0.75 < np.mean(found) / np.std(means) < 1.33 and np.std(found) < 0.1 * np.mean(found)


def gap_rounds_decides(used):
    """Error as small as after many rounds, and not many of them."""
    truth = 0.1 * squares(48)
    missing = np.random.default_rng(3).random((48, 48)) < 0.5
    sigma = np.array([0.1])
    noise = Noise(sigma, sigma, np.eye(1), 1.0, True, "given", True)
    layout = SimpleNamespace(shape=None)
    noisy = truth + 0.1 * white(*truth.shape)
    start = np.where(missing, 0.3, noisy)  # a poor guess shows how many rounds there are
    cleaned = [
        GapsDenoiser(layout, missing, noise, replace(DEFAULT, shrinkage=one), False).cleaned(
            noisy, missing, start
        )
        for one in (used, replace(used, gap_rounds=12))
    ]
    errors = [error(found, truth) for found in cleaned]
    return 1.01 < errors[0] / errors[1] < 1.3


def gap_hidden_decides(used):
    """Enough hidden samples to tell errors apart, and few beside those that are left."""
    noisy = squares(32) + white(1, 32, 32)
    missing = np.random.default_rng(3).random((32, 32)) < 0.3
    grid = GridInput(np.where(missing, 0, noisy[0]), None, None, None, None)
    sigma = np.ones(1)
    noise = Noise(sigma, sigma, np.eye(1), 1.0, True, "given", True)
    judge = GapsDenoiser(grid.layout, missing, noise, replace(DEFAULT, shrinkage=used), False)
    hidden = len(denoised_gaps._judged(judge, noisy, missing)[0])
    return 0.05 < hidden / np.count_nonzero(~missing) < 0.2


@pytest.mark.parametrize("name", [one.name for one in fields(ShrinkageSettings)])
def test_shrinkage_decision_fails_on_either_side(name):
    check = globals()[f"{name}_decides"]
    assert check(DEFAULT.shrinkage)
    sides = next(one for one in fields(ShrinkageSettings) if one.name == name).metadata["sides"]
    for value in sides:
        assert not check(replace(DEFAULT.shrinkage, **{name: value})), f"{name} = {value}"


def repeated(side=80):
    x = np.arange(side)
    waves = np.sin(np.add.outer(x, 2 * x) / 4)
    return 4 * np.stack([waves + (x % 20 > 9), waves - (x[:, None] % 16 > 7)])


def group_numbers(used, channels, side=400):
    """How many numbers are handled for a large picture, a measure of the time."""
    near = (2 * used.reach(2) + 1) ** 2
    references = (side / used.step(2)) ** 2
    return references * (used.group**2 + near) * used.patch(2, channels) ** 2


def varied(side=80):
    """Edges at all angles, none of which occurs twice."""
    rng, x = np.random.default_rng(5), np.arange(side)
    truth = np.zeros((2, side, side))
    for _ in range(40):
        a, b, c = rng.standard_normal(3)
        truth += rng.standard_normal((2, 1, 1)) * (a * x + b * x[:, None] > c * side)
    return truth


def are_unasked(used):
    """Groups follow unasked in clips and in one channel, not in pictures in colour or on lines."""
    settings = replace(DEFAULT, grouping=used)
    found = {
        (D, C): denoising.groups_after(D, C, False, settings) for D in (1, 2, 3, 4) for C in (1, 3)
    }
    few = [found[at] == (used.quick(at[0]),) for at in ((2, 1), (3, 3), (4, 1))]
    none = [found[at] for at in ((1, 1), (1, 3), (2, 3), (4, 3))]
    return all(few) and found[3, 1] == (used,) and none == [()] * 4


def check_slow(sides):
    """Fewer rounds are worse in any dimension; denser lattices take over twice as long."""
    x = np.arange(20)
    truths = [
        6 * np.sin(np.arange(600) / 5)[None],
        np.concatenate([squares(), squares()[:, ::-1]]),
        np.kron(squares(16, 8)[..., None] * [1, 0.3], np.ones(10)),
        6 * (x[:, None, None, None] + 2 * x[:12, None, None] + x[:12, None] > x[:12] + 14)[None],
    ]

    def after(used, truth):
        noisy = truth + white(*truth.shape)
        clean = shrink(noisy)
        for one in used.slower(truth.ndim - 1):
            clean = grouping.regroup(noisy, clean, one)
        return error(clean, truth)

    def work(used, D):
        return sum(one.work(D, 2) for one in used.slower(D))

    own, (few, dense) = DEFAULT.grouping, (replace(DEFAULT.grouping, slow=one) for one in sides)
    for truth in truths:
        D = truth.ndim - 1
        assert after(own, truth) < 0.99 * after(few, truth), D
        assert work(dense, D) > 2 * work(own, D)


def leading_decides(used):
    """Channels in which little varies are not compared, those in which much does are."""
    rng, x = np.random.default_rng(0), np.arange(4096)
    colours = np.stack([0.1 * np.sin(x), 0.2 * np.sin(2 * x), np.sin(3 * x)])
    unlike = rng.standard_normal((3, 4096)) * np.array([1.0, 2.0, 1.5])[:, None]
    found = [grouping.leading(one, used.leading) for one in (colours, unlike)]
    return found == [(2,), (1, 2)]


@pytest.mark.parametrize("name", [one.name for one in fields(GroupingSettings)])
def test_grouping_decisions_fail_on_either_side(name):
    """Every other value is worse, or handles more than three times the numbers."""
    own = next(one for one in fields(GroupingSettings) if one.name == name)
    if name == "unasked":
        assert are_unasked(DEFAULT.grouping)
        for value in own.metadata["sides"]:
            assert not are_unasked(replace(DEFAULT.grouping, unasked=value)), value
        return
    if name == "slow":
        check_slow(own.metadata["sides"])
        return
    if name == "leading":
        assert leading_decides(DEFAULT.grouping)
        for value in own.metadata["sides"]:
            assert not leading_decides(replace(DEFAULT.grouping, leading=value)), value
        return
    of_one = name.startswith("quick") or name == "patch_of_one"
    pictures = [truth[: 1 if of_one else 2] for truth in (repeated(), varied())]

    def errors(used):
        return [mean_error(DEFAULT.shrinkage, truth, way(used), 1) for truth in pictures]

    def way(used):
        return used.quick(2) if name.startswith("quick") else used

    best = errors(DEFAULT.grouping)
    for value in own.metadata["sides"]:
        used = replace(DEFAULT.grouping, **{name: value})
        is_worse = any(b > 1.02 * a for a, b in zip(best, errors(used), strict=True))
        channels = len(pictures[0])
        counts = [group_numbers(way(one), channels) for one in (used, DEFAULT.grouping)]
        assert is_worse or counts[0] > 3 * counts[1], f"{name} = {value}"
