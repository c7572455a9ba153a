"""Draw the figures of the paper's experiments; nothing is computed here.

Matplotlib is used only here and in `kronfield.plots`, and imported on use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.atomic import replacing
from kronfield.plots.base import COLOURS, DASHES, new_figure, save_figure, tidy

# The line style of each encoding, the same in every figure.
STYLES: dict[str, dict[str, Any]] = {
    "LinF": {"color": COLOURS[0], "linestyle": "-"},
    "LogF": {"color": COLOURS[1], "linestyle": "--"},
    "RFF": {"color": COLOURS[2], "linestyle": "-."},
    "Tri": {"color": COLOURS[8], "linestyle": (0, (1, 1))},
    "Gau": {"color": COLOURS[7], "linestyle": "-"},
}
MARKERS = ("o", "s", "^", "D", "v")
# The resolution of figures.
DPI = 110


class Line(Protocol):
    """A labelled curve."""

    @property
    def label(self) -> str:
        """Label in the legend."""

    @property
    def x(self) -> Array:
        """Horizontal coordinates."""

    @property
    def y(self) -> Array:
        """Vertical coordinates."""


class Panel(Protocol):
    """One panel of the figure "sampling"."""

    @property
    def title(self) -> str:
        """Title of the panel."""

    @property
    def curves(self) -> Sequence[Line]:
        """Functions of t."""

    @property
    def samples(self) -> Sequence[Line]:
        """Samples of the curves."""


def _save(figure: Any, path: str | os.PathLike[str], colours: int = 256) -> list[Path]:
    """Write a figure, with reproducible bytes; return its path."""
    save_figure(figure, path, overwrite=True, dpi=DPI)
    few_colours(Path(path), colours)
    return [Path(path)]


def few_colours(path: Path, colours: int = 256) -> None:
    """Reduce a PNG to a palette, a third of the size or less; leave other formats unchanged."""
    from PIL import Image

    if path.suffix.lower() != ".png":
        return
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    with replacing(path) as temporary:
        few.save(temporary, format="PNG", optimize=True)


def sampling(path: str | os.PathLike[str], panels: Sequence[Panel]) -> list[Path]:
    """Draw shifted bases and their samples."""
    figure = new_figure(9.0, 4.6)
    for k, (axes, panel) in enumerate(
        zip(figure.subplots(2, 2, sharex=True).flat, panels, strict=True)
    ):
        for i, (curve, dots) in enumerate(zip(panel.curves, panel.samples, strict=True)):
            axes.plot(curve.x, curve.y, color=COLOURS[i], linestyle=DASHES[i], label=curve.label)
            axes.plot(dots.x, dots.y, MARKERS[i], color=COLOURS[i], markersize=4)
        axes.set_title(panel.title, fontsize=10)
        axes.set(xlabel="t" if k >= 2 else "", ylabel="ψ(t − x)" if k % 2 == 0 else "")
        tidy(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return _save(figure, path)


def gaussian_rank(path: str | os.PathLike[str], curves: Sequence[Line], theory: Line) -> list[Path]:
    """Draw the stable rank of the Gaussian against its width."""
    figure = new_figure(6.2, 4.2)
    axes = figure.subplots()
    for i, curve in enumerate(curves):
        axes.plot(
            curve.x,
            curve.y,
            MARKERS[i],
            color=COLOURS[i],
            markersize=4,
            linestyle="-",
            linewidth=1,
            label=curve.label,
        )
    axes.plot(
        theory.x, theory.y, "--", color=COLOURS[7], linewidth=1.6, label=theory.label, zorder=3
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="width σ",
        ylabel="stable rank",
        title="Stable rank of the Gaussian",
    )
    axes.set_ylim(0.8, 1.5 * max(float(curve.y.max()) for curve in curves))
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    return _save(figure, path)


def gaussian_and_rff(
    path: str | os.PathLike[str],
    rows: Sequence[tuple[str, Sequence[Line], Sequence[Line], Sequence[float]]],
) -> list[Path]:
    """Draw rank and similarity of Gaussian and RFF across widths; theoretical limits are dotted."""
    figure = new_figure(9.6, 6.4)
    for (left, right), (title, ranks, alike, limits) in zip(
        figure.subplots(2, 2), rows, strict=True
    ):
        for i, (rank, curve, limit) in enumerate(zip(ranks, alike, limits, strict=True)):
            style = {"color": COLOURS[i], "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.7}
            left.plot(rank.x, rank.y, label=rank.label, **style)
            left.axhline(limit, color=COLOURS[i], linestyle=":", linewidth=1, alpha=0.8)
            right.plot(curve.x, curve.y, label=curve.label, **style)
        left.set_xscale("log", base=2)
        left.set_yscale("log", base=2)
        left.xaxis.set_major_formatter("{x:g}")
        left.yaxis.set_major_formatter("{x:g}")
        left.set(
            xlabel="samples N", ylabel="stable rank", title=f"{title}: stable rank (dotted: theory)"
        )
        right.set(xlabel="distance", ylabel="D(d) / D(0)", title=f"{title}: similarity")
        left.legend(frameon=False, fontsize=9)
        for axes in (left, right):
            tidy(axes)
    return _save(figure, path)


def encodings(path: str | os.PathLike[str], first: Array, second: Array) -> list[Path]:
    """Draw the features of a point, concatenated (simple) and multiplied (complex)."""
    figure = new_figure(9.6, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    K = len(first)
    left.bar(np.arange(K), first, color=COLOURS[0], label="ψ(x)")
    left.bar(np.arange(K, 2 * K), second, color=COLOURS[8], label="ψ(y)")
    left.axvline(K - 0.5, color="0.6", linewidth=1)
    left.set(
        title=f"simple: side by side, 2 K = {2 * K} features",
        xlabel="feature",
        ylabel="value",
        ylim=(0, 1.25),
    )
    left.legend(frameon=False, ncols=2, loc="upper center")
    tidy(left)
    shown = right.imshow(np.outer(first, second), cmap="Blues", vmin=0, vmax=1, origin="lower")
    right.set(
        title=f"complex: Kronecker product, K² = {K * K}",
        xlabel="feature of y",
        ylabel="feature of x",
    )
    figure.colorbar(shown, ax=right, label="ψ(x) ψ(y)")
    return _save(figure, path)


def blending(
    path: str | os.PathLike[str], left_lines: Sequence[Line], right_lines: Sequence[Line]
) -> list[Path]:
    """Draw features between two nodes, alpha_0 against beta, and its deviation from linear.

    ``right_lines`` are in the order of `STYLES`.
    """
    figure = new_figure(12.0, 3.9)
    left, right, apart = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    styles: list[dict[str, Any]] = [
        {"color": COLOURS[0], "linestyle": "--"},
        {"color": COLOURS[1], "linestyle": "-."},
        {"color": COLOURS[7], "linestyle": "-"},
        {"color": COLOURS[8], "linestyle": "", "marker": "o", "markersize": 4},
    ]
    for line, style in zip(left_lines, styles, strict=True):
        left.plot(line.x, line.y, label=line.label, **style)
    left.set(xlabel="centre of the feature", ylabel="value", title="(a) features between two nodes")
    left.legend(frameon=False, fontsize=8, loc="upper right")
    left.set_xlim(0.1, 1.0)
    for line, style in zip(right_lines, STYLES.values(), strict=True):
        right.plot(line.x, line.y, label=line.label, **style)
        apart.plot(line.x, line.y - (1 - line.x), label=line.label, **style)
    apart.axhline(0.0, color="0.6", linestyle=(0, (6, 4)), linewidth=1)
    apart.set(xlabel="β", ylabel="α₀ − (1 − β)", title="(c) the same, minus linear")
    right.plot([0, 1], [1, 0], color="0.6", linestyle=(0, (6, 4)), linewidth=1, label="linear")
    right.set(xlabel="β", ylabel="α₀", title="(b) weight by place in the cell")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right, apart):
        tidy(axes)
    return _save(figure, path)


def singular_values(
    path: str | os.PathLike[str], found: Mapping[str, Sequence[Line]]
) -> list[Path]:
    """Draw the singular values of the five encodings, on a grid and at random positions."""
    figure = new_figure(9.6, 4.2)
    for axes, (where, lines) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        for line in lines:
            axes.plot(
                line.x,
                np.maximum(line.y, 1e-18),
                label=line.label,
                linewidth=1.7,
                **STYLES[line.label],
            )
        axes.set(yscale="log", ylim=(1e-17, 3), xlabel="number", title=f"positions: {where}")
        tidy(axes)
    figure.axes[0].set_ylabel("singular value / largest")
    figure.axes[0].legend(frameon=False)
    return _save(figure, path)


def rank_depth(
    path: str | os.PathLike[str],
    found: Mapping[str, Mapping[int, Sequence[tuple[str, float, float]]]],
    caption: str,
) -> list[Path]:
    """Draw PSNR by setting for every depth.

    ``found[encoder][depth]`` is a list of (setting, mean, standard deviation).
    """
    figure = new_figure(9.0, 4.0)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (encoder, depths) in zip(panels, found.items(), strict=True):
        for i, (depth, points) in enumerate(depths.items()):
            at = np.arange(len(points)) + 0.06 * (i - 1)
            means, spreads = [p[1] for p in points], [p[2] for p in points]
            style = {
                "color": COLOURS[(0, 8, 7)[i % 3]],
                "linestyle": DASHES[i % 3],
                "marker": MARKERS[i % 5],
            }
            axes.errorbar(
                at, means, spreads, capsize=3, elinewidth=0.8, label=f"depth {depth}", **style
            )
        axes.set_xticks(range(len(points)), [p[0] for p in points])
        axes.set(title=encoder, xlabel="high rank   →   low rank")
        axes.margins(x=0.15)
        tidy(axes)
    panels[0].set_ylabel("PSNR of what was predicted, dB")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(caption, fontsize=9)
    return _save(figure, path)


def visual(
    path: str | os.PathLike[str],
    truth: Array,
    rows: Sequence[tuple[str, Sequence[tuple[str, Array | None, float]]]],
    caption: str,
) -> list[Path]:
    """Draw reconstructions with their PSNR: a row per encoding, a column per model."""
    columns = max(2, *(len(cells) for _, cells in rows))  # the caption is in the second
    figure = new_figure(2.1 * columns + 0.4, 2.35 * (len(rows) + 1))
    grid = figure.subplots(len(rows) + 1, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    grid[0][0].imshow(truth, interpolation="nearest")
    grid[0][0].set_title("original", fontsize=11, pad=3)
    grid[0][1].text(0.0, 0.5, caption, fontsize=11, va="center", transform=grid[0][1].transAxes)
    for line, (encoder, cells) in zip(grid[1:], rows, strict=True):
        for j, (axes, (title, picture, quality)) in enumerate(zip(line, cells, strict=False)):
            axes.axis("on")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if picture is not None:
                axes.imshow(picture, interpolation="nearest")
                axes.set_xlabel(f"{quality:.2f} dB", fontsize=11, labelpad=3)
            if encoder == rows[0][0]:
                axes.set_title(title, fontsize=11, pad=3)
            if j == 0:
                axes.set_ylabel(encoder, fontsize=12)
    return _save(figure, path, colours=96)
