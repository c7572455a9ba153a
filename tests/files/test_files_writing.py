"""Properties of every format: atomic files, written in blocks; damage raises an `InputError`."""

import contextlib
import json
import os
import resource
import sys

import numpy as np
import pytest

import kronfield as kf
from kronfield.files import read, sample_photograph, write, writer

PHOTOGRAPH = sample_photograph()[:40, :48]
FRAMES = np.stack([np.roll(PHOTOGRAPH, 2 * i, axis=1) for i in range(4)])
WAVE = np.sin(np.arange(1500) * 0.05).astype(np.float32)[:, None] * [0.5, 0.9]
# One example of every format: values, how many axes are not channels, and info.
EXAMPLES = {
    "a.png": (PHOTOGRAPH, 2, {}),
    "b.png": (PHOTOGRAPH, 2, {"levels": 65535}),
    "a.jpg": (PHOTOGRAPH, 2, {}),
    "a.webp": (PHOTOGRAPH, 2, {}),
    "a.bmp": (PHOTOGRAPH, 2, {}),
    "a.tif": (PHOTOGRAPH, 2, {"levels": 255}),
    "b.tif": (FRAMES, 3, {"axes": ["t", "y", "x"]}),
    "a.npy": (FRAMES, 3, {"axes": ["t", "y", "x"]}),
    "a.npz": (FRAMES, 3, {"axes": ["t", "y", "x"]}),
    "a.nii": (FRAMES[..., 0], 3, {}),
    "a.nii.gz": (FRAMES[..., 0], 3, {}),
    "a.wav": (WAVE, 1, {"rate": 8000}),
    "a.flac": (WAVE, 1, {"rate": 8000}),
    "a.ogg": (WAVE, 1, {"rate": 8000}),
    "a.csv": (WAVE, 1, {}),
    "a.tsv": (WAVE, 1, {}),
    "a.parquet": (WAVE, 1, {}),
    "a.mp4": (FRAMES, 3, {"fps": "24000/1001"}),
    "a.mov": (FRAMES, 3, {"fps": "24000/1001"}),
    "a.mkv": (FRAMES, 3, {"fps": "24000/1001"}),
    "a.webm": (FRAMES, 3, {"fps": "24000/1001"}),
    "a.avi": (FRAMES, 3, {"fps": "24000/1001"}),
}
every_format = pytest.mark.parametrize("name", EXAMPLES)


def opened(path, name, **options):
    values, axes, info = EXAMPLES[name]
    return writer(
        path / name,
        values.shape[:axes],
        values.shape[axes] if values.ndim > axes else None,
        info,
        **options,
    )


@every_format
def test_blocks_of_any_size_make_the_same_file(name, tmp_path):
    values, _, info = EXAMPLES[name]
    write(tmp_path / f"whole-{name}", values, info)
    with opened(tmp_path, name) as file:
        file.write(values[:1])
        file.write(values[1:1])
        file.write(values[1:])
    one, other = read(tmp_path / name), read(tmp_path / f"whole-{name}")
    np.testing.assert_array_equal(one.values, other.values)
    assert {**one.info, "source": ""} == {**other.info, "source": ""}
    assert json.loads(json.dumps(one.info)) == one.info
    assert one.info["kind"] == one.kind
    assert len(one.info["axes"]) == len(one.info["units"])
    assert sorted(os.listdir(tmp_path)) == sorted([name, f"whole-{name}"])


def write_parts(path, name, *parts, failure=None, **options):
    with opened(path, name, **options) as file:
        for part in parts:
            file.write(part)
        if failure:
            raise failure


@every_format
@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_of_a_failure(name, failure, tmp_path):
    with pytest.raises(failure):
        write_parts(tmp_path, name, EXAMPLES[name][0][:2], failure=failure)
    assert os.listdir(tmp_path) == []


@every_format
def test_every_row_must_come(name, tmp_path):
    values = EXAMPLES[name][0]
    (tmp_path / name).write_text("what was there before")
    with pytest.raises(kf.InputError, match=f"2 rows in all; expected {len(values)}"):
        write_parts(tmp_path, name, values[:2], overwrite=True)
    with pytest.raises(kf.InputError, match=f"{len(values) + 1} rows in all"):
        write_parts(tmp_path, name, values, values[:1], overwrite=True)
    assert (tmp_path / name).read_text() == "what was there before"
    assert os.listdir(tmp_path) == [name]
    with pytest.raises(kf.InputError, match="exists"):
        write_parts(tmp_path, name, values)


@contextlib.contextmanager
def small_disk():
    """Limit all files to some bytes, as on a full disk; this includes a file of test results.

    No bytecode is written meanwhile: Python leaves files of it that are cut off.
    """
    before, writes_none = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes_none


@every_format
def test_a_full_disk(name, tmp_path):
    values, _, info = EXAMPLES[name]
    with pytest.raises(OSError, match=r"too large|could not be written"), small_disk():
        write(tmp_path / name, values, info)
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path):
    for path, why in (
        (tmp_path, "ends in one of"),
        ("/proc/a.png", "can be written|folder that exists"),
        (tmp_path / "nowhere" / "a.png", "folder that exists"),
        (tmp_path / "a.gif", "keeps the colours"),
        (tmp_path / "a.xyz", "ends in one of"),
    ):
        with pytest.raises(kf.InputError, match=why):
            write(path, PHOTOGRAPH, {})
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(kf.InputError, match="It is a folder"):
        write(tmp_path / "folder.png", PHOTOGRAPH, {})


def test_blocks_that_do_not_fit(tmp_path):
    for block, why in (
        (np.ones((2, 7, 3)), r"shape \(n, 48, 3\)"),
        (np.ones((48, 3)), r"shape \(n, 48, 3\)"),
        (np.ones((2, 48, 3), np.uint8), "scale them"),
        ([["a"]], "floats"),
    ):
        with pytest.raises(kf.InputError, match=why), opened(tmp_path, "a.png") as file:
            file.write(block)
    for values in (np.ones((3, 3), np.uint8), np.ones((0, 3)), np.array(1.0)):
        with pytest.raises(kf.InputError, match="array of floats"):
            write(tmp_path / "a.png", values, {})
    for shape, channels, info, why in (
        ((), None, {}, "at least one axis"),
        (5, None, {}, "tuple"),
        ((0, 3), None, {}, r"shape\[0\]"),
        ((2.5, 3), None, {}, r"shape\[0\]"),
        ((3, 3), 0, {}, "channels"),
        ((3, 3), None, None, "dictionary"),
    ):
        with (
            pytest.raises(kf.InputError, match=why),
            writer(tmp_path / "a.png", shape, channels, info),
        ):
            pass
    assert os.listdir(tmp_path) == []


def test_numbers_that_pixels_cannot_be(tmp_path):
    values = np.array([[np.nan, -np.inf, np.inf, -3, 7, 0.5]])
    for dtype in (np.float16, np.float32, np.float64, np.longdouble):
        for name, info in (("a.png", {}), ("a.png", {"levels": 65535}), ("a.tif", {"levels": 255})):
            write(tmp_path / name, values.astype(dtype), info, overwrite=True)
            signal = read(tmp_path / name)
            levels = signal.info["levels"]
            assert np.rint(signal.values * levels).tolist() == [
                [0, 0, levels, 0, levels, np.rint(levels / 2)]
            ]


@pytest.mark.parametrize("name", ["a.wav", "a.mp4", "a.csv"])
def test_errors_of_the_caller_are_not_blamed_on_the_file(name, tmp_path):
    """A user who stops a long reading is not told that the file is damaged."""

    def stop(done, total):
        raise RuntimeError("stopped")

    values, _, info = EXAMPLES[name]
    write(tmp_path / name, values, info)
    with pytest.raises(RuntimeError, match="stopped"):
        read(tmp_path / name, progress=stop)


LIBRARIES = {
    "a.tif": "tifffile",
    "a.wav": "soundfile",
    "a.nii": "nibabel",
    "a.parquet": "pyarrow",
    "a.mkv": "av",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_libraries_that_are_not_there(name, tmp_path, monkeypatch):
    values, _, info = EXAMPLES[name]
    write(tmp_path / name, values, info)
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    for call in (
        lambda: read(tmp_path / name),
        lambda: write(tmp_path / f"b-{name}", values, info),
    ):
        with pytest.raises(
            kf.InputError, match=rf"without {LIBRARIES[name]}.*pip install 'kronfield\["
        ):
            call()
    assert os.listdir(tmp_path) == [name]


@every_format
def test_damage(name, tmp_path):
    """Changed or truncated bytes give a signal or an `InputError` of one line, and no warnings."""
    values, _, info = EXAMPLES[name]
    write(tmp_path / name, values, info)
    whole = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    told = []
    for trial in range(24):
        data = bytearray(whole)
        if trial % 3 == 0:
            del data[rng.integers(1, len(data)) :]
        for _ in range(trial % 3 * 3):
            data[rng.integers(min(len(data), 500 if trial % 2 else len(data)))] = rng.integers(256)
        (tmp_path / name).write_bytes(data)
        try:
            assert read(tmp_path / name).values.size
        except kf.InputError as error:
            told.append(str(error))
    assert told
    assert not any("\n" in text for text in told)
