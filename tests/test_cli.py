"""The command line, run as a user runs it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kronfield as kf

COMMAND = Path(sys.executable).with_name("kronfield")


def run(*arguments, cwd):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_analyze_prints_a_table(tmp_path):
    done = run("analyze", "--samples", "64", "--size", "64", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("Impulse", "Gaussian", "RandomFourier", "Square"):
        assert re.search(rf"^\s*{name}\b", done.stdout, flags=re.MULTILINE)
    row = next(line for line in done.stdout.splitlines() if "Sine" in line)
    assert "2.0 (  2.0)" in row


def test_analyze_prints_json_and_draws(tmp_path):
    specs = [
        "-e",
        "gaussian:width=0.05",
        "-e",
        "RFF:scale=3,seed=1",
        "-e",
        "rff:scale=3,seed=2",
        "-e",
        "linf:exponent=3,size=32",
    ]
    done = run("analyze", *specs, "-n", "64", "-k", "48", "--json", "--plot", "out/a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["embedder"], row["features"]) for row in rows] == [
        ("Gaussian", 48),
        ("RandomFourier", 48),
        ("RandomFourier", 48),
        ("LinearFourier", 32),
    ]
    assert rows[1]["settings"] == {"scale": 3.0, "seed": 1}
    with Image.open(tmp_path / "out" / "a.png") as picture:
        assert picture.size == (1800, 720)
        assert len(set(picture.convert("RGB").resize((180, 72)).get_flattened_data())) > 50  # not blank
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.png"]  # no temporary file left behind


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-e", "wavelet"], "expected one of impulse"),
        (["-e", "gaussian"], "size and width"),
        (["-e", "gaussian:width"], "KEY=VALUE"),
        (["-e", "gaussian:width=-1"], "width: got -1.0"),
        (["-e", "gaussian:width=wide"], "width: got 'wide'"),
        (["-e", "gaussian:sigma=1"], "settings of Gaussian"),
        (["-e", "linf:exponent=5,size=3"], "even number"),
        (["-n", "0"], "1<=x<=8192"),
        (["-k", "99999999999999999999"], "1<=x<=8192"),
        (["-k", "3"], "even number"),
        (["-e", "gaussian:width=" + "9" * 4000], "width: got"),
        (["-n", "many"], "Invalid value"),
        (["-e", "sine:frequency=1", "-n", "8", "--plot", "a.xyz"], "ends in one of"),
        (["-e", "sine:frequency=1", "-n", "8", "--plot", "exists.png"], "--force"),
        (["-e", "sine:frequency=1", "-n", "8", "--plot", "exists.png/a.png"], "exists.png"),
        (["--nonsense"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    (tmp_path / "exists.png").write_bytes(b"mine")
    done = run("analyze", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert (tmp_path / "exists.png").read_bytes() == b"mine"
    assert [p.name for p in tmp_path.iterdir()] == ["exists.png"]


def test_force_overwrites(tmp_path):
    (tmp_path / "a.png").write_bytes(b"old")
    done = run("analyze", "-e", "sine:frequency=1", "-n", "8", "--plot", "a.png", "--force", cwd=tmp_path)
    assert done.returncode == 0
    Image.open(tmp_path / "a.png").verify()


def test_every_example_in_the_help_runs(tmp_path):
    text = run("analyze", "--help", cwd=tmp_path).stdout
    examples = re.findall(r"^\s+kronfield (.+)$", text.split("Examples:")[1], flags=re.MULTILINE)
    assert len(examples) >= 4
    for example in examples:
        assert run(*shlex.split(example), cwd=tmp_path).returncode == 0, example


def test_version_and_help(tmp_path):
    assert re.match(r"kronfield, version \d+\.\d+\.\d+", run("--version", cwd=tmp_path).stdout)
    assert "analyze" in run("-h", cwd=tmp_path).stdout


def test_demo_writes_pictures_and_a_report(tmp_path):
    done = run("demo", "--output", "out", "--scale", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"photograph.png", "photograph-2x.png", "detail.png", "photograph.field", "report.txt"}
    with (
        Image.open(tmp_path / "out" / "photograph.png") as small,
        Image.open(tmp_path / "out" / "photograph-2x.png") as large,
    ):
        assert large.size == (1024, 1024)
        shrunk = large.resize(small.size, Image.Resampling.BOX)
        difference = np.asarray(shrunk, float) - np.asarray(small, float)
    assert np.sqrt(np.mean(difference**2)) < 6  # grey levels: the same picture, not shifted
    assert "chosen by" in (tmp_path / "out" / "report.txt").read_text(encoding="utf-8")
    assert kf.load(tmp_path / "out" / "photograph.field").on_grid((4, 4)).shape == (4, 4, 3)
    (tmp_path / "file").write_bytes(b"")
    assert run("demo", "--output", "file", cwd=tmp_path).returncode == 2
