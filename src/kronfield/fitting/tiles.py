"""Tiles: parts of a grid that are computed from the samples in and around them."""

from __future__ import annotations

import itertools
import math

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.fitting.smoothing import Smoothing


@record
class Span:
    """A part of an axis: ``rows`` are computed together from the samples ``needed``."""

    rows: slice
    needed: slice


def spans(n: int, length: int, reach: int, multiple: int) -> list[Span]:
    """Return parts of an axis of about ``length`` samples.

    Samples depend on others up to ``reach`` away. The needed samples start at a multiple of
    ``multiple``, so that blocks of this length start at the same samples as in the whole grid.
    """
    count = max(1, round(n / length))
    ends = [i * n // count for i in range(count + 1)]
    return [
        Span(
            slice(low, high),
            slice(max(0, low - reach) // multiple * multiple, min(high + reach, n)),
        )
        for low, high in itertools.pairwise(ends)
    ]


def decay_length(roughness: tuple[float, float]) -> float:
    """Return the length over which the effect of a sample of a penalised fit decays by e.

    It is in the units of the axes. Of both penalties, the one that reaches further counts.
    """
    # solutions of u - w u'' = y decay over sqrt(w), of u + w u'''' = y over sqrt(2) w^(1/4)
    first, second = roughness
    return max(math.sqrt(first), math.sqrt(2) * second**0.25)


def samples_around(smoothing: Smoothing, axis: Array, lengths: float) -> int:
    """Return how many samples along an even axis lie within some lengths of `decay_length`."""
    step = float(axis[-1] - axis[0]) / max(1, len(axis) - 1) if len(axis) > 1 else 1.0
    longest = max(map(decay_length, smoothing.roughness))
    return math.ceil(lengths * longest / step) + 1
