"""How are axes combined? Encodings of points, mode-n products, blending."""

from kronfield.encoding.encodings import Concatenated, Encoding, Kronecker

__all__ = ["Concatenated", "Encoding", "Kronecker"]
