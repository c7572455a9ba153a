"""Lazy fields in zarr stores: weights that do not fit into memory, written chunk by chunk."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, problem, sum_is_finite
from kronfield._core.atomic import begun, replacing
from kronfield._core.errors import KronfieldWarning
from kronfield.encoding import Encoding, Kronecker
from kronfield.field import storage
from kronfield.field.field import Saved
from kronfield.field.loading import placed
from kronfield.files.zarrays import KEY
from kronfield.lazy.chunks import joined
from kronfield.lazy.stores import Progress, StoredArray, even_chunks, other_job

if TYPE_CHECKING:
    from kronfield.lazy.field import LazyField

# The version of the layout of a store.
VERSION = 1


def save(
    field: LazyField,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Saved:
    """Compute the weights into a zarr store, which appears when it is complete.

    Until then it is a folder beside it. With ``resume``, this folder stays if the job ends early,
    and the next call computes only the chunks that are not in it.
    """
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
    metadata = storage.coded({"format": storage.FORMAT, "version": VERSION, **metadata})
    planes = even_chunks(field.planes)
    place = begun(target) if resume else replacing(target)
    with place as temporary:
        if temporary.is_dir():
            _check_begun(temporary, metadata, arrays, planes)
        elif resume:
            with replacing(temporary) as new:
                _begin(new, metadata, arrays, planes)
        else:
            _begin(temporary, metadata, arrays, planes)
        StoredArray.in_store(temporary, "weights", "r+").write(planes, progress)
        size = sum(one.stat().st_size for one in temporary.rglob("*") if one.is_file())
    return Saved(os.fspath(target), size, 0.0, 0.0)


def _begin(
    store: Path, metadata: Mapping[str, Any], arrays: Mapping[str, Array], planes: Any
) -> None:
    """Make a store that lacks only the weights."""
    import zarr

    store.unlink(missing_ok=True)  # zarr makes a folder
    group = zarr.open_group(str(store), mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=np.ascontiguousarray(array))
    # a chunk that is lost is read as NaN, which no weight is
    group.create_array(
        "weights",
        shape=planes.shape,
        chunks=planes.chunksize,
        dtype=planes.dtype,
        fill_value=np.nan,
    )
    group.attrs[KEY] = metadata


def _check_begun(
    store: Path, metadata: Mapping[str, Any], arrays: Mapping[str, Array], planes: Any
) -> None:
    """Raise an error unless a store was begun with the same fit."""
    import json

    import zarr

    try:
        group = zarr.open_group(str(store), mode="r")
        found = {key: one for key, one in group.attrs[KEY].items() if key != "info"}
        weights = group["weights"]
        kept = {name: np.asarray(group[name][...]) for name in arrays}
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise other_job(store, "which is not the beginning of a store") from error
    wanted = {key: one for key, one in json.loads(json.dumps(metadata)).items() if key != "info"}
    if found != wanted or any(not np.array_equal(kept[name], arrays[name]) for name in arrays):
        raise other_job(store, "the beginning of another fit")
    layout = (weights.shape, weights.chunks, weights.dtype)
    if layout != (planes.shape, planes.chunksize, planes.dtype):
        raise other_job(store, f"with chunks of {weights.chunks}")


def _opened(path: str | os.PathLike[str], remedy: str) -> tuple[Any, Any]:
    """Return the group of a store that holds a field, and its metadata."""
    import zarr

    try:
        group = zarr.open_group(os.fspath(path), mode="r")
        return group, group.attrs[KEY]
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise problem("path", f"{path}, a folder", "a saved field", remedy) from error


class LostChunksWarning(KronfieldWarning):
    """Chunks are not in a store that was written without chunks of zeros: they are read as 0."""


def _warn_of_zeros(path: str | os.PathLike[str]) -> None:
    """Warn if chunks are not there, in a store from which they are read as 0 and not as NaN.

    The first version of the layout was also written so. It left out chunks of zeros, which cannot
    be told from chunks that are lost.
    """
    stored = StoredArray.in_store(path, "weights")
    if np.isnan(stored.array.fill_value):
        return
    missing = stored.missing()
    if missing:
        warnings.warn(
            f"{path}: {len(missing)} chunks of weights are not in this store, the first at "
            f"{missing[0]}. They are read as 0: an earlier version left out chunks of zeros. If "
            "samples are not 0 there, the chunks were lost: fit them again, or save(...) again to "
            "store zeros too.",
            LostChunksWarning,
            stacklevel=4,
        )


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
        stored = group["weights"]
        sizes = zip(stored.shape, stored.chunks, strict=True)
        # zarr has no last chunk that is longer than others: what is left over is read with it
        chunks = tuple(joined((n,) * (size // n) + (size % n,), n // 4 + 1) for size, n in sizes)
        planes = dask.array.from_zarr(stored, chunks=chunks)
        planes = planes.map_blocks(_whole, path=os.fspath(path), dtype=planes.dtype)
        positions = head.positions(arrays)
    if not isinstance(encoding, Kronecker):
        raise storage.misfit(path)
    fits = (
        head.fits(len(planes), encoding.dimensions)
        and planes.shape[1:] == encoding.shape
        and planes.dtype == head.weights_dtype
    )
    if not fits:
        raise storage.misfit(path)
    _warn_of_zeros(path)
    field = LazyField(encoding, planes, head.frames, positions, **head.about)
    placed(field, arrays, metadata)
    return field
