"""The content of a picture report: samples, field, error, spectra, and scores of settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError
from kronfield._core.frames import cell_centres
from kronfield._core.records import record
from kronfield._core.spectra import spectrum, stable_rank
from kronfield.field import Field
from kronfield.files import Signal
from kronfield.fitting import settings as defaults
from kronfield.fitting.report import MEASURED_UP_TO, Candidate
from kronfield.signals.axes import (
    axis_names,
    axis_units,
    described,
    drawn_positions,
    map_order,
)
from kronfield.signals.fit import straight_colours
from kronfield.signals.report.between import Zoom, detailed_windows, fine_positions
from kronfield.signals.report.curves import ScoreCurve, choice_curves
from kronfield.signals.report.held_out import HeldOut, held_out

# The longest side of a picture in a report, samples of a line, and points of a table.
SIDE, LINE, POINTS = 900, 240, 20_000
# Positions per sample of a line, and on the side of a map of the field and of its standard errors.
FINE, MAP, COARSE = 8, 300, 80


@record
class Shown:
    """Samples, the field at the same positions, and the difference.

    Attributes
    ----------
    form : "picture", "map", "line", "points" or "scatter"
        How to draw it: colours; numbers on a grid; values along an axis; values at points in the
        plane; fitted against measured values.
    samples, fitted, error : arrays
        Arrays of one shape, except that the error of a picture is the mean over its colours.
    names : (str, str)
        The labels of the horizontal and the vertical axis.
    unit : str
        The unit of the error.
    x : array, optional
        The positions of samples along a line, or (P, 2) in the plane.
    fine_x, fine : arrays, optional
        Finer positions, and the field there; for points, ``fine`` is a map of the field.
    extent : tuple, optional
        The ends of the axes: left, right, bottom, top.
    turned : bool
        Whether the second coordinate of points is drawn to the right.
    """

    form: str
    samples: Array
    fitted: Array
    error: Array
    names: tuple[str, str]
    unit: str = ""
    x: Array | None = None
    fine_x: Array | None = None
    fine: Array | None = None
    extent: tuple[float, float, float, float] | None = None
    turned: bool = False


@record
class Power:
    """The power of samples, field and error by frequency, in cycles per sample.

    For pictures it is the mean over directions.
    """

    frequencies: Array
    samples: Array
    fitted: Array
    error: Array


@record
class AxisSpectrum:
    """The singular values of the encoding of one axis at its samples, relative to the largest."""

    name: str
    values: Array
    stable_rank: float


@record
class Spread:
    """Standard errors: along a line, or on a map with the first row at the top."""

    values: Array
    x: Array | None = None
    mean: Array | None = None
    extent: tuple[float, float, float, float] | None = None


@record
class Diagnosis:
    """The content of a report.

    Attributes
    ----------
    shown : Shown
        Samples, field and error at the samples.
    power, axes, curves, candidates
        Spectra, and the scores of settings.
    held_out : HeldOut or None
        The error at samples that were held out.
    zooms : list of Zoom
        The field between the samples, where these have most detail.
    spread : Spread or None
        The standard errors of the field.
    """

    shown: Shown
    power: Power | None
    axes: list[AxisSpectrum]
    curves: list[ScoreCurve]
    candidates: list[Candidate]
    held_out: HeldOut | None = None
    zooms: list[Zoom] = dataclass_field(default_factory=list)
    spread: Spread | None = None

    @property
    def interpolates(self) -> bool:
        """Whether the field passes through the samples: its error there then says nothing."""
        samples, error = self.shown.samples, self.shown.error
        levels = 255.0 if self.shown.form == "picture" else 1.0
        scale = float(np.nanstd(samples)) * levels
        finite = error[np.isfinite(error)]
        return bool(
            finite.size and np.sqrt(np.mean(finite**2)) < defaults.DEFAULT.signals.passes * scale
        )


def diagnose(signal: Signal, field: Field) -> Diagnosis:
    """Return the content of the report on a fit of ``signal``.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from kronfield.signals.report.diagnosis import diagnose
    >>> from kronfield.files import read, write
    >>> from kronfield.signals.fit import fit_signal
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.png", np.eye(30), {})
    ...     signal = read(Path(folder) / "a.png")
    >>> found = diagnose(signal, fit_signal(signal))
    >>> found.shown.form, found.shown.error.shape
    ('picture', (30, 30))
    >>> [curve.title for curve in found.curves]
    ['Error of samples left out, by degree', 'Cross-validation against the penalty']
    """
    candidates = list(getattr(field.report, "candidates", []))
    known, spread = held_out(signal, field), _spread(field)
    if signal.points is not None:
        shown = _table(signal, field)
        return Diagnosis(shown, None, _axis_spectra(field), [], candidates, known, spread=spread)
    shown = _line(signal, field) if field.dimensions == 1 else _picture(signal, field)
    curves = choice_curves(signal.values, signal.channels, field)
    power = power_of(shown.samples, shown.fitted)
    zooms = _zooms(signal, field, shown)
    return Diagnosis(shown, power, _axis_spectra(field), curves, candidates, known, zooms, spread)


def _zooms(signal: Signal, field: Field, shown: Shown) -> list[Zoom]:
    """Return the parts of the shown samples with most detail, and the field between the samples."""
    if shown.form == "line":
        start = max(0, (len(signal.values) - LINE) // 2)
        x, found = field.axes[0][start : start + LINE], []
        for (part,) in detailed_windows(shown.samples.astype(np.float64)):
            fine_x = fine_positions(x, part)
            fine = _first(field, field.on_grid([fine_x], outside="clamp"))
            places = [drawn_positions(field, 0, one) for one in (x[part], fine_x)]
            found.append(Zoom(part, part, shown.samples[part], fine, *places))
        return found
    section = _Section.of(field, signal.values.shape[: field.dimensions])
    grey = shown.samples.astype(np.float64)
    grey = grey[..., :3].mean(axis=-1) if grey.ndim == 3 else grey
    found = []
    positions = section.positions(field)
    rows = positions[section.down][::-1] if section.up else positions[section.down]
    for down, across in detailed_windows(grey):
        where = list(positions)
        where[section.down] = np.sort(fine_positions(rows, down))
        where[section.across] = fine_positions(positions[section.across], across)
        if rows[0] > rows[-1] and not section.up:
            where[section.down] = where[section.down][::-1]
        fine = np.asarray(field.on_grid(where, outside="clamp"))
        fine = straight_colours(fine) if described(field).multiplied else fine
        fine = section.drawn(fine)
        if shown.samples.ndim == 2 and fine.ndim == 3:
            fine = fine[..., 0]
        found.append(Zoom(down, across, shown.samples[down, across], fine))
    return found


def _spread(field: Field) -> Spread | None:
    """Return standard errors on a line or a map; None if the field has none."""
    if field.dimensions > 2:
        return None
    try:
        if field.dimensions == 1:
            x = np.linspace(*field.domain[0], LINE)
            error = _first(field, field.standard_error(x[:, None]))
            mean = _first(field, field.on_grid([x]))
            return Spread(error, drawn_positions(field, 0, x), mean)
        (down, across), turned = map_order(field, (0, 1))
        lines = [cell_centres(*ends, COARSE) for ends in field.domain]
        points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
        error = _first(field, field.standard_error(points)).reshape(COARSE, COARSE)
    except InputError:
        return None
    error = error.T if down > across else error
    (left, right), (low, high) = field.domain[across], field.domain[down]
    extent = (left, right, low, high) if turned else (left, right, high, low)
    return Spread(error[::-1] if turned else error, extent=extent)


# Samples and field
# ------------------------------------------------------------------------------------------


@record
class _Section:
    """A plane through a grid: all of two axes, the middle of the others.

    ``picks`` are the samples used on each axis. ``down`` and ``across`` are the vertical and the
    horizontal axis of the picture; ``up`` is true if the vertical axis grows upwards.
    """

    picks: tuple[slice, ...]
    down: int
    across: int
    up: bool

    @classmethod
    def of(cls, field: Field, shape: Sequence[int]) -> _Section:
        """Return the section of the last two axes, for volumes in space of x and y as on a map."""
        D = field.dimensions
        cartesian = set(axis_names(field)[:3]) <= {"x", "y", "z", "t"} and D > 2
        shown = (0, 1) if cartesian else (D - 2, D - 1)
        (down, across), turned = map_order(field, shown) if cartesian else (shown, ())
        step = max(1, math.ceil(max(shape[i] for i in shown) / SIDE))
        middle = [slice(n // 2, n // 2 + 1) for n in shape]
        whole = slice(None, None, step)
        picks = tuple(whole if i in shown else pick for i, pick in enumerate(middle))
        return cls(picks, down, across, down in turned)

    def positions(self, field: Field) -> list[Array]:
        """Return the positions on each axis of the field."""
        return [x[pick] for x, pick in zip(field.axes, self.picks, strict=True)]

    def drawn(self, values: Array) -> Array:
        """Return values (N_1, ..., N_D[, C]) at `positions` as rows and columns."""
        shown = (self.down, self.across)
        flat = np.squeeze(values, tuple(i for i in range(len(self.picks)) if i not in shown))
        flat = flat.swapaxes(0, 1) if self.down > self.across else flat
        return flat[::-1] if self.up else flat

    def labels(self, field: Field) -> tuple[str, str]:
        """Return the names of the axes across and down, with units."""
        return _label(field, self.across), _label(field, self.down)

    def extent(self, field: Field) -> tuple[float, float, float, float]:
        """Return the ends of the axes: left, right, bottom, top."""
        (left, right), (low, high) = field.domain[self.across], field.domain[self.down]
        return (left, right, low, high) if self.up else (left, right, high, low)


def _label(field: Field, axis: int) -> str:
    """Return the name of an axis, with its unit; dates have none."""
    unit = "" if field.labels.axes[axis].is_date else axis_units(field)[axis]
    return f"{axis_names(field)[axis]}{f' [{unit}]' if unit else ''}"


def _picture(signal: Signal, field: Field) -> Shown:
    """Show a picture, or the middle of a volume or video."""
    section = _Section.of(field, signal.values.shape[: field.dimensions])
    fitted = field.on_grid(section.positions(field))
    fitted = straight_colours(fitted) if described(field).multiplied else fitted
    samples, fitted = section.drawn(signal.values[section.picks]), section.drawn(fitted)
    levels = signal.description.levels
    if signal.channels and (levels is None or samples.shape[-1] not in (3, 4)):
        samples, fitted = samples[..., 0], fitted[..., 0]
    error = (fitted.astype(np.float64) - samples) * (levels or 1)
    error = error[..., :3].mean(axis=-1) if error.ndim == 3 else error
    names, extent = section.labels(field), section.extent(field)
    if levels is None:
        return Shown("map", samples, fitted, error, names, extent=extent)
    samples, fitted = np.clip(samples, 0, 1), np.clip(fitted, 0, 1)
    return Shown("picture", samples, fitted, error, names, "levels", extent=extent)


def _line(signal: Signal, field: Field) -> Shown:
    """Show the middle of a sound or another line, its first channel."""
    values = signal.values[:, 0] if signal.channels else signal.values
    start = max(0, (len(values) - LINE) // 2)
    part = slice(start, start + LINE)
    x = field.axes[0][part]
    fine_x = np.linspace(x[0], x[-1], FINE * (len(x) - 1) + 1)
    fitted, fine = (np.asarray(field.on_grid([at])) for at in (x, fine_x))
    if signal.channels:
        fitted, fine = fitted[:, 0], fine[:, 0]
    names = (_label(field, 0), signal.description.first_channel)
    x, fine_x = drawn_positions(field, 0, x), drawn_positions(field, 0, fine_x)
    return Shown(
        form="line",
        samples=values[part],
        fitted=fitted,
        error=fitted - values[part],
        names=names,
        unit="",
        x=x,
        fine_x=fine_x,
        fine=fine,
    )


def _table(signal: Signal, field: Field) -> Shown:
    """Show the points of a table, its first column of values."""
    assert signal.points is not None
    values = signal.values[:, 0] if signal.channels else signal.values
    there = np.isfinite(signal.values).all(axis=1) if signal.channels else np.isfinite(values)
    points, values = signal.points[there], values[there].astype(np.float64)
    if len(points) > POINTS:
        some = np.random.default_rng(0).choice(len(points), POINTS, replace=False)
        points, values = points[some], values[some]
    fitted = _first(field, field(points, outside="nan"))
    names, column = axis_names(field), signal.description.first_channel
    if field.dimensions == 1:
        order = np.argsort(points[:, 0])
        points, values, fitted = points[order], values[order], fitted[order]
        fine_x = np.linspace(*field.domain[0], 800)
        fine = _first(field, field.on_grid([fine_x]))
        return Shown(
            form="line",
            samples=values,
            fitted=fitted,
            error=fitted - values,
            names=(names[0], column),
            unit="",
            x=drawn_positions(field, 0, points[:, 0]),
            fine_x=drawn_positions(field, 0, fine_x),
            fine=fine,
        )
    if field.dimensions > 2:
        return Shown(
            "scatter", values, fitted, fitted - values, (f"measured {column}", f"fitted {column}")
        )
    (up, across), _ = map_order(field, (0, 1))
    axes: list[Array] = [np.empty(0)] * 2
    ends = [field.domain[across], field.domain[up]]
    axes[across], axes[up] = (cell_centres(low, high, MAP) for low, high in ends)
    drawn = _first(field, field.on_grid(axes))
    drawn = drawn.T[::-1] if across == 0 else drawn[::-1]
    return Shown(
        form="points",
        samples=values,
        fitted=fitted,
        error=fitted - values,
        names=(names[across], names[up]),
        unit=column,
        x=points[:, [across, up]],
        fine_x=None,
        fine=drawn,
        extent=(*ends[0], *ends[1]),
        turned=across == 1,
    )


def _first(field: Field, values: Array) -> Array:
    return values[..., 0] if field.has_channels else values


# Spectra
# ------------------------------------------------------------------------------------------


def power_of(samples: Array, fitted: Array) -> Power | None:
    """Return the power by frequency, under a Hann window that suppresses the ends."""
    samples, fitted = (_grey(one) for one in (samples, fitted))
    if min(samples.shape) < 8 or not np.isfinite(samples).all():
        return None
    window: Any = 1.0
    for axis, n in enumerate(samples.shape):
        window = window * np.hanning(n).reshape(
            [-1 if i == axis else 1 for i in range(samples.ndim)]
        )
    found = []
    radius = np.sqrt(
        sum(f**2 for f in np.meshgrid(*[np.fft.fftfreq(n) for n in samples.shape], indexing="ij"))
    )
    bins = max(8, min(samples.shape) // 2)
    place = np.minimum((radius * 2 * bins).astype(int), bins)
    counts = np.bincount(place.ravel(), minlength=bins + 1)
    filled = np.flatnonzero(counts[1:bins]) + 1
    for one in (samples - samples.mean(), fitted - samples.mean(), fitted - samples):
        power = np.abs(np.fft.fftn(one * window)) ** 2 / samples.size
        found.append(
            np.bincount(place.ravel(), power.ravel(), minlength=bins + 1)[filled] / counts[filled]
        )
    return Power((filled + 0.5) / (2 * bins), *found)


def _grey(values: Array) -> Array:
    return (
        values[..., :3].mean(axis=-1, dtype=np.float64)
        if values.ndim == 3
        else values.astype(np.float64)
    )


def _axis_spectra(field: Field) -> list[AxisSpectrum]:
    """Return the singular values of each axis that is not too long; equal axes share an entry."""
    found: dict[str, AxisSpectrum] = {}
    for name, emb, frame, x in zip(
        axis_names(field), field.encoding.embedders, field.frames, field.axes, strict=True
    ):
        if len(x) > MEASURED_UP_TO:
            continue
        matrix = np.asarray(emb(frame.unit(x)))
        key = f"{emb!r} {len(x)}"
        if key in found:
            before = found[key]
            found[key] = AxisSpectrum(f"{before.name}, {name}", before.values, before.stable_rank)
        else:
            found[key] = AxisSpectrum(name, np.asarray(spectrum(matrix)), stable_rank(matrix))
    return list(found.values())
