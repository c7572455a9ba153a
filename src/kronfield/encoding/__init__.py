"""Combination of axes: encodings of points, mode-n products, and blending."""

from kronfield.encoding.encodings import Concatenated, Encoding, Kronecker

__all__ = ["Concatenated", "Encoding", "Kronecker"]
