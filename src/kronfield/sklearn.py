"""`FieldRegressor`: scattered points with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kronfield._core.arrays import Array
from kronfield._core.copies import NoSamplesError
from kronfield.field import Field
from kronfield.fitting.points import fit_points
from kronfield.fitting.settings import Settings

__all__ = ["FieldRegressor"]


class FieldRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by a field: `fit_points` with the interface of scikit-learn.

    With the squared loss, rows with equal features count as one, with the mean of their targets and
    the sum of their weights. Any number of features is accepted; with four or more, `fit_points`
    does not use a grid by default, so that time and memory do not grow with the volume of the box.
    Gaps in a table are filled by ``IterativeImputer(FieldRegressor())`` of scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.sklearn import FieldRegressor
    >>> X = np.random.default_rng(0).random((300, 2))
    >>> model = FieldRegressor().fit(X, np.sin(3 * X[:, 0]) + X[:, 1])
    >>> round(float(model.predict([[0.5, 0.5]])[0]), 2)
    1.5

    Parameters
    ----------
    encoding : Kronecker or Embedder, optional
        The features of the field, by default chosen from the data.
    ridge, roughness, loss, trend, hold_out
        As in `fit_points`.
    outside : "clamp", "extrapolate", "nan" or "error"
        What `predict` does outside of the bounding box of the training data; see `Field.on_grid`.
    random_state : int
        Seed of the random choice of held-out points.
    settings : kronfield.fitting.settings.Settings, optional
        As in `fit_points`, for experiments.

    Attributes
    ----------
    field_ : Field
        The fit, with its report; its axes have the names of the features.
    n_features_in_ : int
        The number of features.
    """

    def __init__(
        self,
        encoding: Any = None,
        *,
        ridge: float | None = None,
        roughness: tuple[float, float] | None = None,
        loss: str = "squared",
        trend: int | None = None,
        hold_out: str | None = None,
        outside: str = "clamp",
        random_state: int = 0,
        settings: Settings | None = None,
    ) -> None:
        self.encoding = encoding
        self.ridge = ridge
        self.roughness = roughness
        self.loss = loss
        self.trend = trend
        self.hold_out = hold_out
        self.outside = outside
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the field to features (P, D) and targets (P,) or (P, C)."""
        X, y = validate_data(
            self, X, y, multi_output=True, y_numeric=True, dtype=(np.float64, np.float32)
        )
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        points, values = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if self.loss == "squared":
            points, values, weights = _merged(points, values, weights)
        names = getattr(self, "feature_names_in_", None)
        self._given = {
            "points": points if names is None else dict(zip(names, points.T, strict=True)),
            "values": values,
            "encoding": self.encoding,
            "weights": weights,
            "ridge": self.ridge,
            "roughness": self.roughness,
            "loss": self.loss,
            "trend": self.trend,
            "hold_out": self.hold_out,
            "seed": 0 if self.random_state is None else self.random_state,
            "settings": self.settings,
        }
        self.field_ = self._fitted()
        return self

    def _fitted(self) -> Field:
        """Return the field of the training data, with the parameters at the time of `fit`."""
        return fit_points(**self._given)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictions, and with ``return_std`` their standard errors too.

        After pickling, the first standard errors take the time of a fit, to the same data.
        """
        check_is_fitted(self)
        points = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        points = np.asarray(points, dtype=np.float64)
        values = self.field_(points, outside=self.outside)
        if not return_std:
            return values
        try:
            return values, self.field_.standard_error(points, outside=self.outside)
        except NoSamplesError:  # the field was pickled
            if not hasattr(self, "_given"):
                raise
            self.field_ = self._fitted()
        return values, self.field_.standard_error(points, outside=self.outside)


def _merged(
    points: Array, values: Array, weights: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return the distinct points, the mean of their values, and the sum of their weights.

    Points of weight 0 are left out, so that weights mean the same as repeated rows.
    """
    w = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not np.any(w):
        return points, values, w
    points, values, w = points[w > 0], values[w > 0], w[w > 0]
    found, inverse = np.unique(points, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    total = np.bincount(inverse, weights=w)
    columns = values[:, None] if values.ndim == 1 else values
    means = np.stack([np.bincount(inverse, weights=w * y) / total for y in columns.T], axis=1)
    means = means[:, 0] if values.ndim == 1 else means
    return found, means, None if np.all(total == total[0]) else total
