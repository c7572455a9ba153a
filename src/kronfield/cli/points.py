"""Write values of a field at the points of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kronfield.cli.common import Failure, Output, check_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kronfield._core.arrays import Array
    from kronfield._core.labels import AxisLabel
    from kronfield.field import Field


def check_table(target: Path, *, force: bool) -> None:
    """Refuse an output that is not a table."""
    from kronfield.files import kind_of

    if kind_of(target) != "table":
        raise Failure(
            f"-o: got {target}; expected a table for values at points. Name it {target.stem}.csv"
        )
    check_output(target, force=force)


def read_places(
    places: str, names: Sequence[str], labels: Sequence[AxisLabel] | None, out: Output
) -> Array:
    """Return the points of a table, whose columns have the names of the axes of a field."""
    from kronfield.files import read_columns

    with out.bar(f"Reading {Path(places).name}") as bar:
        points = read_columns(
            places,
            names,
            labels=labels,
            progress=lambda done, total: bar.update(done, total=total),
        )
    if not len(points):
        raise Failure(
            f"--at: got {places} with no rows; expected at least one point. Export it again"
        )
    return points


def write_values(
    field: Field,
    points: Array,
    target: Path,
    out: Output,
    *,
    force: bool,
    derivative: Any = None,
    error: bool = False,
    noise: float | None = None,
    beyond: float | None = None,
    per: str | None = None,
) -> None:
    """Write coordinates and values of a field at points (P, D) to a table.

    Values are empty outside the domain, where a coordinate is missing, and further than ``beyond``
    from the data.
    """
    import numpy as np

    from kronfield.files import Description, writer
    from kronfield.signals.axes import axis_names, channel_names, derivative_names
    from kronfield.signals.export import values_at_points

    names = axis_names(field)
    count = field.channel_count
    channels = channel_names(field)
    if derivative is not None:
        channels = derivative_names(field, channels, derivative, per)
    with out.working("Evaluating"):
        blocks = values_at_points(field, points, derivative=derivative, beyond=beyond, per=per)
        values = np.concatenate(list(blocks))
        outside = int(np.isnan(values).any(axis=1).sum())
        if error:
            spread = np.full_like(values, np.nan)
            inside = np.isfinite(points).all(axis=1)
            spread[inside] = field.standard_error(
                points[inside], noise=noise, outside="nan"
            ).reshape(-1, count)
            spread[np.isnan(values)] = np.nan
            values = np.concatenate([values, spread], axis=1)
            channels += [f"{name} error" for name in channels]
    labels = [label.to_dict() for label in field.labels.axes]
    info = Description(
        kind="table", axes=names, channels=channels, dtype="float64", labels=labels
    ).to_dict()
    with writer(target, (len(points),), len(names) + len(channels), info, overwrite=force) as file:
        file.write(np.concatenate([points, values], axis=1))
    where = "outside the domain" if beyond is None else "outside the domain or too far from data"
    note = f"; {outside} {where}, left empty" if outside else ""
    out.say(f"Wrote {target}: {', '.join(channels)} at {len(points)} points{note}")
    out.result(output=target, points=len(points), outside=outside, columns=[*names, *channels])
