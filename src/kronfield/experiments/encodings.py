"""The encodings of the paper's tables, built as in its experiments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import AnyArray, Array, Namespace
from kronfield._core.records import record
from kronfield.embedders import (
    Embedder,
    Gaussian,
    LinearFourier,
    LogFourier,
    RandomFourier,
    Triangle,
)
from kronfield.encoding import Concatenated, Encoding, Kronecker
from kronfield.experiments.spec import Method

# Number of positions on each axis among which the largest norm of an encoding is taken.
PROBES = 33


def embedder(
    encoder: str, features: int, setting: float, seed: int = 0, dimensions: int = 1
) -> Embedder:
    """Return an embedder by the paper's short name.

    ``setting`` is in the paper's terms: for Tri it is half the width.
    """
    if encoder == "Gau":
        return Gaussian(features, setting)
    if encoder == "Tri":
        return Triangle(features, 2 * setting)
    if encoder == "RFF":
        return RandomFourier(features, setting, seed, dimensions)
    return (LinearFourier if encoder == "LinF" else LogFourier)(features, setting)


def simple_encoding(method: Method, dimensions: int, seed: int) -> Concatenated:
    """Return a simple encoding.

    For images, Gau and Tri have features along two diagonals in addition to the axes. RFF has
    random directions instead of axes.
    """
    if method.encoder == "RFF":
        return Concatenated(embedder("RFF", method.features, method.setting, seed, dimensions))
    if dimensions == 2 and method.encoder in ("Gau", "Tri"):
        return Concatenated.with_diagonals(
            embedder(method.encoder, method.features // 4, method.setting), 2
        )
    each = embedder(method.encoder, method.features // dimensions, method.setting)
    return Concatenated(*[each] * dimensions)


def complex_encoding(method: Method, dimensions: int, seed: int) -> Kronecker:
    """Return a complex encoding: the same embedder on every axis."""
    return Kronecker(
        *[embedder(method.encoder, method.features, method.setting, seed)] * dimensions
    )


def normalised(encoding: Encoding) -> Any:
    """Return an encoding with features divided by their largest norm, as in the paper.

    Descent depends on it: Fourier features have norm sqrt(K/2), for which the paper's learning
    rates would be far too large.
    """
    if isinstance(encoding, Kronecker):
        return Kronecker(
            *[_Scaled(emb, _largest_norm(Concatenated(emb))) for emb in encoding.embedders]
        )
    assert isinstance(encoding, Concatenated)
    norm = _largest_norm(encoding)
    parts = [_Scaled(emb, norm) for emb in encoding.embedders]
    return Concatenated(*parts, directions=encoding.directions, offsets=encoding.offsets)


def without_norms(encoding: Kronecker) -> Kronecker:
    """Return an encoding without the constants of `normalised`; blending does not depend on them.

    Without them, local features are recognised as local, which is faster.
    """
    return Kronecker(*[emb.base if isinstance(emb, _Scaled) else emb for emb in encoding.embedders])


def norm_ratio(encoding: Concatenated, some: Array, others: Array) -> float:
    """Return the largest norm of the features at some points over that at others."""
    return _norm_at(encoding, some) / _norm_at(encoding, others)


def _largest_norm(encoding: Concatenated) -> float:
    axis = np.linspace(0.0, 1.0, PROBES)
    points = np.stack(np.meshgrid(*[axis] * encoding.dimensions, indexing="ij"), axis=-1)
    return _norm_at(encoding, points.reshape(-1, encoding.dimensions))


def _norm_at(encoding: Concatenated, points: Array) -> float:
    """Return the largest norm of the features at points."""
    squares = np.concatenate(
        [
            np.square(encoding(part)).sum(axis=1)
            for part in np.array_split(points, 1 + len(points) // 4096)
        ]
    )
    return math.sqrt(float(squares.max()))


@record
class _Scaled(Embedder):
    """An embedder whose features are divided by a constant."""

    base: Embedder
    norm: float

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.base.size

    @property
    def dimensions(self) -> int:  # type: ignore[override]
        return self.base.dimensions

    @property
    def similarity_is_inner_product(self) -> bool:  # type: ignore[override]
        return self.base.similarity_is_inner_product

    def to_dict(self) -> dict[str, Any]:
        """Return the description that enters the fingerprint of a run."""
        return {"kind": "_Scaled", "base": self.base.to_dict(), "norm": self.norm}

    def __call__(self, x: Any) -> AnyArray:
        return self.base(x) / self.norm

    def features(self, xp: Namespace, x: AnyArray, order: int) -> AnyArray:
        return self.base.features(xp, x, order) / self.norm

    def _similarity(self, xp: Namespace, dx: AnyArray) -> AnyArray:
        return self.base.similarity(dx) / self.norm**2

    def _integral(self, low: float, high: float) -> Array:
        return self.base.integral(low, high) / self.norm
