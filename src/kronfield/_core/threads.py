"""How many threads work, and on what: BLAS gets one, and work is shared out among threads of our own.

BLAS starts its threads for every product. Ours are small and many, and the threads of one product wait busily for the
next, so that beside other work on the machine a fit takes many times as long. Here BLAS works with one thread as long as a
call into kronfield lasts, and products are cut into parts that threads of our own take in turn. How work is cut never
depends on the number of threads, so results do not either, bit for bit.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Part = TypeVar("Part")

_PREFIX = "kronfield"


# One thread of BLAS ---------------------------------------------------------------------------------------------------


class _Blas:
    """The BLAS libraries of this process, and how many calls into kronfield are under way."""

    # Modules that bring a BLAS of their own: the libraries are looked up anew when one is first loaded.
    BRING_BLAS = ("numpy", "scipy.linalg", "scipy.sparse.linalg", "torch")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libraries: list[Any] = []
        self._seen: tuple[bool, ...] = ()
        self._depth = 0
        self._before: list[tuple[Any, int]] = []

    def _refresh(self) -> None:
        """Look the libraries up, which takes milliseconds, if a module that brings one was loaded since."""
        loaded = tuple(name in sys.modules for name in self.BRING_BLAS)
        if loaded != self._seen:
            from threadpoolctl import ThreadpoolController

            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            self._seen = loaded

    def enter(self) -> None:
        with self._lock:
            self._depth += 1
            self._limit()

    def _limit(self) -> None:
        self._refresh()
        for library in self._libraries:
            count = library.get_num_threads()
            if count is not None and count != 1:
                self._before.append((library, count))
                library.set_num_threads(1)

    def loaded(self) -> None:
        """Take note that a library may have been loaded within a call."""
        with self._lock:
            if self._depth:
                self._limit()

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                for library, count in self._before:
                    library.set_num_threads(count)
                self._before = []

    def allowed(self) -> int | None:
        """Return how many threads the user lets BLAS have; None if no library says."""
        with self._lock:
            self._refresh()
            before = [count for _, count in self._before]
            if self._depth and before:
                return max(before)
            counts = [library.get_num_threads() for library in self._libraries]
            return max((count for count in counts if count is not None), default=None)

    def forked(self) -> None:
        """Start anew in a forked child, where the lock may be held by a thread that is not there."""
        for library, count in self._before:
            library.set_num_threads(count)
        self.__init__()  # type: ignore[misc]


_blas = _Blas()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Have BLAS work with one thread within; what was set before comes back when the last such call ends.

    Examples
    --------
    >>> import numpy as np
    >>> with one_blas_thread():
    ...     product = np.ones((50, 50)) @ np.ones((50, 50))
    """
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


def with_one_blas_thread(function: Function) -> Function:
    """Return a function that runs under `one_blas_thread`: for every public call that multiplies matrices."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        with one_blas_thread():
            return function(*args, **options)

    return wrapped  # type: ignore[return-value]


def scipy_linalg() -> Any:
    """Return `scipy.linalg`, which brings a BLAS of its own, with one thread while a call into kronfield lasts."""
    import scipy.linalg

    _blas.loaded()
    return scipy.linalg


# Threads of our own -----------------------------------------------------------------------------------------------------


def threads() -> int:
    """Return how many threads may work here: as many as the process has cores, or fewer if BLAS is limited to fewer.

    So `OPENBLAS_NUM_THREADS`, `OMP_NUM_THREADS` and `threadpoolctl.threadpool_limits` hold for kronfield too.
    """
    return 1 if threading.current_thread().name.startswith(_PREFIX) else _allowed()  # a thread of ours has no others


def _allowed() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = _blas.allowed()
    return cores if allowed is None else max(1, min(cores, allowed))


@functools.lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=_PREFIX)


if hasattr(os, "register_at_fork"):  # the threads of a pool do not come along, and a lock may be held
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_blas.forked)


def in_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return work(part) for every part, in order: by several threads, or in turn if this is one of them.

    Examples
    --------
    >>> in_threads(lambda part: part**2, [1, 2, 3])
    [1, 4, 9]
    """
    count = min(threads(), len(parts)) if len(parts) > 1 else 1
    if count == 1:
        return [work(part) for part in parts]
    results: list[Any] = [None] * len(parts)
    left = iter(enumerate(parts))  # next() is atomic: each thread takes what is left, so there is one wait, not one a part

    def take() -> None:
        for i, part in left:
            results[i] = work(part)

    # a context of its own for each, so that numpy.errstate holds in threads too
    others = [_pool(count).submit(contextvars.copy_context().run, take) for _ in range(count - 1)]
    try:
        take()
    finally:
        for other in others:
            other.result()
    return results
