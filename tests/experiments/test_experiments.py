"""The experiments: specs, splits, data and methods."""

import contextlib
import dataclasses

import numpy as np
import pytest

import kronfield as kf
from kronfield.experiments import load_spec
from kronfield.experiments.data import TooSmallError, cube, digest, items, resize, square
from kronfield.experiments.encodings import complex_encoding, embedder, normalised, simple_encoding
from kronfield.experiments.evidence import parameter_count
from kronfield.experiments.methods import run_method
from kronfield.experiments.spec import BLENDINGS, SIZES, SPECS, parse_spec
from kronfield.experiments.tasks import make_task
from kronfield.files import write_image

TABLES = ("table1", "table2", "table3", "table4")


# Specs
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_specs_load(name):
    spec = load_spec(name)
    assert set(spec.sizes) == set(SIZES)
    assert spec.paper.side == {"line": 512, "image": 512, "video": 128}[spec.kind]
    assert all(spec.method(method.key) is method for method in spec.methods)


@pytest.mark.parametrize("name", TABLES)
def test_parameter_counts_are_the_papers(name):
    spec = load_spec(name)
    checked = [
        method
        for method in spec.methods
        if "parameters" in method.paper and method.group != "closed"
    ]
    assert len(checked) == 10
    for method in checked:
        assert parameter_count(method, spec.dimensions) == method.paper["parameters"]


def test_networks_have_the_counts_that_are_computed():
    from kronfield.experiments.networks import build

    for name in ("table1", "table3"):
        spec = load_spec(name)
        for method in spec.methods:
            if method.how == "descent":
                small = spec.scaled(method, spec.sizes["tiny"], spec.sizes["tiny"].side)
                assert build(small, spec.dimensions, 3, 0).parameter_count == parameter_count(
                    small, spec.dimensions
                )


def test_scaling_keeps_features_and_widths_in_samples():
    spec = load_spec("table1")
    by = {method.key: spec.scaled(method, spec.sizes["quick"], 128) for method in spec.methods}
    gaussian, rff, log = (by[f"complex: {name}, depth 0"] for name in ("Gau", "RFF", "LogF"))
    assert (gaussian.features, gaussian.setting) == (64, pytest.approx(0.016))
    assert (rff.features, rff.setting) == (64, 10.5)
    assert log.setting == 4.5
    assert spec.scaled(spec.methods[0], spec.paper, 512) == spec.methods[0]
    video = load_spec("table3")
    low = video.scaled(video.method("complex: LinF, depth 0"), video.sizes["quick"], 16)
    assert low.setting == 1.0  # never below one octave


SPEC = """
title = "t"
kind = "image"
task = "grid"
size.paper = { side = 64, count = 1, epochs = 2 }
size.quick = { side = 32, count = 1, epochs = 2 }
size.tiny = { side = 16, count = 1, epochs = 2 }
[[method]]
group = "closed"
encoder = "Tri"
features = 32
setting = "1/32"
"""


def test_specs_are_checked():
    assert parse_spec("t", SPEC).methods[0].setting == 1 / 32
    for old, new, message in (
        ('"image"', '"sound"', "t.kind"),
        ('"closed"', '"open"', "t.group"),
        ("features = 32", "feature = 32", "feature"),
        ("side = 64", "side = 63", "even side"),
        ('encoder = "Tri"', 'encoder = "Try"', "t.encoder"),
        ("title", "titel", "titel"),
        ('task = "grid"', 'task = "random"', "t.fraction"),
        ('"closed"', '"simple"', "a rate"),
        ("[[method]]", "[[method", "TOML"),
    ):
        with pytest.raises(kf.InputError, match=message):
            parse_spec("t", SPEC.replace(old, new, 1))


def test_methods_can_be_selected():
    spec = load_spec("table1")
    assert {method.group for method in spec.select("closed,ours")} == {"closed", "ours"}
    assert {method.encoder for method in spec.select("gau")} == {"Gau"}
    assert [method.key for method in spec.select("simple:gau, closed:tri")] == [
        "simple: Gau, depth 4",
        "closed: Tri",
    ]
    assert spec.select("line") == []  # a group of another experiment
    with pytest.raises(kf.InputError, match="methods"):
        spec.select("closed,nothing")


# Tasks and data
# ------------------------------------------------------------------------------------------


def test_splits():
    values = np.random.default_rng(0).random((16, 16, 3)).astype(np.float32)
    grid = make_task(values, "grid", 0.0, 0)
    assert grid.count == 64
    assert np.array_equal(grid.coarse, values[::2, ::2])
    assert not grid.asked[::2, ::2].any()
    assert grid.asked.sum() == 192
    first, again, other = (make_task(values, "random", 0.25, seed) for seed in (0, 0, 1))
    assert first.count == 64
    assert np.array_equal(first.given, again.given)
    assert not np.array_equal(first.given, other.given)
    assert np.array_equal(values[tuple(first.indices().astype(int).T)], values[first.given])


def test_scores_are_of_what_was_asked_for_and_clipped():
    values = np.full((16, 16, 1), 0.5, np.float32)
    task = make_task(values, "grid", 0.0, 0)
    wrong = values.copy()
    wrong[::2, ::2] = 0.0  # what was given does not count
    wrong[1::2] += 0.1
    asked = 0.1**2 * 128 / 192
    assert task.score(wrong)[0] == pytest.approx(-10 * np.log10(asked), abs=1e-4)
    assert task.score(np.full_like(values, 7.0))[0] == pytest.approx(-10 * np.log10(0.25), abs=1e-4)


def test_images_of_a_folder(tmp_path):
    rng = np.random.default_rng(0)
    pictures = {
        "b": rng.random((40, 61, 3)),
        "a": rng.random((50, 30, 3)),
        "grey": rng.random((36, 36)),
    }
    for name, picture in pictures.items():
        write_image(tmp_path / f"{name}.png", picture)
    (tmp_path / "notes.txt").write_text("no picture")
    found = items("image", tmp_path, 9)
    assert [item.name for item in found] == ["a", "b", "grey"]
    assert [item.load(32).shape for item in found] == [(30, 30, 3), (32, 32, 3), (32, 32, 3)]
    assert np.allclose(found[1].load(32), pictures["b"][4:36, 14:46], atol=1 / 255)
    deeper = tmp_path / "DIV2K"
    deeper.mkdir()
    write_image(deeper / "0001.png", pictures["b"])
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "DIV2K").mkdir()
    write_image(tmp_path / "set" / "DIV2K" / "0801.png", pictures["b"])
    assert [item.name for item in items("image", tmp_path / "set", 2)] == ["0801"]
    with pytest.raises(kf.InputError, match="data"):
        items("image", tmp_path / "none", 1)
    with pytest.raises(kf.InputError, match="kind video"):
        items("video", tmp_path, 1)


def test_the_original_npz_files(tmp_path):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (2, 24, 24, 3), dtype=np.uint8) for _ in range(2))
    np.savez(tmp_path / "images.npz", train_data=train, test_data=test)
    found = items("image", tmp_path / "images.npz", 9)
    assert len(found) == 2
    assert np.array_equal(found[1].load(24), (test[1] / 255).astype(np.float32))
    clips = {name: rng.random((1, 20, 20, 20, 3)).astype(np.float32) for name in ("train", "test")}
    np.savez(tmp_path / "videos.npz", **clips)
    for table, name in (("table3", "test"), ("table4", "train")):  # as the authors' scripts do
        found = items("video", tmp_path / "videos.npz", 9, arrays=load_spec(table).arrays)
        assert [item.name for item in found] == [f"videos-{name}-00"]
        assert np.array_equal(found[0].load(16), clips[name][0, 2:18, 2:18, 2:18])
    assert load_spec("table1").arrays == ("test_data",)
    with pytest.raises(kf.InputError, match="data"):
        items("video", tmp_path / "images.npz", 1)


def test_frames_are_resized_and_cut():
    frames = np.broadcast_to(np.linspace(0, 1, 60)[None, :, None, None], (3, 60, 90, 3))
    small = resize(frames, 30)
    assert small.shape == (3, 30, 30, 3)
    assert np.allclose(
        small[0, 2:-2, 0, 0], frames[0, :, 0, 0].reshape(30, 2).mean(axis=1)[2:-2], atol=1e-6
    )
    assert np.allclose(resize(np.ones((1, 20, 20, 3)), 50), 1)
    with pytest.raises(TooSmallError, match="3 frames"):
        cube(small, 16)
    assert square(np.zeros((9, 31, 4)), 64).shape == (8, 8, 3)


@pytest.mark.parametrize("shape", [(90, 70), (32, 32), (20, 45)])
def test_frames_are_resized_by_the_triangular_kernel(shape):
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape, 3)).astype(np.float32) / 255
    found = resize(frames, 32)
    products = [
        np.maximum(0, 1 - np.abs(np.arange(n) - centres[:, None]) / max(1, n / 32))
        for n in shape
        for centres in [(np.arange(32) + 0.5) * n / 32 - 0.5]
    ]
    rows, columns = (one / one.sum(axis=1, keepdims=True) for one in products)
    wanted = np.einsum("ih,thwc,jw->tijc", rows, frames.astype(np.float64), columns)
    np.testing.assert_allclose(found, wanted, atol=1e-7)
    # the same bits, whatever else is resized with them
    np.testing.assert_array_equal(resize(frames[1:, :, :, 2:], 32), found[1:, :, :, 2:])


def test_resized_frames_have_a_known_fingerprint():
    """Results are found again by it, so it must be the same on every machine."""
    place = np.arange(2 * 30 * 41 * 3).reshape(2, 30, 41, 3)
    frames = (place * 7919 % 256).astype(np.float32) / 255
    assert digest(resize(frames, 16)) == "ccbab159ef7a7d36"


def test_lines_are_rows_and_columns_in_turn(tmp_path):
    picture = np.arange(256.0).reshape(16, 16) / 255
    write_image(tmp_path / "ramp.png", picture)
    row, column = (item.load(16)[:, 0] for item in items("line", tmp_path, 2))
    assert np.allclose(np.diff(row), 1 / 255, atol=1e-6)
    assert np.allclose(np.diff(column), 16 / 255, atol=1e-6)


# Methods
# ------------------------------------------------------------------------------------------


def waves(side, dimensions=2):
    axes = np.meshgrid(*[np.arange(side) / side] * dimensions, indexing="ij")
    return np.stack([0.5 + 0.3 * np.sin(9 * sum(axes) + i) for i in range(3)], axis=-1).astype(
        np.float32
    )


def scaled(table, key, side):
    spec = load_spec(table)
    return spec.scaled(spec.method(key), spec.sizes["tiny"], side)


def test_the_closed_form_is_the_papers():
    """Against (Psi'Psi)^-1 Psi' S Psi (Psi'Psi)^-1, formed densely."""
    task = make_task(waves(32), "grid", 0.0, 0)
    method = scaled("table1", "closed: Gau", 32)
    outcome = run_method(method, task, 0, 0)
    emb = embedder("Gau", method.features, method.setting)
    inverse, fine = np.linalg.pinv(emb(np.arange(16) / 16)), emb(np.arange(32) / 32)
    dense = np.einsum("ia,jb,abc->ijc", fine @ inverse, fine @ inverse, task.coarse)
    assert np.allclose(outcome.prediction, dense, atol=1e-4)
    assert outcome.more["rank"] == [16, 16]


def test_tri_has_half_widths():
    assert embedder("Tri", 64, 2 / 64) == kf.Triangle(64, 4 / 64)


def test_simple_encodings_are_the_papers():
    spec = load_spec("table1")
    by = {
        encoder: simple_encoding(spec.method(f"simple: {encoder}, depth 4"), 2, 0)
        for encoder in ("Gau", "RFF", "LinF")
    }
    assert [emb.size for emb in by["Gau"].embedders] == [128] * 4
    assert by["Gau"].directions is not None
    assert [emb.dimensions for emb in by["RFF"].embedders] == [2]
    assert [emb.size for emb in by["LinF"].embedders] == [256] * 2
    assert {encoding.size for encoding in by.values()} == {512}


@pytest.mark.parametrize("encoder", ["LinF", "LogF", "RFF", "Tri", "Gau"])
def test_features_are_normalised(encoder):
    spec = load_spec("table1")
    points = np.random.default_rng(0).random((50, 2))
    simple = simple_encoding(spec.method(f"simple: {encoder}, depth 4"), 2, 0)
    plain, scaled_ = simple(points), normalised(simple)(points)
    assert np.allclose(plain / np.linalg.norm(plain[0]), scaled_ / np.linalg.norm(scaled_[0]))
    assert 0.5 < np.linalg.norm(scaled_, axis=1).max() < 1.01
    kronecker = complex_encoding(spec.method(f"complex: {encoder}, depth 0"), 2, 0)
    for emb in normalised(kronecker).embedders:
        assert 0.9 < np.linalg.norm(emb(points[:, 0]), axis=1).max() < 1.01


@pytest.mark.parametrize("task_kind", ["grid", "random"])
def test_descent_learns_and_depends_on_the_seed_alone(task_kind):
    task = make_task(waves(32), task_kind, 0.25, 0)
    method = scaled("table1" if task_kind == "grid" else "table2", "complex: Gau, depth 0", 32)
    first, again, other = (run_method(method, task, 300, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.prediction, again.prediction)
    assert not np.array_equal(first.prediction, other.prediction)
    assert task.score(first.prediction)[0] > 22


def test_subnormals_are_zero_in_training_alone():
    import torch

    from kronfield.experiments.networks import subnormals_as_zero

    def kept():
        return float(torch.tensor(1e-40) * 0.5) != 0

    assert kept()
    with subnormals_as_zero():
        assert not kept()
        with subnormals_as_zero():
            assert not kept()
        assert not kept()
    assert kept()


def test_narrow_gaussians_learn_the_same_without_subnormals(monkeypatch):
    from kronfield.experiments import networks

    task = make_task(waves(32), "grid", 0.25, 0)
    method = scaled("table1", "simple: Gau, depth 4", 128)
    features = networks.build(method, 2, 3, 0).encoding(np.random.default_rng(0).random((200, 2)))
    small = np.abs(np.asarray(features, dtype=np.float32))
    assert ((small > 0) & (small < np.finfo(np.float32).tiny)).any()
    fast = networks.descend(method, task, 10, 0, None, None)
    monkeypatch.setattr(networks, "subnormals_as_zero", contextlib.nullcontext)
    slow = networks.descend(method, task, 10, 0, None, None)
    assert fast.losses == slow.losses


def test_blending_is_on_as_many_cells_as_features():
    from kronfield.experiments.networks import build

    model = build(scaled("table4", "complex: LinF, depth 0", 32), 3, 3, 0)
    assert model.first._blending.shape == (17, 17, 17)
    assert model.first._blending.weights == "least-squares"
    assert not model.first._blending.normalise


@pytest.mark.parametrize("encoder", ["LinF", "RFF", "Tri", "Gau"])
def test_kinds_of_blending(encoder):
    from kronfield.experiments.networks import build

    key = f"complex: {encoder}, depth 0"
    points = np.random.default_rng(0).random((50, 2))
    found = {}
    for kind in BLENDINGS:
        model = build(dataclasses.replace(scaled("table2", key, 32), blending=kind), 2, 3, 0)
        found[kind] = model.first._blending.corners(points)
    for kind in BLENDINGS:
        sums = found[kind][1].sum(axis=1)
        close = np.allclose(sums, 1, atol=1e-12)
        assert close == ("normalised" in kind or kind == "released")
    assert found["released"][0].max() < 16**2
    # Only blended methods are named so, and with them rows of an earlier kind are not counted.
    assert load_spec("table2").method(key).settings()["blending"] == "least-squares"
    assert "blending" not in load_spec("table1").method(key).settings()


def test_networks_at_points_are_asked_as_they_were_taught():
    """On a random task a complex network is blended at every position, also of the grid."""
    import torch

    from kronfield.experiments.networks import build, evaluate

    task = make_task(waves(16), "random", 0.25, 0)
    model = build(
        dataclasses.replace(scaled("table2", "complex: Gau, depth 0", 16), depth=1, hidden=4),
        2,
        3,
        0,
    )
    found = evaluate(model, task)
    points = torch.from_numpy(
        np.stack(np.meshgrid(*task.axes, indexing="ij"), axis=-1).reshape(-1, 2)
    )
    with torch.no_grad():
        assert np.allclose(found.reshape(-1, 3), model(points), atol=1e-5)
        model.first.points = "exact"
        assert not np.allclose(found.reshape(-1, 3), model(points), atol=1e-3)
