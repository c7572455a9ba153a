"""Fields that hold samples, and refine them when they are evaluated.

Where slopes are taken from the data, values come from splines on a lattice twice as fine, which has
up to 2^D weights per sample. A `RefinedField` holds the samples instead. Weights follow from them
in two steps, and both are local:

1. `Refinement` fills each node of the finer lattice from the samples near it.
2. The solver of each axis is a banded matrix, from the nodes to the weights.

Therefore the weights in any box of the lattice are computed from the samples in and around this
box, and are those of the whole lattice to rounding. Large lattices are evaluated slab by slab along
the first axis. Small lattices are refined in one piece, and the weights of the field that was
evaluated last are kept. Which of the two is done depends on the field and on the positions alone,
not on earlier calls, so the same call always gives the same values bit for bit.
"""

from __future__ import annotations

import functools
import math
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kronfield._core.arrays import LARGEST, Array, InputError, fit_overflow, problem
from kronfield._core.axes import EvenAxis, SampleAxes, pack_axis
from kronfield._core.copies import shared_copy
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield._core.threads import in_threads, with_one_blas_thread
from kronfield.encoding import Kronecker
from kronfield.field import Field, evaluation, storage
from kronfield.field.evaluation import BLOCK_NUMBERS, LONG_LINE
from kronfield.field.field import Refit
from kronfield.fitting.inputs import GridInput, GridLayout
from kronfield.fitting.report import FitReport, grid_residual
from kronfield.fitting.settings import DirectionalSettings
from kronfield.fitting.slopes import Refinement
from kronfield.fitting.splines import tension_encoding
from kronfield.solvers.grid.banded import Block, BlockBanded, apply
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.rows import axis_run

# The most weights that are kept from call to call, of one field at a time: 64 MB of float32.
# Lattices of up to BLOCK_NUMBERS weights are always refined in one piece. Between the two limits,
# grids that need more than half of the lattice are evaluated in slabs, in less memory.
KEPT_NUMBERS = 1 << 24
# Lines of several channels that have more weights together are evaluated in parts of about this
# many weights, which stay in the caches; nothing is kept.
LINES_NUMBERS = 1 << 15
# The length of a slab is at least this multiple of the nodes that are computed beyond its ends.
SHORTEST_SLAB = 2
# Weights are less than 2^GROWTH times the largest sample, per axis. Slopes multiply values by at
# most 2.5, the inverse of the splines by 3, and the straight continuation past the ends by 5.
GROWTH = 6
# The version of files that hold samples, and of the rule by which slopes are estimated. Increase
# RULE if the same samples and settings would give another field, and read the earlier rules too.
FILE_VERSION, RULE = 2, 1
# The value of `past_the_end` in files that were written before it was an entry.
FIRST_PAST_THE_END = 0.25
# The largest sum of the distances of a filter in a file; those in use have a sum of 6.
WIDEST_FILTER = 64

# The first feature and the one past the last, on each axis.
Box = tuple[tuple[int, int], ...]


class _Recent:
    """The weights of the one lattice that was refined last, while its samples exist.

    Threads need no lock: the entry is replaced as a whole, and a lost entry is computed again.
    """

    def __init__(self) -> None:
        self._entry: tuple[weakref.ref[RefinedSamples], Array] | None = None

    def weights(self, owner: RefinedSamples) -> Array:
        """Return all weights, kept or computed; they are read-only."""
        entry = self._entry
        if entry is not None and entry[0]() is owner:
            return entry[1]
        # free the weights of the other field before memory for these is needed
        self._entry = entry = None
        weights = owner.all_weights()
        weights.flags.writeable = False
        self._entry = weakref.ref(owner, self._forget), weights
        return weights

    def _forget(self, owner: weakref.ref[RefinedSamples]) -> None:
        entry = self._entry
        if entry is not None and entry[0] is owner:
            self._entry = None


_recent = _Recent()


class RefinedSamples:
    """Samples on a grid, and the weights of the finer lattice that follow from them.

    Parameters
    ----------
    layout : GridLayout
        The grid.
    planes : array of shape (C, N_1, ..., N_D)
        The samples in the order of increasing positions, in the dtype of the layout.
    finer : Refinement
        The finer lattice.
    encoding : Kronecker
        The splines on the finer lattice.
    """

    def __init__(
        self, layout: GridLayout, planes: Array, finer: Refinement, encoding: Kronecker
    ) -> None:
        self.layout, self.planes, self.encoding = layout, planes, encoding
        self._refined = finer.finer, finer.directional, finer.settings
        self.__dict__["finer"] = finer

    @classmethod
    def of(cls, grid: GridInput, finer: Refinement, solver: GridSolver) -> RefinedSamples:
        """Return a copy of the samples of a grid; raise an error if their weights overflow."""
        planes = np.ascontiguousarray(grid.planar(), dtype=grid.layout.dtype)
        if grid.shares(planes):
            planes = planes.copy()  # the field's own
        new = cls(grid.layout, planes, finer, solver.encoding)
        new.__dict__["solver"] = solver
        if not new.is_finite():
            raise fit_overflow()
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the parts that are computed from it."""
        return {name: self.__dict__[name] for name in ("layout", "planes", "encoding", "_refined")}

    @functools.cached_property
    def finer(self) -> Refinement:
        """The nodes of the finer lattice, and the map from samples to their values."""
        finer = Refinement.of(self.layout.axes, self.layout.frames, *self._refined)
        assert finer is not None  # it was there before these samples were pickled
        return finer

    @functools.cached_property
    def solver(self) -> GridSolver:
        """The map from nodes to weights."""
        finer = self.finer
        smooth = (2,) * len(finer.axes)
        return GridSolver(
            self.encoding, finer.frames, finer.axes, dtype=self.layout.dtype, smooth=smooth
        )

    @property
    def count(self) -> int:
        """The number of weights of the finer lattice."""
        return len(self.planes) * math.prod(self.encoding.shape)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        largest = max(abs(float(self.planes.max())), abs(float(self.planes.min())))
        limit = np.finfo(self.planes.dtype).maxexp
        if math.frexp(largest)[1] + GROWTH * len(self.encoding.shape) < limit:
            return True
        everything: Box = tuple((0, size) for size in self.encoding.shape)
        return all(bool(np.isfinite(weights).all()) for _, weights in self._slabs(everything))

    # Weights
    # ------------------------------------------------------------------------------------------

    @with_one_blas_thread
    def all_weights(self) -> Array:
        """Return all weights (C, K_1, ..., K_D), computed anew."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.solver.solve(self.finer(self.planes))

    @with_one_blas_thread
    def weights(self, box: Box) -> Array:
        """Return the weights (C, k_1, ..., k_D) of a box, from the samples in and around it."""
        finer, operators = self.finer, []
        samples, nodes = [slice(None)], [slice(None)]
        sides = zip(self.solver.inverses, box, self.layout.shape, finer.finer, strict=True)
        for inverse, (first, stop), n, more in sides:
            rows, (low, high) = _rows(inverse.operator, first, stop)
            operators.append(rows)
            if more:
                # node i lies at sample (i - 1)/2
                start = max((low - 1) // 2 - finer.reach, 0)
                samples.append(slice(start, min((high - 1) // 2 + 1 + finer.reach, n)))
                nodes.append(slice(low - 2 * start, high - 2 * start))
            else:
                samples.append(slice(low, high))
                nodes.append(slice(None))
        with np.errstate(over="ignore", invalid="ignore"):
            found = finer(self.planes[tuple(samples)])[tuple(nodes)]
            for axis, rows in enumerate(operators, start=1):
                found = apply(rows, found, axis)
        return found

    @functools.cached_property
    def _margins(self) -> tuple[int, ...]:
        """How many more nodes than features a box is computed from, on each axis."""
        sides = zip(self.solver.inverses, self.finer.finer, strict=True)
        return tuple(
            _most_columns(inverse.operator) + (4 * self.finer.reach + 2 if more else 0)
            for inverse, more in sides
        )

    def _numbers(self, box: Box) -> int:
        return len(self.planes) * math.prod(high - low for low, high in box)

    def _in_one_piece(self, box: Box) -> bool:
        """Return whether to refine the whole lattice for the weights in a box."""
        if self.count <= BLOCK_NUMBERS:
            return True
        # a small box is likely one of many, as for the frames of a video
        return self.count <= KEPT_NUMBERS and 2 * self._numbers(box) <= self.count

    def _slab_length(self, box: Box) -> int:
        """Return how many features of the first axis there are in a slab of a box."""
        row = self._numbers(((0, 1), *box[1:]))
        return max(BLOCK_NUMBERS // row, SHORTEST_SLAB * self._margins[0], 1)

    def _slabs(self, box: Box) -> Iterator[tuple[Box, Array]]:
        """Yield slabs of a box, and their weights."""
        if self._in_one_piece(box):
            inside = (slice(None), *(slice(*side) for side in box))
            yield box, _recent.weights(self)[inside]
            return
        (first, stop), step = box[0], self._slab_length(box)
        for low in range(first, stop, step):
            slab = ((low, min(low + step, stop)), *box[1:])
            yield slab, self.weights(slab)

    # Values
    # ------------------------------------------------------------------------------------------

    def grid_blocks(
        self, units: Sequence[Array], orders: Sequence[int]
    ) -> Iterator[tuple[slice, Array]]:
        """Yield the grid in blocks (rows, values), as `evaluation.grid_blocks`."""
        if self._are_lines and 0 < len(units[0]) <= LONG_LINE:
            yield slice(0, len(units[0])), self._on_lines(units, orders)
            return
        if self.count <= BLOCK_NUMBERS or not all(map(len, units)):
            yield from evaluation.grid_blocks(self.encoding, _recent.weights(self), units, orders)
            return
        dtype = self.solver.inverses[0].operator.dtype
        first, x = self.encoding.embedders[0], units[0]
        ends = np.array([x.min(), x.max()])  # of the first axis, to find the box
        axes = zip(self.encoding.embedders, [ends, *units[1:]], orders, strict=True)
        matrices = [evaluation.axis_matrix(emb, at, order, dtype) for emb, at, order in axes]
        box = tuple(map(_used_columns, matrices))
        if self._in_one_piece(box):
            yield from evaluation.grid_blocks(self.encoding, _recent.weights(self), units, orders)
            return
        others = [_columns(one, *side) for one, side in zip(matrices[1:], box[1:], strict=True)]
        rising = len(x) < 2 or bool(np.all(np.diff(x) >= 0))
        order = np.arange(len(x)) if rising else np.argsort(x, kind="stable")
        slab_of = axis_run(first, x[order], orders[0]).first // self._slab_length(box)
        for part in np.split(order, np.flatnonzero(np.diff(slab_of)) + 1):
            if len(units) == 1:
                blocks = self._line_blocks(x[part], orders)
            else:
                matrix = evaluation.axis_matrix(first, x[part], orders[0], dtype)
                side = _used_columns(matrix)
                narrow = [_columns(matrix, *side), *others]
                # passed without a local name, so that they are freed before the next slab
                blocks = evaluation.products(narrow, self.weights((side, *box[1:])))
            for rows, values in blocks:
                at = part[rows]
                if rising:
                    yield slice(int(at[0]), int(at[-1]) + 1), values
                else:  # the caller writes blocks to slices, so that rows come one at a time
                    for i, row in enumerate(at.tolist()):
                        yield slice(row, row + 1), values[:, i : i + 1]

    @property
    def _are_lines(self) -> bool:
        """Whether these are many lines, which are evaluated some channels at a time."""
        channels, numbers = len(self.planes), math.prod(self.encoding.shape)
        return len(self.encoding.shape) == 1 and channels * numbers > LINES_NUMBERS >= 2 * numbers

    @with_one_blas_thread
    def _on_lines(self, units: Sequence[Array], orders: Sequence[int]) -> Array:
        """Return the values (C, M) at positions on many lines."""
        inverse: Any = self.solver.inverses[0].operator
        (matrix,) = evaluation.axis_matrices(self.encoding, units, orders, inverse.dtype)
        from_nodes = _product(matrix, inverse)
        out = np.empty((len(self.planes), len(units[0])), dtype=inverse.dtype)
        finer, step = self.finer, LINES_NUMBERS // self.encoding.shape[0]

        def work(first: int) -> None:
            part = slice(first, first + step)
            with np.errstate(over="ignore", invalid="ignore"):
                out[part] = apply(from_nodes, finer(self.planes[part]), 1)

        in_threads(work, range(0, len(out), step))
        return out

    def are_at(self, units: Sequence[Array]) -> bool:
        """Return whether unit positions on the axes are those of the samples, in rising order."""
        places = zip(units, self.finer.frames, self.layout.axes, strict=True)
        return all(np.array_equal(x, frame.unit(axis)) for x, frame, axis in places)

    def _line_blocks(self, x: Array, orders: Sequence[int]) -> Iterator[tuple[slice, Array]]:
        """Yield the values at positions near to each other on a line, in blocks (rows, values)."""
        run = axis_run(self.encoding.embedders[0], x, orders[0])
        low, high = int(run.first.min()), int(run.first.max()) + run.taps
        weights = self.weights(((low, high),))
        step = max(1, BLOCK_NUMBERS // len(self.planes))
        for start in range(0, len(x), step):
            rows = slice(start, min(start + step, len(x)))
            yield (
                rows,
                evaluation.at_points(self.encoding, weights, [x[rows]], orders, [low]),
            )

    def at_points(self, units: Sequence[Array], orders: Sequence[int]) -> Array:
        """Return values (C, P) at points given as one array of unit positions per axis."""
        if self.count <= KEPT_NUMBERS or not len(units[0]):
            return evaluation.at_points(self.encoding, _recent.weights(self), units, orders)
        for emb, order in zip(self.encoding.embedders, orders, strict=True):
            if order > emb.smoothness:
                emb.derivative(np.zeros(1), order)  # raises an error with the reason
        out = np.empty(
            (len(self.planes), len(units[0])), dtype=self.solver.inverses[0].operator.dtype
        )
        for index, box in self._groups(units, orders):
            some, start = [x[index] for x in units], [low for low, _ in box]
            weights = self.weights(box)
            out[:, index] = evaluation.at_points(self.encoding, weights, some, orders, start)
        return out

    def _groups(self, units: Sequence[Array], orders: Sequence[int]) -> Iterator[tuple[Array, Box]]:
        """Yield groups of points and the box of weights within their reach.

        A group is divided if its box is too large, or if its parts are cheaper to compute.
        """
        axes = zip(self.encoding.embedders, units, orders, strict=True)
        runs = [axis_run(emb, x, order) for emb, x, order in axes]

        def box_of(index: Array) -> Box:
            firsts = [(run.first[index], run.taps) for run in runs]
            return tuple((int(first.min()), int(first.max()) + taps) for first, taps in firsts)

        def cost(box: Box) -> int:
            sides = zip(box, self._margins, strict=True)
            return len(self.planes) * math.prod(high - low + more for (low, high), more in sides)

        left = [np.arange(len(units[0]))]
        while left:
            index = left.pop()
            box = box_of(index)
            spans = [high - low - run.taps for (low, high), run in zip(box, runs, strict=True)]
            axis = spans.index(max(spans))
            if spans[axis]:
                below = runs[axis].first[index] <= box[axis][0] + spans[axis] // 2
                halves = [index[below], index[~below]]
                whole, parts = cost(box), sum(cost(box_of(half)) for half in halves)
                # in parts shorter than the margins, most numbers would be computed twice
                is_long = spans[axis] > self._margins[axis]
                if parts < whole or (whole > KEPT_NUMBERS and is_long):
                    left += halves
                    continue
            yield index, box

    def contracted(self, rows: Sequence[Array]) -> Array:
        """Return the sums (C,) of all weights times one row (K,) per axis, float64."""
        total = np.zeros(len(self.planes))
        used = [np.flatnonzero(row) for row in rows]
        if all(map(len, used)):
            for box, weights in self._slabs(tuple((int(i[0]), int(i[-1]) + 1) for i in used)):
                parts = [row[slice(*side)] for row, side in zip(rows, box, strict=True)]
                total += evaluation.contracted(weights, parts)
        return total


# Parts of matrices
# ------------------------------------------------------------------------------------------


def _product(matrix: BlockBanded | Array, operator: Any) -> BlockBanded:
    """Return the map from nodes to values: the matrix of positions times that from nodes."""
    own = matrix.blocks if isinstance(matrix, BlockBanded) else (Block(0, 0, matrix),)
    blocks = []
    for block in own:
        rows, (low, _) = _rows(operator, block.column, block.column + block.values.shape[1])
        dense = rows.toarray() if isinstance(rows, BlockBanded) else rows
        blocks.append(Block(block.row, low, (block.values @ dense).astype(operator.dtype)))
    return BlockBanded((matrix.shape[0], operator.shape[1]), tuple(blocks))


def _rows(operator: Any, first: int, stop: int) -> tuple[BlockBanded | Array, tuple[int, int]]:
    """Return rows of the inverse of an axis in the columns that they use, and these columns."""
    assert isinstance(operator, BlockBanded | np.ndarray)  # as for all splines in tension
    rows = operator.rows(first, stop) if isinstance(operator, BlockBanded) else operator[first:stop]
    used = _used_columns(rows)
    return _columns(rows, *used), used


def _used_columns(matrix: BlockBanded | Array) -> tuple[int, int]:
    """Return the first column that is not zero, and the one past the last."""
    if isinstance(matrix, BlockBanded):
        return matrix.used_columns
    used = np.flatnonzero(matrix.any(axis=0))
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)


def _columns(matrix: BlockBanded | Array, first: int, stop: int) -> BlockBanded | Array:
    """Return columns of a matrix that contain all used columns."""
    return matrix.columns(first, stop) if isinstance(matrix, BlockBanded) else matrix[:, first:stop]


def _most_columns(operator: Any) -> int:
    """Return how many more columns than rows a part of the inverse of an axis uses."""
    if not isinstance(operator, BlockBanded):
        return int(operator.shape[1])
    return max(max(block.values.shape[1] - len(block.values), 0) for block in operator.blocks)


# The field
# ------------------------------------------------------------------------------------------


@record(eq=False)
class RefinedResidual:
    """The root mean square of value minus fit at the samples, computed when called."""

    samples: RefinedSamples

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return the residual in the units of the values."""
        samples = self.samples
        pairs = zip(samples.finer.frames, samples.layout.axes, strict=True)
        units = [frame.unit(axis) for frame, axis in pairs]
        return grid_residual(samples.planes, samples.grid_blocks(units, [0] * len(units)))


class RefinedField(Field):
    """A field that holds its samples, and refines them when it is evaluated.

    It is a field like any other: ``weights`` and ``encoding`` are those of the finer lattice. The
    weights are computed when they are read.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> blocks = np.kron(np.eye(4), np.ones((8, 8)))
    >>> field = kf.fit(blocks)
    >>> field.number_count, field.weights.shape
    (1024, (69, 69))
    """

    def __init__(
        self,
        samples: RefinedSamples,
        *,
        axes: Sequence[Array] | None = None,
        report: FitReport | None = None,
        again: Refit | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        layout = samples.layout
        nothing = np.zeros((len(samples.planes), *[0] * len(layout.shape)), dtype=layout.dtype)
        super().__init__(
            samples.encoding,
            nothing,
            samples.finer.frames,
            layout.given_axes if axes is None else axes,
            channels=layout.channels,
            is_complex=layout.is_complex,
            dtype=layout.dtype,
            report=report,
            again=again,
            info=info,
        )
        self._samples = samples

    @property
    def slopes(self) -> str:
        """How values between samples are interpolated: "along axes" or "along edges"."""
        return "along edges" if self._samples.finer.is_along_edges else "along axes"

    @property
    def planes(self) -> Array:
        """The weights of the finer lattice as real planes (C, K_1, ..., K_D), computed anew."""
        samples = self._samples
        if samples.count <= KEPT_NUMBERS:
            return _recent.weights(samples).copy()
        return samples.all_weights()

    @property
    def number_count(self) -> int:
        """The number of values from which the field is evaluated: that of its samples."""
        return self._samples.planes.size

    def __repr__(self) -> str:
        box = f"{self._values_text()}on {self._box_text()}"
        return f"RefinedField({box}, slopes {self.slopes}, {self.encoding!r}, {self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Field:
        # nothing changes the samples, so copies share them
        return shared_copy(self, memo, shared=("_again", "_uncertainty", "_samples"))

    def _grid_blocks(
        self, units: list[Array], orders: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array]]:
        if not any(orders) and self._samples.are_at(units):
            # the splines pass through the samples, which need not be refined for this
            return iter([(slice(None), self._samples.planes)])
        return self._samples.grid_blocks(units, orders)

    def _at_points(self, units: list[Array], orders: tuple[int, ...]) -> Array:
        return self._samples.at_points(units, orders)

    def _contracted(self, rows: list[Array]) -> Array:
        return self._samples.contracted(rows)

    def _contents(self) -> tuple[str, Array, dict[str, Array], dict[str, Any]]:
        samples, layout = self._samples, self._samples.layout
        arrays: dict[str, Array] = {}
        ends: list[list[float] | None] = []
        for i, axis in enumerate(layout.given_axes):
            packed = pack_axis(axis)
            if isinstance(packed, EvenAxis):
                ends.append([packed.first, packed.last])
                arrays[f"axis{i}"] = np.frombuffer(packed.rounding, dtype=np.uint8)
            else:
                ends.append(None)
                arrays[f"axis{i}"] = axis
        if self._axes is not layout.given_axes:  # set by `with_axes`
            arrays |= {f"grid{i}": axis for i, axis in enumerate(self._axes)}
        finer = samples.finer
        metadata = {
            "version": FILE_VERSION,
            "kind": "refined",
            "rule": RULE,
            "frames": [[f.origin, f.length, f.low, f.high] for f in layout.frames],
            "ends": ends,
            "finer": list(finer.finer),
            "directional": _of_directions(finer.settings) if finer.directional else None,
            "along_edges": finer.directional,
            "past_the_end": finer.settings.past_the_end,
            "tension": self.encoding.embedders[0].to_dict()["tension"],
            "channels": self.has_channels,
            "complex": self.is_complex,
            "values_dtype": str(layout.dtype),
            "info": self.info,
        }
        return "samples", samples.planes, arrays, metadata


def _of_directions(settings: DirectionalSettings) -> dict[str, Any]:
    """Return the constants of the directional fill alone."""
    entries = asdict(settings)
    del entries["past_the_end"]
    return entries


# Loading
# ------------------------------------------------------------------------------------------


def refined_from(
    path: Any, arrays: Mapping[str, Array], metadata: Mapping[str, Any]
) -> RefinedField:
    """Return the field that `RefinedField.save` wrote, from the contents of its file."""
    return _File(path, arrays, metadata).field()


class _File:
    """The contents of the file of a `RefinedField`. Nothing in it is used unchecked."""

    def __init__(self, path: Any, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
        self.path, self.arrays, self.metadata = path, arrays, metadata

    def refused(self, got: str) -> InputError:
        """Return the error for a file with unexpected contents."""
        return problem("path", f"{self.path}, {got}", "a saved field", storage.DAMAGED)

    def entry(self, name: str) -> Any:
        if name not in self.metadata:
            raise self.refused(f"without {name!r}")
        return self.metadata[name]

    def array(self, name: str, kinds: str, dimensions: int) -> Array:
        """Return an array of the file, of a kind of numbers and with a number of axes."""
        found = self.arrays.get(name)
        if found is None or found.dtype.kind not in kinds or found.ndim != dimensions:
            raise self.refused(f"without an array {name!r} of numbers with {dimensions} axes")
        return found

    def flag(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.refused(f"whose {name!r} is neither true nor false")
        return value

    def number(self, name: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found = float(value)
            except OverflowError:  # a whole number in JSON may be of any size
                found = math.inf
            if math.isfinite(found):
                return found
        raise self.refused(f"whose {name!r} has an entry that is not a number")

    def whole(self, name: str, value: Any, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refused(f"whose {name!r} is not a whole number from {low} to {high}")
        return value

    def listed(self, name: str, length: int | None = None) -> list[Any]:
        value = self.entry(name)
        if not isinstance(value, list) or (length is not None and len(value) != length):
            count = "" if length is None else f" of {length}"
            raise self.refused(f"whose {name!r} is not a list{count}")
        return value

    def field(self) -> RefinedField:
        """Return the field."""
        rule = self.entry("rule")
        if rule != RULE:
            got = f"{self.path}, refined by rule {rule!r}"
            remedy = "It was saved by another kronfield: use that version."
            raise problem("path", got, f"rule {RULE}", remedy)
        finer = tuple(self.flag("finer", more) for more in self.listed("finer"))
        frames = self.frames(len(finer))
        planes = self.samples(len(finer))
        axes = SampleAxes(self.axis(i, n) for i, n in enumerate(planes.shape[1:]))
        layout = GridLayout(
            axes,
            tuple(bool(x[0] > x[-1]) for x in axes),
            frames,
            self.flag("channels", self.entry("channels")),
            self.flag("complex", self.entry("complex")),
            planes.dtype,
        )
        expected = 1 + layout.is_complex
        if len(planes) % expected or not (layout.channels or len(planes) == expected):
            raise self.refused(f"with {len(planes)} planes of samples")
        lattice = self.lattice(layout, finer)
        tension = self.number("tension", self.entry("tension"))
        encoding = tension_encoding(lattice.axes, lattice.frames, tension)
        samples = RefinedSamples(layout, planes, lattice, encoding)
        if samples.count > LARGEST:
            raise self.refused(f"of {samples.count:.3g} weights")
        if not samples.is_finite():
            raise self.refused("whose samples are so large that values overflow")
        info = self.metadata.get("info") or {}
        if not isinstance(info, dict):
            raise self.refused("whose 'info' is not a dictionary")
        return RefinedField(samples, axes=self.grid(len(finer)), info=info)

    def frames(self, D: int) -> tuple[Frame, ...]:
        """Return the frame of each axis."""
        found = []
        for frame in self.listed("frames", D):
            if not isinstance(frame, list) or len(frame) != 4:
                raise self.refused("whose 'frames' are not four numbers each")
            origin, length, low, high = (self.number("frames", one) for one in frame)
            if not length > 0 or not low < high:
                raise self.refused("whose 'frames' are empty")
            found.append(Frame(origin, length, low, high))
        return tuple(found)

    def samples(self, D: int) -> Array:
        """Return the samples (C, N_1, ..., N_D) in the dtype of the values."""
        name = self.entry("values_dtype")
        if name not in ("float32", "float64"):
            raise self.refused("whose 'values_dtype' is neither float32 nor float64")
        found = self.array("samples", "f", D + 1)
        with np.errstate(over="ignore"):
            planes = np.ascontiguousarray(found, dtype=name)
        if not D or not planes.size or not np.isfinite(planes).all():
            raise self.refused("whose samples are missing or not finite")
        return planes

    def axis(self, i: int, n: int) -> Array:
        """Return the positions of the samples on an axis, which rise or fall."""
        ends = self.listed("ends")
        if i >= len(ends):
            raise self.refused("whose 'ends' are fewer than its axes")
        name = f"axis{i}"
        if ends[i] is None:
            x = self.array(name, "f", 1).astype(np.float64)
        else:
            if not isinstance(ends[i], list) or len(ends[i]) != 2:
                raise self.refused("whose 'ends' are not two numbers each")
            first, last = (self.number("ends", end) for end in ends[i])
            x = self.even_axis(EvenAxis(first, last, n, self.array(name, "u", 1).tobytes()))
        steps = np.diff(x)
        in_order = np.all(steps > 0) or np.all(steps < 0)
        if x.shape != (n,) or not np.isfinite(x).all() or not in_order:
            raise self.refused(f"whose axis {i} is not {n} positions that rise or fall")
        return x

    def even_axis(self, packed: EvenAxis) -> Array:
        try:
            return packed.positions()
        except (ValueError, zlib.error) as error:
            raise self.refused("with an even axis that cannot be restored") from error

    def lattice(self, layout: GridLayout, finer: tuple[bool, ...]) -> Refinement:
        """Return the finer lattice."""
        sides = zip(layout.shape, finer, strict=True)
        if not any(finer) or any(more and n < 3 for n, more in sides):
            raise self.refused("in which no axis, or one that is too short, is finer")
        given = self.entry("directional")
        past = self.number("past_the_end", self.metadata.get("past_the_end", FIRST_PAST_THE_END))
        if not 0 <= past <= 1:
            raise self.refused("whose 'past_the_end' is out of range")
        settings = DirectionalSettings() if given is None else self.directional(given)
        share = 0.0 if given is None else self.share()
        settings = replace(settings, past_the_end=past)
        found = Refinement.of(layout.axes, layout.frames, finer, share, settings)
        if found is None:
            raise self.refused("whose axes are uneven or whose domain is too large")
        return found

    def share(self) -> float:
        """Return the weight of middles along the directions of least change."""
        share = self.number("along_edges", self.metadata.get("along_edges", 1.0))
        if not 0 < share <= 1:
            raise self.refused("whose 'along_edges' is out of range")
        return share

    def directional(self, given: Any) -> DirectionalSettings:
        """Return the constants of the directional fill."""
        names = list(_of_directions(DirectionalSettings()))
        if not isinstance(given, dict) or sorted(given) != sorted(names):
            raise self.refused(f"whose 'directional' does not have the entries {names}")
        slope, floor = (self.number(name, given[name]) for name in ("slope", "floor"))
        if not 0 <= slope <= 2 or not 0 < floor <= 1:
            raise self.refused("whose 'slope' or 'floor' is out of range")
        # `same` and the filters of cells have an even sum, `other` an odd one
        filters = {
            name: self.distances(name, given[name], odd=name == "other")
            for name in ("cells", "cells_of_volumes", "same", "other")
        }
        power = self.whole("power", given["power"], 1, 64)
        return DirectionalSettings(slope=slope, power=power, floor=floor, **filters)

    def distances(self, name: str, given: Any, *, odd: bool) -> tuple[int, ...]:
        if not isinstance(given, list) or not given:
            raise self.refused(f"whose {name!r} is not a list of distances")
        found = tuple(self.whole(name, one, 1, WIDEST_FILTER) for one in given)
        if sum(found) > WIDEST_FILTER or sum(found) % 2 != odd:
            raise self.refused(f"whose {name!r} has a sum of {sum(found)}")
        return found

    def grid(self, D: int) -> list[Array] | None:
        """Return the positions that `on_grid` evaluates by default, if other than the samples."""
        if "grid0" not in self.arrays:
            return None
        axes = [self.array(f"grid{i}", "f", 1).astype(np.float64) for i in range(D)]
        if not all(np.isfinite(x).all() for x in axes):
            raise self.refused("whose positions are not finite")
        return axes
