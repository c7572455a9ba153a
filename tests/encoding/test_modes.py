"""Mode-n products against einsum and the dense Kronecker product."""

import itertools
import tracemalloc

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import kronfield as kf
from kronfield.encoding.modes import cheapest_order

SHAPES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)


def _problem(shapes, channels, seed=0):
    rng = np.random.default_rng(seed)
    tensor = rng.standard_normal([k for _, k in shapes] + ([channels] if channels else []))
    return tensor, [rng.standard_normal(shape) for shape in shapes]


@given(shapes=SHAPES, channels=st.integers(0, 20))
def test_against_the_dense_kronecker_product(shapes, channels):
    tensor, matrices = _problem(shapes, channels)
    dense = np.eye(1)
    for matrix in matrices:
        dense = np.kron(dense, matrix)
    wanted = (dense @ tensor.reshape(dense.shape[1], -1)).reshape(
        [n for n, _ in shapes] + list(tensor.shape[len(shapes) :])
    )
    np.testing.assert_allclose(kf.multilinear(tensor, matrices), wanted, atol=1e-10)


@given(shapes=SHAPES, channels=st.integers(0, 3))
def test_dot_test(shapes, channels):
    """<A u, v> = <u, A' v>."""
    u, matrices = _problem(shapes, channels)
    Au = kf.multilinear(u, matrices)
    v = np.random.default_rng(1).standard_normal(Au.shape)
    assert np.vdot(Au, v) == pytest.approx(np.vdot(u, kf.multilinear(v, [m.T for m in matrices])))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("to", [np.asarray, torch.from_numpy, array_api_strict.asarray])
def test_every_library_and_dtype(dtype, to):
    tensor, matrices = _problem([(5, 4), (3, 6)], 2)
    tensor = tensor.astype(dtype)
    real = np.float32 if dtype == np.float32 else np.float64
    matrices = [m.astype(real) for m in matrices]
    wanted = np.einsum("ai,bj,ijc->abc", *matrices, tensor)
    got = np.asarray(kf.multilinear(to(tensor), [to(m) for m in matrices]))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-5 if real == np.float32 else 1e-12)


def test_gradients_flow():
    tensor, matrices = _problem([(5, 4), (3, 6)], 2)
    inputs = [torch.from_numpy(a).requires_grad_() for a in (tensor, *matrices)]
    assert torch.autograd.gradcheck(lambda t, *m: kf.multilinear(t, m), inputs)


@given(shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4))
def test_the_order_is_the_cheapest_of_all(shapes):
    def cost(order):
        sizes, total = [k for _, k in shapes], 0
        for axis in order:
            total += int(np.prod(sizes)) * shapes[axis][0]
            sizes[axis] = shapes[axis][0]
        return total

    assert cost(cheapest_order(shapes)) == min(
        map(cost, itertools.permutations(range(len(shapes))))
    )


def test_memory_is_that_of_input_and_output():
    """Appendix C: O(K^D + N^D), never N^D K^D (here 1.7e10 numbers)."""
    tensor, matrices = (
        np.ones((60, 60, 20)),
        [np.ones((50, 60)), np.ones((50, 60)), np.ones((50, 20))],
    )
    tracemalloc.start()
    kf.multilinear(tensor, matrices)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 8 * max(60 * 60 * 20, 50**3)


def test_wrong_shapes_are_refused():
    tensor = np.ones((2, 3))
    for call in (
        lambda: kf.mode_product(tensor, np.ones((4, 2)), 1),
        lambda: kf.mode_product(tensor, np.ones((4, 2)), 2),
        lambda: kf.mode_product(tensor, np.ones(2), 0),
        lambda: kf.multilinear(tensor, [np.ones((4, 2))] * 3),
        lambda: kf.multilinear(tensor, [np.ones((2, 0))]),
        lambda: kf.multilinear(tensor, [np.ones(2)]),
    ):
        with pytest.raises(kf.InputError, match="matri"):
            call()
