"""Encodings as PyTorch modules give the same numbers as the formulas, also cast or transformed."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.nn import Encode

ENCODINGS = [
    kf.Concatenated(kf.Gaussian(16, 0.05), kf.Triangle(12, 0.2)),
    kf.Concatenated(kf.RandomFourier(10, 2.0, dimensions=2)),
    kf.Concatenated.with_diagonals(kf.Gaussian(8, 0.1), 2),
    kf.Concatenated(kf.Sine(6, 1.0), kf.LogFourier(8, 3.0)),
    kf.Concatenated(kf.Rectangle(6, 0.3), kf.LinearFourier(6, 3.0)),
    kf.Kronecker(kf.Gaussian(6, 0.1), kf.TensionSpline(5, 1.0)),
    kf.Kronecker(kf.Impulse(5), kf.Square(6, 1.0)),
]
SMOOTH = [
    (ENCODINGS[0], ["width", "centres"]),
    (ENCODINGS[1], ["frequencies"]),
    (ENCODINGS[3], ["frequencies"]),
    (kf.Kronecker(kf.Gaussian(6, 0.1), kf.Gaussian(5, 0.2)), ["width"]),
]
each = pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
each_smooth = pytest.mark.parametrize(("encoding", "trainable"), SMOOTH, ids=repr)
points = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@each
def test_same_numbers_as_the_encoding(encoding):
    np.testing.assert_allclose(
        Encode(encoding).double()(points).numpy(), encoding(points.numpy()), atol=1e-14
    )
    assert Encode(encoding).size == encoding.size


@each
def test_leading_axes_are_kept(encoding):
    module = Encode(encoding).double()
    shaped = module(points[:6].reshape(2, 3, 2))
    assert shaped.shape == (2, 3, encoding.size)
    torch.testing.assert_close(shaped.reshape(6, -1), module(points[:6]))
    torch.testing.assert_close(module(points[0]), module(points[:1])[0])
    assert module(points[:0]).shape == (0, encoding.size)


@each
def test_vmap(encoding):
    module = Encode(encoding).double()
    torch.testing.assert_close(torch.func.vmap(module)(points), module(points))


@each
def test_compiles_without_a_break(encoding):
    torch._dynamo.reset()
    module = Encode(encoding).double()
    torch.testing.assert_close(
        torch.compile(module, backend="aot_eager", fullgraph=True)(points), module(points)
    )


@each_smooth
def test_compiled_gradients(encoding, trainable):
    torch._dynamo.reset()
    module = Encode(encoding, trainable=trainable).double()
    expected = torch.autograd.grad(module(points).square().sum(), list(module.parameters()))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(points).square().sum(), list(module.parameters()))
    torch.testing.assert_close(found, expected)


@each_smooth
def test_gradients_once_and_twice(encoding, trainable):
    module = Encode(encoding, trainable=trainable).double()
    x = (points[:3] + 0.001).requires_grad_()
    inputs = (x, *module.parameters())
    assert torch.autograd.gradcheck(lambda u, *_: module(u), inputs)
    assert torch.autograd.gradgradcheck(lambda u, *_: module(u), inputs)


@each_smooth
def test_learned_settings_start_as_given_and_change_the_features(encoding, trainable):
    module = Encode(encoding, trainable=trainable).double()
    np.testing.assert_allclose(module(points).detach().numpy(), encoding(points.numpy()), atol=1e-6)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1
    assert not np.allclose(module(points).detach().numpy(), encoding(points.numpy()), atol=1e-3)


def test_state_dict_and_copies():
    module = Encode(ENCODINGS[0], trainable=["width"])
    module(points.float()).sum().backward()
    other = Encode(ENCODINGS[0], trainable=["width"])
    with torch.no_grad():
        module.axes[0].log_width += 1.0
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(other(points.float()), module(points.float()))
    torch.testing.assert_close(copy.deepcopy(module)(points.float()), module(points.float()))
    # fixed frequencies are described and not stored
    assert list(Encode(ENCODINGS[1]).state_dict()) == ["_extra_state"]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@each
def test_half_precision_is_computed_in_float32(encoding, kind):
    # exact in half precision
    x = torch.arange(5, dtype=torch.float64)[:, None] / 8 * torch.ones(2, dtype=torch.float64)
    found = Encode(encoding).to(kind)(x.to(kind))
    assert found.dtype == kind
    np.testing.assert_allclose(found.double().numpy(), encoding(x.numpy()), atol=1e-2)


@each
def test_autocast_keeps_the_phases(encoding):
    module = Encode(encoding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = module(points.float())
    torch.testing.assert_close(found, module(points.float()))


def test_frequencies_follow_the_dtype_without_losing_digits():
    encoding = kf.Concatenated(kf.RandomFourier(64, 30.0))
    x = torch.rand(50, 1, dtype=torch.float64)
    module = Encode(encoding).half().double()
    np.testing.assert_allclose(module(x).numpy(), encoding(x.numpy()), atol=1e-13)


@given(st.floats(-50, 50), st.floats(0.1, 100))
@settings(max_examples=examples(25))
def test_domain(low, length):
    encoding = kf.Concatenated(kf.Gaussian(9, 0.1), kf.Triangle(7, 0.3))
    module = Encode(encoding, domain=[(low, low + length), (0, 2)]).double()
    there = points * torch.tensor([length, 2.0], dtype=torch.float64) + torch.tensor(
        [low, 0.0], dtype=torch.float64
    )
    np.testing.assert_allclose(module(there).numpy(), encoding(points.numpy()), atol=1e-9)


def test_an_embedder_alone():
    assert Encode(kf.Gaussian(8, 0.1))(torch.rand(5, 1)).shape == (5, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Encode("gaussian"), "encoding"),
        (lambda: Encode(ENCODINGS[0], trainable=["depth"]), "width, centres, frequencies"),
        (lambda: Encode(kf.Kronecker(kf.Rectangle(4, 0.5)), trainable=["width"]), "no gradient"),
        (lambda: Encode(ENCODINGS[0], domain=[(0, 1)]), "2 pairs"),
        (lambda: Encode(ENCODINGS[0], domain=[(0, 1), (1, 1)]), "low < high"),
        (lambda: Encode(ENCODINGS[0])(torch.rand(5, 3)), r"\(\.\.\., 2\)"),
        (lambda: Encode(ENCODINGS[0])(torch.ones(5, 2, dtype=torch.int64)), "floats"),
        (lambda: Encode(ENCODINGS[0])(np.zeros((5, 2))), "tensor"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(kf.InputError, match=message):
        call()


def test_periodic_axes_close_at_the_seam():
    encoding = kf.Kronecker(kf.Gaussian(6, 0.1), kf.Gaussian(12, 0.08))
    encode = Encode(encoding, domain=[(-1.0, 1.0), (-180.0, 180.0)], periodic=[None, 360.0])
    points = torch.tensor([[0.2, -180.0], [0.2, 180.0], [0.2, 540.0]], dtype=torch.float64)
    rows = encode(points.requires_grad_())
    assert torch.allclose(rows[0], rows[1], atol=1e-12)
    assert torch.allclose(rows[0], rows[2], atol=1e-12)
    (slopes,) = torch.autograd.grad(rows[:, 5:40].sum(), points)
    assert torch.allclose(slopes[0], slopes[1], atol=1e-10)
    wanted = encode.encoding(np.array([[0.6, 0.0]]))
    np.testing.assert_allclose(rows[:1].detach().numpy(), wanted, atol=1e-12)
    spectral = Encode(kf.Dirichlet(9), periodic=[24.0])
    assert torch.allclose(
        spectral(torch.tensor([[1.0]])), spectral(torch.tensor([[25.0]])), atol=1e-5
    )
    with pytest.raises(kf.InputError, match="one period"):
        Encode(encoding, domain=[(-1.0, 1.0), (0.0, 100.0)], periodic=[None, 360.0])
    with pytest.raises(kf.InputError, match="periods"):
        Encode(encoding, periodic=[360.0])
