"""Copies of objects that share attributes which are large and never change."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, TypeVar

from kronfield._core.arrays import InputError, problem

Copied = TypeVar("Copied")


def shared_copy(
    one: Copied, memo: dict[int, Any] | None = None, shared: Collection[str] = ()
) -> Copied:
    """Return a shallow copy, or with ``memo`` a deep copy except for the ``shared`` attributes."""
    new = object.__new__(type(one))
    if memo is None:
        new.__dict__.update(one.__dict__)
        return new
    memo[id(one)] = new
    for name, value in one.__dict__.items():
        new.__dict__[name] = value if name in shared else copy.deepcopy(value, memo)
    return new


class NoSamplesError(InputError):
    """A pickled field is asked for something that needs its samples."""


class NeedsSamples:
    """A placeholder in a pickled field for an object that needs the samples.

    Parameters
    ----------
    what : str
        The name of the unavailable operation.
    source : str
        The object that offers the operation.
    remedy : str
        What the user can do instead.
    """

    def __init__(self, what: str, source: str, remedy: str) -> None:
        self.what, self.source, self.remedy = what, source, remedy

    def error(self) -> NoSamplesError:
        """Return the error to raise when the operation is called."""
        error = problem(
            self.what,
            "a pickled field, which does not hold its samples",
            self.source,
            self.remedy,
        )
        return NoSamplesError(str(error))

    def without_samples(self) -> NeedsSamples:
        """Return itself."""
        return self
