"""Summaries for notebooks: small pages with a picture, made without Matplotlib."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import cell_centres
from kronfield._core.labels import drawn_order
from kronfield.files.description import Description
from kronfield.files.images import png_of

if TYPE_CHECKING:
    from kronfield.field import Field
    from kronfield.fitting.report import Report

# The longer side of the picture in pixels, and the positions on a line.
SIDE, LINE = 96, 160
# A field that holds more numbers gets no picture, so that it is shown without delay.
LARGE = 1 << 22
# Viridis (Smith and van der Walt, 2015) at nine places.
_COLOURS = np.array(
    [
        (68, 1, 84),
        (71, 44, 122),
        (59, 81, 139),
        (44, 113, 142),
        (33, 144, 141),
        (39, 173, 129),
        (92, 200, 99),
        (170, 220, 50),
        (253, 231, 37),
    ]
)
_CELL = "text-align:left;padding:0 .8em 0 0;vertical-align:top"


def field_html(field: Field) -> str:
    """Return a picture and the key facts of a field as HTML, with all text escaped."""
    labels, report = field.labels, field.report
    rows: list[tuple[str, str]] = []
    for i, (label, (low, high), x) in enumerate(
        zip(labels.axes, field.domain, field.axes, strict=True)
    ):
        text = label.range(low, high)
        name, text = (label.name, text.partition(": ")[2]) if label.name else (f"axis {i}", text)
        rows.append((name, f"{text}, {len(x)} samples" if not _is_scattered(field) else text))
    unit = labels.attrs.get("units")
    channels = Description.from_dict(field.info).channels or labels.channels
    name = labels.name or ", ".join(map(str, channels or ()))
    words = f"{name}{f' [{unit}]' if unit else ''}, {field.dtype}"
    if field.has_channels:
        words += f", {field.channel_count} channels"
    rows.append(("values", words.lstrip(", ")))
    kinds = list(dict.fromkeys(type(one).__name__ for one in field.encoding.embedders))
    sizes = " x ".join(str(one.size) for one in field.encoding.embedders)
    rows.append(("features", f"{sizes} {', '.join(kinds)}"))
    if report is not None:
        rows += report.summary()
    head = f"<b>{html.escape(type(field).__name__)}</b>"
    return f"<div>{head}<br>{_picture(field)}{_table(rows)}</div>"


def report_html(report: Report) -> str:
    """Return a report as tables: the fit, and the candidates with their scores."""
    about = report.summary()
    if report.held_out_text:
        about.append(("held-out error", report.held_out_text))
    facts = _table(about)
    if not report.candidates:
        return f"<div>{facts}</div>"
    rows = [
        (
            f"<b>{html.escape(str(one))}</b>" if one.chosen else html.escape(str(one)),
            f"{one.score:.4g}"
            + ("" if np.isnan(one.standard_error) else f" ± {one.standard_error:.2g}"),
            "chosen" if one.chosen else "",
        )
        for one in report.candidates
    ]
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("candidate", "score", ""))
    cells = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f"<div>{facts}<table><tr>{head}</tr>{cells}</table></div>"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th style="{_CELL}">{html.escape(name)}</th>'
        f'<td style="{_CELL}">{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table>{body}</table>"


def _is_scattered(field: Field) -> bool:
    return hasattr(field.places, "positions")


def _picture(field: Field) -> str:
    """Return a small picture of a field as HTML: an SVG of a line, else the middle slice."""
    if field.is_complex or field.number_count > LARGE:
        return ""
    if field.dimensions == 1:
        return _line(field)
    first = field.dimensions - 2
    where: list[Array] = [np.array([(low + high) / 2]) for low, high in field.domain]
    lengths = [high - low for low, high in field.domain[first:]]
    longest = max(lengths)
    for i, length in enumerate(lengths):
        even = longest <= 4 * min(lengths)
        count = max(8, round(SIDE * length / longest)) if even else SIDE
        where[first + i] = cell_centres(*field.domain[first + i], count)
    values = np.asarray(field.on_grid(where, outside="clamp"), dtype=np.float64)
    values = values.reshape(len(where[-2]), len(where[-1]), -1)
    encoded = base64.b64encode(png_of(_pixels(values, field))).decode()
    return f'<img alt="the field" src="data:image/png;base64,{encoded}">'


def _pixels(values: Array, field: Field) -> Array:
    """Return values (H, W, C) as pixels: colours unchanged, other values in Viridis."""
    picture = values.shape[2] in (3, 4) and values.min() > -0.2 and values.max() < 1.2
    if picture:
        return np.rint(np.clip(values[..., :3], 0, 1) * 255).astype(np.uint8)
    names = [(label.name or "").lower() for label in field.labels.axes[-2:]]
    (down, across), up = drawn_order(names, (0, 1), _is_scattered(field))
    flat = values[..., 0].T if down > across else values[..., 0]
    flat = flat[::-1] if up else flat
    low, high = float(np.nanmin(flat)), float(np.nanmax(flat))
    part = (flat - low) / (high - low) if high > low else np.zeros_like(flat)
    places = np.linspace(0, 1, len(_COLOURS))
    scaled = [np.interp(part, places, _COLOURS[:, i]) for i in range(3)]
    return np.rint(np.stack(scaled, axis=-1)).astype(np.uint8)


def _line(field: Field) -> str:
    """Return a line as SVG."""
    x = np.linspace(*field.domain[0], LINE)
    values = np.asarray(field.on_grid([x], outside="clamp"), dtype=np.float64).reshape(LINE, -1)
    low, high = float(values.min()), float(values.max())
    height = 60.0
    y = height - 2 - (height - 4) * (values[:, 0] - low) / ((high - low) or 1.0)
    dots = " ".join(f"{i:.0f},{one:.1f}" for i, one in enumerate(y))
    return (
        f'<svg width="{LINE}" height="{height:.0f}" role="img" aria-label="the field">'
        f'<polyline fill="none" stroke="#4477aa" stroke-width="1.5" points="{dots}"/></svg>'
    )
