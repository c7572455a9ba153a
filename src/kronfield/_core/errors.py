"""The base class of kronfield's errors. It imports nothing, so the command line loads it early."""

from __future__ import annotations


class KronfieldError(Exception):
    """An error whose message is written for users: it states the problem and the remedy.

    Each subclass also derives from a built-in exception (`ValueError`, `RuntimeError`), so that
    code which catches the built-in exception catches it too.
    """
