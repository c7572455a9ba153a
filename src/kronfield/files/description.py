"""Metadata of a signal: a typed record that is saved as a dictionary."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record

# Each reader returns the value of an entry, or None if the entry has the wrong type.


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> list[str] | None:
    return list(map(str, value)) if isinstance(value, list | tuple) else None


def _names(value: Any) -> list[str] | None:
    names = _texts(value)
    return names if names is not None and all(isinstance(name, str) for name in value) else None


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, Integral) else None


def _integers(value: Any) -> list[int] | None:
    return list(value) if isinstance(value, list | tuple) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, Real) else None


def _pair(value: Any) -> list[float] | None:
    pair = isinstance(value, list | tuple) and len(value) == 2
    return list(value) if pair and all(isinstance(number, Real) for number in value) else None


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def _record(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _numbers(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _anything(value: Any) -> Any:
    return value


def _by(read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the metadata of an entry that ``read`` checks."""
    return {"read": read}


@record
class Description:
    """Metadata of a signal, or of a field that was made from it. None means unknown.

    `from_dict` and `to_dict` convert from and to the dictionary ``info``, which fields save and
    `write` takes. An ``info`` may come from anywhere: entries of the wrong type are treated as
    unknown, but `to_dict` still returns them.

    Attributes
    ----------
    kind : str
        "image", "video", "volume", "audio", "array" or "table".
    source : str
        The name of the file.
    shape : list of int
        The shape of the values, channels included.
    axes, units : lists of str
        The name and the unit of each axis; '' where an axis has no unit.
    channels : list of str
        The names of the channels; None if there is no axis of channels.
    levels : int
        The largest whole number of a pixel or sample in the file; None if the file holds floats.
    dtype : str
        The dtype of the numbers in the file.
    raw_bytes : int
        The size of these numbers.
    fps, rate : object
        Frames per second of a video, usually text such as "30000/1001", and samples per second of a
        sound. The functions that use them check their types, because their errors name the value.
    frames_per_second : float
        ``fps`` as a number.
    even : bool
        Whether the frames of a video are equally spaced in time.
    announced : int
        The number of frames that the header of a video states.
    subtype : str
        The encoding of the samples of a sound, as libsndfile calls it.
    spacing, affine : lists of float
        The distance between samples on each axis, and the 4 x 4 map to the space of the scanner.
        `write` checks them.
    member : str
        The name of the array in a .npz file.
    dropped, missing : int
        The number of rows of a table without coordinates, and the number of missing values.
    unused : list of str
        The columns of a table that are neither coordinates nor values.
    labels : list
        The label of each axis as data (`AxisLabel.to_dict`), if an axis holds dates.
    attrs : dict
        Facts that came with the values of a NetCDF or zarr variable: "units" is their unit.
    range : list of two floats
        The smallest and the largest value.
    multiplied : bool
        Whether the field holds colours multiplied by alpha.
    points : int
        The number of samples, if a grid was fitted as points.
    made : dict
        How the field was made: command, options, version and report.
    other : dict
        Entries that this class does not know, or that have the wrong type.
    nulls : frozenset of str
        The names of entries that `to_dict` includes even if they are None.
    """

    kind: str | None = field(default=None, metadata=_by(_text))
    source: str | None = field(default=None, metadata=_by(_text))
    shape: list[int] | None = field(default=None, metadata=_by(_integers))
    axes: list[str] | None = field(default=None, metadata=_by(_names))
    units: list[str] | None = field(default=None, metadata=_by(_texts))
    channels: list[str] | None = field(default=None, metadata=_by(_texts))
    levels: int | None = field(default=None, metadata=_by(_integer))
    dtype: str | None = field(default=None, metadata=_by(_text))
    raw_bytes: int | None = field(default=None, metadata=_by(_integer))
    fps: object = field(default=None, metadata=_by(_anything))
    frames_per_second: float | None = field(default=None, metadata=_by(_number))
    even: bool | None = field(default=None, metadata=_by(_flag))
    announced: int | None = field(default=None, metadata=_by(_integer))
    rate: object = field(default=None, metadata=_by(_anything))
    subtype: str | None = field(default=None, metadata=_by(_text))
    spacing: list[float] | None = field(default=None, metadata=_by(_numbers))
    affine: list[list[float]] | None = field(default=None, metadata=_by(_numbers))
    member: str | None = field(default=None, metadata=_by(_text))
    dropped: int | None = field(default=None, metadata=_by(_integer))
    missing: int | None = field(default=None, metadata=_by(_integer))
    unused: list[str] | None = field(default=None, metadata=_by(_names))
    labels: list[Any] | None = field(default=None, metadata=_by(_list))
    attrs: dict[str, Any] | None = field(default=None, metadata=_by(_record))
    range: list[float] | None = field(default=None, metadata=_by(_pair))
    multiplied: bool | None = field(default=None, metadata=_by(_flag))
    points: int | None = field(default=None, metadata=_by(_integer))
    made: dict[str, Any] | None = field(default=None, metadata=_by(_record))
    other: Mapping[str, Any] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()

    @classmethod
    def from_dict(cls, info: Mapping[str, Any]) -> Description:
        """Return the description that an ``info`` holds.

        Examples
        --------
        >>> from kronfield.files.description import Description
        >>> found = Description.from_dict({"levels": 255, "units": 7, "camera": "old"})
        >>> found.levels, found.units, found.other
        (255, None, {'units': 7, 'camera': 'old'})
        """
        known: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for key, value in info.items():
            found = _READERS[key](value) if key in _READERS and value is not None else None
            if found is not None:
                known[key] = found
            elif key not in _READERS or value is not None:
                other[key] = value
        nulls = frozenset(key for key in _READERS if key in info and info[key] is None)
        return cls(**known, other=other, nulls=nulls)

    def to_dict(self) -> dict[str, Any]:
        """Return a new dictionary of the known entries, those in ``nulls``, and ``other``."""
        own = {key: getattr(self, key) for key in _READERS}
        kept = {key: value for key, value in own.items() if value is not None or key in self.nulls}
        return copy.deepcopy({**self.other, **kept})

    @property
    def first_channel(self) -> str:
        """The name of the first channel; "value" if channels have no names."""
        return (self.channels or ["value"])[0]

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is alpha."""
        return (self.channels or [""])[-1] == "alpha"


_ENTRIES = [entry for entry in dataclasses.fields(Description) if "read" in entry.metadata]
_READERS: dict[str, Callable[[Any], Any]] = {one.name: one.metadata["read"] for one in _ENTRIES}


def describe_signal(
    kind: str,
    source: str,
    values: Array,
    *,
    axes: Sequence[str],
    units: Sequence[str],
    channels: Sequence[str] | None,
    levels: int | None,
    dtype: object,
    raw_bytes: int,
) -> Description:
    """Return a description with the entries that every kind of file has."""
    return Description(
        kind=kind,
        source=source,
        shape=list(values.shape),
        axes=list(axes),
        units=list(units),
        channels=None if channels is None else list(channels),
        levels=levels,
        dtype=str(dtype),
        raw_bytes=int(raw_bytes),
        nulls=frozenset({"channels", "levels"}),
    )
