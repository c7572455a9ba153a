"""Boundary rules that a caller can ask for: how splines end on each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.labels import Labels
from kronfield.fitting.periods import Periods

#: The rules, and the ends of `prediction.SplineFamily` that they stand for.
RULES = {
    "natural": "straight",
    "clamped": "flat",
    "not-a-knot": "not-a-knot",
    "reflect": "reflect",
    "periodic": "periodic",
}

Ends = tuple[str | None, ...]


def checked_ends(ends: Any, D: int, labels: Labels | None = None) -> Ends:
    """Return the rule of each axis, None where it is chosen.

    Examples
    --------
    >>> checked_ends("natural", 2), checked_ends([None, "reflect"], 2)
    (('natural', 'natural'), (None, 'reflect'))
    """
    if ends is None:
        return (None,) * D
    remedy = f"One of {', '.join(RULES)}, or one per axis, None to have it chosen."
    if isinstance(ends, str):
        ends = [ends] * D
    if isinstance(ends, Mapping):
        names = [None] * D if labels is None else [label.name for label in labels.axes]
        if any(name not in names for name in ends):
            raise problem("ends", f"the names {list(ends)}", f"{names}", remedy)
        ends = [ends.get(name) for name in names]
    if not isinstance(ends, list | tuple) or len(ends) != D:
        raise problem("ends", describe(ends), f"{D} rules", remedy)
    for one in ends:
        if one is not None and (not isinstance(one, str) or one not in RULES):
            raise problem("ends", repr(one), f"one of {', '.join(RULES)}", remedy)
    return tuple(ends)


def periods_of(ends: Ends, periods: Periods, axes: list[Array]) -> Periods:
    """Return the periods, adding those of axes that end periodically without a given period.

    Their period is the distance from the first sample to the last, which are one position.
    """
    found = list(periods)
    for i, (rule, period, x) in enumerate(zip(ends, periods, axes, strict=True)):
        if rule == "periodic" and period is None:
            if len(x) < 3:
                raise problem(
                    f"ends[{i}]",
                    f'"periodic" for {len(x)} samples',
                    "at least 3, or a period",
                    "Pass periodic= with the period.",
                )
            found[i] = float(x[-1] - x[0])
        elif rule not in (None, "periodic") and period is not None:
            raise problem(
                f"ends[{i}]",
                f'"{rule}" beside a period of {period:g}',
                '"periodic" or None',
                "A periodic axis has no ends: leave one of them out.",
            )
    return tuple(found)
