"""Points on local features: the weights near a point give what all weights give, to rounding."""

import math

import pytest
import torch

import kronfield as kf
import kronfield.nn.kronecker as module
from kronfield.nn import CoordinateMLP, KroneckerLinear

# PyTorch's own use of it in forward mode
old_script = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
GATHER = "kronfield.nn.kronecker.GATHER"
LOCAL = {
    "hats": lambda size: kf.Triangle(size, 2 / size),
    "wide hats": lambda size: kf.Triangle(size, 3.3 / size, padding=2),
    "Gaussians": lambda size: kf.Gaussian(size, 0.4 / size, padding=1),
    "splines": lambda size: kf.TensionSpline(size, 1.0),
    "boxes": lambda size: kf.Rectangle(size, 2 / size),
    "others": lambda size: kf.ShiftedBasis(size, lambda u: 1 + u, support=(-0.1, 0.25)),
}
each = pytest.mark.parametrize("emb", LOCAL.values(), ids=LOCAL)
kinds = pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)


def layer_of(*embedders, width=2, kind=torch.float64):
    torch.manual_seed(0)
    return KroneckerLinear(kf.Kronecker(*embedders), width, bias=True).to(kind)


def places(D, size, kind=torch.float64):
    """Return points anywhere, outside the domain, at centres and rims, and far away."""
    generator = torch.Generator().manual_seed(0)
    anywhere = 1.4 * torch.rand(40, D, dtype=torch.float64, generator=generator) - 0.2
    centres = torch.randint(-2, size + 2, (20, D), generator=generator).double() / size
    far = torch.tensor([-30.0, 1e9, -1e-17, 1.0, 1 - 2.0**-24], dtype=torch.float64)
    return torch.cat([anywhere, centres, far[:, None].expand(-1, D)]).to(kind)


def both(monkeypatch, function):
    """Return what a function gives with all weights, and with those near the points."""
    monkeypatch.setattr(GATHER, math.inf)
    everything = function()
    monkeypatch.setattr(GATHER, 0)
    return everything, function()


@each
@kinds
@pytest.mark.parametrize("D", [1, 2, 3])
def test_the_values_and_gradients_are_those_of_all_weights(monkeypatch, emb, kind, D):
    sizes = [16, 14, 12][:D]
    layer = layer_of(*[emb(size) for size in sizes], kind=kind)
    points = places(D, sizes[0], kind)

    def results():
        assert (layer._windows(rim=False) is None) == math.isinf(module.GATHER)
        values = layer(points)
        return [values, *torch.autograd.grad(values.square().sum(), list(layer.parameters()))]

    everything, near = both(monkeypatch, results)
    for one, other in zip(everything, near, strict=True):
        bound = 40 * torch.finfo(kind).eps * one.detach().abs().max()
        assert (one - other).detach().abs().max() <= bound


@old_script
@pytest.mark.parametrize("D", [1, 2, 3])
def test_slopes_also_where_features_have_kinks(monkeypatch, D):
    # at a centre, the slope of a hat is the mean of both sides
    layer = layer_of(*[kf.Triangle(12, 2 / 12)] * D)
    points = places(D, 12)[:-5]
    tangents = torch.rand_like(points)

    def each_way():
        moving = points.clone().requires_grad_()
        (plain,) = torch.autograd.grad(layer(moving).sum(), moving)
        func = torch.func
        whole = func.jacrev(func.vmap(layer))(points).sum((0, 1))
        inner = func.vmap(func.jacrev(layer))(points).sum(1)
        forward = func.jvp(func.vmap(layer), (points,), (tangents,))[1]
        with torch.autograd.forward_ad.dual_level():
            dual = layer(torch.autograd.forward_ad.make_dual(points, tangents))
            again = torch.autograd.forward_ad.unpack_dual(dual).tangent
        return [plain, whole, inner, forward, again]

    everything, near = both(monkeypatch, each_way)
    torch.testing.assert_close(near, everything, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(near[0], near[1], rtol=1e-11, atol=1e-11)


@each
def test_derivatives_once_and_twice(monkeypatch, emb):
    if emb in (LOCAL["boxes"], LOCAL["others"]):
        pytest.skip("features that jump have no derivative by position")
    monkeypatch.setattr(GATHER, 0)
    layer = layer_of(emb(9), emb(8))
    points = torch.rand(3, 2, dtype=torch.float64).add(1e-3).requires_grad_()
    inputs = (points, layer.weight)

    def values(x, weight):
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(values, inputs)
    assert torch.autograd.gradgradcheck(values, inputs)


@old_script
def test_second_derivatives_of_gaussians_are_not_cut_off(monkeypatch):
    layer = layer_of(kf.Gaussian(64, 0.02), kf.Gaussian(48, 0.02))
    points = places(2, 64)[:-5]

    def seconds():
        hessians = torch.func.vmap(torch.func.hessian(lambda x: layer(x).sum()))(points)
        return hessians / 0.02**-2

    everything, near = both(monkeypatch, seconds)
    torch.testing.assert_close(near, everything, rtol=0, atol=1e-13)


def test_vmap_and_compile(monkeypatch):
    monkeypatch.setattr(GATHER, 0)
    torch._dynamo.reset()
    layer = layer_of(kf.Triangle(8, 0.25), kf.Gaussian(9, 0.05))
    points = places(2, 8)
    torch.testing.assert_close(torch.func.vmap(layer)(points), layer(points))
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for inputs in (points, points.clone().requires_grad_()):
        torch.testing.assert_close(compiled(inputs), layer(inputs))
        found, expected = (
            torch.autograd.grad(one(inputs).square().sum(), layer.weight)
            for one in (compiled, layer)
        )
        torch.testing.assert_close(found, expected)


def test_an_axis_without_local_features(monkeypatch):
    layer = layer_of(kf.Triangle(8, 0.25), kf.RandomFourier(4, 1.0), kf.Impulse(5))
    everything, near = both(monkeypatch, lambda: layer(places(3, 8)[:-5]))
    torch.testing.assert_close(near, everything)
    learned = KroneckerLinear(kf.Kronecker(kf.Gaussian(512, 1e-3)), 2, trainable=["width"])
    monkeypatch.undo()
    assert learned._windows(rim=False) is None


def test_a_point_touches_only_the_weights_near_it():
    for D, size in ((1, 256), (2, 32), (3, 16)):
        layer = layer_of(*[kf.Triangle(size, 2 / size)] * D)
        point = torch.full((1, D), 0.4371, dtype=torch.float64)
        assert layer._windows(rim=False) == [(0.0, 2)] * D
        with torch.no_grad():
            expected = layer(point)
            needed = torch.zeros_like(layer.weight, dtype=torch.bool)
            start = int(0.4371 * size)
            needed[(slice(None), *[slice(start, start + 2)] * D)] = True
            layer.weight[~needed] = math.nan  # never read
        assert int(needed.sum()) == 2 * 2**D
        torch.testing.assert_close(layer(point), expected)


def test_the_way_that_takes_less_time_is_chosen():
    # 4 of 256 weights, and 4 of 240
    assert layer_of(*[kf.Triangle(16, 2 / 16)] * 2)._windows(rim=False) is not None
    assert layer_of(kf.Triangle(16, 2 / 16), kf.Triangle(15, 2 / 15))._windows(rim=False) is None


def test_nan_and_no_points(monkeypatch):
    monkeypatch.setattr(GATHER, 0)
    layer = layer_of(kf.Triangle(8, 0.25), kf.Gaussian(9, 0.05))
    points = torch.tensor([[math.nan, 0.5], [0.5, 0.5]], dtype=torch.float64)
    values = layer(points)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()
    assert layer(points[:0]).shape == (0, 2)


def test_parts_and_half_precision(monkeypatch):
    monkeypatch.setattr(GATHER, 0)
    network = CoordinateMLP(kf.Kronecker(kf.Triangle(8, 0.25), kf.Gaussian(9, 0.05)), 1, 8)
    points = torch.rand(50, 2)
    expected = network(points)
    (gradient,) = torch.autograd.grad(expected.square().sum(), network.first.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(network(points).float(), expected, atol=0.05, rtol=0.05)
    monkeypatch.setattr("kronfield.nn.kronecker.LARGE", 500)
    again = network(points)
    torch.testing.assert_close(again, expected)
    torch.testing.assert_close(
        torch.autograd.grad(again.square().sum(), network.first.weight)[0], gradient
    )
    half = network.to(torch.bfloat16)(points)
    torch.testing.assert_close(half.float(), expected, atol=0.05, rtol=0.05)
