"""What a `state_dict` says about the features, so that weights are not loaded onto other features.

Weights fit the features that they were learned on, but their shapes do not show which these are:
random frequencies of another seed have the same shapes. So each module adds a description of its
encoding and domain to its `state_dict`, as "extra state", and compares it on load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

# The end of the keys under which PyTorch puts the extra state of modules.
KEY = "_extra_state"
# What a learned parameter replaces in the description of an embedder. Learned values are loaded, so
# their initial values may differ. (Learned centres replace none: padding also sets the spacing.)
REPLACED = {
    "width": ("width",),
    "centres": (),
    "frequencies": ("frequency", "seed", "scale", "exponent"),
}


class Described(nn.Module):
    """A module on an encoding that describes its features in its `state_dict`.

    The description is a tensor of bytes (JSON), so that a `state_dict` remains a dictionary of
    tensors. A `state_dict` without a description, such as those of version 0.1.0, loads unchecked.
    """

    encoding: Any
    axes: nn.ModuleList
    place: Any

    def describe_features(self) -> dict[str, Any]:
        """Return what decides the features, without learned parameters, as plain data for JSON."""
        encoding = self.encoding.to_dict()
        embedders = list[dict[str, Any]]()
        for axis, one in zip(list[Any](self.axes), encoding["embedders"], strict=True):
            gone = {name for learned in axis.learned for name in REPLACED[learned]}
            embedders.append({name: value for name, value in one.items() if name not in gone})
        domain = [list(pair) for pair in self.place.domain]
        return {"encoding": {**encoding, "embedders": embedders}, "domain": domain}

    def get_extra_state(self) -> Tensor:
        """Return the description of the features as bytes."""
        text = json.dumps(self.describe_features(), sort_keys=True).encode()
        return torch.tensor(list(text), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: the description is compared while a `state_dict` is loaded."""

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + KEY
        if key in missing_keys:
            missing_keys.remove(key)
        state = state_dict.get(key)
        # A tensor on the meta device has no values, and neither have the weights beside it.
        if state is None or state.is_meta:
            return
        here = json.loads(json.dumps(self.describe_features()))
        found = list(_differences("", _decoded(state), here))
        if found:
            error_msgs.append(
                f"state_dict: its weights belong to other features than those of {prefix[:-1]!r} "
                f"({type(self).__name__}): {'; '.join(found[:3])}. Expected the encoding and "
                "domain of the module that was saved: build the module with them. To load weights "
                f"onto other features on purpose, remove the key {key!r} from the state_dict."
            )


def without_description(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights and buffers of a `state_dict`, without descriptions of features."""
    return {name: value for name, value in state.items() if name.rpartition(".")[2] != KEY}


def _decoded(state: Tensor) -> Any:
    # Code that casts a whole state_dict also casts the bytes; half precision holds them exactly.
    try:
        return json.loads(bytes(state.detach().cpu().to(torch.uint8).tolist()))
    except ValueError:
        return "bytes that are no description"


def _differences(where: str, there: Any, here: Any) -> Iterator[str]:
    """Yield the places in which two descriptions differ, in words."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted(there.keys() | here.keys()):
            inner = f"{where}.{name}" if where else name
            yield from _differences(inner, there.get(name), here.get(name))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for i, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from _differences(f"{where}[{i}]", one, other)
    elif there != here:
        yield f"{where or 'it'} is {_short(there)} in the state_dict, {_short(here)} in the module"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
