"""Least squares on a grid, one factorisation per axis: plain, with a ridge, or with a roughness penalty."""

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

# Singular values below this fraction of the largest are rounding.
ROUNDING = 1e-14


class GridSolver:
    """Weights from values on a grid: factored once, applied to any number of value arrays.

    Values are planar: (C, N_1, ..., N_D), real, and so are weights: (C, K_1, ..., K_D).

    Parameters
    ----------
    encoding : Kronecker
        One embedder per axis.
    frames : sequence of Frame
        Where the axes lie.
    axes : sequence of float64 arrays
        Sorted sample positions.
    dtype : dtype
        float32 or float64.
    ridge : float
        Weight of the sum of squared weights.
    roughness : (float, float)
        Weights of the integrals of |gradient|^2 and |second derivatives|^2.
    smooth : int
        Where several weights fit equally well: 0 takes those of least norm, 1 or 2 those with the
        least first or second differences, which go on flat or straight past the last sample.
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
        smooth: int = 0,
        rcond: float = 1e-10,
    ) -> None:
        self.encoding, self.frames, self.axes = encoding, tuple(frames), tuple(axes)
        self.dtype, self.smooth, self.rcond = np.dtype(dtype), smooth, rcond
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
                "No one basis is diagonal for both.",
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
                lambda emb, x: invert_axis(emb, x, dtype=dtype, smooth=smooth, rcond=rcond),
                self._each(),
            )

        # one axis needs more digits, so all get them
        if len({one.operator.dtype for one in self.inverses}) > 1:
            self.inverses = [
                replace(one, operator=one.operator.astype(np.float64)) for one in self.inverses
            ]

    def _each(self) -> list[tuple[Any, Array]]:
        return list(zip(self.encoding.embedders, self.units, strict=True))

    def _roughness_bases(self) -> list[AxisBasis]:
        # Second derivatives alone have a basis of their own, in which straight lines cost nothing.
        order = (
            2
            if not self.roughness[0] and all(emb.smoothness >= 2 for emb in self.encoding.embedders)
            else 1
        )

        def factor(emb: Any, x: Array, frame: Frame) -> AxisBasis:
            low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
            basis = roughness_basis(
                emb, x, low, high, rcond=self.rcond, smooth=self.smooth or 2, order=order
            )
            # The mean over x of the squared derivative by x, per mean over samples: density does
            # not matter.
            per_sample = (frame.high - frame.low) / len(x)
            scale = (1.0 / (frame.length ** (2 * order - 1) * per_sample)) ** (1 / order)
            return AxisBasis(basis.U, basis.back, basis.strength * scale)

        return _once_each(
            factor,
            [(emb, x, frame) for (emb, x), frame in zip(self._each(), self.frames, strict=True)],
        )

    @property
    def ranks(self) -> list[int]:
        """The effective rank of every axis."""
        return [one.rank for one in self.inverses] or [len(basis.strength) for basis in self.bases]

    @property
    def methods(self) -> list[str]:
        """How every axis is solved: banded, dense, or in its eigenbasis."""
        return [one.method for one in self.inverses] or ["eigenbasis"] * len(self.bases)

    @property
    def cut_off(self) -> float:
        """With a ridge, the singular value of all axes together below which some may have been left out."""
        strongest = math.prod(
            float(basis.strength[0]) for basis in self.bases if len(basis.strength)
        )
        return self.cut * strongest if self.ridge else 0.0

    @property
    def cut(self) -> float:
        """The fraction of the largest singular value of an axis below which others count as zero."""
        return max(self.rcond, ROUNDING) if self.ridge else self.rcond

    @property
    def filter(self) -> Array:
        """What the penalty leaves of every basis function: between 0 and 1, of shape (r_1, ..., r_D)."""
        return self.filter_of(self.strengths(), self.ridge, self.roughness)

    @staticmethod
    def filter_of(
        strengths: Array, ridge: float = 0.0, roughness: tuple[float, float] = (0.0, 0.0)
    ) -> Array:
        """Return what a ridge or a roughness leaves of basis functions of some strengths."""
        if ridge:
            squares = strengths * strengths
            return squares / (squares + ridge)
        first, second = roughness
        # 1 / (1 + first t + second t^2), with nothing computed that a weight of 0 takes away
        total = 1.0 + first * strengths if first else np.ones_like(strengths)
        if second:
            total += second * (strengths * strengths)
        return 1.0 / total

    @property
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix, for one channel."""
        return float(self.filter.sum()) if self.bases else float(math.prod(self.ranks))

    def strengths(self) -> Array:
        """Return the product (ridge) or the sum (roughness) of the strengths over the axes, as a tensor."""
        D = len(self.bases)
        shaped = [
            basis.strength.reshape([-1 if a == i else 1 for a in range(D)])
            for i, basis in enumerate(self.bases)
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

    def solve(self, values: Array) -> Array:
        """Return the weights (C, K_1, ..., K_D) for values (C, N_1, ..., N_D)."""
        if not self.bases:
            for axis, one in enumerate(self.inverses, start=1):
                values = apply(one.operator, values, axis)
            return values  # where every operator is the identity, these are the values themselves
        weights = self.coefficients(values) * self._gain()  # float64, whatever the values are
        for axis, basis in enumerate(self.bases, start=1):
            weights = apply(basis.back, weights, axis)
        return weights

    def _gain(self) -> Array:
        # ridge: s / (s^2 + ridge), since Psi V = U s; roughness: the filter itself, since Psi back
        # = U
        if not self.ridge:
            return self.filter
        total = self.strengths()
        return total / (total**2 + self.ridge)


def _once_each(factor: Callable[..., Any], axes: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return ``factor`` of every axis, computed once for axes that are alike."""
    known: dict[Any, Any] = {}
    for emb, x, *rest in axes:
        key = (emb, x.tobytes(), *rest)
        if key not in known:
            known[key] = factor(emb, x, *rest)
    return [known[(emb, x.tobytes(), *rest)] for emb, x, *rest in axes]


def gcv_score(energy: Array, total: float, kept: Array, values: Array) -> float:
    """Return n RSS / (n - dof)^2 from the energy of the coefficients and the part ``kept`` of each."""
    n = math.prod(values.shape[1:])
    residual = float(np.sum((1.0 - kept) ** 2 * energy)) + max(total - float(energy.sum()), 0.0)
    left = n - float(kept.sum())
    return math.inf if left <= 1e-9 * n else n * residual / left**2 / values.shape[0]
