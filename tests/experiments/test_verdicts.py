"""Verdicts on made-up results: a true effect, none, and too few items for either."""

import math

import numpy as np
import pytest
from scipy import stats

from kronfield.experiments.claims import (
    AT_MOST,
    OPEN,
    Condition,
    Rule,
    check_claims,
    markdown,
)
from kronfield.experiments.evidence import Evidence, matches
from kronfield.experiments.paired import FEWEST, Number, paired, paired_ratio
from kronfield.experiments.spec import load_spec

# The statistics
# ------------------------------------------------------------------------------------------


def test_the_interval_is_students():
    some, others = np.random.default_rng(0).normal(25, 3, (2, 9))
    found = paired(some - others)
    wanted = stats.ttest_rel(some, others).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.value == pytest.approx((some - others).mean())
    assert (found.n, found.unit) == (9, "dB")


def test_one_item_has_no_interval():
    found = paired([2.0])
    assert (found.value, found.low, found.high, found.n) == (2.0, -math.inf, math.inf, 1)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(0.3, 1.0, (2000, FEWEST))
    covered = [found.low <= 0.3 <= found.high for found in map(paired, draws)]
    # five standard deviations of the count
    assert np.mean(covered) == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 2000))


def test_ratios_are_paired_by_their_logarithms():
    found = paired_ratio([10.0, 1000.0, 100.0])
    assert found.value == pytest.approx(100.0)
    assert found.low * found.high == pytest.approx(100.0**2)
    assert found.low < 10 < 1000 < found.high
    one = paired_ratio([7.0])
    assert (one.value, one.low, one.high) == (pytest.approx(7.0), 0.0, math.inf)


# Rules
# ------------------------------------------------------------------------------------------


def between(low, high, n=8, family="x"):
    return Number((low + high) / 2, "dB", low, high, n, family)


@pytest.mark.parametrize(
    ("number", "met"),
    [
        (between(1.1, 2.0), True),
        (between(0.1, 0.9), False),
        (between(0.5, 1.5), None),
        (between(1.1, 2.0, n=FEWEST), True),
        (between(1.1, 2.0, n=FEWEST - 1), None),
        (Number(1.5), True),  # computed, not sampled
        (Number(0.5), False),
    ],
)
def test_a_condition_is_met_by_the_whole_interval(number, met):
    assert Condition("a", ">", 1.0).met({"a": number}) is met


def test_families_are_judged_one_by_one():
    yes, no, unclear = between(1, 2), between(-2, -1), between(-1, 1)
    every, some = Condition("every x", ">", 0.0), Condition("some x", ">", 0.0)
    for numbers, of_every, of_some in (
        ((yes, yes), True, True),
        ((yes, no), False, True),
        ((yes, unclear), None, True),
        ((no, unclear), False, None),
        ((no, no), False, False),
        ((), None, None),
    ):
        figures = {str(i): number for i, number in enumerate(numbers)}
        figures["other"] = between(-9, -8, family="y")
        assert every.met(figures) is of_every
        assert some.met(figures) is of_some


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.9, 0.5, "holds"),
        (-1.2, 0.5, "holds partly"),  # at least within 2 dB
        (-1.9, -1.1, "holds partly"),
        (-4.0, -2.1, "does not hold"),
        (-2.5, -1.5, AT_MOST),  # not within 1 dB; within 2 dB or not
        (-2.5, -0.5, OPEN),
        (-3.0, 1.0, OPEN),
    ],
)
def test_the_verdict_is_that_of_the_interval(low, high, verdict):
    rule = Rule((Condition("d", "≥", -1),), (Condition("d", "≥", -2),), "does not hold")
    assert rule.verdict({"d": between(low, high)}) == verdict
    assert rule.verdict({"d": between(low, high, n=4)}) == OPEN
    assert rule.verdict({}) == OPEN


@pytest.mark.parametrize(
    ("low", "high", "n", "words"),
    [
        (-2.11, -0.4, 5, "below 0, ≥ -1 open, ≥ -2 open"),
        (-3.8, -1.5, 5, "below 0, ≥ -1 violated, ≥ -2 open"),
        (-0.9, 0.5, 5, "0 possible, ≥ -1 met, ≥ -2 met"),
        (0.1, 0.5, 5, "above 0, ≥ -1 met, ≥ -2 met"),
        (0.1, 0.5, 4, "n below 5"),
    ],
)
def test_the_interval_is_read_out_in_words(low, high, n, words):
    rule = Rule((Condition("d", "≥", -1),), (Condition("d", "≥", -2),), "does not hold")
    number = between(low, high, n=n)
    assert rule.reading("d", number, {"d": number}) == words


# Claims
# ------------------------------------------------------------------------------------------


def made(table, psnr, items, *, side=128, epochs=2000, groups=None):
    """Return rows as a run would write them; ``psnr(method, item)`` makes up the result."""
    spec = load_spec(table)
    size = spec.paper.replace(side=side, epochs=epochs)
    return [
        {
            **spec.scaled(method, size, side).settings(),
            "spec": table,
            "fingerprint": f"{table} {method.key} {item} {side} {epochs}",
            "size": "paper",
            "item": item,
            "method": method.key,
            "side": side,
            "epochs": size.epochs_of(method),
            "hidden": method.hidden,
            "seed": 0,
            "psnr": psnr(method, item),
            "settled_epoch": 100,
            "rank": [9, 9],
        }
        for method in spec.methods
        if groups is None or method.group in groups
        for item in items
    ]


def photographs(n):
    return [f"p{i:02d}" for i in range(n)]


def level(item):
    """How easy an item is: differs by 10 dB between items, and cancels in paired differences."""
    return 20.0 + 10.0 * (hash_of(item) % 97) / 97


def hash_of(text):
    return sum((i + 1) * ord(c) * 31 for i, c in enumerate(text))


def noise(method, item, scale):
    seed = hash_of(f"{method.key} {item}")
    return scale * float(np.random.default_rng(seed).normal())


def images(gain, n, scale=0.1, **more):
    def psnr(method, item):
        effect = gain if method.group == "complex" else 0.0
        return level(item) + effect + noise(method, item, scale)

    return made("table1", psnr, photographs(n), **more)


def claim_on(results, text):
    return next(c for c in check_claims(results, theory=False) if c.statement.startswith(text))


IMAGES = "A complex linear model performs like a deep network on a simple"


@pytest.mark.parametrize(
    ("gain", "n", "verdict"),
    [
        (0.0, 8, "holds"),  # no difference: comparable
        (-1.5, 8, "holds partly"),
        (-4.0, 8, "does not hold"),
        (0.0, 4, OPEN),
        (-4.0, 4, OPEN),
    ],
)
def test_a_comparison_needs_five_photographs(gain, n, verdict):
    claim = claim_on({"table1": images(gain, n)}, IMAGES)
    assert claim.verdict == verdict
    number = claim.figures["difference"]
    assert number.n == n
    assert number.value == pytest.approx(gain, abs=0.4)
    # paired: photographs differ by 10 dB, the interval is far narrower
    assert number.high - number.low < 1.5
    assert f"n = {n}; difference" in claim.line


def test_a_difference_that_varies_with_the_photograph_establishes_nothing():
    rows = images(-1.0, 6, scale=0.0)
    for row in rows:
        if row["group"] == "complex":
            row["psnr"] += 4.0 if row["item"] in ("p00", "p01", "p02") else -4.0
    assert claim_on({"table1": rows}, IMAGES).verdict == OPEN


def test_enough_items_come_before_a_larger_side():
    rows = [*images(0.0, 8), *images(-4.0, 2, side=256)]
    claim = claim_on({"table1": rows}, IMAGES)
    assert claim.verdict == "holds"
    assert (claim.figures["side"].value, claim.figures["difference"].n) == (128, 8)
    assert claim.figures["difference at side 256"].n == 2
    more = [*images(0.0, 8), *images(-4.0, 5, side=256)]
    assert claim_on({"table1": more}, IMAGES).figures["side"].value == 256


def test_networks_are_compared_after_equally_many_epochs():
    # complex encodings gain 3 dB from more epochs, which simple ones did not have
    scaled = [*images(0.0, 6, epochs=1000), *images(3.0, 6, groups=("complex",))]
    claim = claim_on({"table1": scaled}, IMAGES)
    assert claim.figures["difference"].value == pytest.approx(0.0, abs=0.4)
    assert claim.figures["epochs of simple"].value == 1000
    # the full protocol comes first, where both have it
    both = [*scaled, *images(3.0, 6, groups=("simple",))]
    claim = claim_on({"table1": both}, IMAGES)
    assert claim.figures["difference"].value == pytest.approx(3.0, abs=0.4)
    assert claim.figures["epochs of simple"].value == 2000
    # at another side, the epochs are in the name
    beside = [*images(0.0, 6), *images(1.0, 2, side=256, epochs=1000)]
    for kind in (IMAGES, "A complex linear model performs like a deep network: images, grid, cl"):
        names = claim_on({"table1": beside}, kind).figures
        assert names["difference at side 256 after 1,000 epochs"].n == 2
    # nothing is compared if the epochs differ
    apart = [
        *images(0.0, 6, groups=("simple",), epochs=1000),
        *images(0.0, 6, groups=("complex",), epochs=2000),
    ]
    assert claim_on({"table1": apart}, IMAGES).verdict == OPEN


def test_hidden_layers_of_other_widths_are_not_mixed():
    rows = images(0.0, 6)
    narrow = [
        row | {"hidden": 16, "psnr": 0.0, "fingerprint": str(i)} for i, row in enumerate(rows)
    ]
    found = Evidence({})
    found.rows["table1"] = [*rows, *(row for row in narrow if row["group"] == "simple")]
    (match,) = matches(found.group("table1", "complex"), found.group("table1", "simple"))
    assert match.mean(match.second["Gau"]) > 15
    assert {row["hidden"] for row in match.rows} == {256}


def test_items_of_a_run_that_is_not_finished_are_left_out():
    rows = images(0.0, 6)
    cut = [row for row in rows if (row["method"], row["item"]) != ("simple: Gau, depth 4", "p05")]
    found = Evidence({"table1": cut})
    (match,) = matches(found.group("table1", "complex"), found.group("table1", "simple"))
    assert match.items == photographs(5)


def test_encoders_are_left_out_if_that_leaves_enough_items():
    rows = images(-4.0, 6)
    done = {"LinF": 6, "LogF": 5, "RFF": 2, "Tri": 1}  # Gau has none
    cut = [
        row
        for row in rows
        if row["group"] != "simple" or row["item"] in photographs(done.get(row["encoder"], 0))
    ]
    claim = claim_on({"table1": cut}, IMAGES)
    assert (claim.verdict, claim.figures["difference"].n) == ("does not hold", 5)
    assert claim.figures["encoders of the deep networks"].value == 2
    assert claim.line.startswith("n = 5, 2 of 5 encoders of deep networks; difference -3.9")
    # none is left out where that does not give enough items
    fewer = [row for row in cut if row["item"] not in ("p00", "p01")]
    found = Evidence({"table1": fewer})
    (match,) = matches(found.group("table1", "complex"), found.group("table1", "simple"))
    assert (sorted(match.second), match.items) == (["LinF", "LogF"], ["p02", "p03", "p04"])
    # all encoders if they have enough items
    assert "encoders" not in claim_on({"table1": rows}, IMAGES).line


def visual(effects, n=8):
    """Return rows of both visual comparisons; depth 1 on complex has the effect of its encoder."""

    def rows(name, table):
        def psnr(method, item):
            effect = 0.0
            if (method.group, method.depth) == ("complex", 1):
                effect = effects[f"{load_spec(name).task} {method.encoder}"]
            return level(item) + effect + noise(method, item, 0.05)

        spec, table_spec = load_spec(name), load_spec(table)
        kept = [r for r in made(name, psnr, photographs(n)) if r["group"] == "complex"]
        assert spec.task == table_spec.task
        # depth 0 comes from the table with the same task
        table_rows = made(table, psnr, photographs(n), groups=("complex",))
        return [r for r in kept if r["depth"]], table_rows

    results = {}
    for name, table in (("visual-grid", "table1"), ("visual-random", "table2")):
        results[name], results[table] = rows(name, table)
    return results


def effects(fourier, shifted):
    return {
        f"{task} {encoder}": fourier if encoder in ("LinF", "LogF", "RFF") else shifted
        for task in ("grid", "random")
        for encoder in ("LinF", "LogF", "RFF", "Tri", "Gau")
    }


HIDDEN = "A hidden layer helps complex Fourier"


def test_an_average_does_not_hide_an_encoder_that_fails():
    assert claim_on(visual(effects(2.0, 0.0)), HIDDEN).verdict == "holds"
    mixed = effects(2.0, 0.0) | {"random RFF": -0.44, "random Tri": 1.01}
    claim = claim_on(visual(mixed), HIDDEN)
    assert claim.verdict == "holds partly"
    assert "8 as claimed (next to its bound: grid Gau " in claim.line
    assert "), 2 not (random RFF -0.49" in claim.line
    assert "random Tri +1.0" in claim.line
    assert claim_on(visual(effects(0.0, 0.0)), HIDDEN).verdict == "does not hold"
    assert claim_on(visual(effects(2.0, 0.0), n=4), HIDDEN).verdict == OPEN


DEPTH = "Depth makes up for a simple encoding"


def test_the_scaling_of_each_task_is_stated():
    def rows(name, epochs, n):
        def psnr(method, item):
            return level(item) + 3.0 * (method.depth > 0) + noise(method, item, 0.05)

        return made(name, psnr, photographs(n), groups=("simple",), epochs=epochs)

    results = {
        "visual-grid": rows("visual-grid", 2000, 6),
        "visual-random": rows("visual-random", 150, 6),
    }
    figures = claim_on(results, DEPTH).figures
    assert figures["grid: epochs of simple"].value == 2000
    assert "grid: epochs of simple in the paper" not in figures
    assert figures["random: epochs of simple"].value == 150
    assert figures["random: epochs of simple in the paper"].value == 2000
    # encoders with other epochs than the rest are named
    more = [row for row in rows("visual-random", 2000, 6) if row["encoder"] == "Tri"]
    results["visual-random"] += more
    figures = claim_on(results, DEPTH).figures
    assert figures["random: epochs of simple, Tri"].value == 2000
    assert figures["random: epochs of simple, Gau"].value == 150


def test_a_count_has_the_interval_next_to_its_bound():
    def psnr(method, item):
        gain = {"LinF": 3.0, "LogF": 4.0, "RFF": 1.5, "Tri": 2.0, "Gau": 5.0}[method.encoder]
        return level(item) + gain * (method.depth > 0) + noise(method, item, 0.05)

    results = {
        name: made(name, psnr, photographs(6), groups=("simple",))
        for name in ("visual-grid", "visual-random")
    }
    line = claim_on(results, DEPTH).line
    assert line.startswith("n = 6, 10 comparisons: 10 as claimed (next to its bound: ")
    assert "RFF +1.5" in line or "RFF +1.4" in line
    assert line.count("[") == 1
    fewer = {
        "visual-grid": results["visual-grid"],
        "visual-random": [row for row in results["visual-random"] if row["item"] < "p03"],
    }
    words = claim_on(fewer, DEPTH).line
    assert "5 as claimed (next to its bound: grid RFF" in words
    assert "5 open (next to its bound: random RFF" in words


def lines(one_layer, second_layer, n=16):
    """Return rows of the 1-D experiment: gains of depth at the lowest rank, none at others."""

    def psnr(method, item):
        low = method.setting in (0.07, 1.6077)
        gain = [0.0, one_layer, one_layer + second_layer][method.depth] if low else 0.0
        return level(item) - 4.0 * low + gain + noise(method, item, 0.1)

    return {"rank-depth": made("rank-depth", psnr, photographs(n), side=512)}


@pytest.mark.parametrize(
    ("first", "second", "n", "verdict"),
    [
        (2.0, 0.1, 16, "holds"),
        (1.6, 1.0, 16, "holds partly"),  # one layer is not enough
        (0.0, 0.0, 16, "does not hold"),
        (2.0, 0.1, 4, OPEN),
    ],
)
def test_one_layer_is_enough_only_if_the_second_adds_little(first, second, n, verdict):
    assert claim_on(lines(first, second, n), "Depth helps only").verdict == verdict


@pytest.mark.parametrize(
    ("epoch", "n", "verdict"),
    [(100, 6, "holds"), (400, 6, "holds partly"), (900, 6, "does not hold"), (100, 4, OPEN)],
)
def test_epochs_are_compared_where_they_are_equal(epoch, n, verdict):
    rows = images(0.0, n, epochs=1000)
    for row in rows:
        row["settled_epoch"] = 500 if row["group"] == "simple" else epoch
    others = [r | {"settled_epoch": 1} for r in images(0.0, n, groups=("complex",))]
    claim = claim_on({"table1": [*rows, *others]}, "Complex encodings need far fewer")
    assert claim.verdict == verdict
    assert claim.figures["both trained for"].value == 1000


def times(quick, n=5):
    """Return rows of times: deep networks take 20 s, the others ``quick`` seconds."""
    groups = {"simple": 20.0, "closed": quick, "complex": quick}
    return [
        {
            "table": table,
            "group": group,
            "encoder": "Gau",
            "item": item,
            "side": 128,
            "epochs": 0 if group == "closed" else 500,
            "seconds": seconds * (1 + 0.01 * i),
            "threads": 2,
            "load": 0.1,
            "fingerprint": f"{table} {group} {item}",
        }
        for table in ("table1", "table3", "table4")
        for group, seconds in groups.items()
        for i, item in enumerate(photographs(n))
    ]


@pytest.mark.parametrize(
    ("seconds", "n", "verdict"),
    [
        (1e-3, 5, "holds"),
        (0.5, 5, "holds partly"),
        (20.0, 5, "does not hold"),
        (1e-3, 4, OPEN),
    ],
)
def test_speed_is_judged_by_times_measured_apart(seconds, n, verdict):
    assert claim_on({"times": times(seconds, n)}, "The closed form is orders").verdict == verdict
    # seconds of other runs are not looked at
    rows = [row | {"seconds": 1.0} for row in images(0.0, 8)]
    assert claim_on({"table1": rows}, "The closed form is orders").verdict == OPEN


def test_the_page_has_a_line_for_every_claim_and_folds_the_evidence():
    claims = check_claims({"table1": images(0.0, 8)}, theory=False)
    text = markdown(claims)
    assert text.count("<details>") == text.count("</details>") == len(claims)
    for claim in claims:
        summary = next(x for x in text.splitlines() if f"<b>{claim.number}. " in x)
        assert claim.statement in summary
        assert f"<b>{claim.verdict}</b>" in summary
    assert "### Speed" in text
    assert text.index("### Speed") < text.index("### Complex linear models")
    assert "<code>kronfield reproduce times</code>" in text
    assert "[" in next(x for x in text.splitlines() if "<b>22. " in x)
