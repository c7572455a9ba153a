"""What the page shows is what the library computes, and its Python code says the same."""

import base64
import contextlib
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import kronfield as kf
from effort import examples
from kronfield._core.arrays import InputError
from kronfield.play import encode, points, reconstruct
from kronfield.play.jobs import Jobs, plain
from kronfield.play.pictures import built_in, painted, read_picture, shrunk, square
from kronfield.play.states import ENCODE, POINTS, RECONSTRUCT, REPAIR, SHAPES, TRAIN, checked


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("play"), None)


def asked(jobs, name, given, parts=None):
    said = [] if parts is None else parts
    return jobs.run(name, given, said.append, lambda: False)


def printed(code):
    """Run Python code in a new scope, and return all numbers that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "page", "exec"), {})
    numbers = re.findall(r"(?<![\w.=])-?\d+\.?\d*(?:e[-+]?\d+)?", out.getvalue())
    return [float(number) for number in numbers]


def script(jobs, tab, state):
    return asked(jobs, "script", {"tab": tab, "state": state})["code"]


def says(numbers, value):
    return any(np.isclose(number, value, rtol=1e-6, atol=1e-12) for number in numbers)


# states
# ------------------------------------------------------------------------------------------


def test_a_state_has_defaults_and_takes_the_texts_of_an_address():
    assert checked(ENCODE, {})["a"] == "gaussian"
    state = checked(ENCODE, {"k": "17", "as": "0.05", "b": "rff"})
    assert (state["k"], state["as"], state["b"]) == (17, 0.05, "rff")


@pytest.mark.parametrize(
    ("spec", "state", "names"),
    [
        (ENCODE, {"k": 1}, "k"),
        (ENCODE, {"k": 257}, "k"),
        (ENCODE, {"k": 2.5}, "k"),
        (ENCODE, {"k": True}, "k"),
        (ENCODE, {"a": "wavelet"}, "a"),
        (ENCODE, {"as": "nan"}, "as"),
        (ENCODE, {"as": "wide"}, "as"),
        (ENCODE, {"as": float("inf")}, "as"),
        (ENCODE, {"drawn": "0" * 127}, "drawn"),
        (ENCODE, {"other": 1}, "other"),
        (ENCODE, [1], "state"),
        (RECONSTRUCT, {"picture": "../../etc/passwd"}, "picture"),
        (RECONSTRUCT, {"zoom": "1.5,0"}, "zoom"),
        (REPAIR, {"strokes": "x" * 10}, "strokes"),
        (REPAIR, {"strokes": "3:" + "1.2." * 3000 + "1"}, "strokes"),
        (POINTS, {"points": "1,2"}, "points"),
        (POINTS, {"points": "1,2,nan"}, "points"),
        (POINTS, {"points": None}, "points"),
        # between two parts there is a separator; what does not match is refused at once
        (POINTS, {"points": "1,2,34,5,6"}, "points"),
        (POINTS, {"points": "1,1,111" * 1000 + "x"}, "points"),
        (REPAIR, {"strokes": "1:1.112:5.5"}, "strokes"),
        (REPAIR, {"strokes": "1:111" * 1000 + "x"}, "strokes"),
    ],
)
def test_other_states_are_refused_by_name(spec, state, names):
    with pytest.raises(InputError, match=names):
        checked(spec, state)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*ENCODE, *RECONSTRUCT, "?"]),
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.none())),
        max_size=4,
    )
)
def test_any_state_is_checked_or_refused(state):
    for spec in (ENCODE, TRAIN, RECONSTRUCT, REPAIR, POINTS):
        with contextlib.suppress(InputError):
            assert set(checked(spec, state)) == set(spec)


# Encode
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHAPES)
def test_encode_shows_what_the_library_computes(jobs, kind):
    shape = SHAPES[kind].default or 1.0
    state = {"a": kind, "as": shape, "k": 20, "n": 12, "at": "random", "seed": 3}
    found = asked(jobs, "encode", state)["embedders"]["a"]
    emb = encode.embedder(kind, shape, 20)
    x = np.sort(np.random.default_rng(3).random(12))
    matrix = found["matrix"]
    levels = np.frombuffer(base64.b64decode(matrix["data"]), np.uint8).reshape(12, -1)
    shown = matrix["low"] + levels / 255 * (matrix["high"] - matrix["low"])
    assert np.allclose(shown, emb(x), atol=(matrix["high"] - matrix["low"]) / 500)
    assert found["stable_rank"] == kf.stable_rank(emb(x))
    assert found["preservation"] == kf.distance_preservation(emb)
    y = encode.SIGNALS["waves"](x)
    least = np.linalg.pinv(emb(x), rcond=1e-10) @ y
    assert np.isclose(found["error_at_samples"], np.sqrt(np.mean((emb(x) @ least - y) ** 2)))


@pytest.mark.parametrize("signal", [*encode.SIGNALS, "drawn"])
def test_the_code_of_encode_prints_the_numbers_of_the_page(jobs, signal):
    drawn = "".join(f"{10 + i % 26}" for i in range(64))
    state = {"signal": signal, "drawn": drawn, "b": "rff", "n": 16, "at": "random"}
    numbers = printed(script(jobs, "encode", state))
    for one in asked(jobs, "encode", state)["embedders"].values():
        for name in ("stable_rank", "stable_rank_theory", "preservation", "error_between"):
            assert says(numbers, one[name]), name


def test_match_gives_the_rff_of_a_gaussian_and_back(jobs):
    rff = asked(jobs, "match", {"a": "gaussian", "as": 0.02})
    assert rff["kind"] == "rff"
    assert np.isclose(rff["shape"] * 0.02, 1 / (2 * np.sqrt(2) * np.pi))
    back = asked(jobs, "match", {"a": "rff", "as": rff["shape"]})
    assert back["kind"] == "gaussian"
    assert np.isclose(back["shape"], 0.02)
    with pytest.raises(InputError, match="gaussian or rff"):
        asked(jobs, "match", {"a": "sine"})


# Reconstruct
# ------------------------------------------------------------------------------------------

SMALL = {"picture": "shapes", "side": 32}


@pytest.mark.parametrize(
    "state",
    [
        SMALL,
        SMALL | {"task": "random", "share": 1 / 3, "seed": 5, "kind": "triangle", "s": 3.0},
        SMALL | {"kind": "linf", "s": 0.3},
    ],
    ids=["grid", "random", "Fourier"],
)
def test_the_code_of_reconstruct_prints_the_numbers_of_the_page(jobs, state):
    numbers = printed(script(jobs, "reconstruct", state))
    closed = asked(jobs, "reconstruct", state)["closed"]
    assert says(numbers, closed["psnr"])
    for one in asked(jobs, "baselines", state).values():
        assert says(numbers, one["psnr"])


def test_the_closed_form_is_that_of_the_paper(jobs):
    picture = built_in("shapes", 32)
    emb = kf.Gaussian(16, 0.64 / 16)
    x, all_x = np.arange(0, 32, 2) / 32, np.arange(32) / 32
    inverse = np.linalg.pinv(emb(x), rcond=1e-10)
    weights = np.einsum("ki,ijc,lj->klc", inverse, picture[::2, ::2], inverse)
    dense = np.einsum("ik,klc,jl->ijc", emb(all_x), weights, emb(all_x))
    hidden = np.ones((32, 32), dtype=bool)
    hidden[::2, ::2] = False
    wanted = -10 * np.log10(np.mean((dense - picture)[hidden] ** 2))
    assert np.isclose(asked(jobs, "reconstruct", SMALL)["closed"]["psnr"], wanted, atol=1e-6)


def test_a_detail_is_the_field_between_the_pixels(jobs):
    state = checked(RECONSTRUCT, SMALL | {"zoom": "0.25,0.5"})
    task = reconstruct.Task(state, built_in("shapes", 32))
    rows, columns = reconstruct._detail_axes(state, task)
    assert np.allclose(rows, 0.25 + np.arange(32) / 128)
    assert np.allclose(columns, 0.5 + np.arange(32) / 128)
    assert "detail" in asked(jobs, "reconstruct", state)["closed"]
    for one in asked(jobs, "baselines", state).values():
        assert one["detail"].startswith("data:image/png;base64,")


def test_a_closed_form_that_cannot_be_had_is_a_sentence(jobs):
    found = asked(jobs, "reconstruct", SMALL | {"task": "random", "kind": "rff"})
    assert "closed" not in found
    assert "not local" in found["refused_fit"]


@pytest.mark.parametrize(
    "more",
    [
        {"combine": "complex", "depth": 0},
        {"combine": "simple", "depth": 1},
        {"combine": "complex", "depth": 1, "task": "random"},
    ],
    ids=["linear", "simple", "random"],
)
def test_training_comes_in_parts_and_its_code_prints_its_psnr(jobs, more):
    state = SMALL | {"epochs": 6} | more
    parts = []
    done = asked(jobs, "train", state, parts)
    assert parts
    assert parts[0]["epoch"] == 0
    assert done["stopped_by"] == "epochs"
    code = script(jobs, "train", state)
    assert any(np.isclose(n, done["psnr"], atol=1e-3) for n in printed(code))


def test_training_stops_when_the_page_has_left(jobs):
    state = SMALL | {"epochs": 2000}
    done = jobs.run("train", state, lambda part: None, lambda: True)
    assert done["stopped_by"] == "callback"
    assert done["epoch"] <= 2


# Repair
# ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:values. no noise was found")
@pytest.mark.parametrize("state", [{"noise": 0.1}, {"noise": 0.0}, {"noise": 0.3 / 7}])
@pytest.mark.parametrize("strokes", ["", "2:8.8.20.14;1:25.5;"])
def test_the_code_of_repair_prints_the_numbers_of_the_page(jobs, state, strokes):
    state = SMALL | state | {"strokes": strokes}
    found = asked(jobs, "repair", state)
    numbers = printed(script(jobs, "repair", state))
    if state["noise"] > 0:
        assert says(numbers, found["psnr_known"])
    else:
        assert found["psnr_known"] > 100  # known samples are kept
    assert ("psnr_holes" in found) == bool(strokes)
    if strokes:
        assert says(numbers, found["psnr_holes"])


def test_the_page_says_what_the_library_warns_of(jobs):
    assert asked(jobs, "repair", SMALL | {"noise": 0.01})["notes"]
    assert asked(jobs, "repair", SMALL | {"noise": 0.0})["notes"] == []
    assert "effective rank" in asked(jobs, "reconstruct", SMALL | {"s": 4.0})["notes"][0]


def test_a_picture_that_is_painted_over_is_refused(jobs):
    with pytest.raises(InputError, match="brush over all pixels"):
        asked(jobs, "repair", SMALL | {"strokes": "50:16.16;"})


def test_strokes_are_discs_along_lines():
    mask = painted("2:5.5.12.9;", 16)
    rows, columns = np.mgrid[:16, :16]
    t = np.clip(((columns - 5) * 7 + (rows - 5) * 4) / 65, 0, 1)
    far = np.hypot(columns - 5 - 7 * t, rows - 5 - 4 * t)
    assert mask[far <= 1.9].all()
    assert not mask[far > 2.01].any()
    outside = painted("9:300.200.30.5;9:12.300;3:0.0;", 16)
    assert outside[0, :4].all()
    assert outside.sum() == painted("3:0.0;", 16).sum()
    with pytest.raises(InputError, match="pairs"):
        painted("2:5.5.12", 16)


# Points
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_code_of_points_prints_the_numbers_of_the_page(jobs, loss):
    state = {"points": points.example(), "loss": loss, "show": "error"}
    found = asked(jobs, "points", state)
    rows = found["points"]
    field = kf.fit_points(rows[:, :2], rows[:, 2], domain=found["box"], loss=loss)
    axes = [np.linspace(*span, points.VALUES) for span in found["box"]]
    assert np.array_equal(found["values"], field.on_grid(axes))
    middle = np.mean(found["box"], axis=1)[None]
    numbers = printed(script(jobs, "points", state))
    assert any(np.isclose(n, field(middle)[0], rtol=1e-6) for n in numbers)


def test_a_fit_without_standard_errors_says_why(jobs):
    state = {"points": points.example(), "loss": "huber", "show": "error"}
    found = asked(jobs, "points", state)
    assert found["errors"] is None
    assert "standard_error" in found["notes"][-1]
    errors = asked(jobs, "points", state | {"loss": "squared"})["errors"]
    assert (errors > 0).all()


def test_an_outlier_is_circled_under_hubers_loss(jobs):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 40)).round(3)
    v = (np.sin(3 * x) + y).round(3)
    v[7] += 4
    text = ";".join(f"{a},{b},{c:.3f}" for a, b, c in zip(x, y, v, strict=True))
    assert asked(jobs, "points", {"points": text, "loss": "huber"})["rejected"] == [7]
    assert asked(jobs, "points", {"points": text})["rejected"] == []


def test_points_near_an_outlier_are_not_circled_far_from_0(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.random((60, 3)) * 20 + [5e5, 4.6e6, 0]  # metres of a national grid
    rows[:, 2] = np.sin(0.2 * (rows[:, 0] - 5e5)) + (rows[:, 1] - 4.6e6) / 20
    rows[7, 2] += 4
    np.save(tmp_path / "file.npy", rows)
    found = asked(Jobs(tmp_path, None), "points", {"table": "file", "loss": "huber"})
    assert found["rejected"] == [7]


def test_the_code_of_points_takes_zeros_before_numbers(jobs):
    state = {"points": "007,01,2;0,0,-0;1,00.5,3"}
    assert np.array_equal(asked(jobs, "points", state)["points"][0], [7, 1, 2])
    code = script(jobs, "points", state)
    assert "[7.0, 1.0, 2.0]" in code
    assert printed(code)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "3 or more"), ("0,0,1;1,1,2", "3 or more"), ("0,0,1;0,1,2;0,0.5,1", "one line")],
)
def test_points_that_determine_no_field_are_refused(jobs, text, message):
    with pytest.raises(InputError, match=message):
        asked(jobs, "points", {"points": text})
    with pytest.raises(InputError, match=message):
        script(jobs, "points", {"points": text})


def test_a_table_is_read_and_fitted(jobs, tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.random((30, 3)) * [10, 5, 1] + [100, 40, 0]
    path = tmp_path / "points.csv"
    np.savetxt(path, rows, delimiter=",", header="x,y,value", comments="")
    assert asked(jobs, "table", str(path)) == {"shape": [30, 3]}
    kept = np.load(path.with_suffix(".npy"))
    assert np.allclose(kept, rows)
    other = Jobs(tmp_path, str(path))
    path.with_suffix(".npy").rename(tmp_path / "file.npy")
    found = asked(other, "points", {"table": "file"})
    assert np.allclose(found["box"], list(zip(rows.min(0)[:2], rows.max(0)[:2], strict=True)))
    code = asked(other, "script", {"tab": "points", "state": {"table": "file"}})["code"]
    assert printed(code)


# pictures
# ------------------------------------------------------------------------------------------


def test_a_square_holds_the_mean_of_the_picture():
    picture = np.random.default_rng(0).random((30, 44, 3))
    for side in (10, 30, 16, 45):
        cut = square(picture, side)
        assert cut.shape == (side, side, 3)
        assert np.isclose(cut.mean(), picture[:, 7:37].mean())
    assert np.allclose(square(picture, 10), picture[:, 7:37].reshape(10, 3, 10, 3, 3).mean((1, 3)))


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 2), (20, 30, 3), (20, 30, 4)])
def test_any_picture_becomes_colour(shape):
    values = np.random.default_rng(0).random(shape)
    found = shrunk(values)
    assert found.shape == (20, 30, 3)
    if shape[2:] in ((2,), (4,)):
        values[..., -1] = 0  # transparent: white
        assert np.allclose(shrunk(values), 1)


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    from PIL import Image

    path = tmp_path / "large.png"
    Image.new("1", (5000, 5000)).save(path)
    with pytest.raises(InputError, match="5000 x 5000 pixels"):
        read_picture(path, 1 << 24)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InputError, match="cannot be read"):
        read_picture(path, 1 << 26)


def test_numbers_that_json_does_not_have_become_null():
    found = plain({"a": np.array([1.0, np.nan]), "b": np.inf, "c": (np.int64(3), "x"), "d": None})
    assert found == {"a": [1.0, None], "b": None, "c": [3, "x"], "d": None}


@given(st.lists(st.floats(width=64), min_size=1, max_size=6))
def test_numbers_keep_six_digits(numbers):
    for number, found in zip(numbers, plain(np.array(numbers)), strict=True):
        if np.isfinite(number):
            assert np.isclose(found, number, rtol=5.1e-6, atol=0)
        else:
            assert found is None


@pytest.mark.filterwarnings("ignore:values. no noise was found")
@pytest.mark.parametrize("tab", ["reconstruct", "chosen", "repair", "points"])
def test_fields_are_saved(jobs, tab, tmp_path):
    state = {"points": points.example()} if tab == "points" else SMALL
    path = tmp_path / "saved.field"
    path.write_bytes(asked(jobs, "save", {"tab": tab, "state": state}))
    field = kf.load(path)
    assert np.isfinite(field(np.array([[0.4, 0.4]]))).all()


def test_what_was_not_sent_is_a_sentence(jobs):
    with pytest.raises(InputError, match="Drop the file"):
        asked(jobs, "repair", {"picture": "sent-0123456789abcdef"})
    for name in ("script", "save"):
        with pytest.raises(InputError, match="tab"):
            asked(jobs, name, {"tab": "other", "state": {}})
