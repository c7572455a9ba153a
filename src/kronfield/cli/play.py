"""``kronfield play``: serve the playground to a browser on this machine."""

from __future__ import annotations

import click

from kronfield.cli.common import SOURCE, Output, speech_options


@click.command(
    "play",
    short_help="Open the playground in a browser.",
    epilog="""\b
Examples:
  kronfield play
  kronfield play photo.png --no-browser
""",
)
@click.argument("file", metavar="[FILE]", type=SOURCE, required=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port. Default: the first free one from 8421 on; 0: any free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@speech_options
def command(file: str | None, port: int | None, no_browser: bool, out: Output) -> None:
    """Turn the width, and see rank, distance and picture at once.

    FILE is a picture or a table to start with. The page is served to this machine alone, at the
    address that is printed first, until Ctrl-C.
    """
    from kronfield.play import Playground

    playground = Playground(file, port)
    if out.as_json:
        out.result(address=playground.address, port=playground.port)
    else:
        click.echo(playground.address)
    out.say("Ctrl-C ends it.")
    if not no_browser:
        import threading
        import webbrowser

        # in a thread: a browser in the terminal is waited for
        opened = threading.Thread(
            target=webbrowser.open, args=(playground.ticket_address,), daemon=True
        )
        opened.start()
    playground.run()
