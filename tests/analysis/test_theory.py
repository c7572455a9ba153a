"""Section 4 and appendix A: measured against theoretical stable rank, and the rank rules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import toeplitz

import kronfield as kf
from effort import examples

N = 1024
X = np.arange(N) / N


@pytest.mark.parametrize("width", [0.003, 0.01, 0.02, 0.03, 0.07])
def test_gaussian_stable_rank(width):
    emb = kf.Gaussian(N, width)
    assert kf.stable_rank(emb(X)) == pytest.approx(1 / (2 * math.sqrt(math.pi) * width), rel=0.03)
    assert emb.stable_rank(N) == pytest.approx(kf.stable_rank(emb(X)), rel=0.03)


@pytest.mark.parametrize("width", [0.01, 0.02, 0.05, 0.1, 0.2])
def test_triangle_stable_rank(width):
    emb = kf.Triangle(N, width)
    assert kf.stable_rank(emb(X)) == pytest.approx(4 / (3 * width), rel=0.03)
    assert emb.stable_rank(N) == pytest.approx(4 / (3 * width))


@pytest.mark.parametrize("width", [16 / N, 32 / N, 64 / N, 128 / N])
def test_rectangle_stable_rank(width):
    # Boxes of a whole number of samples; else their sampled width alternates between two numbers
    # and theory is off.
    emb = kf.Rectangle(N, width)
    assert kf.stable_rank(emb(X)) == pytest.approx(1 / width, rel=0.03)
    assert emb.stable_rank(N) == pytest.approx(1 / width)


@pytest.mark.parametrize("scale", [4.0, 11.25])
def test_random_fourier_stable_rank(scale):
    # Theory holds for many features: 2^17 of them. On even positions the Gram matrix Psi Psi' is
    # Toeplitz, its entries the similarity, so that no (1024, 2^17) matrix is needed.
    gram = toeplitz(sum(kf.RandomFourier(1 << 15, scale, seed=s).similarity(X) for s in range(4)))
    rank = np.trace(gram) / np.linalg.eigvalsh(gram)[-1]
    assert rank == pytest.approx(math.sqrt(2 * math.pi) * scale, rel=0.03)
    assert kf.RandomFourier(1 << 15, scale).stable_rank(N) == pytest.approx(rank, rel=0.03)


def test_the_toeplitz_short_cut_is_the_gram_matrix():
    emb = kf.RandomFourier(64, 5.0, seed=2)
    x = kf.even_axis(32)
    np.testing.assert_allclose(toeplitz(emb.similarity(x)), emb(x) @ emb(x).T, atol=1e-11)


@pytest.mark.parametrize("exponent", [3.0, 3.4, 4.0, 5.0, 6.5])
def test_linear_fourier_stable_rank(exponent):
    emb = kf.LinearFourier(N, exponent)
    assert kf.stable_rank(emb(X)) == pytest.approx(emb.rank_limit, rel=0.03)


@pytest.mark.parametrize("frequency", [0.3, 0.5, 1.0, 2.0, 3.7, 11.0])
@pytest.mark.parametrize("size", [512, 1024])
def test_sine_has_rank_two_and_square_nearly(frequency, size):
    sine = kf.Sine(size, frequency)(X)
    assert kf.numerical_rank(sine) == 2
    assert kf.stable_rank(sine) == pytest.approx(2.0, rel=0.01)
    assert kf.Sine(size, frequency).stable_rank(N) == 2.0
    assert kf.stable_rank(kf.Square(size, frequency)(X)) == pytest.approx(math.pi**2 / 4, rel=0.03)


@given(st.integers(1, 40), st.floats(0.05, 20))
def test_sine_rank_never_exceeds_two(n, frequency):
    assert (
        kf.numerical_rank(
            kf.Sine(33, frequency)(np.random.default_rng(n).random(n)), tolerance=1e-12
        )
        <= 2
    )


def test_rank_grows_with_samples_then_stays():
    curve = kf.rank_curve(kf.Gaussian(1024, 0.01, padding="auto"), [4, 8, 16, 256, 1024])
    assert curve.measured[0] == pytest.approx(4, rel=0.01)
    assert curve.measured[2] == pytest.approx(16, rel=0.02)
    assert curve.measured[3] == pytest.approx(curve.measured[4], rel=0.01)
    assert curve.theory == pytest.approx([4, 8, 16, 28.209, 28.209], rel=1e-3)
    assert kf.rank_curve(kf.LogFourier(64, 4.0), [8]).theory is None
    assert kf.rank_curve(kf.Impulse(64), [8]).theory == (8.0,)


def test_stable_rank_theory_is_bounded_by_samples_and_features():
    emb = kf.Gaussian(10, 0.001)
    assert emb.stable_rank(5) == 5
    assert emb.stable_rank(1000) == 10


@given(
    sizes=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=4),
    width=st.floats(0.05, 0.5),
)
@settings(max_examples=examples(40), deadline=None)
def test_kronecker_rank_is_the_product(sizes, width):
    encoding = kf.Kronecker(*(kf.Gaussian(k, width) for _, k in sizes))
    axes = [kf.even_axis(n) for n, _ in sizes]
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    dense = encoding(points)
    assert encoding.stable_rank(axes) == pytest.approx(kf.stable_rank(dense), rel=1e-9)
    ranks = [kf.numerical_rank(m, 1e-9) for m in encoding.matrices(axes)]
    values, total = kf.spectrum(dense), math.prod(map(min, sizes))
    np.testing.assert_allclose(kf.kronecker_spectrum(encoding, axes), values[:total], atol=1e-12)
    if values[math.prod(ranks) - 1] > 1e-6:  # where the cut is clear
        assert kf.numerical_rank(dense, 1e-9) >= math.prod(ranks)
    np.testing.assert_allclose(
        kf.kronecker_spectrum(encoding, axes, count=3), values[: min(3, total)], atol=1e-12
    )


def test_kronecker_rank_by_theory():
    encoding = kf.Kronecker(kf.Gaussian(1024, 0.01), kf.Triangle(1024, 0.05))
    assert encoding.stable_rank([1024, 1024]) == pytest.approx(28.209 * 26.667, rel=1e-4)
    with pytest.raises(kf.InputError, match="axes"):
        encoding.stable_rank([1024])


@pytest.mark.parametrize(
    "emb", [kf.Gaussian(32, 0.05), kf.Triangle(32, 0.1), kf.LogFourier(32, 3.0)], ids=repr
)
def test_a_linear_model_on_the_simple_encoding_has_rank_two_at_most(emb):
    x = kf.even_axis(20)
    points = np.stack([g.ravel() for g in np.meshgrid(x, x, indexing="ij")], axis=1)
    weights = np.random.default_rng(0).standard_normal(64)
    image = (kf.Concatenated(emb, emb)(points) @ weights).reshape(20, 20)
    assert kf.numerical_rank(image, 1e-10) == 2
    rich = kf.Kronecker(emb, emb).on_grid(
        weights[:32, None] * weights[None, 32:] + np.eye(32), [x, x]
    )
    assert kf.numerical_rank(rich, 1e-10) > 10


def test_stable_rank_refuses():
    for bad, words in (
        (np.zeros((3, 3)), "all zeros"),
        (np.zeros((0, 3)), "N, K >= 1"),
        (np.zeros(3), "N, K >= 1"),
        (np.eye(3, dtype=int), "real floats"),
        (np.full((2, 2), np.nan), "NaN"),
    ):
        for call in (kf.stable_rank, kf.spectrum, kf.numerical_rank):
            with pytest.raises(kf.InputError, match=words):
                call(bad)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-200, 1e200))
def test_stable_rank_against_its_definition(n, k, scale):
    A = np.random.default_rng(n * 13 + k).standard_normal((n, k))
    wanted = np.linalg.norm(A, "fro") ** 2 / np.linalg.norm(A, 2) ** 2
    assert kf.stable_rank(scale * A) == pytest.approx(wanted)
    assert 1 - 1e-9 <= kf.stable_rank(A) <= min(n, k) + 1e-9
