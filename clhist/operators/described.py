"""Operators as plain data for files: a ready one by its name and arguments, any other by its C expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from clhist import operators
from clhist.operators.c_types import IDENTIFIER, bytes_of
from clhist.operators.halves import number_of
from clhist.operators.names import PAIRS
from clhist.operators.operator import Operator
from clhist.operators.recognition import recognise

_STATISTICS = {
    function.__name__: function for function in (operators.mean, operators.variance, operators.standard_deviation)
}
_PLAIN = ("add", "count", "fmax", "fmin", "maximum", "minimum", "multiply")
_BITS = tuple(f"{kind}_{name}" for kind in ("bitwise", "logical") for name in ("and", "or", "xor"))
_SUMS = ("reproducible_add", "saturating_add")
READY = {name: getattr(operators, name) for name in (*_PLAIN, *_BITS, *_SUMS)} | PAIRS | _STATISTICS
_DTYPES = ("dtype", "index_dtype", "accumulator")  # arguments of ready operators that are dtypes
_NUMBERS = ("bits", "count", "ddof", "max_abs", "maximum")
# Values of `ddof` that are tried, from 0 on: an operator does not record its own.
_MOST_DDOF = 4
_TEXTS = ("name", "lift", "finish", "preamble")
_NAME = re.compile(r"[\w .()+-]{0,99}", re.ASCII)  # of an operator: cannot end a comment of C


class UntrustedError(ValueError):
    """A description has C expressions of its own, and nobody said that it is to be trusted."""


def described(operator: Operator) -> dict[str, Any] | None:
    """Return what `operator_of` makes a portable operator of again, as JSON; None if that is impossible."""
    try:
        return next((candidate for candidate in _candidates(operator) if _makes(candidate, operator)), None)
    except ValueError:  # a dtype with arrays as fields
        return None


def operator_of(description: Any, *, trusted: bool = False) -> Operator:
    """Return the portable operator of a description that anyone may have written.

    Parameters
    ----------
    description : object
        Decoded JSON.
    trusted : bool
        Whether C expressions may be taken from it. Without it, only ready operators are returned, and expressions
        that clhist recognises.

    Raises
    ------
    UntrustedError
        If it has other expressions and is not `trusted`.
    ValueError
        If it is no description.
    """
    try:
        if "ready" in description:
            arguments = {name: _argument(name, value) for name, value in description["arguments"].items()}
            return READY[description["ready"]](**arguments).portable()
        return _of_source(description, trusted)
    except UntrustedError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected the description of an operator: {error}") from error


def _candidates(operator: Operator) -> Iterator[dict[str, Any]]:
    """Yield descriptions, one of which may be of this operator: first of ready ones."""
    # A ready operator needs no trust when it is read, since its description has no C.
    if operator.name in READY:
        yield from _ready(operator)
    yield _source(operator)


def _ready(operator: Operator) -> Iterator[dict[str, Any]]:
    name, dtype = operator.name, operator.dtype
    first: dict[str, Any] = {"dtype": _shown(dtype)}
    # Operators do not record their arguments: candidates are made of those that each can have had.
    others: list[dict[str, Any]] = [{}]
    if name in PAIRS:
        first = {"dtype": _shown(dtype["value"]), "index_dtype": _shown(dtype["index"])}
    elif name in _STATISTICS:
        ddofs = [{}] if name == "mean" else [{"ddof": ddof} for ddof in range(_MOST_DDOF)]
        others = [{"accumulator": accumulator} | ddof for accumulator in ("<f8", "<f4") for ddof in ddofs]
    elif name == "reproducible_add" and operator.largest is not None:
        others = [
            {"max_abs": operator.largest, "bits": bits, "count": count}
            for bits in (32, 64)
            for count in (None, operator.most_values)
        ]
    elif name == "saturating_add":
        # The maximum stands in the C expression alone: each number in it is tried.
        others = [{"maximum": n} for n in _limits(operator.combine, dtype)]
    for other in others:
        yield {"ready": name, "arguments": first | other}


def _limits(combine: str, dtype: np.dtype) -> Iterator[float]:
    """Yield the numbers in C text of this dtype, as `literal` writes them."""
    if dtype.kind == "f":
        for digits in dict.fromkeys(re.findall(r"as_\w+\(0x([\da-f]+)", combine)):
            yield float(np.array(int(digits, 16), f"u{number_of(dtype).itemsize}").view(number_of(dtype)))
    else:
        yield from map(int, dict.fromkeys(re.findall(r"\d+", combine)))


def _makes(description: dict[str, Any], operator: Operator) -> bool:
    """Whether the description is one of this operator."""
    try:
        made = operator_of(description, trusted=True)
    except ValueError:
        return False
    # Equal operators may differ in their identity elements, which bins without values hold. Bytes compare NaN, too.
    return made == operator and _neutral_bytes(made) == _neutral_bytes(operator)


def _source(operator: Operator) -> dict[str, Any]:
    if operator.accumulator.names is None:
        combine: Any = operator.combine
    else:
        combine = {part.accessor: part.combine for part in operator.parts}
    return {
        "dtype": _shown(operator.dtype),
        "accumulator": _shown(operator.accumulator),
        "combine": combine,
        "neutral": _neutral_bytes(operator).hex(),
        "positional": operator.positional,
        "most_values": operator.most_values,
        "largest": operator.largest,
        **{name: getattr(operator, name) for name in _TEXTS},
    }


def _of_source(described: Mapping[str, Any], trusted: bool) -> Operator:
    dtype, accumulator = _dtype(described["dtype"]), _dtype(described["accumulator"])
    combine, texts = described["combine"], {name: described[name] for name in _TEXTS}
    limits = {name: described[name] for name in ("positional", "most_values", "largest")}
    # The file may come from anyone: types and the name are checked before anything becomes C.
    if not all(isinstance(text, str) for text in texts.values()) or not _NAME.fullmatch(texts["name"]):
        raise ValueError("a text is none")
    if type(limits["positional"]) is not bool:
        raise ValueError("positional is neither true nor false")
    _check_limit(limits["most_values"], (int,))
    _check_limit(limits["largest"], (int, float))
    data = bytes.fromhex(described["neutral"])
    if len(data) != accumulator.itemsize:
        raise ValueError("the identity element has another size")
    neutral = np.frombuffer(data, accumulator)[0]
    # An accumulator is a number, a struct that one expression combines, or a product with an operator for each field.
    if isinstance(combine, str):
        parts: Any = combine
        plain: dict[str, Any] = {"neutral": neutral, "accumulator": accumulator}
        is_known = recognise(combine, accumulator) is not None
    elif "" in combine:  # one expression on a struct
        parts, plain, is_known = combine[""], {"neutral": neutral, "accumulator": accumulator}, False
    else:
        parts, plain, is_known = {}, {}, True
        for accessor, text in combine.items():
            # The two parts `.x` and `.y` of a complex field are of one operator.
            name = accessor.split(".")[1]
            parts[name] = Operator(accumulator[name], text, neutral[name], accumulator=accumulator[name])
            is_known = is_known and parts[name].operation is not None
    name = texts.pop("name")
    if is_known and not texts["preamble"]:
        # Nothing of the file's `lift` and `finish` is used: the operator is returned if clhist writes the same ones.
        made = _made(dtype, parts, name, plain, limits)
        if made is not None and (made.lift, made.finish) == (texts["lift"], texts["finish"]):
            return made
    if not trusted:
        raise UntrustedError("it has C expressions of its own")
    return Operator(dtype, parts, name=name, **plain, **texts, **limits)


def _made(dtype: np.dtype, parts: Any, name: str, plain: Mapping[str, Any], limits: Mapping[str, Any]) -> Any:
    """Return the operator with conversions of clhist's own, or None if there is none."""
    try:
        return Operator(dtype, parts, name=name, **plain, **limits)
    except (TypeError, ValueError):
        return None


def _check_limit(value: Any, types: tuple[type, ...]) -> None:
    if value is not None and (type(value) not in types or not value > 0):
        raise ValueError("a limit is no positive number")


def _argument(name: str, value: Any) -> Any:
    if name in _DTYPES:
        return _dtype(value)
    if name not in _NUMBERS or type(value) not in (int, float, type(None)):
        raise ValueError(f"{name} is no argument of an operator")
    return value


def _neutral_bytes(operator: Operator) -> bytes:
    return bytes_of(operator.neutral, operator.accumulator)


def _shown(dtype: np.dtype) -> Any:
    """Return a dtype as JSON."""
    if dtype.names is None:
        if dtype.subdtype is not None:
            raise ValueError("arrays as fields have no description")
        # NumPy's string for bfloat16 is that of two untyped bytes.
        return "bfloat16" if dtype.name == "bfloat16" else dtype.str
    fields = [[name, _shown(dtype[name]), dtype.fields[name][1]] for name in dtype.names]  # type: ignore[index]
    return {"fields": fields, "itemsize": dtype.itemsize}


def _dtype(shown: Any) -> np.dtype:
    """Return the dtype that `_shown` wrote; raise ValueError if it is none of numbers."""
    if isinstance(shown, str):
        if shown == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        # NumPy parses many other strings, among them those of records and Python objects.
        if not re.fullmatch(r"[<>|][biufc](1|2|4|8|16)", shown):
            raise ValueError("a dtype is none of numbers")
        return np.dtype(shown)
    names, types, offsets = zip(*shown["fields"], strict=True)
    # Names of fields become C, which must not hold other code.
    if not all(isinstance(name, str) and IDENTIFIER.match(name) for name in names):
        raise ValueError("a field has no name of C")
    fields: Any = {
        "names": names,
        "formats": [_dtype(field) for field in types],
        "offsets": offsets,
        "itemsize": shown["itemsize"],
    }
    return np.dtype(fields, align=True)
