"""`fit_points`: values at scattered points in, a field out; what is left open is chosen from the data."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, fit_overflow, problem, real, real_numbers, whole
from kronfield._core.copies import NeedsSamples
from kronfield._core.frames import Frame, sample_frame
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.evaluation import at_points
from kronfield.field.uncertainty import Uncertainty
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.options import ITERATIONS, PointOptions
from kronfield.fitting.point_choice import (
    PointChoice,
    PointSamples,
    choose_penalty,
    choose_points,
)
from kronfield.fitting.point_grids import Lattice, find_lattice
from kronfield.fitting.report import Candidate, PointReport
from kronfield.fitting.settings import Settings
from kronfield.fitting.splines import tension_encoding
from kronfield.fitting.wrap_up import wrap_up
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import Penalty, Progress

# The solver's tolerance where none is given, and the range of one that is derived from the expected
# error: a tighter one is below the rounding of float32, a looser one can be seen.
TOLERANCE, TIGHTEST, LOOSEST = 1e-3, 1e-6, 2e-2


@with_one_blas_thread
def fit_points(
    points: Any,
    values: Any,
    encoding: Kronecker | Embedder | None = None,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    weights: Any = None,
    ridge: float | None = None,
    roughness: tuple[float, float] | None = None,
    units: Sequence[float] | None = None,
    rows: str | None = None,
    tolerance: float | None = None,
    iterations: int = ITERATIONS,
    seed: int = 0,
    progress: Callable[[int, float], Any] | None = None,
    settings: Settings | None = None,
) -> Field:
    """Return the field that fits values at scattered points.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> rng = np.random.default_rng(0)
    >>> points = rng.random((500, 2))
    >>> field = kf.fit_points(points, np.sin(4 * points[:, 0]) + points[:, 1])
    >>> field(np.array([[0.3, 0.6]])).round(2), round(np.sin(1.2) + 0.6, 2)
    (array([1.53]), np.float64(1.53))
    >>> hats = kf.Triangle(32, 2 / 32)
    >>> kf.fit_points(points, points, hats, roughness=(0.0, 1e-6)).on_grid((50, 50)).shape
    (50, 50, 2)

    Parameters
    ----------
    points : array of shape (P, D)
        Positions in any units; duplicates and clusters are fine.
    values : array of shape (P,) or (P, C)
        Real, integer or complex. A point with NaN or a masked value is dropped and counted in the
        report.
    encoding : Kronecker or Embedder, optional
        By default chosen from the data, with its grid: Gaussians, splines or hats. One embedder
        stands for the same on each axis.
    domain : sequence of D pairs (low, high), optional
        Where the field is defined and the unit interval of the embedders lies; by default the box
        of the points.
    weights : array of shape (P,), optional
        How much each point counts: one over the variance of its noise.
    ridge : float, optional
        Weight of the sum of squared weights.
    roughness : (float, float), optional
        What to add to the mean squared residual: these times the mean of |gradient|^2 and of
        |second derivatives|^2, taken from differences of weights. By default chosen by points held
        out, unless a ridge is given or Gaussians are chosen.
    units : sequence of D floats, optional
        A length on each axis; derivatives are by position in these units, so that axes of different
        kinds (metres and seconds, say) can be compared. By default 1 if a roughness is given; where
        one is chosen, so that points lie equally far apart on every axis.
    rows : "exact", "blending" or "linear", optional
        Exact features of every point (sparse where features are local), the paper's blending on a
        virtual grid, or linear blending there. By default exact where a point sees no more than 256
        features, or all points together no more than 4 million, else the paper's.
    tolerance : float, optional
        How far the solver may stop from the solution, relative to the spread of the field; by
        default 1e-3, or a twentieth of the error expected where settings are chosen.
    iterations : int
        The most the solver may take; if they are not enough, `ConvergenceError` is raised.
    seed : int
        Decides which points are held out.
    progress : function, optional
        Called with (iteration, relative residual) during the final solve.
    settings : Settings, optional
        Other decisions than `kronfield.fitting.settings.DEFAULT`, for experiments.

    Returns
    -------
    Field
        With what was done in ``field.report``, and ``field.standard_error``.
    """
    started = time.perf_counter()
    given = PointInput(points, values, weights, domain, encoding)
    options = PointOptions.checked(
        given.D,
        ridge=ridge,
        roughness=roughness,
        units=units,
        rows=rows,
        tolerance=tolerance,
        iterations=iterations,
        seed=seed,
        progress=progress,
        settings=settings,
    )
    lattice = None
    if given.encoding is None:
        lattice = find_lattice(given.points, options.settings.points.sparsest_lattice)
        if lattice is not None and given.domain is not None:
            lattice = [
                _covering(axis, *pair) for axis, pair in zip(lattice, given.domain, strict=True)
            ]
    return fit_checked(given, lattice, options, started)


def fit_checked(
    given: PointInput,
    lattice: list[Lattice] | None,
    options: PointOptions,
    started: float,
    frames: tuple[Frame, ...] | None = None,
    loosest: float = LOOSEST,
) -> Field:
    """Fit checked input: choose, assemble, solve, wrap up. ``frames`` belong to a given encoding.

    ``loosest`` is the largest tolerance that may be chosen.
    """
    if options.penalty is not None:  # the ridge goes with the weights, which may have been scaled
        ridge = scaled_ridge(options.penalty.ridge, -given.weight_exponent)
        options = replace(options, penalty=replace(options.penalty, ridge=ridge))
    scale = float(np.abs(given.values).max()) or 1.0
    values = given.values / given.dtype.type(scale)
    samples = PointSamples(given.points, values, given.weights)
    if given.encoding is None:
        box = given.domain or given.box
        if lattice is not None:
            box = [
                (axis.origin, axis.origin + axis.step * max(axis.count - 1, 1)) for axis in lattice
            ]
        choice = choose_points(samples, box, lattice, options)
    else:
        choice = choose_penalty(samples, given.encoding, frames or given.frames(), options)
    tolerance = options.tolerance
    if tolerance is None:
        tolerance = TOLERANCE
        if choice.candidates:
            part = options.settings.points.part_of_error
            tolerance = min(max(part * choice.relative_error, TIGHTEST), loosest)
        if given.dtype == np.float32:
            tolerance = max(tolerance, 1e-5)
    rule = RowRule.choose(choice.encoding, choice.frames, options.rows, len(given.points))
    level = _Constant.of(choice, given.points, given.weights)

    fitted = PointFit(given, lattice, choice, rule, level, options, tolerance)
    return fitted.field(given.values, choice.candidates, started)


class PointFit:
    """The way from values at points to their field, with all that was given or chosen; fits other values too."""

    def __init__(
        self,
        given: PointInput,
        lattice: list[Lattice] | None,
        choice: PointChoice,
        rule: RowRule,
        level: _Constant,
        options: PointOptions,
        tolerance: float,
    ) -> None:
        self.given, self.lattice, self.choice, self.rule = given, lattice, choice, rule
        self.level, self.options, self.tolerance = level, options, tolerance

    def without_samples(self) -> NeedsSamples:
        """Return what a pickled field keeps of this."""
        return NeedsSamples(
            "refit",
            "the field that fit_points returned",
            "Call fit_points with the points, field.encoding and the penalty.",
        )

    def __call__(self, values: Any) -> Field:
        """Return the field of other values at the same points."""
        started, given = time.perf_counter(), self.given
        new = PointInput(given.points, values, given.weights, None, None)
        if new.dropped or (new.dtype, new.is_complex, new.channels) != (
            given.dtype,
            given.is_complex,
            given.channels,
        ):
            raise problem(
                "values",
                describe(values),
                f"{len(given.points)} values as before",
                "Use fit_points.",
            )
        return self.field(new.values, [], started)

    def field(self, values: Array, candidates: Sequence[Candidate], started: float) -> Field:
        """Solve for values (C, P), and make the field and its report."""
        given, choice, options = self.given, self.choice, self.options
        scale = float(np.abs(values).max()) or 1.0  # all is solved for values up to 1
        left, constant = self.level.split(values / given.dtype.type(scale))
        equations = assemble(self.rule, given.points, left, given.weights)
        solve = functools.partial(
            equations.solve, choice.penalty, limit=options.iterations, progress=options.progress
        )
        try:
            solution = solve(tolerance=self.tolerance)
        except ConvergenceError:
            if options.tolerance is not None or not choice.candidates:
                raise
            # where nobody asked for more; the report says how far it came
            solution = solve(tolerance=LOOSEST)
        solution = replace(solution, weights=self.level.join(solution.weights, constant))
        # wide Gaussians need the digits
        dtype = np.dtype(np.float64) if choice.gaussians is not None else given.dtype
        planes = solution.weights.astype(dtype, copy=False)
        encoding, frames, positions = choice.encoding, choice.frames, self._positions()
        if self.lattice is not None:  # the lattice is complete now: interpolate it smoothly
            encoding, frames, positions, planes = self._complete(self.lattice, planes)
        planes = np.ascontiguousarray(planes) * dtype.type(scale)
        uncertainty = Uncertainty(
            equations,
            choice.penalty,
            self.rule,
            given.points,
            given.weights,
            solution,
            scale,
            options.iterations,
            self.level.unit,
            given.weight_exponent,
        )
        report = PointReport(
            points=len(given.points),
            dropped=given.dropped,
            channels=given.values.shape[0] // (2 if given.is_complex else 1),
            embedders=encoding.embedders,
            rows=self.rule.name,
            method=solution.method,
            reason=solution.reason,
            convergence=solution.convergence,
            penalty=replace(
                choice.penalty, ridge=scaled_ridge(choice.penalty.ridge, given.weight_exponent)
            ),
            chosen_by=choice.chosen_by,
            candidates=candidates,
            seconds=time.perf_counter() - started,
            measure_residual=PointResidual(
                encoding, planes, frames, given.points, values, given.weights, scale
            ),
            measure_freedom=uncertainty.freedom,
        )
        return wrap_up(
            encoding,
            planes,
            frames,
            positions,
            channels=given.channels,
            is_complex=given.is_complex,
            dtype=given.dtype,
            report=report,
            again=self,
            uncertainty=uncertainty,
        )

    def _positions(self) -> list[Array]:
        """Return where `on_grid` evaluates by default: as many positions as there are features."""
        return [
            np.linspace(
                frame.low,
                frame.high,
                max(2, round((frame.high - frame.low) / frame.length * emb.size)),
            )
            for emb, frame in zip(self.choice.encoding.embedders, self.choice.frames, strict=True)
        ]

    def _complete(
        self, lattice: list[Lattice], planes: Array
    ) -> tuple[Kronecker, tuple[Frame, ...], list[Array], Array]:
        """Return encoding, frames, nodes and weights of splines through the values at all nodes of a lattice."""
        given = self.given
        nodes = [axis.origin + axis.step * np.arange(axis.count) for axis in lattice]
        frames = tuple(sample_frame(axis) for axis in nodes)
        if given.domain is not None:
            frames = tuple(
                Frame(f.origin, f.length, *pair)
                for f, pair in zip(frames, given.domain, strict=True)
            )
        encoding = tension_encoding(nodes, frames, self.options.settings.points.lattice_tension)
        complete = planes[(slice(None), *(slice(axis.count) for axis in lattice))]
        return (
            encoding,
            frames,
            nodes,
            GridSolver(encoding, frames, nodes, dtype=given.dtype, smooth=2).solve(complete),
        )


@dataclass(frozen=True, eq=False)
class PointResidual:
    """The root mean square, by weight, of value minus fit at the points, when it is asked for."""

    encoding: Kronecker
    planes: Array
    frames: tuple[Frame, ...]
    points: Array
    values: Array  # (C, P)
    weights: Array | None
    scale: float

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return it, in the units of the values."""
        units = [frame.unit(self.points[:, i]) for i, frame in enumerate(self.frames)]
        away = at_points(self.encoding, self.planes, units, [0] * len(units)).astype(np.float64)
        away -= self.values
        away /= self.scale  # so that squares do not overflow
        return self.scale * math.sqrt(
            float(np.average(np.mean(away**2, axis=0), weights=self.weights))
        )


def scaled_ridge(ridge: float, exponent: int) -> float:
    """Return a ridge times 2 to the ``exponent``, at most 1e300: it goes with the weights of the points."""
    try:
        return min(math.ldexp(ridge, exponent), 1e300)
    except OverflowError:
        return 1e300


@dataclass(frozen=True)
class _Constant:
    """A constant that is taken off the values before they are solved for, and put back into the weights."""

    functional: Array | None  # (P,): the constant of centred values
    share: Array | None  # (P,): their mean
    unit: Array | None  # (K_1, ..., K_D): weights of the function 1
    seen: Array | None  # (P,): what it comes to at the points

    @classmethod
    def of(cls, choice: PointChoice, points: Array, weights: Array | None) -> _Constant:
        if choice.gaussians is None:
            return cls(None, None, None, None)
        share = (
            np.full(len(points), 1 / len(points)) if weights is None else weights / weights.sum()
        )
        unit = functools.reduce(np.multiply.outer, choice.gaussians.of_constant()[0])
        seen = choice.gaussians.rows(points) @ unit.ravel()
        return cls(choice.gaussians.constant(points, weights), share, unit, seen)

    def split(self, values: Array) -> tuple[Array, Array]:
        """Return values (C, P) less their constants, and those (C,)."""
        if self.functional is None or self.share is None or self.seen is None:
            return values, np.zeros(len(values))
        wide = values.astype(np.float64)  # wide Gaussians need the digits
        mean = wide @ self.share
        constant = mean + (wide - mean[:, None]) @ self.functional
        return wide - np.multiply.outer(constant, self.seen), constant

    def join(self, weights: Array, constant: Array) -> Array:
        """Return the weights with the constants in them."""
        return weights if self.unit is None else weights + np.multiply.outer(constant, self.unit)


def _covering(axis: Lattice, low: float, high: float) -> Lattice:
    """Return the lattice extended so that no place of [low, high] is more than half a step from a node."""
    before = max(0, math.ceil((axis.origin - low) / axis.step - 0.5 - 1e-9))
    last = axis.origin + (axis.count - 1) * axis.step
    after = max(0, math.ceil((high - last) / axis.step - 0.5 - 1e-9))
    return Lattice(axis.origin - before * axis.step, axis.step, axis.count + before + after)
