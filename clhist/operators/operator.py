"""The combining operator of a histogram: what a bin holds and how two of them become one."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clhist.operators.c_types import (
    IDENTIFIER,
    c_alignment,
    check_booleans,
    largest_of,
    literal,
    needs_fp64,
    same_value,
    shortened,
    shown_dtype,
    smallest_of,
    struct_of,
    supported_dtype,
    without_comments,
)
from clhist.operators.halves import half_name, number_of
from clhist.operators.host import Host
from clhist.operators.recognition import recognise

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike


@dataclass(frozen=True)
class Part:
    """The part of an accumulator that one update changes: all, or one field of a product (SC'20, section IV-D).

    Attributes
    ----------
    accessor : str
        What C appends to an accumulator to name it: nothing for the whole, ``".x"`` or ``".count"`` for a field.
    dtype : numpy.dtype
        Its type.
    combine : str
        C expression of `a` and `b`.
    neutral_literal : str
        C of the neutral element.
    operation : str or None
        NumPy's name of `combine`, if it is recognised.
    words : int
        Of a long integer (`clhist.operators.fixed_point`): words of 32 bits, with which it begins; 0 of all else.
    term : str
        C expression of what a value `v` adds to a long integer, of the type ``<its function>_t``.
    whole : str
        The same where that is one integer of 64 bits, from the first word on; else nothing.
    is_proven : bool
        Whether `operation` is recognised, and its neutral element is that of all values.
    merged_sums : tuple of str
        Of several fields with a sum of float64: its accessor in C.
    """

    accessor: str
    dtype: np.dtype
    combine: str
    neutral_literal: str
    operation: str | None
    words: int = 0
    term: str = ""
    whole: str = ""
    is_proven: bool = field(compare=False, default=False)
    merged_sums: tuple[str, ...] = field(compare=False, default=())

    @property
    def float64_sums(self) -> tuple[str, ...]:
        """Accessors in C, after the name of the part, of the numbers of float64 that it sums."""
        is_sum = self.operation == "add" and self.dtype == np.float64
        return ("",) if is_sum else self.merged_sums

    @property
    def is_narrow(self) -> bool:
        """Whether it is of `clhist.operators.narrow`: few words, or parts of 64 bits, and no flags."""
        return self.words > 0 and self.dtype.names in (("words",), ("parts",), ("quanta",))

    @property
    def is_split(self) -> bool:
        """Whether it is such parts: of double precision, or of a window, integers."""
        return self.is_narrow and self.dtype[0].base.itemsize == 8

    @property
    def cell_bytes(self) -> int:
        """Bytes of it in a copy: at least one 32-bit word, since nothing smaller is updated atomically."""
        size = self.dtype.itemsize
        return 4 if size <= 4 else 8 if size <= 8 else size

    @property
    def alignment(self) -> int:
        """To what C aligns it, in bytes; NumPy need not say so of a structured type."""
        return c_alignment(self.dtype)


class Equivalent(NamedTuple):
    """Another operator with the same results, and how many values of one bin it can take before it goes wrong."""

    operator: Operator
    most_values: int | None = None


@dataclass(frozen=True, init=False, repr=False)
class Operator:
    """An associative and commutative operator with its identity element (SC'20, Fig. 1b).

    Values and results are of `dtype`. A bin holds an `accumulator` in between: `lift` makes it from
    a value, `combine` joins two, `finish` makes the result. Mostly both types are the same.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values and of the bins: a boolean, an integer, a float, a complex number or a structured dtype laid
        out as in C. Numbers of half precision, float16 and bfloat16, are floats in all C, and rounded once at the end.
    combine : str, or mapping of str to Operator
        C expression combining two accumulators `a` and `b`. Must be associative and commutative: the order of values is
        undefined. A mapping makes a product: each field of the accumulator has its own operator and is updated
        separately; see `clhist.operators.product`.
    neutral : scalar or tuple
        Identity element: ``combine(neutral, b) == b``. Bins without values hold it. Omit it for a product.
    name : str, optional
        Name in plans and errors. Defaults to the recognised operation, or to "custom".
    accumulator : dtype-like, optional
        Type of an accumulator. Defaults to `dtype`, to float32 for half precision, or to 32 bits for known operations
        on narrower integers, which no hardware updates atomically. Omit it for a product.
    lift : str, optional
        C expression making an accumulator from a value `v`. Defaults to conversion.
    finish : str, optional
        C expression making the result from an accumulator `a`. Defaults to conversion; required with `lift` if the
        types differ.
    preamble : str, optional
        C functions and types that the expressions use. ``value_t`` and ``accumulator_t`` are the types of values and
        accumulators.
    equivalents : Operator or sequence of Equivalent, optional
        Operators on the same `dtype` with the same results and cheaper updates, for copies that work-items share.
    positional : bool
        Whether values are (value, index) pairs whose index `clhist.reduce_by_index` may take from the position.
    most_values : int, optional
        Upper bound of the values per bin that an accumulator can hold. Calls that may exceed it are refused. A product
        has the least bound of its operators.
    largest : float, optional
        Largest magnitude of a value. `finish` must turn larger ones into the NaN that
        `clhist.operators.fixed_point.check_range` knows.
    verified : bool
        Skip the check of associativity, commutativity and identity that the first call with a custom operator makes on
        each device; see `clhist.check_operator`.
    samples : array of `dtype`, optional
        Some values that the operator is for, if it is only defined on some of its type. The check uses them beside
        values of the call, and no others.

    Raises
    ------
    TypeError
        If a dtype has no counterpart in OpenCL C.
    ValueError
        If `combine`, `lift` or `finish` does not use its operands, if `neutral` does not fit, or if `lift` or `finish`
        is missing where the two types differ.

    Examples
    --------
    >>> Operator(np.int32, "a > b ? a : b", neutral=-(2**31)).operation
    'maximum'

    Notes
    -----
    The expressions are code that runs on the device: do not take them from someone you do not trust.
    """

    dtype: np.dtype
    combine: str
    neutral: object = field(compare=False)
    name: str
    accumulator: np.dtype
    lift: str
    finish: str
    preamble: str
    parts: tuple[Part, ...]
    equivalents: tuple[Equivalent, ...]
    positional: bool
    most_values: int | None
    largest: float | None
    narrow: tuple[
        Operator, ...
    ] = ()  # of ready ones: smaller accumulators for values of similar sizes (`operators.narrow`)
    kept_if: str = ""  # of ready ones: a quick condition under which ``condition ? b : a`` certainly is `a`
    # Of those of `clhist.operators.by_count`: C of the result from that of `finish`, `a`, and the number `n` of values.
    by_count: str = ""
    verified: bool = field(compare=False, default=False)
    samples: np.ndarray | None = field(compare=False, default=None)
    host: Host | None = field(compare=False, default=None)  # of ready ones: what computes few elements without a device

    def __init__(  # noqa: PLR0913  # what an operator may say
        self,
        dtype: DTypeLike,
        combine: str | Mapping[str, Operator],
        neutral: object = None,
        name: str = "",
        *,
        accumulator: DTypeLike | None = None,
        lift: str = "",
        finish: str = "",
        preamble: str = "",
        equivalents: Operator | Iterable[Equivalent] = (),
        positional: bool = False,
        most_values: int | None = None,
        largest: float | None = None,
        verified: bool = False,
        samples: ArrayLike | None = None,
    ) -> None:
        check_booleans(positional=positional, verified=verified)
        dtype = supported_dtype(dtype)
        lift, finish = _without_comments(lift), _without_comments(finish)
        if not isinstance(combine, Mapping):
            combine = _without_comments(combine)
            _check_expression("combine", combine, "a", "b")
            accumulator_dtype = _accumulator_of(dtype, combine, accumulator)
            _check_conversions(dtype, accumulator_dtype, lift, finish)
            operation = recognise(combine, accumulator_dtype)
            # Without an explicit accumulator the identity element must fit the values, not the 32 bits that they are
            # widened to.
            of_neutral = number_of(dtype) if accumulator is None else accumulator_dtype
            neutral = _checked_neutral(neutral, of_neutral, combine, accumulator_dtype, operation)
            proven = _is_identity(neutral, dtype if accumulator is None else accumulator_dtype, operation)
            parts = _parts_of(accumulator_dtype, combine, neutral, operation, proven)
            # A conversion to a byte would make false of an accumulator such as 256.
            finish = finish or ("a != 0" if dtype.kind == "b" else "a")
        else:
            if neutral is not None or accumulator is not None:
                raise ValueError("neutral, accumulator: a product of operators has those of its operators; got one")
            product = _Product(dtype, combine, lift, finish)
            accumulator_dtype, parts, neutral = product.accumulator, product.parts, product.neutral
            lift, finish = product.lift, product.finish
            # Fields of one operator share its functions, which C must not define twice.
            preamble = "\n".join(dict.fromkeys([*(o.preamble for o in combine.values() if o.preamble), preamble]))
            most_values = product.most_values if most_values is None else most_values
            verified = verified or not any(o.is_custom for o in combine.values())
            operation = None
            combine = "; ".join(f"{part.accessor}: {part.combine}" for part in parts)
        for attribute, value in {
            "dtype": dtype,
            "combine": combine,
            "neutral": neutral,
            "name": name or operation or ("product" if len(parts) > 1 else "custom"),
            "accumulator": accumulator_dtype,
            "lift": lift or "v",
            "finish": finish,
            "preamble": preamble,
            "parts": parts,
            "equivalents": _all_equivalents(equivalents),
            "positional": positional,
            "most_values": most_values,
            "largest": largest,
            "verified": verified,
            "samples": None if samples is None else checked_samples(samples, dtype),
        }.items():
            # The dataclass is frozen: an assignment would raise.
            object.__setattr__(self, attribute, value)
        self._check_equivalents()

    def _check_equivalents(self) -> None:
        """Raise TypeError if an equivalent form is on another dtype."""
        for other in self.equivalents:
            if other.operator.dtype != self.dtype:
                raise TypeError(
                    f"equivalents: expected an operator on {shown_dtype(self.dtype)}, got one on "
                    f"{shown_dtype(other.operator.dtype)}"
                )

    @property
    def operation(self) -> str | None:
        """NumPy's name of what `combine` is, if it is recognised."""
        return self.parts[0].operation if self.accumulator.names is None else None

    @property
    def is_custom(self) -> bool:
        """Whether NumPy does not have `combine` with this neutral element, and nobody has `verified` it."""
        return not self.verified and not all(part.is_proven for part in self.parts)

    @property
    def bin_bytes(self) -> int:
        """Bytes of one bin in a copy, without locks."""
        return sum(part.cell_bytes for part in self.parts)

    @property
    def narrows(self) -> bool:
        """Whether an accumulator is a narrower integer than a result, as of `clhist.operators.count`."""
        whole = self.dtype.kind in "iu" and self.accumulator.kind in "iu" and self.lift == "v"
        return whole and self.accumulator.itemsize < self.dtype.itemsize

    @property
    def needs_fp64(self) -> bool:
        """Whether the device must have double precision."""
        return needs_fp64(self.dtype) or needs_fp64(self.accumulator)

    def fixed(self, *, shared: bool) -> Operator:
        """Return the one form of it that accumulators of any number of values can have from one call to the next.

        Where work-items share copies (`shared`) that is the first lifted one that takes any number, if there is one.
        """
        # A form with a limit cannot hold the values of an unknown number of calls.
        forms = (other.operator for other in self.equivalents if other.most_values is None)
        return (next(forms, self) if shared else self).changed(equivalents=())

    def changed(self, **attributes: Any) -> Operator:
        """Return a copy with other attributes, which nobody checks."""
        copied = copy(self)
        # Bypasses `__setattr__`, which raises in a frozen dataclass, and the checks of `__init__`.
        vars(copied).update(attributes)
        return copied

    def portable(self) -> Operator:
        """Return the form whose accumulators mean the same everywhere: one for all devices, with counts of 64 bits.

        Accumulators of `fixed` are made into it by conversion where they are values (`holds_values`) or narrower.
        """
        form = self.fixed(shared=True)
        counts = form.operation == "add" and form.accumulator.kind in "iu" and form.lift == "v"
        # A narrow counter is recognised by its limit, the largest number of its accumulator.
        if not counts or form.most_values is None or form.most_values != np.iinfo(form.accumulator).max:
            return form
        counts_dtype = form.dtype if form.narrows else np.dtype(f"{form.accumulator.kind}8")
        return Operator(
            form.dtype, form.combine, form.neutral, form.name, accumulator=counts_dtype, lift="v", finish="a"
        )

    @property
    def holds_values(self) -> bool:
        """Whether an accumulator is a value, which neither `lift` nor `finish` changes."""
        names = self.dtype.names or ()
        # `_Product` writes both conversions of a struct as literals that copy each field.
        lift, finish = (
            (_fields(kind, operand, dict.fromkeys(names, operand)) for kind, operand in _CONVERTED) if names else "va"
        )
        same = self.lift in ("v", lift) and self.finish in ("a", finish)
        return same and self.accumulator == self.dtype

    def __repr__(self) -> str:
        return f"<Operator {self.name} on {shortened(self.dtype, self.combine)}>"


def checked_by(operator: Operator) -> Hashable:
    """Return how an operator is checked, in which equal ones may differ: a part of the key of what checks it."""
    return operator.verified, None if operator.samples is None else operator.samples.tobytes()


_CONVERTED = (("accumulator_t", "v"), ("value_t", "a"))
# Identity elements that are the same number for each dtype, so that another one must be a mistake.
_NEUTRAL = {"add": 0, "multiply": 1, "bitwise_or": 0, "bitwise_xor": 0}


def _all_equivalents(equivalents: Any) -> tuple[Equivalent, ...]:
    """Return equivalent forms that were given, or the one operator that was."""
    return (Equivalent(equivalents),) if isinstance(equivalents, Operator) else tuple(equivalents)


class _Product:
    """The accumulator, parts and conversions of a product: a structured accumulator with an operator for each field."""

    def __init__(self, dtype: np.dtype, operators: Mapping[str, Operator], lift: str, finish: str) -> None:
        self._check(operators)
        fields = {name: operator.accumulator for name, operator in operators.items()}
        self.accumulator = supported_dtype(struct_of(fields, "combine"), "combine")
        self.parts = tuple(
            replace(part, accessor=f".{name}{part.accessor}", words=0, term="", whole="")
            for name, operator in operators.items()
            for part in operator.parts
        )
        neutral = np.zeros((), self.accumulator)
        for name, operator in operators.items():
            neutral[name] = operator.neutral
        self.neutral = neutral[()]
        if dtype.names == tuple(operators):
            wrong = next((n for n in operators if operators[n].dtype != dtype[n]), None)
            # Conversions that the caller wrote may change the types of fields; the default ones copy fields of one
            # type.
            if wrong is not None and not (lift and finish):
                raise TypeError(
                    f"combine[{wrong!r}]: expected an operator on {shown_dtype(dtype[wrong])}, "
                    f"got one on {shown_dtype(operators[wrong].dtype)}"
                )
            lift = lift or _fields("accumulator_t", "v", {name: o.lift for name, o in operators.items()})
            finish = finish or _fields("value_t", "a", {name: o.finish for name, o in operators.items()})
        _check_conversions(dtype, self.accumulator, lift, finish)
        self.lift, self.finish = lift, finish
        limits = (operator.most_values for operator in operators.values() if operator.most_values is not None)
        self.most_values = min(limits, default=None)

    @staticmethod
    def _check(operators: Mapping[str, Operator]) -> None:
        if not operators:
            raise ValueError("combine: expected a C expression or a mapping of at least one field to its operator")
        for name, operator in operators.items():
            if not isinstance(operator, Operator):
                raise TypeError(f"combine[{name!r}]: expected a clhist.Operator, got {operator!r}")
            if not isinstance(name, str) or not IDENTIFIER.match(name):
                raise ValueError(f"combine: expected C identifiers as names of fields, got {name!r}")
            # A preamble's `value_t` and `accumulator_t` would be the types of the whole product.
            if operator.accumulator.names or re.search(r"\b(value_t|accumulator_t)\b", operator.preamble):
                raise ValueError(f"combine[{name!r}]: expected an operator on numbers, got {operator!r}")


def _fields(c_type: str, operand: str, expressions: Mapping[str, str]) -> str:
    """Return C of a struct whose fields are `expressions` of the operand's own."""
    fields = (re.sub(rf"\b{operand}\b", f"{operand}.{name}", text) for name, text in expressions.items())
    return f"({c_type}){{{', '.join(fields)}}}"


def _checked_neutral(
    neutral: object, dtype: np.dtype, combine: str, accumulator: np.dtype, operation: str | None
) -> Any:
    if neutral is None:
        raise ValueError(
            f"neutral: None does not fit {shown_dtype(dtype)}; expected the identity element of {combine!r}"
        )
    value = same_value(neutral, dtype, "neutral")
    if operation in _NEUTRAL and value != accumulator.type(_NEUTRAL[operation]):
        raise ValueError(f"neutral: expected {_NEUTRAL[operation]} for {combine!r}, got {value}")
    return value


def _is_identity(neutral: Any, dtype: np.dtype, operation: str | None) -> bool:
    """Return whether `neutral` is the identity element of a recognised operation on all values of `dtype`."""
    if operation in ("minimum", "fmin"):
        return bool(neutral != neutral or neutral >= largest_of(dtype))  # fmin and fmax ignore NaN
    if operation in ("maximum", "fmax"):
        return bool(neutral != neutral or neutral <= smallest_of(dtype))
    if operation == "bitwise_and":
        return bool(neutral == (-1 if dtype.kind == "i" else largest_of(dtype)))
    if operation in ("logical_and", "logical_or"):
        return bool(neutral) == (operation == "logical_and")
    return operation is not None  # _checked_neutral has seen those of the others


def _parts_of(
    accumulator: np.dtype, combine: str, neutral: object, operation: str | None, is_proven: bool
) -> tuple[Part, ...]:
    if accumulator.kind == "c" and operation == "add":  # a sum of two-vectors is two sums
        half = np.dtype(f"f{accumulator.itemsize // 2}")
        zero = literal(0, half)
        return tuple(Part(accessor, half, "a + b", zero, "add", is_proven=True) for accessor in (".x", ".y"))
    return (
        Part("", accumulator, combine, literal(neutral, accumulator, "accumulator_t"), operation, is_proven=is_proven),
    )


def _accumulator_of(dtype: np.dtype, combine: str, accumulator: DTypeLike | None) -> np.dtype:
    if accumulator is not None:
        supported = supported_dtype(accumulator, "accumulator")
        if half_name(supported):
            raise TypeError(
                f"accumulator: expected numbers that kernels compute with, such as float32, got {supported}"
            )
        return supported
    # Recognised operations have the same result in 32 bits, for which there are atomics; others may depend on overflow.
    if recognise(combine, dtype) is not None and dtype.kind in "iub" and dtype.itemsize < 4:
        return np.dtype(np.int32 if dtype.kind == "i" else np.uint32)
    return number_of(dtype)


def _check_conversions(dtype: np.dtype, accumulator: np.dtype, lift: str, finish: str) -> None:
    """Raise if `lift` and `finish` do not lead from values to accumulators and back."""
    for argument, expression, operand in (("lift", lift, "v"), ("finish", finish, "a")):
        if expression:
            _check_expression(argument, expression, operand)
        elif number_of(dtype) != accumulator and (number_of(dtype).kind in "Vc" or accumulator.kind in "Vc"):
            raise ValueError(
                f"{argument}: expected a C expression of {operand}, since no conversion between "
                f"{shown_dtype(dtype)} and {shown_dtype(accumulator)} exists; got none"
            )
    if lift and not finish and number_of(dtype) != accumulator:
        raise ValueError(
            f"finish: expected a C expression of a, which makes {shown_dtype(dtype)} of the accumulator's "
            f"{shown_dtype(accumulator)}, since lift is "
            "given; got none"
        )


def checked_samples(samples: ArrayLike, dtype: np.dtype) -> np.ndarray:
    """Return values that an operator is for; raises TypeError or ValueError if they are none of its dtype."""
    try:
        is_array = isinstance(samples, np.ndarray)
        # Lists of tuples need the dtype to become records. An array keeps its own, so that a wrong one is noticed.
        values = np.asarray(samples, dtype if dtype.names is not None and not is_array else None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"samples: expected values of {shown_dtype(dtype)}, got {samples!r:.60}") from error
    if not values.size:
        raise ValueError("samples: expected at least one value, got none")
    converted = values.astype(number_of(dtype)) if values.dtype.kind in "biufcV" else values
    if values.dtype.kind in "iu" and dtype.kind in "iu":
        # Python's integers arrive as int64, so the values decide and not the width.
        fits = bool((converted == values).all())
    else:
        fits = values.dtype == dtype or np.can_cast(values.dtype, number_of(dtype), "same_kind")
    if not fits:
        raise TypeError(f"samples: expected values of {shown_dtype(dtype)}, got {shown_dtype(values.dtype)}")
    return converted.ravel()


def _without_comments(expression: str) -> str:
    """Return a C expression without comments, since kernels put more C behind it; anything else as it is."""
    has_comment = isinstance(expression, str) and ("//" in expression or "/*" in expression)
    return without_comments(expression).strip() if has_comment else expression


def _check_expression(argument: str, expression: object, *operands: str) -> None:
    names = set(re.findall(r"[A-Za-z_]\w*", expression)) if isinstance(expression, str) else set()
    missing = [operand for operand in operands if operand not in names]
    if missing:
        others = ", ".join(sorted(names - set(operands)))
        hint = f", which has no {missing[0]}{f' but {others}' if others else ''}" if names else ""
        raise ValueError(f"{argument}: expected a C expression of {' and '.join(operands)}, got {expression!r}{hint}")


def merged(operator: Operator) -> Operator:
    """Return the same product as one part: the fields of a bin are then in one cache line, not in an array each.

    Returned as it is: what has one part, fields that are vectors, and flags, which mostly change nothing and are then
    left alone.
    """
    names = operator.accumulator.names or ()
    plain = tuple(part.accessor for part in operator.parts) == tuple(f".{name}" for name in names)
    if len(operator.parts) < 2 or not plain or any(part.operation == "bitwise_or" for part in operator.parts):
        return operator
    # Each expression of `a` and `b` becomes one of the fields of both structs.
    fields = (re.sub(r"\b([ab])\b", rf"\1{part.accessor}", f"({part.combine})") for part in operator.parts)
    neutral = literal(operator.neutral, operator.accumulator, "accumulator_t")
    sums = tuple(part.accessor + accessor for part in operator.parts for accessor in part.float64_sums)
    combine = f"(accumulator_t){{{', '.join(fields)}}}"
    # Of variances, which have two sums, longer sums would cost up to 30 % of the time on two cores of an EPYC.
    whole = Part("", operator.accumulator, combine, neutral, None, merged_sums=sums if len(sums) == 1 else ())
    return operator.changed(parts=(whole,), combine=whole.combine, equivalents=())
