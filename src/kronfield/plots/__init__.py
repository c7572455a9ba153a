"""Plots of results. Only this package imports Matplotlib. It computes only values of fields."""

from kronfield.plots.base import COLOURS, DASHES, check_target
from kronfield.plots.changes import change_pictures
from kronfield.plots.contests import save_contest
from kronfield.plots.curves import save_comparison
from kronfield.plots.fields import draw_field
from kronfield.plots.fits import fit_pictures

__all__ = [
    "COLOURS",
    "DASHES",
    "change_pictures",
    "check_target",
    "draw_field",
    "fit_pictures",
    "save_comparison",
    "save_contest",
]
