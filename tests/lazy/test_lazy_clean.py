"""Noise removed from arrays of Dask, and penalised fits, chunk by chunk: as in memory."""

import pickle
import re

import numpy as np
import pytest

import kronfield as kf
from effort import LONG
from kronfield.fitting import settings
from kronfield.fitting.splines import tension_encoding
from kronfield.lazy.field import LazyField
from kronfield.solvers.grid.separable import GridSolver

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def waves(shape=(320, 260), noise=0.1, seed=0):
    x, y = (np.arange(float(n)) for n in shape)
    rng = np.random.default_rng(seed)
    return np.sin(x / 8)[:, None] * np.cos(y / 9) + noise * rng.standard_normal(shape)


def blocks(shape=(512, 300), noise=0.5):
    rng = np.random.default_rng(1)
    steps = rng.integers(0, 9, [-(-n // 8) for n in shape]).astype(float)
    for axis in range(len(shape)):
        steps = np.repeat(steps, 8, axis)
    clean = steps[tuple(map(slice, shape))]
    return clean, clean + noise * rng.standard_normal(shape)


def stated(field):
    """Return the part of the range by which values may differ, as the report says."""
    (text,) = re.findall(r"by about (\S+) of their range", field.report.chosen_by)
    return float(text)


def differences(lazy, memory):
    """Return the largest difference at and between the samples, over the range of the values."""
    found = []
    for shape in (tuple(map(len, memory.axes)), tuple(2 * len(x) for x in memory.axes)):
        expected = memory.on_grid(shape)
        found.append(np.abs(lazy.on_grid(shape).compute() - expected).max() / np.ptp(expected))
    return max(found)


@pytest.mark.parametrize(
    ("roughness", "chunks"),
    [
        ((0.0, 1.0), (130, 90)),
        ((0.0, 10.0), (160, 260)),
        ((0.0, 100.0), (160, 130)),
        ((1.0, 0.0), (110, 90)),
        ((2.0, 3.0), (110, 90)),
    ],
    ids=str,
)
def test_a_penalised_fit_in_chunks_is_that_of_the_whole(roughness, chunks):
    values = waves()
    lazy = kf.fit(da.from_array(values, chunks=chunks), roughness=roughness)
    memory = kf.fit(values, roughness=roughness)
    assert isinstance(lazy, LazyField)
    assert lazy.weights.npartitions > 1
    assert lazy.encoding == memory.encoding
    assert differences(lazy, memory) < 2 * stated(lazy)
    assert stated(lazy) < 2e-3
    assert lazy.report.roughness == memory.report.roughness
    assert lazy.report.degrees_of_freedom == pytest.approx(
        memory.report.degrees_of_freedom, rel=0.1
    )
    assert lazy.report.residual == pytest.approx(memory.report.residual, rel=0.05)


def test_a_larger_overlap_has_a_smaller_error():
    values = da.from_array(waves(), chunks=(160, 130))
    memory = kf.fit(waves(), roughness=(2.0, 3.0))
    errors = []
    for part in (1e-2, 1e-4, 1e-6):
        some = settings.changed(settings.DEFAULT, "lazy", "tile_error", part)
        lazy = kf.fit(values, roughness=(2.0, 3.0), settings=some)
        errors.append(differences(lazy, memory))
        assert errors[-1] < part
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_the_interpolation_of_a_penalised_fit_is_that_fit():
    """So a lazy penalised fit is one without a penalty, of the values at the samples."""
    rng = np.random.default_rng(2)
    values = waves((60, 50))
    for axes in ([np.arange(60.0), 2 * np.arange(50.0)], [np.cumsum(0.5 + rng.random(60))] * 2):
        axes[1] = axes[1][:50]
        field = kf.fit(values, axes, roughness=(0.0, 2.0))
        at_samples = field.on_grid(axes)
        solver = GridSolver(field.encoding, field.frames, axes, smooth=(2, 2))
        np.testing.assert_allclose(solver.solve(at_samples[None])[0], field.weights, atol=1e-7)


def test_uneven_and_falling_axes_are_penalised_in_chunks():
    rng = np.random.default_rng(3)
    x, y = np.cumsum(0.5 + rng.random(320)), np.arange(260.0)[::-1]
    for roughness in ((0.0, 3.0), (1.0, 3.0)):
        lazy = kf.fit(da.from_array(waves(), chunks=(160, 130)), [x, y], roughness=roughness)
        memory = kf.fit(waves(), [x, y], roughness=roughness)
        expected = memory.on_grid([x, y])
        error = np.abs(lazy.on_grid([x, y]).compute() - expected).max() / np.ptp(expected)
        assert error < stated(lazy)
        assert lazy.on_grid([x, y]).npartitions > 1


def test_bases_of_uneven_parts_are_not_kept():
    """They would take more memory than the samples."""
    axes = [np.cumsum(1 + 0.3 * np.sin(np.arange(n))) for n in (240, 200)]
    values = da.from_array(waves((240, 200)), chunks=(60, 50))
    field = kf.fit(values, axes, roughness=(1e-6, 0.0))
    field.on_grid().compute()
    cleaner = field._again.cleaner
    assert not cleaner._parts
    even = kf.fit(values, roughness=(1e-6, 0.0))
    even.on_grid().compute()
    # at each of 9 places of a chunk, and those of which the degrees of freedom are counted
    assert 0 < len(even._again.cleaner._parts) <= 10


def test_noise_that_is_found_is_removed():
    values = waves(noise=0.2)
    lazy, memory = kf.fit(da.from_array(values, chunks=(160, 130))), kf.fit(values)
    assert lazy.report.noise.method == memory.report.noise.method == "a penalised fit"
    assert lazy.report.noise.sigma[0] == pytest.approx(0.2, rel=0.1)
    truth = waves(noise=0.0)
    errors = [np.std(np.asarray(field.on_grid()) - truth) for field in (lazy, memory)]
    assert errors[0] < 1.1 * errors[1] < 0.1
    again = pickle.loads(pickle.dumps(lazy))
    np.testing.assert_array_equal(again.on_grid(), lazy.on_grid())
    double = lazy.refit(da.from_array(2 * values, chunks=(160, 130)))
    np.testing.assert_allclose(double.on_grid(), 2 * lazy.on_grid(), atol=1e-9)
    gcv = kf.fit(da.from_array(values, chunks=(160, 130)), roughness="gcv")
    assert np.std(np.asarray(gcv.on_grid()) - truth) < 1.1 * errors[1]


@pytest.mark.parametrize("chunks", [(256, 150), (200, 300), (100, 60)], ids=str)
def test_shrinkage_in_chunks_is_that_of_the_whole(chunks):
    """With the noise given; whole blocks are used around each chunk, which is why chunks join."""
    clean, noisy = blocks()
    lazy = kf.denoise(da.from_array(noisy, chunks=chunks), noise=0.5)
    memory = kf.denoise(noisy, noise=0.5)
    assert lazy.report.noise.method == memory.report.noise.method == "shrinkage"
    assert "all samples around them" in lazy.report.chosen_by
    assert differences(lazy, memory) < 1e-5
    assert np.std(np.asarray(lazy.on_grid()) - clean) < 0.3


def test_channels_and_lines_and_volumes_are_denoised():
    _, noisy = blocks((256, 200))
    colours = np.stack([noisy, 2 * noisy + 1, noisy[::-1]], axis=-1).astype(np.float32)
    lazy = kf.denoise(da.from_array(colours, chunks=(128, 200, 1)), noise=0.5, channels=True)
    memory = kf.denoise(colours, noise=0.5, channels=True)
    assert lazy.dtype == np.float32
    assert differences(lazy, memory) < 1e-4
    line = np.sin(np.arange(4000) / 30) + 0.2 * np.random.default_rng(0).standard_normal(4000)
    lazy, memory = (
        kf.denoise(da.from_array(line, chunks=1000), noise=0.2),
        kf.denoise(line, noise=0.2),
    )
    assert lazy.weights.npartitions > 1
    assert np.std(np.asarray(lazy.on_grid()) - memory.on_grid()) < 0.02
    if LONG:
        _, noisy = blocks((96, 40, 40))
        lazy = kf.denoise(da.from_array(noisy, chunks=(48, 40, 40)), noise=0.5)
        assert differences(lazy, kf.denoise(noisy, noise=0.5)) < 1e-4


def test_nothing_is_removed_without_noise():
    smooth = waves(noise=0.0)
    with pytest.warns(kf.fitting.grid.NoiseWarning):
        lazy = kf.denoise(da.from_array(smooth, chunks=(160, 130)))
    np.testing.assert_allclose(lazy.on_grid(), smooth, atol=1e-9)


def test_what_is_not_removed_in_chunks_is_refused():
    values = da.from_array(waves(), chunks=(160, 130))
    with pytest.raises(kf.InputError, match=r"rechunk\(\{0: -1\}\).*coarsen"):
        kf.fit(da.zeros(5000, chunks=2500), roughness=(0.0, 1e8))
    one = kf.fit(values.rechunk(-1), roughness=(0.0, 1e8))  # one chunk is the whole grid
    memory = kf.fit(waves(), roughness=(0.0, 1e8))
    np.testing.assert_allclose(one.on_grid(), memory.on_grid(), atol=1e-6)
    with pytest.raises(kf.InputError, match="periodic"):
        kf.fit(values, roughness=(0.0, 1.0), periodic=[None, 260.0])
    with pytest.raises(kf.InputError, match="periodic"):
        kf.fit(values, noise=0.1, periodic=[None, 260.0])
    axes = [np.arange(320.0), np.arange(260.0)]
    with pytest.raises(kf.InputError, match="domain"):
        kf.fit(values, axes, roughness=(0.0, 1.0), domain=[(-9, 330), (-0.5, 259.5)])
    encoding = tension_encoding(axes, kf.fit(waves(), noise=0).frames, 8.0)
    with pytest.raises(kf.InputError, match="encoding"):
        kf.fit(values, encoding=encoding, roughness=(0.0, 1.0))
