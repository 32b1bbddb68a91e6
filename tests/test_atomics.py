"""Which update an operator gets: the table of hardware atomics, and what a device's features leave of it."""

from __future__ import annotations

import numpy as np
import pytest

from clhist import Operator, operators
from clhist.atomics import FEATURES, MEMORIES, available_updates, choose_updates, native_atomic, slowest
from clhist.device import features_of

NOTHING: frozenset[str] = frozenset()
BASE = frozenset({"int64_base_atomics"})
BOTH = BASE | {"int64_extended_atomics"}
PTX = frozenset({"nvidia_ptx"})

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
    atomic = native_atomic("add", np.dtype(dtype), memory)
    assert f"red.{space}.add.f{np.dtype(dtype).itemsize * 8} " in atomic.code
    assert (atomic.word, atomic.feature) == (word, "nvidia_ptx")


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
        assert str(e.value).endswith(f"available: private, {', '.join(available)}")


@pytest.mark.parametrize("update", ["atomic", "", "Native", 3])
def test_not_an_update(update):
    with pytest.raises(ValueError, match="update: expected one of private, native, cas, lock, sort, got"):
        choose_updates(operators.add(np.int32), "local", NOTHING, update)


@pytest.mark.parametrize(
    ("extensions", "platform", "expected"),
    [
        ("", "Portable Computing Language", set()),
        ("cl_khr_fp64", "Portable Computing Language", {"fp64"}),
        ("cl_khr_int64_base_atomics cl_khr_fp16", "rusticl", {"int64_base_atomics"}),
        ("  cl_khr_int64_base_atomics\ncl_khr_int64_extended_atomics ", "Intel(R) OpenCL", set(BOTH)),
        ("my_cl_khr_fp64 cl_khr_fp64_emulated", "", set()),
        ("cl_khr_fp64", "NVIDIA CUDA", {"fp64", "nvidia_ptx"}),
        ("", "AMD Accelerated Parallel Processing", {"amd_fence"}),
        ("cl_nv_pragma_unroll", "Portable Computing Language", set()),
    ],
)
def test_features_of_devices(extensions, platform, expected):
    found = features_of(extensions, platform)
    assert found == expected
    assert found <= FEATURES.keys()
