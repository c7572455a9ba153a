"""Writing files of all supported formats, atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import describe, ends_in_channels, problem
from kronfield.files.arrays import open_npy, open_npz
from kronfield.files.audio import open_audio
from kronfield.files.csv_files import open_csv
from kronfield.files.description import Description
from kronfield.files.excel import open_excel
from kronfield.files.guard import output
from kronfield.files.images import open_pillow
from kronfield.files.kinds import kind_of, suffix_of
from kronfield.files.layout import Blocks, Layout, Put
from kronfield.files.netcdf import open_netcdf, open_zarr
from kronfield.files.nifti import open_nifti
from kronfield.files.parquet import open_parquet
from kronfield.files.png import open_png
from kronfield.files.tiff import open_tiff
from kronfield.files.video_writing import open_video

_OPEN: dict[str, Callable[[Path, Layout], AbstractContextManager[Put]]] = {
    ".png": open_png,
    **dict.fromkeys((".jpg", ".jpeg", ".webp", ".bmp", ".gif"), open_pillow),
    **dict.fromkeys((".tif", ".tiff"), open_tiff),
    **dict.fromkeys((".mp4", ".webm", ".mkv", ".mov", ".avi"), open_video),
    **dict.fromkeys((".nii", ".nii.gz"), open_nifti),
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys((".wav", ".flac", ".ogg"), open_audio),
    **dict.fromkeys((".csv", ".tsv"), open_csv),
    ".parquet": open_parquet,
    ".xlsx": open_excel,
    ".nc": open_netcdf,
    ".zarr": open_zarr,
}


@contextlib.contextmanager
def writer(
    path: str | os.PathLike[str],
    shape: tuple[int, ...],
    channels: int | None,
    info: Mapping[str, Any],
    *,
    axes: Sequence[Any] | None = None,
    overwrite: bool = False,
) -> Iterator[Blocks]:
    """Write a file in blocks along its first axis, with little memory.

    The file appears complete at the end, or not at all.

    Parameters
    ----------
    path : str or path
        The file; its suffix determines the format, see `kind_of`.
    shape : tuple of int
        The grid (N_1, ..., N_D), without channels; for a table or a sound (P,).
    channels : int or None
        The number of channels on the last axis of the blocks; None without a channel axis.
    info : dict
        The info of the `Signal` that was read, changed if needed. These entries matter: ``levels``
        (above 255: 16 bits in PNG and TIFF; None: floats in TIFF), ``fps`` of a video, ``rate`` of
        a sound, ``affine`` of NIfTI, and for a table the names in ``axes`` and ``channels``.
    axes : sequence of arrays, optional
        The positions on each axis; only NetCDF and zarr store them.
    overwrite : bool
        Whether to replace an existing file.

    Yields
    ------
    Blocks
        Its ``write(block)`` takes arrays of floats (n, N_2, ..., N_D) or (n, N_2, ..., N_D, C):
        pixels in [0, 1] and sound in [-1, 1), clipped and rounded to nearest; NaN becomes 0. JPEG,
        WebP and BMP need memory for the whole picture with 8 bits, NetCDF and zarr for all values.
        All other formats need memory for a few blocks.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from kronfield.files import read, writer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writer(Path(folder) / "a.png", (4, 5), 3, {"levels": 65535}) as picture:
    ...         for row in np.linspace(0, 1, 4):
    ...             picture.write(np.full((1, 5, 3), row))
    ...     read(Path(folder) / "a.png").values[:, 0, 0].round(3)
    array([0.   , 0.333, 0.667, 1.   ], dtype=float32)
    """
    opened = _OPEN[suffix_of(Path(path))]
    layout = Layout.checked(shape, channels, info, axes)
    with output(path, overwrite=overwrite) as temporary, opened(temporary, layout) as put:
        blocks = Blocks(put, layout)
        yield blocks
        blocks.finish()


def write(
    path: str | os.PathLike[str], values: Any, info: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Write an array as a file, atomically; see `writer` for formats and ``info``.

    Parameters
    ----------
    path : str or path
        The file; its suffix determines the format.
    values : array of floats
        A grid (N_1, ..., N_D) or (N_1, ..., N_D, C); for a table the rows (P,) or (P, columns).
    info : dict
        The info of the `Signal` that was read. For TIFF, NumPy and NIfTI files its ``axes``
        determine how many axes there are before channels; without them, a short last axis holds
        channels, as in `kronfield.fit`.
    overwrite : bool
        Whether to replace an existing file.
    """
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim == 0 or array.size == 0:
        raise problem(
            "values", describe(array), "an array of floats", "Scale pixels to [0, 1].", TypeError
        )
    dimensions = _dimensions(Path(path), array, info)
    channels = array.shape[-1] if array.ndim > dimensions else None
    with writer(path, array.shape[:dimensions], channels, info, overwrite=overwrite) as blocks:
        blocks.write(array)


def _dimensions(path: Path, array: Any, info: Any) -> int:
    """Return the number of axes without channels: by the format, else by the info, else guessed."""
    fixed = {"image": 2, "video": 3, "audio": 1, "table": 1}.get(kind_of(path))
    if fixed is not None and suffix_of(path) not in (".tif", ".tiff"):
        return fixed if array.ndim in (fixed, fixed + 1) else array.ndim
    axes = Description.from_dict(info).axes if isinstance(info, Mapping) else None
    if axes is not None and array.ndim in (len(axes), len(axes) + 1):
        return len(axes)
    return int(array.ndim) - ends_in_channels(array.shape)
