"""A report on a fit: pictures, and one page that holds them all and needs nothing from elsewhere."""

from __future__ import annotations

import base64
import html
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from kronfield._core.arrays import problem
from kronfield.field import Field
from kronfield.files import Signal
from kronfield.fitting.report import Candidate, taken
from kronfield.plots import fit_pictures
from kronfield.signals.facts import field_facts, told_facts
from kronfield.signals.report.diagnosis import Diagnosis, diagnose

PAGE = "index.html"
_CAPTIONS = {
    "input": "What was fitted. Of volumes and films the middle is shown, of sound a part of one channel.",
    "reconstruction": "The field, evaluated where the samples are.",
    "error": "Red where the field is above the samples, blue where it is below. The few largest are cut off.",
    "spectrum": "Left, of grids: how much of each frequency is in the samples, in the field, and in the error. "
    "Right: how far the features of an axis can be told apart at its samples.",
    "choice": "How other settings would have done, on the middle of the samples; lower is better.",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; } td { white-space: pre-line; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; } p { margin: .2rem 0; color: #555; } .best td { font-weight: 600; }
"""


def check_report_folder(folder: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse a place that cannot hold a report: a file, or a folder with something in it that may not be replaced."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise problem("report", target, "a folder", "It is a file: choose another name.")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise problem(
            "report",
            f"{target}, which is not empty",
            "a new folder",
            "Allow overwriting (--force).",
        )
    if not target.parent.is_dir():
        raise problem(
            "report", target, "a folder in one that exists", f"Create {target.parent} first."
        )


def write_report(
    folder: str | os.PathLike[str], signal: Signal, field: Field, *, overwrite: bool = False
) -> list[Path]:
    """Write pictures of a fit, and a page with them, to a folder: all of them or none.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    signal : Signal
        What was fitted.
    field : Field
        The fit.
    overwrite : bool
        Whether files in a folder that is there may be replaced.

    Returns
    -------
    list of Path
        What was written; the page is last.
    """
    check_report_folder(folder, overwrite=overwrite)
    found = diagnose(signal, field)
    pictures = fit_pictures(found)
    title = f"{signal.description.source or 'A field'}, fitted by kronfield"
    page = report_page(title, told_facts(field_facts(field)), pictures, found)
    target = Path(folder)
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    part.mkdir()
    try:
        for name, data in pictures.items():
            (part / f"{name}.png").write_bytes(data)
        (part / PAGE).write_text(page, encoding="utf-8")
        if not target.exists():
            part.rename(target)
        else:
            for file in part.iterdir():
                os.replace(file, target / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return [target / f"{name}.png" for name in pictures] + [target / PAGE]


def report_page(
    title: str,
    facts: Iterable[tuple[str, str]],
    pictures: dict[str, bytes],
    found: Diagnosis | None = None,
) -> str:
    """Return an HTML page with its pictures inside."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>\n"
        for name, text in facts
    )
    figures = "".join(
        f'<h2>{html.escape(name.capitalize())}</h2>\n<img alt="{html.escape(name)}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">\n<p>{html.escape(_CAPTIONS.get(name, ""))}</p>\n'
        for name, data in pictures.items()
    )
    tried = _tried(found.candidates) if found is not None else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
        f"<table>\n{rows}</table>\n{figures}{tried}</body>\n</html>\n"
    )


def _tried(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return ""
    best = taken(candidates)
    mark = ' class="best"'
    rows = "".join(
        f"<tr{mark if one is best else ''}><td>{html.escape(one.setting)}</td><td>{one.score:.4g}</td></tr>\n"
        for one in candidates
    )
    return f"<h2>What the fit tried</h2>\n<table>\n<tr><th>setting</th><th>score</th></tr>\n{rows}</table>\n"
