"""Copies of objects that share what is too large to copy and never changes."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, TypeVar

from kronfield._core.arrays import InputError, problem

Copied = TypeVar("Copied")


def shared_copy(
    one: Copied, memo: dict[int, Any] | None = None, shared: Collection[str] = ()
) -> Copied:
    """Return a copy: a shallow one, or with ``memo`` a deep one but for the attributes that are ``shared``."""
    new = object.__new__(type(one))
    if memo is None:
        new.__dict__.update(one.__dict__)
        return new
    memo[id(one)] = new
    for name, value in one.__dict__.items():
        new.__dict__[name] = value if name in shared else copy.deepcopy(value, memo)
    return new


class NeedsSamples:
    """What a pickled field has in place of something that needs the samples: an error that says so when it is used.

    Parameters
    ----------
    what : str
        What was asked for.
    source : str
        Where to get it.
    remedy : str
        What to do.
    """

    def __init__(self, what: str, source: str, remedy: str) -> None:
        self.what, self.source, self.remedy = what, source, remedy

    def error(self) -> InputError:
        """Return the error to raise."""
        return problem(
            self.what,
            "a field that was pickled, which does not hold its samples",
            self.source,
            self.remedy,
        )

    def without_samples(self) -> NeedsSamples:
        """Return itself."""
        return self
