"""Points at the same place: their mean and their spread say all that their values say.

Let m values y_i with weights w_i be measured at one place, each with noise of variance v / w_i.
Their likelihood is that of their weighted mean, with the weight sum w_i, times a factor that
depends on v alone: v^(-(m - 1) / 2) exp(-s / 2v) with s = sum w_i (y_i - mean)^2. So a system of
all points is one of the different places, and repeated measurements show their noise whatever
varies from place to place.
"""

from __future__ import annotations

import functools

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.records import record


@record(eq=False)
class Repeats:
    """Which of P points are at the same of n places.

    Attributes
    ----------
    place : array (P,)
        The place of each point.
    first : array (n,)
        The first point at each place.
    weights : array (P,)
        The weights of the points.
    """

    place: Array
    first: Array
    weights: Array

    @classmethod
    def of(cls, points: Array, weights: Array) -> Repeats | None:
        """Return the repeats among points (P, D); None if all are different."""
        # A sum of coordinates is quickly sorted, and it is the same at the same place: of a product
        # of matrices, rounding may depend on the row.
        mixed = np.sum(points * np.random.default_rng(0).uniform(0.5, 1.0, points.shape[1]), axis=1)
        if len(np.unique(mixed)) == len(points):
            return None
        _, first, place = np.unique(points, axis=0, return_index=True, return_inverse=True)
        if len(first) == len(points):
            return None
        # places in the order of the points
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(rank[place.reshape(-1)], first[order], weights)

    @functools.cached_property
    def counts(self) -> Array:
        """The number of points at each place, (n,)."""
        return np.bincount(self.place, minlength=len(self.first))

    @functools.cached_property
    def sums(self) -> Array:
        """The weight of each place, (n,)."""
        return np.bincount(self.place, self.weights, minlength=len(self.first))

    @functools.cached_property
    def share(self) -> Array:
        """The weight of each point, as a part of that of its place, (P,)."""
        return np.asarray(self.weights / self.sums[self.place])

    def merged(self, values: Array) -> tuple[Array, Array]:
        """Return the means (C, n) of values (C, P) at each place, and their s (C, n)."""
        n = len(self.first)
        several = self.counts > 1
        means, squares = values[:, self.first], np.zeros((len(values), n))
        for mean, square, y in zip(means, squares, values, strict=True):
            centred = y - mean[self.place]  # 0 at a place with one point
            shift = np.bincount(self.place, self.share * centred, minlength=n)
            mean[several] += shift[several]
            away = y - mean[self.place]
            square += np.bincount(self.place, self.weights * away**2, minlength=n)
        return means, squares
