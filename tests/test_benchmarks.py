"""The benchmark at its tiny size: every section runs, and the page follows from its rows."""

import importlib.util
import itertools
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import denoising, frame, report, versions
from benchmarks.__main__ import BEYOND_QUICK, SECTIONS
from benchmarks.data import TUNED, UNTUNED, GridTask, PointTask, by_use, waves
from benchmarks.denoising import NoisyTask
from benchmarks.frame import OURS, Method, Row, Settings, contest, interleaved
from benchmarks.grid_peers import peers
from benchmarks.point_peers import peers as point_peers
from benchmarks.scaling import Limits

ROOT = Path(__file__).parent.parent
QUIET = Settings("tiny", say=lambda text: None)


@pytest.fixture(scope="module")
def rows():
    return {name: section(QUIET) for name, section in SECTIONS.items()}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_runs_with_ours_first(rows, name):
    measured = [row for row in rows[name] if row.section != "limits"]
    assert measured[0].method == OURS
    for row in measured:
        if row.seconds is None:  # a peer that is not installed
            assert row.note.startswith("not measured")
        else:
            assert 0 < row.low <= row.seconds <= row.high


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_everybody_keeps_the_samples_that_are_given_and_the_ramp_between(dimensions):
    """Every method reproduces a linear ramp, so none is shifted by half a sample."""
    axes = np.meshgrid(*[np.linspace(0.2, 0.8, 40)] * dimensions, indexing="ij")
    task = GridTask(np.stack([sum(axes) / dimensions] * 3, axis=-1).astype(np.float32))
    inner = (slice(8, -8),) * dimensions
    for method in peers(dimensions):
        if not method.needs or importlib.util.find_spec(method.needs):
            found = method.call(task)
            assert found.shape == task.values.shape
            loose = 2e-2 if "paper" in method.name or "lanczos" in method.name else 1e-4
            np.testing.assert_allclose(
                found[inner], task.values[inner], atol=loose, err_msg=method.name
            )


def test_scores_are_of_what_was_not_given():
    task = GridTask(waves((16, 16), 3))
    wrong = task.values.copy()
    wrong[::2, ::2] = 0  # given samples do not count
    assert task.score(wrong)[0] > 100
    scattered = PointTask(waves((16, 16), 3), 0)
    wrong = scattered.image.copy()
    wrong[scattered.mask] = 0
    assert scattered.score(wrong)[0] > 100


def test_a_peer_that_is_not_installed_is_reported():
    methods = [Method(OURS, lambda x: x), Method("nobody", lambda x: x, needs="no_such_module")]
    found = contest("s", "c", {"a": 1}, methods, QUIET)
    assert [row.method for row in found] == [OURS, "nobody"]
    assert found[1].note == "not measured: no_such_module is not installed"
    assert found[1].seconds is None


def test_ratios_are_taken_item_by_item():
    waits = {"a": 0.01, "b": 0.03}
    methods = [
        Method(OURS, lambda x: time.sleep(waits[x])),
        Method("twice", lambda x: time.sleep(2 * waits[x])),
    ]
    ratio = contest("s", "c", {"a": "a", "b": "b"}, methods, QUIET)[1].ratio
    assert 1.5 < ratio < 2.5


def test_a_slow_method_is_compared_on_the_items_it_was_run_on():
    quality = {"a": 40.0, "b": 20.0}
    methods = [
        Method(OURS, lambda item: quality[item]),
        Method("slow", lambda item: quality[item] - 1, most=1),
        Method("worse", lambda item: quality[item] - 3),
    ]
    ours, slow, worse = contest(
        "images", "c", {"a": "a", "b": "b"}, methods, QUIET, score=lambda _, found: (found, None)
    )
    assert (ours.items, slow.items) == (2, 1)
    assert (ours.psnr, slow.psnr, slow.ours_psnr) == (30.0, 39.0, 40.0)
    table = report.quality_table("c", [slow, worse, ours]).splitlines()[4:]
    assert [line.split(" | ")[0].strip("|* ") for line in table] == [OURS, "slow", "worse"]
    assert "39.00 dB (on 1; kronfield there 40.00)" in table[1]
    case = f"2 volumes; {UNTUNED}, noise 0.1"
    noisy = [replace(ours, section="denoising", case=case, method=denoising.THOROUGH)]
    noisy.append(replace(slow, section="denoising", case=case, method=denoising.BM3D))
    assert denoising.goals(noisy) == []  # the photographs are not the same
    assert "| **30.00** | |" in " ".join(denoising.figures(noisy).split())
    assert "39.00 (on 1; default 40.00)" in denoising.figures(noisy)


def test_photographs_on_which_decisions_were_set_are_apart():
    images = {f"kodim{number:02d}": np.zeros((2, 2, 3)) for number in range(1, 13)}
    for size, tuned in (("quick", 4), ("full", 8)):
        parts = by_use(images, Settings(size))
        assert list(parts) == [UNTUNED, TUNED]
        assert list(parts[UNTUNED]) == ["kodim09", "kodim10", "kodim11", "kodim12"]
        assert list(parts[TUNED]) == [f"kodim{number:02d}" for number in range(1, tuned + 1)]
    for label, plates in ((UNTUNED, 2), (TUNED, 1)):
        found = {one.name: one.most for one in point_peers(Settings("quick"), label)}
        assert found["SciPy RBFInterpolator"] == plates
        assert found["GPyTorch KISS-GP"] == (label == UNTUNED)


def test_measurements_wait_for_busy_threads(monkeypatch):
    used, waits = itertools.accumulate([0.0, 0.005, 0.0, 0.0]), []
    monkeypatch.setattr(frame.time, "process_time", lambda: next(used))
    monkeypatch.setattr(frame.time, "sleep", waits.append)
    frame.settle()
    assert waits == [frame.PAUSE] * 2  # once while a thread is busy, once to see that none is
    monkeypatch.setattr(frame.time, "process_time", itertools.count().__next__)
    frame.settle()
    assert sum(waits[2:]) == pytest.approx(frame.SETTLE)  # no longer than this


def test_long_steps_are_repeated_less():
    calls = {"a": lambda: time.sleep(0.001)}
    assert len(interleaved(calls, 5)["a"]) == len(interleaved(calls, 5, 60.0)["a"]) == 5
    assert len(interleaved(calls, 5, 0.001)["a"]) == 2


def test_the_verdict_follows_the_rows():
    ours = Row("images", "c", OURS, 1.0, 1.0, 1.0, 3, 1.0, 30.0, 30.0)
    slow = replace(ours, method="better, slower", ratio=2.0, psnr=31.0)
    quick = replace(ours, method="worse, faster", ratio=0.1, psnr=29.0)
    both = replace(ours, method="both", ratio=0.9, psnr=30.1)
    mine = replace(both, method="kronfield, refit")
    assert report.ahead([ours, slow, quick, mine]) == []
    assert "In none of 2 rows" in report.verdict([ours, slow, quick, mine])
    assert report.ahead([ours, slow, quick, both]) == [both]
    assert "both (c: +0.10 dB)" in report.verdict([ours, both])
    elsewhere = [replace(row, section="scaling") for row in (ours, both)]
    assert report.ahead(elsewhere) == []


def test_noise_is_scored_against_the_truth():
    task = NoisyTask(waves((24, 24), 3, noise=0.0), 0.1, 0, 0.0, 1.0)
    assert task.score(task.truth + 0.01)[0] == pytest.approx(40.0, abs=0.1)
    assert task.score(task.noisy)[0] == pytest.approx(20.0, abs=0.5)
    loud = NoisyTask(10 * waves((400,), 1, noise=0.0), 0.1, 0, is_snr=True)
    error = np.full(loud.truth.shape, 0.01 * np.std(loud.truth))
    assert loud.score(loud.truth + error)[0] == pytest.approx(40.0, abs=0.01)


def test_the_goals_of_denoising_follow_the_rows():
    case = f"3 photographs in colour of 9 x 9; {UNTUNED}, noise 0.05"
    ours = Row("denoising", case, OURS, 1.0, 1.0, 1.0, 3, 1.0, 34.0, 34.0)
    peer = replace(ours, method=denoising.NLM, ratio=1.2, psnr=32.0)
    assert "+2.00 dB on non-local means (goal +1.5, met)" in denoising.goals([ours, peer])[0]
    assert "of its time (goal 1, met)" in denoising.goals([ours, peer])[0]
    close = replace(peer, psnr=33.0, ratio=0.5)
    assert (
        "goal +1.5, not met) in 2 of its time (goal 1, not met)"
        in denoising.goals([ours, close])[0]
    )
    thorough = replace(ours, method=denoising.THOROUGH, ratio=2.0, psnr=34.5)
    exact = replace(ours, method=denoising.BM3D, ratio=50.0, psnr=34.7)
    found = denoising.goals([ours, thorough, exact])[0]
    assert "thorough -0.20 dB on BM3D (goal -0.3, met), which takes 25 times as long" in found
    table = denoising.figures([ours, peer, exact, replace(ours, case=f"{case}; {TUNED}")])
    assert table.splitlines()[2].count("|") == table.splitlines()[0].count("|")
    assert "**34.70**" in table  # the best one
    assert len(table.splitlines()) == 3  # and none on which decisions were set


def test_slopes_and_limits():
    curve = [Row("scaling", "c; samples", OURS, x**1.5, x=x) for x in (10.0, 100.0, 1000.0)]
    assert report.slope(curve) == pytest.approx(1.5)
    assert Limits(2.0, 4.0, 8.0).seconds(flops=2, moved=8, entries=8) == pytest.approx(4.0)


def test_results_come_back_and_make_the_page(rows, tmp_path):
    flat = [row for some in rows.values() for row in some]
    about = {"size": "tiny", "data": "made up", "minutes": 1.0, "python": "3"}
    report.save(tmp_path, about, flat)
    told, again = report.load(tmp_path / "results.json")
    assert told == about
    assert [(row.section, row.case, row.method, row.note) for row in again] == [
        (row.section, row.case, row.method, row.note) for row in flat
    ]
    assert len((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()) == len(flat) + 1
    report.draw(tmp_path, again)
    text = report.page(told, again, "pictures")
    for name in ("images", "pixels", "scaling"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert f"pictures/{name}.png" in text
    for row in again:
        if row.section in report.QUALITY:
            assert row.method in text


def test_the_command_runs_some_sections_and_keeps_the_others(tmp_path):
    def run(*arguments):
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            "--size",
            "tiny",
            "--output",
            str(tmp_path),
            *arguments,
        ]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )

    assert run("--sections", "closed form").returncode == 0
    assert run("--sections", "stream").returncode == 0
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {row["section"] for row in data["rows"]} == {"closed form", "stream"}
    assert "closed form" in (tmp_path / "report.md").read_text(encoding="utf-8")
    wrong = run("--sections", "nonsense")
    assert wrong.returncode == 2
    assert "no section nonsense: there are images" in wrong.stderr


@pytest.mark.parametrize(
    ("page", "make"),
    [
        ("docs/benchmarks.md", lambda about, rows: report.page(about, rows, "benchmarks")),
        ("README.md", lambda about, rows: report.readme_table(rows)),
    ],
)
def test_the_committed_tables_come_from_the_committed_results(page, make):
    about, rows = report.load(ROOT / "docs" / "benchmarks" / "results.json")
    text = (ROOT / page).read_text(encoding="utf-8")
    assert (
        text.partition(report.START)[2].partition(report.END)[0].strip()
        == make(about, rows).strip()
    )


def test_the_page_names_every_peer_that_is_both_faster_and_better():
    rows = report.load(ROOT / "docs" / "benchmarks" / "results.json")[1]
    found = {row.section for row in rows}
    assert {*SECTIONS, "limits"} - set(BEYOND_QUICK) <= found <= {*SECTIONS, "limits"}
    page = " ".join((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").split())
    assert " ".join(report.verdict(rows).split()) in page


def test_threads_are_measured():
    from benchmarks import threads

    found = threads.measure(side=12, busy=1, repetitions=1)
    assert set(found) == set(threads.cases(12))
    text = threads.table(found)
    assert text.count("\n") == len(found) + 1
    assert all(seconds > 0 for times in found.values() for seconds in times.values())


# Versions
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", versions.JOBS)
def test_every_job_of_the_comparison_of_versions_runs(name):
    if name == "network":
        pytest.importorskip("torch")
    assert versions.JOBS[name](True)() is not None


def test_a_checkout_beside_itself(capsys):
    versions.main(["--other", str(ROOT), "--jobs", "few-points,file", "--rounds", "1", "--tiny"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert "ratio" in head
    assert [line.split()[0] for line in lines] == ["few-points", "file"]
    for line in lines:
        this, other, ratio = map(float, line.split()[1:])
        assert this > 0
        assert other > 0
        assert ratio == pytest.approx(this / other, abs=0.02, rel=0.05)


def test_every_process_imports_the_checkout_that_it_measures(tmp_path):
    other = tmp_path / "src" / "kronfield"
    other.mkdir(parents=True)
    assert "imported from" in versions.measure("file", tmp_path, tiny=True)
    (other / "__init__.py").write_text("def fit(*_, **__):\n    raise RuntimeError('too early')\n")
    found = versions.compare("few-points", tmp_path, rounds=1, tiny=True)
    assert "not measured: other checkout: AttributeError" in str(found)
    with pytest.raises(SystemExit):
        versions.main(["--other", str(tmp_path / "src")])
    with pytest.raises(SystemExit):
        versions.main(["--other", str(ROOT), "--jobs", "nothing"])


def test_checkouts_take_turns(monkeypatch):
    seen = []

    def measured(name, checkout, *, tiny):
        seen.append(checkout == versions.HERE)
        return 1.0 if seen[-1] else 2.0

    monkeypatch.setattr(versions, "measure", measured)
    found = versions.compare("file", Path("elsewhere"), rounds=2)
    assert seen == [True, False, False, True]
    assert (found.this, found.other, found.ratio) == (1.0, 2.0, 0.5)


def test_a_job_is_called_once_before_it_is_timed():
    called = []
    assert 0 <= versions.timed(lambda: called.append(time.sleep(0.05 * (not called)))) < 0.05
    assert len(called) == 1 + versions.CALLS
