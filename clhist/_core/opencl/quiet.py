"""Compilers say nothing through clhist, unless ``PYOPENCL_COMPILER_OUTPUT=1`` asks for what they say.

NVIDIA's and Intel's always say something, of which PyOpenCL warns whoever builds. clhist builds its own programs, and
those that PyOpenCL makes for the arrays inside a call: of neither has the caller ever seen the source.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from types import FrameType
from typing import Any

import pyopencl as cl
from pytools import strtobool


def silence_own_builds() -> None:
    """Let PyOpenCL warn of what a compiler said about programs of others only.

    All its builds report by this one function, which it looks up when it needs it. Who asked for a kernel is known by
    the stack alone: `warnings.catch_warnings` changes the filters of all threads, and would have to be around every
    operation on a device array.
    """
    shown: Callable[[str], Any] | None = getattr(cl, "compiler_output", None)
    # A second import must not wrap the function twice.
    if shown is None or hasattr(shown, "__wrapped__"):
        return

    @wraps(shown)
    def compiler_output(text: str) -> None:
        if is_output_shown() or not is_own_build():
            shown(text)

    cl.compiler_output = compiler_output


def silent(context: cl.Context) -> Sequence[str]:
    """Return options that keep the compiler of `context` from writing to the process's standard error.

    clang writes "3 errors generated." there, besides the log, unless carets are off. PoCL refuses the option for that.
    But it splits options at blanks, looks at how they begin, and hands all to clang as one text that is split at tabs,
    too: behind a tab, the option arrives. The other way, a standard error that is another file meanwhile, takes the
    output of all threads and of new processes with it. Later PoCLs than those tried are left alone, and so is
    NVIDIA's driver (580), which counts errors there and knows none of clang's options.
    """
    if is_output_shown():
        return ()
    # The way through a tab depends on how PoCL splits options, and is known of these versions alone.
    tried = all(re.search(r"\bPoCL 3\.[01]\b", device.platform.version) for device in context.devices)
    return ("-DCLHIST_SILENT\t-fno-caret-diagnostics",) if tried else ()


def is_output_shown() -> bool:
    """Whether ``PYOPENCL_COMPILER_OUTPUT`` asks for what compilers say."""
    try:
        return bool(strtobool(os.environ.get("PYOPENCL_COMPILER_OUTPUT", "False")))
    except ValueError:
        return True


def is_own_build() -> bool:
    """Whether this happens inside a call of clhist, whoever has a part in the build: others may wrap PyOpenCL's."""
    frame: FrameType | None = sys._getframe(2)  # of whoever calls PyOpenCL's function in whose place this is asked
    while frame is not None:
        # PyOpenCL's own frames are between the build and the caller, so that the whole stack is searched.
        if frame.f_globals.get("__name__", "").partition(".")[0] == "clhist":
            return True
        frame = frame.f_back
    return False
