"""The tasks: predict an image or clip from every second sample per axis, or from random samples."""

from __future__ import annotations

import functools

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.coordinates import even_axis
from kronfield._core.frames import Split
from kronfield._core.records import record
from kronfield.signals.measures import psnr, ssim


@record
class Task:
    """Values (N, ..., N, C) in [0, 1] on a grid at positions i/N, and which of them are given.

    ``given`` is None for a grid task: every second sample on each axis. All other samples are to be
    predicted.
    """

    values: Array
    given: Array | None

    @property
    def dimensions(self) -> int:
        """The number of axes."""
        return self.values.ndim - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples on each axis."""
        return self.values.shape[:-1]

    @property
    def channels(self) -> int:
        """The number of channels."""
        return int(self.values.shape[-1])

    @functools.cached_property
    def axes(self) -> list[Array]:
        """The positions i/N on each axis."""
        return [even_axis(n) for n in self.shape]

    @functools.cached_property
    def _split(self) -> Split:
        return Split.of(self.shape)

    @property
    def coarse_axes(self) -> list[Array]:
        """The given positions on each axis of a grid task."""
        return self._split.axes(self.axes)

    @property
    def coarse(self) -> Array:
        """The given values of a grid task, as a grid."""
        return self._split.known(self.values)

    @functools.cached_property
    def asked(self) -> Array:
        """True where a value is to be predicted."""
        if self.given is not None:
            return ~self.given
        return self._split.held_out

    @property
    def count(self) -> int:
        """The number of given samples."""
        return int(self.asked.size - self.asked.sum())

    def indices(self) -> Array:
        """Return the indices of the given samples, (P, D), as floats."""
        return np.argwhere(~self.asked).astype(np.float64)

    def score(self, prediction: Array) -> tuple[float, float]:
        """Return the PSNR on the predicted samples and the SSIM of the whole, clipped to [0, 1]."""
        clipped = np.clip(prediction, 0.0, 1.0)
        quality = psnr(clipped[self.asked], self.values[self.asked], peak=1.0)
        return quality, ssim(clipped, self.values, peak=1.0, channels=True)

    def unclipped_psnr(self, prediction: Array) -> float:
        """Return the PSNR on the predicted samples without clipping."""
        return psnr(prediction[self.asked], self.values[self.asked], peak=1.0)


def make_task(values: Array, kind: str, fraction: float, seed: int) -> Task:
    """Return a task: "grid", or "random" with a fraction of the samples, drawn with a seed."""
    if kind == "grid":
        return Task(values, None)
    total = int(np.prod(values.shape[:-1]))
    chosen = np.random.default_rng(seed).permutation(total)[: int(fraction * total)]
    given = np.zeros(total, dtype=bool)
    given[chosen] = True
    return Task(values, given.reshape(values.shape[:-1]))
