"""kronfield: samples of a signal in, a continuous field out.

Positions are encoded by the Kronecker product of 1-D bases; the model on top is linear, so fits are closed form.

Examples
--------
>>> import kronfield as kf
>>> round(kf.Gaussian(256, width=0.01).stable_rank(256), 1)
28.2
"""

from kronfield._arrays import InputError, InputTypeError
from kronfield.analysis import (
    Memorisation,
    RankCurve,
    SimilarityCurve,
    can_memorise,
    compare,
    distance_preservation,
    features_needed,
    kronecker_spectrum,
    matching_gaussian,
    matching_random_fourier,
    preserved_range,
    rank_curve,
    similarity_curve,
    standard_embedders,
    width_for_range,
    width_for_rank,
)
from kronfield.coordinates import diagonals, even_axis
from kronfield.embedders import (
    Embedder,
    Gaussian,
    Impulse,
    LinearFourier,
    LocalEmbedder,
    LogFourier,
    RandomFourier,
    Rectangle,
    ShiftedBasis,
    Sine,
    Square,
    TensionSpline,
    Triangle,
)
from kronfield.encoding import Concatenated, Encoding, Kronecker
from kronfield.field import Field, Saved, load
from kronfield.fit import RankWarning, fit
from kronfield.modes import mode_product, multilinear
from kronfield.report import Candidate, FitReport
from kronfield.spectra import numerical_rank, spectrum, stable_rank

__version__ = "0.1.0"

__all__ = [
    "Candidate",
    "Concatenated",
    "Embedder",
    "Encoding",
    "Field",
    "FitReport",
    "Gaussian",
    "Impulse",
    "InputError",
    "InputTypeError",
    "Kronecker",
    "LinearFourier",
    "LocalEmbedder",
    "LogFourier",
    "Memorisation",
    "RandomFourier",
    "RankCurve",
    "RankWarning",
    "Rectangle",
    "Saved",
    "ShiftedBasis",
    "SimilarityCurve",
    "Sine",
    "Square",
    "TensionSpline",
    "Triangle",
    "can_memorise",
    "compare",
    "diagonals",
    "distance_preservation",
    "even_axis",
    "features_needed",
    "fit",
    "kronecker_spectrum",
    "load",
    "matching_gaussian",
    "matching_random_fourier",
    "mode_product",
    "multilinear",
    "numerical_rank",
    "preserved_range",
    "rank_curve",
    "similarity_curve",
    "spectrum",
    "stable_rank",
    "standard_embedders",
    "width_for_range",
    "width_for_rank",
]
