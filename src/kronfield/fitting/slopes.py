"""A lattice twice as fine, filled by cubics with slopes from the data: steep edges do not ring.

No linear fit does this: at each sample, the slope leans to the side on which the values change
less. The cubics run along the axes, or along the directions in which the values change least
(`kronfield.fitting.directional`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, Frame, is_even, mean_step
from kronfield._core.records import record
from kronfield._core.threads import in_threads
from kronfield.fitting.directional import (
    SETTINGS,
    Shorter,
    fill_middles,
    reach_in_samples,
)
from kronfield.fitting.settings import DirectionalSettings

# The samples on either side of a cell that the slopes at its ends depend on.
REACH = 2
# The bytes processed at a time: about ten arrays of this size stay in the cache.
PART = 1 << 18


@record
class Refinement:
    """The nodes of the finer lattice, and the map from samples to values at the nodes.

    Attributes
    ----------
    axes : tuple of arrays
        The nodes: the samples, and on finer axes the middles between them and the rim half a cell
        past either end.
    frames : tuple of Frame
        Where the finer axes lie, with the domain of the samples.
    finer : tuple of bool
        Which axes are finer.
    directional : float
        The weight, from 0 to 1, of middles that are interpolated along the directions of least
        change; the rest of the weight is on middles along the axes. It matters only if two or more
        axes are finer.
    settings : DirectionalSettings
        The constants of the directional fill, and of the nodes past the ends.
    """

    axes: tuple[Array, ...]
    frames: tuple[Frame, ...]
    finer: tuple[bool, ...]
    directional: float = 0.0
    settings: DirectionalSettings = SETTINGS

    @classmethod
    def of(
        cls,
        axes: Sequence[Array],
        frames: Sequence[Frame],
        finer: Sequence[bool],
        directional: float = 0.0,
        settings: DirectionalSettings = SETTINGS,
    ) -> Refinement | None:
        """Return the lattice of even axes, twice as fine where ``finer``.

        A finer axis must have three samples or more. The result is None if an axis is uneven, or
        if its domain reaches more than a cell past its samples.
        """
        nodes, places = [], []
        for axis, frame, more in zip(axes, frames, finer, strict=True):
            n = len(axis)
            step = mean_step(axis) if n > 1 else frame.length
            if not is_even(axis):
                return None
            # the splines through the nodes reach one cell past the last sample
            slack = (1.0 + EVEN) * step
            if frame.low < axis[0] - slack or frame.high > axis[-1] + slack:
                return None
            nodes.append(axis[0] + step / 2 * np.arange(-1, 2 * n) if more else axis)
            origin, length = (
                (float(nodes[-1][0]), step / 2 * (2 * n + 1))
                if more
                else (float(axis[0]), step * n)
            )
            places.append(Frame(origin, length, frame.low, frame.high))
        return cls(tuple(nodes), tuple(places), tuple(finer), float(directional), settings)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of nodes on each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def is_along_edges(self) -> bool:
        """Whether middles along the directions of least change count."""
        return self.directional > 0 and sum(self.finer) > 1

    @property
    def reach(self) -> int:
        """The samples past those next to a node that its value depends on, on finer axes."""
        return reach_in_samples(self.finer, self.settings) if self.is_along_edges else REACH

    def __call__(self, values: Array) -> Array:
        """Return values at nodes (C, M_1, ..., M_D) from values at samples (C, N_1, ..., N_D).

        The samples may be those of a box of the lattice. Nodes further than `reach` from the ends
        of the box are then the same as those of the whole lattice.
        """
        if not self.is_along_edges:
            return along_axes(values, self.finer, self.settings)
        nodes = along_edges(values, self.finer, self.settings)
        if self.directional < 1:
            others = along_axes(values, self.finer, self.settings)
            _mix(nodes, others, 1 - self.directional)
        return nodes


def along_axes(
    values: Array,
    finer: Sequence[bool],
    settings: DirectionalSettings = SETTINGS,
    shorter: Shorter = (),
) -> Array:
    """Return values at the nodes of ``finer`` axes, with middles along the axes.

    ``shorter`` is as in `fill_middles`.
    """
    # from the last axis, whose lines are the longest runs in memory, while the array is small
    for axis in range(len(finer), 0, -1):
        if finer[axis - 1]:
            side = shorter[axis - 1] if shorter else None
            if side is not None:
                values = _with_one_more(values, axis, side + 1)
            values = _refine(values, axis, settings.past_the_end)
    return values


def _with_one_more(values: Array, axis: int, side: int) -> Array:
    """Return values whose last one on ``axis`` is extrapolated, in the boxes that end before it.

    Differences continue along a straight line, as they do past the ends of other boxes: see
    `slopes`.
    """
    values = values.copy()
    y = values[(slice(None),) * side + (1,)].swapaxes(0, axis - (axis > side))
    y[-1] = 3 * (y[-2] - y[-3]) + y[-4]
    return values


def along_edges(
    values: Array,
    finer: Sequence[bool],
    settings: DirectionalSettings = SETTINGS,
    shorter: Shorter = (),
) -> Array:
    """Return values at the nodes, with middles along the directions of least change."""
    dtype = np.result_type(values.dtype, np.float32)
    sides = zip(values.shape[1:], finer, strict=True)
    shape = (2 * n + 1 if more else n for n, more in sides)
    nodes = np.empty((len(values), *shape), dtype=dtype)
    inner = [slice(None), *(slice(1, -1) if more else slice(None) for more in finer)]
    fill_middles(values, finer, nodes[tuple(inner)], settings, shorter)
    for axis, more in enumerate(finer, start=1):
        if more:
            inner[axis] = slice(None)
            _fill_rim(nodes[tuple(inner)].swapaxes(0, axis), settings.past_the_end)
    return nodes


def _mix(nodes: Array, others: Array, weight: float) -> None:
    """Move nodes (C, M_1, ..., M_D) towards others by a part of the way, in place.

    Where both are equal, as at samples, they stay as they are, bit for bit.
    """
    part = nodes.dtype.type(weight)
    step = max(1, PART // (nodes.itemsize * math.prod(nodes.shape[2:])))
    parts = [
        (c, slice(i, i + step)) for c in range(len(nodes)) for i in range(0, nodes.shape[1], step)
    ]

    def move(some: tuple[int, slice]) -> None:
        nodes[some] += part * others[some] - part * nodes[some]

    in_threads(move, parts)


def _fill_rim(fine: Array, past_the_end: float) -> None:
    """Fill the first and last node of lines (2n + 1, ...) from the two samples next to them."""
    fine[0] = fine[1] + past_the_end * (fine[1] - fine[3])
    fine[-1] = fine[-2] + past_the_end * (fine[-2] - fine[-4])


def _refine(values: Array, axis: int, past_the_end: float) -> Array:
    """Return values with 2n + 1 nodes on an axis of n samples."""
    n = values.shape[axis]
    before, after = math.prod(values.shape[:axis]), math.prod(values.shape[axis + 1 :])
    lines = values.reshape(before, n, after)
    dtype = np.result_type(values.dtype, np.float32)
    out = np.empty((before, 2 * n + 1, after), dtype=dtype)
    most = PART // dtype.itemsize
    many, wide = max(1, most // (n * after)), max(1, most // n)
    parts = [
        (slice(i, i + many), slice(k, k + wide))
        for i in range(0, before, many)
        for k in range(0, after, wide)
    ]

    def fill(part: tuple[slice, slice]) -> None:
        i, k = part
        # lines side by side, so that neighbours are long rows
        y = np.ascontiguousarray(lines[i, :, k].swapaxes(0, 1), dtype=dtype)
        fine = out[i, :, k].swapaxes(0, 1)
        d = slopes(y * 0.125)  # in proportion to the values; of an eighth they are finite
        fine[1::2] = y
        # the middle of the cubic with values y and slopes d at its ends:
        # (y_0 + y_1)/2 + (d_0 - d_1)/8
        half = y * 0.5
        middle = half[:-1] + half[1:]
        middle += np.subtract(d[:-1], d[1:], out=half[1:])
        fine[2:-2:2] = middle
        _fill_rim(fine, past_the_end)

    if len(parts) > 1:
        in_threads(fill, parts)
    else:
        fill(parts[0])
    return out.reshape(*values.shape[:axis], 2 * n + 1, *values.shape[axis + 1 :])


def slopes(y: Array, gaps: Array | None = None) -> Array:
    """Return the slope at every sample of lines (n, ...): the mean of two estimates.

    Both are small next to edges. One is PCHIP's harmonic mean of the differences m to either side,
    0 where they differ in sign (Fritsch and Butland, 1984). The other weighs them by how much the
    differences beyond change, w = |m' - m| + |m' + m|/2 (Akima, 1970, as modified in makima). They
    are per spacing, or with ``gaps`` (n-1,) divided differences of uneven samples.
    """
    inner = np.diff(y, axis=0)  # (n-1, ...)
    if gaps is not None:
        gaps = gaps.reshape(-1, *[1] * (y.ndim - 1))
        inner /= gaps
    # two more differences past each end, along a straight line
    m = np.empty((len(inner) + 4, *inner.shape[1:]), dtype=inner.dtype)
    m[2:-2] = inner
    m[1], m[-2] = 2 * m[2] - m[3], 2 * m[-3] - m[-4]
    m[0], m[-1] = 2 * m[1] - m[2], 2 * m[-2] - m[-3]
    akima = _akima(m)
    akima += _harmonic(m[1:-1], gaps)
    akima *= 0.5
    return akima


def _akima(m: Array) -> Array:
    """Return slopes from differences, two more past each end."""
    tiny = np.finfo(m.dtype).tiny  # where all is 0, nothing is divided by it
    # (n+2, ...): of each difference and the next
    turn, bend = m[:-1] + m[1:], np.diff(m, axis=0)
    np.abs(turn, out=turn)
    turn *= 0.5
    size = np.abs(bend)
    turn += size
    # (w_left left + w_right right) / (w_left + w_right), from the right one
    akima = np.add(turn[2:], turn[:-2], out=size[2:])
    akima += tiny
    np.divide(turn[2:], akima, out=akima)
    akima *= bend[1:-1]
    np.subtract(m[2:-1], akima, out=akima)
    return akima


def _harmonic(m: Array, gaps: Array | None) -> Array:
    """Return slopes from differences, one more past each end."""
    tiny = np.finfo(m.dtype).tiny
    size, sign = np.abs(m), np.sign(m)
    both = sign[:-1] + sign[1:]  # 2 or -2 where they agree
    if gaps is None:
        # |left| |right| / (|left| + |right|), times 2 where the signs agree
        harmonic = np.add(size[:-1], size[1:], out=sign[1:])
        harmonic += tiny
        np.divide(size[1:], harmonic, out=harmonic)
        harmonic *= size[:-1]
        harmonic *= both
        return harmonic
    # 1/slope = (w/left + v/right) / (w + v), w = 2 h' + h and v = h' + 2 h for the gaps h and h'
    wide = np.concatenate([gaps[:1], gaps, gaps[-1:]])
    w, v = 2 * wide[1:] + wide[:-1], wide[1:] + 2 * wide[:-1]
    harmonic = w * size[1:] + v * size[:-1]
    harmonic += tiny
    np.divide(size[1:], harmonic, out=harmonic)
    harmonic *= size[:-1]
    harmonic *= (w + v) / 2 * both
    return harmonic
