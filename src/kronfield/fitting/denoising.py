"""Remove noise from samples on a grid: by shrinkage or by a penalised fit, whichever has less risk.

The penalised fit is linear, and right where the truth is smooth. `shrinkage` adapts to edges and
textures. Stein's unbiased estimate of the risk (Stein, 1981) shows from noisy samples alone which
of them is closer to the truth. It is computed with one random probe (Ramani, Blu and Unser, 2008).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import centre, is_even, sample_frame
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.embedders import BSpline
from kronfield.fitting import grouping, shrinkage
from kronfield.fitting.lone import lone, noise_bar
from kronfield.fitting.noise import Noise
from kronfield.fitting.report import Candidate
from kronfield.fitting.settings import (
    DEFAULT,
    GroupingSettings,
    Settings,
    ShrinkageSettings,
)
from kronfield.fitting.smoothing import Smoothing, windows
from kronfield.fitting.splines import tension_encoding
from kronfield.fitting.stabilising import Stabiliser, stabilisers_of
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.long_line import LongLine
from kronfield.solvers.grid.separable import GridSolver

# The length of the random probe of a derivative (Ramani, Blu and Unser, 2008), as a fraction of the
# noise: short enough for a derivative, long enough for weights to cross their threshold.
PROBE = 0.1
# Noise below this fraction of the strongest is raised to it, so that it can be divided by.
WEAKEST_NOISE = 1e-3
# Slabs in which groups are treated have at least this multiple of the rows beyond their ends, which
# are computed twice. Few of their rows are in memory at a time.
SHORTEST_SLAB = 8


@record(eq=False)
class Removal:
    """How noise is removed from values (C, N_1, ..., N_D) by shrinkage.

    Attributes
    ----------
    unit : float
        Values are divided by it first, so that no square overflows.
    whiten, restore : (C, C) array
        The mix of channels in which noise is white with standard deviation 1, and the way back.
    stabilisers : tuple of Stabiliser, or None
        One for each channel, if the noise depends on the signal or is cut off.
    groups : tuple of GroupingSettings
        The rounds of filtering in groups of similar patches that follow shrinkage; () for none.
    settings : Settings
        The decisions.
    wraps : tuple of bool
        Which axes are whole circles, so that blocks continue at the other end; () for none.
    bar : float
        Samples further than this from the result, in units of the noise, are kept as they are.
    compared : tuple of int or None
        The decorrelated channels by which patches are compared; None for those of the pilot.
    """

    unit: float
    whiten: Array
    restore: Array
    stabilisers: tuple[Stabiliser, ...] | None = None
    groups: tuple[GroupingSettings, ...] = ()
    settings: Settings = field(default=DEFAULT)
    wraps: tuple[bool, ...] = ()
    bar: float = math.inf
    compared: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        noise: Noise,
        stabilisers: tuple[Stabiliser, ...] | None = None,
        *,
        unit: float = 1.0,
        settings: Settings = DEFAULT,
    ) -> Removal:
        """Return the removal of noise that was found in the values, or given.

        Values, noise and stabilisers are in units of ``unit``.
        """
        C = len(values)
        values = np.asarray(values, dtype=np.float64)
        scales, correlation = _noise_scales(noise, values)
        if stabilisers is not None:
            values = _of_each(Stabiliser.__call__, stabilisers, values)
            scales = np.ones(C)
            correlation = np.eye(C) if stabilisers[0].varies else correlation
        variances, vectors = np.linalg.eigh(correlation)
        variances = np.maximum(variances, WEAKEST_NOISE**2 * variances.max())
        root = scales[:, None] * ((vectors * np.sqrt(variances)) @ vectors.T)
        inverse = ((vectors / np.sqrt(variances)) @ vectors.T) / scales
        lag = settings.shrinkage.lag
        white = np.tensordot(inverse, values, axes=1)
        rotation = _decorrelating(white, lag)
        planes = np.tensordot(rotation, white, axes=1)
        return cls(
            unit,
            rotation @ inverse,
            root @ rotation.T,
            stabilisers,
            settings=settings,
            compared=grouping.leading(planes, settings.grouping.leading),
        )

    @property
    def reach(self) -> Callable[[Sequence[int]], int]:
        """How far along the first axis samples affect a result, as a function of the shape."""

        def of(shape: Sequence[int]) -> int:
            found, C = shrinkage.margin(shape, self.settings.shrinkage), len(self.whiten)
            return found + sum(grouping.margin(len(shape), one, C) for one in self.groups)

        return of

    def __call__(self, values: Array, dtype: np.dtype | None = None) -> Array:
        """Return values without noise, in slabs of bounded size."""
        clean = self._around(values, dtype) if any(self.wraps) else self._removed(values, dtype)
        self.keep_lone(values, clean)
        return clean

    def _removed(self, values: Array, dtype: np.dtype | None) -> Array:
        level = self.level(values)
        dtype = values.dtype if dtype is None else dtype
        if self.groups:
            return self._in_rounds(values, level, dtype)
        clean = np.empty(values.shape, dtype=dtype)

        def white(rows: slice) -> Array:
            return self._white(values[:, rows], level)

        def put(rows: slice, found: Array) -> None:
            clean[:, rows] = self._restored(found, level)

        shrinkage.shrink_rows(white, values.shape, put, self.settings.shrinkage)
        return clean

    def _in_rounds(self, values: Array, level: Array, dtype: np.dtype) -> Array:
        """Return values without noise; each round of groups begins after the one before it.

        So slabs overlap by what one round needs, not by what all of them need.
        """
        pilot = np.empty(values.shape, dtype=np.float32)

        def white(rows: slice) -> Array:
            return self._white(values[:, rows], level)

        def shrunk(rows: slice, found: Array) -> None:
            pilot[:, rows] = found

        shrinkage.shrink_rows(white, values.shape, shrunk, self.settings.shrinkage)
        *before, last = self.groups
        for one in before:
            out = np.empty_like(pilot)
            pilot = _regrouped(white, pilot, one, self.compared, out, lambda found: found)
        clean = np.empty(values.shape, dtype=dtype)

        def restored(found: Array) -> Array:
            return self._restored(found, level)

        return _regrouped(white, pilot, last, self.compared, clean, restored)

    def keep_lone(self, values: Array, clean: Array) -> None:
        """Put samples that noise cannot explain back into clean ones."""
        if not math.isfinite(self.bar):
            return
        reach = self.settings.shrinkage.lone_reach(values.ndim - 1)
        for slab in shrinkage.slabs(values.shape, reach):
            noisy, found = values[:, slab.needed], clean[:, slab.needed]
            far = lone(self._apart(noisy, found), self.bar, self.settings.shrinkage)
            if far is not None:
                inner = far[:, slab.inner]
                clean[:, slab.rows][inner] = values[:, slab.rows][inner]

    def _apart(self, values: Array, clean: Array) -> Array:
        """Return by how many standard deviations of the noise values differ from clean ones."""
        noisy, found = self._in_units(values), self._in_units(clean)
        if self.stabilisers is not None:
            noisy, found = (
                _of_each(Stabiliser.__call__, self.stabilisers, one) for one in (noisy, found)
            )
        apart = (noisy - found).astype(np.float32)
        # planes of noise 1 are mixed by `restore`
        sigma = np.sqrt(np.sum(self.restore**2, axis=1)).astype(np.float32)
        return apart / sigma.reshape(-1, *[1] * (apart.ndim - 1))

    def _around(self, values: Array, dtype: np.dtype | None) -> Array:
        """Return values without noise on circles.

        Each end is padded with the samples of the other end that affect its results, so that the
        seam is treated as any other place.
        """
        shape = values.shape[1:]
        reach = max(self.reach((n,) * len(shape)) for n in shape)
        pads = [reach if wraps else 0 for wraps in self.wraps]
        longer = np.pad(values, [(0, 0), *((pad, pad) for pad in pads)], mode="wrap")
        found = replace(self, wraps=())(longer, dtype)
        inside = (slice(pad, pad + n) for pad, n in zip(pads, shape, strict=True))
        return np.ascontiguousarray(found[(slice(None), *inside)])

    def level(self, values: Array) -> Array:
        """Return the mean of each channel, which is subtracted before values become float32."""
        axes = tuple(range(1, values.ndim))
        means = np.asarray(np.mean(self._in_units(values), axis=axes, dtype=np.float64))
        if self.stabilisers is not None:
            means = np.array([one(m) for one, m in zip(self.stabilisers, means, strict=True)])
        return means.reshape(-1, *[1] * (values.ndim - 1))

    def _in_units(self, values: Array) -> Array:
        """Return values divided by ``unit``, in float32 or float64: never in float16."""
        wide = np.float32 if values.dtype == np.float32 else np.float64
        return np.divide(values, self.unit, dtype=wide)

    def slab(
        self, values: Array, slab: shrinkage.Slab, shape: Sequence[int], level: Array
    ) -> Array:
        """Return the rows that a slab needs, without noise; those near its ends are less exact."""
        planes = self._white(values, level)
        clean = shrinkage.shrink_slab(planes, slab, shape, self.settings.shrinkage)
        for one in self.groups:
            clean = grouping.regroup(planes, clean, one, slab.needed.start, self.compared)
        clean = self._restored(clean, level)
        self.keep_lone(values, clean)
        return clean

    def shrunk(self, parts: Sequence[Array]) -> list[Array]:
        """Return windows (C, N_1, ..., N_D) of one shape after shrinkage alone.

        All are computed in one call; each is treated as a whole grid. Values may lie beyond the
        ends at which noise is cut off, as `Risk` needs them.
        """
        shape = parts[0].shape[1:]
        levels = [self.level(part) for part in parts]
        planes = [self._white(part, level) for part, level in zip(parts, levels, strict=True)]
        whole = shrinkage.Slab(slice(0, shape[0]), slice(0, shape[0]))
        clean = shrinkage.shrink_slab(np.concatenate(planes), whole, shape, self.settings.shrinkage)
        found = np.split(clean, len(parts))
        pairs = zip(found, levels, strict=True)
        return [self._restored(one, level, Stabiliser.free_inverse) for one, level in pairs]

    def _white(self, values: Array, level: Array) -> Array:
        """Return planes in which noise is white with standard deviation 1."""
        values = self._in_units(values)
        if self.stabilisers is not None:
            values = _of_each(Stabiliser.__call__, self.stabilisers, values)
        return np.tensordot(self.whiten, values - level, axes=1).astype(np.float32)

    def _restored(
        self,
        clean: Array,
        level: Array,
        inverse: Callable[[Stabiliser, Array], Array] = Stabiliser.inverse,
    ) -> Array:
        """Return the values that belong to white planes: the inverse of `_white`."""
        found = np.tensordot(self.restore, clean, axes=1) + level
        if self.stabilisers is not None:
            found = _of_each(inverse, self.stabilisers, found)
        return found * self.unit


def _regrouped(
    white: Callable[[slice], Array],
    pilot: Array,
    settings: GroupingSettings,
    compared: Sequence[int] | None,
    out: Array,
    restored: Callable[[Array], Array],
) -> Array:
    """Return ``out``, filled by a round of groups, which are found in ``pilot``.

    White planes are read in rows; the results are restored before they are stored.
    """
    margin = grouping.margin(pilot.ndim - 1, settings, len(pilot))
    if compared is None:
        compared = grouping.leading(pilot, settings.leading)

    def regroup(slab: shrinkage.Slab) -> None:
        start, rows = slab.needed.start, slab.rows

        def noisy(part: slice) -> Array:
            return white(slice(start + part.start, start + part.stop))

        def put_inside(part: slice, found: Array) -> None:
            low, high = max(start + part.start, rows.start), min(start + part.stop, rows.stop)
            if low < high:
                first = start + part.start
                out[:, low:high] = restored(found[:, low - first : high - first])

        grouping.regroup_rows(noisy, pilot[:, slab.needed], put_inside, settings, start, compared)

    in_threads(regroup, shrinkage.slabs(pilot.shape, margin, shortest=SHORTEST_SLAB))
    return out


def groups_after(
    D: int, channels: int, thorough: bool, settings: Settings
) -> tuple[GroupingSettings, ...]:
    """Return the rounds of filtering in groups of similar patches that follow shrinkage.

    Unless ``thorough`` is asked for, one round follows, quick or not, if it takes little time.
    """
    own = settings.grouping
    if thorough:
        return own.slower(D)
    quick = own.quick(D)
    most = own.unasked[min(D, len(own.unasked)) - 1]
    return next(((one,) for one in (own, quick) if one.work(D, channels) <= most), ())


def _noise_scales(noise: Noise, values: Array) -> tuple[Array, Array]:
    """Return the noise of each channel (C,), and the correlation of the noise (C, C).

    Channels may be in different units. A channel without noise gets a small fraction of its spread,
    so that it can be divided by.
    """
    spread = np.std(values.reshape(len(values), -1), axis=1)
    weakest = WEAKEST_NOISE * np.where(spread > 0, spread, 1.0)
    sigma = np.where(noise.sigma > 0, noise.sigma, 1.0)
    correlation = noise.correlation(sigma)
    correlation[np.diag_indices(len(values))] = 1.0
    return np.where(noise.sigma > 0, noise.sigma, weakest), correlation


def _decorrelating(planes: Array, distance: int) -> Array:
    """Return the rotation (C, C) that decorrelates differences of samples at a distance.

    Decorrelating colours before denoising gains 1.7 to 2.3 dB.
    """
    C, total = len(planes), np.zeros((len(planes), len(planes)))
    for axis in range(1, planes.ndim):
        lag = min(distance, planes.shape[axis] - 1)
        if lag > 0:
            n = planes.shape[axis]
            ahead = planes.take(range(lag, n), axis) - planes.take(range(n - lag), axis)
            rows = ahead.reshape(C, -1)
            total += rows @ rows.T / rows.shape[1]
    return np.linalg.eigh(total)[1].T if C > 1 and total.any() else np.eye(C)


# Risk
# ------------------------------------------------------------------------------------------


Denoiser = Callable[[Array], Array]


@record(eq=False)
class Risk:
    """Stein's unbiased estimate of the mean squared error of denoisers, in units of the noise.

    E |f(y) - x|² = |f(y) - y|² - tr N + 2 tr(N J) for noise of covariance N and the Jacobian J of
    f. Its trace is p·(f(y + e p) - f(y)) / e for a random p of covariance N.

    If noise is cut off at the ends of a range, y has the mean m(x), not x. The risk of m(f(y)) as
    an estimate of m(x) is then found, and divided by the squared mean slope of m.

    Attributes
    ----------
    values : array (C, N_1, ..., N_D)
        Noisy samples y.
    probe : array of the same shape
        A random p with the covariance of the noise. All denoisers share it, so that random errors
        cancel in their difference.
    variances : array (C, 1, ..., 1) or of the shape of the values
        The variance of the noise.
    scales : array, likewise
        The noise of each channel, by which its errors are divided: units of channels may differ.
        Times the mean slope of m, if noise is cut off.
    stabilisers : tuple of Stabiliser or None
        One for each channel, if the noise depends on the signal or is cut off.
    """

    values: Array
    probe: Array
    variances: Array
    scales: Array
    stabilisers: tuple[Stabiliser, ...] | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        noise: Noise,
        stabilisers: tuple[Stabiliser, ...] | None = None,
        seed: int = 0,
    ) -> Risk:
        """Return the risk for noise that is independent of the signal, or that depends on it.

        The second is complete after `around`.
        """
        signs = np.random.default_rng(seed).integers(0, 2, values.shape) * 2.0 - 1.0
        scales, correlation = _noise_scales(noise, values)
        wide = (-1, *[1] * (values.ndim - 1))
        if stabilisers is None:
            variances, vectors = np.linalg.eigh(correlation)
            root = (vectors * np.sqrt(np.maximum(variances, 0.0))) @ vectors.T
            probe = np.tensordot(noise.sigma[:, None] * root, signs, axes=1)
        else:
            probe = signs * _of_each(Stabiliser.sigma, stabilisers, values)
        return cls(values, probe, (noise.sigma**2).reshape(wide), scales.reshape(wide), stabilisers)

    def around(self, clean: Array) -> Risk:
        """Return the risk with the variances of noise that depends on the signal, now known."""
        if self.stabilisers is None:
            return self
        variances = _of_each(Stabiliser.sigma, self.stabilisers, clean) ** 2
        # the mean slope of a channel: in flat dark areas, where it is low, terms are mostly chance
        slopes = _of_each(Stabiliser.slope, self.stabilisers, clean)
        slopes = np.mean(slopes, axis=tuple(range(1, slopes.ndim)), keepdims=True)
        return replace(self, variances=variances, scales=self.scales * slopes)

    def terms(self, clean: Denoiser) -> Array:
        """Return the terms (N_1, ..., N_D) whose mean is the estimated risk of a denoiser.

        They are relative to the variance of the noise, and averaged over the channels.
        """
        return self.terms_of(clean(self.values), clean(self.moved))

    @property
    def moved(self) -> Array:
        """The samples, moved along the probe."""
        return self.values + PROBE * self.probe

    def terms_of(self, found: Array, moved: Array) -> Array:
        """Return the terms from denoised samples: ``found`` without the probe, ``moved`` with."""
        found, moved = self._seen(found), self._seen(moved)
        terms = (found - self.values) ** 2 + 2 / PROBE * self.probe * (moved - found)
        return np.mean((terms - self.variances) / self.scales**2, axis=0)

    def outliers(self, clean: Array, sigmas: float) -> float:
        """Return the fraction of samples that are more than ``sigmas`` from clean values."""
        return float(np.mean(np.abs(self._apart(clean)) > sigmas))

    def has_lone(self, clean: Array, bar: float, settings: ShrinkageSettings) -> bool:
        """Tell whether samples are further from clean values than noise can explain."""
        return lone(self._apart(clean), bar, settings) is not None

    def _apart(self, clean: Array) -> Array:
        """Return by how many standard deviations channels with noise differ from clean values."""
        sigma = np.sqrt(self.variances)
        if self.stabilisers is not None:
            sigma = _of_each(Stabiliser.sigma, self.stabilisers, clean)
        sigma = np.broadcast_to(sigma, self.values.shape)
        noisy = np.any(sigma > 0, axis=tuple(range(1, sigma.ndim)))
        apart = (self.values - self._seen(clean))[noisy]
        return np.divide(apart, sigma[noisy], out=np.zeros_like(apart), where=sigma[noisy] > 0)

    def _seen(self, clean: Array) -> Array:
        """Return the mean m of noisy values for clean ones: these, unless noise is cut off."""
        clean = clean.astype(np.float64)
        if self.stabilisers is None:
            return clean
        return _of_each(Stabiliser.noisy_mean, self.stabilisers, clean)


def _of_each(
    function: Callable[[Stabiliser, Array], Array], every: Sequence[Stabiliser], planes: Array
) -> Array:
    return np.stack([function(one, plane) for one, plane in zip(every, planes, strict=True)])


def smoother(smoothing: Smoothing, axes: Sequence[Array]) -> Denoiser:
    """Return the penalised fit of values on a window of the grid, as a denoiser."""
    axes = [axis / unit for axis, unit in zip(axes, smoothing.units, strict=True)]
    frames = [sample_frame(axis) for axis in axes]
    encoding = tension_encoding(axes, frames, smoothing.tension, thinned=True)
    if len(axes) == 1 and isinstance(encoding.embedders[0], BSpline):
        line = LongLine(encoding.embedders[0], axes[0], frames[0])
        return lambda values: _smoothed_line(values, line, smoothing)
    solver = GridSolver(encoding, frames, axes, roughness=smoothing.roughness[0])
    strengths = solver.strengths()
    filters = np.stack([solver.filter_of(strengths, 0.0, one) for one in smoothing.roughness])

    def smoothed(values: Array) -> Array:
        planes = np.tensordot(smoothing.rotation, values, axes=1)
        planes = filters * solver.coefficients(planes)
        for axis, basis in enumerate(solver.bases, start=1):
            planes = apply(basis.U, planes, axis)
        return np.tensordot(smoothing.rotation.T, planes, axes=1)

    return smoothed


@record(eq=False)
class Smoothed:
    """The removal of noise from values (C, N_1, ..., N_D) by a penalised fit, at the samples alone.

    Between the samples, slopes along edges follow: see `kronfield.fitting.grid_choice`.

    Attributes
    ----------
    smoothing : Smoothing
        The penalties.
    axes : tuple of arrays
        The positions of the samples.
    """

    smoothing: Smoothing
    axes: tuple[Array, ...]

    def __call__(self, values: Array, dtype: np.dtype | None = None) -> Array:
        """Return the values without noise."""
        found = smoother(self.smoothing, self.axes)(values)
        return found.astype(values.dtype if dtype is None else dtype, copy=False)


def _smoothed_line(values: Array, line: LongLine, smoothing: Smoothing) -> Array:
    """Return the penalised fit of values (C, N) on an uneven line."""
    planes = np.tensordot(smoothing.rotation, values, axes=1)
    pairs = zip(planes, smoothing.roughness, strict=True)
    planes = np.stack([line.values(line.weights(plane, own)) for plane, own in pairs])
    return np.tensordot(smoothing.rotation.T, planes, axes=1)


def _mean(terms: Sequence[Array]) -> float:
    """Return the mean of the terms of windows, which may differ in shape."""
    return float(np.mean(np.concatenate([part.ravel() for part in terms])))


def _standard_error(terms: Sequence[Array], block: int) -> float:
    """Return the standard error of the mean of terms, whose neighbours are not independent."""
    means = []
    for part in terms:
        for axis in range(part.ndim):
            # at least four blocks along an axis, if there are samples for them
            starts = np.arange(0, part.shape[axis], min(block, max(1, part.shape[axis] // 4)))
            counts = np.diff(np.append(starts, part.shape[axis]))
            shape = [-1 if i == axis else 1 for i in range(part.ndim)]
            part = np.add.reduceat(part, starts, axis=axis) / counts.reshape(shape)
        means.append(part.ravel())
    every = np.concatenate(means)
    return float(np.std(every, ddof=1)) / math.sqrt(len(every)) if len(every) > 1 else math.inf


@record(eq=False)
class Removed:
    """The choice between a penalised fit and shrinkage.

    Attributes
    ----------
    removal : Removal or None
        Shrinkage, if it has less risk.
    risk : float
        The expected mean squared error of the better one, relative to the variance of the noise.
    candidates : list of Candidate
        All that were compared, with their risks relative to the variance of the noise.
    outliers : float
        The fraction of samples that shrinkage changes by more than `outlying` standard deviations.
    varies, cut_off : bool
        Whether the noise depends on the signal, and whether it is cut off at the ends of the range.
    """

    removal: Removal | None
    risk: float
    candidates: list[Candidate]
    outliers: float = 0.0
    varies: bool = False
    cut_off: bool = False


def judged_windows(
    lengths: Sequence[int], settings: ShrinkageSettings = DEFAULT.shrinkage
) -> list[tuple[slice, ...]]:
    """Return the windows in which denoisers are compared.

    On lines and in pictures they are spread evenly. In more dimensions they are the middle and two
    opposite corners.
    """
    D = len(lengths)
    side = settings.judged[min(D, len(settings.judged)) - 1]
    if D > 2:
        places = windows(lengths, side)
        return places if len(places) < 3 else [places[0], places[1], places[-1]]
    if D == 1:
        return [(window,) for window in _spread(lengths[0], side, settings.line_windows)]
    # of a picture that has room for more, half of each axis at most
    most = settings.picture_windows
    every = (_spread(n, side, min(most, max(2, n // (2 * side)))) for n in lengths)
    return list(itertools.product(*every))


def _spread(n: int, side: int, most: int) -> list[slice]:
    """Return windows of n samples along an axis, spread evenly; a single one is in the middle."""
    count = max(1, min(most, n // side))
    own = min(side if count == most else n // count, n)
    if count == 1:
        return [slice((n - own) // 2, (n - own) // 2 + own)]
    starts = np.linspace(0, n - own, count).round().astype(int)
    return [slice(int(start), int(start) + own) for start in starts]


def judged_parts(
    parts: Sequence[tuple[slice, ...]],
    lengths: Sequence[int],
    settings: ShrinkageSettings = DEFAULT.shrinkage,
) -> list[tuple[slice, ...]]:
    """Return the part of each window that is judged, counted from its first sample.

    Samples near to an end of a window are left out, unless it is an end of the grid.
    """
    D = len(lengths)
    margin = settings.judged_margin[min(D, len(settings.judged_margin)) - 1]
    return [
        tuple(
            slice(
                margin if window.start > 0 else 0,
                window.stop - window.start - (margin if window.stop < n else 0),
            )
            for window, n in zip(part, lengths, strict=True)
        )
        for part in parts
    ]


def compared(
    values: Array,
    axes: Sequence[Array],
    noise: Noise,
    smoothing: Smoothing,
    *,
    unit: float,
    may_vary: bool,
    thorough: bool,
    settings: Settings,
    wraps: tuple[bool, ...] = (),
    wider: int = 1,
) -> Removed:
    """Return shrinkage if its risk in some windows is clearly lower, else the penalised fit.

    If neither is clearly better, windows of twice the length decide.

    Parameters
    ----------
    values : array (C, N_1, ..., N_D)
        Noisy samples.
    axes : sequence of D arrays
        Their positions.
    noise : Noise
        In the units of the values.
    smoothing : Smoothing
        The best penalised fit.
    unit : float
        Values and noise are divided by it.
    may_vary : bool
        Whether to test if the noise depends on the signal.
    thorough : bool
        Whether filtering in groups of similar patches follows shrinkage on any grid.
    settings : Settings
        The decisions.
    wraps : tuple of bool
        Which axes are whole circles. Windows are judged as if they were not.
    wider : int
        Windows are longer than those of the settings by this factor.
    """
    lengths = [len(axis) for axis in axes]
    judged = replace(
        settings.shrinkage, judged=tuple(wider * side for side in settings.shrinkage.judged)
    )
    whole, noise = noise, replace(noise, sigma=noise.sigma / unit, sigmas=noise.sigmas / unit)
    parts = judged_windows(lengths, judged)
    block = settings.shrinkage.error_block
    samples = [
        np.asarray(values[(slice(None), *window)], dtype=np.float64) / unit for window in parts
    ]
    at = len(samples) // 2 if len(axes) < 3 else 0
    stabilisers = stabilisers_of(values, noise, unit, settings.noise, may_vary=may_vary)
    # Channels are decorrelated by a larger crop than the judged windows: colours of a small part
    # may differ from those of the rest.
    crop = values[(slice(None), *centre(values.shape[1:], settings.grid.crop_samples))]
    crop = np.asarray(crop, dtype=np.float64) / unit
    bar = noise_bar(values.size, settings.shrinkage.lone_chance)
    removal = replace(Removal.of(crop, noise, stabilisers, settings=settings), bar=bar)
    inner = judged_parts(parts, lengths, settings.shrinkage)
    risks = [Risk.of(part, noise, stabilisers) for part in samples]
    found, moved = in_threads(
        removal.shrunk, [[risk.values for risk in risks], [risk.moved for risk in risks]]
    )
    risks = [risk.around(clean) for risk, clean in zip(risks, found, strict=True)]
    smoothed, linear = _linear_terms(risks, axes, parts, inner, smoothing)
    pairs, sigmas = zip(risks, found, strict=True), settings.noise.outlying
    outliers = float(np.mean([one.outliers(clean, sigmas) for one, clean in pairs]))
    for one, a, b in zip(risks, found, moved, strict=True):
        removal.keep_lone(one.values, a)
        removal.keep_lone(one.moved, b)
    each = zip(risks, found, moved, inner, strict=True)
    shrunk = [one.terms_of(a, b)[part] for one, a, b, part in each]
    varies = stabilisers is not None and stabilisers[0].varies
    cut_off = stabilisers is not None and any(one.is_cut_off for one in stabilisers)
    if varies and outliers > settings.noise.most_outliers:
        return compared(
            values,
            axes,
            whole,
            smoothing,
            unit=unit,
            may_vary=False,
            thorough=thorough,
            settings=settings,
            wraps=wraps,
        )
    differences = [b - a for a, b in zip(linear, shrunk, strict=True)]
    least = settings.noise.confidence * _standard_error(differences, block)
    is_better = _mean(differences) < -least
    # a penalised fit keeps no sample that noise cannot explain
    is_better |= any(
        risk.has_lone(clean, bar, settings.shrinkage)
        for risk, clean in zip(risks, smoothed, strict=True)
    )
    if not is_better and wider == 1 and _mean(differences) < least and len(axes) < 3:
        return compared(
            values,
            axes,
            whole,
            smoothing,
            unit=unit,
            may_vary=may_vary,
            thorough=thorough,
            settings=settings,
            wraps=wraps,
            wider=2,
        )
    means = _mean(linear), _mean(shrunk)
    groups = groups_after(len(axes), len(values), thorough, settings)
    about = {"stabilised": varies, "then groups": bool(groups)}
    candidates = [
        Candidate("penalised fit", {"order": smoothing.order}, means[0], chosen=not is_better),
        Candidate("shrinkage", about, means[1], chosen=is_better),
    ]
    # An estimated risk below its standard error is replaced by that error. If the noise is
    # (1 + e) times as strong, the risk changes by 2 e times its variance, in the unit of the risk.
    share = float(np.mean([np.mean(one.variances / one.scales**2) for one in risks]))
    unsure = 0.0 if noise.is_given else 2 * settings.noise.accuracy * share
    if is_better:
        # the risk before groups, which lower it by about 7 % and take long to judge
        error = max(means[1], _standard_error(shrunk, block) + unsure)
        removal = replace(removal, unit=unit, groups=groups, wraps=wraps)
        return Removed(removal, error, candidates, outliers, varies, cut_off)
    if thorough:
        removal = replace(removal, groups=groups)
        terms = risks[at].terms(removal)[inner[at]]
        gain = linear[at] - terms
        is_better = float(np.mean(gain)) > settings.noise.confidence * _standard_error(
            [gain], block
        )
        error = float(np.mean(terms))
        candidates = [
            replace(candidates[0], chosen=not is_better),
            *candidates[1:],
            Candidate("groups of similar patches", {"in": "the middle"}, error, chosen=is_better),
        ]
        if is_better:
            error = max(error, _standard_error([terms], block) + unsure)
            removal = replace(removal, unit=unit, wraps=wraps)
            return Removed(removal, error, candidates, 0.0, varies, cut_off)
    error = max(means[0], _standard_error(linear, block) + unsure)
    return Removed(None, error, candidates, 0.0, varies, cut_off)


def _linear_terms(
    risks: Sequence[Risk],
    axes: Sequence[Array],
    parts: Sequence[tuple[slice, ...]],
    inner: Sequence[tuple[slice, ...]],
    smoothing: Smoothing,
) -> tuple[list[Array], list[Array]]:
    """Return windows after a penalised fit, and the terms of its risk in their ``inner`` parts."""
    clean, linear = list[Array](), list[Array]()
    smoothed, even = None, all(map(is_even, axes))  # all windows of even axes have one basis
    for risk, window, some in zip(risks, parts, inner, strict=True):
        if smoothed is None or not even:
            own = [axis[place] for axis, place in zip(axes, window, strict=True)]
            smoothed = smoother(smoothing, own)
        clean.append(smoothed(risk.values))
        linear.append(risk.terms_of(clean[-1], smoothed(risk.moved))[some])
    return clean, linear


def expected_error(risk: float, sigma: Array) -> float:
    """Return the expected rms error for a risk relative to the variance of the noise."""
    largest = float(np.max(sigma)) or 1.0  # so that squares neither under- nor overflow
    return math.sqrt(max(risk, 0.0)) * largest * math.sqrt(float(np.mean((sigma / largest) ** 2)))
