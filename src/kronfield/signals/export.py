"""Write a field to a picture, video, volume, sound or table: block by block, atomically."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.labels import attrs_of_derivative
from kronfield._core.records import record
from kronfield.field import Field
from kronfield.files import Description, kind_of, writer
from kronfield.files.kinds import suffix_of
from kronfield.fitting import settings as defaults
from kronfield.signals.axes import (
    axis_names,
    axis_units,
    channel_names,
    derivative_names,
    described,
)
from kronfield.signals.fit import straight_colours
from kronfield.signals.tones import Tones, measured_tones
from kronfield.signals.view import View, view

if TYPE_CHECKING:
    from kronfield.lazy.field import LazyField

# Formats that hold any number; other formats hold brightness or sound.
RAW = {".tif", ".tiff", ".npy", ".npz", ".nc", ".zarr", ".nii", ".nii.gz"}
RAW |= {".csv", ".tsv", ".parquet", ".xlsx"}


@record
class Exported:
    """The result of `export`.

    Attributes
    ----------
    path : Path
        The file.
    shape : tuple of int
        The shape of the grid, without channels.
    channels : list of str
        The names of the channels.
    tones : Tones or None
        The values drawn black and white; None if values were written unchanged.
    rate : Fraction or None
        Frames or samples per second.
    """

    path: Path
    shape: tuple[int, ...]
    channels: list[str]
    tones: Tones | None
    rate: Fraction | None


def usual_rate() -> Fraction:
    """Return the frames per second of a video from a field that has no frame rate."""
    return Fraction(defaults.DEFAULT.signals.frame_rate)


def export(
    field: Field,
    path: str | os.PathLike[str],
    where: View | None = None,
    *,
    derivative: Sequence[int] | None = None,
    tones: Tones | None = None,
    channel: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> Exported:
    """Write a view of a field to a file, in bounded memory.

    Fields of pictures keep their levels, 8 or 16 bit. Other values, and derivatives, are written
    unchanged to formats that hold floats; in other formats they are converted to brightness.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> import kronfield as kf
    >>> from kronfield.signals.export import export
    >>> from kronfield.signals.view import view
    >>> from kronfield.signals.tones import Tones
    >>> field = kf.fit(np.add.outer(np.arange(20.0), np.arange(30.0)))
    >>> tones = Tones(black=0.0, white=50.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = export(field, Path(folder) / "a.png", view(field, scale=2), tones=tones)
    >>> done.shape
    (40, 60)

    Parameters
    ----------
    field : Field
        Its ``info`` describes the signal that was fitted.
    path : path
        The file to write; its suffix sets the format.
    where : View, optional
        Where to evaluate the field; by default at the samples.
    derivative : sequence of int, optional
        The order of the derivative along each axis.
    tones : Tones, optional
        The values to draw black and white; by default measured if they are needed.
    channel : str, optional
        The name or number of a single channel to write.
    overwrite : bool
        Whether an existing file may be replaced.
    progress : callable, optional
        Called with the number of rows or frames done, and their total.
    """
    target, suffix = kind_of(path), suffix_of(Path(path))
    where = view(field, upright=target == "image") if where is None else where
    job = _Job(
        field,
        where,
        derivative if derivative is not None and any(derivative) else None,
        channel,
        target,
        suffix,
    )
    chosen = job.tones(suffix, tones)
    written = job.description(suffix, chosen)
    total = where.shape[0]
    if target == "table":
        shape: tuple[int, ...] = (math.prod(where.shape),)
        count: int | None = len(where.shape) + len(job.names)
    else:
        shape, count = where.shape, len(job.names) if job.has_channels else None
    axes = None if target == "table" else where.positions
    with writer(path, shape, count, written.to_dict(), axes=axes, overwrite=overwrite) as file:
        done = 0
        for block in where.blocks(field, job.derivative):
            values = job.values(block, chosen)
            done += len(values)
            file.write(
                _rows(where, done - len(values), values, job.has_channels)
                if target == "table"
                else values
            )
            if progress is not None:
                progress(done, total)
    rate = job.frames_per_second if target == "video" else where.rate
    return Exported(Path(path), where.shape, job.names, chosen, rate)


def export_lazily(
    field: LazyField,
    path: str | os.PathLike[str],
    where: View | None = None,
    *,
    derivative: Sequence[int] | None = None,
    channel: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> Exported:
    """Write a view of a lazy field to a zarr folder, chunk by chunk, on the workers of Dask.

    The folder appears when it is complete. Until then it is ".NAME.part.zarr" beside it: if the
    work ends early, the same call later computes only the chunks that are not there.

    Parameters
    ----------
    field : LazyField
        From `kronfield.fit` of an array of Dask or zarr, or from `kronfield.load` of a store.
    path : path
        The folder to write, whose name ends in ".zarr".
    where, derivative, channel, overwrite
        As in `export`.
    progress : callable, optional
        Called with the number of chunks that are written, and their total.
    """
    from kronfield._core.atomic import begun
    from kronfield.files.layout import Layout
    from kronfield.files.netcdf import begin_zarr
    from kronfield.lazy.stores import StoredArray, even_chunks

    suffix = suffix_of(Path(path))
    if suffix != ".zarr":
        raise problem(
            "path",
            f"{path}, for a field that is not in memory",
            "the name of a zarr folder",
            "Name it .zarr, or render a part of it: kf.load(...).compute().",
        )
    where = view(field) if where is None else where
    order = derivative if derivative is not None and any(derivative) else None
    job = _Job(field, where, order, channel, kind_of(path), suffix)
    values = even_chunks(job.values(where.lazily(field, job.derivative), None))
    count = len(job.names) if job.has_channels else None
    known = job.description(suffix, None).to_dict()
    layout = Layout.checked(where.shape, count, known, where.positions)
    with begun(path, overwrite=overwrite) as folder:
        name = begin_zarr(folder, layout, values)
        stored = StoredArray.in_store(folder, name, "r+")
        stored.write(values.astype(stored.array.dtype, copy=False), progress)
    return Exported(Path(path), where.shape, job.names, None, where.rate)


class _Job:
    """The conversion of a view of a field to the values and the description of a file."""

    def __init__(
        self,
        field: Field,
        where: View,
        derivative: Sequence[int] | None,
        channel: str | None,
        target: str,
        suffix: str,
    ) -> None:
        self.suffix = suffix
        self.field, self.where, self.derivative, self.target = field, where, derivative, target
        if field.is_complex:
            raise problem(
                "field",
                "complex values",
                "real values",
                "Evaluate it in Python, and write its real and imaginary parts.",
            )
        self.known = described(field)
        self.all_names = channel_names(field)
        self.alpha = self.all_names[-1] == "alpha" and len(self.all_names) > 1
        self.pick = self._picked(channel)
        self.names = [self.all_names[i] for i in self.pick]
        self.has_channels = field.has_channels and channel is None
        if self.has_channels and target in ("image", "video") and self.known.kind == "table":
            remedy = f"Choose a column with --channel: {', '.join(self.all_names)}."
            raise problem("channel", f"{field.channel_count} columns", "one column to draw", remedy)

    def _picked(self, channel: str | None) -> list[int]:
        """Return the channels to write; derivatives leave out alpha."""
        everything = list(range(len(self.all_names)))
        if channel is None:
            return everything[:-1] if self.alpha and self.derivative is not None else everything
        if channel in self.all_names:
            return [self.all_names.index(channel)]
        if channel.isdigit() and int(channel) < len(everything):
            return [int(channel)]
        raise problem(
            "channel",
            repr(channel),
            f"one of {', '.join(self.all_names)}",
            "Or its number, from 0.",
        )

    @property
    def is_picture(self) -> bool:
        """Whether values are brightness from 0 to 1 without conversion."""
        return self.known.levels is not None and self.derivative is None

    def tones(self, suffix: str, given: Tones | None) -> Tones | None:
        """Return the values to draw black and white; None if values are written unchanged."""
        if (
            given is not None
            or suffix in RAW
            or (self.is_picture and self.target in ("image", "video"))
        ):
            return given
        if self.target == "audio" and self.derivative is None:
            low, high = self.known.range or (-1.0, 1.0)
            largest = max(abs(low), abs(high))
            return None if self.known.kind == "audio" or largest <= 1 else Tones(-largest, largest)
        return measured_tones(self.field, self.where, self.derivative)

    def values(self, block: Array, tones: Tones | None) -> Array:
        """Return the values of a block as they are written to the file."""
        if self.known.multiplied and self.derivative is None:
            block = straight_colours(block)
        if self.field.has_channels:
            block = block[..., self.pick] if self.has_channels else block[..., self.pick[0]]
        if tones is not None:
            block = tones(block)
            block = 2 * block - 1 if self.target == "audio" else block
        if self.where.beyond is not None and (tones is not None or self.levels_only):
            block = np.nan_to_num(block, nan=0.0)  # black: there are no data
        return block

    @property
    def levels_only(self) -> bool:
        """Whether the file holds brightness or sound, and no NaN."""
        return self.suffix not in RAW

    @property
    def frames_per_second(self) -> Fraction:
        """The frame rate of a video: that of the view, or the usual one."""
        return self.where.rate or usual_rate()

    def description(self, suffix: str, tones: Tones | None) -> Description:
        """Return the description of the file: that of the field, adapted to the view."""
        order, names, units = self.where.order, axis_names(self.field), axis_units(self.field)
        labels = self.field.labels.axes
        dated = any(label.is_time for label in labels)
        known = replace(
            self.known,
            axes=[names[i] for i in order],
            units=[units[i] for i in order],
            labels=[labels[i].to_dict() for i in order] if dated else None,
            channels=self.names if self.derivative is None else self.derivative_names(),
            made=None,
            range=None,
            attrs=self._attrs(),
        )
        if not self.is_picture:
            levels = 255 if tones is not None else None
            known = replace(known, levels=levels, dtype=str(self.field.dtype))
        if self.target == "video":
            known = replace(known, fps=_fraction(self.frames_per_second))
        if self.target == "audio":
            known = replace(known, rate=self._samples_per_second())
        return self._placed(known) if suffix.startswith(".nii") else known

    def _attrs(self) -> dict[str, Any] | None:
        """Return the facts that came with the values; a derivative has another unit."""
        known = dict(self.field.labels.attrs)
        return (known if self.derivative is None else attrs_of_derivative(known)) or None

    def _samples_per_second(self) -> int:
        own: Any = self.known.rate
        return max(1, round(self.where.rate or own or 44100))

    def derivative_names(self) -> list[str]:
        """Return the names of the derivatives of the channels."""
        assert self.derivative is not None
        return derivative_names(self.field, self.names, self.derivative, self.where.per)

    def _placed(self, known: Description) -> Description:
        """Add the entries of NIfTI: the distance of samples, and the map from samples to space.

        The source maps its samples by the affine A, and its samples are ``spacing`` apart. Sample j
        of the view is at start + j length, which is sample (start + j length) / spacing of the
        source. With S the 4 x 4 matrix of this map, the view maps its samples by A S. Without A, or
        if axes are cut or exchanged, S alone places them.
        """
        lengths = [float(self.where.steps[i]) or 1.0 for i in self.where.order]
        starts = [float(x[0]) for x in self.where.positions]
        whole = self.where.order == tuple(range(self.field.dimensions))
        from_source = whole and bool(self.known.spacing) and bool(self.known.affine)
        spacing = self.known.spacing if from_source and self.known.spacing else [1.0] * len(lengths)
        step = np.eye(4)
        in_space = list(zip(lengths, starts, spacing, strict=False))[:3]
        for i, (length, start, unit) in enumerate(in_space):
            step[i, i], step[i, 3] = length / float(unit), start / float(unit)
        placed = np.array(self.known.affine) @ step if from_source else step
        return replace(known, spacing=lengths, affine=placed.tolist(), shape=list(self.where.shape))


def drawn_channel(
    field: Field, derivative: Sequence[int] | None, channel: str | None, per: str | None = None
) -> tuple[int, str]:
    """Return the number and the name of the channel to draw; refuse several channels."""
    orders = derivative if derivative is not None and any(derivative) else None
    job = _Job(field, replace(view(field), per=per), orders, channel, "image", ".png")
    name = job.names[0] if orders is None else job.derivative_names()[0]
    return job.pick[0], name


def _rows(where: View, start: int, values: Array, channels: bool) -> Array:
    """Return a block as rows of a table: coordinates, then values."""
    shape = values.shape[:-1] if channels else values.shape
    first, *rest = where.positions
    grid = np.meshgrid(first[start : start + len(values)], *rest, indexing="ij")
    columns = [x.reshape(-1, 1) for x in grid]
    return np.concatenate(
        [*columns, values.reshape(math.prod(shape), -1).astype(np.float64)], axis=1
    )


def _fraction(rate: Fraction) -> str:
    return f"{rate.numerator}/{rate.denominator}"


def values_at_points(
    field: Field,
    points: Array,
    *,
    derivative: Sequence[int] | None = None,
    beyond: float | None = None,
    per: str | None = None,
    blocks: int = 1 << 20,
) -> Iterator[Array]:
    """Yield blocks of values (n, C) at points (P, D).

    Values are NaN outside the domain, where a coordinate is missing, and farther than ``beyond``
    from the data. ``per`` is the unit of time of derivatives along dates.
    """
    count, multiplied = field.channel_count, described(field).multiplied
    for start in range(0, len(points), blocks):
        some = points[start : start + blocks]
        known = np.isfinite(some).all(axis=1)
        result = np.full((len(some), count), np.nan)
        values = (
            field(some[known], derivative, outside="nan", beyond=beyond, per=per).reshape(-1, count)
            if known.any()
            else result[:0]
        )
        if multiplied and derivative is None:
            values = straight_colours(values)
        result[known] = values
        yield result
