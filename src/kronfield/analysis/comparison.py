"""A comparison of embedders, as plain data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from kronfield._core.arrays import describe, problem, whole
from kronfield._core.coordinates import even_axis
from kronfield._core.spectra import numerical_rank
from kronfield.analysis.distances import distance_preservation, preserved_range
from kronfield.analysis.ranks import rank_curve
from kronfield.analysis.widths import MATCH, features_needed
from kronfield.embedders import (
    Embedder,
    Gaussian,
    Impulse,
    LinearFourier,
    LogFourier,
    RandomFourier,
    Rectangle,
    ShiftedBasis,
    Sine,
    Square,
    Triangle,
)


def standard_embedders(size: int = 256, seed: int = 0) -> list[Embedder]:
    """Return one embedder of each kind in the paper, with comparable settings.

    Gaussian and RFF match each other. The similarity of the sine and of the square wave falls once
    over the whole domain.

    Examples
    --------
    >>> len(standard_embedders(64))
    9
    """
    even = whole("size", size, at_least=2)
    if even % 2:
        raise problem("size", size, "an even number", "Fourier features come in pairs.")
    width = 0.01
    return [
        Impulse(even),
        Rectangle(even, 4 * width),
        Triangle(even, 4 * width),
        Gaussian(even, width),
        RandomFourier(even, MATCH / width, seed),
        LinearFourier(even, 5.0),
        LogFourier(even, 5.5),
        Sine(even, 0.5),
        Square(even, 0.5),
    ]


def compare(embedders: Sequence[Embedder], n: int) -> list[dict[str, Any]]:
    """Return one row per embedder with its measured and theoretical properties.

    Examples
    --------
    >>> rows = compare([Gaussian(256, 0.01), Sine(256, 0.5)], n=256)
    >>> [round(row["stable_rank"], 1) for row in rows]
    [28.1, 2.0]

    Parameters
    ----------
    embedders : sequence of Embedder
        The embedders to compare.
    n : int
        The number of evenly spaced samples.

    Returns
    -------
    list of dict
        ``embedder`` (its name), ``settings`` (those that differ from the default), ``samples``,
        ``features``; ``stable_rank`` (measured), ``stable_rank_theory`` (None if there is none),
        ``rank`` (numerical); ``distance_preservation`` (measured),
        ``distance_preservation_theory``; ``range`` (the distance up to which D >= 10^-3 D(0));
        ``features_needed`` at 10^-3 (None if no number is enough).
    """
    samples = whole("n", n, at_least=1)
    if not isinstance(embedders, list | tuple) or not all(
        isinstance(emb, Embedder) for emb in embedders
    ):
        raise problem(
            "embedders",
            describe(embedders),
            "a list of embedders",
            "Put them in a list.",
            TypeError,
        )
    return [_row(embedder, samples) for embedder in embedders]


def _settings(embedder: Embedder) -> dict[str, Any]:
    defaults = {f.name: f.default for f in dataclasses.fields(embedder)}  # type: ignore[arg-type]
    given = {name: getattr(embedder, name) for name in defaults if name != "size"}
    if isinstance(embedder, ShiftedBasis):  # functions are not plain data: use their name
        support = given["support"] and list(given["support"])
        given = {"function": given["name"], "support": support, "padding": given["padding"]}
    return {name: value for name, value in given.items() if value != defaults[name]}


def _row(embedder: Embedder, n: int) -> dict[str, Any]:
    curve = rank_curve(embedder, [n])
    return {
        "embedder": type(embedder).__name__,
        "settings": _settings(embedder),
        "samples": n,
        "features": embedder.size,
        "stable_rank": curve.measured[0],
        "stable_rank_theory": None if curve.theory is None else curve.theory[0],
        "rank": numerical_rank(embedder(even_axis(n))),
        "distance_preservation": distance_preservation(embedder, measured=True),
        "distance_preservation_theory": distance_preservation(embedder),
        "range": preserved_range(embedder),
        "features_needed": features_needed(embedder)
        if math.isfinite(embedder.bandwidth())
        else None,
    }
