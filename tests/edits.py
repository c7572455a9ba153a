"""Saved files, edited by someone who knows the format: the checksum stays valid."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from kronfield.field import storage

# Each replaces one entry of the metadata, one after the other.
HOSTILE = (None, True, -1, 10**400, 1e308, {"not finite": "nan"}, {"not finite": "inf"}, "x", [])


def places_in(value, at=()):
    """Yield the path to each entry of nested metadata."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in entries:
        yield (*at, key)
        if isinstance(one, dict | list):
            yield from places_in(one, (*at, key))


def edits(path, most):
    """Edit a file in at most about ``most`` ways that leave the checksum valid; yield each."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        known = json.loads(file.metadata()["kronfield"])
    arrays, whole = load_file(path), Path(path).read_bytes()

    def put(at, new):
        def change(metadata, _arrays):
            for key in at[:-1]:
                metadata = metadata[key]
            metadata[at[-1]] = new

        return change

    changes = [put(at, new) for at in places_in(known) for new in HOSTILE]
    changes = changes[:: max(1, len(changes) // most)]
    for name, array in arrays.items():
        for new in (array.ravel()[:0], array[..., None], array.ravel()[:1].reshape(()), None):
            if new is None:
                changes.append(lambda _m, a, name=name: a.pop(name))
            else:
                new = np.ascontiguousarray(new).reshape(new.shape)
                changes.append(lambda _m, a, name=name, new=new: a.update({name: new}))
    for change in changes:
        Path(path).write_bytes(whole)
        rewrite(path, change)
        yield path


def rewrite(path, change):
    """Alter a saved field the way someone who knows the format would, checksum and all."""
    from safetensors import safe_open

    arrays = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["kronfield"])
    change(metadata, arrays)
    text = json.dumps(metadata)
    save_file(arrays, path, metadata={"kronfield": text, "sha256": storage._checksum(text, arrays)})
