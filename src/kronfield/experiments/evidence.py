"""What the rows of results say, compared like with like: the same items at the same side."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kronfield.experiments.encodings import simple_encoding
from kronfield.experiments.results import Row
from kronfield.experiments.spec import SPECS, Method, load_spec
from kronfield.experiments.tables import current, fullest
from kronfield.experiments.theory_claims import Finding


@dataclass(frozen=True)
class Number:
    """A number and the words that say what it was computed from; ``scaled`` is how its rows differ from the paper's."""

    value: float
    words: str
    scaled: str = ""


class Evidence:
    """The rows of all experiments that were run."""

    def __init__(self, results: Mapping[str, Iterable[Row]]) -> None:
        self.rows = {name: current(load_spec(name), results.get(name, ())) for name in SPECS}

    def missing(self, table: str, *groups: str) -> Finding:
        """Return that there are no rows to check by."""
        names = " and ".join(dict.fromkeys(groups))
        return Finding(
            "not checked",
            f"no rows of {names} that can be compared: run `kronfield reproduce {table}`",
        )

    def ratio(self, table: str, slow: str, quick: str) -> Number | None:
        """Return how many times faster a group is than another: means over items and encoders, at the same side.

        Where epochs differ from the paper's, seconds are scaled to its number.
        """
        pairs = self._at_one_side(table, slow, quick)
        if pairs is None:
            return None
        first, second, side = pairs
        spec = load_spec(table)

        def seconds(rows: Sequence[Row]) -> float:
            full = [
                r["seconds"]
                * (spec.paper.epochs.get(r["group"], 1) / r["epochs"] if r["epochs"] else 1)
                for r in rows
            ]
            return statistics.fmean(full)

        a, b = seconds(first), seconds(second)
        short = any(
            row["epochs"] and row["epochs"] != spec.paper.epochs.get(row["group"]) for row in first
        )
        threads = [sorted({row["threads"] for row in rows}) for rows in (first, second)]
        words = f"{a:,.3g} s and {b:,.3g} s, side {side}" + (
            ", scaled to the paper's epochs" if short else ""
        )
        if threads[0] != threads[1]:
            words += f", on {' or '.join(map(str, threads[0]))} and {' or '.join(map(str, threads[1]))} threads"
        return Number(a / b, words)

    def printed_ratio(self, table: str, slow: str, quick: str) -> float | None:
        """Return the same ratio by the paper's own numbers."""
        methods = load_spec(table).methods
        means = []
        for group in (slow, quick):
            printed = [
                m.paper["seconds"] for m in methods if m.group == group and "seconds" in m.paper
            ]
            if not printed:
                return None
            means.append(statistics.fmean(printed))
        return means[0] / means[1]

    def printed_gap(self, table: str, group: str, other: str) -> float | None:
        """Return the best PSNR that the paper prints of a group minus that of another."""
        best = []
        for one in (group, other):
            printed = [
                m.paper["psnr"]
                for m in load_spec(table).methods
                if m.group == one and "psnr" in m.paper
            ]
            if not printed:
                return None
            best.append(max(printed))
        return best[0] - best[1]

    def chosen_gap(self, table: str) -> tuple[float, bool] | None:
        """Return the PSNR with nothing chosen by hand minus the best of simple, and whether a penalty was chosen."""
        pairs = self._at_one_side(table, "ours", "simple")
        rows = (
            [row for row in pairs[0] if row["method"] == "ours: nothing chosen"]
            if pairs is not None
            else []
        )
        if pairs is None or not rows:
            return None
        penalty = any(
            "roughness" in row.get("chosen", "") or "ridge" in row.get("chosen", "") for row in rows
        )
        return statistics.fmean(row["psnr"] for row in rows) - _best(pairs[1])[0], penalty

    def best_gap(self, table: str, group: str, other: str) -> Number | None:
        """Return the best mean PSNR of a group minus that of another, on the items that both have."""
        pairs = self._at_one_side(table, group, other)
        if pairs is None:
            return None
        best = [_best(rows) for rows in pairs[:2]]
        (a, name_a), (b, name_b) = best
        items = len({row["item"] for row in pairs[0]})
        words = f"{name_a} {a:.2f}, {name_b} {b:.2f}, {items} of side {pairs[2]}"
        scaled = sorted({"; ".join(row["scaled"]) for row in pairs[1]} - {""})
        return Number(a - b, words, " / ".join(scaled))

    def encoder_gap(
        self, table: str, group: str, some: Sequence[str], others: Sequence[str]
    ) -> Number | None:
        """Return the best mean of some encoders minus that of others, within a group and at its largest side."""
        at = fullest(row for row in self.rows[table] if row["group"] == group)
        if not at:
            return None
        side = at[0]["side"]
        parts = [[row for row in at if row["encoder"] in names] for names in (some, others)]
        if not all(parts):
            return None
        (a, name_a), (b, name_b) = (_best(part) for part in parts)
        return Number(a - b, f"{name_a} {a:.2f}, {name_b} {b:.2f}, side {side}")

    def same_setting_gain(self, table: str, encoder: str) -> Number | None:
        """Return the mean PSNR in closed form minus that of descent, where both have the same features."""
        keys = ("item", "side", "features", "setting", "seed")
        closed, descent = (
            [row for row in self._of_group(table, group) if row["encoder"] == encoder]
            for group in ("closed", "complex")
        )
        pairs = [
            (one, two)
            for one in closed
            for two in descent
            if all(one[key] == two[key] for key in keys)
        ]
        if not pairs:
            return None
        first = pairs[0][0]
        gain = statistics.fmean(one["psnr"] - two["psnr"] for one, two in pairs)
        return Number(gain, f"rank {first['rank'][0]} of {first['features']}")

    def settled(self, table: str) -> tuple[float, float, str, bool] | None:
        """Return the mean epoch at which the loss is settled: simple, complex, in words, and whether epochs are equal.

        If both groups were given the same epochs on the same side somewhere, it is there that they
        are compared.
        """
        simple, complex_ = (self._of_group(table, group) for group in ("simple", "complex"))
        common = max(
            _distinct(simple, "side", "epochs") & _distinct(complex_, "side", "epochs"),
            default=None,
        )
        if common is not None:
            simple, complex_ = (
                [row for row in rows if (row["side"], row["epochs"]) == common]
                for rows in (simple, complex_)
            )
            simple, complex_ = _matched(simple, complex_, "item", "encoder")
        if not simple or not complex_:
            return None
        means, words = list[float](), list[str]()
        for group, rows in (("simple", simple), ("complex", complex_)):
            means.append(statistics.fmean(row["settled_epoch"] for row in rows))
            words.append(
                f"{group} {means[-1]:.0f} of {' or '.join(map(str, sorted({row['epochs'] for row in rows})))}"
            )
        return means[0], means[1], ", ".join(words), common is not None

    def from_zero(self, table: str) -> str:
        """Return in words the PSNR of descent from zero and of the same from a random start."""
        words = []
        for zero in {
            row["encoder"]: row
            for row in self.rows[table]
            if row["how"] == "descent" and row["group"] == "ours"
        }.values():
            same = ("encoder", "item", "side", "features", "setting", "epochs")
            for row in self.rows[table]:
                if row["group"] == "complex" and all(row[key] == zero[key] for key in same):
                    words.append(f"{zero['encoder']} {zero['psnr']:.2f} and {row['psnr']:.2f} dB")
        return ", ".join(words)

    def visual_gaps(self, group: str, depth: int, other: str, other_depth: int) -> dict[str, float]:
        """Return PSNR differences between two models by task and encoder, in the visual comparisons."""
        gaps = dict[str, float]()
        for name in ("visual-grid", "visual-random"):
            for encoder in ("LinF", "LogF", "RFF", "Tri", "Gau"):
                a, b = (
                    self._visual(name, encoder, *which)
                    for which in ((group, depth), (other, other_depth))
                )
                if a is not None and b is not None:
                    gaps[f"{name.partition('-')[2]} {encoder}"] = a - b
        return gaps

    def _visual(self, name: str, encoder: str, group: str, depth: int) -> float | None:
        rows = [
            r
            for r in self.rows[name]
            if (r["encoder"], r["group"], r["depth"]) == (encoder, group, depth)
        ]
        found = [row["psnr"] for row in fullest(rows)]
        return statistics.fmean(found) if found else None

    def line_means(self) -> dict[str, dict[str, list[float]]] | None:
        """Return the mean PSNR by encoder, setting (from high rank to low) and depth, of the rows and columns."""
        spec, rows = load_spec("rank-depth"), fullest(self.rows["rank-depth"])
        means = dict[str, dict[str, list[float]]]()
        for method in spec.methods:
            found = [row["psnr"] for row in rows if row["method"] == method.key]
            if not found:
                return None
            means.setdefault(method.encoder, {}).setdefault(f"{method.setting:g}", []).append(
                statistics.fmean(found)
            )
        return means

    def scaled_words(self, table: str, *groups: str) -> str:
        """Return in words what was scaled in the rows of some groups."""
        words = list[str]()
        for group in groups:
            scaled = sorted(
                {"; ".join(row["scaled"]) for row in self.rows[table] if row["group"] == group}
                - {""}
            )
            words += (
                [(f"{group}: " if len(groups) > 1 else "") + " / ".join(scaled)] if scaled else []
            )
        return f"It was run on less than the paper's protocol: {'. '.join(words)}." if words else ""

    def parameter_words(self) -> tuple[bool, str] | None:
        """Return whether networks of the paper's settings have its numbers of parameters, and in words."""
        words, agree = list[str](), True
        for table in ("table1", "table2", "table3", "table4"):
            spec = load_spec(table)
            for group in ("simple", "complex"):
                counts = {
                    parameter_count(m, spec.dimensions) for m in spec.methods if m.group == group
                }
                printed = {int(m.paper["parameters"]) for m in spec.methods if m.group == group}
                agree &= counts == printed
                words.append(f"{table} {group}: {', '.join(f'{n:,}' for n in sorted(counts))}")
        return agree, "; ".join(words)

    def _at_one_side(
        self, table: str, first: str, second: str
    ) -> tuple[list[Row], list[Row], int] | None:
        """Return the rows of two groups on the items that both have, at the largest side that both have."""
        a, b = self._of_group(table, first), self._of_group(table, second)
        for (side,) in sorted(_distinct(a, "side") & _distinct(b, "side"), reverse=True):
            at_side = [[row for row in rows if row["side"] == side] for rows in (a, b)]
            some, others = _matched(at_side[0], at_side[1], "item")
            if some:
                return fullest(some), fullest(others), side
        return None

    def _of_group(self, table: str, group: str) -> list[Row]:
        return [row for row in self.rows[table] if row["group"] == group]


def _distinct(rows: Iterable[Row], *keys: str) -> set[tuple[Any, ...]]:
    """Return the distinct values of some columns together."""
    return {tuple(row[key] for key in keys) for row in rows}


def _matched(some: Sequence[Row], others: Sequence[Row], *keys: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of both whose values in some columns are found in both."""
    common = _distinct(some, *keys) & _distinct(others, *keys)
    a, b = (
        [row for row in rows if tuple(row[key] for key in keys) in common]
        for rows in (some, others)
    )
    return a, b


def _best(rows: Sequence[Row]) -> tuple[float, str]:
    """Return the best mean PSNR by encoder, and which encoder it is."""
    by = dict[str, list[float]]()
    for row in rows:
        by.setdefault(row["encoder"], []).append(row["psnr"])
    return max((statistics.fmean(values), name) for name, values in by.items())


def parameter_count(method: Method, dimensions: int) -> int:
    """Return how many weights the network of a method has, for three channels."""
    if method.is_simple:
        sizes = [simple_encoding(method, dimensions, 0).size, *[method.hidden] * method.depth, 3]
        return sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    return 3 * method.features**dimensions
