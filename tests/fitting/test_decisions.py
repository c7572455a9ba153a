"""A test on either side of every decision in `kronfield.fitting.settings`.

The name of a test is that of its decision, group and name: benchmarks/tuning/mutate.py changes the
decision and expects the test to fail.
"""

import copy
import math
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import kronfield as kf
from benchmarks.tuning.mutate import OTHER_TESTS
from benchmarks.tuning.page import page
from kronfield._core.frames import Frame, sample_frame
from kronfield.field.uncertainty import Uncertainty
from kronfield.fitting import grid_choice, settings
from kronfield.fitting.calibration import Coverage
from kronfield.fitting.circles import TrigonometricFamily, _trigonometric_errors
from kronfield.fitting.dual import DualFit
from kronfield.fitting.factored import FactoredFit, FactoredUncertainty, _Model, _Search
from kronfield.fitting.forms import (
    Form,
    check_features,
    factored_cost,
    inducing_count,
    part_counts,
    select_form,
)
from kronfield.fitting.gaussians import likely_gaussians
from kronfield.fitting.grid_choice import _finer
from kronfield.fitting.hold_out import fold_labels
from kronfield.fitting.inputs import PointInput
from kronfield.fitting.line_choice import LineFolds, line_penalty
from kronfield.fitting.options import PointOptions
from kronfield.fitting.point_choice import PointChoice, _grids
from kronfield.fitting.point_grids import Lattice, find_lattice, grid_of, hat_axis
from kronfield.fitting.point_search import (
    HeldOutWalk,
    LatticeTrial,
    RidgeLadder,
    RoughnessLadder,
    Trial,
    Walk,
    _windows,
)
from kronfield.fitting.point_units import directional_units, lowest_units
from kronfield.fitting.points import _tolerance
from kronfield.fitting.prediction import leave_one_out
from kronfield.fitting.report import Candidate
from kronfield.fitting.slopes import Refinement
from kronfield.fitting.smoothing import is_long, windows
from kronfield.solvers.dual.similarity import Pairs, Similarity
from kronfield.solvers.factored.als import Factors, values_at
from kronfield.solvers.points.assemble import RowRule
from kronfield.solvers.points.cg import ConvergenceError
from kronfield.solvers.points.normal import NormalEquations, Penalty

# The energy of the nodes of `test_directional_fill`.
FILLED = [527.9381868628582, 3593.314361898493]


def rough(count, seed=0):
    """A line of steps and corners, on which slopes from the data do well."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.standard_normal(count) * (rng.random(count) < 0.2))


def options():
    return PointOptions(settings=settings.DEFAULT)


def trial(count, dimensions=2, values=None):
    points = np.random.default_rng(1).random((count, dimensions))
    values = np.sin(7 * points[:, 0]) if values is None else values(points)
    return Trial(points, values[None], None, options())


# The table of decisions
# ------------------------------------------------------------------------------------------


def test_every_decision_has_a_test_and_two_other_values():
    tests = [name for name in globals() if name.startswith("test_")]
    for one in settings.decisions():
        if one.group not in OTHER_TESTS:
            assert any(f"{one.group}_{one.name}" in name for name in tests), one
        assert len(one.sides) >= 2
        assert one.value not in one.sides
        assert one.decides.endswith(".")
        assert one.data
        assert one.script


def test_the_page_is_up_to_date():
    with open("docs/choices.md", encoding="utf-8") as file:
        assert file.read() == page(), "run python -m benchmarks.tuning.page"


def test_a_pickle_holds_the_decisions_that_are_not_the_default():
    other = settings.changed(settings.DEFAULT, "grid", "clearly", 2.0)
    assert pickle.loads(pickle.dumps(other)) == other != settings.DEFAULT
    assert pickle.loads(pickle.dumps(settings.DEFAULT)) == settings.DEFAULT
    assert len(pickle.dumps(settings.DEFAULT)) < len(pickle.dumps(other)) < 300
    assert copy.deepcopy(other) == other


def test_other_settings_can_be_handed_in():
    other = settings.changed(settings.DEFAULT, "grid", "shortest_refined", 1000)
    assert kf.fit(rough(100)).report.refined
    assert not kf.fit(rough(100), settings=other).report.refined
    with pytest.raises(kf.InputTypeError, match=r"settings: got .*dataclasses.replace"):
        kf.fit(rough(100), settings={"grid": 1})


def dask_array(values):
    return pytest.importorskip("dask.array").from_array(values, chunks=75)


def calls_with_settings():
    """Small fits of all kinds, as functions of the settings."""
    rng = np.random.default_rng(0)
    x, y = np.arange(40) / 40, np.arange(36) / 36
    clean = np.add.outer(np.sin(7 * x), np.cos(5 * y))
    noisy = clean + 0.1 * rng.standard_normal(clean.shape)
    ring = np.sin(2 * np.pi * np.arange(24) / 24)
    missing = rng.random(clean.shape) < 0.3
    holes = np.zeros(clean.shape, dtype=bool)
    holes[10:14, 8:30] = True
    points = rng.random((150, 2))
    values = np.sin(7 * points[:, 0]) * points[:, 1]
    many = rng.random((60, 4))
    hat = kf.Triangle(12, 2 / 12)

    def statistics(settings):
        one, other = (kf.Statistics(hat, [(0, 1), (0, 1)], settings=settings) for _ in range(2))
        one.add(points, values)
        other.add(points, values)
        return (one + other).solve()

    def statistics_of_dask(settings):
        lazy = dask_array(points), dask_array(values)
        one = kf.Statistics.from_dask(*lazy, hat, [(0, 1), (0, 1)], settings=settings)
        return one.solve(roughness=(0.0, 1e-6))

    def points_of_dask(settings):
        few = replace(settings, lazy=replace(settings.lazy, drawn=100))
        return kf.fit_points(dask_array(points), dask_array(values), settings=few)

    def network(settings):
        nn = pytest.importorskip("kronfield.nn")
        model = nn.CoordinateMLP(kf.Kronecker(hat, hat), depth=0, out=1)
        return nn.train(model, clean, epochs=1, settings=settings)

    def regressor(settings):
        module = pytest.importorskip("kronfield.sklearn")
        return module.FieldRegressor(settings=settings).fit(points, values)

    lat, lon = np.linspace(-80, 80, 9), np.sort(rng.random(11)) * 350
    fit, fit_points, denoise = kf.fit, kf.fit_points, kf.denoise
    return {
        "clean": lambda own: fit(clean, settings=own),
        "noisy": lambda own: fit(noisy, settings=own),
        "uneven": lambda own: fit(clean, [x**1.1, y], settings=own),
        "line": lambda own: fit(np.cumsum(rng.standard_normal(300)), settings=own),
        "periodic": lambda own: fit(ring, periodic=[24.0], settings=own),
        "encoding": lambda own: fit(clean, None, kf.Kronecker(hat, hat), settings=own),
        "mask": lambda own: fit(clean, mask=missing, settings=own),
        "noisy mask": lambda own: fit(noisy, mask=missing, settings=own),
        "holes": lambda own: fit(clean, mask=holes, settings=own),
        "weights": lambda own: fit(noisy, weights=np.where(missing, 0.5, 1.0), settings=own),
        "huber": lambda own: fit(noisy, loss="huber", settings=own),
        "rank": lambda own: fit(clean, rank=3, settings=own),
        "denoise": lambda own: denoise(noisy, settings=own),
        "thorough": lambda own: denoise(noisy, thorough=True, settings=own),
        "given noise": lambda own: fit(noisy, noise=0.1, settings=own),
        "gaps": lambda own: denoise(noisy, mask=missing, noise=0.1, settings=own),
        "points": lambda own: fit_points(points, values, settings=own),
        "blocks": lambda own: fit_points(points, values, hold_out="blocks", settings=own),
        "given": lambda own: fit_points(points, values, kf.Kronecker(hat, hat), settings=own),
        "trend": lambda own: fit_points(points, values, trend=1, loss="huber", settings=own),
        "points on a line": lambda own: fit_points(points[:, :1], values, settings=own),
        "dual": lambda own: fit_points(many, many.sum(axis=1) ** 2, settings=own),
        "factored": lambda own: fit_points(
            many, many.sum(axis=1) ** 2, form="factored", loss="huber", settings=own
        ),
        "form": lambda own: kf.select_form(6, 10**6, options=PointOptions(settings=own)),
        "sphere": lambda own: kf.sphere(np.add.outer(lat, lon), lat, lon, settings=own),
        "statistics": statistics,
        "statistics of Dask": statistics_of_dask,
        "points of Dask": points_of_dask,
        "grid of Dask": lambda own: fit(dask_array(clean), settings=own)(points).compute(),
        "network": network,
        "regressor": regressor,
    }


@pytest.mark.parametrize("name", calls_with_settings())
def test_fits_read_no_other_settings_than_those_handed_in(name, monkeypatch):
    groups = vars(settings.DEFAULT)
    own = settings.Settings(**{group: type(part)() for group, part in groups.items()})
    call = calls_with_settings()[name]
    default, read = {id(part) for part in groups.values()}, set()

    def watched(self, attribute):
        if id(self) in default and attribute in type(self).__dataclass_fields__:
            read.add(f"{type(self).__name__}.{attribute}")
        return object.__getattribute__(self, attribute)

    monkeypatch.setattr(settings._Group, "__getattribute__", watched)
    settings.DEFAULT.grid.clearly  # noqa: B018 - the test can fail
    assert read == {"GridSettings.clearly"}
    read.clear()
    call(own)
    assert not read


# Grids
# ------------------------------------------------------------------------------------------


def test_grid_crop_samples():
    wave = np.sin(np.arange(200_000) / 20)
    inside, outside = wave.copy(), wave.copy()
    middle = np.abs(np.arange(200_000) - 100_000)
    inside[middle > 34_000] = rough(200_000)[middle > 34_000]  # not in the crop
    outside[middle > 3_000] = rough(200_000)[middle > 3_000]  # most of the crop
    assert not kf.fit(inside, noise=0.0).report.refined
    assert kf.fit(outside, noise=0.0).report.refined


def test_grid_direction_samples(monkeypatch):
    sizes = []

    def recorded(crop, settings):
        sizes.append(crop.values[0].size)
        return 0.0, 1.0, 0.0

    monkeypatch.setattr(grid_choice, "_halved_errors", recorded)
    blocks = np.kron(np.random.default_rng(0).random((40, 40)) > 0.5, np.ones((8, 8)))
    assert kf.fit(blocks, noise=0.0).report.refined
    assert 1 << 13 < sizes[0] <= 1 << 14


def test_grid_edge_trust(monkeypatch):
    blocks = np.kron(np.random.default_rng(0).random((8, 8)) > 0.5, np.ones((4, 5)))
    # errors along axes of 1 and along edges of e, without correlation: the best weight is
    # 1 / (1 + e); with correlation it may exceed 1
    for errors, weight in (((1.0, 0.5, 0.0), 0.53), ((1.0, 0.5, 0.6), 1.0), ((1.0, 1.5, 0.0), 0.0)):
        monkeypatch.setattr(grid_choice, "_halved_errors", lambda *_, found=errors: found)
        field = kf.fit(blocks, noise=0.0)
        edges = next(one for one in field.report.candidates if one.kind == "slopes along edges")
        assert edges.parameters.get("weight", 0.0) == weight
        assert edges.chosen == (weight > 0)


def test_grid_clearly():
    assert kf.fit(rough(200), noise=0.0).report.refined
    x = np.linspace(0, 1, 30)
    steep = np.tanh(25 * (x - 0.52))
    report = kf.fit(steep, noise=0.0).report
    ratio = slope_ratio(report)
    assert 1.25 < ratio < 10
    assert not report.refined
    report = kf.fit(rough(400, seed=7), noise=0.0).report
    assert 1.0 < slope_ratio(report) < 1.25
    assert report.refined


def test_of_many_lines_the_better_prediction_decides():
    """The advantage of slopes is for what few lines leave to chance."""
    white = np.fft.rfft(np.random.default_rng(0).standard_normal((120, 100)), axis=0)
    falling = white / (np.fft.rfftfreq(120)[:, None] + 0.01) ** 2.1
    walks = np.fft.irfft(falling, 120, axis=0)[::2]
    walks /= walks.std(axis=0)
    many = kf.fit(walks, channels=True, noise=np.zeros(100)).report
    ratio = slope_ratio(many)
    assert 1.03 < ratio < 1.25
    assert not many.refined
    few = [kf.fit(walks[:, i : i + 1], channels=True, noise=0.0).report for i in range(20)]
    assert any(one.refined and slope_ratio(one) > ratio for one in few)
    assert kf.fit(np.diff(walks, axis=0), channels=True, noise=np.zeros(100)).report.refined


def slope_ratio(report):
    """The error of slopes over that of the best splines."""
    scores = {"splines": math.inf, "slopes": math.inf, "Gaussians": math.inf}
    for one in report.candidates:
        scores[one.kind] = min(scores[one.kind], one.score)
    return math.sqrt(scores["slopes"] / scores["splines"])


def test_grid_shortest_refined():
    blocks = np.kron(np.random.default_rng(0).random((12, 12)) > 0.5, np.ones((4, 5)))
    for count, nodes in ((11, 11), (12, 2 * 12 + 1)):
        field = kf.fit(blocks[:count], noise=0.0)
        assert field.report.refined
        assert field.encoding.shape[0] == nodes + 4


def test_grid_shortest_uneven():
    """Axes of 4 samples beside a longer one are straight between samples, those of 5 are cubic."""
    blocks = np.kron(np.random.default_rng(0).random((8, 9)) > 0.5, np.ones((3, 1)))
    x, y = np.arange(24.0), np.cumsum([0, 1, 2, 1, 3, 1, 1, 2, 1.0])
    for count, nodes in ((4, 4), (5, 2 * 5 + 4)):
        field = kf.fit(blocks[:, :count], [x, y[:count]], noise=0.0, channels=False)
        assert field.report.chosen.kind == "slopes"
        assert field.encoding.shape[1] == nodes


def test_grid_fine_tension():
    assert kf.fit(rough(100), noise=0.0).report.embedders[0].tension == 8.0


def test_grid_most_nodes():
    x = np.arange(5000.0)
    large = np.broadcast_to(np.zeros(()), (1, 5000, 5000))
    part = settings.DEFAULT
    assert "numbers" in _finer(large, [x, x], [sample_frame(x)] * 2, [True] * 2, part)
    small, x = large[:, :2000, :2000], x[:2000]
    found = _finer(small, [x, x], [sample_frame(x)] * 2, [True] * 2, part)
    assert not isinstance(found, str)


def test_grid_held_out_samples(monkeypatch):
    seen = held_out_shapes(monkeypatch, np.zeros((200, 300)) + np.sin(np.arange(300.0)))
    assert 1 << 13 < 4 * math.prod(seen[0]) < 1 << 15


def test_grid_fewest_held_out(monkeypatch):
    wave = np.sin(np.arange(20.0))
    assert held_out_shapes(monkeypatch, np.outer(wave[:13], wave)) == [(7, 10)]
    assert held_out_shapes(monkeypatch, np.outer(wave[:11], wave)) == []


def held_out_shapes(monkeypatch, values):
    """Return the shapes of the lattices that are fitted to measure the error between samples."""
    from kronfield.fitting import grid

    report, shapes, fit = kf.fit(values).report, [], grid.fit

    def fitted(known, *others, **options):
        shapes.append(known.shape[:2])
        return fit(known, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(grid, "fit", fitted)
        assert bool(report.held_out_errors) == bool(shapes)
    return shapes


def test_grid_longest_basis():
    rng = np.random.default_rng(0)
    for count, exact in ((1024, True), (1025, False)):
        noisy = np.sin(np.arange(count) / 50) + 0.2 * rng.standard_normal(count)
        report = kf.fit(noisy, noise=0.2).report
        assert any(report.roughness)
        assert ("eigenbasis" in str(report.methods)) == exact


def test_grid_longest_halves():
    part = settings.DEFAULT.grid
    for count, long in ((8000, False), (8001, True)):
        square = [np.arange(count) + 0.5] * 2
        assert is_long(square, part.longest_basis, part.longest_halves) == long
    for count, long in ((4096, False), (4100, True)):
        thin = [np.arange(count) + 0.5, np.arange(1024) + 0.5]
        assert is_long(thin, part.longest_basis, part.longest_halves) == long


def test_grid_most_removed():
    """Waves on a part of a line, on which the penalty is not judged, must not be removed."""
    i, rng = np.arange(60_000), np.random.default_rng(0)
    noise = 0.2 * rng.standard_normal(len(i))
    waves = np.where((i > 17_000) & (i < 21_500), np.sin(i), 0)
    # shrinkage would have to be better than the penalised fit by far more than chance
    linear = settings.changed(settings.DEFAULT, "noise", "confidence", 1e9)
    unlimited = settings.changed(linear, "grid", "most_removed", math.inf)
    for height, low, high, expected in ((0.2, 1.0, 1.05, False), (0.4, 1.05, 1.5, True)):
        noisy = noise + np.sin(i / 200) + height * waves
        found, free = (kf.fit(noisy, noise=0.2, settings=s) for s in (linear, unlimited))
        removed = float(np.sqrt(np.mean((free.on_grid() - noisy) ** 2))) / 0.2
        assert low < removed < high
        lowered = not np.array_equal(found.weights, free.weights)
        assert lowered == expected


# Predictions
# ------------------------------------------------------------------------------------------


def predicted(values, x=None):
    """The errors of the first axis of values."""
    x = np.arange(float(len(values))) if x is None else x
    return leave_one_out(np.asarray(values, float)[None], 1, x, settings.DEFAULT.prediction)


def test_prediction_fewest():
    assert predicted(rough(4)) is None
    assert predicted(rough(5)) is not None


def width_for(function, count):
    """The width of the Gaussians that are chosen for a function."""
    x = np.linspace(0, 1, count)
    return kf.fit(function(x), [x]).report.chosen.parameters["width"]


def test_prediction_widths():
    assert width_for(lambda x: np.exp(-(((x - 0.43) / 0.1) ** 2)), 20) == 1.0
    assert width_for(lambda x: np.exp(-(((x - 0.43) / 0.06) ** 2)), 60) == 1.5
    assert width_for(lambda x: np.sin(31 * x), 60) == 4.0


def test_prediction_padding():
    assert kf.fit(np.sin(0.5 * np.arange(60))).encoding.shape == (100,)


def has_gaussians(count):
    return any(one.kind == "Gaussians" for one in predicted(rough(count)).families)


def test_prediction_fewest_for_gaussians():
    assert has_gaussians(10)
    assert not has_gaussians(9)


def test_prediction_longest_for_gaussians():
    assert has_gaussians(256)
    assert not has_gaussians(257)


def test_prediction_most_judged():
    assert 1 << 11 < predicted(np.zeros((200, 200))).count <= 1 << 12
    assert predicted(np.zeros((60, 60))).count == 58 * 60


def test_prediction_most_uneven():
    x = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 1000))
    assert predicted(rough(258), x[:258]).count == 256
    assert 200 <= predicted(rough(1000), x).count <= 256


def test_prediction_most_channels():
    """A smooth channel among 65 rough ones is not looked at if it is the second one."""
    x = np.linspace(0, 1, 500)  # with which `most_judged` asks for eight
    for channels, seen in ((64, 64), (65, 33)):
        values = np.zeros((500, channels))
        values[:, 1::2] = rough(500)[:, None]
        values[:, ::2] = np.sin(5 * x)[:, None]
        chosen = kf.fit(values, axes=[x], ridge=0.0).report.chosen
        assert (chosen.kind == "slopes") == (seen == 64)


# Smoothing
# ------------------------------------------------------------------------------------------


def noisy_line(count, waves=1):
    clean = np.sin(2 * np.pi * waves * np.linspace(0, 1, count))
    return clean, clean + 0.2 * np.random.default_rng(count).standard_normal(count)


def test_smoothing_windows():
    part = settings.DEFAULT.smoothing
    for dimensions, side in enumerate((16384, 128, 40, 20), start=1):
        places = windows((50_000,) * dimensions, part.windows[dimensions - 1])
        assert {one.stop - one.start for window in places for one in window} == {side}
    clean, noisy = noisy_line(4000)
    field = kf.fit(noisy)
    assert field.report.degrees_of_freedom < 20
    assert np.std(field.on_grid() - clean) < 0.06 * 0.2


def test_smoothing_tensions():
    for roughness, tension in (((0.1, 0.0), 8.0), ((0.0, 0.1), 0.05)):
        report = kf.fit(rough(30), roughness=roughness).report
        assert report.embedders[0].tension == tension
    assert kf.fit(noisy_line(300)[1]).report.embedders[0].tension == 0.05


def test_smoothing_uneven_line(monkeypatch):
    """Noise on 6000 uneven positions: the penalty is judged by 4096 of them."""
    from kronfield.fitting import smoothing

    seen, plain = [], smoothing._of_order

    def watched(planes, axes, *others):
        seen.append(len(axes[0]))
        return plain(planes, axes, *others)

    monkeypatch.setattr(smoothing, "_of_order", watched)
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(6000))
    smoothing.best_smoothing(rng.standard_normal((1, 6000)), [x], np.eye(1), np.ones(1), 1.0)
    assert set(seen) == {4096}


def test_smoothing_ridge_decades():
    """Little noise has a small ridge, which is not left out, and noise alone a large one."""
    x = np.arange(200) / 200
    wide, noise = kf.Gaussian(60, 0.15), np.random.default_rng(0).standard_normal(200)
    little = kf.fit(np.sin(7 * x) + 0.01 * noise, [x], wide).report.candidates
    assert not little[0].chosen
    assert np.abs(kf.fit(noise, [x], wide).on_grid()).max() < 0.05


def test_smoothing_longest_basis(monkeypatch):
    from kronfield.fitting import smoothing

    seen, plain = [], smoothing._InBasis

    def watched(axes, *others):
        seen.append(len(axes[0]))
        return plain(axes, *others)

    monkeypatch.setattr(smoothing, "_InBasis", watched)
    for count in (400, 401):
        noise = np.random.default_rng(0).standard_normal((1, count))
        smoothing.best_smoothing(noise, [np.arange(float(count))], np.eye(1), np.ones(1), 1.0)
    assert set(seen) == {400}


def test_smoothing_weakest():
    texture = np.random.default_rng(0).standard_normal(200)
    assert kf.fit(texture, noise=1e-5).report.roughness == (0.0, 0.0)  # the best is below 1e-6
    assert 0 < max(kf.fit(texture, noise=0.1).report.roughness) < 0.1


def test_directional_fill():
    """The nodes of fixed values: every constant of the fill changes them."""
    rng = np.random.default_rng(0)
    found = []
    for shape in ((9, 10), (5, 6, 7)):
        axes = [np.arange(float(n)) for n in shape]
        frames = [sample_frame(x) for x in axes]
        lattice = Refinement.of(
            axes, frames, [True] * len(shape), True, settings.DEFAULT.directional
        )
        found.append(float(np.sum(lattice(rng.standard_normal((2, *shape))) ** 2)))
    assert found == pytest.approx(FILLED, rel=1e-9)


# Points
# ------------------------------------------------------------------------------------------


def test_points_fewest():
    rng = np.random.default_rng(0)
    points, values = rng.random((5, 1)), rng.random(5)
    assert "default" in kf.fit_points(points[:4], values[:4]).report.chosen_by
    assert "held out" in kf.fit_points(points, values).report.chosen_by


def test_points_judged():
    assert len(trial(8000).points) == 6000
    assert len(trial(5000).points) == 5000


def units(values, count=400, seed=0):
    """The ratio of the units on two axes."""
    part = settings.DEFAULT.points
    points = np.random.default_rng(seed).random((count, 2))
    first, second = directional_units(
        points,
        values(*points.T),
        [(0.0, 1.0)] * 2,
        count,
        gain=part.units_gain,
        widest=part.widest_units,
        neighbours=part.unit_neighbours,
    )
    return first / second


def test_points_units_gain():
    """Of a field that is alike in all directions, and of one that is twice as fast on one axis."""
    assert units(lambda x, y: np.sin(9 * x) + np.sin(9 * y)) == 1.0
    assert 0.25 < units(lambda x, y: np.sin(9 * x) + np.sin(5 * y)) < 0.9
    # pure noise: the likelihood rises by chance alone
    for seed in range(4):
        rng = np.random.default_rng(seed + 50)
        assert units(lambda x, y, rng=rng: rng.standard_normal(len(x)), seed=seed) == 1.0


def test_points_widest_units():
    """Of a field that varies along one axis only, the search ends at the bound."""
    found = lowest_units(lambda logs: logs[0], 2, math.log(settings.DEFAULT.points.widest_units))
    np.testing.assert_allclose(np.exp(found), [1 / 32, 32])


def test_points_held_out():
    found = trial(1000)
    assert len(found.folds) == 1
    assert found.folds[0].mean() == pytest.approx(0.2)


def test_points_held_out_of_lattice():
    points = np.stack(np.divmod(np.arange(2500.0), 50), axis=1)
    lattice = [Lattice(0.0, 1.0, 50)] * 2
    found = LatticeTrial(points, points.T[:1], None, lattice, options())
    assert found.folds[0].mean() == pytest.approx(0.1)


def test_points_windows_per_axis():
    for shape, count in (((10**5,), 9), ((480, 480), 9), ((60, 60, 60), 8)):
        assert len(_windows(shape, 0.25, settings.DEFAULT.points)) == count


def test_points_sparse():
    for density, count in ((0.16, 9), (0.14, 1)):
        assert len(_windows((480, 480), density, settings.DEFAULT.points)) == count


def test_points_margin():
    """Held-out points are two spacings inside of their windows, but not of the lattice."""
    points = np.stack(np.divmod(np.arange(250.0 * 250), 250), axis=1)
    found = LatticeTrial(points, points.T[:1], None, [Lattice(0.0, 1.0, 250)] * 2, options())
    near = []
    for window, held in zip(found.windows, found.folds, strict=True):
        for part, line in zip(window, found.nodes[held].T, strict=True):
            assert part.start > 0
            near += [line.min() - part.start, part.stop - 1 - line.max()]
    assert min(near) == 2


def test_points_blocks():
    points = np.random.default_rng(0).random((4000, 2))
    label = fold_labels(points, 5, PointOptions(hold_out="blocks").blocks, np.random.default_rng(0))
    cells = (points * 10).astype(int)
    # the blocks are tenths of the sides: all points of one have the same fold, and no larger ones
    mixed = [len(set(label[(cells == cell).all(axis=1)])) > 1 for cell in np.ndindex(10, 10)]
    assert np.mean(mixed) < 0.6
    wide = (points * 5).astype(int)
    mixed = [len(set(label[(wide == cell).all(axis=1)])) > 1 for cell in np.ndindex(5, 5)]
    assert np.mean(mixed) > 0.8


def test_points_occupied():
    """Six pairs of clusters: pairs are taken apart, so that folds are alike, clusters are not."""
    rng = np.random.default_rng(0)
    pairs = np.array([(x, y) for x in (0.0, 0.43, 0.98) for y in (0.0, 0.98)])
    clusters = np.concatenate([pairs, pairs + 0.01])
    points = np.concatenate([one + 1e-4 * rng.random((30, 2)) for one in clusters])
    # of 10 x 10 blocks, six have points, a pair each; blocks are halved until ten have
    label = fold_labels(points, 5, 100, np.random.default_rng(0)).reshape(12, 30)
    assert (label == label[:, :1]).all()
    assert (label[:6, 0] != label[6:, 0]).any()
    # blocks are not halved where six are enough
    label = fold_labels(points, 3, 100, np.random.default_rng(0)).reshape(12, 30)
    assert (label[:6, 0] == label[6:, 0]).all()


class Held:
    """How many points coverage is measured at."""

    def __init__(self, monkeypatch):
        from kronfield.fitting import points as module

        self.counts = []
        monkeypatch.setattr(module.Coverage, "of", lambda p, *_: self.counts.append(len(p)))

    def of(self, count):
        x = np.linspace(0, 1, count)[:, None]
        field = kf.fit_points(x, np.sin(9 * x[:, 0]), kf.Triangle(20, 0.1), roughness=(0, 1e-6))
        _ = field.report.coverage
        return self.counts[-1]


def test_points_coverage_points(monkeypatch):
    held = Held(monkeypatch)
    assert held.of(30_000) == 2000
    assert held.of(15_000) == 1500


def test_points_fewest_covered(monkeypatch):
    held = Held(monkeypatch)
    assert held.of(30) == 30
    with pytest.raises(kf.InputError, match="at least 30"):
        held.of(26)


def test_points_coverage_part(monkeypatch):
    assert Held(monkeypatch).of(5000) == 500


def test_points_well_covered(monkeypatch):
    held = Held(monkeypatch)
    assert held.of(300) == 300  # ten tenths
    assert held.of(600) == 420  # seven


def test_points_coverage_draws_and_points_coverage_iterations(monkeypatch):
    seen = []

    def watched(self, points, draws, seed):
        seen.append((draws, self.limit))
        return np.ones(len(points))

    monkeypatch.setattr(Uncertainty, "relative", watched)
    Held(monkeypatch).of(100)
    assert seen == [(16, 200)] * 10


def uncertainty(count):
    """The uncertainty of a fit with count² weights."""
    points = np.random.default_rng(0).random((50, 2))
    hats = kf.Triangle(count, 2 / count)
    field = kf.fit_points(points, points[:, 0] ** 2, hats, roughness=(0.01, 0.01))
    return field._uncertainty


def test_points_exact_errors():
    assert uncertainty(45).exact  # 2025 weights
    assert not uncertainty(46).exact


def test_points_interpolating():
    """Residuals show the noise if more than a hundredth of the degrees of freedom is left."""
    own = uncertainty(10)
    energy = own.equations.residual_energy(own.solution, own.penalty)
    for left, of_residuals in ((0.02, True), (0.005, False)):
        equations = replace(own.equations, count=10_000)
        one = replace(own, equations=equations)
        one.__dict__["degrees_of_freedom"] = (1 - left) * 10_000
        plain = own.scale * np.sqrt(energy / (left * 10_000))
        assert (one.noise == pytest.approx(plain)) == of_residuals


def test_points_unit_neighbours(monkeypatch):
    from kronfield.fitting import point_units

    seen, pairs = [], point_units._pairs

    def watched(points, values, neighbours):
        seen.append(neighbours)
        return pairs(points, values, neighbours)

    monkeypatch.setattr(point_units, "_pairs", watched)
    points = np.random.default_rng(0).random((20, 2))
    kf.fit_points(points, points[:, 0])
    assert 4 <= min(seen) <= max(seen) <= 16


def test_points_few_points():
    assert len(trial(600).folds) == 5
    assert len(trial(601).folds) == 1


def counts(points):
    box = [(0.0, 1.0), (0.0, 1.0)]
    return {one.name: one.counts[0] for one in _grids(box, points, None, settings.DEFAULT.points)}


def test_points_spline_cells():
    assert counts(1000)["splines"] == math.ceil(math.sqrt(1000)) + 2  # 36 with the ends


def test_points_hat_cells():
    assert counts(1000)["hats"] == math.ceil(math.sqrt(4000)) + 1


def test_points_few_hat_cells():
    assert counts(500)["hats"] == math.ceil(math.sqrt(1500)) + 1


def test_points_fine_hat_cells():
    assert counts(1000)["fine hats"] == math.ceil(math.sqrt(16000)) + 1


def test_points_most_fine_unknowns():
    assert "fine hats" in counts(30_000)
    assert "fine hats" not in counts(40_000)


class Scripted(Walk):
    """A walk with a score that is a function of the decade and of the ratio or 0."""

    def __init__(self, score, ladder=None):
        ladder = ladder or RoughnessLadder((1.0,), settings.DEFAULT.search)
        super().__init__(ladder, "", settings.DEFAULT.points.gain)
        self.script = score

    def _score(self, penalty, best):
        del best
        if penalty.ridge:
            return self.script(math.log10(penalty.ridge), 0.0)
        first, second = penalty.roughness
        return self.script(math.log10(second), first / second)


def test_points_gain():
    for part, far in ((0.005, True), (0.0001, False)):  # each step to the left gains this part
        walk = Scripted(lambda decade, ratio, part=part: (1 - part) ** -decade + (ratio > 0))
        assert (walk.run().best[0] == -6) == far


def ridge_ladder():
    return RidgeLadder(1.0, settings.DEFAULT.search)


def test_search_decades():
    assert Scripted(lambda decade, _: math.exp(decade)).run().best[0] == -6
    assert Scripted(lambda decade, _: math.exp(-decade)).run().best[0] == 5


def test_search_ridge_decades():
    assert Scripted(lambda decade, _: math.exp(decade), ridge_ladder()).run().best[0] == -12
    assert Scripted(lambda decade, _: math.exp(-decade), ridge_ladder()).run().best[0] == 4


def test_search_ratios():
    for wanted in (0.0, 0.1, 1.0, 4.0, 16.0, 64.0):

        def score(decade, ratio, at=wanted):
            return 1 + abs(math.log((ratio + 0.01) / (at + 0.01))) + 20 * abs(decade + 2)

        walk = Scripted(score)
        assert walk.run().penalty.roughness == pytest.approx((wanted * 0.01, 0.01))


def test_search_line_ratios():
    for wanted in (-6.0, 4.0):
        folds = ScriptedLine(lambda ratio, at=wanted: 1 + abs(ratio - at))
        first, second = line_penalty(folds, (1.0,), settings.DEFAULT.search).roughness
        assert math.log10(first / second) == pytest.approx(wanted)


class ScriptedLine:
    """Folds of a line whose error is a function of the ratio of derivatives, as a power of ten."""

    def __init__(self, error):
        self.script = error

    def error(self, penalty):
        first, second = penalty.roughness
        return self.script(math.log10(first / second))


def test_search_line_starts():
    seen = []
    folds = ScriptedLine(lambda ratio: seen.append(round(ratio, 6)) or 1.0)
    line_penalty(folds, (1.0,), settings.DEFAULT.search)
    assert {-6.0, -4.0, -2.0, 0.0, 2.0, 4.0} <= set(seen)
    assert len(seen) < 100


def test_search_line_steps():
    """Half a power of ten is resolved, a quarter is not."""
    for wanted, found in ((0.5, {0.5}), (0.25, {0.0, 0.5})):
        folds = ScriptedLine(lambda ratio, at=wanted: 1 + abs(ratio - at))
        first, second = line_penalty(folds, (1.0,), settings.DEFAULT.search).roughness
        assert round(math.log10(first / second), 6) in found


def test_search_line_points():
    x = np.arange(20_000.0)[:, None]
    rule = RowRule.choose(*grid_of(hat_axis, [(0.0, 19_999.0)], [20_000]), "exact")
    folds = LineFolds(rule, x, np.sin(x.T), None, settings.DEFAULT.search, 0)
    assert len(folds.parts) == 3  # of 2000 points each


def test_search_line_folds():
    x = np.arange(300.0)[:, None]
    rule = RowRule.choose(*grid_of(hat_axis, [(0.0, 299.0)], [300]), "exact")
    folds = LineFolds(rule, x, np.sin(x.T), None, settings.DEFAULT.search, 0)
    assert len(folds.parts) == 10
    assert {part.values.shape[0] for part in folds.parts} == {30}


def test_search_smooth_starts():
    """A minimum among smooth fits is found beyond a ridge that a search cannot cross."""

    def two_minima(decade, ratio):
        rough, smooth = 1 + abs(decade + 2.0) + (ratio != 4.0), 0.5 + abs(decade - 0.8) + ratio
        return min(rough, smooth)

    assert Scripted(two_minima).run().best == (1.0, 0)
    none = settings.changed(settings.DEFAULT, "search", "smooth_starts", ()).search
    assert Scripted(two_minima, RoughnessLadder((1.0,), none)).run().best == (-2.0, 3)


def test_search_steps():
    """Half a decade is resolved, a quarter is not."""
    assert Scripted(lambda decade, _: 1 + abs(decade + 2.55)).run().best[0] == -2.5
    assert Scripted(lambda decade, _: 1 + abs(decade + 2.3)).run().best[0] == -2.5


def test_search_ridge_steps():
    assert Scripted(lambda decade, _: 1 + abs(decade + 4.55), ridge_ladder()).run().best[0] == -4.5
    assert Scripted(lambda decade, _: 1 + abs(decade + 4.3), ridge_ladder()).run().best[0] == -4.5


def test_search_start():
    """Of two penalties that are the best of their surroundings, the one near -2 is found."""
    walk = Scripted(lambda decade, _: 1 + min(abs(decade + 2) + 0.3, abs(decade + 5), decade**2))
    walk.script = lambda decade, _: 1 + min(abs(decade + 2) + 0.3, abs(decade + 5), abs(decade - 2))
    assert walk.run().best[0] == -2
    points = np.random.default_rng(0).random((700, 2))
    first = kf.fit_points(points, np.sign(points[:, 0] - 0.4)).report.candidates[0]
    assert first.parameters["roughness"] == pytest.approx((0.04, 0.01))


def test_search_ridge_start():
    walk = Scripted(
        lambda decade, _: 1 + min(abs(decade + 6) + 0.3, abs(decade + 10), abs(decade + 2)),
        ridge_ladder(),
    )
    assert walk.run().best[0] == -6


class Slow:
    """Equations that take a known number of iterations."""

    def __init__(self, iterations):
        self.iterations = iterations

    def solve(self, penalty, *, limit, **_):
        del penalty
        if self.iterations > limit:
            raise ConvergenceError("more iterations")
        raise SolvedError


class SolvedError(Exception):
    """The iterations were enough."""


def test_search_iterations():
    found = trial(1000)
    ladder = RoughnessLadder((1.0, 1.0), settings.DEFAULT.search)
    with pytest.raises(SolvedError):
        HeldOutWalk(found, [Slow(400)], ladder, "").score(ladder.start)
    assert HeldOutWalk(found, [Slow(401)], ladder, "").score(ladder.start) == math.inf


def test_search_probes(monkeypatch):
    seen, solve = [], NormalEquations.solve

    def counted(self, penalty, **options):
        seen.append(len(options["rhs"]) if options.get("rhs") is not None else 0)
        return solve(self, penalty, **options)

    monkeypatch.setattr(NormalEquations, "solve", counted)
    statistics = kf.Statistics(kf.Triangle(10, 0.2), [(0, 1), (0, 1)])
    points = np.random.default_rng(0).random((300, 2))
    statistics.add(points, np.sin(5 * points[:, 0]))
    statistics.solve()
    assert set(seen) == {1 + 4, 0}  # the values and the probes; the field in the end


def test_points_lattice_tension():
    rng = np.random.default_rng(0)
    nodes = np.indices((40, 40)).reshape(2, -1).T[rng.random(1600) < 0.7].astype(float)
    field = kf.fit_points(nodes, np.sin(nodes[:, 0] / 3), roughness=(0.01, 0.01))
    assert [emb.tension for emb in field.encoding.embedders] == [8.0, 8.0]


def test_points_scattered_windows():
    assert len(trial(40_000).folds) == 8


def test_points_window_axes():
    assert len(trial(40_000, 3).folds) == 8
    assert len(trial(40_000, 4).folds) == 1


def coverage(errors):
    points = np.random.default_rng(0).random((len(errors), 2))
    part = settings.DEFAULT.points
    return Coverage.of(points, errors[:, None], np.ones((len(errors), 1)), part)


@pytest.mark.parametrize("share", [0.90, 0.94, 0.96, 0.98])
def test_points_true_coverage(share):
    errors = np.where(np.arange(20_000) < share * 20_000, 1.0, 2.1)
    found = coverage(np.random.default_rng(1).permutation(errors))
    assert found.inside == pytest.approx(share)
    assert (found.failing is None) == (share in (0.94, 0.96))


def test_points_clustered():
    """Errors vary from place to place a little, a lot, or by chance alone."""
    points, rng = np.random.default_rng(0).random((4000, 2)), np.random.default_rng(6)
    for more, words in ((0.0, "expect smaller"), (1.0, "not the same everywhere")):
        found = coverage(2 * rng.standard_normal(4000) * (1 + more * (points[:, 0] > 0.7)))
        assert words in found.failing
    assert 3 < found.clustered * math.sqrt(4000) < 20  # 1.6 by chance


def test_points_heavy_tails():
    rng = np.random.default_rng(1)
    assert "smaller errors" in coverage(2 * rng.standard_normal(4000)).failing
    assert "heavier tails" in coverage(2 * rng.laplace(size=4000)).failing  # kurtosis 6


def on_lattice(share):
    """Whether points that are this share of a lattice of a million nodes are taken to lie on it."""
    rng = np.random.default_rng(0)
    nodes = rng.choice(160_000, round(160_000 * share), replace=False)
    points = np.stack([nodes // 400, nodes % 400], axis=1).astype(float)
    field = kf.fit_points(points, np.sin(points[:, 0] / 40), roughness=(0.01, 0.01))
    return "lattice" in field.report.chosen_by


def test_points_sparsest_lattice():
    assert on_lattice(1 / 40)
    assert not on_lattice(1 / 100)


def test_points_small_lattice():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for count, found in ((60, True), (70, False)):  # 3600 and 4900 nodes
        points = np.concatenate([corners, [[count - 1.0, count - 1.0]]])
        assert (find_lattice(points, settings.DEFAULT.points) is not None) == found


def test_points_most_unknowns():
    for side, found in ((3000, True), (5000, False)):  # 9 and 25 million nodes
        points = np.random.default_rng(0).integers(0, side, (500_000, 2)).astype(float)
        assert (find_lattice(points, settings.DEFAULT.points) is not None) == found
    assert counts(10_000_000)["hats"] == 4096 + 1  # not 40 million


def test_points_spline_tension():
    points = np.random.default_rng(0).random((700, 1))
    field = kf.fit_points(points, np.sin(300 * points[:, 0]) + np.sin(5 * points[:, 0]))
    assert field.report.chosen.kind == "splines"
    assert field.encoding.embedders[0].tension == 0.05


def test_points_default_roughness():
    field = kf.fit_points(np.array([[0.0], [0.3], [1.0]]), np.array([0.0, 1.0, 0.0]))
    assert "default" in field.report.chosen_by
    assert field.report.roughness == (1e-3, 1e-3)
    assert 0.001 < field.report.residual < 0.02


def test_points_default_ridge():
    field = kf.fit_points(
        np.array([[0.0], [0.3], [1.0]]), np.array([0.0, 1.0, 0.0]), kf.Gaussian(5, 0.2)
    )
    assert "default" in field.report.chosen_by
    assert field.report.ridge == 1e-6


def rows(width, points, size=100):
    """The kind of rows that are used for Gaussians on a plane, of this width in samples."""
    where = np.random.default_rng(0).random((points, 2))
    encoding = kf.Gaussian(size, width / size)
    field = kf.fit_points(
        where, where[:, 0], encoding, ridge=1e-3, domain=[(0, 1)] * 2, tolerance=0.1
    )
    return field.report.rows


def test_points_longest_row():
    """Rows of 15² and 19² entries, of so many points that all together are large."""
    assert rows(0.8, 19_000, 40) == "exact rows"
    assert rows(1.2, 19_000, 40) != "exact rows"
    summaries = [kf.Statistics(kf.Gaussian(40, width / 40), [(0, 1)] * 2) for width in (0.8, 1.2)]
    assert ["exact" in repr(one) for one in summaries] == [True, False]


def test_points_few_entries():
    """Rows of 35² entries."""
    assert rows(2.5, 1000, 40) == "exact rows"
    assert rows(2.5, 4000, 40) != "exact rows"


def tolerance(error, dtype=np.float64, chosen=True, **limits):
    """The tolerance of the solver for a predicted error."""
    tried = [Candidate("hats")] if chosen else []
    choice = PointChoice(kf.Kronecker(kf.Triangle(4, 0.5)), (), Penalty(), error, "", tried)
    return _tolerance(choice, options(), np.dtype(dtype), **limits)


def test_points_part_of_error():
    assert tolerance(0.02) == pytest.approx(0.001)


def test_points_tightest():
    assert tolerance(1e-9) == 1e-5
    assert tolerance(1e-9, np.float32) == 1e-5


def test_points_loosest():
    assert tolerance(1.0) == 0.02
    assert tolerance(1.0, loosest=1e-3) == 1e-3


def test_points_tolerance():
    assert tolerance(0.02, chosen=False) == 1e-3


def test_points_iterations():
    given = {"ridge": None, "roughness": None}
    assert PointOptions.checked(2, **given).iterations == 2000
    assert PointOptions.checked(2, **given, iterations=7).iterations == 7


def gaussian_trial(count, values, dimensions=1, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.random((count, dimensions))
    y = values(*points.T) + noise * rng.standard_normal(count)
    return Trial(points, y[None], None, options())


def widths(found):
    return [
        emb.width * frame.length / (frame.high - frame.low)
        for emb, frame in zip(found.encoding.embedders, found.frames, strict=True)
    ]


def test_gaussians_fewest():
    part, box = settings.DEFAULT.gaussians, [(0.0, 1.0)]
    assert likely_gaussians(gaussian_trial(9, np.sin), box, part) is None
    assert likely_gaussians(gaussian_trial(10, np.sin), box, part) is not None


def test_gaussians_narrowest():
    walk = np.cumsum(np.random.default_rng(5).standard_normal(600)) / 10
    rugged = gaussian_trial(300, lambda x: np.interp(x, np.linspace(0, 1, 600), walk))
    found = likely_gaussians(rugged, [(0.0, 1.0)], settings.DEFAULT.gaussians)
    assert 0.01 <= min(widths(found)) < 0.015  # the next narrower step would be 0.009


def test_gaussians_widest():
    plain = gaussian_trial(100, lambda x: 3 * x, noise=0.3)
    found = likely_gaussians(plain, [(0.0, 1.0)], settings.DEFAULT.gaussians)
    assert 1.5 < max(widths(found)) <= 2.0  # the next wider step would be 2.3


def test_gaussians_ridge_decades():
    box, part = [(0.0, 1.0)], settings.DEFAULT.gaussians
    exact = likely_gaussians(gaussian_trial(60, np.sin), box, part)
    noise = gaussian_trial(100, lambda x: 0 * x, noise=1.0, seed=1)
    for found, low, high in ((exact, 0.0, 1e-9), (likely_gaussians(noise, box, part), 0.5, 11)):
        rows = found.rows(np.linspace(0, 1, 200)[:, None])
        largest = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[-1] * 100
        assert low <= found.ridge / largest < high


def test_gaussians_most_features():
    """Where Gaussians narrower than all that are allowed would be likelier: 13^3 features."""
    wavy = gaussian_trial(600, lambda x, y, z: np.sin(30 * x) * np.cos(30 * y + 9 * z), 3)
    found = likely_gaussians(wavy, [(0.0, 1.0)] * 3, settings.DEFAULT.gaussians)
    assert 1000 < math.prod(found.encoding.shape) <= 2500


def test_gaussians_most_of_many():
    wavy = gaussian_trial(700, lambda x, y: np.sin(60 * x) * np.cos(60 * y), 2)
    found = likely_gaussians(wavy, [(0.0, 1.0)] * 2, settings.DEFAULT.gaussians)
    assert 100 < math.prod(found.encoding.shape) <= 300


def test_gaussians_gain():
    def found(ratio):
        values = gaussian_trial(
            40, lambda x, y: np.sin(4 * x) + np.sin(4 * ratio * y), 2, noise=0.1, seed=5
        )
        return widths(likely_gaussians(values, [(0.0, 1.0)] * 2, settings.DEFAULT.gaussians))

    alike, different = found(1.0), found(1.6)
    assert alike[0] == pytest.approx(alike[1])
    assert different[0] != pytest.approx(different[1], rel=0.1)


def corner(seed):
    """The report of a line with a corner, on which Gaussians and splines are about as good."""
    rng = np.random.default_rng(seed)
    points = rng.random((60, 1))
    return kf.fit_points(points, np.abs(points[:, 0] - 0.4) + 0.02 * rng.standard_normal(60)).report


def test_points_chance():
    for seed, kind, low, high in ((31, "Gaussians", 0.5, 0.95), (44, "splines", 1.1, 50.0)):
        report = corner(seed)
        gaussians = min(one.score for one in report.candidates if one.kind == "Gaussians")
        others = min(one.score for one in report.candidates if one.kind != "Gaussians")
        assert low < (gaussians / others - 1) * math.sqrt(60) < high
        assert report.chosen.kind == kind


def test_prediction_highest(monkeypatch):
    """Of 100 frequencies the highest eighth is left out: waves below them are predicted exactly."""
    from kronfield.fitting import circles

    x = np.arange(200) / 200
    found = []
    monkeypatch.setattr(
        circles, "_trigonometric_errors", lambda *given: found.append(given) or given[0]
    )
    kf.fit(np.sin(2 * np.pi * x), axes=[x], periodic=[1.0], noise=0.0)
    highest = found[0][1]
    for frequency, exact in ((80, True), (95, False)):
        wave = np.sin(2 * np.pi * frequency * x)[:, None]
        assert (np.abs(_trigonometric_errors(wave, highest)).max() < 1e-9) == exact


def test_prediction_seen():
    """Sixteen samples of a period: the highest cosine is 1 at those of the kernel, 0 between."""
    for cosine, tried in ((0.2, True), (0.05, False)):
        x = (np.arange(16) + math.acos(cosine) / math.pi) / 16
        waves = TrigonometricFamily(settings.DEFAULT.prediction.seen)
        assert waves.fits(x, Frame(0.0, 1.0, 0.0, 1.0)) == tried


# Many dimensions
# ------------------------------------------------------------------------------------------


def test_dual_least_dimensions():
    assert select_form(3, 300, None, options()).name == "grid"
    assert select_form(4, 300, None, options()).name == "dual"


def test_dual_lattice_nodes():
    assert select_form(6, 300, None, options(), nodes=500).name == "grid"
    assert select_form(6, 300, None, options(), nodes=700).name == "dual"


def test_dual_most_grid_dimensions():
    assert select_form(4, 300, "grid", options()).name == "grid"
    with pytest.raises(kf.InputError, match="at most 4 dimensions"):
        select_form(5, 300, "grid", options())


def test_dual_most_features():
    check_features((64,) * 4, options())
    with pytest.raises(kf.InputError, match="encoding"):
        check_features((64,) * 5, options())


def dual_fit(count):
    points = np.random.default_rng(0).random((count, 2))
    given = PointInput(points, points[:, 0] ** 2, None, None, None)
    return DualFit(given, options(), Form("dual", "asked for"))


def pairs_compared(monkeypatch, count):
    """Return the numbers of points in the likelihoods that are maximised, in order."""
    from kronfield.fitting import dual

    seen = []

    class Counted(dual.Pairs):
        def __init__(self, points):
            seen.append(len(points))
            super().__init__(points[:20])

    monkeypatch.setattr(dual, "Pairs", Counted)
    monkeypatch.setattr(
        dual.Likelihood, "maximum", lambda self, start, ridge, *_: (start, ridge, 0.0)
    )
    fit = dual_fit(count)
    fit._choose(fit.given.values)
    return seen


def test_dual_shape_points(monkeypatch):
    assert pairs_compared(monkeypatch, 2000)[0] == 400


def test_dual_width_points(monkeypatch):
    assert pairs_compared(monkeypatch, 2000)[1] == 1000
    assert pairs_compared(monkeypatch, 300) == [300]


def test_dual_direct_points():
    assert dual_fit(5000)._is_direct
    assert not dual_fit(5001)._is_direct


def test_dual_inducing_points():
    assert inducing_count(20_000, options()) == 1000
    assert 200 < inducing_count(1_000_000, options()) < 1000


def test_dual_most_sums():
    assert inducing_count(500_000, options()) == int(math.sqrt(4e11 / 500_000))
    assert inducing_count(1_000_000, options()) == int(math.sqrt(4e5))


def test_dual_fewest_inducing():
    assert inducing_count(10**9, options()) == 200


def test_dual_clear(monkeypatch):
    """Factored weights are tried unless the dual form explains all but a part of 1e-5."""
    from kronfield.fitting import many

    monkeypatch.setattr(many.FactoredFit, "choose", lambda *_: pytest.fail("is tried"))
    rng = np.random.default_rng(0)
    x = rng.random((300, 4))
    form, smooth = Form("either", "so that both are tried"), np.sin(x.sum(axis=1))
    used = PointOptions(settings=settings.changed(settings.DEFAULT, "dual", "direct_points", 100))

    def fitted(noise):
        values = smooth + noise * rng.standard_normal(300)
        given = PointInput(x, values, None, None, None)
        return many.fit_many(given, used, form, 0.0).report.candidates[0].score

    assert 1e-6 < fitted(3e-4) < 3e-3
    with pytest.raises(pytest.fail.Exception):
        fitted(0.03)


def test_dual_width_prior():
    fit = dual_fit(40)
    part = np.arange(40)
    pairs = Pairs(fit.points)
    likelihood = fit._likelihood(fit.given.values, part, "gaussian", pairs)
    assert likelihood.prior == 1.0
    # an axis without effect is wider with the prior
    noisy = fit.given.values + np.random.default_rng(1).standard_normal((1, 40))
    found = [
        replace(fit._likelihood(noisy, part, "gaussian", pairs), prior=prior).maximum(
            Similarity("gaussian", (0.5, 0.5)), 0.1, fit.points.std(axis=0), 40
        )[0]
        for prior in (0.0, 1.0)
    ]
    assert min(found[1].widths) > min(found[0].widths)


def test_dual_starts():
    """Waves are found from narrow Gaussians and a small ridge, waves in noise from wide ones."""
    rng = np.random.default_rng(0)
    x = rng.random((80, 5))
    waves = np.sin(25 * x[:, 0]) + 0.3 * x[:, 1]
    assert kf.fit_points(x, waves, form="dual").report.chosen.score < -2
    rng.standard_normal(80)
    noisy = np.sin(12 * x[:, 0]) + 0.7 * rng.standard_normal(80)
    assert kf.fit_points(x, noisy, form="dual").report.chosen.score < 2.05


def test_dual_widths():
    """Waves along an axis are followed, and an axis without effect is left out."""
    fit = dual_fit(200)
    waves, spread = np.sin(100 * fit.points[:, :1].T), fit.points.std(axis=0)
    likelihood = fit._likelihood(waves, np.arange(200), "gaussian", Pairs(fit.points))
    start = Similarity("gaussian", (0.02, 1.0))
    narrow, wide = likelihood.maximum(start, 1e-3, spread, 40)[0].widths / spread
    assert narrow < 0.2
    assert wide > 10


@pytest.mark.parametrize("direct_points", [50, 1000])
def test_dual_ridges(direct_points):
    """Exact values have hardly a ridge, and noise alone a large one, with inducing points too."""
    x = np.random.default_rng(1).random((200, 4))
    noise = np.random.default_rng(1).standard_normal(200)
    used = settings.changed(settings.DEFAULT, "dual", "direct_points", direct_points)
    for values, low, high in ((x.sum(axis=1) ** 2, 0, 1e-6), (noise, 1, 100)):
        given = PointInput(x, values, None, None, None)
        fit = DualFit(given, PointOptions(settings=used), Form("dual", "asked for"))
        fit.field(given.values, 0.0)
        assert low < fit.system.ridge < high


def test_dual_default_ridge():
    """Two points are met, unless they nearly coincide: then the field has their mean there."""
    x, y = np.full((2, 4), 0.3), np.array([1.0, 2.0])
    x[1] = 0.9
    assert np.abs(kf.fit_points(x, y, form="dual")(x) - y).max() < 1e-3
    x[1] = 0.3 + 3e-7
    field = kf.fit_points(x, y, form="dual", domain=[(0, 1)] * 4)
    np.testing.assert_allclose(field(x), 1.5, atol=0.2)


def searched_steps(monkeypatch, count):
    """The most iterations of each search for widths and ridge."""
    from kronfield.solvers.dual.likelihood import Likelihood

    seen = []
    monkeypatch.setattr(
        Likelihood,
        "maximum",
        lambda _, start, ridge, __, most, *___: seen.append(most) or (start, ridge, 0.0),
    )
    fit = dual_fit(count)
    fit._choose(fit.given.values)
    return seen


def test_dual_steps(monkeypatch):
    assert set(searched_steps(monkeypatch, 50)) == {40}


def test_dual_last_steps(monkeypatch):
    assert searched_steps(monkeypatch, 450)[-1] == 25


def test_dual_most_pairs():
    assert part_counts(10, 5000, options()) == (400, 1000)
    few, many = part_counts(300, 5000, options())
    assert 200 < few == many < 400


def factored_fit(count, columns=1, **changes):
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.random((count, columns)), rng.integers(0, 10, count)])
    given = PointInput(points, np.sin(9 * points[:, 0]), None, None, None)
    return FactoredFit(given, options(), Form("factored", "asked for"))


def test_factored_splines():
    assert [emb.size for emb in factored_fit(400).embedders] == [12, 10]


def test_factored_points_per_spline():
    assert 5 <= factored_fit(24).embedders[0].size <= 8
    assert factored_fit(40).embedders[0].size > factored_fit(24).embedders[0].size


def test_factored_few_values():
    assert [emb.degree for emb in factored_fit(400).embedders] == [3, 1]
    points = np.random.default_rng(0).integers(0, 20, (400, 2)).astype(float)
    given = PointInput(points, points[:, 0], None, None, None)
    fit = FactoredFit(given, options(), Form("factored", "asked for"))
    assert [emb.degree for emb in fit.embedders] == [3, 3]


def test_factored_most_splines():
    x = np.random.default_rng(0).random((1500, 4))
    values = np.sin(60 * x[:, 0]) + (x[:, 1] > 0.3)
    field = kf.fit_points(x, values, form="factored")
    assert max(emb.size for emb in field.embedders) == 48


def test_factored_most_products(monkeypatch):
    from kronfield.fitting import factored

    monkeypatch.setattr(factored._Search, "compared", lambda self, model, _: better(model))
    monkeypatch.setattr(factored._Search, "swept", lambda self, model, _: better(model))
    monkeypatch.setattr(factored._Search, "refined", lambda self, model: model)
    monkeypatch.setattr(factored._Search, "without_idle", lambda self, model: model)

    def better(model):
        return replace(model, error=0.5**model.factors.rank)

    fit = factored_fit(200)
    fit.choose(fit.given.values)
    assert fit.models[0].factors.rank == 16


def test_factored_settings_points():
    assert len(factored_fit(20_000).part) == 8000
    assert len(factored_fit(20_000).held) == 2000


def test_factored_settings_share():
    part = settings.DEFAULT.factored.part
    assert part(100_000) == 8000
    assert part(300_000) == 15_000
    assert part(10_000_000) == 40_000


def test_factored_most_work():
    assert 1e10 < settings.DEFAULT.factored.work(8000) < 4e10
    assert factored_cost(10, 20_000, 1, options())[0] < 10


def test_factored_last_sweeps(monkeypatch):
    from kronfield.fitting import factored

    seen = []
    plain = factored.Sweeper.sweeps
    monkeypatch.setattr(
        factored.Sweeper,
        "sweeps",
        lambda self, f, p, most: seen.append(most) or plain(self, f, p, 1),
    )
    fit = factored_fit(100)
    fit.field(fit.given.values, 0.0)
    assert seen[-1] == 5


def test_factored_most_points(monkeypatch):
    assert factored_cost(6, 10**7, 1, options()) == factored_cost(6, 4 * 10**6, 1, options())
    assert factored_cost(6, 2 * 10**6, 1, options()) < factored_cost(6, 10**7, 1, options())


def test_factored_judged_points():
    seconds = [select_form(6, P, None, options()).seconds for P in (100_000, 100_001)]
    both = [select_form(6, 100_000, form, options()).seconds for form in ("dual", "factored")]
    assert seconds[0] == pytest.approx(sum(both))
    assert settings.DEFAULT.factored.judged_points == 100_000


def found_rank(monkeypatch, *errors):
    """Return the rank that is chosen if main effects and each further product have these errors."""
    from kronfield.fitting import factored

    given = iter(errors)

    def next_error(self, model, _):
        return replace(model, error=next(given, math.inf))

    monkeypatch.setattr(factored._Search, "compared", next_error)
    monkeypatch.setattr(factored._Search, "swept", next_error)
    monkeypatch.setattr(factored._Search, "refined", lambda self, model: model)
    monkeypatch.setattr(factored._Search, "without_idle", lambda self, model: model)
    fit = factored_fit(200, columns=4)
    fit.choose(fit.given.values)
    return fit.models[0].factors.rank


def test_factored_gain(monkeypatch):
    assert found_rank(monkeypatch, 1.0, 0.99) == 1
    assert found_rank(monkeypatch, 1.0, 0.9995) == 0


def test_factored_patience(monkeypatch):
    assert found_rank(monkeypatch, 1.0, 1.0, 1.0, 0.5) == 1
    assert found_rank(monkeypatch, 1.0, 1.0, 1.0, 1.0, 0.5) == 0


def sweeps_of(monkeypatch, count=100):
    """Return the numbers of sweeps in the choice of a model."""
    from kronfield.fitting import factored

    seen = []
    plain = factored._Search.swept
    monkeypatch.setattr(
        factored._Search, "swept", lambda self, m, n: seen.append((m, n)) or plain(self, m, n)
    )
    fit = factored_fit(count, columns=2)
    fit.choose(fit.given.values)
    return seen


def test_factored_sweeps(monkeypatch):
    assert sweeps_of(monkeypatch)[-1][1] == 4


def test_factored_first_sweeps(monkeypatch):
    assert sweeps_of(monkeypatch)[0][1] == 8


def test_factored_compared_at(monkeypatch):
    """Each product helps: penalties are compared at some numbers of products, not at others."""
    from kronfield.fitting import factored

    compared = []

    def better(model):
        return replace(model, error=0.5**model.factors.rank)

    monkeypatch.setattr(
        factored._Search,
        "compared",
        lambda self, model, _: compared.append(model.factors.rank) or better(model),
    )
    monkeypatch.setattr(factored._Search, "swept", lambda self, model, _: better(model))
    monkeypatch.setattr(factored._Search, "refined", lambda self, model: model)
    monkeypatch.setattr(factored._Search, "without_idle", lambda self, model: model)
    fit = factored_fit(200)
    fit.choose(fit.given.values)
    assert compared == [0, 1, 2, 4, 8, 12, 16]


def test_factored_fewest(monkeypatch):
    monkeypatch.setattr(_Search, "best", lambda *_: pytest.fail("is searched"))
    fit = factored_fit(7)
    fit.choose(fit.given.values)
    assert fit.models[0].factors.rank == 0
    fit = factored_fit(8)
    with pytest.raises(pytest.fail.Exception):
        fit.choose(fit.given.values)


def test_factored_held_out():
    assert len(factored_fit(400).held) == 100


def test_factored_knots_at_points():
    """A knot lies between its even place, 0.44, and its place among the points, 0.04."""
    x = np.linspace(0, 1, 400) ** 4
    given = PointInput(np.stack([x, x[::-1]], axis=1), x, None, None, None)
    fit = FactoredFit(given, options(), Form("factored", "asked for"))
    assert 0.15 < fit.embedders[0].inner_knots[3] < 0.3


def on_squares(penalty=1e-9, P=100, products=0):
    """A fit at points of a lattice, and a model of it that is zero."""
    y, x = np.divmod(np.arange(P), 10)
    given = PointInput(np.stack([x / 9, y / max(1, y.max())], axis=1), x / 9, None, None, None)
    fit = FactoredFit(given, options(), Form("factored", "asked for"))
    tiny = 1e-3 * np.random.default_rng(0).random((30, products))
    weights = [np.column_stack([np.zeros(e.size), tiny[: e.size]]) for e in fit.embedders]
    return fit, _Model(tuple(fit.embedders), Factors(tuple(weights)), penalty, (True, True), 0.0)


def test_factored_slopes():
    """A straight line keeps a quarter of its slope under a large penalty."""
    fit, model = on_squares(penalty=1000.0)
    plane = fit.points[:, 0] - 0.5
    swept = fit._swept(model, plane, np.arange(100), 1)
    found = values_at(swept.embedders, swept.factors, fit.points)
    assert np.ptp(found) == pytest.approx(0.25, abs=0.05)


def search_of(error):
    """A search whose models have these errors, and the penalties that it tries."""
    search, tried = _Search.__new__(_Search), []
    search.settings, search.work, search.most_work = settings.DEFAULT.factored, 0.0, 1.0

    def swept(model, _):
        tried.append(model.penalty)
        return replace(model, error=error(model.penalty))

    search.swept = swept
    return search, tried


def penalty_of(error):
    model = on_squares(settings.DEFAULT.factored.first_penalty)[1]
    search, tried = search_of(error)
    return search.compared(model, 1).penalty, tried


def test_factored_penalties():
    assert penalty_of(lambda penalty: penalty)[0] < 1e-7
    assert 100 < penalty_of(lambda penalty: 1 / penalty)[0] <= 1e4


def test_factored_penalty_step():
    tried = penalty_of(lambda penalty: penalty)[1]
    assert 5 < tried[1] / tried[0] < 50


def test_factored_first_penalty(monkeypatch):
    seen = []
    monkeypatch.setattr(_Search, "compared", lambda _, model, __: seen.append(model) or model)
    monkeypatch.setattr(_Search, "refined", lambda _, model: model)
    monkeypatch.setattr(_Search, "with_products", lambda _, model: model)
    monkeypatch.setattr(_Search, "without_idle", lambda _, model: model)
    fit = factored_fit(200)
    fit.choose(fit.given.values)
    assert 1e-3 < seen[0].penalty < 0.1


def test_factored_splines_gain(monkeypatch):
    """Splines are doubled while that lowers the error by more than a hundredth."""
    found = []
    for less in (0.02, 0.005):

        def swept(_, model, __, less=less):
            more = max(emb.size for emb in model.embedders) > 12
            return replace(model, error=1.0 - less if more else 1.0)

        monkeypatch.setattr(_Search, "swept", swept)
        monkeypatch.setattr(_Search, "compared", swept)
        monkeypatch.setattr(_Search, "with_products", lambda _, model: model)
        monkeypatch.setattr(_Search, "without_idle", lambda _, model: model)
        fit = factored_fit(200)
        fit.choose(fit.given.values)
        found.append(fit.models[0].embedders[0].size)
    assert found == [24, 12]


def test_factored_searched_axes():
    for D, searched in ((30, 30), (60, 40)):
        search = _Search.__new__(_Search)
        functions = [np.zeros((2, 1)) for _ in range(D)]
        search.sweeper = SimpleNamespace(axes=list(range(D)), functions=functions)
        search.settings = settings.DEFAULT.factored
        assert len(search._strongest(None)) == searched


def test_factored_bins(monkeypatch):
    from kronfield.fitting import factored

    seen = []
    monkeypatch.setattr(factored, "new_product", lambda *given: seen.append(given[2]))
    fit = factored_fit(400, columns=2)
    fit.choose(fit.given.values)
    assert 4 <= len(np.unique(seen[0][:, 0])) <= 8


def test_factored_error_points(monkeypatch):
    seen, jacobian = [], FactoredUncertainty._jacobian

    def watched(self, model, points):
        seen.append(len(points))
        return jacobian(self, model, points)

    monkeypatch.setattr(FactoredUncertainty, "_jacobian", watched)
    fit, model = on_squares(P=30_000)
    fit.models = [model]
    FactoredUncertainty(fit, np.ones((1, 30_000)), np.ones(1)).freedom()
    assert sum(seen) == 20_000


def test_factored_error_weights(monkeypatch):
    from kronfield.fitting import factored

    monkeypatch.setattr(FactoredUncertainty, "_jacobian", lambda *_: pytest.fail("is computed"))
    fit, model = on_squares()
    fit.models = [model]
    for count, error in ((8000, pytest.fail.Exception), (8001, kf.InputError)):
        monkeypatch.setattr(factored, "weight_count", lambda _, count=count: count)
        with pytest.raises(error):
            FactoredUncertainty(fit, np.ones((1, 100)), np.ones(1)).freedom()


def test_factored_least_left():
    """Of a fit through all points, a tenth of the points is counted as left for the noise."""
    fit, model = on_squares(P=20, products=4)
    fit.models = [model]
    plane = np.where(np.arange(20) % 2, 1.0, -1.0)[None]
    _, sigma, freedom = FactoredUncertainty(fit, plane, np.ones(1))._system(0)
    assert freedom > 18
    assert sigma == pytest.approx(math.sqrt(10), rel=0.1)


def test_factored_few_work():
    assert settings.DEFAULT.factored.work(100) == pytest.approx(0.3 * 1.6e10)


@pytest.mark.parametrize("seed", range(4))
def test_factored_idle(seed):
    """Three axes matter, one of them little, and two do not: the rule decides by its error."""
    rng = np.random.default_rng(seed)
    x = rng.random((2000, 5))
    values = np.sin(5 * x[:, 0]) * x[:, 1] + 0.2 * x[:, 2] + 0.1 * rng.standard_normal(2000)
    fit = FactoredFit(
        PointInput(x, values, None, None, None), options(), Form("factored", "asked for")
    )
    fit.choose(fit.given.values)
    free = fit.models[0].free
    assert free[:3] == (True, True, True)
    assert not all(free[3:])


def test_factored_idle_counts_standard_errors():
    """A simpler model is as good up to one standard error of the differences, with weights too."""
    search = _Search.__new__(_Search)
    search.settings, search.held_weights = settings.DEFAULT.factored, None
    more = np.tile([1.0, -1.0], 200)  # standard error 1 / 20
    for weights in (None, np.full(400, 3.0)):
        search.held_weights = weights
        for mean, good in ((-0.2, True), (0.04, True), (0.06, False)):
            search.squares = lambda _, at=mean: more + at
            assert search.is_as_good(None, np.zeros(400)) == good
