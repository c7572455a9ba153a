"""The settings of a training run: checked, with the paper's values as defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, problem, real, whole
from kronfield._core.records import record
from kronfield.nn.mlp import CoordinateMLP

# The paper's learning rates: of one linear layer on a Kronecker encoding, and of deeper networks.
LINEAR_RATE, DEEP_RATE = 1e-1, 5e-3
# Values of a hidden layer in one part of a full batch, chosen to fit the cache.
CHUNK_NUMBERS = 1 << 20

# The loss functions by name; "huber" is that of Huber (1964) with the threshold 1.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": nn.functional.mse_loss,
    "mae": nn.functional.l1_loss,
    "huber": nn.functional.smooth_l1_loss,
}
# The learning rate at a fraction t of the run, from 0 to 1, relative to the initial rate; "cosine"
# as in Loshchilov and Hutter (2017), without restarts.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t)),
    "exponential": lambda t: 0.01**t,
    "linear": lambda t: 1.0 - t,
}


@record
class Settings:
    """The checked settings of a run; ``schedule`` and ``loss`` are a name or a function."""

    epochs: int
    rate: float
    betas: tuple[float, float]
    weight_decay: float
    batch: int | None
    chunk: int
    schedule: str | Callable[[float], float]
    loss: str | Callable[[Tensor, Tensor], Tensor]
    patience: int | None
    every: int
    clip: float | None
    seed: int

    @classmethod
    def checked(
        cls,
        model: CoordinateMLP,
        *,
        epochs: int = 2000,
        rate: float | None = None,
        betas: Any = (0.9, 0.999),
        weight_decay: float = 1e-8,
        batch: int | None = None,
        chunk: int | None = None,
        schedule: Any = "constant",
        loss: Any = "mse",
        held_out: Any = None,
        patience: int | None = None,
        every: int | None = None,
        clip: float | None = None,
        seed: int = 0,
    ) -> Settings:
        """Return the settings of a run of ``model``; the arguments are those of `train`."""
        count = whole("epochs", epochs, at_least=1)
        rate = _rate(model, rate)
        decay = real(
            "weight_decay", weight_decay, low=0.0, high=1e6, remedy="Pass a small number or 0."
        )
        batch = _count("batch", batch)
        _check_known("schedule", schedule, SCHEDULES)
        _check_known("loss", loss, LOSSES)
        patience = _count("patience", patience)
        if patience is not None and held_out is None:
            raise problem(
                "patience", patience, "held-out samples to judge by", "Pass held_out=0.1, say."
            )
        every = _count("every", every) or max(1, count // 100)
        if clip is not None:
            clip = real("clip", clip, low=0.0, high=1e30, open_low=True, remedy="Pass a norm.")
        seed = whole("seed", seed, at_least=0)
        pair = _betas(betas)
        if model.first.weight.dtype == torch.float16:
            expected = "float32, float64 or bfloat16"
            remedy = "Adam needs a larger range: call model.float()."
            raise problem("model", "float16 weights", expected, remedy)
        size = _count("chunk", chunk) or _points_in_cache(model)
        return cls(
            epochs=count,
            rate=rate,
            betas=pair,
            weight_decay=decay,
            batch=batch,
            chunk=size,
            schedule=schedule,
            loss=loss,
            patience=patience,
            every=every,
            clip=clip,
            seed=seed,
        )

    @property
    def rate_factor(self) -> Callable[[float], float]:
        """The factor of the learning rate at a fraction of the run."""
        return SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule

    @property
    def loss_function(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The mean loss of (prediction, value)."""
        return LOSSES[self.loss] if isinstance(self.loss, str) else self.loss

    def looks_at(self, epoch: int) -> bool:
        """Return whether the weights are judged at an epoch: every ``every``, and the last."""
        return epoch % self.every == 0 or epoch == self.epochs - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data, to compare with those of a checkpoint."""
        return {
            "epochs": self.epochs,
            "rate": self.rate,
            "betas": list(self.betas),
            "weight_decay": self.weight_decay,
            "batch": self.batch,
            "chunk": self.chunk,
            "clip": self.clip,
            "seed": self.seed,
            "every": self.every,
            "schedule": name_of(self.schedule),
            "loss": name_of(self.loss),
            "patience": self.patience,
        }


def name_of(value: Any) -> str:
    """Return a name, or the name of a function or class."""
    return value if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__)


def _rate(model: CoordinateMLP, rate: float | None) -> float:
    remedy = "It is the step size of Adam: 0.1 to 0.0001 are usual."
    usual = LINEAR_RATE if model.is_linear else DEEP_RATE
    return real(
        "rate", usual if rate is None else rate, low=0.0, high=1e6, open_low=True, remedy=remedy
    )


def _count(argument: str, value: int | None) -> int | None:
    return None if value is None else whole(argument, value, at_least=1)


def _betas(betas: Any) -> tuple[float, float]:
    pair = isinstance(betas, tuple | list) and len(betas) == 2
    if not pair or not all(0 <= float(beta) < 1 for beta in betas):
        raise problem(
            "betas", describe(betas), "two numbers in [0, 1)", "The paper's are (0.9, 0.999)."
        )
    return float(betas[0]), float(betas[1])


def _check_known(argument: str, value: Any, known: dict[str, Any]) -> None:
    if not callable(value) and (not isinstance(value, str) or value not in known):
        raise problem(
            argument, describe(value), f"one of {', '.join(known)}, or a function", "Choose one."
        )


def _points_in_cache(model: CoordinateMLP) -> int:
    """Return the number of points whose hidden layers fit the cache."""
    return max(1, CHUNK_NUMBERS // max(model.first.width, model.width if model.depth else 1))
