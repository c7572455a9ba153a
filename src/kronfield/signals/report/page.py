"""A report on a fit: pictures, and one HTML page that contains them and loads nothing else."""

from __future__ import annotations

import base64
import html
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kronfield._core.arrays import problem
from kronfield.field import Field
from kronfield.files import Signal
from kronfield.fitting.report import Candidate
from kronfield.plots import fit_pictures
from kronfield.signals.facts import field_facts, told_facts
from kronfield.signals.report.diagnosis import diagnose

PAGE = "index.html"
_CAPTIONS = {
    "input": "The samples that were fitted. Of volumes and videos the middle is shown, of sound a "
    "part of one channel.",
    "reconstruction": "The field, evaluated at the samples.",
    "error": "Red where the field is above the samples, blue where it is below. The few largest "
    "errors are cut off.",
    "between": "The places where the samples have most detail: above the samples, below the field "
    "at eight times as many positions per axis; along a line, both.",
    "held-out": "Left: the error at samples that were held out, where the others were given. Of "
    "grids a part in the middle is judged. Right: the same error by other methods. Fewer samples "
    "were given than to the field above, which is better than this.",
    "uncertainty": "Where the field is uncertain: its standard error, given the noise of the "
    "samples and the penalty.",
    "spectrum": "Left, for grids: the power of the samples, of the field and of the error at each "
    "frequency. Right: the singular values of the features of an axis at its samples.",
    "choice": "The scores of other settings on the middle of the samples; lower is better.",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; }
td, th { padding: .15rem .9rem .15rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
td { white-space: pre-line; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; }
p { margin: .2rem 0; color: #555; }
.best td { font-weight: 600; }
"""


def check_report_folder(folder: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse a path that cannot hold a report.

    Refused are files, folders that are not empty unless ``overwrite`` is true, and paths in a
    folder that does not exist.
    """
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
            "report", target, "a folder inside an existing folder", f"Create {target.parent} first."
        )


def write_report(
    folder: str | os.PathLike[str], signal: Signal, field: Field, *, overwrite: bool = False
) -> list[Path]:
    """Write pictures of a fit, and a page with them, to a folder: all or none.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    signal : Signal
        The signal that was fitted.
    field : Field
        The fit.
    overwrite : bool
        Whether files in an existing folder may be replaced.

    Returns
    -------
    list of Path
        The files written; the page is last.
    """
    check_report_folder(folder, overwrite=overwrite)
    found = diagnose(signal, field)
    title = f"{signal.description.source or 'A field'}, fitted by kronfield"
    facts = told_facts(field_facts(field))
    if found.held_out is not None:
        facts.append(("error where nothing was given", str(found.held_out)))
    if found.interpolates:
        facts.append(("at the samples", "the field passes through the samples"))
    return write_folder(folder, title, facts, fit_pictures(found), found.candidates)


def write_folder(
    folder: str | os.PathLike[str],
    title: str,
    facts: Iterable[tuple[str, str]],
    pictures: dict[str, bytes],
    candidates: Sequence[Candidate] = (),
    captions: Mapping[str, str] = _CAPTIONS,
) -> list[Path]:
    """Write pictures and a page with them to a folder: all or none. Return the files written."""
    page = report_page(title, facts, pictures, candidates, captions)
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
    candidates: Sequence[Candidate],
    captions: Mapping[str, str],
) -> str:
    """Return an HTML page that contains its pictures, with a caption for each by name."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>\n"
        for name, text in facts
    )
    figures = "".join(
        f'<h2>{html.escape(name.capitalize())}</h2>\n<img alt="{html.escape(name)}" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">\n'
        f"<p>{html.escape(captions.get(name, ''))}</p>\n"
        for name, data in pictures.items()
    )
    tried = _tried(candidates)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{html.escape(title)}</h1>\n"
        f"<table>\n{rows}</table>\n{figures}{tried}</body>\n</html>\n"
    )


def _tried(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return ""
    mark = ' class="best"'
    rows = "".join(
        f"<tr{mark if one.chosen else ''}>"
        f"<td>{html.escape(str(one))}</td><td>{one.score:.4g}</td></tr>\n"
        for one in candidates
    )
    heading = "<tr><th>setting</th><th>score</th></tr>"
    return f"<h2>Candidates</h2>\n<table>\n{heading}\n{rows}</table>\n"
