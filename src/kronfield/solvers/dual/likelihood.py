"""The likelihood of widths and noise, with its gradient in closed form.

Values at n points are y = X b + f + noise: columns X that are left alone (a constant, or a trend),
and f with covariance a^2 K, noise with covariance a^2 ridge / w. With S = K + ridge / w, the factor
a^2 of each channel and b are eliminated: what is maximised is the restricted likelihood
(Patterson and Thompson, 1971) of C channels, which share widths and ridge,

    -2 log L = C log|S| + C log|X'S^-1 X| + (n - q) sum over c of log(y_c' Q y_c),
    Q = S^-1 - S^-1 X (X'S^-1 X)^-1 X'S^-1.

The gradient is that of the matrix M = C Q - (n - q) sum of Q y y' Q / (y' Q y), since
d(-2 log L) = tr(M dS): no loop over parameters solves anything.
"""

from __future__ import annotations

import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.solvers.dual.similarity import Pairs, Similarity

# The range of the ridge: below, rounding errors dominate; above, there is nothing but noise.
LEAST_RIDGE, MOST_RIDGE = 1e-10, 1e3
# The range of widths, relative to the standard deviation of positions. Functions do not depend on
# an axis of the largest width.
NARROWEST, WIDEST = 1e-2, 1e3
# Sums of squares below this part of the number of values, which have unit variance, are rounding.
ROUNDING = 1e-20


def orthonormal(columns: Array) -> tuple[Array, Array]:
    """Return orthonormal columns (n, q) of the span of ``columns`` (T, n), and the way back (T, q).

    The product of the way back and coefficients of the orthonormal columns are coefficients of the
    given ones, of least norm if these depend on each other.
    """
    u, s, vt = np.linalg.svd(columns.T, full_matrices=False)
    kept = s > 1e-10 * s[0]
    return u[:, kept], vt[kept].T / s[kept]


@record(eq=False)
class Likelihood:
    """The restricted likelihood of values at points.

    Attributes
    ----------
    pairs : Pairs
        The points.
    values : array (n, C)
        The values.
    noise : array (n,)
        The variances of the noise, relative to each other: one over the weights of the points.
    columns : array (n, q)
        Orthonormal columns that are left alone.
    shape : str
        The shape of the similarity.
    prior : float
        The prior of widths: -log p is this number times the sum over axes of spread over width, as
        of exponential distributions of 1 / width. Of many axes, few matter.
    """

    pairs: Pairs
    values: Array
    noise: Array
    columns: Array
    shape: str
    prior: float = 0.0

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """Return -log L and its gradient by the logarithms of the D widths and of the ridge."""
        from scipy.spatial.distance import squareform

        linalg = scipy_linalg()
        widths, ridge = np.exp(parameters[:-1]), math.exp(parameters[-1])
        n, q = self.columns.shape
        C = self.values.shape[1]
        flat = self.pairs.similarities(self.shape, widths)
        S = squareform(flat, checks=False)
        S[np.diag_indices(n)] = 1.0 + ridge * self.noise
        factor, failed = linalg.lapack.dpotrf(S.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return 1e10, np.zeros(len(parameters))
        logarithm = 2.0 * float(np.sum(np.log(np.diag(factor))))
        inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        SX = inverse @ self.columns
        G = self.columns.T @ SX
        Q = inverse - SX @ np.linalg.solve(G, SX.T)
        Qy = Q @ self.values
        squares = np.maximum(np.sum(self.values * Qy, axis=0), ROUNDING * n)
        value = 0.5 * (
            C * (logarithm + np.linalg.slogdet(G)[1]) + (n - q) * float(np.sum(np.log(squares)))
        )
        M = C * Q - (n - q) * (Qy / squares) @ Qy.T
        weights = squareform(M, checks=False) * flat
        slopes = self.pairs.slopes(self.shape, widths, weights)
        slope = 0.5 * ridge * float(np.diag(M) @ self.noise)
        return value, np.append(slopes, slope)

    def maximum(
        self, start: Similarity, ridge: float, spread: Array, steps: int, fixed: bool = False
    ) -> tuple[Similarity, float, float]:
        """Return the likeliest widths and ridge, and -log L with the prior there, by L-BFGS.

        Parameters
        ----------
        start, ridge
            Where to start.
        spread : array (D,)
            The standard deviation of positions on each axis.
        steps : int
            The most iterations.
        fixed : bool
            Whether the ridge is given.
        """
        from scipy.optimize import minimize

        def penalised(parameters: Array) -> tuple[float, Array]:
            value, slope = self(parameters)
            prior = self.prior * spread * np.exp(-parameters[:-1])
            slope[:-1] -= prior
            return value + float(prior.sum()), slope

        ends = [(math.log(s * NARROWEST), math.log(s * WIDEST)) for s in spread]
        known = math.log(ridge)
        ends.append((known, known) if fixed else (math.log(LEAST_RIDGE), math.log(MOST_RIDGE)))
        first = np.array([*np.log(start.widths), known])
        low, high = np.array(ends).T
        found = minimize(
            penalised,
            np.clip(first, low, high),
            jac=True,
            method="L-BFGS-B",
            bounds=ends,
            options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-6},
        )
        widths = tuple(float(w) for w in np.exp(found.x[:-1]))
        return Similarity(self.shape, widths), math.exp(found.x[-1]), float(found.fun)
