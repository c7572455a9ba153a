"""Figures for claims about the factors of the quality of a fit: closed forms on photographs.

Each function returns named numbers; means of paired differences have an interval. The photographs
are those that ship with scikit-image; without it there are no figures. Nothing was tuned on them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.coordinates import even_axis
from kronfield._core.spectra import stable_rank
from kronfield.analysis import distance_preservation
from kronfield.embedders import Embedder, Gaussian, RandomFourier, Triangle
from kronfield.experiments.data import square
from kronfield.experiments.paired import Number, paired
from kronfield.experiments.spec import load_spec
from kronfield.experiments.tasks import Task, make_task

# Photographs inside scikit-image, colour or grey.
PHOTOGRAPHS = (
    "astronaut",
    "coffee",
    "chelsea",
    "rocket",
    "retina",
    "camera",
    "coins",
    "moon",
    "brick",
    "grass",
    "gravel",
    "hubble_deep_field",
)
# Stable ranks as fractions of the number of given samples per axis.
RANKS = (0.5, 0.35, 0.25, 0.125)
# A ridge relative to the squared largest singular value; small enough to leave well-conditioned
# fits as they are.
SMALL_RIDGE = 1e-6


@functools.lru_cache(maxsize=4)
def photographs(side: int) -> tuple[Task, ...]:
    """Return the grid task on the central part of every photograph; none without scikit-image."""
    try:
        from skimage import data
    except ImportError:
        return ()
    found = []
    for name in PHOTOGRAPHS:
        picture = np.asarray(getattr(data, name)(), dtype=np.float32) / 255
        step = max(1, min(picture.shape[:2]) // side)
        found.append(make_task(square(_shrunk(picture, step), side), "grid", 0.0, 0))
    return tuple(found)


def _shrunk(picture: Array, step: int) -> Array:
    """Return means over step x step pixels."""
    rows, columns = (n // step for n in picture.shape[:2])
    cut = picture[: rows * step, : columns * step]
    return np.asarray(cut.reshape(rows, step, columns, step, *picture.shape[2:]).mean(axis=(1, 3)))


def operator(embedder: Embedder, side: int, *, ridge: float = 0.0, unity: bool = False) -> Array:
    """Return the matrix (side, side/2) from values at every second position i/side to all values.

    Parameters
    ----------
    embedder : Embedder
        The features of one axis.
    side : int
        The number of positions.
    ridge : float
        A ridge relative to the squared largest singular value; without it, the pseudo-inverse.
    unity : bool
        Whether to divide the features of each position by their sum, so that constants are fitted
        exactly, between the samples too.
    """
    fine = np.asarray(embedder(even_axis(side)))
    if unity:
        fine = fine / fine.sum(axis=1, keepdims=True)
    U, s, Vh = np.linalg.svd(fine[::2], full_matrices=False)
    floor = np.finfo(np.float64).eps * max(fine.shape) * s[0]
    gain = np.where(s > floor, s / (s**2 + ridge * s[0] ** 2), 0.0)
    return np.asarray(fine @ (Vh.T * gain) @ U.T)


def scores(matrix: Array, tasks: Sequence[Task]) -> Array:
    """Return the PSNR of every task if the matrix is applied to both axes."""
    found = []
    for task in tasks:
        # contiguous planes: otherwise NumPy multiplies without BLAS
        planes = np.ascontiguousarray(np.moveaxis(task.coarse, -1, 0), dtype=np.float64)
        prediction = np.moveaxis(matrix @ planes @ matrix.T, 0, -1)
        error = np.clip(prediction, 0.0, 1.0) - task.values
        found.append(-10 * math.log10(float(np.mean(error[task.asked] ** 2))))
    return np.array(found)


# Stable rank and distance preservation
# --------------------------------------------------------------------------------------------------


def same_rank() -> dict[str, Number]:
    """Compare Gaussian and triangle at equal stable rank, and so nearly equal preservation.

    Then again with two repairs: features that add up to 1 at every position, and a small ridge.
    """
    side = 128
    tasks, N = photographs(side), side // 2
    if not tasks:
        return {}
    figures = dict[str, Number]()
    apart = list[float]()
    for fraction in RANKS:
        pair = matched(N, fraction)
        name = f"rank {fraction:g} N"
        figures |= _of_pair(name, pair, side)
        ranks = [stable_rank(emb(even_axis(N))) for emb in pair]
        kept = [distance_preservation(emb) for emb in pair]
        apart += [abs(ranks[0] / ranks[1] - 1), abs(kept[0] / kept[1] - 1)]
        for label, settings in REPAIRS.items():
            found = [scores(operator(emb, side, **settings), tasks) for emb in pair]
            gap = paired(found[0] - found[1], family=f"difference, {label}")
            figures[f"{name}, {label}: Gaussian minus triangle"] = gap
    worst = max(apart)
    return figures | {"largest relative difference of rank and preservation": Number(worst)}


REPAIRS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "ridge": {"ridge": SMALL_RIDGE},
    "sum 1": {"unity": True},
    "both": {"unity": True, "ridge": SMALL_RIDGE},
}


def matched(N: int, fraction: float) -> tuple[Gaussian, Triangle]:
    """Return Gaussian and triangle with N features of stable rank ``fraction`` N."""
    rank = fraction * N
    return Gaussian(N, 1 / (2 * math.sqrt(math.pi) * rank)), Triangle(N, 4 / (3 * rank))


def _of_pair(name: str, pair: Sequence[Embedder], side: int) -> dict[str, Number]:
    """Return condition numbers, and the value between the samples of a fit to the constant 1."""
    figures = dict[str, Number]()
    for kind, emb in zip(("Gaussian", "triangle"), pair, strict=True):
        s = np.linalg.svd(np.asarray(emb(even_axis(side // 2))), compute_uv=False)
        figures[f"{name}: condition of the {kind}"] = Number(float(s[0] / s[-1]))
        ones = operator(emb, side) @ np.ones(side // 2)
        between = float(ones[side // 2 + 1])
        figures[f"{name}: 1 between the samples by the {kind}"] = Number(between)
    return figures


# The choice of frequencies
# --------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def frequency_choice() -> dict[str, Number]:
    """Compare PSNR over 16 draws of RFF with the Gaussian of the same rank, by features K.

    The spread is the standard deviation over the draws on a photograph, averaged over photographs.
    The loss of PSNR at half and at twice the scale or width is measured too. All are linear models
    in closed form: on complex encodings, and on simple ones, the paper's networks of depth 0.
    """
    side, seeds = 64, 16
    tasks, N = photographs(side), side // 2
    if not tasks:
        return {}
    width = matched(N, 0.35)[0].width
    scale = 1 / (2 * math.sqrt(2) * math.pi * width)
    figures = {"draws": Number(seeds)}
    spreads = list[Array]()
    for K in (N // 2, N, 2 * N, 4 * N):
        draws = np.stack([_psnr(RandomFourier(K, scale, seed), tasks) for seed in range(seeds)])
        spreads.append(draws.std(axis=0, ddof=1))
        name = f"complex, K = {K / N:g} N"
        figures |= {
            f"{name}: spread of RFF over draws": paired(spreads[-1]),
            f"{name}: worst draw minus best": paired(np.ptp(draws, axis=0)),
            f"{name}: Gaussian minus RFF": paired(
                _psnr(Gaussian(K, width), tasks) - draws.mean(axis=0)
            ),
        }
    for kind, loss in (
        ("RFF", [_psnr(RandomFourier(2 * N, scale * f), tasks) for f in (1.0, 0.5, 2.0)]),
        ("Gaussian", [_psnr(Gaussian(2 * N, width * f), tasks) for f in (1.0, 0.5, 2.0)]),
    ):
        for name, other in (("half", loss[1]), ("twice", loss[2])):
            figures[f"complex {kind}: loss at {name} the setting"] = paired(loss[0] - other)
    simple, least, most = _simple_choice(tasks, seeds)
    figures |= simple
    for kind, few, many in (("complex", spreads[0], spreads[-1]), ("simple", least, most)):
        figures |= {
            f"{kind}: spread at the fewest features": paired(few),
            f"{kind}: spread at the fewest features minus at the most": paired(few - many),
        }
    return figures


def _simple_choice(tasks: Sequence[Task], seeds: int) -> tuple[dict[str, Number], Array, Array]:
    """Return figures as in `frequency_choice` of simple encodings, and the spreads at the ends.

    The scale is that of the paper's linear model on simple RFF, in samples.
    """
    spec = load_spec("visual-grid")
    method = spec.method("simple: RFF, depth 0")
    assert method is not None
    side = tasks[0].shape[0]
    scale, N = spec.scaled(method, spec.paper, side).setting, side // 2
    figures, spreads = dict[str, Number](), list[Array]()
    for K in (N // 2, N, 2 * N, 4 * N):
        draws = np.stack([_simple_psnr(K, scale, seed, tasks) for seed in range(seeds)])
        spreads.append(draws.std(axis=0, ddof=1))
        name = f"simple, K = {K / N:g} N"
        figures |= {
            f"{name}: spread of RFF over draws": paired(spreads[-1]),
            f"{name}: worst draw minus best": paired(np.ptp(draws, axis=0)),
        }
    losses = [
        np.mean([_simple_psnr(2 * N, scale * f, seed, tasks) for seed in range(seeds)], axis=0)
        for f in (1.0, 0.5, 2.0)
    ]
    for name, other in (("half", losses[1]), ("twice", losses[2])):
        figures[f"simple RFF: loss at {name} the setting"] = paired(losses[0] - other)
    return figures, spreads[0], spreads[-1]


def _simple_psnr(features: int, scale: float, seed: int, tasks: Sequence[Task]) -> Array:
    """Return the PSNR of linear models on simple RFF in closed form, with a constant."""
    side = tasks[0].shape[0]
    axis = even_axis(side)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = np.asarray(RandomFourier(features, scale, seed, 2)(points))
    rows = np.column_stack([rows, np.ones(len(rows))])
    U, s, Vh = np.linalg.svd(rows[~tasks[0].asked.ravel()], full_matrices=False)
    gain = s / (s**2 + SMALL_RIDGE * s[0] ** 2)
    weights = (Vh.T * gain) @ U.T
    found = []
    for task in tasks:
        known = task.coarse.reshape(-1, task.channels).astype(np.float64)
        prediction = rows @ (weights @ known)
        found.append(task.score(prediction.reshape(task.values.shape))[0])
    return np.array(found)


def _psnr(embedder: Embedder, tasks: Sequence[Task]) -> Array:
    side = tasks[0].shape[0]
    return scores(operator(embedder, side, ridge=SMALL_RIDGE), tasks)


# Bandwidth and the number of features
# --------------------------------------------------------------------------------------------------


def bandwidth(n: int = 512) -> dict[str, float]:
    """Compare sums over d features with the similarity, for d = B and d = 2 B.

    The bandwidth B is the highest frequency at which the spectrum is above 1e-3 of its peak, and
    2 B is the width of the spectrum over positive and negative frequencies.
    """
    tolerance, figures = 1e-3, dict[str, float]()
    worst = {1: 0.0, 2: 0.0}
    for name, make in (
        ("Gaussian", lambda d: Gaussian(d, 0.03)),
        ("triangle", lambda d: Triangle(d, 0.2)),
    ):
        B = make(8).bandwidth(tolerance)
        figures[f"{name}: B"] = B
        for times in (1, 2):
            features = math.ceil(times * B)
            error = _sum_error(make(features))
            figures[f"{name}: relative error of D with {times} B features"] = error
            limit = make(features).rank_limit
            rank = stable_rank(make(features)(even_axis(n)))
            figures[f"{name}: stable rank with {times} B features over its limit"] = rank / limit
            worst[times] = max(worst[times], error)
    return figures | {
        "tolerance": tolerance,
        "largest error with B features": worst[1],
        "largest error with 2 B features": worst[2],
    }


def _sum_error(emb: Any) -> float:
    """Return the largest error of (1/d) sum psi psi against D(dx), relative to D(0).

    The first position takes 9 values over one spacing of the features, near the middle of the
    domain.
    """
    dx = np.linspace(0.0, 0.1, 6)
    exact = np.asarray(emb.similarity(dx))
    errors = []
    for shift in np.linspace(0.0, 1 / emb.size, 9):
        first, second = emb(0.45 + shift + 0 * dx), emb(0.45 + shift + dx)
        errors.append(np.abs((first * second).sum(axis=1) / emb.size - exact).max() / exact[0])
    return float(max(errors))
