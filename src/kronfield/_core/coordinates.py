"""Even axes and directions: the only place that defines their spacing and alignment."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from kronfield._core.arrays import AnyArray, Namespace, namespace, whole


def even_axis(samples: int, like: AnyArray | None = None) -> AnyArray:
    """Return the paper's sample positions i/N on [0, 1).

    Examples
    --------
    >>> even_axis(4)
    array([0.  , 0.25, 0.5 , 0.75])

    Parameters
    ----------
    samples : int
        The number N of positions.
    like : array, optional
        The result has the library, dtype and device of this array; by default, NumPy float64.
    """
    count = whole("samples", samples, at_least=1)
    if like is None:
        return np.arange(count, dtype=np.float64) / count
    return even_positions(namespace(like), count, like)


def even_positions(xp: Namespace, count: int, like: AnyArray) -> AnyArray:
    """Return i/N for i = 0 ... N-1, in the namespace ``xp``, with the dtype of ``like``."""
    return xp.arange(count, dtype=like.dtype, device=like.device) / count


def diagonals(dimensions: int) -> tuple[list[tuple[float, ...]], list[float]]:
    """Return the axes of a D-dimensional unit cube and the two diagonals of every pair of them.

    In two dimensions these are the four directions of the paper's simple Gau and Tri encodings:
    x, y, (x + y)/2 and (x - y + 1)/2, each of which maps the unit square onto [0, 1].

    Examples
    --------
    >>> directions, offsets = diagonals(2)
    >>> directions
    [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.5, -0.5)]
    >>> offsets
    [0.0, 0.0, 0.0, 0.5]
    """
    count = whole("dimensions", dimensions, at_least=1)
    unit: Any = np.eye(count)
    directions = [unit[a] for a in range(count)]
    offsets = [0.0] * count
    for a, b in itertools.combinations(range(count), 2):
        directions += [(unit[a] + unit[b]) / 2, (unit[a] - unit[b]) / 2]
        offsets += [0.0, 0.5]
    return [tuple(float(v) for v in direction) for direction in directions], offsets
