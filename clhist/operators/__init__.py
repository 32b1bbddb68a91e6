"""Ready-made operators, and the ones that NumPy's ufuncs and written expressions stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from clhist.operators import equivalents as lifts
from clhist.operators import fixed_point
from clhist.operators.c_types import c_name, literal, same_value, struct_of, supported_dtype
from clhist.operators.operator import Operator
from clhist.operators.recognition import recognise


def product(
    operators: Mapping[str, Operator],
    dtype: DTypeLike | None = None,
    *,
    lift: str = "",
    finish: str = "",
    name: str = "",
) -> Operator:
    """Several operators side by side, each field updated by itself with its own atomic (SC'20, section IV-D).

    Parameters
    ----------
    operators : mapping of str to Operator
        An operator for each field of the accumulator.
    dtype : dtype-like, optional
        Type of values and results. Defaults to a structured dtype of the operators' own, by the same names.
    lift, finish : str, optional
        C expressions that make the accumulator of a value `v`, and the result of an accumulator `a`. Must be given if
        `dtype` is no structured dtype of these fields.
    name : str, optional
        What to call it.

    Examples
    --------
    >>> operators.product({"sum": add(np.float32), "squares": add(np.float32)}, np.float32,
    ...     lift="(accumulator_t){v, v * v}", finish="a.squares - a.sum * a.sum")      # doctest: +SKIP
    """
    if not isinstance(operators, Mapping) or not operators:
        raise TypeError(f"operators: expected a mapping of at least one field to its operator, got {operators!r}")
    for field, operator in operators.items():
        if not isinstance(operator, Operator):
            raise TypeError(f"operators[{field!r}]: expected a clhist.Operator, got {operator!r}")
    if dtype is None:
        dtype = struct_of({field: operator.dtype for field, operator in operators.items()})
    lifted = {
        field: next((other.operator for other in operator.lifted if other.most_values is None), operator)
        for field, operator in operators.items()
    }
    better = Operator(dtype, lifted, name=name) if not (lift or finish) and lifted != dict(operators) else ()
    return Operator(dtype, operators, name=name, lift=lift, finish=finish, lifted=better)


def add(dtype: DTypeLike) -> Operator:
    """Sums, as `numpy.add`: modulo 2^bits for integers, logical or for booleans; complex ones part by part."""
    found = _number(dtype)
    return logical_or(found) if found.kind == "b" else Operator(found, "a + b", 0, "add")


def count(dtype: DTypeLike = np.int64) -> Operator:
    """Sums of ones, held in 32 bits while they are counted: for fewer than 2^32 values and no `dest`."""
    return Operator(_integer(dtype), "a + b", 0, "count", accumulator=np.uint32, most_values=2**32 - 1)


def reproducible_add(dtype: DTypeLike, max_abs: float, *, bits: int | None = None, count: int = 2**31 - 1) -> Operator:
    """Sums of floats that are bitwise the same whatever the order of the terms, the plan and the device.

    Values are added as integers: multiples of 2^(e - bits), where 2^e is the least power of 16 above `max_abs`. With n
    values (and `dest` as one more) the error is at most ``n * 2^(e - bits - 1)``, which is at most
    ``n * max_abs * 2^(3 - bits)``, and that of rounding the sum once to `dtype`.

    Parameters
    ----------
    dtype : dtype-like
        float32 or float64.
    max_abs : float
        No less than the largest finite |value|, `dest` included. A bin that gets a larger one becomes NaN; of NumPy
        arrays the call raises OverflowError.
    bits : int, optional
        32 or 64; defaults to those of `dtype`.
    count : int
        How many values one bin gets at most, with `dest`: less than 2^47. Beyond the default a value takes more words.

    Notes
    -----
    A bin with a NaN, or with infinities of both signs, is NaN; with infinities of one sign it is that. Sums of zero are
    +0. A sum is infinite if and only if it is so when rounded: no part of it overflows before. Subnormal numbers are as
    good as others, also on devices that take them for zero.

    A program is compiled for each power of 16, of which there are 64 for float32: mostly one or two occur.
    """
    found = _float(dtype)
    bits = 8 * found.itemsize if bits is None else bits
    if bits not in (32, 64):
        raise ValueError(f"bits: expected 32 or 64, got {bits!r}")
    limit = same_value(max_abs, np.dtype(np.float64), "max_abs")
    if not 0 <= limit < np.inf:  # type: ignore[operator]
        raise ValueError(f"max_abs: expected a finite number that is not negative, got {max_abs!r}")
    if not isinstance(count, int | np.integer) or not 0 < count <= fixed_point.MOST_VALUES:
        raise ValueError(f"count: expected an integer in [1, {fixed_point.MOST_VALUES}], got {count!r}")
    count = max(2**31 - 1, 2 ** int(count).bit_length() - 1)
    exponent = fixed_point.exponent_of(float(limit), found, bits)  # type: ignore[arg-type]
    return fixed_point.operator_on(found, exponent, bits, count)


def multiply(dtype: DTypeLike) -> Operator:
    """Products, as `numpy.multiply`: modulo 2^bits for integers, logical and for booleans."""
    found = _number(dtype)
    if found.kind == "b":
        return logical_and(found)
    if found.kind == "c":
        product = f"({c_name(found)})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)"
        return Operator(found, product, 1, "multiply", verified=True)
    return Operator(found, "a * b", 1, "multiply")


def minimum(dtype: DTypeLike) -> Operator:
    """Smallest value, as `numpy.minimum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined."""
    found = _real(dtype)
    if found.kind == "f":
        combine, lifted = "b != b ? b : (b < a ? b : a)", lifts.minimum(found)
        return Operator(found, combine, _largest(found), "minimum", lifted=lifted, verified=True)
    return Operator(found, "min(a, b)", _largest(found), "minimum")


def maximum(dtype: DTypeLike) -> Operator:
    """Largest value, as `numpy.maximum`: a NaN makes its bin NaN. Which zero wins, +0 or -0, is not defined."""
    found = _real(dtype)
    if found.kind == "f":
        combine, lifted = "b != b ? b : (b > a ? b : a)", lifts.maximum(found)
        return Operator(found, combine, _smallest(found), "maximum", lifted=lifted, verified=True)
    return Operator(found, "max(a, b)", _smallest(found), "maximum")


def fmin(dtype: DTypeLike) -> Operator:
    """Smallest value that is not NaN, as `numpy.fmin`; a bin that gets none holds NaN, if its type has it."""
    found = _real(dtype)
    if found.kind != "f":
        return minimum(found)
    return Operator(found, "fmin(a, b)", np.nan, "fmin", lifted=lifts.fmin(found))


def fmax(dtype: DTypeLike) -> Operator:
    """Largest value that is not NaN, as `numpy.fmax`; a bin that gets none holds NaN, if its type has it."""
    found = _real(dtype)
    if found.kind != "f":
        return maximum(found)
    return Operator(found, "fmax(a, b)", np.nan, "fmax", lifted=lifts.fmax(found))


def bitwise_and(dtype: DTypeLike) -> Operator:
    """Bits that all values have, as `numpy.bitwise_and`."""
    found = _integer(dtype)
    if found.kind == "b":
        return logical_and(found)
    return Operator(found, "a & b", -1 if found.kind == "i" else np.iinfo(found).max, "bitwise_and")


def bitwise_or(dtype: DTypeLike) -> Operator:
    """Bits that any value has, as `numpy.bitwise_or`."""
    found = _integer(dtype)
    return logical_or(found) if found.kind == "b" else Operator(found, "a | b", 0, "bitwise_or")


def bitwise_xor(dtype: DTypeLike) -> Operator:
    """Bits that an odd number of values has, as `numpy.bitwise_xor`."""
    found = _integer(dtype)
    return logical_xor(found) if found.kind == "b" else Operator(found, "a ^ b", 0, "bitwise_xor")


def logical_and(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether all values are non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a & b", 1, "logical_and")


def logical_or(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether any value is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a | b", 0, "logical_or")


def logical_xor(dtype: DTypeLike = np.bool_) -> Operator:
    """Whether an odd number of values is non-zero, as 0 or 1 of `dtype` (`dest` counts as a value of every bin)."""
    return _logical(dtype, "a ^ b", 0, "logical_xor")


def saturating_add(dtype: DTypeLike, maximum: float) -> Operator:
    """Sums of non-negative values that stop at `maximum`: 255 in Parboil's histo, 2^24 - 1 in SC'20, section V-A.

    Parameters
    ----------
    dtype : dtype-like
        An integer or a float.
    maximum : int or float
        The largest sum; must be positive and fit `dtype`.

    Notes
    -----
    With negative values saturation depends on the order of the terms, so the result is not defined for them.
    """
    found = _real(dtype)
    if found.kind == "b":
        raise TypeError("dtype: expected an integer or a float for saturating_add, got bool")
    limit = literal(same_value(maximum, found, "maximum"), found)
    if not maximum > 0:
        raise ValueError(f"maximum: expected a positive number, got {maximum!r}")
    # Written so that nothing can wrap: a + b is formed only where it stays within the limit.
    combine = f"(b >= {limit} || a >= {limit} - b) ? {limit} : ({c_name(found)})(a + b)"
    exact = lifts.exact_sums(found, int(maximum)) if found.kind in "iu" else ()
    return Operator(found, combine, 0, "saturating_add", lifted=exact, verified=True)


def mean(dtype: DTypeLike, accumulator: DTypeLike = np.float64) -> Operator:
    """The mean of the values, NaN for a bin without; sum and number are updated by their own atomics.

    Parameters
    ----------
    dtype : dtype-like
        A float or a complex number: type of the values and of the result.
    accumulator : dtype-like
        In which values, or the parts of complex ones, are summed. A device without double precision needs float32,
        which is right for thousands of values a bin and wrong for millions: a large sum swallows small values.

    Notes
    -----
    `dest`, where there is one, counts as a value of its bin; give a shape in its place to begin with nothing.
    """
    found, held = _of_kind(dtype, "fc", "a float or a complex number", "dtype"), _float(accumulator, "accumulator")
    number = add(np.uint64)
    if found.kind == "c":
        sums, convert = np.dtype(f"c{2 * held.itemsize}"), f"convert_{c_name(found)}"
        lift, finish = (
            f"(accumulator_t){{convert_{c_name(sums)}(v), 1}}",
            f"{convert}(a.sum / ({c_name(held)})a.number)",
        )
        return product({"sum": add(sums), "number": number}, found, lift=lift, finish=finish, name="mean")
    parts = {"sum": add(held), "number": number}
    return product(parts, found, lift="(accumulator_t){v, 1}", finish="a.sum / a.number", name="mean")


def variance(dtype: DTypeLike, ddof: int = 0, accumulator: DTypeLike = np.float64) -> Operator:
    """The variance of the values, NaN for a bin with no more than `ddof` of them.

    Parameters
    ----------
    dtype : dtype-like
        float32 or float64: type of the values and of the result.
    ddof : int
        What is subtracted from the number of values in the divisor, as in `numpy.var`.
    accumulator : dtype-like
        In which it is computed; see `mean`.

    Notes
    -----
    Number, mean and sum of squared deviations are combined together (Chan, Golub, LeVeque 1979), which cancels nothing
    but needs a lock where work-items share copies. `product` of sums is faster where the mean is small.
    """
    found, real_dtype = _float(dtype), _float(accumulator, "accumulator")
    if not isinstance(ddof, int | np.integer) or ddof < 0:
        raise ValueError(f"ddof: expected a non-negative integer, got {ddof!r}")
    held = np.dtype([("number", np.uint64), ("mean", real_dtype), ("deviations", real_dtype)], align=True)
    real, function = c_name(real_dtype), f"combine_variances_{real_dtype.name}"
    return Operator(
        found,
        f"{function}(a, b)",
        (0, 0, 0),
        "variance",
        accumulator=held,
        lift="(accumulator_t){1, v, 0}",
        finish=f"a.number > {ddof} ? a.deviations / (a.number - {ddof}) : {literal(np.nan, real_dtype)}",
        preamble=f"""accumulator_t {function}(const accumulator_t a, const accumulator_t b)
{{
    const ulong number = a.number + b.number;
    const {real} part = number ? ({real})b.number / ({real})number : 0, shift = b.mean - a.mean;
    const {real} between = (shift * part) * (shift * a.number);  // 0, not inf * 0, if either is empty
    accumulator_t sum = {{number, a.mean + shift * part, a.deviations + b.deviations + between}};
    return sum;
}}""",
        verified=True,
    )


def standard_deviation(dtype: DTypeLike, ddof: int = 0, accumulator: DTypeLike = np.float64) -> Operator:
    """The square root of `variance`, with its parameters."""
    return with_finish(variance(dtype, ddof, accumulator), "sqrt({})", "standard_deviation")


def with_finish(operator: Operator, finish: str, name: str) -> Operator:
    """Return `operator`, lifted forms included, with the C expression `finish` of its result, written as ``{}``."""
    found = copy(operator)
    lifted = tuple(replace(each, operator=with_finish(each.operator, finish, name)) for each in operator.lifted)
    for attribute, value in {"finish": finish.format(f"({operator.finish})"), "name": name, "lifted": lifted}.items():
        object.__setattr__(found, attribute, value)
    return found


def argmin(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the smallest value; see `argmax`."""
    return _arg("argmin", dtype, index_dtype, "<")


def argmax(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the largest value; of equal values the one of the lowest index, as `numpy.argmax`.

    Parameters
    ----------
    dtype : dtype-like
        Type of a value: an integer or a float. A NaN counts as larger than every number, as in NumPy.
    index_dtype : dtype-like
        Type of an index: an integer.

    Returns
    -------
    Operator
        Over the structured dtype with fields ``value`` and ``index``. A bin that gets no pair holds the value that
        every other beats (or equals) and the largest index of its type.

    Notes
    -----
    Pairs of 32 bits each are compared as one integer of 64 where that is faster; the winner's -0 is then returned as 0,
    and its NaN as the one of `numpy.nan`.
    """
    return _arg("argmax", dtype, index_dtype, ">")


def first(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the lowest index; see `argmax`. A bin that gets none holds 0 and the largest index."""
    return _positional("first", dtype, index_dtype, "<")


def last(dtype: DTypeLike, index_dtype: DTypeLike = np.int32) -> Operator:
    """The (value, index) pair of the highest index; see `argmax`. A bin that gets none holds 0 and the least index."""
    return _positional("last", dtype, index_dtype, ">")


any = logical_or
all = logical_and

_UFUNCS: dict[np.ufunc, Callable[[DTypeLike], Operator]] = {
    np.add: add,
    np.multiply: multiply,
    np.minimum: minimum,
    np.maximum: maximum,
    np.fmin: fmin,
    np.fmax: fmax,
    np.bitwise_and: bitwise_and,
    np.bitwise_or: bitwise_or,
    np.bitwise_xor: bitwise_xor,
    np.logical_and: logical_and,
    np.logical_or: logical_or,
    np.logical_xor: logical_xor,
}
_BY_NAME = {ufunc.__name__: ready for ufunc, ready in _UFUNCS.items()}


def as_operator(op: object, dtype: DTypeLike, argument: str = "op") -> Operator:
    """Return the operator on `dtype` that `op` stands for.

    Parameters
    ----------
    op : Operator, numpy.ufunc or str
        An operator on `dtype`; one of NumPy's associative and commutative ufuncs, which on a structured dtype acts on
        each field by itself; or a C expression of `a` and `b` that is known, such as ``"max(a, b)"``.
    dtype : dtype-like
        Type of the bins.
    argument : str
        What to call `op` in an error.

    Raises
    ------
    TypeError
        If `op` stands for no operator on `dtype`.
    """
    found = supported_dtype(dtype)
    if isinstance(op, Operator):
        if op.dtype != found:
            raise TypeError(f"{argument}: expected an operator on {found}, got one on {op.dtype} ({op.name})")
        return op
    ready = _UFUNCS.get(op) if isinstance(op, np.ufunc) else None
    if isinstance(op, str):
        ready = _BY_NAME.get(recognise(op, found) or "")
    if ready is None:
        names = ", ".join(f"np.{name}" for name in _BY_NAME)
        raise TypeError(
            f"{argument}: expected a clhist.Operator, a C expression of a and b that is known, or one of "
            f"{names}; got {op!r}. Others are written as clhist.Operator(dtype, combine, neutral)"
        )
    try:
        if found.names is not None and isinstance(op, np.ufunc):  # field by field
            return product({field: as_operator(op, found[field]) for field in found.names}, found)
        return ready(found)
    except TypeError as error:
        raise TypeError(f"{argument}: {error}") from error


def _logical(dtype: DTypeLike, combine: str, neutral: int, name: str) -> Operator:
    found = _real(dtype)
    return Operator(found, combine, neutral, name, accumulator=np.uint32, lift="v != 0", finish="a != 0")


def _arg(name: str, dtype: DTypeLike, index_dtype: DTypeLike, better: str) -> Operator:
    value = _real(dtype)
    index = _of_kind(index_dtype, "iu", "an integer", "index_dtype")
    worst = _smallest(value) if better == ">" else _largest(value)
    same = "a.value == b.value"
    wins = f"b.value {better} a.value"
    if value.kind == "f":
        a_nan, b_nan = "a.value != a.value", "b.value != b.value"  # PoCL's isnan is slow
        same = f"({same} || ({a_nan} && {b_nan}))"
        wins = f"(a.value == a.value && ({wins} || {b_nan}))"
    pair = np.dtype([("value", value), ("index", index)], align=True)
    combine = f"({wins} || ({same} && b.index < a.index)) ? b : a"
    neutral = worst, np.iinfo(index).max
    packed = lifts.arg(name, pair, neutral)
    return Operator(pair, combine, neutral, name, lifted=packed, positional=True, verified=True)


def _positional(name: str, dtype: DTypeLike, index_dtype: DTypeLike, better: str) -> Operator:
    value = _real(dtype)
    index = _of_kind(index_dtype, "iu", "an integer", "index_dtype")
    pair = np.dtype([("value", value), ("index", index)], align=True)
    neutral = 0, np.iinfo(index).max if better == "<" else np.iinfo(index).min
    # Only the neutral element has the index of another pair, and then that pair wins.
    combine = f"(b.index {better} a.index || (b.index == a.index && b.value != 0)) ? b : a"
    packed = lifts.position(name, pair, neutral)
    return Operator(pair, combine, neutral, name, lifted=packed, positional=True, verified=True)


def _largest(dtype: np.dtype) -> object:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def _smallest(dtype: np.dtype) -> object:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _number(dtype: DTypeLike) -> np.dtype:
    return _of_kind(dtype, "biufc", "a number", "dtype")


def _real(dtype: DTypeLike) -> np.dtype:
    return _of_kind(dtype, "biuf", "an integer or a float", "dtype")


def _float(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    return _of_kind(dtype, "f", "a float", argument)


def _integer(dtype: DTypeLike, argument: str = "dtype") -> np.dtype:
    return _of_kind(dtype, "biu", "an integer", argument)


def _of_kind(dtype: DTypeLike, kinds: str, expected: str, argument: str) -> np.dtype:
    found = supported_dtype(dtype, argument)
    if found.kind not in kinds:
        raise TypeError(f"{argument}: expected {expected}, got {found}")
    return found
