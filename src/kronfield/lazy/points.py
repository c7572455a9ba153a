"""Values at points that are arrays or tables of Dask: each partition is evaluated on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, lazy_array, problem
from kronfield._core.threads import one_thread
from kronfield.field import Field


def columns_of(points: Any, names: tuple[str | None, ...]) -> Any:
    """Return points (P, D) as an array of Dask, from such an array or a table of Dask.

    Of a table, the columns with the names of the axes are used if they have names, else all.
    """
    if hasattr(points, "to_dask_array"):
        if None not in names and hasattr(points, "columns"):
            missing = [name for name in names if name not in points.columns]
            if missing:
                raise problem(
                    "points",
                    f"a table without {', '.join(map(str, missing))}",
                    f"the columns {', '.join(map(str, names))}",
                    f"It has {', '.join(map(str, points.columns))}.",
                )
            points = points[list(names)]
        points = points.to_dask_array()
    points = lazy_array("points", points, known=False)
    if points.ndim != 2 or points.shape[1] != len(names):
        raise problem("points", describe(points), f"shape (P, {len(names)})", "One row per point.")
    return points


def values_at(
    field: Field,
    points: Any,
    derivative: Any,
    options: Mapping[str, Any],
    planes: Any = None,
) -> Any:
    """Return the values at points (P, D) of Dask, an array of Dask of shape (P,) or (P, C).

    ``planes`` are the weights if they are an array of Dask: then they are gathered first, and the
    weights of ``field`` itself are not used.
    """
    from dask.delayed import delayed

    points = columns_of(points, field.labels.names).rechunk({1: -1})
    light = field.__copy__()  # reports and fits hold the samples, which no worker needs
    light.report = None
    light.set_origin(None, None)
    # wrong options are reported now, and not by a worker
    nothing = light(np.empty((0, field.dimensions)), derivative, **options)
    job = delayed(light, pure=True, traverse=False)
    if planes is not None:
        job = delayed(_with_weights, pure=True)(job, planes)
    return points.map_blocks(
        _values,
        field=job,
        derivative=derivative,
        options=dict(options),
        dtype=nothing.dtype,
        chunks=(points.chunks[0], *((n,) for n in nothing.shape[1:])),
        drop_axis=() if field.has_channels else 1,
        meta=nothing,
    )


def _with_weights(field: Field, planes: Array) -> Field:
    """Return a copy of a field with other weights."""
    return field.with_weights(planes)


def _values(points: Array, field: Any = None, derivative: Any = None, options: Any = None) -> Array:
    """Return the values at one block of points."""
    with one_thread():
        found: Array = field(points, derivative, **options)
    return found
