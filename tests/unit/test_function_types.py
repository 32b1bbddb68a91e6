"""The signatures that type checkers see are those of the functions."""

from __future__ import annotations

import inspect

import pytest

import clhist
from clhist import function_types

NAMES = sorted(
    name for name, value in vars(function_types).items() if getattr(value, "__module__", "") == function_types.__name__
)


def test_there_are_signatures():
    assert {"bincount", "histogram", "reduce_by_index"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_signature_is_that_of_the_function(name):
    typed, function = getattr(function_types, name), getattr(clhist, name)
    shown = inspect.signature(function).parameters
    written = inspect.signature(typed).parameters
    named = [each for each in written.values() if each.kind != inspect.Parameter.VAR_KEYWORD]
    assert [(each.name, each.kind, each.default) for each in named] == [
        (each.name, each.kind, each.default) for each in shown.values() if each.name in written
    ]
    # The others are options, which a TypedDict lists.
    options = {name for name in shown if name not in written}
    given = clhist.typing.CallOptions.__annotations__ if len(named) < len(written) else {}
    assert options == set(given)


@pytest.mark.parametrize("name", NAMES)
def test_a_signature_says_what_the_function_does(name):
    typed, function = getattr(function_types, name), getattr(clhist, name)
    assert typed.__doc__ == inspect.getdoc(function).splitlines()[0]
