"""The accessors ``da.kronfield`` and ``ds.kronfield`` of xarray: labelled data in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, is_lazy, problem, sum_is_finite
from kronfield._core.labels import (
    AxisLabel,
    Labels,
    attrs_of_derivative,
    calendar_of,
    is_time,
    plain_attrs,
)
from kronfield.field import Field
from kronfield.fitting import grid as grids
from kronfield.fitting.gappy_lines import fill_lines
from kronfield.interop.labelled import axis_positions, coordinate_label, has_positions


class ArrayAccessor:
    """The methods of ``da.kronfield``, for a DataArray; see `kronfield.xarray`.

    Dimensions that are not named are channels: all are fitted together. NaN is a missing value.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def fit(self, dims: Any = None, **options: Any) -> Field:
        """Return the field along ``dims``, by default all whose coordinates are numbers or dates.

        Other dimensions are channels, in C order. ``options`` are those of `fit`.
        """
        names = self._dims(dims)
        values, _ = self._values(names)
        missing = _missing(values)
        if missing is not None:
            options = {"mask": missing, **options}
        return self._field(names, values, grids.fit, options)

    def interp(
        self, coords: Mapping[Any, Any] | None = None, *, outside: str = "nan", **names: Any
    ) -> Any:
        """Return the values at other coordinates, as ``da.interp`` does: noise is kept.

        To remove it, use `denoise` first. A number removes its dimension, an array replaces its
        coordinate. DataArrays with other dimensions are points, as in xarray. Positions outside of
        the domain, which extends half a step beyond the samples, become NaN, or as ``outside``
        says: see `Field.on_grid`.
        """
        wanted = {**(coords or {}), **names}
        if not wanted:
            return self._data.copy()
        dims = self._dims(list(wanted))
        arrays = {dim: _target(dim, new) for dim, new in wanted.items()}
        if any(new.ndim and new.dims != (dim,) for dim, new in arrays.items()):
            return self._at_points(dims, arrays, outside)
        positions = [np.atleast_1d(arrays[dim].values) for dim in dims]

        sizes = [len(x) for x in positions]

        def grid(field: Field) -> Array:
            # channels first in memory, as the field computes them
            out = np.empty((field.channel_count, *sizes), dtype=field.dtype)
            return field.on_grid(positions, outside=outside, out=np.moveaxis(out, 0, -1))

        values = self._evaluated(dims, grid, _through_samples)
        coordinates = {
            dim: (dim, x, self._coordinate_attrs(dim))
            for dim, x in zip(dims, positions, strict=True)
        }
        result = self._result(dims, sizes, values, coordinates)
        numbers = {dim: 0 for dim in dims if arrays[dim].ndim == 0}
        return result.isel(numbers) if numbers else result

    def interp_like(self, other: Any, *, outside: str = "nan") -> Any:
        """Return the values at the coordinates of ``other``, in the dimensions that both have."""
        shared = {
            dim: other.coords[dim].values
            for dim in self._data.dims
            if dim in other.coords and dim in self._data.coords
            if has_positions(self._data.coords[dim]) and has_positions(other.coords[dim])
            if not self._data.coords[dim].equals(other.coords[dim])
        }
        return self.interp(shared, outside=outside)

    def fill(self, dims: Any = None, **options: Any) -> Any:
        """Return the data with NaN filled along ``dims`` together; known values do not change.

        A channel without any value stays as it is.
        """
        data = self._data
        if data.dtype.kind not in "fc" or not bool(data.isnull().any()):
            return data.copy()
        names = self._dims(dims)
        filled = self._on_samples(names, lambda field: field.on_grid(), grids.fit, options)
        return data.where(data.notnull(), filled.astype(data.dtype)).assign_attrs(data.attrs)

    def denoise(self, dims: Any = None, **options: Any) -> Any:
        """Return the data without noise, by `denoise` along ``dims``, whose options it takes."""
        return self._on_samples(
            self._dims(dims), lambda field: field.on_grid(), grids.denoise, options
        )

    def differentiate(self, coord: Any, order: int = 1, *, datetime_unit: Any = None) -> Any:
        """Return the derivative along one dimension, at the samples.

        Along dates it is per second, or per ``datetime_unit``: "day", "h", ... The attribute
        "units" is left out, since a derivative has another unit.
        """
        names = self._dims([coord])
        return _without_unit(
            self._on_samples(
                names,
                lambda field: field.on_grid(derivative=(order,), per=datetime_unit),
                grids.fit,
                {},
            )
        )

    def integrate(self, dims: Any = None) -> Any:
        """Return the integral along ``dims`` between the first and the last sample.

        Dates count in seconds. The integral runs from the smallest to the largest position, so
        that falling latitudes do not change the sign. The attribute "units" is left out, since an
        integral has another unit.
        """
        names = self._dims(dims)

        def whole(field: Field) -> Array:
            ends = [(float(x.min()), float(x.max())) for x in field.axes]
            return np.asarray(field.integral(ends)).reshape(*[1] * len(ends), -1)

        result = self._result(names, [1] * len(names), self._evaluated(names, whole))
        return _without_unit(result.isel(dict.fromkeys(names, 0)))

    # Helpers
    # ------------------------------------------------------------------------------------------

    def _dims(self, dims: Any) -> list[Any]:
        """Return the dimensions to fit along, in the order of the data."""
        data = self._data
        if dims is None:
            chosen = self._usual_dims()
        else:
            chosen = [dims] if isinstance(dims, str) else list(dims)
        unknown = [str(d) for d in chosen if d not in data.dims]
        if unknown or not chosen:
            raise problem(
                "dims",
                ", ".join(unknown) or "none",
                f"some of {', '.join(map(str, data.dims))}",
                "Name dimensions of the DataArray.",
            )
        words = [d for d in chosen if self._has_words(d)]
        if words:
            raise problem(
                "dims",
                f"{words[0]}, of {data.coords[words[0]].dtype}",
                "dimensions with numbers or dates",
                "Other dimensions are channels: leave it out.",
            )
        return [d for d in data.dims if d in chosen]

    def _usual_dims(self) -> list[Any]:
        """Return the dimensions with positions; if there are none, those without coordinates."""
        data = self._data
        plain = [d for d in data.dims if d not in data.coords]
        return [d for d in data.dims if d not in plain and not self._has_words(d)] or plain

    def _has_words(self, dim: Any) -> bool:
        """Return whether the coordinate of a dimension is neither numbers nor dates."""
        coords = self._data.coords
        return dim in coords and not has_positions(coords.variables[dim])

    def _values(self, dims: Sequence[Any]) -> tuple[Array, tuple[int, ...]]:
        """Return values (N_1, ..., N_D) or (N_1, ..., N_D, C), and the shape of the channels."""
        data = self._data
        if is_lazy(data):
            raise problem(
                "data",
                "a DataArray in chunks of Dask",
                "samples in memory",
                "kf.fit(data) gives a lazy field; data.compute().kronfield reads all samples.",
            )
        others = [dim for dim in data.dims if dim not in dims]
        values = np.ascontiguousarray(data.variable.transpose(*others, *dims).values)
        rest = values.shape[: len(others)]
        if not rest:
            return values, rest
        # channels come last, but first in memory, as they are fitted
        return np.moveaxis(values.reshape(-1, *values.shape[len(rest) :]), 0, -1), rest

    def _axes(self, dims: Sequence[Any]) -> tuple[tuple[AxisLabel, ...], list[Array]]:
        """Return the labels of dimensions, and the positions as numbers."""
        data = self._data
        labels = tuple(coordinate_label(data, dim) for dim in dims)
        pairs = zip(labels, dims, strict=True)
        return labels, [one.numbers(str(dim), axis_positions(data, dim)) for one, dim in pairs]

    def _field(
        self, dims: Sequence[Any], values: Array, make: Callable[..., Field], options: Any
    ) -> Field:
        data = self._data
        labels, axes = self._axes(dims)
        field = make(values, axes, channels=values.ndim > len(dims), **options)
        name = None if data.name is None else str(data.name)
        return field.with_labels(Labels(labels, name, plain_attrs(data.attrs)))

    def _evaluated(
        self,
        dims: Sequence[Any],
        evaluate: Callable[[Field], Array],
        make: Callable[..., Field] = grids.fit,
        options: Mapping[str, Any] | None = None,
    ) -> Array:
        """Return values (..., C) of the fields of all channels.

        Channels are fitted together if the same values are missing from them. Lines whose gaps
        differ are first filled, all together, unless ``options`` say how to fit them.
        """
        values, rest = self._values(dims)
        given = dict(options or {})
        wide = values if rest else values[..., None]
        missing = _missing(wide)
        if missing is None or bool(np.all(missing == missing[..., :1])):
            if missing is not None and not missing.all():
                given.setdefault("mask", missing[..., 0])
            field = self._field(dims, wide, make, given)
            return evaluate(field)
        some = np.flatnonzero(~missing.all(axis=tuple(range(len(dims))))).tolist()
        result: Array | None = None
        if len(dims) == 1 and not given:
            lines = fill_lines(wide.T[some], missing.T[some], self._axes(dims)[1][0])
            groups = [(some, np.moveaxis(lines, 0, -1), given)]
        else:
            groups = [
                (alike, wide[..., alike], _with_mask(given, missing[..., alike[0]]))
                for alike in _alike(missing, some)
            ]
        for channels, part, own in groups:
            found = evaluate(self._field(dims, part, make, own))
            if result is None:
                result = np.full((*found.shape[:-1], wide.shape[-1]), np.nan, dtype=found.dtype)
            result[..., channels] = found
        assert result is not None  # some value is known
        return result

    def _on_samples(
        self,
        dims: Sequence[Any],
        evaluate: Callable[[Field], Array],
        make: Callable[..., Field],
        options: Mapping[str, Any],
    ) -> Any:
        """Return values at the samples, with the labels of the data."""
        data = self._data
        sizes = [data.sizes[dim] for dim in dims]
        result = self._result(dims, sizes, self._evaluated(dims, evaluate, make, options))
        return result.assign_coords(data.coords)

    def _result(
        self,
        dims: Sequence[Any],
        sizes: Sequence[int],
        values: Array,
        coordinates: Mapping[Any, Any] | None = None,
    ) -> Any:
        """Return values (M_1, ..., M_D, C) as a DataArray with the dimensions of the data.

        It has the coordinates of the data that have none of ``dims``, and ``coordinates``.
        """
        import xarray

        data = self._data
        others = [dim for dim in data.dims if dim not in dims]
        planes = np.moveaxis(values, -1, 0).reshape(*(data.sizes[dim] for dim in others), *sizes)
        order = [*others, *dims]
        kept, new = self._kept(dims), xarray.Coordinates(coordinates or {})
        indexes = {name: one for name, one in data.xindexes.items() if name in kept}
        return xarray.DataArray(
            planes.transpose([order.index(dim) for dim in data.dims]),
            xarray.Coordinates({**kept, **new.variables}, {**indexes, **new.xindexes}),
            data.dims,
            name=data.name,
            attrs=data.attrs,
        )

    def _kept(self, dims: Sequence[Any]) -> dict[Any, Any]:
        """Return the coordinates that have none of the dimensions, without their indexes."""
        return {
            name: coordinate
            for name, coordinate in self._data.coords.variables.items()
            if not set(coordinate.dims) & set(dims) and name not in dims
        }

    def _at_points(self, dims: Sequence[Any], arrays: Mapping[Any, Any], outside: str) -> Any:
        """Return values at points; the dimensions of the points replace ``dims``."""
        import xarray

        given = (arrays[dim] for dim in dims)
        wide = xarray.broadcast(
            *[one if isinstance(one, xarray.DataArray) else xarray.DataArray(one) for one in given]
        )
        labels = [coordinate_label(self._data, dim) for dim in dims]
        columns = [
            label.numbers(str(dim), one.values).ravel()
            for label, dim, one in zip(labels, dims, wide, strict=True)
        ]
        points = np.stack(columns, axis=1)
        values = self._evaluated(
            dims, lambda field: field(points, outside=outside), _through_samples
        )  # (P, C)
        data = self._data
        others = [dim for dim in data.dims if dim not in dims]
        kept = self._kept(dims)
        kept |= dict(wide[0].coords)
        kept |= {
            dim: (one.dims, one.values, self._coordinate_attrs(dim))
            for dim, one in zip(dims, wide, strict=True)
        }
        shape = (*wide[0].shape, *[data.sizes[dim] for dim in others])
        return xarray.DataArray(
            values.reshape(shape), kept, (*wide[0].dims, *others), name=data.name, attrs=data.attrs
        )

    def _coordinate_attrs(self, dim: Any) -> dict[Any, Any]:
        known = self._data.coords.variables.get(dim)
        return {} if known is None else dict(known.attrs)


class SetAccessor:
    """The methods of ``ds.kronfield``, for a Dataset: variable by variable.

    Variables without numbers, or without any of the dimensions, are returned unchanged.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def fit(self, dims: Any = None, **options: Any) -> dict[str, Field]:
        """Return the field of each variable, by name."""
        found = {
            str(name): ArrayAccessor(one).fit(_shared(one, dims), **options)
            for name, one in self._data.data_vars.items()
            if _is_fitted(one, dims)
        }
        if not found:
            raise problem("dims", dims, "dimensions of a variable with numbers", "Choose others.")
        return found

    def interp(
        self, coords: Mapping[Any, Any] | None = None, *, outside: str = "nan", **names: Any
    ) -> Any:
        """Return the variables at other coordinates; see `ArrayAccessor.interp`."""
        wanted = {**(coords or {}), **names}
        unknown = [str(dim) for dim in wanted if dim not in self._data.dims]
        if unknown:
            raise problem(
                "coords",
                ", ".join(unknown),
                f"some of {', '.join(map(str, self._data.dims))}",
                "Name dimensions of the data.",
            )
        return self._each(
            lambda one: one.kronfield.interp(
                {dim: new for dim, new in wanted.items() if dim in one.dims}, outside=outside
            ),
            list(wanted),
        )

    def interp_like(self, other: Any, *, outside: str = "nan") -> Any:
        """Return the variables at the coordinates of ``other``."""
        return self._each(lambda one: one.kronfield.interp_like(other, outside=outside), None)

    def fill(self, dims: Any = None, **options: Any) -> Any:
        """Return the variables with NaN filled; see `ArrayAccessor.fill`."""
        return self._each(lambda one: one.kronfield.fill(_shared(one, dims), **options), dims)

    def denoise(self, dims: Any = None, **options: Any) -> Any:
        """Return the variables without noise; see `ArrayAccessor.denoise`."""
        return self._each(lambda one: one.kronfield.denoise(_shared(one, dims), **options), dims)

    def differentiate(self, coord: Any, order: int = 1, *, datetime_unit: Any = None) -> Any:
        """Return the derivatives along one dimension; see `ArrayAccessor.differentiate`."""
        return self._each(
            lambda one: one.kronfield.differentiate(coord, order, datetime_unit=datetime_unit),
            coord,
        )

    def integrate(self, dims: Any = None) -> Any:
        """Return the integrals; see `ArrayAccessor.integrate`."""
        return self._each(lambda one: one.kronfield.integrate(_shared(one, dims)), dims)

    def _each(self, work: Callable[[Any], Any], dims: Any) -> Any:
        import xarray

        done = {
            name: work(one) if _is_fitted(one, dims) else one
            for name, one in self._data.data_vars.items()
        }
        replaced = {
            dim
            for name, one in done.items()
            for dim in self._data[name].dims
            if dim not in one.coords or not one.coords[dim].equals(self._data.coords.get(dim))
        }
        done = {
            name: one
            for name, one in done.items()
            if _is_fitted(self._data[name], dims) or not set(one.dims) & replaced
        }
        return xarray.Dataset(done, attrs=self._data.attrs)


def _without_unit(result: Any) -> Any:
    """Return a derivative or integral without the unit and the range of the values."""
    result.attrs = attrs_of_derivative(result.attrs)
    return result


def _through_samples(values: Array, axes: Any, **options: Any) -> Field:
    """Return a fit that passes through the samples; if samples are missing, a penalised fit."""
    ridge = None if options.get("mask") is not None else 0.0
    return grids.fit(values, axes, ridge=ridge, **options)


def _shared(one: Any, dims: Any) -> list[Any] | None:
    """Return those of ``dims`` that a variable has."""
    if dims is None:
        return None
    return [dim for dim in ([dims] if isinstance(dims, str) else dims) if dim in one.dims]


def _is_fitted(one: Any, dims: Any) -> bool:
    if one.dtype.kind not in "fiuc" or not one.dims:
        return False
    return bool(one.dims if dims is None else _shared(one, dims))


def _missing(values: Array) -> Array | None:
    """Return where values are NaN; None if none is."""
    if values.dtype.kind not in "fc" or sum_is_finite(values):
        return None
    missing = np.isnan(values)
    return missing if missing.any() else None


def _alike(missing: Array, channels: Sequence[int]) -> list[list[int]]:
    """Return the channels in groups from which the same values are missing."""
    groups: dict[bytes, list[int]] = {}
    for channel in channels:
        groups.setdefault(np.packbits(missing[..., channel]).tobytes(), []).append(channel)
    return list(groups.values())


def _with_mask(options: dict[str, Any], gaps: Array) -> dict[str, Any]:
    return {**options, "mask": gaps} if gaps.any() else options


def _plain(new: Any) -> Any:
    """Return positions as an array; text is read as dates."""
    if calendar_of(new) is not None:
        return np.asarray(new, dtype=object)
    if isinstance(new, str) or (isinstance(new, list) and new and isinstance(new[0], str)):
        return np.asarray(new, dtype="M8[ns]")
    return np.asarray(new, dtype="M8[ns]") if is_time(new) and not _has_dtype(new) else new


def _has_dtype(new: Any) -> bool:
    return getattr(getattr(new, "dtype", None), "kind", "O") != "O"


def _target(dim: Any, new: Any) -> Any:
    """Return new positions along a dimension as a DataArray, or as a Variable.

    An array with one axis that is not a DataArray lies along the dimension.
    """
    import xarray

    if isinstance(new, xarray.DataArray):
        return new
    positions = _plain(new)
    if np.ndim(positions) > 1:
        return xarray.DataArray(positions)
    return xarray.Variable((dim,) if np.ndim(positions) else (), positions)
