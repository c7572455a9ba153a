"""Missing samples of arrays of Dask, filled chunk by chunk from the known ones around them.

A chunk with holes is fitted in memory together with some samples on either side, and the values of
this fit are put into the holes. Known samples stay as they are. Two chunks that share a hole fill
their parts of it from nearly the same samples, if it is narrower than what both see. Wider holes
are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, is_lazy, problem
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.fitting.grid import fit
from kronfield.fitting.inputs import GridLayout
from kronfield.fitting.settings import Settings
from kronfield.lazy.chunks import Tiling, tiling, with_halo


def as_mask(mask: Any, layout: GridLayout) -> Any:
    """Return a mask as an array of Dask in rising order; raise an error if it is none."""
    import dask.array

    if type(mask).__module__.partition(".")[0] == "zarr":
        mask = dask.array.from_zarr(mask)
    array = getattr(mask, "data", mask) if type(mask).__name__ == "DataArray" else mask
    array = array if is_lazy(array) else dask.array.from_array(np.asarray(array))
    if array.shape != layout.shape or array.dtype != bool:
        raise problem(
            "mask",
            describe(array),
            f"bool of shape {layout.shape}, the grid",
            "True where a sample is missing.",
        )
    falling = [len(x) > 1 and x[0] > x[-1] for x in layout.shown_axes]
    return array[tuple(slice(None, None, -1) if flip else slice(None) for flip in falling)]


def widest_hole(missing: Array) -> float:
    """Return the width of the widest hole: twice the distance from its middle to a known sample.

    Examples
    --------
    >>> import numpy as np
    >>> missing = np.zeros((9, 9), dtype=bool)
    >>> missing[2:7, 1:8] = True
    >>> widest_hole(missing)
    5.0
    """
    from scipy.ndimage import distance_transform_cdt

    if missing.all():
        return float("inf")
    return max(0.0, 2.0 * float(distance_transform_cdt(missing, "chessboard").max()) - 1)


def filled(
    planes: Array, missing: Array, axes: Sequence[Array], settings: Settings, where: str
) -> Array:
    """Return planes (C, ...) with the values of a fit in memory in their holes."""
    if not missing.any():
        return planes
    widest, most = widest_hole(missing), settings.lazy.widest_hole
    if widest > most:
        got = "without known samples" if widest == np.inf else f"{widest:.0f} samples wide"
        raise problem(
            "mask",
            f"a hole {got} {where}",
            f"holes of at most {most} samples, which chunks fill alike",
            "Fit this part in memory, kf.fit(values[part].compute(), mask=...), or coarser samples "
            "of all, and put these values into the hole.",
        )
    values = np.moveaxis(np.where(missing, 0, planes), 0, -1)
    field = fit(values, list(axes), mask=missing, channels=True, settings=settings)
    found = np.moveaxis(np.asarray(field.on_grid(list(axes))), -1, 0)
    return np.where(missing, found, planes).astype(planes.dtype, copy=False)


@record(eq=False)
class ChunkFill:
    """The samples of a chunk without holes, from those in it and in its halo."""

    axes: tuple[Array, ...]
    tilings: tuple[Tiling, ...]
    dtype: np.dtype[Any]
    settings: Settings

    @classmethod
    def of(
        cls,
        axes: Sequence[Array],
        chunks: Sequence[Sequence[int]],
        dtype: np.dtype[Any],
        settings: Settings,
    ) -> ChunkFill:
        """Return the map for samples in chunks."""
        around, found = settings.lazy.widest_hole, []
        for n, own in zip(map(len, axes), chunks, strict=True):

            def needed(first: int, stop: int, n: int = n) -> tuple[int, int]:
                return max(first - around, 0), min(stop + around, n)

            found.append(tiling(own, tuple, needed))
        return cls(tuple(axes), tuple(found), dtype, settings)

    def __call__(self, planes: Any, missing: Any) -> Any:
        """Return planes (C, ...) without holes, an array of Dask, from such planes and a mask."""
        from dask.delayed import delayed

        whole = with_halo(planes.rechunk({0: -1}), self.tilings)
        mask = with_halo(missing[None], self.tilings)
        return whole.map_blocks(
            _filled,
            mask,
            one=delayed(self, pure=True, traverse=False),
            dtype=self.dtype,
            chunks=(whole.chunks[0], *(tile.chunks for tile in self.tilings)),
            meta=np.empty((0,) * whole.ndim, dtype=self.dtype),
        )

    @with_one_blas_thread
    def filled(self, planes: Array, missing: Array, chunk: Sequence[int]) -> Array:
        """Return the samples of a chunk without holes."""
        start = [tile.start(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        box = [tile.side(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        inner = tuple(slice(a - s, b - s) for (a, b), s in zip(box, start, strict=True))
        planes = planes.astype(self.dtype, copy=False)
        if missing[0][inner].any():
            axes = zip(self.axes, start, missing.shape[1:], strict=True)
            own = [x[s : s + n] for x, s, n in axes]
            where = f"near the chunk at {tuple(a for a, _ in box)}"
            with one_thread():
                planes = filled(planes, missing[0], own, self.settings, where)
        return np.ascontiguousarray(planes[(slice(None), *inner)])


def _filled(
    planes: Array, missing: Array, one: Any = None, block_id: tuple[int, ...] = ()
) -> Array:
    """Return the samples of one block of a dask array without holes."""
    return one.filled(planes, missing, block_id[1:])
