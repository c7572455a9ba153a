"""A preconditioner from coarser grids, for weak penalties on nodes of which few have data.

Where the penalty is weak, nodes with data hardly move, and roughness alone decides between them.
Conjugate gradients with the diagonal as preconditioner then need iterations in proportion to the
square of the distance between nodes with data. The preconditioner adds the corrections of all
coarser grids, each scaled by the diagonal of its own system (Bramble, Pasciak and Xu, 1990). Hats
of the coarser grids are multiplied by a factor that is near 0 where there are data and 1 elsewhere,
so that they correct what is between the data and leave the nodes with data alone (truncated bases:
Kornhuber, 1994). The number of iterations then grows little with the distances.

`prolong` and `restrict` pass values from a grid to the next one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.slabs import multiplied
from kronfield.solvers.points.penalty import DifferencePenalty

# Axes shorter than this are not halved.
SHORTEST = 12


@record(eq=False)
class Multilevel:
    """The product with the preconditioner: D^-1 r plus the corrections of coarser grids.

    Attributes
    ----------
    inverse : array (K_1, ..., K_D)
        One over the diagonal of the system.
    free : array (K_1, ..., K_D)
        The factor of coarse hats: the share of the penalty in the diagonal.
    levels : sequence of arrays
        One over the diagonals on the coarser grids, each with half as many cells.
    """

    inverse: Array
    free: Array
    levels: Sequence[Array]

    @classmethod
    def of(
        cls, penalty: DifferencePenalty, diagonal: Array, stiffness: float, inverse: Array
    ) -> Multilevel | None:
        """Return the preconditioner; None without a penalty or on short axes.

        Parameters
        ----------
        penalty : DifferencePenalty
            The penalty of the system; its axes have ends.
        diagonal : array (K_1, ..., K_D)
            The diagonal of the data term.
        stiffness : float
            The mean diagonal of the penalty.
        inverse : array (K_1, ..., K_D)
            One over the diagonal of both, in the dtype of the unknowns.
        """
        if not stiffness > 0:
            return None
        free = stiffness * np.asarray(inverse, dtype=np.float64)
        # of truncated hats: what data and roughness of the truncation contribute at a node, per
        # node, m s / (m + s) for the diagonals m of the data and s of the penalty
        mass = np.maximum(diagonal, 0.0) * free
        levels, shape, scale = list[Array](), mass.shape, [1] * mass.ndim
        mass, least = mass[None], 1e6 * float(np.finfo(inverse.dtype).tiny)
        while True:
            axes = halved(shape)
            if not axes:
                break
            for axis in axes:
                mass = restrict(mass, axis)
                scale[axis - 1] *= 2
            shape = mass.shape[1:]
            # a hat's square has less weight than the hat
            squares = math.prod(_squares(s)[0] / s for s in scale)
            total = mass[0] * squares + _energy(penalty, scale)
            # the inverse of a penalty that is nearly 0 must not overflow
            levels.append((1.0 / np.maximum(total, least)).astype(inverse.dtype))
        return cls(inverse, free.astype(inverse.dtype), levels) if levels else None

    def __call__(self, r: Array, out: Array | None = None) -> Array:
        """Return the preconditioned residual of planes (C, K_1, ..., K_D)."""
        residual, corrections, shapes = r * self.free, list[Array](), list[tuple[int, ...]]()
        for inverse in self.levels:
            shapes.append(residual.shape[1:])
            for axis in halved(residual.shape[1:]):
                residual = restrict(residual, axis)
            corrections.append(residual * inverse)
        total = corrections.pop()
        while True:
            shape = shapes.pop()
            for axis in halved(shape):
                total = prolong(total, axis, shape[axis - 1])
            if not corrections:
                break
            total += corrections.pop()
        total *= self.free
        z = multiplied(r, self.inverse, out)
        z += total
        return z


def halved(shape: Sequence[int]) -> list[int]:
    """Return the axes of planes (C, K_1, ..., K_D) of which a coarser grid has half the nodes."""
    return [axis for axis, n in enumerate(shape, start=1) if n >= SHORTEST]


def prolong(x: Array, axis: int, size: int) -> Array:
    """Return ``x`` on a grid twice as fine along ``axis``, interpolated linearly.

    Node i becomes node 2i.
    """
    coarse = np.moveaxis(x, axis, 0)
    even, odd = (size + 1) // 2, size // 2
    found = np.empty((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype=x.dtype)
    fine = np.moveaxis(found, axis, 0)
    fine[0::2] = coarse[:even]
    fine[1::2] = (coarse[:odd] + coarse[1 : odd + 1]) / 2
    return found


def restrict(x: Array, axis: int) -> Array:
    """Return the transpose of `prolong` times ``x``; n nodes become n // 2 + 1."""
    fine = np.moveaxis(x, axis, 0)
    size = fine.shape[0]
    even, odd = (size + 1) // 2, size // 2
    found = np.zeros((*x.shape[:axis], size // 2 + 1, *x.shape[axis + 1 :]), dtype=x.dtype)
    coarse = np.moveaxis(found, axis, 0)
    coarse[:even] += fine[0::2]
    half = fine[1::2] / 2
    coarse[:odd] += half
    coarse[1 : odd + 1] += half
    return found


@functools.cache
def _squares(s: int) -> tuple[float, float, float]:
    """Return the sums of squares of a hat of ``s`` nodes to either side, and of its differences.

    The values are 1 - |k| / s; the first differences 1 / s, 2 s of them; the second ones 1 / s at
    both feet and -2 / s at the top.
    """
    return (2 * s * s + 1) / (3 * s), 2 / s, 6 / s**2


def _energy(penalty: DifferencePenalty, scale: Sequence[int]) -> float:
    """Return the penalty of the product of hats of ``scale`` nodes to either side of each axis."""
    return math.fsum(
        weight * math.prod(_squares(s)[order] for s, order in zip(scale, orders, strict=True))
        for weight, orders in penalty.factors()
        if weight
    )
