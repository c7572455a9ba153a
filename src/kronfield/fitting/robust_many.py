"""Huber's loss without a grid: the dual form and factored weights of values with outliers.

Gross outliers spoil the choice of widths, ridge and products, so they are rejected first. Those
that differ from all neighbours are left out of a first fit. Then each point is compared with its
prediction from all other points, in standard deviations of this prediction: in the dual form both
have a closed form, also for points that took part in the fit. Rejected points are left out, and
settings are chosen again, until no further point is rejected. The rest have Huber's loss (1964):
the settings stay, and points are weighted again until the fit no longer changes.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.copies import NeedsSamples
from kronfield.field.products import ProductField
from kronfield.field.trend import TrendBasis
from kronfield.fitting.dual import DualFit
from kronfield.fitting.factored import FactoredFit
from kronfield.fitting.forms import Form
from kronfield.fitting.inputs import PointInput, exponent_beyond
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_grids import mean_distances
from kronfield.fitting.robust import (
    HuberErrors,
    HuberNoise,
    PointErrors,
    RobustReport,
    huber_weights,
    in_scales,
    least_scale,
    listed,
    residual_scales,
    suspects,
)
from kronfield.solvers.points.trend import Regression

# Points are weighted again until the fit moves by less than this many scales, root mean square over
# the points: a tolerance. The change that remains is a few times this, a small part of the noise.
SETTLED = 3e-3
# The smallest scale of values that are not tiny: squares of smaller ones underflow.
LEAST = float(np.finfo(np.float64).tiny) ** 0.25
# The exponent of 2 that scaled values do not exceed: squares of larger ones overflow.
LARGEST = 500

Fit = DualFit | FactoredFit
#: Fits points in one of the forms without a grid, by least squares.
Fitter = Callable[[PointInput, PointOptions, Form, float], tuple[Fit, ProductField]]


class RobustFit:
    """Fits values with outliers at known points in a form without a grid.

    Tiny and huge values are multiplied by a power of two, so that squares neither underflow nor
    overflow. The field is that of the values as they are.
    """

    def __init__(
        self, given: PointInput, options: PointOptions, form: Form, fitted: Fitter
    ) -> None:
        self.given, self.options, self.form, self.fitted = given, options, form, fitted
        self.decisions = options.settings.robust
        known = np.ones(len(given.points), dtype=bool)
        self.known = known if given.weights is None else given.weights > 0
        self.settled: Fit | None = None  # the fit whose settings are used for other values

    def without_samples(self) -> NeedsSamples:
        """Return the placeholder for this object in a pickled field."""
        return NeedsSamples("refit", "the field that fit_points returned", "Call fit_points.")

    def __call__(self, values: Any) -> ProductField:
        """Return the field of other values at the same points, with the same settings."""
        started = time.perf_counter()
        return self.field(self.given.other_values(values), started)

    def field(self, values: Array, started: float) -> ProductField:
        """Return the field of values (C, P), with its report."""
        exponent = self._exponent(values)
        if exponent:  # points of weight 0 may have any value
            values = np.ldexp(np.where(self.known, values.astype(np.float64), 0.0), -exponent)
        out = self._suspects(values)
        fit, field = self._chosen(values, out)
        for attempt in range(self.decisions.choices):
            errors = fit.errors(field, values, self.given.weights)  # type: ignore[arg-type]
            far = self.known & (self._sizes(errors, out) > self.decisions.rejected)
            # after the first fit some points that differ from their neighbours return
            following = far if attempt == 0 else out | far
            if np.array_equal(following, out):
                break
            hidden = bool(np.any(following & ~out))
            out = following
            if hidden and self.settled is None:  # they took part in the choice of settings
                fit, field = self._chosen(values, out)
            else:
                fit = fit.with_weights(self._weights(~out))
                field = fit.field(values, started)
        self.settled = self.settled or fit
        return self._reweighted(fit, values, out, exponent, started)

    def _exponent(self, values: Array) -> int:
        """Return the exponent of 2 that scales values (C, P) to about 1; 0 if they are moderate.

        Half of the values decide, not outliers, unless these would overflow.
        """
        sizes = np.abs(values[:, self.known]).astype(np.float64)
        sizes = sizes[sizes > 0]
        if not len(sizes):
            return 0
        least = math.frexp(float(sizes.max()))[1] - LARGEST
        return max(exponent_beyond(float(np.median(sizes))), least)

    # Which points are rejected
    # ------------------------------------------------------------------------------------------

    def _suspects(self, values: Array) -> Array:
        """Return which points differ from all of their neighbours."""
        given, flat = self.given, values
        if self.options.trend:
            basis = TrendBasis.of(self.options.trend, given.domain or given.box)
            plain = Regression.of(basis.columns(given.points), given.weights)
            wide = values.astype(np.float64)
            flat = wide - plain.coefficients(wide) @ plain.columns
        lengths = mean_distances(given.box, len(given.points))
        return suspects(given.points, flat, given.weights, lengths, self.decisions)

    def _least(self, values: Array, kept: Array) -> Array:
        """Return the smallest scales (C,) at unit weight: the rounding of values of points kept."""
        if not np.any(kept & self.known):
            return np.full(len(values), LEAST)
        rounding = least_scale(values[:, kept & self.known], 0.0)
        if self.given.weights is not None:
            rounding = rounding * math.sqrt(float(self.given.weights[self.known].mean()))
        return np.asarray(np.maximum(rounding, LEAST))

    def _sizes(self, errors: PointErrors, out: Array) -> Array:
        """Return the errors (P,) in robust standard deviations of those that are not left out.

        They are at least the standard deviations that the fit expects, so that values that are more
        accurate than expected are no outliers.
        """
        scales = residual_scales(errors.relative, None, self.known & ~out, 1.0)
        return in_scales(errors.relative, None, scales)

    # Fits
    # ------------------------------------------------------------------------------------------

    def _weights(self, robust: Array) -> Array:
        """Return the weights of the points times robust weights (P,)."""
        weights = robust.astype(np.float64)
        return weights if self.given.weights is None else weights * self.given.weights

    def _chosen(self, values: Array, out: Array) -> tuple[Fit, ProductField]:
        """Return the fit without the points ``out``, with the settled settings or chosen ones."""
        weights, started = self._weights(~out), time.perf_counter()
        if self.settled is not None:
            fit = self.settled.with_weights(weights)
            return fit, fit.field(values, started)
        given = self.given.with_weights(weights) if out.any() else copy.copy(self.given)
        given.values = values
        return self.fitted(given, self.options, self.form, started)

    def _reweighted(
        self, fit: Fit, values: Array, out: Array, exponent: int, started: float
    ) -> ProductField:
        """Return the field with Huber's loss, in which the points ``out`` have the weight 0.

        It is that of the values times 2^``exponent``.
        """
        constant, given = self.decisions.constant, self.given
        kept = self._weights(~out)
        robust, moved, rounds = np.where(out, 0.0, 1.0), math.inf, 0
        last = fit.with_weights(kept, fixed=True)
        field = last.field(values, started)
        errors = last.errors(field, values, given.weights)  # type: ignore[arg-type]
        scales, away = np.maximum(errors.scales, self._least(values, ~out)), errors.away
        while moved > SETTLED and rounds < self.decisions.rounds_without_grid:
            sizes = in_scales(away, given.weights, scales)
            robust, rounds = np.where(out, 0.0, huber_weights(sizes, constant)), rounds + 1
            last = last.with_weights(self._weights(robust), fixed=True)
            before, away = away, values - last.fitted(values)
            change = ((away - before) / scales[:, None])[:, self.known]
            if given.weights is not None:  # scales are those at unit weight
                change *= np.sqrt(given.weights[self.known])
            moved = float(np.sqrt(np.mean(change**2)))
        sizes = in_scales(away, given.weights, scales)
        units = math.ldexp(1.0, exponent)
        noise = HuberNoise.of(away, given.weights, robust, scales, units, constant)
        field = last.field(np.ldexp(values, exponent), started, HuberErrors(noise, kept, self))
        assert field.report is not None
        units *= 2.0 ** (given.weight_exponent / 2)
        field.report.outlying = ""
        field.report.robust = RobustReport(
            loss="huber",
            scale=tuple(float(one) * units for one in scales),
            down_weighted=int(np.sum((robust < 1) & ~out & self.known)),
            rejected=int(np.sum(out & self.known)),
            rounds=rounds,
            settled=moved <= SETTLED,
            largest=listed(
                given.points, np.ldexp(away, exponent), sizes, robust, self.decisions.listed
            ),
            outliers=given.numbers_of(out & self.known),
        )
        return field
