"""Lazy fields in zarr stores: weights that do not fit into memory, written chunk by chunk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, problem, sum_is_finite
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
    if target.is_dir():  # other stores are not replaced: they may hold the samples
        _opened(target, "Choose a name that is free.")
    metadata, arrays = field.contents()
    planes: Any = field.planes
    planes = planes.rechunk(tuple(_commonest(one) for one in planes.chunks))
    with replacing(target) as temporary:
        temporary.unlink()  # zarr makes a folder
        group = zarr.open_group(str(temporary), mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=np.ascontiguousarray(array))
        group.attrs[KEY] = storage.coded({"format": storage.FORMAT, "version": VERSION, **metadata})
        # a chunk that is lost is read as NaN, which no weight is
        planes.to_zarr(str(temporary), component="weights", fill_value=np.nan)
        size = sum(one.stat().st_size for one in temporary.rglob("*") if one.is_file())
    return Saved(os.fspath(target), size, 0.0, 0.0)


def _commonest(chunks: tuple[int, ...]) -> int:
    """Return the length of most chunks, so that few of them change."""
    return max(Counter(chunks).items(), key=lambda pair: (pair[1], pair[0]))[0]


def _opened(path: str | os.PathLike[str], remedy: str) -> tuple[Any, Any]:
    """Return the group of a store that holds a field, and its metadata."""
    import zarr

    try:
        group = zarr.open_group(os.fspath(path), mode="r")
        return group, group.attrs[KEY]
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise problem("path", f"{path}, a folder", "a saved field", remedy) from error


def _whole(weights: Array, path: str = "") -> Array:
    """Return a chunk of weights; raise an error if a part of it is not in the store."""
    if not sum_is_finite(weights) and not np.all(np.isfinite(weights)):
        raise problem("path", f"{path} (chunks are missing)", "a saved field", storage.DAMAGED)
    return weights


def load(
    path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
) -> LazyField:
    """Return the field in a zarr store; weights are read when they are needed."""
    import dask.array

    from kronfield.lazy.field import LazyField

    group, metadata = _opened(path, "Open other arrays with zarr, and pass them to kf.fit.")
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
        planes = planes.map_blocks(_whole, path=os.fspath(path), dtype=planes.dtype)
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
