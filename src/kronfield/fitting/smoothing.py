"""Penalties chosen from the data: a roughness for noisy samples, a ridge for a given encoding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kronfield._core.arrays import Array
from kronfield._core.frames import EVEN, is_even, mean_step, sample_frame
from kronfield._core.threads import in_threads
from kronfield.fitting.report import Candidate
from kronfield.fitting.splines import tension_encoding
from kronfield.solvers.grid.separable import GridSolver, gcv_score

# Samples on an axis of each window by which a roughness is judged, by the number of dimensions.
JUDGED = (400, 180, 40, 20)
# Exponents of ten between which the weight of a roughness is searched, in units of a cell.
WEAKEST, STRONGEST = -6.0, 6.0
#: The tension of the splines that are smoothed, by the order of the derivative: gradients go with
#: nearly linear pieces, second derivatives with cubic ones.
TENSIONS = {1: 8.0, 2: 0.05}


@dataclass(frozen=True, eq=False)
class Smoothing:
    """A roughness penalty for each of the decorrelated channels.

    Attributes
    ----------
    rotation : (C, C) array
        Orthogonal; decorrelated channels are its product with the channels.
    order : int
        The order of the derivatives that are penalised, 1 or 2.
    weights : tuple of float
        The weight of the penalty of each decorrelated channel.
    score : float
        The mean over channels of the estimated risk, or of the cross-validation score.
    interpolation : float
        The same without a penalty.
    leading : int
        The decorrelated channel that varies most.
    units : tuple of float
        The unit of length on each axis, in which the weights are: see `cell_units`.
    sigmas : tuple of float or None
        The noise of the decorrelated channels, in the units of the values, if it is known.
    """

    rotation: Array
    order: int
    weights: tuple[float, ...]
    score: float
    interpolation: float
    leading: int = 0
    units: tuple[float, ...] = ()
    sigmas: tuple[float, ...] | None = None

    @property
    def roughness(self) -> list[tuple[float, float]]:
        """The roughness of each decorrelated channel."""
        return [(w, 0.0) if self.order == 1 else (0.0, w) for w in self.weights]

    @property
    def tension(self) -> float:
        """The tension of the splines that are smoothed."""
        return TENSIONS[self.order]

    def candidate(self) -> Candidate:
        """Return the penalty as a candidate."""
        return Candidate("roughness", {"order": self.order, "weights": self.weights}, self.score)


def best_smoothing(
    values: Array, axes: Sequence[Array], rotation: Array, sigmas: Array | None, scale: float
) -> list[Smoothing]:
    """Return the best penalty of either order for values (C, N_1, ..., N_D), scored by windows.

    Values are divided by ``scale``. With ``sigmas``, the noise of the decorrelated channels, the
    score is Stein's unbiased estimate of the risk (Stein, 1981); without, generalised
    cross-validation (Craven and Wahba, 1979).
    """
    places = windows([len(axis) for axis in axes])
    if not all(map(is_even, axes)):
        places = places[:1]  # other windows of an uneven axis have another basis
    parts = [
        np.asarray(values[(slice(None), *window)], dtype=np.float64) / scale for window in places
    ]
    planes = np.stack([np.tensordot(rotation, part, axes=1) for part in parts], axis=1)
    short = [axis[some] for axis, some in zip(axes, places[0], strict=True)]
    return in_threads(lambda order: _of_order(planes, short, rotation, sigmas, order), (1, 2))


def cell_units(axes: Sequence[Array]) -> tuple[float, ...]:
    """Return units of length in which samples are equally far apart on all axes.

    Axes may have different units, as metres and seconds: a chosen penalty must not depend on them.
    The geometric mean of the units is 1: all are 1 where samples are equally far apart.
    """
    steps = [mean_step(axis) if len(axis) > 1 else 0.0 for axis in axes]
    known = [step for step in steps if step > 0]
    mean = math.exp(sum(math.log(step) for step in known) / len(known)) if known else 1.0
    return tuple(
        1.0 if step == 0 or abs(step / mean - 1) <= EVEN else step / mean for step in steps
    )


def windows(lengths: Sequence[int]) -> list[tuple[slice, ...]]:
    """Return the parts of a grid by which a penalty is judged: the middle, and corners.

    A penalty is chosen for all samples, so that it must suit the signal wherever it is.
    """
    side = JUDGED[min(len(lengths), len(JUDGED)) - 1]
    sizes = [min(n, side) for n in lengths]
    spare = [n - size for n, size in zip(lengths, sizes, strict=True)]
    places = [tuple(left // 2 for left in spare)]
    for corner in itertools.product((0, 1), repeat=min(len(lengths), 2)):
        # of more than two axes, the others follow the last
        ends = [*corner, *[corner[-1]] * (len(lengths) - len(corner))]
        places.append(tuple(left * end for left, end in zip(spare, ends, strict=True)))
    unique = list(dict.fromkeys(places))
    return [
        tuple(slice(a, a + size) for a, size in zip(place, sizes, strict=True)) for place in unique
    ]


def _of_order(
    planes: Array, axes: Sequence[Array], rotation: Array, sigmas: Array | None, order: int
) -> Smoothing:
    units = cell_units(axes)
    axes = [axis / unit for axis, unit in zip(axes, units, strict=True)]
    frames = [sample_frame(axis) for axis in axes]
    unit = (1.0, 0.0) if order == 1 else (0.0, 1.0)
    encoding = tension_encoding(axes, frames, TENSIONS[order])
    solver = GridSolver(encoding, frames, axes, roughness=unit)
    strengths, n = solver.strengths(), math.prod(planes.shape[1:])  # planes: (C, windows, N...)
    # weights are in units of the mean cell
    cells = ((frame.high - frame.low) / len(axis) for frame, axis in zip(frames, axes, strict=True))
    scale = math.prod(cell ** (2 * order / len(axes)) for cell in cells)
    weights, scores, plain = [], [], []
    for c, plane in enumerate(planes):
        energy = np.sum(solver.coefficients(plane) ** 2, axis=0)
        count = len(plane)  # windows, which are smoothed alike
        total = float(np.sum(plane**2))

        def score(
            exponent: float,
            energy: Array = energy,
            total: float = total,
            c: int = c,
            count: int = count,
        ) -> float:
            weight = scale * 10.0**exponent
            kept = solver.filter_of(strengths, 0.0, (unit[0] * weight, unit[1] * weight))
            if sigmas is None:
                return gcv_score(energy / count, total / count, kept, planes[0, :1])
            # E |u - truth|^2 / n = |y - u|^2 / n + 2 sigma^2 trace / n - sigma^2
            residual = float(np.sum((1 - kept) ** 2 * energy)) + max(total - energy.sum(), 0.0)
            return (residual + 2 * sigmas[c] ** 2 * count * float(kept.sum())) / n - sigmas[c] ** 2

        best = minimise(score, WEAKEST, STRONGEST)
        weights.append(scale * 10.0**best)
        scores.append(score(best))
        plain.append(score(WEAKEST))
    leading = int(np.argmax(np.var(planes.reshape(len(planes), -1), axis=1)))
    lowest, interpolation = float(np.mean(scores)), float(np.mean(plain))
    known = None if sigmas is None else tuple(map(float, sigmas))
    return Smoothing(rotation, order, tuple(weights), lowest, interpolation, leading, units, known)


def best_ridge(solver: GridSolver, values: Array) -> tuple[float, list[Candidate]]:
    """Return the ridge that minimises generalised cross-validation, and every ridge tried.

    It is 0 if the score falls towards the weakest ridge.
    """
    values = np.asarray(values, dtype=np.float64)
    scaled = values / (float(np.abs(values).max()) or 1.0)
    energy = np.sum(solver.coefficients(scaled) ** 2, axis=0)
    total = float(np.sum(np.square(scaled)))
    strengths = solver.strengths()
    strongest = math.prod(float(basis.strength[0]) for basis in solver.bases) ** 2

    def score(exponent: float) -> float:
        kept = solver.filter_of(strengths, strongest * 10.0**exponent)
        return gcv_score(energy, total, kept, values)

    exponents = np.arange(-14.0, 2.5, 0.5)
    scores = np.array(in_threads(score, exponents.tolist()))
    # Features that do not overlap at the samples give every ridge the same score: choose the least.
    best = int(np.argmax(scores <= scores.min() * (1 + EVEN)))
    candidates = [
        Candidate("ridge", {"ridge": strongest * 10.0**e}, float(one), chosen=i == best)
        for i, (e, one) in enumerate(zip(exponents.tolist(), scores, strict=True))
    ]
    return (0.0 if best == 0 else strongest * 10.0 ** float(exponents[best])), candidates


def minimise(score: Callable[[float], float], low: float, high: float) -> float:
    """Return where a score is least, on a grid of exponents that is refined around the best."""
    step = 0.5
    grid = np.arange(low, high + step, step)
    best = float(grid[int(np.argmin(in_threads(score, grid.tolist())))])
    for _ in range(4):
        step /= 2
        best = min((best - step, best, best + step), key=score)
    return best
