"""kronfield: samples of a signal in, a continuous field out.

Positions are encoded by the Kronecker product of 1-D bases; the model on top is linear, so fits are closed form.

Examples
--------
>>> import kronfield as kf
>>> round(kf.Gaussian(256, width=0.01).stable_rank(256), 1)
28.2
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from kronfield.blending import Blending, blending_weights
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
    from kronfield.field import Field, Saved
    from kronfield.fitting import RankWarning, fit
    from kronfield.fitting_points import fit_points
    from kronfield.loading import load
    from kronfield.modes import mode_product, multilinear
    from kronfield.point_report import PointReport
    from kronfield.report import Candidate, FitReport
    from kronfield.solvers.conjugate import Convergence, ConvergenceError
    from kronfield.spectra import numerical_rank, spectrum, stable_rank
    from kronfield.statistics import Statistics

__version__ = "0.1.0"

__all__ = [
    "Blending",
    "Candidate",
    "Concatenated",
    "Convergence",
    "ConvergenceError",
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
    "PointReport",
    "RandomFourier",
    "RankCurve",
    "RankWarning",
    "Rectangle",
    "Saved",
    "ShiftedBasis",
    "SimilarityCurve",
    "Sine",
    "Square",
    "Statistics",
    "TensionSpline",
    "Triangle",
    "blending_weights",
    "can_memorise",
    "compare",
    "diagonals",
    "distance_preservation",
    "even_axis",
    "features_needed",
    "fit",
    "fit_points",
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

# Which module each name comes from. Modules load when a name of theirs is first used, so that importing kronfield is quick.
_HOMES = {
    "_arrays": "InputError InputTypeError",
    "analysis": "Memorisation RankCurve SimilarityCurve can_memorise compare distance_preservation features_needed "
    "kronecker_spectrum matching_gaussian matching_random_fourier preserved_range rank_curve "
    "similarity_curve standard_embedders width_for_range width_for_rank",
    "blending": "Blending blending_weights",
    "coordinates": "diagonals even_axis",
    "embedders": "Embedder Gaussian Impulse LinearFourier LocalEmbedder LogFourier RandomFourier Rectangle "
    "ShiftedBasis Sine Square TensionSpline Triangle",
    "encoding": "Concatenated Encoding Kronecker",
    "field": "Field Saved",
    "fitting": "RankWarning fit",
    "fitting_points": "fit_points",
    "loading": "load",
    "modes": "mode_product multilinear",
    "point_report": "PointReport",
    "report": "Candidate FitReport",
    "solvers.conjugate": "Convergence ConvergenceError",
    "spectra": "numerical_rank spectrum stable_rank",
    "statistics": "Statistics",
}
# Modules that are reached as attributes without being imported first.
_MODULES = ("contest", "exporting", "experiments", "files", "measures", "nn", "rendering", "reporting", "signals")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        try:
            return importlib.import_module(f"kronfield.{name}")
        except ImportError as error:  # torch is an extra, say
            raise AttributeError(f"module 'kronfield.{name}' cannot be imported: {error}") from error
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kronfield' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kronfield.{_HOME_OF[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
