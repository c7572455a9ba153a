"""Plots that compare several results."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield.plots.base import COLOURS, new_figure, save_figure, tidy

if TYPE_CHECKING:
    from kronfield.signals.contest import Contestant

# Pictures in a row.
COLUMNS = 5


def save_contest(
    path: str | os.PathLike[str],
    contestants: Sequence[Contestant],
    *,
    truth: Any = None,
    line: Any = None,
    picture: bool = True,
    names: tuple[str, str] = ("", ""),
    overwrite: bool = True,
) -> None:
    """Draw a part of every result with its PSNR, best first; ``truth`` comes before them.

    ``line`` holds the positions if the values are along an axis. ``picture`` states that the values
    are colours from 0 to 1.
    """
    ranked = sorted(
        (one for one in contestants if one.picture is not None), key=lambda one: -one.psnr
    )
    titles = [] if truth is None else ["the samples"]
    titles += [f"{one.name}\n{one.psnr:.2f} dB" for one in ranked]
    panels = ([] if truth is None else [truth]) + [one.picture for one in ranked]
    if line is not None:
        figure = _lines(titles, panels, truth is not None, line, names)
    else:
        figure = _pictures(titles, [_flat(panel) for panel in panels], picture)
    save_figure(figure, path, overwrite)


def _pictures(titles: list[str], flat: list[Any], picture: bool) -> Any:
    """Return a figure of pictures; without ``picture``, all have the value range of the first."""
    columns = min(COLUMNS, len(flat))
    rows = math.ceil(len(flat) / columns)
    height, width = flat[0].shape[:2]
    figure = new_figure(2.3 * columns, (2.3 * max(0.4, min(2.0, height / width)) + 0.5) * rows)
    places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    low, high = (0.0, 1.0) if picture else (float(np.nanmin(flat[0])), float(np.nanmax(flat[0])))
    for axes, title, panel in zip(places, titles, flat, strict=False):
        values = np.clip(panel, 0, 1) if picture else panel
        axes.imshow(
            values,
            cmap="gray" if picture else "viridis",
            vmin=low,
            vmax=high,
            interpolation="nearest",
        )
        axes.set_title(title, fontsize=9)
    for axes in places:
        axes.set_axis_off()
    return figure


def _flat(panel: Any) -> Any:
    """Return (h, w) or (h, w, 3 or 4): the first entry of leading axes and of other channels."""
    values = np.asarray(panel, dtype=np.float64)
    while values.ndim > 3 or (values.ndim == 3 and values.shape[0] == 1):
        values = values[0]
    return values[..., 0] if values.ndim == 3 and values.shape[2] not in (3, 4) else values


def _lines(
    titles: list[str],
    panels: list[Any],
    known: bool,
    line: Any,
    names: tuple[str, str],
) -> Any:
    """Return a figure of values along an axis; every panel shows a ``known`` truth as dots."""
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(4.0 * columns, 2.0 * rows)
    places = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    flat = [panel[:, 0] if panel.ndim == 2 else panel for panel in panels]
    spread = float(np.ptp(flat[0])) or 1.0
    for axes, title, panel in zip(places, titles, flat, strict=False):
        if known:
            axes.plot(line, flat[0], ".", color=COLOURS[7], markersize=3)
        axes.plot(line, panel, color=COLOURS[0], linewidth=1.2)
        axes.set_title(title.replace("\n", ", "), fontsize=9)
        tidy(axes)
    places[0].set_ylim(float(flat[0].min()) - 0.1 * spread, float(flat[0].max()) + 0.1 * spread)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    figure.supxlabel(names[0], fontsize=9)
    figure.supylabel(names[1], fontsize=9)
    return figure
