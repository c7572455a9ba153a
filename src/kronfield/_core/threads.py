"""Threads: BLAS is limited to one thread, and kronfield distributes work over its own threads.

BLAS starts its threads for every product. The products here are small and many, and the threads of
one product busy-wait for the next product. If the machine has other work to do, a fit then takes
many times as long. Therefore BLAS uses one thread during a call into kronfield, and products are
divided into parts for a pool of threads. The division does not depend on the number of threads, so
the results do not depend on it either, bit for bit.
"""

from __future__ import annotations

import concurrent.futures
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


# Limit BLAS to one thread
# ------------------------------------------------------------------------------------------


class _Blas:
    """The BLAS libraries of this process, and the number of active calls into kronfield.

    Most libraries have one thread limit for the whole process: the first call that enters sets it
    to one, and the last call that leaves restores it. Libraries that use OpenMP have a separate
    limit for every calling thread.
    """

    # Modules that load their own BLAS: when one of them is loaded, libraries are looked up again.
    BRING_BLAS = (
        "numpy",
        "scipy.linalg",
        "scipy.sparse",
        "scipy.sparse.linalg",
        "scipy.spatial",
        "torch",
    )

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._libraries: list[Any] = []
        self._seen: tuple[bool, ...] = ()
        self._modules = 0  # the number of loaded modules at the last check
        self._depth = 0  # the number of threads that are inside a call
        self._before: list[tuple[Any, int]] = []
        self._limit_of_user: int | None = None
        self._own = threading.local()

    def _look_up(self) -> None:
        """Find the loaded libraries, which takes milliseconds."""
        from threadpoolctl import ThreadpoolController

        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers

    def _is_known(self) -> bool:
        """Return whether no module that brings a BLAS was loaded since the last look-up."""
        count = len(sys.modules)
        if count == self._modules:
            return True
        self._modules = count
        return self._seen == self._loaded()

    def _loaded(self) -> tuple[bool, ...]:
        return tuple([name in sys.modules for name in self.BRING_BLAS])

    def _refresh(self) -> None:
        loaded = self._loaded()
        if loaded != self._seen:
            self._look_up()
            self._seen = loaded

    def enter(self) -> None:
        """Begin a call: limit every library to one thread.

        A call within a call of the same thread finds the limits set, and is only counted.
        """
        depth = getattr(self._own, "depth", 0)
        if depth and self._is_known():
            self._own.depth = depth + 1
            return
        with self._lock:
            self._refresh()
            counts = self._limit()
            if not depth:
                if self._depth == 0:
                    self._limit_of_user = min(counts, default=None)
                self._depth += 1
        self._own.depth = depth + 1

    def _limit(self) -> list[int]:
        """Limit every library to one thread, and return the numbers of threads that they had."""
        own, counts = self._own.__dict__.setdefault("before", []), []
        for library in self._libraries:
            count = library.get_num_threads()
            if count is not None:
                counts.append(count)
                if count != 1:
                    (own if _per_thread(library) else self._before).append((library, count))
                    _set_threads(library, 1)
        return counts

    def leave(self) -> None:
        """End a call: the last call to end restores the limits of all libraries."""
        # already 0 if the process was forked during a call
        self._own.depth = max(0, getattr(self._own, "depth", 0) - 1)
        if self._own.depth:
            return
        _set_back(self._own.__dict__.pop("before", []))
        with self._lock:
            self._depth = max(0, self._depth - 1)  # 0 after a fork, as above
            if self._depth == 0:
                _set_back(self._before)
                self._before = []

    def loaded(self) -> None:
        """Register that a library was loaded, possibly during a call."""
        with self._lock:
            self._look_up()
            if self._depth:
                self._limit()

    def _fewest(self) -> int | None:
        counts = [library.get_num_threads() for library in self._libraries]
        return min((count for count in counts if count is not None), default=None)

    def allowed(self) -> int | None:
        """Return the number of threads that the user allows for BLAS; None if it is unknown."""
        with self._lock:
            self._refresh()
            return self._limit_of_user if self._depth else self._fewest()

    def forked(self) -> None:
        """Reset in a forked child, where a thread that no longer exists may hold the lock."""
        before = self._before
        self.__init__()  # type: ignore[misc]
        _set_back(before)


def _per_thread(library: Any) -> bool:
    """Return whether a library has a separate thread limit for every calling thread."""
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Any, count: int) -> None:
    """Set the number of threads of a library, from any calling thread.

    From version 3.8 on, threadpoolctl obeys only the first thread that sets a limit. This function
    releases that claim before and after each change; a lock synchronises the threads instead.
    """
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(count)
    if release is not None:
        release()


def _set_back(before: list[tuple[Any, int]]) -> None:
    for library, count in before:
        _set_threads(library, count)


_blas = _Blas()
_alone = contextvars.ContextVar("alone", default=False)  # whether work is not divided
_scipy_is_known = False  # whether the BLAS of SciPy was looked up after SciPy was loaded


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread within this context; the last context to end restores the limits.

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
    """Return ``function`` wrapped in `one_blas_thread`; for public calls that multiply matrices."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        _blas.enter()
        try:
            return function(*args, **options)
        finally:
            _blas.leave()

    return wrapped  # type: ignore[return-value]


def scipy_linalg() -> Any:
    """Return `scipy.linalg`, which loads its own BLAS, with the thread limit of the active call."""
    global _scipy_is_known
    import scipy.linalg

    if not _scipy_is_known:
        _blas.loaded()
        _scipy_is_known = True
    return scipy.linalg


# The thread pool
# ------------------------------------------------------------------------------------------


def threads() -> int:
    """Return the number of threads to use: the cores of the process, or the limit of BLAS if lower.

    Therefore `OPENBLAS_NUM_THREADS`, `OMP_NUM_THREADS` and `threadpoolctl.threadpool_limits` also
    apply to kronfield.
    """
    # a thread of the pool starts no further threads
    alone = threading.current_thread().name.startswith(_PREFIX) or _alone.get()
    return 1 if alone else _allowed()


def cores() -> int:
    """Return the number of processors that this process may use."""
    # not every system can restrict a process to some processors
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _allowed() -> int:
    allowed = _blas.allowed()
    return cores() if allowed is None else max(1, min(cores(), allowed))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Do all work within this context in the thread that calls, which others have started.

    Examples
    --------
    >>> with one_thread():
    ...     threads()
    1
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@functools.lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=_PREFIX)


# A forked child has none of the pool's threads, and a lock may be held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_blas.forked)


def in_threads(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return work(part) for every part, in order, computed by several threads.

    A call from a thread of the pool computes the parts one after the other.

    Examples
    --------
    >>> in_threads(lambda part: part**2, [1, 2, 3])
    [1, 4, 9]
    """
    count = min(threads(), len(parts)) if len(parts) > 1 else 1
    if count == 1:
        return [work(part) for part in parts]
    results: list[Any] = [None] * len(parts)
    # next() is atomic, so that threads can share the iterator: one task per thread, not per part
    left = iter(enumerate(parts))
    failed = threading.Event()

    def take() -> None:
        for i, part in left:
            if failed.is_set():
                return
            try:
                results[i] = work(part)
            except BaseException:
                failed.set()
                raise

    others = _submitted(take, count - 1)
    try:
        take()
    finally:
        # Tasks that have not begun have no work left. Wait for the others, even after an error.
        begun = [other for other in others if not other.cancel()]
        concurrent.futures.wait(begun)
    for other in begun:
        other.result()
    return results


def _submitted(take: Callable[[], None], count: int) -> list[concurrent.futures.Future[None]]:
    """Submit ``take`` to ``count`` threads, or to none if Python is shutting down."""
    try:
        # each thread runs in a copy of the context, so that numpy.errstate also applies there
        return [_pool(count + 1).submit(contextvars.copy_context().run, take) for _ in range(count)]
    except RuntimeError:
        return []
