"""kronfield: samples of a signal in, a continuous field out.

Positions are encoded by the Kronecker product of 1-D bases; the model on top is linear, so fits are closed form.

Examples
--------
>>> import kronfield as kf
>>> round(kf.Gaussian(256, width=0.01).stable_rank(256), 1)
28.2
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# The public names are listed once, in __init__.pyi. A module loads when a name of its own is first used, so that importing
# kronfield is quick.
_HOME_OF = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for alias in node.names
}
# Packages that are reached as attributes without being imported first.
_PACKAGES = ("analysis", "experiments", "files", "fitting", "nn", "plots", "signals")

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        try:
            return importlib.import_module(f"kronfield.{name}")
        except ImportError as error:  # torch is an extra, say
            raise AttributeError(f"module 'kronfield.{name}' cannot be imported: {error}") from error
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kronfield' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
