"""Conversion of values to brightness: which values are drawn black and white."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.records import record
from kronfield.field import Field
from kronfield.signals.axes import described
from kronfield.signals.view import View


@record
class Tones:
    """The values drawn black and white; values in between are drawn in proportional grey.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.tones import Tones
    >>> Tones(-2.0, 2.0)(np.array([-2.0, 0.0, 1.0]))
    array([0.  , 0.5 , 0.75])
    """

    black: float
    white: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.black + self.white) or self.black == self.white:
            raise problem(
                "range",
                f"{self.black:g} to {self.white:g}",
                "two numbers that differ",
                "For example: 0:100",
            )

    def __call__(self, values: Array) -> Array:
        """Return values as brightness: 0 for black, 1 for white, linear in between and beyond."""
        kind = values.dtype.type
        return (values - kind(self.black)) * kind(1 / (self.white - self.black))


def measured_tones(field: Field, view: View, derivative: Sequence[int] | None = None) -> Tones:
    """Return tones for a view of a field.

    Values range from the smallest to the largest sample. Derivatives range symmetrically about 0,
    up to the largest magnitude at about 65,000 positions.
    """
    if derivative is None or not any(derivative):
        known = described(field).range
        if known is not None and known[0] < known[1]:
            return Tones(float(known[0]), float(known[1]))
    values = np.concatenate([block.ravel() for block in view.coarse().blocks(field, derivative)])
    if derivative is None or not any(derivative):
        low, high = float(values.min()), float(values.max())
        return Tones(low, high if high > low else low + 1.0)
    largest = float(np.abs(values).max()) or 1.0
    return Tones(-largest, largest)
