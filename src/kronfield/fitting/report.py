"""Reports of fits: the settings that were chosen, why, and how well they fit."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.axes import SampleAxes
from kronfield._core.copies import shared_copy
from kronfield._core.frames import Frame
from kronfield._core.labels import Labels
from kronfield._core.records import record
from kronfield._core.spectra import stable_rank
from kronfield._core.threads import one_blas_thread
from kronfield.embedders import BSpline, Embedder

if TYPE_CHECKING:
    from kronfield.fitting.calibration import Coverage
    from kronfield.fitting.robust import RobustReport
    from kronfield.solvers.points.cg import Convergence
    from kronfield.solvers.points.normal import Penalty

# The stable rank of an axis is computed from its features up to this many samples. For more samples
# the closed form is as accurate and takes no time.
MEASURED_UP_TO = 1024
# Steps of power iteration for the largest singular value of long uneven axes.
POWER_STEPS = 60

# The text of a candidate shows at most this many numbers of a tuple.
MOST_SHOWN = 4

Parameter = float | str | tuple[float, ...] | tuple[str, ...]


@record
class Candidate:
    """A setting that was compared with others.

    Examples
    --------
    >>> print(Candidate("roughness", {"first": 0.0, "second": 0.01}, 0.25))
    roughness: first 0, second 0.01

    Attributes
    ----------
    kind : str
        The family: "splines", "slopes", "roughness", "ridge", ...
    parameters : dict
        Its settings by name: numbers, strings, or tuples of either.
    score : float
        Its error or cross-validation score; lower is better.
    standard_error : float
        The standard error of the score, NaN if it is not known.
    chosen : bool
        Whether it was chosen. The lowest score is not always chosen.
    """

    kind: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    score: float = math.nan
    standard_error: float = math.nan
    chosen: bool = False

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {_text(value)}" for name, value in self.parameters.items())
        return f"{self.kind}: {settings}" if settings else self.kind

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as plain data that JSON can hold."""
        parameters = {k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters.items()}
        return {
            "kind": self.kind,
            "parameters": parameters,
            "score": self.score,
            "standard_error": None if math.isnan(self.standard_error) else self.standard_error,
            "chosen": self.chosen,
        }


def _text(value: Parameter) -> str:
    if isinstance(value, tuple) and len(value) > MOST_SHOWN:
        return f"({', '.join(map(_text, value[:MOST_SHOWN]))}, ... {len(value)} in all)"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return value if isinstance(value, str) else f"{value:.3g}"


@record
class RemovedNoise:
    """The noise of samples, and how it was removed.

    Attributes
    ----------
    sigma : tuple of float
        The standard deviation of the noise in each channel, in the units of the values.
    method : str
        How it was removed: "shrinkage", "groups of alike patches" or "a penalised fit".
    expected_error : float
        The estimated root mean square error of the denoised samples, by Stein's unbiased estimate
        of the risk (Stein, 1981). With gaps, the error at samples that were hidden.
    stabilised : bool
        Whether the noise depends on the signal, and values were transformed so that it does not.
    cut_off : bool
        Whether noise is cut off at the ends of the range of the values, so that its mean is not 0
        there. Shrinkage corrects this, and the expected error includes it.
    """

    sigma: tuple[float, ...]
    method: str
    expected_error: float
    stabilised: bool = False
    cut_off: bool = False

    def __str__(self) -> str:
        varies = ", which depends on the signal" if self.stabilised else ""
        varies += ", cut off at the ends of the range" if self.cut_off else ""
        known = math.isfinite(self.expected_error)
        error = f"{self.expected_error:.3g} rms" if known else "not known"
        return (
            f"noise of standard deviation {_text(self.sigma)}{varies}, removed by {self.method}; "
            f"expected error {error}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        error = self.expected_error if math.isfinite(self.expected_error) else None
        return {**asdict(self), "sigma": list(self.sigma), "expected_error": error}


def choose_lowest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, with the lowest score marked as chosen."""
    scores = [math.inf if math.isnan(one.score) else one.score for one in candidates]
    best = scores.index(min(scores)) if scores else -1
    return [replace(one, chosen=i == best) for i, one in enumerate(candidates)]


class Report(ABC):
    """The part of the report that all fits share; expensive quantities are computed on demand.

    Attributes
    ----------
    channels : int
        The number of channels.
    embedders : list of Embedder
        One per axis.
    ridge, roughness : float, (float, float)
        The penalty used.
    units : tuple of float or None
        The unit of length of each axis in the roughness; None for the units of the positions.
    noise : RemovedNoise or None
        The noise that was found or given, and how it was removed.
    chosen_by : str
        How the settings were chosen; "given" if no setting was open.
    candidates : list of Candidate
        Every setting that was compared, with its score.
    filled : int
        The number of samples that were missing on a grid and were filled.
    expected_error, expected_error_uncertainty : float
        The expected root mean square error at a missing sample of a lattice, or with ``hold_out``
        at a point that was held out, in the units of the values, and its standard error; NaN if
        they were not measured.
    held_out : str or None
        What was held out together, if it was given: "points" or "blocks".
    robust : RobustReport or None
        With Huber's loss: how many points were weighted down or rejected, and where the largest
        residuals are.
    seconds : float
        The duration of the fit.
    """

    # on the class, so that reports pickled before they existed have them
    robust: RobustReport | None = None
    held_out: str | None = None
    #: The form of the fit: "grid", "dual" or "factored".
    form: str = "grid"
    #: A remark on outliers among the values, empty if there are none.
    outlying: str = ""
    #: The names, units and kinds of the axes, if the samples had them.
    labels: Labels | None = None

    #: Attributes that are functions of the samples, which a pickle does not contain.
    _of_samples: tuple[str, ...] = ("_measure_residual",)

    def __init__(
        self,
        *,
        channels: int,
        embedders: Sequence[Embedder],
        ridge: float,
        roughness: tuple[float, float],
        chosen_by: str,
        candidates: Sequence[Candidate],
        seconds: float,
        measure_residual: Callable[[], float],
        units: Sequence[float] | None = None,
        noise: RemovedNoise | None = None,
    ) -> None:
        self.noise = noise
        self.channels, self.embedders = channels, list(embedders)
        self.units = None if units is None or set(units) == {1.0} else tuple(units)
        self.ridge, self.roughness = ridge, roughness
        self.chosen_by, self.candidates, self.seconds = chosen_by, list(candidates), seconds
        self._measure_residual: Callable[[], float] | None = measure_residual
        self.filled = 0
        self.expected_error = self.expected_error_uncertainty = math.nan

    @property
    def held_out_text(self) -> str:
        """The errors at held-out samples as text; '' if there are none."""
        return ""

    def measure_residual_by(self, measure: Callable[[], float]) -> None:
        """Measure the residual by another function."""
        self._measure_residual = measure

    @functools.cached_property
    def residual(self) -> float:
        """The weighted root mean square of value minus fit, in the units of the values."""
        assert self._measure_residual is not None
        value = self._measure_residual()
        self._measure_residual = None  # so that the values can be freed
        return value

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that was chosen; None if no setting was open."""
        return next((one for one in self.candidates if one.chosen), None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: with the residual, but without the samples."""
        without = dict.fromkeys(self._of_samples)
        return {"residual": self.residual, **self.__dict__, **without}

    def __copy__(self) -> Self:
        return shared_copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return shared_copy(self, memo, shared=self._of_samples)

    @abstractmethod
    def _head(self) -> list[str]:
        """Return the first lines of the text: samples, features and method of solution."""

    @abstractmethod
    def _freedom(self) -> str:
        """Return the degrees of freedom as text."""

    def _penalty(self) -> str:
        first, second = self.roughness
        units = (
            ""
            if self.units is None
            else f", in units of ({', '.join(f'{unit:.3g}' for unit in self.units)})"
        )
        return f"ridge {self.ridge:.3g}, roughness ({first:.3g}, {second:.3g}){units}"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        noise = [f"  {one}" for one in (self.noise, self.outliers_text) if one]
        lines = [
            *self._head(),
            *self._labelled(),
            *noise,
            f"  {self._penalty()}",
            f"  chosen by: {self.chosen_by}",
        ]
        for one in self.candidates:
            error = "" if math.isnan(one.standard_error) else f" ± {one.standard_error:.2g}"
            lines.append(f"    {'*' if one.chosen else ' '} {one!s:<52} {one.score:.4g}{error}")
        if self.filled:
            lines.append(f"  {self.filled} missing samples were filled{self._expected()}")
        elif self.held_out is not None and self._expected():
            lines.append(f"  {self.held_out} held out{self._expected()}")
        if self.held_out_text:
            lines.append(f"  held-out error: {self.held_out_text}")
        if self.outlying:
            lines.append(f"  {self.outlying}")
        lines.append(
            f"  degrees of freedom {self._freedom()} per channel, residual {self.residual:.3g} rms"
        )
        lines.append(f"  {self.seconds:.3f} s")
        return "\n".join(lines)

    def summary(self) -> list[tuple[str, str]]:
        """Return the key facts as pairs of a name and a text; none takes long to compute."""
        rows = [("samples", self._count())]
        if self.noise is not None:
            rows.append(("noise", str(self.noise)))
        if self.chosen is not None:
            rows.append(("chosen", f"{self.chosen}{self.lead}"))
        rows.append(("chosen by", self.chosen_by))
        rows.append(("penalty", self._penalty()))
        if self.filled:
            rows.append(("filled", f"{self.filled} missing samples"))
        if not math.isnan(self.expected_error):
            rows.append(("expected error", f"{self.expected_text} rms where nothing was given"))
        if self.robust is not None:
            rows.append(("outliers", self.outliers_text))
        elif self.outlying:
            rows.append(("outliers", self.outlying))
        rows.append(("time", f"{self.seconds:.3g} s"))
        return rows

    @property
    def lead(self) -> str:
        """How clearly the chosen candidate is ahead of the next one, as text; '' if unknown."""
        chosen = self.chosen
        others = [
            one.score
            for one in self.candidates
            if not one.chosen and math.isfinite(one.score) and one.score > 0
        ]
        if chosen is None or not others or not math.isfinite(chosen.score) or chosen.score <= 0:
            return ""
        ratio = min(others) / chosen.score
        # a lower score was measured in another way, and is not comparable
        return f"; the next scores {ratio:.3g} times as much" if ratio >= 1 else ""

    @abstractmethod
    def _count(self) -> str:
        """Return the number of samples and channels as text."""

    def _repr_html_(self) -> str:
        """Return the report as a table, for notebooks."""
        from kronfield.plots.summary import report_html

        return report_html(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw the score of each candidate with Matplotlib; return the axes.

        Examples
        --------
        >>> import numpy as np
        >>> import kronfield as kf
        >>> kf.fit(np.sin(np.arange(30.0))).report.plot().get_xlabel()
        'score: lower is better'
        """
        from kronfield.plots.choices import draw_candidates

        return draw_candidates(self.candidates, ax)

    @property
    def outliers_text(self) -> str:
        """What was done with outliers, with dates as dates; '' with the squared loss."""
        if self.robust is None:
            return ""
        return self.robust.text(() if self.labels is None else self.labels.axes)

    def _labelled(self) -> list[str]:
        if self.labels is None:
            return []
        axes = [
            f"{axis.name or f'axis {i}'}"
            + (f" [{axis.kind}s]" if axis.is_time else f" [{axis.unit}]" if axis.unit else "")
            for i, axis in enumerate(self.labels.axes)
        ]
        unit = self.labels.attrs.get("units")
        values = f"{self.labels.name or 'values'}{f' [{unit}]' if unit else ''}"
        return [f"  {values} by {', '.join(axes)}"]

    def _expected(self) -> str:
        if math.isnan(self.expected_error):
            return ""
        return f", expected error {self.expected_text} rms"

    @property
    def expected_text(self) -> str:
        """The expected error with its standard error, if that is known, as text."""
        error, uncertainty = self.expected_error, self.expected_error_uncertainty
        spread = "" if math.isnan(uncertainty) else f" ± {uncertainty:.2g}"
        return f"{error:.3g}{spread}"

    def _choice(self) -> dict[str, Any]:
        expected = (self.expected_error, self.expected_error_uncertainty)
        return {
            "filled": self.filled,
            "held_out": self.held_out,
            "expected_error": None if math.isnan(expected[0]) else expected[0],
            "expected_error_uncertainty": None if math.isnan(expected[1]) else expected[1],
            "ridge": self.ridge,
            "roughness": list(self.roughness),
            "units": None if self.units is None else list(self.units),
            "noise": None if self.noise is None else self.noise.to_dict(),
            "robust": None if self.robust is None else self.robust.to_dict(),
            "chosen_by": self.chosen_by,
            "candidates": [one.to_dict() for one in self.candidates],
        }


def grid_residual(values: Array, blocks: Iterable[tuple[slice, Array]]) -> float:
    """Return the root mean square of values (C, N_1, ..., N_D) minus the fit.

    The fit comes in blocks (rows of the first axis, planes (C, ...)).
    """
    total, scale = 0.0, float(max(abs(float(values.max())), abs(float(values.min())))) or 1.0
    for rows, block in blocks:
        total += float(np.sum(((block.astype(np.float64) - values[:, rows]) / scale) ** 2))
    return scale * math.sqrt(total / values.size)


def _channels(count: int) -> str:
    return f"{count} channel{'s' if count > 1 else ''}"


class FitReport(Report):
    """The report of `fit`; expensive quantities are computed on demand.

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
        How the settings were chosen; "given" if no setting was open.
    candidates : list of Candidate
        Every setting that was compared, with its score.
    refined : bool
        Whether slopes were estimated from the data, on a lattice twice as fine; see `fit`.
    degrees_of_freedom : float
        The trace of the hat matrix, per channel.
    seconds : float
        The duration of the fit.
    """

    def __init__(
        self,
        *,
        samples: tuple[int, ...],
        frames: Sequence[Frame],
        axes: SampleAxes,
        methods: Sequence[str],
        ranks: Sequence[int],
        refined: bool,
        degrees_of_freedom: float,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.samples = samples
        self._frames, self._axes = tuple(frames), axes
        self.methods, self.ranks = list(methods), list(ranks)
        self.refined, self.degrees_of_freedom = refined, degrees_of_freedom

    _of_samples = ("_measure_residual", "_measure_held_out")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: with the errors at samples, but without the samples."""
        return {"held_out_errors": self.held_out_errors, **super().__getstate__()}

    # on the class, for reports pickled before it existed
    _measure_held_out: Callable[[], dict[str, float]] | None = None

    def measure_held_out_by(self, measure: Callable[[], dict[str, float]]) -> None:
        """Measure the errors at held-out samples by this function."""
        self._measure_held_out = measure

    @functools.cached_property
    def held_out_errors(self) -> dict[str, float]:
        """The root mean square error at held-out samples: of a fit like this, linear and cubic.

        In the middle of the grid every second sample of each axis is given, and the others are
        predicted. Samples are then twice as far apart, so that errors are larger than those of the
        field, and the noise of the held-out samples counts. Empty if an axis is too short or
        periodic, with an encoding or a penalty that was given, and with gaps or weights.
        """
        if self._measure_held_out is None:
            return {}
        with one_blas_thread():
            found = self._measure_held_out()
        self._measure_held_out = None  # so that the values can be freed
        return found

    @property
    def held_out_text(self) -> str:
        """The errors at held-out samples as text; '' if there are none."""
        errors = ", ".join(f"{name} {error:.3g}" for name, error in self.held_out_errors.items())
        return f"{errors} rms, where every second sample of each axis was given" if errors else ""

    @functools.cached_property
    def stable_ranks(self) -> list[float]:
        """The stable rank of each axis on its samples."""
        return [
            stable_rank(emb(frame.unit(x)))
            if len(x) <= MEASURED_UP_TO
            else _long_stable_rank(emb, frame.unit(x))
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
            **self._choice(),
            "refined": self.refined,
            "degrees_of_freedom": self.degrees_of_freedom,
            "residual": self.residual,
            "seconds": self.seconds,
        }

    def _count(self) -> str:
        return f"{' x '.join(map(str, self.samples))} samples, {_channels(self.channels)}"

    def _head(self) -> list[str]:
        lines = [f"fit of {self._count()}"]
        rows = zip(self.embedders, self.methods, self.ranks, self.stable_ranks, strict=True)
        for axis, (emb, method, rank, stable) in enumerate(rows):
            lines.append(f"  axis {axis}: {emb!r}, {method}, rank {rank}, stable rank {stable:.1f}")
        return lines

    def _freedom(self) -> str:
        return f"{self.degrees_of_freedom:.1f}"


def _long_stable_rank(embedder: Embedder, x: Array) -> float:
    """Return the stable rank on many samples: in closed form, or of B-splines from their band."""
    if not isinstance(embedder, BSpline) or embedder.rank_limit is not None:
        return embedder.stable_rank(len(x))
    first, values = embedder.run(x)
    vector, largest = np.ones(embedder.size), 1.0
    # The square of the largest singular value, by power iteration from positive weights.
    for _ in range(POWER_STEPS):
        seen = np.zeros(len(x))
        for tap, value in enumerate(values):
            seen += value * vector[first + tap]
        vector = np.zeros(embedder.size)
        for tap, value in enumerate(values):
            vector += np.bincount(first + tap, weights=value * seen, minlength=embedder.size)
        largest = float(np.linalg.norm(vector))
        vector /= largest
    return float(np.sum(values**2)) / largest


class PointReport(Report):
    """The report of `fit_points`; expensive quantities are computed on demand.

    Attributes
    ----------
    points, dropped : int
        The number of fitted points, and of points dropped because of a missing value.
    channels : int
        The number of channels.
    embedders : list of Embedder
        One per axis.
    rows : str
        How the features of a point are computed: exact rows, or blending.
    method, reason : str
        How the system was solved, and why this method was selected.
    convergence : Convergence
        Iterations, relative residual and last relative change of the solver.
    ridge, roughness : float, (float, float)
        The penalty used.
    units : tuple of float or None
        The unit of length of each axis in the roughness; None for the units of the points.
    chosen_by, candidates : str, list of Candidate
        How the settings were chosen, and every setting that was compared.
    seconds : float
        The duration of the fit.
    """

    #: The memory that a fit without a grid needs.
    memory: int | None = None

    _of_samples = ("_measure_residual", "_measure_freedom", "_measure_coverage")

    # on the class, for reports pickled before it existed
    _measure_coverage: Callable[[], Coverage] | None = None

    #: A bound of the standard error of ``degrees_of_freedom``, known once they are; 0 if exact.
    degrees_of_freedom_error: float = 0.0

    def __init__(
        self,
        *,
        points: int,
        dropped: int,
        rows: str,
        method: str,
        reason: str,
        convergence: Convergence,
        penalty: Penalty,
        measure_freedom: Callable[[], float | tuple[float, float]],
        **common: Any,
    ) -> None:
        super().__init__(
            ridge=penalty.ridge, roughness=penalty.roughness, units=penalty.units, **common
        )
        self.points, self.dropped = points, dropped
        self.rows, self.method, self.reason = rows, method, reason
        self.convergence = convergence
        self._measure_freedom: Callable[[], float | tuple[float, float]] | None = measure_freedom

    @functools.cached_property
    def degrees_of_freedom(self) -> float:
        """The trace of the hat matrix per channel, exact or estimated with random probes."""
        if self._measure_freedom is None:
            raise problem(
                "degrees_of_freedom",
                "a report that was pickled before they were computed",
                "the report of the field that fit_points returned",
                "Read them from the report before it is pickled: they need the points.",
            )
        with one_blas_thread():
            found = self._measure_freedom()
        if isinstance(found, tuple):
            found, self.degrees_of_freedom_error = found
        return found

    def measure_coverage_by(self, measure: Callable[[], Coverage]) -> None:
        """Measure the coverage by this function."""
        self._measure_coverage = measure

    @functools.cached_property
    def coverage(self) -> Coverage:
        """The share of held-out values in two-sigma bands, and which assumption fails if any.

        It takes another fit, without a tenth of the points. The text of the report and saved fields
        contain it once it is known.
        """
        if self._measure_coverage is None:
            raise problem(
                "coverage",
                "a report that was pickled before it was measured, or of a filled lattice",
                "the report of a penalised fit that fit_points returned",
                "Read it before the report is pickled: it needs the points.",
            )
        with one_blas_thread():
            return self._measure_coverage()

    @property
    def known_coverage(self) -> Coverage | None:
        """The coverage if it was measured, else None."""
        found: Coverage | None = self.__dict__.get("coverage")
        return found

    @property
    def knows_freedom(self) -> bool:
        """Whether ``degrees_of_freedom`` is known or can be computed; after pickling it cannot."""
        return "degrees_of_freedom" in self.__dict__ or self._measure_freedom is not None

    def to_dict(self, *, freedom: bool = True) -> dict[str, Any]:
        """Return the report as plain data that JSON can hold.

        Degrees of freedom may take long. They are None without ``freedom``, and after pickling if
        they were not computed before.
        """
        return {
            "points": self.points,
            "dropped": self.dropped,
            "channels": self.channels,
            "embedders": [repr(emb) for emb in self.embedders],
            "form": self.form,
            "memory": self.memory,
            "rows": self.rows,
            "method": self.method,
            "reason": self.reason,
            "iterations": self.convergence.iterations,
            "solver_residual": self.convergence.residual,
            "solver_change": self.convergence.change,
            **self._choice(),
            "degrees_of_freedom": self.degrees_of_freedom
            if freedom and self.knows_freedom
            else None,
            "residual": self.residual,
            "coverage": None if self.known_coverage is None else self.known_coverage.to_dict(),
            "seconds": self.seconds,
        }

    def _count(self) -> str:
        missing = f" ({self.dropped} more had no value)" if self.dropped else ""
        return f"{self.points} points{missing}, {_channels(self.channels)}"

    def _head(self) -> list[str]:
        lines = [f"fit of {self._count()}"]
        lines += [f"  axis {axis}: {embedder!r}" for axis, embedder in enumerate(self.embedders)]
        end = self.convergence
        lines.append(f"  {self.rows}; solved by {self.method}: {self.reason}")
        if self.form == "dual":
            return lines
        lines.append(
            f"  {end.iterations} iterations, relative residual {end.residual:.2g}, "
            f"last change {end.change:.2g}"
        )
        if self.known_coverage is not None:
            lines.append(f"  {self.known_coverage}")
        return lines

    def _freedom(self) -> str:
        from kronfield.solvers.points.cg import ConvergenceError

        try:
            if not self.knows_freedom:
                return "not computed before pickling:"
            found, error = self.degrees_of_freedom, self.degrees_of_freedom_error
            return f"{found:.1f} ± {error:.2g}" if error else f"{found:.1f}"
        except ConvergenceError:
            return "not found (the solver did not converge)"
