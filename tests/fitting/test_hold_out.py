"""Blocks in space that are held out as a whole."""

import numpy as np
import pytest

import kronfield as kf
from kronfield.fitting.hold_out import fold_labels


@pytest.mark.parametrize("D", [1, 2, 3])
def test_points_of_a_block_have_one_fold_and_folds_are_balanced(D):
    points = np.random.default_rng(0).random((3000, D)) * np.arange(1, D + 1)
    label = fold_labels(points, 5, 100, np.random.default_rng(1))
    counts = np.bincount(label, minlength=5)
    assert counts.min() > 0.7 * 600
    low, high = points.min(axis=0), points.max(axis=0)
    per_axis = round(100 ** (1 / D))
    cells = np.minimum(((points - low) / (high - low) * per_axis).astype(int), per_axis - 1)
    for cell in np.unique(cells, axis=0)[:50]:
        assert len(set(label[(cells == cell).all(axis=1)])) == 1


def test_single_points_are_as_before():
    points = np.random.default_rng(0).random((100, 2))
    label = fold_labels(points, 5, None, np.random.default_rng(3))
    np.testing.assert_array_equal(label, np.random.default_rng(3).permutation(100) % 5)


@pytest.mark.parametrize("shape", ["clusters", "equal", "line", "few"])
def test_every_fold_has_points(shape):
    rng = np.random.default_rng(0)
    points = {
        "clusters": np.concatenate([1e-4 * rng.random((50, 2)), 1 + 1e-4 * rng.random((50, 2))]),
        "equal": np.ones((40, 2)),
        "line": np.stack([rng.random(60), np.ones(60)], axis=1),
        "few": rng.random((4, 2)),
    }[shape]
    label = fold_labels(points, 5, 100, np.random.default_rng(0))
    assert label.shape == (len(points),)
    if shape in ("clusters", "line"):
        assert np.bincount(label, minlength=5).min() > 0


def tracks(seed=0):
    """Ship tracks: dense along lines that are far apart, with a rough field between them."""
    rng = np.random.default_rng(seed)
    line = rng.integers(0, 9, 500) / 8
    points = np.stack([rng.random(500), line + 0.004 * rng.standard_normal(500)], axis=1)
    return points, truth(points) + 0.02 * rng.standard_normal(500)


def truth(points):
    return np.sin(9 * points[:, 0]) * np.cos(9 * points[:, 1])


def test_the_reported_error_of_blocks_is_that_between_clusters():
    points, values = tracks()
    between = np.random.default_rng(1).random((2000, 2))
    found = {}
    for way in ("points", "blocks"):
        field = kf.fit_points(points, values, hold_out=way)
        error = np.sqrt(np.mean((field(between, outside="clamp") - truth(between)) ** 2))
        assert f"{way} held out, expected error" in str(field.report)
        assert field.report.to_dict()["held_out"] == way
        found[way] = (field.report.expected_error, error)
    assert "in blocks" in field.report.chosen_by
    assert found["points"][0] < 0.04  # the noise: neighbours on the track predict a point
    assert found["blocks"][0] > 1.2 * found["points"][0]
    assert found["blocks"][1] < 1.5 * found["points"][1]


def test_other_ways_are_left_as_they_were():
    points, values = tracks()
    plain, same = kf.fit_points(points, values), kf.fit_points(points, values, hold_out="points")
    np.testing.assert_array_equal(plain(points), same(points))
    assert np.isnan(plain.report.expected_error)
    for encoding in (kf.Triangle(20, 2 / 20), None):
        nodes = np.argwhere(np.random.default_rng(0).random((20, 20)) < 0.6).astype(float)
        field = kf.fit_points(nodes, nodes[:, 0] ** 2, encoding, hold_out="blocks")
        assert field.report.expected_error >= 0
    with pytest.raises(kf.InputError, match="hold_out"):
        kf.fit_points(points, values, hold_out="folds")
