"""The training loop of coordinate networks: Adam (Kingma and Ba, 2015), full or mini-batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kronfield._core.arrays import describe, problem, whole
from kronfield._core.progress import Bar
from kronfield.fitting import settings as decisions
from kronfield.fitting.options import checked_settings
from kronfield.nn import checkpoints
from kronfield.nn.data import samples
from kronfield.nn.mlp import CoordinateMLP
from kronfield.nn.run import Epoch, Training, TrainingRun
from kronfield.nn.settings import Settings


def train(
    model: CoordinateMLP,
    data: Any,
    *,
    epochs: int = 2000,
    rate: float | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 1e-8,
    batch: int | None = None,
    chunk: int | None = None,
    schedule: str | Callable[[float], float] = "constant",
    loss: str | Callable[[Tensor, Tensor], Tensor] = "mse",
    held_out: Any = None,
    patience: int | None = None,
    every: int | None = None,
    clip: float | None = None,
    seed: int = 0,
    device: Any = None,
    threads: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
    callback: Callable[[Epoch], Any] | None = None,
    settings: decisions.Settings | None = None,
) -> Training:
    """Train a coordinate network; by default as the paper does: Adam, full batch, 2000 epochs.

    A full batch passes through the network in parts that fit the cache, which changes only
    rounding. Ctrl-C ends the run and returns the best weights so far.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.nn import CoordinateMLP, train
    >>> values = np.sin(6 * np.arange(64) / 64)
    >>> model = CoordinateMLP(kf.Kronecker(kf.Gaussian(32, 0.03)), depth=0, out=1)
    >>> done = train(model, values, epochs=200)
    >>> bool(done.losses[-1] < 1e-3 * done.losses[0]), done.field(np.array([[0.5]])).shape
    (True, (1,))

    Parameters
    ----------
    model : CoordinateMLP
        The network, trained in place.
    data : array, (points, values) or (Grid, values)
        Values alone lie on a grid at the positions i/N of the model's domain.
    epochs, rate, betas, weight_decay
        Parameters of Adam. The default rate is the paper's: 0.1 for one linear layer on a Kronecker
        encoding, else 0.005.
    batch : int, optional
        Samples per step, drawn without replacement in every epoch; by default all.
    chunk : int, optional
        Samples of a full batch that pass through the network at a time.
    schedule : "constant", "cosine", "exponential", "linear", or a function
        The learning rate over the run. A function maps the completed fraction, from 0 to 1, to a
        factor of the rate.
    loss : "mse", "mae", "huber", or a function
        A function takes (prediction, value), both (n, C), and returns a mean over the n samples.
    held_out : float or data, optional
        A fraction of the samples, or other data, to judge the weights by. The run returns the
        weights with the least held-out loss.
    patience : int, optional
        Stop after this many epochs without a better held-out loss.
    every : int, optional
        Epochs between evaluations of the held-out loss, and between checkpoints; by default a
        hundredth of all epochs.
    clip : float, optional
        The largest norm of the gradient; larger gradients are scaled down to it (Pascanu, Mikolov
        and Bengio, 2013).
    seed : int
        Seed of the batches and of the held-out split.
    device, threads
        The device, and the number of threads of the processor.
    checkpoint : path, optional
        A file for the state of the run. With ``resume`` a run continues from it, to the same result
        bit for bit on the same machine with the same number of threads. Settings and data must be
        the same; functions are compared by name.
    progress : bool
        Show a bar on the terminal: loss, PSNR, epochs per second, and the remaining time.
    callback : function, optional
        Called with an `Epoch` after each epoch; returns true to stop.
    settings : kronfield.fitting.settings.Settings, optional
        Settings for experiments, to be used instead of `kronfield.fitting.settings.DEFAULT`.
    """
    if not isinstance(model, CoordinateMLP):
        raise problem(
            "model",
            describe(model),
            "a CoordinateMLP",
            "For your own network, write your own loop.",
            TypeError,
        )
    given = samples(data, model)
    checked = Settings.checked(
        model,
        epochs=epochs,
        rate=rate,
        betas=betas,
        weight_decay=weight_decay,
        batch=batch,
        chunk=chunk,
        schedule=schedule,
        loss=loss,
        held_out=held_out,
        patience=patience,
        every=every,
        clip=clip,
        seed=seed,
    )
    diverged = checked_settings(settings).networks.diverged
    run = TrainingRun(model, given, held_out, checked, diverged, device)
    if resume and checkpoint is None:
        raise problem("resume", True, "a checkpoint to resume from", "Pass checkpoint=.")
    if checkpoint is not None and not resume and checkpoints.exists(checkpoint):
        raise problem(
            "checkpoint",
            f"{checkpoint}, which exists",
            "a new file",
            "Pass resume=True to continue, or remove it.",
        )
    with _threads(threads), Bar("Training", checked.epochs, shown=progress) as bar:
        return run.go(checkpoint, resume, bar, callback)


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(whole("threads", count, at_least=1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
