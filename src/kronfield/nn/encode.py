"""Encodings as PyTorch modules: the same formulas on tensors that may require gradients."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterable, Sequence
from typing import Any

import array_api_compat.torch
import torch
from torch import Tensor, nn

from kronfield._core.arrays import describe, problem, real
from kronfield.embedders import (
    Embedder,
    FourierEmbedder,
    Gaussian,
    Impulse,
    LocalEmbedder,
    Rectangle,
    ShiftedBasis,
    Sine,
    TensionSpline,
    Triangle,
    periodic_form,
)
from kronfield.encoding import Concatenated, Encoding, Kronecker
from kronfield.nn.state import Described

# The parameters that can be learned, and the embedders that have them.
LEARNABLE: dict[str, tuple[type[Embedder], ...]] = {
    "width": (Gaussian, Triangle),
    "centres": (Gaussian, Triangle, TensionSpline, ShiftedBasis),
    "frequencies": (FourierEmbedder, Sine),
}


def _as_tensor(value: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """Return a value as a tensor; a tensor keeps its gradient."""
    return (
        value.to(dtype=dtype, device=device)
        if isinstance(value, Tensor)
        else torch.asarray(value, dtype=dtype, device=device)
    )


# The array namespace of the formulas. sign() is replaced since that of array_api_compat writes NaN
# through a mask, which vmap does not support; asarray() is replaced to keep gradients.
xp = types.ModuleType("kronfield.nn.torch_namespace")
vars(xp).update({**vars(array_api_compat.torch), "sign": torch.sign, "asarray": _as_tensor})

Domain = Sequence[Sequence[float]]


class Encode(Described):
    """An encoding as a layer: points (..., D) in, features (..., size) out.

    Examples
    --------
    >>> import torch
    >>> import kronfield as kf
    >>> from kronfield.nn import Encode
    >>> encoding = kf.Concatenated(kf.Gaussian(64, 0.02), kf.Gaussian(64, 0.02))
    >>> encode = Encode(encoding, trainable=["width"])
    >>> encode(torch.rand(5, 7, 2)).shape
    torch.Size([5, 7, 128])
    >>> [name for name, _ in encode.named_parameters()]
    ['axes.0.log_width', 'axes.1.log_width']

    Parameters
    ----------
    encoding : Encoding or Embedder
        The encoding to compute. A Kronecker encoding is formed densely, with K_1 ... K_D features.
        `KroneckerLinear` is a linear layer on it that never forms it.
    trainable : list of str
        The parameters to learn with the network: "width" (Gaussian, Triangle; its logarithm is
        learned), "centres" (local embedders) and "frequencies" (Fourier, Sine).
    domain : sequence of (low, high), optional
        One pair per axis: the interval that is mapped to the unit interval of the embedders. By
        default (0, 1).
    periodic : sequence of float or None, optional
        The period of each axis, None where it does not wrap. The features close at the seam (see
        `Wrapped`), and the domain of the axis is one period, by default from 0 on.
    """

    def __init__(
        self,
        encoding: Encoding | Embedder,
        *,
        trainable: Iterable[str] = (),
        domain: Domain | None = None,
        periodic: Sequence[float | None] | None = None,
    ) -> None:
        super().__init__()
        self.encoding = as_encoding(encoding)
        if periodic is not None:
            self.encoding, domain = closed(self.encoding, domain, periodic)
        self.axes = axis_modules(self.encoding, trainable)
        self.place = Place(self.encoding.dimensions, domain)

    @property
    def size(self) -> int:
        """The number of features of a point."""
        return self.encoding.size

    def forward(self, points: Tensor) -> Tensor:
        """Return the features of ``points`` (..., D) as (..., size)."""
        units = self.place(points)
        before = units.shape[:-1]
        return combine(self.encoding, self.axes, units.reshape(-1, units.shape[-1])).reshape(
            *before, self.size
        )

    def extra_repr(self) -> str:
        """Return the encoding, for the representation of the module."""
        return repr(self.encoding)


class EncodeAxis(nn.Module):
    """One embedder on tensors, with its learned parameters."""

    frequencies: Tensor

    def __init__(self, embedder: Embedder, trainable: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.embedder = embedder
        self.learned = sorted(name for name in trainable if isinstance(embedder, LEARNABLE[name]))
        if "width" in self.learned:
            assert isinstance(embedder, Gaussian | Triangle)
            self.log_width = nn.Parameter(torch.tensor(float(embedder.width)).log())
        if "centres" in self.learned:
            assert isinstance(embedder, LocalEmbedder)
            self.centres = nn.Parameter(torch.tensor(embedder.centres, dtype=torch.float32))
        if isinstance(embedder, FourierEmbedder):
            b = torch.tensor(embedder.frequency_vectors, dtype=torch.float64)
            if "frequencies" in self.learned:
                self.frequencies = nn.Parameter(b.float())
            else:
                self.register_buffer("frequencies", b, persistent=False)
        elif "frequencies" in self.learned:
            assert isinstance(embedder, Sine)
            self.log_frequency = nn.Parameter(torch.tensor(float(embedder.frequency)).log())

    def _apply(self, fn: Any, recurse: bool = True) -> EncodeAxis:
        """Move or cast the module, but keep fixed frequencies in full precision.

        Rounding them to half precision would shift the phases.
        """
        super()._apply(fn, recurse)
        if isinstance(self.embedder, FourierEmbedder) and "frequencies" not in self.learned:
            device = self.frequencies.device
            # MPS has no float64.
            kind = torch.float32 if device.type == "mps" else torch.float64
            self.frequencies = torch.tensor(
                self.embedder.frequency_vectors, dtype=kind, device=device
            )
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (P, K) of positions (P,).

        Positions are (P, D) for frequencies of several dimensions. Half precision is computed in
        float32 and cast back.
        """
        if not x.is_floating_point():
            raise problem(
                "points",
                describe(x),
                "a tensor of floats",
                "Convert it: points.float().",
                TypeError,
            )
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        with torch.autocast(x.device.type, enabled=False):
            return self._settings(wide).features(xp, wide, 0).to(x.dtype)

    def window(self, tolerance: float, *, rim: bool) -> tuple[float, int] | None:
        """Return the window of `LocalEmbedder.window`; None if all features are needed."""
        if self.learned or not isinstance(self.embedder, LocalEmbedder):
            return None
        found = self.embedder.window(tolerance, rim=rim)
        return None if found is None or found[1] >= self.embedder.size else found

    def nearby(self, x: Tensor, begin: float, count: int) -> tuple[Tensor, Tensor]:
        """Return the indices (P, count) of the features near positions (P,), and their values."""
        assert isinstance(self.embedder, LocalEmbedder)
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        with torch.autocast(x.device.type, enabled=False):
            first, values = self.embedder.nearby(xp, wide, begin, count)
        index = first.long()[:, None] + torch.arange(count, device=x.device)
        return index, values.to(x.dtype)

    def _settings(self, like: Tensor) -> Embedder:
        """Return the embedder with tensors in place of its learned parameters."""
        if not self.learned and not isinstance(self.embedder, FourierEmbedder):
            return self.embedder
        live = copy.copy(self.embedder)
        if "width" in self.learned:
            object.__setattr__(live, "width", self.log_width.to(like.dtype).exp())
        if "centres" in self.learned:
            object.__setattr__(live, "_centres", _Fixed(self.centres.to(like.dtype)))
        if isinstance(live, FourierEmbedder):
            object.__setattr__(live, "frequency_vectors", self.frequencies.to(like.dtype))
        elif "frequencies" in self.learned:
            object.__setattr__(live, "frequency", self.log_frequency.to(like.dtype).exp())
        return live


class _Fixed:
    """Learned centres, in place of the method of an embedder that computes them."""

    def __init__(self, centres: Tensor) -> None:
        self.centres = centres

    def __call__(self, xp: Any, like: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        return self.centres[start:stop]


class Place(nn.Module):
    """The map from positions in a domain to the unit interval of the embedders."""

    low: Tensor
    length: Tensor

    def __init__(self, dimensions: int, domain: Domain | None) -> None:
        super().__init__()
        self.dimensions = dimensions
        pairs = [(0.0, 1.0)] * dimensions if domain is None else [tuple(pair) for pair in domain]
        if len(pairs) != dimensions or any(len(pair) != 2 for pair in pairs):
            raise problem(
                "domain",
                describe(domain),
                f"{dimensions} pairs (low, high)",
                "Pass one pair per axis.",
            )
        remedy = "Pass finite ends, the lower first."
        ends = [
            tuple(real("domain", end, low=-1e300, high=1e300, remedy=remedy) for end in pair)
            for pair in pairs
        ]
        if any(low >= high for low, high in ends):
            raise problem("domain", describe(domain), "low < high on every axis", remedy)
        self.domain = ends
        self.unit = domain is None

    def forward(self, points: Tensor) -> Tensor:
        """Return positions (..., D) in units."""
        if not isinstance(points, Tensor) or points.ndim < 1 or points.shape[-1] != self.dimensions:
            raise problem(
                "points",
                describe(points),
                f"a tensor of shape (..., {self.dimensions})",
                "Coordinates are on the last axis.",
            )
        if self.unit:
            return points
        return torch.stack([self.axis(points[..., i], i) for i in range(self.dimensions)], dim=-1)

    def axis(self, x: Tensor, axis: int) -> Tensor:
        """Return positions on one axis in units."""
        if self.unit:
            return x
        low, high = self.domain[axis]
        return (x - low) / (high - low)


def closed(
    encoding: Concatenated | Kronecker, domain: Domain | None, periodic: Sequence[float | None]
) -> tuple[Concatenated | Kronecker, Domain]:
    """Return an encoding with features that close on periodic axes, and its domain."""
    D = encoding.dimensions
    aligned = isinstance(encoding, Kronecker) or (
        encoding.directions is None and len(encoding.embedders) == D
    )
    if not aligned:
        raise problem(
            "periodic",
            "periods of an encoding along other directions",
            "one embedder per axis",
            "Use Kronecker, or Concatenated without directions.",
        )
    if len(periodic) != D or not all(one is None or float(one) > 0 for one in periodic):
        raise problem("periodic", describe(periodic), f"{D} periods or None", "One per axis.")
    pairs = [(0.0, 1.0 if p is None else float(p)) for p in periodic] if domain is None else domain
    for pair, period in zip(pairs, periodic, strict=False):
        if period is not None and abs(pair[1] - pair[0] - period) > 1e-9 * period:
            raise problem(
                "domain", tuple(pair), f"a domain of one period, {period:g}", "Change one of them."
            )
    embedders = [
        emb if period is None else periodic_form(emb)
        for emb, period in zip(encoding.embedders, periodic, strict=True)
    ]
    return type(encoding)(*embedders), pairs


def as_encoding(encoding: Any) -> Concatenated | Kronecker:
    """Return an encoding; a single embedder becomes an encoding of one axis."""
    if isinstance(encoding, Embedder):
        return Concatenated(encoding)
    if not isinstance(encoding, Concatenated | Kronecker):
        raise problem(
            "encoding",
            describe(encoding),
            "an encoding or an embedder",
            "For example: Kronecker(...).",
            TypeError,
        )
    return encoding


def axis_modules(encoding: Encoding, trainable: Iterable[str]) -> nn.ModuleList:
    """Return one module per embedder; reject parameters that none of them can learn."""
    names = [trainable] if isinstance(trainable, str) else list(trainable)
    for name in names:
        if name not in LEARNABLE:
            raise problem(
                "trainable",
                repr(name),
                f"of {', '.join(LEARNABLE)}",
                "Leave it out if it should not be learned.",
            )
        if not any(isinstance(emb, LEARNABLE[name]) for emb in encoding.embedders):
            kinds = sorted({type(emb).__name__ for emb in encoding.embedders})
            jumps = any(isinstance(emb, Rectangle | Impulse) for emb in encoding.embedders)
            remedy = (
                "Features that jump have no gradient: use Triangle or Gaussian."
                if jumps
                else "Leave it out."
            )
            raise problem(
                "trainable",
                f"{name!r} of {', '.join(kinds)}",
                "a parameter of these embedders",
                remedy,
            )
    return nn.ModuleList(EncodeAxis(emb, frozenset(names)) for emb in encoding.embedders)


def combine(encoding: Encoding, axes: nn.ModuleList, units: Tensor) -> Tensor:
    """Return the features (P, size) of positions (P, D) in units."""
    if isinstance(encoding, Concatenated):
        return torch.cat(
            [axis(x) for axis, x in zip(axes, encoding.seen(units), strict=True)], dim=1
        )
    dense = axes[0](units[:, 0])
    for i, axis in enumerate(axes[1:], start=1):
        # Each row is the outer product of the rows of both factors (face-splitting product).
        dense = (dense[:, :, None] * axis(units[:, i])[:, None, :]).flatten(1)
    return dense
