"""`denoise`: every kind of file, what is printed, and the report."""

import re
from pathlib import Path

import numpy as np
import pytest

from clifiles import as_json, colours, photograph, pixels, run
from kronfield.files import read, write


def error(name, truth):
    """Return the rms error of a file."""
    return float(np.sqrt(np.mean((read(name).values - truth) ** 2)))


@pytest.fixture
def soft(here):
    """A photograph of little contrast, and ``soft.png``, to which noise was added."""
    clean = 0.25 + 0.5 * photograph(96, 128)
    noise = 0.06 * np.random.default_rng(0).standard_normal(clean.shape)
    write("soft.png", clean + noise, {"levels": 255})
    return clean


def test_noise_is_measured_printed_and_removed(soft):
    found = as_json("denoise soft.png -o a.png")
    assert found["noise"] == pytest.approx(0.06, rel=0.1)
    assert found["method"] == "shrinkage"
    assert found["unit"] == "levels of 255"
    after = error("a.png", soft)
    assert after < 0.55 * error("soft.png", soft)
    assert found["expected_error"] == pytest.approx(255 * after, rel=0.3)
    said = run("denoise soft.png -o b.png").stdout
    assert re.search(r"Noise: 15(\.\d)? of 255 levels \(standard deviation\)\n", said)
    assert re.search(r"Removed by shrinkage; expected error \S+ of 255 levels rms, a PSNR of", said)
    np.testing.assert_array_equal(pixels("a.png"), pixels("b.png"))


def test_noise_that_is_cut_off_is_told(soft):
    """Black and white pixels: the estimate of the error does not know of the shift."""
    for share, is_told in ((0.01, False), (0.2, True)):
        values = read("soft.png").values.copy()
        values[: round(share * len(values))] = 0
        values[: round(share * len(values)), ::3] = 1
        write("cut.png", values, {"levels": 255}, overwrite=True)
        said = run("denoise cut.png --noise 15 --force").stdout
        assert ("black or white: noise is cut off there" in said) == is_told
    assert as_json("denoise cut.png --force")["cut_off"] == pytest.approx(0.2, abs=0.01)
    assert as_json("denoise soft.png")["cut_off"] == 0


def test_options_of_the_removal(soft):
    """Noise is given in the units in which it is printed."""
    known = as_json("denoise soft.png --noise 15.3 -o a.png")
    assert known["noise"] == pytest.approx(15.3 / 255)
    thorough = as_json("denoise soft.png --thorough -o b.png")
    assert thorough["method"] == "groups of alike patches"
    assert error("b.png", soft) < error("a.png", soft)
    strong = as_json("denoise soft.png --noise 15.3 --strength 2 -o c.png")
    assert strong["expected_error"] is None
    as_json("denoise soft.png --noise 30.6 -o d.png")
    np.testing.assert_array_equal(pixels("c.png"), pixels("d.png"))
    assert "2 times as strong" in run("denoise soft.png --strength 2 -o e.png").stdout
    by_hand = as_json("denoise soft.png --roughness 0.5,0 -o f.png")
    assert by_hand["roughness"] == [0.5, 0]
    assert error("f.png", soft) < error("soft.png", soft)


def test_16_bits_grey_and_alpha(here):
    clean = 0.25 + 0.5 * photograph(96, 128)[..., 0]
    noise = 0.04 * np.random.default_rng(0).standard_normal(clean.shape)
    write("deep.png", clean + noise, {"levels": 65535})
    said = run("denoise deep.png --report report").stdout
    assert re.search(r"Noise: 26\d\d of 65535 levels", said)
    assert read("deep-denoised.png", raw=True).values.dtype == np.uint16
    assert error("deep-denoised.png", clean) < 0.6 * error("deep.png", clean)
    alpha = np.tile(np.linspace(0, 1, 128), (96, 1))
    write("clear.png", np.dstack([clean + noise, alpha]), {"levels": 65535})
    run("denoise clear.png")
    before, after = (read(f"clear{end}.png", raw=True).values for end in ("", "-denoised"))
    np.testing.assert_array_equal(after[..., 1], before[..., 1])
    difference = (after[..., 0] / 65535 - clean)[:, 10:]
    assert np.sqrt(np.mean(difference**2)) < 0.6 * 0.04


def test_no_noise_leaves_the_values(here):
    y, x = np.mgrid[:60, :70]
    write("smooth.png", 0.5 + 0.3 * np.sin(y / 9) * np.cos(x / 7), {"levels": 65535})
    done = run("denoise smooth.png --report report")
    assert "No noise found: the values are unchanged" in done.stdout
    assert "--noise 1311" in done.stdout
    assert not done.stderr
    np.testing.assert_array_equal(pixels("smooth-denoised.png"), pixels("smooth.png"))
    assert "none found" in Path("report/index.html").read_text(encoding="utf-8")
    found = as_json("denoise smooth.png -o b.png")
    assert found["noise"] is found["method"] is None
    run("denoise smooth.png --noise 1311 -o c.png")
    assert (pixels("c.png") != pixels("smooth.png")).any()


def test_video_volume_and_array(here):
    rng = np.random.default_rng(0)
    run("denoise clip.mp4 --noise 4 -o a.mp4")
    assert read("a.mp4").values.shape == read("clip.mp4").values.shape
    run("denoise clip.mp4 --noise 4 --frames 2:8 -o b.npy")
    part = read("b.npy").values
    assert part.shape == (6, 64, 80, 3)
    before = read("clip.mp4", frames=(2, 8)).values
    assert 0.2 / 255 < np.std(part - before) < 6 / 255
    scan = np.kron(rng.random((3, 4, 4)), np.ones((8, 8, 8))) * 100
    info = {"spacing": [1.0, 1.0, 2.0], "affine": np.diag([1, 1, 2, 1]).tolist()}
    write("head.nii.gz", (scan + 8 * rng.standard_normal(scan.shape)).astype(np.float32), info)
    said = run("denoise head.nii.gz --report report").stdout
    assert float(re.search(r"Noise: (\S+) ", said)[1]) == pytest.approx(8, rel=0.15)
    assert error("head-denoised.nii.gz", scan) < 3
    assert read("head-denoised.nii.gz").description.spacing == [1.0, 1.0, 2.0]
    np.save("steps.npy", scan[0] + 8 * rng.standard_normal(scan[0].shape))
    run("denoise steps.npy")
    assert error("steps-denoised.npy", scan[0]) < 5


@pytest.mark.parametrize("noise", ["", "--noise 0.05", "--noise -26dB"])
def test_sound(here, noise):
    t = np.arange(2000) / 8000
    clean = 0.5 * np.sin(2 * np.pi * 110 * t)
    said = run(f"denoise hiss.wav {noise}").stdout
    level, part = re.search(r"Noise: (\S+) dB of full scale \((\S+)\)", said).groups()
    assert float(level) == pytest.approx(20 * np.log10(0.05), abs=1.5)
    assert float(part) == pytest.approx(0.05, rel=0.2)
    assert error("hiss-denoised.wav", clean) < 0.5 * error("hiss.wav", clean)


def test_stereo(here):
    t = np.arange(20000) / 8000
    clean = np.stack([0.5 * np.sin(2 * np.pi * 110 * t), 0.3 * np.sin(2 * np.pi * 200 * t)], axis=1)
    noise = 0.04 * np.random.default_rng(0).standard_normal(clean.shape)
    write("stereo.wav", clean + noise, {"rate": 8000})
    run("denoise stereo.wav --strength 1.2 --report report")
    assert read("stereo-denoised.wav").values.shape == (20000, 2)
    assert error("stereo-denoised.wav", clean) < 0.5 * 0.04
    assert read("stereo-denoised.wav").description.rate == 8000
    assert colours("report/after.png") > 5


def test_noise_and_strength_beside_missing_samples(here):
    rng = np.random.default_rng(0)
    truth = np.kron(rng.random((4, 4)), np.ones((24, 24)))
    noisy = truth + 0.05 * rng.standard_normal(truth.shape)
    noisy[rng.random(noisy.shape) < 0.2] = np.nan
    np.save("holes.npy", noisy)
    done = run("denoise holes.npy --noise 0.04 --strength 1.25 -o clean.npy")
    assert "Noise: 0.04" in done.stdout
    assert "1.25 times as strong" in done.stdout
    known = ~np.isnan(noisy)
    assert np.std((np.load("clean.npy") - noisy)[known]) > 0.02  # something was removed
    assert "Give --noise too" in run("denoise holes.npy --strength 1.5 -o c.npy", code=2).stderr


def test_missing_samples_are_filled_in(here):
    before = read("gaps.tif").values
    done = run("denoise gaps.tif --report report")
    holes = np.isnan(before)
    assert f"{holes.sum()} missing samples filled in" in done.stdout
    after = read("gaps-denoised.tif").values
    truth = photograph()[..., 0]
    assert np.sqrt(np.mean((after - truth)[holes] ** 2)) < 0.1
    assert np.sqrt(np.mean((after - truth) ** 2)) < 0.05
    np.save("endless.npy", np.where(before > 0.9, np.inf, before))
    assert "infinite" in run("denoise endless.npy", code=2).stderr
    np.save("nothing.npy", np.full((9, 9), np.nan))
    assert "all samples are missing" in run("denoise nothing.npy", code=2).stderr


def test_the_report_shows_what_was_taken_away(soft):
    done = run("denoise soft.png --strength 1.1 --report report")
    assert "Wrote report/index.html and 4 pictures beside it" in done.stdout
    page = Path("report/index.html").read_text(encoding="utf-8")
    assert re.findall(r'alt="(\w+)"', page) == ["before", "after", "removed", "spectrum"]
    assert not re.search(r"https?:|<script|<link|url\(", page)
    for word in ("--strength 1.1", "<th>noise</th>", "of 255 levels", "shrinkage", "penalised fit"):
        assert word in page
    for name in ("before", "after", "removed"):
        assert colours(f"report/{name}.png") > 150
    # noise is grey on average
    inner = pixels("report/removed.png")[200:400, 200:600, :3]
    assert inner.mean() == pytest.approx(127.5, abs=6)
    assert inner.std() > 20


def test_nothing_is_left_if_writing_fails(here, monkeypatch):
    import kronfield.signals.denoise

    def fails(self, progress=None):
        yield from ()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kronfield.signals.denoise.Denoising, "pairs", fails)
    before = set(here.iterdir())
    assert "No space left" in run("denoise noisy.png", code=2).stderr
    assert set(here.iterdir()) == before
