"""Means of paired differences over photographs, clips or lines, with a 95 % interval.

Two methods are compared on the same n items. The mean of the n differences has Student's interval
mean ± t s / √n, s the standard deviation of the differences and t the quantile of n − 1 degrees of
freedom. It is exact for normal differences. With fewer than `FEWEST` items nothing is established.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from scipy.special import stdtrit

#: Probability that the interval covers the true mean.
LEVEL = 0.95
#: With fewer items than this no verdict is given.
FEWEST = 5


class Number(NamedTuple):
    """A figure: a computed value, or the mean over ``n`` items with its interval.

    ``n`` is 0 for a value that is computed and not sampled. The unit of counts, ranks and ratios is
    empty. Figures of one ``family`` are judged one by one by the same condition.
    """

    value: float
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    n: int = 0
    family: str = ""

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over items."""
        return self.n > 0


def paired(differences: Iterable[float], unit: str = "dB", family: str = "") -> Number:
    """Return the mean of paired differences and Student's 95 % interval.

    Examples
    --------
    >>> from kronfield.experiments.paired import paired
    >>> mean = paired([0.8, 1.1, 0.9, 1.2, 1.0])
    >>> f"{mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}], n = {mean.n}"
    '1.00 [0.80, 1.20], n = 5'
    """
    values = [float(value) for value in differences]
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Number(mean, unit, n=n, family=family)
    quantile = float(stdtrit(n - 1, 0.5 + LEVEL / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(n)
    return Number(mean, unit, mean - half, mean + half, n, family)


def paired_ratio(ratios: Iterable[float], family: str = "") -> Number:
    """Return the geometric mean of paired ratios; its interval is that of the logarithms."""
    log = paired((math.log(value) for value in ratios), "", family)
    low, high = (math.exp(end) if math.isfinite(end) else end for end in (log.low, log.high))
    return Number(math.exp(log.value), "", max(0.0, low), high, log.n, family)
