"""The preconditioner from a complete grid with uneven axes, against dense matrices."""

import functools

import numpy as np
import pytest

import kronfield as kf
from kronfield._core.frames import Frame
from kronfield.solvers.points import normal
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.direct import sparse_penalty, sparse_term
from kronfield.solvers.points.normal import LONGEST, MODERATE, NEARLY, TINY, Penalty
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.separable import (
    LEVEL,
    AxisVectors,
    CompleteGrid,
    disproportion,
    marginals,
)
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.strategies import (
    PATIENCE,
    Attempt,
    ConjugateGradients,
    Factorisation,
    Iterations,
    select_fallback,
)

COMPLETE = ConjugateGradients(False, PATIENCE, on_complete=True)
ROUGH = Penalty(roughness=(1e-8, 1e-9))


def spline(n):
    return kf.TensionSpline(n, tension=0.05, padding=1)


def grid_equations(counts, shape, weights=None, present=None, make=spline, dtype=float):
    """Normal equations of samples on a grid with uneven axes in the unit cube."""
    rng = np.random.default_rng(0)
    axes = [np.cumsum(rng.uniform(0.3, 1.7, n)) for n in counts]
    axes = [(x - x[0]) / (x[-1] - x[0]) for x in axes]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    values = rng.standard_normal((2, len(points))).astype(dtype)
    weights = None if weights is None else weights.reshape(-1)
    if present is not None:
        points, values = points[present.reshape(-1)], values[:, present.reshape(-1)]
        weights = None if weights is None else weights[present.reshape(-1)]
    frames = [Frame(0.0, 1.0, 0.0, 1.0)] * len(axes)
    rule = RowRule.choose(kf.Kronecker(*map(make, shape)), frames, None)
    return assemble(rule, points, values, weights)


def products(counts, seed=0):
    """Weights that are products of one factor per axis."""
    rng = np.random.default_rng(seed)
    return functools.reduce(np.multiply.outer, [rng.uniform(0.1, 2.0, n) for n in counts])


def uneven_weights(counts, low=0.5, high=2.0):
    return np.exp(np.random.default_rng(2).uniform(np.log(low), np.log(high), counts))


def dense(equations, penalty):
    shape = equations.encoding.shape
    matrix = sparse_term(equations.term, shape) + sparse_penalty(equations.differences(penalty))
    return matrix.toarray()


def operator(system, shape):
    n = int(np.prod(shape))
    return system.precondition(np.eye(n).reshape(n, *shape))[0].reshape(n, n)


@pytest.mark.parametrize(("counts", "shape"), [((9, 7), (8, 9)), ((5, 6, 5), (6, 5, 7))])
def test_the_product_of_marginals_is_the_data_term_of_a_complete_grid(counts, shape):
    equations = grid_equations(counts, shape, products(counts))
    taps = [len(gram) for gram in equations.grams]
    found = marginals(equations.term, shape, taps, float)
    term = sparse_term(equations.term, shape).toarray()
    total = term.sum()
    whole = term.reshape(*shape, *shape)
    for axis, gram in enumerate(found):
        others = tuple(i for i in range(2 * len(shape)) if i % len(shape) != axis)
        np.testing.assert_allclose(gram, whole.sum(axis=others), atol=1e-12 * total)
    product = functools.reduce(np.kron, found) / total ** (len(shape) - 1)
    np.testing.assert_allclose(product, term, atol=1e-12 * term.max())


@pytest.mark.parametrize("shape", [(8, 9), (6, 5, 7)])
@pytest.mark.parametrize("penalty", [Penalty(ridge=0.1), ROUGH], ids=str)
def test_the_preconditioner_is_symmetric_positive_and_has_the_diagonal_of_the_system(
    shape, penalty
):
    """On a complete grid: V' A V and the inverse of the preconditioner have one diagonal."""
    counts = [n - 1 for n in shape]  # the data do not see some vectors
    equations = grid_equations(counts, shape, products(counts))
    system = equations.local_system(penalty, on_complete=True)
    matrix = operator(system, shape)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2).min() > 0
    complete = system._complete
    V = functools.reduce(np.kron, complete.vectors)
    diagonal = np.diag(V.T @ dense(equations, penalty) @ V)
    np.testing.assert_allclose(1 / complete.inverse.ravel(), diagonal, rtol=1e-6)
    r = np.random.default_rng(0).standard_normal((3, *shape))
    out = np.empty_like(r)
    found, rest = system.precondition(r, out)
    assert found is out
    assert rest is None
    np.testing.assert_allclose(found.reshape(3, -1), r.reshape(3, -1) @ matrix.T, rtol=1e-6)


def test_the_vectors_make_data_and_roughness_diagonal():
    for axis, n in zip(grid_equations((9, 7), (8, 9))._complete_axes, (8, 9), strict=True):
        V, step = axis.vectors, np.diff(np.eye(n), axis=0)
        rough = step.T @ step
        rough = V.T @ (rough + LEVEL * np.trace(rough) / n * np.eye(n)) @ V
        np.testing.assert_allclose(rough, np.diag(np.diag(rough)), atol=1e-12)
        assert np.all(axis.data >= 0)


@pytest.mark.parametrize(("counts", "shape"), [((13, 9), (14, 12)), ((6, 6, 7), (7, 6, 8))])
@pytest.mark.parametrize("penalty", [Penalty(ridge=0.1), ROUGH], ids=str)
def test_solutions_are_the_dense_ones(counts, shape, penalty):
    present = np.random.default_rng(1).random(counts) > 0.1
    equations = grid_equations(counts, shape, uneven_weights(counts), present)
    precise = Iterations(tolerance=1e-11, limit=5000)
    patient = ConjugateGradients(False, on_complete=True)
    solution = patient.solve(equations, penalty, equations.rhs, precise)
    flat = equations.rhs.reshape(2, -1)
    expected = np.linalg.solve(dense(equations, penalty), flat.T).T.reshape(2, *shape)
    np.testing.assert_allclose(solution.weights, expected, atol=1e-7 * np.abs(expected).max())
    assert solution.method == COMPLETE.name
    assert solution.method == "conjugate gradients, preconditioned by a complete grid"


def test_zero_data_do_not_divide_by_zero():
    axes = [AxisVectors.of(np.zeros((n, n))) for n in (4, 5)]
    penalty = DifferencePenalty((4, 5), [1.0, 1.0], second=1.0)
    assert np.all(np.isfinite(CompleteGrid.of(axes, 0.0, penalty, np.float32).inverse))


def test_disproportion_is_the_spread_of_weights_over_their_product():
    mass = products((4, 5, 3))
    np.testing.assert_allclose(disproportion(mass, 1e-9), 1.0)
    np.testing.assert_allclose(disproportion(1e9 * mass, 1.0), 1.0)
    mass = np.array([[2.0, 1.0], [1.0, 2.0]])  # the product of its marginals is 1.5 everywhere
    np.testing.assert_allclose(disproportion(mass, 1e-12), 2.0)
    np.testing.assert_allclose(disproportion(mass, 0.5), 2.5 / 1.5)
    assert disproportion(mass, 0.0) == disproportion(0 * mass, 1.0) == np.inf


# Where it is selected
# ------------------------------------------------------------------------------------------

COUNTS, SHAPE = (12, 12, 12), (14, 14, 14)


def at_ratio(equations, ratio):
    """The penalty whose mean diagonal is ``ratio`` times that of the data."""
    unit = equations.local_system(Penalty(roughness=(0.0, 1.0)), on_complete=False)
    return Penalty(roughness=(0.0, ratio * unit.data_diagonal / unit.stiffness))


def selected(equations, penalty):
    return equations.strategy(penalty).strategy.on_complete


@pytest.mark.parametrize(("low", "high", "expected"), [(0.5, 2.0, True), (0.01, 100.0, False)])
def test_weights_that_differ_little_are_nearly_a_complete_grid(low, high, expected):
    equations = grid_equations(COUNTS, SHAPE, uneven_weights(COUNTS, low, high))
    penalty = at_ratio(equations, 1e-3)
    assert (disproportion(equations.node_weights[0], 1e-9) < NEARLY) == expected
    selection = equations.strategy(penalty)
    assert selection.strategy.on_complete == expected
    assert ("the data are nearly a complete grid" in selection.reason) == expected


def test_products_of_weights_are_a_complete_grid_whatever_their_range():
    weights = products(COUNTS) ** 3
    assert weights.max() > 1e4 * weights.min()
    equations = grid_equations(COUNTS, SHAPE, weights)
    assert selected(equations, at_ratio(equations, 1e-3))


def test_nearly_decides(monkeypatch):
    equations = grid_equations(COUNTS, SHAPE, uneven_weights(COUNTS))
    penalty = at_ratio(equations, 1e-3)
    stiffness = float(equations.differences(penalty).symbol.mean())
    measured = disproportion(equations.node_weights[0], stiffness)
    for factor, expected in ((0.999, False), (1.001, True)):
        monkeypatch.setattr(normal, "NEARLY", factor * measured)
        assert selected(equations, penalty) == expected


@pytest.mark.parametrize(
    ("counts", "shape", "make", "limit"),
    [
        (COUNTS, SHAPE, spline, MODERATE),
        (COUNTS, SHAPE, lambda n: kf.Triangle(n, 2 / n), TINY),
        ((50, 40), (60, 50), spline, TINY),
    ],
)
def test_the_strength_of_the_penalty_decides(counts, shape, make, limit):
    equations = grid_equations(counts, shape, products(counts), make=make)
    for factor, expected in ((0.999, True), (1.001, False)):
        assert selected(equations, at_ratio(equations, factor * limit)) == expected


@pytest.mark.parametrize("longest", [LONGEST, LONGEST + 1])
def test_long_axes_are_left_to_others(longest):
    equations = grid_equations((120, 5, 4), (longest, 5, 4))
    assert selected(equations, at_ratio(equations, 1e-3)) == (longest == LONGEST)


def test_many_points_for_each_feature_are_left_to_others():
    equations = grid_equations((80, 80), (51, 50), make=lambda n: kf.Triangle(n, 2 / n))
    assert isinstance(equations.term, Stencil)
    assert not selected(equations, at_ratio(equations, 1e-3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_needs_a_fraction_of_the_iterations(dtype):
    present = np.ones(COUNTS, dtype=bool)
    present[3, 4, 5] = present[7, 1, 9] = False
    equations = grid_equations(COUNTS, SHAPE, uneven_weights(COUNTS), present, dtype=dtype)
    penalty = at_ratio(equations, 1e-2)
    solution = equations.solve(penalty, tolerance=1e-3, limit=2000)
    assert solution.method == COMPLETE.name
    assert solution.weights.dtype == dtype
    slow = ConjugateGradients(in_cosines=False)
    other = slow.solve(equations, penalty, equations.rhs, Iterations(1e-3, 2000))
    assert 4 * solution.convergence.iterations < other.convergence.iterations
    away = np.linalg.norm(solution.weights - other.weights) / np.linalg.norm(other.weights)
    assert away < 5e-3


def test_others_follow_if_it_does_not_converge(monkeypatch):
    """A factorisation if that is affordable, else the preconditioner that there was without it."""
    small = grid_equations(COUNTS, SHAPE, uneven_weights(COUNTS))
    large = grid_equations((16, 16, 16), (17, 17, 17), uneven_weights((16, 16, 16)))
    diagonal = ConjugateGradients(in_cosines=False)
    for equations, expected in ((small, Factorisation()), (large, diagonal)):
        penalty = at_ratio(equations, 1e-2)
        first = equations.strategy(penalty).strategy
        assert first == COMPLETE
        following = select_fallback(equations, penalty, [Attempt(first, "failed")])
        assert following.strategy == expected
        assert "failed" in following.reason
    both = [Attempt(COMPLETE, "one"), Attempt(Factorisation(), "two")]
    assert select_fallback(small, at_ratio(small, 1e-2), both).strategy == diagonal
    monkeypatch.setattr("kronfield.solvers.points.strategies.PATIENCE", 2)
    solution = large.solve(at_ratio(large, 1e-1), tolerance=1e-2, limit=2000)
    assert solution.method == diagonal.name
    assert "had not converged after 2 iterations; the iterations were continued" in solution.reason
    with pytest.raises(ConvergenceError):
        large.solve(at_ratio(large, 1e-1), tolerance=1e-9, limit=3)
