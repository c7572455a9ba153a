"""How systems at points are solved: which strategy is selected and why, and that all agree."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import kronfield as kf
from kronfield._core.frames import Frame
from kronfield.solvers.points import direct, strategies
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.dense import DenseTerm
from kronfield.solvers.points.direct import sparse_penalty, sparse_term
from kronfield.solvers.points.normal import Penalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.strategies import (
    AT_ONCE,
    PATIENCE,
    Attempt,
    BandedCholesky,
    ConjugateGradients,
    EigenbasisConjugateGradients,
    Factorisation,
    Iterations,
    SingularError,
    select_fallback,
    select_strategy,
)
from kronfield.solvers.points.systems import SPARSE, WEAK, WEAK_IF_SPARSE, WEAK_ON_NODES, RowsTerm

ROUGH, WEAK_PENALTY = Penalty(roughness=(0.0, 1e-7)), Penalty(roughness=(0.0, 1e-9))
PRECISE = Iterations(tolerance=1e-11, limit=5000)
COSINES, DIAGONAL = ConjugateGradients(in_cosines=True), ConjugateGradients(in_cosines=False)


def hats(*shape):
    return kf.Kronecker(*(kf.Triangle(n, 2 / n) for n in shape))


def equations_of(encoding, points, values=None, rows=None):
    """Normal equations of points in the unit cube."""
    rule = RowRule.choose(encoding, [Frame(0.0, 1.0, 0.0, 1.0)] * points.shape[1], rows)
    rng = np.random.default_rng(1)
    y = rng.standard_normal((2, len(points))) if values is None else values
    return assemble(rule, points, y, None)


def scattered(shape, per_cell=2.0, seed=0, rows=None):
    """Random points, enough for several in every block of cells."""
    count = int(per_cell * np.prod(shape))
    points = np.random.default_rng(seed).random((count, len(shape)))
    return equations_of(hats(*shape), points, rows=rows)


def on_nodes(shape, present=None):
    """A point on every node, or on those that are ``present``."""
    present = np.ones(shape, dtype=bool) if present is None else present
    points = np.argwhere(present) / np.array(shape)
    return equations_of(hats(*shape), points)


def dense_solution(equations, penalty):
    shape = equations.encoding.shape
    matrix = sparse_term(equations.term, shape) + sparse_penalty(equations.differences(penalty))
    flat = equations.rhs.reshape(len(equations.rhs), -1)
    return np.linalg.solve(matrix.toarray(), flat.T).T.reshape(equations.rhs.shape)


def check(equations, penalty, strategy, reason, **options):
    """The selection, and that `solve` does and reports the same."""
    selection = equations.strategy(penalty)
    assert selection.strategy == strategy
    assert reason in selection.reason
    solution = equations.solve(penalty, **({"tolerance": 1e-4, "limit": 2000} | options))
    assert (solution.method, solution.reason) == (strategy.name, selection.reason)
    return solution


# The selector
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [300, AT_ONCE + 1])
def test_lines_are_banded_whatever_their_length(n):
    equations = scattered((n,))
    assert isinstance(equations.term, Stencil)
    check(equations, ROUGH, BandedCholesky(), f"{n:,} unknowns on a line")


def test_a_line_of_wide_features_is_dense():
    points = np.random.default_rng(0).random((90, 1))
    equations = equations_of(kf.Kronecker(kf.Gaussian(20, 0.1)), points, rows="exact")
    assert isinstance(equations.term, DenseTerm)
    check(equations, ROUGH, Factorisation(), "20 unknowns, at most 2,500 are factored at once")


def test_few_unknowns_are_factored_at_once():
    assert AT_ONCE == 50 * 50 == 41 * 61 - 1
    check(scattered((50, 50)), ROUGH, Factorisation(), "2,500 unknowns, at most 2,500 are factored")
    check(
        scattered((41, 61)),
        WEAK_PENALTY,
        ConjugateGradients(in_cosines=False, patience=PATIENCE),
        "2,501 unknowns, more than the 2,500 that are factored at once; the penalty adds",
    )


def test_gaps_are_factored():
    present = np.ones((64, 64), dtype=bool)
    present[16:24, 32:39] = False
    equations = on_nodes((64, 64), present)
    assert equations.strategy(ROUGH).strategy != Factorisation()
    present[16:24, 39] = False  # now a whole block of 8 x 8 cells is empty
    equations = on_nodes((64, 64), present)
    check(
        equations,
        ROUGH,
        Factorisation(),
        "the points leave gaps of 8 cells or more; 4,096 unknowns, at most 30,000 can be factored",
    )


@pytest.mark.parametrize(
    ("small", "large", "limit", "empty"),
    [
        ((100, 300), (101, 298), direct.LARGEST_PLANE, np.s_[:8, :8]),
        ((6, 30, 25), (6, 29, 26), direct.LARGEST_SPACE, np.s_[0, :8, :8]),
    ],
)
def test_only_what_is_affordable_is_factored(small, large, limit, empty):
    """Of grids with gaps; without gaps the same limit decides on the patience."""
    assert np.prod(small) == limit < np.prod(large)
    for shape, factored in ((small, True), (large, False)):
        present = np.ones(shape, dtype=bool)
        present[empty] = False
        with_gaps, complete = (on_nodes(shape, some).strategy(ROUGH) for some in (present, None))
        assert (with_gaps.strategy == Factorisation()) == factored
        assert complete.strategy.patience == (PATIENCE if factored else None)


@pytest.mark.parametrize(("make", "threshold"), [(scattered, WEAK), (on_nodes, WEAK_ON_NODES)])
def test_the_strength_of_the_penalty_selects_the_preconditioner(make, threshold):
    equations = make((60, 50))
    unit = equations.local_system(Penalty(roughness=(0.0, 1.0)))
    at_threshold = threshold * unit.data_diagonal / unit.stiffness
    for factor, in_cosines, word in ((0.999, False, "not more"), (1.001, True, "more")):
        penalty = Penalty(roughness=(0.0, factor * at_threshold))
        strategy = ConjugateGradients(in_cosines, PATIENCE)
        reason = f"times the diagonal of the data, {word} than {threshold:g}"
        check(equations, penalty, strategy, reason)
    assert COSINES.name == "conjugate gradients, preconditioned in cosines"
    assert DIAGONAL.name == "conjugate gradients, preconditioned by the diagonal"


def sparse_lattice(shape, known):
    """Nodes of which a part is known, spread evenly: every axis has its own irrational step."""
    n = math.prod(shape)
    order = np.argsort(np.arange(n) * (math.sqrt(5) - 1) / 2 % 1, kind="stable")
    present = np.zeros(n, dtype=bool)
    present[order[: round(known * n)]] = True
    return on_nodes(shape, present.reshape(shape))


def test_where_few_nodes_have_data_coarser_grids_precondition():
    several = "conjugate gradients, preconditioned by the diagonals of several grids"
    for known, on_levels in ((SPARSE - 0.01, True), (SPARSE + 0.01, False)):
        equations = sparse_lattice((60, 50), known)
        strategy = equations.strategy(WEAK_PENALTY).strategy
        assert strategy == ConjugateGradients(False, PATIENCE, on_levels)
        assert strategy.name == (several if on_levels else DIAGONAL.name)
    equations = sparse_lattice((60, 50), 0.1)
    unit = equations.local_system(Penalty(roughness=(0.0, 1.0)))
    at_threshold = WEAK_IF_SPARSE * unit.data_diagonal / unit.stiffness
    for factor, in_cosines in ((0.999, False), (1.001, True)):
        penalty = Penalty(roughness=(0.0, factor * at_threshold))
        strategy = ConjugateGradients(in_cosines, PATIENCE, not in_cosines)
        assert equations.strategy(penalty).strategy == strategy


def test_gaps_are_no_reason_to_factor_with_coarser_grids():
    present = np.random.default_rng(0).random((64, 64)) < 0.1
    present[8:16, 8:16] = False
    equations = on_nodes((64, 64), present)
    assert equations.gaps
    assert equations.strategy(WEAK_PENALTY).strategy == ConjugateGradients(False, PATIENCE, True)
    assert equations.strategy(Penalty(roughness=(0.0, 1.0))).strategy == Factorisation()


def test_blended_rows_are_solved_in_the_eigenbasis():
    points = np.random.default_rng(0).random((200, 2))
    equations = equations_of(kf.Kronecker(*[kf.Gaussian(9, 0.2)] * 2), points, rows="blending")
    nodes = " x ".join(str(len(axis)) for axis in equations.nodes)
    strategy = EigenbasisConjugateGradients()
    check(equations, Penalty(ridge=0.1), strategy, f"rows are blended on {nodes} nodes")


def test_asking_solves_nothing(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("solved")

    for name in ("conjugate_gradients", "direct_solve", "coarse_start", "local_means"):
        monkeypatch.setattr(strategies, name, never)
    for shape in ((300,), (20, 20), (60, 60)):
        equations = scattered(shape)
        assert equations.strategy(ROUGH).reason == select_strategy(equations, ROUGH).reason


# Fallbacks
# ------------------------------------------------------------------------------------------


def test_a_factorisation_follows_iterations_that_do_not_converge():
    equations = scattered((60, 50))
    first = equations.strategy(WEAK_PENALTY)
    assert first.strategy == ConjugateGradients(in_cosines=False, patience=PATIENCE)
    solution = equations.solve(WEAK_PENALTY, tolerance=1e-11, limit=3)
    assert solution.method == Factorisation.name
    assert solution.reason == (
        "conjugate gradients had not converged after 3 iterations; "
        "3,000 unknowns, at most 30,000 can be factored"
    )
    expected = dense_solution(equations, WEAK_PENALTY)
    np.testing.assert_allclose(solution.weights, expected, atol=1e-9 * np.abs(expected).max())


def test_patience_is_an_upper_limit(monkeypatch):
    equations = scattered((60, 50))
    needed = equations.solve(WEAK_PENALTY, tolerance=1e-4, limit=2000).convergence.iterations
    for patience, name in ((needed, DIAGONAL.name), (needed - 1, Factorisation.name)):
        monkeypatch.setattr(strategies, "PATIENCE", patience)
        assert equations.solve(WEAK_PENALTY, tolerance=1e-4, limit=2000).method == name


def test_large_systems_are_not_factored():
    equations = scattered((180, 180), per_cell=1.0)
    with pytest.raises(ConvergenceError, match="after 3 iterations") as caught:
        equations.solve(ROUGH, tolerance=1e-11, limit=3)
    assert caught.value.iterations == 3


def test_iterations_follow_a_singular_factorisation():
    """Without a penalty, nodes without a point have no equation: any weight solves the system."""
    for shape in ((40, 40), (60, 60)):
        present = np.ones(shape, dtype=bool)
        present[8:24, 8:24] = False
        equations = on_nodes(shape, present)
        assert equations.strategy(Penalty()).strategy == Factorisation()
        with pytest.raises(SingularError, match="singular"):
            Factorisation().solve(equations, Penalty(), equations.rhs, PRECISE)
        solution = equations.solve(Penalty(), tolerance=1e-6, limit=100)
        assert solution.method == DIAGONAL.name
        assert solution.reason.startswith("the factorisation found the matrix singular to rounding")
        np.testing.assert_allclose(
            (solution.weights * equations.term.diagonal)[:, present],
            equations.rhs[:, present],
            atol=1e-5,
        )


def test_iterations_continue_if_a_factorisation_does_not_help():
    """Without a penalty and with fewer points than weights, the matrix is singular."""
    points = np.random.default_rng(0).random((400, 2))
    equations = equations_of(hats(30, 30), points)
    solution = equations.solve(Penalty(), tolerance=1e-6, limit=2000)
    assert solution.method == DIAGONAL.name
    assert solution.reason == (
        "the factorisation found the matrix singular to rounding; conjugate gradients had not "
        f"converged after {PATIENCE} iterations; the iterations were continued"
    )
    left = equations.term.apply(solution.weights) - equations.rhs
    assert np.abs(left).max() < 1e-4 * np.abs(equations.rhs).max()
    with pytest.raises(ConvergenceError, match="after 2 iterations"):
        equations.solve(Penalty(), tolerance=1e-6, limit=2)


def test_the_order_of_fallbacks():
    equations = scattered((60, 50))
    patient, factored = ConjugateGradients(False, PATIENCE), Factorisation()

    def following(*tried):
        attempts = [Attempt(strategy, f"failure {i}") for i, strategy in enumerate(tried)]
        found = select_fallback(equations, WEAK_PENALTY, attempts)
        assert found is None or all(attempt.failure in found.reason for attempt in attempts)
        return found and found.strategy

    assert following(factored) == following(BandedCholesky()) == patient
    assert following(patient) == factored
    assert following(patient, factored) == following(factored, patient) == DIAGONAL
    assert following(DIAGONAL) is None
    assert following(patient, factored, DIAGONAL) is None
    assert following(EigenbasisConjugateGradients()) is None


# Every strategy against the dense solution
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40,), (14, 12), (7, 6, 8)])
@pytest.mark.parametrize("penalty", [Penalty(ridge=0.1), Penalty(roughness=(1e-3, 1e-5))], ids=str)
@pytest.mark.parametrize("strategy", [Factorisation(), COSINES, DIAGONAL], ids=lambda s: s.name)
def test_strategies_give_the_dense_solution(shape, penalty, strategy):
    equations = scattered(shape)
    solution = strategy.solve(equations, penalty, equations.rhs, PRECISE)
    expected = dense_solution(equations, penalty)
    np.testing.assert_allclose(solution.weights, expected, atol=1e-8 * np.abs(expected).max())
    assert solution.method == strategy.name
    assert (solution.convergence.iterations > 0) == isinstance(strategy, ConjugateGradients)


def test_banded_cholesky_gives_the_dense_solution():
    equations = scattered((200,))
    solution = BandedCholesky().solve(equations, ROUGH, equations.rhs, PRECISE)
    expected = dense_solution(equations, ROUGH)
    np.testing.assert_allclose(solution.weights, expected, atol=1e-9 * np.abs(expected).max())


def test_the_eigenbasis_gives_the_dense_solution():
    encoding = kf.Kronecker(*[kf.Gaussian(9, 0.25)] * 2)
    rng = np.random.default_rng(0)
    points, values = rng.random((150, 2)), rng.standard_normal((2, 150))
    equations = equations_of(encoding, points, values, rows="blending")
    penalty, nodes = Penalty(ridge=0.05), equations.nodes
    B = kf.Blending(encoding, nodes).matrix(points) @ encoding(
        np.array(list(itertools.product(*nodes)))
    )
    expected = np.linalg.solve(B.T @ B + 0.05 * np.eye(B.shape[1]), B.T @ values.T).T
    b = equations.basis_system(penalty).adjoint(equations.rhs)
    solution = EigenbasisConjugateGradients().solve(equations, penalty, b, PRECISE)
    np.testing.assert_allclose(
        solution.weights.reshape(2, -1), expected, atol=1e-6 * np.abs(expected).max()
    )


def test_every_form_of_the_data_term_gives_the_dense_solution():
    few = scattered((30, 30), per_cell=0.2)
    assert isinstance(few.term, RowsTerm)
    for equations in (few, scattered((30, 30), per_cell=6.0), on_nodes((30, 30))):
        expected = dense_solution(equations, ROUGH)
        for strategy in (Factorisation(), COSINES, DIAGONAL):
            solution = strategy.solve(equations, ROUGH, equations.rhs, PRECISE)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(solution.weights, expected, atol=1e-7 * scale)


def test_a_start_is_used_and_not_overwritten():
    equations = scattered((30, 30))
    exact = Factorisation().solve(equations, ROUGH, equations.rhs).unknowns
    kept = exact.copy()
    for strategy in (COSINES, DIAGONAL):
        first = strategy.solve(equations, ROUGH, equations.rhs, PRECISE)
        again = strategy.solve(equations, ROUGH, equations.rhs, replace(PRECISE, start=exact))
        assert again.convergence.iterations < first.convergence.iterations
        np.testing.assert_array_equal(exact, kept)


def test_a_failure_keeps_the_last_estimate():
    equations = scattered((30, 30))
    exact = dense_solution(equations, ROUGH)
    with pytest.raises(ConvergenceError) as caught:
        DIAGONAL.solve(equations, ROUGH, equations.rhs, Iterations(1e-11, 20))
    assert caught.value.iterations == 20
    assert np.abs(caught.value.unknowns - exact).max() < np.abs(exact).max()


def test_at_once_factors_what_is_affordable():
    """`at_once` replaces iterations by a factorisation, and the solution is the same."""
    equations = scattered((60, 60))
    assert isinstance(equations.strategy(ROUGH).strategy, ConjugateGradients)
    iterated = equations.solve(ROUGH, tolerance=1e-9, limit=5000)
    factored = equations.solve(ROUGH, tolerance=1e-9, limit=5000, at_once=True)
    assert factored.method == Factorisation.name
    assert factored.reason.startswith("conjugate gradients failed before")
    scale = np.abs(iterated.weights).max()
    np.testing.assert_allclose(factored.weights, iterated.weights, atol=1e-5 * scale)


def test_many_right_hand_sides_share_a_factorisation():
    """So do random fits for standard errors, which would each cross the gaps by iterations."""
    equations = scattered((200, 160), per_cell=0.2)
    few = select_strategy(equations, ROUGH, right_sides=direct.MANY_SIDES - 1)
    assert isinstance(few.strategy, ConjugateGradients)
    many = select_strategy(equations, ROUGH, right_sides=direct.MANY_SIDES)
    assert many.strategy == Factorisation()
    assert f"{direct.MANY_SIDES} right-hand sides" in many.reason
    rng = np.random.default_rng(0)
    rhs = equations.term.apply(rng.standard_normal((direct.MANY_SIDES, 200, 160)))
    together = equations.solve(ROUGH, tolerance=1e-6, limit=1, rhs=rhs)
    assert together.method == "factorisation"
    alone = equations.solve(ROUGH, tolerance=1e-9, limit=5000, rhs=rhs[3:4])
    np.testing.assert_allclose(together.weights[3:4], alone.weights, rtol=0, atol=1e-4)


def test_a_factorisation_for_many_right_hand_sides_is_limited():
    assert not direct.affordable((400, 300), right_sides=64, taps=(4, 4))
    assert direct.affordable((400, 300), right_sides=64, taps=(3, 3))
    for shape in ((600, 501), (28, 28, 27)):
        assert not direct.affordable(shape, right_sides=64)
        assert direct.affordable(tuple(n // 2 for n in shape), right_sides=64)
