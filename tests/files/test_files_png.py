"""The PNG encoder, and the decoder for 16 bit."""

import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import skimage
from hypothesis import given
from PIL import Image

import kronfield as kf
from kronfield.files import read, write, writer
from kronfield.files.png_reading import read_png

PHOTOGRAPHS = os.path.join(os.path.dirname(skimage.__file__), "data")


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([None, 1, 2, 3, 4]),
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_eight_bit_as_pillow_reads_it(tmp_path_factory, height, width, channels, seed, cuts):
    path = tmp_path_factory.mktemp("png") / "a.png"
    shape = (height, width) if channels is None else (height, width, channels)
    pixels = np.random.default_rng(seed).integers(0, 256, shape)
    with writer(path, (height, width), channels, {}) as picture:
        for block in np.split(pixels / 255, sorted(min(cut, height) for cut in cuts)):
            picture.write(block)
    with Image.open(path) as again:
        assert again.mode == {None: "L", 1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
        np.testing.assert_array_equal(np.asarray(again).reshape(shape), pixels)


def test_eight_bit_whose_pixels_were_changed_or_cut_is_refused(tmp_path):
    """Pillow reads what is left of the pixels of a smooth picture, which packs into few bytes."""
    path = tmp_path / "a.png"
    pixels = (np.add.outer(np.arange(40) * 2, np.arange(50))[..., None] + np.zeros(3)) / 255
    Image.fromarray((pixels * 255).astype(np.uint8)).save(path)
    whole = path.read_bytes()
    for cut in range(1, len(whole), 3):
        path.write_bytes(whole[:-cut])
        with pytest.raises(kf.InputError, match="path"):
            read(path)
    for place in range(33, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(kf.InputError, match="path"):
            read(path)
    path.write_bytes(whole + b"what follows the end is no part of the picture")
    np.testing.assert_allclose(read(path).values, pixels, atol=1e-6)


@pytest.mark.parametrize("name", ["a.webp", "a.png", "deep.png"])
def test_a_picture_that_does_not_fit_is_refused_before_it_is_decoded(name, tmp_path, monkeypatch):
    path, side = tmp_path / name, 2400
    if name == "deep.png":
        with writer(path, (side, side), 3, {"levels": 65535}) as picture:
            for _ in range(side // 100):
                picture.write(np.zeros((100, side, 3), np.float32))
    else:
        Image.new("RGB", (side, side)).save(path)
    each = {"a.webp": 16 + 3 + 12, "a.png": 4 + 3 + 12, "deep.png": 18 + 12}[name]
    left = "kronfield._core.memory.available_memory"
    monkeypatch.setattr(left, lambda: each * side**2)
    assert read(path).values.shape == (side, side, 3)
    monkeypatch.setattr(left, lambda: each * side**2 - 1)
    monkeypatch.setattr("kronfield.files.images.pillow_pixels", None)
    monkeypatch.setattr("kronfield.files.images.read_png", None)
    with pytest.raises(kf.InputError, match="2400 x 2400 pixels, which needs about"):
        read(path)


def test_lack_of_memory_is_not_told_as_damage(tmp_path, monkeypatch):
    def none_left(_picture):
        raise MemoryError

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr("kronfield.files.images.pillow_pixels", none_left)
    with pytest.raises(kf.InputError, match="more memory than is left") as caught:
        read(tmp_path / "a.png")
    assert "whole" not in str(caught.value)


@given(
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    channels=st.sampled_from([None, 2, 3, 4]),
    seed=st.integers(0, 99),
)
def test_sixteen_bit_there_and_back(tmp_path_factory, height, width, channels, seed):
    path = tmp_path_factory.mktemp("png") / "a.png"
    shape = (height, width) if channels is None else (height, width, channels)
    pixels = np.random.default_rng(seed).integers(0, 65536, shape)
    write(path, pixels / 65535, {"levels": 65535})
    signal = read(path)
    assert signal.info["levels"] == 65535
    np.testing.assert_array_equal(np.rint(signal.values.astype(float) * 65535), pixels)
    if channels is None:  # the one layout of 16 bit that Pillow keeps
        with Image.open(path) as again:
            np.testing.assert_array_equal(np.asarray(again), pixels)


@pytest.mark.parametrize("name", ["astronaut.png", "coffee.png", "moon.png", "logo.png"])
def test_the_decoder_agrees_with_pillow(name, monkeypatch):
    """Photographs hold rows of all filters, here in several bands; 8 bits can be decoded too."""
    monkeypatch.setattr("kronfield.files.png_reading._BAND", 130)
    path = os.path.join(PHOTOGRAPHS, name)
    with Image.open(path) as picture:
        expected = np.asarray(picture)
    found = read_png(Path(path))
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def filtered(pixels, kind):
    """The lines of a PNG with one filter in all rows, by the standard's formulas, byte by byte."""
    height, width, step = pixels.shape
    lines = bytearray()
    for i in range(height):
        lines.append(kind)
        for j in range(width):
            for k in range(step):
                a = int(pixels[i, j - 1, k]) if j else 0
                b = int(pixels[i - 1, j, k]) if i else 0
                c = int(pixels[i - 1, j - 1, k]) if i and j else 0
                p = a + b - c
                nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
                lines.append((int(pixels[i, j, k]) - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
    return bytes(lines)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, lines, *, depth=16, colour=2, interlaced=0):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("kind", range(5))
def test_every_filter(kind, tmp_path):
    # two bytes a channel
    pixels = np.random.default_rng(kind).integers(0, 256, (7, 9, 6)).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(png(9, 7, filtered(pixels, kind)))
    np.testing.assert_array_equal(
        np.rint(read(tmp_path / "a.png").values * 65535), pixels.view(">u2")
    )


@pytest.mark.parametrize(("height", "width"), [(9, 11), (1, 1), (3, 2)])
def test_interlaced(height, width, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 6)).astype(np.uint8)
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in passes]
    lines = b"".join(filtered(part, 4) for part in parts if part.size)
    (tmp_path / "a.png").write_bytes(png(width, height, lines, interlaced=1))
    np.testing.assert_array_equal(
        np.rint(read(tmp_path / "a.png").values * 65535), pixels.view(">u2")
    )


def test_damage_in_16_bit(tmp_path):
    path = tmp_path / "a.png"
    good = filtered(np.zeros((7, 9, 6), np.uint8), 0)
    for bad in (
        png(9, 7, good)[:-20],  # cut off
        png(9, 7, good[:-1]),  # too few pixels
        png(9, 7, b"\x05" + good[1:]),  # a filter that there is not
        png(9, 7, good).replace(b"IDAT", b"IDAX"),  # a wrong checksum
    ):
        path.write_bytes(bad)
        with pytest.raises(kf.InputError, match="cannot be read"):
            read(path)


def test_little_memory(tmp_path):
    """A picture of 96 MB in 16 bit is written with a few MB."""
    height, width = 4000, 4000
    rows = np.linspace(0, 1, 100 * width * 3, dtype=np.float32).reshape(100, width, 3)
    tracemalloc.start()
    with writer(tmp_path / "a.png", (height, width), 3, {"levels": 65535}) as picture:
        for _ in range(height // 100):
            picture.write(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    with Image.open(tmp_path / "a.png") as again:
        assert again.size == (width, height)


def test_channels_that_png_cannot_hold(tmp_path):
    for shape in ((4, 4, 5), (4, 4, 4, 3), (4,)):
        with pytest.raises(kf.InputError, match="PNG picture 2 axes and 1 or 2 or 3 or 4 channels"):
            write(tmp_path / "a.png", np.ones(shape), {})
    assert list(tmp_path.iterdir()) == []
