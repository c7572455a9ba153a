"""Every dtype of values through every way to a fit: the result is that of float64, to rounding."""

import functools
import warnings

import numpy as np
import pandas
import pytest
import xarray
from hypothesis import HealthCheck, given, settings, strategies as st

import kronfield as kf
from effort import examples

REALS = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "longdouble", ">i2", ">u4", ">f4", ">f8"),
]
COMPLEX = ["complex64", "complex128", ">c8", ">c16"]
# How far a result may be from that of float64, relative to the largest value.
ROUNDING = {"float32": 3e-5, "float64": 1e-10}


def _gaussians(shape):
    return kf.Kronecker(*(kf.Gaussian(n, 0.64 / n) for n in shape))


def _points(shape):
    rng = np.random.default_rng(1)
    return rng.random((shape[0] * shape[1], 2))


def _by_points(values, **options):
    flat = values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
    return kf.fit_points(_points(values.shape), flat, kf.Triangle(8, 2 / 8), **options)


def _by_statistics(values, **options):
    flat = values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
    seen = kf.Statistics(kf.Triangle(8, 2 / 8), domain=[(0, 1), (0, 1)])
    seen.add(_points(values.shape), flat)
    return seen.solve(**options)


def _masked(values):
    missing = np.zeros(values.shape[:2], dtype=bool)
    missing[::3, 1::4] = True
    return kf.fit(values, mask=missing)


def _uneven(values):
    axes = [np.sort(np.random.default_rng(n).random(n)) + np.arange(n) for n in values.shape[:2]]
    return kf.fit(values, axes=axes)


def _huber(values):
    """Points with a value in six that is far off; real and complex values weigh the same."""
    flat = values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
    return kf.fit_points(
        _points(values.shape), flat, kf.Triangle(6, 2 / 6), roughness=(0.0, 1e-2), loss="huber"
    )


def _dual(values):
    flat = values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])
    points = np.random.default_rng(1).random((len(flat), 5))
    return kf.fit_points(points, flat, form="dual", ridge=0.1)


def _array(values):
    """A DataArray with a coordinate on each axis; the last of three is that of channels."""
    names = ("y", "x", "c")[: values.ndim]
    coordinates = {name: 2.0 * np.arange(values.shape[i]) for i, name in enumerate(names[:2])}
    return kf.fit(xarray.DataArray(values, dims=names, coords=coordinates), roughness=(0.0, 0.3))


def _table(values):
    """Tables of points and of channels."""
    points = pandas.DataFrame(_points(values.shape), columns=["y", "x"])
    flat = values.reshape(len(points), -1)
    return kf.fit_points(
        points, pandas.DataFrame(flat), kf.Triangle(8, 2 / 8), roughness=(0.0, 1e-3)
    )


WAYS = {
    "interpolation": lambda v: kf.fit(v, encoding=_gaussians(v.shape[:2]), ridge=0.0),
    "identity": lambda v: kf.fit(
        v, encoding=kf.Kronecker(*(kf.Triangle(n, 2 / n) for n in v.shape[:2])), ridge=0.0
    ),
    "ridge": lambda v: kf.fit(v, encoding=_gaussians(v.shape[:2]), ridge=1e-2),
    "chosen ridge": lambda v: kf.fit(v, encoding=_gaussians(v.shape[:2])),
    "roughness": lambda v: kf.fit(v, encoding=_gaussians(v.shape[:2]), roughness=(0.1, 0.2)),
    "roughness, chosen splines": lambda v: kf.fit(v, roughness=(0.0, 0.3)),
    "gcv": lambda v: kf.fit(v, roughness="gcv"),
    "all chosen": kf.fit,
    "uneven": _uneven,
    "mask": _masked,
    "points": lambda v: _by_points(v, roughness=(0.0, 1e-3)),
    "points, ridge": lambda v: _by_points(v, ridge=1e-2),
    "points, chosen": _by_points,
    "statistics": lambda v: _by_statistics(v, roughness=(0.0, 1e-3)),
    "statistics, ridge": lambda v: _by_statistics(v, ridge=1e-2),
    "points, trend": lambda v: _by_points(v, roughness=(0.0, 1e-3), trend=1),
    "points, Huber's loss": _huber,
    "dual form": _dual,
    "noise removed": lambda v: kf.denoise(v, noise=2.0),
    "noise removed thoroughly": lambda v: kf.denoise(v, noise=2.0, thorough=True),
    "xarray": _array,
    "pandas": _table,
}


def _samples(dtype, shape, seed):
    """Whole numbers that every dtype holds exactly: a step, a slope and chance."""
    rng = np.random.default_rng(seed)
    x = np.add.outer(np.arange(shape[0]) > shape[0] // 2, np.arange(shape[1])).reshape(
        *shape[:2], *[1] * (len(shape) - 2)
    )
    high = 2 if np.dtype(dtype) == bool else 40
    values = (3 * x + rng.integers(0, 5, shape)) % high
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.integers(0, 9, shape)
    return values.astype(dtype)


@functools.cache
def _wanted(way, kind, shape, seed):
    """The fit of float64 or complex128: one for all dtypes that hold the same values."""
    values = _samples({"b": "bool", "c": "complex128", "r": "float64"}[kind], shape, seed)
    wide = values.astype(np.complex128 if kind == "c" else np.float64)
    field = WAYS[way](wide)
    at = tuple(
        np.linspace(low, high, 17 if len(field.domain) < 4 else 3) for low, high in field.domain
    )
    return wide, at, field.encoding, field.on_grid(at), field.report.residual


def _compare(way, dtype, shape, seed):
    values = _samples(dtype, shape, seed)
    before, kind = values.copy(), values.dtype.kind
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kf.RankWarning)
        wide, at, encoding, wanted, residual = _wanted(
            way, kind if kind in "bc" else "r", shape, seed
        )
        found = WAYS[way](values)
    grid = found.on_grid(at)
    assert np.array_equal(values, before)
    assert np.array_equal(values.astype(wide.dtype), wide)
    assert repr(found.encoding) == repr(encoding)
    bound = ROUNDING[grid.real.dtype.name] * float(np.abs(wide).max() or 1.0)
    np.testing.assert_allclose(grid, wanted, rtol=0, atol=bound)
    assert found.report.residual == pytest.approx(residual, abs=bound)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", REALS + COMPLEX)
def test_every_dtype_through_every_way(way, dtype):
    _compare(way, dtype, (16, 14), 0)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    way=st.sampled_from(sorted(WAYS)),
    dtype=st.sampled_from(REALS + COMPLEX),
    shape=st.tuples(st.integers(5, 20), st.integers(5, 20))
    | st.tuples(st.integers(5, 12), st.integers(5, 12), st.just(3)),
    seed=st.integers(0, 10**6),
)
def test_any_shape_and_dtype(way, dtype, shape, seed):
    _compare(way, dtype, shape, seed)


def test_the_integers_that_came_out_wrong():
    y = np.arange(40) % 7 + 10
    found = kf.fit(y, encoding=kf.Gaussian(40, 0.02), ridge=1e-3).on_grid()
    np.testing.assert_allclose(found[:3], [10, 11, 12], atol=0.05)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_noisy_picture_of_bytes_gets_closer_to_the_truth(channels):
    rng = np.random.default_rng(0)
    x, y = np.mgrid[0:96, 0:96] / 96
    truth = 128 + 60 * np.sin(5 * x)[..., None] * np.cos(4 * y)[..., None] * np.ones(channels)
    noisy = np.clip(np.round(truth + rng.normal(0, 20, truth.shape)), 0, 255).astype(np.uint8)
    field = kf.fit(noisy, channels=True)
    rms = np.sqrt(np.mean((field.on_grid() - truth) ** 2))
    noise = np.sqrt(np.mean((noisy - truth) ** 2))
    assert any(field.report.roughness)
    assert rms < 0.4 * noise


def test_slopes_from_the_data_of_integers():
    steps = np.repeat(np.arange(8), 6)[:, None] * 10 + np.repeat(np.arange(6), 7)[None] * 5
    for dtype in ("uint8", "int64", ">i2", "float32"):
        field = kf.fit(steps.astype(dtype))
        assert field.report.refined
        np.testing.assert_allclose(field.on_grid(), steps, atol=1e-4)


@pytest.mark.parametrize("size", [1e-300, 1e-45, 1e-30, 1.0, 1e30, 1e45, 1e300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"roughness": (0.0, 1e-4)}, {"ridge": 1e-3}])
def test_weights_of_any_size(size, dtype, options):
    rng = np.random.default_rng(0)
    points = rng.random((300, 2))
    values = (np.sin(4 * points[:, 0]) + points[:, 1]).astype(dtype)
    weights = rng.uniform(0.5, 2.0, 300)
    scaled = {**options, "ridge": options["ridge"] * size} if "ridge" in options else options
    hats = kf.Triangle(12, 2 / 12)
    wanted = kf.fit_points(points, values, hats, weights=weights, **options)
    found = kf.fit_points(points, values, hats, weights=size * weights, **scaled)
    np.testing.assert_allclose(found.on_grid(), wanted.on_grid(), rtol=0, atol=1e-4)
    assert found.report.residual == pytest.approx(wanted.report.residual, rel=1e-3, abs=1e-6)
    if "ridge" in options:
        assert found.report.ridge == pytest.approx(scaled["ridge"])
    # residuals of float32 are differences of its sums
    at, close = points[:5], 2e-2 if dtype == np.float32 else 1e-3
    np.testing.assert_allclose(found.standard_error(at), wanted.standard_error(at), rtol=close)
    noisy = found.standard_error(at, noise=0.1 * np.sqrt(size))
    np.testing.assert_allclose(noisy, wanted.standard_error(at, noise=0.1), rtol=1e-3)
    seen = kf.Statistics(hats, domain=[(0, 1), (0, 1)])
    seen.add(points, values, size * weights)
    plain = kf.Statistics(hats, domain=[(0, 1), (0, 1)])
    plain.add(points, values, weights)
    a, b = seen.solve(**scaled), plain.solve(**options)
    np.testing.assert_allclose(a.on_grid(), b.on_grid(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_statistics_of_values_of_any_size(size):
    points = np.random.default_rng(0).random((300, 2))
    fields = []
    for scale in (1.0, size):
        seen = kf.Statistics(kf.Triangle(12, 2 / 12), domain=[(0, 1), (0, 1)])
        seen.add(points, (scale * np.sin(4 * points[:, 0])).astype(np.float32))
        fields.append(seen.solve(roughness=(0.0, 1e-5)))
    plain, scaled = fields
    np.testing.assert_allclose(scaled(points) / size, plain(points), atol=1e-4)
    assert scaled.report.residual / size == pytest.approx(plain.report.residual, rel=1e-2)


@pytest.mark.parametrize(("weight", "value"), [(1e-300, 1e-30), (1e300, 1e30)])
def test_statistics_refuse_what_float64_cannot_hold(weight, value):
    points = np.random.default_rng(0).random((50, 2))
    seen = kf.Statistics(kf.Triangle(6, 2 / 6), domain=[(0, 1), (0, 1)])
    with pytest.raises(kf.InputError, match="weights"):
        seen.add(points, np.full(50, value, dtype=np.float32), np.full(50, weight))
    assert seen.count == 0


def test_points_close_together_in_a_wide_domain():
    points = np.stack([np.linspace(0, 1, 20), np.linspace(0, 1e-80, 20)], axis=1)
    field = kf.fit_points(
        points, np.arange(20.0), kf.Triangle(6, 2 / 6), domain=[(0, 1), (0, 1)], ridge=1e-3
    )
    assert np.isfinite(field.on_grid()).all()


@pytest.mark.parametrize("unit", [1e-150, 1e-100, 1e-61, 1e61, 1e100, 1e150])
def test_axes_in_hopeless_units_are_refused_in_words(unit):
    x = np.arange(30.0) * unit / 29
    y = np.sin(np.arange(30.0))
    for call in (
        lambda: kf.fit(y, axes=[x]),
        lambda: kf.fit(y, axes=[x], roughness="gcv"),
        lambda: kf.fit(y, domain=[(0, unit)]),
        lambda: kf.fit_points(x[:, None], y),
        lambda: kf.Statistics(kf.Triangle(8, 2 / 8), domain=[(0, unit)]),
    ):
        with pytest.raises(kf.InputError, match="length"):
            call()


@pytest.mark.parametrize("unit", [1e-60, 1e-30, 1e30, 1e60])
@pytest.mark.parametrize(
    "options", [{}, {"roughness": "gcv"}, {"encoding": kf.Gaussian(30, 0.64 / 30)}]
)
def test_the_unit_of_length_does_not_matter(unit, options):
    rng = np.random.default_rng(0)
    y = np.sin(np.arange(30) / 4) + 0.1 * rng.standard_normal(30)
    wanted = kf.fit(y, axes=[np.linspace(0, 1, 30)], **options)
    found = kf.fit(y, axes=[np.linspace(0, 1, 30) * unit], **options)
    # rounding may decide between two ridges that are as good
    np.testing.assert_allclose(found.on_grid((50,)), wanted.on_grid((50,)), atol=1e-4)
    np.testing.assert_allclose(
        found.on_grid((50,), (1,)) * unit, wanted.on_grid((50,), (1,)), atol=1e-2
    )


def test_derivatives_that_the_dtype_cannot_hold_are_refused():
    x = np.linspace(0, 1e-30, 20)
    field = kf.fit(np.sin(np.arange(20.0)).astype(np.float32), axes=[x])
    assert np.isfinite(field.on_grid((30,), (1,))).all()
    with pytest.raises(kf.InputError, match="derivative"):
        field.on_grid((30,), (2,))


def test_positions_that_nearly_coincide_do_not_overflow():
    x = np.array([0.0, 1e-320, *np.linspace(0.1, 1, 20)])
    with pytest.raises(kf.InputError, match="rise") if x[0] == x[1] else warnings.catch_warnings():
        assert np.isfinite(kf.fit(np.arange(22.0), axes=[x]).on_grid((40,))).all()


def test_a_given_ridge_is_not_cut_off():
    # wide Gaussians: most singular values lie below the default cut-off
    n, emb, ridge = 40, kf.Gaussian(40, 0.08), 1e-9
    y = np.random.default_rng(0).standard_normal(n)
    field = kf.fit(y, axes=[np.arange(n) / n], domain=[(0, 1)], encoding=emb, ridge=ridge)
    P = np.asarray(emb(np.arange(n) / n))
    wanted = P @ np.linalg.solve(P.T @ P + ridge * np.eye(n), P.T @ y)
    np.testing.assert_allclose(field.on_grid(), wanted, atol=1e-6)
    assert field.report.ranks[0] > kf.numerical_rank(P, 1.5e-8)
    cut = kf.fit(y, axes=[np.arange(n) / n], domain=[(0, 1)], encoding=emb, ridge=1.0, rcond=1e-3)
    assert cut.report.ranks[0] == kf.numerical_rank(P, 1e-3)
    # what is left out is larger than the ridge
    with pytest.warns(kf.RankWarning, match="effective rank"):
        kf.fit(y, axes=[np.arange(n) / n], domain=[(0, 1)], encoding=emb, ridge=1e-12, rcond=1e-3)
