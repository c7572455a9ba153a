"""``kronfield completion``: a script for completion of commands and options."""

from __future__ import annotations

import click


@click.command(
    "completion",
    short_help="Print a script that completes commands in a shell.",
    epilog="""\b
Examples:
  kronfield completion bash
  kronfield completion zsh
  kronfield completion fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    For bash, add this line to ~/.bashrc: eval "$(kronfield completion bash)". For zsh, add the same
    line with zsh to ~/.zshrc. For fish, write the output to
    ~/.config/fish/completions/kronfield.fish.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    complete = found(ctx.find_root().command, {}, "kronfield", "_KRONFIELD_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
