"""Standard interpolation by SciPy, for comparison: nearest, linear and cubic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem

METHODS = ("nearest", "linear", "cubic")


def interpolate_grid(
    values: Any, axes: Sequence[Any], targets: Sequence[Any], method: str
) -> Array:
    """Interpolate values on a grid, axis by axis; positions past the ends are clamped.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.peers import interpolate_grid
    >>> values, x, at = np.array([0.0, 2.0, 4.0]), np.arange(3.0), np.array([0.4, 1.5, 9.0])
    >>> interpolate_grid(values, [x], [at], "linear")
    array([0.8, 3. , 4. ])

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        The samples.
    axes, targets : sequences of D arrays
        The positions of the samples, increasing, and the positions at which to interpolate.
    method : "nearest", "linear" or "cubic"
        Cubic is the spline with not-a-knot end conditions; linear for fewer than 4 samples.
    """
    from scipy.interpolate import make_interp_spline

    _check(method)
    result = np.asarray(values)
    for axis, (x, wanted) in enumerate(zip(axes, targets, strict=True)):
        x, at = (
            np.asarray(x, dtype=np.float64),
            np.clip(np.asarray(wanted, dtype=np.float64), x[0], x[-1]),
        )
        if method == "nearest" or len(x) < 2:
            result = np.take(result, _nearest(x, at), axis=axis)
        else:
            degree = min(3, len(x) - 1) if method == "cubic" else 1
            result = make_interp_spline(x, result, k=degree - (degree == 2), axis=axis)(at)
    return np.asarray(result)


def interpolate_points(points: Any, values: Any, targets: Any, method: str) -> Array:
    """Interpolate scattered points; outside their convex hull use the nearest point.

    Parameters
    ----------
    points, targets : arrays of shape (P, D) and (Q, D)
        The positions of the samples, and the positions at which to interpolate.
    values : array of shape (P,) or (P, C)
        The samples; they must be finite.
    method : "nearest", "linear" or "cubic"
        Cubic in one or two dimensions only; in two it is the scheme of Clough and Tocher (1965).
    """
    from scipy.interpolate import (
        CloughTocher2DInterpolator,
        LinearNDInterpolator,
        NearestNDInterpolator,
    )

    _check(method)
    X, Y = np.asarray(points, dtype=np.float64), np.asarray(values, dtype=np.float64)
    at = np.asarray(targets, dtype=np.float64)
    D = X.shape[1]
    if D == 1:
        x, first = np.unique(X[:, 0], return_index=True)
        return interpolate_grid(Y[first], [x], [at[:, 0]], method)
    if method == "cubic" and D > 2:
        raise problem("method", f"cubic in {D} dimensions", "one or two dimensions", "Use linear.")
    nearest = np.asarray(NearestNDInterpolator(X, Y, rescale=True)(at))
    if method == "nearest":
        return nearest
    kind = LinearNDInterpolator if method == "linear" else CloughTocher2DInterpolator
    found = np.asarray(kind(X, Y, rescale=True)(at))
    return np.where(np.isfinite(found), found, nearest)


def _nearest(x: Array, at: Array) -> Array:
    above = np.clip(np.searchsorted(x, at), 1, max(len(x) - 1, 1))
    if len(x) < 2:
        return np.zeros(len(at), dtype=int)
    return np.where(at - x[above - 1] <= x[above] - at, above - 1, above)


def _check(method: str) -> None:
    if method not in METHODS:
        raise problem("method", repr(method), f"one of {', '.join(METHODS)}", "Choose one.")
