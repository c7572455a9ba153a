"""Tables: CSV, TSV and Parquet."""

import codecs
import csv
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from kronfield._core.labels import AxisLabel
from kronfield.files import read, read_columns, write, writer
from kronfield.files.csv_arrow import read_quickly
from kronfield.files.dates import parse_dates


def table(tmp_path, text, name="a.csv", **encoding):
    path = tmp_path / name
    path.write_text(text, newline="", **(encoding or {"encoding": "utf-8"}))
    return path


def test_a_table(tmp_path):
    text = (
        "x,y,name,value\n0.5,1,first,10\n1.5,2,second,\n,3,third,30\n2.5,4,fourth,NaN\n"
        '3.5,5,"fi, fth",50\n'
    )
    calls = []
    signal = read(table(tmp_path, text), progress=lambda done, total: calls.append((done, total)))
    assert (signal.kind, signal.channels, signal.axes) == ("table", False, None)
    np.testing.assert_array_equal(signal.points, [[0.5, 1], [1.5, 2], [2.5, 4], [3.5, 5]])
    np.testing.assert_array_equal(signal.values, [10, np.nan, np.nan, 50])
    assert signal.points.dtype == signal.values.dtype == np.float64
    assert signal.info["axes"] == ["x", "y"]
    assert signal.info["channels"] == ["value"]
    assert (signal.info["dropped"], signal.info["missing"]) == (1, 2)
    assert calls[-1] == (len(text), len(text))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", " , "])
def test_delimiters(delimiter, tmp_path):
    rows = [["x", "y", "v"], ["0.5", "1", "10"], ["1e3", "-2", "+.5"]]
    signal = read(table(tmp_path, "\r\n".join(delimiter.join(row) for row in rows)))
    np.testing.assert_array_equal(signal.points, [[0.5, 1], [1000, -2]])
    np.testing.assert_array_equal(signal.values, [10, 0.5])


@pytest.mark.parametrize(
    ("header", "coordinates", "values"),
    [
        ("x,y,r,g,b", "x y", "r g b"),
        ("r,Lat,LON", "Lat LON", "r"),
        ("x,y,z", "x y", "z"),  # all usual: the last is the value
        ("x,y,z,speed", "x y z", "speed"),
        ("a,b,c", "a b", "c"),  # none usual: all but the last
        ("a,b,c,d", "a b c", "d"),  # of five, no one can know
        ("t (s),pressure (hPa)", "t (s)", "pressure (hPa)"),
        ("time [ms],v", "time [ms]", "v"),
        ("1,2,3", "0 1", "2"),  # no header
    ],
)
def test_what_is_taken(header, coordinates, values, tmp_path):
    count = header.count(",") + 1
    signal = read(
        table(tmp_path, f"{header}\n" + "\n".join(",".join("123456"[:count]) for _ in range(3)))
    )
    sep = " " if "(" not in header and "[" not in header else "\n"
    assert signal.info["axes"] == coordinates.split(sep)
    assert signal.info["channels"] == values.split(sep)
    assert signal.channels == (len(signal.info["channels"]) > 1)
    assert len(signal.values) == 4 if header == "1,2,3" else 3


def test_units_of_columns(tmp_path):
    assert read(table(tmp_path, "x [km],t (s),y,v\n1,2,3,4\n")).info["units"] == ["km", "s", ""]


def test_named_columns(tmp_path):
    path = table(tmp_path, "when,x,y,u,v\n2024-01-01,1,2,3,4\n2024-01-02,5,6,7,8\n")
    signal = read(path, coordinates=["y", "x"], columns=["v", "u"])
    np.testing.assert_array_equal(signal.points, [[2, 1], [6, 5]])
    np.testing.assert_array_equal(signal.values, [[4, 3], [8, 7]])
    assert read(path, coordinates=["x", "y"]).info["channels"] == ["u", "v"]
    assert read(path, coordinates="x", columns="u").values.shape == (2,)
    path = table(tmp_path, "a,b,c\n1,2,3\n")
    assert read(path, columns=["a"]).info["axes"] == ["b", "c"]
    with pytest.raises(
        kf.InputError, match=r"no column 'speeed'.*some of x, speed\. Did you mean speed\?"
    ):
        read(table(tmp_path, "x,speed\n1,2\n"), columns=["speeed"])
    for arguments in (
        {"columns": []},
        {"columns": 5},
        {"columns": ["a", "a"]},
        {"columns": ["a"], "coordinates": ["a"]},
    ):
        with pytest.raises(kf.InputError, match="columns"):
            read(path, **arguments)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # not to be left out, with y for the value
        ("x,y,v\n1,2,3\n4,5,six\n", r"column v \('six' in line 3\)"),
        ("x,v\n1,high\n", r"at least one column of coordinates and one of values\. Name them"),
        ("name,place\na,b\n", "of which numbers: none"),
        ("v\n1\n2\n", "at least one column of coordinates"),
        ("x,v\n", "no rows"),
        ("# only this\n", "no rows"),
        ("x,v\n1,2\n3\n", "1 cells in line 3; expected 2"),
        ("x,v\n1,2,3\n", "3 cells in line 2"),
        ("x,x,v\n1,2,3\n", "several columns called x"),
        ("x,v\n,2\nnan,3\n", "no row that has coordinates and a value"),
        ("x,v\n1,\n2,NA\n", "no row that has coordinates and a value"),
        (
            "date,x,v\n1/2/2024,1,2\n",
            r"dates in column date that cannot be read \('1/2/2024' in line 2\).*year first",
        ),
        ("t,v\n12:30,2\n", "dates in column t"),
        ("t,v\n2024-02-29,2\n30.02.2024,2\n", "dates in column t"),
        ("a,b,c,d,e\n1,2,3,4,5\n", r"coordinates: got 5 columns.*--coordinates A,B"),
        ("begun,ended,v\n2024-01-01,2024-01-02,3\n", "dates in the columns begun, ended"),
    ],
)
def test_refusals(text, why, tmp_path):
    with pytest.raises(kf.InputError, match=why) as caught:
        read(table(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x;v\n1;2,500\n", r"column v \('2,500' in line 2\).*decimal point"),
        ("x,v\n1,2\n2,x\n", r"column v \('x' in line 3\)"),
        ("x,v\n1,2024_01\n", r"column v \('2024_01' in line 2\)"),
        ("x,v\n1,2024-01-01\n", r"dates in column v; expected numbers as values"),
        ("\n# note\nx,v\n1,2\n\n2,x\n", r"column v \('x' in line 6\)"),
    ],
)
def test_named_columns_that_are_no_numbers(text, why, tmp_path):
    with pytest.raises(kf.InputError, match=why):
        read(table(tmp_path, text), columns=["v"])


@pytest.mark.parametrize("quick", [True, False])
def test_decimal_commas_where_other_characters_separate_cells(tmp_path, quick, monkeypatch):
    if not quick:
        monkeypatch.setattr("kronfield.files.csv_files.read_quickly", lambda *given: None)
    text = "Ort;Länge;Höhe;Tag\nA;6,77;-500,125;03.02.2024\nB;7;1e3;28.02.2024\nC;8,5;;29.02.2024\n"
    signal = read(table(tmp_path, text), columns=["Höhe"], coordinates=["Länge"])
    np.testing.assert_array_equal(signal.points[:, 0], [6.77, 7, 8.5])
    np.testing.assert_array_equal(signal.values, [-500.125, 1000, np.nan])
    named = read_columns(table(tmp_path, text), ["Länge"])
    np.testing.assert_array_equal(np.ravel(named), [6.77, 7, 8.5])
    tabs = read(table(tmp_path, "1,5\t2,25\n2,5\t3\n3\t1,234\n", name="b.tsv"))
    np.testing.assert_array_equal(tabs.values, [2.25, 3, 1.234])


@pytest.mark.parametrize("text", ["x;v\n1.5;2,5\n", "x;v\n1,234;2\n12;1,500\n"])
def test_commas_that_may_be_thousands_are_refused(tmp_path, text):
    with pytest.raises(kf.InputError, match="thousands without a comma"):
        read(table(tmp_path, text), coordinates=["x"], columns=["v"])


def test_a_stray_word_far_down(tmp_path):
    rows = "".join(f"{i},{i},{i}\n" for i in range(20_000))
    path = table(tmp_path, f"x,y,v\n{rows}1,2,missing\n")
    with pytest.raises(kf.InputError, match=r"column v \('missing' in line 20002\)"):
        read(path)
    assert len(read(path, coordinates=["x"], columns=["y"]).values) == 20_001


def test_headers_in_comments(tmp_path):
    np.savetxt(
        tmp_path / "a.csv", [[1, 2, 3], [4, 5, 6]], delimiter=",", header="made today\nx,y,v"
    )
    signal = read(tmp_path / "a.csv")
    assert signal.info["axes"] + signal.info["channels"] == ["x", "y", "v"]
    np.testing.assert_array_equal(signal.values, [3, 6])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(encoding, tmp_path):
    signal = read(table(tmp_path, "x,Höhe [m]\n1,2\n", encoding=encoding))
    assert signal.info["channels"] == ["Höhe [m]"]
    assert signal.values.tolist() == [2]


def test_no_text_at_all(tmp_path):
    for data in (
        bytes(range(256)) * 30,
        codecs.BOM_UTF16_LE + b"\x00\xd8" * 51,
        b'x,v\n1,"' + b"2" * 200_000,
    ):
        (tmp_path / "a.csv").write_bytes(data)
        with pytest.raises(kf.InputError):
            read(tmp_path / "a.csv")


def test_many_rows(tmp_path):
    """More than one batch, with a gap in the last."""
    values = np.random.default_rng(0).normal(size=(40_000, 3))
    write(tmp_path / "a.csv", values, {"axes": ["x", "y"], "channels": ["v"]})
    with open(tmp_path / "a.csv", "a") as file:
        file.write("1,2,\n")
    signal = read(tmp_path / "a.csv")
    np.testing.assert_array_equal(signal.points[:-1], values[:, :2])
    np.testing.assert_array_equal(signal.values[:-1], values[:, 2])
    assert np.isnan(signal.values[-1])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_there_and_back(name, tmp_path):
    rng = np.random.default_rng(0)
    points, values = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    values[3, 1] = np.nan
    info = {"axes": ["x, east", "y"], "channels": ["u", "v"], "dtype": "float64"}
    with writer(tmp_path / name, (50,), 4, info) as file:
        for block in np.array_split(np.hstack([points, values]), 3):
            file.write(block)
    signal = read(tmp_path / name, coordinates=["x, east", "y"])
    np.testing.assert_array_equal(signal.points, points)
    np.testing.assert_array_equal(signal.values, values)
    assert signal.info["channels"] == ["u", "v"]
    write(tmp_path / name, signal.values[:, 0], {"channels": ["u"]}, overwrite=True)
    with pytest.raises(kf.InputError, match="the columns u, of which numbers: u"):
        read(tmp_path / name)


def test_text_of_numbers(tmp_path):
    write(tmp_path / "a.csv", np.array([[0.1, np.nan], [1e-30, 12345678]], np.float32), {})
    assert (tmp_path / "a.csv").read_text() == "c0,c1\n0.1,\n1e-30,1.2345678e+07\n"
    write(tmp_path / "b.csv", np.array([0.1, 1 / 3]), {"channels": ["v"]})
    assert (tmp_path / "b.csv").read_text() == f"v\n0.1\n{1 / 3!r}\n"
    with pytest.raises(kf.InputError, match="a table 1 axis"):
        write(tmp_path / "c.csv", np.ones((3, 4, 5)), {})


def test_parquet(tmp_path):
    columns = {
        "x": pyarrow.array([1, 2, None, 4], pyarrow.int32()),
        "y": pyarrow.array([0.5, 1.5, 2.5, 3.5], pyarrow.float64()),
        "v": pyarrow.array([1.25, None, 3.25, 4.25], pyarrow.float32()),
        "name": ["a", "b", "c", "d"],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    signal = read(tmp_path / "a.parquet")
    assert signal.info["axes"] == ["x", "y"]
    assert signal.values.dtype == np.float32
    np.testing.assert_array_equal(signal.points, [[1, 0.5], [2, 1.5], [4, 3.5]])
    np.testing.assert_array_equal(signal.values, [1.25, np.nan, 4.25])
    assert (signal.info["dropped"], signal.info["missing"], signal.info["raw_bytes"]) == (
        1,
        1,
        4 * 16,
    )
    for name, why in (
        ("name", r"no number in column name \(type string\)"),
        ("nam", r"Did you mean name\?"),
    ):
        with pytest.raises(kf.InputError, match=why):
            read(tmp_path / "a.parquet", columns=[name])
    columns["when"] = pyarrow.array([1, 2, 3, 4], pyarrow.timestamp("s"))
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").info["unused"] == ["name", "when"]
    dated = read(tmp_path / "a.parquet", coordinates=["when"], columns=["y"])
    assert dated.labels[0].values(dated.points[:, 0]).tolist() == columns["when"].to_pylist()
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-10])
    with pytest.raises(kf.InputError, match="cannot be read"):
        read(tmp_path / "a.parquet")


def test_a_coordinate_is_not_taken_for_the_value_in_place_of_text(tmp_path):
    with pytest.raises(ValueError, match="columns: got no number in column v"):
        read(table(tmp_path, "x,y,v\n0,1,low\n1,2,high\n2,3,low\n"))
    named = read(table(tmp_path, "x,y,v\n0,1,low\n1,2,high\n2,3,low\n"), columns=["y"])
    assert named.info["channels"] == ["y"]


def test_a_field_is_not_read_as_samples(tmp_path):
    (tmp_path / "photo.field").write_bytes(b"")
    with pytest.raises(ValueError, match="It is a field already: kronfield render"):
        read(tmp_path / "photo.field")


@pytest.mark.parametrize("header", ["name,x,y,z", "x,y,z,remark"])
def test_text_beside_three_coordinates_changes_nothing(header, tmp_path):
    row = ["low" if name in ("name", "remark") else "1" for name in header.split(",")]
    signal = read(table(tmp_path, "\n".join([header, ",".join(row), ",".join(row)]) + "\n"))
    assert signal.info["channels"] == ["z"]


# Dates
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-02-28", "2024-02-29", "2024-03-01"],
        ["2024/2/28", "2024/2/29", "2024/3/1"],
        ["28.2.2024", "29.02.2024", "1.3.2024 00:00"],
        ["2024-02-28T00:00:00Z", "2024-02-29 01:00+01:00", "2024-03-01 00:00:00.000"],
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_a_column_of_dates_is_the_coordinate(cells, quick, tmp_path, monkeypatch):
    if not quick:
        monkeypatch.setattr("kronfield.files.csv_files.read_quickly", lambda *_: None)
    rows = "".join(f"{cell},{i},{i * i}\n" for i, cell in enumerate(cells))
    signal = read(table(tmp_path, f"day of sale,sold,price\n{rows},7,8\n"))
    assert (signal.info["axes"], signal.info["channels"]) == (["day of sale"], ["sold", "price"])
    assert (signal.points[:, 0] / 86400).tolist() == [0, 1, 2]
    assert signal.labels[0].kind == "date"
    assert signal.info["dropped"] == 1
    found = signal.labels[0].values(signal.points[:, 0]).astype("M8[D]")
    assert found.astype(str).tolist() == ["2024-02-28", "2024-02-29", "2024-03-01"]


def test_dates_beside_places_are_a_coordinate_if_their_name_says_so(tmp_path):
    rows = "1,2,2024-01-01,3\n4,5,2024-01-02,6\n"
    assert read(table(tmp_path, f"lat,lon,time,v\n{rows}")).info["axes"] == ["lat", "lon", "time"]
    signal = read(table(tmp_path, f"lat,lon,updated,v\n{rows}"))
    assert (signal.info["axes"], signal.info["unused"]) == (["lat", "lon"], ["updated"])


def test_text_columns_with_some_numbers_are_left_out(tmp_path):
    rows = "KSFO,SFO,1,37.6,-122.4\n00AA,12,x,38,-121\nK1,LAX,,39,-120\n"
    path = table(tmp_path, f"code,iata,elevation,lat,lon\n{rows}")
    with pytest.raises(kf.InputError, match=r"no number in column elevation \('x' in line 3\)"):
        read(path)
    text = path.read_text().replace(",x,", ",2,")
    signal = read(table(tmp_path, text), columns="elevation")
    assert (signal.info["axes"], signal.info["unused"]) == (["lat", "lon"], ["code", "iata"])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_dates_there_and_back(name, tmp_path):
    label = AxisLabel.of(np.array(["2024-02-28"], "M8[D]"), "time")
    info = {"axes": ["time"], "channels": ["v"], "labels": [label.to_dict()]}
    rows = np.array([[0, 1], [43200.5, 2], [np.nan, 3]])
    write(tmp_path / name, rows, info)
    signal = read(tmp_path / name)
    assert signal.points[:, 0].tolist() == [0, 43200.5]
    assert signal.labels[0].epoch == label.epoch
    assert read_columns(tmp_path / name, ["time"], labels=[label])[:2, 0].tolist() == [0, 43200.5]
    with pytest.raises(kf.InputError, match="dates in column time"):
        read_columns(tmp_path / name, ["time"])


cells = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(["", "NA", "nan", "inf", " 1.5", "+2", "1e5", "true", "2024-01-01", "a b"]),
    st.text("ab ,\"'1.-", max_size=4),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=1, max_size=6))
def test_pyarrow_reads_what_python_reads(rows):
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "a.csv", "w+b") as file:
        with open(file.name, "w", newline="") as text:
            csv.writer(text).writerows([["x", "y", "v"], *rows])
        found = []
        for quick in (read_quickly, lambda *_: None):
            with mock.patch("kronfield.files.csv_files.read_quickly", quick):
                try:
                    signal = read(Path(file.name))
                    found.append([signal.points.tolist(), signal.values.tolist(), signal.info])
                except kf.InputError as error:
                    found.append(str(error))
        assert repr(found[0]) == repr(found[1])


def test_months_are_words_of_the_calendar():
    cells = ["29 February 2024", "3-Sept-2024 12:30", "may 4, 2024", "Dec. 5, 2024"]
    dates = ["2024-02-29", "2024-09-03T12:30", "2024-05-04", "2024-12-05"]
    assert np.array_equal(parse_dates(cells, [False] * 4), np.array(dates, dtype="datetime64[m]"))
    for word in ("Marble", "Mayor", "Juno", "32 Jan", "Febr"):
        for cell in (f"{word} 2, 2024", f"2 {word} 2024"):
            assert parse_dates([cell], [False]) is None
