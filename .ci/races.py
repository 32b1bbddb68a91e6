"""Run every kind of kernel under Oclgrind, which sees races between work-items, reads of what nobody wrote and accesses
beyond an array, and compare the results with NumPy's.

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
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

import clhist
from clhist import HistogramKernel, Operator, operators
from clhist.codegen.render import render_measure
from clhist.engine import sort as sorting
from clhist.opencl import memory as scratch
from clhist.opencl.program import build

WORKERS = 2
LONGEST = 60  # seconds that a case may take: a bad lock hangs
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

NUMBER = 1501
RNG = np.random.default_rng(3)
WEIGHTS = RNG.integers(-9, 9, NUMBER, dtype=np.int32)
RECORD = np.dtype([("key", np.int64), ("place", np.int64)])
START = np.array((-(2**40), 2**40), RECORD)


def main(library: str) -> int:
    """Run the cases, two at a time, and say what Oclgrind said; return 1 if that is anything."""
    begin = time.monotonic()
    os.environ |= {f"OCLGRIND_{name}": value for name, value in SETTINGS.items()}
    os.environ |= {"OCL_ICD_VENDORS": str(Path(library).resolve()), "PYOPENCL_NO_CACHE": "1"}
    # Each in a process of its own: Oclgrind's notes on a buffer that was freed serve the next, which may be larger.
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=1) as pool:
        results = [(name, pool.apply_async(said_of, (case,))) for name, case in {**meant(), **cases()}.items()]
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


def cases() -> dict[str, Callable[[], None]]:
    """Return what runs kernels and compares: small inputs, since a million items take a second and more."""
    found: dict[str, Callable[[], None]] = {}
    for kind, memory in product(("gpu", "cpu"), ("local", "global", "partitioned")):
        for update in ("private", "native", "cas", "lock")[memory == "partitioned" :]:
            for how, bins in (("uniform", 37), ("half in one", 300 if update == "private" else 1500)):
                given = {"how": how, "bins": bins, "memory": memory, "update": update}
                name = f"{kind}, {memory}, {update}, {how} of {bins}"
                for dtype in (np.float32, np.float64) if update == "cas" else (np.int32,):
                    found[f"{name}: {dtype.__name__}"] = partial(sums, dtype, kind, **given)
                if update == "lock":
                    found[f"{name}: struct"] = partial(largest, kind, **given)
    found["gpu, counters of 16 bits"] = partial(counts, "uniform", 3000, packed=True)
    found["gpu, counters of 16 bits that overflow"] = partial(counts, "one", 3000, 150_000, packed=True)
    found["gpu, partitioned counts"] = partial(counts, "uniform", 3000, 5000, memory="partitioned")
    found["gpu, few partitioned counts"] = partial(counts, "uniform", 60_000, 700, memory="partitioned")
    for kind in ("gpu", "cpu"):
        for choices in ({}, {"update": "cas", "memory": "local"}, {"memory": "global"}):
            for even in (True, False):
                name = f"{kind}, batch of {'equal shares' if even else 'offsets'}, {' '.join(choices.values())}"
                found[name] = partial(batch, kind, even, **choices)
        for memory in ("local", "global"):
            found[f"{kind}, two outputs, {memory}"] = partial(several, kind, memory)
        for update in ("cas", "lock"):
            found[f"{kind}, bytes and dest, {update}"] = partial(narrow, kind, update)
        found[f"{kind}, pieces"] = partial(pieces, kind)
        found[f"{kind}, pairs to sort"] = partial(pairs_to_sort, kind)
    found["reach"] = reach
    for name in KERNELS:
        found[f"measure.mako, {name}"] = partial(measuring, name)
    return found


def kernel(operator: Any, code: str, kind: str, local_memory: int = 8192) -> HistogramKernel:
    """Return the kernel of a map of bins and weights."""
    profile = profile_of(kind, local_memory)
    return HistogramKernel(None, operator, arguments="const int *x, const int *w", map=code, profile=profile)


def room_of(choices: dict[str, Any]) -> int:
    """Return how much local memory there should be: a tile of pairs takes more."""
    return 24576 if choices.get("memory") == "partitioned" else 8192


def draw(how: str, bins: int, size: int = NUMBER) -> np.ndarray:
    """Return bins, some of which do not exist."""
    uniform, one = RNG.integers(-2, bins + 2, size), np.full(size, bins // 2)
    half = np.where(RNG.random(size) < 0.5, one, uniform)
    return {"uniform": uniform, "one": one, "half in one": half}[how].astype(np.int32)


def sums(dtype: type, kind: str, how: str, bins: int, **choices: Any) -> None:
    x = draw(how, bins)
    inside = (x >= 0) & (x < bins)
    expected = np.zeros(bins, dtype)
    np.add.at(expected, x[inside], WEIGHTS[inside].astype(dtype))
    found = kernel(operators.add(dtype), "EMIT(x[i], w[i])", kind, room_of(choices))(
        x, WEIGHTS, num_bins=bins, **choices
    )
    np.testing.assert_array_equal(found, expected)


def largest(kind: str, how: str, bins: int, **choices: Any) -> None:
    """Of 16 bytes, which no atomic takes."""
    larger = Operator(RECORD, "b.key > a.key || (b.key == a.key && b.place < a.place) ? b : a", START.item())
    x = draw(how, bins)
    expected = np.full(bins, START)
    inside = np.flatnonzero((x >= 0) & (x < bins))
    for i in inside[np.lexsort((-inside, WEIGHTS[inside]))]:  # the last that is written is the largest
        expected[x[i]] = WEIGHTS[i], i
    found = kernel(larger, "EMIT(x[i], ((value_t){w[i], i}))", kind, room_of(choices))(
        x, WEIGHTS, num_bins=bins, **choices
    )
    np.testing.assert_array_equal(found, expected)


def counts(how: str, bins: int, size: int = NUMBER, packed: bool = False, **choices: Any) -> None:
    x = draw(how, bins, size)
    profile = profile_of("gpu", room_of(choices))
    counter = HistogramKernel(
        None, operators.add(np.int32), arguments="const int *x", map="EMIT(x[i], 1)", profile=profile
    )
    assert (counter.plan(size, bins, **choices).strategy == "packed") == packed
    found = counter(x, num_bins=bins, **choices)
    np.testing.assert_array_equal(found, np.bincount(x[(x >= 0) & (x < bins)], minlength=bins))


def batch(kind: str, even: bool, **choices: Any) -> None:
    """Histograms of as many elements each, or said by offsets."""
    each, number = 100, NUMBER // 100
    x = draw("half in one", 20, each * number)
    rows = x.reshape(number, each)
    want = np.array([np.bincount(row[(row >= 0) & (row < 20)], minlength=20) for row in rows])
    total = kernel(operators.add(np.int32), "EMIT(x[i], 1)", kind)
    shares = {"num_histograms": number} if even else {"offsets": np.arange(number + 1) * each}
    found = total(x, WEIGHTS[: len(x)], num_bins=20, **shares, **choices)
    np.testing.assert_array_equal(found, want)


def several(kind: str, memory: str) -> None:
    """Outputs of one sweep, of which one has two parts."""
    x = draw("uniform", 40)
    number = np.bincount(x[(x >= 0) & (x < 40)], minlength=40)
    outputs = {"n": operators.add(np.int32), "m": operators.mean(np.float32)}
    found = kernel(outputs, "EMIT_n(x[i], 1); EMIT_m(x[i], 2)", kind)(x, WEIGHTS, num_bins=40, memory=memory)
    np.testing.assert_array_equal(found["n"], number)
    np.testing.assert_array_equal(found["m"], np.where(number > 0, 2.0, np.nan))


def narrow(kind: str, update: str) -> None:
    """Values less than a word, and a result that is combined with others."""
    x, dest = draw("uniform", 40), np.full(40, -5, np.int8)
    inside = (x >= 0) & (x < 40)
    want = dest.copy()
    np.maximum.at(want, x[inside], WEIGHTS[inside].astype(np.int8))
    largest_of = kernel(operators.maximum(np.int8), "EMIT(x[i], w[i])", kind)
    np.testing.assert_array_equal(largest_of(x, WEIGHTS, num_bins=40, dest=dest, update=update), want)


def pieces(kind: str) -> None:
    x = draw("uniform", 40)
    x = x[(x >= 0) & (x < 40)]
    total = kernel(operators.add(np.int32), "EMIT(x[i], w[i])", kind).accumulator(40)
    for part in np.array_split(np.arange(len(x)), 2):
        total.add(x[part], WEIGHTS[part])
    np.testing.assert_array_equal(total.result(), np.bincount(x, WEIGHTS[: len(x)], 40))


def pairs_to_sort(kind: str) -> None:
    """The kernel that writes them, with NumPy in the place of PyOpenCL's sort and scan, which take minutes here."""

    def by_keys(keys: cl_array.Array, positions: cl_array.Array, queue: cl.CommandQueue, **_: Any) -> tuple[Any, Any]:
        order = np.argsort(keys.get(), kind="stable")
        for array in (keys, positions):
            array.set(array.get()[order])
        return (keys, positions), cl.enqueue_marker(queue)

    def sum_of_each(*arrays: Any, queue: cl.CommandQueue, **_: Any) -> cl.Event:
        keys, positions, held = (array.get() for array in arrays[:3])
        scratch, no_bin, place = arrays[3].base_data, arrays[4], int(arrays[5])
        cells = np.zeros(no_bin, np.int32)
        np.add.at(cells, keys[keys < no_bin], held.view(np.int32)[positions[keys < no_bin]])
        return cl.enqueue_copy(queue, scratch, cells, dst_offset=place)

    sorting._sort, sorting._scan = lambda *_: by_keys, lambda *_: sum_of_each
    sums(np.int32, kind, "half in one", 37, update="sort")
    sums(np.int32, kind, "one", 1500, update="sort")


def reach() -> None:
    """Counts whose number of bins is learned from the data."""
    x = draw("uniform", 40) + 2
    np.testing.assert_array_equal(clhist.bincount(x), np.bincount(x))


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
