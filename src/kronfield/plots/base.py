"""Figures without a window system, and how they are saved."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kronfield._core.arrays import problem
from kronfield._core.atomic import refuse_existing, replacing

# Colours that colour-blind readers can distinguish, and dashes for lines of similar colour. The
# first seven colours are Paul Tol's "bright" scheme.
COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
    "#222222",
    "#ee7733",
)
DASHES = ("-", "--", "-.", (0, (1, 1)))
# Resolutions of pictures in separate files, and of pictures in a report.
DPI, REPORT_DPI = 150, 120
# The longest and the shortest side of a picture in a report, in inches.
LONG, SHORT = 7.0, 2.6


def new_figure(width: float, height: float) -> Any:
    """Return a Matplotlib figure that needs no window system."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise problem(
            "plot",
            "a Python without matplotlib",
            "matplotlib",
            "Install it with: pip install 'kronfield[plots]'",
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def shown_figure(width: float = 6.4, height: float = 4.2) -> Any:
    """Return a figure that notebooks and windows show."""
    new_figure(1.0, 1.0)  # raises an error that explains the installation if Matplotlib is missing
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), layout="constrained")


def picture_frame(
    height: float, width: float, title: str, names: tuple[str, str], *, bar: bool
) -> tuple[Any, Any]:
    """Return a figure in the proportions of a picture, and its axes.

    ``names`` are the names of the horizontal and the vertical axis. ``bar`` leaves room for a
    colour bar.
    """
    scale = LONG / max(height, width)
    figure = new_figure(
        max(SHORT, width * scale) + (1.9 if bar else 0.6), max(SHORT, height * scale) + 0.7
    )
    axes = figure.subplots()
    axes.set(title=title, xlabel=names[0], ylabel=names[1])
    return figure, axes


def draw_power(axes: Any, frequencies: Any, curves: Mapping[str, Any]) -> None:
    """Draw power spectra, each with its label."""
    for i, (label, values) in enumerate(curves.items()):
        axes.semilogy(
            frequencies, values, color=COLOURS[i], linestyle=DASHES[i], label=label, linewidth=1.6
        )
    axes.set(title="Power by frequency", xlabel="cycles per sample", ylabel="power")
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raise an error, before any work is done, if a plot cannot be written to ``path``."""
    known = sorted(new_figure(1.0, 1.0).canvas.get_supported_filetypes())
    suffix = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if suffix not in known:
        raise problem(
            "plot",
            os.fspath(path),
            f"a file name that ends in one of {known}",
            "For example: analysis.png",
        )
    refuse_existing(Path(path), overwrite)


def save_figure(figure: Any, path: str | os.PathLike[str], overwrite: bool, dpi: int = DPI) -> None:
    """Write a figure, atomically; equal figures give equal files."""
    import matplotlib

    check_target(path, overwrite=overwrite)
    metadata = {"Date": None} if os.path.splitext(os.fspath(path))[1].lower() == ".svg" else None
    fixed_ids = matplotlib.rc_context({"svg.hashsalt": "kronfield"})
    with replacing(path, overwrite=overwrite) as temporary, fixed_ids:
        figure.savefig(temporary, dpi=dpi, metadata=metadata)


def png_bytes(figure: Any) -> bytes:
    """Return a figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=REPORT_DPI)
    return buffer.getvalue()


def tidy(axes: Any) -> None:
    """Draw a light grid, and remove the top and right borders."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
