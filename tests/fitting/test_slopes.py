"""Slopes from the data on a lattice twice as fine, and when `fit` chooses them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.interpolate import Akima1DInterpolator, CubicHermiteSpline, PchipInterpolator
from skimage import data

import kronfield as kf
from kronfield._core.frames import sample_frame
from kronfield.fitting import slopes as slopes_module
from kronfield.fitting.refined import RefinedField
from kronfield.fitting.settings import DEFAULT
from kronfield.fitting.slopes import Refinement, slopes


@pytest.fixture
def rng():
    return np.random.default_rng(0)


numbers = st.floats(-100, 100, width=32)


def photograph(side=96):
    return data.astronaut()[100 : 100 + side, 180 : 180 + side].astype(np.float32) / 255


def lattice(*shape, finer=None):
    axes = [np.arange(float(n)) for n in shape]
    found = Refinement.of(axes, [sample_frame(axis) for axis in axes], finer or [True] * len(shape))
    assert found is not None
    return found


def test_slopes_are_the_mean_of_pchip_and_modified_akima(rng):
    y = np.cumsum(rng.standard_normal((40, 3)), axis=0)
    y[10:14] = y[10]
    x = np.arange(40.0)
    akima = Akima1DInterpolator(x, y, method="makima").derivative()(x)
    pchip = PchipInterpolator(x, y).derivative()(x)
    # PCHIP uses another rule at the ends
    np.testing.assert_allclose(slopes(y)[1:-1], ((akima + pchip) / 2)[1:-1], atol=1e-12)


@given(arrays(np.float64, (9, 2), elements=numbers), st.floats(-3, 3), st.floats(-5, 5))
@settings(deadline=None)
def test_slopes_go_with_the_values(y, factor, shift):
    scale = 1e-10 * (1 + np.abs(y).max())
    np.testing.assert_allclose(slopes(y[::-1]), -slopes(y)[::-1], atol=scale)
    if abs(factor) > 1e-3:
        np.testing.assert_allclose(
            slopes(factor * y + shift), factor * slopes(y), atol=1e-6 * (1 + np.abs(y).max())
        )


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e200])
def test_slopes_neither_under_nor_overflow(scale):
    y = np.array([0.0, 1.0, 3.0, 4.0, 4.5, 4.0])
    np.testing.assert_allclose(slopes(scale * y), scale * slopes(y), rtol=1e-12)


def test_steps_do_not_ring():
    step = np.repeat([0.0, 1.0], 8)
    fine = lattice(16)(step[None])[0]
    assert fine.min() == 0
    assert fine.max() == 1
    assert kf.fit(step).on_grid((640,)).min() > -0.03  # only slightly between the nodes


def test_nodes_are_the_middles_of_the_cubics(rng):
    y = rng.standard_normal((2, 11))
    fine = lattice(11)
    x = np.arange(11.0)
    cubic = CubicHermiteSpline(x, y.T, slopes(y.T))
    np.testing.assert_allclose(fine(y)[:, 1:-1], cubic(fine.axes[0][1:-1]).T, atol=1e-12)
    np.testing.assert_allclose(fine.axes[0][[0, 1, -1]], [-0.5, 0.0, 10.5])
    np.testing.assert_allclose(fine(y)[:, -1], y[:, -1] + 0.25 * (y[:, -1] - y[:, -2]))


@pytest.mark.parametrize("shape", [(7,), (5, 8), (4, 6, 5), (3, 4, 3, 5)])
@pytest.mark.parametrize(
    ("part", "dtype"), [(1, np.float64), (16, np.float32), (1 << 15, np.float64)]
)
def test_any_dimension_is_one_axis_after_the_other(shape, part, dtype, monkeypatch, rng):
    monkeypatch.setattr(slopes_module, "PART", part)
    values = rng.standard_normal((2, *shape)).astype(dtype)
    found = lattice(*shape)(values)
    assert found.dtype == dtype
    expected = values.astype(np.float64)
    for axis in range(len(shape), 0, -1):
        line = lattice(shape[axis - 1])
        expected = np.apply_along_axis(lambda y, line=line: line(y[None])[0], axis, expected)
    np.testing.assert_allclose(found, expected, atol=1e-12 if dtype == np.float64 else 1e-5)
    inner = (slice(None), *[slice(1, None, 2)] * len(shape))
    np.testing.assert_array_equal(found[inner], values)


def test_axes_that_are_not_finer_keep_their_samples(rng):
    found = lattice(6, 9, finer=[False, True])
    assert found.shape == (6, 19)
    values = rng.standard_normal((1, 6, 9))
    np.testing.assert_array_equal(found(values)[:, :, 1::2], values)


def test_where_there_is_no_finer_lattice(rng):
    x = np.arange(10.0)
    frame = sample_frame(x)
    assert Refinement.of([x**1.1], [sample_frame(x**1.1)], [True]) is None
    wide = type(frame)(frame.origin, frame.length, frame.low - 1, frame.high)
    assert Refinement.of([x], [wide], [True]) is None
    assert (
        "slopes need a domain"
        in kf.fit(rng.random(40), [np.arange(40.0)], domain=[(-5, 45)]).report.chosen_by
    )


def test_axes_that_are_all_but_even():
    """Every second position may be less even than all positions together."""
    for seed in range(30):
        own = np.random.default_rng(seed)
        x = np.arange(16.0) + 1.3e-6 * own.random(16)
        assert np.isfinite(kf.fit((own.random(16) > 0.5).astype(float), [x]).on_grid()).all()


def test_penalties_that_are_given_are_those_of_splines():
    image = photograph(40)
    assert kf.fit(image, ridge=0.0).report.refined
    for penalty in ({"ridge": 1.0}, {"roughness": (0.1, 0.0)}):
        report = kf.fit(image, **penalty).report
        assert not report.refined
        assert report.degrees_of_freedom < 1590


@pytest.mark.parametrize(("dtype", "top"), [(np.float32, 3e38), (np.float64, 1.7e308)])
def test_huge_values(dtype, top, rng):
    blocks = np.kron(rng.random((50, 50)) > 0.5, np.ones((6, 6))).astype(dtype)
    large = kf.fit(blocks * dtype(top / 8))
    assert large.report.refined
    np.testing.assert_allclose(large.on_grid() / dtype(top / 8), blocks, atol=1e-5)
    with pytest.raises(kf.InputError, match="so large"):
        kf.fit((2 * blocks - 1) * dtype(top))  # the extrapolated ends overflow


def test_axes_in_few_digits_are_even():
    image = photograph(40)
    for n in (40, 39):
        axes = [np.linspace(3, 5, n), np.linspace(-1, 900, 40)]
        wide, narrow = (
            kf.fit(image[:n], [x.astype(kind) for x in axes]) for kind in (np.float64, np.float32)
        )
        assert wide.report.refined == narrow.report.refined
        assert wide.encoding == narrow.encoding
        np.testing.assert_allclose(narrow.on_grid((50, 50)), wide.on_grid((50, 50)), atol=1e-5)
    uneven = axes[0].astype(np.float32)
    uneven[5] += 1e-4
    assert isinstance(wide, RefinedField)
    assert not isinstance(kf.fit(image[:39], [uneven, axes[1]]), RefinedField)


# The choice of fit
# ------------------------------------------------------------------------------------------


def test_photographs_get_slopes_and_gain_by_them():
    image = photograph(128)
    known, at = image[::2, ::2], [np.arange(128) / 2] * 2
    field = kf.fit(known)
    assert field.report.refined
    assert field.encoding.shape == (2 * 64 + 1 + 4, 2 * 64 + 1 + 4)
    np.testing.assert_allclose(field.on_grid(), known, atol=2e-6)
    assert field.report.residual < 1e-6
    assert field.report.degrees_of_freedom == 64 * 64
    assert "* slopes along" in str(field.report)
    assert field.domain == ((-0.5, 63.5), (-0.5, 63.5))
    few = replace(DEFAULT, grid=replace(DEFAULT.grid, most_nodes=0))
    splines = kf.fit(known, settings=few)
    assert not splines.report.refined
    assert "would take" in splines.report.chosen_by

    def error(one):
        return float(np.mean((one.on_grid(at) - image) ** 2))

    assert error(field) < 0.99 * error(splines)


def test_smooth_and_noisy_values_do_not(rng):
    x = np.linspace(0, 6, 60)
    smooth = np.sin(x)[:, None] * np.cos(x)
    assert not kf.fit(smooth).report.refined
    noisy = kf.fit(smooth + 0.2 * rng.standard_normal(smooth.shape))
    assert not noisy.report.refined
    assert any(noisy.report.roughness)


def test_the_best_score_need_not_win_and_the_report_says_which_did():
    report = kf.fit(photograph(64)).report
    assert report.refined
    (chosen,) = [one for one in report.candidates if one.chosen]
    assert chosen.kind in ("slopes along axes", "slopes along edges")
    assert report.chosen is chosen
    assert report.to_dict()["refined"] is True


def test_axes_in_other_units_and_falling():
    image = photograph(40)
    x, y = np.linspace(3, 5, 40), np.linspace(-1, 9, 40)
    plain, placed = kf.fit(image), kf.fit(image[::-1], [x[::-1], y])
    assert plain.report.refined
    assert placed.report.refined
    np.testing.assert_allclose(placed.on_grid((80, 80)), plain.on_grid((80, 80)), atol=1e-5)


def test_refit_save_and_short_axes(tmp_path):
    image = photograph(48)
    field = kf.fit(image)
    again = field.refit(image[::-1].copy())
    assert again.report.refined
    np.testing.assert_allclose(
        again.on_grid((100, 100)), field.on_grid((100, 100))[::-1], atol=1e-5
    )
    field.save(tmp_path / "one.field")
    np.testing.assert_array_equal(
        kf.load(tmp_path / "one.field").on_grid((70, 70)), field.on_grid((70, 70))
    )
    frames = np.stack([image[:, :, 0] > level for level in np.linspace(0.2, 0.6, 6)]).astype(
        np.float32
    )
    thin = kf.fit(frames, channels=False)
    assert thin.report.refined
    assert thin.encoding.shape == (6 + 4, 97 + 4, 97 + 4)  # an axis of six samples is not refined
    np.testing.assert_allclose(thin.on_grid(), frames, atol=1e-5)


def test_complex_values_and_memory_maps(tmp_path):
    image = photograph(32)
    both = kf.fit(image[..., 0] + 1j * image[..., 1])
    assert both.report.refined
    parts = kf.fit(image[..., :2], channels=True).on_grid((50, 50))
    np.testing.assert_allclose(
        both.on_grid((50, 50)), parts[..., 0] + 1j * parts[..., 1], atol=1e-6
    )
    np.save(tmp_path / "a.npy", image)
    mapped = kf.fit(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert mapped.report.refined
    np.testing.assert_allclose(mapped.on_grid((50, 50)), kf.fit(image).on_grid((50, 50)), atol=1e-6)
