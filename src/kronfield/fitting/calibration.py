"""The coverage of two-sigma bands at held-out values, and a factor that corrects the bands.

A fit without a tenth of the points predicts the values there. Divided by the standard deviation of
a new value, the errors should be normal with variance 1. The factor is a quantile of them. It only
assumes that new values are like those held out (split conformal prediction; Lei et al., 2018).
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record
from kronfield.fitting.settings import PointSettings

# The probability that a normal variable is within two standard deviations.
TWO_SIGMA = 0.9545


@record
class Coverage:
    """How many held-out values lie within two standard deviations of their prediction.

    Attributes
    ----------
    held : int
        The number of held-out points.
    inside : float
        The share of them within two standard deviations: 0.95 if all assumptions hold.
    factor : float
        The factor of the standard deviation with which this share would be 0.95.
    calibrated : float
        The share with a factor from the other half of the held-out points, mean over both halves.
    kurtosis : float
        The kurtosis of the errors over their standard deviations: 3 if they are normal.
    clustered : float
        The rank correlation of their sizes at neighbouring points: 0 if the variance is right.
    half_width : float
        95 % of the held-out values are nearer to their prediction than this.
    failing : str or None
        The assumption that fails if the share is wrong beyond chance; None if it is right.
    """

    held: int
    inside: float
    factor: float
    calibrated: float
    kurtosis: float
    clustered: float
    half_width: float
    failing: str | None

    @classmethod
    def of(
        cls, points: Array, errors: Array, deviations: Array, settings: PointSettings
    ) -> Coverage:
        """Return the coverage of errors (P, C) with standard deviations (P, C) at points (P, D)."""
        from scipy.spatial import KDTree

        z = errors / np.where(deviations > 0, deviations, np.finfo(np.float64).tiny)
        size = np.abs(z)
        first = np.arange(len(z)) % 2 == 0
        halves = [
            float(np.mean(size[~part] <= 2 * _factor(size[part]))) for part in (first, ~first)
        ]
        spread = np.ptp(points, axis=0)
        near = KDTree(points / np.where(spread > 0, spread, 1.0)).query(
            points / np.where(spread > 0, spread, 1.0), 2
        )[1][:, 1]
        ranks = np.argsort(np.argsort(size.mean(axis=1)))
        clustered = float(np.corrcoef(ranks, ranks[near])[0, 1])
        variance = float(np.var(z))
        kurtosis = float(np.mean((z - z.mean()) ** 4)) / variance**2 if variance else math.nan
        inside = float(np.mean(size <= 2))
        return cls(
            len(z),
            inside,
            _factor(size),
            float(np.mean(halves)),
            kurtosis,
            clustered,
            float(np.quantile(np.abs(errors), TWO_SIGMA)),
            _failing(len(z), inside, clustered, kurtosis, settings),
        )

    def __str__(self) -> str:
        why = "" if self.failing is None else f", because {self.failing}"
        return (
            f"two-sigma bands hold {100 * self.inside:.1f} % of {self.held} held-out values{why}; "
            f"times {self.factor:.3g} they hold {100 * self.calibrated:.1f} %"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return asdict(self)


def _failing(
    held: int, inside: float, clustered: float, kurtosis: float, settings: PointSettings
) -> str | None:
    """Return the assumption that fails if the share inside is wrong beyond chance, else None."""
    chance = 2 * math.sqrt(TWO_SIGMA * (1 - TWO_SIGMA) / held)
    low, high = settings.true_coverage
    if min(low, TWO_SIGMA - chance) <= inside <= max(high, TWO_SIGMA + chance):
        return None
    if clustered > settings.clustered / math.sqrt(held):  # standard errors of a correlation of 0
        return "the variance is not the same everywhere"
    if kurtosis > settings.heavy_tails:
        return "errors have heavier tails than normal ones"
    if inside < TWO_SIGMA:
        return "the noise and the penalty expect smaller errors"
    return "the noise and the penalty expect larger errors"


def _factor(sizes: Array) -> float:
    """Return the factor with which two standard deviations hold TWO_SIGMA of the sizes."""
    count = sizes.size
    return float(np.quantile(sizes, min(1.0, TWO_SIGMA * (count + 1) / count))) / 2
