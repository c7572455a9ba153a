"""Lazy fields on workers in other processes, with less memory than the arrays need."""

import numpy as np
import pytest

import kronfield as kf
from effort import LONG

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
# distributed may warn that this machine is busy
pytestmark = pytest.mark.filterwarnings("ignore")

LIMIT = 300_000_000  # bytes of a worker, of which half are modules
N = 3072 if LONG else 2048


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def samples(block_info=None):
    """A smooth function with steps, made where it is needed."""
    rows, columns = (np.arange(*ends) for ends in block_info[None]["array-location"])
    smooth = np.sin(rows[:, None] / 9) * np.cos(columns / 7)
    return smooth + (rows[:, None] // 50 + columns // 70) % 3


@pytest.fixture(scope="module")
def values():
    chunks = ((512,) * (N // 512),) * 2
    return da.map_blocks(samples, chunks=chunks, dtype=np.float64)


def test_two_workers_compute_more_than_their_memory(client, values, tmp_path):
    field = kf.fit(values, noise=0)
    fine = field.on_grid((2 * N, 2 * N))
    assert values.nbytes + field.weights.nbytes + fine.nbytes > LIMIT
    fine.to_zarr(str(tmp_path / "fine.zarr"), compute=True)
    assert len(client.scheduler_info()["workers"]) == 2
    stored = da.from_zarr(str(tmp_path / "fine.zarr"))
    memory = kf.fit(values.compute(scheduler="synchronous"), noise=0)
    assert field.report.chosen_by == memory.report.chosen_by
    part = slice(N - 40, N + 40)  # four chunks meet in it
    at = (np.arange(2 * N) + 0.5)[part] / 2 - 0.5
    expected = memory.on_grid([at, at])
    np.testing.assert_allclose(stored[part, part].compute(), expected, atol=1e-11)


@pytest.mark.skipif(not LONG, reason="half a minute")
def test_a_worker_that_is_killed_changes_nothing(client, values):
    import os
    import signal

    field = kf.fit(values, noise=0)
    fine = field.on_grid((N, N))
    expected = fine[N // 2 - 40 : N // 2 + 40, :40].compute(scheduler="synchronous")
    pids = client.run(os.getpid)
    total = client.compute(abs(fine).sum())
    distributed.wait(client.submit(lambda: 0, pure=False))
    assert not total.done()
    os.kill(min(pids.values()), signal.SIGKILL)  # its nanny starts another
    assert np.isfinite(total.result(timeout=240))
    found = fine[N // 2 - 40 : N // 2 + 40, :40].compute()
    np.testing.assert_allclose(found, expected, atol=1e-12)
