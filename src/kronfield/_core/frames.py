"""Sample positions: frames of axes, cells and their centres, even axes, and held-out samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kronfield._core.arrays import AnyArray, Array, namespace, problem
from kronfield._core.records import record

# An axis is even if all gaps differ from their mean by at most this fraction of it.
EVEN = 1e-6
# Limits of the length of an axis: squares and fourth powers of derivatives must not overflow.
SHORTEST, LONGEST = 1e-60, 1e60
# The gaps of the RECENT last axes with up to KEPT_UP_TO positions are cached, 1 MB in all: a fit
# needs them several times, and many fits have equal axes.
KEPT_UP_TO, RECENT = 512, 256


@record
class Frame:
    """The placement of one axis: position x is embedded at (x - origin) / length.

    The field is valid from ``low`` to ``high``. If the axis ``wraps``, this interval is one period,
    of length ``length``, and all positions are valid.
    """

    origin: float
    length: float
    low: float
    high: float
    wraps: bool = field(default=False, kw_only=True)

    @property
    def period(self) -> float | None:
        """The period of an axis that wraps; None if it does not."""
        return self.length if self.wraps else None

    def unit(self, x: Any) -> Array:
        """Return positions in the embedder's units, float64."""
        return (np.asarray(x, dtype=np.float64) - self.origin) / self.length

    def in_units(self, unit: float) -> Frame:
        """Return the frame of the same axis, with positions divided by ``unit``."""
        ends = (x / unit for x in (self.origin, self.length, self.low, self.high))
        return Frame(*ends, wraps=self.wraps)


def sample_frame(axis: Array) -> Frame:
    """Return the frame of an axis with cells centred on its samples: sample i maps to i/N."""
    if len(axis) == 1:
        return Frame(float(axis[0]), 1.0, float(axis[0]) - 0.5, float(axis[0]) + 0.5)
    spacing = float(axis[-1] - axis[0]) / (len(axis) - 1)
    low, high = (
        float(axis[0] - (axis[1] - axis[0]) / 2),
        float(axis[-1] + (axis[-1] - axis[-2]) / 2),
    )
    return Frame(float(axis[0]), spacing * len(axis), low, high)


def cell_centres(low: float, high: float, count: int) -> Array:
    """Return the centres of ``count`` cells of equal size from low to high.

    Examples
    --------
    >>> cell_centres(0.0, 1.0, 4)
    array([0.125, 0.375, 0.625, 0.875])
    """
    return low + (high - low) * (np.arange(count) + 0.5) / count


def mean_step(x: AnyArray) -> float:
    """Return the mean gap between neighbours on an axis of two or more samples."""
    return float(x[-1] - x[0]) / (len(x) - 1)


def is_even(x: Array, tolerance: float = EVEN) -> bool:
    """Return whether all gaps of an axis are equal within ``tolerance`` times their mean.

    An axis of fewer than three samples is even.

    Examples
    --------
    >>> import numpy as np
    >>> is_even(np.linspace(0, 1, 7)), is_even(np.array([0.0, 1.0, 3.0]))
    (True, False)
    """
    if len(x) < 3:
        return True
    return _gaps(x)[1] <= tolerance * abs(mean_step(x))


def off_even(x: AnyArray) -> float:
    """Return the largest distance of a position from where it would be on an even axis.

    The axis has two or more samples and keeps its ends. Positions that may be replaced by those of
    an even axis are tested by this distance: small differences of gaps, which `is_even` bounds,
    can add up to more.

    Examples
    --------
    >>> import numpy as np
    >>> off_even(np.array([0.0, 1.0, 2.5, 3.0]))
    0.5
    """
    count = namespace(x).arange(len(x), dtype=x.dtype, device=x.device)
    return float(abs(x - (x[0] + mean_step(x) * count)).max())


def smallest_gap(x: Array) -> float:
    """Return the smallest difference of neighbours on an axis of two or more samples.

    It is 0 or less if the positions do not increase everywhere.
    """
    return _gaps(x)[0]


def _gaps(x: Array) -> tuple[float, float]:
    """Return the smallest gap, and the largest difference between a gap and the mean gap."""
    if len(x) <= KEPT_UP_TO and x.dtype == np.float64:
        return _short_gaps(x.tobytes())
    return _measured_gaps(x)


def _measured_gaps(x: Array) -> tuple[float, float]:
    gaps, step = np.diff(x), mean_step(x)
    return float(gaps.min()), float(np.abs(gaps - step).max())


@functools.lru_cache(maxsize=RECENT)
def _short_gaps(positions: bytes) -> tuple[float, float]:
    return _measured_gaps(np.frombuffer(positions))


def check_length(argument: str, low: float, high: float) -> None:
    """Raise an error if an axis is so short or long that derivatives would overflow."""
    if not SHORTEST <= high - low <= LONGEST:
        expected = f"a length from {SHORTEST:g} to {LONGEST:g}"
        raise problem(
            argument,
            f"{low:g} to {high:g}, a length of {high - low:g}",
            expected,
            "Use another unit of length.",
        )


def centre(lengths: Sequence[int], most: int) -> tuple[slice, ...]:
    """Return slices of the central part with about ``most`` samples, as cubic as possible.

    The same number of samples is left out at both ends, so that a flipped grid has the same part.
    """
    side, budget = math.inf, float(most)
    for left, n in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        side = budget ** (1 / left)
        if n > side:
            break
        budget /= max(n, 1)
    cuts = [math.ceil((n - side) / 2) if n > side else 0 for n in lengths]
    return tuple(slice(cut, n - cut) for cut, n in zip(cuts, lengths, strict=True))


@record
class Split:
    """A split of a grid: on each long axis every second sample is known, the others are held out.

    Examples
    --------
    >>> import numpy as np
    >>> split = Split.of((6, 3), fewest=4)
    >>> split.known(np.arange(18).reshape(6, 3)).shape, int(split.held_out.sum())
    ((3, 3), 9)

    Attributes
    ----------
    lattice : tuple of slice
        The known samples on each axis.
    held_out : array of bool
        Whether each sample is held out, in the shape of the grid.
    """

    lattice: tuple[slice, ...]
    held_out: Array

    @classmethod
    def of(cls, shape: Sequence[int], fewest: int = 2) -> Split:
        """Return the split of a grid; axes with fewer than ``fewest`` samples are not split."""
        lattice = tuple(slice(None, None, 2 if n >= fewest else 1) for n in shape)
        held_out = np.ones(tuple(shape), dtype=bool)
        held_out[lattice] = False
        return cls(lattice, held_out)

    @property
    def halved(self) -> list[bool]:
        """Whether each axis has held-out samples."""
        return [part.step > 1 for part in self.lattice]

    def known(self, values: Array, *, planar: bool = False) -> Array:
        """Return the known samples of values (N_1, ..., N_D, ...).

        With ``planar``, the values are (C, N_1, ..., N_D).
        """
        return np.ascontiguousarray(
            values[(slice(None), *self.lattice) if planar else self.lattice]
        )

    def axes(self, axes: Sequence[Array]) -> list[Array]:
        """Return the positions of the known samples on each axis."""
        return [axis[part] for axis, part in zip(axes, self.lattice, strict=True)]
