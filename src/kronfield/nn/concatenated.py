"""The first layer on a simple encoding: on a grid, a sum of functions of an axis or a diagonal."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kronfield._core.arrays import problem, whole
from kronfield._core.frames import mean_step, off_even
from kronfield.encoding import Concatenated
from kronfield.nn.encode import Domain, Place, as_encoding, axis_modules, combine
from kronfield.nn.grid import Grid
from kronfield.nn.layers import CACHE_NUMBERS, FirstLayer, Prepared, Rows
from kronfield.nn.outer import Pair, Single, Term, outer_sum

# Positions are evenly spaced if they deviate by at most EVEN steps. Two axes have equal steps if
# they drift apart by at most SAME_STEP steps over their length.
EVEN, SAME_STEP = 1e-6, 1e-3


@dataclass
class _Sum(Prepared):
    # One per embedder. None: no structure, so there is a row of features for every point.
    terms: list[Term | None]
    positions: list[Tensor]
    features: list[Tensor | None]  # None if not cached
    sizes: tuple[int, ...]


class ConcatenatedLinear(FirstLayer):
    """A linear layer on a Concatenated ("simple") encoding.

    On a `Grid`, features of one axis are multiplied by the weights before they are broadcast over
    the grid: N_1 + N_2 + ... rows instead of N_1 N_2 .... The same holds for features of the
    diagonals of two axes with equal steps. The result is the same as at points.

    Examples
    --------
    >>> import torch
    >>> import kronfield as kf
    >>> from kronfield.nn import ConcatenatedLinear, Grid
    >>> layer = ConcatenatedLinear(kf.Concatenated.with_diagonals(kf.Gaussian(32, 0.02), 2), 16)
    >>> grid = Grid.even((20, 30))
    >>> torch.allclose(layer(grid), layer(grid.points()), atol=1e-5)
    True

    Parameters
    ----------
    encoding : Concatenated or Embedder
        The features.
    width : int
        The number of outputs.
    bias : bool
        Whether to add a learned constant.
    trainable, domain
        As for `Encode`.
    """

    def __init__(
        self,
        encoding: Any,
        width: int,
        *,
        bias: bool = True,
        trainable: Iterable[str] = (),
        domain: Domain | None = None,
    ) -> None:
        super().__init__()
        given = as_encoding(encoding)
        if not isinstance(given, Concatenated):
            raise problem(
                "encoding",
                repr(given),
                "a Concatenated encoding",
                "Use KroneckerLinear for this encoding.",
                TypeError,
            )
        self.encoding: Concatenated = given
        self.width = whole("width", width, at_least=1)
        self.axes = axis_modules(given, trainable)
        self.place = Place(given.dimensions, domain)
        self.extent = [(0.0, 1.0)] * given.dimensions
        like = nn.Linear(given.size, self.width, bias=bias)  # supplies the initial values
        self.weight = nn.Parameter(like.weight.detach())
        self.bias = nn.Parameter(like.bias.detach()) if bias else None

    def prepare(self, inputs: Tensor | Grid, *, cache: bool = True) -> Prepared:
        """Return points, or the distinct positions of each embedder on a grid, with features."""
        if isinstance(inputs, Grid):
            return self._prepare_grid(inputs, cache)
        before, flat = self._point_units(inputs)
        keep = (
            cache
            and not self.learns
            and not flat.requires_grad
            and len(flat) * self.encoding.size <= CACHE_NUMBERS
        )
        return Rows(before, len(flat), 1, flat, self._rows(flat).detach() if keep else None)

    def _rows(self, units: Tensor) -> Tensor:
        return combine(self.encoding, self.axes, units).to(self.weight.dtype)

    def _prepare_grid(self, grid: Grid, cache: bool) -> Prepared:
        units = self._grid_units(grid)
        # If positions need gradients, points on a diagonal cannot share a row of a table.
        moving = any(x.requires_grad for x in units)
        steps = [
            None if moving else _step(self.place.axis(x.detach().double(), i), x)
            for i, x in enumerate(grid.axes)
        ]
        terms, positions = map(list, zip(*self._seen(units, steps), strict=True))
        features = list[Tensor | None]()
        for i, x in enumerate(positions):
            keep = (
                cache
                and not self.learns
                and not moving
                and len(x) * self.encoding.embedders[i].size <= CACHE_NUMBERS
            )
            features.append(self._encoded(i, x).detach() if keep else None)
        return _Sum(
            grid.shape,
            grid.shape[0],
            math.prod(grid.shape[1:]),
            terms,
            positions,
            features,
            grid.shape,
        )

    def _seen(
        self, units: list[Tensor], steps: list[float | None]
    ) -> list[tuple[Term | None, Tensor]]:
        """Return for each embedder its term on the grid, and the distinct arguments."""
        encoding = self.encoding
        if encoding.directions is None:
            return self._seen_on_axes(units)
        assert encoding.offsets is not None
        everywhere = functools.cache(lambda: _all_points(units))
        result = list[tuple[Term | None, Tensor]]()
        for row, offset in zip(encoding.directions, encoding.offsets, strict=True):
            along = _along_axes(units, steps, row, offset)
            result.append(along or (None, everywhere() @ everywhere().new_tensor(row) + offset))
        return result

    def _seen_on_axes(self, units: list[Tensor]) -> list[tuple[Term | None, Tensor]]:
        """Return the same for embedders of one axis, or of several neighbouring axes."""
        result, at = list[tuple[Term | None, Tensor]](), 0
        for emb in self.encoding.embedders:
            if emb.dimensions == 1:
                result.append((Single(at), units[at]))
            else:
                result.append((None, _all_points(units)[:, at : at + emb.dimensions].contiguous()))
            at += emb.dimensions
        return result

    def shared(self, prepared: Prepared) -> list[Tensor]:
        """Return a table Psi(x) W per embedder, or its weights if unstructured; and the bias."""
        if isinstance(prepared, Rows):
            return [self.weight] if self.bias is None else [self.weight, self.bias]
        assert isinstance(prepared, _Sum)
        blocks = self.weight.split([emb.size for emb in self.encoding.embedders], dim=1)
        tables = list[Tensor]()
        for i, (term, W) in enumerate(zip(prepared.terms, blocks, strict=True)):
            tables.append(W if term is None else self._table(prepared, i, slice(None)) @ W.T)
        if self.bias is not None:
            tables.append(self.bias)
        return tables

    def part(self, prepared: Prepared, shared: list[Tensor], start: int, stop: int) -> Tensor:
        """Return the outputs of some points, or of some rows of a grid."""
        bias: Tensor | None = shared[-1] if self.bias is not None else None
        if isinstance(prepared, Rows):
            some = slice(start, stop)
            features = (
                self._rows(prepared.units[some])
                if prepared.features is None
                else prepared.features[some]
            )
            return nn.functional.linear(features, shared[0], bias)
        assert isinstance(prepared, _Sum)
        return self._grid_part(prepared, shared, bias, start, stop)

    def _grid_part(
        self,
        prepared: _Sum,
        shared: list[Tensor],
        bias: Tensor | None,
        start: int,
        stop: int,
    ) -> Tensor:
        """Return the sum over all embedders on rows of a grid; the first includes the bias."""
        structured = [
            (term, shared[i]) for i, term in enumerate(prepared.terms) if term is not None
        ]
        total: Any = 0.0
        if structured:
            terms, tables = map(list, zip(*structured, strict=True))
            if bias is not None:
                tables[0], bias = tables[0] + bias, None
            total = outer_sum(terms, tables, prepared.sizes, (start, stop))
        points = slice(start * prepared.per_row, stop * prepared.per_row)
        for i, term in enumerate(prepared.terms):
            if term is None:
                product = nn.functional.linear(self._table(prepared, i, points), shared[i], bias)
                total, bias = (
                    total + product.reshape(stop - start, *prepared.sizes[1:], self.width),
                    None,
                )
        return total

    def _table(self, prepared: _Sum, i: int, rows: slice) -> Tensor:
        """Return features of one embedder, from the cache or computed."""
        kept = prepared.features[i]
        return self._encoded(i, prepared.positions[i][rows]) if kept is None else kept[rows]

    def extra_repr(self) -> str:
        """Return the encoding and the width, for the representation of the module."""
        return f"{self.encoding!r}, width={self.width}, bias={self.bias is not None}"


def _all_points(units: list[Tensor]) -> Tensor:
    """Return every point of a grid, (P, D)."""
    return torch.stack(torch.meshgrid(*units, indexing="ij"), dim=-1).reshape(-1, len(units))


def _along_axes(
    units: list[Tensor], steps: list[float | None], row: tuple[float, ...], offset: float
) -> tuple[Term, Tensor] | None:
    """Return the term of a direction on a grid, and the distinct values along it.

    Return None unless the direction is along one axis, or along two with equal steps.
    """
    touched = [i for i, weight in enumerate(row) if weight]
    if len(touched) == 1:
        return Single(touched[0]), row[touched[0]] * units[touched[0]] + offset
    pair = _pair(units, steps, row, touched) if len(touched) == 2 else None
    if pair is None:
        return None
    a, b = touched
    i, j = _representatives(pair, len(units[b]))
    return pair, row[a] * units[a][i] + row[b] * units[b][j] + offset


def _step(units: Tensor, given: Tensor) -> float | None:
    """Return the step of positions that are even up to the rounding of ``given``, or None."""
    if len(units) < 2:
        return None
    step = mean_step(units)
    rounding = 4 * torch.finfo(given.dtype).eps * max(1.0, float(units.abs().max()))
    return step if step and off_even(units) <= max(rounding, EVEN * abs(step)) else None


def _pair(
    units: list[Tensor], steps: list[float | None], row: tuple[float, ...], touched: list[int]
) -> Pair | None:
    """Return the pair of two axes if their steps along a direction have equal length."""
    a, b = touched
    one, other = steps[a], steps[b]
    if one is None or other is None:
        return None
    ratio = row[a] * one / (row[b] * other)
    # Rounding of the positions lets the two drift apart by a small part of a step.
    if abs(abs(ratio) - 1) * max(len(units[a]), len(units[b])) > SAME_STEP:
        return None
    return Pair(a, b, ratio < 0, len(units[a]))


def _representatives(pair: Pair, second: int) -> tuple[Tensor, Tensor]:
    """Return one (i, j) for each row of the table of a pair."""
    k = torch.arange(pair.length + second - 1)
    along = k.clamp(max=pair.length - 1)  # i, or N - 1 - i
    return (pair.length - 1 - along if pair.falling else along), k - along
