"""Rank and similarity curves of embedders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kronfield.plots.base import COLOURS, DASHES, new_figure, save_figure, tidy

if TYPE_CHECKING:
    from kronfield.analysis import RankCurve, SimilarityCurve

# The largest distance in the inset of the similarity curves: local embedders differ only below it.
NEAR = 0.1


def save_comparison(
    path: str | os.PathLike[str],
    ranks: Mapping[str, RankCurve],
    similarities: Mapping[str, SimilarityCurve],
    *,
    overwrite: bool = True,
) -> None:
    """Draw stable rank against samples, and similarity against distance, for all embedders.

    Lines are measured values; dots are theory, if there is one.
    """
    figure = new_figure(12.0, 4.8)
    left, right = figure.subplots(1, 2)
    zoom = right.inset_axes((0.62, 0.57, 0.36, 0.4))
    zoom.text(
        0.97,
        0.6,
        f"distances up to {NEAR:g}",
        transform=zoom.transAxes,
        ha="right",
        fontsize=7,
        alpha=0.7,
    )
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
        right.plot(
            curve.distances[::stride],
            curve.theory[::stride],
            ".",
            color=style["color"],
            markersize=4,
            alpha=0.7,
        )
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
        tidy(axes)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(5, len(labels)),
        frameon=False,
        fontsize=9,
    )
    left.text(
        0.02,
        0.96,
        "lines: measured   dots: theory",
        transform=left.transAxes,
        va="top",
        fontsize=8,
        alpha=0.7,
    )
    save_figure(figure, path, overwrite)
