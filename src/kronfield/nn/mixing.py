"""Blending in PyTorch: rows of a table mixed with fixed weights, as sparse products."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Mixer:
    """Weighted sums of rows of a table.

    Row p of the result is the sum over t of weights[p, t] * table[indices[p, t]]; indices and
    weights are (P, T), the table is (M, W). Fixed weights are stored as a sparse matrix and its
    transpose, for the gradient. If the weights have a gradient, rows are gathered and summed, which
    takes ten times as long.
    """

    def __init__(self, indices: Tensor, weights: Tensor, table_rows: int) -> None:
        self.indices, self.weights, self.table_rows = indices, weights, table_rows
        fixed = not weights.requires_grad and weights.dtype in (torch.float32, torch.float64)
        self._pair = _sparse_pair(indices, weights, table_rows) if fixed else None

    def __len__(self) -> int:
        return len(self.indices)

    def __call__(self, table: Tensor) -> Tensor:
        """Return the mixed rows (P, W) of ``table`` (M, W)."""
        if self._pair is not None and table.dtype == self.weights.dtype:
            return _Product.apply(table, *self._pair)
        return (table[self.indices] * self.weights.to(table.dtype)[..., None]).sum(1)


class _Product(torch.autograd.Function):
    """B @ table. The gradient B' @ g is also a product, so derivatives of any order exist."""

    @staticmethod
    def forward(table: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        return matrix @ table

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.pair = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        matrix, transposed = ctx.pair
        return _Product.apply(gradient.contiguous(), transposed, matrix), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Product.apply(tangent, *ctx.pair)


def _sparse_pair(indices: Tensor, weights: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    import scipy.sparse

    P, T = indices.shape
    values = weights.detach().cpu().numpy().ravel()
    rows = scipy.sparse.csr_array(
        (values, indices.cpu().numpy().ravel(), np.arange(P + 1) * T), (P, columns)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sparse CSR support is in beta
        return _tensor_of(rows, weights.device), _tensor_of(rows.T.tocsr(), weights.device)


def _tensor_of(matrix: Any, device: Any) -> Tensor:
    indptr, indices, data = (
        torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    return torch.sparse_csr_tensor(
        indptr, indices, data, size=matrix.shape, device=device, check_invariants=False
    )
