"""The candidates of a choice and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import problem
from kronfield.plots.base import COLOURS, shown_figure, tidy

if TYPE_CHECKING:
    from kronfield.fitting.report import Candidate


def candidates_height(count: int) -> float:
    """Return the height in inches of a figure of this many candidates."""
    return 1.4 + 0.24 * count


def draw_candidates(candidates: Sequence[Candidate], ax: Any = None) -> Any:
    """Draw the score of each candidate on its own line, chosen ones in another colour."""
    if not candidates:
        raise problem(
            "plot",
            "a fit whose settings were all given",
            "a fit that chose among candidates",
            "Leave encoding, ridge and roughness out.",
        )
    if ax is None:
        ax = shown_figure(9.0, candidates_height(len(candidates))).subplots()
    scores = np.array([one.score for one in candidates])
    errors = np.array([one.standard_error for one in candidates])
    best = np.array([one.chosen for one in candidates])
    rows = np.arange(len(scores))[::-1]
    ax.hlines(rows, 0, scores, color="#dddddd", linewidth=1.0)
    known = np.isfinite(errors)
    ax.errorbar(
        scores[known], rows[known], xerr=errors[known], fmt="none", ecolor="#999999", linewidth=1.0
    )
    ax.plot(scores, rows, "o", color=COLOURS[0], markersize=5)
    ax.plot(scores[best], rows[best], "o", color=COLOURS[1], markersize=7, label="chosen")
    ax.set_yticks(rows, [str(one) for one in candidates], fontsize=8)
    finite = scores[np.isfinite(scores) & (scores > 0)]
    if finite.size and finite.max() > 20 * finite.min():
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0)
    ax.set(title="Candidates", xlabel="score: lower is better")
    ax.legend(frameon=False, fontsize=9)
    tidy(ax)
    return ax
