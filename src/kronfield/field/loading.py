"""Loading saved fields of all kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from kronfield._core.arrays import problem
from kronfield._core.labels import Labels
from kronfield.field import storage
from kronfield.field.dual import dual_from
from kronfield.field.factored import factored_from
from kronfield.field.field import Field, field_from
from kronfield.field.low_rank import low_rank_from
from kronfield.field.places import places_from


def load(
    path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None
) -> Field:
    """Return the field that `Field.save` wrote; no code in the file is run.

    A file of a network needs PyTorch.

    Examples
    --------
    >>> import numpy as np, tempfile, os
    >>> import kronfield as kf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = kf.fit(np.arange(10.0)).save(os.path.join(folder, "line.field"))
    ...     kf.load(saved.path)(np.array([[2.5]])).round(6)
    array([2.5])

    Parameters
    ----------
    path : path
        A file that `Field.save` wrote, or the zarr store of a lazy field, which needs Dask.
    functions : dict, optional
        The functions of every `ShiftedBasis` in the encoding, by name.
    """
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        from kronfield.lazy.storage import load as load_lazy

        return load_lazy(path, functions)
    arrays, metadata = storage.read(path)
    with storage.restoring(path):
        return _restored(path, arrays, metadata, functions)


def _restored(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    metadata: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] | None,
) -> Field:
    """Return the field of a file from its contents."""
    kind = metadata.get("kind", "field")
    if kind == "field":
        return placed(field_from(path, arrays, metadata, functions), arrays, metadata)
    if kind == "low rank":
        return placed(low_rank_from(path, arrays, metadata, functions), arrays, metadata)
    if kind == "dual":
        return placed(dual_from(path, arrays, metadata), arrays, metadata)
    if kind == "factored":
        return placed(factored_from(path, arrays, metadata), arrays, metadata)
    if kind == "refined":
        from kronfield.fitting.refined import refined_from

        return placed(refined_from(path, arrays, metadata), arrays, metadata)
    if kind == "network":
        try:
            from kronfield.nn.field import network_from
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            got = f"{path}, a network, in a Python without PyTorch"
            raise problem(
                "path", got, "PyTorch", "Install it with: pip install 'kronfield[torch]'"
            ) from error
        return network_from(path, arrays, metadata, functions)
    remedy = {
        "checkpoint": "Continue with train(..., checkpoint=..., resume=True).",
        "statistics": "Use Statistics.load.",
    }.get(str(kind), storage.DAMAGED)
    raise problem("path", f"{path}, a file of {kind}", "a saved field", remedy)


def placed(field: Field, arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> Field:
    """Set the positions of the data and the labels of a loaded field, if they were saved."""
    return field.with_places(places_from(arrays, metadata, field.axes)).with_labels(
        _labels_from(metadata, field.dimensions)
    )


def _labels_from(metadata: Mapping[str, Any], D: int) -> Labels | None:
    """Return the labels of a saved field, if it has them."""
    if metadata.get("labels") is None:
        return None
    try:
        labels = Labels.from_dict(metadata["labels"])
        if len(labels.axes) != D:
            raise ValueError(f"{len(labels.axes)} labels for {D} axes")
    except (KeyError, TypeError, ValueError) as error:
        raise problem(
            "path",
            f"a file with damaged labels ({error})",
            "a saved field",
            "Save it again from the field.",
        ) from error
    return labels
