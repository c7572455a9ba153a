"""Splines for samples that are smoothed, or lie on a finer lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, Frame, is_even, mean_step
from kronfield.embedders import BSpline, Embedder, TensionSpline
from kronfield.encoding import Kronecker

# Centres past each end: two reach half a cell beyond the last sample, where the domain ends.
PADDING = 2


def tension_encoding(axes: Sequence[Array], frames: Sequence[Frame], tension: float) -> Kronecker:
    """Return splines in tension on even axes, and cubic splines with knots at uneven samples.

    A centre lies on every sample of an even axis.
    """
    embedders: list[Embedder] = []
    for axis, frame in zip(axes, frames, strict=True):
        if is_even(axis):
            inside = len(axis)
            if inside > 1:  # a domain given by the caller may have more cells than samples
                inside = max(inside, math.ceil(frame.length / mean_step(axis) * (1 - EVEN)))
            embedders.append(TensionSpline(inside + 2 * PADDING, tension, padding=PADDING))
            continue
        x = frame.unit(axis)
        low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
        low, high = max(low, 2 * x[0] - x[1]), min(high, 2 * x[-1] - x[-2])
        embedders.append(BSpline.through(x, 3, low, high))
    return Kronecker(*embedders)
