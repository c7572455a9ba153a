"""Noisy samples with gaps: fill the gaps and remove the noise.

The gaps are filled by a fit of the known samples. Then noise is removed from all samples, the gaps
are filled with the result, and so on (Guleryuz, 2006: iterated denoising): every round denoises the
known samples beside better neighbours. Some known samples are hidden, to test whether the result
predicts them better than the penalised fit with which the rounds begin.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import centre, mean_step
from kronfield._core.records import record
from kronfield.field import Field
from kronfield.fitting import shrinkage
from kronfield.fitting.denoising import Removal, expected_error, groups_after
from kronfield.fitting.grid import GridFit, fit
from kronfield.fitting.grid_choice import choose
from kronfield.fitting.inputs import GridInput, GridLayout
from kronfield.fitting.lone import noise_bar
from kronfield.fitting.noise import Noise, find_noise
from kronfield.fitting.options import GridOptions
from kronfield.fitting.periods import whole_circles
from kronfield.fitting.report import Candidate, RemovedNoise
from kronfield.fitting.settings import NoiseSettings, Settings

# The seed of the choice of hidden samples: results are the same every time.
SEED = 0


@record(eq=False)
class GapsDenoiser:
    """Removes noise from samples with gaps; denoises other values with the same gaps too.

    Attributes
    ----------
    layout : GridLayout
        The grid.
    missing : array of bool (N_1, ..., N_D)
        The gaps, in the order of rising positions.
    noise : Noise
        As it was found or given.
    settings : Settings
        The decisions.
    thorough : bool
        Whether more and larger groups of similar patches follow, in the last round.
    """

    layout: GridLayout
    missing: Array
    noise: Noise
    settings: Settings
    thorough: bool

    def without_samples(self) -> GapsDenoiser:
        """Return the part of this that a pickled field keeps: all of it."""
        return self

    def __call__(self, values: Any) -> Field:
        """Return the field of other values on the same grid, with the same gaps."""
        started = time.perf_counter()
        rising = tuple(slice(None, None, -1) if f else slice(None) for f in self.layout.flips)
        gaps = self.missing[rising]
        gaps = gaps[..., None] if self.layout.channels else gaps
        array = np.asarray(values)
        if array.shape[: len(self.layout.shape)] == self.layout.shape and array.ndim == gaps.ndim:
            array = np.where(gaps, array.dtype.type(0), array)  # gaps may hold NaN
        grid = GridInput.on(self.layout, array)
        return self.field(grid, "given, as in an earlier fit", [], math.nan, started)

    def field(
        self,
        grid: GridInput,
        chosen_by: str,
        candidates: list[Candidate],
        error: float,
        started: float,
    ) -> Field:
        """Return the field of a grid after its gaps are filled and its noise is removed."""
        clean = self.cleaned(np.asarray(grid.planar(), dtype=np.float64), self.missing)
        clean = clean.astype(self.layout.dtype)
        options = GridOptions(ridge=0.0, settings=self.settings)
        choice = choose(clean, self.layout.axes, self.layout.frames, options)
        method = "groups of alike patches" if self.thorough else "shrinkage"
        about = RemovedNoise(tuple(map(float, self.noise.sigma)), method, error)
        fitted = GridFit(
            self.layout, replace(choice, noise=about), choice.rcond, self.settings.grid
        )
        by = f"{chosen_by}; between the samples: {choice.chosen_by}"
        every = [*candidates, *choice.candidates]
        field = fitted.field(grid.without_noise(clean), by, every, started)
        field.set_origin(self, None)
        report: Any = field.report
        report.filled = int(self.missing.sum())
        return field

    def cleaned(self, planes: Array, missing: Array, found: Array | None = None) -> Array:
        """Return planes (C, N_1, ..., N_D) without noise and gaps.

        ``found`` is the result of `started`, if it is known already.
        """
        unit = _largest(planes, missing)  # so that squares neither under- nor overflow
        noise = replace(self.noise, sigma=self.noise.sigma / unit, sigmas=self.noise.sigmas / unit)
        found = (self.started(planes, missing) if found is None else found) / unit
        planes = planes / unit
        removal = Removal.of(found, noise, settings=self.settings)
        if missing.shape == self.layout.shape:  # a window is no circle
            removal = replace(removal, wraps=whole_circles(self.layout.axes, self.layout.frames))
        rounds = self.settings.shrinkage.gap_rounds
        groups = groups_after(missing.ndim, len(planes), self.thorough, self.settings)
        bar = noise_bar(planes.size, self.settings.shrinkage.lone_chance)
        for i in range(rounds):
            is_last = i == rounds - 1
            last = replace(removal, groups=groups, bar=bar) if is_last else removal
            found = last(np.where(missing, found, planes))
        return found * unit

    def started(self, planes: Array, missing: Array) -> Array:
        """Return the penalised fit of the known samples, at all samples."""
        unit = _largest(planes, missing)
        shape, pads = missing.shape, [0] * missing.ndim
        axes = list(self.layout.axes) if shape == self.layout.shape else None
        if axes is not None:
            # each end of a circle is followed by samples of the other end
            circles = whole_circles(axes, self.layout.frames)
            reach = shrinkage.margin(shape, self.settings.shrinkage)
            pads = [min(reach, n) if one else 0 for one, n in zip(circles, shape, strict=True)]
            axes = [_longer(x, pad) for x, pad in zip(axes, pads, strict=True)]
        around = [(pad, pad) for pad in pads]
        gaps = np.pad(missing, around, mode="wrap")
        planes = np.pad(planes, [(0, 0), *around], mode="wrap")
        values = np.moveaxis(np.where(gaps, 0.0, planes / unit), 0, -1)
        start = fit(values, axes, channels=True, mask=gaps, settings=self.settings)
        inside = tuple(slice(pad, pad + n) for pad, n in zip(pads, shape, strict=True))
        return unit * np.moveaxis(start.on_grid()[inside], -1, 0)


def _longer(x: Array, pad: int) -> Array:
    """Return the positions of an even axis with ``pad`` further ones at either end."""
    return x if not pad else x[0] + mean_step(x) * np.arange(-pad, len(x) + pad)


def _largest(planes: Array, missing: Array) -> float:
    known = planes[:, ~missing]
    return float(max(known.max(), -known.min())) or 1.0


def denoise_with_gaps(
    grid: GridInput, missing: Array, options: GridOptions, started: float
) -> tuple[Field | None, str, RemovedNoise | None]:
    """Return the field of noisy samples with gaps; or None, the reason, and any noise found.

    Parameters
    ----------
    grid : GridInput
        The samples.
    missing : array of bool (N_1, ..., N_D)
        The gaps, in the order of the given positions.
    options : GridOptions
        The options, with the noise if it was given.
    started : float
        The time at which the fit started.
    """
    layout, settings = grid.layout, options.settings
    rising = tuple(slice(None, None, -1) if f else slice(None) for f in layout.flips)
    missing = missing[rising]
    planes = np.asarray(grid.planar(), dtype=np.float64)
    if options.noise is None:
        noise = find_noise(planes, settings.noise, ~missing)
    else:
        given = np.atleast_1d(options.noise)
        sigma = np.repeat(given, len(planes) // len(given)).astype(np.float64)
        is_noisy = bool(np.any(sigma > 0))
        noise = Noise(sigma, sigma, np.eye(len(planes)), 1.0, is_noisy, "noise was given", True)
    if not noise.is_found:
        return None, noise.reason, None
    denoiser = GapsDenoiser(layout, missing, noise, settings, options.thorough)
    linear, shrunk = _judged(denoiser, planes, missing)
    is_sure = len(linear) > 1
    candidates = [
        Candidate("penalised fit", {"of": "hidden samples"}, _mean(linear)),
        Candidate("shrinkage", {"of": "hidden samples"}, _mean(shrunk), chosen=True),
    ]
    gain, least = _mean(linear - shrunk), settings.noise.confidence * _error(linear - shrunk)
    if not (is_sure and gain > least):
        error = _expected(linear, noise, settings.noise)
        about = RemovedNoise(tuple(map(float, noise.sigma)), "a penalised fit", error)
        why = f"{noise.reason}; shrinkage is not clearly better than a penalised fit"
        return None, why, about
    by = f"error at hidden samples, in units of the noise; {noise.reason}"
    field = denoiser.field(grid, by, candidates, _expected(shrunk, noise, settings.noise), started)
    return field, "", None


def _mean(terms: Array) -> float:
    return float(terms.mean()) if len(terms) else math.inf


def _error(terms: Array) -> float:
    """Return the standard error of a mean."""
    return float(np.std(terms, ddof=1)) / math.sqrt(len(terms)) if len(terms) > 1 else math.inf


def _expected(terms: Array, noise: Noise, settings: NoiseSettings) -> float:
    """Return the expected rms error from squared errors at hidden samples, in units of the noise.

    Hidden samples are noisy themselves, so 1 is subtracted from their mean squared error. A result
    below its standard error is replaced by that error.
    """
    if len(terms) < 2:
        return math.nan
    unsure = _error(terms) + (0.0 if noise.is_given else 2 * settings.accuracy)
    return expected_error(max(_mean(terms) - 1, unsure), noise.sigma)


def _judged(denoiser: GapsDenoiser, planes: Array, missing: Array) -> tuple[Array, Array]:
    """Return the squared errors of the penalised fit and of shrinkage at hidden samples, (n,) each.

    They are in units of the noise, averaged over the channels that have noise. Samples are hidden
    in the central crop, besides its gaps.
    """
    part = centre(missing.shape, denoiser.settings.grid.crop_samples)
    crop, gaps = planes[(slice(None), *part)], missing[part]
    known = np.flatnonzero(~gaps.ravel())
    count = int(len(known) * denoiser.settings.shrinkage.gap_hidden)
    if count < 2:
        return np.zeros(0), np.zeros(0)
    chosen = np.random.default_rng(SEED).choice(known, count, replace=False)
    hidden = np.zeros(gaps.shape, dtype=bool)
    hidden[np.unravel_index(chosen, gaps.shape)] = True
    judge, gaps = replace(denoiser, thorough=False), gaps | hidden
    start = judge.started(crop, gaps)
    noisy = denoiser.noise.sigma > 0
    sigma = denoiser.noise.sigma[noisy, None]
    errors = [
        np.mean(((found[:, hidden] - crop[:, hidden])[noisy] / sigma) ** 2, axis=0)
        for found in (start, judge.cleaned(crop, gaps, start))
    ]
    return errors[0], errors[1]
