"""Seconds of the paper's methods, measured apart: CPU time, a few epochs of each.

Every epoch takes the same time, so the time of one epoch times the paper's number of epochs is the
time of a whole run. CPU time is summed over threads, and networks use one thread. Other work on the
machine changes CPU time less than elapsed time, but takes part of the caches. Methods take turns,
so that a disturbance affects all of them.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

from kronfield.experiments.data import items
from kronfield.experiments.methods import fitted
from kronfield.experiments.paired import FEWEST
from kronfield.experiments.results import (
    Results,
    Row,
    fingerprint,
    machine,
    versions,
)
from kronfield.experiments.runner import Progress
from kronfield.experiments.spec import Method, Spec, load_spec
from kronfield.experiments.tasks import Task, make_task

# The methods that the claims about speed compare, by table.
SELECTIONS = {
    "table1": "simple,complex,closed",
    "table3": "simple:RFF,simple:Gau,closed",
    "table4": "simple:RFF,simple:Gau,complex",
}
# Samples per axis of images and of video, by size.
SIDES = {
    "paper": (512, 128),
    "page": (480, 64),
    "quick": (128, 32),
    "tiny": (32, 16),
}
# Every method is measured this many times.
REPEATS = FEWEST
# Epochs or fits of a measurement. The first, in which memory is allocated, is not counted.
EPOCHS = 2
# A load of the machine above this, before anything is measured, is noted.
QUIET = 0.3
# The clock of the measured seconds.
CLOCK = "CPU time"


def measure_times(
    folder: Path,
    size: str,
    *,
    images: str | os.PathLike[str] | None = None,
    videos: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure the jobs that have no row in times.jsonl of a folder yet; return all rows."""
    results = Results(folder / "times.jsonl")
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0
    about = {**versions(), **machine(), "threads": 1, "load": load, "clock": CLOCK}
    tasks = dict[str, tuple[Task, str]]()
    for table in SELECTIONS:
        spec = load_spec(table)
        video = spec.kind == "video"
        (item,) = items(spec.kind, videos if video else images, 1, arrays=spec.arrays)
        values = item.load(SIDES[size][int(video)])
        tasks[table] = make_task(values, spec.task, spec.fraction, 0), item.name
    jobs = [
        (repeat, table, method)
        for repeat in range(REPEATS)
        for table, names in SELECTIONS.items()
        for method in load_spec(table).select(names)
    ]
    for i, (repeat, table, method) in enumerate(jobs):
        if progress is not None:
            progress(i, len(jobs), f"times, {table}, {method.key}")
        task, name = tasks[table]
        spec = load_spec(table)
        side = task.shape[0]
        # Layers are as wide as the paper's, except in a test.
        scaled = spec.scaled(method, spec.sizes["tiny" if size == "tiny" else "paper"], side)
        row: Row = {
            "table": table,
            "method": method.key,
            "item": f"{name}, repeat {repeat + 1}",
            "side": side,
            "epochs": spec.paper.epochs_of(method),
            "clock": CLOCK,
            **scaled.settings(),
        }
        row["fingerprint"] = fingerprint(row)
        if row["fingerprint"] not in results:
            results.add({**row, **about, **_measured(spec, scaled, task)})
    if progress is not None:
        progress(len(jobs), len(jobs), "times")
    return results.rows


def _measured(spec: Spec, method: Method, task: Task) -> dict[str, Any]:
    """Return the CPU seconds of a method; for a network, of the paper's number of epochs."""
    if not method.is_network:
        return {"seconds": statistics.median(_fit_seconds(method, task)[1:])}
    from kronfield.experiments import networks

    stamps = list[float]()
    networks.descend(
        method, task, EPOCHS, 0, None, lambda epoch: stamps.append(time.process_time()), threads=1
    )
    one = statistics.median(b - a for a, b in itertools.pairwise(stamps))
    return {"seconds": one * spec.paper.epochs_of(method), "seconds_per_epoch": one}


def _fit_seconds(method: Method, task: Task) -> list[float]:
    """Return the CPU seconds of fits, without evaluation."""
    found = list[float]()
    for _ in range(EPOCHS):
        started = time.process_time()
        fitted(method, task, 0)
        found.append(time.process_time() - started)
    return found
