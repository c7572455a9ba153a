"""Write the page "What is chosen for you" from the settings: python -m benchmarks.tuning.page"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kronfield.fitting.settings import DEFAULT, decisions

HEAD = """# What is chosen for you

`fit` and `fit_points` need no settings. These are the numbers that decide what they do, each with
the data that it was set on and the script under `benchmarks/tuning` that sets it again (`none` for
limits of time and memory, and for conventions, which no script measures). To try others:

```python
from dataclasses import replace

import numpy as np
import kronfield as kf
from kronfield.fitting.settings import DEFAULT

points = np.random.default_rng(0).random((200, 2))
settings = replace(DEFAULT, points=replace(DEFAULT.points, hat_cells=2.0))
field = kf.fit_points(points, np.sin(9 * points[:, 0]), settings=settings)
```

The page is made by `python -m benchmarks.tuning.page`, and a test keeps it up to date.
`python -m benchmarks.tuning.mutate` changes every decision to either side and runs its tests: each
change must make one fail.
"""


def shown(value: Any) -> str:
    """Return a value as the page shows it."""
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def page() -> str:
    """Return the whole page."""
    lines, group = [HEAD], ""
    for one in decisions():
        if one.group != group:
            group = one.group
            title = type(getattr(DEFAULT, group)).__doc__ or group
            lines += [
                f"\n## {title.splitlines()[0].rstrip('.')}\n",
                f"`settings.{group}`\n",
                "| name | value | what it decides | set on | script |",
                "|---|---|---|---|---|",
            ]
        lines.append(
            f"| `{one.name}` | {shown(one.value)} | {one.decides} | {one.data} | `{one.script}` |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=Path("docs/choices.md"))
    path = parser.parse_args().path
    path.write_text(page(), encoding="utf-8")
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
