"""Penalised smoothing of values on a complete lattice of any size, without an eigenbasis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import Frame, mean_step
from kronfield.embedders import Triangle
from kronfield.encoding import Kronecker
from kronfield.solvers.points.normal import NormalEquations, Penalty
from kronfield.solvers.points.stencil import Stencil

# The tolerance of conjugate gradients, and the most iterations. In cosines the system is nearly
# diagonal, and a dozen iterations are enough.
TOLERANCE, ITERATIONS = 1e-5, 500


def smooth_lattice(values: Array, steps: Sequence[float], roughness: tuple[float, float]) -> Array:
    """Return the values u that minimise the mean of (y - u)^2 plus a roughness, on an even lattice.

    The roughness is the weighted mean squares of first and second derivatives, from differences
    between neighbouring samples. On a line this is the smoother of Whittaker (1923), solved as a
    band; on other lattices it is solved by conjugate gradients in cosines.

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D)
        One channel.
    steps : sequence of float
        The distance between neighbouring samples on each axis.
    roughness : (float, float)
        The weights of the mean squares of first and second derivatives.
    """
    shape, n = values.shape, values.size
    encoding = Kronecker(*(Triangle(count, 2.0 / count) for count in shape))
    frames = tuple(
        Frame(0.0, step * count, 0.0, step * max(count - 1, 1))
        for step, count in zip(steps, shape, strict=True)
    )
    term = Stencil(shape, (1,) * len(shape))  # every sample is on its own node: B'WB = I
    term.diagonal[...] = 1.0
    if len(shape) > 1:
        term = term.astype(values.dtype)
    equations = NormalEquations(
        encoding,
        frames,
        term,
        values[None].astype(np.float64 if len(shape) == 1 else values.dtype),
        np.array([float(np.sum(np.square(values, dtype=np.float64)))]),
        float(n),
        n,
        [np.array([float(n), 0.0]) for _ in shape],
    )
    penalty = Penalty(roughness=roughness)
    solution = equations.solve(penalty, tolerance=TOLERANCE, limit=ITERATIONS)
    assert math.prod(solution.weights.shape) == n
    return solution.weights[0].astype(values.dtype, copy=False)


def lattice_freedom(axes: Sequence[Array], roughness: tuple[float, float]) -> float:
    """Return the trace of the smoother with reflecting ends: the sum of 1 / (1 + penalty).

    In cosines the penalty of frequency k on an axis of N samples has the factor
    w = (2 sin(pi k / 2N) / step)^2 for first derivatives, and the square of their sum over axes for
    second derivatives.
    """
    total = np.zeros(())
    for x in axes:
        step = mean_step(x) if len(x) > 1 else 1.0
        w = (2 * np.sin(np.pi * np.arange(len(x)) / (2 * len(x))) / step) ** 2
        total = np.add.outer(total, w)
    return float(np.sum(1 / (1 + roughness[0] * total + roughness[1] * total**2)))
