"""B'WB of sparse rows on a grid, stored as a plane per offset between two features of a row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.slabs import multiplied
from kronfield.solvers.points.rows import AxisRows, add_entries, corners


class Stencil:
    """A symmetric matrix on a grid: entry (j, j + offset) is ``planes[offset][j]``, offset >= 0.

    Parameters
    ----------
    shape : sequence of int
        The shape of the grid.
    taps : sequence of int
        The number T of features of a row on each axis; the largest offset is T - 1.
    wraps : sequence of bool, optional
        Whether offsets count modulo the length of each axis.
    """

    def __init__(
        self, shape: Sequence[int], taps: Sequence[int], wraps: Sequence[bool] | None = None
    ) -> None:
        self.shape, self.taps = tuple(shape), tuple(taps)
        self.wraps = (False,) * len(self.shape) if wraps is None else tuple(wraps)
        zero = (0,) * len(self.shape)
        spans = itertools.product(*(range(1 - t, t) for t in self.taps))
        self.planes: dict[tuple[int, ...], Array] = {
            d: np.zeros(self.shape) for d in spans if d >= zero
        }
        self._live: list[tuple[int, ...]] | None = None

    def add(self, runs: Sequence[AxisRows], weights: Array | None) -> None:
        """Add the rows of points, times their weights; a negative weight removes a point."""
        terms = list(corners(runs, self.shape))
        for i, (low, index, value) in enumerate(terms):
            weighted = value if weights is None else value * weights
            for high, _, other in terms[i:]:  # terms are in ascending order: offset >= 0
                offset = tuple(b - a for a, b in zip(low, high, strict=True))
                entries = weighted * other
                if entries.any():  # points on the nodes of hats contribute to the diagonal only
                    add_entries(self.planes[offset], index, entries)
        self._live = None

    @property
    def live(self) -> list[tuple[int, ...]]:
        """The offsets whose planes are not zero."""
        if self._live is None:
            self._live = [offset for offset, plane in self.planes.items() if plane.any()]
        return self._live

    @property
    def diagonal(self) -> Array:
        """The diagonal, in the shape of the grid."""
        return self.planes[(0,) * len(self.shape)]

    def astype(self, dtype: Any) -> Stencil:
        """Return the matrix in another dtype."""
        other = object.__new__(Stencil)
        other.shape, other.taps, other._live = self.shape, self.taps, self.live
        other.wraps = self.wraps
        other.planes = {
            offset: plane.astype(dtype, copy=False) for offset, plane in self.planes.items()
        }
        return other

    def scaled(self, exponent: int) -> Stencil:
        """Return the matrix times 2 to the ``exponent``."""
        other = object.__new__(Stencil)
        other.shape, other.taps, other._live = self.shape, self.taps, self.live
        other.wraps = self.wraps
        other.planes = {offset: np.ldexp(plane, exponent) for offset, plane in self.planes.items()}
        return other

    def apply(self, tensor: Array, out: Array | None = None) -> Array:
        """Return the product with ``tensor`` (C, K_1, ..., K_D), in a new array or in ``out``."""
        zero = (0,) * len(self.shape)
        out = multiplied(tensor, self.planes[zero], out)
        for offset in self.live:
            if offset == zero:
                continue
            plane = self.planes[offset]
            for here, there in self.pairs(offset):
                out[(slice(None), *here)] += plane[here] * tensor[(slice(None), *there)]
                out[(slice(None), *there)] += plane[here] * tensor[(slice(None), *here)]
        return out

    def pairs(self, offset: Sequence[int]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """Yield slices of nodes j and of nodes j + offset: several pairs if an axis wraps."""
        axes = []
        for d, n, wraps in zip(offset, self.shape, self.wraps, strict=True):
            one = (slice(max(0, -d), n - max(0, d)), slice(max(0, d), n + min(0, d)))
            far = (slice(n - d, n), slice(0, d)) if d > 0 else (slice(0, -d), slice(n + d, n))
            axes.append([one, far] if wraps and d else [one])
        for choice in itertools.product(*axes):
            yield tuple(here for here, _ in choice), tuple(there for _, there in choice)

    def combine(self, other: Stencil, sign: int) -> Stencil:
        """Return this matrix plus ``sign`` times another of the same shape and taps."""
        result = Stencil.__new__(Stencil)
        result.shape, result.taps, result._live = self.shape, self.taps, None
        result.wraps = self.wraps
        result.planes = {
            offset: plane + sign * other.planes[offset] for offset, plane in self.planes.items()
        }
        return result

    def toarray(self) -> Array:
        """Return the dense matrix, for tests and small systems."""
        n = math.prod(self.shape)
        return self.apply(np.eye(n).reshape(n, *self.shape)).reshape(n, n).T
