"""Training data of networks: values at points or on a grid, and the held-out part."""

from __future__ import annotations

import hashlib
import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kronfield._core.arrays import describe, problem, real
from kronfield._core.records import record
from kronfield.nn.grid import Grid
from kronfield.nn.mlp import CoordinateMLP


@record
class Samples:
    """Values (..., C) at ``inputs``, a grid or points (P, D).

    ``used`` marks the samples that count; None means all. ``channels`` is true if the values were
    given with an axis of channels.
    """

    inputs: Grid | Tensor
    values: Tensor
    channels: bool = True
    used: Tensor | None = None

    @property
    def count(self) -> int:
        """The number of samples that count."""
        return int(self.used.sum()) if self.used is not None else self.values[..., 0].numel()

    @property
    def peak(self) -> float:
        """The range of the values, to which PSNR refers; 1 for images."""
        low, high = float(self.values.min()), float(self.values.max())
        return 1.0 if low >= 0 and 0.5 < high <= 1 else max(high - low, 1e-30)

    def flat(self) -> Samples:
        """Return the samples that count as points (P, D) and values (P, C)."""
        points = self.inputs.points() if isinstance(self.inputs, Grid) else self.inputs
        points, values = (
            points.reshape(-1, points.shape[-1]),
            self.values.reshape(-1, self.values.shape[-1]),
        )
        if self.used is None:
            return Samples(points, values, self.channels)
        keep = self.used.reshape(-1)
        return Samples(points[keep], values[keep], self.channels)

    def digest(self) -> str:
        """Return a fingerprint of values and positions, to compare the data of a resumed run."""
        found = hashlib.sha256()
        inputs = self.inputs.axes if isinstance(self.inputs, Grid) else [self.inputs]
        for tensor in (self.values, *inputs, *([] if self.used is None else [self.used])):
            plain = tensor.detach().cpu().contiguous()
            found.update(f"{tuple(plain.shape)} {plain.dtype}".encode())
            found.update((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy().data)
        return found.hexdigest()


def samples(data: Any, model: CoordinateMLP) -> Samples:
    """Return ``data`` as samples: (points, values), (Grid, values), or values on a grid.

    Values alone lie at the paper's positions i/N of the domain of the network.
    """
    inputs, given, used = _parts(data)
    values = _finite(given)
    if inputs is not None and not isinstance(inputs, Grid):
        inputs = _points(inputs, model)
    places = 1 if isinstance(inputs, Tensor) else model.encoding.dimensions
    channels = _has_channels(values, places, model.out)
    shape = tuple(values.shape[:places])
    if inputs is None:
        inputs = _even_grid(shape, model)
    _check_one_for_each(inputs, values, shape)
    _check_some_are_used(shape, used)
    _check_places(inputs, model)
    return Samples(inputs, values if channels else values[..., None], channels, used)


def _parts(data: Any) -> tuple[Any, Any, Tensor | None]:
    """Return positions (or None), values, and which samples are used (or None: all)."""
    if isinstance(data, Samples):
        return data.inputs, data.values if data.channels else data.values[..., 0], data.used
    if isinstance(data, tuple) and len(data) == 2:
        return *data, None
    return None, data, None


def _check_one_for_each(inputs: Grid | Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse values of another shape than their positions."""
    if (inputs.shape if isinstance(inputs, Grid) else (len(inputs),)) != shape:
        raise problem(
            "data",
            f"values of shape {tuple(values.shape)}",
            f"one for each of {describe(inputs)}",
            "Pass as many values as positions.",
        )


def _finite(values: Any) -> Tensor:
    """Return values as a tensor, all of them finite."""
    found = _tensor("data", values)
    if not bool(torch.isfinite(found).all()):
        raise problem(
            "data",
            "values with NaN or inf",
            "finite values",
            "Leave these samples out: pass (points, values).",
        )
    return found


def _points(points: Any, model: CoordinateMLP) -> Tensor:
    """Return points as a tensor (P, D), at least one."""
    D, found = model.encoding.dimensions, _tensor("points", points)
    if found.ndim != 2 or found.shape[1] != D or not len(found):
        raise problem("points", describe(found), f"shape (P, {D})", "One row per point.")
    return found


def _has_channels(values: Tensor, places: int, C: int) -> bool:
    """Return whether an axis of C channels follows ``places`` axes; reject other shapes."""
    channels = values.ndim == places + 1
    if values.ndim not in (places, places + 1) or (values.shape[-1] if channels else 1) != C:
        expected = (
            f"{places} axes and then {C} channels"
            if C > 1
            else f"{places} axes, or one more of 1 channel"
        )
        raise problem(
            "data",
            f"values of shape {tuple(values.shape)}",
            expected,
            "Build the network with out= to match.",
        )
    return channels


def _even_grid(shape: tuple[int, ...], model: CoordinateMLP) -> Grid:
    """Return the paper's positions i/N on the domain of the network."""
    steps = [torch.arange(n, dtype=torch.float64) / n for n in shape]
    ends = model.first.place.domain
    return Grid(*[low + (high - low) * x for (low, high), x in zip(ends, steps, strict=True)])


def _check_some_are_used(shape: tuple[int, ...], used: Tensor | None) -> None:
    """Reject data without samples, and marks of another shape than the samples."""
    if 0 in shape or (used is not None and not bool(used.any())):
        raise problem("data", "no samples", "at least one", "Pass values.")
    if used is not None and (tuple(used.shape) != shape or used.dtype != torch.bool):
        raise problem(
            "used", describe(used), f"bools of shape {shape}", "Pass one bool per sample."
        )


def _check_places(inputs: Grid | Tensor, model: CoordinateMLP) -> None:
    """Reject positions that are not finite, or outside the extent of the network."""
    columns = inputs.axes if isinstance(inputs, Grid) else list(inputs.T)
    remedy = "Build the network with a domain=[(low, high), ...] that contains them."
    for i, (x, ends) in enumerate(zip(columns, model.first.extent, strict=True)):
        low, length = (
            model.first.place.domain[i][0],
            model.first.place.domain[i][1] - model.first.place.domain[i][0],
        )
        if not bool(torch.isfinite(x).all()):
            raise problem(
                "points", f"NaN or inf on axis {i}", "finite positions", "Leave these samples out."
            )
        slack = 1e-6 * length
        if (
            float(x.min()) < low + ends[0] * length - slack
            or float(x.max()) > low + ends[1] * length + slack
        ):
            got = f"positions from {float(x.min()):g} to {float(x.max()):g} on axis {i}"
            raise problem(
                "points",
                got,
                f"within [{low + ends[0] * length:g}, {low + ends[1] * length:g}]",
                remedy,
            )


def split(
    data: Samples, held_out: Any, model: CoordinateMLP, seed: int
) -> tuple[Samples, Samples | None]:
    """Return training and held-out samples; held out is a random fraction, or other data."""
    if held_out is None:
        return data, None
    if not isinstance(held_out, numbers.Real):
        return data, samples(held_out, model).flat()
    part = real(
        "held_out",
        held_out,
        low=0.0,
        high=0.9,
        open_low=True,
        remedy="Pass a fraction, or (points, values).",
    )
    shape = data.values.shape[:-1]
    generator = torch.Generator().manual_seed(seed)
    out = torch.rand(shape, generator=generator) < part
    among = torch.ones(shape, dtype=torch.bool) if data.used is None else data.used.cpu()
    kept_out = out & among
    if not bool(kept_out.any()) or not bool((~out & among).any()):
        raise problem(
            "held_out",
            held_out,
            "a fraction that leaves samples on both sides",
            "There are few samples: pass other data to hold out.",
        )
    kept = Samples(data.inputs, data.values, data.channels, ~out & among)
    if not isinstance(data.inputs, Grid):
        kept = kept.flat()
    return kept, Samples(data.inputs, data.values, data.channels, kept_out).flat()


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise problem(
            name, describe(value), "numbers", "Pass a NumPy array or a tensor.", TypeError
        ) from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise problem(
            name,
            describe(tensor),
            "real numbers",
            "Split complex values into two channels.",
            TypeError,
        )
    return tensor.detach() if tensor.is_floating_point() else tensor.double()
