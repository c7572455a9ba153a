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

# Coefficients are damped in slabs of about this many numbers, to bound the memory.
SLAB = 1 << 18
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
        Weights of the mean squared first and second derivatives, relative to the mean squared
        residual.
    smooth : int or sequence of int
        Which weights to use if several fit equally well: 0 selects those of least norm, 1 or 2
        those with the least first or second differences, which continue flat or straight past the
        last sample.
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
                "at most one of the two above 0",
                "Pass only one: no basis makes both matrices diagonal.",
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
        # With a penalty on second derivatives only, use the basis of order 2, in which straight
        # lines have no penalty.
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
            # The penalty is the mean over x of the squared derivative, relative to the mean squared
            # residual of the samples. It does not depend on the density of the samples.
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
        """The method of every axis: that of `AxisInverse`, or "eigenbasis"."""
        return [inverse.method for inverse in self.inverses] or ["eigenbasis"] * len(self.bases)

    @property
    def cut_off(self) -> float:
        """With a ridge, the product of singular values below which some may have been left out."""
        strongest = math.prod(
            float(basis.strength.max()) for basis in self.bases if len(basis.strength)
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
        return self._sum_of_filter(0.0, roughness)

    def _sum_of_filter(self, ridge: float, roughness: tuple[float, float]) -> float:
        """Return the sum of the factors of all basis functions, in slabs."""
        return math.fsum(
            float(
                self.filter_of(self.strengths(self.bases[0].strength[some]), ridge, roughness).sum()
            )
            for some in self._rows()
        )

    def _rows(self) -> list[slice]:
        """Return slices of the basis functions of the first axis, of about SLAB numbers each."""
        count, *others = self.ranks
        step = max(1, SLAB // max(math.prod(others), 1))
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    @property
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix, for one channel."""
        if not self.bases:
            return float(math.prod(self.ranks))
        return self._sum_of_filter(self.ridge, self.roughness)

    def strengths(self, first: Array | None = None) -> Array:
        """Return the products (ridge) or sums (roughness) of the strengths of the axes.

        ``first`` holds a part of the strengths of the first axis, by default all of them.
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

    def solve(
        self,
        values: Array,
        roughness: Sequence[tuple[float, float]] = (),
        rotation: Array | None = None,
        dtype: Any = np.float64,
    ) -> Array:
        """Return the weights (C, K_1, ..., K_D) for values (C, N_1, ..., N_D).

        ``roughness`` gives every channel its own penalty weights, for the same derivatives.
        These channels are the product of ``rotation`` (C, C), an orthogonal matrix, with the given
        channels; the rotation is undone at the end. Weights under a penalty have the given
        ``dtype``; all products are float64.
        """
        if not self.bases:
            for axis, inverse in enumerate(self.inverses, start=1):
                values = apply(inverse.operator, values, axis)
            return values  # if every operator is the identity, this is the input array
        each = list(roughness) or [self.roughness] * len(values)
        return self._in_slabs(values, each, rotation, np.dtype(dtype))

    def _in_slabs(
        self,
        values: Array,
        roughness: Sequence[tuple[float, float]],
        rotation: Array | None,
        dtype: np.dtype[Any],
    ) -> Array:
        """Return the weights under a penalty, in three sweeps over one array.

        1. Transform to the basis along the first axis, in slabs of the second axis.
        2. Transform to the basis along all other axes, damp, and transform back, in slabs of the
           first axis.
        3. Transform back along the first axis, in slabs of the second axis.

        A line is one slab. Slabs are float64; between sweeps numbers have ``dtype``.
        """
        first, *rest = self.bases
        lengths = [values.shape[1], first.U.shape[1], first.back.shape[0]]
        others = [(basis.U.shape[0], basis.back.shape[0]) for basis in rest]
        N, K = ([pair[i] for pair in others] for i in range(2))
        whole = np.empty((len(values), max(lengths), *map(max, others)), dtype=dtype)
        inside = [tuple(slice(n) for n in counts) for counts in (N, K)]
        rank = lengths[1]

        def to_basis(some: tuple[slice, ...]) -> None:
            part = np.asarray(values[(slice(None), slice(None), *some)], dtype=np.float64)
            if rotation is not None:
                part = np.tensordot(rotation, part, axes=1)
            whole[(slice(None), slice(rank), *some)] = apply(first.U.T, part, 1)

        def damped(rows: slice) -> None:
            for c, own in enumerate(roughness):
                part = whole[(slice(c, c + 1), rows, *inside[0])].astype(np.float64)
                for axis, basis in enumerate(rest, start=2):
                    part = apply(basis.U.T, part, axis)
                part *= self._gain(first.strength[rows], own)
                for axis, basis in enumerate(rest, start=2):
                    part = apply(basis.back, part, axis)
                whole[(slice(c, c + 1), rows, *inside[1])] = part

        def back(some: tuple[slice, ...]) -> None:
            part = whole[(slice(None), slice(rank), *some)].astype(np.float64)
            part = apply(first.back, part, 1)
            if rotation is not None:
                part = np.tensordot(rotation.T, part, axes=1)
            whole[(slice(None), slice(lengths[2]), *some)] = part

        for some in _slabs(N, len(values) * max(lengths)):
            to_basis(some)
        for rows in self._rows():
            damped(rows)
        for some in _slabs(K, len(values) * max(lengths)):
            back(some)
        weights = whole[(slice(None), slice(lengths[2]), *inside[1])]
        return np.ascontiguousarray(weights)

    def _gain(self, first: Array, roughness: tuple[float, float]) -> Array:
        """Return the gains of basis functions, for the strengths ``first`` on the first axis."""
        strengths = self.strengths(first)
        # ridge: s / (s^2 + ridge), since Psi V = U s
        # roughness: the filter itself, since Psi back = U
        if self.ridge:
            return strengths / (strengths**2 + self.ridge)
        return self.filter_of(strengths, 0.0, roughness)


def _slabs(lengths: Sequence[int], numbers: int) -> list[tuple[slice, ...]]:
    """Return slabs of axes 2 to D of about SLAB numbers; each position has ``numbers`` of them."""
    if not lengths:
        return [()]
    n, *others = lengths
    step = max(1, SLAB // max(numbers * math.prod(others), 1))
    rest = tuple(slice(count) for count in others)
    return [(slice(start, min(start + step, n)), *rest) for start in range(0, n, step)]


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
