"""The residual of fields that evaluate planes at points."""

from __future__ import annotations

import math

import numpy as np

from kronfield._core.arrays import Array
from kronfield.field.products import ProductField


class Residual:
    """The weighted root mean square of value minus fit at the points, computed when called."""

    def __init__(
        self, field: ProductField, points: Array, values: Array, weights: Array | None
    ) -> None:
        self.field, self.points, self.values, self.weights = field, points, values, weights

    def __call__(self) -> float:
        """Return the residual in the units of the values."""
        away = self.field.planes_at(self.points) - self.values
        scale = float(np.abs(away).max()) or 1.0
        squares = np.mean((away / scale) ** 2, axis=0)
        return scale * math.sqrt(float(np.average(squares, weights=self.weights)))
