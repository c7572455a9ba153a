"""Checkpoints of a training run: weights, optimiser, random state and history.

A resumed run gives the same result as an uninterrupted run.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import problem
from kronfield.field import storage

_WHAT = "a checkpoint of train"


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    best: dict[str, Tensor],
    state: dict[str, Any],
) -> None:
    """Write a checkpoint atomically; ``state`` is plain data."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
    for i, entries in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{i}.{key}": value for key, value in entries.items()}
    tensors["generator"] = generator.get_state()
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    arrays = {name: _plain(tensor).numpy() for name, tensor in tensors.items()}
    storage.write(path, arrays, {"kind": "checkpoint", "state": state, "dtypes": kinds})


def load(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    fingerprint: dict[str, Any],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Restore a run; return its best weights and its state."""
    arrays, metadata = storage.read(path)
    if metadata.get("kind") != "checkpoint":
        raise problem(
            "checkpoint",
            path,
            "a checkpoint of train",
            "This file is of another kind: choose another name.",
        )
    with storage.restoring(path, _WHAT):
        state = metadata["state"]
        _check_history(state)
        before = dict(state["fingerprint"])
    for key, now in fingerprint.items():
        then = before.get(key)
        if then != now:
            raise problem(
                "checkpoint",
                f"{path}, a run with {key} {then}",
                f"{now}",
                "Resume with the same settings and data.",
            )
    with storage.restoring(path, _WHAT):
        tensors = {
            name: torch.from_numpy(array.copy()).to(_dtype(metadata["dtypes"][name]))
            for name, array in arrays.items()
        }

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }

        best = part("best.")
        model.load_state_dict(best)  # raises an error if they are not of this network
        whole = optimiser.state_dict()
        whole["state"] = {}
        for name, tensor in part("optimiser.").items():
            index, _, key = name.partition(".")
            whole["state"].setdefault(int(index), {})[key] = tensor
        _check_steps(whole["state"], list(model.parameters()))
        model.load_state_dict(part("model."))
        optimiser.load_state_dict(whole)
        generator.set_state(tensors["generator"])
    return best, state


def _check_history(state: Any) -> None:
    """Raise an error if the history of a run is not one: numbers, pairs, a count."""
    numbers = [state["seconds"], state["best_epoch"], *state["losses"]]
    numbers += [] if state["best_loss"] is None else [state["best_loss"]]
    for epoch, loss in state["held_out"]:
        numbers += [epoch, loss]
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
        raise TypeError("the history has entries that are not numbers")
    if not all(isinstance(x, list) for x in (state["losses"], state["held_out"])):
        raise TypeError("the history is not a list")
    if not 0 <= float(state["seconds"]) < math.inf or not isinstance(state["best_epoch"], int):
        raise ValueError("a time or an epoch that is out of range")
    if not 0 <= state["best_epoch"] <= len(state["losses"]):
        raise ValueError("the best epoch is not one of the run")
    float(max(numbers))  # a whole number in JSON may be too large for a float
    float(min(numbers))
    if not isinstance(state["stopped_by"], str):
        raise TypeError("the reason to stop is not a text")


def _check_steps(state: dict[int, dict[str, Tensor]], parameters: list[Tensor]) -> None:
    """Raise an error if the moments of the optimiser, Adam, are not those of the weights."""
    if not state:
        return  # of a run that was stopped before its first step
    if sorted(state) != list(range(len(parameters))):
        raise ValueError("the optimiser has other weights")
    for i, weights in enumerate(parameters):
        expected = {"step": torch.Size([]), "exp_avg": weights.shape, "exp_avg_sq": weights.shape}
        if {key: value.shape for key, value in state[i].items()} != expected:
            raise ValueError("the moments of the optimiser do not fit the weights")


def _dtype(name: Any) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name} is no dtype")
    return found


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a checkpoint to resume from."""
    return Path(path).is_file()


def _plain(tensor: Tensor) -> Tensor:
    plain = tensor.detach().cpu()
    return plain.float() if plain.dtype == torch.bfloat16 else plain
