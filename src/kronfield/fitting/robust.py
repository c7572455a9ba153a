"""Fits that outliers do not spoil: Huber's loss by iteratively reweighted least squares.

The sum of squares is replaced by a loss that is quadratic for residuals up to ``constant`` scales
and linear beyond (Huber, 1964). The minimum is a weighted least squares fit in which a point with
the residual u, in scales, has the weight min(1, constant / |u|) (Holland and Welsch, 1977). The
scale is the median of |residuals| over 0.6745, the standard deviation if the noise is normal.

Huber's loss limits the force of an outlier but not its effect: where the penalty is weak and other
points are far away, a small force moves the field a lot. Before settings are chosen, points that
differ much from the median of their neighbours are therefore set aside. After the first fit without
them, those that are far from its prediction as well are rejected, and the others return.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.labels import AxisLabel
from kronfield._core.records import record
from kronfield._core.threads import threads
from kronfield.fitting.settings import RobustSettings

# The median of |x| of a standard normal variable x.
NORMAL_MEDIAN = 0.6745
# Reweighting ends if no weight changes by more than this: a tolerance. Weights converge linearly; a
# change of 1e-3 of a weight moves the fit by a small part of its standard error.
SETTLED = 1e-3
# Neighbours of points are looked up in chunks of this many, to bound the memory.
CHUNK = 1 << 16


@record
class Outlier:
    """A point far from the fit: its position, value minus fit by channel, and its weight."""

    position: tuple[float, ...]
    residual: tuple[float, ...]
    weight: float


def _place(position: float, label: AxisLabel | None) -> str:
    """Return a position as text."""
    return f"{position:.4g}" if label is None or not label.is_time else label.text(position)


@record
class RobustReport:
    """What a robust fit did with the points.

    Attributes
    ----------
    loss : str
        "huber".
    scale : tuple of float
        The robust standard deviation of the residuals of each channel, at unit weight.
    down_weighted : int
        The number of points with a weight below 1, without those that were rejected.
    rejected : int
        The number of points with weight 0.
    rounds : int
        How often points were weighted again.
    settled : bool
        Whether the weights had converged by then.
    largest : tuple of Outlier
        The points with the largest residuals, the largest first.
    outliers : tuple of int
        The numbers of the points that are rejected, among all that were given (of a grid, of its
        samples in the order of `numpy.ravel`); if the others are interpolated, also those weighted
        down.
    interpolates : bool
        Whether the residuals of the other points are so far below the expected error that values
        seem to have no noise.
    """

    loss: str
    scale: tuple[float, ...]
    down_weighted: int
    rejected: int
    rounds: int
    settled: bool
    largest: tuple[Outlier, ...]
    outliers: tuple[int, ...] = ()
    interpolates: bool = False

    def __str__(self) -> str:
        return self.text()

    def text(self, labels: Sequence[AxisLabel] = ()) -> str:
        """Return the report as text; with the ``labels`` of axes, dates are written as dates."""
        scales = ", ".join(f"{one:.3g}" for one in self.scale)
        text = (
            f"Huber's loss: {self.down_weighted} points weighted down, {self.rejected} rejected; "
            f"scale {scales}, {self.rounds} rounds{'' if self.settled else ', not converged'}"
        )
        for one in self.largest:
            at = ", ".join(map(_place, one.position, labels or itertools.repeat(None)))
            off = ", ".join(f"{r:.3g}" for r in one.residual)
            text += f"\n    at ({at}): {off} off the fit, weight {one.weight:.2g}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {
            **asdict(self),
            "scale": list(self.scale),
            "outliers": list(self.outliers),
            "largest": [
                {
                    "position": list(one.position),
                    "residual": list(one.residual),
                    "weight": one.weight,
                }
                for one in self.largest
            ],
        }


def residual_scales(
    residuals: Array, weights: Array | None, counted: Array, least: Array | float
) -> Array:
    """Return the robust standard deviation at unit weight of each channel, (C,); not below least.

    It is the median of |residuals| (C, P) times the root of their weights, over 0.6745, of the
    points that are ``counted`` (P,) and have a weight.
    """
    used = counted if weights is None else counted & (weights > 0)
    sizes = np.abs(residuals[:, used]).astype(np.float64)
    if weights is not None:
        sizes *= np.sqrt(weights[used])
    return np.maximum(np.median(sizes, axis=1) / NORMAL_MEDIAN, least)


def in_scales(residuals: Array, weights: Array | None, scales: Array) -> Array:
    """Return the size of residuals (C, P) in scales, (P,): the root mean square over channels."""
    relative = residuals.astype(np.float64) / scales[:, None]
    sizes = np.sqrt(np.mean(relative**2, axis=0))
    return sizes if weights is None else sizes * np.sqrt(weights)


def huber_weights(sizes: Array, constant: float) -> Array:
    """Return the weights min(1, constant / size) of points with residuals of these sizes."""
    return constant / np.maximum(sizes, constant)


@record
class HuberNoise:
    """The numbers of a robust fit from which standard errors are computed: see `Uncertainty`.

    Attributes
    ----------
    scale : array (C,)
        The robust standard deviation at unit weight, in the units of the values.
    square : array (C,)
        The mean of the squared influence psi(u) = weight u of a point.
    slope : float
        The mean of its derivative.
    """

    scale: Array
    square: Array
    slope: float

    @classmethod
    def of(
        cls,
        residuals: Array,
        weights: Array | None,
        robust: Array,
        scales: Array,
        units: float,
        constant: float,
    ) -> HuberNoise:
        """Return the means over the points that were not rejected; ``robust`` are their weights."""
        C, kept = len(residuals), robust > 0
        if weights is not None:
            kept = kept & (weights > 0)
        root = 1.0 if weights is None else np.sqrt(weights[kept])
        u = residuals[:, kept].astype(np.float64) / scales[:, None] * root
        w = robust[kept]
        # psi_c = w(|u|) u_c with |u| the root mean square over C channels. Its derivative by u_c
        # is 1 where |u| < k, and otherwise w (1 - 1/C) on the average over channels.
        inside = in_scales(residuals[:, kept], None, scales) * root <= constant
        slope = float(np.mean(np.where(inside, 1.0, w * (1 - 1 / C))))
        return cls(scales * units, np.mean((w * u) ** 2, axis=1), max(slope, 1e-3))

    def level(self, count: int, freedom: float) -> Array:
        """Return the factor (C,) of sqrt(b A^-1 b') for A = slope B'WB + penalty.

        Huber (1981, section 7.6): the covariance of the weights is
        K^2 [sum psi^2 / (n - p)] / slope^2 s^2 (B'WB)^-1 with K = 1 + p/n (1 - slope)/slope. With a
        penalty as prior it becomes K^2 [sum psi^2 / (n - p)] / slope s^2 A^-1.
        """
        K = 1 + freedom / count * (1 - self.slope) / self.slope
        squares = self.square * count / (count - freedom)
        return np.asarray(K * self.scale * np.sqrt(squares / self.slope))


@record(eq=False)
class PointErrors:
    """The errors of a fit at points.

    Attributes
    ----------
    away : array (C, P)
        Values minus fit.
    relative : array (C, P)
        The errors of predictions from all other points, over their standard deviations.
    scales : array (C,)
        The standard deviations of the noise at unit weight.
    """

    away: Array
    relative: Array
    scales: Array


@record(eq=False)
class HuberErrors:
    """The noise of a robust fit, the weights (P,) of points without Huber's, and its refit."""

    noise: HuberNoise
    weights: Array
    again: Any


def suspects(
    points: Array,
    values: Array,
    weights: Array | None,
    units: tuple[float, ...],
    settings: RobustSettings,
) -> Array:
    """Return which points differ from nearly all of their neighbours by many scales, (P,).

    The scale is that of the differences from the median of the neighbours, so that it includes the
    change of the field from point to point. A point beside a jump of the field agrees with the
    neighbours on its side of the jump. Where the field is steeper than elsewhere, or at its ends, a
    point agrees with the plane through its neighbours.
    Neighbours are nearest with positions measured in ``units``.
    """
    from scipy.spatial import KDTree

    if len(values) > 1:  # an outlier in one channel is an outlier in all
        every = [suspects(points, one[None], weights, units, settings) for one in values]
        return np.any(every, axis=0)
    if weights is not None and not np.all(weights > 0):  # points without weight say nothing
        known = weights > 0
        found = np.zeros(len(points), dtype=bool)
        found[known] = suspects(points[known], values[:, known], weights[known], units, settings)
        return found
    P = len(points)
    count = min(settings.neighbours, P - 1)
    if count < settings.fewest_neighbours:
        return np.zeros(P, dtype=bool)
    positions = points / np.asarray(units)
    tree = KDTree(positions)
    near = np.empty((P, count), dtype=np.intp)
    away = np.empty(values.shape)
    for start in range(0, P, CHUNK):
        part = slice(start, start + CHUNK)
        # a point is among its own nearest: with duplicates, another may be left out instead
        near[part] = tree.query(positions[part], count + 1, workers=threads())[1][:, 1:]
        away[:, part] = values[:, part] - np.median(values[:, near[part]], axis=2)
    least = float(np.finfo(np.float64).tiny) ** 0.25
    scales = residual_scales(away, weights, np.ones(P, dtype=bool), least)
    sizes = in_scales(away, weights, scales)
    unlike = sizes > settings.suspected
    for i in np.array_split(np.flatnonzero(unlike), 1 + P // CHUNK):
        apart = (values[:, i, None] - values[:, near[i]]) / scales[:, None, None]
        apart = np.sqrt(np.mean(apart**2, axis=0))  # (points, neighbours)
        # a point that agrees with some neighbours is no outlier if one of them is like its own
        # neighbours: outliers that agree with each other are not enough
        last = settings.agreeing - 1
        several = np.partition(apart, last, axis=1)[:, last]
        apart[unlike[near[i]]] = np.inf
        sizes[i] = np.maximum(several, apart.min(axis=1))
        if weights is not None:
            sizes[i] *= np.sqrt(weights[i])
    found = sizes > settings.suspected
    index = np.flatnonzero(found)
    for i in np.array_split(index, 1 + len(index) // CHUNK):
        found[i] = ~_on_a_plane(positions, values, near[i], i, found, settings)
    index = np.flatnonzero(found)
    for i in np.array_split(index, 1 + len(index) // CHUNK):
        # at the ends a plane does not follow smooth values that are curved: try a paraboloid
        found[i] = ~_on_a_plane(positions, values, near[i], i, found, settings, 2)
    return found


def _on_a_plane(
    positions: Array,
    values: Array,
    near: Array,
    index: Array,
    found: Array,
    settings: RobustSettings,
    degree: int = 1,
) -> Array:
    """Return which suspects (S,) lie within ``settings.suspected`` standard errors of a plane.

    It is the plane of least squares through the neighbours that are not suspects themselves. If
    several of them are suspects, since the field is steep, or too few are not, it is the plane of
    least trimmed squares through all neighbours. With ``degree`` 2 it is a paraboloid, if it has
    sufficiently more neighbours than coefficients.
    """
    if not len(index):
        return np.zeros(0, dtype=bool)
    D, count = positions.shape[1], near.shape[1]
    terms = D + 1 if degree == 1 else (D + 1) * (D + 2) // 2
    fewest = terms + (1 if degree == 1 else settings.spare)
    if count < fewest:
        return np.zeros(len(index), dtype=bool)
    used = ~found[near]  # (S, k)
    kept = used.sum(axis=1)
    crowded = (count - kept >= settings.several) | (kept < fewest)
    used[crowded] = True
    away = positions[near] - positions[index, None]
    away = away / np.maximum(np.abs(away).max(axis=(1, 2), keepdims=True), 1e-300)
    parts = [np.ones((*near.shape, 1)), away]
    if degree == 2:
        first, second = np.triu_indices(D)
        parts.append(away[..., first] * away[..., second])
    terms_at = np.concatenate(parts, axis=2)  # (S, k, terms)
    values_at = np.moveaxis(values[:, near], 0, 2)  # (S, k, C)
    whole = np.ones(len(index))
    if count - settings.trimmed >= fewest:
        used[crowded] = _trimmed(terms_at[crowded], values_at[crowded], settings)
        whole[crowded] = settings.trimmed_factor
    kept = used.sum(axis=1)
    rows, given = terms_at * used[:, :, None], values_at * used[:, :, None]
    inverse = np.linalg.pinv(rows)  # (S, terms, k)
    plane = inverse @ given  # (S, terms, C); the constant is the value at the point
    # s^2 (1 + h): the variance of a new value, and that of the plane at the point
    leverage = np.sum(inverse[:, 0] ** 2, axis=1)
    squares = np.sum((given - rows @ plane) ** 2, axis=1) / (kept - terms)[:, None]
    squares *= ((1 + leverage) * whole**2)[:, None]
    apart = np.abs(values[:, index].T - plane[:, 0])
    # the residuals of a paraboloid through exact values are rounding
    rounding = 16 * float(np.finfo(values.dtype).eps) * np.abs(values).max(axis=1)
    least = rounding if degree == 2 else float(np.finfo(np.float64).tiny)
    return np.all(apart <= settings.suspected * (np.sqrt(squares) + least), axis=1)


def remark(errors: Array, settings: RobustSettings) -> str:
    """Return a remark on outliers among errors (C, n) of a fit; "" if there are none."""
    if errors.shape[1] < 2:
        return ""
    least = float(np.finfo(np.float64).tiny) ** 0.25
    scales = residual_scales(errors, None, np.ones(errors.shape[1], dtype=bool), least)
    count = int(np.sum(in_scales(errors, None, scales) > settings.remarked))
    if not count:
        return ""
    return (
        f"{count} of {errors.shape[1]} values that were looked at are more than "
        f"{settings.remarked:g} robust standard deviations off: loss='huber' withstands outliers"
    )


def _trimmed(rows: Array, values: Array, settings: RobustSettings) -> Array:
    """Return the neighbours (S, k) that a plane is fitted to, without the ``trimmed`` furthest.

    Least trimmed squares by concentration steps (Rousseeuw and Van Driessen, 2006): each step keeps
    the neighbours nearest to the last plane.
    """
    S, count, _ = rows.shape
    used = np.ones((S, count), dtype=bool)
    for _ in range(settings.trimming_steps):
        plane = np.linalg.pinv(rows * used[:, :, None]) @ (values * used[:, :, None])
        away = np.max(np.abs(values - rows @ plane), axis=2)
        order = np.argsort(away, axis=1, kind="stable")
        used[:] = False
        np.put_along_axis(used, order[:, : count - settings.trimmed], True, axis=1)
    return used


def listed(
    points: Array, residuals: Array, sizes: Array, robust: Array, most: int
) -> tuple[Outlier, ...]:
    """Return up to ``most`` points: those that were weighted down, with the largest residuals."""
    order = np.argsort(-sizes, kind="stable")[:most]
    return tuple(
        Outlier(
            tuple(float(x) for x in points[i]),
            tuple(float(r) for r in residuals[:, i]),
            float(robust[i]),
        )
        for i in order
        if robust[i] < 1
    )


def least_scale(values: Array, tolerance: float) -> Array:
    """Return the smallest scale (C,) that residuals of a fit with this tolerance can show.

    Without it the scale of exact data would be the error of the solver.
    """
    middle = np.median(values, axis=1, keepdims=True)
    spread = np.median(np.abs(values - middle), axis=1) / NORMAL_MEDIAN
    rounding = float(np.finfo(values.dtype).eps)
    largest = np.abs(values).max(axis=1)
    return np.asarray(
        np.maximum(0.1 * tolerance * spread, 16 * rounding * largest) + math.ulp(0.0) ** 0.5
    )
