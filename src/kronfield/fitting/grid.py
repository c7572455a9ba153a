"""`fit`: values on a grid in, a field out; what is left open is chosen from the data."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from kronfield._core.arrays import Array, fit_overflow, problem, real, sum_is_finite
from kronfield._core.frames import Frame
from kronfield._core.threads import with_one_blas_thread
from kronfield.embedders import Embedder
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.field.evaluation import grid_blocks
from kronfield.fitting.grid_choice import GridChoice, best_ridge, choose
from kronfield.fitting.inputs import (
    GridInput,
    GridLayout,
    PointInput,
    checked_roughness,
    split_mask,
)
from kronfield.fitting.point_grids import even_lattice
from kronfield.fitting.points import TOLERANCE, checked_options, fit_checked
from kronfield.fitting.report import Candidate, FitReport
from kronfield.fitting.slopes import Refinement
from kronfield.solvers.grid.separable import GridSolver


class RankWarning(UserWarning):
    """An encoding cannot tell all samples apart; the fit is the one of least norm."""


@with_one_blas_thread
def fit(
    values: Any,
    axes: Sequence[Any] | None = None,
    encoding: Kronecker | Embedder | None = None,
    *,
    domain: Sequence[Sequence[float]] | None = None,
    ridge: float | None = None,
    roughness: tuple[float, float] | Literal["gcv"] | None = None,
    channels: bool | None = None,
    rcond: float | None = None,
    mask: Any = None,
) -> Field:
    """Return the field that fits values on a grid, in closed form.

    Examples
    --------
    >>> import numpy as np
    >>> import kronfield as kf
    >>> x, y = np.linspace(0, 2, 40), np.linspace(-1, 1, 50)
    >>> field = kf.fit(np.sin(3 * x)[:, None] * np.cos(2 * y), axes=[x, y])
    >>> field(np.array([[1.03, 0.21]])).round(3), round(np.sin(3.09) * np.cos(0.42), 3)
    (array([0.047]), np.float64(0.047))
    >>> paper = kf.Kronecker(kf.Gaussian(40, 0.016), kf.Gaussian(50, 0.0128))
    >>> kf.fit(np.ones((40, 50, 3)), encoding=paper, ridge=0.0).on_grid((80, 100)).shape
    (80, 100, 3)

    Parameters
    ----------
    values : array of shape (N_1, ..., N_D) or (N_1, ..., N_D, C)
        Real, integer or complex; a memory map is read in parts. float32 stays float32; integers of
        up to 16 bits become float32, others float64.
    axes : sequence of D arrays, optional
        The positions of the samples on each axis, rising or falling, even or not, in any units. By
        default array indices, each sample in the middle of its cell: the domain of N samples is
        [-0.5, N - 0.5].
    encoding : Kronecker or Embedder, optional
        By default chosen from the data: splines, or on a lattice twice as fine what slopes from the
        data fill in there. One embedder stands for the same on each axis.
    domain : sequence of D pairs (low, high), optional
        With ``axes``: where the unit interval of the embedders lies. Without: the box of which the
        samples are cells.
    ridge : float, optional
        Weight of the sum of squared weights. By default 0 where the encoding is chosen, else chosen
        by generalised cross-validation; 0 is the paper's closed form.
    roughness : (float, float), optional
        What to add to the mean squared residual: these times the mean of |gradient|^2 and of
        |second derivatives|^2. By default 0, or chosen together with the encoding if the samples
        are clearly noisy; "gcv" has it chosen by generalised cross-validation whether they are or
        not.
    channels : bool, optional
        Whether the last axis holds channels. By default as ``axes`` or ``encoding`` say; else it
        does if it is no longer than 4 and all others are.
    rcond : float, optional
        Singular values of an axis below this fraction of its largest count as zero; by default the
        square root of the rounding unit of the values, 1.5e-8 or for float32 3.5e-4, and 0 with a
        ridge. The fit is then the one of least norm, and a `RankWarning` says so.
    mask : array of bool, optional
        True where a sample is missing, of the shape of the grid or of values; a masked array needs
        it too, mask=values.mask. The rest is then fitted as `fit_points` would, and the roughness
        penalty decides what fills the gaps.

    Returns
    -------
    Field
        With what was done in ``field.report``.
    """
    started = time.perf_counter()
    values, missing = split_mask(values, mask)
    grid = GridInput(values, axes, encoding, domain, channels)
    if missing is not None:
        return _fit_the_rest(grid, missing, ridge, roughness, started)
    if isinstance(roughness, str) and (roughness != "gcv" or encoding is not None or ridge):
        raise problem(
            "roughness",
            repr(roughness),
            'two numbers, or "gcv" with no encoding and ridge',
            "For example (0.0, 0.01).",
        )
    if rcond is not None:
        rcond = real(
            "rcond",
            rcond,
            low=0.0,
            high=1.0,
            remedy="It is a fraction of the largest singular value.",
        )
    choice = _choice(grid, ridge, roughness, rcond)
    fitted = GridFit(
        grid.layout,
        choice.encoding,
        choice.ridge,
        choice.roughness,
        choice.smooth,
        rcond,
        choice.finer,
    )
    _warn_of_rank(fitted.solver)
    return fitted.field(grid, choice.chosen_by, choice.candidates, started)


def _choice(
    grid: GridInput, ridge: float | None, roughness: Any, rcond: float | None
) -> GridChoice:
    """Return what is given, and what was left open as the data say."""
    layout = grid.layout
    if grid.encoding is None:
        forced = isinstance(roughness, str)
        open_penalty = ridge is None and (roughness is None or forced)
        pair = (0.0, 0.0) if forced else checked_roughness(roughness)
        choice = choose(
            grid.planar(),
            grid.axes,
            layout.frames,
            smoothing=open_penalty,
            forced=forced,
            interpolating=not ridge and not any(pair),
        )
        return choice if open_penalty else replace(choice, ridge=ridge or 0.0, roughness=pair)
    if ridge is None and roughness is None:
        ridge, candidates = best_ridge(
            _solver(grid.encoding, layout, ridge=1.0, rcond=rcond), grid.planar()
        )
        return GridChoice(
            grid.encoding, (0.0, 0.0), 0, "generalised cross-validation", candidates, ridge=ridge
        )
    return GridChoice(
        grid.encoding, checked_roughness(roughness), 0, "given", [], ridge=ridge or 0.0
    )


def _solver(
    encoding: Kronecker,
    layout: GridLayout,
    *,
    ridge: float = 0.0,
    roughness: tuple[float, float] = (0.0, 0.0),
    smooth: int = 0,
    rcond: float | None = None,
    finer: Refinement | None = None,
) -> GridSolver:
    """Return the solver for samples as they lie, or for the finer lattice that is filled from them."""
    if rcond is None:  # a ridge does what is else done by leaving small singular values out
        rcond = 0.0 if ridge else math.sqrt(np.finfo(layout.dtype.type).eps)
    place = layout if finer is None else finer
    return GridSolver(
        encoding,
        place.frames,
        place.axes,
        dtype=layout.dtype,
        ridge=ridge,
        roughness=roughness,
        smooth=smooth,
        rcond=rcond,
    )


class GridFit:
    """The way from values on a grid to their field, with all that was given or chosen; fits other values too.

    It holds no values. A pickle of it holds the settings, from which axes are factored anew when it
    is next used.
    """

    def __init__(
        self,
        layout: GridLayout,
        encoding: Kronecker,
        ridge: float,
        roughness: tuple[float, float],
        smooth: int,
        rcond: float | None,
        finer: Refinement | None,
    ) -> None:
        self.layout, self.encoding = layout, encoding
        self._settings = {"ridge": ridge, "roughness": roughness, "smooth": smooth, "rcond": rcond}
        self._refined = None if finer is None else finer.finer
        self.__dict__["finer"] = finer

    @functools.cached_property
    def finer(self) -> Refinement | None:
        """The finer lattice that slopes from the data fill, if they do."""
        layout = self.layout
        return (
            None
            if self._refined is None
            else Refinement.of(layout.axes, layout.frames, self._refined)
        )

    @functools.cached_property
    def solver(self) -> GridSolver:
        """The factored axes."""
        return _solver(self.encoding, self.layout, finer=self.finer, **self._settings)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("finer", "solver")
        }

    def without_samples(self) -> GridFit:
        """Return what a pickled field keeps of this: all of it."""
        return self

    def __call__(self, values: Any) -> Field:
        """Return the field of other values on the same grid."""
        started = time.perf_counter()
        return self.field(
            GridInput.on(self.layout, values), "given, as in an earlier fit", [], started
        )

    def _at_nodes(self, values: Array) -> Array:
        return values if self.finer is None else self.finer(values)

    def field(
        self, grid: GridInput, chosen_by: str, candidates: list[Candidate], started: float
    ) -> Field:
        """Solve, on the finer lattice if there is one, and wrap the weights up."""
        solver, layout = self.solver, self.layout
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            if grid.piecewise:
                weights = np.stack(
                    [solver.solve(self._at_nodes(plane[None]))[0] for plane in grid.planar()]
                )
            else:
                # passed without a local name, so that the array can be freed early
                weights = solver.solve(self._at_nodes(grid.planar()))
        if not sum_is_finite(weights) and not np.all(np.isfinite(weights)):
            raise fit_overflow()
        if grid.shares(weights):
            weights = weights.copy()  # the field's own
        report = FitReport(
            samples=layout.shape,
            channels=grid.channel_count,
            embedders=solver.encoding.embedders,
            frames=solver.frames,
            axes=layout.given_axes,
            methods=solver.methods,
            ranks=solver.ranks,
            ridge=solver.ridge,
            roughness=solver.roughness,
            chosen_by=chosen_by,
            candidates=candidates,
            refined=self.finer is not None,
            # slopes from the data meet every sample
            degrees_of_freedom=float(math.prod(layout.shape))
            if self.finer
            else solver.degrees_of_freedom,
            seconds=time.perf_counter() - started,
            measure_residual=GridResidual(solver.encoding, weights, solver.frames, grid),
        )
        return Field(
            solver.encoding,
            weights,
            solver.frames,
            layout.given_axes,
            channels=layout.channels,
            is_complex=layout.is_complex,
            dtype=layout.dtype,
            report=report,
            again=self,
        )


@dataclass(frozen=True, eq=False)
class GridResidual:
    """The root mean square of value minus fit at the samples of a grid, when it is asked for."""

    encoding: Kronecker
    planes: Array
    frames: tuple[Frame, ...]
    grid: GridInput

    @with_one_blas_thread
    def __call__(self) -> float:
        """Return it, in the units of the values."""
        values = self.grid.planar()
        units = [frame.unit(axis) for frame, axis in zip(self.frames, self.grid.axes, strict=True)]
        total, scale = 0.0, float(max(abs(float(values.max())), abs(float(values.min())))) or 1.0
        for rows, block in grid_blocks(self.encoding, self.planes, units, [0] * len(units)):
            total += float(np.sum(((block.astype(np.float64) - values[:, rows]) / scale) ** 2))
        return scale * math.sqrt(total / values.size)


def _fit_the_rest(
    grid: GridInput, missing: Array, ridge: Any, roughness: Any, started: float
) -> Field:
    """Fit the samples that are not missing, as points."""
    layout = grid.layout
    if missing.ndim > len(layout.shape):
        missing = np.asarray(missing.any(axis=-1))
    if missing.shape != layout.shape:
        raise problem(
            "mask",
            f"shape {missing.shape}",
            f"{layout.shape}, the grid",
            "True where a sample is missing.",
        )
    if isinstance(roughness, str):
        raise problem(
            "roughness",
            repr(roughness),
            "two numbers, where samples are missing",
            "Leave it out to have it chosen.",
        )
    points, rest = grid.at(~missing)
    domain = [(frame.low, frame.high) for frame in layout.frames]
    given = PointInput(points, rest, None, domain, grid.encoding)
    given.dropped = int(missing.sum())
    lattice = None if grid.encoding is not None else even_lattice(grid.axes)
    options = checked_options(ridge, roughness, None, len(layout.shape))
    # what a solver that stops early has not done is seen in the gaps
    field = fit_checked(given, lattice, options, started, layout.frames, loosest=TOLERANCE)
    return field.with_axes(layout.given_axes)


def _warn_of_rank(solver: GridSolver) -> None:
    """Warn where singular values that matter were left out; a ridge that is larger than they are leaves nothing to say."""
    if solver.smooth or (solver.ridge and solver.ridge >= solver.cut_off**2):
        return
    for i, (rank, emb, axis) in enumerate(
        zip(solver.ranks, solver.encoding.embedders, solver.axes, strict=True)
    ):
        full = min(emb.size, len(axis))
        if rank < full:
            warnings.warn(
                f"axis {i}: {emb!r} has effective rank {rank} of {full} on {len(axis)} samples at rcond={solver.cut:g}; "
                "the fit is the one of least norm and does not meet all samples. Use a narrower width (of Fourier features "
                "a larger scale or exponent), another embedder, or a ridge.",
                RankWarning,
                stacklevel=4,
            )
