"""Sparse rows: the features within reach of a point, as one short run of indices per axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield.embedders import (
    BSpline,
    Embedder,
    Gaussian,
    Impulse,
    LocalEmbedder,
    TensionSpline,
    Triangle,
    Wrapped,
)

# A feature is left out where it is below this fraction of its peak. In float64 it changes no digit.
NEGLIGIBLE = 1e-17


def _fades(embedder: Embedder, order: int) -> bool:
    """Return whether the derivative of ``order`` is zero at the rim of the support.

    The slope of a hat jumps there, so it is not.
    """
    return isinstance(embedder, Gaussian | TensionSpline) or (
        isinstance(embedder, Triangle) and order == 0
    )


@record
class AxisRows:
    """The rows of points on one axis: values (T, P) of features ``first`` to ``first + T - 1``.

    On a circle of ``wrap`` features, T <= ``wrap`` and numbers count modulo ``wrap``. On a line
    ``wrap`` is 0.
    """

    first: Array
    values: Array
    wrap: int = 0

    @property
    def taps(self) -> int:
        """The number T of features of each point."""
        return len(self.values)

    def part(self, some: slice) -> AxisRows:
        """Return the rows of some points."""
        return replace(self, first=self.first[some], values=self.values[:, some])

    def index(self, tap: int) -> Array:
        """Return the feature of each point (P,) whose value is ``values[tap]``."""
        return (self.first + tap) % self.wrap if self.wrap else self.first + tap


def taps_in_reach(embedder: Embedder, tolerance: float = NEGLIGIBLE, order: int = 0) -> int | None:
    """Return how many features can exceed ``tolerance`` of their peak at one position.

    None means all of them.
    """
    if isinstance(embedder, BSpline):
        return embedder.taps(order)
    if isinstance(embedder, Wrapped):
        taps = taps_in_reach(embedder.unrolled, tolerance, order)
        return None if taps is None else min(taps, embedder.size)
    if not isinstance(embedder, LocalEmbedder):
        return None
    if isinstance(embedder, Impulse):
        return 1
    reach = embedder.reach(tolerance)
    if not math.isfinite(reach):
        return None
    # at the rim of its support a feature counts if it ends in a jump, not if it fades to zero
    ends = 0 if _fades(embedder, order) else 1
    return min(embedder.size, max(1, math.ceil(2 * reach / embedder.spacing - 1e-9) + ends))


def axis_run(
    embedder: Embedder, x: Array, order: int = 0, tolerance: float = NEGLIGIBLE
) -> AxisRows:
    """Return the features within reach of each position ``x``, given in the embedder's units."""
    if isinstance(embedder, BSpline):
        return AxisRows(*embedder.run(x, order))
    T = taps_in_reach(embedder, tolerance, order)
    if isinstance(embedder, Wrapped) and embedder.size == T:  # all, some of them more than once
        values = np.asarray(embedder.derivative(x, order)).T
        return AxisRows(np.zeros(len(x), dtype=np.int64), values, embedder.size)
    if isinstance(embedder, Wrapped):
        turn = np.floor(x - embedder.start)
        run = axis_run(embedder.unrolled, x - turn, order, tolerance)
        # numbers continue from one turn to the next, so that neighbours have neighbouring features
        first = run.first - embedder.offset + turn.astype(np.int64) * embedder.size
        return AxisRows(first, run.values, embedder.size)
    if T is None or not isinstance(embedder, LocalEmbedder):
        values = np.asarray(embedder.derivative(x, order)).T
        return AxisRows(np.zeros(len(x), dtype=np.int64), values)
    if isinstance(embedder, Impulse):
        return AxisRows(np.asarray(embedder.nearest(np, x)).astype(np.int64), np.ones((1, len(x))))
    padding, per_unit = int(embedder.padding), 1.0 / embedder.spacing
    low = (x - embedder.reach(tolerance)) * per_unit
    # the first centre at or beyond x - reach; strictly beyond for a feature that is zero there
    start = (
        np.floor(low + 1e-9) + (1 + padding)
        if _fades(embedder, order)
        else np.ceil(low - 1e-9) + padding
    )
    first = np.clip(np.nan_to_num(start), 0, embedder.size - T).astype(np.int64)
    u = (first - padding) * embedder.spacing - x + (np.arange(T) * embedder.spacing)[:, None]
    values = np.asarray(embedder.psi(np, u, order))
    return AxisRows(first, -values if order % 2 else values)


def axis_runs(
    embedders: Sequence[Embedder],
    units: Sequence[Array],
    orders: Sequence[int] | None = None,
    tolerance: float = NEGLIGIBLE,
) -> list[AxisRows]:
    """Return `axis_run` of every axis."""
    orders = orders or [0] * len(units)
    return [
        axis_run(emb, x, order, tolerance)
        for emb, x, order in zip(embedders, units, orders, strict=True)
    ]


def corners(
    runs: Sequence[AxisRows], shape: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yield (offsets, flat indices (P,), values (P,)) for every choice of one feature per axis."""
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    wraps = any(run.wrap for run in runs)
    base: Array = runs[0].first * steps[0]
    for run, step in zip(runs[1:], steps[1:], strict=True):
        base += run.first * step
    parts = (
        [
            [run.index(i) * step for i in range(run.taps)]
            for run, step in zip(runs, steps, strict=True)
        ]
        if wraps
        else []
    )
    for choice in itertools.product(*(range(run.taps) for run in runs)):
        offset = sum(i * step for i, step in zip(choice, steps, strict=True))
        value = runs[0].values[choice[0]]
        for run, i in zip(runs[1:], choice[1:], strict=True):
            value = value * run.values[i]
        if wraps:
            each = [part[i] for part, i in zip(parts, choice, strict=True)]
            yield choice, np.sum(each, axis=0), value
        else:
            yield choice, base + offset, value


def add_entries(plane: Array, index: Array, entries: Array) -> None:
    """Add entries (P,) to a contiguous plane, at flat indices that may repeat.

    The time is proportional to the number of entries, not to the size of the plane.
    """
    flat = plane.reshape(-1)
    if not np.shares_memory(flat, plane):
        raise ValueError("the plane must be contiguous")
    if len(index) < plane.size:
        np.add.at(flat, index, entries)
    else:  # as fast, with less rounding: the new entries are summed before they are added
        flat += np.bincount(index, entries, minlength=plane.size)


def sparse_rows(runs: Sequence[AxisRows], shape: Sequence[int], dtype: Any) -> Any:
    """Return the rows of the encoding as a SciPy sparse array (P, K_1 ... K_D) without zeros."""
    import scipy.sparse

    P, n = len(runs[0].first), math.prod(shape)
    per_row = math.prod(run.taps for run in runs)
    if P * per_row > 2**31 - 1:
        raise problem(
            "points",
            f"{P} points with {per_row} features each",
            "at most 2^31 entries",
            "Stream: use Statistics.",
        )
    # one dtype for both index arrays: SciPy converts both to int64 if one is int64
    kind = np.int32 if n < 2**31 else np.int64
    indices, values = np.empty((P, per_row), dtype=kind), np.empty((P, per_row), dtype=dtype)
    for k, (_, index, value) in enumerate(corners(runs, shape)):
        indices[:, k], values[:, k] = index, value
    rows = scipy.sparse.csr_array(
        (values.ravel(), indices.ravel(), np.arange(0, (P + 1) * per_row, per_row, dtype=kind)),
        (P, n),
    )
    rows.eliminate_zeros()
    return rows
