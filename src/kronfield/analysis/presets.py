"""Embedders by name, with default settings for a given number of features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kronfield._core.arrays import InputError, problem
from kronfield.analysis import matching_random_fourier
from kronfield.embedders import (
    BSpline,
    Embedder,
    Gaussian,
    Impulse,
    LinearFourier,
    LogFourier,
    RandomFourier,
    Rectangle,
    Sine,
    Square,
    TensionSpline,
    Triangle,
)

# Full names, and the abbreviations of the paper.
NAMES: dict[str, type[Embedder]] = {
    "impulse": Impulse,
    "rectangle": Rectangle,
    "triangle": Triangle,
    "tri": Triangle,
    "gaussian": Gaussian,
    "gau": Gaussian,
    "tension": TensionSpline,
    "bspline": BSpline,
    "sine": Sine,
    "square": Square,
    "randomfourier": RandomFourier,
    "rff": RandomFourier,
    "linearfourier": LinearFourier,
    "linf": LinearFourier,
    "logfourier": LogFourier,
    "logf": LogFourier,
}
# Kinds whose features come in pairs.
PAIRED = (RandomFourier, LinearFourier, LogFourier)
# The default shape of each kind for K features, one per sample: hats of linear interpolation,
# Gaussians as narrow as the paper's, RFF that match these Gaussians, and other Fourier features up
# to half the highest frequency of the samples.
_SHAPES: dict[type[Embedder], Callable[[int], dict[str, Any]]] = {
    Rectangle: lambda K: {"width": 1 / K},
    Triangle: lambda K: {"width": 2 / K},
    Gaussian: lambda K: {"width": 0.64 / K},
    TensionSpline: lambda K: {"tension": 4.0, "padding": 2 if K > 5 else 0},
    BSpline: lambda K: {"degree": min(3, K - 1)},
    RandomFourier: lambda K: {
        "scale": matching_random_fourier(Gaussian(K, 0.64 / K)).scale,
        "seed": 0,
    },
    LinearFourier: lambda K: {"exponent": math.log2(max(K / 4, 1.0))},
    LogFourier: lambda K: {"exponent": math.log2(max(K / 4, 1.0))},
    Sine: lambda K: {"frequency": 0.5},
    Square: lambda K: {"frequency": 0.5},
}


def kind_named(name: str) -> type[Embedder]:
    """Return the class of an embedder by any of its names; case does not matter."""
    kind = NAMES.get(name.strip().lower())
    if kind is None:
        raise problem("embedder", repr(name), f"one of {', '.join(NAMES)}", "For example: gaussian")
    return kind


def preset(name: str, size: int, *, complete: bool = True, **settings: Any) -> Embedder:
    """Return an embedder by name.

    Examples
    --------
    >>> from kronfield.analysis.presets import preset
    >>> preset("triangle", 50)
    Triangle(size=50, width=0.04, padding=0)
    >>> preset("gau", 50, width=0.1)
    Gaussian(size=50, width=0.1, padding=0)

    Parameters
    ----------
    name : str
        One of `NAMES`.
    size : int
        The number of features.
    complete : bool
        Whether to fill in missing shape parameters, suited to ``size`` samples.
    settings
        Further arguments of the embedder.
    """
    kind = kind_named(name)
    values: dict[str, Any] = {"size": size, **settings}
    if complete and isinstance(values["size"], int) and values["size"] > 0 and kind in _SHAPES:
        values = {**_SHAPES[kind](values["size"]), **values}
    try:
        return kind(**values)
    except TypeError as error:
        if isinstance(error, InputError):
            raise
        needed = f"size and {kind.shape_parameter}" if kind.shape_parameter else "size"
        given = ", ".join(f"{key}={value}" for key, value in settings.items()) or "nothing"
        raise problem(
            "embedder",
            f"{name} with {given}",
            f"the settings of {kind.__name__}: {needed}",
            _python_message(error),
        ) from error


def natural_size(name: str, samples: int) -> int:
    """Return the number of features with one centre per sample; even for Fourier kinds."""
    kind = kind_named(name)
    if kind in PAIRED:
        return samples + samples % 2
    return samples + 4 if kind is TensionSpline else samples


def _python_message(error: TypeError) -> str:
    """Return Python's message about a wrong argument, without the name of the function."""
    return str(error).split("__init__() ")[-1].capitalize() + "."
