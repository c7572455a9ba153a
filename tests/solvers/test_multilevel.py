"""The preconditioner from coarser grids, against dense matrices."""

import numpy as np
import pytest

import kronfield as kf
from kronfield._core.frames import Frame
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.multilevel import Multilevel, _energy, halved, prolong
from kronfield.solvers.points.normal import Penalty
from kronfield.solvers.points.penalty import DifferencePenalty

SHAPES = [(70,), (24, 31), (13, 12, 5)]


def known(shape, part, seed=0):
    """Return 1.0 at some of the nodes, else 0.0."""
    return (np.random.default_rng(seed).random(shape) < part).astype(float)


def preconditioner(shape, part=0.1, second=1e-4, first=1e-6):
    """The preconditioner, and the dense matrices of it and of the system, (n, n)."""
    penalty = DifferencePenalty(shape, [1.0 + 0.5 * i for i in range(len(shape))], first, second)
    mass, stiffness = known(shape, part), float(penalty.symbol.mean())
    found = Multilevel.of(penalty, mass, stiffness, 1 / (mass + stiffness))
    n = mass.size
    units = np.eye(n).reshape(n, *shape)
    system = penalty.apply(units).reshape(n, n) + np.diag(mass.ravel())
    return found, found(units).reshape(n, n), system


@pytest.mark.parametrize("shape", SHAPES)
def test_the_preconditioner_is_symmetric_and_positive(shape):
    _, matrix, _ = preconditioner(shape)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12 * matrix.max())
    assert np.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_sum_over_grids_of_truncated_hats(shape):
    """z = D^-1 r + sum over levels of T P_l D_l^-1 P_l' T r, with dense P_l."""
    found, matrix, _ = preconditioner(shape)
    n = found.inverse.size
    expected, basis, size = np.diag(found.inverse.ravel()), np.diag(found.free.ravel()), shape
    for inverse in found.levels:
        finer = np.eye(inverse.size).reshape(-1, *inverse.shape)
        for axis in halved(size):
            finer = prolong(finer, axis, size[axis - 1])
        basis, size = basis @ finer.reshape(inverse.size, -1).T, inverse.shape
        expected = expected + basis @ np.diag(inverse.ravel()) @ basis.T
    assert found.levels
    assert expected.shape == (n, n)
    np.testing.assert_allclose(matrix, expected, atol=1e-12 * expected.max())


@pytest.mark.parametrize("shape", [(70,), (40, 50), (22, 21, 23)])
def test_the_energy_is_that_of_a_hat(shape):
    penalty = DifferencePenalty(shape, [1.0 + 0.5 * i for i in range(len(shape))], 0.3, 0.7, 0.1)
    scale = [4 + 2 * i for i in range(len(shape))]
    hat = np.ones(())
    for n, s in zip(shape, scale, strict=True):
        hat = np.multiply.outer(hat, np.maximum(1 - np.abs(np.arange(n) - n // 2) / s, 0))
    np.testing.assert_allclose(_energy(penalty, scale), penalty.energy(hat[None])[0])


@pytest.mark.parametrize(("shape", "most"), [((24, 31), 0.1), ((11, 12, 13), 0.7)])
def test_the_system_is_better_conditioned(shape, most):
    found, matrix, system = preconditioner(shape, 0.05)
    both = [
        np.sort(np.linalg.eigvals(one @ system).real)
        for one in (matrix, np.diag(found.inverse.ravel()))
    ]
    several, diagonal = (values[-1] / values[0] for values in both)
    assert several < most * diagonal


def test_there_is_none_without_a_penalty_or_on_short_axes():
    def of(shape, mass, second):
        penalty = DifferencePenalty(shape, [1.0] * len(shape), 0.0, second)
        stiffness = float(penalty.symbol.mean())
        return Multilevel.of(penalty, mass, stiffness, 1 / (mass + max(stiffness, 1e-9)))

    mass = known((24, 24), 0.1)
    assert of((24, 24), mass, 1e-4) is not None
    assert of((24, 24), mass, 0.0) is None
    assert of((11, 11), mass[:11, :11], 1e-4) is None


def test_iterations_hardly_grow_with_distances():
    counts = []
    for part in (0.1, 0.02):
        nodes = np.argwhere(known((180, 180), part)) / 180
        encoding = kf.Kronecker(*[kf.Triangle(180, 2 / 180)] * 2)
        rule = RowRule.choose(encoding, [Frame(0.0, 1.0, 0.0, 1.0)] * 2, None)
        values = np.sin(9 * nodes[:, 0] + 4 * nodes[:, 1])[None]
        equations = assemble(rule, nodes, values, None)
        penalty = Penalty(roughness=(0.0, 1e-12))
        solution = equations.solve(penalty, tolerance=1e-4, limit=2000)
        counts.append(solution.convergence.iterations)
        assert "several grids" in solution.method
    # by the diagonal alone 198 and 1018
    assert counts[0] < 90
    assert counts[1] < 180


def test_smooth_lattices_without_noise_are_fitted_from_a_tenth_of_their_samples():
    x = np.linspace(0, 1, 180)
    values = np.sin(9 * x[:, None] + 5 * x) + np.cos(12 * x[:, None] - 3 * x)
    missing = np.random.default_rng(0).random(values.shape) < 0.9
    field = kf.fit(np.where(missing, 0, values), mask=missing)
    # by the diagonal alone, iterations do not converge
    assert np.std(field.on_grid() - values) < 0.002 * np.std(values)


def test_penalties_that_are_nearly_0_do_not_overflow_in_single_precision():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((96, 80)).astype(np.float32)
    field = kf.fit(values, mask=rng.random(values.shape) > 0.1, roughness=(0.0, 1e-60))
    assert "several grids" in str(field.report)
    assert np.abs(field.on_grid()).max() < 10 * np.abs(values).max()
