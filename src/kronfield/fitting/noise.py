"""Placeholder until the real module is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kronfield._core.arrays import Array


@dataclass(frozen=True)
class Noise:
    sigma: Array
    sigmas: Array
    rotation: Array
    ratio: float
    is_found: bool
    reason: str


def decorrelated(planes: Array) -> tuple[Array, Array]:
    C = len(planes)
    _, V = np.linalg.eigh(np.cov(planes.reshape(C, -1)).reshape(C, C))
    return V.T, np.tensordot(V.T, planes, axes=1)


def find_noise(planes: Array, settings: Any = None) -> Noise:
    rotation, _ = decorrelated(planes)
    zero = np.zeros(len(planes))
    return Noise(zero, zero, rotation, 0.0, False, "no noise found")
