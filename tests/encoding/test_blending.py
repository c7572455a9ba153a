"""The paper's blending: weights against least squares, corners in any dimension, borders, ends."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from cases import EMBEDDERS, LIBRARIES, each_embedder, each_library
from effort import examples

rng = np.random.default_rng(0)


def least_squares(emb, x, low, high):
    """The paper's problem for one point and one axis.

    argmin |psi(x) - alpha_0 psi(low) - alpha_1 psi(high)|^2
    """
    corners = emb(np.array([low, high])).T
    return np.linalg.lstsq(corners, emb(np.array([x]))[0], rcond=1e-10)[0]


KINDS = ("least-squares", "similarity")
# Fourier features have D as their sum over features, so that both kinds of weights are the least
# squares to rounding; shifted bases have D as an integral, which many padded features approach.
EXACT = [kf.RandomFourier(64, 3.0, seed=1), kf.LinearFourier(32, 3.0), kf.LogFourier(32, 3.0)]
MANY = [
    (kf.Gaussian(800, 0.02, padding=200), 1e-9),
    (kf.Triangle(4000, 0.1, padding=400), 1e-4),
    (kf.Rectangle(4000, 0.05, padding=200), 2e-2),
    (kf.Sine(64, 2.0), 1e-9),
    (kf.Square(4096, 2.0), 2e-2),
]


# Narrow, wide and padded features, features with jumps, without bounds, and of periods.
EVERY = [
    kf.Triangle(64, 2 / 64),
    kf.Triangle(64, 5 / 64),
    kf.Triangle(64, 0.5 / 64),
    kf.Gaussian(64, 0.5 / 64),
    kf.Gaussian(64, 0.1),
    kf.Gaussian(40, 0.03, padding=3),
    kf.Rectangle(64, 3 / 64),
    kf.Impulse(64),
    kf.TensionSpline(64, 3.0),
    kf.BSpline(32),
    kf.Sine(16, 2.3),
    kf.Square(48, 1.5),
    kf.ShiftedBasis(32, lambda u: 1 / (1 + (20 * u) ** 2), name="lorentz"),
    *EXACT,
]


@pytest.mark.parametrize("emb", EVERY, ids=repr)
@pytest.mark.parametrize("cells", [16, 63, 64])
def test_weights_are_the_least_squares_of_every_point(emb, cells):
    """Against a dense least-squares problem per point, in the middle and in the outermost cells."""
    nodes = np.linspace(0.0, 1.0, cells + 1)
    x = np.concatenate([rng.random(12), nodes[[0, 1, 5, -2, -1]], [0.3 / cells, 1 - 0.3 / cells]])
    blending = kf.Blending(kf.Kronecker(emb), [nodes])
    indices, weights = blending.corners(x[:, None])
    for at, index, weight in zip(x, indices, weights, strict=True):
        wanted = least_squares(emb, at, *nodes[index])
        ends = emb(nodes[index])
        np.testing.assert_allclose(weight @ ends, wanted @ ends, atol=1e-9)
        if np.linalg.cond(ends) < 1e6:  # else the weights are not determined, only the features
            np.testing.assert_allclose(weight, wanted, atol=1e-7)
    other = kf.Blending(kf.Kronecker(emb), [nodes], weights="similarity")
    assert np.all(blending.error(x[:, None]) <= other.error(x[:, None]) + 1e-7)


@pytest.mark.parametrize("emb", EVERY[:6], ids=repr)
def test_weights_of_a_cell_with_a_lower_end(emb):
    beta = np.linspace(0, 1, 7)
    for low in (0.0, 0.31, 61 / 64):
        pair = kf.blending_weights(emb, beta, 1 / 64, low=low)
        for b, *got in zip(beta, *pair, strict=True):
            ends = emb(np.array([low, low + 1 / 64]))
            wanted = least_squares(emb, low + b / 64, low, low + 1 / 64)
            np.testing.assert_allclose(got @ ends, wanted @ ends, atol=1e-10)
    inside = kf.blending_weights(emb, beta, 1 / 64)
    again = kf.blending_weights(
        emb, beta, 1 / 64, low=emb.centres[np.abs(emb.centres - 0.5).argmin()]
    )
    np.testing.assert_allclose(inside, again)


def test_errors_in_a_cell_of_narrow_features():
    """Hats of the spacing of the nodes are reproduced exactly; the similarity does not do so."""
    beta = np.linspace(0, 1, 41)
    nodes = np.arange(65) / 64
    points = (nodes[20] + beta / 64)[:, None]
    found = {}
    for emb in (kf.Triangle(64, 2 / 64), kf.Gaussian(64, 0.5 / 64)):
        for kind in KINDS:
            blending = kf.Blending(kf.Kronecker(emb), [nodes], weights=kind)
            found[type(emb).__name__, kind] = float(blending.error(points).max())
    assert found["Triangle", "least-squares"] < 1e-9
    assert found["Triangle", "similarity"] > 0.1
    assert found["Gaussian", "least-squares"] < found["Gaussian", "similarity"] - 0.01


def test_parts_and_cells_that_are_not_kept(monkeypatch):
    emb, points = kf.Gaussian(32, 0.05), rng.random((200, 1))
    blending = kf.Blending(kf.Kronecker(emb), [np.linspace(0, 1, 33)])
    expected = blending.corners(points)[1]
    monkeypatch.setattr("kronfield.encoding.blending.PART", 100)
    np.testing.assert_allclose(blending.corners(points)[1], expected, atol=1e-13)
    monkeypatch.setattr("kronfield.encoding.blending.KEPT", 0)
    np.testing.assert_allclose(blending.corners(points)[1], expected, atol=1e-13)
    assert blending.corners(points[:0])[1].shape == (0, 2)


def test_float32_has_the_digits_of_float32():
    """Wide features at neighbouring nodes are much alike: the weights are computed in float64."""
    blending = kf.Blending(kf.Kronecker(kf.Gaussian(64, 0.3)), [np.linspace(0, 1, 65)])
    points = rng.random((50, 1)).astype(np.float32)
    single, double = (blending.corners(points.astype(kind))[1] for kind in (np.float32, np.float64))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "emb", [kf.Gaussian(9, 0.2), kf.Gaussian(64, 0.02), kf.LinearFourier(8, 2.0)]
)
def test_weights_have_gradients(emb, kind):
    import torch

    blending = kf.Blending(kf.Kronecker(emb), [np.linspace(0, 1, 9)], weights=kind)
    points = torch.rand(5, 1, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: blending.corners(p)[1], (points,))


@pytest.mark.parametrize("emb", EXACT, ids=repr)
def test_weights_are_the_least_squares_of_fourier_features(emb):
    for x in (0.0, 0.3, 0.31, 0.35, 0.4, 0.97, 1.0):
        low = min(math.floor(x * 10 + 1e-12), 9) / 10
        expected = least_squares(emb, x, low, low + 0.1)
        got = kf.blending_weights(emb, np.array([(x - low) * 10]), 0.1)
        np.testing.assert_allclose(np.concatenate(got), expected, atol=1e-9)


@pytest.mark.parametrize(("emb", "tolerance"), MANY, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("x", [0.0, 0.01, 0.5, 0.503, 0.99, 1.0])
def test_weights_approach_the_least_squares_of_shifted_bases(emb, tolerance, x):
    """Padded, so that at both ends of the domain no feature is missing that the integral counts."""
    cells = 32
    low = min(math.floor(x * cells + 1e-12), cells - 1) / cells
    got = kf.blending_weights(emb, np.array([(x - low) * cells]), 1 / cells, weights="similarity")
    np.testing.assert_allclose(
        np.concatenate(got), least_squares(emb, x, low, low + 1 / cells), atol=tolerance
    )


@each_embedder
def test_weights_solve_the_papers_two_by_two_system(emb):
    beta, d = np.array([0.0, 0.2, 0.5, 0.9, 1.0]), 0.03
    D0, Dd = emb.similarity(np.array([0.0, d]))
    left, right = emb.similarity(beta * d), emb.similarity((1 - beta) * d)
    a0, a1 = kf.blending_weights(emb, beta, d, weights="similarity")
    np.testing.assert_allclose(D0 * a0 + Dd * a1, left, atol=1e-9 * abs(D0))
    np.testing.assert_allclose(Dd * a0 + D0 * a1, right, atol=1e-9 * abs(D0))
    np.testing.assert_allclose([a0[0], a1[0], a0[-1], a1[-1]], [1, 0, 0, 1], atol=1e-9)


def test_corners_that_cannot_be_told_apart():
    """A sine one period on is the same feature: each corner takes half."""
    for kind in KINDS:
        a0, a1 = kf.blending_weights(kf.Sine(8, 2.0), np.array([0.0, 0.5]), 0.5, weights=kind)
        np.testing.assert_allclose(a0, [0.5, -0.5], atol=1e-12)
        np.testing.assert_allclose(a1, a0, atol=1e-12)


def test_table_agrees_with_quadrature():
    emb = kf.TensionSpline(64, 3.0)
    beta = np.linspace(0, 1, 300)
    many = np.stack(kf.blending_weights(emb, beta, 1 / 64, weights="similarity"))
    few = np.concatenate(
        [
            np.stack(kf.blending_weights(emb, part, 1 / 64, weights="similarity"))
            for part in np.array_split(beta, 10)
        ],
        axis=1,
    )
    np.testing.assert_allclose(many, few, atol=1e-8)


@each_library
@pytest.mark.parametrize("kind", KINDS)
def test_libraries_agree(library, kind):
    to, back = LIBRARIES[library]
    blending = kf.Blending(
        kf.Kronecker(kf.Gaussian(40, 0.02), kf.LinearFourier(16, 2.0), kf.Gaussian(8, 0.1)),
        [np.linspace(0, 1, 9)] * 3,
        weights=kind,
    )
    points = rng.random((20, 3))
    indices, weights = blending.corners(points)
    other = blending.corners(to(points))
    np.testing.assert_array_equal(back(other[0]), indices)
    np.testing.assert_allclose(back(other[1]), weights, atol=1e-12)
    np.testing.assert_allclose(back(blending.error(to(points))), blending.error(points), atol=1e-9)


@pytest.mark.parametrize("family", ["Fourier", "shifted"])
@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_corners_are_the_kronecker_product_of_axes(D, family):
    """Against the direct least squares of the whole encoding on its 2^D corners."""
    kinds = [kf.RandomFourier(6, 1.0, seed=k) for k in range(D)]
    if family == "shifted":
        shifted = [kf.Gaussian(5, 0.2), kf.Triangle(6, 0.6), kf.Gaussian(4, 0.3), kf.BSpline(4)]
        kinds = shifted[:D]
    encoding = kf.Kronecker(*kinds)
    axes = [np.linspace(0, 1, 4 + i) for i in range(D)]
    blending = kf.Blending(encoding, axes)
    inner = [rng.random(D) for _ in range(3)]
    border = [np.array([axes[i][1] for i in range(D)]), np.zeros(D), np.ones(D)]
    points = np.array(inner + border)
    indices, weights = blending.corners(points)
    assert indices.shape == weights.shape == (6, 2**D)
    nodes = np.array(list(itertools.product(*axes)))
    for point, index, weight in zip(points, indices, weights, strict=True):
        assert len(set(index.tolist())) == 2**D
        corners = encoding(nodes[index])  # (2^D, K)
        target = encoding(point[None])[0]
        # the product of the axes' least squares is the least squares of the product
        expected = np.linalg.lstsq(corners.T, target, rcond=1e-12)[0]
        np.testing.assert_allclose(weight, expected, atol=1e-6)
    dense = blending.matrix(points).toarray()
    np.testing.assert_allclose(dense.sum(axis=1), weights.sum(axis=1))
    blended = dense @ encoding(nodes)
    exact = encoding(points)
    apart = np.linalg.norm(blended - exact, axis=1) / np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(blending.error(points), apart, atol=1e-9)
    assert np.all(blending.error(points)[3:] < 1e-7)  # nodes are exact


@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_similarity_solves_the_system_of_all_corners(D):
    """Against the 2^D x 2^D system with the similarity of the whole encoding, a product of axes."""
    kinds = [kf.Gaussian(9, 0.09), kf.RandomFourier(10, 1.3, 3), kf.Triangle(8, 0.3)]
    embedders = [*kinds, kf.LinearFourier(6, 2.0)][:D]
    axes = [np.linspace(0, 1, 6 + i) for i in range(D)]
    blending = kf.Blending(kf.Kronecker(*embedders), axes, weights="similarity")
    points = rng.random((5, D))
    nodes = np.array(list(itertools.product(*axes)))
    for point, index, weight in zip(points, *blending.corners(points), strict=True):
        corners = nodes[index]  # (2^D, D)
        apart = [corners[:, None, d] - corners[None, :, d] for d in range(D)]
        between = np.prod(
            [e.similarity(dx) for e, dx in zip(embedders, apart, strict=True)], axis=0
        )
        to_point = np.prod(
            [e.similarity(point[d] - corners[:, d]) for d, e in enumerate(embedders)], axis=0
        )
        np.testing.assert_allclose(weight, np.linalg.solve(between, to_point), atol=1e-8)


@given(st.integers(2, 40), st.floats(0.0, 1.0), st.sampled_from(range(len(EMBEDDERS))))
@settings(max_examples=examples(60), deadline=None)
def test_normalised_weights_sum_to_one(cells, x, which):
    emb = EMBEDDERS[which]
    if isinstance(emb, kf.Sine | kf.Square):
        return  # features half a period apart sum to nothing
    blending = kf.Blending(kf.Kronecker(emb), [np.linspace(0, 1, cells + 1)], normalise=True)
    try:
        indices, weights = blending.corners(np.array([[x]]))
    except kf.InputError:  # a box that ends between the nodes
        return
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
    assert 0 <= indices.min() <= indices.max() <= cells


def test_linear_blending():
    blending = kf.Blending(kf.Kronecker(kf.Gaussian(8, 0.1)), [np.linspace(0, 1, 5)], linear=True)
    _, weights = blending.corners(np.array([[0.3]]))
    np.testing.assert_allclose(weights, [[0.8, 0.2]])


def test_error_falls_with_the_grid():
    encoding = kf.Kronecker(kf.Gaussian(64, 0.05, padding=16), kf.Gaussian(64, 0.05, padding=16))
    points = rng.random((50, 2))
    errors = [
        kf.Blending(encoding, [np.linspace(0, 1, n + 1)] * 2).error(points).mean()
        for n in (8, 16, 32, 64)
    ]
    assert all(fine < coarse / 3 for coarse, fine in itertools.pairwise(errors))  # of second order


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kf.Blending(kf.Gaussian(4, 0.1), [np.arange(3.0)]), "Kronecker"),
        (lambda: kf.Blending(kf.Kronecker(kf.Gaussian(4, 0.1)), np.arange(3.0)), "axes"),
        (
            lambda: kf.Blending(kf.Kronecker(kf.Gaussian(4, 0.1)), [np.array([0.0, 1.0, 3.0])]),
            "evenly spaced",
        ),
        (lambda: kf.Blending(kf.Kronecker(kf.Gaussian(4, 0.1)), [np.array([0.0])]), "two nodes"),
        (
            lambda: kf.Blending(kf.Kronecker(kf.Gaussian(4, 0.1)), [np.linspace(0, 1, 5)]).corners(
                np.array([[1.2]])
            ),
            "Widen",
        ),
        (lambda: kf.blending_weights(kf.Gaussian(4, 0.1), np.array([0.5]), 0.0), "spacing"),
        (
            lambda: kf.blending_weights(kf.Gaussian(4, 0.1), np.array([0.5]), 0.1, weights="cubic"),
            '"least-squares", "similarity"',
        ),
        (
            lambda: kf.blending_weights(kf.Gaussian(4, 0.1), np.array([0.5]), 0.1, low="0"),
            "lower end",
        ),
        (
            lambda: kf.Blending(
                kf.Kronecker(kf.Gaussian(4, 0.1)), [np.linspace(0, 1, 5)], weights="cubic"
            ),
            "weights",
        ),
        (
            lambda: kf.blending_weights(kf.Sine(4, 1.0), np.array([0.5]), 0.5, normalise=True),
            "normalise",
        ),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(kf.InputError, match=words):
        make()
