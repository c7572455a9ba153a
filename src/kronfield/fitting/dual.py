"""Points in many dimensions: the dual form, with widths and ridge by likelihood.

This is the mean of a Gaussian process (Rasmussen and Williams, 2006, chapters 2 and 5).
"""

from __future__ import annotations

import functools
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, fit_overflow
from kronfield._core.copies import NeedsSamples
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield.field.dual import DualField
from kronfield.field.trend import Trend, TrendBasis
from kronfield.fitting.forms import Form, inducing_count, part_counts
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.options import PointOptions
from kronfield.fitting.repeats import Repeats
from kronfield.fitting.report import Candidate, PointReport
from kronfield.fitting.residual import Residual
from kronfield.fitting.robust import HuberErrors, PointErrors, remark
from kronfield.solvers.dual.likelihood import Likelihood, orthonormal
from kronfield.solvers.dual.similarity import SHAPES, Pairs, Similarity
from kronfield.solvers.dual.systems import (
    BLOCK,
    MOST_LEFT_OUT,
    Direct,
    DualSolution,
    Inducing,
    System,
)
from kronfield.solvers.points.cg import Convergence
from kronfield.solvers.points.normal import Penalty

# The search for widths of the other shapes starts from those of the Gaussian times these factors.
# They save iterations: on smooth and broken functions of 5 variables, the search ends at the same
# maximum from half and from twice these widths.
WIDER = {"twice": 1.5, "once": 2.0, "rough": 4.0}
# The same search starts from at least this ridge: the likelihood is flat below.
LEAST_START = 1e-6
# Squares of 2^BEYOND and its inverse are far from the ends of float64.
BEYOND = 450


def _exponent_of_squares(size: float) -> int:
    """Return the exponent of 2 of a size whose square may overflow or underflow; 0 of others."""
    exponent = math.frexp(size)[1]
    return exponent if abs(exponent) > BEYOND else 0


@record(eq=False)
class DualChoice:
    """The chosen settings, the candidates, and the number of points that decided."""

    similarity: Similarity
    ridge: float
    candidates: list[Candidate]
    points: int


class DualFit:
    """Fits values at known points in the dual form."""

    def __init__(
        self,
        given: PointInput,
        options: PointOptions,
        form: Form,
        judged: Array | None = None,
        promised: int | None = None,
    ) -> None:
        # errors of points left out are computed at the points ``judged``; the number of inducing
        # points is that for ``promised`` points
        self.given, self.options, self.form, self.judged = given, options, form, judged
        self.promised = promised or len(given.points)
        self.known = slice(None) if given.weights is None else given.weights > 0
        self.frames = tuple(
            Frame(low, high - low, low, high) for low, high in given.domain or given.box
        )
        raw = given.points[self.known]
        self.points = np.stack([f.unit(raw[:, i]) for i, f in enumerate(self.frames)], axis=1)
        weights = None if given.weights is None else given.weights[self.known]
        self.noise = np.ones(len(raw)) if weights is None else 1.0 / weights
        # the mean weight: ridges that are tried are relative to it
        self.unit = 1.0 if weights is None else float(weights.mean())
        self.basis = TrendBasis.of(options.trend or 0, given.domain or given.box)
        self.columns = self.basis.columns(raw)
        self.repeats = Repeats.of(raw, 1.0 / self.noise)
        self.choice: DualChoice | None = None
        self.is_fixed = False  # whether the ridge of inducing points is that of the choice
        self.system: System | None = None
        self.variances, self.exponent = np.zeros(0), 0
        self.left_out: Array | None = None

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples("refit", "the field that fit_points returned", "Call fit_points.")

    def __call__(self, values: Any) -> DualField:
        """Return the field of other values at the same points, with the same settings."""
        started = time.perf_counter()
        return self.field(self.given.other_values(values), started)

    def with_weights(self, weights: Array, *, fixed: bool = False) -> DualFit:
        """Return a fit with the same settings and other weights; ``fixed`` keeps the ridge too."""
        new = DualFit(self.given.with_weights(weights), self.options, self.form)
        new.promised, new.choice, new.is_fixed = self.promised, self.choice, fixed
        if fixed and self.choice is not None and self.system is not None:
            new.choice = replace(self.choice, ridge=self.system.ridge)
        return new

    def field(self, values: Array, started: float, huber: HuberErrors | None = None) -> DualField:
        """Return the field of values (C, P), with its report.

        With ``huber`` the weights of points are those of Huber's loss, and standard errors account
        for its influence function.
        """
        given = self.given
        scaled, centre, scales, largest = self._scaled(values)
        first = self.choice is None
        if self.choice is None:
            self.choice = self._choose(scaled)
        solution = self._solve(scaled)
        assert self.system is not None
        factors = scales * largest
        coefficients = solution.coefficients * factors[:, None]
        polynomial = solution.trend * factors[:, None]
        polynomial[:, 0] += centre * largest
        if not np.all(np.isfinite(coefficients)) or not np.all(np.isfinite(polynomial)):
            raise fit_overflow()
        # variances of huge and tiny values are those of the values over 2^exponent
        self.exponent = exponent = _exponent_of_squares(float(factors.max()))
        variances = solution.variances * np.ldexp(factors, -exponent) ** 2
        self.variances, system = variances, self.system
        if huber is not None:
            system, variances = self._of_huber(scaled, variances, huber)
        trend = Trend(self.basis, polynomial)
        self.left_out = solution.left_out * factors[:, None]
        report = self._report(solution, factors, first, started)
        field = DualField(
            system,
            coefficients,
            self.frames,
            trend=trend,
            variances=variances,
            exponent=exponent,
            channels=given.channels,
            is_complex=given.is_complex,
            dtype=given.dtype,
            report=report,
            again=self if huber is None else huber.again,
        )
        report.measure_residual_by(Residual(field, given.points, values, given.weights))
        report.seconds = time.perf_counter() - started
        return field

    def _scaled(self, values: Array) -> tuple[Array, Array, Array, float]:
        """Return values (C, n) of unit variance, their centres and scales, and a common factor."""
        wide = values[:, self.known].astype(np.float64)
        largest = float(np.abs(wide).max()) or 1.0
        wide = wide / largest  # avoids overflow
        centre = wide.mean(axis=1)
        scales = wide.std(axis=1)
        scales[scales <= 1e-14] = 1.0
        return (wide - centre[:, None]) / scales[:, None], centre, scales, largest

    # Outliers
    # ------------------------------------------------------------------------------------------

    def errors(self, field: DualField, values: Array, weights: Array | None) -> PointErrors:
        """Return the errors of the field that was fitted last, at all points.

        ``weights`` are those of the points before some of them were left out.
        """
        system = self.system
        assert system is not None
        given, count = self.given, len(self.given.points)
        noise = np.ones(count) if weights is None else 1.0 / np.where(weights > 0, weights, 1.0)
        away = values - field.planes_at(given.points)
        known = np.zeros(count, dtype=bool)
        known[self.known] = True
        units = np.stack([f.unit(given.points[:, i]) for i, f in enumerate(self.frames)], axis=1)
        # values minus fit over these are errors of predictions over their standard deviations
        deviations = np.empty(count)
        deviations[known] = self._own_deviations()
        out = np.flatnonzero(~known)
        columns = self.basis.columns(given.points[out])
        deviations[out] = np.sqrt(system.variance(units[out], columns) + system.ridge * noise[out])
        level = np.sqrt(np.maximum(self.variances, np.finfo(np.float64).tiny))
        level = np.ldexp(level, self.exponent)
        relative = away / deviations / level[:, None]
        # the expected noise, times the ratio of actual to expected errors
        real = np.sqrt(np.mean(relative[:, known] ** 2, axis=1))
        scales = level * math.sqrt(system.ridge) * real
        return PointErrors(away, relative, scales)

    def _own_deviations(self) -> Array:
        """Return `Direct.own_deviations` of all points.

        Standard deviations of leave-one-out errors are sqrt(ridge noise / (1 - h)), and residuals
        are 1 - h times the errors. The leverage h of a place is shared by its points.
        """
        assert self.system is not None
        found = self.system.own_deviations(self.points, self.noise)
        if self.repeats is None or not self._is_direct:
            return found
        ridge, share = self.system.ridge, self.repeats.share
        left = (found**2 * self.repeats.sums / ridge)[self.repeats.place]
        return np.asarray(np.sqrt(ridge * self.noise * (1.0 - share + share * left)))

    def fitted(self, values: Array) -> Array:
        """Return the fit (C, P) of values at the points, with the settings chosen before."""
        scaled, centre, scales, largest = self._scaled(values)
        solution = self._solve(scaled, judged=False)
        assert self.system is not None
        units = np.stack(
            [f.unit(self.given.points[:, i]) for i, f in enumerate(self.frames)], axis=1
        )
        columns = self.basis.columns(self.given.points)
        found = solution.trend @ columns
        for start in range(0, len(units), BLOCK):
            part = slice(start, start + BLOCK)
            similar = self.system.similarity.between(self.system.centres, units[part])
            found[:, part] += solution.coefficients @ similar
        return np.asarray((found * scales[:, None] + centre[:, None]) * largest)

    def _of_huber(
        self, values: Array, variances: Array, huber: HuberErrors
    ) -> tuple[System, Array]:
        """Return system and variances for standard errors: noise has the variance ridge / slope."""
        assert self.system is not None
        assert self.choice is not None
        count, freedom = len(self.points), self.system.freedom()
        fit = self.with_weights(huber.weights, fixed=True)
        fit.choice = replace(self.choice, ridge=self.system.ridge / huber.noise.slope)
        fit._solve(values, judged=False)
        assert fit.system is not None
        least = self.options.settings.points.interpolating * count
        if count - freedom >= max(least, 1.0):  # residuals show the noise
            level = np.ldexp(huber.noise.level(count, freedom), -self.exponent)
            variances = level**2 / self.system.ridge
        return fit.system, variances

    # The settings
    # ------------------------------------------------------------------------------------------

    def _part(self, count: int, n: int) -> Array:
        """Return at most ``count`` of the numbers from 0 to n - 1, the same for the same seed."""
        if n <= count:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.options.seed).permutation(n)[:count])

    @functools.cached_property
    def _places(self) -> tuple[Array, Array, Array]:
        """The different points (n, D), one over their weights, and the columns there."""
        if self.repeats is None:
            return self.points, self.noise, self.columns
        first = self.repeats.first
        return self.points[first], 1.0 / self.repeats.sums, self.columns[:, first]

    def _merged(self, values: Array) -> tuple[Array, Array]:
        """Return the mean (C, n) of values at each place, and their sums of squares about it."""
        if self.repeats is None:
            return values, np.zeros(values.shape)
        return self.repeats.merged(values)

    def _likelihood(self, values: Array, part: Array, shape: str, pairs: Pairs) -> Likelihood:
        """Return the likelihood of values (C, P) at some of the places."""
        values, squares = self._merged(values)
        _, noise, columns = self._places
        X, _ = orthonormal(columns[:, part])
        own = self.options.settings.dual
        return Likelihood(
            pairs,
            values[:, part].T,
            noise[part] * self.unit,
            X,
            shape,
            widths=own.widths,
            ridges=own.ridges,
            prior=own.width_prior,
            within=squares[:, part].sum(axis=1) / self.unit,
            repeats=0 if self.repeats is None else int(np.sum(self.repeats.counts[part] - 1)),
        )

    def _choose(self, values: Array) -> DualChoice:
        """Return shape, widths and ridge of the highest likelihood."""
        penalty, settings = self.options.penalty, self.options.settings.dual
        points, count = self._places[0], len(self._places[0])
        few, many = part_counts(self.points.shape[1], count, self.options)
        # positions are in units of the box; on an axis with a single position, any width will do
        spread = np.maximum(self.points.std(axis=0), 1e-3)
        plain = spread * math.sqrt(len(spread))
        fixed = penalty is not None
        given = 1.0
        if penalty is not None:
            own = math.ldexp(penalty.ridge, -self.given.weight_exponent) / self.unit
            given = max(own, settings.ridges[0])
        first = Similarity("gaussian", tuple(plain))
        part = self._part(few, count)
        if len(part) < len(self.columns) + 2 or not np.any(values):
            return DualChoice(
                first, (given if fixed else settings.default_ridge) * self.unit, [], len(part)
            )
        pairs = Pairs(points[part])
        found: list[tuple[Similarity, float, float]] = []
        likelihood = self._likelihood(values, part, "gaussian", pairs)
        steps = settings.steps
        for width, ridge in settings.starts:
            start = Similarity("gaussian", tuple(plain * width))
            ridge = given if fixed else ridge
            found.append(likelihood.maximum(start, ridge, spread, steps, fixed))
        found = [min(found, key=lambda one: one[2])]
        for shape in SHAPES[1:]:
            begin, ridge, _ = found[0]
            start = Similarity(shape, tuple(WIDER[shape] * w for w in begin.widths))
            ridge = given if fixed else max(ridge, LEAST_START)
            likelihood = self._likelihood(values, part, shape, pairs)
            found.append(likelihood.maximum(start, ridge, spread, steps, fixed))
        best = min(found, key=lambda one: one[2])
        candidates = [
            Candidate(
                "similarity",
                {"shape": one.shape, "widths": one.widths, "ridge": self._of_user(ridge)},
                score / len(part),
                chosen=one is best[0],
            )
            for one, ridge, score in found
        ]
        similarity, ridge, _ = best
        more = self._part(many, count)
        if len(more) > len(part):  # the same shape again, with more points
            likelihood = self._likelihood(values, more, similarity.shape, Pairs(points[more]))
            steps = settings.last_steps
            similarity, ridge, _ = likelihood.maximum(similarity, ridge, spread, steps, fixed)
        return DualChoice(similarity, ridge * self.unit, candidates, len(more))

    def _of_user(self, ridge: float) -> float:
        """Return a ridge relative to the mean weight in the unit of the weights of the user."""
        return math.ldexp(ridge * self.unit, self.given.weight_exponent)

    # The solution
    # ------------------------------------------------------------------------------------------

    @property
    def _is_direct(self) -> bool:
        return len(self._places[0]) <= self.options.settings.dual.direct_points

    def _solve(self, values: Array, judged: bool = True) -> DualSolution:
        """Return the solution; without ``judged`` errors of points left out are not computed."""
        choice = self.choice
        assert choice is not None
        if self._is_direct:
            if self.system is None:
                self.system = Direct(choice.similarity, choice.ridge, *self._places)
            assert isinstance(self.system, Direct)
            return self._solved_directly(self.system, values, judged)
        count = inducing_count(self.promised, self.options)
        centres = self.points[self._part(count, len(self.points))]
        is_given = self.is_fixed or self.options.penalty is not None
        ridge = choice.ridge if is_given else self.options.settings.dual.ridges
        self.system, solution = Inducing.fitted(
            choice.similarity,
            ridge,
            centres,
            self.points,
            values,
            self.noise,
            self.columns,
            self.judged if judged else np.zeros(0, dtype=np.intp),
            unit=self.unit,
        )
        return solution

    def _solved_directly(self, system: Direct, values: Array, judged: bool) -> DualSolution:
        """Return the solution with errors of single points left out, also where points repeat.

        The leverage h of a place is shared by its points in proportion to their weights. The
        leave-one-out error of a point is its residual over 1 - (its share) h.
        """
        means, squares = self._merged(values)
        if self.repeats is None:
            chosen = self.judged if judged else np.zeros(0, dtype=np.intp)
            return system.solve(means, chosen)
        repeats, more = self.repeats, len(self.points) - len(means.T)
        points = self.judged
        if points is None:
            P = len(self.points)
            points = np.unique(np.linspace(0, P - 1, min(P, MOST_LEFT_OUT)).astype(int))
        if not judged:
            points = points[:0]
        places, own = np.unique(repeats.place[points], return_inverse=True)
        found = system.solve(means, places, squares.sum(axis=1), more)
        left, root = found.leverages[own], np.sqrt(found.left_out_weights[own])
        share = repeats.share[points]
        residual = found.left_out[:, own] / root * left
        residual += values[:, points] - means[:, repeats.place[points]]
        left = 1.0 - share + share * left
        weights = repeats.weights[points]
        errors = residual / left * np.sqrt(weights)
        return replace(found, left_out=errors, left_out_weights=weights, leverages=left)

    def _report(
        self, solution: DualSolution, factors: Array, first: bool, started: float
    ) -> PointReport:
        given, choice, system = self.given, self.choice, self.system
        assert choice is not None
        assert system is not None
        P, n = len(self.points), len(self._places[0])
        if self._is_direct:
            memory = 16 * n * n
            method = "Cholesky factorisation"
            places = "" if n == P else f" at {n} places"
            reason = f"{P} points{places}, {memory / 1e6:.0f} MB"
        else:
            m = len(system.centres)
            memory = 8 * (6 * m * m + 4 * BLOCK * m + 2 * P * len(self.frames))
            method = f"{m} inducing points"
            reason = f"{P} points are too many for a matrix of all, {memory / 1e6:.0f} MB"
        report = PointReport(
            points=len(given.points),
            dropped=given.dropped,
            channels=len(given.values) // (2 if given.is_complex else 1),
            embedders=DualField.axis_similarities(system),
            rows=f"dual form ({self.form.reason})",
            method=method,
            reason=reason,
            convergence=Convergence(0, 0.0, 0.0),
            penalty=Penalty(math.ldexp(system.ridge, given.weight_exponent)),
            chosen_by=f"restricted likelihood of {choice.points} "
            + ("points" if self.repeats is None else "places")
            if choice.candidates
            else "given",
            candidates=choice.candidates if first else [],
            seconds=time.perf_counter() - started,
            measure_residual=lambda: math.nan,
            measure_freedom=system.freedom,
        )
        report.form, report.memory = "dual", memory
        report.outlying = remark(solution.left_out, self.options.settings.robust)
        largest = float(factors.max())
        errors = solution.left_out * (factors / largest)[:, None]  # squares do not underflow
        squares = np.mean(errors**2, axis=0) * len(errors.T) / solution.left_out_weights.sum()
        if len(self.columns) < n:
            mean = float(np.mean(squares))
            report.expected_error = largest * math.sqrt(mean)
            spread = float(np.std(squares)) / math.sqrt(len(squares))
            spread = spread / (2 * math.sqrt(mean)) if mean else 0.0
            report.expected_error_uncertainty = largest * spread
            report.held_out = "every point in turn"
        return report
