"""Checkpoints of a training run: weights, optimiser, random state and history.

A resumed run gives the same result as an uninterrupted run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import problem
from kronfield.field import storage


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
    state = metadata["state"]
    for key, now in fingerprint.items():
        then = state["fingerprint"].get(key)
        if then != now:
            raise problem(
                "checkpoint",
                f"{path}, a run with {key} {then}",
                f"{now}",
                "Resume with the same settings and data.",
            )
    tensors = {
        name: torch.from_numpy(array.copy()).to(getattr(torch, metadata["dtypes"][name]))
        for name, array in arrays.items()
    }

    def part(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }

    model.load_state_dict(part("model."))
    whole = optimiser.state_dict()
    whole["state"] = {}
    for name, tensor in part("optimiser.").items():
        index, _, key = name.partition(".")
        whole["state"].setdefault(int(index), {})[key] = tensor
    optimiser.load_state_dict(whole)
    generator.set_state(tensors["generator"])
    return part("best."), state


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a checkpoint to resume from."""
    return Path(path).is_file()


def _plain(tensor: Tensor) -> Tensor:
    plain = tensor.detach().cpu()
    return plain.float() if plain.dtype == torch.bfloat16 else plain
