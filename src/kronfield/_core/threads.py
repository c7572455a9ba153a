"""How many threads work, and on what: BLAS gets one, and work is shared out among threads of our own.

BLAS starts its threads for every product. Ours are small and many, and the threads of one product
wait busily for the next, so that beside other work on the machine a fit takes many times as long.
Here BLAS works with one thread as long as a call into kronfield lasts, and products are cut into
parts that threads of our own take in turn. How work is cut never depends on the number of threads,
so results do not either, bit for bit.
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


# One thread of BLAS
# ------------------------------------------------------------------------------------------


class _Blas:
    """The BLAS libraries of this process, and how many calls into kronfield are under way.

    Most libraries have one number of threads for the whole process: the first call that enters sets
    it to one, the last that leaves sets it back. Those that use OpenMP have a number for every
    thread that calls them.
    """

    # Modules that bring a BLAS of their own: the libraries are looked up anew when one is first
    # loaded.
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
        self._depth = 0
        self._before: list[tuple[Any, int]] = []
        self._limit_of_user: int | None = None
        self._own = threading.local()

    def _look_up(self) -> None:
        """Find the libraries, which takes milliseconds."""
        from threadpoolctl import ThreadpoolController

        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers

    def _refresh(self) -> None:
        loaded = tuple(name in sys.modules for name in self.BRING_BLAS)
        if loaded != self._seen:
            self._look_up()
            self._seen = loaded

    def enter(self) -> None:
        """Begin a call: from now on every library has one thread."""
        with self._lock:
            self._refresh()
            if self._depth == 0:
                self._limit_of_user = self._fewest()
            self._limit()
            self._depth += 1
        self._own.depth = getattr(self._own, "depth", 0) + 1

    def _limit(self) -> None:
        own = self._own.__dict__.setdefault("before", [])
        for library in self._libraries:
            count = library.get_num_threads()
            if count is not None and count != 1:
                (own if _per_thread(library) else self._before).append((library, count))
                _set_threads(library, 1)

    def leave(self) -> None:
        """End a call: the last one gives every library its threads back."""
        self._own.depth -= 1
        if self._own.depth == 0:
            _set_back(self._own.__dict__.pop("before", []))
        with self._lock:
            self._depth = max(0, self._depth - 1)  # a fork within a call starts at 0
            if self._depth == 0:
                _set_back(self._before)
                self._before = []

    def loaded(self) -> None:
        """Take note that a library was loaded, perhaps within a call."""
        with self._lock:
            self._look_up()
            if self._depth:
                self._limit()

    def _fewest(self) -> int | None:
        counts = [library.get_num_threads() for library in self._libraries]
        return min((count for count in counts if count is not None), default=None)

    def allowed(self) -> int | None:
        """Return how many threads the user lets BLAS have; None if no library says."""
        with self._lock:
            self._refresh()
            return self._limit_of_user if self._depth else self._fewest()

    def forked(self) -> None:
        """Start anew in a forked child, where the lock may be held by a thread that is not there."""
        before = self._before
        self.__init__()  # type: ignore[misc]
        self._own.depth = 1  # of a call in which the fork happened, if it did
        _set_back(before)


def _per_thread(library: Any) -> bool:
    """Tell whether a library has a number of threads for every thread that calls it."""
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Any, count: int) -> None:
    """Set the number of threads of a library, whichever thread of ours asks.

    threadpoolctl from 3.8 on listens to one thread only, the first to ask; here a lock keeps
    threads apart instead.
    """
    let_go = getattr(library, "clear_controlling_thread", None)
    if let_go is not None:
        let_go(force=True)
    library.set_num_threads(count)
    if let_go is not None:
        let_go()


def _set_back(before: list[tuple[Any, int]]) -> None:
    for library, count in before:
        _set_threads(library, count)


_blas = _Blas()
_scipy_is_known = False  # whether its BLAS has been looked up after it was loaded


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
    global _scipy_is_known
    import scipy.linalg

    if not _scipy_is_known:
        _blas.loaded()
        _scipy_is_known = True
    return scipy.linalg


# Threads of our own
# ------------------------------------------------------------------------------------------


def threads() -> int:
    """Return how many threads may work here: as many as the process has cores, or fewer if BLAS is limited to fewer.

    So `OPENBLAS_NUM_THREADS`, `OMP_NUM_THREADS` and `threadpoolctl.threadpool_limits` hold for
    kronfield too.
    """
    # a thread of ours has no others
    return 1 if threading.current_thread().name.startswith(_PREFIX) else _allowed()


def _allowed() -> int:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    allowed = _blas.allowed()
    return cores if allowed is None else max(1, min(cores, allowed))


@functools.lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=_PREFIX)


# the threads of a pool do not come along, and a lock may be held
if hasattr(os, "register_at_fork"):
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
    # next() is atomic: each thread takes what is left, so there is one wait, not one a part
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
        # those that have not begun have nothing left to do; the others end before this returns,
        # whatever happened
        begun = [other for other in others if not other.cancel()]
        concurrent.futures.wait(begun)
    for other in begun:
        other.result()
    return results


def _submitted(take: Callable[[], None], count: int) -> list[concurrent.futures.Future[None]]:
    """Hand ``take`` to so many threads; to none if Python is shutting down and starts no more."""
    try:
        # a context of its own for each, so that numpy.errstate holds in threads too
        return [_pool(count + 1).submit(contextvars.copy_context().run, take) for _ in range(count)]
    except RuntimeError:
        return []
