"""All embedders over sizes, widths, paddings and dtypes, and closed forms that need many cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import kronfield as kf

WIDTH = st.floats(0.01, 2.0)
SIZE = st.integers(1, 40)
EVEN = st.integers(1, 20).map(lambda k: 2 * k)

ANY = st.one_of(
    st.builds(kf.Impulse, SIZE),
    st.builds(kf.Rectangle, SIZE, WIDTH),
    st.builds(kf.Triangle, SIZE, WIDTH),
    st.builds(kf.Gaussian, SIZE, WIDTH),
    st.builds(kf.Gaussian, st.integers(5, 40), WIDTH, st.integers(0, 2)),
    st.builds(kf.TensionSpline, SIZE, st.floats(0.01, 1000.0)),
    st.builds(kf.Sine, SIZE, st.floats(0.1, 10.0)),
    st.builds(kf.Square, SIZE, st.floats(0.1, 10.0)),
    st.builds(kf.RandomFourier, EVEN, st.floats(0.1, 10.0), st.integers(0, 9)),
    st.builds(kf.LinearFourier, EVEN, st.floats(0.0, 4.0)),
    st.builds(kf.LogFourier, EVEN, st.floats(0.0, 4.0)),
)
POSITIONS = st.lists(st.floats(-0.25, 1.25, width=32), min_size=1, max_size=12)


@given(emb=ANY, xs=POSITIONS, dtype=st.sampled_from([np.float32, np.float64]))
def test_any_embedder_anywhere(emb, xs, dtype):
    x = np.array(xs, dtype)
    Psi = emb(x)
    assert Psi.shape == (len(xs), emb.size)
    assert Psi.dtype == dtype
    assert np.all(np.isfinite(Psi))
    assert np.abs(Psi).max() <= 1 + 1e-6
    assert np.array_equal(emb(torch.from_numpy(x)).numpy().shape, Psi.shape)
    np.testing.assert_allclose(
        emb(torch.from_numpy(x)).numpy(), Psi, atol=2e-4 if dtype == np.float32 else 1e-11
    )
    for order in range(1, emb.smoothness + 1):
        assert np.all(np.isfinite(emb.derivative(x, order)))
    assert kf.Embedder.from_dict(emb.to_dict()) == emb


@given(emb=ANY, d=st.floats(-1.0, 1.0))
def test_similarity_is_even_and_largest_at_zero(emb, d):
    at = emb.similarity(np.array([0.0, d, -d]))
    assert at[1] == pytest.approx(at[2], abs=1e-9 * abs(at[0]))
    assert abs(at[1]) <= at[0] * (1 + 1e-9)


@given(emb=ANY, n=st.integers(1, 64))
def test_stable_rank_is_between_one_and_both_sizes(emb, n):
    rank = emb.stable_rank(n) if np.any(emb(kf.even_axis(n))) else 1.0
    assert 1 - 1e-9 <= rank <= min(n, emb.size) + 1e-9


@given(emb=ANY, low=st.floats(-0.2, 1.2), middle=st.floats(-0.2, 1.2), high=st.floats(-0.2, 1.2))
def test_integrals_add_up(emb, low, middle, high):
    parts = emb.integral(low, middle) + emb.integral(middle, high)
    np.testing.assert_allclose(parts, emb.integral(low, high), atol=1e-12)


@pytest.mark.parametrize("tension", [0.01, 0.03, 0.2, 0.999, 1.001, 5.0, 1000.0])
def test_splines_of_little_tension_lose_no_digits(tension):
    emb, x = kf.TensionSpline(72, tension, padding=2), np.linspace(0, 1, 301)
    np.testing.assert_allclose(emb(x).sum(axis=1), 1.0, rtol=0, atol=6e-15)
    # the second derivative has no differences of nearly equal numbers: integrate it twice
    nodes, weights = np.polynomial.legendre.leggauss(8 if tension < 100 else 400)
    h, rim = emb.spacing, 2 * emb.spacing
    for u in (-1.9 * h, -1.5 * h, -1.1 * h):
        t = -rim + (u + rim) * (nodes + 1) / 2
        w = weights * (u + rim) / 2
        expected = w @ ((u - t) * emb.psi(np, t, 2))
        np.testing.assert_allclose(emb.psi(np, np.array([u]), 0), expected, rtol=1e-10)
        np.testing.assert_allclose(emb.psi(np, np.array([u]), 1), w @ emb.psi(np, t, 2), rtol=1e-10)
        area = emb._antiderivative(np.array([u]))
        np.testing.assert_allclose(area, w @ ((u - t) ** 2 / 2 * emb.psi(np, t, 2)), rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    x = (
        torch.tensor([0.1, 0.7], dtype=dtype)
        if dtype is torch.bfloat16
        else np.array([0.1, 0.7], dtype)
    )
    for emb in (
        kf.Impulse(4096),
        kf.Gaussian(4096, 0.001),
        kf.LogFourier(64, 6.0),
        kf.TensionSpline(64, 0.05),
    ):
        half = emb(x)
        exact = emb(np.array([float(v) for v in x]))
        assert half.dtype == x.dtype
        np.testing.assert_allclose(
            np.array([[float(v) for v in row] for row in half]), exact, atol=0.01
        )


@pytest.mark.parametrize(("size", "cells"), [(1000, 2), (100, 4), (300, 3), (7, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_boxes_of_whole_cells_hold_whole_numbers_of_samples(size, cells, dtype):
    """Edges on samples follow the rule, not rounding: the low edge is in, the high edge is out."""
    emb = kf.Rectangle(size, cells / size)
    Psi = emb(kf.even_axis(size).astype(dtype))
    inner = Psi[cells : size - cells]
    assert np.all(inner.sum(axis=1) == cells)
    i = size // 2
    on = np.flatnonzero(Psi[i])
    # -w/2 <= x - t < w/2
    assert on.tolist() == list(range(i - math.ceil(cells / 2) + 1, i + cells // 2 + 1))
    if cells % 2 == 0 and dtype is np.float64 and size > 50:
        assert kf.stable_rank(Psi) == pytest.approx(size / cells, rel=0.05)


@pytest.mark.parametrize("size", [100, 99, 37])
def test_half_way_goes_to_the_right(size):
    x = (np.arange(size - 1) + 0.5) / size
    assert np.array_equal(np.argmax(kf.Impulse(size)(x), axis=1), np.arange(1, size))


def test_theory_never_falls_below_one():
    for emb in (
        kf.Gaussian(64, 1.0),
        kf.Rectangle(64, 2.0),
        kf.Triangle(64, 3.0),
        kf.RandomFourier(64, 0.1),
    ):
        assert emb.stable_rank(64) == 1.0


def test_random_fourier_vectors_rank():
    """The limit of the stable rank in D dimensions, measured on scattered points."""
    X = np.random.default_rng(0).random((1500, 2))
    gram = sum((f := kf.RandomFourier(4096, 2.0, seed=s, dimensions=2)(X)) @ f.T for s in range(4))
    measured = np.trace(gram) / np.linalg.eigvalsh(gram)[-1]
    assert kf.RandomFourier(4096, 2.0, dimensions=2).rank_limit == pytest.approx(
        (math.sqrt(2 * math.pi) * 2) ** 2
    )
    # edges count for more in the plane
    assert measured == pytest.approx((math.sqrt(2 * math.pi) * 2) ** 2, rel=0.25)


def test_bandwidths_of_periodic_and_fourier():
    square = kf.Square(8, 3.0)
    assert square.bandwidth(0.1) == pytest.approx(30.0)  # odd harmonics m have 1/m of the first
    rff = kf.RandomFourier(8, 4.0)
    assert math.exp(-(rff.bandwidth(0.01) ** 2) / (4 * 4.0**2)) == pytest.approx(0.01)
    assert kf.Impulse(10).support == (-0.05, 0.05)
    assert kf.Impulse(12, padding=1).support == (-0.05, 0.05)
    for width in (1e-2, 1e-3, 1e-4):
        bell = kf.ShiftedBasis(8, lambda u, w=width: np.exp(-((u / w) ** 2) / 2))
        assert bell.bandwidth() == pytest.approx(kf.Gaussian(8, width).bandwidth(), rel=0.02)
    step = kf.ShiftedBasis(8, lambda u: np.where(np.abs(u) < 0.1, 1.0, 0.0))
    assert step.bandwidth(1e-6) == math.inf
    with pytest.raises(kf.InputError, match="zero everywhere"):
        kf.ShiftedBasis(8, lambda u: 0 * u).bandwidth()


def test_user_functions_with_kinks_and_roots_are_fast_and_finite():
    hat = kf.ShiftedBasis(64, lambda u: 1 - abs(u) / 0.1, support=(-0.1, 0.1), name="hat")
    d = np.linspace(0, 0.3, 301)
    np.testing.assert_allclose(hat.similarity(d), kf.Triangle(64, 0.2).similarity(d), atol=1e-10)
    assert kf.compare([hat], 64)[0]["stable_rank_theory"] == pytest.approx(4 / (3 * 0.2), rel=1e-6)
    assert hat.similarity(np.zeros(0)).shape == (0,)
    root = kf.ShiftedBasis(
        8, lambda u: (1 - (u / 0.2) ** 2) ** 0.5, support=(-0.2, 0.2), name="root"
    )
    x = torch.tensor([0.1, 0.55], requires_grad=True, dtype=torch.float64)
    (slope,) = torch.autograd.grad(root(x).sum(), x)
    assert torch.all(torch.isfinite(slope))


def test_far_positions_stay_finite():
    emb = kf.Gaussian(4, 0.01)
    for order in (0, 1, 2):
        assert not emb.derivative(np.array([1e18], np.float32), order).any()
    tiny = kf.Triangle(4, 1e-12).similarity(np.array([0.5], np.float32))
    assert tiny.tolist() == [0.0]


def test_names_of_embedders_are_unique():
    with pytest.raises(TypeError, match="already exists"):
        type("Gaussian", (kf.Sine,), {})


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "Gaussian", "size": 4, "width": 10**400, "padding": 0},
        {"kind": "Gaussian", "size": 10**30, "width": 0.1, "padding": 0},
        {"kind": "Gaussian", "size": [4], "width": 0.1, "padding": 0},
        {"kind": "Gaussian", "size": 4, "width": {"a": 1}, "padding": 0},
        {"kind": ["Gaussian"], "size": 4},
        {
            "kind": "ShiftedBasis",
            "size": 4,
            "function": "f",
            "derivatives": 10**9,
            "support": None,
            "padding": 0,
        },
        {
            "kind": "ShiftedBasis",
            "size": 4,
            "function": "f",
            "derivatives": 0,
            "support": 5,
            "padding": 0,
        },
        {
            "kind": "ShiftedBasis",
            "size": 4,
            "function": 7,
            "derivatives": 0,
            "support": None,
            "padding": 0,
        },
        {"kind": "LocalEmbedder", "size": 4},
        {"kind": "Embedder"},
    ],
)
def test_hostile_dictionaries(data):
    with pytest.raises(kf.InputError):
        kf.Embedder.from_dict(data, {"f": abs})


@pytest.mark.parametrize(
    "directions",
    [
        "ab",
        [["1"], ["2"]],
        [[True], [False]],
        [[1.0], [1.0, 2.0]],
        [[1j], [1.0]],
        {},
        [[10**400], [1]],
    ],
)
def test_hostile_directions(directions):
    emb = kf.Gaussian(4, 0.1).to_dict()
    data = {
        "kind": "Concatenated",
        "embedders": [emb, emb],
        "directions": directions,
        "offsets": None,
    }
    with pytest.raises(kf.InputError):
        kf.Encoding.from_dict(data)


def test_encodings_are_of_the_class_asked_for():
    data = kf.Concatenated(kf.Gaussian(4, 0.1)).to_dict()
    with pytest.raises(kf.InputError, match="kind"):
        kf.Kronecker.from_dict(data)
    assert isinstance(kf.Concatenated.from_dict(data), kf.Concatenated)


def test_memorisation_in_float32_and_on_nearly_singular_grids():
    x = kf.even_axis(64)
    assert not kf.can_memorise(kf.Sine(64, 1.0), x.astype(np.float32))
    grid = kf.Kronecker(kf.Gaussian(16, 0.12), kf.Gaussian(16, 0.12))
    axes = [kf.even_axis(16)] * 2
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    together, dense = kf.can_memorise(grid, axes), kf.can_memorise(grid, points)
    assert (together.possible, together.rank) == (dense.possible, dense.rank)
    assert "every axis suffices on its own" in together.reason
    simple = kf.Concatenated(kf.Gaussian(300, 0.01), kf.Gaussian(300, 0.01))
    assert "Kronecker" in kf.can_memorise(simple, points).reason
    assert (
        "no feature reaches"
        in kf.can_memorise(kf.Rectangle(4, 0.01), np.array([0.1, 0.2, 0.25]), bias=True).reason
    )


def test_curves_of_padded_embedders():
    padded = kf.similarity_curve(kf.Triangle(200, 0.2, padding=80), np.array([0.0, 0.05]))
    np.testing.assert_allclose(padded.measured, padded.theory, atol=0.01)


def test_arguments_of_the_tools_are_checked():
    for call in (
        lambda: kf.rank_curve(kf.Sine(8, 1.0), 5),
        lambda: kf.compare([3], 5),
        lambda: kf.numerical_rank(1.0),
        lambda: kf.numerical_rank(np.eye(2), "x"),
        lambda: kf.numerical_rank(np.eye(2), float("nan")),
        lambda: kf.standard_embedders(3),
        lambda: kf.ShiftedBasis(8, abs, abs),
        lambda: kf.ShiftedBasis(8, np.cos).derivative(np.zeros(2)),
        lambda: kf.Kronecker(kf.Impulse(3)).on_grid(np.ones(3, int), [np.zeros(2)]),
        lambda: kf.Kronecker(kf.Impulse(3)).on_grid(torch.ones(3), [np.zeros(2)]),
    ):
        with pytest.raises(kf.InputError):
            call()
    assert kf.Kronecker(kf.Impulse(3)).stable_rank([np.int64(3)]) == 3.0
    assert kf.Kronecker(kf.Impulse(3), kf.Impulse(2))(np.zeros((0, 2))).shape == (0, 6)
    assert kf.Kronecker(kf.Impulse(3)).on_grid(np.ones(3), [np.zeros(0)]).shape == (0,)
    assert torch.is_tensor(kf.even_axis(3, torch.zeros(1)))
    assert torch.is_tensor(kf.RandomFourier(4, 1.0).expected_similarity(torch.zeros(2)))
    assert kf.stable_rank(torch.eye(3, requires_grad=True)) == pytest.approx(3.0)


def test_linear_fourier_theory_stops_where_it_fails():
    x = kf.even_axis(1024)
    assert kf.LinearFourier(1024, 2.9).rank_limit is None
    assert kf.LinearFourier(1024, 1.0).stable_rank(1024) == pytest.approx(
        kf.stable_rank(kf.LinearFourier(1024, 1.0)(x))
    )
