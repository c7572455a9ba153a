"""Widths for a required stable rank or range, matching Gaussians and RFF, and enough features."""

from __future__ import annotations

import math
from typing import Any

from kronfield._core.arrays import describe, problem, real
from kronfield.analysis.distances import preserved_range
from kronfield.embedders import (
    Embedder,
    Gaussian,
    LinearFourier,
    LogFourier,
    RandomFourier,
    Rectangle,
    Sine as _Sine,
    Square as _Square,
    Triangle,
)

# The product sigma_g sigma_f at which a Gaussian of width sigma_g and an RFF of scale sigma_f have
# equal rank and similarity.
MATCH = 1.0 / (2.0 * math.sqrt(2.0) * math.pi)

# The power with which the stable rank scales with the parameter; the range has the inverse power.
_POWERS: dict[type[Embedder], int] = {Gaussian: -1, Triangle: -1, Rectangle: -1, RandomFourier: +1}
_PERIODIC: tuple[type[Embedder], ...] = (_Sine, _Square)

# The number of samples and features for measuring LogFourier, which has no closed form.
_MEASURED_AT = 1024


def width_for_rank(kind: type[Embedder], rank: float) -> float:
    """Return the width that gives an embedder of ``kind`` the stable rank ``rank``.

    The embedder needs enough features. The result is the width of Gaussian, Triangle and Rectangle,
    the scale of RandomFourier, and the exponent of LinearFourier and LogFourier. The inverse is
    ``embedder.rank_limit`` or ``embedder.stable_rank(n)``.

    Examples
    --------
    >>> from kronfield.embedders import Gaussian
    >>> round(width_for_rank(Gaussian, 28.2), 4)
    0.01

    Parameters
    ----------
    kind : type
        A class of embedder.
    rank : float
        The required stable rank, above 1.
    """
    rank = real("rank", rank, low=1.0, high=1e12, open_low=True, remedy="A stable rank is above 1.")
    if kind in _POWERS:
        unit = _unit(kind, 1.0).rank_limit
        assert unit is not None
        return float((rank / unit) ** _POWERS[kind])
    if kind is LinearFourier:
        return math.log2(rank / 2 + 1)  # rank = 2 (2^exponent - 1)
    if kind is LogFourier:
        return _solve_log_fourier(rank)
    if isinstance(kind, Embedder):
        raise problem(
            "kind",
            repr(kind),
            "a class of embedder",
            f"Pass {type(kind).__name__}, without settings.",
            TypeError,
        )
    raise problem(
        "kind",
        getattr(kind, "__name__", describe(kind)),
        "an embedder whose width sets its rank",
        "Impulse has rank min(n, size), Sine 2 and Square pi^2/4 for any settings.",
    )


def width_for_range(kind: type[Embedder], length: float, digits: float = 3.0) -> float:
    """Return the width with which similarity falls to 10^-digits of its peak at ``length``.

    For the Gaussian this is the paper's sigma = l / (2 sqrt(k ln 10)). For RandomFourier it holds
    for the mean over draws. For Sine and Square the result is the frequency.

    Examples
    --------
    >>> from kronfield.embedders import Gaussian
    >>> round(width_for_range(Gaussian, 0.1, digits=2), 5)
    0.0233

    Parameters
    ----------
    kind : type
        A class of embedder.
    length : float
        The required distance l.
    digits : float
        The k of the paper's threshold 10^-k.
    """
    length = real(
        "length",
        length,
        low=0.0,
        high=1.0,
        open_low=True,
        remedy="Distances are in units of the domain.",
    )
    if kind is RandomFourier:
        return MATCH / width_for_range(Gaussian, length, digits)
    if kind in (Gaussian, Triangle, Rectangle):
        reference = 1e-3  # D depends only on d/width, so the range is proportional to the width
        return reference * length / preserved_range(_unit(kind, reference), digits)
    if kind in _PERIODIC:
        reference = 1.0  # D depends on frequency times d
        return reference * preserved_range(_unit(kind, reference), digits) / length
    raise problem(
        "kind",
        getattr(kind, "__name__", describe(kind)),
        "an embedder whose similarity scales with its width",
        "Compare candidates with preserved_range.",
    )


def _unit(kind: Any, parameter: float) -> Embedder:
    embedder = kind(2, parameter)
    assert isinstance(embedder, Embedder)
    return embedder


def _solve_log_fourier(rank: float) -> float:
    from scipy.optimize import brentq

    def excess(exponent: float) -> float:
        return LogFourier(_MEASURED_AT, exponent).stable_rank(_MEASURED_AT) - rank

    # the upper limit is the highest frequency that the samples resolve
    low, high = 0.0, math.log2(_MEASURED_AT / 2)
    if not excess(low) <= 0 <= excess(high):
        limits = f"between {excess(low) + rank:.3g} and {excess(high) + rank:.3g}"
        raise problem(
            "rank", rank, limits, "LogFourier reaches no other rank below 512 cycles per domain."
        )
    return float(brentq(excess, low, high, xtol=1e-6))


def matching_random_fourier(
    gaussian: Gaussian, size: int | None = None, seed: int = 0
) -> RandomFourier:
    """Return the RFF with the stable rank and, on average, the similarity of ``gaussian``.

    Examples
    --------
    >>> round(matching_random_fourier(Gaussian(256, width=0.01)).scale, 2)
    11.25

    Parameters
    ----------
    gaussian : Gaussian
        The embedder to match: sigma_g sigma_f = 1/(2 sqrt(2) pi).
    size : int, optional
        The number of features; by default that of ``gaussian``, made even.
    seed : int
        The seed of the frequencies.
    """
    if not isinstance(gaussian, Gaussian):
        raise problem(
            "gaussian",
            describe(gaussian),
            "a Gaussian",
            "See matching_gaussian for the inverse.",
            TypeError,
        )
    even = gaussian.size + gaussian.size % 2
    return RandomFourier(even if size is None else size, MATCH / gaussian.width, seed)


def matching_gaussian(fourier: RandomFourier, size: int | None = None) -> Gaussian:
    """Return the Gaussian with the stable rank and the mean similarity of the RFF ``fourier``.

    Examples
    --------
    >>> round(matching_gaussian(RandomFourier(256, scale=11.25, seed=0)).width, 4)
    0.01

    Parameters
    ----------
    fourier : RandomFourier
        The embedder to match: sigma_g sigma_f = 1/(2 sqrt(2) pi).
    size : int, optional
        The number of features; by default that of ``fourier``.
    """
    if not isinstance(fourier, RandomFourier):
        raise problem(
            "fourier",
            describe(fourier),
            "a RandomFourier",
            "See matching_random_fourier for the inverse.",
            TypeError,
        )
    return Gaussian(fourier.size if size is None else size, MATCH / fourier.scale)


def features_needed(embedder: Embedder, tolerance: float = 1e-3) -> int:
    """Return the number of features that is enough: more than two per cycle of the bandwidth.

    With this number, sums over the features equal integrals over t, except for the part of the
    spectrum beyond the bandwidth, which is below ``tolerance`` of the peak.

    Examples
    --------
    >>> features_needed(Gaussian(64, width=0.01))
    119
    >>> features_needed(_Sine(64, frequency=1.0))
    3

    Parameters
    ----------
    embedder : Embedder
        The embedder; its bandwidth matters, its size does not.
    tolerance : float
        The fraction of the peak of the spectrum that may be lost.
    """
    band = embedder.bandwidth(tolerance)
    if not math.isfinite(band):
        raise problem(
            "embedder",
            repr(embedder),
            "an embedder whose spectrum decays",
            "No finite number of features is enough for this one: choose, say, a Gaussian.",
        )
    return math.floor(2 * band) + 1
