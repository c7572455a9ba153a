"""`fit_points`: values at scattered points to a field; open settings are chosen from the data."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.frames import Frame, sample_frame
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.evaluation import at_points
from kronfield.field.uncertainty import Uncertainty
from kronfield.fitting.filling_choice import MeanError
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.nested import nested_start
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_choice import (
    PointChoice,
    PointSamples,
    choose_penalty,
    choose_points,
)
from kronfield.fitting.point_grids import Lattice, find_lattice
from kronfield.fitting.report import Candidate, PointReport
from kronfield.fitting.settings import Settings, changed
from kronfield.fitting.splines import tension_encoding
from kronfield.fitting.wrap_up import wrap_up
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.assemble import RowRule, assemble
from kronfield.solvers.points.cg import ConvergenceError

if TYPE_CHECKING:
    from kronfield.fitting.filled import LatticeFiller

# The smallest tolerance for float32: beyond it rounding errors dominate the residual.
SINGLE_TOLERANCE = 1e-5


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
    iterations: int | None = None,
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
        Positions in any units; duplicates and clusters are allowed.
    values : array of shape (P,) or (P, C)
        Real, integer or complex. Points with NaN or a masked value are dropped and counted in the
        report.
    encoding : Kronecker or Embedder, optional
        The features. By default Gaussians, splines or hats, chosen from the data with their grid.
        A single embedder is used on every axis.
    domain : sequence of D pairs (low, high), optional
        The box on which the field is defined, and the unit interval of the embedders; by default
        the bounding box of the points.
    weights : array of shape (P,), optional
        The weight of each point: one over the variance of its noise.
    ridge : float, optional
        The factor of the sum of squared weights of the features, which is added to the sum of
        squared residuals.
    roughness : (float, float), optional
        The factors of the mean of |gradient|^2 and of |second derivatives|^2, which are added to
        the mean squared residual. Derivatives are differences of the weights of the features
        (Eilers and Marx, 1996). By default chosen by the error at held-out points, unless a ridge
        is given or Gaussians are chosen.
    units : sequence of D floats, optional
        The unit of length on each axis. Derivatives are with respect to position in these units,
        so that axes of different kinds (metres and seconds, for example) can be compared. By
        default 1 if a roughness is given. If the roughness is chosen, the units are those in which
        points are equally far apart on every axis.
    rows : "exact", "blending" or "linear", optional
        How the features of a point are computed: exactly, by the paper's blending on a virtual
        grid, or by linear blending on that grid. By default exactly if at most 256 features are
        within reach of a point, or at most 4 million of all points together; otherwise by the
        paper's blending.
    tolerance : float, optional
        The largest error of the solver, relative to the spread of the field. By default 1e-3, or a
        twentieth of the predicted error if settings are chosen from the data.
    iterations : int, optional
        The maximum number of iterations of the solver, by default 2000. `ConvergenceError` is
        raised if it has not converged by then.
    seed : int
        Seed of the random choice of held-out points.
    progress : function, optional
        Called with (iteration, relative residual) during the final solve.
    settings : Settings, optional
        Settings for experiments, to be used instead of `kronfield.fitting.settings.DEFAULT`.

    Returns
    -------
    Field
        The fit; ``field.report`` states the settings and the residual.

    See Also
    --------
    fit : Values on a grid.
    Statistics : Points in chunks that need not fit in memory together.

    References
    ----------
    P. H. C. Eilers and B. D. Marx, Flexible smoothing with B-splines and penalties, Statistical
    Science 11 (1996).
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
    lattice, filler = None, None
    if given.encoding is None:
        lattice = find_lattice(given.points, options.settings.points)
        if lattice is not None and given.domain is not None:
            lattice = [
                _covering(axis, *pair) for axis, pair in zip(lattice, given.domain, strict=True)
            ]
        if lattice is not None:
            # here, since a filled lattice is fitted by `fit`, which fits its other gaps by points
            from kronfield.fitting.filled import LatticeFiller

            filler = LatticeFiller.of_points(given, lattice, options, started)
            field = None if filler is None else filler.holes()
            if field is not None:
                return field
    return fit_checked(given, lattice, options, started, filler=filler)


def fit_checked(
    given: PointInput,
    lattice: list[Lattice] | None,
    options: PointOptions,
    started: float,
    frames: tuple[Frame, ...] | None = None,
    loosest: float | None = None,
    filler: LatticeFiller | None = None,
) -> Field:
    """Return the field of checked input: choose the open settings, then assemble and solve.

    Parameters
    ----------
    given : PointInput
        Points, values and weights.
    lattice : list of Lattice, or None
        The lattice that the points lie on, if any.
    options : PointOptions
        The options of the caller.
    started : float
        The time at which the fit started.
    frames : tuple of Frame, optional
        The frames of a given encoding.
    loosest : float, optional
        The largest tolerance that may be chosen, by default as the settings say.
    filler : LatticeFiller, optional
        Fills the lattice instead, if that predicts held-out samples better.
    """
    if options.penalty is not None:  # the ridge is scaled like the weights of the points
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
        if filler is not None and filler.ratio is not None:
            # chosen at samples hidden in the shape of the holes: what suits single points need not
            # suit wide gaps
            fixed = changed(options.settings, "search", "ratios", (filler.ratio,))
            options = replace(options, settings=fixed)
        choice = choose_points(samples, box, lattice, options)
        if filler is not None and choice.held is not None:
            field = filler.scattered(choice, scale)
            if field is not None:
                return field
        if filler is not None:
            choice = replace(choice, candidates=[*filler.tried, *choice.candidates])
            choice = replace(choice, chosen_by="; ".join([choice.chosen_by, *filler.reasons]))
    else:
        choice = choose_penalty(samples, given.encoding, frames or given.frames(), options)
    tolerance = _tolerance(choice, options, given.dtype, loosest)
    limits = options.settings.points.row_limits
    rule = RowRule.choose(choice.encoding, choice.frames, options.rows, len(given.points), limits)
    level = _Constant.of(choice, given.points, given.weights)

    fitted = PointFit(given, lattice, choice, rule, level, options, tolerance)
    field = fitted.field(given.values, choice.candidates, started)
    if filler is not None and not math.isnan(filler.expected[0]):
        # of samples hidden in the shape of the holes, which are harder than samples at random
        report: Any = field.report
        report.expected_error, report.expected_error_uncertainty = filler.expected
    return field


def _tolerance(
    choice: PointChoice, options: PointOptions, dtype: np.dtype[Any], loosest: float | None = None
) -> float:
    """Return the tolerance of the solver: as given, or a fraction of the predicted error."""
    if options.tolerance is not None:
        return options.tolerance
    settings = options.settings.points
    tolerance = settings.tolerance
    if choice.candidates:
        tolerance = max(settings.part_of_error * choice.relative_error, settings.tightest)
        tolerance = min(tolerance, settings.loosest if loosest is None else loosest)
    return max(tolerance, SINGLE_TOLERANCE) if dtype == np.float32 else tolerance


class PointFit:
    """Fits values at known points with all settings that were given or chosen."""

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
        """Return the placeholder for this object in a pickled field."""
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
                f"{len(given.points)} values with the same dtype and channels as before",
                "To fit other values, call fit_points.",
            )
        return self.field(new.values, [], started)

    def field(self, values: Array, candidates: Sequence[Candidate], started: float) -> Field:
        """Return the field of values (C, P), with its report."""
        given, choice, options = self.given, self.choice, self.options
        scale = float(np.abs(values).max()) or 1.0  # values are divided by their largest
        left, constant = self.level.split(values / given.dtype.type(scale))
        equations = assemble(self.rule, given.points, left, given.weights)
        solve = functools.partial(
            equations.solve, choice.penalty, limit=options.iterations, progress=options.progress
        )
        start = None
        if choice.grid is not None:
            start = nested_start(
                choice.grid,
                equations,
                choice.penalty,
                given.points,
                left,
                given.weights,
                tolerance=self.tolerance,
            )
        try:
            solution = solve(tolerance=self.tolerance, start=start)
        except ConvergenceError as error:
            if options.tolerance is not None or not choice.candidates:
                raise
            # No tolerance was given: accept the loosest. The report states the remaining error.
            loosest = options.settings.points.loosest
            solution = solve(tolerance=loosest, start=error.unknowns)
        solution = replace(solution, weights=self.level.join(solution.weights, constant))
        # Wide Gaussians are ill conditioned and need float64.
        dtype = np.dtype(np.float64) if choice.gaussians is not None else given.dtype
        planes = solution.weights.astype(dtype, copy=False)
        encoding, frames, positions = choice.encoding, choice.frames, self._positions()
        if self.lattice is not None:  # all nodes have values now: interpolate them by splines
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
        expected = _expected_error(choice, scale)
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
        if self.lattice is not None:
            nodes = math.prod(axis.count for axis in self.lattice)
            report.filled = max(0, nodes - len(given.points))
            report.expected_error, report.expected_error_uncertainty = expected
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
        """Return the default positions of `on_grid`: about one per feature on each axis."""
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
        """Return encoding, frames, nodes and weights of splines through all nodes of a lattice."""
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
    """The weighted root mean square of value minus fit at the points, computed when called."""

    encoding: Kronecker
    planes: Array
    frames: tuple[Frame, ...]
    points: Array
    values: Array  # (C, P)
    weights: Array | None
    scale: float

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return the residual in the units of the values."""
        units = [frame.unit(self.points[:, i]) for i, frame in enumerate(self.frames)]
        away = at_points(self.encoding, self.planes, units, [0] * len(units)).astype(np.float64)
        away -= self.values
        away /= self.scale  # avoids overflow of the squares
        return self.scale * math.sqrt(
            float(np.average(np.mean(away**2, axis=0), weights=self.weights))
        )


def _expected_error(choice: PointChoice, scale: float) -> tuple[float, float]:
    """Return the expected error at a missing sample of a lattice, and its standard error."""
    if choice.held is None:
        return math.nan, math.nan
    error, uncertainty = MeanError.of(choice.held.squares).root
    return scale * error, scale * uncertainty


def scaled_ridge(ridge: float, exponent: int) -> float:
    """Return the ridge for point weights scaled by 2^``exponent``, at most 1e300."""
    try:
        return min(math.ldexp(ridge, exponent), 1e300)
    except OverflowError:
        return 1e300


@dataclass(frozen=True)
class _Constant:
    """A constant that is subtracted from the values before the solve and added to the weights.

    The ridge of Gaussians does not penalise it. Without Gaussians there is no constant.
    """

    functional: Array | None  # (P,): its product with centred values is their constant
    share: Array | None  # (P,): its product with values is their weighted mean
    unit: Array | None  # (K_1, ..., K_D): weights of the function 1
    seen: Array | None  # (P,): the function of these weights at the points, about 1

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
        """Return values (C, P) minus their constants, and the constants (C,)."""
        if self.functional is None or self.share is None or self.seen is None:
            return values, np.zeros(len(values))
        wide = values.astype(np.float64)  # wide Gaussians are ill conditioned
        mean = wide @ self.share
        constant = mean + (wide - mean[:, None]) @ self.functional
        return wide - np.multiply.outer(constant, self.seen), constant

    def join(self, weights: Array, constant: Array) -> Array:
        """Return the weights of the fit plus those of the constants."""
        return weights if self.unit is None else weights + np.multiply.outer(constant, self.unit)


def _covering(axis: Lattice, low: float, high: float) -> Lattice:
    """Return the lattice, extended until [low, high] is within half a step of its nodes."""
    before = max(0, math.ceil((axis.origin - low) / axis.step - 0.5 - 1e-9))
    last = axis.origin + (axis.count - 1) * axis.step
    after = max(0, math.ceil((high - last) / axis.step - 0.5 - 1e-9))
    return Lattice(axis.origin - before * axis.step, axis.step, axis.count + before + after)
