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
from kronfield.files.guard import check_file_memory, decoding, extra
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
        dates = [field.name for field in schema if _is_date(field.type)]
        choice = choose(path, names, unfit, dates, places, name_list("columns", columns, names))
        taken = choice.coordinates + choice.values
        check_file_memory(path, file.metadata.num_rows * len(taken) * 16.0, "Take fewer columns.")
        table = file.read(columns=taken)
        found = {name: numbers_or_dates(table.column(name)) for name in taken}
        raw_bytes = (
            sum(max(1, schema.field(name).type.bit_width // 8) for name in taken)
            * file.metadata.num_rows
        )
    return table_signal(path, choice, found, raw_bytes, names)


def read_parquet_columns(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Read some columns of numbers or dates, by the names in ``names``."""
    with extra("parquet"):
        import pyarrow.parquet

    with decoding(path, _WHAT), pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        unfit = {
            field.name: reason for field in schema if (reason := _unfit(field.type)) is not None
        }
        wanted = named_columns(list(schema.names), unfit, names)
        table = file.read(columns=wanted)
        columns = [numbers_or_dates(table.column(name)) for name in wanted]
        return dict(zip(names, columns, strict=True))


def _unfit(kind: Any) -> Unfit | None:
    """Return the reason why a column of this type cannot be used; None for numbers and dates."""
    from pyarrow import types

    if _is_date(kind):
        return None
    if types.is_temporal(kind):
        return Unfit(f"type {kind}", date=True)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return None
    return Unfit(f"type {kind}")


def _is_date(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_date(kind))


def numbers_or_dates(column: Any) -> Array:
    """Return a column of pyarrow as floats with NaN, or as datetime64 (in UTC) with NaT."""
    from pyarrow import types

    if _is_date(column.type):
        if types.is_timestamp(column.type):  # as integers: to_numpy may convert to nanoseconds
            unit, missing = column.type.unit, column.is_null().to_numpy()
            ticks = column.cast("int64").fill_null(0).to_numpy().copy()
            ticks[missing] = np.iinfo(np.int64).min  # NaT
            return ticks.view(f"M8[{unit}]")
        return np.asarray(column.cast("date32").to_numpy(), dtype="M8[D]")
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
    names, labels = header_names(count, layout.description), layout.column_labels(count)
    kinds = [
        pyarrow.timestamp("ns") if i in labels else pyarrow.from_numpy_dtype(dtype)
        for i in range(count)
    ]
    schema = pyarrow.schema(list(zip(names, kinds, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema) as file:

        def put(block: Array) -> None:
            rows = block.reshape(len(block), count)
            columns = [
                labels[i].dates(rows[:, i]).astype("M8[ns]")
                if i in labels
                else np.ascontiguousarray(rows[:, i].astype(dtype, copy=False))
                for i in range(count)
            ]
            file.write_table(pyarrow.table(columns, schema=schema))

        yield put
