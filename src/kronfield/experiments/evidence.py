"""The figures that the measured claims are judged by, from the rows of the experiments.

There is one function per claim. It returns named numbers, or nothing if rows are missing. Methods
are compared on the same items at the same side, after equally many epochs: the largest side with
enough items for an interval, or else the side with the most items.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kronfield.experiments import closed_form_claims, slopes
from kronfield.experiments.encodings import simple_encoding
from kronfield.experiments.paired import FEWEST, Number, paired, paired_ratio
from kronfield.experiments.results import Row
from kronfield.experiments.spec import ENCODERS, SPECS, Method, load_spec
from kronfield.experiments.tables import current

FOURIER, SHIFTED = ("LinF", "LogF", "RFF"), ("Tri", "Gau")
TABLES = ("table1", "table2", "table3", "table4")
# Names of the figures of a comparison that lacks some of the paper's encoders.
ENCODERS_COMPARED = "encoders of the deep networks"
ENCODERS_KNOWN = "encoders of the deep networks in the paper"
# The table with the same task, data and settings as a visual comparison.
SAME_TASK = {"visual-grid": "table1", "visual-random": "table2"}

Figures: TypeAlias = dict[str, Number]
# PSNR by item.
Values: TypeAlias = dict[str, float]


class Evidence:
    """The finished rows of all experiments by name, and the rows of measured times."""

    def __init__(self, results: Mapping[str, Iterable[Row]]) -> None:
        self.rows = {name: current(load_spec(name), results.get(name, ())) for name in SPECS}
        self.slopes = list(results.get(slopes.NAME, ()))
        self.times = [row for row in results.get("times", ()) if not row.get("error")]

    def group(self, table: str, group: str) -> list[Row]:
        """Return the rows of one group of methods."""
        return [row for row in self.rows[table] if row["group"] == group]


class Match(NamedTuple):
    """Two sets of rows at one side on the same items: PSNR by encoder and item.

    All networks had ``epochs`` epochs; 0 if there are none.
    """

    side: int
    epochs: int
    items: list[str]
    first: dict[str, Values]
    second: dict[str, Values]
    rows: list[Row]  # of the second set

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key: enough items come first, then the larger side."""
        return min(len(self.items), FEWEST), self.side

    def best(self, which: int) -> str:
        """Return the encoder with the best mean over the items in a set, 0 or 1."""
        values = (self.first, self.second)[which]
        return max(values, key=lambda name: self.mean(values[name]))

    def mean(self, values: Values) -> float:
        """Return the mean over the items."""
        return statistics.fmean(values[item] for item in self.items)

    def difference(self, first: str, second: str, family: str = "") -> Number:
        """Return the paired differences of two encoders, one of each set."""
        a, b = self.first[first], self.second[second]
        return paired((a[item] - b[item] for item in self.items), family=family)


def matches(some: Sequence[Row], others: Sequence[Row]) -> list[Match]:
    """Return a `Match` of two sets of rows for every side; the match to judge by comes first.

    Networks are compared after equally many epochs, the most for which both sets have rows, and
    with hidden layers of one width, the largest. Closed forms have no epochs. Items without a row
    for every encoder of the side, as in a run that is not finished, are left out. If too few items
    remain, encoders are left out instead: those with the fewest items first, and only if enough
    items remain without them.
    """
    found = list[Match]()
    for (side,) in _distinct(some, "side") & _distinct(others, "side"):
        here = [[row for row in rows if row["side"] == side] for rows in (some, others)]
        for epochs, hidden in _protocols(row for rows in here for row in rows):
            a, b = (
                [r for r in rows if r["epochs"] in (0, epochs) and r["hidden"] in (0, hidden)]
                for rows in here
            )
            first, second = _with_enough_items(_by_encoder(a), _by_encoder(b))
            items = _common([*first.values(), *second.values()])
            if items and first and second:
                rows = [r for r in b if r["item"] in items and r["encoder"] in second]
                found.append(Match(side, epochs, items, first, second, rows))
                break
    return sorted(found, key=lambda one: one.rank, reverse=True)


def _protocols(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Return the combinations of epochs and hidden widths of networks, the largest first."""
    given = list(rows)
    values = [sorted({row[key] for row in given}, reverse=True) for key in ("epochs", "hidden")]
    return list(itertools.product(*([x for x in some if x] or [0] for some in values)))


def _with_enough_items(
    first: dict[str, Values], second: dict[str, Values]
) -> tuple[dict[str, Values], dict[str, Values]]:
    """Leave out the encoders with the fewest items, if too few items have a row for all encoders.

    Both sets keep an encoder. If no choice has enough items, all encoders are kept.
    """
    kept = [dict(first), dict(second)]
    while len(_common([*kept[0].values(), *kept[1].values()])) < FEWEST:
        droppable = [
            (len(values), encoder, which)
            for which, one in enumerate(kept)
            if len(one) > 1
            for encoder, values in one.items()
        ]
        if not droppable:
            return first, second
        _, encoder, which = min(droppable)
        del kept[which][encoder]
    return kept[0], kept[1]


def _by_encoder(rows: Iterable[Row]) -> dict[str, Values]:
    """Return the PSNR by encoder and item; the mean if there are several seeds."""
    found = dict[str, dict[str, list[float]]]()
    for row in rows:
        found.setdefault(row["encoder"], {}).setdefault(row["item"], []).append(row["psnr"])
    return {
        encoder: {item: statistics.fmean(values) for item, values in by_item.items()}
        for encoder, by_item in found.items()
    }


def _common(values: Iterable[Iterable[str]]) -> list[str]:
    """Return the items that all have."""
    sets = [set(some) for some in values]
    return sorted(set.intersection(*sets)) if sets else []


# Speed
# --------------------------------------------------------------------------------------------------


def closed_speed(found: Evidence) -> Figures:
    """Compare the seconds of deep networks with those of the closed form."""
    figures = Figures()
    for table in ("table1", "table3"):
        times = _times(found, table, "simple", "closed")
        figures |= {f"{table}: {name}": number for name, number in times.items()}
    return figures


def descent_speed(found: Evidence, table: str) -> Figures:
    """Compare the seconds of deep networks with those of descent on complex encodings."""
    times = _times(found, table, "simple", "complex")
    if not times:
        return {}
    paper = [
        statistics.fmean(m.paper["seconds"] for m in load_spec(table).methods if m.group == group)
        for group in ("simple", "complex")
    ]
    return times | {"speed-up in the paper's table": Number(paper[0] / paper[1])}


def _times(found: Evidence, table: str, slow: str, quick: str) -> Figures:
    """Return mean seconds over items and encoders, and the ratio by item.

    Only rows of the experiment "times" are used: the runs of the tables may have shared the
    machine with other runs.
    """
    by_group = dict[str, dict[str, list[float]]]()
    rows = [row for row in found.times if row["table"] == table]
    sides = [{row["side"] for row in rows if row["group"] == group} for group in (slow, quick)]
    side = max(sides[0] & sides[1], default=None)
    rows = [row for row in rows if row["side"] == side]
    for row in rows:
        by_group.setdefault(row["group"], {}).setdefault(row["item"], []).append(row["seconds"])
    if not {slow, quick} <= set(by_group):
        return {}
    items = _common([by_group[slow], by_group[quick]])
    if not items:
        return {}
    seconds = {
        group: {item: statistics.fmean(by_group[group][item]) for item in items}
        for group in (slow, quick)
    }
    figures = Figures()
    for group, values in seconds.items():
        some = [row for row in rows if row["group"] == group]
        name = f"{group} at the paper's epochs" if some[0]["epochs"] else group
        figures[name] = Number(statistics.fmean(values.values()), "s")
        figures[f"threads of {group}"] = Number(max(row["threads"] for row in some))
    figures["side"] = Number(rows[0]["side"])
    figures["load of the machine before"] = Number(max(row["load"] for row in rows))
    ratios = (seconds[slow][item] / seconds[quick][item] for item in items)
    return figures | {"speed-up": paired_ratio(ratios, "speed-up")}


# Complex linear models against deep networks
# --------------------------------------------------------------------------------------------------


def comparable(found: Evidence, table: str, group: str) -> Figures:
    """Compare the best encoder of a group with the best of the deep networks, item by item."""
    simple = found.group(table, "simple")
    candidates = matches(found.group(table, group), simple)
    if not candidates:
        return {}
    judged, *others = candidates
    figures = _difference(judged, (group, "simple"))
    paper = [_best_in_paper(table, name) for name in (group, "simple")]
    figures["difference in the paper's table"] = Number(paper[0] - paper[1], "dB")
    known = len({m.encoder for m in load_spec(table).methods if m.group == "simple"})
    if len(judged.second) < known:
        figures[ENCODERS_COMPARED] = Number(len(judged.second))
        figures[ENCODERS_KNOWN] = Number(known)
    free = [r for r in found.group(table, "ours") if r["method"] == "ours: nothing chosen"]
    for match in matches(free, simple):
        if match.side == judged.side:
            (ours,) = match.first
            figures["kronfield, nothing chosen, minus simple"] = match.difference(
                ours, match.best(1)
            )
    figures |= _protocol(table, judged.rows)
    for match in others:
        name = f"difference at side {match.side}{_fewer_epochs(table, match)}"
        figures[name] = match.difference(match.best(0), match.best(1))
    return figures


def _fewer_epochs(table: str, match: Match) -> str:
    """Return in words how many epochs the networks had, if fewer than the paper's."""
    spec = load_spec(table)
    epochs = {spec.paper.epochs_of(m) for m in spec.methods if m.group == "simple"}
    fewer = match.epochs and match.epochs not in epochs
    return f" after {match.epochs:,} epochs" if fewer else ""


def _difference(match: Match, names: tuple[str, str]) -> Figures:
    """Return the best mean PSNR by encoder of two sets, and their paired difference."""
    first, second = match.best(0), match.best(1)
    return {
        f"{names[0]} {first}": Number(match.mean(match.first[first]), "dB"),
        f"{names[1]} {second}": Number(match.mean(match.second[second]), "dB"),
        "difference": match.difference(first, second, "difference"),
    }


def _best_in_paper(table: str, group: str) -> float:
    methods = load_spec(table).methods
    return max(m.paper["psnr"] for m in methods if m.group == group and "psnr" in m.paper)


def _protocol(table: str, rows: Sequence[Row]) -> Figures:
    """Return side, epochs and width of the networks of a group, and the paper's if they differ."""
    spec, group = load_spec(table), rows[0]["group"]
    paper = spec.method(rows[0]["method"])
    assert paper is not None
    both = {
        "side": (min(row["side"] for row in rows), spec.paper.side),
        f"epochs of {group}": (min(row["epochs"] for row in rows), spec.paper.epochs_of(paper)),
        f"hidden width of {group}": (min(row["hidden"] for row in rows), paper.hidden),
    }
    figures = Figures()
    for name, (here, there) in both.items():
        if there:
            figures[name] = Number(here)
        if here != there:
            figures[f"{name} in the paper"] = Number(there)
    return figures


# Fourier encodings against shifted ones
# --------------------------------------------------------------------------------------------------


def fourier_against_shifted(found: Evidence) -> Figures:
    """Compare the best Fourier with the best shifted encoding under descent, in each table."""
    figures = Figures()
    for table in TABLES:
        rows = found.group(table, "complex")
        fourier, shifted = (
            [row for row in rows if row["encoder"] in names] for names in (FOURIER, SHIFTED)
        )
        for match in matches(fourier, shifted)[:1]:
            some = _difference(match, ("Fourier", "shifted"))
            some |= {"side": Number(match.side), "epochs": Number(match.epochs)}
            figures |= {f"{table}: {name}": number for name, number in some.items()}
    return figures


def closed_against_descent(found: Evidence) -> Figures:
    """Compare the closed form with descent on the same features, which have the same rank."""
    keys = ("features", "setting", "seed")
    figures = Figures()
    for table, encoder in itertools.product(("table1", "table3"), FOURIER):
        closed, descent = (
            [row for row in found.group(table, group) if row["encoder"] == encoder]
            for group in ("closed", "complex")
        )
        closed, descent = _in_common(closed, descent, keys=keys)
        for match in matches(closed, descent)[:1]:
            name = f"{table} {encoder}"
            first = next(row for row in closed if row["side"] == match.side)
            gain = match.difference(encoder, encoder, "gain")
            figures[f"{name}: closed form minus descent"] = gain
            figures[f"{name}: rank"] = Number(first["rank"][0])
            figures[f"{name}: features"] = Number(first["features"])
            figures[f"{name}: side"] = Number(match.side)
    return figures | _starts(found) if figures else {}


def _starts(found: Evidence) -> Figures:
    """Compare descent on video from zero with descent from a random start."""
    figures = Figures()
    zero = [row for row in found.group("table3", "ours") if row["how"] == "descent"]
    for encoder in ENCODERS:
        some = [row for row in zero if row["encoder"] == encoder]
        other = [row for row in found.group("table3", "complex") if row["encoder"] == encoder]
        for match in matches(*_in_common(some, other, keys=("features", "setting", "epochs")))[:1]:
            name = f"table3 {encoder}: start at zero minus random start"
            figures[name] = match.difference(encoder, encoder)
    return figures


def settled_epochs(found: Evidence) -> Figures:
    """Compare the epochs until the training loss is within 0.5 dB of its best.

    Both groups must have had the same number of epochs at the same side. The ratio is by item, of
    the means over encoders.
    """
    simple, complex_ = (found.group("table1", group) for group in ("simple", "complex"))
    keys = ("side", "epochs")
    choices = list[tuple[tuple[int, int, int], list[str], list[Values]]]()
    for side, epochs in _distinct(simple, *keys) & _distinct(complex_, *keys):
        a, b = (
            [row for row in rows if (row["side"], row["epochs"]) == (side, epochs)]
            for rows in (simple, complex_)
        )
        a, b = _in_common(a, b, keys=("item", "encoder"))
        settled = [_settled(rows) for rows in (a, b)]
        items = _common(settled)
        if items:
            choices.append(((min(len(items), FEWEST), side, epochs), items, settled))
    if not choices:
        return {}
    (_, side, epochs), items, (slow, quick) = max(choices, key=lambda one: one[0])
    return {
        "simple settles after": Number(statistics.fmean(slow[i] for i in items), "epochs"),
        "complex settles after": Number(statistics.fmean(quick[i] for i in items), "epochs"),
        "complex / simple": paired((quick[i] / max(1.0, slow[i]) for i in items), ""),
        "both trained for": Number(epochs, "epochs"),
        "side": Number(side),
    }


def _settled(rows: Iterable[Row]) -> Values:
    """Return the mean over encoders of the epoch at which descent settled, by item."""
    found = dict[str, list[float]]()
    for row in rows:
        found.setdefault(row["item"], []).append(row["settled_epoch"])
    return {item: statistics.fmean(values) for item, values in found.items()}


# Depth
# --------------------------------------------------------------------------------------------------


def linear_against_linear(found: Evidence) -> Figures:
    """Compare complex with simple encodings, both with one linear layer."""
    return _visual(found, ("complex", 0), ("simple", 0))


def depth_on_simple(found: Evidence) -> Figures:
    """Compare depth 4 with depth 0 on simple encodings."""
    return _visual(found, ("simple", 4), ("simple", 0))


def depth_on_complex(found: Evidence) -> Figures:
    """Compare depth 1 with depth 0 on complex encodings."""
    return _visual(found, ("complex", 1), ("complex", 0))


def _visual(found: Evidence, first: tuple[str, int], second: tuple[str, int]) -> Figures:
    """Return paired differences between two models of equal epochs, by task and encoder.

    A model is a group and a depth. Some of the models are in the tables, on the same task and data.
    """
    figures, protocols = Figures(), dict[str, dict[str, Number]]()
    for name, table in SAME_TASK.items():
        rows, task = [*found.rows[name], *found.rows[table]], load_spec(name).task
        for encoder in ENCODERS:
            a, b = (
                [r for r in rows if (r["encoder"], r["group"], r["depth"]) == (encoder, *model)]
                for model in (first, second)
            )
            for match in matches(*_in_common(a, b, keys=("side", "epochs")))[:1]:
                family = f"{'Fourier' if encoder in FOURIER else 'shifted'} difference"
                figures[f"{task} {encoder}"] = match.difference(encoder, encoder, family)
                for key, number in _protocol(name, match.rows).items():
                    protocols.setdefault(f"{task}: {key}", {})[encoder] = number
    for key, by_encoder in protocols.items():
        if len(set(by_encoder.values())) == 1:
            figures[key] = next(iter(by_encoder.values()))
        else:
            figures |= {f"{key}, {encoder}": number for encoder, number in by_encoder.items()}
    return figures


def depth_against_rank(found: Evidence) -> Figures:
    """Compare depths 0, 1 and 2 at the highest and the lowest rank, on rows and columns."""
    spec, rows = load_spec("rank-depth"), found.rows["rank-depth"]
    choices = list[tuple[tuple[int, int, int], dict[str, Values]]]()
    for side, epochs in _distinct(rows, "side", "epochs"):
        values = {
            method.key: {
                row["item"]: row["psnr"]
                for row in rows
                if (row["method"], row["side"], row["epochs"]) == (method.key, side, epochs)
            }
            for method in spec.methods
        }
        count = len(_common(values.values()))
        if count:
            choices.append(((min(count, FEWEST), side, epochs), values))
    if not choices:
        return {}
    (_, side, epochs), values = max(choices, key=lambda one: one[0])
    items = _common(values.values())
    figures = Figures()
    for encoder in dict.fromkeys(method.encoder for method in spec.methods):
        # setting, high rank first -> depth -> values
        by_setting = dict[float, list[Values]]()
        for method in spec.methods:
            if method.encoder == encoder:
                by_setting.setdefault(method.setting, []).append(values[method.key])
        high, *_, low = by_setting.values()
        loss = [high[0][i] - low[0][i] for i in items]
        gain_high = [high[1][i] - high[0][i] for i in items]
        gain_low = [low[1][i] - low[0][i] for i in items]
        found_here = {
            "loss of linear at low rank": loss,
            "gain of one layer at high rank": gain_high,
            "gain of one layer at low rank": gain_low,
            "gain of one layer, low minus high rank": _minus(gain_low, gain_high),
            "loss that one layer leaves": _minus(loss, gain_low),
            "gain of a second layer at low rank": [low[2][i] - low[1][i] for i in items],
        }
        figures |= {f"{encoder}: {n}": paired(v, family=n) for n, v in found_here.items()}
    return figures | _protocol(
        "rank-depth", [r for r in rows if (r["side"], r["epochs"]) == (side, epochs)]
    )


def _minus(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(some, others, strict=True)]


# Parameters
# --------------------------------------------------------------------------------------------------


def parameters(found: Evidence) -> Figures:
    """Count the weights of the networks with the paper's settings; no rows are needed."""
    figures, different = Figures(), 0
    for table, group in itertools.product(TABLES, ("simple", "complex")):
        spec = load_spec(table)
        for method in spec.methods:
            if method.group == group:
                count = parameter_count(method, spec.dimensions)
                different += count != int(method.paper["parameters"])
                figures[f"{table} {group}"] = Number(count)
    return figures | {"networks with another number than printed": Number(different)}


def parameter_count(method: Method, dimensions: int) -> int:
    """Return the number of weights of the network of a method, for three channels."""
    if method.is_simple:
        sizes = [simple_encoding(method, dimensions, 0).size, *[method.hidden] * method.depth, 3]
        return sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    return 3 * method.features**dimensions


def _distinct(rows: Iterable[Row], *keys: str) -> set[tuple[Any, ...]]:
    """Return the distinct combinations of values of some columns."""
    return {tuple(row[key] for key in keys) for row in rows}


def _in_common(
    some: Sequence[Row], others: Sequence[Row], *, keys: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of both sets whose values in some columns occur in both."""
    common = _distinct(some, *keys) & _distinct(others, *keys)
    a, b = (
        [row for row in rows if tuple(row[key] for key in keys) in common]
        for rows in (some, others)
    )
    return a, b


# Rank, number of features, and complexity
# --------------------------------------------------------------------------------------------------


def same_rank(found: Evidence) -> Figures:
    """Compare encodings of equal stable rank and distance preservation; no rows are needed."""
    return closed_form_claims.same_rank()


def frequency_choice(found: Evidence) -> Figures:
    """Return how PSNR varies with the draw of frequencies; no rows are needed."""
    return closed_form_claims.frequency_choice()


def bandwidth(found: Evidence) -> Figures:
    """Return the error of sums over as many features as the bandwidth; no rows are needed."""
    return {name: Number(value) for name, value in closed_form_claims.bandwidth().items()}


def complexity(found: Evidence) -> Figures:
    """Return measured exponents of CPU time, each with the interval of the slope of its line."""
    return slopes.figures(found.slopes)
