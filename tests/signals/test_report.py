"""The picture report: its content, and that it loads nothing else."""

import base64
import html
import re
from pathlib import Path

import numpy as np
import pytest

import kronfield as kf
from clifiles import colours, pixels, run, write_table
from kronfield.analysis.presets import natural_size, preset
from kronfield.files import Description, Signal, read
from kronfield.plots import fit_pictures
from kronfield.signals.fit import fit_signal
from kronfield.signals.report.between import detailed_windows
from kronfield.signals.report.curves import choice_curves
from kronfield.signals.report.diagnosis import diagnose
from kronfield.signals.report.held_out import held_out

NAMES = {
    "photo.png": ("input", "between", "held-out", "spectrum", "choice"),
    "sound.wav": ("input", "reconstruction", "between", "held-out", "spectrum", "choice"),
    "stations.csv": (
        *("input", "reconstruction", "error", "held-out", "uncertainty", "spectrum", "choice"),
    ),
}


@pytest.mark.parametrize("source", NAMES)
def test_every_kind_has_a_report(source, here):
    done = run(f"fit {source} -o a.field --report report")
    names = NAMES[source]
    assert f"Wrote report/index.html and {len(names)} pictures beside it" in done.stdout
    page = Path("report/index.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|<script|<link|url\(", page)
    inside = re.findall(r'alt="([\w-]+)" src="data:image/png;base64,([^"]+)"', page)
    assert tuple(name for name, _ in inside) == names
    for name in names:
        assert colours(f"report/{name}.png") > 20
        height, width, _ = pixels(f"report/{name}.png").shape
        assert min(width, height) > 300
        assert max(width, height) < 2000
    drawn = {"photo.png": "between", "stations.csv": "reconstruction"}.get(source)
    if drawn is not None:
        assert colours(f"report/{drawn}.png") > 150  # a picture, not a frame around nothing
    found = re.search(r"field ([\d.e-]+), linear ([\d.e-]+), cubic ([\d.e-]+) rms", page)
    assert 0 < float(found[1]) < 1.5 * float(found[2])
    assert base64.b64decode(inside[0][1]) == Path("report/input.png").read_bytes()
    assert f"{source}, fitted by kronfield" in page
    assert "<th>penalty</th>" in page
    told = run("info a.field").stdout
    for name in ("penalty", "chosen", "residual"):  # the page and info say the same
        text = re.search(rf"<th>{name}</th><td>([^<]*)</td>", page)[1].splitlines()[0]
        assert f" {html.unescape(text)}" in told


def test_the_folder_is_complete_or_not_there(here, monkeypatch):
    import kronfield.signals.report.page

    monkeypatch.setattr(
        kronfield.signals.report.page, "fit_pictures", lambda found: {"input": b"png"}
    )
    monkeypatch.setattr(
        kronfield.signals.report.page,
        "report_page",
        lambda *a: (_ for _ in ()).throw(OSError(28, "No space left")),
    )
    done = run("fit photo.png -o a.field --report report", code=2)
    assert "No space left" in done.stderr
    assert not Path("report").exists()
    assert not list(here.glob(".report*"))


def test_pictures_show_samples_field_and_error(here):
    signal = read("photo.png")
    found = diagnose(signal, fit_signal(signal, roughness=(0.5, 0.0)))
    shown = found.shown
    assert shown.form == "picture"
    np.testing.assert_array_equal(shown.samples, signal.values)
    expected = 255 * (fit_signal(signal, roughness=(0.5, 0.0)).on_grid() - signal.values).mean(
        axis=-1
    )
    np.testing.assert_allclose(shown.error, expected, atol=1e-3)
    assert found.power.error[-1] > found.power.fitted[-1]  # smoothing takes the high frequencies
    assert found.power.error[0] < 0.01 * found.power.fitted[0]
    assert found.axes[0].stable_rank == pytest.approx(
        fit_signal(signal, roughness=(0.5, 0.0)).report.stable_ranks[0]
    )


def test_curves_have_their_least_near_what_was_chosen(here):
    noisy = read("noisy.png")
    field = fit_signal(noisy, roughness="gcv")
    curves = {curve.title: curve for curve in choice_curves(noisy.values, True, field)}
    penalty = curves["Cross-validation against the penalty"]
    best = penalty.x[np.nanargmin(penalty.scores)]
    assert penalty.chosen / 4 < best < penalty.chosen * 4
    plain = read("photo.png")
    shapes, penalties = choice_curves(plain.values, True, fit_signal(plain))
    # slopes from the data have no degree
    assert (shapes.chosen, shapes.instead) == (None, "slopes from the data")
    assert (penalties.chosen, penalties.instead) == (None, "no penalty")
    x = np.linspace(0, 1, 40)
    smooth = np.sin(7 * x)[:, None] * np.cos(5 * x)
    field = kf.fit(smooth)
    degrees = choice_curves(smooth, False, field)[0]
    assert degrees.x.tolist() == [1, 3, 5, 7, 9]
    assert degrees.chosen == field.report.embedders[0].degree
    assert degrees.chosen == degrees.x[np.argmin(degrees.scores)]


@pytest.mark.parametrize("name", ["gaussian", "rff", "linf", "tension"])
def test_curves_of_given_encodings(name, here):
    signal = read("photo.png")
    encoding = kf.Kronecker(*[preset(name, natural_size(name, n)) for n in (48, 64)])
    shapes, penalties = choice_curves(signal.values, True, fit_signal(signal, encoding))
    assert len(shapes.x) >= 5
    assert np.isfinite(shapes.scores).all()
    assert penalties.x_label == "ridge"
    worst, best = shapes.scores.max(), shapes.scores.min()
    at = shapes.scores[np.argmin(np.abs(shapes.x - shapes.chosen))]
    assert at < best + 0.6 * (worst - best)  # the default for this number of samples is not bad


FORMS = {
    "clip.mp4": "picture",
    "gaps.tif": "map",
    "scan.nii.gz": "map",
    "line.csv": "line",
    "cube.csv": "scatter",
}


@pytest.mark.parametrize(("source", "form"), FORMS.items())
def test_forms(source, form, here):
    points = np.random.default_rng(0).random((40, 3))
    write_table("line.csv", ("x", "value"), (np.arange(30.0), np.sin(np.arange(30.0))))
    write_table("cube.csv", ("x", "y", "z", "value"), (*points.T, points[:, 0]))
    signal = read(source)
    given = (kf.Triangle(5, 2 / 5), (0.0, 1e-4)) if form == "scatter" else (None, None)
    found = diagnose(signal, fit_signal(signal, given[0], roughness=given[1]))
    assert found.shown.form == form
    assert np.nanmax(np.abs(found.shown.error)) < 0.2 * (255 if form == "picture" else 1)
    if form in ("scatter", "line"):
        assert set(fit_pictures(found)) >= {"input", "reconstruction"}


def test_held_out_samples_are_predicted_from_every_second_one():
    x = np.arange(60) / 9
    values = np.sin(x)[:, None] * np.cos(x)
    signal = Signal("array", values, False, None, None, Description(kind="array"))
    found = held_out(signal, fit_signal(signal))
    known = kf.fit(values[::2, ::2], [np.arange(0.0, 60, 2)] * 2)
    expected = known.on_grid([np.arange(60.0)] * 2, outside="clamp") - values
    given = np.isnan(found.error)
    assert given.sum() == 900
    assert given[::2, ::2].all()
    np.testing.assert_allclose(found.error[~given], expected[~given], atol=1e-9)
    np.testing.assert_allclose(found.errors["field"], np.sqrt(np.mean(expected[~given] ** 2)))
    assert found.errors["field"] < found.errors["cubic"] < found.errors["linear"]


def test_equal_points_are_held_out_together():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.random((60, 2)), 2, axis=0)
    values = np.sin(5 * points[:, 0]) + points[:, 1]
    signal = Signal("table", values, False, None, points, Description(kind="table"))
    field = kf.fit_points(points, values, kf.Gaussian(12, 0.1), ridge=1e-6)
    found = held_out(signal, field)
    assert len(np.unique(found.points, axis=0)) * 2 == len(found.points)
    assert set(found.errors) == {"field", "linear", "cubic"}


def test_zooms_show_the_places_with_most_detail():
    values = np.zeros((64, 64))
    values[40, 20] = values[5, 60] = 1
    windows = detailed_windows(values + np.arange(64), 2)
    assert {(rows.start, columns.start) for rows, columns in windows} == {(32, 16), (0, 48)}
