"""The positions of the data of a field, in compact form: saved with it, to compute distances."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import threads

# The most positions that are kept: 256 kilobytes in the plane. Of more points, one in each
# occupied cell of a grid is kept, on the finest grid with at most this many occupied cells.
MOST_KEPT = 1 << 16
# Positions are kept as uint16: the box has this many steps along each axis.
STEPS = (1 << 16) - 1
# The finest grid has 2^BITS cells: 1024 along each axis of the plane.
BITS = 20
# Distances are computed for this many positions at a time, to bound the memory.
BLOCK = 1 << 18


class Places(Protocol):
    """The positions of data, to be saved with a field."""

    def on(self, axes: Sequence[Array]) -> Distances:
        """Return the distances to the data of a field with these axes."""

    def contents(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays and metadata to save."""


class Distances(Protocol):
    """Distances to data."""

    def distances(self, points: Array, most: float = math.inf) -> Array:
        """Return the distances (P,) of points (P, D) to the nearest datum; inf beyond ``most``."""


class RoundDistances:
    """Distances to data on axes that wrap: to the nearest of all copies, one period apart.

    Parameters
    ----------
    inner : Distances
        The distances to the data as they lie in one period.
    lows, periods : sequences of D floats, and of floats or None
        The start of that period on each axis, and its length.
    """

    def __init__(
        self, inner: Distances, lows: Sequence[float], periods: Sequence[float | None]
    ) -> None:
        self._inner, self._lows, self._periods = inner, lows, periods

    def distances(self, points: Array, most: float = math.inf) -> Array:
        """Return the distances (P,) of points (P, D) to the nearest datum; inf beyond ``most``."""
        reduced = points.copy()
        for i, (low, period) in enumerate(zip(self._lows, self._periods, strict=True)):
            if period is not None:
                reduced[:, i] -= period * np.floor((reduced[:, i] - low) / period)
        turns = [(0.0,) if period is None else (-period, 0.0, period) for period in self._periods]
        found = np.full(len(points), math.inf)
        for shift in itertools.product(*turns):
            np.minimum(found, self._inner.distances(reduced + np.array(shift), most), out=found)
        return found


class PointPlaces:
    """The positions of scattered data.

    Up to 65,536 positions are kept, rounded to steps of 1/65,535 of their box along each axis. Of
    more points, one position is kept in each occupied cell of a grid. Distances are then too large
    by at most ``resolution``, the diagonal of a cell. Rounding changes distances by no more than
    half the diagonal of a step.

    Parameters
    ----------
    points : array (P, D), or function that returns it
        The positions. They are reduced when they are first used.
    units : sequence of D floats, optional
        The unit of length on each axis.
    """

    def __init__(
        self, points: Array | Callable[[], Array], units: Sequence[float] | None = None
    ) -> None:
        self._units = units
        self._points: Array | Callable[[], Array] | None = points

    @functools.cached_property
    def _kept(self) -> tuple[Array, Array, Array, float, Array]:
        """Low ends and lengths of the box, steps in it (M, D) uint16, resolution, and units."""
        points = self._points() if callable(self._points) else self._points
        assert points is not None
        D = points.shape[1]
        units = np.ones(D) if self._units is None else np.asarray(self._units, dtype=np.float64)
        low, length = points.min(axis=0), np.ptp(points, axis=0)
        parts = (points - low) / np.where(length > 0, length, 1.0)
        resolution = 0.0
        if len(parts) > MOST_KEPT:
            # in many dimensions even one bit per axis gives more than 2^BITS cells
            bits = math.ceil(BITS / D) if D <= BITS // 2 else 1
            cells = np.minimum((parts * 2.0**bits).astype(np.int64), 2**bits - 1)
            while bits:
                first = _first_of_cells(cells, bits)
                parts, cells = parts[first], cells[first]
                if len(first) <= MOST_KEPT:
                    break
                bits, cells = bits - 1, cells >> 1
            parts = parts[:MOST_KEPT]
            resolution = float(np.linalg.norm(length / units)) / 2.0**bits
        self._points = None  # so that the points can be freed
        return low, length, np.rint(parts * STEPS).astype(np.uint16), resolution, units

    @property
    def resolution(self) -> float:
        """The largest amount by which a distance is too large, apart from rounding."""
        return self._kept[3]

    @property
    def positions(self) -> Array:
        """The positions that are kept, (M, D)."""
        low, length, parts, _, _ = self._kept
        return low + length * (parts / STEPS)

    @functools.cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(self.positions / self._kept[4])

    def on(self, axes: Sequence[Array]) -> PointPlaces:
        """Return itself: the axes of the field do not matter."""
        del axes
        return self

    def distances(self, points: Array, most: float = math.inf) -> Array:
        """Return the distances (P,) of points (P, D) to the nearest datum; inf beyond ``most``."""
        result = np.empty(len(points))
        # positions are rounded to steps: half the diagonal of a step is added to the bound
        _, length, _, _, units = self._kept
        step = float(np.linalg.norm(length / units)) / (2 * STEPS)
        bound = _exclusive(most + step)
        for start in range(0, len(points), BLOCK):
            part = slice(start, start + BLOCK)
            scaled = points[part] / self._kept[4]
            found, _ = self._tree.query(scaled, distance_upper_bound=bound, workers=threads())
            result[part] = found
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {"_units": None, "_points": None, "_kept": self._kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"_units": None, "_points": None, **state})

    def contents(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays and metadata to save."""
        low, length, parts, resolution, units = self._kept
        about = {
            "low": low.tolist(),
            "length": length.tolist(),
            "resolution": resolution,
            "units": units.tolist(),
        }
        return {"places": parts}, about


def _first_of_cells(cells: Array, bits: int) -> Array:
    """Return the index of the first point of each occupied cell of a grid with 2^bits per axis."""
    D = cells.shape[1]
    if bits * D > BITS + 4:
        return np.sort(np.unique(cells, axis=0, return_index=True)[1])
    number = np.ravel_multi_index(tuple(cells.T), (2**bits,) * D)
    first = np.full(2 ** (bits * D), -1)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return np.asarray(first[first >= 0])


class GridPlaces:
    """The data of a grid, complete or with missing samples, at the positions of the field's axes.

    Parameters
    ----------
    known : array of bool, optional
        Where samples are known, by default everywhere. It is kept as one bit per sample.
    """

    def __init__(self, known: Array | None = None) -> None:
        self.shape = None if known is None else known.shape
        self.bits = None if known is None else np.packbits(known)
        self._last: tuple[tuple[Array, ...], Distances] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self.shape, "bits": self.bits, "_last": None}

    def on(self, axes: Sequence[Array]) -> Distances:
        """Return the distances to the data of a field with these axes."""
        if self.shape is None or self.bits is None:
            return _GridDistances(axes)
        count = math.prod(self.shape)
        if self._last is not None and all(
            np.array_equal(a, b) for a, b in zip(self._last[0], axes, strict=True)
        ):
            return self._last[1]
        index = np.nonzero(np.unpackbits(self.bits, count=count).reshape(self.shape))
        points = np.stack([x[i] for x, i in zip(axes, index, strict=True)], axis=1)
        self._last = tuple(axes), _ExactDistances(points)
        return self._last[1]

    def contents(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays and metadata to save: the axes are saved with the field."""
        if self.shape is None or self.bits is None:
            return {}, {"grid": None}
        return {"places": self.bits}, {"grid": list(self.shape)}


class _ExactDistances:
    """The distances to positions that are all kept, exactly."""

    def __init__(self, points: Array) -> None:
        from scipy.spatial import KDTree

        self._tree = KDTree(points)

    def distances(self, points: Array, most: float = math.inf) -> Array:
        """Return the distances (P,) of points (P, D) to the nearest datum; inf beyond ``most``."""
        bound = _exclusive(most)
        found = [
            self._tree.query(
                points[start : start + BLOCK], distance_upper_bound=bound, workers=threads()
            )[0]
            for start in range(0, max(len(points), 1), BLOCK)
        ]
        result = np.concatenate(found)
        return np.where(result > most, math.inf, result)


def _exclusive(most: float) -> float:
    """Return a bound slightly above ``most``: bounds of a KDTree are exclusive, and squared."""
    return most * (1 + 1e-9) + 1e-150


class _GridDistances:
    """The distances to the samples of a complete grid."""

    def __init__(self, axes: Sequence[Array]) -> None:
        self._axes = [np.sort(axis) for axis in axes]

    def distances(self, points: Array, most: float = math.inf) -> Array:
        """Return the distances (P,) of points (P, D) to the nearest datum; inf beyond ``most``."""
        total = np.zeros(len(points))
        for axis, x in zip(self._axes, points.T, strict=True):
            after = np.clip(np.searchsorted(axis, x), 0, len(axis) - 1)
            before = np.maximum(after - 1, 0)
            total += np.minimum(np.abs(x - axis[before]), np.abs(x - axis[after])) ** 2
        found = np.sqrt(total)
        return np.where(found > most, math.inf, found)


def places_from(
    arrays: Mapping[str, Array], metadata: Mapping[str, Any], axes: Sequence[Array]
) -> Places | None:
    """Return the places that were saved with a field; None if there are none, or no valid ones.

    ``axes`` are those of the field.
    """
    about = metadata.get("places")
    if not isinstance(about, Mapping):
        return None
    parts, D = arrays.get("places"), len(axes)
    if "grid" in about:
        return _grid_places(about["grid"], parts, tuple(len(axis) for axis in axes))
    try:
        low, length, units = (
            np.array(about[name], dtype=np.float64) for name in ("low", "length", "units")
        )
        resolution = float(about["resolution"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    shapes = parts is not None and parts.ndim == 2 and parts.shape[1] == D and len(parts) > 0
    if not shapes or any(one.shape != (D,) for one in (low, length, units)) or min(units) <= 0:
        return None
    assert parts is not None
    if parts.dtype != np.uint16 or not np.isfinite(low + length + units).all():
        return None
    places = PointPlaces(low[None])
    places.__setstate__({"_kept": (low, length, parts, resolution, units)})
    return places


def _grid_places(shape: Any, bits: Array | None, expected: tuple[int, ...]) -> GridPlaces | None:
    """Return the places of a grid that were saved; None if they do not belong to its axes."""
    if shape is None:
        return GridPlaces()
    count = math.prod(expected)
    if shape != list(expected) or bits is None or bits.shape != ((count + 7) // 8,):
        return None
    if bits.dtype != np.uint8 or not bits.any():
        return None
    return GridPlaces(np.unpackbits(bits, count=count).reshape(expected).astype(bool))


def far_parts(
    places: Distances, axes: Sequence[Array], beyond: float
) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, mask) for blocks of rows of a grid: True further than ``beyond`` from data."""
    rest = math.prod(len(x) for x in axes[1:])
    step = max(1, BLOCK // max(rest, 1))
    for start in range(0, len(axes[0]), step):
        rows = slice(start, min(start + step, len(axes[0])))
        grid = np.meshgrid(axes[0][rows], *axes[1:], indexing="ij")
        points = np.stack([x.ravel() for x in grid], axis=1)
        yield rows, (places.distances(points, beyond) > beyond).reshape(grid[0].shape)
