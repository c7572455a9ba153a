"""The tab "Repair": noise and holes, and the picture without them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.field import Field
from kronfield.fitting.grid import denoise, fit
from kronfield.play.notes import noted
from kronfield.play.pictures import data_url, error_url, painted, source_text
from kronfield.play.states import State
from kronfield.signals.measures import psnr

# The colour of holes.
HOLE = (1.0, 0.0, 0.6)


def spoiled(state: State, picture: Array) -> tuple[Array, Array]:
    """Return the picture with noise, and where it is painted over."""
    noise = np.random.default_rng(state["seed"]).standard_normal(picture.shape)
    return picture + state["noise"] * noise, painted(state["strokes"], picture.shape[0])


def repaired(values: Array, holes: Array, noise: float) -> Field:
    """Return the field without noise and holes; the standard deviation of noise is measured."""
    mask = holes if holes.any() else None
    if noise > 0:
        return denoise(values, mask=mask)
    return fit(values, mask=mask)


def answer(state: State, picture: Array) -> dict[str, Any]:
    """Return the spoiled and the repaired picture, with what was found."""
    values, holes = spoiled(state, picture)
    if holes.all():
        raise problem("strokes", "a brush over all pixels", "some that are known", "Clear some.")
    start = time.perf_counter()
    with noted() as texts:
        field = repaired(values, holes, state["noise"])
    milliseconds = 1000 * (time.perf_counter() - start)
    found = np.asarray(field.on_grid())
    known = ~holes
    before = np.where(holes[..., None], HOLE, values)
    assert field.report is not None  # a new fit has one
    removed = field.report.noise
    result: dict[str, Any] = {
        "truth": data_url(picture),
        "before": data_url(before),
        "after": data_url(found),
        "error": error_url(found, picture),
        "missing": int(holes.sum()),
        "psnr_before": psnr(values[known], picture[known], peak=1.0),
        "psnr_known": psnr(found[known], picture[known], peak=1.0),
        "noise_found": None if removed is None else float(np.mean(removed.sigma)),
        "report": str(field.report),
        "milliseconds": milliseconds,
        "notes": texts,
    }
    if holes.any():
        result["psnr_holes"] = psnr(found[holes], picture[holes], peak=1.0)
    return result


def script(state: State, file: str | None) -> str:
    """Return Python code that prints the numbers of the tab."""
    strokes = state["strokes"]
    call = "kf.denoise(values, mask=mask)" if state["noise"] > 0 else "kf.fit(values, mask=mask)"
    lines = [
        "import numpy as np",
        "import kronfield as kf",
        "from kronfield.play.pictures import painted",
        "from kronfield.signals.measures import psnr",
        *source_text(state, file),
        "",
        f"noise = np.random.default_rng({state['seed']}).standard_normal(picture.shape)",
        f"values = picture + {state['noise']!r} * noise",
        f'holes = painted("{strokes}", {state["side"]})',
        "mask = holes if holes.any() else None",
        f"field = {call}",
        "found = field.on_grid()",
        'print("PSNR where known", psnr(found[~holes], picture[~holes], peak=1.0), "dB")',
        "if holes.any():",
        '    print("PSNR in the holes", psnr(found[holes], picture[holes], peak=1.0), "dB")',
        "print(field.report)",
    ]
    return "\n".join(lines) + "\n"
