"""Pictures of results. Matplotlib only here, imported on use; nothing is computed here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kronfield._arrays import problem
from kronfield._atomic import refuse_existing, replacing

if TYPE_CHECKING:
    from kronfield.analysis import RankCurve, SimilarityCurve

# Colours that stay apart for colour-blind readers, and dashes that tell apart what they cannot.
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222", "#ee7733")
DASHES = ("-", "--", "-.", (0, (1, 1)))
# How far the inset of the similarity curves goes: local embedders differ only there.
NEAR = 0.1


def _figure(width: float, height: float) -> Any:
    """Return a matplotlib Figure that belongs to no window system."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise problem(
            "plot", "a Python without matplotlib", "matplotlib", "Install it with: pip install 'kronfield[plots]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse, before any work is done, a file that cannot be written or that exists and may not be replaced."""
    known = sorted(_figure(1.0, 1.0).canvas.get_supported_filetypes())
    suffix = os.path.splitext(os.fspath(path))[1].lstrip(".").lower()
    if suffix not in known:
        raise problem("plot", os.fspath(path), f"a file name that ends in one of {known}", "For example: analysis.png")
    refuse_existing(Path(path), overwrite)


def _save(figure: Any, path: str | os.PathLike[str], overwrite: bool) -> None:
    check_target(path, overwrite=overwrite)
    with replacing(path, overwrite=overwrite) as temporary:
        figure.savefig(temporary, dpi=150)


def save_comparison(
    path: str | os.PathLike[str],
    ranks: Mapping[str, RankCurve],
    similarities: Mapping[str, SimilarityCurve],
    *,
    overwrite: bool = True,
) -> None:
    """Draw stable rank against samples, and similarity against distance, for all embedders side by side.

    Lines are measured; dots are theory where there is one.
    """
    figure = _figure(12.0, 4.8)
    left, right = figure.subplots(1, 2)
    zoom = right.inset_axes((0.62, 0.57, 0.36, 0.4))
    zoom.text(0.97, 0.6, f"distances up to {NEAR:g}", transform=zoom.transAxes, ha="right", fontsize=7, alpha=0.7)
    zoom.tick_params(labelsize=7)
    for i, (name, rank) in enumerate(ranks.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
        left.plot(rank.counts, rank.measured, label=name, linewidth=1.8, **style)
        if rank.theory is not None:
            left.plot(rank.counts, rank.theory, ".", color=style["color"], markersize=7, alpha=0.7)
        curve = similarities[name]
        right.plot(curve.distances, curve.measured, label=name, linewidth=1.8, **style)
        near = curve.distances <= NEAR
        zoom.plot(curve.distances[near], curve.measured[near], linewidth=1.4, **style)
        stride = max(1, len(curve.distances) // 40)
        right.plot(curve.distances[::stride], curve.theory[::stride], ".", color=style["color"], markersize=4, alpha=0.7)
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    left.xaxis.set_major_formatter("{x:g}")
    left.yaxis.set_major_formatter("{x:g}")
    left.set(xlabel="samples N", ylabel="stable rank", title="Memorisation: rank against samples")
    right.set(
        xlabel="distance, in units of the domain",
        ylabel="similarity D(d) / D(0)",
        title="Generalisation: similarity against distance",
    )
    for axes in (left, right, zoom):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False, fontsize=9)
    left.text(0.02, 0.96, "lines: measured   dots: theory", transform=left.transAxes, va="top", fontsize=8, alpha=0.7)
    _save(figure, path, overwrite)
