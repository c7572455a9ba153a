"""The parts of the solver for scattered points, each against its dense or obvious counterpart."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield._core.frames import Frame
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError, conjugate_gradients
from kronfield.solvers.points.direct import (
    data_band,
    direct_solve,
    lower_band,
    sparse_penalty,
    sparse_solve,
    sparse_term,
)
from kronfield.solvers.points.multilevel import prolong, restrict
from kronfield.solvers.points.normal import Penalty
from kronfield.solvers.points.penalty import DifferencePenalty, differences, differences_transposed
from kronfield.solvers.points.rows import axis_run, sparse_rows, taps_in_reach
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import (
    BasisSystem,
    LocalSystem,
    RowsTerm,
    cosines,
    feature_sum,
)

rng = np.random.default_rng(0)
LOCAL = [
    kf.Triangle(9, 2 / 9),
    kf.Triangle(12, 0.31, padding=2),
    kf.TensionSpline(11, 1.0, padding=1),
    kf.Gaussian(10, 0.08),
    kf.Rectangle(9, 0.25),
    kf.Impulse(8),
    kf.ShiftedBasis(9, lambda u: 1 - (u / 0.2) ** 2, support=(-0.2, 0.2), name="cap"),
]
each_local = pytest.mark.parametrize("emb", LOCAL, ids=repr)
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)
UNIT = Frame(0.0, 1.0, 0.0, 1.0)


def dot_test(forward, adjoint, x, y, rtol=1e-10):
    """<A x, y> = <x, A' y>."""
    left, right = np.vdot(forward(x), y), np.vdot(x, adjoint(y))
    assert abs(left - right) <= rtol * (
        abs(left) + np.linalg.norm(x) * np.linalg.norm(y) * 1e-3 + 1e-12
    )


# Rows
# ------------------------------------------------------------------------------------------


@each_local
def test_runs_are_the_embedding(emb):
    x = np.concatenate([rng.random(50), emb.centres, [0.0, 1.0, -0.02, 1.03]])
    run = axis_run(emb, x)
    dense = np.zeros((len(x), emb.size))
    for t in range(run.taps):
        dense[np.arange(len(x)), run.first + t] += run.values[t]
    np.testing.assert_allclose(dense, emb(x), atol=1e-14)
    assert run.taps == taps_in_reach(emb) <= emb.size


@pytest.mark.parametrize("order", [0, 1, 2])
def test_runs_of_derivatives(order):
    emb = kf.TensionSpline(11, 2.0, padding=1)
    x = rng.random(30)
    run = axis_run(emb, x, order)
    dense = np.zeros((30, 11))
    for t in range(run.taps):
        dense[np.arange(30), run.first + t] += run.values[t]
    np.testing.assert_allclose(dense, emb.derivative(x, order), atol=1e-9)


@each_local
@pytest.mark.parametrize("D", [1, 2, 3])
def test_sparse_rows_are_the_encoding(emb, D):
    points = rng.random((20, D))
    rule = RowRule.choose(kf.Kronecker(*[emb] * D), [UNIT] * D, "exact")
    rows = sparse_rows(rule.runs(points), rule.shape, np.float64)
    np.testing.assert_allclose(rows.toarray(), kf.Kronecker(*[emb] * D)(points), atol=2e-10)


def test_points_on_nodes_of_hats_have_one_entry():
    emb = kf.Triangle(30, 2 / 30)
    rule = RowRule.choose(kf.Kronecker(emb, emb), [UNIT] * 2, None)
    points = rng.integers(0, 30, (50, 2)) / 30
    equations = assemble(rule, points, rng.random((1, 50)), None)
    assert equations.term.live == [(0, 0)]
    np.testing.assert_allclose(equations.term.diagonal.sum(), 50)


# The data term
# ------------------------------------------------------------------------------------------


@each_local
@pytest.mark.parametrize("D", [1, 2, 3])
def test_stencil_and_rows_are_the_same_matrix(emb, D):
    if isinstance(emb, kf.Gaussian) and D == 3:
        emb = kf.Gaussian(5, 0.03)
    points, weights = rng.random((40, D)), rng.random(40)
    rule = RowRule.choose(kf.Kronecker(*[emb] * D), [UNIT] * D, "exact")
    runs = rule.runs(points)
    rows = sparse_rows(runs, rule.shape, np.float64)
    dense = rows.toarray().T @ (weights[:, None] * rows.toarray())
    stencil = Stencil(rule.shape, rule.taps)
    stencil.add(runs, weights)
    term = RowsTerm(rows, weights)
    x, y = rng.standard_normal((2, *rule.shape)), rng.standard_normal((2, *rule.shape))
    for one in (stencil, term):
        flat = one.apply(x).reshape(2, -1)
        np.testing.assert_allclose(flat, x.reshape(2, -1) @ dense, atol=1e-12)
        dot_test(one.apply, one.apply, x, y)
        np.testing.assert_allclose(np.ravel(one.diagonal), np.diagonal(dense), atol=1e-12)
        np.testing.assert_allclose(sparse_term(one, rule.shape).toarray(), dense, atol=1e-12)
    if len(dense) <= 200:
        np.testing.assert_allclose(stencil.toarray(), dense, atol=1e-12)
    stencil.add(runs, -weights)
    assert all(np.abs(plane).max() < 1e-12 for plane in stencil.planes.values())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_rows_in_several_parts_equal_the_whole(monkeypatch, ordered, weighted):
    monkeypatch.setattr("kronfield.solvers.points.systems.SLAB", 600)
    points = rng.random((900, 2))
    rule = RowRule.choose(
        kf.Kronecker(kf.Triangle(20, 0.1), kf.Triangle(17, 0.1)), [UNIT] * 2, None
    )
    runs = rule.runs(points)
    if ordered:
        order = np.argsort(np.ravel_multi_index([run.first for run in runs], rule.shape))
        runs = rule.runs(points[order])
    rows = sparse_rows(runs, rule.shape, np.float64)
    w = rng.random(900) if weighted else None
    term = RowsTerm(rows, w)
    assert (len(term._parts) > 3) == ordered  # only what is in order can be split
    x = rng.standard_normal((2, 20, 17))
    dense = rows.toarray()
    matrix = dense.T @ (dense if w is None else w[:, None] * dense)
    np.testing.assert_allclose(
        term.apply(x), (x.reshape(2, -1) @ matrix).reshape(x.shape), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(term.diagonal, np.diag(matrix), rtol=1e-12)
    with pytest.raises(ValueError, match="contiguous"):
        term.apply(x, np.empty((2, 17, 20)).swapaxes(1, 2))


# The penalty
# ------------------------------------------------------------------------------------------


def dense_penalty(shape, spacings, first, second, ridge):
    """The squares of all first and second differences, from Kronecker products of matrices."""

    def product(orders):
        result = np.ones((1, 1))
        for n, h, order in zip(shape, spacings, orders, strict=True):
            result = np.kron(result, np.diff(np.eye(n), n=order, axis=0) / h**order)
        return result.T @ result

    D = len(shape)
    total = ridge * np.eye(int(np.prod(shape)))
    for i in range(D):
        total += first * product([int(a == i) for a in range(D)]) + second * product(
            [2 * int(a == i) for a in range(D)]
        )
        for j in range(i):
            total += 2 * second * product([int(a in (i, j)) for a in range(D)])
    return total


@given(shapes, st.floats(0, 3), st.floats(0, 3), st.floats(0, 1), st.integers(0, 2**31))
@settings(max_examples=examples(40), deadline=None)
def test_penalty_in_all_its_forms(shape, first, second, ridge, seed):
    local = np.random.default_rng(seed)
    if int(np.prod(shape)) > 700:
        return
    spacings = local.uniform(0.5, 2.0, len(shape))
    penalty = DifferencePenalty(shape, spacings, first, second, ridge)
    dense = dense_penalty(shape, spacings, first, second, ridge)
    x = local.standard_normal((2, *shape))
    expected = (x.reshape(2, -1) @ dense).reshape(x.shape)
    scale = np.abs(dense).max() + 1e-9
    np.testing.assert_allclose(penalty.apply(x), expected, atol=1e-11 * scale)
    np.testing.assert_allclose(sparse_penalty(penalty).toarray(), dense, atol=1e-11 * scale)
    # in cosines, less the slopes at the ends
    fast = cosines(penalty.symbol * cosines(x, inverse=False), inverse=True)
    penalty.subtract_ends(fast, x)
    np.testing.assert_allclose(fast, expected, atol=1e-10 * scale)
    # in slabs
    slabs = np.ones_like(x)
    penalty.add_to(slabs, x)
    np.testing.assert_allclose(slabs - 1, expected, atol=1e-10 * scale + 1e-14)


def test_slabs_and_threads_change_nothing(monkeypatch):
    penalty = DifferencePenalty((70, 40), (1.0, 0.5), 0.3, 0.2, 0.1)
    x = rng.standard_normal((2, 70, 40))
    results = []
    for slab, several in ((1 << 20, 1 << 20), (100, 1 << 20), (100, 0)):
        monkeypatch.setattr("kronfield._core.slabs.SLAB", slab)
        monkeypatch.setattr("kronfield._core.slabs.SEVERAL", several)
        out = np.zeros_like(x)
        penalty.add_to(out, x)
        results.append(out)
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)
    np.testing.assert_array_equal(results[2], results[1])
    np.testing.assert_allclose(results[0], penalty.apply(x), atol=1e-10)


def test_straight_lines_cost_nothing():
    i, j = np.indices((7, 9)).astype(float)
    plane = (2 * i - 3 * j + 1)[None]
    assert np.abs(DifferencePenalty((7, 9), (1.0, 2.0), 0.0, 1.0).apply(plane)).max() < 1e-12
    assert np.abs(DifferencePenalty((7, 9), (1.0, 2.0), 1.0, 0.0).apply(plane)).max() > 0.1


def test_samples_of_the_penalty_have_its_covariance():
    penalty = DifferencePenalty((4, 3), (1.0, 0.5), 0.7, 0.2, 0.1)
    draws = penalty.sample(np.random.default_rng(1), 60_000).reshape(60_000, -1)
    dense = dense_penalty((4, 3), (1.0, 0.5), 0.7, 0.2, 0.1)
    assert np.abs(draws.T @ draws / 60_000 - dense).max() < 0.03 * np.abs(dense).max()


@given(st.integers(3, 8), st.integers(3, 8), st.integers(0, 2), st.integers(0, 2))
def test_differences_and_their_transpose(m, n, a, b):
    x, y = rng.standard_normal((1, m, n)), rng.standard_normal((1, m - a, n - b))
    dot_test(lambda u: differences(u, (a, b)), lambda v: differences_transposed(v, (a, b)), x, y)


# Transforms and grids
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(16,), (17, 34), (5, 23, 8), (482,)])
def test_cosines_are_orthonormal_for_every_length(shape):
    """Lengths with large prime factors go another way."""
    x, y = rng.standard_normal((2, *shape)), rng.standard_normal((2, *shape))
    hat = cosines(x, inverse=False)
    np.testing.assert_allclose(cosines(hat, inverse=True), x, atol=1e-12)
    dot_test(lambda u: cosines(u, inverse=False), lambda v: cosines(v, inverse=True), x, y)
    import scipy.fft

    np.testing.assert_allclose(
        hat, scipy.fft.dctn(x, axes=range(1, x.ndim), norm="ortho"), atol=1e-12
    )


@given(st.integers(2, 30))
def test_restriction_is_the_transpose_of_prolongation(n):
    x, y = rng.standard_normal((1, n, 3)), rng.standard_normal((1, n // 2 + 1, 3))
    dot_test(lambda u: restrict(u, 1), lambda v: prolong(v, 1, n), x, y)
    line = np.arange(n // 2 + 1.0)[None, :, None]
    np.testing.assert_allclose(prolong(line, 1, n)[0, :, 0], np.arange(n) / 2)


# Whole systems
# ------------------------------------------------------------------------------------------


def equations_for(emb, D, rows=None, P=120, dtype=np.float64):
    frames = [Frame(1.0, 2.0 + i, 1.0, 3.0 + i) for i in range(D)]
    points = 1.0 + rng.random((P, D)) * np.array([2.0 + i for i in range(D)])
    values, weights = rng.standard_normal((2, P)).astype(dtype), rng.random(P) + 0.1
    rule = RowRule.choose(kf.Kronecker(*[emb] * D), frames, rows, P)
    return assemble(rule, points, values, weights), points, values, weights


@each_local
@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize(
    "penalty",
    [Penalty(roughness=(0.01, 0.002)), Penalty(ridge=0.1), Penalty(0.01, (0.0, 1e-3))],
    ids=str,
)
def test_exact_rows_against_dense_least_squares(emb, D, penalty):
    if emb.size**D > 800:
        emb = kf.Triangle(7, 0.3) if D == 3 else emb
    equations, points, values, weights = equations_for(emb, D, "exact")
    units = np.stack([frame.unit(points[:, i]) for i, frame in enumerate(equations.frames)], axis=1)
    B = kf.Kronecker(*[emb] * D)(units)
    # W times the mean over the domain of squared derivatives of s w, w the weights on their grid, s
    # the sum of features
    lengths = [2.0 + i for i in range(D)]
    spacings = [emb.spacing * length for length in lengths]
    scale = weights.sum() * np.prod(spacings) / np.prod(lengths) * feature_sum(emb) ** (2 * D)
    first, second = (scale * part for part in penalty.roughness)
    A = B.T @ (weights[:, None] * B) + dense_penalty(
        (emb.size,) * D, spacings, first, second, penalty.ridge
    )
    expected = np.linalg.solve(A, B.T @ (weights * values).T).T
    size = np.abs(expected).max()
    solution = equations.solve(penalty, tolerance=1e-11, limit=5000)
    np.testing.assert_allclose(solution.weights.reshape(2, -1), expected, atol=1e-8 * size)
    if D > 1:  # every way to the same end
        system = equations.system(penalty)
        x, end = conjugate_gradients(
            system, equations.rhs, np.zeros_like(equations.rhs), tolerance=1e-11, limit=5000
        )
        np.testing.assert_allclose(x.reshape(2, -1), expected, atol=1e-8 * size)
        assert 0 < end.iterations < 1000
        rhs = equations.rhs.copy()
        for solve in (direct_solve, sparse_solve):
            direct = solve(equations.term, equations.differences(penalty), equations.rhs)
            np.testing.assert_allclose(direct.reshape(2, -1), expected, atol=1e-8 * size)
        one = equations.rhs[:1].astype(np.float64)  # of one channel the transpose is a view
        for _ in range(2):
            direct = direct_solve(equations.term, equations.differences(penalty), one)
            np.testing.assert_allclose(direct.reshape(1, -1), expected[:1], atol=1e-8 * size)
        np.testing.assert_array_equal(one, rhs[:1])
    # the energy of the residuals, from the statistics alone
    away = values - solution.weights.reshape(2, -1) @ B.T
    np.testing.assert_allclose(
        equations.residual_energy(solution, penalty), (weights * away**2).sum(axis=1), rtol=1e-7
    )


@pytest.mark.parametrize(
    "emb",
    [kf.RandomFourier(8, 1.0, seed=2), kf.Gaussian(9, 0.25), kf.LinearFourier(6, 1.0)],
    ids=repr,
)
@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("rows", ["blending", "linear"])
def test_blended_rows_against_dense_least_squares(emb, D, rows):
    equations, points, values, weights = equations_for(emb, D, rows)
    encoding = kf.Kronecker(*[emb] * D)
    units = np.stack([frame.unit(points[:, i]) for i, frame in enumerate(equations.frames)], axis=1)
    nodes = [
        frame.unit(axis) for frame, axis in zip(equations.frames, equations.nodes, strict=True)
    ]
    blending = kf.Blending(encoding, nodes, linear=rows == "linear")
    B = blending.matrix(units) @ encoding(np.array(list(itertools.product(*nodes))))
    penalty = Penalty(ridge=0.05)
    A = B.T @ (weights[:, None] * B) + 0.05 * np.eye(B.shape[1])
    expected = np.linalg.solve(A, B.T @ (weights * values).T).T
    solution = equations.solve(penalty, tolerance=1e-12, limit=5000)
    np.testing.assert_allclose(
        solution.weights.reshape(2, -1), expected, atol=1e-6 * np.abs(expected).max()
    )
    away = values - solution.weights.reshape(2, -1) @ B.T
    np.testing.assert_allclose(
        equations.residual_energy(solution, penalty), (weights * away**2).sum(axis=1), rtol=1e-6
    )


@pytest.mark.parametrize(
    "penalty", [Penalty(ridge=0.3), Penalty(roughness=(0.1, 0.01)), Penalty(roughness=(1e-6, 0.0))]
)
def test_systems_are_symmetric_and_preconditioners_positive(penalty):
    for equations in (
        equations_for(kf.Triangle(9, 2 / 9), 2)[0],
        equations_for(kf.Gaussian(9, 0.2), 2, "blending")[0],
    ):
        system = equations.system(penalty)
        shape = equations.unknown_shape(penalty)
        x, y = rng.standard_normal((1, *shape)), rng.standard_normal((1, *shape))
        dot_test(system.data, system.data, x, y)
        if system.penalty(x) is not None:
            dot_test(system.penalty, system.penalty, x, y)
        dot_test(
            lambda r, s=system: s.precondition(r)[0], lambda r, s=system: s.precondition(r)[0], x, y
        )
        z, penalised = system.precondition(x)
        assert np.vdot(x, z) > 0
        if penalised is not None:
            np.testing.assert_allclose(
                penalised, system.penalty(z), atol=1e-10 * np.abs(penalised).max()
            )
        if isinstance(system, BasisSystem):
            on_grid = rng.standard_normal((1, *map(len, equations.nodes)))
            dot_test(system.forward, system.adjoint, x, on_grid)
        else:
            assert isinstance(system, LocalSystem)


def test_iterations_are_bounded_as_the_grid_grows():
    rng, counts = np.random.default_rng(0), {}
    for n in (64, 128, 256):
        points = rng.random((n * n // 4, 2))
        values = np.sin(9 * points[:, 0])[None] + 0.3 * rng.standard_normal((1, len(points)))
        rule = RowRule.choose(kf.Kronecker(*[kf.Triangle(n, 2 / n)] * 2), [UNIT] * 2, None)
        equations = assemble(rule, points, values, None)
        for name, cell in (("strong", 10.0), ("weak", 0.01)):
            penalty = Penalty(roughness=(0.0, cell / n**4))
            _, end = conjugate_gradients(
                equations.system(penalty),
                equations.rhs,
                np.zeros_like(equations.rhs),
                tolerance=1e-4,
                limit=500,
            )
            counts[name, n] = end.iterations
    for name in ("strong", "weak"):
        # without a preconditioner they would grow with the spacing, 4 or 16 times; gaps in random
        # points grow a little
        assert counts[name, 256] <= 1.5 * counts[name, 64] + 8, counts


def test_not_converging_is_an_error_with_remedies():
    equations = equations_for(kf.Triangle(60, 2 / 60), 2, P=300)[0]
    with pytest.raises(ConvergenceError, match=r"after 3 iterations.*roughness.*tolerance"):
        conjugate_gradients(
            equations.system(Penalty(ridge=1e-9)),
            equations.rhs,
            np.zeros_like(equations.rhs),
            tolerance=1e-9,
            limit=3,
        )


def test_a_gap_is_crossed():
    """A hole of a third of the width: conjugate gradients alone would leave it near the mean."""
    n = 96
    present = np.ones((n, n), dtype=bool)
    present[30:66, 30:66] = False
    i, j = np.nonzero(present)
    truth = np.add.outer(np.arange(n), 2.0 * np.arange(n)) / n
    rule = RowRule.choose(
        kf.Kronecker(*[kf.Triangle(n, 2 / n)] * 2), [Frame(0, n, 0, n - 1)] * 2, None
    )
    equations = assemble(rule, np.stack([i, j], axis=1).astype(float), truth[present][None], None)
    solution = equations.solve(Penalty(roughness=(0.0, 1e-3)), tolerance=1e-3, limit=300)
    # a plane costs nothing, so it fills the hole
    assert np.abs(solution.weights[0] - truth).max() < 0.02


def test_bands_are_the_lower_diagonals_and_not_too_wide():
    rng = np.random.default_rng(0)
    half = scipy.sparse.random_array((30, 30), density=0.1, rng=rng)
    matrix = (half + half.T).tocsr()
    band = lower_band(matrix)
    dense = matrix.toarray()
    for k, row in enumerate(band):
        np.testing.assert_allclose(row[: 30 - k], np.diag(dense, -k))
        assert not row[30 - k :].any()
    assert not any(np.diag(dense, -k).any() for k in range(len(band), 30))
    equations = equations_for(kf.Triangle(6, 0.5), 2)[0]
    assert len(data_band(equations.term, (6, 6))) > 0
    assert len(data_band(equations.term, (400, 400))) == 0
