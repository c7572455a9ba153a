"""Embedders: immutable maps from positions on one axis to K features, for any array library."""

from kronfield.embedders._base import Embedder
from kronfield.embedders._bspline import BSpline
from kronfield.embedders._custom import ShiftedBasis
from kronfield.embedders._fourier import FourierEmbedder, LinearFourier, LogFourier, RandomFourier
from kronfield.embedders._local import Gaussian, Impulse, LocalEmbedder, Rectangle, Triangle
from kronfield.embedders._periodic import Sine, Square
from kronfield.embedders._spline import TensionSpline
from kronfield.embedders._wrapped import Dirichlet, Wrapped, periodic_form

__all__ = [
    "BSpline",
    "Dirichlet",
    "Embedder",
    "FourierEmbedder",
    "Gaussian",
    "Impulse",
    "LinearFourier",
    "LocalEmbedder",
    "LogFourier",
    "RandomFourier",
    "Rectangle",
    "ShiftedBasis",
    "Sine",
    "Square",
    "TensionSpline",
    "Triangle",
    "Wrapped",
    "periodic_form",
]
