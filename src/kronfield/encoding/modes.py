"""Mode-n products (Kolda and Bader, 2009): matrices applied along one or all axes of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronfield._core.arrays import AnyArray, namespace, problem

# With fewer trailing columns than this, one large product on a transposed copy is faster than a
# product per slice.
FEW_COLUMNS = 16


def mode_product(tensor: AnyArray, matrix: AnyArray, axis: int) -> AnyArray:
    """Return ``tensor`` x_axis ``matrix``: its ``axis`` of length K becomes one of length N.

    Examples
    --------
    >>> import numpy as np
    >>> mode_product(np.ones((2, 3, 4)), np.ones((5, 3)), 1).shape
    (2, 5, 4)

    Parameters
    ----------
    tensor : array of shape (..., K, ...)
        Real or complex.
    matrix : array of shape (N, K)
        A matrix of the same array library.
    axis : int
        The axis of ``tensor`` to multiply, from 0.
    """
    if matrix.ndim != 2 or not 0 <= axis < tensor.ndim or matrix.shape[1] != tensor.shape[axis]:
        raise problem(
            "matrix",
            f"shape {tuple(matrix.shape)} for axis {axis} of a tensor "
            f"of shape {tuple(tensor.shape)}",
            "shape (N, K), K the length of that axis",
            "Each matrix maps one axis of the tensor.",
        )
    xp = namespace(tensor, matrix)
    if tensor.dtype != matrix.dtype and xp.isdtype(tensor.dtype, "complex floating"):
        # some libraries multiply only arrays of the same dtype
        matrix = xp.astype(matrix, tensor.dtype)
    before, after = tuple(tensor.shape[:axis]), tuple(tensor.shape[axis + 1 :])
    rows, columns = math.prod(before), math.prod(after)
    K, N = tensor.shape[axis], matrix.shape[0]
    if columns == 1:
        product = xp.reshape(tensor, (rows, K)) @ matrix.T  # (rows, N)
    elif rows == 1:
        product = matrix @ xp.reshape(tensor, (K, columns))  # (N, columns)
    elif columns >= FEW_COLUMNS:
        # (rows, N, columns), a product per row
        product = matrix @ xp.reshape(tensor, (rows, K, columns))
    else:
        turned = xp.permute_dims(xp.reshape(tensor, (rows, K, columns)), (0, 2, 1))
        product = xp.reshape(turned, (rows * columns, K)) @ matrix.T
        product = xp.permute_dims(xp.reshape(product, (rows, columns, N)), (0, 2, 1))
    return xp.reshape(product, (*before, N, *after))


def cheapest_order(shapes: Sequence[tuple[int, int]]) -> list[int]:
    """Return the order of axes in which products with (N, K) matrices take the fewest operations.

    Swapping two neighbours i, j saves operations exactly if 1/K_i - 1/N_i > 1/K_j - 1/N_j. Sorting
    by this key is therefore optimal: axes that shrink come first, axes that grow come last.

    Examples
    --------
    >>> cheapest_order([(100, 10), (10, 100)])
    [1, 0]
    """
    return sorted(range(len(shapes)), key=lambda i: 1 / shapes[i][1] - 1 / max(shapes[i][0], 1))


def multilinear(tensor: AnyArray, matrices: Sequence[AnyArray]) -> AnyArray:
    """Return ``tensor`` x_1 A_1 x_2 A_2 ... x_D A_D; axes after the D-th (channels) are unchanged.

    The Kronecker product of the matrices is never formed: besides input and output, one
    intermediate tensor is in memory. The products are taken in the cheapest order.

    Examples
    --------
    >>> import numpy as np
    >>> multilinear(np.ones((2, 3, 7)), [np.ones((4, 2)), np.ones((5, 3))]).shape
    (4, 5, 7)

    References
    ----------
    T. G. Kolda and B. W. Bader, Tensor decompositions and applications, SIAM Review 51 (2009).
    """
    if len(matrices) > tensor.ndim:
        raise problem(
            "matrices",
            f"{len(matrices)} for a tensor of shape {tuple(tensor.shape)}",
            f"at most {tensor.ndim}",
            "Pass one matrix per axis, in the order of the axes.",
        )
    if any(matrix.ndim != 2 or matrix.shape[1] == 0 for matrix in matrices):
        shapes = [tuple(matrix.shape) for matrix in matrices]
        raise problem(
            "matrices", f"shapes {shapes}", "shapes (N, K) with K >= 1", "Check each axis."
        )
    for axis in cheapest_order([tuple(matrix.shape) for matrix in matrices]):
        tensor = mode_product(tensor, matrices[axis], axis)
    return tensor
