"""kronfield: turn samples of a signal into a continuous field.

Positions are encoded by the Kronecker product of 1-D bases. The model on top is linear, so fits
have a closed form.

Examples
--------
>>> import kronfield as kf
>>> round(kf.Gaussian(256, width=0.01).stable_rank(256), 1)
28.2
"""

import importlib
import itertools
import os

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Return the module of every public name, read from the stub `__init__.pyi`.

    The stub is the only list of public names; its lines are `from module import name as name`.
    """
    homes, home = {}, ""
    with open(os.path.join(os.path.dirname(__file__), "__init__.pyi"), encoding="utf-8") as stub:
        for line in stub:
            words = line.replace("(", " ").replace(",", " ").split()
            if words[:1] == ["from"]:
                home = words[1]
            homes |= {
                name: home for name, following in itertools.pairwise(words) if following == "as"
            }
    return homes


# A module is loaded when one of its names is first used, so that importing kronfield is fast.
_HOME_OF = _homes()
# Packages that are available as attributes without an explicit import.
_PACKAGES = ("analysis", "experiments", "files", "fitting", "nn", "plots", "signals")

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        try:
            return importlib.import_module(f"kronfield.{name}")
        except ImportError as error:  # for example: torch is not installed
            raise AttributeError(
                f"module 'kronfield.{name}' cannot be imported: {error}"
            ) from error
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kronfield' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value  # cached: the next lookup does not call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
