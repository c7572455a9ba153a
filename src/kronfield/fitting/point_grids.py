"""Grids for scattered points: the lattice that they lie on, or a grid for their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame, is_even, mean_step
from kronfield._core.records import record
from kronfield.embedders import Embedder, TensionSpline, Triangle, Wrapped
from kronfield.encoding import Kronecker
from kronfield.fitting.settings import PointSettings
from kronfield.solvers.points.systems import fast_size

# Points lie on a lattice if they are no further from its nodes than this part of a step, which
# allows for the rounding of positions.
OFF_NODES = 1e-5


@record
class Lattice:
    """Even positions on one axis: ``origin + i step`` for i = 0, ..., count - 1."""

    origin: float
    step: float
    count: int


def find_lattice(points: Array, settings: PointSettings) -> list[Lattice] | None:
    """Return the lattice that all points lie on, or None.

    A lattice may have at most ``sparsest_lattice`` nodes per point, or ``small_lattice`` in total.
    """
    sparsest, small = settings.sparsest_lattice, settings.small_lattice
    axes = []
    for x in points.T:
        unique = np.unique(x)
        if len(unique) == 1:
            axes.append(Lattice(float(unique[0]), 1.0, 1))
            continue
        step = float(np.diff(unique).min())
        places = (unique - unique[0]) / step
        count = round(float(places[-1])) + 1
        if not math.isfinite(step) or count > sparsest * len(x) + small:
            return None
        if float(np.abs(places - np.round(places)).max()) > OFF_NODES:
            return None
        axes.append(Lattice(float(unique[0]), float(unique[-1] - unique[0]) / (count - 1), count))
    most = min(max(sparsest * len(points), small), settings.most_unknowns)
    return axes if math.prod(axis.count for axis in axes) <= most else None


def even_lattice(axes: Sequence[Array]) -> list[Lattice] | None:
    """Return the lattice of increasing axes if all are even, otherwise None."""
    lattice = []
    for x in axes:
        if not is_even(x):
            return None
        lattice.append(Lattice(float(x[0]), mean_step(x) if len(x) > 1 else 1.0, len(x)))
    return lattice


def hat_axis(low: float, high: float, count: int) -> tuple[Triangle, Frame]:
    """Return hats with ``count`` nodes from low to high, and their frame.

    A few nodes are added above ``high`` if their number has a faster cosine transform.
    """
    size = fast_size(count) if count > 1 else 1
    step = (high - low) / (count - 1) if count > 1 else high - low
    return Triangle(size, 2.0 / size), Frame(low, step * size, low, high)


def spline_axis(
    low: float, high: float, count: int, *, tension: float
) -> tuple[TensionSpline, Frame]:
    """Return splines in tension with ``count`` nodes from low to high, and their frame.

    There is at least one more node beyond each end. See Schweikert (1966).
    """
    size = fast_size(max(count, 2) + 2)
    step = (high - low) / (max(count, 2) - 1)
    inside = size - 2
    return TensionSpline(size, tension, padding=1), Frame(low, step * inside, low, high)


def without_spare_nodes(count: int) -> int:
    """Return the next number of nodes for which `spline_axis` adds one beyond each end only.

    Further nodes would cost as much as nodes inside, and only a penalty determines their weights:
    if it is weak, conjugate gradients need many iterations for them.

    Examples
    --------
    >>> without_spare_nodes(33), spline_axis(0.0, 1.0, 34, tension=1.0)[0].size
    (34, 36)
    """
    return fast_size(max(count, 2) + 2) - 2


Axis = Callable[[float, float, int], tuple[Embedder, Frame]]


def closed_axis(
    low: float, high: float, count: int, *, make: Axis, period: float
) -> tuple[Embedder, Frame]:
    """Return the features of ``make``, wrapped round the axis if it is one period long."""
    if abs(high - low - period) > 1e-9 * period:
        return make(low, high, count)
    line, _ = make(low, high, count)
    assert isinstance(line, Triangle | TensionSpline)
    size = fast_size(max(count - 1, 1))  # the last node is the first
    if isinstance(line, Triangle):
        line = Triangle(size, 2.0 / size)
    ring = Wrapped(replace(line, size=size, padding=0))
    return ring, Frame(low, period, low, low + period, wraps=True)


def grid_of(
    make: Axis | Sequence[Axis], box: Sequence[tuple[float, float]], counts: Sequence[int]
) -> tuple[Kronecker, tuple[Frame, ...]]:
    """Return the encoding and the frames of one kind of features on all axes of a box.

    ``make`` is one function for all axes, or one for each.
    """
    makes = [make] * len(box) if callable(make) else make
    places = zip(makes, box, counts, strict=True)
    pairs = [one(low, high, count) for one, (low, high), count in places]
    return Kronecker(*(emb for emb, _ in pairs)), tuple(frame for _, frame in pairs)


def counts_for(
    box: Sequence[tuple[float, float]],
    points: int,
    cells: float,
    most: int,
    units: Sequence[float] | None = None,
) -> list[int]:
    """Return the nodes per axis for ``cells`` cells per point, but at most ``most`` cells.

    Cells are as long as wide in ``units``, by default in those of the box.

    Examples
    --------
    >>> counts_for([(0.0, 1.0)] * 2, 1000, 4.0, most=1 << 24)
    [65, 65]
    >>> counts_for([(0.0, 1.0)] * 2, 1000, 4.0, most=100)
    [11, 11]
    >>> counts_for([(0.0, 1.0)] * 2, 1000, 4.0, most=1 << 24, units=(1.0, 0.25))
    [33, 128]
    """
    lengths = [1.0] * len(box)
    if units is not None:
        lengths = [(high - low) / unit for (low, high), unit in zip(box, units, strict=True)]
    # an axis with less than two cells gets two, which the others have to make up for
    left, free = min(cells * points, most), list(range(len(box)))
    while True:
        density = (left / (math.prod(lengths[i] for i in free) or 1.0)) ** (1 / len(free))
        short = [i for i in free if lengths[i] * density < 2.0]
        if not short or len(short) == len(free):
            break
        left /= 2.0 ** len(short)
        free = [i for i in free if i not in short]
    nodes = [max(2.0, lengths[i] * density) if i in free else 2.0 for i in range(len(box))]
    return [math.ceil(n - 1e-9) + 1 for n in nodes]


def mean_distances(box: Sequence[tuple[float, float]], points: int) -> tuple[float, ...]:
    """Return the distance of neighbours on each axis for ``points`` points spread evenly."""
    per_axis = max(points, 1) ** (1 / len(box))
    return tuple((high - low) / per_axis for low, high in box)
