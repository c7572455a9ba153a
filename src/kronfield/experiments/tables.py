"""Tables of results: means beside the paper's numbers, as Markdown and CSV."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kronfield._core.records import record
from kronfield.experiments.results import Row, to_csv, wrapped
from kronfield.experiments.spec import GROUPS, NOUNS, Spec

HEAD = (
    "PSNR here",
    "PSNR paper",
    "difference, clipped",
    "difference, unclipped",
    "SSIM",
    "parameters",
    "seconds here",
    "seconds paper",
)


@record
class Line:
    """The means of one method at one protocol, beside the paper's."""

    group: str
    method: str
    key: str
    side: int
    protocol: str
    items: int
    psnr: float
    spread: float
    ssim: float
    parameters: int
    seconds: float
    paper_psnr: float | None
    paper_spread: float | None
    difference: float | None
    difference_unclipped: float | None
    items_unclipped: int
    paper_parameters: int | None
    paper_seconds: float | None


def current(spec: Spec, rows: Iterable[Row]) -> list[Row]:
    """Return the finished rows whose settings are those of the spec.

    Of rows that differ only in their data, under the same name of the item, the last in the file
    counts. The older ones are from another crop of the item.
    """
    found = dict[tuple[Any, ...], Row]()
    for row in rows:
        method = spec.method(row.get("method", ""))
        if method is None or row.get("error") or row.get("psnr") is None:
            continue
        size = spec.sizes.get(row["size"], spec.paper)
        settings = spec.scaled(method, size, row["side"]).settings() | {"hidden": row["hidden"]}
        if all(row.get(name) == value for name, value in settings.items()):
            job = (row["method"], row["item"], row["side"], row["epochs"], row.get("seed", 0))
            job += tuple(row.get(name) for name in settings)
            found.pop(job, None)
            found[job] = row
    return list(found.values())


def fullest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows nearest to the full protocol: largest side, most epochs per method."""
    given = list(rows)
    side = max((row["side"] for row in given), default=0)
    most = dict[str, int]()
    for row in given:
        if row["side"] == side:
            most[row["method"]] = max(most.get(row["method"], 0), row["epochs"])
    return [row for row in given if row["side"] == side and row["epochs"] == most[row["method"]]]


def longest(rows: Iterable[Row]) -> list[Row]:
    """Leave out the rows of short runs that longer ones replace.

    At the same side, the rows of a method with more epochs replace those with fewer epochs if they
    are of as many items or more.
    """
    given = list(rows)
    items = dict[tuple[str, int], dict[int, set[str]]]()
    for row in given:
        by_epochs = items.setdefault((row["method"], row["side"]), {})
        by_epochs.setdefault(row["epochs"], set()).add(row["item"])

    def replaced(row: Row) -> bool:
        by_epochs = items[row["method"], row["side"]]
        own = len(by_epochs[row["epochs"]])
        return any(len(by_epochs[n]) >= own for n in by_epochs if n > row["epochs"])

    return [row for row in given if not replaced(row)]


def notes(rows: Iterable[Row]) -> list[str]:
    """Return the errors of failed jobs and of items that were left out."""
    bad = [row for row in rows if row.get("error")]
    return list(
        dict.fromkeys(
            f"{', '.join(filter(None, (row['item'], row['method'])))}: {row['error']}"
            for row in bad
        )
    )


def summarise(spec: Spec, rows: Iterable[Row]) -> list[Line]:
    """Return the means of every method at every protocol, by side and in the order of the spec."""
    groups = dict[tuple[int, str, str], list[Row]]()
    for row in longest(current(spec, rows)):
        groups.setdefault((row["side"], row["method"], protocol(spec, row)), []).append(row)
    order = {method.key: i for i, method in enumerate(spec.methods)}
    ranked = sorted(
        groups.items(),
        key=lambda pair: (-pair[0][0], order[pair[0][1]], len(pair[0][2]), pair[0][2]),
    )
    return [_mean(spec, side, key, how, some) for (side, key, how), some in ranked]


def _mean(spec: Spec, side: int, key: str, how: str, rows: Sequence[Row]) -> Line:
    """Return the means of one method at one protocol, beside the numbers of the paper."""
    method = spec.method(key)
    assert method is not None
    psnrs = [row["psnr"] for row in rows]
    paper = method.paper
    mean = statistics.fmean(psnrs)
    unclipped = [row for row in rows if row.get("psnr_unclipped") is not None]
    return Line(
        group=method.group,
        method=method.label,
        key=key,
        side=side,
        protocol=how,
        items=len({row["item"] for row in rows}),
        psnr=mean,
        spread=statistics.pstdev(psnrs),
        ssim=statistics.fmean(row["ssim"] for row in rows),
        parameters=max(row["parameters"] for row in rows),
        seconds=statistics.fmean(row["seconds"] for row in rows),
        paper_psnr=paper.get("psnr"),
        paper_spread=paper.get("spread"),
        difference=None if "psnr" not in paper else mean - paper["psnr"],
        difference_unclipped=(
            mean - paper["psnr"] + statistics.fmean(map(_change_without_clipping, unclipped))
            if unclipped and "psnr" in paper
            else None
        ),
        items_unclipped=len({row["item"] for row in unclipped}),
        paper_parameters=None if "parameters" not in paper else int(paper["parameters"]),
        paper_seconds=paper.get("seconds"),
    )


def protocol(spec: Spec, row: Row) -> str:
    """Return the protocol of a row: "full", or how it is scaled."""
    scaled = row.get("scaled") or []
    return "; ".join(scaled) if scaled else "full"


def markdown(spec: Spec, rows: Sequence[Row]) -> str:
    """Return the table of an experiment, with a legend of protocols, data and machine."""
    lines = summarise(spec, rows)
    if not lines:
        return f"No results of {spec.name} yet: run `kronfield reproduce {spec.name}`.\n"
    protocols = list(dict.fromkeys(line.protocol for line in lines))
    marks = {"full": ""} | {
        name: f" ({chr(97 + i)})" for i, name in enumerate(p for p in protocols if p != "full")
    }
    text = list[str]()
    for side in dict.fromkeys(line.side for line in lines):
        text += [
            f"**{' x '.join([str(side)] * spec.dimensions)}**",
            "",
            *_one_side(spec, marks, side, lines),
            "",
        ]
    text += _legend(spec, rows, marks, lines)
    return "\n".join(text) + "\n"


def _one_side(spec: Spec, marks: Mapping[str, str], side: int, lines: Sequence[Line]) -> list[str]:
    """Return the table of the runs at one side."""
    head = ["", "encoding", NOUNS[spec.kind], *HEAD]
    text = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    before = ""
    for line in (line for line in lines if line.side == side):
        group = GROUPS[line.group] if line.group != before else ""
        before = line.group
        cells = [
            group,
            line.method + marks[line.protocol],
            str(line.items),
            f"{line.psnr:.2f} ± {line.spread:.2f}",
            "" if line.paper_psnr is None else _paper(line),
            "" if line.difference is None else f"{line.difference:+.2f}",
            _unclipped(line),
            f"{line.ssim:.3f}",
            _parameters(line),
            short(line.seconds),
            "" if line.paper_seconds is None else short(line.paper_seconds),
        ]
        text.append(f"| {' | '.join(cells)} |")
    return text


def _legend(
    spec: Spec, rows: Sequence[Row], marks: dict[str, str], lines: Sequence[Line]
) -> list[str]:
    every = current(spec, rows)
    fresh = longest(every)
    words = _protocols(spec, fresh, marks, lines)
    if any(0 < line.items_unclipped < line.items for line in lines):
        words.append(
            "The difference without clipping has the mean change of the n items with both values."
        )
    words.append(_data_words(spec, fresh))
    machines = sorted({f"{row['cores']} cores, {row.get('memory_gib', '?')} GiB" for row in fresh})
    words.append(
        f"Seconds are training or fitting time on {' / '.join(machines)}; "
        "the paper used another machine."
    )
    words += _threads(fresh)
    shorter = len(every) - len(fresh)
    if shorter:
        rows_are = "row is" if shorter == 1 else "rows are"
        words.append(
            f"Of shorter runs, which longer ones replace, {shorter} {rows_are} only in "
            f"{spec.name}.csv."
        )
    stale = len([row for row in rows if row.get("method") and not row.get("error")]) - len(every)
    if stale:
        words.append(f"{stale} rows of earlier settings or data are not counted.")
    words += [f"Note: {note}." for note in notes(rows)]
    return [wrapped(" ".join(words))]


def _protocols(
    spec: Spec, rows: Sequence[Row], marks: dict[str, str], lines: Sequence[Line]
) -> list[str]:
    """Explain the letters of the table and the scaling with the side."""
    words = []
    if any(line.protocol == "full" for line in lines):
        words.append(
            "Rows without a letter follow the paper's protocol. "
            "The third column is the number of items."
        )
    words += [f"{mark.strip()}: {name}." for name, mark in marks.items() if mark]
    if any(row["side"] != spec.paper.side for row in rows):
        words.append("Features, widths and frequencies are scaled with the side.")
    return words


def _data_words(spec: Spec, rows: Sequence[Row]) -> str:
    """Name the data of the rows, which are not the paper's."""
    names = sorted({row["item"] for row in rows})
    shown = ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"
    count, noun = spec.paper.count, NOUNS[spec.kind]
    others = f"{count} other {noun}" if count > 1 else f"another {noun[:-1]}"
    return f"Data: {shown}. The paper used {others}, so part of the difference is due to the data."


def _threads(rows: Sequence[Row]) -> list[str]:
    """Name the networks trained on fewer threads than others: their seconds are not comparable."""
    most = max((row["threads"] for row in rows), default=1)
    single = {
        (row["group"], row["side"]) for row in rows if row["epochs"] and row["threads"] < most
    }
    if not single:
        return []
    names = ", ".join(f"{group} at side {side}" for group, side in sorted(single))
    return [f"Trained on fewer than {most} threads: {names}."]


def _change_without_clipping(row: Row) -> float:
    return float(row["psnr_unclipped"] - row["psnr"])


def _unclipped(line: Line) -> str:
    """Return the difference without clipping, with the number of items if not all have it."""
    if line.difference_unclipped is None:
        return ""
    number = "" if line.items_unclipped == line.items else f" (n = {line.items_unclipped})"
    return f"{line.difference_unclipped:+.2f}{number}"


def _paper(line: Line) -> str:
    return f"{line.paper_psnr:.2f}" + (
        "" if line.paper_spread is None else f" ± {line.paper_spread:.2f}"
    )


def _parameters(line: Line) -> str:
    here = f"{line.parameters:,}"
    other = line.paper_parameters
    return here if other in (None, line.parameters) else f"{here} (paper {other:,})"


def short(seconds: float) -> str:
    """Return seconds with two or three digits."""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"


def summary_csv(spec: Spec, rows: Sequence[Row]) -> str:
    """Return the means as CSV."""
    lines: list[dict[str, Any]] = [asdict(line) for line in summarise(spec, rows)]
    return to_csv(lines, list(Line.__dataclass_fields__))
