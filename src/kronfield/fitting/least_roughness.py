"""Surfaces of least roughness through the known samples of a lattice.

The roughness is the sum of squared second differences, also mixed ones, and of a ratio times the
squared first differences (Duchon, 1977). Only missing samples are unknown, and a sample depends on
those within two steps: holes that are further apart are separate. Unknowns are therefore ordered so
that neighbours are close (Cuthill and McKee, 1969), and the banded system is factored. If holes
are connected over a large part of the lattice, the band is wide; then conjugate gradients are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import scipy_linalg

# The multiple of the identity that makes a matrix regular; its diagonal is 1 and more.
TINY = 1e-12
# The most operations and numbers of a banded factor: about a second, and 250 MB.
MOST_WORK, MOST_NUMBERS = 4e9, 3e7
# Conjugate gradients: the residual relative to the right-hand side, and the most steps.
TOLERANCE, MOST_STEPS = 1e-6, 2000
# The reach of second differences.
REACH = 2


def least_roughness(planes: Array, missing: Array, ratios: Sequence[float]) -> list[Array]:
    """Return stacked planes (C, W, N_1, ..., N_D), of least roughness where samples are missing.

    There is a result for every ratio of first to second differences. Windows, along the first axis
    of the lattice, are separate. The time is in proportion to the missing samples, beside passes
    over the lattice.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.least_roughness import least_roughness
    >>> line = np.array([[[0.0, 1.0, 9.0, 9.0, 4.0, 5.0]]])
    >>> missing = np.array([[False, False, True, True, False, False]])
    >>> least_roughness(line, missing, (0.0,))[0].round(6)
    array([[[0., 1., 2., 3., 4., 5.]]])
    """
    places = np.flatnonzero(missing)
    if not len(places):
        return [planes.copy() for _ in ratios]
    system = _System.of(planes, missing, places)
    found = []
    for ratio in ratios:
        one = planes.copy()
        one.reshape(len(planes), -1)[:, places] = system.solve(ratio)
        found.append(one)
    return found


@dataclass(frozen=True, eq=False)
class _System:
    """The normal equations of the missing samples.

    Attributes
    ----------
    diagonal : two arrays (M,)
        Of second and first differences.
    rows, columns : arrays (E,)
        The entries of one triangle.
    entries : two arrays (E,)
        Their values, of second and first differences.
    known : two arrays (C, M)
        The right-hand sides.
    order, band : array (M,), int
        The unknowns in the order of Cuthill and McKee, and the width of the band in it.
    dimensions : int
        The number of axes of the lattice.
    """

    diagonal: tuple[Array, Array]
    rows: Array
    columns: Array
    entries: tuple[Array, Array]
    known: tuple[Array, Array]
    order: Array
    band: int
    dimensions: int

    @classmethod
    def of(cls, planes: Array, missing: Array, places: Array) -> _System:
        """Return the equations at the missing places of stacked planes."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        M = len(places)
        rank = np.full(missing.size, -1, dtype=np.int32)
        rank[places] = np.arange(M, dtype=np.int32)
        flat = np.where(missing, 0.0, planes).reshape(len(planes), -1)
        stencil = _Stencil(missing.shape, places)
        by_second, by_first = np.zeros((len(planes), M)), np.zeros((len(planes), M))
        rows, columns = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        entries = ([np.zeros(0)], [np.zeros(0)])
        for step, forward, backward in stencil.steps():
            for here, (second, first, outside) in ((step, forward), (-step, backward)):
                neighbours = places + here
                if outside is not None:
                    neighbours[outside] = places[outside]  # itself is missing: 0 in flat
                values = flat.take(neighbours, axis=1)
                by_second -= second * values
                if first is not None:
                    by_first -= first * values
                if here > 0:
                    other = rank.take(neighbours)
                    if outside is not None:
                        other[outside] = -1
                    pair = np.flatnonzero(other >= 0)
                    rows.append(pair.astype(np.int32))
                    columns.append(other[pair])
                    for kept, one in zip(entries, (second, first), strict=True):
                        kept.append(_picked(0.0 if one is None else one, pair))
        row, column = np.concatenate(rows), np.concatenate(columns)
        both = np.concatenate([row, column]), np.concatenate([column, row])
        graph = csr_matrix((np.ones(2 * len(row), dtype=np.int8), both), (M, M))
        order = reverse_cuthill_mckee(graph, symmetric_mode=True)
        position = np.empty(M, dtype=np.int32)
        position[order] = np.arange(M, dtype=np.int32)
        row, column = position[row], position[column]
        row, column = np.maximum(row, column), np.minimum(row, column)
        band = int((row - column).max()) if len(row) else 0
        return cls(
            stencil.diagonal(),
            row,
            column,
            (np.concatenate(entries[0]), np.concatenate(entries[1])),
            (by_second, by_first),
            order,
            band,
            missing.ndim - 1,
        )

    def solve(self, ratio: float) -> Array:
        """Return the missing samples (C, M) for a ratio of first to second differences."""
        diagonal = self.diagonal[0] + ratio * self.diagonal[1] + TINY
        entries = self.entries[0] + ratio * self.entries[1]
        right = (self.known[0] + ratio * self.known[1])[:, self.order].T
        M, width = len(diagonal), self.band + 1
        if M * width <= MOST_NUMBERS and M * width**2 <= MOST_WORK:
            matrix = np.zeros((width, M))
            matrix[0] = diagonal[self.order]
            matrix[self.row_of_band, self.columns] = entries
            solved = scipy_linalg().solveh_banded(
                matrix, right, lower=True, overwrite_ab=True, check_finite=False
            )
        elif self.dimensions <= 2:
            solved = self._by_factors(diagonal[self.order], entries, right)
        else:
            solved = self._by_gradients(diagonal[self.order], entries, right)
        found = np.empty(right.T.shape)
        found[:, self.order] = solved.T
        return found

    @property
    def row_of_band(self) -> Array:
        """The diagonal of every entry."""
        return self.rows - self.columns

    def _matrix(self, diagonal: Array, entries: Array) -> Any:
        """Return the sparse matrix (M, M)."""
        from scipy.sparse import csr_matrix

        M = len(diagonal)
        every = np.arange(M, dtype=np.int32)
        rows = np.concatenate([every, self.rows, self.columns])
        columns = np.concatenate([every, self.columns, self.rows])
        return csr_matrix((np.concatenate([diagonal, entries, entries]), (rows, columns)))

    def _by_factors(self, diagonal: Array, entries: Array, right: Array) -> Array:
        """Solve by a sparse factor, which has little fill-in in the plane (George, 1973)."""
        from scipy.sparse.linalg import splu

        matrix = self._matrix(diagonal, entries).tocsc()
        factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
        return np.asarray(factor.solve(np.ascontiguousarray(right)))

    def _by_gradients(self, diagonal: Array, entries: Array, right: Array) -> Array:
        """Solve by conjugate gradients, all channels at once (Hestenes and Stiefel, 1952).

        They start from the best constant, so that the error of wide holes, for which the steps may
        not be enough, is relative to the changes of the values.
        """
        matrix, inverse = self._matrix(diagonal, entries), 1 / diagonal[:, None]
        ones = matrix @ np.ones(len(diagonal))
        constant = right.sum(axis=0) / (float(ones.sum()) or 1.0)
        x = np.broadcast_to(constant, right.shape).copy()
        residual = right - ones[:, None] * constant
        scaled = inverse * residual
        direction, energy = scaled, np.sum(residual * scaled, axis=0)
        least = TOLERANCE**2 * np.maximum(energy, np.sum(right * inverse * right, axis=0))
        for _ in range(MOST_STEPS):
            if np.all(energy <= least):
                break
            product = matrix @ direction
            curve = np.sum(direction * product, axis=0)
            step = np.divide(energy, curve, out=np.zeros_like(energy), where=curve > 0)
            x += step * direction
            residual -= step * product
            scaled = inverse * residual
            before, energy = energy, np.sum(residual * scaled, axis=0)
            share = np.divide(energy, before, out=np.zeros_like(energy), where=before > 0)
            direction = scaled + share * direction
        return x


def _picked(values: Array | float, index: Array) -> Array:
    return np.full(len(index), values) if isinstance(values, float) else values[index]


# The values at a step, of second and first differences (None if there are none), and where the step
# leads out of the lattice.
_Values = tuple[Array | float, Array | float | None, Array | None]


class _Stencil:
    """The rows of the normal equations: values at the steps to neighbours.

    Values are numbers. If samples near the border of the lattice are missing, where there are fewer
    differences, they are arrays (M,).
    """

    def __init__(self, shape: Sequence[int], places: Array) -> None:
        self.axes = range(1, len(shape))
        self.shape = shape
        self.strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        index = np.unravel_index(places, shape)
        near = np.zeros(len(places), dtype=bool)
        for axis in self.axes:
            near |= (index[axis] < REACH) | (index[axis] >= shape[axis] - REACH)
        self.count, self.near = len(places), np.flatnonzero(near)
        at = [one[self.near] for one in index]
        # along an axis: D'D of second differences (its diagonal and the next), and of first ones
        tables = [_bands(n) for n in shape]
        self.at, self.tables = at, tables
        self.first = {axis: tables[axis][2][at[axis]] for axis in self.axes}
        self.all_first = sum(self.first.values(), np.zeros(len(self.near)))

    def diagonal(self) -> tuple[Array, Array]:
        """Return the values at the sample itself."""
        D = len(self.axes)
        second = sum(
            (self.tables[axis][0][self.at[axis]] for axis in self.axes), np.zeros(len(self.near))
        )
        for a, b in itertools.combinations(self.axes, 2):
            second = second + 2 * self.first[a] * self.first[b]
        inner = 6.0 * D + 8.0 * math.comb(D, 2)
        return (
            np.asarray(self._spread(inner, second, whole=True)),
            np.asarray(self._spread(2.0 * D, self.all_first, whole=True)),
        )

    def steps(self) -> Iterator[tuple[int, _Values, _Values]]:
        """Yield steps forward, with the values at the neighbours forward and backward."""
        D = len(self.axes)
        for axis in self.axes:
            n, i = self.shape[axis], self.at[axis]
            rest = 2 * (self.all_first - self.first[axis])
            values = []
            for last, low in ((i >= n - 1, i), (i <= 0, np.maximum(i - 1, 0))):
                second = np.where(last, 0.0, self.tables[axis][1][low] - rest)
                one = self._spread(-4.0 - 4.0 * (D - 1), second)
                values.append((one, self._spread(-1.0, np.where(last, 0.0, -1.0)), self._of(last)))
            if n > 1:
                yield self.strides[axis], values[0], values[1]
            if n > REACH:
                ends = [i >= n - REACH, i < REACH]
                two = [(self._spread(1.0, 1.0 - end), None, self._of(end)) for end in ends]
                yield REACH * self.strides[axis], two[0], two[1]
        for a, b in itertools.combinations(self.axes, 2):
            if min(self.shape[a], self.shape[b]) < 2:
                continue
            for sign in (1, -1):
                over = [self._ends(a, side) | self._ends(b, sign * side) for side in (1, -1)]
                mixed = [(self._spread(2.0, 2.0 * ~out), None, self._of(out)) for out in over]
                yield self.strides[a] + sign * self.strides[b], mixed[0], mixed[1]

    def _ends(self, axis: int, side: int) -> Array:
        """Return where samples near the border are the last ones on a side of an axis."""
        return self.at[axis] == (self.shape[axis] - 1 if side > 0 else 0)

    def _spread(self, inner: float, near: Array, *, whole: bool = False) -> Array | float:
        """Return the value of inner samples, with those near the border if there are any."""
        if not len(self.near) and not whole:
            return inner
        values = np.full(self.count, inner)
        values[self.near] = near
        return values

    def _of(self, outside: Array) -> Array | None:
        """Return the samples whose neighbour lies outside."""
        return self.near[outside] if outside.any() else None


def _bands(n: int) -> tuple[Array, Array, Array]:
    """Return the diagonal and the next one of D'D for second differences, and that for first."""
    diagonal, beside, first = np.zeros(n), np.zeros(n), np.zeros(n)
    for k, weight in enumerate((1.0, 4.0, 1.0)):
        if n > REACH:
            diagonal[k : n - REACH + k] += weight
    for k in range(2):
        if n > REACH:
            beside[k : n - REACH + k] -= 2.0
        first[k : n - 1 + k] += 1.0
    return diagonal, beside, first
