"""The base classes of kronfield's errors and warnings.

This module imports nothing, because the command line loads it early.
"""

from __future__ import annotations


class KronfieldError(Exception):
    """An error whose message is written for users: it states the problem and the remedy.

    Each subclass also derives from a built-in exception (`ValueError`, `RuntimeError`), so that
    code which catches the built-in exception catches it too.
    """


class KronfieldWarning(UserWarning):
    """A warning whose text is written for users; the command line prints it in one line."""
