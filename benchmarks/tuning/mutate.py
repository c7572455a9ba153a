"""Change every decision to either side and run the nearest tests: each change must make one fail.

    python -m benchmarks.tuning.mutate              # all decisions
    python -m benchmarks.tuning.mutate points.gain  # one of them
    python -m benchmarks.tuning.mutate grid points  # those of some groups

The tests of a decision are found by its name: see TESTS. The exit code is the number of changes
that no test noticed.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile

from kronfield.fitting import settings

# The tests of a decision: a file, and an expression that selects by name.
TESTS = ("tests/fitting/test_decisions.py", "{group}_{name}")
OTHER_TESTS = {
    "noise": ("tests/fitting/test_noise.py", "either_side and {name}"),
    "shrinkage": ("tests/fitting/test_shrinkage.py", "shrinkage_decision and {name}"),
    "grouping": ("tests/fitting/test_shrinkage.py", "grouping_decisions and {name}"),
    "robust": ("tests/fitting/test_robust.py", "either_side and {name}"),
    "filling": ("tests/fitting/test_filling.py", "either_side and {name}"),
    "directional": ("tests/fitting/test_decisions.py", "directional_fill"),
    "signals": ("tests/signals/test_signal_decisions.py", "signals_{name}"),
    "lazy": ("tests/lazy/test_lazy_points.py", "either_side and {name}"),
    "networks": ("tests/nn/test_nn_training.py", "either_side and {name}"),
}
# What every test file imports, loaded once: each change is tested in a fork of this process.
# kronfield itself is imported by the fork, because modules read settings.DEFAULT when they load.
LIBRARIES = ("numpy", "pytest", "scipy.fft", "scipy.interpolate", "scipy.linalg", "scipy.ndimage")
LIBRARIES += ("scipy.optimize", "scipy.sparse.linalg", "scipy.spatial", "scipy.special", "torch")


def _selection(one: settings.Decision) -> tuple[str, str]:
    """Return the file of the tests of a decision, and the expression that selects them."""
    file, words = OTHER_TESTS.get(one.group, TESTS)
    return file, words.format(group=one.group, name=one.name)


def passes(one: settings.Decision, value: object) -> bool:
    """Return whether the tests of a decision pass with this value."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            code = 70  # not a code of pytest
            try:
                code = _run(one, value, *_selection(one))
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in (0, 1):  # 5: no test was collected
            printed.seek(0)
            raise RuntimeError(f"{one.group}.{one.name}:\n{printed.read().decode()[-2000:]}")
    return code == 0


def _run(one: settings.Decision, value: object, file: str, words: str) -> int:
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins of other packages load slowly
    settings.DEFAULT = settings.changed(settings.DEFAULT, one.group, one.name, value)
    code = pytest.main(["-q", "-x", "--tb=short", "-p", "no:cacheprovider", file, "-k", words])
    sys.stdout.flush()
    return int(code)


def main() -> int:
    """Print a line for every change, and return how many survived."""
    wanted, alive = sys.argv[1:], 0
    unchanged: set[tuple[str, str]] = set()  # selections of tests that pass without a change
    for name in LIBRARIES:
        importlib.import_module(name)
    for one in settings.decisions():
        if wanted and not {one.group, f"{one.group}.{one.name}"} & set(wanted):
            continue
        selection = _selection(one)
        if selection not in unchanged and not passes(one, one.value):
            raise RuntimeError(f"{one.group}.{one.name}: its tests fail without a change")
        unchanged.add(selection)
        for value in one.sides:
            left = passes(one, value)
            alive += left
            print(
                f"{one.group}.{one.name}: {one.value} -> {value}: "
                f"{'SURVIVES' if left else 'a test fails'}",
                flush=True,
            )
    print(f"{alive} changes survive")
    return alive


if __name__ == "__main__":
    sys.exit(main())
