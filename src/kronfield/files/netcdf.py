"""Reading and writing NetCDF files and zarr folders through xarray, with their coordinates."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.atomic import replacing
from kronfield._core.labels import DATE, AxisLabel, is_time, plain_attrs
from kronfield.files.description import Description, describe_signal
from kronfield.files.guard import check_file_memory, decoding, extra, nearest
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Signal
from kronfield.files.zarrays import unnamed_array

_WHAT = "variables on a grid"
# Names of attributes that NetCDF takes, and those by which xarray packs numbers.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.@+-]*")
_PACKING = ("missing_value", "scale_factor", "add_offset", "coordinates", "grid_mapping", "dtype")


def read_netcdf(path: Path, member: str | None) -> Signal:
    """Read a variable of a NetCDF file or zarr folder: the only one on a grid, or ``member``.

    Dimensions of length 1 are dropped. Other dimensions are axes, with their coordinates.
    """
    folder = path.suffix.lower() == ".zarr"
    with extra("zarr" if folder else "netcdf"):
        import xarray  # noqa: F401

        if folder:
            import zarr  # noqa: F401
        else:
            import netCDF4  # noqa: F401
    with decoding(path, _WHAT):
        plain = unnamed_array(path, member) if folder else None
        if plain is not None:
            return _unnamed_signal(path, plain, member)
        with _opened(path, None) as data:
            array = _variable(path, data, member).squeeze()
            check_file_memory(path, array.size * 8.0, "Cut the file first.")
            array = array.load()
    return _signal(path, array)


def _unnamed_signal(path: Path, plain: Any, member: str | None) -> Signal:
    """Return an array of zarr whose axes have no names, at its sample numbers."""
    if plain.ndim == 0 or plain.size == 0 or plain.dtype.kind not in "biuf":
        raise problem(
            "path", f"{path} with {describe(plain)}", "at least one real number", "Check the array."
        )
    check_file_memory(path, plain.size * 8.0, "Cut the array first.")
    values = _floats(np.asarray(plain[...]))
    described = describe_signal(
        "array",
        path.name,
        values,
        axes=[f"axis {i}" for i in range(plain.ndim)],
        units=[""] * plain.ndim,
        channels=None,
        levels=None,
        dtype=plain.dtype,
        raw_bytes=plain.nbytes,
    )
    return Signal("array", values, False, None, None, replace(described, member=member))


def _floats(values: Array) -> Array:
    """Return numbers as floating point numbers: they are no pixels, and are not scaled."""
    if values.dtype.kind == "f":
        return values
    return values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)


def _opened(path: Path, chunks: Any) -> Any:
    """Return an opened file or folder, as a Dataset whose values are read later."""
    import xarray

    if path.suffix.lower() == ".zarr":
        return xarray.open_zarr(path, chunks=chunks, consolidated=None)
    return xarray.open_dataset(path, chunks=chunks)


def lazy_variable(path: Path, member: str | None) -> tuple[Any, Description]:
    """Return a variable as a DataArray of Dask, and its description: only coordinates are read."""
    with extra("zarr" if path.suffix.lower() == ".zarr" else "netcdf"):
        import xarray  # noqa: F401
    with decoding(path, _WHAT):
        array = _variable(path, _opened(path, {}), member).squeeze()
    units = [
        str(array.coords[d].attrs.get("units", "")) if d in array.coords else "" for d in array.dims
    ]
    described = describe_signal(
        "array",
        path.name,
        array,
        axes=[str(dim) for dim in array.dims],
        units=units,
        channels=None,
        levels=None,
        dtype=array.dtype,
        raw_bytes=array.nbytes,
    )
    known = replace(described, member=str(array.name), attrs=plain_attrs(array.attrs) or None)
    return array, known


def _variable(path: Path, data: Any, member: str | None) -> Any:
    """Return the variable called ``member``, or the only one of numbers on a grid."""
    gridded = _gridded(data)
    names = ", ".join(gridded) or "none"
    if member is None and len(gridded) != 1:
        raise problem(
            "path",
            f"{path} with {len(gridded)} variables ({names})",
            "one variable",
            f"Name it: {path.name}:{(gridded or ['name'])[0]}",
        )
    if member is not None and member not in gridded:
        raise problem(
            "path",
            f"no variable {member!r} of numbers in {path}",
            f"one of {names}",
            nearest(member, gridded) or "Choose one of these names.",
        )
    return data[gridded[0] if member is None else member]


def _gridded(data: Any) -> list[str]:
    """Return the names of the variables of numbers that have an axis longer than 1."""
    numeric = [str(name) for name, one in data.data_vars.items() if one.dtype.kind in "fiub"]
    return [name for name in numeric if data[name].squeeze().ndim > 0]


def _signal(path: Path, array: Any) -> Signal:
    values = _floats(array.values)
    labels, axes = [], []
    for dim in array.dims:
        coordinate = array.coords.get(dim)
        if coordinate is None:
            labels.append(AxisLabel(str(dim)))
            axes.append(np.arange(array.sizes[dim], dtype=np.float64))
            continue
        if not (coordinate.dtype.kind in "fiumM" or is_time(coordinate.values)):
            raise problem(
                "path",
                f"{path} with words on the axis {dim}",
                "numbers or dates on each axis",
                "Select one of them first.",
            )
        unit = str(coordinate.attrs.get("units", ""))
        label = AxisLabel.of(coordinate.values, str(dim), unit, coordinate.attrs)
        labels.append(label)
        axes.append(label.numbers(str(dim), coordinate.values))
    described = describe_signal(
        "array",
        path.name,
        values,
        axes=[label.name or "" for label in labels],
        units=[label.unit for label in labels],
        channels=None,
        levels=None,
        dtype=array.dtype,
        raw_bytes=array.nbytes,
    )
    described = replace(described, member=str(array.name), attrs=plain_attrs(array.attrs) or None)
    return Signal("array", values, False, tuple(axes), None, described, tuple(labels))


@contextlib.contextmanager
def open_netcdf(path: Path, layout: Layout) -> Iterator[Put]:
    """Write a grid with its coordinates as a NetCDF file; hold the whole grid in memory."""
    with extra("netcdf"):
        import netCDF4  # noqa: F401
        import xarray  # noqa: F401
    blocks: list[Array] = []
    yield lambda block: blocks.append(block.copy())
    _dataset(layout, np.concatenate(blocks)).to_netcdf(path, engine="netcdf4")


@contextlib.contextmanager
def open_zarr(path: Path, layout: Layout) -> Iterator[Put]:
    """Write a grid with its coordinates as a zarr folder; hold the whole grid in memory."""
    with extra("zarr"):
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    blocks: list[Array] = []
    yield lambda block: blocks.append(block.copy())
    path.unlink()  # `replacing` has created a file here, but zarr writes a folder
    _dataset(layout, np.concatenate(blocks)).to_zarr(path, mode="w", zarr_format=2)


def begin_zarr(path: Path, layout: Layout, values: Any) -> str:
    """Return the name of the values in a zarr folder; a new one is made, and lacks only these.

    ``values`` are an array of Dask. A folder that is there must be of the same grid.
    """
    with extra("zarr"):
        import xarray
        import zarr  # noqa: F401
    data = _dataset(layout, values)
    (name,) = data.data_vars
    if not path.is_dir():
        with replacing(path) as new:
            new.unlink()  # zarr writes a folder
            data.to_zarr(new, mode="w", zarr_format=2, compute=False)
        return str(name)
    try:
        found = xarray.open_zarr(path, chunks={}, consolidated=None)
        same = (
            found[name].chunks == data[name].chunks
            and found[name].dtype == data[name].dtype
            and all(found[dim].equals(data[dim]) for dim in data.coords)
        )
    except (FileNotFoundError, KeyError, ValueError):
        same = False
    if not same:
        raise problem(
            "path",
            f"{path}, which was begun with another grid or other options",
            "the beginning of the same folder",
            "To begin anew, remove this folder. To go on, use the same input and options.",
        )
    return str(name)


def _dataset(layout: Layout, values: Any) -> Any:
    """Return the grid as a Dataset of one variable, with the coordinates of its axes."""
    import xarray

    known, D = layout.description, len(layout.shape)
    values = values.astype(layout.float_dtype(), copy=False)
    dims, labels = _dims(known, D), _axis_labels(known, D)
    coords: dict[str, Any] = {
        dim: (dim, *_coordinate(label, axis))
        for dim, label, axis in zip(dims, labels, layout.axes or (), strict=False)
    }
    if layout.channels is not None:
        dims.append("channel")
        if known.channels is not None and len(known.channels) == layout.channels:
            coords["channel"] = ("channel", list(known.channels))
    name = known.member or (known.channels or ["values"])[0]
    return xarray.Dataset({name: (dims, values, _storable(known.attrs or {}))}, coords)


def _storable(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that NetCDF can hold: text, numbers, and lists of one of them.

    Attributes that say how numbers are packed in a file are left out: these are not.
    """
    return {
        str(key): value
        for key, value in attrs.items()
        if _NAME.fullmatch(str(key)) and str(key) not in _PACKING and _is_storable(value)
    }


def _is_storable(value: Any) -> bool:
    if isinstance(value, list):
        alike = all(isinstance(one, str) for one in value) or not any(
            isinstance(one, str) for one in value
        )
        return bool(value) and alike and all(map(_is_storable, value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return not isinstance(value, int) or abs(value) < 2**63


def _dims(known: Description, D: int) -> list[str]:
    """Return the names of the axes; their numbers if names are missing or not unique."""
    names = list(known.axes or [])
    return names if len(names) == len(set(names)) == D else [f"axis {i}" for i in range(D)]


def _axis_labels(known: Description, D: int) -> list[AxisLabel]:
    """Return the label of each axis; with its unit alone if labels are missing."""
    labels = [AxisLabel.from_dict(one) for one in known.labels or []]
    if len(labels) == D:
        return labels
    units = known.units if known.units is not None and len(known.units) == D else [""] * D
    return [AxisLabel(unit=unit) for unit in units]


def _coordinate(label: AxisLabel, axis: Array) -> tuple[Array, dict[str, Any]]:
    """Return the coordinates of an axis and their attributes; xarray encodes dates itself."""
    if label.kind == DATE:
        dates = label.values(axis)
        return dates.astype("M8[ns]") if label.is_date else dates, {}
    units = {"units": label.unit} if label.unit and not label.is_time else {}
    return axis, {**label.attrs, **units}
