"""Change every decision to either side and run the nearest tests: each change must make one fail.

    python -m benchmarks.tuning.mutate              # all decisions
    python -m benchmarks.tuning.mutate points.gain  # one of them
    python -m benchmarks.tuning.mutate grid points  # those of some groups

The tests of a decision are found by its name: see TESTS. The exit code is the number of changes
that no test noticed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from kronfield.fitting import settings

# The tests of a decision: a file, and an expression that selects by name.
TESTS = ("tests/fitting/test_decisions.py", "{group}_{name}")
OTHER_TESTS = {
    "noise": ("tests/fitting/test_noise.py", "either_side and {name}"),
    "shrinkage": ("tests/fitting/test_shrinkage.py", "shrinkage_decision and {name}"),
    "grouping": ("tests/fitting/test_shrinkage.py", "grouping_decisions"),
    "robust": ("tests/fitting/test_robust.py", "either_side and {name}"),
    "filling": ("tests/fitting/test_filling.py", "either_side and {name}"),
    "directional": ("tests/fitting/test_decisions.py", "directional_fill"),
    "signals": ("tests/signals/test_signal_decisions.py", "signals_{name}"),
}
VARIABLE = "KRONFIELD_MUTATION"


def pytest_configure(config: object) -> None:
    """As a pytest plugin: apply the change named by the environment before tests are collected."""
    del config
    text = os.environ.get(VARIABLE)
    if text:
        group, name, index = text.split(".")
        for one in settings.decisions():
            if (one.group, one.name) == (group, name):
                value = one.sides[int(index)]
                settings.DEFAULT = settings.changed(settings.DEFAULT, group, name, value)


def survives(one: settings.Decision, index: int) -> bool:
    """Return whether the tests of a decision pass with another value."""
    environment = {**os.environ, VARIABLE: f"{one.group}.{one.name}.{index}"}
    file, words = OTHER_TESTS.get(one.group, TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "benchmarks.tuning.mutate", file]
    done = subprocess.run(
        [*command, "-k", words.format(group=one.group, name=one.name)],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):  # 5: no test was collected
        print(done.stdout[-2000:])
    return done.returncode != 1


def main() -> int:
    """Print a line for every change, and return how many survived."""
    wanted, alive = sys.argv[1:], 0
    for one in settings.decisions():
        if wanted and not {one.group, f"{one.group}.{one.name}"} & set(wanted):
            continue
        for index, value in enumerate(one.sides):
            left = survives(one, index)
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
