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

import functools
from collections.abc import Sequence

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
        n, many, size = len(x), max(2, most // BLOCK), BLOCK + 2 * AROUND
        gaps = x[2:] - x[:-2]
        if n <= many * size:  # as many as in all windows
            return cls(x[None], lines[None], gaps[None] / gaps.sum())
        # an odd number of blocks, which are the same if the axis is turned round
        count = -(-(n - 2) // BLOCK) | 1
        half = np.arange(count // 2 + 1) * (n - 2) // count
        bounds = np.concatenate([half, n - 2 - half[::-1]])
        squares = np.mean(_from_four(x, lines) ** 2, axis=1)
        energy = np.add.reduceat(gaps * squares, bounds[:-1])
        order = np.argsort(-energy, kind="stable")
        largest, others = np.sort(order[: many // 2]), np.sort(order[many // 2 :])
        some = others[spread(len(others), many - many // 2)]
        shares = np.add.reduceat(gaps, bounds[:-1])
        factor = shares[others].sum() / shares[some].sum()
        chosen = np.concatenate([largest, some])
        starts = np.clip(bounds[chosen] + 1 - AROUND, 0, n - size)
        at = starts[:, None] + np.arange(size)
        inner = at[:, 1:-1] - 1  # from 0 to n - 3, as gaps
        is_judged = (inner >= bounds[chosen, None]) & (inner < bounds[chosen + 1, None])
        weights = np.where(is_judged, gaps[inner], 0.0)
        weights[len(largest) :] *= factor
        return cls(x[at], lines[at], weights / weights.sum())

    @property
    def count(self) -> int:
        """The number of samples that are judged."""
        return int(np.count_nonzero(self.weights))

    def means(self, errors: Array) -> Array:
        """Return the weighted means (F,) of the squares of errors (F, S, W-2, R)."""
        squares = np.einsum("fswr,fswr->fsw", errors, errors)
        squares[:, self.weights == 0] = 0.0  # also where errors are infinite
        return squares.reshape(len(errors), -1) @ self.weights.ravel() / errors.shape[3]


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


def left_out(x: Array, lines: Array, splines: Sequence[tuple[int, str]]) -> Array:
    """Return the errors (F, S, N-2, R) of the inner samples of lines, for F kinds of splines.

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
    array([[[[3.]]]])
    """
    return solved(x, lines, splines).errors()


def solved(x: Array, lines: Array, splines: Sequence[tuple[int, str]]) -> Systems:
    """Return the solved equations of which `left_out` returns the errors."""
    # high differences do not overflow; positions are multiplied by powers of 2, which is exact
    mean = (x[:, -1:] - x[:, :1]) / (x.shape[1] - 1)
    x = np.ldexp(x, -np.frexp(mean)[1])
    systems = Systems.of(_Places.of(x.shape[1], tuple(splines)), len(x), lines.shape[2])
    systems.add_not_a_knot(x, lines)
    systems.add_cubic(x, lines)
    systems.solve()
    return systems


@record(eq=False)
class _Places:
    """Where the numbers of F kinds of splines through N samples are in the arrays of `Systems`.

    Differences of the values are the right-hand sides of the equations: each row has factors of a
    few neighbouring samples, which are its parts.

    Attributes
    ----------
    kinds : tuple of (int, str)
        The degree and the ends.
    unknowns, spans, sides : tuples of int
        The unknowns, the samples of a row, and the right-hand sides that all samples share.
    number, part, row, sample, side : arrays (M,)
        The kind, the part and the row of every factor, its sample, and the side of the sample.
    middle : tuple of arrays (F, N)
        The part and the row of the factor in the middle of a row, for each sample.
    own : array (F, N-2)
        The sides of the inner samples.
    at : array (F, N-2)
        With not-a-knot ends, the unknown that is the jump at each inner sample.
    rows : dict of pairs of arrays (3, N-2)
        With straight or flat ends, the rows in which the inner samples are, and whether they exist.
    """

    kinds: tuple[tuple[int, str], ...]
    unknowns: tuple[int, ...]
    spans: tuple[int, ...]
    sides: tuple[int, ...]
    number: Array
    part: Array
    row: Array
    sample: Array
    side: Array
    middle: tuple[Array, Array]
    own: Array
    at: Array
    rows: dict[int, tuple[Array, Array]]

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of(cls, n: int, kinds: tuple[tuple[int, str], ...]) -> _Places:
        """Return the places for lines of n samples."""
        ends = {"straight": (n - 2, 3, 0), "flat": (n, 3, -1)}
        # the unknowns, the samples of a row, and the first sample of row 0
        each = [ends.get(end) or (n - degree - 1, degree + 2, 0) for degree, end in kinds]
        unknowns, spans, _ = zip(*each, strict=True)
        # the samples of a row have sides of their own
        sides = tuple(
            n if n < SHARED_FROM else max(APART[degree], span)
            for (degree, _), span in zip(kinds, spans, strict=True)
        )
        factors, middle, samples = [], [], np.arange(n)
        for i, (size, span, shift) in enumerate(each):
            part, row = (one.ravel() for one in np.indices((span, size)))
            sample = row + part + shift
            factors.append([np.full(len(row), i), part, row, sample, sample % sides[i]])
            own = np.clip(samples - span // 2 - shift, 0, size - 1)
            middle.append((np.clip(samples - shift - own, 0, span - 1), own))
        inner = np.arange(1, n - 1)
        rows = {}
        for i, (_, end) in enumerate(kinds):
            if end != "not-a-knot":
                found = inner - each[i][2] - np.arange(3)[:, None]
                inside = (found >= 0) & (found < unknowns[i])
                rows[i] = np.where(inside, found, 0), inside
        number, part, row, sample, side = np.concatenate(factors, axis=1)
        firsts = [(degree + 1) // 2 for degree, _ in kinds]
        at = [np.clip(inner - k, 0, size - 1) for k, size in zip(firsts, unknowns, strict=True)]
        return cls(
            kinds=kinds,
            unknowns=unknowns,
            spans=spans,
            sides=sides,
            number=number,
            part=part,
            row=row,
            sample=sample,
            side=side,
            middle=(np.stack([a for a, _ in middle]), np.stack([b for _, b in middle])),
            own=np.stack([inner % count for count in sides]),
            at=np.stack(at),
            rows=rows,
        )


@record(eq=False)
class Systems:
    """The equations of F kinds of splines through all samples of S groups of R lines.

    The unknowns are the jumps of the highest derivative with not-a-knot ends. With straight or flat
    ends they are second derivatives, whose transposed differences are the jumps.

    Attributes
    ----------
    places : _Places
        The kinds.
    bands : list of arrays (3 b + 1, S, N)
        The bands of the matrices as LAPACK has them: row r, column c is at [2 b + r - c, :, c].
        Past the unknowns they are the identity.
    parts : array (F, L, S, N)
        The factors of the values in the differences.
    sides : array (F, T, S, N)
        The right-hand sides, then the solutions: of the lines, and of each sample.
    """

    places: _Places
    bands: list[Array]
    parts: Array
    sides: Array

    @classmethod
    def of(cls, places: _Places, S: int, R: int) -> Systems:
        """Return empty systems."""
        n = places.middle[0].shape[1]
        bands = []
        for (degree, _), size in zip(places.kinds, places.unknowns, strict=True):
            b = max(degree - 1, 0) // 2
            band = np.zeros((3 * b + 1, S, n))
            band[2 * b, :, size:] = 1.0
            bands.append(band)
        F = len(bands)
        parts = np.zeros((F, max(places.spans), S, n))
        return cls(places, bands, parts, np.zeros((F, R + max(places.sides), S, n)))

    def add(self, kind: int, parts: Array, sides: Array) -> None:
        """Put in the factors (L, S, U) and the differences of the lines (S, U, R)."""
        L, _, U = parts.shape
        self.parts[kind, :L, :, :U] = parts
        self.sides[kind, : sides.shape[2], :, :U] = sides.transpose(2, 0, 1)

    def add_not_a_knot(self, x: Array, lines: Array) -> None:
        """Put in the equations with not-a-knot ends, in which the values at x are differences."""
        wanted = {
            degree: i for i, (degree, end) in enumerate(self.places.kinds) if end == "not-a-knot"
        }
        S, n = x.shape
        basis, parts, sides = np.ones((1, S, n - 2)), np.ones((1, S, n)), lines
        highest = max(wanted, default=-1)
        shifted = np.zeros((highest + 2, S, n))
        for order in range(highest + 2):
            shifted[order, :, : n - order] = x[:, order:]
        for order in range(1, highest + 2):
            # Differences of order k + 1 are not divided by the distance of their first and last
            # sample: the matrix then holds B-splines that add up to 1.
            undivided = np.zeros((order + 1, S, n - order))
            undivided[1:] = parts[..., 1:]
            undivided[:-1] -= parts[..., :-1]
            sides = sides[:, 1:] - sides[:, :-1]
            k = order - 1
            if k > 1:
                basis = _raised(basis, shifted, k)
            if k in wanted:
                _fill_band(self.bands[wanted[k]], basis)
                self.add(wanted[k], undivided, sides)
            if order <= highest:
                width = x[:, order:] - x[:, :-order]
                parts = undivided / width
                sides = sides / width[..., None]

    def add_cubic(self, x: Array, lines: Array) -> None:
        """Put in the equations of cubic splines with straight or flat ends.

        The unknowns are second derivatives at the samples, with straight ends at the inner ones
        (Green and Silverman, 1994, chapter 2).
        """
        S, n = x.shape
        for kind in self.places.rows:
            past = int(self.places.kinds[kind][1] == "flat")  # slopes past the ends are 0
            gaps, inverse = np.zeros((2, S, n - 1 + 2 * past))
            inside = slice(past, past + n - 1)
            slopes = np.zeros((S, n - 1 + 2 * past, lines.shape[2]))
            gaps[:, inside] = x[:, 1:] - x[:, :-1]
            inverse[:, inside] = 1 / gaps[:, inside]
            slopes[:, inside] = (lines[:, 1:] - lines[:, :-1]) * inverse[:, inside, None]
            band, U = self.bands[kind][1:], self.places.unknowns[kind]
            band[1, :, :U] = (gaps[:, :-1] + gaps[:, 1:]) / 3
            band[0, :, 1:U] = band[2, :, : U - 1] = gaps[:, 1:-1] / 6
            left, right = inverse[:, :-1], inverse[:, 1:]
            parts = np.stack([left, -left - right, right])
            self.add(kind, parts, slopes[:, 1:] - slopes[:, :-1])

    def solve(self) -> None:
        """Solve the equations in place."""
        from scipy.linalg.lapack import dgbsv

        p, R = self.places, self._lines
        _, _, S, n = self.sides.shape
        factors = self.parts[p.number, p.part, :, p.row] / self._scales[p.number, :, p.sample]
        self.sides[p.number, R + p.side, :, p.row] = factors
        for i, band in enumerate(self.bands):
            b = len(band) // 3
            # transposed: in LAPACK columns lie in one piece; S blocks on the diagonal of a matrix
            own = self.sides[i, : R + p.sides[i]].reshape(-1, S * n).T
            *_, found, info = dgbsv(b, b, band.reshape(-1, S * n), own, overwrite_b=1)
            if info:  # singular to rounding
                own[:] = np.nan
            elif not np.shares_memory(found, own):
                own[:] = found

    def errors(self) -> Array:
        """Return the errors (F, S, N-2, R), infinite where the equations are singular."""
        p, R = self.places, self._lines
        each = np.arange(len(self.bands))[:, None]
        jumps = self.sides[each, :R, :, p.at]  # (F, N-2, R, S)
        for i, (rows, _) in p.rows.items():
            factor = self._row_factors(i)
            jumps[i] = np.einsum("lns,lnrs->nrs", factor, self.sides[i, :R, :, rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = (jumps / self._own[:, :, None]).transpose(0, 3, 1, 2)
        errors[~np.isfinite(errors).all(axis=(1, 2, 3))] = np.inf  # or a change without a jump
        return errors

    def gains(self, kind: int) -> Array:
        """Return the factors (S, N-2) by which rounding errors of samples enter the errors.

        They are the norms of the rows that give the errors: sum_j J_ij^2 / J_ii^2 is the square,
        the variance of an error if the samples have independent ones of variance 1. On uneven axes
        splines of high degree have large gains. The kind, by its number, has not-a-knot ends.
        """
        p, R = self.places, self._lines
        n, count = self.sides.shape[3], p.sides[kind]
        inner = np.arange(1, n - 1)
        # of the samples that share a side, the nearest one counts
        nearest = inner + (np.arange(count)[:, None] - inner + count // 2) % count - count // 2
        nearest += np.where(nearest < 0, count, 0) - np.where(nearest >= n, count, 0)
        scale = self._scales[kind][:, np.clip(nearest, 0, n - 1)]  # (S, count, N-2)
        rows = self.sides[kind, R : R + count][:, :, p.at[kind]].swapaxes(0, 1) * scale
        rows[:, (nearest < 0) | (nearest >= n)] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            norms = np.linalg.norm(rows, axis=1) / np.abs(self._own[kind].T)
        return np.where(np.isfinite(norms), norms, np.inf)

    @property
    def _lines(self) -> int:
        """The number R of lines."""
        return self.sides.shape[1] - max(self.places.sides)

    def _row_factors(self, kind: int) -> Array:
        """Return the factors (3, N-2, S) of the jump at each inner sample, without not-a-knots."""
        rows, inside = self.places.rows[kind]
        part = np.arange(3)[:, None]
        return np.where(inside[..., None], self.parts[kind, part, :, rows], 0.0)

    @functools.cached_property
    def _own(self) -> Array:
        """The jumps J_ii (F, N-2, S)."""
        p, R = self.places, self._lines
        each = np.arange(len(self.bands))[:, None]
        change = self.sides[each, R + p.own, :, p.at]
        for i, (rows, _) in p.rows.items():
            factor = self._row_factors(i)
            change[i] = np.einsum("lns,lns->ns", factor, self.sides[i, R + p.own[i], :, rows])
        change *= self._scales[:, :, 1:-2].swapaxes(1, 2)
        return change

    @functools.cached_property
    def _scales(self) -> Array:
        """Return roughly the roots of J_ii (F, S, N + 1), and 1 for samples past the ends.

        In these units no change of another sample makes a larger jump than that of the sample
        itself (exactly so where J is symmetric and positive, as of natural splines). So samples far
        apart do not disturb each other, even if their gaps differ by orders of magnitude.
        """
        F, _, S, n = self.parts.shape
        part, row = self.places.middle
        own = np.abs(self.parts[np.arange(F)[:, None], part, :, row])  # (F, N, S)
        for i in self.places.rows:
            own[i] = own[i] ** 2 / self.bands[i][2][:, row[i]].T
        scale = np.ones((F, S, n + 1))
        np.sqrt(own.swapaxes(1, 2), out=scale[..., :-1])
        return scale


def _raised(basis: Array, shifted: Array, k: int) -> Array:
    """Return the B-splines of degree k (k, S, U) from those of degree k - 1.

    Element (o - 1, s, j) is the B-spline over samples j to j + k + 1 at sample j + o, a knot, where
    ``shifted`` (k + 2, S, N) has sample j + o at [o, s, j].
    """
    S, count = basis.shape[1], shifted.shape[2] - k - 1
    parts = basis / (shifted[k, :, : count + 1] - shifted[0, :, : count + 1])
    at = shifted[: k + 2, :, :count]
    raised = np.zeros((k, S, count))
    raised[:-1] = (at[1:-2] - at[0]) * parts[..., :-1]
    raised[1:] += (at[-1] - at[2:-1]) * parts[..., 1:]
    return raised


def _fill_band(band: Array, basis: Array) -> None:
    """Fill the bands of the matrices whose rows are B-splines (k, S, U) at all knots."""
    k, _, U = basis.shape
    b = k // 2
    for i, one in enumerate(basis):  # row j, column j + i - b
        ahead = i - b
        low, high = max(0, -ahead), min(U, U - ahead)
        if low < high:
            band[2 * b - ahead, :, low + ahead : high + ahead] = one[:, low:high]
