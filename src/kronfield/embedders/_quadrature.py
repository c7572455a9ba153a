"""Quadrature of a user's function: its integral, autocorrelation and magnitude spectrum."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kronfield._core.arrays import Array, InputError, problem
from kronfield._core.frames import cell_centres

# Nodes per panel, the first and the largest number of panels in each of three parts, and the
# relative agreement at which doubling stops.
NODES, FEWEST_PANELS, MOST_PANELS, AGREEMENT = 8, 32, 4096, 1e-9
# The largest relative error accepted. Functions with kinks inside a panel converge slowly.
ACCEPTED = 1e-6
# The largest number of values held in memory at a time.
CHUNK = 1 << 21
# The first and the largest number of samples for a spectrum, and the factor of zero padding.
SAMPLES, MOST_SAMPLES, ZERO_FILL = 1 << 14, 1 << 20, 8


def autocorrelation(
    psi: Callable[[Array], Array],
    interval: tuple[float, float],
    shifts: Array,
    *,
    compact: bool = True,
) -> Array:
    """Return the integral of psi(r - dx/2) psi(r + dx/2) over r in ``interval``, for all shifts dx.

    With ``compact``, psi is zero outside the interval, and the integral covers only the r where
    both factors are inside.

    The method is composite Gauss-Legendre quadrature; the number of panels is doubled until two
    results agree. Panels end at the centres of both factors, so that a kink there costs no
    accuracy.
    """
    flat = np.abs(np.asarray(shifts, dtype=np.float64)).ravel()
    if flat.size == 0:
        return flat.reshape(np.shape(shifts))
    scale = float(_panels(psi, interval, np.zeros(1), FEWEST_PANELS, compact)[0])
    panels, values = FEWEST_PANELS, _panels(psi, interval, flat, FEWEST_PANELS, compact)
    while True:
        panels *= 2
        finer = _panels(psi, interval, flat, panels, compact)
        error = float(np.max(np.abs(finer - values)))
        values = finer
        if error <= AGREEMENT * scale or not np.isfinite(error):
            break
        if panels >= MOST_PANELS:
            break
    if not np.all(np.isfinite(values)) or error > ACCEPTED * scale:
        raise InputError(
            f"function: its quadrature did not converge (error {error:.1e}); "
            "expected a finite and continuous function. "
            "Pass a support that contains all of it, or a smoother function."
        )
    return values.reshape(np.shape(shifts))


def _panels(
    psi: Callable[[Array], Array],
    interval: tuple[float, float],
    shifts: Array,
    panels: int,
    compact: bool,
) -> Array:
    """Return the integrals, with ``panels`` panels each below -dx/2, up to dx/2, and above."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    ends = np.arange(panels)[:, None]
    at = ((ends + (nodes + 1) / 2) / panels).ravel()  # on (0, 1)
    by = np.tile(weights / 2 / panels, panels)
    low, high = interval
    total = np.empty_like(shifts)
    step = max(1, CHUNK // (3 * at.size))
    for start in range(0, shifts.size, step):
        half = shifts[start : start + step, None] / 2
        inset = np.minimum(half, (high - low) / 2) if compact else 0 * half
        first, last = low + inset, high - inset
        cuts = np.concatenate(
            [first, np.clip(-half, first, last), np.clip(half, first, last), last], axis=1
        )
        lengths = np.diff(cuts, axis=1)[:, :, None]  # (M, 3, 1)
        r = cuts[:, :-1, None] + lengths * at  # (M, 3, nodes)
        product = psi(r - half[:, :, None]) * psi(r + half[:, :, None])
        total[start : start + step] = np.sum(product * (lengths * by), axis=(1, 2))
    return total


def last_frequency(
    psi: Callable[[Array], Array], interval: tuple[float, float], tolerance: float
) -> float:
    """Return the highest frequency where the spectrum of psi exceeds ``tolerance`` of its peak.

    Return inf if the spectrum does not fall below ``tolerance`` within the sampled frequencies.
    """
    samples = SAMPLES
    while samples <= MOST_SAMPLES:
        frequencies, magnitude = magnitude_spectrum(psi, interval, samples)
        above = np.flatnonzero(magnitude > tolerance * magnitude.max())
        if above.size and above[-1] < 0.9 * len(magnitude):
            return float(frequencies[above[-1]])
        samples *= 4
    if above.size == 0:
        raise problem("function", "zero everywhere", "a nonzero function", "Check its support.")
    return math.inf


def vector_integral(
    function: Callable[[float], Array], low: float, high: float, step: float
) -> Array:
    """Return the integral of a vector-valued function, with initial panels up to ``step`` wide."""
    from scipy.integrate import quad_vec

    panels = min(4096, max(1, math.ceil(abs(high - low) / step)))
    starts = tuple(np.linspace(low, high, panels + 1)[1:-1])
    values, error, info = quad_vec(
        function, low, high, epsabs=1e-13, epsrel=1e-11, norm="max", points=starts, full_output=True
    )
    if not info.success or not np.all(np.isfinite(values)):
        raise InputError(
            f"function: its integral did not converge (error {error:.1e}); "
            "expected a continuous function."
        )
    return np.asarray(values)


def magnitude_spectrum(
    psi: Callable[[Array], Array], interval: tuple[float, float], samples: int = SAMPLES
) -> tuple[Array, Array]:
    """Return frequencies >= 0 and the magnitude of the Fourier transform of psi on ``interval``."""
    low, high = interval
    step = (high - low) / samples
    values = psi(cell_centres(low, high, samples))  # midpoint rule
    magnitude = np.abs(np.fft.rfft(values, n=samples * ZERO_FILL)) * step
    return np.fft.rfftfreq(samples * ZERO_FILL, d=step), magnitude
