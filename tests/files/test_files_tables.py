"""Tables: CSV, TSV and Parquet."""

import codecs

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import kronfield as kf
from kronfield.files import read, write, writer


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
            "date,x,v\n2024-03-01,1,2\n",
            r"dates in column date \('2024-03-01' in line 2\).*seconds or days",
        ),
        ("t,v\n12:30,2\n", "dates in column t"),
        ("t,v\n01.02.2024,2\n", "dates in column t"),
    ],
)
def test_refusals(text, why, tmp_path):
    with pytest.raises(kf.InputError, match=why) as caught:
        read(table(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x;v\n1;2,5\n", r"column v \('2,5' in line 2\).*decimal point"),
        ("x,v\n1,2\n2,x\n", r"column v \('x' in line 3\)"),
        ("x,v\n1,2024_01\n", r"column v \('2024_01' in line 2\)"),
        ("\n# note\nx,v\n1,2\n\n2,x\n", r"column v \('x' in line 6\)"),
    ],
)
def test_named_columns_that_are_no_numbers(text, why, tmp_path):
    with pytest.raises(kf.InputError, match=why):
        read(table(tmp_path, text), columns=["v"])


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
    with pytest.raises(kf.InputError, match=r"dates in column when \(type timestamp"):
        read(tmp_path / "a.parquet")
    assert len(read(tmp_path / "a.parquet", coordinates=["x", "y"]).values) == 3
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
