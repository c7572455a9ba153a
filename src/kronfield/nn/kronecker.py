"""The first layer on a Kronecker encoding: mode products on grids; exact or blended points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, problem, whole
from kronfield.encoding import Kronecker
from kronfield.encoding.blending import WEIGHTS, Blending, virtual_axis
from kronfield.nn.encode import Domain, Place, axis_modules
from kronfield.nn.grid import Grid
from kronfield.nn.layers import FirstLayer, Prepared, Rows
from kronfield.nn.mixing import Mixer

# The largest number of values of an intermediate result. Larger results are computed in parts, and
# again for the gradient.
LARGE = 1 << 25


@dataclass
class _Axes(Prepared):
    positions: list[Tensor]
    matrices: list[Tensor] | None


@dataclass
class _Mixed(Prepared):
    mixer: Mixer
    nodes: list[Tensor]  # the features of the virtual grid, by axis


class KroneckerLinear(FirstLayer):
    """A linear layer on a Kronecker ("complex") encoding; its weights are (width, K_1, ..., K_D).

    The same weights are applied to grids by mode products, and to points either exactly or by
    blending. Blending evaluates a virtual grid and mixes the corners of the cell of each point (the
    paper's smart indexing).

    Examples
    --------
    >>> import torch
    >>> import kronfield as kf
    >>> from kronfield.nn import Grid, KroneckerLinear
    >>> layer = KroneckerLinear(kf.Kronecker(kf.Gaussian(16, 0.06), kf.Gaussian(24, 0.04)), 8)
    >>> grid = Grid.even((20, 30))
    >>> torch.allclose(layer(grid), layer(grid.points()), atol=1e-5)
    True
    >>> layer(layer.blended(torch.rand(5, 2))).shape
    torch.Size([5, 8])

    Parameters
    ----------
    encoding : Kronecker
        The features, one embedder per axis.
    width : int
        The number of outputs.
    bias : bool
        Whether to add a learned constant.
    points : "exact" or "blending"
        How points are evaluated. Grids are always exact.
    blending : "least-squares", "similarity" or "linear"
        The weights of the corners of a cell, as in `kronfield.Blending`.
    init : "random" or "zeros"
        Random values have the scale of a PyTorch layer with as many active features. Use zeros for
        a layer that is the whole network, so that descent converges to the least-norm solution.
    trainable, domain
        As for `Encode`; with blending nothing of the encoding is trainable.
    """

    def __init__(
        self,
        encoding: Any,
        width: int,
        *,
        bias: bool = False,
        points: str = "exact",
        blending: str = "least-squares",
        init: str = "random",
        trainable: Iterable[str] = (),
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(encoding, Kronecker):
            raise problem(
                "encoding",
                describe(encoding),
                "a Kronecker encoding",
                "Use ConcatenatedLinear.",
                TypeError,
            )
        if points not in ("exact", "blending"):
            raise problem(
                "points", repr(points), '"exact" or "blending"', "Choose how points are evaluated."
            )
        if blending not in WEIGHTS:
            raise problem(
                "blending",
                repr(blending),
                f"one of {', '.join(WEIGHTS)}",
                "Least squares is the paper's definition.",
            )
        if init not in ("random", "zeros"):
            raise problem(
                "init",
                repr(init),
                '"random" or "zeros"',
                "Zeros suit a network without hidden layers.",
            )
        self.encoding: Kronecker = encoding
        self.points, self.blending = points, blending
        self.width = whole("width", width, at_least=1)
        self.axes = axis_modules(encoding, trainable)
        if points == "blending" and self.learns:
            raise problem(
                "trainable",
                describe(trainable),
                'nothing, with points="blending"',
                'Use points="exact".',
            )
        self.place = Place(encoding.dimensions, domain)
        self.extent = [(0.0, 1.0)] * encoding.dimensions
        self.weight = nn.Parameter(torch.zeros(self.width, *encoding.shape))
        self.bias = nn.Parameter(torch.zeros(self.width)) if bias else None
        if init == "random":
            # Outputs have mean variance 1/3, as those of nn.Linear for features of size 1.
            energy = math.prod(_mean_square(emb) for emb in encoding.embedders)
            nn.init.normal_(self.weight, std=1 / math.sqrt(3 * energy))

    @property
    def features(self) -> tuple[int, ...]:
        """The number of features on each axis."""
        return self.encoding.shape

    def prepare(self, inputs: Tensor | Grid, *, cache: bool = True) -> Prepared:
        """Return the embeddings of the axes of a grid, or points, or the corners of their cells."""
        if isinstance(inputs, Grid):
            units = self._grid_units(inputs)
            keep = cache and not self.learns and not any(x.requires_grad for x in units)
            matrices = (
                None if not keep else [self._encoded(i, x).detach() for i, x in enumerate(units)]
            )
            return _Axes(
                inputs.shape, inputs.shape[0], math.prod(inputs.shape[1:]), units, matrices
            )
        if self.points == "blending":
            return self.blended(inputs)
        before, flat = self._point_units(inputs)
        return Rows(before, len(flat), 1, flat, None)

    def blended(self, points: Tensor) -> Prepared:
        """Return points (..., D) in the domain as blends of the corners of their cells."""
        before, flat = self._point_units(points)
        blending = self._blending
        indices, weights = blending.corners(flat)
        mixer = Mixer(indices, weights, math.prod(blending.shape))
        nodes = [
            self._encoded(i, self.weight.new_tensor(axis)).detach()
            for i, axis in enumerate(blending.axes)
        ]
        return _Mixed(before, len(flat), 1, mixer, nodes)

    @property
    def _blending(self) -> Blending:
        return Blending(
            self.encoding,
            [
                virtual_axis(emb, *ends)
                for emb, ends in zip(self.encoding.embedders, self.extent, strict=True)
            ],
            weights=self.blending,
        )

    def shared(self, prepared: Prepared) -> list[Tensor]:
        """Return the weights contracted with all axes but the first, and the bias."""
        bias = [] if self.bias is None else [self.bias]
        if isinstance(prepared, Rows):
            return [self.weight.movedim(0, -1).reshape(self.features[0], -1), *bias]
        if isinstance(prepared, _Mixed):
            table = (prepared.nodes[0] @ self._contracted(prepared.nodes)).reshape(-1, self.width)
            return [prepared.mixer(table), *bias]
        assert isinstance(prepared, _Axes)
        found = prepared.matrices
        matrices = (
            [self._encoded(i, x) for i, x in enumerate(prepared.positions)]
            if found is None
            else found
        )
        return [matrices[0], self._contracted(matrices), *bias]

    def _contracted(self, matrices: list[Tensor]) -> Tensor:
        """Return W x_2 Psi_2 ... x_D Psi_D as (K_1, N_2 ... N_D width)."""
        tensor: Tensor = self.weight
        for i, Psi in enumerate(matrices[1:], start=2):
            tensor = (tensor.movedim(i, -1) @ Psi.T).movedim(-1, i)
        return tensor.movedim(0, -1).reshape(self.features[0], -1)

    def part(self, prepared: Prepared, shared: list[Tensor], start: int, stop: int) -> Tensor:
        """Return the outputs of some points, or of some rows of a grid."""
        if isinstance(prepared, _Axes):
            out = (shared[0][start:stop] @ shared[1]).reshape(
                stop - start, *prepared.shape[1:], self.width
            )
        elif isinstance(prepared, _Mixed):
            out = shared[0][start:stop]
        else:
            assert isinstance(prepared, Rows)
            out = self._exact(prepared.units[start:stop], shared[0])
        return out if self.bias is None else out + shared[-1]

    def _exact(self, units: Tensor, table: Tensor) -> Tensor:
        """Return the outputs at points (P, D), contracted one axis at a time.

        Many points are processed in parts, which are computed again for the gradient.
        """
        step = max(1, LARGE // table.shape[1])
        if len(units) <= step:
            return self._exact_part(units, table)
        from torch.utils.checkpoint import checkpoint

        parts = [
            checkpoint(self._exact_part, some, table, use_reentrant=False)
            for some in units.split(step)
        ]
        return torch.cat(parts)

    def _exact_part(self, units: Tensor, table: Tensor) -> Tensor:
        values = (self._encoded(0, units[:, 0]) @ table).reshape(
            len(units), *self.features[1:], self.width
        )
        for i in range(1, len(self.axes)):
            values = torch.einsum("pk,pk...->p...", self._encoded(i, units[:, i]), values)
        return values

    def extra_repr(self) -> str:
        """Return the encoding and the width, for the representation of the module."""
        return f"{self.encoding!r}, width={self.width}, points={self.points!r}"


def _mean_square(embedder: Any) -> float:
    """Return the mean over positions of the squared norm of the features."""
    return float(np.square(embedder(np.linspace(0.0, 1.0, 257))).sum(axis=1).mean())
