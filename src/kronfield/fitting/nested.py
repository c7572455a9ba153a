"""A first estimate for conjugate gradients from coarser grids of the same features.

With a weak penalty, conjugate gradients need many iterations: where a cell has no point, only the
penalty determines its weight. A grid with fewer features than points has no empty cells, and its
solution is close to that of the finer grid (nested iteration; Kronsjö and Dahlquist, 1972).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.encoding import Kronecker
from kronfield.fitting.point_grids import Axis, grid_of, without_spare_nodes
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import NormalEquations, Penalty
from kronfield.solvers.points.rows import axis_runs, sparse_rows
from kronfield.solvers.points.strategies import AT_ONCE, ConjugateGradients

# Positions per fine cell at which a coarse solution is evaluated; enough for cubic pieces.
PER_CELL = 2
# The weight of second differences, as a fraction of the largest matrix entry: they continue the
# weights past the last feature that is not zero at any position.
BEYOND = 1e-9
# The most iterations on a coarser grid: the estimate need not be exact.
ENOUGH = 200


@record
class ChosenGrid:
    """Features of one kind on a grid over a box, which can be made coarser."""

    make: Axis | Sequence[Axis]
    box: Sequence[tuple[float, float]]
    counts: Sequence[int]

    def features(self) -> tuple[Kronecker, tuple[Frame, ...]]:
        """Return the encoding and the frames."""
        return grid_of(self.make, self.box, self.counts)

    def coarser(self) -> ChosenGrid:
        """Return the grid with about half as many cells on each axis."""
        halves = [without_spare_nodes(math.ceil(n / 2)) for n in self.counts]
        return ChosenGrid(self.make, self.box, halves)


def nested_start(
    grid: ChosenGrid,
    equations: NormalEquations,
    penalty: Penalty,
    points: Array,
    values: Array,
    weights: Array | None,
    *,
    tolerance: float,
) -> Array | None:
    """Return an estimate of the weights (C, K_1, ..., K_D) of a grid; None if none is needed.

    ``equations`` are those of the grid. An estimate is needed if they are solved by conjugate
    gradients with the diagonal as preconditioner, which depends on ``penalty``.
    """
    strategy = equations.strategy(penalty).strategy
    if not isinstance(strategy, ConjugateGradients) or strategy.in_cosines or strategy.on_complete:
        return None
    coarse = grid.coarser()
    if math.prod(coarse.counts) < AT_ONCE:
        return None
    own = assemble(RowRule.choose(*coarse.features(), None), points, values, weights)
    start = nested_start(coarse, own, penalty, points, values, weights, tolerance=tolerance)
    try:
        found = own.solve(penalty, tolerance=tolerance, limit=ENOUGH, start=start).weights
    except ConvergenceError as error:
        if error.unknowns is None:
            return None
        found = error.unknowns
    return prolonged(found, own, equations)


def prolonged(weights: Array, coarse: NormalEquations, fine: NormalEquations) -> Array:
    """Return the weights (C, K_1, ..., K_D) on a finer grid of nearly the same function.

    They are the least squares fit on each axis to the function at a few positions in each cell.
    """
    import scipy.sparse
    import scipy.sparse.linalg

    result: Any = weights
    for axis, (few, many) in enumerate(zip(coarse.frames, fine.frames, strict=True), start=1):
        from_emb, to_emb = coarse.encoding.embedders[axis - 1], fine.encoding.embedders[axis - 1]
        x = np.linspace(many.low, many.high, PER_CELL * to_emb.size + 1)
        read, write = (
            sparse_rows(axis_runs([emb], [frame.unit(x)]), (emb.size,), np.float64)
            for emb, frame in ((from_emb, few), (to_emb, many))
        )
        matrix = (write.T @ write).tocsc()
        n = to_emb.size
        bend = scipy.sparse.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(n - 2, n))
        matrix = matrix + BEYOND * matrix.max() * (bend.T @ bend)
        flat = np.moveaxis(result, axis, 0)
        shape = flat.shape[1:]
        seen = write.T @ (read @ flat.reshape(len(flat), -1).astype(np.float64))
        solved = scipy.sparse.linalg.splu(matrix.tocsc()).solve(seen)
        result = np.moveaxis(solved.reshape(to_emb.size, *shape), 0, axis)
    return np.ascontiguousarray(result).astype(weights.dtype)
