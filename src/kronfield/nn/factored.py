"""A linear layer on a Kronecker encoding with factored weights: any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, problem, whole
from kronfield._core.frames import cell_centres
from kronfield.encoding import Kronecker
from kronfield.field.factored import FactoredField
from kronfield.nn.encode import Domain, Place, axis_modules
from kronfield.nn.grid import Grid
from kronfield.nn.state import Described

# Number of positions at which the mean squared norm of the features is measured.
MEASURED = 256


class FactoredLinear(Described):
    """A linear layer whose weights are a sum of products of one vector per axis.

    The weights of `KroneckerLinear` are K_1 x ... x K_D numbers for each output. Here they are the
    sum of ``rank`` outer products (Carroll and Chang, 1970) and of a vector for each axis alone
    (main effects): (1 + rank) (K_1 + ... + K_D) numbers. Outputs are twice differentiable in points
    and weights.

    Examples
    --------
    >>> import torch
    >>> import kronfield as kf
    >>> from kronfield.nn import FactoredLinear
    >>> layer = FactoredLinear(kf.Kronecker(*[kf.Gaussian(10, 0.1)] * 8), 32, rank=6)
    >>> layer(torch.rand(5, 8)).shape
    torch.Size([5, 32])

    A layer that continues from a fit in closed form:

    >>> import numpy as np
    >>> points = np.random.default_rng(0).random((300, 5))
    >>> field = kf.fit_points(points, points[:, 0] * points[:, 1], form="factored")
    >>> layer = FactoredLinear.from_field(field)
    >>> new = np.full((1, 5), 0.4)
    >>> bool(abs(layer(torch.tensor(new)).item() - field(new)[0]) < 1e-6)
    True

    Parameters
    ----------
    encoding : Kronecker
        The features, one embedder per axis.
    width : int
        The number of outputs.
    rank : int
        The number of products for each output.
    bias : bool
        Whether to add a learned constant.
    trainable, domain
        As for `Encode`.
    """

    def __init__(
        self,
        encoding: Any,
        width: int,
        rank: int,
        *,
        bias: bool = True,
        trainable: Iterable[str] = (),
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(encoding, Kronecker):
            raise problem(
                "encoding",
                describe(encoding),
                "a Kronecker encoding",
                "For example: Kronecker(*[Gaussian(10, 0.1)] * 8).",
                TypeError,
            )
        self.encoding = encoding
        self.width, self.rank = whole("width", width, at_least=1), whole("rank", rank, at_least=0)
        self.axes = axis_modules(encoding, trainable)
        self.place = Place(encoding.dimensions, domain)
        # (width, K_d, 1 + rank): the main effect of the axis, then its factor in each product
        self.factors = nn.ParameterList(
            nn.Parameter(torch.empty(self.width, emb.size, 1 + self.rank))
            for emb in encoding.embedders
        )
        self.bias = nn.Parameter(torch.zeros(self.width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights: main effects and products each have a mean variance of about 1/6."""
        D, middles = len(self.factors), cell_centres(0.0, 1.0, MEASURED)
        for axis, weight in zip(self.axes, self.factors, strict=True):
            with torch.no_grad():
                rows = axis(torch.as_tensor(middles, dtype=torch.get_default_dtype()))
                energy = float(rows.square().sum(dim=1).mean())
                product = (6.0 * max(1, self.rank)) ** (-1.0 / D)
                weight.normal_(std=math.sqrt(product / energy))
                weight[..., 0].normal_(std=math.sqrt(1.0 / (6.0 * D * energy)))

    @classmethod
    def from_field(
        cls, field: FactoredField, *, dtype: torch.dtype | None = None
    ) -> FactoredLinear:
        """Return the layer with the weights of a field, to continue from its closed form.

        Parameters
        ----------
        field : FactoredField
            The result of `fit_points` with ``form="factored"``.
        dtype : torch.dtype, optional
            The dtype of the weights, by default float64.
        """
        if not isinstance(field, FactoredField) or field.is_complex:
            raise problem(
                "field",
                describe(field),
                "a real FactoredField",
                "Fit with fit_points(..., form='factored').",
                TypeError,
            )
        # embedders live on the unit interval of the frames
        domain = [(f.origin, f.origin + f.length) for f in field.frames]
        planes = field.factors
        layer = cls(Kronecker(*field.embedders), len(planes), field.rank, domain=domain)
        layer = layer.to(dtype or torch.float64)
        with torch.no_grad():
            for d, weight in enumerate(layer.factors):
                for c, factors in enumerate(planes):
                    weight[c] = torch.as_tensor(factors.weights[d])
            assert layer.bias is not None
            layer.bias.copy_(torch.as_tensor(field.constants))
        return layer

    def forward(self, points: Tensor | Grid) -> Tensor:
        """Return the outputs (..., width) at points (..., D), or on a `Grid`."""
        if isinstance(points, Grid):
            points = points.points()
        units = self.place(points)
        before, units = units.shape[:-1], units.reshape(-1, units.shape[-1])
        kind = self.factors[0].dtype
        main: Tensor | None = None
        product: Tensor | None = None
        for i, (axis, weight) in enumerate(zip(self.axes, self.factors, strict=True)):
            # (P, K) times (width, K, 1 + R)
            rows = torch.einsum("pk,wkr->pwr", axis(units[:, i]).to(kind), weight)
            main = rows[..., 0] if main is None else main + rows[..., 0]
            product = rows[..., 1:] if product is None else product * rows[..., 1:]
        assert main is not None
        assert product is not None
        out = main + product.sum(dim=-1)
        if self.bias is not None:
            out = out + self.bias
        return out.reshape(*before, self.width)

    def extra_repr(self) -> str:
        """Return the settings, for the representation of the module."""
        return f"{self.encoding!r}, width={self.width}, rank={self.rank}"
