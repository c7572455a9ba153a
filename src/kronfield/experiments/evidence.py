"""The figures that the measured claims are judged by, from the rows of the experiments.

There is one function per claim. It returns named numbers, or nothing if rows are missing. Rows are
compared only if they are of the same items at the same side.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from kronfield.experiments import closed_form_claims, slopes
from kronfield.experiments.encodings import simple_encoding
from kronfield.experiments.results import Row
from kronfield.experiments.spec import ENCODERS, SPECS, Method, load_spec
from kronfield.experiments.tables import current, fullest

FOURIER, SHIFTED = ("LinF", "LogF", "RFF"), ("Tri", "Gau")
TABLES = ("table1", "table2", "table3", "table4")


class Number(NamedTuple):
    """A value and its unit; the unit of counts, ranks and ratios is empty."""

    value: float
    unit: str = ""


Figures: TypeAlias = dict[str, Number]


class Evidence:
    """The finished rows of all experiments, by name of the experiment."""

    def __init__(self, results: Mapping[str, Iterable[Row]]) -> None:
        self.rows = {name: current(load_spec(name), results.get(name, ())) for name in SPECS}
        self.slopes = list(results.get(slopes.NAME, ()))

    def group(self, table: str, group: str) -> list[Row]:
        """Return the rows of one group of methods."""
        return [row for row in self.rows[table] if row["group"] == group]

    def matched(self, table: str, first: str, second: str) -> tuple[list[Row], list[Row]]:
        """Return the rows of two groups on their common items, at the largest common side."""
        a, b = self.group(table, first), self.group(table, second)
        for (side,) in sorted(_distinct(a, "side") & _distinct(b, "side"), reverse=True):
            at_side = ([row for row in rows if row["side"] == side] for rows in (a, b))
            some, others = _in_common(*at_side, keys=("item",))
            if some:
                return fullest(some), fullest(others)
        return [], []


# Speed
# --------------------------------------------------------------------------------------------------


def closed_speed(found: Evidence) -> Figures:
    """Compare the seconds of deep networks with those of the closed form."""
    figures, ratios = Figures(), list[float]()
    for table in ("table1", "table3"):
        times = _times(found, table, "simple", "closed")
        if times:
            ratios.append(times["speed-up"].value)
            figures |= {f"{table}: {name}": number for name, number in times.items()}
    return figures | {"least speed-up": Number(min(ratios))} if ratios else {}


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
    """Return mean seconds over items and encoders, in proportion to the paper's epochs."""
    epochs = load_spec(table).paper.epochs
    figures, means = Figures(), list[float]()
    for group, rows in zip((slow, quick), found.matched(table, slow, quick), strict=True):
        if not rows:
            return {}
        means.append(
            statistics.fmean(
                row["seconds"] * (epochs.get(group, 1) / row["epochs"] if row["epochs"] else 1)
                for row in rows
            )
        )
        name = f"{group} at the paper's epochs" if rows[0]["epochs"] else group
        figures[name] = Number(means[-1], "s")
        figures[f"threads of {group}"] = Number(max(row["threads"] for row in rows))
        figures["side"] = Number(rows[0]["side"])
    return figures | {"speed-up": Number(means[0] / means[1])}


# Complex linear models against deep networks
# --------------------------------------------------------------------------------------------------


def comparable(found: Evidence, table: str, group: str) -> Figures:
    """Compare the best mean PSNR of a group with the best of the deep networks."""
    ours, simple = found.matched(table, group, "simple")
    if not ours:
        return {}
    figures = _difference(ours, simple)
    paper = [_best_in_paper(table, name) for name in (group, "simple")]
    figures["difference in the paper's table"] = Number(paper[0] - paper[1], "dB")
    chosen, simple_too = found.matched(table, "ours", "simple")
    free = [row["psnr"] for row in chosen if row["method"] == "ours: nothing chosen"]
    if free:
        gap = statistics.fmean(free) - _best(simple_too)[0]
        figures["kronfield, nothing chosen, minus simple"] = Number(gap, "dB")
    figures["items"] = Number(len(_distinct(ours, "item")))
    return figures | _protocol(table, simple)


def _difference(some: Sequence[Row], others: Sequence[Row]) -> Figures:
    """Return the best mean PSNR by encoder of two sets of rows, and their difference."""
    figures, best = Figures(), list[float]()
    for rows in (some, others):
        value, encoder = _best(rows)
        best.append(value)
        figures[f"{rows[0]['group']} {encoder}"] = Number(value, "dB")
    return figures | {"difference": Number(best[0] - best[1], "dB")}


def _best(rows: Sequence[Row]) -> tuple[float, str]:
    """Return the best mean PSNR by encoder, and the encoder."""
    by = dict[str, list[float]]()
    for row in rows:
        by.setdefault(row["encoder"], []).append(row["psnr"])
    return max((statistics.fmean(values), name) for name, values in by.items())


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
    """Compare Fourier with shifted encodings under descent, at the largest side of each table."""
    figures, gaps = Figures(), list[float]()
    for table in TABLES:
        rows = fullest(found.group(table, "complex"))
        fourier, shifted = (
            [row for row in rows if row["encoder"] in names] for names in (FOURIER, SHIFTED)
        )
        if fourier and shifted:
            some = _difference(fourier, shifted) | {"side": Number(rows[0]["side"])}
            gaps.append(some["difference"].value)
            figures |= {f"{table}: {name}": number for name, number in some.items()}
    return figures | _extremes("difference", gaps) if gaps else {}


def closed_against_descent(found: Evidence) -> Figures:
    """Compare the closed form with descent on the same features, which have the same rank."""
    keys = ("item", "side", "features", "setting", "seed")
    figures, gains = Figures(), list[float]()
    for table, encoder in itertools.product(("table1", "table3"), FOURIER):
        closed, descent = (
            [row for row in found.group(table, group) if row["encoder"] == encoder]
            for group in ("closed", "complex")
        )
        pairs = [(a, b) for a in closed for b in descent if all(a[key] == b[key] for key in keys)]
        if pairs:
            gains.append(statistics.fmean(a["psnr"] - b["psnr"] for a, b in pairs))
            name, first = f"{table} {encoder}", pairs[0][0]
            figures[f"{name}: closed form minus descent"] = Number(gains[-1], "dB")
            figures[f"{name}: rank"] = Number(first["rank"][0])
            figures[f"{name}: features"] = Number(first["features"])
    return figures | _extremes("gain", gains) | _starts(found) if gains else {}


def _starts(found: Evidence) -> Figures:
    """Return the PSNR of descent on video from zero and from a random start."""
    keys = ("encoder", "item", "side", "features", "setting", "epochs")
    from_zero = {
        row["encoder"]: row for row in found.group("table3", "ours") if row["how"] == "descent"
    }
    figures = Figures()
    for encoder, zero in from_zero.items():
        for row in found.group("table3", "complex"):
            if all(row[key] == zero[key] for key in keys):
                figures[f"table3 {encoder}: descent from zero"] = Number(zero["psnr"], "dB")
                figures[f"table3 {encoder}: from a random start"] = Number(row["psnr"], "dB")
    return figures


def settled_epochs(found: Evidence) -> Figures:
    """Compare the epochs until the training loss is within 0.5 dB of its best.

    Both groups must have had the same number of epochs at the same side.
    """
    simple, complex_ = (found.group("table1", group) for group in ("simple", "complex"))
    keys = ("side", "epochs")
    common = max(_distinct(simple, *keys) & _distinct(complex_, *keys), default=None)
    if common is None:
        return {}
    at_common = (
        [r for r in rows if (r["side"], r["epochs"]) == common] for rows in (simple, complex_)
    )
    simple, complex_ = _in_common(*at_common, keys=("item", "encoder"))
    if not simple:
        return {}
    a, b = (statistics.fmean(row["settled_epoch"] for row in rows) for rows in (simple, complex_))
    return {
        "simple settles after": Number(a, "epochs"),
        "half of simple": Number(a / 2, "epochs"),
        "complex settles after": Number(b, "epochs"),
        "both trained for": Number(common[1], "epochs"),
    }


# Depth
# --------------------------------------------------------------------------------------------------


def linear_against_linear(found: Evidence) -> Figures:
    """Compare complex with simple encodings, both with one linear layer."""
    figures, gaps = _visual(found, ("complex", 0), ("simple", 0))
    fourier = [gap for encoder, gap in gaps if encoder in FOURIER]
    return figures | _extremes("Fourier difference", fourier) if fourier else {}


def depth_on_simple(found: Evidence) -> Figures:
    """Compare depth 4 with depth 0 on simple encodings."""
    figures, gaps = _visual(found, ("simple", 4), ("simple", 0))
    return figures | _extremes("difference", [gap for _, gap in gaps]) if gaps else {}


def depth_on_complex(found: Evidence) -> Figures:
    """Compare depth 1 with depth 0 on complex encodings."""
    figures, gaps = _visual(found, ("complex", 1), ("complex", 0))
    for name, encoders in (("Fourier", FOURIER), ("shifted", SHIFTED)):
        some = [gap for encoder, gap in gaps if encoder in encoders]
        if not some:
            return {}
        figures[f"mean of {name}"] = Number(statistics.fmean(some), "dB")
    return figures


def _visual(
    found: Evidence, first: tuple[str, int], second: tuple[str, int]
) -> tuple[Figures, list[tuple[str, float]]]:
    """Return PSNR differences between two models given by group and depth, also by encoder."""
    figures, protocol, gaps = Figures(), Figures(), list[tuple[str, float]]()
    for name, task in (("visual-grid", "grid"), ("visual-random", "random")):
        for encoder in ENCODERS:
            rows = [
                fullest(
                    row
                    for row in found.group(name, group)
                    if (row["encoder"], row["depth"]) == (encoder, depth)
                )
                for group, depth in (first, second)
            ]
            if all(rows):
                a, b = (statistics.fmean(row["psnr"] for row in some) for some in rows)
                gaps.append((encoder, a - b))
                figures[f"{task} {encoder}"] = Number(a - b, "dB")
                protocol |= _protocol(name, rows[0]) | _protocol(name, rows[1])
    return figures | protocol, gaps


def depth_against_rank(found: Evidence) -> Figures:
    """Compare depths 0, 1 and 2 at the highest and the lowest rank, on rows and columns."""
    spec, rows = load_spec("rank-depth"), fullest(found.rows["rank-depth"])
    means = dict[str, dict[float, list[float]]]()  # encoder -> setting, high rank first -> depths
    for method in spec.methods:
        psnrs = [row["psnr"] for row in rows if row["method"] == method.key]
        if not psnrs:
            return {}
        by_setting = means.setdefault(method.encoder, {})
        by_setting.setdefault(method.setting, []).append(statistics.fmean(psnrs))
    figures, loss, first, contrast, second = Figures(), *(list[float]() for _ in range(4))
    for encoder, by_setting in means.items():
        high, *_, low = by_setting.values()
        gain_high, gain_low, gain_second = high[1] - high[0], low[1] - low[0], low[2] - low[1]
        loss.append(high[0] - low[0])
        first.append(gain_low)
        contrast.append(gain_low - 3 * abs(gain_high))
        second.append(gain_second - gain_low)
        figures |= _decibels(
            {
                f"{encoder}: linear at high rank": high[0],
                f"{encoder}: linear at low rank": low[0],
                f"{encoder}: gain of one layer at high rank": gain_high,
                f"{encoder}: gain of one layer at low rank": gain_low,
                f"{encoder}: gain of a second layer at low rank": gain_second,
            }
        )
    return figures | _decibels(
        {
            "least loss of linear at low rank": min(loss),
            "least gain of one layer at low rank": min(first),
            "least gain at low rank minus 3 x gain at high rank": min(contrast),
            "largest gain of the second layer minus the first": max(second),
        }
    )


# Parameters
# --------------------------------------------------------------------------------------------------


def parameters(found: Evidence) -> Figures:
    """Count the weights of the networks of the paper's settings; no rows are needed."""
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


def _decibels(values: Mapping[str, float]) -> Figures:
    return {name: Number(value, "dB") for name, value in values.items()}


def _extremes(name: str, values: Sequence[float]) -> Figures:
    """Return the least and the largest of some values in dB."""
    return _decibels({f"least {name}": min(values), f"largest {name}": max(values)})


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


# What decides, how many features it takes, and what it costs
# --------------------------------------------------------------------------------------------------


def same_rank(found: Evidence) -> Figures:
    """Compare encodings of equal stable rank and distance preservation; no rows are needed."""
    return _named(closed_form_claims.same_rank())


def frequency_choice(found: Evidence) -> Figures:
    """Return how PSNR varies with the draw of frequencies; no rows are needed."""
    return _named(closed_form_claims.frequency_choice())


def bandwidth(found: Evidence) -> Figures:
    """Return the error of sums over as many features as the bandwidth; no rows are needed."""
    return _named(closed_form_claims.bandwidth())


def complexity(found: Evidence) -> Figures:
    """Return measured exponents of CPU time."""
    return _named(slopes.figures(found.slopes))


def _named(values: Mapping[str, float]) -> Figures:
    """Return numbers whose unit is at the end of their names, as in "difference (dB)"."""
    return {
        name.removesuffix(" (dB)"): Number(value, "dB" if name.endswith("(dB)") else "")
        for name, value in values.items()
    }
