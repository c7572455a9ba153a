# The only list of public names and their modules. Type checkers and __init__.py read it.

from kronfield._core.arrays import (
    InputError as InputError,
    InputTypeError as InputTypeError,
)
from kronfield._core.coordinates import (
    diagonals as diagonals,
    even_axis as even_axis,
)
from kronfield._core.errors import (
    KronfieldError as KronfieldError,
)
from kronfield._core.spectra import (
    numerical_rank as numerical_rank,
    spectrum as spectrum,
    stable_rank as stable_rank,
)
from kronfield.analysis import (
    Memorisation as Memorisation,
    RankCurve as RankCurve,
    SimilarityCurve as SimilarityCurve,
    can_memorise as can_memorise,
    compare as compare,
    distance_preservation as distance_preservation,
    features_needed as features_needed,
    kronecker_spectrum as kronecker_spectrum,
    matching_gaussian as matching_gaussian,
    matching_random_fourier as matching_random_fourier,
    preserved_range as preserved_range,
    rank_curve as rank_curve,
    similarity_curve as similarity_curve,
    standard_embedders as standard_embedders,
    width_for_range as width_for_range,
    width_for_rank as width_for_rank,
)
from kronfield.embedders import (
    BSpline as BSpline,
    Dirichlet as Dirichlet,
    Embedder as Embedder,
    Gaussian as Gaussian,
    Impulse as Impulse,
    LinearFourier as LinearFourier,
    LocalEmbedder as LocalEmbedder,
    LogFourier as LogFourier,
    RandomFourier as RandomFourier,
    Rectangle as Rectangle,
    ShiftedBasis as ShiftedBasis,
    Sine as Sine,
    Square as Square,
    TensionSpline as TensionSpline,
    Triangle as Triangle,
    Wrapped as Wrapped,
)
from kronfield.encoding import (
    Concatenated as Concatenated,
    Encoding as Encoding,
    Kronecker as Kronecker,
)
from kronfield.encoding.blending import (
    Blending as Blending,
    blending_weights as blending_weights,
)
from kronfield.encoding.modes import (
    mode_product as mode_product,
    multilinear as multilinear,
)
from kronfield.field.field import (
    Field as Field,
    Saved as Saved,
)
from kronfield.field.loading import (
    load as load,
)
from kronfield.fitting.forms import (
    select_form as select_form,
)
from kronfield.fitting.grid import (
    NoiseWarning as NoiseWarning,
    RankWarning as RankWarning,
    denoise as denoise,
    fit as fit,
)
from kronfield.fitting.points import (
    fit_points as fit_points,
)
from kronfield.fitting.report import (
    Candidate as Candidate,
    FitReport as FitReport,
    PointReport as PointReport,
)
from kronfield.fitting.sphere import (
    sphere as sphere,
)
from kronfield.fitting.streaming import (
    Statistics as Statistics,
)
from kronfield.solvers.points.cg import (
    Convergence as Convergence,
    ConvergenceError as ConvergenceError,
)

__version__: str
