"""The numbers of docs/errata.md: each claim of the paper and its correction are both computed."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

import kronfield as kf

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")


def documented(text):
    """The page must hold this figure, so that code and page cannot drift apart."""
    assert text in PAGE, f"docs/errata.md does not mention {text}"


def test_1_gaussian_without_the_square_is_no_bell():
    def as_printed(x):
        return np.exp(-(x - 0.5) / (2 * 0.1**2))  # "Method Notations": no square

    x = np.array([0.4, 0.5, 0.6])
    assert as_printed(x)[0] == pytest.approx(math.exp(5))  # grows to the left without bound
    documented(f"{math.exp(5):.0f}")
    np.testing.assert_allclose(kf.Gaussian(2, 0.1)(x)[:, 1], np.exp(-((x - 0.5) ** 2) / 0.02))


def test_2_triangle_similarity():
    width = 0.2
    emb = kf.Triangle(8, width)
    d = width / 4

    def hat(t):
        return max(1 - abs(t) / (width / 2), 0)

    def integral(shift):
        return quad(
            lambda t: hat(t) * hat(t - shift), -width, width, points=[0, shift, 0.1, shift - 0.1]
        )[0]

    true, printed = integral(d) / integral(0.0), (1 - d / width) ** 2
    assert true == pytest.approx(float(emb.similarity(d) / emb.similarity(0.0)))
    assert (f"{true:.3f}", f"{printed:.4f}") == ("0.719", "0.5625")
    documented("0.719")
    documented("0.5625")
    # nor is the value at 0 the paper's d^2/4: it is width/3
    assert integral(0.0) == pytest.approx(width / 3)
    assert float(emb.similarity(0.0)) == pytest.approx(width / 3)


def test_3_triangle_stable_rank():
    measured = kf.stable_rank(kf.Triangle(1024, 0.05)(kf.even_axis(1024)))
    assert f"{measured:.1f}" == "26.5"
    documented("26.5")
    documented("26.7")
    assert abs(measured - 4 / (3 * 0.05)) < 0.2 < abs(measured - 1 / 0.05)


def test_4_square_wave_similarity():
    def wave(t):
        return math.copysign(1.0, math.sin(t))

    d = 0.5
    period = 2 * math.pi
    mean = (
        quad(lambda t: wave(t) * wave(t - d), 0, period, points=[d, math.pi, math.pi + d])[0]
        / period
    )
    assert mean == pytest.approx(1 - 2 * d / math.pi)
    assert mean != pytest.approx(1 - 2 * d, abs=0.1)
    assert float(kf.Square(8, 1 / period).similarity(d)) == pytest.approx(mean)
    documented(f"{mean:.3f}")
    assert float(kf.Square(8, 0.5).similarity(d)) == pytest.approx(1 - 2 * d)  # period 2


def test_5_random_fourier_and_gaussian_pair():
    product = 1 / (2 * math.sqrt(2) * math.pi)
    scale = kf.matching_random_fourier(kf.Gaussian(8, 0.01)).scale
    assert 0.01 * scale == pytest.approx(product)
    assert (f"{product:.4f}", f"{scale:.2f}") == ("0.1125", "11.25")
    documented("11.25")
    # the density of frequencies is s^2, not s: integrating the printed s^2/s(0)^2 would give
    # sqrt(pi) sigma
    sigma = 11.25
    as_printed = quad(lambda f: math.exp(-(f**2) / (2 * sigma**2)) ** 2, -np.inf, np.inf)[0]
    assert as_printed == pytest.approx(math.sqrt(math.pi) * sigma)
    assert kf.RandomFourier(8, sigma).rank_limit == pytest.approx(math.sqrt(2 * math.pi) * sigma)
    documented(f"{math.sqrt(math.pi) * sigma:.1f}")
    documented(f"{math.sqrt(2 * math.pi) * sigma:.1f}")


def test_6_closed_form():
    rng = np.random.default_rng(0)
    A, B, S = rng.standard_normal((7, 4)), rng.standard_normal((9, 5)), rng.standard_normal((7, 9))
    inverse = np.linalg.inv
    W = inverse(A.T @ A) @ A.T @ S @ B @ inverse(B.T @ B)  # with Psi of shape (N, K)
    wanted = np.linalg.lstsq(np.kron(A, B), S.ravel())[0]
    np.testing.assert_allclose(W.ravel(), wanted, atol=1e-10)
    with pytest.raises(ValueError, match="matmul"):  # as printed, the shapes do not even fit
        inverse(A.T @ A) @ A @ S @ B.T @ inverse(B.T @ B)


def test_7_blending_corners_are_the_outer_product():
    """Joint least squares on the four corners of a cell gives a0 b0, a0 b1, a1 b0, a1 b1."""
    emb, x, y = kf.Gaussian(64, 0.05), np.array([0.40, 0.42]), np.array([0.70, 0.72])
    point = np.array([[0.405, 0.713]])
    a = np.linalg.lstsq(emb(x).T, emb(point[:, 0])[0])[0]
    b = np.linalg.lstsq(emb(y).T, emb(point[:, 1])[0])[0]
    corners = np.array([[u, v] for u in x for v in y])
    encoding = kf.Kronecker(emb, emb)
    together = np.linalg.lstsq(encoding(corners).T, encoding(point)[0])[0]
    np.testing.assert_allclose(
        together, [a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]], atol=1e-9
    )
    assert abs(together[3] - a[0] * b[0]) > 0.1  # the printed weight of the last corner


def test_8_and_9_distance():
    # ||x1 - x2|| proportional to D cannot be: D is largest at distance 0
    assert float(kf.Gaussian(8, 0.1).similarity(0.0)) > float(kf.Gaussian(8, 0.1).similarity(0.2))
    # proposition 2 in the main text leaves out the factor sqrt(pi) sigma, which is 0.0177 at sigma
    # = 0.01
    assert float(kf.Gaussian(8, 0.01).similarity(0.0)) == pytest.approx(math.sqrt(math.pi) * 0.01)
    documented("0.0177")


def test_10_full_rank_must_mean_rank_n():
    """Full column rank is not enough.

    With a bias, rank N - 1 is enough only if the features do not already span the column of ones.
    """
    few = kf.Gaussian(3, 0.2)
    x = kf.even_axis(6)
    assert kf.numerical_rank(few(x)) == 3  # full rank, but y in R^6 cannot be met
    assert not kf.can_memorise(few, x)


def test_every_erratum_has_a_number_and_a_test():
    numbers = [int(n) for n in re.findall(r"^## (\d+)\.", PAGE, flags=re.MULTILINE)]
    assert numbers == list(range(1, 13))


def test_11_blending_by_similarity_is_not_the_minimiser():
    nodes = np.arange(65) / 64
    points = (nodes[30] + np.linspace(0, 1, 41) / 64)[:, None]
    for emb, wanted in (
        (kf.Triangle(64, 2 / 64), (0.0, 0.150)),
        (kf.Gaussian(64, 0.5 / 64), (0.101, 0.127)),
    ):
        found = [
            float(kf.Blending(kf.Kronecker(emb), [nodes], weights=kind).error(points).max())
            for kind in ("least-squares", "similarity")
        ]
        np.testing.assert_allclose(found, wanted, atol=6e-4)
    for text in ("0.150", "0.101", "0.127"):
        documented(text)


def test_12_twice_the_highest_frequency():
    B, dx = kf.Gaussian(8, 0.03).bandwidth(1e-3), np.linspace(0, 0.1, 6)
    errors = []
    for size in (math.ceil(B), math.ceil(2 * B)):
        emb = kf.Gaussian(size, 0.03)
        exact = emb.similarity(dx)
        gaps = [
            (emb(0.45 + s + 0 * dx) * emb(0.45 + s + dx)).sum(axis=1) / size - exact
            for s in np.linspace(0, 1 / size, 9)
        ]
        errors.append(np.abs(gaps).max() / exact[0])
    assert errors[0] == pytest.approx(0.057, abs=1e-3)
    assert errors[1] < 1e-5
    documented("5.7 %")
