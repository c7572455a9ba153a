"""Coordinate networks for what files hold, in the coordinates that `fit_signal` uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kronfield._core.arrays import problem
from kronfield._core.frames import sample_frame
from kronfield.analysis.presets import preset
from kronfield.embedders import Embedder
from kronfield.encoding import Concatenated, Encoding, Kronecker
from kronfield.files import Signal
from kronfield.signals.fit import multiplied_colours, value_range

# The paper's settings for a simple encoding: features per direction, and their width.
SIMPLE_SIZE, SIMPLE_WIDTH, SIMPLE_DEPTH = 128, 0.006, 4
# Values whose largest is between these are learned as they are; others are scaled, as networks learn at the pace of 1.
NEAR_ONE = (0.1, 1.0)
# The most features of an axis that scattered points get unasked.
MOST_FEATURES = 256


def paper_encoding(kind: str, counts: list[int], embedders: list[Embedder] | None = None) -> Encoding:
    """Return the encoding of a network for axes of so many samples, by default the paper's.

    Examples
    --------
    >>> from kronfield.signals.networks import paper_encoding
    >>> paper_encoding("kronecker", [64, 32]).shape, paper_encoding("simple", [64, 32]).size
    ((64, 32), 512)

    Parameters
    ----------
    kind : "kronecker" or "simple"
        All combinations of the features of the axes, or features of axes and diagonals side by side.
    counts : list of int
        Samples on each axis.
    embedders : list of Embedder, optional
        One per axis; the first alone is used for a simple encoding. By default Gaussians: one per sample and as wide as
        one, since gradient descent wants features that overlap; or for a simple encoding 128 of width 0.006.
    """
    if kind == "kronecker":
        return Kronecker(*(embedders or [preset("gaussian", max(2, n), width=1 / max(2, n)) for n in counts]))
    if kind != "simple":
        raise problem("encoding", repr(kind), "kronecker or simple", "Choose one.")
    embedder = embedders[0] if embedders else preset("gaussian", SIMPLE_SIZE, width=SIMPLE_WIDTH)
    return Concatenated.with_diagonals(embedder, len(counts))


class SignalNetwork:
    """A network and its samples: train ``model`` on ``data``, then ask for the ``field``.

    Parameters
    ----------
    signal : Signal
        From `kronfield.files.read`; grids must be complete, rows of a table without a value are left out.

    Attributes
    ----------
    counts : list of int
        Samples on each axis, or for points about as many as there are features worth having.
    model : CoordinateMLP
        Once `build` was called.
    data : tuple
        What `kronfield.nn.train` takes.
    scale : float
        What values were divided by.
    """

    def __init__(self, signal: Signal) -> None:
        values = signal.values
        self.signal = signal
        self._known = replace(signal.description, range=value_range(values))
        if signal.points is None:
            if signal.description.has_alpha:
                values, self._known = multiplied_colours(values), replace(self._known, multiplied=True)
            shape = values.shape[:-1] if signal.channels else values.shape
            axes = signal.axes or tuple(np.arange(n, dtype=np.float64) for n in shape)
            frames = [sample_frame(x) for x in axes]
            self._axes: list[Any] | None = list(axes)
            self._ends = [(frame.low, frame.high) for frame in frames]
            self._domain = [(frame.origin, frame.origin + frame.length) for frame in frames]
            self.counts = list(shape)
            self._points = None
        else:
            there = np.isfinite(values).all(axis=1) if signal.channels else np.isfinite(values)
            self._points, values = signal.points[there], values[there]
            ends = zip(self._points.min(axis=0), self._points.max(axis=0), strict=True)
            self._axes, self._ends = None, [(float(low), float(high)) for low, high in ends]
            if any(low >= high for low, high in self._ends):
                got = "points with the same coordinate on an axis"
                raise problem("points", got, "a spread on every axis", "Leave that coordinate out.")
            D = self._points.shape[1]
            self._domain = self._ends
            self.counts = [min(MOST_FEATURES, max(4, round(float(len(values)) ** (1 / D))))] * D
        largest = float(np.abs(values).max())
        self.scale = 1.0 if NEAR_ONE[0] < largest <= NEAR_ONE[1] else largest or 1.0
        self._values = values / self.scale

    def build(self, encoding: Encoding, depth: int, width: int, *, seed: int = 0) -> Any:
        """Return the network, with first weights by the seed."""
        import torch

        from kronfield.nn import CoordinateMLP

        out = self._values.shape[-1] if self.signal.channels else 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = CoordinateMLP(encoding, depth, width, out, domain=self._domain)
        return self.model

    @property
    def data(self) -> tuple[Any, Any]:
        """Positions and values."""
        from kronfield.nn import Grid

        return (Grid(*(self._axes or ())) if self._points is None else self._points), self._values

    def field(self, report: Any = None) -> Any:
        """Return the trained network as a field, in the units of the values."""
        from kronfield.nn import as_field

        if self.scale != 1:
            state = self.model.state_dict()
            last = f"rest.{len(self.model.rest) - 1}." if self.model.depth else "first."
            for name in ("weight", "bias"):
                if last + name in state:
                    state[last + name].mul_(self.scale)  # the network's own memory
            self.scale = 1.0
        return as_field(
            self.model,
            domain=self._ends,
            axes=self._axes,
            channels=self.signal.channels,
            report=report,
            info=self._known.to_dict(),
        )
