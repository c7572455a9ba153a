"""Integrals of a function the user hands in: its autocorrelation and the magnitude of its spectrum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Vector = np.ndarray[Any, Any]

# Panels that the integration starts from, so that a narrow peak cannot hide between the nodes.
PANELS = 64
# Samples of the interval in the spectrum, and how many times its length is filled up with zeros.
SAMPLES, ZERO_FILL = 1 << 14, 8


def autocorrelation(psi: Callable[[Vector], Vector], interval: tuple[float, float], shifts: Vector) -> Vector:
    """Return the integral of psi(r - dx/2) psi(r + dx/2) over r in ``interval``, for every dx in ``shifts``."""
    from scipy.integrate import quad_vec

    half = np.abs(shifts).ravel().astype(np.float64) / 2

    def integrand(r: float) -> Vector:
        return psi(r - half) * psi(r + half)

    low, high = interval
    starts = tuple(np.linspace(low, high, PANELS + 1)[1:-1])
    peak = float(np.max(np.abs(psi(np.linspace(low, high, 16 * PANELS + 1)))))
    values, error, info = quad_vec(
        integrand,
        low,
        high,
        epsabs=1e-11 * peak * peak * (high - low),
        epsrel=1e-11,
        norm="max",
        points=starts,
        full_output=True,
    )
    if not info.success or not np.all(np.isfinite(values)):
        raise ArithmeticError(
            f"similarity: quadrature of the function did not converge (error {error:.1e}, {info.message}). "
            "The function must be finite and continuous on its support; give a support that holds all of it."
        )
    return np.asarray(values).reshape(np.shape(shifts))


def vector_integral(function: Callable[[float], Vector], low: float, high: float, step: float) -> Vector:
    """Return the integral of a vector-valued function, starting from panels no wider than ``step``."""
    from scipy.integrate import quad_vec

    panels = min(4096, max(1, math.ceil(abs(high - low) / step)))
    starts = tuple(np.linspace(low, high, panels + 1)[1:-1])
    values, error, info = quad_vec(
        function, low, high, epsabs=1e-13, epsrel=1e-11, norm="max", points=starts, full_output=True
    )
    if not info.success or not np.all(np.isfinite(values)):
        raise ArithmeticError(f"integral: quadrature of the function did not converge (error {error:.1e}).")
    return np.asarray(values)


def magnitude_spectrum(psi: Callable[[Vector], Vector], interval: tuple[float, float]) -> tuple[Vector, Vector]:
    """Return frequencies >= 0 and the magnitude of the Fourier transform of psi, cut to ``interval``, at them."""
    low, high = interval
    step = (high - low) / SAMPLES
    samples = psi(low + step * (np.arange(SAMPLES) + 0.5))  # midpoint rule
    magnitude = np.abs(np.fft.rfft(samples, n=SAMPLES * ZERO_FILL)) * step
    return np.fft.rfftfreq(SAMPLES * ZERO_FILL, d=step), magnitude
