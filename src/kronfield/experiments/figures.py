"""The data of the paper's figures; `kronfield.experiments.plots` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.coordinates import even_axis
from kronfield._core.records import record
from kronfield._core.spectra import spectrum, stable_rank
from kronfield.analysis import (
    RankCurve,
    SimilarityCurve,
    rank_curve,
    similarity_curve,
    standard_embedders,
)
from kronfield.analysis.widths import MATCH
from kronfield.embedders import Embedder, Gaussian, RandomFourier, Sine
from kronfield.encoding.blending import blending_weights
from kronfield.experiments.encodings import embedder
from kronfield.experiments.spec import ENCODERS, load_spec

# The positions that the figure "sampling" embeds.
PLACES = (0.33, 0.6)
# Widths of Gaussians. The scales of RFF of equal rank follow from them.
WIDTHS = (0.003, 0.01, 0.03, 0.1)


@record
class LabelledCurve:
    """A curve of a figure with its label in the legend."""

    label: str
    x: Array
    y: Array


@record
class Sampling:
    """One panel of the figure "sampling": shifted functions over t, and their samples."""

    title: str
    curves: tuple[LabelledCurve, ...]
    samples: tuple[LabelledCurve, ...]


def sampling() -> list[Sampling]:
    """Return shifted bases and their samples: wide and narrow Gaussians, slow and fast sines."""
    panels = []
    kinds: list[tuple[str, Callable[[int], Embedder], int]] = [
        ("(a) wide Gaussian, 10 samples", lambda n: Gaussian(n, 0.1), 10),
        ("(b) narrow Gaussian, 40 samples", lambda n: Gaussian(n, 0.025), 40),
        ("(c) slow sine, 8 samples", lambda n: Sine(n, 2.0), 8),
        ("(d) fast sine, 32 samples", lambda n: Sine(n, 8.0), 32),
    ]
    for title, make, count in kinds:
        fine, coarse = make(800)(np.array(PLACES)), make(count)(np.array(PLACES))
        names = [f"x{i + 1} = {x:g}" for i, x in enumerate(PLACES)]
        curves = tuple(
            LabelledCurve(name, even_axis(800), row) for name, row in zip(names, fine, strict=True)
        )
        samples = tuple(
            LabelledCurve(name, even_axis(count), row)
            for name, row in zip(names, coarse, strict=True)
        )
        panels.append(Sampling(title, curves, samples))
    return panels


def gaussian_rank(
    counts: Sequence[int] = (16, 64, 256, 512), steps: int = 17
) -> tuple[list[LabelledCurve], LabelledCurve]:
    """Return the stable rank of the Gaussian against its width, for several N, and the formula."""
    widths = np.geomspace(1e-3, 0.3, steps)
    curves = []
    for n in counts:
        ranks = [
            stable_rank(Gaussian(2 * max(counts), float(width))(even_axis(n))) for width in widths
        ]
        curves.append(LabelledCurve(f"N = {n}", widths, np.array(ranks)))
    return curves, LabelledCurve("1 / (2 √π σ)", widths, 1 / (2 * math.sqrt(math.pi) * widths))


def embedders(samples: int = 512) -> tuple[dict[str, RankCurve], dict[str, SimilarityCurve]]:
    """Return rank and similarity curves of all embedders."""
    counts = [2**i for i in range(2, int(math.log2(samples)) + 1)]
    distances = np.concatenate([np.linspace(0.0, 0.1, 101), np.linspace(0.105, 1.0, 180)])
    ranks, similarities = dict[str, RankCurve](), dict[str, SimilarityCurve]()
    for emb in standard_embedders(samples):
        name = type(emb).__name__ + (
            f" {getattr(emb, emb.shape_parameter):.4g}" if emb.shape_parameter else ""
        )
        ranks[name], similarities[name] = rank_curve(emb, counts), similarity_curve(emb, distances)
    return ranks, similarities


def gaussian_and_rff(
    samples: int = 512, seed: int = 0
) -> list[tuple[str, list[LabelledCurve], list[LabelledCurve], list[float]]]:
    """Return the curves of Gaussian and RFF: (title, ranks by N, similarities, rank limits)."""
    counts = [2**i for i in range(2, int(math.log2(samples)) + 1)]
    distances = np.linspace(0.0, 0.5, 251)
    rows = []
    kinds: list[tuple[str, Callable[[float], tuple[str, Embedder]]]] = [
        (f"Gaussian, {samples} features", lambda w: (f"σ = {w:g}", Gaussian(samples, w))),
        (
            f"RFF, {4 * samples} features",
            lambda w: (f"σ = {MATCH / w:.3g}", RandomFourier(4 * samples, MATCH / w, seed)),
        ),
    ]
    for title, make in kinds:
        ranks, alike, limits = list[LabelledCurve](), list[LabelledCurve](), list[float]()
        for width in WIDTHS:
            label, emb = make(width)
            measured = rank_curve(emb, counts).measured
            ranks.append(LabelledCurve(label, np.array(counts), np.array(measured)))
            curve = similarity_curve(emb, distances)
            alike.append(LabelledCurve(label, distances, np.asarray(curve.measured)))
            assert emb.rank_limit is not None
            limits.append(emb.rank_limit)
        rows.append((title, ranks, alike, limits))
    return rows


def encodings(size: int = 24, place: tuple[float, float] = (0.3, 0.65)) -> tuple[Array, Array]:
    """Return the features of x and of y of one point.

    Concatenated they are the simple encoding, and their outer product is the complex one.
    """
    emb = Gaussian(size, 0.07)
    first, second = emb(np.array(place))
    return first, second


def blending(size: int = 256) -> tuple[list[LabelledCurve], list[LabelledCurve]]:
    """Return features at two nodes, between them, and blended; and alpha_0 against beta."""
    small, spacing, share = Gaussian(64, 0.07), 0.1, 0.35
    low = 0.4
    at = small(np.array([low, low + spacing, low + share * spacing]))
    pair = blending_weights(small, np.array([share]), spacing, low=low)
    a0, a1 = (float(part[0]) for part in pair)
    centres = even_axis(64)
    names = ("ψ(x₀)", "ψ(x₁)", "ψ(x)")
    mixed = LabelledCurve(f"{a0:.2f} ψ(x₀) + {a1:.2f} ψ(x₁)", centres, a0 * at[0] + a1 * at[1])
    left = [LabelledCurve(name, centres, row) for name, row in zip(names, at, strict=True)] + [
        mixed
    ]
    beta = np.linspace(0.0, 1.0, 101)
    right = []
    for method in load_spec("table2").select("complex"):
        emb = embedder(method.encoder, size, method.setting)
        right.append(
            LabelledCurve(
                f"{method.encoder} {method.setting:.3g}",
                beta,
                blending_weights(emb, beta, 1 / size)[0],
            )
        )
    return left, right


def singular_values(count: int = 256, seed: int = 0) -> dict[str, list[LabelledCurve]]:
    """Return normalised singular values of the encodings, on a grid and at random, N = K."""
    places = {
        "grid": even_axis(count),
        "random": np.sort(np.random.default_rng(seed).random(count)),
    }
    settings = {method.encoder: method.setting for method in load_spec("table1").select("complex")}
    found = dict[str, list[LabelledCurve]]()
    for where, x in places.items():
        found[where] = [
            LabelledCurve(
                name,
                np.arange(1, count + 1),
                np.asarray(spectrum(embedder(name, count, settings[name])(x))),
            )
            for name in ENCODERS
        ]
    return found


FIGURES = (
    "sampling",
    "gaussian-rank",
    "embedders",
    "gaussian-rff",
    "encodings",
    "blending",
    "singular-values",
)


def draw_figure(name: str, path: Path, *, coarse: bool = False) -> list[Path]:
    """Compute and draw a figure, with fewer samples if ``coarse``; return the files.

    The suffix of ``path`` selects the format: .png, .svg or another that Matplotlib writes.
    """
    from kronfield.experiments import plots as paper_plots
    from kronfield.plots import save_comparison

    if name == "embedders":
        save_comparison(path, *embedders(64 if coarse else 512))
        paper_plots.few_colours(path)
        return [path]
    draw: dict[str, Callable[[], list[Path]]] = {
        "sampling": lambda: paper_plots.sampling(path, sampling()),
        "gaussian-rank": lambda: paper_plots.gaussian_rank(
            path, *(gaussian_rank((16, 64), 7) if coarse else gaussian_rank())
        ),
        "gaussian-rff": lambda: paper_plots.gaussian_and_rff(
            path, gaussian_and_rff(64 if coarse else 512)
        ),
        "encodings": lambda: paper_plots.encodings(path, *encodings()),
        "blending": lambda: paper_plots.blending(path, *blending()),
        "singular-values": lambda: paper_plots.singular_values(
            path, singular_values(64 if coarse else 256)
        ),
    }
    return draw[name]()
