"""Images in and out."""

import os

import numpy as np
import pytest
from PIL import Image

import kronfield as kf
from kronfield._atomic import replacing
from kronfield.files import sample_photograph, to_bytes, write_image


def test_values_are_clipped_and_rounded():
    assert to_bytes(np.array([-1.0, 0.0, 0.4999 / 255, 0.5001 / 255, 1.0, 9.0])).tolist() == [0, 0, 0, 1, 255, 255]


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
