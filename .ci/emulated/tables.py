"""The structures and numbers that Python and the C of core/ share, and that C as a function."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable
from functools import cache
from os import getpid

from emulated.places import HERE, places

# Kinds of instructions, why C came back, accesses and spaces: in the order of core/types.h.
(NONE, ALU, NOP, END, BARRIER, SIGNAL, WAIT, BRANCH, SMEM, MEM, MAD, INVALIDATE, DRAIN, GETPC, SETPC, SWAPPC) = range(
    16
)
(DONE, NEED, FAULT, LIMIT, DEADLOCK) = range(5)
(LOAD, STORE, ATOMIC, LOAD2, STORE2) = range(5)
(GLOBAL, LDS, SCRATCH) = range(3)
OUTSIDE_CODE, SCALAR_LOAD = 98, 99
ATOMICS = (
    *("SWAP", "CMPSWAP", "ADD", "SUB", "RSUB", "SMIN", "UMIN", "SMAX", "UMAX", "AND", "OR", "XOR", "INC", "DEC"),
    *("FADD", "FMIN", "FMAX", "FMINNUM", "FMAXNUM"),
)
NO_REGISTER = -1

CACHE_BYTES = 128 * 8 + 128 * 128
PENDING_BYTES = 8 + 2048 * 16


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class Entry(ctypes.Structure):
    """One decoded instruction."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *_fields(ctypes.c_int32, "kind size num_arguments"),
        ("arguments", ctypes.c_int32 * 6),
        *_fields(
            ctypes.c_int32, "access space bytes sign half atomic swapped returns address base wide offset offset1"
        ),
        *_fields(ctypes.c_int32, "data data1 result accumulators condition target offset_register bypass of_all_lanes"),
    )


class Wave(ctypes.Structure):
    """One wave: its registers, its memory, and where it is."""

    _fields_ = (
        *_fields(ctypes.c_void_p, "sgpr vgpr agpr local scratch"),
        *_fields(ctypes.c_uint32, "local_size scratch_size group state barrier padding"),
        ("steps", ctypes.c_uint64),
        *_fields(ctypes.c_void_p, "cache pending"),
    )


class Group(ctypes.Structure):
    """The barrier of one work-group."""

    _fields_ = (*_fields(ctypes.c_uint32, "alive arrived phase padding"),)


class Region(ctypes.Structure):
    """Memory that a kernel may access."""

    _fields_ = (*_fields(ctypes.c_uint64, "base size"), *_fields(ctypes.c_uint32, "writable padding"))


COUNTED = ["steps", "global_lines", "local_cycles", "conflicts", "atomics", "repeated"]


class Report(ctypes.Structure):
    """Where a launch stopped, and what was counted."""

    _fields_ = (
        *_fields(ctypes.c_uint64, "pc address"),
        *_fields(ctypes.c_uint32, "wave lane bytes kind"),
        *_fields(ctypes.c_uint64, " ".join(COUNTED)),
        *_fields(ctypes.c_uint32, "line_bytes counts shares_units resumes"),
        ("left", ctypes.c_int64),
    )


@cache
def core() -> Callable[..., int]:
    """Return `run` of core/waves.c, compiled or kept from before.

    Raises
    ------
    RuntimeError
        With the compiler's log.
    """
    sources = sorted((HERE / "core").glob("*.[ch]"))
    key = hashlib.sha256(b"\0".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    built = places().cache / f"core-{key}.so"
    if not built.exists():
        made = built.with_suffix(f".{getpid()}")
        flags = ["-O2", "-Wall", "-Werror", "-fno-strict-aliasing", "-ffp-contract=off", "-shared", "-fPIC"]
        line = ["cc", *flags, "-o", str(made), str(HERE / "core/waves.c")]
        run = subprocess.run(line, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f"{' '.join(line)}: {run.stderr}")
        made.replace(built)
    run = ctypes.CDLL(str(built)).run
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    run.argtypes = [
        *(pointer, number, number),  # table, base, entries
        *(pointer, ctypes.c_int32, pointer, ctypes.c_int32),  # waves, groups, lanes
        *(pointer, ctypes.c_int32, number),  # regions, base of memory
        *(pointer, ctypes.c_int64, pointer, pointer),  # seed, quantum, budget, report
    ]
    return run
