"""How much the tests do: a short form for every change, a long one with KRONFIELD_LONG_TESTS."""

import os

LONG = "KRONFIELD_LONG_TESTS" in os.environ


def examples(count):
    """Return how many examples of a property are tried: a third of them in the short form."""
    return count if LONG else max(5, count // 3)
