"""The common tasks: `inpaint`, `resize`, `compare`, `train`."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import kronfield as kf
from clifiles import as_json, colours, photograph, pixels, refused, run
from kronfield.files import read, write
from kronfield.signals.measures import psnr


def error(name, where=..., truth="photo.png"):
    """Return the rms error of a picture in levels."""
    return float(np.sqrt(np.mean((pixels(name).astype(float) - pixels(truth))[where] ** 2)))


@pytest.fixture
def holes(here):
    return pixels("mask.png") > 127


# inpaint
# ------------------------------------------------------------------------------------------


def test_inpainting_fills_holes_and_keeps_the_rest(here, holes):
    done = run("inpaint scratched.png --mask mask.png")
    assert f"{holes.sum()} of 3072 samples filled in" in done.stdout
    np.testing.assert_array_equal(
        pixels("scratched-inpainted.png")[~holes], pixels("scratched.png")[~holes]
    )
    assert error("scratched-inpainted.png", holes) < 0.25 * error("scratched.png", holes)
    run("inpaint scratched.png --missing 0 -o b.png")
    np.testing.assert_array_equal(pixels("b.png"), pixels("scratched-inpainted.png"))
    run("inpaint scratched.png --mask mask.png --smooth --roughness 0.5,0 -o c.png")
    assert (pixels("c.png")[~holes] != pixels("scratched.png")[~holes]).mean() > 0.5


def test_samples_that_are_nan_need_no_mask(here, holes):
    values = pixels("photo.png")[..., 0] / 255.0
    values[holes] = np.nan
    np.save("gaps.npy", values)
    assert f"{holes.sum()} of 3072 samples filled in" in run("inpaint gaps.npy").stdout
    assert np.isfinite(np.load("gaps-inpainted.npy")).all()
    refused("inpaint photo.png", "expected --mask MASK or --missing VALUE")


def test_a_mask_the_wrong_way_round_is_recognised(here, holes):
    write("black.png", (~holes).astype(np.float32), {"levels": 255})
    done = run("inpaint scratched.png --mask black.png -o a.png")
    count = int((~holes).sum())
    warning = f"Warning: {count:,} of 3,072 samples are missing; did you mean --invert?\n"
    assert done.stderr == warning
    assert f"{count} of 3072 samples filled in" in done.stdout  # as asked for
    done = run("inpaint scratched.png --mask mask.png --invert -o b.png")
    assert "did you mean to leave out --invert?" in done.stderr
    np.testing.assert_array_equal(pixels("b.png"), pixels("a.png"))
    assert not run("inpaint scratched.png --mask mask.png --invert -o c.png -q").output
    assert not run("inpaint scratched.png --mask mask.png -o d.png").stderr
    rows = np.arange(48)[:, None] + np.zeros((48, 64))
    write("half.png", np.where(rows < 20, 0.0, 1.0), {"levels": 255})
    write("dark.png", np.where(rows < 18, 0.5, 0.0), {})
    assert "--invert" in run("inpaint dark.png --mask half.png -o e.png").stderr
    # rows from 18 on are missing either way, and with --invert all are
    assert not run("inpaint dark.png --mask half.png --missing 0 -o f.png").stderr


def test_a_report_on_filled_holes(here, holes):
    found = as_json("inpaint scratched.png --mask mask.png --report report")
    true = error("scratched-inpainted.png", holes) / 255
    assert found["expected_error"] == pytest.approx(true, rel=0.6)
    page = Path("report/index.html").read_text(encoding="utf-8")
    assert re.findall(r'alt="(\w+)"', page) == ["before", "after"]
    assert f"{holes.sum():,} of 3,072 samples" in page
    assert f"{255 * found['expected_error']:.3g} of 255 levels rms" in page
    magenta = (pixels("report/before.png")[..., :3] == (255, 0, 255)).all(axis=-1).mean()
    assert magenta == pytest.approx(0.7 * holes.mean(), rel=0.3)  # the picture, less its frame
    assert colours("report/after.png") > 150
    refused("inpaint scratched.png --mask mask.png --report report -o b.png", "--force")


def test_holes_in_16_bits(here, holes):
    deep = 0.3 + 0.2 * photograph()[..., 0]
    write("deep.png", np.where(holes, 0, deep), {"levels": 65535})
    run("inpaint deep.png --missing 0")
    found = read("deep-inpainted.png", raw=True).values
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found[~holes], read("deep.png", raw=True).values[~holes])
    assert np.sqrt(np.mean((found[holes] / 65535 - deep[holes]) ** 2)) < 0.02


def test_masks_of_every_sort(here, holes):
    run("inpaint scratched.png --mask mask.png -o a.png")
    Image.fromarray(np.dstack([np.where(holes, 0, 255).astype(np.uint8)] * 3)).save(
        "black.jpg", quality=100
    )
    run("inpaint scratched.png --mask black.jpg --invert -o b.png")
    np.save("mask.npy", holes)
    run("inpaint scratched.png --mask mask.npy -o c.png")
    write("clear.png", np.dstack([read("scratched.png").values, ~holes]).astype(np.float32), {})
    run("inpaint clear.png --missing transparent -o d.png")
    magenta = np.where(
        holes[..., None], (1.0, 0.0, 1.0), np.minimum(read("scratched.png").values, 0.99)
    )
    write("magenta.png", magenta, {})
    run("inpaint magenta.png --missing 255,0,255 -o e.png")
    for name in ("b.png", "c.png"):
        np.testing.assert_array_equal(pixels(name), pixels("a.png"))
    for name in ("d.png", "e.png"):
        assert np.abs(pixels(name)[..., :3].astype(int) - pixels("a.png")).max() <= 3
    assert (pixels("d.png")[..., 3] == 255).all()


def test_one_mask_serves_all_frames(here):
    clip = read("clip.mp4").values
    logo = np.zeros(clip.shape[1:3], np.float32)
    logo[4:12, 4:12] = 1
    write("logo.png", logo, {})
    write("marked.mp4", np.where(logo[None, ..., None] > 0, 1.0, clip), read("clip.mp4").info)
    run("inpaint marked.mp4 --mask logo.png -o a.npy")
    found = np.load("a.npy")
    assert np.abs(found - clip)[:, 4:12, 4:12].mean() < 0.1
    assert np.abs(clip - 1)[:, 4:12, 4:12].mean() > 0.3


def test_floats_with_gaps(here, holes):
    run("inpaint gaps.tif --missing nan")
    filled = read("gaps-inpainted.tif").values
    assert filled.dtype == np.float32
    assert np.isfinite(filled).all()
    assert psnr(filled, read("photo.png").values[..., 0]) > 28


# resize
# ------------------------------------------------------------------------------------------


def test_resize_there_and_back(here):
    run("resize photo.png --scale 3")
    assert pixels("photo-3x.png").shape == (144, 192, 3)
    run("resize photo-3x.png --size 64x48 -o back.png")
    assert error("back.png") < 6
    run("resize photo.jpg --size 100x40 --stretch")
    assert pixels("photo-100x40.jpg").shape == (40, 100, 3)
    run("resize noisy.png --scale 1 -o same.png")
    # resize keeps noise
    np.testing.assert_array_equal(pixels("same.png"), pixels("noisy.png"))
    run("resize clip.mp4 --scale 0.5 -o small.mp4")
    assert read("small.mp4").values.shape == (12, 32, 40, 3)
    assert as_json("resize scan.nii.gz --scale 2 -o large.nii.gz")["shape"] == [48, 40, 32]


def test_larger_beats_pillow(here):
    """The field is closer to the photograph than the nearest and bilinear filters of Pillow."""
    large = photograph(96, 128)
    small = photograph(48, 64)  # means of 2 x 2 pixels
    write("small.png", small, {})
    run("resize small.png --scale 2 -o large.png")
    picture = Image.fromarray(np.rint(small * 255).astype(np.uint8))
    others = [
        picture.resize((128, 96), way)
        for way in (Image.Resampling.NEAREST, Image.Resampling.BILINEAR)
    ]
    ours = psnr(pixels("large.png") / 255, large)
    assert ours > max(psnr(np.asarray(other) / 255, large) for other in others)


# compare
# ------------------------------------------------------------------------------------------


def test_compare_ranks_them(here):
    found = as_json("compare photo.png")
    results = {one["name"]: one for one in found["results"]}
    assert set(results) >= {
        "kronfield, chosen",
        "impulse",
        "gaussian",
        "rff",
        "logf",
        "nearest",
        "linear",
        "cubic",
    }
    assert results["sine"]["psnr"] < results["nearest"]["psnr"] < results["linear"]["psnr"]
    assert results["nearest"]["parameters"] == 24 * 32 * 3
    assert all(0 <= one["ssim"] <= 1 and one["seconds"] > 0 for one in found["results"])
    assert colours("photo-compare.png") > 1000
    text = run("compare photo.png -e gaussian --no-picture").stdout
    assert re.search(r"gaussian +24 features, width 0\.0267 +\d+\.\d\d +0\.\d{4} +2304 ", text)


@pytest.mark.parametrize(
    "line",
    [
        "sound.wav -e gaussian",
        "stations.csv --columns temperature -e triangle",
        "scan.nii.gz -e tri",
    ],
)
def test_compare_draws_every_kind(line, here):
    run(f"compare {line} --picture a.png")
    assert colours("a.png") > 50


# train
# ------------------------------------------------------------------------------------------


@pytest.fixture
def one_thread():
    """Use one thread for little work: waiting threads take time from other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_trained_layer_approaches_the_closed_form(here):
    found = as_json("train photo.png --epochs 80 -o a.field")
    assert found["psnr"] > 28
    field = kf.load("a.field")
    assert field.domain == ((-0.5, 47.5), (-0.5, 63.5))  # as in fit
    assert psnr(field.on_grid(), read("photo.png").values) == pytest.approx(found["psnr"], abs=0.1)
    assert field.info["made"]["report"]["epochs"] == 80
    assert field.info["kind"] == "image"


@pytest.mark.usefixtures("one_thread")
def test_training_resumes(here):
    line = "train photo.png --epochs 40 --checkpoint run.checkpoint -o a.field"
    whole = as_json(line)
    again = as_json(f"{line} --resume")
    assert again["best_loss"] == whole["best_loss"]
    refused(f"{line} --force --resume --rate 0.3", "checkpoint", "rate")


@pytest.mark.usefixtures("one_thread")
def test_training_on_other_kinds(here):
    found = as_json("train scan.nii.gz --epochs 60 -o a.field")  # values up to 100
    assert found["psnr"] > 20
    assert psnr(kf.load("a.field").on_grid(), read("scan.nii.gz").values) == pytest.approx(
        found["psnr"], abs=0.2
    )
    found = as_json(
        "train stations.csv --columns temperature --depth 1 --layer-width 32 --epochs 150 "
        "--rate 0.02 -o b.field"
    )
    table = read("stations.csv", columns=["temperature"])
    there = np.isfinite(table.values)
    assert np.std(kf.load("b.field")(table.points[there]) - table.values[there]) < 0.5 * np.std(
        table.values[there]
    )
    run("train photo.png --held-out 0.2 --patience 5 --batch 512 --epochs 12 -o c.field")
    assert Path("c.field").exists()


def test_without_torch_training_says_what_to_install(here, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "kronfield.nn", None)
    for name in [name for name in sys.modules if name.startswith("kronfield.nn.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("builtins.__import__", _without_torch(__import__))
    refused("train photo.png -o a.field", "pip install 'kronfield[torch]'")


def _without_torch(usual):
    def imported(name, *args, **kwargs):
        if name.startswith("kronfield.nn"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return usual(name, *args, **kwargs)

    return imported
