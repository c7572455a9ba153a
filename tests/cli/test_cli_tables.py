"""Tables and labelled grids on the command line: dates, text, standard streams, maps."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray
from click.testing import CliRunner

import kronfield as kf
from clifiles import as_json, colours, pixels, refused, run
from kronfield.cli import main


def test_a_series_of_dates(here):
    done = run("fit series.csv --columns level -o level.field")
    assert "29 points in day of visit; values level; not used: count" in done.stdout
    field = kf.load("level.field")
    assert field.labels.axes[0].kind == "date"
    assert field(np.array(["2024-02-14T12"], "M8[h]"))[0] == pytest.approx(
        np.sin(14.5 / 4), abs=0.01
    )
    assert "2024-01-31T12:00 to 2024-02-29T12:00" in run("info level.field").stdout
    Path("when.csv").write_text("when\n2024-02-03 12:00\n2024-02-29\n")
    run("render level.field --at when.csv -o values.csv")
    table = pd.read_csv("values.csv", parse_dates=[0])
    assert table["day of visit"].dt.day_of_year.tolist() == [34, 60]
    assert table["day of visit"].dt.hour.tolist() == [12, 0]
    np.testing.assert_allclose(table["level"], np.sin(np.array([3.5, 29]) / 4), atol=0.01)
    refused("render level.field -o a.csv --slice day=14.2", "at least one axis")
    run("render level.field -o line.png --size 640x300")
    assert pixels("line.png").shape[:2] == (300, 640)


def test_dates_with_the_month_as_a_word(here):
    days = pd.date_range("2024-02-20", periods=30)
    expected = None
    for i, form in enumerate(("%Y-%m-%d", "%b %d, %Y", "%d-%B-%Y", "%d %b %Y 00:00")):
        pd.DataFrame({"day": days.strftime(form), "level": np.sin(np.arange(30) / 4)}).to_csv(
            "words.csv", index=False
        )
        done = run(f"fit words.csv -e gaussian --size 12 -o words{i}.field")
        assert "30 points in day; values level\n" in done.stdout
        found = kf.load(f"words{i}.field")("2024-03-01")
        expected = found if expected is None else expected
        assert found == pytest.approx(expected)


def test_text_columns_beside_coordinates(here):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"code": [f"K{i:03}" for i in range(80)], "iata": ["", "12"] * 40})
    table["elevation"] = 10 * rng.random(80)
    table["lat"], table["lon"], table["tz"] = *rng.random((2, 80)), "UTC"
    table.to_csv("us.csv", index=False)
    table.to_csv("indexed.csv")
    table.to_parquet("us.parquet")
    table.to_excel("us.xlsx", index=False)
    found = []
    for name in ("us.csv", "indexed.csv", "us.parquet", "us.xlsx"):
        shape = as_json(f"fit {name} --columns elevation -e gaussian --size 8 -o a.field --force")
        found.append(kf.load("a.field").on_grid((5, 5)))
        assert shape["kind"] == "table"
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=1e-6, atol=1e-6)
    refused("fit us.xlsx:nothing", "no sheet 'nothing'", "Sheet1")


def test_many_numbers_are_not_guessed(here):
    np.savetxt("a.csv", np.eye(12), delimiter=",", header=",".join("abcdefghijkl"), comments="")
    refused("fit a.csv", "12 columns of numbers", "--coordinates A,B", "--columns C")
    run("fit a.csv --coordinates a,b --columns l -e gaussian --size 4 -o a.field")


def test_netcdf_and_zarr(here):
    refused("fit air.nc", "2 variables (t2m, day)", "air.nc:t2m")
    refused("fit air.nc:t2n", "Did you mean t2m?")
    run("fit air.nc:t2m")
    field = kf.load("air-t2m.field")
    assert field.labels.names == ("time", "lat")
    with xarray.open_dataset("air.nc") as data:
        truth = data["t2m"].load()
    np.testing.assert_allclose(field.on_grid(), truth, atol=1e-9)
    for name in ("fine.nc", "fine.zarr"):
        run(f"render air-t2m.field -o {name} --crop time=2024-02-02:2024-02-06 --scale 2")
        opened = xarray.open_zarr(name) if name.endswith("zarr") else xarray.open_dataset(name)
        with opened as data:
            fine = data["t2m"].load()
        assert fine.sizes == {"time": 8, "lat": 26}
        assert fine.time.values[0] == np.datetime64("2024-02-02T06")
        assert fine.lat.values[0] > fine.lat.values[-1]
        assert fine.attrs.get("units") == "K"
        expected = field.on_grid([fine.time.values, fine.lat.values])
        np.testing.assert_allclose(fine, expected, atol=1e-9)
        refused(f"render air-t2m.field -o {name}", "exists")
        run(f"render air-t2m.field -o {name} --force")
        assert not list(here.glob(".*part*"))
    run("render air-t2m.field -o day.csv --slice time=2024-02-03T12:00")
    assert Path("day.csv").read_text().startswith("lat,t2m\n")
    refused("render air-t2m.field -o b.csv --slice lat=2024-02-03", "no dates")


def test_numbers_of_attributes_that_are_not_finite_stay_numbers(here):
    attrs = {"valid_max": np.inf, "flag": np.nan, "ends": [-np.inf, 1.0]}
    with xarray.open_dataset("air.nc") as data:
        time = data["time"].assign_attrs(least=-np.inf)
        data["t2m"].assign_attrs(attrs).assign_coords(time=time).to_netcdf("limits.nc")
    run("fit limits.nc")
    known = kf.load("limits.field").labels
    assert known.attrs["valid_max"] == known.attrs["ends"][0] * -1 == np.inf
    assert known.axes[0].attrs["least"] == -np.inf
    for name in ("again.nc", "again.zarr"):
        run(f"render limits.field -o {name}")
        opened = xarray.open_zarr(name) if name.endswith("zarr") else xarray.open_dataset(name)
        with opened as data:
            found = data["t2m"].attrs
        assert np.isnan(found["flag"])
        assert found["valid_max"] == np.inf
        assert list(found["ends"]) == [-np.inf, 1.0]


def test_places_are_checked_before_the_fit(here, monkeypatch):
    def never(*arguments, **options):
        raise AssertionError("fitted before --at was checked")

    monkeypatch.setattr("kronfield.signals.fit.fit_signal", never)
    Path("words.csv").write_text("name,lat\nA,47\n")
    Path("none.csv").write_text("lon,lat\n")
    fit = "fit stations.csv --columns temperature -o a.csv --at"
    refused(f"{fit} words.csv", "no column 'lon'")
    refused(f"{fit} none.csv", "no rows")
    refused("fit series.csv --columns level -o a.csv --at stations.csv", "no column")


def test_names_and_units_of_a_field_made_in_python(here):
    days = pd.date_range("2024-01-01", periods=50)
    series = pd.Series(np.sin(np.arange(50) / 5), index=days, name="level")
    kf.fit(series).save("level.field")
    pd.DataFrame({"date": days[3:5]}).to_csv("at.csv", index=False)
    run("render level.field -o at-days.csv --at at.csv")
    assert Path("at-days.csv").read_text().startswith("date,level\n")
    run("render level.field -o slope.csv --at at.csv --derivative 1")
    assert Path("slope.csv").read_text().startswith("date,level by date in seconds\n")
    run("render level.field -o week.csv --at at.csv --derivative 1 --per week")
    run("render level.field -o grid.csv --derivative 2 --per week")
    run("render level.field -o week.png --derivative 1 --per week")
    field = kf.load("level.field")
    found = pd.read_csv("week.csv")
    assert list(found) == ["date", "level by date per week"]
    weekly = field(days[3:5], derivative=1, per="week")
    np.testing.assert_allclose(found["level by date per week"], weekly, rtol=1e-12)
    second = field.on_grid(derivative=2, per="week")
    np.testing.assert_allclose(pd.read_csv("grid.csv").iloc[:, 1], second, rtol=1e-9)
    refused("render level.field -o a.csv --per week", "--derivative")
    refused("render level.field -o a.csv --derivative 1 --per moon", "moon", "year")
    refused("render stations.field -o a.csv --derivative 1,0 --per week", "no axis has dates")
    run("render level.field -o level.png --crop date=2024-01-03:2024-02-01")
    assert Path("level.png").stat().st_size > 1000


def test_standard_streams(here):
    table = Path("series.csv").read_bytes()
    arguments = ["fit", "-", "--columns", "level", "-e", "gaussian", "-o", "-"]
    made = CliRunner().invoke(main, arguments, input=table)
    assert made.exit_code == 0, made.output
    assert "Wrote standard output" in made.stderr
    Path("a.field").write_bytes(made.stdout_bytes)
    places = b"day\n2024-02-03\n2024-02-04\n"
    drawn = CliRunner().invoke(main, ["render", "a.field", "--at", "-", "-o", "-"], input=places)
    found = pd.read_csv(io.BytesIO(drawn.stdout_bytes))
    assert list(found) == ["day of visit", "level"]
    np.testing.assert_allclose(found["level"], np.sin(np.array([3, 4]) / 4), atol=0.05)
    piped = CliRunner().invoke(
        main, ["render", "-", "-o", "-", "--size", "4"], input=made.stdout_bytes
    )
    assert len(piped.stdout.splitlines()) == 5
    refused("fit -", "-o", "standard input")
    nothing = CliRunner().invoke(main, ["fit", "-", "-o", "b.field"], input=b"")
    assert "nothing on standard input" in nothing.stderr


def test_maps_have_axes_and_colours(here):
    run("render stations.field -o map.png --size 400x300")
    assert pixels("map.png").shape[:2] == (300, 400)
    assert colours("map.png") > 100
    run("render stations.field -o plain.png --size 40,30 --plain")
    assert pixels("plain.png").ndim == 2
    run("render stations.field -o slope.png --derivative 1,0")


def test_missing_points_are_refused_before_the_fit(here):
    refused("fit stations.csv --columns temperature --at nowhere.csv", "nowhere.csv")


def test_columns_that_share_a_choice_are_told(here):
    rows = "".join(f"{i % 5},{i // 5},{i % 3},{i % 7}\n" for i in range(25))
    Path("two.csv").write_text(f"lon,lat,a,b\n{rows}")
    shared = "All 2 columns share one choice of grid and penalty: --columns a fits one alone\n"
    assert shared in run("fit two.csv").stdout
    assert "share" not in run("fit two.csv --columns a -o one.field").stdout
    assert "share" not in run("fit two.csv --columns a,b -o asked.field").stdout
