"""The theory as tools."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad

import kronfield as kf
from cases import cosine_bell

LINE = kf.even_axis(64)


# Memorisation
# ------------------------------------------------------------------------------------------


def test_memorised_values_are_memorised():
    rng = np.random.default_rng(0)
    for emb in (kf.Gaussian(64, 0.01), kf.Impulse(64), kf.Triangle(64, 0.03)):
        answer = kf.can_memorise(emb, LINE)
        assert answer
        assert (answer.rank, answer.samples, answer.features) == (64, 64, 64)
        y = rng.standard_normal(64)
        weights = np.linalg.lstsq(emb(LINE), y)[0]
        np.testing.assert_allclose(emb(LINE) @ weights, y, atol=1e-6)
        assert answer.smallest == pytest.approx(1 / np.linalg.cond(emb(LINE)), rel=1e-3)


@pytest.mark.parametrize(
    ("emb", "x", "reason"),
    [
        (kf.Gaussian(32, 0.01), LINE, "32 features are fewer than 64 samples"),
        (kf.Gaussian(64, 0.01), np.array([0.1, 0.2, 0.1]), "positions 0 and 2 are the same"),
        (kf.Rectangle(64, 0.001), np.array([0.0, 0.5 / 64, 0.25]), "no feature reaches position 1"),
        (kf.Impulse(8), np.array([0.0, 0.01]), "positions 0 and 1 have the same features"),
        (kf.Gaussian(64, 0.5), LINE, "too similar"),
        (kf.Rectangle(4, 0.01), np.array([0.1, 0.9]), "no feature reaches position 0"),
    ],
)
def test_why_not(emb, x, reason):
    answer = kf.can_memorise(emb, x)
    assert not answer
    assert answer.rank < answer.samples
    assert reason in answer.reason


def test_a_bias_gives_one_rank_more():
    """Rank N - 1 is enough with a bias, if the ones are not among the features already."""
    x = np.array([0.1, 0.2, 0.4])
    without = kf.can_memorise(kf.Sine(8, 1.0), x)
    assert (bool(without), without.rank) == (False, 2)
    assert kf.can_memorise(kf.Sine(8, 1.0), x, bias=True)
    halves = kf.Rectangle(2, 0.5, padding=0)  # the two boxes sum to one: a bias adds nothing
    inside = np.array([0.05, 0.3, 0.1])
    assert (
        kf.can_memorise(halves, inside, bias=True).rank == kf.can_memorise(halves, inside).rank == 2
    )


def test_grids_are_memorised_axis_by_axis():
    good = kf.Kronecker(kf.Gaussian(16, 0.04), kf.Triangle(16, 0.1))
    axes = [kf.even_axis(12), kf.even_axis(16)]
    answer = kf.can_memorise(good, axes)
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    dense = kf.can_memorise(good, points)
    assert answer
    assert dense
    assert (
        (answer.rank, answer.samples, answer.features)
        == (192, 192, 256)
        == (dense.rank, dense.samples, dense.features)
    )
    assert answer.stable_rank == pytest.approx(dense.stable_rank)
    assert answer.smallest == pytest.approx(dense.smallest)
    bad = kf.can_memorise(kf.Kronecker(kf.Gaussian(16, 0.04), kf.Sine(16, 1.0)), axes)
    assert not bad
    assert bad.reason.startswith("on axis 1, the rank is 2")
    simple = kf.can_memorise(kf.Concatenated(kf.Gaussian(16, 0.04), kf.Triangle(16, 0.1)), points)
    assert simple.rank < 32
    with pytest.raises(kf.InputError, match="bias"):
        kf.can_memorise(good, axes, bias=True)
    with pytest.raises(kf.InputError, match="at least one"):
        kf.can_memorise(kf.Gaussian(4, 0.1), np.zeros(0))


# Distance
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "emb", [kf.Gaussian(256, 0.05), kf.Triangle(256, 0.3), kf.Rectangle(256, 0.2)], ids=repr
)
@pytest.mark.parametrize("length", [1.0, 0.3])
def test_distance_preservation_against_quadrature(emb, length):
    """Minus the correlation of d and D(d) over d uniform on [0, length], by adaptive quadrature."""

    def mean(f):
        return (
            quad(f, 0, length, points=[min(emb.width, length) / 2], limit=300, epsabs=1e-12)[0]
            / length
        )

    def D(d):
        return float(emb.similarity(d))

    d1, D1 = mean(lambda d: d), mean(D)
    wanted = -mean(lambda d: (d - d1) * (D(d) - D1)) / math.sqrt(
        mean(lambda d: (d - d1) ** 2) * mean(lambda d: (D(d) - D1) ** 2)
    )
    assert kf.distance_preservation(emb, length) == pytest.approx(wanted, abs=1e-5)
    assert kf.distance_preservation(emb, length, measured=True) == pytest.approx(wanted, abs=0.03)


def test_the_trade_off():
    """Wider means less rank and better distance preservation.

    The square wave preserves distance perfectly, the impulse not at all.
    """
    widths = [0.003, 0.01, 0.03, 0.1]
    ranks = [kf.Gaussian(256, w).stable_rank(256) for w in widths]
    scores = [kf.distance_preservation(kf.Gaussian(256, w)) for w in widths]
    assert ranks == sorted(ranks, reverse=True)
    assert scores == sorted(scores)
    assert kf.distance_preservation(kf.Square(64, 0.5)) == pytest.approx(1.0)
    assert kf.distance_preservation(kf.Sine(64, 0.5)) == pytest.approx(0.9927, abs=1e-3)
    assert kf.distance_preservation(kf.Impulse(4096)) < 0.05
    assert kf.distance_preservation(kf.ShiftedBasis(8, lambda u: 1 + 0 * u)) == 0.0
    for length in (0, -1, 2, float("nan"), None):
        with pytest.raises(kf.InputError, match="length"):
            kf.distance_preservation(kf.Sine(64, 0.5), length)


@pytest.mark.parametrize("digits", [0.5, 1, 2, 3, 6])
@pytest.mark.parametrize("width", [0.001, 0.02])
def test_range_of_the_gaussian_is_the_papers(width, digits):
    length = kf.preserved_range(kf.Gaussian(64, width), digits)
    assert width == pytest.approx(length / (2 * math.sqrt(digits * math.log(10))))
    assert kf.width_for_range(kf.Gaussian, length, digits) == pytest.approx(width)


@pytest.mark.parametrize("kind", [kf.Gaussian, kf.Triangle, kf.Rectangle, kf.Sine, kf.Square])
@given(length=st.floats(0.01, 0.4), digits=st.floats(0.3, 5))
def test_width_for_range(kind, length, digits):
    emb = kind(64, kf.width_for_range(kind, length, digits))
    assert kf.preserved_range(emb, digits) == pytest.approx(length, rel=1e-6)
    d = length * np.array([0.3, 0.9, 1 - 1e-6, 1 + 1e-6])
    above = emb.similarity(d) / emb.similarity(0.0) >= 10**-digits
    assert above.tolist() == [True, True, True, False]


def test_range_of_random_fourier_in_the_mean():
    scale = kf.width_for_range(kf.RandomFourier, 0.05, 2)
    rff = kf.RandomFourier(16, scale)
    assert rff.expected_similarity(0.05) / rff.expected_similarity(0.0) == pytest.approx(0.01)


def test_range_edge_cases():
    assert kf.preserved_range(kf.Gaussian(8, 100.0)) == 1.0
    assert kf.preserved_range(kf.Impulse(64)) == pytest.approx(0.999 / 64)
    with pytest.raises(kf.InputError, match="kind"):
        kf.width_for_range(kf.LogFourier, 0.1)
    for digits in (0, -1, float("nan"), "x"):
        with pytest.raises(kf.InputError, match="digits"):
            kf.preserved_range(kf.Gaussian(8, 0.1), digits)


def test_similarity_curve():
    curve = kf.similarity_curve(kf.Square(512, 0.5))
    np.testing.assert_allclose(curve.theory, 1 - 2 * curve.distances, atol=1e-12)
    np.testing.assert_allclose(curve.measured, curve.theory, atol=0.01)
    with pytest.raises(kf.InputError, match="distances"):
        kf.similarity_curve(kf.Square(512, 0.5), np.array([1, 2]))


# Widths
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kf.Gaussian, kf.Triangle, kf.Rectangle, kf.RandomFourier])
@given(rank=st.floats(1.5, 500))
def test_width_for_rank_inverts_the_theory(kind, rank):
    assert kind(1024, kf.width_for_rank(kind, rank)).rank_limit == pytest.approx(rank)


@pytest.mark.parametrize("rank", [20.0, 62.0])
def test_width_for_rank_of_spread_frequencies(rank):
    assert kf.LinearFourier(
        1024, kf.width_for_rank(kf.LinearFourier, rank)
    ).rank_limit == pytest.approx(rank)
    log = kf.LogFourier(1024, kf.width_for_rank(kf.LogFourier, rank / 4))
    assert log.stable_rank(1024) == pytest.approx(rank / 4, rel=1e-4)
    with pytest.raises(kf.InputError, match="LogFourier reaches"):
        kf.width_for_rank(kf.LogFourier, 400)


def test_embedders_without_a_width_are_refused():
    for kind in (kf.Impulse, kf.Sine, kf.Square, int):
        with pytest.raises(kf.InputError, match="kind"):
            kf.width_for_rank(kind, 10)
    for rank in (1, 0, -3, float("nan"), None):
        with pytest.raises(kf.InputError, match="rank"):
            kf.width_for_rank(kf.Gaussian, rank)


@given(st.floats(1e-4, 0.3))
def test_gaussian_and_random_fourier_match(width):
    gaussian = kf.Gaussian(101, width)
    rff = kf.matching_random_fourier(gaussian, seed=4)
    assert (rff.size, rff.seed) == (102, 4)
    assert rff.rank_limit == pytest.approx(gaussian.rank_limit)
    assert kf.matching_gaussian(rff, size=101).width == pytest.approx(width)
    d = width * np.linspace(0, 3, 7)
    same = rff.expected_similarity(d) / rff.expected_similarity(0.0)
    np.testing.assert_allclose(same, gaussian.similarity(d) / gaussian.similarity(0.0), atol=1e-12)


def test_matching_refuses_the_wrong_kind():
    with pytest.raises(kf.InputError, match="a Gaussian"):
        kf.matching_random_fourier(kf.Sine(8, 1.0))
    with pytest.raises(kf.InputError, match="a RandomFourier"):
        kf.matching_gaussian(kf.Gaussian(8, 1.0))


@pytest.mark.parametrize("width", [0.01, 0.03])
def test_features_needed_are_needed_and_enough(width):
    """With enough features the inner product does not depend on position; with half, it does."""
    needed = kf.features_needed(kf.Gaussian(8, width))

    def wobble(size):
        x = 0.5 + np.linspace(0, 1 / size, 20)
        norms = np.sum(kf.Gaussian(size, width)(x) ** 2, axis=1)
        return np.ptp(norms) / norms.mean()

    assert wobble(needed) < 2e-3
    assert wobble(needed // 2) > 0.01


def test_features_needed_of_others():
    assert kf.features_needed(kf.Sine(8, 4.0)) == 9
    assert kf.numerical_rank(kf.Sine(9, 4.0)(LINE)) == 2
    assert kf.features_needed(kf.LinearFourier(8, 5.0)) == 65
    assert kf.features_needed(kf.ShiftedBasis(8, cosine_bell, support=(-0.2, 0.2))) < 60
    with pytest.raises(kf.InputError, match="No finite number"):
        kf.features_needed(kf.Impulse(8))


# Comparison
# ------------------------------------------------------------------------------------------


def test_compare_is_plain_data():
    rows = kf.compare(kf.standard_embedders(128), 128)
    assert json.loads(json.dumps(rows)) == rows
    assert [row["embedder"] for row in rows] == [
        "Impulse",
        "Rectangle",
        "Triangle",
        "Gaussian",
        "RandomFourier",
        "LinearFourier",
        "LogFourier",
        "Sine",
        "Square",
    ]
    for row in rows:
        assert row["samples"] == row["features"] == 128
        if row["stable_rank_theory"] is not None and row["embedder"] != "RandomFourier":
            assert row["stable_rank"] == pytest.approx(row["stable_rank_theory"], rel=0.1)
        assert row["distance_preservation"] == pytest.approx(
            row["distance_preservation_theory"], abs=0.02
        )
    assert rows[0]["features_needed"] is None
    assert rows[7]["rank"] == 2
    assert rows[3]["settings"] == {"width": 0.01}
    own = kf.compare([kf.ShiftedBasis(64, cosine_bell, support=(-0.2, 0.2))], 64)[0]
    assert own["settings"]["function"] == "cosine_bell"
    assert own["stable_rank"] == pytest.approx(own["stable_rank_theory"], rel=0.05)
    with pytest.raises(kf.InputError, match="list"):
        kf.compare(kf.Sine(8, 1.0), 8)
    with pytest.raises(kf.InputError, match="n: got"):
        kf.compare([], 0)
