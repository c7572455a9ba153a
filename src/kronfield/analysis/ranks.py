"""Stable rank against the number of samples, and the spectrum of a Kronecker encoding."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem, to_numpy, whole
from kronfield._core.coordinates import even_axis
from kronfield._core.records import record
from kronfield._core.spectra import spectrum, stable_rank
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker


@record
class RankCurve:
    """The stable rank for several numbers of evenly spaced samples.

    ``theory`` is None if the embedder has no closed form.
    """

    counts: tuple[int, ...]
    measured: tuple[float, ...]
    theory: tuple[float, ...] | None


def rank_curve(embedder: Embedder, counts: Sequence[int]) -> RankCurve:
    """Return the stable rank of the embedding of n positions i/n, for every n in ``counts``.

    Examples
    --------
    >>> from kronfield.embedders import Sine
    >>> [round(rank, 6) for rank in rank_curve(Sine(64, frequency=1.0), [1, 16, 64]).measured]
    [1.0, 2.0, 2.0]
    """
    if not isinstance(counts, Iterable):
        raise problem(
            "counts",
            describe(counts),
            "a list of numbers of samples",
            "Put it in a list.",
            TypeError,
        )
    numbers = tuple(whole("counts", n, at_least=1) for n in counts)
    measured = tuple(stable_rank(embedder(even_axis(n))) for n in numbers)
    has_theory = (
        embedder.rank_limit is not None or type(embedder).stable_rank is not Embedder.stable_rank
    )
    return RankCurve(
        numbers, measured, tuple(embedder.stable_rank(n) for n in numbers) if has_theory else None
    )


def kronecker_spectrum(encoding: Kronecker, axes: Sequence[Any], count: int | None = None) -> Array:
    """Return the largest normalised singular values of a Kronecker encoding of a grid.

    They are the products of one singular value from each axis (Van Loan, 2000), so the matrix is
    never formed. At most ``count`` products are kept at any time.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.embedders import Impulse
    >>> grid = [np.arange(4) / 4, np.arange(3) / 3]
    >>> kronecker_spectrum(Kronecker(Impulse(4), Impulse(3)), grid).size
    12

    Parameters
    ----------
    encoding : Kronecker
        The encoding.
    axes : sequence of arrays of shape (N_i,)
        The positions on each axis.
    count : int, optional
        The number of values to return; by default all prod(min(N_i, K_i)), up to 2^24.

    References
    ----------
    C. F. Van Loan, The ubiquitous Kronecker product, Journal of Computational and Applied
    Mathematics 123 (2000).
    """
    parts = [to_numpy(spectrum(matrix)) for matrix in encoding.matrices(axes)]
    total = math.prod(part.size for part in parts)
    keep = total if count is None else min(whole("count", count, at_least=1), total)
    if keep > 1 << 24:
        raise problem(
            "count", keep, "at most 2^24 singular values", "Ask for the first few with count=."
        )

    def combine(left: Array, right: Array) -> Array:
        # The p-th largest product has factors i, j (from 0) with (i + 1)(j + 1) <= p, so few
        # products are formed.
        products = [left[i] * right[: keep // (i + 1)] for i in range(min(left.size, keep))]
        return np.sort(np.concatenate(products))[::-1][:keep]

    return functools.reduce(combine, parts, np.ones(1))
