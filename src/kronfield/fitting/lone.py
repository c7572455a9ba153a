"""Samples that are further from a result without noise than noise can explain: they are kept.

To a block of cosines a star, a spark or a wrong sample is as faint as noise, and a penalised fit
smooths it away. But the largest of n normal numbers is known: samples that are further away than
that, beside noise as strong as there, are no noise. This is a threshold in the basis of single
samples (Donoho and Johnstone, 1994), in addition to that of cosines.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from kronfield._core.arrays import Array
from kronfield.fitting.settings import ShrinkageSettings

# The most distances that are looked at together, to bound the memory.
TOGETHER = 1 << 18
# The median distance of a normal variable from its mean, in standard deviations.
MEDIAN_DISTANCE = NormalDist().inv_cdf(0.75)


def noise_bar(count: int, chance: float) -> float:
    """Return the distance that the largest of ``count`` normal numbers exceeds by this chance.

    Examples
    --------
    >>> from kronfield.fitting.lone import noise_bar
    >>> round(noise_bar(10_000, 0.001), 2)
    5.33
    """
    return -NormalDist().inv_cdf(chance / (2 * max(count, 1)))


def lone(apart: Array, bar: float, settings: ShrinkageSettings) -> Array | None:
    """Return which distances (C, N_1, ..., N_D) noise cannot explain; None if it explains all.

    Noise of standard deviation 1 does not reach the ``bar``. Where it is stronger than it was
    measured to be, as the median distance of the samples beside shows, the bar is higher.
    """
    apart = np.abs(apart)
    far = apart > bar
    if not math.isfinite(bar) or not far.any():
        return None
    places, D = np.argwhere(far), apart.ndim - 1
    reach = settings.lone_reach(D)
    offsets = np.arange(-reach, reach + 1)
    beside = np.stack(np.meshgrid(*[offsets] * D, indexing="ij"), axis=-1).reshape(-1, D)
    last = np.subtract(apart.shape[1:], 1)
    step = max(1, TOGETHER // len(beside))
    for low in range(0, len(places), step):
        some = places[low : low + step]
        near = np.clip(some[:, None, 1:] + beside, 0, last)
        distances = apart[(some[:, :1], *np.moveaxis(near, -1, 0))]
        scales = np.median(distances, axis=1) / MEDIAN_DISTANCE
        own = tuple(some.T)
        far[own] = apart[own] > bar * np.maximum(scales, 1)
    return far if far.any() else None
