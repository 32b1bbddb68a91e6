"""Kernels that are broken on purpose: each has to be noticed, or nothing that passes means anything."""

from __future__ import annotations

from typing import NamedTuple

import pyopencl as cl

from emulated.cases import listed
from emulated.device import Program
from emulated.launch import settings
from emulated.outcomes import FAULTY, HANGS, NOT_AVAILABLE, RIGHT, WRONG, Outcome, outcome_of

_BUDGET = 6_000_000  # instructions after which a kernel hangs
_WAITS = r"int done = 0;\n    while \(!done\) \{.*?\n    \}\n\}"
_WAITING = "while (atomic_xchg(lock, 1));\n clhist_guarded0(bin, value);\n atomic_xchg(lock, 0);\n}"
_FENCE = r"__builtin_amdgcn_fence\(__ATOMIC_SEQ_CST, \"agent\"\);"
_VOLATILE = r"volatile (?=__global (?:cell0_t|ulong) )"
_LOCAL, _GLOBAL = "struct, lock local, M=1, H=7, one", "struct, lock global, M=1, H=7, one"
_SEPARATE = r"done = atomic_xchg\(lock, 0\);"


class Planted(NamedTuple):
    """One fault.

    Attributes
    ----------
    name : str
        What is wrong.
    case : str
        In which case.
    pattern, replacement : str
        A regular expression, and what takes its place.
    outcomes : tuple of str
        As one of which it has to be noticed; `RIGHT` is among them where it may pass.
    """

    name: str
    case: str
    pattern: str
    replacement: str
    outcomes: tuple[str, ...]


# fmt: off
PLANTED = (
    Planted("a plain addition for an atomic one", "int32 counts, H=64, one", r"atomic_add\(p, v\);", "*p += v;",
            (WRONG,)),
    Planted("a float addition that loads and stores", "float32 sums, native local, H=500, one",
            r"__builtin_amdgcn_ds_faddf\([^;]*;", "*p += v;", (WRONG,)),
    Planted("a compare-exchange that is tried once", "float64 sums, cas local, M=1, H=7, one",
            r"while \(found != seen.word\)", "while (0)", (WRONG,)),
    Planted("no lock", _LOCAL, r"if \(atomic_xchg\(lock, 1\) == 0\)", "", (WRONG, HANGS)),
    Planted("a local lock that waits inside: lanes of a wave are in lockstep", _LOCAL, _WAITS, _WAITING, (HANGS,)),
    Planted("a global lock that waits inside", _GLOBAL, _WAITS, _WAITING, (HANGS,)),
    # What clang makes of these is in `emulated.isa`; they say why the kernels are written as they are.
    Planted("a local lock that is released apart from its flag", _LOCAL, _SEPARATE, "atomic_xchg(lock, 0); done = 1;",
            (RIGHT, HANGS)),
    Planted("a global lock that is released apart from its flag", _GLOBAL, _SEPARATE,
            "atomic_xchg(lock, 0); done = 1;", (RIGHT, HANGS)),
    Planted("a global lock without fences and volatile", _GLOBAL, f"{_FENCE}|{_VOLATILE}", "", (WRONG,)),
    Planted("a global lock without fences", _GLOBAL, _FENCE, "", (RIGHT, WRONG)),
    Planted("a global lock without volatile", _GLOBAL, _VOLATILE, "", (RIGHT, WRONG)),
    Planted("no barrier before copies are combined", "int32 counts, H=500, uniform",
            r"barrier\(CLK_LOCAL_MEM_FENCE\);(  // before what others have updated is read)", r"\1", (WRONG,)),
    Planted("no barrier after copies are cleared", "int32 counts, H=500, uniform",
            r"barrier\(CLK_LOCAL_MEM_FENCE\);(  // before any work-item updates a cell)", r"\1", (WRONG,)),
    Planted("copies that are not cleared", "int32 counts, H=64, uniform",
            r"clhist_own0\[k\]\.value = clhist_neutral0\(\);", ";", (WRONG,)),
    Planted("copies that do not fit their memory", "float64 sums, cas local, M=1, H=500, uniform",
            r"clhist_pool\[\d+\]", "clhist_pool[256]", (FAULTY,)),
    Planted("one element too many", "int32 counts, H=500, uniform", r"i < clhist_size;", "i <= clhist_size;",
            (FAULTY, WRONG)),
)
# fmt: on


def noticed(planted: Planted, device: cl.Device) -> tuple[bool, Outcome]:
    """Plant a fault; return whether it was noticed as meant, and what came of the case."""
    case = next(each for each in listed() if each.name == planted.case)
    context = cl.Context([device])  # programs are kept by context; Intel's queues do not keep theirs alive
    queue = cl.CommandQueue(context)
    before = settings.budget
    Program.planted, Program.replaced, settings.budget = (planted.pattern, planted.replacement), 0, _BUDGET
    try:
        found = outcome_of(case, queue)
    finally:
        Program.planted, settings.budget = None, before
    if found.word == NOT_AVAILABLE:  # no such atomic here
        return True, found
    if not Program.replaced:
        return False, Outcome(
            "no place", f"{planted.pattern!r} is in no kernel of the case, which is {found.word}: {found.text}"
        )
    return found.word in planted.outcomes, found
