"""The paper's theory as tools: rank (memorisation), distance (generalisation), and widths."""

from kronfield.analysis.comparison import compare, standard_embedders
from kronfield.analysis.distances import (
    SimilarityCurve,
    distance_preservation,
    preserved_range,
    similarity_curve,
)
from kronfield.analysis.memory import Memorisation, can_memorise
from kronfield.analysis.ranks import RankCurve, kronecker_spectrum, rank_curve
from kronfield.analysis.widths import (
    features_needed,
    matching_gaussian,
    matching_random_fourier,
    width_for_range,
    width_for_rank,
)

__all__ = [
    "Memorisation",
    "RankCurve",
    "SimilarityCurve",
    "can_memorise",
    "compare",
    "distance_preservation",
    "features_needed",
    "kronecker_spectrum",
    "matching_gaussian",
    "matching_random_fourier",
    "preserved_range",
    "rank_curve",
    "similarity_curve",
    "standard_embedders",
    "width_for_range",
    "width_for_rank",
]
