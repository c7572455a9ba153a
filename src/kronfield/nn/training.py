"""One training loop for every coordinate network: Adam, full batch or minibatch, with all that keeps a long run safe."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._arrays import describe, problem, real, whole
from kronfield.field import Field
from kronfield.nn import checkpoints
from kronfield.nn.data import Samples, samples, split
from kronfield.nn.field import as_field
from kronfield.nn.inputs import Grid
from kronfield.nn.layers import Prepared
from kronfield.nn.mlp import CoordinateMLP
from kronfield.progress import Bar

# The paper's learning rates: one linear layer on a Kronecker encoding, and everything deeper.
LINEAR_RATE, DEEP_RATE = 1e-1, 5e-3
# Points of a full batch that go through the network at a time: their hidden layers stay in the cache.
CHUNK_NUMBERS = 1 << 20
# A loss so many times that of the start, or of the best constant, has diverged.
DIVERGED = 1e4

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": nn.functional.mse_loss,
    "mae": nn.functional.l1_loss,
    "huber": nn.functional.smooth_l1_loss,
}
# The learning rate at a part t of the way, from 0 to 1, relative to that of the start.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t)),
    "exponential": lambda t: 0.01**t,
    "linear": lambda t: 1.0 - t,
}


class DivergenceError(RuntimeError):
    """The loss grew without bound; the network holds its best weights so far."""


@dataclass
class Epoch:
    """How one epoch went: what a callback is told."""

    number: int
    loss: float
    held_out: float | None
    rate: float
    seconds: float


@dataclass
class Training:
    """What `train` did.

    Attributes
    ----------
    model : CoordinateMLP
        With its best weights.
    losses : list of float
        The loss of every epoch, before its step.
    held_out : list of (epoch, loss)
        On samples held out, where there are any.
    best_epoch, best_loss
        When and what the best was: held out, or else on the samples themselves.
    stopped_by : str
        "epochs", "patience", "callback" or "interrupt".
    seconds : float
        All told.
    """

    model: CoordinateMLP
    data: Samples
    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float = math.inf
    stopped_by: str = "epochs"
    seconds: float = 0.0

    @property
    def epochs(self) -> int:
        """How many epochs were run."""
        return len(self.losses)

    @property
    def psnr(self) -> float:
        """The PSNR in dB of the best loss, if that is a mean square."""
        return _psnr(self.best_loss, self.data.peak)

    @property
    def field(self) -> Field:
        """The network as a field on the domain of its encoding."""
        axes = [x.cpu().double().numpy() for x in self.data.inputs.axes] if isinstance(self.data.inputs, Grid) else None
        return as_field(self.model, axes=axes, channels=self.data.channels, report=self)

    def __str__(self) -> str:
        lines = [f"training of {self.model.parameter_count} weights on {self.data.count} samples"]
        lines.append(f"  {self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped_by}")
        lines.append(f"  best: epoch {self.best_epoch}, loss {self.best_loss:.4g}, PSNR {self.psnr:.2f} dB")
        return "\n".join(lines)


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
) -> Training:
    """Train a coordinate network; by default as the paper does: Adam, full batch, 2000 epochs.

    A full batch goes through the network in parts that fit the cache, which changes nothing but rounding. Ctrl-C ends the
    run and returns the best so far.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.nn import CoordinateMLP, train
    >>> values = np.sin(6 * np.arange(64) / 64)
    >>> done = train(CoordinateMLP(kf.Kronecker(kf.Gaussian(32, 0.03)), depth=0, out=1), values, epochs=200)
    >>> bool(done.losses[-1] < 1e-3 * done.losses[0]), done.field(np.array([[0.5]])).shape
    (True, (1,))

    Parameters
    ----------
    model : CoordinateMLP
        Trained in place.
    data : array, (points, values) or (Grid, values)
        Values alone lie on a grid at the positions i/N of the model's domain.
    epochs, rate, betas, weight_decay
        Of Adam. The rate is by default the paper's: 0.1 for one linear layer on a Kronecker encoding, else 0.005.
    batch : int, optional
        Samples a step, drawn without repetition in every epoch; by default all.
    chunk : int, optional
        Samples of a full batch that go through the network at a time.
    schedule : "constant", "cosine", "exponential", "linear", or a function
        The learning rate over the run; a function takes how much of it is done, from 0 to 1, and returns a factor.
    loss : "mse", "mae", "huber", or a function
        A function takes (prediction, value), both (n, C), and returns a mean over the n samples.
    held_out : float or data, optional
        A fraction of the samples to judge by, or other data. The best weights by this are what the run returns.
    patience : int, optional
        Stop after so many epochs without a better held-out loss.
    every : int, optional
        Epochs between two looks at the held-out loss, and between checkpoints; by default a hundredth of all.
    clip : float, optional
        The largest norm of a gradient.
    seed : int
        Of the batches and of what is held out.
    device, threads
        Where to run, and with how many threads of the processor.
    checkpoint : path, optional
        A file to write the state of the run to. With ``resume`` a run goes on from there, to the same result bit for bit.
    progress : bool
        Show a bar on the terminal: loss, PSNR, epochs a second, and the time left.
    callback : function, optional
        Called with an `Epoch` after each; returns true to stop.
    """
    if not isinstance(model, CoordinateMLP):
        raise problem("model", describe(model), "a CoordinateMLP", "For your own network, write your own loop.", TypeError)
    run = _Run(
        model, samples(data, model), held_out, epochs, rate, betas, weight_decay, batch, chunk, schedule, loss, patience,
        every, clip, seed, device,
    )  # fmt: skip
    if resume and checkpoint is None:
        raise problem("resume", True, "a checkpoint to go on from", "Pass checkpoint=.")
    with _threads(threads), Bar("Training", run.epochs, shown=progress) as bar:
        return run.go(checkpoint, resume, bar, callback)


class _Run:
    """One run: settings checked, data in place, an optimiser."""

    def __init__(
        self, model: CoordinateMLP, data: Samples, held_out: Any, epochs: int, rate: float | None, betas: Any,
        weight_decay: float, batch: int | None, chunk: int | None, schedule: Any, loss: Any, patience: int | None,
        every: int | None, clip: float | None, seed: int, device: Any,
    ) -> None:  # fmt: skip
        self.epochs = whole("epochs", epochs, at_least=1)
        remedy = "It is the step of Adam: 0.1 to 0.0001 are usual."
        fallback = LINEAR_RATE if model.is_linear else DEEP_RATE
        self.rate = real("rate", fallback if rate is None else rate, low=0.0, high=1e6, open_low=True, remedy=remedy)
        decay = real("weight_decay", weight_decay, low=0.0, high=1e6, remedy="It is a small number or 0.")
        self.batch = None if batch is None else whole("batch", batch, at_least=1)
        self.schedule = _named("schedule", schedule, SCHEDULES)
        self.loss = _named("loss", loss, LOSSES)
        self.patience = None if patience is None else whole("patience", patience, at_least=1)
        if self.patience is not None and held_out is None:
            raise problem("patience", patience, "something held out to judge by", "Pass held_out=0.1, say.")
        self.every = max(1, self.epochs // 100) if every is None else whole("every", every, at_least=1)
        self.clip = None if clip is None else real("clip", clip, low=0.0, high=1e30, open_low=True, remedy="A norm.")
        self.seed = whole("seed", seed, at_least=0)
        if not isinstance(betas, tuple | list) or len(betas) != 2 or not all(0 <= float(b) < 1 for b in betas):
            raise problem("betas", describe(betas), "two numbers in [0, 1)", "The paper's are (0.9, 0.999).")
        self.model = model if device is None else model.to(device)
        weight = model.first.weight
        learn, self.held = split(data, held_out, model, self.seed)
        self.data, self.whole_data = _placed(learn, weight), data
        self.held = None if self.held is None else _placed(self.held, weight)
        if self.batch is not None:
            self.data = self.data.flat()
        self.optimiser = torch.optim.Adam(
            model.parameters(), lr=self.rate, betas=(float(betas[0]), float(betas[1])), weight_decay=decay
        )
        self.generator = torch.Generator().manual_seed(self.seed)
        flat = self.data.values.reshape(-1, model.out)
        self.constant_loss = float(self.loss(flat.mean(0).expand_as(flat), flat))
        per_point = max(model.first.width, model.width if model.depth else 1)
        self.chunk = max(1, CHUNK_NUMBERS // per_point) if chunk is None else whole("chunk", chunk, at_least=1)
        self.fingerprint = {
            "epochs": self.epochs, "rate": self.rate, "betas": [float(b) for b in betas], "weight_decay": decay,
            "batch": self.batch, "chunk": self.chunk, "clip": self.clip, "seed": self.seed, "every": self.every,
            "schedule": _name(schedule), "loss": _name(loss), "weights": model.parameter_count,
            "encoding": repr(model.encoding), "data": data.digest(),
        }  # fmt: skip

    def go(self, checkpoint: Any, resume: bool, bar: Bar, callback: Callable[[Epoch], Any] | None) -> Training:
        model, result = self.model, Training(self.model, self.whole_data)
        best = _copy(model)
        before = 0.0
        if resume and checkpoint is not None and checkpoints.exists(checkpoint):
            best, state = checkpoints.load(checkpoint, model, self.optimiser, self.generator, self.fingerprint)
            result.losses, result.held_out = list(state["losses"]), [(int(e), v) for e, v in state["held_out"]]
            result.best_epoch, result.best_loss, before = state["best_epoch"], state["best_loss"], state["seconds"]
        started = time.perf_counter() - before

        def keep() -> None:
            if checkpoint is not None:
                result.seconds = time.perf_counter() - started
                state = {
                    "fingerprint": self.fingerprint, "losses": result.losses, "held_out": result.held_out,
                    "best_epoch": result.best_epoch, "best_loss": result.best_loss, "seconds": result.seconds,
                }  # fmt: skip
                checkpoints.save(checkpoint, model, self.optimiser, self.generator, best, state)

        training, prepared = model.training, self._prepared()
        model.train()
        try:
            for number in range(len(result.losses), self.epochs):
                rate = self.rate * float(self.schedule(number / self.epochs))
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
                look = number % self.every == 0 or number == self.epochs - 1
                weights = _copy(model) if look and self.held is None else None  # the loss is of these, not of what follows
                value = self._epoch(prepared)
                result.losses.append(value)
                self._check(value, number, rate, result.losses[0], best)
                judged = self._judge() if look and self.held is not None else None
                if judged is not None:
                    result.held_out.append((number, judged))
                score = judged if self.held is not None else (value if look else None)
                if score is not None and score < result.best_loss:
                    result.best_loss, result.best_epoch = score, number
                    best = _copy(model) if weights is None else weights
                seconds = time.perf_counter() - started
                bar.update(number + 1, self._figures(value, number + 1, seconds))
                stop = callback is not None and callback(Epoch(number, value, judged, rate, seconds))
                if look and number < self.epochs - 1:
                    keep()
                if stop or (
                    self.patience is not None and judged is not None and number - result.best_epoch >= self.patience
                ):
                    result.stopped_by = "callback" if stop else "patience"
                    break
        except KeyboardInterrupt:
            result.stopped_by = "interrupt"
        if result.stopped_by == "epochs" and self.held is None:
            best, result.best_epoch = self._last(result, best)  # the last step counts too
        keep()
        model.load_state_dict(best)
        model.train(training)
        result.seconds = time.perf_counter() - started
        return result

    def _last(self, result: Training, best: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
        """Return the weights after the last step, if they are better than the best before."""
        value = self._evaluate(self.data, self._prepared())
        if value < result.best_loss:
            result.best_loss = value
            return _copy(self.model), result.epochs
        return best, result.best_epoch

    def _prepared(self) -> Prepared | None:
        return None if self.batch is not None else self.model.prepare(self.data.inputs)

    def _epoch(self, prepared: Prepared | None) -> float:
        """Take the steps of one epoch; return the mean loss before them."""
        if prepared is not None:
            return self._step(prepared, self.data)
        assert self.batch is not None
        assert isinstance(self.data.inputs, Tensor)
        order = torch.randperm(len(self.data.inputs), generator=self.generator).to(self.data.values.device)
        total = 0.0
        for some in order.split(self.batch):
            part = Samples(self.data.inputs[some], self.data.values[some])
            total += self._step(self.model.prepare(part.inputs), part) * len(some)
        return total / len(order)

    def _step(self, prepared: Prepared, data: Samples) -> float:
        self.optimiser.zero_grad(set_to_none=True)
        value = self._backward(prepared, data)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if math.isfinite(value):
            self.optimiser.step()
        return value

    def _backward(self, prepared: Prepared, data: Samples) -> float:
        """Add up the gradients of all parts of a batch; what they share is differentiated once, at the end."""
        shared = self.model.first.shared(prepared)
        parts = list(self._parts(prepared, data))
        if len(parts) == 1:
            start, stop, _ = parts[0]
            loss = self._part_loss(prepared, shared, data, start, stop)
            loss.backward()
            return float(loss.detach())
        leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in shared]
        total = 0.0
        for start, stop, share in parts:
            loss = self._part_loss(prepared, leaves, data, start, stop) * share
            loss.backward()
            total += float(loss.detach())
        pairs = [(tensor, leaf.grad) for tensor, leaf in zip(shared, leaves, strict=True) if leaf.grad is not None]
        torch.autograd.backward([tensor for tensor, _ in pairs], [grad for _, grad in pairs])
        return total

    def _parts(self, prepared: Prepared, data: Samples) -> Iterator[tuple[int, int, float]]:
        """Yield (start, stop, share of the samples) of the parts of a batch."""
        step = max(1, self.chunk // prepared.per_row)
        if self.model.is_linear:
            step = prepared.rows  # nothing follows that would not fit the cache
        for start in range(0, prepared.rows, step):
            stop = min(start + step, prepared.rows)
            used = (stop - start) * prepared.per_row if data.used is None else int(data.used[start:stop].sum())
            if used:
                yield start, stop, used / data.count

    def _part_loss(self, prepared: Prepared, shared: list[Tensor], data: Samples, start: int, stop: int) -> Tensor:
        found, wanted = self.model.part(prepared, shared, start, stop), data.values[start:stop]
        if data.used is not None:
            used = data.used[start:stop]
            return self.loss(found[used], wanted[used])
        return self.loss(found.reshape(-1, self.model.out), wanted.reshape(-1, self.model.out))

    def _judge(self) -> float:
        assert self.held is not None
        return self._evaluate(self.held, self.model.prepare(self.held.inputs))

    @torch.no_grad()
    def _evaluate(self, data: Samples, prepared: Prepared | None) -> float:
        prepared = self.model.prepare(data.inputs) if prepared is None else prepared
        shared = self.model.first.shared(prepared)
        return sum(
            float(self._part_loss(prepared, shared, data, start, stop)) * share
            for start, stop, share in self._parts(prepared, data)
        )

    def _check(self, value: float, number: int, rate: float, first: float, best: dict[str, Tensor]) -> None:
        if math.isfinite(value) and value <= DIVERGED * max(first, self.constant_loss, 1e-30):
            return
        self.model.load_state_dict(best)
        raise DivergenceError(
            f"train: the loss went from {first:.3g} to {value:.3g} at epoch {number}, with a rate of {rate:.3g}. "
            f"Use a smaller rate ({rate / 10:.1g}, say) or clip=1.0; the network has its best weights so far."
        )

    def _figures(self, value: float, done: int, seconds: float) -> str:
        quality = f"PSNR {_psnr(value, self.whole_data.peak):.2f} dB, " if self.loss is LOSSES["mse"] else ""
        return f"loss {value:.3e}, {quality}{done / max(seconds, 1e-9):.1f} epochs/s"


def _placed(data: Samples, like: Tensor) -> Samples:
    """Return the samples on the device of the weights, values in their dtype; positions keep their digits."""
    inputs = data.inputs.to(like.device)
    used = None if data.used is None else data.used.to(like.device)
    return Samples(inputs, data.values.to(like.device, like.dtype), data.channels, used)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _named(argument: str, value: Any, known: dict[str, Any]) -> Any:
    if callable(value):
        return value
    if not isinstance(value, str) or value not in known:
        raise problem(argument, describe(value), f"one of {', '.join(known)}, or a function", "Choose one.")
    return known[value]


def _name(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__)


def _psnr(mean_square: float, peak: float) -> float:
    return -10 * math.log10(mean_square / peak**2) if 0 < mean_square < math.inf else math.inf


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(whole("threads", count, at_least=1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
