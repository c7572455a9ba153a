"""Middles along the directions of least change: against plain loops, and what must not matter."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from hypothesis.extra.numpy import arrays
from skimage import data
from threadpoolctl import threadpool_limits

from effort import examples
from kronfield._core.frames import sample_frame
from kronfield.fitting import directional
from kronfield.fitting.directional import SETTINGS, fill_middles
from kronfield.fitting.settings import DEFAULT
from kronfield.fitting.slopes import Refinement, along_axes, along_edges


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def middles(values, finer=None, settings=SETTINGS):
    """Return nodes from the first to the last sample of (C, N_1, ..., N_D)."""
    finer = finer or (True,) * (values.ndim - 1)
    sizes = [2 * n - 1 if more else n for n, more in zip(values.shape[1:], finer, strict=True)]
    nodes = np.full((len(values), *sizes), np.nan, np.result_type(values.dtype, np.float32))
    fill_middles(values, finer, nodes, settings)
    return nodes


def refined(values, directional=True, finer=None):
    axes = [np.arange(float(n)) for n in values.shape[1:]]
    frames = [sample_frame(axis) for axis in axes]
    found = Refinement.of(axes, frames, finer or [True] * len(axes), directional)
    assert found is not None
    return found(values)


# A slow and obvious form: nodes are named by their position x in halves of the spacing.
# ------------------------------------------------------------------------------------------


class Slow:
    def __init__(self, values, settings):
        self.shape, self.D, self.settings = values.shape[1:], values.ndim - 1, settings
        self.lattices = {(0,) * self.D: values}
        for odd in range(self.D, 0, -1):
            new = {}
            for e in itertools.product((0, 1), repeat=self.D):
                if sum(e) == odd:
                    sizes = [n - parity for n, parity in zip(self.shape, e, strict=True)]
                    new[e] = np.empty((len(values), *sizes))
                    for j in np.ndindex(*sizes):
                        new[e][(slice(None), *j)] = self.middle(
                            tuple(2 * i + parity for i, parity in zip(j, e, strict=True)), odd
                        )
            self.lattices |= new
        self.nodes = np.empty((len(values), *(2 * n - 1 for n in self.shape)))
        for e, lattice in self.lattices.items():
            self.nodes[(slice(None), *(slice(parity, None, 2) for parity in e))] = lattice

    @functools.cache  # noqa: B019
    def value(self, *x):
        """Return the value at a position, past the ends by odd reflection at the last nodes."""
        for axis, n in enumerate(self.shape):
            first, last = x[axis] % 2, 2 * (n - 1) - x[axis] % 2
            if not first <= x[axis] <= last:
                end = first if x[axis] < first else last
                at_end = self.value(*x[:axis], end, *x[axis + 1 :])
                return 2 * at_end - self.value(*x[:axis], 2 * end - x[axis], *x[axis + 1 :])
        return self.lattices[tuple(i % 2 for i in x)][(slice(None), *(i // 2 for i in x))]

    @functools.cache  # noqa: B019
    def distance(self, x, d):
        """Return how far the values of the two neighbours of a position lie apart."""
        ends = [self.value(*(i + sign * j for i, j in zip(x, d, strict=True))) for sign in (-1, 1)]
        return float(np.linalg.norm(ends[1] - ends[0]))

    def directions(self, x):
        odd = [i % 2 for i in x]
        for d in itertools.product((-1, 0, 1), repeat=self.D):
            diagonal = [abs(i) for i in d] == odd and next(filter(None, d)) == 1
            if diagonal or (sum(map(abs, d)) == sum(d) == 1 and not odd[d.index(1)]):
                yield d

    @functools.cache  # noqa: B019
    def filter(self, e, d, odd):
        """Return where changes along d are pooled around nodes of parity e, and their weights."""
        filters = [(self.settings.same, 0), (self.settings.other, 1)]
        if odd == self.D:
            two = self.D == 2
            filters = [(self.settings.cells if two else self.settings.cells_of_volumes, 0)]
        taps = {}  # of a filter along one axis, by the distance in halves
        for steps, parity in filters:
            kernel = np.ones(1)
            for step in steps:
                kernel = np.convolve(kernel, [1, *[0] * (step - 1), 1])
            for i, weight in enumerate(kernel / kernel.sum()):
                taps[2 * i - (len(kernel) - 1)] = weight
                assert (2 * i - (len(kernel) - 1)) % 2 == parity
        found = {}
        for offset in itertools.product(taps, repeat=self.D):
            at = [(i + j) % 2 for i, j in zip(e, offset, strict=True)]
            ends = tuple((i + j) % 2 for i, j in zip(at, d, strict=True))
            if 0 < sum(at) <= odd and ends in self.lattices:
                found[offset] = math.prod(taps[i] for i in offset)
        return found

    def change(self, x, d, odd):
        """Return the mean change per length along d around x."""
        total = sum(
            weight * self.distance(tuple(i + j for i, j in zip(x, offset, strict=True)), d)
            for offset, weight in self.filter(tuple(i % 2 for i in x), d, odd).items()
        )
        return total / math.hypot(*d)

    def middle(self, x, odd):
        directions = list(self.directions(x))
        changes = np.array([self.change(x, d, odd) for d in directions])
        changes += self.settings.floor * changes.sum()
        weights = (
            (changes / changes.max()) ** -self.settings.power if changes.any() else 1 + changes
        )
        total = 0
        for d, weight in zip(directions, weights / weights.sum(), strict=True):
            y = [
                self.value(*(a + i * b for a, b in zip(x, d, strict=True))) for i in (-3, -1, 1, 3)
            ]
            p, q, r = np.diff(y, axis=0)
            slope = (harmonic(p, q), harmonic(q, r))
            bend = self.settings.slope * (slope[0] - slope[1]) / 8
            total = total + weight * ((y[1] + y[2]) / 2 + bend)
        return total


def harmonic(p, q):
    return np.array([2 * a * b / (a + b) if a * b > 0 else 0.0 for a, b in zip(p, q, strict=True)])


CASES = [((5, 4), 1), ((3, 3), 2), ((6, 7), 3), ((3, 9), 5)]
CASES += [((4, 3, 5), 1), ((3, 4, 3), 4), ((3, 3, 3, 3), 1)]


@pytest.mark.parametrize(("shape", "channels"), CASES)
def test_plain_loops_find_the_same(shape, channels, rng):
    values = rng.standard_normal((channels, *shape)) ** 3
    values.flat[::3] = 0  # equal neighbours
    expected = Slow(values, SETTINGS).nodes
    np.testing.assert_allclose(middles(values), expected, atol=1e-10)
    single = middles(values.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=2e-4)


def test_other_settings_do_what_they_say(rng):
    values = rng.standard_normal((2, 6, 5))
    for settings in (
        replace(SETTINGS, power=3, floor=0.2, slope=1.0),
        replace(SETTINGS, cells=(1, 1), same=(), other=(1,)),
        replace(SETTINGS, cells=(), same=(1, 1, 2), other=(1, 1, 1)),
    ):
        expected = Slow(values, settings).nodes
        np.testing.assert_allclose(middles(values, settings=settings), expected, atol=1e-10)


# What must not matter
# ------------------------------------------------------------------------------------------


numbers = st.floats(-100, 100, width=32)
shapes = st.one_of(
    st.tuples(st.integers(1, 5), st.integers(3, 7), st.integers(3, 7)),
    st.tuples(st.integers(1, 2), *[st.integers(3, 4)] * 3),
)
signals = shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=numbers))


@given(signals, st.floats(1e-3, 1e3), st.floats(-100, 100), st.booleans())
@hypothesis_settings(deadline=None, max_examples=examples(60))
def test_units_and_an_added_constant(values, factor, shift, negative):
    factor = -factor if negative else factor
    tolerance = 1e-8 * (1 + abs(factor)) * (1 + np.abs(values).max() + abs(shift))
    np.testing.assert_allclose(
        middles(factor * values + shift), factor * middles(values) + shift, atol=tolerance
    )


@given(signals, st.randoms(use_true_random=False))
@hypothesis_settings(deadline=None, max_examples=examples(60))
def test_flips_and_orders_of_axes_and_channels(values, random):
    axes = random.sample(range(1, values.ndim), values.ndim - 1)
    flips = [slice(None, None, random.choice((1, -1))) for _ in axes]
    channels = random.sample(range(len(values)), len(values))

    def changed(array):
        return array.transpose(0, *axes)[(channels, *flips)]

    tolerance = 1e-8 * (1 + np.abs(values).max())
    np.testing.assert_allclose(middles(changed(values)), changed(middles(values)), atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_power_of_two_is_exact(dtype, rng):
    values = rng.standard_normal((3, 9, 8)).astype(dtype)
    largest = np.finfo(dtype).maxexp - 4  # and the other way, where no digits are lost yet
    expected = middles(values)
    for exponent in (-largest // 2, -40, 40, largest):
        scale = dtype(2.0**exponent)
        np.testing.assert_array_equal(middles(scale * values), scale * expected)
    assert np.isfinite(middles(np.full((1, 4, 4), np.finfo(dtype).max))).all()
    assert not middles(np.zeros((1, 4, 4), dtype)).any()


@pytest.mark.parametrize("shape", [(3, 40, 33), (1, 20, 9, 11), (2, 6, 5, 4, 7)])
@pytest.mark.parametrize("part", [64, 600])
def test_tiles_and_threads_give_the_same_bits(shape, part, monkeypatch, rng):
    values = rng.standard_normal(shape).astype(np.float32)
    monkeypatch.setattr(directional, "PART", 1 << 30)
    whole = middles(values)
    monkeypatch.setattr(directional, "FEWEST_NODES", part)
    monkeypatch.setattr(directional, "PART", part)
    assert len(directional._tiles(shape[1:], 4 * shape[0])) > 1
    for count in (1, 2):
        with threadpool_limits(count):
            np.testing.assert_array_equal(middles(values), whole)


@pytest.mark.parametrize("finer", [(True, False, True), (True, True, False), (False, True, True)])
def test_axes_that_are_not_finer_do_not_interact(finer, rng):
    values = rng.standard_normal((2, 4, 5, 6))
    axis = 1 + finer.index(False)
    found = np.moveaxis(middles(values, finer), axis, 0)
    for one, alone in zip(found, np.moveaxis(values, axis, 0), strict=True):
        np.testing.assert_array_equal(one, middles(alone))


def test_strided_values_and_other_dtypes(rng):
    values = rng.integers(0, 255, (10, 12, 3)).astype(np.uint8)
    planar = np.moveaxis(values, -1, 0)
    found = middles(planar)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, middles(np.ascontiguousarray(planar, dtype=np.float32)))


# What it must keep and what it is for
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 3), (3, 8), (16, 5), (3, 4, 3), (7, 5, 6), (3, 4, 5, 3)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_samples_constants_and_planes_are_exact(shape, channels, dtype, rng):
    inner = (slice(None), *[slice(None, None, 2)] * len(shape))
    values = rng.standard_normal((channels, *shape)).astype(dtype)
    np.testing.assert_array_equal(middles(values)[inner], values)
    constant = np.full((channels, *shape), 0.3, dtype)
    np.testing.assert_allclose(middles(constant), 0.3, rtol=4 * np.finfo(dtype).eps)
    fine = np.indices([2 * n - 1 for n in shape]) / 2
    plane = np.tensordot(rng.standard_normal((channels, len(shape))), fine, 1) + 1
    found = middles(plane[inner].astype(dtype))
    np.testing.assert_allclose(found, plane, atol=200 * np.finfo(dtype).eps)


def test_nodes_past_the_ends_are_as_along_axes(rng):
    for shape in ((6, 5), (4, 5, 3)):
        values = rng.standard_normal((2, *shape))
        found = refined(values)
        assert found.shape == (2, *(2 * n + 1 for n in shape))
        inner = (slice(None), *[slice(1, -1)] * len(shape))
        np.testing.assert_array_equal(found[inner], middles(values))
        for axis in range(1, 1 + len(shape)):
            lines = np.moveaxis(found, axis, 0)
            past = DEFAULT.directional.past_the_end
            np.testing.assert_allclose(lines[0], lines[1] + past * (lines[1] - lines[3]))
            np.testing.assert_allclose(lines[-1], lines[-2] + past * (lines[-2] - lines[-4]))


def test_one_finer_axis_is_refined_along_itself(rng):
    values = rng.standard_normal((2, 5, 9))
    for finer in ((False, True), (True, False), (False, False)):
        np.testing.assert_array_equal(refined(values, True, finer), refined(values, False, finer))
    line = rng.standard_normal((1, 9))
    np.testing.assert_array_equal(refined(line), refined(line, False))


def squared_error(truth, directional):
    """Return the mean squared error between the ends, from every second sample."""
    D = truth.ndim - 1
    found = refined(truth[(slice(None), *[slice(None, None, 2)] * D)], directional)
    inner = (slice(None), *[slice(1, -1)] * D)
    return float(np.mean((found[inner] - truth) ** 2))


@pytest.mark.parametrize("angle", [45, 30, 60, 115, -50])
def test_oblique_edges_are_continued(angle):
    x, y = np.indices((97, 97)) - 48
    across = x * math.cos(math.radians(angle)) + y * math.sin(math.radians(angle))
    truth = np.clip(across / 2 + 0.5, 0, 1)[None]
    assert squared_error(truth, True) < 0.5 * squared_error(truth, False)


def test_oblique_steps_and_balls_in_volumes():
    x, y, z = np.indices((41, 41, 41)) - 20
    for distance in (x + y - z, x - 0.7 * y + 0.5 * z, np.sqrt(x**2 + y**2 + z**2) - 13):
        truth = np.clip(distance / 2 + 0.5, 0, 1)[None]
        assert squared_error(truth, True) < 0.7 * squared_error(truth, False)


def test_photographs_gain_and_smooth_functions_lose():
    image = np.moveaxis(data.astronaut()[:255, 100:355].astype(np.float32) / 255, -1, 0)
    assert squared_error(image, True) < 0.95 * squared_error(image, False)
    x, y = np.indices((63, 63)) / 63
    smooth = (np.sin(6 * x) * np.cos(5 * y))[None]
    assert squared_error(smooth, True) > squared_error(smooth, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20, 17), (300, 260), (9, 12, 10)])
def test_a_mix_lies_between_edges_and_axes(shape, dtype):
    values = np.random.default_rng(2).standard_normal((2, *shape)).astype(dtype)
    mixed, edges, axes = (refined(values, share) for share in (0.7, 1.0, 0.0))
    expected = 0.7 * edges.astype(np.float64) + 0.3 * axes
    assert mixed.dtype == dtype
    np.testing.assert_allclose(mixed, expected, atol=20 * np.finfo(dtype).eps)
    inner = (slice(None), *(slice(1, -1, 2) for _ in shape))
    np.testing.assert_array_equal(mixed[inner], values)  # bit for bit
    assert np.abs(mixed - edges).max() > 0.01 < np.abs(mixed - axes).max()


@pytest.mark.parametrize("fill", [along_axes, along_edges])
@pytest.mark.parametrize("shape", [(7, 9), (8, 5, 6)])
def test_boxes_of_two_lengths_side_by_side(fill, shape, rng):
    D = len(shape)
    boxes = rng.standard_normal((2, *(2,) * D, *shape))
    shorter = (*(None,) * D, *range(D))
    nodes = fill(boxes, (*(False,) * D, *(True,) * D), SETTINGS, shorter)
    for box in itertools.product((0, 1), repeat=D):
        given = tuple(slice(n - less) for n, less in zip(shape, box, strict=True))
        alone = fill(boxes[(slice(None), *box, *given)], (True,) * D, SETTINGS)
        # the rim past the ends of a shorter box has no meaning
        inner = tuple(slice(1, 2 * (n - less)) for n, less in zip(shape, box, strict=True))
        found = nodes[(slice(None), *box, *inner)]
        np.testing.assert_allclose(found, alone[(slice(None), *inner)], rtol=0, atol=1e-13)
