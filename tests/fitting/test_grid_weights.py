"""Weights of samples on a grid: the same as of points, with masks, penalties, chosen settings."""

import numpy as np
import pytest

import kronfield as kf

RNG = np.random.default_rng(0)
SHAPES = {1: (30,), 2: (11, 13), 3: (6, 5, 7)}


def samples(D, channels=False):
    """Return axes, values and weights of a grid."""
    shape = SHAPES[D]
    axes = [np.linspace(0, 1 + i, n) for i, n in enumerate(shape)]
    values = sum(np.sin(3 * x) for x in np.meshgrid(*axes, indexing="ij"))
    values = values + 0.1 * np.random.default_rng(D).standard_normal(shape)
    if channels:
        values = np.stack([values, -2 * values], axis=-1)
    return axes, values, np.random.default_rng(1).uniform(0.2, 2.0, shape)


def as_points(axes, *arrays):
    points = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=1)
    D = len(axes)
    return points, *(a.reshape(len(points), *a.shape[D:]) for a in arrays)


@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("penalty", [{"ridge": 0.3}, {"roughness": (0.0, 1e-3)}])
def test_weights_against_dense_least_squares_and_points(D, penalty):
    axes, values, weights = samples(D, channels=D == 2)
    encoding = kf.Kronecker(*(kf.Triangle(4 + i, 2 / (4 + i)) for i in range(D)))
    domain = [(x[0], x[-1]) for x in axes]
    field = kf.fit(values, axes, encoding, domain=domain, weights=weights, **penalty)
    points, y, w = as_points(axes, values, weights)
    peer = kf.fit_points(points, y, encoding, domain=domain, weights=w, **penalty)
    np.testing.assert_allclose(field.weights, peer.weights, atol=2e-5)
    if "ridge" in penalty:
        low, high = np.array(domain).T
        B = encoding((points - low) / (high - low))
        normal = B.T @ (w[:, None] * B) + 0.3 * np.eye(B.shape[1])
        wanted = np.linalg.solve(normal, B.T @ (w.reshape(-1, *[1] * (y.ndim - 1)) * y))
        found = field.weights.reshape(len(wanted), *y.shape[1:])
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_chosen_settings_equal_those_of_points():
    axes, values, weights = samples(2)
    field = kf.fit(values, axes, weights=weights)
    points, y, w = as_points(axes, values, weights)
    domain = [(frame.low, frame.high) for frame in field.frames]
    peer = kf.fit_points(points, y, weights=w, domain=domain)
    at = np.random.default_rng(2).random((40, 2)) * [1, 2]
    np.testing.assert_allclose(field(at), peer(at), atol=0.02)
    noisy = values + 5.0 * (weights < 0.4)
    light = np.where(weights < 0.4, 1e-6, 1.0)
    careful = kf.fit(noisy, axes, weights=light)
    assert np.std((careful.on_grid() - values)[weights >= 0.4]) < 0.2


@pytest.mark.parametrize("falling", [False, True])
def test_masks_zeros_and_equal_weights(falling):
    axes, values, weights = samples(2)
    if falling:
        axes = [axes[0][::-1], axes[1]]
    mask = np.zeros(values.shape, dtype=bool)
    mask[2, 3] = mask[7, 5] = True
    encoding = kf.Triangle(6, 2 / 6)
    options = {"encoding": encoding, "ridge": 0.1}
    masked = kf.fit(values, axes, weights=weights, mask=mask, **options)
    zeros = kf.fit(values, axes, weights=np.where(mask, 0.0, weights), **options)
    np.testing.assert_allclose(masked.weights, zeros.weights, atol=1e-9)
    spoiled = kf.fit(
        np.where(mask, 1e3, values), axes, weights=np.where(mask, 0, weights), **options
    )
    np.testing.assert_allclose(spoiled.weights, zeros.weights, atol=1e-9)
    # equal weights change nothing but the scale of a ridge
    plain = kf.fit(values, axes)
    equal = kf.fit(values, axes, weights=np.full(values.shape, 7.0))
    np.testing.assert_array_equal(plain.on_grid(), equal.on_grid())
    one, seven = (
        kf.fit(values, axes, encoding, ridge=r, weights=np.full(values.shape, w))
        for r, w in ((0.1, 1.0), (0.7, 7.0))
    )
    np.testing.assert_allclose(one.weights, seven.weights, atol=1e-10)


def test_weights_on_a_periodic_axis_with_both_ends():
    x = np.arange(0.0, 361.0, 30.0)
    y, w = np.cos(np.deg2rad(x)), np.ones(13)
    y[-1], w[-1] = 3.0, 3.0  # the first is 1 with weight 1: the mean is 2.5, of weight 4
    encoding = kf.Triangle(12, 2 / 12)
    field = kf.fit(y, [x], encoding, weights=w, periodic=[360.0], domain=[(0, 360)], ridge=1.0)
    B = field.encoding.embedders[0](x / 360)
    wanted = np.linalg.solve(B.T @ (w[:, None] * B) + np.eye(12), B.T @ (w * y))
    np.testing.assert_allclose(field.weights, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(29), "shape"),
        (-np.ones(30), "zero or more"),
        (np.zeros(30), "positive"),
        (np.full(30, np.nan), "weights"),
        ("heavy", "weights"),
    ],
)
def test_wrong_weights_are_refused(weights, words):
    axes, values, _ = samples(1)
    with pytest.raises(kf.InputError, match=words):
        kf.fit(values, axes, weights=weights)
    with pytest.raises(kf.InputError, match="noise"):
        kf.fit(values, axes, weights=np.ones(30), noise=0.1)
