"""Encodings of D-dimensional points: Concatenated (the paper's "simple"), Kronecker ("complex")."""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kronfield._core.arrays import (
    AnyArray,
    Array,
    describe,
    float_array,
    is_array,
    namespace,
    only_keys,
    point_array,
    problem,
    vector,
    whole,
)
from kronfield._core.coordinates import diagonals
from kronfield._core.spectra import stable_rank
from kronfield.embedders import Embedder
from kronfield.encoding.modes import multilinear

# The largest dense Kronecker encoding, in numbers: 1 GiB of float64. Larger problems need grids and
# mode products.
DENSE_LIMIT = 1 << 27


def _check_embedders(embedders: tuple[Any, ...]) -> None:
    if not embedders or not all(isinstance(emb, Embedder) for emb in embedders):
        raise problem(
            "embedders",
            describe(embedders),
            "one or more embedders",
            "Pass them as separate arguments: Kronecker(e1, e2).",
            TypeError,
        )


def _numbers(name: str, value: Any) -> Array:
    """Return nested lists of numbers as a float64 array."""
    remedy = "Pass nested lists of numbers, or an array."
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise problem(name, describe(value), "numbers in rows of equal length", remedy) from error
    if array.dtype.kind not in "fiu":
        raise problem(name, describe(array), "numbers", remedy, TypeError)
    return np.asarray(float_array(name, array.astype(np.float64)))


class Encoding(ABC):
    """A map from points (P, D) to features (P, size), composed of embedders."""

    embedders: tuple[Embedder, ...]

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """The number D of coordinates of a point."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of features of a point."""

    @abstractmethod
    def __call__(self, points: Any) -> AnyArray:
        """Return the features of ``points`` (P, D) as a dense array (P, size)."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain data that JSON can represent."""

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Encoding:
        """Return the encoding that `to_dict` described; see `Embedder.from_dict`."""
        kinds = tuple(one.__name__ for one in (Concatenated, Kronecker) if issubclass(one, cls))
        kind = data.get("kind") if isinstance(data, Mapping) else None
        if not isinstance(kind, str) or kind not in kinds:
            raise problem(
                "kind", describe(kind), f"one of {kinds}", "Pass the result of to_dict() unchanged."
            )
        keys = ["kind", "embedders"] + (["directions", "offsets"] if kind == "Concatenated" else [])
        only_keys(kind, data, keys)
        if not isinstance(data["embedders"], list | tuple):
            raise problem(
                "embedders",
                describe(data["embedders"]),
                "a list",
                "Pass the result of to_dict() unchanged.",
            )
        embedders = [Embedder.from_dict(one, functions) for one in data["embedders"]]
        if kind == "Kronecker":
            return Kronecker(*embedders)
        return Concatenated(*embedders, directions=data["directions"], offsets=data["offsets"])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.embedders))


class Concatenated(Encoding):
    """The concatenated features of each axis or direction: the paper's "simple" encoding.

    A linear model on it is a sum of functions of one variable each. With the axes of a 2-D grid,
    the values have rank 2 at most, for any number of features.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Gaussian, RandomFourier
    >>> simple = Concatenated(Gaussian(8, 0.1), Gaussian(16, 0.1))
    >>> simple(np.array([[0.2, 0.7]])).shape
    (1, 24)
    >>> diagonal = Concatenated.with_diagonals(Gaussian(128, 0.006), dimensions=2)
    >>> diagonal.size  # x, y, (x+y)/2, (x-y+1)/2
    512
    >>> Concatenated(RandomFourier(512, 14.0, seed=0, dimensions=2)).dimensions  # 2-D frequencies
    2

    Parameters
    ----------
    *embedders : Embedder
        One per direction; without ``directions``, they use the coordinates in order.
    directions : sequence of sequences of float, optional
        One row of D weights per embedder, which receives the weighted sum of the coordinates.
    offsets : sequence of float, optional
        A constant that is added to each weighted sum; 0 by default.
    """

    def __init__(
        self,
        *embedders: Embedder,
        directions: Sequence[Sequence[float]] | None = None,
        offsets: Sequence[float] | None = None,
    ) -> None:
        _check_embedders(embedders)
        self.embedders = embedders
        if directions is None:
            if offsets is not None:
                raise problem(
                    "offsets", describe(offsets), "None without directions", "Pass directions too."
                )
            self.directions: tuple[tuple[float, ...], ...] | None = None
            self.offsets: tuple[float, ...] | None = None
            return
        rows = _numbers("directions", directions)
        shifts = np.zeros(len(embedders)) if offsets is None else _numbers("offsets", offsets)
        if rows.ndim != 2 or rows.shape[0] != len(embedders) or rows.shape[1] < 1:
            raise problem(
                "directions",
                describe(rows),
                f"shape ({len(embedders)}, D)",
                "One row per embedder.",
            )
        if shifts.shape != (len(embedders),):
            raise problem(
                "offsets",
                describe(shifts),
                f"shape ({len(embedders)},)",
                "One offset per embedder.",
            )
        if any(emb.dimensions != 1 for emb in embedders):
            raise problem(
                "embedders",
                describe(embedders),
                "one axis each where directions are given",
                "Leave directions out.",
            )
        self.directions = tuple(tuple(float(v) for v in row) for row in rows)
        self.offsets = tuple(float(v) for v in shifts)

    @classmethod
    def with_diagonals(cls, embedder: Embedder, dimensions: int) -> Self:
        """Return the encoding with ``embedder`` along all axes and both diagonals of each pair."""
        directions, offsets = diagonals(dimensions)
        return cls(*[embedder] * len(offsets), directions=directions, offsets=offsets)

    @property
    def dimensions(self) -> int:
        """The number D of coordinates of a point."""
        if self.directions is not None:
            return len(self.directions[0])
        return sum(emb.dimensions for emb in self.embedders)

    @property
    def size(self) -> int:
        """The number of features of a point: the sum over the embedders."""
        return sum(emb.size for emb in self.embedders)

    def __call__(self, points: Any) -> AnyArray:
        """Return the features of ``points`` (P, D) as (P, size)."""
        X = point_array("points", points, self.dimensions)
        return namespace(X).concat(
            [emb(u) for emb, u in zip(self.embedders, self.seen(X), strict=True)], axis=1
        )

    def derivative(self, points: Any, axis: int) -> AnyArray:
        """Return the first derivative of the features along coordinate ``axis``, (P, size)."""
        X = point_array("points", points, self.dimensions)
        axis = whole("axis", axis, at_least=0)
        if axis >= self.dimensions:
            raise problem("axis", axis, f"below {self.dimensions}", "Axes count from 0.")
        directions = self.directions or np.eye(self.dimensions).tolist()
        if any(emb.dimensions != 1 for emb in self.embedders):
            raise problem(
                "derivative",
                "an embedder of several dimensions",
                "one axis each",
                "Use autograd instead.",
            )
        # chain rule: d/dx_a psi(w . x + o) = w_a psi'(w . x + o)
        parts = [
            emb.derivative(u) * float(row[axis])
            for emb, u, row in zip(self.embedders, self.seen(X), directions, strict=True)
        ]
        return namespace(X).concat(parts, axis=1)

    def seen(self, X: AnyArray) -> list[AnyArray]:
        """Return the input of each embedder at the points X: a vector, or several columns."""
        if self.directions is None:
            starts = itertools.accumulate((emb.dimensions for emb in self.embedders), initial=0)
            return [
                X[:, a] if emb.dimensions == 1 else X[:, a : a + emb.dimensions]
                for a, emb in zip(starts, self.embedders, strict=False)
            ]
        assert self.offsets is not None
        return [
            functools.reduce(
                lambda total, pair: total + pair[1] * X[:, pair[0]], enumerate(row), 0.0 * X[:, 0]
            )
            + offset
            for row, offset in zip(self.directions, self.offsets, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain data that JSON can represent."""
        return {
            "kind": "Concatenated",
            "embedders": [emb.to_dict() for emb in self.embedders],
            "directions": None
            if self.directions is None
            else [list(row) for row in self.directions],
            "offsets": None if self.offsets is None else list(self.offsets),
        }

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.embedders))
        return f"Concatenated({inside}{'' if self.directions is None else ', directions=...'})"


class Kronecker(Encoding):
    """The Kronecker product of one embedding per axis: the paper's "complex" encoding.

    Its rank is the product of the ranks of its axes. Weights are a tensor (K_1, ..., K_D[, C]). On
    grids, all computations are mode products; the matrix of prod(N) x prod(K) numbers is never
    formed.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Gaussian, Triangle
    >>> encoding = Kronecker(Gaussian(8, 0.1), Triangle(16, 0.2))
    >>> encoding(np.array([[0.2, 0.7]])).shape
    (1, 128)
    >>> axes = [np.arange(20) / 20, np.arange(30) / 30]
    >>> encoding.on_grid(np.ones((8, 16, 3)), axes).shape
    (20, 30, 3)

    Parameters
    ----------
    *embedders : Embedder
        One per axis; kinds and sizes may differ.
    """

    def __init__(self, *embedders: Embedder) -> None:
        _check_embedders(embedders)
        if any(emb.dimensions != 1 for emb in embedders):
            raise problem(
                "embedders", describe(embedders), "embedders of one axis each", "Pass one per axis."
            )
        self.embedders = embedders

    @property
    def dimensions(self) -> int:
        """The number D of coordinates of a point."""
        return len(self.embedders)

    @property
    def shape(self) -> tuple[int, ...]:
        """The features per axis (K_1, ..., K_D): the shape of the weights of one channel."""
        return tuple(emb.size for emb in self.embedders)

    @property
    def size(self) -> int:
        """The number of features of a point: the product over the axes."""
        return math.prod(self.shape)

    def __call__(self, points: Any) -> AnyArray:
        """Return the dense features of a few points (P, D), (P, K_1 ... K_D) in weight order.

        For reference and small problems only: more than 2^27 numbers (1 GiB) raise an error.
        """
        X = point_array("points", points, self.dimensions)
        if X.shape[0] * self.size > DENSE_LIMIT:
            raise problem(
                "points",
                f"{X.shape[0]} points of {self.size} features",
                f"at most {DENSE_LIMIT} numbers in all",
                "Encode fewer at a time, or use on_grid, which never forms this matrix.",
            )
        xp = namespace(X)
        dense = self.embedders[0](X[:, 0])  # (P, K_1)
        for axis, emb in enumerate(self.embedders[1:], start=1):
            # one row of A (x) B is the outer product of a row of A and a row of B
            dense = xp.reshape(
                dense[:, :, None] * emb(X[:, axis])[:, None, :],
                (X.shape[0], dense.shape[1] * emb.size),
            )
        return dense

    def matrices(
        self, axes: Sequence[Any], derivative: Sequence[int] | None = None
    ) -> list[AnyArray]:
        """Return the matrix (N_i, K_i) of each axis, differentiated ``derivative[i]`` times."""
        orders = [0] * self.dimensions if derivative is None else list(derivative)
        for name, given in (("axes", axes), ("derivative", orders)):
            if len(given) != self.dimensions:
                raise problem(
                    name,
                    f"{len(given)} entries",
                    f"{self.dimensions}",
                    "Pass one per axis of the encoding.",
                )
        positions = [vector(f"axes[{i}]", axis) for i, axis in enumerate(axes)]
        return [
            emb.derivative(x, order)
            for emb, x, order in zip(self.embedders, positions, orders, strict=True)
        ]

    def on_grid(
        self, weights: Any, axes: Sequence[Any], derivative: Sequence[int] | None = None
    ) -> AnyArray:
        """Return the values W x_1 Psi(x_1) x_2 Psi(x_2) ... of the linear model on a grid.

        Parameters
        ----------
        weights : array of shape (K_1, ..., K_D) or (K_1, ..., K_D, C)
            The weights W.
        axes : sequence of arrays of shape (N_i,)
            Positions on each axis, of the same library and dtype as the weights.
        derivative : sequence of int, optional
            The order of the derivative along each axis.

        Returns
        -------
        array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        """
        matrices = self._matrices_like("weights", weights, axes, derivative)
        self._check_tensor("weights", weights, self.shape)
        return multilinear(weights, matrices)

    def adjoint(
        self, values: Any, axes: Sequence[Any], derivative: Sequence[int] | None = None
    ) -> AnyArray:
        """Return the transpose of `on_grid` applied to ``values`` (N_1, ..., N_D[, C]).

        The result has the shape of the weights.
        """
        matrices = self._matrices_like("values", values, axes, derivative)
        self._check_tensor("values", values, tuple(matrix.shape[0] for matrix in matrices))
        return multilinear(values, [matrix.T for matrix in matrices])

    def stable_rank(self, axes: Sequence[Any]) -> float:
        """Return the stable rank of the encoding of a grid, as the product over its axes.

        Parameters
        ----------
        axes : sequence
            For each axis its positions, on which the rank is measured, or a number of evenly spaced
            samples, for which it follows from theory.
        """
        if len(axes) != self.dimensions:
            raise problem(
                "axes",
                f"{len(axes)} entries",
                f"{self.dimensions}",
                "Pass one per axis of the encoding.",
            )
        ranks = (
            emb.stable_rank(int(axis))
            if isinstance(axis, int | np.integer)
            else stable_rank(emb(axis))
            for emb, axis in zip(self.embedders, axes, strict=True)
        )
        return math.prod(ranks, start=1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain data that JSON can represent."""
        return {"kind": "Kronecker", "embedders": [emb.to_dict() for emb in self.embedders]}

    def _matrices_like(
        self, name: str, tensor: Any, axes: Sequence[Any], derivative: Sequence[int] | None
    ) -> list[AnyArray]:
        """Return the matrices of the axes in the dtype of ``tensor``; the libraries must agree."""
        matrices = self.matrices(axes, derivative)
        remedy = "Convert it to the library of the axes, and to floats."
        if not is_array(tensor):
            raise problem(name, describe(tensor), "an array", remedy, TypeError)
        try:
            xp = namespace(tensor, *matrices)
        except TypeError as error:
            raise problem(
                name, describe(tensor), "an array of the library of the axes", remedy, TypeError
            ) from error
        if xp.isdtype(tensor.dtype, "complex floating"):
            return matrices
        if not xp.isdtype(tensor.dtype, "real floating"):
            raise problem(name, describe(tensor), "floats", remedy, TypeError)
        return [xp.astype(matrix, tensor.dtype, copy=False) for matrix in matrices]

    def _check_tensor(self, name: str, tensor: Any, shape: tuple[int, ...]) -> None:
        got = tuple(getattr(tensor, "shape", ()))
        if got[: len(shape)] != shape or len(got) > len(shape) + 1:
            raise problem(
                name,
                describe(tensor),
                f"shape {shape}, or that and a last axis of channels",
                "The first axes follow the encoding.",
            )

    def __repr__(self) -> str:
        return f"Kronecker({', '.join(map(repr, self.embedders))})"
