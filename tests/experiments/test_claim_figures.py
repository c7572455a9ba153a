"""Figures of claims from closed forms, measured slopes, and what the released code does."""

import math

import numpy as np
import pytest

import kronfield as kf
from kronfield.experiments import (
    closed_form_claims as closed,
    differences,
    load_spec,
    reproduce,
    slopes,
)
from kronfield.experiments.encodings import norm_ratio, simple_encoding
from kronfield.experiments.released import (
    ReleasedBlending,
    released_similarity,
    with_top_frequency,
)
from kronfield.experiments.results import Results, read_rows
from kronfield.experiments.tasks import make_task

rng = np.random.default_rng(0)


# Closed forms
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unity", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_operator_is_the_closed_form(ridge, unity):
    """Against the normal equations of the features, formed densely."""
    side, emb = 32, kf.Gaussian(16, 0.05)
    fine = emb(np.arange(side) / side)
    if unity:
        fine = fine / fine.sum(axis=1)[:, None]
    gram = fine[::2].T @ fine[::2]
    top = np.linalg.eigvalsh(gram)[-1]
    expected = fine @ np.linalg.solve(gram + ridge * top * np.eye(16), fine[::2].T)
    found = closed.operator(emb, side, ridge=ridge, unity=unity)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    if unity and not ridge:
        np.testing.assert_allclose(found @ np.ones(16), 1.0, atol=1e-9)


def test_scores_are_those_of_the_task():
    values = rng.random((32, 32, 3)).astype(np.float32)
    task = make_task(values, "grid", 0.0, 0)
    matrix = closed.operator(kf.Triangle(16, 2 / 16), 32)
    dense = np.einsum("ia,jb,abc->ijc", matrix, matrix, task.coarse)
    assert closed.scores(matrix, [task])[0] == pytest.approx(task.score(dense)[0], abs=1e-4)


def test_same_rank_and_distance_do_not_decide():
    pytest.importorskip("skimage")
    found = closed.same_rank()
    assert found["largest relative difference of rank and preservation"].value < 0.1
    # Not the condition number: the hat has the better one, and a ridge changes nothing.
    assert found["rank 0.5 N: condition of the triangle"].value < 5
    name = "rank 0.5 N, {}: Gaussian minus triangle"
    plain, ridge, sum_1 = (found[name.format(x)] for x in ("as it is", "ridge", "sum 1"))
    assert plain.n >= 8
    assert plain.low > 3
    assert ridge.value == pytest.approx(plain.value, abs=0.01)
    # The hat darkens pictures between the samples. With features that add up to 1 it does not.
    assert found["rank 0.5 N: 1 between the samples by the triangle"].value < 0.9
    assert abs(sum_1.value) < 1
    # At low rank it is the condition of the Gaussian, and there a ridge does help.
    low = "rank 0.125 N, {}: Gaussian minus triangle"
    assert found["rank 0.125 N: condition of the Gaussian"].value > 1e8
    assert found[low.format("as it is")].high < -3
    assert abs(found[low.format("ridge")].value) < 1
    repaired = [number.value for number in found.values() if number.family == "difference, both"]
    assert len(repaired) == len(closed.RANKS)
    assert max(map(abs, repaired)) < 1


def test_draws_of_few_frequencies_differ_more():
    pytest.importorskip("skimage")
    found = closed.frequency_choice()
    for kind in ("complex", "simple"):
        fewest = found[f"{kind}: spread at the fewest features"]
        assert fewest.n >= 8
        assert found[f"{kind}: spread at the fewest features minus at the most"].low > 0
        assert found[f"{kind} RFF: loss at twice the setting"].low > 0
    assert (
        found["complex RFF: loss at twice the setting"].value
        > found["complex Gaussian: loss at twice the setting"].value
    )


def test_simple_features_in_closed_form():
    """Against least squares with the ridge as more rows, and a constant."""
    task = make_task(rng.random((16, 16, 3)).astype(np.float32), "grid", 0.0, 0)
    points = np.stack(np.meshgrid(*task.axes, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = np.column_stack([kf.RandomFourier(12, 2.0, 5, 2)(points), np.ones(256)])
    given = rows[~task.asked.ravel()]
    ridge = np.sqrt(closed.SMALL_RIDGE) * np.linalg.norm(given, 2) * np.eye(13)
    known = np.vstack([task.values[~task.asked], np.zeros((13, 3))])
    weights = np.linalg.lstsq(np.vstack([given, ridge]), known)[0]
    expected, _ = task.score((rows @ weights).reshape(16, 16, 3))
    (found,) = closed._simple_psnr(12, 2.0, 5, [task])
    assert found == pytest.approx(expected, abs=1e-6)


def test_bandwidth_on_both_sides_is_needed():
    found = closed.bandwidth(256)
    assert found["Gaussian: relative error of D with 1 B features"] > 0.01
    assert found["largest error with 2 B features"] < 2 * found["tolerance"]
    # 2 exp(-(pi sigma d)^2): the first alias of a product of two Gaussians
    d = math.ceil(found["Gaussian: B"])
    expected = 2 * math.exp(-((math.pi * 0.03 * d) ** 2))
    error = found["Gaussian: relative error of D with 1 B features"]
    assert error == pytest.approx(expected, rel=0.05)


# Slopes
# ------------------------------------------------------------------------------------------


def test_slope_and_its_interval():
    x = np.array([10.0, 20.0, 40.0, 80.0, 160.0])
    assert slopes.slope(x, 3 * x**2.5) == pytest.approx((2.5, 2.5, 2.5))
    noisy = x**3 * np.array([1.1, 0.9, 1.05, 0.95, 1.0])
    found = slopes.slope(x, noisy)
    line = np.polynomial.Polynomial.fit(np.log(x), np.log(noisy), 1).convert().coef[1]
    assert found.value == pytest.approx(line)
    assert found.low < 3 < found.high
    assert found.high - found.low > 0.05
    assert slopes.slope(x[:2], x[:2]).high == math.inf


def made_up(exponent=0.0):
    rows = [
        {"job": name, "N": N, "K": N, "seconds": 1e-9 * N ** (job.exponent + exponent), "load": 0.5}
        for name, job in slopes.JOBS.items()
        for N in job.sizes
    ]
    return rows + [
        {"job": "rectangles", "N": N, "K": K, "seconds": 1e-9 * N * K * (N + K), "load": 0.5}
        for N, K in slopes.RECTANGLES
    ]


def test_quick_slopes_do_not_replace_full_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(slopes, "_seconds", lambda function, quick: 1.0 if quick else 2.0)
    full, quick = slopes.measure(), slopes.measure(quick=True)
    results = Results(tmp_path / "slopes.jsonl")
    for row in full + quick:
        results.add(row)
    assert slopes.figures(results.rows) == slopes.figures(full) != slopes.figures(quick) != {}


def test_figures_of_slopes():
    found = slopes.figures(made_up())
    assert found["largest distance of a slope from its exponent"].value < 1e-9
    assert found["seconds per N K (N + K), largest over least"].value == pytest.approx(1)
    separable = found["separable, 2 axes: slope"]
    assert (separable.value, separable.low) == (pytest.approx(3), pytest.approx(3))
    assert separable.n == len(slopes.JOBS["separable, 2 axes"].sizes)
    other = slopes.figures(made_up(0.7))["largest distance of a slope from its exponent"]
    assert other.value > 0.69
    assert slopes.figures([]) == {}


def test_jobs_are_the_products_they_are_named_after():
    N, Psi = 6, np.random.default_rng(0).standard_normal((6, 6))
    weights = np.random.default_rng(0).standard_normal((6, 6))
    by = {name: job.make(N)() for name, job in slopes.JOBS.items()}
    np.testing.assert_allclose(by["separable, 2 axes"], Psi @ weights @ Psi.T)
    flat = np.random.default_rng(0).standard_normal(36)
    formed = by["Kronecker product formed, 2 axes"].reshape(6, 6)
    np.testing.assert_allclose(formed, Psi @ flat.reshape(6, 6) @ Psi.T)
    both = np.random.default_rng(0).standard_normal(12)
    sums = (Psi @ both[:6])[:, None] + (Psi @ both[6:])[None]
    np.testing.assert_allclose(by["simple encoding, 2 axes"].reshape(6, 6), sums)
    assert by["blending matrix, 2 axes"].shape == (36,)


# The released code
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [2.0, 4.5])
def test_the_top_frequency_is_included(exponent):
    linear = with_top_frequency(kf.LinearFourier(16, exponent))
    np.testing.assert_allclose(linear.frequencies, np.linspace(1, 2**exponent, 8))
    log = with_top_frequency(kf.LogFourier(16, exponent))
    np.testing.assert_allclose(log.frequencies, 2 ** np.linspace(0, exponent, 8))


@pytest.mark.parametrize(
    "emb",
    [
        kf.Gaussian(32, 0.03),
        kf.Triangle(32, 0.15),
        kf.RandomFourier(32, 4.0),
        kf.LinearFourier(32, 2.0),
    ],
    ids=repr,
)
def test_released_blending(emb):
    """Against the two-by-two system of one point, with nodes at k/(K - 1)."""
    blending = ReleasedBlending(kf.Kronecker(emb))
    x = np.array([0.0, 0.31, 0.5, 0.77, 1.0])
    indices, weights = blending.corners(x[:, None])
    assert indices.max() == 31
    for at, index, weight in zip(np.minimum(x, 0.999), indices, weights, strict=True):
        ends = index / 31
        D = released_similarity(emb, ends[:, None] - ends[None, :])
        alpha = np.linalg.solve(D, released_similarity(emb, ends - at))
        np.testing.assert_allclose(weight, alpha / alpha.sum(), atol=1e-8)


# What the differences change
# ------------------------------------------------------------------------------------------


def test_differences_are_measured_and_continue(tmp_path):
    pytest.importorskip("skimage")
    reproduce("released", tmp_path, size="tiny")
    rows = read_rows(tmp_path / "released.jsonl")
    assert {row["part"] for row in rows} == {part.key for part in differences.PARTS}
    before = (tmp_path / "released.jsonl").read_bytes()
    reproduce("released", tmp_path, size="tiny")
    assert (tmp_path / "released.jsonl").read_bytes() == before
    # the text's way is that of the tables
    row = next(row for row in rows if (row["part"], row["encoder"]) == ("settings", "Gau"))
    reproduce("table3", tmp_path, size="tiny", methods="closed:Gau")
    (same,) = read_rows(tmp_path / "table3.jsonl")
    assert (row["data"], row["setting"]) == (same["data"], same["setting"])
    assert row["found"]["text"] == same["psnr"]
    # every line has words for what was measured
    table2 = [{"spec": "table2", "group": "complex", "side": 16, "epochs": 2, "encoder": "Tri"}]
    table2[0] |= {"psnr": 20.5, "psnr_unclipped": 20.0}
    text = differences.markdown(rows, table2)
    assert "not measured" not in text
    assert "n = 1, Tri +0.50 dB |" in text.replace(". The tables", " |")
    assert "not measured" in differences.markdown([], [])


def test_differences_are_paired_by_item():
    rows = [
        {
            "part": "blending",
            "table": "table2",
            "side": 128,
            "epochs": 2000,
            "encoder": "Gau",
            "item": f"p{i}",
            "found": {"text": 20.0 + i, "weights": 20.5 + i + 0.1 * (i % 2)},
        }
        for i in range(6)
    ]
    (words,) = differences.effects(rows, []).values()
    assert words == "128 x 128, 2,000 epochs: n = 6, Gau -0.55 dB [-0.61, -0.49]"
    for row, ratio in zip(rows, (1.021, 1.019, 1.02, 1.02, 1.02, 1.02), strict=True):
        row["found"] = {"ratio": ratio}
    assert differences.effects(rows, [])["ratio"] == "Gau 1.9 to 2.1 %"
    assert differences.effects(rows[2:], [])["ratio"] == "Gau 2.0 %"


def test_batches_of_other_points_have_other_norms():
    method = next(m for m in load_spec("table1").methods if m.key == "simple: Tri, depth 4")
    encoding = simple_encoding(method, 2, 0)
    some, others = rng.random((2, 50, 2))
    norms = [np.linalg.norm(encoding(points), axis=1).max() for points in (some, others)]
    assert norm_ratio(encoding, some, others) == pytest.approx(norms[0] / norms[1])


def test_released_similarities():
    d = np.linspace(0, 0.2, 5)
    printed = np.maximum(0.2 - d, 0) ** 2  # 1/4 max(sigma - d, 0)^2, up to the factor
    np.testing.assert_allclose(released_similarity(kf.Triangle(32, 0.2), d), printed)
    rff = kf.RandomFourier(8, 3.0)
    np.testing.assert_allclose(
        released_similarity(rff, d) / 4, np.exp(-2 * (np.pi * 3 * d) ** 2), atol=1e-12
    )
