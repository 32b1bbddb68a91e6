"""Frozen dataclasses of which a first call makes many: of their methods only ``__init__`` is compiled for each class.

`dataclasses.dataclass(frozen=True)` compiles six functions for a class, which takes 0.8 ms in Python 3.11 (EPYC,
Zen 4): a seventh of a first call whose kernels are stored. Public classes keep it: tools that read their text know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

C = TypeVar("C", bound=type)


@overload
def record(cls: C, /) -> C: ...
@overload
def record(*, init: bool = True, eq: bool = True, repr: bool = True, kw_only: bool = False) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, init: bool = True, eq: bool = True, repr: bool = True, kw_only: bool = False) -> Any:
    """Make a class a frozen dataclass, as ``dataclass(frozen=True)`` does; methods that the class defines stay.

    Parameters
    ----------
    init, eq, repr, kw_only : bool
        As of `dataclasses.dataclass`. With `eq`, objects are hashed by their fields.
    """

    def made(cls: Any) -> Any:
        cls = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        if init:
            cls.__init__ = _initializer(cls)
        cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
        if repr and "__repr__" not in vars(cls):
            cls.__repr__ = _text
        if eq:
            names = [f.name for f in fields(cls) if f.compare]
            # A tuple: its comparison takes a NaN for equal to itself. The getter of one name returns no tuple.
            cls._compared = attrgetter(*names * (1 if len(names) > 1 else 2)) if names else type
            cls.__eq__ = vars(cls).get("__eq__", _is_equal)
            if vars(cls).get("__hash__") is None:
                cls.__hash__ = _hash
        return cls

    return made if cls is None else made(cls)


def _initializer(cls: Any) -> Any:
    """Return the compiled ``__init__`` of a dataclass."""
    values: dict[str, Any] = {"_set": object.__setattr__, "_new": MISSING}
    positional: list[str] = []
    named: list[str] = []
    lines = []
    for f in fields(cls):
        if not f.init:
            raise TypeError(f"{f.name}: expected a field that is an argument")
        parameter, value = f.name, f.name
        if f.default_factory is not MISSING:
            values[f"_make_{f.name}"] = f.default_factory
            parameter, value = f"{f.name}=_new", f"_make_{f.name}() if {f.name} is _new else {f.name}"
        elif f.default is not MISSING:
            values[f"_default_{f.name}"] = f.default
            parameter = f"{f.name}=_default_{f.name}"
        (named if f.kw_only else positional).append(parameter)
        lines.append(f" _set(self,{f.name!r},{value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    arguments = ",".join(["self", *positional, *(["*", *named] if named else [])])
    exec(f"def __init__({arguments}):\n" + "\n".join(lines or [" pass"]), values)
    method = values["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {f.name: f.type for f in fields(cls)} | {"return": None}
    return method


def _text(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = self._compared
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
