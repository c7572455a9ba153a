"""The pictures of a report on a change of samples: before, after, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield.plots.base import COLOURS, draw_power, new_figure, picture_frame, png_bytes, tidy

if TYPE_CHECKING:
    from kronfield.signals.report.changes import Change

# The colour scale of the difference ends at this quantile: a few large values must not hide the
# rest.
MOST = 0.998
# The colour of holes, which is rare in photographs.
HOLES = (1.0, 0.0, 1.0)


def change_pictures(found: Change) -> dict[str, bytes]:
    """Return the pictures as PNG, by name: before, after, removed (if there are no holes).

    If the power spectra are known, spectrum shows those of all three.
    """
    pictures = _line(found) if found.form == "line" else _grids(found)
    if found.power is not None:
        pictures["spectrum"] = _spectrum(found)
    return {name: png_bytes(figure) for name, figure in pictures.items()}


def _grids(found: Change) -> dict[str, Any]:
    colours = found.form == "picture"
    before, after = found.before, found.after
    finite = after[np.isfinite(after)]
    low, high = (0.0, 1.0) if colours else (float(finite.min()), float(finite.max()))
    scale = {"vmin": low, "vmax": high if high > low else low + 1}
    result = {}
    for name, title, values in (("before", "Before", before), ("after", "After", after)):
        figure, axes = _frame(found, title, bar=not colours)
        if colours:
            values = np.clip(values, 0, 1)
        image = axes.imshow(
            values,
            cmap="gray" if colours else "viridis",
            interpolation="nearest",
            extent=found.extent,
            **scale,
        )
        if found.holes is not None and name == "before":
            marked = np.zeros((*found.holes.shape, 4))
            marked[found.holes] = (*HOLES, 1.0)
            axes.imshow(marked, interpolation="nearest", extent=found.extent)
        if not colours:
            figure.colorbar(image, ax=axes, label=found.unit)
        result[name] = figure
    if found.holes is None:
        result["removed"] = _removed(found)
    return result


def _removed(found: Change) -> Any:
    """Draw before minus after: grey where they are equal; in colour if the samples are colours."""
    difference = (found.before.astype(np.float64) - found.after) * found.scale
    limit = float(np.quantile(np.abs(difference), MOST)) or 1.0
    coloured = difference.ndim == 3
    figure, axes = _frame(found, "Taken away: before minus after", bar=not coloured)
    if coloured:
        axes.imshow(
            np.clip(0.5 + difference / (2 * limit), 0, 1),
            interpolation="nearest",
            extent=found.extent,
        )
        axes.set_title(f"Taken away: black and white are ±{limit:.3g} {found.unit}".rstrip())
    else:
        image = axes.imshow(
            difference,
            cmap="gray",
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
            extent=found.extent,
        )
        figure.colorbar(image, ax=axes, label=found.unit, extend="both")
    return figure


def _frame(found: Change, title: str, *, bar: bool) -> tuple[Any, Any]:
    """Return a figure in the proportions of the picture, and its axes."""
    height, width = found.before.shape[:2]
    return picture_frame(height, width, title, found.names, bar=bar)


def _line(found: Change) -> dict[str, Any]:
    assert found.x is not None
    result = {}
    finite = found.after[np.isfinite(found.after)]
    ends = (float(finite.min()), float(finite.max()))
    for name, title, values in (
        ("before", "Before", found.before),
        ("after", "After", found.after),
        ("removed", "Taken away: before minus after", found.before - found.after),
    ):
        if name == "removed" and found.holes is not None:
            continue
        figure = new_figure(9.0, 3.2)
        axes = figure.subplots()
        axes.plot(found.x, values, color=COLOURS[1 if name == "removed" else 0], linewidth=1.1)
        axes.set(title=title, xlabel=found.names[0], ylabel=found.names[1])
        if name == "before" and found.holes is not None:
            axes.fill_between(
                found.x, *ends, where=found.holes, color=HOLES, alpha=0.3, linewidth=0, step="mid"
            )
        tidy(axes)
        result[name] = figure
    return result


def _spectrum(found: Change) -> Any:
    power = found.power
    assert power is not None
    figure = new_figure(6.2, 3.8)
    curves = {"before": power.samples, "after": power.fitted, "taken away": power.error}
    draw_power(figure.subplots(), power.frequencies, curves)
    return figure
