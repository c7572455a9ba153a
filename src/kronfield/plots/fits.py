"""The pictures of a report: samples, field, error, spectra, and how settings compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield.plots.base import (
    COLOURS,
    DASHES,
    draw_power,
    new_figure,
    picture_frame,
    png_bytes,
    tidy,
)
from kronfield.plots.choices import candidates_height, draw_candidates

if TYPE_CHECKING:
    from kronfield.signals.report.curves import ScoreCurve
    from kronfield.signals.report.diagnosis import Diagnosis, Shown

# The colour scale of errors ends at this quantile: a few outliers must not make the rest grey.
MOST = 0.998


def fit_pictures(found: Diagnosis) -> dict[str, bytes]:
    """Return the pictures of a report as PNG, by name.

    The names are input, reconstruction, error, spectrum and choice. The last two are left out if
    there is nothing to show.
    """
    shown = found.shown
    draw = {
        "picture": _grids,
        "map": _grids,
        "line": _lines,
        "points": _points,
        "scatter": _scatter,
    }[shown.form]
    pictures: dict[str, Any] = draw(shown)
    if found.power is not None or found.axes:
        pictures["spectrum"] = _spectra(found)
    if found.curves:
        pictures["choice"] = _choice(found.curves)
    elif len(found.candidates) > 1:
        pictures["choice"] = _candidates(found)
    return {name: png_bytes(figure) for name, figure in pictures.items()}


# Samples, field, error
# ------------------------------------------------------------------------------------------


def _grids(shown: Shown) -> dict[str, Any]:
    colours = shown.form == "picture"
    finite = shown.samples[np.isfinite(shown.samples)]
    low, high = (0.0, 1.0) if colours else (float(finite.min()), float(finite.max()))
    result = {}
    for name, title, values in (
        ("input", "The samples", shown.samples),
        ("reconstruction", "The field at the samples", shown.fitted),
    ):
        figure, axes, aspect = _frame(shown, title, bar=not colours)
        image = axes.imshow(
            values,
            cmap="gray" if colours else "viridis",
            vmin=low,
            vmax=high if high > low else low + 1,
            interpolation="nearest",
            extent=shown.extent,
            aspect=aspect,
        )
        if not colours:
            figure.colorbar(image, ax=axes)
        result[name] = figure
    figure, axes, aspect = _frame(shown, "Error: field minus samples", bar=True)
    limit = _limit(shown.error)
    image = axes.imshow(
        shown.error,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
        extent=shown.extent,
    )
    figure.colorbar(image, ax=axes, label=shown.unit, extend="both")
    result["error"] = figure
    return result


def _frame(shown: Shown, title: str, *, bar: bool) -> tuple[Any, Any, str]:
    """Return a figure in the proportions of the picture, its axes, and their aspect."""
    height, width = shown.samples.shape[:2]
    if shown.extent is not None:
        width, height = (
            abs(shown.extent[1] - shown.extent[0]),
            abs(shown.extent[3] - shown.extent[2]),
        )
    aspect = "auto" if max(height, width) > 6 * min(height, width) else "equal"
    return *picture_frame(height, width, title, shown.names, bar=bar), aspect


def _limit(error: Any) -> float:
    size = np.abs(error[np.isfinite(error)])
    return float(np.quantile(size, MOST)) or float(size.max(initial=0.0)) or 1.0


def _lines(shown: Shown) -> dict[str, Any]:
    result = {}
    for name, title in (("input", "The samples"), ("reconstruction", "The field, and the samples")):
        figure = new_figure(9.0, 3.2)
        axes = figure.subplots()
        if name == "reconstruction":
            axes.plot(shown.fine_x, shown.fine, color=COLOURS[0], linewidth=1.2, label="field")
        axes.plot(shown.x, shown.samples, ".", color=COLOURS[7], markersize=3.5, label="samples")
        axes.set(title=title, xlabel=shown.names[0], ylabel=shown.names[1])
        if name == "reconstruction":
            figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        tidy(axes)
        result[name] = figure
    figure = new_figure(9.0, 3.2)
    axes = figure.subplots()
    axes.axhline(0, color="black", linewidth=0.6)
    axes.vlines(shown.x, 0, shown.error, color=COLOURS[1], linewidth=1.0)
    axes.set(title="Error: field minus samples", xlabel=shown.names[0], ylabel="error")
    tidy(axes)
    result["error"] = figure
    return result


def _points(shown: Shown) -> dict[str, Any]:
    assert shown.x is not None
    low, high = float(shown.samples.min()), float(shown.samples.max())
    limit = _limit(shown.error)
    size = float(np.clip(4000 / max(len(shown.samples), 1), 2, 40))
    style: dict[str, Any] = {"s": size, "linewidths": 0.3, "edgecolors": "black"}
    result = {}
    for name, title in (
        ("input", "The samples"),
        ("reconstruction", "The field"),
        ("error", "Error at the points: field minus samples"),
    ):
        figure = new_figure(7.0, 5.4)
        axes = figure.subplots()
        if name == "input":
            image = axes.scatter(
                *shown.x.T, c=shown.samples, vmin=low, vmax=high, cmap="viridis", **style
            )
        elif name == "reconstruction":
            image = axes.imshow(
                shown.fine, extent=shown.extent, vmin=low, vmax=high, cmap="viridis", aspect="auto"
            )
            axes.plot(*shown.x.T, ".", color="black", markersize=1.5, alpha=0.5)
        else:
            image = axes.scatter(
                *shown.x.T, c=shown.error, vmin=-limit, vmax=limit, cmap="RdBu_r", **style
            )
        assert shown.extent is not None
        axes.set(title=title, xlabel=shown.names[0], ylabel=shown.names[1])
        rim = 0.02 if name != "reconstruction" else 0.0  # a margin, so that no dot is clipped
        left, right, bottom, top = shown.extent
        axes.set_xlim(left - rim * (right - left), right + rim * (right - left))
        axes.set_ylim(bottom - rim * (top - bottom), top + rim * (top - bottom))
        figure.colorbar(
            image, ax=axes, label=shown.unit, extend="both" if name == "error" else "neither"
        )
        result[name] = figure
    return result


def _scatter(shown: Shown) -> dict[str, Any]:
    result = {}
    figure = new_figure(6.0, 4.0)
    axes = figure.subplots()
    axes.hist(shown.samples, bins=60, color=COLOURS[0])
    axes.set(title="The samples", xlabel=shown.names[0], ylabel="points")
    tidy(axes)
    result["input"] = figure
    figure = new_figure(5.4, 5.0)
    axes = figure.subplots()
    ends = [float(shown.samples.min()), float(shown.samples.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.plot(shown.samples, shown.fitted, ".", color=COLOURS[0], markersize=2, alpha=0.5)
    axes.set(title="The field at the points", xlabel=shown.names[0], ylabel=shown.names[1])
    tidy(axes)
    result["reconstruction"] = figure
    figure = new_figure(6.0, 4.0)
    axes = figure.subplots()
    axes.hist(shown.error[np.isfinite(shown.error)], bins=60, color=COLOURS[1])
    axes.set(title="Error: field minus samples", xlabel="error", ylabel="points")
    tidy(axes)
    result["error"] = figure
    return result


# Spectra and choices
# ------------------------------------------------------------------------------------------


def _spectra(found: Diagnosis) -> Any:
    panels = (found.power is not None) + bool(found.axes)
    figure = new_figure(5.2 * panels, 3.8)
    places = list(np.atleast_1d(figure.subplots(1, panels)))
    if found.power is not None:
        power = found.power
        curves = {"samples": power.samples, "field": power.fitted, "error": power.error}
        draw_power(places.pop(0), power.frequencies, curves)
    if found.axes:
        axes = places.pop(0)
        for i, one in enumerate(found.axes):
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
            label = f"{one.name}: stable rank {one.stable_rank:.1f}"
            axes.semilogy(
                np.arange(1, len(one.values) + 1),
                np.maximum(one.values, 1e-17),
                label=label,
                linewidth=1.6,
                **style,
            )
        axes.set(
            title="Singular values of the encoding",
            xlabel="number",
            ylabel="relative to the largest",
        )
        least = min(float(one.values.min()) for one in found.axes)
        if least > 0.1:
            axes.set_yscale("linear")
            axes.set_ylim(0, 1.1)
        else:
            axes.set_ylim(bottom=max(1e-17, 0.5 * least))
        axes.legend(frameon=False, fontsize=9)
        tidy(axes)
    return figure


def _choice(curves: list[ScoreCurve]) -> Any:
    figure = new_figure(5.2 * len(curves), 3.8)
    for axes, curve in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves, strict=True):
        axes.plot(curve.x, curve.scores, "o-", color=COLOURS[0], markersize=4, linewidth=1.4)
        if curve.chosen is not None:
            axes.axvline(
                curve.chosen,
                color=COLOURS[1],
                linestyle="--",
                linewidth=1.4,
                label=f"chosen: {curve.chosen:.3g}",
            )
        else:
            axes.plot([], [], " ", label=f"chosen: {curve.instead}")
        finite = curve.scores[np.isfinite(curve.scores) & (curve.scores > 0)]
        if curve.x.min() > 0 and curve.x.max() > 4 * curve.x.min():
            axes.set_xscale("log")
            _plain_ticks(axes, curve.x)
        if finite.size and finite.max() > 20 * finite.min():
            axes.set_yscale("log")
        axes.set(title=curve.title, xlabel=curve.x_label, ylabel=curve.y_label)
        axes.legend(frameon=False, fontsize=9)
        tidy(axes)
    return figure


def _plain_ticks(axes: Any, x: Any) -> None:
    """Label 1, 2 and 5 of each decade if there are few decades; do not label minor ticks.

    Labels of minor ticks would overlap.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    if x.max() < 100 * x.min():
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _candidates(found: Diagnosis) -> Any:
    """Draw the score of each candidate."""
    figure = new_figure(9.0, candidates_height(len(found.candidates)))
    draw_candidates(found.candidates, figure.subplots())
    return figure
