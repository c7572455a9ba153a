"""The available memory, and an error for work that needs more, raised before it starts."""

from __future__ import annotations

import math
import os

from kronfield._core.arrays import problem

# Work that needs at most this many bytes is not checked: the check would cost more than it saves.
SMALL = 1 << 26


def memory_size() -> int | None:
    """Return the memory of this machine in bytes; None if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def available_memory() -> float:
    """Return the bytes that this process can still take; inf if they are unknown.

    This is the available memory of the machine, or the rest of the limit of the address space
    (RLIMIT_AS) if that is smaller.
    """
    left = math.inf
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            known = dict(line.split(":", 1) for line in lines)
        left = float(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            with open("/proc/self/statm", encoding="ascii") as line:
                used = int(line.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            left = min(left, max(float(limit - used), 0.0))
    except (ImportError, OSError, ValueError, IndexError):
        pass
    return left


def check_memory(argument: str, what: str, needed: float, remedy: str) -> None:
    """Raise an error if work needs more bytes than are available.

    Examples
    --------
    >>> check_memory("values", "a fit", 1e3, "Use fewer samples.")
    """
    if needed <= SMALL:
        return
    left = available_memory()
    if needed > left:
        raise too_large(argument, what, needed, left, remedy)


def too_large(argument: str, what: str, needed: float, left: float, remedy: str) -> Exception:
    """Return the error for work that needs more bytes than are left."""
    return problem(
        argument,
        f"{what}, which needs about {needed / 1e9:.2f} GB",
        f"at most the {left / 1e9:.2f} GB that are available",
        remedy,
    )
