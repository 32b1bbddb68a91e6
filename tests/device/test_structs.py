"""Structured dtypes and literals as they arrive on the device."""

from __future__ import annotations

import numpy as np
import pytest
from scalars import SCALARS

from clhist import HistogramKernel, Operator
from clhist.selftest.cases import pair_kernel

pytestmark = pytest.mark.usefixtures("with_optimizer")

NESTED = np.dtype(
    [("a", np.int8), ("b", [("c", np.float32), ("d", np.uint16, (2, 3))]), ("e", np.int64), ("f", np.bool_)], align=True
)


def every_scalar(*values: float) -> tuple[np.dtype, tuple[object, ...]]:
    """Return a struct of one field for each scalar, and `values` as far as each can hold them."""
    names = [name for name in SCALARS if not name.startswith("complex")]
    dtype = np.dtype([(f"{name}_{k}", name) for k in range(len(values)) for name in names], align=True)
    return dtype, tuple(_clipped(value, np.dtype(name)) for value in values for name in names)


def _clipped(value: float, dtype: np.dtype) -> object:
    if dtype.kind == "f":
        return value
    if dtype.kind == "b":
        return value > 0
    limits = np.iinfo(dtype)
    return limits.max if value > limits.max else limits.min if value < limits.min else int(value)


@pytest.mark.parametrize(
    "values",
    [(-np.inf, np.inf), (-0.0, 1e-40), (0.1, -1.5), (2.0**62, -(2.0**40))],
    ids=["limits", "smallest", "fractions", "long"],
)
def test_literals_of_each_type_arrive_as_they_are(values):
    check_arrives(*every_scalar(*values))


def test_nan_and_its_payload_arrive():
    dtype = np.dtype([("f", np.float32), ("d", np.float64)], align=True)
    single, double = np.array([0x7FC12345], np.uint32).view("f4")[0], np.array([0xFFF8000000ABCDEF], "u8").view("f8")[0]
    check_arrives(dtype, (single, double))


def test_nested_structs_arrive():
    check_arrives(NESTED, (-7, (0.5, [[1, 2, 3], [4, 5, 65535]]), -(2**63), True))


def test_arrays_of_structs_arrive():
    dtype = np.dtype([("pairs", [("x", np.int16), ("y", np.float32)], 3)], align=True)
    check_arrives(dtype, ([(1, 0.1), (2, 0.2), (-3, np.inf)],))


def check_arrives(dtype: np.dtype, neutral: tuple[object, ...]) -> None:
    """Check that a bin without values holds the neutral element bit for bit."""
    first = dtype.names[0]
    operator = Operator(dtype, f"a.{first} {'[0].x ' if dtype[first].subdtype else ''}== 77 ? b : a", neutral)
    expected = np.array([neutral], dtype)
    check_same_fields(pair_kernel(operator)(np.empty(0, np.int32), np.empty(0, dtype), num_bins=1), expected)


def check_same_fields(result: np.ndarray, expected: np.ndarray) -> None:
    """Compare all bytes but those between the fields."""
    assert result.dtype == expected.dtype
    if result.dtype.names is None:
        assert result.tobytes() == expected.tobytes()
        return
    for name in result.dtype.names:
        check_same_fields(result[name], expected[name])


def test_structs_pass_through_as_arrays_scalars_and_values():
    many = np.zeros(5, NESTED)
    many["a"], many["e"], many["b"]["c"] = range(5), 2**40, np.linspace(0, 1, 5)
    many["b"]["d"] = np.arange(30).reshape(5, 2, 3)
    kernel = HistogramKernel(
        None,
        Operator(NESTED, "a.a > b.a ? a : b", (-128, (0, [[0] * 3] * 2), 0, False), "largest", verified=True),
        arguments="const value_t *many, const change *changes, value_t one, change all",
        map="""
            value_t changed = many[i];
            changed.e += changes[i].by[0] + all.by[1];
            EMIT(i, many[i]);
            EMIT(i + 5, changed);
            EMIT(i + 10, one)
        """,
        structs={"change": np.dtype([("by", np.int32, 2)])},
    )
    changes = np.array([([k, 0],) for k in range(5)], [("by", np.int32, 2)])
    result = kernel(many, changes, many[3], ([0, 1000],), num_bins=15)
    changed = many.copy()
    changed["e"] += np.arange(5) + 1000
    check_same_fields(result, np.concatenate([many, changed, many[[3] * 5]]))
