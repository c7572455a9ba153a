"""How well each family of splines predicts a sample from its neighbours, along one axis.

Every sample is left out alone, so the others lie as densely as in the fit itself; holding out every
second sample would judge a grid half as dense. A spline is linear in the samples, so its error at a
sample is the product of a short row with the samples around it. On an even axis one row serves all
samples but those near the ends; on an uneven one `left_out` has all errors in closed form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame, is_even
from kronfield._core.records import record
from kronfield.embedders import BSpline, Embedder, Gaussian
from kronfield.fitting.left_out import Systems, Windows, solved, spread
from kronfield.fitting.settings import DEFAULT, PredictionSettings
from kronfield.solvers.grid.inverse import Factors

# Samples to either side from which one is predicted. The influence of a sample on a spline of
# degree 9, the widest, falls to 3e-4 over this distance.
REACH = 16
# The longest axis whose predictions are one matrix for all of its samples, which is cached: it is
# faster than windows, and takes half a megabyte.
ONE_MATRIX_UP_TO = 64
# On a long axis samples this far apart share a right-hand side: an error of one hardly reaches the
# other.
APART = 64
# The squared errors of predictions that are rounding are at most this many times those of samples.
MOST_AMPLIFIED = 1e10
# A mirror counts as at a sample if it is no further from it than this part of the next gap.
AT_A_SAMPLE = 1e-6
# The longest axis whose embedder is cached: its positions take 32 KB.
KEPT_UP_TO = 4096
TINY = float(np.finfo(np.float64).tiny)
# The fewest samples on an axis for slopes: each is predicted from two differences on one side.
FEWEST_FOR_SLOPES = 5
# Singular values of wide Gaussians below this part of the largest are left out: they are rounding.
RCOND = 1e-14

#: The ways in which a spline continues past its last samples; each is a number, `smooth`, in the
#: grid solver.
ENDS = {"not-a-knot": 0, "flat": 1, "straight": 2, "reflect": 3}


@record
class SplineFamily:
    """Splines of one degree and one kind of ends, with knots at the samples.

    With not-a-knot ends the two outermost pieces of either side are one polynomial, and there are
    as many features as samples (de Boor, 1978, chapter 4). Straight ends have no second derivative
    at the last sample and flat ends no first; both need two features more. Those that reflect are
    mirrored at the ends of the domain, where they have no odd derivatives: four features more.
    """

    degree: int
    ends: str = "not-a-knot"

    def embedder(self, axis: Array, frame: Frame) -> Embedder:
        """Return the features for samples at ``axis``."""
        x = frame.unit(axis)
        low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
        if len(x) > KEPT_UP_TO:
            return self._through(x, low, high)
        return _recent_splines(self, x.tobytes(), low, high)

    def _through(self, x: Array, low: float, high: float) -> Embedder:
        """Return splines with knots at sorted positions, for a domain from low to high."""
        mirrors = low, high
        if self.ends == "not-a-knot" and not is_even(x):
            # the last polynomials continue; knots further out would lose digits
            low, high = x[0], x[-1]
        elif len(x) > 1:  # past one cell the last polynomials continue: with far knots, singular
            low, high = max(low, 2 * x[0] - x[1]), min(high, 2 * x[-1] - x[-2])
        if self.ends == "not-a-knot" or len(x) < 2:
            return BSpline.through(x, min(self.degree, len(x) - 1), low, high)
        if self.ends == "reflect":  # one more piece at either end, up to the mirror
            gaps = (x[0] - mirrors[0]) / (x[1] - x[0]), (mirrors[1] - x[-1]) / (x[-1] - x[-2])
            if min(gaps) < AT_A_SAMPLE:
                raise problem(
                    "ends",
                    '"reflect" where the domain ends at a sample',
                    "a domain that ends past the first and last sample",
                    'Pass "clamped", or leave domain out.',
                )
            size = len(x) + 1 + self.degree
            return BSpline(size, self.degree, low=mirrors[0], high=mirrors[1], inner=x)
        size = len(x) - 1 + self.degree
        return BSpline(size, self.degree, low=low, high=high, inner=x[1:-1])

    kind = "splines"

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters of a candidate."""
        return {"degree": self.degree, "ends": self.ends}

    @property
    def smooth(self) -> int:
        """The number of the ends in the grid solver."""
        return ENDS[self.ends]

    def suits(self, count: int, even: bool) -> bool:
        """Return whether an axis has enough samples to judge these splines."""
        del even
        return count >= self.fewest

    def fits(self, x: Array, frame: Frame) -> bool:
        """Return whether the domain of an axis can have these splines: every domain can."""
        del x, frame
        return True

    @property
    def fewest(self) -> int:
        """The fewest samples to judge by: one is left out, the others have a spline."""
        return self.degree + 2

    def spreads(self, x: Array) -> Array:
        """Return the variance (N,) between the samples at ``x`` that an error of each one causes.

        It is the mean over all gaps, in their middles, of the squares of the cardinal spline of the
        sample, with not-a-knot ends. Of samples ``APART`` from each other the nearest one counts.

        Examples
        --------
        >>> SplineFamily(1).spreads(np.array([0.0, 1.0, 4.0]))
        array([0.0625, 0.25  , 0.1875])
        """
        from scipy.interpolate import make_interp_spline

        n, gaps = len(x), np.diff(x)
        apart, middles = min(n, APART), (x[:-1] + x[1:]) / 2
        units = np.tile(np.eye(apart), (-(-n // apart), 1))[:n]
        cardinal = make_interp_spline(x, units, min(self.degree, n - 1))(middles)  # (N-1, apart)
        squares = gaps[:, None] * cardinal**2 / gaps.sum()
        if apart == n:
            return np.asarray(squares.sum(axis=0))
        at = np.arange(n - 1)[:, None]
        nearest = at + (np.arange(apart) - at + apart // 2) % apart - apart // 2
        nearest += np.where(nearest < 0, apart, 0) - np.where(nearest >= n, apart, 0)
        return np.bincount(nearest.ravel(), squares.ravel(), n)

    def predict(self, x: Array, at: float) -> Array:
        """Return the row whose product with values at ``x`` is the spline at ``at``."""
        from scipy.interpolate import make_interp_spline

        degree, identity = min(self.degree, len(x) - 1), np.eye(len(x))
        if self.ends == "not-a-knot" or degree < 3:
            return np.asarray(make_interp_spline(x, identity, degree)(at))
        order = 1 if self.ends == "flat" else 2
        zero = [(order, np.zeros(len(x)))]
        return np.asarray(make_interp_spline(x, identity, 3, bc_type=(zero, zero))(at))


@functools.lru_cache(maxsize=64)
def _recent_splines(family: SplineFamily, positions: bytes, low: float, high: float) -> Embedder:
    """Return splines, cached, since several axes often have the same positions."""
    return family._through(np.frombuffer(positions), low, high)


@record
class GaussianFamily:
    """The paper's Gaussians, wide and with centres past both ends: for waves and other smooth data.

    A centre lies on every sample of an even axis, and ``padding`` more past each end. Of all
    weights that fit, those with the least differences are used, so that constants are reproduced.
    Wider Gaussians have a higher order of accuracy and larger weights, which ``RCOND`` bounds.
    """

    width: float  # in spacings
    padding: int
    fewest: int
    longest: int
    smooth: int = 1

    kind = "Gaussians"

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters of a candidate."""
        return {"width": self.width}

    def suits(self, count: int, even: bool) -> bool:
        """Return whether an axis is even, and neither too short nor too long to be judged."""
        return even and self.fewest <= count <= self.longest

    def fits(self, x: Array, frame: Frame) -> bool:
        """Return whether the samples of an axis are the starts of equal cells of its frame."""
        return bool(np.abs(frame.unit(x) - np.arange(len(x)) / len(x)).max() < 1e-9)

    def embedder(self, axis: Array, frame: Frame) -> Embedder:
        """Return the features for samples at ``axis``."""
        del frame
        return self._of(len(axis))

    def _of(self, count: int) -> Gaussian:
        return Gaussian(count + 2 * self.padding, self.width / count, padding=self.padding)

    def error_rows(self, count: int) -> Array:
        """Return the matrix (N, N) from samples on an even axis to their leave-one-out errors."""
        features = np.asarray(self._of(count)(np.arange(count) / count))
        return Factors.of(features, self.smooth, RCOND).left_out()


Family = SplineFamily | GaussianFamily


class AnyFamily(Protocol):
    """Features for the samples of one axis, on a line or a circle: a candidate."""

    @property
    def kind(self) -> str:
        """The name in reports."""

    @property
    def parameters(self) -> dict[str, float | str]:
        """The parameters in reports."""

    @property
    def smooth(self) -> int:
        """The number of the ends in the grid solver."""

    def embedder(self, axis: Array, frame: Frame) -> Embedder:
        """Return the features for samples at ``axis``."""

    def fits(self, x: Array, frame: Frame) -> bool:
        """Return whether the axis can have these features."""


@functools.lru_cache(maxsize=8)
def families(settings: PredictionSettings) -> tuple[Family, ...]:
    """Return all families in the order in which they are preferred.

    A later family is chosen only if it is clearly better.
    """
    *narrow, wide = (
        GaussianFamily(
            width, settings.padding, settings.fewest_for_gaussians, settings.longest_for_gaussians
        )
        for width in settings.widths
    )
    return (
        SplineFamily(3),
        *narrow,
        SplineFamily(5),
        SplineFamily(7),
        SplineFamily(9),
        wide,
        SplineFamily(3, "straight"),
        SplineFamily(3, "flat"),
        SplineFamily(1),
    )


@record(eq=False)
class AxisErrors:
    """Leave-one-out errors along one axis.

    Attributes
    ----------
    families : tuple of SplineFamily or GaussianFamily
        The families that suit the axis.
    squares : (F,) array
        The mean squared error of each, over all samples but the first and the last.
    slopes : float
        The same of cubics with slopes from the data; NaN on a very short axis.
    count : int
        The number of predictions that were made.
    shared : bool
        Whether neighbouring degrees are taken into account in `expected` errors: on uneven axes.
    windows : Windows or None
        The samples of an uneven axis that were predicted.
    systems : Systems or None
        The equations from which their errors follow.
    """

    families: tuple[AnyFamily, ...]
    squares: Array
    slopes: float
    count: int
    shared: bool = False
    windows: Windows | None = None
    systems: Systems | None = None

    def of(self, family: AnyFamily) -> float:
        """Return the mean squared error of one family."""
        return float(self.squares[self.families.index(family)])

    @property
    def chance(self) -> float:
        """The factor by which the ratio of two mean squares differs from 1 by chance.

        The logarithm of a mean of n squares has a standard deviation of about sqrt(2/n).
        """
        return math.exp(2 * math.sqrt(2 / self.count))

    def is_rounding(self, number: int, rounding: float) -> bool:
        """Return whether the error of a family on an uneven axis is that of rounded samples.

        ``rounding`` is the mean square of their errors.
        """
        family, square = self.families[number], float(self.squares[number])
        if self.windows is None or self.systems is None or square > MOST_AMPLIFIED * rounding:
            return False
        if not isinstance(family, SplineFamily) or family.ends != "not-a-knot":
            return False
        kind = self.systems.places.kinds.index((family.degree, family.ends))
        gains = self.systems.gains(kind)[None, ..., None]
        return square <= rounding * max(1.0, float(self.windows.means(gains)[0]))

    @functools.cached_property
    def expected(self) -> Array:
        """The mean squared errors by which splines are chosen.

        On an uneven axis a few samples beside wide gaps make up most of the mean, and splines of
        one degree may meet them by chance. Errors of neighbouring degrees are alike. So in
        logarithms each is moved towards theirs by a part of the way, two standard errors of the
        logarithm. Its own error counts as much as both of theirs, at least.
        """
        if not self.shared:
            return self.squares
        part = min(0.5, math.log(self.chance))
        logarithms = np.log(np.maximum(self.squares, TINY))
        splines = [(i, f) for i, f in enumerate(self.families) if isinstance(f, SplineFamily)]
        # a singular system has an infinite error
        splines = [(i, f) for i, f in splines if math.isfinite(logarithms[i])]
        of_degree = {f.degree: logarithms[i] for i, f in splines if f.ends == "not-a-knot"}
        found = logarithms.copy()
        for i, family in splines:
            degrees = (family.degree - 2, family.degree + 2)
            near = [of_degree[degree] for degree in degrees if degree in of_degree]
            if near:
                found[i] += part * (sum(near) / len(near) - logarithms[i])
        return np.exp(found)


def leave_one_out(
    values: Array, axis: int, x: Array, settings: PredictionSettings = DEFAULT.prediction
) -> AxisErrors | None:
    """Return the errors along an axis of planar values (C, N_1, ..., N_D); None if it is short.

    On a line, the Gaussians take part. On more axes their weights would multiply beyond what
    float64 can hold. ``axis`` counts the axes of ``values``, so that the first of the grid is 1. Of
    many lines or samples, some are judged: spread evenly, and symmetric about the middle.
    """
    task = _Task.of(values, axis, x, settings)
    return None if task is None else task.errors()


def leave_one_out_of_all(
    values: Array, axes: Sequence[Array], settings: PredictionSettings = DEFAULT.prediction
) -> list[AxisErrors | None]:
    """Return the errors along every axis, those of axes that are alike computed together."""
    tasks = [_Task.of(values, i, x, settings) for i, x in enumerate(axes, start=1)]
    alike: dict[object, list[int]] = {}
    for i, task in enumerate(tasks):
        if task is not None:
            shape = task.lines.shape if task.is_one_matrix else i
            alike.setdefault(shape, []).append(i)
    found: list[AxisErrors | None] = [None] * len(tasks)
    for numbers in alike.values():
        group = [task for i in numbers if (task := tasks[i]) is not None]
        for i, errors in zip(numbers, _errors_of_alike(group), strict=True):
            found[i] = errors
    return found


@functools.lru_cache(maxsize=256)
def _able(
    settings: PredictionSettings, count: int, even: bool, on_line: bool
) -> tuple[Family, ...]:
    """Return the families that suit an axis of a grid."""
    able = [one for one in families(settings) if on_line or isinstance(one, SplineFamily)]
    return tuple(one for one in able if one.suits(count, even))


@record(eq=False)
class _Task:
    """The samples of lines (N, R) that are predicted along one axis, and by which families.

    Of an uneven axis about ``most`` samples are predicted, of an even one ``samples``.
    """

    judged: tuple[Family, ...]
    x: Array
    even: bool
    samples: Array
    lines: Array
    most: int

    @classmethod
    def of(cls, values: Array, axis: int, x: Array, settings: PredictionSettings) -> _Task | None:
        """Return the task of an axis; None if it is too short."""
        n = len(x)
        if n < settings.fewest:
            return None
        even = is_even(x)
        judged = _able(settings, n, even, values.ndim == 2)
        count = n - 2 if even else min(n - 2, settings.most_uneven)
        lines = some_lines(values, axis, max(1, settings.most_judged // count))
        samples = 1 + spread(n - 2, max(1, settings.most_judged // lines.shape[1]))
        return cls(judged, x, even, samples, lines, settings.most_uneven)

    @property
    def is_one_matrix(self) -> bool:
        """Whether the predictions of all samples of the axis are one cached matrix."""
        n = len(self.x)
        return self.even and n <= ONE_MATRIX_UP_TO and len(self.samples) == n - 2

    def errors(self) -> AxisErrors:
        """Return the mean squares of the errors."""
        return _errors_of_alike([self])[0]


def _errors_of_alike(tasks: Sequence[_Task]) -> list[AxisErrors]:
    """Return the errors along axes of one length, on which one matrix predicts all samples.

    A single task may be of any kind.
    """
    one, A = tasks[0], len(tasks)
    n, count = one.lines.shape
    if not one.even:
        splines = [family for family in one.judged if isinstance(family, SplineFamily)]
        return [uneven_errors(splines, one.x, one.lines, one.most)]
    lines = one.lines if A == 1 else np.concatenate([task.lines for task in tasks], axis=1)
    if one.is_one_matrix:
        errors = (_matrix(one.judged, n) @ lines).reshape(len(one.judged), n - 2, A, count)
        squares = np.einsum("fjar,fjar->af", errors, errors) / (count * (n - 2))
    else:
        squares = _squares(one.judged, n, lines, one.samples).mean(axis=1)[None]
    slopes = [math.nan] * A
    if n >= FEWEST_FOR_SLOPES:
        slopes = _slopes_errors(lines, one.samples, A)
    return [
        AxisErrors(one.judged, squares[i], slopes[i], count * len(one.samples)) for i in range(A)
    ]


def uneven_errors(
    judged: Sequence[SplineFamily], x: Array, lines: Array, most: int, *, shared: bool = True
) -> AxisErrors:
    """Return the errors of lines (N, R) along an uneven axis, of which about ``most`` are judged.

    Samples count as their part of the axis. ``shared`` is as in `AxisErrors`.
    """
    windows = Windows.of(x, lines, most)
    kinds = [(one.degree, one.ends) for one in judged]
    systems = solved(windows.x, windows.lines, kinds)
    squares = windows.means(systems.errors())
    slopes = math.nan
    if len(x) >= FEWEST_FOR_SLOPES:
        slopes = float(windows.means(_uneven_slopes_errors(windows.x, windows.lines)[None])[0])
    count = windows.count * lines.shape[1]
    return AxisErrors(tuple(judged), squares, slopes, count, shared, windows, systems)


def some_lines(values: Array, axis: int, most: int) -> Array:
    """Return lines along ``axis`` as columns (N, R): all, or some that are spread over the grid."""
    # the axis first, then the channels and the other axes
    lines = values.transpose(axis, *(i for i in range(values.ndim) if i != axis))
    other = list(lines.shape[2:])
    each = max(1, math.floor((most / max(lines.shape[1], 1)) ** (1 / max(len(other), 1))))
    for i, count in enumerate(other):
        if count > each:
            lines = np.take(lines, spread(count, each), axis=i + 2)
    return np.ascontiguousarray(lines.reshape(len(lines), -1), dtype=np.float64)


def _squares(judged: Sequence[Family], n: int, lines: Array, samples: Array) -> Array:
    """Return the mean over even lines (N, R) of the squared error at each sample, (F, J)."""
    splines = tuple(one for one in judged if isinstance(one, SplineFamily))
    squares = np.empty((len(judged), len(samples)))
    local = iter(_spline_squares(splines, lines, samples))
    for number, family in enumerate(judged):
        if isinstance(family, GaussianFamily):
            errors = _gaussian_rows(family, n)[samples] @ lines
            squares[number] = np.mean(errors**2, axis=1)
        else:
            squares[number] = next(local)
    return squares


@functools.lru_cache(maxsize=64)
def _matrix(judged: tuple[Family, ...], count: int) -> Array:
    """Return the matrix (F J, N) from an even line to its errors at all J inner samples."""
    splines = tuple(one for one in judged if isinstance(one, SplineFamily))
    window = min(count, 2 * REACH + 1)
    local = np.zeros((len(splines), count - 2, count))
    for sample in range(1, count - 1):
        start = min(max(sample - REACH, 0), count - window)
        rows = _even_rows(splines, window, sample - start)
        local[:, sample - 1, start : start + window] = rows
    each = iter(local)
    return np.concatenate(
        [
            _gaussian_rows(one, count)[1:-1] if isinstance(one, GaussianFamily) else next(each)
            for one in judged
        ]
    )


@functools.lru_cache(maxsize=64)
def _gaussian_rows(family: GaussianFamily, count: int) -> Array:
    return family.error_rows(count)


def _spline_squares(families: tuple[SplineFamily, ...], lines: Array, samples: Array) -> Array:
    """Return the mean squared errors (F, J) of splines, each sample from a window around it."""
    n, window = len(lines), min(len(lines), 2 * REACH + 1)
    starts = np.clip(samples - REACH, 0, n - window)
    squares = np.empty((len(families), len(samples)))
    alike = starts == samples - REACH  # these have one row per family
    if alike.any():
        rows = _even_rows(tuple(families), window, REACH)  # (F, window)
        views = np.lib.stride_tricks.sliding_window_view(lines, window, axis=0)  # (N', R, window)
        errors = views[starts[alike]].reshape(-1, window) @ rows.T  # (J' R, F)
        per_sample = np.mean(errors.reshape(int(alike.sum()), -1, len(families)) ** 2, axis=1)
        squares[:, alike] = per_sample.T
    for start in np.unique(starts[~alike]).tolist():  # the two ends
        here = ~alike & (starts == start)
        rows = _even_end_rows(tuple(families), window, tuple((samples[here] - start).tolist()))
        errors = rows.reshape(-1, window) @ lines[start : start + window]  # (F J', R)
        squares[:, here] = np.mean(errors**2, axis=1).reshape(len(families), -1)
    return squares


@functools.lru_cache(maxsize=256)
def _even_end_rows(families: tuple[SplineFamily, ...], window: int, at: tuple[int, ...]) -> Array:
    """Return the rows of several samples of an even axis, (F, J, window)."""
    return np.stack([_even_rows(families, window, one) for one in at], axis=1)


@functools.lru_cache(maxsize=1024)
def _even_rows(families: tuple[SplineFamily, ...], window: int, at: int) -> Array:
    """Return the rows of an even axis; those of the second half are flipped from the first."""
    if 2 * at > window - 1:
        return _even_rows(families, window, window - 1 - at)[:, ::-1]
    return error_rows(families, np.arange(window, dtype=np.float64), at)


def error_rows(families: Sequence[SplineFamily], x: Array, at: int) -> Array:
    """Return the rows (F, N) whose products with values at ``x`` are the errors at ``at``."""
    known = np.arange(len(x)) != at
    rows = np.zeros((len(families), len(x)))
    rows[:, at] = 1.0
    for number, family in enumerate(families):
        rows[number, known] = -family.predict(x[known], float(x[at]))
    return rows


def _slopes_errors(lines: Array, samples: Array, parts: int) -> list[float]:
    """Return the mean squared errors of cubics with slopes from the data, on an even axis.

    There is an error for each of ``parts`` equal parts of the lines. A sample is predicted in the
    middle of the cubic between its neighbours, a gap of two spacings, whose slopes are the means of
    PCHIP's and Akima's there: see `slopes`. Past the ends differences continue along a straight
    line.
    """
    n = len(lines)
    # differences, and two past each end, which are replaced below: difference i is in row i + 2
    differences = np.zeros((n + 3, lines.shape[1]))
    np.subtract(lines[1:], lines[:-1], out=differences[2:-2])
    # neighbours k samples on; a slice where all samples are judged, which copies nothing
    every = len(samples) == n - 2
    before, here, after = (
        lines[1 + k : n - 1 + k] if every else lines[samples + k] for k in (-1, 0, 1)
    )
    # at each sample: two differences before the gap, the one over it per spacing, and two after it
    m = np.empty((5, *before.shape))
    for row, k in ((0, -1), (1, 0), (3, 3), (4, 4)):
        m[row] = differences[1 + k : n - 1 + k] if every else differences[samples + k]
    np.subtract(after, before, out=m[2])
    m[2] *= 0.5
    count = len(samples)
    for k in sorted({0, min(1, count - 1), max(count - 2, 0), count - 1}):  # those near the ends
        sample = int(samples[k])
        if sample == 1:
            m[1, k] = 2 * m[2, k] - m[3, k]
        if sample == n - 2:
            m[3, k] = 2 * m[2, k] - m[1, k]
        if sample <= 2:
            m[0, k] = 2 * m[1, k] - m[2, k]
        if sample >= n - 3:
            m[4, k] = 2 * m[3, k] - m[2, k]
    slopes = _akima_slopes(m)
    slopes += _harmonic_slopes(m[1:4])
    # (y_0 + y_1)/2 + gap (d_0 - d_1)/8, with the gap 2 and twice the slopes
    errors = slopes[0] - slopes[1]
    errors *= 0.125
    errors += (before + after) * 0.5
    errors -= here
    each = errors.reshape(count, parts, -1)
    squares = np.einsum("jar,jar->a", each, each) / (count * each.shape[2])
    return [float(square) for square in squares]


def _uneven_slopes_errors(x: Array, lines: Array) -> Array:
    """Return the errors (S, N-2, R) of cubics with slopes from the data, on uneven axes.

    The samples of S groups of lines (S, N, R) lie at x (S, N). As in `_slopes_errors`, a sample is
    predicted from three on either side, and differences continue straight past the ends.
    """
    y, gaps = np.moveaxis(lines, 1, 0), np.diff(x).T[..., None]  # (N, S, R), (N-1, S, 1)
    differences = np.diff(y, axis=0) / gaps
    gap = gaps[1:] + gaps[:-1]
    m = np.zeros((5, len(gap), *y.shape[1:]))
    m[0, 2:], m[1, 1:] = differences[:-3], differences[:-2]
    m[3, :-1], m[4, :-2] = differences[2:], differences[3:]
    np.divide(y[2:] - y[:-2], gap, out=m[2])
    m[1, 0], m[3, -1] = 2 * m[2, 0] - m[3, 0], 2 * m[2, -1] - m[1, -1]
    m[0, :2], m[4, -2:] = 2 * m[1, :2] - m[2, :2], 2 * m[3, -2:] - m[2, -2:]
    outer = np.stack([np.concatenate([gap[:1], gaps[:-2]]), np.concatenate([gaps[2:], gap[-1:]])])
    d = _akima_slopes(m)
    d += _harmonic_slopes(m[1:4], 2 * gap + outer, gap + 2 * outer)
    d *= 0.5
    # the cubic with these values and slopes at both ends of the gap, at the part t of it
    t = gaps[:-1] / gap
    s = 1 - t
    found = s * s * (1 + 2 * t) * y[:-2] + t * t * (1 + 2 * s) * y[2:]
    found += gap * s * t * (s * d[0] - t * d[1])
    return np.moveaxis(found - y[1:-1], 0, 1)


def _akima_slopes(m: Array) -> Array:
    """Return the slopes before and after the third of five differences, (2, ...).

    A slope is the mean of the differences to either side, weighted by the changes beyond (Akima,
    1970), modified so that flat stretches stay flat.
    """
    turn = np.abs(m[1:] + m[:-1])
    turn *= 0.5
    turn += np.abs(m[1:] - m[:-1])
    total = turn[2:] + turn[:2]
    total += TINY  # where all is 0, nothing is divided by it
    return (turn[2:] * m[1:3] + turn[:2] * m[2:4]) / total


def _harmonic_slopes(m: Array, w: float | Array = 5, v: float | Array = 4) -> Array:
    """Return the slopes before and after the second of three differences, (2, ...).

    A slope is the harmonic mean of an outer difference, with weight w, and the second one, with
    weight v, and 0 where their signs differ (Fritsch and Butland, 1984). The default weights are
    for a second difference over two spacings and outer ones over one.
    """
    sizes = np.abs(m)
    # (w + v) / (w/outer + v/middle)
    outer, middle = sizes[::2], sizes[1]
    slopes = (w + v) * middle * (outer / (v * outer + w * middle + TINY))
    slopes *= np.sign(m[1])
    slopes *= m[::2] * m[1] > 0
    return slopes
