"""Runs of the experiments at a tiny size, stopped and resumed; their tables, claims and files."""

import csv
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kronfield as kf
from kronfield.cli import main
from kronfield.cli.reproduce import NAMES as COMMAND_NAMES
from kronfield.experiments import NAMES, load_spec, networks, reproduce, runner
from kronfield.experiments.claims import (
    OPEN,
    VERDICTS,
    Condition,
    Rule,
    check_claims,
    markdown as claims_markdown,
)
from kronfield.experiments.evidence import Number
from kronfield.experiments.figures import FIGURES, draw_figure
from kronfield.experiments.reproduce import END, RESULTS, START, page_text, update_page
from kronfield.experiments.results import Results, read_rows
from kronfield.experiments.runner import run_spec
from kronfield.experiments.spec import SPECS
from kronfield.experiments.tables import current, fullest, markdown, summarise


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a tiny run of everything, and the report on it."""
    folder = tmp_path_factory.mktemp("reproduction")
    with warnings.catch_warnings():
        # rank-deficient closed forms are in the rows, not on the screen
        warnings.simplefilter("error")
        return folder, reproduce("all", folder, size="tiny")


@pytest.mark.parametrize("name", SPECS)
def test_every_experiment_runs(tiny, name):
    spec, rows = load_spec(name), read_rows(tiny[0] / f"{name}.jsonl")
    size = spec.sizes["tiny"]
    assert len(rows) == len(spec.methods) * size.count
    assert {row["method"] for row in rows} == {method.key for method in spec.methods}
    for row in rows:
        assert "error" not in row
        assert 0 < row["psnr_unclipped"] <= row["psnr"] < 60
        assert -1 <= row["ssim"] <= 1
        assert row["seconds"] > 0
        assert row["parameters"] > 0
        assert row["scaled"]
        assert {"kronfield", "numpy", "python", "cores", "threads", "seed", "epochs"} <= set(row)
        assert row["samples"] + row["asked"] == row["side"] ** spec.dimensions
    assert current(spec, rows) == rows


def test_a_factored_first_layer_changes_nothing_but_the_time(tiny):
    for name in ("table1", "table3"):
        rows = {row["method"]: row for row in read_rows(tiny[0] / f"{name}.jsonl")}
        factored = [row for row in rows.values() if row["group"] == "factored"]
        assert factored
        for row in factored:
            plain = rows[row["method"].replace("factored", "simple")]
            assert row["epochs"] == plain["epochs"] > 1
            assert row["psnr"] == pytest.approx(plain["psnr"], abs=1e-3)
            assert row["parameters"] == plain["parameters"]


def test_all_files_are_there(tiny):
    folder, report = tiny
    assert all(path.is_file() for path in report.files)
    for name in (*FIGURES, "rank-depth", "visual-grid", "visual-random"):
        picture = (folder / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 150_000
    assert not list(folder.rglob("*.svg"))
    assert (folder / "pictures" / "visual-grid-astronaut-32-original.png").is_file()
    assert (
        folder / "pictures" / "visual-grid-astronaut-32-simple-Gau-depth-4-3-epochs.png"
    ).is_file()
    assert not list(folder.rglob(".*"))  # no checkpoints, nothing half written
    assert any("32 x 32 instead of 512 x 512" in text for text in report.scaled)


def test_figures_are_svg_if_asked_for(tmp_path):
    for name in ("encodings", "embedders"):
        assert draw_figure(name, tmp_path / f"{name}.svg", coarse=True) == [
            tmp_path / f"{name}.svg"
        ]
        first = (tmp_path / f"{name}.svg").read_bytes()
        assert b"<svg" in first
        draw_figure(name, tmp_path / f"{name}.svg", coarse=True)
        assert (tmp_path / f"{name}.svg").read_bytes() == first  # the same figure is the same file


def test_closed_forms_have_their_rank(tiny):
    rows = {row["method"]: row for row in read_rows(tiny[0] / "table1.jsonl")}
    assert rows["closed: Gau"]["rank"] == [16, 16]
    assert max(rows["closed: RFF"]["rank"]) < 16


def test_tables_have_the_papers_numbers_and_the_difference(tiny):
    spec, rows = load_spec("table1"), read_rows(tiny[0] / "table1.jsonl")
    line = next(line for line in summarise(spec, rows) if line.key == "closed: Gau")
    mine = next(row["psnr"] for row in rows if row["method"] == "closed: Gau")
    assert (line.psnr, line.paper_psnr, line.paper_seconds) == (pytest.approx(mine), 26.69, 0.18)
    assert line.difference == pytest.approx(mine - 26.69)
    text = markdown(spec, rows)
    free = next(row["psnr_unclipped"] for row in rows if row["method"] == "closed: Gau")
    assert free < mine  # clipping helps
    both = f"{mine - 26.69:+.2f} | {free - 26.69:+.2f}"
    assert f"| {mine:.2f} ± 0.00 | 26.69 ± 3.76 | {both} |" in text
    older = [{k: v for k, v in row.items() if k != "psnr_unclipped"} for row in rows]
    other = [row | {"item": "another"} for row in older]
    assert f"| {mine - 26.69:+.2f} |  |" in markdown(spec, older)
    assert f"| {mine - 26.69:+.2f} | {free - 26.69:+.2f} (n = 1) |" in markdown(
        spec, [*rows, *other]
    )
    assert "3 epochs instead of 2000" in " ".join(text.split())
    with (tiny[0] / "table1.csv").open(encoding="utf-8") as file:
        tidy = list(csv.DictReader(file))
    assert len(tidy) == len(rows)
    assert tidy[0]["item"] == "astronaut"


def test_full_rows_and_scaled_rows_stand_apart(tiny):
    spec = load_spec("table1")
    row = next(row for row in read_rows(tiny[0] / "table1.jsonl") if row["method"] == "closed: Gau")
    full = {
        **row,
        **spec.method("closed: Gau").settings(),
        "side": 512,
        "scaled": [],
        "size": "paper",
        "psnr": 30.0,
    }
    lines = summarise(spec, [row, full])
    assert [(line.protocol == "full", line.items) for line in lines] == [(True, 1), (False, 1)]
    assert "Rows without a letter follow the paper's protocol" in markdown(spec, [row, full])


def test_of_two_cuts_of_an_item_the_last_counts(tiny):
    spec = load_spec("table1")
    row = next(row for row in read_rows(tiny[0] / "table1.jsonl") if row["method"] == "closed: Gau")
    older = row | {"fingerprint": "older", "data": "another cut", "psnr": 1.0}
    (kept,) = current(spec, [older, row])
    assert kept is row
    assert len(current(spec, [older, row | {"seed": 1}])) == 2


def test_the_fullest_rows_are_judged():
    rows = [
        {"method": "a", "side": 32, "epochs": 9, "psnr": 1},
        {"method": "a", "side": 64, "epochs": 2, "psnr": 2},
        {"method": "a", "side": 64, "epochs": 5, "psnr": 3},
        {"method": "b", "side": 64, "epochs": 0, "psnr": 4},
    ]
    assert [row["psnr"] for row in fullest(rows)] == [3, 4]
    assert fullest([]) == []


# Resuming
# ------------------------------------------------------------------------------------------


def run_some(folder, methods="closed,complex"):
    spec = load_spec("table1")
    return run_spec(spec, spec.sizes["tiny"], folder, methods=methods)


def test_what_is_done_is_not_done_again_and_comes_out_the_same(tmp_path):
    run_some(tmp_path / "a")
    before = (tmp_path / "a" / "table1.jsonl").read_bytes()
    run_some(tmp_path / "a")
    assert (tmp_path / "a" / "table1.jsonl").read_bytes() == before
    run_some(tmp_path / "b")
    a, b = (read_rows(tmp_path / name / "table1.jsonl") for name in "ab")
    keys = ("fingerprint", "psnr", "ssim", "parameters")
    assert [[row[key] for key in keys] for row in a] == [[row[key] for key in keys] for row in b]


def test_a_line_cut_short_is_run_again(tmp_path):
    run_some(tmp_path)
    path = tmp_path / "table1.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    rows = run_some(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(rows) == 10
    assert [json.loads(line)["method"] for line in lines] == [
        json.loads(line)["method"] for line in whole.splitlines()
    ]
    assert lines[:-1] == whole.decode().splitlines()[:-1]


def test_a_changed_spec_does_not_mix(tmp_path):
    spec = load_spec("table1")
    run_some(tmp_path, "closed")
    changed = tuple(
        dataclasses.replace(m, setting=m.setting * 1.5) if m.key == "closed: Gau" else m
        for m in spec.methods
    )
    other = dataclasses.replace(spec, methods=changed)
    rows = run_spec(other, other.sizes["tiny"], tmp_path, methods="closed")
    assert len(rows) == 6  # one of them twice
    assert len(current(other, rows)) == len(current(spec, rows)) == 5
    words = " ".join(markdown(other, rows).split())
    assert "1 rows of earlier settings or data are not counted" in words


def test_failures_are_told_and_tried_again(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_method", fail)
        rows = run_some(tmp_path, "closed")
    assert {row["error"] for row in rows} == {"RuntimeError: no luck"}
    assert summarise(load_spec("table1"), rows) == []
    rows = run_some(tmp_path, "closed")
    assert len(rows) == 5
    assert not any("error" in row for row in rows)


def test_a_clip_that_is_too_short_is_left_out_with_a_note(tmp_path):
    np.savez(tmp_path / "clips.npz", train=np.random.default_rng(0).random((1, 12, 20, 20, 3)))
    report = reproduce("table3", tmp_path / "out", size="tiny", videos=tmp_path / "clips.npz")
    assert report.notes == [
        "table3: clips-train-00: left out: 12 frames of 20 x 20, for a cube of 16"
    ]


def test_ctrl_c_in_the_middle_of_a_long_run_goes_on_there(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "LONG", 0)
    spec = load_spec("table1")
    size = dataclasses.replace(spec.sizes["tiny"], epochs={"simple": 40})
    seen = []

    def stop(done, total, what):
        seen.append(done / total)
        if seen[-1] > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_spec(spec, size, tmp_path, methods="simple:Gau", progress=stop)
    assert len(list(tmp_path.glob(".table1-*.safetensors"))) == 1
    assert read_rows(tmp_path / "table1.jsonl") == []
    later = []
    rows = run_spec(
        spec, size, tmp_path, methods="simple:Gau", progress=lambda *told: later.append(told)
    )
    assert len(later) < 30  # of 40 epochs
    straight = run_spec(spec, size, tmp_path / "straight", methods="simple:Gau")
    assert rows[0]["psnr"] == straight[0]["psnr"]
    assert not list(tmp_path.glob(".table1-*"))


CODE = """
import dataclasses, sys
from pathlib import Path
from kronfield.experiments import load_spec
from kronfield.experiments.runner import run_spec
spec = load_spec("table1")
size = dataclasses.replace(spec.sizes["tiny"], epochs={"complex": 30, "simple": 1})
run_spec(spec, size, Path(sys.argv[1]), methods="closed,complex")
print("done")
"""


def test_a_kill_at_any_moment_loses_at_most_one_job(tmp_path):
    path = tmp_path / "table1.jsonl"
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=alone)
    try:
        deadline = time.monotonic() + 120
        while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    before = path.read_bytes()
    assert 2 <= before.count(b"\n") < 10
    assert (
        subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout
        == "done\n"
    )
    after = path.read_bytes()
    kept = before[: before.rindex(b"\n") + 1]
    assert after.startswith(kept)  # nothing that was finished is run again
    rows = [json.loads(line) for line in after.splitlines()]
    assert len({row["fingerprint"] for row in rows}) == len(rows) == 10


def test_results_replace_rows_with_the_same_fingerprint(tmp_path):
    results = Results(tmp_path / "x.jsonl")
    results.add({"fingerprint": "a", "error": "e"})
    assert "a" not in results
    results.add({"fingerprint": "a", "psnr": 1.0})
    assert "a" in results
    assert read_rows(tmp_path / "x.jsonl") == [{"fingerprint": "a", "psnr": 1.0}]


# Claims and the report
# ------------------------------------------------------------------------------------------


def test_claims(tiny):
    claims = check_claims(
        {name: read_rows(tiny[0] / f"{name}.jsonl") for name in RESULTS}, quick=True
    )
    assert len(claims) == 38
    assert [claim.number for claim in claims] == list(range(1, 39))
    assert all(claim.verdict in VERDICTS and claim.figures for claim in claims)
    # the tiny run has one item: nothing that is measured on items is established
    without = (
        "Theory",
        "Speed",
        "Parameters",
        "Rank, frequencies, bandwidth and complexity",
    )
    assert {claim.verdict for claim in claims if claim.group not in without} == {OPEN}
    verdicts = {claim.statement: claim.verdict for claim in claims}
    assert verdicts["The similarity of the triangle is ¼ max(σ − d, 0)²"] == "does not hold"
    assert verdicts["The stable rank of the Gaussian is min(N, 1/(2√π σ))"] == "holds"
    assert (
        verdicts["A linear model on a simple encoding gives pictures of rank 2 at most"]
        == "holds partly"
    )
    with (tiny[0] / "claims.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(int(line["number"]), line["figure"]) for line in lines] == [
        (claim.number, name) for claim in claims for name in claim.figures
    ]
    assert all(math.isfinite(float(line["value"])) for line in lines)


def test_claims_without_results_are_not_established():
    claims = check_claims({}, quick=True)
    empty = [claim for claim in claims if claim.verdict == OPEN]
    assert len(empty) == 16
    assert all(claim.needs in NAMES and not claim.figures for claim in empty)
    assert "run <code>kronfield reproduce visual-grid</code>" in claims_markdown(empty)


def figures_of(**values):
    return {name: Number(value) for name, value in values.items()}


def test_a_rule_decides_the_verdict():
    rule = Rule((Condition("a", "<", 1.0),), (Condition("a", "≤", "b"),), "does not hold")
    assert rule.verdict(figures_of(a=0.5, b=0.0)) == "holds"
    assert rule.verdict(figures_of(a=1.0, b=1.0)) == "holds partly"
    assert rule.verdict(figures_of(a=2.0, b=1.0)) == "does not hold"
    assert rule.verdict({}) == OPEN
    assert str(rule) == "holds if a < 1; holds partly if a ≤ b; else does not hold"


def test_a_comparison_has_the_papers_difference_and_the_protocol(tiny):
    rows = read_rows(tiny[0] / "table2.jsonl")
    offsets = {"simple": 0.0, "complex": -4.0, "ours": 0.2}
    made = [{**row, "psnr": 25.0 + offsets[row["group"]]} for row in rows]
    claim = next(c for c in check_claims({"table2": made}, quick=True) if c.where == "6.2, Table 2")
    assert claim.verdict == OPEN  # one image
    found = {name: figure.value for name, figure in claim.figures.items()}
    assert found["difference"] == pytest.approx(-4.0)
    assert found["difference in the paper's table"] == pytest.approx(-0.93)
    assert found["kronfield, nothing chosen, minus simple"] == pytest.approx(0.2)
    assert (found["side"], found["side in the paper"]) == (32, 512)
    assert found["epochs of simple"] < found["epochs of simple in the paper"] == 2000
    assert claim.figures["difference"].unit == "dB"


def test_the_page_is_filled_in_without_running_anything(tiny, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\nbefore\n\n{START}\nold\n{END}\n\nafter\n", encoding="utf-8")
    update_page(page, tiny[0])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\nbefore")
    assert text.endswith("after\n")
    assert "\nold\n" not in text
    assert "## Claims" in text
    assert "26.69 ± 3.76" in text
    assert "singular-values.png)" in text
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(kf.InputError, match="page"):
        update_page(page, tiny[0])


def test_the_report_needs_results_only(tiny, tmp_path):
    (tmp_path / "table1.jsonl").write_bytes((tiny[0] / "table1.jsonl").read_bytes())
    reproduce("report", tmp_path, size="tiny")
    assert (tmp_path / "table1.md").read_bytes() == (tiny[0] / "table1.md").read_bytes()
    assert not (tmp_path / "table2.md").exists()


def test_names():
    assert COMMAND_NAMES == NAMES
    with pytest.raises(kf.InputError, match="one of table1"):
        reproduce("table9", "out")
    with pytest.raises(kf.InputError, match="size"):
        reproduce("table1", "out", size="huge")
    with pytest.raises(kf.InputError, match="even"):
        reproduce("table1", "out", side=33)


# The command
# ------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


def test_the_command_prints_the_table_and_what_was_scaled(tmp_path):
    done = command("table1", "--size", "tiny", "--methods", "closed", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "Scaled: table1: 32 x 32 instead of 512 x 512" in done.output
    assert "Scaled: table1: 1 image instead of 16" in done.output
    assert "26.69 ± 3.76" in done.output
    quiet = command(
        "table1", "--size", "tiny", "--methods", "closed", "-o", tmp_path / "out", "--quiet"
    )
    assert (quiet.exit_code, quiet.output) == (0, "")
    told = json.loads(
        command(
            "table1", "--size", "tiny", "--methods", "closed", "-o", tmp_path / "out", "--json"
        ).output
    )
    assert {"files", "scaled", "notes"} == set(told)


def test_the_command_takes_other_sizes(tmp_path):
    options = (
        "--methods",
        "complex:Gau",
        "--side",
        16,
        "--count",
        2,
        "--epochs",
        7,
        "-o",
        tmp_path,
    )
    assert command("table1", "--size", "tiny", *options).exit_code == 0
    rows = read_rows(tmp_path / "table1.jsonl")
    assert [(row["side"], row["epochs"], row["item"]) for row in rows] == [
        (16, 7, "astronaut"),
        (16, 7, "coffee"),
    ]


def test_the_command_says_that_what_is_finished_is_kept(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_method", stop)
    done = command("table1", "--size", "tiny", "--methods", "closed", "-o", tmp_path)
    assert done.exit_code == 130
    assert "what is finished is kept" in done.output


def test_the_command_refuses_in_one_line(tmp_path):
    for arguments in (
        ("table9",),
        ("table1", "--methods", "none"),
        ("table1", "--images", tmp_path / "none"),
    ):
        done = command(*arguments, "-o", tmp_path / "out")
        assert done.exit_code == 2
        assert len(done.output.strip().splitlines()) == 1


COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.parametrize("name", SPECS)
def test_the_committed_tables_are_those_of_the_committed_results(name):
    spec = load_spec(name)
    rows = read_rows(COMMITTED / f"{name}.jsonl")
    # none of earlier settings, none failed
    assert len(current(spec, rows)) == len([row for row in rows if row["method"]])
    assert (COMMITTED / f"{name}.md").read_text(
        encoding="utf-8"
    ) == f"# {spec.title}\n\n{markdown(spec, rows)}"


def test_the_committed_page_is_that_of_the_committed_results():
    page = (COMMITTED.parent / "reproduction.md").read_text(encoding="utf-8")
    between = page.partition(START)[2].partition(END)[0].strip()
    assert between == page_text(COMMITTED, "reproduction").strip()
