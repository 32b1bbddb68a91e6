"""Half precision in C: which elements are converted, and what of a user's map is refused."""

import ml_dtypes
import numpy as np
import pytest

from clhist import operators
from clhist._core.kernels.source import Source
from clhist.operators.c_types import c_name, element_name, literal
from clhist.operators.halves import declared, number_of, with_numbers

FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_numbers_are_floats(dtype):
    assert (number_of(dtype), element_name(dtype), c_name(dtype)) == (np.float32, "ushort", f"clhist_{dtype}_t")
    assert literal(1.0, dtype) == "as_float(0x3f800000u)"
    assert declared(dtype).count("typedef float") == 1
    for make in (operators.add, operators.maximum, operators.fmin, operators.mean, operators.reproducible_add):
        operator = make(dtype)
        assert operator.dtype == dtype
        assert all(each.operator.dtype == dtype for each in operator.equivalents)
    assert operators.add(dtype).accumulator == np.float32


@pytest.mark.parametrize("dtype", [np.dtype(np.uint16), np.dtype(np.float32), np.dtype("V2"), np.dtype([("x", "u2")])])
def test_others_are_themselves(dtype):
    assert number_of(dtype) == dtype
    assert declared(dtype) == ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("EMIT(b[i], x[i])", "EMIT(b[i], clhist_of_float16(x[i]))"),
        ("y.x + p->x + xx[i]", "y.x + p->x + xx[i]"),
        ("x [b[i] + 1] * x[0]", "clhist_of_float16(x [b[i] + 1]) * clhist_of_float16(x[0])"),
        ("CLHIST_AHEAD(x + i + 8); x[i]", "CLHIST_AHEAD(x + i + 8); clhist_of_float16(x[i])"),
        ("a && x[i]", "a && clhist_of_float16(x[i])"),
    ],
)
def test_elements_in_a_map(code, expected):
    assert with_numbers("x", FLOAT16, code) == expected


@pytest.mark.parametrize("code", ["f(x)", "*x", "&x[i]", "x[i", "& (x[i])", "vload_half(i, x)"])
def test_other_uses_are_refused(code):
    with pytest.raises(ValueError, match=r"^arguments: expected 'x', an array of float16, to be read as x\[\.\.\.\]"):
        with_numbers("x", FLOAT16, code)


def test_an_element_as_an_index_is_refused():
    with pytest.raises(ValueError, match=r"^arguments: expected no element of 'x' as the index of another"):
        with_numbers("x", FLOAT16, "x[(int)x[i]]")


@pytest.mark.parametrize(
    ("arguments", "preamble", "message"),
    [
        ("half *x", "", "expected an array that is read for 'x', whose elements are float16"),
        ("const half *x", "#define X x[i]", "expected no use in a macro of the preamble for 'x'"),
    ],
)
def test_refused_sources(arguments, preamble, message):
    with pytest.raises(ValueError, match=f"^arguments: {message}"):
        Source.of(arguments, "EMIT(0, x[i])", [operators.add(np.float32)], preamble=preamble)


def test_scalars_are_floats():
    source = Source.of("const half scale, const value_t *x", "EMIT(0, scale * x[i])", [operators.add(FLOAT16)])
    scale, x = source.arguments
    assert (scale.dtype, x.dtype, x.pointer) == (np.float32, np.float16, "__global const ushort *")
    assert source.streamed == (x,)
