"""From points to normal equations.

The row of a point holds its exact features if only a few are within reach. Otherwise its values are
blended from those at the nodes of a virtual grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.embedders import Embedder, LocalEmbedder, Wrapped
from kronfield.encoding import Kronecker
from kronfield.encoding.blending import Blending, virtual_axis
from kronfield.solvers.points.dense import DenseTerm, fits
from kronfield.solvers.points.normal import NormalEquations
from kronfield.solvers.points.rows import (
    AxisRows,
    add_entries,
    axis_runs,
    corners,
    sparse_rows,
    taps_in_reach,
)
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import RowsTerm, mean_gram

# A feature is within reach of a point where it exceeds this fraction of its peak. The rest is far
# below the default tolerances of the solver.
IN_SIGHT = 1e-10
# Entries of a row below this fraction of the largest are rounding and set to 0.
ROUNDING = 1e-11
# More points than this are sorted along the grid. Sorting fewer costs more time than it saves.
SORTED_FROM = 1 << 16
# Points are added to the stencil in chunks of this many, to bound the memory.
CHUNK = 1 << 18
# Bytes beside the numbers of a row: of each entry (its column, and copies while rows are made), and
# of each point (its order, value and weight); measured in 2-D and 3-D.
OF_ENTRY, OF_POINT = 16, 150


@record
class RowRule:
    """How a point becomes a row: from exact features, or blended on the nodes of a virtual grid.

    Attributes
    ----------
    encoding, frames
        The features, and the frame of each axis.
    blending : Blending or None
        The virtual grid, in the units of the embedders; None for exact rows.
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
        limits: tuple[int, int] | None = None,
    ) -> RowRule:
        """Return the rule for an encoding.

        Parameters
        ----------
        encoding, frames
            The features, and the frame of each axis.
        rows : "exact", "blending", "similarity", "linear" or None
            The kind of rows; None selects exact rows or blending by their length. The last three
            are kinds of blending: by least squares, by similarity, and linear.
        points : int, optional
            The number of points, if known.
        limits : (int, int), optional
            The most entries of a row, and of the rows of all points together. Rows are exact if
            they are within at least one of these limits. Otherwise they are blended, which takes
            less time and memory. By default all rows of local features are exact.
        """
        if rows not in (None, "exact", "blending", "similarity", "linear"):
            raise problem(
                "rows",
                repr(rows),
                '"exact", "blending", "similarity", "linear" or None',
                "Leave it out to have it chosen.",
            )
        entries = _entries_per_row(encoding)
        if rows == "exact" and entries is None:
            raise problem(
                "rows",
                '"exact"',
                "features that are local, for a sparse fit",
                'Leave rows out, or pass "blending".',
            )
        if rows == "exact" or (rows is None and _are_short(entries, points, limits)):
            return cls(encoding, tuple(frames), None)
        nodes = [
            virtual_axis(emb, float(frame.unit(frame.low)), float(frame.unit(frame.high)))
            for emb, frame in zip(encoding.embedders, frames, strict=True)
        ]
        weights = rows if rows in ("similarity", "linear") else "least-squares"
        return cls(encoding, tuple(frames), Blending(encoding, nodes, weights=weights))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid that rows refer to: of the weights, or of the nodes."""
        return self.encoding.shape if self.blending is None else self.blending.shape

    @property
    def taps(self) -> tuple[int, ...]:
        """The number of entries of a row on each axis."""
        if self.blending is not None:
            return (2,) * len(self.shape)
        return tuple(taps_in_reach(emb, IN_SIGHT) or 1 for emb in self.encoding.embedders)

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether rows wrap round on each axis; those on a virtual grid do not."""
        if self.blending is not None:
            return (False,) * len(self.shape)
        return tuple(isinstance(emb, Wrapped) for emb in self.encoding.embedders)

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
        """Return the entries of each point's row on every axis."""
        units = [frame.unit(points[:, i]) for i, frame in enumerate(self.frames)]
        if self.blending is None:
            runs = axis_runs(self.encoding.embedders, units, None, IN_SIGHT)
        else:
            sides = [self.blending.on_axis(np, unit, i) for i, unit in enumerate(units)]
            runs = [AxisRows(cell, np.stack(pair)) for cell, pair in sides]
        # At a point on a node, the neighbouring features or the weight of the other node differ
        # from 0 only by rounding. Setting them to 0 leaves a row with one entry.
        for run in runs:
            run.values[
                np.abs(run.values) < ROUNDING * float(np.abs(run.values).max(initial=0.0))
            ] = 0.0
        return runs

    @property
    def name(self) -> str:
        """The name in reports."""
        if self.blending is None:
            return "exact rows"
        # Version 0.1.0 blended by similarity and called it blending.
        weights = self.blending.weights
        kind = "blending" if weights == "similarity" else f"{weights} blending"
        return f"{kind} on {' x '.join(map(str, self.shape))} nodes"


def _entries_per_row(encoding: Kronecker) -> int | None:
    """Return the number of features within reach of a point; None if an axis is not a lattice."""
    # the penalty on differences of weights needs features of equal shape, at even centres
    if not all(is_lattice(emb) for emb in encoding.embedders):
        return None
    taps = [taps_in_reach(emb, IN_SIGHT) for emb in encoding.embedders]
    return None if None in taps else math.prod(t or 1 for t in taps)


def is_lattice(embedder: Embedder) -> bool:
    """Return whether features are local shifted copies at even centres, on a line or a circle."""
    if isinstance(embedder, Wrapped):
        return embedder.is_even and taps_in_reach(embedder, IN_SIGHT) is not None
    return isinstance(embedder, LocalEmbedder)


def _are_short(entries: int | None, points: int | None, limits: tuple[int, int] | None) -> bool:
    """Return whether rows with ``entries`` entries are short enough to be exact."""
    if entries is None or limits is None:
        return entries is not None
    return entries <= limits[0] or (points is not None and points * entries <= limits[1])


def assemble(rule: RowRule, points: Array, values: Array, weights: Array | None) -> NormalEquations:
    """Return the normal equations of points (P, D), planar values (C, P) and weights (P,)."""
    P = len(points)
    runs = rule.runs(points)
    if P > SORTED_FROM:
        runs, values, weights = along_the_grid(runs, values, weights, rule.shape)
    grams = [mean_gram(run, weights) for run in runs]
    total = float(P if weights is None else weights.sum())
    energy = np.sum(
        np.square(values, dtype=np.float64) * (1.0 if weights is None else weights), axis=1
    )
    term, rhs = _data_term(rule, runs, values, weights)
    return NormalEquations(
        encoding=rule.encoding,
        frames=rule.frames,
        term=term,
        rhs=rhs,
        energy=energy,
        total=total,
        # points of weight 0 carry no information about the noise
        count=P if weights is None else int(np.count_nonzero(weights)),
        grams=grams,
        nodes=rule.nodes,
    )


def along_the_grid(
    runs: list[AxisRows], values: Array, weights: Array | None, shape: Sequence[int]
) -> tuple[list[AxisRows], Array, Array | None]:
    """Return points in the order of the grid, so that neighbours on it are neighbours in memory."""
    order = np.argsort(
        np.ravel_multi_index([run.index(0) for run in runs], tuple(shape)), kind="stable"
    )
    runs = [
        replace(run, first=run.first[order], values=np.take(run.values, order, axis=1))
        for run in runs
    ]
    return runs, np.take(values, order, axis=1), None if weights is None else weights[order]


def _are_kept(points: int, unknowns: int, taps: Sequence[int]) -> bool:
    """Return whether sparse rows take less work than a stencil, and are kept."""
    entries = points * math.prod(taps)
    offsets = math.prod(2 * t - 1 for t in taps)  # of a full stencil
    return len(taps) > 1 and entries <= 64 * CHUNK and 3 * entries < unknowns * offsets


def needed_bytes(points: int, unknowns: int, taps: Sequence[int], itemsize: int) -> float:
    """Return about how many bytes exact rows with ``taps`` entries on each axis need.

    These are the rows of each axis, also in the order of the grid, and the rows or the stencil.
    """
    lines = float(points) * (OF_POINT + 2 * 8 * sum(t + 1 for t in taps))
    if _are_kept(points, unknowns, taps):
        return lines + float(points) * math.prod(taps) * (itemsize + OF_ENTRY)
    return lines + 8.0 * unknowns * (math.prod(2 * t - 1 for t in taps) + 1) / 2


def _data_term(
    rule: RowRule, runs: list[AxisRows], values: Array, weights: Array | None
) -> tuple[Any, Array]:
    """Return B'WB as a dense matrix, a stencil or sparse rows, chosen by size, and B'Wy."""
    dtype, n, P = values.dtype, math.prod(rule.shape), values.shape[1]
    if rule.blending is None and fits(rule.shape, rule.taps):
        dense = DenseTerm(n)
        return dense, dense.add(runs, rule.shape, weights, values).reshape(
            len(values), *rule.shape
        ).astype(dtype)
    w = None if weights is None else weights.astype(dtype)
    weighted = values if w is None else values * w
    if _are_kept(P, n, rule.taps):
        rows = sparse_rows(runs, rule.shape, dtype)
        rhs = np.stack([(rows.T @ channel).reshape(rule.shape) for channel in weighted])
        return (diagonal_term(rows, w, rule) if rows.nnz <= P else RowsTerm(rows, w)), rhs
    stencil = Stencil(rule.shape, rule.taps, rule.wraps)
    rhs = np.zeros((len(values), *rule.shape))
    for start in range(0, P, CHUNK):
        part = slice(start, start + CHUNK)
        some = [run.part(part) for run in runs]
        stencil.add(some, None if weights is None else weights[part])
        add_values(rhs, some, rule.shape, weighted[:, part])
    return (stencil if len(rule.shape) == 1 else stencil.astype(dtype)), rhs.astype(dtype)


def diagonal_term(rows: Any, weights: Array | None, rule: RowRule) -> Stencil:
    """Return the stencil of rows with one entry each, such as those of points on nodes of hats."""
    entries = rows.data**2
    if weights is not None:
        entries = entries * np.repeat(weights, np.diff(rows.indptr))
    stencil = Stencil(rule.shape, (1,) * len(rule.shape))
    plane = np.bincount(rows.indices, entries, minlength=math.prod(rule.shape)).reshape(rule.shape)
    stencil.planes = {(0,) * len(rule.shape): plane}
    return stencil.astype(rows.dtype)


def add_values(rhs: Array, runs: Sequence[AxisRows], shape: Sequence[int], weighted: Array) -> None:
    """Add B'Wy of some points to ``rhs`` (C, K_1, ..., K_D)."""
    for _, index, value in corners(runs, shape):
        for plane, y in zip(rhs, weighted, strict=True):
            add_entries(plane, index, value * y)
