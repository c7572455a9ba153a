"""TIFF, NumPy and NIfTI files."""

import gzip
import os
import sys

import nibabel
import numpy as np
import pytest
import skimage
import tifffile
from PIL import Image

import kronfield as kf
from kronfield.files import read, sample_photograph, write, writer

DATA = os.path.join(os.path.dirname(skimage.__file__), "data")


def numbers(*shape, levels=256, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, levels, shape).astype(dtype)


# TIFF
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pixels", "kind", "axes", "channels", "levels"),
    [
        (numbers(20, 30), "image", ["row", "column"], False, 255),
        (numbers(20, 30, 3), "image", ["row", "column"], True, 255),
        (
            numbers(20, 30, 4, levels=65536, dtype=np.uint16),
            "image",
            ["row", "column"],
            True,
            65535,
        ),
        (
            numbers(5, 20, 30, levels=65536, dtype=np.uint16),
            "volume",
            ["page", "row", "column"],
            False,
            65535,
        ),
        (numbers(5, 20, 30, 3), "volume", ["page", "row", "column"], True, 255),
        (numbers(20, 30).astype(np.float32) - 7, "image", ["row", "column"], False, None),
        (numbers(5, 20, 30) / 3, "volume", ["page", "row", "column"], False, None),
        (
            numbers(5, 20, 30).astype(np.int16) - 99,
            "volume",
            ["page", "row", "column"],
            False,
            None,
        ),
        (numbers(20, 30) > 99, "image", ["row", "column"], False, 1),
    ],
)
def test_tiff_as_tifffile_writes_it(pixels, kind, axes, channels, levels, tmp_path):
    colours = pixels.shape[-1] in (3, 4)
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, photometric="rgb" if colours else "minisblack", metadata=None
    )
    signal = read(tmp_path / "a.tif")
    assert (signal.kind, signal.channels, signal.info["levels"]) == (kind, channels, levels)
    assert signal.info["axes"] == axes
    assert signal.values.dtype == (np.float64 if pixels.dtype == np.float64 else np.float32)
    np.testing.assert_allclose(signal.values * (levels or 1), pixels, rtol=1e-6)
    assert signal.info["raw_bytes"] == pixels.nbytes


def test_real_tiff():
    grey, colours = (
        read(os.path.join(DATA, name)) for name in ("multipage.tif", "multipage_rgb.tif")
    )
    expected = tifffile.imread(os.path.join(DATA, "multipage.tif"))
    assert grey.values.shape == (2, 15, 10)
    np.testing.assert_allclose(grey.values * (grey.info["levels"] or 1), expected, rtol=1e-6)
    assert (colours.kind, colours.channels) == ("volume", True)
    # planes of colour come first in it
    expected = tifffile.imread(os.path.join(DATA, "multipage_rgb.tif"))
    np.testing.assert_array_equal(colours.values, np.moveaxis(expected, 1, -1))


@pytest.mark.parametrize(
    "compression", ["tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits", "group4"]
)
def test_compressed_tiff(compression, tmp_path):
    """Compressions that tifffile alone cannot decode are read through Pillow."""
    pages = [Image.fromarray(page) for page in numbers(3, 16, 24)]
    pages = [page.convert("1") for page in pages] if compression == "group4" else pages
    pages[0].save(
        tmp_path / "a.tif", save_all=True, append_images=pages[1:], compression=compression
    )
    pages[1].save(tmp_path / "b.tif", compression=compression)
    expected = []
    with Image.open(tmp_path / "a.tif") as again:
        for i in range(3):
            again.seek(i)
            expected.append(np.asarray(again.convert("L")))
    volume, image = read(tmp_path / "a.tif"), read(tmp_path / "b.tif")
    np.testing.assert_array_equal(np.rint(volume.values * 255), expected)
    np.testing.assert_array_equal(np.rint(image.values * 255), expected[1])
    assert (volume.kind, image.kind) == ("volume", "image")


def test_a_compression_that_needs_more(tmp_path):
    Image.fromarray(numbers(16, 24, 3)).save(tmp_path / "a.tif", compression="tiff_lzw")
    data = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        at = file.pages.first.tags["Compression"].valueoffset
    data[at : at + 2] = (34712).to_bytes(2, sys.byteorder)  # JPEG 2000
    (tmp_path / "a.tif").write_bytes(data)
    with pytest.raises(kf.InputError, match="pip install imagecodecs"):
        read(tmp_path / "a.tif")


def test_colours_of_tiff(tmp_path):
    pixels = numbers(16, 24, 3)
    Image.fromarray(pixels).quantize(16).save(tmp_path / "palette.tif")
    Image.fromarray(pixels).convert("CMYK").save(tmp_path / "cmyk.tif")
    for name in ("palette.tif", "cmyk.tif"):
        with Image.open(tmp_path / name) as picture:
            expected = np.asarray(picture.convert("RGB"))
        signal = read(tmp_path / name)
        np.testing.assert_allclose(signal.values * 255, expected, atol=0.6, err_msg=name)
        assert signal.channels
    tifffile.imwrite(tmp_path / "white.tif", pixels[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(
        np.rint(read(tmp_path / "white.tif").values * 255), 255 - pixels[..., 0]
    )
    tifffile.imwrite(
        tmp_path / "planes.tif",
        np.moveaxis(pixels, -1, 0),
        photometric="rgb",
        planarconfig="separate",
    )
    np.testing.assert_array_equal(np.rint(read(tmp_path / "planes.tif").values * 255), pixels)
    tifffile.imwrite(
        tmp_path / "turned.tif", pixels, photometric="rgb", extratags=[(274, 3, 1, 6, True)]
    )
    np.testing.assert_array_equal(
        np.rint(read(tmp_path / "turned.tif").values * 255), np.rot90(pixels, -1)
    )
    tifffile.imwrite(
        tmp_path / "imagej.tif", numbers(4, 2, 16, 24), imagej=True, metadata={"axes": "ZCYX"}
    )
    signal = read(tmp_path / "imagej.tif")
    assert signal.info["axes"] == ["slice", "row", "column"]
    np.testing.assert_array_equal(
        np.rint(signal.values * 255), np.moveaxis(numbers(4, 2, 16, 24), 1, -1)
    )


def test_damaged_tiff(tmp_path):
    path = tmp_path / "a.tif"
    pages = [Image.fromarray(page) for page in numbers(3, 16, 24)]
    pages[0].save(path, save_all=True, append_images=pages[1:])
    whole = path.read_bytes()
    # pages missing, pixels missing, no page at all
    for length in (len(whole) // 2, len(whole) - 20, 10):
        path.write_bytes(whole[:length])
        with pytest.raises(kf.InputError, match="cannot be read"):
            read(path)
    path.write_bytes(b"no TIFF")
    with pytest.raises(kf.InputError, match="cannot be read"):
        read(path)
    with tifffile.TiffWriter(path) as file:
        file.write(numbers(16, 24))
        file.write(numbers(8, 12))
    with pytest.raises(kf.InputError, match=r"2 sizes \(16 x 24, 8 x 12\)"):
        read(path)


@pytest.mark.parametrize("channels", [None, 2, 3, 4, 5])
@pytest.mark.parametrize("shape", [(16, 24), (5, 16, 24), (2, 5, 16, 24)])
@pytest.mark.parametrize("info", [{}, {"levels": 255}, {"levels": 65535}, {"dtype": "float64"}])
def test_tiff_there_and_back(shape, channels, info, tmp_path):
    full = shape if channels is None else (*shape, channels)
    values = numbers(*full) / 255
    with writer(tmp_path / "a.tif", shape, channels, info) as volume:
        for row in values:
            volume.write(row[None])
    signal = read(tmp_path / "a.tif")
    assert signal.values.shape == full
    assert signal.info["levels"] == info.get("levels")
    assert (
        signal.info["dtype"]
        == {None: info.get("dtype", "float32"), 255: "uint8", 65535: "uint16"}[info.get("levels")]
    )
    np.testing.assert_allclose(signal.values, values, atol=1e-7)
    write(tmp_path / "b.tif", signal.values, signal.info)
    assert (tmp_path / "b.tif").read_bytes() == (tmp_path / "a.tif").read_bytes()


def test_tiff_as_pillow_reads_it(tmp_path):
    photograph = sample_photograph()
    write(tmp_path / "a.tif", photograph, {"levels": 255})
    with Image.open(tmp_path / "a.tif") as picture:
        np.testing.assert_array_equal(np.asarray(picture), np.rint(photograph * 255))


# NumPy
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "levels", "dtype"),
    [
        (numbers(5, 6, 7), 255, np.float32),
        (numbers(5, 6, levels=65536, dtype=np.uint16), 65535, np.float32),
        (numbers(9) > 50, 1, np.float32),
        (numbers(5, 6).astype(">f4"), None, np.float32),
        (numbers(5, 6).astype(np.float16), None, np.float32),
        (numbers(5, 6) / 7, None, np.float64),
        (np.asfortranarray(numbers(5, 6) / 7), None, np.float64),
        (numbers(5, 6).astype(np.int16) - 50, None, np.float32),
        (numbers(5, 6).astype(np.int64) + 2**40, None, np.float64),
    ],
)
def test_npy(array, levels, dtype, tmp_path):
    np.save(tmp_path / "a.npy", array)
    signal = read(tmp_path / "a.npy")
    assert (signal.kind, signal.info["levels"], signal.values.dtype) == ("array", levels, dtype)
    np.testing.assert_allclose(signal.values * (levels or 1), array, rtol=1e-6)
    assert signal.info["raw_bytes"] == array.nbytes
    write(tmp_path / "b.npy", signal.values, signal.info)
    again = np.load(tmp_path / "b.npy")
    np.testing.assert_array_equal(again, array)
    if levels:
        assert again.dtype == array.dtype


def test_channels_of_arrays(tmp_path):
    for shape, channels in (
        ((9, 8, 3), True),
        ((9, 3), True),
        ((3, 8, 3), False),
        ((9, 8), False),
        ((9,), False),
        ((9, 8, 5), False),
    ):
        np.save(tmp_path / "a.npy", np.ones(shape))
        signal = read(tmp_path / "a.npy")
        assert signal.channels == channels, shape
        assert len(signal.info["axes"]) == len(signal.info["units"]) == len(shape) - channels


def test_real_arrays():
    faces = read(os.path.join(DATA, "lfw_subset.npy"))
    assert faces.values.shape == (200, 25, 25)
    assert read(os.path.join(DATA, "motorcycle_disp.npz")).values.shape == (500, 741)


def test_large_arrays_stay_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("kronfield.files.arrays.MAPPED", 100)
    np.save(tmp_path / "a.npy", np.ones((30, 40), np.float32))
    np.save(tmp_path / "b.npy", np.ones((30, 40), np.uint8))
    assert isinstance(read(tmp_path / "a.npy").values, np.memmap)
    assert not isinstance(read(tmp_path / "b.npy").values, np.memmap)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(kf.InputError, match="cannot be read"):
        read(tmp_path / "a.npy")


def test_npz(tmp_path):
    np.savez(tmp_path / "one.npz", density=np.arange(6.0))
    np.savez_compressed(tmp_path / "two.npz", density=np.arange(6.0), speed=np.arange(4.0))
    signal = read(tmp_path / "one.npz")
    assert signal.info["member"] == "density"
    np.testing.assert_array_equal(signal.values, np.arange(6.0))
    assert read(f"{tmp_path}/two.npz:speed").values.shape == (4,)
    with pytest.raises(kf.InputError, match=r"2 arrays \(density, speed\).*two\.npz:density"):
        read(tmp_path / "two.npz")
    with pytest.raises(kf.InputError, match=r"one of density, speed\. Did you mean speed\?"):
        read(f"{tmp_path}/two.npz:spead")
    with pytest.raises(kf.InputError, match="exists"):
        read(f"{tmp_path}/three.npz:speed")
    write(tmp_path / "b.npz", signal.values, signal.info)
    with np.load(tmp_path / "b.npz") as again:
        np.testing.assert_array_equal(again["density"], np.arange(6.0))


class Explosive:
    """Unpickling this would show."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


def test_arrays_that_are_refused(tmp_path):
    for array, why in (
        (np.array([Explosive()], dtype=object), "cannot be read"),
        (np.ones(3, complex), "complex numbers"),
        (np.array(["2024-01-01"], "datetime64[D]"), "no numbers"),
        (np.array(["a"]), "no numbers"),
        (np.ones(3, [("a", float)]), "no numbers"),
        (np.array(1.0), "at least one sample"),
        (np.ones((3, 0)), "at least one sample"),
    ):
        np.save(tmp_path / "a.npy", array, allow_pickle=True)
        np.savez(tmp_path / "a.npz", values=array)
        for name in ("a.npy", "a.npz"):
            with pytest.raises(kf.InputError, match=why):
                read(tmp_path / name)
    np.save(tmp_path / "a.npy", np.ones(99))
    whole = (tmp_path / "a.npy").read_bytes()
    for name, data in (
        ("a.npy", whole[:-9]),
        ("a.npy", b"text"),
        ("a.npz", whole),
        ("a.npz", b"PK"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(kf.InputError, match="cannot be read"):
            read(tmp_path / name)


# NIfTI
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti(suffix, tmp_path):
    stored = numbers(6, 7, 8).astype(np.int16)
    affine = np.array([[0.0, -2, 0, 10], [1.5, 0, 0, 20], [0, 0, 3, 30], [0, 0, 0, 1]])
    picture = nibabel.Nifti1Image(stored, affine)
    picture.header.set_slope_inter(2, -100)
    picture.header.set_xyzt_units("mm")
    nibabel.save(picture, tmp_path / f"a{suffix}")
    signal = read(tmp_path / f"a{suffix}")
    assert (signal.kind, signal.channels, signal.info["units"]) == ("volume", False, ["mm"] * 3)
    assert signal.values.dtype == np.float32
    np.testing.assert_allclose(signal.values, 2.0 * stored - 100)
    np.testing.assert_allclose(signal.axes[0], 1.5 * np.arange(6))
    np.testing.assert_allclose(signal.axes[2], 3.0 * np.arange(8))
    assert signal.info["raw_bytes"] == stored.nbytes
    assert signal.info["affine"] == affine.tolist()

    # the same volume, block by block
    with writer(tmp_path / f"b{suffix}", (6, 7, 8), None, signal.info) as volume:
        volume.write(signal.values[:4])
        volume.write(signal.values[4:])
    again = nibabel.load(tmp_path / f"b{suffix}")
    np.testing.assert_array_equal(again.get_fdata(), signal.values)
    np.testing.assert_allclose(again.affine, affine)
    assert read(tmp_path / f"b{suffix}").info["spacing"] == signal.info["spacing"]


def test_nifti_of_another_shape(tmp_path):
    """Twice the samples cut the same box: its corners stay where they are."""
    affine = np.array([[0.0, -2, 0, 10], [1.5, 0, 0, 20], [0, 0, 3, 30], [0, 0, 0, 1]])
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 7, 8), np.float32), affine), tmp_path / "a.nii")
    info = read(tmp_path / "a.nii").info
    write(tmp_path / "b.nii", np.zeros((12, 7, 24)), info)
    again = nibabel.load(tmp_path / "b.nii")
    np.testing.assert_allclose(again.header.get_zooms(), [0.75, 2, 1])
    for corner in ((0, 0, 0), (1, 0, 0), (1, 1, 1), (0, 1, 1)):
        before = affine @ [*(np.array(corner) * [6, 7, 8] - 0.5), 1]
        after = again.affine @ [*(np.array(corner) * [12, 7, 24] - 0.5), 1]
        np.testing.assert_allclose(after, before, atol=1e-5)


def test_nifti_with_time(tmp_path):
    picture = nibabel.Nifti1Image(numbers(4, 5, 6, 7).astype(np.float64), np.eye(4))
    picture.header.set_zooms((2, 2, 2, 0.5))
    picture.header.set_xyzt_units("mm", "sec")
    nibabel.save(picture, tmp_path / "a.nii")
    signal = read(tmp_path / "a.nii")
    assert signal.values.dtype == np.float64
    assert signal.info["units"] == ["mm", "mm", "mm", "s"]
    np.testing.assert_allclose(signal.axes[3], 0.5 * np.arange(7))
    write(tmp_path / "b.nii", signal.values, signal.info)
    again = read(tmp_path / "b.nii")
    np.testing.assert_array_equal(again.values, signal.values)
    assert again.info["spacing"] == signal.info["spacing"]


def test_nifti_refusals(tmp_path):
    nibabel.save(
        nibabel.Nifti1Image(np.ones((3, 4, 5), np.complex64), np.eye(4)), tmp_path / "a.nii"
    )
    with pytest.raises(kf.InputError, match="complex64"):
        read(tmp_path / "a.nii")
    nibabel.save(
        nibabel.Nifti1Image(np.ones((3, 4, 5), np.float32), np.eye(4)), tmp_path / "a.nii.gz"
    )
    (tmp_path / "a.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes()[:-20])
    (tmp_path / "a.nii").write_text("no volume")
    for name in ("a.nii.gz", "a.nii"):
        with pytest.raises(kf.InputError, match="cannot be read"):
            read(tmp_path / name)
    for shape, info in (
        ((3, 4, 5, 3), {"axes": ["x", "y", "z"]}),
        ((40000, 2), {}),
        ((3, 4, 5), {"affine": [[1]]}),
    ):
        with pytest.raises(kf.InputError, match=r"NIfTI|affine"):
            write(tmp_path / "b.nii", np.ones(shape), info)
    assert sorted(os.listdir(tmp_path)) == ["a.nii", "a.nii.gz"]


@pytest.mark.parametrize("geographic", [True, False])
def test_a_map_has_coordinates_and_gaps(geographic, tmp_path):
    import tifffile

    heights = np.arange(12, dtype=np.int16).reshape(3, 4)
    heights[1, 2] = -9999
    keys = (1, 1, 0, 2, 1024, 0, 1, 2 if geographic else 1, 1025, 0, 1, 1 if geographic else 2)
    tags = [
        (33550, "d", 3, (0.5, 0.25, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 8.0, 47.0, 0.0), True),
        (34735, "H", len(keys), keys, True),
        (42113, "s", 0, "-9999", True),
    ]
    tifffile.imwrite(tmp_path / "map.tif", heights, extratags=tags)
    signal = read(tmp_path / "map.tif")
    assert [label.name for label in signal.labels] == (["lat", "lon"] if geographic else ["y", "x"])
    half = 0.5 if geographic else 0.0  # an area, or a point
    np.testing.assert_allclose(signal.axes[0], 47 - (np.arange(3) + half) * 0.25)
    np.testing.assert_allclose(signal.axes[1], 8 + (np.arange(4) + half) * 0.5)
    assert np.isnan(signal.values[1, 2])
    assert np.nansum(signal.values) == np.arange(12).sum() - 6


def test_a_changed_bit_of_a_packed_volume_is_found(tmp_path):
    """Every bit counts in the checksum at the end of the stream, which must be read for it."""
    path = tmp_path / "a.nii.gz"
    stored = numbers(20, 30, 50)  # more than a buffer, whose end would be read by chance
    nibabel.save(nibabel.Nifti1Image(stored, np.eye(4)), tmp_path / "a.nii")
    whole = gzip.compress((tmp_path / "a.nii").read_bytes())
    refused = 0
    for place in range(0, len(whole), 301):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            values = read(path).values
        except kf.InputError:
            refused += 1
        else:  # only the header of gzip, such as the time
            assert place < 10
            np.testing.assert_array_equal(values, stored)
    assert refused > 50
