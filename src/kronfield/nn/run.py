"""A training run: steps in parts that fit the cache, best weights, checkpoints, stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.errors import KronfieldError
from kronfield._core.progress import Bar
from kronfield.field import Field
from kronfield.nn import checkpoints
from kronfield.nn.data import Samples, split
from kronfield.nn.field import as_field
from kronfield.nn.grid import Grid
from kronfield.nn.layers import Prepared
from kronfield.nn.mlp import CoordinateMLP
from kronfield.nn.settings import LOSSES, Settings, name_of
from kronfield.nn.state import without_description

# A grid with more points than this in a row is converted to points: a row is never divided, and it
# must fit into memory.
MOST_PER_ROW = 1 << 17


class DivergenceError(KronfieldError, RuntimeError):
    """The loss grew without bound; the network holds its best weights so far."""


@dataclass
class Epoch:
    """The state after one epoch, passed to the callback."""

    number: int
    loss: float
    held_out: float | None
    rate: float
    seconds: float


@dataclass
class Training:
    """The result of `train`.

    Attributes
    ----------
    model : CoordinateMLP
        The network with its best weights.
    losses : list of float
        The loss of every epoch, before its step.
    held_out : list of (epoch, loss)
        The losses on held-out samples, if there are any.
    best_epoch, best_loss
        The epoch of the least held-out loss, and that loss; without held-out samples, of the least
        training loss.
    stopped_by : str
        "epochs", "patience", "callback" or "interrupt".
    seconds : float
        The time of the whole run, including the time before a checkpoint.
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
        """The number of epochs that were run."""
        return len(self.losses)

    @property
    def psnr(self) -> float | None:
        """The PSNR in dB of the best loss, if that is a mean square; else None."""
        return _psnr(self.best_loss, self.data.peak) if self.is_mean_square else None

    @property
    def field(self) -> Field:
        """The network as a field on the domain of its encoding."""
        axes = (
            [x.cpu().double().numpy() for x in self.data.inputs.axes]
            if isinstance(self.data.inputs, Grid)
            else None
        )
        return as_field(self.model, axes=axes, channels=self.data.channels, report=self)

    def __str__(self) -> str:
        lines = [f"training of {self.model.parameter_count} weights on {self.data.count} samples"]
        lines.append(
            f"  {self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped_by}"
        )
        quality = "" if self.psnr is None else f", PSNR {self.psnr:.2f} dB"
        lines.append(f"  best: epoch {self.best_epoch}, loss {self.best_loss:.4g}{quality}")
        return "\n".join(lines)


class TrainingRun:
    """A network, its samples and an optimiser, stepped through the epochs of a run."""

    def __init__(
        self,
        model: CoordinateMLP,
        data: Samples,
        held_out: Any,
        settings: Settings,
        diverged: float,
        device: Any = None,
    ) -> None:
        self.settings, self.loss = settings, settings.loss_function
        self.model = model if device is None else model.to(device)
        self._place_data(data, held_out)
        self.optimiser = torch.optim.Adam(
            model.parameters(),
            lr=settings.rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.result = Training(model, data, is_mean_square=self.loss is LOSSES["mse"])
        self.diverged = self._bound(diverged) if isinstance(settings.loss, str) else math.inf
        # Whether weights, optimiser and generator are those at the end of an epoch.
        self.between_epochs = True

    def _place_data(self, data: Samples, held_out: Any) -> None:
        """Split the samples, move them to the device of the weights, and fingerprint the run."""
        settings, weight = self.settings, self.model.first.weight
        learn, held = split(data, held_out, self.model, settings.seed)
        self.data = _placed(learn, weight)
        self.held = None if held is None else _placed(held, weight)
        if settings.batch is not None or math.prod(self.data.values.shape[1:-1]) > MOST_PER_ROW:
            self.data = self.data.flat()
        self.fingerprint = {
            **settings.to_dict(),
            "network": _described(self.model),
            "data": learn.digest(),
            "held out": None if self.held is None else self.held.digest(),
        }

    def _bound(self, factor: float) -> float:
        """Return a loss that only a diverging run exceeds.

        It is ``factor`` times the largest of three losses: of the initial weights, of the constant
        0, and of the mean of the values.
        """
        flat = self.data.values.reshape(-1, self.model.out)
        constants = (torch.zeros_like(flat[:1]), flat.mean(0, keepdim=True))
        losses = [float(self.loss(one.expand_as(flat), flat)) for one in constants] + [
            self._evaluate(self.data)
        ]
        largest = max(1e-30, *(value for value in losses if math.isfinite(value)))
        return factor * largest

    def go(
        self, checkpoint: Any, resume: bool, bar: Bar, callback: Callable[[Epoch], Any] | None
    ) -> Training:
        """Run the remaining epochs; return the result, with the best weights in the model."""
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

    def _all_epochs(
        self, checkpoint: Any, bar: Bar, callback: Callable[[Epoch], Any] | None
    ) -> None:
        result = self.result
        try:
            self._epochs_until_stopped(checkpoint, bar, callback)
        except KeyboardInterrupt:
            result.stopped_by = "interrupt"
            if not self.between_epochs:  # a run cannot resume from half a step
                return
        if self.held is None:  # also judge the weights after the last step
            self._remember(self._evaluate(self.data), result.epochs, None)
        self._keep(checkpoint)

    def _epochs_until_stopped(
        self,
        checkpoint: Any,
        bar: Bar,
        callback: Callable[[Epoch], Any] | None,
    ) -> None:
        prepared = self.prepared()
        last = self.settings.epochs - 1
        for number in range(len(self.result.losses), self.settings.epochs):
            epoch = self._judged_epoch(number, prepared)
            bar.update(number + 1, self._figures(epoch.loss, number + 1, epoch.seconds))
            stopped_by = self._reason_to_stop(epoch, callback)
            if stopped_by is not None:
                self.result.stopped_by = stopped_by
                return
            if self.settings.looks_at(number) and number < last:
                self._keep(checkpoint)

    def _judged_epoch(self, number: int, prepared: Prepared | None) -> Epoch:
        """Take the steps of an epoch; at epochs to judge, keep the weights if they are the best."""
        rate, look = self._set_rate(number), self.settings.looks_at(number)
        # The loss of a full batch is that of the weights before its step.
        weights = _copy(self.model) if look and self.held is None and prepared is not None else None
        loss = self._learn(number, rate, prepared)
        held_out = None
        if weights is not None:
            self._remember(loss, number, weights)
        elif look:
            score = self._evaluate(self.data if self.held is None else self.held)
            self._check(score, number, rate)
            if self.held is not None:
                held_out = score
                self.result.held_out.append((number, score))
            self._remember(score, number, None)
        return Epoch(number, loss, held_out, rate, time.perf_counter() - self.started)

    def _set_rate(self, number: int) -> float:
        """Give the optimiser the learning rate of an epoch, and return it."""
        rate = self.settings.rate * float(self.settings.rate_factor(number / self.settings.epochs))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        return rate

    def _learn(self, number: int, rate: float, prepared: Prepared | None) -> float:
        """Take the steps of an epoch and record its loss; raise if it has diverged."""
        self.between_epochs = False
        loss = self.epoch(prepared)
        self.result.losses.append(loss)
        self._check(loss, number, rate)
        self.between_epochs = True
        return loss

    def _reason_to_stop(self, epoch: Epoch, callback: Callable[[Epoch], Any] | None) -> str | None:
        if callback is not None and callback(epoch):
            return "callback"
        patience = self.settings.patience
        if patience is None or epoch.held_out is None:
            return None
        return "patience" if epoch.number - self.result.best_epoch >= patience else None

    def _remember(self, score: float, number: int, weights: dict[str, Tensor] | None) -> None:
        """Keep the weights, by default the current ones, if they are the best so far."""
        if score < self.result.best_loss:
            self.result.best_loss, self.result.best_epoch = score, number
            self.best = _copy(self.model) if weights is None else weights

    def _keep(self, checkpoint: Any) -> None:
        if checkpoint is None:
            return
        result = self.result
        result.seconds = time.perf_counter() - self.started
        state = {
            "fingerprint": self.fingerprint,
            "losses": result.losses,
            "held_out": result.held_out,
            "best_epoch": result.best_epoch,
            "best_loss": result.best_loss if math.isfinite(result.best_loss) else None,
            "seconds": result.seconds,
            "stopped_by": result.stopped_by,
        }
        checkpoints.save(checkpoint, self.model, self.optimiser, self.generator, self.best, state)

    def _resume(self, checkpoint: Any) -> float:
        """Restore the checkpoint, if there is one; return the seconds spent before it."""
        if not checkpoints.exists(checkpoint):
            return 0.0
        self.best, state = checkpoints.load(
            checkpoint, self.model, self.optimiser, self.generator, self.fingerprint
        )
        result = self.result
        result.losses, result.held_out = (
            list(state["losses"]),
            [(int(e), v) for e, v in state["held_out"]],
        )
        result.best_epoch = state["best_epoch"]
        result.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
        result.stopped_by = state["stopped_by"] if state["stopped_by"] == "patience" else "epochs"
        return float(state["seconds"])

    def prepared(self) -> Prepared | None:
        """Return the full batch, prepared once for all steps; None for minibatches."""
        return None if self.settings.batch is not None else self.model.prepare(self.data.inputs)

    def epoch(self, prepared: Prepared | None) -> float:
        """Take the steps of one epoch; return the mean loss before them."""
        if prepared is not None:
            return self._step(prepared, self.data)
        assert self.settings.batch is not None
        assert isinstance(self.data.inputs, Tensor)
        order = torch.randperm(len(self.data.inputs), generator=self.generator).to(
            self.data.values.device
        )
        total = 0.0
        for some in order.split(self.settings.batch):
            part = Samples(self.data.inputs[some], self.data.values[some])
            total += self._step(self.model.prepare(part.inputs), part) * len(some)
        return total / len(order)

    def _step(self, prepared: Prepared, data: Samples) -> float:
        self.optimiser.zero_grad(set_to_none=True)
        value = self._backward(prepared, data)
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        if math.isfinite(value):
            self.optimiser.step()
        return value

    def _backward(self, prepared: Prepared, data: Samples) -> float:
        """Add the gradients of all parts of a batch; differentiate the shared tensors once."""
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
        pairs = [
            (tensor, leaf.grad)
            for tensor, leaf in zip(shared, leaves, strict=True)
            if leaf.grad is not None
        ]
        torch.autograd.backward([tensor for tensor, _ in pairs], [grad for _, grad in pairs])
        return total

    def _parts(self, prepared: Prepared, data: Samples) -> Iterator[tuple[int, int, float]]:
        """Yield (start, stop, share of the samples) of the parts of a batch."""
        step = max(1, self.settings.chunk // prepared.per_row)
        if self.model.is_linear:
            step = prepared.rows  # no hidden layers, so parts gain nothing
        for start in range(0, prepared.rows, step):
            stop = min(start + step, prepared.rows)
            used = (
                (stop - start) * prepared.per_row
                if data.used is None
                else int(data.used[start:stop].sum())
            )
            if used:
                yield start, stop, used / data.count

    def _part_loss(
        self, prepared: Prepared, shared: list[Tensor], data: Samples, start: int, stop: int
    ) -> Tensor:
        found, wanted = self.model.part(prepared, shared, start, stop), data.values[start:stop]
        if data.used is not None:
            used = data.used[start:stop]
            return self.loss(found[used], wanted[used])
        return self.loss(found.reshape(-1, self.model.out), wanted.reshape(-1, self.model.out))

    @torch.no_grad()
    def _evaluate(self, data: Samples) -> float:
        """Return the loss on samples, in parts, so that not all features are held at once."""
        total = 0.0
        if isinstance(data.inputs, Grid):
            prepared = self.model.prepare(data.inputs, cache=False)
            shared = self.model.first.shared(prepared)
            for start, stop, share in self._parts(prepared, data):
                total += float(self._part_loss(prepared, shared, data, start, stop)) * share
            return total
        step = max(self.settings.chunk, 1 << 14)
        for start in range(0, len(data.inputs), step):
            part = Samples(data.inputs[start : start + step], data.values[start : start + step])
            prepared = self.model.prepare(part.inputs, cache=False)
            loss = self._part_loss(
                prepared, self.model.first.shared(prepared), part, 0, prepared.rows
            )
            total += float(loss) * part.count / len(data.inputs)
        return total

    def _check(self, value: float, number: int, rate: float) -> None:
        if math.isfinite(value) and abs(value) <= self.diverged:
            return
        first = self.result.losses[0]
        how = f"went from {first:.3g} to {value:.3g}" if math.isfinite(first) else "is not a number"
        raise DivergenceError(
            f"train: the loss {how} at epoch {number}, with a rate of {rate:.3g}. "
            f"Use a smaller rate ({rate / 10:.1g}, say) or clip=1.0, and a loss whose gradient is "
            "finite. The network has its best weights so far."
        )

    def _figures(self, value: float, done: int, seconds: float) -> str:
        quality = (
            f"PSNR {_psnr(value, self.result.data.peak):.2f} dB, "
            if self.result.is_mean_square
            else ""
        )
        return f"loss {value:.3e}, {quality}{done / max(seconds, 1e-9):.1f} epochs/s"


def _placed(data: Samples, like: Tensor) -> Samples:
    """Return samples on the device of the weights; only values take their dtype."""
    inputs = data.inputs.to(like.device)
    used = None if data.used is None else data.used.to(like.device)
    return Samples(inputs, data.values.to(like.device, like.dtype), data.channels, used)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _described(model: CoordinateMLP) -> dict[str, Any]:
    """Return the description of a network without its weights; functions by name."""
    return {
        **(
            model.to_dict()
            if isinstance(model.activation, str)
            else {"activation": name_of(model.activation)}
        ),
        "encoding": model.encoding.to_dict(),
        "shapes": {
            name: f"{list(tensor.shape)} {tensor.dtype}"
            for name, tensor in without_description(model.state_dict()).items()
        },
    }


def _psnr(mean_square: float, peak: float) -> float:
    return -10 * math.log10(mean_square / peak**2) if 0 < mean_square < math.inf else math.inf
