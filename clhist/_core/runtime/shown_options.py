"""Options as callers see them: `inspect.signature` and `help` show what ``**options`` takes."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS: dict[str, Any] = {"race_factor": 1.0, "return_event": False, "reproducible": False}


def shows(*options: type, **more: type) -> Callable[[F], F]:
    """Let the signature of a function show keywords in the place of ``**options``, and no ``*wrong`` or ``**wrong``.

    Parameters
    ----------
    *options : TypedDict
        Types of the keywords.
    **more : type
        Further keywords.
    """
    types = {name: each for given in options for name, each in given.__annotations__.items()} | more

    def with_signature(function: F) -> F:
        shown = signature(function)
        kept = [
            each
            for each in shown.parameters.values()
            if each.name != "wrong" and not (types and each.kind == Parameter.VAR_KEYWORD)
        ]
        kept += [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=getattr(each, "__forward_arg__", getattr(each, "__name__", each)),
            )
            for name, each in types.items()
            if name not in shown.parameters
        ]
        function.__signature__ = shown.replace(parameters=kept)  # type: ignore[attr-defined]
        return function

    return with_signature
