"""What a working process computes for a page: one function for each request."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array, problem
from kronfield.play import encode, points, reconstruct, repair
from kronfield.play.pictures import built_in, read_picture, square
from kronfield.play.states import ENCODE, POINTS, RECONSTRUCT, REPAIR, TRAIN, checked

# Pixels of a picture that is sent.
MOST_PIXELS = 1 << 24
# Rows of a table that are kept.
MOST_ROWS = points.MOST_POINTS

_Say = Callable[[Any], None]


class Jobs:
    """The requests of a page.

    Parameters
    ----------
    folder : Path
        The server's own folder, with what was sent, by generated names.
    file : str or None
        The file on the command line.
    """

    def __init__(self, folder: Path, file: str | None) -> None:
        self._folder, self._file = folder, file
        self._square = functools.lru_cache(maxsize=8)(self._cut)
        self._kept = functools.lru_cache(maxsize=8)(self._load)

    def run(self, name: str, given: Any, say: _Say, stopped: Callable[[], bool]) -> Any:
        """Return the answer to a request as plain data.

        Parameters
        ----------
        name : str
            "encode", "match", "reconstruct", "baselines", "train", "repair", "points", "script",
            "save", "picture" or "table".
        given : dict
            The state of the tab, or what was sent.
        say : function
            Called with each part of an answer that comes in parts.
        stopped : function
            Returns whether the page has left.
        """
        if name == "train":
            state = checked(TRAIN, given)
            return reconstruct.training(state, self._picture(state), say, stopped)
        known: dict[str, Callable[[Any], Any]] = {
            "encode": lambda one: encode.answer(checked(ENCODE, one)),
            "match": self._match,
            "reconstruct": lambda one: self._with_picture(RECONSTRUCT, one, reconstruct.answer),
            "baselines": lambda one: self._with_picture(RECONSTRUCT, one, reconstruct.baselines),
            "repair": lambda one: self._with_picture(REPAIR, one, repair.answer),
            "points": self._points,
            "script": self._script,
            "save": self._save,
            "picture": lambda path: self._keep(path, read_picture(Path(path), MOST_PIXELS)),
            "table": lambda path: self._keep(path, points.read_points(Path(path))),
        }
        return known[name](given)

    def warm_up(self) -> None:
        """Load what the tabs need, so that the times on the page are those of the work."""
        small = {"picture": "waves", "side": 32, "task": "random"}
        for name, given in (
            ("encode", {}),
            ("baselines", small | {"task": "grid"}),
            ("baselines", small),
            ("repair", {"picture": "waves", "side": 32}),
            ("points", {"points": points.example(), "show": "error"}),
        ):
            self.run(name, given, lambda part: None, lambda: False)

    # pictures and tables
    # --------------------------------------------------------------------------------------

    def _keep(self, path: str, values: Array) -> dict[str, Any]:
        """Keep what was sent beside its file; the file's name is the server's own."""
        if values.ndim == 2 and len(values) > MOST_ROWS:
            remedy = "Use kronfield fit on the command line."
            raise problem("table", f"{len(values)} rows", f"at most {MOST_ROWS}", remedy)
        np.save(Path(path).with_suffix(".npy"), values)
        return {"shape": list(values.shape)}

    def _load(self, name: str) -> Array:
        path = self._folder / f"{name}.npy"
        if not path.is_file():
            remedy = "Drop the file on the page again."
            raise problem("file", name, "one that this page has received", remedy)
        return np.asarray(np.load(path))

    def _received(self, name: str, kind: str) -> Array:
        """Return the picture or the table of a name."""
        values = self._kept(name)
        found = "table" if values.ndim == 2 else "picture"
        if found != kind:
            raise problem(kind, f"{name}, a {found}", f"a {kind}", "Choose another.")
        return values

    def _cut(self, name: str, side: int) -> Array:
        if name == "file" or name.startswith("sent-"):
            return square(self._received(name, "picture"), side)
        return built_in(name, side)

    def _picture(self, state: Any) -> Array:
        return self._square(state["picture"], state["side"])

    def _with_picture(self, spec: Any, given: Any, work: Callable[[Any, Array], Any]) -> Any:
        state = checked(spec, given)
        return work(state, self._picture(state))

    def _table(self, state: Any) -> Array | None:
        return self._received(state["table"], "table") if state["table"] else None

    # requests
    # --------------------------------------------------------------------------------------

    def _match(self, given: Any) -> Any:
        state = checked(ENCODE, given)
        return encode.match(state["a"], state["as"], state["k"])

    def _points(self, given: Any) -> Any:
        state = checked(POINTS, given)
        return points.answer(state, self._table(state))

    def _script(self, given: Any) -> Any:
        """Return the Python code of a tab."""
        tab, rest = given.get("tab"), given.get("state")
        if tab == "encode":
            return {"code": encode.script(checked(ENCODE, rest))}
        if tab == "reconstruct":
            return {"code": reconstruct.script(checked(RECONSTRUCT, rest), self._file)}
        if tab == "train":
            return {"code": reconstruct.script(checked(TRAIN, rest), self._file, trained=True)}
        if tab == "repair":
            return {"code": repair.script(checked(REPAIR, rest), self._file)}
        if tab == "points":
            return {"code": points.script(checked(POINTS, rest), self._file)}
        raise problem("tab", repr(tab)[:40], "a tab of the page", "Reload the page.")

    def _save(self, given: Any) -> bytes:
        """Return the bytes of a saved field."""
        tab, rest = given.get("tab"), given.get("state")
        if tab in ("reconstruct", "chosen"):
            state = checked(RECONSTRUCT, rest)
            task = reconstruct.Task(state, self._picture(state))
            field = reconstruct.fitted(state, task, chosen=tab == "chosen")
        elif tab == "repair":
            state = checked(REPAIR, rest)
            spoiled = repair.spoiled(state, self._picture(state))
            field = repair.repaired(*spoiled, state["noise"])
        elif tab == "points":
            state = checked(POINTS, rest)
            table = self._table(state)
            rows = points.given_points(state, table)
            field = points.fitted(state, rows, tabled=table is not None)
        else:
            raise problem("tab", repr(tab)[:40], "a tab with a field", "Reload the page.")
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder) / "page.field"
            field.save(path)
            return path.read_bytes()


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: arrays as lists with 6 digits, and null for NaN and inf."""
    if isinstance(value, np.ndarray):
        return _rounded(value) if value.dtype.kind == "f" and value.size else value.tolist()
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _rounded(array: Array) -> Any:
    """Return numbers with 6 significant digits as nested lists, with None for NaN and inf."""
    finite = np.isfinite(array)
    with np.errstate(all="ignore"):
        digits = np.float64(10) ** (5 - np.floor(np.log10(np.abs(array))))
        short = np.where(np.isfinite(digits), np.rint(array * digits) / digits, array)
    if finite.all():
        return short.tolist()
    mixed = short.astype(object)
    mixed[~finite] = None
    return mixed.tolist()
