"""The tab "Reconstruct": a picture from some of its pixels, in closed form or by descent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield._core.errors import KronfieldError
from kronfield.encoding import Concatenated, Kronecker
from kronfield.field import Field
from kronfield.fitting.grid import fit
from kronfield.fitting.points import fit_points
from kronfield.play.encode import embedder
from kronfield.play.notes import noted
from kronfield.play.pictures import data_url, error_url, source_text
from kronfield.play.states import LOCAL_KINDS, SHAPES, State
from kronfield.signals.measures import psnr
from kronfield.signals.peers import interpolate_grid, interpolate_points

# A detail is this part of the side of the picture, drawn this many times as large.
DETAIL, ENLARGED = 4, 4
# Seconds between two pictures of a network in training.
BETWEEN_PICTURES = 0.4
# Width of hidden layers, as in the paper.
HIDDEN = 256

UNIT = [(0.0, 1.0), (0.0, 1.0)]


class Task:
    """Which pixels of a picture are given: every second on each axis, or some at random."""

    def __init__(self, state: State, picture: Array) -> None:
        self.picture, self.side = picture, picture.shape[0]
        self.axis = np.arange(self.side) / self.side  # the paper's positions, i/N
        self.given = np.zeros((self.side, self.side), dtype=bool)
        self.on_grid = state["task"] == "grid"
        if self.on_grid:
            self.given[::2, ::2] = True
        else:
            chosen = np.random.default_rng(state["seed"]).random(self.given.shape)
            self.given = chosen < state["share"]

    @property
    def values(self) -> Array:
        """The pixels that are given: a grid (N, N, 3), or (P, 3)."""
        return self.picture[::2, ::2] if self.on_grid else self.picture[self.given]

    @property
    def points(self) -> Array:
        """The positions of the pixels that are given, (P, 2)."""
        return np.argwhere(self.given) / self.side

    @property
    def features(self) -> int:
        """The number of features on an axis: one for each sample of the grid, or each pixel."""
        return self.side // 2 if self.on_grid else self.side

    def shown(self) -> Array:
        """Return the picture with grey where no pixel is given."""
        return np.where(self.given[..., None], self.picture, 0.5)

    def quality(self, found: Array) -> dict[str, float]:
        """Return the PSNR at the pixels that were not given, and at those that were."""
        hidden = ~self.given
        return {
            "psnr": psnr(found[hidden], self.picture[hidden], peak=1.0),
            "psnr_given": psnr(found[self.given], self.picture[self.given], peak=1.0),
        }


def encoding(state: State, features: int) -> Kronecker:
    """Return the complex encoding of the paper: one embedder on both axes, multiplied."""
    kind = state["kind"]
    one = embedder(kind, SHAPES[kind].at(state["s"], features), features)
    return Kronecker(one, one)


def fitted(state: State, task: Task, *, chosen: bool = False) -> Field:
    """Return the field of a closed form: of the state's encoding, or with everything chosen."""
    if task.on_grid:
        axes = [task.axis[::2]] * 2
        if chosen:
            return fit(task.values, axes=axes, domain=UNIT)
        return fit(
            task.values,
            axes=axes,
            encoding=encoding(state, task.features),
            domain=UNIT,
            ridge=0.0,
        )
    if chosen:
        return fit_points(task.points, task.values, domain=UNIT)
    if state["kind"] not in LOCAL_KINDS:
        raise problem(
            "kind",
            state["kind"],
            f"{' or '.join(LOCAL_KINDS)} for the closed form at random pixels",
            "Other features are not local: train a network, or choose every second pixel.",
        )
    return fit_points(task.points, task.values, encoding(state, task.features), domain=UNIT)


def answer(state: State, picture: Array) -> dict[str, Any]:
    """Return the closed form of the state's encoding: pictures, quality, time, and its rank."""
    task = Task(state, picture)
    kronecker = encoding(state, task.features)
    one = kronecker.embedders[0]
    result: dict[str, Any] = {
        "embedder": repr(one),
        "stable_rank": one.stable_rank(task.features),
        "given": data_url(task.shown()),
        "truth": data_url(picture),
        "count": int(task.given.sum()),
    }
    with noted() as texts:
        try:
            result["closed"] = _panel(state, task, lambda: fitted(state, task))
        except KronfieldError as error:
            result["refused_fit"] = str(error)
    result["notes"] = texts[:1]  # the axes are alike
    return result


def baselines(state: State, picture: Array) -> dict[str, Any]:
    """Return what needs no encoding: everything chosen, and SciPy's interpolation."""
    task = Task(state, picture)
    panels = {"chosen": _panel(state, task, lambda: fitted(state, task, chosen=True))}
    for name in peers(task.on_grid):
        panels[name] = _peer(state, task, name)
    return panels


def _panel(state: State, task: Task, make: Callable[[], Field]) -> dict[str, Any]:
    start = time.perf_counter()
    field = make()
    seconds = time.perf_counter() - start
    found = np.asarray(field.on_grid([task.axis, task.axis]))
    detail = np.asarray(field.on_grid(_detail_axes(state, task))) if state["zoom"] else None
    return {
        **_drawn(state, task, found, detail),
        "numbers": int(field.number_count),
        "milliseconds": 1000 * seconds,
    }


def _drawn(state: State, task: Task, found: Array, detail: Array | None) -> dict[str, Any]:
    result = {
        "picture": data_url(found),
        "error": error_url(found, task.picture),
        **task.quality(found),
    }
    if detail is not None:
        result["detail"] = data_url(detail)
    return result


def _detail_axes(state: State, task: Task) -> list[Array]:
    """Return the positions of the detail whose corner the state names."""
    size = task.side // DETAIL
    corners = [min(float(part), 1 - 1 / DETAIL) for part in state["zoom"].split(",")]
    return [corner + np.arange(size * ENLARGED) / (task.side * ENLARGED) for corner in corners]


def peers(on_grid: bool) -> tuple[str, ...]:
    """Return the names of SciPy's interpolations that are shown for comparison."""
    return ("linear", "cubic", "pchip") if on_grid else ("nearest", "linear", "cubic")


def interpolated(values: Array, places: Any, targets: list[Array], name: str) -> Array:
    """Return SciPy's interpolation on a grid of targets.

    Parameters
    ----------
    values : array of shape (N, M, 3) or (P, 3)
        Samples on a grid, or at points.
    places : list of two arrays, or array of shape (P, 2)
        The axes of the grid, or the points.
    targets : list of two arrays
        The axes of the result; past the ends of a grid it is continued by its last values.
    name : str
        One of `peers`.
    """
    if not isinstance(places, list):
        at = np.stack(np.meshgrid(*targets, indexing="ij"), axis=-1).reshape(-1, 2)
        return interpolate_points(places, values, at, name).reshape(*map(len, targets), -1)
    if name != "pchip":
        return interpolate_grid(values, places, targets, name)
    from scipy.interpolate import PchipInterpolator

    found = values
    for axis, (x, wanted) in enumerate(zip(places, targets, strict=True)):
        found = PchipInterpolator(x, found, axis=axis)(np.clip(wanted, x[0], x[-1]))
    return np.asarray(found)


def _peer(state: State, task: Task, name: str) -> dict[str, Any]:
    places = [task.axis[::2]] * 2 if task.on_grid else task.points
    start = time.perf_counter()
    found = interpolated(task.values, places, [task.axis, task.axis], name)
    seconds = time.perf_counter() - start
    zoomed = _detail_axes(state, task) if state["zoom"] else None
    detail = interpolated(task.values, places, zoomed, name) if zoomed else None
    return {**_drawn(state, task, found, detail), "milliseconds": 1000 * seconds}


# Training
# ------------------------------------------------------------------------------------------


def network(state: State, task: Task) -> Any:
    """Return the network of a state: a simple or complex encoding, and hidden layers."""
    import torch

    from kronfield.nn import CoordinateMLP

    kronecker = encoding(state, task.features)
    given: Any = kronecker
    if state["combine"] == "simple":
        given = Concatenated.with_diagonals(kronecker.embedders[0], 2)
    torch.manual_seed(state["seed"])
    return CoordinateMLP(given, state["depth"], HIDDEN, 3, domain=UNIT)


def training_data(task: Task) -> tuple[Any, Any]:
    """Return positions and values for `kronfield.nn.train`."""
    from kronfield.nn import Grid

    values = task.values.astype(np.float32)
    if task.on_grid:
        axis = task.axis[::2].astype(np.float32)
        return Grid(axis, axis), values
    return task.points.astype(np.float32), values


def training(
    state: State, picture: Array, say: Callable[[Any], None], stopped: Callable[[], bool]
) -> dict[str, Any]:
    """Train a network, and ``say`` its loss and picture as they come; return the last state."""
    try:
        import torch

        from kronfield.nn import Grid, train
    except ImportError as error:
        raise problem(
            "train", "a Python without torch", "torch", "pip install 'kronfield[torch]'"
        ) from error

    task = Task(state, picture)
    model = network(state, task)
    everywhere = Grid(*[task.axis.astype(np.float32)] * 2)
    start, last = time.perf_counter(), 0.0

    def seen(epoch: int, loss: float) -> dict[str, Any]:
        with torch.no_grad():
            found = model(everywhere).reshape(task.side, task.side, 3).numpy().astype(np.float64)
        return {
            "epoch": epoch,
            "epochs": state["epochs"],
            "loss": loss,
            "seconds": time.perf_counter() - start,
            "numbers": int(model.parameter_count),
            **_drawn(state | {"zoom": ""}, task, found, None),
        }

    def callback(epoch: Any) -> bool:
        nonlocal last
        now = time.perf_counter()
        if now - last >= BETWEEN_PICTURES or epoch.number == 0:
            say(seen(epoch.number, float(epoch.loss)))
            last = time.perf_counter()
        return stopped()

    done = train(
        model, training_data(task), epochs=state["epochs"], seed=state["seed"], callback=callback
    )
    return {**seen(done.epochs, float(done.best_loss)), "stopped_by": done.stopped_by}


# Copy as Python
# ------------------------------------------------------------------------------------------


def script(state: State, file: str | None, *, trained: bool = False) -> str:
    """Return Python code that prints the PSNR of all panels; of the network only if ``trained``."""
    side, on_grid = state["side"], state["task"] == "grid"
    one = encoding(state, side // 2 if on_grid else side).embedders[0]
    lines = [
        "import numpy as np",
        "import kronfield as kf",
        "from kronfield.play.reconstruct import interpolated",
        "from kronfield.signals.measures import psnr",
        *source_text(state, file),
        "",
        f"axis = np.arange({side}) / {side}",
        f"given = np.zeros(({side}, {side}), dtype=bool)",
    ]
    if on_grid:
        lines += ["given[::2, ::2] = True", "values = picture[::2, ::2]"]
        lines += ["places = [axis[::2], axis[::2]]"]
        fit, settings = "kf.fit(values, axes=places", ", ridge=0.0"
    else:
        draw = f"np.random.default_rng({state['seed']}).random(given.shape)"
        lines += [f"given = {draw} < {state['share']!r}", "values = picture[given]"]
        lines += [f"places = np.argwhere(given) / {side}"]
        fit, settings = "kf.fit_points(places, values", ""
    lines += [
        f"emb = kf.{one!r}",
        "domain = [(0, 1), (0, 1)]",
        "",
        "",
        "def show(name, found):",
        '    print(name, "PSNR", psnr(found[~given], picture[~given], peak=1.0), "dB")',
        "",
        "",
        f"field = {fit}, domain=domain)",
        'show("nothing chosen by hand", field.on_grid([axis, axis]))',
    ]
    if on_grid or state["kind"] in LOCAL_KINDS:
        lines += [
            f"field = {fit}, encoding=kf.Kronecker(emb, emb), domain=domain{settings})",
            'show("closed form", field.on_grid([axis, axis]))',
        ]
    lines += [
        f"for name in {peers(on_grid)}:",
        "    show(name, interpolated(values, places, [axis, axis], name))",
    ]
    if trained:
        lines += _training_lines(state)
    return "\n".join(lines) + "\n"


def _training_lines(state: State) -> list[str]:
    """Return the lines that train the network of a state, after those of `script`."""
    combined = "kf.Kronecker(emb, emb)"
    if state["combine"] == "simple":
        combined = "kf.Concatenated.with_diagonals(emb, 2)"
    places = "places.astype(np.float32)"
    if state["task"] == "grid":
        places = "Grid(*[x.astype(np.float32) for x in places])"
    return [
        "",
        "import torch",
        "from kronfield.nn import CoordinateMLP, Grid, train",
        "",
        f"torch.manual_seed({state['seed']})",
        f"model = CoordinateMLP({combined}, {state['depth']}, {HIDDEN}, 3, domain=domain)",
        f"data = ({places}, values.astype(np.float32))",
        f"train(model, data, epochs={state['epochs']}, seed={state['seed']})",
        "everywhere = Grid(*[axis.astype(np.float32)] * 2)",
        "with torch.no_grad():",
        '    show("trained network", model(everywhere).reshape(picture.shape).numpy())',
    ]
