"""Run one method on one task: its prediction and its cost."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield.experiments.encodings import complex_encoding
from kronfield.experiments.spec import Method
from kronfield.experiments.tasks import Task
from kronfield.field import Field
from kronfield.fitting.grid import RankWarning, fit
from kronfield.fitting.points import fit_points

# Descent has settled at the first epoch whose loss is within this many dB of the best.
SETTLED = 0.5


@dataclass
class Outcome:
    """The prediction at every position, its cost, and further columns of the row."""

    prediction: Array
    parameters: int
    seconds: float
    evaluation_seconds: float
    epochs: int = 0
    more: dict[str, Any] = field(default_factory=dict)


def run_method(
    method: Method,
    task: Task,
    epochs: int,
    seed: int,
    checkpoint: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Run a method; ``progress`` is called with the completed fraction."""
    if method.is_network:
        return _descent(method, task, epochs, seed, checkpoint, progress)
    started = time.perf_counter()
    field, positions = fitted(method, task, seed)
    finished = time.perf_counter()
    prediction = field.on_grid(positions, outside="extrapolate")
    done = time.perf_counter()
    ranks = getattr(field.report, "ranks", None)
    more: dict[str, Any] = (
        {"rank": [int(rank) for rank in ranks]}
        if ranks is not None and method.how == "closed"
        else {}
    )
    if method.how != "closed":
        more["chosen"] = _chosen(field)
    return Outcome(
        np.asarray(prediction),
        int(np.size(field.weights)),
        finished - started,
        done - finished,
        0,
        more,
    )


def fitted(method: Method, task: Task, seed: int) -> tuple[Field, list[Array]]:
    """Return the fitted field, and the axes of all positions of the task in its coordinates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # the rank is in the row
        return _field(method, task, seed)


def _field(method: Method, task: Task, seed: int) -> tuple[Field, list[Array]]:
    unit = [(0.0, 1.0)] * task.dimensions
    encoding = complex_encoding(method, task.dimensions, seed) if method.encoder else None
    if method.how == "closed":
        settings: dict[str, Any] = {"domain": unit, "ridge": 0.0, "roughness": (0.0, 0.0)}
        return fit(task.coarse, task.coarse_axes, encoding, channels=True, **settings), task.axes
    if method.how == "fit":
        if encoding is None:
            return fit(task.coarse, channels=True), [np.arange(n) / 2 for n in task.shape]
        return fit(task.coarse, task.coarse_axes, encoding, domain=unit, channels=True), task.axes
    given = task.values[~task.asked]
    if encoding is None:
        return fit_points(task.indices(), given), [np.arange(float(n)) for n in task.shape]
    return fit_points(
        task.indices() / np.array(task.shape), given, encoding, domain=unit
    ), task.axes


def _chosen(field: Field) -> str:
    """Return the embedders and penalties that a fit chose, as a short text for the row."""
    report = field.report
    parts = [repr(emb) for emb in dict.fromkeys(field.encoding.embedders)]
    for name in ("ridge", "roughness"):
        value = getattr(report, name, None)
        if value is not None and np.any(np.asarray(value) != 0):
            parts.append(f"{name} {np.array2string(np.asarray(value), precision=3)}")
    return "; ".join(parts)


def _descent(
    method: Method,
    task: Task,
    epochs: int,
    seed: int,
    checkpoint: Path | None,
    progress: Callable[[float], None] | None,
) -> Outcome:
    from kronfield.experiments import networks

    callback = None if progress is None else lambda epoch: progress((epoch.number + 1) / epochs)
    done = networks.descend(method, task, epochs, seed, checkpoint, callback)
    started = time.perf_counter()
    prediction = networks.evaluate(done.model, task)
    seconds = time.perf_counter() - started
    near = done.best_loss * 10 ** (SETTLED / 10)
    settled = next((i for i, loss in enumerate(done.losses) if loss <= near), len(done.losses))
    training = -10 * math.log10(max(done.best_loss, 1e-30))
    more = {
        "training_psnr": round(training, 3),
        "settled_epoch": settled,
        "threads": networks.useful_threads(method, task),
    }
    return Outcome(prediction, done.model.parameter_count, done.seconds, seconds, done.epochs, more)
