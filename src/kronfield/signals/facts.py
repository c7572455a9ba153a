"""What is known of a field: what it is, how it was made, how large it is."""

from __future__ import annotations

import math
import os
from typing import Any

from kronfield._core.spectra import stable_rank
from kronfield.field import Field, storage
from kronfield.fitting.report import MEASURED_UP_TO
from kronfield.signals.axes import axis_names, axis_units, described


def field_facts(field: Field, *, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return what is known of a field, as plain data.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.signals.facts import field_facts
    >>> facts = field_facts(kf.fit(np.add.outer(np.arange(20.0), np.arange(30.0))))
    >>> facts["dimensions"], facts["weights"], facts["axes"][1]["domain"]
    (2, 816, [-0.5, 29.5])

    Parameters
    ----------
    field : Field
        Fitted, or loaded.
    path : path, optional
        Its file, of which size and the dtype of the stored weights are told.
    """
    known = described(field)
    made = known.made or {}
    report = made.get("report") or {}
    network = getattr(field, "model", None)
    weights = network.parameter_count if network is not None else math.prod(field.encoding.shape) * field.channel_count
    ranks = report.get("stable_ranks") or ([] if network is not None else _stable_ranks(field))
    axes = []
    for i, (name, unit, ends, x) in enumerate(
        zip(axis_names(field), axis_units(field), field.domain, field.axes, strict=True)
    ):
        axis: dict[str, Any] = {"name": name, "unit": unit, "domain": list(ends), "samples": len(x)}
        if network is None:
            axis |= {"embedder": repr(field.encoding.embedders[i]), "stable_rank": ranks[i] if i < len(ranks) else None}
        axes.append(axis)
    return {
        "kind": known.kind or "field",
        "source": known.source,
        "dimensions": field.dimensions,
        "channels": known.channels or (field.channel_count if field.has_channels else None),
        "levels": known.levels,
        "range": known.range,
        "frames_per_second": known.frames_per_second,
        "rate": known.rate,
        "axes": axes,
        "network": None
        if network is None
        else {"depth": network.depth, "width": network.width, "encoding": repr(network.encoding)},
        "weights": weights,
        "dtype": str(field.dtype),
        "stored_dtype": None if path is None else storage.stored_dtype(path),
        "made": made or None,
        "bytes": None if path is None else os.path.getsize(path),
        "raw_bytes": known.raw_bytes,
    }


def _stable_ranks(field: Field) -> list[float]:
    return [
        stable_rank(emb(frame.unit(x))) if len(x) <= MEASURED_UP_TO else emb.stable_rank(len(x))
        for emb, frame, x in zip(field.encoding.embedders, field.frames, field.axes, strict=True)
    ]


def told_facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return facts as names and lines of text."""
    lines: list[tuple[str, str]] = []
    source = facts["source"]
    lines.append(("what", f"{facts['kind']}{f' from {source}' if source else ''}"))
    for axis in facts["axes"]:
        low, high = axis["domain"]
        text = f"{low:g} to {high:g} {axis['unit']}".rstrip()
        text += f", {axis['samples']} samples" if facts["kind"] != "table" else ""
        if "embedder" in axis:
            rank = axis["stable_rank"]
            text += f"\n{axis['embedder']}" + (f", stable rank {rank:.1f}" if rank is not None else "")
        lines.append((axis["name"], text))
    channels = facts["channels"]
    if channels:
        lines.append(("values", ", ".join(channels) if isinstance(channels, list) else f"{channels} channels"))
    if facts["range"]:
        lines.append(("range", f"{facts['range'][0]:.6g} to {facts['range'][1]:.6g}"))
    if isinstance(facts["levels"], int):
        lines.append(("depth", f"{facts['levels'].bit_length()} bit"))
    for name, unit in (("frames_per_second", "frames per second"), ("rate", "samples per second")):
        if facts[name]:
            lines.append(("time", f"{facts[name]:.6g} {unit}"))
    if facts["network"]:
        net = facts["network"]
        lines.append(("network", f"{net['depth']} hidden layers of {net['width']}\n{net['encoding']}"))
    stored = facts["stored_dtype"]
    kept = f", stored as {stored}" if stored and stored != facts["dtype"] else ""
    lines.append(("weights", f"{facts['weights']}, {facts['dtype']}{kept}"))
    made = facts["made"] or {}
    lines += _report_lines(made.get("report") or {})
    if made:
        options = " ".join(f"{key}={value}" for key, value in made.get("options", {}).items())
        lines.append(("made by", f"{made['command']}, version {made['version']}\n{options}"))
    if facts["bytes"]:
        text = f"{facts['bytes']} bytes"
        raw = facts["raw_bytes"]
        lines.append(
            ("on disk", text + (f", {facts['bytes'] / raw:.2f} times the {raw} bytes of the samples" if raw else ""))
        )
    return lines


def _report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    if not report:
        return []
    lines = []
    if "roughness" in report:
        first, second = report["roughness"]
        lines.append(("penalty", f"ridge {report['ridge']:.3g}, roughness ({first:.3g}, {second:.3g})"))
    if report.get("chosen_by"):
        lines.append(("chosen by", report["chosen_by"]))
    if report.get("residual") is not None:
        freedom = report.get("degrees_of_freedom")
        text = f"{report['residual']:.3g} rms"
        lines.append(("residual", text + (f"; {freedom:.0f} degrees of freedom per channel" if freedom is not None else "")))
    if "epochs" in report:
        lines.append(
            ("training", f"{report['epochs']} epochs, stopped by {report['stopped_by']}, PSNR {report['psnr']:.2f} dB")
        )
    if report.get("seconds") is not None:
        lines.append(("time taken", f"{report['seconds']:.2f} s"))
    return lines
