"""The pictures of the page: built in, from the command line, or sent; and arrays as PNG."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.files.images import png_of, to_bytes

# The longest side of a picture that is kept; larger ones are averaged down.
LONGEST = 512
# The colours of the ends and the middle of a map of errors: too dark, right, too bright.
_ERROR_COLOURS = np.array([[0.13, 0.4, 0.67], [1.0, 1.0, 1.0], [0.7, 0.09, 0.17]])
# The error that is drawn in full colour.
_LARGEST_ERROR = 0.15


def built_in(name: str, side: int) -> Array:
    """Return a built-in picture, float64 in [0, 1] of shape (side, side, 3).

    "photograph" ships with scikit-image; "shapes" and "waves" are computed.

    Examples
    --------
    >>> from kronfield.play.pictures import built_in
    >>> built_in("waves", 64).shape
    (64, 64, 3)
    """
    if name == "photograph":
        from kronfield.files import sample_photograph

        return square(sample_photograph()[20:276, 110:366], side)
    y, x = (np.arange(side) + 0.5)[:, None] / side, (np.arange(side) + 0.5)[None, :] / side
    if name == "waves":
        planes = [
            np.sin(2 * np.pi * (a * x + b * y)) * np.cos(2 * np.pi * (b * x - c * y))
            for a, b, c in ((3, 2, 1), (5, 1, 3), (2, 4, 5))
        ]
        return 0.5 + 0.45 * np.stack(planes, axis=-1)
    disc = (x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.05
    bar = np.abs(x - y) < 0.03
    box = (np.abs(x - 0.72) < 0.15) & (np.abs(y - 0.7) < 0.18)
    sky = np.stack([0.55 + 0.3 * y + 0 * x, 0.7 + 0.2 * x + 0 * y, 0.9 - 0.4 * y + 0 * x], axis=-1)
    for where, colour in (
        (disc, (0.9, 0.35, 0.2)),
        (box, (0.15, 0.4, 0.5)),
        (bar, (0.98, 0.93, 0.8)),
    ):
        sky[where] = colour
    return sky


def square(picture: Array, side: int) -> Array:
    """Return the central square of a picture, averaged or repeated to ``side`` pixels a side."""
    height, width = picture.shape[:2]
    least = min(height, width)
    top, left = (height - least) // 2, (width - least) // 2
    cut = picture[top : top + least, left : left + least].astype(np.float64)
    return _averaged(_averaged(cut, side, 0), side, 1)


def shrunk(values: Array) -> Array:
    """Return a picture (H, W, 3) in [0, 1] with at most `LONGEST` pixels a side, averaged.

    Grey pictures become colour; transparent pixels stand before white.
    """
    if values.ndim == 2:
        values = values[..., None]
    colours = values.shape[2] - (values.shape[2] in (2, 4))
    rgb = values[..., :colours]
    if values.shape[2] in (2, 4):
        alpha = values[..., -1:]
        rgb = rgb * alpha + (1 - alpha)
    rgb = np.broadcast_to(rgb, (*rgb.shape[:2], 3)) if colours == 1 else rgb[..., :3]
    scale = min(1.0, LONGEST / max(rgb.shape[:2]))
    sides = [max(1, round(n * scale)) for n in rgb.shape[:2]]
    result = np.asarray(rgb, dtype=np.float32)
    for axis, n in enumerate(sides):
        result = _averaged(result, n, axis)
    return np.clip(result, 0, 1).astype(np.float32)


def _averaged(values: Array, count: int, axis: int) -> Array:
    """Return means over ``count`` equal cells along an axis; a cell may have parts of samples."""
    n = values.shape[axis]
    if n == count:
        return values
    # the integral of the samples, at the ends of the cells
    total = np.cumsum(np.moveaxis(values, axis, 0), axis=0, dtype=np.float64)
    total = np.concatenate([np.zeros((1, *total.shape[1:])), total])
    ends = np.arange(count + 1) * n / count
    low = np.minimum(ends.astype(int), n - 1)
    part = (ends - low).reshape(-1, *[1] * (total.ndim - 1))
    at_ends = total[low] + part * (total[low + 1] - total[low])
    return np.moveaxis(np.diff(at_ends, axis=0) * count / n, 0, axis)


def read_picture(path: Path, most_pixels: int) -> Array:
    """Read a picture as `shrunk` returns it; larger ones are refused before they are decoded."""
    from kronfield.files import read
    from kronfield.files.images import picture_size

    width, height = picture_size(path)
    if width * height > most_pixels:
        remedy = "Send a smaller one, or use the command line."
        raise problem(
            "picture", f"{width} x {height} pixels", f"at most {most_pixels} pixels", remedy
        )
    return shrunk(np.asarray(read(path).values))


def data_url(picture: Array) -> str:
    """Return a picture (H, W, 3) in [0, 1] as the address of a PNG that it contains."""
    return "data:image/png;base64," + base64.b64encode(png_of(to_bytes(picture))).decode("ascii")


def error_url(picture: Array, truth: Array) -> str:
    """Return the mean error over the channels in colours: blue too dark, red too bright."""
    error = np.clip((picture - truth).mean(axis=-1) / _LARGEST_ERROR, -1, 1)[..., None]
    dark, middle, bright = _ERROR_COLOURS
    return data_url(
        middle + np.where(error < 0, -error * (dark - middle), error * (bright - middle))
    )


def painted(strokes: str, side: int) -> Array:
    """Return where strokes of the brush cover a picture of ``side`` pixels a side.

    A stroke is ``radius:x.y.x.y...``: discs of this radius along lines between positions, in
    pixels. Strokes are separated by semicolons.

    Examples
    --------
    >>> from kronfield.play.pictures import painted
    >>> int(painted("1:3.3.5.3;", 8).sum())
    11
    """
    mask = np.zeros((side, side), dtype=bool)
    for stroke in filter(None, strokes.split(";")):
        radius, _, path = stroke.partition(":")
        numbers = [int(number) for number in path.split(".")]
        if len(numbers) % 2:
            remedy = "Use the brush of the page."
            raise problem("strokes", stroke[:40], "pairs of positions, x.y", remedy)
        ends = np.array(numbers, dtype=np.float64).reshape(-1, 2)
        for start, stop in zip(ends, [*ends[1:], ends[-1]], strict=True):
            steps = max(1, int(np.ceil(np.abs(stop - start).max())))
            for t in np.linspace(0.0, 1.0, steps + 1):
                _disc(mask, start + t * (stop - start), int(radius))
    return mask


def _disc(mask: Array, middle: Array, radius: int) -> None:
    """Mark the pixels of a disc; only the square around it is looked at."""
    x, y = middle
    left, top = (max(0, int(np.ceil(v - radius))) for v in middle)
    right, bottom = (max(0, int(v + radius) + 1) for v in middle)
    part = mask[top:bottom, left:right]
    rows = np.arange(top, top + part.shape[0])[:, None]
    columns = np.arange(left, left + part.shape[1])
    part |= (columns - x) ** 2 + (rows - y) ** 2 <= radius**2


def source_text(state: Any, file: str | None) -> list[str]:
    """Return the lines of Python that make the picture of a state."""
    name, side = state["picture"], state["side"]
    if name in ("photograph", "shapes", "waves"):
        return [
            "from kronfield.play.pictures import built_in",
            "",
            f'picture = built_in("{name}", {side})',
        ]
    path = repr(file) if name == "file" and file else '"picture.png"  # the picture that was sent'
    return [
        "from pathlib import Path",
        "",
        "from kronfield.play.pictures import read_picture, square",
        "",
        f"path = {path}",
        f"picture = square(read_picture(Path(path), 10**8), {side})",
    ]
