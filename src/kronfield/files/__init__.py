"""Reading and writing files; file libraries are imported only here, when they are used.

`read` returns a `Signal` from any supported format; `write` and `writer` write arrays to files.
"""

from kronfield.files.description import Description
from kronfield.files.images import to_bytes, write_image
from kronfield.files.kinds import kind_of
from kronfield.files.reading import announced_shape, read, read_columns
from kronfield.files.samples import sample_clip, sample_photograph
from kronfield.files.signal import Signal
from kronfield.files.video import VideoFrames, video_frames
from kronfield.files.writing import write, writer

__all__ = [
    "Description",
    "Signal",
    "VideoFrames",
    "announced_shape",
    "kind_of",
    "read",
    "read_columns",
    "sample_clip",
    "sample_photograph",
    "to_bytes",
    "video_frames",
    "write",
    "write_image",
    "writer",
]
