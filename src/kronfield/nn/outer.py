"""Sums on a grid of functions of one axis, or of the sum or difference of two.

The first layer on a simple encoding is a sum of this form. It is computed from one table of values
per function, without a row of features for every point of the grid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from kronfield._core.records import record

# Rows with at least this many values are processed with several threads.
SEVERAL = 1 << 18


@record
class Single:
    """A function of one axis: its table has a row for every position on it."""

    axis: int


@record
class Pair:
    """A function of i + j, or of (N_first - 1 - i) + j, for positions i, j on two axes.

    ``first`` < ``second``. Its table has N_first + N_second - 1 rows. Position i uses N_second
    consecutive rows, beginning at `start`.
    """

    first: int
    second: int
    falling: bool
    length: int  # N_first

    def start(self, i: int) -> int:
        """Return the row of position i on the first axis and position 0 on the second."""
        return self.length - 1 - i if self.falling else i


Term = Single | Pair


def outer_sum(
    terms: Sequence[Term], tables: Sequence[Tensor], shape: Sequence[int], rows: tuple[int, int]
) -> Tensor:
    """Return the sum of all terms on rows [start, stop) of the first axis.

    The result is (stop - start, N_2, ..., N_D, W). Each table is (N, W). For a first layer the
    tables are Psi(x) W, with N_1 + N_2 + ... rows in total.
    """
    return _OuterSum.apply(tuple(terms), tuple(shape), rows, *tables)


class _OuterSum(torch.autograd.Function):
    """The sum of tables on a grid.

    It is linear, and `_Collected` is its transpose, so gradients of any order use these two.
    """

    @staticmethod
    def forward(
        terms: tuple[Term, ...], shape: tuple[int, ...], rows: tuple[int, int], *tables: Tensor
    ) -> Tensor:
        out = _fill(terms, tables, shape, 0, *rows)
        return out.clone() if len(shape) == 1 else out  # on one axis ``out`` is a view of the table

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.given = *inputs[:3], [table.shape for table in inputs[3:]]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return None, None, None, *_Collected.apply(*ctx.given, gradient)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        terms, shape, rows, sizes = ctx.given
        like = next(one for one in tangents[3:] if one is not None)
        tables = [
            like.new_zeros(size) if one is None else one
            for one, size in zip(tangents[3:], sizes, strict=True)
        ]
        return _OuterSum.apply(terms, shape, rows, *tables)


class _Collected(torch.autograd.Function):
    """The sum over the grid for each row of each table: the transpose of `_OuterSum`."""

    @staticmethod
    def forward(
        terms: tuple[Term, ...],
        shape: tuple[int, ...],
        rows: tuple[int, int],
        sizes: list[Any],
        gradient: Tensor,
    ) -> tuple[Tensor, ...]:
        tables = [gradient.new_zeros(size) for size in sizes]
        _collect(terms, tables, shape, 0, rows[0], gradient.contiguous())
        return tuple(tables)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.given = inputs[:3]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, None, None, None, _OuterSum.apply(*ctx.given, *gradients)


def _across(table: Tensor, axis: int, current: int, dimensions: int) -> Tensor:
    """Return rows of a table of ``axis``, shaped to broadcast over the axes after ``current``."""
    shape = [1] * (dimensions - current - 1)
    shape[axis - current - 1] = len(table)
    return table.reshape(*shape, table.shape[-1])


def _fill(
    terms: Sequence[Term],
    tables: Sequence[Tensor],
    shape: Sequence[int],
    axis: int,
    start: int,
    stop: int,
) -> Tensor:
    """Return the sum of the terms of ``axis`` and later axes, at rows [start, stop)."""
    D, W = len(shape), tables[0].shape[-1]
    own = [
        table[start:stop] for term, table in zip(terms, tables, strict=True) if term == Single(axis)
    ]
    alone = sum(own[1:], own[0]) if own else tables[0].new_zeros(stop - start, W)
    if axis == D - 1:
        return alone
    # The sum over later axes is the same for every row of this axis.
    rest = _fill(terms, tables, shape, axis + 1, 0, shape[axis + 1])
    pairs = [
        (term, table) for term, table in zip(terms, tables, strict=True) if _starts(term, axis)
    ]
    if not pairs:
        return rest[None] + alone.reshape(stop - start, *[1] * (D - axis - 1), W)
    out = rest.new_empty(stop - start, *rest.shape)
    with _threads_for(rest):
        for i in range(start, stop):
            row = torch.add(rest, alone[i - start], out=out[i - start])
            for term, table in pairs:
                s = term.start(i)
                row.add_(_across(table[s : s + shape[term.second]], term.second, axis, D))
    return out


def _collect(
    terms: Sequence[Term],
    tables: Sequence[Tensor],
    shape: Sequence[int],
    axis: int,
    start: int,
    gradient: Tensor,
) -> None:
    """Add the gradient of `_fill`, (rows, N_axis+1, ..., W), to the gradients of the tables."""
    D, count = len(shape), len(gradient)
    mine = [
        table[start : start + count]
        for term, table in zip(terms, tables, strict=True)
        if term == Single(axis)
    ]
    if axis == D - 1:
        for table in mine:
            table.add_(gradient)
        return
    pairs = [
        (term, table) for term, table in zip(terms, tables, strict=True) if _starts(term, axis)
    ]
    if pairs:
        rest, alone = _collect_pairs(pairs, shape, axis, start, gradient)
    else:
        rest, alone = gradient.sum(0), gradient.flatten(1, -2).sum(1)
    for table in mine:
        table.add_(alone)
    if any(_first(term) > axis for term in terms):
        _collect(terms, tables, shape, axis + 1, 0, rest)


def _collect_pairs(
    pairs: Sequence[tuple[Pair, Tensor]],
    shape: Sequence[int],
    axis: int,
    start: int,
    gradient: Tensor,
) -> tuple[Tensor, Tensor]:
    """Add the gradient to the tables of pairs that begin at ``axis``.

    Return the sum of the gradient over this axis, and its sum over all later axes. All three are
    computed row by row, while a row is in the cache.
    """
    rest = torch.zeros_like(gradient[0])
    alone = gradient.new_empty(len(gradient), gradient.shape[-1])
    after = range(axis + 1, len(shape))
    with _threads_for(rest):
        for i, row in enumerate(gradient):
            rest.add_(row)
            torch.sum(row.flatten(0, -2), dim=0, out=alone[i])
            for term, table in pairs:
                s = term.start(start + i)
                others = [d - axis - 1 for d in after if d != term.second]
                table[s : s + shape[term.second]].add_(row.sum(others) if others else row)
    return rest, alone


def _starts(term: Term, axis: int) -> TypeGuard[Pair]:
    return isinstance(term, Pair) and term.first == axis


@contextlib.contextmanager
def _threads_for(row: Tensor) -> Iterator[None]:
    """Use one thread for small rows: starting a second thread takes longer than the work."""
    before = torch.get_num_threads()
    if row.numel() >= SEVERAL or row.device.type != "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _first(term: Term) -> int:
    return term.axis if isinstance(term, Single) else term.first
