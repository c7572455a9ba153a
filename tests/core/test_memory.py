"""What does not fit into memory is refused before it starts."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import kronfield as kf
from kronfield._core import memory
from kronfield.fitting.settings import DEFAULT


def test_large_work_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 3e9)
    memory.check_memory("values", "a fit", 2.9e9, "Use less.")
    memory.check_memory("values", "a fit", memory.SMALL, "Use less.")
    with pytest.raises(kf.InputError, match=r"3\.10 GB.*3\.00 GB.*Use less"):
        memory.check_memory("values", "a fit", 3.1e9, "Use less.")


def test_a_penalised_fit_asks_first(monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 1e5)
    values = np.random.default_rng(0).random((60, 60))
    with pytest.raises(kf.InputError, match="60 x 60 samples"):
        kf.fit(values, roughness=(0.0, 1e-3))
    assert kf.fit(values, ridge=0.0).on_grid().shape == (60, 60)


def test_a_noisy_lattice_in_cosines_asks_first(monkeypatch):
    decisions = replace(DEFAULT, grid=replace(DEFAULT.grid, longest_basis=32, longest_halves=32))
    values = np.random.default_rng(0).random((60, 50))
    kf.fit(values, noise=0.3, settings=decisions)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 100.0 * values.nbytes)
    kf.fit(values, noise=0.3, settings=decisions)
    monkeypatch.setattr(memory, "available_memory", lambda: 20.0 * values.nbytes)
    with pytest.raises(kf.InputError, match=r"penalised fit of 60 x 50 samples.*noise=0"):
        kf.fit(values, noise=0.3, settings=decisions)


def test_weights_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 8.0 * 900)
    values = np.random.default_rng(0).random((15, 15, 2))
    features = kf.Kronecker(kf.Gaussian(30, 0.03), kf.Gaussian(30, 0.03))
    with pytest.raises(kf.InputError, match=r"30 x 30 features and 2 real channels.*fewer"):
        kf.fit(values, encoding=features, channels=True, ridge=0.0)
    kf.fit(values[:9, :9], channels=True, ends="natural")


def test_points_that_do_not_fit_are_refused_before_anything_is_chosen(monkeypatch):
    rng = np.random.default_rng(0)
    points, values = rng.random((3000, 3)), rng.random(3000)
    axes = [np.cumsum(rng.random(14) + 0.1) for _ in range(3)]
    grid, weights = rng.random((14, 14, 14)), rng.random((14, 14, 14)) + 0.5
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 3e6)

    def never(*arguments, **options):
        raise AssertionError("settings were chosen before the memory was checked")

    monkeypatch.setattr("kronfield.fitting.points.choose_points", never)
    for call in (
        lambda: kf.fit_points(points, values),
        lambda: kf.fit(grid, axes, weights=weights),
        lambda: kf.fit(grid, axes, mask=weights < 0.6),
    ):
        with pytest.raises(kf.InputError, match=r"points with 64 features at each.*some of the"):
            call()
    splines = kf.Kronecker(*[kf.TensionSpline(20, 1.0)] * 3)
    hats = kf.Kronecker(*[kf.Triangle(20, 0.1)] * 3)
    with pytest.raises(kf.InputError, match="3000 points with 64"):
        kf.fit_points(points, values, splines, roughness=(0.0, 1.0))
    kf.fit_points(points, values, hats, roughness=(0.0, 1.0))


def test_there_is_some_memory():
    assert memory.available_memory() > 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_a_limit_of_the_address_space_counts():
    code = """
import resource, numpy as np, kronfield as kf
kf.fit(np.ones((9, 9)), roughness=(0.0, 1.0))
resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, 3 * 10**9))
try:
    uneven = [np.arange(6500) ** 1.1, np.arange(60)]
    kf.fit(np.ones((6500, 60), dtype=np.float32), uneven, roughness=(0.0, 1e-3))
except kf.InputError as error:
    print("refused", "GB" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "refused True", done.stderr


LIMITED = """
import resource, sys
import numpy as np
import kronfield as kf

case, path, ends = sys.argv[1], sys.argv[2], sys.argv[3] == "ends"
gaps = np.random.default_rng(0).random((1100, 1100))
x = np.linspace(0, 1, 2048)
gaussians = kf.Kronecker(kf.Gaussian(2304, 0.0003), kf.Gaussian(2304, 0.0003))
values, options = {
    "complex": (np.exp(3j * np.add.outer(x, x**2)), {}),
    "channels": (np.sin(np.add.outer(np.add.outer(x[:64], x[:64]), x)), {"channels": True}),
    "memory map": (np.load(path, mmap_mode="r"), {}),
    "given": (np.load(path), {"encoding": gaussians, "ridge": 0.0}),
    "rank": (np.load(path)[:1500, :1500].copy(), {"rank": 20}),
    "rank error": (np.load(path).reshape(144, 192, 192), {"rank_error": 1e-3}),
    "gaps": (np.load(path)[:900, :900].copy(), {"mask": gaps[:900, :900] < 0.2}),
    "holes": (
        np.load(path)[:1100, :1100].copy(),
        {"mask": np.kron(gaps[::5, ::5] < 0.1, np.ones((5, 5), dtype=bool))},
    ),
}[case]
ample = {"rank": 11, "rank error": 11, "gaps": 30, "holes": 30}.get(case, 5)
few = {"channels": True} if case == "channels" else {}
few |= {name: options[name] for name in ("rank", "rank_error") if name in options}
few |= {"mask": options["mask"][:40, :40]} if "mask" in options else {}
kf.fit(values[:40, :40], **few)
with open("/proc/self/statm") as line:
    used = int(line.read().split()[0]) * resource.getpagesize()
more = ample * values.nbytes + 2**26 if ends else values.nbytes
resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))
try:
    kf.fit(values, **options)
    print("fitted")
except kf.InputError as error:
    print("refused", "GB" in str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
@pytest.mark.parametrize(
    "case",
    ["complex", "channels", "memory map", "given", "rank", "rank error", "gaps", "holes"],
)
def test_what_fits_is_fitted_and_the_rest_refused(case, tmp_path):
    line = np.sin(np.linspace(0, 9, 2896))
    np.save(tmp_path / "map.npy", np.add.outer(line, line)[:2304, :2304])
    for words, said in (("ends", "fitted"), ("refused", "refused True")):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, case, str(tmp_path / "map.npy"), words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == said, done.stderr


def test_ranks_and_gaps_ask_before_anything_is_chosen(monkeypatch):
    values = np.add.outer(np.sin(np.arange(60) / 9), np.arange(50) / 50)
    mask = np.random.default_rng(0).random((60, 50)) < 0.5

    def never(*arguments, **options):
        raise AssertionError("settings were chosen before the memory was checked")

    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 60.0 * values.size)
    with monkeypatch.context() as patch:
        patch.setattr("kronfield.fitting.grid.choose", never)
        patch.setattr("kronfield.fitting.points.choose_points", never)
        for options, said in (
            ({"rank": 3}, "tensor train of 60 x 50 numbers.*without rank"),
            ({"rank_error": 0.1}, "tensor train of 60 x 50 numbers"),
            ({"mask": mask}, f"{mask.sum()} are missing.*parts of the grid"),
        ):
            with pytest.raises(kf.InputError, match=said):
                kf.fit(values, **options)
    monkeypatch.setattr(memory, "available_memory", lambda: 400.0 * values.size)
    kf.fit(values, rank=3)
    kf.fit(values, mask=mask)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("SUPERLU_MALLOC fails for buf")])
def test_a_sparse_factor_without_room_is_refused(monkeypatch, error):
    from kronfield.fitting import least_roughness

    def full(*arguments, **options):
        raise error

    missing = np.random.default_rng(0).random((1, 60, 60)) < 0.3
    planes = np.random.default_rng(1).random((1, 1, 60, 60))
    monkeypatch.setattr(least_roughness, "MOST_WORK", 0)
    monkeypatch.setattr("scipy.sparse.linalg.splu", full)
    with pytest.raises(kf.InputError, match=r"missing samples, which needs.*roughness="):
        least_roughness.least_roughness(planes, missing, (0.1,))


def test_surfaces_are_refused_before_their_equations_are_assembled(monkeypatch):
    from kronfield.fitting import least_roughness as module
    from kronfield.fitting.filling_choice import consider_holes
    from kronfield.fitting.settings import DEFAULT

    missing = np.zeros((1, 60, 60), dtype=bool)
    missing[0, 10:50, 10:50] = True
    planes = np.random.default_rng(1).random((1, 1, 60, 60))
    system = module._System.of(planes, missing, np.flatnonzero(missing))
    assert module._pairs(missing) == 2 * len(system.rows)
    cube = np.random.default_rng(0).random((2, 9, 8, 7)) < 0.5
    system = module._System.of(np.zeros((1, *cube.shape)), cube, np.flatnonzero(cube))
    assert module._pairs(cube) == 2 * len(system.rows)

    def never(*arguments, **options):
        raise AssertionError("equations were assembled before the memory was checked")

    M = np.count_nonzero(missing)
    needed = (4 * 12 + 16 + module.OF_ENTRY) * M + module.OF_ENTRY * module._pairs(missing)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(module, "UNASKED", 0)
    monkeypatch.setattr(module, "_Stencil", never)
    monkeypatch.setattr("kronfield.fitting.filling_choice.hidden_like", never)
    for share, error in ((0.99, kf.InputError), (1.01, AssertionError)):
        for where in (memory, module):
            monkeypatch.setattr(where, "available_memory", lambda share=share: share * needed)
        with pytest.raises(error, match=r"1600 missing samples.*GB|before the memory"):
            module.least_roughness(planes, missing, (0.1,))
    # ... and before samples are hidden and settings chosen
    mask = np.zeros((60, 60), dtype=bool)
    mask[10:40, 10:40] = True
    monkeypatch.setattr(memory, "available_memory", lambda: 3e5)
    monkeypatch.setattr(module, "available_memory", lambda: 3e5)
    with pytest.raises(kf.InputError, match=r"900 missing samples.*roughness="):
        consider_holes(planes[0], mask, DEFAULT)


PEAK = """
import sys
import numpy as np
import scipy.linalg
import kronfield as kf

def status(key):
    with open("/proc/self/status") as lines:
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))

rng = np.random.default_rng(0)
shape, options = eval(sys.argv[1])

def made(shape):
    waves = sum(np.add.outer(np.zeros(shape[:-1]), np.sin(np.arange(shape[-1]) / 30)) for _ in "1")
    return (waves + 0.1 * rng.standard_normal(shape)).astype(np.float32)

def drawn(shape):
    cells = rng.random([-(-n // 16) for n in shape])
    for axis, n in enumerate(shape):
        cells = np.repeat(cells, 16, axis).take(range(n), axis)
    return (cells + 0.1 * rng.standard_normal(shape)).astype(np.float32)

made = drawn if len(sys.argv) > 2 else made
kf.fit(made([30] * len(shape)), **options)
values = made(shape)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
field = kf.fit(values, **options)
peak = status("VmHWM") - before
if len(sys.argv) > 2:
    assert field.report.noise.method == "shrinkage"
else:
    assert field.weights.dtype == np.float32
print(peak / values.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1800, 1800), {"roughness": (0.0, 1e-6)}),
        ((2700, 1800), {"roughness": (0.0, 1e-6)}),
        ((200, 200, 200), {}),
    ],
)
def test_the_peak_of_penalised_fits(shape, options):
    """At most 4 x the data with the weights, and slabs of 2 MB, several at a time.

    Of a long axis, the basis counts too: 4 x beside the weights.
    """
    done = subprocess.run(
        [sys.executable, "-c", PEAK, repr((shape, options))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OPENBLAS_NUM_THREADS": "1"},
    )
    slabs = 12e6 / (4 * math.prod(shape))
    assert float(done.stdout) < (5.0 if max(shape) > 2000 else 4.0 + slabs), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_peak_of_volumes_without_their_noise():
    """At most 3 x the data beside the samples that the field holds, and 4 MB."""
    shape = (128, 128, 128)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, repr((shape, {})), "drawn"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert float(done.stdout) < 1.0 + 3.0 + 4e6 / (4 * math.prod(shape)), done.stderr
