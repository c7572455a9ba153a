"""The figures that the claims of the paper's theory are judged by, computed from the embedders.

There is one function per claim. It takes the number of samples and returns named numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.coordinates import even_axis
from kronfield._core.spectra import numerical_rank, stable_rank
from kronfield.analysis import can_memorise, distance_preservation
from kronfield.analysis.widths import MATCH
from kronfield.embedders import (
    Embedder,
    Gaussian,
    Impulse,
    RandomFourier,
    Rectangle,
    Sine,
    Square,
    Triangle,
)
from kronfield.encoding import Concatenated, Kronecker
from kronfield.encoding.blending import WEIGHTS, Blending, blending_weights
from kronfield.experiments.encodings import embedder
from kronfield.experiments.spec import load_spec


def memorise(n: int) -> dict[str, float]:
    """Fit 64 random values by least squares on features of rank 64 and of rank 2."""
    x, y = even_axis(64), np.random.default_rng(0).standard_normal(64)
    figures = dict[str, float]()
    for name, emb in (("rank 64", Gaussian(64, 0.01)), ("rank 2", Sine(64, 2.0))):
        Psi = np.asarray(emb(x))
        residual = np.abs(Psi @ np.linalg.lstsq(Psi, y, rcond=None)[0] - y).max()
        figures[f"residual at {name}"] = float(residual)
        figures[f"can_memorise at {name}"] = float(bool(can_memorise(emb, x)))
    return figures


# Stable ranks
# --------------------------------------------------------------------------------------------------


def gaussian_rank(n: int) -> dict[str, float]:
    """Compare stable ranks of the Gaussian with the formula, also where it reaches N."""
    kink = 1 / (2 * math.sqrt(math.pi) * n)  # the width at which 1/(2√π σ) = N
    return _rank_formula(lambda width: Gaussian(n, width), (0.01, 0.03, 0.07), n) | {
        "N": n,
        "rank where the formula reaches N": stable_rank(Gaussian(n, kink)(even_axis(n))),
        "rank at half that width": stable_rank(Gaussian(n, kink / 2)(even_axis(n))),
    }


def rff_rank(n: int) -> dict[str, float]:
    """Compare stable ranks of RFF with the formula, with many features and with few."""
    few = _rank_formula(lambda scale: RandomFourier(n, scale), (5.0, 15.0), n)
    many = _rank_formula(lambda scale: RandomFourier(64 * n, scale), (5.0, 15.0), n)
    error = few["largest relative error"]
    return many | {"features": 64 * n, f"largest relative error with {n} features": error}


def triangle_rank(n: int) -> dict[str, float]:
    """Compare stable ranks of the triangle with the formula."""
    return _rank_formula(lambda width: Triangle(n, width), (0.05, 0.1, 0.2), n)


def rectangle_rank(n: int) -> dict[str, float]:
    """Compare stable ranks of the rectangle with the formula."""
    return _rank_formula(lambda width: Rectangle(n, width), (16 / n, 32 / n, 64 / n), n)


def _rank_formula(
    make: Callable[[float], Embedder], settings: tuple[float, ...], n: int
) -> dict[str, float]:
    """Return measured stable ranks, those of the formula, and the largest relative error."""
    figures, errors = dict[str, float](), list[float]()
    for setting in settings:
        emb = make(setting)
        limit = emb.rank_limit
        assert limit is not None
        measured = stable_rank(emb(even_axis(n)))
        errors.append(abs(measured / limit - 1))
        figures |= {f"σ = {setting:g}": measured, f"σ = {setting:g} by the formula": limit}
    return figures | {"largest relative error": max(errors)}


def impulse_rank(n: int) -> dict[str, float]:
    """Return stable ranks of the impulse for n/4, n/2 and n samples, with n features."""
    ranks = {k: stable_rank(Impulse(n)(even_axis(k))) for k in (n // 4, n // 2, n)}
    figures = {f"stable rank of {k} samples": rank for k, rank in ranks.items()}
    return figures | {"largest error": max(abs(rank - k) for k, rank in ranks.items())}


def sine_rank(n: int) -> dict[str, float]:
    """Return ranks of the sine at three frequencies."""
    ranks = {f: numerical_rank(Sine(n, f)(even_axis(n))) for f in (1.0, 3.0, 7.3)}
    figures: dict[str, float] = {f"rank at frequency {f:g}": rank for f, rank in ranks.items()}
    return figures | {"largest rank": max(ranks.values())}


def gaussian_is_rff(n: int) -> dict[str, float]:
    """Compare the Gaussian with RFF at the scale of the formula and at the printed scale."""
    width = 0.01
    gaussian = stable_rank(Gaussian(n, width)(even_axis(n)))
    figures = {"rank of the Gaussian at σ_g = 0.01": gaussian}
    for name, scale in (("formula", MATCH / width), ("printed example", 0.1)):
        rank = stable_rank(RandomFourier(64 * n, scale)(even_axis(n)))
        figures[f"σ_f of the {name}"] = scale
        figures[f"rank of RFF by the {name}"] = rank
        figures[f"relative error of the {name}"] = abs(rank / gaussian - 1)
    return figures


def less_volatile(n: int) -> dict[str, float]:
    """Compare stable ranks of the Gaussian and of RFF over 8 draws, relative to the limit, by K.

    A Gaussian is not drawn. Both have a choice left, where the features lie: the rank of the
    Gaussian varies over 8 shifts of the positions by a part of the spacing of its features.
    """
    width, figures, advantage = 0.02, dict[str, float](), list[float]()
    ratios = list[float]()
    limit = Gaussian(n, width).rank_limit
    for k in (32, 64, 128, 256):
        shifts = [
            stable_rank(Gaussian(k, width)(even_axis(n) + shift / k)) / limit
            for shift in np.arange(8) / 8
        ]
        draws = [
            stable_rank(RandomFourier(k, MATCH / width, seed)(even_axis(n))) / limit
            for seed in range(8)
        ]
        gaussian, mean = shifts[0], float(np.mean(draws))
        figures[f"K = {k}: Gaussian"] = gaussian
        figures[f"K = {k}: Gaussian, standard deviation over shifts"] = float(np.std(shifts))
        figures[f"K = {k}: RFF, mean"] = mean
        figures[f"K = {k}: RFF, standard deviation over draws"] = float(np.std(draws))
        ratios.append(float(np.std(draws) / np.std(shifts)))
        if k > 32:
            advantage.append(abs(mean - 1) - abs(gaussian - 1))
    return figures | {
        "least advantage of the Gaussian from K = 64": min(advantage),
        "least ratio of the standard deviations, RFF over Gaussian": min(ratios),
    }


# Similarity and distance
# --------------------------------------------------------------------------------------------------


def gaussian_similarity(n: int) -> dict[str, float]:
    """Compare inner products of Gaussian features with exp(−d²/4σ²)."""
    width, d = 0.03, np.linspace(0.0, 0.1, 11)
    inner = _inner_products(Gaussian(n, width), d)
    return {"largest error": float(np.abs(inner - np.exp(-(d**2) / (4 * width**2))).max())}


def triangle_similarity(n: int) -> dict[str, float]:
    """Compare inner products of triangles with the printed square and with a cubic B-spline."""
    emb, d = Triangle(n, 0.2), np.linspace(0.0, 0.2, 21)
    inner = _inner_products(emb, d)
    printed = np.maximum(1 - d / 0.2, 0) ** 2
    spline = np.asarray(emb.similarity(d)) / float(emb.similarity(np.array([0.0]))[0])
    return {
        "largest error of the printed square": float(np.abs(inner - printed).max()),
        "largest error of a cubic B-spline": float(np.abs(inner - spline).max()),
    }


def _inner_products(emb: Embedder, d: Array) -> Array:
    """Return inner products of features at distances d about 0.5, relative to that at 0."""
    rows = emb(np.concatenate([0.5 - d / 2, 0.5 + d / 2]))  # (2 N, K)
    inner = (rows[: len(d)] * rows[len(d) :]).sum(axis=1)
    return np.asarray(inner / inner[0])


def square_like_sine(n: int) -> dict[str, float]:
    """Compare stable rank and distance preservation of the square wave and the sine."""
    square, sine = (stable_rank(kind(n, 1.0)(even_axis(n))) for kind in (Square, Sine))
    return {
        "stable rank of the square": square,
        "stable rank of the sine": sine,
        "difference of the ranks": abs(square - sine),
        "distance preservation of the square": distance_preservation(Square(n, 0.5)),
        "distance preservation of the sine": distance_preservation(Sine(n, 0.5)),
    }


def square_similarity(n: int) -> dict[str, float]:
    """Compare the similarity of the square wave with 1 − 2d, at two periods."""
    d = np.linspace(0.0, 0.5, 11)
    figures = dict[str, float]()
    for name, frequency in (("period 2", 0.5), ("the printed period 2π", 1 / (2 * math.pi))):
        similarity = np.asarray(Square(n, frequency).similarity(d))
        error = np.abs(similarity / similarity[0] - (1 - 2 * d)).max()
        figures[f"largest error with {name}"] = float(error)
    return figures


def trade_off(n: int) -> dict[str, float]:
    """Return stable rank and distance preservation of Gaussians from narrow to wide."""
    widths = (0.003, 0.01, 0.03, 0.1)
    ranks = [stable_rank(Gaussian(n, width)(even_axis(n))) for width in widths]
    kept = [distance_preservation(Gaussian(n, width)) for width in widths]
    figures = dict[str, float]()
    for width, rank, distance in zip(widths, ranks, kept, strict=True):
        figures |= {
            f"σ = {width:g}: stable rank": rank,
            f"σ = {width:g}: distance preservation": distance,
        }
    return figures | {
        "largest step of the rank": max(b - a for a, b in itertools.pairwise(ranks)),
        "least step of distance preservation": min(b - a for a, b in itertools.pairwise(kept)),
    }


# Encodings of more dimensions
# --------------------------------------------------------------------------------------------------


def simple_rank(n: int) -> dict[str, float]:
    """Fit a random picture on simple encodings and return the ranks of the fits."""
    side = 32
    points = _grid(side, side)
    picture = np.random.default_rng(0).standard_normal(side**2)

    def rank(encoding: Concatenated) -> int:
        Psi = np.concatenate([np.asarray(encoding(points)), np.ones((side**2, 1))], axis=1)
        fitted: Array = Psi @ np.linalg.lstsq(Psi, picture, rcond=None)[0]
        tolerance = 1e-8 * np.abs(fitted).max() * side
        return int(np.linalg.matrix_rank(fitted.reshape(side, side), tol=tolerance))

    emb = Gaussian(16, 0.05)
    return {
        "rank with features of x and y": rank(Concatenated(emb, emb)),
        "rank with diagonals as Tri and Gau": rank(Concatenated.with_diagonals(emb, 2)),
        "rank with RFF of two dimensions": rank(Concatenated(RandomFourier(32, 4.0, 0, 2))),
    }


def product_rank(n: int) -> dict[str, float]:
    """Compare the rank of a Kronecker product with the product of the ranks."""
    first, second = Gaussian(12, 0.05), Sine(10, 2.0)
    ranks = numerical_rank(first(even_axis(12))), numerical_rank(second(even_axis(10)))
    return {
        "rank of the first": ranks[0],
        "rank of the second": ranks[1],
        "product of the ranks": ranks[0] * ranks[1],
        "rank of the product": numerical_rank(Kronecker(first, second)(_grid(12, 10))),
    }


def _grid(*sizes: int) -> Array:
    """Return the points of a grid on the unit square, (N, 2)."""
    axes = np.meshgrid(*(even_axis(size) for size in sizes), indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, len(sizes))


def blending_curvature(n: int) -> dict[str, float]:
    """Return the largest distance of α₀ from 1 − β, at the settings of Table 2.

    Weights are by least squares. Those by similarity, and the errors of the features blended by
    least squares, by similarity and linearly, are given beside them.
    """
    beta, nodes = np.linspace(0.0, 1.0, 41), np.arange(257) / 256
    points = (nodes[128] + beta / 256)[:, None]
    figures, distances = dict[str, float](), list[float]()
    for method in load_spec("table2").select("complex"):
        emb = embedder(method.encoder, 256, method.setting)
        for kind in WEIGHTS[:2]:
            alpha = np.asarray(blending_weights(emb, beta, 1 / 256, weights=kind)[0])
            distance = float(np.abs(alpha - (1 - beta)).max())
            figures[f"{method.encoder}: distance from linear, {kind}"] = distance
            if kind == WEIGHTS[0]:
                distances.append(distance)
        for kind in WEIGHTS:
            error = Blending(Kronecker(emb), [nodes], weights=kind).error(points)
            figures[f"{method.encoder}: largest error of features, {kind}"] = float(error.max())
    return figures | {"largest distance from linear": max(distances)}


def random_positions(n: int) -> dict[str, float]:
    """Count singular values above 1e-6 of the largest, on a grid and at random positions."""
    count = 256
    grid, scattered = even_axis(count), np.sort(np.random.default_rng(0).random(count))
    figures, part, kept = dict[str, float](), list[float](), list[float]()
    for method in load_spec("table1").select("complex"):
        emb = embedder(method.encoder, count, method.setting)
        on_grid, at_random = (numerical_rank(emb(x), 1e-6) for x in (grid, scattered))
        figures |= {
            f"{method.encoder} on a grid": on_grid,
            f"{method.encoder} at random": at_random,
        }
        if method.encoder in ("LinF", "LogF", "RFF"):
            part.append(on_grid / count)
            kept.append(at_random / on_grid)
    return figures | {
        "N": count,
        "largest Fourier part on a grid": max(part),
        "largest Fourier ratio of random to grid": max(kept),
    }
