"""The playground: a page on this machine that shows what encodings do to pictures and points."""

from kronfield.play.server import Playground

__all__ = ["Playground"]
