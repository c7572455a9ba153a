"""Reading and writing Parquet tables through pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kronfield._core.arrays import Array
from kronfield.files.columns import (
    Unfit,
    choose,
    header_names,
    name_list,
    named_columns,
    table_signal,
)
from kronfield.files.guard import check_memory, decoding, extra
from kronfield.files.layout import Layout, Put
from kronfield.files.signal import Signal

_WHAT = "a Parquet table"


def read_parquet(path: Path, columns: Any, coordinates: Any) -> Signal:
    """Read the rows of a table: points (P, D), and values (P,) or (P, C)."""
    with extra("parquet"):
        import pyarrow.parquet

    with decoding(path, _WHAT), pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        unfit = {
            field.name: reason for field in schema if (reason := _unfit(field.type)) is not None
        }
        names = list(schema.names)
        places = name_list("coordinates", coordinates, names)
        choice = choose(path, names, unfit, places, name_list("columns", columns, names))
        taken = choice.coordinates + choice.values
        check_memory(path, file.metadata.num_rows * len(taken) * 16.0, "Take fewer columns.")
        table = file.read(columns=taken)
        numbers = {name: _floats(table.column(name)) for name in taken}
        raw_bytes = (
            sum(max(1, schema.field(name).type.bit_width // 8) for name in taken)
            * file.metadata.num_rows
        )
    return table_signal(path, choice, numbers, raw_bytes)


def read_parquet_columns(path: Path, names: Sequence[str]) -> Array:
    """Read some columns, (P, len(names))."""
    with extra("parquet"):
        import pyarrow.parquet

    with decoding(path, _WHAT), pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        unfit = {
            field.name: reason for field in schema if (reason := _unfit(field.type)) is not None
        }
        wanted = named_columns(list(schema.names), unfit, names)
        table = file.read(columns=wanted)
        return np.stack([_floats(table.column(name)).astype(np.float64) for name in wanted], axis=1)


def _unfit(kind: Any) -> Unfit | None:
    """Return the reason why a column of this type is not numeric; None if it is numeric."""
    from pyarrow import types

    if types.is_temporal(kind):
        return Unfit(f"type {kind}", date=True)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return None
    return Unfit(f"type {kind}")


def _floats(column: Any) -> Array:
    """Return a column as floats, with NaN for missing values."""
    values = column.to_numpy()
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return np.asarray(values, dtype=np.float32 if single else np.float64)


@contextlib.contextmanager
def open_parquet(path: Path, layout: Layout) -> Iterator[Put]:
    """Write rows (P,) or (P, C), with the same names as in a CSV file."""
    with extra("parquet"):
        import pyarrow.parquet

    count = layout.need(
        "a table", 1, range(1, 1 << 20), "Write points and values as rows (P, columns)."
    )
    dtype = layout.float_dtype()
    names = header_names(count, layout.description)
    schema = pyarrow.schema([(name, pyarrow.from_numpy_dtype(dtype)) for name in names])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:

        def put(block: Array) -> None:
            rows = block.reshape(len(block), count).astype(dtype, copy=False)
            file.write_table(
                pyarrow.table(
                    [np.ascontiguousarray(rows[:, i]) for i in range(count)], schema=schema
                )
            )

        yield put
