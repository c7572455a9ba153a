"""The command line: the only package that prints. Each command is a module, loaded on use."""

from __future__ import annotations

import click

import kronfield as kf
from kronfield.cli.common import Commands

# The commands in the order of the help. Each is a module of this package with a ``command``. To add
# a command, add its module and its name.
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
    "play",
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
