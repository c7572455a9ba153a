"""First estimates for conjugate gradients: local means, or a coarser grid if points leave gaps.

Conjugate gradients need many iterations to carry values across a large gap. On a grid that is
coarse enough the system can be factored, and the finer grids add only detail (nested iteration;
Kronsjö and Dahlquist, 1972). The result is only a first estimate, so the data term is lumped: the
sum of each row of B'WB becomes the weight of its node, and all other entries are dropped.
"""

from __future__ import annotations

import contextlib

import numpy as np

from kronfield._core.arrays import Array
from kronfield.solvers.points.cg import ConvergenceError, conjugate_gradients
from kronfield.solvers.points.direct import affordable, direct_solve
from kronfield.solvers.points.multilevel import halved, prolong, restrict
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import DataTerm, LocalSystem, cosines, fast_size

# The tolerance on a coarse grid: LOOSER times that of the finer grid, but at most LOOSEST.
LOOSER, LOOSEST = 2.0, 0.01
# The most iterations on a coarse grid. Its result is used even if it has not converged, since it is
# only a first estimate.
ENOUGH = 200
# The time of the heat kernel that computes local means, in squared distances between points.
WARMTH = 0.1
# Points leave a gap if an aligned block of BLOCK cells per axis is empty.
BLOCK = 8


def row_sums(term: DataTerm, b: Array) -> Array:
    """Return the sum of each row of B'WB, (1, K_1, ..., K_D): its product with ones."""
    return np.maximum(term.apply(np.ones((1, *b.shape[1:]), dtype=b.dtype)), 0.0)


def has_gaps(mass: Array) -> bool:
    """Return whether a block of `BLOCK` cells per axis has no point; ``mass`` is `row_sums`."""
    sums = mass[0]
    for axis, n in enumerate(sums.shape):
        if n >= BLOCK:
            # the last block also contains the cells that do not fill a whole block
            sums = np.add.reduceat(sums, np.arange(n // BLOCK) * BLOCK, axis=axis)
    return not sums.min() > 0


def local_means(mass: Array, b: Array) -> Array:
    """Return weighted local means: a first estimate where points leave no gaps."""
    mean = float(mass.mean())
    # the squared distance between points, in cells
    reach = (1.0 / max(mean / float(mass.max()), 1e-3)) ** (2 / mass[0].ndim)
    # float32 has enough digits for a first estimate
    both = cosines(np.concatenate([mass, b]).astype(np.float32), inverse=False)
    for axis, n in enumerate(mass.shape[1:], start=1):  # the heat kernel is a product over the axes
        heat = np.exp(-WARMTH * reach * (2.0 - 2.0 * np.cos(np.pi * np.arange(n) / n))).astype(
            np.float32
        )
        both *= heat.reshape([-1 if i == axis else 1 for i in range(mass.ndim)])
    both = cosines(both, inverse=True)
    both[1:] /= np.maximum(both[:1], np.float32(1e-3 * mean))
    return np.ascontiguousarray(both[1:]).astype(b.dtype, copy=False)


def coarse_start(
    mass: Array, b: Array, penalty: DifferencePenalty, tolerance: float, limit: int
) -> Array:
    """Return an estimate of the solution of (diag(mass) + penalty) x = b from coarser grids."""
    shape = b.shape[1:]
    axes = halved(shape)
    coarse_mass, coarse_b = _restricted(mass), _restricted(b)
    factor = 2.0 ** len(axes)  # each coarse node stands for this many fine nodes
    spacings = [h * (2 if axis in axes else 1) for axis, h in enumerate(penalty.spacings, start=1)]
    coarse = DifferencePenalty(
        coarse_b.shape[1:],
        spacings,
        penalty.first * factor,
        penalty.second * factor,
        penalty.ridge * factor,
    )
    x = _solve(coarse_mass, coarse_b, coarse, min(LOOSER * tolerance, LOOSEST), limit)
    for axis in axes:
        x = prolong(x, axis, shape[axis - 1])
    return np.ascontiguousarray(x)


def _restricted(x: Array) -> Array:
    for axis in halved(x.shape[1:]):
        x = restrict(x, axis)
    return np.ascontiguousarray(x)


def _solve(
    mass: Array, b: Array, penalty: DifferencePenalty, tolerance: float, limit: int
) -> Array:
    """Return the solution of (diag(mass) + penalty) x = b.

    It is exact if a factorisation is affordable. Otherwise conjugate gradients start from the
    solution on a coarser grid.
    """
    shape = b.shape[1:]
    if affordable(shape):
        exact = direct_solve(_diagonal(mass[0]), penalty, b)
        if exact is not None:
            return exact
    start = coarse_start(mass, b, penalty, tolerance, limit) if halved(shape) else np.zeros_like(b)
    # pad with nodes without data to lengths with a fast cosine transform
    sizes = tuple(map(fast_size, shape))
    more = [(0, 0), *((0, size - n) for size, n in zip(sizes, shape, strict=True))]
    padded = DifferencePenalty(
        sizes, penalty.spacings, penalty.first, penalty.second, penalty.ridge
    )
    diagonal = _diagonal(np.pad(mass, more)[0])
    system = LocalSystem(
        diagonal, padded, [np.ones(1)] * len(sizes), float(mass.mean()), diagonal.diagonal, b.dtype
    )
    x = np.pad(start, more, mode="edge")
    # if they do not converge, x is the last estimate, which is good enough to start from
    with contextlib.suppress(ConvergenceError):
        conjugate_gradients(
            system, np.pad(b, more), x, tolerance=tolerance, limit=min(limit, ENOUGH)
        )
    return x[(slice(None), *(slice(n) for n in shape))]


def _diagonal(mass: Array) -> Stencil:
    stencil = Stencil(mass.shape, (1,) * mass.ndim)
    stencil.planes = {(0,) * mass.ndim: mass}
    return stencil
