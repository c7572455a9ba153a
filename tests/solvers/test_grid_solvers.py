"""The per-axis solvers against dense references."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kronfield as kf
from kronfield._core import slabs
from kronfield._core.frames import sample_frame
from kronfield.fitting.splines import tension_encoding
from kronfield.solvers.grid import banded
from kronfield.solvers.grid.banded import BlockBanded, apply, embedding_blocks
from kronfield.solvers.grid.basis import derivative_gram
from kronfield.solvers.grid.inverse import Factors, invert_axis
from kronfield.solvers.grid.separable import GridSolver, gcv_score

LOCAL = [
    kf.Gaussian(300, 0.64 / 300),
    kf.Gaussian(700, 0.9 / 700),
    kf.Triangle(300, 2 / 300),
    kf.Triangle(700, 2.5 / 700),
    kf.Rectangle(300, 1 / 300),
    kf.TensionSpline(300, 5.0),
    kf.TensionSpline(704, 0.5, padding=2),
]


def dense(operator):
    return operator.toarray() if isinstance(operator, BlockBanded) else operator


@pytest.mark.parametrize("emb", LOCAL, ids=repr)
@pytest.mark.parametrize("order", [0, 1])
def test_embedding_blocks_are_the_embedding(emb, order):
    if order > emb.smoothness:
        return
    x = np.sort(np.random.default_rng(0).uniform(-0.01, 1.01, 333))
    blocks = embedding_blocks(emb, x, order)
    np.testing.assert_allclose(
        blocks.toarray(), emb.derivative(x, order), atol=1e-12 * emb.size**order
    )
    np.testing.assert_array_equal(blocks.rows(70, 200).toarray(), blocks.toarray()[70:200])


@given(axis=st.integers(0, 2), dtype=st.sampled_from([np.float32, np.float64, np.uint8]))
def test_block_products_are_products(axis, dtype):
    operator = embedding_blocks(kf.Gaussian(90, 0.01), np.linspace(0, 1, 77))
    rng = np.random.default_rng(0)
    shape = [3, 4, 5]
    shape[axis] = 90
    tensor = (100 * rng.random(shape)).astype(dtype)
    wanted = np.moveaxis(
        np.tensordot(operator.toarray(), tensor.astype(float), axes=([1], [axis])), 0, axis
    )
    np.testing.assert_allclose(apply(operator, tensor, axis), wanted, rtol=1e-5)
    # dot test
    u, v = rng.standard_normal(90), rng.standard_normal(77)
    assert np.dot(apply(operator, u, 0), v) == pytest.approx(np.dot(u, operator.toarray().T @ v))


@pytest.mark.parametrize("lines", [1, 3, 9])  # few at once, many block by block
@pytest.mark.parametrize("size", [200, 2000])
@pytest.mark.parametrize("windows", [1, 7, 1024])
def test_lines_are_multiplied_with_equal_blocks_at_once(lines, size, windows, monkeypatch):
    monkeypatch.setattr(banded, "WINDOWS", windows)
    emb = kf.TensionSpline(size + 4, 2.0, padding=2)
    operator = invert_axis(emb, np.arange(size) / size, dtype=np.float64, smooth=2).operator
    assert isinstance(operator, BlockBanded)
    counts = [count for _, count, _ in operator._repeats]
    assert sum(counts) == len(operator.blocks)
    assert max(counts) > (size > 1000) * 20
    tensor = np.random.default_rng(0).standard_normal((lines, size))
    expected = tensor @ operator.toarray().T
    np.testing.assert_allclose(operator.apply(tensor, 1), expected, atol=1e-12)
    np.testing.assert_allclose(
        operator.apply(tensor[:, :, None, None], 1), expected[:, :, None, None], atol=1e-12
    )


@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    slab=st.sampled_from([4, 1 << 18]),
    flipped=st.booleans(),
)
def test_channels_change_places(shape, slab, flipped):
    values = np.random.default_rng(0).random(shape)
    values = values[::-1] if flipped else values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "SLAB", slab)
        patch.setattr(slabs, "SEVERAL", slab)
        planes = slabs.last_axis_first(values)
        assert planes.flags.c_contiguous
        np.testing.assert_array_equal(planes, np.moveaxis(values, -1, 0))
        back = np.empty_like(values)
        slabs.first_axis_last(planes, back)
    np.testing.assert_array_equal(back, values)


def test_one_channel_is_not_copied():
    values = np.ones((5, 6, 1))
    assert np.shares_memory(slabs.last_axis_first(values), values)


def test_wrong_lengths_are_refused():
    with pytest.raises(kf.InputError, match="length 90"):
        embedding_blocks(kf.Gaussian(90, 0.01), np.linspace(0, 1, 77)).apply(np.ones(91), 0)


@pytest.mark.parametrize("samples", ["same", "twice", "uneven", "fewer"])
@pytest.mark.parametrize("emb", LOCAL, ids=repr)
def test_inverse_is_the_pseudo_inverse(emb, samples):
    n = {"same": emb.size, "twice": 2 * emb.size, "uneven": emb.size + 200, "fewer": emb.size - 57}[
        samples
    ]
    x = np.arange(n) / n
    if samples == "uneven":
        x = np.sort(x + np.random.default_rng(1).uniform(-0.3, 0.3, n) / n)
    P = emb(x)
    found = invert_axis(emb, x, dtype=np.float64)
    s = np.linalg.svd(P, compute_uv=False)
    rank = int(np.sum(s > 1e-10 * s[0]))
    assert found.rank == rank
    wanted = np.linalg.pinv(P, rcond=1e-10)
    condition = s[0] / s[rank - 1]
    np.testing.assert_allclose(
        dense(found.operator), wanted, atol=1e-9 * np.abs(wanted).max() * max(1, condition / 1e3)
    )


def test_fast_paths_are_taken_where_they_should_be():
    assert invert_axis(LOCAL[0], kf.even_axis(300), dtype=np.float32).method == "banded"
    assert invert_axis(LOCAL[2], kf.even_axis(300), dtype=np.float32).operator.is_identity
    assert (
        invert_axis(kf.Gaussian(300, 4 / 300), kf.even_axis(300), dtype=np.float32).method
        == "dense"
    )
    assert invert_axis(kf.LogFourier(64, 5.0), kf.even_axis(64), dtype=np.float32).method == "dense"
    big = invert_axis(kf.Gaussian(4096, 0.64 / 4096), kf.even_axis(4096), dtype=np.float32).operator
    assert len({id(block.values) for block in big.blocks}) < 8  # inner blocks are one and the same
    assert sum(block.values.size for block in big.blocks) < 4096 * 110


@given(
    n=st.integers(1, 200),
    size=st.integers(1, 200),
    width=st.floats(0.3, 3.0),
    seed=st.integers(0, 9),
)
def test_inverse_of_any_shape_solves_least_squares(n, size, width, seed):
    emb = kf.Gaussian(size, width / size)
    x = np.sort(np.random.default_rng(seed).random(n))
    found = invert_axis(emb, x, dtype=np.float64, rcond=1e-8)
    P, y = emb(x), np.random.default_rng(seed).standard_normal(n)
    best = np.linalg.lstsq(P, y, rcond=1e-8)[0]
    ours = dense(found.operator) @ y
    assert np.linalg.norm(P @ ours - y) <= np.linalg.norm(P @ best - y) * (
        1 + 1e-6
    ) + 1e-7 * np.linalg.norm(y)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 5, 40, 300, 900])
def test_smooth_inverse_meets_the_samples_and_reproduces_lines(order, n):
    frame = sample_frame(np.arange(float(n)))
    emb = tension_encoding([np.arange(float(n))], [frame], 6.0).embedders[0]
    x = frame.unit(np.arange(float(n)))
    operator = dense(invert_axis(emb, x, dtype=np.float64, smooth=order).operator)
    np.testing.assert_allclose(emb(x) @ operator, np.eye(n), atol=1e-9)
    ends = frame.unit(np.array([frame.low, frame.high]))
    np.testing.assert_allclose(emb(ends) @ operator @ np.ones(n), 1.0, atol=1e-6)
    if order == 2 and n > 1:
        np.testing.assert_allclose(
            emb(ends) @ operator @ np.arange(n), [frame.low, frame.high], atol=1e-6 * n
        )


@pytest.mark.parametrize(
    "emb", [kf.Gaussian(20, 0.05), kf.TensionSpline(20, 3.0), kf.LogFourier(8, 2.0)], ids=repr
)
@pytest.mark.parametrize("order", [1, 2])
def test_derivative_gram_against_fine_sums(emb, order):
    x = -0.03 + 1.0 * (np.arange(40_000) + 0.5) / 40_000
    d = emb.derivative(x, order)
    np.testing.assert_allclose(
        derivative_gram(emb, -0.03, 0.97, order), d.T @ d / 40_000, rtol=1e-4, atol=1e-2
    )


# Penalties
# ------------------------------------------------------------------------------------------


def _solver(shape, **penalty):
    axes = [
        np.sort(np.arange(n) + 0.3 * np.random.default_rng(i).random(n))
        for i, n in enumerate(shape)
    ]
    frames = [sample_frame(axis) for axis in axes]
    kinds = [kf.Gaussian(6, 0.12), kf.TensionSpline(7, 2.0), kf.LinearFourier(6, 2.0)]
    encoding = kf.Kronecker(*(kinds[i % 3] for i in range(len(shape))))
    return GridSolver(encoding, frames, axes, **penalty)


def _dense_parts(solver):
    matrices = [emb(x) for emb, x in zip(solver.encoding.embedders, solver.units, strict=True)]
    big = np.ones((1, 1))
    for matrix in matrices:
        big = np.kron(big, matrix)
    return matrices, big


@pytest.mark.parametrize("shape", [(9,), (9, 8), (8, 7, 9)])
@pytest.mark.parametrize("ridge", [1e-3, 0.5, 20.0])
def test_ridge_against_the_dense_normal_equations(shape, ridge):
    solver = _solver(shape, ridge=ridge)
    y = np.random.default_rng(0).standard_normal((2, *shape))
    _, big = _dense_parts(solver)
    wanted = np.linalg.solve(big.T @ big + ridge * np.eye(big.shape[1]), big.T @ y.reshape(2, -1).T)
    np.testing.assert_allclose(solver.solve(y).reshape(2, -1).T, wanted, rtol=1e-8, atol=1e-9)
    hat = big @ np.linalg.solve(big.T @ big + ridge * np.eye(big.shape[1]), big.T)
    _check_scores(solver, y, hat)


@pytest.mark.parametrize("shape", [(9,), (9, 8), (8, 7, 9)])
@pytest.mark.parametrize("roughness", [(0.3, 0.0), (0.3, 0.02)])
def test_roughness_against_the_dense_normal_equations(shape, roughness):
    """sum (y - f)^2 + a1 L + a2 L G^-1 L; L sums over axes slope Grams times data Grams."""
    solver = _solver(shape, roughness=roughness)
    y = np.random.default_rng(0).standard_normal((2, *shape))
    matrices, big = _dense_parts(solver)
    G = big.T @ big
    L = np.zeros_like(G)
    for i, frame in enumerate(solver.frames):
        emb = solver.encoding.embedders[i]
        scale = len(solver.axes[i]) / (frame.length * (frame.high - frame.low))
        S = scale * derivative_gram(
            emb, float(frame.unit(frame.low)), float(frame.unit(frame.high)), 1
        )
        term = np.ones((1, 1))
        for j, matrix in enumerate(matrices):
            term = np.kron(term, S if i == j else matrix.T @ matrix)
        L += term
    system = G + roughness[0] * L + roughness[1] * L @ np.linalg.solve(G, L)
    wanted = np.linalg.solve(system, big.T @ y.reshape(2, -1).T)
    np.testing.assert_allclose(solver.solve(y).reshape(2, -1).T, wanted, rtol=1e-6, atol=1e-7)
    _check_scores(solver, y, big @ np.linalg.solve(system, big.T))


def _check_scores(solver, y, hat):
    """Degrees of freedom and generalised cross-validation against their definitions."""
    n = hat.shape[0]
    flat = y.reshape(len(y), -1).T
    residual = flat - hat @ flat
    assert solver.degrees_of_freedom == pytest.approx(np.trace(hat), rel=1e-7)
    gcv = n * np.sum(residual**2) / (n - np.trace(hat)) ** 2 / len(y)
    energy = np.sum(solver.coefficients(y) ** 2, axis=0)
    assert gcv_score(energy, float(np.sum(y**2)), solver.filter, y) == pytest.approx(gcv, rel=1e-6)


def test_second_derivatives_alone_leave_lines_alone():
    axes = [np.arange(30.0), np.arange(20.0)]
    frames = [sample_frame(axis) for axis in axes]
    plane = (2.0 + 0.5 * axes[0][:, None] - 0.25 * axes[1])[None]
    solver = GridSolver(tension_encoding(axes, frames, 4.0), frames, axes, roughness=(0.0, 1e4))
    fitted = plane.copy()
    weights = solver.solve(plane)
    for axis, (emb, x) in enumerate(
        zip(solver.encoding.embedders, solver.units, strict=True), start=1
    ):
        weights = kf.mode_product(weights, emb(x), axis)
    np.testing.assert_allclose(weights, fitted, atol=1e-4)


def test_penalties_are_checked():
    for bad in (
        {"ridge": -1.0},
        {"ridge": float("nan")},
        {"roughness": (0.0, -2.0)},
        {"ridge": 1.0, "roughness": (1.0, 0.0)},
    ):
        with pytest.raises(kf.InputError, match=r"ridge|roughness"):
            _solver((9,), **bad)
    solver = _solver((9,), ridge=1.0)
    assert solver.filter_of(solver.strengths(), 3.0).sum() < solver.filter.sum()


@pytest.mark.parametrize("shape", list(itertools.product([7, 9], repeat=2)))
def test_no_penalty_is_the_limit_of_a_small_one(shape):
    y = np.random.default_rng(0).standard_normal((1, *shape))
    plain, tiny = _solver(shape).solve(y), _solver(shape, ridge=1e-11).solve(y)
    np.testing.assert_allclose(plain, tiny, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


def test_factored_inverse_meets_samples_that_the_product_does_not():
    x = np.arange(60) / 60
    emb = kf.Gaussian(80, 4 / 60, padding=10)
    y = np.sin(31 * x)
    P = np.asarray(emb(x))
    found = invert_axis(emb, x, dtype=np.float64, rcond=1e-14)
    weights = found.operator.apply(y, 0)
    assert found.operator.shape == (80, 60)
    assert np.abs(P @ weights - y).max() < 1e-12
    dense = found.operator.back @ found.operator.coefficients
    assert np.abs(P @ (dense @ y) - y).max() > 1e-9  # the factors as one matrix
    both = found.operator.apply(np.stack([y, 2 * y]), 1)
    np.testing.assert_allclose(both[1], 2 * both[0], rtol=1e-6)


def test_factored_inverse_passes_the_dot_test():
    x = np.arange(20) / 20
    operator = invert_axis(
        kf.Gaussian(30, 1.5 / 20, padding=5), x, dtype=float, rcond=1e-13
    ).operator
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal(20), rng.standard_normal(30)
    transposed = operator.coefficients.T @ (operator.back.T @ v)
    assert operator.apply(u, 0) @ v == pytest.approx(u @ transposed, rel=1e-6)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("width", [1.0, 1.5])
def test_factors_as_constrained_least_squares(order, width):
    """Of all weights that fit, those with the least differences: against the KKT equations."""
    N, past = 14, 6
    x, K = np.arange(N) / N, N + 2 * past
    P = np.asarray(kf.Gaussian(K, width / N, padding=past)(x))
    y = np.random.default_rng(order).standard_normal(N)
    D = np.diff(np.eye(K), order, axis=0)
    kkt = np.block([[D.T @ D, P.T], [P, np.zeros((N, N))]])
    expected = np.linalg.lstsq(kkt, np.concatenate([np.zeros(K), y]), rcond=None)[0][:K]
    found = Factors.of(P, order, 1e-15)
    weights = found.inverse().apply(y, 0)
    np.testing.assert_allclose(P @ weights, y, atol=1e-8)
    np.testing.assert_allclose(weights, expected, atol=1e-4 * np.abs(expected).max())
    errors = found.left_out() @ y
    for i in (0, 3, N - 1):
        known = np.arange(N) != i
        weights = Factors.of(P[known], order, 1e-15).inverse().apply(y[known], 0)
        assert errors[i] == pytest.approx(y[i] - P[i] @ weights, rel=1e-3)


def test_factored_inverse_reproduces_polynomials_below_the_order():
    x, fine = np.arange(40) / 40, np.linspace(0, 39 / 40, 300)
    emb = kf.Gaussian(80, 4 / 40, padding=20)
    for order in (1, 2):
        operator = invert_axis(emb, x, dtype=np.float64, smooth=order, rcond=1e-14).operator
        y = (3 - 2 * x) ** (order - 1)
        found = np.asarray(emb(fine)) @ operator.apply(y, 0)
        np.testing.assert_allclose(found, (3 - 2 * fine) ** (order - 1), atol=1e-9)
