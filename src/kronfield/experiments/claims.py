"""Every claim of the paper: a fixed statement, the figures it is judged by, and the rule.

Statements and rules are in claims.toml. Each names the function that returns its figures, in
`theory_claims` or `evidence`. What the figures mean is written by hand, in docs/reproduction.md.
"""

from __future__ import annotations

import importlib.resources
import operator
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kronfield.experiments import evidence, theory_claims
from kronfield.experiments.evidence import Evidence, Figures, Number
from kronfield.experiments.results import Row, to_csv, wrapped

VERDICTS = ("holds", "holds partly", "does not hold", "not checked")
RELATIONS = {
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
    "=": operator.eq,
}


class Condition(NamedTuple):
    """A relation between a figure and a bound: a number, or the name of another figure."""

    figure: str
    relation: str
    bound: float | str

    def met(self, figures: Figures) -> bool:
        """Return whether the figures meet the condition."""
        bound = figures[self.bound].value if isinstance(self.bound, str) else self.bound
        return bool(RELATIONS[self.relation](figures[self.figure].value, bound))

    def __str__(self) -> str:
        bound = self.bound if isinstance(self.bound, str) else f"{self.bound:g}"
        return f"{self.figure} {self.relation} {bound}"


@dataclass(frozen=True)
class Rule:
    """How figures decide a verdict: the first whose conditions are all met, else ``otherwise``."""

    holds: tuple[Condition, ...]
    partly: tuple[Condition, ...]
    otherwise: str

    def verdict(self, figures: Figures) -> str:
        """Return the verdict on some figures; without figures it is "not checked"."""
        if not figures:
            return "not checked"
        for verdict, conditions in self._cases():
            if all(condition.met(figures) for condition in conditions):
                return verdict
        return self.otherwise

    def __str__(self) -> str:
        cases = [f"{verdict} if {' and '.join(map(str, some))}" for verdict, some in self._cases()]
        return "; ".join([*cases, f"else {self.otherwise}"])

    def _cases(self) -> list[tuple[str, tuple[Condition, ...]]]:
        cases = [("holds", self.holds), ("holds partly", self.partly)]
        return [(verdict, conditions) for verdict, conditions in cases if conditions]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the figures found, and the verdict of the rule on them.

    ``needs`` names the experiment to run if there are no figures.
    """

    number: int
    statement: str
    where: str
    verdict: str
    rule: Rule
    figures: Figures
    needs: str


def check_claims(results: Mapping[str, Iterable[Row]], *, quick: bool = False) -> list[Claim]:
    """Return the verdict on every claim, theory first, from the rows of the experiments."""
    folder = importlib.resources.files("kronfield.experiments")
    table = tomllib.loads(folder.joinpath("claims.toml").read_text(encoding="utf-8"))
    rows, samples = Evidence(results), 128 if quick else 512
    claims = list[Claim]()
    for entry in table["theory"]:
        found = getattr(theory_claims, entry["figures"])(samples)
        figures = {name: Number(value) for name, value in found.items()}
        claims.append(_judge(len(claims) + 1, entry, figures))
    for entry in table["measured"]:
        figures = getattr(evidence, entry["figures"])(rows, **entry.get("arguments", {}))
        claims.append(_judge(len(claims) + 1, entry, figures))
    return claims


def _judge(number: int, entry: Mapping[str, Any], figures: Figures) -> Claim:
    rule = Rule(
        tuple(Condition(*one) for one in entry["holds"]),
        tuple(Condition(*one) for one in entry.get("partly", ())),
        entry.get("otherwise", "does not hold"),
    )
    verdict = rule.verdict(figures)
    statement, where, needs = entry["statement"], entry["where"], entry.get("needs", "")
    return Claim(number, statement, where, verdict, rule, figures, needs)


def markdown(claims: Sequence[Claim]) -> str:
    """Return the verdicts as a table, then the rule and the figures of every claim."""
    counts = Counter(claim.verdict for claim in claims)
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    lines = ["| | claim | verdict |", "|---|---|---|"]
    lines += [f"| {c.number} | {c.statement} ({c.where}) | **{c.verdict}** |" for c in claims]
    lines += ["", f"{len(claims)} claims: {total}.", ""]
    for claim in claims:
        lines += [wrapped(f"**{claim.number}. {claim.statement}**: {claim.verdict}."), ""]
        lines += [wrapped(f"Rule: {claim.rule}."), ""]
        if claim.figures:
            lines += ["| figure | value |", "|---|---|"]
            lines += [f"| {name} | {_shown(figure)} |" for name, figure in claim.figures.items()]
        else:
            lines.append(f"No rows to compare: run `kronfield reproduce {claim.needs}`.")
        lines.append("")
    return "\n".join(lines)


def _shown(number: Number) -> str:
    """Return a number with its unit: counts in full, other values with 4 digits."""
    value = number.value
    text = f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {number.unit}".strip()


def csv_text(claims: Sequence[Claim]) -> str:
    """Return the claims as CSV, with a line for every figure."""
    columns = ("number", "statement", "where", "verdict", "rule", "figure", "value", "unit")
    lines = list[dict[str, Any]]()
    for claim in claims:
        fixed = {name: getattr(claim, name) for name in columns[:5]}
        lines += [
            fixed | {"figure": name, "value": figure.value, "unit": figure.unit}
            for name, figure in claim.figures.items()
        ] or [fixed]
    return to_csv(lines, columns)
