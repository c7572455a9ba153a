"""Set the grid of hats for rough values again, on random fields.

    python -m benchmarks.tuning.rough

The fields are sums of random waves with the spectrum of the similarities exp(-r / L), whose samples
are rough like terrain, and (1 + r / L) exp(-r / L). Errors are relative to RBFInterpolator
with a linear kernel, geometric mean over fields.
"""

from __future__ import annotations

import math
import time

import numpy as np
from scipy.interpolate import RBFInterpolator

import kronfield as kf
from benchmarks.data import Array
from kronfield.fitting.settings import DEFAULT, changed

WAVES = 4000
POINTS = 3000


def field_at(points: Array, nu: float, length: float, seed: int) -> Array:
    """Return a random field at points (P, 2), with a Matern similarity of smoothness ``nu``.

    Its spectral density is that of Student's t: frequencies are normal over the root of a gamma
    variable (Rahimi and Recht, 2007).
    """
    rng = np.random.default_rng(seed)
    scale = np.sqrt(2 * nu / rng.chisquare(2 * nu, WAVES)) / length
    waves = rng.standard_normal((WAVES, 2)) * scale[:, None]
    phase = rng.uniform(0, 2 * math.pi, WAVES)
    parts = [np.cos(part @ waves.T + phase).sum(axis=1) for part in np.array_split(points, 20)]
    return np.concatenate(parts) * math.sqrt(2 / WAVES)


def ratio(cells: float, nu: float, length: float, seed: int) -> tuple[float, float]:
    """Return the error over that of a linear kernel, and the time of the fit in seconds."""
    rng = np.random.default_rng(100 + seed)
    points = rng.random((POINTS + 500, 2)) ** np.array([1.5, 1.0])
    values = field_at(points, nu, length, seed)
    given, held = slice(0, POINTS), slice(POINTS, None)
    peer = RBFInterpolator(points[given], values[given], kernel="linear", neighbors=50)
    settings = changed(DEFAULT, "points", "fine_hat_cells", cells)
    started = time.process_time()
    field = kf.fit_points(points[given], values[given], settings=settings)
    seconds = time.process_time() - started
    ours = np.mean((field(points[held], outside="extrapolate") - values[held]) ** 2)
    theirs = np.mean((peer(points[held]) - values[held]) ** 2)
    return math.sqrt(ours / theirs), seconds


def main() -> None:
    """Print a line for each number of cells and each roughness; 1e9 cells are never tried."""
    for nu in (0.5, 1.5):
        for cells in (1e9, 8.0, 16.0, 32.0):
            found = [ratio(cells, nu, length, k) for k, length in enumerate((0.1, 0.3, 1.0))]
            error = math.exp(np.mean(np.log([one for one, _ in found])))
            seconds = np.mean([one for _, one in found])
            print(
                f"nu {nu}, {cells:g} cells: {error:.4f} of the error, {seconds:.2f} s", flush=True
            )


if __name__ == "__main__":
    main()
