"""Facts about a field: its kind, its axes, how it was made, its size."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kronfield._core.spectra import stable_rank
from kronfield.field import Field, storage
from kronfield.fitting.refined import RefinedField
from kronfield.fitting.report import MEASURED_UP_TO, Candidate
from kronfield.signals.axes import axis_names, axis_units, described


def field_facts(field: Field, *, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the facts about a field as plain data.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.signals.facts import field_facts
    >>> facts = field_facts(kf.fit(np.add.outer(np.arange(20.0), np.arange(30.0))))
    >>> facts["dimensions"], facts["weights"], facts["axes"][1]["domain"]
    (2, 600, [-0.5, 29.5])

    Parameters
    ----------
    field : Field
        A fitted or loaded field.
    path : path, optional
        The file of the field; adds its size and the dtype of the stored weights or samples.
    """
    known, network = described(field), getattr(field, "model", None)
    made = known.made or {}
    return {
        "kind": known.kind or "field",
        "source": known.source,
        "dimensions": field.dimensions,
        "channels": known.channels or (field.channel_count if field.has_channels else None),
        "levels": known.levels,
        "range": known.range,
        "frames_per_second": known.frames_per_second,
        "rate": known.rate,
        "axes": _axis_facts(field) if network is None else _plain_axis_facts(field),
        "network": None if network is None else _network_facts(network),
        "slopes": _slope_facts(field) if isinstance(field, RefinedField) else None,
        "weights": _weight_count(field) if network is None else network.parameter_count,
        "dtype": str(field.dtype),
        "stored_dtype": None if path is None else _stored_dtype(field, path),
        "made": made or None,
        "bytes": None if path is None else _size(Path(path)),
        "raw_bytes": known.raw_bytes,
    }


def _stored_dtype(field: Field, path: str | os.PathLike[str]) -> str:
    """Return the dtype of the stored weights, of a file or of a zarr store."""
    return str(field.dtype) if os.path.isdir(path) else storage.stored_dtype(path)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a zarr store."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if one.is_file())


def _plain_axis_facts(field: Field) -> list[dict[str, Any]]:
    """Return the name, unit, domain and number of samples of each axis."""
    labels = field.labels.axes
    axes = zip(axis_names(field), axis_units(field), field.domain, field.axes, labels, strict=True)
    return [
        {
            "name": name,
            "unit": unit,
            "kind": label.kind,
            "domain": list(ends),
            "dates": [label.text(end) for end in ends] if label.is_time else None,
            "samples": len(x),
        }
        for name, unit, ends, x, label in axes
    ]


def _axis_facts(field: Field) -> list[dict[str, Any]]:
    """Add to `_plain_axis_facts` each embedder and its stable rank, reported or computed."""
    report = (described(field).made or {}).get("report") or {}
    ranks = report.get("stable_ranks") or _stable_ranks(field)
    axes = zip(_plain_axis_facts(field), field.encoding.embedders, strict=True)
    return [
        {**axis, "embedder": repr(embedder), "stable_rank": ranks[i] if i < len(ranks) else None}
        for i, (axis, embedder) in enumerate(axes)
    ]


def _network_facts(network: Any) -> dict[str, Any]:
    return {"depth": network.depth, "width": network.width, "encoding": repr(network.encoding)}


def _slope_facts(field: RefinedField) -> dict[str, Any]:
    return {"direction": field.slopes, "samples": field.number_count}


def _weight_count(field: Field) -> int:
    return math.prod(field.encoding.shape) * field.channel_count


def _stable_ranks(field: Field) -> list[float]:
    return [
        stable_rank(emb(frame.unit(x))) if len(x) <= MEASURED_UP_TO else emb.stable_rank(len(x))
        for emb, frame, x in zip(field.encoding.embedders, field.frames, field.axes, strict=True)
    ]


def told_facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return facts as pairs of a name and a text."""
    source, made = facts["source"], facts["made"] or {}
    return [
        ("what", f"{facts['kind']}{f' from {source}' if source else ''}"),
        *(_axis_line(axis, facts["kind"]) for axis in facts["axes"]),
        *_value_lines(facts),
        *_weight_lines(facts),
        *_report_lines(made.get("report") or {}),
        *_made_lines(made),
        *_disk_lines(facts["bytes"], facts["raw_bytes"]),
    ]


def _axis_line(axis: dict[str, Any], kind: str) -> tuple[str, str]:
    """Return the name of an axis, and its ends, samples and embedder as text."""
    low, high = axis["domain"]
    dates = axis.get("dates")
    text = " to ".join(dates) if dates else f"{low:g} to {high:g} {axis['unit']}".rstrip()
    text += f", {axis['samples']} samples" if kind != "table" else ""
    if "embedder" in axis:
        rank = axis["stable_rank"]
        text += f"\n{axis['embedder']}" + (f", stable rank {rank:.1f}" if rank is not None else "")
    return axis["name"], text


def _value_lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the channels, range and bits of the values, and the rate of frames or samples."""
    channels = facts["channels"]
    if channels:
        named = isinstance(channels, list)
        yield "values", ", ".join(channels) if named else f"{channels} channels"
    if facts["range"]:
        yield "range", f"{facts['range'][0]:.6g} to {facts['range'][1]:.6g}"
    if facts["levels"] is not None:
        yield "depth", f"{facts['levels'].bit_length()} bit"
    for name, unit in (("frames_per_second", "frames per second"), ("rate", "samples per second")):
        if facts[name]:
            yield "time", f"{facts[name]:.6g} {unit}"


def _weight_lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the layers of a network, the number of weights or samples, and their dtype."""
    network, stored, slopes = facts["network"], facts["stored_dtype"], facts["slopes"]
    if network:
        layers = f"{network['depth']} hidden layers of {network['width']}"
        yield "network", f"{layers}\n{network['encoding']}"
    kept = f", stored as {stored}" if stored and stored != facts["dtype"] else ""
    if slopes:
        yield "slopes", f"from the data, {slopes['direction']}"
        yield "samples", f"{slopes['samples']}, {facts['dtype']}{kept}"
        yield "weights", f"{facts['weights']}, computed from the samples"
    else:
        yield "weights", f"{facts['weights']}, {facts['dtype']}{kept}"


def _made_lines(made: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the command that made the field, if it is known."""
    if made:
        options = " ".join(f"{key}={value}" for key, value in made.get("options", {}).items())
        yield "made by", f"{made['command']}, version {made['version']}\n{options}"


def _disk_lines(size: int | None, raw: int | None) -> Iterator[tuple[str, str]]:
    """Yield the size of the file, compared with that of the samples."""
    if size:
        compared = f", {size / raw:.2f} times the {raw} bytes of the samples" if raw else ""
        yield "on disk", f"{size} bytes{compared}"


def _chosen(report: dict[str, Any]) -> str | None:
    """Return the chosen candidates of a report as text, as the report itself shows them."""
    found = []
    for one in report.get("candidates") or []:
        if isinstance(one, dict) and one.get("chosen"):
            parameters = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in sorted((one.get("parameters") or {}).items())
                if value is not None
            }
            found.append(str(Candidate(str(one.get("kind")), parameters)))
    return "\n".join(found) or None


def _report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    if not report:
        return []
    lines = []
    if "roughness" in report:
        first, second = report["roughness"]
        lines.append(
            ("penalty", f"ridge {report['ridge']:.3g}, roughness ({first:.3g}, {second:.3g})")
        )
    chosen = _chosen(report)
    if chosen is not None:
        lines.append(("chosen", chosen))
    if report.get("expected_error") is not None:
        lines.append(("expected error", f"{report['expected_error']:.3g} rms at held-out samples"))
    if report.get("chosen_by"):
        lines.append(("chosen by", report["chosen_by"]))
    if report.get("residual") is not None:
        freedom = report.get("degrees_of_freedom")
        text = f"{report['residual']:.3g} rms"
        lines.append(
            (
                "residual",
                text
                + (
                    f"; {freedom:.0f} degrees of freedom per channel" if freedom is not None else ""
                ),
            )
        )
    if "epochs" in report:
        lines.append(
            (
                "training",
                f"{report['epochs']} epochs, stopped by {report['stopped_by']}, "
                f"PSNR {report['psnr']:.2f} dB",
            )
        )
    if report.get("seconds") is not None:
        lines.append(("time taken", f"{report['seconds']:.2f} s"))
    return lines
