"""First layers and networks: grids equal points, forward and backward; counts are the paper's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.nn import ConcatenatedLinear, CoordinateMLP, Grid, KroneckerLinear
from kronfield.nn.mixing import Mixer
from kronfield.nn.outer import Pair, Single, outer_sum

two, three = Grid.even((9, 7), torch.float64), Grid.even((5, 4, 6), torch.float64)
square, cube = Grid.even((8, 8), torch.float64), Grid.even((4, 4, 4), torch.float64)
uneven = Grid(
    torch.tensor([0.0, 0.1, 0.5, 0.9], dtype=torch.float64),
    torch.linspace(0, 0.9, 5, dtype=torch.float64),
)
gaussian, hat = kf.Gaussian(16, 0.05), kf.Triangle(12, 0.2)
waves = kf.RandomFourier(16, 2.0, dimensions=2)
diagonal = kf.Concatenated.with_diagonals(gaussian, 2)
CASES = [
    (kf.Concatenated(gaussian, kf.LogFourier(12, 3.0)), two),
    (kf.Concatenated(gaussian, hat, gaussian), three),
    (diagonal, square),
    (diagonal, two),
    (diagonal, uneven),
    (kf.Concatenated.with_diagonals(gaussian, 3), cube),
    (kf.Concatenated.with_diagonals(gaussian, 3), three),
    (kf.Concatenated(waves), two),
    (kf.Concatenated(waves, gaussian), three),
    (kf.Concatenated(gaussian), Grid.even((11,), torch.float64)),
    (kf.Concatenated(gaussian, hat, directions=[[1.0, 2.0], [0.3, -0.3]], offsets=[0.1, 0.5]), two),
    (kf.Kronecker(gaussian, hat), two),
    (kf.Kronecker(gaussian, hat, kf.RandomFourier(4, 1.0)), three),
    (kf.Kronecker(gaussian), Grid.even((11,), torch.float64)),
]
cases = pytest.mark.parametrize(("encoding", "grid"), CASES, ids=lambda one: repr(one)[:60])


def same_gradients(model, left, right):
    parameters = list(model.parameters())
    one = torch.autograd.grad(left.square().sum() + left.sum(), parameters)
    other = torch.autograd.grad(right.square().sum() + right.sum(), parameters)
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@cases
@pytest.mark.parametrize("depth", [0, 2])
def test_a_grid_equals_its_points(encoding, grid, depth):
    torch.manual_seed(0)
    model = CoordinateMLP(encoding, depth, width=10, out=2).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    left, right = model(grid), model(grid.points())
    assert left.shape == (*grid.shape, 2)
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)
    same_gradients(model, left, right)
    plain = model.first.encoding(grid.points().reshape(-1, len(grid.shape)).numpy())
    weight = model.first.weight.detach().numpy()
    if model.first.bias is None:
        first = plain @ weight.reshape(len(weight), -1).T
    else:
        first = plain @ weight.reshape(len(weight), -1).T + model.first.bias.detach().numpy()
    np.testing.assert_allclose(
        model.first(grid).detach().numpy().reshape(first.shape), first, atol=1e-10
    )


@cases
def test_parts_make_up_the_whole(encoding, grid):
    model = CoordinateMLP(encoding, 2, width=10).double()
    for inputs in (grid, grid.points().reshape(-1, len(grid.shape))):
        prepared = model.prepare(inputs)
        shared = model.first.shared(prepared)
        pieces = [
            model.part(prepared, shared, i, min(i + 2, prepared.rows))
            for i in range(0, prepared.rows, 2)
        ]
        torch.testing.assert_close(torch.cat(pieces), model(inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("encoding", [diagonal, kf.Kronecker(gaussian, gaussian)], ids=repr)
def test_what_is_learned_of_the_encoding_has_a_gradient_on_grids_too(encoding):
    model = CoordinateMLP(encoding, 1, width=10, trainable=["width"]).double()
    same_gradients(model, model(square), model(square.points()))


@cases
def test_gradients_by_position_and_of_second_order_on_grids(encoding, grid):
    model = CoordinateMLP(encoding, 1, width=6, out=2, activation="tanh").double()
    with torch.no_grad():
        model.first.weight.normal_()
    moving = Grid(*[axis.clone().requires_grad_() for axis in grid.axes])
    parameters = list(model.parameters())
    for inputs in (lambda: moving, lambda: grid):
        results = []
        for values in (model(inputs()), model(inputs().points())):
            wanted = [*moving.axes, *parameters] if inputs() is moving else parameters
            first = torch.autograd.grad(values.square().sum(), wanted, create_graph=True)
            again = torch.autograd.grad(sum(g.square().sum() for g in first), parameters)
            results.append([*first, *again])
        torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own use of it
@pytest.mark.parametrize("encoding", [diagonal, kf.Kronecker(gaussian, gaussian)], ids=repr)
def test_forward_mode_and_functional_gradients(encoding):
    model = CoordinateMLP(encoding, 1, width=6, activation="tanh").double()
    points = torch.rand(5, 2, dtype=torch.float64)
    _, tangent = torch.func.jvp(model, (points,), (torch.ones_like(points),))
    jacobian = torch.func.vmap(torch.func.jacrev(lambda u: model(u[None])[0]))(points)
    torch.testing.assert_close(tangent, jacobian.sum(-1))
    parameters = dict(model.named_parameters())

    def loss(values):
        return torch.func.functional_call(model, values, (square,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    expected = torch.autograd.grad(model(square).square().sum(), list(parameters.values()))
    torch.testing.assert_close(list(found.values()), list(expected))


@pytest.mark.parametrize("n", [2048, 2500, 5000])
def test_diagonals_of_long_axes_keep_their_structure(n):
    layer = ConcatenatedLinear(diagonal, 2)
    for grid in (Grid.even((n, n)), Grid.even((n, n), torch.float64)):
        assert all(term is not None for term in layer.prepare(grid, cache=False).terms)
    drifting = Grid(torch.arange(n) / n, torch.arange(n) / n * (1 + 5e-5))
    assert any(term is None for term in layer.prepare(drifting, cache=False).terms)


def test_features_without_structure_are_not_kept_beyond_a_limit(monkeypatch):
    model = CoordinateMLP(kf.Concatenated(waves), 1, 8).double()
    expected = model(two)
    for module in ("concatenated", "layers"):
        monkeypatch.setattr(f"kronfield.nn.{module}.CACHE_NUMBERS", 10)
    prepared = model.prepare(two)
    assert prepared.features == [None]
    torch.testing.assert_close(model(prepared), expected)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 5), st.data())
@settings(max_examples=examples(60))
def test_outer_sum_against_indexing(shape, width, data):
    terms = [Single(a) for a in range(len(shape)) if data.draw(st.booleans())] or [Single(0)]
    for a in range(len(shape)):
        for b in range(a + 1, len(shape)):
            if data.draw(st.booleans()):
                terms.append(Pair(a, b, data.draw(st.booleans()), shape[a]))
    generator = torch.Generator().manual_seed(0)
    rows = [
        shape[t.axis] if isinstance(t, Single) else shape[t.first] + shape[t.second] - 1
        for t in terms
    ]
    tables = [
        torch.randn(n, width, dtype=torch.float64, generator=generator, requires_grad=True)
        for n in rows
    ]
    start = data.draw(st.integers(0, shape[0] - 1))
    stop = data.draw(st.integers(start + 1, shape[0]))
    found = outer_sum(terms, tables, shape, (start, stop))
    index = torch.meshgrid(*[torch.arange(n) for n in shape], indexing="ij")
    whole = 0
    for term, table in zip(terms, tables, strict=True):
        if isinstance(term, Single):
            whole = whole + table[index[term.axis]]
        else:
            i, j = index[term.first], index[term.second]
            whole = whole + table[(shape[term.first] - 1 - i if term.falling else i) + j]
    torch.testing.assert_close(found, whole[start:stop])
    weight = torch.randn(found.shape, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(
        torch.autograd.grad((found * weight).sum(), tables),
        torch.autograd.grad((whole[start:stop] * weight).sum(), tables),
    )


def test_mixing_against_gathering_and_by_the_dot_test():
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 30, (20, 4), generator=generator)
    weights = torch.randn(20, 4, dtype=torch.float64, generator=generator)
    table = torch.randn(30, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    mixer = Mixer(indices, weights, 30)
    expected = (table[indices] * weights[..., None]).sum(1)
    torch.testing.assert_close(mixer(table), expected)
    y = torch.randn(20, 5, dtype=torch.float64, generator=generator)
    (adjoint,) = torch.autograd.grad((mixer(table) * y).sum(), table)
    torch.testing.assert_close((mixer(table) * y).sum(), (table * adjoint).sum())
    assert torch.autograd.gradgradcheck(Mixer(indices[:6] % 8, weights[:6], 8), (table[:8, :2],))
    moving = Mixer(indices, weights.clone().requires_grad_(), 30)
    torch.testing.assert_close(moving(table), expected)
    assert moving(table).requires_grad


@pytest.mark.parametrize("kind", ["least-squares", "similarity", "linear"])
@pytest.mark.parametrize("D", [1, 2, 3])
def test_blending_is_the_sparse_matrix_of_the_library(D, kind):
    encoding = kf.Kronecker(*[kf.Gaussian(8, 0.1)] * D)
    layer = KroneckerLinear(encoding, 4, points="blending", blending=kind, bias=True).double()
    points = torch.rand(15, D, dtype=torch.float64)
    nodes = [np.linspace(0, 1, 9)] * D
    matrix = kf.Blending(encoding, nodes, weights=kind).matrix(points.numpy()).toarray()
    table = (
        layer.weight.detach().numpy().reshape(4, -1)
        @ encoding(np.stack(np.meshgrid(*nodes, indexing="ij"), -1).reshape(-1, D)).T
    )
    np.testing.assert_allclose(layer(points).detach().numpy(), matrix @ table.T, atol=1e-12)
    near = KroneckerLinear(kf.Kronecker(*[kf.Gaussian(8, 0.3)] * D), 4, points="blending").double()
    exact = KroneckerLinear(near.encoding, 4).double()
    exact.load_state_dict(near.state_dict())  # the same weights for all three
    torch.testing.assert_close(
        near(points), exact(points), rtol=0, atol=0.1 * float(exact(points).detach().abs().max())
    )


def test_the_kind_of_blending_is_kept():
    encoding = kf.Kronecker(kf.Gaussian(8, 0.1))
    for kind in ("least-squares", "similarity", "linear"):
        model = CoordinateMLP(encoding, 0, points="blending", blending=kind)
        described = model.to_dict()
        assert CoordinateMLP.from_dict(described).first.blending == kind
        # as version 0.1.0 wrote it
        assert ("blending" in described) == (kind != "similarity")
    assert "blending" not in CoordinateMLP(encoding, 0).to_dict()
    with pytest.raises(kf.InputError, match="blending"):
        KroneckerLinear(encoding, 3, blending="cubic")


def test_gradients_by_position_exact_and_blended():
    for how in ("exact", "blending"):
        layer = KroneckerLinear(
            kf.Kronecker(kf.Gaussian(8, 0.2), kf.Gaussian(8, 0.2)), 2, points=how
        ).double()
        points = torch.rand(4, 2, dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(layer, (points,))


def test_large_jobs_are_done_in_parts(monkeypatch):
    layer = KroneckerLinear(kf.Kronecker(gaussian, hat), 3).double()
    points = torch.rand(50, 2, dtype=torch.float64)
    expected = layer(points)
    (gradient,) = torch.autograd.grad(expected.square().sum(), layer.weight)
    monkeypatch.setattr("kronfield.nn.kronecker.LARGE", 100)
    torch.testing.assert_close(layer(points), expected)
    torch.testing.assert_close(
        torch.autograd.grad(layer(points).square().sum(), layer.weight)[0], gradient
    )


def test_parameter_counts_are_the_papers():
    image = kf.Concatenated.with_diagonals(kf.Gaussian(128, 0.006), 2)
    video = kf.Concatenated(*[kf.Gaussian(256, 0.015)] * 3)
    assert CoordinateMLP(image, 4, 256).parameter_count == 329_475
    assert CoordinateMLP(kf.Kronecker(*[kf.Gaussian(256, 0.004)] * 2), 0).parameter_count == 196_608
    assert CoordinateMLP(video, 5, 512).parameter_count == 1_445_891
    assert CoordinateMLP(kf.Kronecker(*[kf.Gaussian(64, 0.015)] * 3), 0).parameter_count == 786_432


@pytest.mark.parametrize(
    "activation", ["relu", "leaky_relu", "gelu", "silu", "tanh", "sine", torch.nn.Softplus]
)
def test_activations(activation):
    model = CoordinateMLP(diagonal, 2, width=8, activation=activation)
    assert torch.isfinite(model(Grid.even((5, 5)))).all()


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_warm_start_is_the_field(depth, kind):
    field = kf.fit(np.random.default_rng(0).random((12, 10, 3)).cumsum(0).astype(kind))
    model = CoordinateMLP.from_field(field, depth, width=32)
    points = np.random.default_rng(1).random((40, 2)) * [11.9, 9.9] - 0.45
    atol = 1e-4 if kind == np.float32 else 1e-10
    np.testing.assert_allclose(
        model(torch.from_numpy(points)).detach().numpy(), field(points), atol=atol
    )
    grid = Grid(*[torch.from_numpy(axis) for axis in field.axes])
    np.testing.assert_allclose(model(grid).detach().numpy(), field.on_grid(), atol=atol)


def test_half_precision_and_autocast():
    for encoding in (diagonal, kf.Kronecker(gaussian, hat)):
        model = CoordinateMLP(encoding, 1, width=8)
        grid = Grid.even((6, 6))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(grid)
        torch.testing.assert_close(mixed.float(), model(grid), atol=0.05, rtol=0.05)
        exact = model(grid)
        torch.testing.assert_close(
            model.to(torch.bfloat16)(grid).float(), exact, atol=0.05, rtol=0.05
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CoordinateMLP(diagonal, -1), "depth"),
        (lambda: CoordinateMLP(diagonal, 1, 0), "width"),
        (lambda: CoordinateMLP(diagonal, 1, activation="step"), "relu"),
        (lambda: CoordinateMLP(diagonal, 1, activation=lambda: 3), "module"),
        (lambda: CoordinateMLP(diagonal, 1)(three), "2 axes"),
        (lambda: KroneckerLinear(diagonal, 3), "Kronecker"),
        (lambda: ConcatenatedLinear(kf.Kronecker(gaussian), 3), "KroneckerLinear"),
        (lambda: KroneckerLinear(kf.Kronecker(gaussian), 3, points="nearest"), "blending"),
        (lambda: KroneckerLinear(kf.Kronecker(gaussian), 3, init="ones"), "zeros"),
        (
            lambda: KroneckerLinear(
                kf.Kronecker(gaussian), 3, points="blending", trainable=["width"]
            ),
            "exact",
        ),
        (
            lambda: KroneckerLinear(kf.Kronecker(gaussian), 3, points="blending")(
                torch.tensor([[1.5]])
            ),
            "within the grid",
        ),
        (lambda: CoordinateMLP.from_field(kf.fit(np.arange(9.0)), 2, width=1), "at least 2"),
        (lambda: CoordinateMLP.from_field(3), "fit_points"),
        (lambda: Grid(), "one per dimension"),
        (lambda: Grid(np.arange(4)), "floats"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(kf.InputError, match=message):
        call()
