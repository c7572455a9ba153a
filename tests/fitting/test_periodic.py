"""Periodic axes: seam, positions modulo the period, choice, derivatives, integrals, points."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings as limits, strategies as st
from scipy.integrate import quad
from scipy.interpolate import CubicSpline, make_interp_spline

import kronfield as kf
from kronfield.field.evaluation import axis_matrix
from kronfield.solvers.grid.banded import apply, embedding_blocks
from kronfield.solvers.grid.inverse import invert_axis
from kronfield.solvers.points.direct import sparse_penalty
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import cosines

LON = np.arange(0.0, 360.0, 10.0)


def bump(lon):
    return np.exp(np.cos(np.deg2rad(lon - 40.0)))


def jittered(n, seed=0, period=360.0):
    rng = np.random.default_rng(seed)
    return (np.arange(n) + rng.uniform(-0.4, 0.4, n)) * period / n


def seam_jumps(field, order, before=(), eps=1e-9):
    """Return the jump across the seam, less what a smooth function changes over 2 eps."""
    low = field.domain[-1][0]
    x = np.array([[*before, low - eps], [*before, low + eps], [*before, low + 3 * eps]])
    orders = (0,) * len(before) + (order,)
    a, b, c = field(x, orders)
    return abs((b - a) - (c - b))


# Embedders on a circle
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5, 8, 40, 41])
@pytest.mark.parametrize("degree", [1, 3, 5, 9])
@pytest.mark.parametrize("even", [True, False])
def test_splines_on_a_circle_are_those_of_scipy(n, degree, even):
    x = (np.arange(n) if even else jittered(n, n, n)) / n + 0.013
    y = np.random.default_rng(n).standard_normal(n)
    ring = kf.Wrapped.through(x, degree)
    inverse = invert_axis(ring, x, dtype=np.float64, rcond=1e-13)
    weights = apply(inverse.operator, y, 0)
    at = np.linspace(-1.3, 2.1, 101)
    if degree < n:
        wanted = make_interp_spline(
            np.append(x, x[0] + 1), np.append(y, y[0]), degree, bc_type="periodic"
        )
        round_at = x[0] + (at - x[0]) % 1.0
        np.testing.assert_allclose(ring(at) @ weights, wanted(round_at), atol=1e-10)
        if degree > 1:
            slopes = ring.derivative(at) @ weights
            np.testing.assert_allclose(slopes, wanted.derivative()(round_at), atol=1e-8)
    np.testing.assert_allclose(ring(x) @ weights, y, atol=1e-11)


@pytest.mark.parametrize(
    "emb",
    [
        kf.Wrapped(kf.Gaussian(7, 0.4)),
        kf.Wrapped(kf.Gaussian(90, 0.01, padding=5)),
        kf.Wrapped(kf.TensionSpline(40, 2.0)),
        kf.Wrapped(kf.BSpline(90, 3)),
        kf.Wrapped(kf.BSpline(4, 3)),
        kf.Wrapped.through(np.sort(np.random.default_rng(2).random(50)), 3),
        kf.Dirichlet(9),
    ],
    ids=lambda emb: repr(emb)[:40],
)
def test_features_are_periodic_and_so_are_their_blocks_and_integrals(emb):
    x = np.sort(np.random.default_rng(0).uniform(-1.6, 2.3, 150))
    for order in range(emb.smoothness + 1):
        rows = emb.derivative(x, order)
        scale = max(np.abs(rows).max(), 1.0)
        np.testing.assert_allclose(rows, emb.derivative(x + 3.0, order), atol=1e-9 * scale)
        matrix = axis_matrix(emb, x, order, np.float64)
        dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        np.testing.assert_allclose(dense, rows, atol=1e-10 * scale)
    nodes, w = np.polynomial.legendre.leggauss(4)
    for low, high in ((0.2, 0.4), (0.9, 1.3), (-0.4, 2.9), (0.7, 0.1)):
        panels = (high - low) / 1000
        at = low + panels * (np.arange(1000)[:, None] + (nodes + 1) / 2)
        wanted = np.tile(w * panels / 2, 1000) @ emb(at.ravel())
        np.testing.assert_allclose(emb.integral(low, high), wanted, atol=1e-6)


def test_blocks_that_cross_the_seam_several_times():
    emb = kf.Wrapped(kf.Gaussian(100, 0.01))
    x = np.linspace(-2.5, 2.5, 200)
    np.testing.assert_allclose(embedding_blocks(emb, x).toarray(), emb(x), atol=1e-14)


def test_what_has_no_periodic_form_is_refused():
    with pytest.raises(kf.InputError, match="length 1"):
        kf.Wrapped(kf.BSpline(8, low=0.0, high=1.5))
    with pytest.raises(kf.InputError, match="period 1"):
        kf.fit(bump(LON), axes=[LON], encoding=kf.Sine(8, 1.5), periodic=[360.0])
    with pytest.raises(kf.InputError, match="support"):
        kf.Wrapped(kf.ShiftedBasis(8, lambda u: 1 / (1 + u * u)))
    with pytest.raises(kf.InputError, match="rising"):
        kf.Wrapped.through([0.0, 0.5, 1.0])


# Grids
# ----------------------------------------------------------------------------------------------


def test_band_limited_samples_are_reproduced():
    """A Fourier-exact result: value, both derivatives and integrals to rounding."""
    rng = np.random.default_rng(1)
    amplitudes, phases = rng.standard_normal(6), rng.random(6)

    def signal(x, order=0):
        turns = np.arange(6) * np.asarray(x)[..., None] / 360.0 + phases
        rate = np.arange(6) * np.deg2rad(1.0)
        parts = (np.cos, lambda a: -rate * np.sin(a), lambda a: -(rate**2) * np.cos(a))
        return parts[order](2 * np.pi * turns) @ amplitudes

    x = np.arange(0.0, 360.0, 15.0)
    field = kf.fit(signal(x), axes=[x], periodic=[360.0])
    assert isinstance(field.encoding.embedders[0], kf.Dirichlet)
    at = rng.uniform(-900, 900, 100)
    for order, tolerance in ((0, 1e-12), (1, 1e-13), (2, 1e-14)):
        np.testing.assert_allclose(field(at[:, None], (order,)), signal(at, order), atol=tolerance)
    wanted = quad(signal, 300, 500)[0]
    assert field.integral([(300, 500)]) == pytest.approx(wanted, abs=1e-9)
    chosen = [one for one in field.report.candidates if one.chosen]
    assert [one.kind for one in chosen] == ["trigonometric"]


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("name", ["smooth", "kinks"])
def test_value_and_slopes_close_at_the_seam(even, noise, name):
    x = LON if even else jittered(36)
    y = bump(x) if name == "smooth" else np.abs(np.sin(np.deg2rad(x - 20)))
    y = y + noise * np.random.default_rng(3).standard_normal(len(x))
    field = kf.fit(y, axes=[x], periodic=[360.0])
    for at in (0.0, 17.0, field.domain[0][0]):
        both = np.array([[at], [at + 360.0], [at - 720.0]])
        assert np.ptp(field(both)) < 1e-10
        assert np.ptp(field(both, (1,))) < 1e-10
    if field.encoding.embedders[0].smoothness > 1:
        assert seam_jumps(field, 0) < 1e-10
        assert seam_jumps(field, 1) < 1e-10
    if not noise:
        np.testing.assert_allclose(field.on_grid(), y, atol=1e-10)


def test_uneven_samples_are_better_than_scipys_periodic_spline():
    x = np.sort(np.random.default_rng(5).uniform(0, 360, 60))
    at = np.linspace(-300, 700, 500)
    field = kf.fit(bump(x), axes=[x], periodic=[360.0])
    peer = CubicSpline(np.append(x, x[0] + 360), np.append(bump(x), bump(x[0])), bc_type="periodic")
    error = np.abs(field(at[:, None]) - bump(at)).max()
    assert error < 0.01 * np.abs(peer(x[0] + (at - x[0]) % 360) - bump(at)).max()


def test_a_rough_signal_gets_no_high_degree():
    y = np.repeat([0.0, 1.0, -1.0, 0.5, 0.0, 2.0], 8)
    field = kf.fit(y, axes=[np.arange(48.0)], periodic=[48.0], noise=0.0)
    assert "trigonometric" not in {one.kind for one in field.report.candidates if one.chosen}
    assert np.abs(field.on_grid((480,))).max() < 2.5


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_of_two_wraps(axis):
    lat = np.linspace(-60, 60, 21)
    values = np.cos(np.deg2rad(lat))[:, None] * bump(LON)[None, :]
    axes, periodic = [lat, LON], [None, 360.0]
    if axis == 0:
        values, axes, periodic = values.T, axes[::-1], periodic[::-1]
    field = kf.fit(values, axes=axes, periodic=periodic)
    assert field.periods == tuple(periodic)
    points = np.array([[10.0, -3.0], [10.0, 357.0], [10.0, 717.0]])
    points = points if axis else points[:, ::-1]
    np.testing.assert_allclose(field(points), np.cos(np.deg2rad(10)) * bump(-3.0), atol=1e-9)
    wide = [(-10, 10), (350, 370)] if axis else [(350, 370), (-10, 10)]
    near = [(-10, 10), (-10, 10)]
    assert field.integral(wide) == pytest.approx(field.integral(near), rel=1e-12)
    with pytest.raises(kf.InputError, match="outside"):
        field(np.full((1, 2), 100.0) if axis else np.full((1, 2), -100.0))


def test_rendering_wraps_and_aligns_with_cells():
    field = kf.fit(bump(LON), axes=[LON], periodic=[360.0])
    assert field.domain == ((-5.0, 355.0),)
    np.testing.assert_allclose(field.on_grid((36,)), bump(LON), atol=1e-12)
    long = np.arange(-700.0, 900.0, 7.0)
    np.testing.assert_allclose(field.on_grid([long]), bump(long), atol=1e-6)
    np.testing.assert_allclose(field.on_grid([long[::-1]]), bump(long[::-1]), atol=1e-6)


def test_samples_at_both_ends_of_the_period_are_one_position():
    x = np.arange(0.0, 361.0, 30.0)
    y = np.sin(np.deg2rad(x))
    y[-1] += 0.2
    field = kf.fit(y, axes=[x], periodic=[360.0])
    assert field.on_grid().shape == (13,)
    np.testing.assert_allclose(field.on_grid()[[0, -1]], 0.1, atol=1e-12)
    np.testing.assert_allclose(field.on_grid()[1:-1], y[1:-1], atol=1e-12)
    again = field.refit(2 * y)
    np.testing.assert_allclose(again.on_grid(), 2 * field.on_grid(), atol=1e-12)
    falling = kf.fit(y[::-1], axes=[x[::-1]], periodic=[360.0])
    np.testing.assert_allclose(falling.on_grid(), field.on_grid()[::-1], atol=1e-12)
    whole = kf.fit(np.arange(5, dtype=np.uint8), axes=[np.arange(5.0)], periodic=[4.0])
    np.testing.assert_allclose(whole.on_grid(), [2, 1, 2, 3, 2], atol=1e-5)
    assert whole.dtype == np.float32


def test_one_of_two_samples_at_the_seam_may_be_missing():
    x, lat = np.arange(0.0, 361.0, 20.0), np.linspace(-1, 1, 12)
    values = np.cos(lat)[:, None] * bump(x)[None, :]
    mask = np.zeros(values.shape, dtype=bool)
    mask[3, 0] = mask[5, -1] = mask[7, 0] = mask[7, -1] = True
    spoiled = np.where(mask, 99.0, values)
    field = kf.fit(spoiled, axes=[lat, x], mask=mask, periodic=[None, 360.0])
    assert np.abs(field.on_grid() - values).max() < 0.05
    assert np.ptp(field(np.array([[0.3, 0.0], [0.3, 360.0]]))) < 1e-10
    assert field.distance_to_data(np.array([[lat[7], 360.0]]))[0] > 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"periodic": [360.0, 360.0]}, "periodic"),
        ({"periodic": [-1.0]}, r"periodic\[0\]"),
        ({"periodic": [float("nan")]}, r"periodic\[0\]"),
        ({"periodic": ["lon"]}, r"periodic\[0\]"),
        ({"periodic": [True]}, r"periodic\[0\]"),
        ({"periodic": {"lon": 360.0}}, "names"),
        ({"periodic": [300.0]}, "at most one period, 300"),
        ({"periodic": [360.0], "domain": [(0.0, 400.0)]}, "one period"),
    ],
)
def test_wrong_periods_are_refused(change, words):
    with pytest.raises(kf.InputError, match=words):
        kf.fit(bump(LON), axes=[LON], **change)


def test_names_dates_and_one_number():
    field = kf.fit(bump(LON), axes={"lon": LON}, periodic={"lon": 360})
    assert field(lon=-3.0) == pytest.approx(bump(-3.0), abs=1e-6)
    hours = np.datetime64("2024-01-01") + np.arange(24) * np.timedelta64(1, "h")
    day = kf.fit(
        np.sin(np.arange(24) * np.pi / 12), axes=[hours], periodic=[np.timedelta64(1, "D")]
    )
    later = np.array(["2025-06-01T06:00"], dtype="datetime64[m]")
    assert day(later)[0] == pytest.approx(1.0, abs=1e-6)
    assert kf.fit(bump(LON), axes=[LON], periodic=360.0).periods == (360.0,)


@pytest.mark.parametrize(
    "emb",
    [
        kf.Gaussian(36, 1 / 36),
        kf.Gaussian(20, 0.05),
        kf.Triangle(36, 2 / 36),
        kf.Rectangle(36, 1 / 36),
        kf.Impulse(36),
        kf.TensionSpline(40, 1.0, padding=2),
        kf.BSpline(30, 3),
        kf.BSpline(19, 2, inner=jittered(17, period=1.0)[1:]),
        kf.Dirichlet(21),
        kf.Sine(12, 2.0),
        kf.LogFourier(8, 4.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("penalty", [{"ridge": 0.0}, {"ridge": 0.01}, {"roughness": (1.0, 0.0)}])
@pytest.mark.filterwarnings("ignore::kronfield.fitting.grid.RankWarning")
def test_given_encodings_against_dense_least_squares(emb, penalty):
    """Every embedder that has a periodic form, with and without a penalty."""
    if "roughness" in penalty and emb.smoothness < 1:
        pytest.skip("has no derivative")
    x = jittered(36, 7) if emb.size % 2 else LON
    y = bump(x)
    field = kf.fit(y, axes=[x], encoding=emb, periodic=[360.0], domain=[(-10.0, 350.0)], **penalty)
    ring = field.encoding.embedders[0]
    assert ring.period == 1.0
    P = ring((x + 10) / 360)
    if "roughness" in penalty:
        nodes, w = np.polynomial.legendre.leggauss(6)
        cells = np.arange(720)[:, None] / 720
        t, w = (cells + (nodes + 1) / 1440).ravel(), np.tile(w / 1440, 720)
        if isinstance(ring, kf.Wrapped) and not ring.is_even:
            edges = np.unique(np.concatenate([ring.knots, ring.knots % 1.0, [0.0, 1.0]]))
            edges = edges[(edges >= 0) & (edges <= 1)]
            half = np.diff(edges)[:, None] / 2
            t = ((edges[1:] + edges[:-1])[:, None] / 2 + half * nodes).ravel()
            w = (half * np.polynomial.legendre.leggauss(6)[1]).ravel()
        slopes = ring.derivative(t)
        gram = slopes.T @ (w[:, None] * slopes) / 360**2 * len(x)
    else:
        gram = penalty["ridge"] * np.eye(ring.size)
    fitted = (
        P
        @ np.linalg.lstsq(
            np.vstack([P, _root(gram)]), np.concatenate([y, np.zeros(len(gram))]), rcond=1e-9
        )[0]
    )
    np.testing.assert_allclose(field.on_grid(), fitted, atol=2e-6)
    both = np.array([[-10.0], [350.0]])
    assert np.ptp(field(both)) < 1e-10


def _root(gram):
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def test_saving_pickles_and_files(tmp_path):
    for x in (LON, jittered(36)):
        field = kf.fit(bump(x), axes=[x], periodic=[360.0])
        field.save(tmp_path / "round.kf")
        at = np.linspace(-500, 500, 41)[:, None]
        for copy in (kf.load(tmp_path / "round.kf"), pickle.loads(pickle.dumps(field))):
            assert copy.periods == (360.0,)
            assert np.array_equal(copy(at), field(at))
        again = pickle.loads(pickle.dumps(field)).refit(2 * bump(x))
        np.testing.assert_allclose(again(at), 2 * field(at), atol=1e-12)


def test_denoise_closes_at_the_seam():
    x = np.arange(0.0, 360.0, 3.0)
    noisy = bump(x) + 0.1 * np.random.default_rng(0).standard_normal(120)
    field = kf.denoise(noisy, axes=[x], periodic=[360.0])
    assert np.std(field.on_grid() - bump(x)) < 0.05
    both = np.array([[-1.5], [358.5]])
    assert np.ptp(field(both)) < 1e-10
    assert np.ptp(field(both, (1,))) < 1e-10
    assert np.ptp(field.standard_error(both)) < 1e-10


@limits(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 20),
    even=st.booleans(),
    shift=st.floats(-1e3, 1e3),
    period=st.floats(1e-3, 1e6),
    seed=st.integers(0, 99),
)
def test_any_circle_meets_its_samples(n, even, shift, period, seed):
    rng = np.random.default_rng(seed)
    x = np.arange(n) * 1.0 if even else np.arange(n) + rng.uniform(-0.4, 0.4, n)
    x = shift + x * period / n
    y = rng.standard_normal(n)
    field = kf.fit(y, axes=[x], periodic=[period], noise=0.0)
    np.testing.assert_allclose(field.on_grid(), y, atol=1e-6)
    moved = field((x + period * rng.integers(-3, 4, n))[:, None])
    np.testing.assert_allclose(moved, y, atol=1e-5)


def test_float32_stays_float32():
    field = kf.fit(bump(LON).astype(np.float32), axes=[LON], periodic=[360.0])
    assert field.dtype == field.weights.dtype == np.float32
    np.testing.assert_allclose(field.on_grid(), bump(LON), rtol=1e-5)


# Points
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wraps", [(True, False), (False, True), (True, True)])
def test_penalties_and_stencils_that_wrap(wraps):
    penalty = DifferencePenalty((6, 7), (0.5, 0.7), 0.3, 0.2, 0.1, wraps)
    dense = sparse_penalty(penalty).toarray()
    unit = np.eye(42).reshape(42, 6, 7)
    np.testing.assert_allclose(penalty.apply(unit).reshape(42, 42), dense, atol=1e-12)
    fast = np.zeros_like(unit)
    penalty.add_to(fast, unit)
    np.testing.assert_allclose(fast.reshape(42, 42), dense, atol=1e-12)
    energy = np.sum(unit * penalty.apply(unit), axis=(1, 2))
    np.testing.assert_allclose(penalty.energy(unit), energy, rtol=1e-10, atol=1e-12)
    hat = penalty.symbol * cosines(unit, inverse=False, wraps=wraps)
    back = cosines(hat, inverse=True, wraps=wraps).copy()
    penalty.subtract_ends(back, unit)
    np.testing.assert_allclose(back.reshape(42, 42), dense, atol=1e-11)
    # straight lines cost something on a circle, constants nothing
    constant = np.ones((1, 6, 7))
    np.testing.assert_allclose(penalty.apply(constant), 0.1 * constant, atol=1e-12)
    stencil = Stencil((6, 7), (2, 2), wraps)
    for plane in stencil.planes.values():
        plane[...] = np.random.default_rng(0).standard_normal((6, 7))
    matrix = stencil.toarray()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)


@pytest.mark.parametrize(
    "emb", [kf.Triangle(12, 2 / 12), kf.Gaussian(12, 0.1), kf.BSpline(15, 3)], ids=repr
)
@pytest.mark.parametrize("axis", [0, 1])
def test_points_and_statistics_against_dense_least_squares(emb, axis):
    rng = np.random.default_rng(0)
    points = np.stack([rng.uniform(-1, 1, 150), rng.uniform(-700, 700, 150)], axis=1)
    values, weights = bump(points[:, 1]) + points[:, 0], rng.random(150)
    encoding = [kf.Triangle(9, 2 / 9), emb]
    domain, periodic = [(-1.0, 1.0), (0.0, 360.0)], [None, 360.0]
    if axis == 0:
        points, encoding = points[:, ::-1].copy(), encoding[::-1]
        domain, periodic = domain[::-1], periodic[::-1]
    field = kf.fit_points(
        points,
        values,
        kf.Kronecker(*encoding),
        domain=domain,
        weights=weights,
        ridge=0.01,
        periodic=periodic,
        tolerance=1e-12,
    )
    low, high = np.array(domain).T
    B = field.encoding((points - low) / (high - low))
    normal = B.T @ (weights[:, None] * B) + 0.01 * np.eye(B.shape[1])
    wanted = np.linalg.solve(normal, B.T @ (weights * values))
    np.testing.assert_allclose(field.weights.ravel(), wanted, atol=1e-9)
    seen = kf.Statistics(kf.Kronecker(*encoding), domain, periodic=periodic)
    for part in (slice(0, 70), slice(70, None)):
        seen.add(points[part], values[part], weights[part])
    solved = seen.solve(ridge=0.01, tolerance=1e-12)
    np.testing.assert_allclose(solved.weights, field.weights, atol=1e-9)
    assert solved.periods == field.periods == tuple(periodic)


def test_statistics_keep_their_periods(tmp_path):
    seen = kf.Statistics(kf.Triangle(24, 2 / 24), [(0.0, 360.0)], periodic=[360.0])
    x = np.random.default_rng(0).uniform(-400, 400, 300)
    seen.add(x[:, None], bump(x))
    seen.save(tmp_path / "seen.kf")
    again = kf.Statistics.load(tmp_path / "seen.kf")
    both = [one.solve(roughness=(0.0, 1.0)) for one in (seen, again, seen + again)]
    assert all(np.array_equal(one.periods, (360.0,)) for one in both)
    np.testing.assert_allclose(both[0].weights, both[1].weights, atol=1e-12)
    assert np.ptp(both[2](np.array([[0.0], [360.0]]))) < 1e-10


def test_chosen_settings_of_points_close_at_the_seam():
    rng = np.random.default_rng(0)
    points = np.stack([rng.uniform(-1, 1, 400), rng.uniform(-180, 540, 400)], axis=1)

    def signal(p):
        return bump(p[:, 1]) * np.cos(p[:, 0])

    field = kf.fit_points(points, signal(points), periodic=[None, 360.0])
    both = np.array([[0.2, 11.0], [0.2, 371.0], [0.2, -349.0]])
    assert np.ptp(field(both)) < 1e-10
    assert np.ptp(field(both, (0, 1))) < 1e-10
    assert seam_jumps(field, 0, (0.2,), 1e-6) < 1e-8
    at = np.stack([rng.uniform(-0.9, 0.9, 200), rng.uniform(-180, 540, 200)], axis=1)
    assert np.std(field(at) - signal(at)) < 0.02
    distances = field.distance_to_data(points[:5] + np.array([0.0, 720.0]))
    np.testing.assert_allclose(distances, 0.0, atol=0.02)


def test_points_refuse_what_has_no_periodic_form():
    points, values = np.random.default_rng(0).random((50, 1)), np.arange(50.0)
    with pytest.raises(kf.InputError, match="dual"):
        kf.fit_points(points, values, periodic=[1.0], form="dual")
    with pytest.raises(kf.InputError, match="trend"):
        kf.fit_points(points, values, periodic=[1.0], trend=1)
    with pytest.raises(kf.InputError, match="one period"):
        kf.Statistics(kf.Triangle(8, 0.25), [(0.0, 2.0)], periodic=[1.0])


@pytest.mark.parametrize("gaps", [False, True])
def test_shrinkage_goes_round_the_seam(gaps):
    """A rolled picture with edges has a rolled result, with and without gaps."""
    n, by, rng = 96, 48, np.random.default_rng(0)
    i, j = np.mgrid[:n, :n]
    clean = ((i + 11) // 24 + (j + 5) // 24) % 2 * 1.0
    noisy = clean + 0.15 * rng.standard_normal((n, n))
    mask = rng.random((n, n)) < 0.1 if gaps else None
    axes = [np.arange(n) / n] * 2

    def cleaned(values, missing, **options):
        return kf.denoise(values, axes, noise=0.15, mask=missing, **options)

    def difference(**options):
        found = cleaned(noisy, mask, **options)
        assert found.report.noise.method == "shrinkage"
        turned = None if mask is None else np.roll(mask, (by, by), (0, 1))
        other = cleaned(np.roll(noisy, (by, by), (0, 1)), turned, **options).on_grid()
        return np.abs(np.roll(other, (-by, -by), (0, 1)) - found.on_grid()).max()

    assert difference(periodic=[1.0, 1.0]) < (1e-2 if gaps else 1e-5)
    assert difference() > 0.1
