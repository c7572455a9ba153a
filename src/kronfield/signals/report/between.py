"""The field at fine positions between the samples, where these have most detail."""

from __future__ import annotations

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import cell_centres, mean_step
from kronfield._core.records import record

# The number of places, the samples on a side of each, and positions per sample.
PLACES, WINDOW, FINE = 3, 16, 8


@record
class Zoom:
    """A part of the samples, and the field there at finer positions.

    Attributes
    ----------
    rows, columns : slices
        The part of the samples; ``columns`` is not used for a line.
    samples, fine : arrays
        The samples and the field, as rows and columns, or along a line.
    x, fine_x : arrays, optional
        The positions of ``samples`` and ``fine`` along a line.
    """

    rows: slice
    columns: slice
    samples: Array
    fine: Array
    x: Array | None = None
    fine_x: Array | None = None


def detailed_windows(values: Array, count: int = PLACES) -> list[tuple[slice, ...]]:
    """Return the windows of an array (N_1[, N_2]) with most detail, which do not overlap.

    Detail is the sum of squared second differences along each axis: a linear slope has none.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.zeros(100)
    >>> values[60] = 1
    >>> detailed_windows(values, 1)
    [(slice(48, 64, None),)]
    """
    detail = np.zeros(values.shape)
    for axis, n in enumerate(values.shape):
        if n > 2:
            inner = tuple(slice(1, -1) if i == axis else slice(None) for i in range(values.ndim))
            detail[inner] += np.diff(values, 2, axis=axis) ** 2
    sides = [min(WINDOW, n) for n in values.shape]
    blocks = [n // side for n, side in zip(values.shape, sides, strict=True)]
    cut = detail[tuple(slice(0, b * s) for b, s in zip(blocks, sides, strict=True))]
    shape = [number for pair in zip(blocks, sides, strict=True) for number in pair]
    total = np.nan_to_num(cut.reshape(shape)).sum(axis=tuple(range(1, 2 * values.ndim, 2)))
    order = np.argsort(total.ravel())[::-1][:count]
    places = np.stack(np.unravel_index(order, total.shape), axis=1)
    return [
        tuple(slice(int(i) * s, (int(i) + 1) * s) for i, s in zip(place, sides, strict=True))
        for place in places
    ]


def fine_positions(axis: Array, part: slice) -> Array:
    """Return positions that divide the cells of some samples of an axis."""
    x = axis[part]
    if len(x) < 2:
        return x
    half = mean_step(x) / 2
    return cell_centres(x[0] - half, x[-1] + half, FINE * len(x))
