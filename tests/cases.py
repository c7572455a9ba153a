"""The cases of the contract tests: one of each embedder, and the array libraries."""

import array_api_strict
import numpy as np
import pytest
import torch

import kronfield as kf


def cosine_bell(u):
    """Return a smooth bump of half width 0.2, in arithmetic that works for any array library."""
    z = 1 - (u / 0.2) ** 2
    return z**3 * 0.7 + z**4 * 0.3


def cosine_bell_slope(u):
    z = 1 - (u / 0.2) ** 2
    return (z**2 * 2.1 + z**3 * 1.2) * (-2 * u / 0.04)


def cosine_bell_bend(u):
    z = 1 - (u / 0.2) ** 2
    dz = -2 * u / 0.04
    return (z * 4.2 + z**2 * 3.6) * dz**2 + (z**2 * 2.1 + z**3 * 1.2) * (-2 / 0.04)


FUNCTIONS = {"bell": cosine_bell, "bell'": cosine_bell_slope, "bell''": cosine_bell_bend}

EMBEDDERS = [
    kf.Impulse(24),
    kf.Impulse(24, padding=2),
    kf.Rectangle(24, 0.13),
    kf.Triangle(24, 0.17),
    kf.Triangle(24, 0.17, padding="auto"),
    kf.Gaussian(24, 0.07),
    kf.Gaussian(24, 0.07, padding=3),
    kf.ShiftedBasis(
        24, cosine_bell, (cosine_bell_slope, cosine_bell_bend), support=(-0.2, 0.2), name="bell"
    ),
    kf.TensionSpline(24, 0.05),
    kf.TensionSpline(24, 3.0, padding=2),
    kf.TensionSpline(24, 40.0, padding=2),
    kf.BSpline(24),
    kf.BSpline(24, 2, low=-0.03, high=1.02, inner=(0.05, 0.94)),
    kf.Sine(24, 1.5),
    kf.Square(24, 1.5),
    kf.RandomFourier(24, 3.0, seed=5),
    kf.LinearFourier(24, 3.5),
    kf.LogFourier(24, 3.5),
    kf.Wrapped(kf.Gaussian(24, 0.07)),
    kf.Wrapped(kf.Triangle(24, 0.17)),
    kf.Wrapped(kf.Impulse(24)),
    kf.Wrapped(kf.BSpline(27, 3, low=0.02, high=1.02)),
    kf.Dirichlet(24),
    kf.Dirichlet(23),
]

each_embedder = pytest.mark.parametrize("emb", EMBEDDERS, ids=repr)
SMOOTH = [emb for emb in EMBEDDERS if emb.smoothness >= 1]

LIBRARIES = {
    "numpy": (lambda a: a, lambda a: a),
    "torch": (torch.from_numpy, lambda a: a.numpy()),
    "strict": (array_api_strict.asarray, lambda a: np.asarray(a)),
}
each_library = pytest.mark.parametrize("library", list(LIBRARIES))


def positions(n, dtype=np.float64, seed=0, low=-0.1, high=1.1):
    """Return random positions, some of them outside the unit interval."""
    return np.random.default_rng(seed).uniform(low, high, n).astype(dtype)
