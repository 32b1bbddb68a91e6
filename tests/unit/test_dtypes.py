"""Dtypes in OpenCL C: names, literals and layouts, as text."""

from __future__ import annotations

import numpy as np
import pytest
from scalars import SCALARS

from clhist.operators.c_types import assigned, c_name, declare, dtype_of, literal, same_value, supported_dtype


@pytest.mark.parametrize("name", SCALARS)
def test_names(name):
    dtype = np.dtype(name)
    assert c_name(dtype) == SCALARS[name]
    assert declare(dtype, "t") == f"typedef {SCALARS[name]} t;"
    assert supported_dtype(name) == dtype
    assert supported_dtype(dtype.newbyteorder()) == dtype


@pytest.mark.parametrize(
    ("c_type", "name"),
    [
        *((c_type, name) for name, c_type in SCALARS.items() if name != "bool"),
        ("unsigned char", "uint8"),
        ("unsigned  short", "uint16"),
        ("unsigned", "uint32"),
        ("unsigned int", "uint32"),
        ("unsigned long", "uint64"),
        ("half", "float16"),
    ],
)
def test_dtypes_of_names(c_type, name):
    assert dtype_of(c_type) == np.dtype(name)


@pytest.mark.parametrize("c_type", ["", "half2", "void", "size_t", "long long", "int4", "image2d_t", "bool"])
def test_unknown_names(c_type):
    assert dtype_of(c_type) is None


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (-5, np.int8, "((char)-5)"),
        (True, np.bool_, "((uchar)1)"),
        (2**32 - 1, np.uint32, "((uint)4294967295u)"),
        (2**64 - 1, np.uint64, "((ulong)18446744073709551615ul)"),
        (-(2**63), np.int64, "(-0x7fffffffffffffffl - 1)"),
        (2**63 - 1, np.int64, "((long)9223372036854775807l)"),
        (1.0, np.float32, "as_float(0x3f800000u)"),
        (-np.inf, np.float32, "as_float(0xff800000u)"),
        (np.nan, np.float64, "as_double(0x7ff8000000000000ul)"),
        (-0.0, np.float64, "as_double(0x8000000000000000ul)"),
        (1 - 2j, np.complex64, "((float2)(as_float(0x3f800000u), as_float(0xc0000000u)))"),
    ],
)
def test_literals(value, dtype, expected):
    assert literal(value, np.dtype(dtype)) == expected


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("c32", "OpenCL has no type for complex256; expected one of bool, int8"),
        ("U3", "OpenCL has no type for <U3"),
        ("M8[s]", "OpenCL has no type for datetime64"),
        (object, "OpenCL has no type for object"),
        (np.longdouble, "OpenCL has no type for"),
        ([("x", np.int8), ("y", np.int32)], r"field 'y' of .* lies at byte 1 where C puts it at 4; .*align=True"),
        ([("x", np.int32), ("y", np.int8)], r"has 5 bytes where C gives it 8; .*align=True"),
        ([("x", np.int32), ("2nd", np.int32)], "field name '2nd' of .* is not a C identifier"),
        ([("x", ">i4")], "field 'x': >i4 is of the other byte order"),
        ([("x", np.float16)], "field 'x': expected no float16 in a struct"),
        ([("x", [("y", np.int8), ("z", np.int32)])], "field 'z' of .* lies at byte 1 where C puts it at 4"),
        ({"names": ["x"], "formats": ["i4"], "itemsize": 64}, "has 64 bytes where C gives it 4"),
        ({"names": ["x", "y"], "formats": ["i4", "i4"], "offsets": [4, 0]}, "lies at byte 4 where C puts it at 0"),
        ({"names": ["x", "y"], "formats": ["i4", "i4"], "offsets": [0, 0]}, "lies at byte 0 where C puts it at 4"),
        (np.dtype([("x", np.int32), ("y", np.complex64)], align=True), "field 'y' of .* lies at byte 4"),
        ("nonsense", "expected a NumPy dtype, got 'nonsense'"),
    ],
)
def test_refused(dtype, message):
    with pytest.raises(TypeError, match=f"^accumulator[:,].*{message}"):
        supported_dtype(dtype, "accumulator")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (5, np.uint8, 5),
        (5.0, np.int32, 5),
        (np.float64(0.1), np.float32, np.float32(0.1)),
        (1e300, np.float32, np.inf),
        (2**63, np.uint64, 2**63),
        (True, np.int32, 1),
        (3, np.complex64, 3 + 0j),
        (np.array(7), np.int16, 7),
    ],
)
def test_values_that_fit(value, dtype, expected):
    found = same_value(value, np.dtype(dtype), "x")
    assert found == expected
    assert found.dtype == dtype


def test_values_are_assigned_number_by_number():
    inner = [("x", "i1", (4,)), ("y", "f8")]
    dtype = np.dtype([("a", "f4"), ("b", "i4", (2, 3)), ("c", inner, (5,))])
    assert assigned(dtype, "p->value", "q") == [
        "p->value.a = q.a;",
        "for (int k0 = 0; k0 < 2; ++k0) for (int k1 = 0; k1 < 3; ++k1) { p->value.b[k0][k1] = q.b[k0][k1]; }",
        "for (int k0 = 0; k0 < 5; ++k0) { for (int k1 = 0; k1 < 4; ++k1) { p->value.c[k0].x[k1] = q.c[k0].x[k1]; } "
        "p->value.c[k0].y = q.c[k0].y; }",
    ]
    assert assigned(np.dtype("f4"), "p->value", "q") == ["p->value = q;"]
