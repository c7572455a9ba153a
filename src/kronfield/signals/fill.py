"""The error of filled-in samples, measured at known samples that are left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield.files import Signal
from kronfield.fitting import settings as defaults
from kronfield.signals.axes import described
from kronfield.signals.fit import fit_signal, straight_colours

# The shift of the mask along each axis, as a fraction of its length: 2 minus the golden ratio. A
# mask with a period of 1/2, 1/3 or 1/4 of the axis is not moved onto itself.
MOVED = 0.381966


def moved_mask(holes: Array) -> Array:
    """Return which known samples lie in the holes of the mask after it is moved along every axis.

    They form holes of the sizes and shapes of the real holes.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.fill import moved_mask
    >>> moved_mask(np.array([1, 1, 0, 0, 0, 0, 0, 0], dtype=bool)).astype(int)
    array([0, 0, 0, 1, 1, 0, 0, 0])
    """
    shifts = tuple(max(1, round(MOVED * n)) % n for n in holes.shape)
    return np.asarray(np.roll(holes, shifts, axis=tuple(range(holes.ndim))) & ~holes)


def expected_error(signal: Signal, holes: Array, *, roughness: Any = None) -> float | None:
    """Return the rms error of known samples that are left out and filled in like ``holes``.

    It is in the units of the values; None if too few samples are known.
    """
    held = moved_mask(holes)
    known = int((~holes).sum())
    settings = defaults.DEFAULT.signals
    if not settings.fewest_left_out <= held.sum() <= settings.most_left_out * known:
        return None
    field = fit_signal(signal, roughness=roughness, missing=holes | held)
    found = np.asarray(field.on_grid())
    if described(field).multiplied:
        found = straight_colours(found)
    difference = (found.astype(np.float64) - signal.values)[held]
    return math.sqrt(float(np.mean(np.square(difference))))
