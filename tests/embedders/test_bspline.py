"""B-splines against SciPy: values, derivatives, integrals, interpolation, and fits."""

import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.interpolate import BSpline as Reference, make_interp_spline

import kronfield as kf
from cases import LIBRARIES, each_library
from kronfield._core.frames import sample_frame
from kronfield.solvers.grid import banded_lu
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.banded_lu import BandedSolve
from kronfield.solvers.grid.basis import derivative_gram
from kronfield.solvers.grid.inverse import invert_axis

DEGREES = range(10)


def line(n, uneven, seed=0):
    """Positions on the unit interval: i/n, or gaps that differ by up to a factor of 5."""
    if not uneven:
        return np.arange(n) / n
    gaps = np.random.default_rng(seed).uniform(0.2, 1.0, n)
    return np.cumsum(gaps) / gaps.sum()


def unit_splines(emb):
    """SciPy's spline of every feature."""
    return [Reference(emb.knots, row, emb.degree) for row in np.eye(emb.size)]


def from_run(emb, x, order=0):
    """The dense matrix that `run` stands for."""
    first, values = emb.run(x, order)
    dense = np.zeros((len(x), emb.size))
    for i, value in enumerate(values):
        dense[np.arange(len(x)), first + i] += value
    return dense


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("degree", range(12))
def test_features_derivatives_and_integrals_are_scipys(degree, uneven):
    for n in {degree + 1, degree + 2, degree + 5, 2 * degree + 3, 40}:
        x = line(n, uneven)
        low, high = x[0] - 0.5 / n, x[-1] + 0.5 / n
        emb = kf.BSpline.through(x, degree, low, high)
        assert (emb.size, emb.degree, emb.is_even) == (n, degree, emb.inner_count < 3 or not uneven)
        at = np.random.default_rng(1).uniform(low, high, 60)
        wanted = Reference.design_matrix(at, emb.knots, degree).toarray()
        np.testing.assert_allclose(emb(at), wanted, atol=1e-13)
        splines = unit_splines(emb)
        around = np.concatenate([at, [low - 0.5 / n, high + 0.5 / n]])  # half a cell beyond
        for order in range(emb.smoothness + 1):
            wanted = np.stack([one.derivative(order)(around) for one in splines], axis=1)
            size = np.abs(wanted).max()
            np.testing.assert_allclose(emb.derivative(around, order), wanted, atol=1e-11 * size)
            np.testing.assert_allclose(from_run(emb, around, order), wanted, atol=1e-11 * size)
        for a, b in ((low, high), (at[0], at[1]), (low - 0.2 / n, at[2]), (at[3], high + 0.3 / n)):
            wanted = [one.integrate(a, b) for one in splines]
            np.testing.assert_allclose(emb.integral(a, b), wanted, atol=1e-13)


@given(
    n=st.integers(1, 60),
    degree=st.integers(1, 9),
    seed=st.integers(0, 99),
    uneven=st.booleans(),
    beyond=st.floats(0.0, 0.5),
)
@settings(deadline=None)
def test_interpolation_is_scipys(n, degree, seed, uneven, beyond):
    """The same function also beyond the samples, where the end polynomials continue."""
    x, rng = line(n, uneven, seed), np.random.default_rng(seed)
    beyond = max(beyond, 0.1 * (n == 1)) / n
    emb = kf.BSpline.through(x, degree, x[0] - beyond, x[-1] + beyond)
    assert emb.degree == min(degree, n - 1)
    y = rng.standard_normal(n)
    inverse = invert_axis(emb, x, dtype=np.float64)
    assert (inverse.method, inverse.rank) == ("banded", n)
    weights = inverse.operator.apply(y, 0)
    spline = (
        make_interp_spline(x, y, emb.degree) if emb.degree else (lambda at: np.full(len(at), y[0]))
    )
    at = np.concatenate([x, rng.uniform(emb.low, emb.high, 50), [emb.low, emb.high]])
    size = np.abs(spline(at)).max()
    np.testing.assert_allclose(emb(at) @ weights, spline(at), atol=1e-9 * size)
    if emb.degree:
        slope = spline.derivative()
        scale = np.abs(slope(at)).max()
        some = at[n:]  # degree 1 has kinks on the samples
        np.testing.assert_allclose(emb.derivative(some) @ weights, slope(some), atol=1e-8 * scale)
        area = spline.integrate(float(emb.low), float(emb.high))
        assert emb.integral(emb.low, emb.high) @ weights == pytest.approx(area, abs=1e-9 * size)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("degree", range(1, 12))
def test_polynomials_are_reproduced(degree, uneven):
    x = line(60, uneven)
    emb = kf.BSpline.through(x, degree, x[0] - 0.01, x[-1] + 0.01)
    solver = invert_axis(emb, x, dtype=np.float64).operator
    at = np.linspace(emb.low - 0.01, emb.high + 0.01, 333)
    for power in range(degree + 1):
        curve = np.polynomial.Chebyshev.basis(power)
        weights = solver.apply(curve(2 * x - 1), 0)
        np.testing.assert_allclose(emb(at) @ weights, curve(2 * at - 1), atol=1e-10)


def test_degree_zero_is_the_nearest_sample():
    x = np.array([0.0, 0.1, 0.4, 1.0])
    emb = kf.BSpline.through(x, 0)
    at = np.array([-3.0, 0.04, 0.05, 0.2, 0.26, 0.69, 0.7, 5.0])  # a midpoint belongs to the right
    assert emb(at).argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(emb(at).sum(axis=1), 1.0)
    np.testing.assert_array_equal(from_run(emb, at), emb(at))
    assert invert_axis(emb, x, dtype=np.float64).operator.is_identity
    # positions on a knot but for rounding count as on it
    even = kf.BSpline.through(np.arange(1000) / 1000, 0)
    middles = (np.arange(999) + 0.5) / 1000
    assert np.array_equal(even(middles).argmax(axis=1), np.arange(1, 1000))
    assert np.array_equal(even.run(middles)[0], np.arange(1, 1000))


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("uneven", [False, True])
def test_a_derivative_that_jumps_is_the_mean_of_both_sides(degree, uneven):
    x = line(30, uneven)
    emb = kf.BSpline.through(x, degree)
    at, h = emb.inner_knots, 1e-9
    mean = (emb.derivative(at - h, degree) + emb.derivative(at + h, degree)) / 2
    for near in (at, np.nextafter(at, 2), np.nextafter(at, -1)):
        np.testing.assert_allclose(emb.derivative(near, degree), mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(from_run(emb, near, degree), mean, rtol=1e-5, atol=1e-5)
    assert emb.taps(degree) == degree + 2
    whole = kf.BSpline(degree + 1, degree)
    assert whole.taps(degree) == degree + 1
    np.testing.assert_allclose(from_run(whole, at, degree), whole.derivative(at, degree))
    with pytest.raises(kf.InputError, match="order: got 3"):
        emb.derivative(at, 3)


@st.composite
def splines(draw):
    degree = draw(st.integers(0, 11))
    count = draw(st.integers(0, 20))
    low = draw(st.floats(-2.0, 0.5))
    high = low + draw(st.floats(0.01, 3.0))
    layout = draw(st.sampled_from(["even", "pair", "uneven"]))
    cuts = np.cumsum(draw(st.lists(st.floats(0.05, 1.0), min_size=count + 1, max_size=count + 1)))
    inner = low + (high - low) * cuts[:-1] / cuts[-1]
    if layout == "even" or not count:
        inner = None
    elif layout == "pair":
        inner = (inner[0], inner[-1]) if count > 1 else (inner[0], inner[0])
    return kf.BSpline(degree + 1 + count, degree, low=low, high=high, inner=inner)


@given(emb=splines(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_any_spline(emb, seed):
    rng = np.random.default_rng(seed)
    at = np.concatenate([rng.uniform(emb.low, emb.high, 20), emb.knots])
    Psi = emb(at)
    assert np.all(Psi >= -1e-15)
    np.testing.assert_allclose(Psi.sum(axis=1), 1.0, atol=1e-13)  # a partition of unity
    np.testing.assert_allclose(from_run(emb, at), Psi, atol=1e-13)
    # weights at the Greville abscissae give the identity (Marsden 1970)
    if emb.degree:
        size = max(1.0, abs(emb.low), abs(emb.high))
        np.testing.assert_allclose(Psi @ emb.centres, at, atol=1e-12 * size)
    assert np.all(np.diff(emb.centres) > 0)
    length = emb.high - emb.low
    assert emb.integral(emb.low, emb.high).sum() == pytest.approx(length)
    middle = rng.uniform(emb.low, emb.high)
    np.testing.assert_allclose(
        emb.integral(emb.low, middle) + emb.integral(middle, emb.high),
        emb.integral(emb.low, emb.high),
        atol=1e-14 * length,
    )
    beyond = np.array([emb.low - length, emb.high + length])
    assert np.all(np.isfinite(emb(beyond)))
    again = kf.Embedder.from_dict(json.loads(json.dumps(emb.to_dict())))
    assert again == emb
    assert hash(again) == hash(emb)
    assert pickle.loads(pickle.dumps(emb)) == emb
    assert len(repr(emb)) < 200
    if emb.is_even:
        d = emb.similarity(np.array([0.0, 0.3, -0.3, 9.9]) * emb.spacing)
        assert d[0] >= d[1] == d[2] >= d[3] >= 0
        assert 1.0 <= emb.stable_rank(50) <= 50


def test_even_axes_are_a_few_numbers():
    for degree in (0, 1, 2, 3, 5):
        emb = kf.BSpline.through(np.arange(10**6) / 10**6, degree)
        assert isinstance(emb.inner, tuple)
        assert len(pickle.dumps(emb)) < 400
        assert len(json.dumps(emb.to_dict())) < 200
    for axis in (np.linspace(0, 1, 1000), np.arange(4096) / 4096, 7 + np.arange(500) / 500):
        assert kf.BSpline.through(axis).is_even
    moved = np.arange(1000) / 1000
    moved[500] += 1e-9
    emb = kf.BSpline.through(moved)
    assert not emb.is_even
    assert not emb.inner.flags.writeable
    assert not pickle.loads(pickle.dumps(emb)).inner.flags.writeable
    moved[700] = 3.0  # the embedder has its own copy
    assert emb == kf.Embedder.from_dict(emb.to_dict())
    assert emb != kf.BSpline.through(np.arange(1000) / 1000)
    assert emb != 3


def test_stored_knots():
    assert kf.BSpline(9) != kf.BSpline(9, 2)
    assert kf.BSpline(9, inner=[0.1, 0.2, 0.3, 0.4, 0.5]).inner == (0.1, 0.5)
    assert kf.BSpline(9, inner=(0.1, 0.5)) == kf.BSpline(9, inner=[0.1, 0.2, 0.3, 0.4, 0.5])
    assert kf.BSpline(5, inner=[0.3]).inner == kf.BSpline(5, inner=(0.3, 0.3)).inner == (0.3, 0.3)
    assert kf.BSpline(4, inner=[]).inner is None
    np.testing.assert_allclose(kf.BSpline(8).inner_knots, [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(kf.BSpline(5, inner=[0.3]).knots, [0] * 4 + [0.3] + [1] * 4)
    with pytest.raises(TypeError):
        kf.BSpline(8, 3, 0.0)  # low, high and inner by name only


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 3}, r"size: got 3; expected at least degree \+ 1"),
        ({"size": 0}, "size"),
        ({"size": 2.5}, "size"),
        ({"degree": 12}, "degree: got 12"),
        ({"degree": -1}, "degree"),
        ({"degree": 2.0}, "degree"),
        ({"degree": True}, "degree"),
        ({"low": 1.0}, "low < high"),
        ({"low": float("nan")}, "low"),
        ({"low": None}, "low"),
        ({"high": "1"}, "high"),
        ({"high": float("inf")}, "high"),
        ({"inner": 3}, "inner"),
        ({"inner": "abcd"}, "inner"),
        ({"inner": {}}, "inner"),
        ({"inner": [0.1, 0.2]}, None),
        ({"inner": [0.2, 0.1]}, "strictly rising"),
        ({"inner": [0.1, 0.1]}, "strictly rising"),
        ({"inner": [0.0, 0.5]}, "strictly rising"),
        ({"inner": [0.1, 0.2, 0.3]}, "4 knots"),
        ({"inner": [0.1, 0.2, 0.3, 1.0]}, "strictly rising"),
        ({"inner": [0.1, 0.3, 0.2, 0.4]}, "strictly rising"),
        ({"inner": [0.1, float("nan"), 0.3, 0.4]}, "inner"),
        ({"inner": [[0.1, 0.2, 0.3, 0.4]]}, "inner"),
        ({"inner": [0.1, [0.2], 0.3, 0.4]}, "inner"),
        ({"inner": [0.1, None, 0.3, 0.4]}, "inner"),
        ({"inner": [0.1, 10**400, 0.3, 0.4]}, "inner"),
        ({"inner": [0.1, 0.1 + 1e-70, 0.3, 0.4]}, "inner"),
        ({"extra": 1}, "BSpline"),
    ],
)
def test_settings_are_checked(settings, words):
    data = {**kf.BSpline(8).to_dict(), **settings}
    if words is None:
        assert kf.Embedder.from_dict(data).inner == (0.1, 0.2)
        return
    with pytest.raises(kf.InputError, match=words):
        kf.Embedder.from_dict(data)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), "rising"),
        (([0.0, 0.0, 1.0],), "rising"),
        (([1.0, 0.0],), "rising"),
        ((np.zeros((2, 2)),), "rising"),
        ((0.5,), "rising"),
        (([0.0, np.nan],), "x: got"),
        ((["a"],), "x: got"),
        (([0.0, 1.0], -1), "degree"),
        ((np.arange(20.0), 12), "degree"),
        (([0.0, 1.0], 1, 0.5), "low"),
        (([0.0, 1.0], 1, 0.0, 0.5), "high"),
    ],
)
def test_samples_are_checked(arguments, words):
    with pytest.raises(kf.InputError, match=words):
        kf.BSpline.through(*arguments)


def test_similarity_and_rank_of_even_knots():
    emb = kf.BSpline(200, 3)
    assert emb.rank_limit == pytest.approx(151 / 315 / emb.spacing)
    assert kf.BSpline(200, 1).rank_limit == pytest.approx(2 / 3 / kf.BSpline(200, 1).spacing)
    d = np.linspace(-0.1, 0.1, 41)
    hat, box = kf.BSpline(51, 1), kf.BSpline(50, 0)
    np.testing.assert_allclose(
        hat.similarity(d), kf.Triangle(50, 2 * hat.spacing).similarity(d), atol=1e-15
    )
    np.testing.assert_allclose(
        box.similarity(d), kf.Rectangle(50, box.spacing).similarity(d), atol=1e-15
    )
    measured = kf.stable_rank(emb(kf.even_axis(400)))
    assert measured == pytest.approx(emb.rank_limit, rel=0.02)
    assert kf.BSpline(200, 0).bandwidth(0.1) == kf.Rectangle(200, 1 / 200).bandwidth(0.1)
    uneven = kf.BSpline.through(line(30, True))
    assert uneven.rank_limit is None
    assert uneven.bandwidth() > kf.BSpline(30).bandwidth()
    with pytest.raises(kf.InputError, match=r"similarity: got .*both positions"):
        uneven.similarity(d)
    with pytest.raises(kf.InputError, match="spacing: got"):
        _ = uneven.spacing


@each_library
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 7])
def test_uneven_splines_in_every_library(library, dtype, degree):
    to, back = LIBRARIES[library]
    emb = kf.BSpline.through(line(20, True), degree)
    x = np.random.default_rng(3).uniform(-0.05, 1.05, 40).astype(dtype)
    for order in range(emb.smoothness + 1):
        ours, theirs = emb.derivative(x, order), back(emb.derivative(to(x), order))
        assert theirs.dtype == ours.dtype == dtype
        np.testing.assert_allclose(theirs, ours, atol=1e-6 * max(1, np.abs(ours).max()))
        assert back(emb.derivative(to(x[:0]), order)).shape == (0, 20)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_gradients(degree):
    emb = kf.BSpline.through(line(20, True), degree)
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal(20))
    x = torch.rand(30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    (slope,) = torch.autograd.grad((emb(x) @ weights).sum(), x, create_graph=degree > 1)
    torch.testing.assert_close(slope.detach(), emb.derivative(x.detach()) @ weights)
    if degree > 1:
        (bend,) = torch.autograd.grad(slope.sum(), x)
        torch.testing.assert_close(bend, emb.derivative(x.detach(), 2) @ weights)
    assert torch.autograd.gradcheck(lambda v: emb(v) @ weights, x.detach()[:5].requires_grad_())


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_roughness_is_exact(degree, order):
    if order > degree:
        return
    emb = kf.BSpline.through(line(14, True), degree)
    gram = derivative_gram(emb, emb.low, emb.high, order)
    fine = [one.derivative(order) for one in unit_splines(emb)]
    edges = np.unique(emb.knots)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:, None] + edges[:-1, None]) / 2
    at, by = (middle + half * nodes).ravel(), (half * weights).ravel()
    values = np.stack([one(at) for one in fine])
    np.testing.assert_allclose(gram, (values * by) @ values.T, atol=1e-10 * np.abs(gram).max())


# Solving
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("degree", DEGREES)
def test_banded_solves_are_the_dense_inverse(degree, uneven):
    x = line(50, uneven)
    emb = kf.BSpline.through(x, degree, x[0] - 0.01, x[-1] + 0.01)
    solver = BandedSolve.of(*emb.run(x))
    inverse = np.linalg.inv(emb(x))
    assert solver.shape == inverse.shape == (50, 50)
    rng = np.random.default_rng(0)
    for shape, axis in (((50,), 0), ((50, 3, 4), 0), ((2, 50, 3), 1), ((2, 3, 50), 2)):
        tensor = rng.standard_normal(shape)
        before = tensor.copy()
        wanted = np.moveaxis(np.tensordot(inverse, tensor, axes=([1], [axis])), 0, axis)
        size = np.abs(wanted).max()
        np.testing.assert_allclose(solver.apply(tensor, axis), wanted, atol=1e-10 * size)
        np.testing.assert_array_equal(tensor, before)
        turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(tensor, axis, 0)), 0, axis)
        np.testing.assert_allclose(solver.apply(turned, axis), wanted, atol=1e-10 * size)
    u, v = rng.standard_normal((2, 50))  # dot test
    assert v @ solver.apply(u, 0) == pytest.approx(u @ (inverse.T @ v), rel=1e-9)
    whole = rng.integers(0, 255, (4, 50), dtype=np.uint8)
    np.testing.assert_allclose(solver.apply(whole, 1), whole @ inverse.T, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("shape", [(9, 100), (100, 70), (3, 100, 90), (5, 100, 8), (40, 100, 3)])
@pytest.mark.parametrize("blocks", [True, False])
def test_lines_are_solved_in_parts(shape, blocks, monkeypatch):
    """In blocks of rows, shared among threads, or by LAPACK where the blocks lose digits."""
    monkeypatch.setattr(banded_lu, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(banded_lu, "FEW_COLUMNS", 20)
    if not blocks:
        monkeypatch.setattr(banded_lu, "AGREEMENT", 0.0)
    x, axis = line(100, True), shape.index(100)
    emb = kf.BSpline.through(x, 5, x[0] - 0.01, x[-1] + 0.01)
    solver, tensor = BandedSolve.of(*emb.run(x)), np.random.default_rng(0).standard_normal(shape)
    inverse = np.linalg.inv(emb(x))
    wanted = np.moveaxis(np.tensordot(inverse, tensor, axes=([1], [axis])), 0, axis)
    np.testing.assert_allclose(solver.apply(tensor, axis), wanted, atol=1e-11 * wanted.max())
    assert (solver._blocks is not None) == blocks
    narrow = solver.astype(np.float32).apply(tensor, axis)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wanted, atol=1e-4 * wanted.max())


@pytest.mark.parametrize("degree", [1, 3, 5, 7])
def test_samples_are_met_on_very_uneven_axes(degree):
    """Gaps from 1 to 10^4: solutions are as good as their condition number allows."""
    x = np.cumsum(10 ** np.random.default_rng(degree).uniform(0, 4, 300))
    x /= x[-1]
    emb = kf.BSpline.through(x, degree)
    inverse = invert_axis(emb, x, dtype=np.float64)
    assert inverse.method == "banded"
    y = np.random.default_rng(0).standard_normal((20, 300))
    for some in (y, y[:1]):
        weights = inverse.operator.apply(some, 1)
        assert np.abs(weights @ emb(x).T - some).max() < 1e-14 * np.abs(weights).max()


def test_float32_solves():
    x = line(80, True)
    emb = kf.BSpline.through(x, 3)
    inverse = invert_axis(emb, x, dtype=np.float32)
    y = np.random.default_rng(0).standard_normal((5, 80)).astype(np.float32)
    weights = inverse.operator.apply(y, 1)
    assert weights.dtype == inverse.operator.dtype == np.float32
    wide = inverse.operator.astype(np.float64)
    assert wide.apply(y, 1).dtype == np.float64
    np.testing.assert_allclose(wide.apply(y, 1), y @ np.linalg.inv(emb(x)).T, atol=1e-11)
    np.testing.assert_allclose(weights, wide.apply(y, 1), atol=1e-5)
    # a high degree is badly conditioned, and solved in float64
    high = invert_axis(kf.BSpline.through(x, 11), x, dtype=np.float32)
    assert high.condition > 3e3
    assert high.operator.dtype == np.float64


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("degree", DEGREES)
def test_the_condition_is_that_of_the_matrix(degree, uneven):
    x = line(40, uneven)
    emb = kf.BSpline.through(x, degree)
    wanted = np.linalg.cond(emb(x), np.inf)
    assert invert_axis(emb, x, dtype=np.float64).condition == pytest.approx(wanted, rel=1e-6)


def test_linear_splines_on_their_knots_need_no_solving():
    for x in (line(100, True), np.arange(100) / 100, np.arange(10**5) / 10**5, np.array([0.3])):
        emb = kf.BSpline.through(x, 1)
        operator = invert_axis(emb, x, dtype=np.float64).operator
        assert operator.is_identity
        values = np.random.default_rng(0).random((len(x), 2))
        assert operator.apply(values, 0) is values
    past = kf.BSpline.through(x := line(100, True), 1, x[0] - 0.01, x[-1])
    assert not invert_axis(past, x, dtype=np.float64).operator.is_identity


def test_matrices_that_are_not_square_or_singular_are_inverted_densely():
    x = line(30, True)
    emb = kf.BSpline(30)
    for samples in (x[:-1], np.linspace(0, 1, 40)):
        inverse = invert_axis(emb, samples, dtype=np.float64)
        assert inverse.method == "dense"
        np.testing.assert_allclose(
            inverse.operator,
            np.linalg.pinv(emb(samples)),
            atol=1e-6 * np.abs(inverse.operator).max(),
        )
    crowded = np.linspace(0, 0.3, 30)  # against Schoenberg and Whitney: many features see no sample
    inverse = invert_axis(emb, crowded, dtype=np.float64)
    assert inverse.method == "dense"
    assert inverse.rank < 30
    assert BandedSolve.of(*emb.run(crowded)) is None
    outside = np.linspace(-0.1, 1.1, 30)
    assert invert_axis(emb, outside, dtype=np.float64).method == "dense"
    with pytest.raises(kf.InputError, match="length 30"):
        invert_axis(kf.BSpline.through(x), x, dtype=np.float64).operator.apply(np.zeros(31), 0)


@pytest.mark.parametrize("smooth", [1, 2])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_two_more_features_than_samples(degree, smooth):
    """A condition at both ends, by banded LU where that derivative is continuous."""
    x = np.arange(20) / 20
    emb = kf.BSpline(22, degree, low=0.0, high=0.95)
    inverse = invert_axis(emb, x, dtype=np.float64, smooth=smooth)
    assert inverse.method == ("banded" if smooth < degree else "dense")
    weights = apply(inverse.operator, np.sin(5 * x), 0)
    np.testing.assert_allclose(emb(x) @ weights, np.sin(5 * x), atol=1e-9)
    if smooth < degree:
        np.testing.assert_allclose(emb.derivative(x[[0, -1]], smooth) @ weights, 0.0, atol=1e-9)


# Fields
# ------------------------------------------------------------------------------------------


def through(axes, degree):
    """The not-a-knot splines of axes, in the units of the field that `fit` makes."""
    frames = [sample_frame(axis) for axis in axes]
    return kf.Kronecker(
        *(
            kf.BSpline.through(
                frame.unit(axis),
                degree,
                float(frame.unit(frame.low)),
                float(frame.unit(frame.high)),
            )
            for axis, frame in zip(axes, frames, strict=True)
        )
    )


def tensor_product(axes, values, degree, at, orders):
    """SciPy's spline along one axis after the other, evaluated on the grid ``at``."""
    for i, (axis, where, order) in enumerate(zip(axes, at, orders, strict=True)):
        spline = make_interp_spline(axis, values, min(degree, len(axis) - 1), axis=i)
        values = spline.derivative(order)(where) if order else spline(where)
        values = np.moveaxis(values, 0, i) if values.shape[i] != len(where) else values
    return values


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(40,), (21, 30), (7, 12, 9)])
@pytest.mark.parametrize("uneven", [False, True])
def test_fits_are_scipys_tensor_products(shape, degree, uneven, tmp_path):
    rng = np.random.default_rng(0)
    axes = [3.0 + 20 * line(n, uneven, seed=i) for i, n in enumerate(shape)]
    values = rng.standard_normal(shape)
    field = kf.fit(values, axes, encoding=through(axes, degree), ridge=0.0)
    assert field.report.methods == ["banded"] * len(shape)
    at = [np.sort(rng.uniform(axis[0] - 0.1, axis[-1] + 0.1, 17)) for axis in axes]
    for orders in ((0,) * len(shape), (1,) + (0,) * (len(shape) - 1)):
        wanted = tensor_product(axes, values, degree, at, orders)
        size = np.abs(wanted).max()
        got = field.on_grid(at, derivative=orders)
        np.testing.assert_allclose(got, wanted, atol=1e-10 * size)
    np.testing.assert_allclose(field.on_grid(axes), values, atol=1e-11)
    points = np.stack([g.ravel() for g in np.meshgrid(*at, indexing="ij")], axis=1)
    np.testing.assert_allclose(field(points), field.on_grid(at).ravel(), atol=1e-11)
    field.save(tmp_path / "field.kf")
    again = kf.load(tmp_path / "field.kf")
    assert again.encoding == field.encoding
    np.testing.assert_array_equal(again.on_grid(at), field.on_grid(at))
    assert field.report.residual < 1e-11


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_points_are_evaluated_as_grids_are(degree):
    axes = [line(90, True), np.arange(80) / 80]
    values = np.random.default_rng(0).standard_normal((90, 80, 2))
    field = kf.fit(values, axes, encoding=through(axes, degree), ridge=0.0)
    at = [np.linspace(0.2, 0.9, 33), np.linspace(0.0, 0.9, 31)]
    points = np.stack([g.ravel() for g in np.meshgrid(*at, indexing="ij")], axis=1)
    for orders in [(0, 0), (1, 0), (0, 1), (2, 0)]:
        if max(orders) > degree:
            continue
        grid = field.on_grid(at, derivative=orders)
        got = field(points, derivative=orders).reshape(grid.shape)
        np.testing.assert_allclose(got, grid, atol=1e-10 * np.abs(grid).max())
    unsorted = field.on_grid([at[0][::-1], at[1]])
    np.testing.assert_allclose(unsorted, field.on_grid(at)[::-1], atol=1e-12)


def test_long_lines():
    x = np.arange(50_000) / 7
    field = kf.fit(np.sin(x), [x], encoding=through([x], 3), ridge=0.0)
    at = np.linspace(10.0, 7000.0, 40_001)
    np.testing.assert_allclose(field.on_grid([at]), np.sin(at), atol=1e-5)
    np.testing.assert_allclose(field.on_grid([at], derivative=(1,)), np.cos(at), atol=1e-3)


def test_float32_fits():
    axes = [line(40, True), np.arange(50) / 50]
    values = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    field = kf.fit(values, axes, encoding=through(axes, 3), ridge=0.0)
    assert field.on_grid(axes).dtype == np.float32
    np.testing.assert_allclose(field.on_grid(axes), values, atol=1e-4)


def test_penalties_and_other_fits():
    """A ridge, roughness, and points: as with any other embedder."""
    x = line(60, True)
    smooth = np.sin(7 * x)
    noisy = smooth + 0.1 * np.random.default_rng(0).standard_normal(60)
    encoding = through([x], 3)
    rough = kf.fit(noisy, [x], encoding=encoding, roughness=(0.0, 1e-6))
    assert np.std(rough.on_grid([x]) - smooth) < 0.06
    straight = kf.fit(2 * x + 1, [x], encoding=encoding, roughness=(0.0, 10.0))
    np.testing.assert_allclose(straight.on_grid([x]), 2 * x + 1, atol=1e-5)
    assert np.std(kf.fit(noisy, [x], encoding=encoding).on_grid([x]) - smooth) < 0.12
    points = np.random.default_rng(1).random((500, 1))
    field = kf.fit_points(points, np.sin(7 * points[:, 0]), encoding=kf.BSpline(20), ridge=1e-9)
    assert np.abs(field(points) - np.sin(7 * points[:, 0])).max() < 0.02


def test_networks_take_splines():
    from kronfield.nn import Encode

    emb = kf.BSpline.through(line(20, True))
    x = torch.rand(7, 1)
    got = Encode(emb)(x)
    np.testing.assert_allclose(got.numpy(), emb(x[:, 0].numpy()), atol=1e-6)
    assert math.isclose(float(got.sum()), 7.0, rel_tol=1e-5)
