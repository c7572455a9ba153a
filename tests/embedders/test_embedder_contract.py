"""What every embedder promises, whatever its formula."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad

import kronfield as kf
from cases import EMBEDDERS, FUNCTIONS, LIBRARIES, SMOOTH, each_embedder, each_library, positions
from effort import examples

# Agreement between libraries: their exp, sin and cos differ in the last digit, and phases are
# amplified by 2 pi f.
FOURIER = (kf.RandomFourier, kf.LinearFourier, kf.LogFourier)
ROUNDING = {np.float32: 1e-4, np.float64: 1e-12}


@each_embedder
@each_library
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_formula_in_every_library(emb, library, dtype):
    to, back = LIBRARIES[library]
    x = positions(40, dtype)
    for call in (emb, *(lambda v, o=o: emb.derivative(v, o) for o in range(1, emb.smoothness + 1))):
        ours, theirs = call(x), back(call(to(x)))
        assert theirs.shape == (40, emb.size)
        assert theirs.dtype == ours.dtype == dtype
        np.testing.assert_allclose(
            theirs, ours, rtol=0, atol=ROUNDING[dtype] * max(1, np.abs(ours).max())
        )
    d = positions(10, dtype, low=-0.5, high=0.5)
    np.testing.assert_allclose(
        back(emb.similarity(to(d))), emb.similarity(d), atol=ROUNDING[dtype] * emb.size
    )
    assert back(emb.similarity(to(d))).dtype == dtype


@each_embedder
@given(data=st.data())
@settings(max_examples=examples(15), deadline=None)
def test_a_row_depends_on_its_own_position_only(emb, data):
    n = data.draw(st.integers(1, 30))
    x = positions(n, seed=data.draw(st.integers(0, 99)))
    i = data.draw(st.integers(0, n - 1))
    assert np.array_equal(emb(x)[i], emb(x[i : i + 1])[0])


@each_embedder
def test_float32_is_close_to_float64(emb):
    jumps = isinstance(emb, kf.Impulse | kf.Rectangle | kf.Square)
    x = emb.centres[:5] + 0.13 / emb.size if jumps else positions(50)  # away from the jumps
    np.testing.assert_allclose(emb(x.astype(np.float32)), emb(x), atol=1e-4)


@pytest.mark.parametrize("emb", SMOOTH, ids=repr)
def test_derivatives_against_central_differences(emb):
    x = positions(60, seed=3)
    for order in range(1, emb.smoothness + 1):
        h = 1e-6
        if isinstance(emb, kf.Triangle):  # kinks: keep away from them
            u = np.abs(emb.centres[None, :] - x[:, None])
            x = x[np.min(np.minimum(u, np.abs(u - emb.width / 2)), axis=1) > 2 * h]
        difference = (emb.derivative(x + h, order - 1) - emb.derivative(x - h, order - 1)) / (2 * h)
        exact = emb.derivative(x, order)
        np.testing.assert_allclose(exact, difference, atol=1e-7 * np.abs(exact).max())
    assert len(x) > 10


@pytest.mark.parametrize("emb", SMOOTH, ids=repr)
def test_autograd_gives_the_derivative(emb):
    x = torch.tensor(positions(20, seed=4), requires_grad=True)
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal(emb.size))
    (slope,) = torch.autograd.grad((emb(x) @ weights).sum(), x, create_graph=emb.smoothness > 1)
    torch.testing.assert_close(slope, emb.derivative(x.detach()) @ weights)
    if emb.smoothness > 1:
        (bend,) = torch.autograd.grad(slope.sum(), x)
        torch.testing.assert_close(bend, emb.derivative(x.detach(), 2) @ weights)


@pytest.mark.parametrize("emb", [e for e in EMBEDDERS if e.smoothness < 2], ids=repr)
def test_a_derivative_that_does_not_exist_is_refused(emb):
    with pytest.raises(kf.InputError, match=r"order: got .*expected at most"):
        emb.derivative(positions(3), emb.smoothness + 1)


@each_embedder
def test_similarity_is_the_inner_product(emb):
    """By quadrature over t for shifted functions, by the sum over features for Fourier."""
    for d in (0.0, 0.031, 0.1, -0.27):
        if isinstance(emb, FOURIER):
            x1, x2 = np.array([0.4]), np.array([0.4 - d])
            wanted = float(np.sum(emb(x1) * emb(x2)))
        else:
            wanted = _integral(emb, d)
        assert float(emb.similarity(np.array([d]))[0]) == pytest.approx(wanted, abs=2e-7)


def _integral(emb, d):
    """Integrate psi(t - x1) psi(t - x2) over t, with psi from the formula at one centre."""
    if isinstance(emb, kf.Impulse):
        emb = kf.Rectangle(1, emb.spacing)
    if isinstance(emb, kf.Wrapped) and isinstance(emb.embedder, kf.Impulse):
        emb = kf.Wrapped(kf.Rectangle(emb.size, emb.spacing))

    i = emb.size // 2  # B-splines have another shape at the ends

    def psi(u):  # feature i sits at c, so psi(u) is its value at x = c - u
        return float(emb(np.array([emb.centres[i] - u]))[0, i])

    period = 1 / emb.frequency if emb.shape_parameter == "frequency" else emb.period
    low, high = (0.0, period) if period else (-0.8, 0.8)
    breaks = {0.0, d}
    if emb.support is not None:
        breaks |= {end + s for end in emb.support for s in (0.0, d)}
    if period == 1.0:
        breaks = {b % period for b in breaks}
    elif period:
        breaks |= {(s + k * period / 2) % period for s in (0.0, d) for k in range(2)}
    inside = sorted(b for b in breaks if low < b < high)
    value = quad(lambda t: psi(t) * psi(t - d), low, high, points=inside, limit=400)[0]
    return value / period if period else value


@pytest.mark.parametrize("emb", [e for e in EMBEDDERS if not isinstance(e, FOURIER)], ids=repr)
def test_sampled_inner_products_approach_the_similarity(emb):
    """K features spaced 1/K sum to K times the integral (in the middle of the domain)."""
    data = emb.to_dict()
    inner = data.get("embedder", data)  # of wrapped features, the one on the line
    inner["size"] = 24 * 64 + (inner["degree"] if "embedder" in data and "degree" in inner else 0)
    fine = kf.Embedder.from_dict(data, FUNCTIONS)
    curve = kf.similarity_curve(fine, np.array([0.0, 0.011, 0.05, 0.2]))
    if emb.shape_parameter == "frequency":
        # else the inner product over [0, 1] depends on the position
        assert emb.frequency * 2 % 1 == 0
    np.testing.assert_allclose(curve.measured, curve.theory, atol=0.01)


@each_embedder
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.7), (-0.1, 1.05), (0.6, 0.3), (0.4, 0.4)])
def test_integral_against_quadrature(emb, low, high):
    x = low + (high - low) * (np.arange(200_000) + 0.5) / 200_000
    wanted = sum(emb(part).sum(axis=0) for part in np.split(x, 20)) * (high - low) / 200_000
    np.testing.assert_allclose(
        emb.integral(low, high), wanted, atol=2e-5 if emb.smoothness == 0 else 1e-9
    )


@each_embedder
def test_dictionary_round_trip(emb):
    data = json.loads(json.dumps(emb.to_dict()))
    again = kf.Embedder.from_dict(data, FUNCTIONS)
    assert again == emb
    assert hash(again) == hash(emb)
    x = positions(7)
    assert np.array_equal(again(x), emb(x))
    assert type(emb).from_dict(data, FUNCTIONS) == emb
    for damaged in (
        {**data, "kind": "Evil"},
        {**data, "extra": 1},
        {k: v for k, v in data.items() if k not in ("size", "embedder")},
        3,
    ):
        with pytest.raises(kf.InputError):
            kf.Embedder.from_dict(damaged, FUNCTIONS)
    other = kf.Sine if not isinstance(emb, kf.Sine) else kf.Square
    with pytest.raises(kf.InputError, match="kind"):
        other.from_dict(data, FUNCTIONS)


@each_embedder
@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.arange(3), "int64"),
        (np.zeros((3, 1)), r"shape \(3, 1\)"),
        (np.float64(0.5), r"shape \(N,\)"),
        (np.array([0.1, np.nan]), "NaN or inf"),
        (np.array([0.1, np.inf]), "NaN or inf"),
        (np.array([0.1 + 1j]), "complex"),
        (np.array(["a"]), "floats"),
        (object(), "floats"),
        ([[0.1], [0.2, 0.3]], "floats"),
        (torch.arange(3), "int64"),
        (torch.zeros(3, 1), r"shape \(3, 1\)"),
    ],
)
def test_bad_positions_are_refused(emb, x, words):
    with pytest.raises(kf.InputError, match=words) as caught:
        emb(x)
    assert str(caught.value).startswith("x: got ")


@each_embedder
def test_no_positions_give_no_rows(emb):
    assert emb(np.zeros(0)).shape == (0, emb.size)


@each_embedder
def test_lists_and_objects_with_array_are_taken(emb):
    class Series:
        def __array__(self, dtype=None, copy=None):
            return np.array([0.25, 0.5], dtype=dtype)

    assert np.array_equal(emb([0.25, 0.5]), emb(np.array([0.25, 0.5])))
    assert np.array_equal(emb(Series()), emb(np.array([0.25, 0.5])))


@each_embedder
def test_size_is_checked(emb):
    data = emb.to_dict()
    for size in (0, -4, 2.5, True, "8", None, float("nan")):
        wrong = {**data, "size": size}
        if "embedder" in data:
            wrong = {**data, "embedder": {**data["embedder"], "size": size}}
        with pytest.raises(kf.InputError, match="size: got"):
            kf.Embedder.from_dict(wrong, FUNCTIONS)
    if isinstance(emb, FOURIER):
        with pytest.raises(kf.InputError, match="even number"):
            kf.Embedder.from_dict({**data, "size": 7})


@pytest.mark.parametrize("emb", [e for e in EMBEDDERS if e.shape_parameter], ids=repr)
def test_the_shape_parameter_is_checked(emb):
    name = emb.shape_parameter
    bad = [float("nan"), float("inf"), -1.0, "wide", None, True, 1 + 2j]
    for value in bad if name == "exponent" else [0.0, *bad]:
        with pytest.raises(kf.InputError, match=f"{name}: got"):
            kf.Embedder.from_dict({**emb.to_dict(), name: value})


@each_embedder
def test_frozen_hashable_and_readable(emb):
    with pytest.raises(AttributeError):
        emb.size = 3
    assert repr(emb).startswith(type(emb).__name__)
    assert f"size={getattr(emb, 'embedder', emb).size}" in repr(emb)
    assert emb.stable_rank(1) == pytest.approx(1.0)
    with pytest.raises(kf.InputError, match="n: got 0"):
        emb.stable_rank(0)


@each_embedder
def test_support_holds_every_feature(emb):
    if emb.support is None or isinstance(emb, kf.Impulse):
        return
    x = positions(200, seed=8)
    u = emb.centres[None, :] - x[:, None]
    outside = (u < emb.support[0]) | (u > emb.support[1])
    assert np.all(emb(x)[outside] == 0)
    assert emb.reach() == max(map(abs, emb.support))
