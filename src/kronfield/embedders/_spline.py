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

    def psi(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # With little tension the result is a small difference of large terms: always use float64.
        wide = xp.astype(u, xp.float64, copy=False)
        return xp.astype(self._piece(xp, wide, order), u.dtype, copy=False)

    def _piece(self, xp: Namespace, u: AnyArray, order: int) -> AnyArray:
        # With v = |u|/spacing and a = tension:
        #   sinh(a v) - 2 sinh(a (1-v)) + 2a (cosh a + 1)(1-v) - a (2-v)   for v <= 1
        #   sinh(a (2-v)) - a (2-v)                                       for 1 <= v <= 2
        # The factor 1/(2a (cosh a - 1)) makes the features sum to 1. All terms are multiplied by
        # 2 exp(-a) so that they do not overflow.
        a = self.tension
        v = xp.abs(u) * self._inside
        tail = xp.maximum(2 - v, xp.zeros_like(v))  # 2 - v, and 0 beyond the support
        near = xp.minimum(v, xp.ones_like(v))
        decay, cosh2 = 2 * math.exp(-a), 1 + math.exp(-2 * a)  # 2 exp(-a) and 2 exp(-a) cosh a
        inside = v < 1
        if order == 0:
            inner = _sinh(xp, near, a) - 2 * _sinh(xp, 1 - near, a) - decay * a * (2 - near)
            inner = inner + 2 * (cosh2 + decay) * a * (1 - near)
            outer = _sinh(xp, xp.minimum(tail, xp.ones_like(v)), a) - decay * a * tail
            value = xp.where(inside, inner, outer)
        elif order == 1:
            inner = _cosh(xp, near, a) + 2 * _cosh(xp, 1 - near, a) - 2 * cosh2 - decay
            outer = decay - _cosh(xp, xp.minimum(tail, xp.ones_like(v)), a)
            value = xp.sign(u) * a * self._inside * xp.where(inside, inner, outer)
        else:
            inner = _sinh(xp, near, a) - 2 * _sinh(xp, 1 - near, a)
            outer = _sinh(xp, xp.minimum(tail, xp.ones_like(v)), a)
            value = (a * self._inside) ** 2 * xp.where(inside, inner, outer)
        return value / (2 * a * (cosh2 - decay))

    def _antiderivative(self, u: Array) -> Array:
        # Integrate the outer piece from the rim, and the inner piece from the centre, where the
        # antiderivative is half of the total integral: spacing/2.
        a, h = self.tension, self.spacing
        v = np.minimum(np.abs(u) / h, 2.0)
        decay, cosh2 = 2 * math.exp(-a), 1 + math.exp(-2 * a)
        near, tail = np.minimum(v, 1.0), np.minimum(2 - v, 1.0)
        inner = (_cosh(np, near, a) - decay + 2 * _cosh(np, 1 - near, a) - 2 * cosh2) / a
        inner = (
            inner
            - decay * a * (2 * near - near**2 / 2)
            + 2 * (cosh2 + decay) * a * (near - near**2 / 2)
        )
        outer = (_cosh(np, tail, a) - decay) / a - decay * a * tail**2 / 2  # from v to 2
        scale = h / (2 * a * (cosh2 - decay))
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


def _sinh(xp: Namespace, v: AnyArray, a: float) -> AnyArray:
    """Return 2 exp(-a) sinh(a v), for 0 <= v <= 1."""
    return xp.exp(a * (v - 1)) - xp.exp(-a * (v + 1))


def _cosh(xp: Namespace, v: AnyArray, a: float) -> AnyArray:
    """Return 2 exp(-a) cosh(a v), for 0 <= v <= 1."""
    return xp.exp(a * (v - 1)) + xp.exp(-a * (v + 1))
