"""Folds of points that are held out together: single points at random, or blocks in space.

Points of a cluster have similar values. If single points are held out, their neighbours in the
cluster predict them, and the error between clusters is not seen. Blocks that are held out as a
whole are predicted from points further away (Roberts et al., 2017; `BlockKFold` of verde, Uieda,
2018).
"""

from __future__ import annotations

import numpy as np

from kronfield._core.arrays import Array
from kronfield.fitting.settings import DEFAULT

# Blocks are halved at most this often: then they are a millionth of the box, and points of a block
# are at the same place.
HALVINGS = 20


def fold_labels(
    points: Array,
    folds: int,
    blocks: int | None,
    rng: np.random.Generator,
    occupied: int = DEFAULT.points.occupied,
) -> Array:
    """Return the fold (P,) from 0 to ``folds`` - 1 of each of points (P, D).

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.fitting.hold_out import fold_labels
    >>> line = np.array([[0.0], [0.1], [3.0], [3.1], [6.0], [6.1], [10.0]])
    >>> labels = fold_labels(line, 2, 4, np.random.default_rng(0))
    >>> bool(labels[0] == labels[1]), bool(labels[2] == labels[3]), bool(labels[4] == labels[5])
    (True, True, True)

    Parameters
    ----------
    points : array (P, D)
        The positions.
    folds : int
        The number of folds.
    blocks : int or None
        Divide the box of the points into about this many blocks of equal size, whose points are in
        one fold. None: every point has a random fold.
    rng : Generator
        Generator of the random order of points or blocks.
    occupied : int
        Blocks are halved until at least ``occupied`` * ``folds`` of them have points, since points
        in a few small clusters are in few blocks.
    """
    count = len(points)
    if blocks is None or count <= folds:
        return rng.permutation(count) % folds
    low, length = points.min(axis=0), np.ptp(points, axis=0)
    parts = (points - low) / np.where(length > 0, length, 1.0)
    per_axis = max(1, round(blocks ** (1 / max(1, int(np.count_nonzero(length))))))
    for _ in range(HALVINGS):
        cells = np.minimum((parts * per_axis).astype(np.int64), per_axis - 1)
        _, block, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        if len(sizes) >= min(occupied * folds, count):
            break
        per_axis *= 2
    if len(sizes) < 2:  # all points are in one place
        return rng.permutation(count) % folds
    # blocks in random order, each to the fold with the fewest points so far
    fold, counts = np.empty(len(sizes), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for one in rng.permutation(len(sizes)):
        fold[one] = int(np.argmin(counts))
        counts[fold[one]] += sizes[one]
    return fold[block.reshape(-1)]
