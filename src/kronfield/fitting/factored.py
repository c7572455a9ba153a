"""Factored weights for many points: rank, penalty, splines and axes chosen by held-out points."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, fit_overflow, problem
from kronfield._core.copies import NeedsSamples
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield._core.threads import scipy_linalg
from kronfield.embedders import BSpline
from kronfield.field.factored import FactoredField
from kronfield.field.trend import Trend, TrendBasis
from kronfield.fitting.forms import Form
from kronfield.fitting.inputs import PointInput, exponent_beyond
from kronfield.fitting.options import PointOptions
from kronfield.fitting.report import Candidate, PointReport
from kronfield.fitting.residual import Residual
from kronfield.fitting.robust import HuberErrors, PointErrors, remark
from kronfield.solvers.factored.als import (
    Factors,
    Sweeper,
    bins_of,
    new_product,
    values_at,
)
from kronfield.solvers.factored.axes import Rows, bend, spline_axis
from kronfield.solvers.points.cg import Convergence
from kronfield.solvers.points.normal import Penalty

# Points whose rows are computed together, to bound the memory.
CHUNK = 2048
# A ridge relative to the mean of the diagonal, which makes J'J + penalty definite: see `als.RIDGE`.
RIDGE = 1e-8
# Values that deviate from their mean by less than this fraction of the largest are constant but for
# rounding.
CONSTANT = 1e-14


@record(eq=False)
class _Model:
    """The choice for one plane: splines, weights, penalty, and the axes that have an effect."""

    embedders: tuple[BSpline, ...]
    factors: Factors
    penalty: float
    free: tuple[bool, ...]
    error: float  # mean square at held-out points, of values of unit variance


class _Search:
    """The choice for one plane, on some of the points.

    Parameters
    ----------
    points : array (n, D)
        Positions between 0 and 1.
    values : array (n,)
        Values of about unit variance.
    weights : array (n,) or None
        The weights of the points.
    held : array (n,) of bool
        The points that are held out.
    options : PointOptions
        The options of the fit.
    target : float
        The mean squared error of another form. The search for products stops if this error is out
        of reach even if each further product lowered the error as much as the last.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        weights: Array | None,
        held: Array,
        options: PointOptions,
        target: float = 0.0,
    ) -> None:
        self.settings, self.target = options.settings.factored, target
        self.most_work = self.settings.work(len(points))
        self.kept, self.held = points[~held], points[held]
        self.values, self.truth = values[~held], values[held]
        self.weights = None if weights is None else weights[~held]
        self.held_weights = None if weights is None else weights[held]
        self.work, self.candidates = 0.0, list[Candidate]()
        self.sweeper: Sweeper | None = None

    def squares(self, model: _Model) -> Array:
        """Return the squared errors at the held-out points."""
        return (self.truth - values_at(model.embedders, model.factors, self.held)) ** 2

    def at(self, model: _Model) -> float:
        """Return the mean squared error at the held-out points."""
        return float(np.average(self.squares(model), weights=self.held_weights))

    def is_as_good(self, simpler: _Model, squares: Array) -> bool:
        """Return whether a simpler model predicts as well as one with these squared errors.

        The difference at each held-out point has a mean and a standard error. The simpler model is
        as good unless its error is larger by more than `idle` standard errors: the rule of one
        standard error (Breiman, Friedman, Olshen and Stone, 1984), of paired differences.
        """
        more = self.squares(simpler) - squares
        weights = np.ones(len(more)) if self.held_weights is None else self.held_weights
        weights = weights / weights.sum()
        mean = float(weights @ more)
        error = math.sqrt(float(weights**2 @ (more - mean) ** 2))
        return mean <= self.settings.idle * error

    def rows(self, model: _Model) -> Sweeper:
        """Return the sweeper for the splines and axes of a model."""
        rows = Rows(model.embedders, self.kept)
        self.sweeper = Sweeper(
            rows, self.values, self.weights, model.free, slopes=self.settings.slopes
        )
        return self.sweeper

    def swept(self, model: _Model, sweeps: int) -> _Model:
        """Return the model after some sweeps, with its error."""
        assert self.sweeper is not None
        T, K = model.factors.rank + 1, max(emb.size for emb in model.embedders)
        each = len(self.kept) * (16 * T * T + 100 * T) + (K * T) ** 3 / 3 + 4e6
        self.work += sweeps * len(self.sweeper.axes) * each
        factors = self.sweeper.sweeps(model.factors, model.penalty, sweeps)
        found = replace(model, factors=factors)
        found = replace(found, error=self.at(found))
        names = {"products": factors.rank, "splines": K, "penalty": model.penalty}
        self.candidates.append(Candidate("factored", names, found.error))
        return found

    @property
    def is_over(self) -> bool:
        """Whether the planned amount of work is used up."""
        return self.work > self.most_work

    def compared(self, model: _Model, sweeps: int) -> _Model:
        """Return the model with the best of several penalties, from the same start."""
        best, own = self.swept(model, sweeps), self.settings
        least, most = own.penalties
        for step in (own.penalty_step, 1.0 / own.penalty_step):
            penalty, improved = model.penalty, False
            while least < penalty * step < most and not self.is_over:
                penalty *= step
                other = self.swept(replace(model, penalty=penalty), sweeps)
                if other.error >= best.error:
                    break
                best, improved = other, True
            if improved:
                break
        return best

    def refined(self, model: _Model) -> _Model:
        """Return the model with more splines on each axis, if that helps."""
        while not self.is_over:
            size = 2 * max(emb.size for emb in model.embedders)
            if size > self.settings.most_splines:
                break
            embedders, weights = [], []
            for d, (emb, W) in enumerate(zip(model.embedders, model.factors.weights, strict=True)):
                new = emb
                if emb.degree == 3 and model.free[d]:
                    few, share = self.settings.few_values, self.settings.knots_at_points
                    new = spline_axis(self.kept[:, d], size, few, share)
                at = np.clip(new.centres, 0.0, 1.0)
                embedders.append(new)
                weights.append(W if new is emb else np.linalg.solve(new(at), emb(at) @ W))
            if all(new is emb for new, emb in zip(embedders, model.embedders, strict=True)):
                break
            other = replace(model, embedders=tuple(embedders), factors=Factors(tuple(weights)))
            self.rows(other)
            other = self.swept(other, self.settings.sweeps)
            if other.error >= (1.0 - self.settings.splines_gain) * model.error:
                break
            model = other
        self.rows(model)
        return model

    def with_products(self, model: _Model) -> _Model:
        """Return the model with products, as long as they help."""
        assert self.sweeper is not None
        bins, failed = bins_of(self.kept, self.settings.bins), 0
        while model.factors.rank < self.settings.most_products and failed < self.settings.patience:
            if self.is_over:
                break
            self.sweeper.start(model.factors)
            axes = self._strongest(model)
            left = (self.sweeper.values - self.sweeper.fitted()).astype(np.float64)
            if self.weights is not None:
                left = left * self.weights / self.weights.mean()
            new = new_product(model.embedders, self.kept, bins, left, axes, failed)
            if new is None:
                break
            more = replace(model, factors=model.factors.with_product(new))
            several = more.factors.rank in self.settings.compared_at and not failed
            change = self.compared if several else self.swept
            more = change(more, self.settings.sweeps)
            if more.error < (1.0 - self.settings.gain) * model.error:
                ratio, model, failed = more.error / model.error, more, 0
                steps = self.settings.most_products - model.factors.rank
                if model.factors.rank > 1 and model.error * ratio**steps > self.target > 0:
                    break
            else:
                failed += 1
        return model

    def _strongest(self, model: _Model) -> list[int]:
        """Return the axes of largest effect, which are searched for pairs."""
        assert self.sweeper is not None
        axes = self.sweeper.axes
        most = self.settings.searched_axes
        if len(axes) <= most:
            return list(axes)
        effects = [float(np.var(self.sweeper.functions[d][:, 0])) for d in axes]
        kept = np.argsort(effects)[::-1][:most]
        return sorted(axes[i] for i in kept)

    def without_idle(self, model: _Model) -> _Model:
        """Return the model without the axes that have no effect, if it is as good."""
        free, weights = list(model.free), list(model.factors.weights)
        squares = self.squares(model)
        for d, W in enumerate(model.factors.weights):
            if not free[d]:
                continue
            # functions of this axis replaced by their mean at the points
            constant = _constant(W, np.asarray(model.embedders[d](self.kept[:, d])))
            changed = list(model.factors.weights)
            changed[d] = constant
            if self.is_as_good(replace(model, factors=Factors(tuple(changed))), squares):
                free[d], weights[d] = False, constant
        if all(free) or free == list(model.free) or not any(free):
            return model
        other = replace(model, factors=Factors(tuple(weights)), free=tuple(free))
        self.rows(other)
        other = self.swept(other, self.settings.sweeps)
        if self.is_as_good(other, squares):
            return other
        self.rows(model)
        return model

    def best(self, embedders: Sequence[BSpline], free: Sequence[bool]) -> _Model:
        """Choose penalty, splines, products and axes in turn, and return the model."""
        first = self.settings.first_penalty
        model = _Model(tuple(embedders), Factors.zeros(embedders), first, tuple(free), math.inf)
        self.rows(model)
        model = self.compared(model, self.settings.first_sweeps)
        model = self.refined(model)
        model = self.with_products(model)
        model = self.refined(model)
        return self.without_idle(model)


def _constant(weights: Array, rows: Array) -> Array:
    """Return weights (K, T) of the constants that are the means of functions at ``rows``."""
    return np.broadcast_to((rows @ weights).mean(axis=0), weights.shape).copy()


class FactoredFit:
    """Fits values at known points with factored weights."""

    def __init__(self, given: PointInput, options: PointOptions, form: Form) -> None:
        self.given, self.options, self.form = given, options, form
        self.settings = options.settings.factored
        self.known = slice(None) if given.weights is None else given.weights > 0
        box = given.domain or given.box
        self.frames = tuple(Frame(low, high - low, low, high) for low, high in box)
        raw = given.points[self.known]
        self.points = np.stack([f.unit(raw[:, i]) for i, f in enumerate(self.frames)], axis=1)
        np.clip(self.points, 0.0, 1.0, out=self.points)  # rounding
        weights = None if given.weights is None else given.weights[self.known]
        self.weights = None if weights is None else weights / weights.mean()
        self.basis = TrendBasis.of(0, box)
        order = np.random.default_rng(options.seed).permutation(len(self.points))
        self.used = np.sort(order[: self.settings.most_points])
        part = order[: self.settings.part(len(order))]
        self.part = np.sort(part)
        #: The indices of points that are held out.
        self.held = np.sort(part[: max(1, int(self.settings.held_out * len(part)))])
        # at least the four splines of a cubic
        size = max(4, min(self.settings.splines, len(order) // self.settings.points_per_spline))
        few, share = self.settings.few_values, self.settings.knots_at_points
        self.embedders = [spline_axis(x, size, few, share) for x in self.points.T]
        self.free = [bool(x.max() > x.min()) for x in self.points.T]
        self.models: list[_Model] | None = None
        self.candidates: list[Candidate] = []
        self.memory = 0

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples("refit", "the field that fit_points returned", "Call fit_points.")

    def __call__(self, values: Any) -> FactoredField:
        """Return the field of other values at the same points: only settings are kept."""
        started = time.perf_counter()
        return self.field(self.given.other_values(values), started)

    def with_weights(self, weights: Array, *, fixed: bool = False) -> FactoredFit:
        """Return a fit with the same settings and other weights."""
        del fixed  # the settings are the same in any case
        return self.continued(self.given.with_weights(weights))

    def fitted(self, values: Array) -> Array:
        """Return the fit (C, P) of values at the points, with the settings chosen before."""
        scaled, centre, factors = self._scaled(values)
        assert self.models is not None
        points = np.stack([f.unit(self.given.points[:, i]) for i, f in enumerate(self.frames)], 1)
        found = []
        for i, plane in enumerate(scaled):
            swept = self._swept(self.models[i], plane, self.used, self.settings.last_sweeps)
            self.models[i] = swept
            found.append(values_at(swept.embedders, swept.factors, np.clip(points, 0.0, 1.0)))
        return np.asarray(np.array(found) * factors[:, None] + centre[:, None])

    def errors(self, field: FactoredField, values: Array, weights: Array | None) -> PointErrors:
        """Return the errors of the field that was fitted last, at all points.

        The deviation of a residual r from 0 is that of the noise times the root of 1 - h, with the
        leverage h. The deviation of the noise is not estimated robustly: errors of a function
        that few products cannot represent count as noise.
        """
        given = self.given
        away = (values - field.planes_at(given.points)).astype(np.float64)
        root = np.ones(len(away.T)) if weights is None else np.sqrt(weights)
        least = float(np.finfo(np.float64).tiny) ** 0.25
        scaled, _, factors = self._scaled(values)
        h = np.zeros(away.shape)
        h[:, self.known] = FactoredUncertainty(self, scaled, factors).leverages()
        away_of_all = away * root / np.sqrt(1.0 - np.minimum(h, 1.0 - 1e-9))
        scales = np.sqrt(np.mean(away_of_all[:, self.known] ** 2, axis=1))
        scales = np.maximum(scales, least)
        return PointErrors(away, away_of_all / scales[:, None], scales)

    def _scaled(self, values: Array) -> tuple[Array, Array, Array]:
        """Return values (C, P) of unit variance, their centres and their factors."""
        wide = values[:, self.known].astype(np.float64)
        largest = float(np.abs(wide).max()) or 1.0
        wide = wide / largest  # avoids overflow
        centre = np.average(wide, axis=1, weights=self.weights)
        scales = wide.std(axis=1)
        scales[scales <= CONSTANT] = 1.0
        return (wide - centre[:, None]) / scales[:, None], centre * largest, scales * largest

    def continued(self, given: PointInput) -> FactoredFit:
        """Return a fit of the points ``given``, with the models that were chosen here."""
        new = FactoredFit(given, self.options, self.form)
        new.models, new.candidates = self.models and list(self.models), self.candidates
        return new

    def choose(self, values: Array, target: float = 0.0) -> None:
        """Choose the model of each channel of values (C, P), from some of the points.

        ``target`` is the mean squared error of another form, relative to the variance of the
        values: the search ends when it is out of reach.
        """
        scaled, _, _ = self._scaled(values)
        self.models, self.candidates = [], []
        part, held = self.part, np.isin(self.part, self.held)
        weights = None if self.weights is None else self.weights[part]
        for plane in scaled:
            few = len(part) < self.settings.fewest
            if few or not np.any(plane) or not any(self.free):
                zeros, first = Factors.zeros(self.embedders), self.settings.first_penalty
                model = _Model(tuple(self.embedders), zeros, first, tuple(self.free), 0.0)
                self.models.append(model)
                continue
            search = _Search(self.points[part], plane[part], weights, held, self.options, target)
            best = search.best(self.embedders, self.free)
            self.models.append(best)
            kept = min(search.candidates, key=lambda one: abs(one.score - best.error), default=None)
            self.candidates += [
                replace(one, chosen=one is kept) for one in _best_of_each_rank(search.candidates)
            ]

    def errors_at_held(self, values: Array) -> Array:
        """Return the errors (C, n) at held-out points of models fitted to all other points."""
        assert self.models is not None
        scaled, _, factors = self._scaled(values)
        others = np.setdiff1d(self.used, self.held)
        found = []
        for i, plane in enumerate(scaled):
            self.models[i] = self._swept(self.models[i], plane, others, self.settings.last_sweeps)
            model = self.models[i]
            away = plane[self.held] - values_at(
                model.embedders, model.factors, self.points[self.held]
            )
            self.models[i] = replace(model, error=float(np.mean(away**2)))
            found.append(away * factors[i])
        return np.array(found)

    def _swept(self, model: _Model, plane: Array, which: Array, most: int) -> _Model:
        """Return a model after sweeps over the points ``which``."""
        if not np.any(plane) or not any(model.free):
            return model
        rows = Rows(model.embedders, self.points[which])
        weights = None if self.weights is None else self.weights[which]
        slopes = self.settings.slopes
        sweeper = Sweeper(rows, plane[which], weights, model.free, slopes=slopes)
        factors = sweeper.sweeps(model.factors, model.penalty, most)
        self.memory = max(self.memory, sweeper.memory)
        return replace(model, factors=factors)

    def field(
        self, values: Array, started: float, huber: HuberErrors | None = None
    ) -> FactoredField:
        """Return the field of values (C, P), with its report.

        With ``huber`` the weights of points are those of Huber's loss, and standard errors account
        for its influence function.
        """
        given = self.given
        scaled, centre, factors = self._scaled(values)
        if self.models is None:
            self.choose(values)
        assert self.models is not None
        self.models = [
            self._swept(model, plane, self.used, self.settings.last_sweeps)
            for model, plane in zip(self.models, scaled, strict=True)
        ]
        embedders = self.models[0].embedders
        same = all(model.embedders == embedders for model in self.models)
        if not same:  # all channels get the finest splines
            embedders = max(
                (model.embedders for model in self.models), key=lambda e: sum(x.size for x in e)
            )
        rank = max(model.factors.rank for model in self.models)
        planes = np.zeros((len(scaled), sum(emb.size for emb in embedders), 1 + rank))
        for plane, model, factor in zip(planes, self.models, factors, strict=True):
            columns = [
                _on_splines(W, old, new)
                for W, old, new in zip(
                    model.factors.weights, model.embedders, embedders, strict=True
                )
            ]
            columns = _balanced(columns, float(factor))
            plane[:, : 1 + model.factors.rank] = np.concatenate(columns)
        trend = Trend(self.basis, centre[:, None])
        if not np.all(np.isfinite(planes)):
            raise fit_overflow()
        report = self._report(scaled, factors, started)
        field = FactoredField(
            embedders,
            planes,
            self.frames,
            trend=trend,
            channels=given.channels,
            is_complex=given.is_complex,
            dtype=given.dtype,
            report=report,
            again=self if huber is None else huber.again,
            uncertainty=FactoredUncertainty(self, scaled, factors, huber),
        )
        report.measure_residual_by(Residual(field, given.points, values, given.weights))
        report.seconds = time.perf_counter() - started
        return field

    def _report(self, scaled: Array, factors: Array, started: float) -> PointReport:
        given, models = self.given, self.models
        assert models is not None
        idle = [d for d in range(len(self.frames)) if not any(model.free[d] for model in models)]
        unused = f", axes without effect: {', '.join(map(str, idle))}" if idle else ""
        ranks = ", ".join(str(model.factors.rank) for model in models)
        P, used = len(self.points), len(self.used)
        some = f" of {used} of the points" if used < P else ""
        report = PointReport(
            points=len(given.points),
            dropped=given.dropped,
            channels=len(given.values) // (2 if given.is_complex else 1),
            embedders=list(models[0].embedders),
            rows=f"factored weights ({self.form.reason}), {ranks} products{unused}",
            method=f"alternating least squares{some}",
            reason=f"{P} points, {self.memory / 1e6:.0f} MB",
            convergence=Convergence(0, 0.0, 0.0),
            penalty=Penalty(models[0].penalty),
            chosen_by=f"{len(self.held)} held-out points",
            candidates=self.candidates,
            seconds=time.perf_counter() - started,
            measure_residual=lambda: math.nan,
            measure_freedom=lambda: FactoredUncertainty(self, scaled, factors).freedom(),
        )
        report.form, report.memory = "factored", self.memory
        held = self.held
        if len(held):
            fitted = [values_at(m.embedders, m.factors, self.points[held]) for m in models]
            report.outlying = remark(scaled[:, held] - fitted, self.options.settings.robust)
        if all(math.isfinite(model.error) for model in models):
            exponent = exponent_beyond(float(factors.max()))  # squares do not overflow
            units = np.ldexp(factors, -exponent)
            squares = [model.error * unit**2 for model, unit in zip(models, units, strict=True)]
            report.expected_error = math.ldexp(math.sqrt(float(np.mean(squares))), exponent)
            report.expected_error_uncertainty = report.expected_error / math.sqrt(
                2 * len(self.held)
            )
            report.held_out = "points"
        return report


def _best_of_each_rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidate with the lowest score of each number of products and splines."""
    best: dict[Any, Candidate] = {}
    for one in candidates:
        key = (one.parameters["products"], one.parameters["splines"])
        if key not in best or one.score < best[key].score:
            best[key] = one
    return list(best.values())


def _on_splines(weights: Array, old: BSpline, new: BSpline) -> Array:
    """Return the weights of the same functions for splines that can represent them."""
    if old == new:
        return weights
    at = np.clip(new.centres, 0.0, 1.0)
    return np.linalg.solve(np.asarray(new(at)), np.asarray(old(at)) @ weights)


def _balanced(weights: list[Array], factor: float) -> list[Array]:
    """Return weights in the units of the values, with products of equal size on all axes."""
    rank = weights[0].shape[1] - 1
    sizes = np.array([np.abs(W[:, 1:]).max(axis=0) if rank else np.zeros(0) for W in weights])
    sizes = np.where(sizes > 0, sizes, 1.0)
    logs = np.log(sizes)
    share = np.exp(logs.sum(axis=0) / len(weights)) * abs(factor) ** (1.0 / len(weights))
    return [
        np.column_stack([W[:, :1] * factor, W[:, 1:] * (share / size)])
        for W, size in zip(weights, sizes, strict=True)
    ]


def weight_count(model: _Model) -> int:
    """Return the number of weights of a model that are not constants."""
    sizes = [emb.size for d, emb in enumerate(model.embedders) if model.free[d]]
    return (model.factors.rank + 1) * sum(sizes)


class FactoredUncertainty:
    """Standard errors of factored weights, in the approximation of Gauss and Newton.

    The field is linearised in all its weights at the solution. With the penalty as prior, the
    covariance is sigma^2 (J'J + penalty)^-1. J'J is summed over at most `error_points` points and
    scaled up. The part of the values that products of this rank cannot represent counts as noise.
    """

    def __init__(
        self,
        fit: FactoredFit,
        scaled: Array,
        factors: Array,
        huber: HuberErrors | None = None,
    ) -> None:
        assert fit.models is not None
        self.fit, self.scaled, self.factors, self.huber = fit, scaled, factors, huber
        self.settings = fit.settings
        self.models = list(fit.models)
        self._solved: list[tuple[Array, float, float] | None] = [None] * len(self.models)

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this in a pickled field."""
        return NeedsSamples(
            "standard_error",
            "the field that fit_points returned",
            "Ask it before it is pickled, or fit the points again.",
        )

    def _jacobian(self, model: _Model, points: Array) -> Array:
        """Return the derivatives of the field by its weights at points, (n, weights)."""
        rows = [np.asarray(emb(points[:, d])) for d, emb in enumerate(model.embedders)]
        functions = [B @ W for B, W in zip(rows, model.factors.weights, strict=True)]
        columns = []
        for d, B in enumerate(rows):
            if not model.free[d]:
                continue
            G = np.ones_like(functions[0])
            for e, F in enumerate(functions):
                if e != d:
                    G[:, 1:] *= F[:, 1:]
            columns.append((B[:, :, None] * G[:, None, :]).reshape(len(points), -1))
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(points), 0))

    def _system(self, i: int) -> tuple[Array, float, float]:
        """Return the factor of J'J + penalty, sigma, and the degrees of freedom of a plane."""
        known = self._solved[i]
        if known is not None:
            return known
        model, fit = self.models[i], self.fit
        T, count = model.factors.rank + 1, weight_count(model)
        most = self.settings.error_weights
        if count > most:
            raise problem(
                "standard_error",
                f"a fit with {count} weights",
                f"at most {most}",
                "Fit with form='dual', which has exact standard errors.",
            )
        P = len(fit.used)
        some = fit.used[
            np.unique(np.linspace(0, P - 1, min(P, self.settings.error_points)).astype(int))
        ]
        H = np.zeros((count, count))
        left, total = 0.0, 0.0
        for start in range(0, len(some), CHUNK):
            part = some[start : start + CHUNK]
            J = self._jacobian(model, fit.points[part])
            w = np.ones(len(part)) if fit.weights is None else fit.weights[part]
            H += J.T @ (w[:, None] * J)
            away = self.scaled[i, part] - values_at(
                model.embedders, model.factors, fit.points[part]
            )
            left, total = left + float(w @ away**2), total + float(w.sum())
        H *= P / len(some)
        data, slopes = H.copy(), self.settings.slopes
        start = 0
        for d, emb in enumerate(model.embedders):
            if not model.free[d]:
                continue
            block = slice(start, start + emb.size * T)
            # the mean square of the other factors, as in the sweeps
            mean = np.einsum("itjt->t", H[block, block].reshape(emb.size, T, emb.size, T)) / P
            H[block, block] += model.penalty * np.kron(bend(emb, slopes), np.diag(mean))
            start += emb.size * T
        ridge = RIDGE * float(np.trace(H)) / max(1, count)
        H[np.diag_indices(count)] += ridge or 1.0
        L = scipy_linalg().cholesky(H, lower=True, check_finite=False)
        half = scipy_linalg().solve_triangular(L, data, lower=True, check_finite=False)
        freedom = float(
            np.trace(scipy_linalg().solve_triangular(L, half.T, lower=True, check_finite=False))
        )
        remaining = max(P - freedom, self.settings.least_left * P)
        sigma = math.sqrt(left / max(total, 1e-300) * P / remaining)
        if self.huber is not None:
            # the slope of Huber's influence, nearly the same at all points, multiplies the matrix,
            # so its root divides the standard error
            noise = self.huber.noise
            level = noise.level(P, P - remaining)[i] / math.sqrt(noise.slope)
            # at the mean weight, which is 1 in the matrix
            weight = float(self.huber.weights[fit.known].mean())
            sigma = float(level) / math.sqrt(weight) / float(self.factors[i])
        found = (L, sigma, freedom)
        self._solved[i] = found
        return found

    def leverages(self) -> Array:
        """Return the leverages (C, n) of the points; 0 if there are too many weights."""
        fit = self.fit
        found = np.zeros((len(self.models), len(fit.points)))
        for i, model in enumerate(self.models):
            if weight_count(model) > self.settings.error_weights:
                continue
            L = self._system(i)[0]
            for start in range(0, len(fit.points), CHUNK):
                part = slice(start, start + CHUNK)
                J = self._jacobian(model, fit.points[part])
                half = scipy_linalg().solve_triangular(L, J.T, lower=True, check_finite=False)
                w = 1.0 if fit.weights is None else fit.weights[part]
                found[i, part] = w * np.sum(half**2, axis=0)
        return found

    def freedom(self) -> float:
        """Return the trace of the hat matrix of the linearised fit, averaged over planes."""
        return 1.0 + float(np.mean([self._system(i)[2] for i in range(len(self.models))]))

    def deviations(self, points: Array, noise: float | None, samples: int, seed: int) -> Array:
        """Return the standard errors (P, C) at points (P, D), by default for the noise found."""
        del samples, seed  # nothing is random
        units = np.stack([f.unit(points[:, i]) for i, f in enumerate(self.fit.frames)], axis=1)
        out = np.empty((len(points), len(self.models)))
        for i, model in enumerate(self.models):
            L, sigma, _ = self._system(i)
            level = sigma * self.factors[i] if noise is None else noise
            for start in range(0, len(units), CHUNK):
                part = slice(start, start + CHUNK)
                J = self._jacobian(model, units[part])
                half = scipy_linalg().solve_triangular(L, J.T, lower=True, check_finite=False)
                constant = 1.0 / len(self.fit.used)  # the variance of the mean of the values
                out[part, i] = level * np.sqrt(np.sum(half**2, axis=0) + constant)
        return out
