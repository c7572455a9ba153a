"""Least squares with a few unpenalised columns T, beside penalised features B.

The model is a partial spline (Wahba, 1990, chapter 9):
minimise sum w (y - B x - T c)^2 + x'Px over x and c. With A = B'WB + P and X = A^-1 B'WT, the
columns have S c = T'Wy - X'B'Wy with S = T'WT - X'B'WT, and the features have x = A^-1 B'W(y - Tc).
One solve, by any strategy, gives all of these: the columns of T are further right-hand sides.

If features can follow a column without penalty, its coefficient is not determined, and S is
singular. The column then keeps its coefficient in a regression on T alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.solvers.points.normal import NormalEquations, Penalty, Solution

# Eigenvectors of T'WT with less than this fraction of the largest eigenvalue are dropped: the
# columns are linearly dependent.
DEPENDENT = 1e-12
# A direction of T is not determined if features follow all of it except this fraction: the rounding
# error of a factorisation. After conjugate gradients the fraction is their tolerance.
FREE = 1e-9


@record(eq=False)
class TrendTerm:
    """The parts of the solution from which standard errors of the columns are computed.

    Attributes
    ----------
    followers : array (T, K_1, ..., K_D)
        The weights X of the features that follow the columns.
    inverse : array (T, T)
        The pseudo-inverse of S: the covariance of the coefficients at unit noise.
    """

    followers: Array
    inverse: Array


@record(eq=False)
class Regression:
    """A weighted regression on columns (T, P) alone."""

    columns: Array
    weights: Array | None
    root: Array  # (T, r): root root' is the pseudo-inverse of T'WT

    @classmethod
    def of(cls, columns: Array, weights: Array | None) -> Regression:
        """Return the regression of points with weights (P,)."""
        weighted = columns if weights is None else columns * weights
        values, vectors = np.linalg.eigh(weighted @ columns.T)
        kept = values > DEPENDENT * values[-1]
        return cls(columns, weights, vectors[:, kept] / np.sqrt(values[kept]))

    def moments(self, values: Array) -> Array:
        """Return T'Wy of values (C, P): (T, C)."""
        return self.columns @ (values if self.weights is None else values * self.weights).T

    def coefficients(self, values: Array) -> Array:
        """Return the coefficients (C, T) of values (C, P)."""
        return (self.root @ (self.root.T @ self.moments(values))).T


def solve_with_columns(
    equations: NormalEquations,
    solve: Any,
    penalty: Penalty,
    regression: Regression,
    values: Array,
    tolerance: float,
) -> tuple[NormalEquations, Solution, Array, TrendTerm, Array]:
    """Return the joint fit of features and columns.

    Parameters
    ----------
    equations : NormalEquations
        The equations whose channels are ``values`` (C, P) and then the columns (T, P).
    solve : function
        Returns the `Solution` of all channels.
    penalty : Penalty
        The penalty on the features.
    regression : Regression
        The regression on the columns.
    values : array (C, P)
        The values minus their regression on the columns.
    tolerance : float
        The tolerance of ``solve``.

    Returns
    -------
    equations, solution
        The equations and the solution of the values minus the columns: C channels.
    array (C, T)
        The coefficients.
    TrendTerm
        For standard errors.
    array
        The unknowns of all channels, to start another solve.
    """
    C = len(values)
    whole = solve()
    x, b = whole.unknowns, equations.on_unknowns(equations.rhs, penalty)
    flat, right = (one.reshape(len(one), -1).astype(np.float64) for one in (x, b))
    columns, root = regression.columns, regression.root
    gram = regression.moments(columns)
    # S and its right-hand side, in coordinates in which T'WT is the identity
    S = root.T @ (gram - right[C:] @ flat[C:].T) @ root
    v = root.T @ (regression.moments(values) - right[C:] @ flat[:C].T)
    parts, vectors = np.linalg.eigh((S + S.T) / 2)
    known = parts > (max(FREE, tolerance) if whole.convergence.iterations else FREE)
    basis = root @ vectors[:, known]
    inverse = basis / parts[known] @ basis.T
    c = (basis / parts[known] @ (vectors[:, known].T @ v)).T  # (C, T)

    def without(array: Array) -> Array:
        return array[:C] - np.tensordot(c, array[C:], axes=1).astype(array.dtype)

    left = values - c @ columns
    energy = np.sum(left**2 * (1.0 if regression.weights is None else regression.weights), axis=1)
    own = replace(equations, rhs=without(equations.rhs), energy=energy)
    solution = replace(whole, weights=without(whole.weights), unknowns=without(x))
    return own, solution, c, TrendTerm(whole.weights[C:], inverse), x
