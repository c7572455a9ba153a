"""`fit_points`: values at scattered points to a field; open settings are chosen from the data."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, is_lazy, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.frames import Frame, sample_frame
from kronfield._core.memory import check_memory
from kronfield._core.records import record
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.evaluation import at_points
from kronfield.field.places import PointPlaces
from kronfield.field.trend import Trend, TrendBasis
from kronfield.field.uncertainty import Uncertainty
from kronfield.fitting.calibration import Coverage
from kronfield.fitting.filling_choice import MeanError
from kronfield.fitting.forms import check_features, checked_form, select_form
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.labelled import labelled_points
from kronfield.fitting.many import fit_many
from kronfield.fitting.nested import nested_start
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_choice import (
    PointChoice,
    PointSamples,
    choose_penalty,
    choose_points,
)
from kronfield.fitting.point_grids import Lattice, find_lattice, mean_distances
from kronfield.fitting.report import Candidate, PointReport
from kronfield.fitting.robust import (
    SETTLED,
    HuberNoise,
    RobustReport,
    huber_weights,
    in_scales,
    least_scale,
    listed,
    residual_scales,
    suspects,
)
from kronfield.fitting.settings import Settings, changed
from kronfield.fitting.splines import tension_encoding
from kronfield.fitting.wrap_up import wrap_up
from kronfield.solvers.grid.separable import GridSolver
from kronfield.solvers.points.assemble import RowRule, assemble, needed_bytes
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import NormalEquations, Solution
from kronfield.solvers.points.trend import Regression, TrendTerm, solve_with_columns

if TYPE_CHECKING:
    from kronfield.fitting.filled import LatticeFiller

# Features of cubic splines at a point on each axis.
SPLINE_TAPS = 4
# The smallest tolerance for float32: below it rounding errors dominate the residual.
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
    loss: str = "squared",
    trend: int | None = None,
    periodic: Any = None,
    hold_out: str | None = None,
    form: str | None = None,
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
        Positions in any units, or dates; duplicates and clusters are allowed. The columns of a
        DataFrame or a dictionary name the axes. Arrays and tables of Dask are read twice, partition
        by partition, if they have more than 65,536 rows: see the page "Beyond memory".
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
        values vary alike in all directions or, if the values do not show that, those in which
        points are equally far apart on every axis. Cells of a chosen grid are as long as wide in
        these units.
    loss : "squared" or "huber"
        Huber's loss is for values with outliers: it grows linearly, not quadratically, beyond 1.345
        robust standard deviations of the residuals (Huber, 1964), which reduces the weight of
        outliers. If settings are chosen, gross outliers are rejected first. ``field.report.robust``
        says how many points were weighted down or rejected, and where the largest residuals are.
    trend : 0, 1 or 2, optional
        The degree of a polynomial that is fitted together with the features and that no penalty
        holds back: with ``outside="extrapolate"`` the field returns to it outside of the domain.
    periodic : sequence of D floats or None, or dict, optional
        The period of each axis, None where it does not wrap: ``periodic=[None, 360.0]``, or by the
        names of axes. Positions count modulo the period, and the field closes at the seam. Splines
        and hats have periodic forms. Gaussians of chosen widths and the dual form have none, and
        are not used.
    hold_out : "points" or "blocks", optional
        What is held out together to choose settings: single points, or all points in blocks of
        space, for clustered points whose error between the clusters matters. With either, if
        settings are chosen, ``field.report.expected_error`` is the error at the held-out points.
    form : "grid", "dual" or "factored", optional
        "grid": weights on a grid of features; their number grows as K^D. "dual": a weight for the
        similarity to each point, for any D. Each axis has a width of its own, the constant or
        trend is not penalised, and standard errors are exact; widths and ridge maximise the
        likelihood. "factored": a function of each axis, plus a sum of products of one function per
        axis. The default is a grid below 4 dimensions and for points on a lattice. Otherwise it is
        the dual form for up to 5000 points; with more points, both other forms are fitted, and the
        better at held-out points is used. `select_form` returns the form and its cost; the report
        says which was used and why.
    rows : "exact", "blending", "similarity" or "linear", optional
        How the features of a point are computed: exactly, by the paper's blending on a virtual
        grid, or with other weights on that grid: of the similarity, or linear (see `Blending`). By
        default exactly if at most 256 features are within reach of a point, or at most 4 million
        of all points together; otherwise by the paper's blending.
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

    P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35
    (1964).
    """
    if is_lazy(points) or is_lazy(values):
        from kronfield.lazy.scattered import fit_points_lazy

        return fit_points_lazy(
            points,
            values,
            encoding,
            domain=domain,
            weights=weights,
            seed=seed,
            periodic=periodic,
            form=form,
            options={
                "ridge": ridge,
                "roughness": roughness,
                "units": units,
                "loss": loss,
                "trend": trend,
                "hold_out": hold_out,
                "rows": rows,
                "tolerance": tolerance,
                "iterations": iterations,
                "progress": progress,
                "settings": settings,
            },
        )
    started = time.perf_counter()
    plain = labelled_points(points, values, weights, domain)
    given = PointInput(
        plain.points,
        plain.values,
        plain.weights,
        plain.domain,
        encoding,
        periodic=periodic,
        labels=plain.labels,
    )
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
        loss=loss,
        trend=trend,
        hold_out=hold_out,
    )
    lattice, filler = None, None
    checked_form(form, encoding)
    if any(given.periods):
        _check_periodic(form, trend)
    if given.encoding is not None:
        check_features(given.encoding.shape, options)
    elif not any(given.periods):
        lattice = find_lattice(given.points, options.settings.points)
        nodes = None if lattice is None else math.prod(axis.count for axis in lattice)
        P = len(given.points) if given.weights is None else int(np.count_nonzero(given.weights))
        selected = select_form(given.D, P, form, options, nodes, len(given.values))
        if selected.name != "grid":
            many = fit_many(given, options, selected, started)
            known = given.points if given.weights is None else given.points[given.weights > 0]
            places = PointPlaces(known, options.units)
            return many.with_places(places).with_labels(plain.labels)
        if lattice is not None and given.domain is not None:
            lattice = [
                _covering(axis, *pair) for axis, pair in zip(lattice, given.domain, strict=True)
            ]
        usual = not options.is_robust and options.trend is None and options.hold_out is None
        if lattice is not None and usual:
            # imported here: a filled lattice is fitted by `fit`, which fits other gaps by points
            from kronfield.fitting.filled import LatticeFiller

            filler = LatticeFiller.of_points(given, lattice, options, started)
            field = None if filler is None else filler.holes()
            if field is not None:
                places = PointPlaces(given.points, options.units)
                return field.with_places(places).with_labels(plain.labels)
    field = fit_checked(given, lattice, options, started, filler=filler)
    counted = given.points if given.weights is None else given.points[given.weights > 0]
    return field.with_places(PointPlaces(counted, options.units)).with_labels(plain.labels)


def _check_periodic(form: Any, trend: Any) -> None:
    """Raise an error for options that have no periodic form."""
    if form == "dual":
        raise problem("form", '"dual" beside periodic', '"grid"', "Leave form or periodic out.")
    if trend:
        remedy = "A polynomial does not close at the seam: use trend=0, or leave periodic out."
        raise problem("trend", f"{trend} beside periodic", "0 or None", remedy)


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
    free = _frees_constants(given, options)
    values, levels, scale = _unit_values(
        given.values, given.weights, given.dtype, free=free, robust=options.is_robust
    )
    basis = None
    if options.trend is not None:
        basis = TrendBasis.of(options.trend, given.domain or given.box)
    if given.encoding is None and lattice is None:
        cells = options.settings.points.spline_cells * len(given.points)
        unknowns = round(min(cells, options.settings.points.most_unknowns))
        _check_memory(given, unknowns, (SPLINE_TAPS,) * given.D)
    samples, aside = _deciding(given, values, basis, options)
    samples = replace(samples, level=float(np.abs(levels).max()) / scale)
    if given.encoding is None:
        if filler is not None and filler.ratio is not None:
            # this ratio was chosen at samples hidden in the shape of the holes: a ratio that suits
            # single points need not suit wide gaps
            fixed = changed(options.settings, "search", "ratios", (filler.ratio,))
            options = replace(options, settings=fixed)
        line = None if filler is None else filler.line
        box = _chosen_box(given, lattice)
        choice = choose_points(samples, box, lattice, options, given.periods, line)
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
    if rule.blending is None and lattice is None:
        _check_memory(given, math.prod(rule.shape), rule.taps)
    fitted = PointFit(given, lattice, choice, rule, options, tolerance, basis, free)
    field = fitted.field(given.values, choice.candidates, started, aside)
    if filler is not None and not math.isnan(filler.expected[0]):
        # the error at samples hidden in the shape of the holes is larger than at random samples
        report: Any = field.report
        report.expected_error, report.expected_error_uncertainty = filler.expected
    return field


def _frees_constants(given: PointInput, options: PointOptions) -> bool:
    """Return whether the fit of values plus a constant is their fit plus this constant.

    The features that are chosen can be constant, and a penalty of derivatives leaves constants
    alone, as Gaussians do. A ridge does not, and a trend has a constant of its own.
    """
    ridge = options.penalty is not None and options.penalty.ridge > 0
    exact = options.rows in (None, "exact")
    return given.encoding is None and options.trend is None and exact and not ridge


def _unit_values(
    values: Array, weights: Array | None, dtype: np.dtype[Any], *, free: bool, robust: bool
) -> tuple[Array, Array, float]:
    """Return values (C, P) of at most 1, the levels (C,) that were subtracted, and the factor.

    The level is the mean, or 0 unless constants are ``free``. Values far from 0 lose digits without
    it: residuals are differences of sums of squares. In a ``robust`` fit it is the median: other
    values would lose digits beside a mean that gross outliers make large.
    """
    largest = float(np.abs(values).max()) or 1.0  # sums of larger values overflow
    scaled = values / dtype.type(largest)
    levels = np.zeros(len(values), dtype)
    if not free:
        return scaled, levels, largest
    if robust:
        levels[:] = np.median(scaled if weights is None else scaled[:, weights > 0], axis=1)
    else:
        levels[:] = np.average(scaled, axis=1, weights=weights)
    scaled -= levels[:, None]
    rest = float(np.abs(scaled).max()) or 1.0
    scaled /= dtype.type(rest)
    return scaled, levels * dtype.type(largest), largest * rest


def _check_memory(given: PointInput, unknowns: int, taps: Sequence[int]) -> None:
    """Raise an error if a fit with exact rows of these entries per axis exceeds the memory."""
    count = len(given.points)
    check_memory(
        "values",
        f"a fit of {count} points with {math.prod(taps)} features at each",
        needed_bytes(count, unknowns, taps, given.dtype.itemsize),
        "Fit some of the points, or with fewer features at each: encoding=kf.Triangle(K, 2 / K).",
    )


def _deciding(
    given: PointInput, values: Array, basis: TrendBasis | None, options: PointOptions
) -> tuple[PointSamples, Array | None]:
    """Return the samples by which settings are chosen, and which points seem to be outliers."""
    samples, aside = PointSamples(given.points, values, given.weights), None
    if options.is_robust:  # choose settings without the points that seem to be outliers
        units = options.units or mean_distances(given.box, len(given.points))
        flat = _without_trend(basis, given.points, values, given.weights)
        aside = suspects(given.points, flat, given.weights, units, options.settings.robust)
        samples = samples.without(aside)
    if given.weights is not None:  # points without weight say nothing about settings
        weightless = given.weights == 0
        if aside is not None:
            weightless = weightless[~aside]
        samples = samples.without(weightless)
    if basis is not None:  # choose settings for the deviations from a plain regression
        left = _without_trend(basis, samples.points, samples.values, samples.weights)
        samples = replace(samples, values=left)
    return samples, aside


def _chosen_box(given: PointInput, lattice: list[Lattice] | None) -> Sequence[tuple[float, float]]:
    """Return the box of the features that are chosen: that of the lattice, if there is one."""
    if lattice is not None:
        return [(one.origin, one.origin + one.step * max(one.count - 1, 1)) for one in lattice]
    return given.box if any(given.periods) else given.domain or given.box


def _without_trend(
    basis: TrendBasis | None, points: Array, values: Array, weights: Array | None
) -> Array:
    """Return the deviations of values (C, P) from a plain regression on the trend, if any."""
    if basis is None:
        return values
    plain = Regression.of(basis.columns(points), weights)
    wide = values.astype(np.float64)
    return np.asarray(wide - plain.coefficients(wide) @ plain.columns).astype(values.dtype)


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
        options: PointOptions,
        tolerance: float,
        basis: TrendBasis | None = None,
        free: bool = False,
    ) -> None:
        self.free = free
        self.given, self.lattice, self.choice, self.rule = given, lattice, choice, rule
        self.options, self.tolerance, self.basis = options, tolerance, basis
        self.total = float(len(given.points) if given.weights is None else given.weights.sum())

    @functools.cached_property
    def level(self) -> _Constant:
        """The constant for the weights that were given."""
        return self._level(self.given.weights)

    def _level(self, weights: Array | None) -> _Constant:
        """Return the constant for weights of the points; a trend has its own constant."""
        if self.basis is not None:
            return _Constant(None, None, None, None)
        return _Constant.of(self.choice, self.given.points, weights)

    @functools.cached_property
    def _columns(self) -> Array:
        """The columns (T, P) of the trend."""
        assert self.basis is not None
        return self.basis.columns(self.given.points)

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples(
            "refit",
            "the field that fit_points returned",
            "Call fit_points with the points, field.encoding and the penalty.",
        )

    def __call__(self, values: Any) -> Field:
        """Return the field of other values at the same points."""
        started = time.perf_counter()
        return self.field(self.given.other_values(values), [], started)

    def field(
        self,
        values: Array,
        candidates: Sequence[Candidate],
        started: float,
        aside: Array | None = None,
    ) -> Field:
        """Return the field of values (C, P), with its report.

        Parameters
        ----------
        values : array (C, P)
            The values.
        candidates : sequence of Candidate
            The settings that were compared.
        started : float
            The time at which the fit started.
        aside : array (P,) of bool, optional
            Points that a robust fit leaves out at first, by default those that differ from their
            neighbours.
        """
        given, choice, options = self.given, self.choice, self.options
        scaled, levels, scale = _unit_values(
            values, given.weights, given.dtype, free=self.free, robust=options.is_robust
        )
        robust, noise = None, None
        if options.is_robust:
            solved, robust, noise = self._reweighted(scaled, scale, aside)
        else:
            solved = self._solved(scaled, given.weights, self.level)
        solution = solved.solution
        # Wide Gaussians are ill conditioned and need float64.
        dtype = np.dtype(np.float64) if choice.gaussians is not None else given.dtype
        planes = solved.planes.astype(dtype, copy=False)
        encoding, frames, positions = choice.encoding, choice.frames, self._positions()
        if self.lattice is not None:  # all nodes have values now: interpolate them by splines
            encoding, frames, positions, planes = self._complete(self.lattice, planes)
        planes = np.ascontiguousarray(planes) * dtype.type(scale)
        unit = np.ones(planes.shape[1:]) if self.level.unit is None else self.level.unit
        planes += np.multiply.outer(levels, unit).astype(dtype)
        trend = None
        if self.basis is not None and solved.trend is not None:
            trend = Trend(self.basis, solved.trend.coefficients * scale)
        uncertainty = self._uncertainty(solved, scale, noise)
        solved.equations.free_band()  # the field keeps the equations
        expected = _expected_error(choice, scale)
        by_points = options.hold_out is not None and choice.held is None
        if by_points:
            expected = (choice.expected[0] * scale, choice.expected[1] * scale)
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
                encoding, planes, frames, given.points, values, solved.fitted_weights, scale, trend
            ),
            measure_freedom=uncertainty.freedom,
        )
        report.robust = robust
        report.measure_coverage_by(functools.partial(self._coverage, scaled, scale))
        if self.lattice is not None:
            nodes = math.prod(axis.count for axis in self.lattice)
            report.filled = max(0, nodes - len(given.points))
        if self.lattice is not None or by_points:
            report.expected_error, report.expected_error_uncertainty = expected
        report.held_out = options.hold_out if choice.candidates else None
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
        ).with_trend(trend)

    def _solved(
        self,
        values: Array,
        weights: Array | None,
        level: _Constant,
        start: Array | None = None,
    ) -> _Solved:
        """Return the least squares fit of values (C, P) with weights (P,), from a first estimate.

        The penalty is relative to the weights that were given.
        """
        regression = None
        if self.basis is None:
            left, constant = level.split(values)
            equations = self._equations(left, weights)
        else:
            wide = values.astype(np.float64)
            regression = Regression.of(self._columns, weights)
            first = regression.coefficients(wide)
            left, constant = wide - first @ self._columns, np.zeros(len(values))
            equations = self._equations(np.concatenate([left, self._columns]), weights)
        options = self.options
        solve = functools.partial(
            equations.solve,
            self.choice.penalty,
            limit=options.iterations,
            progress=options.progress,
        )
        if start is None and regression is None and self.choice.grid is not None:
            start = nested_start(
                self.choice.grid,
                equations,
                self.choice.penalty,
                self.given.points,
                left,
                weights,
                tolerance=self.tolerance,
            )

        def solved() -> Solution:
            try:
                return solve(tolerance=self.tolerance, start=start)
            except ConvergenceError as error:
                if options.tolerance is not None or not self.choice.candidates:
                    raise
                # No tolerance was given: accept the loosest. The report states the remaining error.
                return solve(tolerance=options.settings.points.loosest, start=error.unknowns)

        if regression is not None:
            equations, solution, more, term, unknowns = solve_with_columns(
                equations, solved, self.choice.penalty, regression, left, self.tolerance
            )
            trend = _TrendFit(first + more, term, unknowns)
            return _Solved(equations, solution, solution.weights, level, weights, weights, trend)
        solution = solved()
        planes = level.join(solution.weights, constant)
        # with the constant, since reports read the weights of the fit from the solution
        solution = replace(solution, weights=planes)
        return _Solved(equations, solution, planes, level, weights, weights)

    def _equations(self, values: Array, weights: Array | None) -> NormalEquations:
        equations = assemble(self.rule, self.given.points, values, weights)
        return replace(equations, total=self.total)

    def _reweighted(
        self, values: Array, units: float, aside: Array | None
    ) -> tuple[_Solved, RobustReport, HuberNoise]:
        """Return the fit with Huber's loss of values (C, P), by repeated weighting.

        ``units`` is the factor from these values to those of the user. Points that were set
        ``aside`` are left out of the first fit, which decides which of them are rejected.
        """
        given, decisions = self.given, self.options.settings.robust
        constant = decisions.constant
        flat = _without_trend(self.basis, given.points, values, given.weights)
        if aside is None:
            lengths = self.options.units or mean_distances(given.box, len(given.points))
            aside = suspects(given.points, flat, given.weights, lengths, decisions)
        known = np.ones(len(aside), dtype=bool) if given.weights is None else given.weights > 0
        # scales of residuals are those at unit weight
        unit = 1.0 if given.weights is None else math.sqrt(float(given.weights[known].mean()))
        least = unit * least_scale(flat[:, known], self.tolerance)
        robust = np.where(aside, 0.0, 1.0)
        rejected = np.zeros(len(robust), dtype=bool)
        start, change, rounds, interpolates = None, math.inf, 0, False
        while True:
            weights = robust if given.weights is None else robust * given.weights
            level = self._level(weights)
            solved = self._solved(values, weights, level, start)
            away = values - self._fitted(solved)
            readmitted = False
            if self.choice.candidates and self.options.penalty is None:
                if rounds == 0:
                    # the scale is not below the expected error of a prediction, known by now
                    expected = unit * self._expected(flat[:, known & ~aside])
                    least = np.maximum(least, expected)
                # a fit without a whole group of points says little about them: if some of them
                # return, compare again
                before = aside if rounds == 0 else rejected
                rejected = self._rejected(away, before, expected)
                readmitted = rounds > 0 and bool(np.any(before & ~rejected))
            scales = residual_scales(away, given.weights, ~rejected, 0.0)
            if rounds == 0:
                # Residuals far below the expected error: the values are interpolated, and residuals
                # do not show their noise. Points that are not rejected then keep their weight.
                factor = decisions.rejected / constant
                is_below = factor * scales < least
                least, interpolates = (
                    np.where(is_below, factor * least, least),
                    bool(is_below.all()),
                )
            scales = np.maximum(scales, least)
            sizes = in_scales(away, given.weights, scales)
            if (change < SETTLED and not readmitted) or rounds == decisions.rounds:
                break
            following = np.where(rejected, 0.0, huber_weights(sizes, constant))
            change = float(np.abs(following - robust).max())
            robust, start, rounds = following, solved.unknowns, rounds + 1
        exponent = 2.0 ** (given.weight_exponent / 2)
        noise = HuberNoise.of(away, given.weights, robust, scales, units * exponent, constant)
        report = RobustReport(
            loss="huber",
            scale=tuple(float(one) * units * exponent for one in scales),
            down_weighted=int(np.sum((robust < 1) & ~rejected)),
            rejected=int(rejected.sum()),
            rounds=rounds,
            settled=change < SETTLED,
            largest=listed(given.points, away * units, sizes, robust, decisions.listed),
            outliers=given.numbers_of(robust < 1 if interpolates else rejected),
            interpolates=interpolates,
        )
        # the matrix of standard errors: the slope of Huber's influence in place of the weights
        slopes = np.where(rejected, 0.0, noise.slope)
        expected = slopes if given.weights is None else slopes * given.weights
        if solved.trend is not None:
            other = self._solved(values, expected, solved.level, solved.unknowns)
            assert other.trend is not None
            trend = replace(solved.trend, term=other.trend.term)
            equations, solved = other.equations, replace(solved, trend=trend)
        else:
            equations = self._equations(solved.level.split(values)[0], expected)
        solved = replace(solved, equations=equations, weights=expected)
        return solved, report, noise

    def _coverage(self, values: Array, scale: float) -> Coverage:
        """Return the coverage of two-sigma bands at some of the points.

        The settings are those of the fit.
        """
        given, decisions = self.given, self.options.settings.points
        known = np.ones(len(given.points), dtype=bool)
        if given.weights is not None:
            known = given.weights > 0
        index = np.random.default_rng(self.options.seed).permutation(np.flatnonzero(known))
        if len(index) < decisions.fewest_covered:
            raise problem(
                "coverage",
                f"{len(index)} points",
                f"at least {decisions.fewest_covered} points",
                "Coverage is measured at points that are held out: use more points.",
            )
        size = min(math.ceil(decisions.coverage_part * len(index)), decisions.coverage_points)
        robust = self._reweighted(values, scale, None)[::2] if self.options.is_robust else None
        order, parts = [], []
        for start in range(0, min(len(index), decisions.well_covered), size):
            held = np.sort(index[start : start + size])
            order.append(held)
            parts.append(self._left_out(values, scale, held, robust))
        errors, deviations = (np.concatenate(some) for some in zip(*parts, strict=True))
        return Coverage.of(given.points[np.concatenate(order)], errors, deviations, decisions)

    def _left_out(
        self,
        values: Array,
        scale: float,
        held: Array,
        robust: tuple[_Solved, HuberNoise] | None,
    ) -> tuple[Array, Array]:
        """Return the errors (n, C) of a fit without the points ``held``, and what it expects.

        The weights of Huber's loss are those of the whole fit, ``robust``.
        """
        given, decisions = self.given, self.options.settings.points
        weights, noise = given.weights, None
        if robust is not None:
            weights, noise = robust[0].fitted_weights, robust[1]
        weights = np.ones(len(given.points)) if weights is None else weights.copy()
        weights[held] = 0.0
        solved = self._solved(values, weights, self._level(weights))
        own = replace(self._uncertainty(solved, scale, noise), limit=decisions.coverage_iterations)
        level = own.noise
        try:
            draws, seed = decisions.coverage_draws, self.options.seed
            relative = own.relative(given.points[held], draws, seed)
        except ConvergenceError as error:
            raise problem(
                "coverage",
                "a penalty that is too weak for random fits to converge",
                f"a fit of at most {own.exact_up_to} weights, or of noisy values",
                "Use field.report.expected_error with hold_out='points' instead.",
            ) from error
        weight = np.ones(len(held)) if given.weights is None else given.weights[held]
        alone = 2.0 ** (-given.weight_exponent) / weight
        deviations = np.sqrt(relative[:, None] ** 2 + alone[:, None]) * level
        away = scale * (values - self._fitted(solved))[:, held].T
        return away.astype(np.float64), deviations

    def _expected(self, values: Array) -> Array:
        """Return the error (C,) that is expected at a point that was held out."""
        return np.asarray(self.choice.relative_error * values.std(axis=1, dtype=np.float64))

    def _rejected(self, away: Array, aside: Array, expected: Array) -> Array:
        """Return which points set aside are too far from the fit of the others, (P,)."""
        if not aside.any():
            return aside
        weights = self.given.weights
        floor = float(np.finfo(np.float64).tiny) ** 0.25
        scales = residual_scales(away, weights, ~aside, floor)
        sizes = np.max(np.abs(away) / np.hypot(scales, expected)[:, None], axis=0)
        if weights is not None:
            sizes = sizes * np.sqrt(weights)
        return aside & (sizes > self.options.settings.robust.rejected)

    def _uncertainty(self, solved: _Solved, scale: float, noise: HuberNoise | None) -> Uncertainty:
        given = self.given
        return Uncertainty(
            equations=solved.equations,
            penalty=self.choice.penalty,
            rule=self.rule,
            points=given.points,
            weights=solved.weights,
            solution=solved.solution,
            scale=scale,
            limit=self.options.iterations,
            free=solved.level.unit,
            exact_up_to=self.options.settings.points.exact_errors,
            interpolating=self.options.settings.points.interpolating,
            weight_exponent=given.weight_exponent,
            robust=noise,
            trend=None
            if self.basis is None or solved.trend is None
            else (self.basis, solved.trend.term),
        )

    def _fitted(self, solved: _Solved) -> Array:
        """Return the values (C, P) of a fit at the points."""
        frames, points = self.choice.frames, self.given.points
        units = [frame.unit(points[:, i]) for i, frame in enumerate(frames)]
        fitted = at_points(self.choice.encoding, solved.planes, units, [0] * len(units))
        if solved.trend is not None:
            fitted = fitted + solved.trend.coefficients @ self._columns
        return fitted

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


@record(eq=False)
class _Solved:
    """A solved system: its equations and solution, and the weights of the fit (C, K_1, ..., K_D).

    ``weights`` are those of the points in ``equations``, ``fitted_weights`` those of the fit.
    """

    equations: NormalEquations
    solution: Solution
    planes: Array
    level: _Constant
    weights: Array | None
    fitted_weights: Array | None
    trend: _TrendFit | None = None

    @property
    def unknowns(self) -> Array:
        """The unknowns of all right-hand sides, to start another solve."""
        return self.solution.unknowns if self.trend is None else self.trend.unknowns


@record(eq=False)
class _TrendFit:
    """The coefficients (C, T) of a trend, its covariance, and the unknowns of all channels."""

    coefficients: Array
    term: TrendTerm
    unknowns: Array


@record(eq=False)
class PointResidual:
    """The weighted root mean square of value minus fit at the points, computed when called."""

    encoding: Kronecker
    planes: Array
    frames: tuple[Frame, ...]
    points: Array
    values: Array  # (C, P)
    weights: Array | None
    scale: float
    trend: Trend | None = None

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return the residual in the units of the values."""
        units = [frame.unit(self.points[:, i]) for i, frame in enumerate(self.frames)]
        away = at_points(self.encoding, self.planes, units, [0] * len(units)).astype(np.float64)
        if self.trend is not None:
            away += self.trend.at(self.points)
        away -= self.values
        away /= self.scale  # avoids overflow of the squares
        return self.scale * math.sqrt(
            float(np.average(np.mean(away**2, axis=0), weights=self.weights))
        )


def _expected_error(choice: PointChoice, scale: float) -> tuple[float, float]:
    """Return the expected error at a missing sample of a lattice, and its standard error."""
    if choice.held is None:
        return math.nan, math.nan
    squares = [np.mean(np.square(part), axis=0) for part in choice.held.errors]
    error, uncertainty = MeanError.of(squares).root
    return scale * error, scale * uncertainty


def scaled_ridge(ridge: float, exponent: int) -> float:
    """Return the ridge for point weights scaled by 2^``exponent``, at most 1e300."""
    try:
        return min(math.ldexp(ridge, exponent), 1e300)
    except OverflowError:
        return 1e300


@record
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
        unit = functools.reduce(np.multiply.outer, choice.gaussians.of_constant[0])
        rows = choice.gaussians.rows(points)
        return cls(choice.gaussians.constant(rows, weights), share, unit, rows @ unit.ravel())

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
