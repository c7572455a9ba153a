"""The runs of page.toml, behind docs/reproduction.md: their missing jobs and their scaling."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping

from kronfield._core.records import record
from kronfield.experiments import differences
from kronfield.experiments.results import Row
from kronfield.experiments.spec import GROUPS, NOUNS, SPECS, Method, Size, Spec, load_spec
from kronfield.experiments.tables import current


@record
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

    def done(self, rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
        """Return by group of methods how many of the jobs have a row, and how many there are."""
        wanted = {method.key: self.size.epochs_of(method) for method in self.chosen}
        found = {
            (row["method"], row["item"])
            for row in current(self.spec, rows)
            if row["side"] == self.side and wanted.get(row["method"]) == row["epochs"]
        }
        counts = dict[str, tuple[int, int]]()
        for method in self.chosen:
            group = f"{method.group} of depth {method.depth}" if self.spec.keep else method.group
            done = min(self.count, sum(key == method.key for key, _ in found))
            before = counts.get(group, (0, 0))
            counts[group] = before[0] + done, before[1] + self.count
        return counts


@functools.lru_cache
def page_runs() -> tuple[Run, ...]:
    """Return the runs of page.toml."""
    folder = importlib.resources.files("kronfield.experiments")
    text = folder.joinpath("page.toml").read_text(encoding="utf-8")
    return tuple(Run(**entry) for entry in tomllib.loads(text)["run"])


def missing(results: Mapping[str, Iterable[Row]]) -> str:
    """Return the runs with missing jobs as Markdown, with the number of jobs that have a row."""
    rows = {name: list(some) for name, some in results.items()}
    lines = list[str]()
    for run in page_runs():
        lines += [
            f"- `{run.experiment}` at side {run.side}, {group}: {done} of {jobs} jobs"
            f" ({run.count} {NOUNS[run.spec.kind]})."
            for group, (done, jobs) in run.done(rows.get(run.experiment, ())).items()
            if done < jobs
        ]
    lines += _without_unclipped(rows)
    lines += [
        f"- `{name}`: {what}."
        for name, what in (
            ("times", "no times were measured"),
            ("slopes", "no complexity was measured"),
            (differences.NAME, "no difference from the released code was measured"),
        )
        if not rows.get(name)
    ]
    return "\n".join(lines) if lines else "Nothing: all runs are finished."


def _without_unclipped(rows: Mapping[str, Iterable[Row]]) -> list[str]:
    """Return the rows beside a number of the paper that lack PSNR without clipping, by run."""
    lines = list[str]()
    for name in SPECS:
        spec, counts = load_spec(name), dict[tuple[int, int, str], list[bool]]()
        for row in current(spec, rows.get(name, ())):
            method = spec.method(row["method"])
            assert method is not None
            if "psnr" in method.paper:
                group = f"{method.group} of depth {method.depth}" if spec.keep else method.group
                given = row.get("psnr_unclipped") is not None
                counts.setdefault((-row["side"], -row["epochs"], group), []).append(given)
        for (side, epochs, group), known in sorted(counts.items()):
            if not all(known):
                run = f"`{name}` at side {-side}, {group}"
                run += f", {-epochs:,} epochs" if epochs else ""
                lacking = f"{known.count(False)} of {len(known)} rows"
                lines.append(f"- {run}: {lacking} without unclipped PSNR.")
    return lines


def scaled(results: Mapping[str, Iterable[Row]]) -> str:
    """Return a table of the protocols of the rows, beside the paper's, as Markdown."""
    head = ("", "models", "items", "side", "epochs", "hidden width")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in SPECS:
        spec, found = load_spec(name), dict[tuple[int, str, str, str, str], set[str]]()
        for row in current(spec, results.get(name, ())):
            method = spec.method(row["method"])
            assert method is not None
            epochs, width = spec.paper.epochs_of(method), method.hidden if method.depth else 0
            key = (
                -row["side"],
                _beside(row["side"], spec.paper.side),
                _beside(row["epochs"], epochs) if epochs else "",
                _beside(row["hidden"], width) if width else "",
                GROUPS[method.group] + (f", depth {method.depth}" if spec.keep and epochs else ""),
            )
            found.setdefault(key, set()).add(row["item"])
        # Models of the same protocol and number of items share a line.
        models = dict[tuple[int, str, str, str, str], list[str]]()
        for (order, side, epochs_cell, width_cell, model), items in found.items():
            items_cell = _beside(len(items), spec.paper.count)
            models.setdefault((order, side, epochs_cell, width_cell, items_cell), []).append(model)
        for key in sorted(models):
            _, side, epochs_cell, width_cell, items_cell = key
            cells = (name, "; ".join(models[key]), items_cell, side, epochs_cell, width_cell)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _beside(here: int, paper: int) -> str:
    return str(here) if here == paper else f"{here} (paper {paper})"
