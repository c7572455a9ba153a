"""`kronfield render`: any size, region, rate, slice and derivative, to any format."""

import csv
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import kronfield as kf
from clifiles import COMMAND, PHOTOGRAPHS, as_json, installed, pixels, refused, run
from kronfield.files import read
from kronfield.signals.view import view


@pytest.fixture
def photo(here):
    return kf.load("photo.field")


def levels(values):
    return np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)


def test_the_samples_come_back(here):
    run("render photo.field -o a.png")
    np.testing.assert_array_equal(pixels("a.png"), pixels("photo.png"))
    run("render sound.field -o a.wav")
    np.testing.assert_array_equal(read("a.wav").values, read("sound.wav").values)
    run("render scan.field -o a.nii")
    again, before = read("a.nii"), read("scan.nii.gz")
    np.testing.assert_allclose(again.values, before.values, atol=1e-4)
    assert again.info["affine"] == before.info["affine"]
    run("render clip.field -o a.npy")
    np.testing.assert_allclose(np.load("a.npy"), read("clip.mp4").values, atol=1e-5)


def test_any_size(here, photo):
    run("render photo.field -o a.png --scale 3")
    np.testing.assert_array_equal(pixels("a.png"), levels(photo.on_grid((144, 192))))
    assert as_json("render photo.field -o b.png --size 100x50")["shape"] == [50, 67]  # undistorted
    assert as_json("render photo.field -o s.png --size 100x50 --stretch")["shape"] == [50, 100]
    half = "render photo.field -o h.png --crop column=0:32 --size 100x50"
    assert as_json(half)["shape"] == [50, 33]
    assert as_json("render photo.field -o c.png --size 128")["shape"] == [96, 128]
    assert as_json("render photo.field -o d.png --scale 2,1")["shape"] == [96, 64]
    assert as_json("render scan.field -o e.tif --scale 2")["shape"] == [48, 40, 32]


def test_blocks_are_the_whole(here, monkeypatch):
    run("render photo.field -o a.png --scale 3")
    monkeypatch.setattr("kronfield.signals.view.BLOCK_NUMBERS", 5000)
    run("render photo.field -o b.png --scale 3")
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_smaller_is_the_mean(here, photo):
    run("render photo.field -o a.npy --scale 0.25")
    fine = view(photo, scale=1).blocks(photo)
    whole = np.concatenate(list(fine))
    np.testing.assert_allclose(
        np.load("a.npy"), whole.reshape(12, 4, 16, 4, 3).mean(axis=(1, 3)), atol=1e-6
    )


def test_crops_are_parts_of_the_whole(here):
    run("render photo.field -o whole.png --scale 2")
    run("render photo.field -o part.png --scale 2 --crop row=10:30,column=20:")
    np.testing.assert_array_equal(pixels("part.png"), pixels("whole.png")[20:60, 40:])
    run("render clip.field -o a.npy --crop time=0.1:0.2 --crop row=:10")
    assert np.load("a.npy").shape == (3, 10, 80, 3)
    run("render scan.field -o b.npy --crop x=3:9 --scale 1")  # millimetres: 4 voxels of 1.5
    assert np.load("b.npy").shape == (4, 20, 16)


def test_derivatives(here, photo):
    run("render photo.field -o a.tif --derivative 1,0")
    exact = photo.on_grid(derivative=(1, 0))
    np.testing.assert_allclose(read("a.tif").values, exact, atol=1e-6)
    done = run("render photo.field -o a.png --derivative 1,0")
    largest = np.abs(exact).max()
    assert f"Black is {-largest:.4g}, middle grey 0, white {largest:.4g}" in done.stdout
    np.testing.assert_allclose(pixels("a.png"), 127.5 + 127.5 * exact / largest, atol=0.6)
    run("render photo.field -o b.png --derivative 1,0 --range -1:1")
    np.testing.assert_allclose(pixels("b.png"), 127.5 + 127.5 * np.clip(exact, -1, 1), atol=0.6)


def test_numbers_become_grey(here):
    scan = read("scan.nii.gz").values
    done = run("render scan.field -o a.png --slice z=0")
    low, high = scan.min(), scan.max()
    assert f"white {high:.4g}" in done.stdout
    grey = 255 * (scan[:, :, 0] - low) / (high - low)
    np.testing.assert_allclose(pixels("a.png"), grey.T[::-1], atol=0.6)  # x to the right, y up
    run("render photo.field -o b.png --channel green")
    np.testing.assert_array_equal(pixels("b.png"), pixels("photo.png")[..., 1])


def test_slices(here):
    clip = kf.load("clip.field")
    run("render clip.field -o a.png --slice time=0.123")
    np.testing.assert_array_equal(
        pixels("a.png"), levels(clip.on_grid([np.array([0.123]), *clip.axes[1:]])[0])
    )
    run("render clip.field -o a.npy --slice t=0.1 --slice row=3.5")
    assert np.load("a.npy").shape == (80, 3)


def frames(path):
    signal = read(path)
    return signal.values, Fraction(signal.info["fps"])


def test_other_frame_rates_and_slow_motion(here):
    before, rate = frames("clip.mp4")
    run("render clip.field -o a.mp4")
    again, same = frames("a.mp4")
    assert same == rate == Fraction(30000, 1001)
    assert again.shape == before.shape
    run("render clip.field -o b.mp4 --fps 60000/1001")
    twice, fast = frames("b.mp4")
    assert (len(twice), fast) == (23, 2 * rate)
    # every second frame is an original frame, up to the codec
    assert np.sqrt(np.mean((twice[::2] - again) ** 2)) < 0.02
    assert np.sqrt(np.mean((twice[::2][1:] - again[:-1]) ** 2)) > 0.03  # and not their neighbours
    run("render clip.field -o c.webm --slow 3 --scale 1")
    slow, played = frames("c.webm")
    assert len(slow) == 34
    assert float(played) == pytest.approx(float(rate), rel=1e-3)
    assert np.sqrt(np.mean((slow[::3] - before) ** 2)) < 0.03
    assert as_json("render scan.field -o d.mp4 --range 0:100")["rate"] == 25
    assert as_json("render scan.field -o e.mp4 --range 0:100 --fps 5")["rate"] == 5


def test_sound(here):
    field = kf.load("sound.field")
    run("render sound.field -o a.wav --scale 2")
    signal = read("a.wav")
    assert signal.info["rate"] == 16000
    np.testing.assert_allclose(
        signal.values, field(np.arange(3999)[:, None] / 16000), atol=1 / 32768
    )
    run("render sound.field -o b.flac --crop time=0.1:0.15")
    assert len(read("b.flac").values) == 400
    assert as_json("render sound.field -o c.ogg --slow 2")["shape"] == [3999]
    run("render sound.field -o d.wav --derivative 1")
    assert 0.9 < np.abs(read("d.wav").values).max() <= 1


def test_volumes_stay_where_they_are(here):
    """A point of the scanner's space has the same value at any size and in any part."""
    before = read("scan.nii.gz")
    run("render scan.field -o a.nii.gz --scale 2 --crop x=6:24")
    after = read("a.nii.gz")
    assert after.info["spacing"] == [0.75, 0.75, 1.0]
    affine = np.array(after.info["affine"])
    place = (affine @ [4, 7, 9, 1])[:3]
    field = kf.load("scan.field")
    np.testing.assert_allclose(after.values[4, 7, 9], field(place[None])[0], atol=1e-3)
    assert before.info["affine"][0][0] == 1.5


def test_tables_as_maps_and_grids(here):
    field = kf.load("stations.field")
    (west, east), (south, north) = field.domain
    run("render stations.field -o a.npy --size 40,30")
    grid = np.load("a.npy")
    run("render stations.field -o map.tif --size 40x30")
    # lon to the right, lat up
    np.testing.assert_allclose(read("map.tif").values, grid.T[::-1], rtol=1e-5)
    run("render stations.field -o grid.csv --size 4,3")
    with open("grid.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    first = {name: float(text) for name, text in rows[0].items()}
    assert first["lon"] == pytest.approx(west + (east - west) / 8)
    assert first["lat"] == pytest.approx(south + (north - south) / 6)
    assert first["temperature"] == pytest.approx(field(np.array([[first["lon"], first["lat"]]]))[0])
    run("render stations.field -o slope.csv --size 4,3 --derivative 0,1")
    assert Path("slope.csv").read_text().startswith("lon,lat,temperature by lat\n")
    run("fit stations.csv -o both.field")
    done = run("render both.field -o a.png", code=2)
    assert "--channel: wind [m/s], temperature" in done.stderr
    run("render both.field -o a.png --channel temperature")


def test_networks_render_too(here):
    run("train photo.png --combine simple --depth 1 --layer-width 16 --epochs 3 -o deep.field")
    run("render deep.field -o a.png --scale 2 --crop row=0:10")
    field = kf.load("deep.field")
    rows, columns = (np.arange(n) / 2 - 0.25 for n in (20, 128))
    np.testing.assert_allclose(pixels("a.png"), levels(field.on_grid([rows, columns])), atol=1)


def test_eight_thousand_pixels_a_side_take_little_memory(tmp_path):
    assert installed("fit", PHOTOGRAPHS / "camera.png", cwd=tmp_path).returncode == 0
    line = [
        str(COMMAND),
        "render",
        "camera.field",
        "-o",
        "large.tif",
        "--size",
        "8192x8192",
        "--quiet",
    ]
    # the memory of a process includes that of its parent when it was started: use a small parent
    code = (
        f"import resource, subprocess; subprocess.run({line}, check=True); "
        "print(resource.getrusage(-1).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (tmp_path / "large.tif").stat().st_size > 2**26
    assert 30_000 < int(done.stdout) < 500_000  # kB


def test_a_picture_has_no_frame_rate(here):
    refused(
        "render photo.field -o still.png --fps 30", "--fps: got a picture to write", "Leave it out"
    )


def test_what_no_disk_can_hold_is_refused_at_once(here):
    refused("render photo.field -o huge.png --scale 1e6", "size: got", "at most 10,000,000")


def test_nothing_is_drawn_far_from_data(here):
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.random((60, 2)), rng.random((60, 2)) + 3])
    rows = [["x", "y", "height"], *np.c_[points, 1 + points[:, 0]].tolist()]
    with open("hills.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    run("fit hills.csv -o hills.field")
    run("render hills.field -o map.npy --size 40 --beyond 0.5")
    run("render hills.field -o map.png --size 40 --beyond 0.5 --range -1:5 --plain")
    values, drawn = np.load("map.npy"), pixels("map.png")
    assert 0.2 < np.isnan(values).mean() < 0.9
    np.testing.assert_array_equal(drawn == 0, np.isnan(values.T[::-1]))
    with open("places.csv", "w", newline="") as file:
        csv.writer(file).writerows([["x", "y"], [0.5, 0.5], [2.0, 2.0]])
    for command in ("render hills.field", "fit hills.csv"):
        run(f"{command} --at places.csv --beyond 0.5 -o values.csv --force")
        found = read("values.csv")
        table = Path("values.csv").read_text().splitlines()
        assert table[2].endswith(",")
        assert not table[1].endswith(",")
        assert found is not None
    refused("fit hills.csv --beyond 0.5 --force", "--at")
