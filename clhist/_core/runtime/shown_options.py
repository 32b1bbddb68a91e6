"""Documented options: `inspect.signature` and `help` show the keywords of ``**options``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS: dict[str, Any] = {"race_factor": 1.0, "return_event": False, "reproducible": False}


def shows(*options: type, **more: type) -> Callable[[F], F]:
    """Replace ``**options`` by its keywords in the signature of a function, and hide ``*wrong`` and ``**wrong``.

    Parameters
    ----------
    *options : TypedDict
        Types of the keywords.
    **more : type
        Further keywords.
    """
    types = {
        name: annotation for typed_dict in options for name, annotation in typed_dict.__annotations__.items()
    } | more

    def with_signature(function: F) -> F:
        shown = signature(function)
        parameters = [
            parameter
            for parameter in shown.parameters.values()
            if parameter.name != "wrong" and not (types and parameter.kind == Parameter.VAR_KEYWORD)
        ]
        # Annotations may be forward references, of which the name is shown.
        parameters += [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=getattr(annotation, "__forward_arg__", getattr(annotation, "__name__", annotation)),
            )
            for name, annotation in types.items()
            if name not in shown.parameters
        ]
        function.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return with_signature
