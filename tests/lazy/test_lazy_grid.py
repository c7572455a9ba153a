"""`fit` of arrays of Dask and zarr: the field is that of the same values in memory."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.fitting import settings as decisions
from kronfield.lazy.field import LazyField
from kronfield.lazy.solve import Rows
from kronfield.solvers.grid.inverse import invert_axis

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def smooth(shape, dtype=np.float64):
    """A smooth function without noise: splines are chosen."""
    axes = [np.linspace(0, 3 + i, n) for i, n in enumerate(shape)]
    parts = np.meshgrid(*axes, indexing="ij")
    values = sum(np.sin((1.3 + i) * x + i) for i, x in enumerate(parts))
    return (values * np.prod(np.cos(0.5 * np.array(parts)), axis=0) * 100).astype(dtype)


def blocky(shape, dtype=np.float64):
    """Steps on a ramp: slopes are taken from the data."""
    rng = np.random.default_rng(3)
    steps = rng.integers(0, 9, [-(-n // 7) for n in shape])
    for axis in range(len(shape)):
        steps = np.repeat(steps, 7, axis)
    steps = steps[tuple(map(slice, shape))]
    return (steps + 0.01 * np.add.reduce(np.indices(shape))).astype(dtype)


def both(values, chunks, axes=None, encoding=None, **options):
    """Return the lazy field and the one in memory."""
    lazy = kf.fit(da.from_array(values, chunks=chunks), axes, encoding, **options)
    assert isinstance(lazy, LazyField)
    return lazy, kf.fit(values, axes, encoding, **options)


def assert_same(lazy, memory, tolerance=None):
    """Values, derivatives, points and integrals are equal to rounding."""
    if tolerance is None:
        single = np.finfo(memory.dtype).bits == 32
        tolerance = 2e-5 if single else 1e-11
    assert lazy.encoding == memory.encoding
    assert lazy.report.chosen_by == memory.report.chosen_by
    assert (lazy.dtype, lazy.frames, lazy.channel_count) == (
        memory.dtype,
        memory.frames,
        memory.channel_count,
    )
    unit = float(np.abs(memory.weights).max())
    np.testing.assert_allclose(lazy.weights, memory.weights, atol=tolerance * unit, rtol=0)
    D = memory.dimensions
    shape = tuple(int(1.7 * len(x)) + 1 for x in memory.axes)
    order = (1, *[0] * (D - 1))
    for one in (
        lambda field: field.on_grid(),
        lambda field: field.on_grid(shape),
        lambda field: field.on_grid(shape, derivative=order),
    ):
        found, expected = one(lazy), one(memory)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        scale = max(unit, float(np.abs(expected).max()))
        np.testing.assert_allclose(found.compute(), expected, atol=3 * tolerance * scale, rtol=0)
    low, high = np.transpose(memory.domain)
    points = low + (high - low) * np.random.default_rng(0).random((50, D))
    np.testing.assert_allclose(lazy(points), memory(points), atol=3 * tolerance * unit, rtol=0)
    np.testing.assert_allclose(
        np.asarray(lazy.integral()), memory.integral(), rtol=1e-4 if tolerance > 1e-6 else 1e-9
    )


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((300,), (100,)),
        ((300,), (64,)),
        ((150, 97), (64, 97)),
        ((150, 97), (50, 31)),
        ((40, 37, 45), (20, 37, 16)),
        ((150, 97), (7, 11)),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [smooth, blocky])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_chunks_give_the_field_of_the_whole(make, shape, chunks, dtype):
    lazy, memory = both(make(shape, dtype), chunks, noise=0)
    assert memory.report.refined == (make is blocky)
    assert_same(lazy, memory)


@given(
    st.lists(st.lists(st.integers(1, 70), min_size=1, max_size=5), min_size=1, max_size=2),
    st.sampled_from([smooth, blocky]),
    st.sampled_from([np.float32, np.float64, np.int16]),
)
@settings(max_examples=examples(45), deadline=None)
def test_any_chunks_give_the_field_of_the_whole(chunks, make, dtype):
    chunks = [[*one, 12] for one in chunks]  # every axis is long enough to be chosen on
    shape = tuple(map(sum, chunks))
    lazy, memory = both(make(shape, dtype), tuple(map(tuple, chunks)), noise=0)
    assert_same(lazy, memory)


def test_chunks_use_the_rows_of_the_whole_inverse():
    """Chunks end where blocks of the inverse end, and multiply these very blocks."""
    values = np.random.default_rng(0).random((1024, 192)).astype(np.float32)
    encoding = kf.Kronecker(
        kf.TensionSpline(1026, 8.0, padding=1), kf.TensionSpline(194, 8.0, padding=1)
    )
    lazy, memory = both(values, (200, 64), encoding=encoding, ridge=0)
    assert lazy.weights.chunks == ((192, 192, 192, 256, 194), (64, 64, 66))
    # products of other widths are rounded otherwise
    np.testing.assert_allclose(lazy.weights, memory.weights, rtol=0, atol=2e-6)
    operator = invert_axis(
        encoding.embedders[0], np.arange(1024) / 1024, dtype=np.float32, smooth=0
    )
    rows = Rows(operator.operator)
    blocks = rows.part(192, 448).blocks
    whole = [one for one in rows.operator.blocks if 192 <= one.row < 448]
    assert [one.values.shape for one in blocks] == [one.values.shape for one in whole]
    assert all(np.shares_memory(a.values, b.values) for a, b in zip(blocks, whole, strict=True))
    low, high = rows.samples(192, 448)
    assert 192 - 16 <= low <= 192
    assert 448 <= high <= 448 + 16


def test_empty_chunks():
    values = smooth((300, 200))
    lazy, memory = both(values, ((0, 100, 0, 200, 0), (0, 0, 200)), noise=0)
    assert_same(lazy, memory)


def test_chunks_shorter_than_the_halo_are_not_all_joined():
    lazy, memory = both(smooth((2000,)), 40, noise=0)
    assert max(lazy.weights.chunks[0]) < 500
    assert_same(lazy, memory)


def test_channels_and_complex_values():
    values = np.stack([smooth((90, 80)), 2 * smooth((90, 80)).T[:80].T + 1, blocky((90, 80))], 2)
    lazy, memory = both(values, (40, 40, 2), noise=0)
    assert memory.has_channels
    assert_same(lazy, memory)
    lazy, memory = both(values[..., 0] + 1j * values[..., 1], (40, 30), noise=0)
    assert lazy.dtype == np.complex128
    assert_same(lazy, memory)
    lazy, memory = both(values + 1j * values[..., ::-1], (40, 30, 1), noise=0, channels=True)
    assert_same(lazy, memory)


def test_falling_and_uneven_axes():
    rng = np.random.default_rng(1)
    x = np.cumsum(0.5 + rng.random(200))
    y = np.linspace(5.0, -3.0, 90)
    for values in (smooth((200, 90)), blocky((200, 90))):
        assert_same(*both(values, (60, 40), [x, y], noise=0), 1e-9)
        assert_same(*both(values, (60, 40), [x[::-1], y], noise=0), 1e-9)


def test_pieces_of_cubics_on_uneven_axes():
    rng = np.random.default_rng(2)
    x, y = np.cumsum(0.2 + rng.random(150)), np.arange(4.0)
    values = blocky((150, 4))
    lazy, memory = both(values, (40, 4), [x, y], noise=0)
    assert memory.report.refined
    assert_same(lazy, memory)


@pytest.mark.parametrize("rule", ["natural", "clamped", "not-a-knot", "reflect"])
def test_ends(rule):
    assert_same(*both(smooth((200, 60)), (64, 60), ends=rule))


def test_given_encodings():
    values = smooth((160, 120))
    for encoding in (
        kf.Triangle(160, 2 / 160),
        kf.Kronecker(kf.Gaussian(80, 1 / 80), kf.Gaussian(60, 1 / 60)),
        kf.Kronecker(kf.TensionSpline(162, 3.0, padding=1), kf.Triangle(40, 2 / 40)),
    ):
        single = isinstance(encoding, kf.Triangle)
        encoding = kf.Kronecker(encoding, kf.Triangle(120, 2 / 120)) if single else encoding
        assert_same(*both(values, (50, 40), encoding=encoding, ridge=0))


@pytest.mark.filterwarnings("ignore::kronfield.fitting.grid.RankWarning")
def test_axes_that_are_solved_as_a_whole_are_one_chunk():
    """Short ones are made one chunk; of long ones the caller must know."""
    values = smooth((50, 300))
    encoding = kf.Kronecker(kf.RandomFourier(20, 1.0, seed=0), kf.RandomFourier(12, 1.0, seed=1))
    lazy, memory = both(values, (25, 300), encoding=encoding, ridge=0)
    np.testing.assert_allclose(lazy.on_grid(), memory.on_grid(), atol=1e-6)
    with pytest.raises(kf.InputError, match=r"axis 1.*rechunk\(\{1: -1\}\)"):
        both(values, (25, 150), encoding=encoding, ridge=0)


def test_periodic_axes_are_one_chunk():
    x, angle = np.linspace(0, 2, 90), np.arange(0.0, 360.0, 1.25)
    values = np.sin(3 * x)[:, None] * np.cos(np.radians(angle - 40))
    periodic = [None, 360.0]
    lazy, memory = both(values, (30, 288), [x, angle], noise=0, periodic=periodic)
    assert_same(lazy, memory)
    at = np.array([[0.5, 725.0], [0.1, -3.0]])
    np.testing.assert_allclose(lazy(at), memory(at), atol=1e-10)
    with pytest.raises(kf.InputError, match="rechunk"):
        both(values, (30, 144), [x, angle], noise=0, periodic=periodic)
    closed = np.concatenate([values, values[:, :1]], axis=1)
    with pytest.raises(kf.InputError, match="both ends of a period"):
        both(closed, (30, 289), [x, np.append(angle, 360.0)], noise=0, periodic=periodic)


class Counted:
    """An array that knows which of its samples were read."""

    def __init__(self, values):
        self.values, self.seen = values, np.zeros(values.shape, dtype=bool)
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __getitem__(self, key):
        self.seen[key] = True
        return self.values[key]


def test_only_the_middle_is_read():
    counted = Counted(smooth((1000, 900), np.float32))
    field = kf.fit(da.from_array(counted, chunks=(100, 100), asarray=False), noise=0)
    rows, columns = (np.flatnonzero(counted.seen.any(axis=i)) for i in (1, 0))
    assert counted.seen[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    # 256 x 256 samples are judged: these, and at most the rest of the chunks that hold them
    assert len(rows) <= 400
    assert len(columns) <= 400
    assert abs((rows[0] + rows[-1]) / 2 - 499.5) <= 50
    fine = field.on_grid((2000, 1800))
    field.report.to_dict()  # the residual is that of the middle
    field.integral()
    repr(field), field._repr_html_()
    assert counted.seen.sum() <= 800 * 800
    assert not counted.seen[[0, 0, -1, -1], [0, -1, 0, -1]].any()
    counted.seen[:] = False
    fine[:10, :10].compute()
    assert counted.seen[:5, :5].all()
    assert counted.seen.sum() <= 300 * 300


def test_an_array_of_zarr_is_lazy_too():
    zarr = pytest.importorskip("zarr")
    values = blocky((140, 150))
    stored = zarr.create_array({}, shape=values.shape, chunks=(50, 50), dtype=values.dtype)
    stored[:] = values
    lazy = kf.fit(stored, noise=0)
    assert_same(lazy, kf.fit(values, noise=0))
    assert lazy.weights.numblocks == (3, 3)
    with pytest.raises(kf.InputTypeError, match="group"):
        kf.fit(zarr.group())


def test_a_dataarray_of_dask_is_lazy_and_keeps_its_labels():
    xarray = pytest.importorskip("xarray")
    coords = {"time": np.datetime64("2024-01-01", "ns") + np.arange(120) * 3_600_000_000_000}
    data = xarray.DataArray(
        smooth((120, 90)), dims=("time", "x"), coords={**coords, "x": np.arange(90.0)}, name="t"
    )
    lazy, memory = kf.fit(data.chunk({"time": 50, "x": 40}), noise=0), kf.fit(data, noise=0)
    assert_same(lazy, memory)
    assert lazy.labels == memory.labels
    day = {"time": coords["time"][:40:7], "x": np.array([3.5, 7.25])}
    np.testing.assert_allclose(lazy.on_grid(day), memory.on_grid(day), atol=1e-9)
    again = lazy.refit((2 * data).chunk({"time": 60}))
    np.testing.assert_allclose(again.on_grid(), 2 * data, atol=1e-9)


def test_what_would_need_all_samples_is_refused():
    values = da.from_array(smooth((60, 50)), chunks=25)
    for name, value in {
        "weights": np.ones((60, 50)),
        "rank": 3,
        "loss": "huber",
        "ridge": 0.1,
    }.items():
        with pytest.raises(kf.InputError, match=f"^{name}: "):
            kf.fit(values, **{name: value})
    with pytest.raises(kf.InputError, match="ridge=0"):
        kf.fit(values, encoding=kf.Triangle(60, 2 / 60))
    with pytest.raises(kf.InputError, match=r"^mask: "):
        kf.denoise(values, mask=np.zeros((60, 50), bool))
    with pytest.raises(kf.InputError, match="compute_chunk_sizes"):
        kf.fit(values[values[:, 0] > 0])
    with pytest.raises(kf.InputTypeError, match="float"):
        kf.fit(values.astype(object))


def test_a_lazy_mask_beside_values_in_memory_is_refused():
    values = smooth((60, 50))
    for name, other in (("mask", da.zeros((60, 50), dtype=bool)), ("weights", da.ones((60, 50)))):
        with pytest.raises(kf.InputError, match=rf"^{name}: .*{name}\.compute\(\)"):
            kf.fit(values, **{name: other})
    with pytest.raises(kf.InputError, match=r"^mask: "):
        kf.denoise(values, mask=da.zeros((60, 50), dtype=bool))


def test_other_objects_of_dask_are_refused():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    table = frames.from_pandas(pandas.DataFrame({"a": np.arange(9.0)}), npartitions=2)
    for values in (table, table["a"], dask.delayed(np.sin)(1.0)):
        with pytest.raises(kf.InputTypeError, match="an array of numbers"):
            kf.fit(values)
    masked = np.ma.masked_greater(smooth((90, 80)), 1.0)
    lazy = kf.fit(da.from_array(smooth((90, 80)), chunks=40), noise=0)
    for values in (da.from_array(masked, chunks=40), da.ma.masked_greater(da.ones((90, 80)), 0)):
        with pytest.raises(kf.InputError, match="masked"):
            kf.fit(values, noise=0)
        with pytest.raises(kf.InputError, match="masked"):
            lazy.refit(values)


def test_noise_is_left_in_if_it_is_said_to_be_none():
    noisy = smooth((200, 150)) + np.random.default_rng(0).normal(0, 20, (200, 150))
    assert_same(*both(noisy, 60, noise=0))


def test_nan_is_found_where_it_is_computed():
    values = smooth((600, 500))
    values[3, 5] = np.nan
    field = kf.fit(da.from_array(values, chunks=200), noise=0)
    assert np.isfinite(field.on_grid()[300:, 300:].compute()).all()
    with pytest.raises(kf.InputError, match=r"first at sample \(3, 5\)"):
        field.on_grid()[:10].compute()
    values[300, 250] = np.inf
    with pytest.raises(kf.InputError, match=r"NaN or inf.*mask=~dask\.array\.isfinite"):
        kf.fit(da.from_array(values, chunks=200))


def test_positions_outside_and_in_any_order():
    lazy, memory = both(smooth((120, 90)), (50, 40), noise=0)
    x, y = np.array([-9.0, 3.0, 3.0, 77.5, 200.0]), np.array([88.0, 4.5, -7.0])
    for outside in ("nan", "clamp"):
        np.testing.assert_allclose(
            lazy.on_grid([x, y], outside=outside),
            memory.on_grid([x, y], outside=outside),
            atol=1e-9,
        )
        points = np.stack([x[:3], y], axis=1)
        np.testing.assert_allclose(
            lazy(points, outside=outside), memory(points, outside=outside), atol=1e-9
        )
    with pytest.raises(kf.InputError, match="outside"):
        lazy.on_grid([x, y])
    with pytest.raises(kf.InputError, match="Sort them"):
        lazy.on_grid([np.array([1.0, 5.0, 2.0]), y[1:2]])
    with pytest.raises(kf.InputError, match="to_zarr"):
        lazy.on_grid(out=np.empty((120, 90)))
    assert lazy(np.empty((0, 2))).compute().shape == (0,)


def test_gradients_and_laplacians_at_points():
    lazy, memory = both(smooth((120, 90)), (50, 40), noise=0)
    points = np.random.default_rng(4).random((30, 2)) * [119, 89]
    np.testing.assert_allclose(lazy.gradient(points), memory.gradient(points), atol=1e-8)
    np.testing.assert_allclose(lazy.laplacian(points), memory.laplacian(points), atol=1e-8)


def test_values_of_a_zoom_are_chunks_that_zarr_takes(tmp_path):
    zarr = pytest.importorskip("zarr")
    lazy, memory = both(blocky((256, 200)).astype(np.float32), (64, 64), noise=0)
    fine = lazy.on_grid((512, 400))
    assert fine.chunks == ((128,) * 4, (128, 128, 128, 16))
    fine.to_zarr(str(tmp_path / "fine.zarr"))
    stored = zarr.open_array(str(tmp_path / "fine.zarr"), mode="r")[:]
    np.testing.assert_allclose(stored, memory.on_grid((512, 400)), atol=1e-2)


def test_chunks_that_would_make_too_much_are_divided(monkeypatch):
    few = decisions.changed(decisions.DEFAULT, "lazy", "most_made", 1 << 12)
    monkeypatch.setattr(decisions, "DEFAULT", few)
    lazy, memory = both(smooth((100, 80)), (100, 80), noise=0)
    fine = lazy.on_grid((300, 240))
    assert max(map(max, fine.chunks)) <= 64 + 32
    np.testing.assert_allclose(fine, memory.on_grid((300, 240)), atol=1e-9)


def test_compute_persist_refit_and_pickles():
    values = smooth((120, 90))
    lazy, in_memory_fit = both(values, (50, 40), noise=0)
    in_memory = lazy.compute()
    assert type(in_memory) is kf.Field
    np.testing.assert_allclose(in_memory.on_grid(), values, atol=1e-9)
    assert in_memory.report.residual < 1e-9
    kept = lazy.persist()
    np.testing.assert_array_equal(kept.weights, lazy.weights)
    again = lazy.refit(da.from_array(2 * values, chunks=(50, 40)))
    np.testing.assert_allclose(again.on_grid(), 2 * values, atol=1e-9)
    with pytest.raises(kf.InputError, match="the grid"):
        lazy.refit(da.from_array(values[:-1], chunks=(50, 40)))
    with pytest.raises(kf.InputError, match="got samples in memory"):
        lazy.refit(values)
    with pytest.raises(kf.InputError, match="expected samples in memory"):
        in_memory_fit.refit(da.from_array(values, chunks=50))
    there = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(there.on_grid(), lazy.on_grid())
    with pytest.raises(kf.InputError, match="compute"):
        lazy.save("never.field")


def test_one_field_has_one_name():
    """Equal fits have equal keys, so that Dask computes them once."""
    values = da.from_array(smooth((120, 90)), chunks=(50, 40))
    one, other = kf.fit(values, noise=0), kf.fit(values, noise=0)
    assert one.weights.name == other.weights.name
    assert one.on_grid((50, 60)).name == other.on_grid((50, 60)).name


def test_a_dataarray_of_dask_is_not_loaded_by_the_accessor():
    xarray = pytest.importorskip("xarray")
    import kronfield.xarray  # noqa: F401

    data = xarray.DataArray(smooth((60, 50)), dims=("x", "y"), coords={"x": np.arange(60.0)})
    with pytest.raises(kf.InputError, match=r"kf\.fit"):
        data.chunk().kronfield.interp(x=[2.5])


def test_a_store_of_zarr_keeps_the_field(tmp_path):
    pytest.importorskip("zarr")
    values = np.stack([blocky((300, 90)), smooth((300, 90))], axis=2)
    x = {"time": np.datetime64("2024-01-01", "s") + np.arange(300), "y": np.arange(90.0)[::-1]}
    lazy = kf.fit(da.from_array(values, chunks=(128, 90, 2)), x, noise=0)
    lazy.info["source"] = "a test"
    saved = lazy.save(tmp_path / "kept.zarr")
    assert saved.bytes > 1000
    there = kf.load(tmp_path / "kept.zarr")
    assert isinstance(there, LazyField)
    assert (there.labels, there.info, there.frames) == (lazy.labels, lazy.info, lazy.frames)
    assert there.weights.numblocks == (3, 1, 1)
    np.testing.assert_array_equal(there.weights, lazy.weights)
    np.testing.assert_array_equal(there.on_grid(), lazy.on_grid())
    np.testing.assert_array_equal(there.on_grid((100, 90)), lazy.on_grid((100, 90)))
    at = np.array([[5.5, 3.0]])
    np.testing.assert_array_equal(
        there.distance_to_data(at * [1, 1] + [1704067200, 0]),
        lazy.distance_to_data(at * [1, 1] + [1704067200, 0]),
    )
    lazy.save(tmp_path / "kept.zarr")  # replaced
    with pytest.raises(kf.InputError, match="dtype"):
        lazy.save(tmp_path / "kept.zarr", dtype="float16")


def test_stores_that_hold_no_field_are_refused(tmp_path):
    zarr = pytest.importorskip("zarr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(kf.InputError, match="a saved field"):
        kf.load(tmp_path / "empty")
    zarr.create_array(tmp_path / "array.zarr", data=np.ones(3))
    with pytest.raises(kf.InputError, match="a saved field"):
        kf.load(tmp_path / "array.zarr")
    kf.fit(da.from_array(blocky((300,)), chunks=128), noise=0).save(tmp_path / "field.zarr")
    group = zarr.open_group(tmp_path / "field.zarr")
    group.attrs["kronfield"] = {**group.attrs["kronfield"], "frames": [[0.0, 1.0, 0.0]]}
    with pytest.raises(kf.InputError, match="damaged"):
        kf.load(tmp_path / "field.zarr")
    group.attrs["kronfield"] = {**group.attrs["kronfield"], "version": 99}
    with pytest.raises(kf.InputError, match="newer"):
        kf.load(tmp_path / "field.zarr")


def test_only_stores_of_fields_are_replaced(tmp_path):
    zarr = pytest.importorskip("zarr")
    values = smooth((300,))
    zarr.create_array(tmp_path / "samples.zarr", data=values, chunks=100)
    samples = zarr.open_array(tmp_path / "samples.zarr", mode="r")
    field = kf.fit(samples, noise=0)
    with pytest.raises(kf.InputError, match="expected a saved field"):
        field.save(tmp_path / "samples.zarr")
    np.testing.assert_array_equal(samples[:], values)
    (tmp_path / "file.zarr").write_text("kept")
    with pytest.raises(kf.InputError, match="It is a file"):
        field.save(tmp_path / "file.zarr")
    assert (tmp_path / "file.zarr").read_text() == "kept"


def test_a_store_without_a_chunk_is_damaged(tmp_path):
    pytest.importorskip("zarr")
    values = np.concatenate([np.zeros(300), smooth((300,))])  # chunks of zeros are stored too
    lazy = kf.fit(da.from_array(values, chunks=128), noise=0)
    lazy.save(tmp_path / "field.zarr")
    there = kf.load(tmp_path / "field.zarr")
    np.testing.assert_array_equal(there.on_grid(), lazy.on_grid())
    chunks = tmp_path / "field.zarr" / "weights" / "c" / "0"
    (chunks / "3").unlink()
    there.on_grid(([1.5, 10.0],)).compute()
    with pytest.raises(kf.InputError, match="chunks are missing"):
        there.on_grid().compute()


def test_a_failed_save_leaves_no_store(tmp_path):
    pytest.importorskip("zarr")
    values = smooth((600, 500))
    values[3, 5] = np.nan
    field = kf.fit(da.from_array(values, chunks=200), noise=0)
    with pytest.raises(kf.InputError, match="NaN"):
        field.save(tmp_path / "never.zarr")
    assert not list(tmp_path.iterdir())


def test_points_of_dask():
    values = np.stack([smooth((120, 90)), blocky((120, 90))], axis=2)
    lazy, memory = both(values, (50, 40, 2), noise=0)
    points = np.random.default_rng(5).random((200, 2)) * [119, 89]
    chunked = da.from_array(points, chunks=(70, 1))
    for field in (lazy, memory):
        found = field(chunked, derivative=(0, 1))
        assert found.chunks == ((70, 70, 60), (2,))
        np.testing.assert_allclose(found, memory(points, derivative=(0, 1)), atol=1e-8)
    one = kf.fit(values[..., 0], noise=0)
    assert one(chunked).chunks == ((70, 70, 60),)
    np.testing.assert_allclose(one(chunked + 50, outside="nan"), one(points + 50, outside="nan"))
    with pytest.raises(kf.InputError, match="outside"):
        one(chunked + 50).compute()
    with pytest.raises(kf.InputError, match="outside: got"):
        one(chunked, outside="no")
    with pytest.raises(kf.InputError, match="shape"):
        one(chunked[:, :1])
    with pytest.raises(kf.InputError, match="2 orders"):
        one(chunked, derivative=(1, 0, 0))
    for field in (lazy, memory):
        found = field.laplacian(chunked)
        assert found.chunks == ((70, 70, 60), (2,))
        np.testing.assert_allclose(found, memory.laplacian(points), atol=1e-6)
        with pytest.raises(kf.InputError, match="positions of Dask"):
            field.distance_to_data(chunked)


def test_points_in_a_table_of_dask():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(6)
    table = pandas.DataFrame({"y": rng.random(50) * 80, "other": 0, "x": rng.random(50) * 110})
    field = kf.fit(smooth((120, 90)), {"x": np.arange(120.0), "y": np.arange(90.0)})
    found = field(frames.from_pandas(table, npartitions=3)).compute()
    np.testing.assert_array_equal(found, field(table))
    with pytest.raises(kf.InputError, match="positions of Dask"):
        field(x=da.zeros(3), y=da.zeros(3))
    with pytest.raises(kf.InputError, match="a table without y"):
        field(frames.from_pandas(table[["x", "other"]], npartitions=3))


def test_large_weights_are_not_gathered_for_points(monkeypatch):
    few = decisions.changed(decisions.DEFAULT, "lazy", "most_gathered", 1 << 10)
    monkeypatch.setattr(decisions, "DEFAULT", few)
    field = kf.fit(da.from_array(smooth((60, 50)), chunks=60), noise=0)
    with pytest.raises(kf.InputError, match=r"field\.compute\(\)"):
        field(da.zeros((5, 2)))
