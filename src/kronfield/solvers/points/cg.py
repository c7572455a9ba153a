"""Preconditioned conjugate gradients (Hestenes and Stiefel, 1952) for several right-hand sides.

The iterations stop when both the residual and the estimated remaining change of the solution are
below the tolerance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.errors import KronfieldError
from kronfield._core.records import record
from kronfield._core.slabs import each_slab

# The solution is compared with an earlier estimate for the first time after FIRST_LOOK iterations.
# Later comparisons look back over the fraction LOOK_BACK of all iterations: if convergence is slow,
# a longer window averages over more of them.
LOOK_BACK, FIRST_LOOK = 0.15, 4

# The increments of the last DELAY iterations estimate the error of b'A^-1 b.
DELAY = 10

Progress = Callable[[int, float], Any]


class ConvergenceError(KronfieldError, RuntimeError):
    """The iterations ended before the residual was small enough; nothing was returned.

    ``iterations`` is their number. ``unknowns`` is the last estimate, or None if it is not kept.
    """

    iterations: int = 0
    unknowns: Array | None = None


class System(Protocol):
    """A symmetric system (data + penalty) x = b.

    Some preconditioners also compute the product of the penalty with z. They return it, so that it
    is not computed again. Other preconditioners return None, and the penalty is part of `data`.
    """

    def data(self, x: Array, out: Array | None = None) -> Array:
        """Return the product with x without the part in `penalty`, in a new array or in ``out``."""

    def penalty(self, x: Array) -> Array | None:
        """Return the penalty times x in a new array, or None if it is part of `data`."""

    def precondition(self, r: Array, out: Array | None = None) -> tuple[Array, Array | None]:
        """Return the preconditioned residual z, new or in ``out``, and the penalty of z or None."""

    @property
    def inverse_diagonal(self) -> Array | None:
        """The factors of r in `precondition` if it is diagonal; else None."""


@record
class Convergence:
    """How the iterations ended.

    Attributes
    ----------
    iterations : int
        The number of iterations.
    residual : float
        The norm of the residual, relative to that of the best constant, or of 0 by default.
    change : float
        The estimated remaining change of the solution: root mean square over the grid, relative to
        its distance from the best constant, or from 0 by default.
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
    progress: Progress | None = None,
) -> tuple[Array, Convergence]:
    """Return x (C, ...) once its estimated remaining change is below ``tolerance``.

    The residual, in the norm of the preconditioner, must be below ``tolerance`` too. The residual
    alone is no sufficient criterion: where there are no points it is small even if x is far from
    the solution.

    Parameters
    ----------
    system : System
        The system to solve.
    b : array of shape (C, ...)
        Right-hand sides; each has its own step lengths.
    start : array of shape (C, ...)
        The first estimate; overwritten with the solution.
    tolerance, limit : float, int
        When to stop, and after how many iterations to raise `ConvergenceError`.
    origin : array that broadcasts to (C, ...), optional
        The point from which distances are measured; by default 0.
    reference : array of shape (C,), optional
        The norms to which residuals are relative; by default those of x = 0.
    progress : function, optional
        Called with (iterations, relative residual).
    """
    x = start
    r = _residual(system, b, x)
    z, penalty_p = system.precondition(r)
    rz = _dot(r, z)
    whole = np.sqrt(_dot(b, system.precondition(b)[0]).clip(0.0))  # the residual of x = 0
    scale = whole if reference is None else reference
    scale = np.where(scale > 0, scale, 1.0)
    eps = float(np.finfo(b.dtype).eps)
    floor = eps * whole
    p, q = z, np.empty_like(b)
    spare = np.empty_like(b)
    movement = _Movement(x, origin, rounding=10 * eps / tolerance)
    for iteration in range(limit + 1):
        norms = np.sqrt(np.maximum(rz, 0.0))
        if not np.all(np.isfinite(norms)):
            raise _not_converged("the numbers overflowed", iteration)
        if progress is not None:
            progress(iteration, float(np.max(norms / scale)))
        movement.update(x, iteration)
        small = norms <= np.maximum(tolerance * scale, floor)
        active = ~(small & (movement.remaining <= tolerance)) & (norms > floor)
        if not active.any():
            change = np.max(movement.remaining, where=norms > floor, initial=0.0)
            return x, Convergence(iteration, float(np.max(norms / scale)), float(change))
        if iteration == limit:
            break
        # step = r'z / p'Ap
        q = system.data(p, q)
        if penalty_p is not None:
            _add_scaled(q, penalty_p, np.ones(len(b)))
        step = np.where(active, _quotient(rz, _dot(p, q)), 0.0)
        if not np.any(step):
            raise _not_converged("rounding prevented any progress", iteration)
        z, penalty_z, new = _advance(system, x, p, r, q, spare, step)
        # p = z + beta p with beta = new r'z / old r'z. The same formula updates the penalty of p,
        # which is never computed again.
        beta = np.where(active, _quotient(new, rz), 0.0)
        rz = new
        _add_scaled(z, p, beta)
        if penalty_p is not None and penalty_z is not None:
            _add_scaled(penalty_z, penalty_p, beta)
        # the array of the old p is reused for the next z
        spare, p, penalty_p = p, z, penalty_z
    moved = float(np.max(movement.remaining))
    raise _not_converged(
        f"the solution still moved by {moved:.2g}, the tolerance is {tolerance:.2g}", limit
    )


def inverse_energy(system: System, b: Array, *, tolerance: float, limit: int) -> Array:
    """Return b'A^-1 b for each right-hand side b (C, ...), by conjugate gradients from 0.

    Each iteration adds step r'z to x'b, so that the sum grows towards b'A^-1 b. The error of the
    sum is about the increment of the last DELAY iterations (Golub and Strakos, 1994). Iterations
    stop if that is below ``tolerance`` times the sum, long before x itself is accurate, or after
    ``limit`` iterations.
    """
    r = b.copy()
    z, penalty_p = system.precondition(r)
    p, rz = z.copy(), _dot(r, z)
    total, added = np.zeros(len(b)), list[Array]()
    for _ in range(limit):
        q = system.data(p)
        if penalty_p is not None:
            q = q + penalty_p
        step = _quotient(rz, _dot(p, q))
        added.append(step * rz)
        total = total + added[-1]
        if len(added) >= DELAY and np.all(sum(added[-DELAY:]) <= tolerance * total):
            break
        _add_scaled(r, q, -step)
        z, penalty_z = system.precondition(r)
        new = _dot(r, z)
        beta, rz = _quotient(new, rz), new
        shape = (-1, *(1,) * (b.ndim - 1))
        p = z + beta.reshape(shape).astype(b.dtype) * p
        if penalty_p is not None and penalty_z is not None:
            penalty_p = penalty_z + beta.reshape(shape).astype(b.dtype) * penalty_p
    return total


def _not_converged(what: str, iterations: int) -> ConvergenceError:
    error = ConvergenceError(
        f"conjugate gradients: after {iterations} iterations {what}. Use more roughness or a "
        "ridge, a coarser grid, a larger tolerance= or iterations=, or float64 values."
    )
    error.iterations = iterations
    return error


def _residual(system: System, b: Array, x: Array) -> Array:
    """Return b - A x."""
    r = b - system.data(x)
    penalty = system.penalty(x)
    if penalty is not None:
        r -= penalty
    return r


def _quotient(a: Array, b: Array) -> Array:
    """Return a / b where b is positive, else 0."""
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)


def _advance(
    system: System, x: Array, p: Array, r: Array, q: Array, out: Array, step: Array
) -> tuple[Array, Array | None, Array]:
    """Do x += step p and r -= step q in place; return z, the penalty of z or None, and r'z."""
    if system.inverse_diagonal is not None:
        return out, None, _advance_diagonal(x, p, r, q, out, system.inverse_diagonal, step)
    _add_scaled(x, p, step)
    _add_scaled(r, q, -step)
    z, penalty = system.precondition(r, out)
    return z, penalty, _dot(r, z)


class _Movement:
    """An estimate of the remaining change of x, from its distance to earlier estimates.

    ``remaining`` (C,) is relative to the distance of x from ``origin``. It is infinite until there
    have been three comparisons.
    """

    def __init__(self, x: Array, origin: Array | None, rounding: float) -> None:
        self.remaining = np.full(len(x), np.inf)
        self._origin = origin
        # distances from the origin below this multiple of the origin's own size are rounding
        level = (
            np.zeros(len(x))
            if origin is None
            else np.array([float(np.abs(at).max()) for at in origin])
        )
        self._rounding = rounding * level * math.sqrt(x[0].size)
        self._speeds: list[Array] = []
        self._snapshot = x.copy()
        # the iterations of the last two comparisons and of the next comparison
        self._before, self._last, self._next = 0, 0, FIRST_LOOK

    def update(self, x: Array, iteration: int) -> None:
        """Compare x with the last snapshot, if a comparison is due, and replace the snapshot."""
        if iteration != self._next:
            return
        window = iteration - self._last
        span = np.maximum(_distance(x, self._origin), self._rounding)
        moved = _distance(x, self._snapshot) / np.where(span > 0, span, 1.0)
        self._speeds.append(moved / window)  # per iteration
        self.remaining = _still_to_come(self._speeds, window, self._last - self._before)
        self._snapshot[...] = x
        self._before, self._last = self._last, iteration
        self._next = max(iteration + 2, math.ceil(iteration / (1 - LOOK_BACK)))


def _still_to_come(speeds: list[Array], window: int, window_before: int) -> Array:
    """Return the remaining change of x if its speed keeps falling at the rate of the last windows.

    If the speed v falls by a factor rho in each iteration, the remaining distance at the end of a
    window is v rho^(window/2) / (1 - rho). The first window contains the jump from the start and is
    not used.
    """
    if len(speeds) < 3:
        return np.full_like(speeds[-1], np.inf)
    now, then = speeds[-1], speeds[-2]
    known = (then > 0) & (now < then)
    rho = np.where(
        known,
        np.where(known, now / np.where(then > 0, then, 1.0), 0.0) ** (2 / (window + window_before)),
        1.0,
    )
    rest = np.where(known, now * rho ** (window / 2) / np.maximum(1 - rho, 1e-12), np.inf)
    return np.minimum(rest, 50 * now)  # near the end rounding makes rho meaningless


def _dot(a: Array, b: Array) -> Array:
    # einsum instead of BLAS: waiting BLAS threads would occupy the cores that the transforms need
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


def _advance_diagonal(
    x: Array, p: Array, r: Array, q: Array, z: Array, inverse: Array, step: Array
) -> Array:
    """Do x += step p, r -= step q and z = inverse r in one pass over the memory; return r'z."""

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

    def work(plane: Array, at: Array, i: int, j: int) -> float:
        away = (plane[i:j] - at[i:j]).reshape(-1)
        return float(np.einsum("i,i->", away, away))

    pairs = zip(x, np.broadcast_to(origin, x.shape), strict=True)
    squares = [
        each_slab(functools.partial(work, *pair), x.shape[1], math.prod(x.shape[2:]))
        for pair in pairs
    ]
    return np.sqrt([math.fsum(parts) for parts in squares])
