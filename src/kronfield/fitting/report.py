"""What a fit chose, why, and how well it did."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kronfield._core.arrays import problem
from kronfield._core.axes import SampleAxes
from kronfield._core.copies import shared_copy
from kronfield._core.frames import Frame
from kronfield._core.spectra import stable_rank
from kronfield._core.threads import one_blas_thread
from kronfield.embedders import Embedder
from kronfield.solvers.points.cg import Convergence, ConvergenceError
from kronfield.solvers.points.normal import Penalty

# Up to this many samples the stable rank of an axis is measured; beyond, theory is as good and
# costs nothing.
MEASURED_UP_TO = 1024


@dataclass(frozen=True)
class Candidate:
    """One setting that was tried, and its score: lower is better. ``chosen`` is set where the lowest need not win."""

    setting: str
    score: float
    chosen: bool = False


def taken(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that was taken: the one said to be chosen, else the one of the lowest score."""
    chosen = [one for one in candidates if one.chosen]
    return (
        chosen[0]
        if chosen
        else min(
            candidates,
            key=lambda one: math.inf if math.isnan(one.score) else one.score,
            default=None,
        )
    )


def told(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return candidates as plain data that JSON can hold."""
    best = taken(candidates)
    return [
        {"setting": one.setting, "score": one.score, "taken": one is best} for one in candidates
    ]


class FitReport:
    """What `fit` did; prints readably. What takes time to compute is computed when asked for.

    Attributes
    ----------
    samples : tuple of int
        The shape of the grid.
    channels : int
        The number of channels.
    embedders : list of Embedder
        One per axis.
    methods : list of str
        How each axis was solved: banded, dense, or in its eigenbasis.
    ranks : list of int
        The effective rank of each axis.
    ridge : float
        The ridge used.
    roughness : (float, float)
        The roughness weights used.
    chosen_by : str
        What decided; "given" if nothing was left open.
    candidates : list of Candidate
        All that was tried, with its score.
    refined : bool
        Whether slopes were taken from the data, on a lattice twice as fine; see `fit`.
    degrees_of_freedom : float
        The trace of the hat matrix, per channel.
    seconds : float
        How long the fit took.
    """

    def __init__(
        self,
        *,
        samples: tuple[int, ...],
        channels: int,
        embedders: Sequence[Embedder],
        frames: Sequence[Frame],
        axes: SampleAxes,
        methods: Sequence[str],
        ranks: Sequence[int],
        ridge: float,
        roughness: tuple[float, float],
        chosen_by: str,
        candidates: Sequence[Candidate],
        refined: bool,
        degrees_of_freedom: float,
        seconds: float,
        measure_residual: Callable[[], float],
    ) -> None:
        self.samples, self.channels = samples, channels
        self.embedders = list(embedders)
        self._frames, self._axes = tuple(frames), axes
        self.methods, self.ranks = list(methods), list(ranks)
        self.ridge, self.roughness = ridge, roughness
        self.chosen_by, self.candidates = chosen_by, list(candidates)
        self.refined, self.degrees_of_freedom, self.seconds = refined, degrees_of_freedom, seconds
        self._measure_residual: Callable[[], float] | None = measure_residual

    @functools.cached_property
    def residual(self) -> float:
        """The root mean square of value minus fit at the samples, in the units of the values."""
        assert self._measure_residual is not None
        value = self._measure_residual()
        self._measure_residual = None  # lets go of the values
        return value

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: the residual, for which the samples are needed, but not the samples."""
        return {"residual": self.residual, **self.__dict__}

    def __copy__(self) -> FitReport:
        return shared_copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> FitReport:
        return shared_copy(self, memo, shared=("_measure_residual",))

    @functools.cached_property
    def stable_ranks(self) -> list[float]:
        """The stable rank of each axis on its samples."""
        return [
            stable_rank(emb(frame.unit(x))) if len(x) <= MEASURED_UP_TO else emb.stable_rank(len(x))
            for emb, frame, x in zip(self.embedders, self._frames, self._axes, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold."""
        return {
            "samples": list(self.samples),
            "channels": self.channels,
            "embedders": [repr(emb) for emb in self.embedders],
            "methods": self.methods,
            "ranks": self.ranks,
            "stable_ranks": self.stable_ranks,
            "ridge": self.ridge,
            "roughness": list(self.roughness),
            "chosen_by": self.chosen_by,
            "candidates": told(self.candidates),
            "refined": self.refined,
            "degrees_of_freedom": self.degrees_of_freedom,
            "residual": self.residual,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        grid = " x ".join(map(str, self.samples))
        lines = [
            f"fit of {grid} samples, {self.channels} channel{'s' if self.channels > 1 else ''}"
        ]
        rows = zip(self.embedders, self.methods, self.ranks, self.stable_ranks, strict=True)
        for axis, (embedder, method, rank, stable) in enumerate(rows):
            lines.append(
                f"  axis {axis}: {embedder!r}, {method}, rank {rank}, stable rank {stable:.1f}"
            )
        lines.append(
            f"  ridge {self.ridge:.3g}, roughness ({self.roughness[0]:.3g}, {self.roughness[1]:.3g})"
        )
        lines.append(f"  chosen by: {self.chosen_by}")
        best = taken(self.candidates)
        for one in self.candidates:
            lines.append(f"    {'*' if one is best else ' '} {one.setting:<44} {one.score:.4g}")
        lines.append(
            f"  degrees of freedom {self.degrees_of_freedom:.1f} per channel, residual {self.residual:.3g} rms"
        )
        lines.append(f"  {self.seconds:.3f} s")
        return "\n".join(lines)


class PointReport:
    """What `fit_points` did; prints readably. What takes time to compute is computed when asked for.

    Attributes
    ----------
    points, dropped : int
        How many points were fitted, and how many left out because a value was missing.
    channels : int
        The number of channels.
    embedders : list of Embedder
        One per axis.
    rows : str
        How a point sees the features: exact rows, or blending.
    method : str
        How the system was solved.
    convergence : Convergence
        Iterations, relative residual and last relative change of the solver.
    ridge, roughness : float, (float, float)
        The penalty used.
    units : tuple of float or None
        The length on each axis that counts as 1 in the roughness; None for the units of the points.
    chosen_by, candidates : str, list of Candidate
        What decided, and all that was tried.
    seconds : float
        How long the fit took.
    """

    def __init__(
        self,
        *,
        points: int,
        dropped: int,
        channels: int,
        embedders: Sequence[Embedder],
        rows: str,
        method: str,
        convergence: Convergence,
        penalty: Penalty,
        chosen_by: str,
        candidates: Sequence[Candidate],
        seconds: float,
        measure_residual: Callable[[], float],
        measure_freedom: Callable[[], float],
    ) -> None:
        self.points, self.dropped, self.channels = points, dropped, channels
        self.embedders, self.rows, self.method = list(embedders), rows, method
        self.convergence = convergence
        self.ridge, self.roughness, self.units = penalty.ridge, penalty.roughness, penalty.units
        self.chosen_by, self.candidates, self.seconds = chosen_by, list(candidates), seconds
        self._measure_residual: Callable[[], float] | None = measure_residual
        self._measure_freedom: Callable[[], float] | None = measure_freedom

    @functools.cached_property
    def residual(self) -> float:
        """The root mean square, by weight, of value minus fit at the points, in the units of the values."""
        assert self._measure_residual is not None
        return self._measure_residual()

    @functools.cached_property
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix, per channel, from seeded random samples."""
        if self._measure_freedom is None:
            raise problem(
                "degrees_of_freedom",
                "a report that was pickled before it was asked",
                "the report of the field that fit_points returned",
                "Ask it before it is pickled: it takes several solves, for which the points are needed.",
            )
        with one_blas_thread():
            return self._measure_freedom()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: what is known, and the residual, but not the points."""
        return {
            "residual": self.residual,
            **self.__dict__,
            "_measure_residual": None,
            "_measure_freedom": None,
        }

    def __copy__(self) -> PointReport:
        return shared_copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> PointReport:
        return shared_copy(self, memo, shared=("_measure_residual", "_measure_freedom"))

    @property
    def knows_freedom(self) -> bool:
        """Whether ``degrees_of_freedom`` is known or can be computed: not after pickling, unless it was asked before."""
        return "degrees_of_freedom" in self.__dict__ or self._measure_freedom is not None

    def to_dict(self, *, freedom: bool = True) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold; ``freedom`` is what may take long.

        Degrees of freedom are None without it, and after pickling if they were not asked for
        before.
        """
        return {
            "points": self.points,
            "dropped": self.dropped,
            "channels": self.channels,
            "embedders": [repr(emb) for emb in self.embedders],
            "rows": self.rows,
            "method": self.method,
            "iterations": self.convergence.iterations,
            "solver_residual": self.convergence.residual,
            "solver_change": self.convergence.change,
            "ridge": self.ridge,
            "roughness": list(self.roughness),
            "units": None if self.units is None else list(self.units),
            "chosen_by": self.chosen_by,
            "candidates": told(self.candidates),
            "degrees_of_freedom": self.degrees_of_freedom
            if freedom and self.knows_freedom
            else None,
            "residual": self.residual,
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        missing = f" ({self.dropped} more had no value)" if self.dropped else ""
        lines = [
            f"fit of {self.points} points{missing}, {self.channels} channel{'s' if self.channels > 1 else ''}"
        ]
        lines += [f"  axis {axis}: {embedder!r}" for axis, embedder in enumerate(self.embedders)]
        end = self.convergence
        lines.append(f"  {self.rows}; {self.method}")
        lines.append(
            f"  {end.iterations} iterations, relative residual {end.residual:.2g}, last change {end.change:.2g}"
        )
        units = (
            ""
            if self.units is None
            else f", in units of ({', '.join(f'{unit:.3g}' for unit in self.units)})"
        )
        lines.append(
            f"  ridge {self.ridge:.3g}, roughness ({self.roughness[0]:.3g}, {self.roughness[1]:.3g}){units}"
        )
        lines.append(f"  chosen by: {self.chosen_by}")
        best = taken(self.candidates)
        for one in self.candidates:
            lines.append(f"    {'*' if one is best else ' '} {one.setting:<52} {one.score:.4g}")
        try:
            freedom = (
                f"{self.degrees_of_freedom:.1f}"
                if self.knows_freedom
                else "not computed before pickling:"
            )
        except ConvergenceError:
            freedom = "not found (the solver did not get there)"
        lines.append(
            f"  degrees of freedom {freedom} per channel, residual {self.residual:.3g} rms"
        )
        lines.append(f"  {self.seconds:.3f} s")
        return "\n".join(lines)
