"""Supported files, by the suffixes of their names."""

from __future__ import annotations

import os
from pathlib import Path

from kronfield._core.arrays import problem

_KINDS = {
    "image": (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    "video": (".mp4", ".webm", ".mkv", ".mov", ".avi"),
    "volume": (".nii", ".nii.gz"),
    "array": (".npy", ".npz", ".nc", ".zarr"),
    "audio": (".wav", ".flac", ".ogg"),
    "table": (".csv", ".tsv", ".parquet", ".xlsx"),
}
# Formats that hold several arrays or tables: file.npz:name selects one.
_WITH_MEMBERS = (".npz", ".nc", ".zarr", ".xlsx")
# The extra that installs the required library, if any.
_EXTRAS = {
    **dict.fromkeys((".tif", ".tiff"), "volume"),
    **dict.fromkeys(_KINDS["video"], "video"),
    **dict.fromkeys(_KINDS["volume"], "nifti"),
    **dict.fromkeys(_KINDS["audio"], "audio"),
    ".parquet": "parquet",
    ".xlsx": "excel",
    ".nc": "netcdf",
    ".zarr": "zarr",
}


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return the kind of a file, by the suffix of its name.

    Parameters
    ----------
    path : str or path
        The file, which need not exist.

    Returns
    -------
    str
        "image", "video", "volume", "array", "audio" or "table". A TIFF counts as an image; `read`
        returns a volume if it has several pages.

    Examples
    --------
    >>> from kronfield.files import kind_of
    >>> kind_of("holiday.JPG"), kind_of("brain.nii.gz"), kind_of("arrays.npz:density")
    ('image', 'volume', 'array')
    """
    suffix = suffix_of(split_member(path)[0])
    return next(kind for kind, suffixes in _KINDS.items() if suffix in suffixes)


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format, in lower case."""
    name = path.name.lower()
    for suffix in (suffix for suffixes in _KINDS.values() for suffix in suffixes):
        if name.endswith(suffix):
            return suffix
    if name.endswith(".field") and path.exists():
        raise problem(
            "path", path, "samples", f"It is a field already: kronfield render {path}, or kf.load."
        )
    raise problem(
        "path",
        path,
        f"a name that ends in one of: {_supported()}",
        "The extra in brackets must be installed.",
    )


def split_member(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """Split ``file.npz:name`` into the file and the name of an array, variable or sheet in it."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise problem(
            "path", repr(text), "a str or a pathlib.Path", "Decode it with os.fsdecode.", TypeError
        )
    for suffix in _WITH_MEMBERS:
        at = text.lower().rfind(f"{suffix}:")
        if at >= 0 and not os.path.exists(text):
            end = at + len(suffix)
            return Path(text[:end]), text[end + 1 :]
    return Path(text), None


def _supported() -> str:
    """Return the suffixes of each kind, with the extras that they need."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for kind, suffixes in _KINDS.items():
        for suffix in suffixes:
            groups.setdefault((kind, _EXTRAS.get(suffix)), []).append(suffix)
    return "; ".join(
        f"{kind} {' '.join(suffixes)}" + (f" [kronfield[{needs}]]" if needs else "")
        for (kind, needs), suffixes in groups.items()
    )
