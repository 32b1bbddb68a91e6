"""The arguments of a map, as C declares them and as a call passes them."""

from __future__ import annotations

import numpy as np
import pytest

from clhist._core.kernels.arguments import check_structs, parse_arguments
from clhist._core.kernels.maps import Argument
from clhist.operators.c_types import scalar

RECORD = np.dtype([("x", np.float32), ("n", np.int32)])


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("int n", ("n", "int", "i4", False, True)),
        ("const float scale", ("scale", "float", "f4", False, True)),
        ("unsigned long long_one", ("long_one", "ulong", "u8", False, True)),
        ("unsigned n", ("n", "uint", "u4", False, True)),
        ("int *x", ("x", "int", "i4", True, False)),
        ("const int *x", ("x", "int", "i4", True, True)),
        ("int const*x", ("x", "int", "i4", True, True)),
        ("const int* x", ("x", "int", "i4", True, True)),
        ("__global const double * restrict x_1", ("x_1", "double", "f8", True, True)),
        ("  global\tushort*__restrict__ _x", ("_x", "ushort", "u2", True, False)),
        ("volatile __global int *x", ("x", "int", "i4", True, False)),
        ("const float2 *z", ("z", "float2", "c8", True, True)),
        ("record *many", ("many", "record", RECORD, True, False)),
        ("const record one", ("one", "record", RECORD, False, True)),
        ("const record &one", ("one", "record", RECORD, True, True, True)),
        ("const int&n", ("n", "int", np.int32, True, True, True)),
    ],
)
def test_declarations(declaration, expected):
    name, c_type, dtype, *rest = expected
    found = parse_arguments(declaration, {"record": RECORD})
    assert found == (Argument(name, c_type, np.dtype(dtype), *rest),)


def test_several_declarations():
    found = parse_arguments("const int *x, float *y,int n", {})
    assert [(a.name, a.is_array, a.is_const) for a in found] == [
        ("x", True, True),
        ("y", True, False),
        ("n", False, True),
    ]
    assert parse_arguments("", {}) == parse_arguments(" \n", {}) == ()


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        ("const int", "expected C declarations such as 'const float .x' or 'int n', got 'const int'"),
        ("x", "expected C declarations such as .* got 'x'"),
        ("int x,", "expected C declarations such as .* got ''"),
        ("int x[]", r"expected C declarations such as .* got 'int x\[\]'"),
        ("int **x", r"expected C declarations such as .* got 'int \*\*x'"),
        ("int &x", "the type 'int &' of 'x' is unknown"),
        ("int x = 3", "expected C declarations such as .* got 'int x = 3'"),
        ("int 2x", "the type 'int 2' of 'x' is unknown"),
        ("void *x", "the type 'void' of 'x' is unknown; expected one of OpenCL C or <stdint.h>, .* structs="),
        ("half4 *x", "the type 'half4' of 'x' is unknown"),
        ("struct record *x", "the type 'struct record' of 'x' is unknown"),
        ("long long x", "the type 'long long' of 'x' is unknown"),
        ("__local int *x", "'__local int .x' is in __local memory; expected global arrays and scalars"),
        ("constant int *x", "'constant int .x' is in constant memory"),
        ("int i", "the name 'i' is taken"),
        ("int EMIT", "the name 'EMIT' is taken"),
        ("int clhist_copies", "the name 'clhist_copies' is taken"),
        ("const int *x, float x", "the name 'x' is taken"),
    ],
)
def test_refused_declarations(declarations, message):
    with pytest.raises(ValueError, match=f"^arguments: {message}"):
        parse_arguments(declarations, {})


def test_structs_are_checked():
    assert check_structs(None) == {}
    assert check_structs({"record": RECORD, "real": "f4"}) == {"record": RECORD, "real": np.dtype(np.float32)}
    with pytest.raises(ValueError, match="structs: expected C identifiers as names, got '2nd'"):
        check_structs({"2nd": RECORD})
    with pytest.raises(TypeError, match=r"structs\['record'\]: field 'n' of .* lies at byte 1"):
        check_structs({"record": [("x", "i1"), ("n", "i4")]})
    with pytest.raises(TypeError, match=r"structs\['record'\]: expected a NumPy dtype, got 'nothing'"):
        check_structs({"record": "nothing"})


def declared(dtype: object) -> Argument:
    return Argument("scale", "", np.dtype(dtype), is_array=False, is_const=True)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("i4", 5, 5),
        ("i4", np.int64(5), 5),
        ("i4", True, 1),
        ("u8", 2**64 - 1, 2**64 - 1),
        ("i1", 3.0, 3),
        ("f4", 0.1, np.float32(0.1)),
        ("f4", np.float64("nan"), np.nan),
        ("c8", 1 - 2j, 1 - 2j),
        ("c8", 2, 2),
        ("?", np.True_, True),
        (RECORD, (0.5, 3), (0.5, 3)),
        (RECORD, np.array((0.5, 3), RECORD)[()], (0.5, 3)),
    ],
)
def test_scalars(dtype, value, expected):
    found = scalar(declared(dtype), value)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_equal(found.item(), expected.item() if isinstance(expected, np.generic) else expected)


@pytest.mark.parametrize(
    ("dtype", "value", "error", "message"),
    [
        ("i4", "5", TypeError, "expected a scalar of int32, got str"),
        ("i4", None, TypeError, "expected a scalar of int32, got NoneType"),
        ("f4", [1.0], TypeError, "expected a scalar of float32, got list"),
        ("f4", np.zeros(3), TypeError, "expected a scalar of float32, got ndarray"),
        ("i4", 2**31, ValueError, "2147483648 does not fit int32"),
        ("u4", -1, ValueError, "-1 does not fit uint32"),
        ("u8", np.int64(-1), ValueError, "does not fit uint64"),
        ("i8", np.uint64(2**63), ValueError, "does not fit int64"),
        ("i4", 1.5, ValueError, "1.5 does not fit int32"),
        ("i4", np.nan, ValueError, "nan does not fit int32"),
        ("i4", np.inf, ValueError, "inf does not fit int32"),
        ("f4", 1j, ValueError, "1j does not fit float32"),
        ("f4", np.complex64(1j), ValueError, "does not fit float32"),
        ("?", 2, ValueError, "2 does not fit bool"),
        (RECORD, (1, 2, 3), ValueError, "does not fit"),
        (RECORD, (1, 2**40), ValueError, "does not fit"),
        (RECORD, "ab", ValueError, "does not fit"),
    ],
)
def test_refused_scalars(dtype, value, error, message):
    with pytest.raises(error, match=f"^scale: .*{message}"):
        scalar(declared(dtype), value)
