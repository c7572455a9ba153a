"""Pictures in and out, kinds of files, and files that are not what they should be."""

import os

import numpy as np
import pytest
import skimage
from PIL import Image

import kronfield as kf
from kronfield._core.atomic import replacing
from kronfield.files import kind_of, read, sample_photograph, to_bytes, write, write_image

PHOTOGRAPHS = os.path.join(os.path.dirname(skimage.__file__), "data")


def test_values_are_clipped_and_rounded():
    assert to_bytes(np.array([-1.0, 0.0, 0.4999 / 255, 0.5001 / 255, 1.0, 9.0])).tolist() == [
        0,
        0,
        0,
        1,
        255,
        255,
    ]


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_round_trip(shape, tmp_path):
    values = np.random.default_rng(0).integers(0, 256, shape) / 255
    write_image(tmp_path / "a.png", values)
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture).reshape(shape), to_bytes(values))


def test_refusals(tmp_path):
    for values, name in (
        (np.ones((3, 3, 2)), "a.png"),
        (np.ones(3), "a.png"),
        (np.ones((0, 3)), "a.png"),
        (np.ones((3, 3)), "a.txt"),
    ):
        with pytest.raises(kf.InputError):
            write_image(tmp_path / name, values)
    write_image(tmp_path / "a.png", np.ones((3, 3)))
    with pytest.raises(kf.InputError, match="exists"):
        write_image(tmp_path / "a.png", np.ones((3, 3)), overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("suffix", ["jpg", "tif", "gif", "webp", "bmp", "ppm", "pdf"])
def test_images_of_any_format(suffix, tmp_path):
    write_image(tmp_path / f"a.{suffix}", np.linspace(0, 1, 48).reshape(6, 8))
    if suffix != "pdf":  # Pillow writes these, but does not read them
        with Image.open(tmp_path / f"a.{suffix}") as picture:
            assert picture.size == (8, 6)
            assert abs(int(np.asarray(picture.convert("L"))[5, 7]) - 255) < 9


def test_the_photograph():
    photograph = sample_photograph()
    assert photograph.shape == (512, 512, 3)
    assert photograph.dtype == np.float32
    assert 0 <= photograph.min() < photograph.max() <= 1


def test_files_appear_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"

    def fail_half_way():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
    with replacing(path) as temporary:
        temporary.write_text("whole")
        temporary.chmod(0o600)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == os.stat(tmp_path / "plain").st_mode


# Kinds
# ------------------------------------------------------------------------------------------


def test_kinds():
    names = {
        "a.PNG": "image",
        "a.tif": "image",
        "a.mkv": "video",
        "b.x.nii.gz": "volume",
        "a.npz:x": "array",
    }
    names |= {"a.flac": "audio", "a.tsv": "table", "a.parquet": "table"}
    assert {name: kind_of(name) for name in names} == names
    with pytest.raises(
        kf.InputError,
        match=r"a\.xyz.*\.png.*\[kronfield\[video\]\].*\.parquet \[kronfield\[parquet\]\]",
    ):
        kind_of("a.xyz")
    with pytest.raises(kf.InputTypeError):
        kind_of(b"a.png")


# Pictures in
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "channels"),
    [
        ("astronaut.png", (512, 512, 3), ["red", "green", "blue"]),
        ("camera.png", (512, 512), None),
        ("rocket.jpg", (427, 640, 3), ["red", "green", "blue"]),
        ("logo.png", (500, 500, 4), ["red", "green", "blue", "alpha"]),
    ],
)
def test_photographs(name, shape, channels):
    signal = read(os.path.join(PHOTOGRAPHS, name))
    with Image.open(os.path.join(PHOTOGRAPHS, name)) as picture:
        expected = np.asarray(picture)
    np.testing.assert_array_equal(np.rint(signal.values * 255), expected)
    assert signal.kind == "image"
    assert signal.values.shape == shape
    assert signal.values.dtype == np.float32
    assert signal.channels == (channels is not None)
    assert signal.axes is signal.points is None
    assert signal.info == {
        "kind": "image",
        "source": name,
        "shape": list(shape),
        "axes": ["row", "column"],
        "units": ["px", "px"],
        "channels": channels,
        "levels": 255,
        "dtype": "uint8",
        "raw_bytes": expected.nbytes,
    }


def pixels(*shape, seed=0, levels=256, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, levels, shape).astype(dtype)


def test_modes(tmp_path):
    """Every mode becomes grey or RGB, either with alpha."""
    colours = Image.fromarray(pixels(6, 9, 3))
    palette = colours.quantize(8)
    clear = palette.copy()
    clear.info["transparency"] = 0
    grey = Image.fromarray(pixels(6, 9))
    for name, picture, options, mode in (
        ("palette.png", palette, {}, "RGB"),
        ("palette.gif", palette, {}, "RGB"),
        ("clear.png", clear, {"transparency": 0}, "RGBA"),
        (
            "both.png",
            Image.merge("LA", (grey, grey.transpose(Image.Transpose.ROTATE_180))),
            {},
            "LA",
        ),
        ("key.png", grey, {"transparency": int(np.asarray(grey)[0, 0])}, "LA"),
        ("cmyk.jpg", colours.convert("CMYK"), {}, "RGB"),
        ("grey.bmp", grey, {}, "L"),
        ("bits.png", grey.convert("1"), {}, "L"),
        ("some.webp", Image.fromarray(pixels(6, 9, 4)), {"lossless": True, "exact": True}, "RGBA"),
    ):
        picture.save(tmp_path / name, **options)
        with Image.open(tmp_path / name) as again:
            expected = np.asarray(again.convert(mode))
        values = read(tmp_path / name).values
        np.testing.assert_array_equal(np.rint(values * 255), expected, err_msg=name)


def test_grey_of_16_bit(tmp_path):
    deep = pixels(6, 9, levels=65536, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.png")
    signal = read(tmp_path / "a.png")
    assert signal.info["levels"] == 65535
    assert signal.info["raw_bytes"] == deep.nbytes
    np.testing.assert_array_equal(np.rint(signal.values * 65535), deep)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation, tmp_path):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels(4, 6, 3)).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture))
    np.testing.assert_array_equal(np.rint(read(tmp_path / "a.png").values * 255), expected)


@pytest.mark.parametrize(("name", "worst"), [("a.bmp", 0), ("a.jpg", 40), ("a.webp", 80)])
@pytest.mark.parametrize("channels", [None, 3])
def test_pictures_out(name, worst, channels, tmp_path):
    photograph = sample_photograph()[100:180, 200:300]
    photograph = photograph if channels else photograph[..., 1]
    write(tmp_path / name, photograph, {})
    with Image.open(tmp_path / name) as picture:
        again = np.asarray(picture.convert("RGB" if channels else "L")).astype(int)
    error = np.abs(again - to_bytes(photograph))
    assert error.max() <= worst
    assert error.mean() <= worst / 10


# What is not what it should be
# ----------------------------------------------------------------------------------


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(kf.InputError, match="folder: name"):
        read(tmp_path / "folder.png")
    with pytest.raises(kf.InputError, match=r"Did you mean photo\.png\?"):
        read(tmp_path / "foto.png")
    with pytest.raises(kf.InputError, match="exists"):
        read(tmp_path / "nowhere" / "a.png")
    with pytest.raises(kf.InputError, match="empty"):
        read(tmp_path / "photo.png")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(kf.InputError, match="can be read"):
        read(tmp_path / "pipe.png")


def test_damaged_pictures(tmp_path):
    whole = (tmp_path / "a.png", tmp_path / "a.jpg", tmp_path / "a.webp", tmp_path / "a.bmp")
    for path in whole:
        Image.fromarray(pixels(50, 60, 3)).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(
            kf.InputError, match=r"cannot be read \(.*\); expected a PNG, JPEG"
        ) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    (tmp_path / "a.png").write_text("this is no picture")
    with pytest.raises(kf.InputError, match="cannot be read"):
        read(tmp_path / "a.png")


def test_a_picture_in_the_wrong_clothes_is_read_all_the_same(tmp_path):
    Image.fromarray(pixels(5, 6)).save(tmp_path / "a.jpg", format="PNG")
    np.testing.assert_array_equal(np.rint(read(tmp_path / "a.jpg").values * 255), pixels(5, 6))


def test_moving_pictures_are_refused():
    with pytest.raises(kf.InputError, match=r"24 frames.*\.mp4"):
        read(os.path.join(PHOTOGRAPHS, "no_time_for_that_tiny.gif"))


def test_a_bomb(tmp_path, monkeypatch):
    Image.fromarray(pixels(50, 60)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # Pillow warns: read all the same
    assert read(tmp_path / "a.png").values.shape == (50, 60)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(kf.InputError, match="at most 2000 pixels"):
        read(tmp_path / "a.png")


def test_arguments_of_other_kinds(tmp_path):
    write(tmp_path / "a.png", np.ones((3, 3)), {})
    for arguments in ({"columns": ["v"]}, {"coordinates": ["x"]}, {"frames": (0, 1)}):
        with pytest.raises(kf.InputError, match=next(iter(arguments))):
            read(tmp_path / "a.png", **arguments)
