"""Many lines on the same positions, each with gaps of its own, filled together.

A line is smoothed as in `line_choice`: the sum of squared residuals, of weighted first and of
weighted second differences is least. All lines have one penalty, chosen by the error at samples of
some of them, which are held out in the shape of the gaps of other lines. Cubic splines through the
known samples (not-a-knot) take the place of smoothing where their error at the held-out samples is
less, as for smooth lines without noise: between known samples, and beyond the outer ones.

A line is a band of five diagonals, and many lines are one band, so that all are solved at once, in
time proportional to the samples.
"""

from __future__ import annotations

import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.fitting.left_out import spread
from kronfield.fitting.line_choice import line_penalty
from kronfield.fitting.settings import DEFAULT, SearchSettings
from kronfield.solvers.points.normal import Penalty

# Samples of lines that are solved as one band, so that they stay within the caches.
PART = 1 << 16
# The least distance of neighbours that the penalty sees, over the mean: a smaller one would make
# the equations singular.
NARROW = 1e-3
# A multiple of the identity, so that a line without any known sample is its mean.
TINY = 1e-12
# Smaller values are 0.
TINIEST = float(np.finfo(np.float64).tiny)
# A cubic spline that is not-a-knot at both ends has at least this many samples.
FEWEST = 4


def fill_lines(
    values: Array, missing: Array, positions: Array, settings: SearchSettings = DEFAULT.search
) -> Array:
    """Return lines (C, N) with values in the place of ``missing`` samples (C, N).

    Known samples do not change. Every line has at least one of them.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.gappy_lines import fill_lines
    >>> lines = np.array([[0.0, 1, np.nan, 3, 4, 5, 6], [6, 5, 4, 3, np.nan, np.nan, 0]])
    >>> fill_lines(lines, np.isnan(lines), np.arange(7.0)).round(3)
    array([[0., 1., 2., 3., 4., 5., 6.],
           [6., 5., 4., 3., 2., 1., 0.]])
    """
    if np.iscomplexobj(values):
        parts = np.concatenate([values.real, values.imag])
        both = fill_lines(parts, np.concatenate([missing, missing]), positions, settings)
        real, imaginary = np.split(both, 2)
        return np.asarray(real + 1j * imaginary, dtype=values.dtype)
    found = np.where(missing, values.dtype.type(0), values)
    lines = np.flatnonzero(missing.any(axis=1))
    if not len(lines):
        return found
    rows = max(1, PART // len(positions))
    filler = _Filler.of(found, missing, lines, np.abs(np.diff(positions)), settings)
    for start in range(0, len(lines), rows):
        some = lines[start : start + rows]
        known = ~missing[some]
        wide, level, _ = _centred(found[some], known)
        found[some] = np.where(known, found[some], filler(wide, known) + level)
    return found


def _centred(lines: Array, known: Array) -> tuple[Array, Array, Array]:
    """Return lines as float64 less the mean of their known samples, these means, and deviations."""
    wide = lines.astype(np.float64)
    counts = known.sum(axis=1, keepdims=True)
    level = np.sum(wide, axis=1, keepdims=True, where=known) / counts
    wide = np.where(known, wide - level, 0.0)
    size = np.abs(wide).max(axis=1, keepdims=True, initial=TINIEST)  # squares do not overflow
    return wide, level, size * np.sqrt(np.sum((wide / size) ** 2, axis=1, keepdims=True) / counts)


@record(eq=False)
class _Filler:
    """Evaluates lines (C, N), known at some samples and 0 elsewhere, at all of them.

    ``steps`` are the distances of neighbours over their mean, (N - 1,), and ``band`` is the penalty
    of a line. Splines are used ``between`` known samples and ``beyond`` the outer ones, or not.
    """

    steps: Array
    band: Array
    between: bool
    beyond: bool

    @classmethod
    def of(
        cls, values: Array, missing: Array, lines: Array, gaps: Array, settings: SearchSettings
    ) -> _Filler:
        """Return the filler with the least error at held-out samples of some of the ``lines``.

        These are lines from everywhere, with about ``line_points`` samples. They count alike,
        whatever their spread.
        """
        steps = gaps / (gaps.mean() if len(gaps) else 1.0)
        some = lines[spread(len(lines), max(1, settings.line_points // values.shape[1]))]
        held = _Held.of(values[some], missing[some], steps, settings)
        a, b = line_penalty(held, (1.0,), settings).roughness
        band = a * held.first + b * held.second
        smooth = _smoothed(held.given, held.kept, band)
        splines, inside = _splines(held.given, held.kept, steps)
        judged = held.held & np.isfinite(splines)
        better = [
            np.sum((splines - held.wide)[part] ** 2) < np.sum((smooth - held.wide)[part] ** 2)
            for part in (judged & inside, judged & ~inside)
        ]
        return cls(steps, band, bool(better[0]), bool(better[1]))

    def __call__(self, lines: Array, known: Array) -> Array:
        """Return the lines (C, N) at all samples."""
        smooth = _smoothed(lines, known, self.band)
        if not (self.between or self.beyond):
            return smooth
        splines, inside = _splines(lines, known, self.steps)
        use = np.where(inside, self.between, self.beyond) & np.isfinite(splines)
        return np.where(use, splines, smooth)


@record(eq=False)
class _Held:
    """Lines (C, N) of which some known samples are kept and others held out."""

    wide: Array
    kept: Array
    held: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, values: Array, missing: Array, steps: Array, settings: SearchSettings) -> _Held:
        """Return every line ``line_folds`` times, with other samples held out each time.

        They are in the shape of the gaps of another line, shifted at random; of the runs of these,
        as many are taken as leave most of the known samples.
        """
        C, N = missing.shape
        folds, rng = settings.line_folds, np.random.default_rng(0)
        known = np.tile(~missing, (folds, 1))
        others = rng.integers(C, size=len(known))[:, None]
        shifted = (np.arange(N) + rng.integers(N, size=len(known))[:, None]) % N
        gaps = missing[others, shifted]
        starts = gaps & ~np.pad(gaps[:, :-1], ((0, 0), (1, 0)))
        run = np.maximum.accumulate(np.where(starts, np.arange(N), 0), axis=1)
        taken = rng.random(gaps.shape) * folds * max(float(missing.mean()), 1 / N) < 1
        held = known & gaps & np.take_along_axis(taken, run, axis=1)
        held &= (known & ~held).any(axis=1, keepdims=True)
        wide, _, deviation = _centred(values, ~missing)
        wide /= np.where(deviation > 0, deviation, 1.0)
        return cls(
            np.tile(wide, (folds, 1)),
            known & ~held,
            held,
            *_difference_bands(np.maximum(steps, NARROW)),
        )

    @property
    def given(self) -> Array:
        """The lines with 0 at all other samples than those that are kept."""
        return np.where(self.kept, self.wide, 0.0)

    def error(self, penalty: Penalty) -> float:
        """Return the mean squared error at held-out samples; infinite if singular."""
        a, b = penalty.roughness
        try:
            found = _smoothed(self.given, self.kept, a * self.first + b * self.second)
        except np.linalg.LinAlgError:
            return math.inf
        off = (found - self.wide)[self.held]
        return float(np.mean(off**2)) if len(off) else 0.0


# Smoothing
# ------------------------------------------------------------------------------------------


def _difference_bands(steps: Array) -> tuple[Array, Array]:
    """Return the lower bands (3, N) of the squared first and second differences of a line.

    With h the distances of neighbours, these are the sums of (dy)^2 / h, and of (the difference of
    two slopes dy / h)^2 over the mean of both distances.
    """
    first, second = np.zeros((3, len(steps) + 1)), np.zeros((3, len(steps) + 1))
    _add_squares(first, [-1 / steps, 1 / steps], steps)
    before, after = steps[:-1], steps[1:]
    slopes = [1 / before, -1 / before - 1 / after, 1 / after]
    _add_squares(second, slopes, 2 / (before + after))
    return first, second


def _add_squares(band: Array, factors: list[Array], weights: Array) -> None:
    """Add the band of D'WD, where row m of D has the ``factors`` [m] from column m on."""
    for i in range(len(factors)):
        for k in range(len(factors) - i):
            band[k, i : i + len(weights)] += weights * factors[i] * factors[i + k]


def _smoothed(lines: Array, known: Array, penalty: Array) -> Array:
    """Return smoothed lines (C, N); ``penalty`` is the band of a line."""
    band = np.tile(penalty, (1, len(lines)))
    band[0] += known.ravel() + TINY
    solved = scipy_linalg().solveh_banded(
        band, lines.ravel(), overwrite_ab=True, lower=True, check_finite=False
    )
    return np.asarray(solved).reshape(lines.shape)


# Splines
# ------------------------------------------------------------------------------------------


def _splines(lines: Array, known: Array, steps: Array) -> tuple[Array, Array]:
    """Return cubic splines through the known samples of lines (C, N), and what is between these.

    They are NaN where there are too few. With h the distances of known samples and M the second
    derivatives there, inner samples have
    h_0 M_0 + 2 (h_0 + h_1) M_1 + h_1 M_2 = 6 (slope_1 - slope_0), and as the outer two pieces are
    one polynomial, h_1 M_0 - (h_0 + h_1) M_1 + h_0 M_2 = 0 at the first sample (de Boor, 1978).
    """
    before = np.cumsum(known, axis=1)
    inside = (before > 0) & ((before < before[:, -1:]) | known)
    found = np.full(lines.shape, np.nan)
    use = np.flatnonzero(before[:, -1] >= FEWEST)
    if not len(use):
        return found, inside
    known, counts = known[use], before[use, -1]
    x = np.broadcast_to(np.concatenate([[0.0], np.cumsum(steps)]), known.shape)
    last = np.cumsum(counts) - 1  # of the known samples of all lines, one after the other
    first = last + 1 - counts
    at, y = x[known], lines[use][known]
    h, rise = np.diff(at), np.diff(y)
    h[last[:-1]] = 1.0  # from one line to the next: not used
    slope = rise / h
    band, right = np.zeros((5, len(y))), np.zeros(len(y))  # row 2 + i - j has the entry (i, j)
    band[3, :-2], band[2, 1:-1], band[1, 2:] = h[:-1], 2 * (h[:-1] + h[1:]), h[1:]
    right[1:-1] = 6 * np.diff(slope)
    band[3, last[:-1]] = band[1, first[1:]] = 0.0  # lines are separate
    for end, near, far, way in ((first, 0, 1, 1), (last, -1, -2, -1)):
        a, b = h[end + near], h[end + far]
        right[end], band[2, end] = 0.0, b
        band[2 - way, end + way], band[2 - 2 * way, end + 2 * way] = -a - b, a
    curve = scipy_linalg().solve_banded((2, 2), band, right, check_finite=False)
    # of each sample the piece that starts at the last known one before it
    piece = np.clip(before[use] - 1, 0, counts[:, None] - 2) + first[:, None]
    along, length, low, high = x - at[piece], h[piece], curve[piece], curve[piece + 1]
    tangent = slope[piece] - length * (2 * low + high) / 6
    found[use] = y[piece] + along * (
        tangent + along * (low / 2 + along * (high - low) / (6 * length))
    )
    return found, inside
