"""Objects of xarray and pandas, converted to the arguments and labels of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, ends_in_channels, is_lazy, problem
from kronfield._core.labels import AxisLabel, Labels, is_time, plain_attrs
from kronfield.fitting.labelled import (
    LabelledGrid,
    LabelledPoints,
    library_of,
    point_columns,
)


def grid_of(given: LabelledGrid) -> LabelledGrid:
    """Return the arguments of `fit` for a DataArray, Series or DataFrame.

    NaN means missing, as it does in both libraries: it becomes the mask.
    """
    if library_of(given.values) == "xarray":
        return _of_array(given)
    return _of_table(given)


# xarray
# ------------------------------------------------------------------------------------------


def _of_array(given: LabelledGrid) -> LabelledGrid:
    import xarray

    data, channels = given.values, given.channels
    if isinstance(data, xarray.Dataset):
        raise problem(
            "values",
            f"a Dataset of {', '.join(map(str, data.data_vars)) or 'no variables'}",
            "one DataArray",
            'Pass one variable, ds["name"], or use ds.kronfield.',
            TypeError,
        )
    if not isinstance(data, xarray.DataArray):
        given.values = np.asarray(data)
        return given
    data, channels = _channels_last(data, channels, given.axes)
    dims = data.dims[:-1] if channels else data.dims
    given.axes, labels = _array_axes(data, dims, given)
    names = None
    if channels:
        last = data.dims[-1]
        names = tuple(map(str, data.coords[last].values)) if last in data.coords else None
    mask = given.mask
    if isinstance(mask, xarray.DataArray):
        wanted = data.dims if set(mask.dims) == set(data.dims) else dims
        mask = mask.transpose(*wanted).values
    lazy = is_lazy(data)  # nothing is read: NaN are found when chunks are computed
    given.values, given.channels = data.data if lazy else data.values, channels
    given.mask = mask if lazy else with_missing(given.values, mask)
    name = None if data.name is None else str(data.name)
    given.labels = Labels(tuple(labels), name, plain_attrs(data.attrs), names)
    return given


def _channels_last(data: Any, channels: bool | None, axes: Any) -> tuple[Any, bool]:
    """Return a DataArray with its channels on the last axis, and whether it has channels.

    A dimension whose coordinate holds words, for example names of colours, holds the channels.
    """
    words = [d for d in data.dims if d in data.coords and not has_positions(data.coords[d])]
    if len(words) > 1:
        raise problem(
            "values",
            f"coordinates without positions: {', '.join(map(str, words))}",
            "numbers or dates on all axes but that of channels",
            "Select one entry of the others: da.sel(...).",
        )
    if words:
        return data.transpose(..., words[0]), True
    if channels is None and axes is None and data.dims:
        channels = data.dims[-1] not in data.coords and ends_in_channels(data.shape)
    return data, bool(channels)


def _array_axes(data: Any, dims: Sequence[Any], given: LabelledGrid) -> tuple[Any, list[AxisLabel]]:
    """Return the positions and labels of dimensions, from the coordinates unless axes are given."""
    if given.axes is not None:
        axes = _entries(given.axes, len(dims))
        return axes, [AxisLabel.of(x, str(dim)) for dim, x in zip(dims, axes, strict=True)]
    labels = [coordinate_label(data, dim) for dim in dims]
    # with a domain and without coordinates, samples are cells, as for an array without labels
    if given.domain is not None and not any(dim in data.coords for dim in dims):
        return None, labels
    return [axis_positions(data, dim) for dim in dims], labels


def has_positions(coordinate: Any) -> bool:
    """Return whether a coordinate holds numbers or dates."""
    return coordinate.dtype.kind in "fiumM" or is_time(coordinate.values)


def axis_positions(data: Any, dim: Any) -> Array:
    """Return the coordinate of one dimension; indices if it has none."""
    known = data.coords.variables.get(dim)  # faster than a DataArray
    return np.arange(data.sizes[dim], dtype=np.float64) if known is None else known.values


def coordinate_label(data: Any, dim: Any) -> AxisLabel:
    """Return the label of one dimension."""
    known = data.coords.variables.get(dim)
    if known is None:
        return AxisLabel(str(dim))
    attrs = known.attrs
    return AxisLabel.of(known.values, str(dim), str(attrs.get("units", "")), attrs)


# pandas
# ------------------------------------------------------------------------------------------


def _of_table(given: LabelledGrid) -> LabelledGrid:
    import pandas

    data = given.values
    if not isinstance(data, pandas.Series | pandas.DataFrame):
        given.values = np.asarray(data)
        return given
    if isinstance(data, pandas.DataFrame) and given.channels is not None and not given.channels:
        return _of_plane(given, data)
    name, names = None, None
    if isinstance(data, pandas.DataFrame):
        given.channels, names = True, tuple(map(str, data.columns))
    else:
        name = None if data.name is None else str(data.name)
        given.channels = False
    if given.axes is None:
        index = data.index
        given.axes, label = [_index_positions(index)], _index_label(index)
    else:
        given.axes = _entries(given.axes, 1)
        label = AxisLabel.of(given.axes[0])
    given.values = table_values("values", data)
    given.mask = with_missing(given.values, given.mask)
    given.labels = Labels((label,), name, plain_attrs(data.attrs), names)
    return given


def _of_plane(given: LabelledGrid, data: Any) -> LabelledGrid:
    """Return the arguments for a table whose columns are positions (numbers, dates) on an axis."""
    if given.axes is None:
        parts = [data.index, data.columns]
        given.axes = [_index_positions(part) for part in parts]
        labels = [_index_label(part) for part in parts]
    else:
        given.axes = _entries(given.axes, 2)
        labels = [AxisLabel.of(axis) for axis in given.axes]
    given.values = table_values("values", data)
    given.mask = with_missing(given.values, given.mask)
    given.labels = Labels(tuple(labels), None, plain_attrs(data.attrs), None)
    return given


def _index_positions(index: Any) -> Any:
    import pandas

    if isinstance(index, pandas.MultiIndex):
        raise problem(
            "values",
            f"an index of {index.nlevels} levels",
            "an index of one level",
            "Use values.to_xarray() for a grid, or fit_points with values.reset_index().",
        )
    if isinstance(index, pandas.PeriodIndex):
        index = index.to_timestamp()
    if not is_time(index) and index.dtype.kind not in "fiu":
        if getattr(index.dtype, "tz", None) is not None:
            return index
        raise problem(
            "values",
            f"an index of {index.dtype}",
            "numbers or dates as index",
            "Set it with values.set_axis(...), or pass values.to_numpy() to drop it.",
        )
    if index.has_duplicates:
        raise problem(
            "values",
            f"an index that repeats {index[index.duplicated()][0]}",
            "each position once",
            "Merge them: values.groupby(level=0).mean(); or use fit_points.",
        )
    return index


def _index_label(index: Any) -> AxisLabel:
    name = None if index.name is None else str(index.name)
    return AxisLabel.of(_index_positions(index), name)


def table_values(argument: str, data: Any) -> Array:
    """Return the numbers of a Series or DataFrame, with NaN where they are missing."""
    import pandas

    columns = data.items() if isinstance(data, pandas.DataFrame) else [(data.name, data)]
    arrays = []
    for name, column in columns:
        dtype = column.dtype
        if not pandas.api.types.is_numeric_dtype(dtype):
            raise problem(
                argument,
                f"the column {name!r} of {dtype}",
                "numbers",
                "Select the columns that hold numbers, or convert it.",
                TypeError,
            )
        if pandas.api.types.is_extension_array_dtype(dtype):
            arrays.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            arrays.append(column.to_numpy())
    return np.stack(arrays, axis=1) if isinstance(data, pandas.DataFrame) else arrays[0]


def points_of(given: LabelledPoints) -> LabelledPoints:
    """Return the arguments of `fit_points` for a DataFrame and a Series."""
    index = getattr(given.points, "index", None)
    about = _about_values(given.values)
    for what in ("values", "weights"):
        setattr(given, what, _of_rows(what, getattr(given, what), index))
    labels, given.points = _labelled_positions(given.points)
    if labels is not None:
        given.labels = Labels(labels, *about)
    return given


def _about_values(values: Any) -> tuple[str | None, dict[str, Any], tuple[str, ...] | None]:
    """Return the name and the attributes of values, and the names of their columns."""
    import pandas

    if isinstance(values, pandas.DataFrame):
        return None, plain_attrs(values.attrs), tuple(map(str, values.columns))
    if isinstance(values, pandas.Series):
        return None if values.name is None else str(values.name), plain_attrs(values.attrs), None
    return None, {}, None


def _of_rows(what: str, one: Any, index: Any) -> Any:
    """Return values or weights as an array, in the order of the index of the points."""
    import pandas

    if not isinstance(one, pandas.Series | pandas.DataFrame):
        return one if library_of(one) is None else np.asarray(one)
    if isinstance(index, pandas.Index) and not one.index.equals(index):
        one = _aligned(what, one, index)
    return table_values(what, one)


def _labelled_positions(points: Any) -> tuple[tuple[AxisLabel, ...] | None, Any]:
    """Return the labels of the axes (None if an array is not 2-D), and the points as an array."""
    import pandas

    if isinstance(points, pandas.DataFrame):
        columns: dict[str, Any] = {str(key): column for key, column in points.items()}
        if len(columns) < points.shape[1]:
            raise problem(
                "points", f"the columns {list(points)}", "different names", "Rename a column."
            )
        for key, column in columns.items():
            _refuse_words(key, column)
        labels = [AxisLabel.of(column, key) for key, column in columns.items()]
        return tuple(labels), point_columns(columns, labels)
    if isinstance(points, pandas.Series | pandas.Index):  # positions on a line
        label = AxisLabel.of(points, None if points.name is None else str(points.name))
        return (label,), label.numbers("points", points)[:, None]
    array = points if library_of(points) is None else np.asarray(points)
    if np.ndim(array) != 2:
        return None, array
    return (AxisLabel(),) * np.shape(array)[1], array


def _refuse_words(name: str, column: Any) -> None:
    if column.dtype.kind not in "fiumM" and not is_time(column.to_numpy()):
        raise problem(
            "points",
            f"the column {name!r} of {column.dtype}",
            "numbers or dates",
            "Select the columns that hold coordinates: df[['lon', 'lat']].",
            TypeError,
        )


def _aligned(argument: str, one: Any, index: Any) -> Any:
    """Return rows in the order of the index of the points."""
    alike = len(one) == len(index) and one.index.is_unique and index.is_unique
    if not alike or not index.isin(one.index).all():
        raise problem(
            argument,
            f"an index of {len(one)} rows that is not that of points, of {len(index)}",
            "the same index",
            f"Align them first, or pass {argument}.to_numpy() to go by order.",
        )
    return one.reindex(index)


# Both
# ------------------------------------------------------------------------------------------


def _entries(axes: Any, count: int) -> list[Any]:
    if not isinstance(axes, list | tuple) or (count == 1 and np.ndim(axes[0]) == 0):
        axes = [axes]
    if len(axes) != count:
        raise problem("axes", describe(axes), f"{count} arrays", "One array per axis.")
    return list(axes)


def with_missing(values: Any, mask: Any) -> Any:
    """Return the mask; if none is given, where values are NaN, or None if none is NaN."""
    if mask is not None or values.dtype.kind not in "fc":
        return mask
    missing = np.isnan(values)
    return missing if missing.any() else None
