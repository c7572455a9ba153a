"""Coordinate networks: an encoding of position, a structured first layer, and hidden layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, only_keys, problem, whole
from kronfield.encoding import Encoding, Kronecker
from kronfield.nn.concatenated import ConcatenatedLinear
from kronfield.nn.encode import Domain, as_encoding
from kronfield.nn.grid import Grid
from kronfield.nn.kronecker import KroneckerLinear
from kronfield.nn.layers import FirstLayer, Prepared


class SineActivation(nn.Module):
    """sin(30 x), the activation of SIREN (Sitzmann et al., 2020)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return sin(30 x)."""
        return torch.sin(30.0 * x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),  # the input is not needed again
    "leaky_relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sine": SineActivation,
}


class CoordinateMLP(nn.Module):
    """A network from position to value: ``depth`` hidden layers on any encoding.

    Depth 0 is one linear layer.

    Examples
    --------
    >>> import kronfield as kf
    >>> from kronfield.nn import CoordinateMLP, Grid
    >>> simple = CoordinateMLP(kf.Concatenated.with_diagonals(kf.Gaussian(128, 0.006), 2), depth=4)
    >>> simple.parameter_count  # the paper's
    329475
    >>> encoding = kf.Kronecker(kf.Gaussian(256, 0.004), kf.Gaussian(256, 0.004))
    >>> kronecker = CoordinateMLP(encoding, depth=0)
    >>> kronecker.parameter_count, kronecker(Grid.even((32, 32))).shape
    (196608, torch.Size([32, 32, 3]))

    Parameters
    ----------
    encoding : Encoding or Embedder
        The map from position to features.
    depth : int
        The number of hidden layers.
    width : int
        The size of each hidden layer.
    out : int
        The number of channels.
    activation : str or function
        "relu", "leaky_relu", "gelu", "silu", "tanh", "sine", or a function that returns a module.
    points : "exact" or "blending"
        How a Kronecker encoding is evaluated at points. Grids are always exact.
    blending : "least-squares", "similarity" or "linear"
        How points are blended, as in `kronfield.Blending`.
    trainable, domain
        As for `Encode`.
    """

    def __init__(
        self,
        encoding: Any,
        depth: int,
        width: int = 256,
        out: int = 3,
        *,
        activation: str | Callable[[], nn.Module] = "relu",
        points: str = "exact",
        blending: str = "least-squares",
        trainable: Iterable[str] = (),
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        given = as_encoding(encoding)
        self.depth, self.out = whole("depth", depth, at_least=0), whole("out", out, at_least=1)
        self.width, self.activation = whole("width", width, at_least=1), activation
        self.trainable = [trainable] if isinstance(trainable, str) else list(trainable)
        first_width = self.width if self.depth else self.out
        if isinstance(given, Kronecker):
            init = "random" if self.depth else "zeros"
            self.first: FirstLayer = KroneckerLinear(
                given,
                first_width,
                bias=self.depth > 0,
                points=points,
                blending=blending,
                init=init,
                trainable=self.trainable,
                domain=domain,
            )
        else:
            self.first = ConcatenatedLinear(
                given, first_width, trainable=self.trainable, domain=domain
            )
        layers = list[nn.Module]()
        for i in range(self.depth):
            layers += [
                _activation(activation),
                nn.Linear(self.width, self.width if i < self.depth - 1 else self.out),
            ]
        self.rest = nn.Sequential(*layers)

    @property
    def encoding(self) -> Encoding:
        """The encoding of position."""
        return self.first.encoding

    @property
    def parameter_count(self) -> int:
        """The number of learned weights."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @property
    def is_linear(self) -> bool:
        """Whether this is one linear layer on a Kronecker encoding, which has a closed form."""
        return self.depth == 0 and isinstance(self.first, KroneckerLinear)

    def prepare(self, inputs: Tensor | Grid, *, cache: bool = True) -> Prepared:
        """Return inputs with everything that does not change between steps.

        Pass the result in place of the inputs. With ``cache`` features are kept, unless there are
        very many. Cached features have no gradient with respect to positions.
        """
        return self.first.prepare(inputs, cache=cache)

    def part(self, prepared: Prepared, shared: list[Tensor], start: int, stop: int) -> Tensor:
        """Return the values of rows [start, stop); ``shared`` is ``first.shared(prepared)``."""
        first = self.first.part(prepared, shared, start, stop)
        return self._hidden(first)

    def _hidden(self, first: Tensor) -> Tensor:
        """Return the output of the hidden layers.

        Inputs are flattened, since matrix products with more axes make needless copies.
        """
        return self.rest(first.reshape(-1, first.shape[-1])).reshape(*first.shape[:-1], self.out)

    def forward(self, inputs: Tensor | Grid | Prepared) -> Tensor:
        """Return the values (..., out) at points (..., D), a `Grid`, or prepared inputs."""
        return self._hidden(self.first(inputs))

    @classmethod
    def from_field(
        cls, field: Any, depth: int = 0, width: int = 256, *, points: str = "exact"
    ) -> CoordinateMLP:
        """Return a network whose initial values are those of a field from `fit` or `fit_points`.

        With hidden layers, two units per channel carry +f and -f (ReLU(f) - ReLU(-f) = f). The
        output of the other units is added to f.
        """
        planes = getattr(field, "planes", None)
        if planes is None or not planes.size or field.is_complex:
            raise problem(
                "field",
                describe(field),
                "a field of real values from fit or fit_points",
                "Fit a field first.",
            )
        C = len(planes)
        if depth and width < 2 * C:
            raise problem(
                "width", width, f"at least {2 * C}, two units per channel", "Make it wider."
            )
        domain = [(f.origin, f.origin + f.length) for f in field.frames]
        model = cls(field.encoding, depth, width, C, points=points, domain=domain)
        first = model.first
        assert isinstance(first, KroneckerLinear)
        first.extent = [(float(f.unit(f.low)), float(f.unit(f.high))) for f in field.frames]
        weights = torch.from_numpy(planes).to(
            torch.float32 if planes.itemsize <= 4 else torch.float64
        )
        model.to(weights.dtype)
        with torch.no_grad():
            if depth:
                first.weight[:C], first.weight[C : 2 * C] = weights, -weights
                model._carry(C)
            else:
                first.weight.copy_(weights)
        return model

    def _carry(self, C: int) -> None:
        """Set the hidden layers to return f = ReLU(f) - ReLU(-f) from 2 C inputs +f and -f."""
        *hidden, last = [layer for layer in self.rest if isinstance(layer, nn.Linear)]
        for layer in hidden:
            layer.weight[: 2 * C] = torch.eye(2 * C, self.width)
            layer.bias[: 2 * C] = 0
        last.weight.zero_()
        last.bias.zero_()
        last.weight[:, :C], last.weight[:, C : 2 * C] = torch.eye(C), -torch.eye(C)

    def to_dict(self) -> dict[str, Any]:
        """Return the network without its weights as plain data for JSON."""
        if not isinstance(self.activation, str):
            raise problem(
                "activation",
                describe(self.activation),
                f"one of {', '.join(ACTIVATIONS)}, to be saved",
                "Save its state_dict instead.",
            )
        first = self.first
        return {
            "encoding": self.encoding.to_dict(),
            "depth": self.depth,
            "width": self.width,
            "out": self.out,
            "activation": self.activation,
            "points": first.points if isinstance(first, KroneckerLinear) else "exact",
            **self._blending(),
            "trainable": self.trainable,
            "domain": None if first.place.unit else [list(pair) for pair in first.place.domain],
            "extent": [list(ends) for ends in first.extent],
        }

    def _blending(self) -> dict[str, str]:
        """Return the kind of blending, unless it is the default of `from_dict`.

        In version 0.1.0 blending was always by similarity, and its files do not name the kind. So
        `from_dict` takes similarity by default, and it is not named here either.
        """
        first = self.first
        if not isinstance(first, KroneckerLinear):
            return {}
        usual = "similarity" if first.points == "blending" else "least-squares"
        return {} if first.blending == usual else {"blending": first.blending}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> CoordinateMLP:
        """Return the network that `to_dict` described, with new weights."""
        keys = (
            "encoding",
            "depth",
            "width",
            "out",
            "activation",
            "points",
            "blending",
            "trainable",
            "domain",
            "extent",
        )
        if isinstance(data, Mapping):
            unnamed = "similarity" if data.get("points") == "blending" else "least-squares"
            data = {"blending": unnamed, **data}
        only_keys("network", data, keys)
        settings = {key: data[key] for key in keys if key not in ("encoding", "extent")}
        model = cls(Encoding.from_dict(data["encoding"], functions), **settings)
        model.first.extent = [(float(low), float(high)) for low, high in data["extent"]]
        return model


def _activation(which: str | Callable[[], nn.Module]) -> nn.Module:
    if isinstance(which, str):
        if which not in ACTIVATIONS:
            raise problem(
                "activation", repr(which), f"one of {', '.join(ACTIVATIONS)}", "Or pass a function."
            )
        return ACTIVATIONS[which]()
    module = which()
    if not isinstance(module, nn.Module):
        raise problem(
            "activation",
            describe(module),
            "a function that returns a module",
            "For example: torch.nn.GELU.",
        )
    return module
