"""Input with labels: its names, units and dates are separated from its numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kronfield._core.arrays import describe, problem
from kronfield._core.labels import AxisLabel, Labels, is_time


@dataclass
class LabelledGrid:
    """The arguments of `fit` without their labels, and the labels."""

    values: Any
    axes: Any
    domain: Any
    mask: Any
    channels: bool | None
    labels: Labels | None = None


@dataclass
class LabelledPoints:
    """The arguments of `fit_points` without their labels, and the labels."""

    points: Any
    values: Any
    weights: Any
    domain: Any
    labels: Labels | None = None


def library_of(value: Any) -> str | None:
    """Return "xarray" or "pandas" if ``value`` is an object of theirs; neither is imported."""
    for kind in type(value).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in ("xarray", "pandas") and name in sys.modules:
            return name
    return None


def labelled_grid(
    values: Any, axes: Any, domain: Any, mask: Any, channels: bool | None
) -> LabelledGrid:
    """Return values on a grid as arrays of numbers, and the labels that they came with."""
    given = LabelledGrid(values, axes, domain, mask, channels)
    if library_of(values) is not None:
        from kronfield.interop.labelled import grid_of

        given = grid_of(given)
    if given.axes is None:
        return given
    names: Sequence[Any] | None = None
    entries = given.axes
    if isinstance(entries, Mapping):
        names, entries = list(entries), list(entries.values())
    elif len(getattr(entries, "shape", ())) == 1 or is_time(entries):
        entries = [entries]
    if not isinstance(entries, list | tuple):
        return given
    labels = _axis_labels(entries, names, given.labels)
    if not any(one.name or one.unit or one.is_time for one in labels):
        return given
    _refuse_twice([one.name for one in labels])
    given.axes = [
        label.numbers(f"axes[{i}]", axis) if label.is_time else axis
        for i, (label, axis) in enumerate(zip(labels, entries, strict=True))
    ]
    given.domain = plain_domain(given.domain, labels)
    old = given.labels or Labels(())
    given.labels = Labels(tuple(labels), old.name, old.attrs, old.channels)
    return given


def _axis_labels(
    entries: Sequence[Any], names: Sequence[Any] | None, labels: Labels | None
) -> list[AxisLabel]:
    """Return the known label of each axis, or else that of its positions, under its given name."""
    known = labels.axes if labels is not None else ()
    found = [known[i] if i < len(known) else axis_label(x) for i, x in enumerate(entries)]
    if names is None:
        return found
    return [_renamed(label, str(name)) for label, name in zip(found, names, strict=True)]


def labelled_points(points: Any, values: Any, weights: Any, domain: Any) -> LabelledPoints:
    """Return points and values as arrays of numbers, and the labels that they came with."""
    given = LabelledPoints(points, values, weights, domain)
    if any(library_of(one) is not None for one in (points, values, weights)):
        from kronfield.interop.labelled import points_of

        given = points_of(given)
        if given.labels is not None:
            given.domain = plain_domain(domain, given.labels.axes)
        return given
    if isinstance(points, Mapping):
        columns = {str(name): column for name, column in points.items()}
    elif is_time(points) and np.ndim(points) <= 2:
        dates = np.asarray(points)
        table = dates if dates.ndim == 2 else dates[:, None]
        columns = {f"axis {i}": column for i, column in enumerate(table.T)}
    else:
        return given
    named = isinstance(points, Mapping)
    labels = [AxisLabel.of(column, name if named else None, "") for name, column in columns.items()]
    given.points = point_columns(columns, labels)
    given.labels = Labels(tuple(labels))
    given.domain = plain_domain(domain, labels)
    return given


def point_columns(columns: Mapping[str, Any], labels: Sequence[AxisLabel]) -> Any:
    """Return columns of positions as points (P, D)."""
    numbers = [
        label.numbers(f"points[{name!r}]", column)
        for label, (name, column) in zip(labels, columns.items(), strict=True)
    ]
    lengths = {x.shape for x in numbers}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise problem(
            "points",
            f"columns of shapes {[x.shape for x in numbers]}",
            "columns of equal length",
            "Pass one position per point in each column.",
        )
    return np.stack(numbers, axis=1)


def axis_label(axis: Any) -> AxisLabel:
    """Return the label of one array of positions, with the name and unit that it carries."""
    if library_of(axis) is None:
        return AxisLabel.of(axis) if is_time(axis) else AxisLabel()
    name, attrs = getattr(axis, "name", None), getattr(axis, "attrs", None) or {}
    unit = str(attrs.get("units", ""))
    return AxisLabel.of(axis, None if name is None else str(name), unit, attrs)


def plain_domain(domain: Any, labels: Sequence[AxisLabel]) -> Any:
    """Return a domain in which dates are numbers."""
    if domain is None or not any(one.is_time for one in labels):
        return domain
    if isinstance(domain, Mapping):
        domain = [domain.get(one.name) for one in labels]
    pairs = list(domain)
    if len(pairs) != len(labels):
        raise problem("domain", describe(domain), f"{len(labels)} pairs", "One pair per axis.")
    return [
        tuple(label.numbers("domain", list(pair))) if label.is_time else pair
        for label, pair in zip(labels, pairs, strict=True)
    ]


def _renamed(label: AxisLabel, name: str) -> AxisLabel:
    return replace(label, name=name)


def _refuse_twice(names: Sequence[str | None]) -> None:
    known = [name for name in names if name is not None]
    if len(set(known)) < len(known):
        raise problem("axes", f"the names {known}", "different names", "Rename an axis.")
