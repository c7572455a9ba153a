"""The tab "Encode": an embedder of one coordinate, its rank, its similarity, and a linear fit."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.spectra import stable_rank
from kronfield.analysis import (
    distance_preservation,
    matching_gaussian,
    matching_random_fourier,
    similarity_curve,
)
from kronfield.analysis.presets import preset
from kronfield.embedders import Embedder, Gaussian, RandomFourier
from kronfield.play.states import SHAPES, State

# Singular values below this part of the largest count as 0 in the fit of least norm.
RCOND = 1e-10
# Positions at which curves are drawn and the error between the samples is measured.
DENSE = 512
# Features that are drawn.
MOST_DRAWN = 12


def _bump(x: Array, middle: float, width: float) -> Array:
    return np.exp(-(((x - middle) / width) ** 2))


#: The signals by name, as functions of positions in [0, 1).
SIGNALS: dict[str, Callable[[Array], Array]] = {
    "waves": lambda x: np.sin(2 * np.pi * 3 * x) + 0.5 * np.cos(2 * np.pi * 7 * x),
    "steps": lambda x: np.where(x < 0.3, -0.5, np.where(x < 0.65, 1.0, 0.2)),
    "chirp": lambda x: np.sin(2 * np.pi * (2 * x + 10 * x**2)),
    "bumps": lambda x: (
        np.exp(-(((x - 0.3) / 0.05) ** 2)) + 0.6 * np.exp(-(((x - 0.7) / 0.12) ** 2))
    ),
}


def positions(state: State) -> Array:
    """Return the N positions of the samples in [0, 1): i/N, or random ones, sorted."""
    if state["at"] == "even":
        return np.arange(state["n"]) / state["n"]
    return np.sort(np.random.default_rng(state["seed"]).random(state["n"]))


def signal(state: State, x: Array) -> Array:
    """Return the values of the signal at positions."""
    if state["signal"] != "drawn":
        return SIGNALS[state["signal"]](x)
    heights = drawn_heights(state["drawn"])
    return np.interp(x, np.arange(len(heights)) / (len(heights) - 1), heights)


def drawn_heights(text: str) -> Array:
    """Return the heights of a drawn signal, in [-1, 1]; zeros if nothing is drawn."""
    pairs = [text[i : i + 2] for i in range(0, len(text), 2)] or ["hz"] * 64
    return np.array([int(pair, 36) for pair in pairs]) / (36**2 - 1) * 2 - 1


def embedder(kind: str, shape: float, size: int) -> Embedder:
    """Return the embedder of a name with one shape parameter."""
    parameter = SHAPES[kind].parameter
    size += size % 2 if kind in ("rff", "linf", "logf") else 0  # their features come in pairs
    settings: dict[str, Any] = {parameter: shape} if parameter else {}
    if kind == "rff":
        settings["seed"] = 0
    return preset(kind, size, **settings)


def answer(state: State) -> dict[str, Any]:
    """Return what the tab shows for one or two embedders."""
    x = positions(state)
    dense = np.arange(DENSE) / DENSE
    y, truth = signal(state, x), signal(state, dense)
    pairs = [("a", state["a"], state["as"]), ("b", state["b"], state["bs"])]
    return {
        "samples": {"x": x, "y": y},
        "truth": {"x": dense, "y": truth},
        "embedders": {
            name: _one(embedder(kind, shape, state["k"]), x, y, dense, truth)
            for name, kind, shape in pairs
            if kind != "none"
        },
    }


def _one(emb: Embedder, x: Array, y: Array, dense: Array, truth: Array) -> dict[str, Any]:
    matrix, between = emb(x), emb(dense)  # (N, K), (M, K)
    singular = np.linalg.svd(matrix, compute_uv=False)
    weights = np.linalg.lstsq(matrix, y, rcond=RCOND)[0]  # of least norm
    fitted = between @ weights
    curve = similarity_curve(emb, np.linspace(0.0, 0.5, 101))
    shown = np.unique(np.linspace(0, emb.size - 1, min(MOST_DRAWN, emb.size)).astype(int))
    return {
        "name": repr(emb),
        "basis": [between[::2, i] for i in shown],
        "matrix": coarse(matrix),
        "singular": singular / max(float(singular[0]), 1e-300),
        "stable_rank": stable_rank(matrix),
        "stable_rank_theory": emb.stable_rank(len(x)),
        "distances": curve.distances,
        "similarity": curve.measured,
        "similarity_theory": curve.theory,
        "preservation": distance_preservation(emb),
        "fitted": fitted,
        "error_at_samples": _rms(matrix @ weights - y),
        "error_between": _rms(fitted - truth),
    }


def coarse(matrix: Array) -> dict[str, Any]:
    """Return a matrix as a picture needs it: a byte for each number, from ``low`` to ``high``."""
    high = float(np.abs(matrix).max()) or 1.0
    low = -high if (matrix < 0).any() else 0.0
    levels = np.rint((matrix - low) * (255 / (high - low))).astype(np.uint8)
    data = base64.b64encode(levels.tobytes()).decode("ascii")
    return {"rows": matrix.shape[0], "low": low, "high": high, "data": data}


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def match(kind: str, shape: float, size: int) -> dict[str, Any]:
    """Return the RFF that matches a Gaussian, or the Gaussian that matches an RFF."""
    given = embedder(kind, shape, size)
    if isinstance(given, RandomFourier):
        return {"kind": "gaussian", "shape": matching_gaussian(given).width}
    if isinstance(given, Gaussian):
        return {"kind": "rff", "shape": matching_random_fourier(given).scale}
    raise problem("embedder", kind, "gaussian or rff", "Choose one of them as embedder A.")


def script(state: State) -> str:
    """Return Python code that prints the numbers of the tab."""
    size = state["k"]
    x = "np.arange(N) / N"
    if state["at"] == "random":
        x = f"np.sort(np.random.default_rng({state['seed']}).random(N))"
    if state["signal"] == "drawn":
        heights = ", ".join(map(repr, drawn_heights(state["drawn"]).tolist()))
        about = ["def signal(x):", f"    return np.interp(x, np.arange(64) / 63, [{heights}])", ""]
    else:
        about = [f'signal = SIGNALS["{state["signal"]}"]']
    chosen = [(state["a"], state["as"]), (state["b"], state["bs"])]
    lines = [
        "import numpy as np",
        "import kronfield as kf",
        "from kronfield.play.encode import SIGNALS",
        "",
        f"N = {state['n']}",
        f"x = {x}  # where the signal is sampled",
        f"dense = np.arange({DENSE}) / {DENSE}",
        *about,
        "",
        "for emb in [",
        *[f"    kf.{embedder(kind, shape, size)!r}," for kind, shape in chosen if kind != "none"],
        "]:",
        "    matrix = emb(x)",
        f"    weights = np.linalg.lstsq(matrix, signal(x), rcond={RCOND:g})[0]",
        "    at_samples = np.sqrt(np.mean((matrix @ weights - signal(x)) ** 2))",
        "    between = np.sqrt(np.mean((emb(dense) @ weights - signal(dense)) ** 2))",
        "    print(emb)",
        '    print("stable rank", kf.stable_rank(matrix), "in theory", emb.stable_rank(N))',
        '    print("distance preservation", kf.distance_preservation(emb))',
        '    print("error at samples", at_samples, "between", between)',
    ]
    return "\n".join(lines) + "\n"
