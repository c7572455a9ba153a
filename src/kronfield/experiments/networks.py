"""The networks of the paper, initialised and trained as in its experiments (needs PyTorch)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield.encoding.blending import Blending
from kronfield.experiments.encodings import (
    complex_encoding,
    normalised,
    simple_encoding,
    without_norms,
)
from kronfield.experiments.released import ReleasedBlending
from kronfield.experiments.spec import BLENDINGS, Method
from kronfield.experiments.tasks import Task
from kronfield.nn import CoordinateMLP, Epoch, Grid, KroneckerLinear, Training, train

# The largest number of values of a hidden layer evaluated at a time.
BLOCK = 1 << 24
# Below this many products in an epoch, one thread is as fast as two.
SMALL = 3e7
# A run with at least this many products takes minutes. If the network has hidden layers, the run
# saves checkpoints, so that it can resume.
LONG = 1e12


class _PaperLayer(KroneckerLinear):
    """The Kronecker layer of the paper; its virtual grid has as many cells as features."""

    how = BLENDINGS[0]

    @property
    def _blending(self) -> Blending:
        encoding = without_norms(self.encoding)
        if self.how == "released":
            return ReleasedBlending(encoding)
        weights, _, normalise = self.how.partition(", ")
        nodes = [np.linspace(0.0, 1.0, n + 1) for n in encoding.shape]
        return Blending(encoding, nodes, weights=weights, normalise=bool(normalise))


def build(method: Method, dimensions: int, channels: int, seed: int) -> CoordinateMLP:
    """Return the network of a method, initialised with a seed.

    Features are normalised. Weights on a complex encoding start uniform in +-1/sqrt(width), as in
    the paper's experiments. Those of the group "ours" start at zero.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if method.is_simple:
            encoding = normalised(simple_encoding(method, dimensions, seed))
            return CoordinateMLP(encoding, method.depth, max(1, method.hidden), channels)
        encoding = normalised(complex_encoding(method, dimensions, seed))
        model = CoordinateMLP(
            encoding, method.depth, max(1, method.hidden), channels, points="blending"
        )
        first = _PaperLayer(
            encoding, model.first.width, bias=False, points="blending", init="zeros"
        )
        first.how = method.blending or first.how
        if method.group != "ours":
            torch.nn.init.uniform_(
                first.weight, -1 / math.sqrt(first.width), 1 / math.sqrt(first.width)
            )
        model.first = first
        return model


def descend(
    method: Method,
    task: Task,
    epochs: int,
    seed: int,
    checkpoint: Path | None,
    callback: Callable[[Epoch], Any] | None,
    threads: int | None = None,
) -> Training:
    """Train the network of a method on the given samples of a task; Ctrl-C ends the run.

    ``threads`` is by default that of `useful_threads`.
    """
    import torch

    model = build(method, task.dimensions, task.channels, seed)
    if task.given is None and (method.group == "factored" or not method.is_simple):
        data: Any = (Grid(*[torch.from_numpy(x) for x in task.coarse_axes]), task.coarse)
    else:
        # As in the paper, simple encodings have a row of features per point, also on a grid.
        data = (task.indices() / np.array(task.shape), task.values[~task.asked])
    kept = checkpoint if method.depth and epochs * _products(method, task) >= LONG else None
    with subnormals_as_zero():
        done = train(
            model,
            data,
            epochs=epochs,
            rate=method.rate,
            seed=seed,
            threads=threads or useful_threads(method, task),
            callback=callback,
            checkpoint=kept,
            resume=kept is not None,
        )
    if done.stopped_by == "interrupt":
        raise KeyboardInterrupt
    return done


@contextlib.contextmanager
def subnormals_as_zero() -> Iterator[None]:
    """Treat subnormal numbers, those below 1e-38 in float32, as 0.

    Features of narrow Gaussians are often that small, and many processors multiply subnormal
    numbers slowly: with them an epoch takes 4 times as long, and ends with the same loss.
    """
    import torch

    before = not float(torch.tensor(1e-40, dtype=torch.float32) * 0.5)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def evaluate(model: CoordinateMLP, task: Task) -> Array:
    """Return the values of a network at all positions of a task.

    A Kronecker layer trained at points is evaluated at points, with the same blending.
    """
    import torch

    wide = max(
        model.first.width,
        model.encoding.size if not isinstance(model.first, KroneckerLinear) else 1,
    )
    with torch.no_grad():
        if task.given is None or not isinstance(model.first, KroneckerLinear):
            rows = max(1, BLOCK // (wide * math.prod(task.shape[1:])))
            first, *rest = task.axes
            parts = [model(Grid(first[i : i + rows], *rest)) for i in range(0, len(first), rows)]
            return torch.cat(parts).numpy()
        points = torch.from_numpy(
            np.stack(np.meshgrid(*task.axes, indexing="ij"), axis=-1).reshape(-1, task.dimensions)
        )
        step = max(1, BLOCK // wide)
        values = torch.cat([model(points[i : i + step]) for i in range(0, len(points), step)])
        return values.reshape(*task.shape, task.channels).numpy()


def useful_threads(method: Method, task: Task) -> int:
    """Return the number of training threads; small networks gain nothing from a second."""
    import torch

    return 1 if _products(method, task) < SMALL else torch.get_num_threads()


def _products(method: Method, task: Task) -> float:
    """Return the approximate number of products in the forward passes of an epoch."""
    width = method.hidden if method.depth else task.channels
    if method.is_simple:
        return float(task.count) * width * (method.features + max(0, method.depth - 1) * width)
    return float(width) * task.dimensions * method.features ** (task.dimensions + 1)
