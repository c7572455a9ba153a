"""A start for conjugate gradients: the same problem on ever coarser grids, solved from the coarsest up.

What reaches across large gaps between points is found where the gaps are a few cells wide, and cheaply. Only a start is
wanted, so the data term is lumped: every node has the sum of its row as weight and what it says as value.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from kronfield.solvers.banded import Matrix
from kronfield.solvers.conjugate import ConvergenceError, conjugate_gradients
from kronfield.solvers.differences import DifferencePenalty
from kronfield.solvers.scattered import DataTerm, LocalSystem, fast_size
from kronfield.solvers.stencil import Stencil

# Axes shorter than this are not halved; grids with fewer unknowns than that are not worth a coarser one.
SHORTEST, FEWEST = 12, 2048
# A coarse grid is solved to this many times the tolerance, and no more loosely than that.
LOOSER, LOOSEST = 5.0, 0.03
# Iterations on a coarse grid, after which its solution is taken as it is: only a start is wanted.
ENOUGH = 200
# A grid is covered if no node has less than this part of the heaviest node's weight: then no coarser one is needed.
THIN = 0.01


def coarse_start(
    term: DataTerm, b: Matrix, penalty: DifferencePenalty, constant: Matrix, tolerance: float, limit: int
) -> Matrix:
    """Return a start (C, K_1, ..., K_D) for the system of ``term`` and ``penalty`` with right-hand sides ``b``."""
    shape = b.shape[1:]
    mass = np.maximum(term.apply(np.ones((1, *shape), dtype=b.dtype)), 0.0)
    if math.prod(shape) < FEWEST or not _halved(shape) or mass.min() > THIN * mass.max():
        return np.ascontiguousarray(np.broadcast_to(constant, b.shape))
    return _from_coarser(mass, b - constant * mass, penalty, min(LOOSER * tolerance, LOOSEST), limit) + constant


def _halved(shape: Sequence[int]) -> list[int]:
    return [axis for axis, n in enumerate(shape, start=1) if n >= SHORTEST]


def _from_coarser(mass: Matrix, b: Matrix, penalty: DifferencePenalty, tolerance: float, limit: int) -> Matrix:
    """Return what the solution of (diag(mass) + penalty) x = b on a grid half as fine says on this one."""
    shape = b.shape[1:]
    halved = _halved(shape)
    coarse_mass, coarse_b = mass, b
    for axis in halved:
        coarse_mass, coarse_b = restrict(coarse_mass, axis), restrict(coarse_b, axis)
    coarse_mass, coarse_b = np.ascontiguousarray(coarse_mass), np.ascontiguousarray(coarse_b)
    factor = 2.0 ** len(halved)  # fewer nodes stand for the same domain
    spacings = [h * (2 if axis in halved else 1) for axis, h in enumerate(penalty.spacings, start=1)]
    coarse = DifferencePenalty(
        coarse_b.shape[1:], spacings, penalty.first * factor, penalty.second * factor, penalty.ridge * factor
    )
    x = _solve(coarse_mass, coarse_b, coarse, tolerance, limit)
    for axis in halved:
        x = prolong(x, axis, shape[axis - 1])
    return np.ascontiguousarray(x)


def _solve(mass: Matrix, b: Matrix, penalty: DifferencePenalty, tolerance: float, limit: int) -> Matrix:
    """Return the weights that solve (diag(mass) + penalty) x = b, from a coarser grid unless there are points everywhere."""
    shape = b.shape[1:]
    if mass.min() > THIN * mass.max() or not _halved(shape):
        start = b / np.maximum(mass, THIN * mass.max() + np.finfo(b.dtype).tiny)
    else:
        start = _from_coarser(mass, b, penalty, tolerance, limit)
    # a few nodes more, without data, where that transforms faster
    sizes = tuple(map(fast_size, shape))
    more = [(0, 0), *((0, size - n) for size, n in zip(sizes, shape, strict=True))]
    padded = DifferencePenalty(sizes, penalty.spacings, penalty.first, penalty.second, penalty.ridge)
    diagonal = Stencil(sizes, (1,) * len(sizes))
    diagonal.planes = {(0,) * len(sizes): np.pad(mass, more)[0]}
    system = LocalSystem(diagonal, padded, [np.ones(1)] * len(sizes), float(mass.mean()), diagonal.diagonal, b.dtype)
    x = np.pad(start, more, mode="edge")
    with contextlib.suppress(ConvergenceError):  # a start need not be good; x is as far as the iterations came
        conjugate_gradients(system, np.pad(b, more), x, tolerance=tolerance, limit=min(limit, ENOUGH))
    return x[(slice(None), *(slice(n) for n in shape))]


def prolong(x: Matrix, axis: int, size: int) -> Matrix:
    """Return values on a grid twice as fine along ``axis``, linear in between: node i becomes node 2i."""
    coarse = np.moveaxis(x, axis, 0)
    fine = np.empty((size, *coarse.shape[1:]), dtype=x.dtype)
    even, odd = (size + 1) // 2, size // 2
    fine[0::2] = coarse[:even]
    fine[1::2] = (coarse[:odd] + coarse[1 : odd + 1]) / 2
    return np.moveaxis(fine, 0, axis)


def restrict(x: Matrix, axis: int) -> Matrix:
    """Return the transpose of `prolong` times ``x``; n nodes become n // 2 + 1."""
    fine = np.moveaxis(x, axis, 0)
    size = fine.shape[0]
    even, odd = (size + 1) // 2, size // 2
    coarse = np.zeros((size // 2 + 1, *fine.shape[1:]), dtype=x.dtype)
    coarse[:even] += fine[0::2]
    coarse[:odd] += fine[1::2] / 2
    coarse[1 : odd + 1] += fine[1::2] / 2
    return np.moveaxis(coarse, 0, axis)
