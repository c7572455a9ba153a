"""Gaussians with a ridge for points of smooth functions, with widths and ridge by likelihood.

The paper's similarity of Gaussians is a Gaussian. With a ridge on their weights the fit is thus
Gaussian process regression with a squared exponential kernel (Rasmussen and Williams, 2006). Its
cost depends on the number of features, a few per width on each axis, instead of one per point.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.embedders import Gaussian
from kronfield.encoding import Kronecker
from kronfield.fitting.point_search import Trial, left_out_in_turn, likely_error
from kronfield.fitting.report import Candidate
from kronfield.fitting.settings import GaussianSettings
from kronfield.solvers.points.dense import gram

# Centres are at most one width apart. The sum of these Gaussians is then constant to 1e-8.
# The number of centres beyond each end of the box is the first of PADDING that does not give too
# many features. The search for widths uses SEARCH_PADDING: it is faster and finds the same widths.
PADDING, SEARCH_PADDING = (4, 3), 2
# The factor between the widths of the search, which starts in the middle of the narrowest and the
# widest. The likelihood is smooth enough for a parabola to find the widths between.
STEP = math.sqrt(2.0)
# The step between the ridges that are tried, as a power of ten: the resolution of the maximum.
RIDGE_STEP = 0.25
# Eigenvalues below ROUNDING times the largest are rounding errors. A ridge is at least FLOOR times
# the trace of the Gram matrix.
ROUNDING, FLOOR = 1e-14, 1e-13

# The number of steps from the first width, on each axis.
Place = tuple[float, ...]


def gaussian_axis(low: float, high: float, width: float, padding: int) -> tuple[Gaussian, Frame]:
    """Return Gaussians on [low, high] with a centre on either end, and their frame.

    ``width`` is a fraction of the interval.
    """
    inside = math.ceil(1.0 / width - 1e-9) + 1
    length = (high - low) * inside / (inside - 1)
    return Gaussian(inside + 2 * padding, width * (high - low) / length, padding=padding), Frame(
        low, length, low, high
    )


@record(eq=False)
class GaussianFit:
    """Gaussians with a ridge on their weights, plus a constant that is not penalised.

    Attributes
    ----------
    encoding, frames
        The features, and the frame of each axis.
    ridge : float
        The fit f with weights W and constant c minimises sum w (y - c - f)^2 + ridge sum W^2.
    likelihood : float
        The logarithm of the likelihood of the values, up to a constant.
    """

    encoding: Kronecker
    frames: tuple[Frame, ...]
    ridge: float
    likelihood: float

    def rows(self, points: Array) -> Array:
        """Return the features of points, (P, K) with K = K_1 ... K_D."""
        return _rows(self.encoding, self.frames, points)

    def constant(self, rows: Array, weights: Array | None) -> Array:
        """Return the vector (P,) whose product with the values at points is the constant c.

        ``rows`` are the features of the points.
        """
        return _Centred(rows, weights).constant(self.ridge)

    @functools.cached_property
    def of_constant(self) -> tuple[list[Array], float]:
        """Weights per axis whose products give the function 1, and their largest error."""
        found, error = [], 0.0
        for emb, frame in zip(self.encoding.embedders, self.frames, strict=True):
            rows = np.asarray(emb(frame.unit(np.linspace(frame.low, frame.high, 8 * emb.size))))
            found.append(np.linalg.lstsq(rows[::2], np.ones(len(rows) // 2), rcond=1e-12)[0])
            error += float(np.abs(rows @ found[-1] - 1).max())
        return found, error

    def held_out(self, trial: Trial, level: float = 0.0) -> float:
        """Return the mean squared error at held-out points, relative to the variance of values.

        The error of the constant when it is written as weights of the features is added. It matters
        for exact values that are far from 0. ``level`` is a mean that was subtracted from them.
        """
        rows, parts = self.rows(trial.points), list[Array]()
        w = np.ones(len(rows)) if trial.weights is None else trial.weights
        y = trial.values[0].astype(np.float64)
        count = sum(float(w[held].sum()) for held in trial.folds)
        whole = _Centred(rows, trial.weights)
        if len(trial.folds) > 1 and whole.wide:
            # every fold is predicted from all other points
            errors = left_out_in_turn(
                whole.left(self.ridge),
                whole.centred(y)[:, None],
                [np.flatnonzero(held) for held in trial.folds],
            )
            parts = [np.ravel(one) ** 2 for one in errors]
        else:
            for held in trial.folds:
                kept = _Centred(rows[~held], None if trial.weights is None else w[~held])
                weights, constant = kept.solve(y[~held], self.ridge)
                parts.append(w[held] * (rows[held] @ weights + constant - y[held]) ** 2)
        off = self.of_constant[1] * (abs(float(np.average(y, weights=w))) + level)
        mean_weight = count / (sum(map(len, parts)) or 1) or 1.0
        if trial.scales is not None:
            found = likely_error([part / mean_weight for part in parts], trial.spread)[0]
        else:
            total = sum(float(np.sum(part)) for part in parts)
            found = total / (count or 1.0) / trial.spread
        return found + off**2 / trial.spread

    def candidate(self, score: float) -> Candidate:
        """Return this fit as a candidate; widths are fractions of the box."""
        widths = tuple(
            float(emb.width * frame.length / (frame.high - frame.low))  # type: ignore[attr-defined]
            for emb, frame in zip(self.encoding.embedders, self.frames, strict=True)
        )
        return Candidate("Gaussians", {"widths": widths, "ridge": self.ridge}, score)


def likely_gaussians(
    trial: Trial, box: Sequence[tuple[float, float]], settings: GaussianSettings
) -> GaussianFit | None:
    """Return the Gaussians that maximise the likelihood of the values of a trial.

    The result is None if points are too few or too many. The search varies first all widths
    together, as fractions of the box, then the width of each axis.
    """
    D = trial.points.shape[1]
    P = len(trial.points) if trial.weights is None else int(np.sum(trial.weights > 0))
    if not settings.fewest <= P < trial.settings.judged:
        return None

    counts = slice(None) if trial.weights is None else trial.weights > 0
    seen = (
        trial.points[counts],
        trial.values[0, counts],
        None if trial.weights is None else trial.weights[counts],
    )

    most = settings.most_features
    if trial.settings.few_points < P:
        most = min(most, settings.most_of_many)
    start = math.sqrt(settings.narrowest * settings.widest)

    @functools.cache
    def at(place: Place, padding: int = SEARCH_PADDING) -> GaussianFit | None:
        widths = [start * STEP**i for i in place]
        if not all(settings.narrowest <= width <= settings.widest for width in widths):
            return None
        pairs = [
            gaussian_axis(low, high, width, padding)
            for (low, high), width in zip(box, widths, strict=True)
        ]
        if math.prod(emb.size for emb, _ in pairs) > most:
            return None
        encoding, frames = Kronecker(*(emb for emb, _ in pairs)), tuple(f for _, f in pairs)
        return _likeliest_ridge(*seen, encoding, frames, settings.ridge_decades)

    place = (0.0,) * D
    # Increase the width until the features are few enough and differ between the points.
    while at(place) is None:
        place = tuple(i + 1 for i in place)
        if start * STEP ** place[0] > settings.widest:
            return None
    place = _climb(at, place, (1.0,) * D, 0.0)
    for axis in range(D if D > 1 else 0):
        place = _climb(at, place, tuple(float(i == axis) for i in range(D)), settings.gain)
    return next(filter(None, (at(place, padding) for padding in (*PADDING, SEARCH_PADDING))), None)


def _climb(
    at: Callable[[Place], GaussianFit | None], place: Place, step: Place, gain: float
) -> Place:
    """Return the place of the highest likelihood along ``step``, by a line search.

    The search continues while a step raises the likelihood by more than ``gain``. It ends with a
    fraction of a step to the maximum of the parabola through the last three likelihoods.
    """

    def beside(t: float) -> Place:
        return tuple(i + t * d for i, d in zip(place, step, strict=True))

    def height(t: float) -> float:
        found = at(beside(t))
        return -math.inf if found is None else found.likelihood

    for sign in (-1.0, 1.0):
        while height(sign) > height(0.0) + gain:
            place = beside(sign)
    below, here, above = height(-1.0), height(0.0), height(1.0)
    bend = below - 2 * here + above
    if math.isfinite(bend) and bend < 0:
        top = min(max((below - above) / (2 * bend), -1.0), 1.0)
        if (below - above) ** 2 / (-8 * bend) > gain and height(top) > here + gain:
            place = beside(top)
    return place


def _rows(encoding: Kronecker, frames: Sequence[Frame], points: Array) -> Array:
    """Return the products (P, K_1 ... K_D) of the features of each axis: few are out of reach."""
    rows = np.ones((len(points), 1))
    for i, (emb, frame) in enumerate(zip(encoding.embedders, frames, strict=True)):
        own = np.asarray(emb(frame.unit(points[:, i])))
        rows = (rows[:, :, None] * own[:, None, :]).reshape(len(points), -1)
    return rows


class _Centred:
    """Ridge regression with a constant that is not penalised, by centring rows and values.

    R = W^(1/2) (B - 1 m'), where m is the weighted mean of the rows of B. Systems are solved with
    the smaller of R'R and RR'.
    """

    def __init__(self, rows: Array, weights: Array | None) -> None:
        self.root = np.ones(len(rows)) if weights is None else np.sqrt(weights)
        self.share = self.root**2 / np.sum(self.root**2)
        self.mean = self.share @ rows  # (K,)
        self.rows = (rows - self.mean) * self.root[:, None]
        self.wide = rows.shape[1] > rows.shape[0]

    def centred(self, y: Array) -> Array:
        return (y - self.share @ y) * self.root

    @functools.cached_property
    def matrix(self) -> Array:
        return gram(np.ascontiguousarray(self.rows.T) if self.wide else self.rows)

    def _solve(self, ridge: float, b: Array) -> Array:
        linalg = scipy_linalg()
        matrix = self.matrix + ridge * np.eye(len(self.matrix))
        return linalg.cho_solve(
            linalg.cho_factor(matrix, check_finite=False), b, check_finite=False
        )

    def solve(self, y: Array, ridge: float) -> tuple[Array, float]:
        """Return the weights and the constant of the fit."""
        t = self.centred(y)
        # (R'R + ridge)^-1 R't = R'(RR' + ridge)^-1 t
        weights = (
            self.rows.T @ self._solve(ridge, t)
            if self.wide
            else self._solve(ridge, self.rows.T @ t)
        )
        return weights, float(self.share @ y - self.mean @ weights)

    def left(self, ridge: float) -> Array:
        """Return I - H (P, P) for the hat matrix H of values times their roots; only if `wide`.

        It is ridge (RR' + ridge)^-1, but 0 in the direction of the constant, which RR' does not
        have. There it is made as large as the rest, lest its inverse be 1 / ridge.
        """
        direction = self.root / np.linalg.norm(self.root)
        size = float(np.trace(self.matrix)) or 1.0
        matrix = self.matrix + size * np.outer(direction, direction)
        matrix[np.diag_indices(len(matrix))] += ridge
        linalg = scipy_linalg()
        factor = linalg.cho_factor(matrix, check_finite=False)
        inverse = linalg.cho_solve(factor, np.eye(len(matrix)), check_finite=False)
        alone = ridge / (size + ridge)
        return np.asarray(ridge * inverse - alone * np.outer(direction, direction))

    def constant(self, ridge: float) -> Array:
        # the constant is share'y - mean'(R'R + ridge)^-1 R' W^(1/2) y
        seen = (
            self._solve(ridge, self.rows @ self.mean)
            if self.wide
            else self.rows @ self._solve(ridge, self.mean)
        )
        return self.share - self.root * seen


def _likeliest_ridge(
    points: Array,
    values: Array,
    weights: Array | None,
    encoding: Kronecker,
    frames: tuple[Frame, ...],
    decades: tuple[float, float],
) -> GaussianFit | None:
    """Return the fit whose ridge maximises the restricted likelihood of the values.

    The constant is integrated out (Patterson and Thompson, 1971; Harville, 1974). The result is
    None if the features are equal at all points, up to rounding.
    """
    rows = _rows(encoding, frames, points)
    system = _Centred(rows, weights)
    t = system.centred(values.astype(np.float64))
    # The trace of B'WB, before centring. Its rounding error limits the accuracy of a solve.
    whole = float(np.sum((rows * system.root[:, None]) ** 2))
    n, energy = len(t) - 1, float(t @ t)
    s, V, _ = scipy_linalg().lapack.dsyevd(system.matrix, lower=1)
    if system.wide:  # the first eigenvalue is 0: it belongs to the constant
        s, squares = s[1:], (V.T @ t)[1:] ** 2
    else:
        squares = np.divide(
            (V.T @ (system.rows.T @ t)) ** 2, s, out=np.zeros_like(s), where=s > ROUNDING * s[-1]
        )
    if s[-1] <= FLOOR * whole:
        return None
    s = np.where(s > ROUNDING * s[-1], s, 0.0)
    # The covariance of the values is v (RR' + ridge). With the v that maximises the likelihood L,
    # -2 log L = n log(t'(RR' + ridge)^-1 t) + log det(RR' + ridge)
    tried = 10.0 ** np.arange(decades[0], decades[1] + RIDGE_STEP / 2, RIDGE_STEP)
    ridges = np.maximum(tried * float(s[-1]), FLOOR * whole)
    left = max(energy - float(squares.sum()), 0.0)
    misfit = np.sum(squares / (s + ridges[:, None]), axis=1) + left / ridges
    volume = np.sum(np.log(s + ridges[:, None]), axis=1) + (n - len(s)) * np.log(ridges)
    likelihood = -0.5 * (n * np.log(np.maximum(misfit, np.finfo(float).tiny)) + volume)
    best = int(np.argmax(likelihood))
    return GaussianFit(encoding, frames, float(ridges[best]), float(likelihood[best]))
