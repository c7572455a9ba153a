"""Normal equations of points on a grid of features, and their solution for any penalty."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.embedders import LocalEmbedder, Wrapped
from kronfield.encoding import Kronecker
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.cg import ConvergenceError, Progress, inverse_energy
from kronfield.solvers.points.coarse import has_gaps, row_sums
from kronfield.solvers.points.direct import data_band
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.separable import AxisVectors, CompleteGrid, disproportion, marginals
from kronfield.solvers.points.strategies import (
    AT_ONCE,
    Attempt,
    Iterations,
    Selection,
    SingularError,
    Solution,
    Strategy,
    select_fallback,
    select_strategy,
)
from kronfield.solvers.points.systems import (
    BasisSystem,
    DataTerm,
    LocalSystem,
    RowsTerm,
    feature_sum,
)

# Random probes for the trace of a hat matrix (Hutchinson, 1990): the standard error of a trace t is
# at most sqrt(t / 8), 4 % of 100 degrees of freedom.
PROBES = 16
# The relative tolerance and the most iterations for b'A^-1 b. The error is well below that of the
# random probes.
ENERGY_TOLERANCE, ENERGY_LIMIT = 1e-3, 1000
# The preconditioner is that of a complete grid with uneven axes if
#
# - data differ from one by at most NEARLY (`disproportion`): up to 5 it needs a hundredth to a
#   half of the iterations, above 9 often more;
# - the mean diagonal of the penalty is at most MODERATE times that of the data, for splines on
#   three or more axes, else TINY times: systems that others solve in a few dozen iterations are
#   not worth its eigenvectors;
# - B'WB is no stencil: if there are so many points, others need few iterations;
# - no axis has more than LONGEST features: products with dense matrices would take too long.
#
# Measured on uneven grids and random points of two and three axes, eigenvectors included.
NEARLY, MODERATE, TINY, LONGEST = 6.0, 10.0, 0.02, 150
# The features of a row on each axis, if features are hats.
HAT = 2

__all__ = ["NormalEquations", "Penalty", "Progress", "Solution"]


@record
class Penalty:
    """A ridge on the weights, and weights of the mean squared first and second derivatives.

    Derivatives are with respect to position in ``units``, one length per axis; by default in the
    units of the points.
    """

    ridge: float = 0.0
    roughness: tuple[float, float] = (0.0, 0.0)
    units: tuple[float, ...] | None = None

    def __str__(self) -> str:
        first, second = self.roughness
        return f"ridge {self.ridge:.3g}" if self.ridge else f"roughness ({first:.3g}, {second:.3g})"


@record(eq=False)
class NormalEquations:
    """B'WB, B'Wy and the sums over points that penalties and reports need.

    B has one row of features per point, W holds the weights of the points, y the values.

    Attributes
    ----------
    encoding, frames
        The features, and the frame of each axis.
    term : DataTerm
        B'WB, on the weights of the encoding, or on the nodes of a virtual grid.
    rhs : (C, K_1, ..., K_D) or (C, nodes of the virtual grid)
        B'Wy.
    energy : (C,) array
        The sum of w y^2.
    total, count : float, int
        The sum of the weights of the points, and their number.
    grams : list of arrays
        For each axis, the sum over points of w times the products of a feature with its neighbours.
    nodes : list of arrays, or None
        The positions of the nodes of the virtual grid; None if rows are exact.
    """

    encoding: Kronecker
    frames: tuple[Frame, ...]
    term: DataTerm
    rhs: Array
    energy: Array
    total: float
    count: int
    grams: list[Array]
    nodes: list[Array] | None = None

    @property
    def spacings(self) -> list[float]:
        """The distance between neighbouring features on each axis, in the units of the points."""
        local = [emb for emb in self.encoding.embedders if isinstance(emb, LocalEmbedder | Wrapped)]
        return [emb.spacing * frame.length for emb, frame in zip(local, self.frames, strict=True)]

    @functools.cached_property
    def data_band(self) -> Array:
        """B'WB as a band for factorisations; cached, since all penalties use the same band."""
        if isinstance(self.encoding.embedders[0], Wrapped):  # it has entries far from the diagonal
            return np.empty((0, math.prod(self.encoding.shape)))
        return data_band(self.term, self.encoding.shape)

    def free_band(self) -> None:
        """Free `data_band`, which takes much memory; it is computed again when it is needed."""
        self.__dict__.pop("data_band", None)

    @functools.cached_property
    def node_weights(self) -> Array:
        """The sum of each row of B'WB, (1, K_1, ..., K_D): the weight of the points near a node."""
        return row_sums(self.term, self.rhs)

    @functools.cached_property
    def gaps(self) -> bool:
        """Whether the points leave gaps in the domain; see `has_gaps`."""
        return has_gaps(self.node_weights[(slice(None), *self._inside())])

    @functools.cached_property
    def _mean_slope(self) -> float:
        """Factor from summed squared differences to `total` times a mean squared derivative."""
        cell = math.prod(self.spacings)
        volume = math.prod(frame.high - frame.low for frame in self.frames)
        return (
            self.total
            * cell
            / volume
            * math.prod(feature_sum(emb) for emb in self.encoding.embedders) ** 2
        )

    def differences(self, penalty: Penalty) -> DifferencePenalty:
        """Return the penalty on the weights of local features."""
        first, second = (self._mean_slope * part for part in penalty.roughness)
        units = penalty.units or (1.0,) * len(self.frames)
        spacings = [h / unit for h, unit in zip(self.spacings, units, strict=True)]
        wraps = [isinstance(emb, Wrapped) for emb in self.encoding.embedders]
        shape = self.encoding.shape
        return DifferencePenalty(shape, spacings, first, second, penalty.ridge, wraps)

    def system(self, penalty: Penalty) -> LocalSystem | BasisSystem:
        """Return the system to solve."""
        if self.nodes is not None:
            return self.basis_system(penalty)
        return self.local_system(penalty)

    @functools.cached_property
    def _complete_axes(self) -> list[AxisVectors]:
        """The vectors of `CompleteGrid` on each axis; cached, since all penalties share them."""
        taps = [len(gram) for gram in self.grams]
        found = marginals(self.term, self.encoding.shape, taps, self.rhs.dtype)
        return [AxisVectors.of(gram) for gram in found]

    def _is_nearly_complete(self, penalty: DifferencePenalty, diagonal: Array) -> bool:
        """Whether the preconditioner of a complete grid with uneven axes suits; see `NEARLY`."""
        if not isinstance(self.term, RowsTerm):
            return False
        if len(penalty.shape) == 1 or any(penalty.wraps) or max(penalty.shape) > LONGEST:
            return False
        wide = len(penalty.shape) > 2 and all(len(gram) > HAT for gram in self.grams)
        stiffness = float(penalty.symbol.mean())
        filled = max(int(np.count_nonzero(diagonal)), 1)
        mean = float(np.sum(diagonal, dtype=np.float64)) / filled
        if stiffness > (MODERATE if wide else TINY) * mean:
            return False
        return disproportion(self.node_weights[0], stiffness) <= NEARLY

    def local_system(
        self,
        penalty: Penalty,
        *,
        in_cosines: bool | None = None,
        on_complete: bool | None = None,
    ) -> LocalSystem:
        """Return the system of exact rows; ``in_cosines`` as in `LocalSystem`.

        ``on_complete`` says whether the preconditioner is `CompleteGrid`. By default it is where
        `NEARLY` says so, unless ``in_cosines`` is given.
        """
        grams = [gram / (self.total or 1.0) for gram in self.grams]
        cells = math.prod(self.encoding.shape)
        diagonal = np.asarray(self.term.diagonal).reshape(self.encoding.shape)
        differences = self.differences(penalty)
        if on_complete is None:
            on_complete = in_cosines is None and self._is_nearly_complete(differences, diagonal)
        complete = None
        if on_complete:
            total = float(self.node_weights.sum(dtype=np.float64))
            complete = CompleteGrid.of(self._complete_axes, total, differences, self.rhs.dtype)
        return LocalSystem(
            self.term,
            differences,
            grams,
            self.total / cells,
            diagonal,
            self.rhs.dtype,
            in_cosines,
            complete,
        )

    def basis_system(self, penalty: Penalty) -> BasisSystem:
        """Return the system of blended rows."""
        assert self.nodes is not None
        density = self.total / math.prod(map(len, self.nodes))
        if penalty.ridge and any(penalty.roughness):
            raise problem(
                "ridge and roughness",
                penalty,
                "at most one of the two above 0 where rows are blended",
                "No basis makes both matrices diagonal: leave one out, or use narrower features "
                "with exact rows.",
            )
        # Without a penalty, use the basis of a ridge: it leaves out singular values of zero.
        first, second = penalty.roughness
        shape = (
            Penalty(roughness=(float(first > 0), float(second > 0)))
            if first or second
            else Penalty(ridge=1.0)
        )
        units = penalty.units or (1.0,) * len(self.frames)
        frames = tuple(f.in_units(u) for f, u in zip(self.frames, units, strict=True))
        nodes = tuple((axis / u).tobytes() for axis, u in zip(self.nodes, units, strict=True))
        solver = _grid_solver(self.encoding, frames, nodes, shape)
        strength = solver.strengths()
        if not first and not second:
            return BasisSystem(
                self.term, solver.bases, np.full_like(strength, penalty.ridge), strength, density
            )
        return BasisSystem(
            self.term,
            solver.bases,
            density * (first * strength + second * strength**2),
            np.ones_like(strength),
            density,
        )

    def strategy(self, penalty: Penalty) -> Selection:
        """Return how `solve` will begin under ``penalty``, and why; see `select_strategy`."""
        return select_strategy(self, penalty)

    def solve(
        self,
        penalty: Penalty,
        *,
        tolerance: float,
        limit: int,
        start: Array | None = None,
        rhs: Array | None = None,
        prior: Array | None = None,
        progress: Progress | None = None,
        at_once: bool = False,
    ) -> Solution:
        """Return the weights under ``penalty``, with the strategy that was used and why.

        Parameters
        ----------
        penalty : Penalty
            The penalty on the weights.
        tolerance, limit : float, int
            When to stop iterating; see `conjugate_gradients`.
        start : array, optional
            The unknowns of an earlier solution, from which to start.
        rhs : array (C', ...), optional
            Right-hand sides to use in place of ``self.rhs``, with any number C' of channels.
        prior : array on the unknowns, optional
            Added to the right-hand sides.
        progress : function, optional
            Called with (iterations, relative residual).
        at_once : bool
            Factor the matrix if that is affordable, for example because conjugate gradients
            failed under a similar penalty.
        """
        b = self.on_unknowns(self.rhs if rhs is None else rhs.astype(self.rhs.dtype), penalty)
        if prior is not None:
            b = b + prior.astype(b.dtype)
        if start is not None:
            start = start.astype(b.dtype, copy=False)
        iterations = Iterations(tolerance, limit, start, progress)
        selection, attempts = (
            select_strategy(self, penalty, at_once=at_once, right_sides=len(b)),
            list[Attempt](),
        )
        while True:
            strategy = selection.strategy
            try:
                solution = strategy.solve(self, penalty, b, iterations, selection.system)
                return replace(solution, reason=selection.reason)
            except (SingularError, ConvergenceError) as error:
                attempts.append(Attempt(strategy, _failure(strategy, error)))
                following = select_fallback(self, penalty, attempts)
                if following is None:
                    raise
                if isinstance(error, ConvergenceError):
                    iterations = replace(iterations, start=error.unknowns)
            selection = following

    def on_unknowns(self, values: Array, penalty: Penalty) -> Array:
        """Return right-hand sides like B'Wy in the unknowns of the system."""
        return values if self.nodes is None else self.basis_system(penalty).adjoint(values)

    def _inside(self) -> list[slice]:
        """Return, for each axis, the slice of weights whose centres lie in the domain."""
        result = []
        for emb, frame in zip(self.encoding.embedders, self.frames, strict=True):
            if isinstance(emb, Wrapped):  # on a circle, all features
                result.append(slice(None))
                continue
            assert isinstance(emb, LocalEmbedder)
            at = frame.origin + frame.length * emb.centres
            slack = 1e-9 * frame.length
            result.append(
                slice(int(np.sum(at < frame.low - slack)), int(np.sum(at <= frame.high + slack)))
            )
        return result

    def sample_penalty(self, penalty: Penalty, rng: np.random.Generator, count: int) -> Any:
        """Return random right-hand sides on the unknowns whose covariance is the penalty."""
        if self.nodes is None:
            return self.differences(penalty).sample(rng, count)
        system = self.basis_system(penalty)
        draws: Array = rng.standard_normal((count, *system.symbol.shape))
        return draws * np.sqrt(system.symbol)

    def data_of(self, x: Array, penalty: Penalty) -> Array:
        """Return B'WB x, in the unknowns of the system."""
        return self.term.apply(x) if self.nodes is None else self.basis_system(penalty).data(x)

    def unknown_shape(self, penalty: Penalty) -> tuple[int, ...]:
        """Return the shape of the unknowns of one channel."""
        return (
            self.encoding.shape if self.nodes is None else self.basis_system(penalty).symbol.shape
        )

    def degrees_of_freedom(self, penalty: Penalty, limit: int) -> float:
        """Return the trace of the hat matrix: the mean of v' A^-1 B'WB v over seeded probes v.

        The entries of v are 1 or -1 (Hutchinson, 1990).
        """
        shape = self.unknown_shape(penalty)
        probes = (
            np.random.default_rng(0)
            .choice([-1.0, 1.0], size=(PROBES, *shape))
            .astype(self.rhs.dtype)
        )
        seen = self.data_of(probes, penalty)
        zero = np.zeros((PROBES, *self.rhs.shape[1:]))
        solved = self.solve(penalty, tolerance=3e-3, limit=limit, rhs=zero, prior=seen)
        return float(np.sum(probes * solved.unknowns, dtype=np.float64)) / PROBES

    @property
    def iterates(self) -> bool:
        """Whether there are too many unknowns for a factorisation to be the first strategy."""
        return self.nodes is not None or (
            len(self.encoding.shape) > 1 and math.prod(self.encoding.shape) > AT_ONCE
        )

    def inverse_energy(self, rhs: Array, penalty: Penalty) -> Array:
        """Return b'A^-1 b, (C,), for right-hand sides b, to about ENERGY_TOLERANCE."""
        b = self.on_unknowns(rhs.astype(self.rhs.dtype), penalty)
        system = self.system(penalty)
        return inverse_energy(system, b, tolerance=ENERGY_TOLERANCE, limit=ENERGY_LIMIT)

    def data_energy(self, solution: Solution, penalty: Penalty) -> Array:
        """Return x'B'WB x, (C,): the weighted sum of squares of the fit at the points."""
        x = solution.unknowns
        return np.asarray(
            np.sum((x * self.data_of(x, penalty)).reshape(len(x), -1), axis=1, dtype=np.float64)
        )

    def penalty_energy(self, solution: Solution, penalty: Penalty) -> Array:
        """Return x'Px, (C,): what the penalty adds to the sum of squared residuals."""
        x = solution.unknowns.astype(np.float64)
        if self.nodes is None:
            return self.differences(penalty).energy(x)
        squares = self.basis_system(penalty).symbol * x**2
        return np.asarray(np.sum(squares.reshape(len(x), -1), axis=1))

    def residual_energy(self, solution: Solution, penalty: Penalty) -> Array:
        """Return the sum of w (y - fit)^2, (C,): y'Wy - 2 x'B'Wy + x'B'WB x."""
        x = solution.unknowns
        b = self.on_unknowns(self.rhs, penalty)
        cross = np.sum((x * b).reshape(len(x), -1), axis=1, dtype=np.float64)
        return np.asarray(
            np.maximum(self.energy - 2 * cross + self.data_energy(solution, penalty), 0.0)
        )


def _failure(strategy: Strategy, error: SingularError | ConvergenceError) -> str:
    if isinstance(error, SingularError):
        return str(error)
    method = strategy.name.partition(",")[0]  # without the preconditioner
    return f"{method} had not converged after {error.iterations} iterations"


@functools.lru_cache(maxsize=8)
def _grid_solver(
    encoding: Kronecker, frames: Sequence[Frame], nodes: tuple[bytes, ...], penalty: Penalty
) -> GridSolver:
    axes = [np.frombuffer(axis, dtype=np.float64) for axis in nodes]
    return GridSolver(encoding, frames, axes, ridge=penalty.ridge, roughness=penalty.roughness)
