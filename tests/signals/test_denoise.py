"""Noise removed tile by tile: the same as in one piece, in bounded memory."""

import subprocess
import sys

import numpy as np
import pytest

import kronfield as kf
import kronfield.signals.denoise as module
from clifiles import photograph
from effort import LONG
from kronfield.files import Description, read, video_frames, write
from kronfield.fitting import settings
from kronfield.fitting.tiles import spans
from kronfield.signals.denoise import ArraySamples, Denoising, VideoSamples, samples_of
from kronfield.signals.fill import expected_error, moved_mask

RGB = Description(levels=255, channels=["red", "green", "blue"])


def stored(values, levels=255):
    dtype = np.uint8 if levels == 255 else np.uint16
    return np.clip(np.rint(levels * values), 0, levels).astype(dtype)


def noisy_photograph(height=150, width=170, sigma=0.06, seed=0):
    """Return a photograph of reduced contrast, so that noise is not clipped, and the noisy one."""
    clean = 0.25 + 0.5 * photograph(height, width)
    return clean, clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)


def all_of(job, **options):
    return np.concatenate(list(job.blocks(**options)))


@pytest.fixture
def small_tiles(monkeypatch):
    """Many tiles, whose sizes are no multiples of blocks."""
    monkeypatch.setattr(module, "TILES", (700, 50, 21, 9))
    monkeypatch.setattr(module, "SMALL_TILES", (700, 50, 21, 9))
    monkeypatch.setattr(module, "BAND", 1 << 13)


def in_tiles(job):
    """Make a job forget that it knows the result of the whole already."""
    job._is_whole = False
    return job


# Tiles
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "length", "reach", "multiple"), [(100, 30, 7, 4), (10, 30, 7, 16)])
def test_spans_cover_an_axis_with_what_they_need(n, length, reach, multiple):
    found = spans(n, length, reach, multiple)
    assert [i for one in found for i in range(one.rows.start, one.rows.stop)] == list(range(n))
    for one in found:
        assert one.needed.start % multiple == 0
        assert one.needed.start <= max(0, one.rows.start - reach)
        assert one.needed.stop == min(n, one.rows.stop + reach)
    assert len(found) == max(1, round(n / length))


def test_tiles_of_a_picture_are_the_whole(small_tiles):
    _, noisy = noisy_photograph()
    pixels = stored(noisy)
    job = in_tiles(Denoising(ArraySamples(pixels, True, RGB)))
    seen = []
    found = all_of(job, progress=lambda done, total: seen.append((done, total)))
    assert job.noise.method == "shrinkage"
    assert seen == [(i + 1, 9) for i in range(9)]
    field = kf.denoise(pixels)
    whole = np.clip(np.rint(field.on_grid()), 0, 255)
    assert field.report.noise == job.noise
    difference = np.abs(found.astype(int) - whole)
    assert difference.max() <= 1  # where rounding decides
    assert difference.mean() < 1e-3


CASES = {
    "grey, 16 bit": (lambda: stored(noisy_photograph()[1][..., 0], 65535), False, 65535),
    "line of two channels": (
        lambda: (
            np.repeat(np.random.default_rng(0).random((40, 2)), 90, axis=0)
            + 0.1 * np.random.default_rng(1).standard_normal((3600, 2))
        ),
        True,
        None,
    ),
    "volume": (
        lambda: (
            np.kron(np.random.default_rng(0).random((4, 5, 6)), np.ones((12, 12, 12)))
            + 0.1 * np.random.default_rng(1).standard_normal((48, 60, 72))
        ),
        False,
        None,
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_tiles_of_other_grids_are_the_whole(case, small_tiles):
    make, channels, levels = CASES[case]
    values = make()
    job = in_tiles(Denoising(ArraySamples(values, channels, Description(levels=levels))))
    assert job.noise.method == "shrinkage"
    found = all_of(job).astype(float)
    assert found.shape == values.shape
    whole = kf.denoise(values, channels=channels).on_grid()
    # a weight near to the threshold may fall on either side of it
    assert np.sqrt(np.mean((found - whole) ** 2)) < 0.01 * job.noise.sigma[0]


def test_tiles_of_alike_patches_show_no_seams(small_tiles):
    clean, noisy = noisy_photograph(90, 110)
    job = in_tiles(Denoising(ArraySamples(noisy, True, Description()), thorough=True))
    assert job.noise.method == "groups of alike patches"
    found = all_of(job)
    whole = kf.denoise(noisy, thorough=True).on_grid()
    errors = [np.sqrt(np.mean((one - clean) ** 2)) for one in (found, whole)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)


def test_tiles_of_a_penalised_fit(small_tiles, monkeypatch):
    y, x = np.mgrid[:140, :150] / 40
    clean = np.sin(y) * np.cos(1.3 * x)
    noisy = clean + 0.1 * np.random.default_rng(0).standard_normal(clean.shape)
    samples = ArraySamples(noisy, False, Description())
    job = Denoising(samples)
    assert job.noise.method == "a penalised fit"
    assert job.roughness == kf.denoise(noisy).report.roughness
    whole = all_of(job)
    np.testing.assert_allclose(whole, kf.denoise(noisy).on_grid(), atol=2e-3)
    monkeypatch.setattr(module, "SMOOTHED_AT_ONCE", 0)
    found = all_of(job)
    error = np.std(whole - clean)
    assert error < 0.02
    assert np.std(found - whole) < 0.05 * error
    few = settings.changed(settings.DEFAULT, "signals", "denoised_around", 1)
    monkeypatch.setattr(settings, "DEFAULT", few)  # too little for tiles
    np.testing.assert_array_equal(all_of(job), whole)


def test_frames_are_read_in_order_and_the_same_as_in_memory(here, small_tiles):
    """Frames of a file of which only a part is held."""
    frames = video_frames("clip.mp4", most=4000)
    assert frames.shape == (12, 64, 80, 3)
    assert frames.part.size < 0.1 * np.prod(frames.shape)
    samples = samples_of(frames)
    assert isinstance(samples, VideoSamples)
    every = np.stack(list(frames))
    np.testing.assert_allclose(every / 255, read("clip.mp4").values, atol=1e-6)
    assert frames.description.fps == read("clip.mp4").description.fps
    np.testing.assert_array_equal(samples.rows(2, 5), every[2:5])
    np.testing.assert_array_equal(samples.rows(4, 9), every[4:9])
    np.testing.assert_array_equal(samples.rows(10, 12), every[10:])
    noise = 8.0
    streamed = Denoising(samples_of(frames), noise=noise)
    whole = Denoising(ArraySamples(every, True, frames.description), noise=noise)
    in_tiles(whole).choice, whole._level = streamed.choice, getattr(streamed, "_level", None)
    difference = np.abs(all_of(streamed).astype(int) - all_of(whole))
    assert difference.max() <= 1
    part = video_frames("clip.mp4", frames=(3, 7), most=10**9)
    assert isinstance(samples_of(part), ArraySamples)
    np.testing.assert_array_equal(part.part, every[3:7])


# What is removed
# ------------------------------------------------------------------------------------------


def test_alpha_stays_and_invisible_colours_do_not_matter(small_tiles):
    clean, noisy = noisy_photograph()
    alpha = np.clip((80 - np.hypot(*(np.mgrid[:150, :170] - 80))) / 20, 0, 1)
    known = Description(levels=255, channels=["red", "green", "blue", "alpha"])
    pixels = stored(np.dstack([noisy, alpha]))
    job = in_tiles(Denoising(ArraySamples(pixels, True, known)))
    found = all_of(job)
    np.testing.assert_array_equal(found[..., 3], pixels[..., 3])
    seen, hidden = alpha > 0.5, pixels[..., 3] == 0
    np.testing.assert_array_equal(found[hidden], pixels[hidden])
    before, after = (
        np.sqrt(np.mean((one[..., :3][seen] / 255 - clean[seen]) ** 2)) for one in (pixels, found)
    )
    assert after < 0.5 * before
    other = pixels.copy()
    other[hidden, :3] = 255 - other[hidden, :3]
    again = all_of(in_tiles(Denoising(ArraySamples(other, True, known))))
    np.testing.assert_array_equal(again[~hidden], found[~hidden])
    pixels[..., 3] = 255  # opaque: as if there were no alpha
    opaque = all_of(in_tiles(Denoising(ArraySamples(pixels, True, known))))
    plain = all_of(in_tiles(Denoising(ArraySamples(pixels[..., :3], True, RGB))))
    np.testing.assert_array_equal(opaque[..., :3], plain)


@pytest.mark.parametrize("given", [None, 15.3])
def test_strength_is_a_factor_on_the_noise(given):
    _, noisy = noisy_photograph(100, 120)
    pixels = stored(noisy)
    samples = ArraySamples(pixels, True, RGB)
    jobs = [Denoising(samples, noise=given, strength=one) for one in (0.5, 1.0, 2.0)]
    removed = [np.std(all_of(job).astype(float) - pixels) for job in jobs]
    assert removed[0] < 0.9 * removed[1]
    assert removed[1] < 0.98 * removed[2]
    for job in jobs:  # the estimate does not change
        assert job.noise.sigma == pytest.approx(jobs[1].noise.sigma)
    assert np.isfinite(jobs[1].noise.expected_error)
    assert np.isnan(jobs[2].noise.expected_error)
    if given is not None:
        told = all_of(Denoising(samples, noise=2 * given))
        np.testing.assert_array_equal(all_of(jobs[2]), told)


def test_strength_of_a_penalised_fit():
    x = np.linspace(0, 6, 900)
    noisy = np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(900)
    samples = ArraySamples(noisy, False, Description())
    weak, strong = (Denoising(samples, strength=one) for one in (1.0, 3.0))
    assert weak.noise.method == strong.noise.method == "a penalised fit"
    assert sum(strong.roughness) > 3 * sum(weak.roughness)
    assert strong.noise.sigma == pytest.approx(weak.noise.sigma)
    assert np.std(np.diff(all_of(strong), 2)) < np.std(np.diff(all_of(weak), 2))


def test_without_noise_nothing_changes(monkeypatch):
    monkeypatch.setattr(module, "BAND", 1 << 12)
    y, x = np.mgrid[:100, :90]
    smooth = stored(0.5 + 0.3 * np.sin(y / 9) * np.cos(x / 7))
    job = Denoising(ArraySamples(smooth, False, Description(levels=255)))
    assert job.noise is None
    blocks = list(job.blocks())
    assert len(blocks) > 1
    np.testing.assert_array_equal(np.concatenate(blocks), smooth)


# Memory
# ------------------------------------------------------------------------------------------

# VmHWM is the peak of this program alone; ru_maxrss includes the process that started it.
PEAK = """
import sys
from kronfield.cli import main
try:
    main(sys.argv[1:], prog_name="kronfield")
finally:
    with open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM"))
    print("peak", int(peak.split()[1]) * 1024)
"""


def peak_of(folder, side):
    """Return the peak memory of denoising a colour picture of side x side pixels, in bytes."""
    rng = np.random.default_rng(0)
    with kf_writer(folder / "large.png", side) as file:
        tile = 0.25 + 0.5 * photograph(250, 250)
        for start in range(0, side, 250):
            rows = np.tile(tile, (1, -(-side // 250), 1))[: min(250, side - start), :side]
            file.write(rows + 0.05 * rng.standard_normal(rows.shape, dtype=np.float32))
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "denoise", "large.png", "-o", "clean.png"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Removed by shrinkage" in done.stdout
    return int(done.stdout.split("peak")[1])


def kf_writer(path, side):
    from kronfield.files import writer

    return writer(path, (side, side), 3, {"levels": 255})


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_memory_of_a_picture_grows_with_its_pixels_alone(tmp_path):
    """Beside the program and some tiles: 10 bytes per pixel of 3 numbers, which floats exceed."""
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    small, large = peak_of(tmp_path / "small", 800), peak_of(tmp_path / "large", 1600)
    assert large - small < 10 * (1600**2 - 800**2) + 3e7
    assert large < 6e8


@pytest.mark.skipif(
    not LONG or sys.platform != "linux",
    reason="takes minutes: set KRONFIELD_LONG_TESTS",
)
def test_a_picture_of_100_million_pixels_takes_less_than_2_gb(tmp_path):
    assert peak_of(tmp_path, 10_000) < 2e9
    with_tiles = read(tmp_path / "clean.png", raw=True).values
    assert with_tiles.dtype == np.uint8
    assert with_tiles.shape == (10_000, 10_000, 3)


def test_reading_raw_keeps_integers(tmp_path):
    rng = np.random.default_rng(0)
    for name, levels in (("a.png", 255), ("b.png", 65535), ("c.tif", 65535)):
        values = rng.integers(0, levels, (20, 30, 3))
        write(tmp_path / name, values / levels, {"levels": levels})
        found = read(tmp_path / name, raw=True)
        assert found.values.dtype == (np.uint8 if levels == 255 else np.uint16)
        np.testing.assert_array_equal(found.values, values)
        plain = read(tmp_path / name)
        np.testing.assert_allclose(plain.values, values / levels, atol=1e-6)
        assert found.description == plain.description
    np.save(tmp_path / "d.npy", rng.integers(0, 9, (5, 6), dtype=np.int32))
    assert read(tmp_path / "d.npy", raw=True).values.dtype == np.float64


# Holes
# ------------------------------------------------------------------------------------------


def test_the_moved_mask_has_holes_of_the_same_shape():
    holes = np.zeros((40, 50), bool)
    holes[5:9, 10:13] = True
    held = moved_mask(holes)
    assert held.sum() == holes.sum()
    assert not (held & holes).any()
    rows, columns = np.nonzero(held)
    assert (np.ptp(rows), np.ptp(columns)) == (3, 2)


def test_the_expected_error_of_holes_is_near_the_true_one(here):
    signal = read("photo.png")
    holes = np.random.default_rng(3).random(signal.values.shape[:2]) < 0.15
    from kronfield.signals.fit import fit_signal

    filled = fit_signal(signal, missing=holes).on_grid()
    true = np.sqrt(np.mean((filled - signal.values)[holes] ** 2))
    assert expected_error(signal, holes) == pytest.approx(true, rel=0.4)
    assert expected_error(signal, np.ones_like(holes)) is None
