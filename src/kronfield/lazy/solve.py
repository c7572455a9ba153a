"""What a chunk computes: the weights in a box of a grid, from the samples in and around it.

A fit without a penalty is a matrix for each axis, the inverse of its embedding, whose entries fall
off fast. So the weights of a chunk follow from its samples and a few more on either side, its halo.
They are those of the whole grid to rounding, since the same rows of the same matrices are used.
Cubics with slopes from the data are local too: see `Refinement` and `CubicPieces`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.fitting.pieces import CubicPieces
from kronfield.fitting.slopes import Refinement
from kronfield.solvers.grid.banded import BlockBanded, Operator, apply
from kronfield.solvers.grid.banded_lu import BandedSolve, SolveWithEnds

# A window of a banded matrix is inverted in place of the whole where the entries that couple both
# have fallen below this fraction of the largest: less than rounding, of float64 and of float32.
FALLEN, FALLEN_SINGLE = 1e-17, 1e-9
# The width of the rim of a window is doubled from the first until entries have fallen. Wider rims
# than the widest are not read: the axis is then solved as a whole.
FIRST_MARGIN, WIDEST_MARGIN = 8, 512
# The samples on either side of a piece of a cubic that its slopes depend on.
PIECE_REACH = 3


class AxisSolve(Protocol):
    """The map from samples to weights along one axis, in parts."""

    @property
    def is_local(self) -> bool:
        """Whether a weight depends on the samples near it alone."""

    def samples(self, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""

    def part(self, first: int, stop: int) -> Operator | Array:
        """Return the matrix from these samples to these weights."""


@record(eq=False)
class Rows:
    """Rows of a matrix that is stored in blocks."""

    operator: BlockBanded
    is_local = True

    def samples(self, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""
        return self.operator.rows(first, stop).used_columns

    def part(self, first: int, stop: int) -> BlockBanded:
        """Return the matrix from these samples to these weights."""
        rows = self.operator.rows(first, stop)
        return rows.columns(*rows.used_columns)


@record(eq=False)
class Window:
    """The inverse of a window of a banded matrix, without the rows in its rim.

    Conditions at the ends of the axis are rows of right-hand side 0 before and after the samples.
    """

    inverse: BandedSolve
    before: int
    after: int
    rows: slice

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of a tensor."""
        more = [(0, 0)] * tensor.ndim
        more[axis] = (self.before, self.after)
        solved = self.inverse.apply(np.pad(tensor, more) if any(more[axis]) else tensor, axis)
        return solved[(slice(None),) * axis + (self.rows,)]


@record(eq=False)
class Windows:
    """The inverse of a banded matrix, in windows that are factored where they are needed.

    Attributes
    ----------
    inverse : BandedSolve
        The inverse of the whole matrix.
    ends : int
        The number of conditions at either end of the axis.
    margin : int
        The width of the rim of a window, whose weights are not used.
    """

    inverse: BandedSolve
    ends: int
    margin: int
    is_local = True

    @classmethod
    def of(cls, operator: BandedSolve | SolveWithEnds, edges: Sequence[int]) -> Windows | None:
        """Return the inverse in windows between ``edges``; None if it does not fall off there."""
        inverse, ends = (
            (operator.inner, operator.count)
            if isinstance(operator, SolveWithEnds)
            else (operator, 0)
        )
        if inverse.is_identity:
            return cls(inverse, ends, 0)
        margin = max(FIRST_MARGIN, 2 * (inverse.lower + inverse.upper))
        while margin <= WIDEST_MARGIN:
            if 2 * margin >= inverse.shape[0]:  # a short axis, in one window
                return cls(inverse, ends, inverse.shape[0])
            if all(_has_fallen(inverse, edge, margin) for edge in edges[1:-1]):
                return cls(inverse, ends, margin)
            margin *= 2
        return None

    def _window(self, first: int, stop: int) -> tuple[int, int]:
        return max(0, first - self.margin), min(self.inverse.shape[0], stop + self.margin)

    def samples(self, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""
        low, high = self._window(first, stop)
        N = self.inverse.shape[0] - 2 * self.ends
        return max(low - self.ends, 0), min(high - self.ends, N)

    def part(self, first: int, stop: int) -> Window:
        """Return the matrix from these samples to these weights."""
        low, high = self._window(first, stop)
        start, end = self.samples(first, stop)
        inverse = self.inverse.window(low, high)
        assert inverse is not None  # the whole matrix has an inverse, and so has its middle
        before, after = start + self.ends - low, high - self.ends - end
        return Window(inverse, before, after, slice(first - low, stop - low))


def _has_fallen(inverse: BandedSolve, edge: int, margin: int) -> bool:
    """Return whether a window whose rim begins ``margin`` before or after an edge is wide enough.

    What is left out beyond the rim enters by the last rows of the window: column j of the inverse
    says how far a change of row j reaches.
    """
    low, high = max(0, edge - 2 * margin), min(inverse.shape[0], edge + 2 * margin)
    window = inverse.window(low, high)
    if window is None:
        return False
    inner = margin - inverse.lower - inverse.upper
    columns = [at - low for at in (edge - inner, edge + inner) if low <= at < high]
    units = np.zeros((len(columns), high - low))
    units[np.arange(len(columns)), columns] = 1.0
    reached = np.abs(window.astype(np.float64).apply(units, 1))
    limit = FALLEN_SINGLE if inverse.dtype == np.float32 else FALLEN
    for column, one in zip(columns, reached, strict=True):
        beyond = one[edge - low :] if column < edge - low else one[: edge - low]
        if beyond.size and not beyond.max() <= limit * one.max():
            return False
    return True


@record(eq=False)
class Whole:
    """A matrix that every weight needs all samples for: the axis must be one chunk."""

    operator: Any
    is_local = False

    def samples(self, first: int, stop: int) -> tuple[int, int]:
        """Return the range of all samples."""
        del first, stop
        return 0, int(self.operator.shape[1])

    def part(self, first: int, stop: int) -> Operator | Array:
        """Return the whole matrix; there is one chunk of weights."""
        assert (first, stop) == (0, self.operator.shape[0])
        whole: Operator | Array = self.operator
        return whole


def axis_solve(operator: Any, edges: Sequence[int]) -> AxisSolve:
    """Return the inverse of an axis in parts, for chunks of weights between ``edges``."""
    if isinstance(operator, BlockBanded):
        return Rows(operator)
    if isinstance(operator, BandedSolve | SolveWithEnds):
        windows = Windows.of(operator, edges)
        if windows is not None:
            return windows
    return Whole(operator)


class Solve(Protocol):
    """The map from planar samples (C, ...) around a box of weights to these weights."""

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""

    def is_local(self, axis: int) -> bool:
        """Return whether a weight depends on the samples near it alone."""

    def __call__(self, values: Array, box: Sequence[tuple[int, int]]) -> Array:
        """Return the weights in a box from the samples that they depend on."""


@record(eq=False)
class GridSolve:
    """Weights of splines, Gaussians and the like; slopes from the data fill a finer lattice first.

    Attributes
    ----------
    axes : tuple of AxisSolve
        The map of each axis, from samples or from nodes of the finer lattice.
    lengths : tuple of int
        The number of samples on each axis.
    finer : Refinement or None
        The finer lattice.
    """

    axes: tuple[AxisSolve, ...]
    lengths: tuple[int, ...]
    finer: Refinement | None = None

    def is_local(self, axis: int) -> bool:
        """Return whether a weight depends on the samples near it alone."""
        return self.axes[axis].is_local

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""
        low, high = self.axes[axis].samples(first, stop)
        if self.finer is None or not self.finer.finer[axis]:
            return low, high
        reach = self.finer.reach  # node i lies at sample (i - 1)/2
        return max((low - 1) // 2 - reach, 0), min((high - 1) // 2 + 1 + reach, self.lengths[axis])

    def __call__(self, values: Array, box: Sequence[tuple[int, int]]) -> Array:
        """Return the weights in a box from the samples that they depend on."""
        if self.finer is not None:
            values = self.finer(values)[self._nodes(box)]
        for axis, (one, side) in enumerate(zip(self.axes, box, strict=True)):
            values = apply(one.part(*side), values, axis + 1)
        return values

    def _nodes(self, box: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
        """Return the nodes that the weights depend on, of those filled from their samples."""
        assert self.finer is not None
        parts = [slice(None)]
        for axis, (one, side, more) in enumerate(
            zip(self.axes, box, self.finer.finer, strict=True)
        ):
            low, high = one.samples(*side)
            start = 2 * self.samples(axis, *side)[0]
            parts.append(slice(low - start, high - start) if more else slice(None))
        return tuple(parts)


@record(eq=False)
class PieceSolve:
    """Weights of cubic pieces with slopes from the data, on axes of which some are uneven."""

    pieces: CubicPieces

    def is_local(self, axis: int) -> bool:
        """Return whether a weight depends on the samples near it alone."""
        return self.pieces.finer[axis]

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that weights ``first`` to ``stop`` depend on."""
        n = len(self.pieces.axes[axis])
        if not self.pieces.finer[axis]:
            return 0, n
        # weights 2 i and 2 i + 1 belong to sample i - 1
        return max(first // 2 - 1 - PIECE_REACH, 0), min((stop + 1) // 2 + PIECE_REACH, n)

    def __call__(self, values: Array, box: Sequence[tuple[int, int]]) -> Array:
        """Return the weights in a box from the samples that they depend on."""
        axes, kept = [], [slice(None)]
        for axis, (x, more) in enumerate(zip(self.pieces.axes, self.pieces.finer, strict=True)):
            low, high = self.samples(axis, *box[axis])
            axes.append(x[low:high])
            first, stop = box[axis]
            kept.append(slice(first - 2 * low, stop - 2 * low) if more else slice(None))
        found = replace(self.pieces, axes=tuple(axes))(values)
        return found[tuple(kept)]
