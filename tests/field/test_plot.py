"""Drawings of fields, and their summaries in notebooks."""

import re

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.dates import num2date

import kronfield as kf

DAYS = np.arange("2024-02-01", "2024-03-02", dtype="M8[D]")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def dated():
    return kf.fit(np.sin(np.arange(30) / 4), axes={"day": DAYS}, ridge=0.0)


@pytest.fixture(scope="module")
def scattered():
    points = {"lon": 10 * RNG.random(60), "lat": 5 * RNG.random(60)}
    return kf.fit_points(points, points["lon"], kf.Gaussian(8, 0.2), ridge=1e-3)


def test_a_line_with_dates(dated):
    ax = dated.plot(size=50, data=(DAYS, np.zeros(30)))
    line, dots = ax.get_lines()
    assert ax.get_xlabel() == "day"
    low, high = dated.labels.axes[0].values(dated.domain[0])
    assert np.asarray(line.get_xdata())[[0, -1]].tolist() == [
        low.astype("M8[us]"),
        high.astype("M8[us]"),
    ]
    assert np.asarray(dots.get_ydata()).tolist() == [0.0] * 30
    assert num2date(ax.get_xlim()[0]).year == 2024
    assert ax.figure.number in pyplot.get_fignums()  # notebooks show it


def test_a_band_where_there_is_a_standard_error():
    field = kf.fit_points(RNG.random(40)[:, None], RNG.random(40), kf.Gaussian(8, 0.2), ridge=1e-2)
    ax = field.plot(size=20)
    (band,) = ax.collections
    x = np.linspace(*field.domain[0], 20)[:, None]
    top = field(x) + 2 * field.standard_error(x)
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(top.max())
    assert not field.plot(band=False).collections


def test_a_map_is_the_field_seen_from_above(scattered):
    ax = scattered.plot(size=40)
    (image,) = ax.get_images()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon", "lat")
    (left, right), (low, high) = scattered.domain
    assert image.get_extent() == [left, right, low, high]
    values = np.asarray(image.get_array())
    centre = [[left + (right - left) * 0.5 / 40, high - (high - low) * 0.5 / len(values)]]
    assert values[0, 0] == pytest.approx(scattered(np.array(centre))[0])
    assert len(ax.collections[0].get_offsets()) == 60
    ax.figure.canvas.draw()
    (bar,) = ax.child_axes  # the colour bar, as high as the map
    map_box, bar_box = (one.get_window_extent() for one in (ax, bar))
    assert (bar_box.y0, bar_box.y1) == pytest.approx((map_box.y0, map_box.y1))
    assert bar_box.x0 > map_box.x1


def test_what_is_far_from_the_data_stays_blank(scattered):
    picture = np.asarray(scattered.plot(size=40, beyond=0.4).get_images()[0].get_array())
    (left, right), (low, high) = scattered.domain
    rows, columns = (np.arange(n) + 0.5 for n in picture.shape)
    x = left + (right - left) * columns / picture.shape[1]
    y = high - (high - low) * rows / picture.shape[0]
    far = scattered.distance_to_data(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)) > 0.4
    assert 0 < far.sum() < far.size
    assert np.array_equal(np.isnan(picture).ravel(), far)


def test_every_channel_has_a_line_of_its_own():
    ax = kf.fit(RNG.random((20, 12)), channels=True).plot(size=20)
    styles = {(line.get_color(), line.get_linestyle()) for line in ax.get_lines()[:12]}
    assert len(styles) == 12
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "channel 11"
    many = kf.fit(RNG.random((20, 30)), channels=True).plot(size=20)
    assert many.get_legend().get_title().get_text() == "18 of 30"


def test_pictures_slices_and_lines():
    picture = kf.fit(RNG.random((12, 16, 3))).plot(size=16)
    assert picture.get_images()[0].get_array().shape == (12, 16, 3)
    assert not picture.child_axes
    axes = {"time": DAYS[:8], "lat": np.linspace(40, -40, 9), "lon": np.arange(10.0)}
    volume = kf.fit(RNG.random((8, 9, 10)), axes=axes)
    panels = volume.plot(size=12)
    assert [ax.get_title() for ax in panels] == ["time 2024-02-04T12:00", "lat 0", "lon 4.5"]
    assert [ax.get_xlabel() for ax in panels] == ["lon", "time", "time"]
    own = pyplot.subplots(1, 3)[1]
    assert volume.plot(own, size=12)[0] is own[0]
    with pytest.raises(kf.InputError, match="3 axes"):
        volume.plot(own[0])
    many = kf.fit_points(RNG.random((40, 5)), RNG.random(40))
    assert len(many.plot(size=10)) == 5


def test_what_cannot_be_drawn_is_refused(dated):
    with pytest.raises(kf.InputError, match="complex"):
        kf.fit(np.exp(1j * np.arange(8.0))).plot()
    with pytest.raises(kf.InputError, match="channel: got 3"):
        dated.plot(channel=3)
    with pytest.raises(kf.InputError, match=r"expected \(points, values\)"):
        dated.plot(data=DAYS)
    with pytest.raises(kf.InputError, match="data: got 30 points and 2 values"):
        dated.plot(data=(DAYS, [1.0, 2.0]))


def test_reports_are_tables_and_drawings():
    report = kf.fit(np.sin(np.arange(40.0) / 3)).report
    page = report._repr_html_()
    assert page.count("<tr>") > len(report.candidates)
    assert "<b>" in page
    ax = report.plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(map(str, report.candidates))
    with pytest.raises(kf.InputError, match="all given"):
        kf.fit(np.arange(9.0), encoding=kf.Gaussian(9, 0.1), ridge=0.0).report.plot()


def test_notebooks_show_a_picture_and_escape_names(dated, scattered):
    for field in (dated, scattered, kf.fit(RNG.random((6, 7, 3))), kf.fit(np.arange(8.0) * 1j)):
        page = field._repr_html_()
        assert page.startswith("<div>")
        assert len(page) < 40_000
    assert "<svg" in dated._repr_html_()
    assert "2024-01-31T12:00" in dated._repr_html_()
    assert "data:image/png" in scattered._repr_html_()
    bad = kf.fit(np.arange(9.0), axes={"<script>x</script>": np.arange(9.0)})
    assert "<script" not in bad._repr_html_()
    assert "<script" not in bad.report._repr_html_()
    assert not re.search(r"https?:", bad._repr_html_())
