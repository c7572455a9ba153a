"""A field whose weights are a tensor train: small factors, one per axis, that stay factored.

The weights are W[i_1, ..., i_D, c] = G_1[i_1] G_2[i_2] ... G_D[i_D] g[c], with matrices G_a[i_a] of
shape (r_(a-1), r_a) (Oseledets, Tensor-train decomposition, SIAM J. Sci. Comput. 33, 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame
from kronfield._core.memory import check_memory
from kronfield._core.records import record
from kronfield.encoding import Encoding, Kronecker
from kronfield.field import storage
from kronfield.field.evaluation import BLOCK_NUMBERS, axis_matrix
from kronfield.field.field import Field
from kronfield.solvers.grid.banded import apply
from kronfield.solvers.points.rows import axis_run

# Arrays of float64 that are held while a matrix (p, q) is factored: of p q numbers, beside the
# matrix itself, and of min(p, q)^2 numbers, most of them for LAPACK; measured.
FACTORED, SQUARES = 4, 4


def check_factors(rows: int, columns: int, *, with_matrix: bool = False) -> None:
    """Raise an error if a matrix cannot be factored in memory, with its own numbers or without."""
    numbers = (FACTORED + with_matrix) * rows * columns + SQUARES * min(rows, columns) ** 2
    check_memory(
        "rank",
        f"a tensor train of {rows} x {columns} numbers",
        8.0 * numbers,
        "Fit parts of the grid, or without rank and rank_error.",
    )


@record(eq=False)
class TensorTrain:
    """Factors of an array (N_1, ..., N_D): cores (r_(a-1), N_a, r_a), r_0 = r_D = 1.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.add.outer(np.arange(30.0), np.arange(40.0))  # a sum of two products
    >>> train = TensorTrain.of(values, most=2)
    >>> train.ranks, round(train.error, 9), train.size
    ((2,), 0.0, 140)

    Attributes
    ----------
    cores : tuple of arrays
        The factors.
    error : float
        The root mean square of the difference to the array, computed from the singular values that
        were left out.
    """

    cores: tuple[Array, ...]
    error: float = 0.0

    @classmethod
    def of(cls, array: Array, most: int | None = None, error: float = 0.0) -> TensorTrain:
        """Factor an array by a truncated singular value decomposition per axis.

        Parameters
        ----------
        array : array of shape (N_1, ..., N_D)
            The numbers.
        most : int, optional
            The largest rank. By default ranks are as small as ``error`` allows.
        error : float
            The largest root mean square error; not used if ``most`` is given.
        """
        rest, rank, cores, lost = np.asarray(array, dtype=np.float64), 1, [], 0.0
        scale = float(np.abs(rest).max()) or 1.0  # so that squares neither under- nor overflow
        budget = array.size * (error / scale) ** 2
        shape = array.shape
        rest = rest / scale
        for axis, n in enumerate(shape[:-1]):
            matrix = rest.reshape(rank * n, -1)
            check_factors(*matrix.shape)
            # M' = Q R, and the singular vectors of M are those of the small R'
            if matrix.shape[1] > matrix.shape[0]:
                Q, R = np.linalg.qr(matrix.T)
                U, s, Vt = np.linalg.svd(R.T, full_matrices=False)
                Vt = Vt @ Q.T
            else:
                U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
            tails = np.append(np.cumsum((s**2)[::-1])[::-1], 0.0)  # tails[k]: the loss at rank k
            if most is None:
                # the remaining axes that can be truncated share the rest of the error budget
                left = sum(math.prod(shape[i + 1 :]) > 1 for i in range(axis, len(shape) - 1))
                allowed = (budget - lost) / max(left, 1)
                kept = int(np.flatnonzero(tails <= max(allowed, 0.0))[0])
            else:
                kept = most
            kept = min(max(kept, 1), len(s))
            lost += float(tails[kept])
            cores.append(U[:, :kept].reshape(rank, n, kept))
            rest, rank = s[:kept, None] * Vt[:kept], kept
        cores.append(rest.reshape(rank, shape[-1], 1) * scale)
        # the parts that are left out on different axes are orthogonal
        return cls(tuple(cores), scale * math.sqrt(lost / max(array.size, 1)))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks r_1, ..., r_(D-1)."""
        return tuple(core.shape[2] for core in self.cores[:-1])

    @property
    def size(self) -> int:
        """The number of entries of all cores."""
        return sum(core.size for core in self.cores)

    def toarray(self) -> Array:
        """Return the full array."""
        out = self.cores[0]
        for core in self.cores[1:]:
            out = np.tensordot(out, core, axes=1)
        return out.reshape([core.shape[1] for core in self.cores])

    def mapped(self, operators: Sequence[Any]) -> TensorTrain:
        """Return the train after mode products with a matrix for each of the first axes."""
        new = [apply(one, core, 1) for one, core in zip(operators, self.cores, strict=False)]
        return TensorTrain((*new, *self.cores[len(new) :]), self.error)

    def astype(self, dtype: Any) -> TensorTrain:
        """Return the train in another dtype."""
        return TensorTrain(tuple(core.astype(dtype, copy=False) for core in self.cores), self.error)


class LowRankField(Field):
    """A field whose weights are a tensor train over its axes and channels, made by `fit`.

    Values, derivatives and integrals are computed from the factors. ``weights`` multiplies them.
    """

    def __init__(
        self,
        encoding: Kronecker,
        train: TensorTrain,
        frames: Sequence[Frame],
        axes: Sequence[Array],
        **options: Any,
    ) -> None:
        self.train = train
        none = np.empty((0,), dtype=train.cores[0].dtype)
        super().__init__(encoding, none, frames, axes, **options)

    @property
    def planes(self) -> Array:
        """The weights as real planes (C, K_1, ..., K_D), multiplied out."""
        return np.ascontiguousarray(np.moveaxis(self.train.toarray(), -1, 0))

    @property
    def number_count(self) -> int:
        """The number of numbers from which the field computes its values."""
        return self.train.size

    def __repr__(self) -> str:
        ranks = " x ".join(map(str, self.train.ranks))
        return f"{super().__repr__()[:-1]}, tensor train of ranks {ranks})"

    @property
    def _plane_count(self) -> int:
        return int(self.train.cores[-1].shape[1])

    def _grid_blocks(
        self, units: list[Array], orders: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array]]:
        dtype = self.train.cores[0].dtype
        embedders = zip(self.encoding.embedders, units, orders, strict=True)
        values = self.train.mapped(
            [axis_matrix(emb, x, order, dtype) for emb, x, order in embedders]
        )
        after = math.prod(core.shape[1] for core in values.cores[1:])
        step = max(1, BLOCK_NUMBERS // max(after, 1))
        for start in range(0, len(units[0]), step):
            rows = slice(start, min(start + step, len(units[0])))
            part = TensorTrain((values.cores[0][:, rows], *values.cores[1:]))
            yield rows, np.moveaxis(part.toarray(), -1, 0)

    def _at_points(self, units: list[Array], orders: tuple[int, ...]) -> Array:
        P, last = len(units[0]), self.train.cores[-1][:, :, 0]  # (r, C)
        out = np.empty((last.shape[1], P), dtype=last.dtype)
        for emb, order in zip(self.encoding.embedders, orders, strict=True):
            if order > emb.smoothness:
                emb.derivative(np.zeros(1), order)  # raises an error with the reason
        largest = max(core.shape[0] * core.shape[2] for core in self.train.cores)
        step = max(1, BLOCK_NUMBERS // (4 * largest))
        for start in range(0, P, step):
            part = slice(start, start + step)
            state = np.ones((len(units[0][part]), 1))
            for emb, x, order, core in zip(
                self.encoding.embedders, units, orders, self.train.cores, strict=False
            ):
                run = axis_run(emb, x[part], order)
                total = np.zeros((len(state), core.shape[2]))
                for tap, value in enumerate(run.values):
                    # (P, r) times the matrix (r, r') of each point's feature
                    matrices = np.take(core, run.index(tap), axis=1)  # (r, P, r')
                    total += value[:, None] * np.einsum("pa,apb->pb", state, matrices)
                state = total
            out[:, part] = (state @ last).T
        return out

    def _contracted(self, rows: list[Array]) -> Array:
        state = np.ones((1,))
        for row, core in zip(rows, self.train.cores, strict=False):
            state = state @ np.einsum("k,akb->ab", row, core.astype(np.float64))
        return np.asarray(state @ self.train.cores[-1][:, :, 0])

    def _contents(self) -> tuple[str, Array, dict[str, Array], dict[str, Any]]:
        _, _, arrays, metadata = super()._contents()
        numbers = np.concatenate([core.ravel() for core in self.train.cores])
        about = {
            "kind": "low rank",
            "version": storage.LOW_RANK_VERSION,
            "weights_dtype": str(numbers.dtype),
            "ranks": list(self.train.ranks),
            "planes": self._plane_count,
            "error": self.train.error,
        }
        return "cores", numbers, arrays, {**metadata, **about}


def low_rank_from(
    path: Any,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> LowRankField:
    """Return the field that `LowRankField.save` wrote, from the contents of its file."""
    with storage.restoring(path):
        encoding = Encoding.from_dict(metadata["encoding"], functions)
        head = storage.Head.of(metadata)
        numbers = arrays["cores"].astype(head.weights_dtype)
        if not head.fits(int(metadata["planes"]), len(head.frames)):
            raise storage.misfit(path)
        ranks = [1, *map(int, metadata["ranks"]), 1]
        if (
            not isinstance(encoding, Kronecker)
            or encoding.dimensions != len(head.frames)
            or min(ranks) < 1
        ):
            raise ValueError("an encoding or ranks that do not belong to a field")
        sizes = [*encoding.shape, int(metadata["planes"])]
        shapes = list(zip(ranks[:-1], sizes, ranks[1:], strict=True))
        ends = np.cumsum([0, *map(math.prod, shapes)])
        if ends[-1] != numbers.size or not np.all(np.isfinite(numbers)):
            raise ValueError(f"{numbers.size} numbers for cores of {shapes}")
        cores = tuple(
            numbers[a:b].reshape(shape)
            for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
        )
        train = TensorTrain(cores, float(metadata["error"]))
        positions = head.positions(arrays)
        return LowRankField(encoding, train, head.frames, positions, **head.about)
