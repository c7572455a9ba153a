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
