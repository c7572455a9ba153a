"""Grids on which a careless choice goes wrong: each fit is compared with what it samples."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.interpolate import CubicSpline, make_interp_spline

import kronfield as kf
from kronfield._core.frames import sample_frame
from kronfield.fitting.grid_choice import Crop, _Boxes, _halved_errors, _spread_boxes
from kronfield.fitting.settings import DEFAULT
from kronfield.fitting.slopes import Refinement


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(40, 40), (24, 24, 24)])
def test_waves_on_several_axes_meet_their_samples(shape, dtype):
    at = np.meshgrid(*map(np.arange, shape), indexing="ij")
    waves = np.sin(sum(k * x for k, x in zip((0.9, 0.6, 0.45), at, strict=False))).astype(dtype)
    assert kf.fit(waves).report.residual < 1e-5


def test_a_peak_outside_the_middle_is_not_smoothed_away(rng):
    peak = np.exp(-(((np.arange(1000) - 250) / 20) ** 2))
    assert kf.fit(peak + 0.05 * rng.standard_normal(1000)).on_grid().max() > 0.9


def test_a_frame_around_a_flat_middle_is_not_smoothed_away(rng):
    a = np.arange(600) - 300
    x, y = np.meshgrid(a, a, indexing="ij")
    frame = np.sin(x / 4) * np.sin(y / 5) * (np.maximum(abs(x), abs(y)) > 140)
    found = kf.fit(frame + 0.05 * rng.standard_normal(frame.shape)).on_grid()
    assert np.sqrt(np.mean((found - frame) ** 2)) < 0.05


def test_a_roughness_on_an_uneven_axis_leaves_constants_alone():
    x, at = np.linspace(0, 1, 200) ** 2, np.linspace(0, 1, 999)[:, None]
    found = kf.fit(np.ones(200), [x], roughness=(0, 1e-6))(at, outside="clamp")
    np.testing.assert_allclose(found, 1.0, atol=1e-3)


def test_given_noise_on_an_uneven_axis(rng):
    x, at = np.linspace(0, 1, 200) ** 2, np.linspace(0, 1, 999)
    field = kf.fit(np.sin(9 * x) + 0.1 * rng.standard_normal(200), [x], noise=0.1)
    found = field(at[:, None], outside="clamp")
    assert np.sqrt(np.mean((found - np.sin(9 * at)) ** 2)) < 0.05


@pytest.mark.parametrize(("constant", "count"), [(1e6, 8), (1e6, 20), (300.0, 30)])
def test_a_small_signal_on_a_large_constant(constant, count):
    x, at = np.linspace(0, 1, count), np.linspace(0, 1, 99)
    values = constant + np.sin(6 * x)
    error = np.abs(kf.fit(values, [x])(at[:, None]) - constant - np.sin(6 * at)).max()
    assert error <= 1.5 * np.abs(CubicSpline(x, values)(at) - constant - np.sin(6 * at)).max()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_samples_get_the_polynomial_through_them(count):
    x = np.arange(float(count))
    middles = (x[:-1] + x[1:]) / 2
    found = kf.fit(x ** (count - 1), [x])(middles[:, None])
    np.testing.assert_allclose(found, middles ** (count - 1), atol=1e-10)


@pytest.mark.parametrize("domain", [(-1, 2), (-10, 10), (-1000, 1000)])
def test_a_domain_far_beyond_the_samples(domain):
    x = np.linspace(0, 1, 12)
    field = kf.fit(np.sin(5 * x) + 2, [x], domain=[domain])
    np.testing.assert_allclose(field.on_grid(), np.sin(5 * x) + 2, atol=1e-9)
    assert field.report.ranks == [12]


def test_the_report_of_a_long_uneven_axis(rng):
    x = np.sort(rng.random(1500))
    field = kf.fit(np.sin(9 * x), [x])
    (found,) = field.report.stable_ranks
    features = np.asarray(field.encoding.embedders[0](field.frames[0].unit(x)))
    assert found == pytest.approx(kf.stable_rank(features), rel=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_positions_that_jitter_are_not_noise(seed):
    rng = np.random.default_rng(seed)
    x = np.arange(100) + 0.7 * (rng.random(100) - 0.5)
    field = kf.fit(np.abs(x - 43), [x])
    assert field.report.roughness == (0.0, 0.0)
    at = np.linspace(x[0], x[-1], 3000)
    assert np.abs(field(at[:, None]) - np.abs(at - 43)).max() < 0.5


def test_log_spaced_positions():
    x, at = np.logspace(-10, 0, 150), np.linspace(0.01, 1, 999)
    error = np.abs(kf.fit(np.exp(3 * x), [x])(at[:, None]) - np.exp(3 * at)).max()
    assert error <= 1.5 * np.abs(CubicSpline(x, np.exp(3 * x))(at) - np.exp(3 * at)).max()


def test_edges_in_four_dimensions():
    at = np.meshgrid(*[np.linspace(0, 1, 12)] * 4, indexing="ij")
    ball = (sum((x - 0.5) ** 2 for x in at) < 0.15) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = kf.fit(ball).report
    assert all(np.isfinite(one.score) for one in report.candidates)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_given_noise_of_any_size(unit, rng):
    t = np.linspace(0, 1, 300)
    field = kf.fit(unit * (np.sin(6 * t) + 0.1 * rng.standard_normal(300)), noise=0.1 * unit)
    assert field.report.degrees_of_freedom < 30


def test_a_long_axis_beside_a_short_one(rng):
    clean = np.array([0, 0.41])[:, None] * np.sin(50 * np.linspace(0, 1, 1100))
    found = kf.fit(clean + 0.1 * rng.standard_normal(clean.shape), channels=False).on_grid()
    assert np.sqrt(np.mean((found - clean) ** 2)) < 0.05


def test_many_channels_have_a_short_report(rng):
    wave = np.sin(np.arange(40) * 0.2)[:, None, None] * np.arange(1, 101)
    report = kf.fit(wave + 0.1 * rng.standard_normal((40, 40, 100)), channels=True).report
    assert max(map(len, str(report).splitlines())) < 400


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e3])
def test_a_straight_line_on_a_constant(constant):
    x = np.linspace(0, 1, 58)
    fine = np.linspace(0, 1, 999)
    error = np.abs(kf.fit(constant + 0.3 * x, [x])(fine[:, None]) - constant - 0.3 * fine).max()
    assert error < 1e-11 * (1 + constant)


@pytest.mark.parametrize("constant", [0.0, -50.0, 1e4])
def test_a_constant_does_not_change_what_is_chosen(constant):
    x, fine = np.linspace(0, 1, 30), np.linspace(0, 1, 99)
    report = kf.fit(np.sin(20 * x) + constant, [x]).report
    assert report.chosen.kind == "Gaussians"
    found = kf.fit(np.sin(20 * x) + constant, [x])(fine[:, None])
    np.testing.assert_allclose(found, np.sin(20 * fine) + constant, atol=1e-4)


def test_a_short_smooth_axis_beside_a_rough_one():
    """Where slopes are taken along one axis, the other has nearly straight lines."""
    x, y = np.linspace(0, 1, 20), np.linspace(0, 1, 10)
    fine = np.linspace(0, 1, 77)
    truth = np.multiply.outer(np.abs(fine - 0.37), np.sin(5 * fine))
    values = np.multiply.outer(np.abs(x - 0.37), np.sin(5 * y))
    error = np.abs(kf.fit(values, [x, y], channels=False).on_grid([fine, fine]) - truth).max()
    assert error < 0.02


@pytest.mark.parametrize("count", [12, 15, 24])
@pytest.mark.parametrize("centre", [0.3, 0.52, 0.61])
def test_peaks_on_few_samples(count, centre):
    x, fine = np.linspace(0, 1, count), np.linspace(0, 1, 500)

    def peak(x):
        return np.exp(-(((x - centre) / 0.15) ** 2))

    error = np.std(kf.fit(peak(x), [x])(fine[:, None]) - peak(fine))
    peers = [np.std(make_interp_spline(x, peak(x), k)(fine) - peak(fine)) for k in (3, 5)]
    assert error <= 1.5 * min(peers)


def test_high_orders_on_short_axes():
    x, fine = np.linspace(0, 1, 9), np.linspace(0, 1, 30)
    for dimensions in (2, 3):
        values = np.exp(sum(np.meshgrid(*[x] * dimensions, indexing="ij")))
        truth = np.exp(sum(np.meshgrid(*[fine] * dimensions, indexing="ij")))
        field = kf.fit(values, [x] * dimensions, channels=False)
        found = field.on_grid([fine] * dimensions)
        assert np.abs(found - truth).max() < 1e-6 * truth.max()


def test_the_report_names_the_splines_that_are_used():
    close, even = np.array([0.0, 1.0, 1.0 + 1e-12, 2.0, 3.0, 4.0]), np.arange(6.0)
    values = np.random.default_rng(0).random((6, 6))
    for axes, kinds in (
        ([close, close], "cubic splines"),
        ([close, even], "cubic splines on uneven axes, splines in tension"),
    ):
        report = kf.fit(values, axes, noise=0.0).report
        assert f"default: {kinds}, since positions nearly coincide" in report.chosen_by
        assert isinstance(report.embedders[0], kf.BSpline)
        given = kf.fit(values, axes, roughness=(0.0, 0.1)).report
        assert given.chosen_by == f"given, with {kinds}"
    report = kf.fit(values, [even, even], roughness=(0.0, 0.1)).report
    assert report.chosen_by == "given, with splines in tension"
    assert isinstance(report.embedders[0], kf.TensionSpline)


@pytest.mark.parametrize("shape", [(24, 31), (26, 14), (14, 15, 16), (5, 30, 24)])
def test_halves_filled_at_once_as_one_by_one(shape):
    values = np.cumsum(np.random.default_rng(0).standard_normal((2, *shape)), axis=1)
    crop = Crop.of(values, [np.arange(float(n)) for n in shape], 1 << 16)
    fewest = DEFAULT.grid.shortest_refined
    products = []
    for starts in itertools.product(*((0, 1) if n >= fewest else (0,) for n in shape)):
        part = crop.values[(slice(None), *(slice(s, None) for s in starts))]
        halved = [n >= fewest for n in shape]
        known = part[(slice(None), *(slice(None, None, 2 if half else 1) for half in halved))]
        axes = [np.arange(float(n)) for n in known.shape[1:]]
        inner = tuple(slice(1, -1) if half else slice(None) for half in halved)
        errors = []
        for directional in (False, True):
            finer = Refinement.of(axes, [sample_frame(x) for x in axes], halved, directional)
            found = finer(np.ascontiguousarray(known))[(slice(None), *inner)]
            errors.append(found - part[(slice(None), *(slice(n) for n in found.shape[1:]))])
        count = 2 * (found[0].size - known[0].size)
        a, e = errors
        products.append([np.sum(x * y) / count for x, y in ((a, a), (e, e), (a, e))])
    expected = np.mean(products, axis=0)
    boxes = _Boxes(crop.values[:, None], crop.axes)
    np.testing.assert_allclose(_halved_errors(boxes, DEFAULT), expected, rtol=1e-11)


def test_directions_are_judged_in_boxes_all_over_the_crop():
    shape = (240, 200)
    axes = [np.arange(float(n)) for n in shape]
    places = np.stack(np.meshgrid(*axes, indexing="ij"))  # each sample holds its place
    for flipped in (places, places[:, ::-1], places[:, :, ::-1]):
        found = _spread_boxes(Crop(flipped, axes, 1.0, np.ones(2), 0.0), DEFAULT.grid).values
        assert found.shape == (2, 4, 64, 64)
        middles = sorted(map(tuple, found.mean(axis=(2, 3)).T))
        quarters = [(59.5, 49.5), (59.5, 149.5), (179.5, 49.5), (179.5, 149.5)]
        np.testing.assert_allclose(middles, quarters, atol=1.0)


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [
        ((60, 70), (1, 60, 70)),  # nothing is left out
        ((30, 2000), (2, 30, 273)),  # the short axis stays whole
        ((40, 40, 40), (1, 24, 24, 24)),  # halves of 12 are too short
        ((5, 300, 300), (4, 5, 28, 28)),
        ((8, 300, 300), (1, 8, 44, 44)),  # halves of 22 are too short
    ],
)
def test_boxes_are_long_enough_to_hold_out_every_second_sample(shape, boxes):
    crop = Crop(np.zeros((1, *shape)), [np.arange(float(n)) for n in shape], 1.0, np.ones(1), 0.0)
    assert _spread_boxes(crop, DEFAULT.grid).values.shape == (1, *boxes)


def test_a_picture_is_not_judged_by_its_middle_alone():
    y, x = np.mgrid[:256, :256]
    edges = np.tanh(np.sin((x + 0.6 * y) / 5) * 4)
    blocks = np.kron(np.random.default_rng(0).random((32, 32)), np.ones((8, 8)))
    is_inside = np.maximum(abs(y - 127.5), abs(x - 127.5)) < 64
    # blocks alone are better filled along axes, oblique edges are not
    for values, weight in ((blocks, 0.0), (np.where(is_inside, blocks, edges), 0.4)):
        found = kf.fit(values, noise=0.0).report.candidates
        edged = next(one for one in found if one.kind == "slopes along edges")
        assert edged.parameters.get("weight", 0.0) >= weight
        assert edged.chosen == (weight > 0)
