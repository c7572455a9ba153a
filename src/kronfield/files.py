"""Files in and out. Pillow and scikit-image only here, imported on use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._arrays import describe, problem
from kronfield._atomic import replacing

Image = np.ndarray[Any, np.dtype[Any]]


def sample_photograph() -> Image:
    """Return a photograph that ships inside scikit-image, float32 in [0, 1] of shape (512, 512, 3)."""
    try:
        from skimage import data
    except ImportError as error:
        raise problem(
            "photograph", "a Python without scikit-image", "scikit-image", "Install it with: pip install 'kronfield[images]'"
        ) from error
    return data.astronaut().astype(np.float32) / 255


def to_bytes(values: Image) -> Image:
    """Return values in [0, 1] as 8-bit, rounded to nearest; what lies outside is clipped."""
    return np.clip(np.rint(np.asarray(values, dtype=np.float32) * 255), 0, 255).astype(np.uint8)


def write_image(path: str | os.PathLike[str], values: Image, *, overwrite: bool = True) -> None:
    """Write values in [0, 1], (H, W) or (H, W, 1, 3 or 4), as an 8-bit image, whole or not at all."""
    from PIL import Image as Pillow

    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)) or 0 in values.shape:
        raise problem("values", describe(values), "shape (H, W), or (H, W, C) with 1, 3 or 4 channels", "Choose channels.")
    if Path(path).suffix.lower() not in Pillow.registered_extensions():
        raise problem("path", os.fspath(path), "the name of an image file", "For example: picture.png")
    pixels = to_bytes(values)
    with replacing(path, overwrite=overwrite) as temporary:
        Pillow.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(temporary)
