"""Embedders: one axis of position to K features. Frozen, one formula each, for any array library."""

from kronfield.embedders._base import Embedder
from kronfield.embedders._fourier import LinearFourier, LogFourier, RandomFourier
from kronfield.embedders._local import Gaussian, Impulse, Rectangle, ShiftedBasis, Triangle
from kronfield.embedders._periodic import Sine, Square

__all__ = [
    "Embedder",
    "Gaussian",
    "Impulse",
    "LinearFourier",
    "LogFourier",
    "RandomFourier",
    "Rectangle",
    "ShiftedBasis",
    "Sine",
    "Square",
    "Triangle",
]
