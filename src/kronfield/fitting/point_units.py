"""The unit of length on each axis, from the differences of the values of neighbouring points.

Values differ more, the further apart their points are. In the right units the difference depends
on the distance alone, not on the direction. The units are those in which the logarithm of the
distance is best correlated with the root of the difference, whose distribution is nearly symmetric
(Cressie and Hawkins, 1980). This costs a search for neighbours and no fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield.fitting.point_grids import mean_distances

# The least part of the variance that a regression leaves: by rounding, it could be negative.
LEAST_LEFT = 1e-12
# The steps of the search, as powers of two of one axis, coarse to fine: the last is far below the
# precision that the differences of a few thousand points allow.
STEPS = (1.0, 0.5, 0.25)


def directional_units(
    points: Array,
    values: Array,
    box: Sequence[tuple[float, float]],
    count: int,
    *,
    gain: float,
    widest: float,
    neighbours: int,
) -> tuple[float, ...]:
    """Return the unit of length on each axis in which values vary alike in all directions.

    Parameters
    ----------
    points, values : arrays of shape (P, D) and (P,)
        Points with neighbours, all or some of those that are fitted.
    box : sequence of D pairs (low, high)
        The box of all points.
    count : int
        The number of all points. The product of the units is the volume of the box per point.
    gain : float
        Axes get units of their own if the logarithm of the likelihood of a linear regression of
        differences on distances rises by this; otherwise points are equally far apart on every
        axis. The differences of one point count once, since they are alike.
    widest : float
        The largest factor by which a unit is changed.
    neighbours : int
        The neighbours of each point.
    """
    even = mean_distances(box, count)
    if len(box) == 1 or len(points) <= neighbours:
        return even
    squares, roots = _pairs(points / np.array(even), values, neighbours)
    if len(roots) <= neighbours or not np.ptp(roots):
        return even
    roots = roots - roots.mean()

    def left(logs: Array) -> float:
        """Return the part of the variance of the roots that distances do not explain."""
        distance = np.log(squares @ np.exp(-2 * logs))
        distance -= distance.mean()
        rising = max(float(distance @ roots), 0.0)
        explained = rising**2 / (float(distance @ distance) * float(roots @ roots) or 1.0)
        return max(1.0 - explained, LEAST_LEFT)

    logs = lowest_units(left, len(box), math.log(widest))
    # of a regression with normal errors: n/2 log of the ratio of their variances
    raised = 0.5 * len(points) * math.log(left(np.zeros(len(box))) / left(logs))
    if raised < gain:
        return even
    return tuple(float(u) for u in np.array(even) * np.exp(logs))


def _pairs(points: Array, values: Array, neighbours: int) -> tuple[Array, Array]:
    """Return squared differences of position (n, D) and the roots of those of values (n,)."""
    from scipy.spatial import cKDTree

    k = neighbours + 1
    near = cKDTree(points).query(points, k=k)[1]
    others = near[:, 1:].ravel()
    first = np.repeat(np.arange(len(points)), k - 1)
    squares = (points[first] - points[others]) ** 2
    apart = np.any(squares > 0, axis=1)  # duplicates have no direction
    difference = np.abs(values[first[apart]] - values[others[apart]]).astype(np.float64)
    return squares[apart], np.sqrt(difference)


def lowest_units(left: Callable[[Array], float], D: int, bound: float) -> Array:
    """Return the logarithms of units (D,), of sum 0, that minimise ``left``, axis by axis."""
    at = np.zeros(D)
    lowest = left(at)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for axis in range(D):
                for sign in (-1.0, 1.0):
                    other = at.copy()
                    other[axis] += sign * step * math.log(2.0)
                    other -= other.mean()
                    if np.abs(other).max() > bound + 1e-9:
                        continue
                    value = left(other)
                    if value < lowest - 1e-12:
                        at, lowest, moved = other, value, True
    return at
