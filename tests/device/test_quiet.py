"""What compilers say: nothing through clhist unless it is asked for, and all of it through PyOpenCL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clhist
from clhist._core.opencl.build_options import silence_own_builds, silent

pytestmark = pytest.mark.usefixtures("with_optimizer")

# A compiler that has something to say of every program, whichever there is.
TALKING = """
import warnings
import pyopencl as cl

PROGRAM = '''
class Program(cl.Program):
    def build(self, *args, **options):
        found = super().build(*args, **options)
        cl.compiler_output("something")
        return found
'''
exec(PROGRAM)  # as whoever counts or times what is built
cl.Program = Program
import numpy as np
import pyopencl.array as cl_array
import pyopencl.elementwise, pyopencl.reduction, pyopencl.scan
import clhist

warnings.simplefilter("always")
rng = np.random.default_rng(0)
x = rng.random(100_000, np.float32)
queue = clhist.default_queue()
d = cl_array.to_device(queue, x)


def show(call):
    with warnings.catch_warnings(record=True) as caught:
        call()
    print(sorted({each.category.__name__ for each in caught}), sorted({str(each.message)[:9] for each in caught}))


def calls():
    clhist.histogram(x, 9, weights=x)
    clhist.histogram(d, 9, density=True)  # divides by PyOpenCL's own kernels
    clhist.bincount(cl_array.to_device(queue, (x * 9).astype("i4")))


show(calls)
show(lambda: clhist.bincount((d * 9).astype(np.int32)))  # builds PyOpenCL's kernels for the caller
"""


def warnings_of(**variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYOPENCL_COMPILER_OUTPUT"}
    done = subprocess.run(
        [sys.executable, "-c", TALKING],
        capture_output=True,
        text=True,
        check=True,
        env=environment | variables,
    )
    return done.stdout.splitlines()


def test_programs_of_a_call_warn_of_nothing_and_those_of_the_caller_do():
    assert warnings_of() == ["[] []", "['CompilerWarning'] ['Non-empty']"]


def test_all_is_shown_on_demand():
    assert "'something'" in warnings_of(PYOPENCL_COMPILER_OUTPUT="1")[0]


def test_the_stack_decides(monkeypatch):
    monkeypatch.delenv("PYOPENCL_COMPILER_OUTPUT", raising=False)
    shown = cl.compiler_output
    silence_own_builds()  # once is enough
    assert cl.compiler_output is shown
    with pytest.warns(cl.CompilerWarning, match="^Non-empty"):
        cl.compiler_output("of a test")
    own = {"__name__": "clhist.anything", "cl": cl}
    of_pyopencl = {"__name__": "pyopencl.array", "own": own}
    exec("def build(): cl.compiler_output('of clhist')", own)
    exec("def through(): own['build']()", of_pyopencl)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own["build"]()
        of_pyopencl["through"]()


BROKEN = """
import numpy as np, clhist
for code in ("EMIT(gg[i], 1)", "EMIT(g[i], nothing); 5 = 6;"):
    try:
        clhist.HistogramKernel(None, clhist.operators.count(), arguments="const int *g", map=code)(
            np.zeros(3, np.int32), num_bins=3)
    except clhist.BuildError as error:
        print(str(error).splitlines()[0])
"""


def test_a_build_error_is_an_exception_and_nothing_else(queue):
    """Of the process's standard error: not all that is written there comes through Python."""
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, check=True)
    assert done.stdout.count("map, line 1: ") == 2
    written = done.stderr.splitlines()
    if queue.device.platform.name.startswith("NVIDIA"):  # whose driver counts errors there, and takes no option
        written = [line for line in written if not re.fullmatch(r"\d+ errors? generated\.", line)]
    assert written == []


def test_options_that_silence_are_for_compilers_that_need_them(queue, monkeypatch):
    monkeypatch.delenv("PYOPENCL_COMPILER_OUTPUT", raising=False)
    pocl = "PoCL 3.0" in queue.device.platform.version or "PoCL 3.1" in queue.device.platform.version
    assert bool(silent(queue.context)) == pocl
    monkeypatch.setenv("PYOPENCL_COMPILER_OUTPUT", "1")
    assert not silent(queue.context)


def test_threads_do_not_share_what_is_silenced(queue, monkeypatch):
    """Filters of warnings are of the whole process: they stay as they are while clhist builds."""
    monkeypatch.delenv("PYOPENCL_COMPILER_OUTPUT", raising=False)
    before, seen = list(warnings.filters), []
    begun, done = threading.Event(), threading.Event()

    def watch():
        while not done.is_set():
            seen.append(list(warnings.filters) == before)
            begun.set()

    watching = threading.Thread(target=watch)
    watching.start()
    assert begun.wait(60)
    try:
        x = np.arange(100, dtype=np.int32)
        code = "EMIT(x[i] % 7, x[i] * 12345)"  # that no other test builds
        kernel = clhist.HistogramKernel(None, clhist.operators.add(np.int64), arguments="const int *x", map=code)
        kernel(cl_array.to_device(queue, x), num_bins=7)
    finally:
        done.set()
        watching.join()
    assert all(seen)
