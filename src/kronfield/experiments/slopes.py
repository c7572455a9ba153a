"""Measured complexity: CPU time against size for the products that the paper counts.

The slope of log time against log N is the exponent. Each job runs once before it is timed, since
the first use of memory takes longer. Other work on the machine shares caches and memory, and adds
noise. `measure` takes less than a minute of CPU time.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.threads import one_blas_thread
from kronfield.embedders import Gaussian
from kronfield.encoding import Kronecker
from kronfield.encoding.blending import Blending
from kronfield.encoding.modes import multilinear
from kronfield.experiments.paired import Number
from kronfield.experiments.results import Row, fingerprint

NAME = "slopes"
# A job is repeated for at least LEAST_SECONDS, which gives the mean time of a call. The least of
# REPEATS means counts.
LEAST_SECONDS, REPEATS = 0.02, 5


class Job(NamedTuple):
    """A product by one way of computing it.

    ``make(N)`` returns the function to time; ``exponent`` is the paper's for N = K.
    """

    dimensions: int
    exponent: float
    sizes: tuple[int, ...]
    make: Callable[[int], Callable[[], Any]]


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


def _separable(N: int, D: int) -> Callable[[], Any]:
    """W x_1 Psi x_2 ... x_D Psi: sum_i N^i K^(D+1-i) = D N^(D+1) products."""
    weights, matrices = _random(*[N] * D), [_random(N, N)] * D
    return lambda: multilinear(weights, matrices)


def _naive(N: int) -> Callable[[], Any]:
    """(Psi x Psi) vec(W) with the Kronecker product formed, N rows at a time: N^4 products."""
    weights, Psi = _random(N * N), _random(N, N)
    rows, values = np.empty((N, N, N)), np.empty((N, N))

    def product() -> Array:
        for i in range(N):
            np.multiply(Psi[i, None, :, None], Psi[:, None, :], out=rows)
            np.dot(rows.reshape(N, N * N), weights, out=values[i])
        return values.ravel()

    return product


def _simple(N: int) -> Callable[[], Any]:
    """[Psi(x), Psi(y)] w with a row for every point, N rows at a time: 2 N^3 products."""
    weights, Psi = _random(2 * N), _random(N, N)
    rows, values = np.empty((N, 2 * N)), np.empty((N, N))

    def product() -> Array:
        for i in range(N):
            rows[:, :N], rows[:, N:] = Psi[i], Psi
            np.dot(rows, weights, out=values[i])
        return values.ravel()

    return product


def _blended(N: int) -> Callable[[], Any]:
    """B z for N^2 points, with 4 entries per row: 4 N^2 products."""
    emb = Gaussian(N, 1 / N)
    blending = Blending(Kronecker(emb, emb), [np.linspace(0.0, 1.0, N + 1)] * 2)
    matrix = blending.matrix(np.random.default_rng(0).random((N * N, 2)))
    values = _random((N + 1) ** 2)
    return lambda: matrix @ values


# The speed of memory limits products that read every number once. Their arrays, or the rows formed
# at a time, stay below 2 MB, a common size of the second-level cache: beyond it, reading is slower.
JOBS = {
    "separable, 2 axes": Job(
        2, 3, (96, 144, 216, 324, 486, 729), functools.partial(_separable, D=2)
    ),
    "separable, 3 axes": Job(3, 4, (24, 32, 45, 64, 90), functools.partial(_separable, D=3)),
    "Kronecker product formed, 2 axes": Job(2, 4, (24, 30, 38, 48, 60), _naive),
    "simple encoding, 2 axes": Job(2, 3, (80, 110, 150, 210, 290), _simple),
    "blending matrix, 2 axes": Job(2, 2, (72, 90, 112, 140, 176), _blended),
}
# Sizes (N, K) for the count of products N K (N + K), where N and K vary independently.
RECTANGLES = tuple((N, K) for N in (128, 256, 512) for K in (128, 256, 512))


def measure(*, quick: bool = False) -> list[Row]:
    """Return the CPU seconds of every job at every size, as rows.

    With ``quick``, only the three smallest sizes of each job are measured, once.
    """
    rows = list[Row]()
    with one_blas_thread():
        for name, job in JOBS.items():
            for N in job.sizes[:3] if quick else job.sizes:
                rows.append(_row(name, N, N, _seconds(job.make(N), quick), quick))
        for N, K in RECTANGLES[:3] if quick else RECTANGLES:
            weights, matrices = _random(K, K), [_random(N, K)] * 2
            seconds = _seconds(functools.partial(multilinear, weights, matrices), quick)
            rows.append(_row("rectangles", N, K, seconds, quick))
    return rows


def _row(job: str, N: int, K: int, seconds: float, quick: bool) -> Row:
    decisive: Row = {"spec": NAME, "job": job, "N": N, "K": K}
    if quick:  # another fingerprint: a quick run does not replace a full one
        decisive["quick"] = True
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {**decisive, "fingerprint": fingerprint(decisive), "seconds": seconds, "load": load}


def _seconds(function: Callable[[], Any], quick: bool) -> float:
    """Return the CPU seconds of a call: the least of several means."""
    function()
    means = list[float]()
    for _ in range(1 if quick else REPEATS):
        calls, started = 0, time.process_time()
        while True:
            function()
            calls += 1
            taken = time.process_time() - started
            if quick or taken > LEAST_SECONDS:
                break
        means.append(taken / calls)
    return max(min(means), 1e-9)


class Slope(NamedTuple):
    """The slope of a line through points, with its 95 % interval."""

    value: float
    low: float
    high: float


def slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Return the slope of log y against log x by least squares, and its 95 % interval.

    Examples
    --------
    >>> from kronfield.experiments.slopes import slope
    >>> [round(part, 6) for part in slope([1.0, 2.0, 4.0], [3.0, 24.0, 192.0])]
    [3.0, 3.0, 3.0]
    """
    from scipy.stats import t

    a, b = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    centred = a - a.mean()
    value = float(centred @ b / (centred @ centred))
    if len(a) < 3:
        return Slope(value, -math.inf, math.inf)
    residual = b - b.mean() - value * centred
    error = math.sqrt(float(residual @ residual) / (len(a) - 2) / float(centred @ centred))
    half = float(t.ppf(0.975, len(a) - 2)) * error
    return Slope(value, value - half, value + half)


def figures(rows: Iterable[Row]) -> dict[str, Number]:
    """Return the slopes with their intervals, and how far they are from the paper's exponents.

    The n of a slope is the number of sizes. Quick measurements count only if there are no others.
    """
    every, found, apart = list(rows), dict[str, Number](), list[float]()
    given = [row for row in every if not row.get("quick")] or every
    for name, job in JOBS.items():
        some = [row for row in given if row["job"] == name]
        if len(some) < 3:
            return {}
        line = slope([row["N"] for row in some], [row["seconds"] for row in some])
        apart.append(abs(line.value - job.exponent))
        found[f"{name}: slope"] = Number(line.value, "", line.low, line.high, len(some))
        found[f"{name}: the paper's exponent"] = Number(job.exponent)
    some = [row for row in given if row["job"] == "rectangles"]
    if not some:
        return {}
    per_product = [row["seconds"] / (row["N"] * row["K"] * (row["N"] + row["K"])) for row in some]
    load = max((row["load"] or 0.0 for row in given), default=0.0)
    return found | {
        "seconds per N K (N + K), largest over least": Number(max(per_product) / min(per_product)),
        "largest distance of a slope from its exponent": Number(max(apart)),
        "load of the machine": Number(load),
    }
