"""The page of results: tables, plots and a verdict, from the rows alone; and the README table."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import TUNED
from benchmarks.frame import OURS, Row
from kronfield._core.atomic import replacing
from kronfield.experiments.tables import short
from kronfield.plots.base import COLOURS, new_figure, save_figure, tidy

START, END = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
# Titles of the sections in which methods differ in quality.
QUALITY = {
    "images": "Photographs, every second pixel given",
    "pixels": "Photographs, a quarter of the pixels given at random",
    "filling": "Photographs with missing pixels",
    "video": "Video, every second sample given",
    "lines": "Lines, every second sample given",
    "functions": "Smooth and rough functions on grids",
    "labels": "Labelled grids, every second sample given",
    "axes": "Functions on uneven and periodic lines",
    "smooth": "Smooth functions at scattered points",
    "measurements": "Real measurements",
    "dimensions": "Many dimensions",
    "chunks": "Zarr in chunks, on workers of Dask (seconds of their processors)",
    "denoising": "White noise removed",
}
# Titles of the sections in which all methods compute the same.
SPEED = {
    "closed form": "The paper's closed form, K = N, against the paper's way",
    "networks": "Networks: a step of training, against plain PyTorch",
    "playground": "The playground: from a slider's move to the answer of the server",
}
# A peer is better if its PSNR is higher by more than ALIKE_DB, and faster if its time is less than
# ALIKE_TIME times ours.
ALIKE_DB, ALIKE_TIME = 0.005, 1.0
# Rows of the README, by section.
SHOWN = {
    "images": (
        OURS,
        "kronfield, refit",
        "SciPy PchipInterpolator",
        "SciPy RectBivariateSpline, k=1",
        "Pillow resize, bicubic",
        "SciPy map_coordinates, order 3",
        "csaps, cubic",
    ),
    "pixels": (
        OURS,
        "SciPy RBFInterpolator",
        "SciPy LinearNDInterpolator",
        "scikit-learn splines and Ridge",
        "GPyTorch KISS-GP",
        "the paper's descent",
    ),
}
# The longest line of prose on a page.
LINE = 100


def load(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return the results of a run: facts about it, and its rows."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return data["about"], [Row(**row) for row in data["rows"]]


def save(folder: Path, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write results as JSON and CSV, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    tidy_rows = [{key: _rounded(value) for key, value in asdict(row).items()} for row in rows]
    _write(
        folder / "results.json",
        json.dumps({"about": dict(about), "rows": tidy_rows}, indent=1, ensure_ascii=False) + "\n",
    )
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy_rows)
    _write(folder / "results.csv", out.getvalue())


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and not value.is_integer() else value


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def ahead(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of peers that are both faster and better than ours."""
    return [row for row in rows if row.section in QUALITY and _is_ahead(row)]


def _is_ahead(row: Row) -> bool:
    if (
        row.method.startswith(OURS)
        or row.psnr is None
        or row.ours_psnr is None
        or row.ratio is None
    ):
        return False
    return row.psnr > row.ours_psnr + ALIKE_DB and row.ratio < ALIKE_TIME


def verdict(rows: Sequence[Row]) -> str:
    """Return a sentence that says whether any peer is both faster and better."""
    peers = [
        row
        for row in rows
        if row.section in QUALITY and not row.method.startswith(OURS) and row.psnr is not None
    ]
    found = ahead(rows)
    if not found:
        return (
            f"In none of {len(peers)} rows is a peer both faster and better than kronfield, "
            "nothing chosen by hand."
        )
    names = "; ".join(
        f"{row.method} ({row.case}: {row.psnr - row.ours_psnr:+.2f} dB)" for row in found
    )
    return f"In {len(found)} of {len(peers)} rows a peer is both faster and better: {names}."


def page(about: Mapping[str, Any], rows: Sequence[Row], link: str) -> str:
    """Return everything as Markdown; pictures are at ``link``."""
    parts = [_prose(_about(about)), _prose(f"**{verdict(rows)}**")]
    for section, title in QUALITY.items():
        some = [row for row in rows if row.section == section]
        if some:
            parts.append(f"## {title}")
            if section in ("images", "pixels"):
                parts.append(f"![PSNR against time]({link}/{section}.png)")
            parts += [
                quality_table(case, [row for row in some if row.case == case])
                for case in _cases(some)
            ]
    some = [row for row in rows if row.section == "coverage"]
    if some:
        lines = [f"| {row.case} | {row.note} |" for row in some]
        table = "\n".join(["| | held-out values |", "|---|---|", *lines])
        parts.append(f"## Standard errors of real measurements\n\n{table}")
    for section, title in SPEED.items():
        some = [row for row in rows if row.section == section]
        if some:
            parts.append(f"## {title}\n\n{speed_table(some)}")
    for row in rows:
        if row.section == "stream":
            text = f"{row.case}: {_time(row)}, {_memory(row)} at most ({row.note})."
            parts.append(f"## Points that go by once\n\n{_prose(text)}")
    if any(row.section == "scaling" for row in rows):
        parts.append(
            f"## Growth, and the limit\n\n![Growth]({link}/scaling.png)\n\n{scaling_table(rows)}"
        )
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Return a paragraph in lines of at most `LINE` characters."""
    return textwrap.fill(text, LINE, break_long_words=False, break_on_hyphens=False)


def _about(about: Mapping[str, Any]) -> str:
    skip = ("size", "data", "minutes", "sections", "whole")
    machine = ", ".join(f"{key} {value}" for key, value in about.items() if key not in skip)
    parts = "" if about.get("whole", True) else ", its sections not all at one time"
    run = f"One run of size *{about['size']}* on {about['data']}, {about['minutes']:.0f} minutes"
    return f"{run}{parts}. {machine}."


def _cases(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.case for row in rows))


def _time(row: Row) -> str:
    if row.seconds is None:
        return ""
    return (
        f"{_seconds(row.seconds)} ({_seconds(row.low)} to {_seconds(row.high)})"
        if row.repetitions > 1
        else _seconds(row.seconds)
    )


def _seconds(value: float | None) -> str:
    assert value is not None
    return f"{1e3 * value:.3g} ms" if value < 0.1 else f"{short(value)} s"


def quality_table(case: str, rows: Sequence[Row]) -> str:
    """Return the methods of one case, best first."""
    lines = [
        _prose(f"{case}."),
        "",
        "| | PSNR | SSIM | time | times ours | peak memory | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=_rank, reverse=True):
        bold = "**" if row.method == OURS else ""
        quality = "" if row.psnr is None else f"{bold}{row.psnr:.2f} dB{bold}"
        if row.psnr is not None and _fewer(row, rows):
            quality += f" ({_where(row)})"
        cells = [
            f"{bold}{row.method}{bold}",
            quality,
            "" if row.ssim is None else f"{row.ssim:.3f}",
            _time(row),
            "" if row.ratio is None else _ratio(row.ratio),
            _memory(row),
            row.note,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rank(row: Row) -> float:
    """Return the gain on ours on the same items; the quality where items were not recorded."""
    if row.psnr is None:
        return -math.inf
    return row.psnr - row.ours_psnr if row.items and row.ours_psnr is not None else row.psnr


def _where(row: Row) -> str:
    """Return on how many items a method was run, and our quality there."""
    count = f"on {row.items}; " if row.items else ""
    return f"{count}kronfield there {row.ours_psnr:.2f}"


def _fewer(row: Row, rows: Sequence[Row]) -> bool:
    """Return whether a method was run on fewer items than ours."""
    ours = next((one for one in rows if one.method == OURS), row)
    if row.items and ours.items:
        return row.items < ours.items
    return (
        row.ours_psnr is not None
        and ours.psnr is not None
        and abs(row.ours_psnr - ours.psnr) > 1e-9
    )


def _memory(row: Row) -> str:
    return "" if row.peak_mib is None else f"{row.peak_mib:.0f} MiB"


def _ratio(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def speed_table(rows: Sequence[Row]) -> str:
    """Return a table of methods that compute the same: our time, and ratios of the others.

    Each case is a line.
    """
    methods = [name for name in dict.fromkeys(row.method for row in rows) if name != OURS]
    memory = any(row.peak_mib is not None for row in rows)
    head = [
        "",
        "kronfield",
        *(f"{name}, times as long" for name in methods),
        *(["peak memory, ours and theirs"] if memory else []),
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for case in _cases(rows):
        by = {row.method: row for row in rows if row.case == case}
        cells = [case, _time(by[OURS]) if OURS in by else ""]
        for name in methods:
            row = by.get(name)
            cells.append(
                "" if row is None else row.note if row.ratio is None else f"{_ratio(row.ratio)}"
            )
        if memory:
            cells.append(
                " and ".join(
                    f"{row.peak_mib:.0f} MiB" for row in by.values() if row.peak_mib is not None
                )
            )
        lines.append(f"| {' | '.join(cells)} |")
    notes = sorted({row.note for row in rows if row.note.startswith("losses")})
    if len(notes) > 1:
        lines += ["", _prose(f"Both compute the same: {notes[0]} to {notes[-1]}.")]
    return "\n".join(lines)


def slope(rows: Sequence[Row]) -> float:
    """Return the exponent of growth between the last two points of a curve."""
    a, b = rows[-2:]
    return math.log(b.seconds / a.seconds) / math.log(b.x / a.x)  # type: ignore[operator]


def scaling_table(rows: Sequence[Row]) -> str:
    """Return the ends of every curve, its slope, and the distance to the limit."""
    limits = [f"{row.case} {row.x:.3g} {row.method}" for row in rows if row.section == "limits"]
    lines = [
        _prose(f"What this machine allows, measured in the same run: {'; '.join(limits)}."),
        "",
        "| | over | from | to | slope | times the limit | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    some = [row for row in rows if row.section == "scaling"]
    for case in _cases(some):
        curve = [row for row in some if row.case == case]
        title, _, over = case.partition("; ")
        ends = [
            f"{row.x:,.0f}: {_seconds(row.seconds)}".replace(",", " ")
            for row in (curve[0], curve[-1])
        ]
        last = curve[-1]
        far = (
            "" if last.limit is None or last.seconds is None else _ratio(last.seconds / last.limit)
        )
        power = "" if over == "dimensions" else f"{slope(curve):.2f}"
        memory = " to ".join(
            f"{row.peak_mib:.0f}" for row in (curve[0], last) if row.peak_mib is not None
        )
        cells = [title, over, *ends, power, far, f"{memory} MiB" if memory else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def readme_table(rows: Sequence[Row]) -> str:
    """Return the few rows that the README shows."""
    lines = ["| | PSNR | SSIM | time | times as long |", "|---|---|---|---|---|"]
    for section, names in SHOWN.items():
        # figures of the README are of photographs on which nothing was set
        some = {
            row.method: row
            for row in rows
            if row.section == section and not row.case.endswith(TUNED)
        }
        if not some:
            continue
        lines.append(f"| *{QUALITY[section]}* ({some[OURS].case}) | | | | |")
        for name in names:
            row = some.get(name)
            if row is None or row.psnr is None or row.seconds is None or row.ratio is None:
                continue
            label = f"**{name}, nothing chosen by hand**" if name == OURS else name
            quality = f"{row.psnr:.2f} dB" if name != OURS else f"**{row.psnr:.2f} dB**"
            if _fewer(row, list(some.values())):
                quality += f" ({_where(row)})"
            time, ratio = _seconds(row.seconds), _ratio(row.ratio)
            lines.append(f"| {label} | {quality} | {row.ssim or 0:.3f} | {time} | {ratio} |")
    return "\n".join(lines) + "\n"


def fill(path: Path, text: str, start: str = START, end: str = END) -> None:
    """Replace the text between the marks of a page."""
    whole = path.read_text(encoding="utf-8")
    if start not in whole or end not in whole:
        raise SystemExit(f"{path}: the lines {start} and {end} are missing")
    before, _, rest = whole.partition(start)
    _write(path, f"{before}{start}\n\n{text}\n{end}{rest.partition(end)[2]}")


def draw(folder: Path, rows: Sequence[Row]) -> None:
    """Draw PSNR against time, and growth."""
    for section in ("images", "pixels"):
        some = [
            row
            for row in rows
            if row.section == section and row.psnr is not None and not row.case.endswith(TUNED)
        ]
        if some:
            draw_quality(folder / f"{section}.png", QUALITY[section], some)
    curves = [row for row in rows if row.section == "scaling"]
    if curves:
        draw_scaling(folder / "scaling.png", curves)


def draw_quality(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Draw PSNR relative to ours against time, a numbered point per method, with a legend."""
    ranked = sorted(rows, key=lambda row: row.ours_psnr - row.psnr)  # type: ignore[operator]
    figure = new_figure(9.5, 4.8)
    axes = figure.subplots()
    for number, row in enumerate(ranked, start=1):
        colour = COLOURS[1 if row.method.startswith(OURS) else 0]
        at = (row.seconds, row.psnr - row.ours_psnr)  # type: ignore[operator]
        axes.plot(
            *at,
            "o",
            color=colour,
            markersize=9 if row.method == OURS else 5,
            label=f"{number}  {row.method}",
        )
        above = number % 2 == 0  # neighbours in rank are often close together
        axes.annotate(
            str(number),
            at,
            (0, 6 if above else -6),
            textcoords="offset points",
            fontsize=8,
            color=colour,
            ha="center",
            va="bottom" if above else "top",
        )
    axes.set_xscale("log")
    axes.axhline(0, color=COLOURS[6], linewidth=0.8, zorder=0)
    axes.margins(y=0.12)
    axes.set_xlabel("seconds, fit and values")
    axes.set_ylabel("PSNR minus that of kronfield, dB")
    axes.set_title(title, fontsize=10)
    tidy(axes)
    figure.legend(loc="outside right upper", fontsize=7, handletextpad=0.2, frameon=False)
    save_figure(figure, path, overwrite=True)


def draw_scaling(path: Path, rows: Sequence[Row]) -> None:
    """Draw a panel per curve: seconds with their limit, and peak memory."""
    cases = _cases(rows)
    columns = 4
    figure = new_figure(3.2 * columns, 2.7 * math.ceil(len(cases) / columns))
    places = np.atleast_1d(figure.subplots(math.ceil(len(cases) / columns), columns)).ravel()
    for axes, case in zip(places, cases, strict=False):
        curve = [row for row in rows if row.case == case]
        title, _, over = case.partition("; ")
        x = [row.x for row in curve]
        axes.plot(
            x, [row.seconds for row in curve], "o-", color=COLOURS[0], markersize=3, label="seconds"
        )
        if curve[0].limit is not None:
            axes.plot(
                x, [row.limit for row in curve], "--", color=COLOURS[6], label="limit, seconds"
            )
        known = [row for row in curve if row.peak_mib]
        if len(known) > 1:
            axes.plot(
                [row.x for row in known],
                [row.peak_mib / 1024 for row in known],
                ":",
                color=COLOURS[2],
                label="peak memory, GiB",
            )  # type: ignore[operator]
        if over != "dimensions":
            axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(
            title if over == "dimensions" else f"{title}\nslope {slope(curve):.2f}", fontsize=8
        )
        axes.set_xlabel(over, fontsize=8)
        axes.tick_params(labelsize=7)
        tidy(axes)
    places[0].legend(fontsize=7)
    for axes in places[len(cases) :]:
        axes.set_axis_off()
    save_figure(figure, path, overwrite=True)
