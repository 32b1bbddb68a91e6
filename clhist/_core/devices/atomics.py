"""The table of hardware atomics: what each vendor's devices update natively, and how OpenCL C says so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product

import numpy as np

from clhist._core.devices.vendors import EXTENSIONS, FEATURES, MEMORIES, VENDOR_PATHS, NativeAtomic, features_of


def _integer_rows() -> Iterator[NativeAtomic]:
    names = {"add": "add", "minimum": "min", "maximum": "max"}
    names |= {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
    for (operation, name), kind, memory in product(names.items(), ("i4", "u4", "i8", "u8"), MEMORIES):
        dtype = np.dtype(kind)
        wide, word = dtype.itemsize == 8, "u" * (dtype.kind == "u")
        prefix = "atom" if wide else "atomic"  # the names of cl_khr_int64_*, and those of the core
        path = ("int64_base_atomics" if operation == "add" else "int64_extended_atomics") if wide else None
        yield NativeAtomic(
            operation, dtype, memory, f"{prefix}_{name}(p, v);", word + ("long" if wide else "int"), path
        )


NATIVE_ATOMICS = (*_integer_rows(), *(atomic for path in VENDOR_PATHS for atomic in path.atomics))
ALL_FEATURES = frozenset(FEATURES) | {atomic.feature for atomic in NATIVE_ATOMICS if atomic.feature is not None}


def expected_features(kind: str, name: str) -> frozenset[str]:
    """Return the features expected of a device of this kind and name, where no device can be queried."""
    if kind == "gpu" and name.startswith("NVIDIA"):
        # Nothing can be proven without the device: each atomic of a promised path counts as proven.
        promised = features_of(" ".join(EXTENSIONS), "NVIDIA CUDA", "OpenCL C 3.0")
        return frozenset(feature for feature in ALL_FEATURES if feature.partition(":")[0] in promised)
    return frozenset({"int64_base_atomics", "int64_extended_atomics", "fp64"})


def native_atomic(
    operation: str | None, dtype: np.dtype, memory: str, features: Collection[str] = ALL_FEATURES
) -> NativeAtomic | None:
    """Return the hardware atomic for `operation` on `dtype` in `memory`, or None.

    Parameters
    ----------
    operation : str or None
        NumPy's name of it, as `clhist.operators.recognition.recognise` gives it.
    dtype : numpy.dtype
        Type of the accumulators.
    memory : {"local", "global"}
        Where the copies are.
    features : collection of str
        What the device has, of `ALL_FEATURES`; defaults to what some device has.
    """
    rows = _BY_KEY.get((operation or "", str(dtype), memory), ())
    return next((row for row in rows if row.feature is None or row.feature in features), None)


def vector_atomic(operation: str | None, dtype: np.dtype, features: Collection[str]) -> NativeAtomic | None:
    """Return the hardware atomic that updates several numbers in global memory at once, or None."""
    rows = (row for row in NATIVE_ATOMICS if row.numbers > 1 and (row.operation, row.dtype) == (operation, dtype))
    return next((row for row in rows if row.feature in features), None)


_BY_KEY: dict[tuple[str, str, str], list[NativeAtomic]] = {}
for _row in (row for row in NATIVE_ATOMICS if row.numbers == 1):
    _BY_KEY.setdefault((_row.operation, str(_row.dtype), _row.memory), []).append(_row)


def to_prove(features: Collection[str]) -> tuple[NativeAtomic, ...]:
    """Return the atomics that `features` promise, and that a device must prove."""
    return tuple(row for row in NATIVE_ATOMICS if row.guard and row.path in features)


def native_table(features: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return the path (a feature, or "core") of each native (operation, dtype, memory) of a device."""
    atomics = {key: native_atomic(key[0], np.dtype(key[1]), key[2], features) for key in _BY_KEY}
    return {key: row.path or "core" for key, row in atomics.items() if row is not None}
