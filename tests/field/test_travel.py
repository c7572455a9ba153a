"""Fields that travel: pickles, copies and other processes."""

import copy
import functools
import multiprocessing
import pickle

import numpy as np
import pandas
import pytest
import xarray

import kronfield as kf
from cases import cosine_bell
from kronfield._core.axes import DecimalAxis, pack_axis, unpack_axis
from kronfield._core.frames import is_even, sample_frame
from kronfield.field.dual import DualField
from kronfield.fitting import settings
from kronfield.fitting.refined import RefinedField

rng = np.random.default_rng(0)
POINTS = rng.random((1000, 2))
VALUES = np.sin(5 * POINTS[:, 0]) * POINTS[:, 1] + 0.05 * rng.standard_normal(1000)
MANY = rng.random((150, 4))
WAVES = np.sin(3 * MANY).sum(axis=1) + 0.01 * rng.standard_normal(150)
PICTURE = np.add.outer(np.arange(60.0) > 30, np.cos(np.arange(80.0) / 5))
NOISY = np.sin(np.arange(400) / 30) + 0.2 * rng.standard_normal(400)
MASK = rng.random((60, 80)) < 0.3
UNEVEN_AXIS = np.sort(rng.random(60)) * 60
COUNTS = rng.poisson(30 * PICTURE + 60).astype(float)


def _statistics():
    seen = kf.Statistics(kf.Triangle(24, 2 / 24), domain=[(0, 1), (0, 1)])
    seen.add(POINTS, VALUES)
    return seen


def _fields():
    """Fields of every kind, by name, made when asked for."""
    bell = kf.ShiftedBasis(60, cosine_bell, support=(-0.05, 0.05), name="bell")
    return {
        "slopes": lambda: kf.fit(PICTURE),
        "float32": lambda: kf.fit(PICTURE.astype(np.float32)),
        "bytes": lambda: kf.fit((50 * PICTURE + 60).astype(np.uint8)),
        "line": lambda: kf.fit(NOISY),
        "smoothed": lambda: kf.fit(NOISY, roughness="gcv"),
        "falling": lambda: kf.fit(PICTURE, axes=[np.linspace(5, 2, 60), np.linspace(0, 1, 80)]),
        "cells": lambda: kf.fit(NOISY, domain=[(2.0, 3.7)]),
        "uneven": lambda: kf.fit(PICTURE, axes=[UNEVEN_AXIS, np.arange(80.0)]),
        "complex": lambda: kf.fit(PICTURE + 1j * PICTURE[::-1]),
        "channels": lambda: kf.fit(np.stack([PICTURE] * 3, axis=-1)),
        "paper": lambda: kf.fit(
            PICTURE, encoding=kf.Kronecker(kf.Gaussian(60, 0.01), kf.Gaussian(80, 0.008)), ridge=0.0
        ),
        "ridge": lambda: kf.fit(NOISY, encoding=kf.RandomFourier(400, 20.0, seed=0), ridge=0.1),
        "own function": lambda: kf.fit(PICTURE[:, 0], encoding=bell, ridge=1e-3),
        "mask": lambda: kf.fit(PICTURE, mask=MASK, roughness=(0.0, 1e-4)),
        "filled": lambda: kf.fit(PICTURE, mask=MASK),
        "points": lambda: kf.fit_points(POINTS, VALUES),
        "points, Gaussians": lambda: kf.fit_points(POINTS[:300], np.sin(4 * POINTS[:300, 0])),
        "points, blended": lambda: kf.fit_points(
            POINTS, VALUES, kf.Gaussian(30, 0.05), ridge=1e-2, rows="blending"
        ),
        "statistics": lambda: _statistics().solve(roughness=(0.0, 1e-4)),
        "refit": lambda: kf.fit(PICTURE).refit(PICTURE * 2),
        "points, Huber's loss": lambda: kf.fit_points(
            POINTS, VALUES + 5.0 * (np.arange(1000) % 40 == 0), loss="huber", roughness=(0.0, 1e-3)
        ),
        "points, trend": lambda: kf.fit_points(
            POINTS, VALUES + 3 * POINTS[:, 0], trend=1, roughness=(0.0, 1e-3)
        ),
        "points, table": lambda: kf.fit_points(
            pandas.DataFrame(POINTS, columns=["y", "x"]),
            pandas.Series(VALUES, name="height"),
            roughness=(0.0, 1e-3),
        ),
        "dual": lambda: kf.fit_points(MANY, WAVES, ridge=1e-3),
        "dual, inducing points": lambda: kf.fit_points(
            MANY,
            np.stack([WAVES, 2 * WAVES], axis=1),
            ridge=1e-3,
            settings=settings.changed(settings.DEFAULT, "dual", "direct_points", 100),
        ),
        "points, factored": lambda: kf.fit_points(MANY, WAVES, form="factored"),
        "points, periodic": lambda: kf.fit_points(
            POINTS, VALUES, periodic=[None, 1.5], roughness=(0.0, 1e-3)
        ),
        "periodic": lambda: kf.fit(PICTURE, periodic=[None, 80.0]),
        "low rank": lambda: kf.fit(PICTURE, rank=3),
        "weighted": lambda: kf.fit(PICTURE, weights=1 + PICTURE**2, roughness=(0.0, 1e-4)),
        "denoised": lambda: kf.denoise(NOISY_PICTURE),
        "denoised line": lambda: kf.denoise(NOISY),
        "denoised thoroughly": lambda: kf.denoise(NOISY_PICTURE, thorough=True),
        "denoised counts": lambda: kf.denoise(COUNTS),
        "denoised, gaps": lambda: kf.denoise(NOISY_PICTURE, mask=MASK, noise=0.2),
        "xarray": lambda: kf.fit(
            xarray.DataArray(
                PICTURE,
                dims=("lat", "lon"),
                coords={"lat": np.arange(60.0), "lon": 2 * np.arange(80.0)},
                name="height",
                attrs={"units": "m"},
            )
        ),
        "dates": lambda: kf.fit(pandas.Series(NOISY, index=MONTHS)),
    }


NOISY_PICTURE = PICTURE + 0.2 * rng.standard_normal(PICTURE.shape)
MONTHS = pandas.date_range("1990-01-01", periods=400, freq="MS")
NAMES = list(_fields())
POINTWISE = [n for n in NAMES if n.startswith(("points", "mask", "weighted"))]
DUAL = [n for n in NAMES if n.startswith("dual")]
# Another standard error, or none at all.
BY_SHRINKAGE = ("denoised", "denoised thoroughly", "denoised counts")


@functools.cache
def _field(name):
    """A field for all tests that do not change it."""
    return _fields()[name]()


def _same(found, wanted):
    assert type(found) is type(wanted)
    assert repr(found) == repr(wanted)
    assert found.domain == wanted.domain
    assert found.dtype == wanted.dtype
    assert found.info == wanted.info
    for a, b in zip(found.axes, wanted.axes, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(found.on_grid(), wanted.on_grid())
    assert np.array_equal(found.weights, wanted.weights)


@pytest.mark.parametrize("name", NAMES)
def test_pickles(name):
    field = _fields()[name]()
    field.info["from"] = "a test"
    data = pickle.dumps(field)
    again = pickle.loads(data)
    _same(again, field)
    # the report says the same, also what was not asked for before
    assert again.report.residual == field.report.residual
    if isinstance(field.report, kf.FitReport):
        assert str(again.report) == str(field.report)
        assert again.report.to_dict() == field.report.to_dict()
    else:
        assert "not computed before pickling" in str(again.report)
        assert again.report.to_dict()["degrees_of_freedom"] is None
        with pytest.raises(kf.InputError, match="before it is pickled"):
            _ = again.report.degrees_of_freedom
        known = field.report.degrees_of_freedom
        assert pickle.loads(pickle.dumps(field.report)).degrees_of_freedom == known
    # a second journey
    assert pickle.loads(pickle.dumps(again)).report.residual == field.report.residual


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n not in (*POINTWISE, *DUAL, "statistics", "low rank")]
)
def test_refit_after_a_journey(name):
    field = _field(name)
    again = pickle.loads(pickle.dumps(field))
    values = field.on_grid()
    if name == "bytes":
        values = np.round(values).astype(np.uint8)
    _same(again.refit(values), field.refit(values))
    with pytest.raises(kf.InputError, match="values"):
        again.refit(values[1:])


@pytest.mark.parametrize("name", ["line", "denoised line", "dates", *DUAL])
def test_standard_errors_after_a_journey(name):
    field = _field(name)
    again = pickle.loads(pickle.dumps(field))
    points = np.array([[0.3 * low + 0.7 * high for low, high in field.domain]])
    wanted = field.standard_error(points)
    assert np.all(wanted > 0)
    np.testing.assert_allclose(again.standard_error(points), wanted, rtol=1e-9)


@pytest.mark.parametrize("name", BY_SHRINKAGE)
def test_without_a_standard_error_the_same_is_said_after_a_journey(name):
    for field in (_field(name), pickle.loads(pickle.dumps(_field(name)))):
        with pytest.raises(kf.InputError, match="standard_error: got shrinkage or slopes"):
            field.standard_error(np.array([[5.0, 5.0]]))


def test_coverage_travels_if_it_was_measured():
    field = kf.fit_points(POINTS[:300], VALUES[:300], roughness=(0.0, 1e-3))
    with pytest.raises(kf.InputError, match="coverage: got a report that was pickled before"):
        _ = pickle.loads(pickle.dumps(field)).report.coverage
    wanted = field.report.coverage
    again = pickle.loads(pickle.dumps(field))
    assert again.report.coverage == wanted
    assert str(wanted) in str(again.report)


@pytest.mark.parametrize("name", ["xarray", "dates", "points, table"])
def test_labels_travel(name):
    field = _field(name)
    assert field.labels is not None
    for other in (pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
        assert other.labels == field.labels


@pytest.mark.parametrize("name", [*POINTWISE, *DUAL, "low rank"])
def test_what_needs_the_points_says_so(name):
    field = _field(name)
    again = pickle.loads(pickle.dumps(field))
    with pytest.raises(kf.InputError, match="refit: got a pickled field"):
        again.refit(VALUES)
    if name in (*DUAL, "low rank"):
        return  # the points are part of it; or no standard errors
    with pytest.raises(kf.InputError, match="standard_error: got a pickled field"):
        again.standard_error(np.full((1, field.dimensions), 0.5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_can_do_all_that_the_original_can(name, make):
    field = _field(name)
    other = make(field)
    _same(other, field)
    assert str(other.report).splitlines()[:-1] == str(field.report).splitlines()[:-1]
    if make is copy.deepcopy:
        assert not np.shares_memory(other.weights, field.weights)
        other.info["changed"] = True
        assert "changed" not in field.info
    if name in (*POINTWISE, *DUAL):
        at = np.full((1, field.dimensions), 0.5)
        assert np.array_equal(
            other.standard_error(at, noise=1.0), field.standard_error(at, noise=1.0)
        )


def _needed(field):
    """The bytes of all numbers that a field needs to be evaluated."""
    holds_samples = isinstance(field, RefinedField)
    numbers = field.on_grid().nbytes if holds_samples else field.weights.nbytes
    numbers += sum(_uneven_bytes(x) for x in field.axes)
    if isinstance(field, DualField):  # the points, and what standard errors need
        numbers += sum(x.nbytes for x in field._system.contents().values())
    return numbers


def _uneven_bytes(x):
    return 0 if is_even(x) else x.nbytes


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_holds_the_weights_and_the_positions_and_little_else(name):
    field = _field(name)
    # names, settings and report; 2 bytes for each point and axis, which say where data are
    places = 4 * len(POINTS) if name in POINTWISE else 0
    assert len(pickle.dumps(field)) <= 1.3 * _needed(field) + places + 4096


LARGE = {
    "picture": lambda: kf.fit(rng.random((200, 150, 3))),
    "float32 picture": lambda: kf.fit(rng.random((200, 150)).astype(np.float32)),
    "paper": lambda: kf.fit(rng.random((300, 200)), encoding=kf.Triangle(256, 2 / 256), ridge=1e-3),
    "line": lambda: kf.fit(rng.random(20_000)),
    "float32 line": lambda: kf.fit(rng.random(20_000).astype(np.float32)),
    "cells": lambda: kf.fit(rng.random(20_000).astype(np.float32), domain=[(3.3, 7.9)]),
    "falling": lambda: kf.fit(rng.random(20_000), axes=[np.linspace(4, 1, 20_000)]),
    "given line": lambda: kf.fit(
        rng.random(20_000), encoding=kf.Triangle(20_000, 2 / 20_000), ridge=0.0
    ),
    "around zero": lambda: kf.fit(
        rng.random(20_000).astype(np.float32), axes=[np.arange(-10_000, 10_000) * 0.001]
    ),
    "few features": lambda: kf.fit(
        rng.random(4_000), encoding=kf.Triangle(600, 2 / 600), ridge=1e-3
    ),
    "points": lambda: kf.fit_points(rng.random((5000, 2)), rng.random(5000), roughness=(0.0, 1e-3)),
    "mask": lambda: kf.fit(rng.random((200, 150)), mask=rng.random((200, 150)) < 0.5),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_pickle_holds_no_samples(name):
    field = LARGE[name]()
    # names of attributes, and where the data of points are: 4 bytes for each, in the plane
    other = 500 + (4 * 5000 if name == "points" else 0)
    assert len(pickle.dumps(field)) <= 1.3 * field.weights.nbytes + other


def _jittered(count):
    return np.arange(count) + np.random.default_rng(count).uniform(-0.3, 0.3, count)


UNEVEN = {
    "line": lambda dtype: kf.fit(rng.random(1500).astype(dtype), axes=[_jittered(1500)]),
    "falling": lambda dtype: kf.fit(rng.random(999).astype(dtype), axes=[_jittered(999)[::-1]]),
    "smooth": lambda dtype: kf.fit(
        np.sin(np.sort(_jittered(800)) / 20).astype(dtype), axes=[_jittered(800)]
    ),
    "smoothed": lambda dtype: kf.fit(
        rng.random(300).astype(dtype), axes=[_jittered(300)], noise=0.3
    ),
    "wider domain": lambda dtype: kf.fit(
        rng.random(900).astype(dtype), axes=[_jittered(900)], domain=[(-3.0, 910.0)]
    ),
    "channels": lambda dtype: kf.fit(rng.random((900, 3)).astype(dtype), axes=[_jittered(900)]),
    "one axis": lambda dtype: kf.fit(
        rng.random((900, 7)).astype(dtype), axes=[_jittered(900), np.arange(7.0)]
    ),
    "both axes": lambda dtype: kf.fit(
        rng.random((600, 9)).astype(dtype), axes=[_jittered(600), _jittered(9)[::-1]]
    ),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_a_pickle_holds_uneven_positions_once(name, tmp_path):
    # float32 and float64 in turn: positions are float64 in any case
    field = UNEVEN[name]((np.float32, np.float64)[list(UNEVEN).index(name) % 2])
    positions = sum(x.nbytes for x in field.axes if not is_even(x))
    most = 1.3 * (field.weights.nbytes + positions) + 4096
    field.save(tmp_path / "saved.field")
    for one in (field, kf.load(tmp_path / "saved.field")):
        data = pickle.dumps(one)
        assert len(data) <= most
        again = pickle.loads(data)
        _same(again, one)
        assert again.encoding == one.encoding
        for a, b in zip(again.encoding.embedders, one.encoding.embedders, strict=True):
            if isinstance(b, kf.BSpline):
                assert np.array_equal(a.knots, b.knots)
                assert a.is_even or not a.inner.flags.writeable
        assert len(pickle.dumps(again)) <= most
    assert again.report is None
    refitted = pickle.loads(pickle.dumps(field)).refit(field.on_grid())
    assert np.array_equal(refitted.weights, field.refit(field.on_grid()).weights)


@pytest.mark.parametrize(
    "x",
    [
        np.cumsum(np.where(np.arange(2000) % 5 == 4, 3.0, 1.0)),  # working days
        np.sort(np.random.default_rng(0).choice(10**5, 2000, replace=False)) / 100,
        np.delete(np.arange(2000) * 0.5 - 700, np.arange(0, 2000, 7)),  # an even axis with gaps
        np.arange(2000.0) ** 2,
    ],
    ids=["days", "decimals", "gaps", "squares"],
)
def test_positions_with_few_digits_take_few_bytes(x):
    assert isinstance(pack_axis(x), DecimalAxis)
    assert np.array_equal(unpack_axis(pickle.loads(pickle.dumps(pack_axis(x)))), x)
    field = kf.fit(rng.random(len(x)), axes=[x[::-1]], noise=0.0)
    data = pickle.dumps(field)
    # the cubic pieces of slopes from the data have two weights for each sample
    assert len(data) <= 1.3 * field.weights.nbytes + 4096
    _same(pickle.loads(data), field)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5])
def test_knots_travel_whatever_becomes_of_the_positions(degree):
    x = _jittered(50)[::-1].copy()
    frame = sample_frame(np.sort(x))
    spline = kf.BSpline.through(frame.unit(np.sort(x)), degree)
    spline.made_through(x, frame)
    assert pickle.loads(pickle.dumps(spline)) == spline
    assert copy.deepcopy(spline) == spline
    x[20] += 0.01  # the array of the caller, changed after the fit
    assert pickle.loads(pickle.dumps(spline)) == spline
    other = kf.BSpline.through(frame.unit(np.sort(x)) ** 1.1, degree)
    other.made_through(x, frame)  # not its positions
    assert pickle.loads(pickle.dumps(other)) == other


@pytest.mark.parametrize(
    "x",
    [
        np.arange(-10_000, 10_000) * 0.001,
        np.linspace(-1, 1, 1000),
        np.linspace(3, 1, 999),
        (np.arange(500) + 0.5) / 500 * 2 - 1,
        np.arange(100) / 7,
        np.linspace(0, 1, 300, dtype=np.float32).astype(float),
        np.sort(np.random.default_rng(1).random(400)),
        np.array([-1.0, 0.0, 1.0]) * 1e-300,
        -np.linspace(-1, 1, 11),
        -np.sort(np.random.default_rng(1).choice(10**6, 400, replace=False)) / 1e3,
        np.array([-1.0, -0.0, 7.0, 7.25, 9.0, 100.0]),
        np.array([0.0, 1.0, 3.0, 1e300]),
        np.array([2.0]),
    ],
    ids=str,
)
def test_axes_come_back_bit_for_bit(x):
    again = unpack_axis(pickle.loads(pickle.dumps(pack_axis(x))))
    assert again.dtype == x.dtype
    assert np.array_equal(again.view(np.int64), x.view(np.int64))


def test_a_masked_array_is_not_refitted_as_if_nothing_were_missing():
    field = kf.fit(PICTURE)
    holes = np.ma.masked_array(PICTURE, mask=PICTURE > 1)
    with pytest.raises(kf.InputError, match="missing"):
        field.refit(holes)


def test_statistics_travel():
    seen = _statistics()
    again = pickle.loads(pickle.dumps(seen))
    assert again.count == seen.count
    a, b = again.solve(roughness=(0.0, 1e-4)), seen.solve(roughness=(0.0, 1e-4))
    assert np.array_equal(a.weights, b.weights)
    _same(copy.deepcopy(seen).solve(roughness=(0.0, 1e-4)), b)


def test_networks_travel():
    torch = pytest.importorskip("torch")
    from kronfield.nn import CoordinateMLP, as_field, train

    torch.manual_seed(0)
    encodings = [
        kf.Concatenated(kf.Gaussian(8, 0.2), kf.Gaussian(8, 0.2)),
        kf.Kronecker(kf.Gaussian(8, 0.2), kf.Gaussian(8, 0.2)),
    ]
    for encoding in encodings:
        model = CoordinateMLP(encoding, depth=1, width=16, out=1)
        trained = train(model, PICTURE.astype(np.float32), epochs=2).field
        for field in (as_field(model, channels=False), trained):
            for other in (pickle.loads(pickle.dumps(field)), copy.deepcopy(field)):
                assert np.array_equal(other.on_grid((9, 7)), field.on_grid((9, 7)))
                assert str(other.report) == str(field.report)


def _evaluate(field):
    """What another process does with a field."""
    return field.on_grid((7,) * field.dimensions), str(field.report), field.report.residual


SPAWNED = (
    "slopes",
    "periodic",
    "low rank",
    "smoothed",
    "complex",
    "points",
    "statistics",
    "filled",
    "dates",
    "xarray",
)
SPAWNED += ("points, trend", "points, Huber's loss", *DUAL, "denoised", "denoised, gaps")


def test_a_spawned_process_gets_the_same():
    fields = [_field(name) for name in SPAWNED]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # A pool starts a worker that dies again and again: the time is limited.
        there = pool.map_async(_evaluate, fields).get(timeout=300)
    for field, (values, text, residual) in zip(fields, there, strict=True):
        assert np.array_equal(values, field.on_grid((7,) * field.dimensions))
        assert residual == field.report.residual
        assert text.splitlines()[0] == str(field.report).splitlines()[0]
