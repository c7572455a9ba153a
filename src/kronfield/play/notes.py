"""What the library warns of during the work for a page."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from kronfield._core.errors import KronfieldWarning


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Yield a list that holds the texts of kronfield's warnings when the work has ended.

    Examples
    --------
    >>> import warnings
    >>> from kronfield._core.errors import KronfieldWarning
    >>> with noted() as texts:
    ...     warnings.warn("Use more samples.", KronfieldWarning)
    >>> texts
    ['Use more samples.']
    """
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    ours = {str(one.message) for one in caught if issubclass(one.category, KronfieldWarning)}
    texts += sorted(ours)
