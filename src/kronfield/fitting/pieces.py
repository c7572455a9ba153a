"""Cubic pieces with slopes from the data, on axes of which some are uneven.

On even axes the same slopes fill a finer lattice, and splines go through its nodes: see `slopes`.
Through uneven nodes they would oscillate wherever a long gap follows a short one. Here the pieces
themselves are the field: piecewise cubics of one continuous derivative, as B-splines with two knots
at every sample.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array, InputError
from kronfield._core.frames import EVEN, Frame
from kronfield._core.records import record
from kronfield.embedders import BSpline, Embedder
from kronfield.encoding import Kronecker
from kronfield.fitting.slopes import slopes


@record(eq=False)
class CubicPieces:
    """The map from samples to weights, axis by axis.

    Attributes
    ----------
    axes : tuple of arrays
        The samples on each axis.
    frames : tuple of Frame
        Where the axes lie.
    finer : tuple of bool
        Which axes have cubic pieces. The others are short, and have straight ones.
    """

    axes: tuple[Array, ...]
    frames: tuple[Frame, ...]
    finer: tuple[bool, ...]

    @classmethod
    def of(
        cls, axes: Sequence[Array], frames: Sequence[Frame], finer: Sequence[bool]
    ) -> CubicPieces | None:
        """Return the pieces; None if two samples are too close for knots between them.

        It is also None if the domain of an axis reaches more than a gap past its samples.
        """
        found = cls(tuple(axes), tuple(frames), tuple(finer))
        for x, frame, more in zip(axes, frames, finer, strict=True):
            if not more:
                continue
            first, last = (1.0 + EVEN) * (x[1] - x[0]), (1.0 + EVEN) * (x[-1] - x[-2])
            if frame.low < x[0] - first or frame.high > x[-1] + last:
                return None
            if not np.all(np.diff(_places(x, frame)) > 0):
                return None
        try:
            found.encoding  # noqa: B018 - cached
        except InputError:  # knots that coincide
            return None
        return found

    # as of a `Refinement` whose slopes are along the axes
    directional = 0.0
    is_along_edges = False

    @functools.cached_property
    def encoding(self) -> Kronecker:
        """The features of all axes."""
        embedders: list[Embedder] = []
        for x, frame, more in zip(self.axes, self.frames, self.finer, strict=True):
            if more:
                embedders.append(_basis(_places(x, frame)))
                continue
            u = frame.unit(x)
            low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
            embedders.append(BSpline.through(u, min(1, len(u) - 1), low, high))
        return Kronecker(*embedders)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of weights on each axis."""
        return tuple(self.encoding.shape)

    def __call__(self, values: Array) -> Array:
        """Return the weights (C, K_1, ..., K_D) of values (C, N_1, ..., N_D)."""
        # from the last axis, whose lines are the longest runs in memory, while the array is small
        for axis in range(len(self.axes), 0, -1):
            x, frame = self.axes[axis - 1], self.frames[axis - 1]
            lines = np.moveaxis(values, axis, 0)
            if self.finer[axis - 1]:
                weights = _weights(lines, x, frame, self.encoding.embedders[axis - 1])
            else:
                features = self.encoding.embedders[axis - 1](frame.unit(x))
                rows = lines.reshape(len(x), -1)
                weights = np.linalg.solve(features, rows).reshape(lines.shape)
                weights = weights.astype(np.result_type(lines.dtype, np.float32), copy=False)
            values = np.moveaxis(weights, 0, axis)
        return np.ascontiguousarray(values)


def _places(x: Array, frame: Frame) -> Array:
    """Return the samples in units of the frame, and one position more past either end."""
    u = frame.unit(x)
    low = min(float(frame.unit(frame.low)), u[0] - (u[1] - u[0]) / 2)
    high = max(float(frame.unit(frame.high)), u[-1] + (u[-1] - u[-2]) / 2)
    return np.concatenate([[low], u, [high]])


def _basis(places: Array) -> BSpline:
    """Return the features of cubic pieces between places, of which the ends are no samples."""
    return BSpline.of_pieces(places[1:-1], float(places[0]), float(places[-1]))


def _weights(lines: Array, x: Array, frame: Frame, basis: Embedder) -> Array:
    """Return the weights (2n + 4, ...) of lines (n, ...) with slopes from the data.

    Past both ends they are straight.
    """
    dtype = np.result_type(lines.dtype, np.float32)
    wide = (-1, *[1] * (lines.ndim - 1))
    places = _places(x, frame)
    assert isinstance(basis, BSpline)
    knots = basis.inner_knots
    gaps = np.diff(places)  # n + 1, the first and the last past the ends
    y = lines.astype(np.float64)
    unit = float(np.mean(gaps[1:-1]))  # slopes per mean gap do not overflow
    d = slopes(y * 0.125, gaps[1:-1] / unit) / unit
    d *= 8
    # values and slopes at both ends of every piece
    y = np.concatenate([y[:1] - gaps[0] * d[:1], y, y[-1:] + gaps[-1] * d[-1:]])
    d = np.concatenate([d[:1], d, d[-1:]])
    h = gaps.reshape(wide)
    rise = (y[1:] - y[:-1]) / h
    # P(t) = y + d t + b t² + c t³ from the start of a piece
    b = (3 * rise - 2 * d[:-1] - d[1:]) / h
    c = (d[:-1] + d[1:] - 2 * rise) / h**2
    ends = np.concatenate([places[:1], places[:1], knots, places[-1:], places[-1:]])
    pieces = ends.reshape(-1, 2)
    # A weight is the blossom of its piece, at the three knots inside the support of its feature
    # (Ramshaw, 1989): those of the start of the piece and one of its end, or the reverse.
    found = np.empty((2 * len(places), *y.shape[1:]), dtype=dtype)
    start = [pieces[:-1, 0], pieces[:-1, 1], pieces[1:, 0]]
    stop = [pieces[:-1, 1], pieces[1:, 0], pieces[1:, 1]]
    for first, three in ((1, start), (2, stop)):
        r, s, t = ((one - places[:-1]).reshape(wide) for one in three)
        total = y[:-1] + d[:-1] * (r + s + t) / 3 + b * (r * s + s * t + t * r) / 3
        found[first : first + 2 * len(h) : 2] = total + c * r * s * t
    found[0], found[-1] = y[0], y[-1]
    return found
