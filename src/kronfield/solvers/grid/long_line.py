"""Penalised splines on one long axis, solved as a band: the time is proportional to the samples.

The weights w of B-splines minimise |y - P w|² + c w'S w. P holds the splines at the samples, and S
the integrals of the products of their derivatives (O'Sullivan, 1986). P'P and S are banded, and so
is the system (Reinsch, 1967, for splines with a knot at every sample). The
eigenbasis of `basis` solves the same problem in time N³.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.threads import scipy_linalg
from kronfield.embedders import BSpline
from kronfield.solvers.grid.banded import BlockBanded, embedding_blocks
from kronfield.solvers.grid.basis import derivative_nodes

# The number and the seed of the vectors of random signs from which the trace of the smoother is
# estimated. The standard error of 30 degrees of freedom is 3 %.
PROBES, SEED = 64, 0
# Rows of the embedding that are multiplied together.
ROWS = 64
# How many times a ridge of the size of rounding is added, ten times as large each time.
RIDGES = 4


def _solved(bands: Array, right: Array) -> Array:
    """Return the solution of banded equations that are positive definite but for rounding.

    Under a strong penalty, or where samples nearly coincide, rounding can exceed the smallest
    eigenvalue. A ridge of the size of that rounding is then added.
    """
    linalg, ridge = scipy_linalg(), float(np.finfo(np.float64).eps) * float(bands[-1].max())
    for _ in range(RIDGES):
        try:
            return linalg.solveh_banded(bands, right)
        except np.linalg.LinAlgError:
            bands = bands.copy()
            bands[-1] += ridge
            ridge *= 10
    return linalg.solveh_banded(bands, right)


class LongLine:
    """Smoothing of values at many uneven positions by splines.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield._core.frames import sample_frame
    >>> from kronfield.embedders import BSpline
    >>> from kronfield.solvers.grid.long_line import LongLine
    >>> x = np.sort(np.random.default_rng(0).random(3000))
    >>> frame = sample_frame(x)
    >>> line = LongLine(BSpline.through(frame.unit(x), 3, 0.0, 1.0), x, frame)
    >>> noisy = np.sin(9 * x) + 0.1 * np.random.default_rng(1).standard_normal(3000)
    >>> smooth = line.values(line.weights(noisy, (0.0, 1e-6)))
    >>> bool(np.std(smooth - np.sin(9 * x)) < 0.02)
    True

    Parameters
    ----------
    embedder : BSpline
        The splines.
    x : array (N,)
        Rising positions.
    frame : Frame
        The domain.
    """

    def __init__(self, embedder: BSpline, x: Array, frame: Frame) -> None:
        self._size, self._degree = embedder.size, embedder.degree
        self._embedding = embedding_blocks(embedder, frame.unit(x), rows=ROWS)
        self._normal = self._band(self._embedding, None)
        low, high = float(frame.unit(frame.low)), float(frame.unit(frame.high))
        per_sample = (frame.high - frame.low) / len(x)
        self._penalties = []
        for order in (1, 2):
            nodes, weights = derivative_nodes(embedder, low, high, order)
            # The penalty is the mean over x of the squared derivative, relative to the mean over
            # samples, as in `GridSolver`.
            scale = 1.0 / (frame.length ** (2 * order - 1) * per_sample)
            derivatives = embedding_blocks(embedder, nodes, order, rows=ROWS)
            self._penalties.append(scale * self._band(derivatives, weights))

    def _band(self, matrix: BlockBanded, weights: Array | None) -> Array:
        """Return the upper bands of A' diag(weights) A, as `solveh_banded` expects them."""
        k = self._degree
        found = np.zeros((k + 1, self._size))
        for block in matrix.blocks:
            values = block.values
            scaled = values
            if weights is not None:
                scaled = weights[block.row : block.row + len(values), None] * values
            gram = values.T @ scaled
            for d in range(min(k + 1, len(gram))):
                found[k - d, block.column + d : block.column + len(gram)] += np.diagonal(gram, d)
        return found

    def weights(self, values: Array, roughness: tuple[float, float]) -> Array:
        """Return the weights (K,) or (K, M) of values (N,) or (N, M) under a penalty."""
        bands = self._normal + sum(
            r * one for r, one in zip(roughness, self._penalties, strict=True)
        )
        right = np.zeros((self._size, *values.shape[1:]))
        for rows, columns, part in self._blocks():
            right[columns] += part.T @ values[rows]
        return _solved(bands, right)

    def values(self, weights: Array) -> Array:
        """Return the splines with these weights at the samples."""
        found = np.zeros((self._embedding.shape[0], *weights.shape[1:]))
        for rows, columns, part in self._blocks():
            found[rows] = part @ weights[columns]
        return found

    def freedom(self, roughness: tuple[float, float]) -> float:
        """Return the trace of the smoother, estimated by random signs (Hutchinson, 1990)."""
        shape = (self._embedding.shape[0], PROBES)
        signs = np.random.default_rng(SEED).integers(0, 2, shape) * 2.0 - 1.0
        return float(np.sum(signs * self.values(self.weights(signs, roughness)))) / PROBES

    def smoothed(
        self, values: Array, roughness: tuple[float, float], most: float, lowered: int
    ) -> Array:
        """Return the weights of values under the largest penalty with small enough residuals.

        At most ``lowered`` penalties are tried, each a tenth of the one before, until the root mean
        square of the residuals is at most ``most`` (discrepancy principle; Morozov, 1966).
        """
        values = np.asarray(values, dtype=np.float64)
        for _ in range(lowered):
            weights = self.weights(values, roughness)
            removed = values - self.values(weights)
            if math.sqrt(float(np.mean(removed**2))) <= most:
                break
            roughness = (roughness[0] / 10, roughness[1] / 10)
        return weights

    def _blocks(self) -> Iterator[tuple[slice, slice, Array]]:
        for block in self._embedding.blocks:
            rows, columns = block.values.shape
            yield (
                slice(block.row, block.row + rows),
                slice(block.column, block.column + columns),
                block.values,
            )
