"""From points to normal equations: exact rows where few features are in reach, blending on a virtual grid elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame
from kronfield.encoding import Kronecker
from kronfield.encoding.blending import Blending, virtual_axis
from kronfield.solvers.points.dense import DenseTerm, fits
from kronfield.solvers.points.normal import NormalEquations
from kronfield.solvers.points.rows import AxisRows, axis_runs, sparse_rows, taps_in_reach
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import RowsTerm, mean_gram

# Rows are exact if a point sees no more features than this, each above the given part of its peak;
# else they are blended.
MOST_TAPS, IN_SIGHT = 256, 1e-10
FEW_ENTRIES = 1 << 22
ROUNDING = 1e-11
# More points than this are sorted along the grid.
SORTED_FROM = 1 << 16
# Points are put on the grid in parts of this many.
CHUNK = 1 << 18


@dataclass(frozen=True)
class RowRule:
    """How a point becomes a row: by exact features, or blended on the nodes of a virtual grid.

    Attributes
    ----------
    encoding, frames
        The features, and where their axes lie.
    blending : Blending or None
        The virtual grid, in the units of the embedders.
    """

    encoding: Kronecker
    frames: tuple[Frame, ...]
    blending: Blending | None

    @classmethod
    def choose(
        cls,
        encoding: Kronecker,
        frames: Sequence[Frame],
        rows: str | None,
        points: int | None = None,
    ) -> RowRule:
        """Return the rule for an encoding; ``rows`` is "exact", "blending", "linear", or None for what suits.

        Of ``points``, where their number is known, rows may be longer if all of them together are
        still small.
        """
        if rows not in (None, "exact", "blending", "linear"):
            raise problem(
                "rows",
                repr(rows),
                '"exact", "blending", "linear" or None',
                "Leave it out to have it chosen.",
            )
        taps = [taps_in_reach(emb, IN_SIGHT) for emb in encoding.embedders]
        local = all(t is not None for t in taps)
        entries = math.prod(t or 1 for t in taps)
        few = local and (
            entries <= MOST_TAPS or (points is not None and points * entries <= FEW_ENTRIES)
        )
        if rows == "exact" and not local:
            raise problem(
                "rows",
                '"exact"',
                "features that are local, for a sparse fit",
                'Leave rows out, or pass "blending".',
            )
        if (few and rows is None) or rows == "exact":
            return cls(encoding, tuple(frames), None)
        nodes = [
            virtual_axis(emb, float(frame.unit(frame.low)), float(frame.unit(frame.high)))
            for emb, frame in zip(encoding.embedders, frames, strict=True)
        ]
        return cls(encoding, tuple(frames), Blending(encoding, nodes, linear=rows == "linear"))

    @property
    def shape(self) -> tuple[int, ...]:
        """The grid that rows refer to: weights, or nodes."""
        return self.encoding.shape if self.blending is None else self.blending.shape

    @property
    def taps(self) -> tuple[int, ...]:
        """How many entries of that grid a row touches on each axis."""
        if self.blending is not None:
            return (2,) * len(self.shape)
        return tuple(taps_in_reach(emb, IN_SIGHT) or 1 for emb in self.encoding.embedders)

    @property
    def nodes(self) -> list[Array] | None:
        """The positions of the nodes of the virtual grid, in the units of the points."""
        if self.blending is None:
            return None
        return [
            frame.origin + frame.length * axis
            for frame, axis in zip(self.frames, self.blending.axes, strict=True)
        ]

    def runs(self, points: Array) -> list[AxisRows]:
        """Return what each point sees on every axis."""
        units = [frame.unit(points[:, i]) for i, frame in enumerate(self.frames)]
        if self.blending is None:
            runs = axis_runs(self.encoding.embedders, units, None, IN_SIGHT)
            # a point on a node sees its neighbours by rounding only: such rows have one entry
            for run in runs:
                run.values[
                    np.abs(run.values) < ROUNDING * float(np.abs(run.values).max(initial=0.0))
                ] = 0.0
            return runs
        sides = [self.blending.on_axis(np, unit, i) for i, unit in enumerate(units)]
        return [AxisRows(cell, np.stack(pair)) for cell, pair in sides]

    @property
    def name(self) -> str:
        """What a report calls it."""
        if self.blending is None:
            return "exact rows"
        return f"{'linear ' if self.blending.linear else ''}blending on {' x '.join(map(str, self.shape))} nodes"


def assemble(rule: RowRule, points: Array, values: Array, weights: Array | None) -> NormalEquations:
    """Return the normal equations of points (P, D), planar values (C, P) and weights (P,)."""
    P = len(points)
    runs = rule.runs(points)
    if P > SORTED_FROM:
        runs, values, weights = _along_the_grid(runs, values, weights, rule.shape)
    grams = [mean_gram(run, weights) for run in runs]
    total = float(P if weights is None else weights.sum())
    energy = np.sum(
        np.square(values, dtype=np.float64) * (1.0 if weights is None else weights), axis=1
    )
    term, rhs = _data_term(rule, runs, values, weights)
    return NormalEquations(
        rule.encoding, rule.frames, term, rhs, energy, total, P, grams, rule.nodes
    )


def _along_the_grid(
    runs: list[AxisRows], values: Array, weights: Array | None, shape: Sequence[int]
) -> tuple[list[AxisRows], Array, Array | None]:
    """Return points sorted along the grid: neighbours there become neighbours in memory."""
    order = np.argsort(
        np.ravel_multi_index([run.first for run in runs], tuple(shape)), kind="stable"
    )
    runs = [AxisRows(run.first[order], np.take(run.values, order, axis=1)) for run in runs]
    return runs, np.take(values, order, axis=1), None if weights is None else weights[order]


def _data_term(
    rule: RowRule, runs: list[AxisRows], values: Array, weights: Array | None
) -> tuple[Any, Array]:
    """Return B'WB in the form that takes the least room, and B'Wy."""
    dtype, n, P = values.dtype, math.prod(rule.shape), values.shape[1]
    if rule.blending is None and fits(rule.shape, rule.taps):
        dense = DenseTerm(n)
        return dense, dense.add(runs, rule.shape, weights, values).reshape(
            len(values), *rule.shape
        ).astype(dtype)
    entries = P * math.prod(rule.taps)
    offsets = math.prod(2 * t - 1 for t in rule.taps)  # of a full stencil
    w = None if weights is None else weights.astype(dtype)
    weighted = values if w is None else values * w
    if len(rule.shape) > 1 and entries <= 64 * CHUNK and 3 * entries < n * offsets:
        rows = sparse_rows(runs, rule.shape, dtype)
        rhs = np.stack([(rows.T @ one).reshape(rule.shape) for one in weighted])
        return (diagonal_term(rows, w, rule) if rows.nnz <= P else RowsTerm(rows, w)), rhs
    stencil, rhs = Stencil(rule.shape, rule.taps), np.zeros((len(values), *rule.shape))
    for start in range(0, P, CHUNK):
        part = slice(start, start + CHUNK)
        some = [AxisRows(run.first[part], run.values[:, part]) for run in runs]
        stencil.add(some, None if weights is None else weights[part])
        add_values(rhs, some, rule.shape, weighted[:, part])
    return (stencil if len(rule.shape) == 1 else stencil.astype(dtype)), rhs.astype(dtype)


def diagonal_term(rows: Any, weights: Array | None, rule: RowRule) -> Stencil:
    """Return the stencil of rows with one entry each: points on the nodes of hats."""
    entries = rows.data**2
    if weights is not None:
        entries = entries * np.repeat(weights, np.diff(rows.indptr))
    stencil = Stencil(rule.shape, (1,) * len(rule.shape))
    plane = np.bincount(rows.indices, entries, minlength=math.prod(rule.shape)).reshape(rule.shape)
    stencil.planes = {(0,) * len(rule.shape): plane}
    return stencil.astype(rows.dtype)


def add_values(rhs: Array, runs: Sequence[AxisRows], shape: Sequence[int], weighted: Array) -> None:
    """Add B'Wy of some points to ``rhs`` (C, K_1, ..., K_D)."""
    from kronfield.solvers.points.rows import corners

    n = math.prod(shape)
    for _, index, value in corners(runs, shape):
        for plane, y in zip(rhs, weighted, strict=True):
            plane += np.bincount(index, value * y, minlength=n).reshape(plane.shape)
