"""Where the authors' released code differs from the paper's text, to measure the effect.

Only the experiments use this module. All other modules implement the text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import AnyArray
from kronfield.embedders import (
    Embedder,
    Gaussian,
    LinearFourier,
    LogFourier,
    RandomFourier,
    Triangle,
)
from kronfield.encoding import Kronecker
from kronfield.encoding.blending import Blending

# Positions above this are moved to it.
LAST = 0.999
# The features of a simple encoding of video, of all axes together.
SIMPLE_VIDEO_FEATURES = 192


class ReleasedBlending(Blending):
    """Blending as in the authors' code.

    There are as many nodes as features. Features are evaluated at k/K, but the weights are those of
    nodes at k/(K - 1), so positions are compressed by (K - 1)/K. The similarity of RFF is its mean
    over all draws, that of Tri the printed square; weights are normalised.
    """

    def __init__(self, encoding: Kronecker) -> None:
        super().__init__(
            encoding,
            [np.arange(n) / n for n in encoding.shape],
            normalise=True,
            weights="similarity",
        )

    def on_axis(
        self, xp: Any, x: AnyArray, axis: int
    ) -> tuple[AnyArray, tuple[AnyArray, AnyArray]]:
        """Return the cell of each position, and the weights of its two ends."""
        embedder = self.encoding.embedders[axis]
        cells = embedder.size - 1
        at = xp.clip(x, 0.0, LAST) * cells
        cell = xp.floor(at)
        beta, d = at - cell, 1 / cells
        same, apart, left, right = (
            released_similarity(embedder, one * d)
            for one in (xp.zeros_like(beta), xp.ones_like(beta), beta, 1 - beta)
        )
        first, second = left * same - right * apart, right * same - left * apart
        return xp.astype(cell, xp.int64), (first / (first + second), second / (first + second))


def with_top_frequency(embedder: Embedder) -> LinearFourier | LogFourier:
    """Return the features whose F frequencies include 2^exponent, as in the authors' code.

    They are those of a larger exponent: F/(F - 1) times as far from 1, on the scale of the axis.
    """
    F = embedder.size // 2
    if isinstance(embedder, LinearFourier):
        top = 1 + F / (F - 1) * (2.0**embedder.exponent - 1)
        return LinearFourier(embedder.size, math.log2(top))
    assert isinstance(embedder, LogFourier)
    return LogFourier(embedder.size, F / (F - 1) * embedder.exponent)


def released_similarity(embedder: Embedder, dx: Any) -> AnyArray:
    """Return the similarity by which the authors' code blends, up to a factor."""
    if isinstance(embedder, RandomFourier):
        return embedder.expected_similarity(dx)
    if isinstance(embedder, Triangle):
        rest = embedder.width - abs(dx)
        return (rest * (rest > 0)) ** 2
    assert isinstance(embedder, Gaussian | LinearFourier | LogFourier)
    return embedder.similarity(dx)
