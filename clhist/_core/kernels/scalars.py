"""Scalars of a call as the types that its arguments declare."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from clhist.operators.c_types import same_value, shown_dtype


class Declared(Protocol):
    """A scalar argument: its name and type."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> np.dtype: ...


def scalar(argument: Declared, value: object) -> np.generic:
    """Return `value` as a scalar of the type that `argument` declares.

    Raises
    ------
    TypeError, ValueError
        If it is not a number, or does not fit; the argument is named.
    """
    # Repeated calls mostly pass NumPy scalars, which need no conversion.
    if type(value) is argument.dtype.type and argument.dtype.names is None:
        return value  # type: ignore[return-value]
    if not isinstance(value, int | float | complex | np.generic) and argument.dtype.names is None:
        raise TypeError(f"{argument.name}: expected a scalar of {argument.dtype}, got {type(value).__name__}")
    if isinstance(value, np.void) and value.dtype.names != argument.dtype.names:  # NumPy would go by their order
        raise TypeError(
            f"{argument.name}: expected a scalar of {shown_dtype(argument.dtype)}, got one of "
            f"{shown_dtype(value.dtype)}"
        )
    return same_value(value, argument.dtype, argument.name)  # type: ignore[return-value]
