"""The tab "Points": values at scattered points, their field, its slopes and its uncertainty."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.errors import KronfieldError
from kronfield.field import Field
from kronfield.fitting.points import fit_points
from kronfield.play.notes import noted
from kronfield.play.states import State

# Positions on each axis at which values, standard errors and slopes are shown.
VALUES, ERRORS, ARROWS = 72, 36, 12
# More points are refused: the page answers while a slider moves.
MOST_POINTS = 5000


def example() -> str:
    """Return the points that the page starts with: a smooth hill, measured at 24 places."""
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 24)).round(3)
    v = (np.sin(5 * x) * np.cos(4 * y) + 0.5 * x).round(3)
    return ";".join(f"{a:g},{b:g},{c:g}" for a, b, c in zip(x, y, v, strict=True))


def typed_points(state: State) -> list[list[float]]:
    """Return the points in a state as lists of x, y and value."""
    return [[float(part) for part in one.split(",")] for one in state["points"].split(";") if one]


def given_points(state: State, table: Array | None) -> Array:
    """Return the points as rows (x, y, value): those of the table, then those of the state."""
    rows = np.array(typed_points(state), dtype=np.float64).reshape(-1, 3)
    if table is not None:
        rows = np.concatenate([table, rows])
    if len(rows) < 3:
        raise problem("points", f"{len(rows)} points", "3 or more", "Click to place some.")
    if len(rows) > MOST_POINTS:
        remedy = "For more, use kronfield fit on the command line."
        raise problem("points", f"{len(rows)} points", f"at most {MOST_POINTS}", remedy)
    if np.ptp(rows[:, 0]) == 0 or np.ptp(rows[:, 1]) == 0:
        got = "points on one line along an axis"
        raise problem("points", got, "a spread on both axes", "Place a point beside the line.")
    return rows


def box(rows: Array, *, tabled: bool) -> list[tuple[float, float]]:
    """Return the box of the map: the unit square, larger if points lie outside, or of a table."""
    low, high = rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)
    if not tabled:
        low, high = np.minimum(low, 0.0), np.maximum(high, 1.0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def fitted(state: State, rows: Array, *, tabled: bool) -> Field:
    """Return the field of the points."""
    return fit_points(rows[:, :2], rows[:, 2], domain=box(rows, tabled=tabled), loss=state["loss"])


def answer(state: State, table: Array | None) -> dict[str, Any]:
    """Return values, standard errors and slopes on grids, and what the report says."""
    rows = given_points(state, table)
    tabled = table is not None
    start = time.perf_counter()
    with noted() as texts:
        field = fitted(state, rows, tabled=tabled)
    milliseconds = 1000 * (time.perf_counter() - start)
    assert field.report is not None  # a new fit has one
    spans = box(rows, tabled=tabled)
    result: dict[str, Any] = {
        "box": spans,
        "points": rows,
        "values": np.asarray(field.on_grid(_axes(spans, VALUES))),
        "slopes": np.asarray(field.gradient(_places(spans, ARROWS))).reshape(ARROWS, ARROWS, 2),
        "expected_error": _number(field.report.expected_error),
        "report": str(field.report),
        "milliseconds": milliseconds,
        "rejected": [],
        "notes": texts,
    }
    robust = field.report.robust
    if robust is not None:
        result["rejected"] = list(robust.outliers)  # circled on the map
    if state["show"] == "error":
        try:
            errors = np.asarray(field.standard_error(_places(spans, ERRORS)))
            result["errors"] = errors.reshape(ERRORS, ERRORS)
        except KronfieldError as error:  # some fits have none: the message says why
            result["errors"] = None
            result["notes"] = [*texts, str(error)]
    return result


def _number(value: Any) -> float | None:
    return None if value is None or not np.isfinite(float(value)) else float(value)


def _axes(spans: list[tuple[float, float]], count: int) -> list[Array]:
    return [np.linspace(low, high, count) for low, high in spans]


def _places(spans: list[tuple[float, float]], count: int) -> Array:
    """Return the middles of count x count cells, (count², 2)."""
    middles = [low + (high - low) * (np.arange(count) + 0.5) / count for low, high in spans]
    return np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, 2)


def read_points(path: Path) -> Array:
    """Read a table with two coordinates and one value, as rows (x, y, value)."""
    from kronfield.files import read

    signal = read(path)
    if signal.points is None or signal.points.shape[1] != 2:
        raise problem(
            "table",
            "a file of another kind"
            if signal.points is None
            else f"{signal.points.shape[1]} coordinates",
            "two columns of coordinates and one of values",
            "Name them x, y and value, or use kronfield fit --coordinates.",
        )
    values = signal.values[..., 0] if signal.channels else signal.values
    rows = np.column_stack([signal.points, values]).astype(np.float64)
    return rows[np.isfinite(rows).all(axis=1)]


def script(state: State, file: str | None) -> str:
    """Return Python code that prints the numbers of the tab."""
    numbers = [f"    {row}," for row in typed_points(state)]
    if not state["table"]:
        given_points(state, None)  # refuses points that determine no field, as the page does
    lines = ["import numpy as np", "import kronfield as kf", ""]
    if state["table"]:
        path = repr(file) if state["table"] == "file" and file else '"points.csv"'
        lines += [
            "from pathlib import Path",
            "from kronfield.play.points import read_points",
            "",
            f"rows = read_points(Path({path}))",
        ]
        if numbers:
            lines += ["rows = np.concatenate([rows, [", *numbers, "]])"]
        lines += ["domain = list(zip(rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)))"]
    else:
        lines += [
            "rows = np.array([",
            *numbers,
            "])",
            "low, high = np.minimum(rows[:, :2].min(axis=0), 0), "
            "np.maximum(rows[:, :2].max(axis=0), 1)",
            "domain = list(zip(low, high))",
        ]
    lines += [
        f'field = kf.fit_points(rows[:, :2], rows[:, 2], domain=domain, loss="{state["loss"]}")',
        'print("expected error", field.report.expected_error)',
        "middle = np.mean(domain, axis=1)[None]",
        'print("in the middle", field(middle))',
        "try:",
        '    print("two standard errors", 2 * field.standard_error(middle))',
        "except ValueError as error:",
        "    print(error)",
        "print(field.report)",
    ]
    return "\n".join(lines) + "\n"
