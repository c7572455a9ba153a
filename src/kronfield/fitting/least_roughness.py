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
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.memory import available_memory, check_memory, too_large
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg

# The multiple of the identity that makes a matrix regular; its diagonal entries are 1 or more.
TINY = 1e-12
# The most operations and numbers of a banded factor: about a second, and 250 MB.
MOST_WORK, MOST_NUMBERS = 4e9, 3e7
# Conjugate gradients: the residual relative to the right-hand side, and the most steps.
TOLERANCE, MOST_STEPS = 1e-6, 2000
# Bytes of an entry of the equations while they are assembled and made a sparse matrix, and of an
# unknown in a sparse factor; measured.
OF_ENTRY, OF_FACTOR = 40, 400
# Bytes of addresses that SuperLU reserves for an entry of a matrix, most of which it never uses.
RESERVED = 760
# Equations of at most this many bytes are assembled without asking how many are available.
UNASKED = 1e8
# What would need less memory.
REMEDY = "Fit parts of the grid, or with a given penalty: roughness=."
# Rows of the equations that are assembled together, so that they stay within the caches.
ROWS = 1 << 12
# The reach of second differences.
REACH = 2


def least_roughness(planes: Array, missing: Array, ratios: Sequence[float]) -> list[Array]:
    """Return stacked planes (C, W, N_1, ..., N_D), of least roughness where samples are missing.

    There is a result for every ratio of first to second differences. Windows, along the first axis
    of the lattice, are separate. Apart from passes over the lattice, the time is proportional to
    the number of missing samples.

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


@record(eq=False)
class _System:
    """The normal equations of the missing samples.

    Attributes
    ----------
    diagonal : two arrays (M,)
        The diagonals for second and for first differences.
    rows, columns : arrays (E,)
        The places of the entries of one triangle.
    entries : two arrays (E,)
        The values of these entries, for second and for first differences.
    known : two arrays (C, M)
        The right-hand sides, for second and for first differences.
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

        M, C = len(places), len(planes)
        check_room(missing, C)
        stencil = _Stencil(missing.shape, places)
        flat = planes.reshape(C, -1).copy()
        flat[:, places] = 0
        rank = np.full(missing.size, -1, dtype=np.int32)
        rank[places] = np.arange(M, dtype=np.int32)
        # the numbers (M, S) of missing samples around missing ones, -1 for others
        pairs = np.empty((M, len(stencil.steps)), dtype=np.int32)
        known = np.zeros((2, C, M))
        for first in range(0, M, ROWS):
            part = slice(first, min(first + ROWS, M))
            own = places[part]
            for group, values in stencil.groups:
                total = np.zeros((C, len(own)))
                for k in group:
                    around = own + stencil.steps[k]
                    pairs[part, k] = rank.take(around, mode="wrap")
                    total += flat.take(around, axis=1, mode="wrap")
                for one, value in zip(known, values, strict=True):
                    if value:
                        one[:, part] -= value * total
        stencil.correct(known, pairs, flat)
        is_pair = pairs >= 0
        _check_memory(M, OF_ENTRY * (M + int(np.count_nonzero(is_pair))))
        at = np.flatnonzero(is_pair)
        neighbours = pairs.reshape(-1).take(at)
        counts = np.count_nonzero(is_pair, axis=1)
        ends = np.append(0, np.cumsum(counts)).astype(np.int32)
        ones = np.ones(len(neighbours), dtype=np.int8)
        graph = csr_matrix((ones, neighbours, ends), (M, M))
        order = reverse_cuthill_mckee(graph, symmetric_mode=True)
        position = np.empty(M, dtype=np.int32)
        position[order] = np.arange(M, dtype=np.int32)
        # only one triangle: every pair once, by the steps forward
        parts = []
        for k in range(0, len(stencil.steps), 2):
            near = np.flatnonzero(is_pair[:, k])
            ends_of = position.take(near), position.take(pairs[:, k].take(near))
            parts.append((np.maximum(*ends_of), np.minimum(*ends_of), *stencil.values(k, near)))
        row, column, *entries = (
            (np.concatenate(one) for one in zip(*parts, strict=True))
            if parts
            else np.zeros((4, 0), dtype=np.int32)
        )
        return cls(
            stencil.diagonal(),
            row,
            column,
            (entries[0], entries[1]),
            (known[0], known[1]),
            order,
            int((row - column).max()) if len(row) else 0,
            missing.ndim - 1,
        )

    def solve(self, ratio: float) -> Array:
        """Return the missing samples (C, M) for a ratio of first to second differences."""
        diagonal = self.diagonal[0] + ratio * self.diagonal[1] + TINY
        entries = self.entries[0] + ratio * self.entries[1]
        right = (self.known[0] + ratio * self.known[1])[:, self.order].T
        M, width = len(diagonal), self.band + 1
        if M * width <= MOST_NUMBERS and M * width**2 <= MOST_WORK:
            _check_memory(M, 8 * M * width)
            solved = self._by_band(diagonal[self.order], entries, right)
        elif self.dimensions <= 2:
            _check_memory(M, OF_ENTRY * (M + 2 * len(entries)) + OF_FACTOR * M)
            solved = self._by_factors(diagonal[self.order], entries, right)
        else:
            solved = self._by_gradients(diagonal[self.order], entries, right)
        found = np.empty(right.T.shape)
        found[:, self.order] = solved.T
        return found

    def _by_band(self, diagonal: Array, entries: Array, right: Array) -> Array:
        """Solve by a banded factor."""
        lapack, width = scipy_linalg().lapack, self.band + 1
        # columns of the lower triangle, one after the other
        band = np.zeros((len(diagonal), width))
        band[:, 0] = diagonal
        band.reshape(-1)[self.columns * np.intp(width - 1) + self.rows] = entries
        factor, failed = lapack.dpbtrf(band.T, lower=1, overwrite_ab=1)
        if failed:
            raise np.linalg.LinAlgError("the roughness of the missing samples is not positive")
        return np.asarray(lapack.dpbtrs(factor, right, lower=1)[0])

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
        left = available_memory()
        try:
            factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
        except (MemoryError, RuntimeError) as error:
            # under a limit of the address space its reserve leaves nothing for its other arrays
            if isinstance(error, RuntimeError) and "MALLOC" not in str(error):
                raise
            what = f"the surface through {len(diagonal)} missing samples"
            raise too_large("values", what, RESERVED * matrix.nnz, left, REMEDY) from error
        return np.asarray(factor.solve(np.ascontiguousarray(right)))

    def _by_gradients(self, diagonal: Array, entries: Array, right: Array) -> Array:
        """Solve by conjugate gradients, all channels at once (Hestenes and Stiefel, 1952).

        They start from the best constant. In wide holes, MOST_STEPS may not be enough: the error is
        then relative to the changes of the values, not to their size.
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


def check_room(missing: Array, channels: int) -> None:
    """Raise an error if the equations of missing samples (W, N_1, ..., N_D) do not fit into memory.

    Nothing is assembled. What factors need is known when the width of the band is.
    """
    M, D = int(np.count_nonzero(missing)), missing.ndim - 1
    steps = 2 * D + 2 * D + 4 * math.comb(D, 2)  # one and two along axes, and diagonally
    of_sample = 4 * steps + 16 * channels + OF_ENTRY
    most = M * (of_sample + OF_ENTRY * steps)  # as if all neighbours were missing
    if most > UNASKED and most > available_memory():
        _check_memory(M, of_sample * M + OF_ENTRY * _pairs(missing))


def _pairs(missing: Array) -> int:
    """Return the number of missing samples around missing ones, each pair twice."""
    axes = range(1, missing.ndim)
    steps: list[tuple[tuple[int, int], ...]] = [
        ((axis, far),) for axis in axes for far in (1, REACH)
    ]
    steps += [((a, 1), (b, way)) for a, b in itertools.combinations(axes, 2) for way in (1, -1)]
    total = 0
    for step in steps:
        low, high = [slice(None)] * missing.ndim, [slice(None)] * missing.ndim
        for axis, far in step:
            ends = slice(None, -abs(far)), slice(abs(far), None)
            low[axis], high[axis] = ends if far > 0 else ends[::-1]
        total += 2 * int(np.count_nonzero(missing[tuple(low)] & missing[tuple(high)]))
    return total


def _check_memory(count: int, needed: float) -> None:
    """Raise an error if a part of the work for missing samples does not fit into memory."""
    check_memory(
        "values",
        f"the surface through {count} missing samples",
        float(needed),
        REMEDY,
    )


# Samples near the border: values for second and first differences, and where a step leads outside.
_Side = tuple[Array, Array, Array]


class _Stencil:
    """The steps to the samples around missing ones, and their values in the normal equations.

    Near the border of the lattice there are fewer differences.
    """

    def __init__(self, shape: Sequence[int], places: Array) -> None:
        self.axes = range(1, len(shape))
        self.shape, self.places = shape, places
        self.strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        self.near = np.flatnonzero(_near_border(shape).ravel().take(places))
        self.number = np.full(len(places), -1, dtype=np.int32)
        self.number[self.near] = np.arange(len(self.near))
        self.at = np.unravel_index(places[self.near], shape)
        # along an axis: D'D of second differences (its diagonal and the next), and of first ones
        self.tables = [_bands(n) for n in shape]
        self.first = {axis: self.tables[axis][2][self.at[axis]] for axis in self.axes}
        self.all_first = sum(self.first.values(), np.zeros(len(self.near)))
        found = [
            (sign * step, inner, side)
            for step, inner, sides in self._steps()
            for sign, side in zip((1, -1), sides, strict=True)
        ]
        self.steps = np.array([step for step, *_ in found], dtype=np.intp)  # (S,)
        self.inner = [np.array([inner[k] for _, inner, _ in found]) for k in range(2)]
        # steps whose inner values are equal
        values = [inner for _, inner, _ in found]
        self.groups = [
            ([k for k, one in enumerate(values) if one == same], same)
            for same in dict.fromkeys(values)
        ]
        # of samples near the border: values (n, S), and where a step leads out of the lattice
        columns = [
            np.zeros((3, len(self.near), 0)),
            *(np.stack(side)[..., None] for *_, side in found),
        ]
        self.beside = np.concatenate(columns, axis=-1)

    def correct(self, known: Array, pairs: Array, flat: Array) -> None:
        """Set right-hand sides (2, C, M) and neighbours (M, S) of samples near the border.

        Before, they are as if all samples had all differences. ``flat`` (C, N) are the known
        samples, and 0 where samples are missing.
        """
        if not len(self.near):
            return
        row, step = np.nonzero(self.beside[2])
        pairs[self.near[row], step] = -1
        columns = self.places[self.near, None] + self.steps
        columns[row, step] = 0  # their values are 0
        around = flat.take(columns, axis=1)
        for k in range(2):
            known[k][:, self.near] = -np.einsum("cms,ms->cm", around, self.beside[k])

    def values(self, k: int, rows: Array) -> tuple[Array, Array]:
        """Return the values of some rows for second and first differences, at step ``k``."""
        found = [np.full(len(rows), one[k]) for one in self.inner]
        if len(self.near):
            number = self.number.take(rows)
            beside = np.flatnonzero(number >= 0)
            for one, table in zip(found, self.beside, strict=False):
                one[beside] = table[number.take(beside), k]
        return found[0], found[1]

    def diagonal(self) -> tuple[Array, Array]:
        """Return the values at the sample itself, for second and first differences."""
        D = len(self.axes)
        second = sum(
            (self.tables[axis][0][self.at[axis]] for axis in self.axes), np.zeros(len(self.near))
        )
        for a, b in itertools.combinations(self.axes, 2):
            second = second + 2 * self.first[a] * self.first[b]
        found = []
        for inner, near in ((6.0 * D + 8.0 * math.comb(D, 2), second), (2.0 * D, self.all_first)):
            values = np.full(len(self.places), inner)
            values[self.near] = near
            found.append(values)
        return found[0], found[1]

    def _steps(self) -> Iterator[tuple[int, tuple[float, float], list[_Side]]]:
        """Yield steps forward, with their values for second and first differences at inner samples.

        The third item has the values at samples near the border, for the step forward and backward,
        and whether the step leads out of the lattice.
        """
        D = len(self.axes)
        for axis in self.axes:
            n, i = self.shape[axis], self.at[axis]
            if n > 1:
                rest = 2 * (self.all_first - self.first[axis])
                sides: list[_Side] = []
                for last, low in ((i >= n - 1, i), (i <= 0, np.maximum(i - 1, 0))):
                    second = np.where(last, 0.0, self.tables[axis][1][low] - rest)
                    sides.append((second, np.where(last, 0.0, -1.0), last))
                yield self.strides[axis], (-4.0 * D, -1.0), sides
            if n > REACH:
                ends = (i >= n - REACH, i < REACH)
                sides = [(1.0 - end, np.zeros(len(end)), end) for end in ends]
                yield REACH * self.strides[axis], (1.0, 0.0), sides
        for a, b in itertools.combinations(self.axes, 2):
            if min(self.shape[a], self.shape[b]) < 2:
                continue
            for sign in (1, -1):
                over = [self._ends(a, side) | self._ends(b, sign * side) for side in (1, -1)]
                sides = [(2.0 - 2.0 * out, np.zeros(len(out)), out) for out in over]
                yield self.strides[a] + sign * self.strides[b], (2.0, 0.0), sides

    def _ends(self, axis: int, side: int) -> Array:
        """Return where samples near the border are the last ones on a side of an axis."""
        return self.at[axis] == (self.shape[axis] - 1 if side > 0 else 0)


def _near_border(shape: Sequence[int]) -> Array:
    """Tell which samples are near the border of the lattice along any axis except the first."""
    near = np.ones(shape, dtype=bool)
    near[(slice(None), *(slice(REACH, max(n - REACH, REACH)) for n in shape[1:]))] = False
    return near


def _bands(n: int) -> tuple[Array, Array, Array]:
    """Return two diagonals of D'D for second differences, and the main one for first."""
    diagonal, beside, first = np.zeros(n), np.zeros(n), np.zeros(n)
    for k, weight in enumerate((1.0, 4.0, 1.0)):
        if n > REACH:
            diagonal[k : n - REACH + k] += weight
    for k in range(2):
        if n > REACH:
            beside[k : n - REACH + k] -= 2.0
        first[k : n - 1 + k] += 1.0
    return diagonal, beside, first
