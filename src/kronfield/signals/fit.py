"""Fit a field to a signal from a file, and record the metadata for writing a similar file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from kronfield._core import labels
from kronfield._core.arrays import Array, problem
from kronfield._core.labels import Labels
from kronfield._core.memory import memory_size
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.files import Description, Signal
from kronfield.files.description import describe_signal
from kronfield.fitting import settings as defaults
from kronfield.fitting.grid import fit
from kronfield.fitting.points import fit_points
from kronfield.fitting.report import FitReport, PointReport
from kronfield.signals.axes import described, named_axis
from kronfield.solvers.points.cg import ConvergenceError

# Peak memory of a fit, without and with a penalty, as a multiple of the size of the samples. The
# samples are included. Measured and rounded up.
PLAIN, PENALISED = 7, 12
# Below half an 8-bit level of alpha, the colour is invisible.
INVISIBLE = 0.5 / 255


def fit_signal(
    signal: Signal,
    encoding: Kronecker | Embedder | None = None,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    ridge: float | None = None,
    roughness: tuple[float, float] | Literal["gcv"] | None = None,
    missing: Any = None,
    loss: str = "squared",
    trend: int | None = None,
    hold_out: str | None = None,
    periodic: Mapping[str, float] | None = None,
) -> Field:
    """Fit a field to a signal: by `fit` for grids, by `fit_points` for tables.

    Samples that are NaN are missing. Colours with alpha are multiplied by alpha before the fit, so
    that invisible colours do not affect visible ones; `straight_colours` reverses this.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from kronfield.files import read, write
    >>> from kronfield.signals.fit import fit_signal
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.png", np.eye(30), {})
    ...     field = fit_signal(read(Path(folder) / "a.png"))
    >>> field.info["kind"], field.info["range"], field.on_grid((60, 60)).shape
    ('image', [0.0, 1.0], (60, 60))

    Parameters
    ----------
    signal : Signal
        From `kronfield.files.read`.
    encoding, domain, ridge, roughness, loss
        As in `fit` and `fit_points`.
    trend, hold_out
        As in `fit_points`, for tables only.
    periodic : dict, optional
        The period of each axis that wraps, by its name or number.
    missing : array of bool, optional
        True where a sample is to be left out, in the shape of the grid.

    Returns
    -------
    Field
        Its ``info`` is that of the signal plus ``range``, the smallest and the largest value.
    """
    periods = _periods(signal, periodic)
    if signal.points is not None:
        if isinstance(roughness, str):
            raise problem(
                "roughness",
                "gcv for a table",
                "two numbers",
                "Leave it out: held-out points then choose the penalty.",
            )
        options = {
            "domain": domain,
            "ridge": ridge,
            "roughness": roughness,
            "loss": loss,
            "trend": trend,
            "hold_out": hold_out,
            "periodic": periods,
        }
        field = _fit_points(signal.points, signal.values, encoding, **options)
        field.info = replace(signal.description, range=value_range(signal.values)).to_dict()
        return _labelled(field, signal)
    holes = (
        missing_samples(signal)
        if missing is None
        else np.asarray(missing) | missing_samples(signal)
    )
    field = _fit_grid(
        signal,
        holes,
        encoding,
        domain=domain,
        ridge=ridge,
        roughness=roughness,
        loss=loss,
        periodic=periods,
    )
    known = replace(signal.description, range=value_range(signal.values), missing=int(holes.sum()))
    if domain is not None and signal.axes is None:
        known = replace(
            known, units=[""] * field.dimensions
        )  # the units of the file no longer apply
    if known.has_alpha:
        known = replace(known, multiplied=True)
    field.info = known.to_dict()
    return _labelled(field, signal)


def _labelled(field: Field, signal: Signal) -> Field:
    """Set the names, units and kinds of the axes, if the file has them; return the field."""
    if signal.labels is None:
        return field
    known = signal.description
    channels = tuple(known.channels) if signal.channels and known.channels else None
    name = known.member if channels is None and not known.channels else None
    if channels is None and known.channels:
        name = known.channels[0]
    return field.with_labels(Labels(signal.labels, name, known.attrs or {}, channels))


def _fit_grid(
    signal: Signal,
    holes: Array,
    encoding: Any,
    *,
    domain: Any,
    ridge: float | None,
    roughness: Any,
    loss: str,
    periodic: list[float | None] | None,
) -> Field:
    """Fit the samples of a grid that are not ``holes``."""
    gaps = bool(holes.any())
    if holes.all():
        raise problem(
            "values", "samples that are all missing", "some known samples", "Check the file."
        )
    if gaps and isinstance(roughness, str):
        raise problem(
            "roughness",
            "gcv where samples are missing",
            "two numbers",
            "Leave it out to have it chosen.",
        )
    if gaps:
        ridge = ridge or None  # only a penalty determines the values in a gap
    return fit(
        multiplied_colours(signal.values) if signal.description.has_alpha else signal.values,
        signal.axes,
        encoding,
        domain=domain,
        ridge=ridge,
        roughness=roughness,
        channels=signal.channels,
        mask=holes if gaps else None,
        loss=loss,
        periodic=periodic,
    )


def _periods(signal: Signal, periodic: Mapping[str, float] | None) -> list[float | None] | None:
    """Return one period per axis of a signal, None where it does not wrap."""
    D = signal.values.ndim - signal.channels if signal.points is None else signal.points.shape[1]
    return periods_of(signal.description.axes or [], D, periodic)


def periods_of(
    names: Sequence[str], D: int, periodic: Mapping[str, float] | None
) -> list[float | None] | None:
    """Return one period per axis from those of axes by name or number; None if there is none."""
    if not periodic:
        return None
    names = names if len(names) == D else [f"axis {i}" for i in range(D)]
    periods: list[float | None] = [None] * D
    for name, period in periodic.items():
        periods[named_axis(names, name)] = period
    return periods


def _fit_points(points: Array, values: Array, encoding: Any, **options: Any) -> Field:
    """Fit points with the tight tolerance of the settings, or as by default if that fails.

    By default, a fit that chooses its penalty has a looser tolerance. Its lower accuracy would be
    visible in gaps, which most tables have.
    """
    tolerance = defaults.DEFAULT.points.tolerance
    try:
        return fit_points(points, values, encoding, tolerance=tolerance, **options)
    except ConvergenceError:
        return fit_points(points, values, encoding, **options)


def missing_samples(signal: Signal) -> Array:
    """Return where samples are NaN in any channel, in the shape of the grid."""
    values = signal.values
    shape = values.shape[:-1] if signal.channels else values.shape
    if values.dtype.kind != "f" or bool(np.isfinite(np.sum(values, dtype=np.float64))):
        return np.zeros(shape, dtype=bool)
    holes = np.isnan(values)
    return np.asarray(holes.any(axis=-1)) if signal.channels else holes


def value_range(values: Array) -> list[float]:
    """Return the smallest and the largest finite value; zeros if there is none."""
    if values.dtype.kind == "f" and not np.isfinite(np.sum(values, dtype=np.float64)):
        values = values[np.isfinite(values)]
    return [float(values.min()), float(values.max())] if values.size else [0.0, 0.0]


def lazy_signal(
    source: str, periodic: Mapping[str, float] | None = None
) -> tuple[Any, Description, list[float | None] | None]:
    """Return a variable of a zarr store or NetCDF file as an array of Dask, and its description.

    Its chunks are those of the file, joined or divided to a size that is efficient; axes that wrap
    are not divided. The third result are the periods of all axes.
    """
    from kronfield.files.guard import check_source, extra
    from kronfield.files.kinds import split_member
    from kronfield.files.netcdf import lazy_variable
    from kronfield.lazy.stores import efficient, plain_array

    path, member = split_member(source)
    check_source(path)
    with extra("dask"):
        found = plain_array(path, member)
    if found is None:
        labelled, known = lazy_variable(path, member)
        array = labelled.data
    else:
        known = describe_signal(
            "array",
            path.name,
            found,
            axes=[f"axis {i}" for i in range(found.ndim)],
            units=[""] * found.ndim,
            channels=None,
            levels=None,
            dtype=found.dtype,
            raw_bytes=found.nbytes,
        )
        known, array = replace(known, member=member), found
    periods = periods_of(known.axes or [], array.ndim, periodic)
    whole = [i for i, period in enumerate(periods or []) if period is not None]
    array = efficient(array, whole)
    return (array if found is not None else labelled.copy(data=array)), known, periods


# Alpha
# ------------------------------------------------------------------------------------------


def multiplied_colours(values: Array) -> Array:
    """Return colours (..., C) multiplied by alpha, their last channel."""
    result = values.copy()
    result[..., :-1] *= values[..., -1:]
    return result


def straight_colours(values: Array) -> Array:
    """Return colours (..., C) divided by alpha, their last channel; 0 where they are invisible."""
    alpha = np.clip(values[..., -1:], 0, 1)
    seen = alpha > INVISIBLE
    return np.concatenate(
        [np.where(seen, values[..., :-1] / np.where(seen, alpha, 1), 0), alpha], axis=-1
    )


# The record of how a field was made
# ------------------------------------------------------------------------------------------


def remember(field: Field, command: str, options: Mapping[str, Any], version: str) -> None:
    """Record in ``field.info`` the command, its options, the version and the report."""
    made: dict[str, Any] = {"command": command, "options": dict(options), "version": version}
    if isinstance(field.report, PointReport):
        few = field.report.points <= defaults.DEFAULT.signals.freedom_points
        made["report"] = field.report.to_dict(freedom=few)
    elif isinstance(field.report, FitReport):
        made["report"] = field.report.to_dict()
    keep_made(field, made)


def keep_made(field: Field, made: Mapping[str, Any]) -> None:
    """Record in ``field.info`` how a field was made, as data that JSON can hold."""
    field.info = replace(described(field), made=plain(made)).to_dict()


def plain(data: Any) -> Any:
    """Return data that JSON can hold: numbers that are not finite become None."""
    return labels.plain(data, not_finite=lambda number: None)


def noise_level(field: Field) -> float | None:
    """Return the estimated standard deviation of the noise; None if it cannot be estimated.

    It is r sqrt(n / (n - f)) for n samples, the rms residual r and f degrees of freedom. If f is
    nearly n, the residuals hold no information about the noise.
    """
    report = field.report
    if not isinstance(report, FitReport):
        return None
    n = math.prod(report.samples)
    left = n - report.degrees_of_freedom
    least = defaults.DEFAULT.signals.noise_left * n
    return report.residual * math.sqrt(n / left) if left > least else None


def check_fit_memory(shape: Sequence[int], itemsize: int, *, penalised: bool, remedy: str) -> None:
    """Refuse samples whose fit needs more memory than the machine has."""
    needed = math.prod(shape) * itemsize * (PENALISED if penalised else PLAIN)
    there = memory_size()
    if there is not None and needed > there:
        raise problem(
            "input",
            f"{' x '.join(map(str, shape))} numbers, whose fit needs about {needed / 1e9:.1f} GB",
            f"at most {there / 1e9:.1f} GB of memory",
            remedy,
        )
