"""Splines in tension (Schweikert, 1966): a family from the cubic spline to linear interpolation."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from kronfield._core.arrays import AnyArray, Array, Namespace, fraction, real
from kronfield._core.records import record
from kronfield.embedders._local import LocalEmbedder
from kronfield.embedders._quadrature import autocorrelation, last_frequency


@record
class TensionSpline(LocalEmbedder):
    """The B-spline in tension: smooth, with a support of two spacings to either side.

    A fit to samples at the centres minimises the integral of f''^2 + (tension/spacing)^2 f'^2. With
    little tension this is the cubic spline; with much tension it is linear interpolation with
    rounded corners.

    Examples
    --------
    >>> import numpy as np
    >>> TensionSpline(4, tension=0.01)(np.array([0.25])).round(3)  # a cubic B-spline: 1/6, 2/3, 1/6
    array([[0.167, 0.667, 0.167, 0.   ]])
    >>> TensionSpline(4, tension=100.0)(np.array([0.25])).round(3)  # nearly a hat
    array([[0.005, 0.99 , 0.005, 0.   ]])

    Parameters
    ----------
    size : int
        The number K of features.
    tension : float
        The tension per spacing of the centres, from 0.01 (cubic) to 1000 (linear).
    padding : int or "auto"
        The number of centres beyond each end of the unit interval.

    References
    ----------
    D. G. Schweikert, An interpolation curve using a spline in tension, Journal of Mathematics and
    Physics 45 (1966).
    """

    size: int
    tension: float
    padding: int | str = 0

    smoothness: ClassVar[int] = 2
    similarity_by_quadrature: ClassVar[bool] = True
    shape_parameter: ClassVar[str | None] = "tension"

    def __post_init__(self) -> None:
        remedy = "0.01 is a cubic spline to 5 digits, 1000 is linear to 3."
        self._set(tension=real("tension", self.tension, low=0.01, high=1000.0, remedy=remedy))
        self._check_layout()

    @property
    def _vanishes_at_rim(self) -> bool:
        return True

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # With little tension the result is a small difference of large terms: always use float64.
        wide = xp.astype(u, xp.float64, copy=False)
        return xp.astype(self._piece(xp, wide, order), u.dtype, copy=False)

    def _piece(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # With v = |u|/spacing, a = tension and s(x) = sinh x - x:
        #   s(a v) - 2 s(a (1-v)) + 2a (cosh a - 1)(1-v)   for v <= 1
        #   s(a (2-v))                                     for 1 <= v <= 2
        # The factor 1/(2a (cosh a - 1)) makes the features sum to 1. All terms are multiplied by
        # 2 exp(-a) so that they do not overflow.
        a, above = self.tension, _above(self.tension)
        v = xp.abs(u) * self._inside
        tail = xp.maximum(2 - v, xp.zeros_like(v))  # 2 - v, and 0 beyond the support
        near, far = (xp.minimum(one, xp.ones_like(v)) for one in (v, tail))
        inside = v < 1
        if order == 0:
            inner = _sinh_rest(xp, near, a) - 2 * _sinh_rest(xp, 1 - near, a)
            inner = inner + 2 * a * above * (1 - near)
            value = xp.where(inside, inner, _sinh_rest(xp, far, a))
        elif order == 1:
            inner = _cosh_less_1(xp, near, a) + 2 * _cosh_less_1(xp, 1 - near, a) - 2 * above
            outer = -_cosh_less_1(xp, far, a)
            value = xp.sign(u) * a * self._inside * xp.where(inside, inner, outer)
        else:
            inner = _sinh(xp, near, a) - 2 * _sinh(xp, 1 - near, a)
            value = (a * self._inside) ** 2 * xp.where(inside, inner, _sinh(xp, far, a))
        return value / (2 * a * above)

    def _antiderivative(self, u: Array) -> Array:
        # Integrate the outer piece from the rim, and the inner piece from the centre, where the
        # antiderivative is half of the total integral: spacing/2. The integral of s(x) is
        # cosh x - 1 - x^2/2.
        a, h, above = self.tension, self.spacing, _above(self.tension)
        v = np.minimum(np.abs(u) / h, 2.0)
        near, tail = np.minimum(v, 1.0), np.minimum(2 - v, 1.0)
        ends = _cosh_rest(1 - near, a) - _cosh_rest(np.ones_like(v), a)
        inner = (_cosh_rest(near, a) + 2 * ends) / a + 2 * a * above * (near - near**2 / 2)
        outer = _cosh_rest(tail, a) / a  # from v to 2
        scale = h / (2 * a * above)
        below = np.where(v < 1, h / 2 - scale * inner, scale * outer)  # the part beyond |u|
        return np.where(u < 0, below, h - below)

    @property
    def support(self) -> tuple[float, float]:
        """Two spacings to either side."""
        spacing = self.spacing if isinstance(self.padding, int) else 1.0 / self.size
        return (-2 * spacing, 2 * spacing)

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        return self._quadrature_similarity(xp, dx, self.support)

    @property
    def rank_limit(self) -> float:
        """D(0)/spacing^2: the features are positive and sum to 1, so their spectrum peaks at 0."""
        return float(autocorrelation(self.on_line, self.support, np.zeros(1))[0]) / self.spacing**2

    def bandwidth(self, tolerance: float = 1e-3) -> float:
        """Return the highest frequency where the spectrum exceeds ``tolerance`` of its peak."""
        return last_frequency(self.on_line, self.support, fraction("tolerance", tolerance))


# The following are for 0 <= v <= 1. With little tension, differences of large terms lose digits: up
# to this tension they are sums of the series, to rounding.
BY_SERIES = 1.0


def _above(a: float) -> float:
    """Return 2 exp(-a) (cosh a - 1)."""
    return math.expm1(-a) ** 2


def _sinh(xp: Namespace, v: AnyArray, a: float) -> AnyArray:
    """Return 2 exp(-a) sinh(a v)."""
    return xp.exp(a * (v - 1)) - xp.exp(-a * (v + 1))


def _sinh_rest(xp: Namespace, v: AnyArray, a: float) -> AnyArray:
    """Return 2 exp(-a) (sinh(a v) - a v)."""
    decay = 2 * math.exp(-a)
    if a > BY_SERIES:
        return _sinh(xp, v, a) - decay * a * v
    return decay / 6 * (a * v) ** 3 * _series((a * v) ** 2, 4)


def _cosh_less_1(xp: Namespace, v: AnyArray, a: float) -> AnyArray:
    """Return 2 exp(-a) (cosh(a v) - 1)."""
    return xp.exp(a * (v - 1)) * xp.expm1(-a * v) ** 2


def _cosh_rest(v: Array, a: float) -> Array:
    """Return 2 exp(-a) (cosh(a v) - 1 - (a v)^2 / 2)."""
    decay = 2 * math.exp(-a)
    if a > BY_SERIES:
        return np.asarray(_cosh_less_1(np, v, a) - decay / 2 * (a * v) ** 2)
    return np.asarray(decay / 24 * (a * v) ** 4 * _series((a * v) ** 2, 5))


def _series(square: AnyArray, n: int) -> AnyArray:
    """Return 1 + x^2/(n (n+1)) (1 + x^2/((n+2) (n+3)) (1 + ...)), for x^2 of at most 1."""
    found = 1.0 + square * 0.0
    for k in range(n + 12, n - 2, -2):
        found = 1.0 + square / (k * (k + 1)) * found
    return found
