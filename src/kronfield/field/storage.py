"""Saved fields: safetensors files with JSON metadata and a checksum.

Loading runs no code from the file, and a damaged or altered file raises an error.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, InputError, describe, problem
from kronfield._core.atomic import check_name, replacing
from kronfield._core.frames import Frame
from kronfield._core.records import record

# Versions of the layout of the metadata. A reader reads its own version and earlier versions. A
# file has the version in which its kind last changed, so that earlier readers still read other
# kinds: 5 for fields with factored weights or of low rank, 4 for those in the dual form, 3 for
# those with a trend, 2 for those that hold samples, 1 for others.
FORMAT_VERSION, FIRST_VERSION, TREND_VERSION, DUAL_VERSION, FACTORED_VERSION = 5, 1, 3, 4, 5
LOW_RANK_VERSION = 5
FORMAT = "kronfield"
_CHECKSUM = "sha256"
DAMAGED = "It is damaged or altered: save it again."
# JSON has no numbers that are not finite: they are objects with this key and a text.
_NOT_FINITE, _NUMBERS = "not finite", ("nan", "inf", "-inf")
_FLOATS = {"F16": "float16", "F32": "float32", "F64": "float64"}
_REMEDY = "It is damaged, altered, or not a saved field: save it again from the field."


def _checksum(text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def coded(value: Any) -> Any:
    """Return metadata in which numbers that are not finite are objects that JSON can hold."""
    if isinstance(value, Mapping):
        return {key: coded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [coded(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_NOT_FINITE: str(value)}
    return value


def decoded_entry(found: dict[str, Any]) -> Any:
    """Return the number that an object of JSON stands for; other objects unchanged."""
    is_number = list(found) == [_NOT_FINITE] and found[_NOT_FINITE] in _NUMBERS
    return float(found[_NOT_FINITE]) if is_number else found


def decoded(value: Any) -> Any:
    """Return metadata with the numbers that `coded` made objects."""
    if isinstance(value, dict):
        return decoded_entry({key: decoded(one) for key, one in value.items()})
    return [decoded(one) for one in value] if isinstance(value, list) else value


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: dict[str, Any]
) -> None:
    """Write arrays and metadata to one file, completely or not at all.

    The metadata may contain a "version"; by default it is the first.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {"format": FORMAT, "version": FIRST_VERSION, **metadata}
    text = json.dumps(coded(whole), allow_nan=False, sort_keys=True)
    # safetensors would scramble arrays that are not contiguous; reshape keeps 0-d arrays 0-d
    contiguous = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    with replacing(path) as temporary:
        try:
            save_file(
                contiguous,
                temporary,
                metadata={FORMAT: text, _CHECKSUM: _checksum(text, contiguous)},
            )
        # safetensors reports errors of the system, such as a full disk, only in its message
        except SafetensorError as error:
            found = re.search(r"os error (\d+)", str(error))
            number = int(found[1]) if found else errno.EIO
            raise OSError(number, os.strerror(number), os.fspath(path)) from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and metadata of a file that `write` wrote."""
    from safetensors import SafetensorError, safe_open

    if not isinstance(path, str | os.PathLike):
        raise problem("path", describe(path), "a str or a path", "Name a file.", TypeError)
    target = Path(path)
    check_name(target)
    if not target.is_file():
        others = [x.name for x in target.parent.glob(f"*{target.suffix}")] if target.suffix else []
        close = difflib.get_close_matches(target.name, others, n=1)
        remedy = (
            f"There is no such file: {f'did you mean {close[0]}?' if close else 'check the name.'}"
        )
        raise problem("path", target, "a saved field", remedy)
    try:
        with safe_open(target, framework="numpy") as file:
            header = file.metadata() or {}
            metadata = _metadata(target, header)
            names = list(file.keys())
            arrays = {name: file.get_tensor(name) for name in names}
    except InputError:
        raise
    # RecursionError: metadata that are nested without end
    except (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        MemoryError,
    ) as error:
        seen = error if isinstance(error, OSError | MemoryError) else _seen(target)
        raise problem("path", f"{target} ({seen})", "a saved field", _REMEDY) from error
    if _checksum(header[FORMAT], arrays) != header.get(_CHECKSUM):
        raise problem(
            "path",
            f"{target}, whose contents do not match their checksum",
            "a saved field",
            _REMEDY,
        )
    return arrays, metadata


def stored_dtype(path: str | os.PathLike[str]) -> str:
    """Return the dtype of the stored weights or samples; if there are several, the smallest."""
    from safetensors import safe_open

    with safe_open(Path(path), framework="numpy") as file:
        names = [
            name
            for name in file.keys()  # noqa: SIM118
            if name in ("weights", "samples", "cores") or name.startswith("model.")
        ]
        kinds = {file.get_slice(name).get_dtype() for name in names}  # "F16", "F32", ...
    return next((name for kind, name in _FLOATS.items() if kind in kinds), "float64")


def _seen(target: Path) -> str:
    """Return a description of a file that is not a field, judged by its first bytes."""
    with target.open("rb") as file:
        head = file.read(12)
    pictures = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*", b"MM\x00*")
    if head.startswith(pictures) or head[8:12] == b"WEBP":
        return "a picture; fit it first"
    return "cut short or damaged" if head else "empty"


def _metadata(target: Path, header: Mapping[str, str]) -> dict[str, Any]:
    if FORMAT not in header:
        raise problem(
            "path", f"{target}, a file without kronfield metadata", "a saved field", _REMEDY
        )
    metadata = json.loads(header[FORMAT], object_hook=decoded_entry)
    if (
        not isinstance(metadata, dict)
        or metadata.get("format") != FORMAT
        or not isinstance(metadata.get("version"), int)
    ):
        raise problem("path", f"{target}, with metadata of another kind", "a saved field", _REMEDY)
    if metadata["version"] > FORMAT_VERSION:
        raise problem(
            "path",
            f"{target}, of format version {metadata['version']}",
            f"version {FORMAT_VERSION} or below",
            "It was saved by a newer kronfield: upgrade to read it.",
        )
    return metadata


# The parts of a file
# ------------------------------------------------------------------------------------------

# A position in units of an embedder that is this far away would overflow where it is multiplied.
_FAR = 1e100
DTYPES = {"float32": np.float32, "float64": np.float64}


@record(eq=False)
class Head:
    """The metadata that all kinds of fields have, except networks."""

    frames: list[Frame]
    weights_dtype: type[Any]
    dtype: type[Any]
    channels: bool
    is_complex: bool
    info: dict[str, Any]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Head:
        """Return the head of a file; call it inside `restoring`."""
        if not isinstance(metadata["frames"], list):
            raise TypeError("frames that are no list")
        wraps = metadata.get("wraps") or [False] * len(metadata["frames"])
        frames = [
            Frame(*(float(v) for v in frame), wraps=bool(one))
            for frame, one in zip(metadata["frames"], wraps, strict=True)
        ]
        return cls(
            frames,
            DTYPES[metadata["weights_dtype"]],
            DTYPES[metadata["values_dtype"]],
            bool(metadata["channels"]),
            bool(metadata["complex"]),
            dict(metadata.get("info") or {}),
        )

    @property
    def about(self) -> dict[str, Any]:
        """The arguments that all kinds of fields take."""
        return {
            "channels": self.channels,
            "is_complex": self.is_complex,
            "dtype": self.dtype,
            "info": self.info,
        }

    def positions(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return the default positions of `on_grid`."""
        return positions(arrays, len(self.frames))

    def fits(self, planes: int, dimensions: int) -> bool:
        """Return whether frames, and the number of planes, belong to a field of these dimensions.

        The ends of the domain must be usable numbers in the units of the embedders.
        """
        parts = 1 + self.is_complex
        with np.errstate(over="ignore", invalid="ignore"):
            finite = all(np.all(np.abs(f.unit([f.low, f.high])) < _FAR) for f in self.frames)
        return (
            finite
            and len(self.frames) == dimensions >= 1
            and all(f.length > 0 and f.low < f.high for f in self.frames)
            and planes >= 1
            and (planes % parts == 0 if self.channels else planes == parts)
        )


def positions(arrays: Mapping[str, Array], dimensions: int) -> list[Array]:
    """Return the default positions of `on_grid` on each axis; call it inside `restoring`."""
    found = [arrays[f"axis{i}"].astype(np.float64) for i in range(dimensions)]
    if not all(x.ndim == 1 and len(x) and np.all(np.isfinite(x)) for x in found):
        raise ValueError("positions that are not finite numbers on one axis")
    return found


@contextlib.contextmanager
def restoring(path: Any, expected: str = "a saved field") -> Iterator[None]:
    """Raise the error of a damaged file if its parts are missing or of another kind.

    This is the one door of everything that is made from the contents of a file. A file can be
    edited so that its checksum is valid, and then nearly any exception is possible. Lack of memory
    and missing libraries are no faults of the file.
    """
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, InputError) and str(error).startswith("path:"):
            raise  # says already which file, and why
        raise problem(
            "path", f"{path} ({type(error).__name__}: {error})", expected, DAMAGED
        ) from error


def misfit(path: Any, expected: str = "a saved field") -> InputError:
    """Return the error of a file whose parts do not belong together."""
    return problem("path", f"{path}, whose parts do not fit together", expected, DAMAGED)
