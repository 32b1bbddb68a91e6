"""Functions that compute at once, ``f(...)``, or bind their arguments, ``f.bind(...)``, as a `HistogramKernel` can."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
B = TypeVar("B")


class Bindable(Generic[P, B]):
    """A function made of one that only binds.

    Parameters
    ----------
    bind : callable
        Checks its arguments and returns a `clhist.Bound`, or something with one.
    result : callable, optional
        Returns what the function does, of what `bind` returned; defaults to what the bound call returns.
    """

    def __init__(self, bind: Callable[P, B], result: Callable[[B], Any] | None = None) -> None:
        self._bind, self._result = bind, result
        update_wrapper(self, bind)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Compute it."""
        bound: Any = self._bind(*args, **kwargs)
        return bound() if self._result is None else self._result(bound)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> B:
        """Return it bound to these arguments: to be called, again and again, without them."""
        return self._bind(*args, **kwargs)
