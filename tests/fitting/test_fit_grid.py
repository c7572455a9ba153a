"""`fit`, end to end."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from skimage import data

import kronfield as kf
from effort import examples

rng = np.random.default_rng(0)


def dense_fit(values, encoding, axes, D):
    """Return the solution of the paper's problem: least squares with the full Kronecker matrix."""
    big = np.ones((1, 1))
    for emb, x in zip(encoding.embedders, axes, strict=True):
        big = np.kron(big, emb(x))
    return np.linalg.lstsq(big, values.reshape(big.shape[0], -1), rcond=1e-10)[0].reshape(
        *encoding.shape, *values.shape[D:]
    )


SMALL = [
    kf.Gaussian(5, 0.14),
    kf.Triangle(4, 0.6),
    kf.Rectangle(5, 0.35),
    kf.Impulse(4),
    kf.TensionSpline(5, 3.0),
    kf.Sine(4, 0.8),
    kf.Square(3, 0.7),
    kf.LinearFourier(4, 1.5),
    kf.LogFourier(4, 1.0),
    kf.RandomFourier(4, 1.5, seed=3),
    kf.ShiftedBasis(5, lambda u: 1 / (1 + (u / 0.15) ** 2), name="lorentz"),
]


@pytest.mark.filterwarnings("ignore::kronfield.RankWarning")
@pytest.mark.parametrize("emb", SMALL, ids=repr)
@pytest.mark.parametrize("D", [1, 2, 3, 4])
def test_against_the_dense_kronecker_solution(emb, D):
    others = itertools.cycle([kf.Gaussian(4, 0.2), kf.TensionSpline(6, 2.0), kf.Triangle(4, 0.5)])
    encoding = kf.Kronecker(emb, *itertools.islice(others, D - 1))
    shape = (6, 7, 5, 4)[:D]
    axes = [np.arange(n) / n for n in shape]
    values = rng.standard_normal((*shape, 2))
    field = kf.fit(values, axes, encoding, domain=[(0, 1)] * D, ridge=0.0, rcond=1e-10)
    wanted = dense_fit(values, encoding, axes, D)
    fitted = encoding.on_grid(wanted, axes)
    np.testing.assert_allclose(
        field.on_grid(axes), fitted, rtol=1e-9, atol=1e-9 * np.abs(fitted).max()
    )
    np.testing.assert_allclose(field.weights, wanted, rtol=1e-7, atol=1e-9 * np.abs(wanted).max())
    points = rng.random((20, D)) * 0.9
    np.testing.assert_allclose(
        field(points),
        encoding(points) @ wanted.reshape(-1, 2),
        atol=1e-9 * max(1, np.abs(wanted).max()),
    )


def test_the_papers_two_formulas():
    """Main text with Psi (K, N); appendix, corrected, with Psi (N, K)."""
    emb, x, y = kf.Gaussian(8, 0.09), np.arange(12) / 12, np.arange(10) / 10
    S = rng.standard_normal((12, 10))  # S_ij = I(x_i, y_j)
    field = kf.fit(S, [x, y], emb, domain=[(0, 1)] * 2, ridge=0.0)
    inverse = np.linalg.inv
    Px, Py = emb(x).T, emb(y).T  # (K, N)
    main = inverse(Py @ Py.T) @ Py @ S.T @ Px.T @ inverse(Px @ Px.T)
    np.testing.assert_allclose(field.weights, main.T, atol=1e-9)
    Px, Py = emb(x), emb(y)
    appendix = inverse(Px.T @ Px) @ Px.T @ S @ Py @ inverse(Py.T @ Py)
    np.testing.assert_allclose(field.weights, appendix, atol=1e-9)


@given(
    shape=st.lists(st.integers(1, 14), min_size=1, max_size=3),
    channels=st.sampled_from([None, 1, 3]),
    dtype=st.sampled_from([np.float32, np.float64, np.complex128, np.uint8]),
)
@settings(max_examples=examples(40))
def test_interpolation_meets_any_samples(shape, channels, dtype):
    values = 100 * np.random.default_rng(1).random(
        shape if channels is None else [*shape, channels]
    )
    values = (
        (values + 1j * values[::-1]).astype(dtype)
        if np.issubdtype(dtype, complex)
        else values.astype(dtype)
    )
    field = kf.fit(values, channels=channels is not None, ridge=0.0)
    back = field.on_grid()
    assert back.shape == values.shape
    assert back.dtype == {np.uint8: np.float32}.get(dtype, dtype)
    np.testing.assert_allclose(back, values, atol=2e-4 if back.dtype == np.float32 else 1e-6)
    # the result is reproducible bit for bit
    assert np.array_equal(
        kf.fit(values, channels=channels is not None, ridge=0.0).weights, field.weights
    )


def test_dtypes():
    for dtype, wanted in (
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int16, np.float32),
        (np.int64, np.float64),
        (np.bool_, np.float32),
        (np.complex64, np.complex64),
    ):
        assert kf.fit(np.ones((20, 20), dtype)).on_grid((5, 5)).dtype == wanted


def test_anything_with_array_is_taken():
    class Samples:
        def __array__(self, dtype=None, copy=None):
            return np.arange(12.0, dtype=dtype)

    for values in (
        list(range(12)),
        Samples(),
        torch.arange(12.0),
        np.ma.masked_array(np.arange(12.0), mask=False),
    ):
        assert float(kf.fit(values)(np.array([[4.5]]))[0]) == pytest.approx(4.5, abs=1e-5)


def test_samples_are_cell_centres_so_pictures_do_not_shift():
    values = np.linspace(0, 1, 16)[:, None] * np.ones(8)
    field = kf.fit(values)
    assert field.domain == ((-0.5, 15.5), (-0.5, 7.5))
    big = field.on_grid((64, 32))
    np.testing.assert_allclose(big.reshape(16, 4, 8, 4).mean(axis=(1, 3)), values, atol=1e-6)
    half = kf.fit(values, domain=[(0, 1), (0, 2)])
    assert half.domain == ((0, 1), (0, 2))
    np.testing.assert_allclose(half.on_grid((64, 32)), big, atol=1e-9)
    np.testing.assert_allclose(half.on_grid((16, 8)), values, atol=1e-9)


def test_axes_in_any_units_and_order():
    x, y = np.linspace(1e6, 1.1e6, 40), np.linspace(-3e-4, 2e-4, 30)
    values = np.sin(x[:, None] / 2e4) * np.cos(y / 1e-4)
    points = np.stack([rng.uniform(1e6, 1.1e6, 50), rng.uniform(-3e-4, 2e-4, 50)], axis=1)
    truth = np.sin(points[:, 0] / 2e4) * np.cos(points[:, 1] / 1e-4)
    rising = kf.fit(values, [x, y])
    np.testing.assert_allclose(rising(points), truth, atol=2e-2)
    falling = kf.fit(values[::-1, ::-1], [x[::-1], y[::-1]])
    np.testing.assert_allclose(falling(points), rising(points), atol=1e-12)
    uneven = np.sort(rng.uniform(0, 10, 60))
    field = kf.fit(np.sin(uneven), [uneven])
    np.testing.assert_allclose(field.on_grid([uneven]), np.sin(uneven), atol=1e-5)
    inside = np.linspace(uneven[2], uneven[-3], 100)
    assert np.sqrt(np.mean((field.on_grid([inside]) - np.sin(inside)) ** 2)) < 0.05


def test_strongly_uneven_axes():
    for axis, function, bound in (
        (np.logspace(0, 2, 50), np.log, 1e-3),
        (np.logspace(0, 3, 50), np.log, 0.2),
        # a gap about ten times as long as either part
        (np.r_[np.arange(20.0), np.arange(200.0, 220.0)], lambda x: x, 1e-3),
    ):
        field = kf.fit(function(axis), [axis])
        between = np.linspace(axis[0], axis[-1], 999)
        assert np.abs(field.on_grid([between]) - function(between)).max() < bound


def test_falling_axes_come_back_in_their_order(tmp_path):
    x, y = np.linspace(2, 0, 40), np.arange(30.0)
    values = np.sin(3 * x)[:, None] * y
    field = kf.fit(values, [x, y])
    np.testing.assert_allclose(field.axes[0], x)
    np.testing.assert_allclose(field.on_grid(), values, atol=1e-9)
    field.save(tmp_path / "a.field")
    np.testing.assert_allclose(kf.load(tmp_path / "a.field").on_grid(), values, atol=1e-9)
    # the axis of a line may be a single array
    np.testing.assert_allclose(kf.fit(values[:, 3], x).on_grid(), values[:, 3], atol=1e-9)


def test_choices_depend_on_neither_scale_nor_offset():
    values = np.sin(np.arange(50) / 5) + 0.3 * np.random.default_rng(1).standard_normal(50)
    plain = kf.fit(values)
    for scale, offset in ((1e200, 0.0), (1e-200, 0.0), (1.0, 1e6), (2.0**20, 0.0)):
        other = kf.fit(scale * values + offset)
        assert other.encoding == plain.encoding
        assert other.report.roughness == pytest.approx(plain.report.roughness, rel=1e-3)
    with pytest.raises(kf.InputError, match="overflows"):
        kf.fit(
            1e308 * np.random.default_rng(0).choice([-1.0, 1.0], (20, 20)),
            encoding=kf.Gaussian(20, 0.04),
            ridge=0.0,
        )


def test_derivative_of_a_line_may_be_a_number():
    field = kf.fit(np.arange(10.0))
    np.testing.assert_allclose(field(np.array([[4.5]]), 1), [1.0], atol=1e-6)


def test_long_axes_stay_banded():
    for n in (32768, 100_003):  # with full and with partial last blocks of rows
        signal = np.sin(np.arange(n) / 9)
        field = kf.fit(signal)
        assert field.report.methods == ["banded"]
        np.testing.assert_allclose(field.on_grid(), signal, atol=1e-6)
    with pytest.raises(kf.InputError, match="factored densely"):
        kf.fit(signal, encoding=kf.Gaussian(50_000, 0.1), ridge=0.0)
    long = kf.fit(signal, roughness="gcv")  # smoothed as a band
    np.testing.assert_allclose(long.on_grid(), signal, atol=1e-3)


def test_one_sample():
    field = kf.fit(np.array([3.0]))
    assert field.on_grid((4,)).round(6).tolist() == [3.0] * 4
    assert kf.fit(np.array([[3.0, 4.0]]), channels=False)(np.array([[0.2, 0.5]])).round(
        6
    ).tolist() == [3.5]


def test_channels_are_inferred_or_told():
    assert kf.fit(np.ones((20, 20, 3))).dimensions == 2
    assert kf.fit(np.ones((20, 20, 20))).dimensions == 3
    assert kf.fit(np.ones((20, 20, 3)), channels=False).dimensions == 3
    assert kf.fit(np.ones((20, 7)), channels=True).dimensions == 1
    assert kf.fit(np.ones((20, 7)), [np.arange(20.0)]).dimensions == 1
    with pytest.raises(kf.InputError, match="values: got shape"):
        kf.fit(np.ones((20, 7, 3, 3)), [np.arange(20.0), np.arange(7.0)])


# The choice of settings
# ------------------------------------------------------------------------------------------


def test_a_photograph_is_better_than_linear_and_cubic():
    from scipy.interpolate import RectBivariateSpline

    photo = data.astronaut()[:240, 120:360].astype(np.float32) / 255
    train, x = photo[::2, ::2], np.arange(120.0)
    fine = np.arange(240) / 2
    rest = np.ones((240, 240), bool)
    rest[::2, ::2] = False

    def psnr(image):
        return -10 * math.log10(np.mean((image - photo)[rest] ** 2))

    ours = psnr(kf.fit(train).on_grid([fine, fine]))
    for k in (1, 3):
        peer = [RectBivariateSpline(x, x, train[..., c], kx=k, ky=k)(fine, fine) for c in range(3)]
        assert ours > psnr(np.stack(peer, axis=-1))


def test_noise_is_smoothed_and_clean_data_is_not():
    x = np.linspace(0, 1, 80)
    clean = np.sin(6 * x)[:, None] * np.cos(4 * x)
    noisy = clean + 0.2 * rng.standard_normal(clean.shape)
    field = kf.fit(noisy)
    assert any(field.report.roughness)
    assert "cross-validation; noise" in field.report.chosen_by
    assert "Stein's unbiased risk" in kf.fit(noisy, noise=0.2).report.chosen_by
    assert np.mean((field.on_grid() - clean) ** 2) < 0.1 * np.mean((noisy - clean) ** 2)
    assert field.report.degrees_of_freedom < 0.3 * noisy.size
    assert kf.fit(clean).report.roughness == (0.0, 0.0)
    assert any(kf.fit(clean, roughness="gcv").report.roughness)


def test_ridge_by_cross_validation():
    x = np.linspace(0, 1, 40, endpoint=False)
    clean = np.sin(6 * x)
    noisy = clean + 0.3 * np.random.default_rng(5).standard_normal(40)
    emb = kf.Gaussian(40, 0.02)
    chosen, plain = kf.fit(noisy, [x], emb), kf.fit(noisy, [x], emb, ridge=0.0)
    assert chosen.report.ridge > 0
    assert len(chosen.report.candidates) > 20
    best = min(chosen.report.candidates, key=lambda one: one.score)
    assert best.chosen
    assert best.kind == "ridge"
    assert best.parameters == {"ridge": chosen.report.ridge}
    assert np.mean((chosen.on_grid() - clean) ** 2) < np.mean((plain.on_grid() - clean) ** 2)


def test_report_prints_and_is_plain_data():
    import json

    field = kf.fit(rng.standard_normal((30, 20, 3)))
    text = str(field.report)
    for words in (
        "30 x 20 samples, 3 channels",
        "axis 1: TensionSpline",
        "chosen by",
        "degrees of freedom",
        "rms",
        " s",
    ):
        assert words in text
    report = json.loads(json.dumps(field.report.to_dict()))
    assert report["samples"] == [30, 20]
    given = kf.fit(rng.standard_normal(30), encoding=kf.Gaussian(10, 0.1), ridge=0.0).report
    assert given.chosen_by == "given"
    assert given.residual > 0.1
    assert given.stable_ranks[0] == pytest.approx(
        kf.stable_rank(kf.Gaussian(10, 0.1)(kf.even_axis(30)))
    )


def test_rank_deficiency_is_said_and_harmless():
    for emb in (
        kf.LinearFourier(64, 4.0),
        kf.LogFourier(64, 4.0),
        kf.RandomFourier(64, 4.0),
        kf.Sine(64, 1.0),
    ):
        with pytest.warns(kf.RankWarning, match=r"effective rank \d+ of 64.*narrower width"):
            field = kf.fit(
                rng.standard_normal((64, 64)).astype(np.float32), encoding=emb, ridge=0.0
            )
        assert field.report.ranks[0] < 64
        values = field.on_grid((128, 128))
        assert values.dtype == np.float32
        assert np.all(np.isfinite(values))
        assert np.abs(values).max() < 1e4


def test_refit_gives_what_fit_gives():
    a, b = rng.standard_normal((2, 40, 30, 3))
    field = kf.fit(a, encoding=kf.Gaussian(30, 0.02), ridge=0.0)
    again = field.refit(b)
    assert np.array_equal(
        again.weights, kf.fit(b, encoding=kf.Gaussian(30, 0.02), ridge=0.0).weights
    )
    assert np.array_equal(again.refit(a).weights, field.weights)
    for wrong in (b[:20], b.astype(np.float32), b[..., 0]):
        with pytest.raises(kf.InputError, match="values"):
            field.refit(wrong)


# Bad input
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"values": np.array([1.0, np.nan])}, "1 NaN or inf.*fit_points"),
        ({"values": np.full(5, np.nan)}, "5 NaN or inf.*nothing to fit"),
        ({"values": "photo.png"}, "the text 'photo.png'.*read it first"),
        ({"values": np.ones(5), "mask": "mask.png"}, "the text 'mask.png'.*read it first"),
        ({"values": np.array([1.0, np.inf])}, "fit_points"),
        ({"values": np.zeros((0, 4))}, "at least one sample"),
        ({"values": np.float64(3)}, "at least one axis"),
        ({"values": np.array(["a"])}, "numbers"),
        ({"values": [[1.0], [1.0, 2.0]]}, "values"),
        ({"values": np.ones((4, 4)), "axes": [np.arange(4.0)] * 3}, "3 axes"),
        ({"values": np.ones(4), "axes": [np.arange(5.0)]}, r"axes\[0\].*shape \(4,\)"),
        ({"values": np.ones(4), "axes": [np.array([0.0, 1.0, 1.0, 2.0])]}, "strictly increase"),
        ({"values": np.ones(4), "axes": [np.array([0.0, np.nan, 1.0, 2.0])]}, "NaN"),
        ({"values": np.ones(4), "axes": [np.arange(4.0)], "domain": [(0, 2)]}, "Widen the domain"),
        ({"values": np.ones(4), "domain": [(1, 0)]}, "low < high"),
        ({"values": np.ones(4), "domain": [(0, 1)] * 2}, "1 pairs"),
        ({"values": np.ones(4), "domain": 5}, "domain"),
        ({"values": np.ones(4), "axes": 5}, "list of arrays"),
        ({"values": np.ones(4), "axes": [["a"] * 4]}, "real numbers"),
        ({"values": np.ones(4), "axes": [np.arange(4) + 1j]}, "real numbers"),
        ({"values": torch.ones(4, requires_grad=True)}, "values"),
        ({"values": np.ones(4), "encoding": "gaussian"}, "Kronecker encoding"),
        (
            {
                "values": np.ones((4, 4)),
                "axes": [np.arange(4.0)] * 2,
                "encoding": kf.Kronecker(kf.Impulse(4)),
            },
            "one per axis",
        ),
        ({"values": np.ones(4), "ridge": -1.0}, "ridge"),
        ({"values": np.ones(4), "roughness": 3}, "roughness"),
        ({"values": np.ones(4), "roughness": "best"}, "gcv"),
        ({"values": np.ones(4), "channels": "yes"}, "channels"),
        ({"values": np.ones(4), "rcond": 2.0}, "rcond"),
        (
            {"values": np.ones(4), "encoding": kf.Rectangle(4, 0.3), "roughness": (1.0, 0.0)},
            "derivative",
        ),
    ],
)
def test_bad_input_to_fit(arguments, words):
    with pytest.raises(kf.InputError, match=words):
        kf.fit(**arguments)


def test_texture_is_kept_and_noise_is_smoothed():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 6, 240)
    shape = np.sin(x)[:, None] * [1.0, 0.8, 1.2]
    texture = shape + 0.05 * np.cumsum(rng.standard_normal((240, 1)), axis=0)
    noise = shape + 0.3 * rng.standard_normal((240, 3))
    kept, smoothed = kf.fit(texture, channels=True), kf.fit(noise, channels=True)
    assert kept.report.roughness == (0.0, 0.0)
    assert np.abs(kept.on_grid([np.arange(240.0)]) - texture).max() < 1e-6
    assert max(smoothed.report.roughness) > 0
    assert np.sqrt(np.mean((smoothed.on_grid([np.arange(240.0)]) - shape) ** 2)) < 0.1


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_noise_can_be_given(sigma):
    rng = np.random.default_rng(0)
    x = np.linspace(0, 3, 60)
    clean = np.stack([np.sin(x), np.cos(x)], axis=-1)
    noisy = clean + [0.1, 0.2] * rng.standard_normal((60, 2))
    field = kf.fit(noisy, noise=sigma)
    assert (max(field.report.roughness) > 0) == (sigma > 0)
    each = kf.fit(noisy, noise=[0.1, 0.2])
    error = np.sqrt(np.mean((each.on_grid() - clean) ** 2, axis=0))
    assert np.all(error < [0.05, 0.1])
    same = kf.fit(noisy[:, 0] + 1j * noisy[:, 1], noise=0.15)
    assert np.abs(same.on_grid() - clean[:, 0] - 1j * clean[:, 1]).max() < 0.3


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (-1.0, r"got -1\.0; expected a standard deviation of 0 or more, or 2"),
        (np.nan, "nan"),
        ([0.1, 0.2, 0.3], r"got \[0\.1, 0\.2, 0\.3\]; expected"),
        (np.array([0.5, -0.25]), r"got \[0\.5, -0\.25\]; expected"),
        (np.ones((20, 2)), r"got an array of shape \(20, 2\)"),
        ("much", "got 'much'"),
        (True, "got True"),
    ],
)
def test_noise_that_is_none(noise, words):
    with pytest.raises(kf.InputError, match=f"(?i)noise: .*{words}"):
        kf.fit(np.ones((20, 2)), noise=noise)


@pytest.mark.parametrize(
    "other",
    [
        {"ridge": 1.0},
        {"roughness": (0.0, 1.0)},
        {"encoding": kf.Triangle(20, 0.1)},
    ],
)
def test_noise_beside_a_penalty_is_refused(other):
    with pytest.raises(kf.InputError, match="noise"):
        kf.fit(np.ones(20), noise=0.1, **other)


def test_long_axes_are_smoothed_too():
    rng = np.random.default_rng(0)
    x = np.arange(3000)
    line = np.sin(x / 200)
    field = kf.fit(line + 0.1 * rng.standard_normal(3000))
    assert np.sqrt(np.mean((field.on_grid() - line) ** 2)) < 0.02
    assert field.report.degrees_of_freedom < 100
    surface = line[:1500, None] * np.cos(np.arange(40) / 9)
    both = kf.fit(surface + 0.1 * rng.standard_normal(surface.shape))
    assert np.sqrt(np.mean((both.on_grid() - surface) ** 2)) < 0.02


def test_one_noisy_channel_on_a_line_is_smoothed_where_the_signal_is_plain():
    rng = np.random.default_rng(0)
    signal = np.sin(np.linspace(0, 12, 400))
    field = kf.fit(signal + 0.2 * rng.standard_normal(400))
    assert max(field.report.roughness) > 0
    assert np.sqrt(np.mean((field.on_grid([np.arange(400.0)]) - signal) ** 2)) < 0.08


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: kf.fit(np.ones((4, 5)), mask=np.ones((4, 5), bool)),
            "mask: got True at all of 20.*~mask",
        ),
        (lambda: kf.fit(np.ones((4, 5)), mask=np.ones((4, 5))), "mask.astype"),
        (lambda: kf.fit([[1.0, 2.0], [3.0]]), "Rows of a list must have equal lengths"),
        (lambda: kf.fit(np.array([1.0, np.inf, 2.0])), "mask=~np.isfinite"),
        (
            lambda: kf.fit_points(np.ones((0, 2)), np.ones(0)),
            "points: got .*; expected at least one point",
        ),
        (
            lambda: kf.fit_points(np.ones((3, 2)), np.ones(3), weights=-np.ones(3)),
            "weights: got 3 below 0, the lowest -1",
        ),
        (
            lambda: kf.fit_points(np.ones((3, 2)), np.ones(3), weights=np.zeros(3)),
            "no weight above 0",
        ),
        (lambda: kf.width_for_rank(kf.Gaussian(10, 0.1), 50), "Pass Gaussian, without settings"),
    ],
)
def test_errors_say_what_to_do(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_reports_show_themselves():
    assert repr(kf.fit(np.arange(20.0)).report).startswith("fit of 20 samples")
    assert repr(kf.fit_points(np.arange(20.0)[:, None], np.arange(20.0)).report).startswith(
        "fit of 20 points"
    )


def test_modules_are_attributes():
    assert kf.files.kind_of("a.png") == "image"
    assert kf.signals.__name__ == "kronfield.signals"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kf.nonsense  # noqa: B018


def test_noise_is_not_looked_for_in_what_is_all_but_exact():
    x = np.arange(400) / 400
    smooth = (np.sin(7 * x)[:, None] * np.cos(5 * x)).astype(np.float32)  # rounding is not noise
    field = kf.fit(smooth)
    assert field.report.roughness == (0.0, 0.0)


def noisy_line(channels=1):
    rng = np.random.default_rng(3)
    return np.sin(np.linspace(0, 12, 240))[:, None] + 0.4 * rng.standard_normal((240, channels))


@pytest.mark.parametrize(
    "values",
    [
        noisy_line()[:, 0] * np.exp(0.25j * np.pi),
        noisy_line()[:, 0] * np.exp(-0.25j * np.pi),
        noisy_line()[:, 0] * 1j,
        noisy_line()[:, 0] + 0j,
        np.repeat(noisy_line(), 3, axis=1),
        noisy_line() * [1, -1],
        noisy_line() * [1, 0],
    ],
    ids=["turned", "turned back", "imaginary", "real", "grey as colours", "negative", "with zeros"],
)
def test_multiples_of_one_channel_are_judged_as_one(values):
    alone = kf.fit(noisy_line()[:, 0]).report.roughness
    assert max(alone) > 0
    assert kf.fit(values, channels=values.ndim == 2).report.roughness == pytest.approx(
        alone, rel=1e-3
    )


def test_a_constant_channel_beside_others_changes_nothing():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 6, 240)[:, None]
    noisy = np.sin(x) * [1.0, 0.9, 1.1] + 0.2 * rng.standard_normal((240, 3))
    opaque = np.concatenate([noisy, np.ones((240, 1))], axis=1)
    plain = kf.fit(noisy, channels=True).on_grid()
    np.testing.assert_allclose(kf.fit(opaque, channels=True).on_grid()[:, :3], plain, atol=1e-6)


def test_the_report_has_the_error_where_nothing_was_given():
    x = np.linspace(0, 1, 41)
    values = np.sin(9 * x)[:, None] * np.cos(7 * x)
    report = kf.fit(values, axes=[x, x]).report
    errors = report.held_out_errors
    assert list(errors) == ["field", "linear", "cubic"]
    half = values[::2, ::2]
    true = kf.fit(half, axes=[x[::2], x[::2]]).on_grid([x, x]) - values
    held_out = np.ones(values.shape, bool)
    held_out[::2, ::2] = False
    assert errors["field"] == pytest.approx(np.sqrt(np.mean(true[held_out] ** 2)), rel=1e-6)
    assert errors["field"] < errors["cubic"] < errors["linear"]
    assert "held-out error: field" in str(report)
    assert "held-out error" in report._repr_html_()
    assert pickle.loads(pickle.dumps(report)).held_out_errors == errors
    assert kf.fit(values[:, :5]).report.held_out_errors == {}
    # the last sample of an even number is not extrapolated
    assert kf.fit(np.sin(np.arange(300) / 9)).report.held_out_errors["field"] < 1e-6


@pytest.mark.parametrize(
    ("shape", "dimensions"), [((9, 8, 4), 2), ((9, 8, 5), 3), ((5, 5, 4), 2), ((5, 4, 4), 3)]
)
def test_up_to_four_entries_are_channels_where_all_other_axes_have_more(shape, dimensions):
    field = kf.fit(np.random.default_rng(0).random(shape), noise=0.0)
    assert field.dimensions == dimensions
