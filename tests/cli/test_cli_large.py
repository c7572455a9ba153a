"""Zarr stores on the command line: chunks, workers, and commands that go on where they were."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import kronfield as kf
from clifiles import as_json, make_store, refused, run
from effort import LONG
from kronfield.fitting import settings

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")
pytest.importorskip("distributed")
# distributed may warn that this machine is busy
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small_chunks(monkeypatch, samples):
    few = settings.changed(settings.DEFAULT, "lazy", "chunk_samples", samples)
    monkeypatch.setattr(settings, "DEFAULT", few)


def test_a_store_is_fitted_and_rendered_in_chunks(folder, monkeypatch):
    small_chunks(monkeypatch, 10_000)
    values = make_store(folder / "in.zarr", (300, 260), (50, 50))
    said = as_json("fit in.zarr -o out.zarr --periodic x=520")
    assert (said["shape"], said["kind"]) == ([300, 260], "array")
    field = kf.load("out.zarr")
    assert field.weights.numblocks[0] > 1
    assert field.domain[1] == (-1.0, 519.0)
    assert field.weights.numblocks[1] == 1  # a circle is one chunk
    assert list(field.info["made"]["options"]) == ["periodic"]
    assert field.labels.names == ("y", "x")
    run("render out.zarr -o fine.zarr --scale 2 --crop y=20:60")
    fine = xarray.open_zarr("fine.zarr")["height"]
    assert fine.dims == ("y", "x")
    assert fine.shape == (160, 520)
    memory = field.compute()
    np.testing.assert_allclose(fine, memory.on_grid([fine.y.values, fine.x.values]), atol=1e-3)
    y, x = 10 + 0.5 * np.arange(300), np.arange(260) * 2.0
    np.testing.assert_allclose(memory.on_grid([y, x]), values, atol=1e-3)
    told = run("info out.zarr").stdout
    assert "array from in.zarr" in told
    assert "float32" in told
    (folder / "places.csv").write_text("y,x\n20,3\n30.1,7.5\n")
    run("render out.zarr --at places.csv -o values.csv")
    rows = np.loadtxt("values.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(rows[:, -1], memory(rows[:, :2]), atol=1e-4)


def test_arrays_without_names_and_members(folder):
    group = zarr.open_group("in.zarr", mode="w")
    for name, factor in (("a", 1.0), ("b", 2.0)):
        data = factor * np.sin(np.arange(80) / 9)[:, None] * np.ones(60)
        group.create_array(name, data=data, chunks=(40, 40))
    run("fit in.zarr:b -o out.zarr")
    field = kf.load("out.zarr")
    np.testing.assert_allclose(field.on_grid(), group["b"][:], atol=1e-9)
    refused("fit in.zarr -o other.zarr", "2 arrays (a, b)")
    refused("fit in.zarr:c -o other.zarr", "no array 'c'")
    refused("fit out.zarr -o other.zarr", "a saved field")
    zarr.create_array("one.zarr", data=group["a"][:])
    run("fit one.zarr -o one-field.zarr -e triangle --ridge 0")
    assert isinstance(kf.load("one-field.zarr").encoding.embedders[0], kf.Triangle)


def test_what_fits_in_chunks_do_not_have_is_refused(folder):
    make_store(folder / "in.zarr")
    (folder / "a.csv").write_text("x,y\n1,2\n")
    refused("fit in.zarr --workers 2", "-o: got no name")
    refused("fit in.zarr -o a.field --memory 1GB", "expected a name that ends in .zarr")
    refused("fit a.csv -o a.zarr", "INPUT: got a.csv")
    refused("fit in.zarr -o missing/a.zarr", "Create missing first")
    refused("fit in.zarr -o a.zarr --dtype float16", "--dtype: got it for a fit in chunks")
    refused("fit in.zarr -o a.zarr --trend 1", "--trend")
    refused("fit in.zarr -o a.zarr --workers 1 --memory 1MB", "at least 256 MiB")
    refused("fit in.zarr -o a.zarr --workers 1 --scheduler tcp://a:1", "one of the two")
    refused("fit in.zarr -o in.zarr", "which exists")
    run("fit in.zarr -o out.zarr")
    refused("render out.zarr -o fine.png", "expected a name that ends in .zarr")
    refused("render out.zarr -o fine.zarr --range 0:1", "--range: got it for a field in a zarr")
    kf.fit(np.arange(30.0)).save("a.field")
    refused("render a.field -o a.npy --workers 2", "expected a field in a zarr store")


# A command that is ended by the system after its third chunk.
KILLED = """
    import os, signal, sys
    from kronfield._core import progress
    from kronfield.cli import main
    from kronfield.fitting import settings

    settings.DEFAULT = settings.changed(settings.DEFAULT, "lazy", "chunk_samples", {samples})

    def ended(self, done, figures="", *, total=None):
        if done >= 3 and {is_killed}:
            os.kill(os.getpid(), signal.SIGKILL)

    progress.Bar.update = ended
    if __name__ == "__main__":
        main(sys.argv[1:])
"""


def command(folder, line, samples, is_killed):
    text = textwrap.dedent(KILLED).format(samples=samples, is_killed=is_killed)
    (folder / "job.py").write_text(text)
    return subprocess.run(
        [sys.executable, "job.py", *line.split()],
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(not LONG, reason="a minute")
def test_a_killed_client_of_workers_goes_on_where_it_was(folder):
    """The workers end with the client; the same command then computes what is missing."""
    values = make_store(folder / "in.zarr", (1500, 1500), (250, 250))
    for line, part, name in (
        ("fit in.zarr -o out.zarr --workers 2 --memory 400MB", ".out.part.zarr", "weights"),
        (
            "render out.zarr -o fine.zarr --scale 2 --workers 2 --memory 400MB",
            ".fine.part.zarr",
            "height",
        ),
    ):
        done = command(folder, line, 62_500, True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        there = [os.path.join(at, one) for at, _, ones in os.walk(f"{part}/{name}") for one in ones]
        kept = {
            one: os.stat(one).st_mtime_ns for one in there if os.path.basename(one)[0].isdigit()
        }
        assert len(kept) >= 3
        done = command(folder, line, 62_500, False)
        assert done.returncode == 0, done.stderr
        assert "chunks are there already" in done.stdout
        target = part.replace(".part", "")[1:]
        for one, when in kept.items():
            assert os.stat(one.replace(part, target)).st_mtime_ns == when
    memory = kf.fit(values, [10 + 0.5 * np.arange(1500), 2.0 * np.arange(1500)], noise=0)
    fine = xarray.open_zarr("fine.zarr")["height"][1400:1600, 1400:1600]
    expected = memory.on_grid([fine.y.values, fine.x.values])
    np.testing.assert_allclose(fine, expected, atol=1e-3)
