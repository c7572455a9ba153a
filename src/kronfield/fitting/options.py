"""The options of a fit, checked, in one object instead of many parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, describe, problem, real, real_numbers, whole
from kronfield._core.records import record
from kronfield.fitting import settings as defaults
from kronfield.fitting.inputs import checked_penalty, checked_roughness
from kronfield.fitting.settings import Settings

if TYPE_CHECKING:
    from kronfield.solvers.points.normal import Penalty

Progress = Callable[[int, float], Any]
LOSSES = ("squared", "huber")
HOLD_OUT = ("points", "blocks")


@record
class PointOptions:
    """The options of `fit_points` and `Statistics.solve`; None leaves a setting open.

    Attributes
    ----------
    penalty : Penalty or None
        Ridge and roughness.
    units : tuple of float or None
        The length on each axis that counts as 1 in a roughness.
    rows : str or None
        How the features of a point are computed.
    tolerance : float or None
        The relative error at which the solver stops.
    iterations : int
        The maximum number of iterations of the solver.
    seed : int
        The seed of the split into points kept and held out, and of random probes.
    progress : function or None
        Called with (iteration, relative residual).
    settings : Settings
        The decisions.
    loss : "squared" or "huber"
        The loss of residuals.
    trend : 0, 1, 2 or None
        The degree of a polynomial that is not penalised.
    hold_out : "points", "blocks" or None
        What is held out together to choose settings; None is "points".
    """

    penalty: Penalty | None = None
    units: tuple[float, ...] | None = None
    rows: str | None = None
    tolerance: float | None = None
    iterations: int = defaults.DEFAULT.points.iterations
    seed: int = 0
    progress: Progress | None = None
    settings: Settings = defaults.DEFAULT
    loss: str = "squared"
    trend: int | None = None
    hold_out: str | None = None

    @classmethod
    def checked(
        cls,
        D: int,
        *,
        ridge: Any,
        roughness: Any,
        units: Any = None,
        tolerance: Any = None,
        iterations: Any = None,
        seed: Any = 0,
        rows: str | None = None,
        progress: Progress | None = None,
        settings: Any = None,
        loss: Any = "squared",
        trend: Any = None,
        hold_out: Any = None,
    ) -> PointOptions:
        """Return the options for points in D dimensions; wrong ones raise an error."""
        units = _checked_units(units, D)
        penalty = None
        if ridge is not None or roughness is not None:
            from kronfield.solvers.points.normal import Penalty

            penalty = Penalty(
                checked_penalty("ridge", ridge or 0.0), checked_roughness(roughness), units
            )
        if tolerance is not None:
            remedy = "It is relative to the spread of the field."
            tolerance = real("tolerance", tolerance, low=1e-15, high=0.5, remedy=remedy)
        if hold_out is not None:
            hold_out = one_of("hold_out", hold_out, HOLD_OUT, "Blocks are for clustered points.")
        used = checked_settings(settings)
        iterations = used.points.iterations if iterations is None else iterations
        return cls(
            penalty=penalty,
            units=units,
            rows=rows,
            tolerance=tolerance,
            iterations=whole("iterations", iterations, at_least=1),
            seed=whole("seed", seed, at_least=0),
            progress=progress,
            settings=used,
            loss=checked_loss(loss),
            trend=_checked_trend(trend),
            hold_out=hold_out,
        )

    @property
    def blocks(self) -> int | None:
        """The number of blocks from which points are held out; None for single points."""
        return self.settings.points.blocks if self.hold_out == "blocks" else None

    @property
    def is_robust(self) -> bool:
        """Whether outliers are weighted down."""
        return self.loss == "huber"


def one_of(argument: str, name: Any, names: Sequence[str], remedy: str) -> str:
    """Return a name if it is one of ``names``; otherwise raise an error."""
    if not isinstance(name, str) or name not in names:
        expected = " or ".join(f'"{one}"' for one in names)
        raise problem(argument, repr(name), expected, remedy)
    return name


def checked_loss(loss: Any) -> str:
    """Return the name of a loss."""
    return one_of("loss", loss, LOSSES, "Huber's loss weights outliers down.")


def _checked_units(units: Any, D: int) -> tuple[float, ...] | None:
    if units is None:
        return None
    found = tuple(real_numbers("units", units).tolist())
    if len(found) != D or not all(unit > 0 for unit in found):
        raise problem("units", found, f"{D} positive lengths", "One per axis.")
    return found


def _checked_trend(trend: Any) -> int | None:
    if trend is None:
        return None
    is_whole = isinstance(trend, int | np.integer) and not isinstance(trend, bool)
    if not is_whole or not 0 <= trend <= 2:
        remedy = "It is the degree of a polynomial; leave it out to have none."
        raise problem("trend", repr(trend), "0, 1, 2 or None", remedy)
    return int(trend)


@record
class GridOptions:
    """The options of `fit`; None leaves a setting open.

    Attributes
    ----------
    ridge : float or None
        The weight of the sum of squared weights.
    roughness : (float, float), "gcv" or None
        The weights of a roughness, or how to choose them.
    noise : array of shape () or (C,), or None
        The standard deviation of the noise, in the units of the values.
    rcond : float or None
        Singular values below this fraction of the largest count as zero.
    denoise, thorough : bool
        Whether the caller asked for the removal of noise, and for the slower method.
    settings : Settings
        The decisions.
    loss : "squared" or "huber"
        The loss of residuals.
    ends : tuple of str or None
        The rule by which splines end on each axis; None where it is chosen.
    is_low_rank : bool
        Whether weights are to be a tensor train, which excludes slopes from the data.
    only_middle : bool
        Whether only the middle of the values is in memory, so that noise is removed by chunks.
    """

    ridge: float | None = None
    roughness: tuple[float, float] | str | None = None
    noise: Array | None = None
    rcond: float | None = None
    denoise: bool = False
    thorough: bool = False
    settings: Settings = defaults.DEFAULT
    loss: str = "squared"
    ends: tuple[str | None, ...] = ()
    is_low_rank: bool = False
    only_middle: bool = False

    @classmethod
    def checked(
        cls,
        *,
        noise: Any,
        channels: int,
        ridge: Any = None,
        roughness: Any = None,
        rcond: Any = None,
        has_encoding: bool = False,
        denoise: bool = False,
        thorough: bool = False,
        settings: Any = None,
        loss: Any = "squared",
        ends: tuple[str | None, ...] = (),
        is_low_rank: bool = False,
        only_middle: bool = False,
    ) -> GridOptions:
        """Return the options; wrong ones raise an error that names them."""
        if isinstance(roughness, str):
            if roughness != "gcv" or has_encoding or ridge:
                expected = 'two numbers, or "gcv" with no encoding and ridge'
                raise problem("roughness", repr(roughness), expected, "For example (0.0, 0.01).")
        elif roughness is not None:
            roughness = checked_roughness(roughness)
        if ridge is not None:
            ridge = checked_penalty("ridge", ridge)
        if rcond is not None:
            remedy = "It is a fraction of the largest singular value."
            rcond = real("rcond", rcond, low=0.0, high=1.0, remedy=remedy)
        if noise is not None:
            noise = _checked_noise(noise, channels)
            if has_encoding or ridge is not None or roughness is not None:
                raise problem(
                    "noise",
                    "noise beside an encoding, a ridge or a roughness",
                    "noise alone",
                    "The noise decides how strong a penalty is chosen; leave the others out.",
                )
        settings, loss = checked_settings(settings), checked_loss(loss)
        found = cls(
            ridge=ridge,
            roughness=roughness,
            noise=noise,
            rcond=rcond,
            denoise=denoise,
            thorough=thorough,
            settings=settings,
            loss=loss,
            ends=ends,
            is_low_rank=is_low_rank,
            only_middle=only_middle,
        )
        found._refuse_contradictions(has_encoding)
        return found

    def _refuse_contradictions(self, has_encoding: bool) -> None:
        """Raise an error for a loss, ends or a rank beside options that exclude them."""
        is_robust = self.loss == "huber"
        if is_robust and (self.noise is not None or self.rcond is not None):
            raise problem(
                "loss",
                '"huber" beside noise or rcond',
                "the loss alone",
                "The scale of the noise is found with the outliers; leave the other out.",
            )
        penalised = self.ridge or self.roughness is not None
        if any(self.ends) and (has_encoding or penalised or is_robust):
            raise problem(
                "ends",
                "ends beside an encoding, a penalty or Huber's loss",
                "ends alone",
                "Ends are those of splines through all samples; leave the other out.",
            )
        if self.is_low_rank and is_robust:
            raise problem(
                "rank", "a rank beside Huber's loss", "only one of the two", "Leave the other out."
            )

    @property
    def asks_for_gcv(self) -> bool:
        """Whether a roughness is to be chosen by cross-validation, noisy or not."""
        return isinstance(self.roughness, str)

    @property
    def roughness_pair(self) -> tuple[float, float]:
        """The roughness that was given, (0, 0) if none was."""
        return (
            (0.0, 0.0)
            if self.roughness is None or isinstance(self.roughness, str)
            else self.roughness
        )

    @property
    def may_smooth(self) -> bool:
        """Whether the choice of a penalty is left open."""
        return self.ridge is None and (self.roughness is None or self.asks_for_gcv)

    @property
    def interpolates(self) -> bool:
        """Whether no penalty was given."""
        return not self.ridge and not any(self.roughness_pair)


def _checked_noise(noise: Any, channels: int) -> Array:
    array = real_numbers("noise", noise)
    if array.shape not in ((), (channels,)) or not np.all(np.isfinite(array)) or np.any(array < 0):
        expected = f"a standard deviation of 0 or more, or {channels}, one per channel"
        got = describe(array if array.ndim > 1 else array.tolist())  # the numbers, if they are few
        raise problem("noise", got, expected, "In the units of the values.")
    return array


def checked_settings(settings: Any) -> Settings:
    """Return the settings given, or the default ones."""
    if settings is None:
        return defaults.DEFAULT  # looked up now, so that an experiment can replace it
    if not isinstance(settings, Settings):
        raise problem(
            "settings",
            describe(settings),
            "kronfield.fitting.settings.Settings",
            "Change one with dataclasses.replace(settings.DEFAULT, ...).",
            TypeError,
        )
    return settings
