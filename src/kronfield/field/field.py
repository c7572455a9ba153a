"""A field: an encoding and its weights, which define a continuous function on a domain."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kronfield._core.arrays import (
    Array,
    InputError,
    describe,
    in_dtype,
    is_lazy,
    joined_complex,
    problem,
    real,
    real_numbers,
    whole,
)
from kronfield._core.axes import SampleAxes
from kronfield._core.copies import NeedsSamples, shared_copy
from kronfield._core.frames import Frame, cell_centres
from kronfield._core.labels import (
    AxisLabel,
    Labels,
    calendar_of,
    is_time,
    same_names,
    seconds_of,
)
from kronfield._core.records import record
from kronfield._core.slabs import first_axis_last
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import BSpline
from kronfield.encoding import Encoding, Kronecker
from kronfield.field import evaluation, storage
from kronfield.field.places import Distances, Places, RoundDistances, far_parts
from kronfield.field.trend import Trend, TrendBasis

if TYPE_CHECKING:
    from kronfield.field.uncertainty import Uncertainty
    from kronfield.fitting.report import FitReport, PointReport

OUTSIDE = ("error", "clamp", "extrapolate", "nan")


@record
class Saved:
    """The result of `Field.save`.

    Attributes
    ----------
    path, bytes
        The file and its size.
    largest_error, rms_error
        The rounding errors of numbers that are stored in another dtype; 0 if there are none.
    """

    path: str
    bytes: int
    largest_error: float
    rms_error: float


class Refit(Protocol):
    """A function that fits other values with the same settings."""

    def __call__(self, values: Any) -> Field:
        """Return the field of other values."""

    def without_samples(self) -> Refit | NeedsSamples:
        """Return the object that replaces this one in a pickled field, without samples."""


class Field:
    """A continuous function on a box, made by `fit` or read by `load`.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> field = kf.fit(np.add.outer(np.arange(20.0), np.arange(30.0)))
    >>> field(np.array([[3.5, 10.25]])).round(6)
    array([13.75])
    >>> field.on_grid((40, 60)).shape
    (40, 60)
    >>> field.gradient(np.array([[3.5, 10.25]])).round(6)
    array([[1., 1.]])
    """

    # defaults for fields that were pickled by earlier versions
    _places: Places | None = None
    _trend: Trend | None = None
    _labels: Labels | None = None
    # whether the samples and the weights are arrays of Dask
    _is_lazy = False

    def __init__(
        self,
        encoding: Kronecker,
        planes: Array,
        frames: Sequence[Frame],
        axes: Sequence[Array],
        *,
        channels: bool,
        is_complex: bool = False,
        dtype: Any = None,
        report: FitReport | PointReport | None = None,
        again: Refit | NeedsSamples | None = None,
        uncertainty: Uncertainty | NeedsSamples | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoding = encoding
        self._planes = planes  # (C, K_1, ..., K_D), real; a complex channel has two planes
        #: The frame of each axis: its origin, its length, and its ends in the domain.
        self.frames = tuple(frames)
        self._axes = axes if isinstance(axes, SampleAxes) else SampleAxes(axes)
        #: Whether values have an axis of channels, and whether they are complex.
        self.has_channels, self.is_complex = channels, is_complex
        self._real = np.dtype(dtype or planes.dtype)  # of the values; weights may be more precise
        self.report = report
        self._again = again
        self._uncertainty = uncertainty
        #: Anything that JSON can hold, saved with the field: the source of the samples, units, a
        #: frame rate.
        self.info: dict[str, Any] = dict(info or {})

    @with_one_blas_thread
    def refit(self, values: Any) -> Field:
        """Return the field of other values on the same grid, with the same settings.

        The factorisations are reused.
        """
        if self._again is None:
            raise problem(
                "refit",
                "a field that was loaded",
                "a field that fit returned",
                "Call fit with the encoding of this field.",
            )
        if isinstance(self._again, NeedsSamples):
            raise self._again.error()
        if is_lazy(values) != self._is_lazy:
            both = ["samples in memory", "an array of Dask or zarr"]
            given, fitted = both if self._is_lazy else both[::-1]
            raise problem("values", given, f"{fitted}, as in the fit", "Fit them with kf.fit.")
        return self._again(values).with_places(self._places).with_labels(self._labels)

    # Copies: a pickle holds weights and settings, but no samples
    # ------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        again, uncertainty = self._again, self._uncertainty
        # uneven knots can be computed from the positions of the samples: a pickle holds only these
        for emb, axis, frame in zip(self.encoding.embedders, self._axes, self.frames, strict=True):
            if isinstance(emb, BSpline):
                emb.made_through(axis, frame)
        return {
            **self.__dict__,
            "_again": None if again is None else again.without_samples(),
            "_uncertainty": None if uncertainty is None else uncertainty.without_samples(),
        }

    def __copy__(self) -> Field:
        return shared_copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Field:
        return shared_copy(self, memo, shared=("_again", "_uncertainty"))

    def set_origin(self, again: Any, uncertainty: Any) -> None:
        """Set the function behind `refit` and the object behind `standard_error`."""
        self._again, self._uncertainty = again, uncertainty

    def with_refit(self, again: Any) -> Field:
        """Set the function behind `refit`; return the field."""
        self._again = again
        return self

    def with_axes(self, axes: Sequence[Array]) -> Field:
        """Set the positions that `on_grid` evaluates by default; return the field."""
        self._axes = SampleAxes(axes)
        return self

    def with_weights(self, planes: Array) -> Field:
        """Return a copy with other weights, as real planes (C, K_1, ..., K_D)."""
        new = self.__copy__()
        new._planes = planes
        return new

    def with_places(self, places: Places | None) -> Field:
        """Set the positions of the data, for `distance_to_data`; return the field."""
        self._places = places
        return self

    def with_trend(self, trend: Trend | None) -> Field:
        """Set the polynomial that is added to the features; return the field."""
        self._trend = trend
        return self

    def with_labels(self, labels: Labels | None) -> Field:
        """Set the names, units and kinds of the axes; return the field."""
        if labels is not None and len(labels.axes) != self.dimensions:
            raise problem(
                "labels", f"{len(labels.axes)} axes", f"{self.dimensions} axes", "One per axis."
            )
        self._labels = labels
        if self.report is not None and labels is not None:
            self.report.labels = labels
        return self

    @property
    def labels(self) -> Labels:
        """The names, units and kinds of the axes, and the name and attributes of the values."""
        return self._labels or Labels((AxisLabel(),) * self.dimensions)

    @property
    def coordinates(self) -> dict[str, Array]:
        """The positions of the samples by the name of their axis; dates as datetime64."""
        return {
            label.name or f"axis {i}": label.values(axis)
            for i, (label, axis) in enumerate(zip(self.labels.axes, self._axes, strict=True))
        }

    @property
    def places(self) -> Places | None:
        """The positions of the data, or None if unknown; see `distance_to_data`."""
        return self._places

    @property
    def trend(self) -> int | None:
        """The degree of the polynomial that is part of the field; None if there is none."""
        return None if self._trend is None else self._trend.basis.degree

    @property
    def dimensions(self) -> int:
        """The number D of coordinates."""
        return self.encoding.dimensions

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        """The ends (low, high) of each axis, between which the field is defined."""
        return tuple((frame.low, frame.high) for frame in self.frames)

    @property
    def periods(self) -> tuple[float | None, ...]:
        """The period of each axis; None where it does not wrap."""
        return tuple(frame.period for frame in self.frames)

    @property
    def axes(self) -> tuple[Array, ...]:
        """The positions of the samples that the field was fitted to."""
        return tuple(axis.copy() for axis in self._axes)

    @property
    def channel_count(self) -> int:
        """The number C of channels; one for a field without an axis of channels."""
        return self._plane_count // (2 if self.is_complex else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return np.result_type(self._real, np.complex64) if self.is_complex else self._real

    @property
    def weights(self) -> Array:
        """The weights, (K_1, ..., K_D) or (K_1, ..., K_D, C)."""
        return self._unplanar(self.planes)

    @property
    def planes(self) -> Array:
        """The weights as real planes (C, K_1, ..., K_D); a complex channel has two planes."""
        return self._planes

    @property
    def number_count(self) -> int:
        """The number of numbers from which the field computes its values."""
        trend = 0 if self._trend is None else self._trend.coefficients.size
        return math.prod(self.encoding.shape) * self._plane_count + trend

    def __repr__(self) -> str:
        return f"Field({self._values_text()}on {self._box_text()}, {self.encoding!r}, {self.dtype})"

    def _box_text(self) -> str:
        """Return the domain as text, with the names and units of its axes."""
        pairs = zip(self.labels.axes, self.domain, strict=True)
        return " x ".join(label.range(low, high) for label, (low, high) in pairs)

    def _values_text(self) -> str:
        """Return the name and unit of the values, if they are known."""
        name, unit = self.labels.name, self.labels.attrs.get("units")
        return f"{name}{f' [{unit}]' if unit else ''} " if name else ""

    # Evaluation
    # ------------------------------------------------------------------------------------------

    @with_one_blas_thread
    def on_grid(
        self,
        axes: Any = None,
        derivative: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        outside: str = "error",
        beyond: float | None = None,
        per: Any = None,
    ) -> Array:
        """Return the values on a grid.

        Parameters
        ----------
        axes : tuple of int, or sequence of arrays, optional
            A shape: the domain is divided into this many equal cells on each axis, and the field is
            evaluated at their centres. Or the positions on each axis, dates where the samples had
            dates, in a dictionary by name if the axes have names. By default the positions of the
            samples.
        derivative : sequence of int, or dict, optional
            How many times to differentiate along each axis, or along each of the axes named.
        out : array or memory map, optional
            Where to write the values, block by block, without a second copy.
        outside : "error", "clamp", "extrapolate" or "nan"
            What to do with positions outside the domain: raise an error, move them to its rim,
            evaluate the features there (many fade to zero, which leaves the trend of a fit that has
            one), or return NaN.
        beyond : float, optional
            Return NaN where the nearest datum is further away than this: see `distance_to_data`.
        per : str or timedelta, optional
            The unit of time of derivatives along dates: "day", "hour", ...; by default "second".

        Returns
        -------
        array of shape (M_1, ..., M_D) or (M_1, ..., M_D, C)
        """
        # descending positions are evaluated in ascending order and written in reverse
        given = self._grid(axes)
        falling = [len(x) > 1 and bool(x[0] > x[-1]) for x in given]
        positions = [x[::-1] if flip else x for x, flip in zip(given, falling, strict=True)]
        orders, lengths = self._orders(derivative), self._lengths(per)
        inside = [self._place(f"axes[{i}]", x, i, outside) for i, x in enumerate(positions)]
        shape = tuple(len(x) for x in positions)
        result = self._target(out, shape)
        target = result[tuple(slice(None, None, -1) if flip else slice(None) for flip in falling)]
        units = [frame.unit(x) for frame, (x, _) in zip(self.frames, inside, strict=True)]
        for rows, block in self._grid_blocks(units, orders):
            values = self._scaled(block, orders, lengths)
            if self._trend is not None:
                where = [x for x, _ in inside]
                added = self._trend.on_grid([where[0][rows], *where[1:]], orders)
                added = added * _power(lengths, orders)
                values = (values + added).astype(values.dtype)
            self._write(target[rows], values)
        for axis, (_, bad) in enumerate(inside):
            if bad is not None:
                target[(slice(None),) * axis + (bad,)] = np.nan
        if beyond is not None:
            places, limit = self._known_places("beyond"), _distance(beyond)
            for part, far in far_parts(places, positions, limit):
                target[part][far] = np.nan
        return result

    @with_one_blas_thread
    def __call__(
        self,
        points: Any = None,
        derivative: Sequence[int] | Mapping[str, int] | None = None,
        *,
        outside: str = "error",
        beyond: float | None = None,
        per: Any = None,
        **coordinates: Any,
    ) -> Array:
        """Return the values at ``points`` (P, D), as (P,) or (P, C).

        Fields whose axes have names take a table with these columns, or positions by name,
        ``field(lon=8.5, lat=47.4)``, which are broadcast: values have their shape. Fields on one
        axis also take a number, a date, or an array (P,) of these, whose shape values have. Arrays
        and tables of Dask give an array of Dask.
        ``derivative``, ``outside``, ``beyond`` and ``per`` are as in `on_grid`.
        """
        if is_lazy(points):
            from kronfield.lazy.points import values_at

            options = {"outside": outside, "beyond": beyond, "per": per}
            return values_at(self, points, derivative, options)
        X, shape = self.located(points, coordinates)
        orders, lengths = self._orders(derivative), self._lengths(per)
        placed = [self._place("points", X[:, i], i, outside) for i in range(self.dimensions)]
        units = [frame.unit(x) for frame, (x, _) in zip(self.frames, placed, strict=True)]
        values = self._scaled(self._at_points(units, orders), orders, lengths)
        if self._trend is not None:
            added = self._trend.at(np.stack([x for x, _ in placed], axis=1), orders)
            values = values + added * _power(lengths, orders)
        result = self._unplanar(values).astype(self.dtype, copy=False)
        for _, bad in placed:
            if bad is not None:
                result[bad] = np.nan
        if beyond is not None:
            limit = _distance(beyond)
            result[self._known_places("beyond").distances(X, limit) > limit] = np.nan
        return _shaped(result, shape)

    def distance_to_data(self, points: Any = None, **coordinates: Any) -> Array:
        """Return the distance (P,) of each of ``points`` (P, D) to the nearest datum.

        Positions by name are taken as in a call of the field.

        Distances are in the ``units`` that were given to `fit_points`, by default those of the
        positions, which must then be lengths: for longitude and latitude pass ``units``, or fit in
        a projection. Data of weight 0 and missing samples do not count. Up to 65,536 positions of
        scattered data are kept and saved with the field, rounded to 1/65,535 of their box. Of more
        points, one is kept in each occupied cell of a grid: the finest grid with at most 65,536
        occupied cells. Distances are then too large by at most the diagonal of a cell.

        Examples
        --------
        >>> import numpy as np
        >>> import kronfield as kf
        >>> field = kf.fit_points(np.array([[0.0, 0], [1, 0], [0, 1], [4, 4]]), np.arange(4.0))
        >>> field.distance_to_data(np.array([[1.0, 1.0], [4.0, 1.0]])).round(3)
        array([1., 3.])
        >>> np.isnan(field.on_grid((4, 4), beyond=1.0)).sum()
        np.int64(12)
        """
        X, shape = self.located(points, coordinates)
        return _shaped(self._known_places("distance_to_data").distances(X), shape)

    def _known_places(self, name: str) -> Distances:
        if self._places is None:
            raise problem(
                name,
                "a field that does not know where its data are",
                "a field that fit or fit_points returned, or saved by this version",
                "Fit it again, or leave beyond out.",
            )
        known = self._places.on(self._axes)
        if not any(self.periods):
            return known
        return RoundDistances(known, [frame.low for frame in self.frames], self.periods)

    def gradient(
        self, points: Any = None, *, outside: str = "error", per: Any = None, **coordinates: Any
    ) -> Array:
        """Return the first derivatives at ``points`` (P, D), as (P, D) or (P, D, C).

        Derivatives along dates are per second, or ``per`` another unit of time. Positions by name
        are taken as in a call of the field.
        """
        rows = map(tuple, np.eye(self.dimensions, dtype=int))
        parts = [self(points, row, outside=outside, per=per, **coordinates) for row in rows]
        return np.stack(parts, axis=-2 if self.has_channels else -1)

    def laplacian(self, points: Any = None, *, outside: str = "error", **coordinates: Any) -> Array:
        """Return the sum of the second derivatives at ``points`` (P, D), as (P,) or (P, C).

        Positions by name are taken as in a call of the field.
        """
        twice = 2 * np.eye(self.dimensions, dtype=int)
        parts = [self(points, tuple(row), outside=outside, **coordinates) for row in twice]
        return functools.reduce(operator.add, parts)  # arrays may be those of Dask

    @with_one_blas_thread
    def standard_error(
        self,
        points: Any = None,
        *,
        noise: float | None = None,
        samples: int = 64,
        seed: int = 0,
        outside: str = "error",
        **coordinates: Any,
    ) -> Array:
        """Return the standard error of a fit at ``points`` (P, D), as (P,) or (P, C).

        It is the standard deviation of the posterior, given the noise in the values and with the
        penalty as prior. The fit plus or minus twice the standard error contains the true value at
        about 95 % of all places. Fits to points have it: exactly for up to 2048 weights; for more
        weights it is estimated from seeded random fits. Fits to noisy grids have it if a penalty
        was chosen for the noise.

        Parameters
        ----------
        points : array of shape (P, D)
            The positions, which may be given by name as in a call of the field.
        noise : float, optional
            The standard deviation of a value of weight 1; by default estimated from the residuals.
        samples : int
            The number of random fits if there are too many weights for an exact result. With 64 the
            relative error of the result is 9 %.
        seed : int
            The seed of the random fits.
        outside : "error", "clamp", "extrapolate" or "nan"
            As in `on_grid`.
        """
        if self._uncertainty is None:
            raise problem(
                "standard_error",
                "a field that has no penalty for noise, or was not fitted here",
                "a field that fit_points returned, or a penalised fit to a noisy grid",
                "Ask the field that was returned by the fit.",
            )
        if isinstance(self._uncertainty, NeedsSamples):
            raise self._uncertainty.error()
        X, shape = self.located(points, coordinates)
        placed = [self._place("points", X[:, i], i, outside) for i in range(self.dimensions)]
        inside = np.stack([x for x, _ in placed], axis=1)
        if noise is not None:
            remedy = "It is in units of the values."
            noise = real("noise", noise, low=0.0, high=1e300, remedy=remedy)
        count, seed = whole("samples", samples, at_least=2), whole("seed", seed, at_least=0)
        result = self._uncertainty.deviations(inside, noise, count, seed)
        if self.is_complex:  # the parts of a complex value are independent
            result = np.hypot(result[:, 0::2], result[:, 1::2])
        result = result.astype(self._real)
        for _, bad in placed:
            if bad is not None:
                result[bad] = np.nan
        return _shaped(result if self.has_channels else result[:, 0], shape)

    @with_one_blas_thread
    def integral(self, box: Sequence[Sequence[float]] | None = None) -> Any:
        """Return the exact integral over ``box``, one (low, high) per axis; by default the domain.

        The result is a number, or an array of shape (C,). Dates count in seconds.
        """
        bounds = self.domain if box is None else self._plain_box(box)
        pairs = isinstance(bounds, list | tuple | np.ndarray) and all(
            np.shape(pair) == (2,) for pair in bounds
        )
        if not pairs or len(bounds) != self.dimensions:
            raise problem(
                "box", describe(box), f"{self.dimensions} pairs (low, high)", "One pair per axis."
            )
        rows, sides = [], []
        for axis, (pair, frame) in enumerate(zip(bounds, self.frames, strict=True)):
            ends = np.array(
                [
                    real("box", end, low=-1e300, high=1e300, remedy="Ends are finite.")
                    for end in pair
                ]
            )
            ends, _ = self._place("box", ends, axis, "error")
            sides.append((float(ends[0]), float(ends[1])))
            low, high = frame.unit(ends)
            rows.append(
                self.encoding.embedders[axis].integral(float(low), float(high)) * frame.length
            )
        total = self._contracted(rows)
        if self._trend is not None:
            total = total + self._trend.integral(sides)
        result = self._unplanar(total)
        return result if self.has_channels else result[()]

    # Pictures
    # ------------------------------------------------------------------------------------------

    def plot(
        self,
        ax: Any = None,
        *,
        channel: int | str | None = None,
        data: Any = None,
        band: bool = True,
        size: int | None = None,
        beyond: float | None = None,
    ) -> Any:
        """Draw the field with Matplotlib; return its axes.

        A field on one axis is a line with a band of twice its standard error, if it has one. On two
        axes it is a map with a colour bar and dots where the data are, or a picture if its channels
        are colours. On three axes it is drawn as slices through the middle, on more as lines
        through the middle along each axis. Names, units and dates are on the axes.

        Parameters
        ----------
        ax : axes of Matplotlib, optional
            Where to draw, by default in a new figure. Three axes for a field on three axes.
        channel : int or str, optional
            The channel to draw, by its number or name; by default colours, or the first one.
        data : (points, values), optional
            Samples to draw in the colours of the map, or as dots beside the line. A field does not
            keep the values of its samples.
        band : bool
            Whether to draw the band of a line.
        size : int, optional
            Positions along the line, or along the longer side of the map.
        beyond : float, optional
            Leave blank what is further than this from the data; see `distance_to_data`.

        Examples
        --------
        >>> import numpy as np
        >>> import kronfield as kf
        >>> ax = kf.fit(np.sin(np.arange(20.0))).plot()
        >>> ax.get_xlabel()
        'axis 0'
        """
        from kronfield.plots.fields import draw_field

        return draw_field(self, ax, channel=channel, data=data, band=band, size=size, beyond=beyond)

    def _repr_html_(self) -> str:
        """Return a small picture and the key facts, for notebooks."""
        from kronfield.plots.summary import field_html

        return field_html(self)

    # Saving
    # ------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, dtype: str | None = None) -> Saved:
        """Save to one file, completely or not at all; see `load`.

        Parameters
        ----------
        path : path
            The file to write; an existing file is replaced.
        dtype : "float16", "float32" or "float64", optional
            The dtype in which to store the weights, or the samples of a field that holds samples;
            by default their own. The result holds the rounding errors.
        """
        if dtype not in (None, "float16", "float32", "float64"):
            raise problem(
                "dtype",
                repr(dtype),
                '"float16", "float32" or "float64"',
                "Leave it out to keep the dtype of the weights.",
            )
        name, numbers, arrays, metadata = self._contents()
        stored = in_dtype(numbers, dtype, name)
        error = (stored.astype(np.float64) - numbers).ravel() if dtype else np.zeros(1)
        metadata, arrays = self._with_context(metadata, arrays)
        coverage = getattr(self.report, "known_coverage", None)
        if coverage is not None:
            known = {**(metadata.get("info") or {}), "coverage": coverage.to_dict()}
            metadata = {**metadata, "info": known}
        storage.write(path, {name: stored, **arrays}, metadata)
        rms = float(np.sqrt(np.mean(error**2)))
        return Saved(os.fspath(path), os.path.getsize(path), float(np.abs(error).max()), rms)

    def _with_context(
        self, metadata: dict[str, Any], arrays: dict[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the contents of a file with the positions of the data and the labels."""
        if self._places is not None:
            kept, about = self._places.contents()
            arrays, metadata = {**arrays, **kept}, {**metadata, "places": about}
        if self._labels is not None:
            metadata = {**metadata, "labels": self._labels.to_dict()}
        return metadata, arrays

    # Methods that fields of other kinds override
    # ------------------------------------------------------------------------------------------

    def _contents(self) -> tuple[str, Array, dict[str, Array], dict[str, Any]]:
        """Return the contents of a file: the numbers with their name, other arrays, metadata."""
        metadata: dict[str, Any] = {
            "encoding": self.encoding.to_dict(),
            "frames": [[f.origin, f.length, f.low, f.high] for f in self.frames],
            "channels": self.has_channels,
            "complex": self.is_complex,
            "weights_dtype": str(self._planes.dtype),
            "values_dtype": str(self._real),
            "info": self.info,
        }
        axes = {f"axis{i}": axis for i, axis in enumerate(self._axes)}
        if any(frame.wraps for frame in self.frames):
            metadata["wraps"] = [frame.wraps for frame in self.frames]
        if self._trend is not None:  # earlier versions must refuse it, or they would leave it out
            basis = self._trend.basis
            metadata |= {
                "version": storage.TREND_VERSION,
                "trend": [basis.degree, list(basis.centre), list(basis.length)],
            }
            axes["trend"] = self._trend.coefficients
        return "weights", self._planes, axes, metadata

    @property
    def _plane_count(self) -> int:
        """The number of real planes: a complex channel has two."""
        return int(self._planes.shape[0])

    def _grid_blocks(
        self, units: list[Array], orders: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array]]:
        """Yield the grid in parts (index, planes (C, ...)), for positions in embedder units."""
        return evaluation.grid_blocks(self.encoding, self._planes, units, orders)

    def _at_points(self, units: list[Array], orders: tuple[int, ...]) -> Array:
        """Return planes (C, P) at points in embedder units."""
        return evaluation.at_points(self.encoding, self._planes, units, orders)

    def _contracted(self, rows: list[Array]) -> Array:
        """Return the sums (C,) of all weights times one row (K,) per axis, float64."""
        return evaluation.contracted(self._planes, rows)

    # Helpers
    # ------------------------------------------------------------------------------------------

    def _grid(self, axes: Any) -> list[Array]:
        if axes is None:
            return [axis.copy() for axis in self._axes]
        labels = self.labels.axes
        if isinstance(axes, Mapping):
            axes = self._by_name("axes", axes)
        elif self.dimensions == 1 and labels[0].is_time and is_time(axes):
            axes = [axes]
        if not isinstance(axes, list | tuple) or len(axes) != self.dimensions:
            raise problem(
                "axes",
                describe(axes),
                f"a tuple of {self.dimensions} sizes, or of {self.dimensions} arrays",
                "One per axis of the field.",
            )
        if all(isinstance(size, int | np.integer) for size in axes):
            sizes = [whole(f"axes[{i}]", size, at_least=1) for i, size in enumerate(axes)]
            cells = zip(self.frames, sizes, strict=True)
            return [cell_centres(f.low, f.high, n) for f, n in cells]
        positions = [
            label.numbers(f"axes[{i}]", axis)
            for i, (label, axis) in enumerate(zip(labels, axes, strict=True))
        ]
        for i, x in enumerate(positions):
            if x.ndim != 1:
                raise problem(
                    f"axes[{i}]", describe(x), "shape (M,)", "Pass the positions on one axis."
                )
        return positions

    def _by_name(self, argument: str, given: Mapping[Any, Any]) -> list[Any]:
        """Return the entries of a dictionary in the order of the axes."""
        names = self.labels.names
        if not same_names(names, list(given)):
            known = None not in names
            raise problem(
                argument,
                f"the names {', '.join(map(str, given)) or '(none)'}",
                f"{', '.join(map(str, names))}" if known else "positions without names",
                "Pass one position per axis."
                if known
                else "The axes of this field have no names: pass axes={...} to the fit, or name "
                "the index, series.rename_axis(...).",
                TypeError,
            )
        entries = {str(name): entry for name, entry in given.items()}
        return [entries[str(name)] for name in names]

    def located(
        self, points: Any, coordinates: Mapping[str, Any] | None = None
    ) -> tuple[Array, tuple[int, ...] | None]:
        """Return points (P, D), and the shape of values by name or on a line, else None."""
        labels = self.labels.axes
        named = coordinates or (points if isinstance(points, Mapping) else {})
        if any(map(is_lazy, (points, *named.values()))):
            raise problem(
                "points",
                "positions of Dask",
                "positions in memory, or for values and derivatives one array or table of Dask",
                "Pass such an array (P, D) to a call of the field, or compute them first.",
            )
        if coordinates:
            if points is not None:
                raise problem(
                    "points",
                    f"points and also {', '.join(coordinates)}",
                    "points, or positions by name",
                    "Leave one of them out.",
                    TypeError,
                )
            points = coordinates
        if isinstance(points, Mapping):
            entries = self._by_name("points", points)
            columns = [
                label.numbers(str(label.name), entry)
                for label, entry in zip(labels, entries, strict=True)
            ]
            try:
                wide = np.broadcast_arrays(*columns)
            except ValueError as error:
                shapes = {str(one.name): x.shape for one, x in zip(labels, columns, strict=True)}
                raise problem(
                    "points", f"shapes {shapes}", "shapes that broadcast", "See numpy.broadcast."
                ) from error
            return np.stack([x.ravel() for x in wide], axis=1), wide[0].shape
        if hasattr(points, "columns") and hasattr(points, "iloc"):  # a table: columns by name
            return self._points(self._table(points)), None
        if any(label.is_time for label in labels):
            if self.dimensions == 1 and _are_times(points):
                x = labels[0].numbers("points", points)
                return x.reshape(-1, 1), x.shape
            mixed = _object_columns(points, self.dimensions)
            if mixed is not None:
                pairs = zip(labels, mixed, strict=True)
                return np.stack([one.numbers("points", x) for one, x in pairs], axis=1), None
        if self.dimensions == 1 and np.ndim(points) < 2:  # positions on a line
            x = real_numbers("points", points)
            return x.reshape(-1, 1), x.shape
        return self._points(points), None

    def _table(self, points: Any) -> Any:
        """Return the columns of a table as points (P, D), by name if the axes have names."""
        names, columns = self.labels.names, [str(name) for name in points.columns]
        if None in names:
            return points.to_numpy()
        missing = [str(name) for name in names if name not in columns]
        if missing:
            raise problem(
                "points",
                f"a table without {', '.join(missing)}",
                f"the columns {', '.join(map(str, names))}",
                f"It has {', '.join(columns)}.",
            )
        return np.stack(
            [
                label.numbers(str(label.name), points.iloc[:, columns.index(str(label.name))])
                for label in self.labels.axes
            ],
            axis=1,
        )

    def _plain_box(self, box: Any) -> Any:
        """Return a box in which dates are numbers."""
        if isinstance(box, Mapping):
            box = self._by_name("box", box)
        labels = self.labels.axes
        if not any(label.is_time for label in labels) or len(box) != len(labels):
            return box
        return [
            tuple(label.numbers("box", list(pair))) if label.is_time else pair
            for label, pair in zip(labels, box, strict=True)
        ]

    def _points(self, points: Any) -> Array:
        X = real_numbers("points", points)
        if X.ndim != 2 or X.shape[1] != self.dimensions:
            raise problem(
                "points", describe(X), f"shape (P, {self.dimensions})", "One row per point."
            )
        return X

    def _lengths(self, per: Any) -> tuple[float, ...]:
        """Return the unit of derivatives on each axis, in the units of its positions."""
        if per is None:
            return (1.0,) * self.dimensions
        length, times = seconds_of(per), [label.is_time for label in self.labels.axes]
        if not any(times):
            raise problem(
                "per",
                describe(per),
                "None, as no axis has dates",
                "Derivatives are by the units of the axes.",
            )
        return tuple(length if time else 1.0 for time in times)

    def _orders(self, derivative: Sequence[int] | Mapping[str, int] | None) -> tuple[int, ...]:
        if derivative is None:
            return (0,) * self.dimensions
        if isinstance(derivative, Mapping):
            rest = {str(name): 0 for name in self.labels.names}
            derivative = self._by_name("derivative", {**rest, **derivative})
        orders = [derivative] if isinstance(derivative, int | np.integer) else derivative
        if not isinstance(orders, list | tuple | np.ndarray) or len(orders) != self.dimensions:
            raise problem(
                "derivative", describe(derivative), f"{self.dimensions} orders", "One per axis."
            )
        return tuple(whole("derivative", order, at_least=0) for order in orders)

    def _place(self, name: str, x: Array, axis: int, outside: str) -> tuple[Array, Array | None]:
        """Return the positions to evaluate, and a mask of those whose values become NaN."""
        if outside not in OUTSIDE:
            raise problem(
                "outside",
                repr(outside),
                f"one of {OUTSIDE}",
                "It selects what to do with positions outside the domain.",
            )
        frame = self.frames[axis]
        if frame.wraps:  # every position is inside
            return x, None
        slack = 1e-9 * (frame.high - frame.low)  # for rounding of positions on the rim
        bad = (x < frame.low - slack) | (x > frame.high + slack)
        if outside == "extrapolate" or not np.any(bad):
            return x, None
        if outside == "error":
            label = self.labels.axes[axis]
            ends = float(x[bad][0]), frame.low, frame.high
            where, low, high = (label.text(one, ends) for one in ends)
            on = f"axis {axis}{f', {label.name},' if label.name else ''}"
            raise problem(
                name,
                f"{where} on {on} ({int(bad.sum())} of {x.size} are outside)",
                f"positions in [{low}, {high}]",
                'Pass outside="clamp", "extrapolate" or "nan", or give fit a larger domain.',
            )
        return np.clip(x, frame.low, frame.high), bad if outside == "nan" else None

    def _scaled(self, values: Array, orders: tuple[int, ...], lengths: tuple[float, ...]) -> Array:
        """Convert derivatives from the embedders' units to those of positions (chain rule)."""
        if not any(orders):
            return values
        try:
            scale = math.prod(
                (frame.length / length) ** -float(order)
                for frame, order, length in zip(self.frames, orders, lengths, strict=True)
            )
        except OverflowError:
            scale = math.inf
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            real = np.zeros((), dtype=self.dtype).real.dtype  # weights may have more digits
            scaled = (values.astype(np.float64) * scale).astype(real)
        if not np.all(np.isfinite(scaled)):
            raise derivative_overflow(orders, real)
        return scaled

    def _unplanar(self, planes: Array) -> Array:
        """Return planes (C, ...) as (..., C), or as (...) for a field without channels.

        Of a complex field, each pair of planes becomes one channel.
        """
        moved = np.moveaxis(planes, 0, -1)
        if self.is_complex:
            moved = joined_complex(moved)
        return moved if self.has_channels else moved[..., 0]

    def _write(self, target: Array, planes: Array) -> None:
        """Write planes (C, ...) to ``target``, where channels come last."""
        if self.has_channels and not self.is_complex:
            first_axis_last(planes, target)
        else:
            target[...] = self._unplanar(planes)

    def _target(self, out: Array | None, shape: tuple[int, ...]) -> Array:
        channels = self.channel_count
        full = (*shape, channels) if self.has_channels else shape
        if out is None:
            return np.empty(full, dtype=self.dtype)
        if (
            not isinstance(out, np.ndarray)
            or out.shape != full
            or not np.can_cast(self.dtype, out.dtype, "same_kind")
            or not out.flags.writeable
        ):
            raise problem(
                "out",
                describe(out),
                f"a NumPy array of shape {full} that holds {self.dtype}",
                "Create it with numpy.empty, or leave it out.",
            )
        return out


def derivative_overflow(orders: tuple[int, ...], dtype: np.dtype[Any]) -> InputError:
    """Return the error for derivatives that are too large for the dtype of the values."""
    return problem(
        "derivative",
        orders,
        f"orders whose values {dtype} can hold, in the units of the axes",
        "Use other units of length, or float64 values.",
    )


def _power(lengths: tuple[float, ...], orders: tuple[int, ...]) -> float:
    """Return the factor of derivatives in these units of the axes."""
    return math.prod(length ** float(order) for length, order in zip(lengths, orders, strict=True))


def _shaped(values: Array, shape: tuple[int, ...] | None) -> Array:
    """Return values (P, ...) in the ``shape`` of their positions, if there is one."""
    return values if shape is None else values.reshape((*shape, *values.shape[1:]))


def _are_times(points: Any) -> bool:
    """Return whether points are dates, not rows of one date each; one text or a line of texts."""
    if isinstance(points, list | tuple):
        words = bool(points) and all(isinstance(one, str) for one in points)
    else:
        words = isinstance(points, str) or getattr(points, "dtype", np.dtype(float)).kind in "UT"
    dates = words or is_time(points) or calendar_of(points) is not None
    return dates and not (np.ndim(points) == 2 and np.shape(points)[1] == 1)


def _object_columns(points: Any, D: int) -> list[Array] | None:
    """Return the columns of points (P, D) that hold dates beside numbers; None for others."""
    if getattr(getattr(points, "dtype", None), "kind", "O") not in "OmM":
        return None
    try:
        array = np.asarray(points)
        if array.dtype.kind not in "mM":
            array = np.asarray(points, dtype=object)
    except (TypeError, ValueError):
        return None
    if array.ndim != 2 or array.shape[1] != D or not len(array):
        return None
    if array.dtype.kind in "mM":
        return list(array.T)
    first = [is_time(array[:1, i]) for i in range(D)]
    if not any(first):
        return None
    return [array[:, i] if time else array[:, i].astype(float) for i, time in enumerate(first)]


def _distance(beyond: Any) -> float:
    return real("beyond", beyond, low=0.0, high=1e300, remedy="It is a distance to the data.")


def field_from(
    path: Any,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Field:
    """Return the field that `Field.save` wrote, from the contents of its file."""
    with storage.restoring(path):
        encoding = Encoding.from_dict(metadata["encoding"], functions)
        head = storage.Head.of(metadata)
        planes = arrays["weights"].astype(head.weights_dtype)
        positions = head.positions(arrays)
        if (
            not isinstance(encoding, Kronecker)
            or not head.fits(len(planes), encoding.dimensions)
            or planes.shape[1:] != encoding.shape
            or not np.all(np.isfinite(planes))
        ):
            raise storage.misfit(path)
        trend = _trend_from(arrays, metadata, planes)
    return Field(encoding, planes, head.frames, positions, **head.about).with_trend(trend)


def _trend_from(
    arrays: Mapping[str, Array], metadata: Mapping[str, Any], planes: Array
) -> Trend | None:
    """Return the trend of a saved field, if it has one."""
    if metadata.get("trend") is None:
        return None
    basis = TrendBasis.saved(metadata["trend"])
    coefficients, D = arrays["trend"].astype(np.float64), planes.ndim - 1
    valid = 0 <= basis.degree <= 2 and len(basis.centre) == len(basis.length) == D
    if not valid or not all(math.isfinite(x) for x in basis.centre) or not min(basis.length) > 0:
        raise ValueError("a trend without a valid basis")
    expected = (len(planes), len(basis.powers))
    if coefficients.shape != expected or not np.all(np.isfinite(coefficients)):
        raise ValueError(f"a trend without {expected} finite coefficients")
    return Trend(basis, coefficients)
