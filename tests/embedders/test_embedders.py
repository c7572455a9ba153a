"""What each embedder is, beyond the contract."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import kronfield as kf
from cases import cosine_bell, positions


def test_the_papers_formulas_by_hand():
    x = np.array([0.3])
    i = np.arange(4)
    np.testing.assert_allclose(
        kf.Gaussian(4, 0.2)(x)[0], np.exp(-((0.3 - i / 4) ** 2) / (2 * 0.2**2))
    )
    np.testing.assert_allclose(
        kf.Triangle(4, 0.4)(x)[0], np.maximum(1 - np.abs((0.3 - i / 4) / 0.2), 0)
    )
    np.testing.assert_allclose(
        kf.Sine(4, 2.0)(x)[0], np.sin(2 * np.pi * 2 * (i / 4 - 0.3)), atol=1e-15
    )
    j = np.arange(2)
    linear = (2 - j) / 2 * 2**0 + j / 2 * 2**3.0
    angles = 2 * np.pi * linear * 0.3
    np.testing.assert_allclose(
        kf.LinearFourier(4, 3.0)(x)[0], np.stack([np.cos(angles), np.sin(angles)], 1).ravel()
    )
    angles = 2 * np.pi * 2 ** (3.0 * j / 2) * 0.3
    np.testing.assert_allclose(
        kf.LogFourier(4, 3.0)(x)[0], np.stack([np.cos(angles), np.sin(angles)], 1).ravel()
    )
    rff = kf.RandomFourier(4, 5.0, seed=1)
    angles = 2 * np.pi * rff.frequencies * 0.3
    np.testing.assert_allclose(rff(x)[0], np.concatenate([np.cos(angles), np.sin(angles)]))


@given(size=st.integers(1, 60), padding=st.integers(0, 5))
def test_centres(size, padding):
    plain = kf.Gaussian(size, 0.1)
    assert np.array_equal(plain.centres, np.arange(size) / size)
    if size > 2 * padding:
        padded = kf.Gaussian(size, 0.1, padding=padding)
        inside = size - 2 * padding
        np.testing.assert_allclose(padded.centres, (np.arange(size) - padding) / inside, rtol=1e-15)
        assert padded.spacing == 1 / inside
    else:
        with pytest.raises(kf.InputError, match="padding"):
            kf.Gaussian(size, 0.1, padding=padding)


@pytest.mark.parametrize("kind", [kf.Gaussian, kf.Triangle, kf.Rectangle])
@pytest.mark.parametrize("width", [0.01, 0.05, 0.2])
def test_automatic_padding_covers_the_edge_as_well_as_the_middle(kind, width):
    plain, padded = kind(400, width), kind(400, width, padding="auto")
    # at the same places between centres, the features are the same at both ends and in the middle
    place = np.linspace(0.013, 0.973, 7) * padded.spacing
    inside = round(1 / padded.spacing)
    left, middle, right = (
        np.sort(padded(place + i / inside), axis=1) for i in (0, inside // 2, inside - 1)
    )
    np.testing.assert_allclose(left, middle, atol=2e-6)
    np.testing.assert_allclose(right, middle, atol=2e-6)
    assert plain(place[:1]).sum() < 0.8 * plain(place[:1] + 0.5).sum()
    assert padded.to_dict()["padding"] == padded.padding > 0


def test_padding_is_checked():
    for padding in (-1, 1.5, "all", None):
        with pytest.raises(kf.InputError, match="padding: got"):
            kf.Triangle(16, 0.1, padding=padding)
    with pytest.raises(kf.InputError, match="Pass support="):
        # no support, so no number of centres is enough
        kf.ShiftedBasis(16, cosine_bell, padding="auto")


@given(size=st.integers(1, 50), seed=st.integers(0, 50))
def test_impulse_is_one_hot_of_the_nearest_centre(size, seed):
    emb = kf.Impulse(size)
    x = positions(20, seed=seed)
    hot = emb(x)
    assert np.array_equal(hot.sum(axis=1), np.ones(20))
    distance = np.abs(x[:, None] - emb.centres[None, :])
    chosen = np.argmax(hot, axis=1)
    np.testing.assert_allclose(distance[np.arange(20), chosen], distance.min(axis=1), atol=1e-12)


def test_impulse_stable_rank_is_exact():
    for size, n in ((16, 4), (16, 16), (16, 64), (7, 50), (50, 7)):
        emb = kf.Impulse(size)
        assert emb.stable_rank(n) == pytest.approx(kf.stable_rank(emb(kf.even_axis(n))))


def test_a_box_as_wide_as_the_spacing_is_nearest_neighbour():
    x = np.arange(32) / 32 + 1e-3
    assert np.array_equal(kf.Rectangle(8, 1 / 8)(x)[:28], kf.Impulse(8)(x)[:28])


def test_triangle_kinks_take_the_mean_of_both_sides():
    emb = kf.Triangle(2, 0.5)  # centres 0 and 0.5, half width 0.25
    np.testing.assert_allclose(
        emb.derivative(np.array([0.0, 0.25, 0.125]))[:, 0], [0.0, -2.0, -4.0]
    )


def test_square_is_the_sign_of_the_sine():
    x = positions(300)
    for f in (0.5, 1.0, 3.3):
        assert np.array_equal(kf.Square(20, f)(x), np.sign(kf.Sine(20, f)(x)))
    assert kf.Square(1, 1.0)(np.array([0.0, 0.5, -0.5, 2.0])).tolist() == [[0.0]] * 4


def test_random_fourier_draws():
    a, b, c = (kf.RandomFourier(4096, 7.0, seed=s).frequencies for s in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert np.std(a) == pytest.approx(7.0, rel=0.05)
    rff = kf.RandomFourier(40000, 7.0, seed=3)
    d = np.array([0.0, 0.01, 0.03])
    np.testing.assert_allclose(
        rff.similarity(d) / 20000, rff.expected_similarity(d) / 20000, atol=0.02
    )
    a[:] = 0  # what a caller gets is a copy
    assert kf.RandomFourier(4096, 7.0, seed=0).frequencies.any()
    for seed in (-1, 1.5, None, "x"):
        with pytest.raises(kf.InputError, match="seed: got"):
            kf.RandomFourier(8, 1.0, seed=seed)


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_random_fourier_in_several_dimensions(library):
    rff = kf.RandomFourier(6, 2.0, seed=0, dimensions=3)
    x = np.random.default_rng(0).random((5, 3))
    angles = 2 * np.pi * x @ rff.frequencies.T
    np.testing.assert_allclose(
        rff(library(x)), np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    )
    np.testing.assert_allclose(rff.similarity(library(x[0] - x[1])), rff(x)[0] @ rff(x)[1])
    assert rff.expected_similarity(np.zeros(3)) == 3.0
    with pytest.raises(kf.InputError, match=r"shape \(P, 3\)"):
        rff(x[:, 0])
    with pytest.raises(kf.InputError, match=r"\(\.\.\., 3\)"):
        rff.similarity(np.zeros(2))
    with pytest.raises(kf.InputError, match="one axis"):
        rff.derivative(x)


def test_shifted_basis_is_any_function():
    gaussian = kf.Gaussian(30, 0.05)
    same = kf.ShiftedBasis(30, lambda u: np.exp(-(u**2) / (2 * 0.05**2)))
    x = positions(20)
    np.testing.assert_allclose(same(x), gaussian(x), rtol=1e-12)
    d = np.linspace(-0.3, 0.3, 11)
    np.testing.assert_allclose(same.similarity(d), gaussian.similarity(d), atol=1e-12)
    assert same.bandwidth() == pytest.approx(gaussian.bandwidth(), rel=0.01)
    cut = kf.ShiftedBasis(1024, same.function, support=(-0.5, 0.5))
    assert cut.rank_limit == pytest.approx(gaussian.rank_limit, rel=1e-9)
    assert same.rank_limit is None
    assert same.stable_rank(64) == pytest.approx(kf.stable_rank(same(kf.even_axis(64))))


def test_shifted_basis_with_an_uneven_function():
    """psi(t - x), not psi(x - t)."""
    ramp = kf.ShiftedBasis(4, lambda u: u)
    assert ramp(np.array([0.25]))[0].tolist() == [-0.25, 0.0, 0.25, 0.5]


def test_shifted_basis_refuses():
    with pytest.raises(kf.InputError, match="function"):
        kf.ShiftedBasis(4, 3)
    with pytest.raises(kf.InputError, match="at most 2"):
        kf.ShiftedBasis(4, cosine_bell, (cosine_bell,) * 3)
    for support in ((0.1, -0.1), (0, float("nan")), 3, (1, 2, 3)):
        with pytest.raises(kf.InputError, match="support"):
            kf.ShiftedBasis(4, cosine_bell, support=support)
    with pytest.raises(kf.InputError, match="same shape and dtype"):
        kf.ShiftedBasis(4, lambda u: u.sum())(positions(3))
    with pytest.raises(kf.InputError, match="same shape and dtype"):
        kf.ShiftedBasis(4, lambda u: u > 0)(positions(3))
    with pytest.raises(kf.InputError, match="name"):
        kf.ShiftedBasis(4, lambda u: u).to_dict()
    with pytest.raises(kf.InputError, match="never code"):
        kf.Embedder.from_dict(kf.ShiftedBasis(4, cosine_bell).to_dict())
    with pytest.raises(kf.InputError, match="gradient"):
        kf.ShiftedBasis(4, cosine_bell).similarity(torch.zeros(2, requires_grad=True))
    with pytest.raises(kf.InputError, match="did not converge"), np.errstate(all="ignore"):
        kf.ShiftedBasis(4, lambda u: np.abs(u - 0.1) ** -0.99, support=(0, 1)).similarity(
            np.zeros(1)
        )


def test_extreme_widths_stay_finite():
    x = np.array([0.0, 0.3, 1.0])
    for kind in (kf.Gaussian, kf.Triangle, kf.Rectangle):
        for width in (2.0**-52, 1e-12, 1e12):
            emb = kind(8, width)
            for dtype in (np.float32, np.float64):
                for order in range(emb.smoothness + 1):
                    assert np.all(np.isfinite(emb.derivative(x.astype(dtype), order)))


@pytest.mark.parametrize(
    "emb", [kf.Gaussian(8, 0.05), kf.Triangle(8, 0.05), kf.Rectangle(8, 0.05)], ids=repr
)
def test_bandwidth_bounds_the_spectrum(emb):
    """Against the Fourier transform of the similarity, which is the square of the spectrum."""
    for tolerance in (0.1, 0.03):
        f = emb.bandwidth(tolerance)
        t = (np.arange(400_000) + 0.5) / 400_000 - 0.5
        D = emb.similarity(t)
        power = [np.mean(D * np.cos(2 * np.pi * g * t)) for g in np.linspace(f, 3 * f, 50)]
        assert np.sqrt(np.max(np.maximum(power, 0)) / np.mean(D)) <= tolerance * 1.01


def test_reach_of_the_gaussian():
    emb = kf.Gaussian(8, 0.05)
    peak = float(kf.Gaussian(1, 0.05)(np.array([emb.reach(1e-4)]))[0, 0])
    assert peak == pytest.approx(1e-4)
    assert kf.Sine(8, 1.0).reach() == math.inf
    for tolerance in (0.0, -1.0, 2.0, float("nan")):
        with pytest.raises(kf.InputError, match="tolerance"):
            emb.reach(tolerance)
