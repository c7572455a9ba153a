"""Concatenated and Kronecker encodings in any number of dimensions."""

import json
import tracemalloc

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import kronfield as kf
from cases import EMBEDDERS, FUNCTIONS


def _points(p, d, seed=0):
    return np.random.default_rng(seed).random((p, d))


def test_concatenated_is_the_embeddings_side_by_side():
    a, b = kf.Gaussian(5, 0.1), kf.LogFourier(4, 2.0)
    X = _points(7, 2)
    encoding = kf.Concatenated(a, b)
    assert np.array_equal(encoding(X), np.concatenate([a(X[:, 0]), b(X[:, 1])], axis=1))
    assert (encoding.dimensions, encoding.size) == (2, 9)


def test_the_papers_four_directions():
    emb = kf.Triangle(16, 0.1)
    encoding = kf.Concatenated.with_diagonals(emb, 2)
    x, y = (X := _points(9, 2)).T
    wanted = np.concatenate([emb(x), emb(y), emb((x + y) / 2), emb((x - y + 1) / 2)], axis=1)
    np.testing.assert_allclose(encoding(X), wanted, atol=1e-12)
    assert encoding.size == 64


@given(st.integers(1, 5))
def test_diagonals_map_the_unit_cube_onto_the_unit_interval(dimensions):
    directions, offsets = kf.diagonals(dimensions)
    assert len(offsets) == dimensions**2
    corners = np.stack([g.ravel() for g in np.meshgrid(*[[0.0, 1.0]] * dimensions)], axis=1)
    seen = corners @ np.array(directions).T + np.array(offsets)
    assert np.array_equal(seen.min(axis=0), np.zeros(dimensions**2))
    assert np.array_equal(seen.max(axis=0), np.ones(dimensions**2))


def test_random_fourier_vectors_mix_with_other_embedders():
    rff = kf.RandomFourier(6, 2.0, seed=0, dimensions=2)
    encoding = kf.Concatenated(rff, kf.Gaussian(4, 0.1))
    X = _points(5, 3)
    assert encoding.dimensions == 3
    wanted = np.concatenate([rff(X[:, :2]), kf.Gaussian(4, 0.1)(X[:, 2])], axis=1)
    assert np.array_equal(encoding(X), wanted)


def test_concatenated_derivative():
    encoding = kf.Concatenated.with_diagonals(kf.Gaussian(12, 0.1), 2)
    X, h = _points(6, 2), 1e-6
    for axis in range(2):
        step = h * np.eye(2)[axis]
        difference = (encoding(X + step) - encoding(X - step)) / (2 * h)
        np.testing.assert_allclose(encoding.derivative(X, axis), difference, atol=1e-7)
    plain = kf.Concatenated(kf.Gaussian(12, 0.1), kf.Gaussian(3, 0.2))
    assert not plain.derivative(X, 0)[:, 12:].any()
    with pytest.raises(kf.InputError, match="axis"):
        encoding.derivative(X, 2)
    with pytest.raises(kf.InputError, match="autograd"):
        kf.Concatenated(kf.RandomFourier(6, 2.0, dimensions=2)).derivative(X, 0)


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 20))
def test_kronecker_rows_are_kronecker_products(sizes, seed):
    kinds = [
        lambda k: kf.Gaussian(k, 0.2),
        lambda k: kf.Triangle(k, 0.4),
        lambda k: kf.Sine(k, 1.0),
        kf.Impulse,
    ]
    embedders = [kinds[(i + seed) % 4](k) for i, k in enumerate(sizes)]
    encoding = kf.Kronecker(*embedders)
    X = _points(3, len(sizes), seed)
    for row, point in zip(encoding(X), X, strict=True):
        wanted = np.ones(1)
        for emb, x in zip(embedders, point, strict=True):
            wanted = np.kron(wanted, emb(np.array([x]))[0])
        np.testing.assert_allclose(row, wanted, atol=1e-14)
    assert encoding.size == np.prod(sizes)
    assert encoding.shape == tuple(sizes)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    channels=st.sampled_from([None, 1, 3]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_grids_equal_the_dense_encoding(sizes, channels, dtype):
    encoding = kf.Kronecker(*(kf.Gaussian(k, 0.15) for _, k in sizes))
    axes = [kf.even_axis(n).astype(dtype) for n, _ in sizes]
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(encoding.shape + ((channels,) if channels else ())).astype(dtype)
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    values = encoding.on_grid(weights, axes)
    assert values.dtype == dtype
    dense = encoding(points) @ weights.reshape(encoding.size, -1)
    np.testing.assert_allclose(
        values.ravel(), dense.ravel(), atol=1e-5 if dtype == np.float32 else 1e-12
    )
    # dot test
    v = rng.standard_normal(values.shape).astype(dtype)
    assert np.vdot(values, v) == pytest.approx(
        np.vdot(weights, encoding.adjoint(v, axes)), rel=1e-3, abs=1e-4
    )


def test_grid_derivatives_swap_one_matrix():
    encoding = kf.Kronecker(kf.Gaussian(8, 0.1), kf.LinearFourier(6, 2.0))
    axes, h = [np.array([0.3, 0.4]), np.array([0.5, 0.55, 0.6])], 1e-5
    weights = np.random.default_rng(0).standard_normal((8, 6))
    difference = (
        encoding.on_grid(weights, [axes[0], axes[1] + h])
        - encoding.on_grid(weights, [axes[0], axes[1] - h])
    ) / (2 * h)
    np.testing.assert_allclose(encoding.on_grid(weights, axes, (0, 1)), difference, rtol=1e-6)
    with pytest.raises(kf.InputError, match="derivative"):
        encoding.on_grid(weights, axes, (1,))


@pytest.mark.parametrize("to", [torch.from_numpy, array_api_strict.asarray])
def test_other_libraries(to):
    for encoding in (
        kf.Kronecker(kf.Gaussian(4, 0.2), kf.Triangle(5, 0.4)),
        kf.Concatenated.with_diagonals(kf.Gaussian(4, 0.2), 2),
        kf.Concatenated(kf.RandomFourier(8, 2.0, dimensions=2)),
    ):
        X = _points(6, 2)
        np.testing.assert_allclose(np.asarray(encoding(to(X))), encoding(X), atol=1e-12)
    grid = kf.Kronecker(kf.Gaussian(4, 0.2), kf.Triangle(5, 0.4))
    weights, axes = np.ones((4, 5, 2)), [kf.even_axis(3), kf.even_axis(6)]
    ours = grid.on_grid(weights, axes)
    np.testing.assert_allclose(
        np.asarray(grid.on_grid(to(weights), [to(a) for a in axes])), ours, atol=1e-12
    )


def test_a_big_grid_never_forms_the_big_matrix():
    """512 x 512 samples of 256 x 256 features: the dense encoding would hold 1.7e10 numbers."""
    encoding = kf.Kronecker(kf.Gaussian(256, 0.004), kf.Gaussian(256, 0.004))
    axes, weights = [kf.even_axis(512)] * 2, np.ones((256, 256))
    tracemalloc.start()
    values = encoding.on_grid(weights, axes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.shape == (512, 512)
    assert peak < 12 * 512 * 512 * 8
    with pytest.raises(kf.InputError, match="on_grid"):
        encoding(np.zeros((512 * 512, 2)))


@pytest.mark.parametrize(
    "encoding",
    [
        kf.Kronecker(*EMBEDDERS),
        kf.Concatenated(*EMBEDDERS),
        kf.Concatenated.with_diagonals(kf.Gaussian(4, 0.2), 3),
        kf.Concatenated(kf.RandomFourier(8, 2.0, dimensions=2)),
    ],
    ids=lambda e: type(e).__name__,
)
def test_dictionary_round_trip(encoding):
    data = json.loads(json.dumps(encoding.to_dict()))
    again = kf.Encoding.from_dict(data, FUNCTIONS)
    assert again == encoding
    assert hash(again) == hash(encoding)
    assert repr(again) == repr(encoding)
    for damaged in (
        {**data, "kind": "os.system"},
        {**data, "x": 1},
        {**data, "embedders": 3},
        {**data, "embedders": []},
        [],
    ):
        with pytest.raises(kf.InputError):
            kf.Encoding.from_dict(damaged, FUNCTIONS)


def test_refusals():
    emb = kf.Gaussian(4, 0.2)
    for make in (kf.Kronecker, kf.Concatenated):
        for bad in ((), (3,), (emb, None), ([emb, emb],)):
            with pytest.raises(kf.InputError, match="embedders"):
                make(*bad)
        with pytest.raises(kf.InputError, match=r"shape \(P, 2\)"):
            make(emb, emb)(np.zeros((5, 3)))
        with pytest.raises(kf.InputError, match="NaN"):
            make(emb, emb)(np.full((5, 2), np.nan))
    with pytest.raises(kf.InputError, match="one axis each"):
        kf.Kronecker(kf.RandomFourier(4, 1.0, dimensions=2))
    for directions, offsets in (
        ([[1.0]], None),
        ([[1.0], [np.nan]], None),
        ([[1.0], [2.0]], [1.0]),
        (None, [0.0, 1.0]),
    ):
        with pytest.raises(kf.InputError, match=r"directions|offsets"):
            kf.Concatenated(emb, emb, directions=directions, offsets=offsets)
    with pytest.raises(kf.InputError, match="directions"):
        kf.Concatenated(kf.RandomFourier(4, 1.0, dimensions=2), directions=[[1.0, 0.0]])
    encoding = kf.Kronecker(emb, emb)
    axes = [kf.even_axis(3)] * 2
    for weights in (np.zeros((4, 5)), np.zeros(4), np.zeros((4, 4, 2, 2)), 3):
        with pytest.raises(kf.InputError, match="weights"):
            encoding.on_grid(weights, axes)
    with pytest.raises(kf.InputError, match="values"):
        encoding.adjoint(np.zeros((3, 4)), axes)
    with pytest.raises(kf.InputError, match="axes"):
        encoding.on_grid(np.zeros((4, 4)), axes[:1])
    with pytest.raises(kf.InputError, match=r"axes\[1\]"):
        encoding.on_grid(np.zeros((4, 4)), [axes[0], np.zeros((2, 2))])
