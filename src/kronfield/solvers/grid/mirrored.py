"""Matrices of axes that are their own mirror image, in two halves.

On an even axis with equal features, sample n - 1 - i sees feature K - 1 - j as sample i sees
feature j. The basis functions of a penalty are then even or odd about the middle (Andrew, 1973),
and each kind has an eigenproblem of half the size: a quarter of the time, half of the memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import is_even
from kronfield._core.records import record
from kronfield.embedders import Embedder, LocalEmbedder
from kronfield.solvers.grid.banded import dense_apply

# Features or positions that differ by less than this from their mirror image are symmetric: the
# difference is rounding.
SAME = 1e-9
# The number of samples at one end, and again in the middle, whose features are compared with those
# of their mirror images.
COMPARED = 16
# Samples whose features are computed together.
ROWS = 64
HALF = math.sqrt(0.5)


def fold(tensor: Array, axis: int) -> tuple[Array, Array]:
    """Return the even and the odd part of a tensor along an axis, in orthonormal coordinates."""
    n = tensor.shape[axis]
    turned = np.moveaxis(tensor, axis, 0)
    left, right = turned[: n // 2], turned[::-1][: n // 2]
    even = np.empty(((n + 1) // 2, *turned.shape[1:]), dtype=np.result_type(tensor, np.float32))
    np.add(left, right, out=even[: n // 2])
    even[: n // 2] *= HALF
    if n % 2:
        even[-1] = turned[n // 2]
    odd = np.subtract(left, right, dtype=even.dtype)
    odd *= HALF
    return np.moveaxis(even, 0, axis), np.moveaxis(odd, 0, axis)


def unfold(even: Array, odd: Array, axis: int) -> Array:
    """Return the tensor with these parts: the inverse of `fold`."""
    even, odd = np.moveaxis(even, axis, 0), np.moveaxis(odd, axis, 0)
    h, n = len(odd), len(even) + len(odd)
    out = np.empty((n, *even.shape[1:]), dtype=even.dtype)
    np.add(even[:h], odd, out=out[:h])
    np.subtract(even[:h], odd, out=out[::-1][:h])
    out[:h] *= HALF
    out[n - h :] *= HALF
    if n % 2:
        out[h] = even[-1]
    return np.moveaxis(out, 0, axis)


@record
class Mirrored:
    """A matrix (M, r) whose columns are even or odd: even columns come first.

    Attributes
    ----------
    even, odd : array
        The even and the odd columns in the coordinates of `fold`: (M - M // 2, r_e) and
        (M // 2, r_o).
    transposed : bool
        Whether this is the transpose, (r, M).
    """

    even: Array
    odd: Array
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the matrix."""
        shape = len(self.even) + len(self.odd), self.even.shape[1] + self.odd.shape[1]
        return shape[::-1] if self.transposed else shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its numbers, and of products."""
        return self.even.dtype

    @property
    def T(self) -> Mirrored:  # noqa: N802 - as that of arrays
        """The transpose."""
        return Mirrored(self.even, self.odd, not self.transposed)

    def apply(self, tensor: Array, axis: int) -> Array:
        """Return the mode product with ``axis`` of a tensor."""
        if self.transposed:
            even, odd = fold(np.asarray(tensor, dtype=self.dtype), axis)
            parts = (dense_apply(self.even.T, even, axis), dense_apply(self.odd.T, odd, axis))
            return np.concatenate(parts, axis=axis)
        even, odd = np.split(tensor, [self.even.shape[1]], axis=axis)
        return unfold(dense_apply(self.even, even, axis), dense_apply(self.odd, odd, axis), axis)


def is_mirrored(embedder: Embedder, x: Array, low: float = 0.0, high: float = 0.0) -> bool:
    """Return whether samples, features and the interval are their own mirror images.

    On an even axis the features are shifted copies, so that a few samples are enough to compare.
    """
    if not isinstance(embedder, LocalEmbedder) or len(x) < 2 or not is_even(x):
        return False
    if (low or high) and abs(low + high - x[0] - x[-1]) > SAME * (x[-1] - x[0]):
        return False
    middle = len(x) // 2
    some = np.unique(np.r_[:COMPARED, middle : middle + COMPARED].clip(max=len(x) - 1))
    features = np.asarray(embedder(x[some]))
    mirrored = np.asarray(embedder(x[len(x) - 1 - some]))[:, ::-1]
    return bool(np.abs(features - mirrored).max() <= SAME * np.abs(features).max())


def folded_embedding(embedder: Embedder, x: Array) -> tuple[Array, Array]:
    """Return both halves of the matrix of the features, from half of its rows."""
    n, K = len(x), embedder.size
    even, odd = np.empty(((n + 1) // 2, (K + 1) // 2)), np.empty((n // 2, K // 2))
    for start in range(0, len(even), ROWS):  # in blocks, to bound temporary memory
        some = slice(start, min(start + ROWS, len(even)))
        even[some], part = fold(np.asarray(embedder(x[some])), 1)
        odd[some] = part[: len(odd[some])]
    even[: n // 2] *= math.sqrt(2)
    odd *= math.sqrt(2)
    return even, odd
