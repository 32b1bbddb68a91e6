"""The policy on names that are to go (docs/stability.md), as decorators: nothing public goes without them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import deprecated
else:

    def deprecated(message: str) -> Callable:
        """Mark a function that is to go (PEP 702): type checkers say so, and its use raises a DeprecationWarning.

        Parameters
        ----------
        message : str
            "since 1.2, gone in 1.4: write ... instead".

        Raises
        ------
        ValueError
            If the message says something else, or leaves less than two minor releases.
        """
        _check(message)

        def mark(function: Callable) -> Callable:
            @wraps(function)
            def call(*args: Any, **options: Any) -> Any:
                warnings.warn(f"{function.__qualname__} is deprecated {message}", DeprecationWarning, stacklevel=2)
                return function(*args, **options)

            call.__deprecated__ = message
            return call

        return mark


_F = TypeVar("_F", bound=Callable[..., Any])
_MESSAGE = re.compile(r"since (\d+)\.(\d+), gone in (\d+)\.(\d+): write .+ instead")


def renamed_parameter(old: str, new: str, message: str) -> Callable[[_F], _F]:
    """Let callers of a function still give a keyword by its old name, with a DeprecationWarning.

    Parameters
    ----------
    old, new : str
        The names. Who gives both gets a TypeError.
    message : str
        As of `deprecated`.
    """
    _check(message)

    def mark(function: _F) -> _F:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if old in options:
                if new in options:
                    raise TypeError(f"{old}: expected {new} alone, of which it is the old name; got both")
                warnings.warn(
                    f"{old} of {function.__qualname__} is deprecated {message}", DeprecationWarning, stacklevel=2
                )
                options[new] = options.pop(old)
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return mark


def _check(message: str) -> None:
    found = _MESSAGE.fullmatch(message)
    if not found:
        raise ValueError(f"message: expected 'since X.Y, gone in X.Y: write ... instead', got {message!r}")
    major, minor, last, end = map(int, found.groups())
    if (last, end) < (major, minor + 2) and last == major:
        raise ValueError(f"message: expected two minor releases between, got {message!r}")
