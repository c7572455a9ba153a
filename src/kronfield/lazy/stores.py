"""Arrays of Dask written to zarr, chunk by chunk; chunks that are there are not computed again."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError, problem
from kronfield._core.records import record
from kronfield.files.zarrays import unnamed_array
from kronfield.fitting import settings

# The function that is called with the number of chunks that are written, and their total.
Progress = Callable[[int, int], Any]
# Chunks of a store that was interrupted which are computed again, to tell whether it is the same.
COMPARED = 2
# Processors of other machines round sums differently: compared chunks differ by at most these
# fractions of the largest number, in single and in double precision.
ROUNDED = {4: 1e-4, 8: 1e-9}


def plain_array(store: Path, member: str | None) -> Any:
    """Return an array of a zarr folder as one of Dask; None if its axes have names.

    The folder is an array, or a group with an array called ``member`` or with a single one. Other
    files are None too.
    """
    import dask.array

    found = unnamed_array(store, member)
    return None if found is None else dask.array.from_zarr(found)


def efficient(array: Any, whole: Sequence[int] = ()) -> Any:
    """Return an array of Dask in chunks of about `LazySettings.chunk_samples` numbers.

    Axes that are ``whole`` are not divided.

    Stored chunks are joined whole. Small chunks cost more than their numbers, and large ones more
    memory than a worker may have.

    Examples
    --------
    >>> import dask.array
    >>> efficient(dask.array.ones((4096, 4096), chunks=64)).chunksize
    (2048, 2048)
    """
    from dask.array.core import normalize_chunks

    chunks = normalize_chunks(
        tuple(-1 if axis in whole else "auto" for axis in range(array.ndim)),
        shape=array.shape,
        limit=settings.DEFAULT.lazy.chunk_samples * array.dtype.itemsize,
        dtype=array.dtype,
        previous_chunks=array.chunks,
    )
    return array.rechunk(chunks)


def even_chunks(array: Any) -> Any:
    """Return an array of Dask in chunks that zarr can store: equal ones, but for the last."""
    return array.rechunk(tuple(_commonest(one) for one in array.chunks))


def _commonest(chunks: tuple[int, ...]) -> int:
    """Return the length of most chunks, so that few of them change."""
    return max(Counter(chunks).items(), key=lambda pair: (pair[1], pair[0]))[0]


@record(eq=False)
class StoredArray:
    """An array of zarr in a folder, and the file of each chunk.

    Attributes
    ----------
    folder : path
        The folder of the array, on a disk that all workers share.
    array : zarr.Array
        The array.
    """

    folder: Path
    array: Any

    @classmethod
    def in_store(cls, store: str | os.PathLike[str], name: str, mode: str = "r") -> StoredArray:
        """Return an array of a group that is stored in a folder."""
        import zarr

        return cls(Path(store) / name, zarr.open_group(os.fspath(store), mode=mode)[name])

    def file(self, chunk: Sequence[int]) -> Path:
        """Return the file of a chunk."""
        return self.folder / str(self.array.metadata.encode_chunk_key(tuple(chunk)))

    def chunks(self) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of all chunks, in order."""
        shape = zip(self.array.shape, self.array.chunks, strict=True)
        return itertools.product(*(range(-(-n // length)) for n, length in shape))

    def place(self, chunk: Sequence[int]) -> tuple[slice, ...]:
        """Return the part of the array that is a chunk."""
        each = zip(chunk, self.array.chunks, strict=True)
        return tuple(slice(i * length, (i + 1) * length) for i, length in each)

    def missing(self) -> list[tuple[int, ...]]:
        """Return the chunks whose files are not there."""
        return [one for one in self.chunks() if not self.file(one).is_file()]

    def write(self, values: Any, progress: Progress | None = None) -> int:
        """Compute and write the chunks that are not there yet; return the number of the others.

        ``values`` is an array of Dask in the chunks of this one. A few of the chunks that are there
        are computed again: if they differ, they are those of other values, which is an error.
        """
        total, missing = sum(1 for _ in self.chunks()), self.missing()
        kept = total - len(missing)
        if kept:
            self._compare(values, missing)
        if progress is not None:
            progress(kept, total)
        done = values.map_blocks(
            _written,
            folder=os.fspath(self.folder),
            dtype=bool,
            chunks=tuple((1,) * n for n in values.numblocks),
            meta=np.empty((0,) * values.ndim, dtype=bool),
        )
        tasks = done.to_delayed()
        computed(
            [tasks[one] for one in missing],
            None if progress is None else _after(kept, total, progress),
        )
        return kept

    def _compare(self, values: Any, missing: Sequence[tuple[int, ...]]) -> None:
        """Raise an error if chunks that are there are not those of the values."""
        import dask

        absent = set(missing)
        there = [one for one in self.chunks() if one not in absent]
        some = list(dict.fromkeys([there[0], there[-1]]))[:COMPARED]
        expected = dask.compute(*(values[self.place(one)] for one in some))
        for one, chunk in zip(some, expected, strict=True):
            found = self.array[self.place(one)]
            unit = float(np.nanmax(np.abs(chunk), initial=0.0))
            limit = ROUNDED[8 if found.dtype.itemsize >= 8 else 4] * unit
            if not np.allclose(found, chunk, rtol=0, atol=limit, equal_nan=True):
                raise other_job(self.folder.parent, "whose chunks are those of other values")


def other_job(store: Path, why: str) -> InputError:
    """Return the error for a store that was begun with other values or settings."""
    return problem(
        "path",
        f"{store}, {why}",
        "the beginning of the same store",
        "To begin anew, remove this folder. To go on, use the same input and options.",
    )


def _after(kept: int, total: int, progress: Progress) -> Progress:
    """Return a function that counts chunks that were there before too."""
    return lambda done, _: progress(kept + done, total)


def _written(block: Array, folder: str = "", block_id: tuple[int, ...] = ()) -> Array:
    """Write one chunk to its file, which appears when it is whole."""
    import zarr

    array = zarr.open_array(folder, mode="r+")
    # chunks of zeros are stored too: a file that is not there is a chunk that was not computed
    array = array.with_config({"write_empty_chunks": True})
    each = zip(block_id, array.chunks, block.shape, strict=True)
    array[tuple(slice(i * n, i * n + size) for i, n, size in each)] = block
    return np.ones((1,) * block.ndim, dtype=bool)


def computed(tasks: Sequence[Any], progress: Progress | None = None) -> None:
    """Compute delayed objects, whose results are small, and call ``progress`` after each of them.

    The events are those of Dask: tasks that end in this process, or in the cluster of a client.
    """
    import dask

    if not tasks:
        return
    if dask.config.get("scheduler", None) in ("dask.distributed", "distributed"):
        _computed_on_workers(tasks, progress)
        return
    from dask.callbacks import Callback

    names, done = {one.key for one in tasks}, 0

    def count(key: Any, *_: Any) -> None:
        nonlocal done
        if key in names and progress is not None:
            done += 1
            progress(done, len(tasks))

    with Callback(posttask=count):
        dask.compute(*tasks)


def _computed_on_workers(tasks: Sequence[Any], progress: Progress | None) -> None:
    """Compute delayed objects in the cluster of the current client."""
    from distributed import Client, KilledWorker, as_completed

    client = Client.current()
    futures = client.compute(list(tasks))
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            future.release()  # the scheduler then forgets what only this needed
            if progress is not None:
                progress(done, len(futures))
    except KilledWorker as error:
        raise problem(
            "memory",
            f"workers that were ended several times at the same chunk ({error.task})",
            "workers that can hold a few chunks",
            "Give each more memory (--memory, memory_limit), or rechunk to smaller chunks.",
        ) from error
    finally:
        client.cancel(futures)
