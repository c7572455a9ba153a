"""`distance_to_data` and ``beyond``: distances to data, kept with the field in any form."""

import copy
import pickle

import numpy as np
import pytest

import kronfield as kf
from kronfield.field import places


def brute(points, data, units=(1.0, 1.0)):
    away = (points[:, None] - data[None]) / np.asarray(units)
    return np.sqrt(np.min(np.sum(away**2, axis=2), axis=1))


def clustered(P, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random((P // 2, 2)), 3 + 0.5 * rng.random((P - P // 2, 2))])


@pytest.mark.parametrize("units", [None, (0.5, 2.0)])
def test_distances_are_those_of_all_pairs(units, tmp_path):
    data = clustered(300)
    field = kf.fit_points(data, data[:, 0], kf.Triangle(16, 2 / 16), ridge=1e-3, units=units)
    at = np.random.default_rng(1).uniform(-1, 5, (500, 2))
    expected = brute(at, data, units or (1.0, 1.0))
    np.testing.assert_allclose(field.distance_to_data(at), expected, atol=3e-4)
    np.testing.assert_allclose(field.distance_to_data(data), 0, atol=1e-4)
    field.save(tmp_path / "a.field")
    for other in (
        kf.load(tmp_path / "a.field"),
        pickle.loads(pickle.dumps(field)),
        copy.deepcopy(field),
        field.refit(data[:, 1]),
    ):
        np.testing.assert_array_equal(other.distance_to_data(at), field.distance_to_data(at))


def test_maps_leave_out_what_is_far_from_data():
    data = clustered(300)
    values = np.stack([data[:, 0], data[:, 1]], axis=1)
    field = kf.fit_points(data, values, kf.Triangle(16, 2 / 16), ridge=1e-3)
    axes = [np.linspace(0.1, 3, 40)[::-1], np.linspace(0.1, 3.4, 30)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    found = field.on_grid(axes, beyond=0.2)
    away = brute(grid, data)
    assert np.abs(away - 0.2).min() > 1e-4  # no position is at the limit, to rounding
    far = away > 0.2
    assert 0.2 < far.mean() < 0.9
    np.testing.assert_array_equal(np.isnan(found).reshape(-1, 2), np.stack([far, far], axis=1))
    whole = field.on_grid(axes).reshape(-1, 2)
    np.testing.assert_array_equal(found.reshape(-1, 2)[~far], whole[~far])
    np.testing.assert_array_equal(np.isnan(field(grid, beyond=0.2)[:, 0]), far)
    assert np.isnan(field.on_grid(axes, derivative=(1, 0), beyond=0.2)).any()
    assert np.isfinite(field.on_grid(axes, beyond=10)).all()
    with pytest.raises(kf.InputError, match="beyond"):
        field.on_grid(axes, beyond=-1)


def test_blocks_are_the_whole(monkeypatch):
    data = clustered(200)
    field = kf.fit_points(data, data[:, 0], kf.Triangle(8, 2 / 8), ridge=1e-3)
    whole = field.on_grid((30, 20), beyond=0.3)
    monkeypatch.setattr(places, "BLOCK", 37)
    np.testing.assert_array_equal(field.on_grid((30, 20), beyond=0.3), whole)


def test_many_points_are_kept_coarsely(monkeypatch):
    monkeypatch.setattr(places, "MOST_KEPT", 500)
    data = clustered(20_000)
    kept = places.PointPlaces(data)
    assert 100 < len(kept.positions) <= 500
    at = np.random.default_rng(1).uniform(-1, 5, (300, 2))
    error = kept.distances(at) - brute(at, data)
    assert error.min() > -1e-4  # never too small
    assert 0 < error.max() < kept.resolution < 0.5


@pytest.mark.parametrize("masked", [False, True])
def test_samples_of_grids(masked, tmp_path):
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.random(20)) * 3, np.arange(15.0)[::-1]
    mask = np.zeros((20, 15), dtype=bool)
    mask[5:15, 4:10] = masked
    field = kf.fit(rng.random((20, 15)), axes=[x, y], mask=mask)
    data = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)[~mask]
    at = np.stack([rng.uniform(-1, 4, 200), rng.uniform(-2, 17, 200)], axis=1)
    expected = brute(at, data)
    np.testing.assert_allclose(field.distance_to_data(at), expected, atol=3e-4)
    field.save(tmp_path / "a.field")
    np.testing.assert_allclose(
        kf.load(tmp_path / "a.field").distance_to_data(at), expected, atol=3e-4
    )


def test_points_of_a_filled_lattice_and_of_no_weight():
    nodes = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    nodes = nodes[~((nodes > 3) & (nodes < 8)).all(axis=1)]
    field = kf.fit_points(nodes, nodes[:, 0] * nodes[:, 1])
    assert field.distance_to_data(np.array([[5.5, 5.5]]))[0] == pytest.approx(
        brute(np.array([[5.5, 5.5]]), nodes)[0], abs=3e-4
    )
    data, weights = clustered(100), np.r_[np.ones(50), np.zeros(50)]
    field = kf.fit_points(data, data[:, 0], kf.Triangle(8, 2 / 8), ridge=1e-3, weights=weights)
    np.testing.assert_allclose(field.distance_to_data(data), brute(data, data[:50]), atol=1e-4)


def test_fields_that_do_not_know():
    seen = kf.Statistics(kf.Triangle(8, 2 / 8), domain=[(0, 1), (0, 1)])
    seen.add(np.random.default_rng(0).random((50, 2)), np.ones(50))
    field = seen.solve(ridge=1e-3)
    with pytest.raises(kf.InputError, match="where its data are"):
        field.distance_to_data(np.zeros((1, 2)))
    with pytest.raises(kf.InputError, match=r"beyond.*where its data are"):
        field.on_grid((3, 3), beyond=1.0)


def test_known_samples_of_a_large_grid_are_not_beyond():
    missing = np.zeros((300, 300), dtype=bool)
    missing[100:120, 100:120] = True
    field = kf.fit(np.add.outer(np.arange(300.0), np.arange(300.0)), mask=missing)
    far = np.isnan(field.on_grid(beyond=1.0))
    assert not np.any(far & ~missing)
    assert far.sum() == 18 * 18  # all but the outermost samples of the hole
    assert np.array_equal(np.isnan(field.on_grid(beyond=0.0)), missing)


@pytest.mark.parametrize("D", [11, 19, 40, 70])
def test_many_points_in_many_dimensions_are_kept_in_little_memory(D):
    points = np.random.default_rng(0).random((70_000, D))
    known = places.PointPlaces(points)
    assert 1000 < len(known.positions) <= places.MOST_KEPT
    assert np.all(known.distances(points[:20]) <= known.resolution + 1e-3)
