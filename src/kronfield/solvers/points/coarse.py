"""A start for conjugate gradients where points leave gaps: the same problem on a grid coarse enough to be factored.

What reaches across a large gap takes conjugate gradients very many iterations; on a coarse grid it
is found at once, and the grids in between only add detail. A start is all that is wanted, so the
data term is lumped: every node has the sum of its row as weight and what it says as value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield.solvers.points.cg import ConvergenceError, conjugate_gradients
from kronfield.solvers.points.direct import affordable, direct_solve
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import DataTerm, LocalSystem, cosines, fast_size

# Axes shorter than this are not halved.
SHORTEST = 12
# A coarse grid is solved to this many times the tolerance, and no more loosely than that.
LOOSER, LOOSEST = 2.0, 0.01
# Iterations on a coarse grid, after which its solution is taken as it is: only a start is wanted.
ENOUGH = 200
# How far local means reach, in squared distances of points.
WARMTH = 0.1
# There are gaps if a block of so many cells a side is empty.
BLOCK = 8


def row_sums(term: DataTerm, b: Array) -> Array:
    """Return the weight of every node, (1, K_1, ..., K_D): what the data term says of a constant."""
    return np.maximum(term.apply(np.ones((1, *b.shape[1:]), dtype=b.dtype)), 0.0)


def has_gaps(mass: Array) -> bool:
    """Tell whether there are places of several cells a side without any point."""
    sums = mass[0]
    for axis, n in enumerate(sums.shape):
        if n >= BLOCK:
            # what is left over goes to the last
            sums = np.add.reduceat(sums, np.arange(n // BLOCK) * BLOCK, axis=axis)
    return not sums.min() > 0


def local_means(mass: Array, b: Array) -> Array:
    """Return the weighted mean around every node: a start where there are points everywhere."""
    mean = float(mass.mean())
    # the squared distance of points, in cells
    reach = (1.0 / max(mean / float(mass.max()), 1e-3)) ** (2 / mass[0].ndim)
    # enough digits for a start
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
    """Return a start for (diag(mass) + penalty) x = b from the same on a grid half as fine, and so on down."""
    shape = b.shape[1:]
    halved = _halved(shape)
    coarse_mass, coarse_b = _restricted(mass), _restricted(b)
    factor = 2.0 ** len(halved)  # fewer nodes stand for the same domain
    spacings = [
        h * (2 if axis in halved else 1) for axis, h in enumerate(penalty.spacings, start=1)
    ]
    coarse = DifferencePenalty(
        coarse_b.shape[1:],
        spacings,
        penalty.first * factor,
        penalty.second * factor,
        penalty.ridge * factor,
    )
    x = _solve(coarse_mass, coarse_b, coarse, min(LOOSER * tolerance, LOOSEST), limit)
    for axis in halved:
        x = prolong(x, axis, shape[axis - 1])
    return np.ascontiguousarray(x)


def _halved(shape: Sequence[int]) -> list[int]:
    return [axis for axis, n in enumerate(shape, start=1) if n >= SHORTEST]


def _restricted(x: Array) -> Array:
    for axis in _halved(x.shape[1:]):
        x = restrict(x, axis)
    return np.ascontiguousarray(x)


def _solve(
    mass: Array, b: Array, penalty: DifferencePenalty, tolerance: float, limit: int
) -> Array:
    """Return the solution of (diag(mass) + penalty) x = b: exact if that is affordable, else from a coarser grid up."""
    shape = b.shape[1:]
    if affordable(shape):
        exact = direct_solve(_diagonal(mass[0]), penalty, b)
        if exact is not None:
            return exact
    start = coarse_start(mass, b, penalty, tolerance, limit) if _halved(shape) else np.zeros_like(b)
    # a few nodes more, without data, where that transforms faster
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
    # a start need not be good; x is as far as the iterations came
    with contextlib.suppress(ConvergenceError):
        conjugate_gradients(
            system, np.pad(b, more), x, tolerance=tolerance, limit=min(limit, ENOUGH)
        )
    return x[(slice(None), *(slice(n) for n in shape))]


def _diagonal(mass: Array) -> Stencil:
    stencil = Stencil(mass.shape, (1,) * mass.ndim)
    stencil.planes = {(0,) * mass.ndim: mass}
    return stencil


def prolong(x: Array, axis: int, size: int) -> Array:
    """Return values on a grid twice as fine along ``axis``, linear in between: node i becomes node 2i."""
    coarse = np.moveaxis(x, axis, 0)
    fine = np.empty((size, *coarse.shape[1:]), dtype=x.dtype)
    even, odd = (size + 1) // 2, size // 2
    fine[0::2] = coarse[:even]
    fine[1::2] = (coarse[:odd] + coarse[1 : odd + 1]) / 2
    return np.moveaxis(fine, 0, axis)


def restrict(x: Array, axis: int) -> Array:
    """Return the transpose of `prolong` times ``x``; n nodes become n // 2 + 1."""
    fine = np.moveaxis(x, axis, 0)
    size = fine.shape[0]
    even, odd = (size + 1) // 2, size // 2
    coarse = np.zeros((size // 2 + 1, *fine.shape[1:]), dtype=x.dtype)
    coarse[:even] += fine[0::2]
    coarse[:odd] += fine[1::2] / 2
    coarse[1 : odd + 1] += fine[1::2] / 2
    return np.moveaxis(coarse, 0, axis)
