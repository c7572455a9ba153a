"""Comparison of embedders and standard interpolation by their error at held-out samples."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError, problem
from kronfield._core.frames import Split, cell_centres
from kronfield._core.records import record
from kronfield.analysis.presets import natural_size, preset
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.fitting import settings as defaults
from kronfield.fitting.grid import RankWarning, fit
from kronfield.fitting.points import fit_points
from kronfield.signals.measures import peak_of, psnr, ssim
from kronfield.signals.peers import METHODS, interpolate_grid, interpolate_points
from kronfield.solvers.points.cg import ConvergenceError

# The embedders to compare, and those whose features are nowhere zero, so that their matrices are
# dense.
EMBEDDERS = (
    "impulse",
    "rectangle",
    "triangle",
    "gaussian",
    "tension",
    "rff",
    "linf",
    "logf",
    "sine",
    "square",
)
DENSE = ("rff", "linf", "logf", "sine", "square")
# The fewest features on an axis: with fewer, no spline is cubic.
FEWEST_FEATURES = 4
# The longest side of the displayed part: of a grid, of a line, and of a map of points.
SHOWN, SHOWN_LINE, SHOWN_MAP = 96, 64, 200


@record
class Contestant:
    """The result of one method.

    Attributes
    ----------
    name, settings : str
        The method and its settings.
    psnr : float
        The PSNR in dB at the held-out samples.
    ssim : float or None
        The SSIM of the whole grid; None for scattered points.
    parameters : int
        The count of numbers that the method stores: weights or samples.
    seconds : float
        The time to fit and to evaluate.
    picture : array or None
        The displayed part of the result.
    """

    name: str
    settings: str
    psnr: float
    ssim: float | None
    parameters: int
    seconds: float
    picture: Array | None


class GridContest:
    """A comparison on a grid: predict all samples from every second sample of each axis.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.contest import GridContest
    >>> waves = np.sin(np.arange(40) / 3)[:, None] * np.cos(np.arange(30) / 4)
    >>> contest = GridContest(waves, channels=False)
    >>> [one.name for one in contest.run(["gaussian"])]
    ['kronfield, chosen', 'gaussian', 'nearest', 'linear', 'cubic']

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        The samples; they must be finite.
    channels : bool
        Whether the last axis holds channels.
    axes : sequence of arrays, optional
        The positions of the samples, increasing.
    """

    def __init__(
        self, values: Array, *, channels: bool, axes: Sequence[Array] | None = None
    ) -> None:
        self.values, self.channels = values, channels
        shape = values.shape[:-1] if channels else values.shape
        self.axes = (
            [np.arange(n, dtype=np.float64) for n in shape]
            if axes is None
            else [np.asarray(x) for x in axes]
        )
        shortest = defaults.DEFAULT.signals.contest_shortest
        split = Split.of(shape, shortest)
        if not any(split.halved):
            raise problem(
                "values",
                f"shape {shape}",
                f"an axis of {shortest} samples or more",
                "Shorter axes leave nothing to hold out.",
            )
        self.known, self.known_axes, self.held_out = (
            split.known(values),
            split.axes(self.axes),
            split.held_out,
        )
        self.window = _window(values, channels)

    @property
    def truth(self) -> Array:
        """The displayed part of the samples."""
        return self.values[self.window]

    @property
    def line(self) -> Array | None:
        """The positions of the displayed samples on a line; None in more dimensions."""
        return self.axes[0][self.window[0]] if len(self.axes) == 1 else None

    def names(self, embedders: Sequence[str] = EMBEDDERS) -> list[str]:
        """Return the names of the methods to compare."""
        longest = max(len(x) for x in self.known_axes)
        dense = longest <= defaults.DEFAULT.signals.contest_dense
        able = [name for name in embedders if name not in DENSE or dense]
        return ["kronfield, chosen", *able, *METHODS]

    def run(self, embedders: Sequence[str] = EMBEDDERS) -> Iterator[Contestant]:
        """Yield the result of each method in turn."""
        for name in self.names(embedders):
            started = time.perf_counter()
            if name in METHODS:
                found = interpolate_grid(self.known, self.known_axes, self.axes, name)
                settings, parameters = "", self.known.size
            else:
                field = self._fit(None if name.startswith("kronfield") else name)
                found = field.on_grid(self.axes, outside="clamp")
                settings, parameters = _settings(field), field.number_count
            seconds = time.perf_counter() - started
            peak = peak_of(self.values)
            quality = psnr(found[self.held_out], self.values[self.held_out], peak=peak)
            likeness = ssim(found, self.values, peak=peak, channels=self.channels)
            yield Contestant(
                name, settings, quality, likeness, parameters, seconds, found[self.window].copy()
            )

    def _fit(self, name: str | None) -> Field:
        encoding, ridge = None, None
        if name is not None:
            encoding = Kronecker(
                *[preset(name, natural_size(name, len(x))) for x in self.known_axes]
            )
            longest = max(len(x) for x in self.known_axes)
            ridge = None if longest <= defaults.DEFAULT.signals.contest_ridge else 0.0
        with warnings.catch_warnings():
            # rank deficiency is part of the comparison
            warnings.simplefilter("ignore", RankWarning)
            return fit(self.known, self.known_axes, encoding, ridge=ridge, channels=self.channels)


class PointContest:
    """A comparison at scattered points: predict a random fifth of them from the others.

    Parameters
    ----------
    points, values : arrays of shape (P, D), and (P,) or (P, C)
        The samples; points without a value are left out.
    seed : int
        Seed of the random split.
    """

    def __init__(self, points: Array, values: Array, *, seed: int = 0) -> None:
        there = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
        points, values = points[there], values[there]
        decisions = defaults.DEFAULT.signals
        if len(points) < decisions.contest_fewest:
            raise problem(
                "points",
                f"{len(points)} points with values",
                f"at least {decisions.contest_fewest}",
                "Some are held out to compare methods: use more points.",
            )
        part = decisions.contest_part
        out = np.random.default_rng(seed).random(len(points)) < part
        out[0], out[1] = True, False  # at least one point in each part
        self.points, self.values = points[~out], values[~out]
        self.other_points, self.other_values = points[out], values[out]
        self.domain = [
            (float(low), float(high))
            for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True)
        ]
        self.peak = peak_of(values)

    def names(self, embedders: Sequence[str] = EMBEDDERS) -> list[str]:
        """Return the names of the methods to compare."""
        peers = METHODS if self.points.shape[1] <= 2 else METHODS[:2]
        return [
            "kronfield, chosen",
            *(name for name in embedders if name not in ("sine", "square")),
            *peers,
        ]

    def run(self, embedders: Sequence[str] = EMBEDDERS) -> Iterator[Contestant]:
        """Yield the result of each method in turn; leave out fits that fail."""
        for name in self.names(embedders):
            started = time.perf_counter()
            if name in METHODS:
                settings, parameters = "", self.values.size
                call: Callable[[Array], Array] = functools.partial(self._interpolate, name)
            else:
                try:
                    field = self._fit(None if name.startswith("kronfield") else name)
                except (ConvergenceError, InputError, MemoryError):
                    continue
                settings, parameters = _settings(field), field.number_count
                call = functools.partial(field, outside="clamp")
            found = call(self.other_points)
            seconds = time.perf_counter() - started
            yield Contestant(
                name,
                settings,
                psnr(found, self.other_values, peak=self.peak),
                None,
                parameters,
                seconds,
                self._map(call),
            )

    def _fit(self, name: str | None) -> Field:
        D = self.points.shape[1]
        most = defaults.DEFAULT.signals.contest_features
        each = min(most, max(FEWEST_FEATURES, math.ceil(len(self.points) ** (1 / D))))
        encoding = (
            None if name is None else Kronecker(*[preset(name, natural_size(name, each))] * D)
        )
        return fit_points(self.points, self.values, encoding)

    def _interpolate(self, method: str, at: Array) -> Array:
        return interpolate_points(self.points, self.values, at, method)

    def _map(self, call: Callable[[Array], Array]) -> Array | None:
        """Return the first channel on a line or on a map, with the first axis to the right."""
        D = self.points.shape[1]
        if D > 2:
            return None
        n = SHOWN_MAP
        axes = [cell_centres(low, high, n) for low, high in self.domain]
        at = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, D)
        values = call(at)
        values = values[:, 0] if values.ndim == 2 else values
        return values if D == 1 else values.reshape(n, n).T[::-1]


def _settings(field: Field) -> str:
    first = field.encoding.embedders[0]
    shape = first.shape_parameter
    return f"{first.size} features" + (f", {shape} {getattr(first, shape):.3g}" if shape else "")


def _window(values: Any, channels: bool) -> tuple[slice, ...]:
    """Return the displayed part: the middle of leading axes, the last two where they vary most."""
    shape = values.shape[:-1] if channels else values.shape
    if len(shape) == 1:
        start = max(0, (shape[0] - SHOWN_LINE) // 2)
        return (slice(start, start + SHOWN_LINE),)
    lead = tuple(slice(n // 2, n // 2 + 1) for n in shape[:-2])
    flat = np.asarray(values[lead], dtype=np.float64).reshape(*shape[-2:], -1).mean(axis=-1)
    change = np.abs(np.diff(flat, axis=0, append=flat[-1:])) + np.abs(
        np.diff(flat, axis=1, append=flat[:, -1:])
    )
    total = np.zeros((shape[-2] + 1, shape[-1] + 1))
    total[1:, 1:] = change.cumsum(0).cumsum(1)
    side = [min(n, SHOWN) for n in shape[-2:]]
    sums = total[side[0] :, side[1] :] - total[: -side[0], side[1] :] - total[side[0] :, : -side[1]]
    sums += total[: -side[0], : -side[1]]
    row, column = np.unravel_index(int(np.argmax(sums)), sums.shape)
    return (*lead, slice(int(row), int(row) + side[0]), slice(int(column), int(column) + side[1]))
