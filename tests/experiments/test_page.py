"""The runs behind docs/reproduction.md: cubes of clips, merging, times, what is missing."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import kronfield as kf
from kronfield.experiments import load_spec, reproduce, times
from kronfield.experiments.claims import check_claims
from kronfield.experiments.data import CUBES, TooSmallError, cube, items
from kronfield.experiments.page import Run, missing, page_runs, scaled
from kronfield.experiments.reproduce import (
    CAPTIONS,
    RESULTS,
    TITLES,
    page_text,
    write_claims,
)
from kronfield.experiments.results import merge_rows, read_rows
from kronfield.experiments.runner import estimated_seconds
from kronfield.experiments.spec import SPECS
from kronfield.experiments.tables import longest, markdown
from kronfield.files import write_image

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


# Cubes
# ------------------------------------------------------------------------------------------


def test_cubes_of_a_clip_do_not_overlap():
    place = np.arange(256 * 256, dtype=np.float32).reshape(1, 256, 256, 1) / 256**2
    frames = np.broadcast_to(place, (40, 256, 256, 1))
    cubes = [set(np.unique(cube(frames, 32, at)).tolist()) for at in CUBES]
    assert all(len(one) == 32 * 32 for one in cubes)
    assert len(set().union(*cubes)) == len(CUBES) * 32 * 32
    with pytest.raises(TooSmallError, match="overlap"):
        cube(frames[:, :100, :100], 32, CUBES[1])


def test_the_central_cube_is_the_first():
    frames = np.random.default_rng(0).random((41, 51, 61, 3)).astype(np.float32)
    np.testing.assert_array_equal(cube(frames, 16), frames[12:28, 17:33, 22:38])


def test_central_cubes_of_all_clips_come_first(tmp_path):
    clips = np.random.default_rng(0).random((2, 40, 100, 100, 3)).astype(np.float32)
    np.savez(tmp_path / "clips.npz", train=clips)
    found = items("video", tmp_path / "clips.npz", 3, crops=2)
    assert [item.name for item in found] == [
        "clips-train-00",
        "clips-train-01",
        "clips-train-00-cube2",
    ]
    first, _, beside = (item.load(16) for item in found)
    np.testing.assert_array_equal(first, clips[0, 12:28, 42:58, 42:58])
    np.testing.assert_array_equal(beside, clips[0, 6:22, 21:37, 21:37])
    with pytest.raises(kf.InputError, match="crops"):
        items("video", tmp_path / "clips.npz", 3, crops=9)


def test_cubes_are_read_from_video_files_as_from_arrays():
    pytest.importorskip("av")
    centre, beside = items("video", None, 4, crops=2)[0::3]
    assert (centre.name, beside.name) == ("bikes", "bikes-cube2")
    assert centre.load(16).shape == beside.load(16).shape == (16, 16, 16, 3)
    assert not np.array_equal(centre.load(16), beside.load(16))


# The runs
# ------------------------------------------------------------------------------------------


def test_the_runs_have_methods_and_enough_items():
    for run in page_runs():
        assert run.chosen
        assert run.size.name == "paper"
    for table in ("table1", "table2", "table3", "table4"):
        simple = [
            run
            for run in page_runs()
            if run.experiment == table and "simple" in {m.group for m in run.chosen}
        ]
        assert max(run.count for run in simple) >= 6
    visual = next(run for run in page_runs() if run.experiment == "visual-grid")
    assert {(m.group, m.depth) for m in visual.chosen} == {("simple", 0), ("complex", 1)}


def rows_of(run, count):
    return [
        {
            **run.spec.scaled(method, run.size, run.side).settings(),
            "size": "paper",
            "item": f"item{i}",
            "method": method.key,
            "side": run.side,
            "epochs": run.size.epochs_of(method),
            "psnr": 25.0,
            "psnr_unclipped": 25.0,
        }
        for method in run.chosen
        for i in range(count)
    ]


def test_what_is_missing_is_stated_from_the_rows():
    run = Run("table1", "closed,complex:RFF", 128, 8)

    def jobs(rows):
        return {group: (done.jobs, done.of) for group, done in run.done(rows).items()}

    assert jobs([]) == {"closed": (0, 40), "complex": (0, 8)}
    assert jobs(rows_of(run, 3)) == {"closed": (15, 40), "complex": (3, 8)}
    assert jobs(rows_of(run, 9)) == {"closed": (40, 40), "complex": (8, 8)}
    fewer = [row | {"epochs": 7} for row in rows_of(Run("table1", "simple", 128, 8), 8)]
    assert Run("table1", "simple", 128, 8).done(fewer)["simple"].jobs == 0
    nothing = missing({})
    assert "| `table1` | 128 | simple | 0 of 40 (8 images) |" in nothing
    assert "| `table3` | 32 | simple | 0 of 30 (6 cubes of clips) |" in nothing
    assert "| `visual-grid` | 128 | complex of depth 1 | 0 of 40 (8 images) |" in nothing
    assert "`times`" in nothing
    assert "`slopes`" in nothing
    assert "`released`" in nothing
    everything = {name: [] for name in RESULTS} | {
        name: [{}] for name in RESULTS if name not in SPECS
    }
    for one in page_runs():
        everything[one.experiment] += rows_of(one, one.count)
    assert missing(everything) == "Nothing: all runs are finished."
    for row in everything["table1"]:
        if (row["side"], row["group"], row["item"]) == (128, "complex", "item0"):
            del row["psnr_unclipped"]
    words = missing(everything)
    assert "| `table1` | 128 | complex | 2,000 | 5 of 40 | less than 1 |" in words
    assert words.count("`table") == 1
    assert "jobs" not in words


def test_the_time_that_is_missing_is_that_of_the_jobs_without_rows():
    run = Run("table1", "simple,closed", 128, 8)
    (each,) = {estimated_seconds(run.spec, run.size, m) for m in run.chosen if m.group == "simple"}
    assert run.done([])["simple"].seconds == pytest.approx(40 * each)
    assert run.done(rows_of(run, 3))["simple"].seconds == pytest.approx(25 * each)
    assert run.done(rows_of(run, 8))["simple"].seconds == 0
    rows = rows_of(run, 3)
    words = missing({"table1": rows})
    assert f"| `table1` | 128 | simple | 15 of 40 (8 images) | {25 * each / 60:.0f} |" in words


def test_estimated_seconds_are_those_of_measured_times():
    networks = [r for r in read_rows(COMMITTED / "times.jsonl") if r["how"] == "descent"]
    assert {row["table"] for row in networks} == {"table1", "table3", "table4"}
    for row in networks:
        spec = load_spec(row["table"])
        size = spec.paper.replace(side=row["side"])
        estimate = estimated_seconds(spec, size, spec.method(row["method"]))
        assert 0.5 < row["seconds"] / estimate < 2


def test_longer_runs_replace_shorter_ones_of_no_more_items():
    run, other = (Run("table1", f"complex:{name}", 128, 8) for name in ("Gau", "Tri"))
    full = rows_of(run, 3)
    short, shorter = ([row | {"epochs": n} for row in rows_of(run, 8)] for n in (150, 10))
    assert longest(full + short[:3]) == full
    assert longest(short[:3] + full) == full
    assert longest(full + short[:4]) == full + short[:4]  # a short run of more items stays
    assert longest(full + short[:4] + shorter[:4]) == full + short[:4]
    apart = [row | {"side": 64} for row in short[:3]]
    apart += [row | {"epochs": 150} for row in rows_of(other, 3)]
    assert longest(full + apart) == full + apart
    text = markdown(run.spec, [with_numbers(row) for row in full + short[:3]])
    note = "Of shorter runs, which longer ones replace, 3 rows are only in table1.csv."
    assert note in " ".join(text.split())
    assert text.count("Gau, depth 0") == 1


def with_numbers(row):
    return row | {"ssim": 0.5, "parameters": 1, "seconds": 1.0, "cores": 1, "threads": 1}


def test_what_was_scaled_is_one_table():
    run = Run("table3", "simple", 32, 6)
    rows = [row | {"epochs": 100, "hidden": 256} for row in rows_of(run, 6)]
    assert scaled({"table3": rows}).splitlines()[2:] == [
        "| table3 | simple encoding, network | 6 (paper 5) | 32 (paper 128) | 100 (paper 500) | "
        "256 (paper 512) |"
    ]
    cut = [row for row in rows if row["encoder"] == "LogF" or row["item"] in ("item0", "item1")]
    assert "| 2 to 6 (paper 5) |" in scaled({"table3": cut})


def test_the_size_page_runs_what_is_asked_for(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        write_image(folder / f"p{i}.png", rng.random((140, 140, 3)))
    options = {"size": "page", "images": folder, "methods": "closed", "side": 128}
    reproduce("table1", tmp_path / "out", **options)
    rows = read_rows(tmp_path / "out" / "table1.jsonl")
    assert {(row["side"], row["group"], row["size"]) for row in rows} == {(128, "closed", "paper")}
    assert len(rows) == 15
    with pytest.raises(kf.InputError, match="of 128, 256, 480"):
        reproduce("table1", tmp_path / "out", **(options | {"side": 64}))


# Merging and the report
# ------------------------------------------------------------------------------------------


def write(path, *rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_rows_made_at_different_times_merge(tmp_path):
    mine, other = tmp_path / "a" / "x.jsonl", tmp_path / "b" / "x.jsonl"
    write(mine, {"fingerprint": "1", "psnr": 1.0}, {"fingerprint": "2", "error": "e"})
    write(
        other,
        {"fingerprint": "1", "error": "e"},
        {"fingerprint": "2", "psnr": 2.0},
        {"fingerprint": "3", "psnr": 3.0},
    )
    wanted = [{"fingerprint": str(i), "psnr": float(i)} for i in (1, 2, 3)]
    assert merge_rows(mine, [other]) == 2
    assert read_rows(mine) == wanted
    before = mine.read_bytes()
    assert merge_rows(mine, [other]) == 0  # a second time changes nothing
    assert mine.read_bytes() == before
    write(other, {"fingerprint": "1", "psnr": 1.5})
    assert merge_rows(mine, [other]) == 0
    assert {row["fingerprint"]: row["psnr"] for row in read_rows(mine)}["1"] == 1.5


def test_a_report_adds_the_results_of_other_folders(tmp_path):
    for methods in ("closed", "ours"):
        reproduce("table1", tmp_path / methods, size="tiny", methods=methods)
    reproduce(
        "report", tmp_path / "all", size="tiny", merge=[tmp_path / "closed", tmp_path / "ours"]
    )
    assert len(read_rows(tmp_path / "all" / "table1.jsonl")) == 8
    assert "nothing chosen" in (tmp_path / "all" / "table1.md").read_text(encoding="utf-8")
    with pytest.raises(kf.InputError, match="merge"):
        reproduce("report", tmp_path / "all", size="tiny", merge=[tmp_path])


def test_the_committed_claims_are_those_of_the_committed_results(tmp_path):
    results = {name: read_rows(COMMITTED / f"{name}.jsonl") for name in RESULTS}
    committed = (COMMITTED / "claims.md").read_text(encoding="utf-8")
    for claim in check_claims(results, theory=False):
        line = next(x for x in committed.splitlines() if f"<b>{claim.number}. " in x)
        assert f"{claim.statement}</b> ({claim.where}): <b>{claim.verdict}</b>" in line
        assert claim.line.split("`")[0].replace("<", "&lt;") in line


def test_the_report_is_the_same_from_the_results_alone(tmp_path):
    for name in RESULTS:
        if (COMMITTED / f"{name}.jsonl").exists():
            (tmp_path / f"{name}.jsonl").write_bytes((COMMITTED / f"{name}.jsonl").read_bytes())
    write_claims(tmp_path, quick=True)
    text = page_text(tmp_path, ".")
    order = ["## Claims", "## What was scaled", "## What is missing", "## Figures"]
    assert sorted(order, key=text.index) == order
    committed = page_text(COMMITTED, ".")
    for heading in order[1:3]:
        start, end = text.index(heading), text.index("\n## ", text.index(heading))
        assert text[start:end] in committed


def test_every_figure_has_a_caption():
    drawn = {name for name in SPECS if load_spec(name).keep or load_spec(name).kind == "line"}
    assert set(CAPTIONS) == drawn | set(TITLES)
    page = page_text(COMMITTED, ".")
    assert page.count("![") == len(CAPTIONS)


# Times
# ------------------------------------------------------------------------------------------


def test_times_are_measured_apart_and_continue(tmp_path, monkeypatch):
    monkeypatch.setattr(times, "REPEATS", 2)
    reproduce("times", tmp_path, size="tiny")
    rows = read_rows(tmp_path / "times.jsonl")
    assert {row["table"] for row in rows} == {"table1", "table3", "table4"}
    for row in rows:
        assert row["seconds"] > 0
        if row["epochs"]:
            assert row["epochs"] == load_spec(row["table"]).paper.epochs["simple"]
            assert row["seconds"] == pytest.approx(row["epochs"] * row["seconds_per_epoch"])
        assert (row["clock"], row["threads"]) == ("CPU time", 1)
    before = (tmp_path / "times.jsonl").read_bytes()
    reproduce("times", tmp_path, size="tiny")
    assert (tmp_path / "times.jsonl").read_bytes() == before
    claim = next(c for c in check_claims({"times": rows}, theory=False) if c.needs == "times")
    assert claim.figures["table1: speed-up"].n == 2


def test_the_script_has_a_stage_for_every_run(tmp_path):
    """Run the script with a command that only writes down what it is asked for."""
    fake = tmp_path / "kronfield"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n', encoding="utf-8")
    fake.chmod(0o755)
    script = COMMITTED.parent / "reproduction.sh"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "RUNS": str(tmp_path / "runs"),
    }
    subprocess.run(["bash", script, "photos"], check=True, env=environment)
    calls = [x.split() for x in (tmp_path / "calls").read_text(encoding="utf-8").splitlines()]
    asked = set()
    for _, name, *options in calls[:-3]:
        given = dict(zip(options[0::2], options[1::2], strict=False))
        assert (given["--size"], given["--images"]) == ("page", "photos")
        sides = {run.side for run in page_runs() if run.experiment == name}
        asked |= {(name, side) for side in sides if given.get("--side", str(side)) == str(side)}
    assert asked == {(run.experiment, run.side) for run in page_runs()}
    assert [call[1] for call in calls[-3:]] == ["times", "slopes", "report"]
    done = subprocess.run(
        ["bash", script, "photos", "none"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no stage none" in done.stderr
