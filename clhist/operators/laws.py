"""The laws of an operator, and who checks them: operators are plain values, a check needs a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def no_checker(operator: Any, samples: Any, queue: Any) -> Any:
    """Raise RuntimeError: no engine has been imported that could check an operator."""
    raise RuntimeError("check: expected clhist to be imported as a whole, got its operators alone")


# (operator, samples, queue) -> OperatorCheck; `clhist.engine.operator_check` provides it when it is imported.
checker: Callable[[Any, Any, Any], Any] = no_checker
