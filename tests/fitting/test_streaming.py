"""`Statistics`: add, subtract, stream and save summaries, and solve for fields."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield.fitting.settings import DEFAULT, changed
from kronfield.solvers.points.normal import NormalEquations

BOX = [(0, 1), (-2, 3)]


def points_and_values(P, seed=0, channels=None):
    rng = np.random.default_rng(seed)
    points = rng.random((P, 2)) * [1, 5] + [0, -2]
    values = np.sin(4 * points[:, 0]) + np.cos(points[:, 1]) + 0.1 * rng.standard_normal(P)
    return points, values if channels is None else np.stack(
        [values * (c + 1) for c in range(channels)], axis=1
    )


def summary(*parts, encoding=None, rows=None):
    result = kf.Statistics(encoding or kf.Triangle(10, 2 / 10), BOX, rows=rows)
    for part in parts:
        result.add(*part)
    return result


def assert_equal(a, b, tolerance=1e-9):
    assert (a.count, a.dropped) == (b.count, b.dropped)
    assert a.total == pytest.approx(b.total)
    np.testing.assert_allclose(a._rhs, b._rhs, atol=tolerance)
    np.testing.assert_allclose(a._energy, b._energy, atol=tolerance)
    for offset, plane in a._stencil.planes.items():
        np.testing.assert_allclose(plane, b._stencil.planes[offset], atol=tolerance)
    for one, other in zip(a._grams, b._grams, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


ENCODINGS = [
    (kf.Triangle(10, 2 / 10), None),
    (kf.Kronecker(kf.TensionSpline(9, 1.0, padding=1), kf.Gaussian(12, 0.06)), None),
    (kf.RandomFourier(8, 1.0, seed=1), None),
    (kf.Gaussian(12, 0.3), "linear"),
]
each_encoding = pytest.mark.parametrize(("encoding", "rows"), ENCODINGS, ids=lambda v: repr(v)[:40])


@each_encoding
def test_merging_is_all_at_once_and_subtracting_restores(encoding, rows):
    a, b = points_and_values(150, 1, channels=2), points_and_values(90, 2, channels=2)
    args = {"encoding": encoding, "rows": rows}
    first, second = summary(a, **args), summary(b, **args)
    both = summary([np.concatenate(pair) for pair in zip(a, b, strict=True)], **args)
    assert_equal(first + second, both)
    assert_equal(second + first, both)
    assert_equal(both - second, first)
    assert_equal(summary(a, b, **args), both)
    both.remove(*b)
    assert_equal(both, first)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 1000))
@settings(max_examples=examples(25), deadline=None)
def test_chunks_do_not_matter(sizes, seed):
    points, values = points_and_values(sum(sizes), seed)
    weights = np.random.default_rng(seed).random(sum(sizes))
    whole = summary((points, values, weights))
    ends = np.cumsum([0, *sizes])
    parts = [(points[a:b], values[a:b], weights[a:b]) for a, b in itertools.pairwise(ends)]
    assert_equal(summary(*parts), whole)
    assert_equal(summary(*parts[::-1]), whole)


def test_a_small_chunk_makes_no_pass_over_the_grid():
    """Neither memory nor time of `add` depends on the grid: no array of its size is made."""
    grid = kf.Triangle(512, 2 / 512)
    points, values = points_and_values(2000)
    seen = summary((points[:1000], values[:1000]), encoding=grid)
    tracemalloc.start()
    seen.add(points[1000:], values[1000:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 8 * 512**2
    assert_equal(seen, summary((points, values), encoding=grid), 1e-12)


@each_encoding
@pytest.mark.parametrize("penalty", [{"ridge": 0.1}, {"roughness": (0.0, 1e-3)}])
def test_the_field_is_that_of_fit_points(encoding, rows, penalty):
    points, values = points_and_values(400, channels=2)
    if isinstance(encoding, kf.Gaussian) and "ridge" in penalty:
        penalty = {"ridge": 1e-2}
    field = summary((points, values), encoding=encoding, rows=rows).solve(tolerance=1e-9, **penalty)
    direct = kf.fit_points(
        points, values, encoding, domain=BOX, rows=rows, tolerance=1e-9, **penalty
    )
    # the tolerance allows for wide Gaussians, which are ill conditioned
    np.testing.assert_allclose(field(points), direct(points), atol=1e-3)
    assert field.report.residual == pytest.approx(direct.report.residual, rel=0.02)
    assert field.report.degrees_of_freedom == pytest.approx(
        direct.report.degrees_of_freedom, rel=0.25
    )


def test_one_pass_serves_every_penalty():
    seen = summary(points_and_values(500))
    rough = [seen.solve(roughness=(0.0, weight)).report.residual for weight in (1e-6, 1e-3, 1.0)]
    assert rough[0] < rough[1] < rough[2]


def test_one_pass_of_linear_blending_serves_every_encoding():
    points, values = points_and_values(600)
    seen = summary((points, values), encoding=kf.Gaussian(20, 0.1), rows="linear")
    for emb in (kf.Gaussian(20, 0.1), kf.Gaussian(20, 0.2), kf.RandomFourier(20, 0.8, seed=0)):
        field = seen.solve(encoding=emb, ridge=1e-3)
        assert field.encoding.embedders[0] == emb
        assert np.sqrt(np.mean((field(points) - values) ** 2)) < 0.2
    with pytest.raises(kf.InputError, match="linear"):
        summary((points, values)).solve(encoding=kf.Triangle(10, 0.4))


def test_a_penalty_left_open_is_chosen_by_cross_validation():
    points, values = points_and_values(2000)
    values = values + 0.4 * np.random.default_rng(5).standard_normal(2000)
    field = summary((points, values), encoding=kf.Triangle(34, 2 / 32, padding=1)).solve()
    truth = np.sin(4 * points[:, 0]) + np.cos(points[:, 1])
    error = np.sqrt(np.mean((field(points) - truth) ** 2))
    assert error < 0.12
    assert len(field.report.candidates) > 3
    again = summary((points, values), encoding=kf.Triangle(34, 2 / 32, padding=1)).solve()
    np.testing.assert_array_equal(again.weights, field.weights)
    wide = summary((points, values), encoding=kf.Gaussian(16, 0.2)).solve()
    assert np.sqrt(np.mean((wide(points) - truth) ** 2)) < 0.12


def test_the_search_knows_why_a_solution_was_made_as_it_was(monkeypatch):
    seen, measured = [], NormalEquations.residual_energy

    def energy(self, solution, penalty):
        seen.append(solution)
        return measured(self, solution, penalty)

    monkeypatch.setattr(NormalEquations, "residual_energy", energy)
    field = summary(points_and_values(300)).solve()
    assert len(seen) > 2
    assert all(one.reason and one.reason == field.report.reason for one in seen)
    assert all(len(one.weights) == len(one.unknowns) == 1 for one in seen)


def test_float32_and_complex():
    points, values = points_and_values(200)
    assert summary((points, values.astype(np.float32))).solve(ridge=0.1).dtype == np.float32
    seen = summary((points, values + 2j * values))
    field = seen.solve(ridge=0.1)
    assert field.dtype == np.complex128
    np.testing.assert_allclose(field.weights.imag, 2 * field.weights.real, atol=2e-2)


@each_encoding
def test_saving(tmp_path, encoding, rows):
    seen = summary(points_and_values(100, channels=2), encoding=encoding, rows=rows)
    seen.save(tmp_path / "seen")
    loaded = kf.Statistics.load(tmp_path / "seen")
    assert_equal(loaded, seen, 0.0)
    np.testing.assert_array_equal(loaded.solve(ridge=0.1).weights, seen.solve(ridge=0.1).weights)
    assert_equal(loaded + seen, seen + seen, 0.0)
    empty = summary(encoding=encoding, rows=rows)
    empty.save(tmp_path / "empty")
    assert_equal(kf.Statistics.load(tmp_path / "empty") + seen, seen, 0.0)


def test_settings_decide_on_rows_and_serve_every_fit(tmp_path):
    data = points_and_values(150)
    short = changed(changed(DEFAULT, "points", "longest_row", 2), "points", "few_entries", 0)
    seen = kf.Statistics(kf.Triangle(10, 2 / 10), BOX, settings=short)
    seen.add(*data)
    for one in (seen + seen, seen.copy()):
        assert one._settings is short
        assert "blending" in repr(one)
        assert "blending" not in repr(summary(data))
    # a file is read whatever the settings
    seen.save(tmp_path / "seen.statistics")
    loaded = kf.Statistics.load(tmp_path / "seen.statistics")
    assert_equal(loaded, seen, 0)
    given = {"roughness": (0.0, 1e-4)}
    np.testing.assert_allclose(loaded.solve(**given)(data[0]), seen.solve(**given)(data[0]))


def test_damaged_and_foreign_files(tmp_path):
    seen = summary(points_and_values(20))
    seen.save(tmp_path / "seen")
    raw = (tmp_path / "seen").read_bytes()
    (tmp_path / "cut").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(kf.InputError, match="damaged"):
        kf.Statistics.load(tmp_path / "cut")
    seen.solve(ridge=1.0).save(tmp_path / "field")
    with pytest.raises(kf.InputError, match="saved statistics"):
        kf.Statistics.load(tmp_path / "field")
    with pytest.raises(kf.InputError, match="saved field"):
        kf.load(tmp_path / "seen")
    from kronfield.field import storage

    arrays, metadata = storage.read(tmp_path / "seen")
    metadata = {key: value for key, value in metadata.items() if key not in ("format", "version")}
    for change in (
        {"domain": [[0, 1]]},
        {"count": -3},
        {"values": [1]},
        {"rows": "odd"},
        {"encoding": {"kind": "x"}},
    ):
        storage.write(
            tmp_path / "odd",
            arrays,
            {k: v for k, v in {**metadata, **change}.items() if k not in ("format", "version")},
        )
        with pytest.raises(kf.InputError):
            kf.Statistics.load(tmp_path / "odd")
    for name in arrays:
        changed = {**arrays, name: arrays[name][..., :-1]}
        storage.write(tmp_path / "odd", changed, metadata)
        with pytest.raises(kf.InputError):
            kf.Statistics.load(tmp_path / "odd")


def test_memory_does_not_grow_with_points():
    seen = kf.Statistics(kf.Triangle(64, 2 / 64), BOX)
    part = points_and_values(50_000)
    seen.add(*part)
    tracemalloc.start()
    for _ in range(2):
        seen.add(*part)
    few = tracemalloc.get_traced_memory()
    for _ in range(6):
        seen.add(*part)
    many = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen.count == 450_000
    assert many[0] < few[0] + 1e5
    assert many[1] < 1.05 * few[1] + 1e5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kf.Statistics(3, BOX), "encoding"),
        (lambda: kf.Statistics(None, BOX), "encoding"),
        (lambda: kf.Statistics(kf.Triangle(4, 0.5), 3), "domain"),
        (lambda: kf.Statistics(kf.Triangle(4, 0.5), [(1, 0)]), "low < high"),
        (
            lambda: kf.Statistics(
                kf.Kronecker(*[kf.Triangle(4000, 0.1)] * 3), [(0, 1)] * 3, rows="exact"
            ),
            "fewer",
        ),
        (lambda: summary().solve(ridge=1.0), "Add points"),
        (lambda: summary(points_and_values(5)).remove(*points_and_values(6)), "at most 5"),
        (lambda: summary(points_and_values(5)) - summary(points_and_values(6)), "at most 5"),
        (lambda: summary(points_and_values(5)).add(np.ones((2, 2)), np.ones((2, 2))), "channels"),
        (lambda: summary(points_and_values(5)).add(np.full((2, 2), 9.0), np.ones(2)), "Widen"),
        (lambda: summary(points_and_values(5)).add(np.ones((2, 3)), np.ones(2)), "3 pairs"),
        (
            lambda: summary(points_and_values(5)) + summary(encoding=kf.Triangle(11, 0.2)),
            "one encoding",
        ),
        (
            lambda: summary(points_and_values(5)) + summary(points_and_values(5, channels=2)),
            "one encoding",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(kf.InputError, match=words):
        call()


def test_adding_something_else():
    with pytest.raises(TypeError):
        summary() + 3
