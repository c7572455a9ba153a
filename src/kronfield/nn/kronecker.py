"""The first layer on a Kronecker encoding: mode products on grids; exact or blended points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

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

# Features below this multiple of the rounding unit are left out at points. Their second derivatives
# are then below rounding too: z^2 exp(-z^2/2) with z^2 < 82 in float64.
BELOW_ROUNDING = 1 / 128
# Gathering a weight takes about as long as this number of multiplications in a matrix product.
# (Time only: the values are the same to rounding.)
GATHER = 64


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
            out = self._at_points(prepared.units[start:stop], shared[0])
        return out if self.bias is None else out + shared[-1]

    def _at_points(self, units: Tensor, table: Tensor) -> Tensor:
        """Return the outputs at points (P, D), from the features that are not 0 there, or from all.

        Many points are processed in parts, which are computed again for the gradient.
        """
        windows = self._windows(rim=_may_move(units))
        each = table.shape[1] if windows is None else self.width * _taps(windows, self.features)
        step = max(1, LARGE // each)

        def part(some: Tensor, table: Tensor) -> Tensor:
            if windows is None:
                return self._exact_part(some, table)
            return self._local_part(some, table, windows)

        if len(units) <= step:
            return part(units, table)
        from torch.utils.checkpoint import checkpoint

        parts = [checkpoint(part, some, table, use_reentrant=False) for some in units.split(step)]
        return torch.cat(parts)

    def _windows(self, *, rim: bool) -> list[tuple[float, int] | None] | None:
        """Return the window of features on each axis (None: all), or None if all cost less."""
        kind = torch.float64 if self.weight.dtype == torch.float64 else torch.float32
        tolerance = BELOW_ROUNDING * torch.finfo(kind).eps
        axes: Any = self.axes
        windows = [axis.window(tolerance, rim=rim) for axis in axes]
        few = GATHER * _taps(windows, self.features) <= math.prod(self.features)
        return windows if few else None

    def _local_part(
        self, units: Tensor, table: Tensor, windows: list[tuple[float, int] | None]
    ) -> Tensor:
        # sum over t of psi_1[t_1] ... psi_D[t_D] W[t_1, ..., t_D], over the features near a point
        P, axes = units.shape[0], cast(Any, self.axes)
        indices, products = units.new_zeros(P, 1, dtype=torch.int64), None
        for i, (axis, window) in enumerate(zip(axes, windows, strict=True)):
            K = self.features[i]
            if window is None:
                index, values = torch.arange(K, device=units.device)[None], axis(units[:, i])
            else:
                index, values = axis.nearby(units[:, i], *window)
            values = values.to(self.weight.dtype)
            indices = (indices[:, :, None] * K + index[:, None, :]).flatten(1)
            products = (
                values
                if products is None
                else (products[:, :, None] * values[:, None, :]).flatten(1)
            )
        assert products is not None
        rows = table.reshape(-1, self.width)[indices]  # (P, taps, width)
        return (rows * products[:, :, None]).sum(1)

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


def _taps(windows: list[tuple[float, int] | None], features: tuple[int, ...]) -> int:
    """Return the number of weights of each output that a point needs."""
    # a list, since torch.compile does not trace the product of a generator
    counts = [
        K if window is None else window[1] for window, K in zip(windows, features, strict=True)
    ]
    return math.prod(counts)


def _may_move(units: Tensor) -> bool:
    """Return whether a derivative with respect to points may be taken.

    Inside `torch.func` and `torch.compile`, this cannot always be seen, so that it is assumed.
    """
    if torch.compiler.is_compiling() or units.requires_grad:
        return True
    try:
        units.data_ptr()
    except RuntimeError:  # tensors inside torch.func have no storage of their own
        return True
    return torch.autograd.forward_ad.unpack_dual(units).tangent is not None


def _mean_square(embedder: Any) -> float:
    """Return the mean over positions of the squared norm of the features."""
    return float(np.square(embedder(np.linspace(0.0, 1.0, 257))).sum(axis=1).mean())
