"""The runs of page.toml, behind docs/reproduction.md: their missing jobs and their scaling."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kronfield._core.records import record
from kronfield.experiments import differences
from kronfield.experiments.results import Row, wrapped
from kronfield.experiments.runner import estimated_seconds
from kronfield.experiments.spec import GROUPS, NOUNS, SPECS, Method, Size, Spec, load_spec
from kronfield.experiments.tables import current, longest

HOW_MISSING = (
    "Not all runs are finished. Verdicts are on what is finished, and say how many items that is. "
    "`kronfield reproduce NAME --size page --side SIDE --images KODAK --output docs/reproduction` "
    "runs the missing jobs of a name and side, and no others. The minutes are estimated from the "
    "number of operations, on one core of the machine on which times were measured."
)
HEAD_MISSING = ("", "side", "models", "finished jobs", "minutes for the others")
HOW_UNCLIPPED = (
    "These rows are from before PSNR without clipping was kept. The tables give that difference "
    "over the other rows, with their n. The minutes are those of running these rows again."
)
HEAD_UNCLIPPED = ("", "side", "models", "epochs", "rows without unclipped PSNR", "minutes")


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

    @property
    def items(self) -> str:
        """The number of items in words; the cubes of one clip count as items."""
        noun = NOUNS[self.spec.kind]
        return f"{self.count} {f'cubes of {noun}' if self.crops > 1 else noun}"

    def done(self, rows: Iterable[Row]) -> dict[str, Done]:
        """Return by group of methods how many of the jobs have a row."""
        wanted = {method.key: self.size.epochs_of(method) for method in self.chosen}
        found = {
            (row["method"], row["item"])
            for row in current(self.spec, rows)
            if row["side"] == self.side and wanted.get(row["method"]) == row["epochs"]
        }
        counts = dict[str, Done]()
        for method in self.chosen:
            done = min(self.count, sum(key == method.key for key, _ in found))
            seconds = (self.count - done) * estimated_seconds(self.spec, self.size, method)
            group = _group(self.spec, method)
            before = counts.get(group, Done())
            counts[group] = Done(
                before.jobs + done, before.of + self.count, before.seconds + seconds
            )
        return counts


class Done(NamedTuple):
    """How many of the jobs of a run have a row, and the estimated seconds of the others."""

    jobs: int = 0
    of: int = 0
    seconds: float = 0.0


def _group(spec: Spec, method: Method) -> str:
    """Return the group of a method, with its depth if the group has several."""
    return f"{method.group} of depth {method.depth}" if _has_depths(spec, method) else method.group


def _has_depths(spec: Spec, method: Method) -> bool:
    return len({other.depth for other in spec.methods if other.group == method.group}) > 1


@functools.lru_cache
def page_runs() -> tuple[Run, ...]:
    """Return the runs of page.toml."""
    folder = importlib.resources.files("kronfield.experiments")
    text = folder.joinpath("page.toml").read_text(encoding="utf-8")
    return tuple(Run(**entry) for entry in tomllib.loads(text)["run"])


def missing(results: Mapping[str, Iterable[Row]]) -> str:
    """Return the runs with missing jobs as Markdown, and the minutes that they would take."""
    rows = {name: list(some) for name, some in results.items()}
    cells, total, parts = list[tuple[str, ...]](), 0.0, list[str]()
    for run in page_runs():
        for group, done in run.done(rows.get(run.experiment, ())).items():
            if done.jobs < done.of:
                finished = f"{done.jobs} of {done.of} ({run.items})"
                minutes = _minutes(done.seconds)
                cells.append((f"`{run.experiment}`", str(run.side), group, finished, minutes))
                total += done.seconds
    if cells:
        cells.append(("all of these", "", "", "", _minutes(total)))
        parts += [wrapped(HOW_MISSING), _table(HEAD_MISSING, cells)]
    unclipped = _without_unclipped(rows)
    if unclipped:
        parts += [wrapped(HOW_UNCLIPPED), _table(HEAD_UNCLIPPED, unclipped)]
    measured = [
        f"- `{name}`: {what}."
        for name, what in (
            ("times", "no times were measured"),
            ("slopes", "no complexity was measured"),
            (differences.NAME, "no difference from the released code was measured"),
        )
        if not rows.get(name)
    ]
    if measured:
        parts.append("\n".join(measured))
    return "\n\n".join(parts) or "Nothing: all runs are finished."


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}" if seconds >= 30 else "less than 1"


def _table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _without_unclipped(rows: Mapping[str, Iterable[Row]]) -> list[tuple[str, ...]]:
    """Return the rows beside a number of the paper that lack PSNR without clipping, by run."""
    cells = list[tuple[str, ...]]()
    for name in SPECS:
        spec, found = load_spec(name), dict[tuple[int, int, str], list[tuple[bool, float]]]()
        for row in longest(current(spec, rows.get(name, ()))):
            method = spec.method(row["method"])
            assert method is not None
            if "psnr" in method.paper:
                lacking = row.get("psnr_unclipped") is None
                size = spec.paper.replace(side=row["side"], epochs=row["epochs"] or None)
                seconds = estimated_seconds(spec, size, method) if lacking else 0.0
                key = (-row["side"], -row["epochs"], _group(spec, method))
                found.setdefault(key, []).append((lacking, seconds))
        for (side, epochs, group), some in sorted(found.items()):
            count, seconds = sum(lacking for lacking, _ in some), sum(time for _, time in some)
            if count:
                share, length = f"{count} of {len(some)}", f"{-epochs:,}" if epochs else ""
                cells.append((f"`{name}`", str(-side), group, length, share, _minutes(seconds)))
    return cells


def scaled(results: Mapping[str, Iterable[Row]]) -> str:
    """Return a table of the protocols of the rows, beside the paper's, as Markdown."""
    head, lines = ("", "models", "items", "side", "epochs", "hidden width"), list[Sequence[str]]()
    for name in SPECS:
        spec, found = load_spec(name), dict[tuple[int, str, str, str, str], dict[str, set[str]]]()
        for row in longest(current(spec, results.get(name, ()))):
            method = spec.method(row["method"])
            assert method is not None
            epochs, width = spec.paper.epochs_of(method), method.hidden if method.depth else 0
            key = (
                -row["side"],
                _beside(row["side"], spec.paper.side),
                _beside(row["epochs"], epochs) if epochs else "",
                _beside(row["hidden"], width) if width else "",
                GROUPS[method.group]
                + (f", depth {method.depth}" if _has_depths(spec, method) else ""),
            )
            found.setdefault(key, {}).setdefault(method.key, set()).add(row["item"])
        # Models of the same protocol and number of items share a line.
        models = dict[tuple[int, str, str, str, str], list[str]]()
        for (order, side, epochs_cell, width_cell, model), by_method in found.items():
            counts = sorted({len(items) for items in by_method.values()})
            here = " to ".join(map(str, counts[:1] + counts[-1:])) if len(counts) > 1 else counts[0]
            items_cell = _beside(here, spec.paper.count)
            models.setdefault((order, side, epochs_cell, width_cell, items_cell), []).append(model)
        for key in sorted(models):
            _, side, epochs_cell, width_cell, items_cell = key
            some = "; ".join(models[key])
            lines.append((name, some, items_cell, side, epochs_cell, width_cell))
    return _table(head, lines)


def _beside(here: int | str, paper: int) -> str:
    return str(here) if here == paper else f"{here} (paper {paper})"
