"""A test on either side of every decision in `kronfield.fitting.settings.SignalSettings`.

The name of a test is that of its decision: benchmarks/tuning/mutate.py changes the decision and
expects the test to fail.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import kronfield as kf
from kronfield.cli import main, render
from kronfield.cli.common import Failure
from kronfield.cli.denoise import _Done, _smoothed
from kronfield.cli.fit import _no_ridge_if_long, _sample_counts
from kronfield.files import read, write
from kronfield.fitting import settings
from kronfield.fitting.smoothing import Smoothing
from kronfield.signals import contest
from kronfield.signals.contest import GridContest, PointContest
from kronfield.signals.denoise import Denoising, samples_of
from kronfield.signals.export import export
from kronfield.signals.fill import expected_error
from kronfield.signals.fit import fit_signal, noise_level, remember
from kronfield.signals.networks import SignalNetwork, _point_samples
from kronfield.signals.report import curves, held_out
from kronfield.signals.report.curves import Part, choice_curves
from kronfield.signals.report.diagnosis import Diagnosis
from kronfield.signals.view import view

rng = np.random.default_rng(0)


def signal(tmp_path, values, name="a.npy"):
    write(tmp_path / name, values, {}, overwrite=True)
    return read(tmp_path / name)


def table(tmp_path, count):
    points = np.random.default_rng(count).random((count, 2))
    rows = [f"{x},{y},{np.sin(5 * x) * y}" for x, y in points]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,value", *rows]))
    return read(tmp_path / "a.csv")


def test_every_decision_has_a_test():
    for one in settings.decisions():
        if one.group == "signals":
            assert f"test_signals_{one.name}" in globals()


def test_signals_averaged_above(tmp_path):
    """Checks of one pixel are averaged at a third of the size, but not at five sixths of it."""
    checks = np.indices((48, 48)).sum(axis=0) % 2 * 1.0
    field = fit_signal(signal(tmp_path, checks, "a.png"))
    for size, averaged in ((16, True), (40, False)):
        where = view(field, size=size)
        values = np.concatenate(list(where.blocks(field)))
        assert (np.ptp(values) < 0.3) == averaged


def test_signals_points_side(tmp_path):
    field = fit_signal(table(tmp_path, 200))
    assert max(view(field).shape) == 512


def test_signals_frame_rate(tmp_path):
    field = kf.fit(rng.random((6, 16, 16)))
    export(field, tmp_path / "a.mp4")
    assert read(tmp_path / "a.mp4").description.frames_per_second == 25


def test_signals_longest_line(tmp_path):
    for count, as_points in ((512, False), (513, True)):
        noisy = np.sin(np.arange(count) / 40) + 0.1 * rng.standard_normal(count)
        field = _smoothed(signal(tmp_path, noisy), (0.0, 1.0))
        assert isinstance(field.report, kf.PointReport) == as_points


def test_signals_longest_smoothed(tmp_path):
    long = signal(tmp_path, rng.random((8192, 2)))
    assert any(_smoothed(long, (0.0, 1e-3)).report.roughness)
    with pytest.raises(Failure, match="got an axis of 8193 samples; expected at most 8192"):
        _smoothed(signal(tmp_path, rng.random((8193, 6)), "b.npy"), (0.0, 1e-3))


def test_signals_longest_ridge(tmp_path):
    said = []
    out = SimpleNamespace(say=said.append)
    encoding = kf.Kronecker(kf.Triangle(16, 2 / 16))
    given = [signal(tmp_path, rng.random(n), f"{n}.npy") for n in (4096, 4097)]
    assert [_no_ridge_if_long(one, encoding, out) for one in given] == [None, 0.0]
    assert said == ["No ridge: an axis is longer than 4096, too long to choose it"]


def test_signals_contest_ridge(monkeypatch):
    given = []
    monkeypatch.setattr(contest, "fit", lambda *_, ridge, **__: given.append(ridge))
    for count in (2 * 512, 2 * 513):  # every second sample is known
        GridContest(rng.random(count), channels=False)._fit("gaussian")
    assert given == [None, 0.0]


def test_signals_contest_dense():
    for count, dense in ((2 * 4096, True), (2 * 4097, False)):
        names = GridContest(rng.random(count), channels=False).names()
        assert ("rff" in names) == dense
        assert "gaussian" in names


def test_signals_contest_shortest():
    assert GridContest(rng.random((6, 5)), channels=False).known.shape == (3, 5)
    with pytest.raises(kf.InputError, match="an axis of 6 samples or more"):
        GridContest(rng.random((5, 5)), channels=False)


def test_signals_contest_part():
    held = PointContest(rng.random((5000, 2)), rng.random(5000))
    assert len(held.other_points) == pytest.approx(1000, rel=0.1)


def test_signals_contest_fewest():
    assert len(PointContest(rng.random((10, 2)), rng.random(10)).points) < 10
    with pytest.raises(kf.InputError, match="at least 10"):
        PointContest(rng.random((9, 2)), rng.random(9))


def test_signals_contest_features(monkeypatch):
    seen = []
    monkeypatch.setattr(contest, "preset", lambda _, size: seen.append(size))
    for count in (200, 1000):
        with pytest.raises(kf.InputError):  # there is no embedder
            PointContest(rng.random((count, 1)), rng.random(count))._fit("gaussian")
    assert 100 < seen[0] < 200
    assert seen[1] == 256


def test_signals_point_features():
    for count, size in ((500, 500), (600, 512)):
        assert _sample_counts(SimpleNamespace(points=np.zeros((count, 1)))) == [size]


def test_signals_held_out_points():
    x = np.linspace(0, 1, 20)[:, None]
    field = kf.fit_points(x, np.sin(3 * x[:, 0]), roughness=(0.0, 1e-6))
    assert held_out._of_points(x, np.sin(3 * x[:, 0]), field) is not None
    assert held_out._of_points(x[:19], np.sin(3 * x[:19, 0]), field) is None


def test_signals_freedom_points():
    x = np.linspace(0, 1, 20)[:, None]
    for count, recorded in ((2000, True), (2001, False)):
        field = kf.fit_points(x, np.sin(3 * x[:, 0]), roughness=(0.0, 1e-6))
        field.report.points = count
        remember(field, "fit", {}, "0")
        known = field.info["made"]["report"].get("degrees_of_freedom") is not None
        assert known == recorded


def test_signals_passes():
    """Errors of 3e-4 of the spread are none, errors of a hundredth are."""
    samples = np.sin(np.arange(100.0))
    for error, through in ((3e-4, True), (1e-2, False)):
        away = np.where(np.arange(100) % 2, error, -error) * samples.std()
        shown = SimpleNamespace(samples=samples, error=away, form="line")
        assert Diagnosis.interpolates.fget(SimpleNamespace(shown=shown)) == through


def test_signals_drawn_side(tmp_path, monkeypatch):
    fit_signal(table(tmp_path, 30)).save(tmp_path / "a.field")
    seen = []
    monkeypatch.setattr(render, "_view", lambda _, size, *__, **___: seen.append(size))
    CliRunner().invoke(main, ["render", f"{tmp_path}/a.field", "-o", f"{tmp_path}/a.png"])
    assert seen == [500]


def test_signals_curve_samples():
    values = rng.random((300, 300))
    field = kf.fit(values, noise=0.0)
    assert Part.middle(values, False, field, field.report).values.shape == (256, 256)


def test_signals_curve_longest():
    values = rng.random(1000)
    field = kf.fit(values, noise=0.0)
    assert Part.middle(values, False, field, field.report).values.shape == (400,)


def test_signals_curve_fewest(monkeypatch):
    monkeypatch.setattr(curves, "_shapes", lambda *_: "a curve")
    monkeypatch.setattr(curves, "_penalties", lambda *_: None)
    for count, expected in ((11, []), (12, ["a curve"])):
        values = np.sin(np.arange(float(count)))
        assert choice_curves(values, False, kf.fit(values)) == expected


def test_signals_cut_off():
    for part, told in ((0.01, False), (0.05, True)):
        done = _Done(0.1, "shrinkage", 0.05, None, None, None, cut_off=part)
        job = SimpleNamespace(text=str, peak=lambda error: "", strength=1)
        assert (done.remark in done.lines(job, 1.0)) == told


def test_signals_denoised_part(tmp_path):
    """Of a line of 3 million samples a third is looked at."""
    samples = samples_of(signal(tmp_path, np.zeros(3 << 20, dtype=np.float32)))
    assert samples.part.size == 1 << 20


def test_signals_denoised_around():
    """The effect of a strong penalty is cut short, that of a weak one is not."""
    reaches = []
    for weight in (1e4, 25.0):
        smoothing = Smoothing(np.eye(1), 1, 0.0, (weight,), 0.0, 0.0, units=(1.0, 1.0))
        job = SimpleNamespace(
            choice=SimpleNamespace(smoothing=smoothing),
            noise=1,
            samples=SimpleNamespace(shape=(900, 900)),
            axes=[np.arange(900.0)] * 2,
            _tiled=lambda clean, tiles, reach, *_: reaches.append(reach) or [],
        )
        list(Denoising._smoothed(job, None))
    assert 100 < min(reaches[0]) <= max(reaches[0]) < 500
    assert reaches[1] == [51, 51]


def test_signals_network_range(tmp_path):
    for largest, scale in ((0.05, 0.05), (0.3, 1.0), (1.0, 1.0), (5.0, 5.0)):
        values = rng.random((8, 9))
        found = SignalNetwork(signal(tmp_path, largest * values / values.max())).scale
        assert found == pytest.approx(scale)


def test_signals_network_features(tmp_path):
    points, values = rng.random((300, 1)), rng.random(300)
    for count, features in ((250, 250), (300, 256)):
        short = SimpleNamespace(values=values[:count], channels=False)
        assert _point_samples(points[:count], short).counts == [features]


def error_of_holes(tmp_path, count):
    """The expected error of the first samples of a line of 100."""
    holes = np.arange(100) < count
    return expected_error(signal(tmp_path, np.sin(np.arange(100) / 9)), holes)


def test_signals_most_left_out(tmp_path):
    assert error_of_holes(tmp_path, 30) is not None  # 30 of 70 known samples
    assert error_of_holes(tmp_path, 38) is None  # 38 of 62


def test_signals_fewest_left_out(tmp_path):
    assert error_of_holes(tmp_path, 4) is not None
    assert error_of_holes(tmp_path, 3) is None


def test_signals_noise_left():
    """Residuals of a fit that nearly interpolates hold no information about noise."""
    values = rng.standard_normal((30, 30))
    for weight, known in ((1e-5, False), (1e-2, True)):
        field = kf.fit(values, roughness=(weight, 0.0))
        left = 1 - field.report.degrees_of_freedom / values.size
        assert 2e-6 < left < 0.2
        assert (noise_level(field) is not None) == known
