"""Every claim of the paper: a fixed statement, the figures it is judged by, and the rule.

Statements and rules are in claims.toml. Each names the function that returns its figures, in
`theory_claims` or `evidence`. What the figures mean is written by hand, in docs/reproduction.md.
"""

from __future__ import annotations

import importlib.resources
import math
import operator
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kronfield._core.records import record
from kronfield.experiments import evidence, theory_claims
from kronfield.experiments.evidence import Evidence, Figures
from kronfield.experiments.paired import FEWEST, Number
from kronfield.experiments.results import Row, to_csv, wrapped

OPEN = "not established here"
#: The conditions of "holds" are violated; whether those of "holds partly" are met is open.
AT_MOST = "holds partly at most"
VERDICTS = ("holds", "holds partly", AT_MOST, "does not hold", OPEN)
RELATIONS = {
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
    "=": operator.eq,
}
STATES = {True: "met", False: "violated", None: "open"}
#: Words before the name of a family of figures in a condition.
EVERY, SOME = "every ", "some "
#: At most this many figures are named in the line of a claim.
NAMED = 4
#: The heading of the claims before the first claim that names a group.
FIRST_GROUP = "Theory"


class Condition(NamedTuple):
    """A relation between a figure and a bound: a number, or the name of another figure.

    "every X" and "some X" are about all figures of the family X.
    """

    figure: str
    relation: str
    bound: float | str

    def met(self, figures: Figures) -> bool | None:
        """Return whether the figures meet the condition; None if that is not established."""
        states = [self.met_by(number, figures) for number in self.numbers(figures).values()]
        return some(states) if self.figure.startswith(SOME) else every(states)

    def numbers(self, figures: Figures) -> Figures:
        """Return the figures that the condition is about."""
        for word in (EVERY, SOME):
            if self.figure.startswith(word):
                family = self.figure.removeprefix(word)
                return {name: one for name, one in figures.items() if one.family == family}
        return {self.figure: figures[self.figure]}

    def met_by(self, number: Number, figures: Figures) -> bool | None:
        """Return whether a figure meets the condition; for a mean, whether its whole interval does.

        None if only a part of the interval does, or if there are too few items.
        """
        bound = figures[self.bound].value if isinstance(self.bound, str) else self.bound
        relation = RELATIONS[self.relation]
        if not number.is_mean:
            return bool(relation(number.value, bound))
        if number.n < FEWEST:
            return None
        ends = {bool(relation(end, bound)) for end in (number.low, number.high)}
        return ends.pop() if len(ends) == 1 else None

    @property
    def limit(self) -> str:
        """The relation and the bound."""
        bound = self.bound if isinstance(self.bound, str) else f"{self.bound:g}"
        return f"{self.relation} {bound}"

    def __str__(self) -> str:
        return f"{self.figure} {self.limit}"


def every(states: Iterable[bool | None]) -> bool | None:
    """Return whether all states are true; None if that is open, or if there are no states."""
    given = list(states)
    if False in given:
        return False
    return None if None in given or not given else True


def some(states: Iterable[bool | None]) -> bool | None:
    """Return whether a state is true; None if that is open, or if there are no states."""
    given = list(states)
    if True in given:
        return True
    return None if None in given or not given else False


@record
class Rule:
    """How figures decide a verdict; see claims.toml."""

    holds: tuple[Condition, ...]
    partly: tuple[Condition, ...]
    otherwise: str

    def verdict(self, figures: Figures) -> str:
        """Return the verdict on some figures; without figures nothing is established."""
        if not figures:
            return OPEN
        states = list[bool | None]()
        for verdict, conditions in self._cases():
            states.append(every(condition.met(figures) for condition in conditions))
            if states[-1]:
                return verdict
        if not states:
            return OPEN
        if states[-1] is False:
            return self.otherwise
        return AT_MOST if states[0] is False else OPEN

    def decisive(self, figures: Figures) -> Figures:
        """Return the figures that the conditions of "holds" are about."""
        found = Figures()
        for condition in self.holds if figures else ():
            found |= condition.numbers(figures)
        return found

    def means(self, figures: Figures, state: bool | None) -> Figures:
        """Return the means that meet their conditions of "holds", violate one, or leave it open."""
        found = dict[str, list[bool | None]]()
        for condition in self.holds:
            for name, number in condition.numbers(figures).items():
                if number.is_mean:
                    found.setdefault(name, []).append(condition.met_by(number, figures))
        return {name: figures[name] for name, states in found.items() if every(states) is state}

    def distance(self, name: str, figures: Figures) -> tuple[bool, float, float]:
        """Return how far the interval of a mean is from the next bound of "holds", as a sort key.

        Means of too few items come last; the means themselves decide if intervals are as near.
        """
        number = figures[name]
        bounds = [
            figures[one.bound].value if isinstance(one.bound, str) else one.bound
            for one in self.holds
            if name in one.numbers(figures)
        ]
        apart = min(max(0.0, number.low - bound, bound - number.high) for bound in bounds)
        return number.n < FEWEST, apart, min(abs(number.value - bound) for bound in bounds)

    def reading(self, name: str, number: Number, figures: Figures) -> str:
        """Return in words how the interval of a mean compares with 0 and with its conditions."""
        if number.n < FEWEST:
            return f"n below {FEWEST}"
        words = []
        if number.unit == "dB":
            sign = "above 0" if number.low > 0 else "below 0" if number.high < 0 else "0 possible"
            words.append(sign)
        for condition in (*self.holds, *self.partly):
            if name in condition.numbers(figures):
                words.append(f"{condition.limit} {STATES[condition.met_by(number, figures)]}")
        return ", ".join(words)

    def __str__(self) -> str:
        cases = [f"{verdict} if {' and '.join(map(str, some))}" for verdict, some in self._cases()]
        return "; ".join([*cases, f"else {self.otherwise}"])

    def _cases(self) -> list[tuple[str, tuple[Condition, ...]]]:
        cases = [("holds", self.holds), ("holds partly", self.partly)]
        return [(verdict, conditions) for verdict, conditions in cases if conditions]


@record
class Claim:
    """A claim of the paper, the figures found, and the verdict of the rule on them.

    ``needs`` names the experiment to run if there are no figures.
    """

    number: int
    group: str
    statement: str
    where: str
    verdict: str
    rule: Rule
    figures: Figures
    needs: str

    @property
    def line(self) -> str:
        """The decisive figures in words: n, means and intervals, and where the claim fails."""
        if not self.figures:
            return f"no rows: run `kronfield reproduce {self.needs}`"
        decisive = self.rule.decisive(self.figures)
        means = {name: number for name, number in decisive.items() if number.is_mean}
        if not means:
            shown = ", ".join(f"{name} = {_shown(one)}" for name, one in [*decisive.items()][:2])
            measured = {name: one for name, one in self.figures.items() if one.is_mean}
            if not measured:
                return f"computed: {shown}"
            return f"{_n(measured)}; {shown}; {_words(measured.items())}"
        if len(means) == 1:
            ((name, number),) = means.items()
            reading = self.rule.reading(name, number, self.figures)
            return f"{_n(means)}{self._encoders}; {name} {_shown(number)} ({reading})"
        words = [f"{_n(means)}, {len(means)} comparisons: {self._listed(True, 'as claimed')}"]
        words += [self._listed(state, word) for state, word in ((False, "not"), (None, "open"))]
        return ", ".join(filter(None, words))

    @property
    def _encoders(self) -> str:
        """A note if not all encoders of the paper were compared."""
        if evidence.ENCODERS_COMPARED not in self.figures:
            return ""
        here, there = (
            self.figures[name].value
            for name in (evidence.ENCODERS_COMPARED, evidence.ENCODERS_KNOWN)
        )
        return f", {here:g} of {there:g} encoders of deep networks"

    def _listed(self, state: bool | None, word: str) -> str:
        """Count the means in a state; name them if they are few, or else that next to its bound."""
        found = self.rule.means(self.figures, state)
        if not found:
            return f"0 {word}" if state else ""
        few = state is not True or len(self.rule.decisive(self.figures)) <= NAMED
        if few and len(found) <= NAMED:
            names = "; ".join(f"{name} {_shown(number)}" for name, number in found.items())
            return f"{len(found)} {word} ({names})"
        near = min(found, key=lambda name: self.rule.distance(name, self.figures))
        return f"{len(found)} {word} (next to its bound: {near} {_shown(found[near])})"


def check_claims(
    results: Mapping[str, Iterable[Row]], *, quick: bool = False, theory: bool = True
) -> list[Claim]:
    """Return the verdict on every claim, theory first, from the rows of the experiments.

    Without ``theory`` only the claims that are judged by rows are returned.
    """
    folder = importlib.resources.files("kronfield.experiments")
    table = tomllib.loads(folder.joinpath("claims.toml").read_text(encoding="utf-8"))
    rows, samples = Evidence(results), 128 if quick else 512
    claims, group = list[Claim](), FIRST_GROUP
    entries = [(kind, entry) for kind in ("theory", "measured") for entry in table[kind]]
    for number, (kind, entry) in enumerate(entries, 1):
        group = entry.get("group", group)
        if kind == "theory":
            if not theory:
                continue
            found = getattr(theory_claims, entry["figures"])(samples)
            figures = {name: Number(value) for name, value in found.items()}
        else:
            figures = getattr(evidence, entry["figures"])(rows, **entry.get("arguments", {}))
        claims.append(_judge(number, group, entry, figures))
    return claims


def _judge(number: int, group: str, entry: Mapping[str, Any], figures: Figures) -> Claim:
    rule = Rule(
        tuple(Condition(*one) for one in entry["holds"]),
        tuple(Condition(*one) for one in entry.get("partly", ())),
        entry.get("otherwise", "does not hold"),
    )
    verdict = rule.verdict(figures)
    statement, where, needs = entry["statement"], entry["where"], entry.get("needs", "")
    return Claim(number, group, statement, where, verdict, rule, figures, needs)


def markdown(claims: Sequence[Claim]) -> str:
    """Return a line for every claim, by group, with its rule and figures folded under it."""
    counts = Counter(claim.verdict for claim in claims)
    total = ", ".join(f"“{verdict}” {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    lines = [wrapped(f"Verdicts on the {len(claims)} claims: {total}."), ""]
    group = ""
    for claim in claims:
        if claim.group != group:
            group = claim.group
            lines += [f"### {group}", ""]
        lines += _folded(claim)
    return "\n".join(lines)


def _folded(claim: Claim) -> list[str]:
    """Return the line of a claim and, folded under it, the rule and all figures."""
    lines = [
        f"<details><summary><b>{claim.number}. {claim.statement}</b> ({claim.where}): "
        f"<b>{claim.verdict}</b>. {_html(claim.line)}.</summary>",
        "",
        wrapped(f"Rule: {claim.rule}."),
        "",
    ]
    if claim.figures:
        lines += ["| figure | value | 95 % interval | n |", "|---|---|---|---|"]
        lines += [_figure_row(name, number) for name, number in claim.figures.items()]
        lines.append("")
    return [*lines, "</details>", ""]


def _html(text: str) -> str:
    """Return Markdown code as HTML: Markdown is not read inside a summary."""
    parts = text.replace("&", "&amp;").replace("<", "&lt;").split("`")
    return "".join(part if i % 2 == 0 else f"<code>{part}</code>" for i, part in enumerate(parts))


def _figure_row(name: str, number: Number) -> str:
    value = f"{_digits(number, number.value)} {number.unit}".strip()
    return f"| {name} | {value} | {_interval(number)} | {number.n or ''} |"


def _n(figures: Figures) -> str:
    """Return the number of items of some means as text."""
    counts = sorted({number.n for number in figures.values()})
    return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"


def _words(figures: Iterable[tuple[str, Number]]) -> str:
    return ", ".join(f"{name} {_shown(number)}" for name, number in figures)


def _shown(number: Number) -> str:
    """Return a figure with its unit and interval."""
    parts = (_digits(number, number.value), number.unit, _interval(number))
    return " ".join(filter(None, parts))


def _interval(number: Number) -> str:
    if not number.is_mean or not math.isfinite(number.high):
        return ""
    return f"[{_digits(number, number.low)}, {_digits(number, number.high)}]"


def _digits(number: Number, value: float) -> str:
    """Return differences in dB with their sign, counts in full, other values with 4 digits."""
    if number.is_mean and number.unit == "dB":
        return f"{value:+.2f}"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.4g}"


def csv_text(claims: Sequence[Claim]) -> str:
    """Return the claims as CSV, with a line for every figure."""
    fixed = ("number", "group", "statement", "where", "verdict", "rule")
    columns = (*fixed, "figure", "value", "unit", "low", "high", "n")
    lines = list[dict[str, Any]]()
    for claim in claims:
        about = {name: getattr(claim, name) for name in fixed}
        lines += [about | _csv_figure(name, one) for name, one in claim.figures.items()] or [about]
    return to_csv(lines, columns)


def _csv_figure(name: str, number: Number) -> dict[str, Any]:
    # nine digits: the last ones depend on the machine
    low, value, high = (f"{one:.9g}" for one in (number.low, number.value, number.high))
    found: dict[str, Any] = {"figure": name, "value": value, "unit": number.unit}
    if number.is_mean:
        found["n"] = number.n
    if math.isfinite(number.high):
        found |= {"low": low, "high": high}
    return found
