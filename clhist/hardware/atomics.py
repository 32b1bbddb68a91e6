"""The table of hardware atomics: what each vendor's devices update natively, and how OpenCL C says so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

MEMORIES = ("local", "global")

# What a device may have besides OpenCL C 1.2 with its 32-bit atomics.
FEATURES = {
    "int64_base_atomics": "64-bit add, exchange and compare-exchange (cl_khr_int64_base_atomics)",
    "int64_extended_atomics": "64-bit min, max, and, or, xor (cl_khr_int64_extended_atomics)",
    "fp64": "double precision (cl_khr_fp64)",
    "nvidia_ptx": "inline PTX: float atomics, device-wide fence",
    "ext_float_atomics": "float atomics by cl_ext_float_atomics",
    "amd_builtins": "builtins of AMD's compiler: float atomics, device-wide fence",
    "device_fence": "device-wide fence of OpenCL C 3.0",
}


@dataclass(frozen=True)
class NativeAtomic:
    """One row of the table.

    Attributes
    ----------
    operation : str
        NumPy's name of it.
    dtype : numpy.dtype
        Type of the accumulator.
    memory : {"local", "global"}
        Where the word is.
    code : str
        C statement of a pointer `p` to the word and an operand `v`, both of C type `word`.
    word : str
        C type of the word that is updated.
    path : str or None
        The one of `FEATURES` that it goes by; None if every OpenCL 1.1 device has it.
    guard : str
        Preprocessor condition under which the compiler knows it, if it must be proven first.
    options : tuple of str
        What the compiler must be told.
    """

    operation: str
    dtype: np.dtype
    memory: str
    code: str
    word: str
    path: str | None = None
    guard: str = ""
    options: tuple[str, ...] = ()

    @property
    def feature(self) -> str | None:
        """What a device must have: its path, or the name under which `clhist.opencl.probe` has proven this very row."""
        return f"{self.path}:{self.operation}_{self.dtype}_{self.memory}" if self.guard else self.path


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


def _float_rows() -> Iterator[NativeAtomic]:
    """Yield those of floating-point numbers; a minimum or maximum here ignores NaN, so it is `numpy.fmin` or fmax."""
    for bits, memory in product((32, 64), MEMORIES):
        dtype, word = np.dtype(f"f{bits // 8}"), {32: "float", 64: "double"}[bits]
        row = partial(NativeAtomic, dtype=dtype, memory=memory, word=word)

        space, constraint = {"local": "shared", "global": "global"}[memory], {32: "f", 64: "d"}[bits]
        code = f'__asm__ volatile("red.{space}.add.f{bits} [%0], %1;" :: "l"(p), "{constraint}"(v) : "memory");'
        yield row("add", code=code, path="nvidia_ptx", guard="1")

        # Not minima and maxima: with a NaN in memory PoCL 5 never comes back from them.
        scope = {"local": "memory_scope_work_group", "global": "memory_scope_device"}[memory]
        pointer = f"(volatile __{memory} atomic_{word} *)p"
        yield row(
            "add",
            code=f"atomic_fetch_add_explicit({pointer}, v, memory_order_relaxed, {scope});",
            path="ext_float_atomics",
            # Intel's runtime for CPUs has the functions but not the macros.
            guard=f"defined(__opencl_c_ext_fp{bits}_{memory}_atomic_add) || defined(cl_ext_float_atomics)",
            options=("-cl-std=CL3.0",),
        )

    builtins = [("add", "f4", "local", "ds_faddf", ", 0, 0, 0")]
    builtins += [(op, "f4", "local", f"ds_{op}f", ", 0, 0, 0") for op in ("fmin", "fmax")]
    builtins += [("add", "f4", "global", "global_atomic_fadd_f32", "")]
    builtins += [("add", "f8", "local", "ds_atomic_fadd_f64", "")]
    builtins += [(op, "f8", "global", f"global_atomic_{op.replace('add', 'fadd')}_f64", "") for op in _FLOAT_OPERATIONS]
    for operation, kind, memory, name, more in builtins:
        dtype = np.dtype(kind)
        word, builtin = {4: "float", 8: "double"}[dtype.itemsize], f"__builtin_amdgcn_{name}"
        code, guard = f"{builtin}((__{memory} {word} *)p, v{more});", f"CLHIST_HAS_BUILTIN({builtin})"
        yield NativeAtomic(operation, dtype, memory, code, word, "amd_builtins", guard)


_FLOAT_OPERATIONS = ("add", "fmin", "fmax")
NATIVE_ATOMICS = (*_integer_rows(), *_float_rows())
ALL_FEATURES = frozenset(FEATURES) | {atomic.feature for atomic in NATIVE_ATOMICS if atomic.feature is not None}


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


_BY_KEY: dict[tuple[str, str, str], list[NativeAtomic]] = {}
for _row in NATIVE_ATOMICS:
    _BY_KEY.setdefault((_row.operation, str(_row.dtype), _row.memory), []).append(_row)


def to_prove(features: Collection[str]) -> tuple[NativeAtomic, ...]:
    """Return the atomics that a device with these `features` may have, but must show that it has."""
    return tuple(row for row in NATIVE_ATOMICS if row.guard and row.path in features)


def native_table(features: Collection[str]) -> dict[tuple[str, str, str], str]:
    """Return by which way, of `FEATURES` or "core", a device has each (operation, dtype, memory) that it has."""
    found = {key: native_atomic(key[0], np.dtype(key[1]), key[2], features) for key in _BY_KEY}
    return {key: row.path or "core" for key, row in found.items() if row is not None}
