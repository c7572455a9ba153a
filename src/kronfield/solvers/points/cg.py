"""Preconditioned conjugate gradients for several right-hand sides, with convergence measured and said."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.errors import KronfieldError
from kronfield._core.slabs import each_slab

# The solution is compared with what it was so large a part of the iterations ago, for the first
# time after so many.
LOOK_BACK, FIRST_LOOK = 0.15, 4


class ConvergenceError(KronfieldError, RuntimeError):
    """The iterations ended before the residual was small enough; nothing was returned."""


class System(Protocol):
    """A symmetric system (data + penalty) x = b.

    Where the preconditioner gives the penalty away with what it computes anyway, it says so; else
    it says None, and the penalty is part of `data`.
    """

    def data(self, x: Array, out: Array | None = None) -> Array:
        """Return the data term times x with all that `penalty` leaves out, in a new array or in ``out``."""

    def penalty(self, x: Array) -> Array | None:
        """Return the penalty times x in a new array, or None if it is part of `data`."""

    def precondition(self, r: Array, out: Array | None = None) -> tuple[Array, Array | None]:
        """Return z, the residual r preconditioned, in a new array or in ``out``, and the penalty of z or None."""

    @property
    def inverse_diagonal(self) -> Array | None:
        """What r is multiplied by where that is all the preconditioner does; else None."""


@dataclass(frozen=True)
class Convergence:
    """How the iterations ended: their number, the residual relative to that of a constant, and the last relative change.

    ``change`` is how far the solution would still move: what it moved over the last seventh of the
    iterations, and how much less that was than before, root mean square over the grid and relative
    to its distance from the best constant.
    """

    iterations: int
    residual: float
    change: float


def conjugate_gradients(
    system: System,
    b: Array,
    start: Array,
    *,
    tolerance: float,
    limit: int,
    origin: Array | None = None,
    reference: Array | None = None,
    progress: Callable[[int, float], Any] | None = None,
) -> tuple[Array, Convergence]:
    """Return x (C, ...) that has stopped moving: by less than ``tolerance`` from here on, as far as the last moves tell.

    The residual, in the norm of the preconditioner, must be below ``tolerance`` too. Alone it would
    not do: where there are no points it is small however far from the solution x is.

    Parameters
    ----------
    system : System
        What to solve.
    b : array of shape (C, ...)
        Right-hand sides; each has its own step lengths.
    start : array of shape (C, ...)
        Where to start; overwritten with the solution.
    tolerance, limit : float, int
        When to stop, and after how many iterations to give up with `ConvergenceError`.
    origin : array that broadcasts to (C, ...), optional
        Where distances are measured from; by default 0.
    reference : array of shape (C,), optional
        Norms of residuals to measure against; by default those of zero.
    progress : function, optional
        Called with (iterations, relative residual).
    """
    x = start
    r = b - system.data(x)
    of_start = system.penalty(x)
    if of_start is not None:
        r -= of_start
    z, penalty_p = system.precondition(r)
    rz = _dot(r, z)
    whole = np.sqrt(_dot(b, system.precondition(b)[0]).clip(0.0))  # the residual of zero
    scale = whole if reference is None else reference
    scale = np.where(scale > 0, scale, 1.0)
    eps = float(np.finfo(b.dtype).eps)
    floor = eps * whole
    p, q = z, np.empty_like(b)
    spare = np.empty_like(b)
    # moves below this are rounding, by the size of what the distances are measured from
    level = (
        np.zeros(len(b)) if origin is None else np.array([float(np.abs(at).max()) for at in origin])
    )
    rounding = 10 * eps / tolerance * level * math.sqrt(b[0].size)
    moved, speed = np.full(len(b), np.inf), list[Array]()
    snapshot, before, looked, look = x.copy(), 0, 0, FIRST_LOOK
    for iteration in range(limit + 1):
        norms = np.sqrt(np.maximum(rz, 0.0))
        if not np.all(np.isfinite(norms)):
            raise ConvergenceError(
                _ADVICE.format(what="the numbers overflowed", iterations=iteration)
            )
        if progress is not None:
            progress(iteration, float(np.max(norms / scale)))
        if iteration == look:
            span = np.maximum(_distance(x, origin), rounding)
            # per iteration
            speed.append(_distance(x, snapshot) / np.where(span > 0, span, 1.0) / (look - looked))
            moved = _still_to_come(speed, look - looked, looked - before)
            snapshot[...] = x
            before, looked, look = looked, look, max(look + 2, math.ceil(look / (1 - LOOK_BACK)))
        small = norms <= np.maximum(tolerance * scale, floor)
        active = ~(small & (moved <= tolerance)) & (norms > floor)
        if not active.any():
            return x, Convergence(
                iteration,
                float(np.max(norms / scale)),
                float(np.max(moved, where=norms > floor, initial=0.0)),
            )
        if iteration == limit:
            break
        q = system.data(p, q)
        if penalty_p is not None:
            _add_scaled(q, penalty_p, np.ones(len(b)))
        pq = _dot(p, q)
        step = np.where(active & (pq > 0), rz / np.where(pq > 0, pq, 1.0), 0.0)
        if not np.any(step):
            raise ConvergenceError(_ADVICE.format(what="rounding stalled it", iterations=iteration))
        if system.inverse_diagonal is not None:
            z, penalty_z, new = (
                spare,
                None,
                _advance(x, p, r, q, spare, system.inverse_diagonal, step),
            )
        else:
            _add_scaled(x, p, step)
            _add_scaled(r, q, -step)
            z, penalty_z = system.precondition(r, spare)
            new = _dot(r, z)
        beta = np.where(active & (rz > 0), new / np.where(rz > 0, rz, 1.0), 0.0)
        rz = new
        # p = z + beta p, and with it its penalty, which is never computed anew
        _add_scaled(z, p, beta)
        if penalty_p is not None and penalty_z is not None:
            _add_scaled(penalty_z, penalty_p, beta)
        # an array of that size is not made anew in every round
        spare, p, penalty_p = p, z, penalty_z
    what = (
        f"the solution still moved by {float(np.max(moved)):.2g}, the tolerance is {tolerance:.2g}"
    )
    raise ConvergenceError(_ADVICE.format(what=what, iterations=limit))


_ADVICE = (
    "conjugate gradients: after {iterations} iterations {what}. Use more roughness or a ridge, a coarser grid, a larger "
    "tolerance= or iterations=, or float64 values."
)


def _still_to_come(speed: list[Array], window: int, window_before: int) -> Array:
    """Return how far x will still move if its speed goes on falling as it did between the last two looks.

    With speed v, falling by a factor rho each iteration, that is v rho^(window/2) / (1 - rho) from
    the end of the window. What was first seen includes the jump from the start, and does not count.
    """
    if len(speed) < 3:
        return np.full_like(speed[-1], np.inf)
    now, then = speed[-1], speed[-2]
    known = (then > 0) & (now < then)
    rho = np.where(
        known,
        np.where(known, now / np.where(then > 0, then, 1.0), 0.0) ** (2 / (window + window_before)),
        1.0,
    )
    rest = np.where(known, now * rho ** (window / 2) / np.maximum(1 - rho, 1e-12), np.inf)
    return np.minimum(rest, 50 * now)  # rounding makes the factor meaningless in the end


def _dot(a: Array, b: Array) -> Array:
    # einsum, not BLAS: its threads would go on spinning and take the cores from the transforms
    return np.array([_inner(u.reshape(-1), v.reshape(-1)) for u, v in zip(a, b, strict=True)])


def _inner(u: Array, v: Array) -> float:
    return math.fsum(each_slab(lambda i, j: float(np.einsum("i,i->", u[i:j], v[i:j])), len(u), 1))


def _add_scaled(target: Array, other: Array, factors: Array) -> None:
    """Add ``factors`` (C,) times ``other`` to ``target``, in place, a slab at a time."""

    def work(y: Array, x: Array, a: Any, i: int, j: int) -> None:
        y[i:j] += x[i:j] * a

    for y, x, a in zip(target, other, factors, strict=True):
        if a:
            flat = y.reshape(-1), x.reshape(-1)
            each_slab(functools.partial(work, *flat, target.dtype.type(a)), y.size, 1)


def _advance(
    x: Array, p: Array, r: Array, q: Array, z: Array, inverse: Array, step: Array
) -> Array:
    """Do x += step p, r -= step q, z = inverse r and return the products of r and z, all in one pass over the memory."""

    def work(c: int, a: Any, i: int, j: int) -> float:
        part = slice(i, j)
        if a:
            flat[0][c, part] += a * flat[1][c, part]
            flat[2][c, part] -= a * flat[3][c, part]
        np.multiply(flat[2][c, part], scale[part], out=flat[4][c, part])
        return float(np.einsum("i,i->", flat[2][c, part], flat[4][c, part]))

    flat = [array.reshape(len(x), -1) for array in (x, p, r, q, z)]
    scale = inverse.reshape(-1)
    steps = [x.dtype.type(a) for a in step]
    return np.array(
        [
            math.fsum(each_slab(functools.partial(work, c, a), len(scale), 1))
            for c, a in enumerate(steps)
        ]
    )


def _distance(x: Array, origin: Array | None) -> Array:
    """Return the norm of x - origin for each right-hand side, (C,)."""
    if origin is None:
        return np.sqrt(_dot(x, x))

    def work(one: Array, at: Array, i: int, j: int) -> float:
        away = (one[i:j] - at[i:j]).reshape(-1)
        return float(np.einsum("i,i->", away, away))

    pairs = zip(x, np.broadcast_to(origin, x.shape), strict=True)
    squares = [
        each_slab(functools.partial(work, *pair), x.shape[1], math.prod(x.shape[2:]))
        for pair in pairs
    ]
    return np.sqrt([math.fsum(parts) for parts in squares])
