"""The field of a lattice whose missing samples were filled by falling thresholds.

The gaps are filled first: see `filling` and `filling_choice`. Then the complete lattice is
interpolated as `fit` does with samples that are not noisy: the field passes through known samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, joined_complex, problem
from kronfield._core.records import record
from kronfield.field import Field
from kronfield.fitting.filling_choice import (
    Filling,
    consider_holes,
    consider_scattered,
    fill_again,
)
from kronfield.fitting.grid import GridFit
from kronfield.fitting.grid_choice import GridChoice, choose
from kronfield.fitting.inputs import GridInput, GridLayout, PointInput
from kronfield.fitting.line_choice import LineSmoother
from kronfield.fitting.options import GridOptions, PointOptions
from kronfield.fitting.periods import Opening, whole_circles
from kronfield.fitting.point_choice import PointChoice
from kronfield.fitting.point_grids import Lattice
from kronfield.fitting.report import Candidate
from kronfield.fitting.settings import Settings

# Values are constant but for rounding if their standard deviation, relative to the largest, is at
# most this many times the rounding unit.
ROUNDING = 16


class LatticeFiller:
    """Decides whether a lattice is filled by falling thresholds, and makes the field if so.

    Attributes
    ----------
    tried : list of Candidate
        The candidates that were compared, if filling was not chosen.
    reasons : list of str
        Why filling was not chosen.
    expected : (float, float)
        The expected error of a linear fit at a missing sample, and its standard error, if known.
    ratio : float or None
        The ratio of first to second derivatives in the penalty that suits the holes, if known.
    line : LineSmoother or None
        The penalised fit of a line, if it is known.
    missing_of_two : array or None
        The mask of a grid with both samples of each seam, for other values.
    """

    def __init__(
        self, layout: GridLayout, planes: Array, missing: Array, settings: Settings, started: float
    ) -> None:
        self.layout, self.values, self.missing = layout, planes, missing
        # channels may have different units, and squares of large or small values would overflow
        self.units = channel_units(planes, missing, settings.filling.covariance_samples)
        self.planes = _divided(planes, self.units)
        self.settings, self.started = settings, started
        self.tried: list[Candidate] = []
        self.reasons: list[str] = []
        self.expected = (math.nan, math.nan)
        self.ratio: float | None = None
        self.line: LineSmoother | None = None
        self.missing_of_two: Array | None = None

    @classmethod
    def of_grid(
        cls, grid: GridInput, missing: Array, options: PointOptions, started: float
    ) -> LatticeFiller | None:
        """Return the filler of values on even axes; None if a penalty was given.

        Periodic axes must also be even across the seam.
        """
        layout = grid.layout
        if not _is_open(options, len(layout.shape)) or not _is_even_round(layout):
            return None
        planes = np.asarray(grid.planar(), dtype=layout.dtype)
        new = cls(layout, planes, missing[_rising(layout)], options.settings, started)
        new.missing_of_two = grid.missing_of_two
        return new

    @classmethod
    def of_points(
        cls,
        given: PointInput,
        lattice: Sequence[Lattice],
        options: PointOptions,
        started: float,
    ) -> LatticeFiller | None:
        """Return the filler of points on a lattice.

        None if a penalty or weights were given, or if several points are on one node.
        """
        if given.weights is not None or not _is_open(options, given.D):
            return None
        shape = tuple(axis.count for axis in lattice)
        steps = zip(given.points.T, lattice, strict=True)
        nodes = [np.rint((x - axis.origin) / axis.step).astype(int) for x, axis in steps]
        places = np.ravel_multi_index(nodes, shape)
        missing = np.ones(shape, dtype=bool)
        missing.ravel()[places] = False
        if missing.size - np.count_nonzero(missing) != len(places) or not missing.any():
            return None
        planes = np.zeros((len(given.values), *shape), dtype=given.dtype)
        planes.reshape(len(planes), -1)[:, places] = given.values
        axes = [axis.origin + axis.step * np.arange(axis.count) for axis in lattice]
        values = _as_given(planes, given.channels, given.is_complex)
        grid = GridInput(values, axes, None, given.domain, given.channels)
        return cls(grid.layout, planes, missing, options.settings, started)

    def holes(self) -> Field | None:
        """Return the field if samples are missing in small holes, and filling predicts better."""
        around = _opening(self.layout, self.missing, self.settings)
        opened = around.opened(self.planes), around.opened(self.missing)
        found = consider_holes(*opened, self.settings, self.units / self.units.max())
        if found is None:
            return None
        if found.planes is not None:
            found = replace(found, planes=around.closed(found.planes))
        return self._field(found)

    def scattered(self, choice: PointChoice, scale: float) -> Field | None:
        """Return the field if filling predicts better than the chosen fit of points.

        ``scale`` is the unit of the errors of ``choice``.
        """
        if self.reasons or choice.held is None:  # decided before, or nothing to compare
            return None
        linear = [errors * (scale / self.units)[:, None] for errors in choice.held.errors]
        hidden, shares = choice.held.hidden, self.units / self.units.max()
        found = consider_scattered(self.planes, self.missing, hidden, linear, self.settings, shares)
        return self._field(found, [replace(one, chosen=False) for one in choice.candidates])

    def _field(self, found: Filling, rivals: Sequence[Candidate] = ()) -> Field | None:
        largest = float(self.units.max())
        found = replace(found, error=found.error * largest, uncertainty=found.uncertainty * largest)
        if found.planes is None:
            self.tried, self.reasons = found.candidates, [found.reason]
            self.expected = found.error, found.uncertainty
            if not _wraps(self.layout):  # circles are fitted by other features
                self.ratio, self.line = found.ratio, found.line
            return None
        complete = _completed(self.values, self.missing, found.planes, self.units)
        grid = _on(self.layout, self._as_given(complete))
        # no penalty: the field passes through the known samples
        options = GridOptions(ridge=0.0, settings=_with_small_crop(self.settings))
        choice = choose(grid.planar(), grid.axes, self.layout.frames, options)
        again = FilledFit(
            self.layout, self.missing, choice, found, self.settings, self.missing_of_two
        )
        candidates = [*rivals, *found.candidates, *choice.candidates]
        by = f"{found.reason}; between samples: {choice.chosen_by}"
        return again.field(grid, found, by, candidates, self.started)

    def _as_given(self, planes: Array) -> Array:
        layout = self.layout
        return _as_given(planes, layout.channels, layout.is_complex)[_rising(layout)]


def _with_small_crop(settings: Settings) -> Settings:
    """Return the settings with smaller crops, with which the interpolation is chosen."""
    own, most = settings.grid, settings.filling.crop_samples
    grid = replace(
        own,
        crop_samples=min(own.crop_samples, most),
        direction_samples=min(own.direction_samples, most),
    )
    return replace(settings, grid=grid)


def channel_units(planes: Array, missing: Array, most: int) -> Array:
    """Return the unit (C,) of each channel: the standard deviation of its known samples.

    Of many samples, about ``most`` are used, spread evenly. A channel that is constant but for
    rounding has its largest value as its unit.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.filled import channel_units
    >>> line = np.array([1.0, -1.0, 1.0, 9.0])
    >>> gaps = np.array([False, False, False, True])
    >>> units = channel_units(np.stack([line, 1e200 * line, np.ones(4)]), gaps, 100)
    >>> [f"{unit:.2g}" for unit in units]
    ['0.94', '9.4e+199', '1']
    """
    known = np.flatnonzero(~missing)
    known = known[:: max(1, len(known) // most)]
    units = []
    for plane in planes:
        some = plane.reshape(-1).take(known).astype(np.float64)
        largest = float(max(some.max(initial=0.0), -some.min(initial=0.0)))
        if largest:  # squares neither overflow nor vanish
            part = float(np.std(some / largest))
            is_constant = part <= ROUNDING * float(np.finfo(plane.dtype).eps)
            largest *= 1.0 if is_constant else part
        units.append(largest or 1.0)
    return np.array(units)


def _divided(planes: Array, units: Array) -> Array:
    """Return planes (C, N_1, ..., N_D) divided by the units of the channels."""
    return np.stack(
        [plane / plane.dtype.type(one) for plane, one in zip(planes, units, strict=True)]
    )


def _completed(values: Array, missing: Array, found: Array, units: Array) -> Array:
    """Return values with the missing samples found, in units of the channels."""
    complete, places = values.copy(), np.flatnonzero(missing)
    for plane, one, unit in zip(complete, found, units, strict=True):
        plane.reshape(-1)[places] = one.reshape(-1).take(places) * one.dtype.type(unit)
    return complete


def _is_open(options: PointOptions, D: int) -> bool:
    """Tell whether the caller left open how the lattice is fitted."""
    return (
        options.settings.filling.most_axes >= D
        and options.penalty is None
        and options.units is None
        and options.rows is None
        and options.tolerance is None
    )


def _wraps(layout: GridLayout) -> bool:
    """Tell whether an axis is periodic."""
    return any(frame.period is not None for frame in layout.frames)


def _is_even_round(layout: GridLayout) -> bool:
    """Tell whether all periodic axes are even across the seam too."""
    circles = whole_circles(layout.axes, layout.frames)
    return all(
        one or frame.period is None for one, frame in zip(circles, layout.frames, strict=True)
    )


def _opening(layout: GridLayout, missing: Array, settings: Settings) -> Opening:
    """Return the lattice cut open where no block of the filling reaches across."""
    reach = max(settings.filling.sizes(missing.ndim))
    return Opening.of(missing, whole_circles(layout.axes, layout.frames), reach)


def _on(layout: GridLayout, values: Array) -> GridInput:
    """Return values on a grid on which samples at both ends of a period are one."""
    return GridInput.on(layout, values if layout.seam is None else layout.seam.opened(values))


def _rising(layout: GridLayout) -> tuple[slice, ...]:
    """Return the index that reverses axes with falling positions, in either direction."""
    return tuple(slice(None, None, -1) if flip else slice(None) for flip in layout.flips)


def _as_given(planes: Array, channels: bool, is_complex: bool) -> Array:
    """Return planar values (C, N_1, ..., N_D) with channels last, if there are any."""
    values = np.moveaxis(planes, 0, -1)
    if is_complex:
        values = joined_complex(values)
    return values if channels else values[..., 0]


class NoStandardError:
    """Replaces the `Uncertainty` of a field whose gaps were filled before the fit."""

    def deviations(self, points: Array, noise: float | None, samples: int, seed: int) -> Array:
        """Raise an error: the fit does not know which samples were filled."""
        del points, noise, samples, seed
        raise problem(
            "standard_error",
            "a field whose gaps were filled first",
            "a linear fit, which has a standard error at every point",
            "Pass roughness= to fit for a linear fit, or use field.report.expected_error, the "
            "expected error at the missing samples.",
        )

    def without_samples(self) -> NoStandardError:
        """Return itself: it needs no samples."""
        return self


@record(eq=False)
class FilledFit:
    """Fills other values with the same gaps, and makes their field. It holds no values.

    ``missing_of_two`` is the mask of the grid with both samples of each seam; None if it has none.
    """

    layout: GridLayout
    missing: Array
    choice: GridChoice
    filling: Filling
    settings: Settings
    missing_of_two: Array | None = None

    def __post_init__(self) -> None:
        # a copy without the filled samples
        object.__setattr__(self, "filling", self.filling.without_samples())

    def without_samples(self) -> FilledFit:
        """Return the part of this that a pickled field keeps: all of it."""
        return self

    def __call__(self, values: Any) -> Field:
        """Return the field of other values: of all known samples in order, or on the whole grid."""
        started = time.perf_counter()
        planes = self._planes(values)
        units = channel_units(planes, self.missing, self.settings.filling.covariance_samples)
        around = _opening(self.layout, self.missing, self.settings)
        opened = around.opened(_divided(planes, units)), around.opened(self.missing)
        found = around.closed(fill_again(*opened, self.filling, self.settings))
        complete = _completed(planes, self.missing, found, units)
        back = _as_given(complete, self.layout.channels, self.layout.is_complex)
        grid = _on(self.layout, back[_rising(self.layout)])
        return self.field(grid, self.filling, "given, as in an earlier fit", [], started)

    def _planes(self, values: Any) -> Array:
        """Return planar values with 0 at missing samples."""
        layout, array = self.layout, np.asarray(values)
        known, D, seam = ~self.missing, len(layout.shape), self.layout.seam
        if seam is not None and array.shape[:D] == seam.shape:  # either sample may be missing
            gaps = ~np.isfinite(array)
            if self.missing_of_two is not None:
                own = self.missing_of_two
                gaps |= own if own.ndim == gaps.ndim else own[..., None]
            array, _ = seam.joined(array, gaps)
        if array.shape[:1] == (int(known.sum()),) and array.ndim == 1 + layout.channels:
            whole = np.zeros((*layout.shape, *array.shape[1:]), dtype=array.dtype)
            whole[known] = array
            array = whole[_rising(layout)]
        if array.shape[:D] != layout.shape or array.ndim != D + layout.channels:
            raise problem(
                "values",
                describe(values),
                f"{int(known.sum())} values, one per known sample, or the grid {layout.shape}"
                f"{' with channels' if layout.channels else ''}",
                "To fit values with other gaps, call kf.fit.",
            )
        gaps = self.missing[_rising(layout)]
        gaps = gaps[..., None] if layout.channels else gaps
        grid = _on(layout, np.where(gaps, array.dtype.type(0), array))
        return np.asarray(grid.planar(), dtype=layout.dtype)

    def field(
        self,
        grid: GridInput,
        found: Filling,
        chosen_by: str,
        candidates: list[Candidate],
        started: float,
    ) -> Field:
        """Return the field of a complete lattice, with a report of the filled samples."""
        fitted = GridFit(self.layout, self.choice, self.choice.rcond, self.settings.grid)
        field = fitted.field(grid, chosen_by, candidates, started)
        field.set_origin(self, NoStandardError())
        report: Any = field.report
        report.filled = int(self.missing.sum())
        report.points, report.dropped = self.missing.size - report.filled, report.filled
        report.expected_error = found.error
        report.expected_error_uncertainty = found.uncertainty
        return field
