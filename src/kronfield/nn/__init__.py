"""Coordinate networks in PyTorch: encodings as modules, structured first layers, training."""

from kronfield.nn.concatenated import ConcatenatedLinear
from kronfield.nn.data import Samples
from kronfield.nn.encode import Encode
from kronfield.nn.factored import FactoredLinear
from kronfield.nn.field import NetworkField, as_field
from kronfield.nn.grid import Grid
from kronfield.nn.kronecker import KroneckerLinear
from kronfield.nn.mlp import CoordinateMLP
from kronfield.nn.run import DivergenceError, Epoch, Training
from kronfield.nn.training import train

__all__ = [
    "ConcatenatedLinear",
    "CoordinateMLP",
    "DivergenceError",
    "Encode",
    "Epoch",
    "FactoredLinear",
    "Grid",
    "KroneckerLinear",
    "NetworkField",
    "Samples",
    "Training",
    "as_field",
    "train",
]
