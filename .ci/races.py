"""Run the self-test, tiny, under Oclgrind, which sees races between work-items, reads of what nobody wrote and accesses
beyond an array; and every other kernel.

    .ci/races.py path/to/liboclgrind-rt-icd.so

Oclgrind ends well whatever it finds, so what it says is read, and has to be nothing. Kernels are built with
CLHIST_CHECKED, see kernels_cl/types.mako. That it would say something is tried first, with errors that are meant.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clhist
from clhist import operators
from clhist._core.kernels.render import render_measure
from clhist._core.opencl import memory as scratch
from clhist._core.opencl.device import profile_context
from clhist._core.opencl.program import build
from clhist._core.runtime import scan
from clhist._core.runtime.packed import PackedSweep
from clhist.selftest.cases import pair_kernel
from clhist.selftest.checks import HOLDS, UNAVAILABLE, Check
from clhist.selftest.inputs import drawn
from clhist.selftest.reference import folded
from clhist.selftest.suite import tiny_checks
from clhist.strategies import STRATEGIES, Runner, datasets

WORKERS = 2
LONGEST = 400  # seconds that a case may take: a bad lock hangs; on two busy cores digests of exact sums take 180
SHOWN = 40  # lines of what is said of a case

SETTINGS = {
    # Optimised code has instructions that Oclgrind does not know ("freeze").
    "BUILD_OPTIONS": "-cl-opt-disable -DCLHIST_CHECKED",
    "DATA_RACES": "1",
    "UNINITIALIZED": "1",
    "CHECK_API": "1",
    "MAX_ERRORS": str(2**31 - 1),  # of all kernels together; after 1000 it would say nothing more
}

# Properties that only some drivers know, such as AMD's name of a board, are asked for: the refusal is an answer.
HARMLESS = re.compile(
    r"\s*Oclgrind - OpenCL runtime error detected\n\tFunction: clGetDeviceInfo\n\tError: +CL_INVALID_VALUE\n"
    r"\tFor argument 'param_name'\n"
)

# A write by the host makes its notes on a buffer as small as that write: the rest counts as never written, by anyone.
scratch._touch = lambda queue, buffer: None
# So memory of a pool, which one call writes from the host and the next in a kernel, is new each time.
scratch._Pool.__call__ = lambda self, size: KeptBuffer(  # type: ignore[method-assign]
    self._queue.context, cl.mem_flags.READ_WRITE, size
)


def fill_by_one_write(
    queue: cl.CommandQueue, buffer: cl.Buffer, pattern: Any, offset: int, size: int, wait_for: Any = None
) -> cl.Event:
    """Fill a buffer at once: Oclgrind fills it by many small writes, of which it notes the first."""
    filled = np.tile(pattern, size // pattern.nbytes)
    return cl.enqueue_copy(queue, buffer, filled, dst_offset=offset, wait_for=wait_for)


cl.enqueue_fill_buffer = fill_by_one_write


def lower_flag(sweep: PackedSweep, clear: Callable[..., None], places: Any, copies: int) -> None:
    """Have the flag of packed counters written: elsewhere it may be anything, which Oclgrind would report."""
    clear({**places, "clhist_place0": places["clhist_flag_place"]}, 1, 1)


PackedSweep.clear = lower_flag  # type: ignore[method-assign]


def main(library: str) -> int:
    """Run the cases, two at a time, and say what Oclgrind said; return 1 if that is anything."""
    begin = time.monotonic()
    os.environ |= {f"OCLGRIND_{name}": value for name, value in SETTINGS.items()}
    os.environ |= {"OCL_ICD_VENDORS": str(Path(library).resolve()), "PYOPENCL_NO_CACHE": "1"}
    render_measure("nothing")  # so that Mako compiles all templates here, not in each process
    # Each in a process of its own: Oclgrind's notes on a buffer that was freed serve the next, which may be larger.
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        labels = pool.apply(labels_of_checks)
        cases = {**meant(), **others(), **{label: partial(run_check, label) for label in labels}}
        results = [(name, pool.apply_async(said_of, (case,))) for name, case in cases.items()]
        failed = 0
        for name, result in results:
            try:
                seconds, said = result.get(LONGEST)
            except multiprocessing.TimeoutError:
                seconds, said = LONGEST, "does not come to an end"
            wanted = MEANT.get(name)
            good = wanted[0] in said if wanted else not said
            failed += not good
            print(f"{'ok' if good else 'FAILED':6} {seconds:5.1f} s  {name}", flush=True)
            if not good:
                print("\n".join(said.splitlines()[:SHOWN]), flush=True)
    print(f"{f'{failed} FAILED' if failed else 'no races, no bad accesses'}: {time.monotonic() - begin:.0f} s")
    return min(failed, 1)


def said_of(case: Callable[[], None]) -> tuple[float, str]:
    """Return how long a case takes, and what Oclgrind says of it: of kernels in a file, of calls on standard error."""
    begin, wrong = time.monotonic(), ""
    with tempfile.TemporaryDirectory() as directory:
        kernels, calls = Path(directory, "kernels"), Path(directory, "calls")
        os.environ["OCLGRIND_LOG"] = str(kernels)
        errors = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        try:
            case()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}\n"
        said = "".join(file.read_text(errors="replace") for file in (kernels, calls) if file.exists())
    # Oclgrind empties its file for each context, and leaves a hole.
    return time.monotonic() - begin, (wrong + HARMLESS.sub("", said.replace("\0", ""))).strip()


# What has to be reported, and code with that error.
MEANT = {
    "a race in local memory": (
        "data race at local memory",
        "own[lane / 2] += lane; barrier(CLK_LOCAL_MEM_FENCE); out[item] = own[lane];",
    ),
    "a race in global memory": (
        "data race at global memory",
        "if (lane == 0) out[item / 32] = 0; atomic_inc(out + item / 32);",
    ),
    "a local word that nobody wrote": (
        "Uninitialized value written to global memory",
        "if (lane < 4) own[lane] = 1; barrier(CLK_LOCAL_MEM_FENCE); out[item] = own[lane];",
    ),
    "a global word that nobody wrote": ("Uninitialized value written to local memory", "own[lane] = out[item];"),
    "a write beyond an array": ("Invalid write", "out[item + 1] = 1;"),
    "a barrier that not all meet": ("divergence", "if (lane < 3) barrier(CLK_LOCAL_MEM_FENCE); out[item] = 1;"),
}


def meant() -> dict[str, Callable[[], None]]:
    """Return kernels with errors, which show that Oclgrind reports them."""
    return {name: partial(run_meant, code) for name, (_, code) in MEANT.items()}


def run_meant(code: str) -> None:
    queue = clhist.default_queue()
    source = (
        "__kernel void meant(__global int *out) { __local int own[32]; "
        f"const int lane = get_local_id(0), item = get_global_id(0); {code} }}"
    )
    out = cl_array.Array(queue, 64, np.int32)
    cl.Program(queue.context, source).build().meant(queue, (64,), (32,), out.data)
    queue.finish()


def profile_of(kind: str, local_memory: int = 8192) -> clhist.Profile:
    """Return a small device."""
    own = clhist.device_profile(clhist.default_queue().device)
    assert own.name == "Oclgrind Simulator", own.name
    threads, group = (32, 16) if kind == "cpu" else (256, 64)
    return replace(own, kind=kind, hardware_threads=threads, work_group_size=group, local_memory=local_memory)


def every_check() -> dict[str, Check]:
    """Return the checks of a small GPU and a small CPU; where pairs are partitioned a tile takes more local memory."""
    found = {}
    for room, partitioned in ((8192, False), (24576, True)):
        profiles = {kind: profile_of(kind, room) for kind in ("gpu", "cpu")}
        for check in tiny_checks(clhist.default_queue(), profiles):
            if ("partitioned" in check.row) == partitioned:
                found[check.label] = check
    return found


def one_launch(kind: str) -> None:
    """Let one work-group combine what it has swept: few elements of few bins, by locks where copies are shared."""
    bins, values = np.arange(11, dtype=np.int32) % 7, np.arange(11, dtype=np.int32)
    kernel = pair_kernel(operators.maximum(np.int32), profile_of(kind))
    forced: dict[str, Any] = {"memory": "local", "update": "lock"} if kind == "gpu" else {}
    assert kernel.plan(11, 9, **forced).is_one_launch
    found = kernel(bins, values, num_bins=9, dest=np.full(9, 5, np.int32), **forced)
    np.testing.assert_array_equal(found, folded(np.maximum, bins, values, np.full(9, 5, np.int32)))


def labels_of_checks() -> list[str]:
    """Return what the checks are called."""
    return list(every_check())


class KeptBuffer(cl.Buffer):
    """A buffer that lives as long as the process: Oclgrind's notes on one that was freed would serve the next."""

    kept: ClassVar[list[cl.Buffer]] = []

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.kept.append(self)


def run_check(label: str) -> None:
    cl.Buffer = KeptBuffer  # type: ignore[misc]
    outcome = every_check()[label].run()
    assert outcome.status in (HOLDS, UNAVAILABLE), outcome.words


def others() -> dict[str, Callable[[], None]]:
    """Return what the self-test leaves out here: of two kinds of devices, and measuring, which is no histogram."""
    sorts = {f"{kind}, pairs to sort": partial(pairs_to_sort, kind) for kind in ("gpu", "cpu")}
    alone = {f"{kind}, one launch": partial(one_launch, kind) for kind in ("gpu", "cpu")}
    published = {name: partial(run_published, name) for name in STRATEGIES if name.startswith(PUBLISHED)}
    return sorts | alone | published | {f"measure.mako, {name}": partial(measuring, name) for name in KERNELS}


# Strategies with kernels of their own, but for Shams & Kennedy's first method: that work-items write one word at once,
# and see who was last, is what it does.
PUBLISHED = ("blog", "handbook", "shams-kennedy/2", "cub", "raft/bits", "raft/hash")


def run_published(name: str) -> None:
    """A published strategy on inputs that overflow its counters and fill its tables."""
    cl.Buffer = KeptBuffer  # type: ignore[misc]
    context = clhist.default_queue().context
    strategy, rng = STRATEGIES[name], np.random.default_rng(3)
    few = {"work_groups": 3} if name.startswith("blog") else {}
    with profile_context(profile_of("gpu")):
        for how, bins, size in (("half in one", 37, 3001), ("uniform, some outside", 100, 5)):
            runner = Runner(context)
            runner.limits = replace(runner.limits, compute_units=2, local_memory=8192)
            data = datasets.indices(how, drawn(how, rng, size, bins), bins)
            outcome = runner.outcome(strategy, data, timed=False, **few)
            assert outcome.state == "right", outcome.note


def pairs_to_sort(kind: str) -> None:
    """The kernels that write, sort and scan them."""
    scan.device_kind = lambda _: kind
    kernel = clhist.HistogramKernel(
        None,
        operators.add(np.int32),
        arguments="const int *x, const int *w",
        map="EMIT(x[i], w[i])",
        profile=profile_of(kind),
    )
    rng = np.random.default_rng(3)
    # In shares of a tile, and all tiles in one.
    for how, bins, scan._SHARES in (("half in one", 37, 16), ("all in one", 1500, 1e-3)):
        x, weights = drawn(how, rng, 1501, bins), rng.integers(-9, 9, 1501, dtype=np.int32)
        expected = folded(np.add, x, weights, np.zeros(bins, np.int32))
        np.testing.assert_array_equal(kernel(x, weights, num_bins=bins, update="sort"), expected)


# What the kernels of measure.mako get, besides arrays of 4096, 2 and 1 zeros: a, b and c.
KERNELS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "local_memory": lambda a, b, c: (c,),
    "local_argument": lambda a, b, c: (c, cl.LocalMemory(1200), np.uint32(300)),
    "read": lambda a, b, c: (a, np.uint64(1024), np.uint32(2), np.uint32(0), c),
    "scatter": lambda a, b, c: (a, np.uint32(4096), np.uint32(5)),
    "stride": lambda a, b, c: (a, np.uint64(64), np.uint64(64), c),
    "residents": lambda a, b, c: (b, c, np.uint32(9)),
}


def measuring(name: str) -> None:
    queue = clhist.default_queue()
    words = {"words": 300} if name == "local_memory" else {}
    program = build(queue.context, render_measure(name, **words))
    arrays = [cl_array.to_device(queue, np.zeros(size, np.int32)).data for size in (4096, 2, 1)]
    program.clhist_measure(queue, (128,), (32,), *KERNELS[name](*arrays))
    queue.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
