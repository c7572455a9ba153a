"""Fields that hold samples and refine them: values, memory, pickles and files."""

import copy
import gc
import json
import math
import pickle
import threading
import tracemalloc
from dataclasses import asdict, replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from skimage import data
from threadpoolctl import threadpool_limits

import kronfield as kf
from clifiles import run
from kronfield.field import Field, storage
from kronfield.fitting import refined as refined_module
from kronfield.fitting.directional import SETTINGS
from kronfield.fitting.grid import GridFit
from kronfield.fitting.grid_choice import GridChoice
from kronfield.fitting.inputs import GridInput
from kronfield.fitting.refined import RefinedField
from kronfield.fitting.settings import DEFAULT
from kronfield.fitting.slopes import Refinement
from kronfield.fitting.splines import tension_encoding

TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def signal(*shape, dtype=np.float64, seed=0):
    """Blocks, ramps and a little noise: edges in all directions."""
    own = np.random.default_rng(seed)
    blocks = np.kron(own.random([-(-n // 5) for n in shape]), np.ones([5] * len(shape)))
    ramp = sum(np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij"))
    values = blocks[tuple(slice(n) for n in shape)] + (np.floor(ramp) - ramp) / 2
    return (values + 0.02 * own.standard_normal(shape)).astype(dtype)


def refined(values, *, directional=False, finer=None, axes=None, channels=False, settings=SETTINGS):
    """Return the field with slopes from the data, whatever `fit` would choose."""
    grid = GridInput(values, axes, None, None, channels)
    layout = grid.layout
    lattice = Refinement.of(
        layout.axes, layout.frames, finer or [True] * len(layout.shape), directional, settings
    )
    assert lattice is not None
    encoding = tension_encoding(lattice.axes, lattice.frames, 8.0)
    choice = GridChoice(encoding, (2,) * len(layout.shape), "given", [], lattice)
    return GridFit(layout, choice, None, DEFAULT.grid).field(grid, "given", [], 0.0)


def whole(field):
    """Return the same field with all weights of the finer lattice, solved in one piece."""
    return Field(
        field.encoding,
        field.planes,
        field.frames,
        field.axes,
        channels=field.has_channels,
        is_complex=field.is_complex,
        dtype=np.dtype(field.dtype.type(0).real.dtype),
    )


@pytest.fixture
def slabs(monkeypatch):
    """Treat every lattice as a large one: slabs on grids, boxes at points, nothing kept."""
    monkeypatch.setattr(refined_module, "BLOCK_NUMBERS", 1 << 9)
    monkeypatch.setattr(refined_module, "KEPT_NUMBERS", 1 << 10)


def watched_boxes(field, monkeypatch):
    """Return a list to which every box is added whose weights are computed from here on."""
    boxes, weights = [], field._samples.weights
    monkeypatch.setattr(field._samples, "weights", lambda box: boxes.append(box) or weights(box))
    return boxes


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    real = np.dtype(wanted.dtype.type(0).real.dtype)
    spread = max(float(np.ptp(wanted.real)), float(np.abs(wanted).max()))
    assert float(np.abs(found - wanted).max()) <= TOLERANCE[real] * spread


# Values
# ------------------------------------------------------------------------------------------

SHAPES = {
    "line": ((3000,), None),
    "picture": ((170, 31), None),
    "wide picture": ((14, 190), None),
    "volume": ((90, 8, 7), None),
    "thin volume": ((120, 4, 12), [True, False, True]),
    "coarse first axis": ((150, 20), [False, True]),
    "four axes": ((60, 5, 3, 4), [True, True, False, True]),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("directional", "dtype"), [(False, np.float64), (True, np.float32)])
def test_slabs_are_the_whole(name, directional, dtype, slabs, monkeypatch, rng):
    shape, finer = SHAPES[name]
    field = refined(signal(*shape, dtype=dtype), directional=directional, finer=finer)
    assert isinstance(field, RefinedField)
    wanted, D = whole(field), len(shape)
    # the samples themselves, which the whole lattice meets to the accuracy of its inverse
    np.testing.assert_allclose(field.on_grid(), wanted.on_grid(), atol=20 * TOLERANCE[field.dtype])
    larger = tuple(3 * n // 2 + 1 for n in shape)
    boxes = watched_boxes(field, monkeypatch)
    assert_close(field.on_grid(larger), wanted.on_grid(larger))
    assert len(boxes) > (shape[0] > 50)
    for axis in range(D):
        for order in (1, 2):
            orders = [order * (i == axis) for i in range(D)]
            assert_close(field.on_grid(larger, orders), wanted.on_grid(larger, orders))
    points = np.stack([rng.uniform(-0.5, n - 0.5, 50) for n in shape], axis=1)
    assert_close(field(points), wanted(points))
    assert_close(field(points[:1]), wanted(points[:1]))
    assert field(points[:0]).shape == (0,)
    assert_close(field.gradient(points), wanted.gradient(points))
    assert_close(field.laplacian(points), wanted.laplacian(points))
    box = [(0.3 * n, 0.6 * n) for n in shape]
    assert field.integral() == pytest.approx(wanted.integral(), rel=1e-5)
    assert field.integral(box) == pytest.approx(wanted.integral(box), rel=1e-5)
    assert field.integral([(2.0, 2.0)] * D) == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_many_lines_are_evaluated_some_at_a_time(dtype, monkeypatch, rng):
    monkeypatch.setattr(refined_module, "LINES_NUMBERS", 1 << 9)
    lines = np.stack([signal(40, dtype=dtype, seed=i) for i in range(30)], axis=-1)
    field = refined(lines, axes=[np.arange(40.0)], finer=[True], channels=True)
    wanted = whole(field)
    calls = []
    make = Refinement.__call__
    monkeypatch.setattr(
        Refinement, "__call__", lambda own, planes: calls.append(len(planes)) or make(own, planes)
    )
    for x in (np.linspace(-0.5, 39.5, 97), rng.uniform(0, 39, 50), np.array([3.25])):
        for order in (0, 1, 2):
            calls.clear()
            assert_close(field.on_grid([x], (order,)), wanted.on_grid([x], (order,)))
            assert len(calls) > 3
            assert max(calls) < 10


@pytest.mark.parametrize("shape", [(170, 31), (40, 8, 7)])
def test_slabs_of_a_mix_are_the_whole(shape, slabs):
    field = refined(signal(*shape), directional=0.6)
    larger = tuple(3 * n // 2 + 1 for n in shape)
    assert_close(field.on_grid(larger), whole(field).on_grid(larger))
    others = [refined(signal(*shape), directional=one).on_grid(larger) for one in (0.0, 1.0)]
    np.testing.assert_allclose(field.on_grid(larger), 0.4 * others[0] + 0.6 * others[1], atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 9, 3000])
def test_points_far_apart_and_close_together(count, slabs, monkeypatch, rng):
    field = refined(signal(300, 280), directional=True)
    wanted = whole(field)
    points = np.concatenate([c + rng.random((count, 2)) for c in ([3, 7], [290, 5], [150, 270])])
    boxes = watched_boxes(field, monkeypatch)
    assert_close(field(points), wanted(points))
    assert len(boxes) == 3  # one around each cluster


def test_positions_of_all_kinds(slabs, rng):
    field = refined(signal(200, 60, dtype=np.float32), directional=True)
    wanted = whole(field)
    rising, short = np.linspace(-0.5, 199.5, 333), np.linspace(3, 50, 20)
    kinds = {
        "rising": [rising, short],
        "falling": [rising[::-1], short[::-1]],
        "in no order": [rng.permutation(rising), rng.permutation(short)],
        "few": [np.array([20.5]), np.array([30.25])],
        "few, far apart": [np.array([0.0, 199.0]), np.array([0.0, 59.0])],
        "repeated": [np.full(40, 77.7), short],
        "a line": [np.array([100.2]), np.linspace(0, 59, 400)],
    }
    for axes in kinds.values():
        assert_close(field.on_grid(axes), wanted.on_grid(axes))
        out = np.empty([len(x) for x in axes], dtype=np.float64)
        assert field.on_grid(axes, out=out) is out
        np.testing.assert_allclose(out, wanted.on_grid(axes), atol=1e-5)
    beyond = [np.linspace(-30, 230, 300), np.linspace(-5, 70, 90)]
    for outside in ("clamp", "extrapolate", "nan"):
        found, right = (one.on_grid(beyond, outside=outside) for one in (field, wanted))
        np.testing.assert_allclose(found, right, atol=1e-5)
        points = np.stack([np.linspace(-30, 230, 90), np.linspace(-5, 70, 90)], axis=1)
        np.testing.assert_allclose(
            field(points, outside=outside), wanted(points, outside=outside), atol=1e-5
        )
    with pytest.raises(kf.InputError, match="outside"):
        field.on_grid(beyond)
    for call in (lambda: field.on_grid(derivative=(3, 0)), lambda: field([[1.0, 2.0]], (0, 3))):
        with pytest.raises(kf.InputError, match="order"):
            call()


@pytest.mark.parametrize("directional", [False, True])
def test_channels_complex_values_units_and_falling_axes(directional, slabs):
    image = np.stack([signal(120, 30, seed=i) for i in range(3)], axis=-1)
    axes = [np.linspace(7, 2, 120), np.linspace(-1, 1, 30)]
    several = refined(image, directional=directional, axes=axes, channels=True)
    np.testing.assert_allclose(several.on_grid(), whole(several).on_grid(), atol=2e-11)
    assert several.on_grid((50, 40)).shape == (50, 40, 3)
    assert_close(several.on_grid((300, 40)), whole(several).on_grid((300, 40)))
    np.testing.assert_allclose(several.on_grid(), image, atol=1e-12)
    assert several.integral().shape == (3,)
    both = refined(image[..., 0] + 1j * image[..., 1], directional=directional)
    assert both.dtype == np.complex128
    assert_close(both.on_grid((200, 50)), whole(both).on_grid((200, 50)))
    np.testing.assert_allclose(both.integral(), whole(both).integral(), rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_values_of_any_size(scale, slabs):
    values = signal(200, 30) * scale
    values[:50] *= 1e-6  # a slab in which all is small
    field = refined(values, directional=True)
    found, wanted = field.on_grid((300, 40)), whole(field).on_grid((300, 40))
    assert np.abs(found / scale - wanted / scale).max() < 1e-11


def test_overflow_is_found_when_fitting():
    blocks = np.kron(np.random.default_rng(0).random((30, 20)) > 0.5, np.ones((3, 3)))
    top = np.finfo(np.float32).max
    assert np.isfinite(refined((blocks * (top / 8)).astype(np.float32)).weights).all()
    with pytest.raises(kf.InputError, match="overflow"):
        refined(((2 * blocks - 1) * top).astype(np.float32))


# One piece, and the weights that are kept
# ------------------------------------------------------------------------------------------


def test_weights_and_encoding_are_those_of_the_finer_lattice():
    values = signal(40, 50)
    field = refined(values, directional=True)
    assert field.encoding.shape == (2 * 40 + 5, 2 * 50 + 5)
    assert field.weights.shape == (85, 105)
    assert field.number_count == 40 * 50
    solver = field._again.solver
    lattice = field._samples.finer
    np.testing.assert_array_equal(field.weights, solver.solve(lattice(values[None]))[0])
    before = field.on_grid()
    field.weights[:] = 0  # a copy
    field.planes[:] = 0
    np.testing.assert_array_equal(field.on_grid(), before)
    assert repr(field).startswith("RefinedField(on [-0.5, 39.5] x [-0.5, 49.5], slopes along edges")


def test_the_field_has_samples_of_its_own():
    values = signal(40, 50)
    field = refined(values)
    before = field.on_grid((80, 100))
    values[:] = 0
    refined(values).on_grid()  # other weights are kept now
    np.testing.assert_array_equal(field.on_grid((80, 100)), before)


def test_weights_are_computed_once_and_forgotten_with_the_field(monkeypatch):
    calls = []
    compute = refined_module.RefinedSamples.all_weights
    monkeypatch.setattr(
        refined_module.RefinedSamples,
        "all_weights",
        lambda self: calls.append(self.planes.shape) or compute(self),
    )
    one, other = refined(signal(40, 50)), refined(signal(30, 20))
    points = np.array([[3.2, 4.1]])
    for _ in range(3):
        one(points)
        one.on_grid((20, 20))
        copy.copy(one)(points)
        copy.deepcopy(one).gradient(points)
        one.integral()
    assert calls == [(1, 40, 50)]
    other(points)
    one(points)
    assert calls == [(1, 40, 50), (1, 30, 20), (1, 40, 50)]
    assert refined_module._recent._entry is not None
    del one, calls[:]
    gc.collect()
    assert refined_module._recent._entry is None


def test_values_do_not_depend_on_earlier_calls(monkeypatch):
    """Between the limits, small grids and points use all weights and large grids use slabs."""
    monkeypatch.setattr(refined_module, "BLOCK_NUMBERS", 1 << 12)
    values, points = signal(200, 40), np.array([[3.2, 4.1]])
    first, second = refined(values), refined(values)
    calls = [
        lambda field: field.on_grid((300, 60)),
        lambda field: field(points),
        lambda field: field.on_grid([np.linspace(10, 30, 50), np.arange(40.0)]),
        lambda field: field.weights,
    ]
    found = [call(first) for call in calls]
    again = [call(second) for call in reversed(calls)][::-1]
    for a, b, c in zip(found, again, [call(first) for call in calls], strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_threads_evaluate_different_fields():
    fields = [refined(signal(40 + i, 30, seed=i)) for i in range(4)]
    wanted = [field.on_grid((50, 50)) for field in fields]
    wrong = []

    def work(turn):
        for i in range(40):
            k = (i * turn + turn) % 4
            if not np.array_equal(fields[k].on_grid((50, 50)), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("directional", [False, True])
def test_the_number_of_threads_makes_no_difference(directional, slabs):
    values = np.stack([signal(400, 70, dtype=np.float32, seed=i) for i in range(3)], axis=-1)
    found = []
    for count in (1, 2):
        with threadpool_limits(count):
            field = refined(values, directional=directional, channels=True)
            found.append([field.on_grid((500, 100)), field.weights, field([[3.3, 60.1]])])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


# Memory
# ------------------------------------------------------------------------------------------


def test_memory_is_bounded():
    """Fitted and evaluated, a field of 2^24 weights needs a fraction of them."""
    values = signal(2000, 2000, dtype=np.float32)
    tracemalloc.start()
    try:
        field = refined(values)
        kept = tracemalloc.get_traced_memory()[0]
        assert kept < 1.1 * values.nbytes
        out = np.empty((2000, 2000), dtype=np.float32)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        field.on_grid(out=out)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert field._samples.count > refined_module.BLOCK_NUMBERS
    assert peak - before < 0.8 * 4 * field._samples.count
    assert after - before < 0.05 * values.nbytes
    np.testing.assert_allclose(out, values, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (signal(200, 150), {}),
        (signal(200, 150, dtype=np.float32), {"directional": True}),
        (np.stack([signal(90, 80)] * 3, axis=-1), {"channels": True}),
        (signal(20_000, dtype=np.float32), {}),
        (signal(20_000, dtype=np.float32), {"axes": [np.arange(20_000) / 44_100]}),
        (signal(20_000), {"axes": [np.linspace(4, 1, 20_000)]}),
        (signal(40, 30, 25, dtype=np.float32), {"directional": True}),
    ],
    ids=lambda value: str(value.shape) if isinstance(value, np.ndarray) else str(sorted(value)),
)
def test_pickles_and_files_hold_the_samples_once(values, options, tmp_path):
    field = refined(values, **options)
    data = pickle.dumps(field)
    assert len(data) <= 1.3 * values.nbytes + 4000
    saved = field.save(tmp_path / "a.field")
    assert saved.bytes <= 1.3 * values.nbytes + 4000
    assert saved.largest_error == 0
    shape = tuple(n + n // 2 for n in values.shape[: field.dimensions])
    for other in (pickle.loads(data), kf.load(tmp_path / "a.field")):
        assert type(other) is RefinedField
        assert repr(other) == repr(field)
        assert other.domain == field.domain
        for x, y in zip(other.axes, field.axes, strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(other.on_grid(shape), field.on_grid(shape))
        np.testing.assert_array_equal(other.weights, field.weights)
    again = pickle.loads(data)
    assert again.report.residual == field.report.residual
    np.testing.assert_array_equal(
        again.refit(values[::-1]).on_grid(), field.refit(values[::-1]).on_grid()
    )


def test_the_residual_is_measured_in_slabs_too(slabs):
    field = refined(signal(150, 40))
    assert 0 < field.report.residual < 1e-12
    assert field.report.refined
    assert field.report.degrees_of_freedom == 150 * 40


def test_integers_and_memory_maps(tmp_path):
    photo = data.astronaut()[100:180, 180:240]
    field = refined(photo, directional=True, channels=True)
    assert field.dtype == np.float32
    np.save(tmp_path / "a.npy", photo)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    found = refined(mapped, directional=True, channels=True)
    # all channels along the same edges
    np.testing.assert_array_equal(found.on_grid((200, 200)), field.on_grid((200, 200)))
    assert not isinstance(found._samples.planes, np.memmap)


def test_fit_makes_such_fields():
    photo = data.astronaut()[100:180, 180:240].astype(np.float32) / 255
    field = kf.fit(photo)
    assert isinstance(field, RefinedField)
    assert isinstance(field.refit(photo[::-1].copy()), RefinedField)
    np.testing.assert_allclose(field.on_grid(), photo, atol=2e-6)


def test_copies_share_the_samples():
    field = refined(signal(40, 50))
    other = copy.deepcopy(field)
    assert other._samples is field._samples
    other.info["changed"] = True
    assert not field.info
    assert other.report is not field.report
    assert other.report.residual == field.report.residual


def test_networks_start_from_the_weights():
    pytest.importorskip("torch")
    from kronfield.nn import CoordinateMLP, as_field

    field = refined(signal(20, 24), directional=True)
    model = CoordinateMLP.from_field(field)
    found = as_field(model, axes=field.axes, channels=False)
    np.testing.assert_allclose(found.on_grid((30, 30)), field.on_grid((30, 30)), atol=1e-12)
    with pytest.raises(kf.InputError, match="field of real values"):
        CoordinateMLP.from_field(refined(signal(20, 24) + 1j))


# Files
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "bound"), [("float16", 1e-3), ("float32", 1e-7), ("float64", 0)])
def test_smaller_storage_says_what_it_costs(dtype, bound, tmp_path):
    values = signal(40, 50)
    field = refined(values, directional=True)
    saved = field.save(tmp_path / "a.field", dtype=dtype)
    again = kf.load(tmp_path / "a.field")
    error = np.abs(again._samples.planes[0] - values)
    assert saved.largest_error == error.max() <= bound * np.abs(values).max()
    assert saved.rms_error == pytest.approx(np.sqrt(np.mean(error**2)))
    assert again.dtype == np.float64
    assert storage.stored_dtype(tmp_path / "a.field") == dtype
    with pytest.raises(kf.InputError, match="dtype"):
        field.save(tmp_path / "b.field", dtype="int8")
    with pytest.raises(kf.InputError, match="overflow"):
        refined(1e9 * values).save(tmp_path / "b.field", dtype="float16")


def test_other_settings_and_positions_are_saved(tmp_path):
    own = replace(SETTINGS, power=2, cells=(1, 1))
    field = refined(signal(40, 50), directional=True, settings=own)
    field.info["unit"] = "m"
    field.with_axes([np.array([3.0, 5.5]), np.array([1.0])])
    field.save(tmp_path / "a.field")
    again = kf.load(tmp_path / "a.field")
    assert again.info == {"unit": "m"}
    np.testing.assert_array_equal(again.on_grid(), field.on_grid())
    np.testing.assert_array_equal(again.on_grid((90, 90)), field.on_grid((90, 90)))
    assert again.report is None
    with pytest.raises(kf.InputError, match="loaded"):
        again.refit(signal(40, 50))


def rewrite(path, change):
    """Alter a saved field like someone who knows the format, with a valid checksum."""
    arrays = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["kronfield"])
    change(metadata, arrays)
    text = json.dumps(metadata)
    save_file(arrays, path, metadata={"kronfield": text, "sha256": storage._checksum(text, arrays)})


def _set(name, value):
    return lambda m, a: m.update({name: value})


def _of(name, **values):
    return lambda m, a: m[name].update(values)


HOSTILE = [
    (_set("version", 99), "newer kronfield"),
    (_set("kind", "refind"), "a saved field"),
    (_set("rule", 2), "rule 2"),
    (_set("rule", "os.system"), "rule"),
    (_set("finer", [True]), "without|list|fit|axes"),
    (_set("finer", [1, 0]), "neither true nor false"),
    (_set("finer", [False, False]), "no axis"),
    (_set("finer", []), "frames"),
    (_set("finer", "yes"), "not a list"),
    (_set("frames", [[0, 1, 0, 1]]), "not a list of 2"),
    (_set("frames", [[0, 0, 0, 0]] * 2), "empty"),
    (_set("frames", [[0, 1, 0]] * 2), "four numbers"),
    (_set("frames", [[0, 1, 0, math.nan]] * 2), "not a number"),
    (_set("frames", [[0, 1, 0, 10**400]] * 2), "not a number"),
    (_set("frames", [[0, 1, -500, 500]] * 2), "uneven"),
    (_set("ends", [None]), "array 'axis0'|fewer"),
    (_set("ends", [[0, 1], [0]]), "two numbers"),
    (_set("ends", [[0, 0], [0, 0]]), "rise or fall"),
    (_set("ends", [[0, "1"], [0, 1]]), "not a number"),
    (_set("directional", True), "entries"),
    (_set("directional", {}), "entries"),
    (_of("directional", slope="1"), "'slope'.*not a number"),
    (_of("directional", slope=math.inf), "'slope'.*not a number"),
    (_of("directional", slope=3.0), "out of range"),
    (_of("directional", floor=0), "out of range"),
    (_set("past_the_end", 1.5), "out of range"),
    (_set("past_the_end", "half"), "past_the_end"),
    (_of("directional", power=1.5), "'power'"),
    (_of("directional", power=True), "'power'"),
    (_of("directional", power=10**6), "'power'"),
    (_of("directional", same=[1]), "'same'"),
    (_of("directional", other=[1, 1]), "'other'"),
    (_of("directional", cells=[10**9]), "'cells'"),
    (_of("directional", cells=[2] * 99), "'cells'"),
    (_of("directional", cells=[-1, 1]), "'cells'"),
    (_of("directional", cells="11"), "'cells'"),
    (_of("directional", unknown=1), "entries"),
    (_set("tension", "x"), "tension"),
    (_set("tension", 1e9), "tension"),
    (_set("tension", None), "tension"),
    (_set("channels", None), "neither true nor false"),
    (_set("complex", True), "planes"),
    (_set("complex", 1), "neither true nor false"),
    (_set("values_dtype", "object"), "float32 nor float64"),
    (_set("info", [1]), "info"),
    (lambda m, a: m.pop("tension"), "without 'tension'"),
    (lambda m, a: m.pop("directional"), "without 'directional'"),
    (lambda m, a: a.pop("samples"), "'samples'"),
    (lambda m, a: a.update(samples=a["samples"][0]), "'samples'"),
    (lambda m, a: a.update(samples=a["samples"].astype(np.int64)), "'samples'"),
    (lambda m, a: a.update(samples=a["samples"][:, :0]), "missing or not finite"),
    (lambda m, a: a.update(samples=a["samples"][:, :2]), "too short"),
    (lambda m, a: a.update(samples=np.full_like(a["samples"], np.nan)), "not finite"),
    (lambda m, a: a.update(samples=np.full_like(a["samples"], 1e308)), "overflow"),
    (lambda m, a: a.update(samples=np.concatenate([a["samples"]] * 2)), "2 planes"),
    (lambda m, a: a.pop("axis0"), "'axis0'"),
    (lambda m, a: a.update(axis0=np.zeros(40)), "'axis0'"),
    (lambda m, a: a.update(axis0=np.full(50, 3, np.uint8)), "cannot be restored"),
    (lambda m, a: a.update(axis0=_bomb()), "cannot be restored"),
    (lambda m, a: a.update(grid0=np.full(3, np.nan), grid1=np.ones(3)), "not finite"),
    (lambda m, a: a.update(grid0=np.ones(3)), "'grid1'"),
]


def _bomb():
    import zlib

    return np.frombuffer(zlib.compress(bytes(10**8), 9), dtype=np.uint8)


@pytest.mark.parametrize("case", range(len(HOSTILE)))
def test_hostile_files(case, tmp_path):
    change, words = HOSTILE[case]
    path = tmp_path / "a.field"
    refined(signal(40, 50), directional=True).save(path)
    rewrite(path, change)
    with pytest.raises(kf.InputError, match=words):
        kf.load(path)


def test_the_weight_of_edges_travels(tmp_path):
    field = refined(signal(40, 50), directional=0.35)
    field.save(tmp_path / "a.field")
    points = np.array([[3.25, 20.5], [30.5, 3.25]])
    for again in (kf.load(tmp_path / "a.field"), pickle.loads(pickle.dumps(field))):
        assert np.array_equal(again(points), field(points))
    assert np.array_equal(field.refit(signal(40, 50))(points), field(points))
    for share in (0.0, 1.5, "half"):
        rewrite(tmp_path / "a.field", lambda meta, arrays, s=share: meta.update(along_edges=s))
        with pytest.raises(kf.InputError, match="along_edges"):
            kf.load(tmp_path / "a.field")
    # files of before the mix
    refined(signal(40, 50), directional=True).save(tmp_path / "b.field")
    rewrite(tmp_path / "b.field", lambda metadata, arrays: metadata.pop("along_edges"))
    wanted = refined(signal(40, 50), directional=True)(points)
    assert np.array_equal(kf.load(tmp_path / "b.field")(points), wanted)


@pytest.mark.parametrize("directional", [False, True])
def test_other_constants_travel_in_files(directional, tmp_path):
    other = replace(SETTINGS, past_the_end=0.4, floor=0.1)
    field = refined(signal(40, 50), directional=directional, settings=other)
    field.save(tmp_path / "a.field")
    rim = np.array([[-0.5, 20.0], [39.5, 3.25]])
    assert np.array_equal(kf.load(tmp_path / "a.field")(rim), field(rim))
    assert not np.allclose(refined(signal(40, 50), directional=directional)(rim), field(rim))


def test_files_without_the_constant_of_the_rim_are_read(tmp_path):
    field = refined(signal(40, 50), settings=replace(SETTINGS, past_the_end=0.25))
    field.save(tmp_path / "a.field")
    rewrite(tmp_path / "a.field", lambda metadata, arrays: metadata.pop("past_the_end"))
    rim = np.array([[-0.5, 20.0], [39.5, 3.25]])
    assert np.array_equal(kf.load(tmp_path / "a.field")(rim), field(rim))


def test_uneven_axes_in_files_are_refused(tmp_path):
    path = tmp_path / "a.field"
    refined(signal(40, 50)).save(path)

    def uneven(metadata, arrays):
        metadata["ends"][0] = None
        arrays["axis0"] = np.arange(40.0) ** 1.5

    rewrite(path, uneven)
    with pytest.raises(kf.InputError, match="uneven"):
        kf.load(path)


def test_what_is_in_a_file(tmp_path):
    """The format: written by this version, read by later ones."""
    refined(signal(40, 50), directional=True).save(tmp_path / "a.field")
    found = load_file(tmp_path / "a.field")
    assert {name: (a.shape, str(a.dtype)) for name, a in found.items()} == {
        "samples": ((1, 40, 50), "float64"),
        "axis0": ((0,), "uint8"),
        "axis1": ((0,), "uint8"),
    }
    with safe_open(tmp_path / "a.field", framework="numpy") as file:
        metadata = json.loads(file.metadata()["kronfield"])
    directional = json.loads(json.dumps(asdict(SETTINGS)))
    del directional["past_the_end"]
    assert metadata == {
        "format": "kronfield",
        "version": 2,
        "kind": "refined",
        "rule": 1,
        "frames": [[0.0, 40.0, -0.5, 39.5], [0.0, 50.0, -0.5, 49.5]],
        "ends": [[0.0, 39.0], [0.0, 49.0]],
        "finer": [True, True],
        "directional": directional,
        "along_edges": 1.0,
        "past_the_end": 0.25,
        "tension": 8.0,
        "channels": False,
        "complex": False,
        "values_dtype": "float64",
        "info": {},
    }


def test_fields_with_weights_keep_their_version(tmp_path):
    kf.fit(np.arange(8.0)).save(tmp_path / "a.field")
    with safe_open(tmp_path / "a.field", framework="numpy") as file:
        assert json.loads(file.metadata()["kronfield"])["version"] == 1


def test_info_says_what_the_field_is(tmp_path):
    field = refined(signal(40, 50), directional=True)
    field.save(tmp_path / "a.field", dtype="float32")
    text = run(f"info {tmp_path / 'a.field'}").stdout
    assert "from the data, along edges" in text
    assert "2000, float64, stored as float32" in text
    assert f"{85 * 105}, computed from the samples" in text
    found = json.loads(run(f"info {tmp_path / 'a.field'} --json").stdout)
    assert found["slopes"] == {"direction": "along edges", "samples": 2000}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_at_the_samples_are_the_samples(dtype):
    values = np.random.default_rng(3).random((30, 40, 2)).astype(dtype)
    axes = [np.linspace(5, 2, 30), np.linspace(0, 1, 40)]  # one of them falls
    field = kf.fit(values, axes, noise=0.0)
    assert field.report.refined
    np.testing.assert_array_equal(field.on_grid(), values)
    np.testing.assert_array_equal(field.on_grid([axes[0][::-1], axes[1]]), values[::-1])
    # the splines themselves pass through the samples
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(field(points), values.reshape(-1, 2), atol=tolerance)
    slopes = field.on_grid(derivative=(1, 0))
    assert slopes.shape == values.shape
    assert not np.array_equal(slopes, values)


def test_the_stored_dtype_of_low_rank_weights_is_known(tmp_path):
    x = np.linspace(0, 1, 20)
    field = kf.fit(np.sin(np.add.outer(x, 2 * x)), rank=2)
    field.save(tmp_path / "a.field", dtype="float32")
    assert storage.stored_dtype(tmp_path / "a.field") == "float32"
