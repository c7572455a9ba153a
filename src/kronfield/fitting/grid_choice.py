"""The choices of `fit` on a grid: whether to smooth, and how to interpolate between samples.

1. Are the samples noisy? See `noise`. If they are, or if the caller says so, a roughness penalty is
   chosen by cross-validation, or by Stein's unbiased risk if the noise is given: see `smoothing`.
2. If not, every spline family predicts each sample of an axis from the others, and so do cubics
   with slopes from the data: see `prediction`. Slopes are chosen unless splines are clearly better.
3. Where slopes are chosen, they are taken along the axes, or along the direction in which the
   values change least if that predicts better: see `slopes` and `directional`.

Interpolation is judged on a central crop of a large array; noise on a crop and windows of its own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame, centre, is_even, sample_frame, smallest_gap
from kronfield._core.records import record
from kronfield.encoding import Kronecker
from kronfield.fitting.ends import RULES
from kronfield.fitting.left_out import spread
from kronfield.fitting.noise import Noise, decorrelated, find_noise, no_noise
from kronfield.fitting.options import GridOptions
from kronfield.fitting.periods import whole_circles
from kronfield.fitting.pieces import CubicPieces
from kronfield.fitting.prediction import (
    RCOND,
    AnyFamily,
    AxisErrors,
    SplineFamily,
    leave_one_out,
    leave_one_out_of_all,
)
from kronfield.fitting.report import Candidate, RemovedNoise
from kronfield.fitting.settings import GridSettings, PredictionSettings, Settings
from kronfield.fitting.slopes import Refinement, along_axes, along_edges
from kronfield.fitting.smoothing import Smoothing, best_smoothing, is_long
from kronfield.fitting.splines import tension_encoding

# Modules that remove noise are imported only if noise is found, which saves time in other fits.
if TYPE_CHECKING:
    from kronfield.fitting.denoising import Removal, Removed, Smoothed

# No spline with knots at the samples resolves gaps smaller than this fraction of their mean:
# rounding of the positions at both ends of the gap changes the slope across it by 1e-8 of itself.
NEARLY = 1e-8
# A prediction multiplies the rounding errors of its samples by at most this factor, or on an uneven
# axis by this factor times that of independent errors.
AMPLIFIED = 8.0
# The least error of a prediction of values scaled to 1: smaller ones are rounding.
ROUNDING = 1e-14


class NoiseFound(Exception):  # noqa: N818 - it is no error
    """There is noise in values of which only the middle is in memory: it is chosen anew on that."""


@record
class GridChoice:
    """An encoding, a penalty, and how they were found.

    Attributes
    ----------
    encoding : Kronecker
        The features; with ``finer``, those of the finer lattice.
    smooth : tuple of int
        How weights continue past the last sample on each axis: see `GridSolver`.
    chosen_by : str
        How the choice was made, in words.
    candidates : list of Candidate
        Every setting that was tried.
    finer : Refinement or None
        The finer lattice that slopes from the data fill.
    pieces : CubicPieces or None
        The cubics with slopes from the data, if an axis is uneven.
    smoothing : Smoothing or None
        The roughness of each decorrelated channel, if it was chosen.
    ridge, roughness : float, (float, float)
        A penalty that was given, or a ridge that was chosen.
    rcond : float or None
        Where singular values count as zero; None for the default.
    removal : Removal, Smoothed or None
        How noise is removed before the fit: by shrinkage, or by a penalised fit where slopes along
        edges follow it.
    clean : array (C, N_1, ..., N_D) or None
        The values after ``removal``.
    noise : RemovedNoise or None
        The noise, how it is removed, and the error that is expected.
    """

    encoding: Kronecker
    smooth: tuple[int, ...]
    chosen_by: str
    candidates: list[Candidate]
    finer: Refinement | None = None
    pieces: CubicPieces | None = None
    smoothing: Smoothing | None = None
    ridge: float = 0.0
    roughness: tuple[float, float] = (0.0, 0.0)
    rcond: float | None = None
    removal: Removal | Smoothed | None = None
    clean: Array | None = None
    noise: RemovedNoise | None = None


@record(eq=False)
class Crop:
    """The middle of a grid as float64 (C, N_1, ..., N_D), centred and scaled to at most 1.

    So the choice depends neither on the unit of the values nor on a constant added to them.
    """

    values: Array
    axes: list[Array]
    scale: float
    sizes: Array  # (C,): largest value of each channel before centring, over ``scale``
    eps: float  # the relative rounding error of the values
    levels: Array | float = 0.0  # (C, 1, ..., 1): what was subtracted, over ``scale``

    @functools.cached_property
    def _ranges(self) -> Array:
        """The largest deviation of each channel from its mean; 1 of a constant one."""
        sizes = _largest(self.values)
        return np.where(sizes > 0, sizes, 1.0)

    @functools.cached_property
    def balanced(self) -> Array:
        """The values with every channel scaled to at most 1: units of channels do not count."""
        return self.values / self._ranges.reshape(-1, *[1] * len(self.axes))

    @functools.cached_property
    def rounding(self) -> float:
        """Mean squared errors of `balanced` below this value are due to rounding of the values."""
        parts = AMPLIFIED * self.eps * self.sizes / self._ranges
        return max(ROUNDING**2, float(np.mean(parts**2)))

    def rounded(self, spreads: Sequence[Array], axis: int | None = None) -> Array:
        """Return the mean squared error of a field of `balanced` due to rounding of the values.

        ``spreads`` has for each axis the variance (N,) that an error of each sample causes. Those
        of ``axis`` are left out: the result (N,) has a part for each of its samples.
        """
        shape = (-1, *[1] * len(self.axes))
        found = np.mean(((self.values + self.levels) / self._ranges.reshape(shape)) ** 2, axis=0)
        for i in range(len(spreads) - 1, -1, -1):
            if i != axis:
                found = np.tensordot(found, spreads[i], (i, 0))
        return self.eps**2 * np.asarray(found)

    @classmethod
    def of(cls, values: Array, axes: Sequence[Array], samples: int) -> Crop:
        """Return the central crop of about ``samples`` samples; short axes stay whole."""
        parts = centre([len(axis) for axis in axes], samples)
        crop = np.array(values[(slice(None), *parts)], dtype=np.float64)  # changed in place
        sizes = _largest(crop)
        largest = float(sizes.max()) or 1.0
        crop /= largest
        levels = crop.mean(axis=tuple(range(1, crop.ndim)), keepdims=True)
        crop -= levels
        rest = float(_largest(crop).max()) or 1.0
        crop /= rest
        inside = [axis[part] for axis, part in zip(axes, parts, strict=True)]
        eps = float(np.finfo(np.result_type(values.dtype, np.float32)).eps)
        return cls(crop, inside, largest * rest, sizes / largest / rest, eps, levels / rest)


def _largest(values: Array) -> Array:
    """Return the largest absolute value of each channel (C, ...), without a copy of the values."""
    rest = tuple(range(1, values.ndim))
    return np.maximum(values.max(axis=rest), -values.min(axis=rest))


def choose(
    values: Array, axes: Sequence[Array], frames: Sequence[Frame], options: GridOptions
) -> GridChoice:
    """Return the encoding and penalty for planar values (C, N_1, ..., N_D) on sorted axes."""
    if not options.interpolates:
        second_only = not options.roughness_pair[0] and options.roughness_pair[1] > 0
        tension = options.settings.smoothing.tensions[int(second_only)]
        encoding = tension_encoding(axes, frames, tension)
        return GridChoice(
            encoding,
            (2,) * len(axes),
            f"given, with {_kinds(axes)}",
            [],
            ridge=options.ridge or 0.0,
            roughness=options.roughness_pair,
        )
    some = _judged_channels(len(values), axes, options.settings.prediction)
    # noise is found in every channel, the rest is chosen on some of many
    seen = values if options.may_smooth else values[some]
    crop = Crop.of(seen, axes, options.settings.grid.crop_samples)
    close = any(
        _nearly_coincide(x if frame.period is None else np.append(x, x[0] + frame.period))
        for x, frame in zip(axes, frames, strict=True)
    )

    @functools.cache
    def errors() -> list[AxisErrors | None]:
        """Judge every axis, if a decision needs it."""
        if close:
            return [None] * len(axes)
        if not any(frame.wraps for frame in frames):
            judged = crop.balanced[some] if options.may_smooth else crop.balanced
            return leave_one_out_of_all(judged, crop.axes, options.settings.prediction)
        return [
            _axis_errors(crop, i, axes[i], frames[i], options.settings) for i in range(len(axes))
        ]

    if any(options.ends):
        if close:
            raise problem(
                "axes",
                "positions that nearly coincide, beside ends",
                "gaps of more than 1e-8 of their mean",
                "Merge these samples, or leave ends out.",
            )
        return _asked_for(crop, errors(), axes, frames, options)
    remark = ""
    if options.may_smooth:
        noise = _noise(values, axes, crop, errors, options)
        smoothed = _smoothed(values, crop, axes, frames, noise, options)
        if isinstance(smoothed, GridChoice):
            return smoothed
        remark = f"; {smoothed}" if smoothed else ""
    if close:
        encoding = tension_encoding(axes, frames, options.settings.smoothing.tensions[0])
        by = f"default: {_kinds(axes)}, since positions nearly coincide"
        return GridChoice(encoding, (2,) * len(axes), by, [])
    return _interpolation(crop, errors(), values, axes, frames, options, remark)


def _judged_channels(C: int, axes: Sequence[Array], settings: PredictionSettings) -> Any:
    """Return an index of the channels that are predicted: all, or some of many, spread evenly."""
    enough = settings.most_judged // max(len(x) for x in axes)
    most = max(settings.most_channels, enough)
    return slice(None) if most >= C else spread(C, most)


def _axis_errors(
    crop: Crop, axis: int, x: Array, frame: Frame, settings: Settings
) -> AxisErrors | None:
    """Return how well each family predicts samples along one axis."""
    inside, decisions = crop.axes[axis], settings.prediction
    if not frame.wraps:
        return leave_one_out(crop.balanced, axis + 1, inside, decisions)
    from kronfield.fitting.circles import circle_errors

    whole = len(inside) == len(x)
    return circle_errors(crop.balanced, axis + 1, inside, frame, whole, decisions)


def _kinds(axes: Sequence[Array]) -> str:
    """Return the features of `tension_encoding` on these axes, in words."""
    even = [is_even(axis) for axis in axes]
    if all(even):
        return "splines in tension"
    return "cubic splines on uneven axes, splines in tension" if any(even) else "cubic splines"


def _nearly_coincide(x: Array) -> bool:
    """Tell whether gaps are so small that a spline through both samples has huge slopes."""
    return len(x) > 1 and smallest_gap(x) < NEARLY * float(x[-1] - x[0]) / len(x)


def _noise(
    values: Array,
    axes: Sequence[Array],
    crop: Crop,
    errors: Callable[[], Sequence[AxisErrors | None]],
    options: GridOptions,
) -> Noise:
    """Return the given noise, or else the noise found in the values."""
    C = len(values)
    if options.noise is not None:
        rotation, _ = decorrelated(crop.values, options.settings.noise)
        given = np.atleast_1d(options.noise)
        sigma = np.repeat(given, C // len(given))  # complex channels are two planes
        unit = float(sigma.max()) or 1.0  # so that squares neither under- nor overflow
        # the standard deviation of a mix of channels with independent noise
        sigmas = unit * np.sqrt(rotation**2 @ (sigma / unit) ** 2)
        is_noisy = bool(np.any(sigma > 0))
        reason = "noise was given" if is_noisy else ""  # of 0, as also between denoised samples
        return Noise(sigma, sigmas, rotation, 1.0, is_noisy, reason, is_given=True)
    if options.asks_for_gcv:
        return find_noise(values, options.settings.noise, positions=axes)
    # No prediction has a smaller error than the noise of the sample that is predicted.
    least = max((math.sqrt(one.squares.min()) for one in errors() if one is not None), default=1.0)
    if least < options.settings.noise.least_part:
        return no_noise(C, f"no noise: samples predict each other to {least:.1g} of the largest")
    found = find_noise(values, options.settings.noise, positions=axes)
    largest = np.abs(crop.values).reshape(C, -1).max(axis=1) * crop.scale
    parts = np.divide(found.sigma, largest, out=np.zeros(C), where=largest > 0)
    # few samples of an uneven axis are predicted: their error may be small by chance
    chance = max(
        (
            one.chance
            for one, x in zip(errors(), crop.axes, strict=True)
            if one is not None and not is_even(x)
        ),
        default=1.0,
    )
    if found.is_found and float(np.mean(parts**2)) > chance * least**2:
        reason = f"no noise: samples predict each other to {least:.2g} of the largest, which no "
        return no_noise(C, f"{reason}prediction of noisy samples does")
    if options.only_middle:  # it has no ends of the range
        return found
    if found.is_found:
        from kronfield.fitting.stabilising import whole_noise

        return whole_noise(values, found, options.settings.noise)
    if options.denoise:
        from kronfield.fitting.stabilising import find_varying_noise

        return find_varying_noise(values, found, crop.scale, options.settings.noise)
    return found


def _smoothed(
    values: Array,
    crop: Crop,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    noise: Noise,
    options: GridOptions,
) -> GridChoice | str:
    """Return the penalised fit if there is noise and it lowers the risk, or if it was asked for.

    Else return why the samples are interpolated.
    """
    if not noise.is_found and not options.asks_for_gcv:
        return noise.reason
    if options.only_middle:
        raise NoiseFound
    # noise that was measured is not known to better than some per cent: cross-validation does not
    # need it, and no penalty is then too weak because noise was stronger than it seemed
    sigmas = noise.sigmas / crop.scale if noise.is_given else None
    tried = best_smoothing(
        values, axes, noise.rotation, sigmas, crop.scale, options.settings.smoothing
    )
    best = min(tried, key=lambda one: one.score)
    if best.score >= best.interpolation and sigmas is not None:
        return noise.reason
    stein = "Stein's unbiased risk"
    by = "generalised cross-validation" if sigmas is None else stein
    plain = Candidate("interpolation", {}, tried[0].interpolation)
    candidates = [plain, *(replace(one.candidate(), chosen=one is best) for one in tried)]
    decided = by if options.asks_for_gcv else f"{by}; {noise.reason}"
    known = None if options.asks_for_gcv else tuple(float(sigma) for sigma in noise.sigmas)
    linear = GridChoice(
        tension_encoding(axes, frames, best.tension, thinned=True),
        (2,) * len(axes),
        decided,
        candidates,
        smoothing=replace(best, sigmas=known),
    )
    if options.asks_for_gcv:
        return linear
    from kronfield.fitting.denoising import compared

    removed = compared(
        values,
        axes,
        noise,
        best,
        unit=crop.scale,
        may_vary=options.noise is None,
        thorough=options.thorough,
        settings=options.settings,
        wraps=whole_circles(axes, frames),
    )
    if removed.removal is None:
        about = _about(noise, "a penalised fit", removed)
        linear = replace(linear, candidates=[*candidates, *removed.candidates], noise=about)
        return _along_edges_of_smoothed(values, crop, best, linear, axes, frames, options)
    is_asked = options.noise is not None or options.denoise
    if removed.outliers > options.settings.noise.most_outliers and not is_asked:
        far = f"{options.settings.noise.outlying:g} standard deviations"
        return (
            f"no noise: {removed.outliers:.1%} of the samples would change by more than {far} of "
            f"{float(np.max(noise.sigma)):.3g}"
        )
    return _shrunk(values, axes, frames, noise, removed, f"{stein}; {noise.reason}", options)


def _along_edges_of_smoothed(
    values: Array,
    crop: Crop,
    best: Smoothing,
    linear: GridChoice,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    options: GridOptions,
) -> GridChoice:
    """Return the penalised fit, or slopes along edges between the samples that it smooths.

    A penalised fit is smooth between the samples too. Where smoothed samples have edges, these are
    sharper along their direction. They are looked for in a small part of the samples first.
    """
    decisions = options.settings.grid
    is_whole = len(axes) > 1 and all(map(is_even, axes))
    if options.denoise or not is_whole or any(frame.wraps for frame in frames):
        return linear
    if is_long(axes, decisions.longest_basis, decisions.longest_halves):
        return linear
    from kronfield.fitting.denoising import Smoothed

    plain = replace(options, noise=np.zeros(()))
    part = centre(crop.values.shape[1:], decisions.direction_samples)
    inside = tuple(x[some] for x, some in zip(crop.axes, part, strict=True))
    seen = Smoothed(best, inside)(crop.values[(slice(None), *part)])
    if not _is_along_edges(choose(seen, inside, [sample_frame(x) for x in inside], plain)):
        return linear
    removal = Smoothed(best, tuple(axes))
    clean = removal(values, np.result_type(values.dtype, np.float32))
    chosen = choose(clean, axes, frames, plain)
    if not _is_along_edges(chosen):
        return linear
    return replace(
        chosen,
        chosen_by=f"{linear.chosen_by}; between the samples: {chosen.chosen_by}",
        candidates=[*linear.candidates, *chosen.candidates],
        removal=removal,
        clean=clean,
        noise=linear.noise,
    )


def _is_along_edges(choice: GridChoice) -> bool:
    return choice.finer is not None and choice.finer.is_along_edges


def _about(noise: Noise, method: str, removed: Removed) -> RemovedNoise:
    from kronfield.fitting.denoising import expected_error

    error = expected_error(removed.risk, noise.sigma)
    stabilised = removed.removal is not None and removed.varies
    sigma = tuple(map(float, noise.sigma))
    return RemovedNoise(sigma, method, error, stabilised, removed.cut_off)


def _shrunk(
    values: Array,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    noise: Noise,
    removed: Removed,
    decided: str,
    options: GridOptions,
) -> GridChoice:
    """Return the interpolation of the values that are left after shrinkage."""
    assert removed.removal is not None
    clean = removed.removal(values, np.result_type(values.dtype, np.float32))
    chosen = choose(clean, axes, frames, replace(options, noise=np.zeros(())))
    method = "groups of alike patches" if options.thorough else "shrinkage"
    return replace(
        chosen,
        chosen_by=f"{decided}; between the samples: {chosen.chosen_by}",
        candidates=[*removed.candidates, *chosen.candidates],
        removal=removed.removal,
        clean=clean,
        noise=_about(noise, method, removed),
    )


def _asked_for(
    crop: Crop,
    errors: Sequence[AxisErrors | None],
    axes: Sequence[Array],
    frames: Sequence[Frame],
    options: GridOptions,
) -> GridChoice:
    """Return splines with the given ends; on axes without, the family is chosen."""
    families: list[AnyFamily] = []
    for rule, one, x, frame in zip(options.ends, errors, axes, frames, strict=True):
        if rule in ("natural", "clamped", "reflect"):
            families.append(SplineFamily(3, RULES[rule]))
            continue
        if rule == "not-a-knot" and one is not None:
            able = [i for i, f in enumerate(one.families) if f.parameters.get("ends") == rule]
            kept = tuple(one.families[i] for i in able)
            one = replace(one, families=kept, squares=one.squares[able])
        families.append(_best_family(one, x, frame, options.settings.grid, crop.rounding))
    asked = ", ".join(rule or "chosen" for rule in options.ends)
    by = f"ends as given: {asked}; mean squared error of each sample predicted from the others"
    return _splines(families, axes, frames, by, _spline_candidates(errors, families))


def _splines(
    families: Sequence[AnyFamily],
    axes: Sequence[Array],
    frames: Sequence[Frame],
    decided: str,
    candidates: list[Candidate],
) -> GridChoice:
    """Return the choice of one family per axis."""
    pairs = zip(families, axes, frames, strict=True)
    encoding = Kronecker(*(family.embedder(axis, frame) for family, axis, frame in pairs))
    smooth = tuple(family.smooth for family in families)
    rcond = RCOND if any(one.kind == "Gaussians" for one in families) else None
    return GridChoice(encoding, smooth, decided, candidates, rcond=rcond)


def _interpolation(
    crop: Crop,
    errors: Sequence[AxisErrors | None],
    values: Array,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    options: GridOptions,
    remark: str,
) -> GridChoice:
    """Return slopes from the data, unless splines predict left-out samples clearly better."""
    settings = options.settings
    families = [
        _best_family(one, x, frame, settings.grid, crop.rounding)
        for one, x, frame in zip(errors, axes, frames, strict=True)
    ]
    families, rounded = _least_rounded(crop, errors, families)
    fewest = _fewest_for_slopes(axes, settings.grid)
    long = [len(axis) >= fewest for axis in axes]
    decided = "mean squared error of each sample predicted from the others (of values scaled to 1)"
    slopes: list[Candidate] = []
    preferred = 1.0
    finer: Refinement | CubicPieces | str = _never_slopes(fewest, axes, frames, options)
    if not finer:
        by_splines, by_slopes = _compared(errors, families, long)
        by_splines += rounded
        # with few samples errors may be small by chance, so slopes are preferred less
        chance = max((one.chance for one in errors if one is not None), default=1.0)
        # Along one axis, the mean over many lines is less left to chance. Along several axes slopes
        # may follow edges, which errors along axes do not show.
        lines = len(crop.values) if len(axes) == 1 else 1
        preferred = max(settings.grid.clearly ** (2 / math.sqrt(lines)) / chance, 1.0)
        slopes = _slope_candidates(errors, long)
        if by_splines > crop.rounding and by_slopes < preferred * by_splines:
            finer = _finer(values, axes, frames, long, settings)
    if isinstance(finer, str):
        candidates = _spline_candidates(errors, families) + slopes
        return _splines(families, axes, frames, decided + finer + remark, candidates)
    decided += f"; slopes unless splines have an error {math.sqrt(preferred):.3g} times smaller"
    if isinstance(finer, CubicPieces):
        candidates = _spline_candidates(errors) + _slope_candidates(errors, long, chosen=True)
        smooth = (0,) * len(axes)
        decided += remark
        return GridChoice(finer.encoding, smooth, decided, candidates, pieces=finer)
    return _along_edges_or_axes(crop, finer, errors, decided + remark, settings)


def _best_family(
    errors: AxisErrors | None,
    x: Array,
    frame: Frame,
    settings: GridSettings,
    rounding: float,
) -> AnyFamily:
    """Return the first family whose error is not clearly larger than the least."""
    if errors is None and frame.wraps:
        from kronfield.fitting.circles import CircleFamily

        return CircleFamily(3)
    if errors is None:  # too short to leave out a sample: the polynomial through all of them
        return SplineFamily(min(3, len(x) - 1))
    squares = errors.expected
    # only families of these kinds may not fit an axis
    asked = [one for one in errors.families if one.kind in ("Gaussians", "trigonometric")]
    if asked and not asked[0].fits(x, frame):
        squares = np.where([one in asked for one in errors.families], math.inf, squares)
    least = max(settings.clearly**2 * errors.chance * float(squares.min()), rounding)
    best = int(np.flatnonzero(squares <= least)[0])
    return errors.families[next((i for i in range(best) if errors.is_rounding(i, rounding)), best)]


def _least_rounded(
    crop: Crop, errors: Sequence[AxisErrors | None], families: list[AnyFamily]
) -> tuple[list[AnyFamily], float]:
    """Return families with which rounding errors of the samples do not prevail, and what these add.

    Errors of predictions along one axis contain them. In a field they are multiplied by factors of
    all axes, which for high degrees on uneven axes can be 1e6 and more each. If they prevail, the
    sum of both mean squared errors is lowered by lower degrees, on one axis after the other.
    """
    splines = [one for one in families if isinstance(one, SplineFamily)]
    uneven = any(one is not None and one.windows is not None for one in errors)
    if len(families) < 2 or not uneven or len(splines) < len(families):
        return families, 0.0
    squares, spreads = [], []
    for family, one, x in zip(splines, errors, crop.axes, strict=True):
        squares.append(0.0 if one is None else one.of(family))
        spreads.append(family.spreads(x))
    rounded = float(crop.rounded(spreads))
    axis, unchanged = 0, 0
    while rounded > sum(squares) and unchanged < len(splines):
        one, unchanged = errors[axis], unchanged + 1
        lower = SplineFamily(splines[axis].degree - 2)
        if one is not None and lower in one.families:
            own, square = lower.spreads(crop.axes[axis]), one.of(lower)
            changed = float(own @ crop.rounded(spreads, axis))
            if changed + square < rounded + squares[axis]:
                splines[axis], spreads[axis], squares[axis] = lower, own, square
                rounded, unchanged = changed, 0
        axis = (axis + 1) % len(splines)
    return list(splines), rounded


def _compared(
    errors: Sequence[AxisErrors | None], families: Sequence[AnyFamily], long: Sequence[bool]
) -> tuple[float, float]:
    """Return the sums over axes of the squared errors of splines and of slopes.

    Beside ``long`` axes, which have slopes, the others have splines in tension, which are nearly
    straight lines between samples.
    """
    splines = slopes = 0.0
    for one, family, more in zip(errors, families, long, strict=True):
        if one is not None:
            splines += one.of(family)
            slopes += one.slopes if more else one.of(SplineFamily(1))
    return splines, slopes


def _spline_candidates(
    errors: Sequence[AxisErrors | None], chosen: Sequence[AnyFamily] = ()
) -> list[Candidate]:
    """Return every family of every axis, those of ``chosen`` (one for each axis) marked."""
    return [
        Candidate(
            family.kind,
            {"axis": i, **family.parameters},
            score,
            chosen=bool(chosen) and family == chosen[i],
        )
        for i, one in enumerate(errors)
        if one is not None
        for family, score in zip(one.families, one.squares.tolist(), strict=True)
    ]


def _slope_candidates(
    errors: Sequence[AxisErrors | None], long: Sequence[bool], chosen: bool = False
) -> list[Candidate]:
    return [
        Candidate("slopes", {"axis": i}, one.slopes, chosen=chosen)
        for i, (one, more) in enumerate(zip(errors, long, strict=True))
        if more and one is not None
    ]


def _fewest_for_slopes(axes: Sequence[Array], settings: GridSettings) -> int:
    """Return the fewest samples of an axis on which slopes are taken from the data."""
    return settings.shortest_refined if all(map(is_even, axes)) else settings.shortest_uneven


def _never_slopes(
    fewest: int, axes: Sequence[Array], frames: Sequence[Frame], options: GridOptions
) -> str:
    """Return why no slopes are taken from the data, whatever the values are; empty if they may."""
    if options.is_low_rank:
        return "; slopes from the data have no low rank"
    if any(frame.wraps for frame in frames):
        return "; slopes from the data have no periodic form"
    if all(len(axis) < fewest for axis in axes):
        return f"; no axis has the {fewest} samples that slopes need"
    return ""


def _finer(
    values: Array,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    long: Sequence[bool],
    settings: Settings,
) -> Refinement | CubicPieces | str:
    """Return the finer lattice, or pieces, for slopes from the data; or why there is none."""
    finer: Refinement | CubicPieces | None
    if all(map(is_even, axes)):
        finer = Refinement.of(axes, frames, long, settings=settings.directional)
    else:
        finer = CubicPieces.of(axes, frames, long)
    if finer is None:
        return "; slopes need a domain that ends within a cell of the samples"
    nodes = values.shape[0] * math.prod(finer.shape)
    if nodes > settings.grid.most_nodes:
        return f"; slopes would take {nodes} numbers"
    return finer


def _along_edges_or_axes(
    crop: Crop,
    finer: Refinement,
    errors: Sequence[AxisErrors | None],
    decided: str,
    settings: Settings,
) -> GridChoice:
    """Return slopes along axes, mixed with the direction of least change if that predicts better.

    Both are judged by filling in every second sample: the direction needs all neighbours. The mix
    w edges + (1 - w) axes has the least squared error at w = (a - c) / (a + e - 2 c), for the mean
    squared errors a and e along axes and edges and the mean c of their products.
    """
    share, several = 0.0, sum(finer.finer) > 1
    candidates = _spline_candidates(errors) + _slope_candidates(
        errors, finer.finer, chosen=not several
    )
    if several:
        axes, edges, both = _halved_errors(_spread_boxes(crop, settings.grid), settings)
        if edges < axes:
            best = (axes - both) / (axes + edges - 2 * both)
            # to hundredths, so that rounding errors of a flipped grid do not change it
            share = round(min(1.0, settings.grid.edge_trust * best), 2)
        halves: dict[str, Any] = {"from": "every second sample"}
        shared = {**halves, "weight": share} if share else halves
        candidates += [
            Candidate("slopes along axes", halves, axes, chosen=not share),
            Candidate("slopes along edges", shared, edges, chosen=bool(share)),
        ]
    finer = replace(finer, directional=share)
    encoding = tension_encoding(finer.axes, finer.frames, settings.grid.fine_tension)
    return GridChoice(encoding, (2,) * len(finer.axes), decided, candidates, finer)


@record(eq=False)
class _Boxes:
    """Boxes of a crop: ``values`` (C, B, L_1, ..., L_D), and the axes of the whole crop."""

    values: Array
    axes: list[Array]


def _spread_boxes(crop: Crop, settings: GridSettings) -> _Boxes:
    """Return boxes spread over a crop, of about ``direction_samples`` samples in all.

    One part of a picture may have other edges than the rest, so axes of which only a part is judged
    have two boxes, around a quarter and three quarters of their length. An axis on which these
    would be too short to hold out every second sample has one box, in the middle.
    """
    fewest = 2 * settings.shortest_refined
    lengths = [len(x) for x in crop.axes]
    middle = centre(lengths, settings.direction_samples)
    sizes = [part.stop - part.start for part in middle]
    if min(sizes) < min(fewest, *lengths):
        return _Boxes(crop.values[:, None], crop.axes)
    sides = []
    for n, size, part in zip(lengths, sizes, middle, strict=True):
        half = size // 2
        if size == n or half < fewest:
            sides.append([part])
            continue
        # both boxes are equally far from the ends, so that a flipped grid has the same boxes
        start = (n // 2 - half) // 2
        sides.append([slice(start, start + half), slice(n - start - half, n - start)])
    boxes = [crop.values[(slice(None), *box)] for box in itertools.product(*sides)]
    return _Boxes(np.stack(boxes, axis=1), crop.axes)


def _halved_errors(boxes: _Boxes, settings: Settings) -> tuple[float, float, float]:
    """Return mean squared errors of held-out samples, filled in from every second one.

    They are the errors of slopes along axes, of slopes along edges, and the mean product of both.
    """
    fewest = settings.grid.shortest_refined
    halved = [n >= fewest for n in boxes.values.shape[2:]]
    # positions of a nearly even axis may be less even if every second one is left out
    for x, half in zip(boxes.axes, halved, strict=True):
        if half and not (is_even(x[::2]) and is_even(x[1::2])):
            return math.inf, math.inf, math.inf
    halves = _Halves.of(boxes.values, [False, *halved])
    a, e = (halves.errors(fill, settings) for fill in (along_axes, along_edges))
    axes, edges, both = (halves.mean(x * y) for x, y in ((a, a), (e, e), (a, e)))
    return axes, edges, both


@record(eq=False)
class _Halves:
    """Every second sample of a grid, starting at the first or the second sample of each axis.

    All combinations of starts are judged, so that a flipped grid gives the same result; a `Split`
    of `_core/frames` is one of them, that of the first samples, and has no boxes. Each
    combination is a box: every axis of the grid has a further axis of length 2 for its start, along
    which nothing is filled in. On an axis of odd length, the second start has one sample less.

    Attributes
    ----------
    known, truth : arrays (C, 2, ..., 2, L_1, ..., L_D) and (C, 2, ..., 2, M_1, ..., M_D)
        The known samples, and all samples from the first to the last known one, M = 2 L - 1. Axes
        that are not halved have one box.
    is_judged : array of bool (2, ..., 2, M_1, ..., M_D)
        Which samples of ``truth`` are held out.
    finer, shorter : tuples
        As in `fill_middles`.
    """

    known: Array
    truth: Array
    is_judged: Array
    finer: tuple[bool, ...]
    shorter: tuple[int | None, ...]

    @classmethod
    def of(cls, values: Array, halved: Sequence[bool]) -> _Halves:
        """Return the boxes of values (C, N_1, ..., N_D)."""
        D, known, truth = len(halved), values, values
        is_known, is_inside = np.ones((1,) * (2 * D), bool), np.ones((1,) * (2 * D), bool)
        shorter: list[int | None] = [None] * (2 * D)
        for i, (n, half) in enumerate(zip(values.shape[1:], halved, strict=True)):
            at = 1 + 2 * i  # the axes before it have boxes already
            if not half:
                known, truth = np.expand_dims(known, at), np.expand_dims(truth, at)
                continue
            count = (n + 1) // 2
            size = 2 * count - 1
            known = _side_by_side(known, at, [slice(s, None, 2) for s in (0, 1)], count)
            truth = _side_by_side(truth, at, [slice(s, s + size) for s in (0, 1)], size)
            node = np.arange(size)
            sizes = np.array([[size], [2 * (n // 2) - 1]])
            shape = [1] * (2 * D)
            shape[i], shape[D + i] = 2, size
            is_inside = is_inside & (node < sizes).reshape(shape)
            shape[i] = 1
            is_known = is_known & (node % 2 == 0).reshape(shape)
            shorter[D + i] = i if n % 2 else None
        turned = (0, *range(1, 2 * D, 2), *range(2, 2 * D + 1, 2))
        return cls(
            np.ascontiguousarray(known.transpose(turned)),
            truth.transpose(turned),
            is_inside & ~is_known,
            (*(False,) * D, *halved),
            tuple(shorter),
        )

    def errors(self, fill: Callable[..., Array], settings: Settings) -> Array:
        """Return the errors of the samples that are held out, and 0 for the others."""
        nodes = fill(self.known, self.finer, settings.directional, self.shorter)
        # the nodes past either end are not judged
        inner = tuple(slice(1, -1) if more else slice(None) for more in self.finer)
        return np.where(self.is_judged, nodes[(slice(None), *inner)] - self.truth, 0.0)

    def mean(self, products: Array) -> float:
        """Return the mean over the boxes of the means of their held-out samples."""
        D = len(self.finer) // 2
        inside = tuple(range(D, 2 * D))
        counts = np.broadcast_to(self.is_judged, products.shape[1:]).sum(axis=inside)
        sums = products.sum(axis=(0, *(1 + axis for axis in inside)))
        return float(np.mean(sums / (len(products) * counts)))


def _side_by_side(values: Array, axis: int, parts: Sequence[slice], size: int) -> Array:
    """Return parts of an axis as boxes, on a new axis in front of it.

    Where a part has fewer samples than ``size``, its last one is repeated.
    """
    lines = values.swapaxes(0, axis)
    boxes = np.empty((len(parts), size, *lines.shape[1:]))
    for box, part in zip(boxes, parts, strict=True):
        some = lines[part]
        box[: len(some)], box[len(some) :] = some, some[-1]
    return np.moveaxis(boxes.swapaxes(1, 1 + axis), 0, axis)
