"""The benchmark against peers and the limits of the machine: ``python -m benchmarks``."""

import os

# Idle threads of one library must not take time from the next. The variable is read when NumPy and
# PyTorch are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
