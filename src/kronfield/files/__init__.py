"""Files in and out; file libraries are imported only here, on use.

`read` turns any of the formats into a `Signal`; `write` and `writer` turn arrays into files.
"""

from kronfield.files.description import Description
from kronfield.files.images import to_bytes, write_image
from kronfield.files.kinds import kind_of
from kronfield.files.reading import announced_shape, read, read_columns
from kronfield.files.samples import sample_clip, sample_photograph
from kronfield.files.signal import Signal
from kronfield.files.writing import write, writer

__all__ = [
    "Description",
    "Signal",
    "announced_shape",
    "kind_of",
    "read",
    "read_columns",
    "sample_clip",
    "sample_photograph",
    "to_bytes",
    "write",
    "write_image",
    "writer",
]
