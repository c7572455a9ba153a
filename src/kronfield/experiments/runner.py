"""Run the jobs of an experiment: item x method x seed. Each is on disk before the next begins."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.experiments.data import Item, TooSmallError, digest, items
from kronfield.experiments.methods import Outcome, run_method
from kronfield.experiments.results import (
    Results,
    Row,
    array_threads,
    fingerprint,
    machine,
    versions,
)
from kronfield.experiments.spec import Method, Size, Spec
from kronfield.experiments.tasks import Task, make_task
from kronfield.files import write_image

# Called with (done, total, title): estimated seconds, and the current job.
Progress = Callable[[float, float, str], None]
# Side of the central part of an image that is kept for the visual comparisons.
DETAIL = 96
# The seconds of a job are estimated from its products, at this many floating-point operations per
# second, and this overhead per epoch. Both are those of one core of the machine of times.jsonl.
SPEED, EPOCH = 1.2e11, 2e-3


@record
class Job:
    """One method on one item with one seed."""

    item: Item
    method: Method
    seed: int
    work: float


def run_spec(
    spec: Spec,
    size: Size,
    output: Path,
    *,
    source: str | os.PathLike[str] | None = None,
    methods: str | Sequence[Method] | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run the missing jobs of an experiment and return all rows.

    A job whose settings and data are already in the file is not run again, unless it failed. After
    Ctrl-C all finished jobs are in the file. ``methods`` is a selection by name, or a list.
    """
    output.mkdir(parents=True, exist_ok=True)
    results = Results(output / f"{spec.name}.jsonl")
    chosen: list[Method] = (
        spec.select(methods) if methods is None or isinstance(methods, str) else list(methods)
    )
    jobs = [
        Job(item, method, seed, estimated_seconds(spec, size, method))
        for item in items(spec.kind, source, size.count, size.crops, arrays=spec.arrays)
        for method in chosen
        for seed in size.seeds
    ]
    total, done = sum(job.work for job in jobs) or 1.0, 0.0
    about = {**versions(), **machine()}
    about["threads"] = array_threads(about["cores"])  # of NumPy; networks record their own
    held: tuple[str, Array | None] = ("", None)
    for job in jobs:
        if held[0] != job.item.name:
            held = (job.item.name, _load(spec, size, job.item, results))
        values = held[1]
        if values is not None:
            title = f"{spec.name}, {job.item.name}, {job.method.key}"

            def tell(part: float, job: Job = job, before: float = done, title: str = title) -> None:
                if progress is not None:
                    progress(before + part * job.work, total, title)

            tell(0.0)
            _run(spec, size, job, values, results, about, tell)
        done += job.work
    if progress is not None:
        progress(total, total, spec.name)
    return results.rows


def _load(spec: Spec, size: Size, item: Item, results: Results) -> Array | None:
    """Return the values of an item; for one that is too small, record an error and return None."""
    try:
        return item.load(size.side)
    except TooSmallError as error:
        row = {
            "spec": spec.name,
            "size": size.name,
            "item": item.name,
            "method": "",
            "side": size.side,
        }
        key = fingerprint(row)
        failed = {**row, "error": f"left out: {error}", "fingerprint": key}
        if failed not in results.rows:
            results.add(failed)
        return None


def _run(
    spec: Spec,
    size: Size,
    job: Job,
    values: Array,
    results: Results,
    about: dict[str, Any],
    tell: Callable[[float], None],
) -> None:
    side = values.shape[0]
    method = spec.scaled(job.method, size, side)
    epochs = size.epochs_of(method)
    decisive = {
        "spec": spec.name,
        "task": spec.task,
        "fraction": spec.fraction,
        "epochs": epochs,
        "seed": job.seed,
        "data": digest(values),
        **method.settings(),
    }
    key = fingerprint(decisive)
    if key in results:
        return
    task = make_task(values, spec.task, spec.fraction, job.seed)
    row: Row = {
        **decisive,
        "fingerprint": key,
        "size": size.name,
        "item": job.item.name,
        "method": job.method.key,
        "side": side,
        "samples": task.count,
        "asked": int(task.asked.sum()),
        "scaled": spec.what_is_scaled(job.method, side, epochs, method.hidden),
        **about,
    }
    checkpoint = results.path.with_name(f".{spec.name}-{key}.safetensors")
    try:
        outcome = run_method(method, task, epochs, job.seed, checkpoint, tell)
    except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
        results.add({**row, "error": f"{type(error).__name__}: {error}"})
    else:
        row |= _measured(task, outcome)
        if spec.keep:
            _keep(results.path.parent, spec, row, task, outcome)
        results.add(row)
    checkpoint.unlink(missing_ok=True)


def _measured(task: Task, outcome: Outcome) -> Row:
    quality, likeness = task.score(outcome.prediction)
    unclipped = task.unclipped_psnr(outcome.prediction)
    return {
        "psnr": round(quality, 4) if math.isfinite(quality) else None,
        "psnr_unclipped": round(unclipped, 4) if math.isfinite(unclipped) else None,
        "ssim": round(likeness, 5),
        "parameters": outcome.parameters,
        "seconds": round(outcome.seconds, 5),
        "evaluation_seconds": round(outcome.evaluation_seconds, 5),
        **outcome.more,
    }


def _keep(output: Path, spec: Spec, row: Row, task: Task, outcome: Outcome) -> None:
    """Write the centre of the prediction and of the original."""
    for path, values in (
        (picture_path(output, spec, row), outcome.prediction),
        (original_path(output, spec, row), task.values),
    ):
        path.parent.mkdir(exist_ok=True)
        write_image(path, detail(np.clip(values, 0.0, 1.0)))


def picture_path(output: Path, spec: Spec, row: Row) -> Path:
    """Return the file of the prediction of a row; the name distinguishes all rows."""
    seed = [f"seed {row['seed']}"] if row["seed"] else []
    epochs = f"{row['epochs']} epochs"
    return _picture(output, spec.name, row["item"], row["side"], row["method"], epochs, *seed)


def original_path(output: Path, spec: Spec, row: Row) -> Path:
    """Return the file of the original image of a row."""
    return _picture(output, spec.name, row["item"], row["side"], "original")


def _picture(output: Path, *words: Any) -> Path:
    """Return the path of an image; its name needs no quoting in a shell."""
    name = re.sub(r"[^\w.]+", "-", "-".join(map(str, words)))
    return output / "pictures" / f"{name}.png"


def detail(values: Array) -> Array:
    """Return the central part of an image that is kept."""
    starts = [max(0, (n - DETAIL) // 2) for n in values.shape[:2]]
    return np.ascontiguousarray(values[tuple(slice(start, start + DETAIL) for start in starts)])


def estimated_seconds(spec: Spec, size: Size, method: Method) -> float:
    """Return the estimated seconds of a job on one core.

    They are within a factor of 2 of times.jsonl for networks, and too many for other methods.
    """
    D = spec.dimensions
    samples = (size.side // 2) ** D if spec.task == "grid" else spec.fraction * size.side**D
    if not method.is_network:
        return 0.05 + 2e-6 * samples * (10 if method.how == "fit_points" else 1)
    small = spec.scaled(method, size, size.side)
    width = small.hidden if method.depth else 3
    if method.is_simple:
        weights = small.features * width + max(0, method.depth - 1) * small.hidden**2
        products = samples * weights
    else:
        products = width * D * float(small.features) ** (D + 1) + samples * width * (
            1 if spec.task == "grid" else 2**D
        )
    return size.epochs_of(method) * (EPOCH + 6 * products / SPEED)
