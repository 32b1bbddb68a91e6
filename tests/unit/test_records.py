"""Records behave as the frozen dataclasses of the standard library."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import pytest

from clhist._records import record

FROZEN = partial(dataclass, frozen=True)


def classes(decorator: Any) -> tuple[Any, ...]:
    @decorator()
    class Empty:
        pass

    @decorator()
    class One:
        value: float

    @decorator()
    class Point:
        x: int
        y: float = 2.0
        tags: list[str] = field(default_factory=list, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")

        @cached_property
        def sum(self) -> float:
            return self.x + self.y

    @decorator(kw_only=True)
    class Named(Point):
        name: str = "?"

    @decorator(eq=False, repr=False)
    class Handle:
        value: int

    @decorator()
    class Own:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.value % 10 == other.value % 10

        def __hash__(self) -> int:
            return self.value % 10

        def __repr__(self) -> str:
            return "own"

    return Empty, One, Point, Named, Handle, Own


@pytest.mark.parametrize("decorator", [FROZEN, record], ids=["dataclass", "record"])
def test_objects(decorator):
    Empty, One, Point, Named, Handle, Own = classes(decorator)
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert Empty() != One(1)
    nan = float("nan")
    assert One(nan) == One(nan) != One(1.0)
    a, b = Point(1, tags=["a"]), Point(1, 2.0)
    assert a == b
    assert hash(a) == hash(b)
    assert a.tags == ["a"]
    assert b.tags == []
    assert a.sum == 3
    assert a != Point(2)
    assert a != Named(x=1)
    assert Named(1, name="n") == Named(1, name="n") != Named(1)
    assert repr(a).endswith("Point(x=1, y=2.0)")
    assert repr(Named(1)).endswith("Named(x=1, y=2.0, name='?')")
    assert replace(a, x=5) == Point(5)
    assert asdict(One(3)) == {"value": 3}
    assert [f.name for f in fields(One)] == ["value"]
    assert copy.copy(a) == a
    assert Handle(1) != Handle(1)
    assert "object at" in repr(Handle(1))
    assert Own(3) == Own(13)
    assert hash(Own(13)) == 3
    assert repr(Own(1)) == "own"
    assert [*inspect.signature(Point).parameters] == ["x", "y", "tags"]
    assert Point.__match_args__ == ("x", "y", "tags")
    assert Point.__init__.__annotations__ == {"x": "int", "y": "float", "tags": "list[str]", "return": None}
    for wrong in (lambda: Point(), lambda: Point(1, 2, 3, 4), lambda: Named(1, 2.0, [], "n"), lambda: One(other=1)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="x"):
        replace(a, x=-1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        a.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del a.x


@record
class Stored:
    """A class that pickles by its name."""

    value: tuple[int, ...]


def test_pickles():
    assert pickle.loads(pickle.dumps(Stored((1, 2)))) == Stored((1, 2))
