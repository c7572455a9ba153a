"""The command line as a whole: help, errors, interrupts, completion; `analyze`, `info`, `demo`."""

import functools
import json
import os
import re
import signal
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kronfield as kf
from clifiles import COMMAND, as_json, environment, installed, limited, pixels, refused, run
from kronfield.cli import COMMANDS
from kronfield.files import sample_photograph
from kronfield.nn import DivergenceError
from kronfield.signals.view import View

# Help
# ------------------------------------------------------------------------------------------


def test_help_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from kronfield.cli import main; "
        "main(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    python = COMMAND.with_name("python")
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    *text, modules = done.stdout.strip().splitlines()
    assert not {"numpy", "scipy", "torch", "matplotlib", "PIL", "rich"} & {
        name.split(".")[0] for name in modules.split()
    }
    listed = re.findall(r"^  (\w+)  +\S", "\n".join(text), flags=re.MULTILINE)
    assert listed == list(COMMANDS)


def test_version_and_help(tmp_path):
    assert re.match(
        r"kronfield, version \d+\.\d+\.\d+", installed("--version", cwd=tmp_path).stdout
    )
    for name in COMMANDS:
        text = run(f"{name} -h").stdout
        assert "Examples:" in text
        assert "--help" in text


def test_completion_of_commands_and_options(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        assert "_KRONFIELD_COMPLETE" in run(f"completion {shell}").stdout
    words = environment(
        _KRONFIELD_COMPLETE="bash_complete", COMP_WORDS="kronfield render --sl", COMP_CWORD="2"
    )
    assert installed(cwd=tmp_path, env=words).stdout.split() == ["plain,--slice", "plain,--slow"]


# Errors
# ------------------------------------------------------------------------------------------


def test_files_that_are_missing_or_not_what_they_should_be(here):
    refused("fit phto.png", "phto.png", "Did you mean photo.png?")
    refused("fit notes.txt", "notes.txt", ".png")
    refused("fit .", "ends in one of")
    Path("damaged.png").write_bytes(Path("photo.png").read_bytes()[:500])
    refused("fit damaged.png", "damaged.png", "Check that it is whole")
    Path("text.jpg").write_text("no picture")
    refused("resize text.jpg --scale 2", "text.jpg, which cannot be read")
    Path("empty.csv").touch()
    refused("fit empty.csv", "which is empty")
    Path("cut.mp4").write_bytes(Path("clip.mp4").read_bytes()[:3000])
    refused("fit cut.mp4", "cut.mp4")
    refused("render photo.png -o a.png", "photo.png", "a saved field")
    refused("render photo -o a.png", "Did you mean photo.field?")
    refused("render phto.field -o a.png", "did you mean photo.field?")
    refused("fit photo.png --values red", "'--values'. Did you mean '--columns'?")
    refused("resize photo.png --scale 0", "--scale: got 0")
    refused("resize photo.png --size 9 --values red", "No such option '--values'.")
    refused("info nothing.field", "no such file")


def test_a_picture_that_would_fill_the_memory(here):
    data = Path("photo.png").read_bytes()
    size = (100_000).to_bytes(4, "big")
    header = data[12:16] + size + size + data[24:29]
    Path("bomb.png").write_bytes(
        data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:]
    )
    refused("denoise bomb.png", "bomb.png", "pixels")


def test_a_video_without_frames(here):
    import av

    with av.open("silent.mp4", "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
        )
        frame.rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    refused("fit silent.mp4", "silent.mp4 without pictures")
    refused("fit clip.mp4 --frames 500:600 -o a.field", "no frame from 500 on")


def test_tables_without_the_columns(here):
    refused(
        "fit stations.csv --columns temprature -o a.field",
        "no column 'temprature'",
        "Did you mean temperature?",
    )
    Path("words.csv").write_text("x,y,name\n1,2,a\n3,4,b\n")
    refused("fit words.csv --columns name -o a.field", "name", "'a'")
    refused("fit photo.png --columns red -o a.field", "columns", "no table")
    refused("render stations.field --at words.csv -o v.csv", "no column 'lon'")
    refused("render stations.field --at photo.png -o v.csv", "a table")
    refused("render stations.field --at places.csv -o v.png", "v.csv")


@pytest.mark.parametrize(
    "line",
    [
        "fit photo.png -o taken.field",
        "render photo.field -o taken.png",
        "inpaint scratched.png --missing 0 -o taken.png",
        "resize photo.png --scale 2 -o taken.png",
        "denoise noisy.png -o taken.png",
        "compare photo.png -e gaussian --picture taken.png",
        "train photo.png --epochs 1 -o taken.field",
        "fit photo.png -o new.field --report taken",
        "analyze -e sine:frequency=1 -n 8 --plot taken.png",
    ],
)
def test_what_exists_is_not_overwritten_unasked(line, here):
    for name in ("taken.field", "taken.png"):
        Path(name).write_bytes(b"mine")
    Path("taken").mkdir()
    Path("taken/notes").write_bytes(b"mine")
    refused(line, "taken", "--force")
    run(f"{line} --force")
    target = line.split()[-1]
    assert target == "taken" or Path(target).read_bytes() != b"mine"
    assert Path("taken/notes").read_bytes() == b"mine"


def test_places_that_cannot_be_written(here, monkeypatch):
    refused("fit photo.png -o nowhere/a.field", "Create nowhere first")
    refused("render photo.field -o nowhere/a.png", "Create nowhere first")
    refused("render photo.field -o .", "ends in one of")
    refused("fit photo.png -o a.png", "Name it a.field")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    refused("resize photo.png --scale 2", "permissions")


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("fit photo.png -o a.field", 20_000),
        ("render photo.field -o a.png --scale 4", 2000),
        ("render clip.field -o a.mp4", 2000),
    ],
)
def test_a_full_disk_leaves_nothing_behind(line, limit, here):
    before = set(here.iterdir())
    # Python leaves files of bytecode that are cut off: none is to be written.
    env = environment(PYTHONDONTWRITEBYTECODE="1")
    done = installed(*line.split(), cwd=here, preexec_fn=limited(limit), env=env)
    assert done.returncode == 2
    assert re.fullmatch(r"Error: a\.\w+: File too large\. .+\n", done.stderr)
    assert set(here.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fit photo.png --size many -o a.field", "'many'"),
        ("fit photo.png --roughness 1 -o a.field", "0,1e-3"),
        ("fit photo.png --roughness gcv --ridge 1 -o a.field", "roughness"),
        ("fit photo.png --domain 0:1 -o a.field", "domain"),
        ("fit gaps.tif --domain 0:1 -o a.field", "domain"),
        ("fit photo.png -e wavelet -o a.field", "expected one of impulse"),
        ("fit photo.png -e gaussian:width=wide -o a.field", "width"),
        ("fit photo.png -e gaussian -e gaussian -e gaussian -o a.field", "one per axis (2)"),
        ("fit photo.png -e impulse --width 0.1 -o a.field", "--width"),
        ("fit photo.png --error -o a.field", "--at"),
        ("fit photo.png --at places.csv -o a.csv", "render --at"),
        ("fit stations.csv --roughness gcv -o a.field", "roughness"),
        ("render photo.field", "Missing option"),
        ("render photo.field -o a.png --size 0x4", "0x4"),
        ("render photo.field -o a.png --size 1,2,3", "One per axis: row, column"),
        ("render photo.field -o a.png --size 10 --scale 2", "only one of the two"),
        ("render photo.field -o a.png --scale -1", "scale"),
        ("render photo.field -o a.png --crop row=10", "row=64:144"),
        ("render photo.field -o a.png --crop depth=1:2", "one of row, column"),
        ("render photo.field -o a.png --crop row=10:5", "a start before the end"),
        ("render photo.field -o a.png --crop row=40:60", "positions from 0 to 48 px"),
        ("render photo.field -o a.png --slice row=99", "positions from -0.5 to 47.5 px"),
        ("render photo.field -o a.png --slice row=1", "2 axes"),
        ("render photo.field -o a.png --derivative 1", "one per axis"),
        ("render photo.field -o a.png --derivative 0,9", "derivative"),
        ("render photo.field -o a.png --slow 2", "without time"),
        ("render photo.field -o a.png --range 1:1", "two numbers that differ"),
        ("render photo.field -o a.png --channel pink", "one of red, green, blue"),
        ("render clip.field -o a.png", "a picture of two axes"),
        ("render clip.field -o a.mp4 --fps 0", "'0'"),
        ("inpaint photo.png", "--mask MASK or --missing"),
        ("inpaint photo.png --missing 1,2", "One per channel"),
        ("inpaint photo.png --missing transparent", "alpha"),
        ("inpaint photo.png --missing 251,252,253", "no sample is missing"),
        ("inpaint photo.png --mask noise.npy", "expected 0 to 1"),
        ("inpaint clip.mp4 --mask mask.png", "12 x 64 x 80"),
        ("inpaint stations.csv --missing 0", "kronfield fit"),
        ("resize photo.png", "--scale or --size"),
        ("denoise photo.png --strength 0", "--strength"),
        ("denoise photo.png --noise 0", "For example"),
        ("denoise photo.png --noise -20dB", "levels of 255"),
        ("denoise photo.png --roughness 1,0 --thorough", "Leave out --thorough"),
        ("denoise gaps.tif --roughness 1,0", "kronfield inpaint"),
        ("denoise gaps.tif --strength 2", "kronfield inpaint"),
        ("denoise stations.csv", "kronfield fit"),
        ("denoise photo.png --frames 0:2", "Leave it out"),
        ("denoise clip.mp4 --frames 50:60", "Choose other frames"),
        ("compare gaps.tif", "kronfield inpaint"),
        ("compare photo.png -e wavelet", "expected one of impulse"),
        ("train gaps.tif", "kronfield inpaint"),
        ("train photo.png --held-out 2", "held_out"),
        ("train photo.png --epochs 0", "epochs"),
        ("fitt photo.png", "No such command"),
        ("fit photo.png --nonsense -o a.field", "No such option"),
        ("completion tcsh", "bash"),
    ],
)
def test_mistakes_are_told_in_one_line(line, words, here):
    np.save("noise.npy", np.full((48, 64), 7.0))
    refused(line, words)


def raised_by_info(error, monkeypatch):
    """Have `kronfield info` raise this error."""

    def raising(*args):
        raise error

    monkeypatch.setattr("kronfield.cli.info.load_field", raising)


@pytest.mark.parametrize(
    "kind", [kf.InputError, kf.InputTypeError, kf.ConvergenceError, DivergenceError]
)
def test_errors_of_kronfield_are_one_line(kind, here, monkeypatch):
    raised_by_info(kind("values: got too many.\nUse fewer."), monkeypatch)
    refused("info photo.field", "Error: values: got too many. Use fewer.")


def test_other_errors_are_not_hidden(here, monkeypatch):
    """Neither the base class nor the name of an error makes it one of kronfield's."""
    impostor = type("InputError", (ValueError,), {"__module__": "kronfield.elsewhere"})
    for kind in (ValueError, RuntimeError, impostor):
        raised_by_info(kind("a mistake in the code"), monkeypatch)
        with pytest.raises(kind, match="a mistake in the code"):
            run("info photo.field")


def test_a_fit_that_needs_too_much_memory(here, monkeypatch):
    monkeypatch.setattr("kronfield.signals.fit.memory_size", lambda: 500_000)
    monkeypatch.setattr(
        "kronfield.cli.sources.read_signal", lambda *a, **k: pytest.fail("it was read")
    )
    refused("fit clip.mp4 -o a.field", "12 x 64 x 80 x 3", "--frames")
    monkeypatch.undo()


# Interrupts and pipes
# ------------------------------------------------------------------------------------------


def test_an_interrupt_leaves_nothing_behind(here, monkeypatch):
    blocks = View.blocks

    def interrupted(self, *args):
        yield next(iter(blocks(self, *args)))
        raise KeyboardInterrupt

    monkeypatch.setattr("kronfield.signals.view.BLOCK_NUMBERS", 1000)
    monkeypatch.setattr(View, "blocks", interrupted)
    before = set(here.iterdir())
    done = run("render photo.field -o a.png --scale 2", code=130)
    assert done.stderr == "Interrupted: no file is left half written.\n"
    assert set(here.iterdir()) == before


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    with subprocess.Popen(
        [COMMAND, "analyze", "-n", "16", "-k", "16", "--json"], stdout=-1, stderr=-1, cwd=tmp_path
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 1)


def test_ctrl_c_saves_the_best_network(here):
    line = "train photo.png --epochs 100000 --checkpoint run.checkpoint -o a.field"
    # processes that tests in the background start would ignore Ctrl-C
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [COMMAND, *line.split()], stdout=-1, stderr=-1, text=True, cwd=here, preexec_fn=heed
    )
    try:
        for _ in range(1200):
            if Path("run.checkpoint").exists():
                break
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert "stopped by interrupt" in output
    assert kf.load("a.field").on_grid().shape == (48, 64, 3)
    refused(line, "--force")  # the field and the checkpoint are there


# analyze
# ------------------------------------------------------------------------------------------


def test_analyze_prints_a_table(tmp_path):
    done = installed("analyze", "--samples", "64", "--size", "64", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("Impulse", "Gaussian", "RandomFourier", "Square"):
        assert re.search(rf"^\s*{name}\b", done.stdout, flags=re.MULTILINE)
    row = next(line for line in done.stdout.splitlines() if "Sine" in line)
    assert "2.0 (  2.0)" in row


def test_analyze_prints_json_and_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specs = (
        "-e gaussian:width=0.05 -e RFF:scale=3,seed=1 "
        "-e rff:scale=3,seed=2 -e linf:exponent=3,size=32"
    )
    done = run(f"analyze {specs} -n 64 -k 48 --json --plot out/a.png")
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
        # not blank
        assert len(set(picture.convert("RGB").resize((180, 72)).get_flattened_data())) > 50
    # no temporary file left behind
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.png"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-e wavelet", "expected one of impulse"),
        ("-e gaussian", "size and width"),
        ("-e gaussian:width", "KEY=VALUE"),
        ("-e gaussian:width=-1", "width: got -1.0"),
        ("-e gaussian:width=wide", "width: got 'wide'"),
        ("-e gaussian:sigma=1", "settings of Gaussian"),
        ("-e linf:exponent=5,size=3", "even number"),
        ("-n 0", "1<=x<=8192"),
        ("-k 99999999999999999999", "1<=x<=8192"),
        ("-k 3", "even number"),
        ("-e gaussian:width=" + "9" * 4000, "width: got"),
        ("-n many", "not a valid integer"),
        ("-e sine:frequency=1 -n 8 --plot a.xyz", "ends in one of"),
        ("-e sine:frequency=1 -n 8 --plot exists.png/a.png", "exists.png"),
    ],
)
def test_bad_embedders_are_told_in_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("exists.png").write_bytes(b"mine")
    refused(f"analyze {arguments}", words)


# info and demo
# ------------------------------------------------------------------------------------------


def test_info_says_how_a_field_was_made(here):
    run("fit photo.png -e gaussian:width=0.03 --ridge 0.001 -o a.field")
    text = run("info a.field").stdout
    assert re.search(r"what +image from photo\.png", text)
    assert "ridge 0.001" in text
    assert "specs=" in text
    found = as_json("info a.field")
    assert found["axes"][0]["embedder"] == "Gaussian(size=48, width=0.03, padding=0)"
    assert found["axes"][0]["stable_rank"] == pytest.approx(
        kf.Gaussian(48, 0.03).stable_rank(48), rel=0.1
    )
    assert found["bytes"] == Path("a.field").stat().st_size
    assert found["raw_bytes"] == 48 * 64 * 3
    assert found["made"]["version"] == kf.__version__
    assert found["made"]["report"]["ridge"] == 0.001


def test_info_of_other_fields(here):
    kf.fit(np.arange(20.0)).save("plain.field")
    kf.fit(np.arange(20.0)).save("half.field", dtype="float16")
    assert "20, float64, stored as float16" in run("info half.field").stdout
    assert json.loads(run("info half.field --json").stdout)["stored_dtype"] == "float16"
    assert "stored" not in run("info plain.field").stdout
    assert "axis 0   -0.5 to 19.5, 20 samples" in run("info plain.field").stdout
    run("train photo.png --combine simple --depth 1 --layer-width 8 --epochs 2 -o deep.field")
    assert "1 hidden layers of 8" in run("info deep.field").stdout
    assert not run("info deep.field --quiet").output


def test_demo_runs_the_daily_jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    part = sample_photograph()[:288, :288]  # for speed
    monkeypatch.setattr("kronfield.files.sample_photograph", lambda: part)
    done = run("demo --output pictures --scale 2")  # the example of its help
    commands = re.findall(r"^\$ kronfield (\w+)", done.stdout, flags=re.MULTILINE)
    expected = ["fit", *["render"] * 3, "inpaint", *["denoise"] * 2, "info"]
    assert commands == expected
    small, large = pixels("pictures/photograph.png"), pixels("pictures/photograph-2x.png")
    assert large.shape == (576, 576, 3)
    shrunk = large.reshape(288, 2, 288, 2, 3).mean(axis=(1, 3))
    assert np.sqrt(np.mean((shrunk - small) ** 2)) < 6  # grey levels: the same picture, not shifted
    mask = pixels("pictures/mask.png") > 127

    def error(name, where=...):
        return np.sqrt(np.mean((pixels(f"pictures/{name}.png").astype(float) - small)[where] ** 2))

    assert error("inpainted", mask) < 0.2 * error("scratched", mask)
    assert error("inpainted", ~mask) == 0
    assert error("denoised") < 0.4 * error("noisy")
    assert error("denoised-thorough") < error("denoised")
    told = re.search(r"PSNR (\S+) dB -> (\S+) dB, thorough (\S+) dB", done.stdout)
    levels = [255 / 10 ** (float(one) / 20) for one in told.groups()]
    names = ("noisy", "denoised", "denoised-thorough")
    assert levels == pytest.approx([error(name) for name in names], rel=0.01)
    assert Path("pictures/report/index.html").exists()
    Path("file").write_bytes(b"")
    refused("demo --output file", "file")
