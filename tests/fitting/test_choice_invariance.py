"""The choice does not depend on units, constants, flips, or the order of axes and channels."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from skimage import data

import kronfield as kf
from effort import examples


def photograph():
    return data.astronaut()[100:160, 180:232].astype(np.float64) / 255


def smooth():
    x, y = np.linspace(0, 1, 60), np.linspace(0, 1, 52)
    waves = np.sin(9 * x)[:, None] * np.cos(7 * y)
    return np.stack([waves, waves**2, np.exp(waves)], axis=-1)


def noisy():
    return smooth() + 0.1 * np.random.default_rng(0).standard_normal((60, 52, 3))


CASES = {"photograph": photograph(), "smooth": smooth(), "noisy": noisy()}


def choice(values, axes=None):
    """What a fit chose: the kinds of its candidates, splines by axis, and whether it smooths."""
    report = kf.fit(values, axes, channels=True).report
    degrees = [getattr(emb, "degree", None) for emb in report.embedders]
    chosen = [one.kind for one in report.candidates if one.chosen]
    return sorted(set(chosen)), degrees, report.refined, max(report.roughness) > 0


KNOWN = {name: choice(values) for name, values in CASES.items()}


def test_the_cases_differ():
    assert [KNOWN[name][2:] for name in CASES] == [(True, False), (False, False), (False, True)]


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=examples(8))
@given(
    scale=st.floats(1e-6, 1e6),
    sign=st.sampled_from([-1.0, 1.0]),
    constant=st.floats(-30, 30),
    lengths=st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)),
)
def test_units_and_constants(name, scale, sign, constant, lengths):
    values = CASES[name]
    spread = float(np.ptp(values))
    moved = sign * scale * (values + constant * spread)
    axes = [length * np.arange(n) for length, n in zip(lengths, values.shape, strict=False)]
    assert choice(moved, axes) == KNOWN[name]


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=examples(8))
@given(
    flips=st.tuples(st.booleans(), st.booleans()),
    turned=st.booleans(),
    channels=st.permutations([0, 1, 2]),
)
def test_flips_and_permutations(name, flips, turned, channels):
    values = CASES[name][..., channels]
    for axis, flip in enumerate(flips):
        values = np.flip(values, axis) if flip else values
    kinds, degrees, refined, smoothed = choice(np.swapaxes(values, 0, 1) if turned else values)
    assert (kinds, degrees[::-1] if turned else degrees, refined, smoothed) == KNOWN[name]


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_turned_with_the_values(name):
    values = CASES[name]
    plain = kf.fit(values, channels=True).on_grid((40, 30))
    turned = kf.fit(np.swapaxes(values[::-1], 0, 1), channels=True).on_grid((30, 40))
    # slopes along axes are taken along the last axis first, and are not linear in the values
    np.testing.assert_allclose(np.swapaxes(turned, 0, 1)[::-1], plain, atol=5e-3 * np.ptp(values))


def uneven(n, seed):
    return np.sort(np.random.default_rng(seed).random(n))


def on_axes(f, *axes):
    return f(*np.meshgrid(*axes, indexing="ij"))


def uneven_cases():
    """Values with two channels last, and their axes: uneven ones, and lines and volumes."""
    x, y, z = uneven(40, 1), uneven(30, 2), np.linspace(0, 1, 9)
    line, even = uneven(120, 5), np.linspace(0, 1, 60)
    found = {
        "smooth line": (np.sin(9 * line), [line]),
        "step line": (np.where(line > 0.4, 1.0, 0.0) + 0.1 * line, [line]),
        "even line": (1 / (1 + 25 * (2 * even - 1) ** 2), [even]),
        "smooth": (on_axes(lambda x, y: np.sin(5 * x) * np.exp(y), x, y), [x, y]),
        "edge": (on_axes(lambda x, y: np.tanh(40 * (x + 0.7 * y - 0.8)), x, y), [x, y]),
        "volume": (
            on_axes(lambda x, y, z: np.cos(4 * x + y - z), x[:14], y[:12], z),
            [x[:14], y[:12], z],
        ),
    }
    found = {
        name: (np.stack([values, values**2 + 0.3 * values], axis=-1), axes)
        for name, (values, axes) in found.items()
    }
    waves = found["smooth line"][0]
    noise = 0.1 * np.random.default_rng(4).standard_normal(waves.shape)
    return found | {"noisy line": (waves + noise, [line])}


UNEVEN = uneven_cases()


def chosen(values, axes):
    """The family of each axis as its parameters, whether slopes were taken, and the noise."""
    field = kf.fit(values, axes, channels=True)
    report = field.report
    smooths = report.noise is not None or max(report.roughness) > 0
    each = [(type(emb).__name__, getattr(emb, "degree", None)) for emb in report.embedders]
    marked = sorted({one.kind for one in report.candidates if one.chosen})
    ends = {
        one.parameters["axis"]: one.parameters.get("ends", one.parameters.get("width"))
        for one in report.candidates
        if one.chosen and "axis" in one.parameters
    }
    return each, marked, ends, smooths, field


KNOWN_UNEVEN = {name: chosen(*case) for name, case in UNEVEN.items()}


def test_the_uneven_cases_differ():
    kinds = {tuple(one[1]) for one in KNOWN_UNEVEN.values()}
    assert {("splines",), ("slopes",), ("Gaussians",)} <= kinds
    assert [name for name, one in KNOWN_UNEVEN.items() if one[3]] == ["noisy line"]


@pytest.mark.parametrize("name", UNEVEN)
@settings(deadline=None, max_examples=examples(6))
@given(
    scale=st.floats(1e-6, 1e6),
    sign=st.sampled_from([-1.0, 1.0]),
    constant=st.floats(-30, 30),
    length=st.floats(1e-6, 1e6),
    origin=st.floats(-10, 10),
    flips=st.tuples(*[st.booleans()] * 3),
    order=st.permutations([0, 1, 2]),
    channels=st.permutations([0, 1]),
)
def test_uneven_axes_lines_and_volumes(
    name, scale, sign, constant, length, origin, flips, order, channels
):
    values, axes = UNEVEN[name]
    each, marked, ends, smooths, plain = KNOWN_UNEVEN[name]
    D, spread = len(axes), float(np.ptp(values))
    order = [i for i in order if i < D]
    turned = np.transpose(values, [*order, D])[..., channels]
    # flipped axes run backwards, as do their samples
    placed = [length * (axes[i] * (-1.0 if flips[i] else 1.0) + origin) for i in order]
    found = chosen(sign * scale * (turned + constant * spread), placed)
    assert found[:4] == (
        [each[i] for i in order],
        marked,
        {order.index(i): end for i, end in ends.items()},
        smooths,
    )
    inside = [(x[1:] + x[:-1]) / 2 for x in axes]
    wanted = np.transpose(np.reshape(plain.on_grid(inside), [*map(len, inside), 2]), [*order, D])
    at = [length * (inside[i] * (-1.0 if flips[i] else 1.0) + origin) for i in order]
    result = found[4].on_grid(at) / (sign * scale) - constant * spread
    # slopes on several axes are taken along the last one first, and are not linear in the values
    close = 1e-2 if marked == ["slopes"] and D > 1 else 1e-3
    np.testing.assert_allclose(result, wanted[..., channels], atol=close * spread)
