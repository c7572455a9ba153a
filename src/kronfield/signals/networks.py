"""Coordinate networks for signals from files, in the same coordinates as `fit_signal`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.frames import sample_frame
from kronfield._core.records import record
from kronfield.analysis.presets import preset
from kronfield.embedders import Embedder
from kronfield.encoding import Concatenated, Encoding, Kronecker
from kronfield.files import Description, Signal
from kronfield.fitting import settings as defaults
from kronfield.signals.fit import multiplied_colours, value_range

# Settings of Zheng et al. (2022) for a simple encoding: features per direction, their width, hidden
# layers.
SIMPLE_SIZE, SIMPLE_WIDTH, SIMPLE_DEPTH = 128, 0.006, 4


def paper_encoding(
    kind: str, counts: list[int], embedders: list[Embedder] | None = None
) -> Encoding:
    """Return the encoding of a network, by default with the embedders of Zheng et al. (2022).

    Examples
    --------
    >>> from kronfield.signals.networks import paper_encoding
    >>> paper_encoding("kronecker", [64, 32]).shape, paper_encoding("simple", [64, 32]).size
    ((64, 32), 512)

    Parameters
    ----------
    kind : "kronecker" or "simple"
        All combinations of the features of the axes, or features of axes and diagonals side by
        side.
    counts : list of int
        The number of samples on each axis.
    embedders : list of Embedder, optional
        One per axis; a simple encoding uses only the first. By default Gaussians. For kronecker
        there is one per sample, one sample wide, since gradient descent needs features that
        overlap. For simple there are 128 of width 0.006.
    """
    if kind == "kronecker":
        return Kronecker(
            *(embedders or [preset("gaussian", max(2, n), width=1 / max(2, n)) for n in counts])
        )
    if kind != "simple":
        raise problem("encoding", repr(kind), "kronecker or simple", "Choose one.")
    embedder = embedders[0] if embedders else preset("gaussian", SIMPLE_SIZE, width=SIMPLE_WIDTH)
    return Concatenated.with_diagonals(embedder, len(counts))


@record
class _Samples:
    """The samples that a network learns: values on axes or at points.

    ``ends`` is the box that the samples fill, ``domain`` the box on which features are placed.
    """

    values: Array
    axes: list[Array] | None
    points: Array | None
    ends: list[tuple[float, float]]
    domain: list[tuple[float, float]]
    counts: list[int]


def _grid_samples(signal: Signal) -> _Samples:
    """Return the samples of a grid, with colours multiplied by alpha."""
    values = multiplied_colours(signal.values) if signal.description.has_alpha else signal.values
    shape = values.shape[:-1] if signal.channels else values.shape
    axes = signal.axes or tuple(np.arange(n, dtype=np.float64) for n in shape)
    frames = [sample_frame(x) for x in axes]
    ends = [(frame.low, frame.high) for frame in frames]
    domain = [(frame.origin, frame.origin + frame.length) for frame in frames]
    return _Samples(values, list(axes), None, ends, domain, list(shape))


def _point_samples(points: Array, signal: Signal) -> _Samples:
    """Return the rows of a table in which no value is missing."""
    finite = np.isfinite(signal.values)
    there = finite.all(axis=1) if signal.channels else finite
    points, values = points[there], signal.values[there]
    spans = zip(points.min(axis=0), points.max(axis=0), strict=True)
    ends = [(float(low), float(high)) for low, high in spans]
    if any(low >= high for low, high in ends):
        got = "points with the same coordinate on an axis"
        raise problem("points", got, "a spread on every axis", "Leave that coordinate out.")
    D = points.shape[1]
    most = defaults.DEFAULT.signals.network_features
    counts = [min(most, max(4, round(float(len(values)) ** (1 / D))))] * D
    return _Samples(values, None, points, ends, ends, counts)


class SignalNetwork:
    """A network and its samples: train ``model`` on ``data``, then call `field`.

    Parameters
    ----------
    signal : Signal
        From `kronfield.files.read`. Grids must be complete. Rows of a table without a value are
        left out.

    Attributes
    ----------
    counts : list of int
        The number of samples on each axis; for points, the default number of features.
    model : CoordinateMLP
        The network, after a call of `build`.
    data : tuple
        The argument ``data`` of `kronfield.nn.train`.
    scale : float
        The number by which the values are divided for training.
    """

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        points = signal.points
        self._samples = _grid_samples(signal) if points is None else _point_samples(points, signal)
        self.counts = self._samples.counts
        largest = float(np.abs(self._samples.values).max())
        low, high = defaults.DEFAULT.signals.network_range
        self.scale = 1.0 if low < largest <= high else largest or 1.0
        self._values = self._samples.values / self.scale

    def build(self, encoding: Encoding, depth: int, width: int, *, seed: int = 0) -> Any:
        """Return the network; the seed sets its initial weights."""
        import torch

        from kronfield.nn import CoordinateMLP

        out = self._values.shape[-1] if self.signal.channels else 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = CoordinateMLP(encoding, depth, width, out, domain=self._samples.domain)
        return self.model

    @property
    def data(self) -> tuple[Any, Any]:
        """The positions and the scaled values."""
        from kronfield.nn import Grid

        axes, points = self._samples.axes, self._samples.points
        return (Grid(*(axes or ())) if points is None else points), self._values

    def field(self, report: Any = None) -> Any:
        """Return the trained network as a field, in the units of the values."""
        from kronfield.nn import as_field

        if self.scale != 1:
            state = self.model.state_dict()
            last = f"rest.{len(self.model.rest) - 1}." if self.model.depth else "first."
            for name in ("weight", "bias"):
                if last + name in state:
                    state[last + name].mul_(self.scale)  # in place: changes the network
            self.scale = 1.0
        return as_field(
            self.model,
            domain=self._samples.ends,
            axes=self._samples.axes,
            channels=self.signal.channels,
            report=report,
            info=self._described().to_dict(),
        )

    def _described(self) -> Description:
        known = replace(self.signal.description, range=value_range(self.signal.values))
        multiplied = known.has_alpha and self.signal.points is None
        return replace(known, multiplied=True) if multiplied else known
