"""The strategies that solve the normal equations of points, and the rule that selects one of them.

| strategy | selected for |
|---|---|
| `EigenbasisConjugateGradients` | blended rows |
| `BandedCholesky` | lines |
| `Factorisation` | few unknowns; more if points leave gaps or there are many right-hand sides |
| `ConjugateGradients` | all other systems |

`select_strategy` returns the strategy and the reason without solving anything. `select_fallback`
returns the next strategy after a failure: conjugate gradients if the matrix is singular to
rounding, a factorisation if conjugate gradients do not converge and the matrix is small enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield._core.slabs import SEVERAL
from kronfield._core.threads import in_threads
from kronfield.solvers.points.cg import (
    Convergence,
    ConvergenceError,
    Progress,
    conjugate_gradients,
)
from kronfield.solvers.points.coarse import BLOCK, coarse_start, local_means
from kronfield.solvers.points.direct import (
    MANY_SIDES,
    affordable,
    direct_solve,
    largest_affordable,
)
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import LocalSystem

if TYPE_CHECKING:
    from kronfield.solvers.points.normal import NormalEquations, Penalty

# Factor systems up to AT_ONCE unknowns immediately: that takes less time than the iterations.
# Larger systems are factored only if conjugate gradients have not converged after PATIENCE
# iterations, and if a factorisation is affordable (`direct.affordable`). Most systems converge in
# fewer iterations than that.
AT_ONCE, PATIENCE = 2500, 60
# Channels with at least this many unknowns are solved separately: see `_each_channel`. Smaller
# channels are solved together: threads would cost more time than they save.
WORTH_A_THREAD = 1 << 14


class SingularError(RuntimeError):
    """The matrix is singular to rounding, as a factorisation found."""


@record
class Iterations:
    """When iterative strategies start and stop. Factorisations ignore it.

    Attributes
    ----------
    tolerance, limit
        As in `conjugate_gradients`.
    start : array of shape (C, ...), optional
        First estimate of the unknowns; it is not overwritten. By default the strategy computes it.
    progress : function, optional
        Called with (iterations, relative residual).
    """

    tolerance: float
    limit: int
    start: Array | None = None
    progress: Progress | None = None


@record
class Solution:
    """The weights of a fit, and how they were computed.

    Attributes
    ----------
    weights : (C, K_1, ..., K_D)
        The weights of the encoding.
    unknowns : (C, ...)
        The solution of the linear system: the weights, or coefficients in an eigenbasis. They can
        start the next solve.
    convergence : Convergence
        How the iterations ended; zeros for a factorisation.
    method, reason : str
        The name of the strategy that gave this solution, and why it was used.
    """

    weights: Array
    unknowns: Array
    convergence: Convergence
    method: str
    reason: str = ""


class Strategy(Protocol):
    """A way to solve the normal equations."""

    @property
    def name(self) -> str:
        """The name in reports."""

    def solve(
        self,
        equations: NormalEquations,
        penalty: Penalty,
        b: Array,
        iterations: Iterations,
        system: LocalSystem | None = None,
    ) -> Solution:
        """Return the solution for right-hand sides ``b`` (C, ...), given on the unknowns.

        ``system`` is ``equations.system(penalty)``, if it has been computed already.
        """


@record
class Selection:
    """A strategy, and why it was selected.

    ``system`` is the system that the selector computed to decide. Pass it to `Strategy.solve` to
    avoid computing it again.
    """

    strategy: Strategy
    reason: str
    system: LocalSystem | None = None


@record
class Attempt:
    """A strategy that failed, and how."""

    strategy: Strategy
    failure: str


@record
class Factorisation:
    """A factorisation of the whole matrix: dense, banded or sparse, as `direct_solve` decides."""

    name: ClassVar[str] = "factorisation"

    def solve(
        self,
        equations: NormalEquations,
        penalty: Penalty,
        b: Array,
        iterations: Iterations | None = None,
        system: LocalSystem | None = None,
    ) -> Solution:
        """Return the solution; raise `SingularError` if the matrix is singular to rounding."""
        del iterations, system
        found = direct_solve(equations.term, equations.differences(penalty), b, equations.data_band)
        if found is None:
            raise SingularError("the factorisation found the matrix singular to rounding")
        return Solution(found, found, Convergence(0, 0.0, 0.0), self.name)


@record
class BandedCholesky(Factorisation):
    """A banded Cholesky factorisation, for lines, in time proportional to the unknowns."""

    name: ClassVar[str] = "banded Cholesky"


@record
class ConjugateGradients:
    """Preconditioned conjugate gradients on the weights of local features.

    Attributes
    ----------
    in_cosines : bool
        Whether the preconditioner is the system of a complete grid, which the cosine transform
        makes diagonal; else it is the diagonal of the matrix. See `LocalSystem`.
    patience : int or None
        The most iterations, if that is less than the limit.
    on_levels : bool
        Whether corrections from coarser grids are added to the diagonal, for the name.
    on_complete : bool
        Whether the preconditioner is the system of a complete grid with uneven axes.
    """

    in_cosines: bool
    patience: int | None = None
    on_levels: bool = False
    on_complete: bool = False

    @property
    def name(self) -> str:
        """The name in reports."""
        if self.on_complete:
            return "conjugate gradients, preconditioned by a complete grid"
        diagonal = "by the diagonals of several grids" if self.on_levels else "by the diagonal"
        by = "in cosines" if self.in_cosines else diagonal
        return f"conjugate gradients, preconditioned {by}"

    def solve(
        self,
        equations: NormalEquations,
        penalty: Penalty,
        b: Array,
        iterations: Iterations,
        system: LocalSystem | None = None,
    ) -> Solution:
        """Return the solution; raise `ConvergenceError` with the last estimate if not converged."""
        if system is None:
            system = equations.local_system(
                penalty, in_cosines=self.in_cosines, on_complete=self.on_complete
            )
        constant, left, reference = _constant(system, b, equations.node_weights, penalty.ridge)
        limit = iterations.limit
        if iterations.start is not None:
            x = iterations.start.copy()
        elif any(equations.differences(penalty).wraps):
            # coarser grids and local means are implemented only for axes with ends
            x = np.zeros_like(b) + constant
        elif equations.gaps:
            coarse = coarse_start(
                equations.node_weights,
                left,
                equations.differences(penalty),
                iterations.tolerance,
                limit,
            )
            x = coarse + constant
        else:
            x = local_means(equations.node_weights, left) + constant
        try:
            convergence = _each_channel(
                system,
                b,
                x,
                tolerance=iterations.tolerance,
                limit=limit if self.patience is None else min(limit, self.patience),
                origin=constant,
                reference=reference,
                progress=iterations.progress,
            )
        except ConvergenceError as error:
            error.unknowns = x
            raise
        return Solution(x, x, convergence, self.name)


@record
class EigenbasisConjugateGradients:
    """Conjugate gradients in the eigenbasis of the virtual grid on which rows are blended."""

    name: ClassVar[str] = "conjugate gradients in the eigenbasis"

    def solve(
        self,
        equations: NormalEquations,
        penalty: Penalty,
        b: Array,
        iterations: Iterations,
        system: LocalSystem | None = None,
    ) -> Solution:
        """Return the solution; raise `ConvergenceError` if the iterations do not converge."""
        del system
        basis = equations.basis_system(penalty)
        x = np.zeros_like(b) if iterations.start is None else iterations.start.copy()
        x, convergence = conjugate_gradients(
            basis,
            b,
            x,
            tolerance=iterations.tolerance,
            limit=iterations.limit,
            progress=iterations.progress,
        )
        return Solution(basis.weights(x), x, convergence, self.name)


def select_strategy(
    equations: NormalEquations, penalty: Penalty, *, at_once: bool = False, right_sides: int = 1
) -> Selection:
    """Return the strategy to try first, and why; nothing is solved.

    The first rule that applies decides:

    1. Rows are blended: `EigenbasisConjugateGradients`. Penalty and preconditioner are diagonal
       there.
    2. The features lie on a line and B'WB is a band: `BandedCholesky`, for any number of unknowns;
       on a circle `Factorisation`.
    3. At most `AT_ONCE` unknowns: `Factorisation`.
    4. ``at_once`` is set and a factorisation is affordable: `Factorisation`.
    5. There are at least `MANY_SIDES` right-hand sides, for which more unknowns are affordable:
       `Factorisation`.
    6. The points leave gaps and a factorisation is affordable: `Factorisation`. Conjugate
       gradients need many iterations to cross a gap, unless coarser grids are in the
       preconditioner (`LocalSystem.has_levels`).
    7. Else `ConjugateGradients`. The strength of the penalty decides on the preconditioner
       (`LocalSystem`). Where a factorisation is affordable, `PATIENCE` limits the iterations, and
       also where the preconditioner is a complete grid with uneven axes (`CompleteGrid`).
    """
    shape = equations.encoding.shape
    n = math.prod(shape)
    if equations.nodes is not None:
        nodes = " x ".join(str(len(axis)) for axis in equations.nodes)
        reason = f"rows are blended on {nodes} nodes, and a penalty is diagonal in their eigenbasis"
        return Selection(EigenbasisConjugateGradients(), reason)
    if len(shape) == 1 and isinstance(equations.term, Stencil):
        if equations.term.wraps[0]:
            return Selection(Factorisation(), f"{n:,} unknowns on a circle: a cyclic band")
        return Selection(BandedCholesky(), f"{n:,} unknowns on a line: the matrix is a band")
    if n <= AT_ONCE:
        reason = f"{n:,} unknowns, at most {AT_ONCE:,} are factored at once"
        return Selection(Factorisation(), reason)
    if at_once and affordable(shape):
        reason = f"conjugate gradients failed before; {_affordable_size(shape)}"
        return Selection(Factorisation(), reason)
    taps = equations.term.taps if isinstance(equations.term, Stencil) else ()
    if right_sides >= MANY_SIDES and affordable(shape, right_sides, taps):
        reason = f"{right_sides} right-hand sides share a factorisation of {n:,} unknowns"
        return Selection(Factorisation(), reason)
    if affordable(shape) and equations.gaps and not equations.local_system(penalty).has_levels:
        reason = f"the points leave gaps of {BLOCK} cells or more; {_affordable_size(shape)}"
        return Selection(Factorisation(), reason)
    size = f"{n:,} unknowns, more than the {AT_ONCE:,} that are factored at once"
    return _select_iterations(equations, penalty, [size])


def select_fallback(
    equations: NormalEquations, penalty: Penalty, attempts: Sequence[Attempt]
) -> Selection | None:
    """Return the strategy to try after ``attempts`` have failed, and why; None if there is none.

    If only a factorisation has failed, the next strategy is conjugate gradients. If only conjugate
    gradients limited by `PATIENCE` have failed, it is a factorisation. If both have failed, it is
    conjugate gradients without that limit, which continue from the last estimate. They do
    not have the preconditioner of a complete grid, which was then no good one.
    """
    reasons = [attempt.failure for attempt in attempts]
    iterative = [
        attempt.strategy for attempt in attempts if isinstance(attempt.strategy, ConjugateGradients)
    ]
    factored = any(isinstance(attempt.strategy, Factorisation) for attempt in attempts)
    if factored and not iterative:
        return _select_iterations(equations, penalty, reasons)
    if not iterative or iterative[-1].patience is None:
        return None
    if not factored and affordable(equations.encoding.shape):
        reasons.append(_affordable_size(equations.encoding.shape))
        return Selection(Factorisation(), "; ".join(reasons))
    strategy = replace(iterative[-1], patience=None, on_complete=False)
    if iterative[-1].on_complete:
        system = equations.local_system(penalty, on_complete=False)
        strategy = replace(strategy, in_cosines=system.in_cosines, on_levels=system.has_levels)
    return Selection(strategy, "; ".join([*reasons, "the iterations were continued"]))


def _select_iterations(
    equations: NormalEquations, penalty: Penalty, reasons: Sequence[str]
) -> Selection:
    """Return conjugate gradients with the preconditioner for this penalty."""
    system = equations.local_system(penalty)
    complete = system.on_complete
    patience = PATIENCE if complete or affordable(equations.encoding.shape) else None
    strategy = ConjugateGradients(system.in_cosines, patience, system.has_levels, complete)
    return Selection(strategy, "; ".join([*reasons, system.reason]), system)


def _affordable_size(shape: Sequence[int]) -> str:
    n, largest = math.prod(shape), largest_affordable(shape)
    return f"{n:,} unknowns, at most {largest:,} can be factored"


def _constant(
    system: LocalSystem, b: Array, mass: Array, ridge: float
) -> tuple[Array, Array, Array]:
    """Return the best constant weights, the residual of b that they leave, and its norm (C,).

    Convergence is measured relative to that norm.
    """
    response = mass + b.dtype.type(ridge) if ridge else mass  # the roughness of a constant is 0
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
    x: Array,
    *,
    tolerance: float,
    limit: int,
    origin: Array,
    reference: Array,
    progress: Progress | None,
) -> Convergence:
    """Run conjugate gradients on ``x`` in place.

    Channels of medium size have a thread each, so that the arrays of a channel stay in the cache of
    one core. Small channels are solved together, and large ones one after the other.
    """

    def run(part: slice) -> Convergence:
        return conjugate_gradients(
            system,
            b[part],
            x[part],
            tolerance=tolerance,
            limit=limit,
            origin=origin[part],
            reference=reference[part],
            progress=progress,
        )[1]

    if len(b) == 1 or b[0].size < WORTH_A_THREAD or progress is not None:
        return run(slice(None))
    channels = [slice(c, c + 1) for c in range(len(b))]
    # the products of a large channel use all threads themselves
    large = b[0].size >= SEVERAL
    ends = [run(part) for part in channels] if large else in_threads(run, channels)
    return Convergence(
        max(end.iterations for end in ends),
        max(end.residual for end in ends),
        max(end.change for end in ends),
    )
