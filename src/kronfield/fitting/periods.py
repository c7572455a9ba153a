"""Periodic axes: the periods that a caller gives, frames one period long, and samples at the seam.

The unit interval of an embedder on a periodic axis is one period, and its features close there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.axes import SampleAxes
from kronfield._core.frames import SHORTEST, Frame, is_even
from kronfield._core.labels import Labels, seconds_of
from kronfield._core.records import record
from kronfield.embedders import periodic_form
from kronfield.encoding import Kronecker

# The first and the last sample are one position if they are a period apart to this part of it.
SAME = 1e-9

Periods = tuple[float | None, ...]


def checked_periods(periodic: Any, D: int, labels: Labels | None = None) -> Periods:
    """Return one period per axis, None where an axis does not wrap.

    Examples
    --------
    >>> checked_periods([None, 360], 2)
    (None, 360.0)
    """
    if periodic is None:
        return (None,) * D
    remedy = "Pass one period per axis, None where an axis does not wrap: periodic=[None, 360.0]."
    if isinstance(periodic, Mapping):
        periodic = _by_name(periodic, [None] * D if labels is None else labels.names, remedy)
    elif np.ndim(periodic) == 0 and D == 1:
        periodic = [periodic]
    if not isinstance(periodic, list | tuple | np.ndarray) or len(periodic) != D:
        raise problem("periodic", describe(periodic), f"{D} periods", remedy)
    timed = [labels is not None and labels.axes[i].is_time for i in range(D)]
    return tuple(
        _checked_period(f"periodic[{i}]", one, is_time, remedy)
        for i, (one, is_time) in enumerate(zip(periodic, timed, strict=True))
    )


def _by_name(periods: Mapping[Any, Any], names: Sequence[str | None], remedy: str) -> list[Any]:
    """Return the period of each axis, from periods by the names of axes."""
    unknown = [name for name in periods if name not in names]
    if unknown:
        known = ", ".join(map(str, names)) if any(names) else "axes that have names"
        raise problem("periodic", f"the names {unknown}", known, remedy)
    return [periods.get(name) for name in names]


def _checked_period(name: str, one: Any, is_time: bool, remedy: str) -> float | None:
    """Return the period of one axis, in seconds if its positions are dates."""
    if one is None:
        return None
    if is_time and not isinstance(one, float | int):
        return seconds_of(one)
    number = not isinstance(one, bool | np.bool_) and isinstance(
        one, float | int | np.floating | np.integer
    )
    if not number or not SHORTEST <= float(one) < 1e60:
        raise problem(name, describe(one), "a positive length, or None", remedy)
    return float(one)


def is_even_circle(x: Array, period: float) -> bool:
    """Return whether the gaps between samples are equal all the way round.

    Examples
    --------
    >>> import numpy as np
    >>> is_even_circle(np.arange(0.0, 360.0, 30.0), 360.0), is_even_circle(np.arange(3.0), 9.0)
    (True, False)
    """
    return is_even(np.append(x, x[0] + period))


def whole_circles(axes: Sequence[Array], frames: Sequence[Frame]) -> tuple[bool, ...]:
    """Return which axes are periodic with equal gaps all the way round."""
    return tuple(
        frame.period is not None and is_even_circle(axis, frame.period)
        for axis, frame in zip(axes, frames, strict=True)
    )


def seam_gap(x: Array, period: float) -> float:
    """Return the gap between the last sample and the first of the next period."""
    return period - float(x[-1] - x[0])


def check_span(argument: str, low: float, high: float, period: float) -> None:
    """Raise an error if positions cover more than one period."""
    if high - low > period * (1 + SAME):
        raise problem(
            argument,
            f"positions from {low:g} to {high:g}, a length of {high - low:g}",
            f"at most one period, {period:g}",
            "Pass one period of samples, or another period.",
        )


def closed_frame(
    x: Array, period: float, domain: tuple[float, float] | None, *, cells: bool
) -> Frame:
    """Return the frame of a periodic axis with samples ``x``, one period long.

    Without a domain it starts half-way between the last sample and the first, as cells do. With
    ``cells``, samples are the centres of cells of the domain.
    """
    if domain is None:
        low = float(x[0]) - seam_gap(x, period) / 2
        return Frame(float(x[0]), period, low, low + period, wraps=True)
    low, high = check_domain(domain, period)
    return Frame(float(x[0]) if cells else low, period, low, high, wraps=True)


def closed_frames(
    frames: Sequence[Frame], box: Sequence[tuple[float, float]], periods: Periods
) -> tuple[Frame, ...]:
    """Return frames with those of periodic axes replaced: one period from the start of the box."""
    return tuple(
        frame if period is None else Frame(low, period, low, low + period, wraps=True)
        for frame, (low, _), period in zip(frames, box, periods, strict=True)
    )


def check_domain(domain: tuple[float, float], period: float) -> tuple[float, float]:
    """Return the ends of a domain that is one period long."""
    low, high = domain
    if abs(high - low - period) > SAME * period:
        raise problem(
            "domain",
            f"({low:g}, {high:g}) beside a period of {period:g}",
            "a domain of one period on that axis",
            "Leave domain out, or change one of them.",
        )
    return low, low + period


def periodic_encoding(encoding: Kronecker | None, periods: Periods) -> Kronecker | None:
    """Return the encoding with features that close on periodic axes."""
    if encoding is None or not any(periods):
        return encoding
    pairs = zip(encoding.embedders, periods, strict=True)
    return Kronecker(*(emb if period is None else periodic_form(emb) for emb, period in pairs))


@record(eq=False)
class Seam:
    """Axes on which the first and the last sample are the same position, a period apart.

    Attributes
    ----------
    closed : tuple of int
        The axes.
    given_axes : SampleAxes
        The positions on every axis as they were given, with both samples.
    """

    closed: tuple[int, ...]
    given_axes: SampleAxes

    @classmethod
    def of(cls, given: Sequence[Array], periods: Periods) -> Seam | None:
        """Return the axes that have both samples; None if there are none."""
        closed = tuple(
            i
            for i, (x, period) in enumerate(zip(given, periods, strict=True))
            if period is not None and len(x) > 1 and abs(x[-1] - x[0]) >= period * (1 - SAME)
        )
        return cls(closed, SampleAxes(given)) if closed else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples on each axis, with both of a closed axis."""
        return tuple(len(x) for x in self.given_axes)

    def axes(self, axes: Sequence[Array]) -> list[Array]:
        """Return positions without the last of each closed axis."""
        return [x[:-1] if i in self.closed else x for i, x in enumerate(axes)]

    def joined(
        self, values: Array, missing: Array | None, weights: Array | None = None
    ) -> tuple[Array, Array | None]:
        """Return values and mask with one sample in place of the two: the mean of those known.

        With ``weights`` of the grid, it is the weighted mean.
        """
        if values.dtype.kind not in "fc":
            small = np.result_type(values.dtype, np.float16).itemsize <= 4
            values = values.astype(np.float32 if small else np.float64)
        for axis in self.closed:
            ends = [np.take(values, i, axis=axis) for i in (0, -1)]
            known = [np.ones((), dtype=bool)] * 2
            if missing is not None:
                known = [~np.take(missing, i, axis=axis) for i in (0, -1)]
                missing = np.delete(missing, -1, axis=axis)
                missing[_first(axis)] = ~(known[0] | known[1])
                if missing.ndim < values.ndim:
                    known = [one[..., None] for one in known]
            share: Any = 0.5
            if weights is not None:
                first, last = (np.take(weights, i, axis=axis) for i in (0, -1))
                total = np.where(first + last > 0, first + last, 1.0)
                part = np.where(first + last > 0, last / total, 0.5)
                share = part[..., None] if part.ndim < ends[0].ndim else part
                weights = self._summed(weights, axis)
            both = (1 - share) * ends[0] + share * ends[1]
            mean = np.where(known[0] & known[1], both, ends[0])
            values = np.delete(values, -1, axis=axis)
            values[_first(axis)] = np.where(~known[0] & known[1], ends[1], mean)
        return values, missing

    def summed(self, weights: Array) -> Array:
        """Return the weights of samples with the sum in place of the two."""
        for axis in self.closed:
            weights = self._summed(weights, axis)
        return weights

    @staticmethod
    def _summed(weights: Array, axis: int) -> Array:
        last = np.take(weights, -1, axis=axis)
        weights = np.delete(weights, -1, axis=axis)
        weights[_first(axis)] += last
        return weights

    def opened(self, array: Array) -> Array:
        """Return an array on the joined grid with the first sample again at the end."""
        for axis in self.closed:
            array = np.concatenate([array, np.take(array, [0], axis=axis)], axis=axis)
        return array


@record(eq=False)
class Opening:
    """A lattice whose periodic axes are cut open, far from what is missing.

    What is computed from samples nearby is then the same as on the circle. A cut that is closer to
    something missing than ``reach`` samples is continued past both ends with samples of the other
    end.

    Attributes
    ----------
    cuts : tuple of int
        The sample of each axis that comes first.
    pads : tuple of int
        The number of samples of the other end that are added at either end.
    """

    cuts: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def of(cls, missing: Array, circles: Sequence[bool], reach: int) -> Opening:
        """Return where to cut the axes that are ``circles``.

        Examples
        --------
        >>> import numpy as np
        >>> gaps = np.isin(np.arange(12), [0, 1, 11])
        >>> opening = Opening.of(gaps, [True], reach=4)
        >>> opening.opened(np.arange(12))
        array([ 7,  8,  9, 10, 11,  0,  1,  2,  3,  4,  5,  6])
        >>> opening.closed(opening.opened(np.arange(12))).tolist() == list(range(12))
        True
        >>> Opening.of(gaps, [True], reach=5).pads
        (5,)
        """
        cuts, pads = [], []
        for axis, (n, wraps) in enumerate(zip(missing.shape, circles, strict=True)):
            others = tuple(k for k in range(missing.ndim) if k != axis)
            cut, known = _middle_of_known(np.asarray(missing.any(axis=others))) if wraps else (0, n)
            cuts.append(cut)
            pads.append(0 if not wraps or known >= reach else min(reach, n))
        return cls(tuple(cuts), tuple(pads))

    def opened(self, lattice: Array) -> Array:
        """Return the lattice (..., N_1, ..., N_D) cut open and continued."""
        first = lattice.ndim - len(self.cuts)
        for axis, (cut, pad) in enumerate(zip(self.cuts, self.pads, strict=True), start=first):
            if cut or pad:
                n = lattice.shape[axis]
                lattice = lattice.take(np.arange(cut - pad, cut + n + pad), axis, mode="wrap")
        return lattice

    def closed(self, lattice: Array) -> Array:
        """Return a lattice that was opened, (..., M_1, ..., M_D), as it was before."""
        first = lattice.ndim - len(self.cuts)
        for axis, (cut, pad) in enumerate(zip(self.cuts, self.pads, strict=True), start=first):
            if cut or pad:
                n = lattice.shape[axis] - 2 * pad
                lattice = lattice.take(pad + (np.arange(n) - cut) % n, axis)
        return lattice


def _middle_of_known(gaps: Array) -> tuple[int, int]:
    """Return the middle of the longest run of known samples on a circle.

    These are the first sample of its second half, and the length of its halves, rounded down.
    """
    missing = np.flatnonzero(gaps)
    if not len(missing):
        return 0, len(gaps)
    runs = np.diff(np.append(missing, missing[0] + len(gaps))) - 1
    longest = int(runs.argmax())
    known = int(runs[longest])
    return int(missing[longest] + 1 + (known + 1) // 2) % len(gaps), known // 2


def _first(axis: int) -> tuple[slice | int, ...]:
    """Return the index of the first sample on an axis."""
    return (*[slice(None)] * axis, 0)
