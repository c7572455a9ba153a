"""`Statistics`: a summary of fixed size of any number of points, from which fields are solved."""

from __future__ import annotations

import copy
import functools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kronfield._core.arrays import Array, describe, problem
from kronfield._core.frames import Frame
from kronfield._core.records import record
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Encoding, Kronecker
from kronfield.field import Field, storage
from kronfield.fitting.inputs import (
    PointInput,
    checked_domain,
    checked_encoding,
    exponent_beyond,
    frames_for,
)
from kronfield.fitting.options import PointOptions, checked_loss, checked_settings
from kronfield.fitting.periods import (
    Periods,
    check_domain,
    checked_periods,
    closed_frames,
    periodic_encoding,
)
from kronfield.fitting.point_grids import mean_distances
from kronfield.fitting.point_search import GcvWalk
from kronfield.fitting.points import scaled_ridge
from kronfield.fitting.report import PointReport, choose_lowest
from kronfield.fitting.settings import Settings
from kronfield.fitting.wrap_up import wrap_up
from kronfield.solvers.points.assemble import CHUNK, RowRule, add_values
from kronfield.solvers.points.normal import NormalEquations, Penalty, Solution
from kronfield.solvers.points.stencil import Stencil
from kronfield.solvers.points.systems import mean_gram

# Upper limit for the numbers in a summary (32 GiB): larger summaries are input mistakes.
LARGEST = 1 << 32


class Statistics:
    """A summary of any number of points that is sufficient to fit them.

    It holds B'WB as a stencil, B'Wy, the sum of w y^2, and counts. Its size depends only on the
    grid. Points are added in chunks and can be removed again. The summaries of parts of the data
    add up to the summary of all data. One summary serves every penalty.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> rng = np.random.default_rng(0)
    >>> seen = kf.Statistics(kf.Triangle(32, 2 / 32), domain=[(0, 1), (0, 1)])
    >>> for _ in range(10):
    ...     points = rng.random((1000, 2))
    ...     seen.add(points, points[:, 0] * points[:, 1])
    >>> seen.count
    10000
    >>> seen.solve(roughness=(0.0, 1e-8))(np.array([[0.5, 0.5]])).round(3)
    array([0.25])

    Parameters
    ----------
    encoding : Kronecker or Embedder
        The features; a single embedder is used on every axis of the domain.
    domain : sequence of D pairs (low, high)
        The box that contains all points, and the unit interval of the embedders.
    rows : "exact", "blending", "similarity" or "linear", optional
        As in `fit_points`. Linear blending does not depend on the embedders, so one summary serves
        every encoding: see ``solve``.
    periodic : sequence of D floats or None, optional
        The period of each axis, as in `fit_points`; the domain is one period long there.
    settings : kronfield.fitting.settings.Settings, optional
        Settings for experiments, to be used instead of `kronfield.fitting.settings.DEFAULT`, also
        by `solve`. They are not saved.
    """

    def __init__(
        self,
        encoding: Kronecker | Embedder,
        domain: Sequence[Sequence[float]],
        *,
        rows: str | None = None,
        periodic: Any = None,
        settings: Settings | None = None,
    ) -> None:
        dimensions = encoding.dimensions if isinstance(encoding, Kronecker) else _length(domain)
        checked = checked_encoding(encoding, dimensions)
        if checked is None:
            raise problem(
                "encoding", None, "a Kronecker encoding or an embedder", "Pass the features to use."
            )
        self._periods = checked_periods(periodic, dimensions)
        box = [
            pair if period is None else check_domain(pair, period)
            for pair, period in zip(checked_domain(domain, dimensions), self._periods, strict=True)
        ]
        checked = periodic_encoding(checked, self._periods)
        assert checked is not None
        frames = closed_frames(frames_for(checked, box, box), box, self._periods)
        self._place(checked, frames, rows, checked_settings(settings))

    @classmethod
    def on_frames(
        cls,
        encoding: Kronecker,
        frames: Sequence[Frame],
        rows: str | None,
        periods: Periods,
        settings: Settings,
    ) -> Statistics:
        """Return a summary without points, whose axes lie as the frames say."""
        new = cls.__new__(cls)
        new._periods = periods
        new._place(encoding, tuple(frames), rows, settings)
        return new

    def _place(
        self, encoding: Kronecker, frames: tuple[Frame, ...], rows: str | None, settings: Settings
    ) -> None:
        """Set the features and where they lie; there are no points yet."""
        limits = settings.points.row_limits
        self._rule = RowRule.choose(encoding, frames, rows, limits=limits)
        # the kind that was chosen, so that a file can be read whatever the settings
        self._rows = rows or ("exact" if self._rule.blending is None else "blending")
        self._settings = settings
        offsets = (math.prod(2 * t - 1 for t in self._rule.taps) + 1) // 2
        if offsets * math.prod(self._rule.shape) > LARGEST:
            raise problem(
                "encoding",
                f"{self._rule.shape} features, each with {offsets} sums to be held",
                f"at most {LARGEST} sums in all",
                "Use fewer or narrower features.",
            )
        self._stencil = Stencil(self._rule.shape, self._rule.taps, self._rule.wraps)
        self._grams = [np.zeros(t) for t in self._rule.taps]
        self._rhs = np.zeros((0, *self._rule.shape))
        self._energy = np.zeros(0)
        # whether values have channels, and whether they are complex
        self._kind: tuple[bool, bool] | None = None
        self._single = True
        self.count, self.dropped, self.total = 0, 0, 0.0

    @classmethod
    def from_dask(
        cls,
        points: Any,
        values: Any,
        encoding: Kronecker | Embedder,
        domain: Sequence[Sequence[float]],
        *,
        weights: Any = None,
        rows: str | None = None,
        periodic: Any = None,
        settings: Settings | None = None,
    ) -> Statistics:
        """Return the summary of points (P, D) and values that are arrays or tables of Dask.

        Each partition is summarised where it is, and the summaries are added up. Other arguments
        are those of `Statistics` and of `add`.

        Examples
        --------
        >>> import dask.array
        >>> import kronfield as kf
        >>> points = dask.array.random.default_rng(0).random((10_000, 2), chunks=(2500, 2))
        >>> hats = kf.Triangle(16, 2 / 16)
        >>> seen = kf.Statistics.from_dask(points, points[:, 0], hats, [(0, 1.1), (0, 1.1)])
        >>> seen.count
        10000
        """
        from kronfield.lazy.scattered import statistics_from

        return statistics_from(
            points,
            values,
            encoding,
            domain,
            weights=weights,
            rows=rows,
            periodic=periodic,
            settings=settings,
        )

    def copy(self) -> Statistics:
        """Return a copy, to which points are added without changing this summary."""
        return copy.deepcopy(self)

    @property
    def encoding(self) -> Kronecker:
        """The features."""
        return self._rule.encoding

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        """The domain: (low, high) on each axis."""
        return tuple((frame.low, frame.high) for frame in self._rule.frames)

    def add(self, points: Any, values: Any, weights: Any = None) -> None:
        """Add points (P, D) with values (P,) or (P, C).

        Points with a missing value are dropped and counted in ``dropped``.
        """
        self._change(points, values, weights, 1)

    def remove(self, points: Any, values: Any, weights: Any = None) -> None:
        """Remove points that were added before."""
        self._change(points, values, weights, -1)

    @with_one_blas_thread
    def _change(self, points: Any, values: Any, weights: Any, sign: int) -> None:
        new = PointInput(points, values, weights, list(self.domain), None, periodic=self._periods)
        if len(self.domain) != new.D:
            raise problem(
                "points",
                f"{new.D} columns",
                f"{len(self.domain)}, one per axis of the domain",
                "Pass positions of shape (P, D).",
            )
        kind = (new.channels, new.is_complex)
        if self._kind not in (None, kind) or (self._kind and len(new.values) != len(self._energy)):
            raise problem(
                "values",
                describe(values),
                f"{len(self._energy)} channels of the same kind",
                "All values of one summary need the same channels and must all be real or complex.",
            )
        if sign < 0 and len(new.points) > self.count:
            raise problem(
                "points",
                f"{len(new.points)} to remove",
                f"at most {self.count}",
                "Remove only points that were added.",
            )
        self._check_range(new)  # before anything is changed
        if self._kind is None:
            self._kind = kind
            self._rhs, self._energy = (
                np.zeros((len(new.values), *self._rule.shape)),
                np.zeros(len(new.values)),
            )
        self._single = self._single and new.dtype == np.float32
        for start in range(0, len(new.points), CHUNK):
            part = slice(start, start + CHUNK)
            y = new.values[:, part].astype(np.float64)
            w = (
                np.ones(y.shape[1])
                if new.weights is None
                else np.ldexp(new.weights[part], new.weight_exponent)
            )
            runs = self._rule.runs(new.points[part])
            signed = None if sign > 0 and new.weights is None else sign * w
            self._stencil.add(runs, signed)
            add_values(self._rhs, runs, self._rule.shape, y if signed is None else y * signed)
            for gram, run in zip(self._grams, runs, strict=True):
                gram += mean_gram(run, signed)
            self._energy += sign * np.sum(w * y**2, axis=1)
            self.total += sign * float(w.sum())
        self.count += sign * len(new.points)
        self.dropped += sign * new.dropped

    @staticmethod
    def _check_range(new: PointInput) -> None:
        """Raise an error if weight times squared value could overflow or underflow in float64."""
        largest, weight = float(np.abs(new.values).max()), 1.0
        if new.weights is not None:
            with np.errstate(over="ignore", under="ignore"):
                weight = float(np.ldexp(new.weights.max(), new.weight_exponent))
        energy = weight * largest * largest * len(new.points)
        if largest and not 1e-304 < energy < 1e304:
            raise problem(
                "weights",
                f"up to {weight:g}, for values up to {largest:g}",
                "weights whose products with squared values lie between 1e-304 and 1e304",
                "Scale weights or values.",
            )

    # Sums
    # ------------------------------------------------------------------------------------------

    def __add__(self, other: Statistics) -> Statistics:
        return self._combine(other, 1)

    def __sub__(self, other: Statistics) -> Statistics:
        return self._combine(other, -1)

    def _combine(self, other: Statistics, sign: int) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if not self._goes_with(other):
            raise problem(
                "statistics",
                "two summaries of different grids or values",
                "one encoding, one domain and one kind of values",
                "Create both with the same encoding, domain and rows.",
            )
        if sign < 0 and other.count > self.count:
            raise problem(
                "statistics",
                f"{other.count} points to remove",
                f"at most {self.count}",
                "Remove only points that were added.",
            )
        result = self.on_frames(
            self.encoding, self._rule.frames, self._rows, self._periods, self._settings
        )
        result._kind = self._kind or other._kind
        result._single = self._single and other._single
        result._stencil = self._stencil.combine(other._stencil, sign)
        result._grams = [a + sign * b for a, b in zip(self._grams, other._grams, strict=True)]
        result._rhs = _sum(self._rhs, other._rhs, sign)
        result._energy = _sum(self._energy, other._energy, sign)
        result.count = self.count + sign * other.count
        result.dropped, result.total = (
            self.dropped + sign * other.dropped,
            self.total + sign * other.total,
        )
        return result

    def _goes_with(self, other: Statistics) -> bool:
        """Return whether two summaries can be added.

        They need the same grid and, if both have values, the same channels, all real or all
        complex.
        """
        grids = [(one.encoding, one._rule.frames, one._rule.name) for one in (self, other)]
        kinds = [(one._kind, len(one._energy)) for one in (self, other) if one._kind is not None]
        return grids[0] == grids[1] and len(set(kinds)) <= 1

    def __repr__(self) -> str:
        return f"Statistics({self.count} points, {self.encoding!r}, {self._rule.name})"

    # Solving
    # ------------------------------------------------------------------------------------------

    @with_one_blas_thread
    def solve(
        self,
        *,
        ridge: float | None = None,
        roughness: tuple[float, float] | None = None,
        units: Sequence[float] | None = None,
        encoding: Kronecker | Embedder | None = None,
        tolerance: float | None = None,
        iterations: int | None = None,
        seed: int = 0,
        progress: Callable[[int, float], Any] | None = None,
        settings: Settings | None = None,
        loss: str = "squared",
    ) -> Field:
        """Return the field that fits all points seen so far.

        Parameters
        ----------
        ridge, roughness, units, tolerance, iterations, progress
            As in `fit_points`. Without a penalty, it is chosen by generalised cross-validation
            (Craven and Wahba, 1979) with a stochastic trace (Hutchinson, 1990).
        encoding : Kronecker or Embedder, optional
            Other features on the same nodes. Only possible for statistics with linear blending,
            which do not depend on the features.
        seed : int
            Seed of the random probes for the trace.
        settings : kronfield.fitting.settings.Settings, optional
            Settings for experiments, by default those of the summary.
        loss : "squared"
            Points that were added cannot be weighted again, so that "huber" raises an error. Weight
            them in a second pass over the data: see the page "Fitting scattered points".
        """
        if checked_loss(loss) != "squared":
            raise problem(
                "loss",
                repr(loss),
                '"squared" for a summary, whose points cannot be weighted again',
                "Read the data a second time and add them to new statistics with the weights "
                "min(1, 1.345 s / |value - field(point)|), s the median of |value - field(point)| "
                "/ 0.6745; or use fit_points.",
            )
        started = time.perf_counter()
        options = PointOptions.checked(
            len(self.domain),
            ridge=ridge,
            roughness=roughness,
            units=units,
            tolerance=tolerance,
            iterations=iterations,
            seed=seed,
            progress=progress,
            settings=self._settings if settings is None else settings,
        )
        if self.count < 1 or self._kind is None or not self.total > 0:
            raise problem("statistics", f"{self.count} points", "at least one", "Add points first.")
        heavy, large = self._exponents()
        equations = self._equations(encoding, heavy, large)
        chosen_by, candidates = "given", []
        penalty = options.penalty
        if penalty is None:
            lengths = options.units or mean_distances(self.domain, self.count)
            walk = GcvWalk(equations, lengths, options).run()
            penalty, candidates = walk.penalty, choose_lowest(walk.candidates())
            chosen_by = "generalised cross-validation"
        else:  # the ridge is scaled like the weights of the points
            penalty = replace(penalty, ridge=scaled_ridge(penalty.ridge, -heavy))
        solution = equations.solve(
            penalty,
            tolerance=options.tolerance or options.settings.points.tolerance,
            limit=options.iterations,
            progress=options.progress,
        )
        dtype = np.dtype(np.float32 if self._single else np.float64)
        with np.errstate(over="ignore"):  # wrap_up checks for overflow
            planes = np.ldexp(solution.weights.astype(np.float64), large).astype(dtype)
        report = PointReport(
            points=self.count,
            dropped=self.dropped,
            channels=len(self._energy) // (2 if self._kind[1] else 1),
            embedders=equations.encoding.embedders,
            rows=self._rule.name,
            method=solution.method,
            reason=solution.reason,
            convergence=solution.convergence,
            penalty=replace(penalty, ridge=scaled_ridge(penalty.ridge, heavy)),
            chosen_by=chosen_by,
            candidates=candidates,
            seconds=time.perf_counter() - started,
            measure_residual=_Known(_root_mean(equations, solution, penalty, large)),
            measure_freedom=functools.partial(
                equations.degrees_of_freedom, penalty, options.iterations
            ),
        )
        nodes = [
            np.linspace(frame.low, frame.high, max(2, emb.size))
            for emb, frame in zip(equations.encoding.embedders, equations.frames, strict=True)
        ]
        return wrap_up(
            equations.encoding,
            planes,
            equations.frames,
            nodes,
            channels=self._kind[0],
            is_complex=self._kind[1],
            dtype=dtype,
            report=report,
        )

    def _exponents(self) -> tuple[int, int]:
        """Return exponents of 2 by which to scale weights and values, to avoid float32 overflow."""
        heavy = exponent_beyond(self.total / self.count)
        mean_square = float(self._energy.max(initial=0.0)) / self.total
        return heavy, exponent_beyond(math.sqrt(mean_square)) if mean_square > 0 else 0

    def _equations(
        self, encoding: Kronecker | Embedder | None, heavy: int, large: int
    ) -> NormalEquations:
        """Return the equations for values divided by 2^large and weights divided by 2^heavy."""
        used, frames = self.encoding, self._rule.frames
        if encoding is not None:
            if self._rule.blending is None or not self._rule.blending.linear:
                raise problem(
                    "encoding",
                    describe(encoding),
                    "no encoding",
                    'To change the encoding, create the statistics with rows="linear".',
                )
            used = checked_encoding(encoding, len(self.domain)) or used
            used = periodic_encoding(used, self._periods) or used
            box = list(self.domain)
            frames = closed_frames(frames_for(used, self.domain, box), box, self._periods)
        dtype = np.float32 if self._single else np.float64
        line = len(self._rule.shape) == 1 or self._rule.blending is not None
        stencil = self._stencil.scaled(-heavy) if heavy else self._stencil
        term = stencil if line else stencil.astype(dtype)
        rhs = np.ldexp(self._rhs, -heavy - large).astype(np.float64 if line else dtype)
        energy = np.ldexp(self._energy, -heavy - 2 * large)
        grams = [np.ldexp(gram, -heavy) for gram in self._grams]
        total = math.ldexp(self.total, -heavy)
        return NormalEquations(
            encoding=used,
            frames=frames,
            term=term,
            rhs=rhs,
            energy=energy,
            total=total,
            count=self.count,
            grams=grams,
            nodes=self._rule.nodes,
        )

    def _by_least_squares(self) -> bool:
        """Return whether points are blended by least squares, unlike blending by similarity."""
        blending = self._rule.blending
        return (
            blending is not None
            and blending.weights == "least-squares"
            and not all(emb.similarity_is_inner_product for emb in self.encoding.embedders)
        )

    # Saving
    # ------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file, completely or not at all."""
        offsets = sorted(self._stencil.planes)
        metadata: dict[str, Any] = {
            "kind": "statistics",
            "encoding": self.encoding.to_dict(),
            "domain": [list(pair) for pair in self.domain],
            "rows": self._rows,
            "blending": None if self._rule.blending is None else self._rule.blending.weights,
            "values": None if self._kind is None else list(self._kind),
            "single": self._single,
            "count": self.count,
            "dropped": self.dropped,
            "total": self.total,
        }
        if any(self._periods):
            metadata["periodic"] = list(self._periods)
        arrays = {
            "stencil": np.stack([self._stencil.planes[offset] for offset in offsets]),
            "rhs": self._rhs,
            "energy": self._energy,
            **{f"gram{i}": gram for i, gram in enumerate(self._grams)},
        }
        storage.write(path, arrays, metadata)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Self:
        """Return statistics from a file that `save` wrote; no code in the file is run.

        ``functions`` maps names to the functions of `ShiftedBasis` embedders.
        """
        arrays, metadata = storage.read(path)
        if metadata.get("kind") != "statistics":
            raise problem("path", path, "saved statistics", "Load a field with kf.load.")
        with storage.restoring(path, "saved statistics"):
            result = cls._empty(metadata, functions)
            offsets = sorted(result._stencil.planes)
            stencil = arrays["stencil"]
            result._rhs, result._energy = arrays["rhs"], arrays["energy"]
            result._grams = [arrays[f"gram{i}"] for i in range(len(offsets[0]))]
            kind = metadata["values"]
            result._kind = None if kind is None else (bool(kind[0]), bool(kind[1]))
            result._single = bool(metadata["single"])
            result.count, result.dropped = int(metadata["count"]), int(metadata["dropped"])
            result.total = float(metadata["total"])
            shape = result._rule.shape
            consistent = (
                stencil.shape == (len(offsets), *shape)
                and result._rhs.shape == (len(result._energy), *shape)
                and [g.shape for g in result._grams] == [(t,) for t in result._rule.taps]
                and all(a.dtype == np.float64 and np.all(np.isfinite(a)) for a in arrays.values())
                and 0 <= result.count <= _MOST_POINTS
                and 0 <= result.total < math.inf
            )
        if not consistent:
            raise storage.misfit(path, "saved statistics")
        result._stencil.planes = dict(zip(offsets, stencil, strict=True))
        return result

    @classmethod
    def _empty(
        cls, metadata: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
    ) -> Self:
        """Return statistics without points, with the encoding of a file."""
        encoding: Any = Encoding.from_dict(metadata["encoding"], functions)
        domain, periodic = metadata["domain"], metadata.get("periodic")
        result = cls(encoding, domain, rows=metadata["rows"], periodic=periodic)
        if "blending" not in metadata and result._by_least_squares():
            # Version 0.1.0 blended by similarity.
            result = cls(encoding, domain, rows="similarity")
        return result


# A count in a file that is larger is no count of points: 2^53, up to which floats are exact.
_MOST_POINTS = 2**53


def _sum(one: Array, other: Array, sign: int) -> Array:
    """Return the sum or difference; the array of a summary without points is empty."""
    if not len(other):
        return one.copy()
    return one + sign * other if len(one) else sign * other


@record
class _Known:
    """A known number as a function without arguments."""

    value: float

    def __call__(self) -> float:
        return self.value


def _root_mean(
    equations: NormalEquations, solution: Solution, penalty: Penalty, large: int
) -> float:
    """Return the root of the weighted mean of squared residuals, times 2^large."""
    energy = float(np.mean(equations.residual_energy(solution, penalty)))
    return math.ldexp(math.sqrt(energy / equations.total), large)


def _length(domain: Any) -> int:
    try:
        return len(domain)
    except TypeError as error:
        raise problem(
            "domain", describe(domain), "pairs (low, high)", "Pass one per axis.", TypeError
        ) from error
