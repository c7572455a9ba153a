"""Stores that are written chunk by chunk, and jobs that go on where they were ended."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kronfield as kf
from kronfield.files import read
from kronfield.signals.export import export_lazily
from kronfield.signals.view import view

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

CHUNKS = 128


@pytest.fixture(autouse=True)
def in_this_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dask.config.set(scheduler="synchronous"):
        yield


def values(shape=(512, 384)):
    """Steps on a ramp, in an array of zarr."""
    rng = np.random.default_rng(0)
    steps = np.repeat(np.repeat(rng.integers(0, 9, [n // 8 for n in shape]), 8, 0), 8, 1)
    return (steps + 0.01 * np.add.reduce(np.indices(shape))).astype(np.float32)


@pytest.fixture
def samples():
    """The same, in a store; the file of each chunk is written once."""
    return zarr.create_array("samples.zarr", data=values(), chunks=(CHUNKS, CHUNKS))


def times(folder):
    """Return the files of chunks of an array in a store, and when they were written."""
    return {
        path: os.stat(path).st_mtime_ns
        for path in (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
        if os.path.basename(path)[0].isdigit()
    }


# A job that is ended by the system after its third chunk.
KILLED = """
    import os, signal
    import dask, zarr
    import kronfield as kf
    from kronfield.signals.export import export_lazily
    from kronfield.signals.view import view

    dask.config.set(scheduler="synchronous")

    def ended(done, total):
        if done == 3:
            os.kill(os.getpid(), signal.SIGKILL)

"""
FIT = "kf.fit(zarr.open('samples.zarr', mode='r'), noise=0).save('out.zarr', {})"
RENDER = "field = kf.load('out.zarr'); export_lazily(field, 'fine.zarr', view(field, scale=2), {})"


def killed(job):
    code = textwrap.dedent(KILLED) + job
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL


def test_a_killed_job_goes_on_where_it_was(samples):
    killed(FIT.format("resume=True, progress=ended"))
    assert not os.path.exists("out.zarr")
    kept = times(".out.part.zarr/weights")
    assert len(kept) == 3
    with pytest.raises(kf.InputError, match="chunks are missing"):
        kf.load(".out.part.zarr").on_grid().compute()
    seen = []
    field = kf.fit(samples, noise=0)
    field.save("out.zarr", resume=True, progress=lambda *now: seen.append(now))
    total = seen[-1][1]
    assert total >= 12
    assert seen == [(done, total) for done in range(3, total + 1)]
    assert not os.path.exists(".out.part.zarr")
    again = times("out.zarr/weights")
    assert len(again) == total
    for path, when in kept.items():
        assert again[path.replace(".out.part", "out")] == when
    there, memory = kf.load("out.zarr"), kf.fit(samples[...], noise=0)
    np.testing.assert_array_equal(there.weights, field.weights)
    np.testing.assert_allclose(there.on_grid((900, 700)), memory.on_grid((900, 700)), atol=2e-4)

    killed(RENDER.format("progress=ended"))
    assert not os.path.exists("fine.zarr")
    assert len(times(".fine.part.zarr/value")) == 3
    seen.clear()
    where = view(there, scale=2)
    done = export_lazily(there, "fine.zarr", where, progress=lambda *now: seen.append(now))
    assert seen[0] == (3, 12)
    assert done.shape == (1024, 768)
    fine = xarray.open_zarr("fine.zarr")
    np.testing.assert_array_equal(fine["axis 1"], where.axes[1])
    np.testing.assert_allclose(fine["value"], memory.on_grid((1024, 768)), atol=2e-4)


def begun(field, chunks=2):
    """Begin a store of a field, and end the job after some chunks."""

    def ended(done, total):
        if done == chunks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        field.save("out.zarr", resume=True, progress=ended)


def test_another_job_does_not_go_on(samples):
    begun(kf.fit(samples, noise=0))
    others = {
        "another fit": kf.fit(samples, ends="natural"),
        "other values": kf.fit(da.from_zarr(samples) + 1, noise=0),
        "chunks of": kf.fit(da.from_zarr(samples).rechunk(256), noise=0),
    }
    for why, other in others.items():
        with pytest.raises(kf.InputError, match=f"{why}.*remove this folder"):
            other.save("out.zarr", resume=True)
    os.remove(".out.part.zarr/zarr.json")
    with pytest.raises(kf.InputError, match="remove this folder"):
        kf.fit(samples, noise=0).save("out.zarr", resume=True)
    kf.fit(samples, noise=0).save("out.zarr")  # does not look at what was begun
    assert os.path.isdir(".out.part.zarr")


def test_another_rendering_does_not_go_on(samples):
    kf.fit(samples, noise=0).save("out.zarr")
    field = kf.load("out.zarr")

    def ended(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_lazily(field, "fine.zarr", view(field, scale=2), progress=ended)
    with pytest.raises(kf.InputError, match="another grid"):
        export_lazily(field, "fine.zarr", view(field, scale=3))
    kf.fit(2 * da.from_zarr(samples), noise=0).save("double.zarr")
    double = kf.load("double.zarr")
    with pytest.raises(kf.InputError, match="other values"):
        export_lazily(double, "fine.zarr", view(field, scale=2))
    with pytest.raises(kf.InputError, match="a zarr folder"):
        export_lazily(field, "fine.tif")


def test_views_of_lazy_fields_are_those_of_fields_in_memory(samples):
    field = kf.fit(samples, noise=0)
    memory = field.compute()
    for options in (
        {"size": (100, 90)},  # means over cells
        {"scale": 2, "crop": {0: (5, 60)}},
        {"cut": {1: 30.25}},
    ):
        where = view(field, **options)
        done = export_lazily(field, "view.zarr", where, overwrite=True)
        expected = np.concatenate(list(where.blocks(memory)))
        assert done.shape == expected.shape
        found = xarray.open_zarr("view.zarr")["value"]
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_lost_chunks_of_stores_of_the_first_version_are_told():
    """Chunks of zeros were not written then, and what is not there is read as 0."""
    data = np.concatenate([np.zeros(600), values((256, 8))[:, 0]])
    field = kf.fit(da.from_array(data, chunks=CHUNKS), noise=0)
    field.save("new.zarr")
    field.save("old.zarr")
    weights = field.planes.compute()
    old = zarr.open_group("old.zarr")
    array = old.create_array(
        "weights", shape=weights.shape, chunks=(1, CHUNKS), dtype="f8", overwrite=True
    )
    array[:] = weights
    with pytest.warns(kf.lazy.storage.LostChunksWarning, match="9 chunks.*read as 0"):
        there = kf.load("old.zarr")
    np.testing.assert_array_equal(there.planes, weights)
    there.save("old.zarr")
    kf.load("old.zarr")


def test_an_array_without_names_is_read_in_memory_too():
    samples = np.arange(30, dtype=np.int16).reshape(5, 6)
    zarr.create_array("plain.zarr", data=samples)
    group = zarr.create_group("group.zarr")
    for name in "ab":
        group.create_array(name, data=samples + (name == "b"))
    found = read("plain.zarr")
    np.testing.assert_array_equal(found.values, samples)
    assert found.values.dtype == np.float32
    assert not found.channels
    np.testing.assert_array_equal(read("group.zarr:b").values, samples + 1)
    with pytest.raises(kf.InputError, match="2 arrays"):
        read("group.zarr")
    zarr.create_array("none.zarr", data=np.empty((0, 3)))
    with pytest.raises(kf.InputError, match="at least one real number"):
        read("none.zarr")
    kf.fit(dask.array.from_array(samples * 1.0, chunks=3)).save("saved.zarr")
    with pytest.raises(kf.InputError, match="a saved field"):
        read("saved.zarr")
