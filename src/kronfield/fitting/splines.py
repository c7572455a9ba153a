"""Splines in tension for the samples of a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, Frame
from kronfield.embedders import TensionSpline
from kronfield.encoding import Kronecker

# Centres past each end: two reach half a cell beyond the last sample, where the domain ends.
PADDING = 2
# Features per sample that uneven axes may get, so that their narrowest gap is resolved.
MOST_FEATURES, ENOUGH_FEATURES = 4, 2048


def tension_encoding(axes: Sequence[Array], frames: Sequence[Frame], tension: float) -> Kronecker:
    """Return splines with a centre on every sample, and more of them where gaps are uneven."""
    embedders = []
    for axis, frame in zip(axes, frames, strict=True):
        inside = len(axis)
        if inside > 1:
            most = max(MOST_FEATURES * inside, ENOUGH_FEATURES)
            # an axis that is even but for rounding is even
            needed = min(frame.length / float(np.diff(axis).min()) * (1 - EVEN), most)
            inside = min(max(inside, math.ceil(needed)), most)
        embedders.append(TensionSpline(inside + 2 * PADDING, tension, padding=PADDING))
    return Kronecker(*embedders)
