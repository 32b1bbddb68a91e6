"""The combining operator of a histogram: what a bin holds and how two of them become one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from clhist.dtypes import literal, needs_fp64, same_value, supported_dtype
from clhist.recognition import recognise


@dataclass(frozen=True, init=False, repr=False)
class Operator:
    """An associative and commutative operator with its neutral element (SC'20, Fig. 1b).

    Values and results are of `dtype`; while the histogram is computed a bin holds an `accumulator`, made from a value
    by `lift`, joined with another by `combine` and turned into a result by `finish`. Mostly the two types are one.

    Parameters
    ----------
    dtype : dtype-like
        Type of the values and of the bins: a boolean, an integer, a float, a complex number or a structured dtype laid
        out as C does it.
    combine : str
        C expression of two accumulators `a` and `b`. Must be associative and commutative: the order in which values
        meet is not defined.
    neutral : scalar or tuple
        The accumulator that changes nothing: ``combine(neutral, b) == b``. Bins that get no value hold it.
    name : str, optional
        What to call it in plans and errors; defaults to the recognised operation, or to "custom".
    accumulator : dtype-like, optional
        Type of an accumulator. Defaults to `dtype`, or to 32 bits where `combine` is a known operation on narrower
        integers, which no hardware updates atomically.
    lift : str, optional
        C expression of a value `v` that gives its accumulator. Defaults to conversion.
    finish : str, optional
        C expression of an accumulator `a` that gives the result. Defaults to conversion.
    preamble : str, optional
        C functions and types that the expressions use. The types of values and accumulators are called ``value_t`` and
        ``accumulator_t`` there.

    Raises
    ------
    TypeError
        If a dtype has no counterpart in OpenCL C.
    ValueError
        If `combine`, `lift` or `finish` does not use its operands, if `neutral` does not fit, or if `lift` or `finish`
        is missing where no conversion exists.

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
    operation: str | None
    neutral_literal: str

    def __init__(
        self,
        dtype: DTypeLike,
        combine: str,
        neutral: object,
        name: str = "",
        *,
        accumulator: DTypeLike | None = None,
        lift: str = "",
        finish: str = "",
        preamble: str = "",
    ) -> None:
        dtype = supported_dtype(dtype)
        _check_expression("combine", combine, "a", "b")
        held = (
            _default_accumulator(dtype, combine) if accumulator is None else supported_dtype(accumulator, "accumulator")
        )
        for argument, expression, operand in (("lift", lift, "v"), ("finish", finish, "a")):
            if expression:
                _check_expression(argument, expression, operand)
            elif dtype != held and (dtype.kind in "Vc" or held.kind in "Vc"):
                raise ValueError(
                    f"{argument}: expected a C expression of {operand}, since no conversion between "
                    f"{dtype} and {held} exists; got none"
                )
        neutral = same_value(neutral, dtype if accumulator is None else held, "neutral")
        operation = recognise(combine, held)
        if operation in _NEUTRAL and neutral != held.type(_NEUTRAL[operation]):
            raise ValueError(f"neutral: expected {_NEUTRAL[operation]} for {combine!r}, got {neutral}")
        for attribute, value in {
            "dtype": dtype,
            "combine": combine,
            "neutral": neutral,
            "name": name or operation or "custom",
            "accumulator": held,
            "lift": lift or "v",
            "finish": finish or ("a != 0" if dtype.kind == "b" else "a"),
            "preamble": preamble,
            "operation": operation,
            "neutral_literal": literal(neutral, held, "accumulator_t"),
        }.items():
            object.__setattr__(self, attribute, value)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one bin in a copy: at least one 32-bit word, since nothing smaller is updated atomically."""
        size = self.accumulator.itemsize
        return 4 if size <= 4 else 8 if size <= 8 else size

    @property
    def needs_fp64(self) -> bool:
        """Whether the device must have double precision."""
        return needs_fp64(self.dtype) or needs_fp64(self.accumulator)

    def __repr__(self) -> str:
        return f"<Operator {self.name} on {self.dtype}: {self.combine}>"


_NEUTRAL = {"add": 0, "multiply": 1, "bitwise_or": 0, "bitwise_xor": 0}


def _default_accumulator(dtype: np.dtype, combine: str) -> np.dtype:
    if recognise(combine, dtype) is not None and dtype.kind in "iub" and dtype.itemsize < 4:
        return np.dtype(np.int32 if dtype.kind == "i" else np.uint32)
    return dtype


def _check_expression(argument: str, expression: object, *operands: str) -> None:
    names = set(re.findall(r"[A-Za-z_]\w*", expression)) if isinstance(expression, str) else set()
    missing = [operand for operand in operands if operand not in names]
    if missing:
        raise ValueError(f"{argument}: expected a C expression of {' and '.join(operands)}, got {expression!r}")
