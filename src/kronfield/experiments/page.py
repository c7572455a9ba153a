"""The runs behind docs/reproduction.md (page.toml), what is missing of them, what was scaled."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kronfield.experiments.results import Row
from kronfield.experiments.spec import GROUPS, NOUNS, SPECS, Method, Size, Spec, load_spec
from kronfield.experiments.tables import current


@dataclass(frozen=True)
class Run:
    """One run of an experiment: some methods on some items at one side."""

    experiment: str
    methods: str
    side: int
    count: int
    crops: int = 1

    @property
    def spec(self) -> Spec:
        """The experiment."""
        return load_spec(self.experiment)

    @property
    def size(self) -> Size:
        """The paper's size with the side and the items of the run."""
        return self.spec.paper.replace(side=self.side, count=self.count, crops=self.crops)

    @property
    def chosen(self) -> list[Method]:
        """The methods."""
        return self.spec.select(self.methods)

    def done(self, rows: Iterable[Row]) -> int:
        """Return how many of the jobs have a row."""
        wanted = {method.key: self.size.epochs_of(method) for method in self.chosen}
        found = {
            (row["method"], row["item"])
            for row in current(self.spec, rows)
            if row["side"] == self.side and wanted.get(row["method"]) == row["epochs"]
        }
        by_method = (sum(key == method for key, _ in found) for method in wanted)
        return sum(min(self.count, count) for count in by_method)

    @property
    def jobs(self) -> int:
        """The number of jobs."""
        return self.count * len(self.chosen)


@functools.lru_cache
def page_runs() -> tuple[Run, ...]:
    """Return the runs of page.toml."""
    folder = importlib.resources.files("kronfield.experiments")
    text = folder.joinpath("page.toml").read_text(encoding="utf-8")
    return tuple(Run(**entry) for entry in tomllib.loads(text)["run"])


def missing(results: Mapping[str, Iterable[Row]]) -> str:
    """Return what is missing of the runs, as Markdown; stated from the rows that are there."""
    rows = {name: list(some) for name, some in results.items()}
    lines = list[str]()
    for run in page_runs():
        done = run.done(rows.get(run.experiment, ()))
        if done < run.jobs:
            lines.append(
                f"- `{run.experiment}`, {run.methods} at side {run.side}: {done} of {run.jobs} "
                f"jobs ({run.count} {NOUNS[run.spec.kind]})."
            )
    if not rows.get("times"):
        lines.append("- `times`: no times were measured on a quiet machine.")
    return "\n".join(lines) if lines else "Nothing: all runs are finished."


def scaled(results: Mapping[str, Iterable[Row]]) -> str:
    """Return one table of what was run, beside the paper's protocol, from the rows."""
    head = ("", "models", "items", "side", "epochs", "hidden width")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in SPECS:
        spec, found = load_spec(name), dict[tuple[int, str, int, int], set[str]]()
        methods = dict[tuple[int, str, int, int], Method]()
        for row in current(spec, results.get(name, ())):
            method = spec.method(row["method"])
            assert method is not None
            depth = f", depth {method.depth}" if spec.keep and method.is_network else ""
            hidden = row["hidden"] if method.depth else 0
            key = (row["side"], GROUPS[method.group] + depth, row["epochs"], hidden)
            found.setdefault(key, set()).add(row["item"])
            methods[key] = method
        for key in sorted(found, key=lambda key: (-key[0], key[1], -key[2])):
            side, models, epochs, hidden = key
            paper = spec.paper.epochs_of(methods[key])
            width = methods[key].hidden if methods[key].depth else 0
            cells = (
                name,
                models,
                _beside(len(found[key]), spec.paper.count),
                _beside(side, spec.paper.side),
                _beside(epochs, paper) if paper else "",
                _beside(hidden, width) if width else "",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _beside(here: int, paper: int) -> str:
    return str(here) if here == paper else f"{here} (paper {paper})"
