"""Count misses and false alarms of the search for noise on lines at uneven positions.

    python -m benchmarks.tuning.uneven [--page docs/noise.md]

The seed is not one by which anything was set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.data import Array
from kronfield.fitting.noise import find_noise

SEED, REPEATS, LEVELS = 2024, 2, (0.03, 0.1)
COUNTS = (40, 100, 300, 1000, 5000)
POSITIONS = ("random", "clusters", "pairs", "coincident", "logarithms", "jittered", "two parts")
SIGNALS = ("sine", "bump", "kink", "steps", "chirp", "walk", "decay", "polynomial", "Runge", "fast")
START, END = "<!-- uneven -->", "<!-- end of uneven -->"


def positions(kind: str, n: int, rng: np.random.Generator) -> Array:
    """Return about n rising positions from 0 to 1."""
    half = np.arange((n + 1) // 2) + 0.2 * rng.random((n + 1) // 2)
    if kind == "clusters":
        x = rng.choice(rng.random(max(3, n // 12)), n) + 0.004 * rng.standard_normal(n)
    elif kind == "pairs":
        x = np.concatenate([half, half + 1e-6 * (0.5 + rng.random(len(half)))])
    elif kind == "coincident":
        half = rng.random(n // 2)
        x = np.concatenate([half, half + 1e-11 * (1 + rng.random(n // 2))])
    elif kind == "logarithms":
        x = np.geomspace(1e-3, 1, n)
    elif kind == "jittered":
        x = np.arange(n) + 0.4 * rng.uniform(-1, 1, n)
    elif kind == "two parts":
        x = np.concatenate([0.2 * rng.random(n // 2), 0.7 + 0.3 * rng.random(n - n // 2)])
    else:
        x = rng.random(n)
    x = np.unique(x)
    return (x - x[0]) / (x[-1] - x[0])


def signal(kind: str, x: Array, rng: np.random.Generator) -> Array:
    """Return a clean line with values up to 1."""
    n, a = len(x), rng.random()
    steps = np.sqrt(np.diff(x)) * rng.standard_normal(n - 1)
    every = {
        "sine": np.sin(2 * np.pi * (1 + 2 * a) * x + 6 * rng.random()),
        "bump": np.exp(-((x - a) ** 2) * 60),
        "kink": np.abs(x - 0.2 - 0.6 * a),
        "steps": np.floor(3 * x + a),
        "chirp": np.sin(2 * np.pi * (1 + n / 24 * x) * x),
        "walk": np.cumsum(np.append(0, steps)),
        "decay": np.exp(-5 * x),
        "polynomial": np.polyval(rng.standard_normal(5), 2 * x - 1),
        "Runge": 1 / (1 + 25 * (2 * x - 1) ** 2),
        "fast": np.sin(2 * np.pi * n / (2.2 + 5.8 * a) * x),
    }
    return every[kind] / max(float(np.abs(every[kind]).max()), 1e-9)


def main() -> None:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="the page that has the table")
    given, rng, cases = parser.parse_args(), np.random.default_rng(SEED), 0
    lines = [
        "| positions | samples | false alarms | misses, noise 0.03 | 0.1 | error of sigma at 0.1 |",
        "|---|---|---|---|---|---|",
    ]
    for kind in POSITIONS:
        for n in COUNTS:
            wrong, total, errors = [0, 0, 0], [0, 0, 0], []
            for name in SIGNALS * REPEATS:
                x = positions(kind, n, rng)
                clean = signal(name, x, rng)
                for i, sigma in enumerate((0.0, *LEVELS) if name != "fast" else (0.0,)):
                    values = clean + sigma * rng.standard_normal(len(x))
                    found = find_noise(values[None], positions=[x])
                    total[i] += 1
                    wrong[i] += found.is_found != (sigma > 0)
                    if found.is_found and sigma == LEVELS[-1]:
                        errors.append(abs(float(found.sigma[0]) / sigma - 1))
            cells = [f"{w} of {t}" for w, t in zip(wrong, total, strict=True)]
            error = f"{np.mean(errors):.1%}" if errors else ""
            lines.append(f"| {kind} | {n:,} | {' | '.join(cells)} | {error} |")
            cases += sum(total)
    text = "\n".join(lines) + f"\n\n{cases:,} cases, seed {SEED}."
    print(text)
    if given.page:
        before, _, rest = given.page.read_text(encoding="utf-8").partition(START)
        after = rest.partition(END)[2]
        given.page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
