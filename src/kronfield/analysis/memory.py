"""Proposition 1 as a check: whether a linear model on some features can memorise any values at some positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._arrays import is_array, problem, real, to_numpy
from kronfield.embedders import Embedder
from kronfield.encoding import Encoding, Kronecker
from kronfield.spectra import spectrum, stable_rank


@dataclass(frozen=True)
class Memorisation:
    """The answer of `can_memorise`; true or false as a condition.

    Attributes
    ----------
    possible : bool
        Whether the rank equals the number of samples, at the tolerance.
    samples, features, rank : int
        The numbers N and K (with the bias, if any) and the numerical rank of the (N, K) matrix.
    stable_rank : float
        The smooth rank of the same matrix.
    smallest : float
        The N-th normalised singular value: its inverse is how much noise in the values is amplified.
    reason : str
        Why, in a sentence.
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
    """Check whether a linear model on ``encoding`` can take any values at ``positions``, and say why not.

    The condition is that the embedding matrix has rank N, the number of positions (with a bias: that the matrix with
    a column of ones has). For a `Kronecker` encoding of a grid it must hold on every axis.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Gaussian, Sine
    >>> x = np.arange(64) / 64
    >>> bool(can_memorise(Gaussian(64, width=0.01), x))
    True
    >>> print(can_memorise(Sine(64, frequency=1.0), x).reason)
    the rank is 2, but 64 samples need 64: the features are too alike. A narrower width or higher frequencies raise \
the rank; so does depth after the encoding.

    Parameters
    ----------
    encoding : Embedder, Concatenated or Kronecker
        Where the features come from.
    positions : array of shape (N,) or (P, D), or a list of D axes
        A list of axes stands for their grid and needs a `Kronecker`.
    bias : bool
        Whether the model also has a constant term.
    tolerance : float
        Singular values below this fraction of the largest count as zero.
    """
    tolerance = real("tolerance", tolerance, low=0.0, high=1.0, remedy="Pass a fraction of the largest singular value.")
    if isinstance(encoding, Kronecker) and isinstance(positions, list | tuple) and all(map(is_array, positions)):
        return _on_grid(encoding, positions, bias, tolerance)
    matrix = to_numpy(encoding(positions))
    if bias:
        matrix = np.concatenate([matrix, np.ones((matrix.shape[0], 1), matrix.dtype)], axis=1)
    return _check(matrix, to_numpy(positions), tolerance)


def _check(matrix: np.ndarray[Any, Any], positions: np.ndarray[Any, Any], tolerance: float) -> Memorisation:
    N, K = matrix.shape
    if N == 0:
        raise problem("positions", "none", "at least one", "There is nothing to memorise.")
    if np.any(matrix):
        values = to_numpy(spectrum(matrix))
        rank, stable = int(np.sum(values > tolerance)), stable_rank(matrix)
    else:
        values, rank, stable = np.zeros(1), 0, 0.0
    smallest = float(values[N - 1]) if values.size >= N else 0.0
    reason = f"the rank is {rank}, the number of samples" if rank == N else _shortfall(matrix, positions, rank, N, K)
    return Memorisation(rank == N, N, K, rank, stable, smallest, reason)


def _shortfall(matrix: np.ndarray[Any, Any], positions: np.ndarray[Any, Any], rank: int, N: int, K: int) -> str:
    pair = _equal_rows(positions.reshape(N, -1))
    if pair is not None:
        return f"positions {pair[0]} and {pair[1]} are the same, so they cannot take different values. Merge them."
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
        return f"positions {pair[0]} and {pair[1]} have the same features. More features would tell them apart."
    return (
        f"the rank is {rank}, but {N} samples need {N}: the features are too alike. "
        "A narrower width or higher frequencies raise the rank; so does depth after the encoding."
    )


def _equal_rows(rows: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """Return the first two rows that are equal to the bit, or None."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[inverse.ravel()] != np.arange(len(rows)))
    return None if repeats.size == 0 else (int(first[inverse.ravel()][repeats[0]]), int(repeats[0]))


def _on_grid(encoding: Kronecker, axes: Sequence[Any], bias: bool, tolerance: float) -> Memorisation:
    if bias:
        raise problem("bias", True, "False for a Kronecker encoding of a grid", "Its rank rule has no constant term.")
    parts = [
        _check(to_numpy(matrix), to_numpy(axis), tolerance)
        for matrix, axis in zip(encoding.matrices(axes), axes, strict=True)
    ]
    failed = [f"on axis {i}, {part.reason}" for i, part in enumerate(parts) if not part]
    samples, rank = math.prod(part.samples for part in parts), math.prod(part.rank for part in parts)
    return Memorisation(
        possible=not failed,
        samples=samples,
        features=encoding.size,
        rank=rank,
        stable_rank=math.prod(part.stable_rank for part in parts),
        smallest=math.prod(part.smallest for part in parts),
        reason=" ".join(failed) or f"the rank is {rank}, the number of samples",
    )
