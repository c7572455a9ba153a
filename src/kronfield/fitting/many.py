"""Fits of points without a grid: the dual form, factored weights, or the better of the two."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from kronfield._core.arrays import Array
from kronfield.field.products import ProductField
from kronfield.fitting.dual import DualFit
from kronfield.fitting.factored import FactoredFit
from kronfield.fitting.forms import Form
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.options import PointOptions
from kronfield.fitting.report import Candidate
from kronfield.fitting.robust_many import RobustFit


def fit_many(given: PointInput, options: PointOptions, form: Form, started: float) -> ProductField:
    """Return the field of points in the form that was selected."""
    if options.is_robust:
        return RobustFit(given, options, form, _fitted).field(given.values, started)
    return _fitted(given, options, form, started)[1]


def _fitted(
    given: PointInput, options: PointOptions, form: Form, started: float
) -> tuple[DualFit | FactoredFit, ProductField]:
    """Return the fit and the field of points in the form that was selected."""
    if form.name == "dual":
        dual = DualFit(given, options, form)
        return dual, dual.field(given.values, started)
    if form.name == "factored":
        factored = FactoredFit(given, options, form)
        return factored, factored.field(given.values, started)
    return _better(given, options, form, started)


def _better(
    given: PointInput, options: PointOptions, form: Form, started: float
) -> tuple[DualFit | FactoredFit, ProductField]:
    """Return the fit and the field of the form that predicts held-out points better.

    Both forms are fitted to the same points. The dual form predicts each held-out point from all
    others in closed form, factored weights are fitted without the held-out points.
    """
    known = np.arange(len(given.points)) if given.weights is None else np.flatnonzero(given.weights)
    P, most = len(known), options.settings.factored.judged_points
    some = given
    if most < P:
        order = np.random.default_rng(options.seed).permutation(known)
        some = _part(given, np.sort(order[:most]))
    factored = FactoredFit(some, options, form)
    dual = DualFit(some, options, form, factored.held, P)
    field: ProductField = dual.field(some.values, started)
    assert dual.left_out is not None
    weights = np.ones(len(factored.held))
    if factored.weights is not None:
        weights = factored.weights[factored.held]
    spread = np.maximum(some.values.astype(np.float64).std(axis=1), 1e-300)[:, None]
    # errors of the dual form come multiplied by the root of the weight
    own = _squares(dual.left_out * np.sqrt(dual.noise[factored.held]), spread, weights)
    scores, clear = [own], own < options.settings.dual.clear**2
    if not clear:
        factored.choose(some.values, own)
        scores.append(_squares(factored.errors_at_held(some.values), spread, weights))
    wins = len(scores) > 1 and scores[1] < scores[0]
    names = ("dual", "factored")
    candidates = [
        Candidate("form", {"name": name}, math.sqrt(score), chosen=(name == "factored") == wins)
        for name, score in zip(names, scores, strict=False)
    ]
    text = " against ".join(f"{one.score:.3g} ({one.parameters['name']})" for one in candidates)
    why = f"{form.reason}; error at held-out points {text}, relative to the spread of the values"
    chosen = replace(form, name=names[wins], reason=why)
    fit: DualFit | FactoredFit = dual
    if wins:
        factored.form = chosen
        if some is not given:
            factored = factored.continued(given)
        fit, field = factored, factored.field(given.values, started)
    elif some is not given:
        whole = DualFit(given, options, chosen)
        whole.choice = dual.choice
        fit, field = whole, whole.field(given.values, started)
    else:
        dual.form = chosen
        field.report.rows = f"dual form ({why})"  # type: ignore[union-attr]
    assert field.report is not None
    field.report.candidates = [*candidates, *field.report.candidates]
    return fit, field


def _squares(errors: Array, spread: Array, weights: Array) -> float:
    """Return the mean square of errors (C, n), relative to the spread of each channel."""
    return float(np.mean(np.average((errors / spread) ** 2, axis=1, weights=weights)))


def _part(given: PointInput, which: Array) -> PointInput:
    """Return the input of the points with the indices ``which``."""
    weights = None if given.weights is None else given.weights[which]
    some = PointInput(
        given.points[which], given.values[:, which].T, weights, given.domain or given.box, None
    )
    some.is_complex, some.channels, some.dtype = given.is_complex, given.channels, given.dtype
    return some
