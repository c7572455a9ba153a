"""Records: frozen dataclasses whose methods are written once, so that importing them is fast."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, InitVar, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

_Kind = TypeVar("_Kind", bound=type[Any])


@overload
def record(kind: _Kind, /) -> _Kind: ...
@overload
def record(*, eq: bool = True) -> Callable[[_Kind], _Kind]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: _Kind | None = None, /, *, eq: bool = True) -> Any:
    """Make a class a frozen dataclass. Use it as ``dataclass(frozen=True)``.

    `dataclass` compiles six methods for each frozen class, which takes 1 ms, and `fit` needs 90
    classes. Here ``__init__`` is compiled when it is first needed, and the others are shared.
    A frozen dataclass can inherit from a record, and a record from a frozen dataclass.

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
        cls.__doc__ = cls.__doc__ or cls.__name__  # if empty, `dataclass` computes it
        # `dataclass` requires that a class and its parents are all frozen or all not. It compiles
        # methods for frozen classes: freeze only if a parent is a dataclass.
        family = any(hasattr(parent, "__dataclass_params__") for parent in cls.__mro__)
        dataclass(init=False, eq=False, repr=False, frozen=family)(cls)
        cls.__dataclass_params__.frozen = True
        _check_fields(cls)
        cls._compared = tuple(one.name for one in fields(cls) if one.compare)
        own = vars(cls)
        methods: dict[str, Any] = {"__setattr__": _set_once, "__delattr__": _refuse_deletion}
        if eq and "__eq__" not in own:
            methods["__eq__"] = _equal
        # a class body with __eq__ alone has __hash__ = None
        if eq and own.get("__hash__") is None:
            methods["__hash__"] = _hash
        if "__repr__" not in own:
            methods["__repr__"] = _repr
        if "__init__" not in own:
            methods["__init__"] = _Init(cls)
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return made if kind is None else made(kind)


def _check_fields(cls: type[Any]) -> None:
    # what `dataclass` refuses when it compiles __init__, refused when the class is made
    optional = ""
    for one in fields(cls):
        if not one.init or one.kw_only:
            continue
        if one.default is not MISSING or one.default_factory is not MISSING:
            optional = one.name
        elif optional:
            raise TypeError(f"{one.name!r}, which has no default, follows {optional!r}, which has")
    if any(isinstance(kind, InitVar) for kind in vars(cls).get("__annotations__", {}).values()):
        raise TypeError("a record has no InitVar: use a field, or a function that makes it")


class _Init:
    """The ``__init__`` of a record until it is looked up: then `dataclass` compiles it."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if vars(self.cls).get("__init__") is self:
            self.cls.__init__ = _compiled_init(self.cls)
        return vars(self.cls)["__init__"].__get__(instance, owner)


def _compiled_init(cls: type[Any]) -> Callable[..., None]:
    # make a dataclass of the same fields, and take its __init__
    content: dict[str, Any] = {"__annotations__": {}, "__module__": cls.__module__}
    for one in fields(cls):
        content["__annotations__"][one.name] = one.type
        content[one.name] = field(
            default=one.default,
            default_factory=one.default_factory,
            init=one.init,
            kw_only=one.kw_only,
        )
    if hasattr(cls, "__post_init__"):
        content["__post_init__"] = cls.__post_init__
    return dataclass(eq=False, repr=False)(type(cls.__name__, (), content)).__dict__["__init__"]


def _set_once(self: Any, name: str, value: Any) -> None:
    # Each field is set once, by __init__. A class that inherits and is no dataclass itself may
    # have attributes of its own, as with frozen dataclasses.
    values = self.__dict__
    ours = name in self.__dataclass_fields__
    if (name in values) if ours else ("__dataclass_fields__" in vars(type(self))):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    values[name] = value


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self._compared])


def _equal(self: Any, other: object) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(
        f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr
    )
    return f"{type(self).__qualname__}({values})"
