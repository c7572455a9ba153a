"""The roughness of weights on a grid: the squares of their differences (Eilers and Marx, 1996).

Let L be the Laplacian of the weights with free ends, whose eigenvectors are cosines. The penalty is
first L + second L^2, minus the part of L^2 that penalises the slopes at the ends. Straight lines
then have no second-order penalty. This equals the sum of squares of all first and second
differences, including mixed ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.slabs import each_slab


class DifferencePenalty:
    """ridge |w|^2 + first |grad w|^2 + second |second derivatives of w|^2, summed over the grid.

    Parameters
    ----------
    shape : sequence of int
        The shape of the grid of weights.
    spacings : sequence of float
        The distance between neighbours on each axis.
    first, second, ridge : float
        The weights of the three terms.
    wraps : sequence of bool, optional
        Whether the last node of each axis is a neighbour of the first. Such an axis has no ends,
        and the eigenvectors of L are sines and cosines of whole periods.
    """

    def __init__(
        self,
        shape: Sequence[int],
        spacings: Sequence[float],
        first: float = 0.0,
        second: float = 0.0,
        ridge: float = 0.0,
        wraps: Sequence[bool] | None = None,
    ) -> None:
        self.shape, self.spacings = tuple(shape), tuple(spacings)
        self.wraps = (False,) * len(self.shape) if wraps is None else tuple(wraps)
        self.first, self.second, self.ridge = first, second, ridge

    @property
    def symbol(self) -> Array:
        """The eigenvalue of each cosine, in the shape of the grid, before `subtract_ends`."""
        total: Any = 0.0
        for axis, (n, h) in enumerate(zip(self.shape, self.spacings, strict=True)):
            turn = 2 * np.pi if self.wraps[axis] else np.pi
            frequency = (2.0 - 2.0 * np.cos(turn * np.arange(n) / n)) / h**2
            total = total + frequency.reshape(
                [-1 if i == axis else 1 for i in range(len(self.shape))]
            )
        return self.ridge + self.first * total + self.second * total**2

    def subtract_ends(self, out: Array, tensor: Array) -> None:
        """Subtract from ``out`` the penalty of L^2 on the slopes of ``tensor`` at its ends."""
        if not self.second:
            return
        for axis, (n, h) in enumerate(zip(self.shape, self.spacings, strict=True), start=1):
            if n < 2 or self.wraps[axis - 1]:
                continue
            # L^2 = D'D + d d' for the second differences D and the first difference d at either end
            scale, before = out.dtype.type(self.second / h**4), (slice(None),) * axis
            for outer, inner in ((0, 1), (-1, -2)):
                last: Any = (*before, outer)
                next_to_last: Any = (*before, inner)
                slope = scale * (tensor[next_to_last] - tensor[last])
                out[next_to_last] -= slope
                out[last] += slope

    def add_to(self, out: Array, tensor: Array, diagonal: Array | None = None) -> None:
        """Add the product with ``tensor`` (C, K_1, ..., K_D) to ``out``, in slabs.

        With a ``diagonal`` (K_1, ..., K_D), ``out`` is first overwritten with the product of the
        diagonal and ``tensor``.

        The product is L (first + second L) x. A slab of rows fits the cache. L couples neighbouring
        rows, and L^2 rows at distance 2. Each slab is therefore computed with two more rows on
        either side, which are dropped.
        """
        if self.wraps[0]:  # the first and last rows are neighbours: do not use slabs
            if diagonal is not None:
                np.multiply(tensor, diagonal, out=out)
            out += self.apply(tensor)
            return
        rows = self.shape[0]

        def work(plane: Array, result: Array, start: int, stop: int) -> None:
            low, high = max(start - 2, 0), min(stop + 2, rows)
            slab = plane[low:high]
            if diagonal is not None:
                np.multiply(plane[start:stop], diagonal[start:stop], out=result[start:stop])
            # with L = M / h^2: L (first + second L) = M (first h^2 / second + M) second / h^4, or
            # M first / h^2 if second is 0
            square = self.spacings[0] ** 2
            inner = slab * slab.dtype.type(self.second / square**2 or self.first / square)
            if self.second:
                inner = self._laplacian(inner, self.first * square / self.second)
            result[start:stop] += self._laplacian(inner, 0.0)[start - low : stop - low]
            if self.ridge:
                result[start:stop] += plane[start:stop] * plane.dtype.type(self.ridge)

        for plane, result in zip(tensor, out, strict=True):
            each_slab(functools.partial(work, plane, result), rows, math.prod(self.shape[1:]))
        self.subtract_ends(out, tensor)

    def _laplacian(self, slab: Array, plus: float) -> Array:
        """Return (h^2 L + plus) slab, h the first spacing: L is minus the second differences."""
        weights = [slab.dtype.type((self.spacings[0] / h) ** 2) for h in self.spacings]
        out = slab * slab.dtype.type(plus + 2.0 * float(sum(weights)))
        for axis, weight in enumerate(weights):
            neighbour = slab if weight == 1 else slab * weight
            before = (slice(None),) * axis
            first, last = (*before, slice(None, 1)), (*before, slice(-1, None))
            low, high = (*before, slice(None, -1)), (*before, slice(1, None))
            out[low] -= neighbour[high]
            out[high] -= neighbour[low]
            if self.wraps[axis]:
                out[first] -= neighbour[last]
                out[last] -= neighbour[first]
                continue
            out[first] -= neighbour[first]  # the ends have only one neighbour
            out[last] -= neighbour[last]
        return out

    def factors(self) -> list[tuple[float, tuple[int, ...]]]:
        """Return (weight, order of the difference on each axis) of each square in the penalty."""
        D, h = len(self.shape), self.spacings
        terms: list[tuple[float, tuple[int, ...]]] = [(self.ridge, (0,) * D)]
        for i in range(D):
            along = tuple(int(a == i) for a in range(D))
            terms.append((self.first / h[i] ** 2, along))
            terms.append((self.second / h[i] ** 4, tuple(2 * order for order in along)))
            for j in range(i):
                both = tuple(int(a in (i, j)) for a in range(D))
                terms.append((2 * self.second / (h[i] * h[j]) ** 2, both))
        return [
            (w, order)
            for w, order in terms
            if w
            and all(
                n > (1 if wraps and o else o)  # a circle of two nodes has second differences
                for n, o, wraps in zip(self.shape, order, self.wraps, strict=True)
            )
        ]

    def apply(self, tensor: Array) -> Array:
        """Return the product with ``tensor`` (C, K_1, ..., K_D), term by term: simple, but slow."""
        out = np.zeros_like(tensor)
        for weight, orders in self.factors():
            out += tensor.dtype.type(weight) * differences_transposed(
                differences(tensor, orders, self.wraps), orders, self.wraps
            )
        return out

    def energy(self, tensor: Array) -> Array:
        """Return the penalty (C,) of each channel of weights (C, K_1, ..., K_D)."""
        total = np.zeros(len(tensor))
        for weight, orders in self.factors():
            squares = differences(tensor, orders, self.wraps).astype(np.float64) ** 2
            total += weight * np.sum(squares.reshape(len(tensor), -1), axis=1)
        return total

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Return ``count`` random tensors whose covariance is the penalty matrix."""
        out = np.zeros((count, *self.shape))
        for weight, orders in self.factors():
            size = [
                n if wraps else n - o
                for n, o, wraps in zip(self.shape, orders, self.wraps, strict=True)
            ]
            out += math.sqrt(weight) * differences_transposed(
                rng.standard_normal((count, *size)), orders, self.wraps
            )
        return out


def differences(tensor: Array, orders: Sequence[int], wraps: Sequence[bool] | None = None) -> Array:
    """Return the differences of ``tensor`` (C, K_1, ..., K_D) of given orders along the axes."""
    for axis, order in enumerate(orders, start=1):
        if wraps is not None and wraps[axis - 1]:
            for _ in range(order):
                tensor = np.roll(tensor, -1, axis=axis) - tensor
        else:
            tensor = np.diff(tensor, n=order, axis=axis)
    return tensor


def differences_transposed(
    tensor: Array, orders: Sequence[int], wraps: Sequence[bool] | None = None
) -> Array:
    """Return the transpose of `differences`."""
    for axis, order in enumerate(orders, start=1):
        for _ in range(order):
            if wraps is not None and wraps[axis - 1]:
                tensor = np.roll(tensor, 1, axis=axis) - tensor
                continue
            edge = [(0, 0)] * tensor.ndim
            edge[axis] = (1, 1)
            tensor = -np.diff(np.pad(tensor, edge), axis=axis)
    return tensor
