"""Every claim of the paper: how it is checked, what the numbers at hand say, and why where it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from kronfield.experiments import theory_claims
from kronfield.experiments.evidence import Evidence
from kronfield.experiments.results import Row, to_csv
from kronfield.experiments.theory_claims import Finding

VERDICTS = ("holds", "holds partly", "does not hold", "not checked")
FOURIER, SHIFTED = ("LinF", "LogF", "RFF"), ("Tri", "Gau")
# "Comparable" is within this many dB.
NEAR = 1.0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and our verdict on it."""

    number: int
    text: str
    where: str
    check: str
    verdict: str
    evidence: str
    reason: str = ""


def _closed_is_fast(found: Evidence) -> Finding:
    pairs = [(t, found.ratio(t, "simple", "closed")) for t in ("table1", "table3")]
    known = [(t, r) for t, r in pairs if r is not None]
    if not known:
        return found.missing("table1", "simple", "closed")
    worst = min(r.value for _, r in known)
    evidence = "; ".join(f"{t}: {r.value:,.0f} times faster ({r.words})" for t, r in known)
    return Finding(
        "holds" if worst >= 100 else "holds partly" if worst >= 10 else "does not hold", evidence
    )


def _descent_is_fast(table: str, printed: float) -> Callable[[Evidence], Finding]:
    def check(found: Evidence) -> Finding:
        ratio = found.ratio(table, "simple", "complex")
        if ratio is None:
            return found.missing(table, "simple", "complex")
        evidence = f"{ratio.value:.3g} times faster ({ratio.words})"
        verdict = (
            "holds"
            if ratio.value >= 0.8 * printed
            else "holds partly"
            if ratio.value > 2
            else "does not hold"
        )
        reason = (
            ""
            if verdict == "holds"
            else f"Less than the {printed:g} of the text: the ratio depends on the machine."
        )
        own = found.printed_ratio(table, "simple", "complex")
        more = f"; by the paper's own table it is {own:.3g}" if own is not None else ""
        return Finding(verdict, evidence + more, reason)

    return check


def _comparable(table: str, complex_group: str) -> Callable[[Evidence], Finding]:
    def check(found: Evidence) -> Finding:
        gap = found.best_gap(table, complex_group, "simple")
        if gap is None:
            return found.missing(table, "simple", complex_group)
        verdict = (
            "holds"
            if gap.value >= -NEAR
            else "holds partly"
            if gap.value >= -2 * NEAR
            else "does not hold"
        )
        reason = ""
        if gap.value > NEAR:
            reason = "The linear model is better by more than that. "
        if verdict != "holds":
            reason = _why_not_comparable(found, table, complex_group)
        if gap.scaled:
            reason += f"The networks ran on less than the paper's protocol: {gap.scaled}."
        return Finding(
            verdict,
            f"best {complex_group} minus best simple: {gap.value:+.2f} dB ({gap.words})",
            reason.strip(),
        )

    return check


def _why_not_comparable(found: Evidence, table: str, group: str) -> str:
    """Return what the paper's own numbers say, and whether a penalty closes the gap."""
    printed, ours = found.printed_gap(table, group, "simple"), found.chosen_gap(table)
    reason = "" if printed is None else f"By the paper's own table the gap is {printed:+.2f} dB. "
    if ours is not None and ours[0] >= -NEAR:
        gap, has_penalty = ours
        how = "features and a penalty" if has_penalty else "features"
        reason += f"A linear model in closed form, its {how} chosen from the data, is {gap:+.2f} dB from the deep network. "
    return reason


def _fourier_is_worse(found: Evidence) -> Finding:
    words, gaps = list[str](), list[float]()
    for table in ("table1", "table2", "table3", "table4"):
        gap = found.encoder_gap(table, "complex", FOURIER, SHIFTED)
        if gap is not None:
            gaps.append(gap.value)
            words.append(f"{table}: {gap.value:+.2f} dB ({gap.words})")
    if not gaps:
        return found.missing("table1", "complex", "complex")
    verdict = (
        "holds" if max(gaps) < -0.5 else "holds partly" if min(gaps) < -0.5 else "does not hold"
    )
    reason = ""
    if verdict == "holds partly":
        near = [
            word.partition(":")[0] for word, gap in zip(words, gaps, strict=True) if gap >= -0.5
        ]
        reason = f"Not in {' and '.join(near)}."
        if set(near) <= {"table2", "table4"}:
            reason += " Samples are at random there, where the shifted encodings have singular values near 0 too."
    evidence = "best Fourier minus best shifted, descent on complex encodings: " + "; ".join(words)
    return Finding(verdict, evidence, reason)


def _fourier_is_deficient(found: Evidence) -> Finding:
    """Rank deficiency as the reason: the same encoding in closed form has the same rank."""
    words, gains = list[str](), list[float]()
    for table in ("table1", "table3"):
        for encoder in FOURIER:
            gain = found.same_setting_gain(table, encoder)
            if gain is not None:
                gains.append(gain.value)
                words.append(f"{table}, {encoder}: {gain.value:+.2f} dB ({gain.words})")
    if not gains:
        return found.missing("table1", "complex", "closed")
    verdict = "holds" if max(gains) < 1 else "holds partly"
    reason = ""
    if verdict == "holds partly":
        reason = (
            "The rank is deficient, yet least squares on the very same features does much better where descent does worst: "
            "there it is descent that does not arrive in the paper's number of steps, and not the rank that is too low."
        )
    evidence = "closed form minus descent on the same features: " + "; ".join(words)
    if start := found.from_zero("table3"):
        evidence += f"; descent on video from zero, and from a random start: {start}"
    return Finding(verdict, evidence, reason)


def _settles_early(found: Evidence) -> Finding:
    epochs = found.settled("table1")
    if epochs is None:
        return found.missing("table1", "simple", "complex")
    simple, complex_, words, equal = epochs
    evidence = f"epochs until the training loss is within 0.5 dB of its best: {words}"
    if not equal:
        return Finding(
            "not checked", evidence, "The two were given different numbers of epochs here."
        )
    verdict = (
        "holds"
        if complex_ < 0.5 * simple
        else "holds partly"
        if complex_ < simple
        else "does not hold"
    )
    reason = (
        ""
        if verdict == "holds"
        else "By the loss on the samples given, which shifted encodings lower to the end."
    )
    return Finding(verdict, evidence, reason)


def _complex_linear_beats_simple_linear(found: Evidence) -> Finding:
    gaps = found.visual_gaps("complex", 0, "simple", 0)
    if not gaps:
        return found.missing("visual-grid", "simple", "complex")
    fourier = {name: gap for name, gap in gaps.items() if name.split()[-1] in FOURIER}
    failing = [name for name, gap in fourier.items() if gap <= 0]
    verdict = (
        "holds"
        if not failing
        else "holds partly"
        if len(failing) < len(fourier)
        else "does not hold"
    )
    reason = _why_linear_fails(found, failing) if failing else ""
    reason += found.scaled_words("visual-grid", "simple", "complex")
    return Finding(
        verdict, "complex minus simple, one linear layer: " + _listed(gaps), reason.strip()
    )


def _why_linear_fails(found: Evidence, failing: list[str]) -> str:
    """Name the encoders that fail, and whether it is descent that fails and not their features."""
    reason = f"Not {' and '.join(failing)}. "
    gain = found.same_setting_gain("table3", "LinF"), found.same_setting_gain("table3", "LogF")
    if any(one is not None and one.value > 3 for one in gain):
        reason += "Descent is slow on such features: least squares on the very same ones does far better in table3. "
    return reason


def _depth_helps_simple(found: Evidence) -> Finding:
    gaps = found.visual_gaps("simple", 4, "simple", 0)
    if not gaps:
        return found.missing("visual-grid", "simple", "simple")
    fewest = min(gaps.values())
    return Finding(
        "holds" if fewest > 1 else "holds partly", "depth 4 minus depth 0: " + _listed(gaps)
    )


def _depth_on_complex(found: Evidence) -> Finding:
    gaps = found.visual_gaps("complex", 1, "complex", 0)
    if not gaps:
        return found.missing("visual-grid", "complex", "complex")
    shifted = [v for k, v in gaps.items() if k.split()[-1] in SHIFTED]
    fourier = [v for k, v in gaps.items() if k.split()[-1] in FOURIER]
    mean_shifted, mean_fourier = sum(shifted) / len(shifted), sum(fourier) / len(fourier)
    right = mean_fourier > 0.5 and mean_shifted < 0.5
    verdict = (
        "holds" if right else "holds partly" if mean_fourier > mean_shifted else "does not hold"
    )
    reason = "" if right else found.scaled_words("visual-grid", "complex")
    return Finding(verdict, f"depth 1 minus depth 0: {_listed(gaps)}", reason)


def _depth_where_rank_is_low(found: Evidence) -> Finding:
    means = found.line_means()
    if means is None:
        return found.missing("rank-depth", "line", "line")
    words, right = list[str](), list[bool]()
    for encoder, table in means.items():
        high, low = next(iter(table.values())), list(table.values())[-1]
        first, second = low[1] - low[0], low[2] - low[1]
        words.append(
            f"{encoder}: linear {high[0]:.1f} dB at high rank and {low[0]:.1f} at low; a layer adds "
            f"{high[1] - high[0]:+.1f} at high and {first:+.1f} at low rank, a second there {second:+.1f}"
        )
        right += [
            high[0] - low[0] > 3,
            first > 3 * abs(high[1] - high[0]) and first > 1,
            second < first,
        ]
    verdict = "holds" if all(right) else "holds partly" if any(right) else "does not hold"
    return Finding(verdict, "; ".join(words))


def _random_is_worse(found: Evidence) -> Finding:
    """Tables 2 and 4: complex linear models at random samples are comparable, and Gaussian beats Fourier."""
    return _comparable("table2", "complex")(found)


def _parameters(found: Evidence) -> Finding:
    words = found.parameter_words()
    if words is None:
        return found.missing("table1", "simple", "complex")
    agree, text = words
    return Finding("holds" if agree else "does not hold", text)


def _listed(gaps: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:+.2f}" for name, value in gaps.items()) + " dB"


# The claims that need results: what the paper says, where, how it is checked.
EMPIRICAL: Sequence[tuple[str, str, str, Callable[[Evidence], Finding]]] = (
    (
        "The closed form is orders of magnitude faster than a deep network on a simple encoding",
        "abstract, 6.2",
        "seconds of simple over seconds of closed form, means of Tables 1 and 3; 100 times or more",
        _closed_is_fast,
    ),
    (
        "Descent on complex encodings is about 20 times faster than simple ones (images)",
        "6.2",
        "the same ratio, Table 1, equal numbers of epochs",
        _descent_is_fast("table1", 20.0),
    ),
    (
        "Descent on complex encodings is 10 times faster than simple ones (video, random samples)",
        "appendix, Table 4",
        "the same ratio, Table 4",
        _descent_is_fast("table4", 10.0),
    ),
    (
        "A linear model on a complex encoding performs like a deep network on a simple one: images on a grid",
        "abstract, Table 1",
        f"best of each on the same images, within {NEAR:g} dB",
        _comparable("table1", "complex"),
    ),
    (
        "The same, in closed form",
        "6.2, Table 1",
        f"best of each on the same images, within {NEAR:g} dB",
        _comparable("table1", "closed"),
    ),
    (
        "The same at random pixels, with blending",
        "6.2, Table 2",
        f"within {NEAR:g} dB",
        _random_is_worse,
    ),
    (
        "The same for video on a grid",
        "6.3, Table 3",
        f"within {NEAR:g} dB",
        _comparable("table3", "complex"),
    ),
    (
        "The same for video at random samples",
        "appendix, Table 4",
        f"within {NEAR:g} dB",
        _comparable("table4", "complex"),
    ),
    (
        "Fourier encodings do worse than shifted ones in complex linear models",
        "6.2",
        "best of LinF, LogF, RFF against Tri, Gau",
        _fourier_is_worse,
    ),
    (
        "... and that is because they are rank deficient",
        "6.2, appendix",
        "descent against closed form on the same features",
        _fourier_is_deficient,
    ),
    (
        "Complex encodings need far fewer epochs",
        "6.2",
        "epochs until the training loss is settled",
        _settles_early,
    ),
    (
        "Complex Fourier encodings beat simple encodings if both have one linear layer",
        "6.2",
        "visual comparison",
        _complex_linear_beats_simple_linear,
    ),
    (
        "Depth makes up for a simple encoding: depth 4 against depth 0",
        "appendix",
        "visual comparison",
        _depth_helps_simple,
    ),
    (
        "A hidden layer helps complex Fourier encodings and not the shifted ones",
        "appendix",
        "visual comparison",
        _depth_on_complex,
    ),
    (
        "Depth helps only where the rank is low; one layer is enough",
        "6.1",
        "rows and columns of images, depth 0 to 2",
        _depth_where_rank_is_low,
    ),
    (
        "The numbers of parameters: 329,475 and 196,608 for images, 1,445,891 and 786,432 for video",
        "Tables 1 to 4",
        "counted on networks as built",
        _parameters,
    ),
)


def check_claims(results: Mapping[str, Iterable[Row]], *, quick: bool = False) -> list[Claim]:
    """Return the verdict on every claim, theory first, from the rows of the experiments that were run."""
    claims = list[Claim]()
    for text, where, check, finding in theory_claims.check_all(quick=quick):
        claims.append(
            Claim(
                len(claims) + 1,
                text,
                where,
                check,
                finding.verdict,
                finding.evidence,
                finding.reason,
            )
        )
    evidence = Evidence(results)
    for text, where, check, judge in EMPIRICAL:
        finding = judge(evidence)
        claims.append(
            Claim(
                len(claims) + 1,
                text,
                where,
                check,
                finding.verdict,
                finding.evidence,
                finding.reason,
            )
        )
    return claims


def markdown(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table."""
    lines = ["| | claim | verdict | evidence |", "|---|---|---|---|"]
    for claim in claims:
        why = f" *{claim.reason}*" if claim.reason else ""
        text = f"{claim.text} ({claim.where})"
        lines.append(
            f"| {claim.number} | {_cell(text)} | **{claim.verdict}** | {_cell(claim.evidence + '.' + why)} |"
        )
    counts = ", ".join(
        f"{sum(c.verdict == v for c in claims)} {v}"
        for v in VERDICTS
        if any(c.verdict == v for c in claims)
    )
    return "\n".join([*lines, "", f"{len(claims)} claims: {counts}.", ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def csv_text(claims: Sequence[Claim]) -> str:
    """Return the claims as CSV."""
    return to_csv([asdict(claim) for claim in claims], list(Claim.__dataclass_fields__))
