"""Choosing what was left open: the encoding by held-out samples, the weight of a penalty by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, Frame, Split, sample_frame
from kronfield._core.threads import in_threads
from kronfield.embedders import TensionSpline
from kronfield.encoding import Kronecker
from kronfield.field.evaluation import grid_blocks
from kronfield.fitting.report import Candidate
from kronfield.fitting.slopes import Refinement
from kronfield.solvers.grid.separable import GridSolver, gcv_score

# Tensions tried, from cubic to nearly linear interpolation. A lattice twice as coarse has twice the
# tension per spacing. The error has one minimum over them: in all of 113 photographs, lines, clips
# and waves.
TENSIONS, TENSION = (0.05, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 24.0), 8.0
COARSER = 2.0
# Centres past each end: two reach half a cell beyond the last sample, which is all the domain goes.
PADDING = 2
# Samples in the crop on which settings are judged, and the fewest on an axis that can be halved.
CROP_SAMPLES, FEWEST = 1 << 16, 12
# Noise is taken for granted if a gradient penalty lowers generalised cross-validation below this
# part of interpolation's. Clean photographs stay above 0.93, white noise of a tenth of their range
# brings them to 0.87, smooth signals to 0.5.
NOISY = 0.92
# On a line neighbours are few, and rows of clean photographs go down to 0.75: one channel must be
# below this to be noisy.
NOISY_LINE = 0.75
# Noise is not taken for granted if what smoothing takes away is alike in all channels: texture is,
# noise is not.
SHARED = 0.5
# Channels compared at most, and the part of the largest below which one does not count.
MOST_COMPARED, ALIKE = 64, 1e-6
# Noise is not looked for where the error at the samples held out is below this, of values scaled to
# 1: 100 dB.
EXACT = 1e-10
# Axes longer than this are not smoothed unasked: the eigenbasis of one takes seconds.
LONGEST_SMOOTHED = 1024
# Samples of an axis on which a roughness is judged.
JUDGED = 400
# Slopes from the data are taken unless splines do better by this part, and by one over the root of
# the number of samples held out, for chance. Where they are judged the samples lie twice as far
# apart, which is harder on slopes than on splines: on photographs by 4 % on average, and 3 %
# decides right on nearly all.
CLEARLY = 0.03
# The tension between the nodes of the finer lattice that they fill, and the most numbers in it.
FINE_TENSION, MOST_NODES = 8.0, 1 << 26
# Features per sample that uneven axes may get, so that their narrowest gap is resolved.
MOST_FEATURES, ENOUGH_FEATURES = 4, 2048


@dataclass(frozen=True)
class GridChoice:
    """An encoding, a penalty, and how they were found; with ``finer``, the encoding is that of the finer lattice.

    ``smooth`` says how weights go on past the last sample: see `GridSolver`.
    """

    encoding: Kronecker
    roughness: tuple[float, float]
    smooth: int
    chosen_by: str
    candidates: list[Candidate]
    finer: Refinement | None = None
    ridge: float = 0.0


def choose(
    values: Array,
    axes: Sequence[Array],
    frames: Sequence[Frame],
    *,
    smoothing: bool,
    forced: bool,
    interpolating: bool = True,
) -> GridChoice:
    """Return the encoding and roughness for planar ``values`` (C, N_1, ..., N_D) on sorted ``axes``.

    Settings are judged on a central crop: fitted to every second sample of each axis, they predict
    the rest. With ``smoothing``, a roughness penalty is added if generalised cross-validation is
    clearly in its favour, or ``forced``. Without one, and if the fit is to be ``interpolating``,
    slopes are taken from the data unless splines predict clearly better.
    """
    crop, crop_axes = _crop(values, axes)
    split = Split.of(crop.shape[1:], FEWEST)
    if not any(split.halved):
        return GridChoice(
            tension_encoding(axes, frames, TENSION),
            (0.0, 0.0),
            2,
            "default: too few samples to hold any out",
            [],
        )
    held_out = _HeldOut(crop, crop_axes, split)
    splines = _best_splines(held_out, axes, frames)
    if smoothing:
        noise = _noise(held_out, splines, max(len(axis) for axis in axes), forced)
        if not isinstance(noise, str):
            best = min(noise, key=lambda one: one.score)
            candidates = [
                Candidate("interpolation", noise[0].interpolation),
                *(one.candidate for one in noise),
            ]
            return replace(
                splines.choice,
                roughness=best.roughness,
                chosen_by="generalised cross-validation",
                candidates=candidates,
            )
        splines = splines.with_remark(noise)
    if not interpolating:
        return splines.choice
    finer = _finer(values, axes, frames)
    if isinstance(finer, str):
        return splines.with_remark(finer).choice
    return splines.choice if splines.lowest < EXACT else _slopes_or(splines, held_out, finer)


@dataclass(frozen=True)
class _Splines:
    """The best splines, their error at the samples held out, and whether all axes are even."""

    choice: GridChoice
    tension: float
    lowest: float
    even: bool

    def with_remark(self, text: str) -> _Splines:
        """Return the same with more to say about how it was chosen."""
        return replace(self, choice=replace(self.choice, chosen_by=self.choice.chosen_by + text))


def _best_splines(held_out: _HeldOut, axes: Sequence[Array], frames: Sequence[Frame]) -> _Splines:
    """Return the splines whose tension, and whose way past the ends, predict the samples held out best."""
    tension, errors = _best_tension(held_out)
    candidates = [
        Candidate(f"tension {one:g}, straight past the ends", error)
        for one, error in sorted(errors.items())
    ]
    flat = Candidate(f"tension {tension:g}, flat past the ends", held_out.error(tension, 1))
    straight = min(one.score for one in candidates)
    encoding = tension_encoding(axes, frames, tension)
    decided = "mean squared error at the rest, from every second sample (of values scaled to 1)"
    smooth = 1 if flat.score < straight else 2
    choice = GridChoice(encoding, (0.0, 0.0), smooth, decided, [*candidates, flat])
    even = encoding.shape == tuple(len(axis) + 2 * PADDING for axis in axes)
    return _Splines(choice, tension, min(straight, flat.score), even)


def _slopes_or(splines: _Splines, held_out: _HeldOut, finer: Refinement) -> GridChoice:
    """Return slopes from the data on a finer lattice, unless splines predict clearly better."""
    error, choice = held_out.slopes_error(), splines.choice
    margin = 1 + CLEARLY + 1 / math.sqrt(held_out.rest.sum())
    taken = error < margin * splines.lowest
    candidates = [*choice.candidates, Candidate("slopes from the data", error, chosen=taken)]
    if not taken:
        return replace(choice, candidates=candidates)
    decided = (
        choice.chosen_by + f"; slopes from the data unless splines are {margin - 1:.1%} better"
    )
    encoding = tension_encoding(finer.axes, finer.frames, FINE_TENSION)
    return GridChoice(encoding, (0.0, 0.0), 2, decided, candidates, finer)


def _best_tension(held_out: _HeldOut) -> tuple[float, dict[float, float]]:
    """Return the tension of the lowest error, and the errors of those tried: downhill from the default, either way."""
    errors: dict[float, float] = {}

    def error(i: int) -> float:
        if TENSIONS[i] not in errors:
            errors[TENSIONS[i]] = held_out.error(TENSIONS[i], 2)
        return errors[TENSIONS[i]]

    at = TENSIONS.index(TENSION)
    for step in (-1, 1):
        while 0 <= at + step < len(TENSIONS) and error(at + step) < error(at):
            at += step
    return TENSIONS[at], errors


def _why_not_smooth(even: bool, lowest: float, longest: int) -> str:
    """Return why noise is not looked for, or nothing."""
    if not even:
        return "; noise was not looked for, since an axis is uneven"
    if lowest < EXACT:
        return "; it is so small that noise was not looked for"
    return (
        f"; noise was not looked for, since an axis has {longest} samples"
        if longest > LONGEST_SMOOTHED
        else ""
    )


def _noise(
    held_out: _HeldOut, splines: _Splines, longest: int, forced: bool
) -> list[Smoothing] | str:
    """Return the best roughness of either order if the samples are noisy or smoothing is ``forced``, else a remark."""
    crop, axes, tension = held_out.crop, held_out.axes, splines.tension
    skipped = "" if forced else _why_not_smooth(splines.even, splines.lowest, longest)
    if skipped:
        return skipped
    if forced:
        return in_threads(lambda order: best_roughness(crop, axes, tension, order), (1, 2))
    first = best_roughness(crop, axes, tension, 1)
    alone = len(axes) == 1 and first.independent == 1
    if first.score >= (NOISY_LINE if alone else NOISY) * first.interpolation:
        return ""
    if first.shared >= SHARED:
        return "; what smoothing would take away is alike in all channels, so it is kept as texture"
    if held_out.smoothing_error(tension) > splines.lowest:
        return ""
    return [first, best_roughness(crop, axes, tension, 2)]


def _finer(values: Array, axes: Sequence[Array], frames: Sequence[Frame]) -> Refinement | str:
    """Return the finer lattice for slopes from the data, or why there is none."""
    finer = Refinement.of(axes, frames, [len(axis) >= FEWEST for axis in axes])
    if finer is None:
        return "; slopes were not taken from the data, since an axis is uneven or ends within its domain"
    nodes = values.shape[0] * math.prod(finer.shape)
    if nodes > MOST_NODES:
        return f"; slopes were not taken from the data, since that would take {nodes} numbers"
    return finer


def tension_encoding(axes: Sequence[Array], frames: Sequence[Frame], tension: float) -> Kronecker:
    """Return splines in tension with a centre on every sample of an even axis, and more where gaps are uneven."""
    embedders = []
    for axis, frame in zip(axes, frames, strict=True):
        inside = len(axis)
        if inside > 1:
            most = max(MOST_FEATURES * inside, ENOUGH_FEATURES)
            # even but for rounding is even
            needed = min(frame.length / float(np.diff(axis).min()) * (1 - EVEN), most)
            inside = min(max(inside, math.ceil(needed)), most)
        embedders.append(TensionSpline(inside + 2 * PADDING, tension, padding=PADDING))
    return Kronecker(*embedders)


def _crop(values: Array, axes: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Return the central part of the grid, of about CROP_SAMPLES samples, as float64 copies."""
    D = len(axes)
    lengths = [len(axis) for axis in axes]
    side = max(2 * FEWEST, math.floor(CROP_SAMPLES ** (1 / D)))
    for _ in range(D):  # what short axes leave over goes to the long ones
        short = [n for n in lengths if n <= side]
        left = D - len(short)
        side = (
            max(side, math.floor((CROP_SAMPLES / max(math.prod(short), 1)) ** (1 / left)))
            if left
            else side
        )
    parts = [
        slice((n - min(n, side)) // 2, (n - min(n, side)) // 2 + min(n, side)) for n in lengths
    ]
    crop = np.asarray(values[(slice(None), *parts)], dtype=np.float64)
    # what is chosen depends neither on the unit of the values nor on a constant added to them
    crop = crop / (float(np.abs(crop).max()) or 1.0)
    crop = crop - crop.mean(axis=tuple(range(1, crop.ndim)), keepdims=True)
    crop = crop / (float(np.abs(crop).max()) or 1.0)
    return crop, [axis[part] for axis, part in zip(axes, parts, strict=True)]


class _HeldOut:
    """Every second sample of a crop, and the rest to predict."""

    def __init__(self, crop: Array, axes: Sequence[Array], split: Split) -> None:
        self.crop = crop
        self.axes = axes
        self.halved, self.rest = split.halved, split.held_out
        self.values = split.known(crop, planar=True)
        self.sub_axes = split.axes(axes)
        self.frames = [sample_frame(axis) for axis in self.sub_axes]

    def slopes_error(self) -> float:
        """Return the mean squared error of cubics with slopes from the data at the samples held out."""
        finer = Refinement.of(self.sub_axes, self.frames, self.halved)
        if finer is None:  # every second position of an axis that is all but even may be less so
            return math.inf
        # the node before the first sample is not one of the crop's; what of the crop lies past the
        # last node is not judged
        nodes = tuple(slice(1, None) if more else slice(None) for more in finer.finer)
        found = finer(self.values)[(slice(None), *nodes)]
        part = tuple(slice(n) for n in found.shape[1:])
        found = found[(slice(None), *(slice(n) for n in self.crop.shape[1:]))]
        return float(np.mean((found - self.crop[(slice(None), *part)])[:, self.rest[part]] ** 2))

    def _error(self, encoding: Kronecker, weights: Array) -> float:
        units = [frame.unit(axis) for frame, axis in zip(self.frames, self.axes, strict=True)]
        total = 0.0
        for rows, block in grid_blocks(encoding, weights, units, [0] * len(units)):
            total += float(np.sum((block - self.crop[:, rows])[:, self.rest[rows]] ** 2))
        return total / (self.crop.shape[0] * int(self.rest.sum()))

    def error(self, tension: float, smooth: int) -> float:
        """Return the mean squared error of interpolation at the samples held out."""
        encoding = tension_encoding(self.sub_axes, self.frames, COARSER * tension)
        return self._error(
            encoding,
            GridSolver(encoding, self.frames, self.sub_axes, smooth=smooth).solve(self.values),
        )

    def smoothing_error(self, tension: float) -> float:
        """Return the least mean squared error of a smoothing fit at the samples held out."""
        encoding = tension_encoding(self.sub_axes, self.frames, COARSER * tension)

        def error(order: int) -> float:
            roughness = best_roughness(
                self.values, self.sub_axes, COARSER * tension, order
            ).roughness
            solver = GridSolver(encoding, self.frames, self.sub_axes, roughness=roughness)
            return self._error(encoding, solver.solve(self.values))

        return min(in_threads(error, (1, 2)))


@dataclass(frozen=True)
class Smoothing:
    """The best roughness of one order, its score, and the score of interpolation, by generalised cross-validation.

    ``shared`` is how alike what it takes away is in all channels, as a mean correlation, and
    ``independent`` how many of them are not multiples of each other: a grey picture stored as
    colours has one.
    """

    roughness: tuple[float, float]
    score: float
    interpolation: float
    shared: float
    independent: int

    @property
    def candidate(self) -> Candidate:
        """What it is among others that were tried."""
        return Candidate(
            f"roughness ({self.roughness[0]:.3g}, {self.roughness[1]:.3g})", self.score
        )


def best_roughness(values: Array, axes: Sequence[Array], tension: float, order: int) -> Smoothing:
    """Return the roughness of one order that minimises generalised cross-validation."""
    middle = [
        slice(max(0, len(axis) - JUDGED) // 2, max(0, len(axis) - JUDGED) // 2 + JUDGED)
        for axis in axes
    ]
    values, axes = (
        values[(slice(None), *middle)],
        [axis[part] for axis, part in zip(axes, middle, strict=True)],
    )
    frames = [sample_frame(axis) for axis in axes]
    unit = (1.0, 0.0) if order == 1 else (0.0, 1.0)
    solver = GridSolver(tension_encoding(axes, frames, tension), frames, axes, roughness=unit)
    coefficients = solver.coefficients(np.asarray(values, dtype=np.float64))
    energy, total = _energy(coefficients, values)
    strengths = solver.strengths()
    # in units of the mean cell
    cells = ((frame.high - frame.low) / len(axis) for frame, axis in zip(frames, axes, strict=True))
    scale = math.prod(cell ** (2 * order / len(axes)) for cell in cells)

    def score(exponent: float) -> float:
        weight = scale * 10.0**exponent
        return gcv_score(
            energy,
            total,
            solver.filter_of(strengths, 0.0, (unit[0] * weight, unit[1] * weight)),
            values,
        )

    best = _minimise(score, -6.0, 6.0)
    weight = scale * 10.0**best
    roughness = (unit[0] * weight, unit[1] * weight)
    taken = (1 - solver.filter_of(strengths, 0.0, roughness)) * coefficients
    return Smoothing(roughness, score(best), score(-6.0), *_alike(taken.reshape(len(taken), -1)))


def _alike(rows: Array) -> tuple[float, int]:
    """Return the mean correlation of rows with each other, whatever its sign, and how many of them are independent.

    The basis is orthonormal at the samples, so these are correlations of what is taken away there.
    Rows that are nearly zero do not count: those of a constant channel are rounding. Rows that are
    multiples of one are one: correlation 0.
    """
    rows = rows[:: math.ceil(len(rows) / MOST_COMPARED)]
    norms = np.sqrt(np.sum(rows**2, axis=1))
    rows = rows[norms > ALIKE * norms.max()] if norms.max() else rows[:1]
    unit = rows / np.maximum(
        np.sqrt(np.sum(rows**2, axis=1, keepdims=True)), np.finfo(np.float64).tiny
    )
    products = unit @ unit.T
    independent = int(np.sum(np.linalg.eigvalsh(products) > ALIKE * len(unit)))
    if independent <= 1:
        return 0.0, 1
    return float(np.mean(np.abs(products[~np.eye(len(unit), dtype=bool)]))), independent


def best_ridge(solver: GridSolver, values: Array) -> tuple[float, list[Candidate]]:
    """Return the ridge that minimises generalised cross-validation (0 if less is always better), and what was tried."""
    values = np.asarray(values, dtype=np.float64)
    scaled = values / (float(np.abs(values).max()) or 1.0)
    energy, total = _energy(solver.coefficients(scaled), scaled)
    strengths, strongest = (
        solver.strengths(),
        math.prod(float(basis.strength[0]) for basis in solver.bases) ** 2,
    )

    def score(exponent: float) -> float:
        return gcv_score(
            energy, total, solver.filter_of(strengths, strongest * 10.0**exponent), values
        )

    exponents = np.arange(-14.0, 2.5, 0.5)
    scores = np.array(in_threads(score, exponents.tolist()))
    candidates = [
        Candidate(f"ridge {strongest * 10.0**e:.3g}", float(one))
        for e, one in zip(exponents, scores, strict=True)
    ]
    # features that do not overlap at the samples make every ridge score alike: then the least is
    # taken
    best = int(np.argmax(scores <= scores.min() * (1 + EVEN)))
    return (0.0 if best == 0 else strongest * 10.0 ** float(exponents[best])), candidates


def _energy(coefficients: Array, values: Array) -> tuple[Array, float]:
    return np.sum(coefficients**2, axis=0), float(np.sum(np.square(values, dtype=np.float64)))


def _minimise(score: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum on a grid of exponents, refined around the best."""
    step = 0.5
    grid = np.arange(low, high + step, step)
    best = float(grid[int(np.argmin(in_threads(score, grid.tolist())))])
    for _ in range(4):
        step /= 2
        best = min((best - step, best, best + step), key=score)
    return best
