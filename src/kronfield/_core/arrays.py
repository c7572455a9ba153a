"""Array types, checks of input arguments, and the common format of error messages."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from kronfield._core.errors import KronfieldError

# A NumPy array of any dtype.
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# A NumPy array, a PyTorch tensor, or anything else that follows the array API standard.
AnyArray: TypeAlias = Any
# By default the last axis holds channels if it has at most MOST_CHANNELS entries and all other axes
# have more. Pictures have 1 to 4 channels: grey, grey and alpha, colour, or colour and alpha.
MOST_CHANNELS = 4
# Upper limit for numbers of features, samples and dimensions: larger values are input mistakes.
LARGEST = 2**31 - 1
# The namespace that belongs to an array: numpy, array_api_compat.torch, ...
Namespace: TypeAlias = Any


class InputError(KronfieldError, ValueError):
    """An input cannot be used; the message states the input, what was expected and a remedy."""


class InputTypeError(InputError, TypeError):
    """An input has the wrong type or dtype."""


def problem(
    argument: str, got: object, expected: str, remedy: str, kind: type[Exception] = ValueError
) -> InputError:
    """Return the error for one argument: its name, its value, what was expected, and a remedy."""
    error = InputTypeError if kind is TypeError else InputError
    return error(f"{argument}: got {got}; expected {expected}. {remedy}")


def namespace(*arrays: AnyArray) -> Namespace:
    """Return the array namespace that all of ``arrays`` belong to."""
    if all(type(array) is np.ndarray for array in arrays):  # usual: look no further
        return _numpy_namespace()
    return array_api_compat.array_namespace(*arrays)


@functools.cache
def _numpy_namespace() -> Namespace:
    return array_api_compat.array_namespace(np.empty(0))


def clip(xp: Namespace, x: AnyArray, low: float, high: float) -> AnyArray:
    """Return ``x``, at least ``low`` and at most ``high``.

    The function of array_api_compat broadcasts the bounds first, which takes ten times as long.
    """
    return np.clip(x, low, high) if isinstance(x, np.ndarray) else xp.clip(x, low, high)


def describe(value: object) -> str:
    """Return a short description of a value for an error message."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_lazy(value: object) -> bool:
    """Return whether ``value`` is an object of Dask or zarr, or a DataArray that holds one of Dask.

    Its numbers are not in memory. None of these libraries is imported.
    """
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if kind.__name__ == "DataArray" and library == "xarray":
        return getattr(value, "chunks", None) is not None
    return library in ("dask", "zarr")


def lazy_array(argument: str, value: Any, *, known: bool = True) -> Any:
    """Return a lazy array of numbers; its values are not looked at.

    With ``known``, its shape must be known.
    """
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
        raise problem(
            argument,
            describe(value),
            "an array of numbers",
            "Pass an array of Dask: for a table, table.to_dask_array(lengths=True).",
            TypeError,
        )
    if dtype.kind not in "biufc" or dtype.itemsize > 16:
        raise problem(
            argument, describe(value), "numbers", "Convert them to float first.", TypeError
        )
    if known and any(n != n for n in shape):
        raise problem(
            argument,
            "an array whose chunks have unknown sizes",
            "a known shape",
            "Call compute_chunk_sizes() on it first.",
        )
    return value


def is_array(value: object) -> bool:
    """Return whether ``value`` is an array of a library that follows the array API standard."""
    return bool(array_api_compat.is_array_api_obj(value))


def float_array(argument: str, value: Any) -> AnyArray:
    """Return ``value`` as a finite array of real floats, in its own array library.

    Python numbers, sequences and objects with ``__array__`` become NumPy arrays. Integers raise an
    error, because the most common mistake is to pass an index as a coordinate.
    """
    if is_array(value):
        array = value
    else:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise problem(
                argument,
                describe(value),
                "an array of floats",
                "Pass a NumPy array or a tensor.",
                TypeError,
            ) from error
    xp = namespace(array)
    if not xp.isdtype(array.dtype, "real floating"):
        raise problem(
            argument,
            describe(array),
            "real floats (float32 or float64)",
            "Integers are not accepted as coordinates: divide by the number of samples, "
            "or convert to float.",
            TypeError,
        )
    if not bool(xp.all(xp.isfinite(array))):
        raise problem(
            argument,
            f"{describe(array)} that contains NaN or inf",
            "finite numbers",
            "Remove these entries first.",
        )
    return array


def real_numbers(argument: str, value: Any) -> Array:
    """Return real numbers, including integers, as a finite float64 NumPy array."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise problem(
            argument,
            describe(value),
            "numbers",
            "Pass a NumPy array: x.detach().cpu() for a tensor, x.get() for CuPy.",
            TypeError,
        ) from error
    if array.dtype.kind not in "fiu":
        raise problem(
            argument,
            describe(value),
            "real numbers",
            "Convert them, for example dates to seconds.",
            TypeError,
        )
    numbers = np.asarray(array.astype(np.float64))
    # the common case, without the slower checks that work for any array library
    return numbers if np.isfinite(numbers).all() else np.asarray(float_array(argument, numbers))


def at_least_float32(array: AnyArray) -> AnyArray:
    """Return ``array``, converted to float32 if it has half precision, which is too coarse."""
    xp = namespace(array)
    return array if float(xp.finfo(array.dtype).eps) <= 2.0**-23 else xp.astype(array, xp.float32)


def vector(argument: str, value: Any) -> AnyArray:
    """Return ``value`` as a finite float array of shape (N,)."""
    array = float_array(argument, value)
    if array.ndim != 1:
        raise problem(
            argument,
            describe(array),
            "shape (N,)",
            "Embedders take one axis: pass one column, or use Concatenated or Kronecker "
            "for points (P, D).",
        )
    return array


def point_array(argument: str, value: Any, dimensions: int) -> AnyArray:
    """Return ``value`` as a finite float array of shape (P, D)."""
    array = float_array(argument, value)
    if array.ndim != 2 or array.shape[1] != dimensions:
        raise problem(
            argument,
            describe(array),
            f"shape (P, {dimensions}), one column per axis",
            "Stack the coordinates as columns.",
        )
    return array


def whole(argument: str, value: Any, *, at_least: int) -> int:
    """Return ``value`` as an int >= ``at_least``; booleans and floats raise an error."""
    expected = f"a whole number >= {at_least}"
    if isinstance(value, bool | np.bool_):
        raise problem(argument, value, expected, "Pass an int.", TypeError)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise problem(argument, describe(value), expected, "Pass an int.", TypeError) from error
    if number < at_least:
        raise problem(argument, number, expected, f"The smallest valid value is {at_least}.")
    if number > LARGEST:
        raise problem(
            argument,
            f"{number:.3g}" if number < 1e300 else "a huge number",
            f"at most {LARGEST}",
            "Use a smaller number.",
        )
    return number


def real(
    argument: str, value: Any, *, low: float, high: float, remedy: str, open_low: bool = False
) -> float:
    """Return ``value`` as a float in [low, high], or in (low, high] with ``open_low``."""

    def refusal(got: object, kind: type[Exception] = ValueError) -> InputError:
        bracket = "(" if open_low else "["
        return problem(argument, got, f"a number in {bracket}{low:g}, {high:g}]", remedy, kind)

    if isinstance(value, bool | np.bool_ | str | bytes) or not hasattr(value, "__float__"):
        raise refusal(describe(value), TypeError)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise refusal(describe(value), TypeError) from error
    if math.isnan(number) or not low <= number <= high or (open_low and number == low):
        raise refusal(number)
    return number


def fraction(argument: str, value: Any) -> float:
    """Return ``value`` as a float in (0, 1]."""
    return real(
        argument, value, low=0.0, high=1.0, open_low=True, remedy="Pass a fraction of the peak."
    )


def only_keys(argument: str, mapping: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """Check that ``mapping`` is a dictionary with exactly ``keys``, and return it."""
    wanted = sorted(keys)
    if not isinstance(mapping, Mapping) or sorted(map(str, mapping)) != wanted:
        got = sorted(map(str, mapping)) if isinstance(mapping, Mapping) else describe(mapping)
        raise problem(
            argument,
            got,
            f"a dictionary with the keys {wanted}",
            "Pass the result of to_dict() unchanged.",
        )
    return mapping


def ends_in_channels(shape: tuple[int, ...]) -> bool:
    """Return whether the last axis of an array holds channels by default."""
    return len(shape) > 1 and shape[-1] <= MOST_CHANNELS < min(shape[:-1])


def number_array(argument: str, values: Any) -> Array:
    """Return real or complex numbers as a NumPy array, without a copy where possible."""
    try:
        plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        array = values if plain else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise problem(
            argument, describe(values), "an array that NumPy can read",
            "Rows of a list must have equal lengths. For a tensor, pass values.detach().cpu(); for "
            "CuPy, values.get().",
            TypeError,
        ) from error  # fmt: skip
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16:
        if isinstance(values, str | os.PathLike):
            got, remedy = (
                f"the text {str(values)!r}",
                "Of a file, pass what it holds: read it first.",
            )
            raise problem(argument, got, "numbers", remedy, TypeError)
        raise problem(
            argument, describe(array), "numbers", "Convert them to float first.", TypeError
        )
    return array


def split_complex(values: Array) -> Array:
    """Return complex values (..., C) as real values (..., 2 C): real and imaginary alternate."""
    parts = np.stack([values.real, values.imag], axis=-1)
    return parts.reshape(*values.shape[:-1], -1)


def joined_complex(values: Array) -> Array:
    """Return real values (..., 2 C) as complex values (..., C): the inverse of `split_complex`."""
    return np.ascontiguousarray(values).view(np.result_type(values.dtype, np.complex64))


def fit_overflow() -> InputError:
    """Return the error for values that are so large that their fit overflows."""
    return problem(
        "values",
        "numbers so large that their fit overflows",
        "smaller numbers",
        "Divide them by their maximum.",
    )


def in_dtype(numbers: Array, dtype: str | None, name: str) -> Array:
    """Return numbers as they are stored, by default in their own dtype; raise if they overflow."""
    with np.errstate(over="ignore"):
        stored = numbers.astype(dtype or numbers.dtype)
    if not np.all(np.isfinite(stored)):
        expected = f"a dtype that can hold the {name}"
        raise problem("dtype", dtype, expected, "They overflow: use float32 or float64.")
    return stored


def sum_is_finite(array: Array) -> bool:
    """Return whether the sum of an array is finite, in one pass and without a copy.

    True means that all entries are finite. False means that an entry is NaN or inf, or that the
    sum overflowed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()))


def to_numpy(array: AnyArray) -> Array:
    """Return a NumPy copy or view of an array of any library, detached from any gradient."""
    if hasattr(array, "detach"):  # a tensor that may require a gradient or live on another device
        array = array.detach().cpu()
    return np.asarray(array)
