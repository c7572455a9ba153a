"""A report on a change of samples: pictures before and after, their difference, and figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.files import Description
from kronfield.fitting.report import Candidate
from kronfield.plots import change_pictures
from kronfield.signals.report.diagnosis import Power, power_of
from kronfield.signals.report.page import check_report_folder, write_folder

# The longest side of the part of a picture that is shown, and the samples of a line.
SIDE, LINE = 640, 480
_CAPTIONS = {
    "before": "The samples as they were: the middle, if there are many. Missing ones are magenta.",
    "after": "The same samples in the file that was written.",
    "removed": "Before minus after. Where it shows the picture itself, detail was lost.",
    "spectrum": "The power at each frequency. White noise is equally strong at all of them.",
}


@record
class Change:
    """The middle of samples before and after a change.

    Attributes
    ----------
    form : "picture", "map" or "line"
        How to draw it: colours from 0 to 1; numbers on a grid; values along an axis.
    before, after : arrays
        Arrays of one shape.
    names : (str, str)
        The labels of the horizontal and the vertical axis.
    unit : str
        The unit of differences.
    scale : float
        The factor that converts differences of the values to this unit.
    extent : tuple, optional
        The ends of the axes: left, right, bottom, top.
    x : array, optional
        The positions of a line.
    holes : array of bool, optional
        Where samples were missing.
    power : Power, optional
        The spectra.
    """

    form: str
    before: Array
    after: Array
    names: tuple[str, str]
    unit: str = ""
    scale: float = 1.0
    extent: tuple[float, float, float, float] | None = None
    x: Array | None = None
    holes: Array | None = None
    power: Power | None = None


class Middle:
    """Gathers the middle of a grid from blocks of rows.

    Parameters
    ----------
    shape : sequence of int
        The grid (N_1, ..., N_D).
    description : Description
        The description of the samples.
    """

    def __init__(self, shape: Sequence[int], description: Description) -> None:
        self.description, D = description, len(shape)
        names = description.axes or [f"axis {i}" for i in range(D)]
        # for volumes in space show the plane of x and y, else that of the last two axes
        in_space = D > 2 and names[:2] == ["x", "y"]
        self._shown: tuple[int, ...] = (1, 0) if in_space else tuple(range(D))[-2:]
        self.names = [names[i] for i in self._shown]
        most = LINE if D == 1 else SIDE
        self.picks = tuple(
            slice(max(0, (n - most) // 2), max(0, (n - most) // 2) + min(n, most))
            if axis in self._shown
            else slice(n // 2, n // 2 + 1)
            for axis, n in enumerate(shape)
        )
        self._parts: list[Array] = []
        self._row = 0

    def add(self, block: Array) -> None:
        """Keep the shown part of the next rows."""
        first = self.picks[0]
        low = max(0, first.start - self._row)
        high = min(len(block), first.stop - self._row)
        if low < high:
            self._parts.append(np.array(block[(slice(low, high), *self.picks[1:])]))
        self._row += len(block)

    @property
    def values(self) -> Array:
        """The shown samples, as rows and columns, with channels last."""
        return self.of(np.concatenate(self._parts))

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """The ends of the axes of a picture, in samples: left, right, bottom, top."""
        (top, bottom), (left, right) = (
            (self.picks[i].start - 0.5, self.picks[i].stop - 0.5) for i in self._shown
        )
        # on a map, x runs to the right and y upwards
        return (left, right, top, bottom) if self._is_map else (left, right, bottom, top)

    @property
    def _is_map(self) -> bool:
        return self._shown[0] > self._shown[-1]

    def of(self, part: Array) -> Array:
        """Return the samples of ``picks`` as rows and columns."""
        if len(self.picks) == 1:
            return part
        flat = np.squeeze(part, tuple(i for i in range(len(self.picks)) if i not in self._shown))
        return flat.swapaxes(0, 1)[::-1] if self._is_map else flat


def changed(
    middle: Middle, before: Array, after: Array, holes: Array | None = None, rate: float = 1.0
) -> Change:
    """Return the change of the samples that are shown.

    ``before`` and ``after`` are as `Middle.values` has them: pixels from 0 to 1, or other numbers.
    ``rate`` is the number of samples of a line per unit of its axis.
    """
    known, D = middle.description, len(middle.picks)
    if before.ndim > min(D, 2):
        colours = known.levels is not None and D > 1 and before.shape[-1] in (2, 3, 4)
        count = {2: 1, 3: 3, 4: 3}.get(before.shape[-1], 1) if colours else 1
        before, after = before[..., :count], after[..., :count]
        if count == 1:
            before, after = before[..., 0], after[..., 0]
    power = None if holes is not None else power_of(before, after)
    if D == 1:
        x = (middle.picks[0].start + np.arange(len(before))) / rate
        names = (middle.names[0], known.first_channel)
        return Change("line", before, after, names, x=x, holes=holes, power=power)
    names = (middle.names[1], middle.names[0])
    drawn = Change("map", before, after, names, extent=middle.extent, holes=holes, power=power)
    if known.levels is None:
        return drawn
    return replace(drawn, form="picture", unit="levels", scale=float(known.levels))


def write_change_report(
    folder: str | os.PathLike[str],
    title: str,
    facts: Iterable[tuple[str, str]],
    found: Change,
    candidates: Sequence[Candidate] = (),
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write pictures of a change, and a page with them, as `write_report` does of a fit.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    title : str
        The heading of the page.
    facts : pairs of str
        Names and values.
    found : Change
        The change to draw.
    candidates : sequence of Candidate
        The candidates that were compared.
    overwrite : bool
        Whether files in an existing folder may be replaced.
    """
    check_report_folder(folder, overwrite=overwrite)
    return write_folder(folder, title, facts, change_pictures(found), candidates, _CAPTIONS)
