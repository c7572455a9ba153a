"""The errors of samples left out of splines on an uneven axis, in closed form.

A spline of odd degree k has its knots at the samples, and the spline without sample i is the one of
the same space whose k-th derivative does not jump at one knot t_i. Let J be the matrix from the
values to the jumps of the spline through all samples. Replacing y_i by the value z that makes the
jump 0 gives

    y_i - z = (J y)_i / J_ii,

the error at sample i. For natural splines this is the formula of Wahba (1990, section 4.2). With
not-a-knot ends the samples next to the ends are no knots; without one of them the nearest knot is
dropped, so t_i is that knot.

The jumps θ of the k-th derivative satisfy M θ = D y, where D y are divided differences of order
k + 1 and M_ji is the B-spline over samples j to j + k + 1 at knot i (de Boor, 1978, chapter 9): a
band of k diagonals. J_ii is needed for all i, but the influence of a sample decays exponentially,
so that one right-hand side serves samples that are far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record

# Samples that share a right-hand side are this many steps apart, by the degree: on even samples the
# influence of a sample on a jump has fallen to 1e-4 at this distance. Short lines share none.
APART = {1: 4, 3: 7, 5: 11, 7: 15, 9: 19}
SHARED_FROM = 40
# Samples that are judged together, and those around them that take part.
BLOCK, AROUND = 32, 16


@record(eq=False)
class Windows:
    """The samples of an uneven axis that are judged: all, or blocks of many.

    Half of the blocks are those where the cubic through the four samples around another one errs
    most; the others are spread evenly over the rest of the axis, and stand for all of it.

    Attributes
    ----------
    x, lines : arrays (S, W) and (S, W, R)
        The positions and the values in windows around the blocks.
    weights : array (S, W-2)
        The part of the axis for which each inner sample of a window stands; 0 if it is not judged.
    """

    x: Array
    lines: Array
    weights: Array

    @classmethod
    def of(cls, x: Array, lines: Array, most: int) -> Windows:
        """Return windows with about ``most`` samples of lines (N, R) at positions (N,)."""
        n = len(x)
        gaps = x[2:] - x[:-2]
        if n - 2 <= most:
            return cls(x[None], lines[None], gaps[None] / gaps.sum())
        # an odd number of blocks, which are the same if the axis is turned round
        count = -(-(n - 2) // BLOCK) | 1
        half = np.arange(count // 2 + 1) * (n - 2) // count
        bounds = np.concatenate([half, n - 2 - half[::-1]])
        squares = np.mean(_from_four(x, lines) ** 2, axis=1)
        energy = np.add.reduceat(gaps * squares, bounds[:-1])
        many = max(2, most // BLOCK)
        order = np.argsort(-energy, kind="stable")
        largest, others = np.sort(order[: many // 2]), np.sort(order[many // 2 :])
        some = others[spread(len(others), many - many // 2)]
        shares = np.add.reduceat(gaps, bounds[:-1])
        factor = shares[others].sum() / shares[some].sum()
        size = BLOCK + 2 * AROUND
        chosen = np.concatenate([largest, some])
        starts = np.clip(bounds[chosen] + 1 - AROUND, 0, max(n - size, 0))
        at = starts[:, None] + np.arange(min(size, n))
        inner = at[:, 1:-1] - 1  # from 0 to n - 3, as gaps
        is_judged = (inner >= bounds[chosen, None]) & (inner < bounds[chosen + 1, None])
        weights = np.where(is_judged, gaps[inner], 0.0)
        weights[len(largest) :] *= factor
        return cls(x[at], lines[at], weights / weights.sum())

    @property
    def count(self) -> int:
        """The number of samples that are judged."""
        return int(np.count_nonzero(self.weights))

    def mean(self, errors: Array) -> float:
        """Return the weighted mean of the squares of errors (S, W-2, R)."""
        return float(np.einsum("sw,swr,swr->", self.weights, errors, errors)) / errors.shape[2]


def _from_four(x: Array, lines: Array) -> Array:
    """Return the errors (N-2, R) of cubics through four samples around each of lines (N, R).

    At the first and the last inner sample they are those of their neighbours.
    """
    near = [(x[i : len(x) - 4 + i], lines[i : len(x) - 4 + i]) for i in range(5)]
    at, error = near[2][0], near[2][1].copy()
    for i in (0, 1, 3, 4):
        weight = np.ones_like(at)
        for j in (0, 1, 3, 4):
            if j != i:
                weight *= (at - near[j][0]) / (near[i][0] - near[j][0])
        error -= weight[:, None] * near[i][1]
    return np.concatenate([error[:1], error, error[-1:]])


def spread(count: int, most: int) -> Array:
    """Return at most ``most`` indices below ``count``, symmetric about the middle."""
    step = -(-count // most)
    if step <= 1:
        return np.arange(count)
    half = np.arange((count - 1) // 2, -1, -step)
    return np.unique(np.concatenate([half, count - 1 - half]))


def left_out(x: Array, lines: Array, splines: Sequence[tuple[int, str]]) -> list[Array]:
    """Return the errors (S, N-2, R) of the inner samples of lines, for each kind of splines.

    Parameters
    ----------
    x : array (S, N)
        The rising positions of the samples of S groups of lines.
    lines : array (S, N, R)
        The values.
    splines : sequence of (int, str)
        The degree, odd and at most N - 2, and the ends: "not-a-knot", or of degree 3 "straight" or
        "flat".

    Examples
    --------
    Degree 1 predicts a sample from its two neighbours:

    >>> import numpy as np
    >>> x, y = np.array([[0.0, 1.0, 3.0]]), np.array([[[0.0], [5.0], [6.0]]])
    >>> left_out(x, y, [(1, "not-a-knot")])
    [array([[[3.]]])]
    """
    first, last = x[:, :1], x[:, -1:]
    x = (x - first) * ((x.shape[1] - 1) / (last - first))  # high differences do not overflow
    found = {}
    degrees = [degree for degree, ends in splines if ends == "not-a-knot"]
    for degree, system, sides in _not_a_knot(x, lines, max(degrees, default=0)):
        if degree in degrees:
            found[degree, "not-a-knot"] = system.errors(sides, x.shape[1], APART[degree])
    for degree, ends in splines:
        if ends != "not-a-knot":
            system, sides = _cubic(x, lines, ends == "flat")
            found[degree, ends] = system.errors(sides, x.shape[1], APART[degree])
    return [found[kind] for kind in splines]


@record(eq=False)
class _System:
    """The equations of the splines of one kind through all samples, and the jumps they have.

    Attributes
    ----------
    matrix : array (2 b + 1, S, U)
        The bands of S matrices of U unknowns: row r, column c is at ``matrix[b + r - c, :, c]``.
    parts : array (L, S, U)
        The right-hand sides are differences of the values: sample r + l + ``shift`` has the factor
        ``parts[l, :, r]`` in row r.
    shift : int
        The first sample of row 0.
    knot : int or None
        The first sample whose jump is an unknown: the unknowns are jumps. If None, the jumps are
        the transposed differences of the unknowns.
    """

    matrix: Array
    parts: Array
    shift: int
    knot: int | None

    def errors(self, sides: Array, n: int, apart: int) -> Array:
        """Return the errors (S, N-2, R) of n samples from differences of values (S, U, R)."""
        from scipy.linalg.lapack import dgbsv

        (L, S, U), R = self.parts.shape, sides.shape[2]
        # the samples of a row have right-hand sides of their own
        apart = n if n < SHARED_FROM else max(apart, L)
        part, row = np.arange(L)[:, None], np.arange(U)
        sample = row + part + self.shift  # (L, U)
        scale = self.scales(n)
        both = np.zeros((R + apart, S, U))  # transposed: in LAPACK columns lie in one piece
        both[:R] = sides.transpose(2, 0, 1)
        both[R + sample % apart, :, row] = (self.parts / scale[:, sample].swapaxes(0, 1)).swapaxes(
            1, 2
        )
        # S blocks on the diagonal of one matrix
        b = len(self.matrix) // 2
        band = np.zeros((3 * b + 1, S * U))
        band[b:] = self.matrix.reshape(-1, S * U)
        *_, found, info = dgbsv(b, b, band, both.reshape(-1, S * U).T, overwrite_b=1)
        if info:  # singular to rounding
            return np.full((S, n - 2, R), np.inf)
        found = found.T.reshape(-1, S, U)
        inner = np.arange(1, n - 1)
        own = R + inner % apart
        if self.knot is not None:
            at = np.clip(inner - self.knot, 0, U - 1)
            jumps, change = found[:R, :, at], found[own, :, at].T
        else:
            rows = inner - self.shift - part  # (L, N-2)
            inside = (rows >= 0) & (rows < U)
            rows = np.where(inside, rows, 0)
            factors = np.where(inside[:, None], self.parts[part, :, rows].swapaxes(1, 2), 0.0)
            jumps = np.einsum("lsn,rsln->rsn", factors, found[:R][:, :, rows])
            change = np.einsum("lsn,lns->sn", factors, found[own, :, rows])
        return np.moveaxis(jumps / (change * scale[:, 1:-2]), 0, 2)

    def scales(self, n: int) -> Array:
        """Return roughly the roots of J_ii (S, N + 1), and 1 for samples past the ends.

        In these units no change of another sample makes a larger jump than that of the sample
        itself (exactly so where J is symmetric and positive, as of natural splines). So samples far
        apart do not disturb each other, even if their gaps differ by orders of magnitude.
        """
        (L, S, U), sample = self.parts.shape, np.arange(n)
        row = np.clip(sample - L // 2 - self.shift, 0, U - 1)
        own = np.abs(self.parts[np.clip(sample - self.shift - row, 0, L - 1), :, row]).T
        if self.knot is None:
            own = own**2 / self.matrix[len(self.matrix) // 2][:, row]
        return np.concatenate([np.sqrt(own), np.ones((S, 1))], axis=1)


def _not_a_knot(x: Array, lines: Array, highest: int) -> Iterator[tuple[int, _System, Array]]:
    """Yield odd degrees up to the highest, their systems, and the differences of lines."""
    S, n = x.shape
    basis, parts, sides = np.ones((1, S, n - 2)), np.ones((1, S, n)), lines
    for order in range(1, highest + 2):
        # Differences of order k + 1 are not divided by the distance of their first and last sample:
        # the matrix then holds B-splines that add up to 1.
        undivided = np.zeros((order + 1, S, n - order))
        undivided[1:] = parts[..., 1:]
        undivided[:-1] -= parts[..., :-1]
        sides = np.diff(sides, axis=1)
        k = order - 1
        if k > 1:
            basis = _raised(basis, x, k)
        if k % 2:
            yield k, _System(_band(basis), undivided, 0, (k + 1) // 2), sides
        if order <= highest:
            width = x[:, order:] - x[:, :-order]
            parts = undivided / width
            sides = sides / width[..., None]


def _raised(basis: Array, x: Array, k: int) -> Array:
    """Return the B-splines of degree k (k, S, U) from those of degree k - 1.

    Element (o - 1, s, j) is the B-spline over samples j to j + k + 1 at sample j + o, a knot.
    """
    S, n = x.shape
    count = n - k - 1
    parts = basis / (x[:, k:] - x[:, :-k])
    knots = np.stack([x[:, o : o + count] for o in range(1, k + 1)])
    raised = np.zeros((k, S, count))
    raised[:-1] = (knots[:-1] - x[:, :count]) * parts[..., :-1]
    raised[1:] += (x[:, k + 1 :] - knots[1:]) * parts[..., 1:]
    return raised


def _band(basis: Array) -> Array:
    """Return the bands of the matrices whose rows are B-splines (k, S, U) at all knots."""
    k, _, U = basis.shape
    band = np.zeros(basis.shape)
    for i, one in enumerate(basis):  # row j, column j + i - b
        ahead = i - k // 2
        low, high = max(0, -ahead), min(U, U - ahead)
        if low < high:
            band[k - 1 - i, :, low + ahead : high + ahead] = one[:, low:high]
    return band


def _cubic(x: Array, lines: Array, flat: bool) -> tuple[_System, Array]:
    """Return the system of cubic splines with flat or else straight ends, and differences of lines.

    The unknowns are second derivatives at the samples, with straight ends at the inner ones (Green
    and Silverman, 1994, chapter 2).
    """
    gaps = np.diff(x)  # (S, N-1)
    sides = np.diff(lines, axis=1) / gaps[..., None]
    inverse = 1 / gaps
    if flat:  # slopes past the ends are 0
        past = ((0, 0), (1, 1))
        gaps, inverse = np.pad(gaps, past), np.pad(inverse, past)
        sides = np.pad(sides, (*past, (0, 0)))
    parts = np.stack([inverse[:, :-1], -inverse[:, :-1] - inverse[:, 1:], inverse[:, 1:]])
    matrix = np.zeros(parts.shape)
    matrix[1] = (gaps[:, :-1] + gaps[:, 1:]) / 3
    matrix[0, :, 1:] = matrix[2, :, :-1] = gaps[:, 1:-1] / 6
    return _System(matrix, parts, -int(flat), None), np.diff(sides, axis=1)
