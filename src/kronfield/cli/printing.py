"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int, bold: int = -1
) -> None:
    """Print rows under headings.

    The first ``left`` columns hold text, the others numbers. Row ``bold`` is printed in bold.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for i, heading in enumerate(headings):
        if i < left:
            table.add_column(heading, no_wrap=i == 0, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for i, row in enumerate(rows):
        table.add_row(*row, style="bold" if i == bold else None)
    console = Console()
    console.width = max(console.width, 110) if not console.is_terminal else console.width
    console.print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and texts in two columns."""
    import click

    pairs = list(facts)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        first, *more = text.splitlines() or [""]
        click.echo(f"{name:<{width}}  {first}")
        for line in more:
            click.echo(f"{'':<{width}}  {line}")
