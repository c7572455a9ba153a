"""Singular values of a matrix: stable rank, spectrum, numerical rank."""

from __future__ import annotations

from typing import Any

from kronfield._core.arrays import AnyArray, float_array, namespace, problem, real
from kronfield._core.threads import with_one_blas_thread


def _checked(matrix: Any) -> AnyArray:
    array = float_array("matrix", matrix)
    if array.ndim != 2 or 0 in array.shape:
        raise problem(
            "matrix",
            f"shape {tuple(array.shape)}",
            "shape (N, K) with N, K >= 1",
            "Pass one 2-D matrix.",
        )
    xp = namespace(array)
    wide = xp.astype(array, xp.float64, copy=False)
    # gradients treat the scale as a constant
    peak = float(xp.max(xp.abs(getattr(wide, "detach", lambda: wide)())))
    if peak == 0.0:
        raise problem(
            "matrix",
            "all zeros",
            "at least one nonzero entry",
            "Its rank is 0: check the width and positions.",
        )
    # Scaled so that squares neither overflow nor underflow; ratios do not depend on the scale.
    return wide / peak


@with_one_blas_thread
def stable_rank(matrix: Any) -> float:
    """Return the stable rank ||A||_F^2 / ||A||_2^2, a smooth lower bound of the rank.

    Examples
    --------
    >>> import numpy as np
    >>> stable_rank(np.eye(5))
    5.0
    >>> stable_rank(np.diag([1.0, 0.5]))
    1.25

    Parameters
    ----------
    matrix : array of shape (N, K)
        A matrix of any array library; the computation is in float64.

    Returns
    -------
    float
        Between 1 and min(N, K).

    References
    ----------
    M. Rudelson and R. Vershynin, Sampling from large matrices: an approach through geometric
    functional analysis, Journal of the ACM 54 (2007).
    """
    A = _checked(matrix)
    xp = namespace(A)
    # ||A||_F^2 is the trace of the Gram matrix and ||A||_2^2 its largest eigenvalue. Use the
    # smaller of A'A and AA'.
    gram = A.T @ A if A.shape[0] >= A.shape[1] else A @ A.T
    ratio = xp.sum(A * A) / xp.max(xp.linalg.eigvalsh(gram))
    return float(getattr(ratio, "detach", lambda: ratio)())


@with_one_blas_thread
def spectrum(matrix: Any) -> AnyArray:
    """Return the singular values in descending order, divided by the largest.

    Examples
    --------
    >>> import numpy as np
    >>> spectrum(np.diag([2.0, 4.0]))
    array([1. , 0.5])
    """
    A = _checked(matrix)
    values = namespace(A).linalg.svdvals(A)
    return values / values[0]


def numerical_rank(matrix: Any, tolerance: float | None = None) -> int:
    """Return the number of normalised singular values above ``tolerance``.

    The default tolerance is max(N, K) times the machine epsilon of the dtype of the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> numerical_rank(np.ones((4, 3)))
    1
    """
    array = float_array("matrix", matrix)
    values = spectrum(array)
    if tolerance is not None:
        tolerance = real(
            "tolerance",
            tolerance,
            low=0.0,
            high=1.0,
            remedy="Pass a fraction of the largest singular value.",
        )
    else:
        tolerance = max(array.shape) * float(namespace(array).finfo(array.dtype).eps)
    return int(namespace(values).sum(namespace(values).astype(values > tolerance, values.dtype)))
