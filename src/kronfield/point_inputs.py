"""What `fit_points` is given, checked and put in order: points, planar values, weights, the box they lie in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronfield._arrays import describe, problem, real_numbers
from kronfield.embedders import Embedder, LocalEmbedder
from kronfield.encoding import Kronecker
from kronfield.inputs import check_length, checked_domain, checked_encoding, number_array
from kronfield.solvers.banded import Matrix
from kronfield.solvers.separable import Frame

# Weights and values from 2 to minus this to 2 to this are computed with as they are; others are scaled first.
MODERATE = 40


class PointInput:
    """Checked points (P, D), planar values (C, P) and weights (P,) or None; points whose value is missing are dropped.

    The weights given are ``weights`` times 2 to the ``weight_exponent``.
    """

    def __init__(self, points: Any, values: Any, weights: Any, domain: Any, encoding: Any) -> None:
        X = real_numbers("points", points)
        if X.ndim != 2 or X.shape[1] < 1:
            raise problem("points", describe(X), "shape (P, D)", "One row per point: for a line pass x[:, None].")
        if not len(X):
            raise problem("points", describe(X), "at least one point", "Pass (P, D) positions.")
        y, missing = _checked_values(values, len(X))
        w = _checked_weights(weights, len(X))
        self.dropped = int(missing.sum())
        if self.dropped:
            X, y, w = X[~missing], y[~missing], None if w is None else w[~missing]
        if not len(X) or (w is not None and not np.any(w)):
            got = f"{self.dropped} missing of {self.dropped + len(X)}" + (", no weight above 0" if len(X) else "")
            raise problem("values", got, "one at least that counts", "NaN is missing; points of weight 0 do not count.")
        self.points, self.D = X, X.shape[1]
        self.weights, self.weight_exponent = scaled_weights(w)
        self.channels = y.ndim == 2
        self.is_complex = np.issubdtype(y.dtype, np.complexfloating)
        small = np.result_type(y.dtype, np.float16).itemsize <= (8 if self.is_complex else 4)
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if small else np.float64)
        columns = y if self.channels else y[:, None]
        if self.is_complex:  # a complex channel is two real ones
            columns = np.stack([columns.real, columns.imag], axis=-1).reshape(len(y), -1)
        self.values = np.ascontiguousarray(columns.T, dtype=self.dtype)  # (C, P)
        if not np.all(np.isfinite(self.values)):
            raise problem("values", f"inf among {describe(y)}", "finite numbers, or NaN where one is missing", "Drop them.")
        self.box = bounding_box(X)
        for low, high in self.box:
            check_length("points", low, high)
        self.domain = None if domain is None else checked_domain(domain, self.D)
        if self.domain is not None:
            check_inside(X, self.domain)
        self.encoding = checked_encoding(encoding, self.D)

    def frames(self) -> tuple[Frame, ...]:
        """Return where the axes of the given encoding lie."""
        assert self.encoding is not None
        return frames_for(self.encoding, self.domain, self.box)


def frames_for(encoding: Kronecker, domain: Any, box: list[tuple[float, float]]) -> tuple[Frame, ...]:
    """Return the frames of an encoding on a domain; without one, the first and last centre lie at the ends of the box."""
    if domain is not None:
        return tuple(Frame(low, high - low, low, high) for low, high in domain)
    return tuple(_frame(emb, low, high) for emb, (low, high) in zip(encoding.embedders, box, strict=True))


def _frame(embedder: Embedder, low: float, high: float) -> Frame:
    if not isinstance(embedder, LocalEmbedder):
        return Frame(low, high - low, low, high)
    inside = round(1 / embedder.spacing)
    return Frame(low, (high - low) * inside / max(inside - 1, 1), low, high)


def bounding_box(points: Matrix) -> list[tuple[float, float]]:
    """Return (low, high) on each axis; an axis on which all points agree gets half a unit to either side."""
    box = []
    for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True):
        wide = high > low and math.isfinite(high - low) and high - low > 1e-12 * max(abs(low), abs(high))
        box.append((float(low), float(high)) if wide else (float(low) - 0.5, float(low) + 0.5))
    return box


def check_inside(points: Matrix, domain: list[tuple[float, float]]) -> None:
    """Refuse points outside of the domain."""
    for axis, (low, high) in enumerate(domain):
        x = points[:, axis]
        outside = int(np.sum((x < low) | (x > high)))
        if outside:
            raise problem(
                "points", f"{outside} of {len(x)} outside on axis {axis}, from {x.min():g} to {x.max():g}",
                f"all in the domain, {low:g} to {high:g}", "Widen the domain, or drop those points.",
            )  # fmt: skip


def _checked_values(values: Any, P: int) -> tuple[Matrix, Matrix]:
    """Return values (P,) or (P, C) and which rows have one missing."""
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    y = number_array("values", np.ma.getdata(values) if masked is not None else values)
    if y.ndim not in (1, 2) or len(y) != P or 0 in y.shape[1:]:
        raise problem(
            "values", describe(y), f"shape ({P},) or ({P}, C), one row per point", "Points and values go together."
        )
    missing = np.zeros(y.shape, dtype=bool) if masked is None else masked.copy()
    if np.issubdtype(y.dtype, np.inexact):
        missing |= np.isnan(y)
    return y, np.asarray(missing if y.ndim == 1 else missing.any(axis=1))


def scaled_weights(weights: Matrix | None) -> tuple[Matrix | None, int]:
    """Return weights divided by a power of 2, and its exponent: 0, unless float32 could not hold their products."""
    if weights is None:
        return None, 0
    exponent = exponent_beyond(float(weights.max()))
    return (np.ldexp(weights, -exponent) if exponent else weights), exponent


def exponent_beyond(size: float) -> int:
    """Return the exponent of 2 that brings a positive size to about 1; 0 if it is moderate as it is."""
    exponent = math.frexp(size)[1]
    return exponent if abs(exponent) > MODERATE else 0


def _checked_weights(weights: Any, P: int) -> Matrix | None:
    if weights is None:
        return None
    w = real_numbers("weights", weights)
    if w.shape != (P,):
        raise problem("weights", describe(w), f"shape ({P},)", "One for each point.")
    if np.any(w < 0):
        got = f"{int(np.sum(w < 0))} below 0, the least {float(w.min()):g}"
        raise problem("weights", got, "zero or more", "A point counts by its weight, 1 over variance.")
    return w
