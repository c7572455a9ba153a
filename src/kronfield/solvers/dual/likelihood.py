"""The likelihood of widths and noise, with its gradient in closed form.

Values at n points are y = X b + f + noise. The q columns X (a constant or a trend) have no prior, f
has covariance a^2 K, and the noise a^2 ridge / w. Let S = K + ridge / w. The factor a^2 of each
channel and b are eliminated. This gives the restricted likelihood (Patterson and Thompson, 1971) of
C channels, which share widths and ridge,

    -2 log L = C log|S| + C log|X'S^-1 X| + (n - q) sum over c of log(y_c' Q y_c),
    Q = S^-1 - S^-1 X (X'S^-1 X)^-1 X'S^-1.

The gradient is d(-2 log L) = tr(M dS) with M = C Q - (n - q) sum over c of Q y y' Q / (y' Q y).
All parameters share the matrix M, so that no parameter needs a solve of its own.

Where r values repeat a place, y holds means. With the sum of squares s_c of the values about these
means, C r log(ridge) is added to -2 log L, s_c / ridge to y_c' Q y_c, and r to n - q.
"""

from __future__ import annotations

import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.solvers.dual.similarity import Pairs, Similarity

# Sums of squares of values with unit variance are rounding below this fraction of their number.
ROUNDING = 1e-20


def orthonormal(columns: Array) -> tuple[Array, Array]:
    """Return orthonormal columns (n, q) with the span of ``columns`` (T, n), and a matrix (T, q).

    The product of this matrix with coefficients of the orthonormal columns gives coefficients of
    the original columns, those of least norm if the columns are linearly dependent.
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
        The relative variances of the noise: one over the weights of the points.
    columns : array (n, q)
        Orthonormal columns X without a prior.
    shape : str
        The shape of the similarity.
    widths, ridges : tuple of 2 floats
        The range of widths, relative to the standard deviation of positions, and of the ridge.
    prior : float
        The strength of the prior of widths: -log p is this number times the sum over axes of spread
        / width, so that 1 / width has an exponential distribution. It favours functions that depend
        on few of many axes.
    within : array (C,) or None
        The sums s_c; None if no value repeats a place.
    repeats : int
        The number r of values that repeat a place.
    """

    pairs: Pairs
    values: Array
    noise: Array
    columns: Array
    shape: str
    widths: tuple[float, float]
    ridges: tuple[float, float]
    prior: float = 0.0
    within: Array | None = None
    repeats: int = 0

    def __call__(self, parameters: Array) -> tuple[float, Array]:
        """Return -log L and its gradient by the logarithms of the D widths and the ridge."""
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
        own = 0.0 if self.within is None else self.within / ridge
        left = n + self.repeats - q
        squares = np.maximum(np.sum(self.values * Qy, axis=0) + own, ROUNDING * n)
        volume = logarithm + self.repeats * math.log(ridge) + np.linalg.slogdet(G)[1]
        value = 0.5 * (C * volume + left * float(np.sum(np.log(squares))))
        M = C * Q - left * (Qy / squares) @ Qy.T
        weights = squareform(M, checks=False) * flat
        slopes = self.pairs.slopes(self.shape, widths, weights)
        slope = 0.5 * ridge * float(np.diag(M) @ self.noise)
        slope += 0.5 * (C * self.repeats - left * float(np.sum(own / squares)))
        return value, np.append(slopes, slope)

    def maximum(
        self, start: Similarity, ridge: float, spread: Array, steps: int, fixed: bool = False
    ) -> tuple[Similarity, float, float]:
        """Return the likeliest widths and ridge, and -log L with the prior there, by L-BFGS.

        Parameters
        ----------
        start, ridge
            The start of the search.
        spread : array (D,)
            The standard deviation of positions on each axis.
        steps : int
            The most iterations.
        fixed : bool
            Whether the ridge is kept at its start.
        """
        from scipy.optimize import minimize

        def penalised(parameters: Array) -> tuple[float, Array]:
            value, slope = self(parameters)
            prior = self.prior * spread * np.exp(-parameters[:-1])
            slope[:-1] -= prior
            return value + float(prior.sum()), slope

        narrowest, widest = self.widths
        ends = [(math.log(s * narrowest), math.log(s * widest)) for s in spread]
        least, most = map(math.log, self.ridges)
        known = math.log(ridge)
        ends.append((known, known) if fixed else (least, most))
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
