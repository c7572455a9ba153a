"""The last step of every fit: check the weights and make the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kronfield._core.arrays import Array, fit_overflow, sum_is_finite
from kronfield._core.frames import Frame
from kronfield.encoding import Kronecker
from kronfield.field import Field
from kronfield.fitting.report import Report

if TYPE_CHECKING:
    from kronfield.field.uncertainty import Uncertainty


def wrap_up(
    encoding: Kronecker,
    weights: Array,
    frames: Sequence[Frame],
    axes: Any,
    *,
    channels: bool,
    is_complex: bool,
    dtype: np.dtype[Any],
    report: Report,
    again: Any = None,
    uncertainty: Uncertainty | None = None,
) -> Field:
    """Return the field of planar weights (C, K_1, ..., K_D); raise an error if they overflowed."""
    if not sum_is_finite(weights) and not np.all(np.isfinite(weights)):
        raise fit_overflow()
    return Field(
        encoding,
        weights,
        frames,
        axes,
        channels=channels,
        is_complex=is_complex,
        dtype=dtype,
        report=report,  # type: ignore[arg-type]
        again=again,
        uncertainty=uncertainty,
    )
