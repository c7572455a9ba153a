"""Working processes: they compute for the server, within limits of time and memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from kronfield._core.errors import KronfieldError

# Bytes that a process may take beyond those after its start.
MEMORY = 3 << 30
# Seconds after which a request is ended: of a fit, and of training.
FIT_SECONDS, TRAINING_SECONDS = 30.0, 900.0
# Seconds for which a request that nobody waits for any more may go on: a new process takes longer.
GRACE = 2.0
# Sent to a process while it answers a request for which nobody waits any more.
STOP = "stop"
NOBODY_WAITS = "Ended: the page has asked for something else."


class WorkError(KronfieldError, RuntimeError):
    """A request could not be answered; the message is a sentence for the page."""


def work(connection: Any, folder: str, file: str | None, memory: int) -> None:
    """Answer requests until the connection is closed; the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends its processes
    import warnings

    from kronfield.play.jobs import Jobs, plain

    warnings.simplefilter("ignore")
    jobs = Jobs(Path(folder), file)
    jobs.warm_up()
    _limit_memory(memory)
    connection.send(("ready", None))
    while True:
        try:
            asked = connection.recv()
        except (EOFError, OSError):
            return
        if asked == STOP:  # it came after the end of the request that it is for
            continue
        name, given = asked

        def say(part: Any) -> None:
            connection.send(("part", plain(part)))

        try:
            found = jobs.run(name, given, say, connection.poll)
            connection.send(("done", found if isinstance(found, bytes) else plain(found)))
        except (BrokenPipeError, EOFError):
            return
        except KronfieldError as error:
            connection.send(("refused", str(error)))
        except MemoryError:
            text = "This needs more memory than a page may take. Choose a smaller side."
            connection.send(("refused", text))
        except Exception as error:  # noqa: BLE001 - the process lives on, and the page says it
            connection.send(("failed", f"{type(error).__name__}: {error}"))


def _limit_memory(memory: int) -> None:
    """Limit the address space of this process to ``memory`` bytes more than it has, if possible."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as line:
            used = int(line.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    except (ImportError, OSError, ValueError):
        return


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from processes that start here, which inherit this, and in this thread delay it.

    They ignore it once they run, but before that Python would print where it was interrupted.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """A process that answers one request at a time."""

    def __init__(self, folder: str, file: str | None, memory: int = MEMORY) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=work, args=(other, folder, file, memory), daemon=True
        )
        with _without_interrupts():
            self._process.start()
        other.close()

    @property
    def alive(self) -> bool:
        """Whether the process can take a request."""
        return self._process.is_alive()

    def ask(
        self,
        name: str,
        given: Any,
        *,
        part: Callable[[Any], None],
        left: threading.Event,
        seconds: float,
    ) -> Any:
        """Return the answer to a request; blocks.

        Parameters
        ----------
        name, given
            As in `kronfield.play.jobs.Jobs.run`.
        part : function
            Called with each part of the answer.
        left : Event
            Set when nobody waits for the answer any more. Training stops; what takes longer than
            the grace is ended with its process.
        seconds : float
            The limit of time.
        """
        try:
            self._connection.send((name, given))
            start, told = time.monotonic(), 0.0
            while True:
                if self._connection.poll(0.02):
                    kind, found = self._connection.recv()
                    if kind == "part":
                        part(found)
                    elif kind != "ready":
                        return _answered(kind, found)
                    continue
                now = time.monotonic()
                if left.is_set() and not told:
                    self._connection.send(STOP)
                    told = now
                if told and now - told > GRACE:
                    self.end()
                    raise WorkError(NOBODY_WAITS)
                if now - start > seconds:
                    self.end()
                    raise WorkError(
                        f"Ended after {seconds:g} seconds, which a page may take at most. "
                        "Choose a smaller side, or use the command line."
                    )
        except (EOFError, OSError) as error:
            self.end()
            raise WorkError(
                "The process that computes has ended, probably for lack of memory. "
                "Choose a smaller side and try again."
            ) from error

    def kill(self) -> None:
        """Kill the process; a request that it answers is refused."""
        self._process.kill()

    def end(self) -> None:
        """End the process."""
        self.kill()
        self._process.join(5)
        self._connection.close()


def _answered(kind: str, found: Any) -> Any:
    if kind == "done":
        return found
    if kind == "failed":
        raise WorkError(f"This is a fault of kronfield ({found}). Please report it.")
    raise WorkError(found)
