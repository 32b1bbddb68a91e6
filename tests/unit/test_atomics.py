"""Which update an operator gets: the table of hardware atomics, and what a device's features leave of it."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import Operator, operators
from clhist._core.devices.vendors import (
    ALL_FEATURES,
    FEATURES,
    MEMORIES,
    NATIVE_ATOMICS,
    native_atomic,
    native_table,
    to_prove,
    vector_atomic,
)
from clhist._core.model.updates import available_updates, choose_updates, slowest
from clhist._core.opencl.device import features_of

NOTHING: frozenset[str] = frozenset()
BASE = frozenset({"int64_base_atomics"})
BOTH = BASE | {"int64_extended_atomics"}
PTX = frozenset({"nvidia_ptx", *(f for f in ALL_FEATURES if f.startswith("nvidia_ptx:"))})
EXT = frozenset({"ext_float_atomics", *(f for f in ALL_FEATURES if f.startswith("ext_float_atomics:"))})
AMD = frozenset({"amd_builtins", *(f for f in ALL_FEATURES if f.startswith("amd_builtins:"))})

TWO_DOUBLES = np.dtype([("x", np.float64), ("y", np.float64)])
NAMES = {
    "add": "add",
    "minimum": "min",
    "maximum": "max",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("operation", NAMES)
@pytest.mark.parametrize(
    ("dtype", "word", "prefix"),
    [("i4", "int", "atomic"), ("u4", "uint", "atomic"), ("i8", "long", "atom"), ("u8", "ulong", "atom")],
)
def test_integers(operation, dtype, word, prefix, memory):
    atomic = native_atomic(operation, np.dtype(dtype), memory)
    assert atomic.code == f"{prefix}_{NAMES[operation]}(p, v);"
    assert atomic.word == word
    needed = "int64_base_atomics" if operation == "add" else "int64_extended_atomics"
    assert atomic.feature == (needed if prefix == "atom" else None)


@pytest.mark.parametrize(("memory", "space"), [("local", "shared"), ("global", "global")])
@pytest.mark.parametrize(("dtype", "word"), [("f4", "float"), ("f8", "double")])
def test_floats(dtype, word, memory, space):
    bits = np.dtype(dtype).itemsize * 8
    atomic = native_atomic("add", np.dtype(dtype), memory, PTX)
    assert f"red.{space}.add.f{bits} " in atomic.code
    assert (atomic.word, atomic.path, atomic.options) == (word, "nvidia_ptx", ())
    atomic = native_atomic("add", np.dtype(dtype), memory, EXT)
    assert atomic.code.startswith(f"atomic_fetch_add_explicit((volatile __{memory} atomic_{word} *)p, v,")
    assert (atomic.word, atomic.path, atomic.options) == (word, "ext_float_atomics", ("-cl-std=CL3.0",))
    assert f"defined(__opencl_c_ext_fp{bits}_{memory}_atomic_add)" in atomic.guard
    atomic = native_atomic("add", np.dtype(dtype), memory, AMD)
    assert f"CLHIST_HAS_BUILTIN({atomic.code.partition('(')[0]})" == atomic.guard
    assert (atomic.word, atomic.path) == (word, "amd_builtins")


def test_what_is_promised_is_not_yet_had():
    """A vendor's own way must be proven row by row; the way alone, and another row's proof, are not enough."""
    for path in ("nvidia_ptx", "ext_float_atomics", "amd_builtins"):
        rows = to_prove({path})
        assert rows
        assert all(row.path == path for row in rows)
        assert all(vector_atomic(row.operation, row.dtype, {path}) is None for row in rows)
        for row in rows:
            if row.numbers > 1:  # of which each operation has one
                assert vector_atomic(row.operation, row.dtype, {row.feature}) == row
                continue
            assert native_atomic(row.operation, row.dtype, row.memory, {path}) is None
            others = {path} | {other.feature for other in rows if other != row}
            assert native_atomic(row.operation, row.dtype, row.memory, others) is None
            assert native_atomic(row.operation, row.dtype, row.memory, {row.feature}) == row
    assert to_prove(BOTH) == ()


def test_no_two_rows_have_one_name_or_place():
    names = [row.feature for row in NATIVE_ATOMICS if row.guard]
    assert len(set(names)) == len(names)
    places = [(row.operation, row.dtype, row.numbers, row.memory, row.path) for row in NATIVE_ATOMICS]
    assert len(set(places)) == len(places)


def test_the_table():
    assert native_table(()) == {
        (operation, dtype, memory): "core"
        for operation in NAMES
        for dtype in ("int32", "uint32")
        for memory in MEMORIES
    }
    table = native_table(BOTH | {"amd_builtins", "amd_builtins:fmin_float32_local"} | PTX)
    assert table["add", "int64", "global"] == "int64_base_atomics"
    assert table["bitwise_xor", "uint64", "local"] == "int64_extended_atomics"
    assert table["add", "float64", "global"] == "nvidia_ptx"
    assert table["fmin", "float32", "local"] == "amd_builtins"
    assert ("fmin", "float32", "global") not in table


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("multiply", "i4"),
        ("logical_and", "i4"),
        ("saturating_add", "i4"),
        (None, "i4"),
        ("add", "i2"),
        ("add", "c8"),
        ("minimum", "f4"),
        ("bitwise_or", "f4"),
        ("add", [("x", "i4")]),
    ],
)
def test_what_no_hardware_has(operation, dtype):
    assert native_atomic(operation, np.dtype(dtype), "local") is None


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("operator", "features", "expected"),
    [
        (operators.add(np.int32), NOTHING, "native cas lock"),
        (operators.add(np.int8), NOTHING, "native cas lock"),
        (operators.logical_or(np.float64), NOTHING, "native cas lock"),
        (operators.count(), NOTHING, "native cas lock"),
        (operators.multiply(np.int32), NOTHING, "cas lock"),
        (operators.minimum(np.float32), NOTHING, "cas lock"),
        (operators.saturating_add(np.uint8, 255), NOTHING, "cas lock"),
        (operators.add(np.int64), NOTHING, "lock"),
        (operators.add(np.int64), BASE, "native cas lock"),
        (operators.maximum(np.int64), BASE, "cas lock"),
        (operators.maximum(np.int64), BOTH, "native cas lock"),
        (operators.argmax(np.float32), NOTHING, "lock"),
        (operators.argmax(np.float32), BASE, "cas lock"),
        (operators.add(np.complex64), NOTHING, "cas lock"),
        (operators.add(np.float32), BOTH, "cas lock"),
        (operators.add(np.float32), PTX, "native cas lock"),
        (operators.add(np.float64), PTX, "native lock"),
        (operators.add(np.complex128), BOTH | PTX, "native cas lock"),
        (operators.multiply(np.complex128), BOTH | PTX, "lock"),
        (operators.fmin(np.float32), NOTHING, "cas lock"),
        (operators.fmax(np.float32), EXT, "cas lock"),
        (operators.maximum(np.float32), EXT | AMD, "cas lock"),
        (operators.add(np.float64), EXT | BASE, "native cas lock"),
        (operators.argmin(np.int64, np.int64), BOTH | PTX, "lock"),
        (Operator(TWO_DOUBLES, "a.x < b.x ? a : b", (0, 0)), BOTH | PTX, "lock"),
        (Operator(np.int16, "abs(a) > abs(b) ? a : b", 0), NOTHING, "cas lock"),
    ],
    ids=lambda value: value.name if isinstance(value, Operator) else None,
)
def test_what_is_available_and_chosen(operator, memory, features, expected):
    available = tuple(expected.split())
    assert available_updates(operator, memory, features) == available
    assert slowest(choose_updates(operator, memory, features)) == available[0]
    for update in ("private", *available):
        assert choose_updates(operator, memory, features, update) == (update,) * len(operator.parts)
    for update in {"native", "cas"} - set(available):
        with pytest.raises(
            ValueError, match=f"update: '{update}' is not available for {operator.name} on .* {memory}"
        ) as e:
            choose_updates(operator, memory, features, update)
        head, _, feature = str(e.value).partition(f"; '{update}' needs ")
        assert head.endswith(f"available: private, {', '.join(available)}")
        has_atomic = native_atomic(operator.parts[0].operation, operator.parts[0].dtype, memory) is not None
        if len(operator.parts) == 1 and (has_atomic if update == "native" else operator.parts[0].cell_bytes == 8):
            assert feature in FEATURES.values()


@pytest.mark.parametrize(
    ("operator", "update", "feature"),
    [
        (operators.add(np.int64), "cas", "cl_khr_int64_base_atomics"),
        (operators.add(np.uint64), "native", "cl_khr_int64_base_atomics"),
        (operators.maximum(np.int64), "native", "cl_khr_int64_extended_atomics"),
    ],
)
def test_the_feature_that_an_update_needs(operator, update, feature):
    with pytest.raises(ValueError, match=rf"available: private, lock; '{update}' needs 64-bit .* \({feature}\)$"):
        choose_updates(operator, "global", NOTHING, update)


@pytest.mark.parametrize("update", ["atomic", "", "Native", 3])
def test_not_an_update(update):
    with pytest.raises(
        ValueError, match="update: expected one of private, native, carry, cas, lock, sort, gather, got"
    ):
        choose_updates(operators.add(np.int32), "local", NOTHING, update)


@pytest.mark.parametrize(
    ("extensions", "platform", "version", "expected"),
    [
        ("", "Portable Computing Language", "OpenCL C 1.2 PoCL", set()),
        ("cl_khr_fp64", "Portable Computing Language", "OpenCL C 1.2 PoCL", {"fp64"}),
        ("cl_khr_int64_base_atomics cl_khr_fp16", "rusticl", "OpenCL C 1.2 ", {"int64_base_atomics"}),
        ("  cl_khr_int64_base_atomics\ncl_khr_int64_extended_atomics ", "Intel(R) OpenCL", "OpenCL C 2.0", set(BOTH)),
        ("my_cl_khr_fp64 cl_khr_fp64_emulated", "", "", set()),
        ("cl_khr_fp64", "NVIDIA CUDA", "OpenCL C 1.2 ", {"fp64", "nvidia_ptx"}),
        ("", "AMD Accelerated Parallel Processing", "OpenCL C 2.0 ", {"amd_builtins"}),
        ("cl_nv_pragma_unroll", "Portable Computing Language", "OpenCL C 1.2", set()),
        ("cl_ext_float_atomics", "Intel(R) OpenCL", "OpenCL C 3.1 ", {"ext_float_atomics", "device_fence"}),
    ],
)
def test_features_of_devices(extensions, platform, version, expected):
    found = features_of(extensions, platform, version)
    assert found == expected
    assert found <= FEATURES.keys()
