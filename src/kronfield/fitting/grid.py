"""`fit` and `denoise`: from values on a grid to a field, with settings chosen from the data."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kronfield._core.arrays import Array, is_lazy, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.errors import KronfieldWarning
from kronfield._core.frames import Frame, Split, centre, mean_step
from kronfield._core.memory import check_memory
from kronfield._core.records import record
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import BSpline, Embedder, TensionSpline, Wrapped
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.evaluation import grid_blocks
from kronfield.field.places import GridPlaces
from kronfield.fitting.grid_choice import GridChoice, choose
from kronfield.fitting.inputs import GridInput, GridLayout, PointInput, split_mask
from kronfield.fitting.labelled import labelled_grid
from kronfield.fitting.options import GridOptions, PointOptions
from kronfield.fitting.pieces import CubicPieces
from kronfield.fitting.refined import RefinedField, RefinedResidual, RefinedSamples
from kronfield.fitting.report import Candidate, FitReport, grid_residual
from kronfield.fitting.settings import GridSettings, Settings
from kronfield.fitting.slopes import Refinement
from kronfield.fitting.smoothing import best_ridge, is_long
from kronfield.fitting.wrap_up import wrap_up
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.basis import in_halves
from kronfield.solvers.grid.long_line import LongLine
from kronfield.solvers.grid.mirrored import is_mirrored
from kronfield.solvers.grid.separable import GridSolver

if TYPE_CHECKING:
    from kronfield.fitting.low_rank import RankLimit
    from kronfield.fitting.robust import RobustReport

# The weight of a penalty is divided by 10 at most this often: the loop must also end if the noise
# is smaller than the error of the solution.
LOWERED = 8
# Matrices (K, N) of the longest axis in memory: while its eigenbasis is computed, while it is
# computed in two halves (both measured), and afterwards (U and the way back).
EIGENBASIS, HALVED, KEPT = 9, 2, 2
# Arrays of one channel that are held while a lattice is smoothed in cosines (the terms
# of its equations between neighbours, and the vectors of the iterations); measured in 2-D and 3-D.
COSINES = 30
# Copies of the judged samples: scaled by one factor, and with every channel scaled to 1.
JUDGED = 2
# Arrays of the weights that are held while axes are solved in turn without a penalty; measured.
SOLVED = 2
# Bytes of a fit of an even grid with gaps, measured: in each channel, IN_GAPS copies of a sample
# and others of OF_PLANE bytes; for each missing sample, or known one if these are fewer; and for
# each sample of a line, whose gaps are small parts of it or not.
IN_GAPS, OF_PLANE, OF_GAP, OF_LINE = 3, 8, 280, (400, 100)
# Numbers that are computed at a time for standard errors, to bound the memory.
POINT_NUMBERS = 1 << 22


class NoiseWarning(KronfieldWarning):
    """No noise was found, so that `denoise` removed nothing."""


class RankWarning(KronfieldWarning):
    """An encoding cannot tell all samples apart; the fit is the one of least norm."""


@with_one_blas_thread
def fit(
    values: Any,
    axes: Sequence[Any] | None = None,
    encoding: Kronecker | Embedder | None = None,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    ridge: float | None = None,
    roughness: tuple[float, float] | Literal["gcv"] | None = None,
    weights: Any = None,
    noise: float | Sequence[float] | None = None,
    channels: bool | None = None,
    rank: int | None = None,
    rank_error: float | None = None,
    rcond: float | None = None,
    mask: Any = None,
    periodic: Any = None,
    ends: Any = None,
    loss: str = "squared",
    settings: Settings | None = None,
) -> Field:
    """Return the field that fits values on a grid, in closed form.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> x, y = np.linspace(0, 2, 40), np.linspace(-1, 1, 50)
    >>> field = kf.fit(np.sin(3 * x)[:, None] * np.cos(2 * y), axes=[x, y])
    >>> field(np.array([[1.03, 0.21]])).round(3), round(np.sin(3.09) * np.cos(0.42), 3)
    (array([0.047]), np.float64(0.047))
    >>> paper = kf.Kronecker(kf.Gaussian(40, 0.016), kf.Gaussian(50, 0.0128))
    >>> kf.fit(np.ones((40, 50, 3)), encoding=paper, ridge=0.0).on_grid((80, 100)).shape
    (80, 100, 3)

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        Real, integer or complex; a memory map is read in parts. float32 stays float32; integers of
        up to 16 bits become float32, others float64. A DataArray of xarray, or a Series or
        DataFrame of pandas: its coordinates are the axes, and NaN is missing. An array of Dask or
        zarr gives a lazy field, which is computed chunk by chunk: see the page "Beyond memory".
    axes : sequence of D arrays, or dict, optional
        The positions of the samples on each axis, rising or falling, even or not, in any units, or
        dates (datetime64, timedelta64). The keys of a dictionary are the names of the axes. By
        default the coordinates of labelled values, else array indices, each sample in the middle of
        its cell: the domain of N samples is [-0.5, N - 0.5].
    encoding : Kronecker or Embedder, optional
        By default chosen from the data: splines, or slopes from the data, which fill a lattice
        twice as fine. With slopes the field holds the samples, and refines them when it is
        evaluated. A single embedder is used on every axis.
    domain : sequence of D pairs (low, high), optional
        With ``axes``: the box on which the unit interval of the embedders lies. Without ``axes``:
        the box that is divided into cells, with a sample in the middle of each.
    ridge : float, optional
        The factor of the sum of squared weights of the features, which is added to the sum of
        squared residuals. By default 0 where the encoding is chosen, else chosen
        by generalised cross-validation; 0 is the paper's closed form.
    roughness : (float, float), optional
        The factors of the mean of |gradient|^2 and of |second derivatives|^2, which are added to
        the mean squared residual. By default chosen together with the encoding if the samples are
        clearly noisy, and 0 otherwise. With "gcv" it is always chosen, by generalised
        cross-validation.
    weights : array of shape (N_1, ..., N_D), optional
        The weight of each sample: one over the variance of its noise. Samples of weight 0 count as
        missing. Where weights differ, the samples are fitted as `fit_points` would.
    noise : float or sequence of C floats, optional
        The standard deviation of the noise, in the units of the values: a roughness is then chosen
        for it. By default white noise is found from the data; 0 means that there is none.
    channels : bool, optional
        Whether the last axis holds channels. By default as ``axes`` or ``encoding`` say; else it
        does if it is no longer than 4 and all others are.
    rank : int, optional
        Store the weights as a tensor train: a factor of at most this rank for each axis and for
        the channels, from which values, derivatives and integrals are computed. The report states
        the error at the samples. Slopes from the data are then not used.
    rank_error : float, optional
        The same, with the smallest ranks for which the root mean square error at the samples is at
        most this, in the units of the values.
    rcond : float, optional
        Singular values of an axis below this fraction of its largest count as zero; by default the
        square root of the rounding unit of the values, 1.5e-8 or for float32 3.5e-4, and 0 with a
        ridge. The fit is then the one of least norm, and a `RankWarning` says so.
    mask : array of bool, optional
        True where a sample is missing, of the shape of the grid or of values; a masked array needs
        it too, mask=values.mask. On even axes the gaps are filled by falling thresholds in blocks
        of cosines, if that predicts hidden known samples better than a linear fit. Otherwise the
        rest is fitted as `fit_points` would, and the roughness penalty decides what fills the gaps.
    periodic : sequence of D floats or None, or dict, optional
        The period of each axis, None where it does not wrap: ``periodic=[None, 360.0]``, or by the
        names of axes. Value and derivatives close at the seam, and positions count modulo the
        period. Samples at both ends of a period are one position: their mean.
    ends : str, or sequence of D str or None, or dict, optional
        How splines end, on all axes or on each: "natural" (no second derivative at the first and
        last sample), "clamped" (no first derivative there), "not-a-knot" (the outermost two pieces
        are one polynomial), "reflect" (mirrored at the ends of the domain) or "periodic" (the first
        and last sample are one position, unless ``periodic`` has the period). The splines then pass
        through all samples: nothing is smoothed. By default chosen from the data.
    loss : "squared" or "huber"
        Huber's loss is for samples with outliers: they are weighted down or rejected, as in
        `fit_points`. All samples are then fitted as points.
    settings : Settings, optional
        Other decisions than `kronfield.fitting.settings.DEFAULT`, for experiments.

    Returns
    -------
    Field
        The field; ``field.report`` describes the fit.
    """
    if is_lazy(values):
        from kronfield.lazy.grid import fit_lazy

        return fit_lazy(
            values,
            axes,
            encoding,
            domain=domain,
            ridge=ridge,
            roughness=roughness,
            noise=noise,
            channels=channels,
            rcond=rcond,
            periodic=periodic,
            ends=ends,
            settings=settings,
            mask=mask,
            others={
                "weights": weights,
                "rank": rank,
                "rank_error": rank_error,
                "loss": None if loss == "squared" else loss,
            },
        )
    _refuse_lazy(mask=mask, weights=weights)
    started = time.perf_counter()
    given = labelled_grid(values, axes, domain, mask, channels)
    values, missing = split_mask(given.values, given.mask)
    grid = GridInput(
        values,
        given.axes,
        encoding,
        given.domain,
        given.channels,
        periodic=periodic,
        missing=missing,
        weights=weights,
        ends=ends,
        labels=given.labels,
    )
    ridge = _apply_weights(grid, ridge, noise, rcond)
    limit = _rank_limit(rank, rank_error)
    options = GridOptions.checked(
        ridge=ridge,
        roughness=roughness,
        noise=noise,
        rcond=rcond,
        has_encoding=grid.encoding is not None,
        channels=grid.channel_count,
        settings=settings,
        loss=loss,
        ends=grid.ends,
        is_low_rank=limit is not None,
    )
    _check_ends(grid)
    if limit is not None:
        return _low_rank(grid, options, limit, started).with_labels(given.labels)
    return _fitted(grid, options, started).with_labels(given.labels)


@with_one_blas_thread
def denoise(
    values: Any,
    axes: Sequence[Any] | None = None,
    *,
    noise: float | Sequence[float] | None = None,
    mask: Any = None,
    periodic: Any = None,
    channels: bool | None = None,
    thorough: bool = False,
    settings: Settings | None = None,
) -> Field:
    """Return the field of samples on a grid without their noise: its ``on_grid()`` is clean.

    White noise is found and measured, or given. It is removed by shrinkage in shifted blocks of
    cosines, or by a penalised linear fit, whichever has the smaller risk by Stein's unbiased
    estimate. `fit` does the same if it finds noise and no encoding or penalty is given.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> steps = np.kron(np.random.default_rng(0).random((8, 8)), np.ones((16, 16)))
    >>> noisy = steps + 0.1 * np.random.default_rng(1).standard_normal(steps.shape)
    >>> field = kf.denoise(noisy)
    >>> field.report.noise.method, round(field.report.noise.sigma[0], 2)
    ('shrinkage', 0.1)
    >>> bool(np.std(field.on_grid() - steps) < 0.04)
    True

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        As in `fit`.
    axes : sequence of D arrays, optional
        As in `fit`. Shrinkage treats all neighbours equally, whatever their distance.
    noise : float or sequence of C floats, optional
        The standard deviation of the noise, in the units of the values. By default it is measured;
        noise that depends on the signal is found too. Noise that neighbours share, as in JPEG
        pictures, is not found: give its standard deviation.
    mask : array of bool, optional
        True where a sample is missing: it is filled in.
    periodic : sequence of D floats or None, or dict, optional
        The period of each axis, as in `fit`.
    channels : bool, optional
        Whether the last axis holds channels, as in `fit`.
    thorough : bool
        Whether more and larger groups of similar patches follow shrinkage: more accurate, two to
        five times as slow.
    settings : Settings, optional
        Other decisions than `kronfield.fitting.settings.DEFAULT`, for experiments.

    Returns
    -------
    Field
        ``field.report.noise`` has the noise, how it was removed, and the expected error. If no
        noise is found, the field passes through all samples and a `NoiseWarning` says why.

    See Also
    --------
    fit : Does the same if it finds noise, and interpolates if not.
    """
    started = time.perf_counter()
    if not isinstance(thorough, bool):
        raise problem("thorough", repr(thorough), "True or False", "True is slower and better.")
    if is_lazy(values):
        from kronfield.lazy.grid import denoise_lazy

        lazy = denoise_lazy(
            values,
            axes,
            noise=noise,
            mask=mask,
            periodic=periodic,
            channels=channels,
            thorough=thorough,
            settings=settings,
        )
        _warn_of_no_noise(lazy, noise)
        return lazy
    _refuse_lazy(mask=mask)
    given = labelled_grid(values, axes, None, mask, channels)
    values, missing = split_mask(given.values, given.mask)
    grid = GridInput(
        values,
        given.axes,
        None,
        None,
        given.channels,
        periodic=periodic,
        missing=missing,
        labels=given.labels,
    )
    options = GridOptions.checked(
        noise=noise,
        channels=grid.channel_count,
        denoise=True,
        thorough=thorough,
        settings=settings,
    )
    field = _fitted(grid, options, started).with_labels(given.labels)
    _warn_of_no_noise(field, noise)
    return field


def _warn_of_no_noise(field: Field, noise: Any) -> None:
    """Warn if noise was to be found and removed, but there is none."""
    report = field.report
    if report is not None and report.noise is None and noise is None:
        warnings.warn(
            "values: no noise was found, so nothing was removed. If you know of some, pass noise=, "
            f"its standard deviation. What was looked at: {report.chosen_by}.",
            NoiseWarning,
            stacklevel=4,
        )


def _refuse_lazy(**others: Any) -> None:
    """Raise an error for an array of Dask or zarr beside values in memory."""
    for name, value in others.items():
        if is_lazy(value):
            raise problem(
                name,
                f"an array of Dask or zarr, of shape {getattr(value, 'shape', '')}",
                "an array in memory, as the values are",
                f"Load it first: {name}.compute(), or of zarr {name}[...].",
            )


def _check_ends(grid: GridInput) -> None:
    """Raise an error if ends were asked for where samples are fitted as points."""
    if any(grid.ends) and (grid.missing is not None or grid.weights is not None):
        raise problem(
            "ends",
            "ends beside a mask or weights",
            "all samples of a grid, with equal weights",
            "Ends are those of splines through all samples; leave the other out.",
        )


def _apply_weights(grid: GridInput, ridge: Any, noise: Any, rcond: Any) -> Any:
    """Turn weights of 0 into gaps, drop equal weights, and return the ridge to use then.

    With equal weights c, the minimum of c |residual|^2 + ridge |coefficients|^2 is that of
    |residual|^2 + (ridge / c) |coefficients|^2.
    """
    if grid.weights is None:
        return ridge
    if noise is not None or rcond is not None:
        raise problem(
            "weights",
            "weights beside noise or rcond",
            "weights alone",
            "Weights are one over the variance of the noise; leave the other out.",
        )
    none = grid.weights == 0
    if none.any():
        known = grid.missing
        gaps = known if known is None or known.ndim == none.ndim else known.any(axis=-1)
        grid.missing = none if gaps is None else none | gaps
    rest = grid.weights[~none]
    if float(rest.min()) < float(rest.max()):
        return ridge
    grid.weights = None
    return ridge / float(rest[0]) if isinstance(ridge, int | float) and ridge > 0 else ridge


def _fitted(grid: GridInput, options: GridOptions, started: float) -> Field:
    """Return the field of checked input."""
    missing, seam = grid.missing, grid.layout.seam
    # only the fit of points can use weights
    if missing is None and (options.loss == "huber" or grid.weights is not None):
        missing = np.zeros(grid.layout.shape, dtype=bool)
    if missing is not None:
        field = _fit_the_rest(grid, missing, options, started)
        gaps = missing if missing.ndim == len(grid.layout.shape) else missing.any(axis=-1)
        gaps = gaps if seam is None else seam.opened(np.asarray(gaps))
        return field.with_places(GridPlaces(np.logical_not(gaps) if gaps.any() else None))
    choice = _choice(grid, options)
    rcond = choice.rcond if options.rcond is None else options.rcond
    fitted = GridFit(grid.layout, choice, rcond, options.settings.grid)
    if grid.encoding is not None:
        warn_of_rank(fitted.solver)
    field = fitted.field(grid, choice.chosen_by, choice.candidates, started, choice.clean)
    if grid.encoding is None and options.interpolates and isinstance(field.report, FitReport):
        field.report.measure_held_out_by(GridHeldOut(grid, options))
    return field.with_places(GridPlaces())


def _rank_limit(rank: Any, rank_error: Any) -> RankLimit | None:
    """Return the checked limit of the rank; tensor trains are loaded only if one is given."""
    if rank is None and rank_error is None:
        return None
    from kronfield.fitting.low_rank import RankLimit

    return RankLimit.checked(rank, rank_error)


def _low_rank(grid: GridInput, options: GridOptions, limit: RankLimit, started: float) -> Field:
    """Return the field of checked input whose weights are a tensor train."""
    from kronfield.field.low_rank import check_factors
    from kronfield.fitting.low_rank import LowRankFit

    layout = grid.layout
    if grid.missing is not None or grid.weights is not None:
        raise problem(
            "rank",
            "a rank beside a mask or weights",
            "all samples of a grid, with equal weights",
            "Fill the gaps first: kf.fit(kf.fit(values, mask=mask).on_grid(), rank=...).",
        )
    first, *rest = layout.shape
    planes = grid.channel_count * (2 if layout.is_complex else 1)
    check_factors(first, math.prod(rest) * planes, with_matrix=True)
    choice = _choice(grid, options)
    rcond = choice.rcond if options.rcond is None else options.rcond
    fitted = GridFit(layout, choice, rcond, options.settings.grid)
    cleaned = None
    if choice.smoothing is not None or choice.removal is not None or not options.interpolates:
        cleaned = _Cleaned(fitted)
    exact = choice
    if cleaned is not None and grid.encoding is None:
        plain = replace(options, ridge=None, roughness=None, noise=np.zeros(()))
        exact = choose(cleaned(grid), grid.axes, layout.frames, plain)
    solver = _solver(exact.encoding, layout, layout.dtype, exact.smooth, rcond=exact.rcond)
    by = choice.chosen_by

    def report(grid: GridInput, residual: Callable[[], float], text: str) -> FitReport:
        plain_fit = GridFit(
            layout, replace(exact, removal=None, clean=None), rcond, options.settings.grid
        )
        return plain_fit.report(grid, f"{by}; {text}", choice.candidates, started, residual)

    found = LowRankFit(layout, exact.encoding, solver, limit, cleaned, report).field(grid)
    return found.with_places(GridPlaces())


@record(eq=False)
class _Cleaned:
    """Evaluates a penalised or denoised fit at the samples of a grid."""

    fit: GridFit

    def __call__(self, grid: GridInput) -> Array:
        """Return planar values (C, N_1, ..., N_D) at the samples."""
        field = self.fit.field(grid, "", [], time.perf_counter())
        return GridInput.on(grid.layout, field.on_grid()).planar()


def _check_channels(grid: GridInput, options: GridOptions) -> None:
    """Raise an error if the planes of all channels and their judged samples exceed the memory.

    About ``crop_samples`` samples of every channel are judged, in JUDGED copies of float64.
    """
    layout = grid.layout
    if grid.channel_count == 1 and not layout.is_complex:
        return
    n = math.prod(layout.shape)
    judged = min(n, options.settings.grid.crop_samples) if grid.encoding is None else 0
    numbers = layout.dtype.itemsize * n + 8 * JUDGED * judged
    planes = grid.channel_count * (2 if layout.is_complex else 1)
    check_memory(
        "values",
        f"a fit of {grid.channel_count} channels of {' x '.join(map(str, layout.shape))} samples",
        float(planes * numbers),
        "Fit a few channels at a time, or parts of the grid.",
    )


def _choice(grid: GridInput, options: GridOptions) -> GridChoice:
    """Return the settings given, with the rest chosen from the data."""
    layout = grid.layout
    _check_channels(grid, options)
    if grid.encoding is None:
        return choose(grid.planar(), grid.axes, layout.frames, options)
    least_norm = (0,) * len(layout.shape)
    if options.may_smooth:
        solver = _solver(
            grid.encoding, layout, layout.dtype, least_norm, ridge=1.0, rcond=options.rcond
        )
        ridge, candidates = best_ridge(solver, grid.planar(), options.settings.smoothing)
        by = "generalised cross-validation"
        return GridChoice(grid.encoding, least_norm, by, candidates, ridge=ridge)
    return GridChoice(
        grid.encoding,
        least_norm,
        "given",
        [],
        ridge=options.ridge or 0.0,
        roughness=options.roughness_pair,
    )


@record(eq=False)
class _InUnits:
    """The axes of a grid in other units of length."""

    axes: list[Array]
    frames: tuple[Frame, ...]

    @classmethod
    def of(cls, layout: GridLayout, units: Sequence[float]) -> _InUnits:
        axes = [x / unit for x, unit in zip(layout.axes, units, strict=True)]
        frames = [f.in_units(unit) for f, unit in zip(layout.frames, units, strict=True)]
        return cls(axes, tuple(frames))


def _solver(
    encoding: Kronecker,
    place: GridLayout | Refinement | _InUnits,
    dtype: np.dtype[Any],
    smooth: tuple[int, ...],
    *,
    ridge: float = 0.0,
    roughness: tuple[float, float] = (0.0, 0.0),
    rcond: float | None = None,
) -> GridSolver:
    """Return the solver for samples, or for the finer lattice that is filled from them."""
    if rcond is None:  # a ridge has the effect of leaving out small singular values
        rcond = 0.0 if ridge else math.sqrt(np.finfo(dtype.type).eps)
    return GridSolver(
        encoding,
        place.frames,
        place.axes,
        dtype=dtype,
        ridge=ridge,
        roughness=roughness,
        smooth=smooth,
        rcond=rcond,
    )


class GridFit:
    """The fit of values on a grid, with every setting. Call it to fit other values there.

    It holds no values. A pickle holds only the settings; axes are factored again at the next use.
    """

    # pickles of earlier versions have none
    _in_pieces: tuple[bool, ...] | None = None

    def __init__(
        self,
        layout: GridLayout,
        choice: GridChoice,
        rcond: float | None,
        decisions: GridSettings,
    ) -> None:
        self._longest, self._most_removed = decisions.longest_basis, decisions.most_removed
        self._longest_halves = decisions.longest_halves
        self.layout, self.encoding = layout, choice.encoding
        self.smoothing, self.smooth = choice.smoothing, choice.smooth
        self.removal, self.noise = choice.removal, choice.noise
        roughness = choice.roughness
        if choice.smoothing is not None and not self.is_long:
            # this pair determines the basis, which all channels share; each has its own weights
            roughness = choice.smoothing.roughness[0]
        self._settings: dict[str, Any] = {
            "ridge": choice.ridge,
            "roughness": roughness,
            "rcond": rcond,
        }
        finer, pieces = choice.finer, choice.pieces
        self._refined = None if finer is None else (finer.finer, finer.directional, finer.settings)
        self._in_pieces = None if pieces is None else pieces.finer
        self.__dict__["finer"], self.__dict__["pieces"] = finer, pieces

    @property
    def is_long(self) -> bool:
        """Whether an axis is too long for its eigenbasis."""
        if any(frame.wraps for frame in self.layout.frames):
            return False
        return is_long(self.layout.axes, self._longest, self._longest_halves)

    @functools.cached_property
    def _line(self) -> LongLine | None:
        """The smoothed splines of a long uneven line, whose equations are a band."""
        (embedder, *_), axes = self.encoding.embedders, self.layout.axes
        if self.smoothing is None or not self.is_long or len(axes) > 1:
            return None
        if not isinstance(embedder, BSpline):
            return None
        return LongLine(embedder, axes[0], self.layout.frames[0])

    @functools.cached_property
    def finer(self) -> Refinement | None:
        """The finer lattice that slopes from the data fill, if there is one."""
        layout = self.layout
        return (
            None
            if self._refined is None
            else Refinement.of(layout.axes, layout.frames, *self._refined)
        )

    @functools.cached_property
    def pieces(self) -> CubicPieces | None:
        """The cubic pieces with slopes from the data on uneven axes, if there are any."""
        layout = self.layout
        return (
            None
            if self._in_pieces is None
            else CubicPieces.of(layout.axes, layout.frames, self._in_pieces)
        )

    def _check_memory(self) -> None:
        """Raise an error if a penalised fit does not fit into memory.

        The eigenbasis of an axis takes about EIGENBASIS matrices of its features and samples at its
        peak, or HALVED in two halves, and then KEPT beside the weights. They are float64. A fit in
        cosines takes COSINES arrays of the samples instead. A line with a band matrix takes little.
        """
        if not (self._settings["ridge"] or self.smoothing or any(self._settings["roughness"])):
            return
        if self.is_long and self.smoothing is not None:
            if len(self.layout.shape) > 1:
                numbers = COSINES * math.prod(self.layout.shape)
                self._refuse_penalty(float(self.layout.dtype.itemsize * numbers))
            return
        most = kept = 0.0
        for embedder, x, frame in zip(
            self.encoding.embedders, self.layout.axes, self.layout.frames, strict=True
        ):
            low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
            halved = in_halves(embedder, x) and is_mirrored(embedder, frame.unit(x), low, high)
            matrix = 8.0 * embedder.size * len(x)
            most = max(most, (HALVED if halved else EIGENBASIS) * matrix)
            kept = max(kept, (KEPT / 2 if halved else KEPT) * matrix)
        itemsize = self.layout.dtype.itemsize if self._is_well_conditioned else 8
        weights = itemsize * math.prod(self.encoding.shape)  # of one channel
        self._refuse_penalty(max(most, kept + weights))

    def _refuse_penalty(self, needed: float) -> None:
        shape = " x ".join(map(str, self.layout.shape))
        check_memory(
            "values",
            f"a penalised fit of {shape} samples",
            needed,
            "Fit parts of the grid, or without a penalty: ridge=0 or noise=0.",
        )

    def _check_weights(self, planes: int) -> None:
        """Raise an error if the weights of all real ``planes`` do not fit into memory.

        SOLVED arrays of the weights are held, and a copy of values that are moved into planes.
        """
        own = self.layout.dtype.itemsize
        itemsize = own if self._is_well_conditioned else 8
        shape = self.encoding.shape
        moved = own * math.prod(self.layout.shape) if planes > 1 else 0
        check_memory(
            "values",
            f"a fit with {' x '.join(map(str, shape))} features and {planes} real channels",
            float(planes * (SOLVED * itemsize * math.prod(shape) + moved)),
            "Fit parts of the grid or some of the channels, use fewer features, or float32 values.",
        )

    @functools.cached_property
    def solver(self) -> GridSolver:
        """The factored axes."""
        self._check_memory()
        place: GridLayout | Refinement | _InUnits = self.finer or self.layout
        if self.smoothing is not None:
            place = _InUnits.of(self.layout, self.smoothing.units)
        return _solver(self.encoding, place, self.layout.dtype, self.smooth, **self._settings)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("finer", "pieces", "solver", "_line")
        }

    def without_samples(self) -> GridFit:
        """Return the part of this that a pickled field keeps: all of it."""
        return self

    def __call__(self, values: Any) -> Field:
        """Return the field of other values on the same grid."""
        started = time.perf_counter()
        return self.field(
            GridInput.on(self.layout, values), "given, as in an earlier fit", [], started
        )

    @property
    def _is_well_conditioned(self) -> bool:
        """Whether weights need no higher precision than the samples, as with cubic splines."""
        lines = [
            emb.embedder if isinstance(emb, Wrapped) else emb for emb in self.encoding.embedders
        ]
        return all(
            isinstance(emb, TensionSpline) or (isinstance(emb, BSpline) and emb.degree <= 3)
            for emb in lines
        )

    def _weights(self, values: Array) -> Array:
        """Return the weights of planar values (C, N_1, ..., N_D)."""
        smoothing = self.smoothing
        if self.pieces is not None:
            return self.pieces(values)
        if smoothing is None:
            stored = self.layout.dtype if self._is_well_conditioned else np.float64
            return self.solver.solve(values, dtype=stored)
        if not self.is_long:
            return self.solver.solve(
                values, smoothing.roughness, smoothing.rotation, self.layout.dtype
            )
        # decorrelated channels; a line takes little memory
        dtype = self.layout.dtype if values.ndim > 2 else np.dtype(np.float64)
        planes = np.tensordot(
            smoothing.rotation.astype(dtype), values.astype(dtype, copy=False), axes=1
        )
        sigmas = smoothing.sigmas or (math.inf,) * len(planes)
        most = [self._most_removed * sigma for sigma in sigmas]
        parts = zip(planes, smoothing.roughness, most, strict=True)
        if self._line is not None:
            weights = np.stack([self._line.smoothed(p, r, m, LOWERED) for p, r, m in parts])
        else:
            pairs = zip(self.layout.axes, smoothing.units, strict=True)
            steps = [mean_step(x) / unit if len(x) > 1 else 1.0 for x, unit in pairs]
            weights = self.solver.solve(
                np.stack([_long_smooth(p, steps, r, m) for p, r, m in parts])
            )
        joined = np.tensordot(smoothing.rotation.T, weights, axes=1)
        return joined.astype(self.layout.dtype, copy=False)

    def field(
        self,
        grid: GridInput,
        chosen_by: str,
        candidates: list[Candidate],
        started: float,
        clean: Array | None = None,
    ) -> Field:
        """Make the field and its report. With a finer lattice, the field holds the samples.

        ``clean`` are the values without noise, if they are known already.
        """
        noisy = grid
        if self.removal is not None:
            if clean is None:
                clean = self.removal(grid.planar(), self.layout.dtype)
            grid = grid.without_noise(clean)
        field = self._field(grid, chosen_by, candidates, started)
        if self.removal is not None and field.report is not None:
            field.report.measure_residual_by(NoiseResidual(noisy, grid))
        if self.noise is not None:
            field.set_origin(self, GridUncertainty(self))
        return field

    def _field(
        self, grid: GridInput, chosen_by: str, candidates: list[Candidate], started: float
    ) -> Field:
        encoding, layout = self.encoding, self.layout
        if self.finer is not None:
            samples = RefinedSamples.of(grid, self.finer, self.solver)
            of_samples = RefinedResidual(samples)
            report = self.report(grid, chosen_by, candidates, started, of_samples)
            return RefinedField(samples, report=report, again=self)
        self._check_weights(grid.channel_count * (2 if self.layout.is_complex else 1))
        with np.errstate(over="ignore", invalid="ignore"):  # `wrap_up` checks
            if grid.piecewise and self.smoothing is None:
                weights = np.stack([self._weights(plane[None])[0] for plane in grid.planar()])
            else:
                # passed without a local name, so that the array can be freed early
                weights = self._weights(grid.planar())
        if grid.shares(weights):
            weights = weights.copy()  # the field's own
        residual = GridResidual(encoding, weights, layout.frames, grid)
        report = self.report(grid, chosen_by, candidates, started, residual)
        return wrap_up(
            encoding,
            weights,
            layout.frames,
            layout.shown_axes,
            channels=layout.channels,
            is_complex=layout.is_complex,
            dtype=layout.dtype,
            report=report,
            again=self,
        )

    def report(
        self,
        grid: GridInput,
        chosen_by: str,
        candidates: list[Candidate],
        started: float,
        residual: Callable[[], float],
    ) -> FitReport:
        """Return the report of a fit; ``residual`` is called only when the report needs it."""
        layout, embedders = self.layout, self.encoding.embedders
        if self._line is not None or self.pieces is not None:  # no axis need be factored
            methods, ridge = ["banded"] * len(embedders), 0.0
            ranks = [one.size for one in embedders]
        else:
            methods, ranks, ridge = self.solver.methods, self.solver.ranks, self.solver.ridge
        return FitReport(
            samples=layout.shape,
            channels=grid.channel_count,
            embedders=embedders,
            frames=layout.frames if self.finer is None else self.finer.frames,
            axes=layout.given_axes,
            methods=methods,
            ranks=ranks,
            ridge=ridge,
            roughness=self._roughness(),
            units=None if self.smoothing is None else self.smoothing.units,
            chosen_by=chosen_by,
            candidates=candidates,
            refined=self.finer is not None or self.pieces is not None,
            degrees_of_freedom=self._freedom(),
            noise=self.noise,
            seconds=time.perf_counter() - started,
            measure_residual=residual,
        )

    def _roughness(self) -> tuple[float, float]:
        """Return the roughness, or that of the decorrelated channel that varies most."""
        if self.pieces is not None:
            return 0.0, 0.0
        if self.smoothing is None:
            return self.solver.roughness
        return self.smoothing.roughness[self.smoothing.leading]

    def _freedom(self) -> float:
        """Return the trace of the hat matrix, per channel; on long axes with reflecting ends."""
        n = float(math.prod(self.layout.shape))
        if self.smoothing is None:  # slopes from the data pass through every sample
            exact = self.finer is not None or self.pieces is not None
            return n if exact else self.solver.degrees_of_freedom
        if not self.is_long:
            parts = self.smoothing.roughness
            return float(np.mean([self.solver.freedom(part) for part in parts]))
        if self._line is not None:
            return float(np.mean([self._line.freedom(part) for part in self.smoothing.roughness]))
        from kronfield.solvers.points.lattice import lattice_freedom

        axes = _InUnits.of(self.layout, self.smoothing.units).axes
        return float(np.mean([lattice_freedom(axes, r) for r in self.smoothing.roughness]))


def _long_smooth(
    plane: Array, steps: Sequence[float], roughness: tuple[float, float], most: float
) -> Array:
    """Return the smoothed values of a lattice with a long axis.

    The weight was chosen in windows, for a penalty without mixed derivatives. The part that it
    removes from all samples must not exceed the noise (Morozov, 1966): the weight is lowered until
    the root mean square of the difference is at most ``most``.
    """
    from kronfield.solvers.points.lattice import smooth_lattice

    # a constant has no roughness; without it float32 loses no digits
    level = plane.dtype.type(np.mean(plane, dtype=np.float64))
    plane = plane - level
    for _ in range(LOWERED):
        smoothed = smooth_lattice(plane, steps, roughness)
        removed = math.sqrt(float(np.mean(np.square(plane - smoothed, dtype=np.float64))))
        if removed <= most:
            break
        roughness = (roughness[0] / 10, roughness[1] / 10)
    smoothed += level
    return smoothed


@record(eq=False)
class GridUncertainty:
    """Standard errors of a penalised fit to a noisy grid, with the penalty as prior (Wahba, 1983).

    The posterior covariance at the samples is sigma^2 H for the hat matrix H. In the basis of the
    fit it is diagonal, and the variance at x is sigma^2 sum_k kept_k r_k(x)^2 for the functions r_k
    of the basis.
    """

    fit: GridFit

    def without_samples(self) -> GridUncertainty:
        """Return itself: it holds no samples."""
        return self

    def deviations(self, points: Array, noise: float | None, samples: int, seed: int) -> Array:
        """Return the standard errors (P, C) of the channels at points (P, D)."""
        del samples, seed  # it is exact
        smoothing = self.fit.smoothing
        if smoothing is None or self.fit.is_long:
            adaptive = "shrinkage or slopes along edges, which are not linear in the values"
            raise problem(
                "standard_error",
                adaptive if smoothing is None else "a long axis",
                "a penalised fit in the eigenbasis of its axes",
                "Use field.report.noise.expected_error, the expected error at the samples.",
            )
        solver = self.fit.solver
        sigmas = (noise,) * len(smoothing.weights) if noise is not None else smoothing.sigmas
        assert sigmas is not None  # a penalty chosen for noise holds its sigmas
        unit = float(np.max(sigmas)) or 1.0  # so that squares neither under- nor overflow
        strengths = solver.strengths()
        kept = np.stack([solver.filter_of(strengths, 0.0, r) for r in smoothing.roughness])
        rest, frames = math.prod(kept.shape[2:]), self.fit.layout.frames
        size = max(1, POINT_NUMBERS // max(rest, *solver.encoding.shape))
        found = []
        for start in range(0, max(len(points), 1), size):
            some = points[start : start + size]
            axes = zip(solver.encoding.embedders, frames, solver.bases, some.T, strict=True)
            squares = [
                apply(basis.back.T, emb(frame.unit(x)), 1) ** 2 for emb, frame, basis, x in axes
            ]
            found.append(np.stack([_contracted(plane, squares) for plane in kept], axis=1))
        # of decorrelated channels (P, C)
        variances = np.concatenate(found) * np.square(np.asarray(sigmas) / unit)
        return unit * np.sqrt(np.maximum(variances @ smoothing.rotation**2, 0.0))


def _contracted(kept: Array, squares: Sequence[Array]) -> Array:
    """Return the sums (P,) over the basis of ``kept`` times the product of squares along axes."""
    total = squares[0] @ kept.reshape(len(kept), -1)  # (P, r_2 ... r_D)
    for rows in squares[1:]:
        total = np.einsum("pr,pra->pa", rows, total.reshape(len(rows), rows.shape[1], -1))
    return total[:, 0]


@record(eq=False)
class GridResidual:
    """The root mean square of value minus fit at the samples of a grid, computed when called."""

    encoding: Kronecker
    planes: Array
    frames: tuple[Frame, ...]
    grid: GridInput

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return the residual, in the units of the values."""
        values = self.grid.planar()
        units = [frame.unit(axis) for frame, axis in zip(self.frames, self.grid.axes, strict=True)]
        blocks = grid_blocks(self.encoding, self.planes, units, [0] * len(units))
        return grid_residual(values, blocks)


@record(eq=False)
class GridHeldOut:
    """The errors of held-out samples in the middle of a grid, predicted from every second one."""

    grid: GridInput
    options: GridOptions

    def __call__(self) -> dict[str, float]:
        """Return the root mean square errors of the field, of linear and of cubic interpolation."""
        from scipy.interpolate import make_interp_spline

        grid, layout, settings = self.grid, self.grid.layout, self.options.settings.grid
        if any(frame.wraps for frame in layout.frames):
            return {}
        middle = centre(layout.shape, settings.held_out_samples)
        # an odd number on each axis, so that the last sample is known too: no extrapolation
        ends = [part.indices(n)[:2] for part, n in zip(middle, layout.shape, strict=True)]
        parts = [slice(low, high - (high - low + 1) % 2) for low, high in ends]
        axes = [x[part] for x, part in zip(grid.axes, parts, strict=True)]
        if min(map(len, axes)) < settings.fewest_held_out:
            return {}
        values = np.moveaxis(grid.planar()[(slice(None), *parts)], 0, -1).astype(np.float64)
        split = Split.of(values.shape[:-1])
        known, at = split.known(values), split.axes(axes)
        found = {"field": self._fitted(known, at).on_grid(axes)}
        for name, degree in (("linear", 1), ("cubic", 3)):
            filled = known
            for axis, (x, new) in enumerate(zip(at, axes, strict=True)):
                filled = make_interp_spline(x, filled, k=degree, axis=axis)(new)
            found[name] = filled
        return {
            name: math.sqrt(float(np.mean((one - values)[split.held_out] ** 2)))
            for name, one in found.items()
        }

    def _fitted(self, known: Array, axes: list[Array]) -> Field:
        """Return the fit of other samples with the options that were given."""
        options, noise = self.options, None
        if options.noise is not None:
            sigma = np.atleast_1d(options.noise)
            # complex channels are two planes
            noise = np.repeat(sigma, known.shape[-1] // len(sigma)).tolist()
        return fit(
            known,
            axes,
            channels=True,
            noise=noise,
            ridge=options.ridge,
            roughness="gcv" if options.asks_for_gcv else None,
            ends=list(options.ends) if any(options.ends) else None,
            settings=options.settings,
        )


@record(eq=False)
class NoiseResidual:
    """The root mean square of the noise that was removed before the fit, computed when called."""

    noisy: GridInput
    clean: GridInput

    def __call__(self) -> float:
        """Return the residual, in the units of the values."""
        clean = self.clean.planar()
        return grid_residual(self.noisy.planar(), [(slice(None), clean)])


def _fit_the_rest(grid: GridInput, missing: Array, asked: GridOptions, started: float) -> Field:
    """Fit the samples that are not missing, as points."""
    layout = grid.layout
    if missing.ndim > len(layout.shape):
        missing = np.asarray(missing.any(axis=-1))
    if missing.shape != layout.shape:
        raise problem(
            "mask",
            f"shape {missing.shape}",
            f"{layout.shape}, the grid",
            "True where a sample is missing.",
        )
    if asked.asks_for_gcv:
        raise problem(
            "roughness",
            "gcv beside a mask or Huber's loss",
            "two numbers",
            "Leave it out: a penalty is chosen by cross-validation.",
        )
    lattice = None
    if grid.encoding is None:
        # grids without gaps do not need it
        from kronfield.fitting.point_grids import even_lattice

        lattice = even_lattice(grid.axes)
    if lattice is not None and missing.any():
        _check_gaps(grid, missing, asked.settings)
    remark, about = "", None
    if asked.denoise or np.any(asked.noise):
        # imported here: `denoise_with_gaps` fills the gaps by `fit` first
        from kronfield.fitting.denoised_gaps import denoise_with_gaps

        found, why, about = denoise_with_gaps(grid, missing, asked, started)
        if found is not None:
            return found
        remark = f"; {why}"
    # grids without gaps do not need it
    from kronfield.fitting.points import fit_checked

    options = PointOptions.checked(
        len(layout.shape),
        ridge=asked.ridge,
        roughness=asked.roughness,
        settings=asked.settings,
        loss=asked.loss,
    )
    filler = None
    if lattice is not None and not options.is_robust and grid.weights is None:
        # imported here: a filled lattice is fitted by `fit`
        from kronfield.fitting.filled import LatticeFiller

        filler = LatticeFiller.of_grid(grid, missing, options, started)
        filled = None if filler is None else filler.holes()
        if filled is not None:
            return filled
    periods = [frame.period for frame in layout.frames]
    if any(periods):  # a lattice ends; splines and hats on a circle do not
        lattice = None
    points, rest = grid.at(~missing)
    domain = [(frame.low, frame.high) for frame in layout.frames]
    given = PointInput(
        points, rest, grid.weights_at(~missing), domain, grid.encoding, periodic=periods
    )
    given.dropped = int(missing.sum())
    if options.is_robust:
        given.numbers = grid.numbers(~missing)
    # the error of a solver that stops early shows in the gaps
    loosest = options.settings.points.tolerance
    field = fit_checked(
        given, lattice, options, started, layout.frames, loosest=loosest, filler=filler
    )
    if remark and field.report is not None:
        field.report.chosen_by += remark
        field.report.noise = about
    field = field.with_axes(layout.shown_axes)
    if lattice is not None and options.is_robust and options.penalty is None:
        return _by_squares(grid, missing, asked, field, started)
    return field


def _by_squares(
    grid: GridInput, missing: Array, asked: GridOptions, robust: Field, started: float
) -> Field:
    """Return a fit by squares without the outliers of a ``robust`` fit, if values have no noise.

    All samples but the outliers are then in the quadratic part of Huber's loss, so that both are
    the same fit, and all ways to fill gaps are open.
    """
    report: Any = robust.report
    found: RobustReport = report.robust
    if not found.interpolates or grid.weights is not None:
        return robust
    without = missing.copy()
    without.reshape(-1)[list(found.outliers)] = True
    if not without.any() or without.all():
        return robust
    field = _fit_the_rest(grid, without, replace(asked, loss="squared"), started)
    report = field.report
    report.robust = found
    report.chosen_by += f"; {len(found.outliers)} outliers were found by Huber's loss first"
    return field.with_refit(RobustRefit(robust))


@record(eq=False)
class RobustRefit:
    """Weighs the samples of other values on the same grid anew, as the ``robust`` fit did."""

    robust: Field

    def __call__(self, values: Any) -> Field:
        """Return the field of other values by Huber's loss."""
        return self.robust.refit(values)

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples(
            "refit",
            "the field that fit returned",
            "Call fit with the values and loss='huber'.",
        )


def _check_gaps(grid: GridInput, missing: Array, settings: Settings) -> None:
    """Raise an error if the rest of an even grid is not fitted in memory.

    What surfaces through holes need beside this is known when they are computed.
    """
    layout, count = grid.layout, int(np.count_nonzero(missing))
    planes = grid.channel_count * (2 if layout.is_complex else 1)
    of_sample = planes * (IN_GAPS * layout.dtype.itemsize + OF_PLANE) + OF_PLANE
    if len(layout.shape) == 1:
        of_sample += OF_LINE[count > settings.filling.holes * missing.size]
    check_memory(
        "values",
        f"a fit of {' x '.join(map(str, layout.shape))} samples of which {count} are missing",
        float(of_sample * missing.size + OF_GAP * min(count, missing.size - count)),
        "Fit parts of the grid, or a few channels at a time.",
    )


def warn_of_rank(solver: GridSolver) -> None:
    """Warn if singular values were left out, unless a ridge exceeds their squares."""
    if any(solver.smooth) or (solver.ridge and solver.ridge >= solver.cut_off**2):
        return
    for i, (rank, emb, axis) in enumerate(
        zip(solver.ranks, solver.encoding.embedders, solver.axes, strict=True)
    ):
        full = min(emb.size, len(axis))
        if rank < full:
            warnings.warn(
                f"axis {i}: {emb!r} has effective rank {rank} of {full} on {len(axis)} samples at "
                f"rcond={solver.cut:g}; the fit is the one of least norm and does not meet all "
                "samples. Use a narrower width (of Fourier features a larger scale or exponent), "
                "another embedder, or a ridge.",
                RankWarning,
                stacklevel=4,
            )
