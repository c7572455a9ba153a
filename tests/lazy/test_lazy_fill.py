"""Missing samples of arrays of Dask, filled chunk by chunk."""

import numpy as np
import pytest

import kronfield as kf
from kronfield.lazy.field import LazyField
from kronfield.lazy.fill import widest_hole

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def waves(shape=(240, 200)):
    x, y = (np.arange(float(n)) for n in shape)
    return np.sin(x / 12)[:, None] * np.cos(y / 15)


def holes(shape=(240, 200), seed=0):
    """A tenth of the samples at random, and squares on the seams of chunks."""
    missing = np.random.default_rng(seed).random(shape) < 0.1
    missing[114:126, 90:110] = True
    missing[60:70, 95:105] = True
    return missing


@pytest.mark.parametrize("lazy_mask", [True, False])
def test_holes_are_filled_as_in_memory(lazy_mask):
    values, missing = waves(), holes()
    given = np.where(missing, np.nan, values)
    mask = da.from_array(missing, chunks=(80, 200)) if lazy_mask else missing
    lazy = kf.fit(da.from_array(given, chunks=(120, 100)), mask=mask)
    assert isinstance(lazy, LazyField)
    assert lazy.weights.npartitions == 4
    assert "filled chunk by chunk" in lazy.report.chosen_by
    memory = kf.fit(values, mask=missing)
    found, expected = lazy.on_grid().compute(), memory.on_grid()
    np.testing.assert_allclose(found[~missing], values[~missing], atol=1e-9)
    errors = [np.sqrt(np.mean((one - values)[missing] ** 2)) for one in (found, expected)]
    assert errors[0] < max(2 * errors[1], 1e-3)
    # no seam in the hole that four chunks share
    slopes = np.abs(np.diff(found - values, axis=0))[:, 90:110]
    assert slopes[118:121].max() < 2e-2


def test_chunks_without_holes_are_not_touched():
    values, missing = waves(), np.zeros((240, 200), dtype=bool)
    missing[10:14, 20:30] = True
    given = np.where(missing, np.nan, values)
    lazy = kf.fit(da.from_array(given, chunks=(120, 100)), mask=missing)
    whole = kf.fit(da.from_array(values, chunks=(120, 100)), noise=0)
    part = slice(150, 240)
    np.testing.assert_allclose(lazy.on_grid()[part].compute(), whole.on_grid()[part], atol=1e-8)


def test_falling_axes_and_channels():
    values = np.stack([waves(), 2 * waves()[::-1]], axis=-1)
    missing = holes()
    axes = [np.arange(240.0)[::-1], np.arange(200.0)]
    given = np.where(missing[..., None], np.nan, values)
    lazy = kf.fit(da.from_array(given, chunks=(120, 100, 1)), axes, mask=missing)
    np.testing.assert_allclose(lazy.on_grid(axes), values, atol=2e-2)


def test_wide_holes_are_refused():
    values, missing = waves((1400, 120)), np.zeros((1400, 120), dtype=bool)
    missing[5:95, 5:95] = True
    given = da.from_array(values, chunks=(150, 150))
    field = kf.fit(given, mask=missing)
    assert np.isfinite(field.on_grid()[1300:].compute()).all()
    with pytest.raises(kf.InputError, match=r"90 samples|89 samples"):
        field.on_grid()[:20].compute()
    with pytest.raises(kf.InputError, match="without known samples"):
        kf.fit(given, mask=np.ones((1400, 120), dtype=bool))
    for name, value in {"noise": 0.1, "roughness": (0.0, 1.0), "ends": "natural"}.items():
        with pytest.raises(kf.InputError, match="mask"):
            kf.fit(given, mask=missing, **{name: value})
    with pytest.raises(kf.InputError, match="the grid"):
        kf.fit(given, mask=missing[:-1])


def test_the_width_of_a_hole():
    missing = np.zeros((40, 40), dtype=bool)
    assert widest_hole(missing) == 0
    missing[3:12, 5:35] = True  # as wide as it is short
    assert widest_hole(missing) == 9
    assert widest_hole(np.ones((3, 3), dtype=bool)) == np.inf
