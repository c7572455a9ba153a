"""Workers of Dask in processes of this machine, or in a cluster that is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kronfield._core.arrays import problem, whole
from kronfield._core.threads import cores
from kronfield.fitting import settings

# Environment of the workers. The allocator keeps memory of up to the first number of bytes that is
# free, and maps arrays larger than the second one by one. With the thresholds that Dask sets (64 kB
# and none), each temporary array is returned to the system and zeroed anew: slower by up to half.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
# A chunk is computed in one thread.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# The seconds to wait for a scheduler.
PATIENCE = 20


def memory_bytes(text: str | int) -> int:
    """Return a number of bytes from text such as "2GB".

    Examples
    --------
    >>> memory_bytes("2GB"), memory_bytes("512MiB")
    (2000000000, 536870912)
    """
    from dask.utils import parse_bytes

    try:
        found = int(parse_bytes(text))
    except ValueError as error:
        raise problem("memory", repr(text), "a number of bytes", "For example: 2GB") from error
    least = settings.DEFAULT.lazy.least_memory
    if found < least:
        raise problem(
            "memory",
            f"{text} for each worker",
            f"at least {least >> 20} MiB, of which modules take half",
            "Use fewer workers with more memory.",
        )
    return found


@contextlib.contextmanager
def workers(
    count: int | None = None,
    *,
    memory: str | int | None = None,
    scheduler: str | None = None,
) -> Iterator[Any]:
    """Yield a client of Dask whose workers compute all that is asked for meanwhile.

    Parameters
    ----------
    count : int, optional
        Worker processes that are started on this machine, with one thread each; by default one for
        each processor.
    memory : str or int, optional
        The memory of each of them, such as "2GB"; by default an equal part of what there is.
    scheduler : str, optional
        The address of a scheduler that is there, in place of processes on this machine.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise problem(
            "workers",
            "a Python without distributed",
            "Dask's scheduler for processes",
            "Install it with: pip install 'kronfield[dask]'",
        ) from error
    if scheduler is not None:
        if count is not None or memory is not None:
            raise problem(
                "scheduler",
                f"{scheduler} beside workers or memory",
                "one of the two",
                "A cluster that is there has its own workers: leave out the others.",
            )
        yield from _of_scheduler(scheduler)
        return
    import dask

    count = whole("workers", cores() if count is None else count, at_least=1)
    limit: Any = "auto" if memory is None else memory_bytes(memory)
    own = {
        "distributed.nanny.pre-spawn-environ": ALLOCATOR | THREADS,
        "distributed.worker.daemon": True,
    }
    with (
        dask.config.set(own),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=limit,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _of_scheduler(address: str) -> Iterator[Any]:
    """Yield a client of a scheduler that is there."""
    import distributed

    try:
        client = distributed.Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise problem(
            "scheduler",
            f"{address} ({error})",
            "the address of a scheduler of Dask that runs",
            "Start one with: dask scheduler; it prints its address, such as tcp://10.0.0.1:8786",
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise problem(
                "scheduler",
                f"{address}, without workers",
                "at least one worker",
                f"Start them with: dask worker {address}",
            )
        yield client
