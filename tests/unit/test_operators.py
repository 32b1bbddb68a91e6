"""Operators: the ready-made ones, one's own, and those that ufuncs and written expressions stand for."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import Operator, operators
from clhist.operators.recognition import recognise, replaced_if
from clhist.selftest.cases import neutral_of

INT, UINT8, FLOAT, COMPLEX = (np.dtype(d) for d in (np.int32, np.uint8, np.float32, np.complex64))
PAIR = np.dtype([("value", np.int32), ("index", np.int32)])
UFUNCS = [np.add, np.multiply, np.minimum, np.maximum, np.fmin, np.fmax]
BITWISE = [np.bitwise_and, np.bitwise_or, np.bitwise_xor]
LOGICAL = [np.logical_and, np.logical_or, np.logical_xor]


@pytest.mark.parametrize(
    ("operation", "expressions"),
    {
        "add": ["a + b", "b + a", "(a+b)", "((a) + (b))", " a\n+\tb "],
        "multiply": ["a * b", "b*a"],
        "bitwise_and": ["a & b", "(b & a)"],
        "bitwise_or": ["a | b"],
        "bitwise_xor": ["a ^ b"],
        "logical_and": ["a && b"],
        "logical_or": ["b || a"],
        "minimum": ["min(a, b)", "min(b,a)", "a < b ? a : b", "(a <= b) ? a : b", "b < a ? b : a", "(a > b ? b : a)"],
        "maximum": ["max(a, b)", "a > b ? a : b", "a >= b ? a : b", "(a < b) ? (b) : (a)", "b > a ? b : a"],
    }.items(),
)
def test_known_expressions(operation, expressions):
    assert {expression: recognise(expression, INT) for expression in expressions} == dict.fromkeys(
        expressions, operation
    )


@pytest.mark.parametrize(
    "expression",
    [
        "a - b", "a + a", "a + b + 1", "a ++ b", "a & & b", "min(a, a)", "min(a)", "a < b ? b : c", "a == b ? a : b",
        "a < a ? a : b", "f(a, b)", "a + b)", "(a) + (b", "a | b & a", "min(a, b) + 0", "-a + b", "", "(a) * (b) * c",
    ],
)  # fmt: skip
def test_unknown_expressions(expression):
    assert recognise(expression, INT) is None


@pytest.mark.parametrize(
    ("expression", "dtype", "expected"),
    [
        ("a + b", FLOAT, "add"),
        ("a * b", FLOAT, "multiply"),
        ("a < b ? a : b", FLOAT, None),  # treats NaN in its own way
        ("min(a, b)", FLOAT, None),
        ("a & b", FLOAT, None),
        ("a + b", COMPLEX, "add"),
        ("a * b", COMPLEX, None),  # component by component in OpenCL C
        ("a + b", PAIR, None),
        ("max(a, b)", UINT8, "maximum"),
        ("a | b", np.dtype(np.bool_), "bitwise_or"),
    ],
)
def test_what_an_expression_means_depends_on_the_dtype(expression, dtype, expected):
    assert recognise(expression, dtype) == expected


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("ufunc", [*UFUNCS, *BITWISE, *LOGICAL], ids=lambda ufunc: ufunc.__name__)
def test_operators_of_ufuncs(ufunc, dtype):
    dtype = np.dtype(dtype)
    kinds = {**dict.fromkeys(UFUNCS[2:], "biuf"), **dict.fromkeys(BITWISE, "biu"), **dict.fromkeys(LOGICAL, "biuf")}
    if dtype.kind not in kinds.get(ufunc, "biufc"):
        with pytest.raises(TypeError, match=f"op: dtype: expected an integer.*got {dtype}"):
            operators.as_operator(ufunc, dtype, "op")
        return
    found = operators.as_operator(ufunc, dtype)
    assert found.dtype == dtype
    assert found == operators.as_operator(ufunc, dtype)
    assert hash(found) == hash(operators.as_operator(ufunc, dtype))
    assert found == getattr(operators, ufunc.__name__)(dtype)
    neutral = neutral_of(ufunc, np.dtype(np.bool_) if "logical" in ufunc.__name__ else dtype)
    np.testing.assert_equal(found.neutral, neutral)
    assert found.accumulator.itemsize >= 4, "hardware has no narrower atomics"


@pytest.mark.parametrize(
    ("text", "dtype", "name"),
    [
        ("a + b", INT, "add"),
        ("min(a, b)", UINT8, "minimum"),
        ("a * b", FLOAT, "multiply"),
        ("b ^ a", INT, "bitwise_xor"),
    ],
)
def test_operators_of_expressions(text, dtype, name):
    assert operators.as_operator(text, dtype) == getattr(operators, name)(dtype)


@pytest.mark.parametrize("op", [np.subtract, np.divide, np.arctan2, "a - b", "", None, max, "minimum", 3])
def test_not_an_operator(op):
    with pytest.raises(TypeError, match=r"operator: expected a clhist.Operator, a C expression .* np.add, np.multiply"):
        operators.as_operator(op, INT, "operator")


def test_operator_on_another_dtype():
    with pytest.raises(TypeError, match=r"op: expected an operator on int32, got one on float32 \(add\)"):
        operators.as_operator(operators.add(FLOAT), INT)


def test_products_of_complex_numbers_are_theirs():
    assert "a * b" not in operators.multiply(COMPLEX).combine
    with pytest.raises(TypeError, match=r"a C expression of a and b that is known.*got 'a \* b'"):
        operators.as_operator("a * b", COMPLEX)


@pytest.mark.parametrize(
    ("dtype", "combine", "accumulator", "bin_bytes", "operation"),
    [
        (np.int8, "a + b", np.int32, 4, "add"),
        (np.uint16, "max(a, b)", np.uint32, 4, "maximum"),
        (np.bool_, "a | b", np.uint32, 4, "bitwise_or"),
        (np.int8, "a - b", np.int8, 4, None),
        (np.int64, "a + b", np.int64, 8, "add"),
        (np.float32, "a < b ? a : b", np.float32, 4, None),
        (np.complex64, "a + b", np.complex64, 8, "add"),
        (np.complex128, "a + b", np.complex128, 16, "add"),
        (PAIR, "a.value < b.value ? a : b", PAIR, 8, None),
        (np.dtype([("x", np.int32, 3)]), "a.x[0] < b.x[0] ? a : b", np.dtype([("x", np.int32, 3)]), 12, None),
        (np.dtype([("x", np.int8, 3)]), "a.x[0] < b.x[0] ? a : b", np.dtype([("x", np.int8, 3)]), 4, None),
    ],
)
def test_accumulators(dtype, combine, accumulator, bin_bytes, operation):
    neutral = ([0, 0, 0],) if np.dtype(dtype).names == ("x",) else (0, 0) if dtype is PAIR else 0
    found = Operator(dtype, combine, neutral)
    assert (found.accumulator, found.bin_bytes, found.operation) == (accumulator, bin_bytes, operation)
    assert found.name == (operation or "custom")


def test_operators_are_values():
    first, second = (Operator(np.float32, "fmax(a, b)", np.nan, "largest") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Operator(np.float32, "fmax(a, b)", 0, "largest")
    assert first != Operator(np.float64, "fmax(a, b)", np.nan, "largest")
    assert repr(first) == "<Operator largest on float32: fmax(a, b)>"
    with pytest.raises(AttributeError):
        first.name = "smallest"


def test_double_precision_is_noticed():
    nested = np.dtype([("a", np.int32), ("b", [("c", np.float64, 2)])], align=True)
    assert operators.add(np.float64).needs_fp64
    assert operators.multiply(np.complex128).needs_fp64
    assert Operator(nested, "a.a < b.a ? a : b", (0, ([0, 0],))).needs_fp64
    assert Operator(np.float32, "a + b", 0, accumulator=np.float64).needs_fp64
    assert not operators.add(np.float32).needs_fp64
    assert not operators.argmax(np.int64, np.int64).needs_fp64


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.longdouble, "a + b", 0), TypeError, "dtype: OpenCL has no type for"),
        (("nonsense", "a + b", 0), TypeError, "dtype: expected a NumPy dtype, got 'nonsense'"),
        ((np.int32, "a + c", 0), ValueError, "combine: expected a C expression of a and b, got 'a [+] c'"),
        ((np.int32, "ab", 0), ValueError, "combine: expected a C expression of a and b, got 'ab'"),
        ((np.int32, None, 0), ValueError, "combine: expected a C expression of a and b, got None"),
        ((np.uint8, "a + b", 256), ValueError, "neutral: 256 does not fit uint8"),
        ((np.uint32, "a + b", -1), ValueError, "neutral: -1 does not fit uint32"),
        ((np.uint64, "a + b", np.int64(-1)), ValueError, "neutral: .* does not fit uint64"),
        ((np.int32, "a + b", 0.5), ValueError, "neutral: 0.5 does not fit int32"),
        ((np.int32, "a + b", np.nan), ValueError, "neutral: nan does not fit int32"),
        ((np.int64, "a + b", 2.0**63), ValueError, "neutral: .* does not fit int64"),
        ((np.float32, "a + b", 1j), ValueError, "neutral: 1j does not fit float32"),
        ((np.float32, "a + b", "x"), ValueError, "neutral: 'x' does not fit float32"),
        ((np.float32, "a + b", [0]), ValueError, r"neutral: \[0\] does not fit float32"),
        ((np.float32, "a + b", None), ValueError, "neutral: None does not fit float32"),
        ((np.bool_, "a | b", 2), ValueError, "neutral: 2 does not fit bool"),
        ((PAIR, "a.value < b.value ? a : b", (0, 0, 0)), ValueError, "neutral: .* does not fit"),
        ((PAIR, "a.value < b.value ? a : b", (0, 2**40)), ValueError, "neutral: .* does not fit"),
    ],
)
def test_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Operator(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"accumulator": np.float16}, TypeError, "accumulator: expected numbers that .* float32, got float16"),
        ({"lift": "a + 1"}, ValueError, "lift: expected a C expression of v, got 'a [+] 1'"),
        ({"finish": "v"}, ValueError, "finish: expected a C expression of a, got 'v'"),
        (
            {"accumulator": PAIR},
            ValueError,
            "lift: expected a C expression of v, since no conversion between .* got none",
        ),
        ({"accumulator": PAIR, "lift": "v"}, ValueError, "finish: expected a C expression of a, since no conversion"),
        ({"accumulator": COMPLEX}, ValueError, "lift: expected a C expression of v, since no conversion"),
    ],
)
def test_refused_accumulators(arguments, error, message):
    with pytest.raises(error, match=message):
        Operator(np.int32, "a + b", 0, **arguments)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: operators.minimum(np.complex64), TypeError, "dtype: expected an integer or a float, got complex64"),
        (lambda: operators.bitwise_or(np.float32), TypeError, "dtype: expected an integer, got float32"),
        (lambda: operators.add(PAIR), TypeError, "dtype: expected a number, got"),
        (lambda: operators.argmax(np.complex64), TypeError, "dtype: expected an integer or a float"),
        (lambda: operators.argmax(np.int32, np.float32), TypeError, "index_dtype: expected an integer, got float32"),
        (lambda: operators.saturating_add(np.bool_, 1), TypeError, "dtype: expected an integer or a float for satur"),
        (lambda: operators.saturating_add(np.uint8, 256), ValueError, "maximum: 256 does not fit uint8"),
        (lambda: operators.saturating_add(np.int8, 0), ValueError, "maximum: expected a positive number, got 0"),
        (lambda: operators.saturating_add(np.int8, -5), ValueError, "maximum: expected a positive number, got -5"),
        (
            lambda: operators.saturating_add(np.float32, np.nan),
            ValueError,
            "maximum: expected a positive number, got nan",
        ),
    ],
)
def test_refused_by_ready_made_operators(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("combine", "condition"),
    [
        ("b.time > a.time ? b : a", "b.time > a.time"),
        ("(b >= a) ? b : a ", "(b >= a)"),
        ("a != b && f(a) == f(b) ? b : a", "a != b && f(a) == f(b)"),
        *(
            (other, None)
            for other in ("a > b ? a : b", "b", "? b : a", "b != b ? b : (b > a ? b : a)", "a + b ? b : a + 1")
        ),
        *((other, None) for other in ("p ? q : r ? b : a", "p ? q ? b : a : a", "f(a, p ? b : a)", "a = b ? b : a")),
    ],
)
def test_replacement_is_recognised_only_as_a_whole(combine, condition):
    assert replaced_if(combine) == condition
