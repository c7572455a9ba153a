"""The paper's Proposition 1 as a check: whether a linear model can memorise any values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, is_array, problem, real, to_numpy
from kronfield._core.records import record
from kronfield._core.spectra import spectrum, stable_rank
from kronfield.embedders import Embedder, Sine
from kronfield.encoding import Concatenated, Encoding, Kronecker

# The largest number of products of singular values that is formed.
MOST_PRODUCTS = 1 << 24


@record
class Memorisation:
    """The result of `can_memorise`; in a boolean context, true if memorisation is possible.

    Attributes
    ----------
    possible : bool
        Whether the rank equals the number of samples, at the tolerance.
    samples, features, rank : int
        The numbers N and K (including a bias) and the numerical rank of the (N, K) matrix.
    stable_rank : float
        The stable rank of the same matrix.
    smallest : float
        The N-th normalised singular value. Its inverse measures how much the fit amplifies noise in
        the values.
    reason : str
        The explanation, in a sentence.
    """

    possible: bool
    samples: int
    features: int
    rank: int
    stable_rank: float
    smallest: float
    reason: str

    def __bool__(self) -> bool:
        return self.possible


def can_memorise(
    encoding: Embedder | Encoding, positions: Any, *, bias: bool = False, tolerance: float = 1e-10
) -> Memorisation:
    """Check whether a linear model on ``encoding`` can reproduce any values at ``positions``.

    The condition is that the embedding matrix (with a bias, the matrix with a column of ones) has
    rank N, the number of positions. For a `Kronecker` encoding of a grid it must hold on every
    axis.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Gaussian, Sine
    >>> x = np.arange(64) / 64
    >>> bool(can_memorise(Gaussian(64, width=0.01), x))
    True
    >>> print(can_memorise(Sine(64, frequency=1.0), x).reason)
    the rank is 2, but 64 samples need 64: a sine has rank 2 for any settings. \
Use a local embedder, or hidden layers after the encoding.

    Parameters
    ----------
    encoding : Embedder, Concatenated or Kronecker
        The encoding that computes the features.
    positions : array of shape (N,) or (P, D), or a list of D axes
        A list of axes means their grid and needs a `Kronecker` encoding.
    bias : bool
        Whether the model has a constant term.
    tolerance : float
        Singular values below this fraction of the largest count as zero.
    """
    tolerance = real(
        "tolerance",
        tolerance,
        low=0.0,
        high=1.0,
        remedy="Pass a fraction of the largest singular value.",
    )
    if (
        isinstance(encoding, Kronecker)
        and isinstance(positions, list | tuple)
        and all(map(is_array, positions))
    ):
        return _on_grid(encoding, positions, bias, tolerance)
    matrix = to_numpy(encoding(positions))
    return _check(encoding, matrix, to_numpy(positions), tolerance, bias)


def _check(
    encoding: Embedder | Encoding,
    features: Array,
    positions: Array,
    tolerance: float,
    bias: bool = False,
) -> Memorisation:
    tolerance = _above_rounding(tolerance, features)
    ones = np.ones((features.shape[0], 1), features.dtype)
    matrix = np.concatenate([features, ones], axis=1) if bias else features
    N, K = matrix.shape
    if N == 0:
        raise problem("positions", "none", "at least one", "Pass the positions of the samples.")
    values = _spectrum(matrix)
    rank, stable = int(np.sum(values > tolerance)), stable_rank(matrix) if np.any(matrix) else 0.0
    smallest = float(values[N - 1]) if values.size >= N else 0.0
    reason = (
        f"the rank is {rank}, the number of samples"
        if rank == N
        else _shortfall(encoding, features, positions, rank, K)
    )
    return Memorisation(rank == N, N, K, rank, stable, smallest, reason)


def _above_rounding(tolerance: float, features: Array) -> float:
    """Return the tolerance, raised to the rounding error of the features if it is below that."""
    return max(tolerance, max(features.shape, default=1) * float(np.finfo(features.dtype).eps))


def _spectrum(matrix: Array) -> Array:
    """Return the singular values relative to the largest; a single zero for a matrix of zeros."""
    return to_numpy(spectrum(matrix)) if np.any(matrix) else np.zeros(1)


def _shortfall(
    encoding: Embedder | Encoding, matrix: Array, positions: Array, rank: int, K: int
) -> str:
    N = matrix.shape[0]
    pair = _equal_rows(positions.reshape(N, -1))
    if pair is not None:
        return (
            f"positions {pair[0]} and {pair[1]} are the same, "
            "so they cannot take different values. Merge them."
        )
    empty = np.flatnonzero(~np.any(matrix, axis=1))
    if empty.size:
        return (
            f"no feature reaches position {empty[0]} (and {empty.size - 1} others). "
            "A wider width, or padding past the ends, covers it."
        )
    if K < N:
        return f"{K} features are fewer than {N} samples. Raise size to {N} or more."
    pair = _equal_rows(matrix)
    if pair is not None:
        return (
            f"positions {pair[0]} and {pair[1]} have the same features. "
            "More features would distinguish them."
        )
    short = f"the rank is {rank}, but {N} samples need {N}: "
    if isinstance(encoding, Sine):
        return (
            short + "a sine has rank 2 for any settings. "
            "Use a local embedder, or hidden layers after the encoding."
        )
    if isinstance(encoding, Concatenated):
        return (
            short + "the model is a sum of functions of one variable each. "
            "Use a Kronecker encoding, or hidden layers after this encoding."
        )
    return (
        short + "the features are too similar. "
        "A narrower width, higher frequencies or hidden layers after the encoding help."
    )


def _equal_rows(rows: Array) -> tuple[int, int] | None:
    """Return the indices of the first two rows that are exactly equal, or None."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[inverse.ravel()] != np.arange(len(rows)))
    return None if repeats.size == 0 else (int(first[inverse.ravel()][repeats[0]]), int(repeats[0]))


def _on_grid(
    encoding: Kronecker, axes: Sequence[Any], bias: bool, tolerance: float
) -> Memorisation:
    if bias:
        raise problem(
            "bias",
            True,
            "False for a Kronecker encoding of a grid",
            "Leave bias out: the rule for the rank of a grid has no constant term.",
        )
    matrices = [to_numpy(matrix) for matrix in encoding.matrices(axes)]
    each = zip(encoding.embedders, matrices, axes, strict=True)
    parts = [_check(emb, matrix, to_numpy(axis), tolerance) for emb, matrix, axis in each]
    samples = math.prod(part.samples for part in parts)
    least = max(_above_rounding(tolerance, matrix) for matrix in matrices)
    rank = _products_above([_spectrum(matrix) for matrix in matrices], least)
    return Memorisation(
        possible=rank == samples,
        samples=samples,
        features=encoding.size,
        rank=rank,
        stable_rank=math.prod(part.stable_rank for part in parts),
        smallest=math.prod(part.smallest for part in parts),
        reason=_grid_reason(parts, rank, samples),
    )


def _grid_reason(parts: Sequence[Memorisation], rank: int, samples: int) -> str:
    """Return which axes fail; if none, whether the products of singular values suffice."""
    failed = [f"on axis {i}, {part.reason}" for i, part in enumerate(parts) if not part]
    if failed:
        return " ".join(failed)
    if rank < samples:
        return (
            "every axis suffices on its own, but the products of their singular values "
            f"give only rank {rank} of {samples}."
        )
    return f"the rank is {rank}, the number of samples"


def _products_above(spectra: Sequence[Array], tolerance: float) -> int:
    """Return how many products of one singular value from each axis are above ``tolerance``."""
    *others, longest = sorted(spectra, key=len)
    if math.prod(map(len, others)) > MOST_PRODUCTS:
        raise problem(
            "axes",
            [len(one) for one in spectra],
            f"lengths whose product, without the longest, is at most {MOST_PRODUCTS}",
            "Use fewer samples on each axis.",
        )
    products = np.ones(1)
    for values in others:
        products = np.outer(products, values).ravel()
    rising = longest[::-1]
    with np.errstate(divide="ignore"):
        return int(
            np.sum(rising.size - np.searchsorted(rising, tolerance / products, side="right"))
        )
