"""`FactoredLinear`: a layer with factored weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import kronfield as kf  # noqa: E402
from kronfield.nn import FactoredLinear, Grid, KroneckerLinear  # noqa: E402


def layer(rank=3, width=2, **options):
    torch.manual_seed(0)
    encoding = kf.Kronecker(kf.Gaussian(4, 0.3), kf.Gaussian(5, 0.2), kf.BSpline(6))
    return FactoredLinear(encoding, width, rank, **options).double()


def test_it_is_a_kronecker_layer_whose_weights_are_outer_products():
    one = layer(bias=False)
    with torch.no_grad():
        for weight in one.factors:
            weight[..., 0] = 0  # main effects aside
    whole = KroneckerLinear(one.encoding, 2).double()
    a, b, c = (w.detach()[..., 1:] for w in one.factors)
    with torch.no_grad():
        whole.weight.copy_(torch.einsum("wir,wjr,wkr->wijk", a, b, c))
    points = torch.rand(7, 3, dtype=torch.float64)
    torch.testing.assert_close(one(points), whole(points))
    grid = Grid.even((3, 4, 2))
    torch.testing.assert_close(one(grid), whole(grid), atol=1e-5, rtol=1e-5)


def test_main_effects_are_functions_of_one_axis():
    one = layer(rank=0)
    points = torch.rand(4, 3, dtype=torch.float64)
    rows = [axis(points[:, i]) for i, axis in enumerate(one.axes)]
    expected = sum(r @ w[..., 0].T for r, w in zip(rows, one.factors, strict=True)) + one.bias
    torch.testing.assert_close(one(points), expected)


def test_it_is_twice_differentiable():
    one = layer(rank=2)
    points = (torch.rand(3, 3, dtype=torch.float64) * 0.8 + 0.1).requires_grad_()
    weights = [w.detach().clone().requires_grad_() for w in one.factors]

    def call(x, *weights):
        names = [f"factors.{i}" for i in range(3)]
        return torch.func.functional_call(one, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (points, *weights))
    assert torch.autograd.gradgradcheck(call, (points, *weights))


@pytest.mark.parametrize("channels", [1, 2])
def test_it_continues_from_a_fit(channels):
    rng = np.random.default_rng(0)
    points = rng.random((300, 4)) * [1, 10, 100, 2] - 3
    values = np.sin(points[:, 0]) * points[:, 1] + points[:, 3]
    if channels == 2:
        values = np.stack([values, values**2], axis=1)
    field = kf.fit_points(points, values, form="factored")
    one = FactoredLinear.from_field(field)
    found = one(torch.tensor(points)).detach().numpy()
    np.testing.assert_allclose(found.reshape(values.shape), field(points), rtol=1e-9, atol=1e-9)
    x = torch.tensor(points[:5], requires_grad=True)
    slope = torch.autograd.grad(one(x)[:, 0].sum(), x)[0]
    expected = field.gradient(points[:5]).reshape(5, 4, -1)[..., 0]
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-6, atol=1e-8)
    # descent continues from there
    target = torch.tensor(values.reshape(300, -1)) + 0.1
    optimiser, losses = torch.optim.SGD(one.parameters(), lr=1e-5), []
    for _ in range(5):
        optimiser.zero_grad()
        loss = (one(torch.tensor(points)) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(0.01, rel=0.05)
    assert np.all(np.diff(losses) < 0)


def test_random_outputs_have_unit_scale():
    torch.manual_seed(0)
    one = FactoredLinear(kf.Kronecker(*[kf.Gaussian(10, 0.1)] * 6), 200, rank=8, bias=False)
    variance = float(one(torch.rand(200, 6)).detach().var())
    assert 0.1 < variance < 1.0


def test_bad_input():
    with pytest.raises(kf.InputTypeError, match="encoding: got"):
        FactoredLinear(kf.Gaussian(4, 0.3), 1, 1)
    with pytest.raises(kf.InputError, match="rank: got -1"):
        FactoredLinear(kf.Kronecker(kf.Gaussian(4, 0.3)), 1, -1)
    with pytest.raises(kf.InputTypeError, match="field: got"):
        FactoredLinear.from_field(kf.fit(np.arange(9.0)))
    with pytest.raises(kf.InputError, match="points: got"):
        layer()(torch.rand(4, 2))
