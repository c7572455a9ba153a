"""The report of a fit: a page with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kronfield.cli.common import Output

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.files import Signal


def check_folder(folder: Path, *, force: bool) -> None:
    """Check, before any work is done, that the folder can be used and Matplotlib is installed."""
    from kronfield.plots.base import new_figure
    from kronfield.signals.report.page import check_report_folder

    new_figure(1.0, 1.0)
    check_report_folder(folder, overwrite=force)


def write_fit_report(
    folder: Path, signal: Signal, field: Field, out: Output, *, force: bool
) -> None:
    """Write the report and print its path."""
    from kronfield.signals.report.page import write_report

    with out.working("Drawing the report"):
        written = write_report(folder, signal, field, overwrite=force)
    out.say(f"Wrote {written[-1]} and {len(written) - 1} pictures beside it")
