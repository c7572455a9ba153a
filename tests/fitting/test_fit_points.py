"""`fit_points`, end to end; masks in `fit`; standard errors."""

import gc
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from skimage import data

import kronfield as kf
from effort import examples
from kronfield.fitting.point_grids import find_lattice
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.points.normal import NormalEquations


def wavy(points):
    return np.sin(5 * points[:, 0]) * np.cos(4 * points[:, 1]) + points[:, 0]


def square(P, seed=0):
    return np.random.default_rng(seed).random((P, 2))


# Accuracy and inputs
# ------------------------------------------------------------------------------------------


def test_smooth_data_is_met_far_better_than_by_thin_plates():
    from scipy.interpolate import RBFInterpolator

    points, queries = square(1000), square(500, 1) * 0.96 + 0.02
    field = kf.fit_points(points, wavy(points), domain=[(0, 1), (0, 1)])
    error = np.sqrt(np.mean((field(queries) - wavy(queries)) ** 2))
    peer = np.sqrt(np.mean((RBFInterpolator(points, wavy(points))(queries) - wavy(queries)) ** 2))
    assert error < peer / 2
    assert error < 2e-4


def test_noise_is_smoothed():
    points, queries = square(3000), square(500, 1)
    noisy = wavy(points) + 0.3 * np.random.default_rng(2).standard_normal(3000)
    field = kf.fit_points(points, noisy, domain=[(0, 1), (0, 1)])
    assert np.sqrt(np.mean((field(queries) - wavy(queries)) ** 2)) < 0.06
    assert field.report.residual == pytest.approx(0.3, rel=0.06)
    assert 20 < field.report.degrees_of_freedom < 300


def test_random_pixels_of_a_photograph():
    from scipy.interpolate import LinearNDInterpolator

    image = data.astronaut()[100:228, 150:278].astype(np.float32) / 255
    given = np.random.default_rng(0).random(image.shape[:2]) < 0.25
    given[[0, 0, -1, -1], [0, -1, 0, -1]] = True
    points = np.argwhere(given)
    field = kf.fit_points(points, image[given])
    assert field.dtype == np.float32
    ours = field.on_grid()
    linear = LinearNDInterpolator(points, image[given])(*np.indices(given.shape))

    def psnr(picture):
        return -10 * np.log10(np.nanmean((np.clip(picture, 0, 1) - image)[~given] ** 2))

    assert psnr(ours) > psnr(linear) + 0.25
    assert field.domain == ((-0.5, 127.5), (-0.5, 127.5))  # pixels are cells


def test_weights_count():
    """A point of weight 2 is equal to two points; a point of weight 0 is ignored."""
    points, hats = square(200), kf.Triangle(12, 2 / 12)
    values = wavy(points)
    weights = np.where(np.arange(200) < 50, 2.0, 1.0)
    settings = {"domain": [(0, 1), (0, 1)], "roughness": (0.0, 1e-4), "tolerance": 1e-12}
    weighted = kf.fit_points(points, values, hats, weights=weights, **settings)
    twice = kf.fit_points(
        np.concatenate([points, points[:50]]),
        np.concatenate([values, values[:50]]),
        hats,
        **settings,
    )
    np.testing.assert_allclose(weighted.weights, twice.weights, atol=1e-9)
    none = kf.fit_points(points, values, hats, weights=weights - 1, **settings)
    some = kf.fit_points(points[:50], values[:50], hats, **settings)
    np.testing.assert_allclose(none.weights, some.weights, atol=1e-8)


def test_missing_values_are_dropped_and_counted():
    points = square(100)
    values = np.stack([wavy(points), points[:, 1]], axis=1)
    holes = values.copy()
    holes[3, 0] = holes[7, 1] = np.nan
    kept = np.delete(np.arange(100), [3, 7])
    args = {"encoding": kf.Triangle(8, 2 / 8), "domain": [(0, 1)] * 2, "roughness": (0.0, 1e-3)}
    field = kf.fit_points(points, holes, **args)
    assert field.report.dropped == 2
    assert field.report.points == 98
    np.testing.assert_array_equal(
        field.weights, kf.fit_points(points[kept], values[kept], **args).weights
    )
    masked = np.ma.array(values, mask=np.isnan(holes))
    np.testing.assert_array_equal(field.weights, kf.fit_points(points, masked, **args).weights)
    assert "2 more had no value" in str(field.report)


def test_duplicates_and_clusters():
    points = np.concatenate([np.full((500, 2), 0.3), 0.31 + 1e-9 * square(500), square(50, 3)])
    field = kf.fit_points(points, wavy(points), domain=[(0, 1), (0, 1)])
    assert np.all(np.isfinite(field.weights))
    assert abs(field(np.array([[0.3, 0.3]]))[0] - wavy(np.array([[0.3, 0.3]]))[0]) < 0.05


def test_where_no_data_falls_the_penalty_decides_smoothly():
    """A penalty of second derivatives continues a plane into an empty quarter of the domain."""
    points = square(600)
    points = points[(points[:, 0] < 0.5) | (points[:, 1] < 0.5)]
    plane = 2 * points[:, 0] - points[:, 1]
    field = kf.fit_points(
        points, plane, kf.Triangle(40, 2 / 40), domain=[(0, 1.0256)] * 2, roughness=(0.0, 1e-4)
    )
    queries = 0.6 + 0.4 * square(50, 1)
    np.testing.assert_allclose(field(queries), 2 * queries[:, 0] - queries[:, 1], atol=0.01)


def test_one_point_and_few_points():
    assert kf.fit_points(np.array([[3.0, 4.0]]), np.array([7.0]))(np.array([[3.2, 4.1]]))[
        0
    ] == pytest.approx(7.0)
    few = kf.fit_points(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    assert few(np.array([[0.5], [1.5]])) == pytest.approx([2.0, 4.0], abs=0.05)
    # many planes fit these points
    line = kf.fit_points(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), np.arange(3.0))
    assert np.all(np.isfinite(line.on_grid((5, 5))))
    constant = kf.fit_points(square(50), np.full(50, 4.0))
    np.testing.assert_allclose(constant.on_grid((7, 7)), 4.0, atol=1e-6)


def test_one_axis_on_which_all_points_agree():
    points = np.stack([np.linspace(0, 1, 40), np.full(40, 3.0)], axis=1)
    field = kf.fit_points(points, points[:, 0])
    assert field(np.array([[0.5, 3.0]]))[0] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_any_number_of_dimensions(D):
    points = np.random.default_rng(D).random((300, D)) * 10 ** np.arange(D)
    values = points @ (1.0 / 10 ** np.arange(D)) + 1
    field = kf.fit_points(points, values)
    inside = (0.2 + 0.6 * np.random.default_rng(9).random((20, D))) * 10 ** np.arange(D)
    np.testing.assert_allclose(field(inside), inside @ (1.0 / 10 ** np.arange(D)) + 1, atol=0.03)


def test_complex_values_and_dtypes():
    points = square(300)
    values = wavy(points) + 1j * points[:, 1]
    field = kf.fit_points(points, values, kf.Triangle(9, 2 / 9), roughness=(0.0, 1e-4))
    assert field.dtype == np.complex128
    real = kf.fit_points(points, values.real, kf.Triangle(9, 2 / 9), roughness=(0.0, 1e-4))
    np.testing.assert_allclose(field.weights.real, real.weights, atol=1e-3)
    for dtype, expected in (
        (np.float32, np.float32),
        (np.uint8, np.float32),
        (np.int64, np.float64),
    ):
        assert kf.fit_points(points[:60], (9 * points[:60]).astype(dtype)).dtype == expected
    single = kf.fit_points(
        points, wavy(points).astype(np.float32), kf.Triangle(9, 2 / 9), roughness=(0.0, 1e-4)
    )
    np.testing.assert_allclose(single.weights, real.weights, atol=1e-3)


@given(st.floats(-3, 3), st.floats(-100, 100), st.floats(-3, 3))
@settings(max_examples=examples(8), deadline=None)
def test_units_do_not_matter(decade, offset, value_decade):
    points = square(150)
    values = wavy(points)
    plain = kf.fit_points(points, values)
    moved = kf.fit_points(points * 10**decade + offset, values * 10**value_decade)
    queries = 0.1 + 0.8 * square(20, 1)
    got = moved(queries * 10**decade + offset) / 10**value_decade
    np.testing.assert_allclose(got, plain(queries), atol=2e-3)


def test_progress_is_called():
    calls = []
    points = square(20_000)
    kf.fit_points(
        points,
        wavy(points),
        kf.Triangle(180, 2 / 180),
        roughness=(0.0, 1e-9),
        progress=lambda *a: calls.append(a),
    )
    assert [k for k, _ in calls] == list(range(len(calls)))
    assert calls[-1][1] < calls[0][1]


def test_the_same_seed_gives_the_same_bits():
    points = square(500)
    a, b = (kf.fit_points(points, wavy(points), seed=3) for _ in range(2))
    np.testing.assert_array_equal(a.weights, b.weights)


def test_refit_and_saving(tmp_path):
    points = square(300)
    args = {
        "encoding": kf.TensionSpline(14, 1.0, padding=1),
        "domain": [(0, 1)] * 2,
        "roughness": (0.0, 1e-5),
    }
    field = kf.fit_points(points, wavy(points), **args)
    again = field.refit(points[:, 0])
    np.testing.assert_allclose(
        again.weights, kf.fit_points(points, points[:, 0], **args).weights, atol=1e-9
    )
    field.save(tmp_path / "points.field")
    loaded = kf.load(tmp_path / "points.field")
    np.testing.assert_array_equal(loaded(points), field(points))
    with pytest.raises(kf.InputError, match="standard_error"):
        loaded.standard_error(points)


def test_report_is_plain_data():
    import json

    points = square(200)
    report = kf.fit_points(points, wavy(points)).report
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["points"] == 200
    assert plain["candidates"]
    assert "held out" in str(report)


# Ways to make rows
# ------------------------------------------------------------------------------------------


def test_blending_approaches_exact_rows():
    """The difference decreases with the spacing of the virtual grid, that of the features."""
    points = square(800)
    values = wavy(points)
    apart = []
    for K in (14, 36):
        emb = kf.Gaussian(K + 8, 0.06, padding=4)
        options = {"domain": [(0, 1)] * 2, "ridge": 1e-3, "tolerance": 1e-9}
        pair = [
            kf.fit_points(points, values, emb, rows=rows, **options)(points)
            for rows in ("exact", "blending")
        ]
        apart.append(np.sqrt(np.mean((pair[0] - pair[1]) ** 2)))
    assert apart[1] < apart[0] / 3
    assert apart[1] < 0.015


NOT_LOCAL = [kf.RandomFourier(40, 2.0, seed=0), kf.LinearFourier(24, 2.5), kf.Gaussian(30, 0.3)]


@pytest.mark.parametrize("emb", NOT_LOCAL, ids=repr)
def test_features_that_are_not_local(emb):
    points, queries = square(600), 0.05 + 0.9 * square(50, 1)
    field = kf.fit_points(points, wavy(points), emb, domain=[(0, 1)] * 2, rows="blending")
    assert "blending" in field.report.rows
    assert np.sqrt(np.mean((field(queries) - wavy(queries)) ** 2)) < 0.05
    smooth = kf.fit_points(
        points, wavy(points), emb, domain=[(0, 1)] * 2, roughness=(0.0, 1e-7), rows="blending"
    )
    assert np.sqrt(np.mean((smooth(queries) - wavy(queries)) ** 2)) < 0.05


def test_roughness_means_what_it_means_on_grids():
    """With all pixels as points and splines on the pixels, both functions smooth equally."""
    x = np.arange(40) / 40
    image = np.sin(9 * x)[:, None] * np.cos(7 * x) + 0.3 * np.random.default_rng(0).standard_normal(
        (40, 40)
    )
    emb = kf.TensionSpline(44, 0.05, padding=2)
    for roughness in ((0.0, 1e-5), (1e-3, 0.0)):
        grid = kf.fit(
            image, encoding=kf.Kronecker(emb, emb), roughness=roughness, domain=[(0, 1)] * 2
        ).on_grid()
        points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2) + 0.5 / 40
        frame = [(0.5 / 40, 1 + 0.5 / 40)] * 2
        scattered = kf.fit_points(points, image.ravel(), emb, domain=frame, roughness=roughness)(
            points
        ).reshape(40, 40)
        assert np.std(grid - image) > 0.2
        assert np.std(scattered - grid) < 0.15 * np.std(grid - image)


# Masks
# ------------------------------------------------------------------------------------------


def test_masks_on_grids():
    x, y = np.linspace(0, 2, 30), np.linspace(5, 1, 40)  # the second decreases
    truth = np.sin(2 * x)[:, None] * np.cos(y)
    missing = np.random.default_rng(0).random(truth.shape) < 0.4
    field = kf.fit(np.where(missing, np.nan, truth), axes=[x, y], mask=missing)
    assert field.report.dropped == missing.sum()
    filled = field.on_grid()
    assert filled.shape == truth.shape
    assert np.abs(filled - truth)[missing].max() < 0.03
    assert np.abs(filled - truth)[~missing].max() < 0.01
    assert field.domain == kf.fit(truth, axes=[x, y]).domain
    masked = np.ma.array(truth, mask=missing)
    np.testing.assert_array_equal(kf.fit(masked, axes=[x, y], mask=masked.mask).on_grid(), filled)
    with pytest.raises(kf.InputError, match=r"masked array.*mask=values\.mask.*fit_points"):
        kf.fit(masked, axes=[x, y])
    uneven = kf.fit(np.where(missing, np.nan, truth), axes=[x**1.5, y], mask=missing)
    assert np.abs(uneven.on_grid() - truth)[missing].max() < 0.05


def test_masks_with_channels_and_encoding():
    image = np.stack([np.add.outer(np.arange(20.0), np.arange(25.0)), np.ones((20, 25))], axis=-1)
    missing = np.zeros((20, 25), dtype=bool)
    missing[5:9, 6:12] = True
    for mask in (missing, np.repeat(missing[..., None], 2, axis=-1)):
        field = kf.fit(image, mask=mask, channels=True, roughness=(0.0, 1e-3))
        np.testing.assert_allclose(field.on_grid(), image, atol=0.02)
    encoding = kf.Kronecker(
        kf.TensionSpline(24, 1.0, padding=2), kf.TensionSpline(29, 1.0, padding=2)
    )
    field = kf.fit(image, encoding=encoding, mask=missing, roughness=(0.0, 1e-6))
    assert field.encoding == encoding
    np.testing.assert_allclose(field.on_grid(), image, atol=0.02)
    whole = kf.fit(image, mask=np.zeros((20, 25), dtype=bool))
    # without missing samples it is an ordinary fit
    np.testing.assert_array_equal(whole.weights, kf.fit(image).weights)


def test_a_hole_in_a_photograph_is_filled_smoothly():
    image = data.astronaut()[:120, :120].astype(np.float32) / 255
    missing = np.zeros((120, 120), dtype=bool)
    missing[40:70, 50:80] = True
    filled = kf.fit(image, mask=missing).on_grid()
    assert np.all(np.isfinite(filled))
    assert -0.2 < filled[missing].min() <= filled[missing].max() < 1.2
    rim = np.abs(filled[40, 50:80] - filled[39, 50:80]).mean()
    assert rim < 3 * np.abs(np.diff(image[:, 50:80], axis=0)).mean()


# Standard errors
# ------------------------------------------------------------------------------------------


def coverage(P, noise, settings, queries=400, seeds=4):
    """Return the fraction of queries with the truth within two standard errors, over all seeds."""
    inside = []
    for seed in range(seeds):
        points, at = square(P, seed), 0.03 + 0.94 * square(queries, 100 + seed)
        values = wavy(points) + noise * np.random.default_rng(seed).standard_normal(P)
        field = kf.fit_points(points, values, domain=[(0, 1)] * 2, **settings)
        error = field.standard_error(at)
        assert error.shape == (queries,)
        inside.append(np.mean(np.abs(field(at) - wavy(at)) < 2 * error))
    return np.mean(inside)


def test_coverage_where_exact():
    assert 0.90 < coverage(400, 0.2, {"encoding": kf.TensionSpline(20, 0.05, padding=1)}) < 0.995


def test_coverage_where_stochastic():
    """Two standard errors cover 95.4 % of truths that are drawn from the prior of the penalty."""
    from scipy.sparse.linalg import spsolve

    from kronfield.solvers.points.direct import sparse_penalty
    from kronfield.solvers.points.penalty import DifferencePenalty

    K, P, noise, roughness, ridge = 56, 2000, 0.3, 1e-6, 0.02
    emb, box = kf.Triangle(K, 2 / K), [(0, 1)] * 2
    # The fit minimises sum r^2 + ridge |w|^2 + P roughness mean |f''|^2. The covariance of its
    # prior is noise^2 times the inverse of the matrix of the penalty.
    prior = DifferencePenalty((K, K), (1 / K, 1 / K), 0.0, P * roughness / K**2, ridge)
    matrix = sparse_penalty(prior).tocsc()
    inside = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        weights = noise * spsolve(matrix, prior.sample(rng, 1).ravel())
        points, at = rng.random((P, 2)), 0.02 + 0.94 * rng.random((300, 2))
        truth, there = (kf.Kronecker(emb, emb)(x) @ weights for x in (points, at))
        values = truth + noise * rng.standard_normal(P)
        field = kf.fit_points(
            points, values, emb, domain=box, roughness=(0.0, roughness), ridge=ridge
        )
        error = field.standard_error(at, samples=60)
        assert field._uncertainty.noise[0] == pytest.approx(noise, rel=0.1)
        inside.append(np.mean(np.abs(field(at) - there) < 2 * error))
    assert 0.91 < np.mean(inside) < 0.985


def test_exact_and_stochastic_standard_errors_agree():
    points, at = square(300), square(100, 1)
    noisy = wavy(points) + 0.2 * np.random.default_rng(0).standard_normal(300)
    field = kf.fit_points(
        points, noisy, kf.Triangle(16, 2 / 16), domain=[(0, 1)] * 2, roughness=(0.0, 1e-4)
    )
    exact = field.standard_error(at, noise=0.2)
    freedom = field.report.degrees_of_freedom
    other = kf.fit_points(
        points,
        noisy,
        kf.Triangle(16, 2 / 16),
        domain=[(0, 1)] * 2,
        roughness=(0.0, 1e-4),
        settings=changed(DEFAULT, "points", "exact_errors", 0),
    )
    drawn = other.standard_error(at, noise=0.2, samples=600)
    np.testing.assert_allclose(drawn, exact, rtol=0.15)
    assert np.mean(drawn / exact) == pytest.approx(1.0, abs=0.03)
    np.testing.assert_array_equal(drawn, other.standard_error(at, noise=0.2, samples=600))  # seeded
    assert other.report.degrees_of_freedom == pytest.approx(freedom, rel=0.1)


def test_standard_error_against_the_dense_formula():
    points, at, emb = square(80), square(10, 1), kf.Triangle(6, 2 / 6)
    field = kf.fit_points(points, wavy(points), emb, domain=[(0, 1)] * 2, ridge=0.5)
    B, Q = kf.Kronecker(emb, emb)(points), kf.Kronecker(emb, emb)(at)
    A = B.T @ B + 0.5 * np.eye(36)
    expected = 0.1 * np.sqrt(np.sum(Q * np.linalg.solve(A, Q.T).T, axis=1))
    np.testing.assert_allclose(field.standard_error(at, noise=0.1), expected, rtol=1e-9)
    assert field.report.degrees_of_freedom == pytest.approx(np.trace(np.linalg.solve(A, B.T @ B)))


def test_standard_error_of_channels_and_blended_fits():
    points = square(400)
    values = np.stack([wavy(points), 2 * wavy(points)], axis=1) + 0.1 * np.random.default_rng(
        0
    ).standard_normal((400, 2))
    field = kf.fit_points(
        points, values, kf.Triangle(10, 2 / 10), domain=[(0, 1)] * 2, roughness=(0.0, 1e-5)
    )
    assert field.standard_error(points[:5]).shape == (5, 2)
    blended = kf.fit_points(points, values, kf.Gaussian(12, 0.2), domain=[(0, 1)] * 2, ridge=0.1)
    error = blended.standard_error(points[:50], noise=0.1)
    assert error.shape == (50, 2)
    B = kf.Kronecker(kf.Gaussian(12, 0.2), kf.Gaussian(12, 0.2))(points)
    A = B.T @ B + 0.1 * np.eye(144)
    expected = 0.1 * np.sqrt(np.sum(B[:50] * np.linalg.solve(A, B[:50].T).T, axis=1))
    np.testing.assert_allclose(error[:, 0], expected, rtol=0.4)


# Lattices
# ------------------------------------------------------------------------------------------


def test_lattices_are_found():
    i = np.random.default_rng(0).integers(0, 50, (400, 2))
    lattice = find_lattice(i * [0.1, 2.5] + [3.0, -7.0], DEFAULT.points)
    assert [axis.count for axis in lattice] == [50, 50]
    assert lattice[0].step == pytest.approx(0.1)
    assert find_lattice(square(400), DEFAULT.points) is None
    far = np.array([[0.0], [1e-9], [1.0]])  # 10^9 nodes for three points
    assert find_lattice(far, DEFAULT.points) is None


def test_a_lattice_and_a_larger_domain():
    i = np.argwhere(np.random.default_rng(0).random((30, 30)) < 0.5)
    field = kf.fit_points(
        i, i[:, 0] + 2.0 * i[:, 1], domain=[(-5, 40), (-0.5, 29.5)], roughness=(0.0, 1e-3)
    )
    assert field.domain == ((-5.0, 40.0), (-0.5, 29.5))
    np.testing.assert_allclose(field(np.array([[-4.0, 3.3], [39.0, 20.0]])), [2.6, 79.0], atol=0.3)


WIDE = kf.Gaussian(9, 0.5)

# Bad input and size
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"points": np.ones(5), "values": np.ones(5)}, r"shape \(P, D\)"),
        ({"points": np.ones((5, 2)), "values": np.ones(4)}, "one row per point"),
        ({"points": np.ones((5, 2)), "values": np.ones((5, 2, 2))}, "one row per point"),
        ({"points": np.full((5, 2), np.nan), "values": np.ones(5)}, "points"),
        ({"points": np.ones((0, 2)), "values": np.ones(0)}, "at least one point"),
        ({"points": np.ones((5, 2)), "values": np.full(5, np.nan)}, "5 missing of 5"),
        ({"points": np.ones((5, 2)), "values": np.full(5, np.inf)}, "inf"),
        ({"points": np.ones((5, 2)), "values": ["a"] * 5}, "numbers"),
        ({"weights": -np.ones(9)}, "zero or positive"),
        ({"weights": np.ones(4)}, "weights"),
        ({"weights": np.zeros(9)}, "at least one value with a positive weight"),
        ({"domain": [(0, 1)]}, "domain"),
        ({"domain": [(0, 0.1), (0, 1)]}, "Widen the domain"),
        ({"ridge": -1.0}, "ridge"),
        ({"roughness": 3.0}, "roughness"),
        ({"roughness": (1.0, -1.0)}, "roughness"),
        ({"rows": "none"}, "rows"),
        ({"encoding": kf.RandomFourier(4, 1.0, seed=0), "rows": "exact"}, "local"),
        (
            {
                "encoding": kf.Gaussian(9, 0.5),
                "rows": "blending",
                "ridge": 1.0,
                "roughness": (1.0, 0.0),
            },
            "at most one of the two above 0",
        ),
        ({"encoding": 3}, "encoding"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"iterations": 0}, "iterations"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input(arguments, words):
    usual = {"points": square(9), "values": np.arange(9.0)}
    with pytest.raises(kf.InputError, match=words):
        kf.fit_points(**{**usual, **arguments})


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros((3, 3), dtype=bool), "shape"),
        (np.zeros((5, 6)), "bool"),
        (np.ones((5, 6), dtype=bool), "True at all of 30"),
    ],
)
def test_bad_masks(mask, words):
    with pytest.raises(kf.InputError, match=words):
        kf.fit(np.arange(30.0).reshape(5, 6), mask=mask)


def test_not_converging_says_what_to_do():
    points = square(30_000)
    with pytest.raises(kf.ConvergenceError, match="tolerance"):
        kf.fit_points(
            points, wavy(points), kf.Triangle(200, 2 / 200), roughness=(0.0, 1e-12), iterations=2
        )


def test_standard_errors_of_a_fit_that_interpolates():
    """Residuals show no noise, but the roughness shows how far the values are off in between."""
    points = square(50)
    field = kf.fit_points(points, wavy(points), kf.Triangle(20, 2 / 20), roughness=(0.0, 1e-15))
    assert field.standard_error(points).max() < 1e-5
    between = np.random.default_rng(3).uniform(0.1, 0.9, (300, 2))
    away, error = np.abs(field(between) - wavy(between)), field.standard_error(between)
    assert np.mean(away < 2 * error) > 0.9
    assert np.sqrt(np.mean(error**2)) < 5 * np.sqrt(np.mean(away**2))
    assert np.all(field.standard_error(points, noise=0.1) > 0)


def test_memory_is_linear_in_points_and_unknowns():
    points = square(40_000)
    values = wavy(points).astype(np.float32)
    # import all modules before memory is traced
    kf.fit_points(points[:100], values[:100], kf.Triangle(8, 2 / 8), roughness=(0.0, 1e-9))
    tracemalloc.start()
    kf.fit_points(points, values, kf.Triangle(256, 2 / 256), roughness=(0.0, 1e-9))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # 40,000 x 65,536 numbers would be 10 GB


def test_gaps_are_filled_to_the_end():
    """A solver that stops as soon as it fits the known samples leaves a hole half filled."""
    from skimage import data

    picture = data.astronaut()[:160, :160].astype(np.float32) / 255
    missing = np.random.default_rng(0).random((160, 160)) < 0.05
    missing[60:90, 40:120] = True
    first, second = kf.fit(picture, mask=missing).report.roughness
    field = kf.fit(picture, mask=missing, roughness=(first, second))  # of linear systems alone
    where = np.argwhere(~missing).astype(float)
    box = [(-0.5, 159.5)] * 2
    tight = kf.fit_points(
        where, picture[~missing], domain=box, roughness=(first, second), tolerance=1e-6
    )
    assert np.abs(field.on_grid() - tight.on_grid([np.arange(160.0)] * 2))[missing].max() < 0.02


def test_a_field_does_not_keep_the_band_of_its_equations():
    points = square(200)
    encoding = kf.Kronecker(kf.Triangle(12, 2 / 12), kf.Triangle(12, 2 / 12))

    def kept():
        gc.collect()
        return [one for one in gc.get_objects() if type(one) is NormalEquations]

    before = kept()  # of other tests
    field = kf.fit_points(points, wavy(points), encoding, roughness=(0.0, 1e-3))
    assert field.report.method == "factorisation"
    own = [one for one in kept() if not any(one is other for other in before)]
    assert ["data_band" in vars(one) for one in own] == [False]
    assert field.standard_error(points[:2]).shape == (2,)


@pytest.mark.parametrize("level", [1e3, 1e9])
def test_values_far_from_zero(level):
    """A constant is as good as subtracted: errors and standard errors are those without it."""
    rng = np.random.default_rng(0)
    points, at = rng.random((300, 1)), np.linspace(0.05, 0.95, 200)[:, None]
    noisy = np.sin(4 * points[:, 0]) + 0.1 * rng.standard_normal(300)
    field = kf.fit_points(points, np.stack([noisy + level, 2 * noisy], axis=1))
    errors = np.sqrt(np.mean((field(at) - np.sin(4 * at) * [1, 2] - [level, 0]) ** 2, axis=0))
    assert np.all(errors < [0.03, 0.06])
    assert np.all(np.abs(np.log(field.standard_error(at).mean(axis=0) / [0.015, 0.03])) < 0.5)
    again = field.refit(np.stack([noisy, noisy - level], axis=1))
    np.testing.assert_allclose(again(at)[:, 0], field(at)[:, 0] - level, atol=1e-3)
    np.testing.assert_allclose(again(at)[:, 1], again(at)[:, 0] - level, atol=1e-3)


def test_a_ridge_holds_constants_back():
    points = np.linspace(0, 1, 40)[:, None]
    field = kf.fit_points(points**1.1, np.full(40, 5.0), ridge=40.0)
    assert 0 < float(field(points[20:21])[0]) < 4.9


def test_positions_far_from_zero():
    rng = np.random.default_rng(0)
    places = rng.random((60, 2)) + 5e6
    field = kf.fit_points(places, places[:, 0] - 5e6, domain=[(5e6, 5e6 + 1)] * 2)
    with pytest.raises(kf.InputError, match=r"got 5000001\.5 on axis 0.*\[5000000, 5000001\]"):
        field(np.array([[5e6 + 1.5, 5e6]]))
    with pytest.raises(kf.InputError, match=r"from 5000000\.0\d* to 5000000\.9.*to 5000000\.5"):
        kf.fit_points(places, places[:, 0], domain=[(5e6, 5e6 + 0.5), (5e6, 5e6 + 1)])
    # positions that are equal but for a few roundings are inside of their box
    places = rng.random((60, 1)) + 1e12
    field = kf.fit_points(places, places[:, 0] - 1e12)
    np.testing.assert_allclose(field(places), places[:, 0] - 1e12, atol=1e-2)


def test_every_report_has_a_form():
    line = np.sin(np.arange(12.0))
    assert kf.fit(line).report.form == "grid"
    assert kf.fit_points(np.arange(12.0)[:, None], line).report.form == "grid"
