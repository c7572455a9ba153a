"""A training run: its steps, cut so that they fit the cache, its best weights, its checkpoints, its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, problem, real, whole
from kronfield._core.progress import Bar
from kronfield.field import Field
from kronfield.nn import checkpoints
from kronfield.nn.data import Samples, split
from kronfield.nn.field import as_field
from kronfield.nn.grid import Grid
from kronfield.nn.layers import Prepared
from kronfield.nn.mlp import CoordinateMLP

# The paper's learning rates: one linear layer on a Kronecker encoding, and everything deeper.
LINEAR_RATE, DEEP_RATE = 1e-1, 5e-3
# Points of a full batch that go through the network at a time: their hidden layers stay in the cache.
CHUNK_NUMBERS = 1 << 20
# Points in one row of a grid from which it is taken apart into points: a row must fit the memory.
MOST_PER_ROW = 1 << 17
# A loss so many times what is bad has diverged.
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
    is_mean_square: bool = True

    @property
    def epochs(self) -> int:
        """How many epochs were run."""
        return len(self.losses)

    @property
    def psnr(self) -> float | None:
        """The PSNR in dB of the best loss, if that is a mean square; else None."""
        return _psnr(self.best_loss, self.data.peak) if self.is_mean_square else None

    @property
    def field(self) -> Field:
        """The network as a field on the domain of its encoding."""
        axes = [x.cpu().double().numpy() for x in self.data.inputs.axes] if isinstance(self.data.inputs, Grid) else None
        return as_field(self.model, axes=axes, channels=self.data.channels, report=self)

    def __str__(self) -> str:
        lines = [f"training of {self.model.parameter_count} weights on {self.data.count} samples"]
        lines.append(f"  {self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped_by}")
        quality = "" if self.psnr is None else f", PSNR {self.psnr:.2f} dB"
        lines.append(f"  best: epoch {self.best_epoch}, loss {self.best_loss:.4g}{quality}")
        return "\n".join(lines)


class Run:
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
        if model.first.weight.dtype == torch.float16:
            raise problem("model", "float16 weights", "float32, float64 or bfloat16", "Adam's numbers do not fit: .float()")
        self.model = model if device is None else model.to(device)
        weight = model.first.weight
        learn, self.held = split(data, held_out, model, self.seed)
        self.data, self.whole_data = _placed(learn, weight), data
        self.held = None if self.held is None else _placed(self.held, weight)
        if self.batch is not None or math.prod(self.data.values.shape[1:-1]) > MOST_PER_ROW:
            self.data = self.data.flat()
        self.optimiser = torch.optim.Adam(
            model.parameters(), lr=self.rate, betas=(float(betas[0]), float(betas[1])), weight_decay=decay
        )
        self.generator = torch.Generator().manual_seed(self.seed)
        per_point = max(model.first.width, model.width if model.depth else 1)
        self.chunk = max(1, CHUNK_NUMBERS // per_point) if chunk is None else whole("chunk", chunk, at_least=1)
        self.fingerprint = {
            "epochs": self.epochs, "rate": self.rate, "betas": [float(b) for b in betas], "weight_decay": decay,
            "batch": self.batch, "chunk": self.chunk, "clip": self.clip, "seed": self.seed, "every": self.every,
            "schedule": _name(schedule), "loss": _name(loss), "patience": self.patience, "network": _described(model),
            "data": learn.digest(), "held out": None if self.held is None else self.held.digest(),
        }  # fmt: skip
        self.result = Training(model, data, is_mean_square=self.loss is LOSSES["mse"])
        self.diverged = self._bound() if isinstance(loss, str) else math.inf

    def _bound(self) -> float:
        """Return a loss that no run reaches which does not diverge: many times that of the start, of zero, of the mean."""
        flat = self.data.values.reshape(-1, self.model.out)
        constants = (torch.zeros_like(flat[:1]), flat.mean(0, keepdim=True))
        losses = [float(self.loss(one.expand_as(flat), flat)) for one in constants] + [self._evaluate(self.data)]
        return DIVERGED * max(1e-30, *(value for value in losses if math.isfinite(value)))

    def go(self, checkpoint: Any, resume: bool, bar: Bar, callback: Callable[[Epoch], Any] | None) -> Training:
        """Run the epochs that are left; return what came of it, with the best weights in place."""
        model, result = self.model, self.result
        self.best = _copy(model)
        before = self._resume(checkpoint) if resume else 0.0
        self.started = time.perf_counter() - before
        training = model.training
        model.train()
        try:
            if result.stopped_by != "patience":
                self._all_epochs(checkpoint, bar, callback)
        finally:  # also if the callback fails
            model.load_state_dict(self.best)
            model.train(training)
            result.seconds = time.perf_counter() - self.started
        return result

    def _all_epochs(self, checkpoint: Any, bar: Bar, callback: Callable[[Epoch], Any] | None) -> None:
        result = self.result
        between = True  # whether weights, optimiser and chance are those at the end of an epoch
        try:
            prepared = self._prepared()
            for number in range(len(result.losses), self.epochs):
                rate = self.rate * float(self.schedule(number / self.epochs))
                for group in self.optimiser.param_groups:
                    group["lr"] = rate
                look = number % self.every == 0 or number == self.epochs - 1
                # the loss of a full batch is that of the weights before its step
                weights = _copy(self.model) if look and self.held is None and prepared is not None else None
                between = False
                value = self._epoch(prepared)
                result.losses.append(value)
                self._check(value, number, rate)
                between = True
                score = value if weights is not None else None
                if look and weights is None:
                    score = self._evaluate(self.data if self.held is None else self.held)
                    self._check(score, number, rate)
                judged = score if self.held is not None else None
                if judged is not None:
                    result.held_out.append((number, judged))
                if score is not None:
                    self._remember(score, number, weights)
                seconds = time.perf_counter() - self.started
                bar.update(number + 1, self._figures(value, number + 1, seconds))
                stop = callback is not None and callback(Epoch(number, value, judged, rate, seconds))
                late = self.patience is not None and judged is not None and number - result.best_epoch >= self.patience
                if stop or late:
                    result.stopped_by = "callback" if stop else "patience"
                    break
                if look and number < self.epochs - 1:
                    self._keep(checkpoint)
        except KeyboardInterrupt:
            result.stopped_by = "interrupt"
            if not between:  # half a step is no place to go on from: the last checkpoint is
                return
        if self.held is None:  # the last step counts too
            self._remember(self._evaluate(self.data), result.epochs, None)
        self._keep(checkpoint)

    def _remember(self, score: float, number: int, weights: dict[str, Tensor] | None) -> None:
        """Keep the weights, by default those now, if they are the best so far."""
        if score < self.result.best_loss:
            self.result.best_loss, self.result.best_epoch = score, number
            self.best = _copy(self.model) if weights is None else weights

    def _keep(self, checkpoint: Any) -> None:
        if checkpoint is None:
            return
        result = self.result
        result.seconds = time.perf_counter() - self.started
        state = {
            "fingerprint": self.fingerprint, "losses": result.losses, "held_out": result.held_out,
            "best_epoch": result.best_epoch, "best_loss": result.best_loss if math.isfinite(result.best_loss) else None,
            "seconds": result.seconds, "stopped_by": result.stopped_by,
        }  # fmt: skip
        checkpoints.save(checkpoint, self.model, self.optimiser, self.generator, self.best, state)

    def _resume(self, checkpoint: Any) -> float:
        """Put back what the checkpoint holds, if there is one; return the seconds spent before."""
        if not checkpoints.exists(checkpoint):
            return 0.0
        self.best, state = checkpoints.load(checkpoint, self.model, self.optimiser, self.generator, self.fingerprint)
        result = self.result
        result.losses, result.held_out = list(state["losses"]), [(int(e), v) for e, v in state["held_out"]]
        result.best_epoch = state["best_epoch"]
        result.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
        result.stopped_by = state["stopped_by"] if state["stopped_by"] == "patience" else "epochs"
        return float(state["seconds"])

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

    @torch.no_grad()
    def _evaluate(self, data: Samples) -> float:
        """Return the loss on samples, in parts: their features are not held all at once."""
        total = 0.0
        if isinstance(data.inputs, Grid):
            prepared = self.model.prepare(data.inputs, cache=False)
            shared = self.model.first.shared(prepared)
            for start, stop, share in self._parts(prepared, data):
                total += float(self._part_loss(prepared, shared, data, start, stop)) * share
            return total
        step = max(self.chunk, 1 << 14)
        for start in range(0, len(data.inputs), step):
            part = Samples(data.inputs[start : start + step], data.values[start : start + step])
            prepared = self.model.prepare(part.inputs, cache=False)
            loss = self._part_loss(prepared, self.model.first.shared(prepared), part, 0, prepared.rows)
            total += float(loss) * part.count / len(data.inputs)
        return total

    def _check(self, value: float, number: int, rate: float) -> None:
        if math.isfinite(value) and abs(value) <= self.diverged:
            return
        first = self.result.losses[0]
        how = f"went from {first:.3g} to {value:.3g}" if math.isfinite(first) else "is not a number"
        raise DivergenceError(
            f"train: the loss {how} at epoch {number}, with a rate of {rate:.3g}. Use a smaller rate ({rate / 10:.1g}, say) "
            "or clip=1.0, and a loss whose gradient is finite; the network has its best weights so far."
        )

    def _figures(self, value: float, done: int, seconds: float) -> str:
        quality = f"PSNR {_psnr(value, self.whole_data.peak):.2f} dB, " if self.result.is_mean_square else ""
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


def _described(model: CoordinateMLP) -> dict[str, Any]:
    """Return all that defines a network but its weights; an activation that is a function by its name."""
    return {
        **(model.to_dict() if isinstance(model.activation, str) else {"activation": _name(model.activation)}),
        "encoding": model.encoding.to_dict(),
        "shapes": {name: f"{list(tensor.shape)} {tensor.dtype}" for name, tensor in model.state_dict().items()},
    }


def _name(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__)


def _psnr(mean_square: float, peak: float) -> float:
    return -10 * math.log10(mean_square / peak**2) if 0 < mean_square < math.inf else math.inf
