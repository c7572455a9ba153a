"""`fit_points` and `Statistics` of arrays and tables of Dask."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.options import PointOptions
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.points.normal import Penalty

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
scattered = pytest.importorskip("kronfield.lazy.scattered")

BOX = [(0.0, 1.0), (-2.0, 3.0)]


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def function(points):
    return np.sin(5 * points[:, 0]) * np.cos(2 * points[:, 1])


def points_and_values(P, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((P, 2)) * [1, 5] + [0, -2]
    return points, function(points) + noise * rng.standard_normal(P)


def assert_alike(one, other):
    """Two summaries are equal to rounding."""
    assert (one.count, one.dropped) == (other.count, other.dropped)
    np.testing.assert_allclose(one._rhs, other._rhs, atol=1e-12 * one.count)
    np.testing.assert_allclose(one._energy, other._energy, rtol=1e-12)
    for offset, plane in one._stencil.planes.items():
        np.testing.assert_allclose(plane, other._stencil.planes[offset], atol=1e-12 * one.count)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.sampled_from([None, 1, 2]))
@settings(max_examples=examples(30), deadline=None)
def test_partitions_add_up_to_the_whole(sizes, channels):
    sizes = [*sizes, 20]
    points, values = points_and_values(sum(sizes))
    values[3] = np.nan
    if channels is not None:
        values = np.stack([values] * channels, axis=1)
    weights = np.random.default_rng(1).random(len(points))
    hats = kf.Triangle(10, 2 / 10)
    whole = kf.Statistics(hats, BOX)
    whole.add(points, values, weights)
    rows = (tuple(sizes),)
    found = kf.Statistics.from_dask(
        da.from_array(points, chunks=(*rows, 1)),
        da.from_array(values, chunks=50),  # divided otherwise
        hats,
        BOX,
        weights=weights,
    )
    assert_alike(found, whole)


def test_a_partition_without_values_is_counted():
    points, values = points_and_values(90)
    values[30:60] = np.nan
    found = kf.Statistics.from_dask(
        da.from_array(points, chunks=30),
        da.from_array(values, chunks=30),
        kf.Triangle(8, 0.25),
        BOX,
    )
    assert (found.count, found.dropped) == (60, 30)


def test_a_partition_of_weight_0_is_counted():
    points, values = points_and_values(90)
    weights = np.repeat([0.0, 1.0, 0.0], 30)
    values[5] = np.nan
    whole = kf.Statistics(kf.Triangle(8, 0.25), BOX)
    whole.add(points, values, weights)
    found = kf.Statistics.from_dask(
        da.from_array(points, chunks=30),
        da.from_array(values, chunks=30),
        kf.Triangle(8, 0.25),
        BOX,
        weights=weights,
    )
    assert_alike(found, whole)
    with pytest.raises(kf.InputError, match="weights"):
        kf.Statistics.from_dask(
            da.from_array(points, chunks=30), values, kf.Triangle(8, 0.25), BOX, weights=-weights
        )


def test_points_in_memory_with_values_of_dask():
    points, values = points_and_values(200)
    field = kf.fit_points(points, da.from_array(values, chunks=60))
    np.testing.assert_array_equal(field(points), kf.fit_points(points, values)(points))


@pytest.mark.parametrize("rows", [29, 31])
def test_rows_that_do_not_belong_to_points_are_refused(rows):
    points, values = points_and_values(90)
    X = da.from_array(points, chunks=30)
    y = da.from_array(values[: 3 * 29], chunks=29).map_blocks(lambda one: np.resize(one, rows))
    chosen = X[X[:, 0] > -1], y[y > -9]  # of unknown lengths
    with pytest.raises(kf.InputError, match=f"{rows} rows in partition"):
        kf.fit_points(*chosen)
    with pytest.raises(kf.InputError, match="one row per point"):
        kf.Statistics.from_dask(*chosen, kf.Triangle(8, 0.25), BOX)


def test_few_points_give_the_field_of_memory():
    points, values = points_and_values(500, 0.05)
    field = kf.fit_points(da.from_array(points, chunks=120), da.from_array(values, chunks=120))
    memory = kf.fit_points(points, values)
    np.testing.assert_array_equal(field(points), memory(points))
    robust = kf.fit_points(da.from_array(points, chunks=120), values, loss="huber")
    assert robust.report.robust is not None


# 2000 points are drawn
FEW = changed(DEFAULT, "lazy", "drawn", 2000)


def test_a_given_fit_is_that_of_memory():
    points, values = points_and_values(6000, 0.1)
    encoding = kf.Kronecker(kf.Triangle(20, 2 / 20), kf.TensionSpline(32, 0.05, padding=1))
    lazy = da.from_array(points, chunks=1000), da.from_array(values, chunks=1000)
    for options in ({"domain": BOX}, {}):
        options = {**options, "roughness": (0.0, 1e-3), "tolerance": 1e-9, "settings": FEW}
        field = kf.fit_points(*lazy, encoding, **options)
        memory = kf.fit_points(points, values, encoding, **options)
        assert field.frames == memory.frames
        np.testing.assert_allclose(field(points), memory(points), atol=1e-7)
        assert field.report.points == 6000


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_chosen_features_are_as_good_as_in_memory(noise):
    points, values = points_and_values(8000, noise)
    lazy = da.from_array(points, chunks=1500), da.from_array(values, chunks=1500)
    field, memory = kf.fit_points(*lazy, settings=FEW), kf.fit_points(points, values)
    new = points_and_values(2000, seed=9)[0] * 0.98
    errors = [np.sqrt(np.mean((one(new) - function(new)) ** 2)) for one in (field, memory)]
    # without noise the tolerance of the solver is the larger part
    assert errors[0] < (1.3 * errors[1] if noise else 2e-4)
    assert "2000 of 8000 points" in field.report.chosen_by
    chosen = [one for one in field.report.candidates if one.chosen]
    assert [one.kind for one in chosen] == ["roughness"]
    again = kf.fit_points(*lazy, settings=FEW)
    np.testing.assert_array_equal(again(new), field(new))


def test_complex_channels_weights_and_periods():
    points, values = points_and_values(5000, 0.1)
    points[:, 1] = np.random.default_rng(2).random(5000) * 360
    values = np.sin(5 * points[:, 0]) * np.exp(1j * np.radians(points[:, 1]))
    weights = np.random.default_rng(3).random(5000)
    field = kf.fit_points(
        da.from_array(points, chunks=1000),
        da.from_array(np.stack([values, 2 * values], 1), chunks=(1000, 1)),
        weights=da.from_array(weights, chunks=700),
        periodic=[None, 360.0],
        settings=FEW,
    )
    at = np.array([[0.5, 359.9], [0.5, -0.1], [0.2, 100.0]])
    expected = np.sin(5 * at[:, 0]) * np.exp(1j * np.radians(at[:, 1]))
    np.testing.assert_allclose(field(at), np.stack([expected, 2 * expected], 1), atol=5e-3)
    assert field.periods == (None, 360.0)


def test_tables_of_dask():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    points, values = points_and_values(5000, 0.1)
    table = pandas.DataFrame({"lon": points[:, 0], "lat": points[:, 1], "t": values})
    many = frames.from_pandas(table, npartitions=4)
    field = kf.fit_points(many[["lon", "lat"]], many["t"], settings=FEW)
    assert field.labels.names == ("lon", "lat")
    at = {"lon": 0.4, "lat": 1.0}
    assert abs(field(**at) - function(np.array([[0.4, 1.0]]))[0]) < 0.05
    with pytest.raises(kf.InputError, match="lengths=True"):
        kf.fit_points(many[["lon", "lat"]], da.from_array(values, chunks=1000))


def test_points_are_drawn_uniformly():
    points, values = points_and_values(4000)
    parts = scattered.partitions(
        da.from_array(points, chunks=((3000, 0, 900, 100), 2)), da.from_array(values, chunks=4000)
    )
    seen = scattered.seen_of(parts, seed=5, most=400)
    assert (seen.count, len(seen.points)) == (4000, 400)
    np.testing.assert_array_equal(seen.box, [points.min(axis=0), points.max(axis=0)])
    counts = np.bincount(seen.places[:, 0], minlength=4)
    assert abs(counts[0] - 300) < 40
    assert abs(counts[2] - 90) < 30
    assert np.all(np.diff(seen.places[:, 0]) >= 0)
    first = seen.places[seen.places[:, 0] == 0, 1]
    np.testing.assert_array_equal(seen.points[: len(first)], points[first])


def test_what_a_sum_cannot_do_is_refused():
    points, values = points_and_values(3000)
    lazy = da.from_array(points, chunks=1000), da.from_array(values, chunks=1000)
    for name, value in {"loss": "huber", "trend": 1, "hold_out": "blocks", "form": "dual"}.items():
        with pytest.raises(kf.InputError, match=f"^{name}: "):
            kf.fit_points(*lazy, settings=FEW, **{name: value})
    with pytest.raises(kf.InputError, match="4 dimensions"):
        kf.fit_points(
            da.random.default_rng(0).random((3000, 4), chunks=1000), lazy[1], settings=FEW
        )
    with pytest.raises(kf.InputError, match="3000, one per point"):
        kf.fit_points(lazy[0], lazy[1][:2000])
    with pytest.raises(kf.InputError, match="2 axes"):
        kf.fit_points(lazy[1], lazy[1])


# Decisions
# ------------------------------------------------------------------------------------------


def test_either_side_of_drawn():
    parts = scattered.partitions(da.zeros((80_000, 1), chunks=20_000), da.zeros(80_000))
    seen = scattered.seen_of(parts, 0, DEFAULT.lazy.drawn)
    assert 60_000 < len(seen.points) < 70_000


def test_either_side_of_held_out_and_step():
    points, values = points_and_values(6000, 0.3)
    report = kf.fit_points(da.from_array(points, chunks=3000), values, settings=FEW).report
    (count,) = re.findall(r"(\d+) held-out points", report.chosen_by)
    assert 300 < int(count) < 1200
    tried = sorted(
        max(one.parameters["first"], one.parameters["second"])
        for one in report.candidates
        if set(one.parameters) == {"first", "second"}
    )
    steps = np.divide(tried[1:], tried[:-1])
    assert np.all((steps > 2) & (steps < 10))


def solves(relative_error=1e-9):
    choice = SimpleNamespace(
        penalty=Penalty(roughness=(0.0, 1.0)), candidates=[1], relative_error=relative_error
    )
    return scattered.Solves(choice, PointOptions())


def test_either_side_of_first_step(monkeypatch):
    tried = []
    monkeypatch.setattr(scattered.Solves, "field", lambda self, _, penalty: penalty.roughness[1])
    monkeypatch.setattr(
        scattered.Solves,
        "_error",
        staticmethod(lambda at, held: tried.append(at) or abs(np.log(at) - np.log(64.0))),
    )
    penalty, _ = solves().walk(None, None)
    assert 10 < tried[0] < 1000
    assert penalty.roughness == (0.0, 64.0)
    assert len(tried) == 3


def test_either_side_of_most_steps(monkeypatch):
    for best, reached in ((-10, -10), (-20, -DEFAULT.lazy.most_steps)):
        least = DEFAULT.lazy.step**best
        monkeypatch.setattr(
            scattered.Solves, "field", lambda self, _, penalty: penalty.roughness[1]
        )
        monkeypatch.setattr(
            scattered.Solves,
            "_error",
            staticmethod(lambda at, held, least=least: abs(np.log(at / least))),
        )
        penalty, _ = solves().walk(None, None)
        assert penalty.roughness[1] == pytest.approx(DEFAULT.lazy.step**reached)
        assert reached > -15


def test_either_side_of_summary_bytes():
    """A million points have as many nodes each as those drawn; a hundred million have fewer."""
    points, values = points_and_values(2000)
    seen = PointInput(points, values, None, None, None)
    nodes = [
        math.prod(scattered._choice(seen, BOX, count, PointOptions()).encoding.shape)
        for count in (2000, 10**6, 10**8)
    ]
    assert nodes[1] > 300 * nodes[0]
    assert nodes[2] < 3000 * nodes[0]


def test_either_side_of_tightest():
    asked = SimpleNamespace(solve=lambda **options: options["tolerance"])
    assert 1e-6 < solves().field(asked, Penalty()) < 1e-3
    assert solves(0.04).field(asked, Penalty()) == pytest.approx(0.002)


def test_either_side_of_chunk_samples():
    stores = pytest.importorskip("kronfield.lazy.stores")
    small, large = da.zeros((1 << 13, 1 << 13), chunks=64), da.zeros((1 << 13, 1 << 13), chunks=-1)
    for array in (small, large):
        assert (1 << 20) < np.prod(stores.efficient(array).chunksize) < (1 << 24)


def lazy_grid():
    hats = kf.Triangle(128, 2 / 128)
    return kf.fit(da.zeros((128, 128), chunks=64), encoding=kf.Kronecker(hats, hats), ridge=0)


def test_either_side_of_most_made():
    field = lazy_grid()
    assert field.on_grid((10_000, 10_000)).npartitions > 4  # 25 million in a quarter
    assert field.on_grid((4096, 4096)).npartitions == 4


def test_either_side_of_most_gathered():
    field, point = lazy_grid(), da.zeros((1, 2))
    for megabytes, is_refused in ((64, False), (1024, True)):
        field._planes = SimpleNamespace(nbytes=megabytes << 20)
        with pytest.raises((kf.InputError, TypeError)) as error:  # there are no weights to gather
            field(point)
        assert ("points in memory" in str(error.value)) == is_refused


def test_either_side_of_short():
    for n, is_joined in ((128, True), (512, False)):
        values = da.zeros((n, 4), chunks=(n // 2, 4))
        encoding = kf.Kronecker(kf.RandomFourier(4, 1.0, seed=0), kf.Triangle(4, 0.5))
        if is_joined:
            assert kf.fit(values, encoding=encoding, ridge=0).weights.numblocks == (1, 1)
        else:
            with pytest.raises(kf.InputError, match="rechunk"):
                kf.fit(values, encoding=encoding, ridge=0)


def test_either_side_of_least_memory():
    cluster = pytest.importorskip("kronfield.lazy.cluster")
    assert cluster.memory_bytes("512MiB") == 1 << 29
    with pytest.raises(kf.InputError, match="at least 256 MiB"):
        cluster.memory_bytes("128MiB")
    with pytest.raises(kf.InputError, match="For example: 2GB"):
        cluster.memory_bytes("much")


def around(weight):
    """The samples around a chunk that a penalised fit uses."""
    values = da.zeros(4000, chunks=2000)
    report = kf.fit(values, roughness=(0.0, weight)).report
    return int(re.findall(r"with (\d+) samples", report.chosen_by)[0])


def test_either_side_of_tile_error():
    assert 150 < around(1e4) < 250  # 13.8 lengths of 14 samples


def test_either_side_of_widest_overlap():
    assert around(1e5) > 300
    with pytest.raises(kf.InputError, match="coarsen"):
        around(1e7)


def test_either_side_of_widest_hole():
    fill = pytest.importorskip("kronfield.lazy.fill")
    values = np.zeros((1, 400, 20))
    axes = [np.arange(400.0), np.arange(20.0)]
    for width, is_refused in ((33, False), (131, True)):
        missing = np.zeros((400, 20), dtype=bool)
        missing[100 : 100 + width] = True
        if is_refused:
            with pytest.raises(kf.InputError, match="131 samples wide"):
                fill.filled(values, missing, axes, DEFAULT, "here")
        else:
            assert np.all(fill.filled(values, missing, axes, DEFAULT, "here") == 0)
