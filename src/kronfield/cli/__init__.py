"""The command line; the only part that prints. Each command is a file, loaded when it is called."""

from __future__ import annotations

import click

import kronfield as kf
from kronfield.cli.common import Commands

# In the order of the help; each is a module here with a ``command``. A new one is a line here and a
# file.
COMMANDS = (
    "fit",
    "render",
    "info",
    "resize",
    "inpaint",
    "denoise",
    "compare",
    "train",
    "analyze",
    "reproduce",
    "demo",
    "completion",
)


@click.group(
    cls=Commands,
    names=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  kronfield fit photo.png
  kronfield render photo.field -o large.png --scale 4
  kronfield resize photo.png --scale 2
""",
)
@click.version_option(kf.__version__, prog_name="kronfield")
def main() -> None:
    """Turn samples of a signal into a continuous field."""
