"""The description of a signal: typed inside, the same dictionary as before outside."""

import copy
import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest

import kronfield as kf
from kronfield.files import Description, read, write
from kronfield.signals.axes import axis_names, axis_units, described, frame_rate

FULL = {
    "kind": "video",
    "source": "a.mp4",
    "shape": [3, 4, 5, 3],
    "axes": ["time", "row", "column"],
    "units": ["s", "px", "px"],
    "channels": ["red", "green", "blue"],
    "levels": 255,
    "dtype": "uint8",
    "raw_bytes": 180,
    "fps": "30000/1001",
    "frames_per_second": 30000 / 1001,
    "even": True,
    "announced": 3,
    "rate": 44100,
    "subtype": "PCM_16",
    "spacing": [1.0, 2.0, 3.0],
    "affine": np.eye(4).tolist(),
    "member": "values",
    "dropped": 0,
    "missing": 2,
    "unused": ["name"],
    "labels": [{"name": "time"}],
    "attrs": {"units": "K"},
    "range": [0.0, 1.0],
    "multiplied": False,
    "points": 60,
    "made": {"command": "kronfield fit", "options": {}, "version": "0.1.0"},
}


def test_every_entry_goes_there_and_back():
    known = Description.from_dict(FULL)
    assert {entry.name for entry in dataclasses.fields(Description)} == {*FULL, "other", "nulls"}
    assert {key: getattr(known, key) for key in FULL} == FULL
    assert not known.other
    assert known.to_dict() == FULL


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"levels": None, "channels": None, "announced": None},
        {"nested": {"numbers": [1, 2.5]}, "none": None, "other": 3, "nulls": 4},
        {
            "levels": "many",
            "units": 7,
            "axes": ["x", 2],
            "range": [1],
            "made": "by hand",
            "kind": ["image"],
        },
    ],
)
def test_what_is_unknown_or_of_another_type_is_kept(info):
    known = Description.from_dict(info)
    assert known.to_dict() == info
    assert all(getattr(known, key) is None for key in FULL)


def test_null_and_absent_are_two_things():
    known = Description.from_dict({"levels": None})
    assert known.to_dict() == {"levels": None}
    assert dataclasses.replace(known, levels=255, dtype=None).to_dict() == {"levels": 255}
    assert dataclasses.replace(Description.from_dict({"levels": "x"}), levels=1).to_dict() == {
        "levels": 1
    }


def test_tuples_and_arrays_are_taken_for_lists():
    known = Description.from_dict(
        {"axes": ("x", "y"), "affine": np.eye(4), "levels": np.int64(65535), "range": (0, 1)}
    )
    assert json.loads(json.dumps(known.to_dict())) == {
        "axes": ["x", "y"],
        "affine": np.eye(4).tolist(),
        "levels": 65535,
        "range": [0, 1],
    }


def test_a_dictionary_is_a_copy(tmp_path):
    write(tmp_path / "a.png", np.eye(3), {})
    signal = read(tmp_path / "a.png")
    before = copy.deepcopy(signal.info)
    signal.info["axes"].append("more")
    assert signal.info == before


def test_a_field_that_says_nonsense_says_nothing():
    field = kf.fit(np.add.outer(np.arange(9.0), np.arange(9.0)))
    for info in (
        {},
        {"axes": 3, "units": "px", "kind": 1},
        {"axes": ["x"], "units": ["m"]},
        {"axes": ["x", 1]},
    ):
        field.info = info
        assert axis_names(field) == ["axis 0", "axis 1"]
        assert axis_units(field) == ["", ""]
        assert described(field).to_dict() == info
    for fps, rate in (
        ("25/2", Fraction(25, 2)),
        (25, 25),
        (None, None),
        ("fast", None),
        ("1/0", None),
        ([25], None),
    ):
        field.info = {"kind": "video", "fps": fps, "rate": 44100}
        assert frame_rate(field) == rate
    field.info = {"fps": "25", "rate": 44100}
    assert frame_rate(field) is None
