"""`Field`: evaluation, derivatives, integrals, memory."""

import math
import multiprocessing
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

import kronfield as kf
from cases import EMBEDDERS
from kronfield.field import evaluation

rng = np.random.default_rng(0)

# Evaluation
# ------------------------------------------------------------------------------------------

FIELDS = {
    "spline": lambda: kf.fit(
        rng.standard_normal((20, 15, 2)), [np.linspace(0, 4, 20), np.linspace(1, 2, 15)]
    ),
    "gaussian": lambda: kf.fit(
        rng.standard_normal((20, 15)), encoding=kf.Gaussian(12, 0.06), ridge=0.0
    ),
    "fourier": lambda: kf.fit(
        rng.standard_normal((20, 15)), encoding=kf.LinearFourier(8, 2.0), ridge=0.0
    ),
    "mixed": lambda: kf.fit(
        rng.standard_normal((9, 8, 7)),
        encoding=kf.Kronecker(kf.Gaussian(6, 0.1), kf.Sine(2, 0.5), kf.TensionSpline(5, 2.0)),
        ridge=0.0,
    ),
}
each_field = pytest.mark.parametrize("make", FIELDS.values(), ids=FIELDS)


def _points(field, n=40, inset=0.05):
    bounds = np.array(field.domain)
    return bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * (
        inset + (1 - 2 * inset) * rng.random((n, field.dimensions))
    )


@each_field
def test_points_and_grids_agree(make):
    field = make()
    axes = [np.sort(column) for column in _points(field, 12).T]
    grid = field.on_grid(axes)
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    np.testing.assert_allclose(field(points).reshape(grid.shape), grid, atol=1e-9)
    shuffled = [axis[::-1] for axis in axes]  # falling positions are no problem
    flipped = grid[tuple(slice(None, None, -1) for _ in axes)]
    np.testing.assert_allclose(field.on_grid(shuffled), flipped, atol=1e-9)


@each_field
def test_derivatives_against_differences(make):
    field = make()
    X = _points(field)
    for axis, (low, high) in enumerate(field.domain):
        h = 1e-5 * (high - low)
        step, order = h * np.eye(field.dimensions)[axis], np.eye(field.dimensions, dtype=int)[axis]
        difference = (field(X + step) - field(X - step)) / (2 * h)
        scale = np.abs(difference).max()
        np.testing.assert_allclose(field(X, tuple(order)), difference, atol=1e-5 * scale)
        np.testing.assert_allclose(field.gradient(X)[:, axis], difference, atol=1e-5 * scale)
        second = (field(X + step, tuple(order)) - field(X - step, tuple(order))) / (2 * h)
        np.testing.assert_allclose(
            field(X, tuple(2 * order)), second, atol=1e-4 * np.abs(second).max()
        )
    total = sum(field(X, tuple(2 * row)) for row in np.eye(field.dimensions, dtype=int))
    np.testing.assert_allclose(field.laplacian(X), total)
    axes = [np.sort(column) for column in X[:6].T]
    mixed = (1,) * field.dimensions
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    grid = field.on_grid(axes, mixed)
    np.testing.assert_allclose(
        grid, field(points, mixed).reshape(grid.shape), atol=1e-9 * np.abs(grid).max()
    )


@each_field
def test_integrals_against_sums(make):
    field = make()
    box = [(low + 0.1 * (high - low), low + 0.73 * (high - low)) for low, high in field.domain]
    n = 60 if field.dimensions == 3 else 400
    axes = [low + (high - low) * (np.arange(n) + 0.5) / n for low, high in box]
    volume = math.prod(high - low for low, high in box)
    wanted = field.on_grid(axes).mean(axis=tuple(range(field.dimensions))) * volume
    scale = np.abs(field.on_grid(axes)).max() * volume
    np.testing.assert_allclose(field.integral(box), wanted, atol=2e-4 * scale)
    everything = field.integral()
    assert np.shape(everything) == np.shape(wanted)
    with pytest.raises(kf.InputError, match="box"):
        field.integral([(0, 1)] * 5)


def test_derivatives_that_do_not_exist():
    hats = kf.fit(rng.standard_normal((8, 8)), encoding=kf.Triangle(8, 0.25), ridge=0.0)
    assert hats.on_grid((4, 4), (1, 1)).shape == (4, 4)
    for call in (
        lambda: hats.on_grid((4, 4), (2, 0)),
        lambda: hats(np.ones((1, 2)), (0, 2)),
        lambda: hats.laplacian(np.ones((1, 2))),
    ):
        with pytest.raises(kf.InputError, match="order: got 2"):
            call()


def test_outside():
    field = kf.fit(np.arange(10.0))
    outside = np.array([[-3.0], [5.0], [11.0]])
    with pytest.raises(kf.InputError, match=r"-3 on axis 0 \(2 of 3 are outside\).*\[-0.5, 9.5\]"):
        field(outside)
    with pytest.raises(kf.InputError, match="outside"):
        field.on_grid([outside[:, 0]])
    np.testing.assert_allclose(field(outside, outside="clamp"), [-0.5, 5.0, 9.5], atol=1e-6)
    assert np.isnan(field(outside, outside="nan")).tolist() == [True, False, True]
    assert np.isnan(field.on_grid([outside[:, 0]], outside="nan")).tolist() == [True, False, True]
    far = field(np.array([[-300.0]]), outside="extrapolate")
    assert far == pytest.approx([-300.0])  # the last polynomial continues
    bells = kf.fit(np.arange(10.0), encoding=kf.Gaussian(10, 0.05), ridge=0.0)
    assert bells(np.array([[-300.0]]), outside="extrapolate").tolist() == [0.0]  # they fade out
    with pytest.raises(kf.InputError, match="one of"):
        field(outside, outside="wrap")


def test_evaluation_refuses():
    field = kf.fit(np.ones((9, 9)))
    for call, words in (
        (lambda: field.on_grid((3,)), "axes"),
        (lambda: field.on_grid((3, 0)), r"axes\[1\]"),
        (lambda: field.on_grid(5), "axes"),
        (lambda: field.on_grid([np.ones(3), np.ones((3, 3))]), r"axes\[1\]"),
        (lambda: field.on_grid([np.ones(3), np.array([np.nan])]), "NaN"),
        (lambda: field(np.ones((3, 3))), r"\(P, 2\)"),
        (lambda: field(np.ones((3, 2)), (1,)), "derivative"),
        (lambda: field(np.ones((3, 2)), (1, -1)), "derivative"),
        (lambda: field(np.ones((3, 2)), (1.7, 0)), "derivative"),
        (lambda: field("abc"), "points"),
        (lambda: field(torch.ones((3, 2), requires_grad=True)), "points"),
        (lambda: field.integral([1, 2]), "box"),
        (lambda: field.on_grid((3, 3), out=np.broadcast_to(np.zeros(3), (3, 3))), "out"),
        (lambda: field.on_grid((3, 3), out=np.empty((3, 4))), "out"),
        (lambda: field.on_grid((3, 3), out=np.empty((3, 3), int)), "out"),
    ):
        with pytest.raises(kf.InputError, match=words):
            call()
    assert field(np.zeros((0, 2))).shape == (0,)


# Memory
# ------------------------------------------------------------------------------------------


def _peak(call):
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def test_fit_takes_at_most_three_times_the_data():
    values = rng.random((1000, 1100, 3), dtype=np.float32)
    encoding = kf.Kronecker(kf.Gaussian(1000, 0.64 / 1000), kf.Gaussian(1100, 0.64 / 1100))
    _, peak = _peak(lambda: kf.fit(values, encoding=encoding, ridge=0.0))
    assert peak <= 3.1 * values.nbytes  # the weights, which are kept, among them


def test_a_huge_grid_is_written_blockwise(tmp_path):
    field = kf.fit(rng.random((50, 60), dtype=np.float32))
    out = np.lib.format.open_memmap(
        tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(6000, 5000)
    )
    result, peak = _peak(lambda: field.on_grid((6000, 5000), out=out))
    assert result is out
    assert peak < 0.7 * out.nbytes
    np.testing.assert_allclose(
        out[::500, ::500],
        field.on_grid([*(a[::500] for a in field._grid((6000, 5000)))]),
        atol=1e-6,
    )


def test_points_take_bounded_memory():
    for encoding in (None, kf.LinearFourier(32, 2.0)):
        field = kf.fit(
            rng.random((40, 40)), encoding=encoding, ridge=0.0 if encoding is None else 1e-3
        )
        X = 39 * rng.random((300_000, 2))
        _, peak = _peak(lambda field=field, X=X: field(X))
        assert peak < 400e6


def test_memory_maps_are_not_copied_whole(tmp_path):
    path = tmp_path / "values.npy"
    np.save(path, rng.random((800, 800, 3), dtype=np.float32))
    mapped = np.load(path, mmap_mode="r")
    encoding = kf.Kronecker(kf.Gaussian(100, 0.006), kf.Gaussian(100, 0.006))
    field, peak = _peak(lambda: kf.fit(mapped, encoding=encoding, ridge=0.0))
    assert peak < 0.7 * mapped.nbytes
    np.testing.assert_allclose(
        field.weights, kf.fit(np.array(mapped), encoding=encoding, ridge=0.0).weights, atol=1e-4
    )


def test_the_contract_embedders_all_fit_without_trouble():
    values = np.sin(np.arange(60) / 9)
    for emb in EMBEDDERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kf.RankWarning)
            field = kf.fit(values, encoding=emb, ridge=0.0)
        assert np.all(np.isfinite(field.on_grid((200,))))


@pytest.mark.parametrize(
    "emb",
    [
        kf.TensionSpline(300, 1.0),
        kf.Gaussian(300, 0.7 / 300),
        kf.Triangle(300, 2 / 300),
        kf.Impulse(300),
    ],
    ids=repr,
)
def test_long_lines_are_summed_feature_by_feature(emb, monkeypatch):
    field = kf.fit(
        np.sin(np.arange(300) / 9)[:, None] * [1.0, 2.0],
        encoding=kf.Kronecker(emb),
        ridge=0.0,
        roughness=(0.0, 0.0),
    )
    orders = range(min(emb.smoothness, 2) + 1)
    short = [field.on_grid((700,), derivative=(d,)) for d in orders]
    monkeypatch.setattr("kronfield.field.evaluation.LONG_LINE", 10)
    monkeypatch.setattr("kronfield.field.evaluation.BLOCK_NUMBERS", 100)
    for d, expected in zip(orders, short, strict=True):
        found = field.on_grid((700,), derivative=(d,))
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize(
    "emb", [kf.BSpline(30, 5), kf.Gaussian(30, 0.04), kf.TensionSpline(30, 4.0)], ids=repr
)
def test_matrices_that_are_kept_are_those_of_the_positions(emb, monkeypatch):
    weights = np.random.default_rng(3).standard_normal((2, 30, 30))
    planes, encoding = weights[:1], kf.Kronecker(emb, emb)
    units = [np.sort(np.random.default_rng(i).random(40)) for i in range(3)]
    used = []
    fresh = evaluation.axis_matrix
    monkeypatch.setattr(evaluation, "axis_matrix", lambda *a: used.append(1) or fresh(*a))

    def found(first, second, orders, planes):
        blocks = evaluation.grid_blocks(encoding, planes, [units[first], units[second]], orders)
        return np.concatenate([block for _, block in blocks], axis=1)

    for _ in range(2):
        for first, second, orders in ((0, 1, (0, 0)), (1, 2, (0, 1)), (2, 0, (1, 0))):
            for dtype in (np.float64, np.float32):
                rows = [
                    np.asarray(emb.derivative(units[i], order))
                    for i, order in zip((first, second), orders, strict=True)
                ]
                expected = np.einsum("mk,ckl,nl->cmn", rows[0], planes, rows[1])
                one = found(first, second, orders, planes.astype(dtype))
                assert one.dtype == dtype
                scale = np.abs(expected).max()
                np.testing.assert_allclose(
                    one, expected, atol=(1e-12 if dtype is np.float64 else 2e-5) * scale
                )
    assert len(used) <= 10  # of 24 matrices: three axes, two orders, two dtypes


def test_fields_are_evaluated_in_a_forked_child():
    context = multiprocessing.get_context("fork")
    field = kf.fit(np.arange(64.0).reshape(8, 8), encoding=kf.Triangle(8, 0.25), ridge=0.0)
    points = 7 * np.random.default_rng(0).random((100_000, 2))
    expected = field(points, outside="extrapolate")  # starts the threads here
    queue = context.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads is forked is the point
        child = context.Process(
            target=lambda: queue.put(float(field(points, outside="extrapolate").sum()))
        )
        child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert queue.get() == float(expected.sum())


def test_values_at_points_do_not_depend_on_the_parts(monkeypatch):
    field = kf.fit(np.random.default_rng(0).random((20, 30, 3)), channels=True)
    points = np.random.default_rng(1).random((5000, 2)) * [19, 29]
    whole = field(points)
    monkeypatch.setattr("kronfield.field.evaluation.CACHED_NUMBERS", 100)
    monkeypatch.setattr("kronfield.field.evaluation.FEWEST_POINTS", 7)
    np.testing.assert_array_equal(field(points), whole)


def test_positions_on_a_line_are_numbers():
    line, lines = (
        kf.fit(np.sin(np.arange(20.0))[:, None] * np.ones(n), channels=True) for n in (1, 3)
    )
    alone = kf.fit(np.sin(np.arange(20.0)))
    assert alone(4.5).shape == ()
    assert alone([4.5, 7]).tolist() == alone(np.array([[4.5], [7.0]])).tolist()
    assert (line(4.5).shape, lines([4.5, 7]).shape) == ((1,), (2, 3))
    assert alone.gradient([4.5, 7]).shape == (2, 1)
    with pytest.raises(kf.InputError, match="domain"):
        alone(99.0)
    with pytest.raises(kf.InputError, match=r"shape \(P, 2\)"):
        kf.fit(np.eye(9))([1.0, 2.0])
