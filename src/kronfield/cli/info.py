"""``kronfield info``: describe a saved field."""

from __future__ import annotations

from pathlib import Path

import click

from kronfield.cli.common import PATH, Output, load_field, speech_options


@click.command(
    "info",
    short_help="Describe a field.",
    epilog="""\b
Examples:
  kronfield info photo.field
  kronfield info clip.field --json
""",
)
@click.argument("path", metavar="FIELD", type=PATH)
@speech_options
def command(path: Path, out: Output) -> None:
    """Print what a field is, how it was made, its stable ranks, and its size on disk.

    The size is compared with that of the samples.
    """
    from kronfield.cli.printing import print_facts
    from kronfield.signals.facts import field_facts, told_facts

    field = load_field(path, out)
    facts = field_facts(field, path=path)
    if not out.as_json and not out.quiet:
        print_facts(told_facts(facts))
    out.result(field=path, **facts)
