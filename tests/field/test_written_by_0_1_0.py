"""Files written by version 0.1.0 stay readable: fields, networks, checkpoints, statistics.

They are in ``tests/data/0.1.0``, with what 0.1.0 said of them in ``expected.json``; ``write.py``
there is how they came to be. They are never written again: a version that reads them differently is
wrong.
"""

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import kronfield as kf
from cases import FUNCTIONS
from clifiles import run
from kronfield.nn import CoordinateMLP, NetworkField, train

FOLDER = Path(__file__).parents[1] / "data" / "0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
# Of the largest value: what machines that round otherwise may differ by. Splines in tension are
# differences of exponentials, in which the rounding of exp grows: 1e-10 was seen in their
# integrals on another machine than the one that wrote the files.
TOLERANCE = {"float64": 2e-10, "complex128": 2e-10, "float32": 1e-5, "complex64": 1e-5}
NETWORK = 1e-5
# A solver that goes about it otherwise ends elsewhere within its own tolerance.
SOLVED = {"float64": 1e-8, "complex128": 1e-8, "float32": 1e-4}
# The integral of a network is told to 1e-4 only, and that of a function handed in is by quadrature.
NETWORK_INTEGRAL, QUADRATURE = 1e-3, 1e-9


def names(*kinds):
    return sorted(name for name, entry in EXPECTED.items() if entry["kind"] in kinds)


def numbers(listed, dtype):
    """Return an array as `expected.json` has it: complex numbers are pairs."""
    array = np.array(listed, dtype=np.float64)
    return array[..., 0] + 1j * array[..., 1] if np.dtype(dtype).kind == "c" else array


def assert_close(found, listed, dtype, tolerance):
    wanted = numbers(listed, dtype)
    assert np.shape(found) == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


def said(thing):
    """Return the repr, without where in memory functions are."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def raw(name):
    """Return what is in a file, read without kronfield."""
    with safe_open(FOLDER / name, framework="numpy") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["kronfield"])


# The folder ------------------------------------------------------------------------------------


def test_every_file_is_expected_and_every_expected_file_is_there():
    there = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert there - {"write.py", "expected.json"} == set(EXPECTED)
    assert {entry["kind"] for entry in EXPECTED.values()} == {
        "field",
        "network",
        "checkpoint",
        "statistics",
    }


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_files_are_those_of_0_1_0(name):
    content = (FOLDER / name).read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(EXPECTED[name]["sha256"])
    assert raw(name)[1]["version"] == 1


def test_all_embedders_are_there():
    public = {kf.Gaussian, kf.Triangle, kf.Rectangle, kf.Impulse, kf.Sine, kf.Square}
    public |= {kf.RandomFourier, kf.LinearFourier, kf.LogFourier}
    public |= {kf.TensionSpline, kf.ShiftedBasis}
    seen = {type(emb) for name in names("field") for emb in load(name).encoding.embedders}
    assert seen == public


# Fields and networks ---------------------------------------------------------------------------


def load(name):
    return kf.load(FOLDER / name, FUNCTIONS)


def tolerance_of(entry):
    tolerance = TOLERANCE[entry["dtype"]]
    return max(tolerance, NETWORK) if entry["kind"] == "network" else tolerance


@pytest.mark.parametrize("name", names("field", "network"))
def test_what_a_field_is(name):
    entry, field = EXPECTED[name], load(name)
    arrays, metadata = raw(name)
    assert isinstance(field, NetworkField) == (entry["kind"] == "network")
    assert said(field.encoding) == entry["encoding"]
    assert str(field.dtype) == entry["dtype"]
    assert [list(pair) for pair in field.domain] == entry["domain"]
    assert [[len(axis), axis[0], axis[-1]] for axis in field.axes] == entry["axes"]
    for i, axis in enumerate(field.axes):
        np.testing.assert_array_equal(axis, arrays[f"axis{i}"])
    assert {key: value for key, value in field.info.items() if key != "made"} == entry["info"]
    assert field.info == metadata["info"]


@pytest.mark.parametrize("name", names("field", "network"))
def test_values(name):
    entry, field = EXPECTED[name], load(name)
    dtype, tolerance = entry["dtype"], tolerance_of(entry)
    points = np.array(entry["points"])
    assert_close(field(points), entry["values"], dtype, tolerance)
    assert_close(field.on_grid(entry["grid"]), entry["on_grid"], dtype, tolerance)
    own = field.on_grid()
    assert own.dtype == dtype
    places = own.reshape(-1, *own.shape[field.dimensions :])[:: entry["stride"]]
    assert_close(places, entry["on_its_grid"], dtype, tolerance)


@pytest.mark.parametrize("name", names("field", "network"))
def test_derivatives_and_integrals(name):
    entry, field = EXPECTED[name], load(name)
    dtype, tolerance = entry["dtype"], tolerance_of(entry)
    for one in entry["derivatives"]:
        found = field.on_grid(entry["grid"], derivative=one["orders"])
        # differences of weights lose a digit each time
        assert_close(found, one["on_grid"], dtype, tolerance * 10 ** sum(one["orders"]))
    if entry["kind"] == "network":
        tolerance = NETWORK_INTEGRAL
    elif "ShiftedBasis" in entry["encoding"]:
        tolerance = QUADRATURE
    box = [(axis[0], axis[-1]) for axis in entry["grid"]]
    assert_close(field.integral(), entry["integral"], dtype, tolerance)
    assert_close(field.integral(box), entry["integral_of_box"], dtype, tolerance)


@pytest.mark.parametrize("name", names("field", "network"))
def test_what_is_loaded_can_be_saved_again(name, tmp_path):
    field = load(name)
    field.save(tmp_path / "again.field")
    again = kf.load(tmp_path / "again.field", FUNCTIONS)
    points = np.array(EXPECTED[name]["points"])
    np.testing.assert_array_equal(again(points), field(points))
    assert again.info == field.info
    assert again.domain == field.domain


@pytest.mark.parametrize("name", [one for one in EXPECTED if one.startswith("command-line")])
def test_the_command_line_knows_its_fields(name, tmp_path, monkeypatch):
    shutil.copy(FOLDER / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    facts = json.loads(run(f"kronfield info {name} --json").stdout)
    assert facts["field"] == name
    assert load(name).info["made"]["version"] == "0.1.0"
    wanted = EXPECTED[name].get("rendered")
    if wanted is None:
        return
    stretch = "--stretch" if "--size" in wanted["command"] else ""  # as 0.1.0 did
    run(f"kronfield {wanted['command']} {stretch}")
    target = wanted["command"].split()[-1]
    if target.endswith(".npy"):
        found = np.load(target)
    else:
        with open(target, newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        assert header == wanted["header"]
        found = np.array(rows, dtype=np.float64)
    assert_close(found, wanted["values"], "float32", 1e-5)


# Checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("checkpoint"))
def test_runs_go_on(name, tmp_path):
    entry = EXPECTED[name]
    data = {key: np.array(value) for key, value in entry["data"].items()}
    samples = (data["points"], data["values"]) if "points" in data else data["values"]
    unbroken, resumed = network(entry), network(entry)
    with torch.no_grad():
        for key, weights in unbroken.named_parameters():
            weights.copy_(torch.tensor(entry["start"][key], dtype=torch.float64))
    whole = train(unbroken, samples, **entry["settings"])
    path = tmp_path / name
    shutil.copy(FOLDER / name, path)
    seen = []
    rest = train(
        resumed,
        samples,
        checkpoint=path,
        resume=True,
        callback=lambda epoch: seen.append(epoch.number),
        **entry["settings"],
    )
    done = raw(name)[1]["state"]["losses"]
    assert rest.losses[: len(done)] == done
    assert seen == list(range(len(done), entry["settings"]["epochs"]))  # only what was left to do
    points = np.array(entry["points"])
    for found in (whole, rest):
        assert_close(found.losses, entry["losses"], "float64", NETWORK)
        assert [one for one, _ in found.held_out] == [one for one, _ in entry["held_out"]]
        for (_, one), (_, other) in zip(found.held_out, entry["held_out"], strict=True):
            assert one == pytest.approx(other, rel=NETWORK)
        assert found.best_loss == pytest.approx(entry["best_loss"], rel=NETWORK)
        assert str(found.field.dtype) == entry["dtype"]
        assert_close(found.field(points), entry["values"], entry["dtype"], NETWORK)


def network(entry):
    torch.manual_seed(0)
    return CoordinateMLP.from_dict(entry["network"]).to(getattr(torch, entry["dtype"]))


# Statistics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("statistics"))
def test_statistics(name):
    entry = EXPECTED[name]
    seen = kf.Statistics.load(FOLDER / name, FUNCTIONS)
    dtype, tolerance = entry["dtype"], SOLVED[entry["dtype"]]
    points = np.array(entry["points"])
    assert said(seen) == entry["repr"]
    assert said(seen.encoding) == entry["encoding"]
    assert [list(pair) for pair in seen.domain] == entry["domain"]
    assert (seen.count, seen.dropped) == (entry["count"], entry["dropped"])
    assert seen.total == pytest.approx(entry["total"], rel=1e-12)
    if seen.count:
        field = seen.solve(**entry["solve"])
        assert str(field.dtype) == dtype
        assert_close(field(points), entry["values"], dtype, tolerance)
        assert field.report.residual == pytest.approx(entry["residual"], rel=100 * tolerance)
        same = ((seen + seen) - seen).solve(**entry["solve"])
        assert_close(same(points), entry["values"], dtype, tolerance)
    if "other" in entry:
        encoding = kf.Encoding.from_dict(entry["other"]["encoding"])
        field = seen.solve(encoding=encoding, **entry["solve"])
        assert_close(field(points), entry["other"]["values"], dtype, tolerance)
    more = numbers(entry["more"]["values"], dtype).astype(dtype)
    seen.add(np.array(entry["more"]["points"]), more)
    assert seen.count == entry["count"] + len(more)
    after = seen.solve(**entry["solve"])
    assert_close(after(points), entry["values_with_more"], dtype, tolerance)
