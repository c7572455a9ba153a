"""Records: frozen dataclasses whose methods are written once, so that importing them is fast."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, TypeVar, dataclass_transform, overload

_Kind = TypeVar("_Kind", bound=type[Any])


@overload
def record(kind: _Kind, /) -> _Kind: ...
@overload
def record(*, eq: bool = True) -> Callable[[_Kind], _Kind]: ...
@dataclass_transform(frozen_default=True)
def record(kind: _Kind | None = None, /, *, eq: bool = True) -> Any:
    """Make a class a frozen dataclass. Use it as ``dataclass(frozen=True)``, for internal classes.

    `dataclass` compiles six methods for each frozen class, which takes 0.6 ms; here all but
    ``__init__`` are shared. The 90 classes that `fit` needs were a quarter of its import time.
    Public classes that users may inherit from stay dataclasses: a frozen dataclass cannot inherit
    from a record.

    Parameters
    ----------
    kind : type
        The class.
    eq : bool
        Whether records are compared by their values; False for those that hold arrays.

    Examples
    --------
    >>> @record
    ... class Range:
    ...     low: float
    ...     high: float = 1.0
    >>> Range(0.5), Range(0.5) == Range(0.5, 1.0)
    (Range(low=0.5, high=1.0), True)
    """

    def made(cls: _Kind) -> _Kind:
        dataclass(eq=False, repr=False)(cls)
        methods: dict[str, Any] = {"__setattr__": _set_once, "__delattr__": _refuse_deletion}
        if eq:
            methods |= {"__eq__": _equal, "__hash__": _hash}
        if "__repr__" not in cls.__dict__:
            methods["__repr__"] = _repr
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return made if kind is None else made(kind)


def _set_once(self: Any, name: str, value: Any) -> None:
    # each field is set once, by __init__
    values = self.__dict__
    if name in values or name not in self.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    values[name] = value


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _compared(self: Any) -> tuple[Any, ...]:
    fields = self.__dataclass_fields__.values()
    return tuple(getattr(self, field.name) for field in fields if field.compare)


def _equal(self: Any, other: object) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    fields = self.__dataclass_fields__.values()
    values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields if one.repr)
    return f"{type(self).__qualname__}({values})"
