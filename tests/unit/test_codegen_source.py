"""`Source`: a map with its operators, and what follows from its text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clhist import Operator, operators
from clhist._core.kernels.source import Source

ADD, COUNT = operators.add(np.float32), operators.add(np.int32)
RECORD = np.dtype([("x", np.float32), ("n", np.int32)])


def test_facts_of_a_plain_map():
    source = Source.of("const int *x, const float *w, float scale", "EMIT(x[i], w[i] * scale)", [ADD])
    assert [argument.name for argument in source.arguments] == ["x", "w", "scale"]
    assert [argument.name for argument in source.elementwise] == ["x", "w"]
    assert source.elementwise == source.streamed
    assert (source.sized, source.sizing, source.read_bytes) == ((0, 1), 0, 8)
    assert (source.max_pairs, source.pairs_per_element, source.has_single_pair) == ((1,), 1, True)
    assert (source.values, source.uses_position, source.needs_fp64) == ((None,), False, ())


@pytest.mark.parametrize(
    ("arguments", "map", "preamble", "expected"),
    [
        ("const uchar *x", "EMIT(x[i], 1)", "", 256),
        ("const ushort *x, const float *w", "EMIT(x[i], w[i])", "", 65536),
        ("const int *y, uchar *x", " EMIT(x[i], y[i])", "", 256),
        ("const char *x", "EMIT(x[i], 1)", "", None),
        ("const uint *x", "EMIT(x[i], 1)", "", None),
        ("const uchar *x", "EMIT(x[i] + 1, 1)", "", None),
        ("const uchar *x", "EMIT(x[i + 1], 1)", "", None),
        ("const uchar *x", "EMIT(x[i], 1); EMIT(256, 1)", "", None),
        ("const uchar *x", "int i = 3; EMIT(x[i], 1)", "", None),
        ("const uchar *x", "if (i) EMIT(x[i], 1)", "", 256),
        ("const uchar *x, const int *y", "EMIT(x[i], 1)", "#define x y", None),
    ],
)
def test_how_many_bins_a_narrow_type_names(arguments, map, preamble, expected):
    assert Source.of(arguments, map, [COUNT], preamble=preamble).index_values == expected


@pytest.mark.parametrize(
    ("arguments", "map", "sized", "sizing", "read_bytes"),
    [
        ("", "EMIT(i & 3, 1)", (), None, 0),
        ("float scale", "EMIT((int)scale, 1)", (), None, 0),
        ("float scale, const int *x", "EMIT(x[i + 1], 1)", (), 1, 0),  # N is the size of an array, whatever it is for
        ("const int *y, const char *x", "EMIT(y[x[i]], 1)", (1,), 1, 1),
        ("int *x", "x[i] = 1; EMIT(i, 1)", (0,), 0, 0),  # written: as long as N, but never loaded ahead
        ("const record *x", "EMIT(x[i].n, 1)", (0,), 0, 0),
    ],
)
def test_arrays(arguments, map, sized, sizing, read_bytes):
    source = Source.of(arguments, map, [COUNT], structs={"record": RECORD})
    assert (source.sized, source.sizing, source.read_bytes) == (sized, sizing, read_bytes)


@pytest.mark.parametrize(
    ("map", "preamble", "emits", "expected", "most"),
    [
        ("EMIT(x[i], 1)", "", None, 1, 1),
        ("EMIT(x[i], 1); EMIT(x[i] + 1, 1)", "", None, 2, 2),
        ("for (int k = 0; k < 3; ++k) EMIT(x[i], 1)", "", None, None, 1),
        ("for (int k = 0; k < 3; ++k) EMIT(x[i], 1)", "", 3, 3, 3),
        ("BOTH(x[i])", "#define BOTH(bin) EMIT(bin, 1); EMIT(bin, 1)", None, None, 1),
    ],
)
def test_pairs_of_an_element(map, preamble, emits, expected, most):
    source = Source.of("const int *x", map, [COUNT], preamble=preamble, emits=emits)
    assert source.max_pairs == (expected,)
    assert source.pairs_per_element == most
    assert source.has_single_pair == (expected == 1)


@pytest.mark.parametrize(
    ("map", "emits", "most", "may_exceed"),
    [
        ("EMIT(x[i], 1)", None, 1, False),
        ("EMIT(x[i], 1)", 3, 3, False),
        ("EMIT(x[i], 1); EMIT(x[i] + 1, 1)", 1, 2, False),
        ("for (int k = 0; k < 3; ++k) EMIT(x[i], 1)", None, None, False),
        ("for (int k = 0; k < 3; ++k) EMIT(x[i], 1)", 1, 1, True),
    ],
)
def test_a_statement_that_is_not_trusted(map, emits, most, may_exceed):
    trusted = Source.of("const int *x", map, [COUNT], emits=emits)
    assert trusted.may_exceed == (False,)
    source = replace(trusted, trusts_emits=False)
    assert (source.max_pairs, source.may_exceed) == ((most,), (may_exceed,))
    assert source.has_single_pair == (most == 1 and not may_exceed)


def test_a_macro_in_an_operators_preamble_counts():
    plain = Operator(np.int32, "a + b", 0)
    macro = Operator(np.int32, "a + b", 0, preamble="#define TWICE(bin) EMIT(bin, 1); EMIT(bin, 1)")
    of = Source.of("const int *x", "EMIT(x[i], 1)", [plain])
    assert of.max_pairs == (1,)
    assert of.values == ("1",)
    assert of.with_operators([macro]).max_pairs == (None,), "it may be in another macro of the map"
    assert of.with_operators([macro]).values == (None,)
    indexed = Operator(np.int32, "a + b", 0, preamble="#define HERE i")
    assert not of.uses_position
    assert of.with_operators([indexed]).uses_position


@pytest.mark.parametrize(
    ("map", "values"),
    [
        ("EMIT0(x[i], w[i]); EMIT1(x[i], 1)", (None, "1")),  # what follows is not the value of the first
        ("EMIT0(x[i], 1); EMIT1(x[i], w[i])", ("1", None)),
        ("EMIT0(x[i], 1); EMIT1(x[i], 2)", ("1", "2")),
        ("EMIT1(max(x[i], 0), (a + 1)); EMIT0(x[i], 2 * b)", ("2 * b", "(a + 1)")),
        ("if (x[i] > 0) { EMIT0(x[i], a); } else EMIT1(x[i], 1.5f)", ("a", "1.5f")),
        ("EMIT0(x[i], 1 /* of, w */ ) ; EMIT1(x[i], /* 2, */ 3)  // EMIT0(0, 4)", ("1", "3")),
        ("EMIT0(x[i], 1); EMIT0(x[i], 1); EMIT1(x[i], c)", (None, None)),
        ("for (int a = 0; a < 3; ++a) EMIT0(x[i], a); { float b = w[i]; EMIT1(x[i], b); }", (None, None)),
        ("float c, b; c = fract(w[i] / 3.0f, &b); EMIT0(x[i], b); EMIT1(x[i] + a, a)", (None, None)),
        ("EMIT0(x[i], (int)a); EMIT1(x[i], i)", (None, None)),
        ("#define ONE 1\nEMIT0(x[i], 1); EMIT1(x[i], 1)", (None, None)),
        ("EMIT0(x[i], ); EMIT1(x[i], 1", (None, None)),
    ],
)
def test_values_that_all_pairs_share(map, values):
    source = Source.of("const int *x, const int *w, int a, float b", map, [COUNT, COUNT], ["0", "1"])
    assert source.values == values


def test_several_outputs():
    source = Source.of(
        "const int *x, const value_total_t *w, int one",
        "EMIT_number(x[i], one); EMIT_total(x[i], w[i]); EMIT_total(x[i] + 1, w[i])",
        [COUNT, operators.add(np.float64)],
        ["_number", "_total"],
    )
    assert source.arguments[1].dtype == np.float64, "the types of values have names"
    assert source.max_pairs == (1, 2)
    assert source.pairs_per_element == 2
    assert not source.has_single_pair
    assert source.values == ("one", None)
    assert source.needs_fp64 == ("operator", "w")
    number, total = source.histograms((10, 20))
    assert (number.operator, number.bins, number.suffix, number.max_pairs, number.value) == (
        COUNT, 10, "_number", 1, "one",
    )  # fmt: skip
    assert (total.bins, total.suffix, total.max_pairs, total.value) == (20, "_total", 2, None)
    with pytest.raises(ValueError, match="zip"):
        source.histograms((10,))


def test_a_value():
    """Sources are compared, kept and changed as values."""
    one, same = (Source.of("const int *x", "EMIT(x[i], 1)", [COUNT], structs={"record": RECORD}) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != one.with_operators([ADD])
    assert one.with_operators([ADD]).with_operators([COUNT]) == one
    with pytest.raises(AttributeError):
        one.map = "EMIT(0, 1)"


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"arguments": b"int x"}, TypeError, r"^arguments: expected C as a str, got b'int x'"),
        ({"map": None}, TypeError, r"^map: expected C as a str, got None"),
        ({"preamble": 3}, TypeError, r"^preamble: expected C as a str, got 3"),
        ({"options": "-w"}, TypeError, r"^options: expected a sequence of str, such as \['-w'\], got a str"),
        ({"emits": 0}, ValueError, r"^emits: expected at least 1, got 0"),
        ({"emits": 1.5}, TypeError, r"^emits: expected an integer, got 1.5"),
        ({"structs": {"value_t": RECORD}}, ValueError, r"^structs: the name 'value_t' is taken"),
        ({"arguments": "const other *x"}, ValueError, r"^arguments: the type 'other' of 'x' is unknown"),
    ],
)
def test_errors_name_the_argument(changed, error, message):
    given = {"arguments": "const int *x", "map": "EMIT(x[i], 1)", "operators": [COUNT], **changed}
    with pytest.raises(error, match=message):
        Source.of(**given)
