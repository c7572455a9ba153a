"""Splines for samples that are smoothed, or lie on a finer lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, Frame, is_even, mean_step
from kronfield.embedders import BSpline, Embedder, TensionSpline, Wrapped
from kronfield.encoding import Kronecker
from kronfield.fitting.periods import is_even_circle

# Centres past each end: two reach half a cell beyond the last sample, where the domain ends.
PADDING = 2
# Knots of smoothed uneven samples are at least this part of the mean gap apart: roughness grows
# with the inverse cube of their distance, and would be rounding for samples that nearly coincide.
CLOSEST = 0.05


def tension_encoding(
    axes: Sequence[Array], frames: Sequence[Frame], tension: float, *, thinned: bool = False
) -> Kronecker:
    """Return splines in tension on even axes, and cubic splines with knots at uneven samples.

    A centre lies on every sample of an even axis. If ``thinned``, uneven samples that nearly
    coincide share a knot: splines that are smoothed need not pass through them.
    """
    embedders: list[Embedder] = []
    for axis, frame in zip(axes, frames, strict=True):
        if frame.period is not None:
            embedders.append(_on_circle(axis, frame, tension, thinned))
            continue
        if is_even(axis):
            inside = len(axis)
            if inside > 1:  # a domain given by the caller may have more cells than samples
                inside = max(inside, math.ceil(frame.length / mean_step(axis) * (1 - EVEN)))
            embedders.append(TensionSpline(inside + 2 * PADDING, tension, padding=PADDING))
            continue
        x = _thinned(frame.unit(axis)) if thinned else frame.unit(axis)
        low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
        low, high = max(low, 2 * x[0] - x[1]), min(high, 2 * x[-1] - x[-2])
        embedders.append(BSpline.through(x, 3, low, high))
    return Kronecker(*embedders)


def _on_circle(axis: Array, frame: Frame, tension: float, thinned: bool) -> Wrapped:
    """Return the splines of a periodic axis, without centres past its ends."""
    assert frame.period is not None
    if is_even_circle(axis, frame.period):
        return Wrapped(TensionSpline(len(axis), tension))
    x = frame.unit(axis)
    if thinned and len(x) > 4:
        x = _thinned(np.append(x, x[0] + 1.0))
        x = x[:-1] if x[-1] - x[0] >= 1.0 else x
    return Wrapped.through(x, 3)


def _thinned(x: Array) -> Array:
    """Return rising knots at least `CLOSEST` mean gaps apart; flipped samples have flipped knots.

    Samples in a row of smaller gaps have knots at even distances.
    """
    gaps = np.diff(x)
    least = CLOSEST * float(x[-1] - x[0]) / len(gaps)
    if gaps.min() >= least:
        return x
    starts = np.concatenate([[0], np.flatnonzero(gaps >= least) + 1])
    ends = np.append(starts[1:], len(x)) - 1
    found = []
    for first, last in zip(x[starts], x[ends], strict=True):
        count = math.floor((last - first) / least)
        found.append(np.linspace(first, last, count + 1) if count else [(first + last) / 2])
    knots = np.concatenate(found)
    return knots if len(knots) > 4 else x  # too few for cubic splines otherwise
