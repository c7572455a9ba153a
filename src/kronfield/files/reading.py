"""Reading files of all supported formats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.labels import AxisLabel
from kronfield.files.arrays import read_array
from kronfield.files.audio import read_audio
from kronfield.files.csv_files import read_csv, read_csv_columns
from kronfield.files.dates import positions
from kronfield.files.excel import read_excel, read_excel_columns
from kronfield.files.guard import check_source
from kronfield.files.images import read_image
from kronfield.files.kinds import kind_of, split_member, suffix_of
from kronfield.files.netcdf import read_netcdf
from kronfield.files.nifti import read_nifti
from kronfield.files.parquet import read_parquet, read_parquet_columns
from kronfield.files.signal import Progress, Signal
from kronfield.files.tiff import read_tiff
from kronfield.files.video import read_video, video_shape


def read(
    path: str | os.PathLike[str],
    *,
    columns: Any = None,
    coordinates: Any = None,
    frames: Any = None,
    progress: Progress | None = None,
    raw: bool = False,
) -> Signal:
    """Read a file.

    Parameters
    ----------
    path : str or path
        An image, video, volume, sound, array or table; the suffix determines the format, see
        `kind_of`. ``file.npz:name`` selects an array of a .npz file. In the same way a name
        selects a variable of NetCDF (.nc) or zarr, or a sheet of .xlsx.
    columns, coordinates : sequence of str, optional
        The value columns and the coordinate columns of a table. By default the coordinates are the
        columns of numbers or dates with common names (x, y, z, t, lat, lon, time, ...), or else the
        column of dates, or else all numeric columns except the last, if these are at most three;
        the values are the other numeric columns. ``info`` lists the columns used and unused. Rows
        without coordinates are dropped and counted; missing values are NaN.
    frames : pair, optional
        The first frame of a video to read, and the frame before which to stop; either may be None.
    progress : callable, optional
        Called with the amount done and the total, which is None if it is unknown. Both count
        frames of a video, samples of sound, or bytes of a CSV file.
    raw : bool
        Whether pixels of 8 and 16 bits stay integers, which takes a quarter or half of the memory.
        This applies to pictures, TIFF and NumPy files. Pixels of a video always become floats;
        `video_frames` yields integers.

    Returns
    -------
    Signal

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from kronfield.files import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.png", np.eye(3), {})
    ...     signal = read(Path(folder) / "a.png")
    >>> signal.kind, signal.values.shape, signal.info["levels"]
    ('image', (3, 3), 255)
    """
    kind = kind_of(path)
    file, member = split_member(path)
    for argument, value, home in (
        ("columns", columns, "table"),
        ("coordinates", coordinates, "table"),
        ("frames", frames, "video"),
    ):
        if value is not None and kind != home:
            raise problem(
                argument,
                f"{describe(value)} for a file that is no {home}",
                f"a {home}",
                "Leave it out.",
            )
    check_source(file)
    suffix = suffix_of(file)
    if kind == "video":
        return read_video(file, frames, progress)
    if kind == "audio":
        return read_audio(file, progress)
    if suffix in (".nc", ".zarr"):
        return read_netcdf(file, member)
    if kind == "array":
        return read_array(file, member, raw=raw)
    if kind == "volume":
        return read_nifti(file)
    if suffix == ".parquet":
        return read_parquet(file, columns, coordinates)
    if suffix == ".xlsx":
        return read_excel(file, member, columns, coordinates)
    if kind == "table":
        return read_csv(file, columns, coordinates, progress)
    reader = read_tiff if suffix in (".tif", ".tiff") else read_image
    return reader(file, raw=raw)


def read_columns(
    path: str | os.PathLike[str],
    names: Sequence[str],
    *,
    labels: Sequence[AxisLabel] | None = None,
    progress: Progress | None = None,
) -> Array:
    """Read columns of a table by name, for example the points at which to evaluate a field.

    Parameters
    ----------
    path : str or path
        A table.
    names : sequence of str
        The columns. If the table has none of these names but the same number of columns, all its
        columns are read.
    labels : sequence of AxisLabel, optional
        The label of the axis of each name; dates become positions on that axis.
    progress : callable, optional
        As in `read`.

    Returns
    -------
    array of shape (P, len(names))
        float64; missing numbers are NaN.
    """
    if kind_of(path) != "table":
        raise problem(
            "path",
            os.fspath(path),
            "a table: .csv, .tsv, .parquet or .xlsx",
            "Save the points as a table.",
        )
    file, member = split_member(path)
    check_source(file)
    if suffix_of(file) == ".parquet":
        columns = read_parquet_columns(file, names)
    elif suffix_of(file) == ".xlsx":
        columns = read_excel_columns(file, member, names)
    else:
        columns = read_csv_columns(file, names, progress)
    kinds = labels if labels is not None else [AxisLabel()] * len(columns)
    for label, (name, column) in zip(kinds, columns.items(), strict=True):
        if column.dtype.kind == "M" and not label.is_time:
            raise problem(
                "columns",
                f"dates in column {name}",
                "numbers, as the field was fitted to",
                "Fit a table with dates, or convert the column.",
            )
    placed = zip(kinds, columns.items(), strict=True)
    return np.stack([positions(label, name, column) for label, (name, column) in placed], axis=1)


def announced_shape(
    path: str | os.PathLike[str], *, frames: Any = None
) -> tuple[int | None, ...] | None:
    """Return the shape of the values of a video without reading it; None for all other files."""
    if kind_of(path) != "video":
        return None
    file, _ = split_member(path)
    check_source(file)
    return video_shape(file, frames)
