"""Which operators have results that no order of values changes; and what looks at values for their sake."""

from __future__ import annotations

import numpy as np

from clhist.operators.arithmetic import reproducible_add
from clhist.operators.c_types import c_name
from clhist.operators.fixed_point import FORMATS, MOST_VALUES
from clhist.operators.operator import Operator

_ORDERED = ("minimum", "maximum", "fmin", "fmax")


def check_reproducible(value: object) -> None:
    """Raise TypeError if `value` is not what the option ``reproducible`` of a public function may be."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"reproducible: expected a bool, got {value!r}")


def is_float_sum(operator: Operator) -> bool:
    """Whether it adds floats, and `clhist.operators.reproducible_add` can take its place."""
    return operator.operation == "add" and operator.accumulator == operator.dtype and operator.dtype in FORMATS


def reproducible_form(operator: Operator, max_abs: float | None, count: int) -> Operator:
    """Return the form of `operator` whose results depend on nothing but the values, `dest` among them.

    Parameters
    ----------
    operator : Operator
        Any.
    max_abs : float or None
        The largest |value|, for sums of floats.
    count : int
        How many values a bin gets at most.

    Raises
    ------
    TypeError
        If there is none.
    """
    if is_float_sum(operator):
        assert max_abs is not None
        return reproducible_add(operator.dtype, max_abs, count=min(count, MOST_VALUES))
    # Minima of floats are those of ordered integers then: it is defined which zero and which NaN they are.
    form = operator.fixed(shared=True)
    if form.positional or all(part.operation in _ORDERED or not _has_floats(part.dtype) for part in form.parts):
        return form
    raise TypeError(
        "reproducible: expected sums of float32 or float64, or an operator whose results do not depend on the order "
        f"of values, got {operator!r}"
    )


def magnitude(operator: Operator) -> Operator:
    """Return an operator on the same values with the largest finite |value| of floats, by their bits; 0 of none."""
    dtype = operator.dtype
    fmt, unsigned = FORMATS[dtype], np.dtype(f"u{dtype.itemsize}")
    kind, rest = c_name(unsigned), (1 << (8 * dtype.itemsize - 1)) - 1
    infinity = (2 * fmt.beyond - 1) << fmt.shift
    bits = f"(as_{kind}(v) & ({kind})0x{rest:x}ul)"
    return Operator(
        dtype,
        "max(a, b)",
        0,
        "magnitude",
        accumulator=unsigned,
        lift=f"{bits} < ({kind})0x{infinity:x}ul ? {bits} : 0",
        finish=f"as_{c_name(dtype)}(a)",
        preamble=operator.preamble if "accumulator_t" not in operator.preamble else "",
    )


def counting(operator: Operator) -> Operator:
    """Return an operator on the same values that counts them, whatever they are."""
    # A map may use functions of the operator's own; those on its accumulators would not compile.
    preamble = "" if "accumulator_t" in operator.preamble else operator.preamble
    return Operator(
        operator.dtype,
        "a + b",
        0,
        "count",
        accumulator=np.uint32,
        lift="((void)(v), 1u)",
        finish="a",  # never used: counts are read as accumulators
        preamble=preamble,
    )


def _has_floats(dtype: np.dtype) -> bool:
    if dtype.subdtype is not None:
        return _has_floats(dtype.subdtype[0])
    if dtype.fields is not None:
        return any(_has_floats(field[0]) for field in dtype.fields.values())
    return dtype.kind in "fc"
