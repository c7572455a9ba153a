"""Saved fields: round trips, and files that are not what they should be."""

import os
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

import kronfield as kf
from cases import FUNCTIONS, cosine_bell
from edits import edits, rewrite
from kronfield._core.labels import AxisLabel, Labels
from kronfield.field import storage

rng = np.random.default_rng(0)


def _field(**options):
    return kf.fit(
        rng.standard_normal((12, 9, 2)), [np.linspace(0, 3, 12), np.linspace(5, 6, 9)], **options
    )


@pytest.mark.parametrize(
    "field",
    [
        _field(),
        kf.fit(np.arange(12, dtype=np.float32)),
        kf.fit(np.exp(1j * np.arange(20))),
        kf.fit(
            np.exp(1j * np.arange(20)).astype(np.complex64)[:, None] * np.ones(3), channels=True
        ),
        kf.fit(np.arange(12.0), encoding=kf.RandomFourier(8, 1.0, seed=4), ridge=0.0),
        kf.fit(
            np.arange(12.0),
            encoding=kf.ShiftedBasis(8, cosine_bell, support=(-0.2, 0.2), name="bell"),
            ridge=0.0,
        ),
    ],
    ids=lambda field: repr(field)[:40],
)
def test_round_trip(field, tmp_path):
    saved = field.save(tmp_path / "a.field")
    assert saved.bytes == os.path.getsize(tmp_path / "a.field")
    assert saved.largest_error == saved.rms_error == 0.0
    again = kf.load(tmp_path / "a.field", FUNCTIONS)
    assert again.domain == field.domain
    assert again.dtype == field.dtype
    assert again.encoding == field.encoding
    shape = (7,) * field.dimensions
    assert np.array_equal(again.on_grid(shape), field.on_grid(shape))
    assert np.array_equal(again.on_grid(), field.on_grid())
    assert again.report is None
    with pytest.raises(kf.InputError, match="loaded"):
        again.refit(np.zeros(3))


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float16", 2e-3), ("float32", 1e-6), ("float64", 0.0)]
)
def test_smaller_storage_says_what_it_costs(dtype, bound, tmp_path):
    field = _field(encoding=kf.Triangle(9, 2 / 9), ridge=0.0)
    saved = field.save(tmp_path / "a.field", dtype=dtype)
    again = kf.load(tmp_path / "a.field")
    error = np.abs(again.weights - field.weights)
    assert saved.largest_error == pytest.approx(error.max())
    assert saved.rms_error == pytest.approx(np.sqrt(np.mean(error**2)))
    assert saved.largest_error <= bound * np.abs(field.weights).max()
    with pytest.raises(kf.InputError, match="dtype"):
        field.save(tmp_path / "b.field", dtype="int8")
    huge = kf.fit(1e9 * np.ones(8))
    with pytest.raises(kf.InputError, match="overflow"):
        huge.save(tmp_path / "b.field", dtype="float16")
    assert not (tmp_path / "b.field").exists()


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "a.field"
    _field().save(path)
    before = path.read_bytes()

    def fail(*_args, **_options):
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        _field().save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.field"]
    with pytest.raises(kf.InputError, match="folder"):
        _field().save(tmp_path)
    with pytest.raises(kf.InputError, match="Create"):
        _field().save(tmp_path / "no" / "a.field")


def test_every_truncation_and_flipped_byte_is_refused(tmp_path):
    path = tmp_path / "a.field"
    kf.fit(np.arange(8.0)).save(path)
    whole = path.read_bytes()
    for length in [*range(0, 64, 7), len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(kf.InputError, match="path"):
            kf.load(path)
    for place in range(8, len(whole), 41):
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        path.write_bytes(bytes(damaged))
        with pytest.raises(kf.InputError):
            kf.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, a: m.update(version=99), "newer kronfield"),
        (lambda m, a: m.update(version="1"), "another kind"),
        (lambda m, a: m.update(format="other"), "another kind"),
        (lambda m, a: m.pop("encoding"), "a saved field"),
        (lambda m, a: m.update(encoding={"kind": "os.system", "embedders": ["rm"]}), "kind"),
        (lambda m, a: m["encoding"]["embedders"][0].update(size=10**12), "at most"),
        (lambda m, a: m["encoding"]["embedders"][0].update(size=13), "do not fit together"),
        (lambda m, a: m["encoding"]["embedders"][0].update(tension="x"), "tension"),
        (lambda m, a: m.update(frames=[[0, 0, 0, 0]]), "do not fit together"),
        (lambda m, a: m.update(frames=[]), "do not fit together"),
        (lambda m, a: m.update(frames=5), "a saved field"),
        (lambda m, a: m.update(weights_dtype="object"), "a saved field"),
        (lambda m, a: m.update(complex=True), "do not fit together"),
        (lambda m, a: a.pop("weights"), "a saved field"),
        (lambda m, a: a.update(weights=np.full_like(a["weights"], np.nan)), "do not fit together"),
        (lambda m, a: a.update(weights=a["weights"][:, :3]), "do not fit together"),
    ],
)
def test_hostile_files(change, words, tmp_path):
    path = tmp_path / "a.field"
    kf.fit(np.arange(8.0)).save(path)
    rewrite(path, change)
    with pytest.raises(kf.InputError, match=words):
        kf.load(path)


def _saved_of_each_kind(folder):
    """Save a file of each kind; yield it, and what loads and uses it."""

    def use(path):
        field = kf.load(path)
        field(np.full((2, field.dimensions), 0.3))
        field.on_grid() if field.dimensions < 3 else repr(field)

    points = rng.random((40, 2))
    many, two = rng.random((40, 4)), kf.Kronecker(kf.Gaussian(6, 0.2), kf.Triangle(5, 0.4))
    wave = np.sin(np.arange(9.0))[:, None] * np.cos(np.arange(8.0) / 2)
    fields = {
        "line": kf.fit(np.arange(12.0)),
        "samples": kf.fit(wave),
        "encoded": kf.fit(wave, encoding=two, ridge=1e-3),
        "low": kf.fit(np.outer(np.arange(8.0), np.arange(9.0)), rank=1),
        "points": kf.fit_points(points, np.sin(points @ [3, 5]), trend=1),
        "dual": kf.fit_points(many, many @ np.arange(4.0), form="dual"),
        "factored": kf.fit_points(many, many @ np.arange(4.0), form="factored"),
    }
    for name, field in fields.items():
        field.save(folder / f"{name}.field")
        yield folder / f"{name}.field", use
    sums = kf.Statistics(two, [(0, 1), (0, 1)])
    sums.add(points, points[:, 0])
    sums.save(folder / "sums.field")
    yield folder / "sums.field", lambda path: kf.Statistics.load(path).solve()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_edited_files_of_each_kind_raise_errors_for_users(tmp_path):
    """With a valid checksum, an entry of another kind is either harmless or refused."""
    refused, others = 0, []
    for path, use in _saved_of_each_kind(tmp_path):
        for edited in edits(path, 60):
            try:
                use(edited)
            except kf.InputError:
                refused += 1
            except Exception as error:  # noqa: BLE001
                others.append((path.name, type(error).__name__, str(error)[:80]))
    assert not others
    assert refused > 200


def test_metadata_nested_without_end_are_refused(tmp_path):
    path = tmp_path / "deep.field"
    text = "[" * 200000
    arrays = {"weights": np.ones(3)}
    save_file(arrays, path, metadata={"kronfield": text, "sha256": storage._checksum(text, arrays)})
    with pytest.raises(kf.InputError, match="path"):
        kf.load(path)


@pytest.mark.parametrize("path", [None, 3, b"a.field", [], "x" * 300])
def test_what_is_no_name_of_a_file(path):
    for load in (kf.load, kf.Statistics.load):
        with pytest.raises(kf.InputError, match="path: got"):
            load(path)


def test_other_files(tmp_path):
    with pytest.raises(kf.InputError, match="no such file"):
        kf.load(tmp_path / "missing.field")
    save_file({"x": np.ones(3)}, tmp_path / "plain.field")
    with pytest.raises(kf.InputError, match="without kronfield metadata"):
        kf.load(tmp_path / "plain.field")
    (tmp_path / "pickle.field").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "empty.field").write_bytes(b"")
    (tmp_path / "header.field").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    for name in ("pickle", "empty", "header"):
        with pytest.raises(kf.InputError, match="path"):
            kf.load(tmp_path / f"{name}.field")


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x89PNG\r\n\x1a\n" + b"0" * 40, "a picture; fit it first"),
        (b"nonsense" * 9, "damaged"),
        (b"", "empty"),
    ],
)
def test_what_is_no_field_is_told(head, words, tmp_path):
    (tmp_path / "photo.png").write_bytes(head)
    with pytest.raises(ValueError, match=words):
        kf.load(tmp_path / "photo.png")


def test_facts_named_like_the_code_of_numbers_survive(tmp_path):
    """Numbers that are not finite are objects with one key in the file."""
    facts = {"not finite": "masked", "limit": np.inf, "more": [{"not finite": "yes"}, -np.inf]}
    field = _field().with_labels(Labels((AxisLabel(), AxisLabel()), attrs=facts))
    field.save(tmp_path / "a.field")
    assert kf.load(tmp_path / "a.field").labels.attrs == facts
