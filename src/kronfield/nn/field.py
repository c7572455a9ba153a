"""Networks as fields: evaluated, differentiated, saved and loaded like any `Field`."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from kronfield._core.arrays import Array, describe, in_dtype, problem, real
from kronfield._core.frames import Frame, cell_centres
from kronfield.field import storage
from kronfield.field.field import Field, Saved
from kronfield.nn.grid import Grid
from kronfield.nn.kronecker import KroneckerLinear
from kronfield.nn.mlp import CoordinateMLP
from kronfield.nn.state import without_description

# The largest number of values of one hidden layer in memory at a time.
BLOCK_NUMBERS = 1 << 22
# Integrals: the first number of cells per axis in 2-D, the largest number of evaluations, and the
# relative change below which cells are no longer halved.
FIRST_CELLS, MOST_CELLS, SETTLED = 32, 1 << 22, 1e-4


class NetworkField(Field):
    """A trained network as a `Field`; derivatives are by autograd, in units of the domain.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> from kronfield.nn import CoordinateMLP, as_field
    >>> encoding = kf.Concatenated(kf.Gaussian(8, 0.2), kf.Gaussian(8, 0.2))
    >>> model = CoordinateMLP(encoding, depth=1, width=16)
    >>> field = as_field(model)
    >>> field.on_grid((20, 30)).shape, field.gradient(np.array([[0.2, 0.3]])).shape
    ((20, 30, 3), (1, 2, 3))
    """

    def __init__(
        self,
        model: CoordinateMLP,
        *,
        domain: Sequence[Sequence[float]] | None = None,
        axes: Sequence[Array] | None = None,
        channels: bool = True,
        report: Any = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        frames = frames_of(model, domain)
        positions = _usual_axes(frames) if axes is None else list(axes)
        nothing = np.zeros((model.out, *[0] * len(frames)), dtype=np.float32)
        dtype = np.float64 if model.first.weight.dtype == torch.float64 else np.float32
        # A field in closed form has a Kronecker encoding. A network may have any encoding.
        encoding: Any = model.encoding
        super().__init__(
            encoding,
            nothing,
            frames,
            positions,
            channels=channels,
            dtype=dtype,
            report=report,
            info=info,
        )
        self.model = model

    @property
    def weights(self) -> NoReturn:
        """Not available: the weights of a network are in ``field.model``."""
        raise problem(
            "weights",
            "a network",
            "a field in closed form",
            "Its weights are in field.model.state_dict().",
        )

    @property
    def number_count(self) -> int:
        """The number of weights of the network."""
        return self.model.parameter_count

    @property
    def _plane_count(self) -> int:
        return self.model.out

    def __repr__(self) -> str:
        box = " x ".join(f"[{low:g}, {high:g}]" for low, high in self.domain)
        size = f"depth {self.model.depth}, {self.model.parameter_count} weights"
        return f"NetworkField(on {box}, {self.encoding!r}, {size})"

    # Evaluation
    # ------------------------------------------------------------------------------------------

    def _grid_blocks(
        self, units: list[Array], orders: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array]]:
        rows = max(1, BLOCK_NUMBERS // max(1, math.prod(len(x) for x in units[1:]) * self._hidden))
        for start in range(0, len(units[0]), rows):
            some = [units[0][start : start + rows], *units[1:]]
            if any(orders) or self._blends:
                points = np.stack(np.meshgrid(*some, indexing="ij"), axis=-1).reshape(
                    -1, len(units)
                )
                planes = self._at_points(list(points.T), orders).reshape(
                    -1, *[len(x) for x in some]
                )
            else:
                with torch.no_grad(), _in_units(self.model):
                    values = self.model(Grid(*[self._tensor(x) for x in some]))
                planes = np.moveaxis(values.cpu().numpy(), -1, 0)
            yield (slice(start, start + rows),), planes.astype(self._real, copy=False)

    def _at_points(self, units: list[Array], orders: tuple[int, ...]) -> Array:
        for emb in self.encoding.embedders:
            if any(orders) and emb.smoothness == 0:
                raise problem(
                    "derivative",
                    orders,
                    f"order 0 on all axes, beside features of {type(emb).__name__}",
                    emb.smoothness_remedy(),
                )
        points = np.stack(units, axis=1)
        out = np.empty((self.model.out, len(points)), dtype=self._real)
        step = max(1, BLOCK_NUMBERS // self._hidden)
        for start in range(0, len(points), step):
            u = self._tensor(points[start : start + step])
            with _in_units(self.model):
                out[:, start : start + step] = self._derived(u, orders).cpu().numpy()
        return out

    def _derived(self, u: Tensor, orders: tuple[int, ...]) -> Tensor:
        """Return the derivative of every channel at points u (P, D) in units, (C, P)."""
        if not any(orders):
            with torch.no_grad():
                return self.model(u).T
        u = u.requires_grad_()
        values = self.model(u)
        columns = []
        for v in values.T:
            for axis, order in enumerate(orders):
                for _ in range(order):
                    if v.requires_grad:
                        v = torch.autograd.grad(v.sum(), u, create_graph=True)[0][:, axis]
                    else:  # v is constant, as the slope of a piecewise linear network is
                        v = torch.zeros_like(v)
            columns.append(v.detach())
        return torch.stack(columns)

    @property
    def _blends(self) -> bool:
        """Whether points are blended. Then grids are blended too, so that both agree."""
        first = self.model.first
        return isinstance(first, KroneckerLinear) and first.points == "blending"

    @property
    def _hidden(self) -> int:
        return max(
            self.model.first.width,
            self.model.width if self.model.depth else 1,
            self.encoding_numbers,
        )

    @property
    def encoding_numbers(self) -> int:
        """The number of features of one point, summed over the embedders."""
        return sum(emb.size for emb in self.encoding.embedders)

    def _tensor(self, x: Array) -> Tensor:
        weight = self.model.first.weight
        return torch.as_tensor(np.array(x, dtype=np.float64), dtype=torch.float64).to(
            weight.device, torch.float64 if weight.dtype == torch.float64 else torch.float32
        )

    def integral(self, box: Sequence[Sequence[float]] | None = None) -> Any:
        """Return the integral over ``box``, by default the domain: a number, or an array (C,).

        It uses the midpoint rule. Cells are halved until the result changes by less than 0.01 %.
        """
        bounds = self.domain if box is None else box
        ends = self._box_ends(bounds)
        volume = math.prod(high - low for low, high in ends)
        cells, before = max(4, round(FIRST_CELLS ** (2 / max(2, self.dimensions)))), None
        while True:
            axes = [cell_centres(low, high, cells) for low, high in ends]
            values = self.on_grid(axes).astype(np.float64)
            total = volume * values.mean(axis=tuple(range(self.dimensions)))
            scale = abs(volume) * float(np.abs(values).mean())
            if before is not None and np.all(np.abs(total - before) <= SETTLED * scale):
                return total if self.has_channels else float(total)
            if (2 * cells) ** self.dimensions > MOST_CELLS:
                raise problem(
                    "box",
                    describe(bounds),
                    "a box over which the midpoint rule converges",
                    "Integrate over smaller boxes.",
                )
            cells, before = 2 * cells, total

    def _box_ends(self, box: Any) -> list[list[float]]:
        """Return the ends (low, high) of a box on every axis, checked."""
        if not isinstance(box, list | tuple | np.ndarray) or np.shape(np.asarray(box)) != (
            self.dimensions,
            2,
        ):
            raise problem(
                "box",
                describe(box),
                f"{self.dimensions} pairs (low, high)",
                "Pass one pair per axis.",
            )
        return [
            [real("box", end, low=-1e300, high=1e300, remedy="Pass finite ends.") for end in pair]
            for pair in box
        ]

    # Saving
    # ------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, dtype: str | None = None) -> Saved:
        """Save to one file atomically, as `Field.save` does."""
        if dtype not in (None, "float16", "float32", "float64"):
            raise problem(
                "dtype",
                repr(dtype),
                '"float16", "float32" or "float64"',
                "Leave it out to keep the dtype of the weights.",
            )
        # to_dict() describes the features
        weights = without_description(self.model.state_dict())
        exact = {name: _as_numpy(tensor) for name, tensor in weights.items()}
        stored = {name: in_dtype(array, dtype, "weights") for name, array in exact.items()}
        errors = np.concatenate(
            [(stored[name].astype(np.float64) - exact[name]).ravel() for name in exact]
        )
        metadata = {
            "kind": "network",
            "network": self.model.to_dict(),
            "domain": [list(pair) for pair in self.domain],
            "channels": self.has_channels,
            "weights_dtype": str(next(iter(exact.values())).dtype),
            "info": self.info,
        }
        arrays = {f"model.{name}": array for name, array in stored.items()}
        arrays |= {f"axis{i}": axis for i, axis in enumerate(self._axes)}
        storage.write(path, arrays, metadata)
        rms = float(np.sqrt(np.mean(errors**2)))
        return Saved(os.fspath(path), os.path.getsize(path), float(np.abs(errors).max()), rms)


def frames_of(model: CoordinateMLP, domain: Sequence[Sequence[float]] | None) -> list[Frame]:
    """Return the frames of a network: its unit intervals, and where it may be evaluated."""
    units = model.first.place.domain
    reach = zip(units, model.first.extent, strict=True)
    usual = [(low + a * (high - low), low + b * (high - low)) for (low, high), (a, b) in reach]
    bounds = usual if domain is None else [tuple(float(end) for end in pair) for pair in domain]
    if len(bounds) != len(units):
        raise problem(
            "domain", describe(domain), f"{len(units)} pairs (low, high)", "Pass one pair per axis."
        )
    return [Frame(low, high - low, *ends) for (low, high), ends in zip(units, bounds, strict=True)]


def as_field(
    model: CoordinateMLP,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    axes: Sequence[Array] | None = None,
    channels: bool = True,
    report: Any = None,
    info: Mapping[str, Any] | None = None,
) -> Field:
    """Return a network as a field.

    One linear layer on a Kronecker encoding becomes a `Field` as `fit` returns it. Any other
    network becomes a `NetworkField`.

    Examples
    --------
    >>> import kronfield as kf
    >>> from kronfield.nn import CoordinateMLP, as_field
    >>> as_field(CoordinateMLP(kf.Kronecker(kf.Gaussian(8, 0.1)), depth=0, out=1), channels=False)
    Field(on [0, 1], Kronecker(Gaussian(size=8, width=0.1, padding=0)), float32)

    Parameters
    ----------
    model : CoordinateMLP
        The network.
    domain : sequence of (low, high), optional
        Where it may be evaluated. By default the unit intervals of its encoding, or the domain of
        the field it was made from.
    axes : sequence of arrays, optional
        The default positions of `on_grid`.
    channels : bool
        Whether values have an axis of channels.
    report, info
        Stored with the field.
    """
    if not isinstance(model, CoordinateMLP):
        raise problem(
            "model",
            describe(model),
            "a CoordinateMLP",
            "Evaluate other modules by calling them.",
            TypeError,
        )
    if not channels and model.out != 1:
        raise problem("channels", "False", f"True, for {model.out} channels", "Leave it out.")
    first = model.first
    if model.is_linear and isinstance(first, KroneckerLinear) and _is_closed_form(first):
        frames = frames_of(model, domain)
        positions = _usual_axes(frames) if axes is None else list(axes)
        planes = _as_numpy(first.weight)
        planes = planes if planes.itemsize >= 4 else planes.astype(np.float32)
        return Field(
            first.encoding, planes, frames, positions, channels=channels, report=report, info=info
        )
    return NetworkField(
        model, domain=domain, axes=axes, channels=channels, report=report, info=info
    )


def _is_closed_form(layer: KroneckerLinear) -> bool:
    """Return whether `fit` solves this layer: fixed features, no bias, no blending of points."""
    return layer.points == "exact" and not layer.learns and layer.bias is None


def _usual_axes(frames: Sequence[Frame]) -> list[Array]:
    """Return the default positions of `on_grid` for a network not trained on a grid."""
    return [np.linspace(frame.low, frame.high, 64, endpoint=False) for frame in frames]


def network_from(
    path: Any,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> NetworkField:
    """Return the network that `NetworkField.save` wrote, from the contents of its file."""
    with storage.restoring(path, "a saved network"):
        # The initial weights are replaced, so leave the global random state unchanged.
        with torch.random.fork_rng(devices=[]):
            model = CoordinateMLP.from_dict(metadata["network"], functions)
        model.to(
            {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}[
                metadata["weights_dtype"]
            ]
        )
        state = {
            name: torch.from_numpy(arrays[f"model.{name}"]).to(old.dtype)
            for name, old in without_description(model.state_dict()).items()
        }
        model.load_state_dict(state)
        axes = storage.positions(arrays, model.encoding.dimensions)
        return NetworkField(
            model,
            domain=metadata["domain"],
            axes=axes,
            channels=bool(metadata["channels"]),
            info=metadata.get("info"),
        )


def _as_numpy(tensor: Tensor) -> Array:
    """Return the values of a tensor; bfloat16, which NumPy does not have, as float32."""
    plain = tensor.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy().copy()


@contextlib.contextmanager
def _in_units(model: CoordinateMLP) -> Iterator[None]:
    """Let a network take positions in units.

    Mapping the domain to units needs float64, which the network may not have.
    """
    place = model.first.place
    before, place.unit = place.unit, True
    training = model.training
    model.eval()
    try:
        yield
    finally:
        place.unit = before
        model.train(training)
