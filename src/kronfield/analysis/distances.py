"""Similarity curves, distance preservation as one number, and the range that is preserved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem, real, to_numpy, vector
from kronfield._core.frames import cell_centres
from kronfield._core.records import record
from kronfield.embedders import Embedder, LocalEmbedder

# The number of distances at which a similarity curve is evaluated.
NODES = 2048
# The measured similarity is the mean over this many midpoints, spread over one feature spacing.
MIDPOINTS = 8


@record
class SimilarityCurve:
    """Similarity against distance, relative to its value at 0: measured, and from theory."""

    distances: Array
    measured: Array
    theory: Array


def similarity_curve(embedder: Embedder, distances: Any = None) -> SimilarityCurve:
    """Return the similarity of two positions against the distance between them.

    The two positions are symmetric about the middle of the domain. The measured curve is the inner
    product of their features, averaged over midpoints within one spacing of the features.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Gaussian
    >>> curve = similarity_curve(Gaussian(256, width=0.05), np.array([0.0, 0.1]))
    >>> curve.measured.round(4), curve.theory.round(4)
    (array([1.    , 0.3679]), array([1.    , 0.3679]))

    Parameters
    ----------
    embedder : Embedder
        An embedder of one axis.
    distances : array of shape (M,), optional
        The distances; by default 201 from 0 to 1.
    """
    d = (
        np.linspace(0.0, 1.0, 201)
        if distances is None
        else to_numpy(vector("distances", distances)).astype(np.float64)
    )
    return SimilarityCurve(d, _measured(embedder, d), _theory(embedder)(d))


def _theory(embedder: Embedder) -> Callable[[Array], Array]:
    at_zero = float(embedder.similarity(np.zeros(1))[0])
    if at_zero == 0.0:
        raise problem(
            "embedder",
            repr(embedder),
            "a nonzero similarity",
            "Its features are zero everywhere: give it a larger width.",
        )
    return lambda d: np.asarray(embedder.similarity(d)) / at_zero


def _measured(embedder: Embedder, distances: Array) -> Array:
    spacing = embedder.spacing if isinstance(embedder, LocalEmbedder) else 1.0 / embedder.size

    def mean_product(d: Array) -> Array:
        total = np.zeros_like(d)
        for middle in 0.5 + spacing * np.arange(MIDPOINTS) / MIDPOINTS:
            total += np.sum(embedder(middle - d / 2) * embedder(middle + d / 2), axis=1)
        return total

    at_zero = float(mean_product(np.zeros(1))[0])
    if at_zero == 0.0:
        raise problem(
            "embedder",
            repr(embedder),
            "features that reach the middle of the domain",
            "Raise its width.",
        )
    return mean_product(distances) / at_zero


def distance_preservation(
    embedder: Embedder, length: float = 1.0, *, measured: bool = False
) -> float:
    """Return how linearly similarity falls with distance, as one number.

    The number is minus the correlation of d and D(d), for d uniform on [0, length]. 1 means that D
    falls linearly with d, so that distance can be read from the features. 0 means that D has no
    linear relation to distance.

    Examples
    --------
    >>> from kronfield.embedders import Gaussian, Square
    >>> round(distance_preservation(Square(64, frequency=0.5)), 6)
    1.0
    >>> round(distance_preservation(Gaussian(256, width=0.01)), 2)
    0.27

    Parameters
    ----------
    embedder : Embedder
        An embedder of one axis.
    length : float
        The largest distance to include; 1 is the whole domain.
    measured : bool
        Whether to use the inner products of the features instead of theory.
    """
    length = real(
        "length",
        length,
        low=0.0,
        high=1.0,
        open_low=True,
        remedy="Distances are in units of the domain.",
    )
    d = cell_centres(0.0, length, NODES)  # midpoint rule for the three moments
    D = _measured(embedder, d) if measured else _theory(embedder)(d)
    if np.ptp(D) < 1e-9:
        return 0.0  # D is constant: the correlation is undefined
    d, D = d - d.mean(), D - D.mean()
    return -float(np.sum(d * D)) / float(np.sqrt(np.sum(d * d) * np.sum(D * D)))


def preserved_range(embedder: Embedder, digits: float = 3.0) -> float:
    """Return the largest l <= 1 such that D(d) >= 10^-digits D(0) for every distance d <= l.

    This is the paper's range criterion with the threshold k = ``digits``. The first crossing is
    refined by Brent's method (Brent, 1973).

    Examples
    --------
    >>> from kronfield.embedders import Triangle
    >>> round(preserved_range(Triangle(64, width=0.1)), 4)
    0.0921
    """
    from scipy.optimize import brentq

    remedy = "It is the k of the paper's threshold 10^-k."
    digits = real("digits", digits, low=0.0, high=300.0, open_low=True, remedy=remedy)
    curve, threshold = _theory(embedder), 10.0**-digits
    scan = np.unique(
        np.concatenate([np.geomspace(1e-15, 1.0, NODES), np.linspace(0.0, 1.0, NODES)])
    )
    below = np.flatnonzero(curve(scan) < threshold)
    if below.size == 0:
        return 1.0
    low, high = scan[below[0] - 1], scan[below[0]]
    return float(
        brentq(
            lambda d: float(curve(np.array([d]))[0]) - threshold, low, high, xtol=1e-15, rtol=1e-13
        )
    )
