"""Noise removed from arrays of Dask: chunk by chunk, from the samples in and around each chunk.

Shrinkage treats blocks of samples, so that a chunk needs the blocks around it: with these, the
result is that of the whole grid. A penalised fit couples all samples, but the effect of a sample
decays by e over a length L: about L = sqrt(2) w^(1/4) for a weight w of squared second derivatives,
or sqrt(w) of squared slopes. A chunk is fitted with the samples up to L log(1/e) around it, which
changes its values by about a fraction e of their range.

Between the samples, a penalised fit is the spline through its values at the samples. So what is
left is a fit without a penalty, of these values.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame, is_even, sample_frame
from kronfield._core.records import record
from kronfield._core.threads import one_thread, with_one_blas_thread
from kronfield.fitting import shrinkage
from kronfield.fitting.denoising import Removal
from kronfield.fitting.settings import Settings
from kronfield.fitting.splines import tension_encoding
from kronfield.fitting.tiles import decay_length, spans
from kronfield.lazy.chunks import Tiling, tiling, with_halo
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.grid.separable import GridSolver

# The length of the parts of a chunk that are computed in turn, for 1, 2, 3 and 4 or more axes: the
# bases of penalised fits are dense.
TILES = (512, 512, 96, 32)
# Measured differences of penalised fits in chunks, as parts of the range of the values: times the
# squared part of a chunk that a penalty reaches, and on uneven axes.
FAR, UNEVEN = 0.2, 1e-3


class Cleaner(Protocol):
    """The map from noisy samples (C, ...) to those without noise, in parts."""

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that results ``first`` to ``stop`` depend on."""

    def __call__(self, planes: Array, low: Sequence[int]) -> Array:
        """Return the samples of a part that begins at ``low`` without noise; its rim is wrong."""

    def remark(self, tilings: Sequence[Tiling]) -> str:
        """Return how exact the chunks are, in words."""


@record(eq=False)
class Shrinking:
    """Shrinkage, with blocks at the same places as in the whole grid.

    Attributes
    ----------
    removal : Removal
        How noise is removed.
    level : array
        The mean of each channel, which is subtracted first.
    shape : tuple of int
        The whole grid.
    """

    removal: Removal
    level: Array
    shape: tuple[int, ...]

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that results ``first`` to ``stop`` depend on."""
        D = len(self.shape)
        first_pass, second_pass = self.removal.settings.shrinkage.sizes(D)
        # blocks, and the patches beside which alike ones are looked for, begin at the same samples
        steps = [one.step(D) for one in self.removal.groups]
        multiple = math.lcm(*first_pass, *second_pass, *steps)
        # lone samples that noise cannot explain are put back, as told by those around them
        reach = self.removal.reach(self.shape) + self.removal.settings.shrinkage.lone_reach(D)
        return max(0, first - reach) // multiple * multiple, min(stop + reach, self.shape[axis])

    def __call__(self, planes: Array, low: Sequence[int]) -> Array:
        """Return the samples of a part without noise."""
        n = planes.shape[1]
        alone = shrinkage.Slab(slice(0, n), slice(0, n))
        return self.removal.slab(planes, alone, planes.shape[1:], self.level)

    def remark(self, tilings: Sequence[Tiling]) -> str:
        """Return how exact the chunks are, in words."""
        return "in chunks, with all samples around them that shrinkage uses"


@record(eq=False)
class _Side:
    """The basis of one axis of a part.

    A penalty of second derivatives alone is the square of a sum over axes, of the roots of their
    roughness. At a free end the effect of a root decays slowly, which is right only where the grid
    ends. So an axis of which both ends lie within the grid is closed to a circle, and one with one
    end in the grid is continued there by its image.

    Attributes
    ----------
    U : array
        Orthonormal columns: values at the samples.
    strength : array
        The squared frequency of each function.
    image : int
        1 or -1 if the image of the samples follows or precedes them, else 0.
    """

    U: Any
    strength: Array
    image: int = 0

    def unfolded(self, planes: Array, axis: int) -> Array:
        """Return planes with the image of their samples."""
        if not self.image:
            return planes
        turned = np.flip(planes, axis)
        return np.concatenate([planes, turned] if self.image > 0 else [turned, planes], axis)

    def folded(self, planes: Array, axis: int) -> Array:
        """Return planes without the image."""
        if not self.image:
            return planes
        n = planes.shape[axis] // 2
        part = slice(0, n) if self.image > 0 else slice(n, 2 * n)
        return planes[(slice(None),) * axis + (part,)]


@record(eq=False)
class Penalising:
    """A penalised fit, at the samples.

    Attributes
    ----------
    axes, frames : tuples
        The positions of all samples, rising, and where the axes begin and end.
    rotation : array (C, C)
        The mix of channels that are penalised.
    roughness : tuple of (float, float)
        The penalties of each of them.
    units : tuple of float
        The unit of length of the penalties on each axis.
    tension : float
        The tension of the splines.
    error : float
        The part of the range of the values by which a chunk may differ.
    """

    axes: tuple[Array, ...]
    frames: tuple[Frame, ...]
    rotation: Array
    roughness: tuple[tuple[float, float], ...]
    units: tuple[float, ...]
    tension: float
    error: float

    @functools.cached_property
    def _parts(self) -> dict[Any, tuple[list[_Side], Array]]:
        return {}

    @property
    def _only_second(self) -> bool:
        """Whether second derivatives alone are penalised, on several axes: see `_Side`."""
        return len(self.axes) > 1 and not any(first for first, _ in self.roughness)

    @functools.cached_property
    def _even(self) -> bool:
        return all(map(is_even, self.axes))

    @functools.cached_property
    def reach(self) -> float:
        """How far around a chunk samples are used, in the units of the penalties."""
        # sum r^2 + a (n / V) integral |f''|^2: a penalty reaches further where samples are sparse
        sparse = 1.0
        for x, frame in zip(self.axes, self.frames, strict=True):
            if len(x) > 1:
                sparse *= max(1.0, float(np.diff(x).max()) * len(x) / (frame.high - frame.low))
        longest = max(decay_length((a * sparse, b * sparse)) for a, b in self.roughness)
        return longest * math.log(1 / self.error)

    def samples(self, axis: int, first: int, stop: int) -> tuple[int, int]:
        """Return the range of the samples that results ``first`` to ``stop`` depend on."""
        x, reach = self.axes[axis], self.reach * self.units[axis]
        low = int(np.searchsorted(x, x[first] - reach)) - 1
        high = int(np.searchsorted(x, x[stop - 1] + reach, side="right")) + 1
        return max(low, 0), min(high, len(x))

    def __call__(self, planes: Array, low: Sequence[int]) -> Array:
        """Return the samples of a part without noise."""
        sides, filters = self._factored(tuple(low), planes.shape[1:])
        found = np.tensordot(self.rotation, planes.astype(np.float64), axes=1)
        for axis, side in enumerate(sides, start=1):
            found = apply(side.U.T, side.unfolded(found, axis), axis)
        found = filters * found
        for axis, side in enumerate(sides, start=1):
            found = side.folded(apply(side.U, found, axis), axis)
        return np.tensordot(self.rotation.T, found, axes=1)

    def _factored(self, low: tuple[int, ...], shape: tuple[int, ...]) -> tuple[list[_Side], Array]:
        """Return the axes of a part, and the factor of each function of its basis."""
        whole = map(len, self.axes)
        ends = tuple((a == 0, a + n == N) for a, n, N in zip(low, shape, whole, strict=True))
        if not self._even:  # no two parts are alike: kept, their bases would outgrow the samples
            return self._part(low, shape, ends)
        key = shape, ends
        if key not in self._parts:
            self._parts[key] = self._part(low, shape, ends)
        return self._parts[key]

    def _part(
        self, low: tuple[int, ...], shape: tuple[int, ...], ends: Sequence[tuple[bool, bool]]
    ) -> tuple[list[_Side], Array]:
        sides, dense = [], 1.0
        only_second = self._only_second
        each = zip(self.axes, self.frames, self.units, low, shape, ends, strict=True)
        for x, frame, unit, a, n, (is_first, is_last) in each:
            own = x[a : a + n]
            place = sample_frame(own) if n > 1 else frame
            if is_first:
                place = replace(place, low=frame.low)
            if is_last:
                place = replace(place, high=frame.high)
            # the penalty is a mean over the box: that of a part has its own length and samples
            dense *= len(x) / (frame.high - frame.low) * (place.high - place.low) / n
            mirror = only_second and is_first != is_last and n > 1
            if mirror:
                edge = place.high if is_first else place.low
                image = (2 * edge - own)[::-1]
                own = np.concatenate([own, image] if is_first else [image, own])
                ends_of = [place.low, place.high]
                ends_of[int(is_first)] = 2 * edge - ends_of[int(not is_first)]
                place = replace(sample_frame(own), low=ends_of[0], high=ends_of[1])
            if only_second and not is_first and not is_last:
                length = place.high - place.low
                place = Frame(float(own[0]), length, place.low, place.high, wraps=True)
            frames, axes = [place.in_units(unit)], [own / unit]
            encoding = tension_encoding(axes, frames, self.tension, thinned=True)
            (basis,) = GridSolver(encoding, frames, axes, roughness=self.roughness[0]).bases
            image_side = 0 if not mirror else 1 if is_first else -1
            sides.append(_Side(basis.U, basis.strength, image_side))
        D = len(sides)
        shaped = [
            side.strength.reshape([-1 if i == axis else 1 for i in range(D)])
            for axis, side in enumerate(sides)
        ]
        strengths = sum(shaped[1:], start=shaped[0])
        scaled = [(a * dense, b * dense) for a, b in self.roughness]
        return sides, np.stack([GridSolver.filter_of(strengths, 0.0, one) for one in scaled])

    def freedom(self) -> float:
        """Return the degrees of freedom of a sample: the mean of the factors of a part."""
        side = TILES[min(len(self.axes), len(TILES)) - 1]
        shape = tuple(min(len(x), side) for x in self.axes)
        low = tuple((len(x) - n) // 2 for x, n in zip(self.axes, shape, strict=True))
        sides, filters = self._factored(low, shape)
        doubled = 2 ** sum(side.image != 0 for side in sides)
        return float(filters.sum()) / len(self.roughness) / math.prod(shape) / doubled

    def remark(self, tilings: Sequence[Tiling]) -> str:
        """Return how exact the chunks are, in words."""
        around = " x ".join(str(max(one.before, one.after)) for one in tilings)
        return (
            f"in chunks with {around} samples around them, which changes values by about "
            f"{self.bound(tilings):.0e} of their range"
        )

    def bound(self, tilings: Sequence[Tiling]) -> float:
        """Return the part of their range by which values in chunks differ from those of the whole.

        Under second derivatives, on several axes, uneven samples act by a power of the distance;
        without first derivatives beside them, the ends of the grid do too (see `_Side`).
        """
        divided = [i for i, one in enumerate(tilings) if len(one.chunks) > 1]
        if not divided or not any(second for _, second in self.roughness):
            return self.error
        if not self._even and len(self.axes) > 1:
            return max(self.error, UNEVEN)
        if not self._only_second:
            return self.error
        length = max(second for _, second in self.roughness) ** 0.25
        steps = (
            float(self.axes[i][-1] - self.axes[i][0]) / (len(self.axes[i]) - 1) / self.units[i]
            for i in divided
        )
        shortest = min(
            step * min(tilings[i].chunks) for i, step in zip(divided, steps, strict=True)
        )
        return max(self.error, FAR * (length / shortest) ** 2)


@record(eq=False)
class ChunkClean:
    """The samples of a chunk without noise, from those in it and in its halo."""

    cleaner: Cleaner
    tilings: tuple[Tiling, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(
        cls,
        cleaner: Cleaner,
        chunks: Sequence[Sequence[int]],
        dtype: np.dtype[Any],
        settings: Settings,
    ) -> ChunkClean:
        """Return the map for samples in chunks; raise an error if too many are needed around."""
        found = []
        for axis, own in enumerate(chunks):
            needed = functools.partial(cleaner.samples, axis)
            if len(own) == 1:
                found.append(Tiling((0, *own), (0, *own), 0, 0))
                continue
            middle = sum(own) // 2
            low, high = needed(middle, middle + 1)
            around, most = max(middle - low, high - middle - 1), settings.lazy.widest_overlap
            if around > most:
                raise problem(
                    "values",
                    f"noise whose removal uses {around} samples on either side along axis {axis}",
                    f"at most {most}, or one chunk there",
                    f"Use values.rechunk({{{axis}: -1}}), or average neighbours first: "
                    "dask.array.coarsen(numpy.mean, values, ...). Or pass noise=0.",
                )
            found.append(tiling(own, tuple, needed))
        return cls(cleaner, tuple(found), dtype)

    def __call__(self, planes: Any) -> Any:
        """Return planes (C, ...) without noise, both arrays of Dask."""
        from dask.delayed import delayed

        whole = with_halo(planes.rechunk({0: -1}), self.tilings)
        return whole.map_blocks(
            _cleaned,
            one=delayed(self, pure=True, traverse=False),
            dtype=self.dtype,
            chunks=(whole.chunks[0], *(tile.chunks for tile in self.tilings)),
            meta=np.empty((0,) * whole.ndim, dtype=self.dtype),
        )

    @with_one_blas_thread
    def cleaned(self, planes: Array, chunk: Sequence[int]) -> Array:
        """Return the samples of a chunk from those in it and its halo."""
        from kronfield.lazy.grid import check_finite

        box = [tile.side(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        start = [tile.start(i) for tile, i in zip(self.tilings, chunk, strict=True)]
        check_finite(planes, start)
        length = TILES[min(len(box), len(TILES)) - 1]
        parts = [
            [(s.rows.start + a, s.rows.stop + a) for s in spans(b - a, length, 0, 1)]
            for a, b in box
        ]
        shape = [b - a for a, b in box]
        result = np.empty((len(planes), *shape), dtype=self.dtype)
        with one_thread():
            for tile in itertools.product(*parts):
                seen = [self.cleaner.samples(i, *side) for i, side in enumerate(tile)]
                each = list(zip(seen, tile, start, box, strict=True))
                own = tuple(slice(a - s, b - s) for (a, b), _, s, _ in each)
                found = self.cleaner(planes[(slice(None), *own)], [a for a, _ in seen])
                inner = tuple(slice(c - a, d - a) for (a, _), (c, d), _, _ in each)
                target = tuple(slice(c - a, d - a) for _, (c, d), _, (a, _) in each)
                result[(slice(None), *target)] = found[(slice(None), *inner)]
        return result


def _cleaned(planes: Array, one: Any = None, block_id: tuple[int, ...] = ()) -> Array:
    """Return the samples of one block of a dask array without noise."""
    return one.cleaned(planes, block_id[1:])
