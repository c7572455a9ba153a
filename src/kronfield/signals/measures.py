"""Similarity of two arrays: PSNR and SSIM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, describe, number_array, problem, real

# The window of SSIM: a Gaussian of this standard deviation, cut off at this number of samples to
# either side (Wang et al., 2004).
WINDOW, REACH = 1.5, 5
# The constants K1 and K2 of SSIM, relative to the peak; they keep its quotients finite.
SMALL = (0.01, 0.03)


def psnr(values: Any, reference: Any, *, peak: float | None = None) -> float:
    """Return the peak signal-to-noise ratio in dB; infinite if both arrays are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.measures import psnr
    >>> round(psnr(np.full((4, 4), 0.6), np.full((4, 4), 0.5)), 6)
    20.0

    Parameters
    ----------
    values, reference : arrays of one shape
        The estimate and the truth.
    peak : float, optional
        The largest possible value; by default `peak_of` the reference.
    """
    found, wanted = _pair(values, reference)
    top = peak_of(wanted) if peak is None else _peak(peak)
    error = float(np.mean((found - wanted) ** 2))
    return math.inf if error == 0 else 10 * math.log10(top**2 / error)


def ssim(
    values: Any, reference: Any, *, peak: float | None = None, channels: bool = False
) -> float:
    """Return the structural similarity (SSIM) of two arrays; 1 if they are equal.

    The index of Wang et al. (2004) is extended to any number of dimensions. Means and variances are
    taken under a Gaussian window. Samples too near to the border for a whole window do not count.
    An axis shorter than the window, 11 samples, is not windowed.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.measures import ssim
    >>> waves = np.sin(np.arange(40))[:, None] * np.cos(np.arange(50))
    >>> round(ssim(waves, waves), 6), bool(ssim(0.5 * waves, waves) < 0.9)
    (1.0, True)

    Parameters
    ----------
    values, reference : arrays of one shape
        The estimate and the truth.
    peak : float, optional
        As in `psnr`.
    channels : bool
        Whether the last axis holds channels; the result is then the mean over the channels.

    References
    ----------
    Wang, Bovik, Sheikh, Simoncelli (2004), "Image quality assessment: from error visibility to
    structural similarity", IEEE Transactions on Image Processing 13.
    """
    found, wanted = _pair(values, reference)
    top = peak_of(wanted) if peak is None else _peak(peak)
    if channels:
        each = [_ssim(found[..., i], wanted[..., i], top) for i in range(wanted.shape[-1])]
        return float(np.mean(each))
    return _ssim(found, wanted, top)


def peak_of(values: Any) -> float:
    """Return the default peak of PSNR and SSIM: 1 for pictures, else the range of the values.

    Values from 0 to 1 whose largest is above 0.5 count as a picture.

    Examples
    --------
    >>> import numpy as np
    >>> from kronfield.signals.measures import peak_of
    >>> peak_of(np.array([0.1, 0.9])), peak_of(np.array([-20.0, 30.0]))
    (1.0, 50.0)
    """
    low, high = float(np.min(values)), float(np.max(values))
    return 1.0 if low >= 0 and 0.5 < high <= 1 else (high - low) or 1.0


def _ssim(x: Array, y: Array, peak: float) -> float:
    from scipy.ndimage import gaussian_filter

    whole = [n >= 2 * REACH + 1 for n in x.shape]
    sigma = [WINDOW if one else 0.0 for one in whole]

    def blurred(array: Array) -> Array:
        return np.asarray(gaussian_filter(array, sigma, truncate=REACH / WINDOW, mode="reflect"))

    mean_x, mean_y = blurred(x), blurred(y)
    variance_x, variance_y = blurred(x * x) - mean_x**2, blurred(y * y) - mean_y**2
    covariance = blurred(x * y) - mean_x * mean_y
    c1, c2 = ((part * peak) ** 2 for part in SMALL)
    top = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    bottom = (mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2)
    inner = tuple(
        slice(REACH, n - REACH) if one else slice(None)
        for n, one in zip(x.shape, whole, strict=True)
    )
    return float(np.mean((top / bottom)[inner]))


def _pair(values: Any, reference: Any) -> tuple[Array, Array]:
    found, wanted = (
        number_array(name, one) for name, one in (("values", values), ("reference", reference))
    )
    if found.shape != wanted.shape or wanted.size == 0 or wanted.ndim == 0:
        raise problem(
            "values",
            describe(found),
            f"the shape of the reference, {wanted.shape}",
            "Compare arrays of one shape.",
        )
    return found.astype(np.float64), wanted.astype(np.float64)


def _peak(peak: float) -> float:
    return real(
        "peak",
        peak,
        low=0.0,
        high=1e300,
        open_low=True,
        remedy="Pass the largest possible value.",
    )
