"""PSNR and SSIM against scikit-image; peers against SciPy; contests."""

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

import kronfield as kf
from kronfield.analysis.presets import NAMES, natural_size, preset
from kronfield.signals.contest import GridContest, PointContest
from kronfield.signals.measures import peak_of, psnr, ssim
from kronfield.signals.peers import interpolate_grid, interpolate_points


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((40, 50), False), ((30, 25, 3), True), ((14, 20, 17), False), ((60,), False)],
)
def test_as_scikit_image_has_it(shape, channels):
    rng = np.random.default_rng(0)
    truth = rng.random(shape)
    found = truth + 0.1 * rng.standard_normal(shape)
    assert psnr(found, truth) == pytest.approx(
        peak_signal_noise_ratio(truth, found, data_range=1.0)
    )
    expected = structural_similarity(
        truth,
        found,
        data_range=1.0,
        gaussian_weights=True,
        use_sample_covariance=False,
        channel_axis=-1 if channels else None,
    )
    assert ssim(found, truth, channels=channels) == pytest.approx(expected, rel=1e-9)


def test_peaks_and_edges():
    assert peak_of(np.array([0.0, 0.4])) == 0.4
    assert psnr(np.ones(3), np.ones(3)) == np.inf
    short = np.random.default_rng(0).random((5, 40))
    assert ssim(short, short) == pytest.approx(1.0)
    for bad in (np.ones((2, 3)), np.float64(1.0)):
        with pytest.raises(kf.InputError):
            psnr(bad, np.ones((3, 2)))
    with pytest.raises(kf.InputError):
        psnr(np.ones(3), np.zeros(3), peak=0.0)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_peers_on_grids_are_those_of_scipy(method):
    rng = np.random.default_rng(0)
    axes = [np.sort(rng.random(9)), np.linspace(0, 2, 12)]
    values = rng.random((9, 12, 2))
    targets = [np.linspace(axes[0][0], axes[0][-1], 31), np.linspace(0, 2, 17)]
    grid = np.stack(np.meshgrid(*targets, indexing="ij"), axis=-1)
    # the default cubic method of SciPy solves iteratively, to a few digits
    exact = {"cubic": "cubic_legacy"}.get(method, method)
    expected = RegularGridInterpolator(axes, values, method=exact)(grid)
    np.testing.assert_allclose(interpolate_grid(values, axes, targets, method), expected, atol=1e-9)


def test_peers_at_points():
    rng = np.random.default_rng(0)
    points = rng.random((200, 2))
    plane = points @ [2.0, -1.0] + 3
    at = 0.2 + 0.6 * rng.random((20, 2))
    for method in ("linear", "cubic"):
        np.testing.assert_allclose(
            interpolate_points(points, plane, at, method), at @ [2.0, -1.0] + 3, atol=1e-6
        )
    # the nearest, outside
    assert np.isfinite(interpolate_points(points, plane, at + 5, "linear")).all()
    with pytest.raises(kf.InputError, match="cubic in 3"):
        interpolate_points(rng.random((9, 3)), rng.random(9), rng.random((2, 3)), "cubic")
    with pytest.raises(kf.InputError, match="one of nearest"):
        interpolate_grid(plane, [np.arange(200.0)], [np.arange(3.0)], "quintic")


def test_contests_hold_samples_out():
    waves = np.sin(np.arange(41) / 3)[:, None] * np.cos(np.arange(30) / 4)
    contest = GridContest(waves, channels=False)
    assert contest.held_out.sum() == 41 * 30 - 21 * 15
    results = {one.name: one for one in contest.run()}
    assert results["kronfield, chosen"].psnr > results["linear"].psnr > results["nearest"].psnr
    spoiled = np.where(contest.held_out, 9.0, waves)  # held-out samples are not used
    other = {one.name: one for one in GridContest(spoiled, channels=False).run(["gaussian"])}
    np.testing.assert_array_equal(other["gaussian"].picture, results["gaussian"].picture)
    rng = np.random.default_rng(0)
    points = rng.random((150, 3))
    names = [one.name for one in PointContest(points, np.sin(3 * points[:, 0])).run(["triangle"])]
    assert names == ["kronfield, chosen", "triangle", "nearest", "linear"]
    with pytest.raises(kf.InputError):
        PointContest(points[:5], points[:5, 0])
    with pytest.raises(kf.InputError):
        GridContest(np.ones((3, 3)), channels=False)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_presets(name):
    embedder = preset(name, natural_size(name, 17))
    assert embedder.size >= 17
    assert type(embedder) is NAMES[name]
