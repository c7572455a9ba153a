"""Least squares on a grid, one factorisation per axis, with or without a penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem, real
from kronfield._core.frames import Frame
from kronfield.encoding import Kronecker
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.basis import AxisBasis, ridge_basis, roughness_basis
from kronfield.solvers.grid.inverse import AxisInverse, invert_axis

# Coefficients that are damped at a time, to bound the memory.
SLAB = 1 << 20
# Singular values below this fraction of the largest are rounding.
ROUNDING = 1e-14


class GridSolver:
    """The map from values on a grid to weights: factored once, applied to any number of arrays.

    Values (C, N_1, ..., N_D) and weights (C, K_1, ..., K_D) are real, and channels come first.

    Parameters
    ----------
    encoding : Kronecker
        One embedder per axis.
    frames : sequence of Frame
        The frame of each axis.
    axes : sequence of float64 arrays
        Sorted sample positions.
    dtype : dtype
        float32 or float64.
    ridge : float
        Weight of the sum of squared weights.
    roughness : (float, float)
        Weights of the integrals of |gradient|^2 and |second derivatives|^2.
    smooth : int or sequence of int
        Which weights to use if several fit equally well: 0 selects those of least norm, 1 or 2
        those with the least first or second differences. Past the last sample these continue flat
        or straight.
    rcond : float
        Singular values of an axis below this fraction of its largest count as zero.
    """

    def __init__(
        self,
        encoding: Kronecker,
        frames: Sequence[Frame],
        axes: Sequence[Array],
        *,
        dtype: Any = np.float64,
        ridge: float = 0.0,
        roughness: tuple[float, float] = (0.0, 0.0),
        smooth: int | Sequence[int] = 0,
        rcond: float = 1e-10,
    ) -> None:
        self.encoding, self.frames, self.axes = encoding, tuple(frames), tuple(axes)
        self.dtype, self.rcond = np.dtype(dtype), rcond
        each = [smooth] * len(self.axes) if isinstance(smooth, int) else smooth
        self.smooth = tuple(each)
        remedy = "Penalty weights are zero or positive; leave them out to have them chosen."
        self.ridge = real("ridge", ridge, low=0.0, high=1e300, remedy=remedy)
        first, second = (
            real("roughness", part, low=0.0, high=1e300, remedy=remedy) for part in roughness
        )
        self.roughness = (first, second)
        if self.ridge and any(self.roughness):
            raise problem(
                "ridge and roughness",
                (ridge, roughness),
                "one of them to be 0",
                "No basis makes both diagonal.",
            )
        self.units = [frame.unit(axis) for frame, axis in zip(self.frames, self.axes, strict=True)]
        self.inverses: list[AxisInverse] = []
        self.bases: list[AxisBasis] = []
        if self.ridge:
            self.bases = _once_each(lambda emb, x: ridge_basis(emb, x, self.cut), self._each())
        elif any(self.roughness):
            self.bases = self._roughness_bases()
        else:
            self.inverses = _once_each(
                lambda emb, x, ends: invert_axis(emb, x, dtype=dtype, smooth=ends, rcond=rcond),
                [(*pair, ends) for pair, ends in zip(self._each(), self.smooth, strict=True)],
            )

        # if one axis needs float64, all axes use it
        if len({inverse.operator.dtype for inverse in self.inverses}) > 1:
            self.inverses = [
                replace(inverse, operator=inverse.operator.astype(np.float64))
                for inverse in self.inverses
            ]

    def _each(self) -> list[tuple[Any, Array]]:
        return list(zip(self.encoding.embedders, self.units, strict=True))

    def _roughness_bases(self) -> list[AxisBasis]:
        # With a penalty on second derivatives only, straight lines cost nothing in the basis of
        # order 2.
        order = (
            2
            if not self.roughness[0] and all(emb.smoothness >= 2 for emb in self.encoding.embedders)
            else 1
        )

        def factor(emb: Any, x: Array, frame: Frame, ends: int) -> AxisBasis:
            low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
            basis = roughness_basis(
                emb, x, low, high, rcond=self.rcond, smooth=ends or 2, order=order
            )
            # The penalty is the mean over x of the squared derivative, relative to the mean over
            # samples. It does not depend on the density of the samples.
            per_sample = (frame.high - frame.low) / len(x)
            scale = (1.0 / (frame.length ** (2 * order - 1) * per_sample)) ** (1 / order)
            return AxisBasis(basis.U, basis.back, basis.strength * scale)

        return _once_each(
            factor,
            [
                (*pair, frame, ends)
                for pair, frame, ends in zip(self._each(), self.frames, self.smooth, strict=True)
            ],
        )

    @property
    def ranks(self) -> list[int]:
        """The effective rank of every axis."""
        return [inverse.rank for inverse in self.inverses] or [
            len(basis.strength) for basis in self.bases
        ]

    @property
    def methods(self) -> list[str]:
        """How every axis is solved: banded, dense, or in its eigenbasis."""
        return [inverse.method for inverse in self.inverses] or ["eigenbasis"] * len(self.bases)

    @property
    def cut_off(self) -> float:
        """With a ridge, the product of singular values below which some may have been left out."""
        strongest = math.prod(
            float(basis.strength[0]) for basis in self.bases if len(basis.strength)
        )
        return self.cut * strongest if self.ridge else 0.0

    @property
    def cut(self) -> float:
        """Singular values below this fraction of the largest of their axis count as zero."""
        return max(self.rcond, ROUNDING) if self.ridge else self.rcond

    @property
    def filter(self) -> Array:
        """The factor of each basis function under the penalty: 0 to 1, (r_1, ..., r_D)."""
        return self.filter_of(self.strengths(), self.ridge, self.roughness)

    @staticmethod
    def filter_of(
        strengths: Array, ridge: float = 0.0, roughness: tuple[float, float] = (0.0, 0.0)
    ) -> Array:
        """Return the factors of basis functions of given strengths under a penalty."""
        if ridge:
            squares = strengths * strengths
            return squares / (squares + ridge)
        first, second = roughness
        # 1 / (1 + first t + second t^2), without the terms of weight 0
        total = 1.0 + first * strengths if first else np.ones_like(strengths)
        if second:
            total += second * (strengths * strengths)
        return 1.0 / total

    def freedom(self, roughness: tuple[float, float]) -> float:
        """Return the trace of the hat matrix for one channel with this roughness."""
        return float(self.filter_of(self.strengths(), 0.0, roughness).sum())

    @property
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix, for one channel."""
        return float(self.filter.sum()) if self.bases else float(math.prod(self.ranks))

    def strengths(self, first: Array | None = None) -> Array:
        """Return the products (ridge) or sums (roughness) of the strengths of the axes.

        ``first`` are some of the strengths of the first axis, by default all.
        """
        each = [basis.strength for basis in self.bases]
        each[0] = each[0] if first is None else first
        D = len(each)
        shaped = [
            strength.reshape([-1 if a == i else 1 for a in range(D)])
            for i, strength in enumerate(each)
        ]
        return (
            math.prod(shaped[1:], start=shaped[0])
            if self.ridge
            else sum(shaped[1:], start=shaped[0])
        )

    def coefficients(self, values: Array) -> Array:
        """Return the values in the orthonormal basis of the fits, (C, r_1, ..., r_D)."""
        for axis, basis in enumerate(self.bases, start=1):
            values = apply(basis.U.T, values, axis)
        return values

    def solve(self, values: Array, roughness: Sequence[tuple[float, float]] = ()) -> Array:
        """Return the weights (C, K_1, ..., K_D) for values (C, N_1, ..., N_D).

        With ``roughness``, every channel has its own weights of the penalty, of the same order.
        """
        if not self.bases:
            for axis, inverse in enumerate(self.inverses, start=1):
                values = apply(inverse.operator, values, axis)
            return values  # if every operator is the identity, this is the given array
        weights = self.coefficients(values)  # float64 for values of any dtype
        each = roughness or [self.roughness] * len(weights)
        for plane, own in zip(weights, each, strict=True):
            self._damp(plane, own)
        for axis, basis in enumerate(self.bases, start=1):
            weights = apply(basis.back, weights, axis)
        return weights

    def _damp(self, plane: Array, roughness: tuple[float, float]) -> None:
        """Multiply coefficients (r_1, ..., r_D) by the gain of each basis function, in slabs."""
        first = self.bases[0].strength
        rows = max(1, SLAB // max(plane[0].size, 1))
        for start in range(0, len(first), rows):
            some = slice(start, start + rows)
            strengths = self.strengths(first[some])
            # ridge: s / (s^2 + ridge), since Psi V = U s
            # roughness: the filter itself, since Psi back = U
            if self.ridge:
                plane[some] *= strengths / (strengths**2 + self.ridge)
            else:
                plane[some] *= self.filter_of(strengths, 0.0, roughness)


def _once_each(factor: Callable[..., Any], axes: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return ``factor`` of every axis, computed once for equal axes."""
    known: dict[Any, Any] = {}
    for emb, x, *rest in axes:
        key = (emb, x.tobytes(), *rest)
        if key not in known:
            known[key] = factor(emb, x, *rest)
    return [known[(emb, x.tobytes(), *rest)] for emb, x, *rest in axes]


def gcv_score(energy: Array, total: float, kept: Array, values: Array) -> float:
    """Return n RSS / (n - dof)^2, the score of generalised cross-validation.

    See Craven and Wahba (1979). ``energy`` holds the squared coefficients, ``kept`` the factor of
    each under the penalty, and ``total`` is the squared norm of the values.
    """
    n = math.prod(values.shape[1:])
    residual = float(np.sum((1.0 - kept) ** 2 * energy)) + max(total - float(energy.sum()), 0.0)
    left = n - float(kept.sum())
    return math.inf if left <= 1e-9 * n else n * residual / left**2 / values.shape[0]
