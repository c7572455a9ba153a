"""Lazy fields in zarr stores: weights that do not fit into memory, written chunk by chunk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import problem
from kronfield._core.atomic import replacing
from kronfield.encoding import Encoding, Kronecker
from kronfield.field import storage
from kronfield.field.field import Saved
from kronfield.field.loading import placed

if TYPE_CHECKING:
    from kronfield.lazy.field import LazyField

# The key of the metadata in the attributes of a store, and the version of its layout.
KEY, VERSION = "kronfield", 1


def save(field: LazyField, path: str | os.PathLike[str]) -> Saved:
    """Compute the weights into a zarr store, which appears when it is complete."""
    import zarr

    target = Path(path)
    if target.suffix.lower() != ".zarr":
        raise problem(
            "path",
            target,
            "the name of a folder that ends in .zarr",
            "The weights are not in memory; for one file, call field.compute().save(path).",
        )
    metadata, arrays = field.contents()
    planes: Any = field.planes
    planes = planes.rechunk(tuple(_commonest(one) for one in planes.chunks))
    with replacing(target) as temporary:
        temporary.unlink()  # zarr makes a folder
        group = zarr.open_group(str(temporary), mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=np.ascontiguousarray(array))
        group.attrs[KEY] = storage.coded({"format": storage.FORMAT, "version": VERSION, **metadata})
        planes.to_zarr(str(temporary), component="weights")
        size = sum(one.stat().st_size for one in temporary.rglob("*") if one.is_file())
    return Saved(os.fspath(target), size, 0.0, 0.0)


def _commonest(chunks: tuple[int, ...]) -> int:
    """Return the length of most chunks, so that few of them change."""
    return max(Counter(chunks).items(), key=lambda pair: (pair[1], pair[0]))[0]


def load(
    path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
) -> LazyField:
    """Return the field in a zarr store; weights are read when they are needed."""
    import dask.array
    import zarr

    from kronfield.lazy.field import LazyField

    try:
        group = zarr.open_group(os.fspath(path), mode="r")
        metadata = group.attrs[KEY]
    except (FileNotFoundError, KeyError, ValueError) as error:
        remedy = "Open other arrays with zarr, and pass them to kf.fit."
        raise problem("path", f"{path}, a folder", "a saved field", remedy) from error
    with storage.restoring(path):
        metadata = storage.decoded(metadata)
        if metadata["version"] > VERSION:
            raise problem(
                "path",
                f"{path}, of format version {metadata['version']}",
                f"version {VERSION} or below",
                "It was saved by a newer kronfield: upgrade to read it.",
            )
        encoding = Encoding.from_dict(metadata["encoding"], functions)
        head = storage.Head.of(metadata)
        arrays = {name: np.asarray(one[...]) for name, one in group.arrays() if name != "weights"}
        planes = dask.array.from_zarr(group["weights"])
        positions = head.positions(arrays)
    if not isinstance(encoding, Kronecker):
        raise storage.misfit(path)
    fits = (
        len(head.frames) == encoding.dimensions
        and planes.shape[1:] == encoding.shape
        and planes.dtype == head.weights_dtype
    )
    if not fits:
        raise storage.misfit(path)
    field = LazyField(encoding, planes, head.frames, positions, **head.about)
    placed(field, arrays, metadata)
    return field
