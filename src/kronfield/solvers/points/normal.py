"""Normal equations of points on a grid of features: what is known of the data, and the solve for any penalty."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import Frame
from kronfield._core.slabs import SEVERAL
from kronfield._core.threads import in_threads
from kronfield.embedders import LocalEmbedder
from kronfield.encoding import Kronecker
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.cg import Convergence, ConvergenceError, conjugate_gradients
from kronfield.solvers.points.coarse import coarse_start, has_gaps, local_means, row_sums
from kronfield.solvers.points.direct import affordable, data_band, direct_solve
from kronfield.solvers.points.penalty import DifferencePenalty
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import BasisSystem, DataTerm, LocalSystem, feature_sum

# Factor systems up to AT_ONCE unknowns immediately. Larger systems are factored only if conjugate
# gradients have not converged after PATIENCE iterations, and if a factorisation is affordable.
AT_ONCE, PATIENCE = 2500, 60
# Unknowns of a channel from which it gets a thread of its own.
WORTH_A_THREAD = 1 << 14
# Random probes for the trace of a hat matrix.
PROBES = 16

Progress = Callable[[int, float], Any]


@dataclass(frozen=True)
class Penalty:
    """A ridge on the weights, and the mean squares of first and second derivatives, as `fit` has them.

    Derivatives are by position in ``units``, one length per axis; without, in the units of the
    points.
    """

    ridge: float = 0.0
    roughness: tuple[float, float] = (0.0, 0.0)
    units: tuple[float, ...] | None = None

    def __str__(self) -> str:
        first, second = self.roughness
        return f"ridge {self.ridge:.3g}" if self.ridge else f"roughness ({first:.3g}, {second:.3g})"


@dataclass(frozen=True)
class Solution:
    """Weights, planar, with how the solver got there; ``unknowns`` is where to start the next one."""

    weights: Array
    unknowns: Array
    convergence: Convergence
    method: str


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """B'WB, B'Wy and what goes with them.

    Attributes
    ----------
    encoding, frames
        The features, and where their axes lie.
    term : DataTerm
        B'WB, on the weights of the encoding, or on the nodes of a virtual grid.
    rhs : (C, K_1, ..., K_D) or (C, nodes of the virtual grid)
        B'Wy.
    energy : (C,) array
        The sum of w y^2.
    total, count : float, int
        The sum of the weights of the points, and their number.
    grams : list of arrays
        Per axis the sum over points of w times the products of a feature with its neighbours.
    nodes : list of arrays, or None
        The positions of the nodes of the virtual grid; None where rows are exact.
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
        """The distance of neighbouring features on each axis, in the units of the points."""
        local = [emb for emb in self.encoding.embedders if isinstance(emb, LocalEmbedder)]
        return [emb.spacing * frame.length for emb, frame in zip(local, self.frames, strict=True)]

    @functools.cached_property
    def _data_band(self) -> Array:
        """B'WB as a band, for factorisations, kept for the next penalty."""
        return data_band(self.term, self.encoding.shape)

    @functools.cached_property
    def _mean_slope(self) -> float:
        """What turns a sum of squared differences of weights into W times the mean of squared derivatives."""
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
        return DifferencePenalty(self.encoding.shape, spacings, first, second, penalty.ridge)

    def system(self, penalty: Penalty) -> LocalSystem | BasisSystem:
        """Return the system to solve."""
        if self.nodes is not None:
            return self._basis_system(penalty)
        grams = [gram / (self.total or 1.0) for gram in self.grams]
        cells = math.prod(self.encoding.shape)
        diagonal = np.asarray(self.term.diagonal).reshape(self.encoding.shape)
        return LocalSystem(
            self.term,
            self.differences(penalty),
            grams,
            self.total / cells,
            diagonal,
            self.rhs.dtype,
        )

    def _basis_system(self, penalty: Penalty) -> BasisSystem:
        assert self.nodes is not None
        density = self.total / math.prod(map(len, self.nodes))
        if penalty.ridge and any(penalty.roughness):
            raise problem(
                "ridge and roughness", penalty, "one of them to be 0, where rows are blended",
                "No one basis is diagonal for both: leave one out, or use narrower features with exact rows.",
            )  # fmt: skip
        # without any penalty the basis of a ridge serves, and the singular values that are zero
        # stay out
        first, second = penalty.roughness
        shape = (
            Penalty(roughness=(float(first > 0), float(second > 0)))
            if first or second
            else Penalty(ridge=1.0)
        )
        units = penalty.units or (1.0,) * len(self.frames)
        frames = tuple(
            Frame(f.origin / u, f.length / u, f.low / u, f.high / u)
            for f, u in zip(self.frames, units, strict=True)
        )
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
    ) -> Solution:
        """Return the weights under ``penalty``.

        ``start`` are the unknowns of an earlier solution; ``rhs`` other right-hand sides than the
        data's, to which ``prior`` is added, on the unknowns.
        """
        b = self.rhs if rhs is None else rhs.astype(self.rhs.dtype)
        if self.nodes is not None:
            return self._in_eigenbasis(
                penalty, b, start, prior, tolerance=tolerance, limit=limit, progress=progress
            )
        if prior is not None:
            b = b + prior.astype(b.dtype)
        if self.factored_at_once:
            solution = self._factored(penalty, b)
            if solution is not None:
                return solution
        return self._iterated(
            penalty, b, start, tolerance=tolerance, limit=limit, progress=progress
        )

    @property
    def factored_at_once(self) -> bool:
        """Whether the system is factored before anything else is tried: lines, whose band is narrow, and few unknowns."""
        shape = self.encoding.shape
        return (len(shape) == 1 and isinstance(self.term, Stencil)) or math.prod(shape) <= AT_ONCE

    def _factored(self, penalty: Penalty, b: Array) -> Solution | None:
        """Return the weights by a factorisation; None if the system is singular."""
        found = direct_solve(self.term, self.differences(penalty), b, self._data_band)
        if found is None:
            return None
        banded = len(self.encoding.shape) == 1 and len(self._data_band)
        return Solution(
            found, found, Convergence(0, 0.0, 0.0), "banded Cholesky" if banded else "factorisation"
        )

    def _in_eigenbasis(
        self,
        penalty: Penalty,
        b: Array,
        start: Array | None,
        prior: Array | None,
        *,
        tolerance: float,
        limit: int,
        progress: Progress | None,
    ) -> Solution:
        """Return the weights of blended rows by conjugate gradients in the eigenbasis of the virtual grid."""
        system = self._basis_system(penalty)
        b = system.adjoint(b)
        if prior is not None:
            b = b + prior
        x = np.zeros_like(b) if start is None else start.copy()
        x, convergence = conjugate_gradients(
            system, b, x, tolerance=tolerance, limit=limit, progress=progress
        )
        return Solution(system.weights(x), x, convergence, "conjugate gradients in the eigenbasis")

    def _iterated(
        self,
        penalty: Penalty,
        b: Array,
        start: Array | None,
        *,
        tolerance: float,
        limit: int,
        progress: Progress | None,
    ) -> Solution:
        """Return the weights by conjugate gradients, or by a factorisation where these take long and one is affordable."""
        small = affordable(self.encoding.shape)
        mass = row_sums(self.term, b)
        gaps = has_gaps(mass[(slice(None), *self._inside())])
        if small and gaps and not self.factored_at_once:
            solution = self._factored(penalty, b)
            if solution is not None:
                return solution
        system = self.system(penalty)
        assert isinstance(system, LocalSystem)
        constant, left, reference = _constant(system, b, mass, penalty.ridge)
        if start is not None:
            x = start.astype(b.dtype, copy=True)
        elif gaps:
            x = coarse_start(mass, left, self.differences(penalty), tolerance, limit) + constant
        else:
            x = local_means(mass, left) + constant
        solve = functools.partial(
            _each_channel,
            system,
            b,
            tolerance=tolerance,
            origin=constant,
            reference=reference,
            progress=progress,
        )
        try:
            x, convergence = solve(x, limit=min(limit, PATIENCE) if small else limit)
        except ConvergenceError:
            solution = self._factored(penalty, b) if small else None
            if solution is not None:
                return solution
            if not small:
                raise
            x, convergence = solve(x, limit=limit)
        by = "in cosines" if system.in_cosines else "by the diagonal"
        return Solution(x, x, convergence, f"conjugate gradients, preconditioned {by}")

    def _inside(self) -> list[slice]:
        """Return which weights have their centre in the domain, on each axis."""
        result = []
        for emb, frame in zip(self.encoding.embedders, self.frames, strict=True):
            assert isinstance(emb, LocalEmbedder)
            at = frame.origin + frame.length * emb.centres
            slack = 1e-9 * frame.length
            result.append(
                slice(int(np.sum(at < frame.low - slack)), int(np.sum(at <= frame.high + slack)))
            )
        return result

    def sample_penalty(self, penalty: Penalty, rng: np.random.Generator, count: int) -> Any:
        """Return random right-hand sides, on the unknowns, whose covariance is the penalty matrix."""
        if self.nodes is None:
            return self.differences(penalty).sample(rng, count)
        system = self._basis_system(penalty)
        draws: Array = rng.standard_normal((count, *system.symbol.shape))
        return draws * np.sqrt(system.symbol)

    def data_of(self, x: Array, penalty: Penalty) -> Array:
        """Return B'WB x on the unknowns."""
        return self.term.apply(x) if self.nodes is None else self._basis_system(penalty).data(x)

    def unknown_shape(self, penalty: Penalty) -> tuple[int, ...]:
        """Return the shape of the unknowns of one channel."""
        return (
            self.encoding.shape if self.nodes is None else self._basis_system(penalty).symbol.shape
        )

    def degrees_of_freedom(self, penalty: Penalty, limit: int) -> float:
        """Return the trace of the hat matrix, from seeded random probes v: the mean of v' A^-1 B'WB v."""
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

    def data_energy(self, solution: Solution, penalty: Penalty) -> Array:
        """Return x'B'WB x of every channel of a solution: the weighted sum of squares of its values at the points."""
        x = solution.unknowns
        return np.asarray(
            np.sum((x * self.data_of(x, penalty)).reshape(len(x), -1), axis=1, dtype=np.float64)
        )

    def residual_energy(self, solution: Solution, penalty: Penalty) -> Array:
        """Return the sum of w (y - fit)^2 of every channel, (C,): y'Wy - 2 x'B'Wy + x'B'WB x."""
        x = solution.unknowns
        b = self.rhs if self.nodes is None else self._basis_system(penalty).adjoint(self.rhs)
        cross = np.sum((x * b).reshape(len(x), -1), axis=1, dtype=np.float64)
        return np.asarray(
            np.maximum(self.energy - 2 * cross + self.data_energy(solution, penalty), 0.0)
        )


def _constant(
    system: LocalSystem, b: Array, mass: Array, ridge: float
) -> tuple[Array, Array, Array]:
    """Return the best equal weights, what they leave of b, and its norm: the scale on which to judge convergence."""
    response = mass + b.dtype.type(ridge) if ridge else mass  # differences of a constant are 0
    level = b.reshape(len(b), -1).sum(axis=1, dtype=np.float64) / (
        float(response.sum(dtype=np.float64)) or 1.0
    )
    shaped = level.astype(b.dtype).reshape(-1, *[1] * (b.ndim - 1))
    left = b - shaped * response
    z, _ = system.precondition(left)
    norms = [
        math.sqrt(max(float(np.einsum("i,i->", u.reshape(-1), v.reshape(-1))), 0.0))
        for u, v in zip(left, z, strict=True)
    ]
    return shaped, left, np.array(norms)


def _each_channel(
    system: LocalSystem,
    b: Array,
    start: Array,
    *,
    tolerance: float,
    limit: int,
    origin: Array,
    reference: Array,
    progress: Progress | None,
) -> tuple[Array, Convergence]:
    """Run conjugate gradients for every channel in a thread of its own: what one works on stays in its cache."""
    settings = {"tolerance": tolerance, "limit": limit}
    if len(b) == 1 or b[0].size < WORTH_A_THREAD or progress is not None:
        return conjugate_gradients(
            system, b, start, origin=origin, reference=reference, progress=progress, **settings
        )  # type: ignore[arg-type]

    def one(c: int) -> Convergence:
        part = slice(c, c + 1)
        return conjugate_gradients(
            system, b[part], start[part], origin=origin[part], reference=reference[part], **settings  # type: ignore[arg-type]
        )[1]  # fmt: skip

    # a large channel keeps all threads busy
    ends = (
        [one(c) for c in range(len(b))] if b[0].size >= SEVERAL else in_threads(one, range(len(b)))
    )
    worst = (
        max(end.iterations for end in ends),
        max(end.residual for end in ends),
        max(end.change for end in ends),
    )
    return start, Convergence(*worst)


@functools.lru_cache(maxsize=8)
def _grid_solver(
    encoding: Kronecker, frames: Sequence[Frame], nodes: tuple[bytes, ...], penalty: Penalty
) -> GridSolver:
    axes = [np.frombuffer(axis, dtype=np.float64) for axis in nodes]
    return GridSolver(encoding, frames, axes, ridge=penalty.ridge, roughness=penalty.roughness)
