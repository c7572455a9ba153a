"""The framework of all sections: rows, methods, timing in turn, peak memory, the machine."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import math
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Threads of some libraries spin for a while after their work. Each measurement waits until this
# process has used less than a tenth of one core for PAUSE seconds, and SETTLE seconds at most.
SETTLE, PAUSE = 0.1, 0.005
# If this environment variable is set, seconds are those of the processor, of all threads together:
# ratios are then about right on a machine that has other work.
CPU_TIME = "KRONFIELD_BENCH_CPU"
# The method to which every ratio is relative.
OURS = "kronfield"
# The packages whose versions are recorded.
PACKAGES = (
    "kronfield",
    "numpy",
    "scipy",
    "torch",
    "pillow",
    "scikit-image",
    "csaps",
    "scikit-learn",
    "gpytorch",
    "PyWavelets",
    "bm3d",
    "airportsdata",
    "statsmodels",
    "vega_datasets",
    "PyKrige",
    "verde",
)


@dataclass(frozen=True)
class Row:
    """The result of one method in one case.

    Times are medians over ``repetitions`` with the extremes; quality is the mean over the items.
    ``ratio`` is the median over the items of its time divided by ours on the same item.
    ``ours_psnr`` is our quality on the items on which the method was run. ``items`` is their
    number, which may be fewer than all, and is 0 in results that did not record it. ``x`` is the
    abscissa of a scaling curve, ``limit`` the least seconds on this machine.
    """

    section: str
    case: str
    method: str
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    repetitions: int = 0
    ratio: float | None = None
    psnr: float | None = None
    ours_psnr: float | None = None
    ssim: float | None = None
    peak_mib: float | None = None
    x: float | None = None
    limit: float | None = None
    note: str = ""
    items: int = 0


@dataclass(frozen=True)
class Method:
    """A method to compare: a function from a task to values.

    ``needs`` is the module it needs, ``most`` the largest number of items on which it is run.
    ``before`` is called with an item before the timing, for work that a user has done by then.
    """

    name: str
    call: Callable[[Any], Any]
    needs: str = ""
    most: int = 10**9
    note: str = ""
    before: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Settings:
    """The size of a run, its photographs and its messages.

    "tiny" only tests the code, "quick" ends within 20 minutes on 2 cores, "full" runs everything.
    """

    size: str = "quick"
    photographs: Path | None = None
    say: Callable[[str], None] = field(default=print)

    def pick(self, tiny: Any, quick: Any, full: Any) -> Any:
        """Return the argument for the size of this run."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of ``call`` and its seconds; of CPU time if CPU_TIME is set."""
    settle()
    clock = time.process_time if CPU_TIME in os.environ else time.perf_counter
    started = clock()
    result = call()
    return result, clock() - started


def settle() -> None:
    """Wait until no thread of this process is busy."""
    for _ in range(round(SETTLE / PAUSE)):
        before = time.process_time()  # of all threads
        time.sleep(PAUSE)
        if time.process_time() - before < PAUSE / 10:
            return


def contest(
    section: str,
    case: str,
    items: Mapping[str, Any],
    methods: Sequence[Method],
    settings: Settings,
    *,
    score: Callable[[Any, Any], tuple[float, float | None]] | None = None,
    warm: Any = None,
    repetitions: int = 1,
    memory: Callable[[str], Peak | None] | None = None,
) -> list[Row]:
    """Run every method on every item, and return a row for each method; ours is the first.

    The methods take turns on each item, so that a change of the speed of the machine affects all of
    them. ``score`` returns (PSNR, SSIM) of the result for an item, ``warm`` is a small item for a
    first call that is not timed, and ``memory`` returns how to measure the peak memory of a method.
    A method that is run on fewer items is run on the first ones.
    """
    rows, able = list[Row](), list[Method]()
    for method in methods:
        if method.needs and importlib.util.find_spec(method.needs) is None:
            rows.append(
                Row(
                    section,
                    case,
                    method.name,
                    note=f"not measured: {method.needs} is not installed",
                )
            )
        elif method.most:
            able.append(method)
            if method.needs:
                importlib.import_module(method.needs)
            # methods that are run on few items are too slow to warm up
            if warm is not None and method.most >= len(items):
                method.call(warm)
    seconds: dict[str, list[float]] = {method.name: [] for method in able}
    scores: dict[str, dict[str, tuple[float, float | None]]] = {method.name: {} for method in able}
    ours: dict[tuple[str, int], float] = {}
    ratios: dict[str, list[float]] = {method.name: [] for method in able}
    for number, (name, item) in enumerate(items.items()):
        for turn in range(repetitions):
            for method in able:
                if number >= method.most or (turn and method.most < len(items)):
                    continue
                if method.before is not None:
                    method.before(item)
                result, spent = timed(functools.partial(method.call, item))
                seconds[method.name].append(spent)
                if method.name == able[0].name:
                    ours[name, turn] = spent
                ratios[method.name].append(spent / ours[name, turn])
                if score is not None and not turn:
                    scores[method.name][name] = score(item, result)
        settings.say(f"  {section}, {case}: {name} done")
    found = list[Row]()
    for method in able:
        done, mine = scores[method.name], scores[able[0].name]
        found.append(
            Row(
                section,
                case,
                method.name,
                *spread(seconds[method.name]),
                ratio=statistics.median(ratios[method.name]),
                psnr=_mean(value for value, _ in done.values()),
                ours_psnr=_mean(mine[name][0] for name in done),
                ssim=_mean(value for _, value in done.values()),
                peak_mib=None if memory is None else peak(memory(method.name)),
                note=method.note,
                items=min(method.most, len(items)),
            )
        )
    return found + rows


def spread(seconds: Sequence[float]) -> tuple[float, float, float, int]:
    """Return the median, the extremes and the count."""
    return statistics.median(seconds), min(seconds), max(seconds), len(seconds)


def interleaved(
    calls: Mapping[str, Callable[[], object]], repetitions: int, budget: float = math.inf
) -> dict[str, list[float]]:
    """Return the seconds of every call, timed in turn after one call of each that is not.

    There are ``repetitions`` turns; no more than two if these take longer than ``budget`` seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for turn in range(repetitions):
        if turn == 2 and sum(map(sum, times.values())) > budget:
            break
        for name, call in calls.items():
            times[name].append(timed(call)[1])
    return times


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class Peak:
    """A call whose peak memory is measured in a process of its own.

    ``target`` names a function as "module:name", which returns the call for ``arguments``.
    """

    target: str
    arguments: tuple[Any, ...] = ()


@functools.cache
def peak(what: Peak | None) -> float | None:
    """Return the peak memory of a call in MiB, measured once, in a process of its own.

    It is the memory beyond that in use before the call, and includes the result.
    """
    if what is None or not Path("/proc/self/clear_refs").exists():
        return None
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_measure, args=(what, queue))
    # return freed memory to the system: memory that the call reuses would not be counted
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 16)
    process.start()
    del os.environ["MALLOC_MMAP_THRESHOLD_"]
    process.join()
    return None if process.exitcode else float(queue.get())


def _measure(what: Peak, queue: Any) -> None:
    module, _, name = what.target.partition(":")
    call = getattr(importlib.import_module(module), name)(*what.arguments)
    # reset the high-water mark
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    call()
    queue.put(max(0.0, _status("VmHWM") - before))


def _status(key: str) -> float:
    """Return an entry of the status of this process in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key))) / 1024


def psnr(values: Any, truth: Any, peak_value: float = 1.0) -> float:
    """Return the PSNR in dB; the caller clips values of pictures to [0, 1]."""
    import numpy as np

    error = float(np.mean((np.asarray(values, dtype=np.float64) - truth) ** 2))
    return 10 * math.log10(peak_value**2 / max(error, 1e-300))


def machine() -> dict[str, Any]:
    """Return facts about the machine, and the versions of packages."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processor": platform.machine(),
    }
    pages = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    )
    found["memory GiB"] = round(pages / 2**30, 1)
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
