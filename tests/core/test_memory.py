"""What does not fit into memory is refused before it starts."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import kronfield as kf
from kronfield._core import memory


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

kf.fit(made([30] * len(shape)), **options)
values = made(shape)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
field = kf.fit(values, **options)
assert field.weights.dtype == np.float32
print((status("VmHWM") - before) / values.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1800, 1800), {"roughness": (0.0, 1e-6)}),
        ((200, 200, 200), {}),
    ],
)
def test_the_peak_of_penalised_fits(shape, options):
    """At most 4 x the data with the weights, and slabs of 2 MB, several at a time."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, repr((shape, options))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OPENBLAS_NUM_THREADS": "1"},
    )
    slabs = 12e6 / (4 * math.prod(shape))
    assert float(done.stdout) < 4.0 + slabs, done.stderr
