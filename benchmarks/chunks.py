"""Zarr to zarr at twice the size, on workers with little memory: ours and others, chunk by chunk.

python -m benchmarks.chunks               # a table, and what large arrays would take
python -m benchmarks.chunks --side 4096   # of arrays of this side

Seconds are those of the processors of all workers together: on a machine that has other work they
are about right, seconds by the clock are not. Workers are those of `kronfield.lazy.cluster`, for
every method alike. Bytes are what workers send each other. The peak is that of the larger worker.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Row, Settings

# The length of a chunk, the samples around it that splines of SciPy see, and worker memory.
CHUNK, AROUND, MEMORY = 1024, 16, "1GiB"


def truth(rows: Any, columns: Any) -> Any:
    """Return a function of the positions of samples: waves of 9 to 60 samples."""
    return (
        np.sin(rows / 9)[:, None] * np.cos(columns / 7)
        + np.sin(rows / 3 + 1)[:, None] * np.sin(columns / 5) / 4
        + np.cos(rows / 1.5)[:, None] * np.cos(columns / 2) / 16
    )


def make_samples(path: Path, side: int, chunk: int) -> None:
    """Write an array of float32."""
    import zarr

    stored = zarr.create_array(path, shape=(side, side), chunks=(chunk, chunk), dtype="f4")
    for start in range(0, side, chunk):
        rows = np.arange(start, min(start + chunk, side))
        stored[start : start + chunk] = truth(rows, np.arange(side))


def ours(samples: Any, side: int) -> Any:
    """Return the field of kronfield at twice the size."""
    import kronfield as kf

    return kf.fit(samples, noise=0).on_grid((2 * side, 2 * side))


def scipy_zoom(samples: Any, side: int) -> Any:
    """Return the cubic splines of SciPy, of chunks with the samples around them."""
    import dask.array

    del side
    values = dask.array.from_zarr(samples)
    around = dask.array.overlap.overlap(values, depth=AROUND, boundary="reflect")
    return around.map_blocks(
        _zoomed,
        dtype=np.float32,
        chunks=tuple(tuple(2 * n for n in one) for one in values.chunks),
    )


def _zoomed(block: Any) -> Any:
    from scipy.ndimage import zoom

    inner = slice(2 * AROUND, -2 * AROUND)
    return zoom(block, 2, order=3, mode="mirror", grid_mode=True)[inner, inner]


def dask_image(samples: Any, side: int) -> Any:
    """Return the cubic splines of dask-image."""
    import dask.array
    from dask_image.ndinterp import affine_transform

    values = dask.array.from_zarr(samples)
    # output i lies at sample (i + 1/2) / 2 - 1/2
    return affine_transform(
        values,
        np.diag([0.5, 0.5]),
        offset=np.array([-0.25, -0.25]),
        output_shape=(2 * side, 2 * side),
        output_chunks=tuple(2 * n for n in values.chunksize),
        order=3,
        mode="nearest",
    )


def xarray_interp(samples: Any, side: int) -> Any:
    """Return xarray's linear interpolation; it has no values past the outermost samples."""
    import dask.array
    import xarray

    values = xarray.DataArray(dask.array.from_zarr(samples), dims=("y", "x"))
    values = values.assign_coords(y=np.arange(side), x=np.arange(side))
    at = (np.arange(2 * side) + 0.5) / 2 - 0.5
    chunk = 2 * samples.chunks[0]
    found = values.interp(
        y=xarray.DataArray(at, dims="y").chunk(y=chunk),
        x=xarray.DataArray(at, dims="x").chunk(x=chunk),
    )
    return found.data.rechunk(chunk).astype(np.float32)


METHODS: dict[str, Callable[[Any, int], Any]] = {
    "kronfield": ours,
    "SciPy zoom under map_overlap, order 3": scipy_zoom,
    "dask-image, order 3": dask_image,
    "xarray interp, linear": xarray_interp,
}


@dataclass(frozen=True)
class Measured:
    """What a run took: seconds of the processors and by the clock, bytes sent, peak memory."""

    cpu: float
    clock: float
    sent: float
    peak: float
    error: float


def _reset(dask_worker: Any) -> tuple[float, float]:
    """Forget the peak memory of a worker; return its seconds and bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _state(dask_worker)[:2]


def _state(dask_worker: Any) -> tuple[float, float, float]:
    """Return the processor seconds of a worker, the bytes that it received, and its peak in MiB."""
    peak = next(
        int(line.split()[1]) / 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return (
        time.process_time(),
        float(sum(one["total"] for one in dask_worker.transfer_incoming_log)),
        peak,
    )


def _on_worker(call: Callable[[Any], Any], client: Any) -> dict[str, Any]:
    return dict(client.run(call))


def measured(method: str, folder: Path, side: int, client: Any) -> Measured:
    """Return what a method takes from one store to another."""
    import zarr

    samples = zarr.open_array(folder / "samples.zarr", mode="r")
    target = folder / "out.zarr"
    shutil.rmtree(target, ignore_errors=True)
    before = _on_worker(_reset, client)
    started, own = time.perf_counter(), time.process_time()
    METHODS[method](samples, side).to_zarr(str(target))
    clock, own = time.perf_counter() - started, time.process_time() - own
    after = _on_worker(_state, client)
    cpu = own + sum(after[one][0] - before[one][0] for one in after)
    sent = sum(after[one][1] - before[one][1] for one in after)
    found = zarr.open_array(target, mode="r")
    part = slice(side - 200, side + 200)  # chunks meet in it
    at = (np.arange(2 * side) + 0.5)[part] / 2 - 0.5
    error = float(np.sqrt(np.mean((found[part, part] - truth(at, at)) ** 2)))
    return Measured(cpu, clock, sent, max(one[2] for one in after.values()), error)


def _in_memory(folder: str, side: int) -> float:
    """Return the processor seconds of one process that holds all of it."""
    import zarr

    import kronfield as kf

    started = time.process_time()
    values = zarr.open_array(Path(folder) / "samples.zarr", mode="r")[:]
    fine = kf.fit(values, noise=0).on_grid((2 * side, 2 * side))
    chunk = 2 * min(CHUNK, side)
    target = Path(folder) / "whole.zarr"
    stored = zarr.create_array(
        target, shape=fine.shape, chunks=(chunk, chunk), dtype="f4", overwrite=True
    )
    stored[:] = fine
    return time.process_time() - started


def in_memory(folder: Path, side: int) -> float:
    """Return the processor seconds of a fit in memory in a new process, with its zarr stores."""
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(_in_memory, (str(folder), min(side, 64)))  # imports
        return float(pool.apply(_in_memory, (str(folder), side)))


def run(side: int, rounds: int, counts: tuple[int, ...], chunk: int = CHUNK) -> dict[str, Any]:
    """Return the medians of all methods, on clusters of ``counts`` workers, in turn."""
    from kronfield.lazy.cluster import workers

    found: dict[str, Any] = {}
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        make_samples(folder / "samples.zarr", side, chunk)
        for count in counts:
            with workers(count, memory=MEMORY) as client:
                names = list(METHODS) if count == counts[-1] else ["kronfield"]
                if importlib.util.find_spec("dask_image") is None:
                    names = [one for one in names if not one.startswith("dask-image")]
                for method in names:
                    measured(method, folder, side, client)  # imports
                each: dict[str, list[Measured]] = {one: [] for one in names}
                for _ in range(rounds):
                    for method in names:
                        each[method].append(measured(method, folder, side, client))
            for method, runs in each.items():
                found[f"{method}, {count}"] = Measured(
                    *(
                        statistics.median(getattr(one, field) for one in runs)
                        for field in ("cpu", "clock", "sent", "peak", "error")
                    )
                )
        found["memory"] = statistics.median(in_memory(folder, side) for _ in range(rounds))
    return found


def chunks(settings: Settings) -> list[Row]:
    """Return the rows of the section: CPU seconds, peak memory, and error as PSNR of waves of 1."""
    side = settings.pick(256, 2048, 4096)
    rounds = settings.pick(1, 3, 5)
    found = run(side, rounds, settings.pick((1,), (2,), (1, 2)), min(CHUNK, side // 2))
    last = max(int(name.rsplit(", ", 1)[1]) for name in found if name != "memory")
    case = f"{side} x {side} samples of zarr to twice the size"
    rows = []
    base = found[f"kronfield, {last}"]
    for method in METHODS:
        if f"{method}, {last}" not in found:
            note = "not measured: dask_image is not installed"
            rows.append(Row("chunks", case, method, note=note))
            continue
        one = found[f"{method}, {last}"]
        rows.append(
            Row(
                "chunks",
                case,
                method,
                seconds=one.cpu,
                low=one.cpu,
                high=one.cpu,
                repetitions=rounds,
                ratio=one.cpu / base.cpu,
                psnr=-20 * float(np.log10(one.error)),
                ours_psnr=-20 * float(np.log10(base.error)),
                peak_mib=one.peak,
                note=f"{one.sent / 2**20:.0f} MiB between {last} workers",
                items=1,
            )
        )
    rows.append(
        Row(
            "chunks",
            case,
            "kronfield, in memory in one process",
            seconds=found["memory"],
            low=found["memory"],
            high=found["memory"],
            repetitions=rounds,
            ratio=found["memory"] / base.cpu,
            items=1,
        )
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = run(options.side, options.rounds, (1, 2))
    print("| | CPU s | clock s | MiB sent | peak of a worker, MiB | rms error |")
    print("|---|---|---|---|---|---|")
    for name, one in found.items():
        if name == "memory":
            print(f"| kronfield in memory | {one:.2f} | | | | |")
        else:
            print(
                f"| {name} | {one.cpu:.2f} | {one.clock:.1f} | {one.sent / 2**20:.0f} | "
                f"{one.peak:.0f} | {one.error:.1e} |"
            )
    rate = options.side**2 / found["kronfield, 2"].cpu
    print(f"{rate / 1e6:.2f} million samples a CPU second")
    terabyte = 1e12 / 4 / rate / 3600
    print(f"1 TB of float32: {terabyte:.1f} CPU hours")


if __name__ == "__main__":
    main()
