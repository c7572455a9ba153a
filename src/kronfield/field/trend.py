"""The trend: a polynomial that is part of a field and is not penalised."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record


@record(eq=False)
class TrendBasis:
    """The monomials of total degree up to ``degree`` in (x - centre) / length, one x per axis."""

    degree: int
    centre: tuple[float, ...]
    length: tuple[float, ...]

    @classmethod
    def of(cls, degree: int, box: Sequence[tuple[float, float]]) -> TrendBasis:
        """Return the monomials whose variables are -1 and 1 at the ends of the box."""
        centre = tuple(low + (high - low) / 2 for low, high in box)
        return cls(degree, centre, tuple((high - low) / 2 for low, high in box))

    @classmethod
    def saved(cls, about: tuple[int, Sequence[float], Sequence[float]]) -> TrendBasis:
        """Return the basis that metadata describe as (degree, centre, length)."""
        degree, centre, length = about
        return cls(int(degree), tuple(map(float, centre)), tuple(map(float, length)))

    @property
    def powers(self) -> list[tuple[int, ...]]:
        """The powers of each monomial, the constant first."""
        D, found = len(self.centre), []
        for total in range(self.degree + 1):
            for axes in itertools.combinations_with_replacement(range(D), total):
                found.append(tuple(axes.count(axis) for axis in range(D)))
        return sorted(found, key=lambda p: (sum(p), p))

    def on_axis(self, axis: int, x: Array, order: int) -> list[Array]:
        """Return the derivatives of t^0, t^1, ... by x, with t = (x - centre) / length."""
        t = (np.asarray(x, dtype=np.float64) - self.centre[axis]) / self.length[axis]
        scale = self.length[axis] ** -float(order)
        return [
            math.perm(p, order) * scale * t ** (p - order) if p >= order else np.zeros_like(t)
            for p in range(self.degree + 1)
        ]

    def columns(self, points: Array, orders: Sequence[int] | None = None) -> Array:
        """Return the monomials, or their derivatives, at points (P, D): (T, P)."""
        orders = orders or (0,) * len(self.centre)
        axes = [self.on_axis(i, points[:, i], order) for i, order in enumerate(orders)]
        return np.stack(
            [
                math.prod((axis[p] for axis, p in zip(axes, powers, strict=True)), start=1.0)
                for powers in self.powers
            ]
        )


@record(eq=False)
class Trend:
    """A polynomial for each of C planes: its coefficients (C, T) for a `TrendBasis`."""

    basis: TrendBasis
    coefficients: Array

    def at(self, points: Array, orders: Sequence[int] | None = None) -> Array:
        """Return the values, or derivatives, (C, P) at points (P, D)."""
        return self.coefficients @ self.basis.columns(points, orders)

    def on_grid(self, axes: Sequence[Array], orders: Sequence[int]) -> Array:
        """Return the values, or derivatives, (C, M_1, ..., M_D) on a grid."""
        known = [self.basis.on_axis(i, axes[i], order) for i, order in enumerate(orders)]
        total = np.zeros((len(self.coefficients), *(len(x) for x in axes)))
        for c, powers in zip(self.coefficients.T, self.basis.powers, strict=True):
            term = c
            for axis, p in zip(known, powers, strict=True):
                term = np.multiply.outer(term, axis[p])
            total += term
        return total

    def integral(self, box: Sequence[tuple[float, float]]) -> Array:
        """Return the integrals (C,) over a box."""
        basis, total = self.basis, np.zeros(len(self.coefficients))
        ends = [
            [(end - m) / r for end in pair]
            for pair, m, r in zip(box, basis.centre, basis.length, strict=True)
        ]
        for c, powers in zip(self.coefficients.T, basis.powers, strict=True):
            parts = zip(ends, powers, basis.length, strict=True)
            total += c * math.prod(
                r * (high ** (p + 1) - low ** (p + 1)) / (p + 1) for (low, high), p, r in parts
            )
        return total
