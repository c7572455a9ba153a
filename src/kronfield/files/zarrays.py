"""Arrays of zarr without names of their axes, such as Dask and zarr themselves write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kronfield._core.arrays import problem

# The key of the metadata of a field in the attributes of a store.
KEY = "kronfield"


def unnamed_array(store: Path, member: str | None) -> Any:
    """Return an array of a zarr folder, without its values; None if its axes have names.

    The folder is an array, or a group with an array called ``member`` or with a single one. Other
    files are None too.
    """
    import zarr

    if not store.is_dir():
        return None

    try:
        opened = zarr.open(os.fspath(store), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise problem("path", store, "a zarr folder", "Check the name.") from error
    if isinstance(opened, zarr.Group):
        arrays = dict(sorted(opened.arrays()))
        if any(map(_has_names, arrays.values())):
            return None
        if KEY in opened.attrs:
            raise problem("path", f"{store}, a saved field", "samples", "Render it, or kf.load it.")
        names = ", ".join(arrays) or "none"
        if member is None and len(arrays) != 1:
            got, remedy = (
                f"{store} with {len(arrays)} arrays ({names})",
                f"Name it: {store.name}:name",
            )
            raise problem("path", got, "one array", remedy)
        if member is not None and member not in arrays:
            got = f"no array {member!r} in {store}"
            raise problem("path", got, f"one of {names}", "Choose one of these names.")
        opened = next(iter(arrays.values())) if member is None else arrays[member]
    return opened


def _has_names(array: Any) -> bool:
    """Return whether the axes of an array of zarr have names, as xarray writes them."""
    names = getattr(array.metadata, "dimension_names", None)
    return bool(names) or "_ARRAY_DIMENSIONS" in array.attrs
