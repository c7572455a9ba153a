"""Solutions of the system of the dual form: directly, or with inducing points if there are many.

`Direct` factors S = K + ridge / w of all points. `Inducing` writes the fit as a sum of similarities
to m of the points: K is approximated by K_nm K_mm^-1 K_mn. The ridge maximises the bound on the
likelihood of Titsias (2009), which accounts for the variance that the approximation leaves out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.solvers.dual.likelihood import orthonormal
from kronfield.solvers.dual.similarity import AxisSimilarity, Similarity, on_axes

# This fraction of the diagonal of K_mm is added to it, so that rounding does not make it singular.
JITTER = 1e-8
# Leave-one-out errors are computed at no more than this many points, to save time: the standard
# error of their root mean square is then 2 % of it.
MOST_LEFT_OUT = 1000
# The largest step between the logarithms of the ridges that are tried with inducing points: the
# likelihood hardly changes over a quarter of the ridge.
RIDGE_STEP = 0.25
# Similarities to inducing points are computed for this many points at a time: 32 MB for 1000.
BLOCK = 4096
# The most attempts to factor a matrix. If it is singular to rounding, the ridge is multiplied by
# ten.
ATTEMPTS = 6


@record(eq=False)
class DualSolution:
    """The solution for values of C channels.

    Attributes
    ----------
    coefficients : array (C, m)
        The weight of the similarity to each centre.
    trend : array (C, T)
        The coefficients of the unpenalised columns.
    variances : array (C,)
        The factor a^2 of the similarity in the covariance.
    left_out : array (C, n')
        Leave-one-out errors at n' of the points, times the square roots of their weights.
    left_out_weights : array (n',)
        The weights of these points.
    leverages : array (n',)
        Their leverages, subtracted from 1.
    """

    coefficients: Array
    trend: Array
    variances: Array
    left_out: Array
    left_out_weights: Array
    leverages: Array


class _Centred:
    """A system with centres.

    The field and its report refer to the same `axes`. A pickle therefore holds the positions only
    once, and the centres are assembled from `axes` when it is read.
    """

    similarity: Similarity
    centres: Array

    @functools.cached_property
    def axes(self) -> list[AxisSimilarity]:
        """The similarities to the centres on each axis."""
        return on_axes(self.similarity, self.centres)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.centres = np.stack([axis.centres for axis in self.axes], axis=1)


class Direct(_Centred):
    """The system of all points.

    Parameters
    ----------
    similarity, ridge
        The settings.
    points : array (n, D)
        The centres.
    noise : array (n,)
        One over the weights of the points.
    columns : array (T, n)
        The unpenalised columns, at the points.
    """

    kind = "direct"

    def __init__(
        self, similarity: Similarity, ridge: float, points: Array, noise: Array, columns: Array
    ) -> None:
        self.similarity, self.ridge, self.centres = similarity, ridge, points
        self.noise, self.columns = noise, columns

    def __getstate__(self) -> dict[str, Any]:
        names = ("similarity", "ridge", "axes", "noise", "columns")
        return {name: getattr(self, name) for name in names}

    @functools.cached_property
    def _factor(self) -> Array:
        """The lower triangular L with L L' = S."""
        linalg = scipy_linalg()
        for _ in range(ATTEMPTS):
            S = self.similarity.between(self.centres, self.centres)
            S[np.diag_indices(len(S))] += self.ridge * self.noise
            factor, failed = linalg.lapack.dpotrf(S.T, lower=1, clean=1, overwrite_a=1)
            if not failed:
                return np.asarray(factor)
            self.ridge *= 10.0
        raise problem(
            "points",
            "similarities that are singular to rounding",
            "weights of comparable size",
            "Pass a larger ridge, or weights closer to each other.",
        )

    def _forward(self, right: Array) -> Array:
        """Return L^-1 times the columns of ``right``."""
        solved = scipy_linalg().solve_triangular(
            self._factor, right, lower=True, check_finite=False
        )
        return np.asarray(solved)

    def _back(self, right: Array) -> Array:
        """Return L'^-1 times the columns of ``right``."""
        solved = scipy_linalg().solve_triangular(
            self._factor, right, lower=True, trans=1, check_finite=False
        )
        return np.asarray(solved)

    @functools.cached_property
    def _alone(self) -> tuple[Array, Array, Array]:
        """L^-1 X, the Cholesky factor of X'S^-1 X, and the matrix (T, q) of `orthonormal`."""
        X, way = orthonormal(self.columns)
        LX = self._forward(X)
        return LX, np.linalg.cholesky(LX.T @ LX), way

    def _without_trend(self, whitened: Array) -> tuple[Array, Array]:
        """Return L^-1 y without its part in the columns, and the coefficients of the columns."""
        LX, G, _ = self._alone
        b = np.linalg.solve(G.T, np.linalg.solve(G, LX.T @ whitened))
        return whitened - LX @ b, b

    def solve(
        self,
        values: Array,
        judged: Array | None = None,
        within: Array | float = 0.0,
        repeats: int = 0,
    ) -> DualSolution:
        """Return the solution for values (C, n).

        Leave-one-out errors are computed at the points with the indices ``judged``, by default at
        up to MOST_LEFT_OUT points. The sums ``within`` (C,) and ``repeats`` are those of values
        that repeat a place; see `Likelihood`.
        """
        n = len(self.centres)
        left, b = self._without_trend(self._forward(values.T))
        coefficients = self._back(left)
        freedom = max(1, n + repeats - b.shape[0])
        chosen = self._some if judged is None else judged
        q = np.maximum(self._precisions(chosen), 1e-300)
        noise = self.noise[chosen]
        errors = coefficients[chosen] / q[:, None] / np.sqrt(noise)[:, None]
        return DualSolution(
            coefficients.T,
            (self._alone[2] @ b).T,
            (np.sum(left**2, axis=0) + within / self.ridge) / freedom,
            errors.T,
            1.0 / noise,
            self.ridge * noise * q,
        )

    @property
    def _some(self) -> Array:
        n = len(self.centres)
        return np.unique(np.linspace(0, n - 1, min(n, MOST_LEFT_OUT)).astype(int))

    @functools.cached_property
    def _precisions_of_some(self) -> Array:
        return self._precisions_at(self._some)

    def _precisions(self, chosen: Array) -> Array:
        if np.array_equal(chosen, self._some):
            return self._precisions_of_some
        return self._precisions_at(chosen)

    def _precisions_at(self, chosen: Array) -> Array:
        """Return the diagonal of Q: one over the variance of a value given all others."""
        unit = np.zeros((len(self.centres), len(chosen)))
        unit[chosen, np.arange(len(chosen))] = 1.0
        left, _ = self._without_trend(self._forward(unit))
        return np.asarray(np.sum(left**2, axis=0))

    def own_deviations(self, points: Array, noise: Array) -> Array:
        """Return divisors (n,) that turn residuals into standardised leave-one-out errors.

        The leave-one-out error of a point is c / q for its coefficient c and precision q. Its
        standard deviation is a / sqrt(q), and the residual is ridge noise c. The divisor is
        therefore a ridge noise sqrt(q), returned relative to a.
        """
        del points, noise  # the same as those of the system
        linalg = scipy_linalg()
        inverse, _ = linalg.lapack.dpotri(self._factor, lower=1)
        LX, G, _ = self._alone
        own = np.linalg.solve(G, self._back(LX).T)  # G G' = X'S^-1 X
        q = np.diag(inverse) - np.sum(own**2, axis=0)
        return np.asarray(self.ridge * self.noise * np.sqrt(np.maximum(q, 1e-300)))

    def freedom(self) -> float:
        """Return the trace of the hat matrix, from its diagonal at `_some`."""
        noisy = self.ridge * self.noise[self._some] * self._precisions_of_some
        return float(len(self.centres) * (1.0 - np.mean(noisy)))

    def variance(self, points: Array, columns: Array) -> Array:
        """Return the posterior variances (M,) at points with columns (T, M), relative to a^2."""
        found = np.empty(len(points))
        for start in range(0, len(points), BLOCK):
            part = slice(start, start + BLOCK)
            k = self._forward(self.similarity.between(self.centres, points[part]))
            LX, G, way = self._alone
            u = np.linalg.solve(G, way.T @ columns[:, part] - LX.T @ k)
            found[part] = 1.0 - np.sum(k**2, axis=0) + np.sum(u**2, axis=0)
        return np.maximum(found, 0.0)

    def contents(self) -> dict[str, Array]:
        """Return arrays to save."""
        return {"centres": self.centres, "noise": self.noise, "columns": self.columns}

    @classmethod
    def from_contents(
        cls, similarity: Similarity, ridge: float, arrays: Mapping[str, Array]
    ) -> Direct:
        """Return the system from its saved arrays."""
        return cls(similarity, ridge, arrays["centres"], arrays["noise"], arrays["columns"])


@record(eq=False)
class _Sums:
    """Sums over points, whitened by L with L L' = K_mm: V = L^-1 K_mn W^(1/2)."""

    B: Array  # V V', (m, m)
    VX: Array  # (m, q)
    XX: Array  # (q, q)
    way: Array  # (T, q)
    total: float  # the sum of the weights
    count: int


class Inducing(_Centred):
    """The system with m inducing points.

    Parameters
    ----------
    similarity, ridge
        The settings.
    centres : array (m, D)
        The inducing points.
    sums : _Sums
        Sums over all points.
    """

    kind = "inducing"

    def __init__(self, similarity: Similarity, ridge: float, centres: Array, sums: _Sums) -> None:
        self.similarity, self.ridge, self.centres, self.sums = similarity, ridge, centres, sums

    def __getstate__(self) -> dict[str, Any]:
        names = ("similarity", "ridge", "axes", "sums")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def fitted(
        cls,
        similarity: Similarity,
        ridge: float | tuple[float, float],
        centres: Array,
        points: Array,
        values: Array,
        noise: Array,
        columns: Array,
        judged: Array | None = None,
        *,
        unit: float = 1.0,
    ) -> tuple[Inducing, DualSolution]:
        """Return the system and the solution for values (C, n).

        If ``ridge`` is a range, `likeliest` chooses within it, relative to ``unit``, the mean
        weight. Leave-one-out errors are computed at the points with the indices ``judged``, by
        default at up to MOST_LEFT_OUT points.
        """
        X, way = orthonormal(columns)
        root = 1.0 / np.sqrt(noise)
        m = len(centres)
        empty = _Sums(np.zeros((m, m)), np.zeros((m, 0)), np.zeros((0, 0)), way, 0.0, len(points))
        new = cls(similarity, 1.0, centres, empty)
        linalg = scipy_linalg()
        right = np.concatenate([X.T, values]) * root  # (q + C, n)
        B, VR = np.zeros((m, m), order="F"), np.zeros((m, len(right)))
        for start in range(0, len(points), BLOCK):
            part = slice(start, start + BLOCK)
            V = new.whitened(points[part]) * root[part]
            B = linalg.blas.dsyrk(1.0, V, beta=1.0, c=B, overwrite_c=1)
            VR += V @ right[:, part].T
        B = np.triu(B) + np.triu(B, 1).T
        RR = right @ right.T
        q = X.shape[1]
        sums = _Sums(B, VR[:, :q], RR[:q, :q], way, float(np.sum(1.0 / noise)), len(points))
        new = cls(similarity, 1.0, centres, sums)
        new.ridge = new.likeliest(VR, RR, ridge, unit) if isinstance(ridge, tuple) else ridge
        z = VR[:, q:] - VR[:, :q] @ (b := new.trend_coefficients(VR, RR))
        e, vectors = new.spectrum
        inner = vectors @ ((vectors.T @ z) / (e + new.ridge)[:, None])  # (m, C)
        # |y - X b|^2 - z'(B + ridge)^-1 z, over the ridge
        left = np.sum(((values - (X @ b).T) * root) ** 2, axis=1)
        squares = (left - np.sum(z * inner, axis=0)) / new.ridge
        some = judged
        if some is None:
            some = np.unique(np.linspace(0, len(points) - 1, MOST_LEFT_OUT).astype(int))
        V = new.whitened(points[some]) * root[some] if len(some) else np.zeros((m, 0))
        leverage = np.sum((vectors.T @ V) ** 2 / (e + new.ridge)[:, None], axis=0)
        away = (values[:, some] - (X[some] @ b).T) * root[some] - inner.T @ V
        solution = DualSolution(
            linalg.solve_triangular(new.factor, inner, lower=True, trans=1).T,
            (way @ b).T,
            np.maximum(squares, 0.0) / max(1, len(points) - q),
            away / np.maximum(1.0 - leverage, 1e-12),
            1.0 / noise[some],
            np.maximum(1.0 - leverage, 1e-12),
        )
        return new, solution

    @functools.cached_property
    def factor(self) -> Array:
        """The lower triangular L with L L' = K_mm."""
        K = self.similarity.between(self.centres, self.centres)
        K[np.diag_indices(len(K))] += JITTER
        return np.linalg.cholesky(K)

    def whitened(self, points: Array) -> Array:
        """Return L^-1 K_mn, (m, n)."""
        K = self.similarity.between(self.centres, points, quick=True)
        found = scipy_linalg().solve_triangular(self.factor, K, lower=True, check_finite=False)
        return np.asarray(found)

    @functools.cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of B."""
        e, vectors = scipy_linalg().eigh(self.sums.B, driver="evd")
        return np.maximum(e, 0.0), vectors

    def trend_coefficients(self, VR: Array, RR: Array, ridge: float | None = None) -> Array:
        """Return the coefficients (q, C) of the orthonormal columns."""
        e, vectors = self.spectrum
        q = self.sums.VX.shape[1]
        turned = vectors.T @ VR
        S = RR[:q] - turned[:, :q].T @ (turned / (e + (ridge or self.ridge))[:, None])
        return np.asarray(np.linalg.lstsq(S[:, :q], S[:, q:], rcond=None)[0])

    def likeliest(
        self, VR: Array, RR: Array, ridges: tuple[float, float], unit: float = 1.0
    ) -> float:
        """Return the ridge with the highest bound on the likelihood (Titsias, 2009)."""
        e, vectors = self.spectrum
        sums, q = self.sums, self.sums.VX.shape[1]
        n, m = sums.count, len(e)
        turned = vectors.T @ VR
        missing = max(sums.total - float(e.sum()), 0.0)

        def bound(logarithm: float) -> float:
            ridge = math.exp(logarithm) * unit
            S = (RR - turned.T @ (turned / (e + ridge)[:, None])) / ridge
            b = np.linalg.lstsq(S[:q, :q], S[:q, q:], rcond=None)[0]
            squares = np.diag(S[q:, q:]) - np.sum(S[:q, q:] * b, axis=0)
            squares = np.maximum(squares, 1e-20 * n)
            C = len(squares)
            volume = float(np.sum(np.log(e + ridge))) + (n - m) * logarithm + missing / ridge
            return C * volume + (n - q) * float(np.sum(np.log(squares)))

        least, most = map(math.log, ridges)
        tried = np.linspace(least, most, math.ceil((most - least) / RIDGE_STEP) + 1)
        return math.exp(tried[int(np.argmin([bound(x) for x in tried]))]) * unit

    def own_deviations(self, points: Array, noise: Array) -> Array:
        """Return divisors (n,) that turn residuals into standardised leave-one-out errors.

        The leave-one-out error of a point is r / (1 - h) for its residual r and leverage h. Its
        variance is a^2 (ridge noise / (1 - h) + v), where a^2 v is the prior variance that inducing
        points leave out. Divisors are relative to a.
        """
        e, vectors = self.spectrum
        found = np.empty(len(points))
        for start in range(0, len(points), BLOCK):
            part = slice(start, start + BLOCK)
            V = self.whitened(points[part])
            inner = (vectors.T @ V) ** 2 / (e + self.ridge)[:, None]
            left = np.maximum(1.0 - np.sum(inner, axis=0) / noise[part], 1e-12)
            missing = np.maximum(1.0 - np.sum(V**2, axis=0), 0.0)
            found[part] = left * np.sqrt(self.ridge * noise[part] / left + missing)
        return found

    def freedom(self) -> float:
        """Return the trace of the hat matrix."""
        e, vectors = self.spectrum
        sums, ridge = self.sums, self.ridge
        turned = vectors.T @ sums.VX
        scaled = turned / (e + ridge)[:, None]
        # n - ridge tr(Q); both terms of the columns are multiplied by the ridge
        G = sums.XX - turned.T @ scaled
        twice = sums.XX - turned.T @ scaled - ridge * scaled.T @ scaled
        own = float(np.trace(np.linalg.lstsq(G, twice, rcond=None)[0]))
        return float(np.sum(e / (e + ridge))) + own

    def variance(self, points: Array, columns: Array) -> Array:
        """Return the posterior variances (M,) at points with columns (T, M), relative to a^2."""
        e, vectors = self.spectrum
        sums, found = self.sums, np.empty(len(points))
        turned = vectors.T @ sums.VX
        G = (sums.XX - turned.T @ (turned / (e + self.ridge)[:, None])) / self.ridge
        for start in range(0, len(points), BLOCK):
            part = slice(start, start + BLOCK)
            v = self.whitened(points[part])
            inner = vectors.T @ v
            scaled = inner / (e + self.ridge)[:, None]
            u = sums.way.T @ columns[:, part] - turned.T @ scaled
            found[part] = (
                1.0
                - np.sum(v**2, axis=0)
                + self.ridge * np.sum(inner * scaled, axis=0)
                + np.sum(u * np.linalg.lstsq(G, u, rcond=None)[0], axis=0)
            )
        return np.maximum(found, 0.0)

    def contents(self) -> dict[str, Array]:
        """Return arrays to save."""
        s = self.sums
        total = np.array([s.total, float(s.count)])
        arrays = {"B": s.B, "VX": s.VX, "XX": s.XX, "way": s.way, "total": total}
        return {"centres": self.centres, **arrays}

    @classmethod
    def from_contents(
        cls, similarity: Similarity, ridge: float, arrays: Mapping[str, Array]
    ) -> Inducing:
        """Return the system from its saved arrays."""
        total, count = arrays["total"]
        B, VX, XX, way = (arrays[name] for name in ("B", "VX", "XX", "way"))
        sums = _Sums(B, VX, XX, way, float(total), int(count))
        return cls(similarity, ridge, arrays["centres"], sums)


System = Direct | Inducing
