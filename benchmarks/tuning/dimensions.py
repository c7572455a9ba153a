"""Sets decisions of the dual form and of factored weights: functions that the benchmark lacks.

python -m benchmarks.tuning.dimensions [--sizes 300,2000] [--forms dual,factored] [--peers]

Prints 1 - R^2 at 4000 new points without noise, and seconds of CPU time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import kronfield as kf
from benchmarks.data import Array
from benchmarks.dimensions import peers, r_squared


def _waves(x: Array) -> Array:
    """Return a product of waves and a sum: 5 axes matter of 7."""
    return np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1] - x[:, 2]) + np.exp(x[:, 3] * x[:, 4])


def _wing(x: Array) -> Array:
    """Return the weight of a wing: 10 axes, products of powers (Forrester et al., 2008)."""
    low = np.array([150, 220, 6, -10, 16, 0.5, 0.08, 2.5, 1700, 0.025])
    high = np.array([200, 300, 10, 10, 45, 1, 0.18, 6, 2500, 0.08])
    S, fuel, A, sweep, q, taper, tc, N, dg, paint = (low + (high - low) * x).T
    cos = np.cos(np.radians(sweep))
    product = 0.036 * S**0.758 * fuel**0.0035 * (A / cos**2) ** 0.6 * q**0.006 * taper**0.04
    return product * (100 * tc / cos) ** -0.3 * (N * dg) ** 0.49 + S * paint


def _piston(x: Array) -> Array:
    """Return the cycle time of a piston: 7 axes (Kenett and Zacks, 1998)."""
    low = np.array([30, 0.005, 0.002, 1000, 90000, 290, 340])
    high = np.array([60, 0.020, 0.010, 5000, 110000, 296, 360])
    M, S, V0, k, P0, Ta, T0 = (low + (high - low) * x).T
    A = P0 * S + 19.62 * M - k * V0 / S
    V = S / (2 * k) * (np.sqrt(A**2 + 4 * k * P0 * V0 / T0 * Ta) - A)
    return 2 * np.pi * np.sqrt(M / (k + S**2 * P0 * V0 * Ta / (T0 * V**2)))


def _robot(x: Array) -> Array:
    """Return the distance of a robot arm of 4 parts: 8 axes, many interactions."""
    theta = np.cumsum(2 * np.pi * x[:, :4], axis=1)
    return np.hypot(np.sum(x[:, 4:8] * np.cos(theta), 1), np.sum(x[:, 4:8] * np.sin(theta), 1))


def _ridge(x: Array) -> Array:
    """Return a function of two directions in 6 dimensions."""
    a = x @ np.array([1.0, 0.7, -0.5, 0.3, 0.2, -0.8])
    b = x @ np.array([-0.2, 0.6, 0.9, 0.1, -0.5, 0.4])
    return np.tanh(2 * a) + 0.5 * np.sin(3 * b)


def _steps(x: Array) -> Array:
    """Return steps and kinks: 3 axes matter of 6."""
    return (x[:, 0] > 0.4) + np.abs(x[:, 1] - 0.6) * 2 + (x[:, 2] > 0.7) * x[:, 1]


def _counts(x: Array) -> Array:
    """Return a function of columns with few values, and of skewed ones."""
    whole, skewed = np.floor(4 * x[:, :2]), -np.log(1 - 0.999 * x[:, 2:4])
    return 0.4 * whole[:, 0] * np.sqrt(skewed[:, 0]) + np.sin(whole[:, 1]) + 0.2 * skewed[:, 1]


def _as_counts(x: Array) -> Array:
    return np.column_stack([np.floor(4 * x[:, :2]), -np.log(1 - 0.999 * x[:, 2:4]), x[:, 4:]])


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], int, Callable[[Array], Array]]] = {
    "waves": (_waves, 7, lambda x: x),
    "wing": (_wing, 10, lambda x: x),
    "piston": (_piston, 7, lambda x: x),
    "robot": (_robot, 8, lambda x: x),
    "ridge": (_ridge, 6, lambda x: x),
    "steps": (_steps, 6, lambda x: x),
    "counts": (_counts, 6, _as_counts),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="300,2000")
    parser.add_argument("--noise", default="0,0.3")
    parser.add_argument("--forms", default="auto")
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    for P in map(int, options.sizes.split(",")):
        for noise in map(float, options.noise.split(",")):
            for name in options.functions.split(","):
                function, D, columns = FUNCTIONS[name]
                rng = np.random.default_rng(7)
                x, new = rng.random((P, D)), rng.random((4000, D))
                truth, values = function(new), function(x)
                values = values + noise * values.std() * rng.standard_normal(P)
                X, Z = columns(x), columns(new)
                line = [f"{name:8} P {P:6} noise {noise:3.1f}"]
                for form in options.forms.split(","):
                    began = time.process_time()
                    field = kf.fit_points(X, values, form=None if form == "auto" else form)
                    found = field(Z, outside="clamp")
                    spent = time.process_time() - began
                    error = 1 - r_squared(truth, found)
                    shown = f"{field.report.form}" if form == "auto" else form
                    line.append(f"{shown} {error:.5f} ({spent:.1f} s)")
                if options.peers:
                    for peer in peers(P):
                        began = time.process_time()
                        found = peer.call(X, values, Z)
                        spent = time.process_time() - began
                        error = 1 - r_squared(truth, found)
                        line.append(f"{peer.name} {error:.5f} ({spent:.1f} s)")
                print(" | ".join(line), flush=True)


if __name__ == "__main__":
    main()
