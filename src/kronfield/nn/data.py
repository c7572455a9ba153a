"""What a network is trained on: values at points or on a grid, and which of them are held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kronfield._arrays import describe, problem, real
from kronfield.nn.inputs import Grid
from kronfield.nn.mlp import CoordinateMLP


@dataclass(frozen=True)
class Samples:
    """Values (..., C) at ``inputs``, a grid or points (P, D); ``used`` marks those that count, all if None.

    ``channels`` is whether the values came with an axis of channels.
    """

    inputs: Grid | Tensor
    values: Tensor
    channels: bool = True
    used: Tensor | None = None

    @property
    def count(self) -> int:
        """How many samples count."""
        return int(self.used.sum()) if self.used is not None else self.values[..., 0].numel()

    @property
    def peak(self) -> float:
        """The range of the values: what a PSNR is relative to. 1 for pictures."""
        low, high = float(self.values.min()), float(self.values.max())
        return 1.0 if low >= 0 and 0.5 < high <= 1 else max(high - low, 1e-30)

    def flat(self) -> Samples:
        """Return the samples that count as points (P, D) and values (P, C)."""
        points = self.inputs.points() if isinstance(self.inputs, Grid) else self.inputs
        points, values = points.reshape(-1, points.shape[-1]), self.values.reshape(-1, self.values.shape[-1])
        if self.used is None:
            return Samples(points, values, self.channels)
        keep = self.used.reshape(-1)
        return Samples(points[keep], values[keep], self.channels)

    def digest(self) -> str:
        """Return a fingerprint of the values, to tell whether a run goes on with the same data."""
        found = hashlib.sha256(str((tuple(self.values.shape), self.count)).encode())
        found.update(np.ascontiguousarray(self.values.detach().cpu().float().numpy()).data)
        return found.hexdigest()


def samples(data: Any, model: CoordinateMLP) -> Samples:
    """Return ``data`` as samples of a network: (points, values), (Grid, values), or values on a grid.

    Values alone lie at the paper's positions i/N of the domain of the network.
    """
    D, C = model.encoding.dimensions, model.out
    if isinstance(data, Samples):
        return data
    inputs, given = data if isinstance(data, tuple) and len(data) == 2 else (None, data)
    values = _tensor("data", given)
    if not bool(torch.isfinite(values).all()):
        raise problem("data", "values with NaN or inf", "finite values", "Leave such samples out: pass (points, values).")
    if inputs is None or isinstance(inputs, Grid):
        leading = D
    else:
        inputs = _tensor("points", inputs)
        if inputs.ndim != 2 or inputs.shape[1] != D or not len(inputs):
            raise problem("points", describe(inputs), f"shape (P, {D})", "One row per point.")
        leading = 1
    channels = values.ndim == leading + 1
    if values.ndim not in (leading, leading + 1) or (values.shape[-1] if channels else 1) != C:
        expected = f"{leading} axes and then {C} channels" if C > 1 else f"{leading} axes, or one more of 1 channel"
        raise problem("data", f"values of shape {tuple(values.shape)}", expected, "Build the network with out= to match.")
    shape = tuple(values.shape[:leading])
    if inputs is None:
        ends = model.first.place.domain
        steps = [torch.arange(n, dtype=torch.float64) / n for n in shape]
        inputs = Grid(*[low + (high - low) * x for (low, high), x in zip(ends, steps, strict=True)])
    elif (inputs.shape if isinstance(inputs, Grid) else (len(inputs),)) != shape:
        raise problem("data", f"values of shape {tuple(values.shape)}", f"one for each of {describe(inputs)}", "Match them.")
    if 0 in shape:
        raise problem("data", "no samples", "at least one", "Pass values.")
    return Samples(inputs, values if channels else values[..., None], channels)


def split(data: Samples, held_out: Any, model: CoordinateMLP, seed: int) -> tuple[Samples, Samples | None]:
    """Return the samples to learn from and those held out: a fraction of them, by chance, or other data."""
    if held_out is None:
        return data, None
    if not isinstance(held_out, int | float):
        return data, samples(held_out, model)
    part = real("held_out", held_out, low=0.0, high=0.9, open_low=True, remedy="Pass a fraction, or (points, values).")
    shape = data.values.shape[:-1]
    generator = torch.Generator().manual_seed(seed)
    out = torch.rand(shape, generator=generator) < part
    if not bool(out.any()) or bool(out.all()):
        raise problem("held_out", held_out, "a fraction that leaves samples on both sides", "There are few: pass data.")
    kept = Samples(data.inputs, data.values, data.channels, ~out)
    if not isinstance(data.inputs, Grid):
        kept = kept.flat()
    return kept, Samples(data.inputs, data.values, data.channels, out).flat()


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise problem(name, describe(value), "numbers", "Pass a NumPy array or a tensor.", TypeError) from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise problem(name, describe(tensor), "real numbers", "Split complex values into two channels.", TypeError)
    return tensor.detach() if tensor.is_floating_point() else tensor.double()
