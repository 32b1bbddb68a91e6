"""The outcome of a case, in a word, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pyopencl as cl
from isa import lock_faults, of_disassembly

from clhist.errors import UnsupportedError
from clhist.selftest.checks import NotAvailableError
from emulated.alu import UnsupportedInstructionError
from emulated.cases.case import Case
from emulated.cases.published import RefusedError
from emulated.compiler import disassembly
from emulated.device import launched
from emulated.launch import KernelFaultError, KernelHangsError, settings
from emulated.objects import CodeObject

RIGHT, NOT_AVAILABLE = "right", "n/a"
WRONG, HANGS, FAULTY, LACKS, ERROR = "WRONG", "HANGS", "FAULT", "LACKS", "ERROR"
BAD = (WRONG, HANGS, FAULTY, LACKS, ERROR)
_REFUSAL = "is not available for"  # of an update that a device lacks


class Outcome(NamedTuple):
    """A word, and what there is to say."""

    word: str
    text: str = ""

    @property
    def is_bad(self) -> bool:
        return self.word in BAD


def outcome_of(case: Case, queue: cl.CommandQueue) -> Outcome:
    """Run a case, from the seed that was set."""
    settings.restart(settings.seed)
    launched.clear()
    found = outcome(lambda: case.run(queue))
    if found.word == RIGHT and (missing := case.missing(launched.strategies, launched.updates)):
        return Outcome(ERROR, f"the case is not what it says: {missing}")
    if found.word == RIGHT and "lock" in launched.updates and (wrong := _lock_faults()):
        return Outcome(WRONG, f"compiled so that it may fail: {wrong}")
    return found


def _lock_faults() -> str:
    """Return what compilers made of the locks of the programs that were launched; nothing if that is right."""
    return "; ".join(filter(None, map(_lock_faults_of, {id(code): code for code, _ in launched.kernels}.values())))


@cache
def _lock_faults_of(code: CodeObject) -> str:
    listed = of_disassembly(disassembly(code.target, code.file))
    return "; ".join(f"{code.file.name}: {fault}" for fault in lock_faults(listed))


def outcome(action: Callable[[], object]) -> Outcome:
    """Run something that raises what goes wrong; an instruction that the emulator lacks is no result at all."""
    try:
        action()
    except KernelHangsError as error:
        return Outcome(HANGS, str(error))
    except KernelFaultError as error:
        return Outcome(FAULTY, str(error))
    except UnsupportedInstructionError as error:
        return Outcome(LACKS, f"the emulator does not know {error}")
    except AssertionError as error:
        return Outcome(WRONG, str(error))
    except (UnsupportedError, NotAvailableError, RefusedError) as error:
        return Outcome(NOT_AVAILABLE, str(error))
    except Exception as error:  # whatever else
        text = f"{type(error).__name__}: {error}"
        is_refused = isinstance(error, ValueError) and _REFUSAL in text
        return Outcome(NOT_AVAILABLE if is_refused else ERROR, text)
    return Outcome(RIGHT)
