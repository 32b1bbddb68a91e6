"""`clhist hist --where` against Python's integers, floats and fractions, row by row."""

from __future__ import annotations

import math
import operator
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clhist.cli.hist.condition import Condition

SIZE = 12
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
COMPARISONS["!="] = operator.ne
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
ARITHMETIC["**"] = operator.pow
DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
SPECIAL = (0, 1, -1, 2, 100, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**20, -(2**63), -(10**20))
SPECIAL_FLOATS = (0.0, 0.5, -0.5, 2.0**53, 2.0**63, 2.0**64, -(2.0**63), 1e300, math.inf, -math.inf, math.nan)

constants = st.sampled_from(SPECIAL) | st.integers(-(2**66), 2**66) | st.integers(-9, 9)


@st.composite
def integers(draw):
    """Return the elements of a column of integers, and its dtype."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    element = st.integers(low, high) | st.integers(max(low, -3), min(high, 3)) | st.sampled_from((low, high))
    return np.array(draw(st.lists(element, min_size=SIZE, max_size=SIZE)), dtype)


@st.composite
def expressions(draw, depth=2):
    """Return a text and a function of a row that computes it by Python's numbers."""
    kind = draw(st.sampled_from(("a", "b", "constant", *("binary", "unary") * (depth > 0))))
    if kind in ("a", "b"):
        return kind, lambda row: row[kind]
    if kind == "constant":
        value = draw(constants)
        return f"({value})", lambda row: value
    text, inner = draw(expressions(depth=depth - 1))
    if kind == "unary":
        return draw(
            st.sampled_from(((f"(-{text})", lambda row: -inner(row)), (f"abs({text})", lambda row: abs(inner(row)))))
        )
    symbol = draw(st.sampled_from(list(ARITHMETIC)))
    other, second = (draw(st.integers(0, 5)), None) if symbol == "**" else draw(expressions(depth=depth - 1))
    if second is None:
        return f"({text} ** {other})", lambda row: inner(row) ** other
    return f"({text} {symbol} {other})", lambda row: ARITHMETIC[symbol](inner(row), second(row))


def row_by_row(function, columns):
    found = []
    for a, b in zip(columns["a"].tolist(), columns["b"].tolist(), strict=True):
        try:
            found.append(
                function({"a": int(a) if isinstance(a, bool) else a, "b": int(b) if isinstance(b, bool) else b})
            )
        except ZeroDivisionError:
            found.append(None)
    return found


@settings(max_examples=150)
@given(integers(), integers(), expressions(), st.sampled_from(list(COMPARISONS)), expressions(depth=1))
def test_integers_are_pythons(a, b, left, symbol, right):
    columns = {"a": a, "b": b}
    texts, functions = zip(left, right, strict=True)
    expected = row_by_row(lambda row: COMPARISONS[symbol](functions[0](row), functions[1](row)), columns)
    found = np.broadcast_to(Condition(f" {symbol} ".join(texts))(columns), SIZE).tolist()
    for here, there in zip(found, expected, strict=True):
        assert there is None or here == there


@settings(max_examples=100)
@given(integers(), integers(), expressions(), st.sampled_from(("a // b", "a % b", "2 ** b")), st.booleans())
@example(np.array([2**53 + 1] * SIZE), np.array([0, 2**53 + 1] * 6), ("a", None), "a % b", True)
def test_no_row_depends_on_others(a, b, left, division, swapped):
    """Division by zero and negative powers leave integers in their own rows only."""
    b = np.clip(b, -9, 9) if "**" in division else b
    text = f"{left[0]} + ({division})"
    for condition in (Condition(f"{text} == {'b' if swapped else 'a'} + a"), Condition(f"{text} > a")):
        alone = [condition({"a": a[n : n + 1], "b": b[n : n + 1]}) for n in range(SIZE)]
        expected = np.concatenate([np.broadcast_to(each, 1) for each in alone])
        assert np.broadcast_to(condition({"a": a, "b": b}), SIZE).tolist() == expected.tolist()


@settings(max_examples=100)
@given(
    integers(),
    st.lists(st.sampled_from(SPECIAL_FLOATS) | st.floats(), min_size=SIZE, max_size=SIZE),
    st.sampled_from(("f2", "f4", "f8")),
    st.sampled_from(list(COMPARISONS)),
    constants,
)
@example(np.array([2**53 + 1] * SIZE), [2.0**53] * SIZE, "f8", "==", 2**53 + 1)
def test_comparisons_of_integers_and_floats_do_not_round(a, floats, dtype, symbol, constant):
    with np.errstate(all="ignore"):
        x = np.array(floats).astype(dtype)
    compare = COMPARISONS[symbol]
    for text, pairs in (
        (f"a {symbol} x", zip(a.tolist(), x.tolist(), strict=True)),
        (f"x {symbol} a", zip(x.tolist(), a.tolist(), strict=True)),
        (f"x {symbol} {constant}", ((each, constant) for each in x.tolist())),
        (f"{constant} {symbol} x", ((constant, each) for each in x.tolist())),
        (f"a {symbol} {constant}", ((each, constant) for each in a.tolist())),
    ):
        expected = [compare(_fraction(low), _fraction(high)) for low, high in pairs]
        assert Condition(text)({"a": a, "x": x}).tolist() == expected, text


def _fraction(number):
    return Fraction(number) if math.isfinite(number) else number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 2**63", [True] * 4),
        ("q + 100 > 250", [False, False, True, True]),
        ("q - 150 < 0", [True, True, False, False]),
        ("-q < 0", [True] * 4),
        ("k * 4 > 100", [True] * 4),
        ("x < 10**20", [True] * 4),
        ("x > 2**-1", [True] * 4),
        ("x * 2**-1 < 1", [True, False, False, False]),
        ("u > -1", [True] * 4),
        ("u - 1 < 0", [True, False, False, False]),
        ("u == 2**64 - 1", [False, False, False, True]),
        ("sqrt(q) > 14.1", [False, False, True, True]),
        ("h * 100 > 70000", [False, False, False, True]),
        ("abs(s) == 128", [True, False, False, False]),
        ("s ** 2 == 16384", [True, False, False, False]),
        ("b + b == 2", [True, False, True, False]),
        ("-b < 0", [True, False, True, False]),
        ("b & (q > 100)", [False, False, True, False]),
        ("s & 1 == 1", [False, True, True, True]),
        ("u & -2 == u", [True, True, False, False]),
        ("q % z == 0", [False, True, False, True]),
        ("q // z > 2**70", [True, False, True, False]),
        ("k ** (1 - z) > 0", [True] * 4),
        ("f == 0.1", [True, False, False, False]),
        ("f < 16777217", [True, True, True, False]),
        ("f > 1e-50", [True, False, True, True]),
        ("f < 1e300", [True] * 4),
        ("isnan(q / z - q / z)", [True, False, True, False]),
    ],
)
def test_conditions_of_narrow_columns(text, expected):
    columns = {
        "x": np.array([1.0, 2, 3, 4]),
        "q": np.array([100, 100, 200, 200], np.uint8),
        "k": np.full(4, 2**62),
        "u": np.array([0, 2, 5, 2**64 - 1], np.uint64),
        "h": np.array([1, 2, 3, 1000], np.float16),
        "s": np.array([-128, 5, 7, 1], np.int8),
        "b": np.array([True, False, True, False]),
        "z": np.array([0, 1, 0, 2], np.int16),
        "f": np.array([0.1, 0, 2**24, 2**25], np.float32),
    }
    assert np.broadcast_to(Condition(text)(columns), 4).tolist() == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("k ** 100 > 1", "expected integers of at most 1,023 bits, got larger ones from 'k ** 100'"),
        ("k < 10 ** 10 ** 10", "got larger ones from '10 ** 10 ** 10'"),
        ("x & 1 == 1", "expected integers or comparisons in 'x & 1', got floats"),
    ],
)
def test_what_cannot_be_computed_is_refused(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        Condition(text)({"k": np.full(3, 2**62), "x": np.ones(3)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1 < x <= 3", [False, True, False, True]),
        ("n % 2 == 0 or x ** 2 > 3", [True, True, False, True]),
        ("not isfinite(x)", [False, False, True, False]),
        ("sqrt(abs(x)) > .5 and ~(n == 4)", [True, True, False, False]),
        ("x / 0 > 1", [False, True, False, True]),
        ("x > -1 / 0", [True, True, False, True]),
        ("(x != x) | (n >= 4)", [False, False, True, True]),
    ],
)
def test_conditions_of_floats_and_integers(text, expected):
    columns = {"x": np.array([-2.0, 0.5, np.nan, 3]), "n": np.array([1, 2, 3, 4])}
    assert Condition(text)(columns).tolist() == expected
    assert set(Condition(text).names) <= {"x", "n"}
