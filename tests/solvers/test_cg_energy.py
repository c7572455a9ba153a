"""b'A^-1 b by conjugate gradients, and degrees of freedom of large fits from it."""

import numpy as np
import pytest

import kronfield as kf
from kronfield.solvers.points.cg import inverse_energy


class Dense:
    """A dense system, preconditioned by its diagonal."""

    inverse_diagonal = None

    def __init__(self, matrix):
        self.matrix = matrix

    def data(self, x, out=None):
        del out
        return x @ self.matrix

    def penalty(self, x):
        del x

    def precondition(self, r, out=None):
        del out
        return r / np.diag(self.matrix), None


def test_the_energy_is_that_of_the_inverse():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((80, 60))
    matrix = root.T @ root + 0.1 * np.eye(60)
    b = rng.standard_normal((3, 60))
    found = inverse_energy(Dense(matrix), b, tolerance=1e-9, limit=500)
    expected = np.einsum("ci,ci->c", b, np.linalg.solve(matrix, b.T).T)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # iterations that end early give less, never more
    early = inverse_energy(Dense(matrix), b, tolerance=1e-9, limit=5)
    assert np.all(early < expected)


@pytest.mark.parametrize("roughness", [1e-3, 1e-6])
@pytest.mark.parametrize("weighted", [False, True])
def test_degrees_of_freedom_of_many_unknowns_are_within_their_error(roughness, weighted):
    rng = np.random.default_rng(1)
    points = rng.random((1500, 2))
    weights = rng.uniform(0.2, 2.0, 1500) if weighted else None
    hats = kf.Triangle(52, 2 / 52)  # more unknowns than are factored at once
    field = kf.fit_points(
        points,
        np.sin(9 * points[:, 0]),
        hats,
        weights=weights,
        roughness=(0.0, roughness),
        units=(0.02, 0.02),
    )
    equations, penalty = field._uncertainty.equations, field._uncertainty.penalty
    unit = np.eye(52**2).reshape(-1, 52, 52)
    data = equations.term.apply(unit).reshape(52**2, -1)
    matrix = data + equations.differences(penalty).apply(unit).reshape(52**2, -1)
    exact = np.trace(np.linalg.solve(matrix, data))
    report = field.report
    assert report.degrees_of_freedom == pytest.approx(
        exact, abs=3 * report.degrees_of_freedom_error + 0.005 * exact
    )
    assert 0 < report.degrees_of_freedom_error < 0.05 * exact
    assert " ± " in str(report).split("degrees of freedom")[1].split("per channel")[0]
