"""One benchmark against every peer, and the limit: ``python -m benchmarks``, or ``make bench``."""

import os

# Idle threads of one library must not steal from the next; read when NumPy and PyTorch are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
