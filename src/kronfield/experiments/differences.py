"""What the differences between the paper's text and the released code change, measured in pairs.

Each part runs the text's way and the code's way on the same items. A row holds the PSNR of both.
The table of docs/reproduction.md is made of differences.toml and these rows.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.records import record
from kronfield.experiments.closed_form_claims import SMALL_RIDGE, operator, scores
from kronfield.experiments.data import TooSmallError, digest, items
from kronfield.experiments.encodings import embedder, norm_ratio, simple_encoding
from kronfield.experiments.methods import run_method
from kronfield.experiments.paired import Number, paired
from kronfield.experiments.released import (
    SIMPLE_VIDEO_FEATURES,
    with_top_frequency,
)
from kronfield.experiments.results import Results, Row, fingerprint, versions
from kronfield.experiments.runner import Progress
from kronfield.experiments.spec import Method, Spec, load_spec
from kronfield.experiments.tasks import Task, make_task

#: The name of the file of results, without .jsonl.
NAME = "released"
# PSNR by the name of a way: "text", or one of the code's.
Found = dict[str, float]
# The way of the paper's text; the names of the code's ways are those in braces in differences.toml.
TEXT = "text"


@record
class Part:
    """Comparisons on the same methods and items: ``run`` returns the PSNR of every way.

    ``epochs`` is 0 for the paper's. ``crops`` is the number of cubes of a clip.
    """

    key: str
    table: str
    group: str
    encoders: tuple[str, ...]
    run: Callable[[Spec, Method, Task, int], Found]
    side: int
    count: int
    epochs: int = 0
    crops: int = 1

    def methods(self) -> list[Method]:
        """Return the methods of the paper that are compared, unscaled."""
        methods = load_spec(self.table).methods
        return [m for m in methods if m.group == self.group and m.encoder in self.encoders]


def _psnr(method: Method, task: Task, epochs: int) -> float:
    return task.score(run_method(method, task, epochs, 0).prediction)[0]


def _top_frequency(spec: Spec, method: Method, task: Task, epochs: int) -> Found:
    """Compare closed forms without and with the top frequency, also under a small ridge."""
    del spec, epochs
    own = embedder(method.encoder, method.features, method.setting)
    found = Found()
    for name, ridge in (("", 0.0), (", ridge", SMALL_RIDGE)):
        for way, emb in ((TEXT, own), ("top frequency", with_top_frequency(own))):
            matrix = operator(emb, task.shape[0], ridge=ridge)
            found[way + name] = float(scores(matrix, [task])[0])
    return found


def _blending(spec: Spec, method: Method, task: Task, epochs: int) -> Found:
    """Compare the minimiser with D normalised on the same grid, and with the code's grid too."""
    del spec
    ways = {TEXT: method.blending, "weights": "similarity, normalised", "grid": "released"}
    return {
        way: _psnr(dataclasses.replace(method, blending=how), task, epochs)
        for way, how in ways.items()
    }


def _own_norm(spec: Spec, method: Method, task: Task, epochs: int) -> Found:
    """Compare features of constant norm with those that the test divides by its own largest."""
    import torch

    from kronfield.experiments import networks

    del spec
    model = networks.descend(method, task, epochs, 0, None, None).model
    found = {TEXT: task.score(networks.evaluate(model, task))[0]}
    asked = np.argwhere(task.asked) / np.array(task.shape)
    given = task.indices() / np.array(task.shape)
    ratio = norm_ratio(simple_encoding(method, task.dimensions, 0), given, asked)
    with torch.no_grad():  # larger features are the same as larger weights of the first layer
        model.first.weight.mul_(ratio)
    return found | {"norm": task.score(networks.evaluate(model, task))[0], "ratio": ratio}


def _setting_of_descent(spec: Spec, method: Method, task: Task, epochs: int) -> Found:
    """Compare the closed form at its own setting and at that of descent."""
    (other,) = (m for m in spec.methods if (m.group, m.encoder) == ("complex", method.encoder))
    setting = spec.scaled(other, spec.paper, task.shape[0]).setting
    return {
        TEXT: _psnr(method, task, epochs),
        "setting": _psnr(dataclasses.replace(method, setting=setting), task, epochs),
    }


def _fewer_features(spec: Spec, method: Method, task: Task, epochs: int) -> Found:
    """Compare the text's number of features of simple encodings of video with the code's."""
    (paper,) = (m for m in spec.methods if m.key == method.key)
    fewer = dataclasses.replace(paper, features=SIMPLE_VIDEO_FEATURES)
    features = spec.scaled(fewer, spec.paper, task.shape[0]).features
    return {
        TEXT: _psnr(method, task, epochs),
        "features": _psnr(dataclasses.replace(method, features=features), task, epochs),
    }


# Small sizes: a difference between two ways needs no long runs to be seen.
PARTS = (
    Part("top frequency", "table1", "closed", ("LinF", "LogF"), _top_frequency, 128, 8),
    Part(
        "settings", "table3", "closed", ("LinF", "Tri", "Gau"), _setting_of_descent, 32, 12, crops=4
    ),
    Part("features", "table3", "simple", ("LogF", "Gau"), _fewer_features, 16, 6, 100, crops=2),
    Part("blending", "table2", "complex", ("Tri", "Gau"), _blending, 128, 6),
    Part("norms", "table1", "simple", ("Tri", "Gau"), _own_norm, 64, 6, 150),
)


def measure_differences(
    folder: Path,
    *,
    quick: bool = False,
    images: str | os.PathLike[str] | None = None,
    videos: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure the comparisons that have no row in released.jsonl of a folder; return all rows.

    With ``quick``, one item at 16 samples per axis and 2 epochs, which only shows that it runs.
    """
    results = Results(folder / f"{NAME}.jsonl")
    parts = [
        dataclasses.replace(part, side=16, count=1, epochs=2) if quick else part for part in PARTS
    ]
    for i, part in enumerate(parts):
        spec = load_spec(part.table)
        source = videos if spec.kind == "video" else images
        for item in items(spec.kind, source, part.count, part.crops, arrays=spec.arrays):
            if progress is not None:
                progress(i, len(parts), f"released code, {part.key}, {item.name}")
            try:
                values = item.load(part.side)
            except TooSmallError:
                continue  # n says how many items there are
            for method in part.methods():
                row = _row(part, spec, method, item.name, digest(values))
                if row["fingerprint"] not in results:
                    task = make_task(values, spec.task, spec.fraction, 0)
                    scaled = spec.scaled(method, spec.paper, part.side)
                    found = part.run(spec, scaled, task, row["epochs"])
                    found = {way: round(value, 4) for way, value in found.items()}
                    results.add({**row, "found": found, **versions()})
    if progress is not None:
        progress(len(parts), len(parts), "released code")
    return results.rows


def _row(part: Part, spec: Spec, method: Method, item: str, data: str) -> Row:
    """Return a row without its results."""
    row: Row = {
        "part": part.key,
        "table": part.table,
        "item": item,
        "data": data,
        "side": part.side,
        "epochs": part.epochs or spec.paper.epochs_of(method),
        **spec.scaled(method, spec.paper, part.side).settings(),
    }
    return row | {"fingerprint": fingerprint(row)}


# The table
# --------------------------------------------------------------------------------------------------


@functools.lru_cache
def entries() -> list[dict[str, str]]:
    """Return the lines of differences.toml."""
    folder = importlib.resources.files("kronfield.experiments")
    text = folder.joinpath("differences.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["difference"])


def effects(rows: Iterable[Row], table: Iterable[Row]) -> dict[str, str]:
    """Return what each way of the code changes, in words, by its name in differences.toml.

    ``rows`` are those of `measure_differences`, and ``table`` those of Table 2, by which the effect
    of clipping is measured.
    """
    by_way = dict[str, dict[str, list[float]]]()
    ratios = dict[str, list[float]]()
    sizes = dict[str, str]()
    for row in rows:
        found = row["found"]
        for way, value in found.items():
            if way == "ratio":
                ratios.setdefault(row["encoder"], []).append(100 * (value - 1))
            elif not way.startswith(TEXT):
                text = found[TEXT + "".join(way.partition(",")[1:])]
                by_way.setdefault(way, {}).setdefault(row["encoder"], []).append(text - value)
                sizes[way] = _size(row)
    clipped = [row for row in table if row["group"] == "complex" and row.get("psnr_unclipped")]
    side = max((row["side"] for row in clipped), default=0)
    for row in (row for row in clipped if row["side"] == side):
        change = row["psnr"] - row["psnr_unclipped"]
        by_way.setdefault("clipping", {}).setdefault(row["encoder"], []).append(change)
        sizes["clipping"] = _size(row)
    words = {way: f"{sizes[way]}: {_words(found)}" for way, found in by_way.items()}
    if ratios:
        words["ratio"] = ", ".join(f"{name} {_range(some)} %" for name, some in ratios.items())
    return words


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end:.1f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _size(row: Row) -> str:
    dimensions = load_spec(row.get("table") or row["spec"]).dimensions
    epochs = f", {row['epochs']:,} epochs" if row["epochs"] else ""
    return f"{' x '.join([str(row['side'])] * dimensions)}{epochs}"


def _words(found: Mapping[str, list[float]]) -> str:
    """Return means with intervals and numbers of items, by encoder."""
    numbers = {name: paired(values) for name, values in found.items()}
    counts = {number.n for number in numbers.values()}
    same = len(counts) == 1
    shown = (_shown(name, number, with_n=not same) for name, number in numbers.items())
    return (f"n = {counts.pop()}, " if same else "") + ", ".join(shown)


def _shown(name: str, number: Number, *, with_n: bool) -> str:
    interval = f" [{number.low:+.2f}, {number.high:+.2f}]" if number.n > 1 else ""
    count = f" (n = {number.n})" if with_n else ""
    return f"{name} {number.value:+.2f} dB{interval}{count}"


def markdown(rows: Iterable[Row], table: Iterable[Row]) -> str:
    """Return the table of the differences and what they change."""
    known = _Known(effects(rows, table))
    lines = [
        "| difference | by the text, here | in the released code | what it changes |",
        "|---|---|---|---|",
    ]
    for entry in entries():
        cells = (entry["name"], entry["text"], entry["code"], entry["effect"].format_map(known))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class _Known(dict[str, Any]):
    """Words by name; of those without rows, that they were not measured."""

    def __missing__(self, key: str) -> str:
        return f"not measured: run `kronfield reproduce {NAME}`"
