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
    from kronfield.signals.report.held_out import HeldOut

# The colour scale of errors ends at this quantile: a few outliers must not make the rest grey.
MOST = 0.998


def fit_pictures(found: Diagnosis) -> dict[str, bytes]:
    """Return the pictures of a report as PNG, by name.

    The names are input, reconstruction, error, between, held-out, uncertainty, spectrum and choice.
    Those with nothing to show are left out. Where the field passes through the samples, these are
    error and, for pictures and maps, reconstruction.
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
    if found.interpolates:  # the field equals the samples there: leave these pictures out
        del pictures["error"]
        if shown.form in ("picture", "map"):
            del pictures["reconstruction"]
    if found.zooms:
        pictures["between"] = _between(found)
    if found.held_out is not None:
        pictures["held-out"] = _held_out(found.held_out, shown)
    if found.spread is not None:
        pictures["uncertainty"] = _uncertainty(found)
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


# Between the samples
# ------------------------------------------------------------------------------------------


def _between(found: Diagnosis) -> Any:
    """Draw the samples and the field in the places with most detail, above each other."""
    count, shown = len(found.zooms), found.shown
    if shown.form == "line":
        figure = new_figure(3.4 * count, 2.8)
        for ax, zoom in zip(np.atleast_1d(figure.subplots(1, count)), found.zooms, strict=True):
            ax.plot(zoom.fine_x, zoom.fine, color=COLOURS[0], linewidth=1.4)
            ax.plot(zoom.x, zoom.samples, "o", color=COLOURS[7], markersize=4)
            ax.set(xlabel=shown.names[0])
            tidy(ax)
        return figure
    figure = new_figure(2.6 * count + 0.4, 5.6)
    places = np.reshape(figure.subplots(2, count), (2, count))
    colours = shown.form == "picture"
    for column, zoom in zip(places.T, found.zooms, strict=True):
        low, high = (
            (0.0, 1.0)
            if colours
            else (float(np.nanmin(zoom.samples)), float(np.nanmax(zoom.samples)))
        )
        where = f"{shown.names[1]} {zoom.rows.start}, {shown.names[0]} {zoom.columns.start}"
        for ax, values, title in (
            (column[0], zoom.samples, f"samples from\n{where}" if colours else "samples"),
            (column[1], zoom.fine, "the field"),
        ):
            ax.imshow(
                np.clip(values, 0, 1) if colours else values,
                cmap="gray" if colours else "viridis",
                vmin=low,
                vmax=high if high > low else low + 1,
                interpolation="nearest",
                aspect="auto",
            )
            ax.set_title(title, fontsize=9)
            ax.set_xticks([])
            ax.set_yticks([])
    return figure


def _held_out(found: HeldOut, shown: Shown) -> Any:
    """Draw the errors of the field at held-out samples, beside the error of other methods."""
    figure = new_figure(9.4, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    factor = 255.0 if shown.form == "picture" else 1.0
    limit = _limit(found.error) * factor
    style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    if found.points is not None and found.points.shape[1] == 2:
        (a, b) = (1, 0) if shown.turned else (0, 1)
        image = left.scatter(found.points[:, a], found.points[:, b], c=found.error, s=9, **style)
        left.set(xlabel=shown.names[0], ylabel=shown.names[1])
        figure.colorbar(image, ax=left, extend="both")
    elif found.error.ndim >= 2 and found.points is None:
        plane = found.error[(*[n // 4 * 2 + 1 for n in _lead(found.error)],)]
        image = left.imshow(factor * plane, interpolation="nearest", aspect="auto", **style)
        left.set(xticks=[], yticks=[])
        figure.colorbar(image, ax=left, label=shown.unit, extend="both")
    elif found.x is not None:
        left.plot(found.x, found.error, ".", color=COLOURS[1], markersize=4)
        left.axhline(0, color="black", linewidth=0.6)
        left.set(xlabel=shown.names[0], ylabel="error")
        tidy(left)
    else:
        left.hist(found.error, bins=60, color=COLOURS[1])
        left.set(xlabel="error", ylabel="points")
        tidy(left)
    left.set_title(f"Error of the field where {found.given}", fontsize=10)
    names, errors = list(found.errors), factor * np.array(list(found.errors.values()))
    bars = right.barh(names[::-1], errors[::-1], color=COLOURS[0])
    right.bar_label(bars, fmt="%.3g", padding=3, fontsize=9)
    right.set_xlim(0, 1.25 * float(errors.max()) or 1.0)
    right.set_title(f"rms error{f' [{shown.unit}]' if factor > 1 else ''}", fontsize=10)
    tidy(right)
    return figure


def _lead(error: Any) -> tuple[int, ...]:
    """Return the lengths of the axes before the last two, of which the middle is shown."""
    return tuple(error.shape[:-2])


def _uncertainty(found: Diagnosis) -> Any:
    """Draw the standard error: a band around a line, or a map."""
    spread, shown = found.spread, found.shown
    assert spread is not None
    if spread.x is not None:
        assert spread.mean is not None
        figure = new_figure(9.0, 3.2)
        ax = figure.subplots()
        twice = 2 * spread.values
        ax.fill_between(
            spread.x, spread.mean - twice, spread.mean + twice, color=COLOURS[0], alpha=0.25
        )
        ax.plot(spread.x, spread.mean, color=COLOURS[0], linewidth=1.2)
        ax.set(title="The field, and twice its standard error", xlabel=shown.names[0])
        tidy(ax)
        return figure
    figure = new_figure(7.0, 5.0)
    ax = figure.subplots()
    image = ax.imshow(spread.values, extent=spread.extent, cmap="magma", aspect="auto")
    ax.set(title="Standard error of the field", xlabel=shown.names[0], ylabel=shown.names[1])
    figure.colorbar(image, ax=ax)
    return figure


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
